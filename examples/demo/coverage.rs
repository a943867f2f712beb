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
}

/// The result of all checks so far.
#[derive(Default)]
pub struct Coverage {
    /// Frames that left the last cover.
    pub frames: u64,
    /// Places that were checked.
    pub marked: u64,
    /// Pixels of the frames with places, and those of them that are as before.
    pub pixels: u64,
    pub unchanged: u64,
    /// Places that were not covered, and frames that could not be checked.
    pub failures: u64,
    /// The first of them, as a sentence.
    pub first_failure: Option<String>,
}

impl Coverage {
    /// Checks one frame.
    pub fn check(&mut self, pair: &Pair, marked: &[Marked]) {
        if marked.is_empty() {
            return;
        }
        let (Some(raw), Some(covered)) = (Pixels::new(&pair.raw), Pixels::new(&pair.covered)) else {
            self.fail("a frame cannot be read".into());
            return;
        };
        self.pixels += (raw.width * raw.height) as u64;
        self.unchanged += raw.unchanged(&covered);
        for place in marked {
            self.marked += 1;
            if let Some(reason) = uncovered(&raw, &covered, place.rect, place.cover) {
                let (label, seconds) = (&place.label, pair.time.seconds_f64());
                self.fail(format!("{label} at {seconds:.2} s is not covered by {}: {reason}", place.cover.nick()));
            }
        }
    }

    /// Checks one frame that is blurred as a whole, by a filter whose largest tap is this share.
    pub fn check_blur(&mut self, pair: &Pair, largest_tap: f64) {
        let Some(blurred) = Pixels::new(&pair.covered) else {
            self.fail("a frame cannot be read".into());
            return;
        };
        self.marked += 1;
        let sharp = sharp_steps(&blurred, [0; 2], [blurred.width, blurred.height], largest_step(largest_tap));
        if sharp > 0.0 {
            let (seconds, percent) = (pair.time.seconds_f64(), sharp * 100.0);
            self.fail(format!(
                "the frame at {seconds:.2} s: {percent:.1} % of the steps from pixel to pixel are too sharp"
            ));
        }
    }

    /// How much of the frames with marked places was covered, as a sentence.
    pub fn changed(&self) -> String {
        let percent = (self.pixels - self.unchanged) as f64 * 100.0 / self.pixels.max(1) as f64;
        format!("the covers changed {percent:.1} % of the picture, on average over the frames that have some")
    }

    /// The first failure, if there is one, as the error.
    pub fn verdict(&self) -> Result<(), String> {
        match &self.first_failure {
            None => Ok(()),
            Some(first) => {
                let places = if self.marked > 0 { format!("{} places in ", self.marked) } else { String::new() };
                let (failures, frames) = (self.failures, self.frames);
                Err(format!(
                    "{failures} of {places}{frames} frames failed the check, so nothing was written; the first: {first}"
                ))
            }
        }
    }

    pub fn fail(&mut self, sentence: String) {
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

    /// The number of pixels that are the same in both.
    fn unchanged(&self, other: &Self) -> u64 {
        self.bytes
            .as_chunks::<3>()
            .0
            .iter()
            .zip(other.bytes.as_chunks::<3>().0)
            .filter(|(one, other)| one == other)
            .count() as u64
    }

    fn pixel(&self, x: usize, y: usize) -> &[u8] {
        &self.bytes[(y * self.width + x) * 3..][..3]
    }
}

/// The side of the blocks in which frames are compared.
const BLOCK: usize = 8;
/// The least difference between two values of a channel that makes a block one with detail.
const DETAIL: u8 = 32;
/// The defaults of `strength` and `cells`.
const STRENGTH: f64 = 0.25;
const CELLS: f64 = 6.0;

/// What is wrong with `rect`; `None` if it is covered.
///
/// A fill is black, every pixel of it. Of a blur or mosaic, each block must differ from the original where that has
/// detail, and the whole must be as coarse as the cover is: see [`sharp_steps`].
fn uncovered(raw: &Pixels, covered: &Pixels, rect: Rect, cover: Cover) -> Option<String> {
    if (raw.width, raw.height) != (covered.width, covered.height) {
        return Some("the frames differ in size".into());
    }
    let [right, bottom] = [(rect.x + rect.width).min(raw.width), (rect.y + rect.height).min(raw.height)];
    let side = if cover == Cover::Fill { 1 } else { BLOCK };
    for y in (rect.y..bottom).step_by(side) {
        for x in (rect.x..right).step_by(side) {
            let is_covered = match cover {
                Cover::Fill => covered.pixel(x, y) == [0; 3],
                _ => is_changed(raw, covered, [x, y], [(x + side).min(right), (y + side).min(bottom)]),
            };
            if !is_covered {
                return Some(format!("the picture shows at {x},{y}"));
            }
        }
    }
    let short_side = rect.width.min(rect.height) as f64;
    // The cells are at least this large, so that not more than one of `cell` steps crosses an edge between two. The doubled and
    // the added share are for edges of other objects' covers.
    let (step, share) = match cover {
        Cover::Fill => return None,
        Cover::Mosaic => (0, 2.0 * CELLS / short_side),
        Cover::Blur => (largest_step(largest_tap(STRENGTH * short_side, 0)), 0.05),
    };
    let sharp = sharp_steps(covered, [rect.x, rect.y], [right, bottom], step);
    (sharp > share).then(|| format!("{:.0} % of the steps from pixel to pixel are too sharp", sharp * 100.0))
}

/// The largest tap of a Gaussian with this many taps, of which 0 are as many as it has.
pub fn largest_tap(sigma: f64, kernel_size: u32) -> f64 {
    let radius = if kernel_size > 0 { kernel_size / 2 } else { (4.0 * sigma).ceil() as u32 };
    let others = (1..=radius).map(|i| (-0.5 * (f64::from(i) / sigma).powi(2)).exp()).sum::<f64>();
    1.0 / (1.0 + 2.0 * others)
}

/// How much two neighbours may differ behind a filter: by less than 255 times its largest tap, and rounding adds 1.
fn largest_step(largest_tap: f64) -> u8 {
    ((255.0 * largest_tap).ceil() + 1.0).min(255.0) as u8
}

/// Whether at least a quarter of a block's pixels differ from the original, or the others have no detail: they may have the
/// colour of the cover by chance.
fn is_changed(raw: &Pixels, covered: &Pixels, [left, top]: [usize; 2], [right, bottom]: [usize; 2]) -> bool {
    let block = || (top..bottom).flat_map(move |y| (left..right).map(move |x| (x, y)));
    let unchanged = || block().filter(|(x, y)| raw.pixel(*x, *y) == covered.pixel(*x, *y));
    let range = |channel| {
        let values = || unchanged().map(|(x, y)| raw.pixel(x, y)[channel]);
        values().max().unwrap_or(0) - values().min().unwrap_or(0)
    };
    unchanged().count() * 4 <= block().count() * 3 || (0..3).all(|channel| range(channel) < DETAIL)
}

/// The share of pixels that differ from their right neighbour by more than `step` in a channel.
fn sharp_steps(covered: &Pixels, [left, top]: [usize; 2], [right, bottom]: [usize; 2], step: u8) -> f64 {
    let pairs = (top..bottom).flat_map(|y| (left + 1..right).map(move |x| (x, y)));
    let (mut count, mut sharp) = (0_u32, 0_u32);
    for (x, y) in pairs {
        let (one, other) = (covered.pixel(x - 1, y), covered.pixel(x, y));
        count += 1;
        sharp += u32::from(one.iter().zip(other).any(|(one, other)| one.abs_diff(*other) > step));
    }
    f64::from(sharp) / f64::from(count.max(1))
}
