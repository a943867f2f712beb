// SPDX-License-Identifier: MPL-2.0
//! Checks in every frame that what is marked is covered.

use gst_video::prelude::*;

use super::options::Cover;
use super::pictures::Pair;

/// A place in pixels of the frame. It may extend beyond the frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rect {
    pub x: usize,
    pub y: usize,
    pub width: usize,
    pub height: usize,
}

/// A place that must be covered.
#[derive(Debug, Clone)]
pub struct Marked {
    pub label: String,
    pub rect: Rect,
    pub cover: Cover,
    /// Whether no detection of this frame marks it, and only `hold-time` keeps it covered.
    pub is_held: bool,
}

/// The detections that are attached to a buffer: the label and the place of each.
pub fn attached(buffer: &gst::BufferRef) -> Vec<(String, Rect)> {
    let metas = buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>();
    let detections = metas.map(|meta| {
        let (x, y, width, height) = meta.rect();
        let [x, y, width, height] = [x, y, width, height].map(|samples| samples as usize);
        (meta.roi_type().to_string(), Rect { x, y, width, height })
    });
    detections.collect()
}

/// The result of all checks so far.
#[derive(Default)]
pub struct Coverage {
    /// Frames that left the last cover.
    pub frames: u64,
    /// Places that were checked and are marked in their frame.
    pub marked: u64,
    /// Places that were checked and are held.
    pub held: u64,
    /// Places that were not covered, and frames that could not be checked.
    pub failures: u64,
    /// The first of them, as a sentence.
    pub first_failure: Option<String>,
}

impl Coverage {
    /// Checks one frame. `None` is a frame whose original is unknown.
    pub fn check(&mut self, pair: Option<&Pair>, marked: &[Marked]) {
        self.frames += 1;
        let Some(pair) = pair else {
            self.fail("a frame left the element that did not enter it".into());
            return;
        };
        if marked.is_empty() {
            return;
        }
        let (Some(raw), Some(covered)) = (Pixels::new(&pair.raw), Pixels::new(&pair.covered)) else {
            self.fail("a frame cannot be read".into());
            return;
        };
        for place in marked {
            *if place.is_held { &mut self.held } else { &mut self.marked } += 1;
            if let Some((x, y)) = first_uncovered(&raw, &covered, place.rect, place.cover) {
                let at = pair.pts().map_or_else(String::new, |pts| format!(" at {:.2} s", pts.seconds_f64()));
                self.fail(format!("{}{at} is not covered by {} at {x},{y}", place.label, place.cover.nick()));
            }
        }
    }

    /// The report, or the first failure.
    pub fn verdict(&self, report: String) -> Result<String, String> {
        match &self.first_failure {
            None => Ok(report),
            Some(first) => Err(format!(
                "{} of {} places in {} frames failed the check, so the clip was removed; the first: {first}",
                self.failures,
                self.marked + self.held,
                self.frames
            )),
        }
    }

    fn fail(&mut self, sentence: String) {
        self.failures += 1;
        self.first_failure.get_or_insert(sentence);
    }
}

/// Red, green and blue of a frame of one packed plane of 8 bits, row by row.
struct Pixels {
    bytes: Vec<u8>,
    width: usize,
    height: usize,
}

impl Pixels {
    fn new(sample: &gst::Sample) -> Option<Self> {
        let info = gst_video::VideoInfo::from_caps(sample.caps()?).ok()?;
        let frame = gst_video::VideoFrameRef::from_buffer_ref_readable(sample.buffer()?, &info).ok()?;
        let (width, height) = (frame.width() as usize, frame.height() as usize);
        let (stride, step) = (frame.plane_stride()[0] as usize, frame.comp_pstride(0) as usize);
        let rows = frame.plane_data(0).ok()?.chunks(stride).take(height);
        // The demo asks for RGB and RGBx, whose first three bytes are red, green and blue.
        let bytes = rows.flat_map(|row| row.chunks(step).take(width).flat_map(|pixel| pixel[..3].iter().copied()));
        Some(Self { bytes: bytes.collect(), width, height })
    }

    fn pixel(&self, x: usize, y: usize) -> &[u8] {
        &self.bytes[(y * self.width + x) * 3..][..3]
    }
}

/// The side of the blocks in which [`first_uncovered`] compares the frames.
const BLOCK: usize = 8;
/// The least difference between two values of a channel that makes a block one with detail.
const DETAIL: u8 = 32;

/// The first pixel of `rect` that is not covered.
///
/// A fill is black, every pixel of it. Blur and mosaic are compared with the original in blocks: where it has detail, at
/// least a quarter of the pixels must differ from it. The others may have the colour of the cover by chance, and where the
/// original is flat, its cover is the same.
fn first_uncovered(raw: &Pixels, covered: &Pixels, rect: Rect, cover: Cover) -> Option<(usize, usize)> {
    if (raw.width, raw.height) != (covered.width, covered.height) {
        return Some((rect.x, rect.y));
    }
    let right = (rect.x + rect.width).min(raw.width);
    let bottom = (rect.y + rect.height).min(raw.height);
    let side = if cover == Cover::Fill { 1 } else { BLOCK };
    for y in (rect.y..bottom).step_by(side) {
        for x in (rect.x..right).step_by(side) {
            let block = || {
                let columns = x..(x + side).min(right);
                (y..(y + side).min(bottom)).flat_map(move |y| columns.clone().map(move |x| (x, y)))
            };
            let is_covered = if cover == Cover::Fill {
                covered.pixel(x, y) == [0; 3]
            } else {
                let changed = block().filter(|(x, y)| raw.pixel(*x, *y) != covered.pixel(*x, *y)).count();
                let range = |channel| {
                    let (low, high) = block().fold((u8::MAX, 0), |(low, high), (x, y)| {
                        let value: u8 = raw.pixel(x, y)[channel];
                        (low.min(value), high.max(value))
                    });
                    high - low
                };
                changed * 4 >= block().count() || (0..3).all(|channel| range(channel) < DETAIL)
            };
            if !is_covered {
                return Some((x, y));
            }
        }
    }
    None
}
