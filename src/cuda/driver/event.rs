// SPDX-License-Identifier: MPL-2.0
//! Events: points in a stream. Timed events also record when the device reached them.

use std::sync::Arc;
use std::time::Duration;

use super::ResultExt;
use super::api::*;
use super::device::Device;
use crate::cuda::error::CudaError;

/// A point in a stream.
pub struct Event {
    raw: CUevent,
    device: Arc<Device>,
}

// SAFETY: a CUevent may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: the driver serialises concurrent calls on one event.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event without timing in the device's context. [`Event::elapsed_until`] fails for it.
    pub fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        Self::with_flags(CUevent_flags::CU_EVENT_DISABLE_TIMING, device)
    }

    /// Creates an event with timing. Recording it costs the device more.
    pub fn timed(device: &Arc<Device>) -> Result<Self, CudaError> {
        Self::with_flags(CUevent_flags::CU_EVENT_DEFAULT, device)
    }

    fn with_flags(flags: CUevent_flags, device: &Arc<Device>) -> Result<Self, CudaError> {
        let _current = device.enter()?;
        // SAFETY: `raw` is writable.
        let create = |raw: *mut CUevent| unsafe { cuEventCreate(raw, flags as u32) };
        let raw = returned(create).when(device.id(), "creating an event")?;
        Ok(Self { raw, device: Arc::clone(device) })
    }

    /// The CUevent. `self` keeps ownership.
    pub(super) fn raw(&self) -> CUevent {
        self.raw
    }

    /// Whether the device has reached the event.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        // SAFETY: the event lives as long as `self`.
        match unsafe { cuEventQuery(self.raw) }.result() {
            Err(DriverError(CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            result => result.when(self.device.id(), "blurring a frame").map(|()| true),
        }
    }

    /// Waits until the device has reached the event.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the event lives as long as `self`.
        unsafe { cuEventSynchronize(self.raw) }.result().when(self.device.id(), "blurring a frame")
    }

    /// Waits until the device has reached the event, before the memory that the work ahead of it uses is freed. The method makes
    /// the context current by itself. It ignores errors, because the work that failed has reported them.
    pub fn wait_before_drop(&self) {
        self.device.while_current(|| _ = self.synchronize());
    }

    /// The time from `self` to `later`. Both events are timed, and the device has reached both.
    pub fn elapsed_until(&self, later: &Self) -> Result<Duration, CudaError> {
        // SAFETY: `self` and `later` are borrowed, so both events are live. `time` is writable.
        let elapsed = |time: *mut f32| unsafe { cuEventElapsedTime(time, self.raw, later.raw) };
        let milliseconds = returned(elapsed).when(self.device.id(), "reading a time")?;
        // NaN, infinite and negative values become 0.
        Ok(Duration::try_from_secs_f32(milliseconds / 1000.0).unwrap_or_default())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: `with_flags` created the event, and it is destroyed only here. The driver allows this while work is pending.
        self.device.while_current(|| _ = unsafe { cuEventDestroy_v2(self.raw) });
    }
}
