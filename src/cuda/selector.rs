// SPDX-License-Identifier: MPL-2.0
//! Which kernels an engine uses: the prebuilt ones of an image, and those of NVRTC that are ready.

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
    /// What the engines on the device share.
    pub shared: Arc<SharedDevice>,
    image: Image,
    /// The prebuilt kernels.
    pub prebuilt: Arc<PrebuiltKernels>,
    /// Which of them plans are lowered for.
    pub kernel_set: KernelSet,
    /// The specialised kernels that the engine waits for; `None` if it uses the prebuilt kernels only.
    pub request: Option<JitRequest>,
}

/// The kernels of NVRTC that a program uses, and those that it would use.
#[derive(Default)]
pub struct Specialised {
    /// The kernels that would be the fastest if they were compiled.
    pub keys: Vec<Compilation>,
    /// Those that are ready.
    pub ready: Vec<(DirectKernel, Arc<LoadedKernels>)>,
}

impl KernelSelector {
    /// The prebuilt kernels of an image, and specialised ones.
    pub fn new(shared: Arc<SharedDevice>, image: Image) -> Result<Self, CudaError> {
        let prebuilt = Arc::clone(shared.prebuilt(image)?);
        let request = Some(JitRequest::new(Arc::clone(&shared.jit), Arc::clone(&prebuilt)));
        let kernel_set = prebuilt.images.kernel_set();
        Ok(Self { shared, image, prebuilt, kernel_set, request })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.shared.device()
    }

    /// Whether kernels for tensor cores are compiled in the background, while those for CUDA cores serve.
    pub fn compiles_parts(&self) -> bool {
        self.prebuilt.images.is_portable() && self.kernel_set == KernelSet::TensorCores && self.request.is_some()
    }

    /// The parts of these kernels that are compiled in the background and not ready, each once.
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

    /// Loads the prebuilt kernels that frames of these planes can need, whatever the settings become, so that no frame waits for
    /// a load, and requests those that are compiled in the background. Returns the parts that could not be loaded, which are tried
    /// again when a frame needs them, and why.
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

    /// The kernel for tensor cores that blurs a batch in the direct form, if there is one: a compiled one if it is ready.
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

    /// The function of a launch: of the compiled kernel, or the prebuilt one. Its part is loaded, unless it is.
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
