// SPDX-License-Identifier: MPL-2.0
//! The rows step of an interpolation: a row with the width of the small plane becomes a row of the larger plane.

use super::row_format::RowFormat;
use crate::cpu::packed_taps::PhaseTaps;
use crate::cpu::simd::{LaneOrder, Simd};

/// The sums of each phase. Pair i has the sample `PAIRS[i]` of the small plane and the one after it.
#[inline(always)]
pub fn dots<S: Simd, const FACTOR: usize>(
    s: S,
    taps: &[[S::Vector; 4]; FACTOR],
    initial: S::Vector,
    pairs: [S::Vector; 5],
) -> [S::Vector; FACTOR] {
    let mut sums = [initial; FACTOR];
    for (p, sum) in sums.iter_mut().enumerate() {
        let (taps, first) = (&taps[p], usize::from(p > 0));
        *sum = s.dot(*sum, pairs[first], taps[0]);
        *sum = s.dot(*sum, pairs[first + 2], taps[1]);
        // The taps of the phase halfway between two samples are too small to be split.
        if 2 * p != FACTOR {
            *sum = s.dot(*sum, pairs[3], taps[2]);
        }
        *sum = s.dot(*sum, pairs[4], taps[3]);
    }
    sums
}

/// The first samples of the five different pairs in [`PhaseTaps`].
pub const PAIRS: [usize; 5] = [0, 1, 2, 3, 5];

/// The words of each phase as vectors. There are at least FACTOR phases.
#[inline(always)]
pub fn splat_taps<S: Simd, const FACTOR: usize>(s: S, phases: &[PhaseTaps]) -> [[S::Vector; 4]; FACTOR] {
    let mut taps = [[s.splat(0); 4]; FACTOR];
    for (taps, phase) in taps.iter_mut().zip(phases) {
        for (weight, word) in taps.iter_mut().zip(phase.words) {
            *weight = s.splat(word);
        }
    }
    taps
}

/// The rows step of an interpolation.
pub struct RowsUp {
    pub format: RowFormat,
    /// The taps of the phases; empty for a factor of one.
    pub phases: &'static [PhaseTaps],
    /// The initial sums of the columns from 12·i + v on are the words from v on: the rounding constant, and 2³¹, which removes
    /// the bias. The words repeat after 12, a multiple of 1 to 4 channels.
    pub initial: [u32; 48],
}

impl RowsUp {
    /// The rows step for rows of this format.
    pub fn new(format: RowFormat, phases: &'static [PhaseTaps]) -> Self {
        let initial = std::array::from_fn(|x| 1 << 31 | format.rounding(x % format.channels));
        Self { format, phases, initial }
    }

    /// The order in which the lanes of four vectors of sums become samples of a row. With four phases, the vectors are the phases
    /// of one vector of small pixels. With two phases, they are those of two such vectors.
    pub fn order<S: Simd>(&self) -> LaneOrder {
        let (channels, factor) = (self.format.channels, self.phases.len());
        // The number of pixels of the small plane in a vector.
        let pixels = S::LANES / channels;
        let element = |k: usize| {
            let (x, c) = (k / channels, k % channels);
            let (small, phase) = (x / factor, x % factor);
            (small / pixels * factor + phase, small % pixels * channels + c)
        };
        LaneOrder::new((0..4 * pixels * channels).map(element))
    }

    /// Interpolates the biased row `from`.
    ///
    /// # Safety
    /// There are two or four phases. `from` is valid for reading the small row and SLACK elements after it. `out` is valid for
    /// writing the samples of the row, which are bytes if the format says so.
    #[inline(always)]
    pub unsafe fn interpolate<S: Simd>(&self, s: S, order: &LaneOrder, from: *const u16, out: *mut u8) {
        // SAFETY: the caller guarantees that `from` is readable, and that `out` is writable for samples of the format.
        unsafe {
            match (self.phases.len(), self.format.channels) {
                (2, 1) => self.interpolate_channels::<S, 2, 1>(s, order, from, out),
                (2, 2) => self.interpolate_channels::<S, 2, 2>(s, order, from, out),
                (2, 3) => self.interpolate_channels::<S, 2, 3>(s, order, from, out),
                (2, _) => self.interpolate_channels::<S, 2, 4>(s, order, from, out),
                (_, 1) => self.interpolate_channels::<S, 4, 1>(s, order, from, out),
                (_, 2) => self.interpolate_channels::<S, 4, 2>(s, order, from, out),
                (_, 3) => self.interpolate_channels::<S, 4, 3>(s, order, from, out),
                (_, _) => self.interpolate_channels::<S, 4, 4>(s, order, from, out),
            }
        }
    }

    /// # Safety
    /// The conditions of [`RowsUp::interpolate`] hold; there are FACTOR phases and CHANNELS channels.
    #[inline(always)]
    unsafe fn interpolate_channels<S: Simd, const FACTOR: usize, const CHANNELS: usize>(
        &self,
        s: S,
        order: &LaneOrder,
        from: *const u16,
        out: *mut u8,
    ) {
        let (pixels, samples, shifts) = (S::LANES / CHANNELS, self.format.samples(), self.format.shifts());
        let vectors = 4 / FACTOR;
        let is_bytes = self.format.is_bytes();
        let bytes = if is_bytes { 1 } else { 2 };
        // SAFETY: the caller guarantees that `from` is readable and `out` is writable. Blocks read from pixels of the small row
        // on, and at most SLACK elements after it. A block that ends beyond the row is first written to `partial`.
        unsafe {
            let initial = s.load(self.initial.as_ptr());
            let taps = splat_taps::<S, FACTOR>(s, self.phases);
            let block = 4 * pixels * CHANNELS;
            for (i, x) in (0..samples).step_by(block).enumerate() {
                let mut sums = [initial; 4];
                for v in 0..vectors {
                    let small = from.add((vectors * i + v) * pixels * CHANNELS);
                    let mut pairs = [initial; 5];
                    for (pair, k) in pairs.iter_mut().zip(PAIRS) {
                        *pair = s.load_pairs(small.add(k * CHANNELS), CHANNELS);
                    }
                    let phases = dots(s, &taps, initial, pairs);
                    for (p, sum) in phases.into_iter().enumerate() {
                        sums[v * FACTOR + p] = sum;
                    }
                }
                let mut partial = [0_u16; 64];
                let is_full = samples - x >= 4 * S::LANES;
                let to = if is_full { out.add(bytes * x) } else { partial.as_mut_ptr().cast() };
                if is_bytes {
                    s.store_ordered8(to, sums, order);
                } else {
                    s.store_ordered16(to.cast(), sums, shifts, order);
                }
                if !is_full {
                    out.add(bytes * x).copy_from(partial.as_ptr().cast(), bytes * (samples - x).min(block));
                }
            }
        }
    }
}
