// SPDX-License-Identifier: MPL-2.0
//! A frame is decided once enough later frames have come. The decision says what is covered in it, which warnings are
//! due, and which work the engine gets.

use std::sync::Arc;

use gst::prelude::*;

use super::cover::FrameCover;
use super::format::stream_format::StreamFormat;
use super::memory::buffers::{allocate_output, transfer};
use super::memory::mapping::{self, MappedFrame};
use super::messages::errors::FrameFailure;
use super::messages::{posting, qos, region_message};
use super::queue::{DecidedFrame, Outcome, WaitingFrame};
use super::regions::settings::{RegionMode, RegionSources};
use super::session::Session;
use super::state::SharedState;
use crate::engine::{self, EngineError};
use crate::filter::frame::{Frame, Side};
use crate::filter::plan::Options;
use crate::filter::weights::Mask;
use crate::regions::clock::FrameTimes;
use crate::regions::frame_regions::{self, FrameRegions};
use crate::regions::masks;
use crate::regions::on_missing::FrameAction;

/// Decides about a frame, and submits it to the engine.
pub fn decide(state: &SharedState, session: &mut Session, frame: WaitingFrame) -> DecidedFrame {
    let since = frame.since;
    let (outcome, message) = outcome(state, session, frame).unwrap_or_else(|failure| (Outcome::Failed(failure), None));
    DecidedFrame { outcome, message, since }
}

/// The decision about a frame, and the message.
fn outcome(
    state: &SharedState,
    session: &mut Session,
    frame: WaitingFrame,
) -> Result<(Outcome, Option<gst::Structure>), FrameFailure> {
    let WaitingFrame { input, settings, options, format, entered, .. } = frame;
    let (regions, times) = (&*settings.regions, &entered.times);
    let mut found = session.tracker.resolve(&regions.rules(), &entered);
    if is_late(state, times) {
        return Ok((Outcome::Dropped, None));
    }
    let buffer = input?;
    if regions.mode == RegionMode::Frame {
        return Ok((blur(state, session, buffer, options, format)?, None));
    }
    if regions.sources.contains(RegionSources::ALPHA) && found.action == FrameAction::Regions {
        let mask = alpha_mask(session, &buffer, &format)?;
        found.regions.extend(frame_regions::alpha_region(mask, &regions.rules(), format.picture_size));
    }
    let FrameRegions { action, is_missing, is_unreadable, .. } = found;
    state.publish(|published| published.regions.frames_missing += u64::from(is_missing));
    let cover = match action {
        FrameAction::Error => return Err(FrameFailure::NoDetection),
        FrameAction::Drop => None,
        FrameAction::Regions | FrameAction::Whole => Some(FrameCover::new(regions, options, found, &format)),
    };
    posting::warn_of_frame(state, session.warnings.of_missing(regions, is_unreadable, cover.as_ref(), times));
    let message = regions.post_messages.then(|| region_message::structure(times, regions, cover.as_ref()));
    let outcome = match &cover {
        Some(cover) => {
            posting::warn(state, session.warnings.of_cover(&settings, cover, times, format.picture_size));
            hide(state, session, buffer, cover, &format)?
        }
        None => Outcome::Dropped,
    };
    state.publish(|published| published.regions.count(cover.as_ref()));
    Ok((outcome, message))
}

/// Whether a frame is dropped because downstream says that it is late. Posts a message then, and counts it.
fn is_late(state: &SharedState, times: &FrameTimes) -> bool {
    let (published, element) = (state.published(), state.element());
    let Some(late_by) = published.qos.late_by(times).filter(|_| element.property::<bool>("qos")) else { return false };
    let late = state.publish(|published| {
        published.frames_late += 1;
        published.frames_late
    });
    let is_live = published.latency.upstream().is_some();
    let message = qos::message(times, late_by, published.qos, is_live).src(&*element);
    let counts = [published.frames, late].map(gst::format::Buffers::from_u64);
    let _ = element.post_message(message.stats(counts[0], counts[1]).build());
    true
}

/// The alpha channel of a frame.
fn alpha_mask(session: &Session, buffer: &gst::Buffer, format: &StreamFormat) -> Result<Mask, FrameFailure> {
    let on_device = session.is_on_cuda();
    let of_frame = |frame: &Frame| masks::of_alpha(frame, format.picture_size);
    let mask = mapping::read(buffer.clone(), format, on_device, of_frame)?.ok_or(FrameFailure::AlphaOnDevice)?;
    let no_alpha = || FrameFailure::NoAlpha { format: format.info.format().to_str().as_str() };
    mask.map_err(EngineError::from)?.ok_or_else(no_alpha)
}

/// Blurs a frame as a whole.
fn blur(
    state: &SharedState,
    session: &mut Session,
    buffer: gst::Buffer,
    options: Options,
    format: Arc<StreamFormat>,
) -> Result<Outcome, FrameFailure> {
    let is_passthrough = format.is_passthrough(&options);
    state.publish(|published| {
        (published.regions.last_regions, published.regions.last_covered_area) = (0, 0.0);
        published.frames_passthrough += u64::from(is_passthrough);
    });
    if is_passthrough {
        return Ok(Outcome::Untouched(buffer));
    }
    session.note_sighting(&buffer, state.element().upcast_ref());
    let output = allocate_output(state, &buffer)?;
    let frame = MappedFrame::pair(buffer, output, format, session.is_on_cuda())?;
    Ok(session.engine.submit(options, frame)?.into())
}

/// Covers a frame: in its own memory if that is writable and downstream can read it, else in a copy. If no part of the
/// frame is covered, it stays unchanged.
fn hide(
    state: &SharedState,
    session: &mut Session,
    input: gst::Buffer,
    FrameCover { cover, .. }: &FrameCover,
    format: &Arc<StreamFormat>,
) -> Result<Outcome, FrameFailure> {
    let on_device = session.is_on_cuda();
    let can_hand_on = session.can_hand_on(&input);
    let is_untouched = can_hand_on && cover.is_empty();
    let is_in_place = can_hand_on && !is_untouched && input.is_writable() && input.is_all_memory_writable();
    if !is_untouched && !engine::is_for_cpu(cover) {
        session.note_sighting(&input, state.element().upcast_ref());
    }
    let in_place = |buffer, side| MappedFrame::in_place(buffer, format.clone(), side, on_device);
    let outcome = if is_untouched {
        Outcome::Untouched(input)
    } else if is_in_place {
        session.engine.submit(cover, in_place(input, Side::Input)?)?.into()
    } else {
        let output = allocate_output(state, &input)?;
        let frame = MappedFrame::pair(input, output, format.clone(), on_device)?;
        if frame.is_same_memory() {
            session.engine.submit(cover, frame)?.into()
        } else {
            // Uploads or downloads the frame.
            let output = transfer(state, session, frame)?;
            match cover.is_empty() {
                true => Outcome::Untouched(output),
                false => session.engine.submit(cover, in_place(output, Side::Output)?)?.into(),
            }
        }
    };
    state.publish(|published| {
        published.regions.frames_untouched += u64::from(is_untouched);
        published.regions.frames_in_place += u64::from(is_in_place);
    });
    Ok(outcome)
}
