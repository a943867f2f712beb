// SPDX-License-Identifier: MPL-2.0
//! The pipeline of an engine: an optional upload, the kernels, an optional download.
//!
//! All work of a frame is enqueued by `submit`. A frame in host memory is divided into bands, whose transfers overlap with the
//! kernels of other bands, and is completed later. A frame that stays on the device is enqueued on its own stream, and needs no
//! completion. For a cover of a frame in host memory, only the bytes that it reads and writes pass through the device.

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
    /// A frame that has to be completed.
    InFlight(Box<SubmittedFrame>),
    /// A frame that stays on the device and needs no completion.
    Resident(Enqueued),
}

/// The device's state for the frames of an engine: streams, jobs, slots and timers.
pub struct Pipeline {
    /// The number of bands of a frame; `None` for the number that was measured as fastest.
    pub bands: Option<usize>,
    copy_streams: Arc<CopyStreams>,
    compute: Stream,
    jobs: PreparedJobs,
    slots: IdleSlots,
    timers: Timers,
    /// The waits for frames that are blurred as a whole, and for covers.
    waits: [AdaptiveWait; 2],
    /// The threads that copy to and from staging buffers.
    threads: Arc<Threads>,
    /// Created for the first frame that stays on the device.
    resident: Option<ResidentState>,
    /// Created for the first cover of such a frame into another buffer.
    frame_copy: Option<FrameCopy>,
    /// The uploads of the weights of soft covers, for frames that stay on the device.
    weights: WeightUploads,
}

impl Pipeline {
    /// A pipeline on a device.
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

    /// Enqueues a frame. Returns when the source has been staged or its upload is enqueued. The context is current.
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

/// The streams that order accesses to a resident source and to a resident destination. `None` for a frame without a stream.
fn streams_of(frames: &ValidFrames, device: &Arc<Device>) -> [Option<Stream>; 2] {
    fn handle<A>(frame: &FrameMemory<A>) -> Option<usize> {
        match frame {
            FrameMemory::Device { stream, .. } => *stream,
            FrameMemory::Host(_) => None,
        }
    }
    // SAFETY: the maker of the `ValidFrames` has promised that their streams belong to this context, and live until their work is
    // done.
    let borrow = |handle: usize| unsafe { Stream::borrowed(handle, device) };
    [handle(frames.source()), handle(frames.destination())].map(|handle| handle.map(borrow))
}

/// The value in `slot`. If there is none, `make` makes it.
fn get_or_make<T>(slot: &mut Option<T>, make: impl FnOnce() -> Result<T, CudaError>) -> Result<&mut T, CudaError> {
    match slot {
        Some(made) => Ok(made),
        none => Ok(none.insert(make()?)),
    }
}
