// SPDX-License-Identifier: MPL-2.0
//! 8-bit values at the nodes of a picture, which are 1 to 32 luma samples apart: how the values are widened, softened and
//! interpolated. This file does not know what the values mean.

/// The largest number of cells along an axis.
const GRID_MAX: u32 = 512;
/// Cells that are examined together, because they often have the same value: most of a mask is 0 or 255.
pub const CELLS: usize = 16;

/// The luma samples from one node to the next in a picture of this size: the smallest power of two with at most [`GRID_MAX`]
/// cells along either axis.
pub fn cell((width, height): (u32, u32)) -> u32 {
    width.max(height).div_ceil(GRID_MAX).next_power_of_two()
}

/// 8-bit values at the nodes of a picture: at the luma samples 0, cell, 2·cell and so on. The last node of an axis lies at the
/// picture's last sample or beyond. The margin is the number of additional nodes on each side.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeGrid {
    /// Width and height of the picture, in luma samples.
    pub size: (u32, u32),
    pub cell: u32,
    pub margin: usize,
    pub columns: usize,
    pub rows: usize,
    pub values: Vec<u8>,
}

impl NodeGrid {
    pub fn new(size: (u32, u32)) -> Self {
        Self::with_margin(size, 0)
    }

    /// A grid with a margin of at least `grow` luma samples, whatever its sign.
    pub fn around(size: (u32, u32), grow: i32) -> Self {
        Self::with_margin(size, grow.unsigned_abs().div_ceil(cell(size)) as usize)
    }

    pub fn with_margin(size: (u32, u32), margin: usize) -> Self {
        let cell = cell(size);
        let nodes = |side: u32| (side - 1).div_ceil(cell) as usize + 1 + 2 * margin;
        let (columns, rows) = (nodes(size.0), nodes(size.1));
        Self { size, cell, margin, columns, rows, values: vec![0; columns * rows] }
    }

    /// Removes the margin.
    pub fn crop(&mut self) {
        if self.margin > 0 {
            let inner = Self::new(self.size);
            let rows = self.values.chunks(self.columns).skip(self.margin).take(inner.rows);
            let values = rows.flat_map(|row| row[self.margin..][..inner.columns].iter().copied()).collect();
            *self = Self { values, ..inner };
        }
    }

    pub fn row(&self, row: usize) -> &[u8] {
        &self.values[row * self.columns..][..self.columns]
    }

    pub fn map(&mut self, value: impl Fn(u8) -> u8) {
        self.values.iter_mut().for_each(|v| *v = value(*v));
    }

    /// Makes a soft edge, which lies on the side to which `pick` widens.
    pub fn feather(&mut self, samples: u32, pick: impl Fn(u8, u8) -> u8 + Copy, spare: &mut Vec<u8>) {
        let cells = samples.div_ceil(self.cell);
        self.widen(cells, pick, spare);
        self.soften(cells as usize, spare);
    }

    /// Gives each node the largest or smallest value (`pick`) of the nodes at most `radius` away along either axis. `spare` is
    /// memory that is reused.
    pub fn widen(&mut self, radius: u32, pick: impl Fn(u8, u8) -> u8 + Copy, spare: &mut Vec<u8>) {
        self.widen_rows(radius as usize, pick);
        self.widen_columns(radius as usize, pick, spare);
    }

    pub fn widen_rows(&mut self, radius: usize, pick: impl Fn(u8, u8) -> u8) {
        let columns = self.columns;
        let mut padded = vec![0; columns + 2 * radius];
        for row in self.values.chunks_mut(columns) {
            for step in steps(radius) {
                padded[..step].fill(row[0]);
                padded[step..][..columns].copy_from_slice(row);
                padded[step + columns..][..step].fill(row[columns - 1]);
                let [before, after] = [&padded[..columns], &padded[2 * step..]];
                row.iter_mut()
                    .zip(before)
                    .zip(after)
                    .for_each(|((to, one), other)| *to = pick(*to, pick(*one, *other)));
            }
        }
    }

    pub fn widen_columns(&mut self, radius: usize, pick: impl Fn(u8, u8) -> u8, spare: &mut Vec<u8>) {
        let (columns, last) = (self.columns, self.rows - 1);
        for step in steps(radius) {
            spare.resize(self.values.len(), 0);
            for (y, to) in spare.chunks_mut(columns).enumerate() {
                let [before, row, after] = [y.saturating_sub(step), y, (y + step).min(last)].map(|y| self.row(y));
                let rows = to.iter_mut().zip(row).zip(before).zip(after);
                rows.for_each(|(((to, value), one), other)| *to = pick(*value, pick(*one, *other)));
            }
            std::mem::swap(&mut self.values, spare);
        }
    }

    /// Gives each node the mean of the nodes at most `radius` away, first along rows and then along columns, each mean rounded
    /// half up. Beyond the grid the edge repeats.
    fn soften(&mut self, radius: usize, spare: &mut Vec<u8>) {
        if radius == 0 {
            return;
        }
        debug_assert!(radius <= 128, "a radius of {radius} nodes, of which sums need more than 16 bits");
        let (columns, length) = (self.columns, 2 * radius + 1);
        // Windows up to this length are summed anew for each node, with vector instructions. Longer ones use a running sum.
        const SHORT: usize = 33;
        let mean = mean_of(length as u32);
        let mut sums = vec![0_u16; columns];
        let mut padded = vec![0; columns + 2 * radius];
        for row in self.values.chunks_mut(columns) {
            if row.iter().fold(0, |all, value| all | (value ^ row[0])) == 0 {
                continue;
            }
            padded[..radius].fill(row[0]);
            padded[radius..][..columns].copy_from_slice(row);
            padded[radius + columns..].fill(row[columns - 1]);
            if length <= SHORT {
                sums.fill(0);
                for values in padded.windows(columns) {
                    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += u16::from(*value));
                }
            } else {
                let mut sum: u16 = padded[..length].iter().map(|value| u16::from(*value)).sum();
                sums[0] = sum;
                for ((to, leaves), enters) in sums[1..].iter_mut().zip(&padded).zip(&padded[length..]) {
                    sum = sum - u16::from(*leaves) + u16::from(*enters);
                    *to = sum;
                }
            }
            row.iter_mut().zip(&sums).for_each(|(to, sum)| *to = mean(*sum));
        }
        spare.clone_from(&self.values);
        let row = |y: usize| &spare[y.saturating_sub(radius).min(self.rows - 1) * columns..][..columns];
        sums.fill(0);
        for y in 0..length {
            sums.iter_mut().zip(row(y)).for_each(|(sum, value)| *sum += u16::from(*value));
        }
        for (y, to) in self.values.chunks_mut(columns).enumerate() {
            for (((to, sum), enters), leaves) in to.iter_mut().zip(&mut sums).zip(row(y + length)).zip(row(y)) {
                *to = mean(*sum);
                *sum = *sum - u16::from(*leaves) + u16::from(*enters);
            }
        }
    }

    /// The values of the luma samples of row `y` from a column of nodes on: bilinear between the nodes, rounded half up.
    #[inline(always)]
    pub fn sample_row(&self, column: usize, y: u32, between: &mut Vec<u16>, samples: &mut [u8]) {
        match self.cell {
            1 => samples.copy_from_slice(&self.row(y as usize)[column..][..samples.len()]),
            2 => self.sample_cells::<2>(column, y, between, samples),
            4 => self.sample_cells::<4>(column, y, between, samples),
            8 => self.sample_cells::<8>(column, y, between, samples),
            16 => self.sample_cells::<16>(column, y, between, samples),
            _ => self.sample_cells::<32>(column, y, between, samples),
        }
    }

    #[inline(always)]
    fn sample_cells<const CELL: usize>(&self, column: usize, y: u32, between: &mut Vec<u16>, samples: &mut [u8]) {
        let (above, down) = (y as usize / CELL, (y as usize % CELL) as u16);
        let (above, below) = (self.row(above), self.row((above + 1).min(self.rows - 1)));
        let cells = samples.len().div_ceil(CELL);
        between.clear();
        let nodes = above[column..].iter().zip(&below[column..]).take(cells + 1);
        between.extend(nodes.map(|(above, below)| u16::from(*above) * (CELL as u16 - down) + u16::from(*below) * down));
        // Beyond the last node, its value repeats.
        between.resize(cells + 1, between[between.len() - 1]);
        for (between, samples) in between.windows(CELLS + 1).step_by(CELLS).zip(samples.chunks_mut(CELLS * CELL)) {
            if between.iter().fold(0, |all, value| all | (value ^ between[0])) == 0 {
                samples.fill(((between[0] + CELL as u16 / 2) / CELL as u16) as u8);
            } else {
                interpolate::<CELL>(between, samples);
            }
        }
        let done = cells / CELLS * CELLS;
        let rest = (done * CELL).min(samples.len());
        interpolate::<CELL>(&between[done..], &mut samples[rest..]);
    }
}

/// Returns a function from the sum of `count` 8-bit values to their mean, rounded half up. `count` is odd, from 3 to 257. The
/// function divides by a multiplication whose upper 16 bits are the quotient, because vector instructions can do this.
fn mean_of(count: u32) -> impl Fn(u16) -> u8 {
    // The rounded-up reciprocal exceeds 1 / count by e / (count · 2^(16 + shift)). The quotient is exact if e is at most 2^shift.
    // Otherwise it is exact with the rounded-down reciprocal and a dividend that is larger by 1.
    let shift = count.ilog2();
    let reciprocal = (1_u32 << (16 + shift)).div_ceil(count);
    let is_near = reciprocal * count - (1 << (16 + shift)) <= 1 << shift;
    let (reciprocal, more) = if is_near { (reciprocal, 0) } else { (reciprocal - 1, 1) };
    let (reciprocal, half) = (reciprocal as u16, (count / 2 + more) as u16);
    // A dividend beyond 16 bits has a mean of 255, and so has the saturated one.
    move |sum| (((u32::from(sum.saturating_add(half)) * u32::from(reciprocal)) >> 16) as u16 >> shift) as u8
}

/// Interpolates between nodes that were multiplied by CELL; rounds half up.
#[inline(always)]
fn interpolate<const CELL: usize>(between: &[u16], samples: &mut [u8]) {
    let (cell, half) = (CELL as u32, (CELL * CELL / 2) as u32);
    let value = |ends: &[u16], x: u32| {
        let sum = u32::from(ends[0]) * (cell - x) + u32::from(ends[1]) * x;
        ((sum + half) / (cell * cell)) as u8
    };
    let (cells, rest) = samples.as_chunks_mut::<CELL>();
    let mut ends = between.windows(2);
    for (samples, ends) in cells.iter_mut().zip(ends.by_ref()) {
        for (x, sample) in samples.iter_mut().enumerate() {
            *sample = value(ends, x as u32);
        }
    }
    if let Some(ends) = ends.next() {
        for (x, sample) in (0..).zip(rest) {
            *sample = value(ends, x);
        }
    }
}

/// The distances of the passes that together widen by `radius`. In each pass, a node gets the value of the nodes this far away on
/// either side. A distance is at most twice the radius reached so far, plus one, so that no node is skipped.
fn steps(radius: usize) -> impl Iterator<Item = usize> {
    let mut reached = 0;
    std::iter::from_fn(move || {
        let step = (2 * reached + 1).min(radius - reached);
        reached += step;
        (step > 0).then_some(step)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests every possible sum of every count.
    #[test]
    fn means_are_exact() {
        for count in (3..=257).step_by(2) {
            let mean = mean_of(count);
            for sum in 0..=255 * count {
                assert_eq!(u32::from(mean(sum as u16)), (sum + count / 2) / count, "{sum} of {count}");
            }
        }
    }
}
