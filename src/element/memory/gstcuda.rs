// SPDX-License-Identifier: MPL-2.0
//! libgstcuda, GStreamer's library for CUDA memory, as safe types: the context that elements share, streams, buffers in
//! CUDA memory and their pools.
//!
//! The library is opened at run time. Linking it would make the plugin depend on it and on the GL and display libraries
//! that it links. It is a separate library since GStreamer 1.22. Streams were added in 1.24; without them, every
//! frame is complete when it is pushed. `gst_cuda_allocator_alloc` changed its parameters between versions and is not
//! called; the functions of pools did not change.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use gst::glib;
use gst::glib::translate::{FromGlibPtrFull, FromGlibPtrNone};
use gst::prelude::*;

use crate::element::messages::log::CAT;
use crate::engine::{self, Engine, ExternalContext};
use crate::filter::plane::DevicePlane;
use crate::libraries::{System, functions, gstreamer_file, open_gstreamer};

/// The caps feature of frames in CUDA memory.
pub const CAPS_FEATURE: &str = "memory:CUDAMemory";
/// The type of the GstContext that holds a CUDA context.
pub const CONTEXT_TYPE: &str = "gst.cuda.context";
/// `GST_MAP_CUDA`: the mapped address is a device address.
pub const MAP_CUDA: gst::ffi::GstMapFlags = gst::ffi::GST_MAP_FLAG_LAST << 1;
/// `GST_CUDA_MEMORY_TRANSFER_NEED_SYNC`: work on the memory's stream is not complete.
const NEED_SYNC: u32 = gst::ffi::GST_MEMORY_FLAG_LAST << 2;

/// The public first fields of `GstCudaMemory`, the same in all versions.
#[repr(C)]
struct RawMemory {
    memory: gst::ffi::GstMemory,
    context: *mut gst::ffi::GstObject,
}

/// The public first fields of `GstCudaBufferPool`, the same in all versions.
#[repr(C)]
struct RawPool {
    pool: gst::ffi::GstBufferPool,
    context: *mut gst::ffi::GstObject,
}

/// A `GstCudaContext *` that is live for `'a`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct ContextRef<'a>(*mut gst::ffi::GstObject, PhantomData<&'a gst::Object>);

/// A `GstCudaStream *` that is live for `'a`.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct StreamRef<'a>(NonNull<gst::ffi::GstMiniObject>, PhantomData<&'a CudaStream>);

/// A `GstCudaMemory *` that is live for `'a`.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct MemoryRef<'a>(&'a gst::MemoryRef);

/// A pointer that a function of the library returns to a caller who then owns a reference: null, or an object of type `T`.
#[must_use]
#[repr(transparent)]
struct Returned<T, P>(*mut P, PhantomData<T>);

impl<T: FromGlibPtrFull<*mut P>, P: 'static> Returned<T, P> {
    fn object(self) -> Option<T> {
        // SAFETY: only functions of the library return this type, so the pointer is to an object of type `T`, and a
        // reference to it passes to the caller. The pointer is not used again, because `self` is consumed and cannot be
        // copied.
        (!self.0.is_null()).then(|| unsafe { T::from_glib_full(self.0) })
    }
}

functions! {
    /// The library's functions.
    struct Functions {
        safe [
            load_library() -> glib::ffi::gboolean = "gst_cuda_load_library";
            init_memory() = "gst_cuda_memory_init_once";
            is_cuda_memory(memory: &gst::MemoryRef) -> glib::ffi::gboolean = "gst_is_cuda_memory";
            context_get_handle(context: ContextRef<'_>) -> *mut c_void = "gst_cuda_context_get_handle";
            context_get_type() -> glib::Type = "gst_cuda_context_get_type";
            context_new_cuda_context(context: ContextRef<'_>) -> Returned<gst::Context, gst::ffi::GstContext>
                = "gst_context_new_cuda_context";
            pool_new(context: ContextRef<'_>) -> Returned<gst::BufferPool, gst::ffi::GstBufferPool>
                = "gst_cuda_buffer_pool_new";
            pool_get_type() -> glib::Type = "gst_cuda_buffer_pool_get_type";
        ]
        unsafe [
            /// # Safety
            /// `handle` is a CUcontext on `device` that outlives the object.
            context_new_wrapped(handle: *mut c_void, device: i32) -> Returned<gst::Object, gst::ffi::GstObject>
                = "gst_cuda_context_new_wrapped";
        ]
    }
}

functions! {
    /// The library's functions for streams.
    struct StreamFunctions {
        safe [
            stream_new(context: ContextRef<'_>) -> Option<CudaStream> = "gst_cuda_stream_new";
            stream_get_handle(stream: StreamRef<'_>) -> *mut c_void = "gst_cuda_stream_get_handle";
            /// The stream to which the memory holds a reference.
            memory_get_stream<'a>(memory: MemoryRef<'a>) -> Option<StreamRef<'a>> = "gst_cuda_memory_get_stream";
            config_get_stream(config: &gst::StructureRef) -> Option<CudaStream>
                = "gst_buffer_pool_config_get_cuda_stream";
            config_set_stream(config: &mut gst::StructureRef, stream: StreamRef<'_>)
                = "gst_buffer_pool_config_set_cuda_stream";
        ]
    }
}

struct Library {
    functions: Functions,
    /// `None` before GStreamer 1.24.
    streams: Option<StreamFunctions>,
}

impl Library {
    /// `None` if the driver or the library is not installed. Nothing is logged then, because the engine reports why CUDA is not
    /// available.
    fn open() -> Option<Result<Self, String>> {
        engine::load_driver().ok()?;
        open_gstreamer("cuda").map(Self::load)
    }

    fn load(library: &'static libloading::Library) -> Result<Self, String> {
        let name = gstreamer_file("cuda");
        let lacks = |function: &str| format!("{name} has no function {function}");
        let functions = Functions::load(library).map_err(lacks)?;
        // It needs more functions of the driver than the engine, and ends the process when it creates a context without them.
        if functions.load_library() == glib::ffi::GFALSE {
            return Err(format!("{name} does not find all that it needs in {}", System::CURRENT.driver));
        }
        functions.init_memory();
        let has_streams = gst::version() >= (1, 24, 0, 0);
        let streams = has_streams.then(|| StreamFunctions::load(library)).transpose().map_err(lacks)?;
        Ok(Self { functions, streams })
    }

    /// The library or why it cannot be used, from the first call; `None` if it or the driver is not installed.
    fn opened() -> Option<&'static Result<Self, String>> {
        static LIBRARY: LazyLock<Option<Result<Library, String>>> = LazyLock::new(Library::open);
        LIBRARY.as_ref()
    }

    /// The library; `None` if it or the driver is not installed, or lacks a function.
    fn get() -> Option<&'static Self> {
        Self::opened()?.as_ref().ok()
    }
}

/// Logs once per process why an installed libgstcuda is not used. This is not logged where the library is opened, because GStreamer
/// is initialising the element's class then, and a log function that waits for a thread that needs the class would wait for ever.
pub fn warn_if_unusable() {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if let Some(Err(why)) = Library::opened()
        && !WARNED.swap(true, Ordering::Relaxed)
    {
        gst::warning!(CAT, "{why}, so CUDA memory is not used");
    }
}

/// Whether libgstcuda and the NVIDIA driver are installed, so that frames can be in CUDA memory.
pub fn is_available() -> bool {
    Library::get().is_some()
}

/// The minor version of GStreamer since which libgstcuda has CUDA memory for frames of this format; `None` if no version
/// has.
pub fn format_since(format: &str) -> Option<u32> {
    /// Formats by the minor version of GStreamer that added them.
    const SINCE: [(u32, &str); 4] = [
        (
            22,
            "ABGR ARGB BGR BGR10A2_LE BGRA BGRP BGRx GBR GBRA I420 I420_10LE I422_10LE I422_12LE NV12 NV21 P010_10LE \
            P016_LE RGB RGB10A2_LE RGBA RGBP RGBx UYVY Y42B Y444 Y444_16LE YUY2 YV12",
        ),
        (24, "GBR_10LE GBR_12LE GBR_16LE I420_12LE P012_LE Y444_10LE Y444_12LE"),
        (26, "VUYA"),
        (28, "ARGB64"),
    ];
    let has_format = |names: &str| names.split(' ').any(|name| name == format);
    SINCE.iter().find(|(_, names)| has_format(names)).map(|(since, _)| *since)
}

/// Whether the running version of libgstcuda has CUDA memory for frames of this format.
pub fn supports_format(format: &str) -> bool {
    format_since(format).is_some_and(|since| gst::version().1 >= since)
}

/// A CUDA context that the elements of a pipeline share: `GstCudaContext`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaContext(gst::Object);

impl CudaContext {
    /// The engine's context, for sharing it with the pipeline. The engine must have been opened by device, so that its
    /// context is the device's primary context. `None` on the CPU, or without libgstcuda.
    pub fn of_engine(engine: &Engine) -> Option<Self> {
        let (handle, device) = engine.context()?;
        let functions = &Library::get()?.functions;
        // SAFETY: `handle` is the live CUcontext of the engine, on `device`. It outlives the object returned, because
        // the engine's reference to a primary context is never released before the process ends.
        let context = unsafe { functions.context_new_wrapped(handle as *mut c_void, device.cast_signed()) };
        context.object().map(Self)
    }

    /// The CUDA context that a GstContext holds, if it holds one.
    pub fn from_shared(context: &gst::Context) -> Option<Self> {
        if context.context_type() != CONTEXT_TYPE {
            return None;
        }
        context.structure().get::<gst::Object>(CONTEXT_TYPE).ok().and_then(Self::from_object)
    }

    fn from_object(object: gst::Object) -> Option<Self> {
        object.type_().is_a(Library::get()?.functions.context_get_type()).then_some(Self(object))
    }

    /// A GstContext that holds it.
    pub fn to_shared(&self) -> Option<gst::Context> {
        Library::get()?.functions.context_new_cuda_context(self.raw()).object()
    }

    fn raw(&self) -> ContextRef<'_> {
        ContextRef(self.0.as_ptr(), PhantomData)
    }

    /// The index of its device.
    pub fn device(&self) -> u32 {
        self.0.property("cuda-device-id")
    }

    /// The context as an engine takes it.
    pub fn for_engine(&self) -> ExternalContext {
        let handle = Library::get().map_or(0, |library| library.functions.context_get_handle(self.raw()) as usize);
        // SAFETY: the handle is the CUcontext of this GstCudaContext, on the device that its property names. The
        // GstCudaContext keeps it alive, and the clone keeps the GstCudaContext alive.
        unsafe { ExternalContext::new(handle, self.device(), Arc::new(self.clone())) }
    }

    /// A new pool of video frames in CUDA memory of this context, not configured yet.
    pub fn new_pool(&self) -> Option<gst::BufferPool> {
        Library::get()?.functions.pool_new(self.raw()).object()
    }

    /// Whether this is a pool of CUDA memory of this context.
    pub fn owns_pool(&self, pool: &gst::BufferPool) -> bool {
        let Some(library) = Library::get() else { return false };
        // SAFETY: the pool is a live GstCudaBufferPool, which begins with the fields of `RawPool`. The context is set
        // when the pool is created and does not change.
        let context = || unsafe { (*pool.as_ptr().cast::<RawPool>()).context };
        pool.type_().is_a(library.functions.pool_get_type()) && context() == self.0.as_ptr()
    }

    /// A new stream of this context; `None` before GStreamer 1.24.
    pub fn new_stream(&self) -> Option<CudaStream> {
        Library::get()?.streams.as_ref()?.stream_new(self.raw())
    }
}

/// A stream that orders the work on frames: `GstCudaStream`. It owns a reference.
#[derive(Debug)]
#[repr(transparent)]
pub struct CudaStream(NonNull<gst::ffi::GstMiniObject>);

// SAFETY: GstCudaStream is immutable after it is created, its references are counted atomically, and the driver accepts
// a CUstream on any thread.
unsafe impl Send for CudaStream {}

impl CudaStream {
    /// The stream that a pool's configuration names.
    pub fn from_pool_config(config: &gst::BufferPoolConfigRef) -> Option<Self> {
        Library::get()?.streams.as_ref()?.config_get_stream(config.as_ref())
    }

    /// Names this stream in a pool's configuration.
    pub fn write_to_pool_config(&self, config: &mut gst::BufferPoolConfigRef) {
        if let Some(streams) = Library::get().and_then(|library| library.streams.as_ref()) {
            streams.config_set_stream(config.as_mut(), StreamRef(self.0, PhantomData));
        }
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        // SAFETY: `self` owns one reference, which is released here and nowhere else.
        unsafe { gst::ffi::gst_mini_object_unref(self.0.as_ptr()) };
    }
}

/// The memory of a buffer in CUDA memory: `GstCudaMemory`.
pub struct CudaMemory<'a> {
    memory: MemoryRef<'a>,
    buffer: &'a gst::BufferRef,
    library: &'static Library,
}

impl<'a> CudaMemory<'a> {
    /// The memory of this buffer, if it is one piece of CUDA memory.
    pub fn in_buffer(buffer: &'a gst::BufferRef) -> Option<Self> {
        let library = Library::get()?;
        if buffer.n_memory() != 1 {
            return None;
        }
        let memory = buffer.peek_memory(0);
        let is_cuda = library.functions.is_cuda_memory(memory) != glib::ffi::GFALSE;
        is_cuda.then_some(Self { memory: MemoryRef(memory), buffer, library })
    }

    fn raw_context(&self) -> ContextRef<'a> {
        // SAFETY: a live GstCudaMemory begins with the fields of `RawMemory`. Its context is set when it is allocated, does not
        // change, and is a GstCudaContext to which the memory holds a reference.
        ContextRef(unsafe { (*self.memory.0.as_ptr().cast::<RawMemory>()).context }, PhantomData)
    }

    /// The context that it was allocated in.
    pub fn context(&self) -> Option<CudaContext> {
        // SAFETY: the pointer is to a live GObject, to which this adds a reference.
        CudaContext::from_object(unsafe { gst::Object::from_glib_none(self.raw_context().0) })
    }

    /// The driver's handle of the context that it was allocated in.
    pub fn context_handle(&self) -> usize {
        self.library.functions.context_get_handle(self.raw_context()) as usize
    }

    /// Maps it on the device; `None` if it cannot be mapped for this access, which is GST_MAP_READ, GST_MAP_WRITE or
    /// both.
    pub fn map(&self, access: gst::ffi::GstMapFlags) -> Option<DeviceMapping> {
        let memory = self.buffer.memory(0)?;
        let mut info = MaybeUninit::uninit();
        // SAFETY: `memory` is a live GstMemory and `info` is writable.
        let mapped = unsafe { gst::ffi::gst_memory_map(memory.as_mut_ptr(), info.as_mut_ptr(), access | MAP_CUDA) };
        // SAFETY: the function returned true, so that it has set all fields.
        (mapped != glib::ffi::GFALSE).then(|| DeviceMapping { info: unsafe { info.assume_init() }, memory })
    }

    /// The driver's handle (`CUstream`) of the stream that orders the work on it. The memory holds a reference to the
    /// stream.
    pub fn stream_handle(&self) -> Option<usize> {
        let streams = self.library.streams.as_ref()?;
        Some(streams.stream_get_handle(streams.memory_get_stream(self.memory)?) as usize)
    }

    /// Sets whether work on it is still queued on its stream, so that whoever accesses it from elsewhere waits for the
    /// stream.
    ///
    /// # Safety
    /// No other thread accesses the memory's flags.
    pub unsafe fn set_needs_sync(&self, needs_sync: bool) {
        if self.library.streams.is_none() {
            return;
        }
        // SAFETY: the memory is a live GstMemory, which begins with a GstMiniObject. Its flags are not accessed by any other
        // thread, as the caller guarantees, and no other reference to them exists during this call.
        let flags = unsafe { &mut (*self.memory.0.as_ptr().cast_mut()).mini_object.flags };
        *flags = if needs_sync { *flags | NEED_SYNC } else { *flags & !NEED_SYNC };
    }
}

/// CUDA memory that is mapped on the device until this is dropped.
pub struct DeviceMapping {
    info: gst::ffi::GstMapInfo,
    memory: gst::Memory,
}

impl DeviceMapping {
    /// The mapped bytes, as one row.
    pub fn bytes(&self) -> DevicePlane {
        DevicePlane { address: self.info.data as u64, pitch: self.info.size, len: self.info.size }
    }
}

impl Drop for DeviceMapping {
    fn drop(&mut self) {
        // SAFETY: `CudaMemory::map` mapped the memory, which is unmapped here and nowhere else.
        unsafe { gst::ffi::gst_memory_unmap(self.memory.as_mut_ptr(), &mut self.info) };
    }
}
