// SPDX-License-Identifier: MPL-2.0
//! The CUDA context that the elements of a pipeline share through GstContext: found, shared, and replaced by a frame's
//! own.

use gst::prelude::*;
use gst_base::prelude::*;

use super::gstcuda::{self, CONTEXT_TYPE, CudaContext, CudaMemory};
use crate::element::messages::errors::FrameFailure;
use crate::element::messages::log::CAT;
use crate::element::session::Session;
use crate::element::state::SharedState;
use crate::engine::Engine;

/// Finds the pipeline's context, if it has one on the device that `cuda-device-id` selects. As GstContext prescribes,
/// it is looked up in the element, then with a query downstream and upstream, then with a message to the application.
pub fn find_context(state: &SharedState) -> Option<CudaContext> {
    if !gstcuda::is_available() {
        return None;
    }
    let element = state.element();
    // A context may have been set while cuda-device-id selected another device.
    let selected = state.settings().cuda_device();
    if state.context().is_some_and(|context| selected.is_some_and(|id| context.device() != id)) {
        state.replace_context(None);
    }
    if let Some(context) = element.context(CONTEXT_TYPE) {
        handle_set_context(state, &context);
    }
    for pad in [element.src_pad(), element.sink_pad()] {
        let mut query = gst::query::Context::new(CONTEXT_TYPE);
        if state.context().is_none()
            && pad.peer_query(&mut query)
            && let Some(context) = query.context_owned()
        {
            // Calls handle_set_context.
            element.set_context(&context);
        }
    }
    if state.context().is_none() {
        // An application that has a context sets it before this returns.
        let _ = element.post_message(gst::message::NeedContext::builder(CONTEXT_TYPE).src(&*element).build());
    }
    state.context()
}

/// Uses a context that was set on the element, unless the element has one or the context is on another device than
/// `cuda-device-id` selects.
pub fn handle_set_context(state: &SharedState, context: &gst::Context) {
    if state.context().is_some() {
        return;
    }
    let selected = state.settings().cuda_device();
    if let Some(context) = CudaContext::from_shared(context)
        && selected.is_none_or(|id| context.device() == id)
    {
        state.set_context_if_none(context);
    }
}

/// Answers a neighbour's query for the context. Returns whether there is one.
pub fn handle_context_query(state: &SharedState, query: &mut gst::query::Context) -> bool {
    if query.context_type() != CONTEXT_TYPE {
        return false;
    }
    let Some(shared) = state.context().and_then(|context| context.to_shared()) else { return false };
    query.set_context(&shared);
    true
}

/// Shares the engine's context with the pipeline, if the pipeline has none.
pub fn share_context(state: &SharedState, engine: &Engine) {
    if state.context().is_some() {
        return;
    }
    let Some(context) = CudaContext::of_engine(engine) else { return };
    let Some(shared) = context.to_shared() else { return };
    state.replace_context(Some(context));
    let element = state.element();
    element.set_context(&shared);
    let _ = element.post_message(gst::message::HaveContext::builder(shared).src(&*element).build());
}

/// Whether a frame is in the CUDA memory of another context than the session's.
pub fn is_foreign(session: &Session, buffer: &gst::BufferRef) -> bool {
    let current = session.engine.context().map(|(current, _)| current);
    current
        .is_some_and(|current| CudaMemory::in_buffer(buffer).is_some_and(|memory| memory.context_handle() != current))
}

/// Moves the session to the context of this frame, if the frame is in the CUDA memory of another context. No frame may be in
/// flight then.
pub fn adopt_context(state: &SharedState, session: &mut Session, buffer: &gst::BufferRef) -> Result<(), FrameFailure> {
    if !is_foreign(session, buffer) {
        return Ok(());
    }
    let Some(context) = CudaMemory::in_buffer(buffer).and_then(|memory| memory.context()) else { return Ok(()) };
    let have = context.device();
    if let Some(wanted) = state.settings().cuda_device().filter(|wanted| *wanted != have) {
        return Err(FrameFailure::WrongDevice { have, wanted });
    }
    gst::info!(CAT, obj = state.element(), "switching to the CUDA context of the input frames, on device {have}");
    session.engine.switch_context(context.for_engine())?;
    session.cuda_stream = context.new_stream();
    state.replace_context(Some(context));
    // The pools must be in this context too.
    state.element().reconfigure_src();
    Ok(())
}
