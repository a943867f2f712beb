// SPDX-License-Identifier: MPL-2.0
//! The instruction sets that the vector loops are compiled for, and run-time dispatch to them.

use super::resample::decimate::DecimationBlock;
use super::resample::interpolate::InterpolationBlock;
use super::resample::rows_down::PairDotRowsDown;
#[cfg(target_arch = "x86_64")]
use super::resample::rows_down_vnni::ByteDotRowsDown;
use super::rows::PairDotRows;
#[cfg(target_arch = "x86_64")]
use super::rows_vnni::ByteDotRows;
use super::scratch::Scratch;
#[cfg(target_arch = "aarch64")]
use super::simd::neon::Neon;
use super::simd::portable::Portable;
#[cfg(target_arch = "x86_64")]
use super::simd::x86;
use super::task::Task;
use super::tile::Tile;
use super::tile_blur;
use crate::filter::plane::copy_rows;

/// An instruction set that the blur is compiled for. All of them produce identical output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstructionSet {
    /// Plain Rust without intrinsics, for any processor.
    Portable,
    /// SSE2, part of every x86-64 processor.
    #[cfg(target_arch = "x86_64")]
    Sse2,
    /// AVX2, in most x86-64 processors since 2013.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F and BW.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX-512 F, BW, VNNI and VBMI: Ice Lake, Zen 4 and later.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    /// NEON, part of every aarch64 processor.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl InstructionSet {
    /// The instruction sets that this processor supports, slowest first.
    pub fn available() -> Vec<Self> {
        let mut sets = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            sets.extend(x86::Sse2::detect().map(|_| Self::Sse2));
            sets.extend(x86::Avx2::detect().map(|_| Self::Avx2));
            sets.extend(x86::Avx512::detect().map(|_| Self::Avx512));
            sets.extend(x86::Avx512Vnni::detect().map(|_| Self::Avx512Vnni));
        }
        #[cfg(target_arch = "aarch64")]
        sets.push(Self::Neon);
        sets
    }

    /// The name in lower case, for logs and benchmarks.
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

    /// Executes a task with this instruction set, one of [`InstructionSet::available`]. `scratch` was reserved for
    /// [`Task::scratch_words`].
    ///
    /// # Safety
    /// The planes of the task's operation hold the rows of its views. Nobody writes what the task reads, and nobody else accesses
    /// what it writes.
    pub unsafe fn execute(self, task: &Task, scratch: &mut Scratch) {
        /// Executes `$call` in a function of its own with the features of the set.
        macro_rules! in_function {
            ([$($features:meta)?] $set:ty, |$simd:ident, $block:ident: $type:ty, $scratch:ident| $call:expr) => {{
                $(#[$features])?
                unsafe fn execute($simd: $set, $block: $type, $scratch: &mut Scratch) {
                    // SAFETY: the caller guarantees the planes and exclusive access.
                    unsafe { $call }
                }
                execute
            }};
        }
        // The compiler uses instructions beyond the baseline only inside a function with `target_feature`, so each such
        // set has one for every kind of task, into which its vector loops are inlined.
        macro_rules! with_set {
            ([$($features:tt)*] $set:ty, $value:expr, $rows:ty, $rows_down:ty, $vectors:literal) => {{
                let simd: $set = $value;
                // SAFETY: a value of the set exists only if the processor has its features; the caller guarantees the planes and
                // exclusive access.
                unsafe {
                    match task {
                        Task::Tile(tile) => in_function!([$($features)*] $set, |simd, tile: &Tile, scratch| {
                            tile_blur::blur::<_, $rows, $vectors>(simd, tile, scratch)
                        })(simd, tile, scratch),
                        Task::Decimation(block) => in_function!([$($features)*] $set, |simd, block: &DecimationBlock, scratch| {
                            block.execute::<_, $rows_down, $vectors>(simd, scratch)
                        })(simd, block, scratch),
                        Task::Interpolation(block) => in_function!([$($features)*] $set, |simd, block: &InterpolationBlock, scratch| {
                            block.execute(simd, scratch)
                        })(simd, block, scratch),
                        Task::Pixels(block) => block.execute(),
                        Task::Copy { from, to, rects } => {
                            for rect in rects {
                                copy_rows(&rect.within(from), &rect.within(to), rect.bytes, rect.rows);
                            }
                        }
                    }
                }
            }};
        }
        #[cfg(target_arch = "x86_64")]
        const AVAILABLE: &str = "the set is one of `InstructionSet::available`";
        match self {
            Self::Portable => with_set!([] Portable, Portable, PairDotRows, PairDotRowsDown, 2),
            #[cfg(target_arch = "x86_64")]
            Self::Sse2 => {
                with_set!([] x86::Sse2, x86::Sse2::detect().expect(AVAILABLE), PairDotRows, PairDotRowsDown, 2);
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => with_set!(
                [target_feature(enable = "avx2")]
                x86::Avx2,
                x86::Avx2::detect().expect(AVAILABLE),
                PairDotRows,
                PairDotRowsDown,
                2
            ),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => with_set!(
                [target_feature(enable = "avx512f,avx512bw")]
                x86::Avx512,
                x86::Avx512::detect().expect(AVAILABLE),
                PairDotRows,
                PairDotRowsDown,
                4
            ),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => with_set!(
                [target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vbmi")]
                x86::Avx512Vnni,
                x86::Avx512Vnni::detect().expect(AVAILABLE),
                ByteDotRows,
                ByteDotRowsDown,
                4
            ),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => with_set!([] Neon, Neon, PairDotRows, PairDotRowsDown, 4),
        }
    }
}
