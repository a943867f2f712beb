// SPDX-License-Identifier: MPL-2.0
//! Buffers: which buffers upstream needs back, copies of them, output buffers from a pool, and output buffers of frames
//! that the engine completes.

use std::sync::Arc;

use gst::prelude::*;
use gst_base::prelude::*;

use crate::element::messages::errors::FrameFailure;
use crate::element::messages::posting::warn_of_fallback;
use crate::element::session::Session;
use crate::element::state::SharedState;

use super::mapping::{MappedFrame, pool_of};
use crate::element::format::stream_format::StreamFormat;
use crate::engine::{CompletedFrame, Cover, InFlightFrame, Work};

/// A buffer of a pool, with the flags, timestamps and metas of an input buffer. The blur changes neither size, position
/// nor colours, so every meta stays true, except metas that describe memory.
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
    let completed = session.engine.run(Work::Transfer, frame)?;
    Ok(of_completed(state, session, completed))
}

/// The output buffer of a frame. Posts a warning if CUDA failed and the CPU took its place.
fn of_completed(state: &SharedState, session: &Session, completed: CompletedFrame<MappedFrame>) -> gst::Buffer {
    if let Some(failure) = completed.failure {
        warn_of_fallback(state, &session.engine, &failure);
    }
    completed.frame.into_output(completed.queued)
}

/// A copy of a frame, if upstream may have no other buffer while the frame waits. Returns the frame itself if there is
/// no pool of copies, or if the frame cannot be read, which is an error when it leaves.
pub fn copy(
    state: &SharedState,
    session: &mut Session,
    buffer: gst::Buffer,
    format: &Arc<StreamFormat>,
) -> Result<gst::Buffer, FrameFailure> {
    let Some(pool) = session.copy_pool.clone() else { return Ok(buffer) };
    let copy = allocate(Some(&pool), &buffer)?;
    let on_device = session.is_on_cuda();
    let Ok(frame) = MappedFrame::pair(buffer.clone(), copy, format.clone(), on_device) else {
        // The frame fails when it is decided, after the frames before it.
        return Ok(buffer);
    };
    state.publish(|published| published.regions.frames_copied += 1);
    if frame.is_on_host() {
        let submitted = session.engine.submit(&Cover::NOTHING, frame)?;
        complete(state, session, submitted)
    } else {
        transfer(state, session, frame)
    }
}

/// The types of memory that are not scarce: GStreamer's own type, and the type of its Rust bindings.
const ORDINARY: [&str; 2] = ["SystemMemory", "RustGlobalAllocatorMemory"];

/// Whether upstream may have no other buffer while this one waits, so that it would stall without an error. This is so
/// if the buffer comes from a pool with a maximum, or from an allocator whose memory is scarce, such as a decoder's
/// surfaces.
pub fn is_scarce(buffer: &gst::BufferRef) -> bool {
    if let Some(parent) = buffer.meta::<gst::ParentBufferMeta>() {
        return is_scarce(parent.parent());
    }
    match pool_of(buffer) {
        Some(pool) => pool.config().params().is_none_or(|(.., max_buffers)| max_buffers > 0),
        None => buffer.iter_memories().any(|memory| !ORDINARY.iter().any(|ordinary| memory.is_type(*ordinary))),
    }
}
