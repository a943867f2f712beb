// SPDX-License-Identifier: MPL-2.0
//! The engine: picks what blurs, validates a frame once, makes the taps, and keeps count.

use std::time::{Duration, Instant};

use crate::cpu::{CpuEngine, OutOfMemory};
use crate::filter::{BlurParams, Taps};
use crate::frame::{self, Frame, FrameError, FrameMut, PlaneLayout};

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
    /// The CUDA engine cannot work.
    #[error("CUDA cannot be used: {cause}; {cure}")]
    CudaUnavailable {
        /// What is missing.
        cause: &'static str,
        /// What to do about it.
        cure: &'static str,
    },
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

/// What an engine has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames blurred on the CPU.
    pub frames_cpu: u64,
    /// Time the last frame was being blurred.
    pub last_blur: Duration,
    /// Time all frames were being blurred.
    pub total_blur: Duration,
    /// What blurs: `cpu-` and the instruction set.
    pub kernel: Option<&'static str>,
}

/// The workers an engine can have. The rest of the crate sees none of them.
enum Worker {
    Cpu(CpuEngine),
}

/// Blurs frames with whatever [`Backend`] came to.
pub struct Engine {
    worker: Worker,
    /// The taps of the last frame's planes, and what they were made from.
    taps: Vec<[Taps; 2]>,
    made_from: Option<(BlurParams, Vec<[f64; 2]>)>,
    stats: Stats,
}

impl Engine {
    /// Opens what `backend` asks for. With [`Backend::Auto`] the reason for not taking CUDA comes beside the engine.
    pub fn open(backend: Backend) -> Result<(Self, Option<EngineError>), EngineError> {
        let no_cuda = match backend {
            Backend::Cpu => None,
            Backend::Auto => Some(cuda_unavailable()),
            Backend::Cuda => return Err(cuda_unavailable()),
        };
        Ok((Self::on_cpu(CpuEngine::new()?), no_cuda))
    }

    /// On this CPU engine.
    pub fn on_cpu(cpu: CpuEngine) -> Self {
        let stats = Stats { kernel: Some(cpu.instruction_set().name()), ..Stats::default() };
        Self { worker: Worker::Cpu(cpu), taps: Vec::new(), made_from: None, stats }
    }

    /// What blurs; never [`Backend::Auto`].
    pub fn active(&self) -> Backend {
        match self.worker {
            Worker::Cpu(_) => Backend::Cpu,
        }
    }

    /// What has been done so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Blurs `src` into `dst`. The two have the same layouts; bytes of `dst` between rows stay as they are. On an error
    /// `dst` is not to be used.
    pub fn blur(&mut self, params: BlurParams, src: &Frame, dst: &mut FrameMut) -> Result<(), EngineError> {
        frame::validate(src, dst)?;
        self.design(params, src.iter().map(|plane| &plane.layout));
        let started = Instant::now();
        match &mut self.worker {
            Worker::Cpu(cpu) => {
                cpu.blur(src, dst, &self.taps)?;
                self.stats.frames_cpu += 1;
            }
        }
        self.stats.last_blur = started.elapsed();
        self.stats.total_blur += self.stats.last_blur;
        Ok(())
    }

    /// Makes the taps of every plane, unless the last frame's will do.
    fn design<'a>(&mut self, params: BlurParams, planes: impl Iterator<Item = &'a PlaneLayout>) {
        let scales: Vec<[f64; 2]> = planes.map(|plane| plane.sigma_scale).collect();
        if self.made_from.as_ref().is_none_or(|made_from| *made_from != (params, scales.clone())) {
            self.taps = scales.iter().map(|scales| scales.map(|scale| params.taps(scale))).collect();
            self.made_from = Some((params, scales));
        }
    }
}

fn cuda_unavailable() -> EngineError {
    EngineError::CudaUnavailable {
        cause: "this version has no CUDA engine yet",
        cure: "set backend=auto or backend=cpu to blur on the CPU",
    }
}
