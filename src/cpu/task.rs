// SPDX-License-Identifier: MPL-2.0
//! What one thread executes at a time: a tile or a block of rows of an operation.

use super::pixel_rows::PixelBlock;
use super::resample::decimate::DecimationBlock;
use super::resample::interpolate::InterpolationBlock;
use super::soft::SoftBlock;
use super::tile::Tile;
use super::tile_blur;
use crate::filter::byte_rect::ByteRect;
use crate::filter::plane::{HostPlane, HostPlaneMut};

/// A part of an operation.
pub enum Task<'a> {
    /// Of a blur.
    Tile(Tile<'a>),
    /// Of a decimation.
    Decimation(DecimationBlock<'a>),
    /// Of an interpolation.
    Interpolation(InterpolationBlock<'a>),
    /// Of an operation that goes pixel by pixel.
    Pixels(PixelBlock<'a>),
    /// Of the weights of a soft cover.
    Soft(SoftBlock<'a>),
    /// Copies of parts of a plane to another one, which may overlap.
    Copy { from: HostPlane, to: HostPlaneMut, rects: Vec<ByteRect> },
}

// SAFETY: a task's pointers are into frames and temporaries that `CpuEngine::blur` borrows until all threads have finished.
unsafe impl Sync for Task<'_> {}

impl Task<'_> {
    /// Words of scratch memory that it needs.
    pub fn scratch_words(&self) -> usize {
        match self {
            Self::Tile(tile) => tile_blur::scratch_words(tile),
            Self::Decimation(block) => block.decimation.scratch_words(),
            Self::Interpolation(block) => block.interpolation.scratch_words(),
            Self::Pixels(_) | Self::Soft(_) | Self::Copy { .. } => 0,
        }
    }
}
