// SPDX-License-Identifier: MPL-2.0
//! The streaming thread: caps, the parameters of each frame, and the frames in flight between submission and push.

use std::ops::ControlFlow;

use gst::prelude::*;
use gst_base::prelude::*;
use gst_video::{VideoInterlaceMode, VideoMultiviewFlags, VideoMultiviewMode};

use super::covering::Allocate;
use super::debug::CAT;
use super::error::engine_message;
use super::look_ahead::{ArrivedFrame, WaitingFrame};
use super::notices::{self, Notice};
use super::regions::settings::RegionMode;
use super::reporting::{post_failure, report_stats};
use super::session::Session;
use super::state::SharedState;
use super::stream_format::StreamFormat;
use super::{caps, covering, cuda_context, output_buffer, reporting};
use crate::engine::{Backend, EngineError};

/// Prepares for frames of these caps.
pub fn set_caps(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    incaps: &gst::Caps,
    outcaps: &gst::Caps,
    allocate: Allocate,
) -> Result<(), gst::LoggableError> {
    // The frames in flight and those that wait have the previous caps. A caps event has drained them already, but no event precedes a
    // renegotiation that downstream asked for.
    drain(element, state, allocate);
    let info = gst_video::VideoInfo::from_caps(incaps).map_err(|_| {
        refuse(element, state, incaps, &format!("the input caps are not valid raw video caps: {incaps}"))
    })?;
    if info.interlace_mode() == VideoInterlaceMode::Fields {
        let modes = "interlace-mode=fields is not supported; use progressive, interleaved, mixed or alternate";
        return Err(refuse(element, state, incaps, &format!("{modes}: {incaps}")));
    }
    // Each view in a buffer has a GstVideoMeta. Only the first one is read, so that the other views would leave uncovered.
    if info.multiview_mode() == VideoMultiviewMode::Separated {
        let modes = "multiview-mode=separated is not supported; use mono or multiview-frame-by-frame";
        return Err(refuse(element, state, incaps, &format!("{modes}: {incaps}")));
    }
    if let Some(reason) = refused_views(&info) {
        let cure = "split the views before cudagaussblur, for example with glstereosplit";
        return Err(refuse(element, state, incaps, &format!("{reason}; {cure}: {incaps}")));
    }
    let on_device = [incaps, outcaps].map(|caps| caps::is_device(caps));
    let video_format = info.format();
    let Some(format) = StreamFormat::new(info, on_device) else {
        return Err(refuse(element, state, incaps, &format!("video format {video_format} is not supported: {incaps}")));
    };
    gst::debug!(CAT, obj = element, "input {incaps}, output {outcaps}, planes {}", format.describe_planes());
    let update = |session: &mut Session| {
        // Places in a picture of another size say nothing; another frame rate, for example, leaves them true.
        if session.format.as_ref().is_none_or(|previous| previous.picture_size() != format.picture_size()) {
            session.tracker.clear();
        }
        session.format = Some(format.into());
        let active = session.engine.active();
        if active == Backend::Cuda || !on_device.contains(&true) {
            session.refused_caps = None;
        }
        (session.is_passthrough(), active, session.latency())
    };
    let Some((passthrough, active, latency)) = state.with_session(update) else { return Ok(()) };
    if active == Backend::Cpu && on_device.contains(&true) {
        post_refusal(element, state, incaps, engine_message(&EngineError::NeedsCuda));
        return Err(gst::loggable_error!(CAT, "{}", EngineError::NeedsCuda));
    }
    element.set_passthrough(passthrough);
    set_latency(element, state, latency);
    // Takes milliseconds, so not under the lock.
    if let Some(session) = state.take_session() {
        let layouts = session.format.iter().flat_map(|format| format.possible_layouts());
        layouts.for_each(|layouts| session.engine.prepare(layouts));
        state.put_back_session(session);
    }
    Ok(())
}

/// Why two views in a picture cannot be blurred each by itself, if they cannot.
fn refused_views(info: &gst_video::VideoInfo) -> Option<String> {
    let (mode, format) = (info.multiview_mode(), info.format_info());
    let mixed =
        |mode: &str| Some(format!("multiview-mode={mode} is not supported, because samples of both views alternate"));
    let (name, side, length, unit) = match mode {
        VideoMultiviewMode::ColumnInterleaved => return mixed("column-interleaved"),
        VideoMultiviewMode::Checkerboard => return mixed("checkerboard"),
        VideoMultiviewMode::SideBySideQuincunx => return mixed("side-by-side-quincunx"),
        VideoMultiviewMode::SideBySide => ("side-by-side", "width", info.width(), format.w_sub().iter().max()),
        VideoMultiviewMode::TopBottom => ("top-bottom", "height", info.height(), format.h_sub().iter().max()),
        VideoMultiviewMode::RowInterleaved => ("row-interleaved", "height", 0, None),
        _ => return None,
    };
    let unit = 2 << unit.copied().unwrap_or(0);
    if !length.is_multiple_of(unit) {
        return Some(format!(
            "multiview-mode={name} is not supported for a {side} of {length}, because the views meet within a sample: it has to be \
             a multiple of {unit}"
        ));
    }
    if info.interlace_mode() != VideoInterlaceMode::Progressive {
        return Some(format!("multiview-mode={name} is not supported for interlaced video"));
    }
    let flips = VideoMultiviewFlags::LEFT_FLIPPED
        | VideoMultiviewFlags::LEFT_FLOPPED
        | VideoMultiviewFlags::RIGHT_FLIPPED
        | VideoMultiviewFlags::RIGHT_FLOPPED;
    if info.multiview_flags().contains(VideoMultiviewFlags::MIXED_MONO) {
        return Some(format!(
            "multiview-mode={name} with the flag mixed-mono is not supported, because not all buffers have two views"
        ));
    }
    let is_flipped = mode != VideoMultiviewMode::RowInterleaved && info.multiview_flags().intersects(flips);
    is_flipped
        .then(|| format!("multiview-mode={name} with a flipped view is not supported, because zones count in each"))
}

/// Sets the caps that the pads have. Pads take events before the element has started, and the base class does not set caps again
/// that came then.
fn adopt_caps(element: &gst_base::BaseTransform, state: &SharedState, allocate: Allocate) {
    let caps = [element.sink_pad(), element.src_pad()].map(PadExt::current_caps);
    if let [Some(incaps), Some(outcaps)] = caps
        && let Err(error) = set_caps(element, state, &incaps, &outcaps, allocate)
    {
        gst::warning!(CAT, obj = element, "{error}");
    }
}

/// Posts the reason why caps are refused.
fn refuse(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    caps: &gst::Caps,
    reason: &str,
) -> gst::LoggableError {
    post_refusal(element, state, caps, gst::error_msg!(gst::CoreError::Negotiation, ("{reason}")));
    gst::loggable_error!(CAT, "{reason}")
}

/// Posts why caps are refused, once: the base class offers them again with every frame. It ends streaming with an error
/// without a reason.
fn post_refusal(element: &gst_base::BaseTransform, state: &SharedState, caps: &gst::Caps, message: gst::ErrorMessage) {
    let refused = |session: &mut Session| session.refused_caps.replace(caps.clone());
    if state.with_session(refused).flatten().as_ref() != Some(caps) {
        element.post_error_message(message);
    }
}

/// Sets the parameters of the next frame: controlled properties at its stream time, the CUDA context, and whether the
/// base class passes it on unchanged.
pub fn update_frame_params(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    buffer: &gst::BufferRef,
    allocate: Allocate,
) {
    let segment = element.segment();
    let time = segment.downcast_ref::<gst::ClockTime>().and_then(|segment| segment.to_stream_time(buffer.pts()));
    if let Some(time) = time.filter(|_| element.has_active_control_bindings()) {
        let set_controlled_by = |thread| state.with_session(|session| session.controlled_by = thread);
        set_controlled_by(Some(std::thread::current().id()));
        if let Err(error) = element.sync_values(time) {
            gst::debug!(CAT, obj = element, "controlled properties keep their values: {error}");
        }
        set_controlled_by(None);
    }
    // While started, the settings are always valid: set_property refuses others.
    let settings = state.settings();
    let Ok(options) = settings.options() else { return };
    let mode = settings.regions.mode;
    let Some(mut session) = state.take_session() else { return };
    if session.format.is_none() {
        state.put_back_session(session);
        adopt_caps(element, state, allocate);
        let Some(with_caps) = state.take_session() else { return };
        session = with_caps;
    }
    let arrived = ArrivedFrame::read(element, settings, options, buffer);
    let time = session.format.as_ref().map(|format| arrived.time(format));
    let is_jump = time.is_some_and(|time| session.tracker.is_jump(time, &arrived.settings.regions.rules()));
    let ends_waiting = is_jump || mode == RegionMode::Frame || cuda_context::is_foreign(&session, buffer);
    if mode != RegionMode::Frame && session.has_in_flight() || ends_waiting && !session.waiting.is_empty() {
        state.put_back_session(session);
        drain(element, state, allocate);
        let Some(drained) = state.take_session() else { return };
        session = drained;
    }
    if is_jump {
        session.tracker.clear();
    }
    if options.params.is_cut_off() && session.notices.is_first(Notice::KernelSize) {
        gst::warning!(CAT, obj = element, "{}", notices::cut_off(&options.params));
    }
    session.options = options;
    session.mode = mode;
    session.pending_error = cuda_context::adopt_context(element, state, &mut session, buffer).err();
    if mode == RegionMode::Frame {
        state.publish(|published| {
            (published.regions.last_regions, published.regions.last_covered_area) = (0, 0.0);
        });
    }
    session.arrived = Some(arrived);
    let (passthrough, latency) = (session.is_passthrough(), session.latency());
    let asks_upstream = !passthrough && std::mem::take(&mut session.upstream_may_crop);
    state.put_back_session(session);
    set_latency(element, state, latency);
    if element.is_passthrough() != passthrough {
        gst::debug!(CAT, obj = element, "{} passthrough", if passthrough { "entering" } else { "leaving" });
        element.set_passthrough(passthrough);
        // Only without passthrough does the element need an output pool, which the next allocation query decides.
        element.reconfigure_src();
    }
    if asks_upstream {
        // What downstream welcomes, the element may not.
        element.reconfigure_sink();
    }
}

/// Lets the frame that has arrived enter. Called after the base class has renegotiated for it, which pushes the frames before it.
pub fn enter(element: &gst_base::BaseTransform, state: &SharedState) {
    if let Some(mut session) = state.take_session() {
        covering::enter(element, &mut session);
        let latency = session.latency();
        state.put_back_session(session);
        set_latency(element, state, latency);
    }
}

/// Processes the queued frame and returns the oldest one that is due. `take_input` returns the queued frame, if there is one
/// to process. In passthrough, where the base class pushes the queued frame itself, all frames in flight are due.
pub fn drive(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    passthrough: bool,
    take_input: impl FnOnce() -> Option<gst::Buffer>,
    allocate: Allocate,
) -> Result<Option<gst::Buffer>, gst::FlowError> {
    let mut take_input = Some(take_input);
    loop {
        push_due_events(element, state);
        // Stopped, or called from within a call that works with the stream: the element accepts no frame now.
        let Some(mut session) = state.take_session() else { return Err(gst::FlowError::Flushing) };
        let input = take_input.take().and_then(|take| take());
        let output = match session.has_failed {
            // Its error is posted.
            true => Err(gst::FlowError::Error),
            false => step(element, state, &mut session, input, passthrough, allocate),
        };
        if output.is_err() {
            // The frames that entered before an error are not pushed after it. A frame that upstream pushes in spite of it is
            // processed, as in every element of this base class.
            session.discard_frames();
        }
        // The base class sets the DISCONT flag of a frame that has arrived, or after one that was late, on the buffer that it
        // pushes next. Frames before that place are pushed here, where it does not see them.
        let is_before_discont = session.waiting.iter().any(WaitingFrame::is_discont);
        publish(element, state, session);
        match output? {
            ControlFlow::Continue(()) => (),
            ControlFlow::Break(Some(output))
                if is_before_discont && !output.flags().contains(gst::BufferFlags::DISCONT) =>
            {
                element.src_pad().push(output)?;
            }
            ControlFlow::Break(output) => return Ok(output),
        }
    }
}

/// Processes a frame, if there is one, and returns the oldest one that is due: with `is_all_due` any, else one beyond those that
/// may wait or be in flight, or one that is done. It is to be called again if a frame was due that is not to be pushed.
fn step(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    session: &mut Session,
    input: Option<gst::Buffer>,
    is_all_due: bool,
    allocate: Allocate,
) -> Result<ControlFlow<Option<gst::Buffer>>, gst::FlowError> {
    if let Some(input) = input {
        if let Some(error) = session.pending_error.take() {
            return Err(post_failure(element, &error));
        }
        if session.mode == RegionMode::Frame {
            let output = allocate(&input, None)?;
            let submitted = session.submit(input, output, element.as_ptr() as usize);
            submitted.map_err(|failure| post_failure(element, &failure))?;
        } else {
            covering::add_buffer(element, state, session, input, allocate)?;
        }
    }
    let (max_waiting, max_in_flight) =
        if is_all_due { (0, 0) } else { (session.look_ahead, session.max_in_flight - 1) };
    if session.waiting.iter().map(|frame| 1 + frame.gap).sum::<usize>() > max_waiting
        && let Some(frame) = session.waiting.pop_front()
    {
        let output = covering::leave(element, state, session, frame, allocate)?;
        return Ok(output.map_or(ControlFlow::Continue(()), |output| ControlFlow::Break(Some(output))));
    }
    let output = session.pop_due(max_in_flight).map(|frame| {
        let completed = session.engine.complete(frame);
        output_buffer::of_completed(element, state, &session.engine, completed)
    });
    Ok(ControlFlow::Break(output.transpose()?))
}

/// Completes and pushes all frames in flight and all that wait, so that they precede the event, query or frame that follows
/// them.
pub fn drain(element: &gst_base::BaseTransform, state: &SharedState, allocate: Allocate) {
    push_frames(element, state, true, allocate);
}

/// Pushes the frames that are due, all if `is_all_due`, where the base class does not ask for them.
fn push_frames(element: &gst_base::BaseTransform, state: &SharedState, is_all_due: bool, allocate: Allocate) {
    loop {
        push_due_events(element, state);
        let Some(mut session) = state.take_session() else { return };
        let output = step(element, state, &mut session, None, is_all_due, allocate);
        if output.is_err() {
            session.discard_frames();
            session.has_failed = true;
        }
        publish(element, state, session);
        match output {
            Err(_) | Ok(ControlFlow::Break(None)) => return,
            Ok(ControlFlow::Continue(())) => (),
            // A flow error is returned to upstream when the next frame is pushed.
            Ok(ControlFlow::Break(Some(output))) => drop(element.src_pad().push(output)),
        }
    }
}

/// Pushes the events that follow the last frame that has left.
fn push_due_events(element: &gst_base::BaseTransform, state: &SharedState) {
    let events = state.with_session(|session| std::mem::take(&mut session.due_events));
    for event in events.into_iter().flatten() {
        element.src_pad().push_event(event);
    }
}

/// Adds an event to the frames that wait, and pushes those that wait long enough then. Returns it if there are none.
pub fn queue_event(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    event: gst::Event,
    allocate: Allocate,
) -> Option<gst::Event> {
    let is_reverse = element.segment().rate() < 0.0;
    let mut event = Some(event);
    state.with_session(|session| {
        if let Some(frame) = session.waiting.back_mut()
            && let Some(event) = event.take()
        {
            frame.add_event(event, is_reverse);
        }
    });
    if event.is_none() {
        push_frames(element, state, false, allocate);
    }
    event
}

/// Whether frames are in flight.
pub fn has_in_flight(state: &SharedState) -> bool {
    state.with_session(|session| session.has_in_flight()) == Some(true)
}

/// Forgets the objects of the stream that ends, and warns of settings by which it has covered nothing.
pub fn end(element: &gst_base::BaseTransform, state: &SharedState) {
    let settings = state.settings();
    let texts = state.with_session(|session| {
        session.tracker.clear();
        let size = session.format.as_ref().map_or((0, 0), |format| format.picture_size());
        session.notices.at_end(&settings.regions, size)
    });
    reporting::warn(element, texts.unwrap_or_default());
}

/// Drops all frames in flight and all that wait. Of the events between them, those that are sticky are kept.
pub fn flush(element: &gst_base::BaseTransform, state: &SharedState) {
    let Some(mut session) = state.take_session() else { return };
    session.discard_frames();
    session.tracker.clear();
    session.forget_times();
    (session.has_failed, session.has_gap) = (false, false);
    for event in std::mem::take(&mut session.due_events).into_iter().filter(|event| event.is_sticky()) {
        let _ = element.src_pad().store_sticky_event(&event);
    }
    publish(element, state, session);
}

/// Puts the stream back and updates what applications read.
fn publish(element: &gst_base::BaseTransform, state: &SharedState, session: Box<Session>) {
    let (active, latency) = (session.engine.active().into(), session.latency());
    report_stats(element, state, &session.engine);
    let previous = state.publish(|published| std::mem::replace(&mut published.active, active));
    state.put_back_session(session);
    if active != previous {
        element.notify("active-backend");
        set_latency(element, state, latency);
    }
}

/// Sets the latency that the element reports. If it changed, the pipeline is asked to query it again.
fn set_latency(element: &gst_base::BaseTransform, state: &SharedState, latency: gst::ClockTime) {
    let previous = state.publish(|published| std::mem::replace(&mut published.latency, latency));
    if previous != latency {
        let _ = element.post_message(gst::message::Latency::builder().src(element).build());
    }
}
