// SPDX-License-Identifier: MPL-2.0
//! x86-64: SSE2, AVX2, AVX-512BW, and AVX-512 with VNNI and VBMI, whose dot products are single instructions.

use std::arch::x86_64::*;

use super::{ByteDots, Simd};

/// Implements [`Simd`] for one instruction set with its intrinsics. `$dot` is a closure over (sum, a, b), `$low8` and
/// `$low16` are closures over (destination, vector).
macro_rules! instruction_set {
    ($(#[$doc:meta])* $name:ident, $vector:ty, $lanes:literal, $load:ident, $store:ident, $splat:ident, $add:ident,
     $shift_left:ident, $shift_right:ident, $and:ident, $or:ident, $dot:expr, $low8:expr, $low16:expr) => {
        $(#[$doc])*
        pub struct $name;

        // SAFETY: the loads and stores access exactly the lanes that `Simd` documents, at any alignment; the other
        // methods access no memory.
        unsafe impl Simd for $name {
            type Vector = $vector;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn load(from: *const u32) -> $vector {
                // SAFETY: the caller guarantees the instruction set and LANES readable words at `from`.
                unsafe { $load(from.cast()) }
            }
            #[inline(always)]
            unsafe fn store(to: *mut u32, vector: $vector) {
                // SAFETY: the caller guarantees the instruction set and LANES writable words at `to`.
                unsafe { $store(to.cast(), vector) }
            }
            #[inline(always)]
            unsafe fn splat(word: u32) -> $vector {
                // SAFETY: the caller guarantees the instruction set; no memory is accessed.
                unsafe { $splat(word as i32) }
            }
            #[inline(always)]
            unsafe fn add(a: $vector, b: $vector) -> $vector {
                // SAFETY: the caller guarantees the instruction set; no memory is accessed.
                unsafe { $add(a, b) }
            }
            #[inline(always)]
            unsafe fn dot(sum: $vector, a: $vector, b: $vector) -> $vector {
                // SAFETY: the caller guarantees the instruction set; no memory is accessed.
                unsafe { $dot(sum, a, b) }
            }
            #[inline(always)]
            unsafe fn shift_left(a: $vector, bits: u32) -> $vector {
                // SAFETY: the caller guarantees the instruction set; no memory is accessed.
                unsafe { $shift_left(a, _mm_cvtsi32_si128(bits as i32)) }
            }
            #[inline(always)]
            unsafe fn mask_high(a: $vector) -> $vector {
                // SAFETY: the caller guarantees the instruction set; no memory is accessed.
                unsafe { $and(a, $splat(0xffff_0000_u32 as i32)) }
            }
            #[inline(always)]
            unsafe fn shift_right(a: $vector, bits: u32) -> $vector {
                // SAFETY: the caller guarantees the instruction set; no memory is accessed.
                unsafe { $shift_right(a, _mm_cvtsi32_si128(bits as i32)) }
            }
            #[inline(always)]
            unsafe fn store_low8(to: *mut u8, a: $vector) {
                // SAFETY: the caller guarantees the instruction set and LANES writable bytes at `to`.
                unsafe { $low8(to, a) }
            }
            #[inline(always)]
            unsafe fn store_low16(to: *mut u16, a: $vector) {
                // SAFETY: the caller guarantees the instruction set and LANES writable 16-bit elements at `to`.
                unsafe { $low16(to, a) }
            }
            #[inline(always)]
            unsafe fn pack_high_halves(a: $vector, b: $vector) -> $vector {
                // SAFETY: the caller guarantees the instruction set; no memory is accessed.
                unsafe { $or(Self::shift_right(a, 16), Self::mask_high(b)) }
            }
        }
    };
}

instruction_set!(
    /// SSE2 vectors of four lanes; part of every x86-64 processor.
    Sse2, __m128i, 4, _mm_loadu_si128, _mm_storeu_si128, _mm_set1_epi32, _mm_add_epi32,
    _mm_sll_epi32, _mm_srl_epi32, _mm_and_si128, _mm_or_si128,
    |sum, a, b| _mm_add_epi32(sum, _mm_madd_epi16(a, b)),
    |to: *mut u8, a| {
        let bytes = _mm_packus_epi16(_mm_packs_epi32(a, a), a);
        to.cast::<i32>().write_unaligned(_mm_cvtsi128_si32(bytes));
    },
    // SSE2 packs 32 bits to 16 with signed saturation only. Sign extension of the low half avoids saturation, so that
    // all of its 16 bits are written.
    |to: *mut u16, a| {
        let extended = _mm_srai_epi32::<16>(_mm_slli_epi32::<16>(a));
        _mm_storel_epi64(to.cast(), _mm_packs_epi32(extended, extended));
    }
);
instruction_set!(
    /// AVX2 vectors of eight lanes.
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
    /// AVX-512 F and BW vectors of sixteen lanes.
    Avx512, __m512i, 16, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_set1_epi32, _mm512_add_epi32,
    _mm512_sll_epi32, _mm512_srl_epi32, _mm512_and_si512, _mm512_or_si512,
    |sum, a, b| _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)),
    |to: *mut u8, a| _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(a)),
    |to: *mut u16, a| _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(a))
);
instruction_set!(
    /// AVX-512 vectors of sixteen lanes, with VNNI for dot products of 16-bit pairs and of bytes, and VBMI for byte
    /// permutes.
    Avx512Vnni, __m512i, 16, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_set1_epi32, _mm512_add_epi32,
    _mm512_sll_epi32, _mm512_srl_epi32, _mm512_and_si512, _mm512_or_si512,
    |sum, a, b| _mm512_dpwssd_epi32(sum, a, b),
    |to: *mut u8, a| _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(a)),
    |to: *mut u16, a| _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(a))
);

/// The index of byte `k` of lane `l` among the bytes read, for samples `stride` bytes apart: `l + k * stride`.
const fn quad_indices(stride: usize) -> [u8; 64] {
    let mut from = [0; 64];
    let mut byte = 0;
    while byte < 64 {
        from[byte] = (byte / 4 + byte % 4 * stride) as u8;
        byte += 1;
    }
    from
}

// SAFETY: `load_quads` reads `QUAD_READ_BYTES` bytes, which include every index of `quad_indices`: the largest is 15 +
// 3 * 4. The other methods access no memory of the caller.
unsafe impl ByteDots for Avx512Vnni {
    const QUAD_READ_BYTES: usize = 32;

    #[inline(always)]
    unsafe fn quad_indices(stride: usize) -> __m512i {
        const INDICES: [[u8; 64]; 4] = [quad_indices(1), quad_indices(2), quad_indices(3), quad_indices(4)];
        // SAFETY: the caller guarantees the instruction set; an element of `INDICES` has 64 readable bytes.
        unsafe { _mm512_loadu_si512(INDICES[stride - 1].as_ptr().cast()) }
    }
    #[inline(always)]
    unsafe fn load_quads(from: *const u8, indices: __m512i) -> __m512i {
        // SAFETY: the caller guarantees the instruction set and QUAD_READ_BYTES readable bytes at `from`.
        unsafe { _mm512_permutexvar_epi8(indices, _mm512_castsi256_si512(_mm256_loadu_si256(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn dot_bytes(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller guarantees the instruction set; no memory is accessed.
        unsafe { _mm512_dpbusd_epi32(sum, a, b) }
    }
}
