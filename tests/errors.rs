//! Invalid property values and invalid buffers: each is one clear message and the documented behaviour. Also the
//! smallest and largest frames.

mod common;

use common::checks::{Row, start_fails, starts};
use common::oracle::Image;
use common::video::{Blur, FRAME, blurred, element, info};
use gst::glib;
use gst::prelude::*;
use gst_controller::prelude::*;
use gst_video::VideoFormat::{Bgra, Gray8, Rgb, Rgba};
use gst_video::VideoMeta;

/// Values that cannot be used, and what the error says about the range.
const UNUSABLE: [(&str, &str, &str); 9] = [
    ("sigma", "1024.5 -1 NaN inf", "a number from 0 to 1024"),
    ("kernel-size", "2 4 800 803", "an odd number from 1 to 801"),
    ("cuda-device-id", "-2", "the number of a device"),
    ("max-in-flight", "0 17", "a number from 1 to 16"),
    ("look-ahead", "121", "a number from 0 to 120"),
    ("min-confidence", "1.5", "a number from 0 to 1"),
    ("expand", "4.5", "a number from 0 to 4"),
    ("strength", "-0.5 2.5", "a number from 0 to 2"),
    ("cells", "0 65", "a number from 1 to 64"),
];

/// Each property with each value, and the range.
fn unusable() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    UNUSABLE.into_iter().flat_map(|(name, values, range)| values.split(' ').map(move |value| (name, value, range)))
}

/// Sets a property as gst-launch-1.0 does.
fn set(element: &gst::Element, property: &str, text: &str) {
    match text.parse::<f64>() {
        // GStreamer parses no text as these.
        Ok(number) if !number.is_finite() => element.set_property(property, number),
        _ => element.set_property_from_str(property, text),
    }
}

/// GObject would warn on stderr and keep the default. While playing, the last value stays.
#[test]
fn values_that_cannot_be_used_fail_the_start_and_are_refused_while_playing() {
    let info = info(Rgb, 40, 30);
    for (property, text, range) in unusable() {
        let _row = Row(format!("{property}={text}"));
        let stopped = element("");
        let default = stopped.property_value(property);
        set(&stopped, property, text);
        if property == "kernel-size" {
            assert_eq!(stopped.property::<u32>(property).to_string(), text);
        }
        start_fails(&stopped, &[&format!("{property}={text} cannot be used"), range]);
        stopped.set_property_from_value(property, &default);
        starts(&stopped);

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

/// The largest frame, checked at edges, at tile and power-of-two boundaries, and in the middle.
#[test]
fn the_largest_frame_is_blurred() {
    const SIDE: usize = 16384;
    let info = info(Gray8, SIDE as u32, SIDE as u32);
    let sample = |x: usize, y: usize| (x * 7 + y * 13 + (x * y) % 251) as u8;
    let bytes: Vec<u8> = (0..SIDE * SIDE).map(|i| sample(i % SIDE, i / SIDE)).collect();
    let output = Blur::with("sigma=1", &info).push(gst::Buffer::from_mut_slice(bytes));
    let output = output.map_readable().unwrap();
    // The blur of a window around each place, whose edges are those of the frame, or further away than the kernel reaches.
    let places = [0, 1, 2, 191, 192, 4095, 8191, 8192, SIDE / 2 + 3, SIDE - 3, SIDE - 2, SIDE - 1];
    const REACH: usize = 5;
    let window = |place: usize| place.saturating_sub(REACH)..(place + REACH + 1).min(SIDE);
    for (x, y) in places.iter().flat_map(|&y| places.iter().map(move |&x| (x, y))) {
        let (columns, rows) = (window(x), window(y));
        let samples = rows.clone().flat_map(|y| columns.clone().map(move |x| u16::from(sample(x, y)))).collect();
        let image = Image { width: columns.len(), height: rows.len(), channels: 1, depth: 8, samples };
        let expected = blurred(&image, 1.0, 0).samples[(y - rows.start) * image.width + x - columns.start];
        assert_eq!(u16::from(output[y * SIDE + x]), expected, "at {x},{y}");
    }
}

/// The base class ends streaming without a reason; the element's own message has it.
#[test]
fn modes_that_are_not_supported_are_refused_with_the_reason() {
    common::video::init();
    // Caps can name the type of multiview-flags only after other caps have used it.
    let of_views = gst_video::VideoInfo::builder(Rgb, 2, 2).multiview_mode(gst_video::VideoMultiviewMode::SideBySide);
    of_views.build().unwrap().to_caps().unwrap();
    let mixed = "because samples of both views alternate; split the views before";
    // The flags left-flipped, left-flopped, right-flipped, right-flopped and mixed-mono.
    let [left, left_flopped, right, right_flopped, mono] = ["2", "4", "8", "10", "8000"]
        .map(|flag| format!("multiview-mode=side-by-side,multiview-flags=(GstVideoMultiviewFlagsSet){flag}:ffffffff"));
    let meet = "because the views meet within a sample: it has to be a multiple of 4; split the views before";
    for (width, height, modes, reason) in [
        (32, 16, "interlace-mode=fields", "; use progressive"),
        (32, 16, "multiview-mode=separated", "; use mono or multiview-frame-by-frame"),
        (32, 16, "multiview-mode=column-interleaved", mixed),
        (32, 16, "multiview-mode=checkerboard", mixed),
        (32, 16, "multiview-mode=side-by-side-quincunx", mixed),
        (34, 16, "multiview-mode=side-by-side", &format!("for a width of 34, {meet}")),
        (32, 18, "multiview-mode=top-bottom", &format!("for a height of 18, {meet}")),
        (32, 16, "multiview-mode=top-bottom,interlace-mode=interleaved", "for interlaced video; split the views"),
        (32, 16, "multiview-mode=row-interleaved,interlace-mode=interleaved", "for interlaced video"),
        (32, 16, &left, "with a flipped view"),
        (32, 16, &left_flopped, "with a flipped view"),
        (32, 16, &right, "with a flipped view"),
        (32, 16, &right_flopped, "with a flipped view"),
        (32, 16, &mono, "with the flag mixed-mono"),
    ] {
        let _row = Row(modes.to_owned());
        let caps = format!("video/x-raw,format=I420,width={width},height={height},framerate=25/1,{modes}");
        let mut blur = Blur::new("");
        blur.harness.push_event(gst::event::Caps::new(&caps.parse().unwrap()));
        blur.harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
        // The event is sticky: it is sent again with every frame.
        for _ in 0..3 {
            assert_eq!(blur.try_push(gst::Buffer::with_size(768).unwrap()), Err(gst::FlowError::NotNegotiated));
        }
        let [error] = &blur.messages(gst::MessageType::Error)[..] else { panic!("not one error") };
        let mode = modes.split(',').next().unwrap();
        let is_right = error.contains(mode) && error.contains(" is not supported") && error.contains(reason);
        assert!(is_right, "{error}");
        // Once more after others.
        blur.caps(&info(Rgb, 32, 16));
        blur.harness.push_event(gst::event::Caps::new(&caps.parse().unwrap()));
        blur.said(0, 1);
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
    let of_meta = |format, width, height, stride: i32, planes: u32| {
        let mut buffer = gst::Buffer::with_size(caps.size()).unwrap();
        let flags = gst_video::VideoFrameFlags::empty();
        let mut meta = VideoMeta::add_full(buffer.make_mut(), flags, format, width, height, &[0], &[stride]).unwrap();
        // SAFETY: the pointer is to the live meta that `meta` borrows mutably.
        unsafe { (*meta.as_mut_ptr()).n_planes = planes };
        buffer
    };
    let zones = "zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5]>";
    let (inside, outside) =
        (format!("region-mode=inside {zones}"), format!("region-mode=outside region-sources=zones {zones}"));
    for properties in ["", "sigma=9", &inside, &outside] {
        for (format, width, height, stride, planes, meta) in [
            (Bgra, 64, 32, 256, 1, "BGRA 64x32, but its caps RGBA 64x32"),
            (Gray8, 64, 32, 64, 1, "GRAY8 64x32, but its caps RGBA 64x32"),
            (Rgba, 63, 32, 256, 1, "RGBA 63x32, but its caps RGBA 64x32"),
            (Rgba, 64, 31, 256, 1, "RGBA 64x31, but its caps RGBA 64x32"),
            // The bindings panic if the number of planes is above 4.
            (Rgba, 64, 32, 256, 0, "RGBA 64x32 with 0 planes, but its caps RGBA 64x32 with 1"),
            (Rgba, 64, 32, 256, 2, "RGBA 64x32 with 2 planes, but its caps RGBA 64x32 with 1"),
            (Rgba, 64, 32, 256, 5, "RGBA 64x32 with 5 planes, but its caps RGBA 64x32 with 1"),
            (Rgba, 64, 32, 256, u32::MAX, "RGBA 64x32 with 4294967295 planes, but its caps RGBA 64x32 with 1"),
        ] {
            let _row = Row(format!("{properties}, {meta}"));
            let mut blur = Blur::with(&format!("backend=cpu {properties}"), &caps);
            blur.refuses(of_meta(format, width, height, stride, planes), &[&format!("describes {meta}")]);
        }
    }
    // What passes through, nobody reads here. Frames with a larger meta are parts of larger pictures.
    for (properties, size, planes) in [("sigma=0", [64, 32], 5), ("sigma=2", [60, 30], 1)] {
        let info = info(Rgba, size[0], size[1]);
        let mut blur = Blur::with(&format!("backend=cpu {properties}"), &info);
        blur.try_push(of_meta(Rgba, 64, 32, 256, planes)).unwrap();
        blur.said(0, 0);
    }
    assert_eq!(CRITICALS.load(Ordering::Relaxed), 0);
}
