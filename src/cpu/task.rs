// SPDX-License-Identifier: MPL-2.0
//! Tasks: operations with the memory of their planes. They are cut into parts, a tile or a block of rows, which one thread
//! executes at a time.

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

/// The number of samples that a thread sums up or writes in about the time that waking a thread takes.
const LARGE: usize = 1 << 15;
/// The smallest number of rows in a part of [`Task::Write`], because the runs of a part are found once for all of its rows; and
/// the number of rows in a part of [`Task::Pixels`].
const BLOCK_ROWS_OF_PIXELS: usize = 16;

/// An operation on rectangles of its output, with the memory of its planes.
pub enum Task<'a> {
    /// A tile, which is still to be cut.
    Blur(Tile),
    /// The rows of its parts are rows of the small plane. Parts begin at even rows.
    Decimate(Decimation),
    /// The rows of its parts are rows of the output. Parts begin at multiples of the factor.
    Interpolate(Interpolation),
    Pixels(PixelRows<'a>),
    /// The rows of its parts are rows of cells.
    CellMeans(CellMeans<'a>),
    /// Spreads the cells of this pyramid, in the memory of all grids of its field.
    Spread(&'a CellPyramid, *mut u32),
    Write(Write<'a>),
}

// SAFETY: the pointers of a task point into frames and temporaries, which `CpuEngine::run` borrows until all threads have
// finished.
unsafe impl Sync for Task<'_> {}

/// The part of a task that one thread executes: some of its rows and, for a blur, some of the samples in them.
pub struct Part<'a> {
    pub task: &'a Task<'a>,
    pub region: SampleRect,
}

impl Part<'_> {
    pub fn rows(&self) -> Range<usize> {
        self.region.y..self.region.y + self.region.height
    }

    /// Whether the part has enough work to be worth waking a thread.
    pub fn is_large(&self) -> bool {
        match self.task {
            Task::Blur(_) | Task::Decimate(_) | Task::Interpolate(_) => true,
            Task::Pixels(_) | Task::Spread(..) => false,
            Task::CellMeans(means) => means.row_samples() * self.region.height >= LARGE,
            Task::Write(write) => write.row_samples() * self.region.height >= LARGE,
        }
    }

    /// The words of scratch memory that the part needs.
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
    /// Cuts the task. Blurs, decimations and interpolations become about `count` parts, or fewer if these would be too small.
    /// Other tasks become parts of a fixed size.
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

/// Cuts a tile: first into columns, so that the ring buffer of each part stays in the L2 cache, then into bands of rows, until
/// there are enough parts to even out the load.
fn tiles(Tile { region, taps, .. }: &Tile, count: usize) -> Vec<SampleRect> {
    /// The largest size of a ring buffer, in bytes: half of a small L2 cache.
    const RING_BYTES: usize = 256 << 10;
    /// A tile with fewer samples times taps than this is not worth another thread.
    const TILE_WORK: usize = 1 << 18;
    let (samples, rows, taps) = (region.width, region.height, &taps.all);
    let widest = (RING_BYTES / 4 / taps.block_pairs()).max(2 * TILE_STEP);
    let columns = samples.div_ceil(widest);
    let width = samples.div_ceil(columns).next_multiple_of(TILE_STEP);
    let columns = samples.div_ceil(width);

    let work = samples * rows * (taps.radius[0] + taps.radius[1] + 2);
    let tiles = count.min(work / TILE_WORK).max(1);
    // Each band convolves 2 × radius rows that its neighbours convolve, too.
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
