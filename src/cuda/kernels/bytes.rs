// SPDX-License-Identifier: MPL-2.0
//! The launches that write bytes: copies, or a repeated pattern.

use super::abi::*;
use super::images::Kernel;
use super::launch::{Args, Launch, MAX_BLOCKS};
use crate::filter::byte_rect::ByteRect;
use crate::filter::operation::Pattern;
use crate::filter::plane::DevicePlane;

/// A write of bytes to a rectangle of a plane.
#[derive(Debug, Clone, Copy)]
pub struct ByteWrite {
    /// The rectangle. Its plane is the plane that is written.
    rect: ByteRect,
    /// The rank. Where writes of different ranks overlap, the one with the largest rank is visible. Writes of one rank write the
    /// same bytes where they overlap.
    rank: usize,
    args: CoverRect,
}

impl ByteWrite {
    /// Copies the bytes of the same rectangle from another plane.
    pub fn copy(rect: ByteRect, rank: usize, from: &DevicePlane, to: &DevicePlane) -> Self {
        let from = rect.within(from);
        let args = CoverRect { src: from.address, src_pitch: from.pitch as u64, ..destination(&rect, to) };
        Self { rect, rank, args }
    }

    /// Writes a pattern, which repeats from the first byte of the plane's rows on.
    pub fn fill(rect: ByteRect, rank: usize, mut pattern: Pattern, to: &DevicePlane) -> Self {
        pattern.bytes[..pattern.len].rotate_left(rect.byte % pattern.len);
        let args = CoverRect {
            pattern: u64::from_le_bytes(pattern.bytes),
            period: pattern.len as u32,
            ..destination(&rect, to)
        };
        Self { rect, rank, args }
    }
}

/// The arguments for the memory that is written.
fn destination(rect: &ByteRect, plane: &DevicePlane) -> CoverRect {
    let to = rect.within(plane);
    // A row touches the most groups if it begins at the last byte of a group.
    let groups = (rect.bytes + COVER_GROUP as usize - 1).div_ceil(COVER_GROUP as usize);
    CoverRect {
        dst: to.address,
        dst_pitch: to.pitch as u64,
        bytes: rect.bytes as u32,
        rows: rect.rows as u32,
        groups: groups as u32,
        ..CoverRect::default()
    }
}

/// The launches for these writes. The blocks of a launch have no order, so writes of different ranks that overlap are in
/// different launches.
pub fn launches(mut writes: Vec<ByteWrite>) -> Vec<Launch> {
    writes.sort_by_key(|write| write.rank);
    let mut launches = Vec::new();
    let (mut written, mut args, mut blocks) = (Vec::<(ByteRect, usize)>::new(), no_rects(), 0);
    for ByteWrite { rect: bytes, rank, args: rect } in writes {
        let own_blocks = (u64::from(rect.groups) * u64::from(rect.rows)).div_ceil(COVER_THREADS.into());
        let overlaps = |(other, of): &(ByteRect, usize)| *of != rank && other.overlaps(&bytes);
        let is_full = written.len() == COVER_RECTS as usize || blocks + own_blocks > MAX_BLOCKS;
        if is_full || written.iter().any(overlaps) {
            launches.push(Launch::new(Kernel::COVER, blocks as u32, 0, Args::Cover(args)));
            (args, blocks) = (no_rects(), 0);
            written.clear();
        }
        args.rects[written.len()] = CoverRect { first_block: blocks as u32, ..rect };
        written.push((bytes, rank));
        blocks += own_blocks;
    }
    if blocks > 0 {
        launches.push(Launch::new(Kernel::COVER, blocks as u32, 0, Args::Cover(args)));
    }
    launches
}

fn no_rects() -> CoverArgs {
    CoverArgs { rects: [CoverRect { first_block: u32::MAX, ..CoverRect::default() }; COVER_RECTS as usize] }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANE: DevicePlane = DevicePlane { address: 1 << 20, pitch: 1000, len: 1_000_000 };

    fn copy(byte: usize, row: usize, rank: usize) -> ByteWrite {
        ByteWrite::copy(ByteRect { plane: 0, row, row_step: 1, rows: 10, byte, bytes: 20 }, rank, &PLANE, &PLANE)
    }

    /// The number of rectangles and of blocks of each launch.
    fn rects(launches: &[Launch]) -> Vec<(usize, u32)> {
        let count = |launch: &Launch| {
            let Args::Cover(args) = &launch.args else { unreachable!("a cover") };
            let used = args.rects.iter().take_while(|rect| rect.first_block != u32::MAX);
            let firsts: Vec<u32> = used.map(|rect| rect.first_block).collect();
            assert!(firsts[0] == 0 && firsts.is_sorted_by(|a, b| a < b) && firsts.last() < Some(&launch.grid.blocks));
            (firsts.len(), launch.grid.blocks)
        };
        launches.iter().map(count).collect()
    }

    /// Tests of the written bytes cannot detect an overlap, because a CPU runs the blocks of a launch in order.
    #[test]
    fn rectangles_that_overlap_are_in_different_launches() {
        let of = |writes: &[ByteWrite]| rects(&launches(writes.to_vec()));
        assert_eq!(of(&[]), []);
        // A row touches up to three groups of 16 bytes, so 10 rows take 30 threads.
        assert_eq!(of(&[copy(0, 0, 0), copy(20, 0, 1), copy(0, 10, 1)]), [(3, 3)]);
        assert_eq!(of(&[copy(0, 0, 0), copy(10, 5, 0)]), [(2, 2)], "of one rank");
        assert_eq!(of(&[copy(0, 0, 0), copy(50, 0, 0), copy(19, 9, 1), copy(100, 0, 1)]), [(2, 2), (2, 2)]);
        let many: Vec<ByteWrite> = (0..COVER_RECTS as usize + 5).map(|i| copy(0, 10 * i, 0)).collect();
        assert_eq!(of(&many), [(COVER_RECTS as usize, COVER_RECTS), (5, 5)]);
    }
}
