// SPDX-License-Identifier: MPL-2.0
//! Kernels that are compiled in the background, by NVRTC or by the driver, when several frames in a row need them.

mod cache;
mod error;
pub mod nvrtc;
mod request;

pub use cache::{Compilation, JitCache, JitStatus};
pub use error::NvrtcError;
pub use request::JitRequest;
