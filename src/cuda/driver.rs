// SPDX-License-Identifier: MPL-2.0
//! The few objects of the driver API that the engine uses, each owned and freed by itself.
//!
//! On cudarc's `result` layer, not its safe one: that one records an event for every use of a buffer, keeps a failure of
//! one user of a context for the next, and leaves its context current on threads that belong to others.
//!
//! Everything here is called with the device's context current ([`super::device::Device::enter`]).

use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUevent_flags, CUevent_wait_flags, CUfunction_attribute, CUresult};

use super::error::{CudaError, Memory, Status};
use super::launch::{Args, Launch};
use super::work::PlaneCopy;

/// Says what failed, where.
pub(super) trait Doing<T> {
    fn doing(self, id: u32, doing: &'static str) -> Result<T, CudaError>;
}

impl<T> Doing<T> for Result<T, DriverError> {
    fn doing(self, id: u32, doing: &'static str) -> Result<T, CudaError> {
        self.map_err(|error| CudaError::Failed { doing, status: error.into(), id })
    }
}

fn allocated<T>(allocated: Result<T, DriverError>, kind: Memory, bytes: usize, id: u32) -> Result<T, CudaError> {
    allocated.map_err(|error| match Status::from(error) {
        status if status.is_out_of_memory() => CudaError::OutOfMemory { kind, bytes, id },
        status => CudaError::Failed { doing: "allocating memory", status, id },
    })
}

/// A context made current, until dropped. Whatever was current before is then current again.
pub struct Current(PhantomData<*const ()>);

impl Current {
    /// # Safety
    /// The context lives as long as this does.
    pub(super) unsafe fn push(context: sys::CUcontext) -> Result<Self, DriverError> {
        // SAFETY: as above.
        unsafe { sys::cuCtxPushCurrent_v2(context) }.result()?;
        Ok(Self(PhantomData))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let mut context = ptr::null_mut();
        // SAFETY: this thread pushed it.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut context) };
    }
}

/// A stream: one of ours, which does not wait for the default stream, or somebody else's.
#[derive(Debug)]
pub struct Stream {
    raw: sys::CUstream,
    id: u32,
    owned: bool,
}

// SAFETY: the driver API may be called from any thread.
unsafe impl Send for Stream {}
// SAFETY: likewise, from several at once.
unsafe impl Sync for Stream {}

impl Stream {
    /// On device `id`, whose context is current.
    pub fn new(id: u32) -> Result<Self, CudaError> {
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking).doing(id, "creating a stream")?;
        Ok(Self { raw, id, owned: true })
    }

    /// Somebody else's, by the driver's handle of it.
    ///
    /// # Safety
    /// It is of the context that is current, on device `id`, and outlives what is made here.
    pub unsafe fn borrowed(handle: usize, id: u32) -> Self {
        Self { raw: handle as sys::CUstream, id, owned: false }
    }

    /// The number of its device.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The driver's handle, for calls that have no method here. The stream keeps it.
    pub fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Waits, on the thread's own time slice, until all that was queued is done.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: a live stream.
        unsafe { result::stream::synchronize(self.raw) }.doing(self.id, "waiting for its stream")
    }

    /// Has all that is queued from now on wait for the event.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: a live stream and event.
        unsafe { result::stream::wait_event(self.raw, event.raw, CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT) }
            .doing(self.id, "making a stream wait")
    }

    /// Queues a copy of some of the bytes of `from` to the same place in `to`.
    ///
    /// # Safety
    /// Both hold them, live until the copy is done, and those of `from` are not written until then.
    pub unsafe fn upload(&self, from: &PinnedMemory, to: &DeviceMemory, bytes: Range<usize>) -> Result<(), CudaError> {
        let (to, from) = (to.address + bytes.start as u64, from.address.wrapping_add(bytes.start));
        // SAFETY: as above.
        unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes.len(), self.raw) }
            .result()
            .doing(self.id, "uploading a frame")
    }

    /// Queues a copy of some of the bytes of `from` to the same place in `to`.
    ///
    /// # Safety
    /// Both hold them, live until the copy is done, and those of `to` are not touched until then.
    pub unsafe fn download(
        &self,
        from: &DeviceMemory,
        to: &PinnedMemory,
        bytes: Range<usize>,
    ) -> Result<(), CudaError> {
        let (to, from) = (to.address.wrapping_add(bytes.start), from.address + bytes.start as u64);
        // SAFETY: as above.
        unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes.len(), self.raw) }
            .result()
            .doing(self.id, "downloading a frame")
    }

    /// Queues a copy of rows of so many bytes from the host: addresses and pitches of both sides.
    ///
    /// # Safety
    /// Both hold the rows, the host's in pinned memory, and live until the copy is done; the source is not written until
    /// then, nor the destination touched.
    pub unsafe fn upload_rows(
        &self,
        from: (*const u8, usize),
        to: (u64, usize),
        row_bytes: usize,
        rows: usize,
    ) -> Result<(), CudaError> {
        if from.1 == row_bytes && to.1 == row_bytes {
            // SAFETY: as above.
            return unsafe { sys::cuMemcpyHtoDAsync_v2(to.0, from.0.cast(), row_bytes * rows, self.raw) }
                .result()
                .doing(self.id, "uploading a frame");
        }
        let copy = sys::CUDA_MEMCPY2D {
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: from.0.cast(),
            srcPitch: from.1,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: to.0,
            dstPitch: to.1,
            ..rows_of(row_bytes, rows)
        };
        // SAFETY: as above.
        unsafe { sys::cuMemcpy2DAsync_v2(&copy, self.raw) }.result().doing(self.id, "uploading a frame")
    }

    /// The other way.
    ///
    /// # Safety
    /// As [`Stream::upload_rows`].
    pub unsafe fn download_rows(
        &self,
        from: (u64, usize),
        to: (*mut u8, usize),
        row_bytes: usize,
        rows: usize,
    ) -> Result<(), CudaError> {
        if from.1 == row_bytes && to.1 == row_bytes {
            // SAFETY: as above.
            return unsafe { sys::cuMemcpyDtoHAsync_v2(to.0.cast(), from.0, row_bytes * rows, self.raw) }
                .result()
                .doing(self.id, "downloading a frame");
        }
        let copy = sys::CUDA_MEMCPY2D {
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: from.0,
            srcPitch: from.1,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: to.0.cast(),
            dstPitch: to.1,
            ..rows_of(row_bytes, rows)
        };
        // SAFETY: as above.
        unsafe { sys::cuMemcpy2DAsync_v2(&copy, self.raw) }.result().doing(self.id, "downloading a frame")
    }

    /// Queues a copy of rows from one plane in device memory to another.
    ///
    /// # Safety
    /// Both hold the rows and live until the copy is done; the source is not written until then, nor the destination
    /// touched.
    pub unsafe fn copy_rows(&self, copy: &PlaneCopy) -> Result<(), CudaError> {
        let &PlaneCopy { src, dst, row_bytes, rows } = copy;
        if rows == 0 {
            return Ok(());
        }
        let copy = sys::CUDA_MEMCPY2D {
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: src.0,
            srcPitch: src.1,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: dst.0,
            dstPitch: dst.1,
            ..rows_of(row_bytes, rows)
        };
        // The manual lets a driver refuse device-to-device copies with pitches not from cuMemAllocPitch; none tested does.
        // SAFETY: the caller's planes hold these rows.
        unsafe { sys::cuMemcpy2DAsync_v2(&copy, self.raw) }.result().doing(self.id, "copying a plane")
    }

    /// Queues a launch.
    ///
    /// # Safety
    /// The function is of a loaded module and is the one that `launch` is made for; the planes it speaks of hold what
    /// it says and live until it is done.
    pub unsafe fn launch(&self, function: Function, launch: &Launch) -> Result<(), CudaError> {
        let parameter = match &launch.args {
            Args::Blur(args) => (&raw const *args).cast::<c_void>(),
            Args::Alpha(args) => (&raw const *args).cast(),
        };
        let mut parameters = [parameter.cast_mut()];
        // SAFETY: as above; the parameter is copied before this returns.
        unsafe {
            result::launch_kernel(
                function.0,
                (launch.blocks, 1, 1),
                (launch.threads, 1, 1),
                launch.shared_bytes,
                self.raw,
                &mut parameters,
            )
        }
        .doing(self.id, "launching a kernel")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: created by `new`. A failure has been told by the work that failed.
            let _ = unsafe { result::stream::destroy(self.raw) };
        }
    }
}

/// A copy of rows with nothing said of where.
fn rows_of(row_bytes: usize, rows: usize) -> sys::CUDA_MEMCPY2D {
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: ptr::null(),
        srcDevice: 0,
        srcArray: ptr::null_mut(),
        srcPitch: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: ptr::null_mut(),
        dstDevice: 0,
        dstArray: ptr::null_mut(),
        dstPitch: 0,
        WidthInBytes: row_bytes,
        Height: rows,
    }
}

/// Whether all of these bytes of the host are in one pinned allocation or registration, as the driver says: a copy over two
/// of them is an error, and what lies between them may be ordinary memory. A context is current.
pub fn is_pinned(address: *const u8, bytes: usize) -> bool {
    use sys::CUpointer_attribute as Attribute;
    let (mut kind, mut start, mut size) = (0_u32, 0_usize, 0_usize);
    let mut asked = [
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ];
    let mut answers =
        [(&raw mut kind).cast::<c_void>(), (&raw mut start).cast::<c_void>(), (&raw mut size).cast::<c_void>()];
    let count = asked.len() as u32;
    // The plural call answers for all addresses; the other has an error for those that CUDA does not know.
    // SAFETY: a place for each answer, of its type's size; the driver looks the address up and does not follow it.
    let answer =
        unsafe { sys::cuPointerGetAttributes(count, asked.as_mut_ptr(), answers.as_mut_ptr(), address as u64) };
    let is_host = answer.result().is_ok() && kind == sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32;
    let before = (address as usize).wrapping_sub(start);
    is_host && bytes > 0 && before < size && bytes <= size - before && !is_stale(start)
}

/// Start addresses of registrations that could not be ended before their memory was freed.
static STALE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn is_stale(start: usize) -> bool {
    STALE.lock().unwrap_or_else(PoisonError::into_inner).contains(&start)
}

/// A place in a stream, with the time it was reached.
#[derive(Debug)]
pub struct Event {
    raw: sys::CUevent,
    id: u32,
}

// SAFETY: the driver API may be called from any thread.
unsafe impl Send for Event {}

impl Event {
    /// On device `id`, whose context is current.
    pub fn new(id: u32) -> Result<Self, CudaError> {
        let raw = result::event::create(CUevent_flags::CU_EVENT_DEFAULT).doing(id, "creating an event")?;
        Ok(Self { raw, id })
    }

    /// Queues it.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: a live event and stream.
        unsafe { result::event::record(self.raw, stream.raw) }.doing(self.id, "recording an event")
    }

    /// Whether all before it is done.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        // SAFETY: a live event.
        match unsafe { result::event::query(self.raw) } {
            Err(DriverError(CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            result => result.doing(self.id, "blurring a frame").map(|()| true),
        }
    }

    /// Waits until all before it is done.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: a live event.
        unsafe { result::event::synchronize(self.raw) }.doing(self.id, "blurring a frame")
    }

    /// The time from `self` to a later event. Both are done.
    pub fn until(&self, later: &Self) -> Result<Duration, CudaError> {
        // SAFETY: live events.
        let milliseconds = unsafe { result::event::elapsed(self.raw, later.raw) }.doing(self.id, "reading a time")?;
        // NaN, infinite and negative values become 0.
        Ok(Duration::try_from_secs_f32(milliseconds / 1000.0).unwrap_or_default())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by `new`.
        let _ = unsafe { result::event::destroy(self.raw) };
    }
}

/// Memory of the device.
#[derive(Debug)]
pub struct DeviceMemory {
    address: u64,
    bytes: usize,
}

impl DeviceMemory {
    /// `bytes`, at least 1, with the stream's context current. All zero for what is queued on this stream from now on;
    /// the default stream, on which a plain clearing would go, is waited for by nobody here.
    pub fn new(bytes: usize, stream: &Stream) -> Result<Self, CudaError> {
        // SAFETY: the size is not 0.
        let address = allocated(unsafe { result::malloc_sync(bytes) }, Memory::Device, bytes, stream.id)?;
        let memory = Self { address, bytes };
        // SAFETY: its own size; freeing waits for it.
        unsafe { result::memset_d8_async(address, 0, bytes, stream.raw) }.doing(stream.id, "clearing memory")?;
        Ok(memory)
    }

    /// Its first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

/// Memory of the host that the device reads and writes by itself.
#[derive(Debug)]
pub struct PinnedMemory {
    address: *mut u8,
}

// SAFETY: plain memory.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    /// `bytes`, at least 1, with the context of device `id` current.
    pub fn new(bytes: usize, id: u32) -> Result<Self, CudaError> {
        // Flags 0: the CPU's caches hold it. Write-combined memory is slow to read.
        // SAFETY: the size is not 0.
        let address = allocated(unsafe { result::malloc_host(bytes, 0) }, Memory::PinnedHost, bytes, id)?;
        Ok(Self { address: address.cast() })
    }

    /// Its first byte.
    pub fn address(&self) -> *mut u8 {
        self.address
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`.
        let _ = unsafe { result::free_host(self.address.cast()) };
    }
}

/// Somebody else's memory of the host that the device reads and writes by itself while this is there.
#[derive(Debug)]
pub struct RegisteredMemory {
    address: usize,
}

impl RegisteredMemory {
    /// `bytes` from this address on, with the context of device `id` current. What cannot be registered, because of how it
    /// was mapped, how much there is or because part of it is registered already, is an error.
    ///
    /// # Safety
    /// The memory outlives this.
    pub unsafe fn new(address: usize, bytes: usize, id: u32) -> Result<Self, CudaError> {
        // SAFETY: as above.
        unsafe { sys::cuMemHostRegister_v2(address as *mut c_void, bytes, sys::CU_MEMHOSTREGISTER_PORTABLE) }
            .result()
            .doing(id, "registering memory")?;
        // The old registration is gone, or this call would have failed.
        STALE.lock().unwrap_or_else(PoisonError::into_inner).retain(|start| *start != address);
        Ok(Self { address })
    }

    /// Gives up a registration that cannot be ended. The system may later map other pages at its address, which the device
    /// does not know, so the range is never treated as pinned again.
    pub fn abandon(self) {
        STALE.lock().unwrap_or_else(PoisonError::into_inner).push(self.address);
        std::mem::forget(self);
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        // The same bytes may be in other memories too, and on their way from there.
        // SAFETY: the context is current.
        let _ = unsafe { sys::cuCtxSynchronize() };
        // SAFETY: registered by `new`.
        if unsafe { sys::cuMemHostUnregister(self.address as *mut c_void) }.result().is_err() {
            STALE.lock().unwrap_or_else(PoisonError::into_inner).push(self.address);
        }
    }
}

/// A kernel of a module, whose holder keeps it loaded while the kernel is used.
#[derive(Debug, Clone, Copy)]
pub struct Function(sys::CUfunction);

// SAFETY: the driver API may be called from any thread.
unsafe impl Send for Function {}
// SAFETY: likewise.
unsafe impl Sync for Function {}

impl Function {
    /// The driver's handle, for launches of other kernels than ours.
    pub fn raw(&self) -> sys::CUfunction {
        self.0
    }
}

/// A loaded image.
#[derive(Debug)]
pub struct Module {
    raw: sys::CUmodule,
    id: u32,
}

// SAFETY: the driver API may be called from any thread.
unsafe impl Send for Module {}
// SAFETY: likewise.
unsafe impl Sync for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded by `load`. Where the context is gone, so is the module.
        let _ = unsafe { result::module::unload(self.raw) };
    }
}

impl Module {
    /// Loads a CUBIN, or PTX with a NUL at its end, into the current context of device `id`.
    ///
    /// # Safety
    /// The image is whole: the driver believes it.
    pub unsafe fn load(image: &[u8], id: u32) -> Result<Self, CudaError> {
        // SAFETY: as above.
        let raw = unsafe { result::module::load_data(image.as_ptr().cast()) }.doing(id, "loading the kernels")?;
        Ok(Self { raw, id })
    }

    /// The kernel of this name, allowed to use up to `shared_bytes` of shared memory.
    pub fn function(&self, name: &str, shared_bytes: u32) -> Result<Function, CudaError> {
        let name = CString::new(name).expect("names of kernels have no NUL");
        // SAFETY: a loaded module; the attribute takes up to the device's own limit.
        unsafe {
            let raw = result::module::get_function(self.raw, name).doing(self.id, "looking for a kernel")?;
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            result::function::set_function_attribute(raw, most, shared_bytes.cast_signed())
                .doing(self.id, "reserving shared memory")?;
            Ok(Function(raw))
        }
    }
}
