//! Frames in `memory:CUDAMemory` without a GPU: GStreamer's CUDA library and its upload and download elements on the
//! fake CUDA driver and decoder library (tests/fake_cuda). Tests are ignored if this GStreamer lacks what they need.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::checks::{Row, has_words, run_one_by_one, trial};
use common::fake_driver::{DRIVER, FakeDriver, ILLEGAL_ADDRESS, INVALID_CONTEXT, LAUNCH_FAILED};
use common::fake_library::{self, call};
use common::gst_cuda::{self, Context, Handle};
use common::pipes::{self, COVERS, CUDA, stat};
use common::resident::Machine;
use common::video::{self, Blur};
use cudarc::driver::sys::{CUmemorytype, CUpointer_attribute, CUstream_flags};
use gst::prelude::*;
use gst_video::{VideoFormat, VideoFrame, VideoFrameExt, VideoInfo};

/// Calls a driver function and asserts that it succeeds.
macro_rules! driver {
    ($($call:tt)*) => { assert_eq!(call!(DRIVER, $($call)* -> i32), 0) };
}

const DEVICE_MEMORY: u32 = CUmemorytype::CU_MEMORYTYPE_DEVICE as u32;

static FAKE: Machine = Machine {
    frames: FRAMES as u64,
    size: [98, 60],
    widths: [53, 54, 512],
    height: 20,
    formats: [28, 15],
    // One CPU thread plays each CUDA thread.
    regions: &[
        ("NV12", [49, 38], [COVERS[1], COVERS[2], COVERS[3]].as_slice()),
        ("RGBA", [33, 21], &[COVERS[0]]),
        ("NV12", [48, 38], &[COVERS[5]]),
    ],
    in_use: FakeDriver::in_use,
    slack: 0,
    settled: 0,
};

fn main() {
    // The fake libraries have to be loaded before anything opens the real ones, and stay loaded.
    std::sync::LazyLock::force(&DRIVER);
    std::mem::forget(["libcuda", "libnvcuvid"].map(fake_library::open_as_installed));
    video::init();
    let has_library = gst_cuda::open();
    let has_elements = has_library && load_elements();
    let mut trials = FAKE.trials(has_elements);
    trials.extend([
        trial("fake_driver_rejects_work_across_contexts", true, work_across_contexts),
        trial("pool_buffers_map_on_host_and_device", has_library, pool_buffers),
        trial("cuda_memory_frames_are_blurred_without_copies", has_elements, no_copies),
        trial("frames_wait_in_every_memory_and_scarce_ones_are_copied", has_elements, look_ahead),
        trial("downstream_changes_its_memory_while_regions_are_covered", has_elements, renegotiated_memory),
        trial("elements_share_one_context", has_elements, one_context),
        trial("blur_adopts_the_context_of_each_input", has_elements, adopts_context),
        trial("cuda_device_id_overrides_an_earlier_context", has_library, device_id_set_later),
        trial("failures_on_cuda_memory_are_actionable_errors", has_elements, actionable_errors),
    ]);
    run_one_by_one(trials);
}

/// Whether GStreamer has `cudaupload` and `cudadownload`. The plugin is loaded anew, because the registry may come from
/// a process without the fake libraries, in which the plugin registered no element.
fn load_elements() -> bool {
    let plugin = gst::Registry::get().find_plugin("nvcodec").and_then(|plugin| plugin.filename());
    plugin.is_some_and(|file| gst::Plugin::load_file(file).is_ok())
        && ["cudaupload", "cudadownload"].iter().all(|name| gst::ElementFactory::find(name).is_some())
}

/// The fake driver with so many devices.
fn devices(count: i32) -> FakeDriver {
    let driver = FakeDriver::new();
    driver.set_devices(count, (9, 0), (13, 0));
    driver
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
    let machine = devices(2);
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
    assert_eq!(machine.live_contexts(), 2);
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
    assert_eq!(machine.live_contexts(), 0);
}

/// What the host writes to a pool buffer is uploaded when it is mapped on the device, and what the device writes is
/// downloaded when it is mapped on the host.
fn pool_buffers() {
    let machine = devices(1);
    let context = Context::new();
    let info = VideoInfo::builder(VideoFormat::Nv12, 52, 20).build().unwrap();
    let before = machine.copied();
    let mut stride = 0;
    let buffer = context.frame_with(&info, |frame| {
        for plane in 0..2 {
            frame.plane_data_mut(plane).unwrap().fill(40 + plane as u8);
        }
        stride = frame.plane_stride()[0];
    });
    assert_eq!(stride, 512, "not the pitch of the device memory");
    let address = gst_cuda::map_on_device(&buffer, gst::ffi::GST_MAP_READ | gst::ffi::GST_MAP_WRITE);
    assert_eq!(pointer_attributes(address.cast()), (context.handle(), 0, DEVICE_MEMORY));
    // SAFETY: device memory of the fake driver is host memory; the buffer's has 30 rows of 512 bytes, and nothing
    // else accesses it during the borrow.
    let on_device = unsafe { std::slice::from_raw_parts_mut(address, 30 * 512) };
    assert_eq!([on_device[0], on_device[19 * 512 + 51], on_device[20 * 512]], [40, 40, 41]);
    on_device[512] = 99;
    let frame = VideoFrame::from_buffer_readable(buffer, &info).unwrap();
    assert_eq!(frame.plane_data(0).unwrap()[512..514], [99, 40]);
    // GStreamer 1.22 also copies the rows between the planes.
    let [rows, downloaded] = [0, 1].map(|direction| machine.copied()[direction] - before[direction]);
    assert!([52 * 30, 52 * 40].contains(&rows), "{rows} bytes were uploaded");
    // A download before the first write, an upload, and a download again.
    assert_eq!(downloaded, 2 * rows);
    drop((frame, context));
    assert_eq!(machine.live_contexts(), 0);
}

/// The number of frames in each test pipeline, and their caps.
const FRAMES: usize = 4;
const NV12: &str = "video/x-raw,format=NV12,width=98,height=60";
/// Its alpha channel is opaque.
const RGBA: &str = "video/x-raw,format=RGBA,width=98,height=60";
const ZONE: &str = "region-mode=inside sigma=3 zones=<[zone,x=0.2,y=0.2,width=0.5,height=0.5]>";

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

fn run(caps: &str, elements: &str) -> Vec<Vec<u8>> {
    let pipeline = pipeline(caps, elements);
    let frames = pictures(&pipeline);
    pipeline.set_state(gst::State::Null).unwrap();
    frames
}

/// The blur adds no copies to those of upload and download, whether or not frames wait. To a sink that supports video metas
/// `cudadownload` passes the CUDA memory itself, which is downloaded when the sink maps it; for any other sink it copies the frame.
fn no_copies() {
    let machine = devices(1);
    let expected = run(NV12, "");
    for sink in ["", "identity drop-allocation=true !"] {
        let copied = |blur: &str| {
            let before = machine.copied();
            let frames = run(NV12, &format!("cudaupload ! {CUDA} ! {blur} cudadownload ! {sink}"));
            (frames, [0, 1].map(|direction| machine.copied()[direction] - before[direction]))
        };
        let (frames, without) = copied("");
        assert!(frames == expected && without.iter().all(|&bytes| bytes >= FRAMES * 98 * 90), "{sink} {without:?}");
        for blur in ["sigma=3", &format!("{ZONE} look-ahead=2")] {
            assert_eq!(copied(&format!("cudagaussblur {blur} !")).1, without, "{blur}, {sink}: frames were copied");
        }
    }
    assert_eq!(machine.live_contexts(), 0);
}

/// A decoder's surfaces, which no pool hands out, are copied on the device while they wait; frames of another context push
/// those before them.
fn look_ahead() {
    let machine = devices(2);
    let (info, [mut blur, mut with_cpu]) = on_both_devices(&format!("{ZONE} look-ahead=2"));
    let contexts = [0, 1].map(Context::on);
    let mut is_surface = [false; 8];
    for seed in 0..8 {
        let [frame, same] = [0, 1].map(|_| contexts[seed / 4].noise(&info, seed as u64));
        // The copy shares the memory and has no pool. Later versions of GStreamer name the frame as its parent, whose pool has no
        // maximum.
        let pushed = if seed % 2 == 1 { frame.copy() } else { frame };
        is_surface[seed] = seed % 2 == 1 && pushed.meta::<gst::ParentBufferMeta>().is_none();
        blur.try_push(pushed).unwrap();
        with_cpu.try_push(same).unwrap();
        let left = (seed + 1).saturating_sub(2).max(if seed >= 4 { 4 } else { 0 });
        assert_eq!(blur.harness.buffers_received() as usize, left, "after frame {seed}");
    }
    blur.end();
    with_cpu.end();
    for seed in 0..8 {
        let [got, want] = [&mut blur, &mut with_cpu].map(|blur| luma(&info, blur.harness.pull().unwrap()));
        assert!(got == want, "frame {seed}");
    }
    let surfaces = is_surface.into_iter().filter(|is_surface| *is_surface).count() as u64;
    assert_eq!(blur.stats(["frames-copied", "frames-on-device"]), [surfaces, 8]);
    drop((blur, with_cpu, contexts));
    assert_eq!(machine.live_contexts(), 0);
}

/// Downstream asks for other memory between frames, and gets every frame in order and covered, those that wait in the memory of before.
fn renegotiated_memory() {
    let _machine = devices(1);
    const FRAMES: u64 = 12;
    let info = video::info(VideoFormat::Rgba, 40, 24);
    for properties in ["look-ahead=0", "look-ahead=3", "look-ahead=3 region-mode=outside", "region-mode=frame"] {
        let _row = Row(properties.to_owned());
        let with = |backend: &str| Blur::with(&format!("{ZONE} {properties} backend={backend}"), &info);
        let [mut blur, mut with_cpu] = ["cuda", "cpu"].map(with);
        for seed in 0..FRAMES {
            // Twice in a row, too, and back.
            match seed {
                2 | 3 | 9 => blur.harness.set_sink_caps(format!("{CUDA},format=RGBA").parse().unwrap()),
                6 => blur.harness.set_sink_caps("video/x-raw,format=RGBA".parse().unwrap()),
                _ => (),
            }
            for blur in [&mut blur, &mut with_cpu] {
                blur.push_noise(&info, seed);
                assert!(blur.messages(gst::MessageType::Error).is_empty());
            }
        }
        blur.end();
        with_cpu.end();
        for frame in 0..FRAMES {
            let [got, want] = [&mut blur, &mut with_cpu].map(|blur| blur.harness.try_pull());
            let (got, want) = (got.expect("a frame is lost"), want.unwrap());
            assert_eq!(got.pts(), want.pts(), "frame {frame}");
            assert!(video::read(&info, &got) == video::read(&info, &want), "frame {frame}");
        }
        assert_eq!(blur.stats(["frames-cpu"]), [0]);
    }
}

/// The elements of a pipeline share one context: checks how many exist besides the device's primary one while it plays.
fn one_context() {
    let machine = devices(1);
    for (elements, own) in [
        // The last element starts first and creates a context, which the others adopt.
        (&*format!("cudaupload ! {CUDA} ! cudagaussblur name=blur ! cudadownload !"), 1),
        // The blur starts first and shares the primary context.
        (&*format!("cudaupload ! {CUDA} ! cudagaussblur name=blur !"), 0),
        ("cudagaussblur name=blur ! cudagaussblur !", 0),
        (&*format!("cudagaussblur name=blur ! capsfilter caps=\"{CUDA};video/x-raw\" !"), 0),
    ] {
        let _row = Row(elements.to_owned());
        let pipeline = pipeline(NV12, elements);
        pictures(&pipeline);
        let caps = pipeline.by_name("blur").unwrap().static_pad("src").unwrap().current_caps().unwrap();
        let on_device = caps.features(0).unwrap().contains("memory:CUDAMemory");
        assert_eq!(on_device, elements.starts_with("cudaupload"), "frames change memory without need: {caps}");
        assert_eq!((machine.live_contexts(), stat(&pipeline, "frames-cuda")), (own, FRAMES as u64));
        pipeline.set_state(gst::State::Null).unwrap();
        drop(pipeline);
        assert_eq!(machine.live_contexts(), 0);
    }
}

/// An element that outputs CUDA memory, and one on the CPU, for NV12 frames in CUDA memory.
fn on_both_devices(properties: &str) -> (VideoInfo, [Blur; 2]) {
    video::init();
    let info = VideoInfo::builder(VideoFormat::Nv12, 64, 32).fps((25, 1)).build().unwrap();
    let with = |(backend, feature): (&str, &str)| {
        let mut blur = Blur::new(&format!("backend={backend} {properties}"));
        let caps = format!("video/x-raw{feature},format=NV12,width=64,height=32,framerate=25/1");
        blur.harness.set_src_caps(caps.parse().unwrap());
        blur
    };
    (info, [("cuda", "(memory:CUDAMemory)"), ("cpu", "")].map(with))
}

fn luma(info: &VideoInfo, buffer: gst::Buffer) -> Vec<u8> {
    let frame = VideoFrame::from_buffer_readable(buffer, info).unwrap();
    let rows = frame.plane_data(0).unwrap().chunks(frame.plane_stride()[0] as usize).take(32);
    rows.flat_map(|row| row[..64].to_vec()).collect()
}

fn adopts_context() {
    let machine = devices(2);
    let (info, [mut blur, mut with_cpu]) = on_both_devices("sigma=2");
    let contexts = [0, 1, 0].map(Context::on);
    for (seed, context) in contexts.iter().chain(&contexts).enumerate() {
        let frame = context.noise(&info, seed as u64);
        let [got, want] = [&mut blur, &mut with_cpu].map(|blur| luma(&info, blur.push(frame.clone())));
        assert!(got == want, "frame {seed}");
    }
    assert_eq!(blur.stats(["frames-on-device"]), [6]);
    drop((blur, with_cpu));

    // An element with cuda-device-id set does not change devices.
    let (_, [mut blur, with_cpu]) = on_both_devices("sigma=2 cuda-device-id=1");
    blur.try_push(contexts[1].noise(&info, 1)).unwrap();
    blur.refuses(contexts[0].noise(&info, 1), &["CUDA device 0, but cuda-device-id=1; set cuda-device-id to 0 or -1"]);
    drop((blur, with_cpu, contexts));
    assert_eq!(machine.live_contexts(), 0);
}

/// A context that was set before `cuda-device-id` selected another device is not used.
fn device_id_set_later() {
    let _machine = devices(2);
    let element = video::element("backend=cuda");
    element.set_context(&Context::new().shared());
    element.set_property("cuda-device-id", 1);
    element.set_state(gst::State::Paused).unwrap();
    let mut query = gst::query::Context::new("gst.cuda.context");
    assert!(element.static_pad("src").unwrap().query(&mut query));
    let found = query.context_owned().unwrap().structure().get::<gst::Object>("gst.cuda.context").unwrap();
    assert_eq!(found.property::<u32>("cuda-device-id"), 1);
    element.set_state(gst::State::Null).unwrap();
}

/// Plays the pipeline until it fails, and checks that the error has these words.
#[track_caller]
fn fails(caps: &str, elements: &str, words: &[&str]) {
    let pipeline = pipeline(caps, elements);
    let _ = pipeline.set_state(gst::State::Playing);
    let kinds = [gst::MessageType::Error, gst::MessageType::Eos];
    let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(20), &kinds);
    pipeline.set_state(gst::State::Null).unwrap();
    has_words(&format!("{:?}", end.expect("an end").view()), words);
}

fn actionable_errors() {
    let machine = devices(1);
    let on_device =
        |properties: &str| format!("cudaupload ! {CUDA} ! cudagaussblur {properties} ! {CUDA} ! cudadownload !");
    // On the CPU the sink caps exclude CUDA memory, so that upstream negotiates host memory if it can.
    let with_cpu = Blur::new("backend=cpu");
    let sink_caps = with_cpu.element.static_pad("sink").unwrap().query_caps(None);
    assert!(sink_caps.iter_with_features().all(|(_, features)| !features.contains("memory:CUDAMemory")), "{sink_caps}");
    fails(NV12, &on_device("backend=cpu"), &["CUDA memory cannot be blurred on the CPU; set backend=auto"]);
    // The alpha channel of host memory is read whichever backend covers; that of CUDA memory is not.
    let alpha = "region-mode=inside region-sources=alpha";
    let refused = "the frames are in CUDA memory, where the element does not read the alpha";
    fails(RGBA, &on_device(alpha), &[refused, "insert cudadownload before cudagaussblur"]);
    let on_host = |backend: &str| run(RGBA, &format!("cudagaussblur {alpha} backend={backend} !"));
    assert!(on_host("cuda") == on_host("cpu"));
    let soft = format!("backend=cuda {ZONE} region-sources=zones shape=ellipse");
    for settings in ["backend=auto", "backend=cuda", &soft] {
        machine.fail("cuLaunchKernel", 3, LAUNCH_FAILED);
        fails(NV12, &on_device(settings), &["device 0 failed launching a kernel", "the frame is in CUDA memory"]);
        machine.clear_faults();
    }
}
