//! Parts of a frame have the bytes of the whole, whatever the rest of the source is.

mod common;

use std::sync::Arc;

use libtest_mimic::Arguments;

use common::borrowed::pair;
use common::checks::{trial, under_valgrind};
use common::device_frames::{covers, soft_covers};
use common::pictures::{Picture, kinds, pitch, rect, resized};
use common::{Noise, cases};
use gstcudagaussblur::cpu::{CpuEngine, InstructionSet, TILES};
use gstcudagaussblur::filter::cover::Softness;
use gstcudagaussblur::filter::frame::ValidFrames;
use gstcudagaussblur::filter::parts::{Job, Needs};
use gstcudagaussblur::filter::picture::FieldRect;
use gstcudagaussblur::filter::plan::Plan;

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
    // SAFETY: the pictures are borrowed longer, the one that is written mutably.
    let mut frames = unsafe { ValidFrames::new(pair(&from.frame(), &mut out.frame_mut())) }.unwrap();
    cpu.run(&mut frames, job, soft).unwrap();
    out
}

/// A cover reads what its operations say.
fn nothing_but_reads_is_read() {
    let mut noise = Noise(3);
    let kinds = kinds();
    let engine = |set| CpuEngine::new().with_instruction_set(set);
    let mut engines: Vec<CpuEngine> = InstructionSet::available().into_iter().map(engine).collect();
    // Of each kind of cover.
    let mut poisoned_bytes = [0; 7];
    let every = cases::one_in().unwrap_or(1);
    for case in (0..140).step_by(every) {
        let size = [1 + noise.below(220), 1 + noise.below(160)];
        let planes = resized(&kinds[noise.below(kinds.len() as u32) as usize], size);
        let picture = Picture::new(&planes, noise.next());
        let rects = (0..1 + noise.below(4)).map(|_| {
            let [x, y] = size.map(|side| noise.below(side));
            rect(x, y, 1 + noise.below(60.min(size[0] - x)), 1 + noise.below(60.min(size[1] - y)))
        });
        let (rects, sigmas) = (rects.collect::<Vec<_>>(), [0, 1, 2, 3].map(|i| SIGMAS[(case + i) % SIGMAS.len()]));
        let hard = covers(&planes, &rects, &sigmas, &mut noise);
        for (kind, cover) in hard.into_iter().chain(soft_covers(&planes, &sigmas, &mut noise)).enumerate() {
            let plan = Plan::cover(&cover, &planes, |options| Arc::new(Plan::new(options, &planes)));
            let Needs { parts, reads } = plan.needs(&[], TILES);
            let source = poisoned(&picture, &reads);
            let pairs = source.bytes.iter().flatten().zip(picture.bytes.iter().flatten());
            poisoned_bytes[kind] += pairs.filter(|(poisoned, byte)| poisoned != byte).count();
            let job = Job::new(Arc::new(plan), parts, None);
            let set = case % engines.len();
            let [whole, part] =
                [&picture, &source].map(|from| run(&mut engines[set], &job, cover.soft.as_ref(), from, &picture));
            part.assert_is(&whole, || format!("{cover:?}"));
        }
    }
    assert!(poisoned_bytes.iter().all(|bytes| *bytes > (1 << 17) / every), "{poisoned_bytes:?} bytes were poisoned");
}

fn main() {
    let trials = vec![
        trial("nothing_but_reads_is_read", true, nothing_but_reads_is_read),
        // Planes have memory only for the rows that are accessed: valgrind fails on any access beyond it, and takes seventy times as
        // long. Of every seventh case: 2, 3, 4 and 9 kinds of each take turns.
        under_valgrind("nothing_but_reads_is_read", "--undef-value-errors=no", ("CUDAGAUSSBLUR_CASES", "7")),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
