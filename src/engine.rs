// SPDX-License-Identifier: MPL-2.0
//! The engine: picks what blurs, validates a frame once, makes the taps, and keeps count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::cpu::{CpuEngine, OutOfMemory};
pub use crate::cuda::device::Foreign;
use crate::cuda::{CudaEngine, Flight, Progress, SubmitError, Times};
pub use crate::cuda::{CudaError, PinnedSource, Registered};
use crate::frame::{self, Frame, FrameError, FrameMut, PlaneLayout, Source, Target};
use crate::plan::{self, Job, Options};

pub use crate::log::{Level, set_sink as log_to};

/// Whether the driver's library is on this machine.
pub fn has_driver() -> bool {
    crate::cuda::device::has_driver()
}

/// What may blur.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backend {
    /// CUDA if it works on this machine, else the CPU.
    #[default]
    Auto,
    /// CUDA or an error.
    Cuda,
    /// The CPU.
    Cpu,
}

/// Why there is no engine, or why a frame was not blurred. One sentence each, for people.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// CUDA cannot be used, or can no longer.
    #[error("{0}, or set backend=auto or backend=cpu to blur on the CPU")]
    Cuda(#[from] CudaError),
    /// CUDA failed with a frame that only CUDA can blur.
    #[error("{0}; the frame is in CUDA memory, where the CPU cannot blur it")]
    OnDevice(CudaError),
    /// A frame in CUDA memory came to the CPU.
    #[error(
        "a frame in CUDA memory cannot be blurred on the CPU; set backend=auto or backend=cuda on a machine where CUDA \
         works, or put cudadownload before the blur"
    )]
    NeedsCuda,
    /// The frame does not fit its own description.
    #[error("this frame cannot be blurred: {0}")]
    Frame(#[from] FrameError),
    /// CUDA failed, may still be using the frame's memory, and there is no other memory to blur it into.
    #[error("{0}; CUDA may still be using this frame's memory, and there is no other memory to blur it into")]
    Abandoned(CudaError),
    /// The frame was completed before, or failed.
    #[error("this frame has been completed before")]
    Completed,
    /// The scratch memory could not be had.
    #[error("out of memory: {bytes} bytes of scratch memory for this frame could not be allocated")]
    OutOfMemory {
        /// The size asked for.
        bytes: usize,
    },
}

impl From<OutOfMemory> for EngineError {
    fn from(OutOfMemory { bytes }: OutOfMemory) -> Self {
        Self::OutOfMemory { bytes }
    }
}

/// What an error is about, for whoever has to sort errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The frame itself.
    Frame,
    /// A setting that this machine cannot meet.
    Setting,
    /// Something this machine lacks.
    Missing,
    /// Memory that ran out.
    Memory,
    /// Work that failed.
    Failed,
}

impl EngineError {
    /// What it is about.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Frame(_) => ErrorKind::Frame,
            Self::OutOfMemory { .. } => ErrorKind::Memory,
            Self::Abandoned(_) | Self::Completed => ErrorKind::Failed,
            Self::NeedsCuda => ErrorKind::Setting,
            Self::Cuda(error) | Self::OnDevice(error) => match error {
                CudaError::OutOfMemory { .. } => ErrorKind::Memory,
                CudaError::NoSuchDevice { .. } => ErrorKind::Setting,
                CudaError::Failed { .. } | CudaError::SharedMemory { .. } => ErrorKind::Failed,
                _ => ErrorKind::Missing,
            },
        }
    }
}

/// How long a stage took, over the frames that went through it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stage {
    /// In the last such frame.
    pub last: Duration,
    total: Duration,
    frames: u32,
}

impl Stage {
    fn add(&mut self, time: Duration) {
        self.last = time;
        self.total += time;
        self.frames = self.frames.saturating_add(1);
    }

    /// Over all such frames; 0 before the first.
    pub fn mean(&self) -> Duration {
        self.total.checked_div(self.frames).unwrap_or_default()
    }
}

/// What an engine has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames blurred by CUDA.
    pub frames_cuda: u64,
    /// Frames blurred on the CPU.
    pub frames_cpu: u64,
    /// Of those blurred by CUDA, those that were on the device and stayed there.
    pub frames_on_device: u64,
    /// Of those blurred by CUDA, those that came in pinned memory, and those that left in it.
    pub frames_pinned: [u64; 2],
    /// Host to device.
    pub upload: Stage,
    /// The blur itself, by the device's clock where there is one; of the kernels in use now.
    pub kernel: Stage,
    /// Device to host.
    pub download: Stage,
    /// Frames whose memory is never used again, because CUDA failed and may still be using it.
    pub frames_abandoned: u64,
    /// Bytes that the CPU copied on their way to and from the device: none where both frames are in pinned memory.
    pub bytes_copied: u64,
    /// What blurs: on CUDA `general-` or `special-` and the architecture its kernels were built for, else the instruction
    /// set.
    pub kernel_name: &'static str,
    /// How far a kernel for the size at hand is.
    pub progress: Progress,
}

/// The workers an engine can have. The rest of the crate sees none of them.
enum Worker {
    Cuda(Box<CudaEngine>),
    Cpu(CpuEngine),
}

/// The memory of a frame that is being blurred.
///
/// # Safety
/// Until this is dropped, what the two speak of stays where it is, though this may be moved; nobody writes the source, and
/// nobody else touches the destination. What is on a device is on the one that the engine is on, and stays until what is
/// queued on its stream is done. Leaked, it stays for good.
pub unsafe trait Hold: Sized {
    /// From where to where. The same at every call.
    fn frames(&mut self) -> (Source<'_>, Target<'_>);

    /// Whether the memory can be leaked. A device uses no other memory directly, whatever it is: it goes through staging
    /// buffers.
    fn can_leak(&self) -> bool {
        true
    }

    /// Has nobody use or free the memory any more, because a device may still be using it.
    fn leak(self) {
        std::mem::forget(self);
    }

    /// Leaks the memory, and returns the same source with another destination in host memory where there is one.
    fn replace_destination(self) -> Option<Self> {
        self.leak();
        None
    }
}

/// Frames whose memory was leaked because a device may still be using it, and why that began.
#[derive(Debug, Default)]
struct Abandoned {
    frames: AtomicU64,
    cause: OnceLock<CudaError>,
}

impl Abandoned {
    fn count(&self, cause: &CudaError) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.cause.get_or_init(|| cause.clone());
    }
}

/// How far a frame is.
enum State {
    /// On its way, from host memory, to it, or both.
    Flying(Box<Flight>),
    /// Done, or queued on the stream of its destination.
    Gone { queued: bool },
}

/// A frame that was begun. Dropping it waits for the device; the memory is leaked where that fails.
pub struct Pending<H: Hold> {
    state: State,
    /// `None` once it was finished, or abandoned.
    held: Option<H>,
    options: Options,
    failure: Option<CudaError>,
    abandoned: Arc<Abandoned>,
}

impl<H: Hold> Drop for Pending<H> {
    fn drop(&mut self) {
        if let State::Flying(flight) = &mut self.state
            && let Err(cause) = flight.settle()
        {
            self.abandoned.count(&cause);
            if let Some(held) = self.held.take() {
                held.leak();
            }
        }
    }
}

impl<H: Hold> Pending<H> {
    /// Whether it can be finished without waiting.
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::Flying(flight) => flight.is_done(),
            State::Gone { .. } => true,
        }
    }
}

/// A frame that was finished.
pub struct Finished<H> {
    /// Its memory.
    pub held: H,
    /// Why the CPU took over from CUDA with this frame, if it did.
    pub failure: Option<CudaError>,
    /// It is on a device, and done when the stream of its destination has come so far.
    pub queued: bool,
}

/// A frame of the caller's, for as long as a call.
struct Lent<'a, 's, 'd>(&'a Frame<'s>, &'a mut FrameMut<'d>);

// SAFETY: borrowed until this is dropped.
unsafe impl Hold for Lent<'_, '_, '_> {
    fn frames(&mut self) -> (Source<'_>, Target<'_>) {
        let src =
            self.0.iter().map(|plane| frame::Plane { layout: plane.layout, pitch: plane.pitch, data: plane.data });
        let dst = self.1.iter_mut();
        let dst = dst.map(|plane| frame::Plane { layout: plane.layout, pitch: plane.pitch, data: &mut *plane.data });
        (Source::Host(src.collect()), Target::Host(dst.collect()))
    }

    /// It is the caller's again when the call returns.
    fn can_leak(&self) -> bool {
        false
    }
}

/// Where CUDA is to blur.
pub enum Where {
    /// On this device, by its primary context.
    Device(u32),
    /// In a context that somebody else made.
    Context(Foreign),
}

/// Blurs frames with whatever [`Backend`] came to.
pub struct Engine {
    worker: Worker,
    /// Whether the CPU takes over when CUDA fails.
    falls_back: bool,
    /// What was done with the last frame, and what that was made from.
    jobs: Vec<Job>,
    made_from: Option<(Options, Vec<PlaneLayout>)>,
    stats: Stats,
    abandoned: Arc<Abandoned>,
}

impl Engine {
    /// Opens what `backend` asks for. With [`Backend::Auto`] the reason for not taking CUDA comes beside the engine.
    pub fn open(backend: Backend, place: Where) -> Result<(Self, Option<CudaError>), EngineError> {
        let no_cuda = match backend {
            Backend::Cpu => None,
            Backend::Auto | Backend::Cuda => match Self::cuda_at(place) {
                Ok(cuda) => return Ok((Self { falls_back: backend == Backend::Auto, ..Self::on_cuda(cuda) }, None)),
                Err(error) if backend == Backend::Cuda => return Err(error.into()),
                Err(error) => Some(error),
            },
        };
        Ok((Self::on_cpu(CpuEngine::new()), no_cuda))
    }

    fn cuda_at(place: Where) -> Result<CudaEngine, CudaError> {
        match place {
            Where::Device(id) => CudaEngine::new(id),
            Where::Context(foreign) => CudaEngine::within(foreign),
        }
    }

    /// Moves to another context, where frames now come from. No frame may be on its way. On an error it stays.
    pub fn move_to(&mut self, foreign: Foreign) -> Result<(), EngineError> {
        if let Worker::Cuda(cuda) = &mut self.worker {
            **cuda = CudaEngine::within(foreign).map_err(EngineError::OnDevice)?;
        }
        Ok(())
    }

    /// The driver's handle of the context that CUDA blurs in, and the number of its device.
    pub fn context(&self) -> Option<(usize, u32)> {
        match &self.worker {
            Worker::Cuda(cuda) => Some((cuda.device().context(), cuda.device().id())),
            Worker::Cpu(_) => None,
        }
    }

    /// On this CPU engine.
    pub fn on_cpu(cpu: CpuEngine) -> Self {
        Self::on(cpu.instruction_set().name(), Worker::Cpu(cpu))
    }

    /// On this CUDA engine, with no other to fall back to.
    pub fn on_cuda(cuda: CudaEngine) -> Self {
        Self::on(cuda.kernel(), Worker::Cuda(Box::new(cuda)))
    }

    fn on(kernel_name: &'static str, worker: Worker) -> Self {
        let stats = Stats { kernel_name, ..Stats::default() };
        Self { worker, falls_back: false, jobs: Vec::new(), made_from: None, stats, abandoned: Arc::default() }
    }

    /// What blurs; never [`Backend::Auto`].
    pub fn active(&self) -> Backend {
        match self.worker {
            Worker::Cuda(_) => Backend::Cuda,
            Worker::Cpu(_) => Backend::Cpu,
        }
    }

    /// The device and its kernels, or the instruction set, for people.
    pub fn description(&self) -> String {
        match &self.worker {
            Worker::Cuda(cuda) => {
                format!("CUDA device {} ({}), {}", cuda.device().id(), cuda.device().name(), cuda.kernel())
            }
            Worker::Cpu(cpu) => format!("the CPU, {}", cpu.instruction_set().name()),
        }
    }

    /// Memory that frames come and go in without a copy by the CPU, where there is such.
    pub fn pinned(&self) -> Option<PinnedSource> {
        match &self.worker {
            Worker::Cuda(cuda) => Some(cuda.pinned()),
            Worker::Cpu(_) => None,
        }
    }

    /// What has been done so far.
    pub fn stats(&self) -> Stats {
        Stats { frames_abandoned: self.abandoned.frames.load(Ordering::Relaxed), ..self.stats }
    }

    /// Why frames were abandoned, if any were.
    pub fn abandon_cause(&self) -> Option<&CudaError> {
        self.abandoned.cause.get()
    }

    /// Blurs `src` into `dst`. The two have the same layouts; bytes of `dst` between rows stay as they are. On an error
    /// `dst` is not to be used. Pinned memory goes through staging buffers here, because a borrow cannot be kept from its owner
    /// where a device fails: [`Engine::begin`] is for memory that is used directly.
    ///
    /// Where CUDA fails and the CPU may take over, it does, with this frame and all that follow; why comes as the answer.
    pub fn blur(
        &mut self,
        options: impl Into<Options>,
        src: &Frame,
        dst: &mut FrameMut,
    ) -> Result<Option<CudaError>, EngineError> {
        let pending = self.begin(options, Lent(src, dst))?;
        Ok(self.finish(pending)?.failure)
    }

    /// Begins to blur a frame. What is in host memory is on its way then, what stays on the device is queued on its stream,
    /// what the CPU blurs is done.
    pub fn begin<H: Hold>(&mut self, options: impl Into<Options>, mut held: H) -> Result<Pending<H>, EngineError> {
        let options = options.into();
        let direct = held.can_leak();
        let (src, mut dst) = held.frames();
        frame::validate(&src, &dst)?;
        self.design(options, &src.layouts());
        let abandoned = Arc::clone(&self.abandoned);
        let mut failure = None;
        if let Worker::Cuda(cuda) = &mut self.worker {
            let begun = match (&src, &dst) {
                (Source::Device(src), Target::Device(dst)) => {
                    // SAFETY: who holds the memory says so.
                    let queued = unsafe { cuda.blur_there(src, dst, &self.jobs) };
                    queued.map(|queued| {
                        self.stats.frames_on_device += 1;
                        self.stats.arrived(cuda, &Times { kernel: queued.kernel, ..Times::default() });
                        State::Gone { queued: !queued.done }
                    })
                }
                // SAFETY: likewise.
                _ => unsafe { cuda.begin(&src, &mut dst, &self.jobs, direct) }
                    .map(|flight| State::Flying(Box::new(flight))),
            };
            match begun {
                Ok(state) => return Ok(Pending { state, held: Some(held), options, failure: None, abandoned }),
                Err(SubmitError { error, settled }) => {
                    let settled = if settled { Ok(()) } else { Err(error.clone()) };
                    (held, failure) = self.take_over(held, Some(error), settled)?;
                }
            }
        }
        let (src, dst) = held.frames();
        self.blur_on_the_cpu(src, dst)?;
        Ok(Pending { state: State::Gone { queued: false }, held: Some(held), options, failure, abandoned })
    }

    /// Waits for a frame, of those that were begun the oldest.
    pub fn finish<H: Hold>(&mut self, mut pending: Pending<H>) -> Result<Finished<H>, EngineError> {
        self.arrive(&mut pending)?;
        let queued = matches!(pending.state, State::Gone { queued: true });
        let held = pending.held.take().ok_or(EngineError::Completed)?;
        Ok(Finished { held, failure: pending.failure.take(), queued })
    }

    /// Waits for a frame, of those on their way the oldest, and leaves it to be finished.
    pub fn arrive<H: Hold>(&mut self, pending: &mut Pending<H>) -> Result<(), EngineError> {
        let State::Flying(flight) = &mut pending.state else { return Ok(()) };
        let error = match &mut self.worker {
            Worker::Cuda(cuda) => match cuda.finish(flight) {
                Ok(times) => {
                    self.stats.arrived(cuda, &times);
                    pending.state = State::Gone { queued: false };
                    return Ok(());
                }
                Err(error) => Some(error),
            },
            // CUDA failed with a frame before this one, and with it this one.
            Worker::Cpu(_) => None,
        };
        let settled = flight.settle();
        pending.state = State::Gone { queued: false };
        let held = pending.held.take().ok_or(EngineError::Completed)?;
        let (mut held, failure) = self.take_over(held, error, settled)?;
        pending.failure = failure;
        let (src, dst) = held.frames();
        self.design(pending.options, &src.layouts());
        self.blur_on_the_cpu(src, dst)?;
        pending.held = Some(held);
        Ok(())
    }

    /// Has the CPU take over a frame from CUDA, which failed with it or, without an error, before it. `settled`: whether the
    /// device has done with its memory. Returns the memory to blur it in, and the error if it is to be told.
    fn take_over<H: Hold>(
        &mut self,
        mut held: H,
        error: Option<CudaError>,
        settled: Result<(), CudaError>,
    ) -> Result<(H, Option<CudaError>), EngineError> {
        let (src, dst) = held.frames();
        let on_device = src.on_device().is_some() || dst.on_device().is_some();
        if let Err(cause) = &settled {
            self.abandoned.count(cause);
        }
        let failure = match error.map(|error| self.fall_back(error, on_device)).transpose() {
            Ok(failure) => failure,
            Err(error) => {
                if settled.is_err() {
                    held.leak();
                }
                return Err(error);
            }
        };
        match settled {
            Ok(()) => Ok((held, failure)),
            Err(cause) => match held.replace_destination() {
                Some(held) => Ok((held, failure)),
                None => Err(EngineError::Abandoned(failure.unwrap_or(cause))),
            },
        }
    }

    /// Has the CPU take over, if it may and can; the error comes back then.
    fn fall_back(&mut self, error: CudaError, on_device: bool) -> Result<CudaError, EngineError> {
        if on_device {
            return Err(EngineError::OnDevice(error));
        }
        if !self.falls_back {
            return Err(error.into());
        }
        let cpu = CpuEngine::new();
        self.stats.kernel_name = cpu.instruction_set().name();
        self.stats.kernel = Stage::default();
        self.worker = Worker::Cpu(cpu);
        Ok(error)
    }

    fn blur_on_the_cpu(&mut self, src: Source, dst: Target) -> Result<(), EngineError> {
        let (Worker::Cpu(cpu), Source::Host(src), Target::Host(mut dst)) = (&mut self.worker, src, dst) else {
            return Err(EngineError::NeedsCuda);
        };
        let started = Instant::now();
        cpu.blur(&src, &mut dst, &self.jobs)?;
        self.stats.frames_cpu += 1;
        self.stats.kernel.add(started.elapsed());
        Ok(())
    }

    /// Makes the jobs, unless the last frame's will do.
    fn design(&mut self, options: Options, layouts: &[PlaneLayout]) {
        let same = |(made, from): &(Options, Vec<PlaneLayout>)| *made == options && layouts == from;
        if !self.made_from.as_ref().is_some_and(same) {
            self.jobs = plan::jobs(options, layouts);
            self.made_from = Some((options, layouts.to_vec()));
        }
    }
}

impl Stats {
    /// A frame came through CUDA.
    fn arrived(&mut self, cuda: &CudaEngine, times: &Times) {
        self.frames_cuda += 1;
        let stages = [&mut self.upload, &mut self.kernel, &mut self.download];
        for (stage, time) in stages.into_iter().zip([times.upload, times.kernel, times.download]) {
            if let Some(time) = time {
                stage.add(time);
            }
        }
        self.bytes_copied += times.bytes_copied as u64;
        for (frames, direct) in self.frames_pinned.iter_mut().zip(times.direct) {
            *frames += u64::from(direct);
        }
        self.kernel_name = cuda.kernel();
        self.progress = cuda.progress();
    }
}
