// SPDX-License-Identifier: MPL-2.0
//! Waiting for the device without burning a core and without waking late.
//!
//! A blocking event lets the driver wake the thread, tens to hundreds of µs late; polling is on time and takes a whole
//! core. Frames of a stream take the same time again and again, so this sleeps through most of what the last ones took,
//! by the device's own clock, and polls for the rest.

use std::time::{Duration, Instant};

/// A shorter sleep is not worth its call.
const SHORTEST_SLEEP: Duration = Duration::from_micros(40);
/// What is always left to polling, because a frame may be done a little earlier than the last ones.
const MARGIN: Duration = Duration::from_micros(20);
/// How late a sleep ends is not known before the first one. Timers of a common thread have 50 µs of slack.
const FIRST_LATENESS: Duration = Duration::from_micros(80);
/// Beyond what was expected it polls for so long; then this frame takes its time, and it naps between polls.
const PATIENCE: Duration = Duration::from_micros(500);
/// Between polls for what may be noticed late. A timer's slack makes it longer.
const NAP: Duration = Duration::from_micros(10);

/// What the last waits taught.
#[derive(Debug)]
pub struct Wait {
    /// How long a frame takes from its first copy to its last.
    expected: Duration,
    /// How much later than asked sleeps end.
    lateness: Duration,
}

impl Default for Wait {
    fn default() -> Self {
        Self { expected: Duration::ZERO, lateness: FIRST_LATENESS }
    }
}

impl Wait {
    /// Returns when `is_done` says so, or fails, as little late as can be. The work was begun to be queued at `begun`.
    pub fn until<E>(&mut self, begun: Instant, mut is_done: impl FnMut() -> Result<bool, E>) -> Result<(), E> {
        let sleep = self.expected.saturating_sub(self.lateness + MARGIN + begun.elapsed());
        if sleep >= SHORTEST_SLEEP {
            let asleep = Instant::now();
            std::thread::sleep(sleep);
            let late = asleep.elapsed().saturating_sub(sleep);
            // Up at once, down slowly: to wake up late costs more than to poll.
            self.lateness = late.max(self.lateness - self.lateness / 16 + late / 16);
        } else {
            // One hiccup must not end the sleeping for good.
            self.lateness = self.lateness.min(FIRST_LATENESS).max(self.lateness - self.lateness / 16);
        }
        while !is_done()? {
            if begun.elapsed() > self.expected + PATIENCE {
                std::thread::sleep(PATIENCE / 10);
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    /// Returns when `is_done` says so, or fails, and soon sleeps meanwhile: for what may be noticed a little late.
    pub fn nap_until<E>(mut is_done: impl FnMut() -> Result<bool, E>) -> Result<(), E> {
        let begun = Instant::now();
        while !is_done()? {
            if begun.elapsed() > SHORTEST_SLEEP {
                std::thread::sleep(NAP);
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    /// A frame took this long.
    pub fn learn(&mut self, took: Duration) {
        self.expected = if took < self.expected { took } else { self.expected + (took - self.expected) / 4 };
    }

    /// The next frames are unlike the last ones.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls of a wait for work that takes `work`.
    fn polls(wait: &mut Wait, work: Duration) -> u32 {
        let (begun, mut polls) = (Instant::now(), 0);
        let done = || {
            polls += 1;
            Ok::<_, ()>(begun.elapsed() >= work)
        };
        wait.until(begun, done).unwrap();
        assert!(begun.elapsed() >= work, "it returned before the work was done");
        wait.learn(work);
        polls
    }

    #[test]
    fn it_sleeps_through_what_it_has_learnt_to_expect() {
        let work = Duration::from_millis(30);
        let mut wait = Wait::default();
        let first = polls(&mut wait, work);
        for _ in 0..30 {
            polls(&mut wait, work);
        }
        assert!(wait.expected > work * 9 / 10 && wait.expected <= work, "{wait:?}");
        let later = (0..5).map(|_| polls(&mut wait, work)).min().unwrap();
        assert!(first > 10 && later < first * 1000, "{first} polls, later {later}");
        // A quick one is expected to stay quick at once.
        wait.learn(work / 10);
        assert_eq!(wait.expected, work / 10);
    }

    #[test]
    fn one_late_awakening_does_not_end_the_sleeping() {
        let mut wait = Wait { expected: Duration::from_millis(2), lateness: Duration::from_millis(50) };
        let asleep = |wait: &Wait| wait.expected.saturating_sub(wait.lateness + MARGIN) >= SHORTEST_SLEEP;
        assert!(!asleep(&wait));
        for _ in 0..200 {
            wait.until(Instant::now(), || Ok::<_, ()>(true)).unwrap();
            if asleep(&wait) {
                return;
            }
        }
        panic!("it never sleeps again: {wait:?}");
    }

    #[test]
    fn a_failure_ends_the_wait() {
        let mut wait = Wait::default();
        wait.learn(Duration::from_secs(100));
        wait.forget();
        assert_eq!(wait.until(Instant::now(), || Err(7)), Err(7));
    }
}
