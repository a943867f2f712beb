//! The element and the CUDA engine on the fake CUDA driver (tests/fake_cuda): output, memory use, start-up errors and
//! failures mid-stream.

use crate::common::cases;
use crate::common::fake_driver::{Counts, FakeDriver};
use crate::common::oracle::Image as Picture;
use crate::common::video::{self, Blur, blurred, buffer, info, picture, read, stat};
use gst::prelude::*;
use gst_video::VideoFormat;
use gstcudagaussblur::cuda::PassStrategy;
use gstcudagaussblur::cuda::{CudaEngine, Image};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::frame::PlaneLayout;

const OUT_OF_MEMORY: i32 = 2;
const NO_DEVICE: i32 = 100;
const NO_BINARY_FOR_GPU: i32 = 209;
const ILLEGAL_ADDRESS: i32 = 700;

#[cfg_attr(not(feature = "cubins"), ignore = "expects the kernels of the machine code")]
#[test]
fn cuda_output_matches_the_oracle_and_is_counted_in_stats() {
    let _driver = FakeDriver::new();
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
        assert_eq!(stats.get::<u64>("kernel-since").unwrap(), 0);
        assert!(!stats.get::<bool>("compiling").unwrap() && stat(&blur, "compile-last-ns") == 0);
        assert!(blur.messages(gst::MessageType::Warning).is_empty());
    }
}

/// The smaller cases of the case table (a coroutine plays each CUDA thread), with every pass strategy and number of
/// bands; with `CUDAGAUSSBLUR_CASE`, all cases that it selects.
#[test]
fn engine_matches_the_oracle_for_every_pass_strategy_and_band_count() {
    let _driver = FakeDriver::new();
    let samples = |layout: &PlaneLayout| layout.row_samples() * layout.height as usize;
    let small = |case: &&cases::Case| case.planes.iter().map(samples).sum::<usize>() < 3000;
    let cases = cases::all();
    let ways = [(PassStrategy::Best, 0), (PassStrategy::Split, 7)];
    for ((passes, offset), bands) in ways.into_iter().flat_map(|way| [1, 2, 5].map(|bands| (way, bands))) {
        let engine = CudaEngine::with_kernels(0, Image::Best, passes).unwrap();
        let mut engine = Engine::with_cuda(engine.with_bands(bands));
        let offset = offset + bands;
        let chosen: Vec<_> = match cases::selection() {
            Some(_) => cases.iter().collect(),
            None => cases.iter().filter(small).skip(offset).step_by(21).collect(),
        };
        let bytes: usize = chosen.iter().map(|case| case.check_engine(&mut engine)).sum();
        println!("{passes:?}, {bands} bands: {} cases, {bytes} bytes, 0 differ", chosen.len());
        cases::assert_enough(chosen.len(), 21);
    }
}

/// The failure tests leave the two streams that all elements share behind, with the memory of abandoned frames.
#[test]
fn memory_is_allocated_once_per_caps_and_the_context_once_per_process() {
    let driver = FakeDriver::new();
    let mut blurs: Vec<Blur> = (0..3).map(|_| Blur::new("backend=cuda sigma=5")).collect();
    // One each, and on Windows another for frames in CUDA memory, because GStreamer's library opens the fake driver there, too.
    let own = if video::cuda_formats().is_empty() { 3 } else { 6 };
    let shared = driver.counts().streams - own;
    assert!([0, 2].contains(&shared), "{shared} streams are shared");
    for (width, height) in [(64, 16), (33, 20)] {
        let info = info(VideoFormat::Rgb, width, height);
        let image = picture(&info, 1);
        let mut after_first = None;
        for frame in 0..4 {
            for blur in &mut blurs {
                if frame == 0 {
                    blur.caps(&info);
                }
                assert!(read(&info, &blur.push(buffer(&info, &image))) == blurred(&image, 5.0, 0));
            }
            let counts = driver.counts();
            assert_eq!(*after_first.get_or_insert(counts), counts, "a frame allocated memory or created an object");
        }
        // Per element: three device blocks (input, output, workspace of the wide kernel), two pinned blocks (staging
        // buffer, output buffer), its streams and eleven events. All elements share two more streams.
        let counts = after_first.unwrap();
        assert_eq!([counts.device_blocks, counts.pinned_blocks], [9, 6]);
        assert_eq!([counts.streams - shared, counts.events], [own, 33]);
        assert!(counts.contexts <= 1, "more than one context: {counts:?}");
        assert_eq!(counts.current, 0, "a context was left current on the streaming thread");
    }
    drop(blurs);
    let end = driver.counts();
    let live = |counts: Counts| [counts.device_blocks, counts.pinned_blocks, counts.streams, counts.events];
    assert_eq!(live(end), [0; 4], "leaked after stop");
}

/// Each reason why CUDA cannot be used is an error that names it with `backend=cuda`, and selects the CPU with `auto`.
#[test]
fn unusable_cuda_fails_the_start_or_selects_the_cpu() {
    let driver = FakeDriver::new();
    let supported = (9, 0);
    type Setup<'a> = &'a dyn Fn(&FakeDriver);
    let table: [(&str, Setup, gst::ResourceError, &[&str]); 8] = [
        (
            "",
            &|d| d.set_devices(0, supported, (13, 0)),
            gst::ResourceError::NotFound,
            &["no CUDA device", "nvidia-smi"],
        ),
        ("", &|d| d.fail("cuInit", 0, NO_DEVICE), gst::ResourceError::NotFound, &["CUDA_ERROR_NO_DEVICE", "hides it"]),
        (
            "",
            &|d| d.set_devices(1, supported, (11, 7)),
            gst::ResourceError::NotFound,
            &["CUDA 11.7 only", "11.8", "520 or later"],
        ),
        (
            "cuda-device-id=3",
            &|d| d.set_devices(4, (5, 2), (12, 2)),
            gst::ResourceError::NotFound,
            &["device 3 (Fake GPU)", "5.2", "6.0 is needed", "cuda-device-id"],
        ),
        (
            "cuda-device-id=7",
            &|d| d.set_devices(2, supported, (12, 2)),
            gst::ResourceError::Settings,
            &["no CUDA device 7", "has 2, numbered from 0; set cuda-device-id"],
        ),
        (
            "cuda-device-id=1",
            &|d| (d.set_devices(2, supported, (12, 2)), d.fail("cuDevicePrimaryCtxRetain", 0, OUT_OF_MEMORY)).1,
            gst::ResourceError::Failed,
            &["device 1 failed making a context", "CUDA_ERROR_OUT_OF_MEMORY"],
        ),
        (
            "cuda-device-id=1",
            &|d| (d.set_devices(2, supported, (12, 2)), d.fail("cuModuleLoadData", 0, NO_BINARY_FOR_GPU)).1,
            gst::ResourceError::Failed,
            &["device 1 failed loading the kernels"],
        ),
        ("", &|d| d.fail("cuStreamCreate", 0, ILLEGAL_ADDRESS), gst::ResourceError::Failed, &["ILLEGAL_ADDRESS"]),
    ];
    let info = info(VideoFormat::Rgb, 20, 10);
    let image = picture(&info, 1);
    for (properties, setup, kind, words) in table {
        setup(&driver);
        let element = video::element(&format!("backend=cuda {properties}"));
        let bus = video::bus_of(&element);
        assert!(element.set_state(gst::State::Paused).is_err(), "{words:?}: the start succeeded");
        let message = bus.pop_filtered(&[gst::MessageType::Error]).expect("no error on the bus");
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
        driver.clear_faults();
        let counts = driver.counts();
        assert_eq!([counts.streams, counts.events, counts.current], [0; 3], "{words:?}: leaked");
    }
}

/// Runs a pipeline to its end. Returns its output frames and the bytes that the CPU copied to and from pinned memory.
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

/// No host copy is needed if upstream uses the pool it is offered and downstream offers none; buffers from elsewhere
/// are copied.
#[test]
fn frames_in_pinned_memory_cause_no_host_copies() {
    let driver = FakeDriver::new();
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
    assert_eq!(driver.counts().pinned_blocks, 0, "pinned memory is leaked");
}

/// The driver calls of a frame that can fail, how many of them precede the failure, and a part of the message for each.
const FAILURES: [(&str, i32, i32, &str); 9] = [
    ("cuMemAlloc_v2", 0, OUT_OF_MEMORY, "of device memory"),
    ("cuMemsetD8Async", 0, ILLEGAL_ADDRESS, "clearing memory"),
    ("cuCtxPushCurrent_v2", 0, ILLEGAL_ADDRESS, "entering its context"),
    ("cuEventRecord", 0, ILLEGAL_ADDRESS, "recording an event"),
    // The first one is the output's.
    ("cuMemHostAlloc", 1, OUT_OF_MEMORY, "of pinned host memory"),
    ("cuMemcpyHtoDAsync_v2", 0, ILLEGAL_ADDRESS, "uploading a frame: CUDA_ERROR_ILLEGAL_ADDRESS"),
    ("cuLaunchKernel", 0, ILLEGAL_ADDRESS, "launching a kernel"),
    ("cuMemcpy2DAsync_v2", 0, ILLEGAL_ADDRESS, "downloading a frame"),
    // The failure of a kernel or copy while it runs is reported by the next query.
    ("cuEventQuery", 0, ILLEGAL_ADDRESS, "blurring a frame"),
];

/// A driver older than the toolkit that built the CUBINs may fail to load them.
#[cfg_attr(not(feature = "cubins"), ignore = "expects the kernels of the machine code")]
#[test]
fn ptx_kernels_are_used_if_the_cubin_does_not_load() {
    let driver = FakeDriver::new();
    driver.set_devices(6, (9, 0), (12, 2));
    driver.fail_times("cuModuleLoadData", 0, 1, NO_BINARY_FOR_GPU);
    let mut blur = Blur::new("backend=cuda cuda-device-id=5");
    let info = info(VideoFormat::Rgb, 20, 10);
    let image = picture(&info, 1);
    blur.caps(&info);
    assert!(read(&info, &blur.push(buffer(&info, &image))) == blurred(&image, 1.5, 0));
    let stats = blur.element.property::<gst::Structure>("stats");
    assert_eq!(stats.get::<&str>("kernel").unwrap(), "general-ptx");
}

#[test]
fn elements_on_two_devices_use_separate_contexts() {
    let driver = FakeDriver::new();
    driver.set_devices(16, (9, 0), (12, 2));
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
fn mid_stream_failure_with_auto_falls_back_to_the_cpu_with_one_warning() {
    let driver = FakeDriver::new();
    for (function, after, status, words) in FAILURES {
        let mut blur = Blur::new("sigma=2");
        let mut pushed = 0;
        for width in [40, 41] {
            // New caps, so that memory is allocated again.
            let info = info(VideoFormat::Rgba, width, 12);
            blur.caps(&info);
            for _ in 0..3 {
                let image = picture(&info, pushed);
                if pushed == 3 {
                    driver.fail(function, after, status);
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
        assert!(warnings[0].contains(words) && warnings[0].contains("falling back to the CPU"), "{}", warnings[0]);
        assert!(blur.messages(gst::MessageType::Error).is_empty());
        driver.clear_faults();
        drop(blur);
    }
}

#[test]
fn mid_stream_failure_with_cuda_is_one_error() {
    let driver = FakeDriver::new();
    for (function, after, status, words) in FAILURES {
        let mut blur = Blur::new("backend=cuda sigma=2");
        let info = info(VideoFormat::Rgba, 40, 12);
        let image = picture(&info, 1);
        blur.caps(&info);
        blur.push(buffer(&info, &image));
        let wider = video::info(VideoFormat::Rgba, 41, 12);
        blur.caps(&wider);
        driver.fail(function, after, status);
        assert_eq!(blur.try_push(buffer(&wider, &picture(&wider, 2))), Err(gst::FlowError::Error), "{function}");
        let errors = blur.messages(gst::MessageType::Error);
        assert_eq!(errors.len(), 1, "{function}: {errors:?}");
        assert!(errors[0].contains(words) && errors[0].contains("backend=auto"), "{}", errors[0]);
        assert!(blur.messages(gst::MessageType::Warning).is_empty());
        assert_eq!(video::nick(&blur.element, "active-backend"), "cuda");
        driver.clear_faults();
        drop(blur);
        let counts = driver.counts();
        assert_eq!([counts.device_blocks, counts.pinned_blocks, counts.current], [0; 3], "{function}: leaked");
    }
}

/// No frame leaves uncovered because CUDA failed with it: the CPU covers it, or it is an error.
#[test]
fn mid_stream_failure_leaves_no_region_uncovered() {
    let driver = FakeDriver::new();
    let zone = "region-mode=inside zones=<[zone,x=0.25,y=0.25,width=0.5,height=0.5]> sigma=2 strength=0";
    let info = info(VideoFormat::Rgba, 40, 12);
    let is_covered = |output: &gst::Buffer, image: &Picture| {
        let (got, blur) = (read(&info, output), blurred(image, 2.0, 0));
        let sample = |(i, value): (usize, &u16)| {
            let (x, y) = (i / 4 % 40, i / 160);
            let inside = (10..30).contains(&x) && (3..9).contains(&y);
            *value == if inside { blur.samples[i] } else { image.samples[i] }
        };
        got.samples.iter().enumerate().all(sample)
    };
    let mut reached = 0;
    for (function, after, status, words) in FAILURES {
        // Memory is allocated and cleared for the first frame only.
        let failing = if function.starts_with("cuMemAlloc") || function.contains("Host") || function.contains("set") {
            0
        } else {
            1
        };
        let mut blur = Blur::new(zone);
        blur.caps(&info);
        for frame in 0..3 {
            let image = picture(&info, frame);
            if frame == failing {
                driver.fail(function, after, status);
            }
            let output = blur.push(buffer(&info, &image));
            assert!(is_covered(&output, &image), "{function}: frame {frame}");
        }
        let warnings = blur.messages(gst::MessageType::Warning);
        let is_used = video::nick(&blur.element, "active-backend") == "cpu";
        if is_used {
            assert_eq!(warnings.len(), 1, "{function}: {warnings:?}");
            assert!(warnings[0].contains(words) && warnings[0].contains("falling back to the CPU"), "{}", warnings[0]);
            reached += 1;
        }
        driver.clear_faults();
        drop(blur);

        let mut blur = Blur::new(&format!("backend=cuda {zone}"));
        blur.caps(&info);
        driver.fail(function, after, status);
        let image = picture(&info, 1);
        if is_used {
            assert_eq!(blur.try_push(buffer(&info, &image)), Err(gst::FlowError::Error), "{function}");
            assert!(blur.harness.try_pull().is_none(), "{function}: the frame was pushed");
        } else {
            assert!(is_covered(&blur.push(buffer(&info, &image)), &image), "{function}");
        }
        driver.clear_faults();
    }
    assert!(reached >= 7, "{reached} functions are called for a covered frame");
}

/// Every output is in the element's own pinned memory, and has all metadata.
#[test]
fn outputs_are_pinned_and_have_all_metadata() {
    let driver = FakeDriver::new();
    let info = info(VideoFormat::Rgba, 41, 12);
    for in_flight in [1, 2] {
        let mut blur = Blur::new(&format!("backend=cuda sigma=2 max-in-flight={in_flight}"));
        blur.caps(&info);
        for seed in 0..4 {
            let image = picture(&info, seed);
            let mut input = buffer(&info, &image);
            input.get_mut().unwrap().set_offset(seed + 7);
            gst::ReferenceTimestampMeta::add(
                input.get_mut().unwrap(),
                &gst::Caps::new_empty_simple("timestamp/test"),
                gst::ClockTime::from_seconds(seed),
                gst::ClockTime::NONE,
            );
            blur.try_push(input).unwrap();
            if in_flight > 1 {
                blur.harness.push_event(gst::event::Gap::builder(gst::ClockTime::ZERO).build());
            }
            let output = blur.harness.pull().unwrap();
            assert_eq!((output.pts(), output.offset()), (Some(video::FRAME * seed), seed + 7));
            assert!(output.meta::<gst::ReferenceTimestampMeta>().is_some());
            assert!(read(&info, &output) == blurred(&image, 2.0, 0));
        }
        assert_eq!(stat(&blur, "frames-pinned-out"), 4, "{in_flight} in flight");
    }
    assert_eq!(driver.counts().pinned_blocks, 0);
}
