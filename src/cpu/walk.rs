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
use super::tile::{Sample, Tile};
use super::weights::{BLOCK_ROWS, Weights};
use crate::frame::{PlaneLayout, Region};

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
}

impl Room {
    fn new(layout: &PlaneLayout, weights: &Weights, width: usize) -> Self {
        let pair = width.next_multiple_of(BLOCK_MAX);
        let row = rows::room(pair, usize::from(layout.channels), weights.radius[0]);
        Self { row, pair, pairs: weights.block_pairs() }
    }

    fn words(&self) -> usize {
        2 * self.row + self.pairs * self.pair
    }
}

/// Words that a tile `width` samples wide takes, at most.
pub fn reserve(
    scratch: &mut Scratch,
    layout: &PlaneLayout,
    weights: &Weights,
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
    let slot = |j: usize| ring.wrapping_add(j % room.pairs * room.pair);
    let source_rows = |j: usize| {
        let first = (top + 2 * j) as isize - tile.weights.radius[1] as isize;
        [first, first + 1].map(|y| y.clamp(0, tile.layout.height as isize - 1) as usize)
    };

    let mut filled = 0;
    for block in (0..height).step_by(BLOCK_ROWS) {
        let first_pair = block / 2;
        while filled < first_pair + room.pairs {
            let sources = source_rows(filled);
            // SAFETY: rows and slots lie in the reserved scratch, source rows in the plane.
            unsafe {
                if filled > 0 && sources == source_rows(filled - 1) && sources[0] == sources[1] {
                    // Beyond the plane's edge the same row comes again.
                    slot(filled - 1).copy_to_nonoverlapping(slot(filled), room.pair);
                } else {
                    R::filter::<V>(tile, sources, rows, room.row, slot(filled), room.pair);
                }
            }
            filled += 1;
        }
        // SAFETY: the ring holds the block's pairs, the region's rows are the tile's own.
        unsafe { columns_pass::<S, T, V>(tile, ring, &room, first_pair, top + block, BLOCK_ROWS.min(height - block)) };
    }
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
    let down = 32 - u32::from(tile.layout.depth);
    let head = first_pair % room.pairs;
    let at = |j: usize, x: usize| ring.wrapping_add((head + j) % room.pairs * room.pair + x);
    for x in (0..tile.region.width).step_by(block) {
        // SAFETY: every pair and column lies in the ring; output columns end with the region.
        unsafe {
            let mut sums = [[S::splat(1 << 31 | 1 << (down - 1)); V]; BLOCK_ROWS];
            if tile.weights.centre_wraps[1] {
                for (n, sums) in sums.iter_mut().enumerate() {
                    let row = tile.weights.radius[1] + n;
                    for (v, sum) in sums.iter_mut().enumerate() {
                        let pair = S::load(at(row / 2, x + v * S::LANES));
                        let centre = if row.is_multiple_of(2) { S::shift_left(pair, 16) } else { S::keep_high(pair) };
                        *sum = S::add(*sum, centre);
                    }
                }
            }
            let mut weigh = |j: usize, pair: *const u32, first: usize, last: usize| {
                let samples: [S::Vector; V] = std::array::from_fn(|v| S::load(pair.add(v * S::LANES)));
                let weights = tile.weights.columns.as_ptr().add(j * BLOCK_ROWS);
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
                let out = tile.dst.add((y + n) * tile.dst_pitch).cast::<T>().add(tile.region.x + x);
                let mut line = [T::default(); BLOCK_MAX];
                let whole = x + block <= tile.region.width;
                let to = if whole { out } else { line.as_mut_ptr() };
                T::store::<S, V>(to, *sums, down);
                if !whole {
                    out.cast::<u8>().copy_from(line.as_ptr().cast(), (tile.region.width - x) * size_of::<T>());
                }
            }
        }
    }
}
