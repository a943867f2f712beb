// SPDX-License-Identifier: MPL-2.0
//! The CPU engine: exact, tiled for the cache, vectorised for the processor it finds, on as many threads as help.

mod alpha;
#[cfg(target_arch = "x86_64")]
mod quads;
mod rows;
mod scratch;
mod simd;
mod tile;
mod walk;
mod weights;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::frame::{Field, Frame, FrameMut, PlaneLayout, Region};
use crate::plan::{AlphaPlace, Job};
use crate::threads::Threads;
use alpha::{Rows, Weighing};
#[cfg(target_arch = "x86_64")]
use quads::Quads;
use rows::Pairs;
use scratch::Scratch;
use tile::Tile;
use walk::TILE_STEP;
use weights::PlaneWeights;

#[cfg(test)]
pub(crate) use scratch::faults;

/// The scratch memory for a frame could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The size asked for.
    pub bytes: usize,
}

/// The instruction sets the blur is written for. All give the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstructionSet {
    /// Whatever the compiler makes of plain Rust.
    Portable,
    /// The x86-64 baseline.
    #[cfg(target_arch = "x86_64")]
    Sse2,
    /// x86-64 since 2013.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F and BW.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX-512 F, BW, VNNI and VBMI: Ice Lake, Zen 4 and later.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    /// The aarch64 baseline.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl InstructionSet {
    /// Those this processor has, slowest first.
    pub fn available() -> Vec<Self> {
        let mut sets = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            sets.push(Self::Sse2);
            if is_x86_feature_detected!("avx2") {
                sets.push(Self::Avx2);
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                sets.push(Self::Avx512);
                if is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vbmi") {
                    sets.push(Self::Avx512Vnni);
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        sets.push(Self::Neon);
        sets
    }

    /// The name people know.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Sse2 => "sse2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => "avx512-vnni",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
        }
    }

    /// Blurs one tile.
    ///
    /// # Safety
    /// As [`walk::blur`]; the set is one of [`InstructionSet::available`].
    unsafe fn blur(self, tile: &Tile, scratch: &mut Scratch) {
        // Instruction sets beyond the baseline need a function of their own, into which all of the tile is inlined.
        #[cfg(target_arch = "x86_64")]
        macro_rules! with_features {
            ($features:literal, $set:ty, $rows:ty, $vectors:literal) => {{
                #[target_feature(enable = $features)]
                unsafe fn blur(tile: &Tile, scratch: &mut Scratch) {
                    // SAFETY: passed on; the features are this function's.
                    unsafe { walk::blur::<$set, $rows, $vectors>(tile, scratch) }
                }
                // SAFETY: passed on; an available set has its features.
                unsafe { blur(tile, scratch) }
            }};
        }
        match self {
            // SAFETY: passed on; part of every processor of its kind.
            Self::Portable => unsafe { walk::blur::<simd::portable::Portable, Pairs, 2>(tile, scratch) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise.
            Self::Sse2 => unsafe { walk::blur::<simd::x86::Sse2, Pairs, 2>(tile, scratch) },
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => with_features!("avx2", simd::x86::Avx2, Pairs, 2),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => with_features!("avx512f,avx512bw", simd::x86::Avx512, Pairs, 4),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => {
                with_features!("avx512f,avx512bw,avx512vnni,avx512vbmi", simd::x86::Avx512Vnni, Quads, 4);
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: likewise.
            Self::Neon => unsafe { walk::blur::<simd::neon::Neon, Pairs, 4>(tile, scratch) },
        }
    }
}

/// Blurs frames on the CPU. Holds its worker threads and their scratch memory between frames.
pub struct CpuEngine {
    set: InstructionSet,
    threads: Arc<Threads>,
    scratch: Vec<Scratch>,
    /// Where alpha weighs colour: the products of all jobs, and what they become.
    products: [Scratch; 2],
}

impl CpuEngine {
    /// With the best instruction set of this processor.
    #[expect(clippy::new_without_default, reason = "it shares threads with all others in the process")]
    pub fn new() -> Self {
        let set = InstructionSet::available().pop().unwrap_or(InstructionSet::Portable);
        Self { set, threads: Threads::shared(), scratch: Vec::new(), products: Default::default() }
    }

    /// With another instruction set that this processor has; `None` if it has not.
    pub fn with_instruction_set(self, set: InstructionSet) -> Option<Self> {
        InstructionSet::available().contains(&set).then_some(Self { set, ..self })
    }

    /// What the pixels go through.
    pub fn instruction_set(&self) -> InstructionSet {
        self.set
    }

    /// Blurs `src` into `dst`, which [`crate::frame::validate`] has found fit for each other, by the jobs made for their
    /// planes. Nothing is written if memory runs out.
    pub fn blur(&mut self, src: &Frame, dst: &mut FrameMut, jobs: &[Job]) -> Result<(), OutOfMemory> {
        debug_assert!(src.len() == dst.len() && jobs.iter().all(|job| job.plane < src.len()));
        let sources: Vec<Rows> =
            src.iter().map(|plane| Rows { first: plane.data.as_ptr(), pitch: plane.pitch }).collect();
        let destinations: Vec<Rows> =
            dst.iter_mut().map(|plane| Rows { first: plane.data.as_mut_ptr(), pitch: plane.pitch }).collect();
        let work: Vec<Weighing> = self.weighings(jobs, &sources, &destinations)?;
        let weigh = |work: &'_ Weighing| Some(PlaneWeights::new(&blurred_layout(work.job), work.job.taps.as_ref()?));
        let weights: Vec<Option<PlaneWeights>> = work.iter().map(weigh).collect();
        let workers = self.threads.count();

        let mut tiles = Vec::new();
        for (work, weights) in work.iter().zip(&weights) {
            let Some(weights) = weights else { continue };
            let layout = blurred_layout(work.job);
            let (src, dst) = if work.product.is_null() {
                (work.src, work.dst)
            } else {
                let pitch = layout.row_bytes();
                (Rows { first: work.product.cast(), pitch }, Rows { first: work.blurred.cast(), pitch })
            };
            let plan = Plan::new(&layout, weights, workers);
            tiles.extend(plan.regions(&layout).map(|region| Tile {
                layout,
                src: src.first,
                src_pitch: src.pitch,
                dst: dst.first.cast_mut(),
                dst_pitch: dst.pitch,
                weights,
                region,
            }));
        }
        // One thread at least, for rows that are only copied.
        let workers = workers.min(tiles.len()).max(1);
        if self.scratch.len() < workers {
            self.scratch.resize_with(workers, Scratch::default);
        }
        let scratch = &mut self.scratch[..workers];
        for tile in &tiles {
            for scratch in &mut *scratch {
                walk::reserve(scratch, &tile.layout, tile.weights, tile.region.width)?;
            }
        }

        let copied = work.iter().filter(|work| work.job.taps.is_none());
        // SAFETY: the frames hold their planes, and every row is copied once.
        alpha::each_row(&self.threads, scratch, copied, |work, y| unsafe { work.copy(y) });
        let weighed = || work.iter().filter(|work| !work.product.is_null());
        // SAFETY: the frames hold their planes, the products were reserved, and every row is taken once.
        alpha::each_row(&self.threads, scratch, weighed(), |work, y| unsafe { work.multiply(y) });
        let (set, tiles, next) = (self.set, Tiles(&tiles), AtomicUsize::new(0));
        self.threads.run(scratch, |scratch| {
            while let Some(tile) = tiles.get(next.fetch_add(1, Ordering::Relaxed)) {
                // SAFETY: the set is available, the frames hold their planes, the scratch is reserved, and the regions
                // of a plane do not overlap.
                unsafe { set.blur(tile, scratch) };
            }
        });
        let finished = work.iter().filter(|work| !work.product.is_null() || work.job.keep != 0);
        // SAFETY: as for the products.
        alpha::each_row(&self.threads, scratch, finished, |work, y| unsafe { work.finish(y) });
        Ok(())
    }

    /// Where every job finds its rows and products.
    fn weighings<'a>(
        &mut self,
        jobs: &'a [Job],
        sources: &[Rows],
        destinations: &[Rows],
    ) -> Result<Vec<Weighing<'a>>, OutOfMemory> {
        let samples = |job: &Job| job.product().map_or(0, |layout| layout.row_samples() * layout.height as usize);
        let words: usize = jobs.iter().map(|job| samples(job).div_ceil(2)).sum();
        if words > 0 {
            for products in &mut self.products {
                products.reserve(words)?;
            }
        }
        let [mut product, mut blurred] = self.products.each_mut().map(Scratch::words);
        let rows = |all: Rows, field: &Field| Rows {
            first: all.first.wrapping_add(field.first_row * all.pitch),
            pitch: all.pitch * field.step,
        };
        let weighing = |job: &'a Job| {
            let used = samples(job);
            let own = |words: &mut *mut u32| {
                let this = if used > 0 { words.cast::<u16>() } else { std::ptr::null_mut() };
                *words = words.wrapping_add(used.div_ceil(2));
                this
            };
            let alpha = match &job.alpha {
                Some(AlphaPlace::Plane { plane, field, .. }) => Some(rows(sources[*plane], field)),
                _ => None,
            };
            let (src, dst) = (rows(sources[job.plane], &job.field), rows(destinations[job.plane], &job.field));
            Weighing { job, src, alpha, dst, product: own(&mut product), blurred: own(&mut blurred) }
        };
        Ok(jobs.iter().map(weighing).collect())
    }
}

/// The shape of what goes through the blur for a job.
fn blurred_layout(job: &Job) -> PlaneLayout {
    job.product().unwrap_or(job.field.layout)
}

/// Tiles that several threads may take from.
#[derive(Clone, Copy)]
struct Tiles<'a>(&'a [Tile<'a>]);

// SAFETY: a tile's pointers are into frames that the engine borrows while its threads run.
unsafe impl Sync for Tiles<'_> {}

impl Tiles<'_> {
    fn get(&self, index: usize) -> Option<&Tile<'_>> {
        self.0.get(index)
    }
}

/// How a plane is cut: columns so that a tile's ring of row pairs stays in the L2 cache, then bands of rows until every
/// thread has enough tiles to even out.
struct Plan {
    width: usize,
    height: usize,
}

impl Plan {
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
