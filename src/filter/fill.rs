// SPDX-License-Identifier: MPL-2.0
//! Covers regions with one colour, which leaves nothing of what was there.

use super::byte_rect::ByteRect;
use super::frame::PlaneLayout;
use super::operation::Pattern;
use super::picture::PictureGeometry;
use super::regions::Rect;
use super::samples::{channels, covered_fields};

/// The values of a plane's channels, in the order of the layout and of its depth. Packed 4:2:2 has its four samples, of
/// which the second luma sample is ignored; the alpha of 10-10-10-2 has 2 bits.
pub type PlaneValues = [u16; 4];

/// Bytes that are overwritten with a repeated pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// The bytes of the frame.
    pub to: ByteRect,
    /// The pattern, repeated from the first byte of each row of the rectangle on.
    pub pattern: Pattern,
}

/// What has to be written to fill rectangles with `values`, one element for each plane. Where two overlap, they have the same
/// bytes.
///
/// # Panics
/// If there are fewer values than planes.
pub fn fills(layouts: &[PlaneLayout], rects: &[Rect], values: &[PlaneValues]) -> Vec<Fill> {
    let picture = PictureGeometry::new(layouts);
    let patterns: Vec<Pattern> =
        layouts.iter().zip(&values[..layouts.len()]).map(|(layout, values)| pattern(layout, values)).collect();
    let covered = rects.iter().flat_map(|rect| covered_fields(&picture, *rect));
    let rects = covered.flat_map(|(plane, covered)| ByteRect::covered(plane, &layouts[plane], covered));
    let fill = |to: ByteRect| {
        let mut pattern = patterns[to.plane];
        pattern.bytes[..pattern.len].rotate_left(to.byte % pattern.len);
        Fill { to, pattern }
    };
    rects.map(fill).collect()
}

/// The bytes of a pixel, or of a pair of pixels of packed 4:2:2.
pub fn pattern(layout: &PlaneLayout, values: &PlaneValues) -> Pattern {
    let pixel = PlaneLayout { width: layout.unit_pixels(), height: 1, ..*layout };
    let mut bytes = [0; 8];
    for channel in channels(&pixel) {
        (0..channel.count(&pixel)).for_each(|x| channel.store(&pixel, &mut bytes, x, values[channel.first]));
    }
    Pattern { bytes, len: pixel.row_bytes() }
}
