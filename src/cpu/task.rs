// SPDX-License-Identifier: MPL-2.0
//! Operations whose memory is known, and the parts of them that one thread executes at a time: a tile or a block of rows.

use std::ops::Range;

use super::cells::CellMeans;
use super::packed_taps::BLOCK_ROWS;
use super::pixel_rows::PixelRows;
use super::resample::decimate::Decimation;
use super::resample::interpolate::Interpolation;
use super::tile::{SampleRect, Tile};
use super::tile_blur::{self, TILE_STEP};
use super::write::Write;
use crate::filter::inpainting::CellPyramid;

/// Samples that are summed up or written in about the time in which a thread wakes.
const LARGE: usize = 1 << 15;
/// The rows that a thread writes at least at a time, as weights of one row are next to those of another, and those that it
/// processes pixel by pixel.
const BLOCK_ROWS_OF_PIXELS: usize = 16;

/// An operation on a rectangle of its output, and where its rows are.
pub enum Task<'a> {
    /// One tile, which is still to be cut.
    Blur(Tile),
    /// Its rows are those of the small plane, and blocks begin at even ones.
    Decimate(Decimation),
    /// Its rows are those of the output, and blocks begin at multiples of the factor.
    Interpolate(Interpolation),
    Pixels(PixelRows<'a>),
    /// Its rows are those of cells.
    CellMeans(CellMeans<'a>),
    /// The estimates of a grid, in the memory of all grids of its field.
    Spread(&'a CellPyramid, *mut u32),
    Write(Write<'a>),
}

// SAFETY: a task's pointers are into frames and temporaries that `CpuEngine::run` borrows until all threads have finished.
unsafe impl Sync for Task<'_> {}

/// What one thread executes of a task: some of its rows, and of a blur some of their samples.
pub struct Part<'a> {
    pub task: &'a Task<'a>,
    pub region: SampleRect,
}

impl Part<'_> {
    pub fn rows(&self) -> Range<usize> {
        self.region.y..self.region.y + self.region.height
    }

    /// Whether it is cut by the work in it, which is then worth waking a thread for.
    pub fn is_large(&self) -> bool {
        match self.task {
            Task::Blur(_) | Task::Decimate(_) | Task::Interpolate(_) => true,
            Task::Pixels(_) | Task::Spread(..) => false,
            Task::CellMeans(means) => means.row_samples() * self.region.height >= LARGE,
            Task::Write(write) => write.row_samples() * self.region.height >= LARGE,
        }
    }

    /// Words of scratch memory that it needs.
    pub fn scratch_words(&self) -> usize {
        match self.task {
            Task::Blur(tile) => tile_blur::scratch_words(&Tile { region: self.region, ..tile.clone() }),
            Task::Decimate(decimation) => decimation.scratch_words(),
            Task::Interpolate(interpolation) => interpolation.scratch_words(),
            Task::Pixels(_) | Task::CellMeans(_) | Task::Spread(..) | Task::Write(_) => 0,
        }
    }
}

impl Task<'_> {
    /// Its parts: this many, or fewer if they would be too small.
    pub fn parts(&self, count: usize) -> impl Iterator<Item = Part<'_>> {
        let (rows, step) = match self {
            Self::Blur(tile) => return self.of_regions(tiles(tile, count)),
            Self::Decimate(decimation) => (decimation.small_rows.clone(), decimation.block_rows(count)),
            Self::Interpolate(interpolation) => (0..interpolation.output_rows, interpolation.block_rows(count)),
            Self::Pixels(pixels) => (pixels.rows.clone(), BLOCK_ROWS_OF_PIXELS),
            Self::CellMeans(means) => (0..means.rows(), LARGE.div_ceil(means.row_samples().max(1))),
            Self::Spread(..) => (0..1, 1),
            Self::Write(write) => (write.rows(), LARGE.div_ceil(write.row_samples().max(1)).max(BLOCK_ROWS_OF_PIXELS)),
        };
        let block = |y: usize| SampleRect { x: 0, y, width: 0, height: step.min(rows.end - y) };
        self.of_regions(rows.clone().step_by(step).map(block).collect())
    }

    fn of_regions(&self, regions: Vec<SampleRect>) -> impl Iterator<Item = Part<'_>> {
        regions.into_iter().map(|region| Part { task: self, region })
    }
}

/// How a tile is cut: columns so that the ring of row pairs of each part stays in the L2 cache, then bands of rows until every
/// thread has enough parts to even out.
fn tiles(Tile { region, taps, .. }: &Tile, count: usize) -> Vec<SampleRect> {
    /// Bytes that a tile's ring should not exceed: half of a small L2 cache.
    const RING_BYTES: usize = 256 << 10;
    /// A tile of fewer samples times taps than this is not worth another thread.
    const TILE_WORK: usize = 1 << 18;
    let (samples, rows, taps) = (region.width, region.height, &taps.all);
    let widest = (RING_BYTES / 4 / taps.block_pairs()).max(2 * TILE_STEP);
    let columns = samples.div_ceil(widest);
    let width = samples.div_ceil(columns).next_multiple_of(TILE_STEP);
    let columns = samples.div_ceil(width);

    let work = samples * rows * (taps.radius[0] + taps.radius[1] + 2);
    let tiles = count.min(work / TILE_WORK).max(1);
    // Every band filters 2 × radius rows that its neighbours filter too.
    let shortest = 4 * taps.radius[1] + 16;
    let bands = tiles.div_ceil(columns).min(rows.div_ceil(shortest)).max(1);
    let height = rows.div_ceil(bands).next_multiple_of(BLOCK_ROWS);
    let of_rows = |y: usize| {
        (0..samples).step_by(width).map(move |x| SampleRect {
            x: region.x + x,
            y: region.y + y,
            width: width.min(samples - x),
            height: height.min(rows - y),
        })
    };
    (0..rows).step_by(height).flat_map(of_rows).collect()
}
