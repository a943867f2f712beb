// SPDX-License-Identifier: MPL-2.0
//! The walk down a tile: rows pass, columns pass, nothing but the tile's own scratch in between.
//!
//! The tile walks down its region [`BLOCK_ROWS`] rows at a time. Source rows go through the rows pass two by two and
//! land in a ring of row pairs, one word holding the 16-bit intermediate of the same column in two rows. The columns
//! pass then reads each pair once for a whole block of output rows. The ring stays in the L2 cache.
//!
//! Bias: a sample s is held as s - 32768. Since the taps sum to 65536, a sum over biased samples is the true sum minus
//! 2³¹, and both constants go into the value the sum starts with. All of it wraps modulo 2³².

use super::OutOfMemory;
use super::rows::{self, RowsPass};
use super::scratch::Scratch;
use super::simd::Simd;
use super::tile::{Run, Sample, Tile};
use super::weights::{BLOCK_ROWS, PlaneWeights};
use crate::frame::{Pixels, PlaneLayout, Region};

/// Tiles start at multiples of this many samples: whole pixels for 1 to 4 channels, and whole vector blocks.
pub const TILE_STEP: usize = 192;
/// Samples in the widest vector block.
const BLOCK_MAX: usize = 64;

/// How a tile's scratch is divided, in words.
struct Room {
    /// Length of one expanded source row.
    row: usize,
    /// Length of one row pair of the ring.
    pair: usize,
    /// Row pairs in the ring.
    pairs: usize,
    /// What rows are unpacked to before the pass, or the chroma of packed 4:2:2 after it.
    spare: usize,
}

impl Room {
    fn new(layout: &PlaneLayout, weights: &PlaneWeights, width: usize) -> Self {
        let pair = width.next_multiple_of(BLOCK_MAX);
        let channels = usize::from(layout.channels);
        let radius = weights.chroma.iter().chain([&weights.all]).map(|weights| weights.radius[0]).max().unwrap_or(0);
        let row = rows::room(pair, channels, radius);
        let spare = match layout.pixels {
            // Two rows of 16-bit samples, one pixel longer than what is read of them.
            Pixels::Ten => row + channels,
            Pixels::Yuv422 { .. } => pair,
            _ => 0,
        };
        Self { row, pair, pairs: weights.all.block_pairs(), spare }
    }

    fn words(&self) -> usize {
        2 * self.row + self.pairs * self.pair + self.spare
    }
}

/// Words that a tile `width` samples wide takes, at most.
pub fn reserve(
    scratch: &mut Scratch,
    layout: &PlaneLayout,
    weights: &PlaneWeights,
    width: usize,
) -> Result<(), OutOfMemory> {
    scratch.reserve(Room::new(layout, weights, width).words())
}

/// Blurs the tile's region with the operations of `S`, `V` vectors at a time.
///
/// # Safety
/// The processor has the instruction set of `S`; the tile's pointers hold its plane; `scratch` was reserved for it; no
/// other thread writes the region.
#[inline(always)]
pub unsafe fn blur<S: Simd, R: RowsPass<S, u8> + RowsPass<S, u16>, const V: usize>(tile: &Tile, scratch: &mut Scratch) {
    // SAFETY: passed on.
    unsafe {
        match tile.layout.sample_bytes() {
            1 => blur_samples::<S, u8, R, V>(tile, scratch),
            _ => blur_samples::<S, u16, R, V>(tile, scratch),
        }
    }
}

#[inline(always)]
unsafe fn blur_samples<S: Simd, T: Sample, R: RowsPass<S, T>, const V: usize>(tile: &Tile, scratch: &mut Scratch) {
    let Region { y: top, width, height, .. } = tile.region;
    let room = Room::new(&tile.layout, tile.weights, width);
    let rows = [0, 1].map(|i| scratch.words().wrapping_add(i * room.row));
    let ring = scratch.words().wrapping_add(2 * room.row);
    let spare = ring.wrapping_add(room.pairs * room.pair);
    let slot = |j: usize| ring.wrapping_add(j % room.pairs * room.pair);
    let radius = tile.weights.all.radius[1];
    let source_rows = |j: usize| {
        let first = (top + 2 * j) as isize - radius as isize;
        [first, first + 1].map(|y| y.clamp(0, tile.layout.height as isize - 1) as usize)
    };
    let run = tile.run();

    let mut filled = 0;
    for block in (0..height).step_by(BLOCK_ROWS) {
        let first_pair = block / 2;
        while filled < first_pair + room.pairs {
            let ys = source_rows(filled);
            // SAFETY: rows, slots and spare room lie in the reserved scratch, source rows in the plane.
            unsafe {
                if filled > 0 && ys == source_rows(filled - 1) && ys[0] == ys[1] {
                    // Beyond the plane's edge the same row comes again.
                    slot(filled - 1).copy_to_nonoverlapping(slot(filled), room.pair);
                } else {
                    let mut sources = ys.map(|y| tile.src.add(y * tile.src_pitch).cast::<T>());
                    if tile.layout.pixels == Pixels::Ten {
                        let spares = [0, 1].map(|i| spare.cast::<u16>().add(i * room.spare));
                        sources = [0, 1].map(|i| unpack_ten(&run, sources[i].cast(), spares[i], room.spare).cast());
                    }
                    R::filter::<V>(&run, sources, rows, room.row, slot(filled), room.pair);
                    if let (Some(run), Pixels::Yuv422 { luma }) = (tile.chroma_run(), tile.layout.pixels) {
                        R::filter::<V>(&run, sources, rows, room.row, spare, room.pair);
                        // Of two words side by side one is chroma.
                        let keep = if luma == 0 { 0xffff_ffff_u64.to_le() } else { 0xffff_ffff_u64.to_be() };
                        let all = std::slice::from_raw_parts_mut(slot(filled).cast::<u64>(), room.pair / 2);
                        for (i, all) in all.iter_mut().enumerate() {
                            *all = *all & keep | *spare.cast::<u64>().add(i) & !keep;
                        }
                    }
                }
            }
            filled += 1;
        }
        // SAFETY: the ring holds the block's pairs, the region's rows are the tile's own.
        unsafe { columns_pass::<S, T, V>(tile, ring, &room, first_pair, top + block, BLOCK_ROWS.min(height - block)) };
    }
}

/// Spreads the words that a run's pass reads to 16-bit samples, from `to` on; gives where sample 0 of the row would be.
///
/// # Safety
/// The row holds the run's samples; `to` takes `room` of them.
#[inline(always)]
unsafe fn unpack_ten(run: &Run, row: *const u32, to: *mut u16, room: usize) -> *const u16 {
    let start = run.x as isize - (run.weights.radius[0] * 4) as isize;
    // Whole pixels, because tiles begin with one.
    let first = start.max(0) as usize / 4;
    let last = (run.samples / 4).min(((start + room as isize).max(0) as usize) / 4);
    for (i, pixel) in (first..last).enumerate() {
        // SAFETY: a pixel of the row, and room for it.
        unsafe {
            let word = u64::from(row.add(pixel).read_unaligned());
            let four =
                (word & 0x3ff) << 6 | (word & 0xf_fc00) << 12 | (word & 0x3ff0_0000) << 18 | (word & 0xc000_0000) << 32;
            let samples = [0, 16, 32, 48].map(|place| (four >> place) as u16);
            to.add(4 * i).cast::<[u16; 4]>().write_unaligned(samples);
        }
    }
    to.wrapping_sub(4 * first)
}

/// A word of the highest 16 bits of four sums.
#[inline(always)]
fn pack_ten(sums: [u16; 4]) -> u32 {
    let four = (0..4).map(|c| u64::from(sums[c]) << (16 * c)).sum::<u64>();
    (four >> 6 & 0x3ff | four >> 12 & 0xf_fc00 | four >> 18 & 0x3ff0_0000 | four >> 32 & 0xc000_0000) as u32
}

/// One block of up to [`BLOCK_ROWS`] output rows, from `y` on, from the ring's row pairs from `first_pair` on.
#[inline(always)]
unsafe fn columns_pass<S: Simd, T: Sample, const V: usize>(
    tile: &Tile,
    ring: *const u32,
    room: &Room,
    first_pair: usize,
    y: usize,
    rows: usize,
) {
    let block = V * S::LANES;
    let weights = &tile.weights.all;
    let ten = tile.layout.pixels == Pixels::Ten;
    let (down, up) = (32 - u32::from(tile.layout.depth), u32::from(tile.layout.low_bit()));
    // The bias of the samples, and half of what is cut off; of words of tens that of every fourth sample is larger.
    let half = |x: usize| 1 << 31 | if ten && x % 4 == 3 { 1 << 29 } else { 1 << (down - 1) };
    let start: [u32; 16] = std::array::from_fn(half);
    let head = first_pair % room.pairs;
    let at = |j: usize, x: usize| ring.wrapping_add((head + j) % room.pairs * room.pair + x);
    for x in (0..tile.region.width).step_by(block) {
        // SAFETY: every pair and column lies in the ring; output columns end with the region.
        unsafe {
            let mut sums = [[S::load(start.as_ptr()); V]; BLOCK_ROWS];
            if weights.centre_wraps[1] {
                for (n, sums) in sums.iter_mut().enumerate() {
                    let row = weights.radius[1] + n;
                    for (v, sum) in sums.iter_mut().enumerate() {
                        let pair = S::load(at(row / 2, x + v * S::LANES));
                        let centre = if row.is_multiple_of(2) { S::shift_left(pair, 16) } else { S::keep_high(pair) };
                        *sum = S::add(*sum, centre);
                    }
                }
            }
            let mut weigh = |j: usize, pair: *const u32, first: usize, last: usize| {
                let samples: [S::Vector; V] = std::array::from_fn(|v| S::load(pair.add(v * S::LANES)));
                let weights = weights.columns.as_ptr().add(j * BLOCK_ROWS);
                for (n, sums) in sums[..last].iter_mut().enumerate().skip(first) {
                    let weight = S::splat(*weights.add(n));
                    for (sum, samples) in sums.iter_mut().zip(samples) {
                        *sum = S::dot(*sum, samples, weight);
                    }
                }
            };
            // The first pair of rows is beyond the reach of the block's last two rows, the last pair beyond that of its
            // first two. Between them the ring is read from its head to its end, then from its start.
            let turn = room.pairs - head;
            for (from, to) in [(0, turn), (turn, room.pairs)] {
                let mut pair = at(from, x);
                for j in from..to {
                    weigh(j, pair, 0, BLOCK_ROWS);
                    pair = pair.wrapping_add(room.pair);
                }
            }
            for (n, sums) in sums.iter().enumerate().take(rows) {
                let row = tile.dst.add((y + n) * tile.dst_pitch);
                let mut line = [T::default(); BLOCK_MAX];
                let samples = (tile.region.width - x).min(block);
                if ten {
                    T::store::<S, V>(line.as_mut_ptr(), *sums, 16, 0);
                    let out = row.cast::<u32>().add((tile.region.x + x) / 4);
                    for pixel in 0..samples / 4 {
                        let four = line.as_ptr().cast::<[u16; 4]>().add(pixel).read_unaligned();
                        out.add(pixel).write_unaligned(pack_ten(four));
                    }
                    continue;
                }
                let out = row.cast::<T>().add(tile.region.x + x);
                let whole = samples == block;
                T::store::<S, V>(if whole { out } else { line.as_mut_ptr() }, *sums, down, up);
                if !whole {
                    out.cast::<u8>().copy_from(line.as_ptr().cast(), samples * size_of::<T>());
                }
            }
        }
    }
}
