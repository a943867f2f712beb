// SPDX-License-Identifier: MPL-2.0
//! Covers regions with one colour, so that nothing of the picture is left in them.

use super::frame::PlaneLayout;
use super::operation::Pattern;
use super::samples::channels;

/// The values of a plane's channels, in the order and with the depth of its layout. Packed 4:2:2 has four values, and the second
/// luma value is ignored. The alpha of 10-10-10-2 has 2 bits.
pub type PlaneValues = [u16; 4];

/// The bytes of a pixel, or of a pair of pixels of packed 4:2:2.
pub fn pattern(layout: &PlaneLayout, values: &PlaneValues) -> Pattern {
    let pixel = PlaneLayout { width: layout.unit_pixels(), height: 1, ..*layout };
    let mut bytes = [0; 8];
    for channel in channels(&pixel) {
        (0..channel.count(&pixel)).for_each(|x| channel.store(&pixel, &mut bytes, x, values[channel.first]));
    }
    Pattern { bytes, len: pixel.row_bytes() }
}
