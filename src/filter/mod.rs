// SPDX-License-Identifier: MPL-2.0
//! What every backend shares, without I/O or threads: the taps, the layout of frames, and the plan of a blur.

pub mod frame;
pub mod plan;
pub mod plane;
mod taps;

pub use taps::{BlurParams, KERNEL_SIZE_MAX, ParamError, SIGMA_MAX, TAP_SUM, Taps};
