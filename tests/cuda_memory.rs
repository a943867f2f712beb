//! Frames in `memory:CUDAMemory` without a GPU: GStreamer's CUDA library and its upload and download elements on the
//! fake CUDA driver and decoder library (tests/fake_cuda). Tests are ignored if this GStreamer lacks what they need.

mod common;

use std::sync::Arc;

use common::Noise;
use common::checks::{Row, run_one_by_one, trial};
use common::fake_driver::{DRIVER, FakeDriver, LAUNCH_FAILED};
use common::fake_library;
use common::gst_cuda::{self, Context};
use common::pipes::{self, COVERS, CUDA, stat};
use common::resident::Machine;
use common::video::{self, Blur};
use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cuda::driver::device::Device;
use gstcudagaussblur::cuda::driver::{DeviceMemory, PinnedMemory, Stream};
use gstcudagaussblur::cuda::process;

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
        trial("cuda_memory_frames_are_blurred_without_copies", has_elements, no_copies),
        trial("frames_of_several_contexts_wait_and_scarce_ones_are_copied", has_library, contexts),
        trial("frames_in_flight_leave_before_other_caps", has_library, other_caps),
        trial("elements_share_one_context", has_elements, one_context),
        trial("cuda_device_id_overrides_an_earlier_context", has_library, device_id_set_later),
        trial("failures_on_cuda_memory_are_actionable_errors", has_elements, actionable_errors),
        trial("detectors_download_the_frames_that_they_search_alone", has_elements && load_detectors(), detectors),
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

/// Whether the plugin of the detectors was built, which the packaged crate does not have, and the model of `centerface` is there.
fn load_detectors() -> bool {
    let file = std::env::current_exe().unwrap().with_file_name(format!(
        "{}gstdetectors{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    ));
    let folder = std::env::var_os("CUDAGAUSSBLUR_MODELS").filter(|folder| !folder.is_empty());
    let folder = folder.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/target/models").into());
    MODEL.set(std::path::Path::new(&folder).join("centerface.onnx")).unwrap();
    MODEL.get().unwrap().exists() && gst::Plugin::load_file(file).is_ok()
}

static MODEL: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();

/// Work is rejected on a stream of a context that is not current, and on memory of another device.
fn work_across_contexts() {
    let _machine = FakeDriver::with_devices(2);
    let [first, second] = [0, 1].map(|id| process::open(id).unwrap().device().clone());
    let own = |device: &Arc<Device>| {
        let _current = device.enter().unwrap();
        let stream = Stream::new(device).unwrap();
        (DeviceMemory::new(16, &stream).unwrap(), stream)
    };
    let [(near, stream), (far, far_stream)] = [own(&first), own(&second)];
    let _current = first.enter().unwrap();
    let pinned = PinnedMemory::new(16, &first).unwrap();
    for (memory, stream, status) in
        [(&near, &stream, ""), (&near, &far_stream, "INVALID_CONTEXT"), (&far, &stream, "ILLEGAL_ADDRESS")]
    {
        // SAFETY: both have the bytes, and live until the stream has done the work.
        let copied = unsafe { stream.copy(&pinned.row(16), &memory.row(16), 16, 1) };
        let error = copied.and_then(|()| stream.synchronize()).err().map_or(String::new(), |error| error.to_string());
        assert!(error.contains(status) && error.is_empty() == status.is_empty(), "{error}, not {status}");
    }
    drop((near, stream, far, far_stream));
}

/// The number of frames in each test pipeline, and their caps.
const FRAMES: usize = 4;
const NV12: &str = "video/x-raw,format=NV12,width=98,height=60";
/// Its alpha channel is opaque.
const RGBA: &str = "video/x-raw,format=RGBA,width=98,height=60";
const ZONE: &str = "region-mode=inside sigma=3 zones=<[zone,x=0.2,y=0.2,width=0.5,height=0.5]>";

/// Plays a test source and elements in front of an appsink, and returns the output pictures.
fn run(caps: &str, elements: &str) -> Vec<Vec<u8>> {
    let (frames, _) = pipes::play(&format!("{} {elements}", source(caps)));
    assert_eq!(frames.len(), FRAMES);
    frames
}

fn source(caps: &str) -> String {
    format!("videotestsrc num-buffers={FRAMES} ! {caps}")
}

/// The blur adds no copies to those of upload and download, whether or not frames wait. To a sink that supports video metas
/// `cudadownload` passes the CUDA memory itself, which is downloaded when the sink maps it; for any other sink it copies the frame.
fn no_copies() {
    let machine = FakeDriver::new();
    let expected = run(NV12, "");
    for sink in ["", "! identity drop-allocation=true"] {
        let copied = |blur: &str| {
            let before = machine.copied();
            let frames = run(NV12, &format!("! cudaupload ! {CUDA} ! {blur} cudadownload {sink}"));
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

/// The blur adopts the context of each frame, and pushes those of another before it. A decoder's surfaces, which no pool hands out,
/// are copied on the device while they wait.
fn contexts() {
    let machine = FakeDriver::with_devices(2);
    let contexts = [0, 1, 0].map(Context::on);
    for (look_ahead, waiting) in [("", 0), (&*format!("{ZONE} look-ahead=2"), 2)] {
        let (info, [mut blur, mut with_cpu]) = on_both_devices(&format!("sigma=2 {look_ahead}"));
        let mut surfaces = 0;
        for seed in 0..12 {
            let context = seed / 3 % 3;
            let [frame, same] = [0, 1].map(|_| noise(&contexts[context], &info, seed as u64));
            // As a detector does. What is covered afterwards is not what was read.
            video::bytes(&info, frame.clone());
            // The copy shares the memory and has no pool. Later versions of GStreamer name the frame as its parent, whose pool has no
            // maximum.
            let pushed = if seed % 2 == 1 { frame.copy() } else { frame };
            let is_surface = seed % 2 == 1 && pushed.meta::<gst::ParentBufferMeta>().is_none();
            surfaces += u64::from(is_surface && waiting > 0);
            blur.try_push(pushed).unwrap();
            with_cpu.try_push(same).unwrap();
            let left = (seed + 1).saturating_sub(waiting).max(seed / 3 * 3);
            assert_eq!(blur.harness.buffers_received() as usize, left, "after frame {seed}");
        }
        blur.end();
        with_cpu.end();
        for seed in 0..12 {
            let [got, want] = [&mut blur, &mut with_cpu].map(|blur| video::bytes(&info, blur.harness.pull().unwrap()));
            assert!(got == want, "frame {seed}");
        }
        assert_eq!(blur.stats(["frames-copied", "frames-on-device"]), [surfaces, 12]);
    }
    // An element with cuda-device-id set does not change devices.
    let (info, [mut blur, with_cpu]) = on_both_devices("sigma=2 cuda-device-id=1");
    blur.try_push(noise(&contexts[1], &info, 1)).unwrap();
    let words = "CUDA device 0, but cuda-device-id=1; set cuda-device-id to 0 or -1";
    blur.refuses(noise(&contexts[0], &info, 1), &[words]);
    drop((blur, with_cpu, contexts));
    assert_eq!(machine.live_contexts(), 0);
}

/// Downstream takes other memory from some frame on.
fn other_caps() {
    let machine = FakeDriver::new();
    let properties = "backend=cuda region-mode=frame sigma=2 max-in-flight=3";
    let mut stream = common::stream::Stream::of(&video::info(VideoFormat::Nv12, 64, 32), properties);
    machine.is_busy(9);
    stream.plays(&[("frame*2", "")]);
    stream.harness.set_sink_caps(CUDA.parse().unwrap());
    stream.plays(&[("frame", "0-1 caps"), ("eos", "2 eos")]);
}

/// The elements of a pipeline share one context: checks how many exist besides the device's primary one while it plays.
fn one_context() {
    let machine = FakeDriver::new();
    for (elements, own) in [
        // The last element starts first and creates a context, which the others adopt.
        (&*format!("cudaupload ! {CUDA} ! cudagaussblur name=blur ! cudadownload"), 1),
        // The blur starts first and shares the primary context.
        (&*format!("cudaupload ! {CUDA} ! cudagaussblur name=blur"), 0),
        ("cudagaussblur name=blur ! cudagaussblur", 0),
        (&*format!("cudagaussblur name=blur ! capsfilter caps=\"{CUDA};video/x-raw\""), 0),
    ] {
        let _row = Row(elements.to_owned());
        let pipeline = pipes::pipeline(&format!("{} ! {elements} ! appsink name=sink sync=false", source(NV12)));
        assert_eq!(pipes::pictures(&pipeline).count(), FRAMES);
        pipes::no_errors(&pipeline);
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
    let info = video::info(VideoFormat::Nv12, 64, 32);
    let with = |(backend, feature): (&str, &str)| {
        let mut blur = Blur::new(&format!("backend={backend} {properties}"));
        let caps = format!("video/x-raw{feature},format=NV12,width=64,height=32,framerate=25/1");
        blur.harness.set_src_caps(caps.parse().unwrap());
        blur
    };
    (info, [("cuda", "(memory:CUDAMemory)"), ("cpu", "")].map(with))
}

/// A frame of noise for them.
fn noise(context: &Context, info: &VideoInfo, seed: u64) -> gst::Buffer {
    let bytes = Noise(seed).bytes(64 * 48);
    context.frame(info, &[(&bytes[..64 * 32], 64, 64), (&bytes[64 * 32..], 64, 64)])
}

/// A context that was set before `cuda-device-id` selected another device is not used.
fn device_id_set_later() {
    let _machine = FakeDriver::with_devices(2);
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

fn actionable_errors() {
    let machine = FakeDriver::new();
    let fails = |caps: &str, properties: &str, words: &[&str]| {
        let blur = format!("cudaupload ! {CUDA} ! cudagaussblur {properties} ! {CUDA} ! cudadownload");
        pipes::fails(&format!("{} ! {blur}", source(caps)), words);
    };
    // On the CPU the sink caps exclude CUDA memory, so that upstream negotiates host memory if it can.
    let with_cpu = Blur::new("backend=cpu");
    let sink_caps = with_cpu.element.static_pad("sink").unwrap().query_caps(None);
    assert!(sink_caps.iter_with_features().all(|(_, features)| !features.contains("memory:CUDAMemory")), "{sink_caps}");
    fails(NV12, "backend=cpu", &["CUDA memory cannot be blurred on the CPU; set backend=auto"]);
    // The alpha channel of host memory is read whichever backend covers; that of CUDA memory is not.
    let alpha = "region-mode=inside region-sources=alpha";
    let refused = "the frames are in CUDA memory, where the element does not read the alpha";
    fails(RGBA, alpha, &[refused, "insert cudadownload before cudagaussblur"]);
    let on_host = |backend: &str| run(RGBA, &format!("! cudagaussblur {alpha} backend={backend}"));
    assert!(on_host("cuda") == on_host("cpu"));
    let soft = format!("backend=cuda {ZONE} region-sources=zones shape=ellipse");
    for settings in ["backend=auto", "backend=cuda", &soft] {
        machine.fail("cuLaunchKernel", 3, LAUNCH_FAILED);
        fails(NV12, settings, &["device 0 failed launching a kernel", "the frame is in CUDA memory"]);
        machine.clear_faults();
    }
}

/// `centerface` finds the same boxes in CUDA memory, of which it downloads the frames that it searches, and the pool of the element
/// behind it reaches the one in front of it.
fn detectors() {
    let machine = FakeDriver::new();
    let source = format!(
        "filesrc location=\"{}/examples/demo/face.jpg\" ! jpegdec ! imagefreeze num-buffers=12 ! videoconvert ! videoscale ! \
         video/x-raw,format=NV12,width=480,height=400,framerate=30/1",
        env!("CARGO_MANIFEST_DIR")
    );
    let detector = format!("centerface name=detector model=\"{}\"", MODEL.get().unwrap().display());
    // The regions of each frame, the number of frames that were searched, and the bytes that were copied to the device and back.
    let found = |before: &str, every: u32, behind: &str, check: &dyn Fn(&gst::Bin)| {
        let elements = format!("{source} ! {before} {detector} every={every} {behind} ! appsink name=sink sync=false");
        let pipeline = pipes::pipeline(&elements);
        let sink = pipeline.by_name("sink").unwrap().downcast::<gst_app::AppSink>().unwrap();
        let copied = machine.copied();
        pipeline.set_state(gst::State::Playing).unwrap();
        let mut regions = Vec::new();
        while let Ok(sample) = sink.pull_sample() {
            let metas = sample.buffer().unwrap().iter_meta::<gst_video::VideoRegionOfInterestMeta>();
            regions.push(metas.map(|meta| (meta.roi_type().to_owned(), meta.rect())).collect::<Vec<_>>());
        }
        pipes::no_errors(&pipeline);
        let stats = pipeline.by_name("detector").unwrap().property::<gst::Structure>("stats");
        check(&pipeline);
        pipeline.set_state(gst::State::Null).unwrap();
        let copied = [0, 1].map(|direction| machine.copied()[direction] - copied[direction]);
        (regions, stats.get::<u64>("searched").unwrap() as usize, copied)
    };
    let (expected, searched, _) = found("", 5, "", &|_| ());
    // The second one, because the face of the first one is new; and frames 6 and 11.
    assert_eq!((expected.len(), searched, expected[11][0].0.as_str()), (12, 4, "face"));
    let on_device = format!("cudaupload ! {CUDA} !");
    let (_, all, [_, down]) = found(&on_device, 1, "", &|_| ());
    assert!(all == 12 && down >= 12 * 480 * 400 * 3 / 2, "{all} searches, {down} bytes");
    let blur = format!("! cudagaussblur name=blur region-mode=inside cover=fill look-ahead=3 ! {CUDA}");
    for (behind, pools, stats) in [("", 0, None), (&*blur, 1, Some([12, 0]))] {
        let check = |pipeline: &gst::Bin| {
            let pad = pipeline.by_name("detector").unwrap().static_pad("sink").unwrap();
            let mut query = gst::query::Allocation::new(Some(&pad.current_caps().unwrap()), true);
            assert_eq!(pad.query(&mut query), pools > 0, "{behind}");
            let proposed = query.allocation_pools().filter_map(|pool| pool.0);
            let names: Vec<_> = proposed.map(|pool| pool.type_().name()).collect();
            assert_eq!(names, ["GstCudaBufferPool"].repeat(pools), "{behind}");
            let found = stats.map(|_| ["frames-on-device", "frames-copied"].map(|name| stat(pipeline, name)));
            assert_eq!(found, stats, "{behind}");
        };
        let result = found(&on_device, 5, behind, &check);
        assert_eq!(result, (expected.clone(), searched, [12 * 480 * 400 * 3 / 2, down / 12 * searched]), "{behind}");
    }
    assert_eq!(machine.live_contexts(), 0);
}
