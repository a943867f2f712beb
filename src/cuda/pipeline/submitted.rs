// SPDX-License-Identifier: MPL-2.0
//! A frame that was submitted to the device and not completed yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::frame_slot::FrameSlot;
use super::route::Route;
use super::timer::Timer;
use crate::cuda::driver::Event;
use crate::cuda::driver::device::Device;
use crate::cuda::error::CudaError;
use crate::cuda::transfer::schedule::Schedule;
use crate::filter::plane::HostPlaneMut;

/// How long a frame took by the device's clock, each from its first band to its last; those of several bands overlap. `None` for what
/// the frame does not need, and for all if the frame was not timed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Host to device.
    pub upload: Option<Duration>,
    /// The kernels.
    pub kernel: Option<Duration>,
    /// Device to host.
    pub download: Option<Duration>,
    /// Bytes that the CPU copied to and from staging buffers.
    pub bytes_copied: usize,
    /// Whether the source and the destination were in pinned memory that the device accessed directly.
    pub direct: [bool; 2],
}

/// Why a frame was not submitted.
#[derive(Debug)]
pub struct SubmitError {
    /// The cause.
    pub error: CudaError,
    /// Whether the device has stopped using the frame's memory. Otherwise it may still read and write it, and nobody else may.
    pub settled: bool,
}

impl From<CudaError> for SubmitError {
    /// A failure before anything was enqueued.
    fn from(error: CudaError) -> Self {
        Self { error, settled: true }
    }
}

/// A frame in flight. Dropping it waits for the device and discards the output.
pub struct SubmittedFrame {
    /// `None` once the device has stopped using it, or when that can never be known.
    pub(super) slot: Option<FrameSlot>,
    /// Of a frame that is timed.
    pub(super) timer: Option<Timer>,
    pub(super) schedule: Arc<Schedule>,
    pub(super) route: Route,
    /// Where the frame is downloaded to; empty if it stays on the device.
    pub(super) destination: Vec<HostPlaneMut>,
    pub(super) times: Times,
    pub(super) started: Instant,
    /// See `Program::specialised`.
    pub specialised: Option<bool>,
    pub(super) device: Arc<Device>,
    /// Counts it, see [`crate::cuda::transfer::CopyStreams::in_flight`].
    pub(super) _in_flight: Arc<()>,
}

// SAFETY: the planes of `destination` belong to no thread. The owner of the frame's memory keeps them alive and unaccessed until
// the frame is completed, which may happen on any thread.
unsafe impl Send for SubmittedFrame {}

impl Drop for SubmittedFrame {
    fn drop(&mut self) {
        // The owner of the frame's memory has called `settle` before, if it has to know the outcome.
        let _ = self.settle();
    }
}

impl SubmittedFrame {
    /// Waits until the device no longer uses the frame, whatever the outcome of the blur. If this fails, the device may still
    /// read and write the frame's memory: nobody may use, free or unregister it any more. Staging buffers are leaked then.
    pub fn settle(&mut self) -> Result<(), CudaError> {
        let Some(slot) = self.slot.take() else { return Ok(()) };
        let settled = self.device.enter().and_then(|current| {
            self.downloaded(&slot).synchronize()?;
            Ok(current)
        });
        match settled {
            Ok(_current) => {
                // While the context is current.
                drop((slot, self.timer.take()));
                Ok(())
            }
            Err(error) => {
                std::mem::forget(slot);
                if self.route.uses_frame_memory() { Err(error) } else { Ok(()) }
            }
        }
    }

    /// The end of its last piece.
    fn downloaded<'a>(&self, slot: &'a FrameSlot) -> &'a Event {
        &slot.events[self.schedule.pieces.len() - 1].downloaded
    }

    /// Whether it can be completed without waiting.
    pub fn is_done(&self) -> bool {
        let Some(slot) = &self.slot else { return true };
        let Ok(_current) = self.device.enter() else { return true };
        // A failure is reported when the frame is completed.
        self.downloaded(slot).is_done().unwrap_or(true)
    }
}
