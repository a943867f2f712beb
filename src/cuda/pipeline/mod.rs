// SPDX-License-Identifier: MPL-2.0
//! The pipeline of an engine: an optional upload, the kernels, an optional download.
//!
//! A frame is enqueued as a whole. Frames in host memory are divided into bands, whose transfers overlap with the kernels of
//! other bands, and completed later. Frames that stay on the device run on their own stream, and nothing waits for them; so do
//! those of which regions are covered there. Of a frame in host memory, only what its regions need passes through the device.

mod cover;
mod frame_slot;
mod host_cover;
mod promised_frames;
mod recorded_frame;
mod resident;
mod soft;
mod steps;
mod submitted;
mod timing_sampler;
mod transferred;

use std::sync::Arc;

use super::driver::{self, Stream};
use super::error::CudaError;
use super::select::KernelSelector;
use super::shared_device::SharedDevice;
use super::transfer::CopyStreams;
use super::transfer::adaptive_wait::AdaptiveWait;
use crate::filter::frame::FrameMemory;
use crate::filter::plan::Plan;
use crate::filter::plane::{Address, PlaneMemory};
use crate::process;
use crate::threads::Threads;
use cover::FrameCopy;
pub use cover::{DeviceCover, SoftDeviceCover};
use frame_slot::FrameSlot;
use host_cover::HostCoverState;
pub use promised_frames::PromisedFrames;
use recorded_frame::RecordedFrame;
pub use resident::Enqueued;
use resident::ResidentState;
use soft::PinnedUploads;
pub use submitted::{SubmitError, SubmittedFrame, Times};
use timing_sampler::TimingSampler;

/// How a frame gets to the device, or from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferPath {
    /// The device accesses the frame's pinned memory.
    Direct,
    /// Through the slot's staging buffer.
    Staged,
    /// The frame is in device memory.
    Resident,
}

impl TransferPath {
    /// The path of a frame. Without `direct`, pinned memory is staged too. A context is current.
    fn of<A: Address + HostAddress>(frame: &FrameMemory<A>, direct: bool) -> Self {
        let is_pinned = |plane: &PlaneMemory<A>| driver::is_pinned(plane.address.as_const(), plane.len);
        match frame {
            FrameMemory::Device { .. } => Self::Resident,
            FrameMemory::Host(planes) if direct && planes.iter().all(is_pinned) => Self::Direct,
            FrameMemory::Host(_) => Self::Staged,
        }
    }
}

/// A host pointer.
trait HostAddress {
    fn as_const(&self) -> *const u8;
}

impl HostAddress for *const u8 {
    fn as_const(&self) -> *const u8 {
        *self
    }
}

impl HostAddress for *mut u8 {
    fn as_const(&self) -> *const u8 {
        self.cast_const()
    }
}

/// A frame that was submitted.
pub enum Submission {
    /// It has to be completed.
    InFlight(Box<SubmittedFrame>),
    /// It stays on the device and needs no completion.
    Resident(Enqueued),
}

/// How frames are submitted.
#[derive(Debug, Clone, Copy)]
pub struct SubmitOptions {
    /// Whether the device may access the frame's pinned memory.
    pub direct: bool,
    /// The number of bands; `None` for as many as measured fastest.
    pub bands: Option<usize>,
}

/// The frames of an engine on the device.
pub struct Pipeline {
    copy_streams: Arc<CopyStreams>,
    compute: Stream,
    wait: AdaptiveWait,
    /// Of those with an upload or a download.
    timing: TimingSampler,
    /// The plan of the last such frame. Frames of another one take another time.
    timed_plan: Option<Arc<Plan>>,
    /// They copy to and from staging buffers.
    threads: Arc<Threads>,
    /// Slots of no frame.
    idle: Vec<FrameSlot>,
    /// Created with the first frame that stays on the device.
    resident: Option<ResidentState>,
    /// Created with the first such frame with a soft cover.
    weights: Option<PinnedUploads>,
    /// The commands of the last such frame that was blurred as a whole.
    recorded: Option<RecordedFrame>,
    /// The commands of the last frame with an upload or a download: in bands, and in one band.
    recorded_transfers: [Option<RecordedFrame>; 2],
    /// The commands of the last such frame of which regions were blurred.
    recorded_cover: Option<RecordedFrame>,
    /// Created with the first such frame whose regions are blurred in a copy.
    frame_copy: Option<FrameCopy>,
    /// Created with the first frame in host memory of which regions are blurred.
    host_cover: Option<HostCoverState>,
    /// Of such frames.
    cover_wait: AdaptiveWait,
}

impl Pipeline {
    /// On a device whose context is current.
    pub fn new(shared: &SharedDevice) -> Result<Self, CudaError> {
        Ok(Self {
            copy_streams: shared.copy_streams()?,
            compute: Stream::new(shared.device().id())?,
            wait: AdaptiveWait::default(),
            timing: TimingSampler::default(),
            timed_plan: None,
            threads: process::threads(),
            idle: Vec::new(),
            resident: None,
            weights: None,
            recorded: None,
            recorded_transfers: [None, None],
            recorded_cover: None,
            frame_copy: None,
            host_cover: None,
            cover_wait: AdaptiveWait::default(),
        })
    }

    /// Enqueues a frame. Returns when its source has been staged or its upload is enqueued. The context is current.
    pub fn submit(
        &mut self,
        selector: &mut KernelSelector,
        frames: &PromisedFrames,
        plan: &Arc<Plan>,
        options: SubmitOptions,
    ) -> Result<Submission, SubmitError> {
        let paths =
            [TransferPath::of(frames.source(), options.direct), TransferPath::of(frames.destination(), options.direct)];
        if paths == [TransferPath::Resident; 2] {
            self.submit_resident(selector, frames, plan).map(Submission::Resident)
        } else {
            let frame = self.submit_transfer(selector, frames, plan, paths, options)?;
            Ok(Submission::InFlight(Box::new(frame)))
        }
    }
}
