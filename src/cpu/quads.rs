// SPDX-License-Identifier: MPL-2.0
//! The rows pass where the processor multiplies and adds four bytes at a time: bytes stay bytes in memory and are spread to
//! quads of neighbouring pixels on the way into the registers, weighed with the low and with the high bytes of the taps.
//!
//! What bounds the pass over pairs is reading a whole vector at every offset of a row, across cache lines most of the time;
//! this one reads a quarter of the bytes, and the words of high bytes are all 0 out in the tails and left out there.

use super::rows::{Pairs, RowsPass, Source};
use super::simd::ByteDots;
use super::tile::{Run, Sample};

/// The rows pass over bytes; samples of 16 bits and taps without [`super::weights::ByteTaps`] go through [`Pairs`].
pub struct Quads;

impl<S: ByteDots, T: Sample> RowsPass<S, T> for Quads {
    #[inline(always)]
    unsafe fn filter<const V: usize>(
        run: &Run,
        sources: [*const T; 2],
        rows: [*mut u32; 2],
        room: usize,
        out: *mut u32,
        width: usize,
    ) {
        let Some(taps) = run.weights.row_bytes.as_ref().filter(|_| size_of::<T>() == 1) else {
            // SAFETY: passed on.
            return unsafe { <Pairs as RowsPass<S, T>>::filter::<V>(run, sources, rows, room, out, width) };
        };
        let channels = run.channels;
        let rows = rows.map(<*mut u32>::cast::<u8>);
        // SAFETY: the caller's rooms, which hold four bytes a word, so every quad read beyond the last column too.
        unsafe {
            let block = V * S::LANES;
            let reach = 4 * (taps.low.len() - 1) * channels + block + S::QUADS_READ;
            let sources = sources.map(|row| Source::new(run, row.cast::<u8>()));
            let Source { start, samples, .. } = sources[0];
            // Blocks that read nothing beyond the row read it where it is; the others from copies of the row's ends.
            let direct = (start.min(0).unsigned_abs()).next_multiple_of(block);
            let direct_to = match (samples as isize - start - reach as isize).div_euclid(block as isize) {
                last @ 0.. => direct.max((last as usize + 1) * block),
                _ => direct,
            };
            for (row, source) in rows.into_iter().zip(&sources) {
                let row = std::slice::from_raw_parts_mut(row, 4 * room);
                let end = width - block + reach;
                if direct > 0 {
                    source.spread(&mut row[..(direct - block + reach).min(end)], 0, |byte| byte, |at| at.read());
                }
                if direct_to < width {
                    // A block that has columns of the tile begins inside the row, with a whole pixel or not.
                    let tail = Source { start: start + direct_to as isize, ..*source };
                    tail.spread(&mut row[direct_to..end], 0, |byte| byte, |at| at.read());
                }
            }
            let spread = S::spread(channels);
            // Half for rounding, and the bias of the result, both 8 bits below their place in it.
            let half = S::splat((1 << 7) + (1 << 23));
            for x in (0..width).step_by(V * S::LANES) {
                let mut low = [[half; V]; 2];
                let mut high = [[S::splat(0); V]; 2];
                let from = [0, 1].map(|r| match (direct..direct_to).contains(&x) {
                    true => sources[r].row.offset(start + x as isize),
                    false => rows[r].add(x),
                });
                for (m, &tap) in taps.low.iter().enumerate() {
                    let tap = S::splat(tap);
                    let high_tap = taps.high.get(m.wrapping_sub(taps.high_from)).map(|tap| S::splat(*tap));
                    for (r, row) in from.iter().enumerate() {
                        for v in 0..V {
                            let quads = S::quads(row.add(4 * m * channels + v * S::LANES), spread);
                            low[r][v] = S::dot_bytes(low[r][v], quads, tap);
                            if let Some(tap) = high_tap {
                                high[r][v] = S::dot_bytes(high[r][v], quads, tap);
                            }
                        }
                    }
                }
                for v in 0..V {
                    let sums = [0, 1].map(|r| S::shift_left(S::add(low[r][v], S::shift_left(high[r][v], 8)), 8));
                    S::store(out.add(x + v * S::LANES), S::pair_highs(sums[0], sums[1]));
                }
            }
        }
    }
}
