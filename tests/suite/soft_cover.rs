//! Soft covers: weights and every byte of covered pictures against the oracle, both against vectors of another implementation, and
//! what they may never do.

use std::panic::AssertUnwindSafe;

use crate::common::Noise;
use crate::common::pictures::{Picture, kinds, pitch, rect, resized, strongest};
use crate::common::soft_oracle::{Form, Item, Nodes, background, filled, mixed, values};
use crate::common::video::{formats, info};
use gst_video::VideoFormat;
use gstcudagaussblur::cpu::{CpuEngine, InstructionSet};
use gstcudagaussblur::element::formats as layouts;
use gstcudagaussblur::engine::{BlurRegion, Cover, Engine, FrameAccess, Hide, Softness};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{Destination, PlaneLayout, SampleLayout, Source, Split};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::plan::Selection;
use gstcudagaussblur::filter::regions::{Area, Rect};
use gstcudagaussblur::filter::weights::{Edge, Object, Shape, Weights};

/// Picks numbers.
struct Random(Noise);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        (self.0.next() % u64::from(end)) as u32
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }

    fn is(&mut self, one_of: u32) -> bool {
        self.below(one_of) == 0
    }
}

/// What a cover's weights are made from.
#[derive(Debug)]
struct Case {
    size: (u32, u32),
    items: Vec<Item>,
    edge: Edge,
    sigma: f64,
}

impl Case {
    fn random(random: &mut Random, most: u32) -> Self {
        let size = match random.below(10) {
            0..4 => (1 + random.below(20), 1 + random.below(20)),
            4..7 => (1 + random.below(200), 1 + random.below(200)),
            7 => (1 + random.below(600), 1 + random.below(90)),
            8 => (1 + random.below(90), 1 + random.below(3000)),
            // Mostly a power of two cells, or one more.
            _ => (random.pick(&[512, 513, 1024, 1025, 4096, 4097, 16384]), 1 + random.below(40)),
        };
        Self::of(random, (size.0.min(most), size.1.min(most)))
    }

    fn of(random: &mut Random, size: (u32, u32)) -> Self {
        let objects = random.pick(&[0, 1, 1, 1, 2, 3, 7]);
        let items = (0..objects).map(|_| item(random, size)).collect();
        let grow = match random.below(6) {
            0 => random.below(65) as i32 - 64,
            1 => random.below(257) as i32,
            2 => random.below(9) as i32 - 4,
            _ => 0,
        };
        let feather = match random.below(6) {
            0 => random.below(257),
            1 | 2 => random.below(20),
            _ => 0,
        };
        // Windows of hundreds of nodes take the oracle long where nodes are many.
        let most = match size.0.max(size.1) {
            0..80 => 40,
            80..1024 => 24,
            _ => 256,
        };
        let edge = Edge { grow: grow.clamp(-64, most), feather: feather.min(most as u32) };
        let sigma = random.pick(&[0.0, 0.9, 2.0, 7.5, 16.0, 40.0, 1024.0]);
        Self { size, items, edge, sigma }
    }

    /// Without an object in the picture.
    fn without(random: &mut Random, [width, height]: [u32; 2]) -> Self {
        let beyond = Item { area: Area::from_corner(500.0, 3.0, 30.0, 30.0), form: Form::Ellipse };
        let items = if random.is(2) { vec![beyond] } else { Vec::new() };
        Self { size: (width, height), items, edge: Edge { grow: 3, feather: 9 }, sigma: 9.0 }
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
fn item(random: &mut Random, size: (u32, u32)) -> Item {
    let mut side = |side: u32| {
        let length = match random.below(6) {
            0 => 0.3,
            1 => f64::from(1 + random.below(9)),
            2 => f64::from(side),
            3 => f64::from(2 * side + 3),
            _ => f64::from(1 + random.below(side)),
        };
        let begin = match random.below(5) {
            0 => 0.0,
            1 => f64::from(random.below(2 * side + 40)) - f64::from(side / 2 + 20),
            _ => f64::from(random.below(side)),
        };
        // Mostly whole samples.
        let [low, high] = [0, 1].map(|_| if random.is(3) { f64::from(random.below(100)) / 100.0 } else { 0.0 });
        (begin + low, begin + length + low.max(high))
    };
    let ((left, right), (top, bottom)) = (side(size.0), side(size.1));
    let form = match random.below(6) {
        0 => Form::Box,
        1 | 2 => Form::Ellipse,
        _ => mask(random),
    };
    Item { area: Area { left, top, right, bottom }, form }
}

fn mask(random: &mut Random) -> Form {
    let mut side = || match random.below(6) {
        0 => 1,
        1 => 1 + random.below(300),
        2 if random.is(8) => 4096 - random.below(3),
        _ => 1 + random.below(24),
    };
    let (columns, rows) = (side(), side());
    let (rows, kind, share) = (if columns > 1000 { rows.min(20) } else { rows }, random.below(5), random.below(256));
    let sample = |random: &mut Random| match kind {
        0 => random.below(256) as u8,
        // Just inside, and just outside.
        1 => 127 + random.below(2) as u8,
        2 => 255,
        _ if random.below(256) < share => 255,
        _ => 0,
    };
    let samples = (0..columns * rows).map(|_| sample(random)).collect();
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
    weights.row(y, &mut row);
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

#[test]
fn weights_are_those_of_the_oracle() {
    let mut random = Random(Noise(2));
    let mut between = 0;
    for number in 0..2500 {
        let case = Case::random(&mut random, if number % 16 > 0 { 79 } else { 16384 });
        for (kind, (weights, expected)) in KINDS.into_iter().zip(case.weights().into_iter().zip(case.expected())) {
            let (columns, rows, values) = expected.nodes();
            assert_eq!((weights.cell(), weights.size()), (expected.cell(), case.size));
            assert_eq!((weights.nodes().0, weights.nodes().1), (columns, rows));
            let differing = values.iter().zip(weights.nodes().2).position(|(want, got)| want != got);
            let place = differing.map(|i| (i % columns as usize, i / columns as usize));
            assert!(place.is_none(), "case {number}: node {place:?}, {kind} of {case:?}");
            for _ in 0..3 {
                let y = random.below(case.size.1);
                let wanted: Vec<u8> = (0..case.size.0).map(|x| expected.at(x, y) as u8).collect();
                between += wanted.iter().filter(|weight| ![0, 255].contains(*weight)).count();
                assert!(row(&weights, y) == wanted, "case {number}: row {y}, {kind} of {case:?}");
            }
        }
    }
    assert!(between > 30_000, "{between} weights are between nothing and all");
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
    fn frames(&mut self) -> (Source<'_>, Destination<'_>) {
        (Source::Host(self.source.frame()), Destination::Host(self.destination.frame_mut()))
    }
}

/// What hides, and where it writes which channels.
struct Hidden {
    cover: Cover,
    rects: Vec<Rect>,
    planes: Selection,
}

impl Hidden {
    fn blur(planes: Selection, regions: &[(Rect, BlurParams)]) -> Self {
        let blurring = regions.iter().filter(|(_, params)| !params.is_passthrough());
        let rects = blurring.map(|(rect, _)| *rect).collect();
        let regions = regions.iter().map(|(rect, params)| BlurRegion { rect: *rect, params: *params }).collect();
        Self { cover: Hide::Blur { planes, regions }.into(), rects, planes }
    }

    fn mosaic(random: &mut Random, rects: Vec<Rect>) -> Self {
        let object = Area::from_corner(f64::from(random.below(9)), -3.5, 40.0, 30.0);
        let regions = rects.iter().map(|rect| MosaicRegion::new(*rect, object, 1 + random.below(5))).collect();
        Self { cover: Hide::Mosaic(regions).into(), rects, planes: Selection::ALL }
    }

    fn fill(random: &mut Random, picture: &Picture, rects: Vec<Rect>) -> Self {
        let values = picture.planes.iter().map(|layout| {
            let is_short = |c: usize| layout.sample_layout == SampleLayout::Packed1010102 && c == 3;
            let depth = |c: usize| if is_short(c) { 2 } else { layout.depth };
            [0, 1, 2, 3].map(|c| (random.0.next() & ((1 << depth(c)) - 1)) as u16)
        });
        let hide = Hide::Fill { rects: rects.clone(), values: values.collect() };
        Self { cover: hide.into(), rects, planes: Selection::ALL }
    }
}

/// The oracle's cover of a whole picture, before it is mixed. Without exclusion it is what other tests compare with their
/// oracles.
fn covered(picture: &Picture, cover: &Cover, excluded: Option<&Nodes>) -> Picture {
    let mut covered = picture.clone();
    let (Hide::Blur { planes, regions: blurred }, Some(excluded)) = (&cover.hide, excluded) else {
        let mut engine = Engine::with_cpu(CpuEngine::new());
        engine.cover(cover, &mut covered.frame_mut()).unwrap();
        return covered;
    };
    let regions: Vec<(Rect, f64)> = blurred.iter().map(|one| (one.rect, one.params.sigma())).collect();
    let mut done: Vec<BlurParams> = Vec::new();
    for BlurRegion { params, .. } in blurred {
        if params.is_passthrough() || done.contains(params) {
            continue;
        }
        done.push(*params);
        let background = background(picture, params, *planes, excluded);
        for (plane, bytes) in covered.bytes.iter_mut().enumerate() {
            for (i, sigma) in strongest(&picture.planes, plane, &regions).into_iter().enumerate() {
                if sigma == params.sigma() {
                    bytes[i] = background.bytes[plane][i];
                }
            }
        }
    }
    covered
}

/// Makes pictures and covers, and checks every engine.
struct Checks {
    random: Random,
    /// One for every instruction set.
    engines: Vec<(&'static str, Engine)>,
}

impl Checks {
    fn new(seed: u64) -> Self {
        let engine =
            |set: InstructionSet| (set.name(), Engine::with_cpu(CpuEngine::new().with_instruction_set(set).unwrap()));
        Self { random: Random(Noise(seed)), engines: InstructionSet::available().into_iter().map(engine).collect() }
    }

    /// Covers a picture in place and in a copy, and compares every byte with the oracle.
    fn check(
        &mut self,
        picture: &Picture,
        hidden: &Hidden,
        (weights, nodes): (Weights, &Nodes),
        excluded: Option<(Weights, &Nodes)>,
    ) {
        let regions: Vec<(Rect, f64)> = hidden.rects.iter().map(|rect| (*rect, 1.0)).collect();
        let is_written: Vec<Vec<f64>> =
            (0..picture.planes.len()).map(|plane| strongest(&picture.planes, plane, &regions)).collect();
        let cover = covered(picture, &hidden.cover, excluded.as_ref().map(|(_, nodes)| *nodes));
        let expected = mixed(picture, &cover, nodes, hidden.planes, |plane, byte| is_written[plane][byte] > 0.0);
        let excluded = excluded.map(|(weights, _)| weights);
        let what = format!("{:?} with an exclusion: {}", hidden.cover, excluded.is_some());
        let cover = Cover { soft: Some(Softness { weights, excluded }), ..hidden.cover.clone() };
        for (name, engine) in &mut self.engines {
            let mut in_place = picture.clone();
            assert!(engine.cover(&cover, &mut in_place.frame_mut()).unwrap().is_none());
            let mut copy = Picture::new(&picture.planes, 99);
            let frames = Copied { source: picture, destination: &mut copy };
            assert!(engine.run(&cover, frames).unwrap().failure.is_none());
            for (how, got) in [("in place", &in_place), ("in a copy", &copy)] {
                for (plane, (got, want)) in got.bytes.iter().zip(&expected.bytes).enumerate() {
                    let pitch = pitch(&picture.planes[plane]);
                    let differing: Vec<usize> = (0..got.len()).filter(|i| got[*i] != want[*i]).collect();
                    let place = differing.first().map(|i| (i % pitch, i / pitch));
                    let values = differing.first().map(|i| (got[*i], want[*i], picture.bytes[plane][*i]));
                    assert!(
                        differing.is_empty(),
                        "{name}, {how}: {} bytes of plane {plane} differ, the first (byte, row) {place:?} is not as \
                         expected and in the source {values:?}: {what} of {:?}",
                        differing.len(),
                        picture.planes
                    );
                }
            }
        }
    }

    /// Covers a picture of this kind: `turn` picks what with, from 12 on with weights that are all 0.
    fn turn(&mut self, planes: &[PlaneLayout], size: [u32; 2], turn: usize) {
        let random = &mut self.random;
        let picture = Picture::new(&resized(planes, size), random.0.next());
        let size = picture.size();
        let case = if turn < 12 { soft_case(random, size) } else { Case::without(random, size) };
        let ([inside, outside, excluded], [inside_nodes, outside_nodes, excluded_nodes]) =
            (case.weights(), case.expected());
        let is_outside = turn < 12 && turn.is_multiple_of(2);
        let weights = if is_outside { (outside, &outside_nodes) } else { (inside, &inside_nodes) };
        assert!(turn < 12 || weights.0.rects().is_empty());
        let rects = some_rects(random, size);
        let sigma = random.pick(&[0.7, 1.5, 3.0, 3.5, 6.0, 9.0, 20.0, 60.0]);
        let selection = if random.is(2) { Selection::ALL } else { random.pick(&SELECTIONS) };
        let each = |rects: &[Rect], sigmas: [f64; 4]| -> Vec<_> {
            rects.iter().enumerate().map(|(i, rect)| (*rect, params(sigmas[i % 4]))).collect()
        };
        let hidden = match turn % 6 {
            0 | 1 => Hidden::blur(selection, &each(&rects, [sigma; 4])),
            2 => Hidden::fill(random, &picture, rects),
            3 => Hidden::mosaic(random, rects),
            4 if random.is(2) => Hidden::blur(selection, &[(rects[0], BlurParams::new(4.0, 5).unwrap())]),
            4 => Hidden::blur(selection, &each(&rects, [sigma, 2.0, 7.5, 0.0])),
            // Nothing has a weight beyond these.
            _ => Hidden {
                rects: vec![rect(0, 0, size[0], size[1])],
                ..Hidden::blur(Selection::ALL, &each(&weights.0.rects(), [sigma; 4]))
            },
        };
        let is_excluding = if turn < 12 { [0, 4, 5].contains(&(turn % 6)) } else { self.random.is(2) };
        self.check(&picture, &hidden, weights, is_excluding.then_some((excluded, &excluded_nodes)));
    }
}

const SIZES: [[u32; 2]; 9] = [[1, 1], [2, 3], [35, 22], [66, 34], [41, 27], [17, 2], [97, 61], [130, 50], [38, 74]];
const SELECTIONS: [Selection; 5] = [
    Selection::ALL,
    Selection { chroma: false, ..Selection::ALL },
    Selection { alpha: false, ..Selection::ALL },
    Selection { primary: false, ..Selection::ALL },
    Selection { primary: false, chroma: false, alpha: true },
];

/// The whole picture, or some rectangles, which may overlap and be beyond it.
fn some_rects(random: &mut Random, [width, height]: [u32; 2]) -> Vec<Rect> {
    let whole = rect(0, 0, width, height);
    let count = random.pick(&[0, 0, 1, 3]);
    let some = (0..count).map(|_| {
        let [x, y] = [random.below(width), random.below(height)];
        rect(x, y, 1 + random.below(width - x), 1 + random.below(2 * height))
    });
    let some: Vec<Rect> = some.collect();
    if some.is_empty() { vec![whole] } else { some }
}

/// A case with soft edges everywhere: a mask of noise of the size of the picture, and other objects.
fn soft_case(random: &mut Random, size: [u32; 2]) -> Case {
    let size = (size[0], size[1]);
    let mut case = Case::of(random, size);
    case.edge = Edge { grow: case.edge.grow.clamp(-9, 9), feather: case.edge.feather.min(12) };
    if random.below(3) > 0 {
        case.edge = Edge::default();
        let samples = (0..size.0 * size.1).map(|_| random.pick(&[0, 20, 64, 100, 130, 200, 250, 255])).collect();
        case.items.insert(0, whole(size, Form::Mask { columns: size.0, rows: size.1, samples }));
    }
    case
}

fn params(sigma: f64) -> BlurParams {
    BlurParams::new(sigma, 0).unwrap()
}

/// Padding bits and the bytes between rows included, with every kind of cover and with weights that are all 0.
#[test]
fn every_byte_is_that_of_the_oracle() {
    let mut checks = Checks::new(3);
    let kinds = all_kinds();
    assert!(kinds.len() > 70, "{}", kinds.len());
    for (number, planes) in kinds.iter().enumerate() {
        (0..16).for_each(|turn| checks.turn(planes, SIZES[(number + turn * 7) % SIZES.len()], turn));
    }
}

/// Cells of more than one luma sample, several tiles and several threads.
#[test]
fn large_pictures() {
    let mut checks = Checks::new(4);
    for (turn, planes) in all_kinds().iter().enumerate() {
        let size = [[701, 21], [19, 1100], [1283, 9], [6, 2060], [530, 97]][turn % 5];
        checks.turn(planes, size, turn % 12);
    }
}

/// The last rows and columns, and an only row for both fields.
#[test]
fn pictures_of_few_rows() {
    let mut checks = Checks::new(5);
    checks.engines.truncate(1);
    for planes in all_kinds() {
        (1..11).for_each(|height| checks.turn(&planes, [1 + height * 3 % 10, height], height as usize));
    }
}

/// Nobody knows what weights of another size are for: they are refused before anything is written.
#[test]
fn weights_are_for_pictures_of_their_size() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    for planes in all_kinds() {
        let picture = Picture::new(&resized(&planes, [40, 30]), 3);
        let [width, height] = picture.size();
        let hidden = Hidden::blur(Selection::ALL, &[(rect(0, 0, 40, 30), params(3.0))]);
        for size in [(width, height - 1), (width - 1, height), (1, 1), (width + 1, height), (4000, 3000)] {
            let [other, fitting] = [size, (width, height)].map(|size| Weights::outside(size, &[], Edge::default()));
            for (weights, excluded) in [(other.clone(), None), (fitting, Some(other))] {
                let cover = Cover { soft: Some(Softness { weights, excluded }), ..hidden.cover.clone() };
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

/// Whether a luma sample is the object's, of which what is covered `errs_outwards`: any part of it in a box, its centre in an ellipse
/// or in a sample of a mask that is inside. Of what errs inwards all of it in a box, and in a mask also all samples inside whose
/// centres it has.
fn has_sample(Item { area, form }: &Item, x: u32, y: u32, errs_outwards: bool) -> bool {
    let outwards =
        |edge: f64, sign: f64| if errs_outwards { sign * (sign * edge).ceil() } else { sign * (sign * edge).floor() };
    let begin = [area.left, area.top].map(|edge| outwards(edge, -1.0) as i64);
    let end = [area.right, area.bottom].map(|edge| outwards(edge, 1.0) as i64);
    let length = [end[0] - begin[0], end[1] - begin[1]];
    let at = [i64::from(x) - begin[0], i64::from(y) - begin[1]];
    if !(0..2).all(|axis| (0..length[axis]).contains(&at[axis])) {
        return false;
    }
    match form {
        Form::Box => true,
        Form::Ellipse => {
            let [dx, dy] = [0, 1].map(|axis| (2 * at[axis] - length[axis] + 1) as f64 / length[axis] as f64);
            dx * dx + dy * dy <= 1.0
        }
        Form::Mask { columns, rows, samples } => {
            let met = |axis: usize, count: u32| {
                let (at, length, count) = (at[axis], length[axis], i64::from(count));
                let own = (2 * at + 1) * count / (2 * length);
                // The first sample whose centre is not before a luma sample.
                let first = |at: i64| -(length - 2 * count * at).div_euclid(2 * length);
                if errs_outwards { own..own + 1 } else { own.min(first(at))..(own + 1).max(first(at + 1)) }
            };
            let (across, down) = (met(0, *columns), met(1, *rows));
            let mut met = down.flat_map(|row| across.clone().map(move |column| row * i64::from(*columns) + column));
            met.all(|i| samples[i as usize] >= 128)
        }
    }
}

const LONG_SIZES: [(u32, u32); 6] = [(61, 37), (640, 90), (130, 700), (1300, 70), (2100, 33), (3840, 40)];

/// Every luma sample that an object has any part of is covered wholly, whatever its edge, and nothing beyond its reach has a weight.
#[test]
fn covered_samples_are_never_weakened() {
    let mut random = Random(Noise(7));
    let mut checked = 0_u64;
    for turn in 0..360 {
        let size = LONG_SIZES[turn % 6];
        let mut case = Case::of(&mut random, size);
        case.items.extend((case.items.is_empty()).then(|| item(&mut random, size)));
        case.edge = Edge { grow: case.edge.grow.max(0), feather: case.edge.feather.min(60) };
        let [weights, _, excluded] = case.weights();
        let rects = weights.rects();
        let reached: Vec<Rect> = case.objects().iter().filter_map(|one| one.reach(case.edge, size)).collect();
        for y in 0..size.1 {
            for (x, (weight, excluded)) in (0..).zip(row(&weights, y).into_iter().zip(row(&excluded, y))) {
                let mut inside = case.items.iter().filter(|item| has_sample(item, x, y, true)).peekable();
                let is_inside = inside.peek().is_some();
                assert!(!is_inside || weight == 255, "({x}, {y}) has {weight}: {case:?}");
                checked += u64::from(is_inside);
                let has = |rect: &Rect| (rect.x()..rect.right()).contains(&x) && (rect.y()..rect.bottom()).contains(&y);
                assert!(weight == 0 || rects.iter().any(has), "({x}, {y}) is not in {rects:?}: {case:?}");
                assert!(weight == 0 || reached.iter().any(has), "({x}, {y}) is beyond reach, {reached:?}: {case:?}");
                let is_drawn = inside.any(|item| !matches!(item.form, Form::Mask { .. }));
                assert!(!is_drawn || excluded == 255, "({x}, {y}) is not excluded: {case:?}");
            }
        }
    }
    assert!(checked > 1_000_000, "{checked} samples");
}

/// A mask over a part of a picture, all of it the object but for one to three samples or a column: in pictures whose nodes are 1 to 16
/// samples apart, of masks finer and coarser than those.
fn with_holes(random: &mut Random, turn: usize) -> Case {
    let side = |random: &mut Random| 1 + random.below([40, 520, 1100, 2100, 4200][turn % 5]);
    let size = if turn.is_multiple_of(2) { (side(random), 30) } else { (40, side(random)) };
    let [columns, rows] = match turn % 4 {
        0 => [size.0, size.1],
        1 => [size.0, size.1].map(|side| 1 + random.below(side)),
        2 => [size.0, size.1].map(|side| 1 + random.below(2 * side)),
        _ => [40; 2].map(|side| 1 + random.below(side)),
    };
    let mut samples = vec![255; (columns * rows) as usize];
    for _ in 0..=random.below(3) {
        samples[random.below(columns * rows) as usize] = [0, 127][turn % 2];
    }
    if random.is(4) {
        let gap = random.pick(&[0, columns / 3, columns - 1]) as usize;
        samples[gap..].iter_mut().step_by(columns as usize).for_each(|sample| *sample = 0);
    }
    let is_whole = random.is(4);
    let [(left, right), (top, bottom)] = [size.0, size.1].map(|side| {
        let begin = if is_whole { 0 } else { random.below(side) };
        (f64::from(begin), f64::from(if is_whole { side } else { begin + 1 + random.below(side - begin) }))
    });
    let item = Item { area: Area { left, top, right, bottom }, form: Form::Mask { columns, rows, samples } };
    Case { size, items: vec![item], edge: Edge::default(), sigma: 0.0 }
}

/// Where all but objects is covered and they do not grow, nothing shows of a sample that is not an object's, not even of one alone.
/// What a feather does not reach is shown, up to the edges of the picture.
#[test]
fn nothing_shows_that_is_not_the_object() {
    let mut random = Random(Noise(9));
    let (mut hidden, mut shown) = (0_u64, 0_u64);
    for turn in 0..760 {
        let case = if turn % 2 == 0 {
            let case = Case::of(&mut random, LONG_SIZES[turn / 2 % 6]);
            Case { edge: Edge { grow: case.edge.grow.min(0), feather: case.edge.feather.min(60) }, ..case }
        } else {
            with_holes(&mut random, turn / 2)
        };
        let weights = Weights::outside(case.size, &case.objects(), case.edge);
        for y in 0..case.size.1 {
            for (x, weight) in (0..).zip(row(&weights, y)) {
                let is_object = case.items.iter().any(|item| has_sample(item, x, y, false));
                assert!(weight == 255 || is_object, "({x}, {y}) has {weight}: {:?} of {:?}", case.edge, case.size);
                hidden += u64::from(!is_object);
                shown += u64::from(weight == 0);
            }
        }
        let columns = 1 + random.below(900);
        let all = whole(case.size, Form::Mask { columns, rows: 1, samples: vec![255; columns as usize] });
        let weights = Weights::outside(case.size, &[all.object()], case.edge);
        assert!((0..case.size.1).all(|y| row(&weights, y).iter().all(|weight| *weight == 0)), "{:?}", case.size);
    }
    assert!(hidden > 1_000_000 && shown > 1_000_000, "{hidden} samples are not the objects', {shown} are shown");
}

/// What is shown shrinks from where it ends beyond the picture: in a larger picture the weights are the same. What is covered shrinks
/// no more than that.
#[test]
fn objects_shrink_from_beyond_the_picture() {
    const MARGIN: u32 = 64;
    let mut random = Random(Noise(12));
    let (mut covered, mut shown) = (0, 0);
    for turn in 0..300 {
        let size = (1 + random.below(120), 1 + random.below(90));
        let wide = (size.0 + 2 * MARGIN, size.1 + 2 * MARGIN);
        let edge = Edge { grow: -1 - random.below(MARGIN) as i32, feather: 0 };
        let [(left, right), (top, bottom)] = [size.0, size.1].map(|side| {
            let begin = random.below(side + MARGIN) as i32 - MARGIN as i32;
            // Not further than the larger picture, and not to an edge of this one.
            let end = begin + 1 + random.below(side + MARGIN - begin.unsigned_abs().min(MARGIN)) as i32;
            let is_cut = |at: i32| i32::from(at == 0 || at == side as i32);
            (f64::from(begin - is_cut(begin)), f64::from(end + is_cut(end)))
        });
        let form = &[Form::Box, Form::Ellipse, Form::Mask { columns: 3, rows: 2, samples: vec![255; 6] }][turn % 3];
        let objects = |by: u32| {
            let area = Area::from_corner(left + f64::from(by), top + f64::from(by), right - left, bottom - top);
            [Item { area, form: form.clone() }.object()]
        };
        for (of, is_shown) in [(Weights::inside as fn(_, &[_], _) -> Weights, false), (Weights::outside, true)] {
            let [got, want] = [of(size, &objects(0), edge), of(wide, &objects(MARGIN), edge)];
            for y in 0..size.1 {
                let (got, want) = (row(&got, y), &row(&want, y + MARGIN)[MARGIN as usize..][..size.0 as usize]);
                let is_safe = got.iter().zip(want).all(|(got, want)| if is_shown { got == want } else { got >= want });
                assert!(
                    is_safe,
                    "row {y} of {size:?}, {edge:?}: {left} {top} {right} {bottom} {form:?}:\n{got:?}\n{want:?}"
                );
                let count = got.iter().filter(|weight| (**weight == 0) == is_shown).count();
                *(if is_shown { &mut shown } else { &mut covered }) += count;
            }
        }
    }
    assert!(covered > 10_000 && shown > 10_000, "{covered} samples covered, {shown} shown");
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

/// A blur of all of a picture and of its background without an object, at a σ.
fn background_blur(picture: &Picture, item: &Item, sigma: f64) -> [Cover; 2] {
    let [width, height] = picture.size();
    let (size, object) = ((width, height), [item.object()]);
    let plain = Hidden::blur(Selection::ALL, &[(rect(0, 0, width, height), params(sigma))]).cover;
    let weights = Weights::outside(size, &object, Edge::default());
    let excluded = Some(Weights::excluded(size, &object, sigma));
    [plain.clone(), Cover { soft: Some(Softness { weights, excluded }), ..plain }]
}

/// A picture of one value in each channel stays that, because every mean of it is that value.
#[test]
fn flat_pictures_stay_flat() {
    let mut random = Random(Noise(8));
    let mut engine = Engine::with_cpu(CpuEngine::new());
    for (turn, planes) in all_kinds().iter().enumerate() {
        let mut picture = Picture::new(&resized(planes, [160, 90]), 0);
        let [width, height] = picture.size();
        let fill = Hidden::fill(&mut random, &picture, vec![rect(0, 0, width, height)]);
        engine.cover(&fill.cover, &mut picture.frame_mut()).unwrap();
        // A mask with background between its samples, and a solid object, which is larger than the reach of the blur.
        let is_solid = turn.is_multiple_of(2);
        let mut is_object = |i: u32| if is_solid { (3..21).contains(&(i % 24)) } else { random.below(5) < 2 };
        let samples = (0..576).map(|i| if is_object(i) { 255 } else { 0 }).collect();
        let form = Form::Mask { columns: 24, rows: 24, samples };
        let item = Item { area: Area::from_corner(20.0, 10.0, 90.0, 60.0), form };
        let mut out = picture.clone();
        engine.cover(&background_blur(&picture, &item, 9.0)[1], &mut out.frame_mut()).unwrap();
        for (plane, layout) in picture.planes.iter().enumerate() {
            let [before, after] = [&picture, &out].map(|one| values(layout, &one.bytes[plane]));
            assert!(before == after, "steps in plane {plane} of {planes:?}");
        }
    }
}

/// A grey picture.
fn grey((width, height): (u32, u32), value: impl Fn(u32, u32) -> u8) -> Picture {
    let layout = PlaneLayout::new(width, height, 1, 8);
    let mut picture = Picture::new(&[layout], 0);
    for (y, row) in (0..).zip(picture.bytes[0].chunks_mut(pitch(&layout))) {
        (0..width).for_each(|x| row[x as usize] = value(x, y));
    }
    picture
}

/// White discs on a gradient and on flat grounds, in the oracle alone: how far what is excluded wholly is from the ground that it
/// takes the place of, and how far where a blur beside the disc reaches.
#[test]
fn the_fill_comes_from_the_background() {
    const SIZE: (u32, u32) = (1280, 720);
    // A disc of radius 300 hides 75 steps of the gradient.
    let gradient = |x: u32| (40 + x / 8) as u8;
    let grounds = [
        (None, f64::INFINITY, [-4, 9]),
        (None, 48.0, [-4, 7]),
        (Some(0), f64::INFINITY, [0, 0]),
        (Some(60), f64::INFINITY, [0, 0]),
        (Some(200), f64::INFINITY, [0, 0]),
    ];
    for radius in [30.0, 80.0, 150.0, 300.0] {
        let from_middle = |x: f64, y: f64| (x - 640.0).hypot(y - 360.0);
        let has_mask = |i: u32| from_middle(f64::from(i % 320 * 4 + 2), f64::from(i / 320 * 4 + 2)) <= radius;
        let samples = (0..320 * 180).map(|i| if has_mask(i) { 255 } else { 0 }).collect();
        let form = Form::Mask { columns: 320, rows: 180, samples };
        let excluded = Nodes::excluded(SIZE, &[whole(SIZE, form)], 16.0);
        for (flat, near, [least, most]) in grounds {
            let ground = |x: u32| flat.unwrap_or(gradient(x));
            let is_disc = |x: u32, y: u32| from_middle(f64::from(x) + 0.5, f64::from(y) + 0.5) <= radius;
            let picture = grey(SIZE, |x, y| if is_disc(x, y) { 255 } else { ground(x) });
            let samples = values(&picture.planes[0], &filled(&picture, &excluded).bytes[0]);
            let weights = excluded.of_samples(&picture.planes, 0);
            let is_near = |i: u32| from_middle(f64::from(i % SIZE.0), f64::from(i / SIZE.0)) >= radius - near;
            let wholly = (0..).zip(samples).zip(weights).filter(|((i, _), weight)| *weight == 255 && is_near(*i));
            let above = wholly.map(|((i, sample), _)| i32::from(sample) - i32::from(ground(i % SIZE.0)));
            let ends = above.fold([0, 0], |[least, most], one| [one.min(least), one.max(most)]);
            println!("radius {radius}, from the ground {} at most {near} from the edge: {ends:?}", ground(0));
            assert!(ends[0] >= least && ends[1] <= most, "{ends:?}, radius {radius}, ground {}", ground(0));
        }
    }
}

/// A white object on black, its mask two samples too small: how much of it glows beside it, in 8-bit steps.
#[test]
fn objects_do_not_glow_beside_themselves() {
    let size = (1280, 720);
    let picture = grey(size, |x, y| if y >= 200 && (400..800).contains(&x) { 255 } else { 0 });
    let is_object = |i: usize| i / 256 > 210 * 256 / 720 && (83..158).contains(&(i % 256));
    let samples = (0..65536).map(|i| if is_object(i) { 255 } else { 0 }).collect();
    let item = whole(size, Form::Mask { columns: 256, rows: 256, samples });
    let mut engine = Engine::with_cpu(CpuEngine::new());
    let [plain, background] = background_blur(&picture, &item, 16.0).map(|cover| {
        let mut out = picture.clone();
        engine.cover(&cover, &mut out.frame_mut()).unwrap();
        out.bytes[0][500 * pitch(&picture.planes[0])..][..1280].to_vec()
    });
    for distance in [1, 4, 8, 16, 32] {
        let [plain, background] = [&plain, &background].map(|row| row[799 + distance]);
        println!("{distance:2} samples beside: plain blur {plain:3}, background {background:3}");
    }
    assert!(background[800..].iter().all(|value| *value <= 1), "{:?}", &background[800..840]);
    assert!(plain[800] > 100);
    assert_eq!(background[500], 255, "the object is shown");
}
