// SPDX-License-Identifier: MPL-2.0
//! Time: what the element makes of the frame rate that caps state and of the times at which frames come; when frames of a live stream
//! leave; and which are dropped because they are late (QoS). The clock is the test's own, so that nothing depends on how fast it runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo};

use crate::common::covered::with_roi;
use crate::common::stream::{SIZE, Stream, is_like, ms};
use crate::common::video::{self, FRAME};

/// How much later than its latency says the timer decides a frame.
const JITTER: gst::ClockTime = gst::ClockTime::from_mseconds(2);
const FACE: (u32, u32, u32, u32) = (20, 20, 8, 8);

/// The time of a frame of a stream with this real rate.
fn at(frame: u64, rate: u64) -> gst::ClockTime {
    gst::ClockTime::from_nseconds(frame * 1_000_000_000 / rate)
}

/// Frames of this rate in the caps.
fn rated(rate: i32, properties: &str) -> Stream {
    video::init();
    let info = VideoInfo::builder(VideoFormat::Gray8, SIZE[0], SIZE[1]).fps((rate, 1)).build().unwrap();
    Stream::of(&info, &format!("look-ahead=15 expand=0 on-missing=pass post-messages=true {properties}"))
}

/// A live stream on a clock of its own. The application asks for the latency when the element says that it has changed, unless it
/// ignores that.
struct Live {
    stream: Stream,
    clock: gst_check::TestClock,
    base: gst::ClockTime,
    upstream: gst::ClockTime,
    ignores_latency: bool,
    /// Frames that have entered.
    frames: u64,
    /// The latencies that the element has reported, and the times at which frames left.
    latencies: Vec<gst::ClockTime>,
    left: Vec<gst::ClockTime>,
}

impl Live {
    fn new(mut stream: Stream, upstream: gst::ClockTime) -> Self {
        let (clock, base) = play(&mut stream);
        stream.harness.set_upstream_latency(upstream);
        let latencies = vec![stream.harness.query_latency().unwrap() - upstream];
        Self { stream, clock, base, upstream, ignores_latency: false, frames: 0, latencies, left: Vec::new() }
    }

    /// Lets frames that are due leave until this running time.
    fn advance(&mut self, to: gst::ClockTime) {
        loop {
            let has_left = self.stream.outputs().len() as u64;
            self.left.extend((0..has_left).map(|_| self.clock.time() - self.base));
            let inside = || self.frames - self.left.len() as u64 - self.dropped();
            // As long as the latency is not known, frames wait for later ones alone.
            if inside() == 0 || self.latencies.last() == Some(&gst::ClockTime::ZERO) {
                break;
            }
            let harness = &self.stream.harness;
            wait_until(|| harness.buffers_in_queue() > 0 || self.clock.peek_next_pending_id().is_some());
            match self.clock.peek_next_pending_id() {
                Some(id) if id.time() <= self.base + to => {
                    self.clock.set_time(id.time().max(self.clock.time()));
                    self.clock.process_next_clock_id();
                    let is_done = || inside() == harness.buffers_in_queue() as u64;
                    wait_until(|| is_done() || self.clock.peek_next_pending_id().is_some());
                }
                Some(_) if harness.buffers_in_queue() == 0 => break,
                _ => (),
            }
        }
        self.clock.set_time((self.base + to).max(self.clock.time()));
    }

    fn dropped(&self) -> u64 {
        self.stream.element.property::<gst::Structure>("stats").get("frames-late").unwrap()
    }

    /// Pushes a frame with this timestamp, which comes at this running time.
    fn frame(&mut self, timestamp: gst::ClockTime, comes: gst::ClockTime, is_found: bool) {
        self.advance(comes);
        let mut frame = self.stream.frame();
        let rate = self.stream.info.fps().numer() as u64;
        frame.make_mut().set_pts(timestamp);
        frame.make_mut().set_duration((rate > 0).then(|| at(1, rate.max(1))));
        self.frames += 1;
        self.stream.push_as_is(if is_found { with_roi(frame, "face", FACE) } else { frame });
        if !self.stream.posted(gst::MessageType::Latency).is_empty() && !self.ignores_latency {
            self.latencies.push(self.stream.harness.query_latency().unwrap() - self.upstream);
        }
    }

    fn shortened(&self) -> u64 {
        self.stream.element.property::<gst::Structure>("stats").get("frames-shortened").unwrap()
    }
}

/// The first frame of which the message says that something is covered.
fn first_covered(stream: &mut Stream) -> Option<usize> {
    stream.told().iter().position(|told| is_like(told, "…covered=regions,…"))
}

/// Whatever the caps state: once the rate has been measured, an object is covered as many frames before it is found as `look-ahead` says.
#[test]
fn what_caps_state_does_not_shorten_look_ahead() {
    for rate in [30, 60, 120, 1000, 90000, 0] {
        let mut live = Live::new(rated(rate, ""), gst::ClockTime::ZERO);
        for frame in 0..100 {
            live.frame(at(frame, 30), at(frame, 30), frame >= 60);
        }
        live.stream.enter("eos");
        assert_eq!(first_covered(&mut live.stream), Some(45), "{rate}");
        let latency = *live.latencies.last().unwrap();
        assert!(latency.nseconds().abs_diff(at(15, 30).nseconds()) < 100, "{rate}: {:?}", live.latencies);
        // The latency of 30/1 is that of the caps, and the others are measured once.
        assert!(live.latencies.len() <= 3 && (rate != 30 || live.shortened() == 0), "{rate}: {:?}", live.latencies);
        // What left before the rate was known, left when it was promised.
        for (frame, left) in live.left.iter().enumerate() {
            assert!(*left <= at(frame as u64, 30) + latency + JITTER, "{rate}: frame {frame} left at {left}");
        }
    }
}

/// A camera that gives fewer frames than it says. Each frame leaves at the time that the latency says which was reported when it
/// entered, the first ones after too few later frames, which are counted.
#[test]
fn a_slow_camera_is_measured() {
    for (real, raised) in [(15, true), (29, false), (25, true)] {
        let mut live = Live::new(rated(30, ""), ms(5));
        for frame in 0..60 {
            live.frame(at(frame, real), at(frame, real) + ms(5), false);
        }
        live.advance(at(200, real));
        assert_eq!(live.left.len(), 60);
        let expected = if raised { at(15, real) } else { at(15, 30) };
        let latency = *live.latencies.last().unwrap();
        assert!(latency.nseconds().abs_diff(expected.nseconds()) < 100, "{real}: {:?}", live.latencies);
        assert_eq!(live.latencies.len(), 1 + 1 + usize::from(raised), "{real}: {:?}", live.latencies);
        for (frame, left) in live.left.iter().enumerate() {
            let promised = at(frame as u64, real) + ms(5) + latency.max(at(15, 30));
            assert!(*left <= promised + JITTER, "{real}: frame {frame} left at {left}");
        }
        assert!(live.shortened() > 0, "the first frames");
    }
}

/// An application that ignores the message: frames leave when the latency is over that it knows of.
#[test]
fn frames_leave_when_the_application_expects_them() {
    let mut live = Live::new(rated(30, ""), gst::ClockTime::ZERO);
    live.frame(at(0, 15), at(0, 15), false);
    live.stream.harness.query_latency();
    live.ignores_latency = true;
    for frame in 1..100 {
        live.frame(at(frame, 15), at(frame, 15), false);
    }
    live.advance(at(100, 15));
    // The application has a second to ask again.
    for (frame, left) in live.left.iter().enumerate().skip(40) {
        assert_eq!(
            *left,
            at(frame as u64, 15) + at(15, 30) + JITTER + gst::ClockTime::from_nseconds(10),
            "frame {frame}"
        );
    }
    assert!(live.shortened() >= 40);
    let warnings = live.stream.messages(gst::MessageType::Warning);
    let pattern = "the latency is 1000 ms, but the application has not asked for it since it was 500 ms: frames leave after 500 ms, …";
    assert_eq!(warnings.iter().filter(|warning| is_like(warning, pattern)).count(), 1, "{warnings:?}");
}

/// An application that asks once, before there is a latency, as pipelines do that start to play: frames wait all the same, and what is
/// found later is covered.
#[test]
fn a_query_before_the_latency_is_known_promises_nothing() {
    let mut live = Live::new(rated(30, "region-mode=frame"), gst::ClockTime::ZERO);
    assert_eq!(live.latencies, [gst::ClockTime::ZERO]);
    live.ignores_latency = true;
    live.stream.enter("region-mode=inside");
    for frame in 0..100 {
        // Only those wait for the timer that nothing follows.
        live.clock.set_time(live.base + at(frame, 30));
        live.frame(at(frame, 30), at(frame, 30), frame >= 60);
    }
    live.stream.enter("eos");
    assert_eq!(first_covered(&mut live.stream), Some(45));
    assert_eq!(live.shortened(), 0);
}

/// The median of the latest intervals counts, so that neither a pause nor rates that vary change the latency with every frame, and
/// growth of less than an eighth and shrinking do not change it at all.
#[test]
fn a_variable_rate_changes_the_latency_seldom() {
    let mut live = Live::new(rated(30, ""), gst::ClockTime::ZERO);
    let mut time = gst::ClockTime::ZERO;
    // Fast and slow in turn, a pause of 4 s now and then.
    for frame in 0..600_u64 {
        time += ms(match frame % 100 {
            50 => 4000,
            0..40 => 33,
            _ => 66,
        });
        live.frame(time, time, false);
    }
    assert_eq!(live.latencies.len(), 3, "{:?}", live.latencies);
    assert_eq!(*live.latencies.last().unwrap(), ms(15 * 66));
    // Other caps and a flush begin anew.
    live.stream.enter("flush segment@0+0 frame@0");
    assert_eq!(live.stream.harness.query_latency(), Some(at(15, 30) + gst::ClockTime::from_nseconds(10)));
}

/// Not more than one raise in a second.
#[test]
fn the_latency_is_raised_once_a_second_at_most() {
    let mut live = Live::new(rated(0, ""), gst::ClockTime::ZERO);
    let mut raised = Vec::new();
    let mut time = gst::ClockTime::ZERO;
    // Each frame comes later than the one before it.
    for frame in 0..150 {
        time += ms(10 + frame);
        live.frame(time, time, false);
        if live.latencies.len() > raised.len() + 1 {
            raised.push(time);
        }
    }
    assert!(raised.len() > 5, "{raised:?}");
    // The first one is no raise: before, nothing is known.
    assert!(raised[1..].windows(2).all(|two| two[1] - two[0] >= gst::ClockTime::SECOND), "{raised:?}");
}

/// At another rate, in reverse, and of key frames alone, what is measured is the time of timestamps.
#[test]
fn the_rate_of_a_segment_scales_the_latency() {
    for (rate, step, latency) in [
        (0.5, 33_333_334, 1_000_000_020),
        (2.0, 33_333_334, 250_000_005),
        (-1.0, 33_333_334, 500_000_010),
        // Key frames, one a second, and each frame twice.
        (8.0, 1_000_000_000, 1_875_000_000),
        (-8.0, 1_000_000_000, 1_875_000_000),
    ] {
        let mut stream = rated(30, "");
        let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
        segment.set_rate(rate);
        segment.set_stop(gst::ClockTime::from_seconds(1000));
        stream.send(gst::event::Segment::new(&segment));
        for frame in 0..40 {
            let mut buffer = stream.frame();
            let time = gst::ClockTime::from_nseconds(frame * step);
            let time = if rate < 0.0 { gst::ClockTime::from_seconds(900) - time } else { time };
            buffer.make_mut().set_pts(time);
            buffer.make_mut().set_duration(at(1, 30));
            stream.push_as_is(buffer.copy());
            stream.push_as_is(buffer);
        }
        assert_eq!(stream.harness.query_latency().unwrap().nseconds(), latency, "{rate}");
    }
}

/// Each buffer of interlace-mode=alternate has one of two fields.
#[test]
fn a_field_takes_half_of_the_time_of_a_frame() {
    let mut stream = Stream::of_field(VideoFormat::Gray8, "look-ahead=10 expand=0 on-missing=pass post-messages=true");
    stream.enter("frame");
    assert_eq!(stream.harness.query_latency(), Some(ms(200)));
    // Without timestamps. Found for long enough, it is held for 3 s.
    let mut stream = Stream::of_field(VideoFormat::Gray8, "expand=0 on-missing=pass post-messages=true");
    for frame in 0..400 {
        let field = stream.frame();
        stream.push_as_is(if frame < 100 { with_roi(field, "face", FACE) } else { field });
    }
    let covered = stream.told().iter().filter(|told| is_like(told, "…covered=regions,…")).count();
    assert_eq!(covered, 100 + 149, "2.98 s after the last one");
}

/// Streams of which the caps and the durations of buffers say that a frame takes next to no time. One is not live.
#[test]
fn frames_are_shown_until_the_next_one() {
    for rate in [30, 1000, 90000] {
        let push = |stream: &mut Stream, frames: std::ops::Range<u64>, found: u64| {
            for frame in frames {
                let mut buffer = stream.frame();
                buffer.make_mut().set_pts(at(frame, 30));
                buffer.make_mut().set_duration(at(1, rate));
                stream.push_as_is(if frame >= found { with_roi(buffer, "face", FACE) } else { buffer });
            }
        };
        // A gap is no frame here: frame 44 leaves when 15 frames have come, the last of which is frame 60.
        let mut stream = rated(rate as i32, "");
        stream.harness.set_live(false);
        push(&mut stream, 0..50, 60);
        stream.send(gst::event::Gap::builder(at(50, 30)).duration(at(1, 30)).build());
        push(&mut stream, 51..80, 60);
        stream.enter("eos");
        assert_eq!(first_covered(&mut stream), Some(44), "{rate}");

        // A zone that begins and ends within the time of a frame, one that begins within it, and the warning of what is not covered.
        for (zones, frames) in [("start=2.005,end=2.025", vec![60]), ("start=1.02,end=1.04", vec![30, 31])] {
            let zone = format!("zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5,{zones}]> region-sources=zones");
            let mut stream = rated(rate as i32, &zone);
            push(&mut stream, 0..90, 100);
            stream.enter("eos");
            let told = stream.told();
            let covered = (0..told.len()).filter(|frame| is_like(&told[*frame], "…covered=regions,…"));
            assert_eq!(covered.collect::<Vec<_>>(), frames, "{rate} {zones}");
        }
        let mut stream = rated(rate as i32, "look-ahead=0");
        let mut warned_at = None;
        for frame in 0..90 {
            push(&mut stream, frame..frame + 1, 100);
            if !stream.messages(gst::MessageType::Warning).is_empty() {
                warned_at.get_or_insert(frame);
            }
        }
        assert_eq!(warned_at, Some(60), "{rate}: at 2.0 s");
    }
}

/// Recordings of screens, with one frame in a second.
#[test]
fn a_screen_recording_is_measured() {
    let mut stream = rated(30, "region-sources=zones zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5,start=20.5]>");
    for frame in 0..40 {
        let mut buffer = stream.frame();
        buffer.make_mut().set_pts(at(frame, 1));
        buffer.make_mut().set_duration(at(1, 30));
        stream.push_as_is(buffer);
    }
    stream.enter("eos");
    assert_eq!(first_covered(&mut stream), Some(20));
}

/// The warnings of an upstream that is later than it says.
fn late_warnings(stream: &mut Stream) -> Vec<String> {
    let warnings = stream.messages(gst::MessageType::Warning);
    warnings.into_iter().filter(|warning| warning.starts_with("frames come")).collect()
}

/// A detector that is slow and does not say so: its time is added to the latency, with one warning.
#[test]
fn upstream_that_is_later_than_it_says_raises_the_latency() {
    for (late, is_raised) in [(ms(8), false), (ms(80), true)] {
        let mut live = Live::new(rated(30, ""), ms(5));
        // It becomes slow in the middle.
        for frame in 0..200 {
            let late = if frame >= 40 { late } else { gst::ClockTime::ZERO };
            live.frame(at(frame, 30), at(frame, 30) + ms(5) + late, frame >= 160);
        }
        live.advance(at(300, 30));
        let extra = live.latencies.last().unwrap().nseconds() - at(15, 30).nseconds();
        assert_eq!(extra >= ms(80).nseconds(), is_raised, "{:?}", live.latencies);
        let warnings = late_warnings(&mut live.stream);
        assert_eq!(warnings.len(), usize::from(is_raised));
        let pattern = "frames come up to 80 ms later than the latency of 5 ms that upstream reports: look-ahead adds …";
        assert!(warnings.iter().all(|warning| is_like(warning, pattern)), "{warnings:?}");
        assert_eq!(first_covered(&mut live.stream), Some(145), "no frame is decided earlier");
        // Those that nothing followed, and those that waited when it became slow.
        assert!((15..=30).contains(&live.shortened()), "{}", live.shortened());
    }
    // Downstream that keeps upstream from pushing is not upstream's.
    let mut live = Live::new(rated(30, ""), ms(5));
    let clock = live.clock.clone();
    live.stream.element.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        clock.set_time(clock.time() + ms(80));
        gst::PadProbeReturn::Ok
    });
    for frame in 0..100 {
        let now = live.clock.time() - live.base;
        live.frame(at(frame, 30), now.max(at(frame, 30) + ms(5)), false);
    }
    assert_eq!(late_warnings(&mut live.stream).len(), 0);
}

/// Sends upstream that frames up to this running time are late.
fn late(stream: &mut Stream, by: gst::ClockTime) {
    stream.harness.push_upstream_event(gst::event::Qos::new(
        gst::QOSType::Underflow,
        1.5,
        by.nseconds() as i64,
        gst::ClockTime::ZERO,
    ));
}

/// What leaves is late, not what enters. The detections of a late frame count, and upstream and the application are told.
#[test]
fn late_frames_are_dropped_when_they_leave() {
    let mut stream = Stream::gray("look-ahead=3 expand=0 on-missing=pass cover=fill");
    stream.enter("face*4").leaves("0");
    late(&mut stream, FRAME * 2);
    let upstream = std::iter::from_fn(|| stream.harness.try_pull_upstream_event());
    assert_eq!(upstream.filter(|event| event.type_() == gst::EventType::Qos).count(), 1);
    // 1 and 2 are late, and the faces of frames that are dropped hold.
    stream.plays(&[("frame*3 eos", "3! 4-6 eos")]).counts("frames-late=2 frames-dropped=2 frames=5");
    let messages = stream.posted(gst::MessageType::Qos);
    let told: Vec<_> = messages
        .iter()
        .map(|message| match message.view() {
            gst::MessageView::Qos(qos) => (qos.get().4, qos.values(), qos.stats().1.value()),
            _ => unreachable!(),
        })
        .collect();
    let frame = FRAME.nseconds() as i64;
    assert_eq!(told[0].1, (frame, 1.5, 1_000_000));
    assert_eq!(told[1].1, (0, 1.5, 1_000_000));
    assert_eq!(told.iter().map(|told| told.2).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(told[0].0, Some(FRAME));
}

/// A face that is found in a late frame only is covered before and after it.
#[test]
fn detections_of_late_frames_count() {
    let mut stream = Stream::gray("look-ahead=2 expand=0 on-missing=pass cover=fill");
    late(&mut stream, FRAME * 2);
    stream.plays(&[("frame face frame*2 eos", "3!:10x10+19+19 eos")]).counts("frames-late=3");
}

#[test]
fn what_is_late_can_be_switched_off_and_ends() {
    for (properties, words, leaves) in [
        // In every mode; also frames that pass unchanged.
        ("look-ahead=0", "frame@0 frame*3", "3!"),
        ("region-mode=frame sigma=2", "frame@0 frame*3", "3!"),
        ("region-mode=frame sigma=0", "frame@0 frame*3", "3!"),
        ("look-ahead=0 qos=false", "frame@0 frame*3", "0-3"),
        // Not behind a segment or a flush.
        ("look-ahead=0", "segment@0+0 frame@0 frame*3", "segment 0-3"),
        ("look-ahead=0", "flush segment@0+0 frame@0 frame*3", "flush-start flush-stop segment 0-3"),
        // Frames without a time are not late.
        ("look-ahead=0", "untimed frame@3", "18446744073709551615 3"),
    ] {
        let mut stream = Stream::gray(properties);
        stream.plays(&[("frame@1000", "1000")]);
        late(&mut stream, FRAME * 2);
        stream.plays(&[(words, leaves)]);
    }
    // Starting again, too.
    let mut stream = Stream::gray("look-ahead=0");
    stream.enter("frame@9");
    late(&mut stream, FRAME * 2);
    stream.element.set_state(gst::State::Null).unwrap();
    stream.element.set_state(gst::State::Playing).unwrap();
    stream.enter("stream-start caps segment frame@0").counts("frames=1 frames-late=0");
}

/// Waits for what another thread does. The limit is only reached if a test fails.
#[track_caller]
fn wait_until(is_done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_done() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not happen");
        std::thread::yield_now();
    }
}

/// Plays on a clock that the test sets, which is returned with the time at which the running time is 0.
fn play(stream: &mut Stream) -> (gst_check::TestClock, gst::ClockTime) {
    stream.harness.use_testclock();
    stream.element.set_state(gst::State::Paused).unwrap();
    stream.element.set_state(gst::State::Playing).unwrap();
    (stream.harness.testclock().unwrap(), stream.element.base_time().unwrap())
}

/// A live stream, of which upstream stalls: every frame leaves when its latency is over, and none before.
#[test]
fn frames_of_a_live_stream_leave_by_the_clock() {
    const LOOK_AHEAD: u64 = 60;
    const FRAMES: u64 = 100;
    let upstream = FRAME / 2;
    // Upstream is as late as it says, or a second later. A sink does not ask before it has a frame.
    for (delay, asks) in [(upstream, true), (upstream + gst::ClockTime::SECOND, true), (upstream, false)] {
        let mut stream = Stream::gray(&format!("look-ahead={LOOK_AHEAD}"));
        stream.harness.set_upstream_latency(upstream);
        let (clock, base) = play(&mut stream);
        let ask = |stream: &Stream| asks.then(|| stream.harness.query_latency().unwrap());
        assert_eq!(ask(&stream), asks.then_some(upstream + FRAME * LOOK_AHEAD));
        // The times at which frames leave.
        let mut times = Vec::new();
        for frame in 0..FRAMES {
            clock.set_time(base + FRAME * frame + delay);
            times.extend(stream.enter("frame").outputs().iter().map(|_| clock.time()));
            ask(&stream);
        }
        let before = times.len();
        assert_eq!(before as u64, FRAMES - LOOK_AHEAD, "those that later frames followed");
        while times.len() < FRAMES as usize {
            wait_until(|| clock.peek_next_pending_id().is_some());
            clock.set_time(clock.peek_next_pending_id().unwrap().time().max(clock.time()));
            clock.process_next_clock_id();
            let is_out = || stream.harness.buffers_in_queue() > 0;
            wait_until(|| is_out() || clock.peek_next_pending_id().is_some());
            times.extend(stream.outputs().iter().map(|_| clock.time()));
        }
        for (frame, time) in times.into_iter().enumerate() {
            let due = base + FRAME * (frame as u64 + LOOK_AHEAD) + delay;
            assert_eq!(time, due + if frame < before { gst::ClockTime::ZERO } else { JITTER }, "frame {frame}");
        }
        // It goes on after it had nothing to wait for.
        clock.set_time(base + FRAME * 1000);
        stream.enter("frame@1000");
        wait_until(|| clock.peek_next_pending_id().is_some());
        clock.set_time(clock.wait_for_next_pending_id().time());
        clock.process_next_clock_id();
        wait_until(|| stream.harness.buffers_in_queue() == 1);
    }
}

/// Without a frame rate the latency is an estimate. Upstream is a second later than it says.
#[test]
fn frames_of_a_live_stream_without_a_rate_leave_by_the_clock() {
    // The third frame is the first that enters with an estimate. A pause makes it too long, until the next frame enters.
    for (frames, due) in [([0, 1, 2, 3, 4].as_slice(), ms(1202)), (&[0, 25, 26], ms(2122))] {
        let mut stream = Stream::without_rate(VideoFormat::Gray8, "look-ahead=3");
        let (clock, base) = play(&mut stream);
        stream.harness.set_upstream_latency(FRAME);
        stream.harness.query_latency();
        for frame in frames {
            clock.set_time(base + FRAME * *frame + gst::ClockTime::SECOND);
            stream.enter(&format!("frame@{frame}"));
        }
        wait_until(|| {
            clock.process_next_clock_id();
            clock.peek_next_pending_id().is_some_and(|id| id.time() == base + due)
        });
    }
}

/// Neither a stream that is not live, nor one that is paused, nor one whose latency is not known.
#[test]
fn the_clock_releases_only_frames_of_a_live_stream_that_plays() {
    for case in ["not live", "paused", "paused with an event", "unknown", "flushed"] {
        let is_known = case != "unknown";
        let gray = if is_known { Stream::gray } else { |text: &str| Stream::without_rate(VideoFormat::Gray8, text) };
        let mut stream = gray("look-ahead=3");
        let (clock, _) = play(&mut stream);
        stream.harness.set_live(case != "not live");
        if case != "not live" {
            stream.harness.set_upstream_latency(FRAME);
            stream.harness.query_latency();
        }
        stream.enter(if is_known { "frame" } else { "untimed" });
        match case {
            "paused" | "paused with an event" => {
                stream.element.set_state(gst::State::Paused).unwrap();
                if case != "paused" {
                    stream.enter("tag");
                }
            }
            "flushed" => _ = stream.enter("flush"),
            _ => (),
        }
        clock.set_time(clock.time() + gst::ClockTime::from_seconds(60));
        assert!(clock.peek_next_pending_id().is_none(), "{case}");
        assert_eq!(stream.harness.buffers_received(), 0, "{case}");
        if case.starts_with("paused") {
            stream.element.set_state(gst::State::Playing).unwrap();
            wait_until(|| {
                clock.process_next_clock_id();
                stream.harness.buffers_received() > 0
            });
        }
        // Nothing keeps it from stopping.
        stream.element.set_state(gst::State::Null).unwrap();
    }
}

/// Downstream may stop the element where it pushes a frame, in the timer's thread and in upstream's while the timer has a frame to
/// push too, and start it again.
#[test]
fn a_live_stream_can_be_restarted_where_it_pushes_a_frame() {
    for is_of_timer in [true, false] {
        // A stop that waits for ever must not be waited for.
        let stream = std::thread::spawn(move || restart_where_a_frame_is_pushed(is_of_timer));
        wait_until(|| stream.is_finished());
        stream.join().unwrap();
    }
}

fn restart_where_a_frame_is_pushed(is_of_timer: bool) {
    let mut stream = Stream::gray("look-ahead=2");
    let (clock, _) = play(&mut stream);
    let is_live = |stream: &mut Stream| {
        stream.harness.set_upstream_latency(FRAME);
        stream.harness.query_latency();
    };
    is_live(&mut stream);
    let (element, clock_of_probe) = (stream.element.downgrade(), clock.clone());
    let (is_restarting, results) = (AtomicBool::new(false), Arc::new(OnceLock::new()));
    let results_of_probe = Arc::clone(&results);
    stream.element.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        if is_restarting.swap(true, Ordering::Relaxed) {
            return gst::PadProbeReturn::Ok;
        }
        if !is_of_timer {
            // The timer's thread wants to push the next frame, which this one keeps it from.
            wait_until(|| clock_of_probe.peek_next_pending_id().is_some());
            clock_of_probe.set_time(clock_of_probe.time() + gst::ClockTime::SECOND);
            clock_of_probe.process_next_clock_id();
            std::thread::sleep(Duration::from_millis(20));
        }
        let element = element.upgrade().unwrap();
        results_of_probe.set([gst::State::Null, gst::State::Playing].map(|state| element.set_state(state))).unwrap();
        gst::PadProbeReturn::Drop
    });
    stream.enter("frame");
    if is_of_timer {
        clock.set_time(clock.wait_for_next_pending_id().time());
        clock.process_next_clock_id();
    } else {
        stream.enter("frame*2");
    }
    wait_until(|| results.get().is_some());
    assert_eq!(*results.get().unwrap(), [Ok(gst::StateChangeSuccess::Success); 2]);
    stream.enter("stream-start caps segment");
    is_live(&mut stream);
    // Each frame leaves at its own time.
    for frames in 1..4 {
        stream.enter(&format!("frame@{}", 1000 * frames));
        assert_eq!(stream.harness.buffers_received(), frames - 1);
        wait_until(|| {
            clock.process_next_clock_id();
            clock.peek_next_pending_id().is_some_and(|id| id.time() > clock.time())
        });
        assert_eq!(stream.harness.buffers_received(), frames - 1);
        clock.set_time(clock.wait_for_next_pending_id().time());
        clock.process_next_clock_id();
        wait_until(|| stream.harness.buffers_received() == frames);
    }
    stream.element.set_state(gst::State::Null).unwrap();
    assert_eq!(stream.harness.buffers_received(), 3);
}
