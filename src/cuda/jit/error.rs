// SPDX-License-Identifier: MPL-2.0
//! Errors of compiling and loading kernels in the background.

use crate::cuda::error::CudaError;

/// The oldest supported NVRTC. Kernels that NVRTC 11.8 or 12.0 compiles blur ARGB wrongly (seen on an H200).
pub const NVRTC_NEEDED: (i32, i32) = (12, 1);

/// Why NVRTC returned no image.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant names its fields")]
pub enum NvrtcError {
    #[error("NVRTC was not found as {names}")]
    NotFound { names: String },
    #[error("NVRTC, opened as {name}, has no function {function}; install NVRTC 12.1 or later")]
    Incomplete { name: String, function: &'static str },
    #[error("NVRTC {}.{} is too old; {}.{} is needed", found.0, found.1, NVRTC_NEEDED.0, NVRTC_NEEDED.1)]
    TooOld { found: (i32, i32) },
    #[error("NVRTC {}.{} is newer than the driver and does not know the device", .0.0, .0.1)]
    NewerThanDriver((i32, i32)),
    #[error("NVRTC {}.{} no longer supports the device", .0.0, .0.1)]
    UnsupportedDevice((i32, i32)),
    #[error("the source or an option contains a NUL")]
    Nul(#[from] std::ffi::NulError),
    #[error("{status}{}{log}", if log.is_empty() { "" } else { "\n" })]
    Failed { status: String, log: String },
}

/// Why a kernel was not compiled or loaded.
#[derive(Debug, thiserror::Error)]
pub enum JitError {
    /// NVRTC is not available. The reason is logged once, when NVRTC is opened.
    #[error("NVRTC is not available")]
    Unavailable,
    /// NVRTC failed.
    #[error(transparent)]
    Nvrtc(#[from] NvrtcError),
    /// The driver did not load the kernel.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The compiling thread panicked.
    #[error("the compiling thread panicked")]
    Panicked,
}

impl JitError {
    /// Whether the device had too little memory for the kernel.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Cuda(error) if error.is_out_of_memory())
    }
}
