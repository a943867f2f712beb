//! Regions of frames: what they cover has the bytes of the full-frame blur, and nothing else changes.

mod common;

use std::collections::BTreeMap;

use common::{Noise, cases};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::engine::{BlurCover, BlurRegion, Engine};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::crop::CropGeometry;
use gstcudagaussblur::filter::frame::{Frame, FrameMut, Plane, PlaneLayout, SampleLayout};
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Selection};
use gstcudagaussblur::filter::regions::Rect;

/// Bytes between the rows of every plane.
const PADDING: usize = 13;

fn rect(x: u32, y: u32, width: u32, height: u32) -> Rect {
    Rect::new(x, y, width, height).unwrap()
}

fn params(sigma: f64) -> BlurParams {
    BlurParams::new(sigma, 0).unwrap()
}

fn pitch(layout: &PlaneLayout) -> usize {
    layout.row_bytes() + PADDING
}

/// The planes of a picture, with noise in all bytes, padding bits and padding between rows included.
#[derive(Clone)]
struct Picture {
    planes: Vec<PlaneLayout>,
    bytes: Vec<Vec<u8>>,
}

impl Picture {
    fn new(planes: &[PlaneLayout], seed: u64) -> Self {
        let mut noise = Noise(seed);
        let plane = |layout: &PlaneLayout| {
            let mut bytes = noise.bytes(pitch(layout) * layout.height as usize - PADDING);
            let has_value = (1_u32 << layout.depth) - 1;
            if layout.sample_bytes() == 2 && layout.sample_layout == SampleLayout::LsbAligned {
                let rows = bytes.chunks_mut(pitch(layout)).map(|row| &mut row[..layout.row_bytes()]);
                rows.flat_map(|row| row.chunks_mut(2)).for_each(|sample| {
                    let value = u16::from_ne_bytes([sample[0], sample[1]]) & has_value as u16;
                    sample.copy_from_slice(&value.to_ne_bytes());
                });
            }
            bytes
        };
        Self { planes: planes.to_vec(), bytes: planes.iter().map(plane).collect() }
    }

    fn frame(&self) -> Frame<'_> {
        let planes = self.planes.iter().zip(&self.bytes);
        planes.map(|(layout, data)| Plane { layout: *layout, pitch: pitch(layout), data: &data[..] }).collect()
    }

    fn frame_mut(&mut self) -> FrameMut<'_> {
        let planes = self.planes.iter().zip(&mut self.bytes);
        planes.map(|(layout, data)| Plane { layout: *layout, pitch: pitch(layout), data: &mut data[..] }).collect()
    }

    fn blurred(&self, engine: &mut Engine, options: Options) -> Self {
        let mut out = self.clone();
        assert!(engine.blur(options, &self.frame(), &mut out.frame_mut()).unwrap().is_none());
        out
    }
}

/// For every byte of a plane the largest σ that covers it, 0 for none: sample by sample, from the luma samples that each
/// stands for.
fn strongest(planes: &[PlaneLayout], plane: usize, regions: &[BlurRegion]) -> Vec<f64> {
    let (luma, layout) = (&planes[0], &planes[plane]);
    let times = [0, 1].map(|axis| (luma.sigma_scale[axis] / layout.sigma_scale[axis]).round() as u32);
    let (fields, size) = (1 + u32::from(luma.interlaced), [luma.width, luma.height]);
    let is_packed = matches!(layout.sample_layout, SampleLayout::Yuv422 { .. });
    // The luma rows of a row, and the luma columns of a column of samples that stand for `each` of them.
    let rows = |y: u32| -> Vec<u32> {
        if layout.height == 1 {
            return (0..size[1]).collect();
        }
        let (parity, row) = (y % fields, y / fields);
        let is_last = y + fields >= layout.height;
        let of_field = (0..size[1]).filter(|y| y % fields == parity);
        of_field.filter(|y| y / fields / times[1] == row || is_last && y / fields / times[1] > row).collect()
    };
    let columns = |x: u32, each: u32| -> Vec<u32> { (x * each..((x + 1) * each).min(size[0])).collect() };
    let covers = |rows: &[u32], columns: &[u32]| {
        let hits = |one: &&BlurRegion| {
            let rect = one.rect;
            rows.iter().any(|y| (rect.y()..rect.bottom()).contains(y))
                && columns.iter().any(|x| (rect.x()..rect.right()).contains(x))
        };
        regions.iter().filter(hits).map(|one| one.params.sigma()).fold(0.0, f64::max)
    };
    let mut bytes = Vec::new();
    for y in 0..layout.height {
        let rows = rows(y);
        for unit in 0..layout.row_pixels() as u32 {
            match layout.sample_layout {
                SampleLayout::Yuv422 { luma } => {
                    for byte in 0..4 {
                        let pixel = 2 * unit + byte / 2;
                        // The luma beyond an odd width belongs to the last pixel.
                        let columns = match byte % 2 == u32::from(luma) {
                            true => vec![pixel.min(size[0] - 1)],
                            false => columns(unit, 2),
                        };
                        bytes.push(covers(&rows, &columns));
                    }
                }
                _ => {
                    let strongest = covers(&rows, &columns(unit, times[0]));
                    bytes.extend(std::iter::repeat_n(strongest, layout.pixel_bytes()));
                }
            }
        }
        bytes.extend([0.0; PADDING]);
    }
    assert!(!is_packed || times == [1, 1]);
    bytes.truncate(bytes.len() - PADDING);
    bytes
}

/// Covers regions of a picture in several ways, and compares every byte with the full-frame blurs.
fn check(engine: &mut Engine, picture: &Picture, cover: &BlurCover) {
    let mut blurs: BTreeMap<u64, Picture> = BTreeMap::new();
    for region in &cover.regions {
        let options = Options { params: region.params, planes: cover.planes, alpha: cover.alpha };
        let sigma = region.params.sigma();
        blurs.entry(sigma.to_bits()).or_insert_with(|| picture.blurred(engine, options));
    }
    let mut expected = picture.clone();
    for (plane, bytes) in expected.bytes.iter_mut().enumerate() {
        for (i, sigma) in strongest(&picture.planes, plane, &cover.regions).into_iter().enumerate() {
            if sigma > 0.0 {
                bytes[i] = blurs[&sigma.to_bits()].bytes[plane][i];
            }
        }
    }
    let compare = |what: &str, got: &Picture| {
        for (plane, (got, want)) in got.bytes.iter().zip(&expected.bytes).enumerate() {
            let differing: Vec<usize> = (0..want.len()).filter(|i| got[*i] != want[*i]).collect();
            let pitch = pitch(&picture.planes[plane]);
            let place = differing.first().map(|i| (i % pitch, i / pitch));
            assert!(
                differing.is_empty(),
                "{what}: {} bytes of plane {plane} differ, the first at {place:?}: {cover:?} of {:?}",
                differing.len(),
                picture.planes
            );
        }
    };
    let mut out = picture.clone();
    assert!(engine.cover(cover, &picture.frame(), &mut out.frame_mut()).unwrap().is_none());
    compare("out of place", &out);
    let mut in_place = picture.clone();
    assert!(engine.cover_in_place(cover, &mut in_place.frame_mut()).unwrap().is_none());
    compare("in place", &in_place);
    let mut other = cover.clone();
    other.regions.reverse();
    other.regions.extend(cover.regions.clone());
    let mut again = picture.clone();
    engine.cover_in_place(&other, &mut again.frame_mut()).unwrap();
    compare("in another order", &again);
}

/// Every kind of frame in the case table, by what a crop depends on.
fn kinds() -> Vec<Vec<PlaneLayout>> {
    let mut kinds: BTreeMap<String, Vec<PlaneLayout>> = BTreeMap::new();
    for case in cases::all() {
        if case.planes[0].sigma_scale == [1.0; 2] {
            let anywhere = case.planes.iter().map(|layout| PlaneLayout { width: 0, height: 0, ..*layout });
            kinds.entry(format!("{:?}", anywhere.collect::<Vec<_>>())).or_insert(case.planes);
        }
    }
    kinds.into_values().collect()
}

/// The same planes of a picture of this size.
fn resized(planes: &[PlaneLayout], [width, height]: [u32; 2]) -> Vec<PlaneLayout> {
    let side = |pixels: u32, scale: f64| (f64::from(pixels) * scale).ceil() as u32;
    let plane = |layout: &PlaneLayout| PlaneLayout {
        width: side(width, layout.sigma_scale[0]),
        height: side(height, layout.sigma_scale[1]),
        ..*layout
    };
    planes.iter().map(plane).collect()
}

fn cover(options: (Selection, AlphaMode), regions: &[(Rect, f64)]) -> BlurCover {
    let region = |(rect, sigma): &(Rect, f64)| BlurRegion { rect: *rect, params: params(*sigma) };
    BlurCover { planes: options.0, alpha: options.1, regions: regions.iter().map(region).collect() }
}

/// The corners and edges, single samples, and neighbours of them.
fn rects([width, height]: [u32; 2]) -> Vec<Rect> {
    let [x, y] = [width / 2, height / 3];
    vec![
        rect(0, 0, 1, 1),
        rect(width - 1, height - 1, 1, 1),
        rect(width - 3, 0, 3, 5.min(height)),
        rect(0, height - 2, 7, 2),
        rect(x, y, 9, 7),
        rect(x + 1, y + 1, 8, 6),
        rect(x - 1, y, 1, height - y),
        rect(0, y + 5, width, 1),
        rect(x / 2, 0, 2, height),
    ]
}

const ALL: (Selection, AlphaMode) = (Selection::ALL, AlphaMode::Straight);

#[test]
fn every_kind_of_frame() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    let mut noise = Noise(7);
    let kinds = kinds();
    assert!(kinds.len() > 40, "{}", kinds.len());
    for (turn, planes) in kinds.iter().enumerate() {
        for (i, sigma) in [1.5, 5.0, 12.0, 40.0].into_iter().enumerate() {
            let size = [[131, 77], [66, 34], [203, 130], [97, 61]][(turn + i) % 4];
            let picture = Picture::new(&resized(planes, size), noise.next());
            let selections = [
                Selection::ALL,
                Selection { chroma: false, ..Selection::ALL },
                Selection { alpha: false, ..Selection::ALL },
            ];
            for alpha in [AlphaMode::Straight, AlphaMode::Premultiply] {
                let options = (selections[(turn + i) % 3], alpha);
                let rects = rects(size);
                for rect in &rects[..if i == 0 { rects.len() } else { 4 }] {
                    check(&mut engine, &picture, &cover(options, &[(*rect, sigma)]));
                }
                let all: Vec<(Rect, f64)> =
                    rects.iter().enumerate().map(|(i, rect)| (*rect, [sigma, 2.0, 7.5][i % 3])).collect();
                check(&mut engine, &picture, &cover(options, &all));
            }
        }
    }
}

/// The whole picture, and more than it.
#[test]
fn a_region_may_be_the_picture() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    for planes in kinds() {
        let picture = Picture::new(&resized(&planes, [35, 22]), 3);
        for whole in [rect(0, 0, 35, 22), rect(0, 0, 100, 100)] {
            check(&mut engine, &picture, &cover(ALL, &[(whole, 6.0)]));
        }
        check(&mut engine, &picture, &cover(ALL, &[(rect(35, 0, 5, 5), 6.0), (rect(0, 22, 9, 1), 50.0)]));
        check(&mut engine, &picture, &cover(ALL, &[(rect(3, 3, 5, 5), 0.0)]));
    }
}

/// Pictures so much larger than the reach that the crops have edges of their own on all sides.
#[test]
fn crops_inside_of_large_pictures() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    let kinds = kinds();
    let mut noise = Noise(11);
    for (turn, (size, sigma)) in [
        ([1500, 40], 40.0),
        ([40, 1500], 40.0),
        ([701, 690], 40.0),
        ([3400, 9], 200.0),
        ([9, 3400], 200.0),
        ([400, 390], 12.0),
        ([300, 290], 6.9),
        ([300, 290], 7.0),
    ]
    .into_iter()
    .enumerate()
    {
        for planes in kinds.iter().skip(turn % 3).step_by(3) {
            let picture = Picture::new(&resized(planes, size), noise.next());
            let alpha = [AlphaMode::Straight, AlphaMode::Premultiply][noise.next() as usize % 2];
            let [x, y] = size.map(|side| side / 2 - 3 + noise.next() as u32 % 4);
            let regions = [(rect(x, y, 3, 5), sigma), (rect(x + 1, y + 2, 6, 2), 5.0)];
            let geometry =
                CropGeometry::new(Options { params: params(sigma), planes: Selection::ALL, alpha }, &picture.planes);
            let crops = geometry.crops(regions[0].0);
            assert!(
                crops.iter().any(|crop| crop.x > 0 || crop.y > 0),
                "a crop of {size:?} for sigma={sigma} begins at the corner: {crops:?}"
            );
            check(&mut engine, &picture, &cover((Selection::ALL, alpha), &regions));
        }
    }
}

#[test]
fn random_pictures_and_regions() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    let kinds = kinds();
    let mut noise = Noise(13);
    let mut below = |end: u32| (noise.next() % u64::from(end)) as u32;
    for _ in 0..400 {
        let size = [1 + below(300), 1 + below(200)];
        let planes = resized(&kinds[below(kinds.len() as u32) as usize], size);
        let picture = Picture::new(&planes, u64::from(below(1 << 30)));
        let alpha = [AlphaMode::Straight, AlphaMode::Premultiply][below(2) as usize];
        let flags = 1 + below(7);
        let planes = Selection { primary: flags & 1 > 0, chroma: flags & 2 > 0, alpha: flags & 4 > 0 };
        let regions: Vec<(Rect, f64)> = (0..below(5))
            .map(|_| {
                let [x, y] = [below(size[0]), below(size[1])];
                let rect = rect(x, y, 1 + below(size[0] - x), 1 + below(size[1] - y));
                (rect, [0.3, 1.5, 3.4, 3.5, 5.0, 12.0, 28.5, 40.0, 200.0][below(9) as usize])
            })
            .collect();
        check(&mut engine, &picture, &cover((planes, alpha), &regions));
    }
}

/// With `kernel-size` the reach follows it.
#[test]
fn kernel_sizes_are_reached() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    for planes in kinds().iter().step_by(5) {
        let picture = Picture::new(&resized(planes, [190, 130]), 5);
        for size in [1, 3, 41, 801] {
            let region = BlurRegion { rect: rect(90, 61, 11, 9), params: BlurParams::new(9.0, size).unwrap() };
            check(&mut engine, &picture, &BlurCover { regions: vec![region], ..cover(ALL, &[]) });
        }
    }
}

#[test]
fn invalid_frames_are_rejected_and_stay_unchanged() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    let planes = [PlaneLayout::new(20, 10, 1, 8)];
    let cover = cover(ALL, &[(rect(1, 1, 5, 5), 2.0)]);
    let mut picture = Picture::new(&planes, 1);
    picture.bytes[0].pop();
    let before = picture.bytes.clone();
    let error = engine.cover_in_place(&cover, &mut picture.frame_mut()).unwrap_err();
    assert!(error.to_string().contains("truncated"), "{error}");
    assert_eq!(picture.bytes, before);
    let (source, mut other) = (Picture::new(&planes, 1), Picture::new(&[PlaneLayout::new(20, 11, 1, 8)], 1));
    assert!(engine.cover(&cover, &source.frame(), &mut other.frame_mut()).is_err());
    assert!(engine.cover(&cover, &Vec::new(), &mut Vec::new()).is_err());
}

/// However many crops a frame takes, it is one frame in the statistics.
#[test]
fn a_frame_is_counted_once() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    let mut picture = Picture::new(&[PlaneLayout::new(64, 48, 3, 8)], 1);
    for frames in 1..4 {
        let regions = [(rect(1, 1, 5, 5), 2.0), (rect(40, 30, 5, 5), 9.0), (rect(3, 30, 5, 5), 2.5)];
        engine.cover_in_place(&cover(ALL, &regions), &mut picture.frame_mut()).unwrap();
        assert_eq!((engine.stats().frames_cpu, engine.stats().frames_cuda), (frames, 0));
    }
    engine.cover_in_place(&cover(ALL, &[]), &mut picture.frame_mut()).unwrap();
    assert_eq!(engine.stats().frames_cpu, 3, "nothing was blurred");
}
