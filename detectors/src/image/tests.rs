//! Compares operations on small pictures with naive computations in 64-bit floats.

use super::*;

/// Pseudo-random numbers from 0 to 1.
fn random(size: [usize; 2], seed: u32) -> Image {
    let mut state = seed;
    Image::new(size, 0.).map_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32
    })
}

impl Image {
    fn map_with(mut self, mut value: impl FnMut() -> f32) -> Self {
        self.values.fill_with(&mut value);
        self
    }

    /// The value at a place. Beyond the edges, the outermost samples repeat.
    fn clamped(&self, x: isize, y: isize) -> f64 {
        let [x, y] =
            [(x, self.width), (y, self.height)].map(|(place, side)| place.clamp(0, side as isize - 1) as usize);
        f64::from(self.values[y * self.width + x])
    }
}

/// A picture of this size, in which each sample is computed from the samples within `REACH` of it.
fn naive(size: [usize; 2], value: impl Fn(isize, isize) -> f64) -> Vec<f64> {
    let [width, height] = size.map(|side| side as isize);
    (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| value(x, y)).collect()
}

fn around(x: isize, y: isize) -> impl Iterator<Item = (isize, isize)> {
    let reach = REACH as isize;
    (y - reach..=y + reach).flat_map(move |y| (x - reach..=x + reach).map(move |x| (x, y)))
}

#[track_caller]
fn assert_near(found: &Image, expected: &[f64], most: f64, what: &str) {
    assert_eq!(found.values.len(), expected.len(), "{what}");
    for (place, (found, expected)) in found.values.iter().zip(expected).enumerate() {
        assert!((f64::from(*found) - expected).abs() <= most, "{what}, {place}: {found}, not {expected}");
    }
}

/// The values of a picture in another size, bilinear.
fn naive_scaled(values: &[f64], given: [usize; 2], size: [usize; 2]) -> Vec<f64> {
    let place = |i: isize, axis: usize| {
        let place =
            ((i as f64 + 0.5) * given[axis] as f64 / size[axis] as f64 - 0.5).clamp(0., given[axis] as f64 - 1.);
        (place as usize, (place as usize + 1).min(given[axis] - 1), place.fract())
    };
    naive(size, |x, y| {
        let ((left, right, along), (above, below, down)) = (place(x, 0), place(y, 1));
        let row = |y: usize| values[y * given[0] + left] * (1. - along) + values[y * given[0] + right] * along;
        row(above) * (1. - down) + row(below) * down
    })
}

fn wide(image: &Image) -> Vec<f64> {
    image.values.iter().map(|value| f64::from(*value)).collect()
}

const SIZES: [[usize; 2]; 8] = [[1, 1], [2, 1], [1, 2], [2, 2], [3, 7], [10, 4], [16, 31], [33, 9]];

#[test]
fn pictures_are_scaled_from_centre_to_centre() {
    for given in SIZES {
        let image = random(given, 1);
        for size in SIZES {
            let (scaled, what) = (image.scaled(size), format!("{given:?} to {size:?}"));
            assert_eq!(scaled.size(), size);
            assert_near(&scaled, &naive_scaled(&wide(&image), given, size), 4e-6, &what);
        }
        assert_eq!(image.scaled(given), image);
    }
}

#[test]
fn the_largest_of_five_by_five_is_found() {
    for size in SIZES {
        let image = random(size, 2);
        let expected = naive(size, |x, y| around(x, y).map(|(x, y)| image.clamped(x, y)).fold(0., f64::max));
        assert_near(&image.largest(), &expected, 0., &format!("{size:?}"));
    }
}

/// One `Means` is used for all sizes, because it reuses its buffers.
#[test]
fn means_repeat_the_edges() {
    let mut means = Means::default();
    for size in SIZES.iter().chain(SIZES.iter().rev()) {
        let (image, other) = (random(*size, 3), random(*size, 4));
        let mean =
            |value: &dyn Fn(isize, isize) -> f64, x, y| around(x, y).map(|(x, y)| value(x, y)).sum::<f64>() / 25.;
        let expected = naive(*size, |x, y| mean(&|x, y| image.clamped(x, y), x, y));
        assert_near(&means.of(&image), &expected, 1e-6, &format!("{size:?}"));
        let expected = naive(*size, |x, y| mean(&|x, y| image.clamped(x, y) * other.clamped(x, y), x, y));
        assert_near(&means.of_product(&image, &other), &expected, 1e-6, &format!("{size:?}, product"));
    }
}

/// Solves linear equations by Gaussian elimination. Each row ends with the right-hand side.
fn solved(mut rows: [[f64; 5]; 4]) -> [f64; 4] {
    for i in 0..4 {
        let pivot = (i..4).max_by(|a, b| rows[*a][i].abs().total_cmp(&rows[*b][i].abs())).unwrap();
        rows.swap(i, pivot);
        let row = rows[i];
        for other in (0..4).filter(|other| *other != i) {
            let factor = rows[other][i] / row[i];
            (0..5).for_each(|k| rows[other][k] -= factor * row[k]);
        }
    }
    std::array::from_fn(|i| rows[i][4] / rows[i][i])
}

/// The guided filter by its definition. For each window, it is the linear function of the colours with the least sum of squared
/// errors, plus the squares of its factors times the noise. Each sample gets the mean function of all windows that contain it.
fn naive_fitted(values: &Image, guide: &[Image; 3], coarse: &[Image; 3]) -> Vec<f64> {
    let size = values.size();
    let mut values = wide(values);
    let place = |x: isize, y: isize| {
        let [x, y] = [(x, size[0]), (y, size[1])].map(|(place, side)| place.clamp(0, side as isize - 1) as usize);
        y * size[0] + x
    };
    let mut means: [Vec<f64>; 4] = Default::default();
    for pass in 0..PASSES {
        if pass > 0 {
            for (i, value) in values.iter_mut().enumerate() {
                let linear = (0..3).map(|c| means[c][i] * f64::from(coarse[c].values[i])).sum::<f64>() + means[3][i];
                *value = ((linear - 0.5) * f64::from(STEEPER) + 0.5).clamp(0., 1.);
            }
        }
        let mut functions = Vec::new();
        for (x, y) in (0..size[1] as isize).flat_map(|y| (0..size[0] as isize).map(move |x| (x, y))) {
            let mut rows = [[0.; 5]; 4];
            for (x, y) in around(x, y) {
                let colour = |c: usize| if c < 3 { coarse[c].clamped(x, y) } else { 1. };
                for (i, k) in (0..4).flat_map(|i| (0..4).map(move |k| (i, k))) {
                    rows[i][k] += colour(i) * colour(k);
                }
                (0..4).for_each(|i| rows[i][4] += colour(i) * values[place(x, y)]);
            }
            (0..3).for_each(|i| rows[i][i] += 25. * f64::from(NOISE));
            functions.push(solved(rows));
        }
        means = std::array::from_fn(|c| {
            naive(size, |x, y| around(x, y).map(|(x, y)| functions[place(x, y)][c]).sum::<f64>() / 25.)
        });
    }
    let fine = means.map(|mean| naive_scaled(&mean, size, guide[0].size()));
    (0..fine[3].len())
        .map(|i| (0..3).map(|c| fine[c][i] * f64::from(guide[c].values[i])).sum::<f64>() + fine[3][i])
        .collect()
}

#[test]
fn values_are_fitted_to_the_guide() {
    for (number, size) in [[16, 12], [7, 5], [2, 2]].into_iter().enumerate() {
        // An edge with the noise of a camera.
        let scene = |colour: usize| {
            let noise = random(size.map(|side| 2 * side), (10 * number + colour) as u32);
            let mut plane = noise.map(|noise| 0.2 + 0.3 * noise);
            for y in 0..2 * size[1] {
                plane.row_mut(y)[..size[0]].iter_mut().for_each(|value| *value += 0.1 * (1 + colour) as f32);
            }
            plane
        };
        let guide = [0, 1, 2].map(scene);
        let coarse = guide.each_ref().map(|plane| plane.scaled(size));
        let values = random(size, 99);
        let found = fitted(&values, &guide, &coarse);
        assert_eq!(found.size(), guide[0].size());
        assert_near(&found, &naive_fitted(&values, &guide, &coarse), 2e-3, &format!("{size:?}"));
    }
}

/// If the guide has no edge, values are not moved to one: with a guide of one colour, the result is the means.
#[test]
fn one_colour_leaves_means() {
    let guide = [0.1, 0.5, 0.9].map(|value| Image::new([20, 16], value));
    let coarse = guide.each_ref().map(|plane| plane.scaled([10, 8]));
    for value in [0., 1.] {
        let found = fitted(&Image::new([10, 8], value), &guide, &coarse);
        assert_near(&found, &vec![f64::from(value); 320], 1e-4, "one colour");
    }
}
