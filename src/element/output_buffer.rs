// SPDX-License-Identifier: MPL-2.0
//! Output buffers: from a pool, and of frames that the engine completes.

use gst::prelude::*;
use gst_base::prelude::*;

use super::error::FrameFailure;
use super::reporting::warn_of_fallback;
use super::state::SharedState;
use super::video_frame::MappedFrame;
use crate::engine::{CompletedFrame, Engine, InFlightFrame};

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
            // Metas that cannot be copied are not.
            let _ = meta.transform(new, &gst::meta::MetaTransformCopy::new(..));
        }
        std::ops::ControlFlow::Continue(())
    });
    Ok(output)
}

/// A buffer of the output pool, see [`allocate`].
pub fn allocate_output(element: &gst_base::BaseTransform, input: &gst::BufferRef) -> Result<gst::Buffer, FrameFailure> {
    allocate(element.buffer_pool().as_ref(), input)
}

/// Waits for a frame, the oldest in flight, and returns its output buffer.
pub fn complete(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    engine: &mut Engine,
    frame: InFlightFrame<MappedFrame>,
) -> Result<gst::Buffer, FrameFailure> {
    let completed = engine.complete(frame)?;
    of_completed(element, state, engine, completed)
}

/// The output buffer of a frame. Posts a warning if CUDA failed and the CPU took its place.
pub fn of_completed(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    engine: &Engine,
    completed: CompletedFrame<MappedFrame>,
) -> Result<gst::Buffer, FrameFailure> {
    if let Some(failure) = completed.failure {
        warn_of_fallback(element, state, engine, &failure);
    }
    Ok(completed.frame.into_output(completed.queued))
}
