// SPDX-License-Identifier: MPL-2.0
//! Pinned host memory for frames, which the device reads and writes directly, without a copy by the CPU.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::cuda::driver::device::Device;
use crate::cuda::driver::{self, PinnedMemory, RegisteredMemory};
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
        let _current = self.0.enter()?;
        let memory = PinnedMemory::new(bytes, self.0.id())?;
        // SAFETY: the allocation has this size.
        unsafe { memory.address().write_bytes(0, bytes) };
        Ok(PinnedBytes { memory: ManuallyDrop::new(memory), bytes, device: Arc::clone(&self.0) })
    }

    /// Pins memory of another owner. Returns `None` if it is pinned already.
    ///
    /// # Safety
    /// The memory outlives the registration.
    pub unsafe fn register(&self, address: usize, bytes: usize) -> Result<Option<HostRegistration>, CudaError> {
        let _current = self.0.enter()?;
        if driver::is_pinned(address as *const u8, bytes) {
            return Ok(None);
        }
        // SAFETY: the memory outlives the registration, as the caller promises.
        let memory = unsafe { RegisteredMemory::new(address, bytes, self.0.id()) }?;
        Ok(Some(HostRegistration { memory: ManuallyDrop::new(memory), device: Arc::clone(&self.0) }))
    }
}

/// Memory of another owner, pinned until this is dropped, on any thread.
pub struct HostRegistration {
    memory: ManuallyDrop<RegisteredMemory>,
    device: Arc<Device>,
}

impl Drop for HostRegistration {
    fn drop(&mut self) {
        // SAFETY: taken only here, and drop runs once.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        match self.device.enter() {
            Ok(_current) => drop(memory),
            Err(_) => memory.abandon(),
        }
    }
}

/// Pinned memory, freed when this is dropped, on any thread.
pub struct PinnedBytes {
    memory: ManuallyDrop<PinnedMemory>,
    bytes: usize,
    device: Arc<Device>,
}

impl AsMut<[u8]> for PinnedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the allocation has `bytes` bytes, which `allocate` initialised, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.memory.address(), self.bytes) }
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        // Freeing requires the context. If it cannot be entered, the memory is leaked.
        if let Ok(_current) = self.device.enter() {
            // SAFETY: dropped only here, and drop runs once.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}
