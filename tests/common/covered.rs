//! Frames that the element covers: buffers of noise with padding between their rows, what they must become, and the
//! comparison of every byte.

use super::borrowed::Borrowing;
use gst_video::{VideoFormat, VideoInfo, VideoRegionOfInterestMeta};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::element::format::formats as layouts;
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::PlaneLayout;
use gstcudagaussblur::filter::regions::Rect;

use super::pictures::{Picture, pitch, strongest};

pub fn info(format: VideoFormat, [width, height]: [u32; 2]) -> VideoInfo {
    super::video::info(format, width, height)
}

pub fn noise(info: &VideoInfo, seed: u64) -> Picture {
    Picture::new(&layouts::planes(info, false).unwrap(), seed)
}

/// A buffer with the bytes of a picture, whose GstVideoMeta has its pitches.
pub fn buffer(info: &VideoInfo, picture: &Picture) -> gst::Buffer {
    let (mut offsets, mut strides, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for (layout, plane) in picture.planes.iter().zip(&picture.bytes) {
        offsets.push(bytes.len());
        strides.push(pitch(layout) as i32);
        bytes.extend_from_slice(plane);
        bytes.resize(bytes.len().next_multiple_of(64), 0x5a);
    }
    super::video::with_meta(info, bytes, &offsets, &strides)
}

/// The bytes of every plane of a buffer, with the pitches of a picture: its own, or none between rows.
pub fn planes(info: &VideoInfo, layouts: &[PlaneLayout], buffer: &gst::Buffer) -> (bool, Vec<Vec<u8>>) {
    let map = buffer.map_readable().unwrap();
    let (offsets, strides) = super::video::offsets_and_strides(info, buffer);
    let is_padded = strides[0] == pitch(&layouts[0]) as i32;
    assert!(is_padded || strides == info.stride(), "strides of neither");
    let plane = |(index, layout): (usize, &PlaneLayout)| {
        let len = (layout.height as usize - 1) * strides[index] as usize + layout.row_bytes();
        map[offsets[index]..][..len].to_vec()
    };
    (is_padded, layouts.iter().enumerate().map(plane).collect())
}

/// Compares every byte of a frame: inside the rectangles with `covered`, outside with the source, and where `is_padded` between
/// the rows too. Returns what is wrong.
pub fn difference(
    info: &VideoInfo,
    out: &gst::Buffer,
    source: &Picture,
    covered: &Picture,
    rects: &[Rect],
    must_pad: bool,
) -> Option<String> {
    let regions: Vec<(Rect, f64)> = rects.iter().map(|rect| (*rect, 1.0)).collect();
    let (is_padded, got) = planes(info, &source.planes, out);
    if must_pad && !is_padded {
        return Some("the output has other pitches".to_owned());
    }
    for (plane, layout) in source.planes.iter().enumerate() {
        let is_covered = strongest(&source.planes, plane, &regions);
        let (pitch, row_bytes) = (pitch(layout), layout.row_bytes());
        let stride = if is_padded { pitch } else { info.stride()[plane] as usize };
        for at in (0..is_covered.len()).filter(|at| is_padded || at % pitch < row_bytes) {
            let (row, byte) = (at / pitch, at % pitch);
            let want = if is_covered[at] > 0.0 { covered.bytes[plane][at] } else { source.bytes[plane][at] };
            let found = got[plane][row * stride + byte];
            if found != want {
                let format = info.format();
                return Some(format!("{format:?} plane {plane} row {row} byte {byte} is {found}, not {want}"));
            }
        }
    }
    None
}

/// The full-frame blur of a picture.
pub fn blurred(picture: &Picture, sigma: f64) -> Picture {
    let mut out = picture.clone();
    let params = BlurParams::new(sigma, 0).unwrap();
    Engine::with_cpu(CpuEngine::new()).blur(params, &picture.frame(), &mut out.frame_mut()).unwrap();
    out
}

pub fn with_roi(mut buffer: gst::Buffer, label: &str, rect: (u32, u32, u32, u32)) -> gst::Buffer {
    VideoRegionOfInterestMeta::add(buffer.make_mut(), label, rect);
    buffer
}
