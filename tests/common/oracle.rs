//! The oracle: the arithmetic contract in u64 and the Gaussian in float64, both simple enough to check by reading.

/// One plane of samples, 8 to 16 bits each, without padding. `samples[(y * width + x) * channels + c]`.
#[derive(Clone, PartialEq)]
pub struct Image {
    pub width: usize,
    pub height: usize,
    pub channels: usize,
    pub depth: u32,
    pub samples: Vec<u16>,
}

impl Image {
    /// The sample at a pixel; beyond the edges, the edge sample.
    fn at(&self, x: isize, y: isize, c: usize) -> u16 {
        let x = x.clamp(0, self.width as isize - 1) as usize;
        let y = y.clamp(0, self.height as isize - 1) as usize;
        self.samples[(y * self.width + x) * self.channels + c]
    }

    /// The arithmetic contract: Q16 taps (`taps[i]` for distance i), rows to 16 bits, then columns.
    pub fn blurred(&self, row_taps: &[u32], column_taps: &[u32]) -> Self {
        let depth = self.depth;
        let wide: Vec<u64> = self.samples.iter().map(|sample| u64::from(*sample) << (16 - depth)).collect();
        let middle = along(&wide, self.width, self.channels, |row| {
            weighted_sums(row, row_taps).map(|sum| (sum + (1 << 15)) >> 16).collect()
        });
        let samples = along(&middle, self.height, self.width * self.channels, |column| {
            weighted_sums(column, column_taps).map(|sum| ((sum + (1 << (31 - depth))) >> (32 - depth)) as u16).collect()
        });
        Self { samples, ..*self }
    }

    /// The true Gaussian: float64, far enough out that the omitted weights are negligible, not rounded.
    pub fn gaussian(&self, sigma: f64) -> Vec<f64> {
        let [across, down] = [self.width, self.height].map(|count| gaussian_weights(sigma, count));
        let mean = |line: &[f64], weights: &[(usize, f64)]| weights.iter().map(|(i, weight)| weight * line[*i]).sum();
        let means = |line: &[f64], weights: &[Vec<(usize, f64)>]| weights.iter().map(|one| mean(line, one)).collect();
        let samples: Vec<f64> = self.samples.iter().copied().map(f64::from).collect();
        let middle = along(&samples, self.width, self.channels, |row| means(row, &across));
        along(&middle, self.height, self.width * self.channels, |column| means(column, &down))
    }
}

/// Applies `f` to every line of `count` samples with a distance of `step`: a row for step = channels, a column for
/// step = samples per row.
fn along<T: Copy, U: Copy + Default>(samples: &[T], count: usize, step: usize, f: impl Fn(&[T]) -> Vec<U>) -> Vec<U> {
    let mut out = vec![U::default(); samples.len()];
    for start in (0..samples.len()).filter(|i| (i / step).is_multiple_of(count)) {
        let line: Vec<T> = (0..count).map(|i| samples[start + i * step]).collect();
        for (i, made) in f(&line).into_iter().enumerate() {
            out[start + i * step] = made;
        }
    }
    out
}

/// The weighted sum around each sample of a line, `taps[i]` for distance i, the edge repeated.
fn weighted_sums(line: &[u64], taps: &[u32]) -> impl Iterator<Item = u64> {
    let (reach, last) = (taps.len() - 1, line.len() - 1);
    let taps: Vec<u64> = (0..=2 * reach).map(|i| u64::from(taps[i.abs_diff(reach)])).collect();
    let line: Vec<u64> = (0..line.len() + 2 * reach).map(|i| line[i.saturating_sub(reach).min(last)]).collect();
    (0..=last).map(move |i| line[i..].iter().zip(&taps).map(|(sample, tap)| sample * tap).sum())
}

/// For each of `count` samples in a line, the indices and weights of its weighted mean. Weights beyond an edge are
/// added to the edge sample's.
fn gaussian_weights(sigma: f64, count: usize) -> Vec<Vec<(usize, f64)>> {
    let reach = (12.0 * sigma).ceil() as isize + 1;
    let weights: Vec<f64> = (-reach..=reach).map(|i| (-0.5 * (i as f64 / sigma).powi(2)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let of_sample = |sample: usize| {
        let mut line = vec![0.0; count];
        for (i, weight) in (-reach..).zip(&weights) {
            line[(sample as isize + i).clamp(0, count as isize - 1) as usize] += weight / sum;
        }
        line.into_iter().enumerate().filter(|(_, weight)| *weight > 0.0).collect()
    };
    (0..count).map(of_sample).collect()
}

/// Row, column and channel of every sample, in memory order.
pub fn pixels(width: usize, height: usize, channels: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..height).flat_map(move |y| (0..width).flat_map(move |x| (0..channels).map(move |c| (y, x, c))))
}

impl Image {
    /// The image with the last pixel of every row repeated once.
    pub fn one_wider(&self) -> Self {
        let rows = self.samples.chunks(self.width);
        let samples = rows.flat_map(|row| row.iter().chain(row.last()).copied()).collect();
        Self { width: self.width + 1, samples, ..*self }
    }

    /// The image widened to 16 bits, samples in the upper bits.
    pub fn wide(&self) -> Self {
        let samples = self.samples.iter().map(|sample| sample << (16 - self.depth)).collect();
        Self { depth: 16, samples, ..*self }
    }

    /// Downsamples this image to the size of `other`: each pixel becomes the mean, rounded half up, of the `times[0]` ×
    /// `times[1]` pixels it covers.
    pub fn under(&self, times: [usize; 2], other: &Self) -> Self {
        let [across, down] = times;
        let mean = |(y, x, _): (usize, usize, usize)| {
            let covered = (0..across * down)
                .map(|i| self.at((x * across + i % across) as isize, (y * down + i / across) as isize, 0));
            let count = (across * down) as u32;
            ((covered.map(u32::from).sum::<u32>() + count / 2) / count) as u16
        };
        let samples = pixels(other.width, other.height, 1).map(mean).collect();
        Self { width: other.width, height: other.height, channels: 1, depth: 16, samples }
    }

    /// The premultiplied blur of docs/ARCHITECTURE.md: colour multiplied by alpha, blurred, and divided by the blurred
    /// alpha. With `is_alpha` the blurred alpha itself.
    pub fn weighted(&self, alpha: &Self, is_alpha: bool, taps: &[Vec<u32>; 2]) -> Self {
        let depth = self.depth;
        let most = (1_u64 << depth) - 1;
        let wide = self.wide();
        let products = wide.samples.iter().zip(&alpha.samples);
        let products = products.map(|(sample, alpha)| ((u64::from(*sample) * u64::from(*alpha) + 32768) >> 16) as u16);
        let product = Self { samples: products.collect(), ..wide }.blurred(&taps[0], &taps[1]);
        let alpha = alpha.blurred(&taps[0], &taps[1]);
        let samples =
            (0..self.samples.len()).map(|i| match (u64::from(alpha.samples[i]), u64::from(product.samples[i])) {
                (alpha, _) if is_alpha => ((alpha + (1 << (16 - depth)) / 2) >> (16 - depth)).min(most) as u16,
                (0, _) => self.samples[i],
                (alpha, product) => (((product << depth) + alpha / 2) / alpha).min(most) as u16,
            });
        Self { samples: samples.collect(), ..*self }
    }
}
