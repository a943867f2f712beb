// SPDX-License-Identifier: MPL-2.0
//! The data and the geometry that all backends share, without I/O and threads: taps, the layout of frames, plans of blurs and
//! covers, and the geometry of regions, masks and mosaics.

pub mod byte_rect;
pub mod cover;
pub mod fill;
pub mod frame;
pub mod inpainting;
mod layout;
pub mod mosaic;
mod node_grid;
pub mod operation;
mod params;
pub mod parts;
pub mod picture;
pub mod plan;
pub mod plane;
pub mod regions;
pub mod samples;
mod taps;
pub mod weights;
pub mod wide;

pub use params::{BlurParams, KERNEL_SIZE_MAX, ParamError, SIGMA_MAX};
pub use taps::{TAP_SUM, Taps};
pub use wide::{AxisBlur, Factor, WIDE_SIGMA};
