// SPDX-License-Identifier: MPL-2.0
//! Streams, and the work that is enqueued on them: copies, launches and waits for events.

use std::ffi::c_void;
use std::ptr;

use super::ResultExt;
use super::api::*;
use super::event::Event;
use super::module::Function;
use crate::cuda::error::CudaError;
use crate::filter::plane::{DevicePlane, HostPlane, HostPlaneMut};

/// A stream: one of ours, which does not synchronise with the default stream, or a borrowed one.
#[derive(Debug)]
pub struct Stream {
    raw: CUstream,
    device: u32,
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
    /// Creates a stream in the current context, which is of `device`.
    pub fn new(device: u32) -> Result<Self, CudaError> {
        // SAFETY: `raw` is writable.
        let create = |raw: *mut CUstream| unsafe { cuStreamCreate(raw, CUstream_flags::CU_STREAM_NON_BLOCKING as u32) };
        let raw = returned(create).when(device, "creating a stream")?;
        Ok(Self { raw, device, owned: true })
    }

    /// Wraps a stream of another owner.
    ///
    /// # Safety
    /// `handle` is a live CUstream of the current context, on `device`, and outlives the result.
    pub unsafe fn borrowed(handle: usize, device: u32) -> Self {
        Self { raw: handle as CUstream, device, owned: false }
    }

    /// The number of its device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// The CUstream. `self` keeps ownership.
    pub fn raw(&self) -> CUstream {
        self.raw
    }

    /// Waits until all enqueued work is complete.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { cuStreamSynchronize(self.raw) }.result().when(self.device, "waiting for its stream")
    }

    /// Records an event behind all work that is enqueued.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: event and stream live as long as their owners, which are borrowed.
        unsafe { cuEventRecord(event.raw(), self.raw) }.result().when(self.device, "recording an event")
    }

    /// Makes all work that is enqueued from now on wait for the event.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: stream and event live as long as their owners, which are borrowed.
        unsafe { cuStreamWaitEvent(self.raw, event.raw(), CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT as u32) }
            .result()
            .when(self.device, "making a stream wait")
    }

    /// Enqueues an upload of the first `rows` rows of a plane, `row_bytes` bytes each.
    ///
    /// # Safety
    /// Both planes hold the rows, the host's in pinned memory, and live until the copy is complete; nobody
    /// writes the source or accesses the destination before then.
    pub unsafe fn upload_rows(
        &self,
        from: &HostPlane,
        to: &DevicePlane,
        row_bytes: usize,
        rows: usize,
    ) -> Result<(), CudaError> {
        const WHAT: &str = "uploading a frame";
        if from.pitch == row_bytes && to.pitch == row_bytes {
            // SAFETY: rows without padding are one range, inside both planes.
            return unsafe { cuMemcpyHtoDAsync_v2(to.address, from.address.cast(), row_bytes * rows, self.raw) }
                .result()
                .when(self.device, WHAT);
        }
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: from.address.cast(),
            srcPitch: from.pitch,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: to.address,
            dstPitch: to.pitch,
            ..empty_copy(row_bytes, rows)
        };
        // SAFETY: both planes hold the rows, as the caller promises.
        unsafe { cuMemcpy2DAsync_v2(&copy, self.raw) }.result().when(self.device, WHAT)
    }

    /// Enqueues an upload of bytes in pinned memory.
    ///
    /// # Safety
    /// The device has memory for them at this address. Both live until the copy is complete; nobody writes the bytes or accesses the
    /// memory before then.
    pub unsafe fn upload_bytes(&self, from: &[u8], to: u64) -> Result<(), CudaError> {
        // SAFETY: the memory holds the bytes, as the caller promises.
        unsafe { cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), self.raw) }
            .result()
            .when(self.device, "uploading weights")
    }

    /// Enqueues a download of the first `rows` rows of a plane, `row_bytes` bytes each.
    ///
    /// # Safety
    /// Both planes hold the rows, the host's in pinned memory, and live until the copy is complete; nobody
    /// writes the source or accesses the destination before then.
    pub unsafe fn download_rows(
        &self,
        from: &DevicePlane,
        to: &HostPlaneMut,
        row_bytes: usize,
        rows: usize,
    ) -> Result<(), CudaError> {
        const WHAT: &str = "downloading a frame";
        if from.pitch == row_bytes && to.pitch == row_bytes {
            // SAFETY: rows without padding are one range, inside both planes.
            return unsafe { cuMemcpyDtoHAsync_v2(to.address.cast(), from.address, row_bytes * rows, self.raw) }
                .result()
                .when(self.device, WHAT);
        }
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: from.address,
            srcPitch: from.pitch,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: to.address.cast(),
            dstPitch: to.pitch,
            ..empty_copy(row_bytes, rows)
        };
        // SAFETY: both planes hold the rows, as the caller promises.
        unsafe { cuMemcpy2DAsync_v2(&copy, self.raw) }.result().when(self.device, WHAT)
    }

    /// Enqueues a copy of the first `bytes` bytes of a plane in device memory, with those between its rows.
    ///
    /// # Safety
    /// Both planes hold the bytes and live until the copy is complete; nobody writes the source or accesses the destination
    /// before then.
    pub unsafe fn copy_bytes(&self, from: &DevicePlane, to: &DevicePlane, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: both planes hold the bytes, as the caller promises.
        unsafe { cuMemcpyDtoDAsync_v2(to.address, from.address, bytes, self.raw) }
            .result()
            .when(self.device, "copying a plane")
    }

    /// Enqueues a copy of the first `rows` rows of a plane in device memory, `row_bytes` bytes each.
    ///
    /// # Safety
    /// Both planes hold the rows and live until the copy is complete; nobody writes the source or accesses the destination
    /// before then.
    pub unsafe fn copy_rows(
        &self,
        from: &DevicePlane,
        to: &DevicePlane,
        row_bytes: usize,
        rows: usize,
    ) -> Result<(), CudaError> {
        if rows == 0 {
            return Ok(());
        }
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: from.address,
            srcPitch: from.pitch,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: to.address,
            dstPitch: to.pitch,
            ..empty_copy(row_bytes, rows)
        };
        // The manual lets a driver refuse device-to-device copies with pitches not from cuMemAllocPitch; none tested does.
        // SAFETY: both planes hold the rows, as the caller promises.
        unsafe { cuMemcpy2DAsync_v2(&copy, self.raw) }.result().when(self.device, "copying a plane")
    }

    /// Makes later work wait for everything that is enqueued on another stream, by an event that is used for nothing else.
    pub fn wait_for(&self, other: &Self, event: &Event) -> Result<(), CudaError> {
        other.record(event)?;
        self.wait(event)
    }

    /// Enqueues a launch of a kernel with one parameter, passed by value.
    ///
    /// # Safety
    /// `parameter` is of the type and `grid` of the size that the kernel expects; the memory that the parameter refers to lives
    /// until the kernel has finished; the function's module stays loaded until then.
    pub unsafe fn launch<P>(&self, function: Function, grid: LaunchConfig, parameter: &P) -> Result<(), CudaError> {
        let mut parameters = [(&raw const *parameter).cast::<c_void>().cast_mut()];
        // SAFETY: the function expects this parameter, as the caller promises; the driver copies it before it returns.
        unsafe {
            cuLaunchKernel(
                function.raw(),
                grid.blocks,
                1,
                1,
                grid.threads,
                1,
                1,
                grid.shared_bytes,
                self.raw,
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
        .result()
        .when(self.device, "launching a kernel")
    }

    /// Like [`Stream::launch`], but the kernel may start before the one ahead of it on the stream has finished
    /// (programmatic dependent launch).
    ///
    /// # Safety
    /// As for [`Stream::launch`]. The device has compute capability 9.0 or later, and the kernel waits for the kernels
    /// ahead of it before it accesses memory that they access.
    pub unsafe fn launch_overlapped<P>(
        &self,
        function: Function,
        grid: LaunchConfig,
        parameter: &P,
    ) -> Result<(), CudaError> {
        let mut parameters = [(&raw const *parameter).cast::<c_void>().cast_mut()];
        let mut overlap = CUlaunchAttribute {
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
            attrs: &raw mut overlap,
            numAttrs: 1,
        };
        // SAFETY: the function expects this parameter, as the caller promises; the driver copies it and the configuration
        // before it returns.
        unsafe { cuLaunchKernelEx(&config, function.raw(), parameters.as_mut_ptr(), ptr::null_mut()) }
            .result()
            .when(self.device, "launching a kernel")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: `new` created it. A failure was reported by the work that failed.
            let _ = unsafe { cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// A two-dimensional copy without source and destination.
fn empty_copy(row_bytes: usize, rows: usize) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: ptr::null(),
        srcDevice: 0,
        srcArray: ptr::null_mut(),
        srcPitch: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: ptr::null_mut(),
        dstDevice: 0,
        dstArray: ptr::null_mut(),
        dstPitch: 0,
        WidthInBytes: row_bytes,
        Height: rows,
    }
}
