// SPDX-License-Identifier: MPL-2.0
//! `fill-color` in the format of a stream.

use gst::glib::translate::{IntoGlib, ToGlibPtr};
use gst_video::{VideoColorMatrix, VideoColorRange, VideoFormat, ffi};

use super::formats;
use crate::filter::fill::PlaneValues;
use crate::filter::frame::PlaneLayout;

/// The values of a colour, 0xAARRGGBB with full-range R'G'B', in every plane of a frame. YUV follows the colorimetry of
/// the caps, or BT.601 if the caps have none.
pub fn plane_values(color: u32, info: &gst_video::VideoInfo, planes: &[PlaneLayout]) -> Vec<PlaneValues> {
    let format = info.format_info();
    let (offsets, scales) = ranges(info);
    let [alpha, red, green, blue] = color.to_be_bytes().map(|byte| f64::from(byte) / 255.0);
    let components = if format.is_rgb() {
        [red, green, blue, alpha]
    } else {
        let luma_weights = info.colorimetry().matrix().kr_kb().or_else(|_| VideoColorMatrix::Bt601.kr_kb());
        let (kr, kb) = luma_weights.unwrap_or((0.299, 0.114));
        let luma = kr * red + (1.0 - kr - kb) * green + kb * blue;
        [luma, (blue - luma) / (2.0 - 2.0 * kb), (red - luma) / (2.0 - 2.0 * kr), alpha]
    };
    let value = |component: usize| {
        let depth = format.depth()[component];
        let end = f64::from((1_u32 << depth) - 1);
        let (offset, scale) = if component == 3 { (0.0, end) } else { (offsets[component], scales[component]) };
        (offset + scale * components[component]).round().clamp(0.0, end) as u16
    };
    let plane = |(index, layout): (usize, &PlaneLayout)| {
        let mut values: PlaneValues = [0; 4];
        let in_plane: Vec<usize> =
            (0..format.n_components() as usize).filter(|c| format.plane()[*c] as usize == index).collect();
        for component in &in_plane {
            values[channel(&format, layout, &in_plane, *component)] = value(*component);
        }
        values
    };
    planes.iter().enumerate().map(plane).collect()
}

/// The index of a component among the channels of its plane.
fn channel(format: &gst_video::VideoFormatInfo, layout: &PlaneLayout, in_plane: &[usize], component: usize) -> usize {
    let byte_offsets = format.poffset();
    if let Some(order) = formats::order_without_offsets(format) {
        return order[component];
    }
    match format.format() {
        // GStreamer's description has U and V in the wrong order; its converter has them in the right one.
        VideoFormat::Vyuy => [1, 2, 0][component],
        // The offsets of P010 are not in bytes, but in order.
        _ if in_plane.len() == usize::from(layout.channels) => {
            in_plane.iter().filter(|other| byte_offsets[**other] < byte_offsets[component]).count()
        }
        _ => byte_offsets[component] as usize / layout.sample_bytes(),
    }
}

/// The value of 0 of each component, and the distance of 1 from it.
fn ranges(info: &gst_video::VideoInfo) -> ([f64; 4], [f64; 4]) {
    let range = match info.colorimetry().range() {
        VideoColorRange::Unknown if info.format_info().is_yuv() => VideoColorRange::Range16_235,
        VideoColorRange::Unknown => VideoColorRange::Range0_255,
        known => known,
    };
    let (mut offsets, mut scales) = ([0; 4], [0; 4]);
    let description = info.format_info();
    // SAFETY: the description is that of a registered format, and both arrays have the four elements that are written.
    unsafe {
        ffi::gst_video_color_range_offsets(range.into_glib(), description.to_glib_none().0, &mut offsets, &mut scales);
    }
    (offsets.map(f64::from), scales.map(f64::from))
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use gst_video::VideoColorimetry;

    use super::*;

    fn values(format: VideoFormat, colorimetry: &str, color: u32) -> Vec<PlaneValues> {
        gst::init().unwrap();
        let colorimetry = VideoColorimetry::from_str(colorimetry).unwrap();
        let info = gst_video::VideoInfo::builder(format, 16, 16).colorimetry(&colorimetry).build().unwrap();
        plane_values(color, &info, &formats::planes(&info, false).unwrap())
    }

    #[test]
    fn colours_of_known_values() {
        use VideoFormat::{Bgrx, Gray8, I42010le, Nv12, Nv21, P01010le, Rgb, Uyvy};
        const ORANGE: u32 = 0x80ff_8000;
        assert_eq!(values(Nv12, "bt601", 0xff00_0000), [[16, 0, 0, 0], [128, 128, 0, 0]]);
        assert_eq!(values(Nv12, "bt709", 0xffff_ffff), [[235, 0, 0, 0], [128, 128, 0, 0]]);
        assert_eq!(values(Nv12, "bt601", 0xffff_0000), [[81, 0, 0, 0], [90, 240, 0, 0]]);
        assert_eq!(values(Nv21, "bt601", 0xffff_0000), [[81, 0, 0, 0], [240, 90, 0, 0]]);
        assert_eq!(values(Nv12, "bt709", 0xffff_0000), [[63, 0, 0, 0], [102, 240, 0, 0]]);
        assert_eq!(values(P01010le, "bt601", 0xffff_0000), [[326, 0, 0, 0], [361, 960, 0, 0]]);
        assert_eq!(values(I42010le, "bt601", 0xff00_00ff), [[164, 0, 0, 0], [960, 0, 0, 0], [439, 0, 0, 0]]);
        assert_eq!(values(Uyvy, "bt601", 0xffff_0000), [[90, 81, 240, 0]]);
        assert_eq!(values(Rgb, "sRGB", ORANGE), [[255, 128, 0, 0]]);
        assert_eq!(values(Bgrx, "sRGB", ORANGE), [[0, 128, 255, 0]]);
        assert_eq!(values(VideoFormat::Argb, "sRGB", ORANGE), [[128, 255, 128, 0]]);
        assert_eq!(values(VideoFormat::Vuya, "bt601", 0x80ff_0000), [[240, 90, 81, 128]]);
        assert_eq!(values(VideoFormat::Bgr10a2Le, "sRGB", ORANGE), [[0, 514, 1023, 2]]);
        assert_eq!(values(VideoFormat::Rgba64Le, "sRGB", ORANGE), [[65535, 32896, 0, 32896]]);
        assert_eq!(values(Gray8, "1:4:0:0", 0xffff_ffff), [[255, 0, 0, 0]]);
        assert_eq!(values(VideoFormat::Gbr, "sRGB", ORANGE), [[128, 0, 0, 0], [0; 4], [255, 0, 0, 0]]);
        // Without a range.
        assert_eq!(values(Rgb, "0:0:0:0", ORANGE), [[255, 128, 0, 0]]);
        assert_eq!(values(Nv12, "0:4:0:0", 0xff00_0000), [[16, 0, 0, 0], [128, 128, 0, 0]]);
    }

    /// The values that GStreamer's own converter gives a colour, in every format.
    #[test]
    fn every_format_has_the_colour_of_videoconvert() {
        gst::init().unwrap();
        for format in formats::all() {
            for color in [0xff00_0000_u32, 0xffff_ffff, 0xffff_0000, 0xff20_c040, 0x8040_60ff] {
                let from = gst_video::VideoInfo::builder(VideoFormat::Argb, 4, 4).build().unwrap();
                let into = gst_video::VideoInfo::builder(format, 4, 4).build().unwrap();
                let planes = formats::planes(&into, false).unwrap();
                let source = gst::Buffer::from_slice(color.to_be_bytes().repeat(16));
                let source = gst_video::VideoFrame::from_buffer_readable(source, &from).unwrap();
                let mut out =
                    gst_video::VideoFrame::from_buffer_writable(gst::Buffer::with_size(into.size()).unwrap(), &into)
                        .unwrap();
                let mut config = gst_video::VideoConverterConfig::new();
                config.set_dither_method(gst_video::VideoDitherMethod::None);
                let converter = gst_video::VideoConverter::new(&from, &into, Some(config)).unwrap();
                converter.frame(&source, &mut out);
                let values = plane_values(color, &into, &planes);
                for (plane, layout) in planes.iter().enumerate() {
                    let row = out.plane_data(plane as u32).unwrap();
                    for channel in crate::filter::samples::channels(layout) {
                        let [got, want] = [values[plane][channel.first], channel.load(layout, row, 0)];
                        // The unused byte of RGBx is anything.
                        let is_unused = layout.channels == 4
                            && into.n_components() == 3
                            && into.format_info().is_rgb()
                            && !into.format_info().poffset()[..3].contains(&(channel.first as u32));
                        // The converter computes with 8 bits, and repeats the top bits in deeper formats.
                        let tolerance = 3 << (layout.depth - 8);
                        assert!(
                            is_unused || got.abs_diff(want) <= tolerance,
                            "{format:?} {color:#x} plane {plane} channel {}: {got}, not {want}",
                            channel.first
                        );
                    }
                }
            }
        }
    }
}
