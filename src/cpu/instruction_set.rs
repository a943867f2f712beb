// SPDX-License-Identifier: MPL-2.0
//! The instruction sets that the tile blur is compiled for, and run-time dispatch to them.

use super::rows::PairDotRows;
#[cfg(target_arch = "x86_64")]
use super::rows_vnni::ByteDotRows;
use super::scratch::Scratch;
use super::tile::Tile;
use super::{simd, tile_blur};

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

    /// Blurs one tile with this instruction set.
    ///
    /// # Safety
    /// This set is one of [`InstructionSet::available`]. The tile's planes are valid for reading the source
    /// and for writing the region, `scratch` was reserved for the tile with [`tile_blur::reserve`], and no other thread
    /// writes the region.
    pub unsafe fn blur(self, tile: &Tile, scratch: &mut Scratch) {
        // The compiler uses instructions beyond the baseline only inside a function with `target_feature`, so each such
        // set has one, into which the whole tile blur is inlined.
        #[cfg(target_arch = "x86_64")]
        macro_rules! with_features {
            ($features:literal, $set:ty, $rows:ty, $vectors:literal) => {{
                #[target_feature(enable = $features)]
                unsafe fn blur(tile: &Tile, scratch: &mut Scratch) {
                    // SAFETY: this function enables the features of the set; its caller guarantees that the tile's
                    // planes are valid, that `scratch` is reserved for it and that no other thread writes the region.
                    unsafe { tile_blur::blur::<$set, $rows, $vectors>(tile, scratch) }
                }
                // SAFETY: the set is available, so the processor has these features; the caller guarantees that the
                // tile's planes are valid, that `scratch` is reserved for it and that no other thread writes the
                // region.
                unsafe { blur(tile, scratch) }
            }};
        }
        match self {
            // SAFETY: plain Rust needs no instruction set; the caller guarantees that the tile's planes are valid, that
            // `scratch` is reserved for it and that no other thread writes the region.
            Self::Portable => unsafe { tile_blur::blur::<simd::portable::Portable, PairDotRows, 2>(tile, scratch) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: every x86-64 processor has SSE2; the caller guarantees that the tile's planes are valid, that
            // `scratch` is reserved for it and that no other thread writes the region.
            Self::Sse2 => unsafe { tile_blur::blur::<simd::x86::Sse2, PairDotRows, 2>(tile, scratch) },
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => with_features!("avx2", simd::x86::Avx2, PairDotRows, 2),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => with_features!("avx512f,avx512bw", simd::x86::Avx512, PairDotRows, 4),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => {
                with_features!("avx512f,avx512bw,avx512vnni,avx512vbmi", simd::x86::Avx512Vnni, ByteDotRows, 4);
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: every aarch64 processor has NEON; the caller guarantees that the tile's planes are valid, that
            // `scratch` is reserved for it and that no other thread writes the region.
            Self::Neon => unsafe { tile_blur::blur::<simd::neon::Neon, PairDotRows, 4>(tile, scratch) },
        }
    }
}
