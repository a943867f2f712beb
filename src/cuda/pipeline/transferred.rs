// SPDX-License-Identifier: MPL-2.0
//! The part of the pipeline for frames with an upload, a download or both: a slot for each frame in flight, a schedule, and the
//! wait for the oldest one.

use std::sync::Arc;
use std::time::Instant;

use super::frame_slot::FrameSlot;
use super::promised_frames::PromisedFrames;
use super::steps::{Steps, Streams};
use super::submitted::{SubmittedFrame, Times, uses_frame_memory};
use super::timing_sampler::TimingSampler;
use super::weights;
use super::{Pipeline, SubmitError, TransferPath};
use crate::cuda::driver::Event;
use crate::cuda::error::CudaError;
use crate::cuda::kernels::lower::DevicePlanes;
use crate::cuda::program::{KernelSelector, Target};
use crate::cuda::transfer::adaptive_wait::AdaptiveWait;
use crate::cuda::transfer::schedule::Schedule;
use crate::cuda::transfer::{CopyStreams, FrameBuffers, SharedPlanes, ThreadedCopy};
use crate::filter::byte_rect::ByteRect;
use crate::filter::cover::Softness;
use crate::filter::frame::{FrameMemory, PlaneLayout};
use crate::filter::parts::Job;
use crate::filter::plane::{DevicePlane, HostPlaneMut};

/// More rectangles of pinned memory are staged, because enqueuing a copy takes 2.3 to 4 µs.
const MAX_DIRECT_UPLOADS: usize = 32;

/// How long frames of one kind take.
#[derive(Default)]
pub struct Pace {
    wait: AdaptiveWait,
    timing: TimingSampler,
}

impl Pipeline {
    /// Enqueues a frame with an upload, a download or both.
    pub(super) fn submit_transfer(
        &mut self,
        selector: &mut KernelSelector,
        frames: &mut PromisedFrames,
        job: &Arc<Job>,
        soft: Option<&Softness>,
        direct: bool,
    ) -> Result<SubmittedFrame, SubmitError> {
        let device = selector.device().id();
        let ahead = self.copy_streams.in_flight();
        let is_cover = job.accesses.is_some();
        let mut paths = [TransferPath::of(frames.source(), direct), TransferPath::of(frames.destination(), direct)];
        // Bands shorten the time of a single frame. Frames behind each other overlap without them, with fewer calls, and a frame
        // that is resident on one side has little to overlap.
        let is_single = ahead > 1 || paths.contains(&TransferPath::Resident);
        let requested = match (is_cover, paths[0]) {
            // Pieces of an upload overlap with staging the next ones, and cost the bus 2.5 µs each.
            (true, TransferPath::Staged) => None,
            (true, _) => Some(1),
            _ if is_single => Some(1),
            _ => self.bands,
        };
        let mut schedule = self.schedules.get(job, requested);
        if is_cover {
            // Nothing of the frame is written before everything has succeeded.
            paths[1] = TransferPath::Staged;
            if schedule.uploads().count() > MAX_DIRECT_UPLOADS {
                paths[0] = TransferPath::Staged;
                schedule = self.schedules.get(job, None);
            }
        }
        let mut slot = self.take_slot(frames.layouts(), device)?;
        slot.reserve(paths, is_cover, &self.compute)?;
        let of_slot = |planes: Option<&[DevicePlane]>, buffers: &FrameBuffers| {
            planes.map_or_else(|| buffers.device_planes(), <[DevicePlane]>::to_vec)
        };
        let planes = DevicePlanes {
            sources: of_slot(frames.source().device_planes(), &slot.source),
            destinations: of_slot(frames.destination().device_planes(), slot.downloads(is_cover)),
        };
        let parts = &schedule.parts[..];
        let target = |workspace: u64| Target { job, soft, parts, planes: &planes, workspace };
        let mut program = self.programs.get(selector, target(slot.workspace.address()))?;
        if program.workspace_bytes > slot.workspace.bytes() {
            slot.workspace.replace(program.workspace_capacity(), &self.compute)?;
            self.compute.synchronize()?;
            program = self.programs.get(selector, target(slot.workspace.address()))?;
        }
        let pace = &mut self.paces[usize::from(is_cover)];
        if !is_cover && !self.timed_job.as_ref().is_some_and(|last| Arc::ptr_eq(last, job)) {
            pace.timing = TimingSampler::default();
            self.timed_job = Some(Arc::clone(job));
        }
        let mut nodes = std::mem::take(&mut slot.nodes);
        slot.is_timed = pace.timing.next_frame();
        slot.reserve_events(schedule.steps.len(), device)?;

        let started = Instant::now();
        // One band of a single frame has nothing to overlap with, and waiting for another stream's event takes time.
        let by_events = schedule.steps.len() > 1 && !is_cover || ahead > 0;
        let streams = if by_events {
            let CopyStreams { upload, download, .. } = &*self.copy_streams;
            Streams { upload, compute: &self.compute, download }
        } else {
            Streams::single(&self.compute)
        };
        let steps = Steps {
            selector,
            frames,
            paths,
            is_cover,
            planes: &planes,
            program: &program,
            schedule: &schedule,
            slot: &slot,
            streams,
            by_events,
        };
        let mut enqueue = || {
            if let Some(soft) = soft {
                // SAFETY: the program has memory for them at the beginning of the workspace, which is this frame's alone, as is
                // `nodes`.
                unsafe { weights::upload(&mut nodes, selector, soft, slot.workspace.address(), streams.compute) }?;
            }
            steps.enqueue(&self.threads)
        };
        let enqueued = enqueue();
        slot.nodes = nodes;
        if let Err(error) = enqueued {
            // Work that was enqueued before the failure may still be running.
            let settled = streams.synchronize();
            if !settled {
                std::mem::forget(slot);
            }
            return Err(SubmitError { error, settled: settled || !uses_frame_memory(paths) });
        }
        if is_cover {
            // While the device works.
            frames.copy_planes(&job.copied_planes(), &self.threads);
        }
        let times = Times {
            bytes_copied: staged_bytes(paths, &schedule),
            direct: paths.map(|path| path == TransferPath::Direct),
            ..Times::default()
        };
        let destination = match frames.destination() {
            FrameMemory::Host(planes) => planes.clone(),
            FrameMemory::Device { .. } => Vec::new(),
        };
        Ok(SubmittedFrame {
            slot: Some(slot),
            schedule,
            is_cover,
            paths,
            destination,
            times,
            started,
            was_alone: ahead == 0,
            specialised: program.specialised(),
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
            self.paces.iter_mut().for_each(|pace| pace.wait.reset());
        }
        match self.idle.pop() {
            Some(slot) => Ok(slot),
            None => FrameSlot::new(layouts, device),
        }
    }

    /// Waits for the oldest frame in flight and copies it out of its staging buffer. The context is current. On an error the
    /// destination of a frame is undefined, unless it is covered in place, which leaves it unchanged, and the frame has to be
    /// settled.
    pub fn complete(&mut self, frame: &mut SubmittedFrame) -> Result<Times, CudaError> {
        let Self { paces, threads, copy_streams, .. } = self;
        let Some(slot) = &frame.slot else { return Ok(frame.times) };
        let SubmittedFrame { is_cover, schedule, .. } = &*frame;
        let (count, wait) = (schedule.steps.len(), &mut paces[usize::from(*is_cover)].wait);
        let [first, last] = [slot.events(0, count), slot.events(count - 1, count)];
        // Behind other frames the expected time is not known, and delay matters less because the device has more to do.
        let is_alone = frame.was_alone && copy_streams.in_flight() == 1;
        let wait_for = |wait: &mut AdaptiveWait, event: &Event| match is_alone {
            true => wait.wait(frame.started, || event.is_done()),
            false => AdaptiveWait::wait_coarsely(|| event.is_done()),
        };
        let read_times = |wait: &mut AdaptiveWait, first_wait: &Event| {
            let mut times = frame.times;
            if slot.is_timed {
                if is_alone {
                    wait.observe(slot.begin.elapsed_until(first_wait)?);
                }
                if frame.paths[0] != TransferPath::Resident {
                    times.upload = Some(slot.begin.elapsed_until(&last.uploaded)?);
                }
                // The kernels of a cover begin when all is uploaded.
                let begin = if *is_cover { last } else { first };
                times.kernel = Some(begin.uploaded.elapsed_until(&last.processed)?);
                if frame.paths[1] != TransferPath::Resident {
                    times.download = Some(begin.processed.elapsed_until(&last.downloaded)?);
                }
            }
            Ok::<_, CudaError>(times)
        };
        // Copies rectangles out of the staging buffer when the wait for them has returned.
        let unstage = |rects: &[&[ByteRect]], wait: &mut dyn FnMut(usize) -> Result<(), CudaError>| {
            let staging = slot.downloads(*is_cover).staging_planes();
            let staging: Vec<_> = staging.iter().map(HostPlaneMut::as_const).collect();
            let planes = SharedPlanes::new(&staging, &frame.destination);
            // SAFETY: the destination is valid and has the slot's layouts; the owner of its memory lets nobody access it before
            // the frame is completed; each byte is copied once, after its download.
            let copy = |rect: &ByteRect| unsafe { planes.copy(rect) };
            ThreadedCopy::new(rects.iter().copied()).copy_out(threads, copy, wait)
        };
        let times = if *is_cover {
            let mut times = frame.times;
            // Threads wake up while the download runs, and write when nothing fails any more.
            unstage(&[&[], &schedule.writes], &mut |band| {
                if band == 0 {
                    return wait_for(wait, &last.processed);
                }
                wait_for(wait, &last.downloaded)?;
                times = read_times(wait, &last.downloaded)?;
                Ok(())
            })?;
            times
        } else if frame.paths[1] == TransferPath::Staged {
            let rects: Vec<_> = schedule.steps.iter().map(|step| &step.download[..]).collect();
            unstage(&rects, &mut |band| wait_for(wait, &slot.events(band, count).downloaded))?;
            read_times(wait, &first.downloaded)?
        } else {
            wait_for(wait, &last.downloaded)?;
            read_times(wait, &last.downloaded)?
        };
        self.idle.extend(frame.slot.take());
        Ok(times)
    }
}

/// Bytes that the CPU copies to and from staging buffers.
fn staged_bytes(paths: [TransferPath; 2], schedule: &Schedule) -> usize {
    let bytes = |rects: &[ByteRect]| rects.iter().map(ByteRect::size).sum::<usize>();
    let is_staged = paths.map(|path| path == TransferPath::Staged);
    let of_step =
        |side: usize| -> usize { schedule.steps.iter().map(|step| bytes([&step.upload, &step.download][side])).sum() };
    let uploaded = if is_staged[0] { of_step(0) } else { 0 };
    let downloaded = if is_staged[1] && schedule.writes.is_empty() { of_step(1) } else { bytes(&schedule.writes) };
    uploaded + downloaded
}
