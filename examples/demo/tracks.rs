// SPDX-License-Identifier: MPL-2.0
//! Follows detections from frame to frame, and records the spans in which one of them is missing.

use std::cmp::Reverse;

use gst::ClockTime;

use super::coverage::Rect;
use super::pictures::Pair;

/// Most spans that a report lists.
const MAX_LISTED: usize = 10;

/// A detection that is attached to a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Detection {
    pub label: String,
    pub rect: Rect,
}

impl Detection {
    /// Those that a detector attached to the frame.
    pub fn attached(buffer: &gst::BufferRef) -> Vec<Self> {
        let metas = buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>();
        let detections = metas.map(|meta| {
            let (x, y, width, height) = meta.rect();
            let [x, y, width, height] = [x, y, width, height].map(|samples| samples as usize);
            Self { label: meta.roi_type().to_string(), rect: Rect { x, y, width, height } }
        });
        detections.collect()
    }

    /// How well `next` continues this one: its intersection over union, and the distance of the centres for those that do
    /// not overlap. `None` if the label differs or the centres are more than the size of the larger box apart.
    fn closeness(&self, next: &Self) -> Option<(f64, Reverse<usize>)> {
        let (a, b) = (self.rect, next.rect);
        let [dx, dy] =
            [(a.x, a.width, b.x, b.width), (a.y, a.height, b.y, b.height)].map(|(start, size, next, next_size)| {
                let distance = (2 * start + size).abs_diff(2 * next + next_size);
                (distance, distance <= 2 * size.max(next_size))
            });
        let is_near = self.label == next.label && dx.1 && dy.1;
        is_near.then(|| (a.iou(b), Reverse(dx.0 + dy.0)))
    }
}

/// The latest place of a detected object.
struct Track {
    latest: Detection,
    /// When it was last detected.
    detected: ClockTime,
    /// Index of the span in which it is missing, if it is.
    missing: Option<usize>,
}

/// From the first frame without an object to the frame in which it is back; `None` if it is not.
struct Span {
    from: ClockTime,
    to: Option<ClockTime>,
}

/// The detections of a clip.
///
/// A box continues an earlier one with the same label if their centres are at most the size of the larger box apart: the
/// largest IoU first, each box one other at most. An object without such a box vanishes, and stays missing until a box
/// continues its last one. This ends a span no later than the element's hold, which demands an IoU of 1/3, so that the
/// element covers every missing object that is within its hold time.
#[derive(Default)]
pub struct Tracks {
    /// Those of the latest frame first, then those that are missing.
    tracks: Vec<Track>,
    vanished: Vec<Span>,
    /// Boxes in the latest frame, in all frames, and the frames without one.
    pub latest: usize,
    pub detections: u64,
    pub empty_frames: u64,
}

impl Tracks {
    /// Adds the next frame.
    pub fn update(&mut self, pair: &Pair) {
        let found = pair.raw.buffer().map(Detection::attached).unwrap_or_default();
        self.latest = found.len();
        self.detections += found.len() as u64;
        self.empty_frames += u64::from(found.is_empty());

        let mut pairs = Vec::new();
        for (i, track) in self.tracks.iter().enumerate() {
            let near = found.iter().enumerate().filter_map(|(j, next)| Some((track.latest.closeness(next)?, i, j)));
            pairs.extend(near);
        }
        // A stable sort, so that equal overlaps are resolved in the order of the lists, as in the element.
        pairs.sort_by(|(one, ..), (other, ..)| other.0.total_cmp(&one.0).then(other.1.cmp(&one.1)));
        let mut is_new = vec![true; found.len()];
        let mut is_continued = vec![false; self.tracks.len()];
        for (_, i, j) in pairs {
            if is_new[j] && !is_continued[i] {
                (is_new[j], is_continued[i]) = (false, true);
                if let Some(span) = self.tracks[i].missing {
                    self.vanished[span].to = Some(pair.time);
                }
            }
        }
        let mut is_continued = is_continued.into_iter();
        self.tracks.retain(|_| !is_continued.next().unwrap_or(false));
        for track in &mut self.tracks {
            track.missing.get_or_insert_with(|| {
                self.vanished.push(Span { from: pair.time, to: None });
                self.vanished.len() - 1
            });
        }
        let found = found.into_iter().map(|latest| Track { latest, detected: pair.time, missing: None });
        self.tracks.splice(..0, found);
    }

    /// The boxes of the latest frame.
    pub fn found(&self) -> impl Iterator<Item = &Detection> {
        self.tracks[..self.latest].iter().map(|track| &track.latest)
    }

    /// The last boxes of the objects that are missing in the latest frame, and when each was detected.
    pub fn missing(&self) -> impl Iterator<Item = (&Detection, ClockTime)> {
        self.tracks[self.latest..].iter().map(|track| (&track.latest, track.detected))
    }

    /// Whether a box vanished.
    pub fn have_vanished(&self) -> bool {
        !self.vanished.is_empty()
    }

    /// How often boxes vanished, and when.
    pub fn summary(&self) -> String {
        let count = match self.vanished.len() {
            0 => return "boxes never vanished".into(),
            1 => "1 time".into(),
            count => format!("{count} times"),
        };
        let mut spans: Vec<_> = self.vanished.iter().map(Span::tenths).collect();
        spans.sort_by_key(|(from, to)| (*from, to.unwrap_or(u64::MAX)));
        let same: Vec<_> = spans.chunk_by(|one, next| one == next).collect();
        let mut listed: Vec<String> = same.iter().take(MAX_LISTED).map(|boxes| sentence(boxes)).collect();
        if let Some(more @ 1..) = same.len().checked_sub(MAX_LISTED) {
            listed.push(format!("and {more} more"));
        }
        format!("boxes vanished {count}: {}", listed.join(", "))
    }
}

impl Span {
    /// In tenths of a second, rounded outwards.
    fn tenths(&self) -> (u64, Option<u64>) {
        const TENTH: u64 = 100_000_000;
        (self.from.nseconds() / TENTH, self.to.map(|to| to.nseconds().div_ceil(TENTH)))
    }
}

/// A span in which one or more boxes are missing.
fn sentence(boxes: &[(u64, Option<u64>)]) -> String {
    let seconds = |tenths: u64| format!("{}.{} s", tenths / 10, tenths % 10);
    let (from, to) = boxes[0];
    let to = to.map_or("the end".into(), seconds);
    let count = if boxes.len() > 1 { format!(" ({} boxes)", boxes.len()) } else { String::new() };
    format!("{} to {to}{count}", seconds(from))
}
