// SPDX-License-Identifier: MPL-2.0
//! Filter design: computes integer taps of a Gaussian.
//!
//! This is the only place where a symmetric kernel is quantised. Backends receive [`Taps`], never σ.

/// The exact sum of the taps of a kernel. Taps are Q16 fixed-point numbers.
pub const TAP_SUM: u32 = 1 << 16;

/// The taps of one axis: symmetric, non-negative Q16 weights that do not increase with the distance from the centre and
/// sum to [`TAP_SUM`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taps {
    /// The centre tap, followed by the taps on one side of it. The taps on the other side are equal.
    half: Vec<u32>,
}

impl Taps {
    /// The values exp(-i²/2σ²) for i = -radius..=radius, normalised and quantised to Q16.
    ///
    /// Quantisation uses the largest-remainder method over symmetric pairs. Every tap is rounded down; then the pairs with the
    /// largest remainders are rounded up until the sum of the tails is nearest to its exact value. The centre tap gets the rest
    /// of [`TAP_SUM`], which is less than two units from its exact value. If each tap were rounded independently, the centre
    /// would absorb the sum of hundreds of rounding errors. Taps at the ends that are quantised to 0 are removed, so
    /// [`Taps::radius`] may be less than `radius`.
    pub(super) fn gaussian(sigma: f64, radius: usize) -> Self {
        let mut exact: Vec<f64> = (0..=radius)
            .map(|i| match i {
                0 => 1.0,
                _ => gaussian(i as f64 / sigma),
            })
            .collect();
        let sum = exact[0] + 2.0 * exact[1..].iter().sum::<f64>();
        for weight in &mut exact {
            *weight *= f64::from(TAP_SUM) / sum;
        }

        let mut half: Vec<u32> = exact.iter().map(|weight| weight.floor() as u32).collect();
        let remainder = |i: usize| exact[i].fract();
        let by_remainder = largest_remainder(&exact, 1..=radius);
        let rounded_up = (1..=radius).map(remainder).sum::<f64>().round() as usize;
        for &i in &by_remainder[..rounded_up] {
            half[i] += 1;
        }
        let centre = |half: &[u32]| TAP_SUM - 2 * half[1..].iter().sum::<u32>();
        half[0] = centre(&half);
        // The centre tap is always even, because the other taps come in pairs. A wide Gaussian is so flat around the centre that
        // this even value can be one less than the neighbouring tap. Rounding up one pair fewer adds two to the centre.
        if radius > 0 && half[0] < half[1] {
            half[by_remainder[rounded_up - 1]] -= 1;
            half[0] = centre(&half);
        }
        let radius = half.iter().rposition(|&tap| tap != 0).unwrap_or(0);
        half.truncate(radius + 1);
        Self { half }
    }

    /// The single tap [`TAP_SUM`], which leaves samples unchanged.
    pub fn identity() -> Self {
        Self { half: vec![TAP_SUM] }
    }

    /// Number of taps on each side of the centre.
    pub fn radius(&self) -> usize {
        self.half.len() - 1
    }

    /// The tap at distance `i` from the centre, on either side; 0 beyond the radius.
    pub fn at(&self, i: usize) -> u32 {
        self.half.get(i).copied().unwrap_or(0)
    }
}

/// The value exp(-x²/2). It is computed by libm, because the last bits of the platform's `exp` differ between C libraries, and
/// these bits can decide which taps are rounded up.
pub(super) fn gaussian(x: f64) -> f64 {
    libm::exp(-0.5 * (x * x))
}

/// The indices of `range`, ordered by descending fractional part of `exact`. Indices with equal parts keep their order.
pub(super) fn largest_remainder(exact: &[f64], range: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut indices: Vec<usize> = range.collect();
    indices.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
    indices
}

#[cfg(test)]
mod tests {
    use super::super::wide::{AxisBlur, Factor};
    use super::*;

    /// The values of sigma under test, denser where the kernel changes more.
    fn sigmas() -> impl Iterator<Item = f64> {
        let fine = (1..100).map(|i| f64::from(i) * 0.03);
        let coarse = (1..=400).map(|i| f64::from(i) * 0.25);
        fine.chain(coarse).chain([1e-300, 1e-9, 1e-3, 1.5, 99.999])
    }

    fn kernel_sizes() -> impl Iterator<Item = u32> {
        (1..=801).step_by(2).filter(|k| k % 50 == 1 || *k < 40).chain([0])
    }

    /// The taps of the direct form, even if σ alone would select the wide form.
    fn direct(sigma: f64, size: u32) -> Taps {
        Taps::gaussian(sigma, requested_radius(sigma, size) as usize)
    }

    fn all_taps() -> impl Iterator<Item = (f64, u32, Taps)> {
        sigmas().flat_map(|sigma| kernel_sizes().map(move |size| (sigma, size, direct(sigma, size))))
    }

    /// The weights before quantisation, in units of 2⁻¹⁶, computed independently of the code under test.
    fn exact(sigma: f64, radius: i32) -> Vec<f64> {
        let weight = |i: i32| (-(f64::from(i) / sigma).powi(2) / 2.0).exp();
        let sum: f64 = (-radius..=radius).map(weight).sum();
        (0..=radius).map(|i| 65536.0 * weight(i) / sum).collect()
    }

    fn requested_radius(sigma: f64, size: u32) -> i32 {
        if size == 0 { (4.0 * sigma + 0.5).floor() as i32 } else { (size as i32 - 1) / 2 }
    }

    /// Taps must be the same on every machine, because the bytes of the results depend on them.
    #[test]
    fn taps_are_those_of_every_machine() {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |tap: u32| {
            for byte in tap.to_le_bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        };
        for (.., taps) in all_taps() {
            (0..=taps.radius()).for_each(|i| add(taps.at(i)));
        }
        for factor in [Factor::Two, Factor::Four] {
            let taps = factor.decimation_taps();
            (0..=taps.radius()).for_each(|i| add(taps.at(i)));
            (0..factor.get()).flat_map(|phase| factor.interpolation_taps(phase)).for_each(&mut add);
        }
        assert_eq!(hash, 0x4ed6_3d38_ce13_2e36, "{hash:#x}");
    }

    #[test]
    fn taps_sum_to_one() {
        for (sigma, size, taps) in all_taps() {
            let sum = taps.at(0) + 2 * (1..=taps.radius()).map(|i| taps.at(i)).sum::<u32>();
            assert_eq!(sum, TAP_SUM, "sigma={sigma} kernel-size={size}");
        }
    }

    #[test]
    fn taps_do_not_increase_with_distance() {
        for (sigma, size, taps) in all_taps() {
            for i in 1..=taps.radius() {
                assert!(taps.at(i) <= taps.at(i - 1), "sigma={sigma} kernel-size={size}: tap {i} rises");
            }
            assert!(taps.at(taps.radius()) > 0, "sigma={sigma} kernel-size={size}: the last tap is 0");
        }
    }

    #[test]
    fn taps_are_within_one_of_the_gaussian_and_the_centre_within_two() {
        for (sigma, size, taps) in all_taps() {
            let exact = exact(sigma, requested_radius(sigma, size));
            for (i, expected) in exact.iter().enumerate().skip(1) {
                assert!(
                    (f64::from(taps.at(i)) - expected).abs() < 1.0 + 1e-6,
                    "sigma={sigma} kernel-size={size} tap {i}"
                );
            }
            assert!((f64::from(taps.at(0)) - exact[0]).abs() < 3.0, "sigma={sigma} kernel-size={size}: centre");
        }
    }

    /// The response to a step edge is the running sum of the taps. It must stay near that of the exact Gaussian for
    /// every radius.
    #[test]
    fn tail_errors_do_not_accumulate() {
        for sigma in [0.8, 1.5, 5.0, 10.0, 20.0, 40.0] {
            let taps = direct(sigma, 0);
            let exact = exact(sigma, requested_radius(sigma, 0));
            let mut error = 0.0_f64;
            for (i, expected) in exact.iter().enumerate().skip(1) {
                error += f64::from(taps.at(i)) - expected;
                assert!(error.abs() < 6.0, "sigma={sigma}: the sum up to tap {i} is off by {error}");
            }
        }
    }

    #[test]
    fn seven_taps_match_numpy() {
        let taps = direct(1.5, 7);
        let seven: Vec<u32> = (0..4).map(|i| taps.at(i)).collect();
        // numpy: w = exp(-arange(4)**2 / 4.5); w / (w[0] + 2 * w[1:].sum()) * 65536
        assert_eq!(seven, [17740, 14204, 7293, 2401]);
    }

    #[test]
    fn radius_matches_scipy() {
        for sigma in [0.1, 0.124, 0.125, 0.5, 1.5, 3.49] {
            assert_eq!(AxisBlur::gaussian(sigma).taps, direct(sigma, 0), "sigma={sigma}");
        }
    }
}
