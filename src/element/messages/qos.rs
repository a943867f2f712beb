// SPDX-License-Identifier: MPL-2.0
//! Quality of service: QOS events of downstream say which frames come too late. The element drops these frames when it
//! decides about them. The base class would compare the time of the event with the frame that enters, `look-ahead`
//! frames too early.

use crate::regions::clock::FrameTimes;

/// The content of the latest QOS event.
#[derive(Debug, Clone, Copy)]
pub struct Qos {
    /// Frames up to this running time are late, in nanoseconds.
    earliest: Option<i64>,
    /// The time that downstream takes for a frame divided by the time that it has.
    proportion: f64,
}

impl Default for Qos {
    fn default() -> Self {
        Self { earliest: None, proportion: 1.0 }
    }
}

impl Qos {
    /// The content of this event.
    pub fn new(event: &gst::event::Qos) -> Self {
        let (_, proportion, difference, timestamp) = event.get();
        let earliest = timestamp.map(|time| signed(time.nseconds()).saturating_add(difference));
        Self { earliest, proportion }
    }

    /// By how many nanoseconds a frame of these times is late; `None` if it is not.
    pub fn late_by(&self, times: &FrameTimes) -> Option<i64> {
        let late_by = self.earliest?.saturating_sub(signed(times.running?));
        (late_by >= 0).then_some(late_by)
    }
}

/// A time in nanoseconds with a sign.
fn signed(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// The message about a frame that is dropped as late.
pub fn message(times: &FrameTimes, late_by: i64, qos: Qos, is_live: bool) -> gst::message::QosBuilder<'static> {
    let [running, stream, timestamp, duration] = [times.running, times.stream, times.timestamp, times.duration]
        .map(|time| time.map(gst::ClockTime::from_nseconds));
    gst::message::Qos::builder(is_live)
        .running_time(running)
        .stream_time(stream)
        .timestamp(timestamp)
        .duration(duration)
        .values(late_by, qos.proportion, 1_000_000)
}
