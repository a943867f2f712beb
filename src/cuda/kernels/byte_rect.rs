// SPDX-License-Identifier: MPL-2.0
//! What a rectangle covers in a plane, as rectangles of whole bytes, which can be copied and filled without knowing samples.

use crate::filter::frame::PlaneLayout;
use crate::filter::picture::FieldRect;
use crate::filter::plane::{Address, PlaneMemory};

/// The device copies packed rectangles in groups of this many bytes.
pub const PACKED_GROUP: usize = 16;

/// Bytes of a plane: the same range in every row of some rows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRect {
    /// The plane.
    pub plane: usize,
    /// Its first row, in rows of the plane.
    pub row: usize,
    /// Rows of the plane from one of its rows to the next, 1, or 2 for a field.
    pub row_step: usize,
    /// The number of its rows, at least 1.
    pub rows: usize,
    /// Its first byte in each row.
    pub byte: usize,
    /// Its bytes in each row, at least 1.
    pub bytes: usize,
}

impl ByteRect {
    /// The bytes of what is covered in a plane, at most two rectangles. Of a pair of pixels of packed 4:2:2 that is half
    /// covered, the luma of the other pixel is not among them.
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

    /// All bytes of a plane that are samples.
    pub fn whole(plane: usize, layout: &PlaneLayout) -> Self {
        let (rows, bytes) = (layout.height as usize, layout.row_bytes());
        Self { plane, row: 0, row_step: 1, rows, byte: 0, bytes }
    }

    /// The number of its bytes.
    pub fn size(&self) -> usize {
        self.rows * self.bytes
    }

    /// Where its rows are, in the memory of its plane.
    pub fn within<A: Address>(&self, plane: &PlaneMemory<A>) -> PlaneMemory<A> {
        plane.every(self.row, self.row_step).from_byte(self.byte)
    }

    /// The rows, in rows of the plane.
    pub fn plane_rows(&self) -> impl Iterator<Item = usize> + use<> {
        (self.row..).step_by(self.row_step).take(self.rows)
    }

    /// Whether a byte is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        let last_row = |rect: &Self| rect.row + (rect.rows - 1) * rect.row_step;
        // Fields of the same plane have the same step.
        let shares_rows = self.row_step != other.row_step || self.row % self.row_step == other.row % other.row_step;
        self.plane == other.plane
            && shares_rows
            && self.row <= last_row(other)
            && other.row <= last_row(self)
            && self.byte < other.byte + other.bytes
            && other.byte < self.byte + self.bytes
    }
}

/// Bytes of a frame in a block where such rectangles follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedRect {
    /// The bytes of the frame.
    pub rect: ByteRect,
    /// Its first byte in the block.
    pub offset: usize,
    /// Bytes of the block from one of its rows to the next, a multiple of [`PACKED_GROUP`]. A row begins less than a group after
    /// a multiple of it, and has all groups that it touches for itself.
    pub pitch: usize,
}

impl PackedRect {
    /// Where its rows are, in a block at this address.
    pub fn within<A: Address>(&self, block: A) -> PlaneMemory<A> {
        let len = (self.rect.rows - 1) * self.pitch + self.rect.bytes;
        PlaneMemory { address: block.offset_by(self.offset), pitch: self.pitch, len }
    }

    /// The bytes of a group before its rows.
    pub fn skew(&self) -> usize {
        self.offset % PACKED_GROUP
    }
}

/// Rectangles in one block.
#[derive(Debug, Default)]
pub struct StagingLayout {
    /// In the order of the block.
    pub rects: Vec<PackedRect>,
    /// Bytes of the block.
    pub block_bytes: usize,
}

impl StagingLayout {
    /// Packs rectangles, each with the bytes of a group before its rows.
    pub fn new(rects: impl Iterator<Item = (ByteRect, usize)>) -> Self {
        let mut block_bytes = 0;
        let pack = |(rect, skew): (ByteRect, usize)| {
            let pitch = (skew + rect.bytes).next_multiple_of(PACKED_GROUP);
            let packed = PackedRect { rect, offset: block_bytes + skew, pitch };
            block_bytes += pitch * rect.rows;
            packed
        };
        let rects = rects.map(pack).collect();
        Self { rects, block_bytes }
    }

    /// The number of bytes of the frame that they have.
    pub fn bytes(&self) -> usize {
        self.rects.iter().map(|packed| packed.rect.size()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::frame::{Field, SampleLayout};
    use crate::filter::regions::Rect;

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
}
