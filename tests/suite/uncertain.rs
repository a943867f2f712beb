//! What is uncertain is covered, with region-mode=inside and with outside, and the message about a frame says what was done.

use crate::common::covered::{alternate, blurred, buffer, check, check_whole, covering, info, noise, planes, with_roi};
use crate::common::pictures::{Picture, rect};
use crate::common::video::{Blur, stat};
use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo, VideoMeta, VideoRegionOfInterestMeta};
use gstcudagaussblur::element::formats as layouts;
use gstcudagaussblur::filter::regions::Rect;

const SIZE: [u32; 2] = [97, 61];
const ZONE: &str = "zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5]>";

/// Caps without a frame rate, and buffers that do not say how long they last: a JPEG, VP8 by RTP.
#[test]
fn frames_of_unknown_duration_are_covered() {
    crate::common::video::init();
    let info = VideoInfo::builder(VideoFormat::Nv12, SIZE[0], SIZE[1]).fps((0, 1)).build().unwrap();
    let picture = noise(&info, 1);
    for mode in ["inside", "outside"] {
        let mut blur = covering(&format!("region-mode={mode} on-missing=pass sigma=3 {ZONE}"), true, &info);
        for restarts in 0..2 {
            for timestamp in [None, Some(gst::ClockTime::SECOND)] {
                let mut input = buffer(&info, &picture);
                input.make_mut().set_pts(timestamp);
                let output = blur.harness.push_and_pull(input);
                let output = output
                    .unwrap_or_else(|error| panic!("{mode}: {error:?} {:?}", blur.messages(gst::MessageType::Error)));
                let inside = [rect(0, 0, 49, 31)];
                let outside = [rect(49, 0, 48, 31), rect(0, 31, 97, 30)];
                let rects: &[Rect] = if mode == "inside" { &inside } else { &outside };
                check(&info, &output, &picture, &blurred(&picture, 3.0), rects, true);
            }
            if restarts == 0 {
                blur.element.set_state(gst::State::Ready).unwrap();
                blur.harness.play();
                blur.harness.push_event(gst::event::StreamStart::new("again"));
                blur.caps(&info);
                blur.harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
            }
        }
    }
}

/// Downstream does not read the strides of the input, so that the frame is copied.
#[test]
fn a_frame_without_anything_to_fill_is_copied() {
    let info = info(VideoFormat::Nv12, SIZE);
    let picture = noise(&info, 2);
    let mut blur = covering("cover=fill", false, &info);
    check(&info, &blur.push(buffer(&info, &picture)), &picture, &picture, &[], false);
    assert!(blur.messages(gst::MessageType::Error).is_empty());
}

#[test]
fn a_box_in_a_field_is_shown_where_either_numbering_of_rows_has_it() {
    let (caps, info) = alternate();
    let picture = Picture::new(&layouts::planes(&info, false).unwrap(), 3);
    let shown = |y: u32, height: u32| -> Vec<u32> {
        let mut blur = Blur::new("backend=cpu region-mode=outside cover=fill fill-color=0xff000000 expand=0");
        blur.harness.add_propose_allocation_meta(VideoMeta::meta_api(), None);
        blur.harness.set_src_caps(caps.clone());
        let output = blur.push(with_roi(buffer(&info, &picture), "face", (10, y, 20, height)));
        let (_, got) = planes(&info, &picture.planes, &output);
        let pitch = crate::common::pictures::pitch(&picture.planes[0]);
        let is_shown = |row: &u32| got[0][*row as usize * pitch + 10..][..20].iter().any(|byte| *byte != 0);
        (0..60).filter(is_shown).collect()
    };
    // Rows 10 to 30 of the field if it counts rows of the frame, 20 to 60 if of the field.
    assert_eq!(shown(20, 40), (20..30).collect::<Vec<_>>());
    assert_eq!(shown(40, 16), [0; 0], "rows 20 to 28, or 40 to 56");
}

/// What vanished is covered wherever it may have been, also if it was found while only what is certain of it was shown.
#[test]
fn a_box_in_a_field_is_held_in_either_numbering_of_rows() {
    let (caps, info) = alternate();
    let picture = Picture::new(&layouts::planes(&info, false).unwrap(), 3);
    let mut blur = Blur::new("backend=cpu region-mode=outside strength=0 sigma=3 expand=0 on-missing=pass");
    blur.harness.add_propose_allocation_meta(VideoMeta::meta_api(), None);
    blur.harness.set_src_caps(caps);
    blur.push(with_roi(buffer(&info, &picture), "face", (10, 20, 20, 40)));
    blur.element.set_property_from_str("region-mode", "inside");
    let output = blur.push(buffer(&info, &picture));
    let (_, got) = planes(&info, &picture.planes, &output);
    let pitch = crate::common::pictures::pitch(&picture.planes[0]);
    let expected = blurred(&picture, 3.0);
    // Rows 10 to 60, grown by 2.2 samples in 40 ms.
    for (row, column) in (0..60).flat_map(|row| (0..64).map(move |column| (row, column))) {
        let from = if (7..60).contains(&row) && (7..33).contains(&column) { &expected } else { &picture };
        assert_eq!(got[0][row * pitch + column], from.bytes[0][row * pitch + column], "{row} {column}");
    }
}

#[test]
fn a_zone_is_shown_only_in_frames_that_are_wholly_in_its_time() {
    let info = info(VideoFormat::Gray8, SIZE);
    let picture = noise(&info, 4);
    let zones = "zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5,start=(guint64)100000000,end=(guint64)200000000]>";
    let outside = [rect(49, 0, 48, 31), rect(0, 31, 97, 30)];
    let inside = [rect(0, 0, 49, 31)];
    let whole = [rect(0, 0, 97, 61)];
    for (milliseconds, if_shown, if_covered) in [
        (None, &whole[..], &inside[..]),
        (Some(60), &whole, &[]),
        (Some(61), &whole, &inside),
        (Some(99), &whole, &inside),
        (Some(100), &outside, &inside),
        (Some(160), &outside, &inside),
        (Some(161), &whole, &inside),
        (Some(200), &whole, &[]),
    ] {
        for (mode, rects) in [("outside", if_shown), ("inside", if_covered)] {
            let mut blur = covering(&format!("region-mode={mode} region-sources=zones sigma=3 {zones}"), true, &info);
            let mut input = buffer(&info, &picture);
            input.make_mut().set_pts(milliseconds.map(gst::ClockTime::from_mseconds));
            input.make_mut().set_duration(gst::ClockTime::from_mseconds(40));
            let output = blur.harness.push_and_pull(input).unwrap();
            check(&info, &output, &picture, &blurred(&picture, 3.0), rects, true);
        }
    }
}

/// Neither the buffer nor the frame rate says how long the frame lasts, so that it may last for any time.
#[test]
fn a_frame_of_unknown_duration_may_last_into_every_later_zone() {
    crate::common::video::init();
    let info = gst_video::VideoInfo::builder(VideoFormat::Gray8, 97, 61).fps((0, 1)).build().unwrap();
    let picture = noise(&info, 4);
    let outside = [rect(49, 0, 48, 31), rect(0, 31, 97, 30)];
    let inside = [rect(0, 0, 49, 31)];
    let whole = [rect(0, 0, 97, 61)];
    let segment = |applied_rate| {
        let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
        segment.set_applied_rate(applied_rate);
        segment.set_stop(gst::ClockTime::from_mseconds(300));
        segment
    };
    for (times, applied_rate, milliseconds, if_shown, if_covered) in [
        ("start=(guint64)100000000,end=(guint64)200000000", 1.0, 60, &whole[..], &inside[..]),
        ("start=(guint64)100000000,end=(guint64)200000000", 1.0, 150, &whole, &inside),
        ("start=(guint64)100000000,end=(guint64)200000000", 1.0, 200, &whole, &[]),
        ("start=(guint64)100000000", 1.0, 99, &whole, &inside),
        ("start=(guint64)100000000", 1.0, 100, &outside, &inside),
        ("end=(guint64)200000000", 1.0, 199, &whole, &inside),
        ("end=(guint64)200000000", 1.0, 200, &whole, &[]),
        // Stream time runs from 300 ms to 0.
        ("start=(guint64)100000000,end=(guint64)200000000", -1.0, 50, &whole, &inside),
        ("start=(guint64)100000000,end=(guint64)200000000", -1.0, 250, &whole, &[]),
        ("end=(guint64)200000000", -1.0, 150, &outside, &inside),
    ] {
        for (mode, rects) in [("outside", if_shown), ("inside", if_covered)] {
            let zones = format!("zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5,{times}]>");
            let mut blur = covering(&format!("region-mode={mode} region-sources=zones sigma=3 {zones}"), true, &info);
            blur.harness.push_event(gst::event::Segment::new(&segment(applied_rate)));
            let mut input = buffer(&info, &picture);
            input.make_mut().set_pts(gst::ClockTime::from_mseconds(milliseconds));
            let output = blur.harness.push_and_pull(input).unwrap();
            check(&info, &output, &picture, &blurred(&picture, 3.0), rects, true);
        }
    }
}

/// The picture is 97x61: a side of more than twice that is no object's.
#[test]
fn a_box_of_absurd_size_is_covered_and_never_shown() {
    let info = info(VideoFormat::Rgb, SIZE);
    let picture = noise(&info, 5);
    let whole = [rect(0, 0, 97, 61)];
    for (roi, is_shown) in [
        ((0, 0, 194, 122), true),
        ((0, 0, 195, 61), false),
        ((0, 0, 97, 123), false),
        ((0, 0, u32::MAX, u32::MAX), false),
    ] {
        let input = || with_roi(buffer(&info, &picture), "face", roi);
        let mut blur = covering("region-mode=outside sigma=3 expand=0", true, &info);
        let rects: &[Rect] = if is_shown { &[] } else { &whole };
        check(&info, &blur.push(input()), &picture, &blurred(&picture, 3.0), rects, true);
        let mut blur = covering("sigma=3 expand=0", true, &info);
        check(&info, &blur.push(input()), &picture, &blurred(&picture, 3.0), &whole, true);
    }
}

/// With a soft edge as with a hard one, and at an edge of the picture.
#[test]
fn what_shrinking_leaves_nothing_of_is_covered_whole() {
    let info = info(VideoFormat::Gray8, SIZE);
    let picture = noise(&info, 10);
    for (roi, grow) in [((40, 20, 6, 30), -3), ((40, 20, 6, 30), -5), ((57, 20, 40, 30), -20), ((0, 0, 97, 40), -20)] {
        for soft in ["", "shape=ellipse", "feather=4"] {
            let mut blur = covering(&format!("cover=fill expand=0 grow={grow} {soft}"), true, &info);
            let output = blur.push(with_roi(buffer(&info, &picture), "face", roi));
            let (_, got) = planes(&info, &picture.planes, &output);
            let (x, y, width, height) = roi;
            let is_object = |i: &u32| {
                let [dx, dy] = [(i % width, width), (i / width, height)]
                    .map(|(at, side)| (2.0 * f64::from(at) + 1.0) / f64::from(side) - 1.0);
                soft != "shape=ellipse" || dx * dx + dy * dy <= 1.0
            };
            let pitch = crate::common::pictures::pitch(&picture.planes[0]);
            let sample = |i: u32| got[0][(y + i / width) as usize * pitch + (x + i % width) as usize];
            let open = (0..width * height).filter(is_object).filter(|i| sample(*i) != 0).count();
            assert_eq!(open, 0, "{roi:?} grow={grow} {soft}");
        }
    }
}

/// An object that is partly beyond the picture: of what is left where it is larger, nothing may be in the picture. It is covered as far
/// as the picture has it, and not shown.
#[test]
fn what_shrinking_leaves_nothing_of_in_the_picture_is_covered_whole() {
    let size = [161, 108];
    let info = info(VideoFormat::A420, size);
    let picture = noise(&info, 10);
    let pitch = crate::common::pictures::pitch(&picture.planes[0]);
    // Left, top, width and height; the radius of an ellipse is less than the diagonal of what shrinks.
    for (roi, grow, shape) in [
        ([-50, -50, 150, 150], -64, "ellipse"),
        ([60, 8, 150, 150], -64, "ellipse"),
        ([-9, -8, 179, 124], -61, "ellipse"),
        ([-60, 20, 80, 60], -25, "ellipse"),
        ([-60, 20, 80, 60], -25, "box"),
        ([-60, 20, 80, 60], -25, "mask"),
    ] {
        for (mode, soft) in [("inside", ""), ("inside", "feather=6"), ("outside", ""), ("outside", "feather=6")] {
            let properties = format!("region-mode={mode} shape={shape} cover=fill expand=0 grow={grow} {soft}");
            let mut blur = covering(&properties, true, &info);
            let [x, y, width, height] = roi;
            let mut input = buffer(&info, &picture);
            let at = (x as u32, y as u32, width as u32, height as u32);
            let mut meta = gst_video::VideoRegionOfInterestMeta::add(input.make_mut(), "face", at);
            if shape == "mask" {
                let caps =
                    gst::Caps::builder("video/x-raw").field("format", "GRAY8").field("width", 4).field("height", 1);
                let sample =
                    gst::Sample::builder().caps(&caps.build()).buffer(&gst::Buffer::from_slice([255; 4])).build();
                meta.add_param(gst::Structure::builder("mask").field("sample", sample).build());
            }
            let output = blur.push(input);
            let (_, got) = planes(&info, &picture.planes, &output);
            let is_object = |column: i32, row: i32| {
                let [dx, dy] = [(column - x, width), (row - y, height)]
                    .map(|(at, side)| (2.0 * f64::from(at) + 1.0) / f64::from(side) - 1.0);
                let is_boxed = dx.abs() < 1.0 && dy.abs() < 1.0;
                mode == "outside" || if shape == "ellipse" { dx * dx + dy * dy <= 1.0 } else { is_boxed }
            };
            let all = (0..size[1] as i32).flat_map(|y| (0..size[0] as i32).map(move |x| (x, y)));
            let object: Vec<_> = all.filter(|(x, y)| is_object(*x, *y)).collect();
            let open = object.iter().filter(|(x, y)| got[0][*y as usize * pitch + *x as usize] != 16).count();
            assert_eq!(open, 0, "of {}: {mode} {shape} {roi:?} grow={grow} {soft}", object.len());
        }
    }
}

/// `auto` covers the frames before the first detection where detections are what is shown; zones alone are shown.
#[test]
fn nothing_is_shown_before_a_detector_has_looked() {
    let info = info(VideoFormat::Nv12, SIZE);
    let picture = noise(&info, 6);
    let covered = blurred(&picture, 3.0);
    let outside = [rect(49, 0, 48, 31), rect(0, 31, 97, 30)];
    let mut blur = covering(&format!("region-mode=outside sigma=3 {ZONE}"), true, &info);
    check_whole(&info, &blur.push(buffer(&info, &picture)), &picture, &covered);
    assert_eq!(stat(&blur, "frames-missing"), 1);
    let warnings = blur.messages(gst::MessageType::Warning);
    assert!(
        matches!(&warnings[..], [one] if one.contains("covered as a whole") && one.contains("region-sources=zones")),
        "{warnings:?}"
    );
    for properties in ["region-sources=zones", "on-missing=pass"] {
        let mut blur = covering(&format!("region-mode=outside sigma=3 {properties} {ZONE}"), true, &info);
        check(&info, &blur.push(buffer(&info, &picture)), &picture, &covered, &outside, true);
    }
}

/// Colour that alpha hides can be read after any converter that drops alpha.
#[test]
fn colour_under_transparent_pixels_is_covered() {
    for format in [VideoFormat::Rgba, VideoFormat::A420] {
        let info = info(format, SIZE);
        let mut picture = noise(&info, 7);
        // The alpha of RGBA is in every fourth byte, that of A420 in the last plane.
        match format {
            VideoFormat::Rgba => picture.bytes[0].iter_mut().skip(3).step_by(4).for_each(|alpha| *alpha = 0),
            _ => picture.bytes[3].fill(0),
        }
        for rects in [[rect(11, 7, 40, 30)], [rect(0, 0, 97, 61)]] {
            let mut blur = covering("alpha=premultiply sigma=4 expand=0", true, &info);
            let roi = (rects[0].x(), rects[0].y(), rects[0].width(), rects[0].height());
            let output = blur.push(with_roi(buffer(&info, &picture), "face", roi));
            check(&info, &output, &picture, &blurred(&picture, 4.0), &rects, true);
        }
        let mut blur = covering("region-mode=outside alpha=premultiply sigma=4", true, &info);
        check_whole(&info, &blur.push(buffer(&info, &picture)), &picture, &blurred(&picture, 4.0));
    }
}

/// The message about a frame, and the warnings.
fn messages(blur: &Blur) -> ((String, f64, String), Vec<String>) {
    let (mut about, mut warnings) = (None, Vec::new());
    for message in blur.bus.iter() {
        match message.view() {
            gst::MessageView::Element(element) => about = element.structure().map(gst::StructureRef::to_owned),
            gst::MessageView::Warning(warning) => warnings.push(warning.error().to_string()),
            _ => (),
        }
    }
    let about = about.expect("a message");
    let text = |name: &str| about.get::<String>(name).unwrap();
    ((text("covered"), about.get("covered-area").unwrap(), text("unchanged")), warnings)
}

/// A blur that leaves what it covers as it is does not count as a cover, and the bus says why, once.
#[test]
fn what_a_blur_leaves_is_not_called_covered() {
    let area = 10.0 * 20.0 / (97.0 * 61.0);
    for (format, properties, expected, cause) in [
        (VideoFormat::Nv12, "sigma=9 kernel-size=1", ("nothing", 0.0, "luma+chroma"), "kernel-size=1"),
        (VideoFormat::Nv12, "sigma=0.1", ("nothing", 0.0, "luma+chroma"), "sigma=0.1"),
        (VideoFormat::Nv12, "sigma=0.3", ("partly", 0.0, "chroma"), "sigma=0.3"),
        // Less than half of the last of 8 bits.
        (VideoFormat::Gray8, "sigma=0.25", ("nothing", 0.0, "luma"), "sigma=0.25"),
        (VideoFormat::Gray8, "sigma=0.26", ("regions", area, ""), ""),
        (VideoFormat::Gray16Le, "sigma=0.25", ("regions", area, ""), ""),
        (VideoFormat::Nv12, "sigma=0", ("nothing", 0.0, "luma+chroma"), "sigma=0"),
        (VideoFormat::Nv12, "planes=luma", ("partly", 0.0, "chroma"), "planes leaves out chroma"),
        (VideoFormat::Yuy2, "planes=chroma", ("partly", 0.0, "luma"), "planes leaves out luma"),
        (VideoFormat::Rgb, "planes=chroma+alpha", ("nothing", 0.0, "luma"), "planes leaves out luma"),
        (VideoFormat::Rgba, "planes=luma", ("regions", area, ""), ""),
        (VideoFormat::Gray8, "planes=luma sigma=0.3", ("regions", area, ""), ""),
        (VideoFormat::Nv12, "sigma=0.1 kernel-size=1 strength=0.25", ("regions", area, ""), ""),
        (VideoFormat::Nv12, "planes=alpha cover=fill", ("regions", area, ""), ""),
    ] {
        let info = info(format, SIZE);
        let mut blur = covering(&format!("expand=0 post-messages=true on-missing=pass {properties}"), true, &info);
        let picture = noise(&info, 8);
        for frame in 0..2 {
            blur.push(with_roi(buffer(&info, &picture), "face", (20, 10, 10, 20)));
            let ((covered, share, unchanged), warnings) = messages(&blur);
            assert_eq!((covered.as_str(), share, unchanged.as_str()), expected, "{format:?} {properties}");
            let is_warned = frame == 0 && !cause.is_empty();
            assert_eq!(warnings.len(), usize::from(is_warned), "{properties} {warnings:?}");
            assert!(
                warnings.iter().all(|warning| warning.contains(cause) && warning.contains("does not change")),
                "{warnings:?}"
            );
            let stats = blur.element.property::<gst::Structure>("stats");
            assert_eq!(stats.get::<f64>("covered-area"), Ok(expected.1), "{properties}");
        }
        // A frame that no blur changes is the same buffer.
        assert_eq!(stat(&blur, "frames-untouched"), if expected.0 == "nothing" { 2 } else { 0 }, "{properties}");
    }
}

/// The time of a zone is stream time: an applied rate scales and reverses the time of a frame.
#[test]
fn zones_follow_the_applied_rate() {
    let info = info(VideoFormat::Gray8, SIZE);
    let picture = noise(&info, 9);
    // 40 ms from the start of a segment of a second are 80 ms of stream time at twice the speed. In reverse they are its last,
    // with the instant at which the frame begins.
    for (applied_rate, covered) in [(2.0, [1_000, 1_079]), (-2.0, [2_920, 3_000]), (0.5, [1_000, 1_019])] {
        for milliseconds in [covered[0] - 1, covered[0], covered[1], covered[1] + 1] {
            let zones = format!(
                "zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5,start=(guint64){milliseconds}000000,end=(guint64){milliseconds}999999]>"
            );
            let mut blur = covering(&format!("sigma=3 region-sources=zones {zones}"), true, &info);
            let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
            segment.set_applied_rate(applied_rate);
            segment.set_time(gst::ClockTime::SECOND);
            segment.set_start(gst::ClockTime::from_seconds(5));
            segment.set_stop(gst::ClockTime::from_seconds(6));
            blur.harness.push_event(gst::event::Segment::new(&segment));
            let mut input = buffer(&info, &picture);
            input.make_mut().set_pts(gst::ClockTime::from_seconds(5));
            input.make_mut().set_duration(gst::ClockTime::from_mseconds(40));
            let output = blur.harness.push_and_pull(input).unwrap();
            let is_covered = (covered[0]..=covered[1]).contains(&milliseconds);
            let rects: &[Rect] = if is_covered { &[rect(0, 0, 49, 31)] } else { &[] };
            check(&info, &output, &picture, &blurred(&picture, 3.0), rects, true);
        }
    }
}

/// A mask of GRAY8 samples, whose rows begin at multiples of 4 bytes.
fn mask([columns, rows]: [u32; 2], is_object: impl Fn(u32, u32) -> bool) -> gst::Sample {
    let stride = columns.next_multiple_of(4);
    let samples = (0..stride * rows).map(|i| if is_object(i % stride, i / stride) { 255 } else { 0 });
    sample("GRAY8", [columns, rows], samples.collect())
}

fn sample(format: &str, [columns, rows]: [u32; 2], bytes: Vec<u8>) -> gst::Sample {
    crate::common::video::init();
    let caps = gst::Caps::builder("video/x-raw").field("format", format);
    let caps = caps.field("width", columns as i32).field("height", rows as i32).build();
    gst::Sample::builder().caps(&caps).buffer(&gst::Buffer::from_mut_slice(bytes)).build()
}

type Place = (u32, u32, u32, u32);

/// A white frame with detections and their masks.
fn detected(detections: &[(Place, Option<gst::Sample>)]) -> gst::Buffer {
    let mut buffer = gst::Buffer::from_mut_slice(vec![200_u8; 128 * 64]);
    for (place, mask) in detections {
        let mut meta = VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "person", *place);
        if let Some(mask) = mask {
            meta.add_param(gst::Structure::builder("mask").field("sample", mask).build());
        }
    }
    buffer
}

/// Fills regions of GRAY8 frames of 128x64 with black.
fn filling(properties: &str) -> Blur {
    let mut blur = Blur::new(&format!("backend=cpu shape=mask cover=fill expand=0 {properties}"));
    blur.caps(&info(VideoFormat::Gray8, [128, 64]));
    blur
}

/// The samples that are covered.
fn covered(output: &gst::Buffer) -> Vec<bool> {
    output.map_readable().unwrap().iter().map(|sample| *sample == 0).collect()
}

/// Whether the samples of these places are covered (inside), or all others are (outside), and not the whole frame.
#[track_caller]
fn check_places(output: &gst::Buffer, mode: &str, places: &[Place], is_any_open: bool, why: &str) {
    let covered = covered(output);
    let is_in = |i: usize| {
        let (x, y) = (i as u32 % 128, i as u32 / 128);
        places
            .iter()
            .any(|(left, top, width, height)| (*left..left + width).contains(&x) && (*top..top + height).contains(&y))
    };
    let open = (0..covered.len()).find(|i| is_in(*i) == (mode == "inside") && !covered[*i]);
    assert_eq!(open.map(|i| (i % 128, i / 128)), None, "region-mode={mode}, {why}");
    assert_eq!(covered.contains(&false), is_any_open, "region-mode={mode}, {why}");
}

const BOX: Place = (32, 16, 64, 32);
const LEFT_HALF: Place = (32, 16, 32, 32);

#[test]
fn a_mask_of_any_size_is_stretched_over_its_box() {
    for size in [[2, 1], [2, 63], [64, 32], [128, 64], [300, 200], [4096, 2]] {
        for mode in ["inside", "outside"] {
            let mask = mask(size, |x, _| 2 * x < size[0]);
            let output = filling(&format!("region-mode={mode}")).push(detected(&[(BOX, Some(mask))]));
            check_places(&output, mode, &[LEFT_HALF], true, &format!("{size:?}"));
        }
    }
}

#[test]
fn an_object_without_a_mask_that_can_be_read_is_covered_by_its_box_and_not_shown() {
    let size = [8, 4];
    for (why, mask) in [
        ("no mask", None),
        ("an empty mask", Some(mask(size, |_, _| false))),
        ("nothing inside of the object", Some(sample("GRAY8", size, vec![127; 32]))),
        ("a buffer without its last byte", Some(sample("GRAY8", size, vec![255; 31]))),
        ("an empty buffer", Some(sample("GRAY8", size, Vec::new()))),
        ("caps of 16 bits", Some(sample("GRAY16_LE", size, vec![255; 64]))),
        ("caps of colour", Some(sample("RGB", size, vec![255; 128]))),
        ("too many columns", Some(sample("GRAY8", [4097, 1], vec![255; 4100]))),
    ] {
        for mode in ["inside", "outside"] {
            let mut blur = filling(&format!("region-mode={mode}"));
            for frame in 0..2 {
                let output = blur.push(detected(&[(BOX, mask.clone())]));
                check_places(&output, mode, if mode == "inside" { &[BOX] } else { &[] }, mode == "inside", why);
                let warnings = blur.messages(gst::MessageType::Warning);
                assert_eq!(warnings.len(), usize::from(frame == 0), "{why}: {warnings:?}");
            }
        }
    }
}

/// One that is late, or of the frame before: an object is covered by its box where it has none.
#[test]
fn a_mask_of_another_frame_does_not_count() {
    let left = || Some(mask([2, 1], |x, _| x == 0));
    let moved = (48, 20, 64, 32);
    for mode in ["inside", "outside"] {
        for look_ahead in [0, 2] {
            let mut blur = filling(&format!("region-mode={mode} look-ahead={look_ahead}"));
            let frames = [(BOX, None), (BOX, left()), (moved, None), (BOX, left())];
            for (place, mask) in &frames {
                blur.try_push(detected(&[(*place, mask.clone())])).unwrap();
            }
            blur.harness.push_event(gst::event::Eos::new());
            for (frame, (place, mask)) in frames.iter().enumerate() {
                let output = blur.harness.pull().unwrap();
                let places = match (mask, mode) {
                    (Some(_), _) => vec![LEFT_HALF],
                    (None, "inside") => vec![*place],
                    _ => vec![],
                };
                check_places(&output, mode, &places, mode == "inside" || mask.is_some(), &format!("frame {frame}"));
            }
        }
    }
}

/// It is of the frame whose meta has it, but for one whose timestamp is of a frame before the last. The object may have left it.
#[test]
fn an_old_mask_is_covered_with_its_box_and_not_shown() {
    crate::common::video::init();
    let mask = |timestamp: Option<u64>| {
        let mut buffer = gst::Buffer::from_mut_slice([vec![255_u8; 16], vec![0; 16]].concat());
        buffer.get_mut().unwrap().set_pts(timestamp.map(gst::ClockTime::from_mseconds));
        let caps = gst::Caps::builder("video/x-raw").field("format", "GRAY8");
        let caps = caps.field("width", 4).field("height", 8).build();
        Some(gst::Sample::builder().caps(&caps).buffer(&buffer).build())
    };
    // That of the fourth frame is 120 ms. The next one is 40 ms later, as is its mask.
    for (timestamp, is_old) in
        [(None, false), (Some(0), true), (Some(40), true), (Some(80), false), (Some(120), false), (Some(10_000), false)]
    {
        for (mode, look_ahead) in [("inside", 0), ("inside", 2), ("outside", 0)] {
            let mut blur = filling(&format!("region-mode={mode} look-ahead={look_ahead}"));
            let times = [None, None, None, timestamp, timestamp.map(|time| time + 40), None];
            times.iter().for_each(|time| _ = blur.try_push(detected(&[(BOX, mask(*time))])).unwrap());
            blur.harness.push_event(gst::event::Eos::new());
            for frame in 0..times.len() {
                let output = blur.harness.pull().unwrap();
                // The mask is that of the upper half.
                let (places, is_any_open): (&[Place], bool) = match (mode, is_old && (3..5).contains(&frame)) {
                    (_, false) => (&[(32, 16, 64, 16)], true),
                    ("inside", true) => (&[BOX], true),
                    _ => (&[], false),
                };
                check_places(&output, mode, places, is_any_open, &format!("{timestamp:?}, frame {frame}"));
                if mode == "inside" && !(is_old && (3..5).contains(&frame)) {
                    assert!(!covered(&output)[47 * 128 + 64], "{timestamp:?}, frame {frame}: the mask alone counts");
                }
            }
            let warnings = blur.messages(gst::MessageType::Warning);
            let of_mask = warnings.iter().filter(|text| text.contains("more than one frame older")).count();
            assert_eq!((of_mask, warnings.len()), (usize::from(is_old), of_mask), "{warnings:?}");
        }
    }
}

#[test]
fn masks_that_overlap_are_covered_and_shown_together() {
    let other = (64, 0, 48, 64);
    let left = || Some(mask([2, 1], |x, _| x == 0));
    let upper = || Some(mask([1, 2], |_, y| y == 0));
    for mode in ["inside", "outside"] {
        let mut blur = filling(&format!("region-mode={mode}"));
        let of_other = (64, 0, 48, 32);
        let output = blur.push(detected(&[(BOX, left()), (other, upper())]));
        check_places(&output, mode, &[LEFT_HALF, of_other], true, "two boxes");
        // Two masks of the same box.
        let output = blur.push(detected(&[(BOX, left()), (BOX, upper())]));
        check_places(&output, mode, &[LEFT_HALF, (32, 16, 64, 16)], true, "one box");
        // One of them cannot be read.
        let output = blur.push(detected(&[(BOX, left()), (BOX, None)]));
        let places = [if mode == "inside" { BOX } else { LEFT_HALF }];
        check_places(&output, mode, &places, true, "one box, one mask");
    }
}

/// Elements before this one drop metas, or the params of metas, or leave them where they were: what is left counts.
#[test]
fn what_a_flip_leaves_of_a_detection_is_covered() {
    crate::common::video::init();
    for mode in ["inside", "outside"] {
        let line = format!(
            "appsrc name=source format=time caps=video/x-raw,format=GRAY8,width=128,height=64,framerate=25/1 ! \
             videoflip method=horizontal-flip ! cudagaussblur backend=cpu cover=fill expand=0 shape=mask on-missing=cover \
             region-mode={mode} ! appsink name=sink sync=false"
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let source = pipeline.by_name("source").unwrap().downcast::<gst_app::AppSrc>().unwrap();
        let sink = pipeline.by_name("sink").unwrap().downcast::<gst_app::AppSink>().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        source.push_buffer(detected(&[((0, 16, 40, 32), Some(mask([4, 1], |_, _| true)))])).unwrap();
        source.end_of_stream().unwrap();
        let sample = sink.pull_sample().unwrap();
        pipeline.set_state(gst::State::Null).unwrap();
        let output = sample.buffer_owned().unwrap();
        let metas = output.iter_meta::<VideoRegionOfInterestMeta>();
        let metas: Vec<(Place, bool)> = metas.map(|meta| (meta.rect(), meta.param("mask").is_some())).collect();
        match (&metas[..], mode) {
            ([], _) => check_places(&output, "inside", &[(0, 0, 128, 64)], false, "no meta"),
            ([(place, _)], "inside") => check_places(&output, mode, &[*place], true, "a meta"),
            ([(place, true)], _) => check_places(&output, mode, &[*place], true, "a meta"),
            _ => check_places(&output, mode, &[], false, "a meta without its mask"),
        }
    }
}
