// SPDX-License-Identifier: MPL-2.0
//! The table of video formats: which planes each has. A new format is a new row.

use gst_video::VideoFormat;

use crate::frame::PlaneLayout;

/// One plane of a format.
struct PlaneShape {
    /// Interleaved samples per pixel.
    channels: u8,
    /// Bits per sample.
    depth: u8,
    /// Picture pixels per plane pixel along x and y.
    subsampling: [u32; 2],
}

/// `channels` samples of 8 bits, one for every pixel of the picture.
const fn packed(channels: u8) -> PlaneShape {
    PlaneShape { channels, depth: 8, subsampling: [1, 1] }
}

/// In the order in which they are offered.
const FORMATS: &[(VideoFormat, &[PlaneShape])] = &[
    (VideoFormat::Rgba, &[packed(4)]),
    (VideoFormat::Bgra, &[packed(4)]),
    (VideoFormat::Argb, &[packed(4)]),
    (VideoFormat::Abgr, &[packed(4)]),
    (VideoFormat::Rgbx, &[packed(4)]),
    (VideoFormat::Bgrx, &[packed(4)]),
    (VideoFormat::Xrgb, &[packed(4)]),
    (VideoFormat::Xbgr, &[packed(4)]),
    (VideoFormat::Rgb, &[packed(3)]),
    (VideoFormat::Bgr, &[packed(3)]),
    (VideoFormat::Gray8, &[packed(1)]),
];

/// Every format the element takes.
pub fn all() -> impl Iterator<Item = VideoFormat> {
    FORMATS.iter().map(|(format, _)| *format)
}

/// The planes of a picture, in GStreamer's order; `None` for a format that is not in the table.
pub fn planes(info: &gst_video::VideoInfo) -> Option<Vec<PlaneLayout>> {
    let (_, shapes) = FORMATS.iter().find(|(format, _)| *format == info.format())?;
    let layout = |shape: &PlaneShape| PlaneLayout {
        width: info.width().div_ceil(shape.subsampling[0]),
        height: info.height().div_ceil(shape.subsampling[1]),
        channels: shape.channels,
        depth: shape.depth,
        sigma_scale: shape.subsampling.map(|pixels| 1.0 / f64::from(pixels)),
    };
    Some(shapes.iter().map(layout).collect())
}
