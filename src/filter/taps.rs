// SPDX-License-Identifier: MPL-2.0
//! Filter design: computes integer taps from `sigma` and `kernel-size`.
//!
//! This is the only place where a weight of the Gaussian is computed. Backends receive [`Taps`], never σ.

/// Largest standard deviation, in pixels.
pub const SIGMA_MAX: f64 = 100.0;
/// Largest kernel size, in taps per axis: the size that follows from [`SIGMA_MAX`], 2 × 4σ + 1.
pub const KERNEL_SIZE_MAX: u32 = 801;
/// The sum of the taps of a kernel, exactly: taps are Q16 fixed-point numbers.
pub const TAP_SUM: u32 = 1 << 16;

/// A `sigma` or `kernel-size` outside its range.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ParamError {
    /// `sigma` is NaN, infinite, negative or above [`SIGMA_MAX`].
    #[error("sigma={0} cannot be used: it must be a number from 0 to {SIGMA_MAX}")]
    Sigma(f64),
    /// `kernel-size` is even and not 0, or above [`KERNEL_SIZE_MAX`].
    #[error("kernel-size={0} cannot be used: it must be 0 (follow sigma) or an odd number from 1 to {KERNEL_SIZE_MAX}")]
    KernelSize(u32),
}

/// A standard deviation and a kernel size, both in range: [`BlurParams::new`] checks them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlurParams {
    sigma: f64,
    kernel_size: u32,
}

impl BlurParams {
    /// Checks `sigma`, in pixels, 0 to [`SIGMA_MAX`], and `kernel_size`, in taps per axis: 0 (follow sigma) or an odd
    /// number up to [`KERNEL_SIZE_MAX`]. Returns an error that names the value out of range.
    pub fn new(sigma: f64, kernel_size: u32) -> Result<Self, ParamError> {
        if !(0.0..=SIGMA_MAX).contains(&sigma) {
            return Err(ParamError::Sigma(sigma));
        }
        if kernel_size > KERNEL_SIZE_MAX || (kernel_size != 0 && kernel_size.is_multiple_of(2)) {
            return Err(ParamError::KernelSize(kernel_size));
        }
        Ok(Self { sigma, kernel_size })
    }

    /// Whether frames pass through unchanged, because sigma is 0.
    pub fn is_passthrough(&self) -> bool {
        self.sigma == 0.0
    }

    /// The taps for one axis of a plane whose samples are `1/scale` pixels of the frame apart on that axis. `scale` is
    /// 1 for luma and RGB, and 0.5 for a chroma axis subsampled by two, so that the blur has the same width in the
    /// frame in all planes and on both axes.
    ///
    /// The radius is int(4σ + 0.5) with the scaled σ, as in SciPy and CuPy. If `kernel-size` is set, the radius is
    /// (kernel-size - 1) / 2 times `scale`, rounded half up.
    pub fn taps(&self, scale: f64) -> Taps {
        debug_assert!(scale > 0.0 && scale <= 1.0, "axis scale {scale}");
        let sigma = self.sigma * scale;
        let radius = match self.kernel_size {
            0 => (4.0 * sigma + 0.5) as usize,
            size => (f64::from((size - 1) / 2) * scale + 0.5) as usize,
        };
        Taps::gaussian(sigma, radius)
    }
}

/// The taps of one axis: symmetric, non-negative Q16 weights that do not increase with the distance from the centre and
/// sum to [`TAP_SUM`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taps {
    /// The centre tap and the taps to one side of it; those to the other side are equal.
    half: Vec<u32>,
}

impl Taps {
    /// exp(-i²/2σ²) for i = -radius..=radius, normalised and quantised to Q16.
    ///
    /// Quantisation uses the largest-remainder method over symmetric pairs: every tap is rounded down, then the pairs
    /// with the largest remainders are rounded up until the sum of the tails is nearest to its exact value. The centre
    /// tap is the remainder to [`TAP_SUM`], less than two units from its exact value. If each tap were rounded by
    /// itself, the centre would absorb the sum of hundreds of rounding errors. Taps at the ends that are quantised to 0
    /// are removed, so [`Taps::radius`] may be less than `radius`.
    fn gaussian(sigma: f64, radius: usize) -> Self {
        let mut exact: Vec<f64> = (0..=radius)
            .map(|i| match i {
                0 => 1.0,
                _ => (-0.5 * (i as f64 / sigma).powi(2)).exp(),
            })
            .collect();
        let sum = exact[0] + 2.0 * exact[1..].iter().sum::<f64>();
        for weight in &mut exact {
            *weight *= f64::from(TAP_SUM) / sum;
        }

        let mut half: Vec<u32> = exact.iter().map(|weight| weight.floor() as u32).collect();
        let remainder = |i: usize| exact[i].fract();
        let mut by_remainder: Vec<usize> = (1..=radius).collect();
        by_remainder.sort_by(|&a, &b| remainder(b).total_cmp(&remainder(a)).then(a.cmp(&b)));
        let rounded_up = (1..=radius).map(remainder).sum::<f64>().round() as usize;
        for &i in &by_remainder[..rounded_up] {
            half[i] += 1;
        }
        let centre = |half: &[u32]| TAP_SUM - 2 * half[1..].iter().sum::<u32>();
        half[0] = centre(&half);
        // The centre is always even, because the other taps come in pairs. A wide Gaussian is so flat around the centre
        // that the even value can be one less than the neighbouring tap; rounding one pair fewer up adds two to it.
        if radius > 0 && half[0] < half[1] {
            half[by_remainder[rounded_up - 1]] -= 1;
            half[0] = centre(&half);
        }
        let radius = half.iter().rposition(|&tap| tap != 0).unwrap_or(0);
        half.truncate(radius + 1);
        Self { half }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of sigma under test, denser where the kernel changes more.
    fn sigmas() -> impl Iterator<Item = f64> {
        let fine = (1..100).map(|i| f64::from(i) * 0.03);
        let coarse = (1..=400).map(|i| f64::from(i) * 0.25);
        fine.chain(coarse).chain([1e-300, 1e-9, 1e-3, 1.5, 99.999, SIGMA_MAX])
    }

    fn kernel_sizes() -> impl Iterator<Item = u32> {
        (1..=KERNEL_SIZE_MAX).step_by(2).filter(|k| k % 50 == 1 || *k < 40).chain([0])
    }

    fn all_taps() -> impl Iterator<Item = (f64, u32, Taps)> {
        sigmas().flat_map(|sigma| {
            kernel_sizes().map(move |size| (sigma, size, BlurParams::new(sigma, size).unwrap().taps(1.0)))
        })
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
            let taps = BlurParams::new(sigma, 0).unwrap().taps(1.0);
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
        let taps = BlurParams::new(1.5, 7).unwrap().taps(1.0);
        let seven: Vec<u32> = (0..4).map(|i| taps.at(i)).collect();
        // numpy: w = exp(-arange(4)**2 / 4.5); w / (w[0] + 2 * w[1:].sum()) * 65536
        assert_eq!(seven, [17740, 14204, 7293, 2401]);
    }

    #[test]
    fn radius_matches_scipy() {
        for (sigma, radius) in [(0.1, 0), (0.124, 0), (0.125, 1), (0.5, 2), (1.5, 6), (5.0, 20), (12.4, 50)] {
            assert_eq!(requested_radius(sigma, 0), radius, "sigma={sigma}");
            assert!(BlurParams::new(sigma, 0).unwrap().taps(1.0).radius() <= radius as usize, "sigma={sigma}");
        }
        assert_eq!(BlurParams::new(5.0, 0).unwrap().taps(1.0).radius(), 20);
    }

    #[test]
    fn scaled_axis_uses_the_scaled_sigma() {
        for sigma in [0.7, 3.0, 20.0] {
            let half = BlurParams::new(sigma, 0).unwrap().taps(0.5);
            assert_eq!(half, BlurParams::new(sigma / 2.0, 0).unwrap().taps(1.0));
        }
        // kernel-size 7 has a radius of 3 pixels: 1.5 samples at half scale, rounded to 2.
        assert_eq!(BlurParams::new(9.0, 7).unwrap().taps(0.5).radius(), 2);
    }

    #[test]
    fn values_out_of_range_return_an_error_that_names_them() {
        for sigma in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.001, 100.001] {
            let message = BlurParams::new(sigma, 0).unwrap_err().to_string();
            assert!(message.contains(&format!("sigma={sigma}")) && message.contains("0 to 100"), "{message}");
        }
        for size in [2, 4, 800, 802, 803, u32::MAX] {
            let message = BlurParams::new(1.0, size).unwrap_err().to_string();
            assert!(message.contains(&format!("kernel-size={size}")) && message.contains("1 to 801"), "{message}");
        }
        assert!(BlurParams::new(0.0, 0).unwrap().is_passthrough());
        assert!(!BlurParams::new(1e-9, 0).unwrap().is_passthrough());
    }
}
