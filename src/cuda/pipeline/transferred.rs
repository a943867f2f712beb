// SPDX-License-Identifier: MPL-2.0
//! Frames with an upload, a download or both. Each has a slot while it is in flight, and is waited for in the order of
//! submission.

use std::sync::Arc;
use std::time::Instant;

use super::Pipeline;
use super::enqueue::{FrameToEnqueue, Streams};
use super::frame_slot::FrameSlot;
use super::route::{Route, TransferPath};
use super::submitted::{SubmitError, SubmittedFrame, Times};
use super::timer::Timer;
use crate::cuda::driver::{DeviceMemory, Event, Workspace};
use crate::cuda::error::CudaError;
use crate::cuda::selector::KernelSelector;
use crate::cuda::transfer::adaptive_wait::AdaptiveWait;
use crate::cuda::transfer::{SharedPlanes, ThreadedCopy};
use crate::filter::byte_rect::ByteRect;
use crate::filter::cover::Softness;
use crate::filter::frame::{FrameMemory, ValidFrames};
use crate::filter::parts::Job;
use crate::filter::plane::HostPlaneMut;
use crate::threads::Threads;

impl Pipeline {
    /// Enqueues a frame with an upload, a download or both.
    pub(super) fn submit_transfer(
        &mut self,
        selector: &mut KernelSelector,
        frames: &ValidFrames,
        job: &Arc<Job>,
        soft: Option<&Softness>,
    ) -> Result<SubmittedFrame, SubmitError> {
        let (compute, ahead) = (&self.compute, self.copy_streams.in_flight());
        let (route, prepared) = Route::new(frames, job, self.bands, ahead, &mut self.jobs);
        let schedule = Arc::clone(&prepared.schedule);
        let mut slot = self.slots.take(frames, &route, schedule.pieces.len(), compute)?;
        let grow = |workspace: &mut Workspace<_>, bytes| {
            workspace.replace(|| DeviceMemory::new(bytes, compute))?;
            compute.synchronize()
        };
        let program = prepared.program(selector, (job, soft), &slot.planes, &mut slot.workspace, grow)?;
        let timer = self.timers.next((!route.is_cover).then_some(job), selector.device())?;
        let started = Instant::now();
        let streams = Streams::of(&route, compute, &self.copy_streams);
        let to_enqueue = FrameToEnqueue {
            frames,
            job,
            soft,
            route,
            program: &program,
            schedule: &schedule,
            slot: &mut slot,
            timer: timer.as_ref(),
            streams,
            kernels: &selector.prebuilt,
        };
        if let Err(error) = to_enqueue.enqueue(&self.threads) {
            // Work that was enqueued before the failure may still be running.
            let settled = streams.synchronize();
            if !settled {
                std::mem::forget(slot);
            }
            return Err(SubmitError { error, settled: settled || !route.uses_frame_memory() });
        }
        Ok(SubmittedFrame {
            slot: Some(slot),
            timer,
            destination: host_planes(frames.destination()),
            times: Times {
                bytes_copied: route.staged_bytes(&schedule),
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

    /// Waits for the oldest in-flight frame, and copies it out of its staging buffer. The context is current. After an error the
    /// frame has to be settled. A frame that is covered in place is then unchanged, and any other destination is undefined.
    pub fn complete(&mut self, frame: &mut SubmittedFrame) -> Result<Times, CudaError> {
        let Some(slot) = &frame.slot else { return Ok(frame.times) };
        let (route, schedule) = (frame.route, &frame.schedule);
        let wait = &mut self.waits[usize::from(route.is_cover)];
        // Behind other frames the expected time is not known, and a delay matters less because the device has more work.
        let is_alone = route.is_alone && self.copy_streams.in_flight() == 1;
        let mut completion = Completion { frame, slot, wait, is_alone };
        let last = &slot.events[schedule.pieces.len() - 1];
        if route.is_cover {
            // Threads wake up while the download runs. They write the frame only after it, when the device can no longer fail.
            completion.unstage(&self.threads, &[&[], &schedule.writes], |completion, rects| {
                if rects == 0 {
                    return completion.wait(&last.processed);
                }
                completion.wait(&last.downloaded)
            })?;
        } else if route.paths[1] == TransferPath::Staged {
            let rects: Vec<_> = schedule.pieces.iter().map(|piece| &piece.download[..]).collect();
            completion
                .unstage(&self.threads, &rects, |completion, piece| completion.wait(&slot.events[piece].downloaded))?;
        } else {
            completion.wait(&last.downloaded)?;
        }
        let times = completion.times();
        self.slots.put_back(frame.slot.take());
        self.timers.put_back(frame.timer.take());
        Ok(times)
    }
}

/// The completion of a frame.
struct Completion<'a> {
    frame: &'a SubmittedFrame,
    slot: &'a FrameSlot,
    wait: &'a mut AdaptiveWait,
    /// Whether no other frame is in flight, and none was when this frame was submitted.
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

    /// The times of the frame. All its work is done, so a time that cannot be read is not worth an error.
    fn times(&mut self) -> Times {
        let (route, mut times) = (self.frame.route, self.frame.times);
        let Some(Timer { begin, first, last }) = &self.frame.timer else { return times };
        let between = |from: &Event, to: &Event| from.elapsed_until(to).ok();
        // The bands of a staged frame are waited for one by one, so the first wait is for the first band.
        let first_wait = if !route.is_cover && route.paths[1] == TransferPath::Staged { first } else { last };
        if let Some(time) = between(begin, &first_wait.downloaded).filter(|_| self.is_alone) {
            self.wait.observe(time);
        }
        if route.paths[0] != TransferPath::Resident {
            times.upload = between(begin, &last.uploaded);
        }
        // The kernels of a cover begin when the last piece has been uploaded.
        let from = if route.is_cover { last } else { first };
        times.kernel = between(&from.uploaded, &last.processed);
        if route.paths[1] != TransferPath::Resident {
            times.download = between(&from.processed, &last.downloaded);
        }
        times
    }

    /// Copies rectangles out of the staging buffer. `wait` is called with each index; the rectangles with this index are copied
    /// after it.
    fn unstage(
        &mut self,
        threads: &Threads,
        rects: &[&[ByteRect]],
        mut wait: impl FnMut(&mut Self, usize) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let staging = self.slot.downloads(self.frame.route.is_cover).staging_planes();
        let staging: Vec<_> = staging.iter().map(HostPlaneMut::as_const).collect();
        let planes = SharedPlanes::new(&staging, &self.frame.destination);
        // SAFETY: `ValidFrames` proves that the destination holds the rectangle, and the staging buffer has the same layouts. The
        // owner of the destination lets nobody access it before the frame is completed. Each byte is copied once, after its
        // download.
        let copy = |rect: &ByteRect| unsafe { planes.copy(rect) };
        ThreadedCopy::new(rects.iter().copied()).copy_out(threads, copy, &mut |index| wait(self, index))
    }
}

/// The planes of a frame in host memory; none for a frame in device memory.
fn host_planes(frame: &FrameMemory<*mut u8>) -> Vec<HostPlaneMut> {
    match frame {
        FrameMemory::Host(planes) => planes.clone(),
        FrameMemory::Device { .. } => Vec::new(),
    }
}
