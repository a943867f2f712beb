// SPDX-License-Identifier: MPL-2.0
//! What one thread executes at a time: a tile or a block of rows of an operation.

use std::ops::Range;

use super::cells::CellMeans;
use super::pixel_rows::PixelRows;
use super::resample::decimate::Decimation;
use super::resample::interpolate::Interpolation;
use super::tile::Tile;
use super::tile_blur;
use super::write::Write;
use crate::filter::inpainting::CellPyramid;

/// Samples that are summed up or written in about the time in which a thread wakes.
pub const LARGE: usize = 1 << 15;

/// A part of an operation.
pub enum Task<'a> {
    /// Of a blur.
    Tile(Tile),
    /// Rows of the small plane, from an even one on.
    Decimation(&'a Decimation, Range<usize>),
    /// Output rows, from a multiple of the factor on.
    Interpolation(&'a Interpolation, Range<usize>),
    /// Rows of an operation that goes pixel by pixel.
    Pixels(&'a PixelRows<'a>, Range<usize>),
    /// Rows of cells.
    CellMeans(&'a CellMeans<'a>, Range<usize>),
    /// The estimates of a grid, in the memory of all grids of its field.
    Spread(&'a CellPyramid, *mut u32),
    /// Rows of what covers.
    Write(&'a Write<'a>, Range<usize>),
}

// SAFETY: a task's pointers are into frames and temporaries that `CpuEngine::run` borrows until all threads have finished.
unsafe impl Sync for Task<'_> {}

impl Task<'_> {
    /// Words of scratch memory that it needs.
    pub fn scratch_words(&self) -> usize {
        match self {
            Self::Tile(tile) => tile_blur::scratch_words(tile),
            Self::Decimation(decimation, _) => decimation.scratch_words(),
            Self::Interpolation(interpolation, _) => interpolation.scratch_words(),
            Self::Pixels(..) | Self::CellMeans(..) | Self::Spread(..) | Self::Write(..) => 0,
        }
    }

    /// Whether it is cut by the work in it, which is then worth waking a thread for.
    pub fn is_large(&self) -> bool {
        match self {
            Self::Pixels(..) | Self::Spread(..) => false,
            Self::CellMeans(means, rows) => means.row_samples() * rows.len() >= LARGE,
            Self::Write(write, rows) => write.row_samples() * rows.len() >= LARGE,
            _ => true,
        }
    }
}
