// SPDX-License-Identifier: MPL-2.0
//! Means of cells, and estimates between cells, computed row by row. The loops are inlined into functions for an instruction set,
//! for which the compiler then vectorises them.

use std::ops::Range;

use super::sample_weights::{SampleWeights, WeightBuffers, Weighting};
use crate::filter::frame::PlaneLayout;
use crate::filter::inpainting::{self, CellPyramid};
use crate::filter::plane::HostPlane;
use crate::filter::regions::Rect;

/// After this many rows, 16-bit sums of bytes are added to 32-bit sums, so that they do not overflow.
const ROWS_OF_SUMS: u32 = 128;

/// Computes the means of the cells of a field.
pub struct CellMeans<'a> {
    pub layout: PlaneLayout,
    /// The weights by which samples are left out of the means, if there are any.
    pub excluded: Option<SampleWeights<'a>>,
    pub source: HostPlane,
    /// The grids. Their columns of cells have the samples of the same pixels.
    pub grids: &'a [CellPyramid],
    /// The memory of all grids of the field.
    pub memory: *mut u32,
}

/// For each grid, the two rows of cells that a row of samples lies between, interpolated along the row.
#[derive(Default)]
pub struct CellLines {
    /// The pixels that the rows cover.
    pub pixels: Range<usize>,
    /// For each grid, the index of the first of the two rows of cells, and the interpolated samples of both.
    of_grids: Vec<(Option<i64>, [Vec<u32>; 2])>,
}

impl CellLines {
    /// Writes the estimates of these pixels of row `y` of the field, in the layout of the plane. The pixels lie in `self.pixels`.
    /// Rows of cells that an earlier call has interpolated for the same grids are reused.
    ///
    /// # Safety
    /// The memory holds the cells of all grids, and nobody writes them during the call.
    #[inline(always)]
    pub unsafe fn estimate(
        &mut self,
        (grids, memory): (&[CellPyramid], *const u32),
        layout: &PlaneLayout,
        y: usize,
        pixels: Range<usize>,
        to: &mut [u8],
    ) {
        let Self { pixels: of_lines, of_grids } = self;
        of_grids.resize_with(grids.len(), Default::default);
        // Luma and chroma of packed 4:2:2 have separate grids, and their samples alternate.
        let step = layout.unit_pixels() as usize;
        for (pyramid, (of_samples, samples)) in grids.iter().zip(of_grids) {
            let grid = &pyramid.grid;
            let (above, of_below) = pyramid.cell_rows(y as u32);
            if *of_samples != Some(above) {
                // SAFETY: the caller promises that the memory holds the cells of all grids, and that nobody writes them.
                let cells = unsafe { std::slice::from_raw_parts(memory.add(pyramid.first_word), pyramid.words()) };
                *of_samples = Some(above);
                let of_pixel = usize::from(layout.channels) / grid.channels[0].step;
                for (row, samples) in (above..).zip(&mut *samples) {
                    let columns = of_lines.start * of_pixel..of_lines.end * of_pixel;
                    pyramid.expand(cells, row, &columns, samples);
                }
            }
            let parts = pyramid.parts() as u32;
            let (of_above, half, shift) = (parts - of_below, parts * parts / 2, 2 * parts.trailing_zeros());
            let first = (pixels.start - of_lines.start) * usize::from(layout.channels) / step;
            let [above, below] = samples.each_ref().map(|line| &line[first..]);
            let estimates =
                above.iter().zip(below).map(|(above, below)| (above * of_above + below * of_below + half) >> shift);
            let first = grid.channels[0].first;
            if layout.is_packed_word() {
                let mut estimates = estimates;
                for to in to.as_chunks_mut::<4>().0 {
                    let channels = (0..4).zip(&mut estimates);
                    let word = channels.fold(0, |word, (index, estimate)| word | estimate << (10 * index));
                    to.copy_from_slice(&word.to_ne_bytes());
                }
            } else if layout.depth == 8 {
                let to = to[first % step..].iter_mut().step_by(step);
                to.zip(estimates).for_each(|(to, estimate)| *to = estimate as u8);
            } else {
                for (to, estimate) in
                    to.as_chunks_mut::<2>().0.iter_mut().skip(first % step).step_by(step).zip(estimates)
                {
                    to.copy_from_slice(&((estimate << layout.shift()) as u16).to_ne_bytes());
                }
            }
        }
    }
}

impl CellMeans<'_> {
    /// The number of rows of cells.
    pub fn rows(&self) -> usize {
        self.grids.first().map_or(0, |CellPyramid { grid, .. }| grid.cells[1] as usize)
    }

    /// The approximate number of samples in a row of cells.
    pub fn row_samples(&self) -> usize {
        let samples = |CellPyramid { grid, .. }: &CellPyramid| {
            let [columns, rows] = grid.covered.each_ref().map(ExactSizeIterator::len);
            columns * rows * grid.channels.len() / grid.cells[1] as usize
        };
        self.grids.iter().map(samples).sum()
    }

    /// Computes rows of cells.
    ///
    /// # Safety
    /// The source and the memory hold everything that is accessed. Nobody else writes the source or accesses these rows of cells.
    #[inline(always)]
    pub unsafe fn execute(&self, cell_rows: Range<usize>) {
        for cell_row in cell_rows {
            // SAFETY: the caller guarantees that the source holds the samples of this row of cells, which nobody writes, and that
            // the memory holds the row's words, which nobody else accesses.
            unsafe { self.execute_row(cell_row) };
        }
    }

    /// # Safety
    /// See [`CellMeans::execute`].
    #[inline(always)]
    unsafe fn execute_row(&self, cell_row: usize) {
        let layout = self.layout;
        let Some(CellPyramid { grid, .. }) = self.grids.first() else { return };
        let (rows, of_row) = (grid.samples(1, cell_row as u32), layout.row_samples());
        let rows = rows.start as usize..rows.end as usize;
        let excluded = self.excluded.filter(|_| !rows.is_empty());
        let covered = excluded.map(|weights| (weights, weights.weighted_columns(&rows)));
        // For each cell, the range of its samples in a row, and where they are left out. The cells of all grids have the same
        // pixels.
        let (count, pixel_step) = (grid.count[0], grid.channels[0].step);
        let of_cell = |cell: u32| {
            let columns = grid.samples(0, cell);
            let covered = covered.as_ref().map_or(Weighting::Nowhere, |(weights, covered)| {
                let columns = columns.start as usize..columns.end as usize;
                covered.of(if columns.is_empty() { 0..0 } else { weights.luma_columns(&columns) })
            });
            let is_last = cell + 1 == grid.cells[0] && columns.end == count;
            let end = if is_last { of_row } else { columns.end as usize * pixel_step };
            (columns.start as usize * pixel_step..end, covered)
        };
        let of_cells: Vec<(Range<usize>, Weighting)> = (0..grid.cells[0]).map(of_cell).collect();
        let (first, samples) = (of_cells[0].0.start, of_cells[of_cells.len() - 1].0.end);
        // For each sample of a row, the sums over the rows of the cells: `sums` of the samples times their remainders, and
        // `remainders`. For bytes of a cell without weights, `remainders` has the plain sum of the last rows, and `sums` that of
        // the rows before.
        let are_bytes = layout.depth == 8;
        let (mut sums, mut remainders) = (vec![0_u32; samples - first], vec![0_u16; samples - first]);
        let mut expanded = vec![0; samples - first];
        let mut buffers = WeightBuffers::default();
        let mut first_bytes: &[u8] = &[];
        for (index, y) in rows.clone().enumerate() {
            // SAFETY: the caller promises that the plane holds the row and that nobody writes it.
            let bytes = unsafe { std::slice::from_raw_parts(self.source.row(y), layout.row_bytes()) };
            first_bytes = if index == 0 { bytes } else { first_bytes };
            let fills_up = (index + 1).is_multiple_of(ROWS_OF_SUMS as usize);
            for alike in of_cells.chunk_by(|one, other| one.1 == other.1) {
                let in_row = alike[0].0.start..alike[alike.len() - 1].0.end;
                let row = &bytes[in_row.start * layout.row_bytes() / of_row..];
                let in_sums = in_row.start - first..in_row.end - first;
                let (sums, remainders) = (&mut sums[in_sums.clone()], &mut remainders[in_sums]);
                match (alike[0].1, &self.excluded) {
                    (Weighting::Wholly, _) => (),
                    (Weighting::Nowhere, _) if are_bytes => {
                        remainders.iter_mut().zip(row).for_each(|(sum, sample)| *sum += u16::from(*sample));
                        if fills_up {
                            sums.iter_mut().zip(remainders).for_each(|(all, sum)| {
                                *all += u32::from(*sum);
                                *sum = 0;
                            });
                        }
                    }
                    (Weighting::Partly, Some(weights)) => {
                        // The number of samples for one weight.
                        let of_column = of_row / weights.columns(&(0..layout.row_pixels())).end;
                        let columns = in_row.start / of_column..in_row.end / of_column;
                        let of_pixels = weights.of_row(y, &columns, &mut buffers);
                        let [left, right] = [columns.start as u32, layout.width.min(columns.end as u32)];
                        let rect = Rect::between([left, right], [0, 1]).expect("a cell that has weights has samples");
                        weights.expand(rect, 0, columns.start, of_pixels, &mut expanded[..in_row.len()]);
                        let totals = sums.iter_mut().zip(remainders).zip(&expanded);
                        each_sample(&layout, row, totals, |((sum, all), excluded), sample| {
                            let remainder = u16::from(255 - excluded);
                            *sum += u32::from(remainder) * sample;
                            *all += remainder;
                        });
                    }
                    _ => each_sample(&layout, row, sums.iter_mut(), |sum, sample| *sum += sample),
                }
            }
        }
        for CellPyramid { grid, first_word, .. } in self.grids {
            let across = grid.cells[0] as usize;
            for (column, (_, excluded)) in of_cells.iter().enumerate() {
                let columns = grid.samples(0, column as u32);
                let count = columns.len() as u64 * rows.len() as u64;
                for (index, channel) in grid.channels.iter().enumerate() {
                    let [start, end] = [columns.start, columns.end].map(|x| channel.first + x as usize * channel.step);
                    let in_sums = start.min(samples) - first..end.min(samples) - first;
                    let sum = || total(&sums[in_sums.clone()], channel.step);
                    let remainders = || total(&remainders[in_sums.clone()], channel.step);
                    let (sum, remainders) = match excluded {
                        Weighting::Wholly => (0, 0),
                        Weighting::Nowhere if are_bytes => (255 * (sum() + remainders()), 255 * count),
                        Weighting::Nowhere => (255 * sum(), 255 * count),
                        Weighting::Partly => (sum(), remainders()),
                    };
                    let word = first_word + (cell_row * across + column) * grid.channels.len() + index;
                    let first = if count > 0 { channel.load(&layout, first_bytes, columns.start) } else { 0 };
                    // SAFETY: the caller promises that the memory holds the cells of all grids, and that nobody else accesses
                    // those of this row.
                    unsafe { self.memory.add(word).write(inpainting::cell(sum, remainders, count, first)) };
                }
            }
        }
    }
}

/// The sum of every `step`-th value.
#[inline(always)]
fn total<T: Copy + Into<u64>>(values: &[T], step: usize) -> u64 {
    if step == 1 {
        values.iter().map(|value| (*value).into()).sum()
    } else {
        values.chunks(step).map(|values| values[0].into()).sum()
    }
}

/// Calls `add` for each sample of a row, with the next item of `totals`. The products of samples and weights, summed over 128
/// rows, fit in 32 bits.
#[inline(always)]
fn each_sample<T>(layout: &PlaneLayout, row: &[u8], totals: impl Iterator<Item = T>, add: impl Fn(T, u32)) {
    if layout.is_packed_word() {
        for (i, total) in totals.enumerate() {
            let word = &row[i / 4 * 4..][..4];
            let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            add(total, word >> (10 * (i % 4)) & if i % 4 == 3 { 3 } else { 1023 });
        }
    } else if layout.depth == 8 {
        totals.zip(row).for_each(|(total, sample)| add(total, (*sample).into()));
    } else {
        let (shift, mask) = (layout.shift(), ((1_u32 << layout.depth) - 1) as u16);
        for (total, sample) in totals.zip(row.as_chunks::<2>().0) {
            add(total, (u16::from_ne_bytes(*sample) >> shift & mask).into());
        }
    }
}
