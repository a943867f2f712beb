// SPDX-License-Identifier: MPL-2.0
//! The rows pass: two source rows of a tile to one row pair of its ring.
//!
//! [`Pairs`] weighs two 16-bit samples at a time and is there for every instruction set and sample; `quads.rs` has another
//! way, to the same bytes.

use super::simd::Simd;
use super::tile::{Run, Sample};

/// The bias of both samples of a pair.
const PAIR_BIAS: u32 = 0x8000_8000;

/// A way through the rows pass.
pub trait RowsPass<S: Simd, T: Sample> {
    /// Filters two source rows, from the run's `x` on, into `out`, `width` words of row pairs, `V` vectors at a time.
    ///
    /// # Safety
    /// As [`super::walk::blur`]; the sources hold the run's samples, `rows` are two rooms of `room` words each, `out` holds
    /// `width` words, and `width` is whole blocks of `V` vectors.
    unsafe fn filter<const V: usize>(
        run: &Run,
        sources: [*const T; 2],
        rows: [*mut u32; 2],
        room: usize,
        out: *mut u32,
        width: usize,
    );
}

/// Words of a row's room, for both ways: the row's columns, the radius to both sides, and what vectors read beyond.
pub fn room(tile_width: usize, channels: usize, radius: usize) -> usize {
    (tile_width + 2 * (radius + 1) * channels).next_multiple_of(16)
}

/// A source row and the samples of its edge pixels.
pub struct Source<T> {
    pub row: *const T,
    /// Samples in the row.
    pub samples: usize,
    /// The sample that the pass reads first; negative before the row.
    pub start: isize,
    /// Samples per pixel.
    pub channels: usize,
}

impl<T: Sample> Source<T> {
    /// A row, from `radius` pixels before the run's first sample on.
    #[inline(always)]
    pub fn new(run: &Run, row: *const T) -> Self {
        let Run { samples, channels, .. } = *run;
        Self { row, samples, start: run.x as isize - (run.weights.radius[0] * channels) as isize, channels }
    }

    /// Fills `out`, one element a sample, with `edge` of the first pixel before the row, `inside` of every sample that
    /// has one `reach` samples to its right, and `edge` of the last pixel from there on.
    #[inline(always)]
    pub fn spread<E: Copy + Default>(
        &self,
        out: &mut [E],
        reach: usize,
        edge: impl Fn(T) -> E,
        inside: impl Fn(*const T) -> E,
    ) {
        let (left, rest) = out.split_at_mut(self.start.min(0).unsigned_abs().min(out.len()));
        let first = self.start.max(0) as usize;
        let (middle, right) = rest.split_at_mut((self.samples - reach).saturating_sub(first).min(rest.len()));
        // SAFETY: `i` is under `samples`.
        let at = |i: usize| unsafe { self.row.add(i) };
        let repeat = |out: &mut [E], pixel: usize| {
            if out.is_empty() {
                return;
            }
            let mut edges = [E::default(); 4];
            for (c, element) in edges[..self.channels].iter_mut().enumerate() {
                // SAFETY: a sample of the row.
                *element = edge(unsafe { at(pixel + c).read_unaligned() });
            }
            for chunk in out.chunks_mut(self.channels) {
                chunk.copy_from_slice(&edges[..chunk.len()]);
            }
        };
        repeat(left, 0);
        for (i, element) in middle.iter_mut().enumerate() {
            *element = inside(at(first + i));
        }
        repeat(right, self.samples - self.channels);
    }
}

/// Words of biased pairs (sample, sample one pixel to the right), weighed by pairs of taps.
pub struct Pairs;

impl<S: Simd, T: Sample> RowsPass<S, T> for Pairs {
    #[inline(always)]
    unsafe fn filter<const V: usize>(
        run: &Run,
        sources: [*const T; 2],
        rows: [*mut u32; 2],
        room: usize,
        out: *mut u32,
        width: usize,
    ) {
        let Run { weights, channels, .. } = *run;
        let centre = weights.radius[0] * channels;
        // SAFETY: the caller's rooms and rows; `x` stays in `width` and rows reach the halo beyond it.
        unsafe {
            for (row, source) in rows.into_iter().zip(sources) {
                let row = std::slice::from_raw_parts_mut(row, room);
                let widened = |at: *const T| at.read_unaligned().widen(run);
                Source::new(run, source).spread(
                    row,
                    channels,
                    |sample| (sample.widen(run) * 0x1_0001) ^ PAIR_BIAS,
                    |at| (widened(at) | widened(at.add(channels)) << 16) ^ PAIR_BIAS,
                );
            }
            let half = S::splat(1 << 15);
            for x in (0..width).step_by(V * S::LANES) {
                let mut sums = [[half; V]; 2];
                if weights.centre_wraps[0] {
                    for (sums, row) in sums.iter_mut().zip(rows) {
                        for (v, sum) in sums.iter_mut().enumerate() {
                            *sum = S::add(*sum, S::shift_left(S::load(row.add(x + centre + v * S::LANES)), 16));
                        }
                    }
                }
                for (m, &weight) in weights.rows.iter().enumerate() {
                    let weight = S::splat(weight);
                    for (sums, row) in sums.iter_mut().zip(rows) {
                        let at = row.add(x + 2 * m * channels);
                        for (v, sum) in sums.iter_mut().enumerate() {
                            *sum = S::dot(*sum, S::load(at.add(v * S::LANES)), weight);
                        }
                    }
                }
                for (v, (first, second)) in sums[0].into_iter().zip(sums[1]).enumerate() {
                    S::store(out.add(x + v * S::LANES), S::pair_highs(first, second));
                }
            }
        }
    }
}
