// SPDX-License-Identifier: MPL-2.0
//! The pipeline of an engine: an optional upload, the kernels, an optional download.
//!
//! A frame is enqueued as a whole. Frames in host memory are divided into bands, whose transfers overlap with the kernels of
//! other bands, and completed later. Frames that stay on the device run on their own stream, and nothing waits for them; so do
//! covers of such frames. Of a frame in host memory of which parts are covered, only what these need passes through the device.

mod frame_slot;
mod promised_frames;
mod resident;
mod steps;
mod submitted;
mod timing_sampler;
mod transferred;
mod weights;

use std::sync::Arc;

use super::driver::{self, CopyAddress, Stream};
use super::error::CudaError;
use super::program::{KernelSelector, ProgramCache};
use super::shared_device::SharedDevice;
use super::transfer::CopyStreams;
use super::transfer::schedule::ScheduleCache;
use crate::filter::cover::Softness;
use crate::filter::frame::FrameMemory;
use crate::filter::parts::Job;
use crate::filter::plane::PlaneMemory;
use crate::process;
use crate::threads::Threads;
use frame_slot::FrameSlot;
pub use promised_frames::PromisedFrames;
pub use resident::Enqueued;
use resident::{FrameCopy, ResidentState};
pub use submitted::{SubmitError, SubmittedFrame, Times};
use transferred::Pace;
use weights::WeightUploads;

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
    fn of<A: CopyAddress>(frame: &FrameMemory<A>, direct: bool) -> Self {
        let is_pinned = |plane: &PlaneMemory<A>| driver::is_pinned(plane.address.host(), plane.len);
        match frame {
            FrameMemory::Device { .. } => Self::Resident,
            FrameMemory::Host(planes) if direct && planes.iter().all(is_pinned) => Self::Direct,
            FrameMemory::Host(_) => Self::Staged,
        }
    }
}

/// A frame that was submitted.
pub enum Submission {
    /// It has to be completed.
    InFlight(Box<SubmittedFrame>),
    /// It stays on the device and needs no completion.
    Resident(Enqueued),
}

/// The frames of an engine on the device.
pub struct Pipeline {
    /// The number of bands of a frame; `None` for as many as measured fastest.
    pub bands: Option<usize>,
    copy_streams: Arc<CopyStreams>,
    compute: Stream,
    programs: ProgramCache,
    schedules: ScheduleCache,
    /// Of frames with an upload or a download: that are blurred, and of which parts are covered.
    paces: [Pace; 2],
    /// The job of the last such frame that was blurred. Frames of another one take another time.
    timed_job: Option<Arc<Job>>,
    /// They copy to and from staging buffers.
    threads: Arc<Threads>,
    /// Slots of no frame.
    idle: Vec<FrameSlot>,
    /// Created with the first frame that stays on the device.
    resident: Option<ResidentState>,
    /// Created with the first such frame of which parts are covered in a copy.
    frame_copy: Option<FrameCopy>,
    /// Of soft covers.
    weights: WeightUploads,
}

impl Pipeline {
    /// On a device whose context is current.
    pub fn new(shared: &SharedDevice) -> Result<Self, CudaError> {
        Ok(Self {
            bands: None,
            copy_streams: shared.copy_streams()?,
            compute: Stream::new(shared.device().id())?,
            programs: ProgramCache::default(),
            schedules: ScheduleCache::default(),
            paces: Default::default(),
            timed_job: None,
            threads: process::threads(),
            idle: Vec::new(),
            resident: None,
            frame_copy: None,
            weights: WeightUploads::default(),
        })
    }

    /// Enqueues a frame. Returns when its source has been staged or its upload is enqueued. `direct` says whether the device may
    /// access the frame's pinned memory. The context is current.
    pub fn submit(
        &mut self,
        selector: &mut KernelSelector,
        frames: &mut PromisedFrames,
        job: &Arc<Job>,
        soft: Option<&Softness>,
        direct: bool,
    ) -> Result<Submission, SubmitError> {
        if frames.are_on_device() {
            self.submit_resident(selector, frames, job, soft).map(Submission::Resident)
        } else {
            let frame = self.submit_transfer(selector, frames, job, soft, direct)?;
            Ok(Submission::InFlight(Box::new(frame)))
        }
    }
}

/// What is in `slot`, which is made if there is none.
fn get_or_make<T>(slot: &mut Option<T>, make: impl FnOnce() -> Result<T, CudaError>) -> Result<&mut T, CudaError> {
    match slot {
        Some(made) => Ok(made),
        none => Ok(none.insert(make()?)),
    }
}
