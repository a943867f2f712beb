// SPDX-License-Identifier: MPL-2.0
//! The CUDA engine: each frame through pinned and device memory on a stream of its own, one wait a frame.
//!
//! Rooms: `device` (the persistent context), `kernels` (the prebuilt images), `choice` (which of them serve), `special`
//! (kernels compiled for one size while frames go on), with `nvrtc` (the compiler) and `disk` (what it compiled before), `launch`, `alpha` and `work` (what is
//! launched; pure), `slot` (the memory of a frame on its way), `wait`, `driver` (the driver's objects), `error`, `log`.

pub mod alpha;
mod choice;
pub mod device;
mod disk;
pub mod driver;
mod error;
mod kernels;
pub mod launch;
pub mod log;
pub mod nvrtc;
mod slot;
mod special;
pub mod wait;
pub mod work;

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use crate::frame::{Frame, FrameMut};
use crate::plan::Job;
use alpha::Place;
use choice::Choice;
use device::Device;
use driver::{Event, Stream};
pub use error::{CudaError, Memory, Status};
pub use kernels::Image;
use launch::{Group, Passes};
use slot::Slot;
pub use special::{Made, Origin, Progress};
use special::{Shape, Share};
use wait::Wait;
use work::Work;

/// How long the stages of one frame took on the device, by its own clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Host to device.
    pub upload: Duration,
    /// The kernels.
    pub kernel: Duration,
    /// Device to host.
    pub download: Duration,
}

/// A radius that has stayed for so long is worth a kernel of its own; a sweep passes through many.
const STEADY: Duration = Duration::from_millis(250);

/// The special kernels that would serve the frames at hand.
struct Wish {
    shapes: Vec<Shape>,
    since: Instant,
    /// Those that the device has been asked for. `None` before.
    asked: Option<Vec<Shape>>,
}

/// Blurs frames on a CUDA device. Holds its stream and the memory of a frame between frames.
pub struct CudaEngine {
    choice: Choice,
    /// The kernels of the last frame.
    serving: &'static str,
    wish: Wish,
    lane: ManuallyDrop<Lane>,
    _share: Share,
}

/// What the engine owns in the device's context.
struct Lane {
    slot: Option<Slot>,
    stream: Stream,
    /// Where a frame's upload, kernels and download begin, and where it ends.
    marks: [Event; 4],
    wait: Wait,
}

impl CudaEngine {
    /// On the device of this number.
    pub fn new(id: u32) -> Result<Self, CudaError> {
        Self::with(id, Image::Best, Passes::Best)
    }

    /// With kernels of another image and in other passes than measured best. The bytes are the same.
    pub fn with(id: u32, image: Image, passes: Passes) -> Result<Self, CudaError> {
        let device = Device::open(id)?;
        let kernels = device.kernels(image)?;
        let _current = device.enter()?;
        let stream = Stream::new(id)?;
        let marks = [Event::new(id)?, Event::new(id)?, Event::new(id)?, Event::new(id)?];
        let lane = Lane { slot: None, stream, marks, wait: Wait::default() };
        let specialises = image == Image::Best && passes == Passes::Best;
        let wish = Wish { shapes: Vec::new(), since: Instant::now(), asked: None };
        Ok(Self {
            choice: Choice { device, kernels, passes, specialises },
            serving: kernels.name(),
            wish,
            lane: ManuallyDrop::new(lane),
            _share: Share::new(device),
        })
    }

    /// With the prebuilt kernels alone.
    pub fn general(mut self) -> Self {
        self.choice.specialises = false;
        self
    }

    /// Where it blurs.
    pub fn device(&self) -> &'static Device {
        self.choice.device
    }

    /// The kernels in use: `general-` and the architecture they were built for or `ptx`, or `special-` and the device's
    /// architecture.
    pub fn kernel(&self) -> &'static str {
        self.serving
    }

    /// How far the device is with making special kernels.
    pub fn progress(&self) -> Progress {
        self.choice.device.specials().progress()
    }

    /// Has special kernels made for frames that stay as they are.
    fn wish(&mut self, groups: &[Group]) {
        let shapes: Vec<Shape> = groups.iter().filter_map(|group| self.choice.shape(group)).collect();
        if self.wish.shapes != shapes {
            self.give_up();
            self.wish = Wish { shapes, since: Instant::now(), asked: None };
        } else if self.wish.asked.is_none() && self.wish.since.elapsed() >= STEADY {
            let specials = self.choice.device.specials();
            let shapes = self.wish.shapes.iter().copied();
            self.wish.asked = Some(shapes.filter(|shape| specials.want(self.choice.device, *shape)).collect());
        }
    }

    fn give_up(&self) {
        for shape in self.wish.asked.iter().flatten() {
            self.choice.device.specials().give_up(shape);
        }
    }

    /// Blurs `src` into `dst`, which [`crate::frame::validate`] has found fit for each other, by the jobs made for their
    /// planes. On an error nothing is written to `dst`.
    pub fn blur(&mut self, src: &Frame, dst: &mut FrameMut, jobs: &[Job]) -> Result<Times, CudaError> {
        debug_assert!(crate::frame::validate(src, dst).is_ok() && jobs.iter().all(|job| job.plane < src.len()));
        let choice = self.choice;
        let _current = choice.device.enter()?;
        let Lane { slot, stream, wait, .. } = &mut *self.lane;
        if !slot.as_ref().is_some_and(|slot| slot.is_for(src)) {
            // What is there goes first, so that there is never the memory of two frames.
            *slot = None;
            wait.forget();
            *slot = Some(Slot::new(src.iter().map(|plane| plane.layout).collect(), stream)?);
        }
        let planes: Vec<_> = slot.iter().flat_map(Slot::planes).collect();
        let sizes = Work::new(jobs, &planes, 0);
        self.wish(&sizes.groups);

        let Lane { slot, stream, marks: [begin, uploaded, blurred, end], wait } = &mut *self.lane;
        let slot = slot.as_mut().expect("put there above");
        let extra = slot.reserve_extra(choice.extra_bytes(&sizes), stream)?;
        slot.put(src);
        let begun = Instant::now();
        let mut queue = || {
            begin.record(stream)?;
            let (from, to) = slot.way_in();
            // SAFETY: all are of the slot's size. Whatever comes of it, the stream is waited for below.
            unsafe { stream.upload(from, to, slot.bytes()) }?;
            uploaded.record(stream)?;
            // SAFETY: the planes are in the slot, and so is what they need besides.
            let special = unsafe { choice.queue(stream, jobs, &planes, extra) }?;
            blurred.record(stream)?;
            let (from, to) = slot.way_out();
            // SAFETY: as above.
            unsafe { stream.download(from, to, slot.bytes()) }?;
            end.record(stream)?;
            wait.until(begun, || end.is_done())?;
            Ok(special)
        };
        let special = queue().inspect_err(|_: &CudaError| {
            // What was queued before the failure may still be at work in the slot.
            let _ = stream.synchronize();
        })?;
        self.serving = if special { choice.device.special_name() } else { choice.kernels.name() };
        let times =
            Times { upload: begin.until(uploaded)?, kernel: uploaded.until(blurred)?, download: blurred.until(end)? };
        wait.learn(times.upload + times.kernel + times.download);
        slot.take(dst);
        Ok(times)
    }

    /// Device memory that jobs need beside planes that are in the device's memory already, in bytes.
    pub fn extra_bytes(&self, jobs: &[Job], planes: &[(Place, Place)]) -> usize {
        self.choice.extra_bytes(&Work::new(jobs, planes, 0))
    }

    /// Queues the jobs on such planes; returns without waiting.
    ///
    /// # Safety
    /// The device's context is current; sources and destinations of all planes lie where `planes` says, and with
    /// [`CudaEngine::extra_bytes`] from `extra` on, which starts on 256 bytes, they live and are this stream's alone until
    /// it has done the work.
    pub unsafe fn queue(
        &self,
        stream: &Stream,
        jobs: &[Job],
        planes: &[(Place, Place)],
        extra: u64,
    ) -> Result<(), CudaError> {
        // SAFETY: passed on.
        unsafe { self.choice.queue(stream, jobs, planes, extra) }.map(drop)
    }
}

impl Drop for CudaEngine {
    fn drop(&mut self) {
        self.give_up();
        // Freeing device memory takes a current context. Without one nothing can be freed, and nothing is.
        if let Ok(_current) = self.choice.device.enter() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.lane) };
        }
    }
}
