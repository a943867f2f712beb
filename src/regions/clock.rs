// SPDX-License-Identifier: MPL-2.0
//! The times of frames, and the time that passes from frame to frame, whatever their timestamps.

use std::collections::VecDeque;

use super::zone::StreamSpan;

/// The times of a frame, in nanoseconds, made once when it enters.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FrameTimes {
    /// The timestamp of the buffer.
    pub timestamp: Option<u64>,
    /// The duration that the buffer states.
    pub duration: Option<u64>,
    /// How long the frame is shown, in the time of timestamps: the duration of the buffer, or else the duration of a
    /// frame by the caps, but at least the measured time from one frame to the next.
    pub interval: Option<u64>,
    /// The interval in running time, which a rate other than 1 scales.
    pub shown_for: Option<u64>,
    /// The running time of the timestamp, which goes on through segments.
    pub running: Option<u64>,
    /// The stream time of the timestamp, if it is in the segment.
    pub stream: Option<u64>,
    /// The stream times between which the frame is shown.
    pub span: Option<StreamSpan>,
    /// Whether the frame does not continue the previous one.
    pub is_discont: bool,
    /// The time since the first frame by [`Clock`].
    pub now: u64,
}

impl FrameTimes {
    /// Ends the span at the next frame: the frame is shown until then, even if it states less.
    pub fn extend_to(&mut self, next: &Self) {
        if let Some(((_, end), next)) = self.span.as_mut().zip(next.stream) {
            *end = (*end).max(next.into());
        }
    }
}

/// The least time that may pass from one frame to the next, in nanoseconds, however short the frames are.
const LEAST_STEP: u64 = 300_000_000;
/// The number of usual intervals that may pass from one frame to the next.
const MOST_INTERVALS: u64 = 4;
/// The number of frames in succession that may be swapped with an earlier one.
const MOST_SWAPPED: usize = 4;
/// The number of latest intervals of which the median is the usual one.
const INTERVALS: usize = 9;

/// The latest values of a measurement.
#[derive(Debug, Default)]
pub struct Latest(VecDeque<u64>);

impl Latest {
    /// Adds a value. Those before the latest `most` are forgotten.
    pub fn add(&mut self, value: u64, most: usize) {
        self.0.push_back(value);
        while self.0.len() > most {
            self.0.pop_front();
        }
    }

    /// How many values there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The smallest value that this percentage of all values does not exceed; `None` without values.
    pub fn percentile(&self, percent: usize) -> Option<u64> {
        let mut sorted: Vec<u64> = self.0.iter().copied().collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied()
    }
}

/// A time that never goes back.
///
/// Time passes by timestamps. For a frame without a timestamp it passes by the time for which the frame is shown; if
/// that is unknown, it does not pass. A timestamp before the latest one counts as the same time, because frames were
/// swapped. If it is more than `hold-time` before the latest one, or if more than four frames in succession are before it, the
/// stream goes on from there.
///
/// From one frame to the next no more time passes than four usual intervals, or 0.3 s if that is longer. The picture says
/// nothing about a longer time: an object that was held in one frame is probably in the next one, too. So a jump of timestamps
/// does not end all covers at once. The usual interval is the median of the last nine intervals; before the first one it is
/// the time for which the frame is shown. So time passes correctly in a slow video, too.
#[derive(Debug, Default)]
pub struct Clock {
    now: u64,
    /// The latest times from one frame to the next, as the frames state them.
    intervals: Latest,
    /// The latest timestamp, with the time of the frames without one that followed it.
    latest: Option<u64>,
    /// The timestamps since the latest one that are before it.
    swapped: Vec<u64>,
}

impl Clock {
    /// Whether the frame is a jump back, after which nothing is known about earlier objects: a discontinuity that goes
    /// back by more than `hold_time`. The flag alone is not enough, because elements that lose frames set it, too.
    pub fn is_jump(&self, time: &FrameTimes, hold_time: u64) -> bool {
        time.is_discont && self.back(time) > hold_time
    }

    /// The time of the next frame, in nanoseconds since the first one.
    pub fn advance(&mut self, time: &FrameTimes, hold_time: u64) -> u64 {
        let mut back = self.back(time);
        if back > 0 && self.swapped.len() == MOST_SWAPPED {
            self.latest = self.swapped.last().copied();
            back = self.back(time);
            self.swapped.clear();
        }
        let elapsed = match (time.running, self.latest) {
            (Some(now), Some(latest)) => now.saturating_sub(latest),
            // The first timestamp says nothing about the time since the frames without one.
            (Some(_), None) => 0,
            (None, _) => time.shown_for.unwrap_or(0),
        };
        let usual = self.intervals.percentile(50).or(time.shown_for).unwrap_or(0);
        let passed = elapsed.min(usual.saturating_mul(MOST_INTERVALS).max(LEAST_STEP));
        if elapsed > 0 {
            self.intervals.add(elapsed, INTERVALS);
        }
        self.latest = match time.running {
            Some(now) if back > 0 && back <= hold_time => {
                self.swapped.push(now);
                self.latest
            }
            Some(now) => {
                self.swapped.clear();
                Some(now)
            }
            None => self.latest.map(|latest| latest.saturating_add(elapsed)),
        };
        self.now = self.now.saturating_add(passed);
        self.now
    }

    /// How far a frame's timestamp lies before the latest one.
    fn back(&self, time: &FrameTimes) -> u64 {
        time.running.zip(self.latest).map_or(0, |(now, latest)| latest.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: u64 = 1000;

    fn at(running: u64) -> FrameTimes {
        FrameTimes { running: Some(running), ..FrameTimes::default() }
    }

    fn lasting(interval: u64) -> FrameTimes {
        FrameTimes { shown_for: Some(interval), ..FrameTimes::default() }
    }

    fn times(frames: &[FrameTimes]) -> Vec<u64> {
        let mut clock = Clock::default();
        frames.iter().map(|frame| clock.advance(frame, HOLD)).collect()
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let mut latest = Latest::default();
        assert_eq!(latest.percentile(50), None);
        for (value, median, high) in [(7, 7, 7), (1, 1, 7), (9, 7, 9), (3, 3, 9), (5, 3, 9)] {
            latest.add(value, 4);
            assert_eq!([50, 95].map(|percent| latest.percentile(percent)), [Some(median), Some(high)]);
        }
        assert_eq!(latest.count(), 4);
        (0..100).for_each(|value| latest.add(value, 32));
        assert_eq!([1, 50, 95, 100].map(|percent| latest.percentile(percent)), [68, 83, 98, 99].map(Some));
    }

    #[test]
    fn time_passes_by_timestamps_else_by_durations() {
        assert_eq!(times(&[at(500), at(540), at(580)]), [0, 40, 80]);
        assert_eq!(times(&[lasting(40), lasting(40), FrameTimes::default()]), [40, 80, 80]);
        assert_eq!(
            times(&[FrameTimes::default(), at(500), at(540)]),
            [0, 0, 40],
            "the first timestamp is no elapsed time"
        );
        assert_eq!(times(&[at(500), lasting(40), at(620)]), [0, 40, 120], "the frame between does not count twice");
    }

    #[test]
    fn a_jump_of_timestamps_counts_for_a_bounded_time() {
        const MS: u64 = 1_000_000;
        let passed = |frames: &[u64]| {
            let frames: Vec<FrameTimes> = frames.iter().map(|time| at(time * MS)).collect();
            let times = times(&frames);
            times.windows(2).map(|pair| (pair[1] - pair[0]) / MS).collect::<Vec<_>>()
        };
        assert_eq!(passed(&[0, 40, 80, 10_080, 10_120]), [40, 40, 300, 40], "by 0.3 s");
        assert_eq!(passed(&[0, 200, 400, 1200, 3000]), [200, 200, 800, 800], "by four frames");
        assert_eq!(passed(&[0, 60_000, 120_000, 180_000]), [300, 60_000, 60_000], "a slow video of an unknown rate");
        let slow = [0, 40, 80, 120, 1120, 2120, 3120, 4120, 5120];
        assert_eq!(passed(&slow)[3..], [300, 300, 300, 300, 1000], "it becomes slow");
        let minute = |time| FrameTimes { shown_for: Some(60_000 * MS), ..at(time * MS) };
        assert_eq!(times(&[minute(0), minute(60_000)]), [0, 60_000 * MS], "a slow video of a known rate");
        let hour = FrameTimes { shown_for: Some(3_600_000 * MS), ..FrameTimes::default() };
        assert_eq!(times(&[lasting(40 * MS), hour, lasting(40 * MS)]), [40 * MS, 340 * MS, 380 * MS]);
    }

    #[test]
    fn swapped_timestamps_do_not_add_time() {
        assert_eq!(times(&[at(920), at(1000), at(0), at(1040)]), [0, 80, 80, 120], "by no more than the hold");
        assert_eq!(times(&[at(0), at(120), at(40), at(80), at(160)]), [0, 120, 120, 120, 160]);
        assert_eq!(times(&[at(5000), at(0), at(40)]), [0, 0, 40], "by more than the hold: another time");
        let back = [800, 840, 0, 40, 80, 120, 160, 200, 240];
        assert_eq!(times(&back.map(at)), [0, 40, 40, 40, 40, 40, 80, 120, 160], "the stream has gone back");
    }

    #[test]
    fn only_a_discontinuity_back_by_more_than_the_hold_is_a_jump() {
        let mut clock = Clock::default();
        clock.advance(&at(5000), HOLD);
        let jump = |running| FrameTimes { is_discont: true, ..at(running) };
        assert!(clock.is_jump(&jump(3999), HOLD));
        for frame in [jump(4000), jump(9000), at(0), FrameTimes { is_discont: true, ..FrameTimes::default() }] {
            assert!(!clock.is_jump(&frame, HOLD), "{frame:?}");
        }
    }
}
