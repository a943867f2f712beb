// SPDX-License-Identifier: MPL-2.0
//! Blurs one tile: the rows pass writes its results to the tile's scratch memory, from which the columns pass reads
//! them.
//!
//! Output is computed from top to bottom in blocks of [`BLOCK_ROWS`] rows. For each block, the rows pass convolves the
//! source rows that the block needs and that earlier blocks did not, two at a time, into a ring buffer of row pairs:
//! each word holds the 16-bit intermediate results of one column in two rows. The columns pass then reads each pair
//! once for all output rows of the block. The ring buffer is small enough to stay in the L2 cache.
//!
//! Bias: a 16-bit sample s is represented as s - 32768, so that it is a signed number. Since the taps sum to 65536, a
//! sum over biased samples is the sum over s minus 2³¹. Its high half is a biased intermediate result, so the rows pass
//! only adds the rounding constant; the columns pass starts its sums at 2³¹ plus the rounding constant. All sums wrap
//! modulo 2³².

use std::ops::Range;

use super::plain::{Unaligned16, view, view_mut};
use super::plane_rows::{DestinationRows, SourceRows};
use super::rows::{self, RowsPass};
use super::scratch::Scratch;
use super::simd::Simd;
use super::tile::{Sample, SampleRun, Tile};
use super::weights::{BLOCK_ROWS, PlaneWeights};
use crate::filter::frame::{PlaneLayout, SampleLayout, SampleRect};

/// Tiles start at multiples of this many samples: a multiple of the pixel size for 1 to 4 channels, and of every vector
/// block.
pub const TILE_STEP: usize = 192;
/// Samples in the widest vector block.
const BLOCK_MAX: usize = 64;

/// How a tile's scratch memory is divided: two source rows, the ring buffer, and temporary memory. Sizes are in words.
struct ScratchLayout {
    /// One source row with replicated edges.
    row_words: usize,
    /// One row pair of the ring buffer.
    pair_words: usize,
    /// Number of row pairs in the ring buffer.
    pairs: usize,
    /// Packed 10-10-10-2 rows unpacked to 16 bits before the rows pass, or the chroma of packed 4:2:2 after it.
    temp_words: usize,
}

impl ScratchLayout {
    fn new(layout: &PlaneLayout, weights: &PlaneWeights, width: usize) -> Self {
        let pair_words = width.next_multiple_of(BLOCK_MAX);
        let channels = usize::from(layout.channels);
        let radius = weights.chroma.iter().chain([&weights.all]).map(|weights| weights.radius[0]).max().unwrap_or(0);
        let row_words = rows::row_words(pair_words, channels, radius);
        let temp_words = match layout.sample_layout {
            // Two rows of 16-bit samples, each one pixel longer than the part that the rows pass reads.
            SampleLayout::Packed1010102 => row_words + channels,
            SampleLayout::Yuv422 { .. } => pair_words,
            _ => 0,
        };
        Self { row_words, pair_words, pairs: weights.all.block_pairs(), temp_words }
    }

    fn words(&self) -> usize {
        2 * self.row_words + self.pairs * self.pair_words + self.temp_words
    }
}

/// Words of scratch memory for blurring a tile.
pub fn scratch_words(tile: &Tile) -> usize {
    ScratchLayout::new(&tile.layout, tile.weights, tile.region.width).words()
}

/// Blurs the tile's region with the vector operations of `S`, `V` vectors at a time. `scratch` was reserved for
/// [`scratch_words`] of the tile.
///
/// # Safety
/// The tile's source holds every row of the plane, which nobody writes, and its destination the region, which nobody else
/// accesses.
#[inline(always)]
pub unsafe fn blur<S: Simd, R: RowsPass<S, u8> + RowsPass<S, Unaligned16>, const V: usize>(
    simd: S,
    tile: &Tile,
    scratch: &mut Scratch,
) {
    let SampleRect { x, width, .. } = tile.region;
    // A pixel of 10-10-10-2 has four bytes and four samples.
    let is_packed = tile.layout.sample_layout == SampleLayout::Packed1010102;
    let bytes = if is_packed { 1 } else { tile.layout.sample_bytes() };
    // SAFETY: the rows of the source have this many bytes, and the caller guarantees the rest.
    let source = unsafe { SourceRows::new(tile.source, tile.layout.row_bytes()) };
    // SAFETY: these are the bytes of the region, and the caller guarantees the rest.
    let destination = unsafe { DestinationRows::new(tile.destination, bytes * x..bytes * (x + width)) };
    match tile.layout.sample_bytes() {
        1 => blur_samples::<S, u8, R, V>(simd, tile, source, destination, scratch),
        _ => blur_samples::<S, Unaligned16, R, V>(simd, tile, source, destination, scratch),
    }
}

/// Blurs the tile's region, with samples stored as `T`.
#[inline(always)]
fn blur_samples<S: Simd, T: Sample, R: RowsPass<S, T>, const V: usize>(
    simd: S,
    tile: &Tile,
    source: SourceRows,
    mut destination: DestinationRows,
    scratch: &mut Scratch,
) {
    let SampleRect { y: top, width, height, .. } = tile.region;
    let scratch_layout = ScratchLayout::new(&tile.layout, tile.weights, width);
    let ScratchLayout { row_words, pair_words, pairs, temp_words } = scratch_layout;
    let (rows, memory) = scratch.words().split_at_mut(2 * row_words);
    let (first_row, second_row) = rows.split_at_mut(row_words);
    let (ring, memory) = memory.split_at_mut(pairs * pair_words);
    let temp = &mut memory[..temp_words];
    let radius = tile.weights.all.radius[1];
    let source_rows = |j: usize| {
        let first = (top + 2 * j) as isize - radius as isize;
        [first, first + 1].map(|y| y.clamp(0, tile.layout.height as isize - 1) as usize)
    };
    let run = tile.sample_run();

    let mut filled = 0;
    for block in (0..height).step_by(BLOCK_ROWS) {
        let first_pair = block / 2;
        while filled < first_pair + pairs {
            let ys = source_rows(filled);
            let [previous, start] = [filled.wrapping_sub(1), filled].map(|j| j % pairs * pair_words);
            if filled > 0 && ys == source_rows(filled - 1) && ys[0] == ys[1] {
                // Beyond the plane's first or last row, that row is repeated, so the previous pair is right here
                // too.
                ring.copy_within(previous..previous + pair_words, start);
            } else {
                let out = &mut ring[start..start + pair_words];
                let sources = ys.map(|y| source.row(y));
                if tile.layout.sample_layout == SampleLayout::Packed1010102 {
                    let (first, second) = view_mut::<u32, u16>(temp).split_at_mut(temp_words);
                    let unpacked = [(first, ys[0]), (second, ys[1])];
                    let [run, _] = unpacked.map(|(to, y)| unpack_1010102(&run, source.row(y), to));
                    let (first, second) = view::<u32, u8>(temp).split_at(2 * temp_words);
                    R::convolve::<V>(simd, &run, [first, second].map(view), [first_row, second_row], out);
                } else {
                    R::convolve::<V>(simd, &run, sources, [first_row, second_row], out);
                }
                if let (Some(run), SampleLayout::Yuv422 { luma }) = (tile.chroma_run(), tile.layout.sample_layout) {
                    R::convolve::<V>(simd, &run, sources, [first_row, second_row], temp);
                    // Luma and chroma samples alternate: one of two adjacent words is chroma.
                    let is_chroma = |i: usize| if i % 2 == usize::from(luma) { 0 } else { u32::MAX };
                    let mask = simd.load(&std::array::from_fn::<u32, 16, _>(is_chroma));
                    for (words, chroma) in out.chunks_exact_mut(S::LANES).zip(temp.chunks_exact(S::LANES)) {
                        let luma = simd.load(words);
                        let changed = simd.and(simd.xor(luma, simd.load(chroma)), mask);
                        simd.store(words, simd.xor(luma, changed));
                    }
                }
            }
            filled += 1;
        }
        let rows = top + block..top + height.min(block + BLOCK_ROWS);
        columns_pass::<S, T, V>(simd, tile, ring, &scratch_layout, first_pair, rows, &mut destination);
    }
}

/// Unpacks those pixels of a 10-10-10-2 row that the rows pass reads to MSB-aligned 16-bit samples. Returns the run in them.
#[inline(always)]
fn unpack_1010102<'a>(run: &SampleRun<'a>, row: &[[u8; 4]], to: &mut [u16]) -> SampleRun<'a> {
    let start = run.x as isize - (run.weights.radius[0] * 4) as isize;
    // The division has no remainder, because tiles and radii are whole pixels.
    let first = start.max(0) as usize / 4;
    let last = (run.samples / 4).min(((start + to.len() as isize).max(0) as usize) / 4);
    for (samples, pixel) in to.as_chunks_mut::<4>().0.iter_mut().zip(&row[first..last]) {
        let word = u64::from(u32::from_ne_bytes(*pixel));
        let four =
            (word & 0x3ff) << 6 | (word & 0xf_fc00) << 12 | (word & 0x3ff0_0000) << 18 | (word & 0xc000_0000) << 32;
        *samples = [0, 16, 32, 48].map(|shift| (four >> shift) as u16);
    }
    SampleRun { x: run.x - 4 * first, samples: 4 * (last - first), ..*run }
}

/// Packs the high halves of a pixel's four sums, MSB-aligned 16-bit samples, to a 10-10-10-2 word; truncates.
#[inline(always)]
pub fn pack_1010102(sums: [u16; 4]) -> u32 {
    let four = (0..4).map(|c| u64::from(sums[c]) << (16 * c)).sum::<u64>();
    (four >> 6 & 0x3ff | four >> 12 & 0xf_fc00 | four >> 18 & 0x3ff0_0000 | four >> 32 & 0xc000_0000) as u32
}

/// The columns pass: computes up to [`BLOCK_ROWS`] output rows of the plane from the ring buffer's row pairs from `first_pair` on,
/// all of which it holds.
#[inline(always)]
fn columns_pass<S: Simd, T: Sample, const V: usize>(
    simd: S,
    tile: &Tile,
    ring: &[u32],
    &ScratchLayout { pair_words, pairs, .. }: &ScratchLayout,
    first_pair: usize,
    rows: Range<usize>,
    destination: &mut DestinationRows,
) {
    let block = V * S::LANES;
    let weights = &tile.weights.all;
    let is_packed = tile.layout.sample_layout == SampleLayout::Packed1010102;
    let (right_shift, left_shift) = (32 - u32::from(tile.layout.depth), u32::from(tile.layout.shift()));
    // 2³¹ removes the bias; half a unit of the output sample rounds it. Every fourth sample of 10-10-10-2 has 2 bits,
    // so its unit is larger.
    let initial_sum = |x: usize| 1 << 31 | if is_packed && x % 4 == 3 { 1 << 29 } else { 1 << (right_shift - 1) };
    let initial: [u32; 16] = std::array::from_fn(initial_sum);
    let head = first_pair % pairs;
    // A column of the ring buffer is read from its head to its end, then from its start. Every pair is added to every sum: the
    // taps of rows beyond the radius are 0.
    let (from_head, from_start) = weights.columns.as_chunks::<BLOCK_ROWS>().0[..pairs].split_at(pairs - head);
    assert!(tile.region.width.next_multiple_of(block) <= pair_words && pairs * pair_words <= ring.len());
    for x in (0..tile.region.width).step_by(block) {
        let mut sums = [[simd.load(&initial); V]; BLOCK_ROWS];
        if weights.centre_wraps[1] {
            for (n, sums) in sums.iter_mut().enumerate() {
                let row = weights.radius[1] + n;
                let pair = &ring[(head + row / 2) % pairs * pair_words + x..][..block];
                for (sum, words) in sums.iter_mut().zip(pair.chunks_exact(S::LANES)) {
                    let words = simd.load(words);
                    let centre = if row.is_multiple_of(2) { simd.shift_left(words, 16) } else { simd.mask_high(words) };
                    *sum = simd.add(*sum, centre);
                }
            }
        }
        for (weights, first) in [(from_head, head), (from_start, 0)] {
            for (j, weights) in weights.iter().enumerate() {
                let from = (first + j) * pair_words + x;
                // SAFETY: `first + j` is less than `pairs`, and `x + block` at most `pair_words`, so that the block ends within
                // the ring buffer, as asserted above. With a check here the sums would be in memory instead of registers.
                let pair = unsafe { ring.get_unchecked(from..from + block) };
                let samples: [S::Vector; V] = std::array::from_fn(|v| simd.load(&pair[v * S::LANES..]));
                for (sums, weight) in sums.iter_mut().zip(weights) {
                    let weight = simd.splat(*weight);
                    for (sum, samples) in sums.iter_mut().zip(samples) {
                        *sum = simd.dot(*sum, samples, weight);
                    }
                }
            }
        }
        // A copy, because the loop's index is not known: it would keep the sums in memory in the loops above, too.
        let results: [[S::Vector; V]; BLOCK_ROWS] = std::array::from_fn(|n| sums[n]);
        for (y, sums) in rows.clone().zip(&results) {
            let samples = (tile.region.width - x).min(block);
            if is_packed {
                let mut partial = [0_u8; 2 * BLOCK_MAX];
                T::store(simd, &mut partial, *sums, 16, 0);
                let out = destination.row::<[u8; 4]>(y)[x / 4..].iter_mut();
                for (pixel, four) in out.zip(&view::<_, [[u8; 2]; 4]>(&partial)[..samples / 4]) {
                    *pixel = pack_1010102(four.map(u16::from_ne_bytes)).to_ne_bytes();
                }
                continue;
            }
            let out = &mut destination.row(y)[size_of::<T>() * x..][..size_of::<T>() * samples];
            if samples == block {
                T::store(simd, out, *sums, right_shift, left_shift);
            } else {
                let mut partial = [0_u8; 2 * BLOCK_MAX];
                T::store(simd, &mut partial, *sums, right_shift, left_shift);
                out.copy_from_slice(&partial[..out.len()]);
            }
        }
    }
}
