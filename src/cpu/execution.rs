// SPDX-License-Identifier: MPL-2.0
//! Turns the operations of a plan on rectangles into tasks for the worker threads, and allocates the temporaries.

use std::ops::Range;
use std::sync::Arc;

use super::CpuError;
use super::cells::CellMeans;
use super::packed_taps::{BLOCK_ROWS, PlanePackedTaps};
use super::pixel_rows::PixelRows;
use super::resample::decimate::Decimation;
use super::resample::interpolate::Interpolation;
use super::sample_weights::SampleWeights;
use super::scratch::Scratch;
use super::task::Task;
use super::tile::{SampleRect, Tile};
use super::write::{Mixing, Samples, Write};
use crate::filter::cover::Softness;
use crate::filter::frame::PlaneLayout;
use crate::filter::inpainting::CellPyramid;
use crate::filter::operation::{
    AlphaSource, Buffer, Cells, CoverSamples, Layer, Mix, Operation, Resampling, View, WeightsOf,
};
use crate::filter::parts::{Job, Tiles};
use crate::filter::picture::Placement;
use crate::filter::plane::{HostPlane, HostPlaneMut};
use crate::filter::regions::Rect;
use crate::filter::wide::Factor;

/// How the CPU divides operations.
pub const TILES: Tiles = Tiles { round, cost };

/// The number of pixels that are read and written, including those beyond the rectangle in its last vectors. An additional
/// rectangle takes about as long as 4096 pixels (two cores, AVX-512).
fn cost(operation: &Operation, rect: Rect) -> u64 {
    const VECTORS: u32 = 64;
    const RECT: u64 = 4096;
    let read: u64 = operation.reads(rect).into_iter().map(|(_, rect)| rect.area()).sum();
    (rect.area() + read) * u64::from(rect.width().next_multiple_of(VECTORS)) / u64::from(rect.width()) + RECT
}

/// Interpolations compute all phases of a sample of the small plane, and write up to 64 samples at a time. Decimations compute
/// two rows at a time, and blurs [`BLOCK_ROWS`]. Packed 4:2:2 is processed in pairs of pixels.
fn round(operation: &Operation, rect: Rect) -> Rect {
    let pixels = operation.output().field.layout.unit_pixels();
    let [across, down, width] = match operation {
        Operation::Interpolate(resampling) => {
            const BLOCK: u32 = 64;
            let [across, down] = resampling.factors.map(Factor::get);
            let across = if resampling.is_by_pairs() { 2 * across } else { across.max(pixels) };
            [across, down, BLOCK.div_ceil(operation.output().field.layout.channels.into()).next_multiple_of(across)]
        }
        Operation::Decimate(_) => [1, 2, 1],
        Operation::Blur { .. } => [pixels, BLOCK_ROWS as u32, pixels],
        _ => [pixels, 1, pixels],
    };
    let layout = operation.output().field.layout;
    let (x, y) = (rect.x() / across * across, rect.y() / down * down);
    let right = (x + (rect.right() - x).next_multiple_of(width)).min(layout.width);
    let bottom = rect.bottom().next_multiple_of(down).min(layout.height);
    Rect::between([x, right], [y, bottom]).expect("a larger rectangle has samples")
}

/// Allocates the temporaries of a job. Their rows are dense, and each temporary starts on a cache line. Rows that are not
/// accessed get no memory.
pub fn place_temporaries(job: &Job, memory: &mut Scratch) -> Result<Vec<HostPlaneMut>, CpuError> {
    let rows = job.extents.iter().map(|extent| extent.map_or(0..0, |extent| extent.row..extent.row + extent.rows));
    let planes = || job.plan.temporaries().iter().map(PlaneLayout::row_bytes).zip(rows.clone());
    let words = |(pitch, rows): &(usize, Range<usize>)| {
        (pitch * rows.len()).div_ceil(4).next_multiple_of(Scratch::ALIGNMENT_WORDS)
    };
    memory.reserve(planes().map(|plane| words(&plane)).sum())?;
    let mut next = memory.words();
    let place = |plane: (usize, Range<usize>)| {
        let ((pitch, rows), words) = (&plane, words(&plane));
        let address = next.cast::<u8>().wrapping_sub(rows.start * pitch);
        next = next.wrapping_add(words);
        HostPlaneMut { address, pitch: *pitch, len: rows.end * pitch }
    };
    Ok(planes().map(place).collect())
}

/// The planes that the buffers of a plan stand for, and the weights of a soft cover.
pub struct BufferPlanes<'a> {
    pub sources: &'a [HostPlane],
    pub destinations: &'a [HostPlaneMut],
    pub temporaries: &'a [HostPlaneMut],
    pub soft: Option<&'a Softness>,
}

impl<'a> BufferPlanes<'a> {
    fn to_read(&self, view: &View) -> HostPlane {
        let plane = match view.buffer {
            Buffer::Source(index) => self.sources[index],
            Buffer::Destination(index) => self.destinations[index].as_const(),
            Buffer::Temporary(index) => self.temporaries[index].as_const(),
        };
        view.field.rows_of(&plane)
    }

    fn to_write(&self, view: &View) -> HostPlaneMut {
        let plane = match view.buffer {
            Buffer::Source(_) => unreachable!("no operation writes the source"),
            Buffer::Destination(index) => self.destinations[index],
            Buffer::Temporary(index) => self.temporaries[index],
        };
        view.field.rows_of(&plane)
    }

    /// The tasks that execute an operation on rectangles of its output.
    pub fn prepare(&self, operation: &'a Operation, rects: &[Rect]) -> Vec<Task<'a>> {
        let resampled =
            |Resampling { source, destination, .. }: &Resampling| (self.to_read(source), self.to_write(destination));
        match operation {
            Operation::Blur { source, destination, taps } => {
                let layout = source.field.layout;
                let packed = Arc::new(PlanePackedTaps::new(&layout, taps));
                let (source, destination) = (self.to_read(source), self.to_write(destination));
                let tile = |rect: &Rect| {
                    let (taps, region) = (Arc::clone(&packed), samples(&layout, *rect));
                    Tile { layout, source, destination, taps, region }
                };
                rects.iter().map(tile).map(Task::Blur).collect()
            }
            Operation::Decimate(resampling) => {
                let (source, destination) = resampled(resampling);
                let decimation = |rect: &Rect| Decimation::new(resampling, *rect, source, destination);
                rects.iter().map(decimation).map(Task::Decimate).collect()
            }
            Operation::Interpolate(resampling) => {
                let (source, destination) = resampled(resampling);
                let interpolation = |rect: &Rect| Interpolation::new(resampling, *rect, source, destination);
                rects.iter().map(interpolation).map(Task::Interpolate).collect()
            }
            _ if rects.is_empty() => Vec::new(),
            Operation::CellMeans { source, cells, excluded } => {
                let memory = self.to_write(&cells.view).address.cast();
                let of_grids = |grids: &'a [CellPyramid]| {
                    let excluded = excluded.map(|placement| self.weights(WeightsOf::Excluded, placement, source));
                    let (layout, source) = (source.field.layout, self.to_read(source));
                    Task::CellMeans(CellMeans { layout, excluded, source, grids, memory })
                };
                cells.grids.chunk_by(|one, other| one.grid.shares_columns(&other.grid)).map(of_grids).collect()
            }
            Operation::Spread(cells) => {
                let memory = self.to_write(&cells.view).address.cast();
                cells.grids.iter().map(|grid| Task::Spread(grid, memory)).collect()
            }
            Operation::Write { layers, cells, destination, mix } => {
                vec![Task::Write(self.write(layers, cells.as_ref(), destination, mix.as_ref(), rects))]
            }
            _ => rects.iter().map(|rect| Task::Pixels(self.pixel_rows(operation, *rect))).collect(),
        }
    }

    /// The weights for the samples of a view.
    fn weights(&self, of: WeightsOf, placement: Placement, view: &View) -> SampleWeights<'a> {
        let soft = self.soft.expect("a plan with weights is executed with them");
        let weights = match of {
            WeightsOf::Cover => Some(&soft.weights),
            WeightsOf::Excluded => soft.excluded.as_ref(),
        };
        let weights = weights.expect("a plan that leaves out samples is executed with weights of them");
        SampleWeights::new(weights, placement, view.field.layout)
    }

    fn write(
        &self,
        layers: &'a [Layer],
        cells: Option<&'a Cells>,
        destination: &View,
        mix: Option<&Mix>,
        rects: &[Rect],
    ) -> Write<'a> {
        let cells = || cells.map(|cells| (&cells.grids[..], self.to_read(&cells.view).address.cast()));
        let cells = || cells().expect("layers of cells come with them");
        let layer = |Layer { samples, rects }: &'a Layer| {
            let samples = match samples {
                CoverSamples::Plane(view) => Samples::Plane(self.to_read(view)),
                CoverSamples::Mosaic(of) => {
                    let (grids, memory) = cells();
                    Samples::Mosaic(&grids[of.clone()], memory)
                }
                CoverSamples::Estimates => {
                    let (grids, memory) = cells();
                    Samples::Estimates(grids, memory)
                }
                CoverSamples::Pattern(pattern) => Samples::Pattern(*pattern),
            };
            (samples, &rects[..])
        };
        let mixing = |mix: &Mix| Mixing {
            weights: self.weights(mix.weights, mix.placement, destination),
            beside: Some(self.to_read(&mix.beside))
                .filter(|beside| beside.address != self.to_write(destination).address.cast_const()),
            passthrough_mask: mix.passthrough_mask,
        };
        Write {
            layout: destination.field.layout,
            layers: layers.iter().map(layer).collect(),
            to: self.to_write(destination),
            rects: rects.to_vec(),
            mixing: mix.map(mixing),
        }
    }

    /// The task of an operation that is executed pixel by pixel.
    fn pixel_rows(&self, operation: &'a Operation, rect: Rect) -> PixelRows<'a> {
        let unused = HostPlaneMut { address: std::ptr::null_mut(), pitch: 0, len: 0 };
        let alpha_plane = |alpha: &AlphaSource| match alpha {
            AlphaSource::Plane { view, .. } => Some(self.to_read(view)),
            AlphaSource::Channel(_) => None,
        };
        let (source, destination, premultiplied, alpha) = match operation {
            Operation::Copy { source, destination } | Operation::RestoreChannels { source, destination, .. } => {
                (source, self.to_write(destination), unused, None)
            }
            Operation::Premultiply { source, alpha, premultiplied } => {
                (source, unused, self.to_write(premultiplied), alpha_plane(alpha))
            }
            Operation::Unpremultiply { premultiplied, alpha, source, destination, .. } => {
                (source, self.to_write(destination), self.to_write(premultiplied), alpha_plane(alpha))
            }
            _ => unreachable!("`prepare` handles the others itself"),
        };
        let layout = source.field.layout;
        let columns = layout.columns(rect);
        PixelRows {
            operation,
            layout,
            columns: columns.start as usize..columns.end as usize,
            rows: rect.y() as usize..rect.bottom() as usize,
            source: self.to_read(source),
            destination,
            premultiplied,
            alpha,
        }
    }
}

/// Converts a rectangle of a plane from pixels to samples of its rows.
fn samples(layout: &PlaneLayout, rect: Rect) -> SampleRect {
    let (columns, channels) = (layout.columns(rect), usize::from(layout.channels));
    let (x, width) = (columns.start as usize * channels, columns.len() * channels);
    SampleRect { x, y: rect.y() as usize, width, height: rect.height() as usize }
}
