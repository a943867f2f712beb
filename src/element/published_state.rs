// SPDX-License-Identifier: MPL-2.0
//! Values that applications can read at any time, while the streaming thread works on a frame.

use std::time::Duration;

use super::settings::Backend;
use crate::engine::Stats;

/// Counters of frames of which parts are covered, and what was covered in the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RegionStats {
    /// Frames without anything to cover, which were pushed as they came.
    pub frames_untouched: u64,
    /// Frames that were covered in the memory of the input buffer.
    pub frames_in_place: u64,
    /// Frames with an object that was not detected in them, but before; before and after; after.
    pub frames_predicted: u64,
    pub frames_bridged: u64,
    pub frames_anticipated: u64,
    /// Frames that were covered as a whole because an object was lost.
    pub frames_lost: u64,
    /// Frames without readable detector metas, although the stream had some before, or on-missing is cover, drop or error, or is
    /// auto with region-mode=outside.
    pub frames_missing: u64,
    /// Frames that on-missing=drop dropped.
    pub frames_dropped: u64,
    /// Frames of a live stream that left in time, before `look-ahead` later frames had come.
    pub frames_shortened: u64,
    /// Frames that were copied as they entered, because upstream may have no other buffer.
    pub frames_copied: u64,
    /// Regions of the last frame.
    pub last_regions: u32,
    /// The part of the last frame that is covered, 0 to 1.
    pub last_covered_area: f64,
}

/// What the latest QOS event says.
#[derive(Debug, Clone, Copy)]
pub struct Qos {
    /// Frames up to this running time are late, in nanoseconds.
    pub earliest: Option<i64>,
    /// The time that downstream takes for a frame over the time that it has.
    pub proportion: f64,
}

impl Default for Qos {
    fn default() -> Self {
        Self { earliest: None, proportion: 1.0 }
    }
}

impl Qos {
    /// What this event says.
    pub fn new(event: &gst::event::Qos) -> Self {
        let (_, proportion, difference, timestamp) = event.get();
        let earliest = timestamp.map(|time| signed(time.nseconds()).saturating_add(difference));
        Self { earliest, proportion }
    }
}

/// A time in nanoseconds with a sign.
pub fn signed(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// Copies of the values behind the read-only properties, and of the latency. The streaming thread updates them after
/// every frame.
#[derive(Clone, Copy, Default)]
pub struct PublishedState {
    /// `active-backend`.
    pub active: Backend,
    /// The engine's part of `stats`.
    pub stats: Stats,
    /// Frames that were pushed, and those of them that passed through unchanged because nothing blurs them.
    pub frames: u64,
    pub frames_passthrough: u64,
    /// Frames that were dropped because downstream said that they are late.
    pub frames_late: u64,
    /// What was covered.
    pub regions: RegionStats,
    /// What downstream said of late frames.
    pub qos: Qos,
    /// The time that a frame may be held back, and the running time since which it is so long.
    pub latency: gst::ClockTime,
    pub latency_since: Option<gst::ClockTime>,
    /// The least latency of upstream and the latency of the element, if the stream is live, by the last query.
    pub asked: Option<[gst::ClockTime; 2]>,
}

/// The time in which an application answers a LATENCY message by a query.
const ANSWER_TIME: gst::ClockTime = gst::ClockTime::SECOND;

impl PublishedState {
    /// The latency that downstream counts on: the present one, or the one of the last query if the application does not ask again. A
    /// query before the latency was known does not count, because nobody wants frames that are covered without `look-ahead` then.
    pub fn promised_latency(&self, now: Option<gst::ClockTime>) -> gst::ClockTime {
        let since = self.latency_since.zip(now);
        let is_ignored = since.is_some_and(|(since, now)| now >= since.saturating_add(ANSWER_TIME));
        match self.asked {
            Some([_, own]) if is_ignored && !own.is_zero() => own.min(self.latency),
            _ => self.latency,
        }
    }

    /// The value of `stats`.
    pub fn to_structure(self) -> gst::Structure {
        let Self { stats, frames, frames_passthrough, frames_late, regions, .. } = self;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut structure = gst::Structure::builder("application/x-cudagaussblur-stats")
            .field("frames", frames)
            .field("frames-cuda", stats.frames_cuda)
            .field("frames-cpu", stats.frames_cpu)
            .field("frames-passthrough", frames_passthrough)
            .field("frames-late", frames_late)
            .field("frames-untouched", regions.frames_untouched)
            .field("frames-in-place", regions.frames_in_place)
            .field("frames-predicted", regions.frames_predicted)
            .field("frames-bridged", regions.frames_bridged)
            .field("frames-anticipated", regions.frames_anticipated)
            .field("frames-lost", regions.frames_lost)
            .field("frames-missing", regions.frames_missing)
            .field("frames-dropped", regions.frames_dropped)
            .field("frames-shortened", regions.frames_shortened)
            .field("frames-copied", regions.frames_copied)
            .field("regions", regions.last_regions)
            .field("covered-area", regions.last_covered_area)
            .field("frames-on-device", stats.frames_on_device)
            .field("frames-pinned-in", stats.frames_pinned[0])
            .field("frames-pinned-out", stats.frames_pinned[1])
            .field("frames-abandoned", stats.frames_abandoned)
            .field("bytes-copied", stats.bytes_copied)
            .field("compiling", stats.jit.compiling)
            .field("compile-last-ns", stats.jit.last.map_or(0, nanoseconds))
            .field("kernel-since", stats.kernel_since)
            .field("kernel", if stats.kernel_name.is_empty() { "none" } else { stats.kernel_name })
            .field("form", if stats.form.is_empty() { "none" } else { stats.form });
        for (stage, time) in [("upload", stats.upload), ("kernel", stats.kernel), ("download", stats.download)] {
            structure = structure
                .field(format!("{stage}-last-ns"), nanoseconds(time.last))
                .field(format!("{stage}-mean-ns"), nanoseconds(time.mean()));
        }
        structure.build()
    }
}
