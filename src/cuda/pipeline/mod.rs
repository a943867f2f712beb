// SPDX-License-Identifier: MPL-2.0
//! The pipeline of an engine: an optional upload, the kernels, an optional download.
//!
//! A frame is enqueued as a whole. Frames in host memory are divided into bands, whose transfers overlap with the kernels of
//! other bands, and completed later. Frames that stay on the device run on their own stream, and nothing waits for them; so do
//! covers of such frames. Of a frame in host memory of which parts are covered, only what these need passes through the device.

mod enqueue;
mod frame_slot;
mod prepared;
mod resident;
mod route;
mod submitted;
mod timer;
mod transferred;
mod weights;

use std::sync::Arc;

use super::driver::Stream;
use super::driver::device::Device;
use super::error::CudaError;
use super::selector::KernelSelector;
use super::shared_device::SharedDevice;
use super::transfer::CopyStreams;
use super::transfer::adaptive_wait::AdaptiveWait;
use crate::filter::cover::Softness;
use crate::filter::frame::{FrameMemory, ValidFrames};
use crate::filter::parts::Job;
use crate::process;
use crate::threads::Threads;
use frame_slot::IdleSlots;
use prepared::PreparedJobs;
pub use resident::Enqueued;
use resident::{FrameCopy, ResidentState};
pub use submitted::{SubmitError, SubmittedFrame, Times};
use timer::Timers;
use weights::WeightUploads;

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
    jobs: PreparedJobs,
    slots: IdleSlots,
    timers: Timers,
    /// For frames that are blurred as a whole, and for frames of which parts are covered.
    waits: [AdaptiveWait; 2],
    /// They copy to and from staging buffers.
    threads: Arc<Threads>,
    /// Created with the first frame that stays on the device.
    resident: Option<ResidentState>,
    /// Created with the first such frame of which parts are covered in a copy.
    frame_copy: Option<FrameCopy>,
    /// Of soft covers.
    weights: WeightUploads,
}

impl Pipeline {
    /// On a device.
    pub fn new(shared: &SharedDevice) -> Result<Self, CudaError> {
        Ok(Self {
            bands: None,
            copy_streams: shared.copy_streams()?,
            compute: Stream::new(shared.device())?,
            jobs: PreparedJobs::default(),
            slots: IdleSlots::default(),
            timers: Timers::default(),
            waits: Default::default(),
            threads: process::threads(),
            resident: None,
            frame_copy: None,
            weights: WeightUploads::default(),
        })
    }

    /// Enqueues a frame. Returns when its source has been staged or its upload is enqueued. The context is current.
    pub fn submit(
        &mut self,
        selector: &mut KernelSelector,
        frames: &ValidFrames,
        job: &Arc<Job>,
        soft: Option<&Softness>,
    ) -> Result<Submission, SubmitError> {
        if frames.are_on_device() {
            self.submit_resident(selector, frames, job, soft).map(Submission::Resident)
        } else {
            let frame = self.submit_transfer(selector, frames, job, soft)?;
            Ok(Submission::InFlight(Box::new(frame)))
        }
    }
}

/// The streams that order the accesses to the source and to the destination, if these are resident and have one.
fn streams_of(frames: &ValidFrames, device: &Arc<Device>) -> [Option<Stream>; 2] {
    fn handle<A>(frame: &FrameMemory<A>) -> Option<usize> {
        match frame {
            FrameMemory::Device { stream, .. } => *stream,
            FrameMemory::Host(_) => None,
        }
    }
    // SAFETY: whoever made the frames has promised that their streams are of this context and live until the work on them is done.
    let borrow = |handle: usize| unsafe { Stream::borrowed(handle, device) };
    [handle(frames.source()), handle(frames.destination())].map(|handle| handle.map(borrow))
}

/// What is in `slot`, which is made if there is none.
fn get_or_make<T>(slot: &mut Option<T>, make: impl FnOnce() -> Result<T, CudaError>) -> Result<&mut T, CudaError> {
    match slot {
        Some(made) => Ok(made),
        none => Ok(none.insert(make()?)),
    }
}
