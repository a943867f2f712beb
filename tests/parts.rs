//! Which prebuilt kernels are loaded, and when, on the fake CUDA driver (tests/fake_cuda). Each test has a
//! device of its own, because what is loaded stays loaded until the process ends.

mod common;

use std::sync::Mutex;

use common::Noise;
use common::device_frames::{self, Block, Streams};
use common::fake_driver::FakeDriver;
use common::pictures::rect;
use common::video::{self, Blur, blurred, buffer, info, picture, read, stat};
use gst::prelude::*;
use gst_video::VideoFormat;
use gstcudagaussblur::cuda::CudaEngine;
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::frame::PlaneLayout;

const NO_BINARY_FOR_GPU: i32 = 209;
const DEVICES: i32 = 16;

fn set(blur: &Blur, sigma: f64, kernel_size: u32) {
    blur.element.set_property("sigma", sigma);
    blur.element.set_property("kernel-size", kernel_size);
}

/// Pushes a frame and compares it.
fn push(blur: &mut Blur, info: &gst_video::VideoInfo, seed: u64, sigma: f64) {
    set(blur, sigma, 0);
    let image = picture(info, seed);
    assert!(read(info, &blur.push(buffer(info, &image))) == blurred(&image, sigma, 0), "{sigma}");
}

/// The caps decide which parts are loaded: no frame and no setting loads any.
#[cfg_attr(not(feature = "cubins"), ignore = "expects the kernels of the machine code")]
#[test]
fn caps_load_all_that_frames_can_need() {
    let driver = FakeDriver::new();
    driver.set_devices(DEVICES, (9, 0), (13, 0));
    for (id, format, rest) in [
        // The longest taps; the levels; those of premultiplied colour; regions.
        (1, VideoFormat::Rgba, "axis tensor_c4 tensor_packed1010102 tensor_small direct_packed1010102 cover soft"),
        (2, VideoFormat::Rgb, "axis tensor_c3 tensor_small cover soft"),
        (3, VideoFormat::Gray16Le, "axis tensor_u16_c12 tensor_small cover soft"),
        // The factors of chroma, which has a quarter of the columns, can differ by more than tensor cores have kernels for.
        (4, VideoFormat::Y41b, "axis tensor_c12 tensor_small level direct_u16_c12 cover soft"),
    ] {
        let before = driver.counts().modules;
        let loaded = || driver.counts().modules - before;
        let mut blur = Blur::new(&format!("backend=cuda cuda-device-id={id} sigma=1"));
        assert_eq!(loaded(), 1, "{format}: opening the device loads one part");
        let info = info(format, 64, 48);
        blur.caps(&info);
        let all = 2 + rest.split(' ').count() as i32;
        assert_eq!(loaded(), all, "{format}");
        for (sigma, kernel_size) in [(1.0, 0), (5.0, 0), (9.0, 0), (30.0, 0), (9.0, 63), (1.0, 0)] {
            set(&blur, sigma, kernel_size);
            // Bytes are compared by the other tests of this engine.
            drop(blur.push(gst::Buffer::from_mut_slice(vec![7; info.size()])));
        }
        assert_eq!(loaded(), all, "{format}: a frame loaded a part");
        assert_eq!(stat(&blur, "frames-cuda"), 6);
    }
}

/// Nor does a cover of a frame that stays on the device.
#[test]
fn covers_on_the_device_load_nothing() {
    let driver = FakeDriver::new();
    let mut engine = Engine::with_cuda(CudaEngine::new(0).unwrap());
    let mut noise = Noise(5);
    for planes in [vec![PlaneLayout::new(60, 40, 4, 8)], vec![PlaneLayout::new(60, 40, 1, 16)]] {
        engine.prepare(&planes);
        let before = driver.counts().modules;
        let frame = Block::new(&planes, 0, PlaneLayout::row_bytes, noise.next());
        let hard = device_frames::covers(&planes, &[rect(3, 5, 20, 9), rect(30, 0, 12, 40)], &[2.0, 9.0], &mut noise);
        for cover in hard.iter().chain(&device_frames::soft_covers(&planes, &[2.0, 9.0], &mut noise)) {
            device_frames::check(&mut engine, cover, &frame, None, Streams::One);
            assert_eq!(driver.counts().modules, before, "{cover:?} loaded a part");
        }
    }
}

/// Another format has other kernels.
#[cfg_attr(not(feature = "cubins"), ignore = "expects the kernels of the machine code")]
#[test]
fn new_caps_load_their_parts() {
    let driver = FakeDriver::new();
    driver.set_devices(DEVICES, (9, 0), (13, 0));
    let mut blur = Blur::new("backend=cuda cuda-device-id=5");
    let rgb = info(VideoFormat::Rgb, 40, 20);
    blur.caps(&rgb);
    assert_eq!(driver.counts().modules, 7);
    push(&mut blur, &rgb, 1, 1.0);
    let gray = info(VideoFormat::Gray8, 40, 20);
    blur.caps(&gray);
    push(&mut blur, &gray, 1, 1.0);
    push(&mut blur, &gray, 2, 30.0);
    assert_eq!(driver.counts().modules, 9);
}

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn warnings(word: &str) -> usize {
    WARNINGS.lock().unwrap().iter().filter(|line| line.contains(word)).count()
}

fn log_warnings() {
    video::init();
    gst::log::set_threshold_for_name("cudagaussblur", gst::DebugLevel::Warning);
    gst::log::add_log_function(|category, level, _, _, _, _, message| {
        if category.name() == "cudagaussblur" && level == gst::DebugLevel::Warning {
            WARNINGS.lock().unwrap().push(message.get().unwrap_or_default().to_string());
        }
    });
}

/// Parts that cannot be loaded are tried again when a frame needs them; the frame fails if that fails too.
#[cfg_attr(not(feature = "cubins"), ignore = "expects the kernels of the machine code")]
#[test]
fn part_that_does_not_load_is_tried_again_and_then_falls_back() {
    let driver = FakeDriver::new();
    log_warnings();
    driver.set_devices(DEVICES, (9, 0), (13, 0));
    for (id, is_cleared) in [(6, true), (7, false)] {
        let mut blur = Blur::new(&format!("backend=auto cuda-device-id={id}"));
        let rgb = info(VideoFormat::Rgb, 40, 20);
        WARNINGS.lock().unwrap().clear();
        driver.fail("cuModuleLoadData", 0, NO_BINARY_FOR_GPU);
        blur.caps(&rgb);
        assert_eq!(warnings("are not loaded before they are needed"), 6, "a warning for each part");
        if is_cleared {
            driver.clear_faults();
        }
        let modules = driver.counts().modules;
        push(&mut blur, &rgb, 2, 30.0);
        let messages = blur.messages(gst::MessageType::Warning);
        if is_cleared {
            assert_eq!(driver.counts().modules - modules, 2, "tensor_c3 and tensor_small");
            assert_eq!([stat(&blur, "frames-cuda"), stat(&blur, "frames-cpu")], [1, 0]);
            assert!(messages.is_empty(), "{messages:?}");
        } else {
            assert_eq!([stat(&blur, "frames-cuda"), stat(&blur, "frames-cpu")], [0, 1]);
            assert_eq!(messages.len(), 1, "{messages:?}");
            assert!(messages[0].contains("loading the kernels"), "{messages:?}");
        }
        drop(blur);
        driver.clear_faults();
        driver.set_devices(DEVICES, (9, 0), (13, 0));
    }
}

/// All parts are of the same images: if the first part's CUBIN does not load, none is tried.
#[cfg_attr(not(feature = "cubins"), ignore = "expects the kernels of the machine code")]
#[test]
fn portable_images_replace_all_parts() {
    let driver = FakeDriver::new();
    driver.set_devices(DEVICES, (9, 0), (12, 2));
    driver.fail_times("cuModuleLoadData", 0, 1, NO_BINARY_FOR_GPU);
    let mut blur = Blur::new("backend=cuda cuda-device-id=8");
    let rgb = info(VideoFormat::Rgb, 40, 20);
    blur.caps(&rgb);
    for (seed, sigma) in [(1, 1.0), (2, 5.0), (3, 30.0)] {
        push(&mut blur, &rgb, seed, sigma);
    }
    let kernel = blur.element.property::<gst::Structure>("stats").get::<String>("kernel").unwrap();
    assert_eq!(kernel, "general-ptx");
    // The probe, and the parts of RGB: one axis at a time, the levels, regions, soft ones.
    assert_eq!(driver.counts().modules, 5);
}
