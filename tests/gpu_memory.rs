//! Frames in CUDA memory on a GPU, between GStreamer's own NVIDIA elements. Tests are ignored if the device, the
//! elements or the videos they need are missing.
//!
//! `CUDAGAUSSBLUR_VIDEO` lists H.264 and H.265 video files (separated by ':') that NVDEC can decode.

mod common;

use common::checks::{run_one_by_one, trial};
use common::pipes::{self, CUDA, no_errors, pictures, pipeline, run_to_end, stat};
use common::resident::{self, Input, Machine, ON_DEVICE, WAITING, videos};
use common::video;
use gst::prelude::*;
use gstcudagaussblur::cuda::driver::device;
use gstcudagaussblur::cuda::process;

static GPU: Machine = Machine {
    frames: 5,
    size: [1920, 1080],
    widths: [641, 642, 512],
    height: 358,
    formats: [10, 10],
    regions: &[
        ("NV12", [641, 358], &pipes::COVERS),
        ("RGBA", [333, 201], &pipes::COVERS),
        ("I420", [322, 241], &pipes::COVERS),
        ("P010_10LE", [640, 360], &pipes::COVERS),
        ("BGR", [97, 61], &pipes::COVERS),
    ],
    in_use: || vec![-(process::open(0).unwrap().device().clone().free_memory().unwrap() as i64)],
    slack: 4 << 20,
    settled: 4,
};

fn main() {
    let devices = device::count().unwrap_or(0);
    video::init();
    let has = |names: &[&str]| devices > 0 && names.iter().all(|name| gst::ElementFactory::find(name).is_some());
    let copies = has(&["cudaupload", "cudadownload"]);
    let decodes = copies && has(&["nvh264dec", "nvh265dec"]) && !videos().is_empty();
    let composes = decodes && has(&["cudaconvert", "cudacompositor"]);
    let mut trials = GPU.trials(copies);
    trials.extend([
        trial("decoded_frames_match_the_cpu", decodes, decoded),
        trial("frames_that_wait_match_the_cpu", decodes, look_ahead),
        trial("decoder_and_blur_share_one_context", decodes, shared_context),
        trial("seeking_and_stopping_mid_stream_is_no_cuda_error", decodes, seeks),
        trial("works_between_cudaconvert_and_cudacompositor", composes, composed),
        trial("pipelines_on_two_devices_do_not_interfere", copies && devices > 1, two_devices),
    ]);
    run_one_by_one(trials);
}

/// A file source and the decoder for it.
fn source(file: &str) -> String {
    let probe = pipeline(&format!("filesrc location={file} ! parsebin ! fakesink name=sink num-buffers=1"));
    run_to_end(&probe);
    let caps = probe.by_name("sink").unwrap().static_pad("sink").unwrap().current_caps().unwrap();
    probe.set_state(gst::State::Null).unwrap();
    let codec = if caps.structure(0).unwrap().name() == "video/x-h265" { "h265" } else { "h264" };
    format!("filesrc location={file} ! parsebin ! nv{codec}dec name=decoder")
}

fn input(file: &str) -> Input {
    let resident = format!("{} ! {CUDA}", source(file));
    Input { host: format!("{resident} ! cudadownload ! video/x-raw"), resident }
}

/// Every frame of every file, decoded and blurred on the device.
fn decoded() {
    let frames: Vec<u64> = videos().iter().map(|file| resident::check(&ON_DEVICE, &input(file))).collect();
    println!("{frames:?} frames under {}: 0 bytes differ", gst::version_string());
}

/// A decoder's frames wait, and more of them than it has surfaces.
fn look_ahead() {
    for (from, blur, after, to, counts) in WAITING {
        let blur = blur.replace("look-ahead=2", "look-ahead=60");
        for file in videos() {
            let frames = resident::check(&(from, &blur, after, to, counts), &input(&file));
            assert!(frames > 60, "{file}: {frames} frames");
        }
    }
}

/// Asserts that these elements share one GstCudaContext object.
fn assert_one_context(pipeline: &gst::Bin, elements: [&str; 3]) {
    let contexts = elements.map(|element| {
        let context = pipeline.by_name(element).unwrap().context("gst.cuda.context").expect("a CUDA context");
        context.structure().get::<gst::Object>("gst.cuda.context").unwrap().as_ptr() as usize
    });
    assert!(contexts.iter().all(|context| *context == contexts[0]), "{contexts:?}");
}

fn shared_context() {
    // A blur with input in host memory uses the pipeline's context too.
    for elements in [
        format!("{CUDA} ! cudagaussblur name=blur ! cudagaussblur name=next"),
        format!("video/x-raw ! cudagaussblur name=blur ! {CUDA} ! cudagaussblur name=next"),
    ] {
        let pipeline = pipeline(&format!("{} ! {elements} ! fakesink", source(&videos()[0])));
        let bus = pipeline.bus().unwrap();
        run_to_end(&pipeline);
        assert_one_context(&pipeline, ["decoder", "blur", "next"]);
        // An element that creates a context posts a message.
        let created = std::iter::from_fn(|| bus.pop_filtered(&[gst::MessageType::HaveContext])).count();
        assert!(created <= 1, "{created} contexts were created");
        assert_eq!(stat(&pipeline, "frames-cuda"), stat(&pipeline, "frames"));
        pipeline.set_state(gst::State::Null).unwrap();
    }
}

fn seeks() {
    for round in 0..6_u64 {
        let pipeline = pipeline(&format!(
            "{} ! {CUDA} ! cudagaussblur sigma=2 ! cudagaussblur name=blur sigma=7 ! cudagaussblur sigma=1 ! \
             {CUDA} ! cudadownload ! video/x-raw ! fakesink name=sink sync=false",
            source(&videos()[0])
        ));
        pipeline.set_state(gst::State::Paused).unwrap();
        pipeline.state(gst::ClockTime::from_seconds(60)).0.unwrap();
        for to in [0, 400, 100] {
            let to = gst::ClockTime::from_mseconds(to);
            pipeline.seek_simple(gst::SeekFlags::FLUSH | gst::SeekFlags::KEY_UNIT, to).unwrap();
            pipeline.set_state(gst::State::Playing).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5 * round));
        }
        if round % 2 == 0 {
            run_to_end(&pipeline);
        }
        // Stop the decoder first, or the blur first.
        for name in if round % 4 > 1 { ["blur", "decoder"] } else { ["decoder", "blur"] } {
            let element = pipeline.by_name(name).unwrap();
            element.set_locked_state(true);
            element.set_state(gst::State::Null).unwrap();
        }
        pipeline.set_state(gst::State::Null).unwrap();
        let errors = video::texts(&pipeline.bus().unwrap(), gst::MessageType::Error);
        assert!(errors.iter().all(|error| !error.contains("CUDA")), "{errors:?}");
    }
}

fn composed() {
    let pipeline = pipeline(&format!(
        "{} ! {CUDA} ! cudaconvert ! {CUDA},format=RGBA ! cudagaussblur name=blur sigma=3 ! cudacompositor name=mix ! {CUDA} ! \
         cudadownload ! video/x-raw ! appsink name=sink sync=false",
        source(&videos()[0])
    ));
    let frames = pictures(&pipeline).count();
    no_errors(&pipeline);
    assert!(frames > 0 && stat(&pipeline, "frames-on-device") as usize >= frames);
    assert_one_context(&pipeline, ["decoder", "blur", "mix"]);
    pipeline.set_state(gst::State::Null).unwrap();
    println!("{frames} frames");
}

fn two_devices() {
    let source = "videotestsrc num-buffers=5 ! video/x-raw,format=NV12,width=640,height=360";
    let (expected, _) = pipes::play(&format!("{source} ! cudagaussblur backend=cpu sigma=3"));
    let line = |id: i32, own: i32| {
        let blur = format!("cudagaussblur sigma=3 cuda-device-id={own}");
        format!("{source} ! cudaupload cuda-device-id={id} ! {CUDA} ! {blur} ! {CUDA} ! cudadownload ! video/x-raw")
    };
    std::thread::scope(|scope| {
        for id in [0, 1, 0, 1] {
            let (line, expected) = (&line, &expected);
            let run =
                move |own| assert!(pipes::play(&line(id, own)).0 == *expected, "device {id}, cuda-device-id={own}");
            scope.spawn(move || [-1, id].map(run));
        }
    });
    // A frame on another device than cuda-device-id is an error.
    pipes::fails(&line(0, 1), &["CUDA device 0, but cuda-device-id=1"]);
}
