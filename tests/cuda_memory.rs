//! Frames in `memory:CUDAMemory` without a GPU: GStreamer's CUDA library and its upload and download elements on the
//! fake CUDA driver and decoder library (tests/fake_cuda). Tests are ignored if this GStreamer lacks what they need.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;

use common::pipes::{self, CUDA, stat};
use common::{fake_library, video};
use cudarc::driver::sys::{CUmemorytype, CUpointer_attribute, CUstream_flags};
use gst::glib;
use gst::glib::translate::{FromGlibPtrFull, ToGlibPtr};
use gst::prelude::*;
use gst_video::{VideoFormat, VideoFrame, VideoFrameExt, VideoInfo};
use libloading::Library;
use libtest_mimic::{Arguments, Trial};

type Handle = *mut c_void;
type Object = *mut gst::ffi::GstObject;

/// The fake CUDA driver, and GStreamer's CUDA library, which is loaded after it.
static DRIVER: OnceLock<Library> = OnceLock::new();
static GSTCUDA: OnceLock<Library> = OnceLock::new();

/// Calls a C function by its name: library, name, argument types, arguments, type of the result.
macro_rules! call {
    ($library:ident, $name:ident($($argument:expr => $type:ty),*) -> $result:ty) => {{
        let name = concat!(stringify!($name), "\0").as_bytes();
        // SAFETY: each use of the macro gives the types of the C declaration, and pointers that are valid during the
        // call.
        unsafe { $library.get().unwrap().get::<unsafe extern "C" fn($($type),*) -> $result>(name).unwrap()($($argument),*) }
    }};
}

/// Calls a driver function and asserts that it succeeds.
macro_rules! driver {
    ($($call:tt)*) => { assert_eq!(call!(DRIVER, $($call)* -> i32), 0) };
}

const DEVICE_MEMORY: u32 = CUmemorytype::CU_MEMORYTYPE_DEVICE as u32;
const INVALID_CONTEXT: i32 = 201;
const ILLEGAL_ADDRESS: i32 = 700;
const LAUNCH_FAILED: i32 = 719;
/// `GST_MAP_CUDA`, the map flag that yields the device address.
const MAP_CUDA: u32 = gst::ffi::GST_MAP_FLAG_LAST << 1;

fn main() {
    // The fake libraries have to be loaded before anything opens the real ones, and stay loaded.
    let mut opened = ["libcuda", "libnvcuvid"].map(fake_library::open_as_installed);
    DRIVER.set(opened[0].remove(0)).unwrap();
    std::mem::forget(opened);
    // SAFETY: the initialisers of libgstcuda only register GObject types.
    let gstcuda = unsafe { Library::new(fake_library::of_gstreamer("cuda")) };
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
        test("fake_driver_rejects_work_across_contexts", work_across_contexts, true),
        test("gst_cuda_contexts_are_created_and_destroyed", gst_contexts, has_library),
        test("pool_buffers_map_on_host_and_device", pool_buffers, has_library),
        test("cudaupload_and_cudadownload_preserve_the_bytes", upload_and_download, has_elements),
        test("cuda_memory_frames_are_blurred_without_copies", no_copies, has_elements),
        test("blur_converts_between_host_and_cuda_memory", change_memory, has_elements),
        test("sigma_0_passes_through_or_copies_between_memories", sigma_0, has_elements),
        test("every_cuda_memory_format_matches_the_cpu", every_format, has_elements),
        test("regions_match_the_cpu_in_every_memory", regions, has_elements),
        test("frames_wait_in_every_memory_and_scarce_ones_are_copied", look_ahead, has_elements),
        test("downstream_changes_its_memory_while_regions_are_covered", renegotiated_memory, has_elements),
        test("elements_share_one_context", one_context, has_elements),
        test("blur_adopts_the_context_of_each_input", adopts_context, has_elements),
        test("cuda_device_id_overrides_an_earlier_context", device_id_set_later, has_library),
        test("failures_on_cuda_memory_are_actionable_errors", actionable_errors, has_elements),
        test("a_hundred_restarts_leak_nothing", hundred_restarts, has_elements),
    ];
    // The fake driver's state is the process's.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit();
}

/// Whether GStreamer has `cudaupload` and `cudadownload`. The plugin is loaded anew, because the registry may come from
/// a process without the fake libraries, in which the plugin registered no element.
fn load_elements() -> bool {
    video::init();
    let plugin = gst::Registry::get().find_plugin("nvcodec").and_then(|plugin| plugin.filename());
    plugin.is_some_and(|file| gst::Plugin::load_file(file).is_ok())
        && ["cudaupload", "cudadownload"].iter().all(|name| gst::ElementFactory::find(name).is_some())
}

fn devices(count: i32) {
    call!(DRIVER, fake_set_devices(count => i32, 9 => i32, 0 => i32, 13000 => i32) -> ());
}

/// Live contexts other than the devices' primary ones.
fn live_contexts() -> i32 {
    call!(DRIVER, fake_context_count() -> i32)
}

/// Bytes copied to the device and to the host so far.
fn copied() -> [usize; 2] {
    let mut bytes = [0; 2];
    let [up, down] = &mut bytes;
    call!(DRIVER, fake_copied_bytes(up => &mut usize, down => &mut usize) -> ());
    bytes
}

/// The context, device and memory type that the driver reports for an address.
fn pointer_attributes(address: Handle) -> (Handle, i32, u32) {
    const ATTRIBUTES: [CUpointer_attribute; 3] = [
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    ];
    let (mut context, mut device, mut kind): (Handle, i32, u32) = (null_mut(), 0, 0);
    let values = [(&raw mut context).cast::<c_void>(), (&raw mut device).cast(), (&raw mut kind).cast()];
    for (value, attribute) in values.into_iter().zip(ATTRIBUTES.map(|attribute| attribute as i32)) {
        driver!(cuPointerGetAttribute(value => Handle, attribute => i32, address => Handle));
    }
    (context, device, kind)
}

/// Work is rejected on a stream of a context that is not current, and on memory of another device unless peer access
/// was enabled.
fn work_across_contexts() {
    devices(2);
    driver!(cuInit(0 => u32));
    let mut of = [(null_mut(), null_mut(), null_mut()); 2];
    for (device, (context, memory, stream)) in (0..).zip(&mut of) {
        driver!(cuCtxCreate_v2(context => *mut Handle, 0 => u32, device => i32));
        driver!(cuMemAlloc_v2(memory => *mut Handle, 16 => usize));
        let non_blocking = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        driver!(cuStreamCreate(stream => *mut Handle, non_blocking => u32));
        assert_eq!(pointer_attributes(*memory), (*context, device, DEVICE_MEMORY));
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

/// A new `GstCudaContext`.
fn context(device: u32) -> gst::Object {
    assert_eq!(call!(GSTCUDA, gst_cuda_load_library() -> i32), 1);
    call!(GSTCUDA, gst_cuda_memory_init_once() -> ());
    let context = call!(GSTCUDA, gst_cuda_context_new(device => u32) -> Object);
    assert!(!context.is_null());
    // SAFETY: gst_cuda_context_new returns a new object whose reference the caller owns.
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

/// What the host writes to a pool buffer is uploaded when it is mapped on the device, and what the device writes is
/// downloaded when it is mapped on the host.
fn pool_buffers() {
    devices(1);
    let context = context(0);
    let raw: Object = context.to_glib_none().0;
    let handle = call!(GSTCUDA, gst_cuda_context_get_handle(raw => Object) -> Handle);
    let pool = call!(GSTCUDA, gst_cuda_buffer_pool_new(raw => Object) -> *mut gst::ffi::GstBufferPool);
    // SAFETY: gst_cuda_buffer_pool_new returns a new object whose reference the caller owns.
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
    assert_eq!(stride, 512, "not the pitch of the device memory");
    let buffer = frame.into_buffer();

    let map = |flags: u32| {
        // SAFETY: GstMapInfo is a C struct of numbers and pointers, for which all zeros is a valid value.
        let mut map: gst::ffi::GstMapInfo = unsafe { std::mem::zeroed() };
        // SAFETY: the buffer is live and unmapped with the same map info. The address stays valid: the memory is the
        // buffer's, which outlives its use below.
        unsafe {
            assert_eq!(gst::ffi::gst_buffer_map(buffer.as_mut_ptr(), &mut map, flags), glib::ffi::GTRUE);
            gst::ffi::gst_buffer_unmap(buffer.as_mut_ptr(), &mut map);
        }
        map.data
    };
    let address = map(gst::ffi::GST_MAP_READ | gst::ffi::GST_MAP_WRITE | MAP_CUDA);
    assert_eq!(pointer_attributes(address.cast()), (handle, 0, DEVICE_MEMORY));
    // SAFETY: device memory of the fake driver is host memory; the buffer's has 30 rows of `stride` bytes, and nothing
    // else accesses it during the borrow.
    let on_device = unsafe { std::slice::from_raw_parts_mut(address, 30 * stride as usize) };
    assert_eq!([on_device[0], on_device[19 * 512 + 51], on_device[20 * 512]], [40, 40, 41]);
    on_device[512] = 99;
    let frame = VideoFrame::from_buffer_readable(buffer, &info).unwrap();
    assert_eq!(frame.plane_data(0).unwrap()[512..514], [99, 40]);
    // GStreamer 1.22 also copies the rows between the planes.
    let rows = copied()[0] - before[0];
    assert!([52 * 30, 52 * 40].contains(&rows), "{rows} bytes were uploaded");
    // A download before the first write, an upload, and a download again.
    assert_eq!(copied()[1], before[1] + 2 * rows);
    drop(frame);
    pool.set_active(false).unwrap();
    drop((pool, context));
    assert_eq!(live_contexts(), 0);
}

/// The number of frames in each test pipeline, and their caps.
const FRAMES: usize = 4;
const NV12: &str = "video/x-raw,format=NV12,width=98,height=60";
/// Its alpha channel is opaque.
const RGBA: &str = "video/x-raw,format=RGBA,width=98,height=60";

/// A pipeline of a test source, `elements` (which end with `!`) and an appsink.
fn pipeline(caps: &str, elements: &str) -> gst::Bin {
    pipes::pipeline(&format!("videotestsrc num-buffers={FRAMES} ! {caps} ! {elements} appsink name=sink sync=false"))
}

/// Plays the pipeline and returns its output pictures.
fn pictures(pipeline: &gst::Bin) -> Vec<Vec<u8>> {
    let frames: Vec<_> = pipes::pictures(pipeline).collect();
    pipes::no_errors(pipeline);
    assert_eq!(frames.len(), FRAMES);
    frames
}

fn run_of(caps: &str, elements: &str) -> Vec<Vec<u8>> {
    let pipeline = pipeline(caps, elements);
    let frames = pictures(&pipeline);
    pipeline.set_state(gst::State::Null).unwrap();
    frames
}

fn run(elements: &str) -> Vec<Vec<u8>> {
    run_of(NV12, elements)
}

/// The output has the CPU's bytes, and the blur adds no copies to those of upload and download.
fn no_copies() {
    devices(1);
    let expected = run("cudagaussblur backend=cpu sigma=3 !");
    let copies = |elements: &str| {
        let before = copied();
        let pipeline =
            pipeline(NV12, &format!("cudaupload ! {CUDA} ! {elements} cudadownload ! identity drop-allocation=true !"));
        let frames = pictures(&pipeline);
        let on_device = pipeline.by_name("blur").map_or(0, |_| stat(&pipeline, "frames-on-device"));
        pipeline.set_state(gst::State::Null).unwrap();
        (frames, on_device, [0, 1].map(|direction| copied()[direction] - before[direction]))
    };
    let (_, _, without) = copies("");
    let (frames, on_device, with) = copies("cudagaussblur name=blur sigma=3 !");
    assert!(frames == expected, "the output differs from the CPU's");
    assert_eq!((on_device, with), (FRAMES as u64, without), "frames were copied to or from the host");
    // Several elements in a row.
    let thrice = "cudagaussblur sigma=3 ! cudagaussblur sigma=1 ! cudagaussblur sigma=6 !";
    let with_cpu = run(
        "cudagaussblur sigma=3 backend=cpu ! cudagaussblur sigma=1 backend=cpu ! cudagaussblur sigma=6 backend=cpu !",
    );
    assert!(copies(thrice).0 == with_cpu);
}

fn change_memory() {
    devices(1);
    let expected = run("cudagaussblur backend=cpu sigma=3 !");
    for (elements, pinned) in [
        (&*format!("cudaupload ! {CUDA} ! cudagaussblur name=blur sigma=3 ! video/x-raw !"), ["in", "out"]),
        (
            &*format!("cudagaussblur name=blur sigma=3 ! {CUDA} ! cudadownload ! identity drop-allocation=true !"),
            ["out", "in"],
        ),
    ] {
        let pipeline = pipeline(NV12, elements);
        assert!(pictures(&pipeline) == expected, "{elements}");
        let counts = pinned.map(|side| stat(&pipeline, &format!("frames-pinned-{side}")));
        let frames = FRAMES as u64;
        assert_eq!((counts, stat(&pipeline, "frames-cuda")), ([0, frames], frames), "{elements}");
        assert_eq!([stat(&pipeline, "bytes-copied"), stat(&pipeline, "frames-on-device")], [0, 0], "{elements}");
        pipeline.set_state(gst::State::Null).unwrap();
    }
    // If no neighbour requires a memory, the output is in the input's.
    for (before, feature) in [("", None), ("cudaupload ! ", Some("memory:CUDAMemory"))] {
        let source = if before.is_empty() { String::new() } else { format!("{before}{CUDA} ! ") };
        let pipeline = pipeline(NV12, &format!("{source}cudagaussblur name=blur sigma=3 ! cudadownload ! "));
        assert!(pictures(&pipeline) == expected);
        let caps = pipeline.by_name("blur").unwrap().static_pad("src").unwrap().current_caps().unwrap();
        let found = caps.features(0).unwrap().contains("memory:CUDAMemory");
        assert_eq!(found, feature.is_some(), "{caps}");
        pipeline.set_state(gst::State::Null).unwrap();
    }
}

fn sigma_0() {
    devices(1);
    let expected = run("");
    for (elements, passed) in [
        (&*format!("cudaupload ! {CUDA} ! cudagaussblur name=blur sigma=0 ! {CUDA} ! cudadownload !"), FRAMES as u64),
        (&*format!("cudaupload ! {CUDA} ! cudagaussblur name=blur sigma=0 ! video/x-raw !"), 0),
        (&*format!("cudagaussblur name=blur sigma=0 ! {CUDA} ! cudadownload !"), 0),
    ] {
        let pipeline = pipeline(NV12, elements);
        assert!(pictures(&pipeline) == expected, "{elements}");
        assert_eq!(stat(&pipeline, "frames-passthrough"), passed, "{elements}");
        pipeline.set_state(gst::State::Null).unwrap();
    }
}

/// Every format that both the blur and `cudaupload` support.
fn every_format() {
    devices(1);
    let supported = |name: &str| -> Vec<String> {
        let factory = gst::ElementFactory::find(name).unwrap();
        let template =
            factory.static_pad_templates().into_iter().find(|template| template.direction() == gst::PadDirection::Src);
        let caps = template.unwrap().caps();
        let on_device = caps.iter_with_features().find(|(_, features)| features.contains("memory:CUDAMemory"));
        let formats = on_device.unwrap().0.get::<gst::List>("format").unwrap();
        formats.iter().map(|format| format.get::<String>().unwrap()).collect()
    };
    let ours = supported("cudagaussblur");
    let theirs = supported("cudaupload");
    assert!(ours.len() >= 28, "{ours:?}");
    let both: Vec<_> = ours.iter().filter(|format| theirs.contains(format)).collect();
    assert!(both.len() >= 15, "{both:?}");
    let mut tried = 0;
    for format in both {
        // An odd width if GStreamer's own elements preserve its bytes, else a width that they do: `cudaupload` does not
        // copy the pixel beyond the edge in the last pair of packed 4:2:2, and version 1.24.2 copies the third plane of
        // I420 to a wrong offset at most widths.
        let caps = |width: u32| format!("video/x-raw,format={format},width={width},height=20");
        let round_trip = format!("cudaupload ! {CUDA} ! cudadownload !");
        let preserved = |width: &u32| run_of(&caps(*width), &round_trip) == run_of(&caps(*width), "");
        let Some(width) = [53, 54, 512].into_iter().find(preserved) else {
            println!("{format} is not tested: cudaupload ! cudadownload changes its bytes");
            continue;
        };
        tried += 1;
        let caps = caps(width);
        let expected = run_of(&caps, "cudagaussblur backend=cpu sigma=2 !");
        let blurred = run_of(&caps, &format!("cudaupload ! {CUDA} ! cudagaussblur sigma=2 ! {CUDA} ! cudadownload !"));
        assert!(blurred == expected, "{format} {width}x20");
    }
    assert!(tried >= 15, "only {tried} formats were tested");
}

/// Frames that wait stay where they are; a decoder's surfaces, which no pool hands out, are copied on the device; frames of
/// another context push those before them.
fn look_ahead() {
    devices(1);
    let zone = "region-mode=inside sigma=3 look-ahead=2 zones=<[zone,x=0.2,y=0.2,width=0.5,height=0.5]>";
    let expected = run(&format!("cudagaussblur backend=cpu {zone} !"));
    let before = copied();
    run(&format!("cudaupload ! {CUDA} ! cudadownload ! identity drop-allocation=true !"));
    let without = [0, 1].map(|direction| copied()[direction] - before[direction]);
    let before = copied();
    let elements = format!(
        "cudaupload ! {CUDA} ! cudagaussblur name=blur {zone} ! cudadownload ! identity drop-allocation=true !"
    );
    let resident = pipeline(NV12, &elements);
    assert!(pictures(&resident) == expected, "the output differs from the CPU's");
    let counts = ["frames-on-device", "frames-copied"].map(|name| stat(&resident, name));
    resident.set_state(gst::State::Null).unwrap();
    drop(resident);
    assert_eq!(counts, [FRAMES as u64, 0]);
    assert_eq!([0, 1].map(|direction| copied()[direction] - before[direction]), without);
    for elements in [
        format!("cudaupload ! {CUDA} ! cudagaussblur {zone} ! video/x-raw !"),
        format!("cudagaussblur {zone} ! {CUDA} ! cudadownload !"),
    ] {
        assert!(run(&elements) == expected, "{elements}");
    }

    devices(2);
    let info = VideoInfo::builder(VideoFormat::Nv12, 64, 32).fps((25, 1)).build().unwrap();
    let caps = |feature: &str| -> gst::Caps {
        format!("video/x-raw{feature},format=NV12,width=64,height=32,framerate=25/1").parse().unwrap()
    };
    let plane = |buffer: &gst::Buffer| {
        let frame = VideoFrame::from_buffer_readable(buffer.clone(), &info).unwrap();
        let rows = frame.plane_data(0).unwrap().chunks(frame.plane_stride()[0] as usize).take(32);
        rows.flat_map(|row| row[..64].to_vec()).collect::<Vec<u8>>()
    };
    let contexts = [0, 1].map(context);
    let [mut blur, mut with_cpu] =
        ["cuda", "cpu"].map(|backend| video::Blur::new(&format!("backend={backend} {zone}")));
    blur.harness.set_src_caps(caps("(memory:CUDAMemory)"));
    with_cpu.harness.set_src_caps(caps(""));
    let mut is_surface = [false; 8];
    for seed in 0..8 {
        let [frame, same] = [0, 1].map(|_| frame_in(&contexts[seed / 4], &info, seed as u64));
        // The copy shares the memory and has no pool. Later versions of GStreamer name the frame as its parent, whose pool has no
        // maximum.
        let pushed = if seed % 2 == 1 { frame.copy() } else { frame };
        is_surface[seed] = seed % 2 == 1 && pushed.meta::<gst::ParentBufferMeta>().is_none();
        blur.try_push(pushed).unwrap();
        with_cpu.try_push(same).unwrap();
        let left = (seed + 1).saturating_sub(2).max(if seed >= 4 { 4 } else { 0 });
        assert_eq!(blur.harness.buffers_received() as usize, left, "after frame {seed}");
    }
    assert!([&mut blur, &mut with_cpu].map(|blur| blur.harness.push_event(gst::event::Eos::new())) == [true; 2]);
    for seed in 0..8 {
        assert!(plane(&blur.harness.pull().unwrap()) == plane(&with_cpu.harness.pull().unwrap()), "frame {seed}");
    }
    let stats = blur.element.property::<gst::Structure>("stats");
    let surfaces = is_surface.into_iter().filter(|is_surface| *is_surface).count() as u64;
    assert_eq!((stats.get::<u64>("frames-copied"), stats.get::<u64>("frames-on-device")), (Ok(surfaces), Ok(8)));
    drop((blur, with_cpu, contexts));
    assert_eq!(live_contexts(), 0);
}

/// Downstream asks for other memory between frames, and gets every frame in order and covered, those that wait in the memory of before.
fn renegotiated_memory() {
    devices(1);
    const FRAMES: u64 = 12;
    let info = video::info(VideoFormat::Rgba, 40, 24);
    for properties in ["look-ahead=0", "look-ahead=3", "look-ahead=3 region-mode=outside", "region-mode=frame"] {
        let of_backend = |backend: &str| {
            let zone = "region-mode=inside sigma=3 zones=<[zone,x=0.2,y=0.2,width=0.5,height=0.5]>";
            let mut blur = video::Blur::new(&format!("{zone} {properties} backend={backend}"));
            blur.caps(&info);
            blur
        };
        let [mut blur, mut with_cpu] = ["cuda", "cpu"].map(of_backend);
        for seed in 0..FRAMES {
            // Twice in a row, too, and back.
            match seed {
                2 | 3 | 9 => blur.harness.set_sink_caps(format!("{CUDA},format=RGBA").parse().unwrap()),
                6 => blur.harness.set_sink_caps("video/x-raw,format=RGBA".parse().unwrap()),
                _ => (),
            }
            for blur in [&mut blur, &mut with_cpu] {
                let frame = video::buffer(&info, &video::picture(&info, seed));
                let flow = blur.try_push(frame);
                let errors = blur.messages(gst::MessageType::Error);
                assert!(flow.is_ok() && errors.is_empty(), "{properties}, frame {seed}: {flow:?} {errors:?}");
            }
        }
        assert!([&mut blur, &mut with_cpu].map(|blur| blur.harness.push_event(gst::event::Eos::new())) == [true; 2]);
        for frame in 0..FRAMES {
            let [got, want] = [&mut blur, &mut with_cpu].map(|blur| blur.harness.try_pull());
            let (got, want) = (got.expect("a frame is lost"), want.unwrap());
            assert_eq!(got.pts(), want.pts(), "{properties}, frame {frame}");
            assert!(video::read(&info, &got) == video::read(&info, &want), "{properties}, frame {frame}");
        }
        assert_eq!(video::stat(&blur, "frames-cpu"), 0, "{properties}");
    }
}

/// The elements of a pipeline share one context: checks how many exist besides the device's primary one while it plays.
fn regions() {
    devices(1);
    // One CPU thread plays each CUDA thread.
    pipes::check_regions("NV12", [49, 38], &pipes::COVERS[1..4]);
    pipes::check_regions("RGBA", [33, 21], &pipes::COVERS[..1]);
    pipes::check_regions("NV12", [48, 38], &pipes::COVERS[5..]);
}

fn one_context() {
    devices(1);
    for (elements, own) in [
        // The last element starts first and creates a context, which the others adopt.
        (&*format!("cudaupload ! {CUDA} ! cudagaussblur name=blur ! cudadownload !"), 1),
        // The blur starts first and shares the primary context.
        (&*format!("cudaupload ! {CUDA} ! cudagaussblur name=blur !"), 0),
        ("cudagaussblur name=blur ! cudagaussblur !", 0),
        (&*format!("cudagaussblur name=blur ! capsfilter caps=\"{CUDA};video/x-raw\" !"), 0),
    ] {
        let pipeline = pipeline(NV12, elements);
        pictures(&pipeline);
        let caps = pipeline.by_name("blur").unwrap().static_pad("src").unwrap().current_caps().unwrap();
        let on_device = caps.features(0).unwrap().contains("memory:CUDAMemory");
        assert_eq!(on_device, elements.starts_with("cudaupload"), "frames change memory without need: {caps}");
        assert_eq!(live_contexts(), own, "{elements}");
        assert_eq!(stat(&pipeline, "frames-cuda"), FRAMES as u64, "{elements}");
        pipeline.set_state(gst::State::Null).unwrap();
        drop(pipeline);
        assert_eq!(live_contexts(), 0, "{elements}");
    }
}

/// An NV12 frame of noise in device memory of this context.
fn frame_in(context: &gst::Object, info: &VideoInfo, seed: u64) -> gst::Buffer {
    let raw: Object = context.to_glib_none().0;
    let pool = call!(GSTCUDA, gst_cuda_buffer_pool_new(raw => Object) -> *mut gst::ffi::GstBufferPool);
    // SAFETY: gst_cuda_buffer_pool_new returns a new object whose reference the caller owns.
    let pool = unsafe { gst::BufferPool::from_glib_full(pool) };
    let mut config = pool.config();
    config.set_params(Some(&info.to_caps().unwrap()), info.size() as u32, 1, 0);
    pool.set_config(config).unwrap();
    pool.set_active(true).unwrap();
    let mut frame = VideoFrame::from_buffer_writable(pool.acquire_buffer(None).unwrap(), info).unwrap();
    for plane in 0..2 {
        let bytes = frame.plane_data_mut(plane).unwrap();
        let noise = common::Noise(seed).bytes(bytes.len());
        bytes.copy_from_slice(&noise);
    }
    frame.into_buffer()
}

fn adopts_context() {
    devices(2);
    let info = VideoInfo::builder(VideoFormat::Nv12, 64, 32).fps((25, 1)).build().unwrap();
    let caps = |feature: &str| -> gst::Caps {
        format!("video/x-raw{feature},format=NV12,width=64,height=32,framerate=25/1").parse().unwrap()
    };
    let plane = |buffer: &gst::Buffer| {
        let frame = VideoFrame::from_buffer_readable(buffer.clone(), &info).unwrap();
        let rows = frame.plane_data(0).unwrap().chunks(frame.plane_stride()[0] as usize).take(32);
        rows.flat_map(|row| row[..64].to_vec()).collect::<Vec<u8>>()
    };
    let contexts = [0, 1, 0].map(context);
    let mut blur = video::Blur::new("backend=cuda sigma=2");
    let mut with_cpu = video::Blur::new("backend=cpu sigma=2");
    blur.harness.set_src_caps(caps("(memory:CUDAMemory)"));
    with_cpu.harness.set_src_caps(caps(""));
    for (seed, context) in contexts.iter().chain(&contexts).enumerate() {
        let frame = frame_in(context, &info, seed as u64);
        let output = blur.push(frame.clone());
        assert!(plane(&output) == plane(&with_cpu.push(frame)), "frame {seed}");
    }
    assert_eq!(blur.element.property::<gst::Structure>("stats").get::<u64>("frames-on-device").unwrap(), 6);

    drop(blur);
    // An element with cuda-device-id set does not change devices.
    let mut blur = video::Blur::new("backend=cuda sigma=2 cuda-device-id=1");
    blur.harness.set_src_caps(caps("(memory:CUDAMemory)"));
    assert!(blur.try_push(frame_in(&contexts[1], &info, 1)).is_ok());
    assert_eq!(blur.try_push(frame_in(&contexts[0], &info, 1)), Err(gst::FlowError::Error));
    let errors = blur.messages(gst::MessageType::Error);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains("CUDA device 0, but cuda-device-id=1; set cuda-device-id to 0 or -1"), "{errors:?}");
    drop((blur, with_cpu, contexts));
    assert_eq!(live_contexts(), 0);
}

/// A context that was set before `cuda-device-id` selected another device is not used.
fn device_id_set_later() {
    devices(2);
    let first = context(0);
    let raw: Object = first.to_glib_none().0;
    let shared = call!(GSTCUDA, gst_context_new_cuda_context(raw => Object) -> *mut gst::ffi::GstContext);
    let element = video::element("backend=cuda");
    // SAFETY: gst_context_new_cuda_context returns a new context whose reference the caller owns.
    element.set_context(&unsafe { gst::Context::from_glib_full(shared) });
    element.set_property("cuda-device-id", 1);
    element.set_state(gst::State::Paused).unwrap();
    let mut query = gst::query::Context::new("gst.cuda.context");
    assert!(element.static_pad("src").unwrap().query(&mut query));
    let found = query.context_owned().unwrap().structure().get::<gst::Object>("gst.cuda.context").unwrap();
    assert_eq!(found.property::<u32>("cuda-device-id"), 1);
    element.set_state(gst::State::Null).unwrap();
}

/// Plays the pipeline until it fails or ends, and returns its errors.
fn errors(elements: &str) -> Vec<String> {
    errors_of(NV12, elements)
}

fn errors_of(caps: &str, elements: &str) -> Vec<String> {
    let pipeline = pipeline(caps, elements);
    let _ = pipeline.set_state(gst::State::Playing);
    let bus = pipeline.bus().unwrap();
    let end =
        bus.timed_pop_filtered(gst::ClockTime::from_seconds(20), &[gst::MessageType::Error, gst::MessageType::Eos]);
    let mut texts: Vec<String> = end.iter().map(|end| format!("{:?}", end.view())).collect();
    texts.extend(video::texts(&bus, gst::MessageType::Error));
    pipeline.set_state(gst::State::Null).unwrap();
    texts
}

fn actionable_errors() {
    devices(1);
    let on_device =
        |properties: &str| format!("cudaupload ! {CUDA} ! cudagaussblur {properties} ! {CUDA} ! cudadownload !");
    // On the CPU the sink caps exclude CUDA memory, so that upstream negotiates host memory if it can.
    let with_cpu = video::Blur::new("backend=cpu");
    let sink_caps = with_cpu.element.static_pad("sink").unwrap().query_caps(None);
    assert!(sink_caps.iter_with_features().all(|(_, features)| !features.contains("memory:CUDAMemory")), "{sink_caps}");
    let cpu = errors(&on_device("backend=cpu"));
    assert!(cpu[0].contains("CUDA memory cannot be blurred on the CPU; set backend=auto"), "{cpu:?}");
    // The alpha channel of host memory is read whichever backend covers; that of CUDA memory is not.
    let alpha = "cudagaussblur region-mode=inside region-sources=alpha";
    let refused = errors_of(RGBA, &format!("cudaupload ! {CUDA} ! {alpha} ! {CUDA} ! cudadownload !"));
    assert!(
        refused[0].contains("the frames are in CUDA memory, where the element does not read the alpha"),
        "{refused:?}"
    );
    assert!(refused[0].contains("insert cudadownload before cudagaussblur"), "{refused:?}");
    let on_host = |backend: &str| run_of(RGBA, &format!("{alpha} backend={backend} !"));
    assert!(on_host("cuda") == on_host("cpu"));
    let zone = "region-mode=inside zones=\"<[zone,x=0.1,y=0.1,width=0.5,height=0.5]>\" region-sources=zones";
    let soft = format!("backend=cuda {zone} shape=ellipse");
    for settings in ["backend=auto", "backend=cuda", &soft] {
        const LAUNCH: &std::ffi::CStr = c"cuLaunchKernel";
        let name = LAUNCH.as_ptr();
        let status = LAUNCH_FAILED;
        call!(DRIVER, fake_fail(name => *const std::ffi::c_char, 3 => i32, i32::MAX => i32, status => i32) -> ());
        let failed = errors(&on_device(settings));
        call!(DRIVER, fake_reset() -> ());
        assert!(failed[0].contains("device 0 failed launching a kernel"), "{failed:?}");
        assert!(failed[0].contains("the frame is in CUDA memory"), "{failed:?}");
    }
}

fn hundred_restarts() {
    devices(1);
    let pipeline = pipeline(
        NV12,
        &format!("cudaupload ! {CUDA} ! cudagaussblur sigma=2 ! cudagaussblur sigma=3 ! cudadownload !"),
    );
    let live = || {
        let mut counts = [0; 8];
        call!(DRIVER, fake_counts(counts.as_mut_ptr() => *mut i32) -> ());
        // Device blocks, pinned blocks, streams and events.
        (counts[..4].to_vec(), live_contexts())
    };
    let mut first = None;
    for _ in 0..100 {
        let sink = pipeline.by_name("sink").unwrap();
        sink.set_property("wait-on-eos", false);
        pipes::run_to_end(&pipeline);
        pipeline.set_state(gst::State::Null).unwrap();
        assert_eq!(*first.get_or_insert_with(live), live());
    }
}

/// To a sink that supports video metas `cudadownload` passes the CUDA memory itself, which is downloaded, row padding
/// included, when the sink maps it; for any other sink it copies the frame.
fn upload_and_download() {
    devices(1);
    let expected = run("");

    for after in ["", "identity drop-allocation=true !"] {
        let before = copied();
        assert!(run(&format!("cudaupload ! video/x-raw(memory:CUDAMemory) ! cudadownload ! {after}")) == expected);
        let bytes = [0, 1].map(|direction| copied()[direction] - before[direction]);
        assert!(bytes.iter().all(|&bytes| bytes >= FRAMES * 98 * 90), "{after} {bytes:?}");
    }
    assert_eq!(live_contexts(), 0);
}
