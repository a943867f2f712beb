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

use super::plain::read;

/// Methods of an instruction set whose bodies call its intrinsics that access no memory, and nothing else that is unsafe. The set's
/// type has values only if the processor has the features. A function with `target_feature` in between would let the compiler
/// check the features, but cannot be `inline(always)`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! intrinsics {
    ($(
        $(#[$doc:meta])* fn $name:ident($self:ident $(, $arg:ident: $type:ty)*) $(-> $result:ty)? { $($body:tt)* }
    )*) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            fn $name($self $(, $arg: $type)*) $(-> $result)? {
                // SAFETY: `self` exists, so the processor has the features; the intrinsics access no memory.
                unsafe { $($body)* }
            }
        )*
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use intrinsics;

/// A vector of 32-bit lanes, and the operations on it, of one instruction set. A value of the type exists only if the processor
/// has the instruction set.
///
/// Methods panic if a slice is shorter than what they read or write.
pub trait Simd: Copy {
    /// `LANES` words of 32 bits.
    type Vector: Copy;
    /// Lanes in a vector.
    const LANES: usize;

    /// Reads `LANES` words.
    fn load(self, from: &[u32]) -> Self::Vector;
    /// Reads `2 * LANES` 16-bit elements, two into each lane, the first one into its low half.
    fn load_halves(self, from: &[u16]) -> Self::Vector;
    /// Writes `LANES` words.
    fn store(self, to: &mut [u32], vector: Self::Vector);
    /// `word` in every lane.
    fn splat(self, word: u32) -> Self::Vector;
    /// Sum of each lane, wrapping.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// In each lane, `sum + a.low * b.low + a.high * b.high`, with the halves as signed 16-bit numbers, wrapping.
    fn dot(self, sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Each lane shifted left by `bits`, filled with zeros.
    fn shift_left(self, a: Self::Vector, bits: u32) -> Self::Vector;
    /// Each lane with its low half set to 0.
    fn mask_high(self, a: Self::Vector) -> Self::Vector;
    /// Each lane shifted right by `bits`, filled with zeros.
    fn shift_right(self, a: Self::Vector, bits: u32) -> Self::Vector;
    /// Writes the lowest byte of every lane, `LANES` bytes.
    fn store_low8(self, to: &mut [u8], a: Self::Vector);
    /// Writes the low half of every lane, `2 * LANES` bytes.
    fn store_low16(self, to: &mut [u8], a: Self::Vector);
    /// Writes the highest byte of every lane of all vectors, `V * LANES` bytes.
    #[inline(always)]
    fn store_high8<const V: usize>(self, to: &mut [u8], vectors: [Self::Vector; V]) {
        let to = &mut to[..V * Self::LANES];
        for (v, vector) in vectors.into_iter().enumerate() {
            self.store_low8(&mut to[v * Self::LANES..], self.shift_right(vector, 24));
        }
    }
    /// Packs the high halves of two lanes into one: that of `a` into the low half, that of `b` into the high half.
    fn pack_high_halves(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Pairs the `2 * LANES` 16-bit elements of `a` (low halves) and `b` (high halves). The order of the pairs is the one that
    /// [`Simd::join_high_halves`] undoes.
    fn pair_halves(self, a: Self::Vector, b: Self::Vector) -> [Self::Vector; 2];
    /// The high halves of the lanes of two vectors, in the order of the elements that [`Simd::pair_halves`] paired.
    fn join_high_halves(self, vectors: [Self::Vector; 2]) -> Self::Vector;
    /// Asks for the cache line at any address to be loaded into the L2 cache, without accessing it.
    #[inline(always)]
    fn prefetch(self, _: *const u8) {}
    /// Reads `LANES` 16-bit elements and extends each with zeros.
    fn load16(self, from: &[u16]) -> Self::Vector;
    /// AND of each lane.
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// XOR of each lane.
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Packs two vectors whose high halves are 0 into one: `a` into the low halves, `b` into the high halves.
    fn pack_low_halves(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// 16-bit elements that [`Simd::load_pairs`] may read; `distance` is at most 4.
    const PAIR_READ: usize = 32;
    /// Pairs each of `LANES` 16-bit elements with the one `distance` elements further on, which becomes the high half.
    #[inline(always)]
    fn load_pairs(self, from: &[u16], distance: usize) -> Self::Vector {
        self.pack_low_halves(self.load16(from), self.load16(&from[distance..]))
    }
    /// Gathers two of the 64 16-bit elements in the first 128 bytes of `from` in each lane: those with the indices 2l and 2l + 1
    /// of `order` in lane l.
    #[inline(always)]
    fn gather_pairs(self, from: &[u8], order: &[u16; 32]) -> Self::Vector {
        let (elements, _) = from[..128].as_chunks();
        let mut words = [0; 16];
        for (word, index) in words[..Self::LANES].iter_mut().zip(order.chunks_exact(2)) {
            let [low, high] = [0, 1].map(|i| u32::from(u16::from_ne_bytes(elements[usize::from(index[i] & 63)])));
            *word = low | high << 16;
        }
        self.load(&words)
    }
    /// Writes the highest byte of every lane of four vectors in this order, `4 * LANES` bytes.
    #[inline(always)]
    fn store_ordered8(self, to: &mut [u8], vectors: [Self::Vector; 4], order: &LaneOrder) {
        let mut words = [0_u32; 16];
        let high = vectors.map(|vector| self.shift_right(vector, 24));
        let first = self.add(high[0], self.shift_left(high[1], 8));
        let second = self.add(high[2], self.shift_left(high[3], 8));
        self.store(&mut words, self.pack_low_halves(first, second));
        let bytes: [u8; 64] = read(&words);
        for (byte, index) in to[..4 * Self::LANES].iter_mut().zip(order.bytes) {
            *byte = bytes[usize::from(index & 63)];
        }
    }
    /// Writes four vectors in this order as 16-bit elements, each lane shifted right, then left; `8 * LANES` bytes.
    #[inline(always)]
    fn store_ordered16(self, to: &mut [u8], vectors: [Self::Vector; 4], [right, left]: [u32; 2], order: &LaneOrder) {
        let mut words = [[[0_u8; 2]; 16]; 4];
        for (vector, words) in vectors.into_iter().zip(&mut words) {
            self.store_low16(words.as_flattened_mut(), self.shift_left(self.shift_right(vector, right), left));
        }
        for (element, index) in to[..8 * Self::LANES].as_chunks_mut().0.iter_mut().zip(order.bytes) {
            *element = words[usize::from(index % 4)][usize::from((index / 4) & 15)];
        }
    }
}

/// The order in which [`Simd::store_ordered8`] and [`Simd::store_ordered16`] write the lanes of four vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneOrder {
    /// Element k is lane `bytes[k] / 4` of vector `bytes[k] % 4`.
    bytes: [u8; 64],
    /// The same as an index among the lanes of vectors 0 and 1, alternating, followed by those of vectors 2 and 3.
    words: [u16; 64],
}

impl LaneOrder {
    /// The order of which element k is the given (vector, lane), both in range; what follows the last one is arbitrary.
    pub fn new(elements: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut order = Self { bytes: [0; 64], words: [0; 64] };
        for (k, (vector, lane)) in elements.enumerate() {
            order.bytes[k] = (4 * lane + vector) as u8;
            order.words[k] = (32 * (vector / 2) + 2 * lane + vector % 2) as u16;
        }
        order
    }
}

/// The operations of an instruction set with dot products of four bytes.
#[cfg(target_arch = "x86_64")]
pub trait ByteDots: Simd {
    /// Bytes that [`ByteDots::load_quads`] reads.
    const QUAD_READ_BYTES: usize;

    /// The byte indices with which [`ByteDots::load_quads`] gathers samples that are `stride` bytes apart; `stride` is
    /// 1 to 4.
    fn quad_indices(self, stride: usize) -> Self::Vector;
    /// Reads `QUAD_READ_BYTES` bytes and gathers them by `indices`: byte `k` of lane `l` is the byte at `l + k *
    /// stride`, so that each lane holds four neighbouring samples of one channel.
    fn load_quads(self, from: &[u8], indices: Self::Vector) -> Self::Vector;
    /// Gathers four of the first 64 bytes in each lane: those with the indices 4l to 4l + 3 of `order` in lane l.
    fn gather_quads(self, from: &[u8], order: &[u8; 64]) -> Self::Vector;
    /// In each lane, `sum` plus the four products of the unsigned bytes of `a` and the signed bytes of `b`, wrapping.
    fn dot_bytes(self, sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;
}
