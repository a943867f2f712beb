//! What is uncertain is covered, with region-mode=inside and with outside, and the message about a frame says what was done.
//! `lives` has all kinds of objects and masks; this has what its rule leaves open: times, causes, and masks of other frames.

use gst::prelude::*;
use gst_video::VideoFormat;

use crate::common::stream::{Stream, mask, mask_param, ms, segment, with_param};

const ZONE: &str = "zone,x=0.0,y=0.0,width=0.5,height=0.5";
/// The zone, and all but the zone.
const INSIDE: &str = "49x31+0+0";
const OUTSIDE: &str = "48x31+49+0,97x30+0+31";

/// Checks what the upper left quarter, a zone at these times, shows and covers of a frame with this time and duration. If that is not
/// known, nor is a frame rate, as of a JPEG or of VP8 by RTP. Times are in milliseconds.
#[track_caller]
fn check_zone(
    times: &str,
    segment: Option<&gst::Event>,
    [pts, duration]: [Option<u64>; 2],
    [shown, covered]: [&str; 2],
) {
    for (mode, looks) in [("outside", shown), ("inside", covered)] {
        let properties = format!("region-mode={mode} on-missing=pass sigma=3 zones=<[{ZONE}{times}]>");
        let mut stream = match duration {
            Some(_) => Stream::gray(&properties),
            None => Stream::without_rate(VideoFormat::Gray8, &properties),
        };
        segment.into_iter().for_each(|segment| stream.send(segment.clone()));
        let mut frame = stream.frame();
        frame.make_mut().set_pts(pts.map(ms));
        frame.make_mut().set_duration(duration.map(ms));
        stream.push_as_is(frame);
        let output = stream.fails("").harness.pull().unwrap();
        stream.check(&output, looks);
    }
}

#[test]
fn a_zone_is_shown_only_in_frames_that_are_wholly_in_its_time() {
    let times = ",start=0.1,end=0.2";
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
        check_zone(times, None, [pts, Some(40)], looks);
    }
    // A frame of unknown duration may last for any time.
    [None, Some(1000)].into_iter().for_each(|pts| check_zone("", None, [pts, None], [OUTSIDE, INSIDE]));
    let (from, until) = (",start=0.1", ",end=0.2");
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
        check_zone(times, Some(&segment(applied_rate, [0, 300, 0])), [Some(pts), None], looks);
    }
    // In reverse from an end that is not known.
    let mut endless = gst::FormattedSegment::<gst::ClockTime>::new();
    endless.set_applied_rate(-1.0);
    check_zone(times, Some(&gst::event::Segment::new(&endless)), [Some(50), Some(40)], ["whole", INSIDE]);
    // Before the start of the segment stream time is below 0.
    let begin = ",start=0,end=0.1";
    check_zone(begin, Some(&segment(1.0, [5_000, 6_000, 0])), [Some(4_950), Some(40)], ["whole", "open"]);
    // The time of a zone is stream time: an applied rate scales and reverses the time of a frame. 40 ms from the start of a segment of
    // a second are 80 ms of stream time at twice the speed. In reverse they are its last, with the instant at which the frame begins.
    for (applied_rate, [first, last]) in [(2.0, [1_000, 1_079]), (-2.0, [2_920, 3_000]), (0.5, [1_000, 1_019])] {
        for (time, covered) in [(first - 1, "open"), (first, INSIDE), (last, INSIDE), (last + 1, "open")] {
            let [start, end] = [0.0, 0.999_999].map(|more| (f64::from(time) + more) / 1e3);
            let times = format!(",start={start},end={end}");
            let segment = segment(applied_rate, [5_000, 6_000, 1_000]);
            check_zone(&times, Some(&segment), [Some(5_000), Some(40)], ["whole", covered]);
        }
    }
}

/// A blur that leaves what it covers as it is does not count as a cover, and the bus says why, once. It also names a weak blur.
#[test]
fn what_a_blur_leaves_is_not_called_covered() {
    use VideoFormat::{Gray8, Gray16Le, Nv12, Rgb, Rgba, Yuy2};
    for (format, properties, covered, unchanged, cause) in [
        (Nv12, "sigma=9 kernel-size=1", "nothing", "luma+chroma", "kernel-size=1"),
        (Nv12, "sigma=0.1", "nothing", "luma+chroma", "sigma=0.1"),
        (Nv12, "sigma=0.3", "partly", "chroma", "sigma=0.3"),
        // Less than half of the last of 8 bits.
        (Gray8, "sigma=0.25", "nothing", "luma", "sigma=0.25"),
        (Gray8, "sigma=0.26", "regions", "", "sigma=0.26"),
        (Gray16Le, "sigma=0.25", "regions", "", "sigma=0.25"),
        (Nv12, "sigma=0", "nothing", "luma+chroma", "sigma=0"),
        (Nv12, "planes=luma", "partly", "chroma", "planes leaves out chroma"),
        (Yuy2, "planes=chroma", "partly", "luma", "planes leaves out luma"),
        (Rgb, "planes=chroma+alpha", "nothing", "luma", "planes leaves out luma"),
        (Rgba, "planes=luma", "regions", "", ""),
        (Gray8, "planes=luma sigma=0.3", "regions", "", "sigma=0.3"),
        (Nv12, "sigma=0.1 kernel-size=1 strength=0.25", "regions", "", ""),
        (Nv12, "planes=alpha cover=fill", "regions", "", ""),
    ] {
        let mut stream = Stream::new(format, &format!("expand=0 post-messages=true on-missing=pass {properties}"));
        let (area, text) = if covered == "regions" { (200.0 / (97.0 * 61.0), "0.0338…") } else { (0.0, "0") };
        let told = format!("…covered={covered}, covered-area={text}, unchanged={unchanged}, cover=…");
        let effect = if covered == "regions" { "stay recognisable" } else { "does not change" };
        let warning = if cause.is_empty() { String::new() } else { format!("…{effect}…{cause}…") };
        for warning in [&*warning, ""] {
            stream.enter("face:10x20+20+10").warns(warning).tells(&[&told]);
            let stats = stream.element.property::<gst::Structure>("stats");
            assert_eq!(stats.get("covered-area"), Ok(area), "{properties}");
        }
        // A frame that no blur changes is the same buffer.
        stream.counts(&format!("frames-untouched={}", if covered == "nothing" { 2 } else { 0 }));
    }
}

/// A mask is of the frame whose meta has it, but for one whose timestamp is of a frame before the last: the object may have left it.
/// Without a mask that counts, its box is covered and not shown.
#[test]
fn an_object_whose_mask_does_not_count_is_covered_by_its_box_and_not_shown() {
    let upper_half = |timestamp: Option<u64>| {
        let mask = mask([4, 8], |_, y| if y < 4 { 255 } else { 0 });
        let mut buffer = mask.buffer_owned().unwrap();
        buffer.make_mut().set_pts(timestamp.map(ms));
        gst::Sample::builder().caps(&mask.caps_owned().unwrap()).buffer(&buffer).build()
    };
    let (old, lacking) = ("…more than one frame older…", "…has no mask…");
    // The timestamp of the mask of the fourth frame, whose own is 120 ms; that of the next mask is 40 ms later.
    for (time, has_mask, warning) in
        [(None, true, ""), (Some(40), true, old), (Some(80), true, ""), (None, false, lacking)]
    {
        for (mode, look_ahead) in [("inside", 0), ("inside", 2), ("outside", 0), ("outside", 2)] {
            let properties = format!("shape=mask cover=fill expand=0 region-mode={mode} look-ahead={look_ahead}");
            let mut stream = Stream::gray(&properties);
            stream.picture.bytes[0].fill(200);
            let with_mask = [None, None, None, time, time.map(|time| time + 40), None];
            for (number, time) in with_mask.into_iter().enumerate() {
                let mask = (has_mask || !(3..5).contains(&number)).then(|| mask_param(upper_half(time)));
                let frame = with_param(stream.frame(), "person", (32, 16, 40, 32), mask);
                stream.push(frame);
            }
            let outputs = stream.enter("eos").outputs();
            assert_eq!(outputs.len(), with_mask.len());
            for (number, output) in outputs.iter().enumerate() {
                let luma = stream.luma(output);
                // Of the object, of its box alone, and beyond.
                let covered = [(52, 22), (52, 42), (9, 9)].map(|(x, y)| luma(x, y) != 200);
                let expected = match (mode, warning.is_empty() || !(3..5).contains(&number)) {
                    ("inside", counts) => [true, !counts, false],
                    (_, counts) => [!counts, true, true],
                };
                assert_eq!(covered, expected, "frame {number}, mask of {time:?}, {properties}");
            }
            stream.warns(warning);
        }
    }
}
