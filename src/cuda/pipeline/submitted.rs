// SPDX-License-Identifier: MPL-2.0
//! A frame that has been submitted to the device and not completed yet.

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

/// The times of a frame by the device's clock, and how it was transferred. A time runs from the first band to the last one; the
/// times of upload, kernels and download overlap if there are several bands. A time is `None` if the frame does not need the
/// step, or if it was not timed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// The upload from host to device.
    pub upload: Option<Duration>,
    /// The kernels.
    pub kernel: Option<Duration>,
    /// The download from device to host.
    pub download: Option<Duration>,
    /// The number of bytes that the CPU copied to and from staging buffers.
    pub bytes_copied: usize,
    /// Whether the device accessed the source, and the destination, directly in pinned memory.
    pub direct: [bool; 2],
}

/// Why a frame was not submitted.
#[derive(Debug)]
pub struct SubmitError {
    /// The cause.
    pub error: CudaError,
    /// Whether the device has stopped using the frame's memory. Otherwise the device may still access it, and nobody else may.
    pub settled: bool,
}

impl From<CudaError> for SubmitError {
    /// Converts an error that occurred before anything was enqueued.
    fn from(error: CudaError) -> Self {
        Self { error, settled: true }
    }
}

/// An in-flight frame. Dropping it waits for the device and discards the output.
pub struct SubmittedFrame {
    /// The slot. `None` when the device has stopped using it, or when the slot was leaked because a wait failed.
    pub(super) slot: Option<FrameSlot>,
    /// The timer, if the frame is timed.
    pub(super) timer: Option<Timer>,
    pub(super) schedule: Arc<Schedule>,
    pub(super) route: Route,
    /// The planes that the frame is downloaded to; empty if the destination is in device memory.
    pub(super) destination: Vec<HostPlaneMut>,
    pub(super) times: Times,
    pub(super) started: Instant,
    /// See `Program::specialised`.
    pub specialised: Option<bool>,
    pub(super) device: Arc<Device>,
    /// Counts the frame, see [`crate::cuda::transfer::CopyStreams::in_flight`].
    pub(super) _in_flight: Arc<()>,
}

// SAFETY: the planes of `destination` are bound to no thread. The owner of the frame's memory keeps them alive, and lets nobody
// access them, until the frame is completed. This may happen on any thread.
unsafe impl Send for SubmittedFrame {}

impl Drop for SubmittedFrame {
    fn drop(&mut self) {
        // If the owner of the frame's memory has to know the outcome, it has called `settle` before.
        let _ = self.settle();
    }
}

impl SubmittedFrame {
    /// Waits until the device no longer uses the frame, even if the blur failed. If the wait fails, the slot is leaked. If the
    /// device accesses the frame's memory directly, `settle` then returns the error: the device may still access that memory, and
    /// nobody may use, free or unregister it any more.
    pub fn settle(&mut self) -> Result<(), CudaError> {
        let Some(slot) = self.slot.take() else { return Ok(()) };
        let settled = self.device.enter().and_then(|current| {
            self.downloaded(&slot).synchronize()?;
            Ok(current)
        });
        match settled {
            Ok(_current) => {
                // Dropped while the context is current.
                drop((slot, self.timer.take()));
                Ok(())
            }
            Err(error) => {
                std::mem::forget(slot);
                if self.route.uses_frame_memory() { Err(error) } else { Ok(()) }
            }
        }
    }

    /// The event at the end of the last piece.
    fn downloaded<'a>(&self, slot: &'a FrameSlot) -> &'a Event {
        &slot.events[self.schedule.pieces.len() - 1].downloaded
    }

    /// Whether the frame can be completed without waiting.
    pub fn is_done(&self) -> bool {
        let Some(slot) = &self.slot else { return true };
        let Ok(_current) = self.device.enter() else { return true };
        // If the query fails, completing the frame reports the error.
        self.downloaded(slot).is_done().unwrap_or(true)
    }
}
