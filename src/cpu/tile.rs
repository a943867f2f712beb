// SPDX-License-Identifier: MPL-2.0
//! What the passes work on: a tile of a plane, and its samples in memory.

use super::simd::Simd;
use super::weights::Weights;
use crate::frame::{PlaneLayout, Region};

/// A tile's work. The region lies in the plane; `src` and `dst` hold every row of it.
pub struct Tile<'a> {
    pub layout: PlaneLayout,
    pub src: *const u8,
    pub src_pitch: usize,
    pub dst: *mut u8,
    pub dst_pitch: usize,
    pub weights: &'a Weights,
    pub region: Region,
}

/// A sample as it lies in memory.
pub trait Sample: Copy + Default {
    /// Moves a value `by` bits up, into 16 bits.
    fn widen(self, by: u32) -> u32;
    /// Writes the sums of `V` vectors, moved `down` to the sample's bits.
    ///
    /// # Safety
    /// As [`Simd::store`], for `V * S::LANES` samples at any alignment.
    unsafe fn store<S: Simd, const V: usize>(to: *mut Self, sums: [S::Vector; V], down: u32);
}

impl Sample for u8 {
    #[inline(always)]
    fn widen(self, _: u32) -> u32 {
        u32::from(self) << 8
    }
    #[inline(always)]
    unsafe fn store<S: Simd, const V: usize>(to: *mut Self, sums: [S::Vector; V], _: u32) {
        // SAFETY: passed on.
        unsafe { S::store_high8(to, sums) }
    }
}

impl Sample for u16 {
    #[inline(always)]
    fn widen(self, by: u32) -> u32 {
        (u32::from(self) << by) & 0xffff
    }
    #[inline(always)]
    unsafe fn store<S: Simd, const V: usize>(to: *mut Self, sums: [S::Vector; V], down: u32) {
        for (v, sum) in sums.into_iter().enumerate() {
            // SAFETY: passed on.
            unsafe { S::store_low16(to.add(v * S::LANES), S::shift_right(sum, down)) };
        }
    }
}
