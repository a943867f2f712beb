// SPDX-License-Identifier: MPL-2.0
//! The errors of the engine.

use crate::cpu::CpuError;
use crate::cuda::CudaError;
use crate::filter::frame::FrameError;

/// Why an engine could not be opened, or a frame was not processed. Each message is one sentence with the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// CUDA is not available, or failed.
    #[error("{0}, or set backend=auto or backend=cpu to blur on the CPU")]
    Cuda(#[from] CudaError),
    /// CUDA failed for a frame in CUDA memory.
    #[error("{0}; the frame is in CUDA memory, where the CPU cannot blur it")]
    OnDevice(CudaError),
    /// The CPU backend received a frame in CUDA memory.
    #[error(
        "a frame in CUDA memory cannot be blurred on the CPU; set backend=auto or backend=cuda on a machine where CUDA \
         works, or put cudadownload before the blur"
    )]
    NeedsCuda,
    /// A cover was requested for a frame of which only one side is in CUDA memory.
    #[error("regions are covered only where the input and the output are both in host memory or both in CUDA memory")]
    MixedMemory,
    /// The frame is invalid.
    #[error("this frame cannot be blurred: {0}")]
    Frame(#[from] FrameError),
    /// CUDA failed and may still use the frame's memory, and there is no other memory to blur it into.
    #[error("{0}; CUDA may still be using this frame's memory, and there is no other memory to blur it into")]
    Abandoned(CudaError),
    /// The frame was completed before, or failed before.
    #[error("this frame has been completed before")]
    Completed,
    /// The CPU backend's working memory could not be allocated.
    #[error("out of memory: {bytes} bytes of scratch memory for this frame could not be allocated")]
    OutOfMemory {
        /// The number of bytes that were requested.
        bytes: usize,
    },
}

impl From<CpuError> for EngineError {
    fn from(error: CpuError) -> Self {
        match error {
            CpuError::OutOfMemory { bytes } => Self::OutOfMemory { bytes },
            CpuError::DeviceMemory => Self::NeedsCuda,
        }
    }
}

/// The category of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// An invalid frame.
    Frame,
    /// A setting that this machine cannot satisfy.
    Setting,
    /// A missing or unsuitable driver or device.
    Missing,
    /// Memory that could not be allocated.
    Memory,
    /// Work that failed.
    Failed,
}

impl EngineError {
    /// The category of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Frame(_) | Self::MixedMemory => ErrorKind::Frame,
            Self::OutOfMemory { .. } => ErrorKind::Memory,
            Self::Abandoned(_) | Self::Completed => ErrorKind::Failed,
            Self::NeedsCuda => ErrorKind::Setting,
            Self::Cuda(error) | Self::OnDevice(error) => match error {
                CudaError::OutOfMemory { .. } => ErrorKind::Memory,
                CudaError::NoSuchDevice { .. } => ErrorKind::Setting,
                CudaError::Failed { .. } | CudaError::SharedMemory { .. } => ErrorKind::Failed,
                CudaError::Needs64Bits
                | CudaError::NoDriver { .. }
                | CudaError::IncompleteDriver { .. }
                | CudaError::DriverTooOld { .. }
                | CudaError::NoDevice { .. }
                | CudaError::DeviceTooOld { .. }
                | CudaError::NoPtx { .. }
                | CudaError::NoKernel { .. } => ErrorKind::Missing,
            },
        }
    }
}
