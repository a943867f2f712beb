//! Which prebuilt kernels are loaded, and when, on the fake CUDA driver (tests/fake_cuda). Each test has a
//! device of its own, because what is loaded stays loaded until the process ends.

mod common;

use std::time::{Duration, Instant};

use common::Noise;
use common::checks::log_warnings;
use common::device_frames::{self, Block, Streams};
use common::fake_driver::{FakeDriver, NO_BINARY_FOR_GPU};
use common::pictures::rect;
use common::video::{self, Blur, info, stat};
use gst::prelude::*;
use gst_video::VideoFormat::{Gray8, Gray16Le, Rgb, Rgba, Y41b};
use gstcudagaussblur::cuda::CudaEngine;
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::frame::PlaneLayout;

const DEVICES: i32 = 16;

/// Pushes an RGB frame of 40x20 and compares it.
fn push(blur: &mut Blur, sigma: f64) {
    video::set(&blur.element, &format!("sigma={sigma}"));
    blur.check(&info(Rgb, 40, 20), 1, sigma);
}

/// The caps decide which parts are loaded: no frame and no setting loads any.
#[cfg_attr(not(feature = "cubins"), ignore = "expects the kernels of the machine code")]
#[test]
fn caps_load_all_that_frames_can_need() {
    let driver = FakeDriver::with_devices(DEVICES);
    for (id, formats) in [
        // The longest taps; the levels; those of premultiplied colour; regions.
        (1, &[(Rgba, "axis tensor_c4 tensor_packed1010102 tensor_small direct_packed1010102 cover soft")][..]),
        // Of another format only what the first one lacks.
        (2, &[(Rgb, "axis tensor_c3 tensor_small cover soft"), (Gray8, "tensor_c12")]),
        (3, &[(Gray16Le, "axis tensor_u16_c12 tensor_small cover soft")]),
        // The factors of chroma, which has a quarter of the columns, can differ by more than tensor cores have kernels for.
        (4, &[(Y41b, "axis tensor_c12 tensor_small level direct_u16_c12 cover soft")]),
    ] {
        let before = driver.counts().modules;
        let loaded = || driver.counts().modules - before;
        let mut blur = Blur::new(&format!("backend=cuda cuda-device-id={id} sigma=1"));
        let mut all = 1;
        assert_eq!(loaded(), all, "opening the device loads one part");
        for (format, parts) in formats {
            let info = info(*format, 64, 48);
            blur.caps(&info);
            // And those of the direct form.
            all += 1 + parts.split(' ').count() as i32;
            assert_eq!(loaded(), all, "{format}");
            for (sigma, kernel_size) in [(1, 0), (5, 0), (9, 0), (30, 0), (9, 63), (1, 0)] {
                video::set(&blur.element, &format!("sigma={sigma} kernel-size={kernel_size}"));
                // Bytes are compared by the other tests of this engine.
                drop(blur.push(gst::Buffer::from_mut_slice(vec![7; info.size()])));
            }
            assert_eq!(loaded(), all, "{format}: a frame loaded a part");
        }
        assert_eq!(stat(&blur, "frames-cuda"), 6 * formats.len() as u64);
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

/// Parts that cannot be loaded are tried again when a frame needs them; the frame fails if that fails too.
#[cfg_attr(not(feature = "cubins"), ignore = "expects the kernels of the machine code")]
#[test]
fn part_that_does_not_load_is_tried_again_and_then_falls_back() {
    let warnings = log_warnings();
    for (id, is_cleared) in [(6, true), (7, false)] {
        let driver = FakeDriver::with_devices(DEVICES);
        let mut blur = Blur::new(&format!("backend=auto cuda-device-id={id}"));
        warnings.lock().unwrap().clear();
        driver.fail("cuModuleLoadData", 0, NO_BINARY_FOR_GPU);
        blur.caps(&info(Rgb, 40, 20));
        let of_parts = |line: &&String| line.contains("are not loaded before they are needed");
        assert_eq!(warnings.lock().unwrap().iter().filter(of_parts).count(), 6, "a warning for each part");
        if is_cleared {
            driver.clear_faults();
        }
        let modules = driver.counts().modules;
        push(&mut blur, 30.0);
        assert_eq!(blur.stats(["frames-cuda", "frames-cpu"]), if is_cleared { [1, 0] } else { [0, 1] });
        if is_cleared {
            assert_eq!(driver.counts().modules - modules, 2, "tensor_c3 and tensor_small");
            blur.said(0, 0);
        } else {
            blur.warns(&["loading the kernels"]);
        }
    }
}

/// All parts are of the same images: if the first part's CUBIN does not load, none is tried.
#[cfg_attr(not(feature = "cubins"), ignore = "expects the kernels of the machine code")]
#[test]
fn portable_images_replace_all_parts() {
    let driver = FakeDriver::new();
    driver.set_devices(DEVICES, (9, 0), (12, 2));
    driver.fail_times("cuModuleLoadData", 0, 1, NO_BINARY_FOR_GPU);
    let mut blur = Blur::with("backend=cuda cuda-device-id=8", &info(Rgb, 40, 20));
    [1.0, 5.0, 30.0].into_iter().for_each(|sigma| push(&mut blur, sigma));
    let kernel = blur.element.property::<gst::Structure>("stats").get::<String>("kernel").unwrap();
    assert_eq!(kernel, "general-ptx");
    // The probe, and the parts of RGB for CUDA cores: one axis at a time, the levels, regions, soft ones. Behind them those for
    // tensor cores are loaded in the background.
    let begun = Instant::now();
    while driver.counts().modules < 8 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} modules", driver.counts().modules);
        push(&mut blur, 1.0);
    }
    [1.0, 5.0, 30.0].into_iter().for_each(|sigma| push(&mut blur, sigma));
    assert_eq!(driver.counts().modules, 8);
}
