// SPDX-License-Identifier: MPL-2.0
//! The instruction sets that the vector loops are compiled for, and run-time dispatch to them.

use super::resample::rows_down::PairDotRowsDown;
#[cfg(target_arch = "x86_64")]
use super::resample::rows_down_vnni::ByteDotRowsDown;
use super::rows::PairDotRows;
#[cfg(target_arch = "x86_64")]
use super::rows_vnni::ByteDotRows;
use super::scratch::Scratch;
use super::simd::{self, Simd};
use super::task::{Part, Task};
use super::tile::Tile;
use super::tile_blur;

/// The environment variable that names an instruction set, for debugging.
pub const VARIABLE: &str = "CUDAGAUSSBLUR_INSTRUCTIONS";

/// An instruction set that the blur is compiled for, and the proof that this processor has it. All of them produce identical output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstructionSet {
    /// Plain Rust without intrinsics, for any processor.
    Portable(simd::portable::Portable),
    /// SSE2, part of every x86-64 processor.
    #[cfg(target_arch = "x86_64")]
    Sse2(simd::x86::Sse2),
    /// AVX2, in most x86-64 processors since 2013.
    #[cfg(target_arch = "x86_64")]
    Avx2(simd::x86::Avx2),
    /// AVX-512 F, BW, VNNI and VBMI: Ice Lake, Zen 4 and later. Processors with only a part of these use AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(simd::x86::Avx512Vnni),
    /// NEON, part of every aarch64 processor.
    #[cfg(target_arch = "aarch64")]
    Neon(simd::neon::Neon),
}

impl InstructionSet {
    /// The instruction sets that this processor supports, slowest first.
    pub fn available() -> Vec<Self> {
        // SAFETY: portable code needs no instruction set, SSE2 and NEON are part of their architectures, and for the other sets
        // all features that their functions enable have been detected.
        let sets = unsafe {
            [
                Some(Self::Portable(Simd::new())),
                #[cfg(target_arch = "x86_64")]
                Some(Self::Sse2(Simd::new())),
                #[cfg(target_arch = "x86_64")]
                is_x86_feature_detected!("avx2").then(|| Self::Avx2(Simd::new())),
                #[cfg(target_arch = "x86_64")]
                (is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vnni")
                    && is_x86_feature_detected!("avx512vbmi"))
                .then(|| Self::Avx512Vnni(Simd::new())),
                #[cfg(target_arch = "aarch64")]
                Some(Self::Neon(Simd::new())),
            ]
        };
        sets.into_iter().flatten().collect()
    }

    /// The set that [`VARIABLE`] names, if this processor supports it, else the fastest one.
    pub fn chosen() -> Self {
        Self::named(&std::env::var(VARIABLE).unwrap_or_default(), &Self::available())
    }

    fn named(name: &str, available: &[Self]) -> Self {
        let named = available.iter().find(|set| set.name() == name);
        *named.or(available.last()).expect("the portable set is available everywhere")
    }

    /// The name in lower case, for logs and benchmarks.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable(_) => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Sse2(_) => "sse2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => "avx512-vnni",
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => "neon",
        }
    }

    /// Executes a part of a task with this instruction set.
    ///
    /// # Safety
    /// The planes of the task's operation hold the rows of its views. `scratch` was reserved for [`Part::scratch_words`]. No
    /// other thread writes samples that the part reads, or accesses samples that it writes.
    pub unsafe fn execute(self, part: &Part, scratch: &mut Scratch) {
        // The compiler uses instructions beyond the baseline only inside functions with `target_feature`. So each such set has
        // one function, into which the vector loops are inlined.
        macro_rules! with_set {
            ($(#[$features:meta])? $value:ident: $set:ty, $rows:ty, $rows_down:ty, $vectors:literal) => {{
                $(#[$features])?
                unsafe fn execute(set: $set, part: &Part, scratch: &mut Scratch) {
                    // SAFETY: this function enables the features of the set. Its caller guarantees that the planes hold the rows,
                    // that the scratch memory is large enough, and that no other thread accesses the output.
                    unsafe {
                        match part.task {
                            Task::Blur(tile) => {
                                let tile = Tile { region: part.region, ..tile.clone() };
                                tile_blur::blur::<_, $rows, $vectors>(set, &tile, scratch);
                            }
                            Task::Decimate(decimation) => {
                                decimation.execute::<_, $rows_down, $vectors>(set, part.rows(), scratch);
                            }
                            Task::Interpolate(interpolation) => interpolation.execute(set, part.rows(), scratch),
                            Task::CellMeans(means) => means.execute(part.rows()),
                            Task::Spread(grid, memory) => {
                                grid.spread(std::slice::from_raw_parts_mut(memory.add(grid.first_word), grid.words()));
                            }
                            Task::Write(write) => write.execute(part.rows()),
                            Task::Pixels(pixels) => pixels.execute(part.rows()),
                        }
                    }
                }
                // SAFETY: `$value` proves that the processor has the features of the set. The caller guarantees the planes, the
                // scratch memory and exclusive access to the output.
                unsafe { execute($value, part, scratch) }
            }};
        }
        match self {
            Self::Portable(set) => with_set!(set: simd::portable::Portable, PairDotRows, PairDotRowsDown, 2),
            #[cfg(target_arch = "x86_64")]
            Self::Sse2(set) => with_set!(set: simd::x86::Sse2, PairDotRows, PairDotRowsDown, 2),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(set) => with_set!(
                #[target_feature(enable = "avx2")]
                set: simd::x86::Avx2,
                PairDotRows,
                PairDotRowsDown,
                2
            ),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(set) => with_set!(
                #[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vbmi")]
                set: simd::x86::Avx512Vnni,
                ByteDotRows,
                ByteDotRowsDown,
                4
            ),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(set) => with_set!(set: simd::neon::Neon, PairDotRows, PairDotRowsDown, 4),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_set_is_chosen_and_else_the_fastest() {
        let available = InstructionSet::available();
        for set in &available {
            assert_eq!(InstructionSet::named(set.name(), &available), *set);
        }
        for name in ["", "sse9"] {
            assert_eq!(InstructionSet::named(name, &available), available[available.len() - 1]);
        }
    }

    /// Many processors before Ice Lake have AVX-512 F and BW, but not VNNI and VBMI.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn avx2_is_chosen_where_avx_512_has_no_dot_products() {
        let mut available = InstructionSet::available();
        available.retain(|set| !matches!(set, InstructionSet::Avx512Vnni(_)));
        if is_x86_feature_detected!("avx2") {
            assert_eq!(InstructionSet::named("", &available).name(), "avx2");
        }
    }
}
