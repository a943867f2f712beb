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

/// A stream. An owned stream does not synchronise with the default stream; a borrowed stream belongs to another owner.
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

    /// The device of the stream.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The CUstream. `self` keeps ownership.
    pub fn raw(&self) -> CUstream {
        self.raw
    }

    /// Waits until all enqueued work is complete.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: `self` keeps the stream alive, or its owner does (`borrowed`).
        unsafe { cuStreamSynchronize(self.raw) }.result().when(self.device.id(), "waiting for its stream")
    }

    /// Records an event behind all enqueued work.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: `self` and `event` are borrowed, so both handles are live.
        unsafe { cuEventRecord(event.raw(), self.raw) }.result().when(self.device.id(), "recording an event")
    }

    /// Makes all work that is enqueued after this call wait for the event.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: `self` and `event` are borrowed, so both handles are live.
        unsafe { cuStreamWaitEvent(self.raw, event.raw(), CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT as u32) }
            .result()
            .when(self.device.id(), "making a stream wait")
    }

    /// Enqueues a copy of the first `rows` rows of a plane, of `row_bytes` bytes each.
    ///
    /// # Safety
    /// Both planes hold these rows and live until the copy is complete. Planes in host memory are pinned. Until then, nobody
    /// writes the source or accesses the destination.
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
        // The manual allows a driver to refuse device-to-device copies with pitches that are not from cuMemAllocPitch. No tested
        // driver does.
        // SAFETY: the caller promises that both planes hold `rows` rows of `row_bytes` bytes and live until the copy is complete.
        // Rows without padding are one range of `bytes` bytes.
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

    /// Makes later work on this stream wait for all work that is enqueued on `other`. The event is only used for this order.
    pub fn wait_for(&self, other: &Self, event: &Event) -> Result<(), CudaError> {
        other.record(event)?;
        self.wait(event)
    }

    /// Enqueues a launch of a kernel with one parameter, which is passed by value. With `overlap`, the kernel may start before
    /// the previous kernel on the stream has finished (programmatic dependent launch).
    ///
    /// # Safety
    /// `parameter` has the type and `grid` the size that the kernel expects. The memory that the parameter refers to lives, and
    /// the module of `function` stays loaded, until the kernel has finished. With `overlap`, the device has compute capability
    /// 9.0 or later, and the kernel waits for the earlier kernels before it accesses memory that they access.
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
        // SAFETY: the caller promises that the function expects a parameter of this type and a grid of this size. The driver
        // copies the parameter and the configuration before it returns.
        unsafe { cuLaunchKernelEx(&config, function.raw(), parameters.as_mut_ptr(), ptr::null_mut()) }
            .result()
            .when(self.device.id(), "launching a kernel")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: `new` created the stream, and it is destroyed only here. An error is ignored, because the work that failed
            // reports it.
            self.device.while_current(|| _ = unsafe { cuStreamDestroy_v2(self.raw) });
        }
    }
}

/// An address that the driver can copy from and to.
pub trait CopyAddress: Address {
    /// Whether the address is in host memory.
    const IS_HOST: bool;

    /// The address as a pointer; null for device memory.
    fn host(self) -> *const u8 {
        ptr::null()
    }

    /// The address as a device address; 0 for host memory.
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
