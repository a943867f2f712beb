// SPDX-License-Identifier: MPL-2.0
//! The rows step of an interpolation: a row of the small plane's width becomes one of the plane's.

use super::row_format::RowFormat;
use crate::cpu::simd::{LaneOrder, Simd};
use crate::cpu::weights::PhaseWeights;

/// The sums of each phase. Pair i is that of the samples `PAIRS[i]` and the next one of the small plane.
#[inline(always)]
pub fn dots<S: Simd, const FACTOR: usize>(
    simd: S,
    weights: &[[S::Vector; 4]; FACTOR],
    initial: S::Vector,
    pairs: [S::Vector; 5],
) -> [S::Vector; FACTOR] {
    let mut sums = [initial; FACTOR];
    for (p, sum) in sums.iter_mut().enumerate() {
        let weights = &weights[p];
        let [first, second] = if p == 0 { [pairs[0], pairs[2]] } else { [pairs[1], pairs[3]] };
        *sum = simd.dot(*sum, first, weights[0]);
        *sum = simd.dot(*sum, second, weights[1]);
        // The taps of the phase halfway between two samples are too small to be split.
        if 2 * p != FACTOR {
            *sum = simd.dot(*sum, pairs[3], weights[2]);
        }
        *sum = simd.dot(*sum, pairs[4], weights[3]);
    }
    sums
}

/// The first samples of the five different pairs of [`PhaseWeights`].
pub const PAIRS: [usize; 5] = [0, 1, 2, 3, 5];

/// The words of every phase as vectors, of FACTOR phases.
#[inline(always)]
pub fn splat_weights<S: Simd, const FACTOR: usize>(simd: S, phases: &[PhaseWeights]) -> [[S::Vector; 4]; FACTOR] {
    let mut weights = [[simd.splat(0); 4]; FACTOR];
    for (weights, phase) in weights.iter_mut().zip(phases) {
        for (weight, word) in weights.iter_mut().zip(phase.words) {
            *weight = simd.splat(word);
        }
    }
    weights
}

/// The rows step, with the order in which vectors of sums become a row.
pub struct RowsUp {
    pub format: RowFormat,
    /// Of the phases; empty for a factor of one.
    pub phases: &'static [PhaseWeights],
    /// Words of which vector `v` is what sums of the columns from `12 i + v` on start with: rounding, and 2³¹, which removes the
    /// bias.
    pub initial: [u32; 48],
}

impl RowsUp {
    /// For rows of this format.
    pub fn new(format: RowFormat, phases: &'static [PhaseWeights]) -> Self {
        let initial = std::array::from_fn(|x| 1 << 31 | format.rounding(x % format.channels));
        Self { format, phases, initial }
    }

    /// Pixels of the small plane in a vector.
    fn vector_pixels<S: Simd>(&self) -> usize {
        S::LANES / self.format.channels
    }

    /// The order of four vectors of sums: with four phases the phases of one vector of small pixels, with two those of
    /// two vectors.
    pub fn order<S: Simd>(&self) -> LaneOrder {
        let (pixels, channels, factor) = (self.vector_pixels::<S>(), self.format.channels, self.phases.len());
        let element = |k: usize| {
            let (x, c) = (k / channels, k % channels);
            let (small, phase) = (x / factor, x % factor);
            (small / pixels * factor + phase, small % pixels * channels + c)
        };
        LaneOrder::new((0..4 * pixels * channels).map(element))
    }

    /// Interpolates the biased row `from`, of the small row and SLACK elements beyond, with two or four phases. `out` takes the
    /// samples of the row, as bytes if they are bytes.
    #[inline(always)]
    pub fn interpolate<S: Simd>(&self, simd: S, order: &LaneOrder, from: &[u16], out: &mut [u8]) {
        match (self.phases.len(), self.format.channels) {
            (2, 1) => self.interpolate_channels::<S, 2, 1>(simd, order, from, out),
            (2, 2) => self.interpolate_channels::<S, 2, 2>(simd, order, from, out),
            (2, 3) => self.interpolate_channels::<S, 2, 3>(simd, order, from, out),
            (2, _) => self.interpolate_channels::<S, 2, 4>(simd, order, from, out),
            (_, 1) => self.interpolate_channels::<S, 4, 1>(simd, order, from, out),
            (_, 2) => self.interpolate_channels::<S, 4, 2>(simd, order, from, out),
            (_, 3) => self.interpolate_channels::<S, 4, 3>(simd, order, from, out),
            (_, _) => self.interpolate_channels::<S, 4, 4>(simd, order, from, out),
        }
    }

    /// [`RowsUp::interpolate`] for FACTOR phases and CHANNELS channels.
    #[inline(always)]
    fn interpolate_channels<S: Simd, const FACTOR: usize, const CHANNELS: usize>(
        &self,
        simd: S,
        order: &LaneOrder,
        from: &[u16],
        out: &mut [u8],
    ) {
        let (pixels, samples, shifts) = (S::LANES / CHANNELS, self.format.samples(), self.format.shifts());
        let vectors = 4 / FACTOR;
        let is_bytes = self.format.is_bytes();
        let bytes = if is_bytes { 1 } else { 2 };
        let initial = simd.load(&self.initial);
        let weights = splat_weights::<S, FACTOR>(simd, self.phases);
        let block = 4 * pixels * CHANNELS;
        for (i, x) in (0..samples).step_by(block).enumerate() {
            let mut sums = [initial; 4];
            for v in 0..vectors {
                let small = &from[(vectors * i + v) * pixels * CHANNELS..];
                let mut pairs = [initial; 5];
                for (pair, k) in pairs.iter_mut().zip(PAIRS) {
                    *pair = simd.load_pairs(&small[k * CHANNELS..], CHANNELS);
                }
                let phases = dots::<S, FACTOR>(simd, &weights, initial, pairs);
                for (p, sum) in phases.into_iter().enumerate() {
                    sums[v * FACTOR + p] = sum;
                }
            }
            let out = &mut out[bytes * x..bytes * samples];
            let mut partial = [0_u8; 128];
            let is_full = samples - x >= 4 * S::LANES;
            let to = if is_full { &mut *out } else { &mut partial };
            if is_bytes {
                simd.store_ordered8(to, sums, order);
            } else {
                simd.store_ordered16(to, sums, shifts, order);
            }
            if !is_full {
                let len = out.len().min(bytes * block);
                out[..len].copy_from_slice(&partial[..len]);
            }
        }
    }
}
