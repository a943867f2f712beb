//! `memory:CUDAMemory` without a GPU: GStreamer's CUDA library, and its upload and download elements, on stand-ins for
//! the driver and the decoder (tests/cuda). Ignored where GStreamer has them not.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;

use common::{stand_in, video};
use gst::glib;
use gst::glib::translate::{FromGlibPtrFull, ToGlibPtr};
use gst::prelude::*;
use gst_video::{VideoFormat, VideoFrame, VideoFrameExt, VideoInfo};
use libloading::os::unix::Library;
use libtest_mimic::{Arguments, Trial};

type Handle = *mut c_void;
type Object = *mut gst::ffi::GstObject;

/// The driver's stand-in, and GStreamer's library on it.
static DRIVER: OnceLock<Library> = OnceLock::new();
static GSTCUDA: OnceLock<Library> = OnceLock::new();

/// Calls a C function by its name: library, name, argument types, arguments, type of the result.
macro_rules! call {
    ($library:ident, $name:ident($($argument:expr => $type:ty),*) -> $result:ty) => {{
        let name = concat!(stringify!($name), "\0").as_bytes();
        // SAFETY: the types are those of the C declaration; every pointer given is valid for the call.
        unsafe { $library.get().unwrap().get::<unsafe extern "C" fn($($type),*) -> $result>(name).unwrap()($($argument),*) }
    }};
}

/// Calls a function of the driver, which has to succeed.
macro_rules! driver {
    ($($call:tt)*) => { assert_eq!(call!(DRIVER, $($call)* -> i32), 0) };
}

const INVALID_CONTEXT: i32 = 201;
const ILLEGAL_ADDRESS: i32 = 700;
/// `GST_MAP_CUDA`: the address on the device.
const MAP_CUDA: u32 = gst::ffi::GST_MAP_FLAG_LAST << 1;

fn main() {
    // The driver before all that asks for one; it stays open.
    let mut opened = ["libcuda", "libnvcuvid"].map(stand_in::open_as_installed);
    DRIVER.set(opened[0].remove(0)).unwrap();
    std::mem::forget(opened);
    // SAFETY: its initialisers do nothing but register types.
    let gstcuda = unsafe { Library::new("libgstcuda-1.0.so.0") };
    let has_library = gstcuda.is_ok();
    gstcuda.map(|library| GSTCUDA.set(library).unwrap()).unwrap_or_default();
    let has_elements = has_library && load_elements();

    let test = |name: &str, test: fn(), possible: bool| {
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(!possible)
    };
    let trials = vec![
        test("the_driver_keeps_contexts_and_devices_apart", contexts, true),
        test("contexts_of_gstreamer_come_and_go", gst_contexts, has_library),
        test("a_frame_of_the_pool_keeps_its_bytes", frame, has_library),
        test("upload_and_download_keep_the_bytes", elements, has_elements),
    ];
    // The driver is one for all.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit();
}

/// Whether GStreamer has `cudaupload` and `cudadownload`. An earlier look at the plugin, without the stand-ins, may have
/// found nothing in it.
fn load_elements() -> bool {
    video::init();
    let plugin = gst::Registry::get().find_plugin("nvcodec").and_then(|plugin| plugin.filename());
    plugin.is_some_and(|file| gst::Plugin::load_file(file).is_ok())
        && ["cudaupload", "cudadownload"].iter().all(|name| gst::ElementFactory::find(name).is_some())
}

fn devices(count: i32) {
    call!(DRIVER, fake_machine(count => i32, 9 => i32, 0 => i32, 13000 => i32) -> ());
}

fn live_contexts() -> i32 {
    call!(DRIVER, fake_contexts() -> i32)
}

/// Bytes that went to the device and to the host so far.
fn copied() -> [usize; 2] {
    let mut bytes = [0; 2];
    let [up, down] = &mut bytes;
    call!(DRIVER, fake_copied_bytes(up => &mut usize, down => &mut usize) -> ());
    bytes
}

/// The context, device and type of memory that the driver tells of an address.
fn told(address: Handle) -> (Handle, i32, u32) {
    let (mut context, mut device, mut kind): (Handle, i32, u32) = (null_mut(), 0, 0);
    let values = [(&raw mut context).cast::<c_void>(), (&raw mut device).cast(), (&raw mut kind).cast()];
    for (value, attribute) in values.into_iter().zip([1, 9, 2]) {
        driver!(cuPointerGetAttribute(value => Handle, attribute => i32, address => Handle));
    }
    (context, device, kind)
}

/// Work is refused with the wrong context current, and for memory of another device unless access was enabled.
fn contexts() {
    devices(2);
    driver!(cuInit(0 => u32));
    let mut of = [(null_mut(), null_mut(), null_mut()); 2];
    for (device, (context, memory, stream)) in (0..).zip(&mut of) {
        driver!(cuCtxCreate_v2(context => *mut Handle, 0 => u32, device => i32));
        driver!(cuMemAlloc_v2(memory => *mut Handle, 16 => usize));
        driver!(cuStreamCreate(stream => *mut Handle, 1 => u32));
        assert_eq!(told(*memory), (*context, device, 2));
        driver!(cuCtxPopCurrent_v2(null_mut() => *mut Handle));
    }
    let [(first, memory, stream), (second, far, far_stream)] = of;
    assert_eq!(live_contexts(), 2);
    driver!(cuCtxPushCurrent_v2(first => Handle));
    let upload = |to: Handle, stream: Handle| {
        let from = [7_u8; 16];
        let status =
            call!(DRIVER, cuMemcpyHtoDAsync_v2(to => Handle, &from => &[u8; 16], 16 => usize, stream => Handle) -> i32);
        let ended = call!(DRIVER, cuStreamSynchronize(stream => Handle) -> i32);
        if status == 0 { ended } else { status }
    };
    assert_eq!(upload(memory, stream), 0);
    assert_eq!(upload(memory, far_stream), INVALID_CONTEXT);
    assert_eq!(upload(far, stream), ILLEGAL_ADDRESS);
    let bytes = 16;
    driver!(cuMemcpyPeerAsync(
        far => Handle, second => Handle, memory => Handle, first => Handle, bytes => usize, stream => Handle
    ));
    driver!(cuStreamSynchronize(stream => Handle));
    driver!(cuCtxEnablePeerAccess(second => Handle, 0 => u32));
    let mut back = [0_u8; 16];
    driver!(cuMemcpyDtoH_v2(&mut back => &mut [u8; 16], far => Handle, 16 => usize));
    assert_eq!(back, [7; 16]);
    driver!(cuCtxDestroy_v2(first => Handle));
    driver!(cuCtxDestroy_v2(second => Handle));
    assert_eq!(live_contexts(), 0);
}

/// A `GstCudaContext` of its own.
fn context(device: u32) -> gst::Object {
    assert_eq!(call!(GSTCUDA, gst_cuda_load_library() -> i32), 1);
    call!(GSTCUDA, gst_cuda_memory_init_once() -> ());
    let context = call!(GSTCUDA, gst_cuda_context_new(device => u32) -> Object);
    assert!(!context.is_null());
    // SAFETY: a new object that is given to the caller.
    unsafe { gst::Object::from_glib_full(context) }
}

fn gst_contexts() {
    devices(2);
    let made: Vec<_> = [0, 1, 0].map(context).into();
    assert_eq!(live_contexts(), 3);
    for (context, device) in made.iter().zip([0, 1, 0]) {
        let raw: Object = context.to_glib_none().0;
        let handle = call!(GSTCUDA, gst_cuda_context_get_handle(raw => Object) -> Handle);
        assert_eq!(call!(GSTCUDA, gst_cuda_context_push(raw => Object) -> i32), 1);
        let (mut current, mut of) = (null_mut(), 0);
        driver!(cuCtxGetCurrent(&mut current => &mut Handle));
        driver!(cuCtxGetDevice(&mut of => &mut i32));
        assert_eq!((current, of), (handle, device));
        assert_eq!(call!(GSTCUDA, gst_cuda_context_pop(null_mut() => *mut Handle) -> i32), 1);
    }
    drop(made);
    assert_eq!(live_contexts(), 0);
}

/// What is written into the frame on the host is on the device, and what is there can be read.
fn frame() {
    devices(1);
    let context = context(0);
    let raw: Object = context.to_glib_none().0;
    let handle = call!(GSTCUDA, gst_cuda_context_get_handle(raw => Object) -> Handle);
    let pool = call!(GSTCUDA, gst_cuda_buffer_pool_new(raw => Object) -> *mut gst::ffi::GstBufferPool);
    // SAFETY: a new object that is given to the caller.
    let pool = unsafe { gst::BufferPool::from_glib_full(pool) };
    let info = VideoInfo::builder(VideoFormat::Nv12, 52, 20).build().unwrap();
    let mut config = pool.config();
    config.set_params(Some(&info.to_caps().unwrap()), info.size() as u32, 1, 0);
    pool.set_config(config).unwrap();
    pool.set_active(true).unwrap();
    let buffer = pool.acquire_buffer(None).unwrap();
    let before = copied();
    let mut frame = VideoFrame::from_buffer_writable(buffer, &info).unwrap();
    for plane in 0..2 {
        frame.plane_data_mut(plane).unwrap().fill(40 + plane as u8);
    }
    let stride = frame.plane_stride()[0];
    assert_eq!(stride, 512, "of the device's memory");
    let buffer = frame.into_buffer();

    let map = |flags: u32| {
        // SAFETY: a struct of numbers and pointers.
        let mut map: gst::ffi::GstMapInfo = unsafe { std::mem::zeroed() };
        // SAFETY: a live buffer; it is given back at once, and what is mapped stays where it is.
        unsafe {
            assert_eq!(gst::ffi::gst_buffer_map(buffer.as_mut_ptr(), &mut map, flags), glib::ffi::GTRUE);
            gst::ffi::gst_buffer_unmap(buffer.as_mut_ptr(), &mut map);
        }
        map.data
    };
    let address = map(gst::ffi::GST_MAP_READ | gst::ffi::GST_MAP_WRITE | MAP_CUDA);
    assert_eq!(told(address.cast()), (handle, 0, 2));
    // SAFETY: the stand-in's device memory is the host's, and nothing else uses it.
    let on_device = unsafe { std::slice::from_raw_parts_mut(address, 30 * stride as usize) };
    assert_eq!([on_device[0], on_device[19 * 512 + 51], on_device[20 * 512]], [40, 40, 41]);
    on_device[512] = 99;
    let frame = VideoFrame::from_buffer_readable(buffer, &info).unwrap();
    assert_eq!(frame.plane_data(0).unwrap()[512..514], [99, 40]);
    let rows = 52 * 40;
    // Down before the first byte is written, up, and down again.
    assert_eq!(copied(), [before[0] + rows, before[1] + 2 * rows]);
    drop(frame);
    pool.set_active(false).unwrap();
    drop((pool, context));
    assert_eq!(live_contexts(), 0);
}

/// The pictures that come out of a source behind which is `elements`, without padding.
fn run(elements: &str) -> Vec<Vec<u8>> {
    let source = "videotestsrc num-buffers=10 ! video/x-raw,format=NV12,width=320,height=240";
    let pipeline = gst::parse::launch(&format!("{source} ! {elements} appsink name=sink sync=false")).unwrap();
    let pipeline = pipeline.downcast::<gst::Bin>().unwrap();
    let sink = pipeline.by_name("sink").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let picture = |sample: gst::Sample| {
        let info = VideoInfo::from_caps(sample.caps().unwrap()).unwrap();
        let frame = VideoFrame::from_buffer_readable(sample.buffer_owned().unwrap(), &info).unwrap();
        let mut copy = VideoFrame::from_buffer_writable(gst::Buffer::with_size(info.size()).unwrap(), &info).unwrap();
        frame.copy(&mut copy).unwrap();
        copy.into_buffer().map_readable().unwrap().to_vec()
    };
    let frames = std::iter::from_fn(|| sink.pull_sample().ok()).map(picture).collect();
    pipeline.set_state(gst::State::Null).unwrap();
    frames
}

/// `cudadownload` gives a sink that knows about strides the memory as it is, which is copied when it is mapped, with what
/// is unused behind its planes; for any other it copies.
fn elements() {
    devices(1);
    let expected = run("");
    assert_eq!(expected.len(), 10);
    for after in ["", "identity drop-allocation=true !"] {
        let before = copied();
        assert!(run(&format!("cudaupload ! video/x-raw(memory:CUDAMemory) ! cudadownload ! {after}")) == expected);
        let bytes = [0, 1].map(|way| copied()[way] - before[way]);
        assert!(bytes.iter().all(|&bytes| bytes >= 10 * 320 * 360), "{after} {bytes:?}");
    }
    assert_eq!(live_contexts(), 0);
}
