// SPDX-License-Identifier: MPL-2.0
//! Decimates a plane. The rows step writes a ring buffer of row pairs, from which the columns step computes each row of the small
//! plane.

use std::ops::Range;

use super::PAIR_BIAS;
use super::row_format::RowFormat;
use super::rows_down::{RowGeometry, RowPass, RowsDown};
use crate::cpu::packed_taps::LevelTaps;
use crate::cpu::scratch::Scratch;
use crate::cpu::simd::Simd;
use crate::filter::operation::Resampling;
use crate::filter::plane::{HostPlane, HostPlaneMut};
use crate::filter::regions::Rect;
use crate::filter::wide::LEVEL_RADIUS;

/// The number of row pairs from which two rows are computed with a factor of 4.
const MAX_PAIRS: usize = 15;

/// A decimation with the memory of its planes.
pub struct Decimation {
    source: HostPlane,
    destination: HostPlaneMut,
    rows: RowPass,
    /// The factor along columns.
    factor: usize,
    /// The taps by which each row pair contributes to two rows of the small plane. With a factor of 1 there is one pair.
    column_pairs: Vec<[u32; 2]>,
    source_rows: usize,
    /// The computed rows of the small plane.
    pub small_rows: Range<usize>,
}

impl Decimation {
    /// The decimation that computes a rectangle of the small plane, which begins at an even row. `source` and `destination` hold
    /// the rows of the resampling's views.
    pub fn new(resampling: &Resampling, rect: Rect, source: HostPlane, destination: HostPlaneMut) -> Self {
        debug_assert!(rect.y().is_multiple_of(2), "{rect:?}");
        let small = resampling.destination.field.layout;
        let layout = &resampling.source.field.layout;
        let format = RowFormat::new(layout, resampling.channels);
        let [across, down] = resampling.factors;
        let (first_pixel, geometry) = RowGeometry::new(across.get() as usize, rect, &format);
        let source = source.from_byte(first_pixel * format.pixel_bytes());
        let destination = destination.from_byte(rect.x() as usize * small.pixel_bytes());
        let format = format.skip_pixels(first_pixel);
        let taps = LevelTaps::of(down);
        let tap = |m: usize| taps.pairs.get(m).copied().unwrap_or(0);
        // Each row of the small plane starts `factor / 2` row pairs below the previous one.
        let next = down.get() as usize / 2;
        let column_pairs = (0..taps.pairs.len() + next).map(|m| [tap(m), m.checked_sub(next).map_or(0, tap)]).collect();
        Self {
            source,
            destination,
            rows: RowPass { format, geometry, taps: LevelTaps::of(across) },
            factor: down.get() as usize,
            column_pairs,
            source_rows: layout.height as usize,
            small_rows: rect.y() as usize..rect.bottom() as usize,
        }
    }

    /// The number of rows in a block, for `count` blocks or fewer, if these would be too small.
    pub fn block_rows(&self, count: usize) -> usize {
        const TAPS: usize = 8;
        let work = self.rows.geometry.source_pixels()
            * self.rows.geometry.channels
            * self.small_rows.len()
            * self.factor
            * TAPS;
        // Each block reads source rows of twice the radius that its neighbour reads, too.
        let shortest = 4 * LEVEL_RADIUS as usize;
        super::block_rows(self.small_rows.len(), 2, shortest, work, count)
    }

    /// The words of scratch memory for a block.
    pub fn scratch_words(&self) -> usize {
        let geometry = &self.rows.geometry;
        geometry.scratch_words() + self.column_pairs.len() * geometry.out_words()
    }

    /// Computes a block of rows of the small plane, `V` vectors at a time.
    ///
    /// # Safety
    /// The planes hold the rows of the resampling's views. `scratch` was reserved for [`Decimation::scratch_words`]. No other
    /// thread writes the source, or accesses the rows of the block in the destination.
    #[inline(always)]
    pub unsafe fn execute<S: Simd, R: RowsDown<S>, const V: usize>(
        &self,
        s: S,
        small_rows: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let Self { rows: pass, factor, .. } = self;
        let (pairs, pair_words) = (self.column_pairs.len(), pass.geometry.out_words());
        let words = scratch.words();
        let ring = words.wrapping_add(pass.geometry.scratch_words());
        let ring_pair = |j: usize| ring.wrapping_add(j % pairs * pair_words);
        // The source rows of pair j. With a factor of 1, a pair is two rows of the small plane.
        let before = if *factor == 1 { 0 } else { 2 * LEVEL_RADIUS as usize * factor };
        let source_rows = |j: usize| [0, 1].map(|i| (2 * j + i).saturating_sub(before).min(self.source_rows - 1));
        let first_pair = |y: usize| if *factor == 1 { y / 2 } else { factor / 2 * y };

        let order = R::order(pass);
        let mut filled = first_pair(small_rows.start);
        let start = filled;
        for y in small_rows.clone().step_by(2) {
            let first = first_pair(y);
            let rows = 2.min(small_rows.end - y);
            // The last row alone does not need the pairs of a row below it; their taps are 0.
            while filled < first + pairs {
                let ys = source_rows(filled);
                // SAFETY: the scratch memory of the rows step and the pairs of the ring buffer are disjoint parts of `scratch`,
                // as large as `scratch_words` says. Row numbers are limited to the plane, and the caller guarantees that its rows
                // are readable.
                unsafe {
                    if filled > start && ys == source_rows(filled - 1) && ys[0] == ys[1] {
                        // Beyond the first and the last row of the plane, that row repeats, so the previous pair has the same
                        // values.
                        ring_pair(filled - 1).copy_to(ring_pair(filled), pair_words);
                    } else {
                        let [rows, next] = [filled, filled + 1].map(|j| source_rows(j).map(|y| self.source.row(y)));
                        R::decimate::<V>(s, pass, &order, rows, next, words, ring_pair(filled));
                    }
                }
                filled += 1;
            }
            let samples = pass.geometry.samples();
            // SAFETY: the ring buffer holds the pairs of these rows, with `samples` words each and more for whole vectors. The
            // destination's rows from `y` on are in the block, so they are writable and no other thread accesses them.
            unsafe {
                if *factor == 1 {
                    for y in y..y + rows {
                        let (pair, out) = (ring_pair(first), self.destination.row(y).cast::<u16>());
                        let sample = |x: usize| ((pair.add(x).read() ^ PAIR_BIAS) >> (16 * (y % 2))) as u16;
                        (0..samples).for_each(|x| out.add(x).write_unaligned(sample(x)));
                    }
                } else {
                    let out = [y, y + 1].map(|y| self.destination.row(y).cast::<u16>());
                    columns_down::<S, V>(s, &self.column_pairs, |m| ring_pair(first + m), &out[..rows], samples);
                }
            }
        }
    }
}

/// The columns step. Computes one or two rows of the small plane from the row pairs at `pair(0)`, `pair(1)` and so on, with these
/// taps.
///
/// # Safety
/// The pairs are valid for reading `samples` words, rounded up to whole blocks of vectors, and each of `out` for writing
/// `samples` elements.
#[inline(always)]
unsafe fn columns_down<S: Simd, const V: usize>(
    s: S,
    taps: &[[u32; 2]],
    pair: impl Fn(usize) -> *mut u32,
    out: &[*mut u16],
    samples: usize,
) {
    const BLOCK_MAX: usize = 64;
    let block = V * S::LANES;
    let mut pairs = [std::ptr::null_mut(); MAX_PAIRS];
    let pairs = &mut pairs[..taps.len()];
    pairs.iter_mut().enumerate().for_each(|(m, address)| *address = pair(m));
    for x in (0..samples).step_by(block) {
        // SAFETY: the caller guarantees that the pairs are readable and the output is writable. A partial block is first written
        // to `partial`.
        unsafe {
            // The constant 2³¹ removes the bias, and 2¹⁵ rounds.
            let initial = s.splat(1 << 31 | 1 << 15);
            let mut sums = [[initial; V]; 2];
            for (pair, taps) in pairs.iter().zip(taps) {
                let taps = [s.splat(taps[0]), s.splat(taps[1])];
                let [above, below] = &mut sums;
                for (v, (above, below)) in above.iter_mut().zip(below).enumerate() {
                    let words = s.load(pair.add(x + v * S::LANES));
                    *above = s.dot(*above, words, taps[0]);
                    *below = s.dot(*below, words, taps[1]);
                }
            }
            for (out, sums) in out.iter().zip(sums) {
                let mut partial = [0_u16; BLOCK_MAX];
                let is_full = samples - x >= block;
                let to = if is_full { out.add(x) } else { partial.as_mut_ptr() };
                for (v, sum) in sums.into_iter().enumerate() {
                    s.store_low16(to.add(v * S::LANES), s.shift_right(sum, 16));
                }
                if !is_full {
                    out.add(x).cast::<u8>().copy_from(partial.as_ptr().cast(), 2 * (samples - x));
                }
            }
        }
    }
}
