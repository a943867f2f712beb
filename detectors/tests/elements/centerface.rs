//! The element `centerface`, in a harness.

use std::path::Path;
use std::time::{Duration, Instant};

use gst::glib;
use gst::prelude::*;
use gst_video::{VideoCropMeta, VideoRegionOfInterestMeta};

use crate::common::{
    Detector, PORTRAIT, assert_pictures_are_dropped, assert_short_frames_are_errors,
    assert_slow_searches_are_warned_of, blank, boxes, cropped, drawn, formats_and_sizes, frame, is_nothing, latency,
    make, portrait, started,
};

/// Where the face is in the demo's portrait, located by hand.
const FACE: [f64; 4] = [174., 62., 276., 180.];

fn element(model: &Path) -> gst::Element {
    let element = make("centerface");
    element.set_property("model", model.to_str().unwrap());
    element
}

fn detector(model: &Path, properties: &[(&str, u32)], caps: &gst::CapsRef) -> Detector {
    started(element(model), properties, caps)
}

/// Asserts that a frame has one box, which is that of the portrait's face in a picture of this size, and its confidence.
fn assert_face(frame: &gst::BufferRef, size: [u32; 2], what: &str) {
    let found = boxes(frame);
    let [(label, sides)] = &found[..] else { panic!("{what}: {found:?}") };
    let area = |[left, top, right, bottom]: [f64; 4]| (right - left).max(0.) * (bottom - top).max(0.);
    let scale = [0, 1].map(|axis| f64::from(size[axis]) / f64::from(PORTRAIT[axis]));
    let face: [f64; 4] = std::array::from_fn(|side| FACE[side] * scale[side % 2]);
    let common =
        std::array::from_fn(|side| if side < 2 { sides[side].max(face[side]) } else { sides[side].min(face[side]) });
    let share = area(common) / (area(*sides) + area(face) - area(common));
    assert!(label == "face" && share > 0.55, "{what}: {label} at {sides:?}, of {share:.2} in common with {face:?}");
    let meta = frame.meta::<VideoRegionOfInterestMeta>().unwrap();
    let confidence = meta.param("detection").unwrap().get::<f64>("confidence").unwrap();
    assert!((0.5..=1.).contains(&confidence), "{what}: {confidence}");
}

pub fn faces_are_found_in_every_format_and_size(model: &Path) {
    for (format, size) in formats_and_sizes(&element(model)) {
        let format = &*format;
        let what = format!("{format} {size:?}");
        for (sample, has_face) in [(portrait(format, size), true), (blank(format, size), false)] {
            let mut detector = detector(model, &[], sample.caps().unwrap());
            let found = detector.search(frame(&sample, 0));
            if has_face {
                assert_face(&found, size, &what);
            } else {
                assert!(is_nothing(&found), "{what}: {:?}", boxes(&found));
            }
        }
    }
}

/// Boxes count from the corner that a GstVideoCropMeta of the caps' size names. One of another size shows a part of the picture.
pub fn the_picture_is_where_a_crop_meta_says(model: &Path) {
    for format in ["I420", "YUY2", "RGB"] {
        let inner = portrait(format, PORTRAIT);
        let mut detector = detector(model, &[], inner.caps().unwrap());
        assert_face(&detector.search(cropped(format)), PORTRAIT, format);

        let mut part = frame(&inner, 1000);
        VideoCropMeta::add(part.get_mut().unwrap(), (100, 20, 200, 200));
        assert_face(&detector.search(part), PORTRAIT, format);
    }
}

/// The frames of these times that are searched. All others vouch for themselves too.
fn searched(detector: &mut Detector, sample: &gst::Sample, times: impl Iterator<Item = u64>) -> Vec<u64> {
    let is_searched = |time: &u64| {
        let found = detector.search(frame(sample, *time));
        let is_searched = !is_nothing(&found);
        if is_searched {
            assert_face(&found, PORTRAIT, &format!("{time} ms"));
        }
        is_searched
    };
    times.filter(is_searched).collect()
}

pub fn one_frame_in_so_many_is_searched_and_four_a_second(model: &Path) {
    let sample = portrait("I420", PORTRAIT);
    let mut detector = detector(model, &[("every", 4), ("size", 256)], sample.caps().unwrap());
    // The second one, because the face of the first one is new.
    assert_eq!(searched(&mut detector, &sample, (0..10).map(|n| 33 * n)), [0, 33, 165, 297]);
    assert_eq!(["frames", "searched"].map(|name| detector.stats(name)), [10, 4]);
    assert!(detector.stats("mean-ns") > 0);
    // A frame after a lost one is none that has to be searched: elements lose frames because searches are slow.
    let mut gap = frame(&sample, 363);
    gap.get_mut().unwrap().set_flags(gst::BufferFlags::DISCONT);
    assert!(is_nothing(&detector.search(gap)));
    // A property that changes.
    detector.element.set_property("every", 1000u32);
    assert_eq!(searched(&mut detector, &sample, (1..12).map(|n| 330 + 100 * n)), [530, 730, 930, 1130, 1330]);
    // After a jump the object is new, and in slow motion frames are shown for longer.
    for (rate, expected) in [(1., &[0, 33][..]), (0.25, &[0, 33, 66, 99])] {
        detector.seek(rate);
        assert_eq!(searched(&mut detector, &sample, (0..4).map(|n| 33 * n)), expected);
    }
    // Both views of a stereo picture.
    detector.element.set_property("every", 4u32);
    detector.seek(1.);
    let expected = [0, 0, 33, 33, 165, 165];
    assert_eq!(searched(&mut detector, &sample, (0..12).map(|n| 33 * (n / 2))), expected);
    // Time that goes back, and frames without timestamps.
    assert_eq!(searched(&mut detector, &sample, [80, 84].into_iter()), [80]);
    for _ in 0..2 {
        let mut untimed = frame(&sample, 0);
        untimed.get_mut().unwrap().set_pts(None);
        assert_face(&detector.search(untimed), PORTRAIT, "without a timestamp");
    }
}

/// A frame that others hold, such as those of a tee, gets no metas. Its bytes are not copied.
pub fn frames_that_others_hold_are_neither_copied_nor_changed(model: &Path) {
    let sample = portrait("I420", PORTRAIT);
    let mut detector = detector(model, &[], sample.caps().unwrap());
    let memory = |buffer: &gst::BufferRef| buffer.peek_memory(0).as_ptr();
    for is_held in [false, true] {
        let pushed = frame(&sample, 0);
        let (buffer, bytes) = (pushed.as_ptr(), memory(&pushed));
        let held = is_held.then(|| pushed.clone());
        let found = detector.search(pushed);
        assert_face(&found, PORTRAIT, "held");
        assert_eq!((found.as_ptr() == buffer, memory(&found)), (!is_held, bytes));
        assert!(held.is_none_or(|held| boxes(&held).is_empty()));
    }
}

pub fn a_frame_after_a_new_face_is_searched(model: &Path) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/demo/face.jpg");
    let beside = |side: &str| {
        drawn(&format!(
            "filesrc location=\"{file}\" ! jpegdec ! videobox {side}=-480 ! videoconvert ! video/x-raw,format=I420"
        ))
    };
    let [left, right, nobody] = [beside("right"), beside("left"), blank("I420", [960, 400])];
    let mut detector = detector(model, &[("every", 4)], left.caps().unwrap());
    let frames = [(4, &nobody), (5, &left), (9, &right), (4, &nobody)];
    let frames = frames.iter().flat_map(|(count, sample)| std::iter::repeat_n(*sample, *count));
    let is_searched = |(number, sample): &(u64, &gst::Sample)| {
        let before = detector.stats("searched");
        detector.search(frame(sample, 33 * number));
        detector.stats("searched") > before
    };
    let searched: Vec<_> = (0..).zip(frames).filter(is_searched).map(|(number, _)| number).collect();
    // Found at the left in frame 4 and at the right in frame 9.
    assert_eq!(searched, [0, 4, 5, 9, 10, 14, 18]);
}

/// A face of 24 pixels in a picture of 1920, once at the edge, is too small for the usual search.
pub fn small_faces_are_found_at_twice_the_size_and_around_their_place(model: &Path) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/demo/face.jpg");
    for [left, top] in [[700, 300], [1824, 1000]] {
        let (right, bottom) = (1824 - left, 1000 - top);
        let sample = drawn(&format!(
            "filesrc location=\"{file}\" ! jpegdec ! videoconvert ! videoscale ! video/x-raw,format=I420,width=96,height=80 ! \
             videobox fill=black left=-{left} top=-{top} right=-{right} bottom=-{bottom}"
        ));
        let found = |fine_every: u32| {
            let properties = [("every", 4), ("fine-every", fine_every)];
            let mut detector = detector(model, &properties, sample.caps().unwrap());
            let mut found = Vec::new();
            for number in 0..22 {
                let before = detector.stats("searched");
                let frame = detector.search(frame(&sample, 33 * number));
                if detector.stats("searched") > before {
                    found.push(boxes(&frame));
                }
            }
            found
        };
        assert!(found(0).iter().all(|boxes| boxes[0].0 == "nothing"), "{:?}", found(0));
        let [x, y] = [left + 45, top + 24].map(f64::from);
        // Frames 0, 1, 5, 9, 13, 17 and 21; the first and the fourth search of seven are at twice the size.
        let all = found(3);
        assert_eq!(all.len(), 7);
        for boxes in all {
            let [(label, sides)] = &boxes[..] else { panic!("{boxes:?}") };
            let is_around = sides[0] < x && x < sides[2] && sides[1] < y && y < sides[3] && sides[2] - sides[0] < 60.;
            assert!(label == "face" && is_around, "{boxes:?}");
        }
        // In a slow video every search is a fine one.
        let mut slow = detector(model, &[("fine-every", 1000)], sample.caps().unwrap());
        slow.search(frame(&blank("I420", [1920, 1080]), 0));
        assert_eq!(boxes(&slow.search(frame(&sample, 1000)))[0].0, "face");
    }
}

/// More small faces than a few, and one that has moved far since the last search, are found in each search.
pub fn small_faces_of_a_crowd_and_in_motion_are_found_in_every_search(model: &Path) {
    const SIZE: [usize; 2] = [1920, 1080];
    let face = portrait("GRAY8", [96, 80]);
    let face = face.buffer().unwrap().map_readable().unwrap();
    let caps = blank("GRAY8", [1920, 1080]);
    let picture = |places: &[[usize; 2]], number: u64| {
        let mut picture = vec![0; SIZE[0] * SIZE[1]];
        for [left, top] in places {
            for (y, row) in face.chunks_exact(96).enumerate() {
                picture[(top + y) * SIZE[0] + left..][..96].copy_from_slice(row);
            }
        }
        let mut buffer = gst::Buffer::from_mut_slice(picture);
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(33 * number));
        buffer
    };
    let crowd: Vec<_> = (0..24).map(|i| [60 + i % 6 * 310, 60 + i / 6 * 250]).collect();
    let (place, moved) = (&crowd[..1], &crowd[20..21]);
    for (before, after) in [(&crowd[..], &crowd[..]), (place, moved)] {
        let mut detector = detector(model, &[("every", 4), ("fine-every", 1000)], caps.caps().unwrap());
        for number in 0..14 {
            let searched = detector.stats("searched");
            let places = if number < 7 { before } else { after };
            let found = boxes(&detector.search(picture(places, number)));
            let is_searched = detector.stats("searched") > searched;
            assert!(
                !is_searched || found.iter().filter(|(label, _)| label == "face").count() == places.len(),
                "{number} {found:?}"
            );
        }
    }
}

pub fn the_latency_grows_by_the_time_of_searches_once_a_second_at_most(model: &Path) {
    let sample = portrait("I420", PORTRAIT);
    let mut detector = detector(model, &[("every", 1), ("size", 64)], sample.caps().unwrap());
    let upstream = Duration::from_millis(20);
    detector.harness.set_upstream_latency(upstream.try_into().unwrap());
    let mut times = (0..).map(|number| 40 * number);
    let mut search = |detector: &mut Detector, count: usize| {
        times.by_ref().take(count).for_each(|time| _ = detector.search(frame(&sample, time)));
    };
    search(&mut detector, 1);
    assert_eq!(latency(&detector), (upstream, 0));
    let before = Instant::now();
    search(&mut detector, 1);
    let (short, messages) = latency(&detector);
    assert!(short > upstream && messages == 1, "{short:?}, {messages}");
    // Forty times as many cells.
    detector.element.set_property("size", 640u32);
    let mean = detector.stats("mean-ns");
    search(&mut detector, 2);
    let soon = latency(&detector);
    assert!(soon == (short, 0) || before.elapsed() >= Duration::from_secs(1), "{soon:?}, {short:?}");
    std::thread::sleep(Duration::from_secs(1));
    search(&mut detector, 1);
    let (long, messages) = latency(&detector);
    assert!(detector.stats("mean-ns") > 2 * mean && long > short && messages <= 1, "{long:?}, {short:?}, {messages}");
    // It does not shrink.
    detector.element.set_property("size", 64u32);
    search(&mut detector, 20);
    let (after, _) = latency(&detector);
    assert!(after >= long, "{after:?}, {long:?}");
    for state in [gst::State::Null, gst::State::Playing] {
        detector.element.set_state(state).unwrap();
    }
    assert_eq!(latency(&detector).0, upstream);
}

/// GObject refuses values out of the range, with a warning.
pub fn properties_have_ranges(model: &Path) {
    let element = element(model);
    for (name, range) in
        [("every", [1, 1000, 5]), ("size", [64, 4096, 640]), ("fine-every", [0, 1000, 0]), ("threads", [0, 64, 0])]
    {
        let property = element.find_property(name).unwrap().downcast::<glib::ParamSpecUInt>().unwrap();
        assert_eq!([property.minimum(), property.maximum(), property.default_value()], range, "{name}");
    }
    let threshold = element.find_property("threshold").unwrap().downcast::<glib::ParamSpecDouble>().unwrap();
    assert_eq!([threshold.minimum(), threshold.maximum(), threshold.default_value()], [0., 1., 0.2]);
}

pub fn pictures_among_the_tags_are_dropped(model: &Path) {
    assert_pictures_are_dropped(&|caps| detector(model, &[], caps));
}

pub fn a_frame_that_is_too_short_ends_the_stream_with_an_error(model: &Path) {
    assert_short_frames_are_errors(&|caps| detector(model, &[], caps));
}

pub fn searches_that_take_too_long_are_warned_of(model: &Path) {
    assert_slow_searches_are_warned_of(&|caps| detector(model, &[("every", 1)], caps));
}
