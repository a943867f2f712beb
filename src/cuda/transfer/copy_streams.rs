// SPDX-License-Identifier: MPL-2.0
//! The streams on which all engines of a context copy.

use std::sync::Arc;

use crate::cuda::driver::Stream;
use crate::cuda::driver::device::Device;
use crate::cuda::error::CudaError;

/// One stream for each direction. Copies of one direction take turns on the bus anyway. With streams of its own, an engine with
/// several frames in flight left almost nothing to the others (H200: 7 frames a second beside 5726).
pub struct CopyStreams {
    /// Host to device.
    pub upload: Stream,
    /// Device to host.
    pub download: Stream,
    /// Cloned for every frame in flight.
    in_flight: Arc<()>,
}

impl CopyStreams {
    /// On a device.
    pub fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        Ok(Self { upload: Stream::new(device)?, download: Stream::new(device)?, in_flight: Arc::default() })
    }

    /// Frames in flight, of all engines.
    pub fn in_flight(&self) -> usize {
        Arc::strong_count(&self.in_flight) - 1
    }

    /// Counts a frame as in flight until the result is dropped.
    pub fn count_frame(&self) -> Arc<()> {
        Arc::clone(&self.in_flight)
    }
}
