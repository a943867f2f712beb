//! Soft covers against the oracle: the weights, and every byte of covered pictures.

use std::fmt::Write as _;
use std::ops::Range;
use std::panic::AssertUnwindSafe;

use crate::common::Noise;
use crate::common::pictures::{Picture, kinds, pitch, rect, resized, strongest};
use crate::common::python;
use crate::common::soft_oracle::{Form, Item, Nodes, background, filled, mixed, values};
use gstcudagaussblur::cpu::{CpuEngine, InstructionSet};
use gstcudagaussblur::engine::{BlurRegion, Cover, Engine, FrameAccess, Hide, Softness};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{Destination, PlaneLayout, Role, SampleLayout, Source, Split};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::plan::Selection;
use gstcudagaussblur::filter::regions::{Area, Rect};
use gstcudagaussblur::filter::weights::{Edge, Mask, Object, Shape, Weights};

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

    /// As `tests/masks_reference.py` reads it.
    fn to_json(&self, rows: &[u32]) -> String {
        let objects = self.items.iter().map(|Item { area, form }| {
            let shape = match form {
                Form::Box => r#""shape":"box""#.to_owned(),
                Form::Ellipse => r#""shape":"ellipse""#.to_owned(),
                Form::Mask { columns, rows, samples } => {
                    format!(r#""shape":"mask","columns":{columns},"rows":{rows},"samples":"{}""#, hex(samples))
                }
            };
            let Area { left, top, right, bottom } = area;
            format!(r#"{{"area":[{left},{top},{right},{bottom}],{shape}}}"#)
        });
        let objects = objects.collect::<Vec<_>>().join(",");
        let ((width, height), Edge { grow, feather }, sigma) = (self.size, self.edge, self.sigma);
        format!(
            r#"{{"width":{width},"height":{height},"grow":{grow},"feather":{feather},"sigma":{sigma},"rows":{rows:?},"objects":[{objects}]}}"#
        )
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

const KINDS: [&str; 3] = ["inside", "outside", "excluded"];

#[test]
fn the_oracle_is_the_reference() {
    let mut random = Random(Noise(1));
    let mut cases: Vec<Case> = (0..400).map(|_| Case::random(&mut random, 16384)).collect();
    cases.extend([(1, 1), (640, 360), (1920, 1080), (3840, 2160)].map(|size| Case::of(&mut random, size)));
    let rows: Vec<Vec<u32>> = cases
        .iter()
        .map(|case| (0..3).map(|_| random.below(case.size.1)).chain([0, case.size.1 - 1]).collect())
        .collect();
    let lines: Vec<String> = cases.iter().zip(&rows).map(|(case, rows)| case.to_json(rows)).collect();
    let file = std::env::temp_dir().join(format!("cudagaussblur-masks-{}", std::process::id()));
    std::fs::write(&file, lines.join("\n")).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/masks_reference.py");
    let text = python::output(python::with("numpy").arg(script).arg(&file));
    std::fs::remove_file(&file).unwrap();
    let mut expected = text.lines();
    for (case, rows) in cases.iter().zip(rows) {
        for (kind, nodes) in KINDS.into_iter().zip(case.expected()) {
            let line = expected.next().expect("three lines for each case");
            let ((columns, count, values), g) = (nodes.nodes(), nodes.cell());
            let mut words = line.split(' ');
            let mut next = || words.next().unwrap();
            assert_eq!([next(), next(), next()], [g, columns, count].map(|n| n.to_string()).each_ref(), "{case:?}");
            assert!(next() == hex(&values), "{kind} of {case:?}");
            for y in rows.iter().copied() {
                let row: Vec<u8> = (0..case.size.0).map(|x| nodes.at(x, y) as u8).collect();
                assert!(next() == hex(&row), "row {y}, {kind} of {case:?}");
            }
        }
    }
    assert_eq!(expected.next(), None);
}

/// Weights of a row of luma samples.
fn row(weights: &Weights, y: u32) -> Vec<u8> {
    let mut row = vec![0; weights.size().0 as usize];
    weights.row(y, &mut row);
    row
}

#[test]
fn weights_are_those_of_the_oracle() {
    let mut random = Random(Noise(2));
    let (mut cases, mut between) = (0, 0);
    while cases < 2500 {
        let case = Case::random(&mut random, if cases % 16 > 0 { 79 } else { 16384 });
        cases += 1;
        for (kind, (weights, expected)) in KINDS.into_iter().zip(case.weights().into_iter().zip(case.expected())) {
            let (columns, rows, values) = expected.nodes();
            assert_eq!((weights.cell(), weights.size()), (expected.cell(), case.size));
            assert_eq!((weights.nodes().0, weights.nodes().1), (columns, rows));
            let differing = values.iter().zip(weights.nodes().2).position(|(want, got)| want != got);
            let place = differing.map(|i| (i % columns as usize, i / columns as usize));
            assert!(place.is_none(), "case {cases}: node {place:?}, {kind} of {case:?}");
            for _ in 0..3 {
                let y = random.below(case.size.1);
                let wanted: Vec<u8> = (0..case.size.0).map(|x| expected.at(x, y) as u8).collect();
                between += wanted.iter().filter(|weight| ![0, 255].contains(*weight)).count();
                assert!(row(&weights, y) == wanted, "case {cases}: row {y}, {kind} of {case:?}");
            }
        }
    }
    assert!(between > 30_000, "{between} weights are between nothing and all");
}

/// Layouts that the case table lacks: planar chroma of every subsampling, with and without alpha, and padding bits in planes
/// of several roles; each progressive and interlaced.
fn more_kinds() -> Vec<Vec<PlaneLayout>> {
    use Role::{Alpha as A, Chroma as C, Primary as L};
    use SampleLayout::{LsbAligned as Low, MsbAligned as High};
    let plane = |[across, down]: [u32; 2], roles: &[Role], depth, sample_layout| {
        let mut layout = PlaneLayout { sample_layout, ..PlaneLayout::new(1, 1, roles.len() as u8, depth) };
        layout.sigma_scale = [across, down].map(|pixels| 1.0 / f64::from(pixels));
        layout.roles[..roles.len()].copy_from_slice(roles);
        layout
    };
    let planar = |sub, depth, sample_layout| {
        vec![
            plane([1, 1], &[L], depth, sample_layout),
            plane(sub, &[C], depth, sample_layout),
            plane(sub, &[C], depth, sample_layout),
        ]
    };
    let mut kinds = vec![
        planar([2, 2], 12, Low),
        planar([2, 1], 8, Low),
        planar([2, 1], 10, High),
        planar([4, 1], 8, Low),
        planar([4, 4], 8, Low),
        planar([1, 2], 9, Low),
        planar([4, 4], 16, Low),
        vec![plane([1, 1], &[L], 16, High), plane([2, 2], &[C, C], 16, High)],
        vec![plane([1, 1], &[L, C, C, A], 12, High)],
        vec![plane([1, 1], &[A, L, L, L], 8, Low)],
        vec![plane([1, 1], &[L, L, L, A], 10, SampleLayout::Packed1010102)],
        vec![plane([1, 1], &[L, C, L, C], 8, SampleLayout::Yuv422 { luma: 0 })],
        vec![plane([1, 1], &[C, L, C, L], 8, SampleLayout::Yuv422 { luma: 1 })],
        vec![plane([1, 1], &[L, C, L, C], 10, SampleLayout::Yuv422 { luma: 0 })],
        vec![plane([1, 1], &[C, L, C, L], 16, SampleLayout::Yuv422 { luma: 1 })],
    ];
    let with_alpha = [planar([2, 2], 8, Low), planar([2, 1], 10, Low)];
    kinds.extend(with_alpha.map(|mut planes| {
        planes.push(PlaneLayout { roles: [A; 4], ..planes[0] });
        planes
    }));
    let of_split =
        |split| kinds.iter().map(move |planes| planes.iter().map(|plane| PlaneLayout { split, ..*plane }).collect());
    [Split::Whole, Split::Fields, Split::Rows, Split::SideBySide, Split::TopBottom]
        .into_iter()
        .flat_map(of_split)
        .collect()
}

fn all_kinds() -> Vec<Vec<PlaneLayout>> {
    kinds().into_iter().chain(more_kinds()).collect()
}

/// An engine for every instruction set.
fn engines() -> Vec<(&'static str, Engine)> {
    let engine =
        |set: InstructionSet| (set.name(), Engine::with_cpu(CpuEngine::new().with_instruction_set(set).unwrap()));
    InstructionSet::available().into_iter().map(engine).collect()
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

/// What hides, and what it writes: for every plane and byte, of these channels.
struct Hidden {
    cover: Cover,
    is_written: Vec<Vec<bool>>,
    planes: Selection,
}

impl Hidden {
    fn new(cover: Cover, picture: &Picture, rects: &[Rect], planes: Selection) -> Self {
        let regions: Vec<(Rect, f64)> = rects.iter().map(|rect| (*rect, 1.0)).collect();
        let is_written = |plane| strongest(&picture.planes, plane, &regions).iter().map(|one| *one > 0.0).collect();
        Self { cover, is_written: (0..picture.planes.len()).map(is_written).collect(), planes }
    }
}

fn blur(picture: &Picture, planes: Selection, regions: &[(Rect, BlurParams)]) -> Hidden {
    let rects: Vec<Rect> =
        regions.iter().filter(|(_, params)| !params.is_passthrough()).map(|(rect, _)| *rect).collect();
    let regions = regions.iter().map(|(rect, params)| BlurRegion { rect: *rect, params: *params }).collect();
    Hidden::new(Cover::from(Hide::Blur { planes, regions }), picture, &rects, planes)
}

fn mosaic(random: &mut Random, picture: &Picture, rects: &[Rect]) -> Hidden {
    let object = Area::from_corner(f64::from(random.below(9)), -3.5, 40.0, 30.0);
    let regions = rects.iter().map(|rect| MosaicRegion::new(*rect, object, 1 + random.below(5))).collect();
    Hidden::new(Cover::from(Hide::Mosaic(regions)), picture, rects, Selection::ALL)
}

fn fill(random: &mut Random, picture: &Picture, rects: &[Rect]) -> Hidden {
    let values = picture.planes.iter().map(|layout| {
        let is_short = |c: usize| layout.sample_layout == SampleLayout::Packed1010102 && c == 3;
        let depth = |c: usize| if is_short(c) { 2 } else { layout.depth };
        [0, 1, 2, 3].map(|c| (random.0.next() & ((1 << depth(c)) - 1)) as u16)
    });
    let values = values.collect();
    Hidden::new(Cover::from(Hide::Fill { rects: rects.to_vec(), values }), picture, rects, Selection::ALL)
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

/// Covers a picture in place and in a copy with every engine, and compares every byte with the oracle.
fn check(
    engines: &mut [(&'static str, Engine)],
    picture: &Picture,
    hidden: &Hidden,
    (weights, nodes): (Weights, &Nodes),
    excluded: Option<(Weights, &Nodes)>,
) {
    let cover = covered(picture, &hidden.cover, excluded.as_ref().map(|(_, nodes)| *nodes));
    let expected = mixed(picture, &cover, nodes, hidden.planes, |plane, byte| hidden.is_written[plane][byte]);
    let excluded = excluded.map(|(weights, _)| weights);
    let cover = Cover { soft: Some(Softness { weights, excluded }), ..hidden.cover.clone() };
    for (name, engine) in engines {
        let mut in_place = picture.clone();
        assert!(engine.cover(&cover, &mut in_place.frame_mut()).unwrap().is_none());
        let mut copy = Picture::new(&picture.planes, 99);
        let frames = Copied { source: picture, destination: &mut copy };
        assert!(engine.run(&cover, frames).unwrap().failure.is_none());
        for (how, got) in [("in place", &in_place), ("in a copy", &copy)] {
            for (plane, (got, want)) in got.bytes.iter().zip(&expected.bytes).enumerate() {
                let first = got.iter().zip(want).position(|(got, want)| got != want);
                let pitch = pitch(&picture.planes[plane]);
                let place = first.map(|i| (i % pitch, i / pitch));
                let values = first.map(|i| (got[i], want[i], picture.bytes[plane][i]));
                let differing = got.iter().zip(want).filter(|(got, want)| got != want).count();
                assert!(
                    differing == 0,
                    "{name}, {how}: {differing} bytes of plane {plane} differ, the first (byte, row) {place:?} is not as expected \
                     and in the source {values:?}: {:?} with an exclusion: {} of {:?}",
                    hidden.cover,
                    cover.soft.as_ref().is_some_and(|soft| soft.excluded.is_some()),
                    picture.planes
                );
            }
        }
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
        let form = Form::Mask { columns: size.0, rows: size.1, samples };
        case.items.insert(0, Item { area: Area::from_corner(0.0, 0.0, size.0.into(), size.1.into()), form });
    }
    case
}

fn params(sigma: f64) -> BlurParams {
    BlurParams::new(sigma, 0).unwrap()
}

/// Covers a picture of this kind: `turn` picks what with.
fn check_turn(
    engines: &mut [(&'static str, Engine)],
    random: &mut Random,
    planes: &[PlaneLayout],
    size: [u32; 2],
    turn: usize,
) {
    let picture = Picture::new(&resized(planes, size), random.0.next());
    let size = picture.size();
    let case = soft_case(random, size);
    let ([inside, outside, excluded], [inside_nodes, outside_nodes, excluded_nodes]) =
        (case.weights(), case.expected());
    let weights = if turn.is_multiple_of(2) { (outside, &outside_nodes) } else { (inside, &inside_nodes) };
    let rects = some_rects(random, size);
    let sigma = random.pick(&[0.7, 1.5, 3.0, 3.5, 6.0, 9.0, 20.0, 60.0]);
    let selection = if random.is(2) { Selection::ALL } else { random.pick(&SELECTIONS) };
    let all = |sigma: f64| rects.iter().map(|rect| (*rect, params(sigma))).collect::<Vec<_>>();
    let (hidden, excluded) = match turn % 6 {
        0 => (blur(&picture, selection, &all(sigma)), Some((excluded, &excluded_nodes))),
        1 => (blur(&picture, selection, &all(sigma)), None),
        2 => (fill(random, &picture, &rects), None),
        3 => (mosaic(random, &picture, &rects), None),
        4 => {
            let sigmas = [sigma, 2.0, 7.5, 0.0];
            let regions = rects.iter().enumerate().map(|(i, rect)| (*rect, params(sigmas[i % 4])));
            let of_size = random.is(2).then(|| (rects[0], BlurParams::new(4.0, 5).unwrap()));
            let regions: Vec<(Rect, BlurParams)> = match of_size {
                Some(one) => vec![one],
                None => regions.collect(),
            };
            (blur(&picture, selection, &regions), Some((excluded, &excluded_nodes)))
        }
        _ => {
            // Nothing has a weight beyond these.
            let regions: Vec<(Rect, BlurParams)> =
                weights.0.rects().into_iter().map(|rect| (rect, params(sigma))).collect();
            let whole = blur(&picture, Selection::ALL, &[(rect(0, 0, size[0], size[1]), params(sigma))]);
            let cover = blur(&picture, Selection::ALL, &regions).cover;
            (Hidden { cover, ..whole }, Some((excluded, &excluded_nodes)))
        }
    };
    check(engines, &picture, &hidden, weights, excluded);
}

#[test]
fn every_byte_is_that_of_the_oracle() {
    let mut random = Random(Noise(3));
    let mut engines = engines();
    let kinds = all_kinds();
    assert!(kinds.len() > 70, "{}", kinds.len());
    for (number, planes) in kinds.iter().enumerate() {
        for turn in 0..12 {
            let size = SIZES[(number + turn * 7) % SIZES.len()];
            check_turn(&mut engines, &mut random, planes, size, turn);
        }
    }
}

/// Cells of more than one luma sample, several tiles and several threads.
#[test]
fn large_pictures() {
    let mut random = Random(Noise(4));
    let mut engines = engines();
    for (turn, planes) in all_kinds().iter().enumerate() {
        let size = [[701, 21], [19, 1100], [1283, 9], [6, 2060], [530, 97]][turn % 5];
        check_turn(&mut engines, &mut random, planes, size, turn);
    }
}

/// The last rows and columns, and an only row for both fields.
#[test]
fn pictures_of_few_rows() {
    let mut random = Random(Noise(5));
    let mut engines = engines();
    engines.truncate(1);
    for planes in all_kinds() {
        for height in 1..11 {
            check_turn(&mut engines, &mut random, &planes, [1 + height * 3 % 10, height], height as usize);
        }
    }
}

/// As with a hard edge: the object itself may be beyond the picture.
#[test]
fn objects_grow_into_the_picture_from_beyond_it() {
    for (size, grow) in [((60, 40), 9), ((700, 40), 9), ((1300, 700), 30)] {
        let (width, height) = (f64::from(size.0), f64::from(size.1));
        let mask = |area| Mask::new(2, 2, vec![255; 4], area).unwrap();
        let edge = Edge { grow, feather: 0 };
        for area in [
            Area::from_corner(-24.0, 10.0, 20.0, 8.0),
            Area::from_corner(width + 3.0, 10.0, 20.0, 8.0),
            Area::from_corner(10.0, -24.0, 8.0, 20.0),
            Area::from_corner(10.0, height + 3.0, 8.0, 20.0),
        ] {
            for shape in [Shape::Box, Shape::Ellipse, Shape::Mask(mask(area))] {
                let weights = Weights::inside(size, &[Object { area, shape: shape.clone() }], edge);
                let middle = [f64::midpoint(area.left, area.right), f64::midpoint(area.top, area.bottom)];
                let [x, y] = [middle[0].clamp(0.0, width - 1.0), middle[1].clamp(0.0, height - 1.0)];
                assert_eq!(row(&weights, y as u32)[x as usize], 255, "{size:?} {area:?} {shape:?}");
            }
        }
    }
}

/// What is shown shrinks from where it ends beyond the picture: in a larger picture the weights are the same. What is covered shrinks
/// no more than that. A mask that ends at an edge of the picture has been cut off there, and does not shrink at that edge.
#[test]
fn objects_shrink_from_beyond_the_picture() {
    const MARGIN: u32 = 64;
    let mut random = Random(Noise(12));
    let (mut covered, mut shown) = (0, 0);
    for turn in 0..300 {
        let size = (1 + random.below(120), 1 + random.below(90));
        let wide = (size.0 + 2 * MARGIN, size.1 + 2 * MARGIN);
        let edge = Edge { grow: -1 - random.below(MARGIN) as i32, feather: 0 };
        let item = {
            let mut side = |side: u32| {
                let begin = random.below(side + MARGIN) as i32 - MARGIN as i32;
                // Not further than the larger picture, and not to an edge of this one.
                let end = begin + 1 + random.below(side + MARGIN - begin.unsigned_abs().min(MARGIN)) as i32;
                let is_cut = |at: i32| at == 0 || at == side as i32;
                [begin - i32::from(is_cut(begin)), end + i32::from(is_cut(end))].map(f64::from)
            };
            let ([left, right], [top, bottom]) = (side(size.0), side(size.1));
            let forms = [Form::Box, Form::Ellipse, Form::Mask { columns: 3, rows: 2, samples: vec![255; 6] }];
            Item { area: Area { left, top, right, bottom }, form: forms[turn % 3].clone() }
        };
        let objects = |by: u32| {
            let Area { left, top, right, bottom } = item.area;
            let area = Area::from_corner(left + f64::from(by), top + f64::from(by), right - left, bottom - top);
            [Item { area, form: item.form.clone() }.object()]
        };
        for (of, is_shown) in [(Weights::inside as fn(_, &[_], _) -> Weights, false), (Weights::outside, true)] {
            let [got, want] = [of(size, &objects(0), edge), of(wide, &objects(MARGIN), edge)];
            for y in 0..size.1 {
                let (got, want) = (row(&got, y), &row(&want, y + MARGIN)[MARGIN as usize..][..size.0 as usize]);
                let is_safe = got.iter().zip(want).all(|(got, want)| if is_shown { got == want } else { got >= want });
                assert!(is_safe, "row {y} of {size:?}, {edge:?}: {item:?}:\n{got:?}\n{want:?}");
                let count = got.iter().filter(|weight| (**weight == 0) == is_shown).count();
                *(if is_shown { &mut shown } else { &mut covered }) += count;
            }
        }
    }
    assert!(covered > 10_000 && shown > 10_000, "{covered} samples covered, {shown} shown");

    let edge = Edge { grow: -9, feather: 0 };
    for (size, area) in [
        ((90, 60), Area::from_corner(0.0, 0.0, 50.0, 60.0)),
        ((1300, 700), Area::from_corner(640.0, 0.0, 660.0, 700.0)),
    ] {
        let object = |form| [Item { area, form }.object()];
        let mask = object(Form::Mask { columns: 2, rows: 2, samples: vec![255; 4] });
        let [inside, outside] = [Weights::inside(size, &mask, edge), Weights::outside(size, &mask, edge)];
        // On the side of the picture's edge, and on the other one.
        let [cut, other] = if area.left == 0.0 { [0, 49] } else { [1299, 640] };
        for y in [0, size.1 / 2, size.1 - 1] {
            assert_eq!([cut, other].map(|x: usize| row(&inside, y)[x]), [255, 0], "{size:?} {y}");
            assert_eq!([cut, other].map(|x: usize| row(&outside, y)[x]), [0, 255], "{size:?} {y}");
        }
        let of_box = object(Form::Box);
        let [inside, outside] = [Weights::inside(size, &of_box, edge), Weights::outside(size, &of_box, edge)];
        for y in [0, size.1 / 2, size.1 - 1] {
            assert_eq!([&inside, &outside].map(|weights| row(weights, y)[cut]), [255; 2], "{size:?} {y}: covered");
        }
    }
}

/// Padding bits and the bytes between rows included.
#[test]
fn without_a_weight_every_byte_stays() {
    let mut random = Random(Noise(6));
    let mut engine = Engine::with_cpu(CpuEngine::new());
    let beyond = Object { area: Area::from_corner(500.0, 3.0, 30.0, 30.0), shape: Shape::Ellipse };
    for (turn, planes) in all_kinds().iter().enumerate() {
        let size = SIZES[turn % SIZES.len()];
        let picture = Picture::new(&resized(planes, size), turn as u64);
        let size = picture.size();
        let whole = [rect(0, 0, size[0], size[1])];
        let size = (size[0], size[1]);
        let weights = Weights::inside(size, &[beyond.clone()][..turn % 2], Edge { grow: 3, feather: 9 });
        assert!(weights.rects().is_empty());
        for hidden in [
            blur(&picture, Selection::ALL, &[(whole[0], params(9.0))]),
            mosaic(&mut random, &picture, &whole),
            fill(&mut random, &picture, &whole),
        ] {
            for excluded in [None, Some(Weights::excluded(size, &[], 9.0))] {
                let cover =
                    Cover { soft: Some(Softness { weights: weights.clone(), excluded }), ..hidden.cover.clone() };
                let mut out = picture.clone();
                engine.cover(&cover, &mut out.frame_mut()).unwrap();
                assert!(out.bytes == picture.bytes, "{cover:?} of {planes:?}");
            }
        }
    }
}

/// Where all but objects are covered, nothing shows of a sample of a mask that is not the object, not even if all around it are:
/// in pictures whose nodes are 1 to 16 samples apart, of masks finer and coarser than those.
#[test]
fn nothing_shows_of_a_sample_that_is_not_the_object() {
    let mut random = Random(Noise(11));
    let (mut holes, mut shown, mut next_to) = (0, 0, 0);
    for turn in 0..400 {
        let side = |random: &mut Random| 1 + random.below([40, 520, 1100, 2100, 4200][turn % 5]);
        let size = if turn % 2 == 0 { (side(&mut random), 30) } else { (40, side(&mut random)) };
        let [columns, rows] = match turn % 3 {
            0 => [size.0, size.1],
            1 => [size.0, size.1].map(|side| 1 + random.below(side)),
            _ => [40; 2].map(|side| 1 + random.below(side)),
        };
        let holes_in = 1 + random.below(3);
        let mut samples = vec![255; (columns * rows) as usize];
        (0..holes_in).for_each(|_| samples[random.below(columns * rows) as usize] = [0, 127][turn % 2]);
        let [x, y] = [size.0, size.1].map(|side| {
            let begin = if turn % 4 == 0 { 0 } else { random.below(side) };
            begin..if turn % 4 == 0 { side } else { begin + 1 + random.below(side - begin) }
        });
        let [left, right, top, bottom] = [x.start, x.end, y.start, y.end].map(f64::from);
        let area = Area { left, top, right, bottom };
        let mask = Mask::new(columns, rows, samples.clone(), area).unwrap();
        let object = Object { area, shape: Shape::Mask(mask) };
        let weights = Weights::outside(size, &[object], Edge::default());
        let mut row = vec![0; size.0 as usize];
        // The sample of the mask that has the middle of a luma sample.
        let own =
            |at: u32, count: u32, axis: &Range<u32>| (2 * (at - axis.start) + 1) * count / (2 * axis.len() as u32);
        for v in 0..size.1 {
            weights.row(v, &mut row);
            for (u, weight) in (0..).zip(&row) {
                let is_in_area = x.contains(&u) && y.contains(&v);
                if !is_in_area || samples[(own(v, rows, &y) * columns + own(u, columns, &x)) as usize] < 128 {
                    holes += u32::from(is_in_area);
                    assert_eq!(*weight, 255, "({u}, {v}) of {size:?}, a mask of {columns}x{rows} over {area:?}");
                } else {
                    shown += u64::from(*weight == 0);
                    next_to += u64::from(*weight > 0);
                }
            }
        }
    }
    println!("{holes} samples hidden, of the object {shown} shown and {next_to} beside them not wholly");
    assert!(holes > 10_000 && shown > 1_000_000, "{holes} {shown}");
}

/// Nobody knows what weights of another size are for: they are refused before anything is written.
#[test]
fn weights_are_for_pictures_of_their_size() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    for planes in all_kinds() {
        let picture = Picture::new(&resized(&planes, [40, 30]), 3);
        let [width, height] = picture.size();
        let hidden = blur(&picture, Selection::ALL, &[(rect(0, 0, 40, 30), params(3.0))]);
        for size in [(width, height - 1), (width - 1, height), (1, 1), (width + 1, height), (4000, 3000)] {
            let other = Weights::outside(size, &[], Edge::default());
            let fitting = Weights::outside((width, height), &[], Edge::default());
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
    let of = |size, areas: &[[f64; 4]]| {
        let object = |[x, y, width, height]: &[f64; 4]| Object {
            area: Area::from_corner(*x, *y, *width, *height),
            shape: Shape::Box,
        };
        let objects: Vec<_> = areas.iter().map(object).collect();
        Weights::inside(size, &objects, Edge::default()).rects()
    };
    assert_eq!(
        of((512, 512), &[[100.0, 300.0, 40.0, 30.0], [400.0, 300.0, 20.0, 4.0]]),
        [rect(64, 256, 128, 64), rect(384, 256, 64, 64), rect(64, 320, 128, 64)]
    );
    assert_eq!(of((3840, 2160), &[[1000.0, 1000.0, 100.0, 100.0]]), [rect(960, 960, 192, 320)]);
    assert_eq!(of((500, 300), &[[470.0, 280.0, 90.0, 90.0]]), [rect(448, 256, 52, 44)]);
    assert_eq!(of((500, 300), &[]), []);
}

/// Every luma sample that an object has any part of is covered wholly, whatever its edge.
#[test]
fn covered_samples_are_never_weakened() {
    let mut random = Random(Noise(7));
    let mut checked = 0_u64;
    for turn in 0..360 {
        let size = [(61, 37), (640, 90), (130, 700), (1300, 70), (2100, 33), (3840, 40)][turn % 6];
        let mut case = Case::of(&mut random, size);
        case.items.extend((case.items.is_empty()).then(|| item(&mut random, size)));
        case.edge.grow = case.edge.grow.max(0);
        case.edge.feather = case.edge.feather.min(60);
        let [weights, _, excluded] = case.weights();
        let is_drawn = |item: &Item| !matches!(item.form, Form::Mask { .. });
        let rects = weights.rects();
        let reached: Vec<Rect> = case.objects().iter().filter_map(|one| one.reach(case.edge, size)).collect();
        for y in 0..size.1 {
            let (row, excluded) = (row(&weights, y), row(&excluded, y));
            for x in 0..size.0 {
                let is_inside = case.items.iter().any(|item| has_sample(item, x, y));
                let weight = row[x as usize];
                assert!(!is_inside || weight == 255, "({x}, {y}) has {weight}: {case:?}");
                checked += u64::from(is_inside);
                if weight > 0 {
                    let has =
                        |rect: &Rect| (rect.x()..rect.right()).contains(&x) && (rect.y()..rect.bottom()).contains(&y);
                    assert!(rects.iter().any(has), "({x}, {y}) is not in {rects:?}: {case:?}");
                    assert!(reached.iter().any(has), "({x}, {y}) is not in reach, {reached:?}: {case:?}");
                }
                let is_excluded = case.items.iter().any(|item| is_drawn(item) && has_sample(item, x, y));
                assert!(!is_excluded || excluded[x as usize] == 255, "({x}, {y}) is not excluded: {case:?}");
            }
        }
    }
    assert!(checked > 1_000_000, "{checked} samples");
}

/// No sample beyond the box or the ellipse of an object is shown, unless the object grows. What a feather does not reach is shown, up
/// to the edges of the picture.
#[test]
fn nothing_beyond_objects_is_shown() {
    let mut random = Random(Noise(9));
    let mut shown = 0;
    for turn in 0..360 {
        let size = [(61, 37), (640, 90), (130, 700), (1300, 70), (2100, 33), (3840, 40)][turn % 6];
        let mut case = Case::of(&mut random, size);
        case.edge = Edge { grow: case.edge.grow.min(0), feather: case.edge.feather.min(60) };
        let weights = Weights::outside(size, &case.objects(), case.edge);
        for y in 0..size.1 {
            for (x, weight) in (0..).zip(row(&weights, y)) {
                let may_show = |Item { area, form }: &Item| {
                    let (left, top, right, bottom) =
                        (area.left.ceil(), area.top.ceil(), area.right.floor(), area.bottom.floor());
                    let (x, y) = (f64::from(x), f64::from(y));
                    if x < left || y < top || x >= right || y >= bottom {
                        return false;
                    }
                    let distance =
                        |at: f64, begin: f64, end: f64| (2.0 * (at - begin) - (end - begin) + 1.0) / (end - begin);
                    let [dx, dy] = [distance(x, left, right), distance(y, top, bottom)];
                    !matches!(form, Form::Ellipse) || dx * dx + dy * dy <= 1.0
                };
                assert!(weight == 255 || case.items.iter().any(may_show), "({x}, {y}) has {weight}: {case:?}");
                shown += u64::from(weight == 0);
            }
        }
        let picture = Area::from_corner(0.0, 0.0, size.0.into(), size.1.into());
        let columns = 1 + random.below(900);
        let form = Form::Mask { columns, rows: 1, samples: vec![255; columns as usize] };
        let weights = Weights::outside(size, &[Item { area: picture, form }.object()], case.edge);
        assert!((0..size.1).all(|y| row(&weights, y).iter().all(|weight| *weight == 0)), "{size:?}");
    }
    assert!(shown > 100_000, "{shown} samples");
}

/// A gap of one sample of a mask that is finer than the grid by any factor is not shown.
#[test]
fn thin_gaps_are_not_shown() {
    for (size, columns, rows) in [
        ((1920, 1080), 800, 450),
        ((1920, 1080), 640, 360),
        ((1920, 1080), 900, 506),
        ((1280, 720), 480, 270),
        ((3840, 2160), 640, 360),
        ((500, 400), 900, 700),
    ] {
        for gap in (columns / 3..columns / 3 + 9).chain([0, columns - 1]) {
            let samples = (0..columns * rows).map(|i| if i % columns == gap { 0 } else { 255 }).collect();
            let area = Area::from_corner(0.0, 0.0, size.0.into(), size.1.into());
            let object = Item { area, form: Form::Mask { columns, rows, samples } }.object();
            let weights = Weights::outside(size, &[object], Edge::default());
            // Samples that the gap has wholly, at least the one that it has most of.
            let [left, right] = [gap, gap + 1].map(|x| f64::from(x) * f64::from(size.0) / f64::from(columns));
            let middle = f64::midpoint(left, right) as u32;
            let row = row(&weights, size.1 / 2);
            for x in (left.ceil() as u32..right.floor() as u32).chain([middle]) {
                assert_eq!(row[x as usize], 255, "{size:?}, {columns} columns, sample {x} of column {gap}");
            }
        }
    }
}

/// Whether a luma sample is the object's: its centre in an ellipse or in a sample of a mask that is inside, any part in a box.
fn has_sample(Item { area, form }: &Item, x: u32, y: u32) -> bool {
    let (left, top) = (area.left.floor() as i64, area.top.floor() as i64);
    let [width, height] = [area.right.ceil() as i64 - left, area.bottom.ceil() as i64 - top];
    let [x, y] = [i64::from(x) - left, i64::from(y) - top];
    if x < 0 || y < 0 || x >= width || y >= height {
        return false;
    }
    match form {
        Form::Box => true,
        Form::Ellipse => {
            let [dx, dy] = [(2 * x - width + 1) as f64 / width as f64, (2 * y - height + 1) as f64 / height as f64];
            dx * dx + dy * dy <= 1.0
        }
        Form::Mask { columns, rows, samples } => {
            let column = (2 * x + 1) * i64::from(*columns) / (2 * width);
            let row = (2 * y + 1) * i64::from(*rows) / (2 * height);
            samples[(row * i64::from(*columns) + column) as usize] >= 128
        }
    }
}

/// An edge that is not a number is the picture's where it is covered, as for boxes without weights, and nothing is shown then.
#[test]
fn objects_without_known_edges_are_covered() {
    let size = (60, 40);
    let (nan, far) = (f64::NAN, f64::INFINITY);
    let samples = vec![0, 255];
    let forms = [Form::Box, Form::Ellipse, Form::Mask { columns: 2, rows: 1, samples }];
    let all = |weights: &Weights, value: u8| weights.nodes().2.iter().all(|weight| *weight == value);
    for form in forms {
        let objects = |[left, top, right, bottom]: [f64; 4]| {
            [Item { area: Area { left, top, right, bottom }, form: form.clone() }.object()]
        };
        for edges in [[nan; 4], [nan, nan, far, far], [-far, -far, far, far], [nan, -5.0, 70.0, 50.0]] {
            let objects = objects(edges);
            let edge = Edge { grow: -2, feather: 3 };
            assert!(all(&Weights::inside(size, &objects, edge), 255), "{edges:?} of {form:?}");
            assert!(all(&Weights::outside(size, &objects, edge), 255), "{edges:?} of {form:?}");
            assert!(all(&Weights::excluded(size, &objects, 9.0), 255), "{edges:?} of {form:?}");
            assert_eq!(objects[0].reach(edge, size), Some(rect(0, 0, 60, 40)), "{edges:?} of {form:?}");
        }
        for edges in [[20.9, 5.0, 20.3, 9.0], [3.5, 3.5, 3.5, 9.0], [9.0, 5.0, 3.0, 8.0], [far, 5.0, far, 9.0]] {
            let objects = objects(edges);
            assert!(all(&Weights::inside(size, &objects, Edge::default()), 0), "{edges:?} of {form:?}");
            assert!(all(&Weights::outside(size, &objects, Edge::default()), 255), "{edges:?} of {form:?}");
        }
    }
}

/// A picture of one value in each channel stays that, because every mean of it is that value.
#[test]
fn flat_pictures_stay_flat() {
    let mut random = Random(Noise(8));
    let mut engine = Engine::with_cpu(CpuEngine::new());
    for (turn, planes) in all_kinds().iter().enumerate() {
        let mut picture = Picture::new(&resized(planes, [160, 90]), 0);
        let size = picture.size();
        let whole = rect(0, 0, size[0], size[1]);
        let fill = fill(&mut random, &picture, &[whole]);
        engine.cover(&fill.cover, &mut picture.frame_mut()).unwrap();
        let blur = blur(&picture, Selection::ALL, &[(whole, params(9.0))]);
        // A mask with background between its samples, and a solid object, which is larger than the reach of the blur.
        let is_solid = turn.is_multiple_of(2);
        let mut is_object = |i: u32| if is_solid { (3..21).contains(&(i % 24)) } else { random.below(5) < 2 };
        let samples = (0..576).map(|i| if is_object(i) { 255 } else { 0 }).collect();
        let form = Form::Mask { columns: 24, rows: 24, samples };
        let item = Item { area: Area::from_corner(20.0, 10.0, 90.0, 60.0), form };
        let (of, edge) = ((size[0], size[1]), Edge::default());
        let excluded = Nodes::excluded(of, std::slice::from_ref(&item), 9.0);
        let expected = background(&picture, &params(9.0), Selection::ALL, &excluded);
        let weights = Weights::outside(of, &[item.object()], edge);
        let excluded = Some(Weights::excluded(of, &[item.object()], 9.0));
        let cover = Cover { soft: Some(Softness { weights, excluded }), ..blur.cover };
        let mut out = picture.clone();
        engine.cover(&cover, &mut out.frame_mut()).unwrap();
        for plane in 0..planes.len() {
            let [before, expected, after] =
                [&picture, &expected, &out].map(|one| values(&one.planes[plane], &one.bytes[plane]));
            assert!(expected == before, "the oracle's plane {plane} of {planes:?}");
            let most = before.iter().zip(&after).map(|(before, after)| before.abs_diff(*after)).max().unwrap();
            assert_eq!(most, 0, "steps in plane {plane} of {planes:?}");
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
    const MASK: (u32, u32) = (320, 180);
    let gradient = |x: u32| 40 + x / 8;
    for radius in [30.0, 80.0, 150.0, 300.0] {
        let in_disc = |x: f64, y: f64| (x - 640.0).hypot(y - 360.0) <= radius;
        let has_sample = |x: u32, y: u32| in_disc(f64::from(x) + 0.5, f64::from(y) + 0.5);
        let has_mask = |i: u32| in_disc(f64::from(i % MASK.0 * 4 + 2), f64::from(i / MASK.0 * 4 + 2));
        let samples = (0..MASK.0 * MASK.1).map(|i| if has_mask(i) { 255 } else { 0 }).collect();
        let form = Form::Mask { columns: MASK.0, rows: MASK.1, samples };
        let item = Item { area: Area::from_corner(0.0, 0.0, SIZE.0.into(), SIZE.1.into()), form };
        let excluded = Nodes::excluded(SIZE, &[item], 16.0);
        let is_near = |i: u32| {
            let (x, y) = (f64::from(i % SIZE.0) - 640.0, f64::from(i / SIZE.0) - 360.0);
            x.hypot(y) >= radius - 48.0
        };
        // Least and most above the ground.
        let distance = |ground: &dyn Fn(u32) -> u32, near: bool| {
            let picture = grey(SIZE, |x, y| if has_sample(x, y) { 255 } else { ground(x) as u8 });
            let samples = values(&picture.planes[0], &filled(&picture, &excluded).bytes[0]);
            let weights = excluded.of_samples(&picture.planes, 0);
            let wholly = (0..).zip(samples).zip(weights).filter(|(_, weight)| *weight == 255);
            let wholly = wholly.map(|(sample, _)| sample).filter(|(i, _)| !near || is_near(*i));
            let distances = wholly.map(|(i, sample)| i32::from(sample) - ground(i % SIZE.0) as i32);
            distances.fold((0, 0), |(least, most), one| (one.min(least), one.max(most)))
        };
        let [slope, beside] = [false, true].map(|near| distance(&gradient, near));
        let [black, dark, light] = [0, 60, 200].map(|value| distance(&|_| value, false));
        println!("radius {radius}: from the gradient {slope:?}, near its edge {beside:?}");
        println!("    from 0, 60 and 200: {black:?}, {dark:?}, {light:?}");
        // A disc of radius 300 hides 75 steps of the gradient.
        assert!(slope.0 >= -4 && slope.1 <= 9, "{slope:?}");
        assert!(beside.0 >= -4 && beside.1 <= 7, "{beside:?}");
        assert!([black, dark, light].iter().all(|(least, most)| *least == 0 && *most == 0));
    }
}

/// A white object on black, its mask two samples too small: how much of it glows beside it, in 8-bit steps.
#[test]
fn objects_do_not_glow_beside_themselves() {
    const SIGMA: f64 = 16.0;
    let size = (1280, 720);
    let picture = grey(size, |x, y| if y >= 200 && (400..800).contains(&x) { 255 } else { 0 });
    let pitch = pitch(&picture.planes[0]);
    let is_object = |i: usize| i / 256 > 210 * 256 / 720 && (83..158).contains(&(i % 256));
    let samples = (0..65536).map(|i| if is_object(i) { 255 } else { 0 }).collect();
    let form = Form::Mask { columns: 256, rows: 256, samples };
    let items = [Item { area: Area::from_corner(0.0, 0.0, 1280.0, 720.0), form }];
    let objects = items.each_ref().map(Item::object);
    let excluded = Nodes::excluded(size, &items, SIGMA);
    let expected = background(&picture, &params(SIGMA), Selection::ALL, &excluded);
    let blur = blur(&picture, Selection::ALL, &[(rect(0, 0, size.0, size.1), params(SIGMA))]).cover;
    let covers = [
        blur.clone(),
        Cover {
            soft: Some(Softness {
                weights: Weights::outside(size, &objects, Edge::default()),
                excluded: Some(Weights::excluded(size, &objects, SIGMA)),
            }),
            ..blur
        },
    ];
    let mut engine = Engine::with_cpu(CpuEngine::new());
    let [plain, background] = covers.map(|cover| {
        let mut out = picture.clone();
        engine.cover(&cover, &mut out.frame_mut()).unwrap();
        out.bytes[0][500 * pitch..][..1280].to_vec()
    });
    let expected = &expected.bytes[0][500 * pitch..][..1280];
    for distance in [1, 4, 8, 16, 32] {
        let at = 799 + distance;
        let [plain, background, expected] = [plain[at], background[at], expected[at]];
        println!(
            "{distance:2} samples beside: plain blur {plain:3}, background {background:3}, of the oracle {expected:3}"
        );
    }
    assert!(background[800..].iter().all(|value| *value <= 1), "{:?}", &background[800..840]);
    assert!(plain[800] > 100);
    assert_eq!(background[500], 255, "the object is shown");
}
