// SPDX-License-Identifier: MPL-2.0
//! Transfers between host and device: what crosses the bus when, pinned and staging memory, copies by many threads, and waiting
//! for the device.

pub mod adaptive_wait;
pub mod bands;
mod copy_streams;
mod pinned;
pub mod schedule;
mod staging;
mod threaded_copy;

pub use copy_streams::CopyStreams;
pub use pinned::{PinnedBytes, PinnedSource};
pub use staging::{FrameBuffers, SharedPlanes};
pub use threaded_copy::ThreadedCopy;
