// SPDX-License-Identifier: MPL-2.0
//! Plain Rust on arrays, for any processor; the compiler vectorises it where it can.

use super::Simd;
use crate::cpu::plain::{read, write};

/// Arrays of four lanes.
#[derive(Clone, Copy)]
pub struct Portable;

fn dot(sum: u32, a: u32, b: u32) -> u32 {
    let half = |word: u32, shift: u32| i32::from((word >> shift) as u16 as i16);
    let products = [0, 16].map(|shift| (half(a, shift) * half(b, shift)) as u32);
    sum.wrapping_add(products[0]).wrapping_add(products[1])
}

impl Simd for Portable {
    type Vector = [u32; 4];
    const LANES: usize = 4;

    #[inline(always)]
    fn load(self, from: &[u32]) -> [u32; 4] {
        read(from)
    }
    #[inline(always)]
    fn load_halves(self, from: &[u16]) -> [u32; 4] {
        read(from)
    }
    #[inline(always)]
    fn store(self, to: &mut [u32], vector: [u32; 4]) {
        write(to, vector);
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
    fn mask_high(self, a: [u32; 4]) -> [u32; 4] {
        a.map(|word| word & 0xffff_0000)
    }
    #[inline(always)]
    fn shift_right(self, a: [u32; 4], bits: u32) -> [u32; 4] {
        a.map(|word| word >> bits)
    }
    #[inline(always)]
    fn store_low8(self, to: &mut [u8], a: [u32; 4]) {
        write(to, a.map(|word| word as u8));
    }
    #[inline(always)]
    fn store_low16(self, to: &mut [u8], a: [u32; 4]) {
        write(to, a.map(|word| word as u16));
    }
    #[inline(always)]
    fn pack_high_halves(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        std::array::from_fn(|i| a[i] >> 16 | b[i] & 0xffff_0000)
    }
    #[inline(always)]
    fn load16(self, from: &[u16]) -> [u32; 4] {
        read::<_, [u16; 4]>(from).map(u32::from)
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
