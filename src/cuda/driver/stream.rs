// SPDX-License-Identifier: MPL-2.0
//! Streams, and the work that is enqueued on them: copies, launches and waits for events.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::ResultExt;
use super::api::*;
use super::device::Device;
use super::event::Event;
use super::module::Function;
use crate::cuda::error::CudaError;
use crate::filter::plane::{Address, PlaneMemory};

/// A stream: one of ours, which does not synchronise with the default stream, or a borrowed one.
pub struct Stream {
    raw: CUstream,
    device: Arc<Device>,
    owned: bool,
}

// SAFETY: a CUstream may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: the driver serialises concurrent calls on one stream.
unsafe impl Sync for Stream {}

/// The size of a launch: one-dimensional grid and blocks, and the dynamic shared memory of a block in bytes.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the line above names them")]
pub struct LaunchConfig {
    pub blocks: u32,
    pub threads: u32,
    pub shared_bytes: u32,
}

impl Stream {
    /// Creates a stream in the device's context.
    pub fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        let _current = device.enter()?;
        // SAFETY: `raw` is writable.
        let create = |raw: *mut CUstream| unsafe { cuStreamCreate(raw, CUstream_flags::CU_STREAM_NON_BLOCKING as u32) };
        let raw = returned(create).when(device.id(), "creating a stream")?;
        Ok(Self { raw, device: Arc::clone(device), owned: true })
    }

    /// Wraps a stream of another owner.
    ///
    /// # Safety
    /// `handle` is a live CUstream of the device's context, and outlives the result.
    pub unsafe fn borrowed(handle: usize, device: &Arc<Device>) -> Self {
        Self { raw: handle as CUstream, device: Arc::clone(device), owned: false }
    }

    /// Its device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The CUstream. `self` keeps ownership.
    pub fn raw(&self) -> CUstream {
        self.raw
    }

    /// Waits until all enqueued work is complete.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { cuStreamSynchronize(self.raw) }.result().when(self.device.id(), "waiting for its stream")
    }

    /// Records an event behind all work that is enqueued.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: event and stream live as long as their owners, which are borrowed.
        unsafe { cuEventRecord(event.raw(), self.raw) }.result().when(self.device.id(), "recording an event")
    }

    /// Makes all work that is enqueued from now on wait for the event.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: stream and event live as long as their owners, which are borrowed.
        unsafe { cuStreamWaitEvent(self.raw, event.raw(), CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT as u32) }
            .result()
            .when(self.device.id(), "making a stream wait")
    }

    /// Enqueues a copy of the first `rows` rows of a plane, `row_bytes` bytes each.
    ///
    /// # Safety
    /// Both planes hold the rows, in host memory only if it is pinned, and live until the copy is complete; nobody writes the
    /// source or accesses the destination before then.
    pub unsafe fn copy<A: CopyAddress, B: CopyAddress>(
        &self,
        from: &PlaneMemory<A>,
        to: &PlaneMemory<B>,
        row_bytes: usize,
        rows: usize,
    ) -> Result<(), CudaError> {
        if rows == 0 {
            return Ok(());
        }
        let ((source, destination), bytes) = ((from.address.device(), to.address.device()), row_bytes * rows);
        let is_dense = rows == 1 || from.pitch == row_bytes && to.pitch == row_bytes;
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: memory_type::<A>(),
            srcHost: from.address.host().cast(),
            srcDevice: source,
            srcArray: ptr::null_mut(),
            srcPitch: from.pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: memory_type::<B>(),
            dstHost: to.address.host().cast_mut().cast(),
            dstDevice: destination,
            dstArray: ptr::null_mut(),
            dstPitch: to.pitch,
            WidthInBytes: row_bytes,
            Height: rows,
        };
        // The manual lets a driver refuse device-to-device copies with pitches not from cuMemAllocPitch; none tested does.
        // SAFETY: both planes hold the rows, as the caller promises; rows without padding are one range.
        unsafe {
            match (is_dense, A::IS_HOST, B::IS_HOST) {
                (true, true, false) => cuMemcpyHtoDAsync_v2(destination, copy.srcHost, bytes, self.raw),
                (true, false, true) => cuMemcpyDtoHAsync_v2(copy.dstHost, source, bytes, self.raw),
                (true, false, false) => cuMemcpyDtoDAsync_v2(destination, source, bytes, self.raw),
                _ => cuMemcpy2DAsync_v2(&copy, self.raw),
            }
        }
        .result()
        .when(
            self.device.id(),
            match (A::IS_HOST, B::IS_HOST) {
                (true, false) => "uploading a frame",
                (false, true) => "downloading a frame",
                _ => "copying a plane",
            },
        )
    }

    /// Makes later work wait for everything that is enqueued on another stream, by an event that is used for nothing else.
    pub fn wait_for(&self, other: &Self, event: &Event) -> Result<(), CudaError> {
        other.record(event)?;
        self.wait(event)
    }

    /// Enqueues a launch of a kernel with one parameter, passed by value. With `overlap` the kernel may start before the one
    /// ahead of it on the stream has finished (programmatic dependent launch).
    ///
    /// # Safety
    /// `parameter` is of the type and `grid` of the size that the kernel expects; the memory that the parameter refers to lives
    /// until the kernel has finished; the function's module stays loaded until then. With `overlap` the device has compute
    /// capability 9.0 or later, and the kernel waits for the kernels ahead of it before it accesses memory that they access.
    pub unsafe fn launch<P>(
        &self,
        function: Function,
        grid: LaunchConfig,
        parameter: &P,
        overlap: bool,
    ) -> Result<(), CudaError> {
        let mut parameters = [(&raw const *parameter).cast::<c_void>().cast_mut()];
        let mut attribute = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = CUlaunchConfig {
            gridDimX: grid.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: grid.shared_bytes,
            hStream: self.raw,
            attrs: &raw mut attribute,
            numAttrs: overlap.into(),
        };
        // SAFETY: the function expects this parameter, as the caller promises; the driver copies it and the configuration
        // before it returns.
        unsafe { cuLaunchKernelEx(&config, function.raw(), parameters.as_mut_ptr(), ptr::null_mut()) }
            .result()
            .when(self.device.id(), "launching a kernel")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: `new` created it. A failure was reported by the work that failed.
            self.device.while_current(|| _ = unsafe { cuStreamDestroy_v2(self.raw) });
        }
    }
}

/// An address that the driver copies from or to.
pub trait CopyAddress: Address {
    /// Whether it is in host memory.
    const IS_HOST: bool;

    /// The address in host memory; null if it is not there.
    fn host(self) -> *const u8 {
        ptr::null()
    }

    /// The address in device memory; 0 if it is not there.
    fn device(self) -> u64 {
        0
    }
}

impl CopyAddress for u64 {
    const IS_HOST: bool = false;

    fn device(self) -> u64 {
        self
    }
}

impl CopyAddress for *const u8 {
    const IS_HOST: bool = true;

    fn host(self) -> *const u8 {
        self
    }
}

impl CopyAddress for *mut u8 {
    const IS_HOST: bool = true;

    fn host(self) -> *const u8 {
        self
    }
}

fn memory_type<A: CopyAddress>() -> CUmemorytype {
    if A::IS_HOST { CUmemorytype::CU_MEMORYTYPE_HOST } else { CUmemorytype::CU_MEMORYTYPE_DEVICE }
}
