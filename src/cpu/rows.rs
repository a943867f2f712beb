// SPDX-License-Identifier: MPL-2.0
//! The rows pass, which convolves two source rows of a tile into one row pair of the tile's ring buffer.
//!
//! [`PairDotRows`] multiplies two 16-bit samples at a time and supports every instruction set and sample type.
//! `rows_vnni.rs` has a faster implementation for AVX-512 VNNI, with identical output.

use super::simd::{PAIR_BIAS, Simd};
use super::tile::{Sample, SampleRun};

/// An implementation of the rows pass.
pub trait RowsPass<S: Simd, T: Sample> {
    /// Convolves two source rows, from the run's sample `x` on, and writes `width` words of row pairs to `out`, `V` vectors at a
    /// time. `rows` is scratch memory for both rows with replicated edges.
    ///
    /// # Safety
    /// Each source holds the samples of the run's row. Each of `rows` is valid for `row_words` words, the result of [`row_words`]
    /// for `width`. `out` is valid for `width` + OUT_SLACK words. `width` is a multiple of `V * S::LANES`. The sources and the
    /// scratch memory do not overlap.
    unsafe fn convolve<const V: usize>(
        s: S,
        run: &SampleRun,
        sources: [*const T; 2],
        rows: [*mut u32; 2],
        row_words: usize,
        out: *mut u32,
        width: usize,
    );
}

/// The words of scratch memory after the samples and the halo of a source row. Vectors may read them.
pub const ROW_SLACK: usize = 256;
/// The words after a row of row pairs that vectors may write. The distance between two row pairs is then an odd number of cache
/// lines.
pub const OUT_SLACK: usize = 144;

/// The words of scratch memory for one source row, for every implementation: the tile's columns, the radius on both sides, and
/// the words that vectors read beyond.
pub fn row_words(tile_width: usize, stride: usize, radius: usize) -> usize {
    (tile_width + 2 * (radius + 1) * stride + ROW_SLACK).next_multiple_of(32)
}

/// Fills `out` with copies of a pixel of 1 to 4 channels. The last copy may be cut off.
#[inline(always)]
pub fn repeat_pixel<E: Copy>(out: &mut [E], pixel: &[E]) {
    /// With a constant number of channels, a copy is compiled to moves instead of a call.
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
pub struct SourceRow<T> {
    pub row: *const T,
    /// The number of samples in the row.
    pub samples: usize,
    /// The index of the first sample that the pass reads. It is negative if this sample lies before the row.
    pub start: isize,
    /// The distance from a sample to the next one of the same channel, in samples.
    pub stride: usize,
}

impl<T: Sample> SourceRow<T> {
    /// The row at this address. Reading starts one radius before the run's sample `x`.
    #[inline(always)]
    pub fn new(run: &SampleRun, row: *const T) -> Self {
        let SampleRun { samples, stride, .. } = *run;
        Self { row, samples, start: run.x as isize - (run.taps.radius[0] * stride) as isize, stride }
    }

    /// Fills `out` with one element for each sample from `start` on. Before the row, elements are `edge` of the samples of the
    /// first pixel. In the row, they are `inside` of each sample that is followed by another one at the distance `lookahead`.
    /// After those, they are `edge` of the samples of the last pixel.
    #[inline(always)]
    pub fn replicate_edges<E: Copy + Default>(
        &self,
        out: &mut [E],
        lookahead: usize,
        edge: impl Fn(T) -> E,
        inside: impl Fn(*const T) -> E,
    ) {
        let (left, rest) = out.split_at_mut(self.start.min(0).unsigned_abs().min(out.len()));
        let first = self.start.max(0) as usize;
        let (middle, right) = rest.split_at_mut((self.samples - lookahead).saturating_sub(first).min(rest.len()));
        // These are copies, because the compiler would load the fields again after every written element.
        let (row, stride) = (self.row, self.stride);
        let address = |i: usize| row.wrapping_add(i);
        let mut edges = [[E::default(); 4]; 2];
        for (edges, (pixel, side)) in edges.iter_mut().zip([(0, &left), (self.samples - stride, &right)]) {
            if side.is_empty() {
                // This edge may not be in memory: 10-10-10-2 rows are unpacked only where they are read.
                continue;
            }
            for (c, element) in edges[..stride].iter_mut().enumerate() {
                // SAFETY: `pixel` is the index of the row's first or last pixel, and `c` is less than the `stride` samples of a
                // pixel.
                *element = edge(unsafe { address(pixel + c).read_unaligned() });
            }
        }
        repeat_pixel(left, &edges[0][..stride]);
        for (i, element) in middle.iter_mut().enumerate() {
            *element = inside(address(first + i));
        }
        repeat_pixel(right, &edges[1][..stride]);
    }
}

/// The rows pass with dot products of two. Each word of scratch memory is a biased pair (sample, next sample of the same
/// channel), which is multiplied by a pair of taps.
pub struct PairDotRows;

impl<S: Simd, T: Sample> RowsPass<S, T> for PairDotRows {
    #[inline(always)]
    unsafe fn convolve<const V: usize>(
        s: S,
        run: &SampleRun,
        sources: [*const T; 2],
        rows: [*mut u32; 2],
        row_words: usize,
        out: *mut u32,
        width: usize,
    ) {
        let SampleRun { taps, stride, .. } = *run;
        let centre = taps.radius[0] * stride;
        // SAFETY: the caller guarantees that the sources hold the run's samples, that `out` holds `width` words, and that each of
        // `rows` holds `row_words` words: the `width` columns and the halo that the taps read beyond them. `inside` reads at most
        // one stride ahead, which is the `lookahead` of `replicate_edges`.
        unsafe {
            for (row, source) in rows.into_iter().zip(sources) {
                let row = std::slice::from_raw_parts_mut(row, row_words - ROW_SLACK);
                let widened = |sample: *const T| sample.read_unaligned().widen(run);
                SourceRow::new(run, source).replicate_edges(
                    row,
                    stride,
                    |sample| (sample.widen(run) * 0x1_0001) ^ PAIR_BIAS,
                    |sample| (widened(sample) | widened(sample.add(stride)) << 16) ^ PAIR_BIAS,
                );
            }
            let rounding = s.splat(1 << 15);
            for x in (0..width).step_by(V * S::LANES) {
                let mut sums = [[rounding; V]; 2];
                if taps.centre_wraps[0] {
                    for (sums, row) in sums.iter_mut().zip(rows) {
                        for (v, sum) in sums.iter_mut().enumerate() {
                            *sum = s.add(*sum, s.shift_left(s.load(row.add(x + centre + v * S::LANES)), 16));
                        }
                    }
                }
                for (m, &weight) in taps.rows.iter().enumerate() {
                    let weight = s.splat(weight);
                    for (sums, row) in sums.iter_mut().zip(rows) {
                        let pairs = row.add(x + 2 * m * stride);
                        for (v, sum) in sums.iter_mut().enumerate() {
                            *sum = s.dot(*sum, s.load(pairs.add(v * S::LANES)), weight);
                        }
                    }
                }
                for (v, (first, second)) in sums[0].into_iter().zip(sums[1]).enumerate() {
                    s.store(out.add(x + v * S::LANES), s.pack_high_halves(first, second));
                }
            }
        }
    }
}
