// SPDX-License-Identifier: MPL-2.0
//! Compares the element's tracks with their specification, `tests/tracks_reference.py`, on random sequences.

use crate::common::{Noise, python};
use gstcudagaussblur::filter::regions::Area;
use gstcudagaussblur::regions::detection::Detection;
use gstcudagaussblur::regions::tracks::{Holding, Tracks};
use serde_json::json;

const SEQUENCES: u64 = 400;
const MS: u64 = 1_000_000;

/// Random choices.
pub struct Random(pub Noise);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        (self.0.next() >> 16) % end
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        self.below(1 << 24) as f64 / f64::from(1 << 24)
    }

    fn is(&mut self, probability: f64) -> bool {
        self.share() < probability
    }
}

struct Sequence {
    size: (u32, u32),
    hold: u64,
    covers_lost: bool,
    look_ahead: usize,
    /// The time and the detections, of which those with a confidence are weak; `None` drains.
    frames: Vec<Option<(u64, Vec<Detection>)>>,
}

/// An object that moves with turns, and is found in spells.
struct Object {
    place: [f64; 2],
    velocity: [f64; 2],
    side: f64,
    is_found: bool,
    label: Option<&'static str>,
    id: Option<u64>,
}

fn sequence(seed: u64) -> Sequence {
    let random = &mut Random(Noise(seed));
    let size = random.pick(&[(1280, 720), (640, 360), (64, 48)]);
    let (width, height) = (f64::from(size.0), f64::from(size.1));
    let [has_labels, has_ids, has_weak] = [0.5, 0.3, 0.3].map(|probability| random.is(probability));
    let label = |random: &mut Random| random.pick(&[Some("face"), Some("plate"), None]).filter(|_: &&str| has_labels);
    let anywhere = |random: &mut Random| [width, height].map(|side| random.share() * side);
    let velocity = |random: &mut Random, most: f64| [0; 2].map(|_| (random.share() - 0.5) * most * width);
    let mut objects: Vec<Object> = (0..=random.below(5))
        .map(|i| Object {
            place: anywhere(random),
            velocity: velocity(random, 0.05),
            side: (0.04 + 0.2 * random.share()) * width,
            is_found: random.is(0.5),
            label: label(random),
            id: (has_ids && random.is(0.7)).then_some(i),
        })
        .collect();
    let step = random.pick(&[40 * MS, 37_500_000, 33_366_667, 16_683_333, 100 * MS, 200 * MS]);
    let mut time = random.below(10_000) * MS;
    let mut frames = Vec::new();
    for _ in 0..60 + random.below(120) {
        time += if random.is(0.03) { random.below(4000) * MS + 1 } else { step };
        let mut found = Vec::new();
        for object in &mut objects {
            object.is_found ^= random.is(0.08);
            if random.is(0.03) {
                object.velocity = velocity(random, 0.08);
            }
            if random.is(0.02) {
                object.place = anywhere(random);
            }
            object.place = [0, 1].map(|axis| object.place[axis] + object.velocity[axis]);
            if object.is_found {
                let place = object.place.map(|place| place + (random.share() - 0.5) * object.side * 0.1);
                let height = object.side * if random.is(0.1) { 0.4 } else { 1.0 };
                let label = object.label.filter(|_| random.is(0.95));
                let id = object.id.filter(|_| random.is(0.9));
                found.push(detection(place, [object.side, height], label, id));
            }
        }
        while random.is(0.15) {
            let side = (0.02 + 0.2 * random.share()) * width;
            let size = [side, side * (0.5 + random.share())];
            found.push(detection(anywhere(random), size, label(random), has_ids.then_some(random.below(9))));
        }
        if has_weak {
            found.iter_mut().for_each(|one| one.confidence = random.is(0.4).then_some(0.2));
        }
        frames.push(Some((time, found)));
        if random.is(0.005) {
            frames.push(None);
        }
    }
    let hold = random.pick(&[0, 1, 200 * MS, 1000 * MS, 3000 * MS]);
    let look_ahead = random.pick(&[0, 0, 1, 5, 15, 40]);
    Sequence { size, hold, covers_lost: random.is(0.4), look_ahead, frames }
}

fn detection([x, y]: [f64; 2], [width, height]: [f64; 2], label: Option<&str>, tracking_id: Option<u64>) -> Detection {
    // Of whole numbers some would be exactly at a threshold, where the order of a sum decides.
    let area = Area::from_corner(x, y, width.max(1.0), height.max(1.0));
    Detection { certain: Some(area), tracking_id, ..Detection::new(label.map(str::to_owned), area) }
}

fn is_weak(detection: &Detection) -> bool {
    detection.confidence.is_some()
}

impl Sequence {
    /// As `tests/tracks_reference.py` reads it.
    fn to_json(&self) -> String {
        let one = |Detection { area, label, tracking_id, .. }: &&Detection| {
            json!([[area.left, area.top, area.right, area.bottom], label, tracking_id])
        };
        let frame = |(time, found): &(u64, Vec<Detection>)| {
            let (weak, certain): (Vec<_>, Vec<_>) = found.iter().partition(|one| is_weak(one));
            let [certain, weak] = [certain, weak].map(|found| found.iter().map(one).collect::<Vec<_>>());
            json!([time, certain, weak])
        };
        let frames: Vec<_> = self.frames.iter().map(|found| found.as_ref().map(frame)).collect();
        let ((width, height), on_lost) = (self.size, if self.covers_lost { "cover" } else { "release" });
        json!({
            "width": width, "height": height, "hold": self.hold, "look_ahead": self.look_ahead, "on_lost": on_lost,
            "frames": frames,
        })
        .to_string()
    }

    /// For each decided frame its time, whether the whole frame is covered, and the edges of the boxes.
    fn decide(&self) -> Vec<(u64, bool, Vec<f64>)> {
        let holding = Holding { time: self.hold, covers_lost: self.covers_lost };
        let mut tracks = Tracks::default();
        let (mut waiting, mut decided) = (std::collections::VecDeque::new(), Vec::new());
        let mut decide = |tracks: &mut Tracks, time| {
            let covered = tracks.resolve(self.size, holding);
            let edges = |area: Area| [area.left, area.top, area.right, area.bottom];
            let boxes = covered.objects.iter().flat_map(|object| edges(object.cover));
            let boxes = if covered.is_lost { Vec::new() } else { boxes.collect() };
            decided.push((time, covered.is_lost, boxes));
        };
        for frame in self.frames.iter().chain([&None]) {
            match frame {
                Some((time, found)) => {
                    // The reference has the weak ones last.
                    let (weak, certain): (Vec<_>, Vec<_>) = found.iter().partition(|one| is_weak(one));
                    let detections = certain.into_iter().chain(weak).map(|one| (one, is_weak(one)));
                    tracks.observe(*time, self.size, holding, detections);
                    waiting.push_back(*time);
                    if waiting.len() > self.look_ahead {
                        decide(&mut tracks, waiting.pop_front().unwrap());
                    }
                }
                None => {
                    waiting.drain(..).for_each(|time| decide(&mut tracks, time));
                    tracks.clear();
                }
            }
        }
        decided
    }
}

/// Each certain detection is covered in its own frame: the one rule that no other may break.
#[test]
fn tracks_are_those_of_the_reference_and_cover_each_detection() {
    let sequences: Vec<Sequence> = (0..SEQUENCES).map(sequence).collect();
    let lines: Vec<String> = sequences.iter().map(Sequence::to_json).collect();
    let file = std::env::temp_dir().join(format!("cudagaussblur-tracks-{}", std::process::id()));
    std::fs::write(&file, lines.join("\n") + "\n").unwrap();
    let mut python = python::with("json");
    let text = python::output(python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tracks_reference.py")).arg(&file));
    std::fs::remove_file(file).unwrap();
    let expected: Vec<&str> = text.split_terminator("\n\n").collect();
    assert_eq!(expected.len(), sequences.len());
    let (mut boxes, mut whole, mut checked) = (0, 0, 0);
    for (seed, (sequence, expected)) in sequences.iter().zip(expected).enumerate() {
        let (found, decided) = (sequence.frames.iter().flatten(), sequence.decide());
        assert_eq!(decided.len(), expected.lines().count(), "sequence {seed}");
        assert_eq!(decided.len(), found.clone().count(), "sequence {seed}");
        for (((entered, found), (time, is_whole, edges)), line) in found.zip(&decided).zip(expected.lines()) {
            let what = format!("sequence {seed} at {time}: {edges:?}, not {line}");
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap();
            assert_eq!([word(), word()], [&*time.to_string(), if *is_whole { "True" } else { "False" }], "{what}");
            assert_eq!(entered, time, "{what}");
            let wanted: Vec<f64> = words.map(|word| word.parse().unwrap()).collect();
            assert_eq!(edges.len(), wanted.len(), "{what}");
            assert!(edges.iter().zip(&wanted).all(|(one, other)| (one - other).abs() <= 1e-6), "{what}");
            boxes += edges.len() / 4;
            whole += usize::from(*is_whole);
            let certain = found.iter().filter(|detection| !is_weak(detection));
            for Area { left, top, right, bottom } in certain.map(|detection| detection.area) {
                let is_inside = |covered: &[f64; 4]| {
                    covered[0] <= left && covered[1] <= top && covered[2] >= right && covered[3] >= bottom
                };
                assert!(*is_whole || edges.as_chunks().0.iter().any(is_inside), "{what}: a detection is not covered");
                checked += 1;
            }
        }
    }
    println!("{SEQUENCES} sequences, {boxes} boxes and {whole} whole frames are equal");
    assert!(boxes > 80_000 && whole > 1000 && checked > 50_000, "{boxes} {whole} {checked}");
}

/// What docs/HIDING.md says of a false detection in one frame: what it covers in all frames together, in its boxes.
#[test]
fn a_false_detection_covers_as_much_as_documented() {
    let page = include_str!("../../docs/HIDING.md");
    let covered = |rate: u64, look_ahead: u64| {
        let found = |i: u64| (i == 60).then(|| detection([5000.0, 5000.0], [100.0, 100.0], None, None));
        let frame = |i: u64| Some((i * 1000 * MS / rate, found(i).into_iter().collect()));
        let frames = (0..120 + look_ahead).map(frame).collect();
        let (size, look_ahead) = ((10_000, 10_000), look_ahead as usize);
        let decided = Sequence { size, hold: 3000 * MS, covers_lost: false, look_ahead, frames }.decide();
        let boxes = decided.iter().flat_map(|(.., edges)| edges.chunks(4));
        boxes.map(|edges| (edges[2] - edges[0]) * (edges[3] - edges[1]) / 1e4).sum::<f64>()
    };
    for (name, look_ahead) in [("live", 0), ("`look-ahead=15`", 15)] {
        let [at_25, at_30] = [25, 30].map(|rate| covered(rate, look_ahead));
        let row = format!("\n| {name} | {at_25:.1} | {at_30:.1} |\n");
        assert!(page.contains(&row), "docs/HIDING.md has no row {row}");
    }
}
