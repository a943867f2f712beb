//! Soft covers: weights and every byte of covered pictures against the oracle, both against vectors of another implementation, and
//! what they may never do.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use crate::common::Noise;
use crate::common::borrowed::{Borrowing, pair};
use crate::common::device_frames::covers;
use crate::common::pictures::{Picture, kinds, pitch, rect, resized, strongest};
use crate::common::soft_oracle::{Form, Item, Nodes, background, mixed};
use crate::common::video::{formats, info};
use gst_video::VideoFormat;
use gstcudagaussblur::cpu::{CpuEngine, InstructionSet};
use gstcudagaussblur::element::format::formats as layouts;
use gstcudagaussblur::engine::{BlurRegion, Cover, Engine, FrameAccess, Hide, Softness};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{FramePair, PlaneLayout, Split};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::plan::Selection;
use gstcudagaussblur::filter::regions::{Area, Rect};
use gstcudagaussblur::filter::weights::{Edge, Object, Shape, Weights};

/// What a cover's weights are made from.
#[derive(Debug)]
struct Case {
    size: (u32, u32),
    items: Vec<Item>,
    edge: Edge,
    sigma: f64,
}

impl Case {
    fn random(noise: &mut Noise, most: u32) -> Self {
        let size = match noise.below(10) {
            0..4 => (1 + noise.below(20), 1 + noise.below(20)),
            4..7 => (1 + noise.below(200), 1 + noise.below(200)),
            7 => (1 + noise.below(600), 1 + noise.below(90)),
            8 => (1 + noise.below(90), 1 + noise.below(3000)),
            // Mostly a power of two cells, or one more.
            _ => (noise.pick(&[512, 513, 1024, 1025, 4096, 4097, 16384]), 1 + noise.below(40)),
        };
        Self::of(noise, (size.0.min(most), size.1.min(most)))
    }

    fn of(noise: &mut Noise, size: (u32, u32)) -> Self {
        let objects = noise.pick(&[0, 1, 1, 1, 2, 3, 7]);
        let items = (0..objects).map(|_| item(noise, size)).collect();
        let grow = match noise.below(6) {
            0 => noise.below(65) as i32 - 64,
            1 => noise.below(257) as i32,
            2 => noise.below(9) as i32 - 4,
            _ => 0,
        };
        let feather = match noise.below(6) {
            0 => noise.below(257),
            1 | 2 => noise.below(20),
            _ => 0,
        };
        // Windows of hundreds of nodes take the oracle long where nodes are many.
        let most = match size.0.max(size.1) {
            0..80 => 40,
            80..1024 => 24,
            _ => 256,
        };
        let edge = Edge { grow: grow.clamp(-64, most), feather: feather.min(most as u32) };
        let sigma = noise.pick(&[0.0, 0.9, 2.0, 7.5, 16.0, 40.0, 1024.0]);
        Self { size, items, edge, sigma }
    }

    fn objects(&self) -> Vec<Object> {
        self.items.iter().map(Item::object).collect()
    }

    /// `inside`, `outside` and `excluded` of the oracle.
    fn expected(&self) -> [Nodes; 3] {
        let (size, items) = (self.size, &self.items);
        let [inside, outside] = [Nodes::inside, Nodes::outside].map(|of| of(size, items, self.edge));
        [inside, outside, Nodes::excluded(size, items, self.sigma)]
    }

    /// `inside`, `outside` and `excluded` of the program.
    fn weights(&self) -> [Weights; 3] {
        let (size, objects) = (self.size, &self.objects());
        let [inside, outside] = [Weights::inside, Weights::outside].map(|of| of(size, objects, self.edge));
        [inside, outside, Weights::excluded(size, objects, self.sigma)]
    }
}

/// A box, an ellipse or a mask, in the picture or beyond it, from a part of a sample to more than the picture.
fn item(noise: &mut Noise, size: (u32, u32)) -> Item {
    let mut side = |side: u32| {
        let length = match noise.below(6) {
            0 => 0.3,
            1 => f64::from(1 + noise.below(9)),
            2 => f64::from(side),
            3 => f64::from(2 * side + 3),
            _ => f64::from(1 + noise.below(side)),
        };
        let begin = match noise.below(5) {
            0 => 0.0,
            1 => f64::from(noise.below(2 * side + 40)) - f64::from(side / 2 + 20),
            _ => f64::from(noise.below(side)),
        };
        // Mostly whole samples.
        let [low, high] = [0, 1].map(|_| if noise.below(3) == 0 { f64::from(noise.below(100)) / 100.0 } else { 0.0 });
        (begin + low, begin + length + low.max(high))
    };
    let ((left, right), (top, bottom)) = (side(size.0), side(size.1));
    let form = match noise.below(6) {
        0 => Form::Box,
        1 | 2 => Form::Ellipse,
        _ => mask(noise),
    };
    Item { area: Area { left, top, right, bottom }, form }
}

fn mask(noise: &mut Noise) -> Form {
    let mut side = || match noise.below(6) {
        0 => 1,
        1 => 1 + noise.below(300),
        2 if noise.below(8) == 0 => 4096 - noise.below(3),
        _ => 1 + noise.below(24),
    };
    let (columns, rows) = (side(), side());
    let (rows, kind, share) = (if columns > 1000 { rows.min(20) } else { rows }, noise.below(7), noise.below(256));
    let sample = |noise: &mut Noise| match kind {
        0 => noise.below(256) as u8,
        // Just inside, and just outside.
        1 => 127 + noise.below(2) as u8,
        2..5 => 255,
        _ if noise.below(256) < share => 255,
        _ => 0,
    };
    let mut samples: Vec<u8> = (0..columns * rows).map(|_| sample(noise)).collect();
    // All of it is the object but for a few samples, or a column.
    if kind == 3 {
        (0..=noise.below(3)).for_each(|_| samples[noise.below(columns * rows) as usize] = noise.pick(&[0, 127]));
    } else if kind == 4 {
        let gap = noise.pick(&[0, columns / 3, columns - 1]) as usize;
        samples[gap..].iter_mut().step_by(columns as usize).for_each(|sample| *sample = 0);
    }
    Form::Mask { columns, rows, samples }
}

const KINDS: [&str; 3] = ["inside", "outside", "excluded"];

/// An item over all of a picture.
fn whole(size: (u32, u32), form: Form) -> Item {
    Item { area: Area::from_corner(0.0, 0.0, size.0.into(), size.1.into()), form }
}

/// Weights of a row of luma samples.
fn row(weights: &Weights, y: u32) -> Vec<u8> {
    let mut row = vec![0; weights.size().0 as usize];
    weights.row_from(0, y, &mut Vec::new(), &mut row);
    row
}

/// The case in a block of lines of tests/data/soft_covers.txt, and its lines of weights.
fn vector(block: &str) -> (Case, Vec<&str>) {
    let (weights, case): (Vec<&str>, Vec<&str>) = block.trim_end().lines().partition(|line| line.contains(" = "));
    let number = |word: &str| -> f64 { word.parse().unwrap() };
    let numbers: Vec<f64> = case[0].split(' ').skip(1).step_by(2).map(number).collect();
    let [width, height, grow, feather, sigma] = numbers[..] else { panic!("{block}") };
    let item = |line: &&str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [left, top, right, bottom] = [1, 2, 3, 4].map(|edge| number(words[edge]));
        let form = match words[..] {
            ["box", ..] => Form::Box,
            ["ellipse", ..] => Form::Ellipse,
            [.., columns, rows, samples] => {
                let sample = |i: usize| u8::from_str_radix(&samples[2 * i..2 * i + 2], 16).unwrap();
                let samples = (0..samples.len() / 2).map(sample).collect();
                Form::Mask { columns: number(columns) as u32, rows: number(rows) as u32, samples }
            }
            _ => panic!("{line}"),
        };
        Item { area: Area { left, top, right, bottom }, form }
    };
    let edge = Edge { grow: grow as i32, feather: feather as u32 };
    (Case { size: (width as u32, height as u32), items: case[1..].iter().map(item).collect(), edge, sigma }, weights)
}

/// Weights as the vectors have them: the cell, the nodes and the middle row.
fn text(kind: &str, weights: &Weights) -> String {
    let run = |run: &[u8]| match run {
        [one] => format!("{one:02x}"),
        run => format!("{:02x}*{}", run[0], run.len()),
    };
    let row_text = |row: &[u8]| row.chunk_by(u8::eq).map(run).collect::<Vec<_>>().join(" ");
    let (columns, _, nodes) = weights.nodes();
    let rows: Vec<String> = nodes.chunks(columns as usize).map(row_text).collect();
    let rows: Vec<String> = rows.chunk_by(String::eq).map(|same| format!("{}x {}", same.len(), same[0])).collect();
    format!("{kind} {}: {} = {}", weights.cell(), rows.join(" / "), row_text(&row(weights, weights.size().1 / 2)))
}

#[test]
fn weights_are_those_of_another_implementation() {
    let blocks: Vec<&str> = include_str!("../data/soft_covers.txt").split("\n\n").skip(1).collect();
    assert!(blocks.len() > 10);
    for block in blocks {
        let (case, expected) = vector(block);
        let got: Vec<String> =
            KINDS.into_iter().zip(case.weights()).map(|(kind, weights)| text(kind, &weights)).collect();
        assert_eq!(got, expected, "{case:?}");
    }
}

/// Every node, some rows, and of their luma samples what must hold whatever the weights are made from: a sample that an object has any
/// part of is covered wholly unless the object shrinks, nothing beyond the object's reach has a weight, and nothing shows of a sample
/// that is not an object's unless the object grows.
#[test]
fn weights_are_those_of_the_oracle_and_hide_what_they_must() {
    let mut noise = Noise(2);
    let [mut between, mut covered, mut hidden, mut shown] = [0_u64; 4];
    for number in 0..2800 {
        let case = Case::random(&mut noise, if number % 8 > 0 { 79 } else { 16384 });
        let (all_weights, oracle) = (case.weights(), case.expected());
        for ((kind, weights), expected) in KINDS.into_iter().zip(&all_weights).zip(&oracle) {
            assert_eq!((weights.cell(), weights.size()), (expected.cell(), case.size));
            let (columns, rows, values) = expected.nodes();
            assert!(weights.nodes() == (columns, rows, &values), "case {number}: nodes of {kind}: {case:?}");
        }
        let Case { size, items, edge, .. } = &case;
        let rects = all_weights[0].rects();
        let reached: Vec<Rect> = case.objects().iter().filter_map(|one| one.reach(*edge, *size)).collect();
        for y in (noise.below(size.1.div_ceil(12))..size.1).step_by(size.1.div_ceil(12) as usize) {
            let rows = all_weights.each_ref().map(|weights| row(weights, y));
            for x in 0..size.0 {
                let got = rows.each_ref().map(|row| row[x as usize]);
                assert_eq!(got, oracle.each_ref().map(|nodes| nodes.at(x, y) as u8), "({x}, {y}) of {case:?}");
                let [inside, outside, excluded] = got;
                between += got.iter().filter(|weight| ![0, 255].contains(*weight)).count() as u64;
                let mut objects = items.iter().filter(|item| item.touches(x.into(), y.into())).peekable();
                let must_cover = edge.grow >= 0 && objects.peek().is_some();
                assert!(!must_cover || inside == 255, "({x}, {y}) has {inside}: {case:?}");
                let is_drawn = objects.any(|item| !matches!(item.form, Form::Mask { .. }));
                assert!(!is_drawn || excluded == 255, "({x}, {y}) is not excluded: {case:?}");
                let has = |rect: &Rect| (rect.x()..rect.right()).contains(&x) && (rect.y()..rect.bottom()).contains(&y);
                let is_in_reach = rects.iter().any(has) && (edge.grow < 0 || reached.iter().any(has));
                assert!(inside == 0 || is_in_reach, "({x}, {y}) is beyond {rects:?} or {reached:?}: {case:?}");
                let must_hide = edge.grow <= 0 && !items.iter().any(|item| item.may_show(x.into(), y.into()));
                assert!(!must_hide || outside == 255, "({x}, {y}) shows, with {outside}: {case:?}");
                covered += u64::from(must_cover);
                hidden += u64::from(must_hide);
                shown += u64::from(outside == 0);
            }
        }
        // An object that ends with the picture does not shrink there.
        let columns = 1 + noise.below(900);
        let all = whole(*size, Form::Mask { columns, rows: 1, samples: vec![255; columns as usize] });
        let weights = Weights::outside(*size, &[all.object()], *edge);
        assert!(weights.nodes().2.iter().all(|weight| *weight == 0), "{edge:?} of {size:?}");
    }
    let counts = [between, covered, hidden, shown];
    assert!(counts.iter().all(|count| *count > 100_000), "between, covered, hidden, shown: {counts:?}");
}

/// An edge that is not a number is the picture's where it is covered, as for boxes without weights, and nothing is shown then.
#[test]
fn objects_without_known_edges_are_covered() {
    let (nan, far, size) = (f64::NAN, f64::INFINITY, (60, 40));
    let all = |weights: &Weights, value: u8| weights.nodes().2.iter().all(|weight| *weight == value);
    for ([left, top, right, bottom], is_everywhere) in [
        ([nan; 4], true),
        ([nan, nan, far, far], true),
        ([-far, -far, far, far], true),
        ([nan, -5.0, 70.0, 50.0], true),
        ([20.9, 5.0, 20.3, 9.0], false),
        ([3.5, 3.5, 3.5, 9.0], false),
        ([9.0, 5.0, 3.0, 8.0], false),
        ([far, 5.0, far, 9.0], false),
    ] {
        for form in [Form::Box, Form::Ellipse, Form::Mask { columns: 2, rows: 1, samples: vec![0, 255] }] {
            let what = format!("{left} {top} {right} {bottom} of {form:?}");
            let objects = [Item { area: Area { left, top, right, bottom }, form }.object()];
            let edge = if is_everywhere { Edge { grow: -2, feather: 3 } } else { Edge::default() };
            assert!(all(&Weights::inside(size, &objects, edge), if is_everywhere { 255 } else { 0 }), "{what}");
            assert!(all(&Weights::outside(size, &objects, edge), 255), "{what}");
            if is_everywhere {
                assert!(all(&Weights::excluded(size, &objects, 9.0), 255), "{what}");
                assert_eq!(objects[0].reach(edge, size), Some(rect(0, 0, 60, 40)), "{what}");
            }
        }
    }
}

/// Every kind of frame in the case table, and those of the element's formats and 4:4:0: progressive, interlaced and of two views.
fn all_kinds() -> Vec<Vec<PlaneLayout>> {
    let of_format = |format| layouts::planes(&info(format, 64, 64), false).unwrap();
    let mut tall = of_format(VideoFormat::Y42b);
    tall.iter_mut().for_each(|plane| plane.sigma_scale.reverse());
    let mut of_formats = vec![tall];
    for planes in formats().into_iter().map(of_format) {
        of_formats.extend(Some(planes).filter(|planes| !of_formats.contains(planes)));
    }
    let splits = [Split::Whole, Split::Fields, Split::Rows, Split::SideBySide, Split::TopBottom];
    let split = |planes: &Vec<PlaneLayout>| {
        splits.map(|split| planes.iter().map(|plane| PlaneLayout { split, ..*plane }).collect::<Vec<_>>())
    };
    kinds().into_iter().chain(of_formats.iter().flat_map(split)).collect()
}

/// A picture that is covered in another one.
struct Copied<'a> {
    source: &'a Picture,
    destination: &'a mut Picture,
}

// SAFETY: the pictures are borrowed, the destination mutably, until this is dropped.
unsafe impl FrameAccess for Copied<'_> {
    fn frames(&mut self) -> FramePair {
        pair(&self.source.frame(), &mut self.destination.frame_mut())
    }
}

/// The oracle's cover of a whole picture, before it is mixed. Without exclusion it is what other tests compare with their
/// oracles.
fn covered(picture: &Picture, hide: &Hide, excluded: Option<&Nodes>) -> Picture {
    let (Hide::Blur { planes, regions }, Some(excluded)) = (hide, excluded) else {
        let mut covered = picture.clone();
        covered.hide(hide.clone()).unwrap();
        return covered;
    };
    let mut backgrounds = BTreeMap::new();
    for params in regions.iter().map(|region| region.params).filter(|params| !params.is_passthrough()) {
        let background = || background(picture, &params, *planes, excluded);
        backgrounds.entry(params.sigma().to_bits()).or_insert_with(background);
    }
    let regions: Vec<(Rect, f64)> = regions.iter().map(|region| (region.rect, region.params.sigma())).collect();
    picture.blurred_in(&regions, |sigma| backgrounds.get(&sigma.to_bits()))
}

/// The oracle's picture of a cover with weights, and with an exclusion.
fn expected(picture: &Picture, hide: &Hide, weights: &Nodes, excluded: Option<&Nodes>) -> Picture {
    let (planes, rects): (_, Vec<Rect>) = match hide {
        Hide::Blur { planes, regions } => {
            let changing = regions.iter().filter(|region| !region.params.is_passthrough());
            (*planes, changing.map(|region| region.rect).collect())
        }
        Hide::Mosaic(regions) => (Selection::ALL, regions.iter().map(MosaicRegion::rect).collect()),
        Hide::Fill { rects, .. } => (Selection::ALL, rects.clone()),
    };
    let regions: Vec<(Rect, f64)> = rects.into_iter().map(|rect| (rect, 1.0)).collect();
    let is_written: Vec<Vec<f64>> =
        (0..picture.planes.len()).map(|plane| strongest(&picture.planes, plane, &regions)).collect();
    let cover = covered(picture, hide, excluded);
    mixed(picture, &cover, weights, planes, |plane, byte| is_written[plane][byte] > 0.0)
}

/// Covers a picture of this kind in place and in a copy, and compares every byte with the oracle. `turn` picks what with, from 12
/// on with weights that are all 0.
fn check(noise: &mut Noise, engines: &mut [(&str, Engine)], planes: &[PlaneLayout], size: [u32; 2], turn: usize) {
    let picture = Picture::new(&resized(planes, size), noise.next());
    let case = soft_case(noise, picture.size().into(), turn < 12);
    let ([inside, outside, excluded], oracle) = (case.weights(), case.expected());
    let is_outside = turn < 12 && turn.is_multiple_of(2);
    let weights = if is_outside { outside } else { inside };
    assert!(turn < 12 || weights.rects().is_empty());
    let hide = hide(noise, &picture, turn, &weights.rects());
    let is_excluding = if turn < 12 { [0, 4, 5].contains(&(turn % 6)) } else { noise.below(2) == 0 };
    let expected = expected(&picture, &hide, &oracle[usize::from(is_outside)], is_excluding.then_some(&oracle[2]));
    let cover = Cover { soft: Some(Softness { weights, excluded: is_excluding.then_some(excluded) }), hide };
    for (name, engine) in engines {
        let (mut in_place, mut copy) = (picture.clone(), Picture::new(&picture.planes, 99));
        let expected_copy = expected.within(&copy);
        assert!(engine.cover(&cover, &mut in_place.frame_mut()).unwrap().is_none());
        let frames = Copied { source: &picture, destination: &mut copy };
        assert!(engine.run(&cover, frames).unwrap().failure.is_none());
        for (how, got, expected) in [("in place", &in_place, &expected), ("in a copy", &copy, &expected_copy)] {
            let what = || format!("{name}, {how}: {:?} with an exclusion: {is_excluding}", cover.hide);
            got.assert_is(expected, what);
        }
    }
}

/// A case with soft edges everywhere: a mask of noise of the size of the picture, and other objects; or no object.
fn soft_case(noise: &mut Noise, size: (u32, u32), has_objects: bool) -> Case {
    if !has_objects {
        return Case { size, items: Vec::new(), edge: Edge { grow: 3, feather: 9 }, sigma: 9.0 };
    }
    let mut case = Case::of(noise, size);
    case.edge = Edge { grow: case.edge.grow.clamp(-9, 9), feather: case.edge.feather.min(12) };
    if noise.below(3) > 0 {
        case.edge = Edge::default();
        let samples = (0..size.0 * size.1).map(|_| noise.pick(&[0, 20, 64, 100, 130, 200, 250, 255])).collect();
        case.items.insert(0, whole(size, Form::Mask { columns: size.0, rows: size.1, samples }));
    }
    case
}

/// A blur, fill or mosaic of the whole picture, or of some rectangles, which may overlap and be beyond it. `needed` are those beyond
/// which nothing has a weight.
fn hide(noise: &mut Noise, picture: &Picture, turn: usize, needed: &[Rect]) -> Hide {
    let [width, height] = picture.size();
    let mut rects = if turn % 6 == 5 { needed.to_vec() } else { Vec::new() };
    for _ in 0..noise.pick(&[0, 0, 1, 3]) * usize::from(turn % 6 < 5) {
        let [x, y] = [noise.below(width), noise.below(height)];
        rects.push(rect(x, y, 1 + noise.below(width - x), 1 + noise.below(2 * height)));
    }
    if rects.is_empty() && turn % 6 < 5 {
        rects.push(rect(0, 0, width, height));
    }
    let sigma = noise.pick(&[0.7, 1.5, 3.0, 3.5, 6.0, 9.0, 20.0, 60.0]);
    let sigmas = if turn % 6 == 4 { [sigma, 2.0, 7.5, 0.0] } else { [sigma; 4] };
    let kind = [0, 0, 2, 1, 0, 0][turn % 6];
    let Cover { mut hide, .. } = covers(&picture.planes, &rects, &sigmas, noise).swap_remove(kind);
    if let Hide::Blur { planes, regions } = &mut hide {
        *planes = noise.pick(&SELECTIONS);
        if turn % 6 == 4 && noise.below(2) == 0 {
            *regions = vec![BlurRegion { params: BlurParams::new(4.0, 5).unwrap(), ..regions[0] }];
        }
    }
    hide
}

const SIZES: [[u32; 2]; 9] = [[1, 1], [2, 3], [35, 22], [66, 34], [41, 27], [17, 2], [97, 61], [130, 50], [38, 74]];
const LARGE_SIZES: [[u32; 2]; 5] = [[701, 21], [19, 1100], [1283, 9], [6, 2060], [530, 97]];
const SELECTIONS: [Selection; 6] = [
    Selection::ALL,
    Selection::ALL,
    Selection { chroma: false, ..Selection::ALL },
    Selection { alpha: false, ..Selection::ALL },
    Selection { primary: false, ..Selection::ALL },
    Selection { primary: false, chroma: false, alpha: true },
];

fn params(sigma: f64) -> BlurParams {
    BlurParams::new(sigma, 0).unwrap()
}

/// Padding bits and the bytes between rows included, with every kind of cover and with weights that are all 0.
#[test]
fn every_byte_is_that_of_the_oracle() {
    let engine = |set: InstructionSet| Engine::with_cpu(CpuEngine::new().with_instruction_set(set));
    let mut engines: Vec<_> = InstructionSet::available().into_iter().map(|set| (set.name(), engine(set))).collect();
    let (mut noise, kinds) = (Noise(3), all_kinds());
    assert!(kinds.len() > 70, "{}", kinds.len());
    for (number, planes) in kinds.iter().enumerate() {
        let mut check = |size, turn| check(&mut noise, &mut engines, planes, size, turn);
        (0..11).for_each(|turn| check(SIZES[(number + turn * 7) % SIZES.len()], turn));
        // Cells of more than one luma sample, several tiles and several threads.
        check(LARGE_SIZES[number % LARGE_SIZES.len()], number % 12);
        // The last rows and columns, and an only row for both fields.
        (1..11).for_each(|height| check([1 + height * 3 % 10, height], height as usize));
    }
}

/// Nobody knows what weights of another size are for: they are refused before anything is written.
#[test]
fn weights_are_for_pictures_of_their_size() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    for planes in all_kinds() {
        let picture = Picture::new(&resized(&planes, [40, 30]), 3);
        let [width, height] = picture.size();
        let region = BlurRegion { rect: rect(0, 0, 40, 30), params: params(3.0) };
        let hide = Hide::Blur { planes: Selection::ALL, regions: vec![region] };
        for size in [(width, height - 1), (width - 1, height), (1, 1), (width + 1, height), (4000, 3000)] {
            let [other, fitting] = [size, (width, height)].map(|size| Weights::outside(size, &[], Edge::default()));
            for (weights, excluded) in [(other.clone(), None), (fitting, Some(other))] {
                let cover = Cover { soft: Some(Softness { weights, excluded }), hide: hide.clone() };
                let mut out = picture.clone();
                let covered =
                    std::panic::catch_unwind(AssertUnwindSafe(|| engine.cover(&cover, &mut out.frame_mut()).is_ok()));
                assert!(!covered.unwrap_or(false), "{size:?} of {planes:?}");
                assert!(out.bytes == picture.bytes);
            }
        }
    }
}

/// A rectangle is made of bands of 64 rows, or of an eighth of the picture if that is more, and of steps of 64 columns.
#[test]
fn rectangles_of_weights_are_no_larger_than_their_steps() {
    for (size, areas, rects) in [
        (
            (512, 512),
            &[[100.0, 300.0, 40.0, 30.0], [400.0, 300.0, 20.0, 4.0]][..],
            vec![rect(64, 256, 128, 64), rect(384, 256, 64, 64), rect(64, 320, 128, 64)],
        ),
        ((3840, 2160), &[[1000.0, 1000.0, 100.0, 100.0]], vec![rect(960, 960, 192, 320)]),
        ((500, 300), &[[470.0, 280.0, 90.0, 90.0]], vec![rect(448, 256, 52, 44)]),
        ((500, 300), &[], vec![]),
    ] {
        let object = |[x, y, width, height]: &[f64; 4]| Object {
            area: Area::from_corner(*x, *y, *width, *height),
            shape: Shape::Box,
        };
        let objects: Vec<_> = areas.iter().map(object).collect();
        assert_eq!(Weights::inside(size, &objects, Edge::default()).rects(), rects, "{size:?} {areas:?}");
    }
}

/// A white object on black, its mask two samples too small: beside it a blur of all of the picture glows, that of the background does
/// not.
#[test]
fn objects_do_not_glow_beside_themselves() {
    let (size, layout) = ((1280, 720), PlaneLayout::new(1280, 720, 1, 8));
    let mut picture = Picture::new(&[layout], 0);
    for (y, row) in picture.bytes[0].chunks_mut(pitch(&layout)).enumerate() {
        row.fill(0);
        row[400..800].fill(if y < 200 { 0 } else { 255 });
    }
    let is_object = |i: usize| i / 256 > 210 * 256 / 720 && (83..158).contains(&(i % 256));
    let samples = (0..65536).map(|i| if is_object(i) { 255 } else { 0 }).collect();
    let objects = [whole(size, Form::Mask { columns: 256, rows: 256, samples }).object()];
    let weights = Weights::outside(size, &objects, Edge::default());
    let region = BlurRegion { rect: rect(0, 0, size.0, size.1), params: params(16.0) };
    let hide = Hide::Blur { planes: Selection::ALL, regions: vec![region] };
    let soft = Some(Softness { weights, excluded: Some(Weights::excluded(size, &objects, 16.0)) });
    let row_of = |cover: Cover| {
        let mut out = picture.clone();
        Engine::with_cpu(CpuEngine::new()).cover(&cover, &mut out.frame_mut()).unwrap();
        out.bytes[0][500 * pitch(&layout)..][..1280].to_vec()
    };
    let [plain, background] = [None, soft].map(|soft| row_of(Cover { hide: hide.clone(), soft }));
    assert!(background[800..].iter().all(|value| *value <= 1), "{:?}", &background[800..840]);
    assert!(plain[800] > 100, "the plain blur glows");
    assert_eq!(background[500], 255, "the object is shown");
}
