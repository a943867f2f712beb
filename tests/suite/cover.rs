//! Regions of frames: what they cover has the bytes of the full-frame blur, and nothing else changes.

use std::collections::BTreeMap;

use crate::common::Noise;
use crate::common::borrowed::Borrowing;
use crate::common::pictures::{Picture, kinds, random_rect, rect, resized};
use gstcudagaussblur::cpu::{CpuEngine, TILES};
use gstcudagaussblur::engine::{BlurRegion, Engine, Hide};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::PlaneLayout;
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::picture::PictureGeometry;
use gstcudagaussblur::filter::plan::{Options, Plan, Selection};
use gstcudagaussblur::filter::regions::{Area, Rect};
use gstcudagaussblur::filter::samples::covered_fields;

fn region(rect: Rect, sigma: f64) -> BlurRegion {
    BlurRegion { rect, params: BlurParams::new(sigma, 0).unwrap() }
}

/// Covers a picture by each list of regions, in this order and in another one, and compares every byte with the full-frame blurs. The
/// regions of one σ have one kernel size.
fn check(engine: &mut Engine, picture: &Picture, planes: Selection, covers: &[Vec<BlurRegion>]) {
    let mut blurs: BTreeMap<u64, Picture> = BTreeMap::new();
    for regions in covers {
        for BlurRegion { params, .. } in regions {
            blurs.entry(params.sigma().to_bits()).or_insert_with(|| {
                let (mut out, options) = (picture.clone(), Options { planes, ..(*params).into() });
                assert!(engine.blur(options, &picture.frame(), &mut out.frame_mut()).unwrap().is_none());
                out
            });
        }
        let sigmas: Vec<(Rect, f64)> = regions.iter().map(|region| (region.rect, region.params.sigma())).collect();
        let expected = picture.blurred_in(&sigmas, |sigma| blurs.get(&sigma.to_bits()));
        let in_another_order: Vec<BlurRegion> = regions.iter().rev().chain(regions).copied().collect();
        let orders = if regions.len() > 1 { vec![regions, &in_another_order] } else { vec![regions] };
        for regions in orders {
            let mut out = picture.clone();
            let cover = Hide::Blur { planes, regions: regions.clone() }.into();
            assert!(engine.cover(&cover, &mut out.frame_mut()).unwrap().is_none());
            out.assert_is(&expected, || format!("{cover:?}"));
        }
    }
}

/// The corners and edges, single samples, and neighbours of them.
fn rects([width, height]: [u32; 2]) -> [Rect; 9] {
    let [x, y] = [width / 2, height / 3];
    [
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

/// Sizes of pictures, and covers of each.
fn covers(turn: usize) -> Vec<([u32; 2], Vec<Vec<BlurRegion>>)> {
    let mut covers = Vec::new();
    for (i, sigma) in [1.5, 5.0, 12.0, 40.0].into_iter().enumerate() {
        let size = [[131, 77], [66, 34], [203, 130], [97, 61]][(turn + i) % 4];
        let alone = rects(size).into_iter().cycle().skip((turn + i) % 3).step_by(3).take(3);
        let alone = alone.map(|rect| vec![region(rect, sigma)]);
        let sigmas = [sigma, 2.0, 7.5].into_iter().cycle();
        let together = rects(size).into_iter().zip(sigmas).map(|(rect, sigma)| region(rect, sigma)).collect();
        covers.push((size, alone.chain([together]).collect()));
    }
    // All of the picture, and more than it; nothing of it; no blur.
    let whole = [rect(0, 0, 35, 22), rect(0, 0, 100, 100)].map(|rect| vec![region(rect, 6.0)]);
    let beyond = vec![region(rect(35, 0, 5, 5), 6.0), region(rect(0, 22, 9, 1), 50.0)];
    covers.push(([35, 22], whole.into_iter().chain([beyond, vec![region(rect(3, 3, 5, 5), 0.0)]]).collect()));
    // The only row of a subsampled plane stands for both fields.
    let rows = |height| (0..height).map(|y| vec![region(rect(2, y, 3, 1), 2.0)]).collect();
    covers.extend((1..7).map(|height| ([9, height], rows(height))));
    if turn.is_multiple_of(5) {
        // The reach follows the kernel size.
        let params = [1, 3, 41, 801].map(|size| BlurParams::new(9.0, size).unwrap());
        covers.extend(params.map(|params| ([190, 130], vec![vec![BlurRegion { rect: rect(90, 61, 11, 9), params }]])));
    }
    covers
}

#[test]
fn every_kind_of_frame() {
    let (mut engine, mut noise) = (Engine::with_cpu(CpuEngine::new()), Noise(7));
    let kinds = kinds();
    assert!(kinds.len() > 40, "{}", kinds.len());
    for (turn, planes) in kinds.iter().enumerate() {
        for (i, (size, covers)) in covers(turn).into_iter().enumerate() {
            let picture = Picture::new(&resized(planes, size), noise.next());
            let left_out = (turn + i) % 3;
            let selection = Selection { chroma: left_out != 1, alpha: left_out != 2, ..Selection::ALL };
            check(&mut engine, &picture, selection, &covers);
        }
    }
}

/// Pictures so much larger than the reach that what is read ends inside of them on all sides.
#[test]
fn regions_inside_of_large_pictures() {
    let (mut engine, mut noise) = (Engine::with_cpu(CpuEngine::new()), Noise(11));
    let kinds = kinds();
    for (turn, (size, sigma)) in [
        ([1500, 40], 40.0),
        ([40, 1500], 40.0),
        ([520, 510], 28.5),
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
            let regions = vec![region(rect(x, y, width, height), sigma), region(rect(x + 1, y + 2, 6, 2), 5.0)];
            let covered: Vec<_> = covered_fields(&PictureGeometry::new(&picture.planes), regions[0].rect).collect();
            let parts = Plan::new(regions[0].params.into(), &picture.planes).needs(&covered, TILES).parts;
            assert!(
                planes[0].split.views() != [1, 1] || parts.iter().flatten().any(|rect| rect.x() > 0 || rect.y() > 0),
                "everything of {size:?} for sigma={sigma} begins at the corner: {parts:?}"
            );
            check(&mut engine, &picture, Selection::ALL, &[regions]);
        }
    }
}

#[test]
fn random_pictures_and_regions() {
    let (mut engine, mut noise) = (Engine::with_cpu(CpuEngine::new()), Noise(13));
    let kinds = kinds();
    for _ in 0..400 {
        let size = [1 + noise.below(300), 1 + noise.below(200)];
        let planes = resized(&kinds[noise.below(kinds.len() as u32) as usize], size);
        let picture = Picture::new(&planes, noise.below(1 << 30).into());
        let flags = 1 + noise.below(7);
        let planes = Selection { primary: flags & 1 > 0, chroma: flags & 2 > 0, alpha: flags & 4 > 0 };
        let regions = (0..noise.below(5)).map(|_| {
            let rect = random_rect(&mut noise, size);
            region(rect, noise.pick(&[0.3, 1.5, 3.4, 3.5, 5.0, 12.0, 28.5, 40.0, 200.0]))
        });
        check(&mut engine, &picture, planes, &[regions.collect()]);
    }
}

#[test]
fn invalid_frames_are_rejected_and_stay_unchanged() {
    let mut picture = Picture::new(&[PlaneLayout::new(20, 10, 1, 8)], 1);
    picture.bytes[0].pop();
    let (before, rect) = (picture.bytes.clone(), rect(1, 1, 5, 5));
    let object = Area::from_corner(0.0, 0.0, 20.0, 10.0);
    for hide in [
        Hide::Blur { planes: Selection::ALL, regions: vec![region(rect, 2.0)] },
        Hide::Mosaic(vec![MosaicRegion::new(rect, object, 6)]),
        Hide::Fill { rects: vec![rect], values: vec![[0; 4]] },
    ] {
        let error = picture.hide(hide.clone()).unwrap_err();
        assert!(error.to_string().contains("truncated"), "{error}");
        assert_eq!(picture.bytes, before);
        assert!(Engine::with_cpu(CpuEngine::new()).cover(&hide.into(), &mut Vec::new()).is_err());
    }
}
