// SPDX-License-Identifier: MPL-2.0
//! x86-64: SSE2, AVX2, and AVX-512 with VNNI and VBMI, whose dot products are single instructions.

use std::arch::x86_64::*;

use super::{LaneOrder, Simd, intrinsics};

/// Implements [`Simd`] for one instruction set with its intrinsics. `$dot` is a closure over (sum, a, b), `$low8` and `$low16`
/// are closures over (destination, vector), and `$load16` is a closure over the source. `$extra` replaces default methods.
macro_rules! instruction_set {
    ($(#[$doc:meta])* $name:ident, $vector:ty, $lanes:literal, $load:ident, $store:ident, $splat:ident, $add:ident,
     $shift_left:ident, $shift_right:ident, $and:ident, $or:ident, $xor:ident,
     $unpack_low:ident, $unpack_high:ident, $sign_shift:ident, $pack:ident, $dot:expr, $low8:expr, $low16:expr, $load16:expr
     $(, $extra:item)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name(());

        // SAFETY: the loads and stores access exactly the lanes that `Simd` documents, at any alignment. The other methods access
        // no memory.
        unsafe impl Simd for $name {
            type Vector = $vector;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn new() -> Self {
                Self(())
            }
            intrinsics! {
                fn splat(self, word: u32) -> $vector {
                    $splat(word as i32)
                }
                fn add(self, a: $vector, b: $vector) -> $vector {
                    $add(a, b)
                }
                fn dot(self, sum: $vector, a: $vector, b: $vector) -> $vector {
                    $dot(sum, a, b)
                }
                fn shift_left(self, a: $vector, bits: u32) -> $vector {
                    $shift_left(a, _mm_cvtsi32_si128(bits as i32))
                }
                fn shift_right(self, a: $vector, bits: u32) -> $vector {
                    $shift_right(a, _mm_cvtsi32_si128(bits as i32))
                }
                fn pack_high_halves(self, a: $vector, b: $vector) -> $vector {
                    $or(self.shift_right(a, 16), self.mask_high(b))
                }
                fn pair_halves(self, a: $vector, b: $vector) -> [$vector; 2] {
                    [$unpack_low(a, b), $unpack_high(a, b)]
                }
                fn join_high_halves(self, [low, high]: [$vector; 2]) -> $vector {
                    // The high halves, as signed numbers, fit in 16 bits, so nothing saturates.
                    let bits = _mm_cvtsi32_si128(16);
                    $pack($sign_shift(low, bits), $sign_shift(high, bits))
                }
                fn and(self, a: $vector, b: $vector) -> $vector {
                    $and(a, b)
                }
                fn xor(self, a: $vector, b: $vector) -> $vector {
                    $xor(a, b)
                }
                fn pack_low_halves(self, a: $vector, b: $vector) -> $vector {
                    $or(a, self.shift_left(b, 16))
                }
            }
            intrinsics! {
                unsafe fn load(self, from: *const u32) -> $vector {
                    $load(from.cast())
                }
                unsafe fn store(self, to: *mut u32, vector: $vector) {
                    $store(to.cast(), vector)
                }
                unsafe fn store_low8(self, to: *mut u8, a: $vector) {
                    $low8(to, a)
                }
                unsafe fn store_low16(self, to: *mut u16, a: $vector) {
                    $low16(to, a)
                }
                unsafe fn load16(self, from: *const u16) -> $vector {
                    $load16(from)
                }
            }
            #[inline(always)]
            fn prefetch(self, address: *const u8) {
                // SAFETY: every x86-64 processor has SSE. A prefetch of any address affects only the cache.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
            }
            $($extra)*
        }
    };
}

instruction_set!(
    /// SSE2 vectors of four lanes; part of every x86-64 processor.
    Sse2, __m128i, 4, _mm_loadu_si128, _mm_storeu_si128, _mm_set1_epi32, _mm_add_epi32,
    _mm_sll_epi32, _mm_srl_epi32, _mm_and_si128, _mm_or_si128, _mm_xor_si128,
    _mm_unpacklo_epi16, _mm_unpackhi_epi16, _mm_sra_epi32, _mm_packs_epi32,
    |sum, a, b| _mm_add_epi32(sum, _mm_madd_epi16(a, b)),
    |to: *mut u8, a| {
        let bytes = _mm_packus_epi16(_mm_packs_epi32(a, a), a);
        to.cast::<i32>().write_unaligned(_mm_cvtsi128_si32(bytes));
    },
    // SSE2 packs 32 bits to 16 bits only with signed saturation. Sign extension of the low half avoids saturation, so all of its
    // 16 bits are written.
    |to: *mut u16, a| {
        let extended = _mm_srai_epi32::<16>(_mm_slli_epi32::<16>(a));
        _mm_storel_epi64(to.cast(), _mm_packs_epi32(extended, extended));
    },
    |from: *const u16| _mm_unpacklo_epi16(_mm_loadl_epi64(from.cast()), _mm_setzero_si128())
);
instruction_set!(
    /// AVX2 vectors of eight lanes.
    Avx2, __m256i, 8, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_set1_epi32, _mm256_add_epi32,
    _mm256_sll_epi32, _mm256_srl_epi32, _mm256_and_si256, _mm256_or_si256, _mm256_xor_si256,
    _mm256_unpacklo_epi16, _mm256_unpackhi_epi16, _mm256_sra_epi32, _mm256_packs_epi32,
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
    },
    |from: *const u16| _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())),
    #[inline(always)]
    unsafe fn gather_pairs(self, from: *const u16, order: &[u16; 32]) -> __m256i {
        // SAFETY: `self` proves the instruction set. The caller guarantees 64 readable 16-bit elements at `from`. The first 32 of
        // them contain everything that eight lanes can select, by the first 16 elements of `order`.
        unsafe {
            // The bytes of element i are 2i and 2i + 1.
            let elements = _mm256_loadu_si256(order.as_ptr().cast());
            let bytes = _mm256_add_epi16(_mm256_mullo_epi16(elements, _mm256_set1_epi16(0x202)), _mm256_set1_epi16(0x100));
            let mut pairs = _mm256_setzero_si256();
            for part in 0..4 {
                let sixteen = _mm256_broadcastsi128_si256(_mm_loadu_si128(from.add(8 * part).cast()));
                pairs = _mm256_or_si256(pairs, self.select_bytes(sixteen, bytes, 16 * part as i8));
            }
            pairs
        }
    },
    #[inline(always)]
    unsafe fn store_ordered8(self, to: *mut u8, vectors: [__m256i; 4], order: &LaneOrder) {
        // SAFETY: `self` proves the instruction set. The caller guarantees `4 * LANES` writable bytes, and `order` has 64 bytes.
        unsafe {
            let [a, b, c, d] = vectors;
            let (a, b, c) = (_mm256_srli_epi32::<24>(a), _mm256_srli_epi32::<24>(b), _mm256_srli_epi32::<24>(c));
            let high = _mm256_or_si256(_mm256_slli_epi32::<16>(c), _mm256_slli_epi32::<24>(_mm256_srli_epi32::<24>(d)));
            let words = _mm256_or_si256(_mm256_or_si256(a, _mm256_slli_epi32::<8>(b)), high);
            let bytes = _mm256_loadu_si256(order.bytes.as_ptr().cast());
            let low = self.select_bytes(_mm256_permute2x128_si256::<0x00>(words, words), bytes, 0);
            let high = self.select_bytes(_mm256_permute2x128_si256::<0x11>(words, words), bytes, 16);
            _mm256_storeu_si256(to.cast(), _mm256_or_si256(low, high));
        }
    }
);
instruction_set!(
    /// AVX-512 vectors of sixteen lanes, with VNNI for dot products of 16-bit pairs and of bytes, and VBMI for byte
    /// permutes.
    Avx512Vnni, __m512i, 16, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_set1_epi32, _mm512_add_epi32,
    _mm512_sll_epi32, _mm512_srl_epi32, _mm512_and_si512, _mm512_or_si512, _mm512_xor_si512,
    _mm512_unpacklo_epi16, _mm512_unpackhi_epi16, _mm512_sra_epi32, _mm512_packs_epi32,
    |sum, a, b| dot_words(sum, a, b),
    |to: *mut u8, a| _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(a)),
    |to: *mut u16, a| _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(a)),
    |from: *const u16| _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())),
    #[inline(always)]
    unsafe fn gather_pairs(self, from: *const u16, order: &[u16; 32]) -> __m512i {
        // SAFETY: `self` proves the instruction set. The caller guarantees 64 readable 16-bit elements at `from`.
        unsafe {
            let (low, high) = (_mm512_loadu_si512(from.cast()), _mm512_loadu_si512(from.add(32).cast()));
            _mm512_permutex2var_epi16(low, _mm512_loadu_si512(order.as_ptr().cast()), high)
        }
    },
    #[inline(always)]
    unsafe fn store_ordered16(self, to: *mut u16, vectors: [__m512i; 4], [right, left]: [u32; 2], order: &LaneOrder) {
        // SAFETY: `self` proves the instruction set. The caller guarantees `4 * LANES` writable 16-bit elements, and `order` has
        // 64 words.
        unsafe {
            let (right, left) = (_mm_cvtsi32_si128(right as i32), _mm_cvtsi32_si128(left as i32));
            let mut words = vectors;
            for vector in &mut words {
                *vector = _mm512_sll_epi32(_mm512_srl_epi32(*vector, right), left);
            }
            let low = _mm512_or_si512(words[0], _mm512_slli_epi32::<16>(words[1]));
            let high = _mm512_or_si512(words[2], _mm512_slli_epi32::<16>(words[3]));
            for (i, order) in order.words.as_chunks::<32>().0.iter().enumerate() {
                let ordered = _mm512_permutex2var_epi16(low, _mm512_loadu_si512(order.as_ptr().cast()), high);
                _mm512_storeu_si512(to.add(32 * i).cast(), ordered);
            }
        }
    },
    #[inline(always)]
    unsafe fn load_pairs(self, from: *const u16, distance: usize) -> __m512i {
        const INDICES: [[u8; 64]; 4] = [pair_indices(1), pair_indices(2), pair_indices(3), pair_indices(4)];
        // SAFETY: `self` proves the instruction set. The caller guarantees 32 readable 16-bit elements at `from`, which are 64
        // bytes. An element of `INDICES` also has 64 bytes.
        unsafe {
            let indices = _mm512_loadu_si512(INDICES[distance - 1].as_ptr().cast());
            _mm512_permutexvar_epi8(indices, _mm512_loadu_si512(from.cast()))
        }
    },
    #[inline(always)]
    unsafe fn store_ordered8(self, to: *mut u8, vectors: [__m512i; 4], order: &LaneOrder) {
        // SAFETY: `self` proves the instruction set. The caller guarantees `4 * LANES` writable bytes, and `order` has 64 bytes.
        unsafe {
            let [a, b, c, d] = vectors;
            // The highest byte of each of the four vectors becomes byte 0, 1, 2 or 3 of the lane. `SELECT` takes bits of the
            // second operand where the first one, a mask, is set, else bits of the third.
            const SELECT: i32 = 0xca;
            let (byte0, byte2) = (_mm512_set1_epi32(0xff), _mm512_set1_epi32(0xff_0000));
            let (a, b, c) = (_mm512_srli_epi32::<24>(a), _mm512_srli_epi32::<16>(b), _mm512_srli_epi32::<8>(c));
            let low = _mm512_ternarylogic_epi32::<SELECT>(byte0, a, b);
            let high = _mm512_ternarylogic_epi32::<SELECT>(byte2, c, d);
            let bytes = _mm512_ternarylogic_epi32::<SELECT>(_mm512_set1_epi32(0xffff), low, high);
            let ordered = _mm512_permutexvar_epi8(_mm512_loadu_si512(order.bytes.as_ptr().cast()), bytes);
            _mm512_storeu_si512(to.cast(), ordered);
        }
    }
);

impl Avx2 {
    /// The bytes that `indices` select. `sixteen` has the bytes from index `first` on, in both halves. Where `sixteen` does not
    /// have the selected byte, the result is 0. Indices are below 128.
    #[inline(always)]
    fn select_bytes(self, sixteen: __m256i, indices: __m256i, first: i8) -> __m256i {
        // SAFETY: `self` proves the instruction set; no memory is accessed.
        unsafe {
            // A shuffle index from 0x80 on gives 0. The addition moves all indices there except the sixteen from `first` on.
            let indices = _mm256_sub_epi8(indices, _mm256_set1_epi8(first));
            _mm256_shuffle_epi8(sixteen, _mm256_adds_epu8(indices, _mm256_set1_epi8(0x70)))
        }
    }
}

/// Computes `vpdpwssd` by inline assembly. With the intrinsic, LLVM splits chains of dot products into multiplications and
/// additions, which are twice as many instructions.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn dot_words(mut sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller guarantees that the processor has the instruction, which accesses no memory.
    unsafe {
        std::arch::asm!("vpdpwssd {0}, {1}, {2}", inout(zmm_reg) sum, in(zmm_reg) a, in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// The index of each byte of the result of [`Simd::load_pairs`] among the bytes that it reads: lane `l` has the elements `l` and
/// `l + distance`.
const fn pair_indices(distance: usize) -> [u8; 64] {
    let mut from = [0; 64];
    let mut byte = 0;
    while byte < 64 {
        from[byte] = (byte / 4 * 2 + byte % 2 + byte % 4 / 2 * 2 * distance) as u8;
        byte += 1;
    }
    from
}

/// The index of byte `k` of lane `l` among the bytes read, for samples that are `stride` bytes apart: `l + k * stride`.
const fn quad_indices(stride: usize) -> [u8; 64] {
    let mut from = [0; 64];
    let mut byte = 0;
    while byte < 64 {
        from[byte] = (byte / 4 + byte % 4 * stride) as u8;
        byte += 1;
    }
    from
}

/// The operations that only this instruction set has, such as dot products of four bytes. Callers of unsafe methods guarantee the
/// same as for [`Simd`].
impl Avx512Vnni {
    /// The number of bytes that [`Self::load_quads`] reads. They include every index of [`quad_indices`], of which the largest is
    /// 15 + 3 * 4.
    pub const QUAD_READ_BYTES: usize = 32;

    /// The byte indices with which [`Self::load_quads`] gathers samples that are `stride` bytes apart; `stride` is 1 to 4.
    #[inline(always)]
    pub fn quad_indices(self, stride: usize) -> __m512i {
        const INDICES: [[u8; 64]; 4] = [quad_indices(1), quad_indices(2), quad_indices(3), quad_indices(4)];
        // SAFETY: `self` proves the instruction set, and an element of `INDICES` has 64 readable bytes.
        unsafe { _mm512_loadu_si512(INDICES[stride - 1].as_ptr().cast()) }
    }
    /// Reads `QUAD_READ_BYTES` bytes and gathers them by `indices`: byte `k` of lane `l` is the byte at `l + k * stride`. So each
    /// lane holds four neighbouring samples of one channel.
    #[inline(always)]
    pub unsafe fn load_quads(self, from: *const u8, indices: __m512i) -> __m512i {
        // SAFETY: `self` proves the instruction set. The caller guarantees `QUAD_READ_BYTES` readable bytes at `from`.
        unsafe { _mm512_permutexvar_epi8(indices, _mm512_castsi256_si512(_mm256_loadu_si256(from.cast()))) }
    }
    /// Gathers four of the 64 bytes at `from` in each lane: lane l gets those with the indices 4l to 4l + 3 of `order`.
    #[inline(always)]
    pub unsafe fn gather_quads(self, from: *const u8, order: &[u8; 64]) -> __m512i {
        // SAFETY: `self` proves the instruction set. The caller guarantees 64 readable bytes at `from`, and `order` has 64 bytes.
        unsafe { _mm512_permutexvar_epi8(_mm512_loadu_si512(order.as_ptr().cast()), _mm512_loadu_si512(from.cast())) }
    }
    /// The lanes of two vectors in the given order. The lanes of `a` have the indices 0 to `LANES - 1`, and the lanes of `b` have
    /// the following ones.
    #[inline(always)]
    pub fn interleave(self, a: __m512i, b: __m512i, order: &[u32; 32]) -> [__m512i; 2] {
        // SAFETY: `self` proves the instruction set, and `order` has two vectors of indices.
        unsafe {
            let (first, second) = (order.as_ptr(), order[16..].as_ptr());
            [
                _mm512_permutex2var_epi32(a, _mm512_loadu_si512(first.cast()), b),
                _mm512_permutex2var_epi32(a, _mm512_loadu_si512(second.cast()), b),
            ]
        }
    }
    /// In each lane, `sum` plus the four products of the unsigned bytes of `a` and the signed bytes of `b`, wrapping.
    #[inline(always)]
    pub fn dot_bytes(self, sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the instruction set; no memory is accessed.
        unsafe { _mm512_dpbusd_epi32(sum, a, b) }
    }
}
