// SPDX-License-Identifier: MPL-2.0
//! What a picture shows where its objects are left out: an estimate from what is around them, so that the blur of a background has
//! nothing of the objects. Means of cells, weighted by how much of a sample counts, are spread over cells without any by a pyramid
//! ("push-pull"), and are bilinear between the cells. docs/ARITHMETIC.md has the formulas.

use std::ops::Range;

use super::mosaic::CellGrid;

/// Nodes of the weights in a cell, along either axis.
pub const NODES: u32 = 4;

/// The largest weight of a cell.
const WHOLE: u32 = 255;

/// A cell: the mean of its samples, and in the upper half how much it counts, 0 to 255. `remainders` is the sum of 255 less what is left
/// out of `count` samples, `sum` that of the products of these with the samples. A cell of which a quarter is left counts wholly; one of
/// which nothing is left has the value of its first sample, which no cell sees that counts.
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
    /// The index of its first cell; each cell has a word for each channel.
    pub first: usize,
    /// Columns and rows of cells.
    pub size: [usize; 2],
}

/// The cells of some channels of a field of a plane.
#[derive(Debug, Clone, PartialEq)]
pub struct CellPyramid {
    /// The cells, of the whole field.
    pub grid: CellGrid,
    /// The levels of the pyramid; the last one is a single cell.
    pub levels: Vec<Level>,
    /// The index of its first word in the memory of all grids.
    pub first_word: usize,
}

/// The first level alone: the cells of a mosaic.
pub fn one_level(size: [usize; 2]) -> Vec<Level> {
    vec![Level { first: 0, size }]
}

/// The levels above cells in so many columns and rows, with theirs.
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
    /// Grids with these levels, one behind the other in memory.
    pub fn all(grids: Vec<CellGrid>, levels: impl Fn([usize; 2]) -> Vec<Level>) -> Vec<Self> {
        let mut first_word = 0;
        let place = |grid: CellGrid| {
            let pyramid = Self { levels: levels(grid.cells.map(|count| count as usize)), grid, first_word };
            first_word += pyramid.words();
            pyramid
        };
        grids.into_iter().map(place).collect()
    }

    /// Words of memory for its cells.
    pub fn words(&self) -> usize {
        let Level { first, size: [columns, rows] } = self.levels[self.levels.len() - 1];
        (first + columns * rows) * self.grid.channels.len()
    }

    /// Spreads the cells of the first level over those that count less, through the other levels. Then each is an estimate.
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
        // No weights are left in the last level either.
        let last = self.levels[self.levels.len() - 1].first * channels;
        cells[last..last + channels].iter_mut().for_each(|cell| *cell = value(*cell));
    }

    /// The rows of cells that a row of the field is between: the first of them, and how much the second counts of [`Self::parts`].
    pub fn cell_rows(&self, row: u32) -> (i64, u32) {
        let distance = self.beyond_centre(1, row);
        (distance >> self.parts().trailing_zeros(), (distance & (self.parts() - 1)) as u32)
    }

    /// In so many parts the distance between the centres of two cells is divided: halves of a luma sample. A power of two.
    pub fn parts(&self) -> i64 {
        2 * i64::from(self.grid.side)
    }

    /// How far beyond the centre of the first cell the centre of a sample is, in [`Self::parts`].
    fn beyond_centre(&self, axis: usize, sample: u32) -> i64 {
        let (unit, first) = (self.grid.unit_log2[axis], self.grid.placement.first()[axis]);
        2 * ((i64::from(sample) << unit) + i64::from(first)) + (1 << unit) - i64::from(self.grid.side)
    }

    /// Estimates times [`Self::parts`] of all channels at some samples, from one row of cells that are spread; beyond the grid its edge
    /// repeats. Two such rows times what they count add up to estimates times the square of that.
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
        // Both are powers of two.
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

/// Makes each cell of a level of the up to four cells that it is over.
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
                // Where no cell counts, the value is that of the first one. Without a division of variables if all count wholly.
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

/// Makes estimates of the cells of a level: what a cell does not count is bilinear between the estimates of the level above.
fn fill_in(cells: &mut [u32], [columns, rows]: [usize; 2], above: &[u32], size: [usize; 2], channels: usize) {
    // A cell lies a quarter beside the centre of the one above it: the next one on that side counts a quarter.
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
