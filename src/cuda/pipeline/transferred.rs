// SPDX-License-Identifier: MPL-2.0
//! The part of the pipeline for frames with an upload, a download or both: a slot for each frame in flight, bands, and the wait for
//! the oldest one.

use std::sync::Arc;
use std::time::Instant;

use super::frame_slot::FrameSlot;
use super::promised_frames::PromisedFrames;
use super::recorded_frame::RecordedFrame;
use super::steps::{SharedPlanes, Steps, Streams, row_bytes};
use super::submitted::{SubmittedFrame, Times, uses_frame_memory};
use super::timing_sampler::TimingSampler;
use super::{Pipeline, SubmitError, SubmitOptions, TransferPath};
use crate::cuda::driver::WorkspaceNeed;
use crate::cuda::error::CudaError;
use crate::cuda::kernels::record::DevicePlanes;
use crate::cuda::select::KernelSelector;
use crate::cuda::transfer::adaptive_wait::AdaptiveWait;
use crate::cuda::transfer::bands::Band;
use crate::cuda::transfer::{CopyStreams, FrameBuffers, ThreadedCopy};
use crate::filter::frame::{FrameMemory, PlaneLayout};
use crate::filter::plan::Plan;
use crate::filter::plane::DevicePlane;

impl Pipeline {
    /// Enqueues a frame with an upload, a download or both.
    pub(super) fn submit_transfer(
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
        let of_slot = |planes: Option<&[DevicePlane]>, buffers: &FrameBuffers| {
            planes.map_or_else(|| buffers.device_planes(), <[DevicePlane]>::to_vec)
        };
        let planes = DevicePlanes {
            sources: of_slot(frames.source().device_planes(), &slot.source),
            destinations: of_slot(frames.destination().device_planes(), &slot.destination),
        };
        // Bands shorten the time of a single frame. Frames behind each other overlap without them, with fewer calls, and a frame
        // that is resident on one side has little to overlap.
        let is_single = ahead > 1 || paths.contains(&TransferPath::Resident);
        let requested = if is_single { Some(1) } else { options.bands };
        let frame_planes = [&planes.sources[..], &planes.destinations[..]];
        let cached = &mut self.recorded_transfers[usize::from(is_single)];
        let recorded = RecordedFrame::of_plan(cached, selector, plan, frame_planes, requested)?;
        let (bands, specialised) = (Arc::clone(recorded.bands()), recorded.specialised());
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
        if let Err(error) = steps.enqueue(&self.threads) {
            // Work that was enqueued before the failure may still be running.
            let settled = streams.synchronize();
            if !settled {
                std::mem::forget(slot);
            }
            return Err(SubmitError { error, settled: settled || !uses_frame_memory(paths) });
        }
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
