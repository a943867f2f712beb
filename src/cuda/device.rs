// SPDX-License-Identifier: MPL-2.0
//! The devices of this machine, each by a context that all engines of the process share.
//!
//! That is the device's primary context, which the rest of the process shares too. It and the kernels loaded into it stay
//! until the process ends, because making them takes 300 ms; frames' memory does not. Or it is a context that somebody
//! else made and keeps alive: then the kernels are unloaded with the last engine in it.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::{result, sys};
use once_cell::sync::OnceCell;

use super::driver::{Current, Doing};
use super::error::{CAPABILITY_NEEDED, CUDA_NEEDED, CudaError, Status};
use super::flight::Traffic;
use super::kernels::{Image, Kernels};
use super::launch::Limits;
use super::special::Specials;

/// A context that somebody else made.
#[derive(Clone)]
pub struct Foreign {
    /// The driver's handle of it.
    pub context: usize,
    /// The number of its device.
    pub id: u32,
    /// While this is there, so is the context.
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// One device and a context on it.
pub struct Device {
    id: u32,
    name: String,
    capability: (i32, i32),
    limits: Limits,
    context: sys::CUcontext,
    driver: (i32, i32),
    kernels: [OnceCell<Kernels>; Image::COUNT],
    specials: Specials,
    traffic: Mutex<Weak<Traffic>>,
    special_name: &'static str,
    /// Keeps the context of somebody else. `None` for the primary one, which stays for good.
    keep: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: the driver API takes a context from any thread.
unsafe impl Send for Device {}
// SAFETY: likewise.
unsafe impl Sync for Device {}

/// By number; made on first use, kept for good.
static DEVICES: Mutex<Vec<&'static OnceCell<Arc<Device>>>> = Mutex::new(Vec::new());
/// In contexts of others, as long as an engine is in them.
static FOREIGN: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());

impl Device {
    /// The device of this number, as the driver counts. The first call for a device makes its context.
    pub fn open(id: u32) -> Result<Arc<Self>, CudaError> {
        let count = count()?;
        if id >= count {
            return Err(CudaError::NoSuchDevice { id, count });
        }
        let cell = {
            let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
            while devices.len() <= id as usize {
                devices.push(Box::leak(Box::default()));
            }
            devices[id as usize]
        };
        cell.get_or_try_init(|| Self::new(id, None).map(Arc::new)).cloned()
    }

    /// The device by a context that somebody else made; the primary one if it is that.
    pub fn adopt(foreign: Foreign) -> Result<Arc<Self>, CudaError> {
        let count = count()?;
        let Foreign { context, id, .. } = foreign;
        if id >= count {
            return Err(CudaError::NoSuchDevice { id, count });
        }
        let primary = {
            let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
            devices.get(id as usize).and_then(|cell| cell.get()).filter(|device| device.context() == context).cloned()
        };
        if let Some(primary) = primary {
            return Ok(primary);
        }
        let mut others = FOREIGN.lock().unwrap_or_else(PoisonError::into_inner);
        others.retain(|device| device.strong_count() > 0);
        let known = others.iter().filter_map(Weak::upgrade).find(|device| device.context() == context);
        if let Some(device) = known {
            return Ok(device);
        }
        let device = Arc::new(Self::new(id, Some(foreign))?);
        others.push(Arc::downgrade(&device));
        Ok(device)
    }

    fn new(id: u32, foreign: Option<Foreign>) -> Result<Self, CudaError> {
        use sys::CUdevice_attribute as Attribute;
        let device = result::device::get(id.cast_signed()).doing(id, "being opened")?;
        let name = result::device::get_name(device).doing(id, "telling its name")?;
        // SAFETY: a device the driver has just named.
        let attribute =
            |attribute| unsafe { result::device::get_attribute(device, attribute) }.doing(id, "being asked");
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        if capability < CAPABILITY_NEEDED {
            return Err(CudaError::DeviceTooOld { id, name, found: capability });
        }
        let limits = Limits {
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.unsigned_abs(),
            shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?.unsigned_abs(),
        };
        let driver = driver_version()?;
        let (context, keep) = match foreign {
            Some(Foreign { context, keep, .. }) => (context as sys::CUcontext, Some(keep)),
            None => {
                // SAFETY: a device the driver has just named. Never released: the context stays.
                (unsafe { result::primary_ctx::retain(device) }.doing(id, "making a context")?, None)
            }
        };
        let special_name = special_name(capability);
        let (kernels, specials, traffic) = (Default::default(), Specials::default(), Default::default());
        Ok(Self { id, name, capability, limits, context, driver, kernels, specials, traffic, special_name, keep })
    }

    /// Makes the context current on this thread for as long as the answer lives.
    pub fn enter(&self) -> Result<Current, CudaError> {
        // SAFETY: the context stays for good, or is kept.
        unsafe { Current::push(self.context) }.doing(self.id, "entering its context")
    }

    /// The kernels of an image, loaded on first use.
    pub fn kernels(&self, image: Image) -> Result<&Kernels, CudaError> {
        self.kernels[image as usize].get_or_try_init(|| {
            let _current = self.enter()?;
            Kernels::load(image, self)
        })
    }

    /// The driver's number for it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Major and minor compute capability.
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// The CUDA version that the driver supports: major, minor.
    pub fn driver(&self) -> (i32, i32) {
        self.driver
    }

    /// The kernels compiled for single sizes.
    pub fn specials(&self) -> &Specials {
        &self.specials
    }

    /// What its engines share, while there are any. The context is current.
    pub(super) fn traffic(&self) -> Result<Arc<Traffic>, CudaError> {
        let mut traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(traffic) = traffic.upgrade() {
            return Ok(traffic);
        }
        let new = Arc::new(Traffic::new(self.id)?);
        *traffic = Arc::downgrade(&new);
        Ok(new)
    }

    /// What people are told while such a kernel serves.
    pub fn special_name(&self) -> &'static str {
        self.special_name
    }

    /// What decides over launches.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The driver's handle of its context.
    pub fn context(&self) -> usize {
        self.context as usize
    }

    /// Waits for all work in its context.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let _current = self.enter()?;
        // SAFETY: the context is current.
        unsafe { sys::cuCtxSynchronize() }.result().doing(self.id, "doing its work")
    }

    /// Free device memory in bytes.
    pub fn free_memory(&self) -> Result<usize, CudaError> {
        let _current = self.enter()?;
        Ok(result::mem_get_info().doing(self.id, "telling its free memory")?.0)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.keep.is_some()
            && let Ok(_current) = self.enter()
        {
            // Frames that stay on the device are not waited for, and their kernels are in there.
            // SAFETY: the context is current.
            let _ = unsafe { sys::cuCtxSynchronize() };
            self.kernels = Default::default();
            self.specials = Specials::default();
        }
    }
}

/// One string for each architecture, for good: what is told of an engine outlives it.
fn special_name(capability: (i32, i32)) -> &'static str {
    static NAMES: Mutex<Vec<((i32, i32), &'static str)>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, name)) = names.iter().find(|(known, _)| *known == capability) {
        return name;
    }
    let name = format!("special-sm_{}{}", capability.0, capability.1).leak();
    names.push((capability, name));
    name
}

/// Whether the driver's library is on this machine.
pub fn has_driver() -> bool {
    // SAFETY: loading libcuda runs its initialisers and nothing else.
    unsafe { sys::is_culib_present() }
}

/// How many devices the driver finds; an error if there is none, or no driver that will do.
pub fn count() -> Result<u32, CudaError> {
    // Asked first, because cudarc panics without it.
    if !has_driver() {
        return Err(CudaError::NoDriver);
    }
    // Before anything else: an older driver may lack a function, for which cudarc would panic.
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

/// The CUDA version that the driver supports. The library has to be there.
fn driver_version() -> Result<(i32, i32), CudaError> {
    let mut version = 0;
    // SAFETY: a valid place; the function needs no initialisation.
    let told = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
    // The stub of a toolkit, for one, is no driver.
    told.map_err(|error| CudaError::NoDevice { status: error.into() })?;
    Ok((version / 1000, version % 1000 / 10))
}
