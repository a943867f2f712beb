// SPDX-License-Identifier: MPL-2.0
//! The streams that all engines of a context use for copies.

use std::sync::Arc;

use crate::cuda::driver::Stream;
use crate::cuda::driver::device::Device;
use crate::cuda::error::CudaError;

/// One stream for each direction. Copies in one direction use the bus one after the other anyway. When each engine had its own
/// streams, an engine with several frames in flight left almost nothing to the others (H200: 7 frames a second beside 5726).
pub struct CopyStreams {
    /// Copies from host to device.
    pub upload: Stream,
    /// Copies from device to host.
    pub download: Stream,
    /// Cloned for each in-flight frame, so its reference count is the number of frames plus one.
    in_flight: Arc<()>,
}

impl CopyStreams {
    /// Creates both streams in the context of the device.
    pub fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        Ok(Self { upload: Stream::new(device)?, download: Stream::new(device)?, in_flight: Arc::default() })
    }

    /// The number of in-flight frames of all engines of the context.
    pub fn in_flight(&self) -> usize {
        Arc::strong_count(&self.in_flight) - 1
    }

    /// Counts a frame as in flight until the returned value is dropped.
    pub fn count_frame(&self) -> Arc<()> {
        Arc::clone(&self.in_flight)
    }
}
