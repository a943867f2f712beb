// SPDX-License-Identifier: MPL-2.0
//! The engine: picks a backend, validates frames, makes the plan, submits and completes frames, and falls back to the CPU.

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

/// Returns what both return; the second runs on a worker thread, if there is one.
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
    /// The device with this number, by its primary context.
    Device(u32),
    /// The device of an external context, by that context.
    Context(ExternalContext),
}

/// What is done with a frame.
#[derive(Debug, Clone, Copy)]
pub enum Work<'a> {
    /// All of it is blurred, into another frame.
    Blur(Options),
    /// Parts of it are covered: in place, if there is no source or the destination is the same memory on the device; else in another
    /// frame, to which what is not covered is copied. Bytes between rows of the destination stay unchanged.
    Cover(&'a Cover),
    /// It is copied to the device, from it, or on it. That does not count as a frame.
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

/// Blurs frames with the backend that was requested or found. No other module knows which it is.
pub struct Engine {
    /// The backend; without it the CPU is.
    cuda: Option<Box<CudaEngine>>,
    /// Made when it is needed. CUDA has it for covers that take the CPU as long.
    cpu: Option<CpuEngine>,
    /// Whether the engine falls back to the CPU if CUDA fails.
    falls_back: bool,
    jobs: JobCache,
    /// Whether CUDA makes the covers that take the CPU as long, too.
    covers_on_device: bool,
    stats: Stats,
    abandoned: Arc<Abandoned>,
}

impl Engine {
    /// Opens the requested backend. If [`Backend::Auto`] comes to the CPU, the reason is returned too.
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

    /// Uses another context, that of the frames to come. No frame may be in flight. On an error the context stays the same.
    pub fn switch_context(&mut self, external: ExternalContext) -> Result<(), EngineError> {
        if let Some(cuda) = &mut self.cuda {
            **cuda = CudaEngine::within(external).map_err(EngineError::OnDevice)?;
        }
        Ok(())
    }

    /// The CUcontext that CUDA uses, and the number of its device.
    pub fn context(&self) -> Option<(usize, u32)> {
        let device = self.cuda.as_ref()?.device();
        Some((device.context(), device.id()))
    }

    /// With this CPU engine.
    pub fn with_cpu(cpu: CpuEngine) -> Self {
        let engine = Self::new(cpu.instruction_set().name());
        Self { cpu: Some(cpu), ..engine }
    }

    /// With this CUDA engine, without falling back.
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

    /// With all covers on the device, also those of frames in host memory that take the CPU as long. The output is the same.
    pub fn with_covers_on_device(mut self) -> Self {
        self.covers_on_device = true;
        self
    }

    /// Does what takes milliseconds and is needed for frames of these planes, before the first of them.
    pub fn prepare(&mut self, layouts: &[PlaneLayout]) {
        if let Some(cuda) = &mut self.cuda {
            cuda.prepare(layouts);
        }
    }

    /// The backend in use; never [`Backend::Auto`].
    pub fn active(&self) -> Backend {
        if self.cuda.is_some() { Backend::Cuda } else { Backend::Cpu }
    }

    /// The device and its kernels, or the instruction set, for the log.
    pub fn description(&self) -> String {
        match &self.cuda {
            Some(cuda) => {
                format!("CUDA device {} ({}), {}", cuda.device().id(), cuda.device().name(), cuda.kernel_name())
            }
            None => format!("the CPU, {}", self.stats.kernel_name),
        }
    }

    /// Pinned memory for frames, if the backend is CUDA.
    pub fn pinned(&self) -> Option<PinnedSource> {
        self.cuda.as_deref().map(CudaEngine::pinned)
    }

    /// Counters and times so far.
    pub fn stats(&self) -> Stats {
        Stats { frames_abandoned: self.abandoned.frames.load(Ordering::Relaxed), ..self.stats }
    }

    /// Why frames were abandoned, if any were.
    pub fn abandon_cause(&self) -> Option<&CudaError> {
        self.abandoned.cause.get()
    }

    /// Submits a frame, and completes it.
    pub fn run<'w, F: FrameAccess>(
        &mut self,
        work: impl Into<Work<'w>>,
        access: F,
    ) -> Result<CompletedFrame<F>, EngineError> {
        let in_flight = self.submit(work, access)?;
        self.complete(in_flight)
    }

    /// Submits a frame. CUDA enqueues it. The CPU processes it before this returns, if that is the backend, or if its memory is the
    /// host's and the CPU takes as long.
    ///
    /// # Errors
    /// A frame in host memory that is covered in place stays unchanged; any other destination is undefined, and must not be shown.
    /// The CPU takes the place of CUDA only for frames in host memory.
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

    /// Submits a frame to CUDA. Returns `None` if the CPU does this.
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
        // SAFETY: `FrameAccess` promises it for the memory and the streams of the frames, which `access` keeps alive: until the
        // frame is completed or dropped, or for good if it is leaked.
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

    /// Waits for a frame, the oldest in flight, and returns it.
    pub fn complete<F: FrameAccess>(
        &mut self,
        mut in_flight: InFlightFrame<F>,
    ) -> Result<CompletedFrame<F>, EngineError> {
        self.wait(&mut in_flight)?;
        let queued = matches!(in_flight.state, State::Done { queued: true });
        let frame = in_flight.access.take().ok_or(EngineError::Completed)?;
        Ok(CompletedFrame { frame, failure: in_flight.failure.take(), queued })
    }

    /// Waits for a frame, the oldest in flight, which is to be completed later.
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
            // CUDA failed with an earlier frame, and the engine has fallen back.
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

    /// Prepares a frame that CUDA did not blur for the CPU: with an `error`, CUDA failed with this frame, and the engine falls
    /// back now. `settled` says whether the device has stopped using the frame's memory. Returns the memory to blur it in, and
    /// the error to report.
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

    /// Makes the CPU the backend after this error, unless the frame is on the device or the engine must not fall back.
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
        // SAFETY: `FrameAccess` promises it for as long as `access` lives.
        let mut frames = unsafe { work.validate(access.frames()) }?;
        let started = Instant::now();
        let (job, soft) = work.job(&mut self.jobs, frames.layouts(), TilesOf::Cpu);
        if job.plan.blurs() {
            self.stats.form = form(&job.plan);
        }
        self.cpu.get_or_insert_with(CpuEngine::new).run(&mut frames, &job, soft)?;
        if work.counts() && !job.plan.operations().is_empty() {
            self.stats.frames_cpu += 1;
            // With CUDA, kernel times are the device's.
            if self.cuda.is_none() {
                self.stats.kernel.add(started.elapsed());
            }
        }
        Ok(())
    }
}

/// Whether the CPU covers a frame in host memory though there is a device, which takes about as long: with colours, or with the
/// cells of few regions, that are not mixed into it.
pub fn is_for_cpu(cover: &Cover) -> bool {
    /// 64 regions of 1080p NV12 take the device 0.2 ms and 16 cores 0.8; three take 113 and 94 µs (H100).
    const FEW: usize = 16;
    cover.soft.is_none()
        && match &cover.hide {
            Hide::Blur { .. } => false,
            Hide::Mosaic(regions) => regions.len() <= FEW,
            Hide::Fill { .. } => true,
        }
}

impl<'a> Work<'a> {
    /// Whether it counts as a frame in the stats.
    fn counts(&self) -> bool {
        !matches!(self, Self::Transfer)
    }

    /// The job of it for frames of these planes, and how much of a cover shows.
    fn job(self, jobs: &mut JobCache, layouts: &[PlaneLayout], tiles: TilesOf) -> (Arc<Job>, Option<&'a Softness>) {
        match self {
            Self::Blur(options) => (jobs.blur(options, layouts), None),
            Self::Cover(cover) => (jobs.cover(cover, layouts, tiles), cover.soft.as_ref()),
            Self::Transfer => (jobs.blur(BlurParams::PASSTHROUGH.into(), layouts), None),
        }
    }

    /// Checks the frames.
    ///
    /// # Safety
    /// See [`ValidFrames::new`].
    unsafe fn validate(&self, pair: FramePair) -> Result<ValidFrames, EngineError> {
        let sides = (pair.source.as_ref().map(FrameMemory::is_device), pair.destination.is_device());
        if let (Self::Cover(_), (Some(from), to)) = (self, sides)
            && from != to
        {
            return Err(EngineError::MixedMemory);
        }
        let is_in_place = pair.source.is_none();
        // SAFETY: the caller makes the promises of `ValidFrames::new`.
        let frames = unsafe { ValidFrames::new(pair) }?;
        let is_cover = matches!(self, Self::Cover(_));
        let shares_memory = is_in_place || frames.share_device_memory();
        if !is_cover && shares_memory { Err(FrameError::SharedMemory.into()) } else { Ok(frames) }
    }
}
