//! Parts of a frame have the bytes of the whole, whatever the rest of the source is and however they are divided.

mod common;

use std::process::Command;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use common::pictures::{Picture, kinds, pitch, resized};
use common::{Noise, cases};
use gstcudagaussblur::cpu::{CpuEngine, InstructionSet, TILES};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::cover::{BlurRegion, Cover, Hide, Softness};
use gstcudagaussblur::filter::frame::{Destination, PlaneLayout, Source, ValidFrames};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::parts::{Job, Needs};
use gstcudagaussblur::filter::picture::{FieldRect, PictureGeometry};
use gstcudagaussblur::filter::plan::{Options, Plan, Selection};
use gstcudagaussblur::filter::regions::{Area, Rect};
use gstcudagaussblur::filter::samples::covered_fields;
use gstcudagaussblur::filter::weights::{Edge, Object, Shape, Weights};

const SIGMAS: [f64; 9] = [0.8, 2.0, 3.4, 3.5, 5.0, 7.0, 12.0, 30.0, 60.0];

/// The picture with everything but these parts of its planes inverted.
fn poisoned(picture: &Picture, parts: &[(usize, FieldRect)]) -> Picture {
    let mut poisoned = picture.clone();
    for (plane, (layout, bytes)) in picture.planes.iter().zip(&mut poisoned.bytes).enumerate() {
        let mut read = vec![false; bytes.len()];
        for (_, FieldRect { field, rect }) in parts.iter().filter(|(of, _)| *of == plane) {
            let columns = field.layout.columns(*rect);
            let columns = [columns.start, columns.end].map(|x| field.first_byte() + x as usize * layout.pixel_bytes());
            for y in rect.y()..rect.bottom() {
                let row = field.plane_row(y) * pitch(layout);
                read[row + columns[0]..row + columns[1]].fill(true);
            }
        }
        bytes.iter_mut().zip(read).filter(|(_, read)| !read).for_each(|(byte, _)| *byte = !*byte);
    }
    poisoned
}

/// Executes a job from a picture onto a copy of another one.
fn run(cpu: &mut CpuEngine, job: &Job, soft: Option<&Softness>, from: &Picture, onto: &Picture) -> Picture {
    let mut out = onto.clone();
    let mut frames = ValidFrames::new(Source::Host(from.frame()), Destination::Host(out.frame_mut())).unwrap();
    cpu.run(&mut frames, job, soft).unwrap();
    out
}

/// The picture with everything but these parts of its planes set to 0, as rounding computes more than is wanted.
fn hidden_beside(picture: &Picture, parts: &[(usize, FieldRect)]) -> Picture {
    let mut hidden = poisoned(picture, parts);
    for (bytes, before) in hidden.bytes.iter_mut().zip(&picture.bytes) {
        bytes.iter_mut().zip(before).filter(|(now, then)| now != then).for_each(|(now, _)| *now = 0);
    }
    hidden
}

/// How many bytes are different.
fn different(one: &Picture, other: &Picture) -> usize {
    one.bytes.iter().zip(&other.bytes).map(|(a, b)| a.iter().zip(b).filter(|(a, b)| a != b).count()).sum()
}

fn random(noise: &mut Noise, end: u32) -> u32 {
    (noise.next() % u64::from(end)) as u32
}

/// A picture of any kind, and up to four rectangles of it.
fn picture(noise: &mut Noise, kinds: &[Vec<PlaneLayout>]) -> (Picture, Vec<Rect>) {
    let size = [1 + random(noise, 220), 1 + random(noise, 160)];
    let picture = Picture::new(&resized(&kinds[random(noise, kinds.len() as u32) as usize], size), noise.next());
    let rect = |noise: &mut Noise| {
        let [x, y] = size.map(|side| random(noise, side));
        Rect::new(x, y, 1 + random(noise, 60.min(size[0] - x)), 1 + random(noise, 60.min(size[1] - y))).unwrap()
    };
    let rects = (0..1 + random(noise, 4)).map(|_| rect(noise)).collect();
    (picture, rects)
}

/// Rectangles that are wanted apart, overlapping or in another order are computed differently.
fn any_division_gives_the_same_bytes() {
    let mut noise = Noise(5);
    let kinds = kinds();
    let mut cpu = CpuEngine::new();
    for case in 0..200 {
        let (picture, rects) = picture(&mut noise, &kinds);
        let options = Options::from(BlurParams::new(SIGMAS[case % SIGMAS.len()], 0).unwrap());
        let geometry = PictureGeometry::new(&picture.planes);
        let plan = Arc::new(Plan::new(options, &picture.planes));
        let divided = |rect: &Rect| {
            let halves = [rect.width().div_ceil(3), rect.width()];
            let left = Rect::between([rect.x(), rect.x() + halves[0]], [rect.y(), rect.bottom()]);
            let right = Rect::between([rect.x() + halves[0] / 2, rect.right()], [rect.y(), rect.bottom()]);
            [right, left].into_iter().flatten()
        };
        let parts = |rects: Vec<Rect>| -> Vec<(usize, FieldRect)> {
            rects.iter().flat_map(|rect| covered_fields(&geometry, *rect)).collect()
        };
        let wanted = [parts(rects.clone()), parts(rects.iter().rev().flat_map(divided).collect())];
        let [one, other] = wanted.each_ref().map(|parts| {
            let parts = plan.needs(parts, TILES).parts;
            let job = Job { parts, plan: Arc::clone(&plan), accesses: None };
            hidden_beside(&run(&mut cpu, &job, None, &picture, &picture), &wanted[0])
        });
        assert!(one.bytes == other.bytes, "{rects:?} of {:?}", picture.planes);
    }
}

/// A cover reads what its operations say, and writes what it covers.
fn nothing_but_reads_is_read() {
    let mut noise = Noise(3);
    let kinds = kinds();
    let mut engines: Vec<CpuEngine> = InstructionSet::available()
        .into_iter()
        .map(|set| CpuEngine::new().with_instruction_set(set).unwrap())
        .collect();
    let mut poisoned_bytes = [0; 3];
    let every = cases::one_in().unwrap_or(1);
    for case in (0..400).step_by(every) {
        let (picture, rects) = picture(&mut noise, &kinds);
        let planes = &picture.planes;
        let params = |i: usize| BlurParams::new(SIGMAS[(case + i) % SIGMAS.len()], 0).unwrap();
        let object = |rect: &Rect| Area::from_corner(rect.x().into(), rect.y().into(), rect.width().into(), 40.0);
        let hide = match case % 3 {
            0 => {
                let region = |(i, rect): (usize, &Rect)| BlurRegion { rect: *rect, params: params(i) };
                Hide::Blur { planes: Selection::ALL, regions: rects.iter().enumerate().map(region).collect() }
            }
            1 => Hide::Mosaic(rects.iter().map(|rect| MosaicRegion::new(*rect, object(rect), 3)).collect()),
            _ => Hide::Fill { rects: rects.clone(), values: vec![[1, 2, 3, 1]; planes.len()] },
        };
        let [width, height] = picture.size();
        let item = Object { area: object(&rects[0]), shape: Shape::Ellipse };
        let weights = Weights::inside((width, height), &[item], Edge { grow: 2, feather: 3 });
        let soft = (case / 3 % 2 == 1).then_some(Softness { weights, excluded: None });
        let cover = Cover { hide, soft };
        let plan = Plan::cover(&cover, planes, |options| Arc::new(Plan::new(options, planes)));
        let Needs { parts, reads } = plan.needs(&[], TILES);
        let source = poisoned(&picture, &reads);
        poisoned_bytes[case % 3] += different(&source, &picture);
        let job = Job { plan: Arc::new(plan), parts, accesses: None };
        let soft = cover.soft.as_ref();
        let set = case % engines.len();
        let [whole, part] = [&picture, &source].map(|from| run(&mut engines[set], &job, soft, from, &picture));
        assert!(whole.bytes == part.bytes, "{cover:?} of {planes:?}");
        let geometry = PictureGeometry::new(planes);
        let covered: Vec<_> = rects.iter().flat_map(|rect| covered_fields(&geometry, *rect)).collect();
        let rest = |picture: &Picture| {
            let inverted = poisoned(picture, &covered);
            let planes = picture.bytes.iter().zip(&inverted.bytes);
            planes.map(|(a, b)| a.iter().zip(b).map(|(a, b)| if a == b { 0 } else { *a }).collect()).collect()
        };
        let [before, after]: [Vec<Vec<u8>>; 2] = [rest(&picture), rest(&whole)];
        assert!(before == after, "{cover:?} of {planes:?} changes what it does not cover");
    }
    assert!(poisoned_bytes.iter().all(|bytes| *bytes > (1 << 20) / every), "{poisoned_bytes:?} bytes were poisoned");
}

/// Planes have memory only for the rows that are accessed: runs a test in a child process under valgrind, which fails on any
/// access beyond it and takes seventy times as long. Of every seventh case: 2, 3, 4 and 9 kinds of each take turns.
fn under_valgrind() -> Result<(), Failed> {
    let output = Command::new("valgrind")
        .args(["--error-exitcode=9", "--undef-value-errors=no", "--quiet"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "nothing_but_reads_is_read"])
        .env("CUDAGAUSSBLUR_CASES", "7")
        .output()
        .unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    if output.status.success() && text.contains("1 passed") { Ok(()) } else { Err(text.into()) }
}

fn main() {
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    let tests: [(&str, fn()); 2] = [
        ("nothing_but_reads_is_read", nothing_but_reads_is_read),
        ("any_division_gives_the_same_bytes", any_division_gives_the_same_bytes),
    ];
    let mut trials: Vec<Trial> =
        tests.into_iter().map(|(name, test)| Trial::test(name, move || (test(), Ok(())).1)).collect();
    let valgrind = Trial::test("nothing_but_reads_is_read_under_valgrind", under_valgrind);
    trials.push(valgrind.with_ignored_flag(!has_valgrind));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
