// SPDX-License-Identifier: MPL-2.0
//! The CUDA engine: each frame through pinned and device memory on a stream of its own, one wait a frame.
//!
//! Rooms: `device` (the persistent context, or somebody else's), `kernels` (the prebuilt images), `choice` (which of them
//! serve), `special` (kernels compiled for one size while frames go on), with `nvrtc` (the compiler) and `disk` (what it
//! compiled before), `launch`, `alpha` and `work` (what is launched; pure), `flight` (a frame from and to host memory, on its
//! way) with `bands` (pure), `slot` (its memory), `staging` and `wait`, `there` (frames that stay on the device), `pinned`,
//! `driver` (the driver's objects), `error`.

pub mod alpha;
mod bands;
mod choice;
pub mod device;
mod disk;
pub mod driver;
mod error;
mod flight;
mod kernels;
pub mod launch;
pub mod nvrtc;
mod pinned;
mod slot;
mod special;
mod staging;
mod there;
pub mod wait;
pub mod work;

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::frame::{DeviceFrame, Source, Target};
use crate::plan::Job;
use alpha::Place;
use choice::Choice;
use device::{Device, Foreign};
use driver::Stream;
pub use error::{CudaError, Memory, Status};
use flight::Lane;
pub use flight::{Flight, SubmitError, Times};
pub use kernels::Image;
use launch::Passes;
pub use pinned::{PinnedBytes, PinnedSource, Registered};
pub use special::{Made, Origin, Progress};
use special::{Shape, Share};
pub use there::Queued;
use there::There;
use work::Work;

/// A radius that has stayed for so long is worth a kernel of its own; a sweep passes through many.
const STEADY: Duration = Duration::from_millis(250);

/// The special kernels that would serve the frames at hand.
struct Wish {
    shapes: Vec<Shape>,
    since: Instant,
    /// Those that the device has been asked for. `None` before.
    asked: Option<Vec<Shape>>,
}

impl Wish {
    /// Has special kernels made for work that stays as it is.
    fn consider(&mut self, choice: &Choice, work: &Work) {
        let shapes = || work.groups.iter().filter_map(|group| choice.shape(group));
        if !shapes().eq(self.shapes.iter().copied()) {
            self.give_up(&choice.device);
            *self = Self { shapes: shapes().collect(), since: Instant::now(), asked: None };
        } else if self.asked.is_none() && self.since.elapsed() >= STEADY {
            let wanted = |shape: &Shape| choice.device.specials().want(&choice.device, *shape);
            self.asked = Some(self.shapes.iter().copied().filter(wanted).collect());
        }
    }

    fn give_up(&self, device: &Device) {
        for shape in self.asked.iter().flatten() {
            device.specials().give_up(shape);
        }
    }
}

/// Blurs frames on a CUDA device. Holds its streams and the memory of frames between frames.
pub struct CudaEngine {
    choice: Choice,
    /// In how many bands frames go, if that is not to be as measured.
    bands: Option<usize>,
    /// The kernels of the last frame.
    serving: &'static str,
    wish: Wish,
    held: ManuallyDrop<Held>,
    _share: Share,
}

/// What the engine owns in the device's context.
struct Held {
    lane: Lane,
    /// Made with the first frame that is on the device.
    there: Option<There>,
}

impl CudaEngine {
    /// On the device of this number.
    pub fn new(id: u32) -> Result<Self, CudaError> {
        Self::with(id, Image::Best, Passes::Best)
    }

    /// With kernels of another image and in other passes than measured best. The bytes are the same.
    pub fn with(id: u32, image: Image, passes: Passes) -> Result<Self, CudaError> {
        Self::on(&Device::open(id)?, image, passes)
    }

    /// In a context that somebody else made.
    pub fn within(foreign: Foreign) -> Result<Self, CudaError> {
        Self::on(&Device::adopt(foreign)?, Image::Best, Passes::Best)
    }

    fn on(device: &Arc<Device>, image: Image, passes: Passes) -> Result<Self, CudaError> {
        let serving = device.kernels(image)?.name();
        let _current = device.enter()?;
        let held = Held { lane: Lane::new(device)?, there: None };
        let specialises = image == Image::Best && passes == Passes::Best;
        let wish = Wish { shapes: Vec::new(), since: Instant::now(), asked: None };
        Ok(Self {
            bands: None,
            serving,
            wish,
            held: ManuallyDrop::new(held),
            _share: Share::new(Arc::clone(device)),
            choice: Choice { device: Arc::clone(device), image, passes, specialises },
        })
    }

    /// With the prebuilt kernels alone.
    pub fn general(mut self) -> Self {
        self.choice.specialises = false;
        self
    }

    /// With frames cut into so many bands on their way, at least one. The bytes are the same.
    pub fn in_bands(mut self, count: usize) -> Self {
        self.bands = Some(count);
        self
    }

    /// Where it blurs.
    pub fn device(&self) -> &Arc<Device> {
        &self.choice.device
    }

    /// Memory that its frames may come and go in without a copy by the CPU.
    pub fn pinned(&self) -> PinnedSource {
        PinnedSource(Arc::clone(&self.choice.device))
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

    fn serves(&mut self, special: bool) {
        let prebuilt = || self.choice.kernels().map_or(self.serving, kernels::Kernels::name);
        self.serving = if special { self.choice.device.special_name() } else { prebuilt() };
    }

    /// Sends a frame from `src` to `dst`, which [`crate::frame::validate`] has found fit for each other, on its way, blurred by
    /// the jobs made for its planes. Frames arrive in the order in which they begin. `direct`: memory that is pinned is used
    /// where it is; else all goes through staging buffers.
    ///
    /// # Safety
    /// What the two speak of lives, and is the device's alone, until the flight has been finished or dropped; what is on a
    /// device is on this one.
    pub unsafe fn begin(
        &mut self,
        src: &Source,
        dst: &mut Target,
        jobs: &[Job],
        direct: bool,
    ) -> Result<Flight, SubmitError> {
        debug_assert!(crate::frame::validate(src, dst).is_ok());
        let _current = self.choice.device.enter()?;
        let Self { choice, wish, held, .. } = self;
        // SAFETY: passed on.
        let flight = unsafe {
            held.lane.begin(choice, (src, dst), direct, jobs, self.bands, |work| wish.consider(choice, work))
        }?;
        self.serves(flight.is_special());
        Ok(flight)
    }

    /// Waits for the oldest frame in flight. On an error its destination is not to be used, and the flight is to be settled.
    pub fn finish(&mut self, flight: &mut Flight) -> Result<Times, CudaError> {
        let device = Arc::clone(&self.choice.device);
        let _current = device.enter()?;
        self.held.lane.finish(flight)
    }

    /// Queues a frame that is on the device and stays there, and does not wait where both of its frames have streams.
    ///
    /// # Safety
    /// The two are on this device, in its context, and live until what is queued is done.
    pub unsafe fn blur_there(
        &mut self,
        src: &DeviceFrame,
        dst: &DeviceFrame,
        jobs: &[Job],
    ) -> Result<Queued, SubmitError> {
        let _current = self.choice.device.enter()?;
        let Self { choice, wish, held, .. } = self;
        let Held { lane, there } = &mut **held;
        let there = match there {
            Some(there) => there,
            none => none.insert(There::new(choice.device.id())?),
        };
        // SAFETY: passed on.
        let queued = unsafe { there.blur(choice, lane.stream(), src, dst, jobs, |work| wish.consider(choice, work)) }?;
        self.serves(queued.special);
        Ok(queued)
    }

    /// Device memory that jobs need beside planes that are in the device's memory already, in bytes.
    pub fn extra_bytes(&self, jobs: &[Job], planes: &[(Place, Place)]) -> usize {
        self.choice.extra_bytes(&Work::new(jobs, planes, 0, None))
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
        unsafe { self.choice.queue(stream, &Work::new(jobs, planes, extra, None), extra) }.map(drop)
    }
}

impl Drop for CudaEngine {
    fn drop(&mut self) {
        self.wish.give_up(&self.choice.device);
        // Freeing device memory takes a current context. Without one nothing can be freed, and nothing is.
        if let Ok(_current) = self.choice.device.enter() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.held) };
        }
    }
}
