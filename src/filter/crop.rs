// SPDX-License-Identifier: MPL-2.0
//! What has to be blurred so that a part of the picture has the bytes of the full-frame blur: the samples of each plane
//! that a rectangle covers, and a crop of the plane around them that is blurred as a frame of its own.
//!
//! Inside the rectangle the two blurs are the same byte for byte, for three reasons. The crop starts at a multiple of
//! [`AxisBlur::grid`], so that the small planes of its levels are parts of those of the plane, sample by sample. It ends
//! at least [`AxisBlur::reach`] beyond the rectangle, so that nothing in the rectangle depends on the edges that the crop
//! alone has. And where the plane ends before that, the crop ends with it, and the edge that repeats is the same.

use super::AxisBlur;
use super::frame::{Field, PlaneLayout, SampleLayout};
use super::plan::{Options, PlaneAxes};
use super::regions::Rect;

/// log2 of the strongest subsampling that is taken into account. No format comes near it.
const MAX_SHIFT: u32 = 4;

/// The samples of one field of a plane that a rectangle covers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FieldRect {
    /// The field.
    pub field: Field,
    /// Columns in pixels of the plane, and rows of the field. For packed 4:2:2 the columns are luma's: chroma is covered
    /// in every pair of pixels of which one is.
    pub rect: Rect,
}

/// The planes of a picture, and how many of its pixels their samples stand for.
#[derive(Debug, Clone)]
pub struct PictureGeometry {
    layouts: Vec<PlaneLayout>,
    /// log2 of the luma samples that a sample of each plane stands for, along x and y.
    shifts: Vec<[u32; 2]>,
    /// Width and height in luma samples.
    size: [u32; 2],
}

impl PictureGeometry {
    /// Of frames of these planes. Luma stands here for the planes of the highest resolution: their samples are the unit of
    /// all rectangles.
    pub fn new(layouts: &[PlaneLayout]) -> Self {
        let finest = |axis: usize| layouts.iter().map(|layout| layout.sigma_scale[axis]).fold(0.0, f64::max);
        let finest = [finest(0), finest(1)];
        let shift = |layout: &PlaneLayout| {
            let log2 = |axis: usize| (finest[axis] / layout.sigma_scale[axis]).log2().round() as u32;
            [0, 1].map(|axis| log2(axis).min(MAX_SHIFT))
        };
        let shifts: Vec<[u32; 2]> = layouts.iter().map(shift).collect();
        let side = |axis: usize| {
            let side = |(layout, shift): (&PlaneLayout, &[u32; 2])| [layout.width, layout.height][axis] << shift[axis];
            layouts.iter().zip(&shifts).map(side).min().unwrap_or(0)
        };
        let size = [side(0), side(1)];
        Self { layouts: layouts.to_vec(), shifts, size }
    }

    /// The layouts of the planes.
    pub fn layouts(&self) -> &[PlaneLayout] {
        &self.layouts
    }

    /// Width and height in luma samples.
    pub fn size(&self) -> [u32; 2] {
        self.size
    }

    /// log2 of the luma samples that a sample of plane `plane` stands for, along x and y.
    pub fn shift(&self, plane: usize) -> [u32; 2] {
        self.shifts[plane]
    }

    /// The part of a rectangle that is in the picture.
    pub fn clipped(&self, rect: Rect) -> Option<Rect> {
        let [x, y, width, height] = [rect.x(), rect.y(), rect.width(), rect.height()];
        Rect::from_samples(x, y, width, height, (self.size[0], self.size[1]))
    }

    /// The parts of rectangles that are in the picture.
    pub fn clip_all(&self, rects: &[Rect]) -> Vec<Rect> {
        rects.iter().filter_map(|rect| self.clipped(*rect)).collect()
    }

    /// What a rectangle in luma samples covers in each field of a plane, rounded outwards.
    pub fn covered(&self, plane: usize, rect: Rect) -> impl Iterator<Item = FieldRect> {
        let (layout, [across, down]) = (self.layouts[plane], self.shifts[plane]);
        let rect = self.clipped(rect);
        layout.fields().filter_map(move |field| {
            let rect = match field.step {
                // A single row is the first field's, and stands for both.
                2 if layout.height > 1 => rect?.in_field(field.first_row as u32)?,
                _ => rect?,
            };
            // The picture may have more rows or columns than the plane's samples stand for, such as the last rows of the
            // second field where the height is not a multiple of four. The plane's edge stands for them.
            let onto = |start: u32, shift: u32, count: u32| start.min((count - 1) << shift);
            let x = onto(rect.x(), across, field.layout.width);
            let y = onto(rect.y(), down, field.layout.height);
            let rect = Rect::new(x, y, rect.right() - x, rect.bottom() - y)?;
            let rect = rect.in_plane((across, down), (field.layout.width, field.layout.height))?;
            Some(FieldRect { field, rect })
        })
    }
}

/// A part of a plane that is blurred as a plane of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlaneCrop {
    /// The plane that it is a part of.
    pub plane: usize,
    /// Its first column, in pixels; even for packed 4:2:2.
    pub x: u32,
    /// Its first row; even for interlaced planes.
    pub y: u32,
    /// Its layout: the plane's, with the width and the height of the crop.
    pub layout: PlaneLayout,
}

impl PlaneCrop {
    /// The offset in bytes of its first sample in the rows of the plane.
    pub fn row_offset(&self) -> usize {
        let pixels_per_unit = if let SampleLayout::Yuv422 { .. } = self.layout.sample_layout { 2 } else { 1 };
        self.x as usize / pixels_per_unit * self.layout.pixel_bytes()
    }

    /// The offset of its first byte in a plane of this row pitch, and the bytes from there to its last one.
    pub fn bytes_in(&self, pitch: usize) -> (usize, usize) {
        let start = self.y as usize * pitch + self.row_offset();
        (start, (self.layout.height as usize - 1) * pitch + self.layout.row_bytes())
    }
}

/// What one axis of a plane asks of a crop, in samples of the plane, or of its fields.
#[derive(Debug, Clone, Copy)]
struct AxisNeed {
    /// A crop starts at a multiple of this power of two.
    grid: u32,
    /// A crop extends at least this far beyond what is to be blurred.
    reach: u32,
}

impl AxisNeed {
    fn of(axis: &AxisBlur) -> Self {
        Self { grid: axis.grid(), reach: axis.reach() }
    }

    /// What this axis and another one ask, whose samples stand for two of this one's.
    fn and_of_pairs(self, pairs: Self) -> Self {
        // A pair may be covered for one of its pixels, so that it reaches one pixel farther.
        Self { grid: self.grid.max(2 * pairs.grid), reach: self.reach.max(2 * pairs.reach + 1) }
    }
}

/// How the crops of a picture are chosen for a blur.
#[derive(Debug, Clone)]
pub struct CropGeometry {
    picture: PictureGeometry,
    /// What each plane asks of its crop along x and y; `None` for planes that the blur does not write.
    needs: Vec<Option<[AxisNeed; 2]>>,
}

impl CropGeometry {
    /// For blurring these frames with these options. Colour is never weighted by alpha: each plane is blurred by itself.
    pub fn new(options: Options, layouts: &[PlaneLayout]) -> Self {
        let need = |layout: &PlaneLayout| {
            let field = layout.fields().next().filter(|_| !options.is_passthrough(&[*layout]))?;
            let axes = PlaneAxes::new(options.params, &field.layout);
            let [rows, columns, chroma] = [&axes.rows, &axes.columns, &axes.chroma_rows].map(AxisNeed::of);
            let is_packed = matches!(layout.sample_layout, SampleLayout::Yuv422 { .. });
            Some([if is_packed { rows.and_of_pairs(chroma) } else { rows }, columns])
        };
        Self { picture: PictureGeometry::new(layouts), needs: layouts.iter().map(need).collect() }
    }

    /// With crops that start at multiples of `step` columns of their planes, a power of two: any such multiple of the grid
    /// gives the same bytes.
    pub fn with_column_step(mut self, step: u32) -> Self {
        for [across, _] in self.needs.iter_mut().flatten() {
            across.grid = across.grid.max(step);
        }
        self
    }

    /// The planes and their resolutions.
    pub fn picture(&self) -> &PictureGeometry {
        &self.picture
    }

    /// About how many operations, one after the other, the blur of a plane takes: one in the direct form; in the wide form a
    /// decimation and an interpolation for each level, and the blur of the smallest plane.
    pub fn operations(&self, plane: usize) -> usize {
        // The grid of rows, because that of columns may be a step of crops.
        let grid = self.needs[plane].map_or(1, |[_, down]| down.grid);
        // Every level is by 4, but one that is by 2.
        1 + 2 * grid.ilog2().div_ceil(2) as usize
    }

    /// The crops that have to be blurred for a rectangle in luma samples, at most one of each plane.
    pub fn crops(&self, rect: Rect) -> Vec<PlaneCrop> {
        (0..self.needs.len()).filter_map(|plane| Some(self.crop(plane, self.spans(plane, rect)?))).collect()
    }

    /// What a plane needs for a rectangle, in columns of the plane and rows of its fields.
    fn spans(&self, plane: usize, rect: Rect) -> Option<[Span; 2]> {
        let needs = self.needs[plane]?;
        let of_field = |FieldRect { rect, .. }: FieldRect| {
            let [across, down] = needs;
            [Span::around(rect.x(), rect.right(), across), Span::around(rect.y(), rect.bottom(), down)]
        };
        let union = |a: [Span; 2], b: [Span; 2]| [a[0].union(b[0]), a[1].union(b[1])];
        self.picture.covered(plane, rect).map(of_field).reduce(union)
    }

    /// The crop with these columns and rows of its fields.
    fn crop(&self, plane: usize, [columns, rows]: [Span; 2]) -> PlaneCrop {
        let layout = self.picture.layouts[plane];
        let fields = 1 + u32::from(layout.interlaced);
        let pixels = if let SampleLayout::Yuv422 { .. } = layout.sample_layout { 2 } else { 1 };
        let (x, right) = columns.within(layout.width, pixels);
        let (y, bottom) = rows.times(fields).within(layout.height, 1);
        PlaneCrop { plane, x, y, layout: PlaneLayout { width: right - x, height: bottom - y, ..layout } }
    }
}

/// A part of an axis that starts at a multiple of `grid`, a power of two, and may end beyond the plane.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
    grid: u32,
}

impl Span {
    fn around(start: u32, end: u32, AxisNeed { grid, reach }: AxisNeed) -> Self {
        let start = start.saturating_sub(reach);
        Self { start: start - start % grid, end: end.saturating_add(reach), grid }
    }

    fn union(self, other: Self) -> Self {
        let (grid, start) = (self.grid.max(other.grid), self.start.min(other.start));
        Self { start: start - start % grid, end: self.end.max(other.end), grid }
    }

    fn times(self, factor: u32) -> Self {
        Self { start: self.start * factor, end: self.end.saturating_mul(factor), grid: self.grid * factor }
    }

    /// The part in a plane of `count` samples, that ends at a multiple of `step` or with the plane.
    fn within(self, count: u32, step: u32) -> (u32, u32) {
        debug_assert!(self.start.is_multiple_of(step));
        (self.start, self.end.min(count).next_multiple_of(step).min(count))
    }
}
