// SPDX-License-Identifier: MPL-2.0
//! Turns operations into launches, without calls of the driver. [`lower`] makes the launches for the operations of a plan, with
//! the memory of the plan ([`temporaries`]). Blurs, decimations and interpolations become [entries](entry) first, because entries
//! of several planes share launches. The [selector](super::selector) chooses the kernels that blur them. The parameter, the grid
//! and the shared memory of a launch are made by [`axis`] for CUDA cores, by [`tensor_direct`] and [`tensor_wide`] for tensor
//! cores, by `alpha` for premultiplied colour, by [`bytes`] and [`mosaic`] for covers, and by [`soft`] for soft covers. [`abi`]
//! has the arguments of the kernels, and [`tiles`] the rectangles that they compute.
//!
//! [`images`] has the prebuilt images, [`ptx`] decodes the portable ones, and [`prebuilt`] loads them. [`possible`] lists the
//! kernels that frames of a format can need.

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
