// SPDX-License-Identifier: MPL-2.0
//! The operations of plans, and the rectangles that they read and write.

use std::ops::Range;
use std::sync::Arc;

use crate::filter::Taps;
use crate::filter::frame::{Field, PlaneLayout};
use crate::filter::inpainting::CellPyramid;
use crate::filter::picture::Placement;
use crate::filter::regions::{Rect, disjoint};
use crate::filter::wide::{Factor, LEVEL_RADIUS, MARGIN, PHASE_TAPS};

/// The taps of the two passes over a plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaneTaps {
    /// The taps along rows.
    pub rows: Taps,
    /// The taps along columns.
    pub columns: Taps,
    /// The taps along rows for the chroma of packed 4:2:2, in pairs of pixels. They equal `rows` for all other layouts.
    pub chroma_rows: Taps,
}

/// A plane that an operation accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// A plane of the frame that is read, by its index.
    Source(usize),
    /// A plane of the frame that is written, by its index.
    Destination(usize),
    /// A temporary of the plan, by its index.
    Temporary(usize),
}

/// Temporaries are processed in multiples of this many rows, apart from their last rows, so that backends may store blocks of
/// rows.
pub const TEMPORARY_ROWS: u32 = 4;

/// A field of a plane that an operation accesses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// The plane.
    pub buffer: Buffer,
    /// The field.
    pub field: Field,
}

/// Where the alpha of a plane's pixels is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AlphaSource {
    /// In this channel of the plane.
    Channel(u8),
    /// In a separate plane.
    Plane {
        /// The field of the alpha plane that belongs to the field of the colour plane.
        view: View,
        /// log2 of the colour plane's subsampling relative to the alpha plane, along x and y.
        subsampling: [u32; 2],
    },
}

impl AlphaSource {
    /// The rectangle of the alpha plane that a rectangle of colour needs; `None` if alpha is in a channel.
    pub fn reads(&self, rect: Rect) -> Option<(View, Rect)> {
        let Self::Plane { view, subsampling } = self else { return None };
        let PlaneLayout { width, height, .. } = view.field.layout;
        let along =
            |start: u32, end: u32, log2: u32, count: u32| clipped((start << log2).into(), (end << log2).into(), count);
        let x = along(rect.x(), rect.right(), subsampling[0], width);
        Some((*view, Rect::between(x, along(rect.y(), rect.bottom(), subsampling[1], height))?))
    }
}

/// The samples of a pixel that an operation processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channels {
    /// All samples.
    All,
    /// The luma of packed 4:2:2, as one channel.
    Luma,
    /// The chroma of packed 4:2:2, as two channels.
    Chroma,
}

impl Channels {
    /// The layout of the processed samples as a separate plane.
    pub fn part_of(self, layout: &PlaneLayout) -> PlaneLayout {
        match self {
            Self::All => *layout,
            Self::Luma => PlaneLayout { channels: 1, ..*layout },
            Self::Chroma => PlaneLayout { width: layout.width.div_ceil(2), channels: 2, ..*layout },
        }
    }
}

/// The two planes of a decimation or an interpolation, and the factors between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resampling {
    /// The plane that is read.
    pub source: View,
    /// The plane that is written.
    pub destination: View,
    /// The factors along x and y. At least one is not [`Factor::One`].
    pub factors: [Factor; 2],
    /// The samples of the larger plane that are processed.
    pub channels: Channels,
    /// The level: 0 if the larger plane is a plane of the frame or the premultiplied plane. Each further decimation adds 1.
    pub level: u8,
}

impl Resampling {
    /// Whether a sample of the larger plane belongs to a pair of pixels, as the chroma of packed 4:2:2 does.
    pub fn is_by_pairs(&self) -> bool {
        self.channels == Channels::Chroma
    }

    /// Converts a rectangle of the larger plane from pixels to processed samples.
    pub fn in_samples(&self, rect: Rect) -> Rect {
        let x = if self.is_by_pairs() { [rect.x() / 2, rect.right().div_ceil(2)] } else { [rect.x(), rect.right()] };
        rect_between(x, [rect.y(), rect.bottom()])
    }
}

/// The cells of a field of a plane.
#[derive(Debug, Clone, PartialEq)]
pub struct Cells {
    /// The grids of the cells, with the place of each in the common memory.
    pub grids: Arc<[CellPyramid]>,
    /// The memory of all cells: a temporary of one row, with four bytes for each channel of a cell.
    pub view: View,
}

/// The samples of a cover.
#[derive(Debug, Clone, PartialEq)]
pub enum CoverSamples {
    /// The same samples of another plane.
    Plane(View),
    /// The mean of the cell that a sample is in. The range selects grids among the cells of the operation, one for each set of
    /// channels.
    Mosaic(Range<usize>),
    /// Estimates, interpolated between all cells of the operation.
    Estimates,
    /// A pattern of bytes, which repeats from the first byte of the row on.
    Pattern(Pattern),
}

/// The bytes of a pixel, or of a pair of pixels of packed 4:2:2: the first `len` of `bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the line above says what both are")]
pub struct Pattern {
    pub bytes: [u8; 8],
    pub len: usize,
}

/// A part of a cover: samples, and the rectangles to which they are written.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// The samples that are written.
    pub samples: CoverSamples,
    /// The rectangles, in pixels and rows of the destination.
    pub rects: Vec<Rect>,
}

/// Selects one of the weights of a soft cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightsOf {
    /// The weights of the cover.
    Cover,
    /// The weights by which samples are left out of the blurs.
    Excluded,
}

/// How a cover is mixed with the picture, and by which weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    /// The weights of the written samples.
    pub weights: WeightsOf,
    /// Where the written samples are in the picture.
    pub placement: Placement,
    /// The plane that is mixed with the cover. It is the plane of the source, which may have the same memory as the destination.
    pub beside: View,
    /// Bit c: channel c keeps its value.
    pub passthrough_mask: u32,
}

/// One step of a plan. All views of an operation have the same number of rows, apart from alpha planes, cells, and the planes of
/// decimations and interpolations.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Copies rows, padding bits included.
    Copy {
        /// The plane that is read.
        source: View,
        /// The plane that is written.
        destination: View,
    },
    /// Writes colour times alpha and unchanged alpha, each with 16 bits a sample. Alpha from a separate plane becomes the last
    /// channel.
    Premultiply {
        /// The colour plane that is read.
        source: View,
        /// Where alpha is stored.
        alpha: AlphaSource,
        /// The temporary that is written.
        premultiplied: View,
    },
    /// Blurs rows, then columns.
    Blur {
        /// The plane that is read.
        source: View,
        /// The plane that is written.
        destination: View,
        /// The taps of both passes.
        taps: PlaneTaps,
    },
    /// Writes the small plane of a level of the wide form, with 16 bits a sample.
    Decimate(Resampling),
    /// Interpolates the blurred small plane of a level of the wide form.
    Interpolate(Resampling),
    /// Divides blurred colour by blurred alpha, and writes it with the destination's depth. Where the blurred alpha is 0, writes
    /// the colour of the source.
    Unpremultiply {
        /// The temporary that is read, with blurred colour and alpha.
        premultiplied: View,
        /// Where the source stores alpha.
        alpha: AlphaSource,
        /// The source, which is read, too.
        source: View,
        /// The plane that is written.
        destination: View,
        /// Bit c: channel c keeps the source's value.
        passthrough_mask: u32,
    },
    /// Copies single channels back from the source, after all channels were blurred.
    RestoreChannels {
        /// The plane that is read.
        source: View,
        /// The plane that is written.
        destination: View,
        /// Bit c: channel c keeps the source's value.
        passthrough_mask: u32,
    },
    /// Computes the means of the samples in cells.
    CellMeans {
        /// The plane that is read.
        source: View,
        /// The cells that are written.
        cells: Cells,
        /// Where the samples are in the picture, if weights say how much of each sample is left out.
        excluded: Option<Placement>,
    },
    /// Turns the means of cells into estimates, in place: cells from which samples were left out take values from coarser cells.
    Spread(Cells),
    /// Writes layers over each other, the lowest layer first, or mixes them with the plane `beside`.
    Write {
        /// The layers.
        layers: Vec<Layer>,
        /// The cells of layers with mosaics or estimates.
        cells: Option<Cells>,
        /// The plane that is written.
        destination: View,
        /// How the layers are mixed; `None` if they hide completely.
        mix: Option<Mix>,
    },
}

impl Operation {
    /// How many of the first rows of the output can be computed from the first `available` rows of the source. Only for
    /// operations of plans that can be banded.
    pub fn ready_rows(&self, available: u32) -> u32 {
        let View { buffer, field } = self.output();
        // Only plans that cannot be banded read other views, and these have all rows.
        if available >= self.source().field.layout.height {
            return field.layout.height;
        }
        let is_ready = |rows: u32| {
            let rect = rect_between([0, field.layout.width], [0, rows]);
            self.reads(rect).iter().all(|(_, read)| read.bottom() <= available)
        };
        let [mut ready, mut not_ready] = [0, field.layout.height + 1];
        while not_ready - ready > 1 {
            let rows = ready.midpoint(not_ready);
            if is_ready(rows) { ready = rows } else { not_ready = rows }
        }
        match buffer {
            Buffer::Temporary(_) if ready < field.layout.height => ready / TEMPORARY_ROWS * TEMPORARY_ROWS,
            _ => ready,
        }
    }

    /// The rectangles of all views that a rectangle of the output is computed from, in pixels and rows of these views. Samples
    /// outside of them do not affect the output.
    pub fn reads(&self, rect: Rect) -> Vec<(View, Rect)> {
        match self {
            Self::Copy { source, .. } | Self::RestoreChannels { source, .. } => vec![(*source, rect)],
            Self::Blur { source, taps, .. } => vec![(*source, blur_reads(&source.field.layout, taps, rect))],
            Self::Decimate(resampling) => vec![(resampling.source, decimation_reads(resampling, rect))],
            Self::Interpolate(resampling) => vec![(resampling.source, interpolation_reads(resampling, rect))],
            Self::Premultiply { source, alpha, .. } => {
                std::iter::once((*source, rect)).chain(alpha.reads(rect)).collect()
            }
            // The premultiplied plane includes the blurred alpha. The colour of the source is used where this alpha is 0.
            Self::Unpremultiply { premultiplied, source, .. } => vec![(*premultiplied, rect), (*source, rect)],
            Self::CellMeans { source, cells, .. } => {
                cells.grids.iter().filter_map(|pyramid| Some((*source, pyramid.grid.reads()?))).collect()
            }
            Self::Spread(cells) => vec![(cells.view, rect)],
            Self::Write { layers, cells, mix, .. } => {
                let mut reads: Vec<(View, Rect)> =
                    cells.iter().map(|cells| (cells.view, all_of(&cells.view))).collect();
                for Layer { samples, rects } in layers {
                    if let CoverSamples::Plane(view) = samples {
                        reads.extend(rects.iter().filter_map(|covered| Some((*view, covered.intersection(rect)?))));
                    }
                }
                reads.extend(mix.iter().map(|mix| (mix.beside, rect)));
                reads
            }
        }
    }

    /// The rectangles of the frame that the operation covers; `None` if it writes no frame. They are written even though no later
    /// operation reads them.
    pub fn covered(&self) -> Option<Vec<Rect>> {
        let Self::Write { layers, destination: View { buffer: Buffer::Destination(_), .. }, .. } = self else {
            return None;
        };
        let rects: Vec<Rect> = layers.iter().flat_map(|layer| layer.rects.iter().copied()).collect();
        Some(disjoint(&rects))
    }

    /// The main input of the operation: not its alpha, and not the samples of a cover. For `Write` this is the plane `beside`, or
    /// the destination if nothing is mixed.
    pub fn source(&self) -> View {
        match self {
            Self::Unpremultiply { premultiplied, .. } => *premultiplied,
            Self::Decimate(resampling) | Self::Interpolate(resampling) => resampling.source,
            Self::Copy { source, .. }
            | Self::Blur { source, .. }
            | Self::Premultiply { source, .. }
            | Self::CellMeans { source, .. }
            | Self::RestoreChannels { source, .. } => *source,
            Self::Spread(cells) => cells.view,
            Self::Write { destination, mix, .. } => mix.as_ref().map_or(*destination, |mix| mix.beside),
        }
    }

    /// The view that the operation writes.
    pub fn output(&self) -> View {
        match self {
            Self::Premultiply { premultiplied, .. } => *premultiplied,
            Self::Decimate(resampling) | Self::Interpolate(resampling) => resampling.destination,
            Self::Copy { destination, .. }
            | Self::Blur { destination, .. }
            | Self::Unpremultiply { destination, .. }
            | Self::Write { destination, .. }
            | Self::RestoreChannels { destination, .. } => *destination,
            Self::CellMeans { cells, .. } | Self::Spread(cells) => cells.view,
        }
    }

    /// The same operation with other buffers.
    pub(super) fn with_buffers(&self, other: impl Fn(Buffer) -> Buffer) -> Self {
        let mut operation = self.clone();
        let views = match &mut operation {
            Self::Copy { source, destination }
            | Self::Blur { source, destination, .. }
            | Self::RestoreChannels { source, destination, .. }
            | Self::Decimate(Resampling { source, destination, .. })
            | Self::Interpolate(Resampling { source, destination, .. }) => [source, destination],
            Self::Premultiply { .. } | Self::Unpremultiply { .. } => unreachable!("covers treat alpha as straight"),
            Self::CellMeans { .. } | Self::Spread(_) | Self::Write { .. } => unreachable!("covers are not in covers"),
        };
        views.into_iter().for_each(|view| view.buffer = other(view.buffer));
        operation
    }

    /// The position in a plan of operations of this kind. Planes without their objects are made first. Then the blur decimates
    /// level by level, blurs the smallest planes, and interpolates level by level. Covers are written to the frame last.
    pub(super) fn stage(&self) -> u8 {
        const BLUR: u8 = 128;
        match self {
            Self::CellMeans { .. } => 0,
            Self::Spread(_) => 1,
            Self::Write { destination: View { buffer: Buffer::Temporary(_), .. }, .. } => 2,
            Self::Copy { .. } => 3,
            Self::Premultiply { .. } => 4,
            Self::Decimate(Resampling { level, .. }) => 5 + level,
            Self::Blur { .. } => BLUR,
            Self::Interpolate(Resampling { level, .. }) => u8::MAX - 2 - level,
            Self::Unpremultiply { .. } | Self::RestoreChannels { .. } => u8::MAX - 1,
            Self::Write { .. } => u8::MAX,
        }
    }

    /// Whether both operations are in the same stage of a plan, so that neither reads the output of the other.
    pub fn is_independent_of(&self, other: &Self) -> bool {
        self.stage() == other.stage()
    }
}

/// The samples of an axis, which has `count` of them, that are read for the positions from `start` to `end`. Beyond the axis, its
/// edges repeat.
fn clipped(start: i64, end: i64, count: u32) -> [u32; 2] {
    let last = i64::from(count) - 1;
    [start.clamp(0, last) as u32, (end - 1).clamp(0, last) as u32 + 1]
}

/// The rectangle of a whole view.
pub(super) fn all_of(view: &View) -> Rect {
    rect_between([0, view.field.layout.width], [0, view.field.layout.height])
}

fn rect_between(x: [u32; 2], y: [u32; 2]) -> Rect {
    Rect::between(x, y).expect("planes, and what a sample is computed from, are not empty")
}

fn blur_reads(layout: &PlaneLayout, taps: &PlaneTaps, rect: Rect) -> Rect {
    let around = |start: u32, end: u32, taps: &Taps, count: u32| {
        let radius = taps.radius() as i64;
        clipped(i64::from(start) - radius, i64::from(end) + radius, count)
    };
    let y = around(rect.y(), rect.bottom(), &taps.columns, layout.height);
    if !layout.is_packed_422() {
        return rect_between(around(rect.x(), rect.right(), &taps.rows, layout.width), y);
    }
    let pairs = [rect.x() / 2, rect.right().div_ceil(2)];
    let luma = around(rect.x(), rect.right(), &taps.rows, layout.width);
    let chroma = around(pairs[0], pairs[1], &taps.chroma_rows, layout.width.div_ceil(2));
    let x = [luma[0].min(2 * chroma[0]), luma[1].max(2 * chroma[1]).min(layout.width)];
    rect_between(x, y)
}

/// Sample j of the small plane is computed from the samples (j - MARGIN)·s ± LEVEL_RADIUS·s of the larger plane.
fn decimation_reads(resampling: &Resampling, rect: Rect) -> Rect {
    let along = |start: u32, end: u32, factor: Factor, count: u32| match factor {
        Factor::One => [start, end],
        _ => {
            let centre = |j: u32| (i64::from(j) - i64::from(MARGIN)) * i64::from(factor.get());
            let radius = i64::from(LEVEL_RADIUS * factor.get());
            clipped(centre(start) - radius, centre(end - 1) + radius + 1, count)
        }
    };
    let layout = resampling.source.field.layout;
    let [across, down] = resampling.factors;
    let y = along(rect.y(), rect.bottom(), down, layout.height);
    if resampling.is_by_pairs() {
        let pairs = along(rect.x(), rect.right(), across, layout.width.div_ceil(2));
        return rect_between([2 * pairs[0], (2 * pairs[1]).min(layout.width)], y);
    }
    rect_between(along(rect.x(), rect.right(), across, layout.width), y)
}

/// Sample x is computed from the samples x / s to x / s + PHASE_TAPS - 1 of the small plane. The first of these has a tap above 0
/// only in phase 0.
fn interpolation_reads(resampling: &Resampling, rect: Rect) -> Rect {
    let along = |start: u32, end: u32, factor: Factor| match factor {
        Factor::One => [start, end],
        _ => [start.div_ceil(factor.get()), (end - 1) / factor.get() + PHASE_TAPS as u32],
    };
    let [across, down] = resampling.factors;
    let rect = resampling.in_samples(rect);
    rect_between(along(rect.x(), rect.right(), across), along(rect.y(), rect.bottom(), down))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::BlurParams;
    use crate::filter::frame::SampleLayout;
    use crate::filter::plan::Plan;

    /// The samples of an axis that have taps above 0 for the samples from `start` to `end`. `taps` returns the taps of one
    /// sample, and the index of the first one, which may lie beyond the axis.
    fn read(start: u32, end: u32, count: u32, taps: impl Fn(u32) -> (i64, Vec<u32>)) -> [u32; 2] {
        let mut samples = Vec::new();
        for x in start..end {
            let (first, taps) = taps(x);
            let indices = (first..).zip(taps).filter(|(_, tap)| *tap > 0).map(|(index, _)| index);
            samples.extend(indices.map(|index| index.clamp(0, i64::from(count) - 1) as u32));
        }
        [samples.iter().min().copied().unwrap(), samples.iter().max().unwrap() + 1]
    }

    fn all(taps: &Taps, centre: i64) -> (i64, Vec<u32>) {
        let radius = taps.radius() as i64;
        (centre - radius, (-radius..=radius).map(|i| taps.at(i.unsigned_abs() as usize)).collect())
    }

    /// The taps along one axis that an operation applies for one sample of its output.
    fn taps_of(operation: &Operation, axis: usize, x: u32) -> (i64, Vec<u32>) {
        match operation {
            Operation::Blur { taps, .. } => all([&taps.rows, &taps.columns][axis], x.into()),
            Operation::Decimate(Resampling { factors, .. }) => match factors[axis] {
                Factor::One => (x.into(), vec![1]),
                factor => all(&factor.decimation_taps(), (i64::from(x) - i64::from(MARGIN)) * i64::from(factor.get())),
            },
            Operation::Interpolate(Resampling { factors, .. }) => match factors[axis] {
                Factor::One => (x.into(), vec![1]),
                factor => {
                    let (first, phase) = (x / factor.get(), x % factor.get());
                    (first.into(), factor.interpolation_taps(phase).to_vec())
                }
            },
            _ => (x.into(), vec![1]),
        }
    }

    /// The pixels along a row that have taps above 0. In packed 4:2:2, a chroma sample belongs to a pair of pixels.
    fn read_across(operation: &Operation, x: u32, right: u32) -> [u32; 2] {
        let width = operation.source().field.layout.width;
        let of_pairs = |[start, end]: [u32; 2]| [2 * start, (2 * end).min(width)];
        let pairs = (x / 2, right.div_ceil(2));
        match operation {
            Operation::Blur { source, taps, .. } if source.field.layout.is_packed_422() => {
                let luma = read(x, right, width, |x| all(&taps.rows, x.into()));
                let chroma = read(pairs.0, pairs.1, width.div_ceil(2), |x| all(&taps.chroma_rows, x.into()));
                let chroma = of_pairs(chroma);
                [luma[0].min(chroma[0]), luma[1].max(chroma[1])]
            }
            Operation::Decimate(Resampling { channels: Channels::Chroma, .. }) => {
                of_pairs(read(x, right, width.div_ceil(2), |x| taps_of(operation, 0, x)))
            }
            Operation::Interpolate(Resampling { channels: Channels::Chroma, .. }) => {
                read(pairs.0, pairs.1, width, |x| taps_of(operation, 0, x))
            }
            _ => read(x, right, width, |x| taps_of(operation, 0, x)),
        }
    }

    #[test]
    fn reads_are_the_samples_with_taps() {
        let whole = PlaneLayout::new(157, 83, 2, 16);
        let narrow = PlaneLayout { sigma_scale: [0.5, 1.0], ..whole };
        let packed = PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma: 0 }, ..PlaneLayout::new(157, 83, 4, 8) };
        // Only luma has a level, along rows.
        let flat = PlaneLayout { sigma_scale: [1.0, 0.5], ..packed };
        let sigmas = [0.8, 3.0, 5.0, 40.0, 90.0].into_iter();
        for (sigma, layout) in sigmas.flat_map(|sigma| [whole, narrow, packed, flat].map(|layout| (sigma, layout))) {
            let plan = Plan::new(BlurParams::new(sigma, 0).unwrap().into(), &[layout]);
            for operation in plan.operations() {
                let [from, to] = [operation.source(), operation.output()].map(|view| view.field.layout);
                for i in 0..200 {
                    let [x, y] = [i * 31 % to.width, i * 17 % to.height];
                    let (right, bottom) = ((x + 1 + i % 9).min(to.width), (y + 1 + i % 5).min(to.height));
                    let rect = Rect::between([x, right], [y, bottom]).unwrap();
                    let (view, reads) = operation.reads(rect)[0];
                    assert_eq!(view, operation.source());
                    let across = read_across(operation, x, right);
                    let down = read(y, bottom, from.height, |y| taps_of(operation, 1, y));
                    assert_eq!(Some(reads), Rect::between(across, down), "{rect:?} of {operation:?}");
                }
            }
        }
    }
}
