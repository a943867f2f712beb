// SPDX-License-Identifier: MPL-2.0
//! The CPU backend. It is exact, processes tiles that fit the cache, uses the vector instructions of the processor, and runs on
//! the worker threads of the process.

mod cells;
mod execution;
mod instruction_set;
mod packed_taps;
mod pixel_rows;
mod resample;
mod rows;
#[cfg(target_arch = "x86_64")]
mod rows_vnni;
mod sample_weights;
mod schedule;
mod scratch;
mod simd;
mod task;
mod tile;
mod tile_blur;
mod write;

use std::sync::Arc;

use crate::filter::cover::Softness;
use crate::filter::frame::{FrameMemory, ValidFrames};
use crate::filter::operation::Operation;
use crate::filter::parts::Job;
use crate::filter::regions::Rect;
use crate::process;
use crate::threads::Threads;
pub use execution::TILES;
use execution::{BufferPlanes, place_temporaries};
pub use instruction_set::InstructionSet;
use scratch::Scratch;
use task::{Part, Task};

#[cfg(test)]
pub(crate) use scratch::faults;

/// The number of parts into which an operation is cut for each thread. More than one part evens out the load.
const TASKS_PER_THREAD: usize = 2;

/// Why the CPU did not blur or cover a frame. Nothing was written to the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuError {
    /// The allocator refused this many bytes of working memory.
    OutOfMemory {
        /// The bytes that were requested.
        bytes: usize,
    },
    /// A frame is in device memory, which the CPU cannot access.
    DeviceMemory,
}

/// Blurs frames on the CPU. Keeps its worker threads and their working memory between frames.
pub struct CpuEngine {
    set: InstructionSet,
    threads: Arc<Threads>,
    /// Scratch memory for each thread.
    scratch: Vec<Scratch>,
    /// The memory of all temporaries of a plan, one after the other.
    temporaries: Scratch,
}

impl CpuEngine {
    /// Uses the instruction set that the environment names, or else the fastest one of this processor.
    #[expect(clippy::new_without_default, reason = "it shares threads with all other engines of the process")]
    pub fn new() -> Self {
        let set = InstructionSet::chosen();
        Self { set, threads: process::threads(), scratch: Vec::new(), temporaries: Scratch::default() }
    }

    /// The same engine with another instruction set.
    pub fn with_instruction_set(self, set: InstructionSet) -> Self {
        Self { set, ..self }
    }

    /// The instruction set in use.
    pub fn instruction_set(&self) -> InstructionSet {
        self.set
    }

    /// Executes a job, with the weights of a soft cover. If a cover writes another buffer, planes that it writes only in part are
    /// copied first. After an error, nothing has been written.
    ///
    /// # Panics
    /// If the plan was made for other layouts, or the weights for another size.
    pub fn run(&mut self, frames: &mut ValidFrames, job: &Job, soft: Option<&Softness>) -> Result<(), CpuError> {
        let Job { plan, parts, .. } = job;
        assert!(plan.layouts() == frames.layouts(), "the plan is for other frames");
        let (FrameMemory::Host(sources), FrameMemory::Host(destinations)) = (frames.source(), frames.destination())
        else {
            return Err(CpuError::DeviceMemory);
        };
        let temporaries = &place_temporaries(job, &mut self.temporaries)?;
        let planes = BufferPlanes { sources, destinations, temporaries, soft };
        // Each operation is cut into this many parts. Its rectangles share them in proportion to their areas.
        let threads = self.threads.count();
        let tasks_each = if threads == 1 { 1 } else { threads * TASKS_PER_THREAD };
        let mut groups: Vec<Vec<(Task, usize)>> = Vec::new();
        let mut parts = parts.iter();
        for group in plan.operations().chunk_by(Operation::is_independent_of) {
            let mut prepared = Vec::new();
            for (operation, rects) in group.iter().zip(parts.by_ref()) {
                let all: u64 = rects.iter().map(|rect| rect.area()).sum();
                let share = |rect: &Rect| (tasks_each as u64 * rect.area() + all / 2) / all;
                let shares = rects.iter().map(|rect| share(rect).max(1) as usize).chain(std::iter::repeat(1));
                prepared.extend(planes.prepare(operation, rects).into_iter().zip(shares));
            }
            groups.push(prepared);
        }
        let parts = groups.iter().map(|group| group.iter().flat_map(|(task, count)| task.parts(*count)).collect());
        let groups: Vec<Vec<Part>> = parts.collect();
        // Threads are woken only for parts that are large enough to be worth it.
        let parallel = |group: &Vec<Part>| group.iter().filter(|part| part.is_large()).count();
        let workers = groups.iter().map(parallel).max().unwrap_or(0).clamp(1, threads);
        self.reserve_scratch(workers, groups.iter().flatten())?;
        frames.copy_planes(&job.copied_planes(), &self.threads);
        let set = self.set;
        schedule::run(&self.threads, &mut self.scratch[..workers], &groups, |scratch, part| {
            // SAFETY: the planes of the frames hold all rows, because the frames are valid. `place_temporaries` has allocated the
            // accessed rows of all temporaries, and `reserve_scratch` the scratch memory. Every sample of a temporary that is
            // read has been computed before, because the rectangles of the job contain it. Neither the rectangles of an operation
            // nor the parts of a task overlap in their output. Operations of a group do not depend on each other. Each part is
            // executed once, after all parts of the groups before its own.
            unsafe { set.execute(part, scratch) };
        });
        Ok(())
    }

    /// Allocates scratch memory for `workers` threads, each with enough for every part.
    fn reserve_scratch<'a>(
        &mut self,
        workers: usize,
        parts: impl Iterator<Item = &'a Part<'a>>,
    ) -> Result<(), CpuError> {
        if self.scratch.len() < workers {
            self.scratch.resize_with(workers, Scratch::default);
        }
        let words = parts.map(Part::scratch_words).max().unwrap_or(0);
        self.scratch[..workers].iter_mut().try_for_each(|scratch| scratch.reserve(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::BlurParams;
    use crate::filter::cover::{BlurRegion, Cover, Hide};
    use crate::filter::frame::{FramePair, PlaneLayout, Role, SampleLayout, Split};
    use crate::filter::plan::{AlphaMode, Options, Plan, Selection};
    use crate::filter::plane::{HostPlane, HostPlaneMut};
    use crate::filter::regions::Area;
    use crate::filter::weights::{Edge, Object, Shape, Weights};

    /// Frames of one plane. Without a source, the frame is covered in place. The frames must not outlive the slices.
    fn frames(layout: PlaneLayout, pitch: usize, source: Option<&[u8]>, destination: &mut [u8]) -> ValidFrames {
        let read =
            |bytes: &[u8]| FrameMemory::Host(vec![HostPlane { address: bytes.as_ptr(), pitch, len: bytes.len() }]);
        let to = HostPlaneMut { address: destination.as_mut_ptr(), pitch, len: destination.len() };
        let (source, destination) = (source.map(read), FrameMemory::Host(vec![to]));
        // SAFETY: the slices hold the bytes, and the tests drop the frames before they access the slices again.
        unsafe { ValidFrames::new(FramePair { layouts: vec![layout], source, destination }) }.unwrap()
    }

    /// Each allocation of a wide blur may fail, that of the temporaries and that of the scratch memory, before anything is
    /// written.
    #[test]
    fn nothing_is_written_if_memory_runs_out() {
        let layout = PlaneLayout::new(600, 9, 3, 8);
        let job = Job::frame(Arc::new(Plan::new(BlurParams::new(20.0, 0).unwrap().into(), &[layout])));
        assert!(job.plan.is_wide());
        let (src, untouched) = (vec![99; 600 * 9 * 3], vec![7; 600 * 9 * 3]);
        let blurred = |ceiling: usize| {
            let mut dst = untouched.clone();
            let mut frames = frames(layout, 1800, Some(&src), &mut dst);
            faults::set_ceiling(ceiling);
            let result = CpuEngine::new().run(&mut frames, &job, None);
            faults::set_ceiling(usize::MAX);
            result.map_err(|error| (error, dst == untouched)).map(|()| dst)
        };
        let mut failed = Vec::new();
        for ceiling in (0..).step_by(4096) {
            match blurred(ceiling) {
                Err((CpuError::OutOfMemory { bytes }, is_untouched)) => {
                    assert!(bytes > ceiling && is_untouched, "{bytes} bytes with a ceiling of {ceiling}");
                    failed.push(bytes);
                }
                Err((other, _)) => panic!("{other:?}"),
                Ok(dst) => {
                    assert_eq!(dst, src, "a flat frame stays the same");
                    break;
                }
            }
        }
        failed.dedup();
        assert_eq!(failed.len(), 2, "the temporaries, then the scratch memory of the first thread: {failed:?}");
    }

    /// The same for regions that are covered in place.
    #[test]
    fn regions_stay_uncovered_only_with_an_error() {
        // In the wide form the temporaries are larger than the scratch memory, so only they exceed a ceiling.
        regions_stay_uncovered(3.0, 2);
        regions_stay_uncovered(20.0, 1);
    }

    fn regions_stay_uncovered(sigma: f64, allocations: usize) {
        let layout = PlaneLayout::new(600, 90, 3, 8);
        let mut cpu = CpuEngine::new();
        let region = BlurRegion { rect: Rect::new(40, 30, 90, 2).unwrap(), params: BlurParams::new(sigma, 0).unwrap() };
        let cover = Cover::from(Hide::Blur { planes: Selection::ALL, regions: vec![region] });
        let plan = Plan::cover(&cover, &[layout], |options| Arc::new(Plan::new(options, &[layout])));
        let job = Job::cover(plan, TILES);
        let picture: Vec<u8> = (0..600 * 90 * 3_u32).map(|i| ((i * 31) >> 3) as u8).collect();
        let mut failed = Vec::new();
        for ceiling in (0..).step_by(4096) {
            let mut frame = picture.clone();
            let mut frames = frames(layout, 1800, None, &mut frame);
            faults::set_ceiling(ceiling);
            let result = cpu.run(&mut frames, &job, None);
            faults::set_ceiling(usize::MAX);
            match result {
                Err(CpuError::OutOfMemory { bytes }) => failed.push(bytes),
                result => assert_eq!(result, Ok(())),
            }
            assert_eq!(frame == picture, result.is_err(), "{result:?} with a ceiling of {ceiling}");
            if result.is_ok() {
                break;
            }
        }
        failed.dedup();
        assert_eq!(
            failed.len(),
            allocations,
            "the temporaries, then the scratch memory of the first thread: {failed:?}"
        );
    }

    /// The pictures are small enough for Miri. Planes have no padding, so Miri reports each access beyond the last row. The
    /// oracle of `tests/` checks the bytes themselves.
    fn all_instruction_sets_have_the_same_bytes(layout: PlaneLayout, sigma: f64) {
        let rect = Rect::new(3, 1, 6, 3).unwrap();
        let object = Object { area: Area::from_corner(3.0, 1.0, 6.0, 3.0), shape: Shape::Ellipse };
        let edge = Edge { grow: 1, feather: 2 };
        let size = (layout.width, layout.height);
        let weights = Weights::inside(size, std::slice::from_ref(&object), edge);
        let excluded = Weights::excluded(size, &[object], 2.0);
        let params = BlurParams::new(sigma, 0).unwrap();
        let hides = Cover::from(Hide::Blur { planes: Selection::ALL, regions: vec![BlurRegion { rect, params }] });
        let soft = Some(Softness { weights, excluded: Some(excluded) });
        let plan = |options| Arc::new(Plan::new(options, &[layout]));
        let cover = |cover: &Cover| Job::cover(Plan::cover(cover, &[layout], plan), TILES);
        let jobs = [
            Job::frame(plan(Options { alpha: AlphaMode::Premultiply, ..params.into() })),
            cover(&hides),
            cover(&Cover { soft: soft.clone(), ..hides }),
        ];
        let bytes = (layout.row_bytes() * 5) as u32;
        let picture: Vec<u8> = (0..bytes).map(|i| ((i * 97) >> 2) as u8).collect();
        let outputs = InstructionSet::available().into_iter().map(|set| {
            let mut cpu = CpuEngine::new().with_instruction_set(set);
            jobs.each_ref().map(|job| {
                let mut output = picture.clone();
                let mut frames = frames(layout, layout.row_bytes(), Some(&picture), &mut output);
                cpu.run(&mut frames, job, soft.as_ref()).unwrap();
                output
            })
        });
        let outputs: Vec<_> = outputs.collect();
        assert!(outputs[0].iter().all(|output| *output != picture), "{layout:?} {sigma}");
        assert!(outputs.iter().all(|output| *output == outputs[0]), "{layout:?} {sigma}");
    }

    const TINY: PlaneLayout = PlaneLayout::new(11, 5, 1, 8);

    #[test]
    fn tiny_pictures_of_bytes() {
        all_instruction_sets_have_the_same_bytes(TINY, 0.8);
    }

    #[test]
    fn tiny_pictures_of_bytes_in_the_wide_form() {
        all_instruction_sets_have_the_same_bytes(TINY, 5.0);
    }

    #[test]
    fn tiny_pictures_with_alpha() {
        let roles = [Role::Primary, Role::Primary, Role::Primary, Role::Alpha];
        all_instruction_sets_have_the_same_bytes(PlaneLayout { channels: 4, roles, ..TINY }, 0.8);
    }

    #[test]
    fn tiny_pictures_of_words_in_fields() {
        let layout = PlaneLayout { channels: 2, depth: 16, split: Split::Fields, ..TINY };
        all_instruction_sets_have_the_same_bytes(layout, 5.0);
    }

    #[test]
    fn tiny_pictures_of_packed_words() {
        let layout = PlaneLayout { channels: 4, depth: 10, sample_layout: SampleLayout::Packed1010102, ..TINY };
        all_instruction_sets_have_the_same_bytes(layout, 0.8);
    }

    /// Rows are unpacked only where a tile reads them.
    #[test]
    fn tiny_parts_of_a_wide_picture_of_packed_words() {
        let layout =
            PlaneLayout { width: 300, channels: 4, depth: 10, sample_layout: SampleLayout::Packed1010102, ..TINY };
        all_instruction_sets_have_the_same_bytes(layout, 0.8);
    }

    /// Pixels of three channels do not fill a vector: 15 of 16 lanes are used.
    #[test]
    fn tiny_pictures_of_three_words() {
        all_instruction_sets_have_the_same_bytes(PlaneLayout { channels: 3, depth: 16, ..TINY }, 0.8);
    }

    /// The centre tap does not fit into a signed 16-bit number.
    #[test]
    fn tiny_pictures_that_hardly_change() {
        all_instruction_sets_have_the_same_bytes(PlaneLayout { channels: 3, ..TINY }, 0.4);
    }

    #[test]
    fn tiny_pictures_of_packed_pairs_of_words() {
        let sample_layout = SampleLayout::Yuv422 { luma: 0 };
        all_instruction_sets_have_the_same_bytes(PlaneLayout { channels: 4, depth: 12, sample_layout, ..TINY }, 0.8);
    }

    #[test]
    fn tiny_pictures_of_packed_pairs() {
        let layout = PlaneLayout { channels: 4, sample_layout: SampleLayout::Yuv422 { luma: 1 }, ..TINY };
        all_instruction_sets_have_the_same_bytes(layout, 5.0);
    }
}
