// SPDX-License-Identifier: MPL-2.0
//! The CPU backend: exact, tiled for the cache, vectorised for the processor at hand, on the process's worker threads.

mod execution;
mod instruction_set;
mod pixel_rows;
mod resample;
mod rows;
#[cfg(target_arch = "x86_64")]
mod rows_vnni;
mod schedule;
mod scratch;
mod simd;
mod soft;
mod task;
mod tile;
mod tile_blur;
mod weights;

use std::sync::Arc;

use crate::filter::byte_rect::ByteRect;
use crate::filter::frame::{FrameMemory, PlaneLayout, ValidFrames};
use crate::filter::inpainting::Inpainting;
use crate::filter::operation::{Buffer, Operation};
use crate::filter::picture::{FieldRect, PictureGeometry};
use crate::filter::plan::{Plan, Selection};
use crate::filter::plane::{HostPlane, HostPlaneMut};
use crate::filter::region_blur::{RegionBlur, RegionBlurPlan};
use crate::filter::regions::{self, Rect};
use crate::filter::weights::Weights;
use crate::process;
use crate::threads::Threads;
pub use execution::TILES;
use execution::{BufferPlanes, Execution, Prepared, extent, place};
pub use instruction_set::InstructionSet;
use scratch::{Extent, Scratch};
use soft::{CellMeans, Cells, CoverSamples, Mix, SampleWeights, SoftOperation};
use task::Task;

#[cfg(test)]
pub(crate) use scratch::faults;

/// Tasks of an operation for each thread, which even out the load.
const TASKS_PER_THREAD: usize = 2;

/// Why the CPU did not blur a frame. Nothing was written to the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuError {
    /// The allocator refused this many bytes of working memory.
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// A frame is in device memory, which the CPU cannot access.
    DeviceMemory,
}

/// Blurs frames on the CPU. Keeps its worker threads and their working memory between frames.
pub struct CpuEngine {
    set: InstructionSet,
    threads: Arc<Threads>,
    /// One for each thread.
    scratch: Vec<Scratch>,
    /// The temporaries of the plans, one after the other.
    temporaries: Scratch,
    /// The blurred planes of regions, until they are written to the frame.
    blurred: Scratch,
    /// What regions of different Gaussians are covered with, before it is mixed into the frame.
    covers: Scratch,
    /// The planes of a picture without its objects, and the cells that these are estimated from.
    inpainted: Scratch,
    cells: Scratch,
}

/// The blurs of a soft cover.
#[derive(Clone, Copy)]
pub struct SoftBlurs<'a> {
    /// How much of the cover shows.
    pub weights: &'a Weights,
    /// Of the frame.
    pub regions: &'a RegionBlurPlan,
    /// Channels that are covered; the others keep their values.
    pub planes: Selection,
    /// What the blurs do not see: they see an estimate from what is around it.
    pub excluded: Option<&'a Weights>,
}

impl CpuEngine {
    /// With the instruction set that the environment names, or the fastest of this processor.
    #[expect(clippy::new_without_default, reason = "it shares threads with all other engines of the process")]
    pub fn new() -> Self {
        let set = InstructionSet::chosen();
        Self {
            set,
            threads: process::threads(),
            scratch: Vec::new(),
            temporaries: Scratch::default(),
            blurred: Scratch::default(),
            covers: Scratch::default(),
            inpainted: Scratch::default(),
            cells: Scratch::default(),
        }
    }

    /// With another instruction set; `None` if this processor lacks it.
    pub fn with_instruction_set(self, set: InstructionSet) -> Option<Self> {
        InstructionSet::available().contains(&set).then_some(Self { set, ..self })
    }

    /// The instruction set in use.
    pub fn instruction_set(&self) -> InstructionSet {
        self.set
    }

    /// Executes the plan. On an error nothing was written.
    ///
    /// # Panics
    /// If the plan was made for other layouts.
    pub fn blur(&mut self, frames: &mut ValidFrames, plan: &Plan) -> Result<(), CpuError> {
        assert!(plan.layouts() == frames.layouts(), "the plan is for other frames");
        let (sources, destinations) = host_planes(frames)?;
        self.execute(Vec::new(), sources, &[Execution { plan, parts: &plan.whole(), destinations }], Vec::new())
    }

    /// Blurs regions of the source, and then writes them to the destination, which holds its rows and may be the same memory. On
    /// an error nothing was written.
    ///
    /// # Panics
    /// If the plan was made for other layouts.
    pub fn cover(&mut self, frames: &mut ValidFrames, regions: &RegionBlurPlan) -> Result<(), CpuError> {
        assert!(regions.layouts() == frames.layouts(), "the plan is for other frames");
        let (sources, destinations) = host_planes(frames)?;
        let blurred = place(&mut self.blurred, &extents_of_blurred(regions))?;
        self.execute(Vec::new(), sources, &executions(regions, &blurred), writes(regions, &blurred, destinations))
    }

    /// Blurs regions of the source, or its background, and then mixes them by weights into the destination, which holds the source's
    /// samples and may be the same memory. On an error nothing was written.
    ///
    /// # Panics
    /// If the plan was made for other layouts, or the weights for another size.
    pub fn cover_softly(&mut self, frames: &mut ValidFrames, blurs: SoftBlurs) -> Result<(), CpuError> {
        let SoftBlurs { weights, regions, planes, excluded } = blurs;
        let layouts = frames.layouts();
        let picture = PictureGeometry::new(layouts);
        assert!(regions.layouts() == layouts, "the plan is for other frames");
        if regions.blurs().is_empty() {
            return Ok(());
        }
        let (frame_planes, destinations) = host_planes(frames)?;
        let (mut means, mut spreads, mut inpaints) = (Vec::new(), Vec::new(), Vec::new());
        // The planes that are blurred.
        let mut sources = frame_planes.to_vec();
        let inpainting = excluded.map(|excluded| Inpainting::new(layouts, excluded.cell()));
        if let (Some(inpainting), Some(excluded)) = (&inpainting, excluded) {
            self.cells.reserve(inpainting.words())?;
            let memory = self.cells.words();
            let inpainted = place(&mut self.inpainted, &extents_of_sources(regions))?;
            let cells = |plane: usize| {
                let grids = inpainting.grids.iter().filter(|inpainted| inpainted.grid.plane == plane);
                Cells { grids: grids.collect(), memory }
            };
            let cover_of = |plane: usize| CoverSamples::Inpainted { source: frame_planes[plane], cells: cells(plane) };
            for (plane, layout) in layouts.iter().enumerate() {
                let Cells { grids, memory } = cells(plane);
                for grids in grids.chunk_by(|one, other| one.grid.field == other.grid.field) {
                    let weights = SampleWeights::new(excluded, *layout, picture.shift(plane));
                    let cells = Cells { grids: grids.to_vec(), memory };
                    means.push(SoftOperation::CellMeans(CellMeans { weights, source: frame_planes[plane], cells }));
                }
            }
            spreads.extend(inpainting.grids.iter().map(|grid| SoftOperation::Spread { grid, memory }));
            inpaints = mixes(&picture, excluded, &regions.reads(), Selection::ALL, &inpainted, cover_of);
            sources = inpainted.iter().map(HostPlaneMut::as_const).collect();
        }
        let blurred = place(&mut self.blurred, &extents_of_blurred(regions))?;
        // Where Gaussians overlap the stronger one counts, so the cover of several is put together first.
        let mut writes_of_covers = Vec::new();
        let mut cover = &blurred[..];
        let of_several;
        if regions.blurs().len() > 1 {
            let whole: Vec<Extent> =
                layouts.iter().map(|layout| (layout.row_bytes(), 0..layout.height as usize)).collect();
            of_several = place(&mut self.covers, &whole)?;
            writes_of_covers = writes(regions, &blurred, &of_several);
            cover = &of_several;
        }
        let cover_of = |plane: usize| CoverSamples::Plane(cover[plane].as_const());
        let mixes = mixes(&picture, weights, &regions.covered(), planes, destinations, cover_of);
        let mut last = writes_of_covers;
        last.push(soft_tasks(&mixes));
        self.execute(
            [&means, &spreads, &inpaints].map(|operations| soft_tasks(operations)).into(),
            &sources,
            &executions(regions, &blurred),
            last,
        )
    }

    /// Mixes what is covered of another frame of the same planes by weights into the destination.
    ///
    /// # Panics
    /// If the weights were made for another size.
    pub fn mix(
        &mut self,
        frames: &mut ValidFrames,
        weights: &Weights,
        covered: &[(usize, FieldRect)],
    ) -> Result<(), CpuError> {
        let picture = PictureGeometry::new(frames.layouts());
        let (covers, destinations) = host_planes(frames)?;
        let cover_of = |plane: usize| CoverSamples::Plane(covers[plane]);
        let mixes = mixes(&picture, weights, covered, Selection::ALL, destinations, cover_of);
        self.execute(vec![soft_tasks(&mixes)], covers, &[], Vec::new())
    }

    /// Executes the tasks of `first`, plans that do not depend on each other, for frames with these sources, and the tasks of `last`.
    fn execute(
        &mut self,
        first: Vec<Vec<Task>>,
        sources: &[HostPlane],
        executions: &[Execution],
        last: Vec<Vec<Task>>,
    ) -> Result<(), CpuError> {
        let extents = |Execution { plan, parts, .. }: &Execution| -> Vec<Extent> {
            let planes = plan.temporaries().iter().enumerate();
            planes.map(|(index, layout)| extent(plan, parts, Buffer::Temporary(index), layout)).collect()
        };
        let extents: Vec<Extent> = executions.iter().flat_map(extents).collect();
        let temporaries = place(&mut self.temporaries, &extents)?;
        let mut rest = &temporaries[..];
        // An operation is cut into this many tasks, its rectangles according to their size.
        let threads = self.threads.count();
        let tasks_each = if threads == 1 { 1 } else { threads * TASKS_PER_THREAD };
        let mut groups: Vec<Vec<(Prepared, usize)>> = Vec::new();
        for Execution { plan, parts, destinations } in executions {
            let (temporaries, others) = rest.split_at(plan.temporaries().len());
            rest = others;
            let planes = BufferPlanes { sources, destinations, temporaries };
            let mut operations = plan.operations().iter().zip(*parts).peekable();
            for (index, group) in plan.operations().chunk_by(Operation::is_independent_of).enumerate() {
                if groups.len() == index {
                    groups.push(Vec::new());
                }
                for (operation, rects) in operations.by_ref().take(group.len()) {
                    let all: u64 = rects.iter().map(|rect| rect.area()).sum();
                    let share = |rect: &Rect| (tasks_each as u64 * rect.area() + all / 2) / all;
                    let shares = rects.iter().map(|rect| share(rect).max(1) as usize);
                    groups[index].extend(planes.prepare(operation, rects).into_iter().zip(shares));
                }
            }
        }
        let of_plans = groups.iter().map(|group| group.iter().flat_map(|(one, count)| one.tasks(*count)).collect());
        let groups: Vec<Vec<Task>> = first.into_iter().chain(of_plans).chain(last).collect();
        // Only operations that are cut by the work in them are worth waking threads for.
        let parallel = |group: &Vec<Task>| {
            group.iter().filter(|task| !matches!(task, Task::Pixels(_) | Task::Copy { .. })).count()
        };
        let workers = groups.iter().map(parallel).max().unwrap_or(0).clamp(1, threads);
        self.reserve_scratch(workers, groups.iter().flatten())?;
        let set = self.set;
        schedule::run(&self.threads, &mut self.scratch[..workers], &groups, |scratch, task| {
            // SAFETY: the processor has the set; the task's planes hold what it reads and writes, because the frames are
            // valid and `place` has allocated the rows that are accessed of all others; `reserve_scratch` allocated the scratch
            // memory. What is written to a frame is computed by then, because the parts have it. Rectangles of an operation do not overlap, nor do its tasks in what they write, operations of a group are
            // independent of each other, and each task is executed once, after the groups before its own.
            unsafe { set.execute(task, scratch) };
        });
        Ok(())
    }

    /// Allocates working memory for every task, for this many threads.
    fn reserve_scratch<'a>(
        &mut self,
        workers: usize,
        tasks: impl Iterator<Item = &'a Task<'a>>,
    ) -> Result<(), CpuError> {
        if self.scratch.len() < workers {
            self.scratch.resize_with(workers, Scratch::default);
        }
        let words = tasks.map(Task::scratch_words).max().unwrap_or(0);
        self.scratch[..workers].iter_mut().try_for_each(|scratch| scratch.reserve(words))
    }
}

/// What is accessed of the planes of the frame.
fn extents_of_sources(regions: &RegionBlurPlan) -> Vec<Extent> {
    let of_plane = |(plane, layout): (usize, &PlaneLayout)| {
        let of_blur =
            |RegionBlur { plan, needs, .. }: &RegionBlur| extent(plan, &needs.parts, Buffer::Source(plane), layout);
        let hull = |(bytes, a): Extent, (_, b): Extent| match (a.is_empty(), b.is_empty()) {
            (true, _) => (bytes, b),
            (_, true) => (bytes, a),
            _ => (bytes, a.start.min(b.start)..a.end.max(b.end)),
        };
        regions.blurs().iter().map(of_blur).reduce(hull).unwrap_or_default()
    };
    regions.layouts().iter().enumerate().map(of_plane).collect()
}

/// What is accessed of the planes that the blurs of regions write, blur by blur.
fn extents_of_blurred(regions: &RegionBlurPlan) -> Vec<Extent> {
    let extents = |RegionBlur { plan, needs, .. }: &RegionBlur| -> Vec<Extent> {
        let planes = regions.layouts().iter().enumerate();
        planes.map(|(index, layout)| extent(plan, &needs.parts, Buffer::Destination(index), layout)).collect()
    };
    regions.blurs().iter().flat_map(extents).collect()
}

/// The blurs of regions into planes of their own.
fn executions<'a>(regions: &'a RegionBlurPlan, blurred: &'a [HostPlaneMut]) -> Vec<Execution<'a>> {
    let blurs = regions.blurs().iter().zip(blurred.chunks(regions.layouts().len()));
    let execution = |(blur, destinations): (&'a RegionBlur, _)| Execution {
        plan: &blur.plan,
        parts: &blur.needs.parts,
        destinations,
    };
    blurs.map(execution).collect()
}

/// Copies of what is covered, weaker Gaussians first.
fn writes<'a>(regions: &RegionBlurPlan, blurred: &[HostPlaneMut], destinations: &[HostPlaneMut]) -> Vec<Vec<Task<'a>>> {
    let layouts = regions.layouts();
    // One task for each plane, because chroma of rectangles side by side overlaps.
    let writes = regions.blurs().iter().zip(blurred.chunks(layouts.len())).map(|(blur, blurred)| {
        let of_plane = |(plane, layout): (usize, &PlaneLayout)| {
            let covered = blur.covered.iter().filter(|(of, _)| *of == plane);
            let rects = covered.flat_map(|(_, covered)| ByteRect::covered(plane, layout, *covered)).collect();
            Task::Copy { from: blurred[plane].as_const(), to: destinations[plane], rects }
        };
        layouts.iter().enumerate().map(of_plane).collect()
    });
    writes.collect()
}

fn soft_tasks<'a>(operations: &'a [SoftOperation<'a>]) -> Vec<Task<'a>> {
    operations.iter().flat_map(SoftOperation::blocks).map(Task::Soft).collect()
}

/// The mixes of a cover into the planes of a frame.
fn mixes<'a>(
    picture: &PictureGeometry,
    weights: &'a Weights,
    covered: &[(usize, FieldRect)],
    selected: Selection,
    to: &[HostPlaneMut],
    cover: impl Fn(usize) -> CoverSamples<'a>,
) -> Vec<SoftOperation<'a>> {
    let size = picture.size();
    assert!(weights.size() == (size[0], size[1]), "the weights are for another size");
    let planes = picture.layouts().iter().enumerate();
    let mix = |(plane, layout): (usize, &PlaneLayout)| {
        let covered = disjoint(covered.iter().filter(|(of, _)| *of == plane).map(|(_, covered)| *covered).collect());
        let keeps = |c: usize| u32::from(!selected.contains(layout.roles[c])) << c;
        let passthrough_mask: u32 = (0..layout.roles().len()).map(keeps).sum();
        let is_mixed = passthrough_mask != (1 << layout.roles().len()) - 1 && !covered.is_empty();
        is_mixed.then(|| {
            let weights = SampleWeights::new(weights, *layout, picture.shift(plane));
            SoftOperation::Mix(Mix { weights, cover: cover(plane), to: to[plane], covered, passthrough_mask })
        })
    };
    planes.filter_map(mix).collect()
}

/// The same samples of a plane in rectangles that do not overlap: none is mixed twice.
fn disjoint(mut covered: Vec<FieldRect>) -> Vec<FieldRect> {
    covered.sort_unstable_by_key(|FieldRect { field, .. }| field.first_row);
    let of_field = |covered: &[FieldRect]| {
        let rects: Vec<Rect> = covered.iter().map(|covered| covered.rect).collect();
        let field = covered[0].field;
        regions::disjoint(&rects).into_iter().map(move |rect| FieldRect { field, rect })
    };
    covered.chunk_by(|one, other| one.field == other.field).flat_map(of_field).collect()
}

/// The planes of frames in host memory.
fn host_planes<'a>(frames: &'a ValidFrames) -> Result<(&'a [HostPlane], &'a [HostPlaneMut]), CpuError> {
    match (frames.source(), frames.destination()) {
        (FrameMemory::Host(sources), FrameMemory::Host(destinations)) => Ok((sources, destinations)),
        _ => Err(CpuError::DeviceMemory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::BlurParams;
    use crate::filter::frame::{Destination, Plane, Role, SampleLayout, Source};
    use crate::filter::plan::{AlphaMode, Options, Selection};
    use crate::filter::region_blur::{BlurCover, BlurRegion};
    use crate::filter::regions::Area;
    use crate::filter::weights::{Edge, Object, Shape};

    /// Every allocation of a wide blur may fail, temporaries and scratch memory, before anything is written.
    #[test]
    fn nothing_is_written_if_memory_runs_out() {
        let layout = PlaneLayout::new(600, 9, 3, 8);
        let plan = Plan::new(BlurParams::new(20.0, 0).unwrap().into(), &[layout]);
        assert!(plan.is_wide());
        let (src, untouched) = (vec![99; 600 * 9 * 3], vec![7; 600 * 9 * 3]);
        let blurred = |ceiling: usize| {
            let mut dst = untouched.clone();
            let from = vec![Plane { layout, pitch: 1800, data: &src[..] }];
            let to = vec![Plane { layout, pitch: 1800, data: &mut dst[..] }];
            let mut frames = ValidFrames::new(Source::Host(from), Destination::Host(to)).unwrap();
            faults::set_ceiling(ceiling);
            let result = CpuEngine::new().blur(&mut frames, &plan);
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

    /// As above for regions in place, whose blurred planes are an allocation of their own.
    #[test]
    fn regions_stay_uncovered_only_with_an_error() {
        let layout = PlaneLayout::new(600, 90, 3, 8);
        let mut cpu = CpuEngine::new();
        let region = BlurRegion { rect: Rect::new(40, 30, 90, 2).unwrap(), params: BlurParams::new(20.0, 0).unwrap() };
        let cover = BlurCover { planes: Selection::ALL, regions: vec![region] };
        let plan = |options| Arc::new(Plan::new(options, &[layout]));
        let regions = RegionBlurPlan::new(&cover, &[layout], TILES, plan);
        let picture: Vec<u8> = (0..600 * 90 * 3_u32).map(|i| ((i * 31) >> 3) as u8).collect();
        let mut failed = Vec::new();
        for ceiling in (0..).step_by(4096) {
            let mut frame = picture.clone();
            let planes = vec![Plane { layout, pitch: 1800, data: &mut frame[..] }];
            let mut frames = ValidFrames::of_cover(Source::Host(Vec::new()), Destination::Host(planes)).unwrap();
            faults::set_ceiling(ceiling);
            let result = cpu.cover(&mut frames, &regions);
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
        assert_eq!(failed.len(), 2, "the blurred planes, then the temporaries, the largest: {failed:?}");
    }

    /// Small enough for Miri. Planes have no padding, so that it reports any access beyond the last row. The oracle of `tests/` judges
    /// the bytes themselves.
    fn all_instruction_sets_have_the_same_bytes(layout: PlaneLayout, sigma: f64) {
        let rect = Rect::new(3, 1, 6, 3).unwrap();
        let object = Object { area: Area::from_corner(3.0, 1.0, 6.0, 3.0), shape: Shape::Ellipse };
        let edge = Edge { grow: 1, feather: 2 };
        let size = (layout.width, layout.height);
        let weights = Weights::inside(size, std::slice::from_ref(&object), edge);
        let excluded = Weights::excluded(size, &[object], 2.0);
        let params = BlurParams::new(sigma, 0).unwrap();
        let cover = BlurCover { planes: Selection::ALL, regions: vec![BlurRegion { rect, params }] };
        let plan = |options| Arc::new(Plan::new(options, &[layout]));
        let regions = RegionBlurPlan::new(&cover, &[layout], TILES, plan);
        let bytes = (layout.row_bytes() * 5) as u32;
        let picture: Vec<u8> = (0..bytes).map(|i| ((i * 97) >> 2) as u8).collect();
        let outputs = InstructionSet::available().into_iter().map(|set| {
            let mut cpu = CpuEngine::new().with_instruction_set(set).unwrap();
            let mut run = |work: &dyn Fn(&mut CpuEngine, &mut ValidFrames) -> Result<(), CpuError>| {
                let mut output = picture.clone();
                let plane = |data| vec![Plane { layout, pitch: layout.row_bytes(), data }];
                let to = vec![Plane { layout, pitch: layout.row_bytes(), data: &mut output[..] }];
                let mut frames = ValidFrames::new(Source::Host(plane(&picture[..])), Destination::Host(to)).unwrap();
                work(&mut cpu, &mut frames).unwrap();
                output
            };
            let blur = |cpu: &mut CpuEngine, frames: &mut ValidFrames| {
                cpu.blur(frames, &plan(Options { alpha: AlphaMode::Premultiply, ..params.into() }))
            };
            let excluded = Some(&excluded);
            let soft = SoftBlurs { weights: &weights, regions: &regions, planes: Selection::ALL, excluded };
            [
                run(&blur),
                run(&|cpu, frames| cpu.cover(frames, &regions)),
                run(&|cpu, frames| cpu.cover_softly(frames, soft)),
            ]
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
        let layout = PlaneLayout { channels: 2, depth: 16, interlaced: true, ..TINY };
        all_instruction_sets_have_the_same_bytes(layout, 5.0);
    }

    #[test]
    fn tiny_pictures_of_packed_words() {
        let layout = PlaneLayout { channels: 4, depth: 10, sample_layout: SampleLayout::Packed1010102, ..TINY };
        all_instruction_sets_have_the_same_bytes(layout, 0.8);
    }

    /// A row is unpacked only where a tile reads it.
    #[test]
    fn tiny_parts_of_a_wide_picture_of_packed_words() {
        let layout =
            PlaneLayout { width: 300, channels: 4, depth: 10, sample_layout: SampleLayout::Packed1010102, ..TINY };
        all_instruction_sets_have_the_same_bytes(layout, 0.8);
    }

    /// Whole pixels of three channels do not fill a vector: 15 of 16 lanes are used.
    #[test]
    fn tiny_pictures_of_three_words() {
        all_instruction_sets_have_the_same_bytes(PlaneLayout { channels: 3, depth: 16, ..TINY }, 0.8);
    }

    /// The centre tap does not fit into a signed number.
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
