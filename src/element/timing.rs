// SPDX-License-Identifier: MPL-2.0
//! What the element measures of time: the times of frames, how late they come, and how long the element works on one. Caps may state
//! any frame rate; what counts is when frames come.

use crate::regions::clock::{FrameTimes, Latest};
use crate::regions::zone::StreamSpan;

/// How much later than the previous ones a frame may come. The timer waits for it, because the frame that ends the wait of another one
/// comes at the time at which that one is due.
const JITTER: gst::ClockTime = gst::ClockTime::from_mseconds(2);
/// What sinks allow for processing (`processing-deadline`) by default. A frame that takes longer is decided earlier.
const ALLOWED: gst::ClockTime = gst::ClockTime::from_mseconds(20);
/// How much later than upstream says frames may come before the reported latency is raised.
const LATE: gst::ClockTime = gst::ClockTime::from_mseconds(10);
/// The least time between two raises of the latency.
const PAUSE: gst::ClockTime = gst::ClockTime::SECOND;
/// Fewest values that say that caps or upstream are wrong.
const FEWEST: usize = 9;
/// So many of the latest frames count for how late they came and how long they took.
const FRAMES: usize = 32;

/// The measurements of a stream.
#[derive(Default)]
pub struct Timing {
    /// The segment of the frames that enter. The base class has that of the frames that leave.
    pub segment: gst::Segment,
    /// Since when upstream has not been kept from pushing the next frame, in running time.
    pub idle_since: Option<gst::ClockTime>,
    /// The timestamp of the previous frame.
    previous: Option<u64>,
    /// The latest times from one timestamp to the next.
    intervals: Latest,
    /// Frames since the measurement of intervals began.
    frames: usize,
    /// The interval for which the latency is reported, if it is another one than the caps state.
    interval: Option<u64>,
    /// How much later than upstream says frames came, and for how much of it the reported latency stands.
    lateness: Latest,
    late: gst::ClockTime,
    /// The latest times from the decision about a frame to its push.
    work: Latest,
    /// When the latency was raised.
    raised_at: Option<gst::ClockTime>,
}

impl Timing {
    /// The times of the next frame. The caps state the interval `stated`; `held` frames are held back; `now` is the running time of the
    /// clock of a pipeline that plays.
    pub fn enter(
        &mut self,
        buffer: &gst::BufferRef,
        stated: Option<u64>,
        held: usize,
        now: Option<gst::ClockTime>,
    ) -> FrameTimes {
        let is_discont = buffer.flags().contains(gst::BufferFlags::DISCONT);
        let [timestamp, duration] = [buffer.pts(), buffer.duration()].map(|time| time.map(gst::ClockTime::nseconds));
        // In reverse, timestamps go back.
        let passed =
            std::mem::replace(&mut self.previous, timestamp).zip(timestamp).map(|(one, next)| one.abs_diff(next));
        let lasts = duration.filter(|duration| *duration > 0);
        let interval = if timestamp.is_some() { passed.filter(|passed| *passed > 0 && !is_discont) } else { lasts };
        let most = held.max(FEWEST);
        interval.inspect(|interval| self.intervals.add(*interval, most));
        self.frames += 1;
        // The median, so that a few pauses do not count; of two the shorter, because streams begin with pauses.
        let measured = self.intervals.percentile(50).filter(|_| stated.is_none() || self.intervals.count() >= FEWEST);
        let reported = self.interval.or(stated);
        if let Some(usual) = stated.max(measured) {
            // Neither an interval that varies a little nor a variable rate changes the latency with every frame.
            let is_longer = reported.is_some_and(|reported| usual > reported + reported / 8) && self.may_raise(now);
            let is_shorter = self.frames <= most && reported.is_some_and(|reported| usual < reported / 2);
            if is_longer || is_shorter || reported.is_none() {
                self.interval = Some(usual);
            }
            if is_longer {
                self.raised_at = now;
            }
        }
        let interval = lasts.or(stated).max(measured);
        let (running, stream, span) = self.in_segment(timestamp, interval);
        let rate = self.segment.rate().abs();
        let shown_for = interval.map(|interval| scaled(interval, rate));
        FrameTimes { timestamp, duration, interval, shown_for, running, stream, span, is_discont, now: 0 }
    }

    /// The running time and the stream time of a timestamp, and the stream times between which the frame is shown.
    fn in_segment(
        &self,
        timestamp: Option<u64>,
        interval: Option<u64>,
    ) -> (Option<u64>, Option<u64>, Option<StreamSpan>) {
        let Some(segment) = self.segment.downcast_ref::<gst::ClockTime>() else { return (None, None, None) };
        let time = timestamp.map(gst::ClockTime::from_nseconds);
        let nanoseconds = |time: Option<gst::ClockTime>| time.map(gst::ClockTime::nseconds);
        let span = time.and_then(|time| stream_span(segment, time, interval.map(gst::ClockTime::from_nseconds)));
        (nanoseconds(segment.to_running_time(time)), nanoseconds(segment.to_stream_time(time)), span)
    }

    /// The time in which so many frames come, by what is reported, and what upstream is later than it says. `None` if it is not known.
    pub fn latency(&self, frames: usize, stated: Option<u64>) -> Option<gst::ClockTime> {
        if frames == 0 {
            return Some(gst::ClockTime::ZERO);
        }
        let time = self.interval.or(stated)?.saturating_mul(frames as u64);
        let time = scaled(time, self.segment.rate().abs());
        Some(gst::ClockTime::from_nseconds(time).saturating_add(self.late))
    }

    /// Whether more than so many frames have entered since the measurement of intervals began.
    pub fn has_seen_more_than(&self, frames: usize) -> bool {
        self.frames > frames
    }

    /// Notes that a frame has come at a running time, `now`, and that upstream said that it comes at the time `expected`. Returns how
    /// much later frames come if the reported latency has to be raised for it, once they have done so for a while.
    pub fn note_arrival(&mut self, now: gst::ClockTime, expected: gst::ClockTime) -> Option<gst::ClockTime> {
        // What downstream has kept upstream from is not upstream's.
        let ready = expected.max(self.idle_since.unwrap_or_default());
        self.lateness.add(now.saturating_sub(ready).nseconds(), FRAMES);
        let [usual, most] = [50, 95].map(|percent| self.lateness.percentile(percent).unwrap_or(0));
        let is_late = usual > self.late.saturating_add(LATE).nseconds() && self.lateness.count() >= FEWEST;
        if !is_late || !self.may_raise(Some(now)) {
            return None;
        }
        (self.late, self.raised_at) = (gst::ClockTime::from_nseconds(most), Some(now));
        Some(self.late)
    }

    fn may_raise(&self, now: Option<gst::ClockTime>) -> bool {
        self.raised_at.zip(now).is_none_or(|(raised_at, now)| now >= raised_at.saturating_add(PAUSE))
    }

    /// The running time from which the latency of a frame counts that has come at the time `now`: as the frame was expected, or as it
    /// came where upstream is later than it says.
    pub fn latency_begins(&self, now: gst::ClockTime, expected: Option<gst::ClockTime>) -> gst::ClockTime {
        now.saturating_sub(self.late).max(expected.unwrap_or_default())
    }

    /// Notes how long a frame took from the decision to its push.
    pub fn note_work(&mut self, time: gst::ClockTime) {
        self.work.add(time.nseconds(), FRAMES);
    }

    /// How long after the beginning of its latency the timer decides a frame.
    pub fn wait(&self, latency: gst::ClockTime) -> gst::ClockTime {
        let work = gst::ClockTime::from_nseconds(self.work.percentile(95).unwrap_or(0));
        latency.saturating_add(JITTER).saturating_sub(work.saturating_sub(ALLOWED.saturating_sub(JITTER)))
    }

    /// Measures intervals anew.
    pub fn forget_intervals(&mut self) {
        (self.previous, self.frames, self.interval, self.intervals) = (None, 0, None, Latest::default());
    }
}

/// A time of timestamps in running time, at this rate without its sign.
fn scaled(time: u64, rate: f64) -> u64 {
    if rate == 1.0 { time } else { (time as f64 / rate) as u64 }
}

/// The stream times from which on and before which a frame is shown. Both ends are converted, because an applied rate scales and reverses
/// time. `None` if its time is not known. A frame of unknown duration may last for any time, so that its interval has no end.
fn stream_span(
    segment: &gst::FormattedSegment<gst::ClockTime>,
    timestamp: gst::ClockTime,
    interval: Option<gst::ClockTime>,
) -> Option<StreamSpan> {
    // Where GStreamer cannot tell, the bindings return whatever was in memory.
    segment.time().filter(|_| segment.applied_rate() > 0.0 || segment.stop().is_some())?;
    let stream_time = |time: gst::ClockTime| match segment.to_stream_time_full(time)? {
        gst::Signed::Positive(time) => Some(i128::from(time.nseconds())),
        gst::Signed::Negative(time) => Some(-i128::from(time.nseconds())),
    };
    let from = stream_time(timestamp)?;
    let unknown = if segment.applied_rate() > 0.0 { i128::MAX } else { i128::MIN };
    let to = interval.and_then(|interval| stream_time(timestamp.checked_add(interval)?)).unwrap_or(unknown);
    // In reverse a frame is shown from its own time on too, which is then the last of the interval.
    Some(if to < from { (to + 1, from + 1) } else { (from, to) })
}
