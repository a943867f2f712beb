//! What the blur should give, plainly enough to check by eye.

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
    /// The sample at a pixel, the edge repeated beyond it.
    fn at(&self, x: isize, y: isize, c: usize) -> u16 {
        let x = x.clamp(0, self.width as isize - 1) as usize;
        let y = y.clamp(0, self.height as isize - 1) as usize;
        self.samples[(y * self.width + x) * self.channels + c]
    }

    fn map(&self, depth: u32, f: impl Fn(isize, isize, usize) -> u16) -> Self {
        let mut samples = Vec::new();
        for y in 0..self.height as isize {
            for x in 0..self.width as isize {
                samples.extend((0..self.channels).map(|c| f(x, y, c)));
            }
        }
        Self { depth, samples, ..*self }
    }

    /// The arithmetic contract: Q16 taps (`taps[i]` for distance i), rows to 16 bits, then columns.
    pub fn blurred(&self, row_taps: &[u32], column_taps: &[u32]) -> Self {
        let depth = self.depth;
        let weigh = |taps: &[u32], sample: &dyn Fn(isize) -> u64| -> u64 {
            let reach = taps.len() as isize - 1;
            (-reach..=reach).map(|i| u64::from(taps[i.unsigned_abs()]) * sample(i)).sum()
        };
        let middle = self.map(16, |x, y, c| {
            let sum = weigh(row_taps, &|i| u64::from(self.at(x + i, y, c)) << (16 - depth));
            ((sum + (1 << 15)) >> 16) as u16
        });
        middle.map(depth, |x, y, c| {
            let sum = weigh(column_taps, &|i| u64::from(middle.at(x, y + i, c)));
            ((sum + (1 << (31 - depth))) >> (32 - depth)) as u16
        })
    }

    /// The Gaussian itself: float64, out to where the weights vanish, not rounded.
    pub fn gaussian(&self, sigma: f64) -> Vec<f64> {
        let reach = (12.0 * sigma).ceil() as isize + 1;
        let weights: Vec<f64> = (0..=reach).map(|i| (-0.5 * (i as f64 / sigma).powi(2)).exp()).collect();
        let sum = weights[0] + 2.0 * weights[1..].iter().sum::<f64>();
        let (width, height, channels) = (self.width, self.height, self.channels);
        let line = |count: usize, read: &dyn Fn(usize) -> f64, i: usize| -> f64 {
            (-reach..=reach)
                .map(|k| weights[k.unsigned_abs()] * read((i as isize + k).clamp(0, count as isize - 1) as usize))
                .sum::<f64>()
                / sum
        };
        let at = |x: usize, y: usize, c: usize| (y * width + x) * channels + c;
        let mut middle = vec![0.0; self.samples.len()];
        let mut out = vec![0.0; self.samples.len()];
        for (y, x, c) in pixels(width, height, channels) {
            middle[at(x, y, c)] = line(width, &|x| f64::from(self.samples[at(x, y, c)]), x);
        }
        for (y, x, c) in pixels(width, height, channels) {
            out[at(x, y, c)] = line(height, &|y| middle[at(x, y, c)], y);
        }
        out
    }
}

/// Row, column and channel of every sample.
pub fn pixels(width: usize, height: usize, channels: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..height).flat_map(move |y| (0..width).flat_map(move |x| (0..channels).map(move |c| (y, x, c))))
}

impl Image {
    /// With the last pixel of every row twice.
    pub fn one_wider(&self) -> Self {
        let rows = self.samples.chunks(self.width);
        let samples = rows.flat_map(|row| row.iter().chain(row.last()).copied()).collect();
        Self { width: self.width + 1, samples, ..*self }
    }

    /// Every sample in the upper bits of 16.
    pub fn wide(&self) -> Self {
        let samples = self.samples.iter().map(|sample| sample << (16 - self.depth)).collect();
        Self { depth: 16, samples, ..*self }
    }

    /// The mean, halves up, of what each pixel of `other` covers, where one of its pixels is so many of this image's.
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

    /// Colour weighed by alpha, or the alpha itself: docs/ARCHITECTURE.md's rule.
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
