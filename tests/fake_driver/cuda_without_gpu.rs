//! The element and the CUDA engine on the fake CUDA driver (tests/fake_cuda): output, memory use, start-up errors and
//! failures mid-stream.

use crate::common::cases;
use crate::common::checks::{Row, cpu_is_selected, start_fails};
use crate::common::fake_driver::{FakeDriver, ILLEGAL_ADDRESS, NO_BINARY_FOR_GPU, NO_DEVICE, OUT_OF_MEMORY};
use crate::common::pipes;
use crate::common::video::{self, Blur, buffer, info, picture};
use gst::prelude::*;
use gst_video::VideoFormat::{Gray8, Rgb, Rgba};
use gstcudagaussblur::cuda::CudaEngine;
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::frame::PlaneLayout;

#[cfg_attr(not(feature = "cubins"), ignore = "expects the kernels of the machine code")]
#[test]
fn cuda_output_matches_the_oracle_and_is_counted_in_stats() {
    let _driver = FakeDriver::new();
    for backend in ["auto", "cuda"] {
        let mut blur = Blur::new(&format!("backend={backend}"));
        assert_eq!(blur.backend(), "cuda");
        for (format, width, height, sigma) in [(Rgba, 67, 21, 1.5), (Rgb, 65, 40, 5.0), (Gray8, 260, 9, 0.8)] {
            let _row = Row(format!("{backend} {format}"));
            let info = info(format, width, height);
            blur.caps(&info);
            blur.element.set_property("sigma", sigma);
            blur.check(&info, 1, sigma);
        }
        assert_eq!(blur.stats(["frames", "frames-cuda", "frames-cpu"]), [3, 3, 0]);
        for time in ["last", "mean"] {
            let times = ["upload", "kernel", "download"].map(|stage| video::stat(&blur, &format!("{stage}-{time}-ns")));
            assert!(times.iter().all(|time| *time > 0), "{times:?}");
        }
        let stats = blur.element.property::<gst::Structure>("stats");
        assert_eq!(stats.get::<&str>("kernel").unwrap(), "general-sm_90");
        assert_eq!(video::stat(&blur, "kernel-since"), 0);
        // Other tests have kernels compiled for the device.
        assert!(stats.get::<bool>("compiling").is_ok() && stats.get::<u64>("compile-last-ns").is_ok());
        blur.said(0, 0);
    }
}

/// The smaller cases of the case table (a coroutine plays each CUDA thread), with all kernels and with those for CUDA cores, in every number of
/// bands; with `CUDAGAUSSBLUR_CASE`, all cases that it selects.
#[test]
fn engine_matches_the_oracle_on_either_cores_in_every_number_of_bands() {
    let _driver = FakeDriver::new();
    let samples = |layout: &PlaneLayout| layout.row_samples() * layout.height as usize;
    let small = |case: &&cases::Case| case.planes.iter().map(samples).sum::<usize>() < 3000;
    let cases = cases::all();
    let cores = [(false, 0), (true, 7)];
    for ((on_cuda_cores, offset), bands) in cores.into_iter().flat_map(|cores| [1, 2, 5].map(|bands| (cores, bands))) {
        let engine = CudaEngine::new(0).unwrap();
        let engine = if on_cuda_cores { engine.on_cuda_cores() } else { engine };
        let mut engine = Engine::with_cuda(engine.with_bands(bands));
        let chosen: Vec<_> = match cases::selection() {
            Some(_) => cases.iter().collect(),
            None => cases.iter().filter(small).skip(offset + bands).step_by(21).collect(),
        };
        let bytes: usize = chosen.iter().map(|case| case.check_engine(&mut engine)).sum();
        println!("CUDA cores alone: {on_cuda_cores}, {bands} bands: {} cases, {bytes} bytes, 0 differ", chosen.len());
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
    let (hopper, maxwell, cuda_12, cuda_13) = ((9, 0), (5, 2), (12, 2), (13, 0));
    let (retain, load) = (("cuDevicePrimaryCtxRetain", OUT_OF_MEMORY), ("cuModuleLoadData", NO_BINARY_FOR_GPU));
    // The element's device; how many there are, their compute capability, the driver's CUDA version; a function that fails; the
    // kind of the error, and its words. Contexts are kept: no other test makes one on device 5.
    for (device, (devices, capability, version), (function, status), kind, words) in [
        (-1, (0, hopper, cuda_13), ("", 0), NotFound, "no CUDA device…nvidia-smi"),
        (-1, (1, hopper, cuda_13), ("cuInit", NO_DEVICE), NotFound, "CUDA_ERROR_NO_DEVICE…hides it"),
        (-1, (1, hopper, (11, 7)), ("", 0), NotFound, "CUDA 11.7 only…11.8…520 or later"),
        (3, (4, maxwell, cuda_12), ("", 0), NotFound, "device 3 (Fake GPU)…5.2…6.0 is needed…cuda-device-id"),
        (7, (2, hopper, cuda_12), ("", 0), Settings, "no CUDA device 7…has 2, numbered from 0; set cuda-device-id"),
        (5, (6, hopper, cuda_12), retain, Failed, "device 5 failed making a context…CUDA_ERROR_OUT_OF_MEMORY"),
        (5, (6, hopper, cuda_12), load, Failed, "device 5 failed loading the kernels"),
        (-1, (1, hopper, cuda_13), ("cuStreamCreate", ILLEGAL_ADDRESS), Failed, "ILLEGAL_ADDRESS"),
    ] {
        driver.set_devices(devices, capability, version);
        driver.fail(function, 0, status);
        let properties = format!("cuda-device-id={device}");
        let _row = Row(words.to_owned());
        let words: Vec<&str> = words.split('…').collect();
        let error = start_fails(&video::element(&format!("backend=cuda {properties}")), &words);
        assert!(error.matches(kind), "{error:?}");
        assert!(error.to_string().ends_with("or set backend=auto or backend=cpu to blur on the CPU"), "{error}");
        cpu_is_selected(&properties);
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
        let source = "videotestsrc num-buffers=3 ! video/x-raw,format=NV12,width=64,height=48";
        let (frames, stats) = pipes::play(&format!("{source} {before} ! cudagaussblur name=blur backend={backend}"));
        (frames, stats.unwrap().get::<u64>("bytes-copied").unwrap())
    };
    let (expected, _) = run("", "cpu");
    assert_eq!(expected.len(), 3);
    for (before, copied) in [("", 0), ("! queue", 0), ("! identity drop-allocation=true", 3 * 64 * 48 * 3 / 2)] {
        assert!(run(before, "cuda") == (expected.clone(), copied), "{before}");
    }
    assert_eq!(driver.counts().pinned_blocks, 0, "pinned memory is leaked");
}

/// With `auto` the CPU blurs on, with one warning; `cuda` is one error. Both say what failed. What becomes of frames, of covers and
/// of memory is tested with every call of every function by tests/faults.rs.
#[test]
fn mid_stream_failure_with_cuda_is_one_error_and_with_auto_one_warning() {
    let driver = FakeDriver::new();
    let [narrow, wide] = [40, 41].map(|width| info(Rgba, width, 12));
    for (function, after, status, words) in [
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
    ] {
        for backend in ["auto", "cuda"] {
            let _row = Row(format!("{function}, backend={backend}"));
            let mut blur = Blur::with(&format!("backend={backend} sigma=2"), &narrow);
            blur.check(&narrow, 1, 2.0);
            // New caps, so that memory is allocated again.
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
        }
    }
}
