// SPDX-License-Identifier: MPL-2.0
//! From operations to launches, without calling the driver. [`lower`] makes launches of a plan's operations, with the memory of the plan
//! ([`temporaries`]). What computes pixels becomes an [`entry`] first, because entries of several planes share launches. The
//! [selector](super::selector) chooses the kernels that blur them. The parameter, the grid and the shared memory of a launch are made by [`axis`] for CUDA
//! cores, [`tensor_direct`] and [`tensor_wide`] for tensor cores, `alpha` for premultiplied colour, [`bytes`] and [`mosaic`] for
//! what covers, and [`soft`] for what is mixed by weights. [`abi`] is what the kernels take, [`tiles`] the rectangles that they compute.
//!
//! [`images`] has the prebuilt images, [`ptx`] their text, and [`prebuilt`] loads them. [`possible`] lists the kernels that frames can
//! need.

pub mod abi;
mod alpha;
pub mod axis;
pub mod bytes;
pub mod entry;
pub mod images;
pub mod launch;
pub mod lower;
pub mod mosaic;
pub mod possible;
pub mod prebuilt;
mod ptx;
pub mod soft;
mod temporaries;
pub mod tensor_direct;
pub mod tensor_wide;
pub mod tiles;
