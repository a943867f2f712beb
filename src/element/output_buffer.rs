// SPDX-License-Identifier: MPL-2.0
//! Output buffers: from a pool, and of frames that the engine completes.

use gst::prelude::*;
use gst_base::prelude::*;

use super::error::FrameFailure;
use super::reporting::warn_of_fallback;
use super::session::Session;
use super::state::SharedState;
use super::video_frame::MappedFrame;
use crate::engine::{CompletedFrame, InFlightFrame};

/// A buffer of a pool, with the flags, timestamps and metas of an input buffer. The blur changes neither size, position nor
/// colours, so every meta stays true but those that describe memory.
pub fn allocate(pool: Option<&gst::BufferPool>, input: &gst::BufferRef) -> Result<gst::Buffer, FrameFailure> {
    let pool = pool.filter(|pool| pool.is_active() || pool.set_active(true).is_ok()).ok_or(FrameFailure::NoOutput)?;
    let mut output = pool.acquire_buffer(None)?;
    let new = output.get_mut().ok_or(FrameFailure::NoOutput)?;
    let copied = gst::BufferCopyFlags::FLAGS | gst::BufferCopyFlags::TIMESTAMPS;
    input.copy_into(new, copied, ..).map_err(|_| FrameFailure::NoOutput)?;
    input.foreach_meta(|meta| {
        use gst::meta::tags::{Memory, MemoryReference};
        if !meta.has_tag::<Memory>() && !meta.has_tag::<MemoryReference>() {
            // Fails for metas without a copy function.
            let _ = meta.transform(new, &gst::meta::MetaTransformCopy::new(..));
        }
        std::ops::ControlFlow::Continue(())
    });
    Ok(output)
}

/// A buffer of the output pool, see [`allocate`].
pub fn allocate_output(state: &SharedState, input: &gst::BufferRef) -> Result<gst::Buffer, FrameFailure> {
    allocate(state.element().buffer_pool().as_ref(), input)
}

/// Waits for a frame, the oldest in flight, and returns its output buffer.
pub fn complete(
    state: &SharedState,
    session: &mut Session,
    frame: InFlightFrame<MappedFrame>,
) -> Result<gst::Buffer, FrameFailure> {
    let completed = session.engine.complete(frame)?;
    Ok(of_completed(state, session, completed))
}

/// Uploads or downloads a frame, or copies it on the device, and returns the output buffer.
pub fn transfer(state: &SharedState, session: &mut Session, frame: MappedFrame) -> Result<gst::Buffer, FrameFailure> {
    // The engine completes frames in the order in which they were submitted.
    session.wait_for_device();
    let completed = session.engine.transfer(frame)?;
    Ok(of_completed(state, session, completed))
}

/// The output buffer of a frame. Posts a warning if CUDA failed and the CPU took its place.
fn of_completed(state: &SharedState, session: &Session, completed: CompletedFrame<MappedFrame>) -> gst::Buffer {
    if let Some(failure) = completed.failure {
        warn_of_fallback(state, &session.engine, &failure);
    }
    completed.frame.into_output(completed.queued)
}
