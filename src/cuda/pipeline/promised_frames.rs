// SPDX-License-Identifier: MPL-2.0
//! Frames that the device may access, and the streams that order the accesses. Whoever makes one has promised what all unsafe code
//! of the pipeline relies on.

use std::ops::Deref;

use crate::cuda::driver::Stream;
use crate::filter::frame::{FrameMemory, ValidFrames};
use crate::filter::plane::DevicePlane;

/// The proof of a promise about the memory of frames.
pub struct PromisedFrames<'a>(ValidFrames<'a>);

impl<'a> PromisedFrames<'a> {
    /// Frames that are given to the engine.
    ///
    /// # Safety
    /// The memory of both frames lives, and nobody else accesses the destination nor writes the source: until the submission is
    /// completed or dropped; of frames that stay on the device, until their streams have done the work; and for good if the
    /// engine says that the device has not settled. Streams live as long, and they and device memory are of the engine's context.
    /// Source and destination do not overlap unless they are the same for a cover in place.
    pub unsafe fn new(frames: ValidFrames<'a>) -> Self {
        Self(frames)
    }

    /// The streams of resident frames.
    pub(super) fn streams(&self) -> FrameStreams {
        fn stream<A>(frame: &FrameMemory<A>) -> Option<usize> {
            match frame {
                FrameMemory::Device { stream, .. } => *stream,
                FrameMemory::Host(_) => None,
            }
        }
        FrameStreams { source: stream(self.source()), destination: stream(self.destination()) }
    }

    /// The planes of the source and of the destination, if they are in device memory.
    pub(super) fn device_planes(&self) -> [&[DevicePlane]; 2] {
        [self.source().device_planes(), self.destination().device_planes()].map(Option::unwrap_or_default)
    }

    /// See [`ValidFrames::copy_source`].
    pub(super) fn copy_source(&mut self) {
        self.0.copy_source();
    }
}

impl<'a> Deref for PromisedFrames<'a> {
    type Target = ValidFrames<'a>;

    fn deref(&self) -> &ValidFrames<'a> {
        &self.0
    }
}

/// The streams that order the accesses to the two frames, if these are resident and have one.
#[derive(Clone, Copy)]
pub struct FrameStreams {
    source: Option<usize>,
    destination: Option<usize>,
}

impl FrameStreams {
    fn borrow(handle: usize, device: u32) -> Stream {
        // SAFETY: the owner of the frames has promised that their streams live until the work on them is done.
        unsafe { Stream::borrowed(handle, device) }
    }

    /// The source's.
    pub fn source(self, device: u32) -> Option<Stream> {
        self.source.map(|handle| Self::borrow(handle, device))
    }

    /// Both.
    pub fn all(self, device: u32) -> impl Iterator<Item = Stream> {
        [self.source, self.destination].into_iter().flatten().map(move |handle| Self::borrow(handle, device))
    }

    /// The stream to enqueue on: the destination's, else the source's, else `own`, which lives as long as theirs.
    pub fn or(self, own: &Stream) -> Stream {
        Self::borrow(self.destination.or(self.source).unwrap_or(own.raw() as usize), own.device())
    }

    /// Whether both frames have one.
    pub fn are_complete(self) -> bool {
        self.source.is_some() && self.destination.is_some()
    }
}
