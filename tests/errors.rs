//! Invalid property values and invalid buffers: each is one clear message and the documented behaviour. Also the
//! smallest and largest frames.

mod common;

use common::cases::axis;
use common::checks::{Row, start_fails, starts};
use common::video::{Blur, FRAME, element, info};
use gst::glib;
use gst::prelude::*;
use gst_controller::prelude::*;
use gst_video::VideoFormat::{Bgr, Bgra, Gray8, I420, Rgb, Rgba};
use gst_video::{VideoInfo, VideoMeta};
use gstcudagaussblur::filter::BlurParams;

/// Values that cannot be used, and what the error says about the range.
const UNUSABLE: [(&str, &str, &str); 18] = [
    ("sigma", "1024.5", "a number from 0 to 1024"),
    ("sigma", "-1", "a number from 0 to 1024"),
    ("sigma", "NaN", "a number from 0 to 1024"),
    ("sigma", "inf", "a number from 0 to 1024"),
    ("kernel-size", "2", "an odd number from 1 to 801"),
    ("kernel-size", "4", "an odd number from 1 to 801"),
    ("kernel-size", "800", "an odd number from 1 to 801"),
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
fn values_that_cannot_be_used_fail_the_start() {
    for (property, text, range) in UNUSABLE {
        let _row = Row(format!("{property}={text}"));
        let element = element("");
        let default = element.property_value(property);
        set(&element, property, text);
        if property == "kernel-size" {
            assert_eq!(element.property::<u32>(property).to_string(), text);
        }
        start_fails(&element, &[&format!("{property}={text} cannot be used"), range]);
        element.set_property_from_value(property, &default);
        starts(&element);
    }
}

#[test]
fn values_that_cannot_be_used_are_refused_while_playing() {
    let info = info(Rgb, 40, 30);
    for (property, text, range) in UNUSABLE {
        let _row = Row(format!("{property}={text}"));
        let mut blur = Blur::with("sigma=3", &info);
        let value = blur.element.property_value(property).serialize().unwrap();
        set(&blur.element, property, text);
        let is_fixed = ["cuda-device-id", "max-in-flight", "look-ahead"].contains(&property);
        let said = if is_fixed { "only while the element is stopped" } else { range };
        blur.warns(&[property, said, " stays "]);
        assert_eq!(blur.element.property_value(property).serialize().unwrap(), value);
        blur.check(&info, 1, 3.0);
    }
}

/// A control binding sets its property for every frame.
#[test]
fn control_binding_out_of_range_is_one_warning() {
    let info = info(Gray8, 40, 30);
    let mut blur = Blur::with("sigma=3", &info);
    let source = gst_controller::InterpolationControlSource::new();
    source.set_mode(gst_controller::InterpolationMode::Linear);
    // Two frames in range, then ever other values out of range, and in range again for the sixth.
    for (frame, sigma) in [(0, 1.0), (1, 2.0), (2, 1100.0), (4, 1300.0), (5, 4.0), (6, 1100.0), (7, 1200.0)] {
        assert!(source.set(FRAME * frame, sigma));
    }
    let binding = gst_controller::DirectControlBinding::new_absolute(&blur.element, "sigma", &source);
    blur.element.add_control_binding(&binding).unwrap();
    for sigma in [1.0, 2.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0] {
        blur.check(&info, 1, sigma);
    }
    blur.warns(&["sigma=1100 cannot be used", "sigma stays 2", "its control binding"]);
    // What the application sets is reported each time.
    for _ in 0..2 {
        blur.element.set_property("sigma", 2000.0);
        let [warning] = &blur.said(1, 0)[..] else { unreachable!() };
        assert!(warning.contains("sigma=2000") && !warning.contains("binding"), "{warning}");
    }
}

#[test]
fn backend_and_device_cannot_change_while_started() {
    let blur = Blur::new("backend=cpu");
    for (property, text, stays) in [("backend", "cuda", "stays cpu"), ("cuda-device-id", "1", "stays -1")] {
        blur.element.set_property_from_str(property, text);
        blur.warns(&[&format!("{property} can be changed only while"), stays]);
    }
    assert_eq!(common::video::nick(&blur.element, "backend"), "cpu");
    blur.element.set_state(gst::State::Null).unwrap();
    blur.element.set_property("cuda-device-id", 1);
    assert_eq!(blur.element.property::<i32>("cuda-device-id"), 1);
}

/// A frame of one pixel, and frames far smaller than the kernel.
#[test]
fn frames_smaller_than_the_kernel_are_blurred() {
    for (width, height) in [(1, 1), (1, 50), (50, 1), (3, 2)] {
        for format in [Gray8, Bgr] {
            let info = info(format, width, height);
            Blur::with("sigma=100", &info).check(&info, 9, 100.0);
        }
    }
}

/// The largest frame, checked at edges, at tile and power-of-two boundaries, and in the middle.
#[test]
fn the_largest_frame_is_blurred() {
    const SIDE: usize = 16384;
    let info = info(Gray8, SIDE as u32, SIDE as u32);
    let at = |x: usize, y: usize| (x * 7 + y * 13 + (x * y) % 251) as u8;
    let bytes: Vec<u8> = (0..SIDE * SIDE).map(|i| at(i % SIDE, i / SIDE)).collect();
    let output = Blur::with("sigma=1", &info).push(gst::Buffer::from_mut_slice(bytes));
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

/// Pushes caps and frames that are not negotiated, and checks the only error.
#[track_caller]
fn caps_are_refused(caps: &gst::Caps, words: &[&str]) {
    let mut blur = Blur::new("");
    blur.harness.push_event(gst::event::Caps::new(caps));
    // The event is sticky: it is sent again with every frame.
    for _ in 0..3 {
        assert_eq!(blur.try_push(gst::Buffer::with_size(768).unwrap()), Err(gst::FlowError::NotNegotiated));
    }
    let [error] = &blur.messages(gst::MessageType::Error)[..] else { panic!("not one error") };
    common::checks::has_words(error, words);
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
        let mut caps = info(I420, 32, 16).to_caps().unwrap();
        caps.make_mut().set(field, value);
        caps_are_refused(&caps, &[&format!("{field}={value} is not supported{cure}")]);
    }
}

#[test]
fn views_that_cannot_be_divided_are_refused_with_the_reason() {
    use gst_video::VideoInterlaceMode::{Interleaved, Progressive};
    use gst_video::{VideoMultiviewFlags as Flags, VideoMultiviewMode as Mode};
    common::video::init();
    let meet = "because the views meet within a sample: it has to be a multiple of 4";
    for (size, mode, flags, interlaced, reason) in [
        ((34, 16), Mode::SideBySide, Flags::empty(), Progressive, &*format!("for a width of 34, {meet}")),
        ((32, 18), Mode::TopBottom, Flags::empty(), Progressive, &*format!("for a height of 18, {meet}")),
        ((32, 16), Mode::TopBottom, Flags::empty(), Interleaved, "for interlaced video"),
        ((32, 16), Mode::SideBySide, Flags::RIGHT_FLOPPED, Progressive, "with a flipped view"),
        ((32, 16), Mode::SideBySide, Flags::MIXED_MONO, Progressive, "with the flag mixed-mono"),
    ] {
        let info = VideoInfo::builder(I420, size.0, size.1).fps((25, 1)).interlace_mode(interlaced);
        let info = info.multiview_mode(mode).multiview_flags(flags).build().unwrap();
        caps_are_refused(&info.to_caps().unwrap(), &[reason, "; split the views before"]);
    }
}

/// After each error the next frame is blurred. Other layouts that cannot be are tested by tests/buffers.rs.
#[test]
fn truncated_buffer_error_states_the_byte_counts() {
    let info = info(Rgba, 64, 32);
    let mut blur = Blur::with("", &info);
    for len in [0, 1, info.size() - 1] {
        let frame = gst::Buffer::from_mut_slice(vec![0; len]);
        blur.refuses(frame, &[&format!("holds {len} bytes"), "takes 8192"]);
        blur.check(&info, 1, 1.5);
    }
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
    let caps = info(Rgba, 64, 32);
    let of_meta = |format, width, height, stride: i32| {
        let mut buffer = gst::Buffer::with_size(caps.size()).unwrap();
        let flags = gst_video::VideoFrameFlags::empty();
        VideoMeta::add_full(buffer.make_mut(), flags, format, width, height, &[0], &[stride]).unwrap();
        buffer
    };
    let zones = "zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5]>";
    for properties in [
        "",
        "sigma=9",
        &format!("region-mode=inside {zones}"),
        &format!("region-mode=outside region-sources=zones {zones}"),
    ] {
        for (format, width, height, stride, meta) in [
            (Bgra, 64, 32, 256, "BGRA 64x32"),
            (Gray8, 64, 32, 64, "GRAY8 64x32"),
            (Rgba, 63, 32, 256, "RGBA 63x32"),
            (Rgba, 64, 31, 256, "RGBA 64x31"),
        ] {
            let _row = Row(format!("{properties}, {meta}"));
            let mut blur = Blur::with(&format!("backend=cpu {properties}"), &caps);
            let words = format!("the GstVideoMeta of the input buffer describes {meta}, but its caps RGBA 64x32");
            blur.refuses(of_meta(format, width, height, stride), &[&words]);
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
        let _row = Row(format!("{properties}, {planes} planes"));
        let mut buffer = of_meta(Rgba, 64, 32, 256);
        let mut meta = buffer.make_mut().meta_mut::<VideoMeta>().unwrap();
        // SAFETY: the pointer is to the live meta that `meta` borrows mutably.
        unsafe { (*meta.as_mut_ptr()).n_planes = planes };
        let mut blur = Blur::with(&format!("backend=cpu {properties}"), &caps);
        if is_refused {
            blur.refuses(
                buffer,
                &[&format!("describes RGBA 64x32 with {planes} planes, but its caps RGBA 64x32 with 1")],
            );
        } else {
            blur.try_push(buffer).unwrap();
            blur.said(0, 0);
        }
    }
    // Frames with a larger meta are parts of larger pictures.
    Blur::with("backend=cpu sigma=2", &info(Rgba, 60, 30)).push(of_meta(Rgba, 64, 32, 256));
    assert_eq!(CRITICALS.load(Ordering::Relaxed), 0);
}
