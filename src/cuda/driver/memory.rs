// SPDX-License-Identifier: MPL-2.0
//! Device memory, pinned (page-locked) host memory, and registrations of host memory that somebody else allocated.

use std::ffi::c_void;
use std::ptr;

use super::ResultExt;
use super::api::*;
use super::device::synchronize_all;
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
#[derive(Debug)]
pub struct DeviceMemory {
    address: u64,
    bytes: usize,
}

impl DeviceMemory {
    /// Allocates `bytes`, at least 1, in the stream's context, which is current. The memory reads as 0 in all work that is
    /// enqueued on this stream from now on. It is cleared there and not on the default stream, for which nothing here waits.
    pub fn new(bytes: usize, stream: &Stream) -> Result<Self, CudaError> {
        assert!(bytes > 0, "an allocation has at least one byte");
        // SAFETY: the size is not 0; `address` is writable.
        let allocate = |address: *mut u64| unsafe { cuMemAlloc_v2(address, bytes) };
        let address = allocated(returned(allocate), Memory::Device, bytes, stream.device())?;
        let memory = Self { address, bytes };
        // SAFETY: the range is the whole allocation, and cuMemFree waits for the work that uses it.
        unsafe { cuMemsetD8Async(address, 0, bytes, stream.raw()) }
            .result()
            .when(stream.device(), "clearing memory")?;
        Ok(memory)
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its first bytes, as one row.
    pub fn row(&self, bytes: usize) -> DevicePlane {
        DevicePlane { address: self.address, pitch: bytes, len: bytes }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it.
        let _ = unsafe { cuMemFree_v2(self.address) };
    }
}

/// Device memory that is replaced when more is needed.
#[derive(Debug, Default)]
pub struct Workspace(Option<DeviceMemory>);

impl Workspace {
    /// Address of the first byte, 0 if nothing is allocated.
    pub fn address(&self) -> u64 {
        self.0.as_ref().map_or(0, DeviceMemory::address)
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, DeviceMemory::bytes)
    }

    /// Allocates so many bytes, at least 1, in place of the memory that was there, which nothing uses. See [`DeviceMemory::new`]
    /// for when the new memory can be used.
    pub fn replace(&mut self, bytes: usize, stream: &Stream) -> Result<(), CudaError> {
        // The old memory is freed first, so that both are never allocated together.
        self.0 = None;
        self.0 = Some(DeviceMemory::new(bytes, stream)?);
        Ok(())
    }
}

/// Pinned memory that grows when more is needed.
#[derive(Debug, Default)]
pub struct PinnedWorkspace {
    memory: Option<PinnedMemory>,
    bytes: usize,
}

// SAFETY: the address is all that can be read through a shared reference.
unsafe impl Sync for PinnedWorkspace {}

impl PinnedWorkspace {
    /// Address of the first byte, null if nothing is allocated.
    pub fn address(&self) -> *mut u8 {
        self.memory.as_ref().map_or(ptr::null_mut(), PinnedMemory::address)
    }

    /// Allocates so many bytes if there are fewer, in the current context, which is of `device`. Nothing uses the old memory.
    pub fn reserve(&mut self, bytes: usize, device: u32) -> Result<(), CudaError> {
        if bytes > self.bytes {
            (self.memory, self.bytes) = (None, 0);
            self.memory = Some(PinnedMemory::new(bytes, device)?);
            self.bytes = bytes;
        }
        Ok(())
    }
}

/// An allocation of pinned host memory, which the device reads and writes directly.
#[derive(Debug)]
pub struct PinnedMemory {
    address: *mut u8,
}

// SAFETY: the memory belongs to no thread; cuMemFreeHost may be called from any.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    /// Allocates `bytes`, at least 1, in the current context, which is of `device`. The contents are undefined.
    pub fn new(bytes: usize, device: u32) -> Result<Self, CudaError> {
        assert!(bytes > 0, "an allocation has at least one byte");
        // Flags 0 give memory that the CPU caches. Write-combined memory is slow to read.
        // SAFETY: the size is not 0; `address` is writable.
        let allocate = |address: *mut *mut c_void| unsafe { cuMemHostAlloc(address, bytes, 0) };
        let address = allocated(returned(allocate), Memory::PinnedHost, bytes, device)?;
        Ok(Self { address: address.cast() })
    }

    /// Address of the first byte.
    pub fn address(&self) -> *mut u8 {
        self.address
    }

    /// Its first bytes, as one row.
    pub fn row(&self, bytes: usize) -> HostPlaneMut {
        HostPlaneMut { address: self.address, pitch: bytes, len: bytes }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it.
        let _ = unsafe { cuMemFreeHost(self.address.cast()) };
    }
}

/// Host memory of another owner, pinned while this lives.
#[derive(Debug)]
pub struct RegisteredMemory {
    address: usize,
}

impl RegisteredMemory {
    /// Registers `bytes` from this address on, with the context of `device` current. Fails if the driver refuses: for its kind
    /// of mapping, for its size, or because part of it is registered already.
    ///
    /// # Safety
    /// The memory outlives the result.
    pub unsafe fn new(address: usize, bytes: usize, device: u32) -> Result<Self, CudaError> {
        // SAFETY: the range is memory of this process, as the caller promises.
        unsafe { cuMemHostRegister_v2(address as *mut c_void, bytes, CU_MEMHOSTREGISTER_PORTABLE) }
            .result()
            .when(device, "registering memory")?;
        // A stale registration at this address has ended, or this call would have failed.
        process::stale_registrations().retain(|start| *start != address);
        Ok(Self { address })
    }

    /// Gives up a registration that cannot be ended. The system may map other pages at its address later, which the device does
    /// not know, so the range is never treated as pinned again.
    pub fn abandon(self) {
        process::stale_registrations().push(self.address);
        std::mem::forget(self);
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        // Several GstMemory objects may refer to the same bytes, so a copy from one of the others may be in progress, in any context:
        // registered memory is pinned in all of them. cuMemHostUnregister waits only for copies of the current context: with copies
        // queued in another one, the next call there fails with CUDA_ERROR_LAUNCH_FAILED, and that context stays broken (H200,
        // driver 580, 2026-11-29). From here on no frame finds the memory pinned.
        process::stale_registrations().push(self.address);
        synchronize_all();
        // SAFETY: `new` registered it; the context is current.
        if unsafe { cuMemHostUnregister(self.address as *mut c_void) }.result().is_ok() {
            process::stale_registrations().retain(|start| *start != self.address);
        }
    }
}

/// Whether all of these bytes lie in one pinned allocation or registration. The driver refuses a copy that spans two, and
/// between two there may be pageable memory. A query that fails says no, so that the memory is staged. A context is current.
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
    // The plural call succeeds for every address; cuPointerGetAttribute fails for those that CUDA does not know.
    // SAFETY: each value points to a variable of its attribute's type; the driver looks the address up without reading it.
    let status = unsafe { cuPointerGetAttributes(count, attributes.as_mut_ptr(), values.as_mut_ptr(), address as u64) };
    let is_host = status.result().is_ok() && kind == CUmemorytype::CU_MEMORYTYPE_HOST as u32;
    let offset = (address as usize).wrapping_sub(start);
    let is_inside = bytes > 0 && offset < size && bytes <= size - offset;
    is_host && is_inside && !process::stale_registrations().contains(&start)
}
