// SPDX-License-Identifier: MPL-2.0
//! Messages on the bus about frames, the engine and settings, and the engine's part of `stats`.

use gst::prelude::*;
use gst_base::prelude::*;

use super::errors::FrameFailure;
use super::log::CAT;
use super::warnings::Warning;
use crate::element::properties::PropertyError;
use crate::element::session::Session;
use crate::element::state::SharedState;
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

/// Posts warnings about frames.
pub fn warn_of_frame(state: &SharedState, text: Option<String>) {
    if let Some(text) = text {
        gst::element_warning!(state.element(), gst::StreamError::Failed, ("{text}"));
    }
}

/// Posts a warning, once, that output in CUDA memory has no pool. It is no error: GStreamer tries again. If that fails too, upstream ends
/// with not-negotiated, which has no cause.
pub fn warn_of_output_pool(state: &SharedState) {
    if state.with_session(|session| session.warnings.is_first(Warning::OutputPool)) == Some(true) {
        gst::element_warning!(
            state.element(),
            gst::ResourceError::NoSpaceLeft,
            ("no buffer pool in CUDA memory can be configured for the output: the device is out of memory or \
                 failed; if trying again fails too, streaming ends with not-negotiated; free memory of the device")
        );
    }
}

/// Sets the latency that the element reports. If it changed, the pipeline is asked to query it again.
pub fn report_latency(state: &SharedState, latency: gst::ClockTime) {
    let now = state.timer.now();
    if state.publish(|published| published.latency.set(latency, now)) {
        let element = state.element();
        let _ = element.post_message(gst::message::Latency::builder().src(&*element).build());
    }
}

/// Posts a warning that a property keeps its value. A control binding sets its property for every frame, so it gets
/// this warning only once from start to stop.
pub fn report_refused_value(state: &SharedState, error: &PropertyError) {
    let thread = std::thread::current().id();
    let of_binding = |session: &mut Session| {
        let is_controlled = session.controlled_by == Some(thread);
        is_controlled.then(|| session.warnings.is_first(Warning::ControlledValue(error.property)))
    };
    match state.with_session(of_binding).flatten() {
        None => warn(state, [error.to_string()]),
        Some(true) => {
            warn(state, [format!("{error}; the log has the other values that its control binding sets in vain")]);
        }
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
