// SPDX-License-Identifier: MPL-2.0
//! The streaming thread where parts of the picture are covered: what is decided about a frame, and where it is covered.
//! Such a frame is complete, or enqueued on the device, when it is pushed; none is in flight.

use gst::prelude::*;
use gst_base::prelude::*;

use super::error::FrameFailure;
use super::frame_cover::FrameCover;
use super::hold::FrameTime;
use super::notices::Notice;
use super::region_message::{self, MessageTimes};
use super::region_settings::OnMissing;
use super::regions::FrameRegions;
use super::settings::Settings;
use super::state::SharedState;
use super::stream::{FrameTask, Stream};
use super::video_frame::{InPlaceFrame, VideoFramePair};
use super::zones::StreamSpan;
use super::{detector_metas, reporting};
use crate::engine::{Backend, Cover};
use crate::filter::frame::Side;

/// Decides what is done with a frame, by its metas and the previous frames.
pub fn decide(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    stream: &mut Stream,
    settings: &Settings,
    buffer: &gst::BufferRef,
) {
    // Without caps the frame fails later.
    let Some(format) = stream.format.clone() else { return };
    let regions = &*settings.regions;
    let mut found = detector_metas::read(buffer, regions.sources);
    let (size, is_field) = (format.picture_size(), format.is_alternate());
    found.detections.iter_mut().for_each(|detection| detection.place_in(size, is_field));
    let times = times(element, buffer);
    let duration = times.duration.filter(|duration| !duration.is_zero()).or_else(|| format.duration(1));
    let nanoseconds = gst::ClockTime::nseconds;
    let time = FrameTime {
        timestamp: times.timestamp.map(nanoseconds),
        duration: duration.map(nanoseconds),
        is_discont: buffer.flags().contains(gst::BufferFlags::DISCONT),
    };
    let span = stream_span(element, times.timestamp, duration);
    reporting::warn(element, stream.notices.of_regions(regions, &found, time.duration, size));
    let decision = stream.tracker.update(regions, found, time, span, size);
    // Any other value than auto asks for what becomes of a frame, unless its metas cannot be read.
    let is_unreadable = decision.is_unreadable;
    let is_unasked = decision.is_missing && (is_unreadable || regions.on_missing == OnMissing::Auto);
    let is_acted_on = !matches!(decision.regions, FrameRegions::Regions(_) | FrameRegions::Error);
    let is_warned = is_unasked && is_acted_on && stream.notices.is_first(Notice::Missing);
    let warn = |consequence: &str| {
        if is_warned {
            warn_of_missing(element, is_unreadable, consequence, &times);
        }
    };
    state.with_snapshot(|snapshot| snapshot.regions.frames_missing += u64::from(decision.is_missing));
    match decision.regions {
        FrameRegions::Drop => {
            stream.task = FrameTask::Drop;
            warn("it is dropped");
            state.with_snapshot(|snapshot| {
                let stats = &mut snapshot.regions;
                stats.frames_dropped += 1;
                (stats.last_regions, stats.last_covered_area) = (0, 0.0);
            });
            if regions.post_messages {
                post_message(element, region_message::structure(times, regions, None));
            }
        }
        FrameRegions::Error => stream.pending_error = Some(FrameFailure::NoDetection),
        covered => {
            let cover = FrameCover::new(regions, stream.options, covered, decision.is_missing, &format);
            warn(match cover.covered() {
                "nothing" => "it is not covered",
                "partly" => "it is covered in part",
                _ => "it is covered as a whole",
            });
            reporting::warn(element, stream.notices.of_cover(settings, &cover));
            let message = regions.post_messages.then(|| region_message::structure(times, regions, Some(&cover)));
            stream.task = FrameTask::Cover(cover, message);
        }
    }
}

/// Warns of the first frame without readable detector metas.
fn warn_of_missing(element: &gst_base::BaseTransform, is_unreadable: bool, consequence: &str, times: &MessageTimes) {
    let time = times.timestamp.map_or("without a timestamp".to_owned(), |time| format!("at {time}"));
    let (cause, cure) = if is_unreadable {
        (
            "has detector metas that cannot be read (a segmentation without a detection, or libgstanalytics-1.0.so.0 is \
             missing)",
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

fn times(element: &gst_base::BaseTransform, buffer: &gst::BufferRef) -> MessageTimes {
    let segment = element.segment();
    let segment = segment.downcast_ref::<gst::ClockTime>();
    let timestamp = buffer.pts();
    MessageTimes {
        timestamp,
        stream_time: segment.and_then(|segment| segment.to_stream_time(timestamp)),
        running_time: segment.and_then(|segment| segment.to_running_time(timestamp)),
        duration: buffer.duration(),
    }
}

/// The stream-time interval of a frame. Both ends are converted, because an applied rate scales and reverses time. `None` if
/// its time is not known.
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
    let to = duration.and_then(|duration| stream_time(timestamp.checked_add(duration)?)).unwrap_or(from);
    // In reverse a frame is shown from its own time on too, which is then the last of the interval.
    Some(if to < from { (to + 1, from + 1) } else { (from, to) })
}

fn post_message(element: &gst_base::BaseTransform, structure: gst::Structure) {
    let _ = element.post_message(gst::message::Element::builder(structure).src(element).build());
}

/// Covers a frame: in its own memory if that is writable and downstream can read it, else in a copy. A frame of which
/// nothing is covered is returned as it is.
pub fn cover(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    stream: &mut Stream,
    input: gst::Buffer,
    allocate_output: impl FnOnce(&gst::BufferRef) -> Result<gst::Buffer, gst::FlowError>,
) -> Result<gst::Buffer, gst::FlowError> {
    let FrameTask::Cover(cover, message) = std::mem::replace(&mut stream.task, FrameTask::Blur) else {
        return Err(gst::FlowError::Error);
    };
    let fail = |failure: FrameFailure| reporting::post_failure(element, &failure);
    let can_hand_on = stream.can_hand_on(&input);
    let is_untouched = can_hand_on && cover.cover.is_empty();
    let is_in_place = can_hand_on && !is_untouched && input.is_writable() && input.is_all_memory_writable();
    if let Cover::Blur(_) = cover.cover
        && !is_untouched
    {
        stream.note_sighting(&input, element.as_ptr() as usize);
    }
    let output = if is_untouched {
        input
    } else if is_in_place {
        cover_in_place(element, state, stream, &cover, input, Side::Input)?
    } else {
        let output = allocate_output(&input)?;
        let format = stream.format.clone().ok_or(gst::FlowError::NotNegotiated)?;
        let on_device = stream.engine.active() == Backend::Cuda;
        let frames = VideoFramePair::map(input, output, format, on_device).map_err(|error| fail(error.into()))?;
        if frames.is_same_memory() {
            cover_copy(element, state, stream, &cover, frames)?
        } else {
            let output = transfer(element, state, stream, frames)?;
            cover_in_place(element, state, stream, &cover, output, Side::Output)?
        }
    };
    state.with_snapshot(|snapshot| {
        let stats = &mut snapshot.regions;
        stats.frames_untouched += u64::from(is_untouched);
        stats.frames_in_place += u64::from(is_in_place);
        stats.frames_held += u64::from(cover.has_held());
        stats.last_regions = u32::try_from(cover.regions.len()).unwrap_or(u32::MAX);
        stats.last_covered_area = cover.covered_area;
    });
    if let Some(message) = message {
        post_message(element, message);
    }
    Ok(output)
}

/// Covers a buffer of which the element has the only reference.
fn cover_in_place(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    stream: &mut Stream,
    cover: &FrameCover,
    buffer: gst::Buffer,
    side: Side,
) -> Result<gst::Buffer, gst::FlowError> {
    let fail = |failure: FrameFailure| reporting::post_failure(element, &failure);
    if cover.cover.is_empty() {
        return Ok(buffer);
    }
    let format = stream.format.clone().ok_or(gst::FlowError::NotNegotiated)?;
    let on_device = stream.engine.active() == Backend::Cuda;
    let frame = InPlaceFrame::map(buffer, format, side, on_device).map_err(|error| fail(error.into()))?;
    let completed = stream.engine.cover_frame(&cover.cover, frame).map_err(|error| fail(error.into()))?;
    reporting::warn_of_fallback(element, state, stream, completed.failure);
    Ok(completed.frame.into_output(completed.queued))
}

/// Copies a frame into the output buffer and covers it there.
fn cover_copy(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    stream: &mut Stream,
    cover: &FrameCover,
    frames: VideoFramePair,
) -> Result<gst::Buffer, gst::FlowError> {
    let fail = |failure: FrameFailure| reporting::post_failure(element, &failure);
    let completed = stream.engine.cover_frame(&cover.cover, frames).map_err(|error| fail(error.into()))?;
    reporting::warn_of_fallback(element, state, stream, completed.failure);
    Ok(completed.frame.into_output(completed.queued))
}

/// Uploads or downloads a frame.
fn transfer(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    stream: &mut Stream,
    frames: VideoFramePair,
) -> Result<gst::Buffer, gst::FlowError> {
    let fail = |failure: FrameFailure| reporting::post_failure(element, &failure);
    let completed = stream.engine.transfer(frames).map_err(|error| fail(error.into()))?;
    reporting::warn_of_fallback(element, state, stream, completed.failure);
    Ok(completed.frame.into_output(completed.queued))
}
