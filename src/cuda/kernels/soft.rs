// SPDX-License-Identifier: MPL-2.0
//! The launches of soft covers: a cover is mixed into a picture by weights, and so is an estimate of what the picture shows without
//! its objects.

use super::abi::*;
use crate::cuda::driver::LaunchConfig;
use crate::filter::frame::PlaneLayout;
use crate::filter::inpainting::{self, CellPyramid, NODES};
use crate::filter::mosaic::CellGrid;
use crate::filter::picture::FieldRect;
use crate::filter::plan::Selection;
use crate::filter::plane::DevicePlane;
use crate::filter::regions::{self, Rect};
use crate::filter::weights::Weights;

/// The warps of a block of the kernels of cells and of the mix.
const WARPS: u32 = SOFT_THREADS / 32;

/// Weights on the device.
#[derive(Clone, Copy)]
pub struct DeviceWeights<'a> {
    /// What they are.
    pub weights: &'a Weights,
    /// Where their nodes are.
    pub nodes: u64,
}

/// A mix into all planes of a picture.
pub struct Mix<'a> {
    /// How much of the cover shows.
    pub weights: DeviceWeights<'a>,
    /// What is mixed into.
    pub sources: &'a [DevicePlane],
    /// What is mixed in; `None` for the estimates of the cells.
    pub covers: Option<&'a [DevicePlane]>,
    /// What is written; may be the sources.
    pub destinations: &'a [DevicePlane],
    /// What of the planes is written.
    pub covered: &'a [(usize, FieldRect)],
    /// The channels that do not keep their values.
    pub planes: Selection,
}

/// The estimates of a picture.
#[derive(Debug)]
pub struct Inpainting {
    /// Those of each plane and field.
    pub grids: Vec<CellPyramid>,
}

impl Inpainting {
    /// Of pictures of these planes, whose weights have nodes `cell` luma samples apart.
    pub fn new(layouts: &[PlaneLayout], cell: u32) -> Self {
        Self { grids: CellPyramid::all(CellGrid::whole(layouts, NODES * cell), inpainting::levels) }
    }

    /// Words of memory for the cells of all grids.
    pub fn words(&self) -> usize {
        self.grids.iter().map(CellPyramid::words).sum()
    }
}

/// Bytes of memory for the cells of a picture and as many estimates.
pub fn cell_bytes(inpainting: &Inpainting) -> usize {
    2 * inpainting.words() * size_of::<u32>()
}

/// The launches that make estimates of a picture at these planes, of what the weights leave, in the cells at this address.
pub fn estimates(inpainting: &Inpainting, weights: DeviceWeights, sources: &[DevicePlane], cells: u64) -> Vec<Launch> {
    let of_grids = |blocks: &dyn Fn(&CellPyramid) -> u64| -> Vec<(SoftGrid, u64)> {
        let item = |grid: &CellPyramid| {
            let source = &sources[grid.grid.plane];
            (soft_grid(grid, weights, source, source, None, cells), blocks(grid))
        };
        inpainting.grids.iter().map(item).collect()
    };
    let cells = |grid: &CellPyramid| u64::from(grid.grid.cells[0]) * u64::from(grid.grid.cells[1]);
    let mut launches = self::launches(Kernel::SoftCells, 0, &of_grids(&|grid| cells(grid).div_ceil(WARPS.into())));
    // All levels above the first one, of a channel.
    let above = |grid: &CellPyramid| grid.levels[1..].iter().map(|level| level.size.iter().product::<usize>()).sum();
    let above: usize = inpainting.grids.iter().map(above).max().unwrap_or(0);
    let blocks = |grid: &CellPyramid| u64::from(SOFT_SPREAD_BLOCKS) * grid.grid.channels.len() as u64;
    launches.extend(self::launches(Kernel::SoftSpread, (above * size_of::<u32>()) as u32, &of_grids(&blocks)));
    launches
}

/// The launches of a mix into planes of these layouts, with estimates of the cells at this address.
pub fn mix(mix: &Mix, layouts: &[PlaneLayout], inpainting: &Inpainting, cells: u64) -> Vec<Launch> {
    let of_grid = |pyramid: &CellPyramid| -> Vec<(SoftGrid, u64)> {
        let (grid, layout) = (&pyramid.grid, &layouts[pyramid.grid.plane]);
        let channels = grid.channels.iter().enumerate();
        let kept = channels.map(|(i, channel)| u32::from(!mix.planes.contains(layout.roles[channel.first])) << i).sum();
        if kept == (1 << grid.channels.len()) - 1 {
            return Vec::new();
        }
        let plane = grid.plane;
        let cover = mix.covers.map(|covers| &covers[plane]);
        let all = soft_grid(pyramid, mix.weights, &mix.sources[plane], &mix.destinations[plane], cover, cells);
        let of_field =
            mix.covered.iter().filter(|(of, covered)| *of == plane && covered.field.place() == grid.field.place());
        let samples = of_field.filter_map(|(_, FieldRect { rect, .. })| {
            let columns = grid.channels[0].covered(&grid.field.layout, *rect);
            Rect::between([columns.start, columns.end], [rect.y(), rect.bottom()])
        });
        let item = |rect: Rect| {
            let channels = grid.channels.len() as u32;
            let tiles = (rect.right() * channels).div_ceil(SOFT_TILE) - rect.x() * channels / SOFT_TILE;
            let rows = rect.bottom().div_ceil(SOFT_ROWS) - rect.y() / SOFT_ROWS;
            let covered = [[rect.x(), rect.right()], [rect.y(), rect.bottom()]];
            let blocks = u64::from(tiles) * u64::from(rows.div_ceil(WARPS));
            (SoftGrid { kept, covered, tiles, ..all }, blocks)
        };
        // Samples must not be mixed twice; chroma of rectangles side by side overlaps.
        regions::disjoint(&samples.collect::<Vec<_>>()).into_iter().map(item).collect()
    };
    let items: Vec<_> = inpainting.grids.iter().flat_map(of_grid).collect();
    launches(Kernel::SoftMix, 0, &items)
}

fn soft_grid(
    CellPyramid { grid, first_word, .. }: &CellPyramid,
    DeviceWeights { weights, nodes }: DeviceWeights,
    source: &DevicePlane,
    destination: &DevicePlane,
    cover: Option<&DevicePlane>,
    cells: u64,
) -> SoftGrid {
    let layout = &grid.field.layout;
    let [src, dst] = [source, destination].map(|plane| grid.field.rows_of(plane));
    let cover = cover.map(|plane| grid.field.rows_of(plane)).unwrap_or_default();
    let (columns, rows, _) = weights.nodes();
    SoftGrid {
        src: src.address,
        dst: dst.address,
        cover: cover.address,
        cells: cells + 2 * (first_word * size_of::<u32>()) as u64,
        nodes,
        src_pitch: src.pitch as u64,
        dst_pitch: dst.pitch as u64,
        cover_pitch: cover.pitch as u64,
        layout: stored_channels(layout, grid.channels.iter().copied()),
        word_bytes: layout.stored(0).word_bytes as u32,
        channels: grid.channels.len() as u32,
        kept: 0,
        count: grid.count,
        unit_log2: grid.unit_log2,
        luma: grid.placement.first(),
        fields: grid.placement.step,
        size: grid.placement.luma.map(|[_, end]| end),
        node_count: [columns, rows],
        node_log2: weights.cell().trailing_zeros(),
        side: grid.side,
        side_log2: grid.side.trailing_zeros(),
        cell_count: grid.cells,
        covered: [[0; 2]; 2],
        tiles: 0,
        first_block: 0,
        reserved: 0,
    }
}

/// Divides grids, each with its blocks, into launches.
fn launches(kernel: Kernel, shared_bytes: u32, grids: &[(SoftGrid, u64)]) -> Vec<Launch> {
    let launch = |grids: &[(SoftGrid, u64)]| {
        // Unused entries begin beyond every block.
        let unused = SoftGrid { first_block: u32::MAX, ..grids[0].0 };
        let (mut args, mut blocks) = (SoftArgs { grids: [unused; SOFT_GRIDS as usize] }, 0);
        for (to, (grid, count)) in args.grids.iter_mut().zip(grids) {
            *to = SoftGrid { first_block: blocks as u32, ..*grid };
            blocks += count;
        }
        let grid = LaunchConfig { blocks: blocks as u32, threads: kernel.threads(), shared_bytes };
        Launch { kernel, grid, args: Args::Soft(args) }
    };
    grids.chunks(SOFT_GRIDS as usize).map(launch).collect()
}
