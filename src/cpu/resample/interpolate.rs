// SPDX-License-Identifier: MPL-2.0
//! Interpolates a plane from the small plane: columns into one row for each phase, then the rows of these.

use std::ops::Range;

use super::columns_up::{columns_up, sum_columns};
use super::row_format::RowFormat;
use super::rows_up::RowsUp;
use super::{BIAS, SLACK};
use crate::cpu::plain::{view, view_mut};
use crate::cpu::plane_rows::{DestinationRows, SourceRows};
use crate::cpu::scratch::Scratch;
use crate::cpu::simd::Simd;
use crate::cpu::weights::PhaseWeights;
use crate::filter::operation::Resampling;
use crate::filter::plane::{HostPlane, HostPlaneMut};
use crate::filter::regions::Rect;
use crate::filter::wide::PHASE_TAPS;

/// An interpolation, ready to be executed.
pub struct Interpolation {
    source: HostPlane,
    destination: HostPlaneMut,
    rows: RowsUp,
    /// Along columns; empty for a factor of one.
    phases: &'static [PhaseWeights],
    small_pixels: usize,
    /// Samples from the first one to the end of a row of the small plane.
    readable: usize,
    small_rows: usize,
    output_rows: usize,
}

impl Interpolation {
    /// A rectangle of the output that begins at multiples of the factors, so that its first sample is interpolated with the taps
    /// of phase 0: an interpolation of smaller planes. `source` and `destination` hold the rows of the resampling's views.
    pub fn new(resampling: &Resampling, rect: Rect, source: HostPlane, destination: HostPlaneMut) -> Self {
        let [small, mut layout] = [resampling.source, resampling.destination].map(|view| view.field.layout);
        let [across, down] = resampling.factors;
        let (x, width) = match resampling.is_by_pairs() {
            true => (rect.x() / 2, rect.width().div_ceil(2)),
            false => (rect.x(), rect.width()),
        };
        debug_assert!(x.is_multiple_of(across.get()) && rect.y().is_multiple_of(down.get()), "{rect:?}");
        let (first_row, first_byte) = (rect.y() / down.get(), (x / across.get()) as usize * small.pixel_bytes());
        layout.width = rect.width();
        let format = RowFormat::new(&layout, resampling.channels).with_whole_pairs();
        Self {
            source: source.from_row(first_row as usize).from_byte(first_byte),
            destination: destination.from_row(rect.y() as usize).from_byte(x as usize * format.pixel_bytes()),
            rows: RowsUp::new(format, PhaseWeights::of(across)),
            phases: PhaseWeights::of(down),
            small_pixels: across.decimated(width) as usize,
            readable: (small.width - x / across.get()) as usize * format.channels,
            small_rows: down.decimated(rect.height()) as usize,
            output_rows: rect.height() as usize,
        }
    }

    /// Its parts: this many, or fewer if they would be too small.
    pub fn blocks(&self, count: usize) -> impl Iterator<Item = InterpolationBlock<'_>> {
        const TAPS: usize = 8;
        let work = self.rows.format.samples() * self.output_rows * TAPS;
        let step = self.phases.len().max(1);
        let blocks = super::blocks(self.output_rows, step, step, work, count);
        blocks.map(|rows| InterpolationBlock { interpolation: self, rows })
    }

    /// Samples in a row of the small plane.
    fn small_samples(&self) -> usize {
        self.small_pixels * self.rows.format.channels
    }

    /// Words for a row between the steps.
    fn middle_words(&self) -> usize {
        (self.small_samples() + 2 * SLACK).div_ceil(2).next_multiple_of(16)
    }

    /// Words of scratch memory for a block: a row between the steps for each phase, and an output row that is not dense.
    pub fn scratch_words(&self) -> usize {
        let output = (self.rows.format.samples() + SLACK).div_ceil(2).next_multiple_of(16);
        self.phases.len().max(1) * self.middle_words() + output
    }
}

/// Output rows that one thread computes.
pub struct InterpolationBlock<'a> {
    pub interpolation: &'a Interpolation,
    rows: Range<usize>,
}

impl InterpolationBlock<'_> {
    /// Computes the block. `scratch` was reserved for [`Interpolation::scratch_words`].
    ///
    /// # Safety
    /// The planes of the interpolation hold the rows of its views. Nobody writes the source, and nobody else accesses the
    /// samples of the block's rows in the destination.
    #[inline(always)]
    pub unsafe fn execute<S: Simd>(&self, simd: S, scratch: &mut Scratch) {
        let Interpolation { rows: RowsUp { phases, format, .. }, readable, .. } = self.interpolation;
        // SAFETY: the rows of the source have `readable` samples of 2 bytes, and the caller guarantees the rest.
        let source = unsafe { SourceRows::new(self.interpolation.source, 2 * readable) };
        // SAFETY: a row has this many bytes. Of a row that is not dense only the samples are accessed, as cells. The caller
        // guarantees the rest.
        let destination = unsafe { DestinationRows::new(self.interpolation.destination, 0..format.row_bytes()) };
        match phases.len() {
            0 => self.columns_only(simd, source, destination, scratch),
            _ => self.both(simd, source, destination, scratch),
        }
    }

    /// The rows of the small plane from `first` on that a row is computed from; beyond the last one, that one.
    fn small_rows<'r>(&self, source: SourceRows<'r>, first: usize) -> [&'r [u16]; PHASE_TAPS] {
        std::array::from_fn(|k| source.row((first + k).min(self.interpolation.small_rows - 1)))
    }

    /// Both steps, or the rows step alone.
    #[inline(always)]
    fn both<S: Simd>(&self, simd: S, source: SourceRows, mut destination: DestinationRows, scratch: &mut Scratch) {
        let interpolation = self.interpolation;
        let (samples, middle_words) = (interpolation.small_samples(), interpolation.middle_words());
        let down = interpolation.phases.len().max(1);
        // A row between the steps for each phase, and an output row that is not dense.
        let (middle, line) = scratch.words().split_at_mut(down * middle_words);
        let line = view_mut::<u32, u8>(line);
        let order = interpolation.rows.order::<S>();
        for y in self.rows.clone().step_by(down) {
            let rows = self.small_rows(source, y / down);
            if down == 1 {
                for (to, from) in view_mut::<u32, u16>(middle).iter_mut().zip(&rows[0][..samples]) {
                    *to = from ^ BIAS;
                }
            } else {
                columns_up(simd, interpolation.phases, rows, samples, middle, middle_words);
            }
            for (y, middle) in (y..self.rows.end).zip(middle.chunks_exact(middle_words)) {
                let (format, middle) = (&interpolation.rows.format, view(middle));
                if format.is_dense() {
                    interpolation.rows.interpolate(simd, &order, middle, destination.row(y));
                } else {
                    interpolation.rows.interpolate(simd, &order, middle, line);
                    format.scatter(line, destination.cells(y));
                }
            }
        }
    }

    /// The columns step alone, which then writes the output.
    #[inline(always)]
    fn columns_only<S: Simd>(
        &self,
        simd: S,
        source: SourceRows,
        mut destination: DestinationRows,
        scratch: &mut Scratch,
    ) {
        let down = self.interpolation.phases.len();
        let RowsUp { format, initial, .. } = &self.interpolation.rows;
        let samples = self.interpolation.small_samples();
        let bytes = if format.is_bytes() { 1 } else { 2 };
        let line_bytes = 4 * self.interpolation.middle_words();
        // A row for each phase, with room for whole vectors.
        let lines = view_mut::<u32, u8>(scratch.words());
        for y in self.rows.clone().step_by(down) {
            let rows = self.small_rows(source, y / down);
            sum_columns(simd, self.interpolation.phases, rows, samples, (format, initial), lines, line_bytes);
            for (y, line) in (y..self.rows.end).zip(lines.chunks_exact_mut(line_bytes).take(down)) {
                if format.samples() > samples {
                    // The luma beyond an odd width.
                    line[samples] = line[samples - 1];
                }
                if format.is_dense() {
                    destination.row(y).copy_from_slice(&line[..bytes * samples]);
                } else {
                    format.scatter(line, destination.cells(y));
                }
            }
        }
    }
}
