// SPDX-License-Identifier: MPL-2.0
//! Plain Rust on arrays, for any processor. The compiler vectorises it where it can.

use super::Simd;

/// Arrays of four lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Portable(());

fn dot(sum: u32, a: u32, b: u32) -> u32 {
    let half = |word: u32, shift: u32| i32::from((word >> shift) as u16 as i16);
    let products = [0, 16].map(|shift| (half(a, shift) * half(b, shift)) as u32);
    sum.wrapping_add(products[0]).wrapping_add(products[1])
}

// SAFETY: plain Rust needs no instruction set, and the loads and stores access exactly the lanes that `Simd` documents.
unsafe impl Simd for Portable {
    type Vector = [u32; 4];
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn new() -> Self {
        Self(())
    }
    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> [u32; 4] {
        // SAFETY: the caller guarantees LANES readable words.
        unsafe { from.cast::<[u32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u32, vector: [u32; 4]) {
        // SAFETY: the caller guarantees LANES writable words.
        unsafe { to.cast::<[u32; 4]>().write_unaligned(vector) }
    }
    #[inline(always)]
    fn splat(self, word: u32) -> [u32; 4] {
        [word; 4]
    }
    #[inline(always)]
    fn add(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        std::array::from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn dot(self, sum: [u32; 4], a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        std::array::from_fn(|i| dot(sum[i], a[i], b[i]))
    }
    #[inline(always)]
    fn shift_left(self, a: [u32; 4], bits: u32) -> [u32; 4] {
        a.map(|word| word << bits)
    }
    #[inline(always)]
    fn shift_right(self, a: [u32; 4], bits: u32) -> [u32; 4] {
        a.map(|word| word >> bits)
    }
    #[inline(always)]
    unsafe fn store_low8(self, to: *mut u8, a: [u32; 4]) {
        // SAFETY: the caller guarantees LANES writable bytes.
        unsafe { to.cast::<[u8; 4]>().write(a.map(|word| word as u8)) }
    }
    #[inline(always)]
    unsafe fn store_low16(self, to: *mut u16, a: [u32; 4]) {
        // SAFETY: the caller guarantees LANES writable 16-bit elements.
        unsafe { to.cast::<[u16; 4]>().write_unaligned(a.map(|word| word as u16)) }
    }
    #[inline(always)]
    fn pack_high_halves(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        std::array::from_fn(|i| a[i] >> 16 | b[i] & 0xffff_0000)
    }
    #[inline(always)]
    unsafe fn load16(self, from: *const u16) -> [u32; 4] {
        // SAFETY: the caller guarantees LANES readable 16-bit elements.
        unsafe { from.cast::<[u16; 4]>().read_unaligned() }.map(u32::from)
    }
    #[inline(always)]
    fn and(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        std::array::from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn xor(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        std::array::from_fn(|i| a[i] ^ b[i])
    }
    #[inline(always)]
    fn pack_low_halves(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        std::array::from_fn(|i| a[i] | b[i] << 16)
    }
    #[inline(always)]
    fn pair_halves(self, a: [u32; 4], b: [u32; 4]) -> [[u32; 4]; 2] {
        [std::array::from_fn(|i| a[i] & 0xffff | b[i] << 16), std::array::from_fn(|i| a[i] >> 16 | b[i] & 0xffff_0000)]
    }
    #[inline(always)]
    fn join_high_halves(self, [low, high]: [[u32; 4]; 2]) -> [u32; 4] {
        std::array::from_fn(|i| low[i] >> 16 | high[i] & 0xffff_0000)
    }
}
