// SPDX-License-Identifier: MPL-2.0
//! The rows pass for 8-bit samples on processors with dot products of four bytes (AVX-512 VNNI). Rows stay bytes in
//! memory; a permutation in the registers gathers four neighbouring samples of a channel in each lane, which are
//! multiplied by the low and by the high bytes of the taps.
//!
//! The throughput of [`PairDotRows`] is limited by its loads: one vector for every two taps, most of them across two
//! cache lines. This pass loads a quarter of the bytes. It skips the products with high bytes in the tails, where these
//! bytes are 0.

use super::plain::{view, view_mut};
use super::rows::{PairDotRows, RowsPass, SourceRow};
use super::simd::ByteDots;
use super::tile::{Sample, SampleRun};

/// The rows pass with dot products of four bytes. It uses [`PairDotRows`] for 16-bit samples and for taps that
/// [`super::weights::ByteTaps`] cannot represent.
pub struct ByteDotRows;

impl<S: ByteDots, T: Sample> RowsPass<S, T> for ByteDotRows {
    #[inline(always)]
    fn convolve<const V: usize>(simd: S, run: &SampleRun, sources: [&[T]; 2], rows: [&mut [u32]; 2], out: &mut [u32]) {
        let Some(taps) = run.weights.row_byte_taps.as_ref().filter(|_| size_of::<T>() == 1) else {
            return <PairDotRows as RowsPass<S, T>>::convolve::<V>(simd, run, sources, rows, out);
        };
        let (stride, width) = (run.stride, out.len());
        let [mut first, mut second] = rows.map(view_mut::<u32, u8>);
        let block = V * S::LANES;
        let block_bytes = 4 * (taps.low.len() - 1) * stride + block + S::QUAD_READ_BYTES;
        let sources = sources.map(|row| SourceRow::new(run, view::<T, u8>(row)));
        let SourceRow { row, start, .. } = sources[0];
        // Blocks that read bytes of the row only, those from `direct_start` to `direct_end`, load from the source
        // itself. The others load from copies of the row's ends with replicated edges.
        let direct_start = (start.min(0).unsigned_abs()).next_multiple_of(block);
        let direct_end = match (row.len() as isize - start - block_bytes as isize).div_euclid(block as isize) {
            last @ 0.. => direct_start.max((last as usize + 1) * block),
            _ => direct_start,
        };
        for (row, source) in [&mut first, &mut second].into_iter().zip(&sources) {
            let end = width - block + block_bytes;
            if direct_start > 0 {
                let head = &mut row[..(direct_start - block + block_bytes).min(end)];
                source.replicate_edges(head, 0, |byte| byte, |byte, _| byte);
            }
            if direct_end < width {
                // The first sample of this block need not be the first of a pixel.
                let tail = SourceRow { start: start + direct_end as isize, ..*source };
                tail.replicate_edges(&mut row[direct_end..end], 0, |byte| byte, |byte, _| byte);
            }
        }
        let rows = [&*first, &*second];
        let indices = simd.quad_indices(stride);
        // The rounding constant 2¹⁵ and the bias of the result, 2³¹, shifted right by the 8 bits by which the sums
        // are shifted left below.
        let initial = simd.splat((1 << 7) + (1 << 23));
        for (i, out) in out.chunks_exact_mut(block).enumerate() {
            let x = i * block;
            let mut low = [[initial; V]; 2];
            let mut high = [[simd.splat(0); V]; 2];
            let blocks = [0, 1].map(|r| match (direct_start..direct_end).contains(&x) {
                true => &sources[r].row[(start + x as isize) as usize..][..block_bytes],
                false => &rows[r][x..][..block_bytes],
            });
            for (m, &tap) in taps.low.iter().enumerate() {
                let tap = simd.splat(tap);
                let high_tap = taps.high.get(m.wrapping_sub(taps.high_start)).map(|tap| simd.splat(*tap));
                for (r, row) in blocks.iter().enumerate() {
                    let from = 4 * m * stride;
                    // SAFETY: `m` is less than the length of `taps.low`, so that this ends within `block_bytes`.
                    let bytes = unsafe { row.get_unchecked(from..from + block - S::LANES + S::QUAD_READ_BYTES) };
                    for v in 0..V {
                        let quads = simd.load_quads(&bytes[v * S::LANES..], indices);
                        low[r][v] = simd.dot_bytes(low[r][v], quads, tap);
                        if let Some(tap) = high_tap {
                            high[r][v] = simd.dot_bytes(high[r][v], quads, tap);
                        }
                    }
                }
            }
            for v in 0..V {
                let first = simd.shift_left(simd.add(low[0][v], simd.shift_left(high[0][v], 8)), 8);
                let second = simd.shift_left(simd.add(low[1][v], simd.shift_left(high[1][v], 8)), 8);
                simd.store(&mut out[v * S::LANES..], simd.pack_high_halves(first, second));
            }
        }
    }
}
