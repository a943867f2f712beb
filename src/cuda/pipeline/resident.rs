// SPDX-License-Identifier: MPL-2.0
//! The part of the pipeline for frames that stay on the device: ordering among streams of other owners, a workspace that frames
//! of several streams share, and the times of some frames. The calling thread waits only for a frame without a stream, when the workspace
//! grows, and for the upload of weights three frames ago.

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
    /// Enqueues a frame that stays on the device, on the destination's stream, else the source's, else the engine's. If a frame is
    /// covered and its source and destination are not the same memory, the source is copied too.
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
            // SAFETY: the program is for the layouts and the planes of the frames, which live until the stream has done the
            // work, as their owner promises; the workspace is large enough and this stream's alone.
            let enqueue = |section: usize| unsafe { program.enqueue(stream, section) };
            if let Some(soft) = soft {
                // SAFETY: the program has memory for the nodes at the beginning of the workspace.
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

/// The planes of the source that are copied before a frame is covered: none in place, nor those that are written wholly.
fn copied_planes(job: &Job, planes: &DevicePlanes) -> Vec<usize> {
    let is_same = |plane: usize| {
        let (from, to) = (&planes.sources[plane], &planes.destinations[plane]);
        from.address == to.address && from.pitch == to.pitch
    };
    job.copied_planes().into_iter().filter(|plane| !is_same(*plane)).collect()
}

/// The copy of a frame on a second stream, while what covers it is computed: it takes half as long.
pub struct FrameCopy {
    stream: Stream,
    begin: Event,
    end: Event,
}

impl FrameCopy {
    fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        Ok(Self { stream: Stream::new(device)?, begin: Event::new(device)?, end: Event::new(device)? })
    }

    /// Enqueues a copy of planes of the source to the destination behind what is on `after`. `end` is its end.
    fn enqueue(&self, copied: &[usize], planes: &DevicePlanes, job: &Job, after: &Stream) -> Result<(), CudaError> {
        self.stream.wait_for(after, &self.begin)?;
        copy_planes(copied, planes, job, &self.stream)?;
        self.stream.record(&self.end)
    }
}

/// What was enqueued for such a frame.
pub struct Enqueued {
    /// See `Program::specialised`.
    pub specialised: Option<bool>,
    /// Whether the work is complete, because a frame has no stream.
    pub synchronized: bool,
    /// How long the kernels of an earlier frame took.
    pub kernel: Option<Duration>,
}

/// State kept between frames that stay on the device.
pub struct ResidentState {
    /// Frees the memory after `use_of_workspace` has waited: fields are dropped in this order.
    use_of_workspace: LastUse,
    workspace: Workspace<DeviceMemory>,
    /// Orders two streams.
    order: Event,
}

/// The last use of the workspace.
struct LastUse {
    /// Its stream.
    stream: Option<usize>,
    end: Event,
}

impl LastUse {
    /// Allocates workspace of so many bytes, when nothing uses the old one any more.
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

    /// Enqueues `work`, which enqueues the program, on `stream`, for a frame with these `streams`. It gets the address of the workspace.
    /// What is enqueued later on the source's stream, such as writing the next frame into it, waits for this frame. What `work`
    /// enqueues on another stream waits for `stream`, which waits for its end. The context is current.
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
        // The time of an earlier frame, which is done.
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

/// Copies planes of the source to the destination. Both are on the device and do not overlap.
fn copy_planes(copied: &[usize], planes: &DevicePlanes, job: &Job, stream: &Stream) -> Result<(), CudaError> {
    copied.iter().try_for_each(|plane| {
        let (from, to) = (&planes.sources[*plane], &planes.destinations[*plane]);
        let layout = &job.plan.layouts()[*plane];
        // SAFETY: both planes hold the rows and live until the copy is complete, as the owner of the frames promises.
        unsafe { stream.copy(from, to, layout.row_bytes(), layout.height as usize) }
    })
}
