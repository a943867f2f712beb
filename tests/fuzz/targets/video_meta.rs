// SPDX-License-Identifier: MPL-2.0
//! Any buffer with any GstVideoMeta, through the element: a frame leaves exactly if every row of every plane is in its memory, and
//! then nothing but samples is written.
#![no_main]

use arbitrary::Arbitrary;
use cudagaussblur_fuzz::{Number, add_meta, push};
use gst_video::{VideoFormat, VideoInfo, VideoMeta};
use gstcudagaussblur::element::format::formats;

#[derive(Arbitrary, Debug)]
struct Meta {
    format: Option<u8>,
    size: [Number; 2],
    planes: Number,
    offsets: [Number; 4],
    strides: [Number; 4],
}

#[derive(Arbitrary, Debug)]
struct Input {
    format: u8,
    size: [u8; 2],
    meta: Option<Meta>,
    bytes: Number,
    /// Where a second memory begins.
    split: Option<u16>,
    is_in_place: bool,
    sample: u8,
}

/// This GStreamer may not know all formats.
fn format(index: u8) -> VideoFormat {
    let known = formats::names().map(VideoFormat::from_string);
    let known: Vec<VideoFormat> = known.filter(|format| *format != VideoFormat::Unknown).collect();
    known[usize::from(index) % known.len()]
}

/// The first byte of each plane, and those of its rows, in bytes of the buffer.
type Rows = Vec<(i128, i128, i128, i128)>;

fn is_sample(rows: &Rows, byte: i128) -> bool {
    rows.iter().any(|(offset, stride, height, bytes)| {
        let at = byte - offset;
        at >= 0 && at / stride < *height && at % stride < *bytes
    })
}

fn check(input: &Input, info: &VideoInfo) {
    let right = |values: &[i32]| [0, 1, 2, 3].map(|plane| values.get(plane).copied().unwrap_or(0));
    let (mut offsets, mut strides) = ([0; 4], right(info.stride()));
    offsets.iter_mut().zip(info.offset()).for_each(|(offset, right)| *offset = *right);
    let count = input.bytes.get(info.size() as i64).clamp(0, 8192) as usize;
    let bytes = vec![input.sample; count];
    let split = input.split.map_or(count, |split| usize::from(split).min(count));
    // Boxes have no spare capacity.
    let mut buffer = gst::Buffer::new();
    for part in [&bytes[..split], &bytes[split..]].into_iter().filter(|part| !part.is_empty()) {
        let memory = gst::Memory::from_mut_slice(part.to_vec().into_boxed_slice());
        buffer.make_mut().append_memory(memory);
    }
    let mut describes = true;
    if let Some(meta) = &input.meta {
        let of = meta.format.map_or(info.format(), format);
        let size = [0, 1].map(|axis| meta.size[axis].get([info.width(), info.height()][axis].into()) as u32);
        let planes = meta.planes.get(info.n_planes().into()) as u32;
        offsets = [0, 1, 2, 3].map(|plane| meta.offsets[plane].get(offsets[plane] as i64) as usize);
        strides = [0, 1, 2, 3].map(|plane| meta.strides[plane].get(strides[plane].into()) as i32);
        describes = of == info.format() && size[0] >= info.width() && size[1] >= info.height();
        describes &= planes == info.n_planes();
        add_meta(&mut buffer, of, size, planes, offsets, strides);
    } else {
        describes &= count >= info.size();
    }
    let planes = formats::planes(info, false).expect("a format of the list");
    let rows: Rows = planes
        .iter()
        .enumerate()
        .map(|(plane, layout)| {
            (offsets[plane] as i128, strides[plane].into(), layout.height.into(), layout.row_bytes() as i128)
        })
        .collect();
    // Without a meta the memories are merged.
    let memory = |offset: i128| {
        let is_first = offset < split as i128;
        if input.meta.is_some() && is_first {
            0..split as i128
        } else if input.meta.is_some() {
            split as i128..count as i128
        } else {
            0..count as i128
        }
    };
    let end = |(offset, stride, height, bytes): &(i128, i128, i128, i128)| offset + (height - 1) * stride + bytes;
    let holds = |plane: &(i128, i128, i128, i128)| plane.1 >= plane.3 && end(plane) <= memory(plane.0).end;
    let is_readable = describes && rows.iter().all(holds);
    let is_apart = (0..rows.len()).all(|i| (0..i).all(|j| end(&rows[i]) <= rows[j].0 || end(&rows[j]) <= rows[i].0));
    let properties = if input.is_in_place {
        "region-mode=inside region-sources=zones cover=fill zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5]>"
    } else {
        "sigma=1"
    };
    // To map two memories as one would merge them.
    let address = if split == count { buffer.map_readable().ok().map(|map| map.as_ptr()) } else { None };
    let output = push(properties, info, buffer);
    assert_eq!(output.is_ok(), is_readable && (is_apart || !input.is_in_place), "{info:?} {rows:?}: {input:?}");
    let Ok(output) = output else { return };
    let map = output.map_readable().expect("the output is readable");
    if input.is_in_place && address == Some(map.as_ptr()) {
        let is_kept = |(at, byte): (usize, &u8)| *byte == input.sample || is_sample(&rows, at as i128);
        assert!(map.iter().enumerate().all(is_kept), "more than samples is written: {input:?}");
    } else if !input.is_in_place && planes.iter().all(|layout| layout.depth == 8) {
        // A flat picture stays as it is.
        let meta = output.meta::<VideoMeta>();
        let (offsets, strides) =
            meta.as_ref().map_or((info.offset(), info.stride()), |meta| (meta.offset(), meta.stride()));
        for (plane, layout) in planes.iter().enumerate() {
            let rows = map[offsets[plane]..].chunks(strides[plane] as usize).take(layout.height as usize);
            assert!(rows.flat_map(|row| &row[..layout.row_bytes()]).all(|byte| *byte == input.sample), "{input:?}");
        }
    }
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    cudagaussblur_fuzz::init();
    let [width, height] = input.size.map(|side| 1 + u32::from(side % 20));
    let info = VideoInfo::builder(format(input.format), width, height).fps((25, 1)).build();
    check(&input, &info.expect("a small frame"));
});
