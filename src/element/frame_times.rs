// SPDX-License-Identifier: MPL-2.0
//! The times that the element measures: the times of frames, how late they come, and how long the element works on one.
//! Caps may state any frame rate, so only the measured times count.

use crate::regions::clock::{FrameTimes, Latest};
use crate::regions::zone::StreamSpan;

/// The tolerance for frames that come irregularly. The timer waits this much longer, because in a steady stream the
/// frame that ends the wait of an earlier frame comes exactly when the earlier frame is due.
const JITTER: gst::ClockTime = gst::ClockTime::from_mseconds(2);
/// The time that sinks allow for processing by default (`processing-deadline`). If frames take longer, they are decided
/// earlier.
const ALLOWED: gst::ClockTime = gst::ClockTime::from_mseconds(20);
/// If frames come later than upstream's latency says by more than this time, the reported latency is raised.
const LATE: gst::ClockTime = gst::ClockTime::from_mseconds(10);
/// The least time between two raises of the latency.
const PAUSE: gst::ClockTime = gst::ClockTime::SECOND;
/// The smallest number of intervals that can show that a stated rate is wrong.
const FEWEST: usize = 9;
/// The number of latest frames whose lateness and processing time count.
const FRAMES: usize = 32;

/// The measurements of a stream.
#[derive(Default)]
pub struct Timing {
    /// The segment of the frames that enter. The base class has that of the frames that leave.
    pub segment: gst::Segment,
    /// The running time at which the latest frame came.
    arrived: Option<gst::ClockTime>,
    /// How long upstream has been kept from pushing the next frame since then.
    busy: gst::ClockTime,
    /// The timestamp of the previous frame.
    previous: Option<u64>,
    /// The latest times from one timestamp to the next.
    intervals: Latest,
    /// Number of frames since the measurement of intervals began.
    frames: usize,
    /// The interval by which the latency is reported, if it differs from the interval in the caps.
    interval: Option<u64>,
    /// The latency that upstream reported last.
    upstream: Option<gst::ClockTime>,
    /// How much later than this latency frames came, and how much of this delay the reported latency includes.
    lateness: Latest,
    late: gst::ClockTime,
    /// How much later the latest frame came because this element or downstream had kept upstream from pushing.
    delay: gst::ClockTime,
    /// The latest times from the decision about a frame to its push, except that of the first frame.
    work: Latest,
    has_worked: bool,
    /// When the latency was raised.
    raised_at: Option<gst::ClockTime>,
}

impl Timing {
    /// The times of the next frame. The caps state the interval `stated`; `held` frames are held back; `now` is the running time of the
    /// clock of a pipeline that plays.
    pub fn measure(
        &mut self,
        buffer: &gst::BufferRef,
        stated: Option<u64>,
        held: usize,
        now: Option<gst::ClockTime>,
    ) -> FrameTimes {
        let is_discont = buffer.flags().contains(gst::BufferFlags::DISCONT);
        let [timestamp, duration] = [buffer.pts(), buffer.duration()].map(|time| time.map(gst::ClockTime::nseconds));
        // In reverse playback, timestamps go back.
        let passed =
            std::mem::replace(&mut self.previous, timestamp).zip(timestamp).map(|(one, next)| one.abs_diff(next));
        let lasts = duration.filter(|duration| *duration > 0);
        let interval = if timestamp.is_some() { passed.filter(|passed| *passed > 0 && !is_discont) } else { lasts };
        let most = held.max(FEWEST);
        interval.inspect(|interval| self.intervals.add(*interval, most));
        self.frames += 1;
        // The median, so that a few pauses do not count. Of two middle values the shorter one counts, because streams
        // begin with pauses.
        let measured = self.intervals.percentile(50).filter(|_| stated.is_none() || self.intervals.count() >= FEWEST);
        let reported = self.interval.or(stated);
        if let Some(usual) = stated.max(measured) {
            // Neither an interval that varies a little nor a variable rate changes the latency with every frame.
            let is_longer =
                reported.is_some_and(|reported| usual > reported.saturating_add(reported / 8)) && self.may_raise(now);
            let is_shorter = self.frames <= most && reported.is_some_and(|reported| usual < reported / 2);
            if is_longer || is_shorter || reported.is_none() {
                self.interval = Some(usual);
            }
            if is_longer {
                self.raised_at = now;
            }
        }
        // Without timestamps only durations say how long a frame is shown.
        let interval = lasts.or(stated).max(measured.filter(|_| timestamp.is_some()));
        let (running, stream, span) = self.in_segment(timestamp, interval);
        let rate = self.segment.rate().abs();
        let shown_for = interval.map(|interval| scaled(interval, rate));
        self.note_delay(now, shown_for);
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

    /// The time in which this number of frames comes, by the reported interval, and upstream's additional delay. `None`
    /// if the interval is unknown.
    pub fn latency(&self, frames: usize, stated: Option<u64>) -> Option<gst::ClockTime> {
        if frames == 0 {
            return Some(gst::ClockTime::ZERO);
        }
        let interval = scaled(self.interval.or(stated)?, self.segment.rate().abs());
        Some(gst::ClockTime::from_nseconds(interval).saturating_mul(frames as u64).saturating_add(self.late))
    }

    /// Whether more than this number of frames has entered since the measurement of intervals began.
    pub fn has_seen_more_than(&self, frames: usize) -> bool {
        self.frames > frames
    }

    /// Notes how much later a frame comes because the previous one took longer than upstream needs for the next one.
    fn note_delay(&mut self, now: Option<gst::ClockTime>, interval: Option<u64>) {
        let interval = gst::ClockTime::from_nseconds(interval.unwrap_or(0));
        let busy = std::mem::take(&mut self.busy);
        (self.delay, self.arrived) = (self.delay.saturating_add(busy.saturating_sub(interval)), now);
    }

    /// Notes that upstream can push the next frame after the one that came last.
    pub fn note_end(&mut self, now: Option<gst::ClockTime>) {
        let busy = self.arrived.zip(now).map(|(arrived, now)| now.saturating_sub(arrived));
        self.note_busy(busy.unwrap_or_default());
    }

    /// Notes how long upstream was kept from pushing.
    pub fn note_busy(&mut self, time: gst::ClockTime) {
        self.busy = self.busy.saturating_add(time);
    }

    /// The running time from which the latency of the latest frame counts. `expected` is when the frame should have
    /// come by the latency that upstream reports. If the frame came later, the time at which it came counts, minus the
    /// delay that the reported latency already includes. `None` without a clock or without a time.
    pub fn latency_begins(&mut self, expected: Option<gst::ClockTime>) -> Option<gst::ClockTime> {
        expected.max(self.arrived.map(|arrived| arrived.saturating_sub(self.late)))
    }

    /// Notes that the latest frame was `expected` at this time, by the latency `upstream` that upstream reports. If
    /// frames have come later for a while, so that the reported latency has to be raised, returns how much later they
    /// come.
    pub fn note_lateness(&mut self, expected: gst::ClockTime, upstream: gst::ClockTime) -> Option<gst::ClockTime> {
        if self.upstream.replace(upstream) != Some(upstream) {
            (self.lateness, self.late) = (Latest::default(), gst::ClockTime::ZERO);
        }
        let arrived = self.arrived?;
        let late = arrived.saturating_sub(expected);
        self.delay = self.delay.min(late);
        // Streams begin late.
        if self.frames <= FEWEST {
            return None;
        }
        self.lateness.add(late.saturating_sub(self.delay).nseconds(), FRAMES);
        let most = gst::ClockTime::from_nseconds(self.lateness.percentile(95).unwrap_or(0));
        if self.lateness.count() < FRAMES || most <= self.late.saturating_add(LATE) || !self.may_raise(Some(arrived)) {
            return None;
        }
        (self.late, self.raised_at) = (most, Some(arrived));
        Some(most)
    }

    fn may_raise(&self, now: Option<gst::ClockTime>) -> bool {
        self.raised_at.zip(now).is_none_or(|(raised_at, now)| now >= raised_at.saturating_add(PAUSE))
    }

    /// Notes how long a frame took from the decision to its push. The first one allocates and compiles.
    pub fn note_work(&mut self, time: gst::ClockTime) {
        match self.has_worked {
            true => self.work.add(time.nseconds(), FRAMES),
            false => self.has_worked = true,
        }
    }

    /// How long after the beginning of its latency the timer decides a frame.
    pub fn wait(&self, latency: gst::ClockTime) -> gst::ClockTime {
        let work = self.work.percentile(95).filter(|_| self.work.count() >= FRAMES).unwrap_or(0);
        let work = gst::ClockTime::from_nseconds(work);
        latency.saturating_add(JITTER).saturating_sub(work.saturating_sub(ALLOWED.saturating_sub(JITTER)))
    }

    /// Measures intervals anew, also after a flush, after which running time begins anew.
    pub fn forget_intervals(&mut self) {
        (self.previous, self.frames, self.interval, self.intervals) = (None, 0, None, Latest::default());
        (self.arrived, self.raised_at, self.busy, self.delay) =
            (None, None, gst::ClockTime::ZERO, gst::ClockTime::ZERO);
    }
}

/// A time of timestamps in running time, at this rate without its sign.
fn scaled(time: u64, rate: f64) -> u64 {
    let scaled = if rate == 1.0 { time } else { (time as f64 / rate) as u64 };
    scaled.min(gst::ClockTime::MAX.nseconds())
}

/// The stream times between which a frame is shown. Both ends are converted, because an applied rate scales and
/// reverses time. `None` if the frame's time is unknown. A frame of unknown duration may last for any time, so its
/// interval has no end.
fn stream_span(
    segment: &gst::FormattedSegment<gst::ClockTime>,
    timestamp: gst::ClockTime,
    interval: Option<gst::ClockTime>,
) -> Option<StreamSpan> {
    // If GStreamer cannot convert the time, the bindings return whatever was in memory.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// If frames take longer than sinks allow for, they are decided earlier. The time is that of the slowest frame,
    /// without the slowest twentieth and without the first frame.
    #[test]
    fn long_work_is_subtracted() {
        gst::init().unwrap();
        let [latency, ms] = [500, 1].map(gst::ClockTime::from_mseconds);
        let mut timing = Timing::default();
        timing.note_work(ms * 300);
        for frame in 0..100 {
            assert_eq!(timing.wait(latency), latency + JITTER, "{frame}");
            // One of so many is slow.
            timing.note_work(ms * if frame % 32 == 7 { 200 } else { 17 });
        }
        for _ in 0..FRAMES {
            timing.note_work(ms * 30);
        }
        assert_eq!(timing.wait(latency), latency - ms * 10);
        assert_eq!(timing.wait(ms), gst::ClockTime::ZERO);
    }

    #[test]
    fn no_time_is_too_long() {
        gst::init().unwrap();
        let mut timing = Timing::default();
        let mut buffer = gst::Buffer::new();
        for (time, duration) in [(0, u64::MAX - 1), (u64::MAX - 1, 1), (0, 0), (1 << 62, u64::MAX / 2)].repeat(10) {
            let fields = buffer.make_mut();
            fields.set_pts(gst::ClockTime::from_nseconds(time));
            fields.set_duration(gst::ClockTime::from_nseconds(duration));
            for rate in [1.0, -0.5, 1e-300, 1e300] {
                let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
                segment.set_rate(rate);
                timing.segment = segment.upcast();
                timing.measure(&buffer, None, 120, Some(gst::ClockTime::MAX));
                timing.note_lateness(gst::ClockTime::ZERO, gst::ClockTime::MAX);
                timing.latency(120, None);
            }
        }
    }
}
