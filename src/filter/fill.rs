// SPDX-License-Identifier: MPL-2.0
//! Covers regions with one colour, which leaves nothing of what was there.

use super::crop::PictureGeometry;
use super::frame::{FrameError, FrameMut, PlaneLayout, Side, check_host};
use super::regions::Rect;
use super::samples::{channels, covered_fields, rows};

/// The values of a plane's channels, in the order of the layout and of its depth. Packed 4:2:2 has its four samples, of
/// which the second luma sample is ignored; the alpha of 10-10-10-2 has 2 bits.
pub type PlaneValues = [u16; 4];

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
    let picture = PictureGeometry::new(&layouts);
    for (plane, covered) in rects.iter().flat_map(|rect| covered_fields(&picture, *rect)) {
        let (layout, pitch) = (&layouts[plane], frame[plane].pitch);
        for (_, y) in rows(covered) {
            let row = &mut frame[plane].data[y * pitch..];
            for channel in channels(layout) {
                let value = values[plane][channel.first];
                channel.covered(layout, covered.rect).for_each(|x| channel.store(layout, row, x, value));
            }
        }
    }
    Ok(())
}
