// SPDX-License-Identifier: MPL-2.0
//! Decimates a plane: rows into a ring buffer of row pairs, from which the columns step computes each row of the small
//! plane.

use std::ops::Range;

use super::row_format::RowFormat;
use super::rows_down::{RowGeometry, RowPass, RowsDown, unpack};
use crate::cpu::plain::Unaligned16;
use crate::cpu::plane_rows::{DestinationRows, SourceRows};
use crate::cpu::scratch::Scratch;
use crate::cpu::simd::Simd;
use crate::cpu::tile::Sample;
use crate::cpu::weights::LevelWeights;
use crate::filter::operation::Resampling;
use crate::filter::plane::{HostPlane, HostPlaneMut};
use crate::filter::regions::Rect;
use crate::filter::wide::LEVEL_RADIUS;

/// Row pairs of two rows with a factor of 4.
const MAX_PAIRS: usize = 15;
/// Samples in the widest vector block.
const BLOCK_MAX: usize = 64;

/// A decimation, ready to be executed.
pub struct Decimation {
    source: HostPlane,
    destination: HostPlaneMut,
    rows: RowPass,
    /// Along columns.
    factor: usize,
    weights: &'static LevelWeights,
    /// The taps by which each row pair contributes to two rows of the small plane.
    column_pairs: Vec<[u32; 2]>,
    source_rows: usize,
    /// The rows of the small plane that are computed.
    small_rows: Range<usize>,
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
        let weights = LevelWeights::of(down);
        let tap = |m: usize| weights.pairs.get(m).copied().unwrap_or(0);
        // Every row starts half a factor of pairs below the one before.
        let next = down.get() as usize / 2;
        let column_pairs =
            (0..weights.pairs.len() + next).map(|m| [tap(m), m.checked_sub(next).map_or(0, tap)]).collect();
        Self {
            source,
            destination,
            rows: RowPass { format, geometry, weights: LevelWeights::of(across) },
            factor: down.get() as usize,
            weights,
            column_pairs,
            source_rows: layout.height as usize,
            small_rows: rect.y() as usize..rect.bottom() as usize,
        }
    }

    /// Its parts: this many, or fewer if they would be too small.
    pub fn blocks(&self, count: usize) -> impl Iterator<Item = DecimationBlock<'_>> {
        const TAPS: usize = 8;
        let first = self.small_rows.start;
        let work = self.rows.geometry.source_pixels()
            * self.rows.geometry.channels
            * self.small_rows.len()
            * self.factor
            * TAPS;
        // Every block reads source rows of twice the radius that its neighbour reads too.
        let shortest = 4 * LEVEL_RADIUS as usize;
        super::blocks(self.small_rows.len(), 2, shortest, work, count)
            .map(move |rows| DecimationBlock { decimation: self, rows: first + rows.start..first + rows.end })
    }

    /// Row pairs that two rows of the small plane are computed from.
    fn pairs(&self) -> usize {
        if self.factor == 1 { 1 } else { self.weights.pairs.len() + self.factor / 2 }
    }

    /// Words of scratch memory for a block.
    pub fn scratch_words(&self) -> usize {
        let geometry = &self.rows.geometry;
        geometry.scratch_words() + self.pairs() * geometry.out_words()
    }
}

/// Rows of the small plane that one thread computes.
pub struct DecimationBlock<'a> {
    pub decimation: &'a Decimation,
    rows: Range<usize>,
}

impl DecimationBlock<'_> {
    /// Computes the block, `V` vectors at a time. `scratch` was reserved for [`Decimation::scratch_words`].
    ///
    /// # Safety
    /// The planes of the decimation hold the rows of its views. Nobody writes the source, and nobody else accesses the rows of
    /// the block in the destination.
    #[inline(always)]
    pub unsafe fn execute<S: Simd, R: RowsDown<S>, const V: usize>(&self, simd: S, scratch: &mut Scratch) {
        let decimation = self.decimation;
        let Decimation { rows: pass, factor, .. } = decimation;
        let (pairs, pair_words, samples) = (decimation.pairs(), pass.geometry.out_words(), pass.geometry.samples());
        // SAFETY: the rows of the source have this many bytes, and the caller guarantees the rest.
        let source = unsafe { SourceRows::new(decimation.source, pass.format.row_bytes()) };
        // SAFETY: these are the bytes of the rectangle, and the caller guarantees the rest.
        let mut destination = unsafe { DestinationRows::new(decimation.destination, 0..2 * samples) };
        let (scratch, ring) = scratch.words().split_at_mut(pass.geometry.scratch_words());
        let ring_pair = |j: usize| j % pairs * pair_words..(j % pairs + 1) * pair_words;
        // Source rows of pair j. With factor 1 the pairs are rows of the small plane, two at a time.
        let before = if *factor == 1 { 0 } else { 2 * LEVEL_RADIUS as usize * factor };
        let source_rows = |j: usize| [0, 1].map(|i| (2 * j + i).saturating_sub(before).min(decimation.source_rows - 1));
        let first_pair = |y: usize| if *factor == 1 { y / 2 } else { factor / 2 * y };

        let order = R::order(pass);
        let mut filled = first_pair(self.rows.start);
        let start = filled;
        for y in self.rows.clone().step_by(2) {
            let first = first_pair(y);
            let rows = y..self.rows.end.min(y + 2);
            // The last row alone does not need the pairs of the one below it; their taps are 0.
            while filled < first + pairs {
                let ys = source_rows(filled);
                if filled > start && ys == source_rows(filled - 1) && ys[0] == ys[1] {
                    // Beyond the plane's first or last row, that row is repeated, so the previous pair is right
                    // here too.
                    ring.copy_within(ring_pair(filled - 1), ring_pair(filled).start);
                } else {
                    let next = source_rows(filled + 1).map(|y| decimation.source.row(y));
                    let out = &mut ring[ring_pair(filled)];
                    R::decimate::<V>(simd, pass, &order, ys.map(|y| source.row(y)), next, scratch, out);
                }
                filled += 1;
            }
            if *factor == 1 {
                for y in rows {
                    for (sample, pair) in destination.row(y).iter_mut().zip(&ring[ring_pair(first)]) {
                        *sample = unpack(*pair)[y % 2];
                    }
                }
            } else {
                let mut all = [&[][..]; MAX_PAIRS];
                let all = &mut all[..pairs];
                all.iter_mut().enumerate().for_each(|(m, pair)| *pair = &ring[ring_pair(first + m)]);
                columns_down::<S, V>(simd, &decimation.column_pairs, all, rows, samples, &mut destination);
            }
        }
    }
}

/// The columns step: one or two rows of the small plane from row pairs.
#[inline(always)]
fn columns_down<S: Simd, const V: usize>(
    simd: S,
    weights: &[[u32; 2]],
    pairs: &[&[u32]],
    rows: Range<usize>,
    samples: usize,
    destination: &mut DestinationRows,
) {
    let block = V * S::LANES;
    for x in (0..samples).step_by(block) {
        // 2³¹ removes the bias.
        let initial = simd.splat(1 << 31 | 1 << 15);
        let mut sums = [[initial; V]; 2];
        for (pair, weights) in pairs.iter().zip(weights) {
            let words = &pair[x..][..block];
            let weights = weights.map(|weight| simd.splat(weight));
            let [above, below] = &mut sums;
            for (v, (above, below)) in above.iter_mut().zip(below).enumerate() {
                let words = simd.load(&words[v * S::LANES..]);
                *above = simd.dot(*above, words, weights[0]);
                *below = simd.dot(*below, words, weights[1]);
            }
        }
        // A copy, because the loop's index is not known: it would keep the sums in memory in the loop above, too.
        let results: [[S::Vector; V]; 2] = std::array::from_fn(|n| sums[n]);
        for (y, sums) in rows.clone().zip(&results) {
            let out = &mut destination.row(y)[2 * x..2 * samples.min(x + block)];
            if samples - x >= block {
                Unaligned16::store(simd, out, *sums, 16, 0);
            } else {
                let mut partial = [0_u8; 2 * BLOCK_MAX];
                Unaligned16::store(simd, &mut partial, *sums, 16, 0);
                out.copy_from_slice(&partial[..out.len()]);
            }
        }
    }
}
