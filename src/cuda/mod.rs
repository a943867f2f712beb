// SPDX-License-Identifier: MPL-2.0
//! The CUDA backend. Frames pass through pinned and device memory on streams, or stay on the device. docs/ARCHITECTURE.md has the
//! order of the modules.

pub mod driver;
mod error;
pub mod jit;
pub mod kernels;
mod pipeline;
pub mod process;
mod program;
mod selector;
pub mod shared_device;
pub mod transfer;

use std::sync::Arc;

use crate::filter::cover::Softness;
use crate::filter::frame::{PlaneLayout, ValidFrames};
use crate::filter::parts::Job;
use crate::filter::picture::PictureGeometry;
use crate::filter::plan::Plan;
use crate::filter::weights::Weights;
use crate::process::{Level, log};
pub use driver::HostRegistration;
use driver::Stream;
use driver::device::{Device, ExternalContext};
pub use error::{CudaError, Memory, Status};
pub use jit::JitStatus;
use kernels::abi::KernelSet;
pub use kernels::lower::DevicePlanes;
pub use kernels::prebuilt::Image;
pub use kernels::tiles::TILES;
use pipeline::Pipeline;
pub use pipeline::{Enqueued, Submission, SubmitError, SubmittedFrame, Times};
use process::EngineGuard;
pub use program::Program;
use program::Target;
use selector::KernelSelector;
use shared_device::SharedDevice;
pub use transfer::{PinnedBytes, PinnedSource};

/// Blurs and covers frames on a CUDA device. Its streams and the memory of its frames are reused for later frames.
pub struct CudaEngine {
    selector: KernelSelector,
    /// Whether specialised kernels blurred the last frame that was blurred.
    is_specialised: bool,
    pipeline: Pipeline,
    /// The last field, so that requests for specialised kernels are cancelled before the engine is no longer counted.
    _guard: EngineGuard,
}

impl CudaEngine {
    /// An engine on the device with this number.
    pub fn new(id: u32) -> Result<Self, CudaError> {
        Self::with_image(id, Image::Best)
    }

    /// An engine with the prebuilt kernels of this image. The output is the same.
    pub fn with_image(id: u32, image: Image) -> Result<Self, CudaError> {
        Self::on(process::open(id)?, image)
    }

    /// An engine in an external context.
    pub fn within(context: ExternalContext) -> Result<Self, CudaError> {
        Self::on(process::adopt(context)?, Image::Best)
    }

    fn on(shared: Arc<SharedDevice>, image: Image) -> Result<Self, CudaError> {
        let selector = KernelSelector::new(shared, image)?;
        let pipeline = Pipeline::new(&selector.shared)?;
        Ok(Self { selector, is_specialised: false, pipeline, _guard: EngineGuard::enter() })
    }

    /// The same engine, but with the kernels for CUDA cores only. The output is the same.
    pub fn on_cuda_cores(mut self) -> Self {
        self.selector.kernel_set = KernelSet::CudaCores;
        self
    }

    /// The same engine, but with the prebuilt kernels only.
    pub fn without_jit(mut self) -> Self {
        self.selector.request = None;
        self
    }

    /// Loads the prebuilt kernels that frames of these planes can need with any settings, so that no frame waits for a load. If a
    /// load fails, it is tried again when a frame needs the kernel.
    pub fn prepare(&mut self, layouts: &[PlaneLayout]) {
        for (part, error) in self.selector.prepare(layouts) {
            log(Level::Warning, || format!("kernels {} are not loaded before they are needed: {error}", part.name()));
        }
    }

    /// The same engine, but with this many bands per frame. The output is the same.
    pub fn with_bands(mut self, count: usize) -> Self {
        self.pipeline.bands = Some(count);
        self
    }

    /// The device of the engine.
    pub fn device(&self) -> &Arc<Device> {
        self.selector.device()
    }

    /// A source of pinned memory, which the device accesses without a copy by the CPU.
    pub fn pinned(&self) -> PinnedSource {
        PinnedSource::new(Arc::clone(self.device()))
    }

    /// The name of the kernels that blurred the last frame. It is `general-` and the architecture that they were built for, or
    /// `general-ptx`. For specialised kernels it is `special-` and the device's architecture.
    pub fn kernel_name(&self) -> &'static str {
        let KernelSelector { shared, prebuilt, .. } = &self.selector;
        if self.is_specialised { shared.specialised_name } else { prebuilt.images.name() }
    }

    /// The state of the background compilation for the device.
    pub fn jit_status(&self) -> JitStatus {
        self.selector.shared.jit.status()
    }

    /// Enqueues a frame. Frames are completed in the order of their submission. The device accesses pinned memory of the frames
    /// directly; other host memory passes through staging buffers. `soft` has the weights of a soft cover. A cover is computed
    /// completely before anything is written. If it has another destination than the source, the planes that it does not write
    /// wholly are copied too.
    ///
    /// # Panics
    /// If the job was made for other layouts or the weights for another size, or if only one side of a cover is in device memory.
    pub fn submit(
        &mut self,
        frames: &ValidFrames,
        job: &Arc<Job>,
        soft: Option<&Softness>,
    ) -> Result<Submission, SubmitError> {
        assert!(job.plan.layouts() == frames.layouts(), "the job is for other frames");
        let are_right = |soft: &Softness| {
            let size = PictureGeometry::new(frames.layouts()).size();
            soft.all().map(Weights::size).all(|(width, height)| size == [width, height])
        };
        assert!(soft.is_none_or(are_right), "the weights are for other frames");
        let on_device = [frames.source().is_device(), frames.destination().is_device()];
        assert!(job.accesses.is_none() || on_device[0] == on_device[1], "a cover of a frame in two kinds of memory");
        let device = Arc::clone(self.device());
        let _current = device.enter()?;
        let submission = self.pipeline.submit(&mut self.selector, frames, job, soft)?;
        if let Submission::Resident(enqueued) = &submission {
            self.is_specialised = enqueued.specialised.unwrap_or(self.is_specialised);
        }
        Ok(submission)
    }

    /// Waits for the oldest in-flight frame. After an error its destination is undefined, and the frame has to be settled.
    pub fn complete(&mut self, frame: &mut SubmittedFrame) -> Result<Times, CudaError> {
        let device = Arc::clone(self.device());
        let _current = device.enter()?;
        let times = self.pipeline.complete(frame)?;
        self.is_specialised = frame.specialised.unwrap_or(self.is_specialised);
        Ok(times)
    }

    /// Makes the program of a whole frame in these planes. `workspace` is the address of its workspace, aligned to 256 bytes.
    pub fn program(&self, plan: &Arc<Plan>, planes: &DevicePlanes, workspace: u64) -> Result<Program, CudaError> {
        let job = Arc::new(Job::frame(Arc::clone(plan)));
        let parts = std::slice::from_ref(&job.parts);
        Program::new(&self.selector, Target { job: &job, soft: None, parts, planes }, workspace)
    }

    /// Enqueues only the kernels of a program.
    ///
    /// # Safety
    /// The device's context is current. The planes of the program hold the rows of its plan's layouts. The planes and
    /// [`Program::workspace_bytes`] bytes from the workspace's address on live until the stream has done the work, and nobody
    /// else accesses them before.
    pub unsafe fn enqueue(&self, stream: &Stream, program: &Program) -> Result<(), CudaError> {
        // SAFETY: the caller promises that the context is current, that planes and workspace live until the stream has done the
        // work, and that nobody else accesses them before.
        unsafe { program.enqueue(stream, 0) }
    }
}
