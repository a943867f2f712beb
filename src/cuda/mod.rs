// SPDX-License-Identifier: MPL-2.0
//! The CUDA engine: each frame through pinned and device memory on a stream of its own, one wait a frame.
//!
//! Rooms: `device` (the persistent context), `kernels` (the prebuilt images), `special` (kernels compiled for one size while
//! frames go on), with `nvrtc` (the compiler) and `disk` (what it compiled before), `launch`, `alpha` and `work` (what is
//! launched; pure), `slot` (the memory of a frame on its way), `wait`, `driver` (the driver's objects), `error`, `log`.

pub mod alpha;
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
use device::Device;
use driver::{Event, Function, Stream};
pub use error::{CudaError, Memory, Status};
pub use kernels::Image;
use kernels::Kernels;
use launch::{Group, Launch, Passes, PlaneBlur};
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
    device: &'static Device,
    kernels: &'static Kernels,
    passes: Passes,
    /// Whether kernels may be made for single sizes.
    specialises: bool,
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
            device,
            kernels,
            passes,
            specialises,
            serving: kernels.name(),
            wish,
            lane: ManuallyDrop::new(lane),
            _share: Share::new(device),
        })
    }

    /// With the prebuilt kernels alone.
    pub fn general(mut self) -> Self {
        self.specialises = false;
        self
    }

    /// Where it blurs.
    pub fn device(&self) -> &'static Device {
        self.device
    }

    /// The kernels in use: `general-` and the architecture they were built for or `ptx`, or `special-` and the device's
    /// architecture.
    pub fn kernel(&self) -> &'static str {
        self.serving
    }

    /// How far the device is with making special kernels.
    pub fn progress(&self) -> Progress {
        self.device.specials().progress()
    }

    /// What a special kernel for these planes is made for, if there is to be one.
    fn shape(&self, group: &Group) -> Option<Shape> {
        let may = self.specialises && group.fits_fused(self.device.limits());
        Shape::of(group).filter(|_| may)
    }

    /// How planes are blurred now, with the special kernel if there is one.
    fn way(&self, group: &Group) -> Way {
        let special = self.shape(group).and_then(|shape| self.device.specials().get(&shape));
        (if special.is_some() { Passes::Special } else { self.passes }, special)
    }

    /// Has special kernels made for frames that stay as they are.
    fn wish(&mut self, groups: &[Group]) {
        let shapes: Vec<Shape> = groups.iter().filter_map(|group| self.shape(group)).collect();
        if self.wish.shapes != shapes {
            self.give_up();
            self.wish = Wish { shapes, since: Instant::now(), asked: None };
        } else if self.wish.asked.is_none() && self.wish.since.elapsed() >= STEADY {
            let specials = self.device.specials();
            let shapes = self.wish.shapes.iter().copied();
            self.wish.asked = Some(shapes.filter(|shape| specials.want(self.device, *shape)).collect());
        }
    }

    fn give_up(&self) {
        for shape in self.wish.asked.iter().flatten() {
            self.device.specials().give_up(shape);
        }
    }

    /// Blurs `src` into `dst`, which [`crate::frame::validate`] has found fit for each other, by the jobs made for their
    /// planes. On an error nothing is written to `dst`.
    pub fn blur(&mut self, src: &Frame, dst: &mut FrameMut, jobs: &[Job]) -> Result<Times, CudaError> {
        debug_assert!(crate::frame::validate(src, dst).is_ok() && jobs.iter().all(|job| job.plane < src.len()));
        let _current = self.device.enter()?;
        let limits = self.device.limits();
        let Lane { slot, stream, wait, .. } = &mut *self.lane;
        if !slot.as_ref().is_some_and(|slot| slot.is_for(src)) {
            // What is there goes first, so that there is never the memory of two frames.
            *slot = None;
            wait.forget();
            *slot = Some(Slot::new(src.iter().map(|plane| plane.layout).collect(), stream)?);
        }
        let planes: Vec<_> = slot.iter().flat_map(Slot::planes).collect();
        // Once for the sizes, then with the addresses.
        let sizes = Work::new(jobs, &planes, 0);
        self.wish(&sizes.groups);
        let ways: Vec<Way> = sizes.groups.iter().map(|group| self.way(group)).collect();
        let scratch_bytes = sizes.groups.iter().zip(&ways).map(|(group, way)| group.scratch_bytes(way.0, limits)).max();
        let special = ways.iter().all(|(_, special)| special.is_some());
        self.serving = if special { self.device.special_name() } else { self.kernels.name() };

        let Lane { slot, stream, marks, wait } = &mut *self.lane;
        let slot = slot.as_mut().expect("put there above");
        let extra = slot.reserve_scratch(sizes.product_bytes + scratch_bytes.unwrap_or(0), stream)?;
        let work = Work::new(jobs, &planes, extra);
        let scratch = extra + work.product_bytes as u64;
        slot.put(src);

        let begun = Instant::now();
        let [begin, uploaded, blurred, end] = &*marks;
        let queue = || {
            begin.record(stream)?;
            let (from, to) = slot.way_in();
            // SAFETY: all are of the slot's size. Whatever comes of it, the stream is waited for below.
            unsafe { stream.upload(from, to, slot.bytes()) }?;
            uploaded.record(stream)?;
            let target = Target { device: self.device, kernels: self.kernels, stream };
            // SAFETY: the planes are in the slot, products and scratch behind each other in what was reserved for them; the
            // groups take turns in the scratch.
            unsafe {
                target.launch_all(&work.before, None)?;
                for (group, (passes, special)) in work.groups.iter().zip(&ways) {
                    target.launch_all(&group.launches(scratch, *passes, limits), *special)?;
                }
                target.launch_all(&work.after, None)?;
            }
            blurred.record(stream)?;
            let (from, to) = slot.way_out();
            // SAFETY: as above.
            unsafe { stream.download(from, to, slot.bytes()) }?;
            end.record(stream)
        };
        if let Err(error) = queue().and_then(|()| wait.until(begun, || end.is_done())) {
            // What was queued before the failure may still be at work in the slot.
            let _ = stream.synchronize();
            return Err(error);
        }
        let times =
            Times { upload: begin.until(uploaded)?, kernel: uploaded.until(blurred)?, download: blurred.until(end)? };
        wait.learn(times.upload + times.kernel + times.download);
        slot.take(dst);
        Ok(times)
    }

    /// Queues the blur of planes that are in the device's memory already; returns without waiting.
    ///
    /// # Safety
    /// The device's context is current, the planes lie where `planes` says and live until the stream has done the work,
    /// and the scratch is as large as [`CudaEngine::scratch_bytes`] says and used by this stream alone.
    pub unsafe fn queue_planes(&self, stream: &Stream, planes: &[PlaneBlur], scratch: u64) -> Result<(), CudaError> {
        let target = Target { device: self.device, kernels: self.kernels, stream };
        for group in launch::groups(planes.iter().cloned()) {
            let (passes, special) = self.way(&group);
            // SAFETY: passed on.
            unsafe { target.launch_all(&group.launches(scratch, passes, self.device.limits()), special) }?;
        }
        Ok(())
    }

    /// Device memory that the blur of such planes needs beside them, in bytes.
    pub fn scratch_bytes(&self, planes: &[PlaneBlur]) -> usize {
        let groups = launch::groups(planes.iter().cloned());
        let bytes = |group: &Group| group.scratch_bytes(self.way(group).0, self.device.limits());
        groups.iter().map(bytes).max().unwrap_or(0)
    }
}

/// In how many launches planes are blurred, and the special kernel for them.
type Way = (Passes, Option<Function>);

/// Where launches go.
#[derive(Clone, Copy)]
struct Target<'a> {
    device: &'a Device,
    kernels: &'a Kernels,
    stream: &'a Stream,
}

impl Target<'_> {
    /// Queues launches; a special kernel, if there is one, is what all of them are for.
    ///
    /// # Safety
    /// As [`CudaEngine::queue_planes`].
    unsafe fn launch_all(&self, launches: &[Launch], special: Option<Function>) -> Result<(), CudaError> {
        for launch in launches {
            let (needed, limit) = (launch.shared_bytes, self.device.limits().shared_bytes);
            if needed > limit {
                return Err(CudaError::SharedMemory { needed, limit, id: self.device.id() });
            }
            let function = special.unwrap_or_else(|| self.kernels.function(launch.kernel));
            // SAFETY: passed on; the function is the one the launch is for.
            unsafe { self.stream.launch(function, launch) }?;
        }
        Ok(())
    }
}

impl Drop for CudaEngine {
    fn drop(&mut self) {
        self.give_up();
        // Freeing device memory takes a current context. Without one nothing can be freed, and nothing is.
        if let Ok(_current) = self.device.enter() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.lane) };
        }
    }
}
