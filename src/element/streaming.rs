// SPDX-License-Identifier: MPL-2.0
//! The streaming thread: what enters, and what leaves when.

use gst::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::prelude::BaseTransformImplExt;

use super::covering;
use super::error::FrameFailure;
use super::output_buffer;
use super::published_state::Qos;
use super::queue::{DecidedFrame, Leaving, Outcome, WaitingFrame, is_scarce};
use super::reporting::{self, post_failure, report_stats};
use super::session::Session;
use super::state::SharedState;

/// Which frames leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Those beyond the ones that may wait for later frames or be in flight.
    Surplus,
    /// Also those whose latency counts from this running time or an earlier one.
    Since(gst::ClockTime),
    /// All that are in flight, and the surplus of those that wait.
    Submitted,
    /// All.
    All,
}

/// Lets a frame enter, see [`covering::enter`].
pub fn enter(state: &SharedState, buffer: gst::Buffer) -> Result<(), gst::FlowError> {
    // Stopped, or called from within a call that works with the stream: the element accepts no frame now.
    let Some(mut session) = state.take_session() else { return Err(gst::FlowError::Flushing) };
    let since = latency_begins(state, &mut session);
    let entered = covering::enter(state, &mut session, buffer, since);
    let latency = session.latency();
    publish(state, session);
    set_latency(state, latency);
    entered.map_err(|failure| post_failure(state, &failure))
}

/// The running time from which the latency of the next frame counts; `None` unless the stream is live. Warns if the latency is raised,
/// because upstream is later than it says.
fn latency_begins(state: &SharedState, session: &mut Session) -> Option<gst::ClockTime> {
    let [upstream, _] = state.published().asked?;
    let running = session.times.running.map(gst::ClockTime::from_nseconds);
    let expected = running.map(|running| running.saturating_add(upstream));
    if let Some(expected) = expected.filter(|_| session.most_waiting() > 0)
        && let Some(late) = session.timing.note_lateness(expected, upstream)
    {
        reporting::warn(state, session.notices.of_late_upstream(late, upstream));
    }
    session.timing.latency_begins(expected)
}

/// Removes the next frame or event that is due. Submits the frames that have waited long enough.
fn next(state: &SharedState, session: &mut Session, due: Due) -> Option<Leaving> {
    loop {
        let in_flight = match session.queue.leaving.front() {
            Some(Leaving::Frame(DecidedFrame { outcome: Outcome::InFlight(frame), .. })) => Some(frame),
            Some(_) => return session.queue.leaving.pop_front(),
            None => None,
        };
        let is_full = session.queue.decided_frames() >= session.max_in_flight;
        let is_surplus = session.queue.waiting_frames() > session.most_waiting();
        let is_decided = match due {
            Due::Surplus | Due::Submitted => is_surplus,
            Due::Since(time) => is_surplus || session.queue.waiting_since().is_some_and(|since| since <= time),
            Due::All => true,
        };
        if !is_full
            && is_decided
            && let Some(mut frame) = session.queue.waiting.pop_front()
        {
            if matches!(due, Due::Since(_)) && !is_surplus && session.most_waiting() > 0 {
                let published = state.publish(|published| {
                    published.regions.frames_shortened += 1;
                    *published
                });
                let promised = published.promised_latency(state.timer.now());
                reporting::warn(state, session.notices.of_ignored_latency(promised, published.latency));
            }
            let events = std::mem::take(&mut frame.events);
            let decided = covering::decide(state, session, frame);
            session.queue.leaving.push_back(Leaving::Frame(decided));
            session.queue.leaving.extend(events.into_iter().map(Leaving::Event));
            continue;
        }
        let is_due = is_full || due != Due::Surplus || in_flight.is_some_and(|frame| frame.is_done());
        return if is_due { session.queue.leaving.pop_front() } else { None };
    }
}

/// The buffer of a frame that leaves; `None` if it is dropped.
fn finish(
    state: &SharedState,
    session: &mut Session,
    frame: DecidedFrame,
) -> Result<Option<gst::Buffer>, FrameFailure> {
    let mut buffer = match frame.outcome {
        Outcome::InFlight(frame) => output_buffer::complete(state, session, *frame)?,
        Outcome::Untouched(buffer) => buffer,
        Outcome::Dropped => {
            session.has_gap = true;
            return Ok(None);
        }
        Outcome::Failed(failure) => return Err(failure),
    };
    if std::mem::take(&mut session.has_gap) {
        buffer.make_mut().set_flags(gst::BufferFlags::DISCONT);
    }
    state.publish(|published| published.frames += 1);
    Ok(Some(buffer))
}

/// Pushes what is due, without the session. With `for_base_class`, it returns the first frame that the base class is to push.
fn push(state: &SharedState, due: Due, for_base_class: bool) -> Result<Option<gst::Buffer>, gst::FlowError> {
    let element = state.element();
    loop {
        // Stopped, or called from within a call that works with the stream.
        let Some(mut session) = state.take_session() else { return Err(gst::FlowError::Flushing) };
        let (has_failed, began) = (session.has_failed, state.timer.now());
        let leaving = if has_failed { None } else { next(state, &mut session, due) };
        let (message, event, finished) = match leaving {
            Some(Leaving::Frame(mut frame)) => {
                (frame.message.take(), None, finish(state, &mut session, frame).map(|buffer| (buffer, false)))
            }
            Some(Leaving::Event(event)) => (None, Some(event), Ok((None, false))),
            None => (None, None, Ok((None, true))),
        };
        match (&finished, began.zip(state.timer.now())) {
            (Ok((Some(_), _)), Some((began, now))) => session.timing.note_work(now.saturating_sub(began)),
            (Ok((_, true)), _) if for_base_class => session.timing.note_end(state.timer.now()),
            _ => (),
        }
        if has_failed || finished.is_err() {
            // The frames that entered before an error are not pushed after it. A frame that upstream pushes in spite of it is
            // processed, as in every element of this base class; but where no flow error reaches upstream, none is until a flush.
            session.discard_frames();
            let is_posted = !matches!(finished, Err(FrameFailure::Flow(_)));
            session.has_failed = has_failed || is_posted && !for_base_class;
        }
        // A buffer that is not to have the DISCONT flag is pushed here, where the base class does not see it.
        let is_of_base =
            |buffer: &gst::Buffer| !session.base_has_discont || buffer.flags().contains(gst::BufferFlags::DISCONT);
        let is_passed_on = for_base_class && matches!(&finished, Ok((Some(buffer), _)) if is_of_base(buffer));
        session.base_has_discont &= !is_passed_on;
        publish(state, session);
        if has_failed {
            // Its error is posted.
            return Err(gst::FlowError::Error);
        }
        if let Some(event) = event {
            state.parent_sink_event(event);
        }
        let (buffer, is_empty) = match finished {
            Ok(finished) => finished,
            Err(failure) => {
                let flow = post_failure(state, &failure);
                push_events(state);
                return Err(flow);
            }
        };
        if let Some(message) = message {
            let _ = element.post_message(gst::message::Element::builder(message).src(&*element).build());
        }
        if is_empty {
            return Ok(None);
        }
        let Some(buffer) = buffer else { continue };
        if is_passed_on {
            return Ok(Some(buffer));
        }
        let pushed = element.src_pad().push(buffer);
        if for_base_class {
            pushed?;
        }
        // Else upstream has the flow error when it pushes the next frame.
    }
}

/// Pushes the events that follow the last frame that has left.
fn push_events(state: &SharedState) {
    let events = state.with_session(|session| std::mem::take(&mut session.queue.leaving));
    for leaving in events.into_iter().flatten() {
        if let Leaving::Event(event) = leaving {
            state.parent_sink_event(event);
        }
    }
}

/// The next frame for the base class to push.
pub fn next_frame(state: &SharedState) -> Result<Option<gst::Buffer>, gst::FlowError> {
    push(state, Due::Surplus, true)
}

/// Pushes all frames in the element, so that they precede the event, query or frame that follows them.
pub fn drain(state: &SharedState) {
    let _ = push(state, Due::All, false);
}

/// Pushes the frames of a live stream whose latency is over. Called by a thread of the timer, which waits here as long as another one
/// works with the stream, also if the element is stopped and started meanwhile.
pub fn push_due(state: &SharedState) {
    let element = state.element();
    let _streaming = element.sink_pad().stream_lock();
    let Some(began) = state.timer.now() else { return };
    let wait = state.with_session(|session| wait(state, session)).flatten().unwrap_or_default();
    // Sets the time of the next call too, for the frames that are not due yet.
    let _ = push(state, began.checked_sub(wait).map_or(Due::Surplus, Due::Since), false);
    let now = state.timer.now().unwrap_or(began);
    state.with_session(|session| session.timing.note_busy(now.saturating_sub(began)));
}

/// Pushes the frames in flight, because they suit the previous downstream pool alone.
pub fn complete_submitted(state: &SharedState) {
    let _ = push(state, Due::Submitted, false);
}

/// Gives upstream its buffers back before it is told about allocation: frames in flight are pushed, those that wait are replaced
/// by copies if upstream may have no other buffers, or if it asks for all (`need-pool=false`). All are pushed if one cannot be.
pub fn return_buffers(state: &SharedState, needs_pool: bool) {
    let _ = push(state, Due::Submitted, false);
    let Some(mut session) = state.take_session() else { return };
    let mut waiting = std::mem::take(&mut session.queue.waiting);
    let is_asked_for = |session: &Session, frame: &WaitingFrame| matches!(&frame.input, Ok(buffer) if !session.is_copy(buffer) && (!needs_pool || is_scarce(buffer)));
    for frame in &mut waiting {
        if is_asked_for(&session, frame)
            && let Ok(buffer) = &frame.input
        {
            frame.input = covering::keep(state, &mut session, buffer.clone(), &frame.format);
        }
    }
    let is_held = waiting.iter().any(|frame| is_asked_for(&session, frame));
    session.queue.waiting = waiting;
    publish(state, session);
    if is_held {
        drain(state);
    }
}

/// Adds an event to the frames that wait, and pushes those that wait long enough then. Returns it if there are none, after all
/// frames in flight.
pub fn queue_event(state: &SharedState, event: gst::Event) -> Option<gst::Event> {
    let mut event = Some(event);
    let waits = state.with_session(|session| {
        let is_reverse = session.timing.segment.rate() < 0.0;
        match (session.queue.waiting.back_mut(), event.take()) {
            (Some(frame), Some(event)) => frame.add_event(event, is_reverse),
            (_, not_added) => event = not_added,
        }
    });
    if waits.is_some() {
        let due = if event.is_none() { Due::Surplus } else { Due::All };
        let _ = push(state, due, false);
    }
    event
}

/// Sets the segment of the frames that enter, for which downstream has not said what is late.
pub fn set_segment(state: &SharedState, segment: gst::Segment) {
    state.with_session(|session| session.timing.segment = segment);
    state.publish(|published| published.qos = Qos::default());
}

/// Forgets the objects of the stream that ends, and warns of settings by which it has covered nothing.
pub fn end(state: &SharedState) {
    let settings = state.settings();
    let texts = state.with_session(|session| {
        session.tracker.clear();
        let size = session.format.as_ref().map_or((0, 0), |format| format.picture_size);
        session.notices.at_end(&settings.regions, size)
    });
    reporting::warn(state, texts.unwrap_or_default());
}

/// Drops all frames in the element. Of the events between them, those that are sticky are kept.
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
    publish(state, session);
    set_segment(state, gst::Segment::new());
}

/// How long frames of a live stream wait from the time from which their latency counts; `None` if they do not wait.
fn wait(state: &SharedState, session: &Session) -> Option<gst::ClockTime> {
    let latency = state.published().promised_latency(state.timer.now());
    if session.latency().is_zero() { None } else { Some(session.timing.wait(latency)) }
}

/// Puts the stream back and updates what applications read.
fn publish(state: &SharedState, session: Box<Session>) {
    let due = session.queue.since().and_then(|since| Some(since.saturating_add(wait(state, &session)?)));
    let (active, latency) = (session.engine.active().into(), session.latency());
    report_stats(state, &session.engine);
    let previous = state.publish(|published| std::mem::replace(&mut published.active, active));
    state.put_back_session(session);
    state.timer.set_due(due);
    if active != previous {
        state.element().notify("active-backend");
        set_latency(state, latency);
    }
}

/// Sets the latency that the element reports. If it changed, the pipeline is asked to query it again.
pub fn set_latency(state: &SharedState, latency: gst::ClockTime) {
    let now = state.timer.now();
    let is_new = state.publish(|published| {
        let is_new = published.latency != latency;
        if is_new {
            (published.latency, published.latency_since) = (latency, now);
        }
        is_new
    });
    if is_new {
        let element = state.element();
        let _ = element.post_message(gst::message::Latency::builder().src(&*element).build());
    }
}
