// SPDX-License-Identifier: MPL-2.0
//! The vector operations that the blur consists of, implemented once per instruction set.
//!
//! A lane is 32 bits: a pair of 16-bit samples, a pair of taps, or a sum. Samples are biased by -32768, because the
//! multiply-and-add instructions for 16-bit numbers are signed. Sums wrap modulo 2³²; the results are exact because the
//! sums without bias fit in 32 bits.

#[cfg(target_arch = "aarch64")]
pub mod neon;
pub mod portable;
#[cfg(target_arch = "x86_64")]
pub mod x86;

/// A vector of 32-bit lanes, and the operations on it, of one instruction set.
///
/// # Safety
/// Implementations access no memory other than what the documentation of a method says it reads or writes.
/// Callers of a method guarantee that the processor has the instruction set, and that pointers are valid for these
/// accesses; pointers need not be aligned.
pub unsafe trait Simd {
    /// `LANES` words of 32 bits.
    type Vector: Copy;
    /// Lanes in a vector.
    const LANES: usize;

    /// Reads `LANES` words.
    unsafe fn load(from: *const u32) -> Self::Vector;
    /// Writes `LANES` words.
    unsafe fn store(to: *mut u32, vector: Self::Vector);
    /// `word` in every lane.
    unsafe fn splat(word: u32) -> Self::Vector;
    /// Sum of each lane, wrapping.
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// In each lane, `sum + a.low * b.low + a.high * b.high`, with the halves as signed 16-bit numbers, wrapping.
    unsafe fn dot(sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Each lane shifted left by `bits`, filled with zeros.
    unsafe fn shift_left(a: Self::Vector, bits: u32) -> Self::Vector;
    /// Each lane with its low half set to 0.
    unsafe fn mask_high(a: Self::Vector) -> Self::Vector;
    /// Each lane shifted right by `bits`, filled with zeros.
    unsafe fn shift_right(a: Self::Vector, bits: u32) -> Self::Vector;
    /// Writes the lowest byte of every lane, `LANES` bytes.
    unsafe fn store_low8(to: *mut u8, a: Self::Vector);
    /// Writes the low half of every lane, `LANES` times 16 bits.
    unsafe fn store_low16(to: *mut u16, a: Self::Vector);
    /// Writes the highest byte of every lane of all vectors, `V * LANES` bytes.
    #[inline(always)]
    unsafe fn store_high8<const V: usize>(to: *mut u8, vectors: [Self::Vector; V]) {
        for (v, vector) in vectors.into_iter().enumerate() {
            // SAFETY: the caller guarantees the instruction set and `V * LANES` writable bytes, of which vector `v < V`
            // writes those from `v * LANES` to `(v + 1) * LANES`.
            unsafe { Self::store_low8(to.add(v * Self::LANES), Self::shift_right(vector, 24)) };
        }
    }
    /// Packs the high halves of two lanes into one: that of `a` into the low half, that of `b` into the high half.
    unsafe fn pack_high_halves(a: Self::Vector, b: Self::Vector) -> Self::Vector;
}

/// The operations of an instruction set with dot products of four bytes.
///
/// # Safety
/// Implementations access no memory other than what the documentation of a method says it reads. Callers of a method
/// guarantee that the processor has the instruction set, and that pointers are valid for these reads.
#[cfg(target_arch = "x86_64")]
pub unsafe trait ByteDots: Simd {
    /// Bytes that [`ByteDots::load_quads`] reads.
    const QUAD_READ_BYTES: usize;

    /// The byte indices with which [`ByteDots::load_quads`] gathers samples that are `stride` bytes apart; `stride` is
    /// 1 to 4.
    unsafe fn quad_indices(stride: usize) -> Self::Vector;
    /// Reads `QUAD_READ_BYTES` bytes and gathers them by `indices`: byte `k` of lane `l` is the byte at `l + k *
    /// stride`, so that each lane holds four neighbouring samples of one channel.
    unsafe fn load_quads(from: *const u8, indices: Self::Vector) -> Self::Vector;
    /// In each lane, `sum` plus the four products of the unsigned bytes of `a` and the signed bytes of `b`, wrapping.
    unsafe fn dot_bytes(sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;
}
