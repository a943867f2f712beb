// SPDX-License-Identifier: MPL-2.0
//! The lifecycle: the engine starts and stops with the element; a stream ends at its end or in a flush.

use gst::prelude::*;
use gst_base::prelude::*;

use super::memory::cuda_context;
use super::messages::errors::engine_message;
use super::messages::log::{self, CAT};
use super::messages::posting;
use super::messages::stats::PublishedState;
use super::properties::settings::Backend;
use super::queue::Leaving;
use super::session::Session;
use super::state::SharedState;
use super::{entering, leaving};
use crate::engine::{DeviceSelector, Engine};

/// Opens the engine that the settings select, in the pipeline's CUDA context if it has one.
pub fn start(state: &SharedState) -> Result<(), gst::ErrorMessage> {
    let element = state.element();
    log::warn_if_unoptimised(&*element);
    let (settings, options) = state
        .with_settings(|settings| settings.start().map(|options| (settings.clone(), options)))
        .map_err(|error| gst::error_msg!(gst::ResourceError::Settings, ("{error}")))?;
    let context = if settings.backend == Backend::Cpu { None } else { cuda_context::find_context(state) };
    let device = match &context {
        Some(context) => DeviceSelector::Context(context.for_engine()),
        None => DeviceSelector::Device(settings.cuda_device().unwrap_or(0)),
    };
    let (engine, cuda_error) = Engine::open(settings.backend.into(), device).map_err(|error| {
        state.with_settings(|settings| settings.started = false);
        state.replace_context(None);
        engine_message(&error)
    })?;
    if let Some(cuda_error) = cuda_error {
        gst::warning!(CAT, obj = element, "using the CPU, because CUDA is not available: {cuda_error}");
    }
    gst::info!(CAT, obj = element, "blurring on {}", engine.description());
    state.publish(|published| {
        *published =
            PublishedState { active: engine.active().into(), stats: engine.stats(), ..PublishedState::default() };
    });
    cuda_context::share_context(state, &engine);
    let cuda_stream = state.context().and_then(|context| context.new_stream());
    let session = Session::new(engine, settings, options, cuda_stream);
    let passthrough = session.is_passthrough();
    state.start_session(session);
    element.set_passthrough(passthrough);
    element.notify("active-backend");
    Ok(())
}

/// Forgets the objects of the ending stream, and warns if its settings have covered nothing.
pub fn end_stream(state: &SharedState) {
    let settings = state.settings();
    let texts = state.with_session(|session| {
        session.tracker.clear();
        let size = session.format.as_ref().map_or((0, 0), |format| format.picture_size);
        session.warnings.at_end(&settings.regions, size)
    });
    posting::warn(state, texts.unwrap_or_default());
}

/// Drops all frames in the element. Of the events between them, only sticky events are kept.
pub fn flush(state: &SharedState) {
    let Some(mut session) = state.take_session() else { return };
    session.discard_frames();
    session.tracker.clear();
    session.timing.forget_intervals();
    (session.has_failed, session.has_gap) = (false, false);
    for leaving in std::mem::take(&mut session.queue.leaving) {
        if let Leaving::Event(event) = leaving
            && event.is_sticky()
        {
            let _ = state.element().src_pad().store_sticky_event(&event);
        }
    }
    leaving::put_back(state, session);
    entering::set_segment(state, gst::Segment::new());
}

/// Closes the engine. Frames in flight are dropped.
pub fn stop(state: &SharedState) {
    state.timer.set_due(None);
    state.with_settings(|settings| settings.started = false);
    // GStreamer calls this only after the streaming thread, and any other that holds its lock, has left the element, so that the session
    // is there.
    if let Some(mut session) = state.take_session() {
        // Dropped first, because dropping a frame in flight can add to the stats.
        session.discard_frames();
        posting::report_stats(state, &session.engine);
    }
    state.replace_context(None);
    state.publish(|published| published.active = Backend::Auto);
    state.element().notify("active-backend");
}
