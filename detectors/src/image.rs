// SPDX-License-Identifier: MPL-2.0
//! Small pictures of one channel, and a filter that fits such a picture to the edges of another one.

/// Values from 0 to 1, row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    pub width: usize,
    pub height: usize,
    pub values: Vec<f32>,
}

/// The number of rows and columns on each side of a sample that a mean includes.
const REACH: usize = 2;
/// Parameters of the guided filter: the variance of colours that counts as noise; the number of passes; and the factor by which
/// the result is made steeper between two passes.
const NOISE: f32 = 1e-4;
const PASSES: usize = 6;
const STEEPER: f32 = 2.;

impl Image {
    pub fn new([width, height]: [usize; 2], value: f32) -> Self {
        Self { width, height, values: vec![value; width * height] }
    }

    pub fn size(&self) -> [usize; 2] {
        [self.width, self.height]
    }

    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..][..self.width]
    }

    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.width..][..self.width]
    }

    /// A picture of the same size, computed sample by sample from this one and another one.
    pub fn with(&self, other: &Self, value: impl Fn(f32, f32) -> f32) -> Self {
        let values = self.values.iter().zip(&other.values).map(|(a, b)| value(*a, *b)).collect();
        Self { values, ..*self }
    }

    pub fn map(mut self, value: impl Fn(f32) -> f32) -> Self {
        for one in &mut self.values {
            *one = value(*one);
        }
        self
    }

    /// The picture in another size: bilinear, measured from centre to centre.
    pub fn scaled(&self, size: [usize; 2]) -> Self {
        // If the height shrinks, rows are scaled first, so that fewer samples remain for the columns.
        if size[1] < self.height {
            self.scaled_rows(size[1]).scaled_columns(size[0])
        } else {
            self.scaled_columns(size[0]).scaled_rows(size[1])
        }
    }

    fn scaled_rows(&self, height: usize) -> Self {
        let mut scaled = Self::new([self.width, height], 0.);
        for (to, (first, second, share)) in scaled.values.chunks_exact_mut(self.width).zip(places(self.height, height))
        {
            for ((to, a), b) in to.iter_mut().zip(self.row(first)).zip(self.row(second)) {
                *to = a + share * (b - a);
            }
        }
        scaled
    }

    fn scaled_columns(&self, width: usize) -> Self {
        let places: Vec<_> = places(self.width, width).collect();
        let mut scaled = Self::new([width, self.height], 0.);
        for (to, row) in scaled.values.chunks_exact_mut(width).zip(self.values.chunks_exact(self.width)) {
            for (to, (first, second, share)) in to.iter_mut().zip(&places) {
                *to = row[*first] + share * (row[*second] - row[*first]);
            }
        }
        scaled
    }

    /// Sets each sample to the largest of the five by five samples around it.
    pub fn largest(&self) -> Self {
        let mut wide = self.clone();
        for (row, to) in self.values.chunks_exact(self.width).zip(wide.values.chunks_exact_mut(self.width)) {
            for step in 1..=2.min(self.width - 1) {
                for (to, value) in to[step..].iter_mut().zip(row) {
                    *to = to.max(*value);
                }
                for (to, value) in to.iter_mut().zip(&row[step..]) {
                    *to = to.max(*value);
                }
            }
        }
        let mut largest = wide.clone();
        for y in 0..self.height {
            for other in y.saturating_sub(2)..=(y + 2).min(self.height - 1) {
                for (to, value) in largest.row_mut(y).iter_mut().zip(wide.row(other)) {
                    *to = to.max(*value);
                }
            }
        }
        largest
    }
}

/// Computes the means of the five by five samples around each sample. Beyond the edges, the outermost samples repeat. The buffers
/// are reused.
#[derive(Default)]
struct Means {
    padded: Vec<f32>,
    sums: [Vec<f32>; 2],
}

impl Means {
    fn of(&mut self, image: &Image) -> Image {
        let (columns, rows) = (image.width + 2 * REACH, image.height + 2 * REACH);
        self.padded.resize(columns * rows, 0.);
        for (y, to) in self.padded.chunks_exact_mut(columns).enumerate() {
            let row = image.row(y.saturating_sub(REACH).min(image.height - 1));
            to[..REACH].fill(row[0]);
            to[REACH..][..image.width].copy_from_slice(row);
            to[REACH + image.width..].fill(row[image.width - 1]);
        }
        // Sums along rows, then along columns: sums of two samples, then of four, then a fifth one is added. At the end of a row,
        // sums reach into the next row; these sums are not read.
        let Self { padded, sums: [twos, fours] } = self;
        twos.resize(columns * rows, 0.);
        fours.resize(columns * rows, 0.);
        for step in [1, columns] {
            add(twos, padded, &padded[step..]);
            add(fours, twos, &twos[2 * step..]);
            add(twos, fours, &padded[4 * step..]);
            std::mem::swap(twos, padded);
        }
        let mut values = Vec::with_capacity(image.values.len());
        for sums in self.padded.chunks_exact(columns).take(image.height) {
            values.extend(sums[..image.width].iter().map(|sum| sum * (1. / 25.)));
        }
        Image { values, ..*image }
    }

    fn of_product(&mut self, a: &Image, b: &Image) -> Image {
        self.of(&a.with(b, |a, b| a * b))
    }
}

fn add(to: &mut [f32], a: &[f32], b: &[f32]) {
    for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
        *to = a + b;
    }
}

/// For each of `count` samples along an axis of `given` samples: the two given samples between which it lies, and its distance
/// from the first.
fn places(given: usize, count: usize) -> impl Iterator<Item = (usize, usize, f32)> {
    (0..count).map(move |i| {
        let place = ((i as f32 + 0.5) * given as f32 / count as f32 - 0.5).clamp(0., (given - 1) as f32);
        let first = (place as usize).min(given.saturating_sub(2));
        (first, (first + 1).min(given - 1), place - first as f32)
    })
}

/// A guided filter (He et al., 2010). Fits `values`, which have the size of the coarse guide, to the edges of the guide. Around
/// each sample, the result is the linear function of red, green and blue that is nearest to `values`.
pub fn fitted(values: &Image, guide: &[Image; 3], coarse: &[Image; 3]) -> Image {
    let mut means = Means::default();
    let [red, green, blue] = coarse;
    let [mean_r, mean_g, mean_b] = [means.of(red), means.of(green), means.of(blue)];
    // Computes the inverse of the colours' covariance matrix, which is symmetric, by its cofactors.
    let [mut rr, mut rg, mut rb] =
        [means.of_product(red, red), means.of_product(red, green), means.of_product(red, blue)];
    let [mut gg, mut gb, mut bb] =
        [means.of_product(green, green), means.of_product(green, blue), means.of_product(blue, blue)];
    let count = values.values.len();
    {
        let [r, g, b] = [&mean_r.values[..count], &mean_g.values[..count], &mean_b.values[..count]];
        let [rr, rg, rb] = [&mut rr.values[..count], &mut rg.values[..count], &mut rb.values[..count]];
        let [gg, gb, bb] = [&mut gg.values[..count], &mut gb.values[..count], &mut bb.values[..count]];
        for i in 0..count {
            let [xx, xy, xz] = [rr[i] - r[i] * r[i] + NOISE, rg[i] - r[i] * g[i], rb[i] - r[i] * b[i]];
            let [yy, yz, zz] = [gg[i] - g[i] * g[i] + NOISE, gb[i] - g[i] * b[i], bb[i] - b[i] * b[i] + NOISE];
            let cofactors = [yy * zz - yz * yz, yz * xz - xy * zz, xy * yz - yy * xz];
            let scale = 1. / (xx * cofactors[0] + xy * cofactors[1] + xz * cofactors[2]);
            (rr[i], rg[i], rb[i]) = (cofactors[0] * scale, cofactors[1] * scale, cofactors[2] * scale);
            (gg[i], gb[i], bb[i]) =
                ((xx * zz - xz * xz) * scale, (xy * xz - xx * yz) * scale, (xx * yy - xy * xy) * scale);
        }
    }
    let mut values = values.clone();
    let mut function = [(); 4].map(|()| Image::default());
    for pass in 0..PASSES {
        if pass > 0 {
            values = applied(&function, coarse);
            for value in &mut values.values {
                *value = ((*value - 0.5) * STEEPER + 0.5).clamp(0., 1.);
            }
        }
        let mut offset = means.of(&values);
        let [mut r, mut g, mut b] =
            [means.of_product(red, &values), means.of_product(green, &values), means.of_product(blue, &values)];
        {
            let offset = &mut offset.values[..count];
            let [r, g, b] = [&mut r.values[..count], &mut g.values[..count], &mut b.values[..count]];
            let [mean_r, mean_g, mean_b] = [&mean_r.values[..count], &mean_g.values[..count], &mean_b.values[..count]];
            let [rr, rg, rb] = [&rr.values[..count], &rg.values[..count], &rb.values[..count]];
            let [gg, gb, bb] = [&gg.values[..count], &gb.values[..count], &bb.values[..count]];
            for i in 0..count {
                let mean = offset[i];
                let (x, y, z) = (r[i] - mean_r[i] * mean, g[i] - mean_g[i] * mean, b[i] - mean_b[i] * mean);
                r[i] = rr[i] * x + rg[i] * y + rb[i] * z;
                g[i] = rg[i] * x + gg[i] * y + gb[i] * z;
                b[i] = rb[i] * x + gb[i] * y + bb[i] * z;
                offset[i] = mean - (r[i] * mean_r[i] + g[i] * mean_g[i] + b[i] * mean_b[i]);
            }
        }
        function = [means.of(&r), means.of(&g), means.of(&b), means.of(&offset)];
    }
    let [r, g, b, offset] = &function;
    let size = guide[0].size();
    applied(&[r.scaled(size), g.scaled(size), b.scaled(size), offset.scaled(size)], guide)
}

/// Applies linear functions of red, green and blue, with these factors and this offset.
fn applied([r, g, b, offset]: &[Image; 4], [red, green, blue]: &[Image; 3]) -> Image {
    let mut result = offset.clone();
    for (factors, colour) in [(r, red), (g, green), (b, blue)] {
        for ((to, factor), value) in result.values.iter_mut().zip(&factors.values).zip(&colour.values) {
            *to += factor * value;
        }
    }
    result
}

#[cfg(test)]
mod tests;
