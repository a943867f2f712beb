// SPDX-License-Identifier: MPL-2.0
//! Estimates what a picture would show without its objects, so that the blur of a background contains nothing of them. The
//! estimate comes from the surroundings of an object ("push-pull" inpainting): the means of cells, weighted by how much of each
//! sample counts, are spread by a pyramid to cells without weight. Between the cells the estimate is bilinear. docs/ARITHMETIC.md
//! has the formulas.

use std::ops::Range;

use super::mosaic::CellGrid;

/// The number of nodes of the weights in a cell, along either axis.
pub const NODES: u32 = 4;

/// The largest weight of a cell.
const WHOLE: u32 = 255;

/// Packs a cell: the mean of its samples in the lower half, and its weight from 0 to 255 in the upper half. A sample that is left
/// out by the weight x counts with 255 - x. `remainders` is the sum of 255 - x over `count` samples, and `sum` is the sum of the
/// samples, each times its 255 - x. A cell of which a quarter is left has the full weight. A cell of which nothing is left has
/// the weight 0 and the value of its first sample, which does not affect cells with a weight.
pub fn cell(sum: u64, remainders: u64, count: u64, first: u16) -> u32 {
    let mean = (2 * sum + remainders).checked_div(2 * remainders).unwrap_or(first.into());
    let weight = (4 * remainders).div_ceil(count.max(1)).min(WHOLE.into());
    (weight as u32) << 16 | mean as u32
}

fn value(cell: u32) -> u32 {
    cell & 0xffff
}

fn weight(cell: u32) -> u32 {
    cell >> 16
}

/// A level of the pyramid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// The index of the level's first cell. Each cell has one word for each channel.
    pub first: usize,
    /// The number of columns and of rows of cells.
    pub size: [usize; 2],
}

/// The cells of some channels of a field of a plane, with coarser levels above them.
#[derive(Debug, Clone, PartialEq)]
pub struct CellPyramid {
    /// The cells of the finest level.
    pub grid: CellGrid,
    /// The levels of the pyramid; the last one is a single cell.
    pub levels: Vec<Level>,
    /// The index of the first word of this pyramid in the memory of all grids.
    pub first_word: usize,
}

/// A single level: the cells of a mosaic.
pub fn one_level(size: [usize; 2]) -> Vec<Level> {
    vec![Level { first: 0, size }]
}

/// All levels over cells in these columns and rows, the finest level first.
pub fn levels(mut size: [usize; 2]) -> Vec<Level> {
    let mut levels = one_level(size);
    while size != [1, 1] {
        let first = levels.last().map_or(0, |Level { first, size: [columns, rows] }| first + columns * rows);
        size = size.map(|count| count.div_ceil(2));
        levels.push(Level { first, size });
    }
    levels
}

impl CellPyramid {
    /// Pyramids for these grids, one after the other in memory. `levels` returns the levels for the columns and rows of a grid.
    pub fn all(grids: Vec<CellGrid>, levels: impl Fn([usize; 2]) -> Vec<Level>) -> Vec<Self> {
        let mut first_word = 0;
        let place = |grid: CellGrid| {
            let pyramid = Self { levels: levels(grid.cells.map(|count| count as usize)), grid, first_word };
            first_word += pyramid.words();
            pyramid
        };
        grids.into_iter().map(place).collect()
    }

    /// The number of words of memory for all levels.
    pub fn words(&self) -> usize {
        let Level { first, size: [columns, rows] } = self.levels[self.levels.len() - 1];
        (first + columns * rows) * self.grid.channels.len()
    }

    /// Turns the cells of all levels into estimates: a cell takes the part of its value for which it has no weight from the
    /// coarser level.
    pub fn spread(&self, cells: &mut [u32]) {
        let channels = self.grid.channels.len();
        let steps = || self.levels.iter().zip(&self.levels[1..]);
        for (finer, coarser) in steps() {
            let (below, above) = cells.split_at_mut(coarser.first * channels);
            join(&below[finer.first * channels..], finer.size, above, coarser.size, channels);
        }
        for (finer, coarser) in steps().rev() {
            let (below, above) = cells.split_at_mut(coarser.first * channels);
            fill_in(&mut below[finer.first * channels..], finer.size, above, coarser.size, channels);
        }
        // The single cell of the last level is its own estimate, without a weight in the upper half.
        let last = self.levels[self.levels.len() - 1].first * channels;
        cells[last..last + channels].iter_mut().for_each(|cell| *cell = value(*cell));
    }

    /// The index of the row of cells whose centres lie at or above this row of the field, and the weight of the next row of cells
    /// in units of 1 / [`Self::parts`].
    pub fn cell_rows(&self, row: u32) -> (i64, u32) {
        let distance = self.beyond_centre(1, row);
        (distance >> self.parts().trailing_zeros(), (distance & (self.parts() - 1)) as u32)
    }

    /// The number of parts into which the distance between two centres of cells is divided. A part is half of a luma sample. It
    /// is a power of two.
    pub fn parts(&self) -> i64 {
        2 * i64::from(self.grid.side)
    }

    /// The distance from the centre of the first cell to the centre of a sample, in [`Self::parts`].
    fn beyond_centre(&self, axis: usize, sample: u32) -> i64 {
        let (unit, first) = (self.grid.unit_log2[axis], self.grid.placement.first()[axis]);
        2 * ((i64::from(sample) << unit) + i64::from(first)) + (1 << unit) - i64::from(self.grid.side)
    }

    /// Interpolates along one row of cells: writes, for all channels of these samples, the estimate times [`Self::parts`]. Beyond
    /// the grid the edge repeats. The weighted sum of two such rows, by the weights of [`Self::cell_rows`], is the estimate times
    /// the square of [`Self::parts`].
    #[inline(always)]
    pub fn expand(&self, cells: &[u32], cell_row: i64, samples: &Range<usize>, to: &mut Vec<u32>) {
        to.resize(samples.len() * self.grid.channels.len(), 0);
        match self.grid.channels.len() {
            1 => self.expand_channels::<1>(cells, cell_row, samples.start, to),
            2 => self.expand_channels::<2>(cells, cell_row, samples.start, to),
            3 => self.expand_channels::<3>(cells, cell_row, samples.start, to),
            _ => self.expand_channels::<4>(cells, cell_row, samples.start, to),
        }
    }

    #[inline(always)]
    fn expand_channels<const CHANNELS: usize>(&self, cells: &[u32], cell_row: i64, first: usize, to: &mut [u32]) {
        let ([columns, rows], parts) = (self.levels[0].size, self.parts());
        let (cells, _) = cells.as_chunks::<CHANNELS>();
        let cells = &cells[cell_row.clamp(0, rows as i64 - 1) as usize * columns..][..columns];
        // `parts` and `step` are powers of two.
        let step = 2 << self.grid.unit_log2[0];
        let (mut distance, mut rest) = (self.beyond_centre(0, first as u32), to.as_chunks_mut::<CHANNELS>().0);
        while !rest.is_empty() {
            let (column, of_next) = (distance >> parts.trailing_zeros(), distance & (parts - 1));
            let count = (parts - of_next + step - 1) >> (self.grid.unit_log2[0] + 1);
            let [this, next] = [column, column + 1].map(|at| cells[at.clamp(0, columns as i64 - 1) as usize]);
            let samples = rest.split_off_mut(..rest.len().min(count as usize)).unwrap_or_default();
            for (samples, i) in samples.iter_mut().zip(0_u32..) {
                let of_next = of_next as u32 + i * step as u32;
                for (channel, sample) in samples.iter_mut().enumerate() {
                    *sample = this[channel] * (parts as u32 - of_next) + next[channel] * of_next;
                }
            }
            distance += count * step;
        }
    }
}

/// Makes the cells of the next coarser level: each is the mean of up to four cells below it.
fn join(finer: &[u32], [columns, rows]: [usize; 2], to: &mut [u32], size: [usize; 2], channels: usize) {
    for y in 0..size[1] {
        for x in 0..size[0] {
            for channel in 0..channels {
                let at = |x: usize, y: usize| finer[(y * columns + x) * channels + channel];
                let (mut weights, mut sum) = (0, 0);
                for row in 2 * y..(2 * y + 2).min(rows) {
                    for column in 2 * x..(2 * x + 2).min(columns) {
                        let cell = at(column, row);
                        weights += weight(cell);
                        sum += weight(cell) * value(cell);
                    }
                }
                // Where all weights are 0, the value is that of the first cell. If all four weights are full, the divisors are
                // constants, which is faster.
                let mean = if weights == 4 * WHOLE {
                    (sum / WHOLE + 2) / 4
                } else {
                    (2 * sum + weights).checked_div(2 * weights).unwrap_or(value(at(2 * x, 2 * y)))
                };
                to[(y * size[0] + x) * channels + channel] = weights.min(WHOLE) << 16 | mean;
            }
        }
    }
}

/// Turns the cells of a level into estimates. The part for which a cell has no weight is bilinear between the estimates of the
/// coarser level above.
fn fill_in(cells: &mut [u32], [columns, rows]: [usize; 2], above: &[u32], size: [usize; 2], channels: usize) {
    // A cell's centre lies a quarter of a coarser cell beside the centre of the cell above it, so the coarser neighbour on that
    // side counts a quarter.
    let near = |i: usize, count: usize| {
        (i / 2, if i.is_multiple_of(2) { (i / 2).saturating_sub(1) } else { (i / 2 + 1).min(count - 1) })
    };
    for y in 0..rows {
        let (row, next_row) = near(y, size[1]);
        for x in 0..columns {
            let (column, next_column) = near(x, size[0]);
            for channel in 0..channels {
                let cell = &mut cells[(y * columns + x) * channels + channel];
                if weight(*cell) == WHOLE {
                    *cell = value(*cell);
                    continue;
                }
                let at = |x: usize, y: usize| value(above[(y * size[0] + x) * channels + channel]);
                let of_row = |y: usize| 3 * at(column, y) + at(next_column, y);
                let estimate = (3 * of_row(row) + of_row(next_row) + 8) / 16;
                *cell = (weight(*cell) * value(*cell) + (WHOLE - weight(*cell)) * estimate + 127) / WHOLE;
            }
        }
    }
}
