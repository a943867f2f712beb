//! GStreamer's own CUDA library: contexts, and frames in their memory.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::{Arc, OnceLock};

use gst::glib::translate::{FromGlibPtrFull, ToGlibPtr};
use gst::prelude::*;
use gst_video::{VideoFrame, VideoFrameExt, VideoInfo};
use gstcudagaussblur::engine::ExternalContext;
use libloading::Library;

use super::fake_library::{call, of_gstreamer};

type Object = *mut gst::ffi::GstObject;

/// Libgstcuda, which is opened after the fake driver.
static GSTCUDA: OnceLock<Library> = OnceLock::new();

fn library() -> &'static Library {
    GSTCUDA.get().expect("libgstcuda is open")
}

/// Opens libgstcuda once GStreamer is initialised. Returns whether it is installed.
pub fn open() -> bool {
    // SAFETY: the initialisers of libgstcuda only register GObject types.
    let Ok(opened) = (unsafe { Library::new(of_gstreamer("cuda")) }) else { return false };
    GSTCUDA.set(opened).unwrap();
    assert_eq!(call!(library(), gst_cuda_load_library() -> i32), 1);
    call!(library(), gst_cuda_memory_init_once() -> ());
    true
}

/// Whether libgstcuda is open.
pub fn is_open() -> bool {
    GSTCUDA.get().is_some()
}

/// A `GstCudaContext`.
#[derive(Clone)]
pub struct Context(gst::Object);

impl Context {
    /// On device 0.
    pub fn new() -> Self {
        Self::on(0)
    }

    pub fn on(device: u32) -> Self {
        let context = call!(library(), gst_cuda_context_new(device => u32) -> Object);
        assert!(!context.is_null());
        // SAFETY: gst_cuda_context_new returns a new object whose reference the caller owns.
        Self(unsafe { gst::Object::from_glib_full(context) })
    }

    fn raw(&self) -> Object {
        self.0.to_glib_none().0
    }

    /// The GstContext for elements.
    pub fn shared(&self) -> gst::Context {
        let shared = call!(library(), gst_context_new_cuda_context(self.raw() => Object) -> *mut gst::ffi::GstContext);
        // SAFETY: gst_context_new_cuda_context returns a new context whose reference the caller owns.
        unsafe { gst::Context::from_glib_full(shared) }
    }

    /// The context, which has to be of device 0, for an engine.
    pub fn external(&self) -> ExternalContext {
        let handle = call!(library(), gst_cuda_context_get_handle(self.raw() => Object) -> *mut c_void);
        // SAFETY: the handle is the CUcontext of this object on device 0, and the object keeps it alive.
        unsafe { ExternalContext::new(handle as usize, 0, Arc::new(self.0.clone())) }
    }

    /// A frame in memory of the context, with these planes: bytes, bytes from one row to the next, and bytes of a row.
    pub fn frame(&self, info: &VideoInfo, planes: &[(&[u8], usize, usize)]) -> gst::Buffer {
        let pool = call!(library(), gst_cuda_buffer_pool_new(self.raw() => Object) -> *mut gst::ffi::GstBufferPool);
        // SAFETY: gst_cuda_buffer_pool_new returns a new object whose reference the caller owns.
        let pool = unsafe { gst::BufferPool::from_glib_full(pool) };
        let mut config = pool.config();
        config.set_params(Some(&info.to_caps().unwrap()), info.size() as u32, 1, 0);
        pool.set_config(config).unwrap();
        pool.set_active(true).unwrap();
        let mut frame = VideoFrame::from_buffer_writable(pool.acquire_buffer(None).unwrap(), info).unwrap();
        for (plane, (bytes, pitch, width)) in planes.iter().enumerate() {
            let stride = frame.plane_stride()[plane] as usize;
            let end = frame.plane_offset()[plane] + bytes.chunks(*pitch).len().saturating_sub(1) * stride + width;
            assert!(end <= frame.buffer().size(), "GStreamer's memory for {info:?} ends before byte {end}");
            let rows = frame.plane_data_mut(plane as u32).unwrap().chunks_mut(stride).zip(bytes.chunks(*pitch));
            rows.for_each(|(to, row)| to[..*width].copy_from_slice(&row[..*width]));
        }
        // The buffer keeps its memory until it is dropped.
        pool.set_active(false).unwrap();
        let buffer = frame.into_buffer();
        // Uploads what was written. GStreamer would do so when the element maps it, and ignores the status of the wait for the
        // copy, so that a fault in that wait is not reported to the element.
        const GST_MAP_CUDA: u32 = gst::ffi::GST_MAP_FLAG_LAST << 1;
        let memory = buffer.memory(0).unwrap();
        let mut info = MaybeUninit::uninit();
        // SAFETY: the memory is live, and `info` is writable and, once mapped, what the mapping set.
        unsafe {
            let flags = gst::ffi::GST_MAP_READ | GST_MAP_CUDA;
            assert_ne!(gst::ffi::gst_memory_map(memory.as_mut_ptr(), info.as_mut_ptr(), flags), 0);
            gst::ffi::gst_memory_unmap(memory.as_mut_ptr(), info.as_mut_ptr());
        }
        buffer
    }
}
