// SPDX-License-Identifier: MPL-2.0
//! The supported video formats and their planes. The plane layouts are derived from GStreamer's description of a
//! format, so that another format with the same kinds of planes needs only its name in the list.

use gst_video::{VideoFormat, VideoInterlaceMode, VideoMultiviewFlags, VideoMultiviewMode};

use crate::filter::frame::{PlaneLayout, Role, SampleLayout, Split};

/// The supported formats, in order of preference: packed RGB of 8 bits, YUV, grey, planar RGB, packed RGB of more than 8 bits. The
/// running version of GStreamer may not know all of them.
const NAMES: &str = "
    RGBA BGRA ARGB ABGR RGBx BGRx xRGB xBGR RBGA RGB BGR
    NV12 NV21 NV16 NV61 NV24 I420 YV12 Y42B Y444 Y41B YUV9 YVU9 A420 A422 A444 AV12
    YUY2 UYVY VYUY YVYU AYUV VUYA v308 IYU2
    P010_10LE P012_LE P016_LE I420_10LE I420_12LE I422_10LE I422_12LE Y444_10LE Y444_12LE Y444_16LE
    A420_10LE A420_12LE A420_16LE A422_10LE A422_12LE A422_16LE A444_10LE A444_12LE A444_16LE
    Y210 Y212_LE Y216_LE v216 Y412_LE Y416_LE AYUV64 Y410
    GRAY8 GRAY16_LE GRAY10_LE16
    GBR GBRA RGBP BGRP GBR_10LE GBR_12LE GBR_16LE GBRA_10LE GBRA_12LE
    RGBA64_LE BGRA64_LE ARGB64_LE ABGR64_LE ARGB64 RGB10A2_LE BGR10A2_LE
";

/// The names of the supported formats, in order of preference.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.split_whitespace()
}

/// The supported formats that the running version of GStreamer knows.
pub fn all() -> impl Iterator<Item = VideoFormat> {
    names().map(VideoFormat::from_string).filter(|format| *format != VideoFormat::Unknown)
}

/// The components of a pixel in the order of its samples, for formats whose description in GStreamer has no offsets.
/// Each of these orders is its own inverse.
pub fn order_without_offsets(format: &gst_video::VideoFormatInfo) -> Option<[usize; 4]> {
    match format.name().as_str() {
        "RGB10A2_LE" => Some([0, 1, 2, 3]),
        "BGR10A2_LE" => Some([2, 1, 0, 3]),
        // Y, U, Y, V. The second Y belongs to no component.
        "Y210" | "Y212_LE" | "Y216_LE" => Some([0, 1, 3, 2]),
        // U, Y, V, A.
        "Y410" | "Y412_LE" | "Y416_LE" => Some([1, 0, 2, 3]),
        _ => None,
    }
}

/// The planes of a frame, in GStreamer's order. With `interlaced`, the rows of a frame alternate between two fields. Two views in a
/// picture are blurred each by itself.
/// `None` for a format that is not supported.
pub fn planes(info: &gst_video::VideoInfo, interlaced: bool) -> Option<Vec<PlaneLayout>> {
    let format = info.format_info();
    if !names().any(|name| name == format.name().as_str()) {
        return None;
    }
    // A buffer of interlace-mode=alternate holds one field, whose adjacent lines are two lines of the picture apart.
    let alternate = info.interlace_mode() == VideoInterlaceMode::Alternate;
    let lines = if alternate { info.height().div_ceil(2) } else { info.height() };
    let split = match info.multiview_mode() {
        _ if interlaced => Split::Fields,
        VideoMultiviewMode::SideBySide => Split::SideBySide,
        VideoMultiviewMode::TopBottom => Split::TopBottom,
        VideoMultiviewMode::RowInterleaved => Split::Rows,
        _ => Split::Whole,
    };
    // Views of half the width or height are shown twice as wide or high.
    let is_half = info.multiview_flags().contains(VideoMultiviewFlags::HALF_ASPECT);
    let view_scale = match split {
        Split::SideBySide if is_half => [0.5, 1.0],
        Split::TopBottom | Split::Rows if is_half => [1.0, 0.5],
        _ => [1.0, if alternate { 0.5 } else { 1.0 }],
    };
    let plane = |plane: u32| {
        let components: Vec<usize> =
            (0..format.n_components() as usize).filter(|c| format.plane()[*c] == plane).collect();
        let first = components[0];
        let scale = |shift: u32| 1.0 / f64::from(1 << shift);
        let mut layout = PlaneLayout {
            width: info.comp_width(first as u8),
            height: lines.div_ceil(1 << format.h_sub()[first]),
            sigma_scale: [scale(format.w_sub()[first]) * view_scale[0], scale(format.h_sub()[first]) * view_scale[1]],
            split,
            ..PlaneLayout::new(0, 0, 0, format.depth()[first] as u8)
        };
        let stride = format.pixel_stride()[first] as usize;
        let role = |c: usize| match c {
            3 => Role::Alpha,
            1 | 2 if format.is_yuv() => Role::Chroma,
            _ => Role::Primary,
        };
        if layout.depth == 10 && stride == 4 && components.len() == 4 {
            (layout.sample_layout, layout.channels) = (SampleLayout::Packed1010102, 4);
            layout.roles = order_without_offsets(&format)?.map(role);
        } else if components.iter().any(|c| format.w_sub()[*c] != format.w_sub()[first]) {
            let luma = (format.poffset()[first] as usize / layout.sample_bytes()) as u8;
            (layout.sample_layout, layout.channels) = (SampleLayout::Yuv422 { luma }, 4);
            layout.roles = [0, 1, 2, 3].map(|sample| if sample % 2 == luma { Role::Primary } else { Role::Chroma });
        } else {
            layout.channels = (stride / layout.sample_bytes()) as u8;
            if components.iter().any(|c| format.shift()[*c] > 0) {
                layout.sample_layout = SampleLayout::MsbAligned;
            }
            layout.roles = [role(first); 4];
            if let Some(order) = order_without_offsets(&format) {
                layout.roles = order.map(role);
            } else {
                // Offsets are read only for planes that mix roles: the offsets of P010 are not in bytes.
                for c in components.into_iter().filter(|c| role(*c) != role(first)) {
                    layout.roles[format.poffset()[c] as usize / layout.sample_bytes()] = role(c);
                }
            }
        }
        Some(layout)
    };
    (0..format.n_planes()).map(plane).collect()
}
