// SPDX-License-Identifier: MPL-2.0
//! Selects the kernels that an engine uses: the prebuilt kernels of an image, and the specialised kernels that are ready.

use std::sync::Arc;

use super::driver::Function;
use super::driver::device::Device;
use super::error::CudaError;
use super::jit::{Compilation, JitRequest};
use super::kernels::abi::KernelSet;
use super::kernels::entry::Entry;
use super::kernels::images::{Kernel, Part};
use super::kernels::launch::Launch;
use super::kernels::possible;
use super::kernels::prebuilt::{Image, LoadedKernels, PrebuiltKernels};
use super::kernels::tensor_direct::DirectKernel;
use super::shared_device::SharedDevice;
use crate::filter::frame::PlaneLayout;

/// The kernels that an engine may use.
pub struct KernelSelector {
    /// The state that all engines on the device share.
    pub shared: Arc<SharedDevice>,
    image: Image,
    /// The prebuilt kernels of the image.
    pub prebuilt: Arc<PrebuiltKernels>,
    /// The set of kernels for which plans are lowered.
    pub kernel_set: KernelSet,
    /// The requests for kernels that are compiled in the background; `None` if the engine uses only the prebuilt kernels.
    pub request: Option<JitRequest>,
}

/// The specialised kernels that a program uses, and the kernels that would be faster.
#[derive(Default)]
pub struct Specialised {
    /// The kernels that would be the fastest if they were compiled, by NVRTC or by the driver.
    pub keys: Vec<Compilation>,
    /// The kernels of NVRTC that the program uses.
    pub ready: Vec<(DirectKernel, Arc<LoadedKernels>)>,
}

impl KernelSelector {
    /// A selector with the prebuilt kernels of an image, and with requests for specialised kernels.
    pub fn new(shared: Arc<SharedDevice>, image: Image) -> Result<Self, CudaError> {
        let prebuilt = Arc::clone(shared.prebuilt(image)?);
        let request = Some(JitRequest::new(Arc::clone(&shared.jit), Arc::clone(&prebuilt)));
        let kernel_set = prebuilt.images.kernel_set();
        Ok(Self { shared, image, prebuilt, kernel_set, request })
    }

    /// The device of the selector.
    pub fn device(&self) -> &Arc<Device> {
        self.shared.device()
    }

    /// Whether the tensor-core kernels are compiled in the background, while the kernels for CUDA cores are used.
    pub fn compiles_parts(&self) -> bool {
        self.prebuilt.images.is_portable() && self.kernel_set == KernelSet::TensorCores && self.request.is_some()
    }

    /// The parts of these kernels that are compiled in the background and are not ready, each once.
    pub fn missing_parts(&self, kernels: impl IntoIterator<Item = Kernel>) -> Vec<Compilation> {
        let mut missing = Vec::new();
        for kernel in kernels.into_iter().filter(|kernel| kernel.needs_tensor_cores()) {
            let key = Compilation::Part(self.image, kernel.part());
            if !self.prebuilt.has(kernel.part()) && !missing.contains(&key) {
                missing.push(key);
            }
        }
        missing
    }

    /// Loads the prebuilt kernels that frames of these planes can need with any settings, so that no frame waits for a load.
    /// Requests those that are compiled in the background. Returns the parts that could not be loaded, and the errors. These
    /// parts are tried again when a frame needs them.
    pub fn prepare(&mut self, layouts: &[PlaneLayout]) -> Vec<(Part, CudaError)> {
        if !self.compiles_parts() {
            return self.prebuilt.load(&possible::kernels(layouts, self.kernel_set));
        }
        let failed = self.prebuilt.load(&possible::kernels(layouts, KernelSet::CudaCores));
        let missing = self.missing_parts(possible::kernels(layouts, self.kernel_set));
        if let Some(request) = &mut self.request {
            request.prepare(missing.into_iter());
        }
        failed
    }

    /// Chooses the tensor-core kernel that blurs a batch in the direct form: the compiled kernel if it is ready, else the
    /// prebuilt one. Returns `None` if there is neither.
    pub fn choose(&self, batch: &[Entry], special: &mut Specialised) -> Option<DirectKernel> {
        let limits = self.device().limits();
        let wanted = self.request.as_ref().and_then(|_| DirectKernel::compiled(batch, limits));
        let key = wanted.map(Compilation::Direct);
        special.keys.extend(key.filter(|key| !special.keys.contains(key)));
        let Some((kernel, loaded)) = wanted.and_then(|kernel| Some((kernel, self.shared.jit.get(kernel)?))) else {
            return DirectKernel::prebuilt(batch);
        };
        if !special.ready.iter().any(|(ready, _)| *ready == kernel) {
            special.ready.push((kernel, loaded));
        }
        Some(kernel)
    }

    /// Returns the function of a launch, from the compiled kernel or from the prebuilt one. Loads the part of a prebuilt kernel
    /// if necessary.
    pub fn function(
        &self,
        launch: &Launch,
        kernel: Option<DirectKernel>,
        special: &Specialised,
    ) -> Result<Function, CudaError> {
        let (needed, limit) = (launch.grid.shared_bytes, self.device().limits().shared_bytes);
        if needed > limit {
            return Err(CudaError::SharedMemory { needed, limit, id: self.device().id() });
        }
        let compiled = special.ready.iter().find(|(ready, _)| Some(*ready) == kernel);
        match compiled.and_then(|(_, loaded)| loaded.get(launch.kernel)) {
            Some(function) => Ok(function),
            None => self.prebuilt.function(launch.kernel),
        }
    }
}
