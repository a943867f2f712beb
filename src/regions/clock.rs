// SPDX-License-Identifier: MPL-2.0
//! The time that passes from frame to frame, whatever their timestamps.

/// The time of a frame, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameTime {
    /// The running time of its timestamp.
    pub timestamp: Option<u64>,
    /// How long the frame lasts: of the buffer, else by the frame rate.
    pub duration: Option<u64>,
    /// Whether the frame does not continue the previous one.
    pub is_discont: bool,
}

/// A time that never goes back.
///
/// Time passes by timestamps. For a frame without one it passes by the frame's duration, and without that not at all. A
/// timestamp before the latest one counts as the same time: frames were swapped. If it is before it by more than
/// `hold-time`, the stream begins anew there.
#[derive(Debug, Default)]
pub struct Clock {
    now: u64,
    /// The latest timestamp, with the durations of the frames without one that followed it.
    latest: Option<u64>,
}

impl Clock {
    /// Whether the frame is a jump back, after which nothing is known of the objects before it: a discontinuity that goes
    /// back by more than `hold_time`. Elements that lose frames set the flag too, so that it alone says nothing.
    pub fn is_jump(&self, time: FrameTime, hold_time: u64) -> bool {
        time.is_discont && self.back(time) > hold_time
    }

    /// The time of the next frame, in nanoseconds since the first one.
    pub fn advance(&mut self, time: FrameTime, hold_time: u64) -> u64 {
        let back = self.back(time);
        let elapsed = match (time.timestamp, self.latest) {
            (Some(now), Some(latest)) => now.saturating_sub(latest),
            // The first timestamp says nothing about the time since the frames without one.
            (Some(_), None) => 0,
            (None, _) => time.duration.unwrap_or(0),
        };
        self.latest = match time.timestamp {
            Some(_) if back > 0 && back <= hold_time => self.latest,
            Some(now) => Some(now),
            None => self.latest.map(|latest| latest.saturating_add(elapsed)),
        };
        self.now = self.now.saturating_add(elapsed);
        self.now
    }

    /// How far before the latest timestamp that of a frame is.
    fn back(&self, time: FrameTime) -> u64 {
        time.timestamp.zip(self.latest).map_or(0, |(now, latest)| latest.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: u64 = 1000;

    fn at(timestamp: u64) -> FrameTime {
        FrameTime { timestamp: Some(timestamp), ..FrameTime::default() }
    }

    fn lasting(duration: u64) -> FrameTime {
        FrameTime { duration: Some(duration), ..FrameTime::default() }
    }

    fn times(frames: &[FrameTime]) -> Vec<u64> {
        let mut clock = Clock::default();
        frames.iter().map(|frame| clock.advance(*frame, HOLD)).collect()
    }

    #[test]
    fn time_passes_by_timestamps_else_by_durations() {
        assert_eq!(times(&[at(500), at(540), at(580)]), [0, 40, 80]);
        assert_eq!(times(&[lasting(40), lasting(40), FrameTime::default()]), [40, 80, 80]);
        assert_eq!(
            times(&[FrameTime::default(), at(500), at(540)]),
            [0, 0, 40],
            "the first timestamp is no elapsed time"
        );
        assert_eq!(times(&[at(500), lasting(40), at(620)]), [0, 40, 120], "the frame between does not count twice");
    }

    #[test]
    fn swapped_timestamps_do_not_add_time() {
        assert_eq!(times(&[at(920), at(1000), at(0), at(1040)]), [0, 80, 80, 120], "by no more than the hold");
        assert_eq!(times(&[at(0), at(120), at(40), at(80), at(160)]), [0, 120, 120, 120, 160]);
        assert_eq!(times(&[at(5000), at(0), at(40)]), [0, 0, 40], "by more than the hold: another time");
    }

    #[test]
    fn only_a_discontinuity_back_by_more_than_the_hold_is_a_jump() {
        let mut clock = Clock::default();
        clock.advance(at(5000), HOLD);
        let jump = |timestamp| FrameTime { is_discont: true, ..at(timestamp) };
        assert!(clock.is_jump(jump(3999), HOLD));
        for frame in [jump(4000), jump(9000), at(0), FrameTime { is_discont: true, ..FrameTime::default() }] {
            assert!(!clock.is_jump(frame, HOLD), "{frame:?}");
        }
    }
}
