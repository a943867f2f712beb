// SPDX-License-Identifier: MPL-2.0
//! Frames leave the element: which frames are due, and in which order and by which thread frames and events are pushed.

use gst::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::prelude::BaseTransformImplExt;

use super::deciding;
use super::memory::buffers;
use super::messages::errors::FrameFailure;
use super::messages::posting;
use super::queue::{DecidedFrame, Leaving, Outcome, WaitingFrame};
use super::session::Session;
use super::state::SharedState;

/// Which frames leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// The frames in excess of those that may wait for later frames or be in flight.
    Surplus,
    /// Also the frames whose latency counts from this running time or an earlier one.
    Since(gst::ClockTime),
    /// All frames in flight, and the frames in excess of those that may wait.
    Submitted,
    /// All frames.
    All,
}

/// The next thing to push.
enum Next {
    /// A frame and the message about it. Without a buffer, the frame is dropped.
    Frame(Option<gst::Buffer>, Option<gst::Structure>),
    Event(gst::Event),
    /// Nothing is due.
    Nothing,
}

/// The next frame for the base class to push.
pub fn next_frame(state: &SharedState) -> Result<Option<gst::Buffer>, gst::FlowError> {
    push(state, Due::Surplus, true)
}

/// Pushes all frames in the element, so that they leave before the event, query or frame that follows them.
pub fn drain(state: &SharedState) {
    push_if(state, Due::All);
}

/// Pushes the frames that are due. If one fails, upstream has the flow error when it pushes the next frame.
pub fn push_if(state: &SharedState, due: Due) {
    let _ = push(state, due, false);
}

/// Pushes the frames of a live stream whose latency is over. A thread of the timer calls this. It waits here as long as
/// another thread works with the stream, also if the element is stopped and started meanwhile.
pub fn push_due(state: &SharedState) {
    let element = state.element();
    let _streaming = element.sink_pad().stream_lock();
    let Some(began) = state.timer.now() else { return };
    let latency = state.published().latency.promised(Some(began));
    let wait = state.with_session(|session| wait(session, latency)).flatten().unwrap_or_default();
    // Sets the time of the next call too, for the frames that are not due yet.
    push_if(state, began.checked_sub(wait).map_or(Due::Surplus, Due::Since));
    let now = state.timer.now().unwrap_or(began);
    state.with_session(|session| session.timing.note_busy(now.saturating_sub(began)));
}

/// Gives upstream its buffers back before the answer to an allocation query. Frames in flight are pushed. Frames that
/// wait are replaced by copies if upstream may have no other buffers, or if it asks for all of them
/// (`need-pool=false`). If one frame cannot be copied, all frames are pushed.
pub fn return_buffers(state: &SharedState, needs_pool: bool) {
    push_if(state, Due::Submitted);
    let Some(mut session) = state.take_session() else { return };
    let mut waiting = std::mem::take(&mut session.queue.waiting);
    let is_asked_for = |session: &Session, frame: &WaitingFrame| {
        let is_asked_for =
            |buffer: &gst::Buffer| !session.is_copy(buffer) && (!needs_pool || buffers::is_scarce(buffer));
        frame.input.as_ref().is_ok_and(is_asked_for)
    };
    for frame in &mut waiting {
        if is_asked_for(&session, frame)
            && let Ok(buffer) = &frame.input
        {
            frame.input = buffers::copy(state, &mut session, buffer.clone(), &frame.format);
        }
    }
    let is_held = waiting.iter().any(|frame| is_asked_for(&session, frame));
    session.queue.waiting = waiting;
    put_back(state, session);
    if is_held {
        drain(state);
    }
}

/// Pushes everything that is due. The session is put back meanwhile. With `for_base_class`, returns the first frame
/// that the base class has to push.
fn push(state: &SharedState, due: Due, for_base_class: bool) -> Result<Option<gst::Buffer>, gst::FlowError> {
    let element = state.element();
    loop {
        // Stopped, or called from within a call that works with the stream.
        let Some(mut session) = state.take_session() else { return Err(gst::FlowError::Flushing) };
        if session.has_failed {
            // The frame's error has been posted.
            session.discard_frames();
            put_back(state, session);
            return Err(gst::FlowError::Error);
        }
        let began = state.timer.now();
        let next = take_next(state, &mut session, due);
        match (&next, began.zip(state.timer.now())) {
            (Ok(Next::Frame(Some(_), _)), Some((began, now))) => session.timing.note_work(now.saturating_sub(began)),
            (Ok(Next::Nothing), _) if for_base_class => session.timing.note_end(state.timer.now()),
            _ => (),
        }
        if let Err(failure) = &next {
            // Frames that entered before an error are not pushed after it. If upstream pushes a frame in spite of the
            // error, the frame is processed, as in every element of this base class. But if no flow error reaches
            // upstream, no frame is processed until a flush.
            session.discard_frames();
            session.has_failed = !for_base_class && !matches!(failure, FrameFailure::Flow(_));
        }
        // The base class would set the DISCONT flag. A buffer that must not have it is pushed here instead.
        let is_of_base =
            |buffer: &gst::Buffer| !session.base_has_discont || buffer.flags().contains(gst::BufferFlags::DISCONT);
        let is_passed_on = for_base_class && matches!(&next, Ok(Next::Frame(Some(buffer), _)) if is_of_base(buffer));
        session.base_has_discont &= !is_passed_on;
        put_back(state, session);
        match next {
            Err(failure) => {
                let flow = posting::post_failure(state, &failure);
                push_events(state);
                return Err(flow);
            }
            Ok(Next::Nothing) => return Ok(None),
            Ok(Next::Event(event)) => _ = state.parent_sink_event(event),
            Ok(Next::Frame(buffer, message)) => {
                if let Some(message) = message {
                    let _ = element.post_message(gst::message::Element::builder(message).src(&*element).build());
                }
                let Some(buffer) = buffer else { continue };
                if is_passed_on {
                    return Ok(Some(buffer));
                }
                let pushed = element.src_pad().push(buffer);
                if for_base_class {
                    pushed?;
                }
            }
        }
    }
}

/// Takes the next frame or event to push out of the queue.
fn take_next(state: &SharedState, session: &mut Session, due: Due) -> Result<Next, FrameFailure> {
    Ok(match pop(state, session, due) {
        Some(Leaving::Frame(mut frame)) => {
            let message = frame.message.take();
            Next::Frame(finish(state, session, frame)?, message)
        }
        Some(Leaving::Event(event)) => Next::Event(event),
        None => Next::Nothing,
    })
}

/// Removes the next frame or event that is due. Submits the frames that have waited long enough.
fn pop(state: &SharedState, session: &mut Session, due: Due) -> Option<Leaving> {
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
                let promised = published.latency.promised(state.timer.now());
                posting::warn(state, session.warnings.of_ignored_latency(promised, published.latency.own));
            }
            if let Some(next) = session.queue.waiting.front() {
                frame.entered.times.extend_to(&next.entered.times);
            }
            let events = std::mem::take(&mut frame.events);
            let decided = deciding::decide(state, session, frame);
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
        Outcome::InFlight(frame) => buffers::complete(state, session, *frame)?,
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

/// Pushes the events that follow the last frame that has left.
fn push_events(state: &SharedState) {
    let events = state.with_session(|session| std::mem::take(&mut session.queue.leaving));
    for leaving in events.into_iter().flatten() {
        if let Leaving::Event(event) = leaving {
            state.parent_sink_event(event);
        }
    }
}

/// How long a frame of a live stream may wait, counted from the time from which its latency counts; `None` if frames do
/// not wait. `latency` is the one that is promised.
fn wait(session: &Session, latency: gst::ClockTime) -> Option<gst::ClockTime> {
    if session.latency().is_zero() { None } else { Some(session.timing.wait(latency)) }
}

/// Puts the session back, sets the timer for its frames, and updates what applications read.
pub fn put_back(state: &SharedState, session: Box<Session>) {
    let due = session.queue.since().and_then(|since| {
        let latency = state.published().latency.promised(state.timer.now());
        Some(since.saturating_add(wait(&session, latency)?))
    });
    let (active, latency) = (session.engine.active().into(), session.latency());
    posting::report_stats(state, &session.engine);
    let previous = state.publish(|published| std::mem::replace(&mut published.active, active));
    state.put_back_session(session);
    state.timer.set_due(due);
    if active != previous {
        state.element().notify("active-backend");
        posting::report_latency(state, latency);
    }
}
