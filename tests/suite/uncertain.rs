//! What is uncertain is covered, with region-mode=inside and with outside, and the message about a frame says what was done.

use gst::prelude::*;
use gst_video::{VideoFormat, VideoRegionOfInterestMeta};

use crate::common::covered::info;
use crate::common::stream::{self, Place, Stream, mask_param, ms, sample, segment, with_param};

const ZONE: &str = "zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5]>";
/// The zone, and all but the zone.
const INSIDE: &str = "49x31+0+0";
const OUTSIDE: &str = "48x31+49+0,97x30+0+31";

/// Caps without a frame rate, and buffers that do not say how long they last: a JPEG, VP8 by RTP.
#[test]
fn frames_of_unknown_duration_are_covered() {
    for (mode, looks) in [("inside", INSIDE), ("outside", OUTSIDE)] {
        let properties = format!("region-mode={mode} on-missing=pass sigma=3 {ZONE}");
        let mut stream = Stream::without_rate(VideoFormat::Nv12, &properties);
        for is_restarted in [false, true] {
            if is_restarted {
                stream.element.set_state(gst::State::Ready).unwrap();
                stream.harness.play();
                stream.enter("stream-start caps segment").outputs();
            }
            for timestamp in [None, Some(gst::ClockTime::SECOND)] {
                let mut frame = stream.frame();
                frame.make_mut().set_pts(timestamp);
                stream.push_as_is(frame);
                let [output] = &stream.fails("").outputs()[..] else { panic!("{mode}") };
                stream.check(output, looks);
            }
        }
    }
}

/// Checks what the upper left quarter, a zone at these times, shows and covers of a frame. Times are in milliseconds.
#[track_caller]
fn check_zone(
    started: fn(&str) -> Stream,
    times: &str,
    segment: Option<&gst::Event>,
    [pts, duration]: [Option<u64>; 2],
    [shown, covered]: [&str; 2],
) {
    for (mode, looks) in [("outside", shown), ("inside", covered)] {
        let zone = ZONE.replace("]>", &format!(",{times}]>"));
        let mut stream = started(&format!("region-mode={mode} region-sources=zones sigma=3 {zone}"));
        segment.into_iter().for_each(|segment| stream.send(segment.clone()));
        let mut frame = stream.frame();
        frame.make_mut().set_pts(pts.map(ms));
        frame.make_mut().set_duration(duration.map(ms));
        stream.push_as_is(frame);
        let output = stream.harness.pull().unwrap();
        stream.check(&output, looks);
    }
}

#[test]
fn a_zone_is_shown_only_in_frames_that_are_wholly_in_its_time() {
    let times = "start=(guint64)100000000,end=(guint64)200000000";
    for (pts, looks) in [
        (None, ["whole", INSIDE]),
        (Some(60), ["whole", "open"]),
        (Some(61), ["whole", INSIDE]),
        (Some(99), ["whole", INSIDE]),
        (Some(100), [OUTSIDE, INSIDE]),
        (Some(160), [OUTSIDE, INSIDE]),
        (Some(161), ["whole", INSIDE]),
        (Some(200), ["whole", "open"]),
    ] {
        check_zone(Stream::gray, times, None, [pts, Some(40)], looks);
    }
    // Where neither the buffer nor the frame rate says how long the frame lasts, it may last for any time.
    let (from, until) = ("start=(guint64)100000000", "end=(guint64)200000000");
    for (times, applied_rate, pts, looks) in [
        (times, 1.0, 60, ["whole", INSIDE]),
        (times, 1.0, 150, ["whole", INSIDE]),
        (times, 1.0, 200, ["whole", "open"]),
        (from, 1.0, 99, ["whole", INSIDE]),
        (from, 1.0, 100, [OUTSIDE, INSIDE]),
        (until, 1.0, 199, ["whole", INSIDE]),
        (until, 1.0, 200, ["whole", "open"]),
        // Stream time runs from 300 ms to 0.
        (times, -1.0, 50, ["whole", INSIDE]),
        (times, -1.0, 250, ["whole", "open"]),
        (until, -1.0, 150, [OUTSIDE, INSIDE]),
    ] {
        let gray = |properties: &str| Stream::without_rate(VideoFormat::Gray8, properties);
        check_zone(gray, times, Some(&segment(applied_rate, [0, 300, 0])), [Some(pts), None], looks);
    }
    // The time of a zone is stream time: an applied rate scales and reverses the time of a frame. 40 ms from the start of a segment of
    // a second are 80 ms of stream time at twice the speed. In reverse they are its last, with the instant at which the frame begins.
    for (applied_rate, [first, last]) in [(2.0, [1_000, 1_079]), (-2.0, [2_920, 3_000]), (0.5, [1_000, 1_019])] {
        for (time, covered) in [(first - 1, "open"), (first, INSIDE), (last, INSIDE), (last + 1, "open")] {
            let times = format!("start=(guint64){time}000000,end=(guint64){time}999999");
            let segment = segment(applied_rate, [5_000, 6_000, 1_000]);
            check_zone(Stream::gray, &times, Some(&segment), [Some(5_000), Some(40)], ["whole", covered]);
        }
    }
}

/// Also of an object that is partly beyond the picture, where what is left of it may have nothing in the picture: it is covered as far
/// as the picture has it, and not shown.
#[test]
fn what_shrinking_leaves_nothing_of_is_covered_whole() {
    let size = [161, 108];
    // Left, top, width and height; the radius of an ellipse is less than the diagonal of what shrinks.
    for (place, grow, shapes, modes) in [
        ([40, 20, 6, 30], -3, "box ellipse", "inside"),
        ([40, 20, 6, 30], -5, "box ellipse", "inside"),
        ([121, 20, 40, 30], -20, "box ellipse", "inside"),
        ([0, 0, 97, 40], -20, "box ellipse", "inside"),
        ([-50, -50, 150, 150], -64, "ellipse", "inside outside"),
        ([60, 8, 150, 150], -64, "ellipse", "inside outside"),
        ([-9, -8, 179, 124], -61, "ellipse", "inside outside"),
        ([-60, 20, 80, 60], -25, "ellipse box mask", "inside outside"),
    ] {
        let cases = shapes.split(' ').flat_map(|shape| modes.split(' ').map(move |mode| (shape, mode)));
        for ((shape, mode), feather) in cases.flat_map(|case| [0, 4, 6].map(|feather| (case, feather))) {
            let properties =
                format!("region-mode={mode} shape={shape} cover=fill expand=0 grow={grow} feather={feather}");
            let mut stream = Stream::of(&info(VideoFormat::A420, size), &properties);
            let mask = (shape == "mask").then(|| mask([4, 1], |_, _| true));
            let [x, y, width, height] = place;
            let place = [x, y, width, height].map(|edge| edge as u32);
            let frame = with_param(stream.frame(), "face", place.into(), mask.map(mask_param));
            let output = stream.output(frame);
            let luma = stream.luma(&output);
            let is_object = |column: u32, row: u32| {
                let [dx, dy] = [(column as i32 - x, width), (row as i32 - y, height)]
                    .map(|(at, side)| (2.0 * f64::from(at) + 1.0) / f64::from(side) - 1.0);
                let is_boxed = dx.abs() < 1.0 && dy.abs() < 1.0;
                mode == "outside" || if shape == "ellipse" { dx * dx + dy * dy <= 1.0 } else { is_boxed }
            };
            let object: Vec<_> = samples(size).filter(|(x, y)| is_object(*x, *y)).collect();
            let open = object.iter().filter(|(x, y)| luma(*x, *y) != 16).count();
            assert_eq!(open, 0, "of {}: {place:?} {properties}", object.len());
        }
    }
}

fn samples([width, height]: [u32; 2]) -> impl Iterator<Item = (u32, u32)> {
    (0..height).flat_map(move |y| (0..width).map(move |x| (x, y)))
}

/// `auto` covers the frames before the first detection where detections are what is shown; zones alone are shown.
#[test]
fn nothing_is_shown_before_a_detector_has_looked() {
    let started =
        |properties| Stream::new(VideoFormat::Nv12, &format!("region-mode=outside sigma=3 {ZONE} {properties}"));
    started("").plays(&[("frame", "0:whole")]).counts("frames-missing=1");
    started("").enter("frame").warns("…covered as a whole…region-sources=zones…");
    for properties in ["region-sources=zones", "on-missing=pass"] {
        started(properties).plays(&[("frame", &format!("0:{OUTSIDE}"))]);
    }
}

/// Colour that alpha hides can be read after any converter that drops alpha.
#[test]
fn colour_under_transparent_pixels_is_covered() {
    for format in [VideoFormat::Rgba, VideoFormat::A420] {
        for (properties, enters, leaves) in [
            ("", "alpha:0 face:40x30+11+7", "0:40x30+11+7"),
            ("", "alpha:0 face:97x61+0+0", "0:whole"),
            ("region-mode=outside", "alpha:0 frame", "0:whole"),
        ] {
            Stream::new(format, &format!("alpha=premultiply sigma=4 expand=0 {properties}")).plays(&[(enters, leaves)]);
        }
    }
}

/// A blur that leaves what it covers as it is does not count as a cover, and the bus says why, once.
#[test]
fn what_a_blur_leaves_is_not_called_covered() {
    use VideoFormat::{Gray8, Gray16Le, Nv12, Rgb, Rgba, Yuy2};
    for (format, properties, covered, unchanged, cause) in [
        (Nv12, "sigma=9 kernel-size=1", "nothing", "luma+chroma", "kernel-size=1"),
        (Nv12, "sigma=0.1", "nothing", "luma+chroma", "sigma=0.1"),
        (Nv12, "sigma=0.3", "partly", "chroma", "sigma=0.3"),
        // Less than half of the last of 8 bits.
        (Gray8, "sigma=0.25", "nothing", "luma", "sigma=0.25"),
        (Gray8, "sigma=0.26", "regions", "", ""),
        (Gray16Le, "sigma=0.25", "regions", "", ""),
        (Nv12, "sigma=0", "nothing", "luma+chroma", "sigma=0"),
        (Nv12, "planes=luma", "partly", "chroma", "planes leaves out chroma"),
        (Yuy2, "planes=chroma", "partly", "luma", "planes leaves out luma"),
        (Rgb, "planes=chroma+alpha", "nothing", "luma", "planes leaves out luma"),
        (Rgba, "planes=luma", "regions", "", ""),
        (Gray8, "planes=luma sigma=0.3", "regions", "", ""),
        (Nv12, "sigma=0.1 kernel-size=1 strength=0.25", "regions", "", ""),
        (Nv12, "planes=alpha cover=fill", "regions", "", ""),
    ] {
        let mut stream = Stream::new(format, &format!("expand=0 post-messages=true on-missing=pass {properties}"));
        let area = if covered == "regions" { 10.0 * 20.0 / (97.0 * 61.0) } else { 0.0 };
        let warning = if cause.is_empty() { String::new() } else { format!("…does not change…{cause}…") };
        for warning in [&*warning, ""] {
            stream.enter("face:10x20+20+10").warns(warning);
            let message = stream.posted(gst::MessageType::Element).pop().expect("a message");
            let message = message.structure().unwrap();
            let texts = ["covered", "unchanged"].map(|field| message.get::<&str>(field).unwrap());
            assert_eq!((texts, message.get("covered-area")), ([covered, unchanged], Ok(area)), "{properties}");
            let stats = stream.element.property::<gst::Structure>("stats");
            assert_eq!(stats.get::<f64>("covered-area"), Ok(area), "{properties}");
        }
        // A frame that no blur changes is the same buffer.
        stream.counts(&format!("frames-untouched={}", if covered == "nothing" { 2 } else { 0 }));
    }
}

/// A mask of GRAY8 samples.
fn mask(size: [u32; 2], is_object: impl Fn(u32, u32) -> bool) -> gst::Sample {
    stream::mask(size, |x, y| if is_object(x, y) { 255 } else { 0 })
}

/// White GRAY8 frames of 128x64, in which regions are filled with black.
fn filling(properties: &str) -> Stream {
    let properties = format!("shape=mask cover=fill expand=0 {properties}");
    let mut stream = Stream::downstream(false, &info(VideoFormat::Gray8, [128, 64]), &properties);
    stream.picture.bytes[0].fill(200);
    stream
}

impl Stream {
    /// A frame with detections and their masks.
    fn detected(&self, detections: &[(Place, Option<gst::Sample>)]) -> gst::Buffer {
        detections.iter().fold(self.frame(), |frame, (place, mask)| {
            with_param(frame, "person", *place, mask.clone().map(mask_param))
        })
    }
}

/// Checks the samples of these places, which are covered (inside), or all others (outside); and that what is farther from them than
/// a mask may be off, where that is known, is not.
#[track_caller]
fn check_places(luma: impl Fn(u32, u32) -> u8, mode: &str, places: &[Place], near: Option<u32>, why: &str) {
    // Within the places, after they have grown.
    let is_in = |x: u32, y: u32, by: i64| {
        let has = |at: u32, start: u32, side: u32| {
            (i64::from(start) - by..i64::from(start + side) + by).contains(&i64::from(at))
        };
        places.iter().any(|(left, top, width, height)| has(x, *left, *width) && has(y, *top, *height))
    };
    let near = near.map(i64::from);
    for (x, y) in samples([128, 64]) {
        let (must_cover, must_show) = match mode {
            "inside" => (is_in(x, y, 0), near.is_some_and(|near| !is_in(x, y, near))),
            _ => (!is_in(x, y, 0), near.is_some_and(|near| is_in(x, y, -near / 2))),
        };
        assert!(!must_cover || luma(x, y) == 0, "region-mode={mode}, {why}: ({x},{y}) is shown");
        assert!(!must_show || luma(x, y) == 200, "region-mode={mode}, {why}: ({x},{y}) is covered");
    }
    let is_any_open = samples([128, 64]).any(|(x, y)| luma(x, y) != 0);
    assert_eq!(is_any_open, mode == "inside" || !places.is_empty(), "region-mode={mode}, {why}");
}

const BOX: Place = (32, 16, 64, 32);
const LEFT_HALF: Place = (32, 16, 32, 32);
const UPPER_HALF: Place = (32, 16, 64, 16);
/// By how much a box may be off.
const ROUNDING: Option<u32> = Some(2);

#[test]
fn a_mask_of_any_size_is_stretched_over_its_box() {
    for size in [[2, 1], [2, 63], [8, 4], [64, 32], [128, 64], [300, 200], [4096, 2]] {
        // Two samples of the mask, and rounding.
        let near = 2 * 64_u32.div_ceil(size[0]).max(32_u32.div_ceil(size[1])) + 2;
        for mode in ["inside", "outside"] {
            let mut stream = filling(&format!("region-mode={mode}"));
            let mask = mask(size, |x, _| 2 * x < size[0]);
            let output = stream.output(stream.detected(&[(BOX, Some(mask))]));
            check_places(stream.luma(&output), mode, &[LEFT_HALF], Some(near), &format!("{size:?}"));
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
        ("no rows", Some(sample("GRAY8", [8, 0], Vec::new()))),
        ("caps of 16 bits", Some(sample("GRAY16_LE", size, vec![255; 64]))),
        ("caps of colour", Some(sample("RGB", size, vec![255; 128]))),
        ("too many columns", Some(sample("GRAY8", [4097, 1], vec![255; 4100]))),
    ] {
        for (mode, places) in [("inside", &[BOX][..]), ("outside", &[])] {
            let mut stream = filling(&format!("region-mode={mode}"));
            for warning in ["…", ""] {
                let output = stream.output(stream.detected(&[(BOX, mask.clone())]));
                check_places(stream.luma(&output), mode, places, ROUNDING, why);
                stream.warns(warning);
            }
        }
    }
}

/// One that is late, or of the frame before: an object is covered by its box where it has none.
#[test]
fn a_mask_of_another_frame_does_not_count() {
    let left = || Some(mask([2, 1], |x, _| x == 0));
    let moved = (48, 20, 64, 32);
    let frames = [(BOX, None), (BOX, left()), (moved, None), (BOX, left())];
    for (mode, look_ahead) in [("inside", 0), ("inside", 2), ("outside", 0), ("outside", 2)] {
        let mut stream = filling(&format!("region-mode={mode} look-ahead={look_ahead}"));
        frames.iter().for_each(|frame| stream.push(stream.detected(std::slice::from_ref(frame))));
        let outputs = stream.enter("eos").outputs();
        assert_eq!(outputs.len(), 4);
        for (i, ((place, mask), output)) in frames.iter().zip(outputs).enumerate() {
            let places: &[Place] = match (mask, mode) {
                (Some(_), _) => &[LEFT_HALF],
                (None, "inside") => &[*place],
                _ => &[],
            };
            check_places(stream.luma(&output), mode, places, None, &format!("frame {i}"));
        }
    }
}

/// It is of the frame whose meta has it, but for one whose timestamp is of a frame before the last. The object may have left it.
#[test]
fn an_old_mask_is_covered_with_its_box_and_not_shown() {
    let upper = |timestamp: Option<u64>| {
        let mut mask = mask([4, 8], |_, y| y < 4).buffer_owned().unwrap();
        mask.make_mut().set_pts(timestamp.map(ms));
        let caps = gst::Caps::builder("video/x-raw").field("format", "GRAY8").field("width", 4).field("height", 8);
        Some(gst::Sample::builder().caps(&caps.build()).buffer(&mask).build())
    };
    // That of the fourth frame is 120 ms. The next one is 40 ms later, as is its mask.
    for (timestamp, is_old) in
        [(None, false), (Some(0), true), (Some(40), true), (Some(80), false), (Some(120), false), (Some(10_000), false)]
    {
        for (mode, look_ahead) in [("inside", 0), ("inside", 2), ("outside", 0)] {
            let mut stream = filling(&format!("region-mode={mode} look-ahead={look_ahead}"));
            let times = [None, None, None, timestamp, timestamp.map(|time| time + 40), None];
            times.iter().for_each(|time| stream.push(stream.detected(&[(BOX, upper(*time))])));
            let outputs = stream.enter("eos").outputs();
            assert_eq!(outputs.len(), times.len());
            for (frame, output) in outputs.iter().enumerate() {
                let places: &[Place] = match (mode, is_old && (3..5).contains(&frame)) {
                    (_, false) => &[UPPER_HALF],
                    ("inside", true) => &[BOX],
                    _ => &[],
                };
                // The mask alone counts.
                let near = Some(if places == [BOX] { 2 } else { 15 });
                check_places(stream.luma(output), mode, places, near, &format!("{timestamp:?}, frame {frame}"));
            }
            stream.warns(if is_old { "…more than one frame older…" } else { "" });
        }
    }
}

#[test]
fn masks_that_overlap_are_covered_and_shown_together() {
    let other = (64, 0, 48, 64);
    let left = || Some(mask([2, 1], |x, _| x == 0));
    let upper = || Some(mask([1, 2], |_, y| y == 0));
    for mode in ["inside", "outside"] {
        let one_of_two = if mode == "inside" { BOX } else { LEFT_HALF };
        let mut stream = filling(&format!("region-mode={mode}"));
        for (why, second, places) in [
            ("two boxes", (other, upper()), &[LEFT_HALF, (64, 0, 48, 32)][..]),
            ("two masks of a box", (BOX, upper()), &[LEFT_HALF, UPPER_HALF]),
            ("one of two cannot be read", (BOX, None), &[one_of_two]),
        ] {
            let output = stream.output(stream.detected(&[(BOX, left()), second]));
            check_places(stream.luma(&output), mode, places, None, why);
        }
    }
}

/// Elements before this one drop metas, or the params of metas, or leave them where they were: what is left counts.
#[test]
fn what_a_flip_leaves_of_a_detection_is_covered() {
    for mode in ["inside", "outside"] {
        let mut stream = filling(&format!("on-missing=cover region-mode={mode}"));
        let flip = gst::ElementFactory::make("videoflip").property_from_str("method", "horizontal-flip").build();
        let mut before = gst_check::Harness::with_element(&flip.unwrap(), Some("sink"), Some("src"));
        before.play();
        before.set_src_caps(stream.info.to_caps().unwrap());
        let frame = stream.detected(&[((0, 16, 40, 32), Some(mask([4, 1], |_, _| true)))]);
        let output = stream.output(before.push_and_pull(frame).unwrap());
        let metas = output.iter_meta::<VideoRegionOfInterestMeta>();
        let metas: Vec<(Place, bool)> = metas.map(|meta| (meta.rect(), meta.param("mask").is_some())).collect();
        let luma = stream.luma(&output);
        match (&metas[..], mode) {
            ([], _) => check_places(luma, "outside", &[], None, "no meta"),
            ([(place, _)], "inside") | ([(place, true)], _) => check_places(luma, mode, &[*place], None, "a meta"),
            _ => check_places(luma, mode, &[], None, "a meta without its mask"),
        }
    }
}

/// A negative `grow` shrinks an object, or leaves it whole if nothing of it would be left.
#[test]
fn an_object_that_shrinks_is_covered_in_its_middle_or_whole() {
    let mut shrunk = 0;
    for (shape, grow) in [("ellipse", 4), ("ellipse", 9), ("mask", 4), ("mask", 9)] {
        for side in 2..40 {
            let mut stream = filling(&format!("region-mode=inside shape={shape} grow=-{grow}"));
            let mask = (shape == "mask").then(|| mask([8, 8], |_, _| true));
            let output = stream.output(stream.detected(&[((40, 10, side, side), mask)]));
            let luma = stream.luma(&output);
            // Of samples whose centres are in the ellipse or the box, or that far within.
            let all_covered = |within: f64| {
                let radius = f64::from(side) / 2.0;
                let reach = radius - within;
                samples([128, 64]).all(|(column, row)| {
                    let [x, y] =
                        [(column, 40.0), (row, 10.0)].map(|(at, low)| (f64::from(at) + 0.5 - low - radius).abs());
                    let is_object = if shape == "mask" { x.max(y) < reach } else { reach > 0.0 && x.hypot(y) < reach };
                    !is_object || luma(column, row) == 0
                })
            };
            let what = format!("shape={shape} grow=-{grow}, a side of {side}");
            assert_eq!(luma(40 + side / 2, 10 + side / 2), 0, "{what}");
            // One node of the grid of weights less.
            assert!(all_covered(f64::from(grow + 2)), "{what}");
            let is_whole = all_covered(0.0);
            assert!(is_whole || side > 2 * grow, "{what}");
            assert!(!is_whole || side < 2 * grow + 14, "{what} does not shrink");
            shrunk += u32::from(!is_whole);
        }
    }
    assert!(shrunk > 40, "{shrunk}");
}
