// SPDX-License-Identifier: MPL-2.0
//! Counters and times of an engine.

use std::time::Duration;

use crate::cuda::{CudaEngine, Enqueued, JitStatus, Times};
use crate::process::{Level, log};

/// The time of a step, over the frames that needed it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepTime {
    /// In the last such frame.
    pub last: Duration,
    total: Duration,
    frames: u32,
}

impl StepTime {
    /// Adds a frame.
    pub(super) fn add(&mut self, time: Duration) {
        self.last = time;
        self.total += time;
        self.frames = self.frames.saturating_add(1);
    }

    /// The number of frames whose time was measured.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The mean over all such frames; 0 before the first.
    pub fn mean(&self) -> Duration {
        self.total.checked_div(self.frames).unwrap_or_default()
    }
}

/// What an engine has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames blurred by CUDA.
    pub frames_cuda: u64,
    /// Frames blurred by the CPU.
    pub frames_cpu: u64,
    /// Frames blurred by CUDA that stayed on the device.
    pub frames_on_device: u64,
    /// Frames blurred by CUDA whose source, and whose destination, the device accessed in pinned memory.
    pub frames_pinned: [u64; 2],
    /// Host to device.
    pub upload: StepTime,
    /// The blur, by the device's clock on CUDA; of the kernels in use.
    pub kernel: StepTime,
    /// Device to host.
    pub download: StepTime,
    /// Frames whose memory was leaked, because CUDA failed and may still be using it.
    pub frames_abandoned: u64,
    /// Bytes that the CPU copied to and from staging buffers; none for frames in pinned memory.
    pub bytes_copied: u64,
    /// The kernels in use: on CUDA `general-` or `special-` and the architecture that they were built for, else the instruction
    /// set.
    pub kernel_name: &'static str,
    /// Frames that were blurred before by others.
    pub kernel_since: u64,
    /// The form of the last frame's blur: `direct`, or `wide` if an axis of a plane is blurred in the wide form; empty before the
    /// first.
    pub form: &'static str,
    /// What the background compilation is doing.
    pub jit: JitStatus,
}

impl Stats {
    /// Frames blurred or covered.
    pub fn frames(&self) -> u64 {
        self.frames_cuda + self.frames_cpu
    }

    /// Adds a frame that CUDA blurred and that stays on the device.
    pub(super) fn add_resident_frame(&mut self, cuda: &CudaEngine, enqueued: &Enqueued) {
        self.frames_on_device += 1;
        self.add_cuda_frame(cuda, &Times { kernel: enqueued.kernel, ..Times::default() });
    }

    /// Adds a frame that CUDA blurred.
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

    /// Notes which kernels are in use from the next frame on, whose times begin anew.
    pub(super) fn use_kernels(&mut self, name: &'static str) {
        if self.kernel_name != name {
            (self.kernel_name, self.kernel_since) = (name, self.frames());
            self.kernel = StepTime::default();
            log(Level::Debug, || format!("blurring with the kernels {name} after {} frames", self.kernel_since));
        }
    }
}
