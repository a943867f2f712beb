// SPDX-License-Identifier: MPL-2.0
//! The CUDA backend: frames pass through pinned and device memory on streams, or stay on the device, with one wait a frame at
//! most. docs/ARCHITECTURE.md has the order of the modules.

pub mod driver;
mod error;
pub mod jit;
pub mod kernels;
mod pipeline;
pub mod process;
mod region_cache;
mod select;
pub mod shared_device;
pub mod transfer;

use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::filter::cover::{Cover, Hide, Softness};
use crate::filter::frame::PlaneLayout;
use crate::filter::mosaic::MosaicRegion;
use crate::filter::picture::{FieldRect, PictureGeometry};
use crate::filter::plan::{Options, Plan};
use crate::filter::regions::Rect;
use crate::filter::samples::covered_fields;
use crate::process::{Level, log};
use driver::Stream;
use driver::device::{Device, ExternalContext};
pub use error::{CudaError, Memory, Status};
pub use jit::{JitResult, JitStatus, KernelOrigin};
pub use kernels::prebuilt::Image;
pub use kernels::record::DevicePlanes;
use kernels::record::Recording;
pub use kernels::strategy::PassStrategy;
pub use kernels::tiles::TILES;
use kernels::{cover, possible};
use pipeline::{DeviceCover, Pipeline, SoftDeviceCover, SubmitOptions};
pub use pipeline::{Enqueued, PromisedFrames, Submission, SubmitError, SubmittedFrame, Times};
use process::EngineGuard;
use region_cache::RegionCache;
use select::KernelSelector;
use shared_device::SharedDevice;
pub use transfer::{HostRegistration, PinnedBytes, PinnedSource};

/// Blurs frames on a CUDA device. Keeps its streams and the memory of its frames between frames.
pub struct CudaEngine {
    selector: KernelSelector,
    /// The number of bands of a frame; `None` for as many as measured fastest.
    bands: Option<usize>,
    /// The kernels of the last frame that was blurred.
    kernel_name: &'static str,
    /// The blurs of the last cover.
    regions: RegionCache,
    /// Dropped with the context current.
    pipeline: ManuallyDrop<Pipeline>,
    /// The last field: requests for specialised kernels are cancelled before the engine stops counting.
    _guard: EngineGuard,
}

impl CudaEngine {
    /// On the device with this number.
    pub fn new(id: u32) -> Result<Self, CudaError> {
        Self::with_kernels(id, Image::Best, PassStrategy::Best)
    }

    /// With the prebuilt kernels of this image in these passes, and with specialised ones only if these are the best. The output
    /// is the same.
    pub fn with_kernels(id: u32, image: Image, strategy: PassStrategy) -> Result<Self, CudaError> {
        Self::on(process::open(id)?, image, strategy)
    }

    /// In an external context.
    pub fn within(context: ExternalContext) -> Result<Self, CudaError> {
        Self::on(process::adopt(context)?, Image::Best, PassStrategy::Best)
    }

    fn on(shared: Arc<SharedDevice>, image: Image, strategy: PassStrategy) -> Result<Self, CudaError> {
        let kernel_name = shared.prebuilt(image)?.name();
        let pipeline = {
            let _current = shared.device().enter()?;
            Pipeline::new(&shared)?
        };
        let guard = EngineGuard::enter();
        let selector = KernelSelector::new(shared, image, strategy);
        let pipeline = ManuallyDrop::new(pipeline);
        let regions = RegionCache::default();
        Ok(Self { selector, bands: None, kernel_name, regions, pipeline, _guard: guard })
    }

    /// With the prebuilt kernels only.
    pub fn without_jit(mut self) -> Self {
        self.selector.disable_jit();
        self
    }

    /// Loads the prebuilt kernels that frames of these planes can need, whatever the settings become, so that no frame waits for
    /// a load. What cannot be loaded is tried again when a frame needs it.
    pub fn prepare(&self, layouts: &[PlaneLayout]) {
        let Ok(prebuilt) = self.selector.prebuilt() else { return };
        let mut failed = Vec::new();
        for kernel in possible::kernels(layouts, prebuilt.kernel_set(), self.selector.strategy()) {
            let part = kernel.part();
            if failed.contains(&part) {
                continue;
            }
            if let Err(error) = prebuilt.load(kernel) {
                log(Level::Warning, &format!("kernels {} are not loaded before they are needed: {error}", part.name()));
                failed.push(part);
            }
        }
    }

    /// With frames in so many bands, at least one. The output is the same.
    pub fn with_bands(mut self, count: usize) -> Self {
        self.bands = Some(count);
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

    /// The kernels in use: `general-` and the architecture that they were built for, or `ptx`; `special-` and the device's
    /// architecture while specialised kernels are.
    pub fn kernel_name(&self) -> &'static str {
        self.kernel_name
    }

    /// What the background compilation for the device is doing.
    pub fn jit_status(&self) -> JitStatus {
        self.selector.shared().jit().status()
    }

    fn update_kernel_name(&mut self, specialised: Option<bool>) {
        self.kernel_name = match (specialised, self.selector.prebuilt()) {
            (Some(true), _) => self.selector.shared().specialised_name(),
            (Some(false), Ok(prebuilt)) => prebuilt.name(),
            _ => self.kernel_name,
        };
    }

    /// Enqueues a frame. Frames are completed in the order of their submission. With `direct` the device accesses pinned memory of
    /// the frames; otherwise all host memory goes through staging buffers.
    ///
    /// # Panics
    /// If the plan was made for other layouts.
    pub fn submit(
        &mut self,
        frames: &PromisedFrames,
        plan: &Arc<Plan>,
        direct: bool,
    ) -> Result<Submission, SubmitError> {
        assert!(plan.layouts() == frames.layouts(), "the plan is for other frames");
        let device = Arc::clone(self.device());
        let _current = device.enter()?;
        let options = SubmitOptions { direct, bands: self.bands };
        let submission = self.pipeline.submit(&mut self.selector, frames, plan, options)?;
        self.update_kernel_name(match &submission {
            Submission::InFlight(frame) => frame.specialised(),
            Submission::Resident(enqueued) => enqueued.specialised,
        });
        Ok(submission)
    }

    /// Enqueues a cover of a frame in device memory. If source and destination are not the same memory, the source is copied
    /// too. Blurs read the source, and everything is read before anything is covered. `plan` returns the plan that blurs a whole
    /// frame.
    ///
    /// # Panics
    /// If a frame is in host memory.
    pub fn cover(
        &mut self,
        frames: &PromisedFrames,
        cover: &Cover,
        plan: impl FnMut(Options) -> Arc<Plan>,
    ) -> Result<Enqueued, SubmitError> {
        assert!(frames.are_on_device(), "the frames are in host memory");
        let layouts = frames.layouts();
        let picture = PictureGeometry::new(layouts);
        let of_rects = |rects: &mut dyn Iterator<Item = Rect>| -> Vec<(usize, FieldRect)> {
            rects.flat_map(|rect| covered_fields(&picture, rect)).collect()
        };
        let (regions, grids, rects, soft);
        let (mut of_device, covered) = match &cover.hide {
            hide @ Hide::Blur { .. } => {
                regions = self.regions.get(hide, layouts, plan);
                (DeviceCover::Blur(&regions), regions.covered())
            }
            Hide::Mosaic(regions) => {
                grids = cover::grids(layouts, regions);
                (DeviceCover::Mosaic(&grids), of_rects(&mut regions.iter().map(MosaicRegion::rect)))
            }
            Hide::Fill { rects: covered, values } => {
                rects = cover::filled(layouts, covered, values);
                (DeviceCover::Fill(&rects), of_rects(&mut covered.iter().copied()))
            }
        };
        if let Some(Softness { weights, excluded }) = &cover.soft
            && !covered.is_empty()
        {
            let planes = cover.planes();
            soft = SoftDeviceCover { cover: of_device, weights, excluded: excluded.as_ref(), covered, planes };
            of_device = DeviceCover::Soft(&soft);
        }
        let device = Arc::clone(self.device());
        let _current = device.enter()?;
        let enqueued = self.pipeline.cover(&mut self.selector, frames, &of_device)?;
        self.update_kernel_name(enqueued.specialised);
        Ok(enqueued)
    }

    /// Blurs regions of a frame in host memory and waits for it. If source and destination are not the same memory, the source
    /// is copied too. With `direct` the device reads a source in pinned memory. On an error nothing is blurred, and another
    /// destination than the source is undefined. `plan` returns the plan that blurs a whole frame. Returns `None` if nothing is
    /// covered.
    ///
    /// # Panics
    /// If a frame is on the device.
    pub fn cover_host(
        &mut self,
        frames: &mut PromisedFrames,
        hide: &Hide,
        direct: bool,
        plan: impl FnMut(Options) -> Arc<Plan>,
    ) -> Result<Option<Times>, SubmitError> {
        let regions = self.regions.get(hide, frames.layouts(), plan);
        if regions.blurs().is_empty() {
            frames.copy_source();
            return Ok(None);
        }
        let device = Arc::clone(self.device());
        let _current = device.enter()?;
        let (times, specialised) = self.pipeline.cover_host(&mut self.selector, frames, &regions, direct)?;
        self.update_kernel_name(specialised);
        Ok(Some(times))
    }

    /// Waits for the oldest frame in flight. On an error its destination is undefined, and the frame has to be settled.
    pub fn complete(&mut self, frame: &mut SubmittedFrame) -> Result<Times, CudaError> {
        let device = Arc::clone(self.device());
        let _current = device.enter()?;
        self.pipeline.complete(frame)
    }

    /// Device memory that a plan needs beside the planes of its frames, in bytes; 0 if its kernels cannot be loaded.
    pub fn workspace_bytes(&self, plan: &Plan, planes: &DevicePlanes) -> usize {
        let recording = Recording::new(plan, planes, 0, self.selector.kernel_set(), &plan.whole());
        self.selector.select(&recording, 0).map_or(0, |selected| selected.workspace_bytes)
    }

    /// Enqueues the kernels of a plan alone.
    ///
    /// # Safety
    /// The device's context is current. The planes hold the rows of the plan's layouts; they, and
    /// [`CudaEngine::workspace_bytes`] from `workspace` on, which is aligned to 256 bytes, live and are accessed by nobody else
    /// until the stream has done the work.
    pub unsafe fn enqueue(
        &self,
        stream: &Stream,
        plan: &Plan,
        planes: &DevicePlanes,
        workspace: u64,
    ) -> Result<(), CudaError> {
        let recording = Recording::new(plan, planes, workspace, self.selector.kernel_set(), &plan.whole());
        let selected = self.selector.select(&recording, workspace)?;
        // SAFETY: planes and workspace live and are not accessed by others until the stream has done the work, as the caller
        // promises.
        unsafe { self.selector.enqueue_commands(stream, &selected.commands) }
    }
}

impl Drop for CudaEngine {
    fn drop(&mut self) {
        // Freeing requires the context. If it cannot be entered, everything is leaked.
        let device = Arc::clone(self.device());
        if let Ok(_current) = device.enter() {
            // SAFETY: dropped only here, and drop runs once.
            unsafe { ManuallyDrop::drop(&mut self.pipeline) };
        }
    }
}
