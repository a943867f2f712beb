// SPDX-License-Identifier: MPL-2.0
//! Mosaics: cells of one colour, which leave nothing of a region but the mean of each cell.
//!
//! The cells are squares of luma samples, side by side in both directions, as far as the region goes. They are centred on the
//! object: its edges cut the outermost cells alike on both sides, so that no cell shows only a narrow sliver of the object. A
//! sample of a subsampled plane belongs to the cell of the first luma sample that it stands for. So where a cell begins at an odd
//! luma column, the sample across the border belongs to the cell to its left; the same holds for rows. Each field has its own
//! cells, from its rows in the cell. Written rectangles are rounded outwards, as for the blur.
//!
//! The colour of a cell is the mean of all its samples in the picture, rounded half up, for each channel, plane and field. This
//! includes samples beyond the region, so that the narrow parts of cells at the region's edges show no more of the picture than
//! other cells.

use std::ops::Range;

use super::frame::{Field, PlaneLayout};
use super::picture::{FieldRect, PictureGeometry, Placement};
use super::regions::{Area, Rect};
use super::samples::{Channel, channels, covered_fields};

/// The smallest side of a cell, in luma samples. Smaller cells would hardly change small objects.
const MIN_SIDE: f64 = 8.0;

/// The largest area of all regions together, in areas of the picture. The time of a region grows with its area, even where other
/// regions are written over it. Objects that seldom overlap have together less than the area of one picture.
const MAX_PICTURES: u64 = 8;

/// The largest number of cells along the short side of an object.
pub const CELLS_MAX: u32 = 64;

/// A coordinate beyond every picture, but small enough for all sums.
const FAR: f64 = 1e6;

/// The side of the cells of an object whose shorter side has this length, in luma samples. See [`MosaicRegion::new`].
pub fn cell_side(short_side: f64, cells: u32) -> f64 {
    let is_known = short_side.is_finite() && short_side > 0.0;
    let side = if is_known { short_side / f64::from(cells.clamp(1, CELLS_MAX)) } else { FAR };
    side.ceil().clamp(MIN_SIDE, FAR)
}

/// A region that a mosaic covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MosaicRegion {
    // Sorting by this first field writes larger cells later.
    /// The side of the cells, in luma samples.
    side: u32,
    /// The upper left corner of one cell, in luma samples.
    corner: [i32; 2],
    rect: Rect,
}

impl MosaicRegion {
    /// The region `rect` with at most `cells` cells, 1 to [`CELLS_MAX`], along the shorter side of `object`. Both are in luma
    /// samples. No cell is smaller than 8x8. If the size of the object is not finite or not above 0, it is unknown what it hides,
    /// so the cells are larger than the picture.
    pub fn new(rect: Rect, object: Area, cells: u32) -> Self {
        let side = cell_side(object.short_side(), cells);
        let corner = [(object.left, object.right), (object.top, object.bottom)].map(|(start, end)| {
            let length = end - start;
            let first = start - ((length / side).ceil() * side - length) / 2.0;
            if first.is_nan() { -FAR as i32 } else { first.floor().clamp(-FAR, FAR) as i32 }
        });
        Self { rect, corner, side: side as u32 }
    }

    /// The covered rectangle, in luma samples.
    pub fn rect(&self) -> Rect {
        self.rect
    }

    /// The number, along an axis, of the cell that a luma sample belongs to.
    fn cell(&self, axis: usize, sample: u32) -> i32 {
        (sample as i32 - self.corner[axis]).div_euclid(self.side as i32)
    }
}

/// The cells of a region in one field of a plane, for the channels whose samples stand for the same luma samples.
#[derive(Debug, Clone, PartialEq)]
pub struct CellGrid {
    /// The index of the plane.
    pub plane: usize,
    /// The channels. Their samples have the same `step` and `shift`.
    pub channels: Vec<Channel>,
    /// The part of the field that is written: columns in samples of the channels, and rows of the field.
    pub covered: [Range<u32>; 2],
    /// The field.
    pub field: Field,
    /// The samples of a channel in a row, and the rows of the field, without those beyond the picture.
    pub count: [u32; 2],
    /// log2 of the luma samples from one sample to the next, along x and y.
    pub unit_log2: [u32; 2],
    /// Where the field is in the picture.
    pub placement: Placement,
    /// The first luma sample of the first cell. It may lie outside of the picture.
    pub origin: [i32; 2],
    /// The side of the cells, in luma samples.
    pub side: u32,
    /// The number of cells side by side, and one above the other.
    pub cells: [u32; 2],
}

impl CellGrid {
    /// The grids of square cells over whole frames with these layouts, from the picture's upper left corner on. `side` is in luma
    /// samples.
    pub fn whole(layouts: &[PlaneLayout], side: u32) -> Vec<Self> {
        let picture = PictureGeometry::new(layouts);
        let [width, height] = picture.size();
        let Some(rect) = Rect::between([0, width], [0, height]) else { return Vec::new() };
        let mut grids = Self::of_region(&picture, &MosaicRegion { side, corner: [0; 2], rect });
        // All grids get the cells of the whole picture. The last cells of a subsampled field may have no samples, and those that
        // lie in another view have none.
        for grid in &mut grids {
            (grid.origin, grid.cells) = ([0; 2], picture.size().map(|length| length.div_ceil(side)));
        }
        grids
    }

    /// The grids of a region in all planes and fields.
    pub fn of_region(picture: &PictureGeometry, region: &MosaicRegion) -> Vec<Self> {
        let covered = covered_fields(picture, region.rect);
        covered.flat_map(|(plane, covered)| Self::of_field(picture, region, plane, covered)).collect()
    }

    /// The grids of a rectangle of a field: one for each set of channels whose samples stand for the same luma samples.
    pub fn of_field(
        picture: &PictureGeometry,
        region: &MosaicRegion,
        plane: usize,
        FieldRect { field, rect }: FieldRect,
    ) -> impl Iterator<Item = Self> {
        let of_shift = move |shift: u32| -> Vec<Channel> {
            channels(&picture.layouts()[plane]).filter(|channel| channel.shift == shift).collect()
        };
        let placement = picture.placement(plane, &field);
        let ([across, down], first_luma) = (placement.shift, placement.first());
        let groups = [0, 1].map(of_shift).into_iter().filter(|channels| !channels.is_empty());
        groups.map(move |channels| {
            let count = [channels[0].count(&field.layout), field.layout.height];
            // In a field of alternating rows, the next sample is two rows further on.
            let unit_log2 = [channels[0].shift + across, down + field.step as u32 - 1];
            let covered = [channels[0].covered(&field.layout, rect), rect.y()..rect.bottom()];
            let cell = |axis: usize, sample: u32| region.cell(axis, (sample << unit_log2[axis]) + first_luma[axis]);
            let first = [0, 1].map(|axis| cell(axis, covered[axis].start));
            let last = [0, 1].map(|axis| cell(axis, covered[axis].end.min(count[axis]) - 1));
            let origin = [0, 1].map(|axis| region.corner[axis] + first[axis] * region.side as i32);
            let cells = [0, 1].map(|axis| (last[axis] - first[axis]) as u32 + 1);
            Self { plane, channels, field, count, unit_log2, placement, origin, side: region.side, cells, covered }
        })
    }

    /// The samples of a cell along an axis, without those beyond the picture. The range may be empty.
    pub fn samples(&self, axis: usize, cell: u32) -> Range<u32> {
        let start = i64::from(self.origin[axis]) + i64::from(cell) * i64::from(self.side);
        let start = start - i64::from(self.placement.first()[axis]);
        // The first sample whose first luma sample is this one or a later one.
        let sample =
            |luma: i64| (luma.max(0) as u64).div_ceil(1 << self.unit_log2[axis]).min(self.count[axis].into()) as u32;
        sample(start)..sample(start + i64::from(self.side))
    }

    /// The samples of a cell, along an axis, that are written. Luma beyond an odd width gets the colour of the last pixel's cell.
    pub fn written(&self, axis: usize, samples: &Range<u32>) -> Range<u32> {
        let Range { start, end } = self.covered[axis];
        samples.start.max(start)..if samples.end == self.count[axis] { end } else { samples.end.min(end) }
    }

    /// The samples that the means are computed from, in pixels of the plane and rows of the field; `None` if no cell has samples.
    pub fn reads(&self) -> Option<Rect> {
        let [columns, rows] =
            [0, 1].map(|axis| [self.samples(axis, 0).start, self.samples(axis, self.cells[axis] - 1).end]);
        let shift = self.channels[0].shift;
        Rect::between([columns[0] << shift, (columns[1] << shift).min(self.field.layout.width)], rows)
    }

    /// The number, along an axis, of the cell that a sample belongs to.
    pub fn cell_of(&self, axis: usize, sample: u32) -> u32 {
        let luma = i64::from(sample) << self.unit_log2[axis];
        let luma = luma + i64::from(self.placement.first()[axis]);
        ((luma - i64::from(self.origin[axis])) / i64::from(self.side)) as u32
    }

    /// Whether the columns of cells of both grids have the samples of the same pixels.
    pub fn shares_columns(&self, other: &Self) -> bool {
        let is_whole =
            |grid: &Self| grid.samples(0, 0).start == 0 && grid.samples(0, grid.cells[0] - 1).end == grid.count[0];
        is_whole(self)
            && is_whole(other)
            && (self.origin, self.side, self.cells) == (other.origin, other.side, other.cells)
    }
}

/// Returns the regions. If together they have more than [`MAX_PICTURES`] times the area of a picture of `size` (width, height),
/// returns instead one region around them, with the largest cells.
pub fn bounded(regions: Vec<MosaicRegion>, size: (u32, u32)) -> Vec<MosaicRegion> {
    let area: u64 = regions.iter().map(|region| region.rect.area()).sum();
    let all = regions.iter().map(MosaicRegion::rect).reduce(Rect::hull);
    match regions.iter().max().zip(all) {
        Some((largest, rect)) if area > MAX_PICTURES * u64::from(size.0) * u64::from(size.1) => {
            vec![MosaicRegion { rect, ..*largest }]
        }
        _ => regions,
    }
}

/// The regions in the order in which they are written, without duplicates.
pub fn in_order(regions: &[MosaicRegion]) -> Vec<MosaicRegion> {
    let mut regions = regions.to_vec();
    regions.sort_unstable();
    regions.dedup();
    regions
}
