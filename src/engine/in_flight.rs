// SPDX-License-Identifier: MPL-2.0
//! Frames between submission and completion, and access to their memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::Work;
use crate::cuda::{CudaError, SubmittedFrame};
use crate::filter::cover::Cover;
use crate::filter::frame::FramePair;
use crate::filter::plan::Options;

/// Access to the memory of a frame, from its submission to its completion.
///
/// # Safety
/// Until the value is dropped, the memory that `frames` returns has the length that `frames` states, and does not move, even if
/// the value moves. Nobody else writes the source, and nobody else accesses the destination. Planes of the destination overlap
/// neither each other nor planes of the source; only a cover in place may have the same device memory as source and destination.
/// Device memory and streams belong to the context that the engine uses, and live until the work that is enqueued on the streams
/// is done. If the value is leaked, the memory is never freed.
pub unsafe trait FrameAccess: Sized {
    /// The frame to read and the frame to write. All calls return the same.
    fn frames(&mut self) -> FramePair;

    /// Leaks the memory, because a device may still access it. Nobody may use or free it any more.
    fn leak(self) {
        std::mem::forget(self);
    }

    /// Leaks the memory. If possible, returns access to the same source and another destination in host memory; for a cover in
    /// place, the source is a copy of the frame.
    fn replace_destination(self) -> Option<Self> {
        self.leak();
        None
    }
}

/// The number of frames whose memory was leaked because a device may still access it, and the cause of the first.
#[derive(Debug, Default)]
pub(super) struct Abandoned {
    pub frames: AtomicU64,
    pub cause: OnceLock<CudaError>,
}

impl Abandoned {
    pub(super) fn count(&self, cause: &CudaError) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.cause.get_or_init(|| cause.clone());
    }
}

/// The work for an in-flight frame.
pub(super) enum OwnedWork {
    Blur(Options),
    Cover(Box<Cover>),
    Transfer,
}

impl From<Work<'_>> for OwnedWork {
    fn from(work: Work) -> Self {
        match work {
            Work::Blur(options) => Self::Blur(options),
            Work::Cover(cover) => Self::Cover(Box::new(cover.clone())),
            Work::Transfer => Self::Transfer,
        }
    }
}

impl OwnedWork {
    pub fn work(&self) -> Work<'_> {
        match self {
            Self::Blur(options) => Work::Blur(*options),
            Self::Cover(cover) => Work::Cover(cover),
            Self::Transfer => Work::Transfer,
        }
    }
}

/// The progress of a frame.
pub(super) enum State {
    /// The device has not finished the frame. The second value is its work.
    InFlight(Box<SubmittedFrame>, OwnedWork),
    /// The frame is processed. `queued`: it stays on the device, and only its streams order its use.
    Done { queued: bool },
}

/// A submitted frame. Dropping it waits for the device and discards the output. If the wait fails, the memory is leaked.
pub struct InFlightFrame<F: FrameAccess> {
    pub(super) state: State,
    /// `None` after the frame has been completed or abandoned.
    pub(super) access: Option<F>,
    pub(super) failure: Option<CudaError>,
    pub(super) abandoned: Arc<Abandoned>,
}

impl<F: FrameAccess> Drop for InFlightFrame<F> {
    fn drop(&mut self) {
        if let State::InFlight(frame, _) = &mut self.state
            && let Err(cause) = frame.settle()
        {
            self.abandoned.count(&cause);
            if let Some(access) = self.access.take() {
                access.leak();
            }
        }
    }
}

impl<F: FrameAccess> InFlightFrame<F> {
    /// Whether the frame can be completed without waiting.
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::InFlight(frame, _) => frame.is_done(),
            State::Done { .. } => true,
        }
    }
}

/// A completed frame.
pub struct CompletedFrame<F> {
    /// The access to its memory.
    pub frame: F,
    /// The error because of which the engine fell back to the CPU with this frame, if it did.
    pub failure: Option<CudaError>,
    /// Whether the frame is in device memory and complete only when the stream of its destination has done its work.
    pub queued: bool,
}
