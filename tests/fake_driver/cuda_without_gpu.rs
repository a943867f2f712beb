//! The element and the CUDA engine on the fake CUDA driver (tests/fake_cuda): output, memory use, start-up errors and
//! failures mid-stream.

use crate::common::cases;
use crate::common::checks::{Row, cpu_is_selected, start_fails};
use crate::common::fake_driver::{FakeDriver, ILLEGAL_ADDRESS, NO_BINARY_FOR_GPU, NO_DEVICE, OUT_OF_MEMORY};
use crate::common::pipes;
use crate::common::video::{self, Blur, FRAME, buffer, info, picture, read};
use gst::prelude::*;
use gst_video::VideoFormat::{Gray8, Rgb, Rgba};
use gstcudagaussblur::cuda::{CudaEngine, Image, PassStrategy};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::frame::PlaneLayout;

#[cfg_attr(not(feature = "cubins"), ignore = "expects the kernels of the machine code")]
#[test]
fn cuda_output_matches_the_oracle_and_is_counted_in_stats() {
    let _driver = FakeDriver::new();
    for backend in ["auto", "cuda"] {
        let mut blur = Blur::new(&format!("backend={backend}"));
        assert_eq!(blur.backend(), "cuda");
        let mut frames = 0;
        for (format, width, height) in [(Rgba, 67, 21), (Rgb, 65, 40), (Gray8, 260, 9)] {
            let info = info(format, width, height);
            blur.caps(&info);
            for (sigma, kernel_size) in [(1.5, 7), (5.0, 0), (0.8, 0)] {
                blur.element.set_property("sigma", sigma);
                blur.element.set_property("kernel-size", kernel_size);
                let image = picture(&info, frames);
                let output = read(&info, &blur.push(buffer(&info, &image)));
                assert!(output == video::blurred(&image, sigma, kernel_size), "{format} sigma={sigma}");
                frames += 1;
            }
        }
        assert_eq!(blur.stats(["frames", "frames-cuda", "frames-cpu"]), [frames, frames, 0]);
        for time in ["last", "mean"] {
            let times = ["upload", "kernel", "download"].map(|stage| video::stat(&blur, &format!("{stage}-{time}-ns")));
            assert!(times.iter().all(|time| *time > 0), "{times:?}");
        }
        let stats = blur.element.property::<gst::Structure>("stats");
        assert_eq!(stats.get::<&str>("kernel").unwrap(), "general-sm_90");
        assert!(!stats.get::<bool>("compiling").unwrap());
        assert_eq!(blur.stats(["kernel-since", "compile-last-ns"]), [0; 2]);
        blur.said(0, 0);
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
        let chosen: Vec<_> = match cases::selection() {
            Some(_) => cases.iter().collect(),
            None => cases.iter().filter(small).skip(offset + bands).step_by(21).collect(),
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
        let info = info(Rgb, width, height);
        blurs.iter_mut().for_each(|blur| blur.caps(&info));
        let mut after_first = None;
        for _ in 0..4 {
            blurs.iter_mut().for_each(|blur| blur.check(&info, 1, 5.0));
            let counts = driver.counts();
            assert_eq!(*after_first.get_or_insert(counts), counts, "a frame allocated memory or created an object");
        }
        // Per element: three device blocks (input, output, workspace of the wide kernel), two pinned blocks (staging
        // buffer, output buffer), its streams and eleven events. All elements share two more streams.
        let counts = after_first.unwrap();
        assert_eq!(counts.live(), [9, 6, own + shared, 33]);
        assert!(counts.contexts <= 1, "more than one context: {counts:?}");
        assert_eq!(counts.current, 0, "a context was left current on the streaming thread");
    }
    drop(blurs);
    assert_eq!(driver.counts().live(), [0; 4], "leaked after stop");
}

/// Each reason why CUDA cannot be used is an error that names it with `backend=cuda`, and selects the CPU with `auto`.
#[test]
fn unusable_cuda_fails_the_start_or_selects_the_cpu() {
    use gst::ResourceError::{Failed, NotFound, Settings};
    let driver = FakeDriver::new();
    let supported = (9, 0);
    let two_devices = || driver.set_devices(2, supported, (12, 2));
    type Setup<'a> = &'a dyn Fn();
    let table: [(&str, Setup, gst::ResourceError, &[&str]); 8] = [
        ("", &|| driver.set_devices(0, supported, (13, 0)), NotFound, &["no CUDA device", "nvidia-smi"]),
        ("", &|| driver.fail("cuInit", 0, NO_DEVICE), NotFound, &["CUDA_ERROR_NO_DEVICE", "hides it"]),
        ("", &|| driver.set_devices(1, supported, (11, 7)), NotFound, &["CUDA 11.7 only", "11.8", "520 or later"]),
        (
            "cuda-device-id=3",
            &|| driver.set_devices(4, (5, 2), (12, 2)),
            NotFound,
            &["device 3 (Fake GPU)", "5.2", "6.0 is needed", "cuda-device-id"],
        ),
        (
            "cuda-device-id=7",
            &two_devices,
            Settings,
            &["no CUDA device 7", "has 2, numbered from 0; set cuda-device-id"],
        ),
        (
            "cuda-device-id=1",
            &|| (two_devices(), driver.fail("cuDevicePrimaryCtxRetain", 0, OUT_OF_MEMORY)).1,
            Failed,
            &["device 1 failed making a context", "CUDA_ERROR_OUT_OF_MEMORY"],
        ),
        (
            "cuda-device-id=1",
            &|| (two_devices(), driver.fail("cuModuleLoadData", 0, NO_BINARY_FOR_GPU)).1,
            Failed,
            &["device 1 failed loading the kernels"],
        ),
        ("", &|| driver.fail("cuStreamCreate", 0, ILLEGAL_ADDRESS), Failed, &["ILLEGAL_ADDRESS"]),
    ];
    for (properties, setup, kind, words) in table {
        setup();
        let _row = Row(words.join(", "));
        let error = start_fails(&video::element(&format!("backend=cuda {properties}")), words);
        assert!(error.matches(kind), "{error:?}");
        assert!(error.to_string().ends_with("or set backend=auto or backend=cpu to blur on the CPU"), "{error}");
        cpu_is_selected(properties);
        driver.clear_faults();
        let counts = driver.counts();
        assert_eq!([counts.streams, counts.events, counts.current], [0; 3], "leaked");
    }
}

/// No host copy is needed if upstream uses the pool it is offered and downstream offers none; buffers from elsewhere
/// are copied.
#[test]
fn frames_in_pinned_memory_cause_no_host_copies() {
    let driver = FakeDriver::new();
    let run = |before: &str, backend: &str| {
        let pipeline = pipes::pipeline(&format!(
            "videotestsrc num-buffers=3 ! video/x-raw,format=NV12,width=64,height=48 ! {before} \
             cudagaussblur name=blur backend={backend} ! appsink name=sink sync=false"
        ));
        let frames: Vec<_> = pipes::pictures(&pipeline).collect();
        let copied = pipes::stat(&pipeline, "bytes-copied");
        pipeline.set_state(gst::State::Null).unwrap();
        (frames, copied)
    };
    let bytes = 3 * 64 * 48 * 3 / 2;
    let expected = run("", "cpu").0;
    assert_eq!(expected.len(), 3);
    for (before, copied) in [("", 0), ("queue !", 0), ("identity drop-allocation=true !", bytes)] {
        assert!(run(before, "cuda") == (expected.clone(), copied), "{before}");
    }
    assert_eq!(driver.counts().pinned_blocks, 0, "pinned memory is leaked");
}

/// A driver older than the toolkit that built the CUBINs may fail to load them.
#[cfg_attr(not(feature = "cubins"), ignore = "expects the kernels of the machine code")]
#[test]
fn ptx_kernels_are_used_if_the_cubin_does_not_load() {
    let driver = FakeDriver::new();
    driver.set_devices(6, (9, 0), (12, 2));
    driver.fail_times("cuModuleLoadData", 0, 1, NO_BINARY_FOR_GPU);
    let info = info(Rgb, 20, 10);
    let mut blur = Blur::with("backend=cuda cuda-device-id=5", &info);
    blur.check(&info, 1, 1.5);
    let stats = blur.element.property::<gst::Structure>("stats");
    assert_eq!(stats.get::<&str>("kernel").unwrap(), "general-ptx");
}

#[test]
fn elements_on_two_devices_use_separate_contexts() {
    let driver = FakeDriver::new();
    driver.set_devices(16, (9, 0), (12, 2));
    let info = info(Rgb, 40, 10);
    let mut blurs = [14, 15].map(|id| Blur::with(&format!("backend=cuda sigma=5 cuda-device-id={id}"), &info));
    for _ in 0..2 {
        blurs.iter_mut().for_each(|blur| blur.check(&info, 1, 5.0));
    }
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

/// With `auto` the CPU blurs on, with one warning; `cuda` is one error. Both say what failed. What becomes of frames and memory
/// is tested with every call of every function by tests/faults.rs.
#[test]
fn mid_stream_failure_with_cuda_is_one_error_and_with_auto_one_warning() {
    let driver = FakeDriver::new();
    for (function, after, status, words) in FAILURES {
        for backend in ["auto", "cuda"] {
            let _row = Row(format!("{function}, backend={backend}"));
            let before = driver.counts();
            let narrow = info(Rgba, 40, 12);
            let mut blur = Blur::with(&format!("backend={backend} sigma=2"), &narrow);
            blur.check(&narrow, 1, 2.0);
            // New caps, so that memory is allocated again.
            let wide = info(Rgba, 41, 12);
            blur.caps(&wide);
            driver.fail(function, after, status);
            if backend == "auto" {
                (2..5).for_each(|seed| blur.check(&wide, seed, 2.0));
                blur.warns(&[words, "falling back to the CPU"]);
                assert_eq!((blur.stats(["frames-cuda", "frames-cpu"]), blur.backend()), ([1, 3], "cpu".into()));
            } else {
                blur.refuses(buffer(&wide, &picture(&wide, 2)), &[words, "backend=auto"]);
                assert_eq!(blur.backend(), "cuda");
            }
            driver.clear_faults();
            drop(blur);
            let after = driver.counts();
            // The fallback releases its memory while the driver still fails.
            let is_released = backend == "auto" || after.live()[..2] == before.live()[..2];
            assert!(is_released && after.current == 0, "leaked: {after:?}");
        }
    }
}

/// The same where regions are covered: the frame that fails is covered by the CPU, or is an error. A function that is not
/// called for it fails nothing.
#[test]
fn mid_stream_failure_leaves_no_region_uncovered() {
    let driver = FakeDriver::new();
    // All of the picture, so that what covers it is its blur.
    let zone = "region-mode=inside zones=<[zone,x=0,y=0,width=1,height=1]> sigma=2 strength=0";
    let info = info(Rgba, 40, 12);
    let mut reached = 0;
    for (function, after, status, words) in FAILURES {
        // Memory is allocated and cleared for the first frame only.
        let is_first = ["cuMemAlloc_v2", "cuMemHostAlloc", "cuMemsetD8Async"].contains(&function);
        let _row = Row(function.to_owned());
        let mut blur = Blur::with(zone, &info);
        for frame in 0..3 {
            if frame == u64::from(!is_first) {
                driver.fail(function, after, status);
            }
            blur.check(&info, frame, 2.0);
        }
        let has_failed = blur.backend() == "cpu";
        if has_failed {
            blur.warns(&[words, "falling back to the CPU"]);
            reached += 1;
        }
        driver.clear_faults();

        let mut blur = Blur::with(&format!("backend=cuda {zone}"), &info);
        driver.fail(function, after, status);
        if has_failed {
            blur.refuses(buffer(&info, &picture(&info, 1)), &[words]);
            assert!(blur.harness.try_pull().is_none(), "the frame was pushed");
        } else {
            blur.check(&info, 1, 2.0);
        }
        driver.clear_faults();
    }
    assert!(reached >= 7, "{reached} functions are called for a covered frame");
}

/// Every output is in the element's own pinned memory, and has all metadata.
#[test]
fn outputs_are_pinned_and_have_all_metadata() {
    let driver = FakeDriver::new();
    let info = info(Rgba, 41, 12);
    for in_flight in [1, 2] {
        let mut blur = Blur::with(&format!("backend=cuda sigma=2 max-in-flight={in_flight}"), &info);
        for seed in 0..4 {
            let mut input = buffer(&info, &picture(&info, seed));
            let frame = input.get_mut().unwrap();
            frame.set_offset(seed + 7);
            let (reference, time) = (gst::Caps::new_empty_simple("timestamp/test"), gst::ClockTime::from_seconds(seed));
            gst::ReferenceTimestampMeta::add(frame, &reference, time, gst::ClockTime::NONE);
            blur.try_push(input).unwrap();
            if in_flight > 1 {
                blur.harness.push_event(gst::event::Gap::builder(gst::ClockTime::ZERO).build());
            }
            let output = blur.harness.pull().unwrap();
            assert_eq!((output.pts(), output.offset()), (Some(FRAME * seed), seed + 7));
            assert!(output.meta::<gst::ReferenceTimestampMeta>().is_some());
            assert!(read(&info, &output) == video::blurred(&picture(&info, seed), 2.0, 0));
        }
        assert_eq!(blur.stats(["frames-pinned-out"]), [4], "{in_flight} in flight");
    }
    assert_eq!(driver.counts().pinned_blocks, 0);
}
