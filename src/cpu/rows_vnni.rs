// SPDX-License-Identifier: MPL-2.0
//! The rows pass for 8-bit samples on processors with dot products of four bytes (AVX-512 VNNI). Rows stay bytes in
//! memory; a permutation in the registers gathers four neighbouring samples of a channel in each lane, which are
//! multiplied by the low and by the high bytes of the taps.
//!
//! The throughput of [`PairDotRows`] is limited by its loads: one vector for every two taps, most of them across two
//! cache lines. This pass loads a quarter of the bytes. It skips the products with high bytes in the tails, where these
//! bytes are 0.

use super::rows::{PairDotRows, RowsPass, SourceRow};
use super::simd::ByteDots;
use super::tile::{Sample, SampleRun};

/// The rows pass with dot products of four bytes. It uses [`PairDotRows`] for 16-bit samples and for taps that
/// [`super::weights::ByteTaps`] cannot represent.
pub struct ByteDotRows;

impl<S: ByteDots, T: Sample> RowsPass<S, T> for ByteDotRows {
    #[inline(always)]
    unsafe fn convolve<const V: usize>(
        run: &SampleRun,
        sources: [*const T; 2],
        rows: [*mut u32; 2],
        row_words: usize,
        out: *mut u32,
        width: usize,
    ) {
        let Some(taps) = run.weights.row_byte_taps.as_ref().filter(|_| size_of::<T>() == 1) else {
            // SAFETY: `PairDotRows` implements the same method with the same conditions, which the caller guarantees
            // for these arguments: the instruction set, readable sources, and `rows` and `out` of `row_words` and
            // `width` words.
            return unsafe {
                <PairDotRows as RowsPass<S, T>>::convolve::<V>(run, sources, rows, row_words, out, width);
            };
        };
        let stride = run.stride;
        let rows = rows.map(<*mut u32>::cast::<u8>);
        // SAFETY: the caller guarantees the instruction set and the sources' samples. Each of `rows` holds four bytes
        // for each of its `row_words` words, and so also the bytes that quads read beyond the last column; slices of it
        // are bounds-checked. Blocks from `direct_start` to `direct_end` read only bytes of the source row. `out` holds
        // the `width` words written.
        unsafe {
            let block = V * S::LANES;
            let block_bytes = 4 * (taps.low.len() - 1) * stride + block + S::QUAD_READ_BYTES;
            let sources = sources.map(|row| SourceRow::new(run, row.cast::<u8>()));
            let SourceRow { start, samples, .. } = sources[0];
            // Blocks that read bytes of the row only, those from `direct_start` to `direct_end`, load from the source
            // itself. The others load from copies of the row's ends with replicated edges.
            let direct_start = (start.min(0).unsigned_abs()).next_multiple_of(block);
            let direct_end = match (samples as isize - start - block_bytes as isize).div_euclid(block as isize) {
                last @ 0.. => direct_start.max((last as usize + 1) * block),
                _ => direct_start,
            };
            for (row, source) in rows.into_iter().zip(&sources) {
                let row = std::slice::from_raw_parts_mut(row, 4 * row_words);
                let end = width - block + block_bytes;
                if direct_start > 0 {
                    source.replicate_edges(
                        &mut row[..(direct_start - block + block_bytes).min(end)],
                        0,
                        |byte| byte,
                        |byte| byte.read(),
                    );
                }
                if direct_end < width {
                    // The first sample of this block need not be the first of a pixel.
                    let tail = SourceRow { start: start + direct_end as isize, ..*source };
                    tail.replicate_edges(&mut row[direct_end..end], 0, |byte| byte, |byte| byte.read());
                }
            }
            let indices = S::quad_indices(stride);
            // The rounding constant 2¹⁵ and the bias of the result, 2³¹, shifted right by the 8 bits by which the sums
            // are shifted left below.
            let initial = S::splat((1 << 7) + (1 << 23));
            for x in (0..width).step_by(V * S::LANES) {
                let mut low = [[initial; V]; 2];
                let mut high = [[S::splat(0); V]; 2];
                let blocks = [0, 1].map(|r| match (direct_start..direct_end).contains(&x) {
                    true => sources[r].row.offset(start + x as isize),
                    false => rows[r].add(x),
                });
                for (m, &tap) in taps.low.iter().enumerate() {
                    let tap = S::splat(tap);
                    let high_tap = taps.high.get(m.wrapping_sub(taps.high_start)).map(|tap| S::splat(*tap));
                    for (r, row) in blocks.iter().enumerate() {
                        for v in 0..V {
                            let quads = S::load_quads(row.add(4 * m * stride + v * S::LANES), indices);
                            low[r][v] = S::dot_bytes(low[r][v], quads, tap);
                            if let Some(tap) = high_tap {
                                high[r][v] = S::dot_bytes(high[r][v], quads, tap);
                            }
                        }
                    }
                }
                for v in 0..V {
                    let first = S::shift_left(S::add(low[0][v], S::shift_left(high[0][v], 8)), 8);
                    let second = S::shift_left(S::add(low[1][v], S::shift_left(high[1][v], 8)), 8);
                    S::store(out.add(x + v * S::LANES), S::pack_high_halves(first, second));
                }
            }
        }
    }
}
