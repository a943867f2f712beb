//! Failing well: bad values, odd frames and missing engines get one sentence and the documented behaviour.

mod common;

use common::cases::half;
use common::video::{self, Blur, blurred, buffer, bus_of, element, info, padded_buffer, picture, read, texts};
use gst::glib::{self, translate::ToGlibPtr};
use gst::prelude::*;
use gst_video::VideoFormat;
use gstcudagaussblur::filter::BlurParams;

/// Sets a property as a C program does: through GObject, with no check of the Rust bindings before it.
fn set_as_c_does(element: &gst::Element, property: &str, value: impl Into<glib::Value>) {
    let value = value.into();
    let name = std::ffi::CString::new(property).unwrap();
    // SAFETY: a live object, a valid name and value.
    unsafe {
        glib::gobject_ffi::g_object_set_property(element.as_ptr().cast(), name.as_ptr(), value.to_glib_none().0);
    }
}

/// Tries to start and returns the error's text.
fn start_fails(element: &gst::Element) -> String {
    let bus = bus_of(element);
    assert!(element.set_state(gst::State::Paused).is_err(), "it started");
    let errors = texts(&bus, gst::MessageType::Error);
    element.set_state(gst::State::Null).unwrap();
    assert_eq!(errors.len(), 1, "one error, not {errors:?}");
    errors[0].clone()
}

#[test]
fn an_even_kernel_size_before_start_fails_the_start() {
    for size in [2, 4, 800] {
        let element = element(&format!("kernel-size={size}"));
        assert_eq!(element.property::<u32>("kernel-size"), size);
        let text = start_fails(&element);
        assert!(text.contains(&format!("kernel-size={size}")) && text.contains("odd number from 1 to 801"), "{text}");
        element.set_property("kernel-size", 7_u32);
        element.set_state(gst::State::Paused).unwrap();
        element.set_state(gst::State::Null).unwrap();
    }
}

#[test]
fn an_even_kernel_size_while_playing_is_refused_and_the_old_one_stays() {
    let info = info(VideoFormat::Rgb, 40, 30);
    let image = picture(&info, 1);
    let mut blur = Blur::new("sigma=3 kernel-size=9");
    blur.caps(&info);
    blur.push(buffer(&info, &image));
    blur.element.set_property("kernel-size", 10_u32);
    let warnings = blur.messages(gst::MessageType::Warning);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("kernel-size=10") && warnings[0].contains("stays 9"), "{warnings:?}");
    assert_eq!(blur.element.property::<u32>("kernel-size"), 9);
    assert!(read(&info, &blur.push(buffer(&info, &image))) == blurred(&image, 3.0, 9));
}

/// GObject itself keeps what is out of a property's range away from the element. Whatever the version does with it,
/// what reads back is what blurs.
#[test]
fn values_out_of_range_never_blur_as_something_else() {
    let info = info(VideoFormat::Rgb, 40, 30);
    let image = picture(&info, 1);
    let bad_sigmas = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 100.5, 1e300];
    for started in [false, true] {
        for bad in bad_sigmas {
            let mut blur = if started { Blur::new("sigma=3") } else { idle("sigma=3") };
            set_as_c_does(&blur.element, "sigma", bad);
            check_what_reads_back(&mut blur, &info, &image);
        }
        for bad in [802_u32, 803, 1_000_001, u32::MAX] {
            let mut blur = if started { Blur::new("sigma=3") } else { idle("sigma=3") };
            set_as_c_does(&blur.element, "kernel-size", bad);
            check_what_reads_back(&mut blur, &info, &image);
        }
    }
}

fn idle(properties: &str) -> Blur {
    let blur = Blur::new(properties);
    blur.element.set_state(gst::State::Null).unwrap();
    blur
}

fn check_what_reads_back(blur: &mut Blur, info: &gst_video::VideoInfo, image: &common::oracle::Image) {
    let (sigma, size) = (blur.element.property::<f64>("sigma"), blur.element.property::<u32>("kernel-size"));
    if BlurParams::new(sigma, size).is_err() {
        let text = start_fails(&blur.element);
        assert!(text.contains(&sigma.to_string()) || text.contains(&size.to_string()), "{text}");
        return;
    }
    blur.harness.play();
    blur.caps(info);
    assert!(read(info, &blur.push(buffer(info, image))) == blurred(image, sigma, size), "sigma={sigma} size={size}");
}

#[test]
fn what_is_chosen_at_start_stays_until_stop() {
    let blur = Blur::new("backend=cpu");
    blur.element.set_property_from_str("backend", "cuda");
    blur.element.set_property("cuda-device-id", 1);
    let warnings = blur.messages(gst::MessageType::Warning);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("backend can be changed only while") && warnings[0].contains("stays cpu"));
    assert!(warnings[1].contains("cuda-device-id can be changed only while") && warnings[1].contains("stays -1"));
    assert_eq!(video::nick(&blur.element, "backend"), "cpu");
    blur.element.set_state(gst::State::Null).unwrap();
    blur.element.set_property("cuda-device-id", 1);
    assert_eq!(blur.element.property::<i32>("cuda-device-id"), 1);
}

/// The smallest frame, and frames far smaller than the kernel.
#[test]
fn frames_smaller_than_the_kernel() {
    for (width, height) in [(1, 1), (1, 50), (50, 1), (3, 2)] {
        for format in [VideoFormat::Gray8, VideoFormat::Bgr] {
            let info = info(format, width, height);
            let image = picture(&info, 9);
            let mut blur = Blur::new("sigma=100");
            blur.caps(&info);
            assert!(read(&info, &blur.push(buffer(&info, &image))) == blurred(&image, 100.0, 0), "{width}x{height}");
        }
    }
}

/// The largest frame: all of it blurred, checked where it could go wrong.
#[test]
fn the_largest_frame() {
    const SIDE: usize = 16384;
    let info = info(VideoFormat::Gray8, SIDE as u32, SIDE as u32);
    let at = |x: usize, y: usize| (x * 7 + y * 13 + (x * y) % 251) as u8;
    let bytes: Vec<u8> = (0..SIDE * SIDE).map(|i| at(i % SIDE, i / SIDE)).collect();
    let mut blur = Blur::new("sigma=1");
    blur.caps(&info);
    let output = blur.push(gst::Buffer::from_mut_slice(bytes));
    let output = output.map_readable().unwrap();

    let taps = half(&BlurParams::new(1.0, 0).unwrap().taps(1.0));
    let reach = taps.len() as isize - 1;
    let expected = |x: usize, y: usize| {
        let clamp = |i: usize, k: isize| (i as isize + k).clamp(0, SIDE as isize - 1) as usize;
        let weigh = |sample: &dyn Fn(isize) -> u64| -> u64 {
            (-reach..=reach).map(|k| u64::from(taps[k.unsigned_abs()]) * sample(k)).sum()
        };
        let middle = |y: usize| (weigh(&|k| u64::from(at(clamp(x, k), y)) << 8) + (1 << 15)) >> 16;
        ((weigh(&|k| middle(clamp(y, k))) + (1 << 23)) >> 24) as u8
    };
    let places = [0, 1, 2, 191, 192, 4095, 8191, 8192, SIDE / 2 + 3, SIDE - 3, SIDE - 2, SIDE - 1];
    for (x, y) in places.iter().flat_map(|&y| places.iter().map(move |&x| (x, y))) {
        assert_eq!(output[y * SIDE + x], expected(x, y), "at {x},{y}");
    }
}

#[test]
fn a_frame_larger_than_the_largest_is_no_caps_of_ours() {
    let element = element("");
    let caps = gst::Caps::builder("video/x-raw").field("format", "GRAY8").field("width", 16385).field("height", 8);
    let caps = caps.field("framerate", gst::Fraction::new(25, 1)).build();
    assert!(!element.static_pad("sink").unwrap().query_accept_caps(&caps));
}

#[test]
fn a_truncated_buffer_is_an_error_that_counts_the_bytes() {
    let info = info(VideoFormat::Rgba, 64, 32);
    let mut blur = Blur::new("");
    blur.caps(&info);
    for len in [0, 1, info.size() - 1] {
        assert_eq!(blur.try_push(gst::Buffer::from_mut_slice(vec![0; len])), Err(gst::FlowError::Error));
        let errors = blur.messages(gst::MessageType::Error);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(&format!("holds {len} bytes")) && errors[0].contains("takes 8192"), "{errors:?}");
    }
}

/// A video meta may promise rows that its memory does not hold.
#[test]
fn a_video_meta_beyond_its_memory_is_an_error() {
    let info = info(VideoFormat::Rgba, 64, 32);
    let image = picture(&info, 1);
    let mut blur = Blur::new("");
    blur.caps(&info);
    let mut short = padded_buffer(&info, &image, 0, 512);
    short.get_mut().unwrap().set_size(512 * 31);
    assert_eq!(blur.try_push(short), Err(gst::FlowError::Error));
    let errors = blur.messages(gst::MessageType::Error);
    assert!(errors.len() == 1 && errors[0].contains("truncated"), "{errors:?}");
    assert!(read(&info, &blur.push(padded_buffer(&info, &image, 0, 512))) == blurred(&image, 1.5, 0));
}
