//! Frames in CUDA memory on a GPU, between GStreamer's own NVIDIA elements. Tests are ignored if the device, the
//! elements or the videos they need are missing.
//!
//! `CUDAGAUSSBLUR_VIDEO` lists H.264 and H.265 video files (separated by ':') that NVDEC can decode.

mod common;

use common::pipes::{self, CUDA, no_errors, pictures, pictures_at, pipeline, run_to_end, stat};
use common::video;
use gst::prelude::*;
use gstcudagaussblur::cuda::driver::device;
use gstcudagaussblur::cuda::process;
use libtest_mimic::{Arguments, Trial};

fn main() {
    let devices = device::count().unwrap_or(0);
    video::init();
    let has = |names: &[&str]| devices > 0 && names.iter().all(|name| gst::ElementFactory::find(name).is_some());
    let copies = has(&["cudaupload", "cudadownload"]);
    let decodes = copies && has(&["nvh264dec", "nvh265dec"]) && !files().is_empty();
    let test = |name: &str, runs: bool, test: fn()| {
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(!runs)
    };
    let trials = vec![
        test("decoded_frames_match_the_cpu", decodes, decoded),
        test("frames_that_wait_match_the_cpu", decodes, look_ahead),
        test("decoder_and_blur_share_one_context", decodes, shared_context),
        test("tee_feeds_host_and_cuda_memory", decodes, tee),
        test("seeking_and_stopping_mid_stream_is_no_cuda_error", decodes, seeks),
        test(
            "works_between_cudaconvert_and_cudacompositor",
            decodes && has(&["cudaconvert", "cudacompositor"]),
            composed,
        ),
        test("every_format_and_memory_combination_matches_the_cpu", copies, every_combination),
        test("regions_match_the_cpu_in_every_memory", copies, regions),
        test("ten_elements_in_a_row_match_the_cpu", copies, ten),
        test("a_hundred_restarts_leak_no_device_memory", copies, hundred_restarts),
        test("pipelines_on_two_devices_do_not_interfere", copies && devices > 1, two_devices),
    ];
    // Some tests measure the free device memory.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit();
}

fn files() -> Vec<String> {
    let files = std::env::var("CUDAGAUSSBLUR_VIDEO").unwrap_or_default();
    files.split(':').filter(|file| !file.is_empty()).map(str::to_owned).collect()
}

/// The first elements of a pipeline: a file source and the decoder for it.
fn source(file: &str) -> String {
    let line = format!("filesrc location={file} ! parsebin ! fakesink name=sink num-buffers=1");
    let probe = pipeline(&line);
    run_to_end(&probe);
    let caps = probe.by_name("sink").unwrap().static_pad("sink").unwrap().current_caps().unwrap();
    probe.set_state(gst::State::Null).unwrap();
    let codec = if caps.structure(0).unwrap().name() == "video/x-h265" { "h265" } else { "h264" };
    format!("filesrc location={file} ! parsebin ! nv{codec}dec name=decoder")
}

/// Every frame of every file, decoded and blurred on the device, against the CPU's blur.
fn decoded() {
    let mut total = 0;
    for file in files() {
        let source = source(&file);
        let sink = "appsink name=sink sync=false max-buffers=2";
        let on_device = format!(
            "{source} ! {CUDA} ! cudagaussblur name=blur sigma=4 ! {CUDA} ! cudadownload ! video/x-raw ! {sink}"
        );
        let on_host =
            format!("{source} ! {CUDA} ! cudadownload ! video/x-raw ! cudagaussblur backend=cpu sigma=4 ! {sink}");
        let [on_device, on_host] = [on_device, on_host].map(|line| pipeline(&line));
        let (mut frames, mut cpu) = (0, pictures(&on_host));
        for picture in pictures(&on_device) {
            assert!(Some(picture) == cpu.next(), "{file}: frame {frames} differs");
            frames += 1;
        }
        assert!(cpu.next().is_none() && frames > 0, "{file}: {frames} frames");
        for pipeline in [&on_device, &on_host] {
            no_errors(pipeline);
        }
        assert_eq!([stat(&on_device, "frames-on-device"), stat(&on_device, "bytes-copied")], [frames, 0]);
        let caps = on_device.by_name("blur").unwrap().static_pad("src").unwrap().current_caps().unwrap();
        println!("{frames} frames of {}: 0 bytes differ", caps.structure(0).unwrap().get::<&str>("format").unwrap());
        for pipeline in [&on_device, &on_host] {
            pipeline.set_state(gst::State::Null).unwrap();
        }
        total += frames;
    }
    println!("{total} frames under {}", gst::version_string());
}

/// A decoder's frames wait, and more of them than it has surfaces: against the CPU's cover.
fn look_ahead() {
    let zone = "region-mode=inside sigma=9 zones=<[zone,x=0.2,y=0.1,width=0.5,height=0.6]>";
    for file in files() {
        let source = source(&file);
        let sink = "appsink name=sink sync=false max-buffers=2";
        let waiting = format!("cudagaussblur name=blur look-ahead=60 {zone}");
        let on_host =
            format!("{source} ! {CUDA} ! cudadownload ! video/x-raw ! cudagaussblur backend=cpu {zone} ! {sink}");
        for (line, on_device) in [
            (format!("{source} ! {CUDA} ! {waiting} ! {CUDA} ! cudadownload ! video/x-raw ! {sink}"), true),
            (format!("{source} ! {CUDA} ! cudadownload ! video/x-raw ! {waiting} ! {sink}"), false),
        ] {
            let [waiting, on_host] = [&line, &on_host].map(|line| pipeline(line));
            let (mut frames, mut cpu) = (0, pictures(&on_host));
            for picture in pictures(&waiting) {
                assert!(Some(picture) == cpu.next(), "{line}: frame {frames} differs");
                frames += 1;
            }
            assert!(cpu.next().is_none() && frames > 60, "{line}: {frames} frames");
            [&waiting, &on_host].into_iter().for_each(no_errors);
            let resident = stat(&waiting, "frames-on-device");
            assert_eq!(resident, if on_device { frames } else { 0 }, "{line}");
            println!("{frames} frames, {} of them copied as they entered", stat(&waiting, "frames-copied"));
            for pipeline in [&waiting, &on_host] {
                pipeline.set_state(gst::State::Null).unwrap();
            }
        }
    }
}

/// The address of the GstCudaContext object that an element shares.
fn context(pipeline: &gst::Bin, element: &str) -> usize {
    let context =
        pipeline.by_name(element).unwrap().context("gst.cuda.context").expect("the element has a CUDA context");
    context.structure().get::<gst::Object>("gst.cuda.context").unwrap().as_ptr() as usize
}

fn shared_context() {
    for line in [
        format!("{} ! {CUDA} ! cudagaussblur name=blur ! cudagaussblur name=next ! fakesink", source(&files()[0])),
        // A blur with input in host memory uses the pipeline's context too.
        format!(
            "{} ! video/x-raw ! cudagaussblur name=blur ! {CUDA} ! cudagaussblur name=next ! fakesink",
            source(&files()[0])
        ),
    ] {
        let pipeline = pipeline(&line);
        let bus = pipeline.bus().unwrap();
        run_to_end(&pipeline);
        let contexts = ["decoder", "blur", "next"].map(|name| context(&pipeline, name));
        assert!(contexts.iter().all(|context| *context == contexts[0]), "{contexts:?}");
        // An element that creates a context posts a message.
        let created = std::iter::from_fn(|| bus.pop_filtered(&[gst::MessageType::HaveContext])).count();
        assert!(created <= 1, "{created} contexts were created");
        assert_eq!(stat(&pipeline, "frames-cuda"), stat(&pipeline, "frames"));
        pipeline.set_state(gst::State::Null).unwrap();
    }
}

fn tee() {
    let line = format!(
        "{} ! {CUDA} ! tee name=tee \
         tee. ! queue ! cudagaussblur name=blur sigma=2 ! {CUDA} ! cudadownload ! video/x-raw ! appsink name=sink sync=false \
         tee. ! queue ! cudagaussblur sigma=2 ! video/x-raw ! appsink name=host sync=false",
        source(&files()[0])
    );
    let pipeline = pipeline(&line);
    let (device, mut host) = (pictures(&pipeline), pictures_at(&pipeline, "host"));
    let mut frames = 0;
    for picture in device {
        assert!(Some(picture) == host.next(), "frame {frames} differs");
        frames += 1;
    }
    assert!(host.next().is_none() && frames > 0);
    no_errors(&pipeline);
    pipeline.set_state(gst::State::Null).unwrap();
}

fn seeks() {
    for round in 0..6_u64 {
        let line = format!(
            "{} ! {CUDA} ! cudagaussblur sigma=2 ! cudagaussblur name=blur sigma=7 ! cudagaussblur sigma=1 ! \
             {CUDA} ! cudadownload ! video/x-raw ! fakesink name=sink sync=false",
            source(&files()[0])
        );
        let pipeline = pipeline(&line);
        pipeline.set_state(gst::State::Paused).unwrap();
        let (done, ..) = pipeline.state(gst::ClockTime::from_seconds(20));
        done.unwrap();
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
        let mut names = ["decoder", "blur"];
        if round % 4 > 1 {
            names.reverse();
        }
        for name in names {
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
    let line = format!(
        "{} ! {CUDA} ! cudaconvert ! {CUDA},format=RGBA ! cudagaussblur name=blur sigma=3 ! cudacompositor name=mix ! {CUDA} ! \
         cudadownload ! video/x-raw ! appsink name=sink sync=false",
        source(&files()[0])
    );
    let pipeline = pipeline(&line);
    let frames = pictures(&pipeline).count();
    no_errors(&pipeline);
    assert!(frames > 0 && stat(&pipeline, "frames-on-device") as usize >= frames);
    let contexts = ["decoder", "blur", "mix"].map(|name| context(&pipeline, name));
    assert!(contexts.iter().all(|context| *context == contexts[0]), "{contexts:?}");
    pipeline.set_state(gst::State::Null).unwrap();
    println!("{frames} frames");
}

/// Every format that this GStreamer uploads, from CUDA or host memory to CUDA or host memory.
fn every_combination() {
    let uploads = gst::ElementFactory::find("cudaupload").unwrap();
    let pads = uploads.static_pad_templates();
    let caps = pads.iter().find(|pad| pad.direction() == gst::PadDirection::Src).unwrap().caps();
    let (on_device, _) =
        caps.iter_with_features().find(|(_, features)| features.contains("memory:CUDAMemory")).unwrap();
    let uploaded: Vec<String> =
        on_device.get::<gst::List>("format").unwrap().iter().map(|format| format.get().unwrap()).collect();
    let formats: Vec<_> = video::formats()
        .into_iter()
        .filter(|format| uploaded.iter().any(|name| name.as_str() == format.to_str().as_str()))
        .collect();
    assert!(formats.len() >= 10, "{formats:?}");
    for format in &formats {
        // `cudaupload` does not copy the pixel beyond the edge in the last pair of packed 4:2:2.
        let name = format.to_str();
        let width = if ["YUY2", "UYVY"].contains(&name.as_str()) { 642 } else { 641 };
        let source = format!("videotestsrc num-buffers=5 ! video/x-raw,format={name},width={width},height=358");
        let run = |elements: &str| {
            let pipeline = pipeline(&format!("{source} ! {elements} ! appsink name=sink sync=false"));
            let frames: Vec<_> = pictures(&pipeline).collect();
            no_errors(&pipeline);
            pipeline.set_state(gst::State::Null).unwrap();
            assert_eq!(frames.len(), 5, "{elements}");
            frames
        };
        let expected = run("cudagaussblur backend=cpu sigma=3");
        for elements in [
            format!("cudaupload ! {CUDA} ! cudagaussblur sigma=3 ! {CUDA} ! cudadownload ! video/x-raw"),
            format!("cudaupload ! {CUDA} ! cudagaussblur sigma=3 ! video/x-raw"),
            format!("cudagaussblur sigma=3 ! {CUDA} ! cudadownload ! video/x-raw"),
            format!("cudagaussblur sigma=3 max-in-flight=3 ! {CUDA} ! cudadownload ! video/x-raw"),
        ] {
            assert!(run(&elements) == expected, "{name}: {elements}");
        }
    }
    println!("{} formats under {}", formats.len(), gst::version_string());
}

fn regions() {
    let mut compared = 0;
    for (format, size) in
        [("NV12", [641, 358]), ("RGBA", [333, 201]), ("I420", [322, 241]), ("P010_10LE", [640, 360]), ("BGR", [97, 61])]
    {
        compared += pipes::check_regions(format, size, &pipes::COVERS);
    }
    println!("{compared} frames under {}: 0 bytes differ", gst::version_string());
}

fn ten() {
    let chain = |element: &str| [element; 10].join(" ! ");
    let source = "videotestsrc num-buffers=20 ! video/x-raw,format=NV12,width=1280,height=720";
    let [on_device, on_host] = [
        format!("cudaupload ! {CUDA} ! {} ! {CUDA} ! cudadownload ! video/x-raw", chain("cudagaussblur sigma=2")),
        chain("cudagaussblur sigma=2 backend=cpu"),
    ]
    .map(|elements| pipeline(&format!("{source} ! {elements} ! appsink name=sink sync=false")));
    let (frames, expected) = (pictures(&on_device), pictures(&on_host));
    assert!(frames.eq(expected), "the output differs from the CPU's");
    for pipeline in [on_device, on_host] {
        no_errors(&pipeline);
        pipeline.set_state(gst::State::Null).unwrap();
    }
}

fn hundred_restarts() {
    let lines = [
        format!(
            "videotestsrc num-buffers=3 ! video/x-raw,format=NV12,width=1920,height=1080 ! cudaupload ! {CUDA} ! \
             cudagaussblur sigma=2 ! cudagaussblur sigma=9 ! {CUDA} ! cudadownload ! fakesink"
        ),
        format!(
            "videotestsrc num-buffers=3 ! cudagaussblur max-in-flight=3 ! {CUDA} ! cudagaussblur ! video/x-raw ! fakesink"
        ),
    ];
    let device = process::open(0).unwrap().device().clone();
    for line in lines {
        let pipeline = pipeline(&line);
        let mut free = Vec::new();
        for _ in 0..50 {
            run_to_end(&pipeline);
            pipeline.set_state(gst::State::Null).unwrap();
            free.push(device.free_memory().unwrap());
        }
        let (early, late) = (free[4], free[49]);
        println!("free device memory after 5 rounds {} MB, after 50 {} MB", early >> 20, late >> 20);
        assert!(late + (4 << 20) >= early, "{free:?}");
    }
}

fn two_devices() {
    let source = "videotestsrc num-buffers=5 ! video/x-raw,format=NV12,width=640,height=360";
    let run = |elements: &str| {
        let pipeline = pipeline(&format!("{source} ! {elements} ! appsink name=sink sync=false"));
        let frames: Vec<_> = pictures(&pipeline).collect();
        let errors = video::texts(&pipeline.bus().unwrap(), gst::MessageType::Error);
        pipeline.set_state(gst::State::Null).unwrap();
        (frames, errors)
    };
    let (expected, _) = run("cudagaussblur backend=cpu sigma=3");
    let blur = |blur: &str| format!("{blur} ! {CUDA} ! cudadownload ! video/x-raw");
    std::thread::scope(|scope| {
        for id in [0, 1, 0, 1] {
            let (run, blur, expected) = (&run, &blur, &expected);
            scope.spawn(move || {
                let upload = format!("cudaupload cuda-device-id={id} ! {CUDA}");
                for own in [-1, id] {
                    let (frames, errors) =
                        run(&blur(&format!("{upload} ! cudagaussblur sigma=3 cuda-device-id={own}")));
                    assert!(frames == *expected, "device {id}: {errors:?}");
                }
            });
        }
    });
    // A frame on another device than cuda-device-id is an error.
    let (frames, errors) =
        run(&format!("cudaupload cuda-device-id=0 ! {CUDA} ! cudagaussblur sigma=3 cuda-device-id=1"));
    assert!(frames.is_empty() && errors[0].contains("CUDA device 0, but cuda-device-id=1"), "{errors:?}");
}
