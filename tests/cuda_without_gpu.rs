//! The CUDA engine on a stand-in for the driver (tests/cuda/libcuda.cpp), which runs the kernels on the CPU and fails
//! when told to: the way of a frame, what it holds, and every failure, on any machine.

mod common;

use common::cases;
use common::machine::{Counts, Machine};
use common::video::{self, Blur, blurred, buffer, info, picture, read, stat};
use gst::prelude::*;
use gst_video::VideoFormat;
use gstcudagaussblur::cuda::launch::Passes;
use gstcudagaussblur::cuda::{CudaEngine, Image};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::frame::PlaneLayout;

const OUT_OF_MEMORY: i32 = 2;
const NO_DEVICE: i32 = 100;
const ILLEGAL_ADDRESS: i32 = 700;

#[test]
fn frames_go_through_the_device_and_come_back_blurred() {
    let _machine = Machine::new();
    for backend in ["auto", "cuda"] {
        let mut blur = Blur::new(&format!("backend={backend}"));
        assert_eq!(video::nick(&blur.element, "active-backend"), "cuda");
        let mut frames = 0;
        for (format, width, height) in
            [(VideoFormat::Rgba, 67, 21), (VideoFormat::Rgb, 65, 40), (VideoFormat::Gray8, 260, 9)]
        {
            let info = info(format, width, height);
            blur.caps(&info);
            for (sigma, kernel_size) in [(1.5, 7), (5.0, 0), (0.8, 0)] {
                blur.element.set_property("sigma", sigma);
                blur.element.set_property("kernel-size", kernel_size);
                let image = picture(&info, frames);
                let output = read(&info, &blur.push(buffer(&info, &image)));
                assert!(output == blurred(&image, sigma, kernel_size), "{format} sigma={sigma}");
                frames += 1;
            }
        }
        assert_eq!([stat(&blur, "frames"), stat(&blur, "frames-cuda"), stat(&blur, "frames-cpu")], [frames, frames, 0]);
        for stage in ["upload", "kernel", "download"] {
            assert!(stat(&blur, &format!("{stage}-last-ns")) > 0 && stat(&blur, &format!("{stage}-mean-ns")) > 0);
        }
        let stats = blur.element.property::<gst::Structure>("stats");
        assert_eq!(stats.get::<&str>("kernel").unwrap(), "general-sm_90");
        assert_eq!(stats.get::<&str>("compile-last-from").unwrap(), "none");
        assert!(!stats.get::<bool>("compiling").unwrap() && stat(&blur, "compile-last-ns") == 0);
        assert!(blur.messages(gst::MessageType::Warning).is_empty());
    }
}

/// The case table, as far as one thread for each CUDA thread gets in reasonable time, in every number of passes and of bands.
#[test]
fn the_engine_gives_the_oracles_bytes_in_any_passes_and_bands() {
    let _machine = Machine::new();
    let samples = |layout: &PlaneLayout| layout.row_samples() * layout.height as usize;
    let small = |case: &&cases::Case| case.planes.iter().map(samples).sum::<usize>() < 3000;
    let cases: Vec<_> = cases::all().into_iter().collect();
    let ways = [(Passes::Best, 0), (Passes::Fused, 7), (Passes::Split, 14)];
    for ((passes, offset), bands) in ways.into_iter().flat_map(|way| [1, 2, 5].map(|bands| (way, bands))) {
        let engine = CudaEngine::with(0, Image::Best, passes).unwrap();
        let mut engine = Engine::on_cuda(engine.in_bands(bands));
        let offset = offset + bands;
        let chosen: Vec<_> = cases.iter().filter(small).skip(offset).step_by(21).collect();
        let bytes: usize = chosen.iter().map(|case| case.check_engine(&mut engine)).sum();
        println!("{passes:?}, {bands} bands: {} cases, {bytes} bytes, 0 differ", chosen.len());
        assert!(chosen.len() > 20);
    }
}

#[test]
fn memory_is_made_once_for_frames_of_a_shape_and_the_context_once_for_all() {
    let machine = Machine::new();
    let mut blurs: Vec<Blur> = (0..3).map(|_| Blur::new("backend=cuda sigma=5")).collect();
    for (width, height) in [(64, 16), (33, 20)] {
        let info = info(VideoFormat::Rgb, width, height);
        let image = picture(&info, 1);
        let mut after_first = None;
        for _ in 0..3 {
            for blur in &mut blurs {
                if after_first.is_none() {
                    blur.caps(&info);
                }
                assert!(read(&info, &blur.push(buffer(&info, &image))) == blurred(&image, 5.0, 0));
            }
            let counts = machine.counts();
            assert_eq!(*after_first.get_or_insert(counts), counts, "something was made for a frame");
        }
        // Both frames on the device, the scratch of a wide kernel; what ordinary memory goes through, and the output's
        // buffer; a stream for each and two for all, and four events.
        let counts = after_first.unwrap();
        assert_eq!([counts.device_blocks, counts.pinned_blocks], [9, 6]);
        assert_eq!([counts.streams, counts.events], [5, 12]);
        assert!(counts.contexts <= 1 && counts.modules <= 1, "made more than once in the process: {counts:?}");
        assert_eq!(counts.current, 0, "a context was left current on somebody else's thread");
    }
    drop(blurs);
    let end = machine.counts();
    let there = |counts: Counts| [counts.device_blocks, counts.pinned_blocks, counts.streams, counts.events];
    assert_eq!(there(end), [0; 4], "something is left after stop");
}

/// Why CUDA cannot be used, each with its sentence: an error of the element with `backend=cuda`, the CPU with `auto`.
#[test]
fn what_is_missing_is_said_at_start() {
    let machine = Machine::new();
    let fine = (9, 0);
    type Setup<'a> = &'a dyn Fn(&Machine);
    let table: [(&str, Setup, gst::ResourceError, &[&str]); 8] = [
        ("", &|m| m.set(0, fine, (13, 0)), gst::ResourceError::NotFound, &["no CUDA device", "nvidia-smi"]),
        ("", &|m| m.fail("cuInit", 0, NO_DEVICE), gst::ResourceError::NotFound, &["CUDA_ERROR_NO_DEVICE", "hides it"]),
        ("", &|m| m.set(1, fine, (11, 7)), gst::ResourceError::NotFound, &["CUDA 11.7 only", "11.8", "520 or later"]),
        (
            "cuda-device-id=3",
            &|m| m.set(4, (5, 2), (12, 2)),
            gst::ResourceError::NotFound,
            &["device 3 (Stand-in)", "5.2", "6.0 is needed", "cuda-device-id"],
        ),
        (
            "cuda-device-id=7",
            &|m| m.set(2, fine, (12, 2)),
            gst::ResourceError::Settings,
            &["no CUDA device 7", "has 2, numbered from 0; set cuda-device-id"],
        ),
        (
            "cuda-device-id=1",
            &|m| (m.set(2, fine, (12, 2)), m.fail("cuDevicePrimaryCtxRetain", 0, OUT_OF_MEMORY)).1,
            gst::ResourceError::Failed,
            &["device 1 failed making a context", "CUDA_ERROR_OUT_OF_MEMORY"],
        ),
        (
            "cuda-device-id=1",
            &|m| (m.set(2, fine, (12, 2)), m.fail("cuModuleLoadData", 0, 209)).1,
            gst::ResourceError::Failed,
            &["device 1 failed loading the kernels"],
        ),
        ("", &|m| m.fail("cuStreamCreate", 0, ILLEGAL_ADDRESS), gst::ResourceError::Failed, &["ILLEGAL_ADDRESS"]),
    ];
    let info = info(VideoFormat::Rgb, 20, 10);
    let image = picture(&info, 1);
    for (properties, setup, kind, words) in table {
        setup(&machine);
        let element = video::element(&format!("backend=cuda {properties}"));
        let bus = video::bus_of(&element);
        assert!(element.set_state(gst::State::Paused).is_err(), "{words:?}: it started");
        let message = bus.pop_filtered(&[gst::MessageType::Error]).expect("an error on the bus");
        let gst::MessageView::Error(error) = message.view() else { unreachable!() };
        let text = error.error().to_string();
        println!("{text}");
        assert!(error.error().matches(kind), "{:?}", error.error());
        assert!(words.iter().all(|word| text.contains(word)), "{text}: not all of {words:?}");
        assert!(text.ends_with("or set backend=auto or backend=cpu to blur on the CPU"), "{text}");
        assert!(bus.pop_filtered(&[gst::MessageType::Error]).is_none(), "a second error");
        element.set_state(gst::State::Null).unwrap();

        let mut blur = Blur::new(properties);
        assert_eq!(video::nick(&blur.element, "active-backend"), "cpu", "{words:?}");
        blur.caps(&info);
        assert!(read(&info, &blur.push(buffer(&info, &image))) == blurred(&image, 1.5, 0));
        drop(blur);
        machine.mend();
        let counts = machine.counts();
        assert_eq!([counts.streams, counts.events, counts.current], [0; 3], "{words:?}: left behind");
    }
}

/// Runs a pipeline to its end; gives the frames that came out, and the bytes that the CPU copied for CUDA.
fn run(line: &str) -> (Vec<Vec<u8>>, u64) {
    let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Bin>().unwrap();
    let sink = pipeline.by_name("sink").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let frames = std::iter::from_fn(|| sink.pull_sample().ok());
    let frames = frames.map(|sample| sample.buffer().unwrap().map_readable().unwrap().to_vec()).collect();
    let stats = pipeline.by_name("blur").unwrap().property::<gst::Structure>("stats");
    pipeline.set_state(gst::State::Null).unwrap();
    (frames, stats.get("bytes-copied").unwrap())
}

/// An upstream that takes the pool it is offered, and a downstream that brings none, save both copies; a pool of others costs
/// them.
#[test]
fn frames_in_pinned_memory_are_not_copied_by_the_cpu() {
    let machine = Machine::new();
    video::init();
    let line = |before: &str, backend: &str| {
        format!(
            "videotestsrc num-buffers=3 ! video/x-raw,format=NV12,width=64,height=48 ! {before} \
             cudagaussblur name=blur backend={backend} ! appsink name=sink sync=false"
        )
    };
    let bytes = 3 * 64 * 48 * 3 / 2;
    let expected = run(&line("", "cpu")).0;
    assert_eq!(expected.len(), 3);
    for (before, copied) in [("", 0), ("queue !", 0), ("identity drop-allocation=true !", bytes)] {
        let (frames, own) = run(&line(before, "cuda"));
        assert!(frames == expected, "{before}");
        assert_eq!(own, copied, "{before}");
    }
    assert_eq!(machine.counts().pinned_blocks, 0, "pinned memory is left behind");
}

/// What can fail on the way of a frame, and the words for it.
const FAILURES: [(&str, i32, &str); 9] = [
    ("cuMemAlloc_v2", OUT_OF_MEMORY, "of device memory"),
    ("cuMemHostAlloc", OUT_OF_MEMORY, "of pinned host memory"),
    ("cuMemsetD8Async", ILLEGAL_ADDRESS, "clearing memory"),
    ("cuCtxPushCurrent_v2", ILLEGAL_ADDRESS, "entering its context"),
    ("cuEventRecord", ILLEGAL_ADDRESS, "recording an event"),
    ("cuMemcpyHtoDAsync_v2", ILLEGAL_ADDRESS, "uploading a frame: CUDA_ERROR_ILLEGAL_ADDRESS"),
    ("cuLaunchKernel", ILLEGAL_ADDRESS, "launching a kernel"),
    ("cuMemcpy2DAsync_v2", ILLEGAL_ADDRESS, "downloading a frame"),
    // A kernel or copy that fails while it runs is told to whoever asks next.
    ("cuEventQuery", ILLEGAL_ADDRESS, "blurring a frame"),
];

/// A driver that is older than the machine code's toolkit may refuse it.
#[test]
fn where_the_machine_code_does_not_load_the_portable_kernels_serve() {
    let machine = Machine::new();
    machine.set(6, (9, 0), (12, 2));
    machine.fail_times("cuModuleLoadData", 0, 1, 209);
    let mut blur = Blur::new("backend=cuda cuda-device-id=5");
    let info = info(VideoFormat::Rgb, 20, 10);
    let image = picture(&info, 1);
    blur.caps(&info);
    assert!(read(&info, &blur.push(buffer(&info, &image))) == blurred(&image, 1.5, 0));
    let stats = blur.element.property::<gst::Structure>("stats");
    assert_eq!(stats.get::<&str>("kernel").unwrap(), "general-ptx");
}

#[test]
fn two_devices_at_once_keep_their_contexts_apart() {
    let machine = Machine::new();
    machine.set(16, (9, 0), (12, 2));
    let info = info(VideoFormat::Rgb, 40, 10);
    let image = picture(&info, 1);
    let mut blurs = [14, 15].map(|id| Blur::new(&format!("backend=cuda sigma=5 cuda-device-id={id}")));
    for _ in 0..2 {
        for blur in &mut blurs {
            blur.caps(&info);
            assert!(read(&info, &blur.push(buffer(&info, &image))) == blurred(&image, 5.0, 0));
        }
    }
}

#[test]
fn with_auto_a_failure_in_mid_stream_is_a_warning_and_no_frame_is_lost() {
    let machine = Machine::new();
    for (function, status, words) in FAILURES {
        let mut blur = Blur::new("sigma=2");
        let mut pushed = 0;
        for width in [40, 41] {
            // A new shape, so that memory is made again.
            let info = info(VideoFormat::Rgba, width, 12);
            blur.caps(&info);
            for _ in 0..3 {
                let image = picture(&info, pushed);
                if pushed == 3 {
                    machine.fail(function, 0, status);
                }
                let output = blur.push(buffer(&info, &image));
                assert!(read(&info, &output) == blurred(&image, 2.0, 0), "{function}: frame {pushed}");
                pushed += 1;
            }
        }
        assert_eq!([stat(&blur, "frames-cuda"), stat(&blur, "frames-cpu")], [3, 3], "{function}");
        assert_eq!(video::nick(&blur.element, "active-backend"), "cpu");
        let warnings = blur.messages(gst::MessageType::Warning);
        assert_eq!(warnings.len(), 1, "{function}: {warnings:?}");
        assert!(warnings[0].contains(words) && warnings[0].contains("the CPU does the work"), "{}", warnings[0]);
        assert!(blur.messages(gst::MessageType::Error).is_empty());
        machine.mend();
        drop(blur);
    }
}

#[test]
fn with_cuda_a_failure_in_mid_stream_is_one_error() {
    let machine = Machine::new();
    for (function, status, words) in FAILURES {
        let mut blur = Blur::new("backend=cuda sigma=2");
        let info = info(VideoFormat::Rgba, 40, 12);
        let image = picture(&info, 1);
        blur.caps(&info);
        blur.push(buffer(&info, &image));
        let wider = video::info(VideoFormat::Rgba, 41, 12);
        blur.caps(&wider);
        machine.fail(function, 0, status);
        assert_eq!(blur.try_push(buffer(&wider, &picture(&wider, 2))), Err(gst::FlowError::Error), "{function}");
        let errors = blur.messages(gst::MessageType::Error);
        assert_eq!(errors.len(), 1, "{function}: {errors:?}");
        assert!(errors[0].contains(words) && errors[0].contains("backend=auto"), "{}", errors[0]);
        assert!(blur.messages(gst::MessageType::Warning).is_empty());
        assert_eq!(video::nick(&blur.element, "active-backend"), "cuda");
        machine.mend();
        drop(blur);
        let counts = machine.counts();
        assert_eq!([counts.device_blocks, counts.pinned_blocks, counts.current], [0; 3], "{function}: left behind");
    }
}
