// SPDX-License-Identifier: MPL-2.0
//! The launches that compute and write the cells of a mosaic.

use super::abi::*;
use super::images::Kernel;
use super::launch::{Args, Launch, MAX_BLOCKS};
use crate::filter::inpainting::CellPyramid;
use crate::filter::mosaic::CellGrid;
use crate::filter::plane::DevicePlane;

/// The number of samples of all channels that a block adds up: 16 for each lane of its warp. With more samples, each block takes
/// longer; with fewer, there are more blocks.
const PART_SAMPLES: u64 = 512;
/// The largest number of parts of a cell. Each block that writes a part first adds up the sums of all parts, which takes longer
/// if there are more of them.
const MAX_PARTS: u64 = 64;
/// The number of parts into which the samples of each cell of a grid are divided.
fn parts(grid: &CellGrid) -> u64 {
    // A cell can touch one sample more than its side has, because its edges need not lie between samples.
    let samples = |axis: usize| u64::from(((grid.side >> grid.unit_log2[axis]) + 1).min(grid.count[axis]));
    // The number of lanes that the channels of a pixel take.
    let lanes = grid.channels.len().next_power_of_two() as u64;
    (samples(0) * samples(1) * lanes).div_ceil(PART_SAMPLES).min(MAX_PARTS)
}

/// The number of blocks for a grid, in the launch of the sums and in that of the writes.
fn blocks(grid: &CellGrid) -> u64 {
    u64::from(grid.cells[0]) * u64::from(grid.cells[1]) * parts(grid)
}

/// The size of the sums of a grid, in bytes.
fn sum_bytes(grid: &CellGrid) -> usize {
    blocks(grid) as usize * grid.channels.len() * size_of::<u64>()
}

/// The device memory for the sums of all cells, in bytes.
pub fn bytes(grids: &[CellPyramid]) -> usize {
    grids.iter().map(|pyramid| sum_bytes(&pyramid.grid)).sum()
}

/// Places the sums of these grids in memory from address `sums` on, which is aligned to 8 bytes. `rows` is the memory of the
/// field that is read, or of the field that is written.
pub fn cells<'a>(grids: &'a [CellPyramid], mut sums: u64, rows: &DevicePlane) -> Vec<MosaicCells<'a>> {
    let cells = |CellPyramid { grid, .. }: &'a CellPyramid| {
        let layout = &grid.field.layout;
        let plane = MosaicPlane {
            rows: rows.address,
            pitch: rows.pitch as u64,
            layout: stored_channels(layout, grid.channels.iter().copied()),
            word_bytes: layout.stored(0).word_bytes as u32,
            channels: grid.channels.len() as u32,
            count: grid.count,
            unit_log2: grid.unit_log2,
            luma: grid.placement.first(),
        };
        let args = MosaicGrid {
            sums,
            origin: grid.origin,
            side: grid.side,
            cells_across: grid.cells[0],
            covered: [0, 1].map(|axis| [grid.covered[axis].start, grid.covered[axis].end]),
            parts: parts(grid) as u16,
            plane: 0,
            first_block: u32::MAX,
        };
        sums += sum_bytes(grid) as u64;
        MosaicCells { grid, plane, args }
    };
    grids.iter().map(cells).collect()
}

/// The cells of a grid of a mosaic, with the addresses of their sums and of a plane.
#[derive(Debug, Clone, Copy)]
pub struct MosaicCells<'a> {
    grid: &'a CellGrid,
    plane: MosaicPlane,
    args: MosaicGrid,
}

/// The launches that add up the samples of cells (`MOSAIC_SUMS`) or write their colours (`MOSAIC_WRITE`). The blocks of a launch
/// have no order, so grids that overlap are written by different launches.
pub fn launches(kernel: Kernel, grids: &[MosaicCells]) -> Vec<Launch> {
    let mut launches = Vec::new();
    let mut rest = grids;
    while let Some(first) = rest.first() {
        // Unused entries begin behind the last block.
        let mut args =
            MosaicArgs { planes: [first.plane; MOSAIC_PLANES as usize], grids: [first.args; MOSAIC_GRIDS as usize] };
        let (mut planes, mut count, mut total) = (0, 0, 0);
        for (index, MosaicCells { grid, plane, args: grid_args }) in rest.iter().enumerate().take(args.grids.len()) {
            let is_written =
                kernel == Kernel::MOSAIC_WRITE && rest[..index].iter().any(|other| overlap(other.grid, grid));
            let number = args.planes[..planes].iter().position(|known| known == plane).unwrap_or(planes);
            if number == args.planes.len() || count > 0 && (is_written || total + blocks(grid) > MAX_BLOCKS) {
                break;
            }
            args.planes[number] = *plane;
            args.grids[index] = MosaicGrid { plane: number as u16, first_block: total as u32, ..*grid_args };
            total += blocks(grid);
            (planes, count) = (planes.max(number + 1), count + 1);
        }
        launches.push(Launch::new(kernel, total as u32, 0, Args::Mosaic(args)));
        rest = &rest[count..];
    }
    launches
}

/// Whether both grids write a byte in common. Grids with different channels never do.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::frame::PlaneLayout;
    use crate::filter::inpainting::one_level;
    use crate::filter::mosaic::{self, MosaicRegion};
    use crate::filter::picture::PictureGeometry;
    use crate::filter::regions::{Area, Rect};

    const PLANE: DevicePlane = DevicePlane { address: 1 << 20, pitch: 1000, len: 1_000_000 };

    fn pyramids(layouts: &[PlaneLayout], regions: &[MosaicRegion]) -> Vec<CellPyramid> {
        let picture = PictureGeometry::new(layouts);
        let regions = mosaic::in_order(regions);
        CellPyramid::all(regions.iter().flat_map(|region| CellGrid::of_region(&picture, region)).collect(), one_level)
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
        let of_grids = |grids: &[MosaicCells]| -> Vec<(Kernel, usize)> {
            let count = |launch: &Launch| {
                let Args::Mosaic(args) = &launch.args else { unreachable!("a mosaic") };
                let count = args.grids.iter().take_while(|grid| grid.first_block != u32::MAX).count();
                let last = &args.grids[count - 1];
                assert!(args.grids[0].first_block == 0 && last.first_block < launch.grid.blocks);
                (launch.kernel, count)
            };
            let launches = [Kernel::MOSAIC_SUMS, Kernel::MOSAIC_WRITE].map(|kernel| launches(kernel, grids));
            launches.concat().iter().map(count).collect()
        };
        let of = |regions: &[MosaicRegion]| of_grids(&cells(&pyramids(&layouts, regions), 1 << 30, &PLANE));
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[region(0, 4), region(20, 5)]), [(Kernel::MOSAIC_SUMS, 4), (Kernel::MOSAIC_WRITE, 4)]);
        let apart = [(Kernel::MOSAIC_SUMS, 4), (Kernel::MOSAIC_WRITE, 2), (Kernel::MOSAIC_WRITE, 2)];
        assert_eq!(of(&[region(0, 4), region(19, 5)]), apart);
        let many: Vec<MosaicRegion> = (0..37).map(|i| region(4 * i, 4)).collect();
        assert_eq!(of(&many)[..2], [(Kernel::MOSAIC_SUMS, MOSAIC_GRIDS as usize), (Kernel::MOSAIC_SUMS, 2)]);
        let one = pyramids(&layouts[..1], &[region(0, 4)]);
        let plane = |i: u64| cells(&one, 1 << 30, &DevicePlane { address: i << 20, ..PLANE });
        let planes: Vec<MosaicCells> = (0..u64::from(MOSAIC_PLANES) + 1).flat_map(plane).collect();
        assert_eq!(of_grids(&planes)[..2], [(Kernel::MOSAIC_SUMS, MOSAIC_PLANES as usize), (Kernel::MOSAIC_SUMS, 1)]);
    }

    /// A cell has enough parts wherever its edges lie between the samples of a plane.
    #[test]
    fn large_cells_have_parts() {
        let layouts = [PlaneLayout::new(4000, 2000, 1, 8)];
        let parts_of = |side: f64| {
            let rect = Rect::new(0, 0, 4000, 2000).unwrap();
            let region = MosaicRegion::new(rect, Area::from_corner(0.0, 0.0, side, side), 1);
            parts(&pyramids(&layouts, &[region])[0].grid)
        };
        assert_eq!([1.0, 40.0, 50.0, 100.0, 4000.0].map(parts_of), [1, 4, 6, 20, MAX_PARTS]);
    }
}
