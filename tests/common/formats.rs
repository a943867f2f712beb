//! Checks every video format in the element's caps against the oracle. GStreamer takes frames apart into components, independently
//! of the element's format table.

use gst_video::prelude::*;
use gst_video::{VideoFormat, VideoInfo, VideoInterlaceMode};

use super::video::{self, Blur};
use super::{Noise, frames};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{PlaneLayout, Role};
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Selection};

/// The blur's parameters, as properties of the element and as input of the oracle.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    sigma: f64,
    kernel_size: u32,
    planes: &'static str,
    premultiply: bool,
}

impl Setting {
    pub fn properties(&self) -> String {
        let Self { sigma, kernel_size, planes, premultiply } = self;
        let alpha = if *premultiply { "premultiply" } else { "straight" };
        format!("sigma={sigma} kernel-size={kernel_size} planes={planes} alpha={alpha}")
    }
}

pub fn settings() -> Vec<Setting> {
    let all = Setting { sigma: 1.5, kernel_size: 0, planes: "luma+chroma+alpha", premultiply: false };
    vec![
        all,
        Setting { sigma: 6.0, ..all },
        Setting { sigma: 3.0, kernel_size: 9, ..all },
        Setting { sigma: 25.0, ..all },
        Setting { planes: "luma", ..all },
        Setting { planes: "chroma", ..all },
        Setting { planes: "alpha", ..all },
        Setting { planes: "luma+chroma", ..all },
        Setting { sigma: 2.5, premultiply: true, ..all },
        Setting { premultiply: true, planes: "luma+alpha", ..all },
    ]
}

/// The components of a field: each as a plane, and its samples.
type Components = (Vec<PlaneLayout>, Vec<Vec<u16>>);

/// The components of a buffer, field by field, as GStreamer unpacks its rows.
fn components(info: &VideoInfo, buffer: &gst::Buffer, fields: usize) -> Vec<Components> {
    let (format, map) = (info.format_info(), buffer.map_readable().unwrap());
    let (offsets, strides) = video::offsets_and_strides(info, buffer);
    let plane = |(offset, stride): (&usize, &i32)| {
        let mut bytes = map[*offset..].to_vec();
        // The binding asks for planes of chroma as high as luma.
        bytes.resize(bytes.len().max(*stride as usize * (info.height() as usize + 1)), 0);
        bytes
    };
    let planes: Vec<Vec<u8>> = offsets.iter().zip(&strides).map(plane).collect();
    let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
    // Of every pixel alpha and Y, U and V, or R, G and B, of 8 or 16 bits, with the values in the upper ones.
    let unpacked = gst_video::VideoFormatInfo::from_format(format.unpack_format());
    let (bits, pixel) = (unpacked.depth()[0], unpacked.pixel_stride()[0] as usize);
    // GStreamer 1.22 unpacks half a pair of VYUY wrong.
    let width = info.width().next_multiple_of(1 << format.w_sub().iter().max().unwrap());
    let unpack = |y: usize| {
        let mut row = vec![0; pixel * width as usize];
        let flags = gst_video::VideoPackFlags::TRUNCATE_RANGE;
        format.unpack(flags, &mut row, &planes, &strides, 0, y as i32, width as i32);
        row
    };
    // In alternate mode a buffer holds one of the frame's two fields.
    let alternate = info.interlace_mode() == VideoInterlaceMode::Alternate;
    let (lines, apart) = if alternate { (info.height().div_ceil(2), 2) } else { (info.height(), fields) };
    let component = |field: usize, c: usize| {
        let (depth, across, down) = (format.depth()[c], format.w_sub()[c], format.h_sub()[c]);
        let (width, rows) = (info.comp_width(c as u8), lines.div_ceil(1 << down) as usize);
        let mut samples = Vec::new();
        for row in (field..rows).step_by(fields).map(|y| unpack(y << down)) {
            let place = |x: usize| (x << across) * pixel + [1, 2, 3, 0][c] * pixel / 4;
            samples.extend((0..width as usize).map(place).map(|at| match bits {
                8 => u16::from(row[at]),
                _ => u16::from_ne_bytes([row[at], row[at + 1]]) >> (16 - depth),
            }));
        }
        let role =
            if c == 3 { Role::Alpha } else { [Role::Primary, Role::Chroma][usize::from(format.is_yuv() && c > 0)] };
        let layout = PlaneLayout {
            sigma_scale: [1.0 / f64::from(1 << across), 1.0 / f64::from(1 << down) / apart as f64],
            roles: [role; 4],
            ..PlaneLayout::new(width, samples.len() as u32 / width, 1, depth as u8)
        };
        (layout, samples)
    };
    let of_field = |field| (0..format.n_components() as usize).map(|c| component(field, c)).unzip();
    (0..fields.min(info.height() as usize)).map(of_field).collect()
}

/// A buffer whose bytes come from `fill`, with the strides of the caps plus `padding` (as a video meta if it is not 0).
pub fn buffer(info: &VideoInfo, padding: usize, fill: &mut dyn FnMut() -> u8) -> gst::Buffer {
    if padding == 0 {
        return gst::Buffer::from_mut_slice((0..info.size()).map(|_| fill()).collect::<Vec<u8>>());
    }
    let mut size = 0;
    let strides: Vec<i32> = info.stride().iter().map(|stride| stride + padding as i32).collect();
    let offset = |stride: &i32| (size, size += *stride as usize * info.height() as usize).0;
    let offsets: Vec<usize> = strides.iter().map(offset).collect();
    video::with_meta(info, (0..size).map(|_| fill()).collect(), &offsets, &strides)
}

/// Compares a blurred frame with the oracle, component by component. Returns the number of samples compared.
pub fn compare(info: &VideoInfo, setting: &Setting, fields: usize, input: &gst::Buffer, output: &gst::Buffer) -> usize {
    let [primary, chroma, alpha] = ["luma", "chroma", "alpha"].map(|name| setting.planes.contains(name));
    let options = Options {
        params: BlurParams::new(setting.sigma, setting.kernel_size).unwrap(),
        planes: Selection { primary, chroma, alpha },
        alpha: if setting.premultiply { AlphaMode::Premultiply } else { AlphaMode::Straight },
    };
    let mut compared = 0;
    for ((layouts, before), (_, after)) in components(info, input, fields).iter().zip(components(info, output, fields))
    {
        let components: Vec<_> = layouts.iter().map(frames::components).collect();
        let expected = frames::frame(&options, &components, before);
        for (i, (got, want)) in after.iter().zip(&expected).enumerate() {
            let what = format!("{} {}x{} {setting:?} component {i}", info.format(), info.width(), info.height());
            assert!(got == want, "{what}, {:?}", info.interlace_mode());
            compared += want.len();
        }
    }
    compared
}

/// Checks every format in the caps × settings × sizes × strides × noise and flat pictures, through an element with
/// `properties`. Returns the number of formats.
pub fn check_all(properties: &str) -> usize {
    let formats = video::formats();
    for format in &formats {
        let mut compared = 0;
        let mut blur = Blur::new(properties);
        for (i, setting) in settings().iter().enumerate() {
            video::set(&blur.element, &setting.properties());
            for (k, (width, height)) in [(1, 1), (2, 3), (37, 23), (66, 15)].into_iter().enumerate() {
                let info = video::info(*format, width, height);
                blur.caps(&info);
                let mut noise = Noise(u64::from(width) + i as u64);
                let flat = (i + k) % 4 == 3;
                let mut fill = || if flat { 0x5a } else { noise.next() as u8 };
                let input = buffer(&info, [0, 20][(i + k) % 2], &mut fill);
                let output = blur.push(input.copy_deep().unwrap());
                compared += compare(&info, setting, 1, &input, &output);
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
            let mut blur = Blur::with(&format!("{properties} {}", setting.properties()), &info);
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
