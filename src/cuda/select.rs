// SPDX-License-Identifier: MPL-2.0
//! Selects the function for each launch of a recording, specialised or prebuilt, and enqueues it.

use std::sync::Arc;

use super::driver::device::Device;
use super::driver::{Function, Stream};
use super::error::CudaError;
use super::jit::{JitRequest, SpecialisationKey};
use super::kernels::abi::{Kernel, Launch, WideKernels};
use super::kernels::batch::LaunchBatch;
use super::kernels::images::{Image, PrebuiltKernels};
use super::kernels::level::LevelBatch;
use super::kernels::record::{Command, Recording};
use super::kernels::strategy::{self, PassStrategy};
use super::shared_device::SharedDevice;

/// The kernels that an engine may use.
pub struct KernelSelector {
    shared: Arc<SharedDevice>,
    image: Image,
    /// For the prebuilt kernels.
    strategy: PassStrategy,
    /// The specialised kernels that the engine waits for; `None` if it uses the prebuilt kernels only.
    request: Option<JitRequest>,
}

impl KernelSelector {
    /// Prebuilt kernels of an image, and specialised ones if image and strategy are not chosen by hand.
    pub fn new(shared: Arc<SharedDevice>, image: Image, strategy: PassStrategy) -> Self {
        let is_automatic = image == Image::Best && strategy == PassStrategy::Best;
        let request = is_automatic.then(|| JitRequest::new(Arc::clone(shared.jit())));
        Self { shared, image, strategy, request }
    }

    /// Uses the prebuilt kernels only.
    pub fn disable_jit(&mut self) {
        self.request = None;
    }

    /// What the engines on the device share.
    pub fn shared(&self) -> &Arc<SharedDevice> {
        &self.shared
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.shared.device()
    }

    /// The prebuilt kernels.
    pub fn prebuilt(&self) -> Result<&PrebuiltKernels, CudaError> {
        self.shared.prebuilt(self.image)
    }

    /// The kernels for the wide form.
    pub fn wide_kernels(&self) -> WideKernels {
        // Without an image nothing is launched.
        self.prebuilt().map_or(WideKernels::CudaCores, PrebuiltKernels::wide_kernels)
    }

    /// The key of the specialised kernel for a batch, if one would be the fastest.
    fn key(&self, batch: &LaunchBatch) -> Option<SpecialisationKey> {
        let gains = self.request.is_some() && strategy::gains_from_specialisation(batch, self.device().limits());
        gains.then(|| SpecialisationKey::of(batch))
    }

    /// Which image and passes the prebuilt kernels are chosen by.
    pub fn prebuilt_choice(&self) -> (Image, PassStrategy) {
        (self.image, self.strategy)
    }

    /// Loads the prebuilt kernels of the recordings, before the first of them is launched: loading between launches would keep
    /// the device waiting. Requests specialised kernels for frames that keep being recorded like this.
    pub fn prepare(&mut self, recordings: &[Recording]) -> Result<(), CudaError> {
        let limits = self.shared.device().limits();
        for recording in recordings {
            self.load(recording.kernels(|batch| self.select(batch).0, limits))?;
        }
        let Some(mut request) = self.request.take() else { return Ok(()) };
        let gain = recordings
            .iter()
            .flat_map(Recording::batches)
            .filter(|batch| strategy::gains_from_specialisation(batch, limits));
        request.update(gain.map(SpecialisationKey::of));
        self.request = Some(request);
        Ok(())
    }

    /// Loads prebuilt kernels; specialised ones are loaded when they are compiled.
    pub fn load(&self, kernels: impl IntoIterator<Item = Kernel>) -> Result<(), CudaError> {
        let prebuilt = self.prebuilt()?;
        kernels.into_iter().filter(|kernel| *kernel != Kernel::Specialised).try_for_each(|kernel| prebuilt.load(kernel))
    }

    /// The strategy for a batch now, and the specialised kernel if that is ready.
    fn select(&self, batch: &LaunchBatch) -> (PassStrategy, Option<Function>) {
        let specialised = self.key(batch).and_then(|key| self.shared.jit().get(&key));
        (if specialised.is_some() { PassStrategy::Specialised } else { self.strategy }, specialised)
    }

    /// Device memory that a recording needs as workspace, in bytes: its temporaries, then the intermediate of one batch. It does
    /// not grow when specialised kernels become ready.
    pub fn workspace_bytes(&self, recording: &Recording) -> usize {
        let limits = self.device().limits();
        let intermediate = |batch: &LaunchBatch| strategy::intermediate_bytes(batch, self.select(batch).0, limits);
        let levels = recording.levels().map(LevelBatch::intermediate_bytes);
        recording.temporary_bytes() + recording.batches().map(intermediate).chain(levels).max().unwrap_or(0)
    }

    /// Enqueues a recording. Returns whether specialised kernels do all of its blurs.
    ///
    /// # Safety
    /// The device's context is current. The planes of the recording, and [`KernelSelector::workspace_bytes`] from the workspace
    /// address on that it was made with, live and are accessed by nobody else until the stream has done the work.
    pub unsafe fn enqueue(&self, stream: &Stream, recording: &Recording, workspace: u64) -> Result<bool, CudaError> {
        let (prebuilt, limits) = (self.prebuilt()?, self.device().limits());
        // Batches use it in turn.
        let intermediate = workspace + recording.temporary_bytes() as u64;
        let (mut has_blurs, mut all_specialised) = (false, true);
        for command in recording.commands() {
            // SAFETY: the caller's planes and workspace; the intermediate is behind the temporaries in it.
            unsafe {
                match command {
                    Command::Copy(copy) => {
                        stream.copy_rows(&copy.source, &copy.destination, copy.row_bytes, copy.rows)?;
                    }
                    Command::Launch(launch) => self.launch(stream, launch, prebuilt.function(launch.kernel)?)?,
                    Command::Tensor(batch) => {
                        let launch = batch.launch(limits);
                        self.launch(stream, &launch, prebuilt.function(launch.kernel)?)?;
                    }
                    Command::Level(batch) => {
                        for launch in batch.launches(intermediate, limits) {
                            self.launch(stream, &launch, prebuilt.function(launch.kernel)?)?;
                        }
                    }
                    Command::Blur(batch) => {
                        let (passes, specialised) = self.select(batch);
                        (has_blurs, all_specialised) = (true, all_specialised && specialised.is_some());
                        for launch in strategy::launches(batch, intermediate, passes, limits) {
                            let function = match launch.kernel {
                                Kernel::Specialised => specialised.expect("selected because it is ready"),
                                kernel => prebuilt.function(kernel)?,
                            };
                            self.launch(stream, &launch, function)?;
                        }
                    }
                }
            }
        }
        Ok(has_blurs && all_specialised)
    }

    /// Enqueues a launch of a prebuilt kernel.
    ///
    /// # Safety
    /// The device's context is current. The memory that the launch refers to lives and is accessed by nobody else until the
    /// stream has done the work.
    pub unsafe fn enqueue_prebuilt(&self, stream: &Stream, launch: &Launch) -> Result<(), CudaError> {
        let function = self.prebuilt()?.function(launch.kernel)?;
        // SAFETY: the function is the launch's kernel; the memory is the caller's promise.
        unsafe { self.launch(stream, launch, function) }
    }

    /// # Safety
    /// See [`Launch::enqueue`].
    unsafe fn launch(&self, stream: &Stream, launch: &Launch, function: Function) -> Result<(), CudaError> {
        let (needed, limit) = (launch.grid.shared_bytes, self.device().limits().shared_bytes);
        if needed > limit {
            return Err(CudaError::SharedMemory { needed, limit, id: self.device().id() });
        }
        // SAFETY: `function` was loaded for the kernel of this launch, and its memory lives until it has finished, as the caller
        // promises.
        unsafe { launch.enqueue(function, stream, self.prebuilt()?.can_overlap()) }
    }
}
