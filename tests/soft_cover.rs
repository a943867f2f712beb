//! Soft covers against the oracle: the weights, and every byte of covered pictures.

mod common;

use std::fmt::Write as _;

use common::Noise;

use common::python;
use common::soft_oracle::{Form, Item, Nodes};
use gstcudagaussblur::filter::regions::Area;
use gstcudagaussblur::filter::weights::{Edge, Object, Weights};

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
        let sigma = random.pick(&[0.0, 0.9, 2.0, 7.5, 16.0, 40.0, 1024.0]);
        Self { size, items, edge: Edge { grow, feather }, sigma }
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
    while cases < 4000 {
        let case = Case::random(&mut random, if cases % 16 > 0 { 300 } else { 16384 });
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
    assert!(between > 100_000, "{between} weights are between nothing and all");
}
