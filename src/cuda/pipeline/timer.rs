// SPDX-License-Identifier: MPL-2.0
//! Measures how long frames take on the device. Events with times cost the device up to 10 µs a frame, and their calls cost the
//! calling thread half as much as everything else that is enqueued for a frame on the device, so only some frames are timed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::cuda::driver::Event;
use crate::cuda::driver::device::Device;
use crate::cuda::error::CudaError;
use crate::filter::parts::Job;

/// So many frames are timed at first: until the expected time of a frame is known.
const FIRST: u32 = 16;
/// After them, one frame of so many.
const PERIOD: u32 = 8;

/// The ends of the upload, the kernels and the download of a piece of a frame.
pub struct PieceEvents {
    pub uploaded: Event,
    pub processed: Event,
    pub downloaded: Event,
}

impl PieceEvents {
    /// Three events, each made by `event`.
    pub fn new(event: impl Fn() -> Result<Event, CudaError>) -> Result<Self, CudaError> {
        Ok(Self { uploaded: event()?, processed: event()?, downloaded: event()? })
    }
}

/// Events with times around the stages of one frame.
pub struct Timer {
    /// Before all else.
    pub begin: Event,
    /// Of the first piece.
    pub first: PieceEvents,
    /// Of the last piece.
    pub last: PieceEvents,
}

impl Timer {
    fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        let event = || Event::timed(device);
        Ok(Self { begin: event()?, first: PieceEvents::new(event)?, last: PieceEvents::new(event)? })
    }

    /// The events of a piece of so many: none between the first and the last one.
    pub fn of_piece(&self, piece: usize, pieces: usize) -> impl Iterator<Item = &PieceEvents> {
        let first = (piece == 0).then_some(&self.first);
        first.into_iter().chain((piece + 1 == pieces).then_some(&self.last))
    }
}

/// The timers of an engine. Decides which frames are timed.
#[derive(Default)]
pub struct Timers {
    idle: Vec<Timer>,
    /// Timers of frames that nobody waits for, the oldest first. Their times have not been read yet.
    running: VecDeque<Timer>,
    frames: u32,
    /// The job of the last frame; `None` for frames whose jobs change while their times do not.
    job: Option<Arc<Job>>,
}

impl Timers {
    /// A timer for the next frame, if that is timed. Frames of another `job` take another time.
    pub fn next(&mut self, job: Option<&Arc<Job>>, device: &Arc<Device>) -> Result<Option<Timer>, CudaError> {
        if job.map(Arc::as_ptr) != self.job.as_ref().map(Arc::as_ptr) {
            (self.job, self.frames) = (job.map(Arc::clone), 0);
        }
        let is_timed = self.frames < FIRST || self.frames.is_multiple_of(PERIOD);
        self.frames = self.frames.wrapping_add(1);
        is_timed.then(|| self.idle.pop().map_or_else(|| Timer::new(device), Ok)).transpose()
    }

    /// Takes back the timer of a frame that is done.
    pub fn put_back(&mut self, timer: Option<Timer>) {
        self.idle.extend(timer);
    }

    /// Takes the timer of a frame that nobody waits for.
    pub fn leave_running(&mut self, timer: Timer) {
        self.running.push_back(timer);
    }

    /// How long the kernels of the oldest frame took that nobody waits for, if it is done.
    pub fn read(&mut self) -> Option<Duration> {
        let Timer { begin, last, .. } = self.running.front()?;
        if !last.processed.is_done().ok()? {
            return None;
        }
        let time = begin.elapsed_until(&last.processed).ok();
        self.idle.extend(self.running.pop_front());
        time
    }
}
