// SPDX-License-Identifier: MPL-2.0
//! Interpolates a plane from the small plane. The columns step computes one row for each phase, and the rows step then
//! interpolates these rows.

use std::ops::Range;

use super::columns_up::{columns_up, sum_columns};
use super::row_format::RowFormat;
use super::rows_up::RowsUp;
use super::{BIAS, SLACK};
use crate::cpu::packed_taps::PhaseTaps;
use crate::cpu::scratch::Scratch;
use crate::cpu::simd::Simd;
use crate::filter::operation::Resampling;
use crate::filter::plane::{HostPlane, HostPlaneMut};
use crate::filter::regions::Rect;
use crate::filter::wide::PHASE_TAPS;

/// An interpolation with the memory of its planes.
pub struct Interpolation {
    source: HostPlane,
    destination: HostPlaneMut,
    rows: RowsUp,
    /// The phases along columns; empty for a factor of one.
    phases: &'static [PhaseTaps],
    small_pixels: usize,
    /// The number of samples from the first one to the end of a row of the small plane.
    readable: usize,
    small_rows: usize,
    pub output_rows: usize,
}

impl Interpolation {
    /// The interpolation of a rectangle of the output that begins at multiples of the factors. Its first sample is therefore in
    /// phase 0, so it is an interpolation between smaller planes. `source` and `destination` hold the rows of the resampling's
    /// views.
    pub fn new(resampling: &Resampling, rect: Rect, source: HostPlane, destination: HostPlaneMut) -> Self {
        let [small, mut layout] = [resampling.source, resampling.destination].map(|view| view.field.layout);
        let [across, down] = resampling.factors;
        let part = resampling.in_samples(rect);
        let x = part.x();
        debug_assert!(x.is_multiple_of(across.get()) && rect.y().is_multiple_of(down.get()), "{rect:?}");
        let (first_row, first_byte) = (rect.y() / down.get(), (x / across.get()) as usize * small.pixel_bytes());
        layout.width = rect.width();
        let format = RowFormat::new(&layout, resampling.channels).with_whole_pairs();
        Self {
            source: source.from_row(first_row as usize).from_byte(first_byte),
            destination: destination.from_row(rect.y() as usize).from_byte(x as usize * format.pixel_bytes()),
            rows: RowsUp::new(format, PhaseTaps::of(across)),
            phases: PhaseTaps::of(down),
            small_pixels: across.decimated(part.width()) as usize,
            readable: (small.width - x / across.get()) as usize * format.channels,
            small_rows: down.decimated(rect.height()) as usize,
            output_rows: rect.height() as usize,
        }
    }

    /// The number of rows in a block, for `count` blocks or fewer, if these would be too small.
    pub fn block_rows(&self, count: usize) -> usize {
        const TAPS: usize = 8;
        let work = self.rows.format.samples() * self.output_rows * TAPS;
        let step = self.phases.len().max(1);
        super::block_rows(self.output_rows, step, step, work, count)
    }

    /// The number of samples in a row of the small plane.
    fn small_samples(&self) -> usize {
        self.small_pixels * self.rows.format.channels
    }

    /// The words for a row between the two steps.
    fn middle_words(&self) -> usize {
        (self.small_samples() + 2 * SLACK).div_ceil(2).next_multiple_of(16)
    }

    /// The words of scratch memory for a block: a row between the steps for each phase, and an output row, for rows that are not
    /// dense.
    pub fn scratch_words(&self) -> usize {
        let output = (self.rows.format.samples() + SLACK).div_ceil(2).next_multiple_of(16);
        self.phases.len().max(1) * self.middle_words() + output
    }

    /// Computes a block of output rows.
    ///
    /// # Safety
    /// The planes hold the rows of the resampling's views. `scratch` was reserved for [`Interpolation::scratch_words`]. No other
    /// thread writes the source, or accesses the samples of the block's rows in the destination.
    #[inline(always)]
    pub unsafe fn execute<S: Simd>(&self, s: S, rows: Range<usize>, scratch: &mut Scratch) {
        // SAFETY: the caller guarantees that the planes hold their rows, that the scratch memory is reserved, and that no other
        // thread accesses the output.
        unsafe {
            match self.rows.phases.len() {
                0 => self.columns_only(s, rows, scratch),
                _ => self.both(s, rows, scratch),
            }
        }
    }

    /// The rows of the small plane from `first` on that a row is computed from. Beyond the last row, it repeats.
    fn source_rows(&self, first: usize) -> [*const u16; PHASE_TAPS] {
        std::array::from_fn(|k| self.source.row((first + k).min(self.small_rows - 1)).cast())
    }

    /// Executes both steps, or the rows step alone.
    ///
    /// # Safety
    /// See [`Interpolation::execute`].
    #[inline(always)]
    unsafe fn both<S: Simd>(&self, s: S, block: Range<usize>, scratch: &mut Scratch) {
        let Self { rows: RowsUp { format, .. }, phases, destination, .. } = self;
        let (samples, middle_words) = (self.small_samples(), self.middle_words());
        let down = phases.len().max(1);
        let words = scratch.words();
        let middle = |p: usize| words.wrapping_add(p * middle_words).cast::<u16>();
        let line = words.wrapping_add(down * middle_words).cast::<u8>();
        let order = self.rows.order::<S>();
        for y in block.clone().step_by(down) {
            let rows = self.source_rows(y / down);
            // SAFETY: the caller guarantees the planes, and `source_rows` limits rows to the small plane. The rows between the
            // steps and the output row are disjoint parts of the scratch memory, as large as `scratch_words` says. The output
            // rows are in the block.
            unsafe {
                if down == 1 {
                    let (from, to) = (rows[0], middle(0));
                    (0..samples).for_each(|x| to.add(x).write(from.add(x).read_unaligned() ^ BIAS));
                } else {
                    columns_up(s, phases, rows, [samples, self.readable], middle(0), 2 * middle_words);
                }
                for (p, y) in (y..block.end).take(down).enumerate() {
                    let row = destination.row(y);
                    let out = if format.is_dense() { row } else { line };
                    self.rows.interpolate(s, &order, middle(p), out);
                    if !format.is_dense() {
                        format.scatter(line, row);
                    }
                }
            }
        }
    }

    /// Executes the columns step alone, which then writes the output.
    ///
    /// # Safety
    /// See [`Interpolation::execute`].
    #[inline(always)]
    unsafe fn columns_only<S: Simd>(&self, s: S, block: Range<usize>, scratch: &mut Scratch) {
        let Self { rows: RowsUp { format, .. }, phases, destination, .. } = self;
        let (samples, middle_words, down) = (self.small_samples(), self.middle_words(), phases.len());
        let [right, left] = format.shifts();
        let words = scratch.words();
        let line = |p: usize| words.wrapping_add(p * middle_words).cast::<u8>();
        let bytes = if format.is_bytes() { 1 } else { 2 };
        for y in block.clone().step_by(down) {
            // SAFETY: the caller guarantees the planes, and `source_rows` limits rows to the small plane. The lines are disjoint
            // parts of the scratch memory that are large enough for whole vectors. The output rows are in the block.
            unsafe {
                let rows = self.source_rows(y / down);
                let initial = |x: usize| s.load(self.rows.initial[x % 12..].as_ptr());
                sum_columns(s, phases, rows, samples, initial, |p, x, sums| {
                    let to = line(p).add(bytes * x);
                    if bytes == 1 {
                        s.store_low8(to, s.shift_right(sums, 24));
                    } else {
                        s.store_low16(to.cast(), s.shift_left(s.shift_right(sums, right), left));
                    }
                });
                for (p, y) in (y..block.end).take(down).enumerate() {
                    let line = line(p);
                    if format.samples() > samples {
                        // The luma beyond an odd width repeats the last sample.
                        line.add(bytes * samples).copy_from(line.add(bytes * (samples - 1)), bytes);
                    }
                    if format.is_dense() {
                        destination.row(y).copy_from(line, bytes * samples);
                    } else {
                        format.scatter(line, destination.row(y));
                    }
                }
            }
        }
    }
}
