// SPDX-License-Identifier: MPL-2.0
//! Any mask in any buffer: it is read exactly if all of its rows are in the buffer. Images of region ids are read under the same
//! condition, and each id has its extent.
#![no_main]

use std::collections::BTreeSet;

use arbitrary::Arbitrary;
use cudagaussblur_fuzz::Number;
use gst_video::VideoFormat;
use gstcudagaussblur::filter::regions::Area;
use gstcudagaussblur::filter::weights::Mask;
use gstcudagaussblur::regions::detection::Labels;
use gstcudagaussblur::regions::masks::{IdImage, MaskReader};

const FORMATS: [(VideoFormat, &str); 4] = [
    (VideoFormat::Gray8, "GRAY8"),
    (VideoFormat::Gray16Le, "GRAY16_LE"),
    (VideoFormat::Gray16Be, "GRAY16_BE"),
    (VideoFormat::I420, "I420"),
];

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    format: u8,
    size: [Number; 2],
    /// Format and size, if they are others; offset and stride.
    meta: Option<(Option<(u8, [Number; 2])>, Number, Number)>,
    bytes: &'a [u8],
    /// Each followed by so many zeros.
    zeros: u8,
    corner: [i16; 2],
    sides: [u16; 2],
}

/// The rows of an image of so many bytes a sample, if all are in the bytes.
fn rows(bytes: &[u8], each: i128, [columns, rows]: [i128; 2], offset: i128, stride: i128) -> Option<Vec<&[u8]>> {
    let is_side = |side: i128| (1..=4096).contains(&side);
    let end = offset + (rows - 1) * stride + columns * each;
    let fits =
        is_side(columns) && is_side(rows) && offset >= 0 && stride >= columns * each && end <= bytes.len() as i128;
    let row = |y: i128| &bytes[(offset + y * stride) as usize..][..(columns * each) as usize];
    fits.then(|| (0..rows).map(row).collect())
}

fn check_ids(buffer: &gst::Buffer, rows: Option<Vec<&[u8]>>, format: VideoFormat, area: Area) {
    let image = IdImage::of_buffer(buffer, area, false);
    let is_gray = format != VideoFormat::I420;
    assert_eq!(image.is_some(), rows.is_some() && is_gray && !area.is_empty());
    let (Some(image), Some(rows)) = (image, rows) else { return };
    let id = |bytes: &[u8]| match format {
        VideoFormat::Gray8 => u16::from(bytes[0]),
        VideoFormat::Gray16Le => u16::from_le_bytes([bytes[0], bytes[1]]),
        _ => u16::from_be_bytes([bytes[0], bytes[1]]),
    };
    let each = if format == VideoFormat::Gray8 { 1 } else { 2 };
    let expected: BTreeSet<u16> = rows.iter().flat_map(|row| row.chunks(each)).map(id).collect();
    assert!(image.present().eq(expected.iter().copied()));
    let labels = Labels::default();
    let mut masks = MaskReader::new(&labels);
    for wanted in expected.iter().take(4) {
        let of_id = image.area_of(*wanted).expect("it has a sample");
        assert_eq!(of_id.union(area), area, "{wanted}");
        let part = masks.part(&image, |id| id == *wanted, None).expect("few samples").expect("it has a sample");
        let object = masks.unite(vec![part]).and_then(|mask| mask.object()).expect("a mask of an object");
        let [one, other] = [of_id, object].map(|area| [area.left, area.top, area.right, area.bottom]);
        assert!(one.iter().zip(other).all(|(one, other)| (one - other).abs() < 1e-3), "{one:?} {other:?}");
    }
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    cudagaussblur_fuzz::init();
    let (format, name) = FORMATS[usize::from(input.format) % FORMATS.len()];
    let size = [0, 1].map(|axis| input.size[axis].get(8) as i32);
    let caps = gst::Caps::builder("video/x-raw").field("format", name).field("width", size[0]).field("height", size[1]);
    let bytes: Vec<u8> = input
        .bytes
        .iter()
        .flat_map(|byte| [*byte, 0])
        .flat_map(|byte| std::iter::repeat_n(byte, if byte == 0 { usize::from(input.zeros % 8) } else { 1 }))
        .collect();
    // A box has no spare capacity.
    let mut buffer = gst::Buffer::from_mut_slice(bytes.clone().into_boxed_slice());
    let mut layout = (format, size.map(i128::from), 0, (i128::from(size[0]) + 3) / 4 * 4);
    let mut is_same = true;
    if let Some((other, offset, stride)) = &input.meta {
        let (meta_format, meta_size) = other.as_ref().map_or((format, size), |(format, size)| {
            (FORMATS[usize::from(*format) % FORMATS.len()].0, [0, 1].map(|axis| size[axis].get(8) as i32))
        });
        let right = (i64::from(meta_size[0]) + 3) / 4 * 4;
        let (offset, stride) = (offset.get(0) as usize, stride.get(right) as i32);
        let unsigned = meta_size.map(|side| side as u32);
        cudagaussblur_fuzz::add_meta(&mut buffer, meta_format, unsigned, 1, [offset; 4], [stride; 4]);
        is_same = (meta_format, meta_size) == (format, size);
        layout = (meta_format, unsigned.map(i128::from), offset as i128, stride.into());
    }
    let sides = [0, 1].map(|axis| f64::from(input.sides[axis]) / 2.0);
    let [x, y] = input.corner.map(|edge| f64::from(edge) / 2.0);
    let area = Area::from_corner(x, y, sides[0], sides[1]);
    let (actual, size, offset, stride) = layout;
    let each = if actual == VideoFormat::Gray8 { 1 } else { 2 };
    let all = rows(&bytes, each, size, offset, stride);
    if input.meta.is_some() {
        check_ids(&buffer, all.clone(), actual, area);
    }
    let sample = gst::Sample::builder().buffer(&buffer).caps(&caps.build()).build();
    let labels = Labels::default();
    let mask = MaskReader::new(&labels).of_sample(&sample, area);
    let is_object = |rows: &Vec<&[u8]>| rows.iter().copied().flatten().any(|sample| *sample >= 128);
    let expected = all.filter(|rows| is_same && format == VideoFormat::Gray8 && !area.is_empty() && is_object(rows));
    let expected = expected.and_then(|rows| Mask::new(rows[0].len() as u32, rows.len() as u32, rows.concat(), area));
    assert_eq!(mask, expected, "{input:?}");
});
