// SPDX-License-Identifier: MPL-2.0
//! The devices of this machine: one persistent context each, shared by all engines of the process.
//!
//! The context is the device's primary one, which the rest of the process shares too. It and the loaded kernels stay
//! until the process ends, because making them takes 300 ms; frames' memory does not.

use std::sync::Mutex;

use cudarc::driver::{result, sys};
use once_cell::sync::OnceCell;

use super::driver::{Current, Doing};
use super::error::{CAPABILITY_NEEDED, CUDA_NEEDED, CudaError, Status};
use super::kernels::{Image, Kernels};
use super::launch::Limits;
use super::special::Specials;

/// One device and its context.
pub struct Device {
    id: u32,
    name: String,
    capability: (i32, i32),
    limits: Limits,
    context: sys::CUcontext,
    driver: (i32, i32),
    kernels: [OnceCell<Kernels>; Image::COUNT],
    specials: Specials,
    special_name: String,
}

// SAFETY: the driver API takes a context from any thread.
unsafe impl Send for Device {}
// SAFETY: likewise.
unsafe impl Sync for Device {}

/// By number; made on first use, kept for good.
static DEVICES: Mutex<Vec<&'static OnceCell<Device>>> = Mutex::new(Vec::new());

impl Device {
    /// The device of this number, as the driver counts. The first call for a device makes its context.
    pub fn open(id: u32) -> Result<&'static Self, CudaError> {
        let count = count()?;
        if id >= count {
            return Err(CudaError::NoSuchDevice { id, count });
        }
        let cell = {
            let mut devices = DEVICES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            while devices.len() <= id as usize {
                devices.push(Box::leak(Box::default()));
            }
            devices[id as usize]
        };
        cell.get_or_try_init(|| Self::new(id))
    }

    fn new(id: u32) -> Result<Self, CudaError> {
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
        // SAFETY: a device the driver has just named. Never released: the context stays.
        let context = unsafe { result::primary_ctx::retain(device) }.doing(id, "making a context")?;
        let special_name = format!("special-sm_{}{}", capability.0, capability.1);
        let (kernels, specials) = (Default::default(), Specials::default());
        Ok(Self { id, name, capability, limits, context, driver, kernels, specials, special_name })
    }

    /// Makes the context current on this thread for as long as the answer lives.
    pub fn enter(&self) -> Result<Current, CudaError> {
        // SAFETY: the context stays for good.
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

    /// What people are told while such a kernel serves.
    pub fn special_name(&self) -> &str {
        &self.special_name
    }

    /// What decides over launches.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The address of its context, to tell two apart.
    pub fn context(&self) -> usize {
        self.context as usize
    }

    /// Free device memory in bytes.
    pub fn free_memory(&self) -> Result<usize, CudaError> {
        let _current = self.enter()?;
        Ok(result::mem_get_info().doing(self.id, "telling its free memory")?.0)
    }
}

/// How many devices the driver finds; an error if there is none, or no driver that will do.
pub fn count() -> Result<u32, CudaError> {
    // SAFETY: loading libcuda runs its initialisers and nothing else. Asked first, because cudarc panics without it.
    if !unsafe { sys::is_culib_present() } {
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
