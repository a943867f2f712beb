// SPDX-License-Identifier: MPL-2.0
//! From operations to launches, without calling the driver: what the kernels take ([`abi`]), their grids and shared memory
//! ([`geometry`]), the rectangles that they compute ([`tiles`]), which of them share a launch ([`batch`]), which kernels suit a
//! batch ([`strategy`]), and the recording of a plan ([`record`]), also for frames at other addresses ([`relative`]). [`cover`]
//! has the launches that cover regions, [`soft`] those that mix covers by weights. [`images`] has the prebuilt images, and
//! [`prebuilt`] loads them. [`possible`] lists the kernels that frames can need.

pub mod abi;
mod alpha;
pub mod batch;
pub mod cover;
mod geometry;
pub mod images;
pub mod level;
pub mod possible;
pub mod prebuilt;
pub mod record;
pub mod regions;
pub mod relative;
pub mod soft;
pub mod strategy;
mod tensor_direct;
pub mod tensor_wide;
pub mod tiles;
