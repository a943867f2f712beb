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
    /// What messages call it. Several zones may have the same name.
    pub name: Option<String>,
}

/// The time of a frame: the stream times, in nanoseconds, from which on and before which it is shown. Before the segment's first
/// stream time they are negative. Of a frame of unknown duration the end is `i128::MAX`; in reverse the beginning is next to
/// `i128::MIN`.
pub type StreamSpan = (i128, i128);

impl Zone {
    /// Its place in a frame of `size` (width, height). What reaches beyond the picture is not covered.
    pub fn area(&self, size: (u32, u32)) -> Area {
        let (width, height) = (f64::from(size.0), f64::from(size.1));
        Area::from_corner(self.x * width, self.y * height, self.width * width, self.height * height)
    }

    /// Whether it counts in a frame that lasts for `span`, `None` if that is not known.
    ///
    /// What is doubtful is covered: a zone that is covered counts in every frame that shares some time with it, and without
    /// a time in all; one that is shown (`is_shown`), in the frames that are wholly within it.
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
