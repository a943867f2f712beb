// SPDX-License-Identifier: MPL-2.0
//! x86-64: SSE2, AVX2, AVX-512BW, and AVX-512 with VNNI and VBMI, whose dot products are single instructions.

use std::arch::x86_64::*;

use super::{ByteDots, LaneOrder, Simd, intrinsics};
use crate::cpu::plain::{read, write};

/// Implements [`Simd`] for one instruction set with its intrinsics. `$dot` is a closure over (sum, a, b), `$low8` and
/// `$low16` return what is stored of a vector, `$extend16` extends the elements that `$halves` holds. `$extra` replaces default
/// methods.
macro_rules! instruction_set {
    ($(#[$doc:meta])* $name:ident, [$($detected:tt),*], $vector:ty, $lanes:literal, $splat:ident, $add:ident,
     $shift_left:ident, $shift_right:ident, $and:ident, $or:ident, $xor:ident,
     $unpack_low:ident, $unpack_high:ident, $sign_shift:ident, $pack:ident, $dot:expr, $low8:expr, $low16:expr,
     $halves:ty, $extend16:expr $(, { $($extra:tt)* })?) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name(());

        impl $name {
            /// `None` if the processor lacks it.
            pub fn detect() -> Option<Self> {
                ($(is_x86_feature_detected!($detected))&&*).then_some(Self(()))
            }
        }

        impl Simd for $name {
            type Vector = $vector;
            const LANES: usize = $lanes;

            #[inline(always)]
            fn load(self, from: &[u32]) -> $vector {
                read(from)
            }
            #[inline(always)]
            fn load_halves(self, from: &[u16]) -> $vector {
                read(from)
            }
            #[inline(always)]
            fn store(self, to: &mut [u32], vector: $vector) {
                write(to, vector);
            }
            #[inline(always)]
            fn prefetch(self, address: *const u8) {
                // SAFETY: every x86-64 processor has SSE; a prefetch of any address has no effect but on the cache.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
            }
            intrinsics! {
                fn splat(self, word: u32) -> $vector { $splat(word as i32) }
                fn add(self, a: $vector, b: $vector) -> $vector { $add(a, b) }
                fn dot(self, sum: $vector, a: $vector, b: $vector) -> $vector { $dot(sum, a, b) }
                fn shift_left(self, a: $vector, bits: u32) -> $vector { $shift_left(a, _mm_cvtsi32_si128(bits as i32)) }
                fn mask_high(self, a: $vector) -> $vector { $and(a, $splat(0xffff_0000_u32 as i32)) }
                fn shift_right(self, a: $vector, bits: u32) -> $vector { $shift_right(a, _mm_cvtsi32_si128(bits as i32)) }
                fn store_low8(self, to: &mut [u8], a: $vector) { write(to, $low8(a)) }
                fn store_low16(self, to: &mut [u8], a: $vector) { write(to, $low16(a)) }
                fn pack_high_halves(self, a: $vector, b: $vector) -> $vector {
                    $or($shift_right(a, _mm_cvtsi32_si128(16)), $and(b, $splat(0xffff_0000_u32 as i32)))
                }
                fn pair_halves(self, a: $vector, b: $vector) -> [$vector; 2] { [$unpack_low(a, b), $unpack_high(a, b)] }
                fn join_high_halves(self, vectors: [$vector; 2]) -> $vector {
                    // The high halves as signed numbers fit in 16 bits, so nothing saturates.
                    let bits = _mm_cvtsi32_si128(16);
                    $pack($sign_shift(vectors[0], bits), $sign_shift(vectors[1], bits))
                }
                fn load16(self, from: &[u16]) -> $vector { $extend16(read::<_, $halves>(from)) }
                fn and(self, a: $vector, b: $vector) -> $vector { $and(a, b) }
                fn xor(self, a: $vector, b: $vector) -> $vector { $xor(a, b) }
                fn pack_low_halves(self, a: $vector, b: $vector) -> $vector {
                    $or(a, $shift_left(b, _mm_cvtsi32_si128(16)))
                }
                $($($extra)*)?
            }
        }
    };
}

instruction_set!(
    /// SSE2 vectors of four lanes; part of every x86-64 processor.
    Sse2, ["sse2"], __m128i, 4, _mm_set1_epi32, _mm_add_epi32,
    _mm_sll_epi32, _mm_srl_epi32, _mm_and_si128, _mm_or_si128, _mm_xor_si128,
    _mm_unpacklo_epi16, _mm_unpackhi_epi16, _mm_sra_epi32, _mm_packs_epi32,
    |sum, a, b| _mm_add_epi32(sum, _mm_madd_epi16(a, b)),
    |a| _mm_cvtsi128_si32(_mm_packus_epi16(_mm_packs_epi32(a, a), a)) as u32,
    // SSE2 packs 32 bits to 16 with signed saturation only. Sign extension of the low half avoids saturation, so that
    // all of its 16 bits are written.
    |a| {
        let extended = _mm_srai_epi32::<16>(_mm_slli_epi32::<16>(a));
        _mm_cvtsi128_si64(_mm_packs_epi32(extended, extended)) as u64
    },
    u64, |halves: u64| _mm_unpacklo_epi16(_mm_cvtsi64_si128(halves as i64), _mm_setzero_si128())
);
instruction_set!(
    /// AVX2 vectors of eight lanes.
    Avx2, ["avx2"], __m256i, 8, _mm256_set1_epi32, _mm256_add_epi32,
    _mm256_sll_epi32, _mm256_srl_epi32, _mm256_and_si256, _mm256_or_si256, _mm256_xor_si256,
    _mm256_unpacklo_epi16, _mm256_unpackhi_epi16, _mm256_sra_epi32, _mm256_packs_epi32,
    |sum, a, b| _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)),
    |a| {
        let halves = _mm256_packus_epi32(a, a);
        let bytes = _mm256_packus_epi16(halves, halves);
        let joined = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4));
        _mm_cvtsi128_si64(_mm256_castsi256_si128(joined)) as u64
    },
    |a| _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(a, a))),
    __m128i, _mm256_cvtepu16_epi32, {
        fn gather_pairs(self, from: &[u8], order: &[u16; 32]) -> __m256i {
            // Of the 64 elements, the first 32 hold what eight lanes take; the first 16 elements of `order` are theirs. Bytes
            // 2i and 2i + 1 of element i.
            let elements = read::<_, __m256i>(order);
            let bytes = _mm256_add_epi16(_mm256_mullo_epi16(elements, _mm256_set1_epi16(0x202)), _mm256_set1_epi16(0x100));
            let mut pairs = _mm256_setzero_si256();
            for (part, sixteen) in from[..64].as_chunks::<16>().0.iter().enumerate() {
                let sixteen = _mm256_broadcastsi128_si256(read(sixteen));
                pairs = _mm256_or_si256(pairs, select_bytes(sixteen, bytes, 16 * part as i8));
            }
            pairs
        }
        fn store_ordered8(self, to: &mut [u8], vectors: [__m256i; 4], order: &LaneOrder) {
            let [a, b, c, d] = vectors;
            let (a, b, c) = (_mm256_srli_epi32::<24>(a), _mm256_srli_epi32::<24>(b), _mm256_srli_epi32::<24>(c));
            let high = _mm256_or_si256(_mm256_slli_epi32::<16>(c), _mm256_slli_epi32::<24>(_mm256_srli_epi32::<24>(d)));
            let words = _mm256_or_si256(_mm256_or_si256(a, _mm256_slli_epi32::<8>(b)), high);
            let bytes = read(&order.bytes);
            let low = select_bytes(_mm256_permute2x128_si256::<0x00>(words, words), bytes, 0);
            let high = select_bytes(_mm256_permute2x128_si256::<0x11>(words, words), bytes, 16);
            write(to, _mm256_or_si256(low, high));
        }
    }
);
/// Implements [`Simd`] for sixteen lanes.
macro_rules! avx512 {
    ($(#[$doc:meta])* $name:ident, $detected:tt, $dot:expr, { $($extra:tt)* }) => {
        instruction_set!(
            $(#[$doc])*
            $name, $detected, __m512i, 16, _mm512_set1_epi32, _mm512_add_epi32,
            _mm512_sll_epi32, _mm512_srl_epi32, _mm512_and_si512, _mm512_or_si512, _mm512_xor_si512,
            _mm512_unpacklo_epi16, _mm512_unpackhi_epi16, _mm512_sra_epi32, _mm512_packs_epi32,
            $dot, _mm512_cvtepi32_epi8, _mm512_cvtepi32_epi16, __m256i, _mm512_cvtepu16_epi32, {
                fn gather_pairs(self, from: &[u8], order: &[u16; 32]) -> __m512i {
                    let from = &from[..128];
                    _mm512_permutex2var_epi16(read(from), read(order), read(&from[64..]))
                }
                fn store_ordered16(self, to: &mut [u8], vectors: [__m512i; 4], shifts: [u32; 2], order: &LaneOrder) {
                    write(to, order_words(vectors, shifts, order));
                }
                $($extra)*
            }
        );
    };
}
avx512!(
    /// AVX-512 F and BW vectors of sixteen lanes.
    Avx512, ["avx512f", "avx512bw"], |sum, a, b| _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)), {
        fn store_ordered8(self, to: &mut [u8], vectors: [__m512i; 4], order: &LaneOrder) {
            let [first, second] = order_words(vectors, [24, 0], order);
            write(to, [_mm512_cvtepi16_epi8(first), _mm512_cvtepi16_epi8(second)]);
        }
    }
);
avx512!(
    /// AVX-512 vectors of sixteen lanes, with VNNI for dot products of 16-bit pairs and of bytes, and VBMI for byte
    /// permutes.
    Avx512Vnni, ["avx512f", "avx512bw", "avx512vnni", "avx512vbmi"], dot_words, {
        fn load_pairs(self, from: &[u16], distance: usize) -> __m512i {
            const INDICES: [[u8; 64]; 4] = [pair_indices(1), pair_indices(2), pair_indices(3), pair_indices(4)];
            _mm512_permutexvar_epi8(read(&INDICES[distance - 1]), read(from))
        }
        fn store_ordered8(self, to: &mut [u8], vectors: [__m512i; 4], order: &LaneOrder) {
            let [a, b, c, d] = vectors;
            // The highest byte of each vector becomes byte 0 to 3 of the lane.
            // Where the mask is set the first, else the second.
            const SELECT: i32 = 0xca;
            let (byte0, byte2) = (_mm512_set1_epi32(0xff), _mm512_set1_epi32(0xff_0000));
            let (a, b, c) = (_mm512_srli_epi32::<24>(a), _mm512_srli_epi32::<16>(b), _mm512_srli_epi32::<8>(c));
            let low = _mm512_ternarylogic_epi32::<SELECT>(byte0, a, b);
            let high = _mm512_ternarylogic_epi32::<SELECT>(byte2, c, d);
            let bytes = _mm512_ternarylogic_epi32::<SELECT>(_mm512_set1_epi32(0xffff), low, high);
            write(to, _mm512_permutexvar_epi8(read(&order.bytes), bytes));
        }
    }
);

/// The lanes of four vectors, each shifted right, then left, as 16-bit elements in this order: 32 in each result.
///
/// # Safety
/// The processor has AVX-512 F and BW.
#[inline(always)]
unsafe fn order_words(vectors: [__m512i; 4], [right, left]: [u32; 2], order: &LaneOrder) -> [__m512i; 2] {
    // SAFETY: the caller guarantees the instruction set; the intrinsics access no memory.
    unsafe {
        let (right, left) = (_mm_cvtsi32_si128(right as i32), _mm_cvtsi32_si128(left as i32));
        let mut words = vectors;
        for vector in &mut words {
            *vector = _mm512_sll_epi32(_mm512_srl_epi32(*vector, right), left);
        }
        let low = _mm512_or_si512(words[0], _mm512_slli_epi32::<16>(words[1]));
        let high = _mm512_or_si512(words[2], _mm512_slli_epi32::<16>(words[3]));
        let [first, second] = read(&order.words);
        [_mm512_permutex2var_epi16(low, first, high), _mm512_permutex2var_epi16(low, second, high)]
    }
}

/// The bytes that `indices` selects, of which `sixteen` has those from index `first` on, twice; 0 where it has not the one
/// selected. Indices are below 128.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn select_bytes(sixteen: __m256i, indices: __m256i, first: i8) -> __m256i {
    // SAFETY: the caller guarantees the instruction set; the intrinsics access no memory.
    unsafe {
        // From 0x80 on an index gives 0: that is all but the sixteen below `first + 16`.
        let indices = _mm256_sub_epi8(indices, _mm256_set1_epi8(first));
        _mm256_shuffle_epi8(sixteen, _mm256_adds_epu8(indices, _mm256_set1_epi8(0x70)))
    }
}

/// `vpdpwssd`. The intrinsic lets LLVM split chains of dot products into multiplications and additions, twice the instructions.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn dot_words(mut sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the features include the instruction, which accesses no memory.
    unsafe {
        std::arch::asm!("vpdpwssd {0}, {1}, {2}", inout(zmm_reg) sum, in(zmm_reg) a, in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// The index of every byte of [`Simd::load_pairs`] among the bytes read: elements `l` and `l + distance` in lane `l`.
const fn pair_indices(distance: usize) -> [u8; 64] {
    let mut from = [0; 64];
    let mut byte = 0;
    while byte < 64 {
        from[byte] = (byte / 4 * 2 + byte % 2 + byte % 4 / 2 * 2 * distance) as u8;
        byte += 1;
    }
    from
}

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

impl ByteDots for Avx512Vnni {
    const QUAD_READ_BYTES: usize = 32;

    #[inline(always)]
    fn quad_indices(self, stride: usize) -> __m512i {
        const INDICES: [[u8; 64]; 4] = [quad_indices(1), quad_indices(2), quad_indices(3), quad_indices(4)];
        read(&INDICES[stride - 1])
    }
    intrinsics! {
        fn load_quads(self, from: &[u8], indices: __m512i) -> __m512i {
            _mm512_permutexvar_epi8(indices, _mm512_castsi256_si512(read(from)))
        }
        fn gather_quads(self, from: &[u8], order: &[u8; 64]) -> __m512i {
            _mm512_permutexvar_epi8(read(order), read(from))
        }
        fn dot_bytes(self, sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
            _mm512_dpbusd_epi32(sum, a, b)
        }
    }
}
