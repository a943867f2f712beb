// SPDX-License-Identifier: MPL-2.0
//! Counters and times of an engine.

use std::time::Duration;

use crate::cuda::{CudaEngine, Enqueued, JitStatus, Times};
use crate::process::{Level, log};

/// The time of a step, over all frames whose time was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepTime {
    /// The time of the last of these frames.
    pub last: Duration,
    total: Duration,
    frames: u32,
}

impl StepTime {
    /// Adds the time of a frame.
    pub(super) fn add(&mut self, time: Duration) {
        self.last = time;
        self.total += time;
        self.frames = self.frames.saturating_add(1);
    }

    /// The number of frames whose time was measured.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The mean over all these frames; 0 before the first one.
    pub fn mean(&self) -> Duration {
        self.total.checked_div(self.frames).unwrap_or_default()
    }
}

/// Counters and times of an engine since it was opened. Covered frames count like blurred ones; transfers do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of frames that CUDA processed.
    pub frames_cuda: u64,
    /// The number of frames that the CPU processed.
    pub frames_cpu: u64,
    /// The number of frames that CUDA processed and that stayed on the device.
    pub frames_on_device: u64,
    /// The number of frames whose source, and the number whose destination, CUDA accessed directly in pinned memory.
    pub frames_pinned: [u64; 2],
    /// The upload from host to device.
    pub upload: StepTime,
    /// The processing by the kernels in use: by the device's clock on CUDA, by the host's clock on the CPU.
    pub kernel: StepTime,
    /// The download from device to host.
    pub download: StepTime,
    /// The number of frames whose memory was leaked, because CUDA failed and may still access it.
    pub frames_abandoned: u64,
    /// The number of bytes that the CPU copied to and from staging buffers. Frames in pinned memory add nothing.
    pub bytes_copied: u64,
    /// The name of the kernels in use. On CUDA it is `general-` or `special-`, and the architecture that they were built for; on
    /// the CPU it is the instruction set.
    pub kernel_name: &'static str,
    /// The number of frames that earlier kernels had processed when these kernels came into use.
    pub kernel_since: u64,
    /// The form of the last blur: `direct`, or `wide` if an axis of a plane is blurred in the wide form; empty before the first
    /// blur.
    pub form: &'static str,
    /// The state of the background compilation.
    pub jit: JitStatus,
}

impl Stats {
    /// The number of frames that were blurred or covered.
    pub fn frames(&self) -> u64 {
        self.frames_cuda + self.frames_cpu
    }

    /// Adds a frame that CUDA processed and that stays on the device.
    pub(super) fn add_resident_frame(&mut self, cuda: &CudaEngine, enqueued: &Enqueued) {
        self.frames_on_device += 1;
        self.add_cuda_frame(cuda, &Times { kernel: enqueued.kernel, ..Times::default() });
    }

    /// Adds a frame that CUDA processed.
    pub(super) fn add_cuda_frame(&mut self, cuda: &CudaEngine, times: &Times) {
        self.use_kernels(cuda.kernel_name());
        self.frames_cuda += 1;
        let steps = [&mut self.upload, &mut self.kernel, &mut self.download];
        for (step, time) in steps.into_iter().zip([times.upload, times.kernel, times.download]) {
            if let Some(time) = time {
                step.add(time);
            }
        }
        self.bytes_copied += times.bytes_copied as u64;
        for (frames, direct) in self.frames_pinned.iter_mut().zip(times.direct) {
            *frames += u64::from(direct);
        }
        self.jit = cuda.jit_status();
    }

    /// Records the name of the kernels that are used from the next frame on. If it differs, their times start again.
    pub(super) fn use_kernels(&mut self, name: &'static str) {
        if self.kernel_name != name {
            (self.kernel_name, self.kernel_since) = (name, self.frames());
            self.kernel = StepTime::default();
            log(Level::Debug, || format!("blurring with the kernels {name} after {} frames", self.kernel_since));
        }
    }
}
