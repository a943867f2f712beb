// SPDX-License-Identifier: MPL-2.0
//! Checks in every frame that what is marked is covered.

use super::clip::{FPS, FRAMES, Frame};

/// A place in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rect {
    pub x: usize,
    pub y: usize,
    pub width: usize,
    pub height: usize,
}

/// What hides a place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cover {
    Blur,
    Mosaic,
    Fill,
    /// A blur with this σ and kernel size, also of places that it does not hide.
    Plain(f64, u32),
    /// Nothing: the place is shown.
    Nothing,
}

/// A place that must be covered.
pub struct Marked {
    pub label: &'static str,
    pub rect: Rect,
    pub cover: Cover,
}

/// The result of all checks so far.
#[derive(Default)]
pub struct Coverage {
    frames: usize,
    /// Places that were checked, and those that failed, the first of them as a sentence.
    marked: usize,
    failures: usize,
    first_failure: Option<String>,
}

impl Coverage {
    /// Checks one frame.
    pub fn check(&mut self, index: usize, raw: &Frame, covered: &Frame, marked: &[Marked]) {
        self.frames += 1;
        for Marked { label, rect, cover } in marked {
            self.marked += 1;
            if let Some(reason) = failure(raw, covered, *rect, *cover) {
                self.failures += 1;
                let seconds = index as f64 / FPS as f64;
                self.first_failure.get_or_insert_with(|| format!("{label} at {seconds:.2} s, {cover:?}: {reason}"));
            }
        }
    }

    /// What was checked, or the first failure as the error.
    pub fn verdict(&self) -> Result<String, String> {
        let Self { frames, marked, failures, first_failure } = self;
        match first_failure {
            _ if *frames != FRAMES => Err(format!("{frames} of {FRAMES} frames came through")),
            None => Ok(format!("checked {frames} frames with {marked} marked places; ")),
            Some(first) => Err(format!(
                "{failures} of {marked} places failed the check, so nothing was written; the first: {first}"
            )),
        }
    }
}

/// The side of the blocks in which frames are compared.
const BLOCK: usize = 8;
/// The least difference between two values of a channel that makes a block one with detail.
const DETAIL: u8 = 32;
/// The defaults of `strength` and `cells`.
const STRENGTH: f64 = 0.25;
const CELLS: f64 = 6.0;

/// What is wrong with a place; `None` if it is covered.
///
/// A fill is black, every pixel of it. Of a blur or mosaic, each block must differ from the original where that has
/// detail, and the whole must be as coarse as the cover is: see [`sharp_steps`].
fn failure(raw: &Frame, covered: &Frame, rect: Rect, cover: Cover) -> Option<String> {
    let [right, bottom] = [(rect.x + rect.width).min(raw.width), (rect.y + rect.height).min(raw.height)];
    let side = if matches!(cover, Cover::Fill | Cover::Nothing) { 1 } else { BLOCK };
    for y in (rect.y..bottom).step_by(side) {
        for x in (rect.x..right).step_by(side) {
            let is_right = match cover {
                Cover::Fill => covered.pixel(x, y) == [0; 3],
                Cover::Nothing => covered.pixel(x, y) == raw.pixel(x, y),
                Cover::Plain(..) => true,
                _ => is_changed(raw, covered, [x, y], [(x + side).min(right), (y + side).min(bottom)]),
            };
            if !is_right {
                return Some(format!("wrong at {x},{y}"));
            }
        }
    }
    let short_side = rect.width.min(rect.height) as f64;
    // The cells are at least this large, so that not more than one of `cell` steps crosses an edge between two. The doubled and
    // the added share are for edges of other objects' covers.
    let (step, share) = match cover {
        Cover::Fill | Cover::Nothing => return None,
        Cover::Mosaic => (0, 2.0 * CELLS / short_side),
        Cover::Blur => (largest_step(STRENGTH * short_side, 0), 0.05),
        Cover::Plain(sigma, kernel_size) => (largest_step(sigma, kernel_size), 0.0),
    };
    let sharp = sharp_steps(covered, [rect.x, rect.y], [right, bottom], step);
    (sharp > share).then(|| format!("{:.1} % of the steps from pixel to pixel are too sharp", sharp * 100.0))
}

/// How much two neighbours may differ behind a Gaussian with this many taps, of which 0 are as many as it has: by less than 255 times
/// its largest tap, and rounding adds 1.
fn largest_step(sigma: f64, kernel_size: u32) -> u8 {
    let radius = if kernel_size > 0 { kernel_size / 2 } else { (4.0 * sigma).ceil() as u32 };
    let others = (1..=radius).map(|i| (-0.5 * (f64::from(i) / sigma).powi(2)).exp()).sum::<f64>();
    ((255.0 / (1.0 + 2.0 * others)).ceil() + 1.0).min(255.0) as u8
}

/// Whether at least a quarter of a block's pixels differ from the original, or the others have no detail: they may have the
/// colour of the cover by chance.
fn is_changed(raw: &Frame, covered: &Frame, [left, top]: [usize; 2], [right, bottom]: [usize; 2]) -> bool {
    let block = || (top..bottom).flat_map(move |y| (left..right).map(move |x| (x, y)));
    let unchanged = || block().filter(|(x, y)| raw.pixel(*x, *y) == covered.pixel(*x, *y));
    let range = |channel| {
        let values = || unchanged().map(|(x, y)| raw.pixel(x, y)[channel]);
        values().max().unwrap_or(0) - values().min().unwrap_or(0)
    };
    unchanged().count() * 4 <= block().count() * 3 || (0..3).all(|channel| range(channel) < DETAIL)
}

/// The share of pixels that differ from their right neighbour by more than `step` in a channel.
fn sharp_steps(covered: &Frame, [left, top]: [usize; 2], [right, bottom]: [usize; 2], step: u8) -> f64 {
    let pairs =
        (top..bottom).flat_map(|y| (left + 1..right).map(move |x| (covered.pixel(x - 1, y), covered.pixel(x, y))));
    let is_sharp =
        |(one, other): &(&[u8], &[u8])| one.iter().zip(*other).any(|(one, other)| one.abs_diff(*other) > step);
    pairs.clone().filter(is_sharp).count() as f64 / pairs.count().max(1) as f64
}
