// SPDX-License-Identifier: MPL-2.0
//! Device memory, pinned (page-locked) host memory, and registrations of host memory of other owners.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::ResultExt;
use super::api::*;
use super::device::{Device, synchronize_all};
use super::stream::Stream;
use crate::cuda::error::{CudaError, Memory};
use crate::filter::plane::{DevicePlane, HostPlaneMut};
use crate::process;

fn allocated<T>(allocated: Result<T, DriverError>, kind: Memory, bytes: usize, device: u32) -> Result<T, CudaError> {
    allocated.map_err(|error| match error {
        DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => CudaError::OutOfMemory { kind, bytes, id: device },
        error => CudaError::Failed { doing: "allocating memory", status: error.into(), id: device },
    })
}

/// An allocation of device memory.
pub struct DeviceMemory {
    address: u64,
    bytes: usize,
    device: Arc<Device>,
}

impl DeviceMemory {
    /// Allocates `bytes`, at least 1, in the stream's context. All work that is enqueued on this stream after the call reads the
    /// memory as 0. The memory is cleared on this stream and not on the default stream, because no stream of the backend waits
    /// for that.
    pub fn new(bytes: usize, stream: &Stream) -> Result<Self, CudaError> {
        assert!(bytes > 0, "an allocation has at least one byte");
        let device = Arc::clone(stream.device());
        let _current = device.enter()?;
        // SAFETY: the size is not 0; `address` is writable.
        let allocate = |address: *mut u64| unsafe { cuMemAlloc_v2(address, bytes) };
        let address = allocated(returned(allocate), Memory::Device, bytes, device.id())?;
        let memory = Self { address, bytes, device: Arc::clone(&device) };
        // SAFETY: the range is the whole allocation. If it is freed early, `cuMemFree` waits for this work.
        unsafe { cuMemsetD8Async(address, 0, bytes, stream.raw()) }.result().when(device.id(), "clearing memory")?;
        Ok(memory)
    }

    /// The address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first `bytes` bytes, as a plane with one row.
    pub fn row(&self, bytes: usize) -> DevicePlane {
        DevicePlane { address: self.address, pitch: bytes, len: bytes }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the address in this context, which is current. The address is freed only here, and the driver
        // waits for the work that uses it.
        self.device.while_current(|| _ = unsafe { cuMemFree_v2(self.address) });
    }
}

/// An allocation of pinned host memory. The device accesses it directly.
pub struct PinnedMemory {
    address: *mut u8,
    bytes: usize,
    device: Arc<Device>,
}

// SAFETY: the memory is bound to no thread.
unsafe impl Send for PinnedMemory {}
// SAFETY: shared references return only the address and the size.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates `bytes`, at least 1, in the device's context. The contents are undefined.
    pub fn new(bytes: usize, device: &Arc<Device>) -> Result<Self, CudaError> {
        assert!(bytes > 0, "an allocation has at least one byte");
        let _current = device.enter()?;
        // Flags 0 give memory that the CPU caches. Write-combined memory would be slow to read.
        // SAFETY: the size is not 0; `address` is writable.
        let allocate = |address: *mut *mut c_void| unsafe { cuMemHostAlloc(address, bytes, 0) };
        let address = allocated(returned(allocate), Memory::PinnedHost, bytes, device.id())?;
        Ok(Self { address: address.cast(), bytes, device: Arc::clone(device) })
    }

    /// The address of the first byte.
    pub fn address(&self) -> *mut u8 {
        self.address
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first `bytes` bytes, as a plane with one row.
    pub fn row(&self, bytes: usize) -> HostPlaneMut {
        HostPlaneMut { address: self.address, pitch: bytes, len: bytes }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the address in this context, which is current. The address is freed only here, and the driver
        // waits for the work that uses it.
        self.device.while_current(|| _ = unsafe { cuMemFreeHost(self.address.cast()) });
    }
}

/// Memory that is allocated on first use, and replaced when more is needed.
pub struct Workspace<M>(Option<M>);

impl<M> Default for Workspace<M> {
    fn default() -> Self {
        Self(None)
    }
}

impl<M> Workspace<M> {
    /// Replaces the old memory by the memory that `allocate` returns. Nothing may use the old memory any more.
    pub fn replace(&mut self, allocate: impl FnOnce() -> Result<M, CudaError>) -> Result<(), CudaError> {
        // The old memory is freed first, so that both are never allocated at the same time.
        self.0 = None;
        self.0 = Some(allocate()?);
        Ok(())
    }
}

impl Workspace<DeviceMemory> {
    /// The address of the first byte, or 0 if nothing is allocated.
    pub fn address(&self) -> u64 {
        self.0.as_ref().map_or(0, DeviceMemory::address)
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, DeviceMemory::bytes)
    }
}

impl Workspace<PinnedMemory> {
    /// Returns the address of at least `bytes` bytes. Nothing may use the old memory, because it is replaced if it is too small.
    pub fn reserve(&mut self, bytes: usize, device: &Arc<Device>) -> Result<*mut u8, CudaError> {
        if self.0.as_ref().is_none_or(|memory| memory.bytes < bytes) {
            self.replace(|| PinnedMemory::new(bytes, device))?;
        }
        Ok(self.0.as_ref().map_or(ptr::null_mut(), PinnedMemory::address))
    }
}

/// A registration: it pins memory of another owner until it is dropped. It may be dropped on any thread.
pub struct HostRegistration {
    address: usize,
    device: Arc<Device>,
}

impl HostRegistration {
    /// Registers `bytes` from this address on, in the device's context. Returns `None` if they are pinned already. Fails if the
    /// driver refuses the registration: because of the kind of mapping, because of the size, or because part of the range is
    /// already registered.
    ///
    /// # Safety
    /// The range is memory of this process, and it outlives the result.
    pub unsafe fn new(address: usize, bytes: usize, device: &Arc<Device>) -> Result<Option<Self>, CudaError> {
        let _current = device.enter()?;
        if is_pinned(address as *const u8, bytes) {
            return Ok(None);
        }
        // SAFETY: the caller promises that the range is memory of this process and outlives the registration.
        unsafe { cuMemHostRegister_v2(address as *mut c_void, bytes, CU_MEMHOSTREGISTER_PORTABLE) }
            .result()
            .when(device.id(), "registering memory")?;
        // The call has succeeded, so a stale registration at this address no longer exists.
        process::stale_registrations().retain(|start| *start != address);
        Ok(Some(Self { address, device: Arc::clone(device) }))
    }
}

impl Drop for HostRegistration {
    fn drop(&mut self) {
        // Several GstMemory objects may refer to the same bytes, so a copy for another object may still be in progress, and in
        // any context: registered memory is pinned in all of them. cuMemHostUnregister waits only for copies of the current
        // context. If copies are queued in another one, the next call there fails with CUDA_ERROR_LAUNCH_FAILED, and that context
        // stays broken (H200, driver 580, 2026-11-29). Once the address is stale, `is_pinned` returns false for it, so no further
        // frame uses the memory directly. If unregistering fails, the address stays stale for good: the system may later map
        // other pages there, which the device does not know.
        process::stale_registrations().push(self.address);
        synchronize_all();
        self.device.while_current(|| {
            // SAFETY: `new` registered the address in this context, which is current, and it is unregistered only here.
            if unsafe { cuMemHostUnregister(self.address as *mut c_void) }.result().is_ok() {
                process::stale_registrations().retain(|start| *start != self.address);
            }
        });
    }
}

/// Whether all of these bytes lie in one pinned allocation or registration. The driver refuses a copy that spans two of them, and
/// between two there may be pageable memory. If the query fails, the result is false, so that the memory is staged. A context
/// must be current.
pub fn is_pinned(address: *const u8, bytes: usize) -> bool {
    use CUpointer_attribute as Attribute;
    let (mut kind, mut start, mut size) = (0_u32, 0_usize, 0_usize);
    let mut attributes = [
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ];
    let mut values =
        [(&raw mut kind).cast::<c_void>(), (&raw mut start).cast::<c_void>(), (&raw mut size).cast::<c_void>()];
    let count = attributes.len() as u32;
    // cuPointerGetAttributes succeeds for every address, while cuPointerGetAttribute fails for addresses that CUDA does not know.
    // SAFETY: each value points to a variable of its attribute's type. The driver looks the address up without reading it.
    let status = unsafe { cuPointerGetAttributes(count, attributes.as_mut_ptr(), values.as_mut_ptr(), address as u64) };
    let is_host = status.result().is_ok() && kind == CUmemorytype::CU_MEMORYTYPE_HOST as u32;
    let offset = (address as usize).wrapping_sub(start);
    let is_inside = bytes > 0 && offset < size && bytes <= size - offset;
    is_host && is_inside && !process::stale_registrations().contains(&start)
}
