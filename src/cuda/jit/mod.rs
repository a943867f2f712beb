// SPDX-License-Identifier: MPL-2.0
//! Kernels compiled for the radii of one batch, by NVRTC in the background or taken from the disk cache.

mod cache;
mod disk_cache;
mod error;
mod key;
pub mod nvrtc;
mod request;

pub use cache::{JitCache, JitResult, JitStatus, Origin};
pub use error::NvrtcError;
pub use key::SpecialisationKey;
pub use request::JitRequest;
