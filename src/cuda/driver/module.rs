// SPDX-License-Identifier: MPL-2.0
//! Modules (loaded images) and the kernels in them.

use std::ffi::CString;
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

impl Module {
    /// Loads a CUBIN or PTX into the device's context.
    ///
    /// # Safety
    /// The image is a complete CUBIN, or text without a NUL: the driver does not validate it.
    pub unsafe fn load(mut image: Vec<u8>, device: &Arc<Device>) -> Result<Self, CudaError> {
        // The driver finds the end of PTX by its NUL. A CUBIN knows its own size.
        image.push(0);
        let _current = device.enter()?;
        // SAFETY: the image is complete, as the caller promises, and ends with a NUL; `raw` is writable.
        let load = |raw: *mut CUmodule| unsafe { cuModuleLoadData(raw, image.as_ptr().cast()) };
        let raw = returned(load).when(device.id(), "loading the kernels")?;
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
        // A context that cannot be entered has been destroyed, and its modules with it.
        if let Ok(_current) = self.device.enter() {
            // SAFETY: the context is current; `load` loaded the module, and nothing that uses it is running any more.
            unsafe {
                let _ = cuCtxSynchronize();
                let _ = cuModuleUnload(self.raw);
            }
        }
    }
}
