// SPDX-License-Identifier: MPL-2.0
//! Frames that are on the device and stay there: the kernels are queued on the frame's own stream, and nobody waits.

use std::time::Duration;

use super::alpha::Place;
use super::choice::Choice;
use super::driver::{DeviceMemory, Event, Stream};
use super::error::CudaError;
use super::flight::SubmitError;
use super::work::Work;
use crate::frame::DeviceFrame;
use crate::plan::Job;

/// Frames whose times can be under way at once; of frames beyond them the time is not taken.
const CLOCKS: usize = 4;
/// Of so many frames the time of one is taken: it costs as much as half of what else is queued.
const TIMED: usize = 8;

/// What such frames need besides.
pub struct There {
    extra: Option<DeviceMemory>,
    /// The stream that used it last, and when it will have done so.
    used: Option<usize>,
    end_of_use: Event,
    /// How far another stream has to be.
    order: Event,
    /// From where to where the kernels of a frame go, and whether it has not been asked for yet.
    clocks: Vec<(Event, Event, bool)>,
    next: usize,
    frames: usize,
}

impl Drop for There {
    fn drop(&mut self) {
        if self.used.is_some() {
            // A failure has been told by the work that failed.
            let _ = self.end_of_use.synchronize();
        }
    }
}

/// What became of a frame.
pub struct Queued {
    /// Whether special kernels do all of it.
    pub special: bool,
    /// Whether it has been waited for. Else it will be done when its destination's stream has come so far.
    pub done: bool,
    /// How long the kernels of an earlier frame took.
    pub kernel: Option<Duration>,
}

impl There {
    /// On the device whose context is current.
    pub fn new(id: u32) -> Result<Self, CudaError> {
        let clock = |_| Ok((Event::new(id)?, Event::new(id)?, false));
        let clocks = (0..CLOCKS).map(clock).collect::<Result<_, CudaError>>()?;
        Ok(Self {
            extra: None,
            used: None,
            end_of_use: Event::new(id)?,
            order: Event::new(id)?,
            clocks,
            next: 0,
            frames: 0,
        })
    }

    /// Queues a frame on the destination's stream, the source's, or `own`; waits only where one of them has none. Whatever
    /// is queued later on the source's stream, such as the writing of the next frame into it, waits for this one. `consider`
    /// sees what is queued.
    ///
    /// # Safety
    /// The context is current. The planes are in the device's memory, the streams are of its context, and both outlive
    /// what is queued.
    pub unsafe fn blur(
        &mut self,
        choice: &Choice,
        own: &Stream,
        src: &DeviceFrame,
        dst: &DeviceFrame,
        jobs: &[Job],
        consider: impl FnOnce(&Work),
    ) -> Result<Queued, SubmitError> {
        let id = choice.device.id();
        // SAFETY: as above.
        let borrowed = |handle: usize| unsafe { Stream::borrowed(handle, id) };
        let stream = borrowed(dst.stream.or(src.stream).unwrap_or(own.raw() as usize));
        let handle = stream.raw() as usize;
        let planes: Vec<(Place, Place)> = src.places().into_iter().zip(dst.places()).collect();

        let at = |extra: &Option<DeviceMemory>| extra.as_ref().map_or(0, DeviceMemory::address);
        let mut work = Work::new(jobs, &planes, at(&self.extra), None);
        consider(&work);
        let bytes = choice.extra_bytes(&work);
        if bytes > self.extra.as_ref().map_or(0, DeviceMemory::bytes) {
            if self.used.take().is_some() {
                self.end_of_use.synchronize()?;
            }
            self.extra = None;
            self.extra = Some(DeviceMemory::new(bytes, &stream)?);
            work = Work::new(jobs, &planes, at(&self.extra), None);
        } else if bytes > 0 && self.used.is_some_and(|used| used != handle) {
            stream.wait(&self.end_of_use)?;
        }

        let apart = src.stream.filter(|src| *src != handle).map(borrowed);
        if let Some(source) = &apart {
            self.order.record(source)?;
            stream.wait(&self.order)?;
        }
        self.frames += 1;
        let due = self.frames % TIMED == 1;
        let kernel = if due { self.take_time() } else { None };
        let (begin, end, running) = &mut self.clocks[self.next];
        let timed = due && !*running;
        if timed {
            begin.record(&stream)?;
        }
        let queued = (|| {
            // SAFETY: the planes are the frames'; the rest is there, and this stream's alone.
            let special = unsafe { choice.queue(&stream, &work, at(&self.extra)) }?;
            if timed {
                end.record(&stream)?;
                *running = true;
                self.next = (self.next + 1) % CLOCKS;
            }
            if bytes > 0 {
                self.end_of_use.record(&stream)?;
                self.used = Some(handle);
            }
            if let Some(source) = &apart {
                self.order.record(&stream)?;
                source.wait(&self.order)?;
            }
            let done = src.stream.is_none() || dst.stream.is_none();
            if done {
                stream.synchronize()?;
            }
            Ok((special, done))
        })();
        let (special, done) = queued.map_err(|error: CudaError| {
            // What was queued before the failure may still be at work on the frames.
            SubmitError { error, settled: stream.synchronize().is_ok() }
        })?;
        Ok(Queued { special, done, kernel })
    }

    /// The time of the oldest frame whose time has not been taken, if it is done.
    fn take_time(&mut self) -> Option<Duration> {
        let oldest = (0..CLOCKS).map(|ahead| (self.next + ahead) % CLOCKS).find(|clock| self.clocks[*clock].2)?;
        let (begin, end, running) = &mut self.clocks[oldest];
        if !end.is_done().ok()? {
            return None;
        }
        *running = false;
        begin.until(end).ok()
    }
}
