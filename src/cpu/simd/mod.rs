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
    /// The low half of every lane moved to the high half, zeros below.
    unsafe fn low_to_high(a: Self::Vector) -> Self::Vector;
    /// The high half of every lane kept, zeros below.
    unsafe fn keep_high(a: Self::Vector) -> Self::Vector;
    /// Pairs from two vectors of sums: the high half of `a` becomes the low half, the high half of `b` stays.
    unsafe fn pair_highs(a: Self::Vector, b: Self::Vector) -> Self::Vector;
}
