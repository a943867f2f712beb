// SPDX-License-Identifier: MPL-2.0
//! The errors of the CUDA backend. Each message is one sentence with the cause and the remedy.

use std::ffi::{CStr, c_char};

use super::driver::api::{CUresult, DriverError, cuGetErrorName, cuGetErrorString, returned};
use crate::libraries::System;

/// The oldest supported driver, by the CUDA version that it supports. It is the first that accepts the PTX of the prebuilt
/// kernels.
pub const CUDA_NEEDED: (i32, i32) = (11, 8);
/// The oldest compute capability that the kernels are compiled for.
pub const CAPABILITY_NEEDED: (i32, i32) = (6, 0);

/// Why CUDA cannot be used, or failed. An immediate second attempt does not help with any of these errors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant names its fields")]
pub enum CudaError {
    #[error("{}, the NVIDIA driver's library, cannot be loaded ({reason}); install the NVIDIA driver", System::CURRENT.driver)]
    NoDriver { reason: String },
    #[error("CUDA needs a program of 64 bits, and this one has {}; use one of 64 bits", usize::BITS)]
    Needs64Bits,
    #[error(
        "{}, the NVIDIA driver's library, has no function {function}: it is not the driver's own, or of one before version \
         520; install the NVIDIA driver, and see whether LD_LIBRARY_PATH or LD_PRELOAD names a library that takes its place",
        System::CURRENT.driver
    )]
    IncompleteDriver { function: &'static str },
    #[error(
        "the NVIDIA driver supports CUDA {}.{} only, and {}.{} is needed; update it to version 520 or later",
        found.0, found.1, CUDA_NEEDED.0, CUDA_NEEDED.1
    )]
    DriverTooOld { found: (i32, i32) },
    #[error(
        "the NVIDIA driver finds no CUDA device ({status}); see what nvidia-smi says and whether CUDA_VISIBLE_DEVICES \
         hides it"
    )]
    NoDevice { status: Status },
    #[error(
        "there is no CUDA device {id}: this machine has {count}, numbered from 0; set cuda-device-id to one of them"
    )]
    NoSuchDevice { id: u32, count: u32 },
    #[error(
        "CUDA device {id} ({name}) has compute capability {}.{}, and {}.{} is needed; choose another with cuda-device-id",
        found.0, found.1, CAPABILITY_NEEDED.0, CAPABILITY_NEEDED.1
    )]
    DeviceTooOld { id: u32, name: String, found: (i32, i32) },
    #[error(
        "out of memory: {bytes} bytes of {kind} memory could not be allocated on CUDA device {id}; free some of it or \
         blur smaller frames"
    )]
    OutOfMemory { kind: Memory, bytes: usize, id: u32 },
    #[error(
        "a kernel for this frame takes {needed} bytes of shared memory, and CUDA device {id} has {limit} for a block; use \
         a smaller sigma or kernel-size"
    )]
    SharedMemory { needed: u32, limit: u32, id: u32 },
    #[error(
        "the plugin's prebuilt kernels, {image}, have no usable {kernel}; the plugin's file may be damaged: install it again"
    )]
    NoKernel { image: &'static str, kernel: String },
    #[error(
        "the NVIDIA driver cannot compile the kernels for CUDA device {id} from PTX ({status}); {}",
        ptx_cure(*status)
    )]
    NoPtx { id: u32, status: Status },
    #[error("CUDA device {id} failed {doing}: {status}; if it goes on, restart the program or the driver")]
    Failed { doing: &'static str, status: Status, id: u32 },
}

/// The remedy if the driver cannot compile PTX.
fn ptx_cure(Status(status): Status) -> &'static str {
    match status {
        CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED => {
            "unset CUDA_DISABLE_PTX_JIT, or install a build of the plugin with machine code for the device"
        }
        _ => {
            "install the driver's libnvidia-ptxjitcompiler.so.1, or a build of the plugin with machine code for the device"
        }
    }
}

impl CudaError {
    /// The error for PTX that the driver did not compile.
    pub(super) fn of_ptx(error: DriverError, id: u32) -> Self {
        match error.0 {
            CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED | CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND => {
                Self::NoPtx { id, status: error.into() }
            }
            _ => Self::Failed { doing: "compiling the kernels", status: error.into(), id },
        }
    }

    /// Whether memory was short. A later attempt may succeed.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(
            self,
            Self::OutOfMemory { .. } | Self::Failed { status: Status(CUresult::CUDA_ERROR_OUT_OF_MEMORY), .. }
        )
    }
}

/// A kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Memory {
    Device,
    PinnedHost,
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Device => "device",
            Self::PinnedHost => "pinned host",
        })
    }
}

/// A status of the driver. It displays as the driver's name and description of the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(CUresult);

impl From<DriverError> for Status {
    fn from(DriverError(status): DriverError) -> Self {
        Self(status)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        type Get = unsafe fn(CUresult, *mut *const c_char) -> CUresult;
        let text = |get: Get| {
            // SAFETY: `text` is writable, and `get` is one of the driver's two functions for the text of a status.
            let text = returned(|text: *mut *const c_char| unsafe { get(self.0, text) }).ok()?;
            // SAFETY: the call has succeeded, so the driver has returned a string that ends with a NUL and is never freed.
            Some(unsafe { CStr::from_ptr(text) }.to_string_lossy())
        };
        match (text(cuGetErrorName), text(cuGetErrorString)) {
            (Some(name), Some(text)) => write!(f, "{name}, {text}"),
            _ => write!(f, "status {}", self.0 as u32),
        }
    }
}
