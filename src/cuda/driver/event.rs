// SPDX-License-Identifier: MPL-2.0
//! Events: points in a stream, some with the time at which the device reached them.

use std::time::Duration;

use super::ResultExt;
use super::api::*;
use crate::cuda::error::CudaError;

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    raw: CUevent,
    device: u32,
}

// SAFETY: a CUevent may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: the driver serialises concurrent calls on one event.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event in the current context, which is of `device`. It has no time, so [`Event::elapsed_until`] fails for it.
    pub fn new(device: u32) -> Result<Self, CudaError> {
        Self::with_flags(CUevent_flags::CU_EVENT_DISABLE_TIMING, device)
    }

    /// An event with a time, which costs the device more.
    pub fn timed(device: u32) -> Result<Self, CudaError> {
        Self::with_flags(CUevent_flags::CU_EVENT_DEFAULT, device)
    }

    fn with_flags(flags: CUevent_flags, device: u32) -> Result<Self, CudaError> {
        // SAFETY: `raw` is writable.
        let create = |raw: *mut CUevent| unsafe { cuEventCreate(raw, flags as u32) };
        let raw = returned(create).when(device, "creating an event")?;
        Ok(Self { raw, device })
    }

    /// The CUevent. `self` keeps ownership.
    pub(super) fn raw(&self) -> CUevent {
        self.raw
    }

    /// Whether the device has reached it.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        // SAFETY: the event lives as long as `self`.
        match unsafe { cuEventQuery(self.raw) }.result() {
            Err(DriverError(CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            result => result.when(self.device, "blurring a frame").map(|()| true),
        }
    }

    /// Waits until the device has reached it.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the event lives as long as `self`.
        unsafe { cuEventSynchronize(self.raw) }.result().when(self.device, "blurring a frame")
    }

    /// The time from `self` to a later event. The device has reached both, and both have times.
    pub fn elapsed_until(&self, later: &Self) -> Result<Duration, CudaError> {
        // SAFETY: both events live as long as their owners, which are borrowed; `time` is writable.
        let elapsed = |time: *mut f32| unsafe { cuEventElapsedTime(time, self.raw, later.raw) };
        let milliseconds = returned(elapsed).when(self.device, "reading a time")?;
        // NaN, infinite and negative values become 0.
        Ok(Duration::try_from_secs_f32(milliseconds / 1000.0).unwrap_or_default())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: `new` created it.
        let _ = unsafe { cuEventDestroy_v2(self.raw) };
    }
}
