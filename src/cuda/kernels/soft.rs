// SPDX-License-Identifier: MPL-2.0
//! The launches of soft covers: they mix a plane into another one by weights, or an estimate of what the picture shows without
//! its objects.

use super::abi::*;
use super::images::Kernel;
use super::launch::{Args, Launch};
use crate::filter::inpainting::CellPyramid;
use crate::filter::mosaic::CellGrid;
use crate::filter::plane::DevicePlane;
use crate::filter::regions::{self, Rect};
use crate::filter::weights::Weights;

/// The number of warps of a block, in the kernels that compute cells and that mix.
const WARPS: u32 = SOFT_THREADS / 32;

/// The grid of the nodes of weights, and the address of the nodes on the device.
#[derive(Debug, Clone, Copy)]
pub struct Nodes {
    address: u64,
    count: [u32; 2],
    log2: u32,
}

impl Nodes {
    /// The nodes of these weights, at this address.
    pub fn new(weights: &Weights, address: u64) -> Self {
        let (columns, rows, _) = weights.nodes();
        Self { address, count: [columns, rows], log2: weights.cell().trailing_zeros() }
    }
}

/// The part of a launch that processes one grid: its kernel, arguments and blocks.
#[derive(Debug, Clone, Copy)]
pub struct SoftStep {
    kernel: Kernel,
    grid: SoftGrid,
    blocks: u64,
    shared_bytes: u32,
}

/// The planes of a mix. The first row of each is the first row of its field.
#[derive(Debug, Clone, Copy, Default)]
pub struct MixPlanes {
    /// The plane that the cover is mixed with.
    pub beside: DevicePlane,
    /// The plane of the cover; without memory if estimates from cells are mixed in.
    pub cover: DevicePlane,
    /// The plane that is written. It may be the plane `beside`.
    pub destination: DevicePlane,
}

/// The memory for the cells of all grids and for as many estimates, in bytes.
pub fn cell_bytes(grids: &[CellPyramid]) -> usize {
    2 * grids.iter().map(CellPyramid::words).sum::<usize>() * size_of::<u32>()
}

/// The address of the cells of a grid, in memory of [`cell_bytes`] from address `cells` on.
pub fn cells_of(pyramid: &CellPyramid, cells: u64) -> u64 {
    cells + 2 * (pyramid.first_word * size_of::<u32>()) as u64
}

/// Computes the cells of a grid from the samples of a plane that the weights leave.
pub fn cells(pyramid: &CellPyramid, nodes: Nodes, source: DevicePlane, cells: u64) -> SoftStep {
    let CellGrid { cells: count, .. } = pyramid.grid;
    let planes = MixPlanes { beside: source, destination: source, ..MixPlanes::default() };
    let blocks = (u64::from(count[0]) * u64::from(count[1])).div_ceil(WARPS.into());
    let grid = soft_grid(&pyramid.grid, nodes, &planes, cells_of(pyramid, cells));
    SoftStep { kernel: Kernel::SOFT_CELLS, grid, blocks, shared_bytes: 0 }
}

/// Computes the estimates from the cells of a grid.
pub fn spread(pyramid: &CellPyramid, nodes: Nodes, cells: u64) -> SoftStep {
    // The number of cells of a channel in all levels above the first one.
    let above: usize = pyramid.levels[1..].iter().map(|level| level.size.iter().product::<usize>()).sum();
    let grid = soft_grid(&pyramid.grid, nodes, &MixPlanes::default(), cells_of(pyramid, cells));
    let blocks = u64::from(SOFT_SPREAD_BLOCKS) * pyramid.grid.channels.len() as u64;
    SoftStep { kernel: Kernel::SOFT_SPREAD, grid, blocks, shared_bytes: (above * size_of::<u32>()) as u32 }
}

/// Mixes rectangles of a field, in its pixels and rows, with a plane or with estimates from the cells at this address. Bit c of
/// the mask: channel c keeps its value.
pub fn mix(grid: &CellGrid, nodes: Nodes, planes: &MixPlanes, cells: u64, rects: &[Rect], mask: u32) -> Vec<SoftStep> {
    let kept = grid.channels.iter().enumerate().map(|(i, channel)| (mask >> channel.first & 1) << i).sum();
    if kept == (1 << grid.channels.len()) - 1 {
        return Vec::new();
    }
    let all = SoftGrid { kept, ..soft_grid(grid, nodes, planes, cells) };
    let samples = rects.iter().filter_map(|rect| {
        let columns = grid.channels[0].covered(&grid.field.layout, *rect);
        Rect::between([columns.start, columns.end], [rect.y(), rect.bottom()])
    });
    let step = |rect: Rect| {
        let channels = grid.channels.len() as u32;
        let tiles = (rect.right() * channels).div_ceil(SOFT_TILE) - rect.x() * channels / SOFT_TILE;
        let rows = rect.bottom().div_ceil(SOFT_ROWS) - rect.y() / SOFT_ROWS;
        let covered = [[rect.x(), rect.right()], [rect.y(), rect.bottom()]];
        let blocks = u64::from(tiles) * u64::from(rows.div_ceil(WARPS));
        SoftStep { kernel: Kernel::SOFT_MIX, grid: SoftGrid { covered, tiles, ..all }, blocks, shared_bytes: 0 }
    };
    // No sample must be mixed twice, but the chroma of adjacent rectangles can overlap.
    regions::disjoint(&samples.collect::<Vec<_>>()).into_iter().map(step).collect()
}

fn soft_grid(grid: &CellGrid, nodes: Nodes, planes: &MixPlanes, cells: u64) -> SoftGrid {
    let layout = &grid.field.layout;
    let MixPlanes { beside, cover, destination } = planes;
    SoftGrid {
        src: beside.address,
        dst: destination.address,
        cover: cover.address,
        cells,
        nodes: nodes.address,
        src_pitch: beside.pitch as u64,
        dst_pitch: destination.pitch as u64,
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
        node_count: nodes.count,
        node_log2: nodes.log2,
        side: grid.side,
        side_log2: grid.side.trailing_zeros(),
        cell_count: grid.cells,
        covered: [[0; 2]; 2],
        tiles: 0,
        first_block: 0,
        reserved: 0,
    }
}

/// The launches of these steps, which do not depend on each other.
pub fn launches(steps: &[SoftStep]) -> Vec<Launch> {
    let launch = |steps: &[SoftStep]| {
        // Unused entries begin behind the last block.
        let unused = SoftGrid { first_block: u32::MAX, ..steps[0].grid };
        let (mut args, mut blocks) = (SoftArgs { grids: [unused; SOFT_GRIDS as usize] }, 0);
        for (to, step) in args.grids.iter_mut().zip(steps) {
            *to = SoftGrid { first_block: blocks as u32, ..step.grid };
            blocks += step.blocks;
        }
        let shared_bytes = steps.iter().map(|step| step.shared_bytes).max().unwrap_or(0);
        Launch::new(steps[0].kernel, blocks as u32, shared_bytes, Args::Soft(args))
    };
    let of_kernel = steps.chunk_by(|one, other| one.kernel == other.kernel);
    of_kernel.flat_map(|steps| steps.chunks(SOFT_GRIDS as usize)).map(launch).collect()
}
