// SPDX-License-Identifier: MPL-2.0
//! The rows pass for processors with dot products of four bytes (AVX-512 VNNI). Rows of 8-bit samples stay bytes in memory. A
//! permutation in registers gathers four neighbouring samples of a channel in each lane. They are multiplied by the low and by
//! the high bytes of the taps.
//!
//! The throughput of [`super::rows::PairDotRows`] is limited by its loads: one vector for every two taps, and most vectors cross
//! a cache line. Bytes need a quarter of these loads. Products with high bytes are skipped in the tails, where these bytes are 0.
//! For 16-bit samples, each loaded pair serves two results.

use super::rows::{OUT_SLACK, ROW_SLACK, RowsPass, SourceRow};
use super::simd::x86::Avx512Vnni;
use super::simd::{BIAS, Simd};
use super::tile::{Sample, SampleRun};

/// The instruction set with these dot products.
type S = Avx512Vnni;

/// The rows pass with dot products of four bytes. For 16-bit samples, and for taps that [`super::packed_taps::ByteTaps`] cannot
/// represent, [`convolve_pairs`] multiplies in pairs.
pub struct ByteDotRows;

impl<T: Sample> RowsPass<S, T> for ByteDotRows {
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
        let Some(taps) = run.taps.row_byte_taps.as_ref().filter(|_| size_of::<T>() == 1) else {
            // SAFETY: `convolve_pairs` has the conditions of this function, which the caller guarantees for these arguments.
            return unsafe { convolve_pairs::<T, V>(s, run, sources, rows, row_words, out, width) };
        };
        let stride = run.stride;
        let rows = rows.map(<*mut u32>::cast::<u8>);
        // SAFETY: the caller guarantees that the sources hold the run's samples. Each of `rows` has four bytes for each of its
        // `row_words` words, which include the bytes that quads read beyond the last column. Slices of `rows` are bounds-checked.
        // Blocks from `direct_start` to `direct_end` read only bytes of the source row. `out` holds the `width` words that are
        // written.
        unsafe {
            let block = V * S::LANES;
            let block_bytes = 4 * (taps.low.len() - 1) * stride + block + S::QUAD_READ_BYTES;
            let sources = sources.map(|row| SourceRow::new(run, row.cast::<u8>()));
            let SourceRow { start, samples, .. } = sources[0];
            // Blocks from `direct_start` to `direct_end` read only bytes of the row, so they load from the source. The other
            // blocks load from copies of the row's ends with replicated edges.
            let direct_start = (start.min(0).unsigned_abs()).next_multiple_of(block);
            let direct_end = match (samples as isize - start - block_bytes as isize).div_euclid(block as isize) {
                last @ 0.. => direct_start.max((last as usize + 1) * block),
                _ => direct_start,
            };
            for (row, source) in rows.into_iter().zip(&sources) {
                let row = std::slice::from_raw_parts_mut(row, 4 * row_words);
                let end = width - block + block_bytes;
                if direct_start > 0 {
                    let head = &mut row[..(direct_start - block + block_bytes).min(end)];
                    source.replicate_edges(head, 0, |byte| byte, |byte| byte.read());
                }
                if direct_end < width {
                    // The first sample of this block may be any sample of a pixel.
                    let tail = SourceRow { start: start + direct_end as isize, ..*source };
                    tail.replicate_edges(&mut row[direct_end..end], 0, |byte| byte, |byte| byte.read());
                }
            }
            let indices = s.quad_indices(stride);
            // The rounding constant 2¹⁵ plus the bias of the result, 2³¹. Both are shifted right by 8 bits, because the sums are
            // shifted left by 8 bits below.
            let initial = s.splat((1 << 7) + (1 << 23));
            for x in (0..width).step_by(V * S::LANES) {
                let mut low = [[initial; V]; 2];
                let mut high = [[s.splat(0); V]; 2];
                let blocks = [0, 1].map(|r| match (direct_start..direct_end).contains(&x) {
                    true => sources[r].row.offset(start + x as isize),
                    false => rows[r].add(x),
                });
                for (m, &tap) in taps.low.iter().enumerate() {
                    let tap = s.splat(tap);
                    let high_tap = taps.high.get(m.wrapping_sub(taps.high_start)).map(|tap| s.splat(*tap));
                    for (r, row) in blocks.iter().enumerate() {
                        for v in 0..V {
                            let quads = s.load_quads(row.add(4 * m * stride + v * S::LANES), indices);
                            low[r][v] = s.dot_bytes(low[r][v], quads, tap);
                            if let Some(tap) = high_tap {
                                high[r][v] = s.dot_bytes(high[r][v], quads, tap);
                            }
                        }
                    }
                }
                for v in 0..V {
                    let first = s.shift_left(s.add(low[0][v], s.shift_left(high[0][v], 8)), 8);
                    let second = s.shift_left(s.add(low[1][v], s.shift_left(high[1][v], 8)), 8);
                    s.store(out.add(x + v * S::LANES), s.pack_high_halves(first, second));
                }
            }
        }
    }
}

/// The rows pass with dot products of two. Each row is first rearranged to pairs of neighbouring pixels, starting at every second
/// pixel: word (p, c) has channel c of the pixels 2p and 2p + 1, counted from the first pixel that is read. A pair contributes to
/// both pixels of a pair of results, with taps that are one sample apart. So half as many pairs are loaded as by
/// [`super::rows::PairDotRows`].
///
/// # Safety
/// See [`RowsPass::convolve`].
#[inline(always)]
unsafe fn convolve_pairs<T: Sample, const V: usize>(
    s: S,
    run: &SampleRun,
    sources: [*const T; 2],
    rows: [*mut u32; 2],
    row_words: usize,
    out: *mut u32,
    width: usize,
) {
    let SampleRun { taps, stride, .. } = *run;
    // The lanes of a vector that are used: those of whole pixels.
    let lanes = S::LANES / stride * stride;
    let (mut in_pair, mut results) = ([0; 32], [0; 32]);
    for lane in 0..lanes {
        let (p, c) = (lane / stride, lane % stride);
        for k in 0..2 {
            in_pair[2 * lane + k] = ((2 * p + k) * stride + c) as u16;
            results[(2 * p + k) * stride + c] = (S::LANES * k + lane) as u32;
        }
    }
    const { assert!(2 * V * S::LANES <= OUT_SLACK && (V + 1) * S::LANES <= ROW_SLACK / 2 && 64 <= ROW_SLACK) };
    // SAFETY: the caller guarantees that the sources hold the run's samples, and that `out` holds `width` + OUT_SLACK words. Of
    // the slack, vectors write less than 2 * V * LANES words. Each of `rows` holds `row_words` words. The first half of them has
    // a 16-bit sample for each column and for the halo that the taps read beyond, and ROW_SLACK elements, of which 64 are read.
    // The second half has as many samples in pairs, and ROW_SLACK / 2 words, of which less than (V + 1) * LANES are read or
    // written.
    unsafe {
        let streams = rows.map(|row| row.add(row_words / 2));
        for ((row, stream), source) in rows.into_iter().zip(streams).zip(sources) {
            let samples = std::slice::from_raw_parts_mut(row.cast::<u16>(), row_words - ROW_SLACK);
            let biased = |sample: T| sample.widen(run) as u16 ^ BIAS;
            SourceRow::new(run, source).replicate_edges(samples, 0, biased, |sample| biased(sample.read_unaligned()));
            for (i, first) in (0..row_words - ROW_SLACK).step_by(2 * lanes).enumerate() {
                s.store(stream.add(i * lanes), s.gather_pairs(row.cast::<u16>().add(first), &in_pair));
            }
        }
        let rounding = s.splat(1 << 15);
        for x in (0..width / 2).step_by(V * lanes) {
            // The sums of the first and of the second pixel of each pair, for each row.
            let (mut first, mut second) = ([[rounding; V]; 2], [[rounding; V]; 2]);
            if taps.centre_wraps[0] {
                for (k, sums) in [&mut first, &mut second].into_iter().enumerate() {
                    let centre = taps.radius[0] + k;
                    for (stream, sums) in streams.iter().zip(sums) {
                        for (v, sum) in sums.iter_mut().enumerate() {
                            let pair = s.load(stream.add(x + centre / 2 * stride + v * lanes));
                            let sample = if centre % 2 == 0 { s.shift_left(pair, 16) } else { s.mask_high(pair) };
                            *sum = s.add(*sum, sample);
                        }
                    }
                }
            }
            for (m, (&taps, &later)) in taps.rows.iter().zip(&taps.later_rows).enumerate() {
                let (taps, later) = (s.splat(taps), s.splat(later));
                for (r, stream) in streams.iter().enumerate() {
                    let pairs = stream.add(x + m * stride);
                    for (v, (first, second)) in first[r].iter_mut().zip(&mut second[r]).enumerate() {
                        let pair = s.load(pairs.add(v * lanes));
                        *first = s.dot(*first, pair, taps);
                        *second = s.dot(*second, pair, later);
                    }
                }
            }
            let [first, second] = [first, second].map(|[above, below]| above.into_iter().zip(below));
            for (v, ((above, below), (next_above, next_below))) in first.zip(second).enumerate() {
                let (one, next) = (s.pack_high_halves(above, below), s.pack_high_halves(next_above, next_below));
                let [low, high] = s.interleave(one, next, &results);
                let to = out.add(2 * (x + v * lanes));
                s.store(to, low);
                s.store(to.add(S::LANES), high);
            }
        }
    }
}
