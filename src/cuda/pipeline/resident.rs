// SPDX-License-Identifier: MPL-2.0
//! The part of the pipeline for frames that stay on the device: ordering among streams of other owners, a workspace that frames
//! of several streams share, and the times of some frames. Nothing waits, unless a frame has no stream.

use std::sync::Arc;
use std::time::Duration;

use super::promised_frames::{FrameStreams, PromisedFrames};
use super::recorded_frame::RecordedFrame;
use super::timing_sampler::TimingSampler;
use super::{Pipeline, SubmitError};
use crate::cuda::driver::{Event, Stream, Workspace, WorkspaceNeed};
use crate::cuda::error::CudaError;
use crate::cuda::select::KernelSelector;
use crate::filter::plan::Plan;

/// Timers in use at once. While all are running, frames are not timed.
const TIMERS: usize = 4;

impl Pipeline {
    /// Enqueues a frame that stays on the device, on the destination's stream, else the source's, else the engine's.
    pub(super) fn submit_resident(
        &mut self,
        selector: &mut KernelSelector,
        frames: &PromisedFrames,
        plan: &Arc<Plan>,
    ) -> Result<Enqueued, SubmitError> {
        let planes = frames.device_planes();
        let streams = frames.streams();
        let stream = streams.or(&self.compute);
        let resident = ResidentState::get(&mut self.resident, selector.device().id())?;
        let recorded = RecordedFrame::of_plan(&mut self.recorded, selector, plan, planes, Some(1))?;
        let need = WorkspaceNeed { bytes: recorded.workspace_bytes(), varies: false };
        let specialised = recorded.specialised();
        let work = |workspace: u64| {
            recorded.set_addresses(planes, workspace);
            // SAFETY: the plan is for the layouts of the frames, which live until the stream has done the work, as their owner
            // promises; the workspace is large enough and this stream's alone.
            unsafe { recorded.enqueue(selector, &stream, 0) }
        };
        resident.enqueue(need, streams, &stream, specialised, work).map_err(|error| {
            // Work that was enqueued before the failure may still use the frames.
            SubmitError { error, settled: stream.synchronize().is_ok() }
        })
    }
}

/// What was enqueued for such a frame.
pub struct Enqueued {
    /// Whether specialised kernels do all blurs; `None` if there are none.
    pub specialised: Option<bool>,
    /// Whether the work is complete, because a frame has no stream.
    pub synchronized: bool,
    /// How long the kernels of an earlier frame took.
    pub kernel: Option<Duration>,
}

/// State kept between frames that stay on the device.
pub struct ResidentState {
    workspace: Workspace,
    /// The stream that used the workspace last.
    workspace_stream: Option<usize>,
    /// The end of that use.
    workspace_free: Event,
    /// Orders two streams.
    order: Event,
    timers: TimerPool,
}

impl Drop for ResidentState {
    fn drop(&mut self) {
        if self.workspace_stream.is_some() {
            // A failure was reported by the work that failed.
            let _ = self.workspace_free.synchronize();
        }
    }
}

impl ResidentState {
    /// The state in `slot`, which is made if there is none, on the device whose context is current.
    pub fn get(slot: &mut Option<Self>, device: u32) -> Result<&mut Self, CudaError> {
        match slot {
            Some(state) => Ok(state),
            none => Ok(none.insert(Self::new(device)?)),
        }
    }

    fn new(device: u32) -> Result<Self, CudaError> {
        Ok(Self {
            timers: TimerPool::new(device)?,
            workspace: Workspace::default(),
            workspace_stream: None,
            workspace_free: Event::new(device)?,
            order: Event::new(device)?,
        })
    }

    /// Enqueues `work` on `stream`. It gets the address of `need.bytes` of workspace. What is enqueued later on the source's stream, such as writing the next frame into it, waits for this frame.
    /// What `work` enqueues on another stream waits for `stream`, which waits for its end. The context is current.
    pub fn enqueue(
        &mut self,
        need: WorkspaceNeed,
        streams: FrameStreams,
        stream: &Stream,
        specialised: Option<bool>,
        work: impl FnOnce(u64) -> Result<(), CudaError>,
    ) -> Result<Enqueued, CudaError> {
        let handle = stream.raw() as usize;
        self.acquire_workspace(need, stream)?;
        let other_source = streams.source(stream.device()).filter(|source| source.raw() as usize != handle);
        if let Some(source) = &other_source {
            stream.wait_for(source, &self.order)?;
        }
        let kernel = self.timers.next_frame();
        self.timers.start(stream)?;
        work(self.workspace.address())?;
        self.timers.stop(stream)?;
        if need.bytes > 0 {
            stream.record(&self.workspace_free)?;
            self.workspace_stream = Some(handle);
        }
        if let Some(source) = other_source {
            source.wait_for(stream, &self.order)?;
        }
        let synchronized = !streams.are_complete();
        if synchronized {
            stream.synchronize()?;
        }
        Ok(Enqueued { specialised, synchronized, kernel })
    }

    /// Makes workspace available to the stream.
    fn acquire_workspace(&mut self, need: WorkspaceNeed, stream: &Stream) -> Result<(), CudaError> {
        if need.bytes > self.workspace.bytes() {
            if self.workspace_stream.take().is_some() {
                self.workspace_free.synchronize()?;
            }
        } else if need.bytes > 0 && self.workspace_stream.is_some_and(|last| last != stream.raw() as usize) {
            stream.wait(&self.workspace_free)?;
        }
        self.workspace.reserve(need, stream).map(drop)
    }
}

/// Pairs of events around the kernels of some frames.
struct TimerPool {
    timers: Vec<Timer>,
    /// The timer of the next frame that is timed.
    next: usize,
    frames: TimingSampler,
    /// Whether the frame at hand is timed.
    is_timing: bool,
}

struct Timer {
    begin: Event,
    end: Event,
    /// Whether its time has not been read yet.
    is_running: bool,
}

impl TimerPool {
    fn new(device: u32) -> Result<Self, CudaError> {
        let timer = |_| Ok(Timer { begin: Event::new(device)?, end: Event::new(device)?, is_running: false });
        let timers = (0..TIMERS).map(timer).collect::<Result<_, CudaError>>()?;
        Ok(Self { timers, next: 0, frames: TimingSampler::default(), is_timing: false })
    }

    /// Decides whether the next frame is timed, and returns the time of an earlier one if it is known.
    fn next_frame(&mut self) -> Option<Duration> {
        let is_due = self.frames.next_frame();
        let time = if is_due { self.read() } else { None };
        self.is_timing = is_due && !self.timers[self.next].is_running;
        time
    }

    /// Records the begin of the kernels.
    fn start(&self, stream: &Stream) -> Result<(), CudaError> {
        if self.is_timing { stream.record(&self.timers[self.next].begin) } else { Ok(()) }
    }

    /// Records the end of the kernels.
    fn stop(&mut self, stream: &Stream) -> Result<(), CudaError> {
        if self.is_timing {
            let timer = &mut self.timers[self.next];
            stream.record(&timer.end)?;
            timer.is_running = true;
            self.next = (self.next + 1) % TIMERS;
        }
        Ok(())
    }

    /// The time of the oldest running timer, if its frame is done.
    fn read(&mut self) -> Option<Duration> {
        let oldest = (0..TIMERS).map(|i| (self.next + i) % TIMERS).find(|i| self.timers[*i].is_running)?;
        let Timer { begin, end, is_running } = &mut self.timers[oldest];
        if !end.is_done().ok()? {
            return None;
        }
        *is_running = false;
        begin.elapsed_until(end).ok()
    }
}
