// SPDX-License-Identifier: MPL-2.0
//! A frame enters in two steps. First come its times and the values of the properties, because the base class
//! negotiates for these. Then its detections are read, and the frame waits in the queue.

use std::thread;

use gst::prelude::*;
use gst_base::prelude::*;

use super::format::negotiation;
use super::leaving::{self, Due};
use super::memory::{buffers, cuda_context};
use super::messages::errors::FrameFailure;
use super::messages::log::CAT;
use super::messages::posting;
use super::messages::qos::Qos;
use super::messages::warnings::{self, Warning};
use super::properties::settings::Settings;
use super::queue::WaitingFrame;
use super::regions::detector_metas;
use super::regions::settings::{ObjectShape, RegionMode};
use super::session::Session;
use super::state::SharedState;
use crate::regions::frame_regions::EnteredFrame;

/// Prepares the element for the next frame: sets controlled properties to their values at its stream time, the CUDA
/// context, and whether the base class passes the frame on unchanged.
pub fn prepare(state: &SharedState, buffer: &gst::BufferRef) {
    if state.with_session(|session| session.format.is_none()) == Some(true) {
        negotiation::adopt_caps(state);
    }
    let now = state.timer.now();
    state.with_session(|session| session.note_times(buffer, now));
    sync_controlled_properties(state);
    // While started, the settings are always valid: set_property refuses others.
    let settings = state.settings();
    let Ok(options) = settings.options() else { return };
    let Some(mut session) = session_for(state, buffer, &settings) else { return };
    if options.params.is_cut_off() && session.warnings.is_first(Warning::KernelSize) {
        gst::warning!(CAT, obj = state.element(), "{}", warnings::cut_off(&options.params));
    }
    (session.settings, session.options) = (settings, options);
    session.pending_failure = cuda_context::adopt_context(state, &mut session, buffer).err();
    let (passthrough, latency) = (session.is_passthrough(), session.latency());
    let asks_upstream = !passthrough && std::mem::take(&mut session.upstream_may_crop);
    state.put_back_session(session);
    posting::report_latency(state, latency);
    set_passthrough(state, passthrough);
    if asks_upstream {
        // The element may not support caps that downstream accepts.
        state.element().reconfigure_sink();
    }
}

/// Sets the properties that control bindings control to their values at the stream time of the next frame.
fn sync_controlled_properties(state: &SharedState) {
    let element = state.element();
    let stream_time = state.with_session(|session| session.times.stream.map(gst::ClockTime::from_nseconds)).flatten();
    let Some(time) = stream_time.filter(|_| element.has_active_control_bindings()) else { return };
    let set_controlled_by = |thread| state.with_session(|session| session.controlled_by = thread);
    set_controlled_by(Some(thread::current().id()));
    if let Err(error) = element.sync_values(time) {
        gst::debug!(CAT, obj = element, "controlled properties keep their values: {error}");
    }
    set_controlled_by(None);
}

/// Takes the session for the next frame. The frames in the element leave first if this one does not continue them, or is in another CUDA
/// context.
fn session_for(state: &SharedState, buffer: &gst::BufferRef, settings: &Settings) -> Option<Box<Session>> {
    let mut session = state.take_session()?;
    let is_jump = session.tracker.is_jump(&session.times, &settings.regions.rules());
    if is_jump || cuda_context::is_foreign(&session, buffer) {
        state.put_back_session(session);
        leaving::drain(state);
        session = state.take_session()?;
    }
    if is_jump {
        session.tracker.clear();
    }
    Some(session)
}

/// Sets whether the base class passes frames on unchanged.
fn set_passthrough(state: &SharedState, passthrough: bool) {
    let element = state.element();
    if element.is_passthrough() == passthrough {
        return;
    }
    if passthrough {
        // Frames that wait need the output pool, which the base class has only without passthrough.
        leaving::drain(state);
    }
    gst::debug!(CAT, obj = element, "{} passthrough", if passthrough { "entering" } else { "leaving" });
    element.set_passthrough(passthrough);
    // Only without passthrough does the element need an output pool, which the next allocation query decides.
    element.reconfigure_src();
}

/// Lets a frame enter, after the base class has renegotiated for it.
pub fn enter(state: &SharedState, buffer: gst::Buffer) -> Result<(), gst::FlowError> {
    // Stopped, or called from within a call that works with the stream: the element accepts no frame now.
    let Some(mut session) = state.take_session() else { return Err(gst::FlowError::Flushing) };
    let since = latency_begins(state, &mut session);
    let entered = wait_in_queue(state, &mut session, buffer, since);
    let latency = session.latency();
    leaving::put_back(state, session);
    posting::report_latency(state, latency);
    entered.map_err(|failure| posting::post_failure(state, &failure))
}

/// The running time from which the latency of the next frame counts; `None` unless the stream is live. Warns if the latency is raised,
/// because upstream is later than it says.
fn latency_begins(state: &SharedState, session: &mut Session) -> Option<gst::ClockTime> {
    let holds = session.most_waiting() > 0;
    // A sink forwards no query before its first frame, which leaves only when its latency is over.
    if holds && state.published().latency.is_upstream_unknown() {
        let mut query = gst::query::Latency::new();
        if state.element().sink_pad().peer_query(&mut query) {
            state.publish(|published| published.latency.learn(&query));
        }
    }
    let upstream = state.published().latency.upstream()?;
    let running = session.times.running.map(gst::ClockTime::from_nseconds);
    let expected = running.map(|running| running.saturating_add(upstream));
    if let Some(expected) = expected.filter(|_| holds)
        && let Some(late) = session.timing.note_lateness(expected, upstream)
    {
        posting::warn(state, session.warnings.of_late_upstream(late, upstream));
    }
    session.timing.latency_begins(expected)
}

/// Adds a frame to the queue, and its detections to the tracks, also if it is dropped or blurred as a whole. `since` is the running time
/// from which the frame's latency counts, in a live stream.
fn wait_in_queue(
    state: &SharedState,
    session: &mut Session,
    buffer: gst::Buffer,
    since: Option<gst::ClockTime>,
) -> Result<(), FrameFailure> {
    let (failure, times) = (session.pending_failure.take(), session.times);
    let format = session.format.clone().ok_or(FrameFailure::NoCaps)?;
    let settings = session.settings.clone();
    let regions = &*settings.regions;
    let masked = (regions.shape == ObjectShape::Mask).then_some(&regions.labels);
    let mut found = detector_metas::read(&buffer, times.interval, regions.sources, masked);
    let (size, is_field) = (format.picture_size, format.is_alternate());
    found.detections.iter_mut().for_each(|detection| detection.place_in(size, is_field));
    regions.rules().bound(&mut found, size);
    let views = format.progressive_layouts()[0].split.views();
    let mut entered = EnteredFrame { size, views, is_field, times, found };
    session.tracker.observe(&regions.rules(), &mut entered);
    warn(state, session, &settings, &entered);
    session.base_has_discont |= times.is_discont;
    let input = match failure {
        Some(failure) if !session.is_passthrough() => Err(failure),
        _ if session.most_waiting() > 0 && buffers::is_scarce(&buffer) => {
            buffers::copy(state, session, buffer, &format)
        }
        _ => Ok(buffer),
    };
    let options = session.options;
    let frame = WaitingFrame { input, events: Vec::new(), gap: 0, settings, options, format, entered, since };
    session.queue.waiting.push_back(frame);
    Ok(())
}

/// Posts the warnings that are due after this frame, about settings and detections.
fn warn(state: &SharedState, session: &mut Session, settings: &Settings, entered: &EnteredFrame) {
    let regions = &*settings.regions;
    if session.is_latency_unknown() {
        posting::warn(state, session.warnings.of_unknown_latency(regions));
    }
    if regions.mode == RegionMode::Frame {
        posting::warn(state, session.warnings.of_whole_frame(regions));
    } else {
        posting::warn(state, session.warnings.of_orientation(state.element().sink_pad()));
        let has_detector = session.tracker.has_detector();
        posting::warn(state, session.warnings.of_regions(regions, entered, has_detector));
    }
}

/// Removes pictures and other samples from the tags of an event, such as the cover picture of a file, which may show what is covered:
/// a muxer would copy them.
pub fn without_pictures(event: gst::Event) -> gst::Event {
    let gst::EventView::Tag(tag) = event.view() else { return event };
    let is_sample = |(_, value): &(_, gst::glib::SendValue)| value.is::<gst::Sample>();
    let samples: Vec<_> = tag.tag().iter().filter(is_sample).map(|(name, _)| name.to_owned()).collect();
    if samples.is_empty() {
        return event;
    }
    let mut tags = tag.tag_owned();
    samples.into_iter().for_each(|name| tags.make_mut().remove_generic(name));
    gst::event::Tag::builder(tags).seqnum(event.seqnum()).build()
}

/// Adds an event after the frames that wait, and pushes the frames that have then waited long enough. If no frame
/// waits, pushes all frames in flight and returns the event.
pub fn add_event(state: &SharedState, event: gst::Event) -> Option<gst::Event> {
    let mut event = Some(event);
    let is_live = state.published().latency.upstream().is_some();
    let waits = state.with_session(|session| {
        let is_reverse = session.timing.segment.rate() < 0.0;
        match (session.queue.waiting.back_mut(), event.take()) {
            (Some(frame), Some(event)) => frame.add_event(event, is_reverse, is_live),
            (_, not_added) => event = not_added,
        }
    });
    if waits.is_some() {
        leaving::push_if(state, if event.is_none() { Due::Surplus } else { Due::All });
    }
    event
}

/// Sets the segment of the frames that enter. Downstream has not said yet which frames of this segment are late.
pub fn set_segment(state: &SharedState, segment: gst::Segment) {
    state.with_session(|session| session.timing.segment = segment);
    state.publish(|published| published.qos = Qos::default());
}
