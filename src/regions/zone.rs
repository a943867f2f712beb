// SPDX-License-Identifier: MPL-2.0
//! Zones: fixed places in the picture.

use crate::filter::regions::Area;

/// A rectangle at a fixed place, all the time or for a part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    /// The left edge, as a fraction of the picture's width.
    pub x: f64,
    /// The upper edge, as a fraction of the picture's height.
    pub y: f64,
    /// As a fraction of the picture's width.
    pub width: f64,
    /// As a fraction of the picture's height.
    pub height: f64,
    /// The stream time, in nanoseconds, at which it starts.
    pub start: Option<u64>,
    /// The stream time, in nanoseconds, before which it ends.
    pub end: Option<u64>,
    /// The name of the zone in messages. Several zones may have the same name.
    pub name: Option<String>,
}

/// The stream times, in nanoseconds, between which a frame is shown. They are negative before the segment's first
/// stream time. If the frame's duration is unknown, the end is `i128::MAX`; in reverse playback the beginning is next
/// to `i128::MIN`.
pub type StreamSpan = (i128, i128);

impl Zone {
    /// Its place in a frame of `size` (width, height). The part beyond the picture is not covered.
    pub fn area(&self, size: (u32, u32)) -> Area {
        let (width, height) = (f64::from(size.0), f64::from(size.1));
        Area::from_corner(self.x * width, self.y * height, self.width * width, self.height * height)
    }

    /// Whether it counts in a frame with this `span`; `None` if the span is unknown.
    ///
    /// In doubt the picture is covered. So a covered zone counts in every frame that overlaps its time, and in every
    /// frame without a time. A shown zone (`is_shown`) counts only in frames that lie wholly within its time.
    pub fn is_active(&self, span: Option<StreamSpan>, is_shown: bool) -> bool {
        let [start, end] = [self.start, self.end].map(|time| time.map(i128::from));
        match span {
            None => !is_shown || (start, end) == (None, None),
            Some((from, to)) if is_shown => {
                start.is_none_or(|start| start <= from) && end.is_none_or(|end| to <= end && from < end)
            }
            Some((from, to)) => start.is_none_or(|start| start < to.max(from + 1)) && end.is_none_or(|end| from < end),
        }
    }
}
