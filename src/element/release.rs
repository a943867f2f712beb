// SPDX-License-Identifier: MPL-2.0
//! The timer of live streams: a frame leaves when its latency is over, also if upstream stalls, because the last seconds before an
//! outage are what people want to see. A thread waits for the clock and holds nothing meanwhile.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{mem, process};

use gst::prelude::*;

use crate::process::lock;

/// By how much a frame leaves later than its latency, so that a later one that comes in time counts: half of what sinks allow for
/// processing (`processing-deadline`).
pub const DELAY: gst::ClockTime = gst::ClockTime::from_mseconds(10);

/// The time after which the thread tries again to release frames while another thread works with the stream.
const RETRY: Duration = Duration::from_millis(1);

/// The clock of a pipeline that plays, and the time at which its running time is 0.
#[derive(Debug, Clone)]
pub struct RunningClock {
    pub clock: gst::Clock,
    pub base_time: gst::ClockTime,
}

impl RunningClock {
    /// The running time now.
    pub fn now(&self) -> Option<gst::ClockTime> {
        self.clock.time().checked_sub(self.base_time)
    }
}

/// A thread that releases frames when the running time of the next release is over.
#[derive(Default)]
pub struct ReleaseTimer {
    shared: Arc<Shared>,
    release: OnceLock<Arc<dyn Fn() -> bool + Send + Sync>>,
    /// With the process that it belongs to: a fork of that process has no such thread.
    thread: Mutex<Option<(u32, JoinHandle<()>)>>,
}

#[derive(Default)]
struct Shared {
    next: Mutex<Next>,
    changed: Condvar,
}

#[derive(Default)]
struct Next {
    /// `None` unless the pipeline plays.
    clock: Option<RunningClock>,
    /// The running time of the next release.
    due: Option<gst::ClockTime>,
    /// What the thread waits for.
    waits_for: Option<gst::SingleShotClockId>,
    /// Stops so far. A thread that started before the latest one ends.
    stops: u64,
}

impl Shared {
    /// Changes what is waited for, and ends a wait for anything else.
    fn change(&self, change: impl FnOnce(&mut Next)) {
        let waited_for = {
            let mut next = lock(&self.next);
            change(&mut next);
            next.waits_for.take()
        };
        self.changed.notify_all();
        if let Some(id) = waited_for {
            id.unschedule();
        }
    }

    /// Waits for the next release. `false` if the timer was stopped after so many stops.
    fn wait(&self, stops: u64) -> bool {
        let mut next = lock(&self.next);
        loop {
            if next.stops != stops {
                return false;
            }
            let time = next
                .clock
                .as_ref()
                .zip(next.due)
                .and_then(|(running, due)| Some((running.clock.clone(), running.base_time.checked_add(due)?)));
            let Some((clock, time)) = time else {
                next = self.changed.wait(next).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let id = clock.new_single_shot_id(time);
            next.waits_for = Some(id.clone());
            drop(next);
            let (waited, _) = id.wait();
            next = lock(&self.next);
            // A later time may have been set, which ends no wait.
            let now = next.clock.as_ref().and_then(RunningClock::now);
            // What is released then sets the next time.
            if next.due.zip(now).is_some_and(|(due, now)| now >= due) {
                return true;
            }
            if !matches!(waited, Ok(_) | Err(gst::ClockError::Early | gst::ClockError::Unscheduled)) {
                // A clock that cannot wait.
                next.due = None;
            }
        }
    }
}

impl ReleaseTimer {
    /// The clock, if the pipeline plays.
    pub fn clock(&self) -> Option<RunningClock> {
        lock(&self.shared.next).clock.clone()
    }

    /// Sets the clock when the pipeline begins to play, and removes it when that ends.
    pub fn set_clock(&self, clock: Option<RunningClock>) {
        self.shared.change(|next| next.clock = clock);
    }

    /// Sets what releases frames. It is called from the timer's thread, and again after [`RETRY`] if it returns `false`. It waits for no
    /// lock that a caller of [`ReleaseTimer::stop`] may hold, because that caller waits for the thread.
    pub fn on_due(&self, release: impl Fn() -> bool + Send + Sync + 'static) {
        self.release.get_or_init(|| Arc::new(release));
    }

    /// Sets the running time of the next release; `None` if there is nothing to release. The first one starts the thread.
    pub fn set_due(&self, due: Option<gst::ClockTime>) {
        let is_later = {
            let mut next = lock(&self.shared.next);
            // A wait for an earlier time goes on, and finds the later one when it ends.
            let is_later = next.due.is_some() == due.is_some() && due >= next.due;
            next.due = due;
            is_later
        };
        if !is_later {
            self.shared.change(|_| ());
        }
        let mut thread = lock(&self.thread);
        if due.is_some()
            && thread.as_ref().is_none_or(|(process, _)| *process != process::id())
            && let Some(release) = self.release.get().cloned()
        {
            let (shared, stops) = (Arc::clone(&self.shared), lock(&self.shared.next).stops);
            let run = move || {
                while shared.wait(stops) {
                    if !release() {
                        thread::sleep(RETRY);
                    }
                }
            };
            let started = thread::Builder::new().name("cudagaussblur-release".to_owned()).spawn(run).ok();
            // A fork may give the new thread the identifier of the old one, which dropping the old handle would detach.
            mem::forget(mem::replace(&mut *thread, started.map(|started| (process::id(), started))));
        }
    }

    /// Ends the thread, and waits until it has ended. If this is the thread itself, because an application stops the element where it
    /// pushes a frame, the thread ends when `release` returns.
    pub fn stop(&self) {
        loop {
            let thread = {
                let mut thread = lock(&self.thread);
                self.shared.change(|next| (next.due, next.stops) = (None, next.stops + 1));
                thread.take()
            };
            match thread {
                Some((process, thread)) if process != process::id() => mem::forget(thread),
                // Its last call may set another time, which starts another thread.
                Some((_, thread)) if thread.thread().id() != thread::current().id() => _ = thread.join(),
                _ => return,
            }
        }
    }
}

impl Drop for ReleaseTimer {
    /// After a panic GStreamer's bindings do not stop the element.
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It can start again, and neither a stop nor its end leaves a thread.
    #[test]
    fn stopping_ends_the_thread() {
        let timer = ReleaseTimer::default();
        timer.on_due(|| true);
        for _ in 0..20 {
            timer.set_due(Some(DELAY));
            assert_eq!(Arc::strong_count(&timer.shared), 2);
            timer.stop();
            assert_eq!(Arc::strong_count(&timer.shared), 1);
        }
        timer.set_due(Some(DELAY));
        let shared = Arc::clone(&timer.shared);
        drop(timer);
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    /// Also one that the last call of what releases frames starts.
    #[test]
    fn stopping_ends_threads_that_start_meanwhile() {
        gst::init().unwrap();
        let timer = Arc::new(ReleaseTimer::default());
        let weak = Arc::downgrade(&timer);
        timer.on_due(move || {
            weak.upgrade().inspect(|timer| timer.set_due(Some(gst::ClockTime::ZERO)));
            true
        });
        let clock = gst::SystemClock::obtain();
        timer.set_clock(Some(RunningClock { base_time: clock.time(), clock }));
        for turn in 0..300 {
            timer.set_due(Some(gst::ClockTime::ZERO));
            thread::sleep(Duration::from_micros(turn));
            timer.stop();
            assert_eq!(Arc::strong_count(&timer.shared), 1);
        }
    }
}
