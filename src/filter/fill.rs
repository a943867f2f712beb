// SPDX-License-Identifier: MPL-2.0
//! Covers regions with one colour, which leaves nothing of what was there.

use super::byte_rect::ByteRect;
use super::frame::{FrameError, FrameMut, PlaneLayout, Side, check_host};
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
    /// The pattern, repeated from the first byte of each row on.
    pub pattern: [u8; 8],
    /// Bytes of the pattern, 1 to 8.
    pub period: usize,
}

/// What has to be written to fill rectangles with `values`, one element for each plane. Where two overlap, they have the same
/// bytes.
///
/// # Panics
/// If there are fewer values than planes.
pub fn fills(layouts: &[PlaneLayout], rects: &[Rect], values: &[PlaneValues]) -> Vec<Fill> {
    let picture = PictureGeometry::new(layouts);
    let patterns: Vec<([u8; 8], usize)> =
        layouts.iter().zip(&values[..layouts.len()]).map(|(layout, values)| pattern(layout, values)).collect();
    let covered = rects.iter().flat_map(|rect| covered_fields(&picture, *rect));
    let rects = covered.flat_map(|(plane, covered)| ByteRect::covered(plane, &layouts[plane], covered));
    let fill = |to: ByteRect| {
        let (mut pattern, period) = patterns[to.plane];
        pattern[..period].rotate_left(to.byte % period);
        Fill { to, pattern, period }
    };
    rects.map(fill).collect()
}

/// The bytes of a pixel, or of a pair of pixels of packed 4:2:2, and their number.
fn pattern(layout: &PlaneLayout, values: &PlaneValues) -> ([u8; 8], usize) {
    let pixel = PlaneLayout { width: layout.unit_pixels(), height: 1, ..*layout };
    let mut bytes = [0; 8];
    for channel in channels(&pixel) {
        (0..channel.count(&pixel)).for_each(|x| channel.store(&pixel, &mut bytes, x, values[channel.first]));
    }
    (bytes, pixel.row_bytes())
}

/// Writes `values` into every sample that a rectangle covers, one element for each plane. Rectangles are in luma samples
/// and rounded outwards in subsampled planes; no other byte changes. The padding bits of what is written become 0.
///
/// # Errors
/// If the frame does not hold its rows. Nothing is written then.
///
/// # Panics
/// If there are fewer values than planes.
pub fn fill(frame: &mut FrameMut, rects: &[Rect], values: &[PlaneValues]) -> Result<(), FrameError> {
    check_host(frame, Side::Output)?;
    let layouts: Vec<PlaneLayout> = frame.iter().map(|plane| plane.layout).collect();
    for Fill { to, pattern, period } in fills(&layouts, rects, values) {
        let plane = &mut frame[to.plane];
        for row in to.plane_rows() {
            let bytes = &mut plane.data[row * plane.pitch + to.byte..][..to.bytes];
            bytes.chunks_mut(period).for_each(|bytes| bytes.copy_from_slice(&pattern[..bytes.len()]));
        }
    }
    Ok(())
}
