// SPDX-License-Identifier: MPL-2.0
//! From operations to launches, without calling the driver: what the kernels take ([`abi`]), their grids and shared memory
//! ([`axis`] for CUDA cores, [`tensor_wide`] and `tensor_direct` for tensor cores), the rectangles that they compute ([`tiles`]),
//! which of them share a launch ([`batch`]), which kernels blur these ([`strategy`]), and the recording of a plan ([`record`])
//! with its memory ([`temporaries`]). [`cover`] has the launches that cover rectangles and cells, [`soft`] those that mix by
//! weights.
//! [`images`] has the prebuilt images, [`ptx`] their text, and [`prebuilt`] loads them. [`possible`] lists the kernels that frames can need.

pub mod abi;
mod alpha;
pub mod axis;
pub mod batch;
pub mod byte_rect;
pub mod cover;
pub mod images;
pub mod launch;
pub mod possible;
pub mod prebuilt;
mod ptx;
pub mod record;
pub mod soft;
pub mod strategy;
mod temporaries;
pub mod tensor_direct;
pub mod tensor_wide;
pub mod tiles;
