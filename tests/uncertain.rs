//! What is uncertain is covered, with region-mode=inside and with outside, and the message about a frame says what was done.

mod common;

use common::covered::{alternate, blurred, buffer, check, check_whole, covering, info, noise, planes, with_roi};
use common::pictures::{Picture, rect};
use common::video::{Blur, stat};
use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo, VideoMeta};
use gstcudagaussblur::element::formats as layouts;
use gstcudagaussblur::filter::regions::Rect;

const SIZE: [u32; 2] = [97, 61];
const ZONE: &str = "zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5]>";

/// Caps without a frame rate, and buffers that do not say how long they last: a JPEG, VP8 by RTP.
#[test]
fn frames_of_unknown_duration_are_covered() {
    let info = VideoInfo::builder(VideoFormat::Nv12, SIZE[0], SIZE[1]).fps((0, 1));
    common::video::init();
    let info = info.build().unwrap();
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
        let pitch = common::pictures::pitch(&picture.planes[0]);
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
    let pitch = common::pictures::pitch(&picture.planes[0]);
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

/// With a soft edge as with a hard one, and at an edge of the picture, where weights do not shrink.
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
            let pitch = common::pictures::pitch(&picture.planes[0]);
            let sample = |i: u32| got[0][(y + i / width) as usize * pitch + (x + i % width) as usize];
            let open = (0..width * height).filter(is_object).filter(|i| sample(*i) != 0).count();
            assert_eq!(open, 0, "{roi:?} grow={grow} {soft}");
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
