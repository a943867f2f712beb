// SPDX-License-Identifier: MPL-2.0
//! The parameters of a blur, and the filter that follows from them.

use super::taps::Taps;
use super::wide::AxisBlur;

/// Largest standard deviation, in pixels.
pub const SIGMA_MAX: f64 = 1024.0;
/// Largest kernel size, in taps per axis: 2 × 4σ + 1 for σ = 100.
pub const KERNEL_SIZE_MAX: u32 = 801;
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
    /// A σ of 0: frames are copied.
    pub const PASSTHROUGH: Self = Self { sigma: 0.0, kernel_size: 0 };

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

    /// The standard deviation, in pixels.
    pub fn sigma(&self) -> f64 {
        self.sigma
    }

    /// Taps per axis; 0 if it follows sigma.
    pub fn kernel_size(&self) -> u32 {
        self.kernel_size
    }

    /// Whether frames pass through unchanged, because sigma is 0.
    pub fn is_passthrough(&self) -> bool {
        self.sigma == 0.0
    }

    /// The weight of the centre tap of an axis, from 0 to 1. Returns 0 for all weights that are far from 1. `scale` is that of
    /// [`BlurParams::axis`].
    pub fn centre(&self, scale: f64) -> f64 {
        /// From this σ on, in samples, at least a fifth of the weight is outside of the centre tap.
        const SPREADS: f64 = 0.5;
        let sigma = self.sigma * scale;
        let has_neighbours = self.kernel_size == 0 || self.fixed_radius(scale) > 0;
        match has_neighbours && sigma > 0.0 {
            false => 1.0,
            true if sigma >= SPREADS => 0.0,
            true => f64::from(self.axis(scale).taps.at(0)) / 65536.0,
        }
    }

    /// Whether `kernel-size` is much too small for sigma: the radius is less than 1.5 σ, so more than an eighth of the Gaussian
    /// is cut off.
    pub fn is_cut_off(&self) -> bool {
        self.kernel_size > 0 && f64::from((self.kernel_size - 1) / 2) < 1.5 * self.sigma
    }

    /// How to blur an axis of a plane whose samples are `1/scale` pixels of the frame apart on this axis. `scale` is 1 for luma
    /// and RGB, and 0.5 for a chroma axis that is subsampled by two. So the blur has the same width in the frame in all planes
    /// and on both axes.
    ///
    /// If `kernel-size` is set, the form is direct, and the radius is (kernel-size - 1) / 2 times `scale`, rounded half up.
    /// Otherwise the scaled σ decides: from [`super::WIDE_SIGMA`] on, the form is wide. Below, the form is direct with a radius
    /// of int(4σ + 0.5), as in SciPy and CuPy.
    pub fn axis(&self, scale: f64) -> AxisBlur {
        debug_assert!(scale > 0.0 && scale <= 1.0, "axis scale {scale}");
        let sigma = self.sigma * scale;
        match self.kernel_size {
            0 => AxisBlur::gaussian(sigma),
            _ => AxisBlur::direct(Taps::gaussian(sigma, self.fixed_radius(scale))),
        }
    }

    /// The radius that `kernel-size` sets. `scale` is that of [`BlurParams::axis`].
    fn fixed_radius(&self, scale: f64) -> usize {
        (f64::from((self.kernel_size.max(1) - 1) / 2) * scale + 0.5) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_axis_uses_the_scaled_sigma() {
        for sigma in [0.7, 3.0, 20.0] {
            let half = BlurParams::new(sigma, 0).unwrap().axis(0.5);
            assert_eq!(half, BlurParams::new(sigma / 2.0, 0).unwrap().axis(1.0));
        }
        // kernel-size 7 has a radius of 3 pixels: 1.5 samples at half scale, rounded to 2.
        assert_eq!(BlurParams::new(9.0, 7).unwrap().axis(0.5).taps.radius(), 2);
    }

    #[test]
    fn centre_is_the_share_of_the_centre_tap() {
        for size in [0, 1, 3, 801] {
            for sigma in (1..200).map(|i| f64::from(i) / 100.0) {
                for scale in [0.25, 0.5, 1.0] {
                    let params = BlurParams::new(sigma, size).unwrap();
                    let (centre, axis) = (params.centre(scale), params.axis(scale));
                    let expected = f64::from(axis.taps.at(0)) / 65536.0;
                    assert!(centre == expected || centre == 0.0 && expected < 0.8, "sigma={sigma} {size} {scale}");
                }
            }
        }
        assert_eq!([0.0, 40.0].map(|sigma| BlurParams::new(sigma, 0).unwrap().centre(1.0)), [1.0, 0.0]);
    }

    #[test]
    fn small_kernels_cut_the_gaussian_off() {
        for (sigma, size, is_cut_off) in
            [(10.0, 0, false), (1.5, 7, false), (2.0, 7, false), (2.1, 7, true), (10.0, 9, true)]
        {
            assert_eq!(BlurParams::new(sigma, size).unwrap().is_cut_off(), is_cut_off, "sigma={sigma} {size}");
        }
    }

    #[test]
    fn values_out_of_range_return_an_error_that_names_them() {
        for sigma in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.001, 1024.001] {
            let message = BlurParams::new(sigma, 0).unwrap_err().to_string();
            assert!(message.contains(&format!("sigma={sigma}")) && message.contains("0 to 1024"), "{message}");
        }
        for size in [2, 4, 800, 802, 803, u32::MAX] {
            let message = BlurParams::new(1.0, size).unwrap_err().to_string();
            assert!(message.contains(&format!("kernel-size={size}")) && message.contains("1 to 801"), "{message}");
        }
        assert!(BlurParams::new(0.0, 0).unwrap().is_passthrough());
        assert!(!BlurParams::new(1e-9, 0).unwrap().is_passthrough());
    }
}
