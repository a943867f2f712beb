// SPDX-License-Identifier: MPL-2.0
//! Measures how long frames take on the device. Timed events cost the device up to 10 µs a frame. For a frame that stays on the
//! device, their calls take the calling thread half as long as all other calls. So only some frames are timed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::cuda::driver::Event;
use crate::cuda::driver::device::Device;
use crate::cuda::error::CudaError;
use crate::filter::parts::Job;

/// The number of frames that are timed at first, until the expected time of a frame is known.
const FIRST: u32 = 16;
/// After these frames, one frame in this many is timed.
const PERIOD: u32 = 8;

/// The events at the end of the upload, of the kernels and of the download of a piece.
pub struct PieceEvents {
    pub uploaded: Event,
    pub processed: Event,
    pub downloaded: Event,
}

impl PieceEvents {
    /// Three events that `event` makes.
    pub fn new(event: impl Fn() -> Result<Event, CudaError>) -> Result<Self, CudaError> {
        Ok(Self { uploaded: event()?, processed: event()?, downloaded: event()? })
    }
}

/// The timed events around the stages of one frame.
pub struct Timer {
    /// The event before all work of the frame.
    pub begin: Event,
    /// The events of the first piece.
    pub first: PieceEvents,
    /// The events of the last piece.
    pub last: PieceEvents,
}

impl Timer {
    fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        let event = || Event::timed(device);
        Ok(Self { begin: event()?, first: PieceEvents::new(event)?, last: PieceEvents::new(event)? })
    }

    /// The events of piece `piece` of `pieces`. Pieces between the first and the last one have none.
    pub fn of_piece(&self, piece: usize, pieces: usize) -> impl Iterator<Item = &PieceEvents> {
        let first = (piece == 0).then_some(&self.first);
        first.into_iter().chain((piece + 1 == pieces).then_some(&self.last))
    }
}

/// The timers of an engine. They decide which frames are timed.
#[derive(Default)]
pub struct Timers {
    idle: Vec<Timer>,
    /// Timers of frames that need no completion, the oldest first. Their times have not been read yet.
    running: VecDeque<Timer>,
    frames: u32,
    /// The job of the last frame. `None` for covers, whose jobs change while their times do not, and for frames that stay on the
    /// device.
    job: Option<Arc<Job>>,
}

impl Timers {
    /// Returns a timer for the next frame, if that is timed. Counting starts again when the `job` changes, because the time
    /// changes too.
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

    /// Takes the timer of a frame that needs no completion.
    pub fn leave_running(&mut self, timer: Timer) {
        self.running.push_back(timer);
    }

    /// Returns the time that the kernels took in the oldest frame of `running`, if that frame is done.
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
