// SPDX-License-Identifier: MPL-2.0
//! One frame on its way through the device: queued whole, in bands, and waited for when it is wanted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::alpha::Place;
use super::bands::{self, Band};
use super::choice::Choice;
use super::device::Device;
use super::driver::{self, Event, Stream};
use super::error::CudaError;
use super::slot::{Slot, Uses};
use super::staging::Chunks;
use super::wait::Wait;
use super::work::Work;
use crate::frame::{DeviceFrame, PlaneLayout, Source, Target};
use crate::plan::Job;
use crate::threads::Threads;

/// How long the stages of one frame took on the device, by its own clock, each from its first band to its last; in a frame of
/// several bands they overlap. `None` for what a frame that is on the device already does not need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Host to device.
    pub upload: Option<Duration>,
    /// The kernels.
    pub kernel: Option<Duration>,
    /// Device to host.
    pub download: Option<Duration>,
    /// Bytes that the CPU copied.
    pub bytes_copied: usize,
    /// Whether the frame came in memory that the device reads by itself, and left in such.
    pub direct: [bool; 2],
}

/// What all engines in a context share. Copies of one direction take turns anyway; on streams of their own an engine with
/// several frames on their way left nothing to the others (measured on an H200: 7 frames a second beside 5726).
pub struct Traffic {
    up: Stream,
    down: Stream,
    /// One for every frame on its way, and this one.
    under_way: Arc<()>,
}

impl Traffic {
    /// On the device whose context is current.
    pub fn new(id: u32) -> Result<Self, CudaError> {
        Ok(Self { up: Stream::new(id)?, down: Stream::new(id)?, under_way: Arc::default() })
    }

    /// Frames on their way.
    fn count(&self) -> usize {
        Arc::strong_count(&self.under_way) - 1
    }
}

/// An engine's frames on their way.
pub struct Lane {
    traffic: Arc<Traffic>,
    /// What is blurred.
    run: Stream,
    wait: Wait,
    /// They copy from and to ordinary memory.
    threads: Arc<Threads>,
    /// Where frames that are not on their way can be.
    idle: Vec<Berth>,
}

/// What one frame has for itself.
struct Berth {
    slot: Slot,
    /// Where the frame begins, and where each band of it has been uploaded, blurred, downloaded.
    begin: Event,
    ends: Vec<[Event; 3]>,
}

/// How a frame's bytes get from the host, or to it. Addresses and pitches of its planes.
enum Way {
    /// The device takes them from where they are, or puts them where they are to be.
    Direct(Vec<(usize, usize)>),
    /// Through the slot's pinned memory.
    Staged(Vec<(usize, usize)>),
    /// They are on the device, and stay there.
    There,
}

impl Way {
    fn of(planes: Vec<(usize, usize)>, pinned: bool) -> Self {
        if pinned { Self::Direct(planes) } else { Self::Staged(planes) }
    }

    fn is_staged(&self) -> bool {
        matches!(self, Self::Staged(_))
    }
}

/// Why a frame was not submitted.
#[derive(Debug)]
pub struct SubmitError {
    /// The cause.
    pub error: CudaError,
    /// Whether the device has done with the frame's memory. Else it may still read and write it, and nobody else may.
    pub settled: bool,
}

impl From<CudaError> for SubmitError {
    /// Of a failure before anything was queued.
    fn from(error: CudaError) -> Self {
        Self { error, settled: true }
    }
}

/// A frame in flight. Dropping it waits for the device and discards the output.
pub struct Flight {
    /// `None` once the device has done with it, or never will for all that can be known.
    berth: Option<Berth>,
    /// Whether the device reads or writes the frame's own memory.
    shares_memory: bool,
    bands: Vec<Band>,
    way_out: Way,
    times: Times,
    /// Whether it is uploaded.
    comes_from_host: bool,
    begun: Instant,
    /// No other frame was on its way when it began.
    alone: bool,
    /// Whether special kernels do all of it.
    special: bool,
    device: Arc<Device>,
    _under_way: Arc<()>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        // The owner of the frame's memory has settled it before, if it has to know.
        let _ = self.settle();
    }
}

impl Flight {
    /// Waits until the device has done with the frame, whatever its outcome. On an error the device may still read and write
    /// the frame's memory: nobody may use, free or unregister it any more. Staging buffers are leaked then.
    pub fn settle(&mut self) -> Result<(), CudaError> {
        let Some(berth) = self.berth.take() else { return Ok(()) };
        let settled = self.device.enter().and_then(|current| {
            berth.ends[self.bands.len() - 1][2].synchronize()?;
            Ok(current)
        });
        match settled {
            Ok(_current) => {
                // While the context is current.
                drop(berth);
                Ok(())
            }
            Err(error) => {
                std::mem::forget(berth);
                if self.shares_memory { Err(error) } else { Ok(()) }
            }
        }
    }

    /// Whether it has arrived.
    pub fn is_done(&self) -> bool {
        let Some(berth) = &self.berth else { return true };
        let Ok(_current) = self.device.enter() else { return true };
        // What failed is told by `Lane::finish`.
        berth.ends[self.bands.len() - 1][2].is_done().unwrap_or(true)
    }

    /// Whether special kernels do all of it.
    pub fn is_special(&self) -> bool {
        self.special
    }
}

impl Lane {
    /// On the device whose context is current.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        Ok(Self {
            traffic: device.traffic()?,
            run: Stream::new(device.id())?,
            wait: Wait::default(),
            threads: Threads::shared(),
            idle: Vec::new(),
        })
    }

    /// The stream of the kernels.
    pub fn stream(&self) -> &Stream {
        &self.run
    }

    /// A place for a frame of these planes.
    fn berth(&mut self, layouts: &[PlaneLayout], id: u32) -> Result<Berth, CudaError> {
        let before = self.idle.len();
        // What is there for other frames goes first, so that there is never the memory of both.
        self.idle.retain(|berth| berth.slot.is_for(layouts));
        if before > self.idle.len() {
            self.wait.forget();
        }
        if let Some(berth) = self.idle.pop() {
            return Ok(berth);
        }
        Ok(Berth { slot: Slot::new(layouts.to_vec()), begin: Event::new(id)?, ends: Vec::new() })
    }

    /// Queues a frame; returns as soon as its source has been copied or queued to be. The context is current; `wanted` is the
    /// number of bands, if it is not to be as measured; `consider` sees all that is to be done; without `direct` pinned memory is staged too.
    ///
    /// # Safety
    /// What `src` and `dst` speak of lives, and is the device's alone, until the flight has been finished or dropped.
    pub unsafe fn begin(
        &mut self,
        choice: &Choice,
        (src, dst): (&Source, &mut Target),
        direct: bool,
        jobs: &[Job],
        wanted: Option<usize>,
        consider: impl FnOnce(&Work),
    ) -> Result<Flight, SubmitError> {
        let layouts = src.layouts();
        let id = choice.device.id();
        let ahead = self.traffic.count();
        let mut berth = self.berth(&layouts, id)?;

        let (way_in, way_out) = (way_in(src, direct), way_out(dst, direct));
        let uses = |way: &Way| Uses { device: !matches!(way, Way::There), pinned: way.is_staged() };
        berth.slot.prepare([uses(&way_in), uses(&way_out)], &self.run)?;
        let own = berth.slot.planes();
        let places = |there: Option<&DeviceFrame>, side: usize| -> Vec<Place> {
            there.map_or_else(|| own.iter().map(|places| places[side]).collect(), DeviceFrame::places)
        };
        let planes: Vec<(Place, Place)> =
            places(src.on_device(), 0).into_iter().zip(places(dst.on_device(), 1)).collect();
        let work = Work::new(jobs, &planes, 0, None);
        consider(&work);
        let extra = berth.slot.reserve_extra(choice.extra_bytes(&work), &self.run)?;

        // Bands are for one frame's sake: frames behind each other overlap by themselves, with fewer calls. And what is on the
        // device already has one way less to overlap with.
        let from_there = matches!(way_in, Way::There) || matches!(way_out, Way::There);
        let count = if ahead > 1 || from_there { Some(1) } else { wanted };
        let bands = bands::bands(&layouts, jobs, count);
        while berth.ends.len() < bands.len() {
            berth.ends.push([Event::new(id)?, Event::new(id)?, Event::new(id)?]);
        }

        let begun = Instant::now();
        // What goes alone and in one band has nothing to overlap with, and streams are late to hear of each other.
        let alone = bands.len() == 1 && ahead == 0;
        let [up, run, down] = if alone { [&self.run; 3] } else { [&self.traffic.up, &self.run, &self.traffic.down] };
        let queue = Queue { choice, jobs, berth: &berth, bands: &bands, planes, extra, apart: !alone };
        let slot = &berth.slot;
        let queued = (|| {
            for stream in [src.on_device(), dst.on_device()].into_iter().flatten().filter_map(|frame| frame.stream) {
                // What others have queued there comes first: of the source the writing, of the destination the reading.
                // SAFETY: the frame's owner says so.
                berth.begin.record(&unsafe { Stream::borrowed(stream, id) })?;
                run.wait(&berth.begin)?;
            }
            berth.begin.record(up)?;
            let mut special = true;
            let mut rest = |index: usize| -> Result<(), CudaError> {
                // SAFETY: the planes are those of the frame and of the slot, which live until the flight ends.
                special &= unsafe { queue.rest(index, run, down, &way_out) }?;
                Ok(())
            };
            if let Way::Staged(from) = &way_in {
                let chunks = Chunks::new(bands.iter().map(|band| &band.upload[..]), &slot.row_bytes());
                // SAFETY: the frame is one that the slot is for, nothing else is in it, and every row is copied once.
                let put = |plane, rows| unsafe { slot.put(from, plane, rows) };
                chunks.feed(&self.threads, put, |index| {
                    // SAFETY: the band is in the pinned memory then.
                    unsafe { queue.upload(index, up, &way_in) }?;
                    rest(index)
                })?;
            } else {
                // All uploads first: to queue a band takes half as long as to upload it, and the bus must not wait for that.
                // SAFETY: as above.
                (0..bands.len()).try_for_each(|index| unsafe { queue.upload(index, up, &way_in) })?;
                (0..bands.len()).try_for_each(rest)?;
            }
            Ok(special)
        })();
        let shares_memory = !(way_in.is_staged() && way_out.is_staged());
        let special = match queued {
            Ok(special) => special,
            Err(error) => {
                // What was queued before the failure may still be at work.
                let settled = [up, run, down].map(|stream| stream.synchronize().is_ok()) == [true; 3];
                if !settled {
                    std::mem::forget(berth);
                }
                return Err(SubmitError { error, settled: settled || !shares_memory });
            }
        };
        let bytes: usize = layouts.iter().map(|layout| layout.row_bytes() * layout.height as usize).sum();
        let times = Times {
            bytes_copied: bytes * (usize::from(way_in.is_staged()) + usize::from(way_out.is_staged())),
            direct: [&way_in, &way_out].map(|way| matches!(way, Way::Direct(_))),
            ..Times::default()
        };
        Ok(Flight {
            berth: Some(berth),
            shares_memory,
            bands,
            comes_from_host: !matches!(way_in, Way::There),
            way_out,
            times,
            begun,
            alone: ahead == 0,
            special,
            device: Arc::clone(&choice.device),
            _under_way: Arc::clone(&self.traffic.under_way),
        })
    }

    /// Waits for the oldest frame in flight and completes its download. The context is current. On an error the flight is to
    /// be settled.
    pub fn finish(&mut self, flight: &mut Flight) -> Result<Times, CudaError> {
        let Self { wait, threads, traffic, .. } = self;
        let Some(Berth { slot, begin, ends }) = &flight.berth else { return Ok(flight.times) };
        let ends = &ends[..flight.bands.len()];
        let last = flight.bands.len() - 1;
        // Behind others it is not known when it is due, and the device has more to do meanwhile.
        let alone = flight.alone && traffic.count() == 1;
        let mut arrived = |band: usize| match alone {
            true => wait.until(flight.begun, || ends[band][2].is_done()),
            false => Wait::nap_until(|| ends[band][2].is_done()),
        };
        let mut first_wanted = last;
        if let Way::Staged(to) = &flight.way_out {
            first_wanted = 0;
            let chunks = Chunks::new(flight.bands.iter().map(|band| &band.download[..]), &slot.row_bytes());
            // SAFETY: the destination is the flight's; every row that has arrived is copied once.
            chunks.drain(threads, |plane, rows| unsafe { slot.take(to, plane, rows) }, arrived)?;
        } else {
            arrived(last)?;
        }
        if alone {
            wait.learn(begin.until(&ends[first_wanted][2])?);
        }
        let mut times = flight.times;
        if flight.comes_from_host {
            times.upload = Some(begin.until(&ends[last][0])?);
        }
        times.kernel = Some(ends[0][0].until(&ends[last][1])?);
        if !matches!(flight.way_out, Way::There) {
            times.download = Some(ends[0][1].until(&ends[last][2])?);
        }
        self.idle.extend(flight.berth.take());
        Ok(times)
    }
}

fn way_in(src: &Source, direct: bool) -> Way {
    let Source::Host(frame) = src else { return Way::There };
    let pinned = direct && frame.iter().all(|plane| driver::is_pinned(plane.data.as_ptr(), plane.data.len()));
    Way::of(frame.iter().map(|plane| (plane.data.as_ptr() as usize, plane.pitch)).collect(), pinned)
}

fn way_out(dst: &mut Target, direct: bool) -> Way {
    let Target::Host(frame) = dst else { return Way::There };
    let pinned = direct && frame.iter().all(|plane| driver::is_pinned(plane.data.as_ptr(), plane.data.len()));
    Way::of(frame.iter_mut().map(|plane| (plane.data.as_mut_ptr() as usize, plane.pitch)).collect(), pinned)
}

/// What is the same for all bands of a frame.
struct Queue<'a> {
    choice: &'a Choice,
    jobs: &'a [Job],
    berth: &'a Berth,
    bands: &'a [Band],
    planes: Vec<(Place, Place)>,
    extra: u64,
    /// Each of the streams is another one.
    apart: bool,
}

impl Queue<'_> {
    /// Queues the upload of one band.
    ///
    /// # Safety
    /// The frame's memory is as [`Lane::begin`] asks, the band's rows are in the pinned memory if it comes from there, and the
    /// stream is waited for whatever comes of it.
    unsafe fn upload(&self, index: usize, up: &Stream, way_in: &Way) -> Result<(), CudaError> {
        let (band, slot) = (&self.bands[index], &self.berth.slot);
        let row_bytes = slot.row_bytes();
        for (plane, rows) in band.upload.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let (first, (address, own)) = (rows.start as usize, self.planes[plane].0);
            // SAFETY: the rows are in the frame, or in the slot's pinned memory, and in its device memory.
            unsafe {
                match way_in {
                    Way::Direct(from) => {
                        let (from, pitch) = from[plane];
                        let from = ((from + first * pitch) as *const u8, pitch);
                        up.upload_rows(from, (address + (first * own) as u64, own), row_bytes[plane], rows.len())?;
                    }
                    Way::Staged(_) => {
                        let (staged, device) = slot.way_in();
                        up.upload(staged, device, slot.bytes_of(plane, rows))?;
                    }
                    Way::There => (),
                }
            }
        }
        self.berth.ends[index][0].record(up)
    }

    /// Queues the blur and the download of one band; says whether special kernels do it.
    ///
    /// # Safety
    /// As [`Queue::upload`], for both streams.
    unsafe fn rest(&self, index: usize, run: &Stream, down: &Stream, way_out: &Way) -> Result<bool, CudaError> {
        let (band, slot) = (&self.bands[index], &self.berth.slot);
        let [uploaded, blurred, downloaded] = &self.berth.ends[index];
        let row_bytes = slot.row_bytes();
        if self.apart {
            run.wait(uploaded)?;
        }
        let rows = (self.bands.len() > 1).then_some(&band.blur[..]);
        // SAFETY: the planes are the frame's or the slot's, and what they need besides is in the slot.
        let work = Work::new(self.jobs, &self.planes, self.extra, rows);
        // SAFETY: as above.
        let special = unsafe { self.choice.queue(run, &work, self.extra) }?;
        blurred.record(run)?;
        if self.apart {
            down.wait(blurred)?;
        }
        for (plane, rows) in band.download.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let (first, (address, own)) = (rows.start as usize, self.planes[plane].1);
            // SAFETY: as above.
            unsafe {
                match way_out {
                    Way::Direct(to) => {
                        let (to, pitch) = to[plane];
                        let to = ((to + first * pitch) as *mut u8, pitch);
                        down.download_rows((address + (first * own) as u64, own), to, row_bytes[plane], rows.len())?;
                    }
                    Way::Staged(_) => {
                        let (device, staged) = slot.way_out();
                        down.download(device, staged, slot.bytes_of(plane, rows))?;
                    }
                    Way::There => (),
                }
            }
        }
        // Of what goes straight to where it is to be only the end is waited for.
        if way_out.is_staged() || index + 1 == self.bands.len() {
            downloaded.record(down)?;
        }
        Ok(special)
    }
}
