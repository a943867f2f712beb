// SPDX-License-Identifier: MPL-2.0
//! One tile of a plane: rows pass, columns pass, nothing but the tile's own scratch in between.
//!
//! The tile walks down its region [`BLOCK_ROWS`] rows at a time. Source rows go through the rows pass two by two and
//! land in a ring of row pairs, one word holding the 16-bit intermediate of the same column in two rows. The columns
//! pass then reads each pair once for a whole block of output rows. The ring stays in the L2 cache.
//!
//! Bias: a sample s is held as s - 32768. Since the taps sum to 65536, a sum over biased samples is the true sum minus
//! 2³¹, and both constants go into the value the sum starts with. All of it wraps modulo 2³².

use super::OutOfMemory;
use super::scratch::Scratch;
use super::simd::Simd;
use super::weights::{BLOCK_ROWS, Weights};
use crate::frame::{PlaneLayout, Region};

/// Tiles start at multiples of this many samples: whole pixels for 1 to 4 channels, and whole vector blocks.
pub const TILE_STEP: usize = 192;
/// Samples in the widest vector block.
const BLOCK_MAX: usize = 64;
/// The bias of both samples of a pair.
const PAIR_BIAS: u32 = 0x8000_8000;

/// A tile's work. The region lies in the plane; `src` and `dst` hold every row of it.
pub struct Tile<'a> {
    pub layout: PlaneLayout,
    pub src: *const u8,
    pub src_pitch: usize,
    pub dst: *mut u8,
    pub dst_pitch: usize,
    pub weights: &'a Weights,
    pub region: Region,
}

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
        // The last word of `weights.rows` looks one pixel past the radius, with a weight of 0.
        let halo = 2 * (weights.radius[0] + 1) * usize::from(layout.channels);
        Self { row: (pair + halo).next_multiple_of(16), pair, pairs: weights.block_pairs() }
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

/// A sample as it lies in memory.
trait Sample: Copy {
    /// Moves a value `by` bits up, into 16 bits.
    fn widen(self, by: u32) -> u32;
    /// Takes a value that fits.
    fn narrow(value: u32) -> Self;
}

impl Sample for u8 {
    #[inline(always)]
    fn widen(self, _: u32) -> u32 {
        u32::from(self) << 8
    }
    #[inline(always)]
    fn narrow(value: u32) -> Self {
        value as u8
    }
}

impl Sample for u16 {
    #[inline(always)]
    fn widen(self, by: u32) -> u32 {
        (u32::from(self) << by) & 0xffff
    }
    #[inline(always)]
    fn narrow(value: u32) -> Self {
        value as u16
    }
}

/// Blurs the tile's region with the operations of `S`, `V` vectors at a time.
///
/// # Safety
/// The processor has the instruction set of `S`; the tile's pointers hold its plane; `scratch` was reserved for it; no
/// other thread writes the region.
#[inline(always)]
pub unsafe fn blur<S: Simd, const V: usize>(tile: &Tile, scratch: &mut Scratch) {
    // SAFETY: passed on.
    unsafe {
        match tile.layout.sample_bytes() {
            1 => blur_samples::<S, u8, V>(tile, scratch),
            _ => blur_samples::<S, u16, V>(tile, scratch),
        }
    }
}

#[inline(always)]
unsafe fn blur_samples<S: Simd, T: Sample, const V: usize>(tile: &Tile, scratch: &mut Scratch) {
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
                    for (row, y) in rows.into_iter().zip(sources) {
                        expand_row::<T>(tile, y, std::slice::from_raw_parts_mut(row, room.row));
                    }
                    rows_pass::<S, V>(tile, rows, slot(filled), room.pair);
                }
            }
            filled += 1;
        }
        // SAFETY: the ring holds the block's pairs, the region's rows are the tile's own.
        unsafe { columns_pass::<S, T, V>(tile, ring, &room, first_pair, top + block, BLOCK_ROWS.min(height - block)) };
    }
}

/// Fills `row` with source row `y` as biased pairs (sample, sample one pixel to the right), from `radius` pixels
/// before the region on, with the edge pixels repeated beyond the plane.
#[inline(always)]
unsafe fn expand_row<T: Sample>(tile: &Tile, y: usize, row: &mut [u32]) {
    let channels = usize::from(tile.layout.channels);
    let samples = tile.layout.row_samples();
    let up = 16 - u32::from(tile.layout.depth);
    // SAFETY: the row lies in the plane.
    let source = unsafe { tile.src.add(y * tile.src_pitch).cast::<T>() };
    // SAFETY: every index below is under `samples`.
    let widened = |i: usize| unsafe { source.add(i).read_unaligned() }.widen(up);
    let edge = |first: usize| -> [u32; 4] {
        std::array::from_fn(|c| if c < channels { (widened(first + c) * 0x1_0001) ^ PAIR_BIAS } else { 0 })
    };

    let start = tile.region.x as isize - (tile.weights.radius[0] * channels) as isize;
    let (left, rest) = row.split_at_mut(start.min(0).unsigned_abs().min(row.len()));
    let first = start.max(0) as usize;
    let (middle, right) = rest.split_at_mut((samples - channels).saturating_sub(first).min(rest.len()));
    let pixel = edge(0);
    for chunk in left.chunks_mut(channels) {
        chunk.copy_from_slice(&pixel[..chunk.len()]);
    }
    for (i, pair) in middle.iter_mut().enumerate() {
        *pair = (widened(first + i) | widened(first + i + channels) << 16) ^ PAIR_BIAS;
    }
    let pixel = edge(samples - channels);
    for chunk in right.chunks_mut(channels) {
        chunk.copy_from_slice(&pixel[..chunk.len()]);
    }
}

/// Two expanded rows to one row pair of the ring, `width` samples.
#[inline(always)]
unsafe fn rows_pass<S: Simd, const V: usize>(tile: &Tile, rows: [*mut u32; 2], out: *mut u32, width: usize) {
    let channels = usize::from(tile.layout.channels);
    let centre = tile.weights.radius[0] * channels;
    // SAFETY: `x` stays in `width`, which is whole blocks, and rows reach the halo beyond it.
    unsafe {
        let half = S::splat(1 << 15);
        for x in (0..width).step_by(V * S::LANES) {
            let mut sums = [[half; V]; 2];
            if tile.weights.centre_wraps[0] {
                for (sums, row) in sums.iter_mut().zip(rows) {
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = S::add(*sum, S::low_to_high(S::load(row.add(x + centre + v * S::LANES))));
                    }
                }
            }
            for (m, &weight) in tile.weights.rows.iter().enumerate() {
                let weight = S::splat(weight);
                for (sums, row) in sums.iter_mut().zip(rows) {
                    let at = row.add(x + 2 * m * channels);
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = S::dot(*sum, S::load(at.add(v * S::LANES)), weight);
                    }
                }
            }
            for (v, (first, second)) in sums[0].into_iter().zip(sums[1]).enumerate() {
                S::store(out.add(x + v * S::LANES), S::pair_highs(first, second));
            }
        }
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
                        let centre = if row.is_multiple_of(2) { S::low_to_high(pair) } else { S::keep_high(pair) };
                        *sum = S::add(*sum, centre);
                    }
                }
            }
            // The ring from its head to its end, then from its start.
            let turn = room.pairs - head;
            for (from, to) in [(0, turn), (turn, room.pairs)] {
                let mut pair = at(from, x);
                for j in from..to {
                    let samples: [S::Vector; V] = std::array::from_fn(|v| S::load(pair.add(v * S::LANES)));
                    let weights = tile.weights.columns.as_ptr().add(j * BLOCK_ROWS);
                    for (n, sums) in sums.iter_mut().enumerate() {
                        let weight = S::splat(*weights.add(n));
                        for (sum, samples) in sums.iter_mut().zip(samples) {
                            *sum = S::dot(*sum, samples, weight);
                        }
                    }
                    pair = pair.wrapping_add(room.pair);
                }
            }
            for (n, sums) in sums.iter().enumerate().take(rows) {
                let mut line = [0_u32; BLOCK_MAX];
                for (v, sum) in sums.iter().enumerate() {
                    S::store(line.as_mut_ptr().add(v * S::LANES), *sum);
                }
                let out = tile.dst.add((y + n) * tile.dst_pitch).cast::<T>().add(tile.region.x + x);
                if x + block <= tile.region.width {
                    for (i, sum) in line[..block].iter().enumerate() {
                        out.add(i).write_unaligned(T::narrow(sum >> down));
                    }
                } else {
                    for (i, sum) in line[..tile.region.width - x].iter().enumerate() {
                        out.add(i).write_unaligned(T::narrow(sum >> down));
                    }
                }
            }
        }
    }
}
