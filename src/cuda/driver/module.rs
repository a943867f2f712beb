// SPDX-License-Identifier: MPL-2.0
//! Modules (loaded images) and the kernels in them.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use super::ResultExt;
use super::api::*;
use super::device::Device;
use crate::cuda::error::CudaError;

/// A kernel. It can be launched while its module is loaded.
#[derive(Debug, Clone, Copy)]
pub struct Function(CUfunction);

// SAFETY: a CUfunction may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: launches only read it.
unsafe impl Sync for Function {}

impl Function {
    /// The CUfunction. The module keeps ownership.
    pub fn raw(&self) -> CUfunction {
        self.0
    }
}

/// A loaded image. Dropping it waits for the context's work, of which its kernels may be part, and unloads it.
pub struct Module {
    raw: CUmodule,
    device: Arc<Device>,
}

// SAFETY: a CUmodule may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: the driver serialises concurrent calls.
unsafe impl Sync for Module {}

/// PTX and the CUBIN that the driver compiles from it for the current context's device.
struct Link(CUlinkState);

impl Link {
    /// Without PTX.
    fn new() -> Result<Self, DriverError> {
        // SAFETY: there are no options; `raw` is writable.
        let create = |raw: *mut CUlinkState| unsafe { cuLinkCreate_v2(0, ptr::null_mut(), ptr::null_mut(), raw) };
        let mut raw = ptr::null_mut();
        create(&raw mut raw).result()?;
        Ok(Self(raw))
    }

    /// Compiles PTX, which ends with a NUL. The CUBIN lives as long as `self`.
    fn compile(&self, ptx: &mut [u8]) -> Result<*const c_void, DriverError> {
        let (mut cubin, mut bytes) = (ptr::null_mut(), 0);
        let (data, kind) = (ptx.as_mut_ptr().cast(), CUjitInputType::CU_JIT_INPUT_PTX);
        // SAFETY: the link is valid until it is dropped; the PTX has this length, its name ends with a NUL, and there are no
        // options; `cubin` and `bytes` are writable.
        unsafe {
            let name = c"kernels".as_ptr();
            cuLinkAddData_v2(self.0, kind, data, ptx.len(), name, 0, ptr::null_mut(), ptr::null_mut()).result()?;
            cuLinkComplete(self.0, &raw mut cubin, &raw mut bytes).result()?;
        }
        Ok(cubin.cast_const())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: `new` made the link, and it is destroyed once.
        let _ = unsafe { cuLinkDestroy(self.0) };
    }
}

impl Module {
    /// Loads a CUBIN or PTX into the device's context. PTX is compiled first, which takes the driver up to two seconds unless its
    /// cache has the result. `cuModuleLoadData` would keep every other thread from using the context meanwhile.
    ///
    /// # Safety
    /// The image is a complete CUBIN, or text without a NUL: the driver does not validate it.
    pub unsafe fn load(mut image: Vec<u8>, device: &Arc<Device>) -> Result<Self, CudaError> {
        let _current = device.enter()?;
        let mut link = None;
        let mut cubin = image.as_ptr().cast();
        if !image.starts_with(b"\x7fELF") {
            image.push(0);
            let compiled = Link::new().and_then(|new| link.insert(new).compile(&mut image));
            cubin = compiled.map_err(|error| CudaError::of_ptx(error, device.id()))?;
        }
        let load = |image: *const c_void| {
            // SAFETY: the image is complete, as the caller promises or by the driver, and `link` keeps the driver's; `raw` is
            // writable.
            returned(|raw: *mut CUmodule| unsafe { cuModuleLoadData(raw, image) })
        };
        let raw = load(cubin).or_else(|error| match error.0 {
            // With CUDA_FORCE_PTX_JIT the driver loads no CUBIN, not even its own.
            CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU if link.is_some() => load(image.as_ptr().cast()),
            _ => Err(error),
        });
        let raw = raw.when(device.id(), "loading the kernels")?;
        Ok(Self { raw, device: Arc::clone(device) })
    }

    /// The kernel of this name, allowed to use as much dynamic shared memory as the device has for a block.
    pub fn function(&self, name: &str) -> Result<Function, CudaError> {
        let (device, shared_bytes) = (self.device.id(), self.device.limits().shared_bytes);
        let name = CString::new(name).expect("names of kernels have no NUL");
        let _current = self.device.enter()?;
        // SAFETY: the module is loaded as long as `self` lives; `raw` is writable.
        let get = |raw: *mut CUfunction| unsafe { cuModuleGetFunction(raw, self.raw, name.as_ptr()) };
        let raw = returned(get).when(device, "looking for a kernel")?;
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is of this module; the value is the device's own limit.
        unsafe { cuFuncSetAttribute(raw, attribute, shared_bytes.cast_signed()) }
            .result()
            .when(device, "reserving shared memory")?;
        Ok(Function(raw))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: `load` loaded the module, and nothing that uses it is running once the context is idle.
        self.device.while_current(|| unsafe {
            let _ = cuCtxSynchronize();
            let _ = cuModuleUnload(self.raw);
        });
    }
}
