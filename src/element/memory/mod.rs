// SPDX-License-Identifier: MPL-2.0
//! The memory of frames: pools, mapping, pinned host memory, and CUDA memory and its contexts.

pub mod allocation;
pub mod buffers;
pub mod cuda_context;
pub mod gstcuda;
pub mod mapping;
pub mod pinned_allocator;
pub mod registration;
