// SPDX-License-Identifier: MPL-2.0
//! Pinned host memory for frames, which the device reads and writes directly, without a copy by the CPU.

use std::sync::Arc;

use crate::cuda::driver::device::Device;
use crate::cuda::driver::{HostRegistration, PinnedMemory};
use crate::cuda::error::CudaError;

/// Allocates and registers pinned memory for a device. May outlive the engine that it came from.
#[derive(Clone)]
pub struct PinnedSource(Arc<Device>);

impl PinnedSource {
    /// For a device.
    pub fn new(device: Arc<Device>) -> Self {
        Self(device)
    }

    /// Allocates `bytes`, at least 1, filled with 0.
    pub fn allocate(&self, bytes: usize) -> Result<PinnedBytes, CudaError> {
        let memory = PinnedMemory::new(bytes, &self.0)?;
        // SAFETY: the allocation has this size.
        unsafe { memory.address().write_bytes(0, bytes) };
        Ok(PinnedBytes(memory))
    }

    /// Pins memory of another owner. Returns `None` if it is pinned already.
    ///
    /// # Safety
    /// The memory outlives the registration.
    pub unsafe fn register(&self, address: usize, bytes: usize) -> Result<Option<HostRegistration>, CudaError> {
        // SAFETY: the memory outlives the registration, as the caller promises.
        unsafe { HostRegistration::new(address, bytes, &self.0) }
    }
}

/// Pinned memory with contents, freed when this is dropped, on any thread.
pub struct PinnedBytes(PinnedMemory);

impl AsMut<[u8]> for PinnedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: `allocate` initialised all bytes of the allocation, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.0.address(), self.0.bytes()) }
    }
}
