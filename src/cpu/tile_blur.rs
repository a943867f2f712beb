// SPDX-License-Identifier: MPL-2.0
//! Blurs one tile. The rows pass writes its results to scratch memory, and the columns pass reads them from there.
//!
//! Output is computed from top to bottom in blocks of [`BLOCK_ROWS`] rows. For each block, the rows pass convolves the source
//! rows that no earlier block needed. It convolves two rows at a time into a ring buffer of row pairs, in which each word holds
//! the 16-bit intermediate results of one column in two rows. The columns pass then reads each pair once for all output rows of
//! the block. The ring buffer is small enough to stay in the L2 cache.
//!
//! Bias: a 16-bit sample s is represented as s - 32768, so that it is a signed number. Since the taps sum to 65536, a sum over
//! biased samples is the sum over s minus 2³¹. Its high half is a biased intermediate result, so the rows pass only adds the
//! rounding constant. The columns pass starts its sums at 2³¹ plus the rounding constant. All sums wrap modulo 2³².

use super::packed_taps::BLOCK_ROWS;
use super::rows::{self, RowsPass};
use super::scratch::Scratch;
use super::simd::Simd;
use super::tile::{Sample, SampleRect, SampleRun, Tile};
use crate::filter::frame::SampleLayout;

/// Tiles start at multiples of this many samples. It is a multiple of the pixel size for 1 to 4 channels, and of every block of
/// vectors.
pub const TILE_STEP: usize = 192;
/// The number of samples in the largest block of vectors.
const BLOCK_MAX: usize = 64;

/// How a tile's scratch memory is divided: two source rows, the ring buffer, and temporary memory. Sizes are in words.
struct ScratchLayout {
    /// The words of one source row with replicated edges.
    row_words: usize,
    /// The columns of a row pair of the ring buffer.
    width: usize,
    /// The words of one row pair of the ring buffer, including those that vectors write beyond it.
    pair_words: usize,
    /// The number of row pairs in the ring buffer.
    pairs: usize,
    /// The words for 10-10-10-2 rows that are unpacked to 16 bits before the rows pass, or for the chroma of packed 4:2:2 after
    /// it.
    temp_words: usize,
}

impl ScratchLayout {
    fn new(Tile { layout, taps, region, .. }: &Tile) -> Self {
        let width = region.width.next_multiple_of(BLOCK_MAX);
        let pair_words = width + rows::OUT_SLACK;
        let channels = usize::from(layout.channels);
        let radius = taps.chroma.iter().chain([&taps.all]).map(|taps| taps.radius[0]).max().unwrap_or(0);
        let row_words = rows::row_words(width, channels, radius);
        let temp_words = if layout.is_packed_word() {
            // This is enough for two rows of 16-bit samples, each one pixel longer than the part that the rows pass reads.
            row_words - rows::ROW_SLACK + channels
        } else if layout.is_packed_422() {
            pair_words
        } else {
            0
        };
        Self { row_words, width, pair_words, pairs: taps.all.block_pairs(), temp_words }
    }
}

/// The words of scratch memory for blurring a tile.
pub fn scratch_words(tile: &Tile) -> usize {
    let layout = ScratchLayout::new(tile);
    2 * layout.row_words + layout.pairs * layout.pair_words + layout.temp_words
}

/// Blurs the region of the tile with the vector operations of `S`, `V` vectors at a time.
///
/// # Safety
/// The source of the tile is valid for reading every row of the plane, and the destination for writing the region. `scratch` was
/// reserved for [`scratch_words`] of the tile. No other thread accesses the region of the destination.
#[inline(always)]
pub unsafe fn blur<S: Simd, R: RowsPass<S, u8> + RowsPass<S, u16>, const V: usize>(
    s: S,
    tile: &Tile,
    scratch: &mut Scratch,
) {
    // SAFETY: the caller guarantees valid planes, reserved scratch memory and exclusive access to the region. Samples of 1 byte
    // are `u8`, and samples of 2 bytes are `u16`.
    unsafe {
        match tile.layout.sample_bytes() {
            1 => blur_samples::<S, u8, R, V>(s, tile, scratch),
            _ => blur_samples::<S, u16, R, V>(s, tile, scratch),
        }
    }
}

/// Blurs the region of the tile, with samples stored as `T`.
///
/// # Safety
/// The conditions of [`blur`] hold, and `T` is the type of the plane's samples.
#[inline(always)]
unsafe fn blur_samples<S: Simd, T: Sample, R: RowsPass<S, T>, const V: usize>(
    s: S,
    tile: &Tile,
    scratch: &mut Scratch,
) {
    let SampleRect { y: top, height, .. } = tile.region;
    let scratch_layout = ScratchLayout::new(tile);
    let ScratchLayout { row_words, width, pair_words, pairs, temp_words } = scratch_layout;
    let rows = [0, 1].map(|i| scratch.words().wrapping_add(i * row_words));
    let ring = scratch.words().wrapping_add(2 * row_words);
    let temp = ring.wrapping_add(pairs * pair_words);
    let ring_pair = |j: usize| ring.wrapping_add(j % pairs * pair_words);
    let radius = tile.taps.all.radius[1];
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
            // SAFETY: `rows`, the ring buffer and `temp` are disjoint parts of the reserved scratch memory, as large as
            // `scratch_layout` says. `source_rows` limits row numbers to the plane, and the caller guarantees that its rows are
            // readable.
            unsafe {
                if filled > 0 && ys == source_rows(filled - 1) && ys[0] == ys[1] {
                    // Beyond the first and the last row of the plane, that row repeats, so the previous pair has the same values.
                    ring_pair(filled - 1).copy_to_nonoverlapping(ring_pair(filled), width);
                } else {
                    let mut sources = ys.map(|y| tile.source.row(y).cast::<T>());
                    if tile.layout.is_packed_word() {
                        let unpacked = [0, 1].map(|i| temp.cast::<u16>().add(i * temp_words));
                        sources =
                            [0, 1].map(|i| unpack_1010102(&run, sources[i].cast(), unpacked[i], temp_words).cast());
                    }
                    R::convolve::<V>(s, &run, sources, rows, row_words, ring_pair(filled), width);
                    if let (Some(run), SampleLayout::Yuv422 { luma }) = (tile.chroma_run(), tile.layout.sample_layout) {
                        R::convolve::<V>(s, &run, sources, rows, row_words, temp, width);
                        // Luma and chroma samples alternate: one of two adjacent words is chroma.
                        let luma_mask = if luma == 0 { 0xffff_ffff_u64.to_le() } else { 0xffff_ffff_u64.to_be() };
                        let words = std::slice::from_raw_parts_mut(ring_pair(filled).cast::<u64>(), width / 2);
                        for (i, word) in words.iter_mut().enumerate() {
                            *word = *word & luma_mask | *temp.cast::<u64>().add(i) & !luma_mask;
                        }
                    }
                }
            }
            filled += 1;
        }
        let block_rows = BLOCK_ROWS.min(height - block);
        // SAFETY: the loop above has filled the ring buffer with all row pairs of the block. The rows of the block are in the
        // region, which the caller guarantees is writable and accessed by no other thread.
        unsafe { columns_pass::<S, T, V>(s, tile, ring, &scratch_layout, first_pair, top + block, block_rows) };
    }
}

/// Unpacks the pixels of a 10-10-10-2 row that the rows pass reads to MSB-aligned 16-bit samples at `to`. Returns the address at
/// which sample 0 of the row would lie, before the unpacked ones.
///
/// # Safety
/// `row` is valid for reading the run's samples, and `to` for writing `capacity` samples.
#[inline(always)]
unsafe fn unpack_1010102(run: &SampleRun, row: *const u32, to: *mut u16, capacity: usize) -> *const u16 {
    let start = run.x as isize - (run.taps.radius[0] * 4) as isize;
    // The division has no remainder, because tiles and radii are whole pixels.
    let first = start.max(0) as usize / 4;
    let last = (run.samples / 4).min(((start + capacity as isize).max(0) as usize) / 4);
    for (i, pixel) in (first..last).enumerate() {
        // SAFETY: `pixel` is less than the run's samples / 4, so it lies in the row. `last` limits the written samples to
        // `capacity`.
        unsafe {
            let word = u64::from(row.add(pixel).read_unaligned());
            let four =
                (word & 0x3ff) << 6 | (word & 0xf_fc00) << 12 | (word & 0x3ff0_0000) << 18 | (word & 0xc000_0000) << 32;
            let samples = [0, 16, 32, 48].map(|shift| (four >> shift) as u16);
            to.add(4 * i).cast::<[u16; 4]>().write_unaligned(samples);
        }
    }
    to.wrapping_sub(4 * first)
}

/// Packs the four samples of a pixel, MSB-aligned in 16 bits, to a 10-10-10-2 word. Lower bits are truncated.
#[inline(always)]
pub fn pack_1010102(sums: [u16; 4]) -> u32 {
    let four = (0..4).map(|c| u64::from(sums[c]) << (16 * c)).sum::<u64>();
    (four >> 6 & 0x3ff | four >> 12 & 0xf_fc00 | four >> 18 & 0x3ff0_0000 | four >> 32 & 0xc000_0000) as u32
}

/// The columns pass. Computes `rows` output rows, at most [`BLOCK_ROWS`], from row `y` of the plane on. Reads the row pairs of
/// the ring buffer from `first_pair` on.
///
/// # Safety
/// The conditions of [`blur`] hold, the ring buffer holds all row pairs of the block, and the `rows` rows from `y` on are in the
/// region of the tile.
#[inline(always)]
unsafe fn columns_pass<S: Simd, T: Sample, const V: usize>(
    s: S,
    tile: &Tile,
    ring: *const u32,
    scratch_layout: &ScratchLayout,
    first_pair: usize,
    y: usize,
    rows: usize,
) {
    let block = V * S::LANES;
    let taps = &tile.taps.all;
    let is_packed = tile.layout.is_packed_word();
    let (right_shift, left_shift) = (32 - u32::from(tile.layout.depth), u32::from(tile.layout.shift()));
    // The constant 2³¹ removes the bias, and half a unit of the output sample rounds it. Every fourth sample of 10-10-10-2 has 2
    // bits, so its unit is larger.
    let initial_sum = |x: usize| 1 << 31 | if is_packed && x % 4 == 3 { 1 << 29 } else { 1 << (right_shift - 1) };
    let initial: [u32; 16] = std::array::from_fn(initial_sum);
    let head = first_pair % scratch_layout.pairs;
    let ring_word =
        |j: usize, x: usize| ring.wrapping_add((head + j) % scratch_layout.pairs * scratch_layout.pair_words + x);
    for x in (0..tile.region.width).step_by(block) {
        // SAFETY: `ring_word` and the loop over pairs stay in the ring buffer, whose pairs are whole blocks of vectors. Output
        // columns end with the region. The last block, if it is partial, is copied from `block_samples`.
        unsafe {
            let mut sums = [[s.load(initial.as_ptr()); V]; BLOCK_ROWS];
            if taps.centre_wraps[1] {
                for (n, sums) in sums.iter_mut().enumerate() {
                    let row = taps.radius[1] + n;
                    for (v, sum) in sums.iter_mut().enumerate() {
                        let pair = s.load(ring_word(row / 2, x + v * S::LANES));
                        let centre = if row.is_multiple_of(2) { s.shift_left(pair, 16) } else { s.mask_high(pair) };
                        *sum = s.add(*sum, centre);
                    }
                }
            }
            let mut accumulate = |j: usize, pair: *const u32| {
                let samples: [S::Vector; V] = std::array::from_fn(|v| s.load(pair.add(v * S::LANES)));
                let taps = taps.columns.as_ptr().add(j * BLOCK_ROWS);
                for (n, sums) in sums.iter_mut().enumerate() {
                    let weight = s.splat(*taps.add(n));
                    for (sum, samples) in sums.iter_mut().zip(samples) {
                        *sum = s.dot(*sum, samples, weight);
                    }
                }
            };
            // The ring buffer is read from its head to its end, then from its start. Every pair is added to every sum, because
            // the taps of rows beyond the radius are 0.
            let pairs_to_ring_end = scratch_layout.pairs - head;
            for (from, to) in [(0, pairs_to_ring_end), (pairs_to_ring_end, scratch_layout.pairs)] {
                let mut pair = ring_word(from, x);
                for j in from..to {
                    accumulate(j, pair);
                    pair = pair.wrapping_add(scratch_layout.pair_words);
                }
            }
            for (n, sums) in sums.iter().enumerate().take(rows) {
                let row = tile.destination.row(y + n);
                let mut block_samples = [T::default(); BLOCK_MAX];
                let samples = (tile.region.width - x).min(block);
                if is_packed {
                    T::store(s, block_samples.as_mut_ptr(), *sums, 16, 0);
                    let out = row.cast::<u32>().add((tile.region.x + x) / 4);
                    for pixel in 0..samples / 4 {
                        let four = block_samples.as_ptr().cast::<[u16; 4]>().add(pixel).read_unaligned();
                        out.add(pixel).write_unaligned(pack_1010102(four));
                    }
                    continue;
                }
                let out = row.cast::<T>().add(tile.region.x + x);
                let is_full = samples == block;
                T::store(s, if is_full { out } else { block_samples.as_mut_ptr() }, *sums, right_shift, left_shift);
                if !is_full {
                    out.cast::<u8>().copy_from(block_samples.as_ptr().cast(), samples * size_of::<T>());
                }
            }
        }
    }
}
