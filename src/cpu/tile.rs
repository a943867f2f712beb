// SPDX-License-Identifier: MPL-2.0
//! What the passes work on: a tile of a plane, and its samples in memory.

use super::simd::Simd;
use super::weights::{PlaneWeights, Weights};
use crate::frame::{Pixels, PlaneLayout, Region};

/// A tile's work. The region lies in the plane; `src` and `dst` hold every row of it.
pub struct Tile<'a> {
    pub layout: PlaneLayout,
    pub src: *const u8,
    pub src_pitch: usize,
    pub dst: *mut u8,
    pub dst_pitch: usize,
    pub weights: &'a PlaneWeights,
    pub region: Region,
}

/// The samples of a row that are weighed together, as if all of them were `channels` apart. Those of packed 4:2:2 are two
/// such runs, each right for half of the samples.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    pub weights: &'a Weights,
    /// From a sample to its neighbour.
    pub channels: usize,
    /// In the row.
    pub samples: usize,
    /// The first sample of the tile.
    pub x: usize,
    /// How a sample is moved up into 16 bits, and which of those it has then.
    pub up: u32,
    pub mask: u32,
}

impl<'a> Tile<'a> {
    /// Every sample for itself; of packed 4:2:2 what is right for luma.
    pub fn run(&self) -> Run<'a> {
        let (layout, x) = (&self.layout, self.region.x);
        let (channels, samples) = match layout.pixels {
            Pixels::Yuv422 { .. } => (2, 2 * layout.width as usize),
            _ => (usize::from(layout.channels), layout.row_samples()),
        };
        let depth = u32::from(layout.depth);
        let mask = 0xffff << (16 - depth) & 0xffff;
        let (up, mask) = match layout.pixels {
            // They are unpacked to 16 bits before.
            Pixels::Ten => (0, 0xffff),
            Pixels::High => (0, mask),
            _ => (16 - depth, mask),
        };
        Run { weights: &self.weights.all, channels, samples, x, up, mask }
    }

    /// What is right for the chroma of packed 4:2:2.
    pub fn chroma_run(&self) -> Option<Run<'a>> {
        let weights = self.weights.chroma.as_ref()?;
        Some(Run { weights, channels: 4, samples: self.layout.row_samples(), ..self.run() })
    }
}

/// A sample as it lies in memory.
pub trait Sample: Copy + Default {
    /// The value in the upper bits of 16.
    fn widen(self, run: &Run) -> u32;
    /// Writes the sums of `V` vectors, moved `down` to the sample's bits and `up` again to their place.
    ///
    /// # Safety
    /// As [`Simd::store`], for `V * S::LANES` samples at any alignment.
    unsafe fn store<S: Simd, const V: usize>(to: *mut Self, sums: [S::Vector; V], down: u32, up: u32);
}

impl Sample for u8 {
    #[inline(always)]
    fn widen(self, _: &Run) -> u32 {
        u32::from(self) << 8
    }
    #[inline(always)]
    unsafe fn store<S: Simd, const V: usize>(to: *mut Self, sums: [S::Vector; V], _: u32, _: u32) {
        // SAFETY: passed on.
        unsafe { S::store_high8(to, sums) }
    }
}

impl Sample for u16 {
    #[inline(always)]
    fn widen(self, run: &Run) -> u32 {
        (u32::from(self) << run.up) & run.mask
    }
    #[inline(always)]
    unsafe fn store<S: Simd, const V: usize>(to: *mut Self, sums: [S::Vector; V], down: u32, up: u32) {
        for (v, sum) in sums.into_iter().enumerate() {
            // SAFETY: passed on.
            unsafe { S::store_low16(to.add(v * S::LANES), S::shift_left(S::shift_right(sum, down), up)) };
        }
    }
}
