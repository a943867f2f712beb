// SPDX-License-Identifier: MPL-2.0
//! The wide form of the Gaussian, whose cost for any σ is that of a small σ.
//!
//! A Gaussian of a Gaussian is a Gaussian, and the squares of their σ add up. With c = 3/4 and a factor s,
//!
//! ```text
//! σ² = (c·s)² + (s·σ')² + (c·s)²
//! ```
//!
//! so a blur by σ can be done in three steps: a Gaussian of c·s followed by a decimation by s; a blur of the small plane by σ';
//! and an interpolation with a Gaussian of c·s. At the small plane's sampling frequency, a Gaussian of c·s has fallen to
//! exp(-2π²c²) = 1.5e-5. So neither the aliases of the decimation nor the images of the interpolation reach a hundredth of an
//! 8-bit step. The small plane is decimated again in the same way until σ' is below [`FACTOR_4_SIGMA`].

use super::taps::{TAP_SUM, Taps, gaussian, largest_remainder};

/// An axis is blurred in the wide form from this σ on, in samples of its plane.
pub const WIDE_SIGMA: f64 = 3.5;
/// A level has the factor 4 from this σ on. For a smaller σ, the factor 4 would leave a σ' that is too small to suppress the
/// images. A small plane with a σ' below this value is blurred directly: the plane is so small that another level would cost
/// more.
const FACTOR_4_SIGMA: f64 = 7.0;
/// The radius of the direct form in multiples of σ, if it follows σ.
const TRUNCATE: f64 = 4.0;
/// The same for a small plane with a σ' of [`WIDE_SIGMA`] or more. There, the tail beyond 4σ' would be most of the error.
const LONG_TRUNCATE: f64 = 4.5;
/// σ of the decimation and interpolation filters, in samples of the small plane.
const LEVEL_SIGMA: f64 = 0.75;
/// Radius of the decimation and interpolation filters, in samples of the small plane.
pub const LEVEL_RADIUS: u32 = 3;
/// The number of samples by which the small plane extends beyond each end of the larger plane. All taps of the outermost sample
/// are on the repeated edge, so repeating the edge of the small plane is exact.
pub const MARGIN: u32 = 3;
/// The number of samples of the small plane that an interpolated sample is computed from.
pub const PHASE_TAPS: usize = 2 * LEVEL_RADIUS as usize + 1;

/// The decimation factor along one axis: the number of samples of the larger plane for each sample of the small plane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Factor {
    /// The axis is not decimated.
    #[default]
    One,
    /// Every second sample.
    Two,
    /// Every fourth sample.
    Four,
}

impl Factor {
    /// The factor as a number.
    pub const fn get(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
        }
    }

    /// The number of samples of the small plane for `count` samples, including the margins on both sides.
    pub const fn decimated(self, count: u32) -> u32 {
        match self {
            Self::One => count,
            _ => (count - 1).div_ceil(self.get()) + 1 + 2 * MARGIN,
        }
    }

    /// The taps of the decimation by s. Sample i of the small plane is the weighted sum around sample (i - [`MARGIN`])·s. A
    /// factor of one has the single tap [`TAP_SUM`].
    pub fn decimation_taps(self) -> Taps {
        match self {
            Self::One => Taps::identity(),
            _ => Taps::gaussian(LEVEL_SIGMA * f64::from(self.get()), (LEVEL_RADIUS * self.get()) as usize),
        }
    }

    /// The taps of the interpolation by s for the samples x with x mod s = `phase`. Tap k belongs to sample x / s + k of the
    /// small plane, counted from its margin on. The taps are quantised by largest remainder and sum to [`TAP_SUM`]. The factor
    /// must not be one.
    pub fn interpolation_taps(self, phase: u32) -> [u32; PHASE_TAPS] {
        debug_assert!(phase < self.get() && self != Self::One);
        let (s, reach) = (f64::from(self.get()), f64::from(LEVEL_RADIUS * self.get()));
        let weight = |k: usize| match f64::from(phase) - s * (k as f64 - f64::from(LEVEL_RADIUS)) {
            distance if distance.abs() <= reach => gaussian(distance / (LEVEL_SIGMA * s)),
            _ => 0.0,
        };
        let mut exact: [f64; PHASE_TAPS] = std::array::from_fn(weight);
        let sum: f64 = exact.iter().sum();
        exact.iter_mut().for_each(|weight| *weight *= f64::from(TAP_SUM) / sum);
        let mut taps = exact.map(|weight| weight.floor() as u32);
        let missing = TAP_SUM - taps.iter().sum::<u32>();
        for k in largest_remainder(&exact, 0..PHASE_TAPS).into_iter().take(missing as usize) {
            taps[k] += 1;
        }
        taps
    }
}

/// How one axis of a plane is blurred: it is decimated level by level, blurred directly, and interpolated back. Without levels
/// this is the direct form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AxisBlur {
    levels: Vec<Factor>,
    /// The taps of the direct form, for the smallest plane.
    pub taps: Taps,
}

impl AxisBlur {
    /// The direct form with these taps.
    pub fn direct(taps: Taps) -> Self {
        Self { levels: Vec::new(), taps }
    }

    /// A Gaussian of `sigma`, in samples. The levels and the radius follow from it.
    pub fn gaussian(mut sigma: f64) -> Self {
        let small = |sigma: f64, factor: Factor| {
            let sigma = sigma / f64::from(factor.get());
            (sigma * sigma - 2.0 * LEVEL_SIGMA * LEVEL_SIGMA).sqrt()
        };
        let mut levels = Vec::new();
        while sigma >= FACTOR_4_SIGMA {
            levels.push(Factor::Four);
            sigma = small(sigma, Factor::Four);
        }
        if levels.is_empty() && sigma >= WIDE_SIGMA {
            levels.push(Factor::Two);
            sigma = small(sigma, Factor::Two);
        }
        let reach = if sigma < WIDE_SIGMA { TRUNCATE } else { LONG_TRUNCATE };
        Self { levels, taps: Taps::gaussian(sigma, (reach * sigma + 0.5) as usize) }
    }

    /// The factors of the levels. The level of the full plane is the first.
    pub fn levels(&self) -> &[Factor] {
        &self.levels
    }

    /// The factor of a level; one for levels beyond the last.
    pub fn factor(&self, level: usize) -> Factor {
        self.levels.get(level).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Factor::{Four, One, Two};

    #[test]
    fn levels_follow_the_thresholds() {
        for (sigma, levels) in [
            (3.499, &[][..]),
            (3.5, &[Two]),
            (6.999, &[Two]),
            (7.0, &[Four]),
            (28.3, &[Four]),
            (28.4, &[Four, Four]),
            (100.0, &[Four, Four]),
            (114.0, &[Four, Four, Four]),
            (1024.0, &[Four, Four, Four, Four]),
        ] {
            assert_eq!(AxisBlur::gaussian(sigma).levels(), levels, "sigma={sigma}");
        }
        // The smallest plane has a small radius for every σ.
        for sigma in (1..=102_400).map(|i| f64::from(i) / 100.0) {
            let axis = AxisBlur::gaussian(sigma);
            assert!(axis.taps.radius() <= 31 && axis.levels().len() <= 4, "sigma={sigma}: {axis:?}");
        }
    }

    /// The variances of all steps add up to that of the Gaussian.
    #[test]
    fn variances_add_up() {
        for sigma in [3.5, 5.0, 6.9, 7.0, 12.0, 20.0, 63.0, 100.0, 1024.0] {
            let axis = AxisBlur::gaussian(sigma);
            let variance = |taps: &Taps| {
                let second = |i: usize| 2.0 * f64::from(taps.at(i)) * (i * i) as f64;
                (1..=taps.radius()).map(second).sum::<f64>() / f64::from(TAP_SUM)
            };
            let (mut scale, mut sum) = (1.0, 0.0);
            for factor in axis.levels() {
                sum += 2.0 * variance(&factor.decimation_taps()) * scale * scale;
                scale *= f64::from(factor.get());
            }
            sum += variance(&axis.taps) * scale * scale;
            assert!((sum.sqrt() / sigma - 1.0).abs() < 2e-3, "sigma={sigma}: {}", sum.sqrt());
        }
    }

    #[test]
    fn the_outermost_sample_sees_only_the_edge() {
        for factor in [Two, Four] {
            let (s, radius) = (factor.get(), factor.decimation_taps().radius() as u32);
            assert_eq!(radius, LEVEL_RADIUS * s);
            for count in 1..40 {
                let last = i64::from(factor.decimated(count)) - 1;
                let centre = |i: i64| (i - i64::from(MARGIN)) * i64::from(s);
                assert!(centre(0) + i64::from(radius) <= 0, "{factor:?}, {count}");
                assert!(centre(last) - i64::from(radius) >= i64::from(count) - 1, "{factor:?}, {count}");
                // The interpolation of the last sample does not read beyond the margin.
                assert!(i64::from((count - 1) / s) + PHASE_TAPS as i64 - 1 <= last, "{factor:?}, {count}");
            }
        }
        assert_eq!((One.decimated(5), One.decimation_taps().at(0)), (5, TAP_SUM));
    }

    #[test]
    fn interpolation_taps_sum_to_one_and_mirror() {
        for factor in [Two, Four] {
            for phase in 0..factor.get() {
                let taps = factor.interpolation_taps(phase);
                assert_eq!(taps.iter().sum::<u32>(), TAP_SUM, "{factor:?}, phase {phase}");
                // Seen from the next sample, phase s - p is phase p mirrored, except where remainders are equal.
                let mirrored = factor.interpolation_taps((factor.get() - phase) % factor.get());
                for k in usize::from(phase > 0)..PHASE_TAPS {
                    let other = mirrored[PHASE_TAPS - 1 - k + usize::from(phase > 0)];
                    assert!(taps[k].abs_diff(other) <= 1, "{factor:?}, phase {phase}, tap {k}");
                }
            }
        }
    }
}
