// SPDX-License-Identifier: MPL-2.0
//! A device through one context on it: its handle, its limits, and making it current.

use std::any::Any;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::ResultExt;
use crate::cuda::error::{CAPABILITY_NEEDED, CUDA_NEEDED, CudaError, Status};

/// A context that another owner made, with what keeps it alive.
#[derive(Clone)]
pub struct ExternalContext {
    context: usize,
    device: u32,
    keep_alive: Arc<dyn Any + Send + Sync>,
}

impl ExternalContext {
    /// Describes a context to adopt.
    ///
    /// # Safety
    /// `context` is a CUcontext of device `device` (the driver's number), and it is not destroyed as long as `keep_alive` or a
    /// clone of it exists. The driver dereferences the handle, so any other value is undefined behaviour.
    pub unsafe fn new(context: usize, device: u32, keep_alive: Arc<dyn Any + Send + Sync>) -> Self {
        Self { context, device, keep_alive }
    }

    /// The number of its device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// The CUcontext.
    pub fn handle(&self) -> usize {
        self.context
    }
}

/// What limits the launches on a device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceLimits {
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Largest dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

/// A device and one context on it: the primary context, or an external one.
pub struct Device {
    id: u32,
    name: String,
    capability: (i32, i32),
    limits: DeviceLimits,
    context: sys::CUcontext,
    driver: (i32, i32),
    /// Keeps an external context alive. `None` for the primary context, which is never released.
    _keep_alive: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: a CUcontext may be made current on any thread; everything else is plain data.
unsafe impl Send for Device {}
// SAFETY: nothing in it changes after it was made.
unsafe impl Sync for Device {}

impl Device {
    /// The device with this number, through its primary context, which is retained for good: making one takes 300 ms.
    pub fn primary(id: u32) -> Result<Self, CudaError> {
        Self::new(id, |device| {
            // SAFETY: the driver has just returned this handle.
            let context = unsafe { result::primary_ctx::retain(device) }.when(id, "making a context")?;
            Ok((context, None))
        })
    }

    /// The device of an external context, through that context.
    pub fn adopt(external: ExternalContext) -> Result<Self, CudaError> {
        let ExternalContext { context, device, keep_alive } = external;
        Self::new(device, |_| Ok((context as sys::CUcontext, Some(keep_alive))))
    }

    fn new(
        id: u32,
        context: impl FnOnce(sys::CUdevice) -> Result<(sys::CUcontext, Option<Arc<dyn Any + Send + Sync>>), CudaError>,
    ) -> Result<Self, CudaError> {
        use sys::CUdevice_attribute as Attribute;
        let count = count()?;
        if id >= count {
            return Err(CudaError::NoSuchDevice { id, count });
        }
        let device = result::device::get(id.cast_signed()).when(id, "being opened")?;
        let name = result::device::get_name(device).when(id, "telling its name")?;
        let attribute = |attribute| {
            // SAFETY: the driver has just returned this handle.
            unsafe { result::device::get_attribute(device, attribute) }.when(id, "being asked")
        };
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        if capability < CAPABILITY_NEEDED {
            return Err(CudaError::DeviceTooOld { id, name, found: capability });
        }
        let limits = DeviceLimits {
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.unsigned_abs(),
            shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?.unsigned_abs(),
        };
        let driver = driver_version()?;
        let (context, keep_alive) = context(device)?;
        Ok(Self { id, name, capability, limits, context, driver, _keep_alive: keep_alive })
    }

    /// Makes the context current on this thread until the guard is dropped.
    pub fn enter(&self) -> Result<ContextGuard, CudaError> {
        // SAFETY: a primary context is never released, an external one is kept alive by `self`.
        unsafe { ContextGuard::push(self.context) }.when(self.id, "entering its context")
    }

    /// The driver's number for it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Compute capability: major, minor.
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// The CUDA version that the driver supports: major, minor.
    pub fn driver(&self) -> (i32, i32) {
        self.driver
    }

    /// What limits launches.
    pub fn limits(&self) -> DeviceLimits {
        self.limits
    }

    /// The CUcontext.
    pub fn context(&self) -> usize {
        self.context as usize
    }

    /// Waits for all work in its context. Enters it by itself.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let _current = self.enter()?;
        // SAFETY: the context is current.
        unsafe { sys::cuCtxSynchronize() }.result().when(self.id, "doing its work")
    }

    /// Free device memory in bytes. Enters its context by itself.
    pub fn free_memory(&self) -> Result<usize, CudaError> {
        let _current = self.enter()?;
        Ok(result::mem_get_info().when(self.id, "telling its free memory")?.0)
    }
}

/// A context that is current on this thread. Dropping it restores the one that was current before: threads belong to
/// GStreamer and to other elements.
pub struct ContextGuard(PhantomData<*const ()>);

impl ContextGuard {
    /// # Safety
    /// The context lives as long as the guard.
    unsafe fn push(context: sys::CUcontext) -> Result<Self, DriverError> {
        // SAFETY: the context is live, as the caller promises.
        unsafe { sys::cuCtxPushCurrent_v2(context) }.result()?;
        Ok(Self(PhantomData))
    }
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        let mut context = ptr::null_mut();
        // SAFETY: `push` pushed it on this thread, which the guard cannot leave.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut context) };
    }
}

/// Whether the driver's library is installed.
pub fn has_driver() -> bool {
    // SAFETY: loading libcuda runs its initialisers and nothing else.
    unsafe { sys::is_culib_present() }
}

/// The number of devices, at least 1. Fails if there is none or the driver is missing or too old.
pub fn count() -> Result<u32, CudaError> {
    // cudarc panics if the library is missing.
    if !has_driver() {
        return Err(CudaError::NoDriver);
    }
    // cudarc panics if a function is missing, and an older driver may lack one.
    let found = driver_version()?;
    if found < CUDA_NEEDED {
        return Err(CudaError::DriverTooOld { found });
    }
    let no_device = |error| CudaError::NoDevice { status: Status::from(error) };
    result::init().map_err(no_device)?;
    match result::device::get_count().map_err(no_device)? {
        0 => Err(no_device(result::DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE))),
        count => Ok(count.unsigned_abs()),
    }
}

/// The CUDA version that the driver supports. The library is installed.
fn driver_version() -> Result<(i32, i32), CudaError> {
    let mut version = 0;
    // SAFETY: `version` is writable; the function needs no initialisation.
    let status = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
    // The stub library of a toolkit fails here.
    status.map_err(|error| CudaError::NoDevice { status: error.into() })?;
    Ok((version / 1000, version % 1000 / 10))
}
