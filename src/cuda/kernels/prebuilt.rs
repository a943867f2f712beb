// SPDX-License-Identifier: MPL-2.0
//! The prebuilt kernels, loaded into a context. A part is loaded when one of its kernels is first requested.

use std::sync::Arc;
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use super::images::{ImageSet, Kernel, Part};
use super::launch::Launch;
use crate::cuda::driver::device::Device;
use crate::cuda::driver::{Function, Module, Stream};
use crate::cuda::error::CudaError;
use crate::process::{Level, log};

/// The images that kernels can be loaded from. The output is the same with each of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Image {
    /// Machine code for the device's architecture if the plugin has it, else the portable PTX.
    #[default]
    Best,
    /// The portable PTX, which the driver compiles.
    Portable,
}

impl Image {
    /// The number of variants of this enum.
    pub const COUNT: usize = 2;
}

/// The part that is loaded first, to find out whether the device accepts the images. It is a small part.
const PROBE: Part = Part::Alpha;

/// The prebuilt kernels, loaded into one context part by part.
pub struct PrebuiltKernels {
    /// The images that the kernels are loaded from.
    pub images: ImageSet,
    device: Arc<Device>,
    parts: [OnceCell<LoadedPart>; Part::ALL.len()],
    /// The name of the machine code that the driver refused, and the error.
    refused: Option<(&'static str, CudaError)>,
}

/// The kernels of a part, and the time that loading them took.
struct LoadedPart {
    kernels: LoadedKernels,
    took: Duration,
    /// The part of `took` that unpacking took.
    unpacked: Duration,
}

/// The kernels of a module.
pub struct LoadedKernels {
    functions: Vec<(Kernel, Function)>,
    /// Keeps `functions` loaded.
    _module: Module,
}

impl LoadedKernels {
    /// Looks up these kernels in a module.
    pub fn new(module: Module, kernels: impl IntoIterator<Item = Kernel>) -> Result<Self, CudaError> {
        let function = |kernel: Kernel| Ok((kernel, module.function(kernel.entry_point())?));
        let functions = kernels.into_iter().map(function).collect::<Result<_, CudaError>>()?;
        Ok(Self { functions, _module: module })
    }

    /// The function of a kernel, if it is one of these kernels.
    pub fn get(&self, kernel: Kernel) -> Option<Function> {
        self.functions.iter().find(|(of, _)| *of == kernel).map(|(_, function)| *function)
    }
}

impl PrebuiltKernels {
    /// Chooses the images for a device, and loads one part of them. All other parts are later loaded from the same images,
    /// because the [`KernelSet`](super::abi::KernelSet) of the images decides how plans are lowered. Logs nothing, see
    /// [`Self::log_opening`].
    pub fn open(image: Image, device: &Arc<Device>) -> Result<Self, CudaError> {
        let best = match image {
            Image::Best => ImageSet::best_for(device.capability()),
            Image::Portable => ImageSet::portable_for(device.capability()),
        };
        if best.is_portable() {
            return Self::probe(best, device);
        }
        // A driver can refuse machine code of a later toolkit, but accepts the PTX.
        Self::probe(best, device).or_else(|error| {
            let refused = Some((best.name(), error));
            Ok(Self { refused, ..Self::probe(ImageSet::portable_for(device.capability()), device)? })
        })
    }

    fn probe(images: ImageSet, device: &Arc<Device>) -> Result<Self, CudaError> {
        let parts = std::array::from_fn(|_| OnceCell::new());
        let kernels = Self { images, device: Arc::clone(device), parts, refused: None };
        kernels.parts[PROBE as usize].get_or_try_init(|| kernels.load_part(PROBE))?;
        Ok(kernels)
    }

    /// Logs the result of [`Self::open`]. It is separate so that it can be called without a lock.
    pub fn log_opening(&self) {
        if let Some((name, error)) = &self.refused {
            log(Level::Warning, || format!("{name} cannot be used ({error}); using the portable kernels"));
        }
        self.parts[PROBE as usize].get().inspect(|loaded| self.log_part(PROBE, loaded));
    }

    fn log_part(&self, part: Part, LoadedPart { took, unpacked, .. }: &LoadedPart) {
        let (name, images) = (part.name(), self.images.name());
        log(Level::Debug, || format!("{images}: {name} loaded in {took:.1?}, {unpacked:.1?} of it to unpack it"));
    }

    /// Returns the function of a kernel. Loads its part if necessary, or waits for a thread that is loading it.
    pub fn function(&self, kernel: Kernel) -> Result<Function, CudaError> {
        let lacks = || CudaError::NoKernel { image: self.images.name(), kernel: kernel.entry_point().to_owned() };
        self.part(kernel.part())?.get(kernel).ok_or_else(lacks)
    }

    /// Enqueues launches of prebuilt kernels. Loads their parts if necessary.
    ///
    /// # Safety
    /// The device's context is current. The memory that the launches access lives and is accessed by nobody else until the stream
    /// has finished them.
    pub unsafe fn enqueue(&self, stream: &Stream, launches: &[Launch]) -> Result<(), CudaError> {
        let overlap = self.images.can_overlap();
        for launch in launches {
            // SAFETY: `function` returns the kernel of the launch, which stays loaded as long as a `Module` of `self` lives;
            // dropping that waits for the context. `overlap` is set only for images that were compiled for sm_90 or later. The
            // caller promises the context and the memory.
            unsafe { launch.enqueue(self.function(launch.kernel)?, stream, overlap) }?;
        }
        Ok(())
    }

    /// Whether a part is loaded.
    pub fn has(&self, part: Part) -> bool {
        self.parts[part as usize].get().is_some()
    }

    /// Loads the parts of these kernels. For the portable PTX each part gets a thread, because the driver takes up to a second to
    /// compile a part. Returns the parts that failed, and the errors.
    pub fn load(&self, kernels: &[Kernel]) -> Vec<(Part, CudaError)> {
        let mut parts: Vec<Part> = kernels.iter().map(|kernel| kernel.part()).filter(|part| !self.has(*part)).collect();
        parts.sort_unstable();
        parts.dedup();
        let load = |part: Part| self.part(part).err().map(|error| (part, error));
        if !self.images.is_portable() {
            return parts.into_iter().filter_map(load).collect();
        }
        std::thread::scope(|scope| {
            let spawn = |part| std::thread::Builder::new().spawn_scoped(scope, move || load(part)).map_err(|_| part);
            let threads: Vec<_> = parts.into_iter().map(spawn).collect();
            // If a thread cannot be started, its part is loaded on this thread.
            let join = |thread: Result<std::thread::ScopedJoinHandle<_>, Part>| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(part) => load(part),
            };
            threads.into_iter().filter_map(join).collect()
        })
    }

    /// Loads all parts.
    pub fn load_all(&self) -> Result<(), CudaError> {
        let kernels: Vec<_> = Kernel::prebuilt(self.images.kernel_set()).collect();
        self.load(&kernels).pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Returns the kernels of a part. Loads the part if necessary.
    pub fn part(&self, part: Part) -> Result<&LoadedKernels, CudaError> {
        let mut is_new = false;
        let loaded = self.parts[part as usize].get_or_try_init(|| {
            is_new = true;
            self.load_part(part)
        })?;
        if is_new {
            self.log_part(part, loaded);
        }
        Ok(&loaded.kernels)
    }

    fn load_part(&self, part: Part) -> Result<LoadedPart, CudaError> {
        let started = Instant::now();
        let lacks = || CudaError::NoKernel { image: self.images.name(), kernel: part.name().to_owned() };
        let image = self.images.unpack(part).ok_or_else(lacks)?;
        let unpacked = started.elapsed();
        // SAFETY: an embedded image is a complete CUBIN, or PTX without a NUL, and it has been unpacked to its whole length.
        let module = unsafe { Module::load(image, &self.device) }?;
        let kernels = LoadedKernels::new(module, self.images.kernels(part))?;
        Ok(LoadedPart { kernels, took: started.elapsed(), unpacked })
    }
}
