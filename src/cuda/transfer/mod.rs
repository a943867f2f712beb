// SPDX-License-Identifier: MPL-2.0
//! Transfers between host and device: the schedule of what crosses the bus, pinned memory and staging buffers, copies by several
//! threads, and waits for the device.

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
