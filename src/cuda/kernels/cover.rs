// SPDX-License-Identifier: MPL-2.0
//! The launches that cover regions: bytes that are copied or filled, and the cells of a mosaic.

use super::abi::*;
use super::byte_rect::{ByteRect, PACKED_GROUP, PackedRect, StagingLayout};
use crate::cuda::driver::LaunchConfig;
use crate::filter::fill::{PlaneValues, pattern};
use crate::filter::frame::PlaneLayout;
use crate::filter::mosaic::{self, CellGrid, MosaicRegion};
use crate::filter::operation::Pattern;
use crate::filter::picture::PictureGeometry;
use crate::filter::plane::{DevicePlane, PlaneMemory};
use crate::filter::regions::Rect;
use crate::filter::samples::covered_fields;

/// Samples of a cell that a block adds up. More make fewer blocks, less work for those that add the sums of the parts.
const PART_SAMPLES: u64 = 2048;
/// More parts take longer to add up than their blocks save.
const MAX_PARTS: u64 = 256;
const _: () = assert!(PACKED_GROUP == COVER_GROUP as usize);
/// The largest grid of the driver.
const MAX_BLOCKS: u64 = i32::MAX as u64;

/// Bytes that are copied from a blurred plane to the same place of the frame's.
#[derive(Debug, Clone, Copy)]
pub struct BlurredRect {
    /// The bytes.
    pub rect: ByteRect,
    /// Where the plane is blurred to.
    pub blurred: DevicePlane,
    /// Counts the Gaussians, weaker ones first. Where rectangles of several overlap, the last one counts; those of one have the
    /// same bytes there.
    pub strength: usize,
}

/// Bytes that are overwritten with a repeated pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// The bytes of the frame.
    pub to: ByteRect,
    /// The pattern, repeated from the first byte of each row of the rectangle on.
    pub pattern: Pattern,
}

/// What has to be written to fill rectangles with `values`, one element for each plane. Where two overlap, they have the same
/// bytes.
///
/// # Panics
/// If there are fewer values than planes.
pub fn filled(layouts: &[PlaneLayout], rects: &[Rect], values: &[PlaneValues]) -> Vec<Fill> {
    let picture = PictureGeometry::new(layouts);
    let patterns: Vec<Pattern> =
        layouts.iter().zip(&values[..layouts.len()]).map(|(layout, values)| pattern(layout, values)).collect();
    let covered = rects.iter().flat_map(|rect| covered_fields(&picture, *rect));
    let rects = covered.flat_map(|(plane, covered)| ByteRect::covered(plane, covered));
    let fill = |to: ByteRect| {
        let mut pattern = patterns[to.plane];
        pattern.bytes[..pattern.len].rotate_left(to.byte % pattern.len);
        Fill { to, pattern }
    };
    rects.map(fill).collect()
}

/// The cells of regions of a frame of these planes, in the order of writing: where two overlap, the later one counts.
pub fn grids(layouts: &[PlaneLayout], regions: &[MosaicRegion]) -> Vec<CellGrid> {
    let picture = PictureGeometry::new(layouts);
    let of_region = |region: &MosaicRegion| CellGrid::of_region(&picture, region);
    mosaic::in_order(regions).iter().flat_map(of_region).collect()
}

/// Whether both grids write a byte. The channels of a grid, and those of another grid of the same region, keep apart.
fn overlap(one: &CellGrid, other: &CellGrid) -> bool {
    let shares = |axis: usize| {
        one.covered[axis].start < other.covered[axis].end && other.covered[axis].start < one.covered[axis].end
    };
    one.plane == other.plane
        && one.channels[0] == other.channels[0]
        && one.field.place() == other.field.place()
        && shares(0)
        && shares(1)
}

/// The launches, in order, that copy blurred rectangles into the planes.
pub fn copies(copied: &[BlurredRect], planes: &[DevicePlane]) -> Vec<Launch> {
    let rects = copied.iter().map(|BlurredRect { rect, blurred, strength }| {
        let from = rect.within(blurred);
        let to = destination(rect, planes);
        (*rect, *strength, CoverRect { src: from.address, src_pitch: from.pitch as u64, ..to })
    });
    cover_launches(rects)
}

/// The launches that fill bytes of the planes.
pub fn fills(fills: &[Fill], planes: &[DevicePlane]) -> Vec<Launch> {
    let rects = fills.iter().map(|fill| {
        let rect = CoverRect {
            pattern: u64::from_le_bytes(fill.pattern.bytes),
            period: fill.pattern.len as u32,
            ..destination(&fill.to, planes)
        };
        (fill.to, 0, rect)
    });
    cover_launches(rects)
}

/// The launches that copy packed rectangles from the block at this address into the planes.
pub fn unpack(packed: &StagingLayout, block: u64, planes: &[DevicePlane]) -> Vec<Launch> {
    let rects = packed.rects.iter().map(|packed| {
        let from = packed.within(block);
        // What overlaps has the same bytes.
        (
            packed.rect,
            0,
            CoverRect { src: from.address, src_pitch: from.pitch as u64, ..destination(&packed.rect, planes) },
        )
    });
    cover_launches(rects)
}

/// The launches that copy blurred rectangles into the block at this address. `packed` has one rectangle for each, aligned as it
/// is. Whole groups are written, because a byte that crosses the bus takes as long as a group: with their own bytes an
/// NV12 frame took 2.5 times as long.
pub fn pack(copied: &[BlurredRect], packed: &StagingLayout, block: u64) -> Vec<Launch> {
    let rect = |(index, (copy, packed)): (usize, (&BlurredRect, &PackedRect))| {
        let (skew, from) = (packed.skew(), copy.rect.within(&copy.blurred));
        // No two rectangles overlap in the block: each gets a plane number for itself.
        let groups = ByteRect { plane: index, byte: 0, bytes: packed.pitch, ..packed.rect };
        let to = PlaneMemory { address: block + (packed.offset - skew) as u64, pitch: packed.pitch, len: 0 };
        let rect = CoverRect { src: from.address - skew as u64, src_pitch: from.pitch as u64, ..rows(&groups, to) };
        (groups, 0, rect)
    };
    cover_launches(copied.iter().zip(&packed.rects).enumerate().map(rect))
}

/// The bytes that are written.
fn destination(to: &ByteRect, planes: &[DevicePlane]) -> CoverRect {
    rows(to, to.within(&planes[to.plane]))
}

/// The destination of a rectangle whose rows are in this memory.
fn rows(rect: &ByteRect, to: PlaneMemory<u64>) -> CoverRect {
    // A row that begins at the last byte of a group touches one more than its bytes fill.
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

/// Divides rectangles into launches. The blocks of a launch have no order, so rectangles of a different rank that overlap are
/// in different launches; those of one rank have the same bytes.
fn cover_launches(rects: impl Iterator<Item = (ByteRect, usize, CoverRect)>) -> Vec<Launch> {
    let mut launches = Vec::new();
    let (mut written, mut args, mut blocks) = (Vec::<(ByteRect, usize)>::new(), no_rects(), 0);
    for (bytes, rank, rect) in rects {
        let own_blocks = (u64::from(rect.groups) * u64::from(rect.rows)).div_ceil(COVER_THREADS.into());
        let overlaps = |(other, of): &(ByteRect, usize)| *of != rank && other.overlaps(&bytes);
        let is_full = written.len() == COVER_RECTS as usize || blocks + own_blocks > MAX_BLOCKS;
        if is_full || written.iter().any(overlaps) {
            launches.push(launch(Kernel::Cover, blocks, 0, Args::Cover(args)));
            (args, blocks) = (no_rects(), 0);
            written.clear();
        }
        args.rects[written.len()] = CoverRect { first_block: blocks as u32, ..rect };
        written.push((bytes, rank));
        blocks += own_blocks;
    }
    if blocks > 0 {
        launches.push(launch(Kernel::Cover, blocks, 0, Args::Cover(args)));
    }
    launches
}

fn no_rects() -> CoverArgs {
    CoverArgs { rects: [CoverRect { first_block: u32::MAX, ..CoverRect::default() }; COVER_RECTS as usize] }
}

fn launch(kernel: Kernel, blocks: u64, shared_bytes: u32, args: Args) -> Launch {
    Launch { kernel, grid: LaunchConfig { blocks: blocks as u32, threads: kernel.threads(), shared_bytes }, args }
}

/// The parts that the rows of each cell of a grid are divided into.
fn parts(grid: &CellGrid) -> u64 {
    // One more than a side has, because it need not begin with a cell.
    let samples = |axis: usize| u64::from(((grid.side >> grid.unit_log2[axis]) + 1).min(grid.count[axis]));
    (samples(0) * samples(1)).div_ceil(PART_SAMPLES).min(MAX_PARTS)
}

/// Blocks of a grid in either launch.
fn blocks(grid: &CellGrid) -> u64 {
    u64::from(grid.cells[0]) * u64::from(grid.cells[1]) * parts(grid)
}

/// Bytes of the sums of a grid.
fn sum_bytes(grid: &CellGrid) -> usize {
    blocks(grid) as usize * grid.channels.len() * size_of::<u64>()
}

/// Device memory for the sums of all cells, in bytes.
pub fn mosaic_bytes(grids: &[CellGrid]) -> usize {
    grids.iter().map(sum_bytes).sum()
}

/// The launches, in order, that colour the cells of the first planes in the second ones, which may be the same: all sums first, so that
/// nothing is written before all is read. `sums` is the address of [`mosaic_bytes`] of device memory, aligned to 8 bytes.
pub fn mosaic(grids: &[CellGrid], [sources, destinations]: [&[DevicePlane]; 2], sums: u64) -> Vec<Launch> {
    let mut offset = 0;
    let read: Vec<(&CellGrid, MosaicGrid)> = grids
        .iter()
        .map(|grid| {
            let args = mosaic_grid(grid, sources, sums + offset as u64);
            offset += sum_bytes(grid);
            (grid, args)
        })
        .collect();
    let mut written = read.clone();
    for (grid, args) in &mut written {
        (args.plane, args.pitch) = grid_rows(grid, destinations);
    }
    let mut launches = mosaic_launches(Kernel::MosaicSums, &read);
    launches.extend(mosaic_launches(Kernel::MosaicWrite, &written));
    launches
}

/// The address of the rows of a grid's field, and the bytes from one to the next.
fn grid_rows(grid: &CellGrid, planes: &[DevicePlane]) -> (u64, u64) {
    let rows = grid.field.rows_of(&planes[grid.plane]);
    (rows.address, rows.pitch as u64)
}

fn mosaic_grid(grid: &CellGrid, planes: &[DevicePlane], sums: u64) -> MosaicGrid {
    let layout = &grid.field.layout;
    let (plane, pitch) = grid_rows(grid, planes);
    MosaicGrid {
        plane,
        sums,
        pitch,
        layout: stored_channels(layout, grid.channels.iter().copied()),
        word_bytes: layout.stored(0).word_bytes as u32,
        channels: grid.channels.len() as u32,
        count: grid.count,
        unit_log2: grid.unit_log2,
        luma: grid.placement.first(),
        origin: grid.origin,
        side: grid.side,
        cells_across: grid.cells[0],
        covered: [0, 1].map(|axis| [grid.covered[axis].start, grid.covered[axis].end]),
        parts: parts(grid) as u32,
        first_block: u32::MAX,
    }
}

/// Divides grids into launches. The blocks of a launch have no order, so grids that overlap are written by different ones.
fn mosaic_launches(kernel: Kernel, grids: &[(&CellGrid, MosaicGrid)]) -> Vec<Launch> {
    let mut launches = Vec::new();
    let shared_bytes = MOSAIC_THREADS * 4 * size_of::<u64>() as u32;
    let mut rest = grids;
    while !rest.is_empty() {
        // Unused entries begin beyond every block.
        let mut args = MosaicArgs { grids: [rest[0].1; MOSAIC_GRIDS as usize] };
        let (mut count, mut total) = (0, 0);
        for (index, (grid, grid_args)) in rest.iter().enumerate().take(MOSAIC_GRIDS as usize) {
            let is_written =
                kernel == Kernel::MosaicWrite && rest[..index].iter().any(|(other, _)| overlap(other, grid));
            if count > 0 && (is_written || total + blocks(grid) > MAX_BLOCKS) {
                break;
            }
            args.grids[index] = MosaicGrid { first_block: total as u32, ..*grid_args };
            total += blocks(grid);
            count += 1;
        }
        launches.push(launch(kernel, total, shared_bytes, Args::Mosaic(args)));
        rest = &rest[count..];
    }
    launches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::frame::PlaneLayout;
    use crate::filter::mosaic::MosaicRegion;
    use crate::filter::regions::{Area, Rect};

    const PLANE: DevicePlane = DevicePlane { address: 1 << 20, pitch: 1000, len: 1_000_000 };

    fn copy(byte: usize, row: usize, strength: usize) -> BlurredRect {
        let rect = ByteRect { plane: 0, row, row_step: 1, rows: 10, byte, bytes: 20 };
        BlurredRect { rect, blurred: PLANE, strength }
    }

    /// Rectangles and blocks of every launch.
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

    /// The tests of the bytes cannot tell, because a CPU runs the blocks of a launch in order.
    #[test]
    fn rectangles_that_overlap_are_in_different_launches() {
        let of = |copied: &[BlurredRect]| rects(&copies(copied, &[PLANE]));
        assert_eq!(of(&[]), []);
        // A row touches up to three groups of 16 bytes, so that 10 rows take 30 threads.
        assert_eq!(of(&[copy(0, 0, 0), copy(20, 0, 1), copy(0, 10, 1)]), [(3, 3)]);
        assert_eq!(of(&[copy(0, 0, 0), copy(10, 5, 0)]), [(2, 2)], "of one strength");
        assert_eq!(of(&[copy(0, 0, 0), copy(50, 0, 0), copy(19, 9, 1), copy(100, 0, 1)]), [(2, 2), (2, 2)]);
        let many: Vec<BlurredRect> = (0..COVER_RECTS as usize + 5).map(|i| copy(0, 10 * i, 0)).collect();
        assert_eq!(of(&many), [(COVER_RECTS as usize, COVER_RECTS), (5, 5)]);
    }

    #[test]
    fn cells_that_overlap_are_written_by_different_launches() {
        let layouts = [
            PlaneLayout::new(200, 100, 1, 8),
            PlaneLayout { sigma_scale: [0.5; 2], ..PlaneLayout::new(100, 50, 2, 8) },
        ];
        let region = |x: u32, cells: u32| {
            let rect = Rect::new(x, 0, 20, 20).unwrap();
            MosaicRegion::new(rect, Area::from_corner(0.0, 0.0, 40.0, 40.0), cells)
        };
        let of = |regions: &[MosaicRegion]| -> Vec<(Kernel, usize)> {
            let grids = grids(&layouts, regions);
            let count = |launch: &Launch| {
                let Args::Mosaic(args) = &launch.args else { unreachable!("a mosaic") };
                let count = args.grids.iter().take_while(|grid| grid.first_block != u32::MAX).count();
                let last = &args.grids[count - 1];
                assert!(args.grids[0].first_block == 0 && last.first_block < launch.grid.blocks);
                (launch.kernel, count)
            };
            mosaic(&grids, [&[PLANE; 2]; 2], 1 << 30).iter().map(count).collect()
        };
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[region(0, 4), region(20, 5)]), [(Kernel::MosaicSums, 4), (Kernel::MosaicWrite, 4)]);
        let apart = [(Kernel::MosaicSums, 4), (Kernel::MosaicWrite, 2), (Kernel::MosaicWrite, 2)];
        assert_eq!(of(&[region(0, 4), region(19, 5)]), apart);
        let many: Vec<MosaicRegion> = (0..20).map(|i| region(i * 5 % 100 * 20, 4)).collect();
        let counts = of(&many);
        assert!(counts.iter().all(|(_, count)| *count <= MOSAIC_GRIDS as usize), "{counts:?}");
    }

    /// However a cell lies on the samples of a plane, its parts are as many as it needs.
    #[test]
    fn large_cells_have_parts() {
        let layouts = [PlaneLayout::new(4000, 2000, 1, 8)];
        let parts_of = |side: f64| {
            let rect = Rect::new(0, 0, 4000, 2000).unwrap();
            let region = MosaicRegion::new(rect, Area::from_corner(0.0, 0.0, side, side), 1);
            parts(&grids(&layouts, &[region])[0])
        };
        assert_eq!([1.0, 40.0, 50.0, 100.0, 4000.0].map(parts_of), [1, 1, 2, 5, MAX_PARTS]);
    }
}
