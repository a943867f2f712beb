// SPDX-License-Identifier: MPL-2.0
//! Frames between their submission and their completion, and the memory that they use.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::Work;
use crate::cuda::{CudaError, SubmittedFrame};
use crate::filter::cover::Cover;
use crate::filter::frame::FramePair;
use crate::filter::plan::Options;

/// Access to the memory of a frame that is being blurred.
///
/// # Safety
/// Until this is dropped, the memory that `frames` returns has the length that is said there and does not move, although this may.
/// Nobody else writes the source, and nobody else accesses the destination. Planes of the destination overlap neither each other nor
/// those of the source, unless both frames are the same in device memory, for a cover in place. Device memory and streams are of the
/// context that the engine uses, and live until the work that is enqueued on the streams is done. If this is leaked, the memory is
/// never freed.
pub unsafe trait FrameAccess: Sized {
    /// The frame to read and the frame to write. The same at every call.
    fn frames(&mut self) -> FramePair;

    /// Leaks the memory, because a device may still be using it: nobody may use or free it any more.
    fn leak(self) {
        std::mem::forget(self);
    }

    /// Leaks the memory, and returns the same source with another destination in host memory if there is one; for a cover in
    /// place, a copy of the frame.
    fn replace_destination(self) -> Option<Self> {
        self.leak();
        None
    }
}

/// Frames whose memory was leaked because a device may still be using it, and the cause of the first one.
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

/// What is done with a frame in flight.
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

/// How far a frame is.
pub(super) enum State {
    /// The device has not finished it, with which this is done.
    InFlight(Box<SubmittedFrame>, OwnedWork),
    /// It is blurred, or the streams of a frame that stays on the device order its use.
    Done { queued: bool },
}

/// A frame that was submitted. Dropping it waits for the device and discards the output; the memory is leaked if waiting fails.
pub struct InFlightFrame<F: FrameAccess> {
    pub(super) state: State,
    /// `None` once it was completed, or abandoned.
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
    /// Whether it can be completed without waiting.
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::InFlight(frame, _) => frame.is_done(),
            State::Done { .. } => true,
        }
    }
}

/// A frame that was completed.
pub struct CompletedFrame<F> {
    /// Its memory.
    pub frame: F,
    /// Why the engine fell back to the CPU with this frame, if it did.
    pub failure: Option<CudaError>,
    /// Whether it is in device memory and complete only when the stream of its destination has done its work.
    pub queued: bool,
}
