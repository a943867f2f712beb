// SPDX-License-Identifier: MPL-2.0
//! The CUDA backend: frames pass through pinned and device memory on streams, or stay on the device, with one wait a frame at
//! most. docs/ARCHITECTURE.md has the order of the modules.

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

/// Blurs frames on a CUDA device. Keeps its streams and the memory of its frames between frames.
pub struct CudaEngine {
    selector: KernelSelector,
    /// Whether the last frame that was blurred was blurred by specialised kernels.
    is_specialised: bool,
    pipeline: Pipeline,
    /// The last field: requests for specialised kernels are cancelled before the engine stops counting.
    _guard: EngineGuard,
}

impl CudaEngine {
    /// On the device with this number.
    pub fn new(id: u32) -> Result<Self, CudaError> {
        Self::with_image(id, Image::Best)
    }

    /// With the prebuilt kernels of this image. The output is the same.
    pub fn with_image(id: u32, image: Image) -> Result<Self, CudaError> {
        Self::on(process::open(id)?, image)
    }

    /// In an external context.
    pub fn within(context: ExternalContext) -> Result<Self, CudaError> {
        Self::on(process::adopt(context)?, Image::Best)
    }

    fn on(shared: Arc<SharedDevice>, image: Image) -> Result<Self, CudaError> {
        let selector = KernelSelector::new(shared, image)?;
        let pipeline = Pipeline::new(&selector.shared)?;
        Ok(Self { selector, is_specialised: false, pipeline, _guard: EngineGuard::enter() })
    }

    /// With the kernels for CUDA cores only. The output is the same.
    pub fn on_cuda_cores(mut self) -> Self {
        self.selector.kernel_set = KernelSet::CudaCores;
        self
    }

    /// With the prebuilt kernels only.
    pub fn without_jit(mut self) -> Self {
        self.selector.request = None;
        self
    }

    /// Loads the prebuilt kernels that frames of these planes can need, whatever the settings become, so that no frame waits for
    /// a load. What cannot be loaded is tried again when a frame needs it.
    pub fn prepare(&mut self, layouts: &[PlaneLayout]) {
        for (part, error) in self.selector.prepare(layouts) {
            log(Level::Warning, || format!("kernels {} are not loaded before they are needed: {error}", part.name()));
        }
    }

    /// With frames in so many bands, at least one. The output is the same.
    pub fn with_bands(mut self, count: usize) -> Self {
        self.pipeline.bands = Some(count);
        self
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.selector.device()
    }

    /// Pinned memory, which the device accesses without a copy by the CPU.
    pub fn pinned(&self) -> PinnedSource {
        PinnedSource::new(Arc::clone(self.device()))
    }

    /// The kernels of the last frame that was blurred: `general-` and the architecture that they were built for, or `ptx`;
    /// `special-` and the device's architecture if they were specialised.
    pub fn kernel_name(&self) -> &'static str {
        let KernelSelector { shared, prebuilt, .. } = &self.selector;
        if self.is_specialised { shared.specialised_name } else { prebuilt.images.name() }
    }

    /// What the background compilation for the device is doing.
    pub fn jit_status(&self) -> JitStatus {
        self.selector.shared.jit.status()
    }

    /// Enqueues a frame. Frames are completed in the order of their submission. The device accesses pinned memory of the frames; other
    /// host memory goes through staging buffers. `soft` is how much of a cover shows. What covers parts of a frame is computed before
    /// anything is written. If source and destination of a cover are not the same memory, the source is copied too, but for planes in
    /// device memory that are covered wholly.
    ///
    /// # Panics
    /// If the job was made for other layouts or other weights, or parts of a frame are covered of which one side is in host memory.
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

    /// Waits for the oldest frame in flight. On an error its destination is undefined, and the frame has to be settled.
    pub fn complete(&mut self, frame: &mut SubmittedFrame) -> Result<Times, CudaError> {
        let device = Arc::clone(self.device());
        let _current = device.enter()?;
        let times = self.pipeline.complete(frame)?;
        self.is_specialised = frame.specialised.unwrap_or(self.is_specialised);
        Ok(times)
    }

    /// Makes the program of a whole frame in these planes, with workspace from this address on, which is aligned to 256 bytes.
    pub fn program(&self, plan: &Arc<Plan>, planes: &DevicePlanes, workspace: u64) -> Result<Program, CudaError> {
        let job = Arc::new(Job::frame(Arc::clone(plan)));
        let parts = std::slice::from_ref(&job.parts);
        Program::new(&self.selector, Target { job: &job, soft: None, parts, planes }, workspace)
    }

    /// Enqueues the kernels of a program alone.
    ///
    /// # Safety
    /// The device's context is current. The planes of the program hold the rows of its plan's layouts; they, and its
    /// [`Program::workspace_bytes`] from the workspace's address on, live and are accessed by nobody else until the stream has
    /// done the work.
    pub unsafe fn enqueue(&self, stream: &Stream, program: &Program) -> Result<(), CudaError> {
        // SAFETY: planes and workspace live and are not accessed by others until the stream has done the work, as the caller
        // promises.
        unsafe { program.enqueue(stream, 0) }
    }
}
