// SPDX-License-Identifier: MPL-2.0
//! From operations to launches, without calling the driver. [`lower`] makes entries of a plan's operations and launches of entries,
//! with the memory of the plan ([`temporaries`]). [`batch`] says which blurs share a launch, [`strategy`] which kernels blur them. The
//! parameter, the grid and the shared memory of a launch are made by [`axis`] for CUDA cores, `tensor_direct` and [`tensor_wide`] for
//! tensor cores, `alpha` for premultiplied colour, [`cover`] for rectangles and cells that cover, and [`soft`] for what is mixed by
//! weights. [`abi`] is what the kernels take, [`tiles`] the rectangles that they compute.
//!
//! [`images`] has the prebuilt images, [`ptx`] their text, and [`prebuilt`] loads them. [`possible`] lists the kernels that frames can
//! need.

pub mod abi;
mod alpha;
pub mod axis;
pub mod batch;
pub mod byte_rect;
pub mod cover;
pub mod images;
pub mod launch;
pub mod lower;
pub mod possible;
pub mod prebuilt;
mod ptx;
pub mod soft;
pub mod strategy;
mod temporaries;
pub mod tensor_direct;
pub mod tensor_wide;
pub mod tiles;
