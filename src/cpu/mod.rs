// SPDX-License-Identifier: MPL-2.0
//! The CPU backend: exact, tiled for the cache, vectorised for the processor at hand, on the process's worker threads.

mod instruction_set;
mod pixel_rows;
mod resample;
mod rows;
#[cfg(target_arch = "x86_64")]
mod rows_vnni;
mod schedule;
mod scratch;
mod simd;
mod task;
mod tile;
mod tile_blur;
mod weights;
mod window;

use std::sync::Arc;

use crate::filter::frame::{FrameMemory, PlaneLayout, Region, ValidFrames};
use crate::filter::operation::{AlphaSource, Buffer, Operation, View};
use crate::filter::plan::Plan;
use crate::filter::plane::{HostPlane, HostPlaneMut};
use crate::filter::regions::Rect;
use crate::process;
use crate::threads::Threads;
pub use instruction_set::InstructionSet;
use pixel_rows::PixelRows;
use resample::decimate::Decimation;
use resample::interpolate::Interpolation;
use scratch::Scratch;
use task::Task;
use tile::Tile;
use tile_blur::TILE_STEP;
use weights::PlaneWeights;

#[cfg(test)]
pub(crate) use scratch::faults;

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
    /// The temporaries of the plan, one after the other.
    temporaries: Scratch,
}

impl CpuEngine {
    /// With the fastest instruction set of this processor.
    #[expect(clippy::new_without_default, reason = "it shares threads with all other engines of the process")]
    pub fn new() -> Self {
        let set = InstructionSet::available().pop().unwrap_or(InstructionSet::Portable);
        Self { set, threads: process::threads(), scratch: Vec::new(), temporaries: Scratch::default() }
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
        self.blur_windows(frames, plan, &[])
    }

    /// Executes the plan where its result is used: in one window for each plane, in pixels and rows of the plane, or
    /// everywhere without windows. What is written beyond a window is undefined. On an error nothing was written.
    ///
    /// # Panics
    /// If the plan was made for other layouts.
    pub fn blur_windows(&mut self, frames: &mut ValidFrames, plan: &Plan, windows: &[Rect]) -> Result<(), CpuError> {
        assert!(plan.layouts() == frames.layouts(), "the plan is for other frames");
        let (FrameMemory::Host(sources), FrameMemory::Host(destinations)) = (frames.source(), frames.destination())
        else {
            return Err(CpuError::DeviceMemory);
        };
        let planes = Planes { sources, destinations, temporaries: self.reserve_temporaries(plan)?, windows };
        let operations: Vec<Prepared> = plan.operations().iter().map(|operation| planes.prepare(operation)).collect();
        let workers = self.threads.count();
        let mut rest = &operations[..];
        let mut groups: Vec<Vec<Task>> = Vec::new();
        for group in plan.operations().chunk_by(Operation::is_independent_of) {
            let (operations, others) = rest.split_at(group.len());
            groups.push(operations.iter().flat_map(|operation| operation.tasks(workers)).collect());
            rest = others;
        }
        // Only operations that are cut by the work in them are worth waking threads for.
        let parallel = |group: &Vec<Task>| group.iter().filter(|task| !matches!(task, Task::Pixels(_))).count();
        let workers = groups.iter().map(parallel).max().unwrap_or(0).clamp(1, workers);
        self.reserve_scratch(workers, groups.iter().flatten())?;
        let set = self.set;
        schedule::run(&self.threads, &mut self.scratch[..workers], &groups, |scratch, task| {
            // SAFETY: the processor has the set; the task's planes hold the rows of their views, because the frames are
            // valid and the temporaries are as large as their layouts; `reserve_scratch` allocated the scratch memory. Tasks
            // of an operation do not overlap in what they write, operations of a group are independent of each other, and
            // each task is executed once, after the groups before its own.
            unsafe { set.execute(task, scratch) };
        });
        Ok(())
    }

    /// Allocates the temporaries of a plan, dense and each starting on a cache line.
    fn reserve_temporaries(&mut self, plan: &Plan) -> Result<Vec<HostPlaneMut>, CpuError> {
        let bytes = |layout: &PlaneLayout| layout.row_bytes() * layout.height as usize;
        let words = |layout: &PlaneLayout| bytes(layout).div_ceil(4).next_multiple_of(Scratch::ALIGNMENT_WORDS);
        self.temporaries.reserve(plan.temporaries().iter().map(words).sum())?;
        let mut address = self.temporaries.words();
        let temporary = |layout: &PlaneLayout| {
            let plane = HostPlaneMut { address: address.cast(), pitch: layout.row_bytes(), len: bytes(layout) };
            address = address.wrapping_add(words(layout));
            plane
        };
        Ok(plan.temporaries().iter().map(temporary).collect())
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

/// An operation, and where its rows are.
enum Prepared<'a> {
    Blur { layout: PlaneLayout, source: HostPlane, destination: HostPlaneMut, weights: PlaneWeights, window: Region },
    Decimate(Decimation),
    Interpolate(Interpolation),
    Pixels(PixelRows<'a>),
}

impl Prepared<'_> {
    /// Its parts for this many threads.
    fn tasks(&self, workers: usize) -> Vec<Task<'_>> {
        match self {
            Self::Blur { layout, source, destination, weights, window } => {
                let (layout, source, destination) = (*layout, *source, *destination);
                let tile = |region| Task::Tile(Tile { layout, source, destination, weights, region });
                Tiling::new(*window, weights, workers).regions(*window).map(tile).collect()
            }
            Self::Decimate(decimation) => decimation.blocks(workers).map(Task::Decimation).collect(),
            Self::Interpolate(interpolation) => interpolation.blocks(workers).map(Task::Interpolation).collect(),
            Self::Pixels(rows) => rows.blocks().map(Task::Pixels).collect(),
        }
    }
}

/// The planes that a plan's buffers stand for.
struct Planes<'a> {
    sources: &'a [HostPlane],
    destinations: &'a [HostPlaneMut],
    temporaries: Vec<HostPlaneMut>,
    /// The parts of the destinations that are used; empty if they are used as a whole.
    windows: &'a [Rect],
}

impl Planes<'_> {
    /// The part of a view that is used: all of a temporary. A window without rows in a field counts as the whole field.
    fn window(&self, view: &View) -> Rect {
        let PlaneLayout { width, height, .. } = view.field.layout;
        let window = match view.buffer {
            Buffer::Destination(index) => self.windows.get(index),
            _ => None,
        };
        let all = Rect::new(0, 0, width, height);
        window.and_then(|window| window::of_field(&view.field, *window)).or(all).expect("a field has samples")
    }

    fn to_read(&self, view: &View) -> HostPlane {
        let plane = match view.buffer {
            Buffer::Source(index) => self.sources[index],
            Buffer::Destination(index) => self.destinations[index].as_const(),
            Buffer::Temporary(index) => self.temporaries[index].as_const(),
        };
        view.field.rows_of(&plane)
    }

    fn to_write(&self, view: &View) -> HostPlaneMut {
        let plane = match view.buffer {
            Buffer::Source(_) => unreachable!("no operation writes the source"),
            Buffer::Destination(index) => self.destinations[index],
            Buffer::Temporary(index) => self.temporaries[index],
        };
        view.field.rows_of(&plane)
    }

    fn prepare<'o>(&self, operation: &'o Operation) -> Prepared<'o> {
        match operation {
            Operation::Blur { source, destination, taps } => {
                let layout = source.field.layout;
                let window = window::samples(&layout, self.window(destination));
                let (source, destination) = (self.to_read(source), self.to_write(destination));
                Prepared::Blur { layout, source, destination, weights: PlaneWeights::new(&layout, taps), window }
            }
            Operation::Decimate(resampling) => {
                let planes = (self.to_read(&resampling.source), self.to_write(&resampling.destination));
                Prepared::Decimate(Decimation::new(resampling, planes.0, planes.1))
            }
            Operation::Interpolate(resampling) => {
                let planes = (self.to_read(&resampling.source), self.to_write(&resampling.destination));
                let window = self.window(&resampling.destination);
                let (part, source, destination) = window::of_interpolation(resampling, window, planes.0, planes.1);
                Prepared::Interpolate(Interpolation::new(&part, source, destination))
            }
            _ => Prepared::Pixels(self.pixel_rows(operation)),
        }
    }

    /// An operation that goes pixel by pixel.
    fn pixel_rows<'o>(&self, operation: &'o Operation) -> PixelRows<'o> {
        let unused = HostPlaneMut { address: std::ptr::null_mut(), pitch: 0, len: 0 };
        let alpha_plane = |alpha: &AlphaSource| match alpha {
            AlphaSource::Plane { view, .. } => Some(self.to_read(view)),
            AlphaSource::Channel(_) => None,
        };
        let (source, destination, premultiplied, alpha) = match operation {
            Operation::Copy { source, destination } | Operation::RestoreChannels { source, destination, .. } => {
                (source, self.to_write(destination), unused, None)
            }
            Operation::Premultiply { source, alpha, premultiplied } => {
                (source, unused, self.to_write(premultiplied), alpha_plane(alpha))
            }
            Operation::Unpremultiply { premultiplied, alpha, source, destination, .. } => {
                (source, self.to_write(destination), self.to_write(premultiplied), alpha_plane(alpha))
            }
            Operation::Blur { .. } | Operation::Decimate(_) | Operation::Interpolate(_) => {
                unreachable!("`prepare` handles these itself")
            }
        };
        let layout = source.field.layout;
        PixelRows { operation, layout, source: self.to_read(source), destination, premultiplied, alpha }
    }
}

/// How a plane is cut: columns so that a tile's ring of row pairs stays in the L2 cache, then bands of rows until every
/// thread has enough tiles to even out.
struct Tiling {
    width: usize,
    height: usize,
}

impl Tiling {
    /// Bytes that a tile's ring should not exceed: half of a small L2 cache.
    const RING_BYTES: usize = 256 << 10;
    /// Tiles per thread that even out the load.
    const TILES_PER_WORKER: usize = 2;
    /// A frame of fewer samples times taps than this is not worth waking threads for.
    const PARALLEL_WORK: usize = 1 << 20;

    fn new(window: Region, weights: &PlaneWeights, workers: usize) -> Self {
        let (samples, rows, weights) = (window.width, window.height, &weights.all);
        let widest = (Self::RING_BYTES / 4 / weights.block_pairs()).max(2 * TILE_STEP);
        let columns = samples.div_ceil(widest);
        let width = samples.div_ceil(columns).next_multiple_of(TILE_STEP);
        let columns = samples.div_ceil(width);

        let work = samples * rows * (weights.radius[0] + weights.radius[1] + 2);
        let tiles = if workers == 1 || work < Self::PARALLEL_WORK { 1 } else { workers * Self::TILES_PER_WORKER };
        // Every band filters 2 × radius rows that its neighbours filter too.
        let shortest = 4 * weights.radius[1] + 16;
        let bands = tiles.div_ceil(columns).min(rows.div_ceil(shortest)).max(1);
        Self { width, height: rows.div_ceil(bands).next_multiple_of(weights::BLOCK_ROWS) }
    }

    fn regions(self, window: Region) -> impl Iterator<Item = Region> {
        (0..window.height).step_by(self.height).flat_map(move |y| {
            (0..window.width).step_by(self.width).map(move |x| Region {
                x: window.x + x,
                y: window.y + y,
                width: self.width.min(window.width - x),
                height: self.height.min(window.height - y),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::BlurParams;
    use crate::filter::frame::{Destination, Plane, Source};

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
}
