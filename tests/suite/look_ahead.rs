// SPDX-License-Identifier: MPL-2.0
//! `look-ahead`: what frames that wait are covered by, what leaves in which order, and whose memory waits.

use std::sync::{Arc, Mutex};

use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo};

use crate::common::covered::{blurred, buffer, check, covering, info, noise, with_roi};
use crate::common::pictures::{Picture, rect};
use crate::common::video::{Blur, FRAME, stat};

const SIZE: [u32; 2] = [96, 64];

/// What leaves the element.
#[derive(Debug, Clone, PartialEq)]
enum Out {
    Frame(u64),
    Event(String),
}

/// Records what leaves from now on.
fn record(blur: &Blur) -> Arc<Mutex<Vec<Out>>> {
    let out = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&out);
    let mask = gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM | gst::PadProbeType::EVENT_FLUSH;
    blur.element.static_pad("src").unwrap().add_probe(mask, move |_, probe| {
        let out = match &probe.data {
            Some(gst::PadProbeData::Buffer(buffer)) => Out::Frame(buffer.pts().unwrap().nseconds() / FRAME.nseconds()),
            Some(gst::PadProbeData::Event(event)) => {
                let name = event.structure().filter(|_| event.type_() == gst::EventType::CustomDownstream);
                Out::Event(name.map_or(event.type_().to_string(), |structure| structure.name().to_string()))
            }
            _ => return gst::PadProbeReturn::Ok,
        };
        record.lock().unwrap().push(out);
        gst::PadProbeReturn::Ok
    });
    out
}

fn take(out: &Mutex<Vec<Out>>) -> Vec<Out> {
    std::mem::take(&mut out.lock().unwrap())
}

fn frames(range: std::ops::Range<u64>) -> Vec<Out> {
    range.map(Out::Frame).collect()
}

fn event(name: &str) -> Out {
    Out::Event(name.to_owned())
}

fn push(blur: &mut Blur, info: &VideoInfo) {
    blur.try_push(buffer(info, &noise(info, 1))).unwrap();
}

#[test]
fn frames_and_events_leave_in_the_order_in_which_they_entered() {
    let info = info(VideoFormat::Gray8, SIZE);
    let mut blur = covering("look-ahead=3", true, &info);
    let out = record(&blur);
    let custom = |name: &str| gst::event::CustomDownstream::new(gst::Structure::new_empty(name));
    for _ in 0..3 {
        push(&mut blur, &info);
    }
    assert_eq!(take(&out), []);
    blur.harness.push_event(custom("after-2"));
    blur.harness.push_event(gst::event::Tag::new(gst::TagList::new()));
    blur.harness.push_event(gst::event::Gap::builder(FRAME * 3).build());
    push(&mut blur, &info);
    assert_eq!(take(&out), frames(0..1));
    blur.harness.push_event(custom("after-3"));
    push(&mut blur, &info);
    push(&mut blur, &info);
    // Events follow their frame at once.
    assert_eq!(take(&out), [frames(1..3), vec![event("after-2"), event("tag"), event("gap")]].concat());
    push(&mut blur, &info);
    assert_eq!(take(&out), [Out::Frame(3), event("after-3")]);
    // What begins behind a frame stays there, too.
    let segment = gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new());
    blur.harness.push_event(gst::event::StreamStart::new("again"));
    blur.harness.push_event(segment.clone());
    assert_eq!(take(&out), []);
    (0..4).for_each(|_| push(&mut blur, &info));
    assert_eq!(take(&out), [frames(4..7), vec![event("stream-start"), event("segment")], frames(7..8)].concat());
    // Nothing that waits would be right after these.
    for (end, name) in
        [(gst::event::SegmentDone::new(gst::ClockTime::ZERO), "segment-done"), (gst::event::Eos::new(), "eos")]
    {
        blur.harness.push_event(custom("last"));
        blur.harness.push_event(end);
        let left = take(&out);
        assert_eq!(left[left.len() - 2..], [event("last"), event(name)], "{left:?}");
        assert_eq!(left.len(), 5, "{left:?}");
        if name != "eos" {
            (0..3).for_each(|_| push(&mut blur, &info));
            assert_eq!(take(&out), []);
        }
    }
}

#[test]
fn caps_and_queries_of_upstream_push_the_frames_that_wait() {
    let infos = [SIZE, [64, 96]].map(|size| info(VideoFormat::Gray8, size));
    let mut blur = covering("look-ahead=5", true, &infos[0]);
    let out = record(&blur);
    (0..4).for_each(|_| push(&mut blur, &infos[0]));
    blur.caps(&infos[1]);
    assert_eq!(take(&out), [frames(0..4), vec![event("caps"), event("segment")]].concat());
    (0..2).for_each(|_| push(&mut blur, &infos[1]));
    blur.harness.srcpad().unwrap().peer_query(&mut gst::query::Drain::new());
    assert_eq!(take(&out), frames(4..6));
    (0..2).for_each(|_| push(&mut blur, &infos[1]));
    blur.element.set_property_from_str("region-mode", "frame");
    push(&mut blur, &infos[1]);
    assert_eq!(take(&out), frames(6..9), "the whole picture is blurred at once");
}

#[test]
fn a_flush_drops_frames_and_keeps_sticky_events() {
    let info = info(VideoFormat::Gray8, SIZE);
    let mut blur = covering("look-ahead=5", true, &info);
    let out = record(&blur);
    (0..4).for_each(|_| push(&mut blur, &info));
    let mut tags = gst::TagList::new();
    tags.make_mut().add::<gst::tags::Title>(&"kept", gst::TagMergeMode::Append);
    blur.harness.push_event(gst::event::Tag::new(tags));
    blur.harness.push_event(gst::event::CustomDownstream::new(gst::Structure::new_empty("dropped")));
    blur.harness.push_event(gst::event::FlushStart::new());
    blur.harness.push_event(gst::event::FlushStop::new(true));
    assert_eq!(take(&out), [event("flush-start"), event("flush-stop")]);
    let pad = blur.element.static_pad("src").unwrap();
    let kept = pad.sticky_event::<gst::event::Tag>(0).expect("a tag");
    assert_eq!(kept.tag().get::<gst::tags::Title>().unwrap().get(), "kept");
    blur.harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    (0..6).for_each(|_| push(&mut blur, &info));
    let left = take(&out);
    assert_eq!(left.last(), Some(&Out::Frame(4)), "{left:?}");
}

#[test]
fn the_latency_is_that_of_the_frames_that_wait() {
    let info = info(VideoFormat::Gray8, SIZE);
    let upstream = gst::ClockTime::from_mseconds(7);
    for (properties, frames) in [("look-ahead=15", 15), ("look-ahead=15 region-mode=frame", 0), ("look-ahead=0", 0)] {
        let mut blur = covering(properties, true, &info);
        blur.harness.set_upstream_latency(upstream);
        assert_eq!(blur.harness.query_latency(), Some(upstream + FRAME * frames), "{properties}");
    }
    let mut blur = covering("look-ahead=2 region-mode=frame sigma=1", true, &info);
    push(&mut blur, &info);
    blur.messages(gst::MessageType::Latency);
    blur.element.set_property_from_str("region-mode", "inside");
    push(&mut blur, &info);
    assert_eq!(blur.messages(gst::MessageType::Latency).len(), 1);
    assert_eq!(blur.harness.query_latency(), Some(FRAME * 2));
}

/// Without a frame rate in the caps it follows from the times of frames, else a warning says that it is not known.
#[test]
fn the_latency_without_a_frame_rate_follows_from_times() {
    crate::common::video::init();
    let info = VideoInfo::builder(VideoFormat::Gray8, SIZE[0], SIZE[1]).build().unwrap();
    assert_eq!(info.fps(), gst::Fraction::new(0, 1));
    let ms = gst::ClockTime::from_mseconds;
    let push = |blur: &mut Blur, pts: Option<u64>, duration: Option<u64>| {
        let mut frame = buffer(&info, &noise(&info, 1));
        frame.make_mut().set_pts(pts.map(ms));
        frame.make_mut().set_duration(duration.map(ms));
        blur.harness.push(frame).unwrap();
        blur.harness.query_latency().unwrap()
    };
    let warnings = |blur: &Blur| blur.messages(gst::MessageType::Warning);
    // From the first interval on; and for as long as frames wait when they come more slowly for good.
    let mut blur = covering("look-ahead=3", true, &info);
    assert_eq!(push(&mut blur, Some(0), None), gst::ClockTime::ZERO);
    assert!(push(&mut blur, Some(40), None) >= ms(120));
    blur.messages(gst::MessageType::Latency);
    let (mut now, mut latency) = (40, gst::ClockTime::ZERO);
    for step in [[40, 42, 38, 44, 40, 39, 41], [100; 7]].concat() {
        now += step;
        latency = push(&mut blur, Some(now), None);
        assert!(latency >= ms(120), "{latency} at {now} ms");
    }
    assert!(latency >= ms(300) && latency <= ms(3 * 100 * 9 / 8 + 1), "{latency}");
    assert_eq!(blur.messages(gst::MessageType::Latency).len(), 1, "it changes seldom");
    // A pause at the start, one later, a jump ahead, and a flush do not stay in it.
    let mut blur = covering("look-ahead=3", true, &info);
    for pts in [0, 1000, 1040, 1080, 1120, 4000, 4040, 4080, 4120, 4160] {
        latency = push(&mut blur, Some(pts), None);
    }
    assert!(latency >= ms(120) && latency < ms(200), "{latency}");
    let mut one = covering("look-ahead=1", true, &info);
    for pts in [0, 40, 80, 120, 30_000, 30_040, 30_080] {
        latency = push(&mut one, Some(pts), None);
        assert!(latency < ms(50), "{latency} at {pts} ms");
    }
    let mut frame = buffer(&info, &noise(&info, 1));
    frame.make_mut().set_pts(ms(3_600_000));
    frame.make_mut().set_flags(gst::BufferFlags::DISCONT);
    blur.harness.push(frame).unwrap();
    assert!(push(&mut blur, Some(3_600_040), None) < ms(200));
    blur.harness.push_event(gst::event::FlushStart::new());
    blur.harness.push_event(gst::event::FlushStop::new(true));
    blur.harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    for pts in [5000, 5010, 5020] {
        latency = push(&mut blur, Some(pts), None);
    }
    assert!(latency >= ms(30) && latency < ms(60), "{latency}");
    // By durations, already of the first frame.
    let mut blur = covering("look-ahead=3", true, &info);
    assert!(push(&mut blur, None, Some(40)) >= ms(120));
    assert!(push(&mut blur, Some(5000), Some(40)) < ms(200));
    // Times that are late are no reason to warn.
    let mut late = covering("look-ahead=3", true, &info);
    for pts in [None, Some(40), Some(40), Some(80), Some(120)] {
        push(&mut late, pts, None);
    }
    let said = [warnings(&blur), warnings(&late)].concat();
    assert!(!said.iter().any(|text| text.contains("latency")), "{said:?}");
    // Of frames that do not wait nothing is asked.
    for (properties, expected) in [("look-ahead=3", 1), ("look-ahead=0", 0), ("look-ahead=3 region-mode=frame", 0)] {
        let mut blur = covering(properties, true, &info);
        (0..5).for_each(|_| assert_eq!(push(&mut blur, None, None), gst::ClockTime::ZERO));
        let found = warnings(&blur);
        let found: Vec<_> =
            found.iter().filter(|text| text.contains("latency that look-ahead adds is not known")).collect();
        assert_eq!(found.len(), expected, "{properties}: {found:?}");
    }
}

/// An object that is found in frames 5 and 9 is covered in all frames from 0 to 12.
#[test]
fn an_object_is_covered_before_it_is_found_and_between() {
    let info = info(VideoFormat::Gray8, SIZE);
    let picture = noise(&info, 3);
    let expected = blurred(&picture, 3.0);
    let mut blur = covering("look-ahead=5 sigma=3 expand=0 on-missing=pass post-messages=true", true, &info);
    let place = (20, 20, 8, 8);
    for frame in 0..13 {
        let input = buffer(&info, &picture);
        let is_found = frame == 5 || frame == 9;
        blur.try_push(if is_found { with_roi(input, "face", place) } else { input }).unwrap();
    }
    blur.harness.push_event(gst::event::Eos::new());
    let mut origins = Vec::new();
    for frame in 0..13 {
        let out = blur.harness.try_pull().unwrap();
        assert_eq!(out.pts(), Some(FRAME * frame));
        // It grows by 9.6 samples a second of 500 ms / (500 ms + time) before the first detection and after the last one.
        let grown = [2, 2, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1][frame as usize];
        let cover = rect(20 - grown, 20 - grown, 8 + 2 * grown, 8 + 2 * grown);
        check(&info, &out, &picture, &expected, &[cover], true);
        let message = blur.bus.pop_filtered(&[gst::MessageType::Element]).expect("a message");
        let message = message.structure().unwrap();
        assert_eq!(message.get::<u64>("timestamp"), Ok((FRAME * frame).nseconds()));
        let regions = message.get::<gst::Array>("regions").unwrap();
        let region = regions[0].get::<gst::Structure>().unwrap();
        assert_eq!((regions.len(), region.get::<u32>("track")), (1, Ok(1)));
        origins.push(region.get::<String>("origin").unwrap());
    }
    let expected = [vec!["anticipated"; 5], vec!["found"], vec!["bridged"; 3], vec!["found"], vec!["predicted"; 3]];
    assert_eq!(origins, expected.concat());
    let counts = ["frames-anticipated", "frames-bridged", "frames-predicted", "frames-lost", "frames-copied"];
    assert_eq!(counts.map(|name| stat(&blur, name)), [5, 3, 3, 0, 0]);
}

/// Frames in another region-mode are followed too: the object is where it was found in one of them.
#[test]
fn frames_in_another_mode_end_no_hold() {
    let info = info(VideoFormat::Gray8, SIZE);
    let picture = noise(&info, 3);
    let expected = blurred(&picture, 3.0);
    for mode in ["frame", "outside"] {
        for (properties, found_in) in [("look-ahead=0", 0), ("look-ahead=0", 1), ("look-ahead=2", 1)] {
            let mut blur = covering(&format!("sigma=3 expand=0 on-missing=pass {properties}"), true, &info);
            for frame in 0..3 {
                blur.element.set_property_from_str("region-mode", if frame == 1 { mode } else { "inside" });
                let input = buffer(&info, &picture);
                let input = if frame == found_in { with_roi(input, "face", (20, 20, 8, 8)) } else { input };
                blur.try_push(input).unwrap();
            }
            blur.harness.push_event(gst::event::Eos::new());
            let last = std::iter::from_fn(|| blur.harness.try_pull()).nth(2).unwrap();
            // Grown by less than a sample, and rounded outwards.
            check(&info, &last, &picture, &expected, &[rect(19, 19, 10, 10)], true);
        }
    }
}

#[test]
fn properties_are_those_of_the_frame_that_entered() {
    let info = info(VideoFormat::Gray8, SIZE);
    let picture = noise(&info, 4);
    let mut blur = covering("look-ahead=2 zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5]>", true, &info);
    for sigma in [1.0, 2.0, 3.0] {
        blur.element.set_property("sigma", sigma);
        blur.try_push(buffer(&info, &picture)).unwrap();
    }
    blur.harness.push_event(gst::event::Eos::new());
    for sigma in [1.0, 2.0, 3.0] {
        let out = blur.harness.try_pull().unwrap();
        check(&info, &out, &picture, &blurred(&picture, sigma), &[rect(0, 0, 48, 32)], true);
    }
}

/// `on-missing=auto` covers the frames before the first meta too, if they still wait.
#[test]
fn auto_knows_of_the_metas_of_frames_that_wait() {
    let info = info(VideoFormat::Gray8, SIZE);
    let mut blur = covering("look-ahead=3 cover=fill post-messages=true", true, &info);
    for frame in 0..9 {
        let input = buffer(&info, &noise(&info, 1));
        blur.try_push(if frame == 5 { with_roi(input, "face", (1, 1, 5, 5)) } else { input }).unwrap();
    }
    let covered = std::iter::from_fn(|| blur.bus.pop_filtered(&[gst::MessageType::Element]));
    let covered: Vec<String> = covered.map(|message| message.structure().unwrap().get("covered").unwrap()).collect();
    assert_eq!(covered, ["nothing", "nothing", "frame", "frame", "frame", "regions"]);
}

#[test]
fn a_dropped_frame_leaves_a_discontinuity_where_it_was() {
    let info = info(VideoFormat::Gray8, SIZE);
    let mut blur = covering("look-ahead=2 on-missing=drop region-sources=roi", true, &info);
    for frame in 0..6 {
        let input = buffer(&info, &noise(&info, 1));
        blur.try_push(if frame == 2 { input } else { with_roi(input, "face", (1, 1, 5, 5)) }).unwrap();
    }
    blur.harness.push_event(gst::event::Eos::new());
    let left = std::iter::from_fn(|| blur.harness.try_pull());
    let left: Vec<(u64, bool)> =
        left.map(|out| (out.pts().unwrap() / FRAME, out.flags().contains(gst::BufferFlags::DISCONT))).collect();
    assert_eq!(left[1..], [(1, false), (3, true), (4, false), (5, false)]);
    assert_eq!(stat(&blur, "frames-dropped"), 1);
}

/// What waits is upstream's buffer, without a copy.
#[test]
fn ordinary_memory_waits_itself() {
    let info = info(VideoFormat::Nv12, [1920, 1080]);
    let mut blur = covering("look-ahead=15 expand=0 on-missing=pass cover=fill", true, &info);
    let pool = gst_video::VideoBufferPool::new();
    let mut config = pool.config();
    config.set_params(Some(&info.to_caps().unwrap()), info.size() as u32, 0, 0);
    pool.set_config(config).unwrap();
    pool.set_active(true).unwrap();
    let mut addresses = Vec::new();
    for frame in 0..40 {
        let mut input = match frame % 2 {
            0 => pool.acquire_buffer(None).unwrap(),
            _ => gst::Buffer::with_size(info.size()).unwrap(),
        };
        input.make_mut().memset(.., 0x20).unwrap();
        addresses.push(input.map_readable().unwrap().as_ptr() as usize);
        blur.try_push(if frame < 30 { with_roi(input, "face", (100, 100, 80, 80)) } else { input }).unwrap();
    }
    blur.harness.push_event(gst::event::Eos::new());
    for (frame, address) in addresses.into_iter().enumerate() {
        let out = blur.harness.try_pull().unwrap();
        assert_eq!(out.map_readable().unwrap().as_ptr() as usize, address, "frame {frame}");
    }
    assert_eq!([stat(&blur, "frames-copied"), stat(&blur, "bytes-copied")], [0, 0]);
    pool.set_active(false).unwrap();
}

/// A pool that has no buffer left would stall upstream for good.
#[test]
fn buffers_of_a_limited_pool_are_copied_as_they_enter() {
    let info = info(VideoFormat::Nv12, SIZE);
    let picture: Picture = noise(&info, 5);
    let expected = blurred(&picture, 2.0);
    let pool = gst_video::VideoBufferPool::new();
    let mut config = pool.config();
    config.set_params(Some(&info.to_caps().unwrap()), info.size() as u32, 0, 2);
    pool.set_config(config).unwrap();
    pool.set_active(true).unwrap();
    for is_sub_buffer in [false, true] {
        let mut blur = covering("look-ahead=15 sigma=2 expand=0 on-missing=pass", false, &info);
        let out = record(&blur);
        for frame in 0..30_u64 {
            let params = gst::BufferPoolAcquireParams::with_flags(gst::BufferPoolAcquireFlags::DONTWAIT);
            let mut input = pool.acquire_buffer(Some(&params)).expect("a buffer has come back");
            input = filled(&info, &picture, input);
            if is_sub_buffer {
                let mut child = input.copy();
                child.make_mut().set_flags(gst::BufferFlags::MARKER);
                gst::meta::ParentBufferMeta::add(child.make_mut(), &input);
                input = child;
            }
            blur.try_push(with_roi(input, "face", (20, 20, 8, 8))).unwrap();
            let left = frames(frame.saturating_sub(15)..(frame + 1).saturating_sub(15));
            assert_eq!(take(&out), left);
        }
        blur.harness.push_event(gst::event::Eos::new());
        for _ in 0..30 {
            let left = blur.harness.try_pull().unwrap();
            check(&info, &left, &picture, &expected, &[rect(20, 20, 8, 8)], false);
            assert_eq!(left.iter_meta::<gst_video::VideoRegionOfInterestMeta>().count(), 1);
            assert_eq!(left.flags().contains(gst::BufferFlags::MARKER), is_sub_buffer);
        }
        assert_eq!(stat(&blur, "frames-copied"), 30);
        assert_eq!(stat(&blur, "frames-in-place"), 30, "the copy is covered itself");
    }
    pool.set_active(false).unwrap();
}

/// A frame that cannot be read ends streaming when it leaves, after those before it.
#[test]
fn a_frame_that_fails_takes_none_before_it_along() {
    let info = info(VideoFormat::Gray8, SIZE);
    let pool = gst::BufferPool::new();
    let mut config = pool.config();
    config.set_params(None, 16, 0, 2);
    pool.set_config(config).unwrap();
    pool.set_active(true).unwrap();
    for is_scarce in [true, false] {
        let mut blur = covering("look-ahead=5 zones=<[zone,x=0.1,y=0.1,width=0.5,height=0.5]>", true, &info);
        let out = record(&blur);
        (0..2).for_each(|_| push(&mut blur, &info));
        let short = if is_scarce { pool.acquire_buffer(None).unwrap() } else { gst::Buffer::with_size(16).unwrap() };
        blur.try_push(short).unwrap();
        push(&mut blur, &info);
        assert_eq!(blur.messages(gst::MessageType::Error).len(), 0);
        blur.harness.push_event(gst::event::Eos::new());
        assert_eq!(take(&out), [frames(0..2), vec![event("eos")]].concat(), "nothing follows it");
        assert_eq!(blur.messages(gst::MessageType::Error).len(), 1);
    }
    pool.set_active(false).unwrap();
}

/// A buffer with the strides of the caps, with the bytes of a picture.
fn filled(info: &VideoInfo, picture: &Picture, buffer: gst::Buffer) -> gst::Buffer {
    let source = crate::common::covered::buffer(info, picture);
    let source = gst_video::VideoFrame::from_buffer_readable(source, info).unwrap();
    let mut frame = gst_video::VideoFrame::from_buffer_writable(buffer, info).unwrap();
    source.copy(&mut frame).unwrap();
    frame.into_buffer()
}

/// What upstream may need while frames wait.
#[test]
fn upstream_is_asked_for_as_many_buffers() {
    let info = info(VideoFormat::Gray8, SIZE);
    for (properties, expected) in
        [("look-ahead=15", Some(15)), ("look-ahead=0", None), ("look-ahead=15 region-mode=frame sigma=1", None)]
    {
        let mut blur = covering(properties, true, &info);
        push(&mut blur, &info);
        let mut query = gst::query::Allocation::new(Some(&info.to_caps().unwrap()), true);
        assert!(blur.harness.srcpad().unwrap().peer_query(&mut query));
        let proposed = query.allocation_pools().next();
        assert_eq!(proposed.map(|(_, _, min, max)| (min, max)), expected.map(|min| (min, 0)), "{properties}");
    }
}

fn push_at(blur: &mut Blur, buffer: gst::Buffer, frame: u64) {
    let mut buffer = buffer;
    buffer.make_mut().set_pts(FRAME * frame);
    buffer.make_mut().set_duration(FRAME);
    blur.harness.push(buffer).unwrap();
}

fn gap(from: u64, frames: u64) -> gst::Event {
    gst::event::Gap::builder(FRAME * from).duration(FRAME * frames).build()
}

/// A gap is time in which no frame comes: frames leave when it is as long as `look-ahead`, and the gaps after them.
#[test]
fn a_gap_counts_as_the_frames_that_it_lacks() {
    let info = info(VideoFormat::Gray8, SIZE);
    let mut blur = covering("look-ahead=3", true, &info);
    let out = record(&blur);
    for frame in 0..3 {
        push_at(&mut blur, buffer(&info, &noise(&info, 1)), frame);
    }
    // Lost packets: several gaps in the time of one frame.
    for part in 0..4 {
        let start = FRAME * 3 + FRAME * part / 4;
        blur.harness.push_event(gst::event::Gap::builder(start).duration(FRAME / 4).build());
        assert_eq!(take(&out), if part == 3 { frames(0..1) } else { Vec::new() }, "{part}");
    }
    push_at(&mut blur, buffer(&info, &noise(&info, 1)), 4);
    assert_eq!(take(&out), frames(1..2));
    // The second of two gaps begins where the first one ends.
    blur.harness.push_event(gap(5, 1));
    assert_eq!(take(&out), [frames(2..3), vec![event("gap"); 4]].concat());
    blur.harness.push_event(gap(6, 1));
    assert_eq!(take(&out), []);
    blur.harness.push_event(gap(7, 1));
    assert_eq!(take(&out), [frames(4..5), vec![event("gap"); 3]].concat());
    blur.harness.push_event(gap(8, 1));
    assert_eq!(take(&out), [event("gap")], "nothing waits");
}

/// In reverse the gap after a frame is before it in time.
#[test]
fn a_gap_counts_in_reverse() {
    let info = info(VideoFormat::Gray8, SIZE);
    let mut blur = covering("look-ahead=3", true, &info);
    let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
    segment.set_rate(-1.0);
    segment.set_stop(gst::ClockTime::SECOND);
    blur.harness.push_event(gst::event::Segment::new(&segment));
    let out = record(&blur);
    push_at(&mut blur, buffer(&info, &noise(&info, 1)), 10);
    push_at(&mut blur, buffer(&info, &noise(&info, 1)), 9);
    blur.harness.push_event(gap(7, 2));
    assert_eq!(take(&out), [Out::Frame(10)]);
    blur.harness.push_event(gap(6, 1));
    assert_eq!(take(&out), [Out::Frame(9), event("gap"), event("gap")]);
}

/// What is found after a gap that is shorter than `look-ahead` is covered before it.
#[test]
fn an_object_is_covered_before_a_short_gap() {
    let info = info(VideoFormat::Gray8, SIZE);
    let picture = noise(&info, 3);
    for (lacking, is_covered) in [(2, true), (3, false)] {
        let mut blur = covering("look-ahead=3 sigma=3 expand=0 on-missing=pass post-messages=true", true, &info);
        push_at(&mut blur, buffer(&info, &picture), 0);
        blur.harness.push_event(gap(1, lacking));
        push_at(&mut blur, with_roi(buffer(&info, &picture), "face", (20, 20, 8, 8)), 1 + lacking);
        blur.harness.push_event(gst::event::Eos::new());
        let message = blur.bus.pop_filtered(&[gst::MessageType::Element]).expect("a message");
        let covered = message.structure().unwrap().get::<String>("covered").unwrap();
        assert_eq!(covered, if is_covered { "regions" } else { "nothing" }, "{lacking}");
    }
}

/// A live stream that ends in gaps, of which the time is not known, or does not pass.
#[test]
fn gaps_without_a_time_release_frames_too() {
    crate::common::video::init();
    let unknown = VideoInfo::builder(VideoFormat::Gray8, SIZE[0], SIZE[1]).fps((0, 1)).build().unwrap();
    let mut blur = covering("look-ahead=3", true, &unknown);
    let out = record(&blur);
    let no_duration = |frame| {
        let mut buffer = buffer(&unknown, &noise(&unknown, 1));
        buffer.make_mut().set_pts(FRAME * frame);
        buffer
    };
    (0..2).for_each(|frame| _ = blur.harness.push(no_duration(frame)).unwrap());
    for (gaps, left) in [(1, Vec::new()), (2, frames(0..1)), (3, [frames(1..2), vec![event("gap"); 3]].concat())] {
        blur.harness.push_event(gap(1 + gaps, 1));
        assert_eq!(take(&out), left, "{gaps}");
    }

    let known = info(VideoFormat::Gray8, SIZE);
    let mut blur = covering("look-ahead=100", true, &known);
    let out = record(&blur);
    push_at(&mut blur, buffer(&known, &noise(&known, 1)), 0);
    (0..10_000).for_each(|_| _ = blur.harness.push_event(gst::event::Gap::builder(FRAME).build()));
    assert_eq!(take(&out).len(), 10_001, "the queue is bounded");
}

/// The base class has the flag on the next buffer that it pushes, whichever that is.
#[test]
fn a_discontinuity_stays_where_it_was() {
    let info = info(VideoFormat::Gray8, SIZE);
    for properties in ["look-ahead=3", "look-ahead=3 zones=<[zone,x=0.1,y=0.1,width=0.5,height=0.5]>", "look-ahead=0"] {
        let mut blur = covering(properties, true, &info);
        for frame in 0..12 {
            let mut input = buffer(&info, &noise(&info, 1));
            if [0, 5, 7, 8].contains(&frame) {
                input.make_mut().set_flags(gst::BufferFlags::DISCONT);
            }
            blur.try_push(input).unwrap();
        }
        blur.harness.push_event(gst::event::Eos::new());
        let left = std::iter::from_fn(|| blur.harness.try_pull());
        let left: Vec<(u64, bool)> =
            left.map(|out| (out.pts().unwrap() / FRAME, out.flags().contains(gst::BufferFlags::DISCONT))).collect();
        let expected: Vec<(u64, bool)> = (0..12).map(|frame| (frame, [0, 5, 7, 8].contains(&frame))).collect();
        assert_eq!(left, expected, "{properties}");
    }
}

/// A frame that is late is dropped as it enters: the discontinuity is at the next one, not at those that wait before it.
#[test]
fn a_late_frame_leaves_a_discontinuity_where_it_was() {
    let info = info(VideoFormat::Gray8, SIZE);
    let mut blur = covering("look-ahead=3", true, &info);
    for frame in 0..12 {
        if frame == 6 {
            // Frames up to this time are late.
            let time = gst::ClockTime::ZERO;
            let late = gst::event::Qos::new(gst::QOSType::Underflow, 1.0, (FRAME * 6).nseconds() as i64, time);
            blur.harness.push_upstream_event(late);
        }
        blur.try_push(buffer(&info, &noise(&info, 1))).unwrap();
    }
    blur.harness.push_event(gst::event::Eos::new());
    let left = std::iter::from_fn(|| blur.harness.try_pull());
    let left: Vec<(u64, bool)> =
        left.map(|out| (out.pts().unwrap() / FRAME, out.flags().contains(gst::BufferFlags::DISCONT))).collect();
    let expected: Vec<(u64, bool)> = (0..12).filter(|frame| *frame != 6).map(|frame| (frame, frame == 7)).collect();
    assert_eq!(left, expected);
}

/// Upstream has the error, and may push on all the same.
#[test]
fn a_frame_that_fails_ends_no_hold() {
    let info = info(VideoFormat::Gray8, SIZE);
    let picture = noise(&info, 3);
    for (look_ahead, failing) in [(0, 1), (2, 3)] {
        let properties = format!("look-ahead={look_ahead} cover=fill on-missing=pass post-messages=true");
        let mut blur = covering(&properties, true, &info);
        blur.try_push(with_roi(buffer(&info, &picture), "face", (20, 20, 8, 8))).unwrap();
        for frame in 1..=failing {
            let input = if frame == 1 { gst::Buffer::with_size(16).unwrap() } else { buffer(&info, &picture) };
            let pushed = blur.try_push(input);
            assert_eq!(pushed.is_err(), frame == failing, "{frame}: {pushed:?}");
        }
        assert_eq!(blur.messages(gst::MessageType::Error).len(), 1);
        blur.messages(gst::MessageType::Element);
        push(&mut blur, &info);
        blur.harness.push_event(gst::event::Eos::new());
        let message = blur.bus.pop_filtered(&[gst::MessageType::Element]).expect("a message");
        let message = message.structure().unwrap();
        assert_eq!(message.get::<u64>("timestamp"), Ok((FRAME * (failing + 1)).nseconds()));
        let regions = message.get::<gst::Array>("regions").unwrap();
        assert_eq!(regions.len(), 1, "{message:?}");
        assert_eq!(regions[0].get::<gst::Structure>().unwrap().get::<String>("origin").unwrap(), "predicted");
    }
}

/// How many frames before a first detection are covered.
fn anticipated(blur: &mut Blur) -> u64 {
    blur.harness.push_event(gst::event::Eos::new());
    stat(blur, "frames-anticipated")
}

/// All of them, whatever comes between two frames that leaves them as they are.
#[test]
fn frames_wait_through_what_does_not_change_them() {
    let info = info(VideoFormat::Gray8, SIZE);
    let caps = info.to_caps().unwrap();
    let picture = noise(&info, 3);
    type Disturb<'a> = &'a dyn Fn(&mut Blur);
    let disturbances: [(&str, Disturb); 7] = [
        ("nothing", &|_| ()),
        ("the same caps", &|blur| _ = blur.harness.push_event(gst::event::Caps::new(&caps))),
        ("a segment", &|blur| {
            let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
            segment.set_time(gst::ClockTime::SECOND);
            _ = blur.harness.push_event(gst::event::Segment::new(&segment));
        }),
        ("a stream that starts", &|blur| _ = blur.harness.push_event(gst::event::StreamStart::new("again"))),
        ("an allocation query", &|blur| {
            let mut query = gst::query::Allocation::new(Some(&caps), true);
            assert!(blur.harness.srcpad().unwrap().peer_query(&mut query));
        }),
        ("a request of all buffers", &|blur| {
            let mut query = gst::query::Allocation::new(Some(&caps), false);
            assert!(blur.harness.srcpad().unwrap().peer_query(&mut query));
        }),
        ("a window that is resized", &|blur| _ = blur.harness.push_upstream_event(gst::event::Reconfigure::new())),
    ];
    for (name, disturb) in disturbances {
        for found in [16, 100] {
            let mut blur = covering("look-ahead=15 sigma=3 expand=0 on-missing=pass", true, &info);
            for frame in 0..20 {
                if frame % 4 == 3 {
                    disturb(&mut blur);
                }
                let input = buffer(&info, &picture);
                let is_found = (15..found).contains(&frame);
                blur.try_push(if is_found { with_roi(input, "face", (20, 20, 8, 8)) } else { input }).unwrap();
            }
            assert_eq!(anticipated(&mut blur), 15, "{name}, found in frames from 15 to {found}");
        }
    }
}

/// Decoders ask for their buffers by an allocation query, and wait for them.
#[test]
fn an_allocation_query_gives_buffers_back() {
    let info = info(VideoFormat::Gray8, SIZE);
    let caps = info.to_caps().unwrap();
    let picture = noise(&info, 3);
    for needs_pool in [true, false] {
        let mut blur = covering("look-ahead=5 cover=fill zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5]>", true, &info);
        let out = record(&blur);
        let memories = Arc::new(());
        for _ in 0..4 {
            struct Owned(Vec<u8>, #[expect(dead_code, reason = "it counts the memories that live")] Arc<()>);
            impl AsMut<[u8]> for Owned {
                fn as_mut(&mut self) -> &mut [u8] {
                    &mut self.0
                }
            }
            impl AsRef<[u8]> for Owned {
                fn as_ref(&self) -> &[u8] {
                    &self.0
                }
            }
            let bytes = buffer(&info, &picture).map_readable().unwrap().to_vec();
            let mut input = gst::Buffer::from_mut_slice(Owned(bytes, Arc::clone(&memories)));
            gst_video::VideoMeta::add_full(
                input.make_mut(),
                gst_video::VideoFrameFlags::empty(),
                info.format(),
                info.width(),
                info.height(),
                &[0],
                &[crate::common::pictures::pitch(&picture.planes[0]) as i32],
            )
            .unwrap();
            blur.try_push(input).unwrap();
        }
        let held = |memories: &Arc<()>| Arc::strong_count(memories) - 1;
        assert_eq!(held(&memories), 4);
        let mut query = gst::query::Allocation::new(Some(&caps), needs_pool);
        assert!(blur.harness.srcpad().unwrap().peer_query(&mut query));
        assert_eq!(take(&out), [], "they wait");
        assert_eq!(held(&memories), if needs_pool { 4 } else { 0 });
        // Twice in a row copies nothing again.
        assert!(blur.harness.srcpad().unwrap().peer_query(&mut gst::query::Allocation::new(Some(&caps), needs_pool)));
        assert_eq!(stat(&blur, "frames-copied"), if needs_pool { 0 } else { 4 });
        blur.harness.push_event(gst::event::Eos::new());
        let mut covered = picture.clone();
        for y in 0..32 {
            covered.bytes[0][y * crate::common::pictures::pitch(&picture.planes[0])..][..48].fill(0);
        }
        for _ in 0..4 {
            let left = blur.harness.try_pull().unwrap();
            check(&info, &left, &picture, &covered, &[rect(0, 0, 48, 32)], false);
        }
    }
}

/// The base class drops late frames by the segment that they entered with, though the event waits.
#[test]
fn late_frames_are_those_of_the_segment_that_waits() {
    let info = info(VideoFormat::Gray8, SIZE);
    let mut blur = covering("look-ahead=3", true, &info);
    for frame in 0..4 {
        push_at(&mut blur, buffer(&info, &noise(&info, 1)), frame);
    }
    let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
    segment.set_start(FRAME * 1000);
    segment.set_time(FRAME * 1000);
    segment.set_base(FRAME * 4);
    blur.harness.push_event(gst::event::Segment::new(&segment));
    // Frames up to this running time are late.
    let late = gst::event::Qos::new(gst::QOSType::Underflow, 1.0, (FRAME * 5).nseconds() as i64, gst::ClockTime::ZERO);
    blur.harness.push_upstream_event(late);
    for frame in 0..4 {
        push_at(&mut blur, buffer(&info, &noise(&info, 1)), 1000 + frame);
    }
    blur.harness.push_event(gst::event::Eos::new());
    let left = std::iter::from_fn(|| blur.harness.try_pull());
    let left: Vec<u64> = left.map(|out| out.pts().unwrap() / FRAME).collect();
    assert_eq!(left, [0, 1, 2, 3, 1002, 1003]);
}

/// Waits for what another thread does.
#[track_caller]
fn within_a_second(is_done: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !is_done() {
        assert!(begin.elapsed() < std::time::Duration::from_secs(1), "it does not happen");
        std::thread::yield_now();
    }
}

/// A live stream, of which upstream stalls: every frame leaves when its latency is over, and none before.
#[test]
fn frames_of_a_live_stream_leave_by_the_clock() {
    const LOOK_AHEAD: u64 = 60;
    let info = info(VideoFormat::Gray8, SIZE);
    let upstream = FRAME / 2;
    // Upstream is as late as it says, or a second later.
    for delay in [upstream, upstream + gst::ClockTime::SECOND] {
        let mut blur = covering(&format!("look-ahead={LOOK_AHEAD}"), true, &info);
        blur.harness.use_testclock();
        let clock = blur.harness.testclock().unwrap();
        blur.harness.set_upstream_latency(upstream);
        blur.element.set_state(gst::State::Paused).unwrap();
        blur.element.set_state(gst::State::Playing).unwrap();
        assert_eq!(blur.harness.query_latency(), Some(upstream + FRAME * LOOK_AHEAD));
        let base = blur.element.base_time().unwrap();
        let left: Arc<Mutex<Vec<gst::ClockTime>>> = Arc::default();
        let (times, running) = (Arc::clone(&left), clock.clone());
        blur.element.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            times.lock().unwrap().push(running.time());
            gst::PadProbeReturn::Ok
        });
        let frames = 100;
        for frame in 0..frames {
            clock.set_time(base + FRAME * frame + delay);
            push_at(&mut blur, buffer(&info, &noise(&info, 1)), frame);
        }
        let before = left.lock().unwrap().len() as u64;
        assert_eq!(before, frames - LOOK_AHEAD, "those that later frames followed");
        while (left.lock().unwrap().len() as u64) < frames {
            let seen = left.lock().unwrap().len();
            let id = clock.wait_for_next_pending_id();
            clock.set_time(id.time().max(clock.time()));
            clock.process_next_clock_id();
            within_a_second(|| left.lock().unwrap().len() > seen || clock.peek_next_pending_id().is_some());
        }
        for (frame, time) in (0..frames).zip(left.lock().unwrap().iter()) {
            let due = base + FRAME * (frame + LOOK_AHEAD) + delay;
            let late = if frame < before { gst::ClockTime::ZERO } else { gst::ClockTime::from_mseconds(10) };
            assert_eq!(*time, due + late, "frame {frame}");
        }
        // It goes on.
        clock.set_time(base + FRAME * 1000);
        (0..LOOK_AHEAD + 1).for_each(|frame| push_at(&mut blur, buffer(&info, &noise(&info, 1)), 1000 + frame));
        assert_eq!(left.lock().unwrap().len() as u64, frames + 1);
    }
}

/// Neither a stream that is not live, nor one that is paused, nor one whose latency is not known.
#[test]
fn the_clock_releases_only_frames_of_a_live_stream_that_plays() {
    crate::common::video::init();
    let known = info(VideoFormat::Gray8, SIZE);
    let unknown = VideoInfo::builder(VideoFormat::Gray8, SIZE[0], SIZE[1]).build().unwrap();
    for case in ["not live", "paused", "unknown", "flushed", "live"] {
        let info = if case == "unknown" { &unknown } else { &known };
        let mut blur = covering("look-ahead=3", true, info);
        blur.harness.use_testclock();
        let clock = blur.harness.testclock().unwrap();
        blur.element.set_state(gst::State::Paused).unwrap();
        blur.element.set_state(gst::State::Playing).unwrap();
        if case != "not live" {
            blur.harness.set_upstream_latency(FRAME);
            blur.harness.query_latency();
        }
        let frame = || {
            let mut frame = buffer(info, &noise(info, 1));
            frame.make_mut().set_pts((case != "unknown").then_some(gst::ClockTime::ZERO));
            frame
        };
        blur.harness.push(frame()).unwrap();
        match case {
            "paused" => _ = blur.element.set_state(gst::State::Paused).unwrap(),
            "flushed" => {
                blur.harness.push_event(gst::event::FlushStart::new());
                blur.harness.push_event(gst::event::FlushStop::new(true));
            }
            _ => (),
        }
        let is_released = case == "live";
        if is_released {
            assert_eq!(
                clock.wait_for_next_pending_id().time(),
                blur.element.base_time().unwrap() + FRAME * 4 + gst::ClockTime::from_mseconds(10)
            );
            assert!(blur.harness.crank_single_clock_wait().is_ok());
            within_a_second(|| blur.harness.buffers_received() > 0);
        } else {
            clock.set_time(clock.time() + gst::ClockTime::from_seconds(60));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(blur.harness.buffers_received(), u32::from(is_released), "{case}");
        if case == "paused" {
            blur.element.set_state(gst::State::Playing).unwrap();
            within_a_second(|| {
                clock.process_next_clock_id();
                blur.harness.buffers_received() > 0
            });
        }
        // Stopping ends the thread, whatever it waits for.
        blur.element.set_state(gst::State::Null).unwrap();
    }
}

/// Nothing is lost or uncovered of the frames that wait when the element begins to pass frames on, of which others hold the memory.
#[test]
fn frames_that_wait_are_covered_before_passthrough() {
    let info = info(VideoFormat::Gray8, SIZE);
    let picture = noise(&info, 3);
    let expected = blurred(&picture, 3.0);
    let mut blur = covering("look-ahead=3 sigma=3 expand=0 hold-time=0 on-missing=pass", true, &info);
    let mut held = Vec::new();
    for frame in 0..5 {
        if frame == 3 {
            blur.element.set_property_from_str("region-mode", "frame");
            blur.element.set_property("sigma", 0.0);
        }
        let input = buffer(&info, &picture);
        let input = if frame == 1 { with_roi(input, "face", (20, 20, 8, 8)) } else { input };
        held.push(input.clone());
        blur.try_push(input).unwrap();
    }
    assert_eq!(blur.messages(gst::MessageType::Error), [""; 0]);
    for frame in 0..5 {
        let out = blur.harness.try_pull().expect("a frame is lost");
        assert_eq!(out.pts(), Some(FRAME * frame));
        let rects = match frame {
            // Anticipated, and found.
            0 => vec![rect(19, 19, 10, 10)],
            1 => vec![rect(20, 20, 8, 8)],
            _ => Vec::new(),
        };
        check(&info, &out, &picture, &expected, &rects, false);
    }
}

/// The times of a gap behind a segment that waits are of that segment.
#[test]
fn a_gap_of_another_segment_counts_as_a_frame() {
    let info = info(VideoFormat::Gray8, SIZE);
    let mut blur = covering("look-ahead=3", true, &info);
    let out = record(&blur);
    push_at(&mut blur, buffer(&info, &noise(&info, 1)), 0);
    let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
    segment.set_start(gst::ClockTime::from_seconds(1000));
    segment.set_base(FRAME);
    blur.harness.push_event(gst::event::Segment::new(&segment));
    let gap = || gst::event::Gap::builder(gst::ClockTime::from_seconds(1000)).duration(FRAME).build();
    (0..2).for_each(|_| _ = blur.harness.push_event(gap()));
    assert_eq!(take(&out), []);
    blur.harness.push_event(gap());
    assert_eq!(take(&out), [vec![Out::Frame(0), event("segment")], vec![event("gap"); 3]].concat());
}
