//! The element `selfiesegmentation`, in a harness.

use std::path::Path;
use std::time::{Duration, Instant};

use gst::glib;
use gst::glib::translate::IntoGlib;
use gst::prelude::*;
use gst_video::{VideoCropMeta, VideoInfo, VideoRegionOfInterestMeta};

use crate::common::{
    Detector, PORTRAIT, assert_pictures_are_dropped, assert_short_frames_are_errors,
    assert_slow_searches_are_warned_of, blank, boxes, cropped, formats_and_sizes, frame, is_nothing, latency, make,
    portrait, started,
};

/// Where the face is in the demo's portrait, located by hand: left, top, right, bottom. The hair lies around it.
const FACE: [f64; 4] = [174., 62., 276., 180.];
/// The size of a frame with two small persons, and of their portraits.
const SCENE: [u32; 2] = [1280, 720];
const SMALL: [u32; 2] = [240, 200];

fn detector(properties: &[(&str, u32)], caps: &gst::CapsRef) -> Detector {
    started(make("selfiesegmentation"), properties, caps)
}

/// The same, whose masks are not averaged over time.
fn sharp(caps: &gst::CapsRef) -> Detector {
    let element = make("selfiesegmentation");
    element.set_property("smooth", 0.);
    started(element, &[], caps)
}

/// The mask of a frame: the region's box in pixels, left, top, right, bottom, and its samples.
#[derive(Debug, PartialEq)]
struct Mask {
    sides: [f64; 4],
    size: [usize; 2],
    samples: Vec<u8>,
}

impl Mask {
    fn row(&self, row: usize) -> &[u8] {
        &self.samples[row * self.size[0]..][..self.size[0]]
    }

    /// Whether a pixel of the frame is the person's.
    fn is_person(&self, pixel: [f64; 2]) -> bool {
        let sample = [0, 1].map(|axis| {
            let [from, to] = [self.sides[axis], self.sides[axis + 2]];
            let is_inside = pixel[axis] >= from && pixel[axis] < to;
            is_inside.then(|| ((pixel[axis] - from) / (to - from) * self.size[axis] as f64) as usize)
        });
        matches!(sample, [Some(x), Some(y)] if self.row(y)[x] >= 128)
    }

    /// The share of person in a part of the frame.
    fn share(&self, sides: [f64; 4]) -> f64 {
        let count = points(sides).filter(|pixel| self.is_person(*pixel)).count();
        count as f64 / points(sides).count() as f64
    }
}

/// Points of a part of the frame: left, top, right, bottom.
fn points([left, top, right, bottom]: [f64; 4]) -> impl Iterator<Item = [f64; 2]> {
    let place = |i: usize, from: f64, to: f64| from + (i as f64 + 0.5) / 80. * (to - from);
    (0..6400).map(move |i| [place(i % 80, left, right), place(i / 80, top, bottom)])
}

/// Whether a point of the demo's portrait lies within the outline of the person, located by hand.
fn is_in_outline([x, y]: [f64; 2]) -> bool {
    let lines = include_str!("../../../examples/demo/face-outline.csv").lines().skip(1);
    let points: Vec<[f64; 2]> = lines
        .map(|line| line.split_once(',').map(|(x, y)| [x, y].map(|side| side.parse().unwrap())).unwrap())
        .collect();
    let crosses = |([ax, ay], [bx, by]): &([f64; 2], [f64; 2])| {
        (*ay <= y) != (*by <= y) && x < ax + (y - ay) / (by - ay) * (bx - ax)
    };
    points.iter().copied().zip(points.iter().copied().cycle().skip(1)).filter(crosses).count() % 2 == 1
}

/// The mask of the region `person`, checked. `None` if the region is `nothing`.
fn mask(frame: &gst::BufferRef, full: [u32; 2]) -> Option<Mask> {
    let ours = |label: &str| label == "person" || label == "nothing";
    let metas: Vec<_> = frame.iter_meta::<VideoRegionOfInterestMeta>().filter(|meta| ours(meta.roi_type())).collect();
    let meta = metas.last().expect("a region is attached");
    if meta.roi_type() == "nothing" {
        assert_eq!(meta.rect(), (0, 0, 0, 0));
        return None;
    }
    let confidence = meta.param("detection").unwrap().get::<f64>("confidence").unwrap();
    assert!((0.5..=1.).contains(&confidence), "{confidence}");
    let sample = meta.param("mask").unwrap().get::<gst::Sample>("sample").unwrap();
    let info = VideoInfo::from_caps(sample.caps().unwrap()).unwrap();
    assert_eq!(info.format(), gst_video::VideoFormat::Gray8);
    let bytes = sample.buffer().unwrap().map_readable().unwrap();
    assert_eq!(bytes.len(), info.size());
    let size = [info.width() as usize, info.height() as usize];
    let rows = bytes.chunks_exact(info.stride()[0] as usize);
    let samples: Vec<u8> = rows.flat_map(|row| row[..size[0]].iter().copied()).collect();
    let (x, y, width, height) = meta.rect();
    let mask = Mask { sides: [x, y, x + width, y + height].map(f64::from), size, samples };
    // A sample is a cell of cudagaussblur's grid, and the box begins and ends between cells.
    let cell = f64::from(full[0].max(full[1]).div_ceil(512).next_power_of_two());
    for axis in 0..2 {
        let cells = (f64::from(full[axis]) / cell).floor();
        let side = f64::from(full[axis]) / cells;
        let length = mask.sides[axis + 2] - mask.sides[axis];
        assert!((length - size[axis] as f64 * side).abs() <= 1., "{length} pixels, {} samples of {side}", size[axis]);
        assert!(mask.sides[axis + 2] <= f64::from(full[axis]));
    }
    // The person, and a sample around it where the picture has one.
    let is_person = |sample: u8| sample >= 128;
    let [last_x, last_y] = size.map(|side| side - 1);
    let column = |x: usize| (0..size[1]).any(|y| is_person(mask.row(y)[x]));
    let row = |y: usize| mask.row(y).iter().any(|sample| is_person(*sample));
    let is_inside = [x > 0, y > 0, x + width < full[0], y + height < full[1]];
    let edges = [column(0), row(0), column(last_x), row(last_y)];
    let next = [column(1), row(1), column(last_x - 1), row(last_y - 1)];
    for side in 0..4 {
        assert!(if is_inside[side] { !edges[side] && next[side] } else { edges[side] || next[side] }, "side {side}");
    }
    Some(mask)
}

/// Where the face of a portrait is that is this wide and high, at this place.
fn face([x, y]: [u32; 2], size: [u32; 2]) -> [f64; 4] {
    std::array::from_fn(|side| {
        let axis = side % 2;
        f64::from([x, y][axis]) + FACE[side] * f64::from(size[axis]) / f64::from(PORTRAIT[axis])
    })
}

/// Asserts that the mask is the person of a portrait of this size: what both have in common, as a share of what either has.
#[track_caller]
fn assert_person(mask: &Mask, size: [u32; 2], what: &str) {
    let mut counts = [0; 3];
    for point in points([0., 0., f64::from(PORTRAIT[0]), f64::from(PORTRAIT[1])]) {
        let pixel = [0, 1].map(|axis| point[axis] * f64::from(size[axis]) / f64::from(PORTRAIT[axis]));
        counts[usize::from(mask.is_person(pixel)) + usize::from(is_in_outline(point))] += 1;
    }
    let share = f64::from(counts[2]) / f64::from(counts[1] + counts[2]);
    assert!(share > 0.75, "{what}: {share:.2} in common");
}

pub fn a_person_is_found_in_every_format_and_size(_: &Path) {
    for (format, size) in formats_and_sizes(&make("selfiesegmentation")) {
        let format = &*format;
        let what = format!("{format} {size:?}");
        let sample = portrait(format, size);
        let found = detector(&[], sample.caps().unwrap()).search(frame(&sample, 0));
        assert_person(&mask(&found, size).unwrap_or_else(|| panic!("{what}: nobody")), size, &what);
        let sample = blank(format, size);
        let found = detector(&[], sample.caps().unwrap()).search(frame(&sample, 0));
        assert!(is_nothing(&found), "{what}: {:?}", boxes(&found));
    }
}

/// Boxes count from the corner that a GstVideoCropMeta of the caps' size names. One of another size shows a part of the picture.
pub fn the_picture_is_where_a_crop_meta_says(_: &Path) {
    for format in ["I420", "YUY2", "RGB"] {
        let inner = portrait(format, PORTRAIT);
        let found = |buffer: gst::Buffer| mask(&detector(&[], inner.caps().unwrap()).search(buffer), PORTRAIT);
        let expected = found(frame(&inner, 0));
        assert_person(expected.as_ref().unwrap(), PORTRAIT, format);

        let cropped = found(cropped(format)).unwrap();
        assert_person(&cropped, PORTRAIT, format);
        // The others' chroma is converted from another size.
        assert!(format != "RGB" || Some(&cropped) == expected.as_ref());

        let mut part = frame(&inner, 0);
        VideoCropMeta::add(part.get_mut().unwrap(), (100, 20, 200, 200));
        assert!(found(part) == expected, "{format}, a part");
    }
}

/// Other frames get no mask: it would be of an earlier frame, and show where a person was and not where the person is.
pub fn one_frame_in_so_many_is_searched_and_four_a_second(_: &Path) {
    let sample = portrait("I420", PORTRAIT);
    let mut detector = detector(&[("every", 4)], sample.caps().unwrap());
    let searched = |detector: &mut Detector, times: &mut dyn Iterator<Item = u64>| {
        let is_searched = |time: &u64| {
            let before = detector.stats("searched");
            let found = detector.search(frame(&sample, *time));
            let is_searched = detector.stats("searched") > before;
            if is_searched {
                assert_person(&mask(&found, PORTRAIT).unwrap(), PORTRAIT, &format!("{time} ms"));
            } else {
                assert!(is_nothing(&found), "{time} ms: {:?}", boxes(&found));
            }
            is_searched
        };
        times.filter(is_searched).collect::<Vec<_>>()
    };
    // The person is new in the first frame, so the second one is searched, too.
    assert_eq!(searched(&mut detector, &mut (0..10).map(|n| 33 * n)), [0, 33, 165, 297]);
    assert_eq!(["frames", "searched", "faceless"].map(|name| detector.stats(name)), [10, 4, 0]);
    assert!(detector.stats("mean-ns") > 0);
    let instructions = detector.element.property::<gst::Structure>("stats").get::<String>("instructions").unwrap();
    assert!(["avx512", "avx2", "sse2", "neon", "portable"].contains(&&*instructions), "{instructions}");
    // Four a second, however large `every` is.
    detector.element.set_property("every", 1000u32);
    assert_eq!(searched(&mut detector, &mut (1..10).map(|n| 330 + 100 * n)), [430, 630, 830, 1030, 1230]);
    // After a jump the person is new, and in slow motion frames are shown for longer.
    for (rate, expected) in [(1., &[0, 33][..]), (0.25, &[0, 33, 66, 99])] {
        detector.seek(rate);
        assert_eq!(searched(&mut detector, &mut (0..4).map(|n| 33 * n)), expected);
    }
}

/// A frame that others hold, such as those of a tee, gets no metas. Its bytes are not copied.
pub fn frames_that_others_hold_are_neither_copied_nor_changed(_: &Path) {
    let sample = portrait("I420", PORTRAIT);
    let mut detector = detector(&[], sample.caps().unwrap());
    let memory = |buffer: &gst::BufferRef| buffer.peek_memory(0).as_ptr();
    for is_held in [false, true] {
        let pushed = frame(&sample, 0);
        let (buffer, bytes) = (pushed.as_ptr(), memory(&pushed));
        let held = is_held.then(|| pushed.clone());
        let found = detector.search(pushed);
        assert_person(&mask(&found, PORTRAIT).unwrap(), PORTRAIT, "held");
        assert_eq!((found.as_ptr() == buffer, memory(&found)), (!is_held, bytes));
        assert!(held.is_none_or(|held| boxes(&held).is_empty()));
        // No pixel changes.
        let [before, after] = [sample.buffer().unwrap(), &*found].map(|buffer| buffer.map_readable().unwrap());
        assert!(*before == *after);
    }
}

/// A frame of one colour with small portraits at these places, at this time. A detector in front of the element has found these faces.
fn scene(portrait: &gst::Sample, places: &[[u32; 2]], faces: &[[u32; 2]], milliseconds: u64) -> gst::Buffer {
    let small = portrait.buffer().unwrap().map_readable().unwrap();
    let [width, height] = SCENE.map(|side| side as usize);
    let mut bytes = vec![90; 3 * width * height];
    for [x, y] in places.iter().map(|place| place.map(|side| side as usize)) {
        for (row, from) in small.chunks_exact(3 * SMALL[0] as usize).enumerate() {
            bytes[3 * ((y + row) * width + x)..][..from.len()].copy_from_slice(from);
        }
    }
    let mut buffer = gst::Buffer::from_mut_slice(bytes);
    let writable = buffer.get_mut().unwrap();
    writable.set_pts(gst::ClockTime::from_mseconds(milliseconds));
    for place in faces {
        let [left, top, right, bottom] = face(*place, SMALL).map(|side| side as u32);
        VideoRegionOfInterestMeta::add(writable, "face", (left, top, right - left, bottom - top));
    }
    buffer
}

fn scene_caps() -> gst::Caps {
    let [width, height] = SCENE;
    format!("video/x-raw,format=RGB,width={width},height={height},framerate=30/1").parse().unwrap()
}

/// The share of each portrait's face, and of the whole frame, in the mask.
fn shares(found: &gst::BufferRef, places: &[[u32; 2]]) -> (Vec<f64>, f64) {
    let Some(mask) = mask(found, SCENE) else { return (vec![0.; places.len()], 0.) };
    let [width, height] = SCENE.map(f64::from);
    (places.iter().map(|place| mask.share(face(*place, SMALL))).collect(), mask.share([0., 0., width, height]))
}

const PLACES: [[u32; 2]; 2] = [[150, 200], [850, 440]];

pub fn two_small_persons_are_found_by_their_faces(_: &Path) {
    let portrait = portrait("RGB", SMALL);
    let mut detector = sharp(&scene_caps());
    let (alone, all) = shares(&detector.search(scene(&portrait, &PLACES, &[], 0)), &PLACES);
    assert!(alone.iter().all(|share| *share < 0.1) && all < 0.02, "{alone:?}, {all}");
    let (found, all) = shares(&detector.search(scene(&portrait, &PLACES, &PLACES, 33)), &PLACES);
    assert!(found.iter().all(|share| *share > 0.9) && all < 0.15, "{found:?}, {all}");
    // A detector that finds one of them.
    let mut detector = sharp(&scene_caps());
    let (one, _) = shares(&detector.search(scene(&portrait, &PLACES, &PLACES[1..], 0)), &PLACES);
    assert!(one[0] < 0.1 && one[1] > 0.9, "{one:?}");
    // Regions of other names, and faces without height, are no faces.
    let mut detector = sharp(&scene_caps());
    let mut other = scene(&portrait, &PLACES, &[], 0);
    let [left, top, ..] = face(PLACES[0], SMALL).map(|side| side as u32);
    VideoRegionOfInterestMeta::add(other.get_mut().unwrap(), "car", (left, top, 50, 60));
    VideoRegionOfInterestMeta::add(other.get_mut().unwrap(), "face", (left, top, 50, 0));
    let (found, _) = shares(&detector.search(other), &PLACES);
    assert!(found.iter().all(|share| *share < 0.1), "{found:?}");
    // A frame with faces is searched, however large `every` is.
    let mut detector = sharp(&scene_caps());
    detector.element.set_property("every", 1000u32);
    for time in [0, 33] {
        detector.search(scene(&portrait, &PLACES, &[], time));
    }
    assert_eq!(detector.stats("searched"), 1);
    let (found, _) = shares(&detector.search(scene(&portrait, &PLACES, &PLACES, 66)), &PLACES);
    assert!(found.iter().all(|share| *share > 0.9), "{found:?}");
}

/// Of one person the face is found again and again, of the other one only at first.
pub fn the_box_follows_the_mask_when_faces_are_not_found(_: &Path) {
    let portrait = portrait("RGB", SMALL);
    let mut detector = sharp(&scene_caps());
    let places = |number: u32| [[150 + 14 * number, 200 + 6 * number], [850, 440]];
    for number in 0..30 {
        let places = places(number);
        let faces = if number == 0 { &places[..] } else { &places[1..] };
        let (found, _) = shares(&detector.search(scene(&portrait, &places, faces, 33 * u64::from(number))), &places);
        assert!(found.iter().all(|share| *share > 0.9), "frame {number}: {found:?}");
    }
    assert_eq!(detector.stats("faceless"), 0);
    // It has moved by more than the width of its box. Who is behind something is found again; a second later the box is gone, too.
    let gone = &places(29)[1..];
    let back = places(29);
    for (time, until, is_found) in [(990, 990, true), (1056, 2056, false)] {
        (time..=until).step_by(100).for_each(|time| _ = detector.search(scene(&portrait, gone, gone, time)));
        let time = until;
        let (found, _) = shares(&detector.search(scene(&portrait, &back, gone, time + 33)), &back);
        assert!((found[0] > 0.9) == is_found && found[1] > 0.9, "{time} {found:?}");
    }
}

/// A region without a label, or with one that no text has, is no face. Nor is a face outside of the picture.
pub fn regions_without_a_label_are_no_faces(_: &Path) {
    let portrait = portrait("RGB", SMALL);
    for quark in [0, i32::MAX as u32] {
        let mut detector = sharp(&scene_caps());
        let mut buffer = scene(&portrait, &PLACES, &PLACES, 0);
        let name = |buffer: &mut gst::Buffer, old: &str, new: u32| {
            for mut meta in buffer.make_mut().iter_meta_mut::<VideoRegionOfInterestMeta>() {
                let old = if old.is_empty() { quark } else { gst::glib::Quark::from_str(old).into_glib() };
                // SAFETY: the pointer is to the live meta.
                unsafe {
                    let label = &raw mut (*meta.as_mut_ptr()).roi_type;
                    if *label == old {
                        *label = new;
                    }
                }
            }
        };
        name(&mut buffer, "face", quark);
        let mut found = detector.search(buffer);
        // What reads the mask reads labels.
        name(&mut found, "", gst::glib::Quark::from_str("other").into_glib());
        let (found, _) = shares(&found, &PLACES);
        assert!(found.iter().all(|share| *share < 0.1), "{quark}: {found:?}");
    }
    let size = SCENE;
    let portrait = self::portrait("RGB", size);
    let mut detector = sharp(portrait.caps().unwrap());
    for outside in [[size[0], 100], [100, size[1]], [u32::MAX - 5, 100]] {
        let mut buffer = frame(&portrait, 0);
        VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "face", (outside[0], outside[1], 12, 12));
        assert_person(&mask(&detector.search(buffer), size).unwrap(), size, "a face outside");
    }
}

/// A person fills the picture, whose face is not found, and something small was taken for a face once.
pub fn a_false_face_hides_nobody_for_more_than_a_second(_: &Path) {
    let size = SCENE;
    let portrait = portrait("RGB", size);
    let mut detector = sharp(portrait.caps().unwrap());
    let [left, top, right, bottom] = face([0, 0], size).map(|side| side as u32);
    let shares: Vec<_> = (0..45)
        .map(|number| {
            let mut buffer = frame(&portrait, 33 * number);
            let (label, rect) = if number == 0 {
                ("face", (left.midpoint(right), top.midpoint(bottom), 32, 32))
            } else {
                ("nothing", (0, 0, 0, 0))
            };
            VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), label, rect);
            mask(&detector.search(buffer), size).map_or(0., |mask| mask.share(face([0, 0], size)))
        })
        .collect();
    assert!(shares[0] < 0.1 && shares[32..].iter().all(|share| *share > 0.9), "{shares:?}");
    assert!((10..=15).contains(&detector.stats("faceless")), "{}", detector.stats("faceless"));
}

pub fn people_are_followed_through_lost_frames(_: &Path) {
    let portrait = portrait("RGB", SMALL);
    let mut detector = sharp(&scene_caps());
    detector.search(scene(&portrait, &PLACES, &PLACES, 0));
    let mut next = scene(&portrait, &PLACES, &[], 100);
    next.get_mut().unwrap().set_flags(gst::BufferFlags::DISCONT);
    let (found, _) = shares(&detector.search(next), &PLACES);
    assert!(found.iter().all(|share| *share > 0.9), "{found:?}");
}

pub fn frames_without_faces_are_counted(_: &Path) {
    let portrait = portrait("RGB", SMALL);
    let mut detector = sharp(&scene_caps());
    // No detector of faces, one that has found faces, one that finds none of them any more.
    let nothing = |places: &[[u32; 2]], milliseconds| {
        let mut buffer = scene(&portrait, places, &[], milliseconds);
        VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "nothing", (0, 0, 0, 0));
        buffer
    };
    detector.search(scene(&portrait, &[], &[], 0));
    detector.search(scene(&portrait, &PLACES, &PLACES, 33));
    detector.search(nothing(&PLACES, 66));
    assert_eq!(detector.stats("faceless"), 0);
    // The people are gone: this frame still looks for them, and the next one has nobody to look for.
    detector.search(nothing(&[], 99));
    assert_eq!(detector.stats("faceless"), 0);
    detector.search(nothing(&[], 132));
    assert_eq!(detector.stats("faceless"), 1);
    // A frame that no model sees counts as the one before.
    detector.element.set_property("every", 2u32);
    detector.search(nothing(&[], 165));
    detector.search(nothing(&[], 198));
    assert_eq!(["frames", "searched", "faceless"].map(|name| detector.stats(name)), [7, 6, 3]);
    detector.search(scene(&portrait, &PLACES, &PLACES, 231));
    assert_eq!(detector.stats("faceless"), 3);
}

pub fn the_latency_grows_by_the_time_of_searches_once_a_second_at_most(_: &Path) {
    let portrait = portrait("RGB", SMALL);
    let mut detector = sharp(&scene_caps());
    let upstream = Duration::from_millis(20);
    detector.harness.set_upstream_latency(upstream.try_into().unwrap());
    let mut times = (0..).map(|number| 40 * number);
    // Each face that is far from the others is looked at by itself.
    let faces: Vec<_> = (0..16).map(|i| [20 + i % 8 * 140, 40 + i / 8 * 300]).collect();
    let mut search = |detector: &mut Detector, faces: &[[u32; 2]], count: usize| {
        times.by_ref().take(count).for_each(|time| _ = detector.search(scene(&portrait, &[], faces, time)));
    };
    search(&mut detector, &[], 1);
    assert_eq!(latency(&detector), (upstream, 0));
    let before = Instant::now();
    search(&mut detector, &[], 1);
    let (short, messages) = latency(&detector);
    assert!(short > upstream && messages == 1, "{short:?}, {messages}");
    let mean = detector.stats("mean-ns");
    search(&mut detector, &faces, 2);
    let soon = latency(&detector);
    assert!(soon == (short, 0) || before.elapsed() >= Duration::from_secs(1), "{soon:?}, {short:?}");
    std::thread::sleep(Duration::from_secs(1));
    search(&mut detector, &faces, 1);
    let (long, messages) = latency(&detector);
    assert!(detector.stats("mean-ns") > mean && long > short && messages <= 1, "{long:?}, {short:?}, {messages}");
    // It does not shrink.
    search(&mut detector, &[], 20);
    let (after, _) = latency(&detector);
    assert!(after >= long, "{after:?}, {long:?}");
    for state in [gst::State::Null, gst::State::Playing] {
        detector.element.set_state(state).unwrap();
    }
    assert_eq!(latency(&detector).0, upstream);
}

/// GObject refuses values out of the range, with a warning.
pub fn properties_have_ranges(_: &Path) {
    let element = make("selfiesegmentation");
    for (name, range) in [("every", [1, 1000, 1]), ("threads", [0, 64, 0])] {
        let property = element.find_property(name).unwrap().downcast::<glib::ParamSpecUInt>().unwrap();
        assert_eq!([property.minimum(), property.maximum(), property.default_value()], range, "{name}");
        assert_eq!(element.property::<u32>(name), range[2]);
    }
    for (name, default) in [("threshold", 0.25), ("smooth", 0.75)] {
        let property = element.find_property(name).unwrap().downcast::<glib::ParamSpecDouble>().unwrap();
        assert_eq!([property.minimum(), property.maximum(), property.default_value()], [0., 1., default], "{name}");
    }
    assert_eq!(element.property::<Option<String>>("model"), None);
}

pub fn pictures_among_the_tags_are_dropped(_: &Path) {
    assert_pictures_are_dropped(&|caps| detector(&[], caps));
}

pub fn a_frame_that_is_too_short_ends_the_stream_with_an_error(_: &Path) {
    assert_short_frames_are_errors(&|caps| detector(&[], caps));
}

pub fn searches_that_take_too_long_are_warned_of(_: &Path) {
    assert_slow_searches_are_warned_of(&|caps| detector(&[], caps));
}
