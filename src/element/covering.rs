// SPDX-License-Identifier: MPL-2.0
//! Decides about a frame, and covers or blurs it. A frame enters, waits for `look-ahead` later frames or the time of as many, is
//! decided and submitted, and leaves.

use std::ops::ControlFlow;
use std::sync::Arc;

use gst::prelude::*;
use gst_base::prelude::*;

use super::error::FrameFailure;
use super::frame_cover::FrameCover;
use super::notices::Notice;
use super::output_buffer::{allocate, allocate_output, complete, transfer};
use super::qos;
use super::queue::{self, DecidedFrame, Outcome, WaitingFrame};
use super::region_message;
use super::regions::detector_metas;
use super::regions::settings::{ObjectShape, OnMissing, RegionMode, RegionSources};
use super::reporting;
use super::session::Session;
use super::state::SharedState;
use super::stream_format::StreamFormat;
use super::video_frame::{self, MappedFrame};
use crate::engine::{self, Cover, EngineError};
use crate::filter::frame::{Frame, Side};
use crate::filter::weights::Mask;
use crate::regions::clock::FrameTimes;
use crate::regions::frame_regions::{self, EnteredFrame, FrameRegions};
use crate::regions::masks;
use crate::regions::on_missing::FrameAction;
use crate::regions::tracks::Evidence;

/// Lets a frame enter, after the base class has renegotiated for it. The tracks get its detections, also if it is dropped or blurred as
/// a whole. `since` is the running time from which the frame's latency counts, in a live stream.
pub fn enter(
    state: &SharedState,
    session: &mut Session,
    buffer: gst::Buffer,
    since: Option<gst::ClockTime>,
) -> Result<(), FrameFailure> {
    let (failure, times) = (session.pending_failure.take(), session.times);
    let format = session.format.clone().ok_or(FrameFailure::NoCaps)?;
    let settings = session.settings.clone();
    let regions = &*settings.regions;
    let element = state.element();
    let masked = (regions.shape == ObjectShape::Mask).then_some(&regions.labels);
    let mut found = detector_metas::read(&buffer, times.interval, regions.sources, masked);
    let (size, is_field) = (format.picture_size, format.is_alternate());
    found.detections.iter_mut().for_each(|detection| detection.place_in(size, is_field));
    regions.rules().bound(&mut found, size);
    let views = format.progressive_layouts()[0].split.views();
    let mut entered = EnteredFrame { size, views, is_field, times, found };
    session.tracker.enter(&regions.rules(), &mut entered);
    if session.is_latency_unknown() {
        reporting::warn(state, session.notices.of_unknown_latency(regions));
    }
    if regions.mode == RegionMode::Frame {
        reporting::warn(state, session.notices.of_whole_frame(regions));
    } else {
        let pad = element.sink_pad();
        let turned = session.notices.of_orientation(|| orientation(pad), || is_turned_upstream(pad));
        reporting::warn(state, turned);
        let has_detector = session.tracker.has_detector();
        reporting::warn(state, session.notices.of_regions(regions, &entered, has_detector));
    }
    session.base_has_discont |= times.is_discont;
    let input = match failure {
        Some(failure) if !session.is_passthrough() => Err(failure),
        _ if session.most_waiting() > 0 && queue::is_scarce(&buffer) => keep(state, session, buffer, &format),
        _ => Ok(buffer),
    };
    let options = session.options;
    let frame = WaitingFrame { input, events: Vec::new(), gap: 0, settings, options, format, entered, since };
    session.queue.waiting.push_back(frame);
    Ok(())
}

/// The tag `image-orientation` of the stream of a pad, if players turn it.
fn orientation(pad: &gst::Pad) -> Option<String> {
    let mut orientation = None;
    pad.sticky_events_foreach(|event| {
        if let gst::EventView::Tag(tag) = event.view()
            && let Some(value) = tag.tag().get::<gst::tags::ImageOrientation>()
        {
            orientation = Some(value.get().to_owned());
        }
        ControlFlow::Continue(gst::EventForeachAction::Keep)
    });
    orientation.filter(|orientation| orientation != "rotate-0")
}

/// Whether an element before this pad turns pictures: up to GStreamer 1.22 at least, `videoflip` hands on the tag as it was.
fn is_turned_upstream(pad: &gst::Pad) -> bool {
    let mut next = pad.peer();
    while let Some(pad) = next {
        if let Some(ghost) = pad.parent().and_downcast::<gst::GhostPad>() {
            // Out of a bin.
            next = ghost.peer();
            continue;
        }
        let Some(owner) = pad.parent_element() else { return false };
        let direction = owner.find_property("video-direction").map(|_| owner.property_value("video-direction"));
        let direction = direction.and_then(|value| value.transform::<i32>().ok()?.get::<i32>().ok());
        if direction.is_some_and(|direction| direction != gst_video::ffi::GST_VIDEO_ORIENTATION_IDENTITY) {
            return true;
        }
        next = match pad.downcast_ref::<gst::GhostPad>() {
            Some(ghost) => ghost.target(),
            None => owner.sink_pads().first().and_then(PadExt::peer),
        };
    }
    false
}

/// A copy of a frame of which upstream may have no other buffer while it waits; the frame itself if there is no pool of copies, or if it
/// cannot be read, which is an error when it leaves.
pub fn keep(
    state: &SharedState,
    session: &mut Session,
    buffer: gst::Buffer,
    format: &Arc<StreamFormat>,
) -> Result<gst::Buffer, FrameFailure> {
    let Some(pool) = session.copy_pool.clone() else { return Ok(buffer) };
    let copy = allocate(Some(&pool), &buffer)?;
    let on_device = session.is_on_cuda();
    let Ok(frame) = MappedFrame::pair(buffer.clone(), copy, format.clone(), on_device) else {
        // It fails when it is decided, after those before it.
        return Ok(buffer);
    };
    state.publish(|published| published.regions.frames_copied += 1);
    if frame.is_on_host() {
        let submitted = session.engine.submit(&Cover::NOTHING, frame)?;
        complete(state, session, submitted)
    } else {
        transfer(state, session, frame)
    }
}

/// Decides what becomes of a frame, and submits it.
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
    let mut found = session.tracker.decide(&settings.regions.rules(), &entered);
    let times = &entered.times;
    if qos::is_late(state, times) {
        return Ok((Outcome::Dropped, None));
    }
    let buffer = input?;
    let regions = &*settings.regions;
    if regions.mode == RegionMode::Frame {
        state.publish(|published| {
            (published.regions.last_regions, published.regions.last_covered_area) = (0, 0.0);
        });
        if format.is_passthrough(&options) {
            state.publish(|published| published.frames_passthrough += 1);
            return Ok((Outcome::Untouched(buffer), None));
        }
        session.note_sighting(&buffer, state.element().upcast_ref());
        let output = allocate_output(state, &buffer)?;
        let on_device = session.is_on_cuda();
        let frame = MappedFrame::pair(buffer, output, format, on_device)?;
        return Ok((session.engine.submit(options, frame)?.into(), None));
    }
    if regions.sources.contains(RegionSources::ALPHA) && found.action == FrameAction::Regions {
        let mask = alpha_mask(session, &buffer, &format)?;
        let size = format.picture_size;
        found.regions.extend(frame_regions::alpha_region(mask, &regions.rules(), size));
    }
    let FrameRegions { action, is_missing, is_unreadable, .. } = found;
    // Values other than auto apply to every frame whose metas can be read.
    let is_unasked = is_missing && (is_unreadable || regions.on_missing == OnMissing::Auto);
    let is_acted_on = !matches!(action, FrameAction::Regions | FrameAction::Error);
    let is_warned = is_unasked && is_acted_on && session.notices.is_first(Notice::Missing);
    let warn = |consequence: &str| {
        if is_warned {
            warn_of_missing(state, is_unreadable, consequence, times);
        }
    };
    let message =
        |cover: Option<&FrameCover>| regions.post_messages.then(|| region_message::structure(times, regions, cover));
    state.publish(|published| published.regions.frames_missing += u64::from(is_missing));
    match action {
        FrameAction::Drop => {
            warn("it is dropped");
            state.publish(|published| {
                let stats = &mut published.regions;
                stats.frames_dropped += 1;
                (stats.last_regions, stats.last_covered_area) = (0, 0.0);
            });
            Ok((Outcome::Dropped, message(None)))
        }
        FrameAction::Error => Err(FrameFailure::NoDetection),
        FrameAction::Regions | FrameAction::Whole => {
            let cover = FrameCover::new(regions, options, found, &format);
            warn(match cover.covered() {
                "nothing" => "it is not covered",
                "partly" => "it is covered in part",
                _ => "it is covered as a whole",
            });
            reporting::warn(state, session.notices.of_cover(&settings, &cover, times));
            let message = message(Some(&cover));
            Ok((submit_cover(state, session, &cover, buffer, &format)?, message))
        }
    }
}

/// The alpha channel of a frame.
fn alpha_mask(session: &Session, buffer: &gst::Buffer, format: &StreamFormat) -> Result<Mask, FrameFailure> {
    let on_device = session.is_on_cuda();
    let of_frame = |frame: &Frame| masks::of_alpha(frame, format.picture_size);
    let mask = video_frame::read(buffer.clone(), format, on_device, of_frame)?.ok_or(FrameFailure::AlphaOnDevice)?;
    let no_alpha = || FrameFailure::NoAlpha { format: format.info.format().to_str().as_str() };
    mask.map_err(EngineError::from)?.ok_or_else(no_alpha)
}

/// Warns of the first frame without readable detector metas.
fn warn_of_missing(state: &SharedState, is_unreadable: bool, consequence: &str, times: &FrameTimes) {
    let time = times.timestamp.map(gst::ClockTime::from_nseconds);
    let time = time.map_or("without a timestamp".to_owned(), |time| format!("at {time}"));
    let (cause, cure) = if is_unreadable {
        (
            "has detector metas that cannot be read (a segmentation without a detection, which needs shape=mask and a mask \
             whose size and strides are true, or libgstanalytics-1.0.so.0 is missing)",
            "use a detector that attaches object detections",
        )
    } else {
        (
            "has no detector metas",
            "put cudagaussblur right after the detector, set on-missing=pass if the detector attaches nothing when it finds \
             nothing, or region-sources=zones if there is no detector",
        )
    };
    gst::element_warning!(
        state.element(),
        gst::StreamError::Failed,
        ("the frame {time} {cause}: {consequence}; {cure}; further frames are counted in stats (frames-missing)")
    );
}

/// Covers a frame: in its own memory if that is writable and downstream can read it, else in a copy. A frame of which
/// nothing is covered stays as it is.
fn submit_cover(
    state: &SharedState,
    session: &mut Session,
    cover: &FrameCover,
    input: gst::Buffer,
    format: &Arc<StreamFormat>,
) -> Result<Outcome, FrameFailure> {
    let on_device = session.is_on_cuda();
    let can_hand_on = session.can_hand_on(&input);
    let is_untouched = can_hand_on && cover.cover.is_empty();
    let is_in_place = can_hand_on && !is_untouched && input.is_writable() && input.is_all_memory_writable();
    if !is_untouched && !engine::is_for_cpu(&cover.cover) {
        session.note_sighting(&input, state.element().upcast_ref());
    }
    let in_place = |buffer, side| MappedFrame::in_place(buffer, format.clone(), side, on_device);
    let outcome = if is_untouched {
        Outcome::Untouched(input)
    } else if is_in_place {
        session.engine.submit(&cover.cover, in_place(input, Side::Input)?)?.into()
    } else {
        let output = allocate_output(state, &input)?;
        let frame = MappedFrame::pair(input, output, format.clone(), on_device)?;
        if frame.is_same_memory() {
            session.engine.submit(&cover.cover, frame)?.into()
        } else {
            // Uploads or downloads the frame.
            let output = transfer(state, session, frame)?;
            match cover.cover.is_empty() {
                true => Outcome::Untouched(output),
                false => session.engine.submit(&cover.cover, in_place(output, Side::Output)?)?.into(),
            }
        }
    };
    state.publish(|published| {
        let stats = &mut published.regions;
        stats.frames_untouched += u64::from(is_untouched);
        stats.frames_in_place += u64::from(is_in_place);
        stats.frames_predicted += u64::from(cover.has(Evidence::Predicted));
        stats.frames_bridged += u64::from(cover.has(Evidence::Bridged));
        stats.frames_anticipated += u64::from(cover.has(Evidence::Anticipated));
        stats.frames_lost += u64::from(cover.is_lost);
        stats.last_regions = u32::try_from(cover.regions.len()).unwrap_or(u32::MAX);
        stats.last_covered_area = cover.covered_area;
    });
    Ok(outcome)
}
