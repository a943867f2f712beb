// SPDX-License-Identifier: MPL-2.0
//! Quality of service: downstream says by QOS events which frames come too late, and the element drops those when it decides about
//! frames. The base class would compare that time with the frame that enters, `look-ahead` frames too early.

use gst::prelude::*;

use super::published_state::{Qos, signed};
use super::state::SharedState;
use crate::regions::clock::FrameTimes;

/// Whether a frame is dropped because downstream says that it is late. Posts a message then, and counts it.
pub fn is_late(state: &SharedState, times: &FrameTimes) -> bool {
    let (published, element) = (state.published(), state.element());
    let Qos { earliest, proportion } = published.qos;
    let late_by = times.running.zip(earliest).map(|(running, earliest)| earliest.saturating_sub(signed(running)));
    let Some(late_by) = late_by.filter(|late_by| *late_by >= 0 && element.property::<bool>("qos")) else {
        return false;
    };
    let late = state.publish(|published| {
        published.frames_late += 1;
        published.frames_late
    });
    let [running, stream, timestamp, duration] = [times.running, times.stream, times.timestamp, times.duration]
        .map(|time| time.map(gst::ClockTime::from_nseconds));
    let message = gst::message::Qos::builder(published.asked.is_some())
        .running_time(running)
        .stream_time(stream)
        .timestamp(timestamp)
        .duration(duration)
        .values(late_by, proportion, 1_000_000)
        .stats(gst::format::Buffers::from_u64(published.frames), gst::format::Buffers::from_u64(late));
    let _ = element.post_message(message.src(&*element).build());
    true
}
