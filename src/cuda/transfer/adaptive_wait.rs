// SPDX-License-Identifier: MPL-2.0
//! Waits for the device, with little processor time and little delay.
//!
//! With a blocking event the driver wakes the thread tens to hundreds of µs late. Polling has no delay but keeps a core busy. The
//! frames of a stream take similar times. So the wait sleeps for most of the time that the last frames took, by the device's
//! clock, and polls for the rest.

use std::time::{Duration, Instant};

/// The shortest sleep. A shorter one costs more than it saves.
const MIN_SLEEP: Duration = Duration::from_micros(40);
/// The last part of the expected time, in which the wait always polls, because a frame may be done a little earlier than the last
/// ones.
const MARGIN: Duration = Duration::from_micros(20);
/// The assumed oversleep before the first sleep. Timers of an ordinary thread have 50 µs of slack.
const INITIAL_OVERSLEEP: Duration = Duration::from_micros(80);
/// The wait polls without pauses for this long beyond the expected time. After that it sleeps between polls.
const PATIENCE: Duration = Duration::from_micros(500);
/// The requested sleep between polls of [`AdaptiveWait::wait_coarsely`]. The slack of the timer makes it longer.
const COARSE_SLEEP: Duration = Duration::from_micros(10);

/// A wait that adapts to the times of the last frames.
#[derive(Debug)]
pub struct AdaptiveWait {
    /// The expected time of a frame on the device, from its begin to the event that is waited for first.
    expected: Duration,
    /// How much longer than requested a sleep takes.
    oversleep: Duration,
}

impl Default for AdaptiveWait {
    fn default() -> Self {
        Self { expected: Duration::ZERO, oversleep: INITIAL_OVERSLEEP }
    }
}

impl AdaptiveWait {
    /// Returns when `is_done` returns true or fails, with little delay. Submission of the work started at `started`.
    pub fn wait<E>(&mut self, started: Instant, mut is_done: impl FnMut() -> Result<bool, E>) -> Result<(), E> {
        let sleep = self.expected.saturating_sub(self.oversleep + MARGIN + started.elapsed());
        if sleep >= MIN_SLEEP {
            let asleep = Instant::now();
            std::thread::sleep(sleep);
            let over = asleep.elapsed().saturating_sub(sleep);
            // The value rises at once and falls slowly, because waking up late costs more than polling.
            self.oversleep = over.max(self.oversleep - self.oversleep / 16 + over / 16);
        } else {
            // Else a single long oversleep would prevent all later sleeps.
            self.oversleep = self.oversleep.min(INITIAL_OVERSLEEP).max(self.oversleep - self.oversleep / 16);
        }
        while !is_done()? {
            if started.elapsed() > self.expected + PATIENCE {
                std::thread::sleep(PATIENCE / 10);
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    /// Returns when `is_done` returns true or fails. Sleeps between polls, for results that may be noticed a little late.
    pub fn wait_coarsely<E>(mut is_done: impl FnMut() -> Result<bool, E>) -> Result<(), E> {
        let started = Instant::now();
        while !is_done()? {
            if started.elapsed() > MIN_SLEEP {
                std::thread::sleep(COARSE_SLEEP);
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    /// Adapts the expected time to the time that a frame took.
    pub fn observe(&mut self, took: Duration) {
        self.expected = if took < self.expected { took } else { self.expected + (took - self.expected) / 4 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of polls of a wait for work that takes `work`.
    fn polls(wait: &mut AdaptiveWait, work: Duration) -> u32 {
        let (started, mut polls) = (Instant::now(), 0);
        let done = || {
            polls += 1;
            Ok::<_, ()>(started.elapsed() >= work)
        };
        wait.wait(started, done).unwrap();
        assert!(started.elapsed() >= work, "it returned before the work was done");
        wait.observe(work);
        polls
    }

    #[test]
    fn it_sleeps_for_most_of_the_expected_time() {
        let work = Duration::from_millis(30);
        let mut wait = AdaptiveWait::default();
        let first = polls(&mut wait, work);
        for _ in 0..30 {
            polls(&mut wait, work);
        }
        assert!(wait.expected > work * 9 / 10 && wait.expected <= work, "{wait:?}");
        let later = (0..5).map(|_| polls(&mut wait, work)).min().unwrap();
        assert!(first > 10 && later < first * 1000, "{first} polls, later {later}");
        // A shorter time becomes the expected time at once.
        wait.observe(work / 10);
        assert_eq!(wait.expected, work / 10);
    }

    #[test]
    fn one_long_oversleep_does_not_prevent_sleeping() {
        let mut wait = AdaptiveWait { expected: Duration::from_millis(2), oversleep: Duration::from_millis(50) };
        let asleep = |wait: &AdaptiveWait| wait.expected.saturating_sub(wait.oversleep + MARGIN) >= MIN_SLEEP;
        assert!(!asleep(&wait));
        for _ in 0..200 {
            wait.wait(Instant::now(), || Ok::<_, ()>(true)).unwrap();
            if asleep(&wait) {
                return;
            }
        }
        panic!("it never sleeps again: {wait:?}");
    }

    #[test]
    fn a_failure_ends_the_wait() {
        let mut wait = AdaptiveWait::default();
        assert_eq!(wait.wait(Instant::now(), || Err(7)), Err(7));
    }
}
