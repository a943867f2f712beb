// SPDX-License-Identifier: MPL-2.0
//! Values that applications can read at any time, while the streaming thread works on a frame.

use std::time::Duration;

use super::qos::Qos;
use crate::element::cover::FrameCover;
use crate::element::latency::Latency;
use crate::element::properties::settings::Backend;
use crate::engine::Stats;
use crate::regions::tracks::Evidence;

/// Counters of frames with regions, and the cover of the last frame.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RegionStats {
    /// Frames with nothing to cover, which were pushed unchanged.
    pub frames_untouched: u64,
    /// Frames that were covered in the memory of the input buffer.
    pub frames_in_place: u64,
    /// Frames with an object that was not detected in them, but in frames before; before and after; after.
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
    /// Frames of a live stream that left at the promised time, before `look-ahead` later frames had come.
    pub frames_shortened: u64,
    /// Frames that were copied as they entered, because upstream may have no other buffer.
    pub frames_copied: u64,
    /// Regions of the last frame.
    pub last_regions: u32,
    /// The share of the last frame that is covered, 0 to 1.
    pub last_covered_area: f64,
}

impl RegionStats {
    /// Counts a frame with regions. Without a `cover` it was dropped.
    pub fn count(&mut self, cover: Option<&FrameCover>) {
        self.frames_dropped += u64::from(cover.is_none());
        let has = |evidence| u64::from(cover.is_some_and(|cover| cover.has(evidence)));
        self.frames_predicted += has(Evidence::Predicted);
        self.frames_bridged += has(Evidence::Bridged);
        self.frames_anticipated += has(Evidence::Anticipated);
        self.frames_lost += u64::from(cover.is_some_and(|cover| cover.is_lost));
        self.last_regions = cover.map_or(0, |cover| u32::try_from(cover.regions.len()).unwrap_or(u32::MAX));
        self.last_covered_area = cover.map_or(0.0, |cover| cover.covered_area);
    }
}

/// Copies of the values behind the read-only properties, and of the latency. The streaming thread updates them after
/// every frame.
#[derive(Clone, Copy, Default)]
pub struct PublishedState {
    /// `active-backend`.
    pub active: Backend,
    /// The engine's part of `stats`.
    pub stats: Stats,
    /// Frames that were pushed; of these, frames that passed through unchanged because no setting blurs them.
    pub frames: u64,
    pub frames_passthrough: u64,
    /// Frames that were dropped because downstream said that they are late.
    pub frames_late: u64,
    /// Counters and the last cover.
    pub regions: RegionStats,
    /// The latest message of downstream about late frames.
    pub qos: Qos,
    pub latency: Latency,
}

impl PublishedState {
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
            .field("frames-dropped", frames_late + regions.frames_dropped)
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
