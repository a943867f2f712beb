// SPDX-License-Identifier: MPL-2.0
//! The operations that plans consist of, and what they read and write.

use std::ops::Range;
use std::sync::Arc;

use crate::filter::Taps;
use crate::filter::frame::{Field, PlaneLayout};
use crate::filter::inpainting::CellPyramid;
use crate::filter::picture::Placement;
use crate::filter::regions::{Rect, disjoint};
use crate::filter::wide::{Factor, LEVEL_RADIUS, MARGIN, PHASE_TAPS};

/// The taps for one plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaneTaps {
    /// Along rows.
    pub rows: Taps,
    /// Along columns.
    pub columns: Taps,
    /// Along rows for the chroma of packed 4:2:2, in pairs of pixels; equal to `rows` for all other layouts.
    pub chroma_rows: Taps,
}

/// A plane that an operation accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// This plane of the frame that is read.
    Source(usize),
    /// This plane of the frame that is written.
    Destination(usize),
    /// This one of the temporaries of the plan.
    Temporary(usize),
}

/// Temporaries are processed in multiples of this many rows, apart from their last rows, so that backends may store blocks of
/// rows.
pub const TEMPORARY_ROWS: u32 = 4;

/// The rows of a plane that an operation accesses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// The plane.
    pub buffer: Buffer,
    /// Its rows.
    pub field: Field,
}

/// Where the alpha of a plane's pixels is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AlphaSource {
    /// In this channel of the plane itself.
    Channel(u8),
    /// In a plane of its own.
    Plane {
        /// The rows that belong to the colour plane's.
        view: View,
        /// log2 of the colour plane's subsampling relative to the alpha plane, along x and y.
        subsampling: [u32; 2],
    },
}

impl AlphaSource {
    /// The alpha of a rectangle of colour, if it is in a plane of its own.
    pub fn reads(&self, rect: Rect) -> Option<(View, Rect)> {
        let Self::Plane { view, subsampling } = self else { return None };
        let PlaneLayout { width, height, .. } = view.field.layout;
        let along =
            |start: u32, end: u32, log2: u32, count: u32| clipped((start << log2).into(), (end << log2).into(), count);
        let x = along(rect.x(), rect.right(), subsampling[0], width);
        Some((*view, Rect::between(x, along(rect.y(), rect.bottom(), subsampling[1], height))?))
    }
}

/// Which samples of a pixel an operation processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channels {
    /// All.
    All,
    /// The luma of packed 4:2:2, as one channel.
    Luma,
    /// The chroma of packed 4:2:2, as two channels.
    Chroma,
}

impl Channels {
    /// The processed samples as a plane of their own.
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
    /// Read.
    pub source: View,
    /// Written.
    pub destination: View,
    /// Along x and y. At least one is not [`Factor::One`].
    pub factors: [Factor; 2],
    /// The samples of the larger plane that are processed.
    pub channels: Channels,
    /// 0 if the larger plane is one of the frame, or premultiplied; one more for each decimation before it.
    pub level: u8,
}

impl Resampling {
    /// Whether a sample of the larger plane is of a pair of pixels: the chroma of packed 4:2:2.
    pub fn is_by_pairs(&self) -> bool {
        self.channels == Channels::Chroma
    }

    /// A rectangle of the larger plane in processed samples.
    pub fn in_samples(&self, rect: Rect) -> Rect {
        let x = if self.is_by_pairs() { [rect.x() / 2, rect.right().div_ceil(2)] } else { [rect.x(), rect.right()] };
        rect_between(x, [rect.y(), rect.bottom()])
    }
}

/// Cells of a field of a plane.
#[derive(Debug, Clone, PartialEq)]
pub struct Cells {
    /// Their grids, and where each is in the memory of all.
    pub grids: Arc<[CellPyramid]>,
    /// A temporary of one row, with four bytes for each channel of a cell.
    pub view: View,
}

/// What covers samples.
#[derive(Debug, Clone, PartialEq)]
pub enum CoverSamples {
    /// The same samples of another plane.
    Plane(View),
    /// The mean of the cell that they are in, of these grids among the cells of the operation: one for each set of channels.
    Mosaic(Range<usize>),
    /// Estimates between the means of all cells of the operation.
    Estimates,
    /// These bytes, repeated from the first byte of the row on.
    Pattern(Pattern),
}

/// The bytes of a pixel, or of a pair of pixels of packed 4:2:2: the first `len` of `bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the line above says what both are")]
pub struct Pattern {
    pub bytes: [u8; 8],
    pub len: usize,
}

/// What is written to some rectangles of a plane.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// What covers them.
    pub samples: CoverSamples,
    /// In pixels and rows of what is written.
    pub rects: Vec<Rect>,
}

/// Which weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightsOf {
    /// How much of a cover shows.
    Cover,
    /// How much is left out of what is blurred.
    Excluded,
}

/// How a cover is mixed with the picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    /// How much of the cover shows.
    pub weights: WeightsOf,
    /// The place of the samples that are written.
    pub placement: Placement,
    /// The plane that shows where the cover does not: that of the source, which may be the memory that is written.
    pub beside: View,
    /// Bit c: channel c keeps its value.
    pub passthrough_mask: u32,
}

/// One step of a plan. All views of an operation have the same number of rows, apart from the alpha plane's and those of
/// decimations and interpolations.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Copies rows, padding bits included.
    Copy {
        /// Read.
        source: View,
        /// Written.
        destination: View,
    },
    /// Writes colour times alpha, 16 bits a sample, and alpha unchanged. If alpha is in a plane of its own, it becomes the
    /// last channel.
    Premultiply {
        /// Read.
        source: View,
        /// The alpha.
        alpha: AlphaSource,
        /// Written, a temporary.
        premultiplied: View,
    },
    /// Blurs rows, then columns.
    Blur {
        /// Read.
        source: View,
        /// Written.
        destination: View,
        /// The taps of both passes.
        taps: PlaneTaps,
    },
    /// Writes the small plane of a level of the wide form, 16 bits a sample.
    Decimate(Resampling),
    /// Enlarges the blurred small plane of a level of the wide form.
    Interpolate(Resampling),
    /// Divides blurred colour by blurred alpha and writes it at the destination's depth. Where the blurred alpha is 0, the
    /// source's colour is kept.
    Unpremultiply {
        /// Read, a temporary.
        premultiplied: View,
        /// The alpha of the source.
        alpha: AlphaSource,
        /// Read.
        source: View,
        /// Written.
        destination: View,
        /// Bit c: channel c keeps the source's value.
        passthrough_mask: u32,
    },
    /// Copies single channels back from the source, after all channels were blurred.
    RestoreChannels {
        /// Read.
        source: View,
        /// Written.
        destination: View,
        /// Bit c: channel c keeps the source's value.
        passthrough_mask: u32,
    },
    /// Computes the means of the samples in cells.
    CellMeans {
        /// Read.
        source: View,
        /// Written.
        cells: Cells,
        /// The place of the samples, if weights say how much of each is left out.
        excluded: Option<Placement>,
    },
    /// Replaces the cells from which samples were left out by estimates, in place.
    Spread(Cells),
    /// Writes layers over each other, the first one below, or mixes them with what is beside them.
    Write {
        /// What covers.
        layers: Vec<Layer>,
        /// The cells of mosaics and estimates.
        cells: Option<Cells>,
        /// Written.
        destination: View,
        /// How it is mixed, if it does not hide wholly.
        mix: Option<Mix>,
    },
}

impl Operation {
    /// How many of the first rows of its output can be computed from the first `available` rows of what it reads. For operations
    /// of plans that can be banded.
    pub fn ready_rows(&self, available: u32) -> u32 {
        let View { buffer, field } = self.output();
        // What else it reads counts in plans that cannot be banded, which have all of it.
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

    /// What a rectangle of its output is computed from: a rectangle of each view that it reads. Rectangles are in pixels and rows
    /// of their views. Nothing else that it reads changes a sample of that rectangle.
    pub fn reads(&self, rect: Rect) -> Vec<(View, Rect)> {
        match self {
            Self::Copy { source, .. } | Self::RestoreChannels { source, .. } => vec![(*source, rect)],
            Self::Blur { source, taps, .. } => vec![(*source, blur_reads(&source.field.layout, taps, rect))],
            Self::Decimate(resampling) => vec![(resampling.source, decimation_reads(resampling, rect))],
            Self::Interpolate(resampling) => vec![(resampling.source, interpolation_reads(resampling, rect))],
            Self::Premultiply { source, alpha, .. } => {
                std::iter::once((*source, rect)).chain(alpha.reads(rect)).collect()
            }
            // The blurred alpha is a channel of the premultiplied plane; the source's colour counts where it is 0.
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

    /// What it writes by itself, whatever later operations read: the rectangles of a frame that are covered.
    pub fn covered(&self) -> Option<Vec<Rect>> {
        let Self::Write { layers, destination: View { buffer: Buffer::Destination(_), .. }, .. } = self else {
            return None;
        };
        let rects: Vec<Rect> = layers.iter().flat_map(|layer| layer.rects.iter().copied()).collect();
        Some(disjoint(&rects))
    }

    /// The view of a frame's plane or of a temporary that it reads, beside its alpha.
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

    /// What it writes.
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

    /// The same operation on other buffers.
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

    /// The position of its kind in a plan: down the levels to the blurs of the smallest planes, and up again. What is blurred
    /// without its objects is made before that, and a frame is covered when all else is done.
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

    /// Whether `self` and `other` are of the same stage of a plan, so that neither reads what the other writes.
    pub fn is_independent_of(&self, other: &Self) -> bool {
        self.stage() == other.stage()
    }
}

/// The part of an axis of `count` samples that stands for the samples from `start` to `end`: beyond the axis its edges repeat.
fn clipped(start: i64, end: i64, count: u32) -> [u32; 2] {
    let last = i64::from(count) - 1;
    [start.clamp(0, last) as u32, (end - 1).clamp(0, last) as u32 + 1]
}

/// All of a view.
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

/// Sample j of the small plane is computed from the samples (j - MARGIN)·s ± LEVEL_RADIUS·s.
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

/// Sample x is computed from the samples x / s to x / s + PHASE_TAPS - 1 of the small plane; of these the first one counts in
/// phase 0 alone.
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

    /// The samples of an axis with taps above 0 for the samples from `start` to `end`: `taps` returns those of one sample, which
    /// begin at an index that may be beyond the axis.
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

    /// The taps along one axis that every operation applies for a sample of its output.
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

    /// The pixels along rows with taps above 0. In packed 4:2:2 a sample of chroma is that of a pair.
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
        // Luma has a level along rows, and nothing else does.
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
