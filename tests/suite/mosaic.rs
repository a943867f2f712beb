//! Mosaic and fill: every sample against a plain rule, in every kind of frame.

use std::collections::BTreeMap;

use crate::common::Noise;
use crate::common::pictures::{Picture, kinds, random_rect, rect, resized, strongest};
use crate::common::soft_oracle::{Sample, byte_of, samples, store, values};
use gstcudagaussblur::engine::Hide;
use gstcudagaussblur::filter::frame::{PlaneLayout, SampleLayout};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::regions::{Area, Rect};

/// The expected picture: `value` of each covered sample, with the number of the region that covers it, the last one of several.
fn expected(picture: &Picture, rects: &[Rect], value: impl Fn(usize, usize, &Sample) -> u16) -> Picture {
    let mut out = picture.clone();
    let rects: Vec<(Rect, f64)> = rects.iter().zip(1..).map(|(rect, number)| (*rect, f64::from(number))).collect();
    for (plane, layout) in picture.planes.iter().enumerate() {
        let strongest = strongest(&picture.planes, plane, &rects);
        for channel in samples(&picture.planes, plane) {
            for (i, sample) in channel.iter().enumerate() {
                let number = strongest[byte_of(layout, sample.index)] as usize;
                // The luma beyond an odd width of packed 4:2:2 becomes what the last pixel becomes.
                let like = if sample.is_surplus { &channel[i - 1] } else { sample };
                if number > 0 {
                    store(layout, &mut out.bytes[plane], sample.index, value(number - 1, plane, like));
                }
            }
        }
    }
    out
}

#[track_caller]
fn check(hide: Hide, picture: &Picture, expected: &Picture) {
    let (what, mut out) = (format!("{hide:?}"), picture.clone());
    out.hide(hide).unwrap();
    out.assert_is(expected, || what);
}

fn random_rects(noise: &mut Noise, size: [u32; 2], most: u32) -> Vec<Rect> {
    (0..=noise.below(most)).map(|_| random_rect(noise, size)).collect()
}

const SIZES: [[u32; 2]; 6] = [[1, 1], [2, 3], [35, 22], [66, 34], [41, 27], [17, 2]];

#[test]
fn fill_writes_what_rectangles_cover() {
    let mut noise = Noise(3);
    for (turn, planes) in kinds().iter().enumerate() {
        for size in [SIZES[turn % 6], [41, 27]] {
            let picture = Picture::new(&resized(planes, size), noise.next());
            let values = picture.planes.iter().map(|layout| {
                let is_short = |c: usize| layout.sample_layout == SampleLayout::Packed1010102 && c == 3;
                let depth = |c: usize| if is_short(c) { 2 } else { layout.depth };
                [0, 1, 2, 3].map(|c| (noise.next() & ((1 << depth(c)) - 1)) as u16)
            });
            let values: Vec<[u16; 4]> = values.collect();
            let rects = random_rects(&mut noise, size, 3);
            let expected = expected(&picture, &rects, |_, plane, sample| values[plane][sample.channel]);
            check(Hide::Fill { rects, values }, &picture, &expected);
        }
    }
}

/// A region, its object, and the cells of that: where one begins, and their side.
struct Region {
    rect: Rect,
    object: Area,
    corner: [i64; 2],
    side: i64,
}

impl Region {
    /// Of an object with so many cells along its shorter side, smaller than the region or only partly in the picture.
    fn random(noise: &mut Noise, rect: Rect, cells: u32) -> Self {
        let side = 8 + (noise.next() % 9) as i64;
        // In quarters of a sample. The longer side does not matter for the size of the cells, nor what is left over when the shorter
        // is divided.
        let lengths = [-1, (noise.next() % 80) as i64].map(|more| 4 * side * i64::from(cells) + more);
        let first = [rect.x(), rect.y()].map(|edge| i64::from(edge) + noise.next() as i64 % 7);
        // Half of what the cells are longer than the object is in front of it, and a cell begins at a whole sample.
        let corner = [0, 1].map(|axis| {
            let of_cells = (lengths[axis] + 4 * side - 1) / (4 * side) * 4 * side;
            (8 * first[axis] - (of_cells - lengths[axis])).div_euclid(8)
        });
        let [width, height] = lengths.map(|quarters| quarters as f64 / 4.0);
        Self { rect, object: Area::from_corner(first[0] as f64, first[1] as f64, width, height), corner, side }
    }

    fn cell(&self, sample: &Sample) -> [i64; 2] {
        [0, 1].map(|axis| (sample.luma[axis] - self.corner[axis]).div_euclid(self.side))
    }
}

#[test]
fn cells_have_the_mean_of_their_samples() {
    let mut noise = Noise(5);
    for (turn, planes) in kinds().iter().enumerate() {
        for (size, cells) in [(SIZES[turn % 6], 3), ([41, 27], 1 + turn as u32 % 7), ([66, 34], 5)] {
            let picture = Picture::new(&resized(planes, size), noise.next());
            let mut regions: Vec<Region> = Vec::new();
            for rect in random_rects(&mut noise, size, 3) {
                // Where two have cells of one size the test would have to know which counts.
                let region = Region::random(&mut noise, rect, cells);
                regions.extend(Some(region).filter(|one| regions.iter().all(|other| one.side != other.side)));
            }
            regions.sort_by_key(|region| region.side);
            let key = |region: usize, plane: usize, sample: &Sample| {
                (region, plane, sample.channel, sample.field, regions[region].cell(sample))
            };
            // The sum and the number of samples.
            let mut sums: BTreeMap<_, [u64; 2]> = BTreeMap::new();
            for (plane, layout) in picture.planes.iter().enumerate() {
                let values = values(layout, &picture.bytes[plane]);
                let samples = samples(&picture.planes, plane).into_iter().flatten();
                for sample in samples.filter(|sample| !sample.is_surplus) {
                    for region in 0..regions.len() {
                        let [sum, count] = sums.entry(key(region, plane, &sample)).or_default();
                        *sum += u64::from(values[sample.index]);
                        *count += 1;
                    }
                }
            }
            let rects: Vec<Rect> = regions.iter().map(|region| region.rect).collect();
            let expected = expected(&picture, &rects, |region, plane, sample| {
                let [sum, count] = sums[&key(region, plane, sample)];
                (sum as f64 / count as f64 + 0.5) as u16
            });
            let region = |region: &Region| MosaicRegion::new(region.rect, region.object, cells);
            let all: Vec<MosaicRegion> = regions.iter().map(region).collect();
            let in_another_order = all.iter().rev().chain(all.iter().rev()).copied().collect();
            check(Hide::Mosaic(all), &picture, &expected);
            check(Hide::Mosaic(in_another_order), &picture, &expected);
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
        let values = values(&picture.planes[0], &out.bytes[0]);
        assert!(values.iter().all(|value| *value == values[0]), "{left} {top} {right} {bottom}");
    }
}
