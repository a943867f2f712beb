// SPDX-License-Identifier: MPL-2.0
//! NEON, part of every aarch64 processor.

use std::arch::aarch64::*;

use super::{Simd, intrinsics};

/// NEON vectors of four lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neon(());

// SAFETY: every aarch64 processor has NEON, and the loads and stores access exactly the lanes that `Simd` documents.
unsafe impl Simd for Neon {
    type Vector = uint32x4_t;
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn new() -> Self {
        Self(())
    }
    intrinsics! {
        fn splat(self, word: u32) -> uint32x4_t {
            vdupq_n_u32(word)
        }
        fn add(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
            vaddq_u32(a, b)
        }
        fn dot(self, sum: uint32x4_t, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
            let (a, b) = (vreinterpretq_s16_u32(a), vreinterpretq_s16_u32(b));
            // The halves are split by unzips instead of shifts. The compiler then merges the unzip of `a` with its load, and
            // computes the unzip of `b` once for all rows of a block. So a dot product costs two multiply-and-adds.
            let low = |halves| vget_low_s16(vuzp1q_s16(halves, halves));
            let high = |halves| vget_low_s16(vuzp2q_s16(halves, halves));
            let sum = vmlal_s16(vreinterpretq_s32_u32(sum), low(a), low(b));
            vreinterpretq_u32_s32(vmlal_s16(sum, high(a), high(b)))
        }
        fn shift_left(self, a: uint32x4_t, bits: u32) -> uint32x4_t {
            vshlq_u32(a, vdupq_n_s32(bits as i32))
        }
        fn shift_right(self, a: uint32x4_t, bits: u32) -> uint32x4_t {
            vshlq_u32(a, vdupq_n_s32(-(bits as i32)))
        }
        fn pack_high_halves(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
            vsriq_n_u32::<16>(b, a)
        }
        fn and(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
            vandq_u32(a, b)
        }
        fn xor(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
            veorq_u32(a, b)
        }
        fn pack_low_halves(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
            vsliq_n_u32::<16>(a, b)
        }
        fn pair_halves(self, a: uint32x4_t, b: uint32x4_t) -> [uint32x4_t; 2] {
            let (a, b) = (vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
            [vreinterpretq_u32_u16(vzip1q_u16(a, b)), vreinterpretq_u32_u16(vzip2q_u16(a, b))]
        }
        fn join_high_halves(self, [low, high]: [uint32x4_t; 2]) -> uint32x4_t {
            vreinterpretq_u32_u16(vuzp2q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high)))
        }
    }
    intrinsics! {
        unsafe fn load(self, from: *const u32) -> uint32x4_t {
            vld1q_u32(from)
        }
        unsafe fn store(self, to: *mut u32, vector: uint32x4_t) {
            vst1q_u32(to, vector);
        }
        unsafe fn store_low8(self, to: *mut u8, a: uint32x4_t) {
            let halves = vmovn_u32(a);
            let bytes = vmovn_u16(vcombine_u16(halves, halves));
            to.cast::<u32>().write_unaligned(vget_lane_u32::<0>(vreinterpret_u32_u8(bytes)));
        }
        unsafe fn store_low16(self, to: *mut u16, a: uint32x4_t) {
            to.cast::<uint16x4_t>().write_unaligned(vmovn_u32(a));
        }
        unsafe fn load16(self, from: *const u16) -> uint32x4_t {
            vmovl_u16(vld1_u16(from))
        }
    }
}
