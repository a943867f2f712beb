// SPDX-License-Identifier: MPL-2.0
//! The rows pass: convolves two source rows of a tile into one row pair of its ring buffer.
//!
//! [`PairDotRows`] multiplies two 16-bit samples at a time and supports every instruction set and sample type.
//! `rows_vnni.rs` has a faster implementation for bytes, with identical output.

use super::simd::Simd;
use super::tile::{Sample, SampleRun};

/// XOR with this subtracts the bias of 32768 from both samples of a pair.
const PAIR_BIAS: u32 = 0x8000_8000;

/// An implementation of the rows pass.
pub trait RowsPass<S: Simd, T: Sample> {
    /// Convolves two source rows, from the run's sample `x` on, into the words of row pairs `out`, `V` vectors at a time; `out`
    /// is whole blocks of these. Each source has the run's samples. `rows` is scratch memory for the two rows with their edges
    /// replicated, of [`row_words`] words for `out` each.
    fn convolve<const V: usize>(simd: S, run: &SampleRun, sources: [&[T]; 2], rows: [&mut [u32]; 2], out: &mut [u32]);
}

/// Words of scratch memory for one source row, enough for every implementation: the tile's columns, the radius on both
/// sides, and what vectors read beyond.
pub fn row_words(tile_width: usize, stride: usize, radius: usize) -> usize {
    (tile_width + 2 * (radius + 1) * stride).next_multiple_of(16)
}

/// Fills `out` with copies of a pixel of 1 to 4 channels; the last one may be cut off.
#[inline(always)]
pub fn repeat_pixel<E: Copy>(out: &mut [E], pixel: &[E]) {
    /// With the number of channels known, a copy is a move instead of a call.
    #[inline(always)]
    fn repeat<E: Copy, const CHANNELS: usize>(out: &mut [E], pixel: [E; CHANNELS]) {
        let (pixels, rest) = out.as_chunks_mut::<CHANNELS>();
        pixels.fill(pixel);
        rest.copy_from_slice(&pixel[..rest.len()]);
    }
    match *pixel {
        [a] => repeat(out, [a]),
        [a, b] => repeat(out, [a, b]),
        [a, b, c] => repeat(out, [a, b, c]),
        [a, b, c, d] => repeat(out, [a, b, c, d]),
        _ => unreachable!("a pixel has 1 to 4 channels"),
    }
}

/// A source row, and the position in it from which the pass reads.
#[derive(Clone, Copy)]
pub struct SourceRow<'a, T> {
    /// The samples of the row.
    pub row: &'a [T],
    /// Index of the first sample that the pass reads; negative if it is before the row's first.
    pub start: isize,
    /// Distance from a sample to the next one of the same channel, in samples.
    pub stride: usize,
}

impl<'a, T: Sample> SourceRow<'a, T> {
    /// A row, read from one radius before the run's sample `x`.
    #[inline(always)]
    pub fn new(run: &SampleRun, row: &'a [T]) -> Self {
        let SampleRun { samples, stride, .. } = *run;
        Self { row: &row[..samples], start: run.x as isize - (run.weights.radius[0] * stride) as isize, stride }
    }

    /// Fills `out` with one element for each sample from `start` on: before the row, `edge` of the first pixel's
    /// samples; in the row, `inside` of each sample that has another one `lookahead` samples to its right, and of that one;
    /// after those, `edge` of the last pixel's samples.
    #[inline(always)]
    pub fn replicate_edges<E: Copy + Default>(
        &self,
        out: &mut [E],
        lookahead: usize,
        edge: impl Fn(T) -> E,
        inside: impl Fn(T, T) -> E,
    ) {
        let (left, rest) = out.split_at_mut(self.start.min(0).unsigned_abs().min(out.len()));
        let first = self.start.max(0) as usize;
        let (row, stride) = (self.row, self.stride);
        let (middle, right) = rest.split_at_mut((row.len() - lookahead).saturating_sub(first).min(rest.len()));
        let mut edges = [[E::default(); 4]; 2];
        for (edges, pixel) in edges.iter_mut().zip([&row[..stride], &row[row.len() - stride..]]) {
            for (element, sample) in edges.iter_mut().zip(pixel) {
                *element = edge(*sample);
            }
        }
        repeat_pixel(left, &edges[0][..stride]);
        if !middle.is_empty() {
            let samples = row[first..].iter().zip(&row[first + lookahead..]);
            for (element, (sample, ahead)) in middle.iter_mut().zip(samples) {
                *element = inside(*sample, *ahead);
            }
        }
        repeat_pixel(right, &edges[1][..stride]);
    }
}

/// The rows pass with dot products of two: each scratch word is the biased pair (sample, next sample of the same
/// channel), and is multiplied by a pair of taps.
pub struct PairDotRows;

impl<S: Simd, T: Sample> RowsPass<S, T> for PairDotRows {
    #[inline(always)]
    fn convolve<const V: usize>(simd: S, run: &SampleRun, sources: [&[T]; 2], rows: [&mut [u32]; 2], out: &mut [u32]) {
        let SampleRun { weights, stride, .. } = *run;
        let centre = weights.radius[0] * stride;
        let [first, second] = rows;
        for (row, source) in [&mut *first, &mut *second].into_iter().zip(sources) {
            SourceRow::new(run, source).replicate_edges(
                row,
                stride,
                |sample| (sample.widen(run) * 0x1_0001) ^ PAIR_BIAS,
                |sample, next| (sample.widen(run) | next.widen(run) << 16) ^ PAIR_BIAS,
            );
        }
        let rounding = simd.splat(1 << 15);
        let block = V * S::LANES;
        let row_words = out.len() + 2 * (weights.rows.len() - 1) * stride;
        let rows = [&first[..row_words], &second[..row_words]];
        for (i, out) in out.chunks_exact_mut(block).enumerate() {
            let x = i * block;
            let mut sums = [[rounding; V]; 2];
            if weights.centre_wraps[0] {
                for (sums, row) in sums.iter_mut().zip(rows) {
                    for (sum, samples) in sums.iter_mut().zip(row[x + centre..].chunks_exact(S::LANES)) {
                        *sum = simd.add(*sum, simd.shift_left(simd.load(samples), 16));
                    }
                }
            }
            for (m, &weight) in weights.rows.iter().enumerate() {
                let weight = simd.splat(weight);
                for (sums, row) in sums.iter_mut().zip(rows) {
                    let from = x + 2 * m * stride;
                    // SAFETY: `x + block` is at most the length of `out`, and `m` less than that of `weights.rows`, so that the
                    // block ends within `row_words`.
                    let pairs = unsafe { row.get_unchecked(from..from + block) };
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = simd.dot(*sum, simd.load(&pairs[v * S::LANES..]), weight);
                    }
                }
            }
            for (v, (first, second)) in sums[0].into_iter().zip(sums[1]).enumerate() {
                simd.store(&mut out[v * S::LANES..], simd.pack_high_halves(first, second));
            }
        }
    }
}
