// SPDX-License-Identifier: MPL-2.0
//! The engine: picks a backend, validates frames, finds their jobs, submits and completes frames, and falls back to the CPU.

mod error;
mod in_flight;
mod job_cache;
mod stats;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::cpu::CpuEngine;
pub use crate::cuda::driver::api::load as load_driver;
pub use crate::cuda::driver::device::ExternalContext;
use crate::cuda::{CudaEngine, Submission, SubmitError};
pub use crate::cuda::{CudaError, HostRegistration, PinnedSource};
use crate::filter::BlurParams;
pub use crate::filter::cover::{BlurRegion, Cover, Hide, Softness};
use crate::filter::frame::{FrameError, FrameMemory, FramePair, PlaneLayout, ValidFrames};
use crate::filter::parts::Job;
use crate::filter::plan::Options;
use crate::process;
pub use crate::process::{Level, Sink, set_log_sink as log_to};
pub use error::{EngineError, ErrorKind};
use in_flight::{Abandoned, State};
pub use in_flight::{CompletedFrame, FrameAccess, InFlightFrame};
use job_cache::{JobCache, TilesOf, form};
pub use stats::{Stats, StepTime};

/// Calls both functions and returns both results. The second one runs on a worker thread, if there is one.
pub fn join<A, B: Send>(own: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    process::threads().join(own, other)
}

/// A request for a backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backend {
    /// CUDA if available, else the CPU.
    #[default]
    Auto,
    /// CUDA, or an error.
    Cuda,
    /// The CPU.
    Cpu,
}

/// The device for the CUDA backend.
pub enum DeviceSelector {
    /// The device with this number, with its primary context.
    Device(u32),
    /// The device of an external context, with that context.
    Context(ExternalContext),
}

/// The work for a frame.
#[derive(Debug, Clone, Copy)]
pub enum Work<'a> {
    /// Blurs the whole frame, into another frame.
    Blur(Options),
    /// Covers parts of the frame. The frame is covered in place if there is no source, or if source and destination are the same
    /// device memory. Otherwise the other parts are copied to the destination, whose bytes between rows stay unchanged.
    Cover(&'a Cover),
    /// Copies the frame to the device, from it, or on it. This does not count as a frame.
    Transfer,
}

impl<T: Into<Options>> From<T> for Work<'_> {
    fn from(options: T) -> Self {
        Self::Blur(options.into())
    }
}

impl<'a> From<&'a Cover> for Work<'a> {
    fn from(cover: &'a Cover) -> Self {
        Self::Cover(cover)
    }
}

/// Processes frames with the requested backend, or with the one that is available. No other module depends on which one it is.
pub struct Engine {
    /// The CUDA backend. If it is `None`, the CPU is the backend.
    cuda: Option<Box<CudaEngine>>,
    /// The CPU backend, created on first use. With CUDA it makes the covers for which it needs no more time than the device.
    cpu: Option<CpuEngine>,
    /// Whether the engine falls back to the CPU if CUDA fails.
    falls_back: bool,
    jobs: JobCache,
    /// Whether CUDA also makes the covers for which the CPU needs no more time.
    covers_on_device: bool,
    stats: Stats,
    abandoned: Arc<Abandoned>,
}

impl Engine {
    /// Opens the requested backend. If [`Backend::Auto`] falls back to the CPU, the reason is returned too.
    pub fn open(backend: Backend, device: DeviceSelector) -> Result<(Self, Option<CudaError>), EngineError> {
        let open = || match device {
            DeviceSelector::Device(id) => CudaEngine::new(id),
            DeviceSelector::Context(external) => CudaEngine::within(external),
        };
        let no_cuda = match backend {
            Backend::Cpu => None,
            Backend::Cuda => return Ok((Self::with_cuda(open()?), None)),
            Backend::Auto => match open() {
                Ok(cuda) => return Ok((Self { falls_back: true, ..Self::with_cuda(cuda) }, None)),
                Err(error) => Some(error),
            },
        };
        Ok((Self::with_cpu(CpuEngine::new()), no_cuda))
    }

    /// Switches to the context of the next frames. No frame may be in flight. After an error the engine still uses the old
    /// context.
    pub fn switch_context(&mut self, external: ExternalContext) -> Result<(), EngineError> {
        if let Some(cuda) = &mut self.cuda {
            **cuda = CudaEngine::within(external).map_err(EngineError::OnDevice)?;
        }
        Ok(())
    }

    /// The CUcontext that CUDA uses, and the driver's number of its device.
    pub fn context(&self) -> Option<(usize, u32)> {
        let device = self.cuda.as_ref()?.device();
        Some((device.context(), device.id()))
    }

    /// An engine with this CPU backend.
    pub fn with_cpu(cpu: CpuEngine) -> Self {
        let engine = Self::new(cpu.instruction_set().name());
        Self { cpu: Some(cpu), ..engine }
    }

    /// An engine with this CUDA backend. It does not fall back to the CPU.
    pub fn with_cuda(cuda: CudaEngine) -> Self {
        let engine = Self::new(cuda.kernel_name());
        Self { cuda: Some(Box::new(cuda)), ..engine }
    }

    fn new(kernel_name: &'static str) -> Self {
        Self {
            cuda: None,
            cpu: None,
            falls_back: false,
            jobs: JobCache::default(),
            covers_on_device: false,
            stats: Stats { kernel_name, ..Stats::default() },
            abandoned: Arc::default(),
        }
    }

    /// The same engine, but it makes all covers on the device, even those for which the CPU needs no more time. The output is the
    /// same.
    pub fn with_covers_on_device(mut self) -> Self {
        self.covers_on_device = true;
        self
    }

    /// Prepares for frames of these planes: does everything that they need and that takes milliseconds, before the first of them.
    pub fn prepare(&mut self, layouts: &[PlaneLayout]) {
        if let Some(cuda) = &mut self.cuda {
            cuda.prepare(layouts);
        }
    }

    /// The backend in use, which is never [`Backend::Auto`].
    pub fn active(&self) -> Backend {
        if self.cuda.is_some() { Backend::Cuda } else { Backend::Cpu }
    }

    /// Describes the device and its kernels, or the instruction set, for the log.
    pub fn description(&self) -> String {
        match &self.cuda {
            Some(cuda) => {
                format!("CUDA device {} ({}), {}", cuda.device().id(), cuda.device().name(), cuda.kernel_name())
            }
            None => format!("the CPU, {}", self.stats.kernel_name),
        }
    }

    /// A source of pinned memory for frames, if the backend is CUDA.
    pub fn pinned(&self) -> Option<PinnedSource> {
        self.cuda.as_deref().map(CudaEngine::pinned)
    }

    /// The counters and times so far.
    pub fn stats(&self) -> Stats {
        Stats { frames_abandoned: self.abandoned.frames.load(Ordering::Relaxed), ..self.stats }
    }

    /// The cause of the first abandoned frame, if any frame was abandoned.
    pub fn abandon_cause(&self) -> Option<&CudaError> {
        self.abandoned.cause.get()
    }

    /// Submits a frame and completes it.
    pub fn run<'w, F: FrameAccess>(
        &mut self,
        work: impl Into<Work<'w>>,
        access: F,
    ) -> Result<CompletedFrame<F>, EngineError> {
        let in_flight = self.submit(work, access)?;
        self.complete(in_flight)
    }

    /// Submits a frame. CUDA enqueues it. The CPU processes it before this function returns: if the CPU is the backend, and, for
    /// frames in host memory, if the job has no operations or is a cover for which the CPU needs no more time.
    ///
    /// # Errors
    /// After an error, a frame in host memory that is covered in place is unchanged. Any other destination is undefined and must
    /// not be shown. The engine falls back to the CPU only with frames in host memory.
    pub fn submit<'w, F: FrameAccess>(
        &mut self,
        work: impl Into<Work<'w>>,
        mut access: F,
    ) -> Result<InFlightFrame<F>, EngineError> {
        let work = work.into();
        let mut failure = None;
        match self.submit_to_device(work, &mut access)? {
            Ok(Some(state)) => return Ok(self.in_flight(state, access, None)),
            Ok(None) => (),
            Err(SubmitError { error, settled }) => {
                let settled = if settled { Ok(()) } else { Err(error.clone()) };
                (access, failure) = self.fall_back(access, Some(error), settled)?;
            }
        }
        self.run_on_cpu(work, &mut access)?;
        Ok(self.in_flight(State::Done { queued: false }, access, failure))
    }

    /// Submits a frame to CUDA. Returns `None` if the CPU has to process it.
    fn submit_to_device<F: FrameAccess>(
        &mut self,
        work: Work,
        access: &mut F,
    ) -> Result<Result<Option<State>, SubmitError>, EngineError> {
        let Some(cuda) = &mut self.cuda else { return Ok(Ok(None)) };
        let pair = access.frames();
        let are_on_host = pair.is_on_host();
        if let Work::Cover(cover) = work
            && are_on_host
            && !self.covers_on_device
            && is_for_cpu(cover)
        {
            return Ok(Ok(None));
        }
        // SAFETY: `FrameAccess` promises that the memory and the streams live, and that nobody else accesses them in conflict, as
        // long as `access` does: until the frame is completed or dropped, or for good if `access` is leaked. For device memory it
        // promises this until the streams have done the work.
        let frames = unsafe { work.validate(pair) }?;
        let (job, soft) = work.job(&mut self.jobs, frames.layouts(), TilesOf::Cuda);
        if job.is_empty() && are_on_host {
            return Ok(Ok(None));
        }
        let state = cuda.submit(&frames, &job, soft).map(|submission| match submission {
            Submission::InFlight(frame) => State::InFlight(frame, work.into()),
            Submission::Resident(enqueued) => {
                if work.counts() {
                    self.stats.add_resident_frame(cuda, &enqueued);
                }
                State::Done { queued: !enqueued.synchronized }
            }
        });
        if job.plan.blurs() {
            self.stats.form = form(&job.plan);
        }
        Ok(state.map(Some))
    }

    fn in_flight<F: FrameAccess>(&self, state: State, access: F, failure: Option<CudaError>) -> InFlightFrame<F> {
        InFlightFrame { state, access: Some(access), failure, abandoned: Arc::clone(&self.abandoned) }
    }

    /// Waits for the oldest in-flight frame, and returns it.
    pub fn complete<F: FrameAccess>(
        &mut self,
        mut in_flight: InFlightFrame<F>,
    ) -> Result<CompletedFrame<F>, EngineError> {
        self.wait(&mut in_flight)?;
        let queued = matches!(in_flight.state, State::Done { queued: true });
        let frame = in_flight.access.take().ok_or(EngineError::Completed)?;
        Ok(CompletedFrame { frame, failure: in_flight.failure.take(), queued })
    }

    /// Waits for the oldest in-flight frame, without returning it. It still has to be completed.
    pub fn wait<F: FrameAccess>(&mut self, in_flight: &mut InFlightFrame<F>) -> Result<(), EngineError> {
        let State::InFlight(frame, work) = &mut in_flight.state else { return Ok(()) };
        let error = match &mut self.cuda {
            Some(cuda) => match cuda.complete(frame) {
                Ok(times) => {
                    if work.work().counts() {
                        self.stats.add_cuda_frame(cuda, &times);
                    }
                    in_flight.state = State::Done { queued: false };
                    return Ok(());
                }
                Err(error) => Some(error),
            },
            // CUDA failed with an earlier frame, and the engine has fallen back to the CPU.
            None => None,
        };
        let settled = frame.settle();
        let state = std::mem::replace(&mut in_flight.state, State::Done { queued: false });
        let access = in_flight.access.take().ok_or(EngineError::Completed)?;
        let (mut access, failure) = self.fall_back(access, error, settled)?;
        in_flight.failure = failure;
        if let State::InFlight(_, work) = state {
            self.run_on_cpu(work.work(), &mut access)?;
        }
        in_flight.access = Some(access);
        Ok(())
    }

    /// Prepares a frame that CUDA has not processed for the CPU. If there is an `error`, CUDA failed with this frame, and the
    /// engine falls back now. `settled` says whether the device has stopped using the frame's memory. Returns access to the
    /// memory in which the CPU processes the frame, and the error to report.
    fn fall_back<F: FrameAccess>(
        &mut self,
        mut access: F,
        error: Option<CudaError>,
        settled: Result<(), CudaError>,
    ) -> Result<(F, Option<CudaError>), EngineError> {
        let is_on_device = !access.frames().is_on_host();
        if let Err(cause) = &settled {
            self.abandoned.count(cause);
        }
        let failure = match error.map(|error| self.switch_to_cpu(error, is_on_device)).transpose() {
            Ok(failure) => failure,
            Err(error) => {
                if settled.is_err() {
                    access.leak();
                }
                return Err(error);
            }
        };
        match settled {
            Ok(()) => Ok((access, failure)),
            Err(cause) => match access.replace_destination() {
                Some(access) => Ok((access, failure)),
                None => Err(EngineError::Abandoned(failure.unwrap_or(cause))),
            },
        }
    }

    /// Makes the CPU the backend because of this error. Returns an error if the frame is on the device or the engine must not
    /// fall back.
    fn switch_to_cpu(&mut self, error: CudaError, is_on_device: bool) -> Result<CudaError, EngineError> {
        if is_on_device {
            return Err(EngineError::OnDevice(error));
        }
        if !self.falls_back {
            return Err(error.into());
        }
        self.stats.use_kernels(self.cpu.get_or_insert_with(CpuEngine::new).instruction_set().name());
        self.cuda = None;
        Ok(error)
    }

    fn run_on_cpu<F: FrameAccess>(&mut self, work: Work, access: &mut F) -> Result<(), EngineError> {
        // SAFETY: `FrameAccess` promises that the memory of the frames lives, and that nobody else accesses it in conflict, as
        // long as `access` does. `access` is borrowed until the CPU has finished.
        let mut frames = unsafe { work.validate(access.frames()) }?;
        let started = Instant::now();
        let (job, soft) = work.job(&mut self.jobs, frames.layouts(), TilesOf::Cpu);
        if job.plan.blurs() {
            self.stats.form = form(&job.plan);
        }
        self.cpu.get_or_insert_with(CpuEngine::new).run(&mut frames, &job, soft)?;
        if work.counts() && !job.plan.operations().is_empty() {
            self.stats.frames_cpu += 1;
            // With CUDA, `kernel` has only the times of the device.
            if self.cuda.is_none() {
                self.stats.kernel.add(started.elapsed());
            }
        }
        Ok(())
    }
}

/// Whether the CPU covers a frame in host memory even if there is a device, because it needs no more time: fills, and mosaics of
/// few regions, without mixing weights.
pub fn is_for_cpu(cover: &Cover) -> bool {
    /// The largest number of regions of a mosaic that the CPU makes. For 64 regions of 1080p NV12 the device takes 0.2 ms and 16
    /// cores 0.8 ms; for three regions they take 113 and 94 µs (H100).
    const FEW: usize = 16;
    cover.soft.is_none()
        && match &cover.hide {
            Hide::Blur { .. } => false,
            Hide::Mosaic(regions) => regions.len() <= FEW,
            Hide::Fill { .. } => true,
        }
}

impl<'a> Work<'a> {
    /// Whether the work counts as a frame in the stats.
    fn counts(&self) -> bool {
        !matches!(self, Self::Transfer)
    }

    /// Returns the job for frames of these planes, and the weights of a soft cover.
    fn job(self, jobs: &mut JobCache, layouts: &[PlaneLayout], tiles: TilesOf) -> (Arc<Job>, Option<&'a Softness>) {
        match self {
            Self::Blur(options) => (jobs.blur(options, layouts), None),
            Self::Cover(cover) => (jobs.cover(cover, layouts, tiles), cover.soft.as_ref()),
            Self::Transfer => (jobs.blur(BlurParams::PASSTHROUGH.into(), layouts), None),
        }
    }

    /// Checks the frames for this work.
    ///
    /// # Safety
    /// The caller makes the promises of [`ValidFrames::new`] for the frames of `pair`.
    unsafe fn validate(&self, pair: FramePair) -> Result<ValidFrames, EngineError> {
        let sides = (pair.source.as_ref().map(FrameMemory::is_device), pair.destination.is_device());
        if let (Self::Cover(_), (Some(from), to)) = (self, sides)
            && from != to
        {
            return Err(EngineError::MixedMemory);
        }
        let is_in_place = pair.source.is_none();
        // SAFETY: the caller makes the promises of `ValidFrames::new` for these frames.
        let frames = unsafe { ValidFrames::new(pair) }?;
        let is_cover = matches!(self, Self::Cover(_));
        let shares_memory = is_in_place || frames.share_device_memory();
        if !is_cover && shares_memory { Err(FrameError::SharedMemory.into()) } else { Ok(frames) }
    }
}
