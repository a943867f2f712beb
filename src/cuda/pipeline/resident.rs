// SPDX-License-Identifier: MPL-2.0
//! The part of the pipeline for frames that stay on the device: ordering among streams of other owners, a workspace that frames
//! of several streams share, and the times of some frames. The calling thread waits only for a frame without a stream, when the workspace
//! grows, and for the upload of weights three frames ago.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::promised_frames::PromisedFrames;
use super::timing_sampler::TimingSampler;
use super::{Pipeline, SubmitError, get_or_make};
use crate::cuda::driver::device::Device;
use crate::cuda::driver::{DeviceMemory, Event, Stream, Workspace};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::lower::DevicePlanes;
use crate::cuda::selector::KernelSelector;
use crate::cuda::transfer::schedule::Division;
use crate::filter::cover::Softness;
use crate::filter::parts::Job;
use crate::filter::plane::DevicePlane;

/// Timers in use at once. While all are running, frames are not timed.
const TIMERS: usize = 4;

impl Pipeline {
    /// Enqueues a frame that stays on the device, on the destination's stream, else the source's, else the engine's. If a frame is
    /// covered and its source and destination are not the same memory, the source is copied too.
    pub(super) fn submit_resident(
        &mut self,
        selector: &mut KernelSelector,
        frames: &PromisedFrames,
        job: &Arc<Job>,
        soft: Option<&Softness>,
    ) -> Result<Enqueued, SubmitError> {
        let device = Arc::clone(selector.device());
        let [sources, destinations] = frames.device_planes().map(<[DevicePlane]>::to_vec);
        let planes = DevicePlanes { sources, destinations };
        let streams = frames.streams(&device);
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
                copy_planes(&copied, frames, stream)?;
                enqueue(0)?;
            } else {
                let copy = get_or_make(frame_copy, || FrameCopy::new(&device))?;
                copy.enqueue(&copied, frames, stream)?;
                enqueue(0)?;
                stream.wait(&copy.end)?;
            }
            enqueue(1)
        };
        let bytes = program.workspace_bytes;
        resident.enqueue(bytes, &streams, stream, program.specialised, work).map_err(|error| {
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
    fn enqueue(&self, planes: &[usize], frames: &PromisedFrames, after: &Stream) -> Result<(), CudaError> {
        self.stream.wait_for(after, &self.begin)?;
        copy_planes(planes, frames, &self.stream)?;
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
    timers: TimerPool,
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
            timers: TimerPool::new(device)?,
        })
    }

    /// Enqueues `work` on `stream`, for a frame with these streams. It gets the address of the workspace, of which it needs so
    /// many bytes. What is enqueued later on the source's stream, such as writing the next frame into it, waits for this frame.
    /// What `work` enqueues on another stream waits for `stream`, which waits for its end. The context is current.
    pub fn enqueue(
        &mut self,
        bytes: usize,
        streams: &[Option<Stream>; 2],
        stream: &Stream,
        specialised: Option<bool>,
        work: impl FnOnce(u64) -> Result<(), CudaError>,
    ) -> Result<Enqueued, CudaError> {
        let handle = stream.raw() as usize;
        let last = &mut self.use_of_workspace;
        if bytes > 0 && last.stream.is_some_and(|last| last != handle) {
            stream.wait(&last.end)?;
        }
        let other_source = streams[0].as_ref().filter(|source| source.raw() as usize != handle);
        if let Some(source) = other_source {
            stream.wait_for(source, &self.order)?;
        }
        let kernel = self.timers.next_frame();
        self.timers.start(stream)?;
        work(self.workspace.address())?;
        self.timers.stop(stream)?;
        if bytes > 0 {
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
        Ok(Enqueued { specialised, synchronized, kernel })
    }
}

/// Copies planes of the source to the destination. Both are on the device and do not overlap.
fn copy_planes(planes: &[usize], frames: &PromisedFrames, stream: &Stream) -> Result<(), CudaError> {
    let (layouts, [sources, destinations]) = (frames.layouts(), frames.device_planes());
    planes.iter().try_for_each(|plane| {
        let layout = &layouts[*plane];
        // SAFETY: both planes hold the rows and live until the copy is complete, as the owner of the frames promises.
        unsafe { stream.copy(&sources[*plane], &destinations[*plane], layout.row_bytes(), layout.height as usize) }
    })
}

/// Pairs of events around the kernels of some frames.
struct TimerPool {
    idle: Vec<[Event; 2]>,
    /// Those whose times have not been read yet, the oldest first.
    running: VecDeque<[Event; 2]>,
    frames: TimingSampler,
    /// Whether the frame at hand is timed, if there is a timer.
    is_timing: bool,
}

impl TimerPool {
    fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        let timer = |_| Ok([Event::timed(device)?, Event::timed(device)?]);
        let idle = (0..TIMERS).map(timer).collect::<Result<_, CudaError>>()?;
        Ok(Self { idle, running: VecDeque::new(), frames: TimingSampler::default(), is_timing: false })
    }

    /// Decides whether the next frame is timed, and returns the time of an earlier one if it is known.
    fn next_frame(&mut self) -> Option<Duration> {
        self.is_timing = self.frames.next_frame();
        if self.is_timing { self.read() } else { None }
    }

    /// The events of the frame at hand, if it is timed.
    fn of_frame(&self) -> Option<&[Event; 2]> {
        self.idle.last().filter(|_| self.is_timing)
    }

    /// Records the begin of the kernels.
    fn start(&self, stream: &Stream) -> Result<(), CudaError> {
        self.of_frame().map_or(Ok(()), |[begin, _]| stream.record(begin))
    }

    /// Records the end of the kernels.
    fn stop(&mut self, stream: &Stream) -> Result<(), CudaError> {
        if let Some([_, end]) = self.of_frame() {
            stream.record(end)?;
            self.running.extend(self.idle.pop());
        }
        Ok(())
    }

    /// The time of the oldest running timer, if its frame is done.
    fn read(&mut self) -> Option<Duration> {
        let [_, end] = self.running.front()?;
        if !end.is_done().ok()? {
            return None;
        }
        let timer = self.running.pop_front()?;
        let time = timer[0].elapsed_until(&timer[1]).ok();
        self.idle.push(timer);
        time
    }
}
