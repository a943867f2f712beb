// SPDX-License-Identifier: MPL-2.0
//! The bytes that a rectangle covers in a plane. They are rectangles of whole bytes, which can be copied and filled without
//! knowledge of the samples.

use std::ops::Range;

use super::frame::PlaneLayout;
use super::picture::FieldRect;
use super::plane::{Address, PlaneMemory};
use super::regions::{self, Rect};

/// A rectangle of bytes of a plane: the same range of bytes in each of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRect {
    /// The index of the plane.
    pub plane: usize,
    /// The first row of the rectangle, in rows of the plane.
    pub row: usize,
    /// The distance between two rows of the rectangle, in rows of the plane: 1, or 2 for a field.
    pub row_step: usize,
    /// The number of rows, at least 1.
    pub rows: usize,
    /// The index of the first byte in each row.
    pub byte: usize,
    /// The number of bytes in each row, at least 1.
    pub bytes: usize,
}

impl ByteRect {
    /// The bytes that a rectangle of a field covers in its plane, as at most two rectangles. If it covers half of a pair of
    /// pixels of packed 4:2:2, the luma of the other pixel is left out.
    pub fn covered(plane: usize, FieldRect { field, rect }: FieldRect) -> impl Iterator<Item = Self> {
        let (row, row_step, first_byte) = (field.plane_row(rect.y()), field.step, field.first_byte());
        let rect_of = move |[start, end]: [usize; 2]| Self {
            plane,
            row,
            row_step,
            rows: rect.height() as usize,
            byte: first_byte + start,
            bytes: end - start,
        };
        field.layout.byte_ranges(rect.x(), rect.right()).into_iter().filter(|[start, end]| start < end).map(rect_of)
    }

    /// The bytes of all pixels of a rectangle; for packed 4:2:2, of all pairs of pixels that it touches.
    pub fn of_pixels(plane: usize, FieldRect { field, rect }: FieldRect) -> Self {
        let (columns, pixel) = (field.layout.columns(rect), field.layout.pixel_bytes());
        Self {
            plane,
            row: field.plane_row(rect.y()),
            row_step: field.step,
            rows: rect.height() as usize,
            byte: field.first_byte() + columns.start as usize * pixel,
            bytes: columns.len() * pixel,
        }
    }

    /// The bytes of all samples in these rows of a plane.
    pub fn of_rows(plane: usize, layout: &PlaneLayout, rows: Range<usize>) -> Self {
        Self { plane, row: rows.start, row_step: 1, rows: rows.len(), byte: 0, bytes: layout.row_bytes() }
    }

    /// The part of the rectangle with these rows, counted from its first row.
    pub fn part(&self, rows: Range<usize>) -> Self {
        Self { row: self.row + rows.start * self.row_step, rows: rows.len(), ..*self }
    }

    /// The smallest rectangle with `row_step` 1 that contains both rectangles, which are in the same plane.
    pub fn hull(&self, other: &Self) -> Self {
        let end = |rect: &Self| [rect.row + (rect.rows - 1) * rect.row_step + 1, rect.byte + rect.bytes];
        let ([bottom, right], [other_bottom, other_right]) = (end(self), end(other));
        let (row, byte) = (self.row.min(other.row), self.byte.min(other.byte));
        let (rows, bytes) = (bottom.max(other_bottom) - row, right.max(other_right) - byte);
        Self { plane: self.plane, row, row_step: 1, rows, byte, bytes }
    }

    /// The rectangle extended on both sides to multiples of `unit` bytes in the row, but at most to the end of rows of
    /// `row_bytes` bytes.
    pub fn aligned(&self, unit: usize, row_bytes: usize) -> Self {
        let (byte, right) = (self.byte / unit * unit, self.byte + self.bytes);
        Self { byte, bytes: right.next_multiple_of(unit).min(row_bytes) - byte, ..*self }
    }

    /// The number of bytes.
    pub fn size(&self) -> usize {
        self.rows * self.bytes
    }

    /// The memory of the rectangle, in the memory of its plane.
    pub fn within<A: Address>(&self, plane: &PlaneMemory<A>) -> PlaneMemory<A> {
        plane.every(self.row, self.row_step).from_byte(self.byte)
    }

    /// The numbers of the rows in the plane.
    pub fn plane_rows(&self) -> impl Iterator<Item = usize> + use<> {
        (self.row..).step_by(self.row_step).take(self.rows)
    }

    /// Whether the two rectangles share a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        let last_row = |rect: &Self| rect.row + (rect.rows - 1) * rect.row_step;
        // Two fields of a plane have the same step, but share no rows.
        let shares_rows = self.row_step != other.row_step || self.row % self.row_step == other.row % other.row_step;
        self.plane == other.plane
            && shares_rows
            && self.row <= last_row(other)
            && other.row <= last_row(self)
            && self.byte < other.byte + other.bytes
            && other.byte < self.byte + self.bytes
    }
}

/// The bytes of all rectangles, as rectangles that do not overlap.
pub fn disjoint(rects: impl IntoIterator<Item = ByteRect>) -> Vec<ByteRect> {
    let key = |rect: &ByteRect| (rect.plane, rect.row_step, rect.row % rect.row_step);
    let mut rects: Vec<ByteRect> = rects.into_iter().collect();
    rects.sort_by_key(key);
    let apart = |rects: &[ByteRect]| -> Vec<ByteRect> {
        let first = rects[0];
        let in_rows = |rect: &ByteRect| {
            let (x, y) = (rect.byte as u32, (rect.row / rect.row_step) as u32);
            Rect::new(x, y, rect.bytes as u32, rect.rows as u32).expect("a rectangle has bytes")
        };
        let of = |rect: Rect| ByteRect {
            row: rect.y() as usize * first.row_step + first.row % first.row_step,
            rows: rect.height() as usize,
            byte: rect.x() as usize,
            bytes: rect.width() as usize,
            ..first
        };
        regions::disjoint(&rects.iter().map(in_rows).collect::<Vec<_>>()).into_iter().map(of).collect()
    };
    rects.chunk_by(|one, other| key(one) == key(other)).flat_map(apart).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::frame::{Field, SampleLayout};

    #[test]
    fn the_other_luma_of_a_half_covered_pair_is_left_out() {
        for (luma, width) in [(0, 8), (1, 8), (0, 7), (1, 7)] {
            let layout =
                PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma }, ..PlaneLayout::new(width, 1, 4, 8) };
            let field = Field::whole(layout);
            for (x, right) in (0..width).flat_map(|x| (x + 1..=width).map(move |right| (x, right))) {
                let covered = FieldRect { field, rect: Rect::new(x, 0, right - x, 1).unwrap() };
                let mut bytes = vec![0; layout.row_bytes()];
                for rect in ByteRect::covered(0, covered) {
                    bytes[rect.byte..rect.byte + rect.bytes].iter_mut().for_each(|count| *count += 1);
                }
                for (i, count) in bytes.into_iter().enumerate() {
                    let pair = i as u32 / 4;
                    let is_covered = if i % 2 == usize::from(luma) {
                        (x..right).contains(&(i as u32 / 2).min(width - 1))
                    } else {
                        (x..right).any(|pixel| pixel / 2 == pair)
                    };
                    assert_eq!(count, u32::from(is_covered), "byte {i} of {x}..{right}, luma at {luma}, width {width}");
                }
            }
        }
    }

    #[test]
    fn fields_do_not_overlap() {
        let rect = ByteRect { plane: 0, row: 2, row_step: 2, rows: 3, byte: 4, bytes: 5 };
        assert!(rect.overlaps(&rect));
        assert!(rect.overlaps(&ByteRect { row: 6, byte: 8, bytes: 1, rows: 1, ..rect }));
        for other in [
            ByteRect { row: 3, ..rect },
            ByteRect { row: 8, ..rect },
            ByteRect { row: 0, rows: 1, ..rect },
            ByteRect { byte: 9, ..rect },
            ByteRect { byte: 0, bytes: 4, ..rect },
            ByteRect { plane: 1, ..rect },
        ] {
            assert!(!rect.overlaps(&other) && !other.overlaps(&rect), "{other:?}");
        }
    }

    #[test]
    fn disjoint_rectangles_have_the_same_bytes() {
        let rect = ByteRect { plane: 0, row: 2, row_step: 2, rows: 3, byte: 4, bytes: 5 };
        let rects =
            [rect, ByteRect { byte: 7, rows: 9, ..rect }, ByteRect { row: 3, ..rect }, ByteRect { plane: 1, ..rect }];
        let count = |rects: &[ByteRect]| {
            let mut bytes = std::collections::BTreeMap::new();
            for rect in rects {
                for row in rect.plane_rows() {
                    for byte in rect.byte..rect.byte + rect.bytes {
                        *bytes.entry((rect.plane, row, byte)).or_insert(0) += 1;
                    }
                }
            }
            bytes
        };
        let (all, apart) = (count(&rects), count(&disjoint(rects)));
        assert!(all.values().any(|count| *count > 1) && apart.values().all(|count| *count == 1));
        assert!(all.keys().eq(apart.keys()));
    }

    #[test]
    fn alignment_ends_with_the_row() {
        let rect = ByteRect { plane: 0, row: 0, row_step: 1, rows: 1, byte: 17, bytes: 30 };
        assert_eq!(rect.aligned(16, 64), ByteRect { byte: 16, bytes: 32, ..rect });
        assert_eq!(ByteRect { byte: 31, bytes: 2, ..rect }.aligned(16, 40), ByteRect { byte: 16, bytes: 24, ..rect });
    }
}
