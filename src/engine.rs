// SPDX-License-Identifier: MPL-2.0
//! The engine: picks what blurs, validates a frame once, makes the taps, and keeps count.

use std::time::{Duration, Instant};

use crate::cpu::{CpuEngine, OutOfMemory};
use crate::cuda::{CudaEngine, Progress};
pub use crate::cuda::{CudaError, PinnedSource};
use crate::frame::{self, Frame, FrameError, FrameMut, PlaneLayout};
use crate::plan::{self, Job, Options};

pub use crate::cuda::log::{Level, set_sink as log_to};

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
    /// The system refused the CPU engine's threads.
    #[error("the worker threads could not be started: {0}")]
    Threads(#[from] std::io::Error),
    /// The frame does not fit its own description.
    #[error("this frame cannot be blurred: {0}")]
    Frame(#[from] FrameError),
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
            Self::OutOfMemory { .. } | Self::Cuda(CudaError::OutOfMemory { .. }) => ErrorKind::Memory,
            Self::Cuda(CudaError::NoSuchDevice { .. }) => ErrorKind::Setting,
            Self::Cuda(CudaError::Failed { .. } | CudaError::SharedMemory { .. }) | Self::Threads(_) => {
                ErrorKind::Failed
            }
            Self::Cuda(_) => ErrorKind::Missing,
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
    /// Host to device.
    pub upload: Stage,
    /// The blur itself, by the device's clock where there is one; of the kernels in use now.
    pub kernel: Stage,
    /// Device to host.
    pub download: Stage,
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

/// Blurs frames with whatever [`Backend`] came to.
pub struct Engine {
    worker: Worker,
    /// Whether the CPU takes over when CUDA fails.
    falls_back: bool,
    /// What was done with the last frame, and what that was made from.
    jobs: Vec<Job>,
    made_from: Option<(Options, Vec<PlaneLayout>)>,
    stats: Stats,
}

impl Engine {
    /// Opens what `backend` asks for, on this CUDA device or the first. With [`Backend::Auto`] the reason for not taking
    /// CUDA comes beside the engine.
    pub fn open(backend: Backend, cuda_device: Option<u32>) -> Result<(Self, Option<CudaError>), EngineError> {
        let no_cuda = match backend {
            Backend::Cpu => None,
            Backend::Auto | Backend::Cuda => match CudaEngine::new(cuda_device.unwrap_or(0)) {
                Ok(cuda) => return Ok((Self { falls_back: backend == Backend::Auto, ..Self::on_cuda(cuda) }, None)),
                Err(error) if backend == Backend::Cuda => return Err(error.into()),
                Err(error) => Some(error),
            },
        };
        Ok((Self::on_cpu(CpuEngine::new()?), no_cuda))
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
        Self { worker, falls_back: false, jobs: Vec::new(), made_from: None, stats }
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
        self.stats
    }

    /// Blurs `src` into `dst`. The two have the same layouts; bytes of `dst` between rows stay as they are. On an error
    /// `dst` is not to be used.
    ///
    /// Where CUDA fails and the CPU may take over, it does, with this frame and all that follow; why comes as the answer.
    pub fn blur(
        &mut self,
        options: impl Into<Options>,
        src: &Frame,
        dst: &mut FrameMut,
    ) -> Result<Option<CudaError>, EngineError> {
        frame::validate(src, dst)?;
        self.design(options.into(), src);
        let mut failure = None;
        if let Worker::Cuda(cuda) = &mut self.worker {
            match cuda.blur(src, dst, &self.jobs) {
                Ok(times) => {
                    self.stats.frames_cuda += 1;
                    self.stats.upload.add(times.upload);
                    self.stats.kernel.add(times.kernel);
                    self.stats.download.add(times.download);
                    self.stats.bytes_copied += times.bytes_copied as u64;
                    self.stats.kernel_name = cuda.kernel();
                    self.stats.progress = cuda.progress();
                }
                Err(error) if self.falls_back => {
                    // Without threads for the CPU the first cause is the one to tell.
                    let Ok(cpu) = CpuEngine::new() else { return Err(error.into()) };
                    self.stats.kernel_name = cpu.instruction_set().name();
                    self.stats.kernel = Stage::default();
                    self.worker = Worker::Cpu(cpu);
                    failure = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        // Not the other arm of the same choice: the CPU may just have taken over.
        if let Worker::Cpu(cpu) = &mut self.worker {
            let started = Instant::now();
            cpu.blur(src, dst, &self.jobs)?;
            self.stats.frames_cpu += 1;
            self.stats.kernel.add(started.elapsed());
        }
        Ok(failure)
    }

    /// Makes the jobs, unless the last frame's will do.
    fn design(&mut self, options: Options, frame: &Frame) {
        let layouts = || frame.iter().map(|plane| plane.layout);
        let same = |(made, from): &(Options, Vec<PlaneLayout>)| *made == options && layouts().eq(from.iter().copied());
        if !self.made_from.as_ref().is_some_and(same) {
            let layouts: Vec<PlaneLayout> = layouts().collect();
            self.jobs = plan::jobs(options, &layouts);
            self.made_from = Some((options, layouts));
        }
    }
}
