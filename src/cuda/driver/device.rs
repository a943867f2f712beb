// SPDX-License-Identifier: MPL-2.0
//! A device, accessed through one context on it: handle, limits, and guards that make the context current on a thread.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, Mutex, Weak};

use super::ResultExt;
use super::api::*;
use crate::cuda::error::{CAPABILITY_NEEDED, CUDA_NEEDED, CudaError};
use crate::process::lock;

/// A context that another owner made, and a value that keeps it alive.
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

    /// The driver's number of the context's device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// The CUcontext.
    pub fn handle(&self) -> usize {
        self.context
    }
}

/// Properties of a device that limit launches.
#[derive(Debug, Clone, Copy)]
pub struct DeviceLimits {
    /// The number of multiprocessors.
    pub multiprocessors: u32,
    /// The largest dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

/// All live [`Device`]s of the process, for [`synchronize_all`].
static DEVICES: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());

/// A device and one context on it: the primary context, or an external one.
pub struct Device {
    id: u32,
    name: String,
    capability: (i32, i32),
    limits: DeviceLimits,
    context: CUcontext,
    driver: (i32, i32),
    /// Keeps an external context alive. `None` for the primary context, which is never released.
    _keep_alive: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: a CUcontext may be made current on any thread; everything else is plain data.
unsafe impl Send for Device {}
// SAFETY: no field changes after `new`.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device with this number through its primary context. The context is never released, because creating it again
    /// would take 300 ms.
    pub fn primary(id: u32) -> Result<Arc<Self>, CudaError> {
        Self::new(id, |device| {
            // SAFETY: the driver has just returned this handle; `context` is writable.
            let retain = |context: *mut CUcontext| unsafe { cuDevicePrimaryCtxRetain(context, device) };
            Ok((returned(retain).when(id, "making a context")?, None))
        })
    }

    /// Opens the device of an external context, and uses that context.
    pub fn adopt(external: ExternalContext) -> Result<Arc<Self>, CudaError> {
        let ExternalContext { context, device, keep_alive } = external;
        Self::new(device, |_| Ok((context as CUcontext, Some(keep_alive))))
    }

    fn new(
        id: u32,
        context: impl FnOnce(CUdevice) -> Result<(CUcontext, Option<Arc<dyn Any + Send + Sync>>), CudaError>,
    ) -> Result<Arc<Self>, CudaError> {
        use CUdevice_attribute as Attribute;
        let count = count()?;
        if id >= count {
            return Err(CudaError::NoSuchDevice { id, count });
        }
        // SAFETY: `device` is writable.
        let get = |device: *mut CUdevice| unsafe { cuDeviceGet(device, id.cast_signed()) };
        let device = returned(get).when(id, "being opened")?;
        let mut name = [0; 128];
        // SAFETY: the driver writes at most `name.len()` bytes, and `name` is writable.
        unsafe { cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, device) }
            .result()
            .when(id, "telling its name")?;
        let name = String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        let attribute = |attribute| {
            // SAFETY: the driver has just returned this handle; `value` is writable.
            let get = |value: *mut i32| unsafe { cuDeviceGetAttribute(value, attribute, device) };
            returned(get).when(id, "being asked")
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
        let device = Arc::new(Self { id, name, capability, limits, context, driver, _keep_alive: keep_alive });
        let mut devices = lock(&DEVICES);
        devices.retain(|device| device.strong_count() > 0);
        devices.push(Arc::downgrade(&device));
        Ok(device)
    }

    /// Runs `work` with the context current. For destructors of handles: if the context cannot be made current, `work` does not
    /// run and the handle is leaked.
    pub(super) fn while_current(&self, work: impl FnOnce()) {
        let entered = (CURRENT.get() != self.context as usize).then(|| self.enter());
        if !matches!(entered, Some(Err(_))) {
            work();
        }
    }

    /// Makes the context current on this thread until the guard is dropped. Guards of a thread are dropped in the reverse order
    /// of their creation.
    pub fn enter(&self) -> Result<ContextGuard<'_>, CudaError> {
        // SAFETY: a primary context is never released, and `_keep_alive` keeps an external context alive. The guard borrows
        // `self`.
        unsafe { ContextGuard::push(self.context) }.when(self.id, "entering its context")
    }

    /// The driver's number of the device.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The compute capability of the device: major, minor.
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// The CUDA version that the driver supports: major, minor.
    pub fn driver(&self) -> (i32, i32) {
        self.driver
    }

    /// The properties that limit launches.
    pub fn limits(&self) -> DeviceLimits {
        self.limits
    }

    /// The CUcontext.
    pub fn context(&self) -> usize {
        self.context as usize
    }

    /// Waits for all work in the context. The method makes the context current by itself.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let _current = self.enter()?;
        // SAFETY: the guard keeps the context current.
        unsafe { cuCtxSynchronize() }.result().when(self.id, "doing its work")
    }

    /// Returns the free device memory in bytes. The method makes the context current by itself.
    pub fn free_memory(&self) -> Result<usize, CudaError> {
        let _current = self.enter()?;
        let mut total = 0;
        // SAFETY: `free` and `total` are writable.
        let get = |free: *mut usize| unsafe { cuMemGetInfo_v2(free, &mut total) };
        returned(get).when(self.id, "telling its free memory")
    }
}

/// Waits for all work in the contexts of all live [`Device`]s. Contexts that only other code uses are not known here. Errors are
/// ignored, because the calls that wait for the failed work report them.
pub fn synchronize_all() {
    let devices: Vec<_> = lock(&DEVICES).iter().filter_map(Weak::upgrade).collect();
    devices.iter().for_each(|device| _ = device.synchronize());
}

/// Keeps a context current on this thread. Dropping the guard restores the context that was current before, because the threads
/// belong to GStreamer and to other elements.
pub struct ContextGuard<'a> {
    /// The handle of the context of the enclosing guard, 0 without one.
    previous: usize,
    /// Makes the guard `!Send`, because the context is current on this thread only, and borrows the device.
    _thread: PhantomData<(*const (), &'a Device)>,
}

thread_local! {
    /// The handle of the context of the innermost guard on this thread, 0 without a guard.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

impl ContextGuard<'_> {
    /// Makes the context current on this thread.
    ///
    /// # Safety
    /// The context outlives the guard.
    unsafe fn push(context: CUcontext) -> Result<Self, DriverError> {
        // SAFETY: the caller promises that the context outlives the guard, so it is live now.
        unsafe { cuCtxPushCurrent_v2(context) }.result()?;
        Ok(Self { previous: CURRENT.replace(context as usize), _thread: PhantomData })
    }
}

impl Drop for ContextGuard<'_> {
    fn drop(&mut self) {
        let mut context = ptr::null_mut();
        // SAFETY: `push` pushed the context on this thread, which the guard cannot leave, and inner guards have popped theirs.
        let _ = unsafe { cuCtxPopCurrent_v2(&mut context) };
        CURRENT.set(self.previous);
    }
}

/// Returns the number of devices, at least 1. Fails if there is no device, or if the driver is missing or too old.
pub fn count() -> Result<u32, CudaError> {
    load().map_err(|missing| match missing {
        Missing::Bits => CudaError::Needs64Bits,
        Missing::Library(reason) => CudaError::NoDriver { reason },
        Missing::Function(function) => CudaError::IncompleteDriver { function },
    })?;
    let found = driver_version()?;
    if found < CUDA_NEEDED {
        return Err(CudaError::DriverTooOld { found });
    }
    let no_device = |error: DriverError| CudaError::NoDevice { status: error.into() };
    // SAFETY: `load` has found the function, and the flags are 0, the only value that is allowed.
    unsafe { cuInit(0) }.result().map_err(no_device)?;
    // SAFETY: `count` is writable, and `cuInit` has succeeded.
    match returned(|count: *mut i32| unsafe { cuDeviceGetCount(count) }).map_err(no_device)? {
        0 => Err(no_device(DriverError(CUresult::CUDA_ERROR_NO_DEVICE))),
        count => Ok(count.unsigned_abs()),
    }
}

/// The CUDA version that the driver supports. `load` must have succeeded before.
fn driver_version() -> Result<(i32, i32), CudaError> {
    // SAFETY: `version` is writable, and the function needs no call of `cuInit` before.
    let version = returned(|version: *mut i32| unsafe { cuDriverGetVersion(version) });
    // The call fails in the stub library of a toolkit.
    let version = version.map_err(|error| CudaError::NoDevice { status: error.into() })?;
    Ok((version / 1000, version % 1000 / 10))
}
