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

    /// The arithmetic contract: samples widened to 16 bits; down the levels, rows before columns; the direct form on the
    /// smallest plane, rows before columns; up the levels, columns before rows. Every step rounds to 16 bits, the last one
    /// to the depth.
    pub fn blurred(&self, rows: &Axis, columns: &Axis) -> Self {
        let mut plane: Vec<u32> = self.samples.iter().map(|sample| u32::from(*sample) << (16 - self.depth)).collect();
        let mut size = [self.width, self.height];
        let mut steps = Vec::new();
        let mut ups = Vec::new();
        for level in 0..rows.levels.len().max(columns.levels.len()) {
            for (axis, levels) in [(0, &rows.levels), (1, &columns.levels)] {
                if let Some(s) = levels.get(level) {
                    steps.push((axis, Step::Decimate(*s)));
                    ups.push((axis, *s, size[axis]));
                    size[axis] = small_count(size[axis], *s);
                }
            }
        }
        steps.push((0, Step::Blur(&rows.taps)));
        steps.push((1, Step::Blur(&columns.taps)));
        steps.extend(ups.into_iter().rev().map(|(axis, s, count)| (axis, Step::Interpolate(s, count))));

        let mut size = [self.width, self.height];
        for (i, (axis, step)) in steps.iter().enumerate() {
            // Bits by which a sum is shifted right.
            let shift = if i + 1 == steps.len() { 32 - self.depth } else { 16 };
            let distance = self.channels * if *axis == 0 { 1 } else { size[0] };
            let (kernel, count) = (step.kernel(), step.count(size[*axis]));
            plane = along(&plane, size[*axis], distance, |line| {
                kernel.sums(line, count).into_iter().map(|sum| ((sum + (1 << (shift - 1))) >> shift) as u32).collect()
            });
            size[*axis] = count;
        }
        Self { samples: plane.into_iter().map(|sample| sample as u16).collect(), ..*self }
    }

    /// The true Gaussian: float64, far enough out that the omitted weights are negligible, not rounded.
    pub fn gaussian(&self, sigma: f64) -> Vec<f64> {
        self.gaussian_at(sigma, &[self.width, self.height].map(|count| (0..count).collect()))
    }

    /// The true Gaussian of the samples in these columns and rows.
    pub fn gaussian_at(&self, sigma: f64, [columns, rows]: &[Vec<usize>; 2]) -> Vec<f64> {
        let across = gaussian_weights(sigma, self.width, columns);
        let down = gaussian_weights(sigma, self.height, rows);
        let mean = |line: &[f64], weights: &[(usize, f64)]| weights.iter().map(|(i, weight)| weight * line[*i]).sum();
        let means = |line: &[f64], weights: &[Vec<(usize, f64)>]| weights.iter().map(|one| mean(line, one)).collect();
        let samples: Vec<f64> = self.samples.iter().copied().map(f64::from).collect();
        let middle = along(&samples, self.width, self.channels, |row| means(row, &across));
        along(&middle, self.height, columns.len() * self.channels, |column| means(column, &down))
    }
}

/// The blur of one axis: the factors of the levels, and the direct form's taps, `taps[i]` for distance i.
#[derive(Debug, Clone)]
pub struct Axis {
    pub levels: Vec<usize>,
    pub taps: Vec<u32>,
}

impl Axis {
    /// The weights of an endless line's samples for sample `x` of the blurred line, if no step rounded: the position of the
    /// first sample with a weight, and the weights. They depend on `x` modulo the product of the factors.
    pub fn weights(&self, x: usize) -> (isize, Vec<f64>) {
        let down = self.levels.iter().map(|s| Step::Decimate(*s));
        let up = self.levels.iter().map(|s| Step::Interpolate(*s, 0));
        // Back from the result: each step says what the samples that it wrote were made from.
        let steps = up.chain([Step::Blur(&self.taps)]).chain(down.rev());
        steps.fold((x as isize, vec![1.0]), |(first, weights), step| step.kernel().composed(first, &weights))
    }
}

/// What is done with a line of samples.
enum Step<'a> {
    Decimate(usize),
    Blur(&'a [u32]),
    /// By this factor, to this many samples.
    Interpolate(usize, usize),
}

impl Step<'_> {
    fn count(&self, count: usize) -> usize {
        match self {
            Self::Decimate(s) => small_count(count, *s),
            Self::Blur(_) => count,
            Self::Interpolate(_, count) => *count,
        }
    }

    fn kernel(&self) -> Kernel {
        match self {
            Self::Decimate(s) => {
                Kernel { phases: vec![decimation_weights(*s)], stride: *s as isize, offset: -6 * *s as isize }
            }
            Self::Blur(taps) => {
                let radius = taps.len() - 1;
                let weights = (0..=2 * radius).map(|i| taps[i.abs_diff(radius)]).collect();
                Kernel { phases: vec![weights], stride: 1, offset: -(radius as isize) }
            }
            Self::Interpolate(s, _) => {
                Kernel { phases: (0..*s).map(|phase| interpolation_weights(*s, phase)).collect(), stride: 1, offset: 0 }
            }
        }
    }
}

/// The weights of a step, in units of 2^-16: sample i is the sum over the samples from i / phases * stride + offset on, with
/// the weights of phase i mod phases.
struct Kernel {
    phases: Vec<Vec<u32>>,
    stride: isize,
    offset: isize,
}

impl Kernel {
    fn first(&self, i: isize) -> isize {
        i.div_euclid(self.phases.len() as isize) * self.stride + self.offset
    }

    fn weights(&self, i: isize) -> &[u32] {
        &self.phases[i.rem_euclid(self.phases.len() as isize) as usize]
    }

    /// The first `count` weighted sums of a line, whose ends repeat, in units of 2^-16.
    fn sums(&self, line: &[u32], count: usize) -> Vec<u64> {
        let (start, last) = (self.first(0), count as isize - 1);
        let end = self.first(last) + self.weights(last).len() as isize;
        let repeated: Vec<u32> = (start..end).map(|i| line[i.clamp(0, line.len() as isize - 1) as usize]).collect();
        let sum = |i: isize| {
            let samples = &repeated[(self.first(i) - start) as usize..];
            let products =
                samples.iter().zip(self.weights(i)).map(|(sample, weight)| u64::from(*sample) * u64::from(*weight));
            // It does not overflow. Additions that are checked take four times as long.
            products.fold(0, u64::wrapping_add)
        };
        (0..=last).map(sum).collect()
    }

    /// `weights` of the samples written, from position `first` on, as weights of the samples read.
    fn composed(&self, first: isize, weights: &[f64]) -> (isize, Vec<f64>) {
        let last = first + weights.len() as isize - 1;
        let start = self.first(first);
        let mut composed = vec![0.0; (self.first(last) - start) as usize + self.weights(last).len()];
        for (i, weight) in (first..).zip(weights) {
            let read = &mut composed[(self.first(i) - start) as usize..];
            read.iter_mut().zip(self.weights(i)).for_each(|(sum, tap)| *sum += weight * *tap as f64 / 65536.0);
        }
        (start, composed)
    }
}

/// Samples of a small plane: those from 3 before the first one to 3 after the one at or behind the last.
fn small_count(count: usize, s: usize) -> usize {
    (count - 1).div_ceil(s) + 7
}

/// The Gaussian with a sigma of 0.75 s.
fn level_weight(s: usize, distance: usize) -> f64 {
    (-0.5 * (distance as f64 / (0.75 * s as f64)).powi(2)).exp()
}

/// In Q16, for the samples from 3 s before to 3 s behind the one that sample i of the small plane is at, s (i - 3). The
/// pairs by largest remainder, the centre takes the rest.
fn decimation_weights(s: usize) -> Vec<u32> {
    let radius = 3 * s;
    let mut half: Vec<f64> = (0..=radius).map(|i| level_weight(s, i)).collect();
    let sum = half[0] + 2.0 * half[1..].iter().sum::<f64>();
    half.iter_mut().for_each(|weight| *weight *= 65536.0 / sum);
    let up = half[1..].iter().map(|weight| weight.fract()).sum::<f64>().round() as usize;
    let mut weights = rounded_up(&half[1..], up);
    weights.insert(0, 65536 - 2 * weights.iter().sum::<u32>());
    (0..=2 * radius).map(|i| weights[i.abs_diff(radius)]).collect()
}

/// In Q16, for samples x / s .. x / s + 7 of the small plane, where x mod s is the phase. By largest remainder.
fn interpolation_weights(s: usize, phase: usize) -> Vec<u32> {
    // Sample k is at 3 s before that of x / s.
    let weight = |k: usize| match (3 * s + phase).abs_diff(s * k) {
        distance if distance <= 3 * s => level_weight(s, distance),
        _ => 0.0,
    };
    let sum: f64 = (0..7).map(weight).sum();
    let exact: Vec<f64> = (0..7).map(|k| weight(k) * 65536.0 / sum).collect();
    let down: u32 = exact.iter().map(|weight| *weight as u32).sum();
    rounded_up(&exact, 65536 - down as usize)
}

/// The weights rounded down, but `up` of those with the largest remainders rounded up; of equal ones, the earlier.
fn rounded_up(exact: &[f64], up: usize) -> Vec<u32> {
    let mut order: Vec<usize> = (0..exact.len()).collect();
    order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
    let mut weights: Vec<u32> = exact.iter().map(|weight| *weight as u32).collect();
    order[..up].iter().for_each(|i| weights[*i] += 1);
    weights
}

/// Applies `f` to every line of `count` samples with a distance of `step`: a row for step = channels, a column for
/// step = samples per row. The lines of the result may have another length.
fn along<T: Copy, U: Copy + Default>(samples: &[T], count: usize, step: usize, f: impl Fn(&[T]) -> Vec<U>) -> Vec<U> {
    let mut out = Vec::new();
    for start in (0..samples.len()).filter(|i| (i / step).is_multiple_of(count)) {
        let line: Vec<T> = (0..count).map(|i| samples[start + i * step]).collect();
        let results = f(&line);
        let made = results.len();
        out.resize(samples.len() / count * made, U::default());
        let first = start / (step * count) * (step * made) + start % step;
        for (i, result) in results.into_iter().enumerate() {
            out[first + i * step] = result;
        }
    }
    out
}

/// For each of these samples of a line of `count`, the indices and weights of its weighted mean. Weights beyond an edge
/// are added to the edge sample's.
pub fn gaussian_weights(sigma: f64, count: usize, samples: &[usize]) -> Vec<Vec<(usize, f64)>> {
    let reach = (12.0 * sigma).ceil() as isize + 1;
    let weights: Vec<f64> = (-reach..=reach).map(|i| (-0.5 * (i as f64 / sigma).powi(2)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let of_sample = |sample: &usize| {
        let mut line = vec![0.0; count];
        for (i, weight) in (-reach..).zip(&weights) {
            line[(*sample as isize + i).clamp(0, count as isize - 1) as usize] += weight / sum;
        }
        line.into_iter().enumerate().filter(|(_, weight)| *weight > 0.0).collect()
    };
    samples.iter().map(of_sample).collect()
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

    /// The premultiplied blur of docs/ARITHMETIC.md: colour multiplied by alpha, blurred, and divided by the blurred
    /// alpha. With `is_alpha` the blurred alpha itself.
    pub fn weighted(&self, alpha: &Self, is_alpha: bool, axes: &[Axis; 2]) -> Self {
        let depth = self.depth;
        let most = (1_u64 << depth) - 1;
        let wide = self.wide();
        let products = wide.samples.iter().zip(&alpha.samples);
        let products = products.map(|(sample, alpha)| ((u64::from(*sample) * u64::from(*alpha) + 32768) >> 16) as u16);
        let product = Self { samples: products.collect(), ..wide }.blurred(&axes[0], &axes[1]);
        let alpha = alpha.blurred(&axes[0], &axes[1]);
        let samples =
            (0..self.samples.len()).map(|i| match (u64::from(alpha.samples[i]), u64::from(product.samples[i])) {
                (alpha, _) if is_alpha => ((alpha + (1 << (16 - depth)) / 2) >> (16 - depth)).min(most) as u16,
                (0, _) => self.samples[i],
                (alpha, product) => (((product << depth) + alpha / 2) / alpha).min(most) as u16,
            });
        Self { samples: samples.collect(), ..*self }
    }
}
