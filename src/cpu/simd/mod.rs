// SPDX-License-Identifier: MPL-2.0
//! The vector operations of the blur. Each instruction set implements them once.
//!
//! A lane has 32 bits: a pair of 16-bit samples, a pair of taps, or a sum. Samples are biased by -32768, because the
//! multiply-and-add instructions for 16-bit numbers are signed. Sums wrap modulo 2³². The results are exact, because the sums
//! without bias fit in 32 bits.

#[cfg(target_arch = "aarch64")]
pub mod neon;
pub mod portable;
#[cfg(target_arch = "x86_64")]
pub mod x86;

/// Declares methods whose bodies are intrinsics of an instruction set: methods on values, or unsafe ones with pointers.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! intrinsics {
    ($(fn $name:ident($($arguments:tt)*) -> $result:ty $body:block)*) => {
        $(
            #[inline(always)]
            fn $name($($arguments)*) -> $result {
                // SAFETY: `self` proves the instruction set; no memory is accessed.
                unsafe { $body }
            }
        )*
    };
    ($(unsafe fn $name:ident($($arguments:tt)*) $(-> $result:ty)? $body:block)*) => {
        $(
            #[inline(always)]
            unsafe fn $name($($arguments)*) $(-> $result)? {
                // SAFETY: `self` proves the instruction set. The caller guarantees that pointers are valid for everything that
                // the method reads or writes, at any alignment.
                unsafe { $body }
            }
        )*
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use intrinsics;

/// XOR with this subtracts the bias of 32768 from a sample.
pub const BIAS: u16 = 0x8000;
/// XOR with this subtracts the bias from both samples of a pair.
pub const PAIR_BIAS: u32 = 0x8000_8000;

/// A vector of 32-bit lanes of one instruction set, with the operations on it. A value of the type proves that the processor has
/// the set.
///
/// # Safety
/// Implementations access only the memory that the documentation of a method says it reads or writes. Callers of an unsafe method
/// guarantee that pointers are valid for these accesses. Pointers need not be aligned.
pub unsafe trait Simd: Copy {
    /// A vector of `LANES` words of 32 bits.
    type Vector: Copy;
    /// Lanes in a vector.
    const LANES: usize;

    /// Makes the value that proves the instruction set.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn new() -> Self;
    /// Reads `LANES` words.
    unsafe fn load(self, from: *const u32) -> Self::Vector;
    /// Writes `LANES` words.
    unsafe fn store(self, to: *mut u32, vector: Self::Vector);
    /// `word` in every lane.
    fn splat(self, word: u32) -> Self::Vector;
    /// The sum of each lane, wrapping.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// In each lane, `sum + a.low * b.low + a.high * b.high`, with the halves as signed 16-bit numbers, wrapping.
    fn dot(self, sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Each lane shifted left by `bits`, filled with zeros.
    fn shift_left(self, a: Self::Vector, bits: u32) -> Self::Vector;
    /// Each lane with its low half set to 0.
    #[inline(always)]
    fn mask_high(self, a: Self::Vector) -> Self::Vector {
        self.and(a, self.splat(0xffff_0000))
    }
    /// Each lane shifted right by `bits`, filled with zeros.
    fn shift_right(self, a: Self::Vector, bits: u32) -> Self::Vector;
    /// Writes the lowest byte of every lane, `LANES` bytes.
    unsafe fn store_low8(self, to: *mut u8, a: Self::Vector);
    /// Writes the low half of every lane, `LANES` times 16 bits.
    unsafe fn store_low16(self, to: *mut u16, a: Self::Vector);
    /// Packs the high halves of two lanes into one: that of `a` into the low half, that of `b` into the high half.
    fn pack_high_halves(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Pairs the `2 * LANES` 16-bit elements of `a` (low halves) with those of `b` (high halves). [`Simd::join_high_halves`]
    /// undoes the order of the pairs.
    fn pair_halves(self, a: Self::Vector, b: Self::Vector) -> [Self::Vector; 2];
    /// The high halves of the lanes of two vectors, in the order of the elements that [`Simd::pair_halves`] has paired.
    fn join_high_halves(self, vectors: [Self::Vector; 2]) -> Self::Vector;
    /// Prefetches the cache line at this address into the L2 cache. Any address is valid, because it is not accessed.
    #[inline(always)]
    fn prefetch(self, _: *const u8) {}
    /// Reads `LANES` 16-bit elements and extends each with zeros.
    unsafe fn load16(self, from: *const u16) -> Self::Vector;
    /// The AND of each lane.
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The XOR of each lane.
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Packs two vectors whose high halves are 0 into one: `a` into the low halves, `b` into the high halves.
    fn pack_low_halves(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Pairs each of `LANES` 16-bit elements with the element `distance` further on, which becomes the high half. `distance` is
    /// at most 4. The method may read 32 elements.
    #[inline(always)]
    unsafe fn load_pairs(self, from: *const u16, distance: usize) -> Self::Vector {
        // SAFETY: the caller guarantees 32 readable elements. Only `LANES + distance` of them are read.
        unsafe { self.pack_low_halves(self.load16(from), self.load16(from.add(distance))) }
    }
    /// Gathers two of the 64 elements at `from` in each lane: lane l gets those with the indices 2l and 2l + 1 of `order`.
    #[inline(always)]
    unsafe fn gather_pairs(self, from: *const u16, order: &[u16; 32]) -> Self::Vector {
        let mut words = [0; 16];
        for (word, index) in words[..Self::LANES].iter_mut().zip(order.as_chunks::<2>().0) {
            // SAFETY: the caller guarantees 64 readable elements, and every index is below 64.
            let [low, high] =
                unsafe { [0, 1].map(|i| u32::from(from.add(usize::from(index[i] & 63)).read_unaligned())) };
            *word = low | high << 16;
        }
        // SAFETY: `words` has at least `LANES` elements.
        unsafe { self.load(words.as_ptr()) }
    }
    /// Writes the highest byte of every lane of four vectors, in this order: `4 * LANES` bytes.
    #[inline(always)]
    unsafe fn store_ordered8(self, to: *mut u8, vectors: [Self::Vector; 4], order: &LaneOrder) {
        let mut words = [0_u32; 16];
        // SAFETY: the caller guarantees `4 * LANES` writable bytes. `words` holds one vector. The indices of `order` are limited
        // to the 64 bytes of `words`.
        unsafe {
            let mut high = vectors;
            for vector in &mut high {
                *vector = self.shift_right(*vector, 24);
            }
            let first = self.add(high[0], self.shift_left(high[1], 8));
            let second = self.add(high[2], self.shift_left(high[3], 8));
            self.store(words.as_mut_ptr(), self.pack_low_halves(first, second));
            let bytes = words.as_ptr().cast::<[u8; 64]>().read();
            let to = std::slice::from_raw_parts_mut(to, 4 * Self::LANES);
            for (byte, index) in to.iter_mut().zip(order.bytes) {
                *byte = bytes[usize::from(index & 63)];
            }
        }
    }
    /// Writes the lanes of four vectors as 16-bit elements, in this order: `4 * LANES` elements. Each lane is first shifted
    /// right, then left.
    #[inline(always)]
    unsafe fn store_ordered16(
        self,
        to: *mut u16,
        vectors: [Self::Vector; 4],
        [right, left]: [u32; 2],
        order: &LaneOrder,
    ) {
        let mut words = [[0_u16; 16]; 4];
        // SAFETY: the caller guarantees `4 * LANES` writable elements. Each of `words` holds the lanes of a vector.
        unsafe {
            for (vector, words) in vectors.into_iter().zip(&mut words) {
                self.store_low16(words.as_mut_ptr(), self.shift_left(self.shift_right(vector, right), left));
            }
            for (k, index) in order.bytes[..4 * Self::LANES].iter().enumerate() {
                to.add(k).write_unaligned(words[usize::from(index % 4)][usize::from((index / 4) & 15)]);
            }
        }
    }
}

/// The order in which [`Simd::store_ordered8`] and [`Simd::store_ordered16`] write the lanes of four vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneOrder {
    /// Element k is lane `bytes[k] / 4` of vector `bytes[k] % 4`.
    bytes: [u8; 64],
    /// The same order as an index among the alternating lanes of vectors 0 and 1, followed by those of vectors 2 and 3.
    words: [u16; 64],
}

impl LaneOrder {
    /// The order in which element k is the k-th (vector, lane) of `elements`. Both must be in range. Elements after the last one
    /// are arbitrary.
    pub fn new(elements: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut order = Self { bytes: [0; 64], words: [0; 64] };
        for (k, (vector, lane)) in elements.enumerate() {
            order.bytes[k] = (4 * lane + vector) as u8;
            order.words[k] = (32 * (vector / 2) + 2 * lane + vector % 2) as u16;
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the blur, this operation's low halves change few sums, so tests of the blur would pass without it.
    #[test]
    fn masks_keep_the_high_halves_alone() {
        fn masked<S: Simd>() -> [u32; 16] {
            let mut words = [0x1234_5678; 16];
            // SAFETY: every processor of this architecture has the set, and `words` has at least `LANES` elements.
            unsafe {
                let set = S::new();
                set.store(words.as_mut_ptr(), set.mask_high(set.load(words.as_ptr())));
            }
            words[S::LANES..].fill(0x1234_0000);
            words
        }
        let expected = [0x1234_0000; 16];
        assert_eq!(masked::<portable::Portable>(), expected);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(masked::<x86::Sse2>(), expected);
        #[cfg(target_arch = "aarch64")]
        assert_eq!(masked::<neon::Neon>(), expected);
    }
}
