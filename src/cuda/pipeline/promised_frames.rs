// SPDX-License-Identifier: MPL-2.0
//! Frames that the device may access, and the streams that order the accesses. Whoever makes one has promised what all unsafe code
//! of the pipeline relies on.

use std::ops::Deref;
use std::sync::Arc;

use crate::cuda::driver::Stream;
use crate::cuda::driver::device::Device;
use crate::filter::frame::{FrameMemory, ValidFrames};
use crate::filter::plane::DevicePlane;

/// The proof of a promise about the memory of frames.
pub struct PromisedFrames(ValidFrames);

impl PromisedFrames {
    /// Frames that are given to the engine.
    ///
    /// # Safety
    /// The memory of both frames lives, and nobody else accesses the destination nor writes the source: until the submission is
    /// completed or dropped; of frames that stay on the device, until their streams have done the work; and for good if the
    /// engine says that the device has not settled. Streams live as long, and they and device memory are of the engine's context.
    /// Source and destination do not overlap unless they are the same for a cover in place.
    pub unsafe fn new(frames: ValidFrames) -> Self {
        Self(frames)
    }

    /// The streams that order the accesses to the source and to the destination, if these are resident and have one.
    pub(super) fn streams(&self, device: &Arc<Device>) -> [Option<Stream>; 2] {
        fn handle<A>(frame: &FrameMemory<A>) -> Option<usize> {
            match frame {
                FrameMemory::Device { stream, .. } => *stream,
                FrameMemory::Host(_) => None,
            }
        }
        // SAFETY: the owner of the frames has promised that their streams live until the work on them is done.
        let borrow = |handle: usize| unsafe { Stream::borrowed(handle, device) };
        [handle(self.source()), handle(self.destination())].map(|handle| handle.map(borrow))
    }

    /// The planes of the source and of the destination, if they are in device memory.
    pub(super) fn device_planes(&self) -> [&[DevicePlane]; 2] {
        [self.source().device_planes(), self.destination().device_planes()].map(Option::unwrap_or_default)
    }
}

impl Deref for PromisedFrames {
    type Target = ValidFrames;

    fn deref(&self) -> &ValidFrames {
        &self.0
    }
}
