//! Invalid property values and invalid buffers: each is one clear message and the documented behaviour. Also the
//! smallest and largest frames.

mod common;

use common::cases::axis;
use common::video::{
    self, Blur, FRAME, blurred, buffer, bus_of, element, info, padded_buffer, param_spec, picture, read, texts,
};
use gst::glib;
use gst::prelude::*;
use gst_controller::prelude::*;
use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::filter::BlurParams;

/// Asserts that the start fails with one error, and returns its text.
fn start_fails(element: &gst::Element) -> String {
    let bus = bus_of(element);
    assert!(element.set_state(gst::State::Paused).is_err(), "the start succeeded");
    let errors = texts(&bus, gst::MessageType::Error);
    element.set_state(gst::State::Null).unwrap();
    assert_eq!(errors.len(), 1, "not one error: {errors:?}");
    errors[0].clone()
}

#[test]
fn even_kernel_size_fails_the_start() {
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
fn even_kernel_size_while_playing_is_rejected_with_a_warning() {
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

/// Values out of range, and what the error says about the range.
const OUT_OF_RANGE: [(&str, &str, &str); 15] = [
    ("sigma", "1024.5", "a number from 0 to 1024"),
    ("sigma", "-1", "a number from 0 to 1024"),
    ("sigma", "NaN", "a number from 0 to 1024"),
    ("sigma", "inf", "a number from 0 to 1024"),
    ("kernel-size", "803", "an odd number from 1 to 801"),
    ("cuda-device-id", "-2", "the number of a device"),
    ("max-in-flight", "0", "a number from 1 to 16"),
    ("max-in-flight", "17", "a number from 1 to 16"),
    ("look-ahead", "121", "a number from 0 to 120"),
    ("min-confidence", "1.5", "a number from 0 to 1"),
    ("expand", "4.5", "a number from 0 to 4"),
    ("strength", "-0.5", "a number from 0 to 2"),
    ("strength", "2.5", "a number from 0 to 2"),
    ("cells", "0", "a number from 1 to 64"),
    ("cells", "65", "a number from 1 to 64"),
];

/// Sets a property as gst-launch-1.0 does.
fn set(element: &gst::Element, property: &str, text: &str) {
    match text.parse::<f64>() {
        // GStreamer parses no text as these.
        Ok(number) if !number.is_finite() => element.set_property(property, number),
        _ => element.set_property_from_str(property, text),
    }
}

/// GObject would warn on stderr and keep the default.
#[test]
fn values_out_of_range_fail_the_start() {
    for (property, text, range) in OUT_OF_RANGE {
        let element = element("");
        let default = element.property_value(property);
        set(&element, property, text);
        let error = start_fails(&element);
        assert!(error.contains(&format!("{property}={text} cannot be used")) && error.contains(range), "{error}");
        element.set_property_from_value(property, &default);
        element.set_state(gst::State::Paused).unwrap();
        element.set_state(gst::State::Null).unwrap();
    }
}

#[test]
fn values_out_of_range_are_refused_while_playing() {
    let info = info(VideoFormat::Rgb, 40, 30);
    let image = picture(&info, 1);
    for (property, text, range) in OUT_OF_RANGE {
        let mut blur = Blur::new("sigma=3");
        blur.caps(&info);
        let value = blur.element.property_value(property).serialize().unwrap();
        set(&blur.element, property, text);
        let warnings = blur.messages(gst::MessageType::Warning);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let is_fixed = ["cuda-device-id", "max-in-flight", "look-ahead"].contains(&property);
        let said = if is_fixed { "only while the element is stopped" } else { range };
        assert!(warnings[0].contains(said) && warnings[0].contains(" stays "), "{warnings:?}");
        assert_eq!(blur.element.property_value(property).serialize().unwrap(), value);
        assert!(read(&info, &blur.push(buffer(&info, &image))) == blurred(&image, 3.0, 0), "{property}={text}");
    }
}

/// A control binding sets its property for every frame.
#[test]
fn control_binding_out_of_range_is_one_warning() {
    let info = info(VideoFormat::Gray8, 40, 30);
    let image = picture(&info, 1);
    let mut blur = Blur::new("sigma=3");
    blur.caps(&info);
    let source = gst_controller::InterpolationControlSource::new();
    source.set_mode(gst_controller::InterpolationMode::Linear);
    // Two frames in range, then ever other values out of range, and in range again for the sixth.
    for (frame, sigma) in [(0, 1.0), (1, 2.0), (2, 1100.0), (4, 1300.0), (5, 4.0), (6, 1100.0), (7, 1200.0)] {
        assert!(source.set(FRAME * frame, sigma));
    }
    let binding = gst_controller::DirectControlBinding::new_absolute(&blur.element, "sigma", &source);
    blur.element.add_control_binding(&binding).unwrap();
    let mut warnings = Vec::new();
    for sigma in [1.0, 2.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0] {
        let output = read(&info, &blur.push(buffer(&info, &image)));
        assert!(output == blurred(&image, sigma, 0), "sigma={sigma}");
        warnings.extend(blur.messages(gst::MessageType::Warning));
    }
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for words in ["sigma=1100 cannot be used", "sigma stays 2", "its control binding"] {
        assert!(warnings[0].contains(words), "{warnings:?}");
    }
    // What the application sets is reported each time.
    for _ in 0..2 {
        blur.element.set_property("sigma", 2000.0);
        let warnings = blur.messages(gst::MessageType::Warning);
        assert!(
            matches!(&warnings[..], [one] if one.contains("sigma=2000") && !one.contains("binding")),
            "{warnings:?}"
        );
    }
}

/// gst-inspect-1.0 and control bindings read the range from the property.
#[test]
fn properties_have_their_range() {
    use glib::gobject_ffi::{GParamSpecDouble, GParamSpecInt, GParamSpecUInt};
    let element = element("");
    let sigma: GParamSpecDouble = param_spec::<_, glib::ParamSpecDouble>(&element, "sigma");
    assert_eq!([sigma.minimum, sigma.maximum, sigma.default_value], [0.0, 1024.0, 1.5]);
    let size: GParamSpecUInt = param_spec::<_, glib::ParamSpecUInt>(&element, "kernel-size");
    assert_eq!([size.minimum, size.maximum, size.default_value], [0, 801, 0]);
    let device: GParamSpecInt = param_spec::<_, glib::ParamSpecInt>(&element, "cuda-device-id");
    assert_eq!([device.minimum, device.maximum, device.default_value], [-1, i32::MAX, -1]);
}

#[test]
fn backend_and_device_cannot_change_while_started() {
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

/// A frame of one pixel, and frames far smaller than the kernel.
#[test]
fn frames_smaller_than_the_kernel_are_blurred() {
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

/// The largest frame, checked at edges, at tile and power-of-two boundaries, and in the middle.
#[test]
fn the_largest_frame_is_blurred() {
    const SIDE: usize = 16384;
    let info = info(VideoFormat::Gray8, SIDE as u32, SIDE as u32);
    let at = |x: usize, y: usize| (x * 7 + y * 13 + (x * y) % 251) as u8;
    let bytes: Vec<u8> = (0..SIDE * SIDE).map(|i| at(i % SIDE, i / SIDE)).collect();
    let mut blur = Blur::new("sigma=1");
    blur.caps(&info);
    let output = blur.push(gst::Buffer::from_mut_slice(bytes));
    let output = output.map_readable().unwrap();

    let taps = axis(&BlurParams::new(1.0, 0).unwrap(), 1.0).taps;
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
fn frames_above_the_largest_size_are_not_accepted() {
    let element = element("");
    let caps = gst::Caps::builder("video/x-raw").field("format", "GRAY8").field("width", 16385).field("height", 8);
    let caps = caps.field("framerate", gst::Fraction::new(25, 1)).build();
    assert!(!element.static_pad("sink").unwrap().query_accept_caps(&caps));
}

/// The base class ends streaming without a reason; the element's own message has it.
#[test]
fn modes_that_are_not_supported_are_refused_with_the_reason() {
    let split = "because samples of both views alternate; split the views";
    for (field, value, cure) in [
        ("interlace-mode", "fields", "; use progressive"),
        ("multiview-mode", "separated", "; use mono or multiview-frame-by-frame"),
        ("multiview-mode", "column-interleaved", &format!(", {split}")),
        ("multiview-mode", "checkerboard", &format!(", {split}")),
        ("multiview-mode", "side-by-side-quincunx", &format!(", {split}")),
    ] {
        let mut blur = Blur::new("");
        let info = info(VideoFormat::I420, 32, 16);
        let mut caps = info.to_caps().unwrap();
        caps.make_mut().set(field, value);
        blur.harness.push_event(gst::event::Caps::new(&caps));
        // The event is sticky: it is sent again with every frame.
        for _ in 0..3 {
            let frame = gst::Buffer::with_size(info.size()).unwrap();
            assert_eq!(blur.try_push(frame), Err(gst::FlowError::NotNegotiated));
        }
        let errors = blur.messages(gst::MessageType::Error);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(&format!("{field}={value} is not supported{cure}")), "{errors:?}");
    }
}

#[test]
fn views_that_cannot_be_divided_are_refused_with_the_reason() {
    use gst_video::VideoInterlaceMode::{Interleaved, Progressive};
    use gst_video::{VideoMultiviewFlags as Flags, VideoMultiviewMode as Mode};
    common::video::init();
    let meet = "because the views meet within a sample: it has to be a multiple of 4";
    for (size, mode, flags, interlaced, reason) in [
        ((34, 16), Mode::SideBySide, Flags::empty(), Progressive, format!("for a width of 34, {meet}")),
        ((32, 18), Mode::TopBottom, Flags::empty(), Progressive, format!("for a height of 18, {meet}")),
        ((32, 16), Mode::TopBottom, Flags::empty(), Interleaved, "for interlaced video".to_owned()),
        ((32, 16), Mode::SideBySide, Flags::RIGHT_FLOPPED, Progressive, "with a flipped view".to_owned()),
        ((32, 16), Mode::SideBySide, Flags::MIXED_MONO, Progressive, "with the flag mixed-mono".to_owned()),
    ] {
        let mut blur = Blur::new("");
        let info = VideoInfo::builder(VideoFormat::I420, size.0, size.1).fps((25, 1)).interlace_mode(interlaced);
        let info = info.multiview_mode(mode).multiview_flags(flags).build().unwrap();
        blur.harness.push_event(gst::event::Caps::new(&info.to_caps().unwrap()));
        let frame = gst::Buffer::with_size(info.size()).unwrap();
        assert_eq!(blur.try_push(frame), Err(gst::FlowError::NotNegotiated), "{reason}");
        let [error] = &blur.messages(gst::MessageType::Error)[..] else { panic!("{reason}: not one error") };
        assert!(error.contains(&reason) && error.contains("; split the views before"), "{reason}: {error}");
    }
}

#[test]
fn truncated_buffer_error_states_the_byte_counts() {
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

/// A video meta may describe more rows than its memory holds.
#[test]
fn video_meta_beyond_its_memory_is_an_error() {
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

/// GStreamer's own check of the meta is a GLib CRITICAL, which ends programs that run with G_DEBUG=fatal-criticals.
#[test]
fn a_video_meta_that_contradicts_the_caps_is_one_error_and_no_critical() {
    use std::sync::atomic::{AtomicU32, Ordering};
    static CRITICALS: AtomicU32 = AtomicU32::new(0);
    glib::log_set_handler(Some("GStreamer-Video"), glib::LogLevels::LEVEL_CRITICAL, false, false, |_, _, text| {
        eprintln!("{text}");
        CRITICALS.fetch_add(1, Ordering::Relaxed);
    });
    let info = info(VideoFormat::Rgba, 64, 32);
    let of_meta = |format, width, height, strides: &[i32]| {
        let mut buffer = gst::Buffer::with_size(info.size()).unwrap();
        let flags = gst_video::VideoFrameFlags::empty();
        let offsets = &vec![0; strides.len()];
        gst_video::VideoMeta::add_full(buffer.make_mut(), flags, format, width, height, offsets, strides).unwrap();
        buffer
    };
    let zones = "zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5]>";
    for properties in ["", "sigma=9", &format!("region-mode=inside {zones}"), &format!("region-mode=outside {zones}")] {
        for (format, width, height, stride, meta) in [
            (VideoFormat::Bgra, 64, 32, 256, "BGRA 64x32"),
            (VideoFormat::Gray8, 64, 32, 64, "GRAY8 64x32"),
            (VideoFormat::Rgba, 63, 32, 256, "RGBA 63x32"),
            (VideoFormat::Rgba, 64, 31, 256, "RGBA 64x31"),
        ] {
            let mut blur = Blur::new(&format!("backend=cpu {properties}"));
            blur.caps(&info);
            assert_eq!(blur.try_push(of_meta(format, width, height, &[stride])), Err(gst::FlowError::Error));
            let errors = blur.messages(gst::MessageType::Error);
            let expected = format!("the GstVideoMeta of the input buffer describes {meta}, but its caps RGBA 64x32");
            assert!(matches!(&errors[..], [one] if one.contains(&expected)), "{properties}: {errors:?}");
        }
    }
    // A number of planes that is not the format's is refused; the bindings panic if it is above 4.
    for (properties, planes, is_refused) in [
        ("", 0, true),
        ("", 2, true),
        ("", 5, true),
        ("region-mode=inside", u32::MAX, true),
        // It passes through, and nobody reads it here.
        ("sigma=0", 5, false),
    ] {
        let mut buffer = of_meta(VideoFormat::Rgba, 64, 32, &[256]);
        let mut meta = buffer.make_mut().meta_mut::<gst_video::VideoMeta>().unwrap();
        // SAFETY: the pointer is to the live meta that `meta` borrows mutably.
        unsafe { (*meta.as_mut_ptr()).n_planes = planes };
        let mut blur = Blur::new(&format!("backend=cpu {properties}"));
        blur.caps(&info);
        assert_eq!(blur.try_push(buffer).is_err(), is_refused, "{properties} {planes}");
        let errors = blur.messages(gst::MessageType::Error);
        let expected = format!("describes RGBA 64x32 with {planes} planes, but its caps RGBA 64x32 with 1");
        let is_expected = match &errors[..] {
            [] => !is_refused,
            [one] => is_refused && one.contains(&expected),
            _ => false,
        };
        assert!(is_expected, "{properties}: {errors:?}");
    }
    // Frames with a larger meta are parts of larger pictures.
    let mut blur = Blur::new("backend=cpu sigma=2");
    let small = video::info(VideoFormat::Rgba, 60, 30);
    blur.caps(&small);
    blur.push(of_meta(VideoFormat::Rgba, 64, 32, &[256]));
    assert_eq!(CRITICALS.load(Ordering::Relaxed), 0);
}
