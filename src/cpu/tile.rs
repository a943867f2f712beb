// SPDX-License-Identifier: MPL-2.0
//! The input of the blur's two passes: a tile of a plane, and how its samples are stored.

use std::sync::Arc;

use super::packed_taps::{PackedTaps, PlanePackedTaps};
use super::simd::Simd;
use crate::filter::frame::PlaneLayout;
use crate::filter::plane::{HostPlane, HostPlaneMut};

/// A region of a plane to blur. `source` and `destination` hold all rows of the plane, not only those of the region.
#[derive(Clone)]
pub struct Tile {
    pub layout: PlaneLayout,
    pub source: HostPlane,
    pub destination: HostPlaneMut,
    pub taps: Arc<PlanePackedTaps>,
    pub region: SampleRect,
}

/// A rectangle of a plane: `x` and `width` in samples, `y` and `height` in rows.
#[derive(Clone, Copy)]
pub struct SampleRect {
    pub x: usize,
    pub y: usize,
    pub width: usize,
    pub height: usize,
}

/// How the rows pass reads a row: with one set of taps, and one distance between neighbouring samples of a channel.
///
/// Most layouts need one run. Packed 4:2:2 needs two, because luma and chroma samples have different distances and taps. Each run
/// convolves every sample of the row, but its results are valid only for its own samples.
#[derive(Clone, Copy)]
pub struct SampleRun<'a> {
    pub taps: &'a PackedTaps,
    /// The distance from a sample to the next one of the same channel, in samples.
    pub stride: usize,
    /// The number of samples in a row of the plane.
    pub samples: usize,
    /// The index in the row of the tile's first sample.
    pub x: usize,
    /// The number of bits by which a stored sample is shifted left to MSB-align it in 16 bits.
    pub left_shift: u32,
    /// The bits of the shifted sample that carry its value.
    pub mask: u32,
}

impl Tile {
    /// The run of all samples, or of luma for packed 4:2:2.
    pub fn sample_run(&self) -> SampleRun<'_> {
        let (layout, x) = (&self.layout, self.region.x);
        let (stride, samples) = match layout.is_packed_422() {
            true => (2, 2 * layout.width as usize),
            false => (usize::from(layout.channels), layout.row_samples()),
        };
        let depth = u32::from(layout.depth);
        let mask = 0xffff << (16 - depth) & 0xffff;
        // The tile blur unpacks words of several samples to 16 bits before the rows pass.
        let (left_shift, mask) =
            if layout.is_packed_word() { (0, 0xffff) } else { (16 - depth - u32::from(layout.shift()), mask) };
        SampleRun { taps: &self.taps.all, stride, samples, x, left_shift, mask }
    }

    /// The run of the chroma of packed 4:2:2; `None` for other layouts.
    pub fn chroma_run(&self) -> Option<SampleRun<'_>> {
        let taps = self.taps.chroma.as_ref()?;
        Some(SampleRun { taps, stride: 4, samples: self.layout.row_samples(), ..self.sample_run() })
    }
}

/// The type that stores a sample in memory.
pub trait Sample: Copy + Default {
    /// The sample's value, MSB-aligned in the low 16 bits of the word.
    fn widen(self, run: &SampleRun) -> u32;
    /// Writes `V` vectors of sums as samples. Each sum is shifted right by `right_shift`, which leaves the bits of a sample, and
    /// then left by `left_shift`, to where the layout has these bits. `u8` samples always use the highest byte of a sum.
    ///
    /// # Safety
    /// `to` is valid for writing `V * S::LANES` samples. It need not be aligned.
    unsafe fn store<S: Simd, const V: usize>(
        s: S,
        to: *mut Self,
        sums: [S::Vector; V],
        right_shift: u32,
        left_shift: u32,
    );
}

impl Sample for u8 {
    #[inline(always)]
    fn widen(self, _: &SampleRun) -> u32 {
        u32::from(self) << 8
    }
    #[inline(always)]
    unsafe fn store<S: Simd, const V: usize>(s: S, to: *mut Self, sums: [S::Vector; V], _: u32, _: u32) {
        for (v, sum) in sums.into_iter().enumerate() {
            // SAFETY: the caller guarantees that `to` is valid for `V * LANES` bytes. Vector `v < V` writes those from `v *
            // LANES` to `(v + 1) * LANES`.
            unsafe { s.store_low8(to.add(v * S::LANES), s.shift_right(sum, 24)) };
        }
    }
}

impl Sample for u16 {
    #[inline(always)]
    fn widen(self, run: &SampleRun) -> u32 {
        (u32::from(self) << run.left_shift) & run.mask
    }
    #[inline(always)]
    unsafe fn store<S: Simd, const V: usize>(
        s: S,
        to: *mut Self,
        sums: [S::Vector; V],
        right_shift: u32,
        left_shift: u32,
    ) {
        for (v, sum) in sums.into_iter().enumerate() {
            // SAFETY: the caller guarantees that `to` is valid for `V * LANES` samples. Vector `v < V` writes those from `v *
            // LANES` to `(v + 1) * LANES`.
            unsafe {
                s.store_low16(to.add(v * S::LANES), s.shift_left(s.shift_right(sum, right_shift), left_shift));
            };
        }
    }
}
