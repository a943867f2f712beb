//! Checks every video format in the element's caps against the oracle. Frames are taken apart component by component by
//! GStreamer's own format descriptions, independently of the element's format table.

use gst_video::prelude::*;
use gst_video::{VideoFormat, VideoFrameExt, VideoInfo, VideoInterlaceMode};

use super::Noise;
use super::cases::axis;
use super::oracle::Image;
use super::video::{self, Blur};
use gstcudagaussblur::filter::BlurParams;

/// The formats that the element has to accept, where this GStreamer version knows them.
const NAMES: &str = "
    RGBA BGRA ARGB ABGR RGBx BGRx xRGB xBGR RGB BGR GRAY8 GRAY16_LE NV12 NV21 NV16 NV24 I420 YV12 Y42B Y444 A420
    I420_10LE I420_12LE I422_10LE I422_12LE Y444_10LE Y444_12LE Y444_16LE P010_10LE P012_LE P016_LE GBR GBRA RGBP
    BGRP GBR_10LE GBR_12LE GBR_16LE AYUV VUYA RGBA64_LE ARGB64 BGRA64_LE RGB10A2_LE BGR10A2_LE YUY2 UYVY VYUY YVYU
    RBGA NV61 Y41B YUV9 YVU9 A422 A444 AV12 v308 IYU2 A420_10LE A420_12LE A420_16LE A422_10LE A422_12LE A422_16LE
    A444_10LE A444_12LE A444_16LE Y410 Y412_LE Y416_LE AYUV64 GBRA_10LE GBRA_12LE ARGB64_LE ABGR64_LE Y210 Y212_LE
    Y216_LE v216 GRAY10_LE16
";

/// The blur's parameters, as properties of the element and as input of the oracle.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    sigma: f64,
    kernel_size: u32,
    /// Whether primary channels (luma, R, G, B, grey), chroma and alpha are blurred.
    planes: [bool; 3],
    premultiply: bool,
}

impl Setting {
    pub fn properties(&self) -> String {
        let Self { sigma, kernel_size, planes, premultiply } = self;
        let names: Vec<&str> =
            ["luma", "chroma", "alpha"].into_iter().zip(planes).filter(|(_, on)| **on).map(|(n, _)| n).collect();
        let alpha = if *premultiply { "premultiply" } else { "straight" };
        format!("sigma={sigma} kernel-size={kernel_size} planes={} alpha={alpha}", names.join("+"))
    }
}

pub fn settings() -> Vec<Setting> {
    let all = Setting { sigma: 1.5, kernel_size: 0, planes: [true; 3], premultiply: false };
    vec![
        all,
        Setting { sigma: 6.0, ..all },
        Setting { sigma: 3.0, kernel_size: 9, ..all },
        Setting { sigma: 25.0, ..all },
        Setting { planes: [true, false, false], ..all },
        Setting { planes: [false, true, false], ..all },
        Setting { planes: [false, false, true], ..all },
        Setting { planes: [true, true, false], ..all },
        Setting { sigma: 2.5, premultiply: true, ..all },
        Setting { premultiply: true, planes: [true, false, true], ..all },
    ]
}

/// A component of a frame: its samples, its role (0 primary, 1 chroma, 2 alpha), and the factor that scales σ across
/// and down (the inverse of its subsampling).
struct Component {
    image: Image,
    role: usize,
    scale: [f64; 2],
}

/// Whether a pixel is a word of 10, 10, 10 and 2 bits.
fn is_packed_1010102(info: &VideoInfo) -> bool {
    ["RGB10A2_LE", "BGR10A2_LE", "Y410"].contains(&info.format().to_str().as_str())
}

/// The components of a buffer, field by field.
fn components(info: &VideoInfo, buffer: &gst::Buffer, fields: usize) -> Vec<Component> {
    let frame = gst_video::VideoFrame::from_buffer_readable(buffer.clone(), info).unwrap();
    let format = info.format_info();
    let name = info.format().to_str();
    let packed = is_packed_1010102(info);
    // GStreamer does not describe where the components of these are: U, Y, V, A.
    let unplaced = ["Y410", "Y412_LE", "Y416_LE"].contains(&name.as_str());
    // Nor of these, Y, U, Y, V, whose values are in the upper bits.
    let is_y21x = ["Y210", "Y212_LE", "Y216_LE"].contains(&name.as_str());
    let mut components = Vec::new();
    for field in (0..fields).filter(|field| *field < info.height() as usize) {
        for c in 0..format.n_components() as usize {
            let plane = format.plane()[c];
            let (bytes, stride) = (frame.plane_data(plane).unwrap(), frame.plane_stride()[plane as usize] as usize);
            let place = if unplaced { [1, 0, 2, 3][c] } else { c };
            let (depth, shift) = (format.depth()[c], if packed { 10 * place as u32 } else { format.shift()[c] });
            let shift = if is_y21x { 16 - depth } else { shift };
            let width = info.comp_width(c as u8) as usize;
            // In alternate mode a buffer holds one of the frame's two fields.
            let alternate = info.interlace_mode() == VideoInterlaceMode::Alternate;
            let lines = info.height().div_ceil(1 + u32::from(alternate)).div_ceil(1 << format.h_sub()[c]) as usize;
            let height = lines.saturating_sub(field).div_ceil(fields);
            // For samples of two bytes GStreamer gives some offsets in samples instead of bytes.
            let wide = depth + shift > 8 && !packed;
            let offset = if unplaced && !packed { 2 * place } else { format.poffset()[c] as usize };
            let offset = if is_y21x { [0, 2, 6][c] } else { offset };
            let offset = offset * if wide && format.poffset()[c] % 2 == 1 { 2 } else { 1 };
            let sample = |x: usize, y: usize| {
                let at = (y * fields + field) * stride + x * format.pixel_stride()[c] as usize + offset;
                let word = match depth + shift {
                    _ if packed => u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()),
                    ..=8 => u32::from(bytes[at]),
                    _ => u32::from(u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap())),
                };
                (word >> shift & ((1 << depth) - 1)) as u16
            };
            let samples =
                (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| sample(x, y)).collect();
            let apart = if alternate { 2 } else { fields };
            components.push(Component {
                image: Image { width, height, channels: 1, depth, samples },
                role: if c == 3 { 2 } else { usize::from(format.is_yuv() && c > 0) },
                scale: [
                    1.0 / f64::from(1 << format.w_sub()[c]),
                    1.0 / f64::from(1 << format.h_sub()[c]) / apart as f64,
                ],
            });
        }
    }
    components
}

/// A buffer whose bytes come from `fill`, with the strides of the caps plus `padding` (as a video meta if it is not 0).
pub fn buffer(info: &VideoInfo, padding: usize, fill: &mut dyn FnMut() -> u8) -> gst::Buffer {
    let planes = info.n_planes() as usize;
    let strides: Vec<i32> = info.stride()[..planes].iter().map(|stride| stride + padding as i32).collect();
    let mut offsets = Vec::new();
    let mut size = 0;
    for (plane, stride) in strides.iter().enumerate() {
        offsets.push(if padding == 0 { info.offset()[plane] } else { size });
        size += *stride as usize * info.height() as usize;
    }
    let size = if padding == 0 { info.size() } else { size };
    let mut buffer = gst::Buffer::from_mut_slice((0..size).map(|_| fill()).collect::<Vec<u8>>());
    if padding > 0 {
        let (flags, format) = (gst_video::VideoFrameFlags::empty(), info.format());
        let buffer = buffer.get_mut().unwrap();
        gst_video::VideoMeta::add_full(buffer, flags, format, info.width(), info.height(), &offsets, &strides).unwrap();
    }
    buffer
}

/// Compares a blurred frame with the oracle, component by component. Returns the number of samples compared.
pub fn compare(info: &VideoInfo, setting: &Setting, fields: usize, input: &gst::Buffer, output: &gst::Buffer) -> usize {
    let params = BlurParams::new(setting.sigma, setting.kernel_size).unwrap();
    let (before, after) = (components(info, input, fields), components(info, output, fields));
    let of_field = before.len() / fields.min(info.height() as usize);
    let mut compared = 0;
    for (i, (before, after)) in before.iter().zip(&after).enumerate() {
        let axes = before.scale.map(|scale| axis(&params, scale));
        let alpha = components(info, input, fields).into_iter().skip(i / of_field * of_field).find(|one| one.role == 2);
        let expected = match alpha.filter(|_| setting.premultiply) {
            _ if !setting.planes[before.role] => before.image.clone(),
            None => before.image.blurred(&axes[0], &axes[1]),
            Some(alpha) => {
                let times = [0, 1].map(|axis| (alpha.scale[axis] / before.scale[axis]) as usize);
                before.image.weighted(&alpha.image.wide().under(times, &before.image), before.role == 2, &axes)
            }
        };
        let what = format!("{} {}x{} {setting:?} component {i}", info.format(), info.width(), info.height());
        assert!(after.image == expected, "{what}, {:?}", info.interlace_mode());
        compared += expected.samples.len();
    }
    compared
}

/// The rows of a plane without padding. A row of packed 4:2:2 ends with a whole pair of pixels.
fn plane_rows(info: &VideoInfo, buffer: &gst::Buffer, plane: u32) -> Vec<Vec<u8>> {
    let format = info.format_info();
    let frame = gst_video::VideoFrame::from_buffer_readable(buffer.clone(), info).unwrap();
    let components = (0..format.n_components() as usize).filter(|c| format.plane()[*c] == plane);
    let row_bytes = |c: usize| info.comp_width(c as u8) as usize * format.pixel_stride()[c] as usize;
    let (row_bytes, rows) =
        components.map(|c| (row_bytes(c), info.comp_height(c as u8) as usize)).max().expect("a plane has components");
    let (bytes, stride) = (frame.plane_data(plane).unwrap(), frame.plane_stride()[plane as usize] as usize);
    bytes.chunks(stride).take(rows).map(|row| row[..row_bytes].to_vec()).collect()
}

/// Checks the bits that no sample covers: a plane with no selected channel keeps every byte; in all others, the low
/// bits of MSB-aligned samples that hold no value are 0.
fn check_unused_bits(info: &VideoInfo, setting: &Setting, input: &gst::Buffer, output: &gst::Buffer) {
    let format = info.format_info();
    for plane in 0..info.n_planes() {
        let components = || (0..format.n_components() as usize).filter(|c| format.plane()[*c] == plane);
        let role = |c: usize| if c == 3 { 2 } else { usize::from(format.is_yuv() && c > 0) };
        let what = format!("{} {}x{} {setting:?} plane {plane}", info.format(), info.width(), info.height());
        let after = plane_rows(info, output, plane);
        if !components().any(|c| setting.planes[role(c)]) {
            assert!(after == plane_rows(info, input, plane), "{what}: an unselected plane changed");
            continue;
        }
        let unused = components().map(|c| (1_u16 << format.shift()[c]) - 1).max().unwrap_or(0);
        if unused > 0 && !is_packed_1010102(info) {
            let words = after.iter().flat_map(|row| row.as_chunks::<2>().0);
            let zero = words.map(|word| u16::from_ne_bytes(*word)).all(|word| word & unused == 0);
            assert!(zero, "{what}: bits without a value are not 0");
        }
    }
}

/// Checks every format in the caps × settings × sizes × strides × noise and flat pictures, through an element with
/// `properties`. Returns the number of formats.
pub fn check_all(properties: &str) -> usize {
    let formats = video::formats();
    let is_known = |name: &&str| VideoFormat::from_string(name) != VideoFormat::Unknown;
    let mut known: Vec<&str> = NAMES.split_whitespace().filter(is_known).collect();
    let mut listed: Vec<&str> = formats.iter().map(|format| format.to_str().as_str()).collect();
    listed.sort_unstable();
    known.sort_unstable();
    assert_eq!(listed, known, "the formats in the caps are not those that NAMES lists");
    for format in &formats {
        let mut compared = 0;
        let mut blur = Blur::new(properties);
        for (i, setting) in settings().iter().enumerate() {
            for name_value in setting.properties().split(' ') {
                let (name, value) = name_value.split_once('=').unwrap();
                gst::prelude::GObjectExtManualGst::set_property_from_str(&blur.element, name, value);
            }
            for (k, (width, height)) in [(1, 1), (2, 3), (37, 23), (66, 15)].into_iter().enumerate() {
                let info = video::info(*format, width, height);
                blur.caps(&info);
                let mut noise = Noise(u64::from(width) + i as u64);
                let flat = (i + k) % 4 == 3;
                let mut fill = || if flat { 0x5a } else { noise.next() as u8 };
                let input = buffer(&info, [0, 20][(i + k) % 2], &mut fill);
                let output = blur.push(input.copy_deep().unwrap());
                compared += compare(&info, setting, 1, &input, &output);
                check_unused_bits(&info, setting, &input, &output);
            }
        }
        println!("{:<11} {compared} samples, 0 differ", format.to_str());
    }
    formats.len()
}

/// Checks that the fields of interlaced frames are blurred separately, whether a buffer holds both fields or one, and
/// that each frame of a mixed stream is treated by its own flag.
pub fn check_interlaced(properties: &str) {
    video::init();
    let setting = settings()[1];
    for name in ["NV12", "I420", "YUY2", "RGBA", "I420_10LE", "GRAY8"] {
        for (mode, flag, fields) in [
            (VideoInterlaceMode::Interleaved, true, 2),
            (VideoInterlaceMode::Mixed, true, 2),
            (VideoInterlaceMode::Mixed, false, 1),
            (VideoInterlaceMode::Progressive, false, 1),
            (VideoInterlaceMode::Alternate, true, 1),
        ] {
            let format = VideoFormat::from_string(name);
            let info = VideoInfo::builder(format, 37, 46).interlace_mode(mode).fps((25, 1)).build().unwrap();
            let mut blur = Blur::new(&format!("{properties} {}", setting.properties()));
            blur.caps(&info);
            let mut noise = Noise(7);
            let mut input = buffer(&info, 0, &mut || noise.next() as u8);
            if flag {
                let flags = gst_video::VideoBufferFlags::INTERLACED | gst_video::VideoBufferFlags::TFF;
                input.get_mut().unwrap().set_video_flags(flags);
            }
            let output = blur.push(input.clone());
            assert_eq!(output.video_flags(), input.video_flags(), "{name} {mode:?}: the video flags changed");
            compare(&info, &setting, fields, &input, &output);
        }
    }
}
