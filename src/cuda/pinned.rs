// SPDX-License-Identifier: MPL-2.0
//! Memory of the host that the device reads and writes by itself, for frames that come and go in it: no copy by the CPU.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::device::Device;
use super::driver::{self, PinnedMemory, RegisteredMemory};
use super::error::CudaError;

/// Where such memory comes from. It may be kept longer than the engine.
#[derive(Clone)]
pub struct PinnedSource(pub(super) Arc<Device>);

impl PinnedSource {
    /// `bytes` of it, at least 1, all 0.
    pub fn allocate(&self, bytes: usize) -> Result<PinnedBytes, CudaError> {
        let _current = self.0.enter()?;
        let memory = PinnedMemory::new(bytes, self.0.id())?;
        // SAFETY: its own size.
        unsafe { memory.address().write_bytes(0, bytes) };
        Ok(PinnedBytes { memory: ManuallyDrop::new(memory), bytes, device: Arc::clone(&self.0) })
    }

    /// Has somebody else's memory be like it. `None` if it is already, or was allocated so.
    ///
    /// # Safety
    /// The memory outlives the answer.
    pub unsafe fn register(&self, address: usize, bytes: usize) -> Result<Option<Registered>, CudaError> {
        let _current = self.0.enter()?;
        if driver::is_pinned(address as *const u8, bytes) {
            return Ok(None);
        }
        // SAFETY: passed on.
        let memory = unsafe { RegisteredMemory::new(address, bytes, self.0.id()) }?;
        Ok(Some(Registered { memory: ManuallyDrop::new(memory), device: Arc::clone(&self.0) }))
    }
}

/// Memory of others that is registered until this is dropped, on any thread.
pub struct Registered {
    memory: ManuallyDrop<RegisteredMemory>,
    device: Arc<Device>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        match self.device.enter() {
            Ok(_current) => drop(memory),
            Err(_) => memory.abandon(),
        }
    }
}

/// Bytes that free themselves, on any thread.
pub struct PinnedBytes {
    memory: ManuallyDrop<PinnedMemory>,
    bytes: usize,
    device: Arc<Device>,
}

impl AsMut<[u8]> for PinnedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: written when allocated, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory.address(), self.bytes) }
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        // Without a context nothing can be freed, and nothing is.
        if let Ok(_current) = self.device.enter() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}
