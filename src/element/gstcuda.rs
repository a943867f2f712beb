// SPDX-License-Identifier: MPL-2.0
//! GStreamer's own CUDA library, opened when it is there: contexts that elements share, frames in CUDA memory and pools of
//! them. The rest of the element sees the safe types here.
//!
//! It is not linked, because it brings GL and display servers with it, and because the element works without it. It is one
//! library from GStreamer 1.22 on; streams came with 1.24, and where they are missing every frame is done when it is handed
//! on. `gst_cuda_allocator_alloc` changed its arguments and is not called; pools do not differ.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock};

use gst::glib;
use gst::glib::translate::{FromGlibPtrFull, ToGlibPtr};
use gst::prelude::*;

use crate::engine::{self, Foreign};

/// What caps say of frames in CUDA memory.
pub const CAPS_FEATURE: &str = "memory:CUDAMemory";
/// The type of contexts that are shared.
pub const CONTEXT_TYPE: &str = "gst.cuda.context";
/// `GST_MAP_CUDA`: a mapping's address is the device's.
pub const MAP_CUDA: gst::ffi::GstMapFlags = gst::ffi::GST_MAP_FLAG_LAST << 1;
/// `GST_CUDA_MEMORY_TRANSFER_NEED_SYNC`: the memory's stream is still at work on it.
const NEED_SYNC: u32 = gst::ffi::GST_MEMORY_FLAG_LAST << 2;

/// What the library is called, and then is called again in every version.
const LIBRARY: &str = if cfg!(windows) { "gstcuda-1.0-0.dll" } else { "libgstcuda-1.0.so.0" };

/// `GstCudaMemory`, as far as anybody may look at it.
#[repr(C)]
struct RawMemory {
    memory: gst::ffi::GstMemory,
    context: *mut gst::ffi::GstObject,
}

/// `GstCudaBufferPool`, likewise.
#[repr(C)]
struct RawPool {
    pool: gst::ffi::GstBufferPool,
    context: *mut gst::ffi::GstObject,
}

type RawContext = *mut gst::ffi::GstObject;
type RawStream = *mut gst::ffi::GstMiniObject;

/// The library's functions.
struct Library {
    is_cuda_memory: unsafe extern "C" fn(*mut gst::ffi::GstMemory) -> glib::ffi::gboolean,
    context_new_wrapped: unsafe extern "C" fn(*mut c_void, i32) -> RawContext,
    context_get_handle: unsafe extern "C" fn(RawContext) -> *mut c_void,
    context_get_type: unsafe extern "C" fn() -> glib::ffi::GType,
    context_new_cuda_context: unsafe extern "C" fn(RawContext) -> *mut gst::ffi::GstContext,
    pool_new: unsafe extern "C" fn(RawContext) -> *mut gst::ffi::GstBufferPool,
    pool_get_type: unsafe extern "C" fn() -> glib::ffi::GType,
    streams: Option<Streams>,
}

/// Since 1.24.
struct Streams {
    new: unsafe extern "C" fn(RawContext) -> RawStream,
    get_handle: unsafe extern "C" fn(RawStream) -> *mut c_void,
    of_memory: unsafe extern "C" fn(*mut gst::ffi::GstMemory) -> RawStream,
    of_config: unsafe extern "C" fn(*mut gst::ffi::GstStructure) -> RawStream,
    to_config: unsafe extern "C" fn(*mut gst::ffi::GstStructure, RawStream),
}

/// Opened once, on first need, and kept.
static LIBRARY_IN_USE: LazyLock<Option<Library>> = LazyLock::new(Library::open);

impl Library {
    fn open() -> Option<Self> {
        // Without a driver it ends the process when it is asked for a context.
        if !engine::has_driver() {
            return None;
        }
        // SAFETY: its initialisers register types.
        let library = unsafe { libloading::Library::new(LIBRARY) }.ok()?;
        // Types that it registers point into it.
        let library: &libloading::Library = Box::leak(Box::new(library));
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: of the type that the library's headers give it.
                *unsafe { library.get($name) }.ok()?
            };
        }
        let load: unsafe extern "C" fn() -> glib::ffi::gboolean = symbol!(b"gst_cuda_load_library\0");
        let init_memory: unsafe extern "C" fn() = symbol!(b"gst_cuda_memory_init_once\0");
        // SAFETY: as declared in its headers.
        unsafe {
            if load() == glib::ffi::GFALSE {
                return None;
            }
            init_memory();
        }
        let streams = || {
            Some(Streams {
                new: symbol!(b"gst_cuda_stream_new\0"),
                get_handle: symbol!(b"gst_cuda_stream_get_handle\0"),
                of_memory: symbol!(b"gst_cuda_memory_get_stream\0"),
                of_config: symbol!(b"gst_buffer_pool_config_get_cuda_stream\0"),
                to_config: symbol!(b"gst_buffer_pool_config_set_cuda_stream\0"),
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
}

fn library() -> Option<&'static Library> {
    LIBRARY_IN_USE.as_ref()
}

/// Whether frames can be in CUDA memory on this machine.
pub fn is_here() -> bool {
    library().is_some()
}

/// The formats that the library has memory for, by the version of GStreamer that it is of.
pub fn takes(format: gst_video::VideoFormat) -> bool {
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
    let (_, minor, ..) = gst::version();
    SINCE.iter().any(|(since, names)| minor >= *since && names.contains(&format.to_str().as_str()))
}

/// A context that the elements of a pipeline share: `GstCudaContext`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context(gst::Object);

impl Context {
    /// Of a driver's context on this device, which stays for good.
    pub fn wrap(handle: usize, id: u32) -> Option<Self> {
        let library = library()?;
        // SAFETY: as declared in its headers; a new object, or none.
        let raw = unsafe { (library.context_new_wrapped)(handle as *mut c_void, id.cast_signed()) };
        // SAFETY: as above.
        (!raw.is_null()).then(|| Self(unsafe { gst::Object::from_glib_full(raw) }))
    }

    /// What somebody shares, if it is such a context.
    pub fn shared(context: &gst::Context) -> Option<Self> {
        if context.context_type() != CONTEXT_TYPE {
            return None;
        }
        context.structure().get::<gst::Object>(CONTEXT_TYPE).ok().and_then(Self::of)
    }

    fn of(object: gst::Object) -> Option<Self> {
        // SAFETY: as declared in its headers.
        let kind = unsafe { (library()?.context_get_type)() };
        // SAFETY: the library's own type.
        let kind: glib::Type = unsafe { glib::translate::from_glib(kind) };
        object.type_().is_a(kind).then_some(Self(object))
    }

    /// For sharing it.
    pub fn to_shared(&self) -> Option<gst::Context> {
        // SAFETY: as declared in its headers; the object is of its type.
        let raw = unsafe { (library()?.context_new_cuda_context)(self.raw()) };
        // SAFETY: a new one of our own.
        Some(unsafe { gst::Context::from_glib_full(raw) })
    }

    fn raw(&self) -> RawContext {
        self.0.to_glib_none().0
    }

    /// The driver's handle.
    pub fn handle(&self) -> usize {
        // SAFETY: as declared in its headers; the object is of its type.
        library().map_or(0, |library| unsafe { (library.context_get_handle)(self.raw()) } as usize)
    }

    /// The number of its device.
    pub fn device(&self) -> u32 {
        self.0.property("cuda-device-id")
    }

    /// For an engine in it.
    pub fn for_engine(&self) -> Foreign {
        Foreign { context: self.handle(), id: self.device(), keep: Arc::new(self.clone()) }
    }

    /// A pool of frames in it, not configured yet.
    pub fn pool(&self) -> Option<gst::BufferPool> {
        // SAFETY: as declared in its headers; the object is of its type.
        let raw = unsafe { (library()?.pool_new)(self.raw()) };
        // SAFETY: a new one of our own.
        (!raw.is_null()).then(|| unsafe { gst::BufferPool::from_glib_full(raw) })
    }

    /// Whether this is a pool of frames in it.
    pub fn owns(&self, pool: &gst::BufferPool) -> bool {
        let Some(library) = library() else { return false };
        // SAFETY: the library's own type.
        let kind: glib::Type = unsafe { glib::translate::from_glib((library.pool_get_type)()) };
        let raw: *mut gst::ffi::GstBufferPool = pool.to_glib_none().0;
        // SAFETY: of that type, whose beginning has not changed.
        pool.type_().is_a(kind) && unsafe { (*raw.cast::<RawPool>()).context } == self.raw()
    }

    /// A stream in it, where this GStreamer has streams.
    pub fn stream(&self) -> Option<Stream> {
        let streams = library()?.streams.as_ref()?;
        // SAFETY: as declared in its headers; the object is of its type.
        NonNull::new(unsafe { (streams.new)(self.raw()) }).map(Stream)
    }
}

/// A stream that orders the work on frames: `GstCudaStream`.
#[derive(Debug)]
pub struct Stream(NonNull<gst::ffi::GstMiniObject>);

// SAFETY: counted atomically; the driver takes a stream from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// The one that a pool's configuration names.
    pub fn of(config: &gst::BufferPoolConfigRef) -> Option<Self> {
        let streams = library()?.streams.as_ref()?;
        let config: &gst::StructureRef = config.as_ref();
        // SAFETY: as declared in its headers; the answer is ours.
        NonNull::new(unsafe { (streams.of_config)(config.as_ptr().cast_mut()) }).map(Self)
    }

    /// Names it in a pool's configuration.
    pub fn put(&self, config: &mut gst::BufferPoolConfigRef) {
        if let Some(streams) = library().and_then(|library| library.streams.as_ref()) {
            let config: &mut gst::StructureRef = config.as_mut();
            // SAFETY: as declared in its headers.
            unsafe { (streams.to_config)(config.as_mut_ptr(), self.0.as_ptr()) };
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { gst::ffi::gst_mini_object_unref(self.0.as_ptr()) };
    }
}

/// The CUDA memory of a buffer that has such.
pub struct Memory<'a> {
    raw: *mut gst::ffi::GstMemory,
    library: &'static Library,
    _buffer: std::marker::PhantomData<&'a gst::BufferRef>,
}

impl<'a> Memory<'a> {
    /// Of a buffer that is a frame in CUDA memory.
    pub fn of(buffer: &'a gst::BufferRef) -> Option<Self> {
        let library = library()?;
        if buffer.n_memory() != 1 {
            return None;
        }
        // SAFETY: the buffer has one memory, and is borrowed.
        let raw = unsafe { gst::ffi::gst_buffer_peek_memory(buffer.as_ptr().cast_mut(), 0) };
        // SAFETY: as declared in its headers.
        let is = unsafe { (library.is_cuda_memory)(raw) } != glib::ffi::GFALSE;
        is.then_some(Self { raw, library, _buffer: std::marker::PhantomData })
    }

    /// Where it was made.
    pub fn context(&self) -> Option<Context> {
        // SAFETY: CUDA memory, the beginning of which has not changed; it keeps its context.
        let object = unsafe { gst::glib::translate::from_glib_none((*self.raw.cast::<RawMemory>()).context) };
        Context::of(object)
    }

    /// The driver's handle of the stream that orders what is done with it, which it keeps.
    pub fn stream(&self) -> Option<usize> {
        let streams = self.library.streams.as_ref()?;
        // SAFETY: as declared in its headers.
        unsafe {
            let stream = (streams.of_memory)(self.raw);
            if stream.is_null() { None } else { Some((streams.get_handle)(stream) as usize) }
        }
    }

    /// Says whether its stream is still at work on it.
    pub fn set_under_way(&self, under_way: bool) {
        if self.library.streams.is_some() {
            // SAFETY: plain flags; who calls has the buffer for itself.
            unsafe {
                let flags = &mut (*self.raw).mini_object.flags;
                *flags = if under_way { *flags | NEED_SYNC } else { *flags & !NEED_SYNC };
            }
        }
    }
}
