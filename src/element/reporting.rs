// SPDX-License-Identifier: MPL-2.0
//! Messages on the bus about frames, the engine and settings, and the engine's part of `stats`.

use gst::prelude::*;
use gst_base::prelude::*;

use super::debug::CAT;
use super::error::FrameFailure;
use super::notices::Notice;
use super::properties::PropertyError;
use super::session::Session;
use super::state::SharedState;
use crate::engine::{CudaError, Engine};

/// Posts a warning that CUDA failed and the CPU took its place.
pub fn warn_of_fallback(state: &SharedState, engine: &Engine, failure: &CudaError) {
    let leaked = publish_stats(state, engine).map(|leaked| format!("; {leaked}")).unwrap_or_default();
    gst::element_warning!(
        state.element(),
        gst::ResourceError::Failed,
        ("{failure}; falling back to the CPU from this frame on{leaked}")
    );
}

/// Posts warnings about settings.
pub fn warn(state: &SharedState, texts: impl IntoIterator<Item = String>) {
    for text in texts {
        gst::element_warning!(state.element(), gst::ResourceError::Settings, ("{text}"));
    }
}

/// Posts a warning that a property keeps its value. For a control binding, which sets its property for every frame, once from
/// start to stop.
pub fn report_refused_value(state: &SharedState, error: &PropertyError) {
    let thread = std::thread::current().id();
    let of_binding = |session: &mut Session| {
        let is_controlled = session.controlled_by == Some(thread);
        is_controlled.then(|| session.notices.is_first(Notice::ControlledValue(error.property)))
    };
    match state.with_session(of_binding).flatten() {
        None => warn(state, [error.to_string()]),
        Some(true) => warn(state, [format!("{error}; the log has what else its control binding sets in vain")]),
        Some(false) => gst::debug!(CAT, obj = state.element(), "{error}"),
    }
}

/// Posts the error message for a frame, if it has one.
pub fn post_failure(state: &SharedState, failure: &FrameFailure) -> gst::FlowError {
    if let FrameFailure::Flow(flow) = failure {
        return *flow;
    }
    let element = state.element();
    // At the end pools are stopped before the element is.
    if matches!(failure, FrameFailure::NoOutput) && element.src_pad().pad_flags().contains(gst::PadFlags::FLUSHING) {
        return gst::FlowError::Flushing;
    }
    element.post_error_message(failure.to_message());
    gst::FlowError::Error
}

/// Publishes the engine's stats. Posts a warning the first time that frames were abandoned.
pub fn report_stats(state: &SharedState, engine: &Engine) {
    if let Some(leaked) = publish_stats(state, engine)
        && let Some(cause) = engine.abandon_cause()
    {
        gst::element_warning!(state.element(), gst::ResourceError::Failed, ("{cause}; {leaked}"));
    }
}

/// Publishes the engine's stats. Returns a text for a warning the first time that frames were abandoned.
fn publish_stats(state: &SharedState, engine: &Engine) -> Option<String> {
    let stats = engine.stats();
    let previously_abandoned = state.publish(|published| {
        let abandoned = published.stats.frames_abandoned;
        published.stats = stats;
        abandoned
    });
    if previously_abandoned > 0 || stats.frames_abandoned == 0 {
        return None;
    }
    let frames = match stats.frames_abandoned {
        1 => "1 frame".to_owned(),
        frames => format!("{frames} frames"),
    };
    Some(format!("the device may still be using the memory of {frames}, which is leaked until the process ends"))
}
