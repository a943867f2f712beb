// SPDX-License-Identifier: MPL-2.0
//! The pipeline of an engine: an optional upload, the kernels, an optional download.
//!
//! A frame is enqueued as a whole. Frames in host memory are divided into bands, whose transfers overlap with the kernels of
//! other bands, and completed later. Frames that stay on the device run on their own stream, and nothing waits for them; so do
//! those of which regions are covered there. Of a frame in host memory, only what its regions need passes through the device.

mod cover;
mod frame_slot;
mod host_cover;
mod promised_frames;
mod recorded_frame;
mod resident;
mod steps;
mod submitted;
mod timing_sampler;

use std::sync::Arc;
use std::time::Instant;

use super::driver::{self, Stream, WorkspaceNeed};
use super::error::CudaError;
use super::kernels::record::DevicePlanes;
use super::select::KernelSelector;
use super::shared_device::SharedDevice;
use super::transfer::adaptive_wait::AdaptiveWait;
use super::transfer::bands::Band;
use super::transfer::{CopyStreams, ThreadedCopy};
use crate::filter::frame::{FrameMemory, PlaneLayout, ValidFrames};
use crate::filter::plan::Plan;
use crate::filter::plane::{Address, DevicePlane, PlaneMemory};
use crate::process;
use crate::threads::Threads;
pub use cover::DeviceCover;
use cover::FrameCopy;
use frame_slot::FrameSlot;
use host_cover::HostCoverState;
pub use promised_frames::PromisedFrames;
use recorded_frame::RecordedFrame;
pub use resident::Enqueued;
use resident::ResidentState;
use steps::{SharedPlanes, Steps, Streams, resident_planes, row_bytes};
use submitted::uses_frame_memory;
pub use submitted::{SubmitError, SubmittedFrame, Times};
use timing_sampler::TimingSampler;

/// How a frame gets to the device, or from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferPath {
    /// The device accesses the frame's pinned memory.
    Direct,
    /// Through the slot's staging buffer.
    Staged,
    /// The frame is in device memory.
    Resident,
}

impl TransferPath {
    /// The path of a frame. Without `direct`, pinned memory is staged too. A context is current.
    fn of<A: Address + HostAddress>(frame: &FrameMemory<A>, direct: bool) -> Self {
        let is_pinned = |plane: &PlaneMemory<A>| driver::is_pinned(plane.address.as_const(), plane.len);
        match frame {
            FrameMemory::Device { .. } => Self::Resident,
            FrameMemory::Host(planes) if direct && planes.iter().all(is_pinned) => Self::Direct,
            FrameMemory::Host(_) => Self::Staged,
        }
    }
}

/// A host pointer.
trait HostAddress {
    fn as_const(&self) -> *const u8;
}

impl HostAddress for *const u8 {
    fn as_const(&self) -> *const u8 {
        *self
    }
}

impl HostAddress for *mut u8 {
    fn as_const(&self) -> *const u8 {
        self.cast_const()
    }
}

/// A frame that was submitted.
pub enum Submission {
    /// It has to be completed.
    InFlight(Box<SubmittedFrame>),
    /// It stays on the device and needs no completion.
    Resident(Enqueued),
}

/// How frames are submitted.
#[derive(Debug, Clone, Copy)]
pub struct SubmitOptions {
    /// Whether the device may access the frame's pinned memory.
    pub direct: bool,
    /// The number of bands; `None` for as many as measured fastest.
    pub bands: Option<usize>,
}

/// The frames of an engine on the device.
pub struct Pipeline {
    copy_streams: Arc<CopyStreams>,
    compute: Stream,
    wait: AdaptiveWait,
    /// Of those with an upload or a download.
    timing: TimingSampler,
    /// The plan of the last such frame. Frames of another one take another time.
    timed_plan: Option<Arc<Plan>>,
    /// They copy to and from staging buffers.
    threads: Arc<Threads>,
    /// Slots of no frame.
    idle: Vec<FrameSlot>,
    /// Created with the first frame that stays on the device.
    resident: Option<ResidentState>,
    /// The commands of the last such frame that was blurred as a whole.
    recorded: Option<RecordedFrame>,
    /// The commands of the last frame with an upload or a download: in bands, and in one band.
    recorded_transfers: [Option<RecordedFrame>; 2],
    /// The commands of the last such frame of which regions were blurred.
    recorded_cover: Option<RecordedFrame>,
    /// Created with the first such frame whose regions are blurred in a copy.
    frame_copy: Option<FrameCopy>,
    /// Created with the first frame in host memory of which regions are blurred.
    host_cover: Option<HostCoverState>,
    /// Of such frames.
    cover_wait: AdaptiveWait,
}

impl Pipeline {
    /// On a device whose context is current.
    pub fn new(shared: &SharedDevice) -> Result<Self, CudaError> {
        Ok(Self {
            copy_streams: shared.copy_streams()?,
            compute: Stream::new(shared.device().id())?,
            wait: AdaptiveWait::default(),
            timing: TimingSampler::default(),
            timed_plan: None,
            threads: process::threads(),
            idle: Vec::new(),
            resident: None,
            recorded: None,
            recorded_transfers: [None, None],
            recorded_cover: None,
            frame_copy: None,
            host_cover: None,
            cover_wait: AdaptiveWait::default(),
        })
    }

    /// Enqueues a frame. Returns when its source has been staged or its upload is enqueued. The context is current.
    pub fn submit(
        &mut self,
        selector: &mut KernelSelector,
        frames: &PromisedFrames,
        plan: &Arc<Plan>,
        options: SubmitOptions,
    ) -> Result<Submission, SubmitError> {
        let paths =
            [TransferPath::of(frames.source(), options.direct), TransferPath::of(frames.destination(), options.direct)];
        if paths == [TransferPath::Resident; 2] {
            self.submit_resident(selector, frames, plan).map(Submission::Resident)
        } else {
            let frame = self.submit_transfer(selector, frames, plan, paths, options)?;
            Ok(Submission::InFlight(Box::new(frame)))
        }
    }

    /// Enqueues a frame that stays on the device, on the destination's stream, else the source's, else the engine's.
    fn submit_resident(
        &mut self,
        selector: &mut KernelSelector,
        frames: &PromisedFrames,
        plan: &Arc<Plan>,
    ) -> Result<Enqueued, SubmitError> {
        let planes = [resident_planes(frames.source()), resident_planes(frames.destination())];
        let streams = frames.streams();
        let stream = streams.or(&self.compute);
        let resident = ResidentState::get(&mut self.resident, selector.device().id())?;
        let recorded = RecordedFrame::of_plan(&mut self.recorded, selector, plan, planes, Some(1))?;
        let need = WorkspaceNeed { bytes: recorded.workspace_bytes(), varies: false };
        let work = |workspace: u64| {
            recorded.set_addresses(planes, workspace);
            // SAFETY: the plan is for the layouts of the frames, which live until the stream has done the work, as their owner
            // promises; the workspace is large enough and this stream's alone.
            unsafe { recorded.enqueue(selector, &stream, 0) }
        };
        resident.enqueue(need, streams, &stream, work).map_err(|error| {
            // Work that was enqueued before the failure may still use the frames.
            SubmitError { error, settled: stream.synchronize().is_ok() }
        })
    }

    /// Enqueues a frame with an upload, a download or both.
    fn submit_transfer(
        &mut self,
        selector: &mut KernelSelector,
        frames: &PromisedFrames,
        plan: &Arc<Plan>,
        paths: [TransferPath; 2],
        options: SubmitOptions,
    ) -> Result<SubmittedFrame, SubmitError> {
        let device = selector.device().id();
        let ahead = self.copy_streams.in_flight();
        let mut slot = self.take_slot(frames.layouts(), device)?;
        slot.reserve(paths, &self.compute)?;
        let planes = device_planes(frames, Some(&slot));
        // Bands shorten the time of a single frame. Frames behind each other overlap without them, with fewer calls, and a frame
        // that is resident on one side has little to overlap.
        let is_single = ahead > 1 || paths.contains(&TransferPath::Resident);
        let requested = if is_single { Some(1) } else { options.bands };
        let frame_planes = [&planes.sources[..], &planes.destinations[..]];
        let cached = &mut self.recorded_transfers[usize::from(is_single)];
        let recorded = RecordedFrame::of_plan(cached, selector, plan, frame_planes, requested)?;
        let bands = Arc::clone(recorded.bands());
        let need = WorkspaceNeed { bytes: recorded.workspace_bytes(), varies: false };
        recorded.set_addresses(frame_planes, slot.reserve_workspace(need, &self.compute)?);
        if !self.timed_plan.as_ref().is_some_and(|last| Arc::ptr_eq(last, plan)) {
            self.timing = TimingSampler::default();
            self.timed_plan = Some(Arc::clone(plan));
        }
        slot.reserve_events(bands.len(), self.timing.next_frame(), device)?;

        let started = Instant::now();
        // One band of a single frame has nothing to overlap with, and waiting for another stream's event takes time.
        let by_events = bands.len() > 1 || ahead > 0;
        let streams = if by_events {
            let CopyStreams { upload, download, .. } = &*self.copy_streams;
            Streams { upload, compute: &self.compute, download }
        } else {
            Streams::single(&self.compute)
        };
        let layouts = plan.layouts();
        let steps = Steps {
            selector,
            layouts,
            frames,
            paths,
            planes: &planes,
            recorded,
            bands: &bands,
            slot: &slot,
            streams,
            by_events,
        };
        let specialised = match steps.enqueue(&self.threads) {
            Ok(specialised) => specialised,
            Err(error) => {
                // Work that was enqueued before the failure may still be running.
                let settled = streams.synchronize();
                if !settled {
                    std::mem::forget(slot);
                }
                return Err(SubmitError { error, settled: settled || !uses_frame_memory(paths) });
            }
        };
        let times = Times {
            bytes_copied: staged_bytes(plan.layouts(), paths, &bands),
            direct: paths.map(|path| path == TransferPath::Direct),
            ..Times::default()
        };
        let destination = match frames.destination() {
            FrameMemory::Host(planes) => planes.clone(),
            FrameMemory::Device { .. } => Vec::new(),
        };
        Ok(SubmittedFrame {
            slot: Some(slot),
            plan: Arc::clone(plan),
            bands,
            paths,
            destination,
            times,
            started,
            was_alone: ahead == 0,
            specialised,
            device: Arc::clone(selector.device()),
            _in_flight: self.copy_streams.count_frame(),
        })
    }

    /// A slot for a frame of these planes.
    fn take_slot(&mut self, layouts: &[PlaneLayout], device: u32) -> Result<FrameSlot, CudaError> {
        let before = self.idle.len();
        // Slots for other frames are freed first, so that the memory of both is never allocated together.
        self.idle.retain(|slot| slot.is_for(layouts));
        if before > self.idle.len() {
            self.wait.reset();
        }
        match self.idle.pop() {
            Some(slot) => Ok(slot),
            None => FrameSlot::new(layouts, device),
        }
    }

    /// Waits for the oldest frame in flight and copies it out of its staging buffer. The context is current. On an error its
    /// destination is undefined, and the frame has to be settled.
    pub fn complete(&mut self, frame: &mut SubmittedFrame) -> Result<Times, CudaError> {
        let Self { wait, threads, copy_streams, .. } = self;
        let Some(slot) = &frame.slot else { return Ok(frame.times) };
        let count = frame.bands.len();
        let [first, last] = [slot.events(0, count), slot.events(count - 1, count)];
        // Behind other frames the expected time is not known, and delay matters less because the device has more to do.
        let is_alone = frame.was_alone && copy_streams.in_flight() == 1;
        let mut wait_for_band = |band: usize| match is_alone {
            true => wait.wait(frame.started, || slot.events(band, count).downloaded.is_done()),
            false => AdaptiveWait::wait_coarsely(|| slot.events(band, count).downloaded.is_done()),
        };
        let mut first_wait = last;
        if frame.paths[1] == TransferPath::Staged {
            first_wait = first;
            let rows = frame.bands.iter().map(|band| &band.download[..]);
            let copy = ThreadedCopy::new(rows, &row_bytes(slot.layouts()));
            let to = SharedPlanes(&frame.destination);
            // SAFETY: the destination is valid and has the slot's layouts; the owner of its memory lets nobody access it before
            // the frame is completed; each row is copied once, after its download.
            let unstage = |plane, rows| unsafe { slot.destination.unstage_rows(to.plane(plane), plane, rows) };
            copy.copy_out(threads, unstage, wait_for_band)?;
        } else {
            wait_for_band(count - 1)?;
        }
        let mut times = frame.times;
        if slot.is_timed() {
            if is_alone {
                wait.observe(slot.begin.elapsed_until(&first_wait.downloaded)?);
            }
            if frame.paths[0] != TransferPath::Resident {
                times.upload = Some(slot.begin.elapsed_until(&last.uploaded)?);
            }
            times.kernel = Some(first.uploaded.elapsed_until(&last.processed)?);
            if frame.paths[1] != TransferPath::Resident {
                times.download = Some(first.processed.elapsed_until(&last.downloaded)?);
            }
        }
        self.idle.extend(frame.slot.take());
        Ok(times)
    }
}

/// Bytes that the CPU copies to and from staging buffers.
fn staged_bytes(layouts: &[PlaneLayout], paths: [TransferPath; 2], bands: &[Band]) -> usize {
    let rows = |band: &Band, side: usize| -> usize {
        let rows = if side == 0 { &band.upload } else { &band.download };
        rows.iter().zip(layouts).map(|(rows, layout)| rows.len() * layout.row_bytes()).sum()
    };
    let staged = (0..paths.len()).filter(|side| paths[*side] == TransferPath::Staged);
    staged.map(|side| bands.iter().map(|band| rows(band, side)).sum::<usize>()).sum()
}

/// The planes that the kernels read and write: a resident frame's own, or the slot's.
fn device_planes(frames: &ValidFrames, slot: Option<&FrameSlot>) -> DevicePlanes {
    fn resident<A>(frame: &FrameMemory<A>) -> Option<Vec<DevicePlane>> {
        matches!(frame, FrameMemory::Device { .. }).then(|| resident_planes(frame).to_vec())
    }
    let of_slot = |side: fn(&FrameSlot) -> Vec<DevicePlane>| slot.map(side).unwrap_or_default();
    DevicePlanes {
        sources: resident(frames.source()).unwrap_or_else(|| of_slot(|slot| slot.source.device_planes())),
        destinations: resident(frames.destination())
            .unwrap_or_else(|| of_slot(|slot| slot.destination.device_planes())),
    }
}
