// SPDX-License-Identifier: MPL-2.0
//! Frames with an upload, a download or both: each has a slot while it is in flight, and the oldest one is waited for.

use std::sync::Arc;
use std::time::Instant;

use super::Pipeline;
use super::enqueue::{FrameToEnqueue, Streams};
use super::frame_slot::FrameSlot;
use super::promised_frames::PromisedFrames;
use super::route::{Route, TransferPath};
use super::submitted::{SubmitError, SubmittedFrame, Times};
use super::timing_sampler::TimingSampler;
use super::weights;
use crate::cuda::driver::device::Device;
use crate::cuda::driver::{DeviceMemory, Event, Workspace};
use crate::cuda::error::CudaError;
use crate::cuda::selector::KernelSelector;
use crate::cuda::transfer::adaptive_wait::AdaptiveWait;
use crate::cuda::transfer::schedule::Schedule;
use crate::cuda::transfer::{SharedPlanes, ThreadedCopy};
use crate::filter::byte_rect::ByteRect;
use crate::filter::cover::Softness;
use crate::filter::frame::{FrameMemory, PlaneLayout};
use crate::filter::parts::Job;
use crate::filter::plane::HostPlaneMut;
use crate::threads::Threads;

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
        mut route: Route,
    ) -> Result<SubmittedFrame, SubmitError> {
        let mut slot = self.take_slot(frames.layouts(), selector.device())?;
        let prepared = self.jobs.get(job, route.division);
        route.adapt(&prepared.schedule);
        let (schedule, compute) = (Arc::clone(&prepared.schedule), &self.compute);
        slot.reserve(&route, schedule.pieces.len(), compute)?;
        let planes = slot.planes(frames, route.is_cover);
        let grow = |workspace: &mut Workspace<_>, bytes| {
            workspace.replace(|| DeviceMemory::new(bytes, compute))?;
            compute.synchronize()
        };
        let program = prepared.program(selector, (job, soft), &planes, &mut slot.workspace, grow)?;
        slot.is_timed = self.is_timed(job, &route);
        let started = Instant::now();
        let streams = Streams::of(&route, &self.compute, &self.copy_streams);
        let kernels = &*selector.prebuilt;
        let nodes = soft.map_or(Ok(()), |soft| {
            // SAFETY: the program has memory for them at the beginning of the workspace, which is this frame's alone, as is `nodes`.
            unsafe { weights::upload(&mut slot.nodes, kernels, soft, slot.workspace.address(), streams.compute) }
        });
        let to_enqueue = FrameToEnqueue {
            frames,
            route,
            planes: &planes,
            program: &program,
            schedule: &schedule,
            slot: &slot,
            streams,
            kernels,
        };
        if let Err(error) = nodes.and_then(|()| to_enqueue.enqueue(&self.threads)) {
            // Work that was enqueued before the failure may still be running.
            let settled = streams.synchronize();
            if !settled {
                std::mem::forget(slot);
            }
            return Err(SubmitError { error, settled: settled || !route.uses_frame_memory() });
        }
        if route.is_cover {
            // While the device works.
            frames.copy_planes(&job.copied_planes(), &self.threads);
        }
        Ok(SubmittedFrame {
            slot: Some(slot),
            destination: host_planes(frames.destination()),
            times: Times {
                bytes_copied: staged_bytes(route.paths, &schedule),
                direct: route.paths.map(|path| path == TransferPath::Direct),
                ..Times::default()
            },
            schedule,
            route,
            started,
            specialised: program.specialised,
            device: Arc::clone(selector.device()),
            _in_flight: self.copy_streams.count_frame(),
        })
    }

    /// A slot for a frame of these planes.
    fn take_slot(&mut self, layouts: &[PlaneLayout], device: &Arc<Device>) -> Result<FrameSlot, CudaError> {
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

    /// Whether the next frame on this route is timed. Blurs of another job take another time.
    fn is_timed(&mut self, job: &Arc<Job>, route: &Route) -> bool {
        let pace = &mut self.paces[usize::from(route.is_cover)];
        if !route.is_cover && !self.timed_job.as_ref().is_some_and(|last| Arc::ptr_eq(last, job)) {
            pace.timing = TimingSampler::default();
            self.timed_job = Some(Arc::clone(job));
        }
        pace.timing.next_frame()
    }

    /// Waits for the oldest frame in flight and copies it out of its staging buffer. The context is current. On an error the
    /// destination of a frame is undefined, unless it is covered in place, which leaves it unchanged, and the frame has to be
    /// settled.
    pub fn complete(&mut self, frame: &mut SubmittedFrame) -> Result<Times, CudaError> {
        let Some(slot) = &frame.slot else { return Ok(frame.times) };
        let (route, schedule) = (frame.route, &frame.schedule);
        let wait = &mut self.paces[usize::from(route.is_cover)].wait;
        // Behind other frames the expected time is not known, and delay matters less because the device has more to do.
        let is_alone = route.is_alone && self.copy_streams.in_flight() == 1;
        let mut completion = Completion { frame, slot, wait, is_alone };
        let count = schedule.pieces.len();
        let [first, last] = [slot.events(0, count), slot.events(count - 1, count)];
        let times = if route.is_cover {
            let mut times = frame.times;
            // Threads wake up while the download runs, and write when nothing fails any more.
            completion.unstage(&self.threads, &[&[], &schedule.writes], |completion, rects| {
                if rects == 0 {
                    return completion.wait(&last.processed);
                }
                completion.wait(&last.downloaded)?;
                times = completion.times(&last.downloaded)?;
                Ok(())
            })?;
            times
        } else if route.paths[1] == TransferPath::Staged {
            let rects: Vec<_> = schedule.pieces.iter().map(|piece| &piece.download[..]).collect();
            completion.unstage(&self.threads, &rects, |completion, piece| {
                completion.wait(&slot.events(piece, count).downloaded)
            })?;
            completion.times(&first.downloaded)?
        } else {
            completion.wait(&last.downloaded)?;
            completion.times(&last.downloaded)?
        };
        self.idle.extend(frame.slot.take());
        Ok(times)
    }
}

/// The end of a frame.
struct Completion<'a> {
    frame: &'a SubmittedFrame,
    slot: &'a FrameSlot,
    wait: &'a mut AdaptiveWait,
    /// Whether no other frame is in flight, or was when it was submitted.
    is_alone: bool,
}

impl Completion<'_> {
    fn wait(&mut self, event: &Event) -> Result<(), CudaError> {
        if self.is_alone {
            self.wait.wait(self.frame.started, || event.is_done())
        } else {
            AdaptiveWait::wait_coarsely(|| event.is_done())
        }
    }

    /// The times of the frame, all of which is done. `first_wait` was waited for first.
    fn times(&mut self, first_wait: &Event) -> Result<Times, CudaError> {
        let (SubmittedFrame { route, schedule, .. }, slot) = (self.frame, self.slot);
        let mut times = self.frame.times;
        if !slot.is_timed {
            return Ok(times);
        }
        let count = schedule.pieces.len();
        let [first, last] = [slot.events(0, count), slot.events(count - 1, count)];
        if self.is_alone {
            self.wait.observe(slot.begin.elapsed_until(first_wait)?);
        }
        if route.paths[0] != TransferPath::Resident {
            times.upload = Some(slot.begin.elapsed_until(&last.uploaded)?);
        }
        // The kernels of a cover begin when all is uploaded.
        let begin = if route.is_cover { last } else { first };
        times.kernel = Some(begin.uploaded.elapsed_until(&last.processed)?);
        if route.paths[1] != TransferPath::Resident {
            times.download = Some(begin.processed.elapsed_until(&last.downloaded)?);
        }
        Ok(times)
    }

    /// Copies rectangles out of the staging buffer, those with each index when the wait for them has returned.
    fn unstage(
        &mut self,
        threads: &Threads,
        rects: &[&[ByteRect]],
        mut wait: impl FnMut(&mut Self, usize) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let staging = self.slot.downloads(self.frame.route.is_cover).staging_planes();
        let staging: Vec<_> = staging.iter().map(HostPlaneMut::as_const).collect();
        let planes = SharedPlanes::new(&staging, &self.frame.destination);
        // SAFETY: the destination is valid and has the slot's layouts; the owner of its memory lets nobody access it before
        // the frame is completed; each byte is copied once, after its download.
        let copy = |rect: &ByteRect| unsafe { planes.copy(rect) };
        ThreadedCopy::new(rects.iter().copied()).copy_out(threads, copy, &mut |index| wait(self, index))
    }
}

/// The planes of a frame in host memory.
fn host_planes(frame: &FrameMemory<*mut u8>) -> Vec<HostPlaneMut> {
    match frame {
        FrameMemory::Host(planes) => planes.clone(),
        FrameMemory::Device { .. } => Vec::new(),
    }
}

/// Bytes that the CPU copies to and from staging buffers.
fn staged_bytes(paths: [TransferPath; 2], schedule: &Schedule) -> usize {
    let bytes = |rects: &[ByteRect]| rects.iter().map(ByteRect::size).sum::<usize>();
    let is_staged = paths.map(|path| path == TransferPath::Staged);
    let uploaded = if is_staged[0] { schedule.uploads().map(ByteRect::size).sum() } else { 0 };
    let downloaded = if is_staged[1] && schedule.writes.is_empty() {
        schedule.pieces.iter().map(|piece| bytes(&piece.download)).sum()
    } else {
        bytes(&schedule.writes)
    };
    uploaded + downloaded
}
