//! Mosaic and fill: every sample against a plain rule, in every kind of frame.

use std::collections::BTreeMap;

use crate::common::Noise;
use crate::common::pictures::{Picture, kinds, pitch, rect, resized, strongest};
use gstcudagaussblur::engine::Hide;
use gstcudagaussblur::filter::frame::{PlaneLayout, SampleLayout, Split};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::regions::{Area, Rect};

/// One sample: its first byte in the plane, its channel, and the luma sample that it begins with.
struct Sample {
    byte: usize,
    channel: usize,
    luma: [u32; 2],
}

/// The samples of a plane, without those beyond an odd width.
fn samples(planes: &[PlaneLayout], plane: usize) -> Vec<Sample> {
    let (luma, layout) = (&planes[0], &planes[plane]);
    let times = [0, 1].map(|axis| (luma.sigma_scale[axis] / layout.sigma_scale[axis]).round() as u32);
    let fields = 1 + u32::from(layout.split.alternates());
    let mut samples = Vec::new();
    for y in 0..layout.height {
        let row = (y / fields * times[1]) * fields + y % fields;
        let start = y as usize * pitch(layout);
        for i in 0..layout.row_samples() {
            let channels = usize::from(layout.channels);
            let (unit, c) = (i / channels, i % channels);
            let (byte, channel, column) = match layout.sample_layout {
                SampleLayout::Packed1010102 => (4 * unit, c, unit),
                SampleLayout::Yuv422 { luma } if c % 2 == usize::from(luma) => {
                    (i * layout.sample_bytes(), usize::from(luma), i / 2)
                }
                SampleLayout::Yuv422 { .. } => (i * layout.sample_bytes(), c, 2 * unit),
                _ => (i * layout.sample_bytes(), c, unit),
            };
            if column < layout.width as usize {
                samples.push(Sample { byte: start + byte, channel, luma: [column as u32 * times[0], row] });
            }
        }
    }
    samples
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes[..4].try_into().unwrap())
}

fn load(layout: &PlaneLayout, bytes: &[u8], sample: &Sample) -> u32 {
    let at = &bytes[sample.byte..];
    match layout.sample_layout {
        SampleLayout::Packed1010102 => word(at) >> (10 * sample.channel) & [1023, 1023, 1023, 3][sample.channel],
        _ if layout.depth == 8 => at[0].into(),
        _ => u32::from(u16::from_ne_bytes([at[0], at[1]]) >> layout.shift()) & ((1 << layout.depth) - 1),
    }
}

fn store(layout: &PlaneLayout, bytes: &mut [u8], sample: &Sample, value: u32) {
    let at = &mut bytes[sample.byte..];
    match layout.sample_layout {
        SampleLayout::Packed1010102 => {
            let shift = 10 * sample.channel;
            let mask = [1023, 1023, 1023, 3][sample.channel] << shift;
            let word = word(at) & !mask | value << shift;
            at[..4].copy_from_slice(&word.to_ne_bytes());
        }
        _ if layout.depth == 8 => at[0] = value as u8,
        _ => at[..2].copy_from_slice(&((value << layout.shift()) as u16).to_ne_bytes()),
    }
}

/// The luma beyond an odd width of packed 4:2:2: each of its bytes, and that of the last pixel.
fn beyond(layout: &PlaneLayout) -> Vec<[usize; 2]> {
    let SampleLayout::Yuv422 { luma } = layout.sample_layout else { return Vec::new() };
    let bytes = layout.sample_bytes();
    let last = (2 * layout.width as usize - 2 + usize::from(luma)) * bytes;
    let rows = (0..layout.height as usize).filter(|_| layout.width % 2 == 1).map(|y| y * pitch(layout));
    rows.flat_map(|start| (0..bytes).map(move |byte| start + last + byte)).map(|at| [at + 2 * bytes, at]).collect()
}

/// The expected picture: `value` of the strength of a covered sample, which is the number of its region from 1 on.
fn expected(picture: &Picture, rects: &[Rect], value: impl Fn(usize, usize, &Sample) -> u32) -> Picture {
    let mut out = picture.clone();
    let rects: Vec<(Rect, f64)> = rects.iter().enumerate().map(|(i, rect)| (*rect, i as f64 + 1.0)).collect();
    for (plane, layout) in picture.planes.iter().enumerate() {
        let strongest = strongest(&picture.planes, plane, &rects);
        for sample in samples(&picture.planes, plane) {
            let region = strongest[sample.byte] as usize;
            if region > 0 {
                store(layout, &mut out.bytes[plane], &sample, value(region - 1, plane, &sample));
            }
        }
        for [beyond, last] in beyond(layout) {
            if strongest[beyond] > 0.0 {
                out.bytes[plane][beyond] = out.bytes[plane][last];
            }
        }
    }
    out
}

fn random_rects(noise: &mut Noise, [width, height]: [u32; 2], most: u32) -> Vec<Rect> {
    let mut below = |end: u32| (noise.next() % u64::from(end)) as u32;
    let rects = (0..=below(most)).map(|_| {
        let [x, y] = [below(width), below(height)];
        rect(x, y, 1 + below(width - x), 1 + below(height - y))
    });
    rects.collect()
}

/// Plane, region, channel, field and cell.
type CellKey = (usize, usize, usize, u32, [i64; 2]);

const SIZES: [[u32; 2]; 6] = [[1, 1], [2, 3], [35, 22], [66, 34], [41, 27], [17, 2]];

#[test]
fn fill_writes_what_rectangles_cover() {
    let mut noise = Noise(3);
    for (turn, planes) in kinds().iter().enumerate() {
        for size in [SIZES[turn % 6], [41, 27]] {
            let picture = Picture::new(&resized(planes, size), noise.next());
            let values: Vec<[u16; 4]> = picture
                .planes
                .iter()
                .map(|layout| {
                    let tens = layout.sample_layout == SampleLayout::Packed1010102;
                    let depth = |c: usize| if tens && c == 3 { 2 } else { layout.depth };
                    [0, 1, 2, 3].map(|c| (noise.next() & ((1 << depth(c)) - 1)) as u16)
                })
                .collect();
            let rects = random_rects(&mut noise, size, 3);
            let expected = expected(&picture, &rects, |_, plane, sample| u32::from(values[plane][sample.channel]));
            let mut out = picture.clone();
            out.hide(Hide::Fill { rects: rects.clone(), values: values.clone() }).unwrap();
            assert!(out.bytes == expected.bytes, "{rects:?} of {:?}", picture.planes);
        }
    }
}

#[test]
fn cells_have_the_mean_of_their_samples() {
    let mut noise = Noise(5);
    for (turn, planes) in kinds().iter().enumerate() {
        for (size, cells) in [(SIZES[turn % 6], 3), ([41, 27], 1 + turn as u32 % 7), ([66, 34], 5)] {
            let picture = Picture::new(&resized(planes, size), noise.next());
            let mut regions: Vec<(Rect, [i64; 2], i64, Area)> = Vec::new();
            for rect in random_rects(&mut noise, size, 3) {
                let side = 8 + (noise.next() % 9) as i64;
                // The longer side does not matter for the size of the cells, nor what is left over when the shorter is divided.
                // In quarters of a sample.
                let lengths = [-1, (noise.next() % 80) as i64].map(|more| 4 * side * i64::from(cells) + more);
                // An object that is smaller than its region, or that is only partly in the picture.
                let first = [rect.x(), rect.y()].map(|edge| i64::from(edge) + noise.next() as i64 % 7);
                let [left, top] = first.map(|length| length as f64);
                let [width, height] = lengths.map(|quarters| quarters as f64 / 4.0);
                // Half of what the cells are longer than the object is in front of it, and a cell begins at a whole sample.
                let corner = [0, 1].map(|axis| {
                    let of_cells =
                        (1..).map(|cells| 4 * cells * side).find(|of_cells| *of_cells >= lengths[axis]).unwrap();
                    (8 * first[axis] - (of_cells - lengths[axis])).div_euclid(8)
                });
                // Where two have cells of one size the test would have to know which counts.
                if regions.iter().all(|(.., other, _)| *other != side) {
                    regions.push((rect, corner, side, Area::from_corner(left, top, width, height)));
                }
            }
            regions.sort_by_key(|(.., side, _)| *side);
            let cell = |region: usize, luma: [u32; 2]| {
                let (_, corner, side, _) = regions[region];
                [0, 1].map(|axis| (i64::from(luma[axis]) - corner[axis]).div_euclid(side))
            };
            // The sum and the number of samples.
            let mut sums: BTreeMap<CellKey, [u32; 2]> = BTreeMap::new();
            let field = |plane: usize, sample: &Sample| {
                let (luma, [x, y]) = (&picture.planes[0], sample.luma);
                match picture.planes[plane].split {
                    Split::Whole => 0,
                    Split::Fields | Split::Rows => y % 2,
                    Split::SideBySide => u32::from(x >= luma.width / 2),
                    Split::TopBottom => u32::from(y >= luma.height / 2),
                }
            };
            for (plane, layout) in picture.planes.iter().enumerate() {
                for sample in samples(&picture.planes, plane) {
                    for region in 0..regions.len() {
                        let key = (plane, region, sample.channel, field(plane, &sample), cell(region, sample.luma));
                        let sum = sums.entry(key).or_default();
                        sum[0] += load(layout, &picture.bytes[plane], &sample);
                        sum[1] += 1;
                    }
                }
            }
            let rects: Vec<Rect> = regions.iter().map(|(rect, ..)| *rect).collect();
            let expected = expected(&picture, &rects, |region, plane, sample| {
                let key = (plane, region, sample.channel, field(plane, sample), cell(region, sample.luma));
                let [sum, count] = sums[&key];
                (f64::from(sum) / f64::from(count) + 0.5) as u32
            });
            let region = |(rect, _, _, object): &(Rect, [i64; 2], i64, Area)| MosaicRegion::new(*rect, *object, cells);
            let mut all: Vec<MosaicRegion> = regions.iter().map(region).collect();
            let mut in_place = picture.clone();
            in_place.hide(Hide::Mosaic(all.clone())).unwrap();
            for (plane, (got, want)) in in_place.bytes.iter().zip(&expected.bytes).enumerate() {
                let place = got.iter().zip(want).position(|(got, want)| got != want);
                let place = place.map(|i| (i % pitch(&picture.planes[plane]), i / pitch(&picture.planes[plane])));
                assert!(got == want, "plane {plane} at {place:?}: {all:?} of {:?}", picture.planes);
            }
            all.reverse();
            all.extend(all.clone());
            let mut out = picture.clone();
            out.hide(Hide::Mosaic(all)).unwrap();
            assert!(out.bytes == expected.bytes, "in another order");
        }
    }
}

/// An object whose size is not known must not be shown.
#[test]
fn objects_without_a_size_have_one_cell() {
    let picture = Picture::new(&[PlaneLayout::new(40, 30, 1, 8)], 1);
    let nan = f64::NAN;
    for (left, top, right, bottom) in [
        (nan, nan, nan, nan),
        (f64::NEG_INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::INFINITY),
        (0.0, 0.0, 0.0, 5.0),
        (0.0, 0.0, -5.0, -5.0),
    ] {
        let mut out = picture.clone();
        let region = MosaicRegion::new(rect(0, 0, 40, 30), Area { left, top, right, bottom }, 6);
        out.hide(Hide::Mosaic(vec![region])).unwrap();
        let rows = out.bytes[0].chunks(pitch(&picture.planes[0]));
        let values: Vec<u8> = rows.flat_map(|row| row[..40].iter().copied()).collect();
        assert!(values.iter().all(|value| *value == values[0]), "{left} {top} {right} {bottom}");
    }
}

#[test]
fn invalid_frames_are_rejected() {
    let mut picture = Picture::new(&[PlaneLayout::new(40, 30, 1, 8)], 1);
    picture.bytes[0].pop();
    let before = picture.bytes.clone();
    let region = MosaicRegion::new(rect(0, 0, 40, 30), Area::from_corner(0.0, 0.0, 40.0, 30.0), 6);
    assert!(picture.hide(Hide::Mosaic(vec![region])).is_err());
    assert!(picture.hide(Hide::Fill { rects: vec![rect(0, 0, 40, 30)], values: vec![[0; 4]] }).is_err());
    assert!(picture.bytes == before);
}
