//! Regions of frames: what they cover has the bytes of the full-frame blur, and nothing else changes.

use std::collections::BTreeMap;

use crate::common::Noise;
use crate::common::pictures::{Picture, kinds, pitch, rect, resized, strongest};
use gstcudagaussblur::cpu::{CpuEngine, TILES};
use gstcudagaussblur::engine::{BlurRegion, Cover, Engine, Hide};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::PlaneLayout;
use gstcudagaussblur::filter::picture::PictureGeometry;
use gstcudagaussblur::filter::plan::{Options, Plan, Selection};
use gstcudagaussblur::filter::regions::Rect;
use gstcudagaussblur::filter::samples::covered_fields;

fn params(sigma: f64) -> BlurParams {
    BlurParams::new(sigma, 0).unwrap()
}

fn blurred(picture: &Picture, engine: &mut Engine, options: Options) -> Picture {
    let mut out = picture.clone();
    assert!(engine.blur(options, &picture.frame(), &mut out.frame_mut()).unwrap().is_none());
    out
}

/// Covers regions of a picture in several ways, and compares every byte with the full-frame blurs.
fn check(engine: &mut Engine, picture: &Picture, cover: &Cover) {
    let Hide::Blur { planes, regions: covered } = &cover.hide else { unreachable!("a blur") };
    let mut blurs: BTreeMap<u64, Picture> = BTreeMap::new();
    for region in covered {
        let options = Options { planes: *planes, ..region.params.into() };
        let sigma = region.params.sigma();
        blurs.entry(sigma.to_bits()).or_insert_with(|| blurred(picture, engine, options));
    }
    let regions: Vec<(Rect, f64)> = covered.iter().map(|one| (one.rect, one.params.sigma())).collect();
    let mut expected = picture.clone();
    for (plane, bytes) in expected.bytes.iter_mut().enumerate() {
        for (i, sigma) in strongest(&picture.planes, plane, &regions).into_iter().enumerate() {
            if sigma > 0.0 {
                bytes[i] = blurs[&sigma.to_bits()].bytes[plane][i];
            }
        }
    }
    let regions = covered.iter().rev().chain(covered).copied().collect();
    let other = Cover::from(Hide::Blur { planes: *planes, regions });
    for (order, cover) in [("in this order", cover), ("in another order", &other)] {
        let mut out = picture.clone();
        assert!(engine.cover(cover, &mut out.frame_mut()).unwrap().is_none());
        for (plane, (got, want)) in out.bytes.iter().zip(&expected.bytes).enumerate() {
            let differing: Vec<usize> = (0..want.len()).filter(|i| got[*i] != want[*i]).collect();
            let (pitch, planes) = (pitch(&picture.planes[plane]), &picture.planes);
            let first = differing.first().map(|i| (i % pitch, i / pitch));
            assert_eq!(differing.len(), 0, "{order}: plane {plane}, the first at {first:?}: {cover:?} of {planes:?}");
        }
    }
}

fn cover(planes: Selection, regions: &[(Rect, f64)]) -> Cover {
    let region = |(rect, sigma): &(Rect, f64)| BlurRegion { rect: *rect, params: params(*sigma) };
    Hide::Blur { planes, regions: regions.iter().map(region).collect() }.into()
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
            let left_out = (turn + i) % 3;
            let selection = Selection { chroma: left_out != 1, alpha: left_out != 2, ..Selection::ALL };
            let rects = rects(size);
            for rect in &rects[..if i == 0 { rects.len() } else { 4 }] {
                check(&mut engine, &picture, &cover(selection, &[(*rect, sigma)]));
            }
            let all: Vec<_> = rects.into_iter().zip([sigma, 2.0, 7.5].into_iter().cycle()).collect();
            check(&mut engine, &picture, &cover(selection, &all));
        }
    }
}

/// The whole picture, and more than it.
#[test]
fn a_region_may_be_the_picture() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    for planes in kinds() {
        let picture = Picture::new(&resized(&planes, [35, 22]), 3);
        for regions in [
            &[(rect(0, 0, 35, 22), 6.0)][..],
            &[(rect(0, 0, 100, 100), 6.0)],
            &[(rect(35, 0, 5, 5), 6.0), (rect(0, 22, 9, 1), 50.0)],
            &[(rect(3, 3, 5, 5), 0.0)],
        ] {
            check(&mut engine, &picture, &cover(Selection::ALL, regions));
        }
    }
}

/// Pictures so much larger than the reach that what is read ends inside of them on all sides.
#[test]
fn regions_inside_of_large_pictures() {
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
        // A sample of the small plane of packed 4:2:2 stands for eight pixels in chroma, but for four in luma. This region
        // begins at least 121 pixels, the reach, behind an odd multiple of four.
        ([412, 30], 20.0),
    ]
    .into_iter()
    .enumerate()
    {
        let (first, step) = if sigma == 20.0 { (0, 1) } else { (turn % 3, 3) };
        for planes in kinds.iter().skip(first).step_by(step) {
            let picture = Picture::new(&resized(planes, size), noise.next());
            let [x, y] = size.map(|side| side / 2 - 3 + noise.next() as u32 % 4);
            // Many samples, because a small plane on another grid changes hardly one in a hundred.
            let [width, height] = size.map(|side| (side / 4).clamp(3, 90));
            let regions = [(rect(x, y, width, height), sigma), (rect(x + 1, y + 2, 6, 2), 5.0)];
            let covered = covered_fields(&PictureGeometry::new(&picture.planes), regions[0].0).collect::<Vec<_>>();
            let parts = Plan::new(params(sigma).into(), &picture.planes).needs(&covered, TILES).parts;
            assert!(
                planes[0].split.views() != [1, 1] || parts.iter().flatten().any(|rect| rect.x() > 0 || rect.y() > 0),
                "everything of {size:?} for sigma={sigma} begins at the corner: {parts:?}"
            );
            check(&mut engine, &picture, &cover(Selection::ALL, &regions));
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
        let flags = 1 + below(7);
        let planes = Selection { primary: flags & 1 > 0, chroma: flags & 2 > 0, alpha: flags & 4 > 0 };
        let regions: Vec<(Rect, f64)> = (0..below(5))
            .map(|_| {
                let [x, y] = [below(size[0]), below(size[1])];
                let rect = rect(x, y, 1 + below(size[0] - x), 1 + below(size[1] - y));
                (rect, [0.3, 1.5, 3.4, 3.5, 5.0, 12.0, 28.5, 40.0, 200.0][below(9) as usize])
            })
            .collect();
        check(&mut engine, &picture, &cover(planes, &regions));
    }
}

/// The only row of a subsampled plane stands for both fields.
#[test]
fn pictures_of_few_rows() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    for planes in kinds() {
        for height in 1..7 {
            let picture = Picture::new(&resized(&planes, [9, height]), height.into());
            for y in 0..height {
                check(&mut engine, &picture, &cover(Selection::ALL, &[(rect(2, y, 3, 1), 2.0)]));
            }
        }
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
            check(&mut engine, &picture, &Hide::Blur { planes: Selection::ALL, regions: vec![region] }.into());
        }
    }
}

#[test]
fn invalid_frames_are_rejected_and_stay_unchanged() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    let planes = [PlaneLayout::new(20, 10, 1, 8)];
    let cover = cover(Selection::ALL, &[(rect(1, 1, 5, 5), 2.0)]);
    let mut picture = Picture::new(&planes, 1);
    picture.bytes[0].pop();
    let before = picture.bytes.clone();
    let error = engine.cover(&cover, &mut picture.frame_mut()).unwrap_err();
    assert!(error.to_string().contains("truncated"), "{error}");
    assert_eq!(picture.bytes, before);
    assert!(engine.cover(&cover, &mut Vec::new()).is_err());
}

/// However many regions a frame has, it is one frame in the statistics.
#[test]
fn a_frame_is_counted_once() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    let mut picture = Picture::new(&[PlaneLayout::new(64, 48, 3, 8)], 1);
    for frames in 1..4 {
        let regions = [(rect(1, 1, 5, 5), 2.0), (rect(40, 30, 5, 5), 9.0), (rect(3, 30, 5, 5), 2.5)];
        engine.cover(&cover(Selection::ALL, &regions), &mut picture.frame_mut()).unwrap();
        assert_eq!((engine.stats().frames_cpu, engine.stats().frames_cuda), (frames, 0));
    }
    engine.cover(&cover(Selection::ALL, &[]), &mut picture.frame_mut()).unwrap();
    assert_eq!(engine.stats().frames_cpu, 3, "nothing was blurred");
}
