// SPDX-License-Identifier: MPL-2.0
//! The CUDA engine: each frame through pinned and device memory on a stream of its own, one wait a frame.
//!
//! Rooms: `device` (the persistent context), `kernels` (the prebuilt images), `choice` (which of them serve), `special`
//! (kernels compiled for one size while frames go on), with `nvrtc` (the compiler) and `disk` (what it compiled before), `launch`, `alpha` and `work` (what is
//! launched; pure), `slot` (the memory of a frame on its way), `wait`, `driver` (the driver's objects), `error`, `log`.

pub mod alpha;
mod bands;
mod choice;
pub mod device;
mod disk;
pub mod driver;
mod error;
mod kernels;
pub mod launch;
pub mod log;
pub mod nvrtc;
mod pinned;
mod slot;
mod special;
mod staging;
pub mod wait;
pub mod work;

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::frame::{Frame, FrameMut};
use crate::plan::Job;
use crate::threads::Threads;
use alpha::Place;
use choice::Choice;
use device::Device;
use driver::{Event, Stream};
pub use error::{CudaError, Memory, Status};
pub use kernels::Image;
use launch::{Group, Passes};
pub use pinned::{PinnedBytes, PinnedSource};
use slot::Slot;
pub use special::{Made, Origin, Progress};
use special::{Shape, Share};
use staging::Chunks;
use wait::Wait;
use work::Work;

/// How long the stages of one frame took on the device, by its own clock, each from its first band to its last; in a frame of
/// several bands they overlap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Host to device.
    pub upload: Duration,
    /// The kernels.
    pub kernel: Duration,
    /// Device to host.
    pub download: Duration,
    /// Bytes that the CPU copied.
    pub bytes_copied: usize,
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
    /// In how many bands frames go, if that is not to be as measured.
    bands: Option<usize>,
    /// The kernels of the last frame.
    serving: &'static str,
    wish: Wish,
    lane: ManuallyDrop<Lane>,
    _share: Share,
}

/// What the engine owns in the device's context.
struct Lane {
    slot: Option<Slot>,
    /// What is uploaded, blurred, downloaded.
    streams: [Stream; 3],
    /// Where a frame begins, and where each band of it has been uploaded, blurred, downloaded.
    begin: Event,
    ends: Vec<[Event; 3]>,
    wait: Wait,
    /// They copy from and to ordinary memory.
    threads: Arc<Threads>,
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
        let threads = Threads::shared().unwrap_or_default();
        let streams = [Stream::new(id)?, Stream::new(id)?, Stream::new(id)?];
        let (begin, wait) = (Event::new(id)?, Wait::default());
        let lane = Lane { slot: None, streams, begin, ends: Vec::new(), wait, threads };
        let specialises = image == Image::Best && passes == Passes::Best;
        let wish = Wish { shapes: Vec::new(), since: Instant::now(), asked: None };
        Ok(Self {
            choice: Choice { device, kernels, passes, specialises },
            bands: None,
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

    /// With frames cut into so many bands on their way, at least one. The bytes are the same.
    pub fn in_bands(mut self, count: usize) -> Self {
        self.bands = Some(count);
        self
    }

    /// Where it blurs.
    pub fn device(&self) -> &'static Device {
        self.choice.device
    }

    /// Memory that its frames may come and go in without a copy by the CPU.
    pub fn pinned(&self) -> PinnedSource {
        PinnedSource(self.choice.device)
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
    /// planes. On an error `dst` is not to be used.
    pub fn blur(&mut self, src: &Frame, dst: &mut FrameMut, jobs: &[Job]) -> Result<Times, CudaError> {
        debug_assert!(crate::frame::validate(src, dst).is_ok() && jobs.iter().all(|job| job.plane < src.len()));
        let choice = self.choice;
        let _current = choice.device.enter()?;
        let Lane { slot, streams: [_, run, _], wait, .. } = &mut *self.lane;
        if !slot.as_ref().is_some_and(|slot| slot.is_for(src)) {
            // What is there goes first, so that there is never the memory of two frames.
            *slot = None;
            wait.forget();
            *slot = Some(Slot::new(src.iter().map(|plane| plane.layout).collect(), run)?);
        }
        let planes: Vec<_> = slot.iter().flat_map(Slot::planes).collect();
        let layouts: Vec<_> = src.iter().map(|plane| plane.layout).collect();
        let bands = bands::bands(&layouts, jobs, self.bands);
        let sizes = Work::new(jobs, &planes, 0, None);
        self.wish(&sizes.groups);

        let Lane { slot, streams, begin, ends, wait, threads } = &mut *self.lane;
        let slot = slot.as_mut().expect("put there above");
        let extra = slot.reserve_extra(choice.extra_bytes(&sizes), &streams[1])?;
        while ends.len() < bands.len() {
            let id = choice.device.id();
            ends.push([Event::new(id)?, Event::new(id)?, Event::new(id)?]);
        }
        let (slot, ends) = (&*slot, &ends[..bands.len()]);
        // What goes in one band has nothing to overlap with, and streams are late to hear of each other.
        let [up, run, down] = if bands.len() == 1 { [&streams[1]; 3] } else { streams.each_ref() };
        let mut special = true;
        // The device takes pinned frames from where they are and puts them where they are to go.
        let direct_in = src.iter().all(|plane| driver::is_pinned(plane.data.as_ptr(), plane.data.len()));
        let direct_out = dst.iter().all(|plane| driver::is_pinned(plane.data.as_ptr(), plane.data.len()));
        let row_bytes = slot.row_bytes();
        let to: Vec<(usize, usize)> =
            dst.iter_mut().map(|plane| (plane.data.as_mut_ptr() as usize, plane.pitch)).collect();
        let queue = |index: usize| {
            let (band, [uploaded, blurred, downloaded]) = (&bands[index], &ends[index]);
            let (staged, device) = slot.way_in();
            for (plane, rows) in band.upload.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
                let (from, pitch) = (src[plane].data.as_ptr(), src[plane].pitch);
                let first = rows.start as usize;
                // SAFETY: the rows are in the frame and in the slot. Whatever comes of it, the streams are waited for below.
                unsafe {
                    if direct_in {
                        let ((address, own), _) = planes[plane];
                        let to = (address + (first * own) as u64, own);
                        up.upload_rows((from.add(first * pitch), pitch), to, row_bytes[plane], rows.len())?;
                    } else {
                        up.upload(staged, device, slot.bytes_of(plane, rows))?;
                    }
                }
            }
            uploaded.record(up)?;
            if bands.len() > 1 {
                run.wait(uploaded)?;
            }
            let rows = (bands.len() > 1).then_some(&band.blur[..]);
            // SAFETY: the planes are in the slot, and so is what they need besides.
            special &= unsafe { choice.queue(run, jobs, &planes, extra, rows) }?;
            blurred.record(run)?;
            if bands.len() > 1 {
                down.wait(blurred)?;
            }
            let (device, staged) = slot.way_out();
            for (plane, rows) in band.download.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
                let ((address, pitch), first) = (to[plane], rows.start as usize);
                // SAFETY: as above.
                unsafe {
                    if direct_out {
                        let (_, (from, own)) = planes[plane];
                        let to = ((address as *mut u8).add(first * pitch), pitch);
                        down.download_rows((from + (first * own) as u64, own), to, row_bytes[plane], rows.len())?;
                    } else {
                        down.download(device, staged, slot.bytes_of(plane, rows))?;
                    }
                }
            }
            downloaded.record(down)
        };
        let way_in = Chunks::new(bands.iter().map(|band| &band.upload[..]), &row_bytes);
        let way_out = Chunks::new(bands.iter().map(|band| &band.download[..]), &row_bytes);
        let first_wanted = if direct_out { bands.len() - 1 } else { 0 };
        let begun = Instant::now();
        let through = || {
            begin.record(up)?;
            if direct_in {
                (0..bands.len()).try_for_each(queue)?;
            } else {
                // SAFETY: the frame is the slot's, nothing else is in it, and every row is copied once.
                way_in.feed(threads, |plane, rows| unsafe { slot.put(src, plane, rows) }, queue)?;
            }
            let mut arrived = |band: usize| wait.until(begun, || ends[band][2].is_done());
            if direct_out {
                return arrived(first_wanted);
            }
            // SAFETY: likewise, when the rows have arrived.
            way_out.drain(threads, |plane, rows| unsafe { slot.take(&to, plane, rows) }, arrived)
        };
        through().inspect_err(|_: &CudaError| {
            // What was queued before the failure may still be at work in the slot.
            for stream in [up, run, down] {
                let _ = stream.synchronize();
            }
        })?;
        self.serving = if special { choice.device.special_name() } else { choice.kernels.name() };
        let [first, last] = [&ends[0], &ends[bands.len() - 1]];
        wait.learn(begin.until(&ends[first_wanted][2])?);
        let frame_bytes: usize = src.iter().map(|plane| plane.layout.row_bytes() * plane.layout.height as usize).sum();
        Ok(Times {
            bytes_copied: frame_bytes * (usize::from(!direct_in) + usize::from(!direct_out)),
            upload: begin.until(&last[0])?,
            kernel: first[0].until(&last[1])?,
            download: first[1].until(&last[2])?,
        })
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
        unsafe { self.choice.queue(stream, jobs, planes, extra, None) }.map(drop)
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
