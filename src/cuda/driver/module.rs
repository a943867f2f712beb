// SPDX-License-Identifier: MPL-2.0
//! Modules (loaded images) and the kernels in them.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use super::ResultExt;
use super::api::*;
use super::device::Device;
use crate::cuda::error::CudaError;

/// A kernel. It can be launched as long as its module is loaded.
#[derive(Debug, Clone, Copy)]
pub struct Function(CUfunction);

// SAFETY: a CUfunction may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: launches only read the handle.
unsafe impl Sync for Function {}

impl Function {
    /// The CUfunction. The module keeps ownership.
    pub fn raw(&self) -> CUfunction {
        self.0
    }
}

/// A loaded image. Dropping it waits for all work in the context, which may include its kernels, and unloads it.
pub struct Module {
    raw: CUmodule,
    device: Arc<Device>,
}

// SAFETY: a CUmodule may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: the driver serialises concurrent calls on one module.
unsafe impl Sync for Module {}

/// The driver's linker state: it compiles PTX to a CUBIN for the device of the current context, and owns the CUBIN.
struct Link(CUlinkState);

impl Link {
    /// Creates a linker state without input.
    fn new() -> Result<Self, DriverError> {
        // SAFETY: no options are passed, and `raw` is writable.
        let create = |raw: *mut CUlinkState| unsafe { cuLinkCreate_v2(0, ptr::null_mut(), ptr::null_mut(), raw) };
        let mut raw = ptr::null_mut();
        create(&raw mut raw).result()?;
        Ok(Self(raw))
    }

    /// Compiles PTX that ends with a NUL. The returned CUBIN lives as long as `self`.
    fn compile(&self, ptx: &mut [u8]) -> Result<*const c_void, DriverError> {
        let (mut cubin, mut bytes) = (ptr::null_mut(), 0);
        let (data, kind) = (ptx.as_mut_ptr().cast(), CUjitInputType::CU_JIT_INPUT_PTX);
        // SAFETY: the linker state is valid until it is dropped. `data` points to `ptx.len()` bytes, the name ends with a NUL,
        // and no options are passed. `cubin` and `bytes` are writable.
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
        // SAFETY: `new` created the linker state, and it is destroyed only here.
        let _ = unsafe { cuLinkDestroy(self.0) };
    }
}

impl Module {
    /// Loads a CUBIN or PTX into the device's context. PTX is compiled by the linker first. This takes the driver up to two
    /// seconds, unless its cache has the result. `cuModuleLoadData` could compile too, but no other thread could use the context
    /// meanwhile.
    ///
    /// # Safety
    /// The image is a complete CUBIN, or PTX text that has no NUL except at its end. The driver does not validate it.
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
            // SAFETY: the image is complete: the caller promises it for `image`, and the driver made the linked CUBIN, which
            // `link` keeps alive. `raw` is writable.
            returned(|raw: *mut CUmodule| unsafe { cuModuleLoadData(raw, image) })
        };
        let raw = load(cubin).or_else(|error| match error.0 {
            // With CUDA_FORCE_PTX_JIT the driver loads no CUBIN, not even the one that it has just made.
            CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU if link.is_some() => load(image.as_ptr().cast()),
            _ => Err(error),
        });
        let raw = raw.when(device.id(), "loading the kernels")?;
        Ok(Self { raw, device: Arc::clone(device) })
    }

    /// Returns the kernel with this name, and allows it as much dynamic shared memory as the device has for a block.
    pub fn function(&self, name: &str) -> Result<Function, CudaError> {
        let (device, shared_bytes) = (self.device.id(), self.device.limits().shared_bytes);
        let name = CString::new(name).expect("names of kernels have no NUL");
        let _current = self.device.enter()?;
        // SAFETY: the module is loaded as long as `self` lives. `name` ends with a NUL, and `raw` is writable.
        let get = |raw: *mut CUfunction| unsafe { cuModuleGetFunction(raw, self.raw, name.as_ptr()) };
        let raw = returned(get).when(device, "looking for a kernel")?;
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: `raw` is a function of this loaded module, and the value is the device's own limit.
        unsafe { cuFuncSetAttribute(raw, attribute, shared_bytes.cast_signed()) }
            .result()
            .when(device, "reserving shared memory")?;
        Ok(Function(raw))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: `load` loaded the module into this context, which is current. After `cuCtxSynchronize` no kernel of it is
        // running.
        self.device.while_current(|| unsafe {
            let _ = cuCtxSynchronize();
            let _ = cuModuleUnload(self.raw);
        });
    }
}
