// SPDX-License-Identifier: MPL-2.0
//! The streaming thread: caps, the parameters of each frame, and the frames in flight between submission and push.

use gst::prelude::*;
use gst_base::prelude::*;
use gst_video::VideoInterlaceMode;

use super::debug::CAT;
use super::error::engine_message;
use super::notices::{self, Notice};
use super::output_pool::Preallocation;
use super::region_settings::RegionMode;
use super::reporting::{post_failure, report_stats, warn_of_fallback};
use super::state::SharedState;
use super::stream::{FrameTask, Stream};
use super::stream_format::StreamFormat;
use super::video_frame::VideoFramePair;
use super::{caps, covering, cuda_context, detector_metas, reporting};
use crate::engine::{Backend, EngineError, InFlightFrame};

/// Prepares for frames of these caps.
pub fn set_caps(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    incaps: &gst::Caps,
    outcaps: &gst::Caps,
) -> Result<(), gst::LoggableError> {
    // The frames in flight have the previous caps. A caps event has drained them already, but no event precedes a
    // renegotiation that downstream asked for.
    drain(element, state);
    let info = gst_video::VideoInfo::from_caps(incaps).map_err(|_| {
        refuse(element, state, incaps, &format!("the input caps are not valid raw video caps: {incaps}"))
    })?;
    if info.interlace_mode() == VideoInterlaceMode::Fields {
        let modes = "interlace-mode=fields is not supported; use progressive, interleaved, mixed or alternate";
        return Err(refuse(element, state, incaps, &format!("{modes}: {incaps}")));
    }
    let on_device = [incaps, outcaps].map(|caps| caps::is_device(caps));
    let video_format = info.format();
    let Some(format) = StreamFormat::new(info, on_device) else {
        return Err(refuse(element, state, incaps, &format!("video format {video_format} is not supported: {incaps}")));
    };
    gst::debug!(CAT, obj = element, "input {incaps}, output {outcaps}, planes {}", format.describe_planes());
    let update = |stream: &mut Stream| {
        // Places in a picture of another size say nothing; another frame rate, for example, leaves them true.
        if stream.format.as_ref().is_none_or(|previous| previous.picture_size() != format.picture_size()) {
            stream.tracker.clear();
        }
        stream.format = Some(format.into());
        let active = stream.engine.active();
        if active == Backend::Cuda || !on_device.contains(&true) {
            stream.refused_caps = None;
        }
        (stream.is_passthrough(), active, stream.latency())
    };
    let Some((passthrough, active, latency)) = state.with_stream(update) else { return Ok(()) };
    if active == Backend::Cpu && on_device.contains(&true) {
        post_refusal(element, state, incaps, engine_message(&EngineError::NeedsCuda));
        return Err(gst::loggable_error!(CAT, "{}", EngineError::NeedsCuda));
    }
    element.set_passthrough(passthrough);
    set_latency(element, state, latency);
    Ok(())
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
    let refused = |stream: &mut Stream| stream.refused_caps.replace(caps.clone());
    if state.with_stream(refused).flatten().as_ref() != Some(caps) {
        element.post_error_message(message);
    }
}

/// Sets the parameters of the next frame: controlled properties at its stream time, the CUDA context, and whether the
/// base class passes it on unchanged.
pub fn update_frame_params(element: &gst_base::BaseTransform, state: &SharedState, buffer: &gst::BufferRef) {
    let segment = element.segment();
    let time = segment.downcast_ref::<gst::ClockTime>().and_then(|segment| segment.to_stream_time(buffer.pts()));
    if let Some(time) = time
        && let Err(error) = element.sync_values(time)
    {
        gst::debug!(CAT, obj = element, "controlled properties keep their values: {error}");
    }
    // While started, the settings are always valid: set_property refuses others.
    let settings = state.settings();
    let Ok(options) = settings.options() else { return };
    let mode = settings.regions.mode;
    if mode != RegionMode::Frame && state.with_stream(|stream| stream.has_in_flight()) == Some(true) {
        drain(element, state);
    }
    let Some(mut stream) = state.take_stream() else { return };
    if options.params.is_cut_off() && stream.notices.is_first(Notice::KernelSize) {
        gst::warning!(CAT, obj = element, "{}", notices::cut_off(&options.params));
    }
    stream.options = options;
    stream.mode = mode;
    stream.task = FrameTask::Blur;
    stream.pending_error = cuda_context::adopt_context(element, state, &mut stream, buffer).err();
    if mode == RegionMode::Frame {
        stream.tracker.clear();
        stream.tracker.note(detector_metas::read(buffer, settings.regions.sources).looked);
        state.with_snapshot(|snapshot| {
            (snapshot.regions.last_regions, snapshot.regions.last_covered_area) = (0, 0.0);
        });
        reporting::warn(element, stream.notices.of_whole_frame(&settings.regions));
    } else if stream.pending_error.is_none() {
        covering::decide(element, state, &mut stream, &settings, buffer);
    }
    let (passthrough, latency) = (stream.is_passthrough(), stream.latency());
    state.put_back_stream(stream);
    set_latency(element, state, latency);
    if element.is_passthrough() != passthrough {
        gst::debug!(CAT, obj = element, "{} passthrough", if passthrough { "entering" } else { "leaving" });
        element.set_passthrough(passthrough);
        // Only without passthrough does the element need an output pool, which the next allocation query decides.
        element.reconfigure_src();
    }
}

/// What comes of a call of [`drive`].
pub enum Driven {
    /// A frame to push.
    Output(gst::Buffer),
    /// The queued frame was dropped.
    Dropped,
    /// No frame is due.
    Nothing,
}

/// Submits the queued frame and returns the oldest frame in flight that is due or done. `take_input` returns the queued
/// frame, if there is one to blur, and `allocate_output` a buffer for its blur: in ordinary memory if it is given a size in
/// bytes, else from the pool. In passthrough, where the base class pushes the queued frame itself, all frames in flight are
/// due. A frame of which parts are covered is returned at once.
pub fn drive(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    passthrough: bool,
    take_input: impl FnOnce() -> Option<gst::Buffer>,
    allocate_output: impl FnOnce(&gst::BufferRef, Option<usize>) -> Result<gst::Buffer, gst::FlowError>,
) -> Result<Driven, gst::FlowError> {
    // Stopped, or called from within a call that works with the stream: the element accepts no frame now.
    let Some(mut stream) = state.take_stream() else { return Err(gst::FlowError::Flushing) };
    let mut preallocation = stream.preallocation.take();
    let mut has_ordinary_output = false;
    let submit_and_complete = || {
        let input = take_input();
        if stream.has_failed {
            // Its error is posted.
            return Err(gst::FlowError::Error);
        }
        if let Some(input) = input {
            if let Some(error) = stream.pending_error.take() {
                return Err(post_failure(element, &error));
            }
            let allocate_output = |input: &gst::BufferRef| {
                let ordinary_bytes = preallocation.as_ref().and_then(Preallocation::ordinary_bytes);
                has_ordinary_output = ordinary_bytes.is_some();
                if !has_ordinary_output {
                    // Waits for its thread.
                    preallocation = None;
                }
                allocate_output(input, ordinary_bytes)
            };
            match stream.task {
                FrameTask::Blur => (),
                FrameTask::Cover(..) => {
                    return covering::cover(element, state, &mut stream, input, allocate_output).map(Driven::Output);
                }
                FrameTask::Drop => return Ok(Driven::Dropped),
            }
            let output = allocate_output(&input)?;
            let submitted = stream.submit(input, output, element.as_ptr() as usize);
            submitted.map_err(|failure| post_failure(element, &failure))?;
        }
        let max_waiting = if passthrough { 0 } else { stream.max_in_flight - 1 };
        let due = stream.pop_due(max_waiting);
        let output = due.map(|frame| complete(element, state, &mut stream, frame)).transpose()?;
        Ok(output.map_or(Driven::Nothing, Driven::Output))
    };
    let output = submit_and_complete();
    if let Some(preallocation) = preallocation.as_mut().filter(|_| has_ordinary_output && output.is_ok()) {
        preallocation.start();
    }
    stream.preallocation = preallocation;
    if output.is_err() {
        // An error is posted once, and no frame is pushed after it.
        stream.discard_in_flight();
    }
    publish(element, state, stream);
    output
}

/// Completes and pushes all frames in flight, so that they precede the event, query or frame that follows them.
pub fn drain(element: &gst_base::BaseTransform, state: &SharedState) {
    loop {
        let Some(mut stream) = state.take_stream() else { return };
        let output = stream.pop_due(0).map(|frame| complete(element, state, &mut stream, frame));
        if let Some(Err(_)) = output {
            stream.discard_in_flight();
            stream.has_failed = true;
        }
        publish(element, state, stream);
        match output {
            None | Some(Err(_)) => return,
            // A flow error is returned to upstream when the next frame is pushed.
            Some(Ok(output)) => drop(element.src_pad().push(output)),
        }
    }
}

/// Warns of settings by which the stream that ends has covered nothing.
pub fn end(element: &gst_base::BaseTransform, state: &SharedState) {
    let settings = state.settings();
    let texts = state.with_stream(|stream| {
        let size = stream.format.as_ref().map_or((0, 0), |format| format.picture_size());
        stream.notices.at_end(&settings.regions, size)
    });
    reporting::warn(element, texts.unwrap_or_default());
}

/// Drops all frames in flight.
pub fn flush(element: &gst_base::BaseTransform, state: &SharedState) {
    let Some(mut stream) = state.take_stream() else { return };
    stream.discard_in_flight();
    stream.has_failed = false;
    stream.tracker.clear();
    publish(element, state, stream);
}

/// Waits for a frame and returns its output buffer. Posts a warning if CUDA failed and the CPU blurred it.
fn complete(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    stream: &mut Stream,
    frame: InFlightFrame<VideoFramePair>,
) -> Result<gst::Buffer, gst::FlowError> {
    let completed = stream.engine.complete(frame).map_err(|error| post_failure(element, &error.into()))?;
    warn_of_fallback(element, state, stream, completed.failure);
    Ok(completed.frame.into_output(completed.queued))
}

/// Puts the stream back and updates what applications read.
fn publish(element: &gst_base::BaseTransform, state: &SharedState, stream: Box<Stream>) {
    let (active, latency) = (stream.engine.active().into(), stream.latency());
    report_stats(element, state, &stream.engine);
    let previous = state.with_snapshot(|snapshot| std::mem::replace(&mut snapshot.active, active));
    state.put_back_stream(stream);
    if active != previous {
        element.notify("active-backend");
        set_latency(element, state, latency);
    }
}

/// Sets the latency that the element reports. If it changed, the pipeline is asked to query it again.
fn set_latency(element: &gst_base::BaseTransform, state: &SharedState, latency: gst::ClockTime) {
    let previous = state.with_snapshot(|snapshot| std::mem::replace(&mut snapshot.latency, latency));
    if previous != latency {
        let _ = element.post_message(gst::message::Latency::builder().src(element).build());
    }
}
