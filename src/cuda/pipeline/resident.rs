// SPDX-License-Identifier: MPL-2.0
//! The part of the pipeline for frames that stay on the device. It orders the streams of other owners, shares one workspace
//! between frames of several streams, and times some frames. The calling thread waits for the device in four cases: a frame has
//! no stream, the workspace or the memory for weights grows, the upload of weights three frames ago is not complete, or enqueuing
//! fails.

use std::sync::Arc;
use std::time::Duration;

use super::timer::{Timer, Timers};
use super::{Pipeline, SubmitError, get_or_make, streams_of};
use crate::cuda::driver::device::Device;
use crate::cuda::driver::{DeviceMemory, Event, Stream, Workspace};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::lower::DevicePlanes;
use crate::cuda::program::Program;
use crate::cuda::selector::KernelSelector;
use crate::cuda::transfer::schedule::Division;
use crate::filter::cover::Softness;
use crate::filter::frame::ValidFrames;
use crate::filter::parts::Job;
use crate::filter::plane::DevicePlane;

impl Pipeline {
    /// Enqueues a frame that stays on the device: on the stream of the destination, else of the source, else of the engine. A
    /// cover into another buffer also copies the planes that it does not write wholly.
    pub(super) fn submit_resident(
        &mut self,
        selector: &mut KernelSelector,
        frames: &ValidFrames,
        job: &Arc<Job>,
        soft: Option<&Softness>,
    ) -> Result<Enqueued, SubmitError> {
        let device = Arc::clone(selector.device());
        let of = |planes: Option<&[DevicePlane]>| planes.unwrap_or_default().to_vec();
        let (sources, destinations) = (of(frames.source().device_planes()), of(frames.destination().device_planes()));
        let (planes, streams) = (DevicePlanes { sources, destinations }, streams_of(frames, &device));
        let stream = streams.iter().flatten().next_back().unwrap_or(&self.compute);
        let resident = get_or_make(&mut self.resident, || ResidentState::new(&device))?;
        let grow = |workspace: &mut Workspace<_>, bytes| resident.use_of_workspace.replace(workspace, bytes, stream);
        let prepared = self.jobs.get(job, Division::Resident);
        let program = prepared.program(selector, (job, soft), &planes, &mut resident.workspace, grow)?;
        let (copied, frame_copy) = (copied_planes(job, &planes), &mut self.frame_copy);
        let (kernels, weights) = (&selector.prebuilt, &mut self.weights);
        let work = |workspace: u64| {
            // SAFETY: the context is current, and the program was made for these planes. The maker of `ValidFrames` has promised
            // that they live until the stream has done the work. The workspace is large enough, and this stream has waited for
            // its last use.
            let enqueue = |section: usize| unsafe { program.enqueue(stream, section) };
            if let Some(soft) = soft {
                // SAFETY: the context is current. The program has memory for the nodes at the beginning of the workspace, which
                // this stream uses alone until the work is done.
                unsafe { weights.enqueue(kernels, soft, workspace, stream) }?;
            }
            if job.accesses.is_none() {
                return enqueue(0);
            }
            if copied.is_empty() || program.is_empty(0) {
                copy_planes(&copied, &planes, job, stream)?;
                enqueue(0)?;
            } else {
                let copy = get_or_make(frame_copy, || FrameCopy::new(&device))?;
                copy.enqueue(&copied, &planes, job, stream)?;
                enqueue(0)?;
                stream.wait(&copy.end)?;
            }
            enqueue(1)
        };
        resident.enqueue(&program, (&streams, stream), &mut self.timers, work).map_err(|error| {
            // Work that was enqueued before the failure may still use the frames.
            let copy = self.frame_copy.as_ref().map(|copy| &copy.stream);
            let settled = [Some(stream), copy].map(|stream| stream.is_none_or(|stream| stream.synchronize().is_ok()));
            SubmitError { error, settled: settled == [true; 2] }
        })
    }
}

/// The planes of the source that a cover copies: those that it does not write wholly, unless both frames have the same plane.
fn copied_planes(job: &Job, planes: &DevicePlanes) -> Vec<usize> {
    let is_same = |plane: usize| {
        let (from, to) = (&planes.sources[plane], &planes.destinations[plane]);
        from.address == to.address && from.pitch == to.pitch
    };
    job.copied_planes().into_iter().filter(|plane| !is_same(*plane)).collect()
}

/// A second stream on which a frame is copied while its cover is computed. The copy takes half as long as the blurs of a few
/// regions.
pub struct FrameCopy {
    stream: Stream,
    begin: Event,
    end: Event,
}

impl FrameCopy {
    fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        Ok(Self { stream: Stream::new(device)?, begin: Event::new(device)?, end: Event::new(device)? })
    }

    /// Enqueues a copy of planes of the source to the destination. It waits for the work on `after`, and `end` is recorded behind
    /// it.
    fn enqueue(&self, copied: &[usize], planes: &DevicePlanes, job: &Job, after: &Stream) -> Result<(), CudaError> {
        self.stream.wait_for(after, &self.begin)?;
        copy_planes(copied, planes, job, &self.stream)?;
        self.stream.record(&self.end)
    }
}

/// The result of submitting a frame that stays on the device.
pub struct Enqueued {
    /// See `Program::specialised`.
    pub specialised: Option<bool>,
    /// Whether the work is complete already, because a frame has no stream.
    pub synchronized: bool,
    /// The time that the kernels of an earlier frame took.
    pub kernel: Option<Duration>,
}

/// The state that frames that stay on the device share.
pub struct ResidentState {
    /// Dropped before `workspace`, because fields are dropped in this order: it waits for the last use of that memory.
    use_of_workspace: LastUse,
    workspace: Workspace<DeviceMemory>,
    /// Orders two streams.
    order: Event,
}

/// The last use of the workspace.
struct LastUse {
    /// The stream of the last use; `None` if the workspace is not in use.
    stream: Option<usize>,
    end: Event,
}

impl LastUse {
    /// Replaces the workspace by one of `bytes` bytes, when nothing uses the old one any more.
    fn replace(
        &mut self,
        workspace: &mut Workspace<DeviceMemory>,
        bytes: usize,
        stream: &Stream,
    ) -> Result<(), CudaError> {
        if self.stream.take().is_some() {
            self.end.synchronize()?;
        }
        workspace.replace(|| DeviceMemory::new(bytes, stream))
    }
}

impl Drop for LastUse {
    fn drop(&mut self) {
        if self.stream.is_some() {
            self.end.wait_before_drop();
        }
    }
}

impl ResidentState {
    fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        Ok(Self {
            use_of_workspace: LastUse { stream: None, end: Event::new(device)? },
            workspace: Workspace::default(),
            order: Event::new(device)?,
        })
    }

    /// Enqueues a frame with these `streams` on `stream`. `work` gets the address of the workspace and enqueues the program. Work
    /// that is enqueued later on the source's stream, such as writing the next frame into it, waits for this frame. If `work`
    /// uses a second stream, that stream waits for `stream`, and `stream` waits for its end. The context is current.
    pub fn enqueue(
        &mut self,
        Program { workspace_bytes, specialised, .. }: &Program,
        (streams, stream): (&[Option<Stream>; 2], &Stream),
        timers: &mut Timers,
        work: impl FnOnce(u64) -> Result<(), CudaError>,
    ) -> Result<Enqueued, CudaError> {
        let uses_workspace = *workspace_bytes > 0;
        let handle = stream.raw() as usize;
        let last = &mut self.use_of_workspace;
        if uses_workspace && last.stream.is_some_and(|last| last != handle) {
            stream.wait(&last.end)?;
        }
        let other_source = streams[0].as_ref().filter(|source| source.raw() as usize != handle);
        if let Some(source) = other_source {
            stream.wait_for(source, &self.order)?;
        }
        let timer = timers.next(None, stream.device())?;
        // The time of an earlier frame, if that is done.
        let kernel = timer.as_ref().and_then(|_| timers.read());
        if let Some(Timer { begin, .. }) = &timer {
            stream.record(begin)?;
        }
        work(self.workspace.address())?;
        if let Some(timer) = timer {
            stream.record(&timer.last.processed)?;
            timers.leave_running(timer);
        }
        if uses_workspace {
            stream.record(&last.end)?;
            last.stream = Some(handle);
        }
        if let Some(source) = other_source {
            source.wait_for(stream, &self.order)?;
        }
        let synchronized = streams.iter().any(Option::is_none);
        if synchronized {
            stream.synchronize()?;
        }
        Ok(Enqueued { specialised: *specialised, synchronized, kernel })
    }
}

/// Copies planes of the source to the destination. Both frames are on the device, and these planes do not overlap.
fn copy_planes(copied: &[usize], planes: &DevicePlanes, job: &Job, stream: &Stream) -> Result<(), CudaError> {
    copied.iter().try_for_each(|plane| {
        let (from, to) = (&planes.sources[*plane], &planes.destinations[*plane]);
        let layout = &job.plan.layouts()[*plane];
        // SAFETY: `ValidFrames` proves that both planes hold all rows, and its maker has promised that they live until the copy
        // is complete.
        unsafe { stream.copy(from, to, layout.row_bytes(), layout.height as usize) }
    })
}
