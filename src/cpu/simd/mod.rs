// SPDX-License-Identifier: MPL-2.0
//! The few vector operations the blur is made of, once per instruction set.
//!
//! A lane is 32 bits: a pair of neighbouring 16-bit samples, a pair of taps, or a sum. Samples are biased by -32768 so
//! that signed 16-bit multiply-and-add instructions take them; sums wrap modulo 2³², which is exact because the true
//! sums fit in 32 bits.

#[cfg(target_arch = "aarch64")]
pub mod neon;
pub mod portable;
#[cfg(target_arch = "x86_64")]
pub mod x86;

/// One instruction set's vector of 32-bit lanes.
///
/// # Safety
/// Every method needs a processor that has the implementor's instruction set. `load` and `store` read and write
/// `LANES` words at a pointer of any alignment.
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
    /// Lane by lane, wrapping.
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `sum + a.low * b.low + a.high * b.high` with the halves as signed 16-bit numbers, wrapping.
    unsafe fn dot(sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Every lane moved up by `by` bits, zeros below.
    unsafe fn shift_left(a: Self::Vector, by: u32) -> Self::Vector;
    /// The high half of every lane kept, zeros below.
    unsafe fn keep_high(a: Self::Vector) -> Self::Vector;
    /// Every lane moved down by `by` bits, zeros above.
    unsafe fn shift_right(a: Self::Vector, by: u32) -> Self::Vector;
    /// Writes the lowest byte of every lane, `LANES` bytes.
    unsafe fn store_low8(to: *mut u8, a: Self::Vector);
    /// Writes the low half of every lane, `LANES` times 16 bits, at any alignment.
    unsafe fn store_low16(to: *mut u16, a: Self::Vector);
    /// Writes the highest byte of every lane of all vectors, `V * LANES` bytes.
    #[inline(always)]
    unsafe fn store_high8<const V: usize>(to: *mut u8, vectors: [Self::Vector; V]) {
        for (v, vector) in vectors.into_iter().enumerate() {
            // SAFETY: passed on.
            unsafe { Self::store_low8(to.add(v * Self::LANES), Self::shift_right(vector, 24)) };
        }
    }
    /// Pairs from two vectors of sums: the high half of `a` becomes the low half, the high half of `b` stays.
    unsafe fn pair_highs(a: Self::Vector, b: Self::Vector) -> Self::Vector;
}

/// What an instruction set for dot products of four bytes adds.
///
/// # Safety
/// As [`Simd`].
#[cfg(target_arch = "x86_64")]
pub unsafe trait ByteDots: Simd {
    /// Bytes read by [`ByteDots::quads`].
    const QUADS_READ: usize;

    /// Where [`ByteDots::quads`] finds the bytes of pixels of `channels` bytes.
    unsafe fn spread(channels: usize) -> Self::Vector;
    /// Byte `k` of lane `l` is the byte at `l + k * channels`: four neighbouring samples of one channel to a lane.
    unsafe fn quads(from: *const u8, spread: Self::Vector) -> Self::Vector;
    /// `sum` plus the four products of unsigned bytes of `a` and signed bytes of `b`, lane by lane, wrapping.
    unsafe fn dot_bytes(sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;
}
