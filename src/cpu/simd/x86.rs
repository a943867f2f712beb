// SPDX-License-Identifier: MPL-2.0
//! x86-64: SSE2 (every processor), AVX2, AVX-512BW, and AVX-512 with VNNI and VBMI, whose dot products are single
//! instructions.

use std::arch::x86_64::*;

use super::{ByteDots, Simd};

/// Declares one instruction set from its intrinsics. `$dot` is a closure of (sum, a, b), `$low8` and `$low16` of
/// (destination, vector).
macro_rules! instruction_set {
    ($(#[$doc:meta])* $name:ident, $vector:ty, $lanes:literal, $load:ident, $store:ident, $splat:ident, $add:ident,
     $shift_left:ident, $shift_right:ident, $and:ident, $or:ident, $dot:expr, $low8:expr, $low16:expr) => {
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
            unsafe fn shift_left(a: $vector, by: u32) -> $vector {
                // SAFETY: as above.
                unsafe { $shift_left(a, _mm_cvtsi32_si128(by as i32)) }
            }
            #[inline(always)]
            unsafe fn keep_high(a: $vector) -> $vector {
                // SAFETY: as above.
                unsafe { $and(a, $splat(0xffff_0000_u32 as i32)) }
            }
            #[inline(always)]
            unsafe fn shift_right(a: $vector, by: u32) -> $vector {
                // SAFETY: as above.
                unsafe { $shift_right(a, _mm_cvtsi32_si128(by as i32)) }
            }
            #[inline(always)]
            unsafe fn store_low8(to: *mut u8, a: $vector) {
                // SAFETY: as above.
                unsafe { $low8(to, a) }
            }
            #[inline(always)]
            unsafe fn store_low16(to: *mut u16, a: $vector) {
                // SAFETY: as above.
                unsafe { $low16(to, a) }
            }
            #[inline(always)]
            unsafe fn pair_highs(a: $vector, b: $vector) -> $vector {
                // SAFETY: as above.
                unsafe { $or(Self::shift_right(a, 16), Self::keep_high(b)) }
            }
        }
    };
}

instruction_set!(
    /// Four lanes; part of every x86-64 processor.
    Sse2, __m128i, 4, _mm_loadu_si128, _mm_storeu_si128, _mm_set1_epi32, _mm_add_epi32,
    _mm_sll_epi32, _mm_srl_epi32, _mm_and_si128, _mm_or_si128,
    |sum, a, b| _mm_add_epi32(sum, _mm_madd_epi16(a, b)),
    |to: *mut u8, a| {
        let bytes = _mm_packus_epi16(_mm_packs_epi32(a, a), a);
        to.cast::<i32>().write_unaligned(_mm_cvtsi128_si32(bytes));
    },
    // Sign-extended first, so that the signed pack keeps all 16 bits.
    |to: *mut u16, a| {
        let extended = _mm_srai_epi32::<16>(_mm_slli_epi32::<16>(a));
        _mm_storel_epi64(to.cast(), _mm_packs_epi32(extended, extended));
    }
);
instruction_set!(
    /// Eight lanes.
    Avx2, __m256i, 8, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_set1_epi32, _mm256_add_epi32,
    _mm256_sll_epi32, _mm256_srl_epi32, _mm256_and_si256, _mm256_or_si256,
    |sum, a, b| _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)),
    |to: *mut u8, a| {
        let halves = _mm256_packus_epi32(a, a);
        let bytes = _mm256_packus_epi16(halves, halves);
        let joined = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4));
        _mm_storel_epi64(to.cast(), _mm256_castsi256_si128(joined));
    },
    |to: *mut u16, a| {
        let halves = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(a, a));
        _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(halves));
    }
);
instruction_set!(
    /// Sixteen lanes.
    Avx512, __m512i, 16, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_set1_epi32, _mm512_add_epi32,
    _mm512_sll_epi32, _mm512_srl_epi32, _mm512_and_si512, _mm512_or_si512,
    |sum, a, b| _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)),
    |to: *mut u8, a| _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(a)),
    |to: *mut u16, a| _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(a))
);
instruction_set!(
    /// Sixteen lanes, `dot` in one instruction, and dots of bytes.
    Avx512Vnni, __m512i, 16, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_set1_epi32, _mm512_add_epi32,
    _mm512_sll_epi32, _mm512_srl_epi32, _mm512_and_si512, _mm512_or_si512,
    |sum, a, b| _mm512_dpwssd_epi32(sum, a, b),
    |to: *mut u8, a| _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(a)),
    |to: *mut u16, a| _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(a))
);

/// For pixels of `channels` bytes, where byte `k` of lane `l` comes from: `l + k * channels`.
const fn spread(channels: usize) -> [u8; 64] {
    let mut from = [0; 64];
    let mut byte = 0;
    while byte < 64 {
        from[byte] = (byte / 4 + byte % 4 * channels) as u8;
        byte += 1;
    }
    from
}

// SAFETY: as for the instruction sets above; `quads` reads 32 bytes and uses at most 16 + 3 * 4 of them.
unsafe impl ByteDots for Avx512Vnni {
    const QUADS_READ: usize = 32;

    #[inline(always)]
    unsafe fn spread(channels: usize) -> __m512i {
        const SPREADS: [[u8; 64]; 4] = [spread(1), spread(2), spread(3), spread(4)];
        // SAFETY: 64 readable bytes.
        unsafe { _mm512_loadu_si512(SPREADS[channels - 1].as_ptr().cast()) }
    }
    #[inline(always)]
    unsafe fn quads(from: *const u8, spread: __m512i) -> __m512i {
        // SAFETY: the caller gives QUADS_READ readable bytes.
        unsafe { _mm512_permutexvar_epi8(spread, _mm512_castsi256_si512(_mm256_loadu_si256(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn dot_bytes(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: passed on.
        unsafe { _mm512_dpbusd_epi32(sum, a, b) }
    }
}
