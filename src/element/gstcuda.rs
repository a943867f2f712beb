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
use std::sync::{Arc, LazyLock};

use gst::glib;
use gst::glib::translate::{FromGlib, FromGlibPtrFull, FromGlibPtrNone, ToGlibPtr};
use gst::prelude::*;

use crate::engine::{self, Engine, ExternalContext};
use crate::filter::frame::DeviceBytes;
use crate::libraries::System;

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

/// `GstCudaContext *`.
type RawContext = *mut gst::ffi::GstObject;
/// `GstCudaStream *`.
type RawStream = *mut gst::ffi::GstMiniObject;

/// The library's functions. Those without parameters are safe to call; the others need valid pointers of the C types.
struct Library {
    is_cuda_memory: unsafe extern "C" fn(*mut gst::ffi::GstMemory) -> glib::ffi::gboolean,
    context_new_wrapped: unsafe extern "C" fn(*mut c_void, i32) -> RawContext,
    context_get_handle: unsafe extern "C" fn(RawContext) -> *mut c_void,
    context_get_type: extern "C" fn() -> glib::ffi::GType,
    context_new_cuda_context: unsafe extern "C" fn(RawContext) -> *mut gst::ffi::GstContext,
    pool_new: unsafe extern "C" fn(RawContext) -> *mut gst::ffi::GstBufferPool,
    pool_get_type: extern "C" fn() -> glib::ffi::GType,
    /// `None` before GStreamer 1.24.
    streams: Option<StreamFunctions>,
}

/// The library's functions for streams.
struct StreamFunctions {
    new: unsafe extern "C" fn(RawContext) -> RawStream,
    get_handle: unsafe extern "C" fn(RawStream) -> *mut c_void,
    memory_get_stream: unsafe extern "C" fn(*mut gst::ffi::GstMemory) -> RawStream,
    config_get_stream: unsafe extern "C" fn(*mut gst::ffi::GstStructure) -> RawStream,
    config_set_stream: unsafe extern "C" fn(*mut gst::ffi::GstStructure, RawStream),
}

impl Library {
    fn open() -> Option<Self> {
        // Without a driver, the library ends the process when it creates a context.
        if !engine::has_driver() {
            return None;
        }
        // SAFETY: the initialisers of libgstcuda and of the libraries that it links only register data of their own.
        let library = unsafe { libloading::Library::new(System::CURRENT.gstreamer("cuda")) }.ok()?;
        // Leaked, because GObject types that the library registers point into it.
        let library: &libloading::Library = Box::leak(Box::new(library));
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the variable that this is assigned to has the type of the function of this name in the
                // library's headers, in all versions since 1.22. The library is never unloaded, so the address stays
                // valid.
                *unsafe { library.get($name) }.ok()?
            };
        }
        let load: extern "C" fn() -> glib::ffi::gboolean = symbol!(b"gst_cuda_load_library\0");
        let init_memory: extern "C" fn() = symbol!(b"gst_cuda_memory_init_once\0");
        if load() == glib::ffi::GFALSE {
            return None;
        }
        init_memory();
        let streams = || {
            Some(StreamFunctions {
                new: symbol!(b"gst_cuda_stream_new\0"),
                get_handle: symbol!(b"gst_cuda_stream_get_handle\0"),
                memory_get_stream: symbol!(b"gst_cuda_memory_get_stream\0"),
                config_get_stream: symbol!(b"gst_buffer_pool_config_get_cuda_stream\0"),
                config_set_stream: symbol!(b"gst_buffer_pool_config_set_cuda_stream\0"),
            })
        };
        Some(Self {
            is_cuda_memory: symbol!(b"gst_is_cuda_memory\0"),
            context_new_wrapped: symbol!(b"gst_cuda_context_new_wrapped\0"),
            context_get_handle: symbol!(b"gst_cuda_context_get_handle\0"),
            context_get_type: symbol!(b"gst_cuda_context_get_type\0"),
            context_new_cuda_context: symbol!(b"gst_context_new_cuda_context\0"),
            pool_new: symbol!(b"gst_cuda_buffer_pool_new\0"),
            pool_get_type: symbol!(b"gst_cuda_buffer_pool_get_type\0"),
            streams: streams(),
        })
    }

    /// The library, opened by the first call; `None` if it or the driver is not installed.
    fn get() -> Option<&'static Self> {
        static LIBRARY: LazyLock<Option<Library>> = LazyLock::new(Library::open);
        LIBRARY.as_ref()
    }
}

/// Whether `object` is an instance of the type that `get_type` returns.
fn is_instance(object: &impl IsA<glib::Object>, get_type: extern "C" fn() -> glib::ffi::GType) -> bool {
    // SAFETY: `get_type` is a `_get_type` function of the library, which registers the type and returns its valid
    // GType.
    let expected: glib::Type = unsafe { glib::Type::from_glib(get_type()) };
    object.type_().is_a(expected)
}

/// Whether libgstcuda and the NVIDIA driver are installed, so that frames can be in CUDA memory.
pub fn is_available() -> bool {
    Library::get().is_some()
}

/// The minor version of GStreamer since which libgstcuda has CUDA memory for frames of this format; `None` if no version
/// has.
pub fn format_since(format: &str) -> Option<u32> {
    /// Formats by the minor version of GStreamer that added them.
    const SINCE: [(u32, &[&str]); 4] = [
        (
            22,
            &[
                "ABGR",
                "ARGB",
                "BGR",
                "BGR10A2_LE",
                "BGRA",
                "BGRP",
                "BGRx",
                "GBR",
                "GBRA",
                "I420",
                "I420_10LE",
                "I422_10LE",
                "I422_12LE",
                "NV12",
                "NV21",
                "P010_10LE",
                "P016_LE",
                "RGB",
                "RGB10A2_LE",
                "RGBA",
                "RGBP",
                "RGBx",
                "UYVY",
                "Y42B",
                "Y444",
                "Y444_16LE",
                "YUY2",
                "YV12",
            ],
        ),
        (24, &["GBR_10LE", "GBR_12LE", "GBR_16LE", "I420_12LE", "P012_LE", "Y444_10LE", "Y444_12LE"]),
        (26, &["VUYA"]),
        (28, &["ARGB64"]),
    ];
    SINCE.iter().find(|(_, names)| names.contains(&format)).map(|(since, _)| *since)
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
        let library = Library::get()?;
        // SAFETY: `handle` is the live CUcontext of the engine, on `device`. It outlives the object returned, because
        // the engine's reference to a primary context is never released before the process ends.
        let raw = unsafe { (library.context_new_wrapped)(handle as *mut c_void, device.cast_signed()) };
        // SAFETY: the function returns null, or a new GstCudaContext whose only reference passes to the caller.
        (!raw.is_null()).then(|| Self(unsafe { gst::Object::from_glib_full(raw) }))
    }

    /// The CUDA context that a GstContext holds, if it holds one.
    pub fn from_shared(context: &gst::Context) -> Option<Self> {
        if context.context_type() != CONTEXT_TYPE {
            return None;
        }
        context.structure().get::<gst::Object>(CONTEXT_TYPE).ok().and_then(Self::from_object)
    }

    fn from_object(object: gst::Object) -> Option<Self> {
        is_instance(&object, Library::get()?.context_get_type).then_some(Self(object))
    }

    /// A GstContext that holds it.
    pub fn to_shared(&self) -> Option<gst::Context> {
        // SAFETY: `raw` is a live GstCudaContext, to which the new GstContext adds a reference.
        let shared = unsafe { (Library::get()?.context_new_cuda_context)(self.raw()) };
        // SAFETY: the function returns a new GstContext whose only reference passes to the caller.
        Some(unsafe { gst::Context::from_glib_full(shared) })
    }

    /// A live GstCudaContext while `self` is borrowed: `self.0` is an instance of that type and holds a reference.
    fn raw(&self) -> RawContext {
        self.0.to_glib_none().0
    }

    /// The driver's handle, `CUcontext`.
    pub fn handle(&self) -> usize {
        // SAFETY: `raw` is a live GstCudaContext, of which the function reads the handle.
        Library::get().map_or(0, |library| unsafe { (library.context_get_handle)(self.raw()) } as usize)
    }

    /// The index of its device.
    pub fn device(&self) -> u32 {
        self.0.property("cuda-device-id")
    }

    /// The context as an engine takes it.
    pub fn for_engine(&self) -> ExternalContext {
        // SAFETY: the handle is the CUcontext of this GstCudaContext, on the device that its property names. The
        // GstCudaContext keeps it alive, and the clone keeps the GstCudaContext alive.
        unsafe { ExternalContext::new(self.handle(), self.device(), Arc::new(self.clone())) }
    }

    /// A new pool of video frames in CUDA memory of this context, not configured yet.
    pub fn new_pool(&self) -> Option<gst::BufferPool> {
        // SAFETY: `raw` is a live GstCudaContext, to which the pool adds a reference.
        let pool = unsafe { (Library::get()?.pool_new)(self.raw()) };
        // SAFETY: the function returns null, or a new pool whose only reference passes to the caller.
        (!pool.is_null()).then(|| unsafe { gst::BufferPool::from_glib_full(pool) })
    }

    /// Whether this is a pool of CUDA memory of this context.
    pub fn owns_pool(&self, pool: &gst::BufferPool) -> bool {
        let Some(library) = Library::get() else { return false };
        if !is_instance(pool, library.pool_get_type) {
            return false;
        }
        let raw: *mut gst::ffi::GstBufferPool = pool.to_glib_none().0;
        // SAFETY: the pool is a live GstCudaBufferPool, which begins with the fields of `RawPool`. The context is set
        // when the pool is created and does not change.
        unsafe { (*raw.cast::<RawPool>()).context == self.raw() }
    }

    /// A new stream of this context; `None` before GStreamer 1.24.
    pub fn new_stream(&self) -> Option<CudaStream> {
        let streams = Library::get()?.streams.as_ref()?;
        // SAFETY: `raw` is a live GstCudaContext, to which the stream adds a reference. The function returns null, or a
        // new GstCudaStream whose only reference passes to the caller.
        unsafe { CudaStream::from_full((streams.new)(self.raw())) }
    }
}

/// A stream that orders the work on frames: `GstCudaStream`.
#[derive(Debug)]
pub struct CudaStream(NonNull<gst::ffi::GstMiniObject>);

// SAFETY: GstCudaStream is immutable after it is created, its references are counted atomically, and the driver accepts
// a CUstream on any thread.
unsafe impl Send for CudaStream {}

impl CudaStream {
    /// Takes over a reference.
    ///
    /// # Safety
    /// `raw` is null, or a GstCudaStream of which the caller owns a reference.
    unsafe fn from_full(raw: RawStream) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    /// The stream that a pool's configuration names.
    pub fn from_pool_config(config: &gst::BufferPoolConfigRef) -> Option<Self> {
        let streams = Library::get()?.streams.as_ref()?;
        let config: &gst::StructureRef = config.as_ref();
        // SAFETY: `config` is a live GstStructure, which the function only reads. It returns null, or a GstCudaStream
        // with a reference for the caller.
        unsafe { Self::from_full((streams.config_get_stream)(config.as_ptr().cast_mut())) }
    }

    /// Names this stream in a pool's configuration.
    pub fn write_to_pool_config(&self, config: &mut gst::BufferPoolConfigRef) {
        if let Some(streams) = Library::get().and_then(|library| library.streams.as_ref()) {
            let config: &mut gst::StructureRef = config.as_mut();
            // SAFETY: `config` is a live GstStructure that is borrowed mutably. `self` holds a reference to the
            // GstCudaStream, to which the configuration adds its own.
            unsafe { (streams.config_set_stream)(config.as_mut_ptr(), self.0.as_ptr()) };
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
    /// A live GstCudaMemory for as long as the buffer is borrowed.
    raw: *mut gst::ffi::GstMemory,
    library: &'static Library,
    _buffer: PhantomData<&'a gst::BufferRef>,
}

impl<'a> CudaMemory<'a> {
    /// The memory of this buffer, if it is one piece of CUDA memory.
    pub fn in_buffer(buffer: &'a gst::BufferRef) -> Option<Self> {
        let library = Library::get()?;
        if buffer.n_memory() != 1 {
            return None;
        }
        // SAFETY: the buffer is live, because it is borrowed, and has a memory of index 0.
        let raw = unsafe { gst::ffi::gst_buffer_peek_memory(buffer.as_ptr().cast_mut(), 0) };
        // SAFETY: `raw` is a live GstMemory, because the buffer that holds it is borrowed.
        let is_cuda = unsafe { (library.is_cuda_memory)(raw) } != glib::ffi::GFALSE;
        is_cuda.then_some(Self { raw, library, _buffer: PhantomData })
    }

    /// The context that it was allocated in.
    pub fn context(&self) -> Option<CudaContext> {
        // SAFETY: `raw` is a live GstCudaMemory, which begins with the fields of `RawMemory`. Its context is set when
        // it is allocated, does not change, and is a GObject to which the memory holds a reference; this adds one.
        let object = unsafe { gst::Object::from_glib_none((*self.raw.cast::<RawMemory>()).context) };
        CudaContext::from_object(object)
    }

    /// The driver's handle of the context that it was allocated in.
    pub fn context_handle(&self) -> usize {
        // SAFETY: `raw` is a live GstCudaMemory, which begins with the fields of `RawMemory`. Its context is a live
        // GstCudaContext, of which the function reads the handle.
        unsafe { (self.library.context_get_handle)((*self.raw.cast::<RawMemory>()).context) as usize }
    }

    /// Maps it on the device; `None` if it cannot be mapped for this access, which is GST_MAP_READ, GST_MAP_WRITE or
    /// both.
    pub fn map(&self, access: gst::ffi::GstMapFlags) -> Option<DeviceMapping> {
        let mut info = MaybeUninit::uninit();
        // SAFETY: `raw` is a live GstMemory and `info` is writable.
        let mapped = unsafe { gst::ffi::gst_memory_map(self.raw, info.as_mut_ptr(), access | MAP_CUDA) };
        if mapped == glib::ffi::GFALSE {
            return None;
        }
        // SAFETY: the function returned true, so that it has set all fields. The reference keeps the memory alive until
        // the mapping ends.
        unsafe {
            gst::ffi::gst_mini_object_ref(self.raw.cast());
            Some(DeviceMapping(info.assume_init()))
        }
    }

    /// The driver's handle (`CUstream`) of the stream that orders the work on it. The memory holds a reference to the
    /// stream.
    pub fn stream_handle(&self) -> Option<usize> {
        let streams = self.library.streams.as_ref()?;
        // SAFETY: `raw` is a live GstCudaMemory. The function returns null, or its GstCudaStream without a reference.
        let stream = NonNull::new(unsafe { (streams.memory_get_stream)(self.raw) })?;
        // SAFETY: `stream` is a live GstCudaStream, to which the memory holds a reference while it is borrowed.
        Some(unsafe { (streams.get_handle)(stream.as_ptr()) } as usize)
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
        // SAFETY: `raw` is a live GstMemory, which begins with a GstMiniObject. Its flags are not accessed by any other
        // thread, as the caller guarantees, and no other reference to them exists during this call.
        let flags = unsafe { &mut (*self.raw).mini_object.flags };
        *flags = if needs_sync { *flags | NEED_SYNC } else { *flags & !NEED_SYNC };
    }
}

/// CUDA memory that is mapped on the device until this is dropped. It holds a reference to the memory.
pub struct DeviceMapping(gst::ffi::GstMapInfo);

impl DeviceMapping {
    /// Address and length of the mapped bytes.
    pub fn bytes(&self) -> DeviceBytes {
        DeviceBytes { address: self.0.data as u64, len: self.0.size }
    }
}

impl Drop for DeviceMapping {
    fn drop(&mut self) {
        // SAFETY: `CudaMemory::map` mapped the memory and added a reference, which are given back here and nowhere else.
        unsafe {
            let memory = self.0.memory;
            gst::ffi::gst_memory_unmap(memory, &mut self.0);
            gst::ffi::gst_mini_object_unref(memory.cast());
        }
    }
}
