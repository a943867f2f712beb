// SPDX-License-Identifier: MPL-2.0
//! The timer of live streams. A frame leaves when its latency is over, also if upstream stalls, because people want to
//! see the last seconds before an outage. The pipeline's clock calls at that time, and a thread of GStreamer's pool
//! pushes the frames.

use std::sync::{Mutex, OnceLock};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;

use super::CudaGaussBlur;
use crate::process::lock;

/// The clock of a pipeline that plays, and the time at which its running time is 0.
#[derive(Debug, Clone)]
pub struct RunningClock {
    pub clock: gst::Clock,
    pub base_time: gst::ClockTime,
}

type PushDue = fn(&CudaGaussBlur);

/// Calls a function in a thread of GStreamer's pool when frames are due.
#[derive(Default)]
pub struct Timer {
    next: Mutex<Next>,
    /// The function to call.
    push_due: OnceLock<(glib::WeakRef<CudaGaussBlur>, PushDue)>,
}

#[derive(Default)]
struct Next {
    /// `None` unless the pipeline plays.
    clock: Option<RunningClock>,
    /// The running time at which frames are due.
    due: Option<gst::ClockTime>,
    /// The clock's pending wait, and the running time of its end.
    waits_for: Option<(gst::ClockTime, gst::SingleShotClockId)>,
    /// Whether a thread pushes frames, or has been asked to push them. The clock does not wait meanwhile.
    is_pushing: bool,
}

impl Timer {
    /// The running time now, if the pipeline plays.
    pub fn now(&self) -> Option<gst::ClockTime> {
        let RunningClock { clock, base_time } = lock(&self.next).clock.clone()?;
        clock.time().checked_sub(base_time)
    }

    /// Sets the function. Only the first call has an effect.
    pub fn on_due(&self, element: &CudaGaussBlur, push_due: PushDue) {
        self.push_due.get_or_init(|| (element.downgrade(), push_due));
    }

    /// Sets the clock when the pipeline begins to play, and removes it when the pipeline stops playing.
    pub fn set_clock(&self, clock: Option<RunningClock>) {
        lock(&self.next).clock = clock;
        self.wait(true);
    }

    /// Sets the running time at which frames are due; `None` if there are none.
    pub fn set_due(&self, due: Option<gst::ClockTime>) {
        lock(&self.next).due = due;
        self.wait(due.is_none());
    }

    /// A thread has pushed the frames that were due.
    fn end(&self) {
        lock(&self.next).is_pushing = false;
        self.wait(false);
    }

    /// Lets the clock wait until frames are due. If the clock already waits for an earlier time, this wait continues,
    /// and the clock waits again after it. With `anew` the earlier wait is cancelled.
    fn wait(&self, anew: bool) {
        let (replaced, id) = {
            let mut next = lock(&self.next);
            let due = next.due;
            let replaced = next.waits_for.take_if(|(time, _)| anew || Some(*time) > due);
            let time = due.filter(|_| next.waits_for.is_none() && !next.is_pushing);
            let id = next.clock.as_ref().zip(time).and_then(|(RunningClock { clock, base_time }, due)| {
                Some((due, clock.new_single_shot_id(base_time.checked_add(due)?)))
            });
            next.waits_for = next.waits_for.take().or(id.clone());
            (replaced, id)
        };
        if let Some((_, id)) = replaced {
            id.unschedule();
        }
        if let Some((_, id)) = id
            && let Some((element, _)) = self.push_due.get()
        {
            let element = element.clone();
            // If the clock cannot wait, frames leave only when later ones come.
            let _ = id.wait_async(move |_, _, id| {
                if let Some(element) = element.upgrade() {
                    element.imp().timer.come(&element, id);
                }
            });
        }
    }

    /// The clock has come to the time of `id`.
    fn come(&self, element: &CudaGaussBlur, id: &gst::ClockId) {
        let now = self.now();
        let is_due = {
            let mut next = lock(&self.next);
            next.waits_for.take_if(|(_, waits_for)| **waits_for == *id);
            let is_due = !next.is_pushing && next.due.zip(now).is_some_and(|(due, now)| now >= due);
            next.is_pushing |= is_due;
            is_due
        };
        match self.push_due.get().map(|(_, push_due)| *push_due) {
            // The clock's own thread must not push frames, because other elements wait for it.
            Some(push_due) if is_due => element.call_async(move |element| {
                push_due(element);
                element.imp().timer.end();
            }),
            _ => self.wait(false),
        }
    }
}
