// SPDX-License-Identifier: MPL-2.0
//! Pinned host memory for frames, which the device reads and writes directly, without a copy by the CPU.

use std::sync::Arc;

use crate::cuda::driver::device::Device;
use crate::cuda::driver::{HostRegistration, PinnedMemory};
use crate::cuda::error::CudaError;

/// Allocates and registers pinned memory for a device. It may outlive the engine that returned it.
#[derive(Clone)]
pub struct PinnedSource(Arc<Device>);

impl PinnedSource {
    /// A source of pinned memory for a device.
    pub fn new(device: Arc<Device>) -> Self {
        Self(device)
    }

    /// Allocates `bytes`, at least 1, and fills them with 0.
    pub fn allocate(&self, bytes: usize) -> Result<PinnedBytes, CudaError> {
        let memory = PinnedMemory::new(bytes, &self.0)?;
        // SAFETY: the allocation has `bytes` bytes, and nobody else has its address yet.
        unsafe { memory.address().write_bytes(0, bytes) };
        Ok(PinnedBytes(memory))
    }

    /// Pins memory of another owner. Returns `None` if all of it is pinned already.
    ///
    /// # Safety
    /// The range is memory of this process, and it outlives the registration.
    pub unsafe fn register(&self, address: usize, bytes: usize) -> Result<Option<HostRegistration>, CudaError> {
        // SAFETY: the caller promises that the range is memory of this process and outlives the registration.
        unsafe { HostRegistration::new(address, bytes, &self.0) }
    }
}

/// Pinned memory with initialised contents. Dropping it frees the memory; it may be dropped on any thread.
pub struct PinnedBytes(PinnedMemory);

impl AsMut<[u8]> for PinnedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: `allocate` has initialised all bytes of the allocation, which `self` owns. The slice borrows `self` mutably.
        unsafe { std::slice::from_raw_parts_mut(self.0.address(), self.0.bytes()) }
    }
}
