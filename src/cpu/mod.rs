// SPDX-License-Identifier: MPL-2.0
//! The CPU backend: exact, tiled for the cache, vectorised for the processor at hand, on the process's worker threads.

mod instruction_set;
mod pixel_rows;
mod rows;
#[cfg(target_arch = "x86_64")]
mod rows_vnni;
mod scratch;
mod simd;
mod tile;
mod tile_blur;
mod weights;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::filter::frame::{FrameMemory, PlaneLayout, Region, ValidFrames};
use crate::filter::plan::{AlphaSource, Buffer, Operation, Plan, View};
use crate::filter::plane::{HostPlane, HostPlaneMut};
use crate::process;
use crate::threads::Threads;
pub use instruction_set::InstructionSet;
use pixel_rows::PixelRows;
use scratch::Scratch;
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
        assert!(plan.layouts() == frames.layouts(), "the plan is for other frames");
        let (FrameMemory::Host(sources), FrameMemory::Host(destinations)) = (frames.source(), frames.destination())
        else {
            return Err(CpuError::DeviceMemory);
        };
        let planes = Planes { sources, destinations, temporaries: self.reserve_temporaries(plan)? };
        let operations = plan.operations();
        let weights: Vec<Option<PlaneWeights>> = operations.iter().map(plane_weights).collect();
        let workers = self.threads.count();
        let tiles: Vec<Vec<Tile>> = operations
            .iter()
            .zip(&weights)
            .map(|(operation, weights)| planes.tiles(operation, weights, workers))
            .collect();
        // At least one, for operations that have no tiles.
        let workers = workers.min(tiles.iter().map(Vec::len).sum()).max(1);
        self.reserve_scratch(workers, tiles.iter().flatten())?;

        let mut first = 0;
        for group in operations.chunk_by(Operation::is_independent_of) {
            let tiles: Vec<&Tile> = tiles[first..first + group.len()].iter().flatten().collect();
            first += group.len();
            if tiles.is_empty() {
                let rows: Vec<PixelRows> = group.iter().map(|operation| planes.pixel_rows(operation)).collect();
                // SAFETY: the frames are valid and the temporaries are as large as their layouts, so every plane holds its rows;
                // operations of a group are independent of each other.
                unsafe { pixel_rows::execute(&self.threads, &mut self.scratch[..workers], &rows) };
            } else {
                self.blur_tiles(workers, &tiles);
            }
        }
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

    /// Allocates working memory for every tile, for this many threads.
    fn reserve_scratch<'a>(
        &mut self,
        workers: usize,
        tiles: impl Iterator<Item = &'a Tile<'a>>,
    ) -> Result<(), CpuError> {
        if self.scratch.len() < workers {
            self.scratch.resize_with(workers, Scratch::default);
        }
        for tile in tiles {
            for scratch in &mut self.scratch[..workers] {
                tile_blur::reserve(scratch, &tile.layout, tile.weights, tile.region.width)?;
            }
        }
        Ok(())
    }

    fn blur_tiles(&mut self, workers: usize, tiles: &[&Tile]) {
        let (set, tiles, next) = (self.set, SharedTiles(tiles), AtomicUsize::new(0));
        self.threads.run(&mut self.scratch[..workers], |scratch| {
            while let Some(tile) = tiles.get(next.fetch_add(1, Ordering::Relaxed)) {
                // SAFETY: the processor has the set; the tile's planes hold their rows, because the frames are valid and the
                // temporaries are as large as their layouts; `reserve_scratch` allocated the scratch; the regions of a plane
                // do not overlap, and each tile is taken once.
                unsafe { set.blur(tile, scratch) };
            }
        });
    }
}

/// The layout of what a blur reads and the taps it uses, laid out for the vector loops.
fn plane_weights(operation: &Operation) -> Option<PlaneWeights> {
    match operation {
        Operation::Blur { source, taps, .. } => Some(PlaneWeights::new(&source.field.layout, taps)),
        _ => None,
    }
}

/// The planes that a plan's buffers stand for.
struct Planes<'a> {
    sources: &'a [HostPlane],
    destinations: &'a [HostPlaneMut],
    temporaries: Vec<HostPlaneMut>,
}

impl Planes<'_> {
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

    /// The tiles of a blur; none of another operation.
    fn tiles<'w>(&self, operation: &Operation, weights: &'w Option<PlaneWeights>, workers: usize) -> Vec<Tile<'w>> {
        let (Operation::Blur { source, destination, .. }, Some(weights)) = (operation, weights) else {
            return Vec::new();
        };
        let layout = source.field.layout;
        let (source, destination) = (self.to_read(source), self.to_write(destination));
        let tile = |region| Tile { layout, source, destination, weights, region };
        Tiling::new(&layout, weights, workers).regions(&layout).map(tile).collect()
    }

    /// An operation other than a blur.
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
            Operation::Blur { .. } => unreachable!("blurs are executed as tiles"),
        };
        let layout = source.field.layout;
        PixelRows { operation, layout, source: self.to_read(source), destination, premultiplied, alpha }
    }
}

/// Tiles that several threads take from.
#[derive(Clone, Copy)]
struct SharedTiles<'a>(&'a [&'a Tile<'a>]);

// SAFETY: a tile's pointers are into frames and temporaries that `CpuEngine::blur` borrows until all threads have finished.
unsafe impl Sync for SharedTiles<'_> {}

impl SharedTiles<'_> {
    fn get(&self, index: usize) -> Option<&Tile<'_>> {
        self.0.get(index).copied()
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

    fn new(layout: &PlaneLayout, weights: &PlaneWeights, workers: usize) -> Self {
        let (samples, rows, weights) = (layout.row_samples(), layout.height as usize, &weights.all);
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

    fn regions(self, layout: &PlaneLayout) -> impl Iterator<Item = Region> {
        let (samples, rows) = (layout.row_samples(), layout.height as usize);
        (0..rows).step_by(self.height).flat_map(move |y| {
            (0..samples).step_by(self.width).map(move |x| Region {
                x,
                y,
                width: self.width.min(samples - x),
                height: self.height.min(rows - y),
            })
        })
    }
}
