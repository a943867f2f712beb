// SPDX-License-Identifier: MPL-2.0
//! How strongly an object is blurred.

use crate::filter::SIGMA_MAX;

/// The steps of [`sigma`] within one octave: 2^(i/4).
const GRID_STEPS: [f64; 4] = [1.0, 1.189_207_115_002_721, std::f64::consts::SQRT_2, 1.681_792_830_507_429];

/// The standard deviation that covers an object: `strength` times its shorter side, at least `least`, at most
/// [`SIGMA_MAX`].
///
/// What follows the object is rounded up to the next 2^(i/4): a detector's box changes a little in every frame, and the
/// blur would pump with it. `least` is constant and is not rounded, so that a region that it covers has the
/// bytes of the full-frame blur.
pub fn sigma(least: f64, strength: f64, short_side: f64) -> f64 {
    let wanted = strength * short_side;
    if wanted <= least {
        return least;
    }
    // The size of what is not a number is not known.
    if wanted >= SIGMA_MAX || wanted.is_nan() {
        return SIGMA_MAX;
    }
    // Products with powers of two are exact, so a value on the grid stays where it is.
    let mut octave = SIGMA_MAX;
    while octave > wanted {
        octave /= 2.0;
    }
    GRID_STEPS.iter().map(|step| step * octave).find(|step| *step >= wanted).unwrap_or(octave * 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strength_follows_the_object_in_steps() {
        assert_eq!(sigma(1.5, 0.0, 400.0), 1.5, "strength 0 is sigma alone");
        assert_eq!(sigma(30.0, 0.25, 100.0), 30.0, "a larger sigma is not rounded");
        assert_eq!(sigma(1.5, 0.25, 64.0), 16.0, "on the grid");
        assert_eq!(sigma(1.5, 0.25, 64.1), 16.0 * GRID_STEPS[1]);
        assert_eq!(sigma(0.0, 0.25, 0.01), 2_f64.powi(-9) * GRID_STEPS[2]);
        assert_eq!(sigma(1.5, 2.0, 1e12), SIGMA_MAX);
        assert_eq!(sigma(1.5, 2.0, f64::INFINITY), SIGMA_MAX);
        assert_eq!(sigma(1.5, f64::NAN, 100.0), SIGMA_MAX);
        let mut last = 0.0;
        for i in 1..200_000 {
            let wanted = f64::from(i) / 100.0;
            let found = sigma(0.0, 1.0, wanted);
            assert!(found >= last && found >= wanted.min(SIGMA_MAX), "{wanted} {found}");
            assert!(found < wanted * GRID_STEPS[1] + 1e-9, "{wanted} {found}");
            last = found;
        }
        // A side that trembles by 10 % has at most two values.
        let mut values: Vec<f64> = (0..100).map(|i| sigma(1.5, 0.25, 200.0 + f64::from(i) / 5.0)).collect();
        values.dedup();
        assert!(values.len() <= 2, "{values:?}");
    }
}
