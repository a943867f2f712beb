// SPDX-License-Identifier: MPL-2.0
//! x86-64: SSE2 (every processor), AVX2, AVX-512BW, and AVX-512 with VNNI, whose one instruction is the whole `dot`.

use std::arch::x86_64::*;

use super::Simd;

/// Declares one instruction set from its intrinsics. `$dot` is a closure of (sum, a, b).
macro_rules! instruction_set {
    ($(#[$doc:meta])* $name:ident, $vector:ty, $lanes:literal, $load:ident, $store:ident, $splat:ident, $add:ident,
     $shift_left:ident, $shift_right:ident, $and:ident, $or:ident, $dot:expr) => {
        $(#[$doc])*
        pub struct $name;

        // SAFETY: each method is the intrinsics its doc in `Simd` asks for; the caller vouches for the processor and,
        // in `load` and `store`, for the words.
        unsafe impl Simd for $name {
            type Vector = $vector;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn load(from: *const u32) -> $vector {
                // SAFETY: as above.
                unsafe { $load(from.cast()) }
            }
            #[inline(always)]
            unsafe fn store(to: *mut u32, vector: $vector) {
                // SAFETY: as above.
                unsafe { $store(to.cast(), vector) }
            }
            #[inline(always)]
            unsafe fn splat(word: u32) -> $vector {
                // SAFETY: as above.
                unsafe { $splat(word as i32) }
            }
            #[inline(always)]
            unsafe fn add(a: $vector, b: $vector) -> $vector {
                // SAFETY: as above.
                unsafe { $add(a, b) }
            }
            #[inline(always)]
            unsafe fn dot(sum: $vector, a: $vector, b: $vector) -> $vector {
                // SAFETY: as above.
                unsafe { $dot(sum, a, b) }
            }
            #[inline(always)]
            unsafe fn low_to_high(a: $vector) -> $vector {
                // SAFETY: as above.
                unsafe { $shift_left::<16>(a) }
            }
            #[inline(always)]
            unsafe fn keep_high(a: $vector) -> $vector {
                // SAFETY: as above.
                unsafe { $and(a, $splat(0xffff_0000_u32 as i32)) }
            }
            #[inline(always)]
            unsafe fn pair_highs(a: $vector, b: $vector) -> $vector {
                // SAFETY: as above.
                unsafe { $or($shift_right::<16>(a), Self::keep_high(b)) }
            }
        }
    };
}

instruction_set!(
    /// Four lanes; part of every x86-64 processor.
    Sse2, __m128i, 4, _mm_loadu_si128, _mm_storeu_si128, _mm_set1_epi32, _mm_add_epi32,
    _mm_slli_epi32, _mm_srli_epi32, _mm_and_si128, _mm_or_si128,
    |sum, a, b| _mm_add_epi32(sum, _mm_madd_epi16(a, b))
);
instruction_set!(
    /// Eight lanes.
    Avx2, __m256i, 8, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_set1_epi32, _mm256_add_epi32,
    _mm256_slli_epi32, _mm256_srli_epi32, _mm256_and_si256, _mm256_or_si256,
    |sum, a, b| _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
);
instruction_set!(
    /// Sixteen lanes.
    Avx512, __m512i, 16, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_set1_epi32, _mm512_add_epi32,
    _mm512_slli_epi32, _mm512_srli_epi32, _mm512_and_si512, _mm512_or_si512,
    |sum, a, b| _mm512_add_epi32(sum, _mm512_madd_epi16(a, b))
);
instruction_set!(
    /// Sixteen lanes, `dot` in one instruction.
    Avx512Vnni, __m512i, 16, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_set1_epi32, _mm512_add_epi32,
    _mm512_slli_epi32, _mm512_srli_epi32, _mm512_and_si512, _mm512_or_si512,
    |sum, a, b| _mm512_dpwssd_epi32(sum, a, b)
);
