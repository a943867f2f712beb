// SPDX-License-Identifier: MPL-2.0
//! The planes of a picture, and the samples of each plane that a rectangle in luma samples covers.

use super::frame::{Field, PlaneLayout};
use super::regions::Rect;

/// log2 of the largest subsampling that is supported. All formats stay far below it.
const MAX_SHIFT: u32 = 4;

/// A rectangle of one field of a plane.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FieldRect {
    /// The field.
    pub field: Field,
    /// The columns in pixels of the plane, and the rows of the field. For packed 4:2:2 the columns are those of luma. Chroma is
    /// covered in each pair of which at least one pixel is covered.
    pub rect: Rect,
}

/// Where the samples of a field are in the picture, in luma samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// log2 of the luma samples that a sample stands for, along x and y.
    pub shift: [u32; 2],
    /// The luma columns and the luma rows of the field, each as its first index and its end.
    pub luma: [[u32; 2]; 2],
    /// The luma rows from one row of the field's luma to the next.
    pub step: u32,
    /// Width and height of the picture in luma samples.
    pub size: [u32; 2],
}

impl Placement {
    /// The first luma column and row.
    pub fn first(&self) -> [u32; 2] {
        self.luma.map(|[first, _]| first)
    }
}

/// The planes of a picture, and the subsampling of each plane.
#[derive(Debug, Clone)]
pub struct PictureGeometry {
    layouts: Vec<PlaneLayout>,
    /// log2 of the luma samples that a sample of each plane stands for, along x and y.
    shifts: Vec<[u32; 2]>,
    /// Width and height in luma samples.
    size: [u32; 2],
}

impl PictureGeometry {
    /// The geometry of frames with these layouts. Luma means here the planes with the highest resolution. Their samples are the
    /// unit of all rectangles.
    pub fn new(layouts: &[PlaneLayout]) -> Self {
        let finest = [0, 1].map(|axis| layouts.iter().map(|layout| layout.sigma_scale[axis]).fold(0.0, f64::max));
        let shift = |layout: &PlaneLayout| {
            let log2 = |axis: usize| (finest[axis] / layout.sigma_scale[axis]).log2().round() as u32;
            [0, 1].map(|axis| log2(axis).min(MAX_SHIFT))
        };
        let shifts: Vec<[u32; 2]> = layouts.iter().map(shift).collect();
        let size = [0, 1].map(|axis| {
            let side = |(layout, shift): (&PlaneLayout, &[u32; 2])| [layout.width, layout.height][axis] << shift[axis];
            layouts.iter().zip(&shifts).map(side).min().unwrap_or(0)
        });
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

    /// The part of a rectangle in the picture.
    pub fn clipped(&self, rect: Rect) -> Option<Rect> {
        rect.intersection(Rect::between([0, self.size[0]], [0, self.size[1]])?)
    }

    /// Where the samples of a field are in the picture.
    pub fn placement(&self, plane: usize, field: &Field) -> Placement {
        let PlaneLayout { split, height, .. } = self.layouts[plane];
        let (size, views, first) = (self.size, split.views(), field.place().map(|first| first as u32));
        let luma = [0, 1].map(|axis| match size[axis] / views[axis] {
            // The first luma row of a field with alternating rows is its first row in the plane.
            length if length == size[axis] => [first[axis], length],
            length => [0, length].map(|edge| edge + if first[axis] > 0 { length } else { 0 }),
        });
        // In a plane of one row, this row stands for both fields.
        Placement { shift: self.shifts[plane], luma, step: if height > 1 { field.step as u32 } else { 1 }, size }
    }

    /// The rectangle of each field of a plane that a rectangle in luma samples covers, rounded outwards.
    pub fn covered(&self, plane: usize, rect: Rect) -> impl Iterator<Item = FieldRect> {
        let (layout, [across, down]) = (self.layouts[plane], self.shifts[plane]);
        let rect = self.clipped(rect);
        layout.fields().filter_map(move |field| {
            let [x, y] = self.placement(plane, &field).luma;
            // In a plane of one row, this row stands for both fields.
            let rect = if field.step == 2 && layout.height > 1 {
                rect?.in_field(field.first_row as u32)?
            } else {
                let rect = rect?.intersection(Rect::between(x, y)?)?;
                Rect::new(rect.x() - x[0], rect.y() - y[0], rect.width(), rect.height())?
            };
            // The picture may have rows or columns beyond those that the plane's samples stand for, such as the last rows of the
            // second field if the height is not a multiple of four. The edge of the plane stands for them.
            let onto = |start: u32, shift: u32, count: u32| start.min((count - 1) << shift);
            let x = onto(rect.x(), across, field.layout.width);
            let y = onto(rect.y(), down, field.layout.height);
            let rect = Rect::new(x, y, rect.right() - x, rect.bottom() - y)?;
            let rect = rect.in_plane((across, down), (field.layout.width, field.layout.height))?;
            Some(FieldRect { field, rect })
        })
    }
}
