// SPDX-License-Identifier: MPL-2.0
//! The caps of frames: which caps are refused and why, and how the element prepares for the others.

use gst::prelude::*;
use gst_base::prelude::*;
use gst_video::{VideoInterlaceMode, VideoMultiviewFlags, VideoMultiviewMode};

use super::caps;
use super::stream_format::StreamFormat;
use crate::element::leaving::drain;
use crate::element::messages::errors::engine_message;
use crate::element::messages::log::CAT;
use crate::element::messages::posting::report_latency;
use crate::element::session::Session;
use crate::element::state::SharedState;
use crate::engine::EngineError;

/// Prepares for frames of these caps.
pub fn set_caps(state: &SharedState, incaps: &gst::Caps, outcaps: &gst::Caps) -> Result<(), gst::LoggableError> {
    // The frames in the element have the previous caps.
    drain(state);
    let info = gst_video::VideoInfo::from_caps(incaps)
        .map_err(|_| refuse(state, incaps, "the input caps are not valid raw video caps"))?;
    if info.interlace_mode() == VideoInterlaceMode::Fields {
        let modes = "interlace-mode=fields is not supported; use progressive, interleaved, mixed or alternate";
        return Err(refuse(state, incaps, modes));
    }
    // Each view in a buffer has a GstVideoMeta. Only the first meta is read, so the other views would leave uncovered.
    if info.multiview_mode() == VideoMultiviewMode::Separated {
        let modes = "multiview-mode=separated is not supported; use mono or multiview-frame-by-frame";
        return Err(refuse(state, incaps, modes));
    }
    if let Some(reason) = refused_views(&info) {
        let cure = "split the views before cudagaussblur, for example with glstereosplit";
        return Err(refuse(state, incaps, &format!("{reason}; {cure}")));
    }
    let on_device = [incaps, outcaps].map(|caps| caps::is_device(caps));
    let video_format = info.format();
    let Some(format) = StreamFormat::new(info, on_device) else {
        return Err(refuse(state, incaps, &format!("video format {video_format} is not supported")));
    };
    gst::debug!(CAT, obj = state.element(), "input {incaps}, output {outcaps}, planes {}", format.describe_planes());
    let update = |session: &mut Session| {
        // Places of objects are meaningless in a picture of another size. With another frame rate, for example, they
        // stay true.
        if session.format.as_ref().is_none_or(|previous| previous.picture_size != format.picture_size) {
            session.tracker.clear();
        }
        if session.format.as_deref().and_then(StreamFormat::interval) != format.interval() {
            session.timing.forget_intervals();
        }
        session.format = Some(format.into());
        let needs_cuda = on_device.contains(&true) && !session.is_on_cuda();
        if !needs_cuda {
            session.refused_caps = None;
        }
        (session.is_passthrough(), needs_cuda, session.latency())
    };
    let Some((passthrough, needs_cuda, latency)) = state.with_session(update) else { return Ok(()) };
    if needs_cuda {
        post_refusal(state, incaps, engine_message(&EngineError::NeedsCuda));
        return Err(gst::loggable_error!(CAT, "{}", EngineError::NeedsCuda));
    }
    state.element().set_passthrough(passthrough);
    report_latency(state, latency);
    // Takes milliseconds, so not under the lock.
    if let Some(mut session) = state.take_session() {
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

/// Sets the caps that the pads have. Pads accept events before the element has started, and the base class does not
/// repeat caps that came then.
pub fn adopt_caps(state: &SharedState) {
    let element = state.element();
    let caps = [element.sink_pad(), element.src_pad()].map(PadExt::current_caps);
    if let [Some(incaps), Some(outcaps)] = caps
        && let Err(error) = set_caps(state, &incaps, &outcaps)
    {
        gst::warning!(CAT, obj = element, "{error}");
    }
}

/// Posts the reason why caps are refused.
fn refuse(state: &SharedState, caps: &gst::Caps, reason: &str) -> gst::LoggableError {
    let reason = format!("{reason}: {caps}");
    post_refusal(state, caps, gst::error_msg!(gst::CoreError::Negotiation, ("{reason}")));
    gst::loggable_error!(CAT, "{reason}")
}

/// Posts the reason why caps are refused, once, because the base class offers the caps again with every frame. The base
/// class ends streaming with an error that has no reason.
fn post_refusal(state: &SharedState, caps: &gst::Caps, message: gst::ErrorMessage) {
    let refused = |session: &mut Session| session.refused_caps.replace(caps.clone());
    if state.with_session(refused).flatten().as_ref() != Some(caps) {
        state.element().post_error_message(message);
    }
}
