// SPDX-License-Identifier: MPL-2.0
//! Kernels compiled for the radii of one batch, by NVRTC in the background or taken from the disk cache.

mod cache;
pub mod disk_cache;
mod error;
pub mod nvrtc;
mod request;
mod specialisation;

pub use cache::{JitCache, JitResult, JitStatus, KernelOrigin, SpecialisedKernels};
pub use error::NvrtcError;
pub use request::JitRequest;
pub use specialisation::SpecialisationKey;
