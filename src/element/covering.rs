// SPDX-License-Identifier: MPL-2.0
//! The streaming thread where parts of the picture are covered: what is decided about a frame, and where it is covered.
//! A frame enters, waits for `look-ahead` later frames or the time of as many, and leaves. It is complete, or enqueued on the
//! device, when it is pushed; none is in flight.

use std::ops::ControlFlow;

use gst::prelude::*;
use gst_base::prelude::*;

use super::error::FrameFailure;
use super::frame_cover::FrameCover;
use super::look_ahead::{self, ArrivedFrame, CopyPool, WaitingFrame};
use super::notices::Notice;
use super::region_message::{self, MessageTimes};
use super::regions::settings::{OnMissing, RegionMode, RegionSources};
use super::session::Session;
use super::state::SharedState;
use super::stream_format::StreamFormat;
use super::video_frame::{self, InPlaceFrame, VideoFramePair};
use super::{output_buffer, reporting};
use crate::engine::{self, Backend, Cover, EngineError};
use crate::filter::frame::{Frame, Side};
use crate::filter::weights::Mask;
use crate::regions::frame_regions::{self, EnteredFrame, FrameRegions};
use crate::regions::masks;
use crate::regions::on_missing::FrameAction;
use crate::regions::tracks::Evidence;
use crate::regions::zone::StreamSpan;

/// Allocates an output buffer with the metadata of an input buffer, from this pool, else from the output pool.
pub type Allocate<'a> = &'a dyn Fn(&gst::BufferRef, Option<&CopyPool>) -> Result<gst::Buffer, gst::FlowError>;

/// Notes what the frame that has arrived shows, in the format that the stream has now. If regions of it are covered, it waits until
/// [`leave`], without its buffer, which [`add_buffer`] adds unless the base class dropped it.
pub fn enter(element: &gst_base::BaseTransform, session: &mut Session) {
    // Without caps the frame has failed.
    let (Some(arrived), Some(format)) = (session.arrived.take(), session.format.clone()) else { return };
    let time = arrived.time(&format);
    let ArrivedFrame { settings, options, mut found, times, .. } = arrived;
    let regions = &*settings.regions;
    let (size, is_field) = (format.picture_size(), format.is_alternate());
    found.detections.iter_mut().for_each(|detection| detection.place_in(size, is_field));
    let span = stream_span(element, times.timestamp, format.frame_duration(times.duration));
    let views = format.progressive_layouts()[0].split.views();
    let entered = EnteredFrame { size, views, is_field, span, found };
    let now = session.tracker.enter(&regions.rules(), &entered, time);
    if !session.note_time(now, time) {
        reporting::warn(element, session.notices.of_unknown_latency(regions));
    }
    if regions.mode == RegionMode::Frame {
        session.tracker.decide(&regions.rules(), &entered);
        reporting::warn(element, session.notices.of_whole_frame(regions));
        return;
    }
    reporting::warn(element, session.notices.of_orientation(|| orientation(element), || is_turned_upstream(element)));
    reporting::warn(element, session.notices.of_regions(regions, &entered.found, time.duration, size));
    let events = Vec::new();
    let frame = WaitingFrame { buffer: None, events, gap: 0, settings, options, format, times, entered };
    session.waiting.push_back(frame);
}

/// The tag `image-orientation` of the stream, if players turn it.
fn orientation(element: &gst_base::BaseTransform) -> Option<String> {
    let mut orientation = None;
    element.sink_pad().sticky_events_foreach(|event| {
        if let gst::EventView::Tag(tag) = event.view()
            && let Some(value) = tag.tag().get::<gst::tags::ImageOrientation>()
        {
            orientation = Some(value.get().to_owned());
        }
        ControlFlow::Continue(gst::EventForeachAction::Keep)
    });
    orientation.filter(|orientation| orientation != "rotate-0")
}

/// Whether an element before this one turns pictures: up to GStreamer 1.22 at least, `videoflip` hands on the tag as it was.
fn is_turned_upstream(element: &gst_base::BaseTransform) -> bool {
    let mut next = element.sink_pad().peer();
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

/// Adds the buffer of the frame that entered last. It is copied if upstream may have no other one while it waits.
pub fn add_buffer(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    session: &mut Session,
    buffer: gst::Buffer,
    allocate: Allocate,
) -> Result<(), gst::FlowError> {
    let is_scarce = session.look_ahead > 0 && look_ahead::is_scarce(&buffer);
    let Some(format) = session.waiting.back().filter(|frame| frame.buffer.is_none()).map(|frame| frame.format.clone())
    else {
        return Err(reporting::post_failure(element, &FrameFailure::NoCaps));
    };
    let buffer = match &session.copy_pool {
        Some(copies) if is_scarce => {
            let copy = allocate(&buffer, Some(copies))?;
            let on_device = session.engine.active() == Backend::Cuda;
            match VideoFramePair::map(buffer.clone(), copy, format, on_device) {
                // It fails when it leaves, after those before it.
                Err(_) => buffer,
                Ok(frames) => {
                    drop(buffer);
                    state.publish(|published| published.regions.frames_copied += 1);
                    let completed = if frames.is_on_host() {
                        session.engine.run(&Cover::NOTHING, frames)
                    } else {
                        session.engine.transfer(frames)
                    };
                    output_buffer::of_completed(element, state, &session.engine, completed)?
                }
            }
        }
        _ => buffer,
    };
    if let Some(frame) = session.waiting.back_mut() {
        frame.buffer = Some(buffer);
    }
    Ok(())
}

/// Decides what becomes of the frame that entered first, and covers it. `None` if it is dropped.
pub fn leave(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    session: &mut Session,
    frame: WaitingFrame,
    allocate: Allocate,
) -> Result<Option<gst::Buffer>, gst::FlowError> {
    let WaitingFrame { buffer, events, settings, options, format, times, entered, .. } = frame;
    let mut found = session.tracker.decide(&settings.regions.rules(), &entered);
    session.due_events.extend(events);
    let Some(buffer) = buffer else {
        session.has_gap = true;
        return Ok(None);
    };
    let regions = &*settings.regions;
    if regions.sources.contains(RegionSources::ALPHA) && found.action == FrameAction::Regions {
        let mask = alpha_mask(session, &buffer, &format).map_err(|error| reporting::post_failure(element, &error))?;
        let size = format.picture_size();
        found.regions.extend(frame_regions::alpha_region(mask, &regions.rules(), size));
    }
    let FrameRegions { action, is_missing, is_unreadable, .. } = found;
    // Any other value than auto asks for what becomes of a frame, unless its metas cannot be read.
    let is_unasked = is_missing && (is_unreadable || regions.on_missing == OnMissing::Auto);
    let is_acted_on = !matches!(action, FrameAction::Regions | FrameAction::Error);
    let is_warned = is_unasked && is_acted_on && session.notices.is_first(Notice::Missing);
    let warn = |consequence: &str| {
        if is_warned {
            warn_of_missing(element, is_unreadable, consequence, &times);
        }
    };
    state.publish(|published| published.regions.frames_missing += u64::from(is_missing));
    match action {
        FrameAction::Drop => {
            warn("it is dropped");
            state.publish(|published| {
                let stats = &mut published.regions;
                stats.frames_dropped += 1;
                (stats.last_regions, stats.last_covered_area) = (0, 0.0);
            });
            if regions.post_messages {
                post_message(element, region_message::structure(times, regions, None));
            }
            session.has_gap = true;
            Ok(None)
        }
        FrameAction::Error => Err(reporting::post_failure(element, &FrameFailure::NoDetection)),
        FrameAction::Regions | FrameAction::Whole => {
            let cover = FrameCover::new(regions, options, found, &format);
            warn(match cover.covered() {
                "nothing" => "it is not covered",
                "partly" => "it is covered in part",
                _ => "it is covered as a whole",
            });
            let duration = format.frame_duration(times.duration).map(gst::ClockTime::nseconds);
            reporting::warn(element, session.notices.of_cover(&settings, &cover, duration));
            let message = regions.post_messages.then(|| region_message::structure(times, regions, Some(&cover)));
            let mut output = self::cover(element, state, session, &cover, buffer, allocate)?;
            if let Some(message) = message {
                post_message(element, message);
            }
            if std::mem::take(&mut session.has_gap) {
                output.make_mut().set_flags(gst::BufferFlags::DISCONT);
            }
            Ok(Some(output))
        }
    }
}

/// The alpha channel of a frame.
fn alpha_mask(session: &Session, buffer: &gst::Buffer, format: &StreamFormat) -> Result<Mask, FrameFailure> {
    let on_device = session.engine.active() == Backend::Cuda;
    let of_frame = |frame: &Frame| masks::of_alpha(frame, format.picture_size());
    let mask = video_frame::read(buffer.clone(), format, on_device, of_frame)?.ok_or(FrameFailure::AlphaOnDevice)?;
    let no_alpha = || FrameFailure::NoAlpha { format: format.info().format().to_str().as_str() };
    mask.map_err(EngineError::from)?.ok_or_else(no_alpha)
}

/// Warns of the first frame without readable detector metas.
fn warn_of_missing(element: &gst_base::BaseTransform, is_unreadable: bool, consequence: &str, times: &MessageTimes) {
    let time = times.timestamp.map_or("without a timestamp".to_owned(), |time| format!("at {time}"));
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
        element,
        gst::StreamError::Failed,
        ("the frame {time} {cause}: {consequence}; {cure}; further frames are counted in stats (frames-missing)")
    );
}

/// The stream-time interval of a frame. Both ends are converted, because an applied rate scales and reverses time. `None` if
/// its time is not known. A frame of unknown duration may last for any time, so that its interval has no end.
fn stream_span(
    element: &gst_base::BaseTransform,
    timestamp: Option<gst::ClockTime>,
    duration: Option<gst::ClockTime>,
) -> Option<StreamSpan> {
    let segment = element.segment();
    let segment = segment.downcast_ref::<gst::ClockTime>()?;
    // Where GStreamer cannot tell, the bindings return whatever was in memory.
    segment.time().filter(|_| segment.applied_rate() > 0.0 || segment.stop().is_some())?;
    let stream_time = |time: gst::ClockTime| match segment.to_stream_time_full(time)? {
        gst::Signed::Positive(time) => Some(i128::from(time.nseconds())),
        gst::Signed::Negative(time) => Some(-i128::from(time.nseconds())),
    };
    let timestamp = timestamp?;
    let from = stream_time(timestamp)?;
    let unknown = if segment.applied_rate() > 0.0 { i128::MAX } else { i128::MIN };
    let to = duration.and_then(|duration| stream_time(timestamp.checked_add(duration)?)).unwrap_or(unknown);
    // In reverse a frame is shown from its own time on too, which is then the last of the interval.
    Some(if to < from { (to + 1, from + 1) } else { (from, to) })
}

fn post_message(element: &gst_base::BaseTransform, structure: gst::Structure) {
    let _ = element.post_message(gst::message::Element::builder(structure).src(element).build());
}

/// Covers a frame: in its own memory if that is writable and downstream can read it, else in a copy. A frame of which
/// nothing is covered is returned as it is.
fn cover(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    session: &mut Session,
    cover: &FrameCover,
    input: gst::Buffer,
    allocate: Allocate,
) -> Result<gst::Buffer, gst::FlowError> {
    let fail = |failure: FrameFailure| reporting::post_failure(element, &failure);
    let counted = session.engine.stats().frames();
    let can_hand_on = session.can_hand_on(&input);
    let is_untouched = can_hand_on && cover.cover.is_empty();
    let is_in_place = can_hand_on && !is_untouched && input.is_writable() && input.is_all_memory_writable();
    if !is_untouched && !engine::is_for_cpu(&cover.cover) {
        session.note_sighting(&input, element.as_ptr() as usize);
    }
    let output = if is_untouched {
        input
    } else if is_in_place {
        cover_in_place(element, state, session, &cover.cover, input, Side::Input)?
    } else {
        let output = allocate(&input, None)?;
        let format = session.format.clone().ok_or(gst::FlowError::NotNegotiated)?;
        let on_device = session.engine.active() == Backend::Cuda;
        let frames = VideoFramePair::map(input, output, format, on_device).map_err(|error| fail(error.into()))?;
        if frames.is_same_memory() {
            let completed = session.engine.run(&cover.cover, frames);
            output_buffer::of_completed(element, state, &session.engine, completed)?
        } else {
            // Uploads or downloads the frame, or copies it on the device.
            let completed = session.engine.transfer(frames);
            let output = output_buffer::of_completed(element, state, &session.engine, completed)?;
            cover_in_place(element, state, session, &cover.cover, output, Side::Output)?
        }
    };
    state.publish(|published| {
        let stats = &mut published.regions;
        stats.frames_untouched += u64::from(is_untouched);
        stats.frames_uncovered += u64::from(!is_untouched && counted == session.engine.stats().frames());
        stats.frames_in_place += u64::from(is_in_place);
        stats.frames_predicted += u64::from(cover.has(Evidence::Predicted));
        stats.frames_bridged += u64::from(cover.has(Evidence::Bridged));
        stats.frames_anticipated += u64::from(cover.has(Evidence::Anticipated));
        stats.frames_lost += u64::from(cover.is_lost);
        stats.last_regions = u32::try_from(cover.regions.len()).unwrap_or(u32::MAX);
        stats.last_covered_area = cover.covered_area;
    });
    Ok(output)
}

/// Covers a buffer of which the element has the only reference.
fn cover_in_place(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    session: &mut Session,
    cover: &Cover,
    buffer: gst::Buffer,
    side: Side,
) -> Result<gst::Buffer, gst::FlowError> {
    let fail = |failure: FrameFailure| reporting::post_failure(element, &failure);
    if cover.is_empty() {
        return Ok(buffer);
    }
    let format = session.format.clone().ok_or(gst::FlowError::NotNegotiated)?;
    let on_device = session.engine.active() == Backend::Cuda;
    let frame = InPlaceFrame::map(buffer, format, side, on_device).map_err(|error| fail(error.into()))?;
    let completed = session.engine.run(cover, frame);
    output_buffer::of_completed(element, state, &session.engine, completed)
}
