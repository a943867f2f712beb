// SPDX-License-Identifier: MPL-2.0
//! Kernels that NVRTC compiles in the background, for frames that keep needing them.

mod cache;
mod error;
pub mod nvrtc;
mod request;

pub use cache::{JitCache, JitStatus, SpecialisedKernels};
pub use error::NvrtcError;
pub use request::JitRequest;
