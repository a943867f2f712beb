// SPDX-License-Identifier: MPL-2.0
//! `look-ahead`: what frames that wait are covered by, what leaves in which order, and whose memory waits.

use std::sync::Arc;

use gst::prelude::*;
use gst_video::VideoFormat;

use crate::common::covered::{info, with_roi};
use crate::common::stream::{SIZE, Stream, is_like, ms};
use crate::common::video::{FRAME, init};

const FACE: (u32, u32, u32, u32) = (20, 20, 8, 8);
const ZONE: &str = "zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5]>";

#[test]
fn frames_and_events_leave_in_the_order_in_which_they_entered() {
    Stream::gray("look-ahead=3").plays(&[
        ("frame*3", ""),
        ("mark-2 tag gap@3+0 frame", "0"),
        // Events follow their frame at once.
        ("mark-3 frame*2", "1-2 mark-2 tag gap"),
        ("frame", "3 mark-3"),
        // What begins behind a frame stays there, too.
        ("stream-start segment", ""),
        ("frame*4", "4-6 stream-start segment 7"),
        // Nothing that waits would be right after these.
        ("mark-10 segment-done", "8-10 mark-10 segment-done"),
        ("frame*3", ""),
        ("mark-13 eos", "11-13 mark-13 eos"),
    ]);
    // Caps and queries of upstream.
    Stream::gray("look-ahead=5").plays(&[
        ("frame*4", ""),
        ("64x96", "0-3 caps segment"),
        ("frame*2", ""),
        ("drain", "4-5"),
        // A jump back in time.
        ("frame@100 frame discont@6", "100-101"),
        ("frame", ""),
        // The whole picture is blurred at once.
        ("region-mode=frame frame", "6! 7-8"),
    ]);
}

/// A recording of a screen has no frames while nothing changes. A frame is shown up to the next one, whatever its duration says.
#[test]
fn a_zone_counts_in_the_frame_that_is_shown_at_its_time() {
    for (time, left) in [
        ("start=2.0,end=3.0", "0:open 1:25x31+0+0 100:open eos"),
        ("start=4.0", "0:open 1:open 100:25x31+0+0 eos"),
        ("end=0.04", "0:25x31+0+0 1:open 100:open eos"),
    ] {
        let zone = format!("look-ahead=1 zones=<[zone,x=0.0,y=0.0,width=0.25,height=0.5,{time}]>");
        Stream::gray(&zone).plays(&[("frame@0 frame@1 frame@100 eos", left)]);
    }
}

/// The cover picture of a file may show what is covered.
#[test]
fn pictures_are_removed_from_tags() {
    init();
    let sample = gst::Sample::builder().buffer(&gst::Buffer::from_slice([1; 9])).build();
    for (properties, is_kept) in [("", false), ("region-mode=frame sigma=3", true)] {
        let mut stream = Stream::gray(properties);
        let mut tags = gst::TagList::new();
        let list = tags.make_mut();
        list.add::<gst::tags::Title>(&"a title", gst::TagMergeMode::Append);
        list.add::<gst::tags::Image>(&sample, gst::TagMergeMode::Append);
        assert!(stream.harness.push_event(gst::event::Tag::new(tags)));
        stream.enter("frame");
        let left = stream.element.static_pad("src").unwrap().sticky_event::<gst::event::Tag>(0).expect("tags");
        assert_eq!(left.tag().get::<gst::tags::Title>().unwrap().get(), "a title");
        assert_eq!(left.tag().get::<gst::tags::Image>().is_some(), is_kept, "{properties}");
    }
}

#[test]
fn a_flush_drops_frames_and_keeps_sticky_events() {
    let mut stream = Stream::gray("look-ahead=5");
    stream.plays(&[("frame*4 tag mark-dropped flush", "flush-start flush-stop")]);
    let tag = stream.element.static_pad("src").unwrap().sticky_event::<gst::event::Tag>(0).expect("a tag");
    assert_eq!(tag.tag().get::<gst::tags::Title>().unwrap().get(), "a title");
    stream.plays(&[("segment frame*6", "segment tag 4")]);
}

#[test]
fn the_latency_is_that_of_the_frames_that_wait() {
    let mut stream = Stream::gray("look-ahead=2 region-mode=frame sigma=1");
    stream.harness.set_upstream_latency(ms(7));
    assert_eq!(stream.harness.query_latency(), Some(ms(7)));
    stream.enter("frame").messages(gst::MessageType::Latency);
    stream.enter("region-mode=inside frame");
    assert_eq!(stream.messages(gst::MessageType::Latency).len(), 1);
    assert_eq!(stream.harness.query_latency(), Some(ms(7) + FRAME * 2));
}

/// Without a frame rate in the caps it follows from the times of frames, else a warning says that it is not known.
#[test]
fn the_latency_without_a_frame_rate_follows_from_times() {
    let gray = |properties| Stream::without_rate(VideoFormat::Gray8, properties);
    // In milliseconds, after each word.
    let now = |stream: &Stream| stream.harness.query_latency().unwrap().nseconds() as f64 / 1e6;
    let latencies = |stream: &mut Stream, words: &str| {
        words.split_whitespace().map(|word| now(stream.enter(word))).collect::<Vec<_>>()
    };
    let mut stream = gray("look-ahead=3");
    let found = latencies(&mut stream, "frame@0 frame@1");
    assert!(found[0] == 0.0 && found[1] >= 120.0, "from the first interval on: {found:?}");
    stream.messages(gst::MessageType::Latency);
    let slower = "frame@2 frame@3.05 frame@4 frame@5.1 frame@6.1 frame@7.1 frame@8.1
                  frame@10.6 frame@13.1 frame@15.6 frame@18.1 frame@20.6 frame@23.1 frame@25.6";
    let found = latencies(&mut stream, slower);
    assert!(found.iter().all(|latency| *latency >= 120.0), "{found:?}");
    // As long as frames wait when they come more slowly for good.
    assert!((300.0..=338.0).contains(&found[13]), "{found:?}");
    assert_eq!(stream.messages(gst::MessageType::Latency).len(), 1, "it changes seldom");
    // A pause at the start, one later, a jump ahead, and a flush do not stay in it.
    let words = "frame@0 frame@25 frame@26 frame@27 frame@28 frame@100 frame@101 frame@102 frame@103 frame@104
                 discont@90000 frame@90001 flush segment frame@125 frame@125.25 frame@125.5";
    let found = latencies(&mut gray("look-ahead=3"), words);
    assert!((120.0..200.0).contains(&found[9]) && found[11] < 200.0 && (30.0..60.0).contains(&found[16]), "{found:?}");
    let words = "frame@0 frame@1 frame@2 frame@3 frame@750 frame@751 frame@752";
    let found = latencies(&mut gray("look-ahead=1"), words);
    assert!(found.iter().all(|latency| *latency < 50.0), "{found:?}");
    // By durations, already of the first frame.
    let mut stream = gray("look-ahead=3");
    for time in [None, Some(ms(5000))] {
        let mut frame = stream.frame();
        frame.make_mut().set_pts(time);
        frame.make_mut().set_duration(FRAME);
        stream.push_as_is(frame);
        assert!((120.0..200.0).contains(&now(&stream)));
    }
    stream.warns("");
    for (properties, words, warning) in [
        // Times that are late are no reason to warn.
        ("look-ahead=3", "untimed frame@1*2 frame@2 frame@3", ""),
        ("look-ahead=3", "untimed*5", "…latency that look-ahead adds is not known…"),
        // Of frames that do not wait nothing is asked.
        ("look-ahead=0", "untimed*5", ""),
        ("look-ahead=3 region-mode=frame", "untimed*5", ""),
    ] {
        let mut stream = gray(properties);
        let found = latencies(&mut stream, words);
        assert!(!words.ends_with("*5") || found == [0.0], "{found:?}");
        stream.warns(warning);
    }
}

/// An object that is found in frames 5 and 9 is covered in all frames from 0 to 12.
#[test]
fn an_object_is_covered_before_it_is_found_and_between() {
    let mut stream = Stream::gray("look-ahead=5 sigma=3 expand=0 on-missing=pass post-messages=true");
    // It grows by 9.6 samples a second of 500 ms / (500 ms + time) before the first detection and after the last one.
    stream.plays(&[(
        "frame*5 face frame*3 face frame*3 eos",
        "0-1:12x12+18+18 2-4:10x10+19+19 5-9:8x8+20+20 10-12:10x10+19+19 eos",
    )]);
    let origins =
        [vec!["anticipated"; 5], vec!["found"], vec!["bridged"; 3], vec!["found"], vec!["predicted"; 3]].concat();
    let told = stream.told();
    assert_eq!(told.len(), origins.len());
    for (i, (told, origin)) in told.iter().zip(origins).enumerate() {
        let one = format!("…timestamp={}, …origin={origin}, track=1, label=face, …shape=box; >;", i * 40_000_000);
        assert!(is_like(told, &one) && told.matches("region, ").count() == 1, "{told} is not {one}");
    }
    stream.counts("frames-anticipated=5 frames-bridged=3 frames-predicted=3 frames-lost=0 frames-copied=0");
}

/// Frames in another region-mode are followed too: the object is where it was found in one of them.
#[test]
fn frames_in_another_mode_end_no_hold() {
    for mode in ["frame", "frame sigma=0", "outside"] {
        for (look_ahead, first, second) in [(0, "face", "frame"), (0, "frame", "face"), (2, "frame", "face")] {
            let script = format!("{first} region-mode={mode} {second} region-mode=inside frame eos");
            // Grown by less than a sample, and rounded outwards.
            Stream::gray(&format!("cover=fill expand=0 on-missing=pass look-ahead={look_ahead}"))
                .plays(&[(&script, "0-1 2:10x10+19+19 eos")]);
        }
    }
}

/// `on-missing=auto` covers the frames before the first meta too, if they still wait.
#[test]
fn auto_knows_of_the_metas_of_frames_that_wait() {
    let mut stream = Stream::gray("look-ahead=3 cover=fill post-messages=true");
    let covered = ["nothing", "nothing", "frame", "frame", "frame", "regions"].map(|part| format!("…covered={part},…"));
    stream.enter("frame*5 face frame*3").tells(&covered);
}

/// What waits is upstream's buffer, without a copy.
#[test]
fn ordinary_memory_waits_itself() {
    let mut stream = Stream::new(VideoFormat::Nv12, "look-ahead=15 expand=0 on-missing=pass cover=fill");
    let size = stream.info.size();
    let pool = pool(Some(&stream.info.to_caps().unwrap()), size as u32, 0);
    let address = |buffer: &gst::Buffer| buffer.map_readable().unwrap().as_ptr() as usize;
    let mut addresses = Vec::new();
    for frame in 0..40 {
        let pooled = || pool.acquire_buffer(None).unwrap();
        let input = if frame % 2 == 0 { pooled() } else { gst::Buffer::with_size(size).unwrap() };
        addresses.push(address(&input));
        stream.push(if frame < 30 { with_roi(input, "face", FACE) } else { input });
    }
    let left = stream.enter("eos").outputs();
    assert_eq!(left.iter().map(address).collect::<Vec<_>>(), addresses);
    stream.counts("frames-copied=0 bytes-copied=0");
    pool.set_active(false).unwrap();
}

/// An active pool; it has any number of buffers if `most` is 0.
fn pool(caps: Option<&gst::Caps>, size: u32, most: u32) -> gst::BufferPool {
    init();
    let pool = gst::BufferPool::new();
    let mut config = pool.config();
    config.set_params(caps, size, 0, most);
    pool.set_config(config).unwrap();
    pool.set_active(true).unwrap();
    pool
}

/// A pool that has no buffer left would stall upstream for good.
#[test]
fn buffers_of_a_limited_pool_are_copied_as_they_enter() {
    let info = info(VideoFormat::Nv12, SIZE);
    let pool = pool(Some(&info.to_caps().unwrap()), info.size() as u32, 2);
    for is_sub_buffer in [false, true] {
        let mut stream = Stream::downstream(false, &info, "look-ahead=15 sigma=2 expand=0 on-missing=pass");
        let mut outputs = Vec::new();
        for frame in 0..30_usize {
            let params = gst::BufferPoolAcquireParams::with_flags(gst::BufferPoolAcquireFlags::DONTWAIT);
            let pooled = pool.acquire_buffer(Some(&params)).expect("a buffer has come back");
            let mut copy = gst_video::VideoFrame::from_buffer_writable(pooled, &info).unwrap();
            gst_video::VideoFrame::from_buffer_readable(stream.frame(), &info).unwrap().copy(&mut copy).unwrap();
            let mut input = copy.into_buffer();
            if is_sub_buffer {
                let mut child = input.copy();
                child.make_mut().set_flags(gst::BufferFlags::MARKER);
                gst::meta::ParentBufferMeta::add(child.make_mut(), &input);
                input = child;
            }
            stream.push(with_roi(input, "face", FACE));
            outputs.extend(stream.outputs());
            assert_eq!(outputs.len(), (frame + 1).saturating_sub(15));
        }
        outputs.extend(stream.enter("eos").outputs());
        assert_eq!(outputs.len(), 30);
        for (frame, left) in outputs.iter().enumerate() {
            assert_eq!(left.pts(), Some(FRAME * frame as u64));
            stream.check(left, "8x8+20+20");
            assert_eq!(left.iter_meta::<gst_video::VideoRegionOfInterestMeta>().count(), 1);
            assert_eq!(left.flags().contains(gst::BufferFlags::MARKER), is_sub_buffer);
        }
        // The copy is covered itself.
        stream.counts("frames-copied=30 frames-in-place=30");
    }
    pool.set_active(false).unwrap();
}

/// A frame that cannot be read, also one that is copied as it enters, ends streaming when it leaves, after those before it.
#[test]
fn a_copied_frame_that_fails_takes_none_before_it_along() {
    let pool = pool(None, 16, 2);
    let mut stream = Stream::gray(&format!("look-ahead=5 {ZONE}"));
    stream.enter("frame*2").push(pool.acquire_buffer(None).unwrap());
    // Nothing follows it.
    stream.plays(&[("frame", "")]).fails("").plays(&[("eos", "0-1 eos")]).fails("…");
    pool.set_active(false).unwrap();
    // Upstream has it back all the same.
    Stream::gray(&format!("look-ahead=5 {ZONE}")).plays(&[("frame short all-buffers", "0")]).fails("…");
}

/// What upstream may need while frames wait.
#[test]
fn upstream_is_asked_for_as_many_buffers() {
    for (properties, expected) in
        [("look-ahead=15", Some((15, 0))), ("look-ahead=0", None), ("look-ahead=15 region-mode=frame sigma=1", None)]
    {
        let mut stream = Stream::gray(properties);
        stream.enter("frame");
        let mut query = gst::query::Allocation::new(Some(&stream.info.to_caps().unwrap()), true);
        assert!(stream.query(&mut query));
        assert_eq!(query.allocation_pools().next().map(|(_, _, min, max)| (min, max)), expected, "{properties}");
    }
}

/// A gap is time in which no frame comes: frames leave when it is as long as `look-ahead`, and the gaps after them. In a file they wait
/// for later frames, because the decoder may still hold frames from before the gap.
#[test]
fn a_gap_counts_as_the_frames_that_it_lacks() {
    let mut recorded = Stream::gray("look-ahead=3");
    recorded.harness.set_live(false);
    recorded.plays(&[("frame*3 gap@3+100", ""), ("frame@3", "0"), ("frame@103", "1")]);
    Stream::gray("look-ahead=3").plays(&[
        ("frame*3", ""),
        // Lost packets: several gaps in the time of one frame.
        ("gap@3+0.25 gap@3.25+0.25 gap@3.5+0.25", ""),
        ("gap@3.75+0.25", "0"),
        ("frame@4", "1"),
        // The second of two gaps begins where the first one ends.
        ("gap@5", "2 gap*4"),
        ("gap@6", ""),
        ("gap@7", "4 gap*3"),
        // Nothing waits.
        ("gap@8", "gap"),
    ]);
    // In reverse the gap after a frame is before it in time.
    let mut stream = Stream::gray("look-ahead=3");
    let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
    segment.set_rate(-1.0);
    segment.set_stop(gst::ClockTime::SECOND);
    stream.send(gst::event::Segment::new(&segment));
    stream.leaves("segment").plays(&[("frame@10 frame@9 gap@7+2", "10"), ("gap@6", "9 gap*2")]);
    // The times of a gap behind a segment that waits are of that segment: it counts as a frame.
    Stream::gray("look-ahead=3").plays(&[("frame segment@25000+1 gap@25000*2", ""), ("gap@25000", "0 segment gap*3")]);
}

/// A live stream that ends in gaps, of which the time is not known, or does not pass.
#[test]
fn gaps_without_a_time_release_frames_too() {
    Stream::without_rate(VideoFormat::Gray8, "look-ahead=3").plays(&[
        ("frame*2", ""),
        ("gap@2", ""),
        ("gap@3", "0"),
        ("gap@4", "1 gap*3"),
    ]);
    let mut stream = Stream::gray("look-ahead=100");
    stream.enter("frame");
    (0..10_000).for_each(|_| stream.send(gst::event::Gap::builder(FRAME).build()));
    // The queue is bounded.
    stream.leaves("0 gap*10000");
}

/// The base class has the flag on the next buffer that it pushes, whichever that is.
#[test]
fn a_discontinuity_stays_where_it_was() {
    let script = "discont frame*4 discont frame discont*2 frame*3 eos";
    for properties in ["look-ahead=3", "look-ahead=0", &format!("look-ahead=3 {ZONE}")] {
        Stream::gray(properties).plays(&[(script, "0! 1-4 5! 6 7! 8! 9-11 eos")]);
    }
    // Also if a drain has pushed it, which the base class does not see. Upstream has the flow error of what follows.
    let mut stream = Stream::gray("look-ahead=3");
    stream.plays(&[("discont frame discont drain", "0! 1 2!"), ("frame*5 drain", "3-7"), ("frame*3", "")]);
    let (pad, frame) = (stream.element.static_pad("src").unwrap(), stream.frame());
    pad.unlink(&pad.peer().unwrap()).unwrap();
    assert_eq!(stream.harness.push(frame), Err(gst::FlowError::NotLinked));
    // A dropped frame leaves one, also one that is late.
    Stream::gray("look-ahead=2 on-missing=drop region-sources=roi")
        .plays(&[("face*2 frame face*3 eos", "0-1 3! 4-5 eos")])
        .counts("frames-dropped=1");
    Stream::gray("look-ahead=3").plays(&[("frame*6 late@6 frame*6 eos", "0-2 7! 8-11 eos")]);
    // Times are those of the segment that a frame entered with.
    Stream::gray("look-ahead=3")
        .plays(&[("frame*4 segment@1000+4 late@5 frame@1000 frame*3 eos", "0 segment 1002! 1003 eos")]);
}

/// Upstream has the error, and may push on all the same. Events leave where the frame would have. The cover grows in the time of
/// frames that are discarded, too.
#[test]
fn a_frame_that_fails_ends_no_hold() {
    for (look_ahead, script, leaves, side) in
        [(0, "face short", "0 error", 10), (2, "face short mark-1 frame*2", "0 mark-1 error", 12)]
    {
        let mut stream =
            Stream::gray(&format!("look-ahead={look_ahead} cover=fill expand=0 on-missing=pass post-messages=true"));
        stream.plays(&[(script, leaves)]).fails("…").told();
        stream.enter("frame eos");
        let timestamp = if look_ahead == 0 { 80 } else { 160 };
        let region = format!("region, …width={side}, height={side}, origin=predicted,…");
        stream.tells(&[&format!("…timestamp={timestamp}000000,…regions=< {region} >;")]);
    }
}

/// All frames before a first detection are covered, whatever comes between two frames that leaves them as they are: nothing, the
/// same caps, events, queries for buffers, and a window that is resized.
#[test]
fn frames_wait_through_what_does_not_change_them() {
    for between in ["", "caps", "segment", "stream-start", "allocation", "all-buffers", "reconfigure"] {
        for found in [16, 100] {
            let mut stream = Stream::gray("look-ahead=15 sigma=3 expand=0 on-missing=pass");
            for frame in 0..20 {
                stream.enter(if frame % 4 == 3 { between } else { "" });
                stream.enter(if (15..found).contains(&frame) { "face" } else { "frame" });
            }
            stream.enter("eos").counts("frames-anticipated=15");
        }
    }
}

/// Decoders ask for their buffers by an allocation query, and wait for them.
#[test]
fn an_allocation_query_gives_buffers_back() {
    for (query, copies) in [("allocation", 0), ("all-buffers", 4)] {
        let mut stream = Stream::gray(&format!("look-ahead=5 cover=fill {ZONE}"));
        stream.must_pad = false;
        // Each memory that waits has a reference.
        let bytes: Arc<[u8]> = stream.frame().map_readable().unwrap().as_slice().into();
        for _ in 0..4 {
            let mut input = stream.frame();
            input.make_mut().replace_all_memory(gst::Memory::from_slice(Arc::clone(&bytes)));
            stream.push(input);
        }
        let held = || Arc::strong_count(&bytes) as u64 - 1;
        assert_eq!(held(), 4);
        // They wait. Twice in a row copies nothing again.
        stream.plays(&[(query, "")]);
        assert_eq!(held(), 4 - copies, "{query}");
        stream.plays(&[(query, "")]).counts(&format!("frames-copied={copies}"));
        stream.plays(&[("eos", "0-3:49x31+0+0 eos")]);
    }
}
