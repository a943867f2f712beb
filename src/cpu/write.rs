// SPDX-License-Identifier: MPL-2.0
//! Writes a cover to a field of a plane: writes layers over each other, or mixes them by weights with another plane. The loops
//! process row by row. They are inlined into functions for an instruction set, for which the compiler then vectorises them.

use std::ops::Range;

use super::cells::CellLines;
use super::sample_weights::{SampleWeights, WeightBuffers, Weighting};
use crate::filter::frame::PlaneLayout;
use crate::filter::inpainting::CellPyramid;
use crate::filter::operation::Pattern;
use crate::filter::plane::{HostPlane, HostPlaneMut};
use crate::filter::regions::Rect;

/// The number of adjacent pixels for which it is decided together whether they are mixed, copied or left unchanged.
const RUN: usize = 64;

/// The samples of a layer.
pub enum Samples<'a> {
    Plane(HostPlane),
    /// The means of cells: one grid for each set of channels, and the memory of all grids of the field.
    Mosaic(&'a [CellPyramid], *const u32),
    Estimates(&'a [CellPyramid], *const u32),
    Pattern(Pattern),
}

/// How layers are mixed with another plane.
pub struct Mixing<'a> {
    pub weights: SampleWeights<'a>,
    /// The plane with which layers are mixed; `None` if it is the destination.
    pub beside: Option<HostPlane>,
    /// Bit c: channel c keeps its value.
    pub passthrough_mask: u32,
}

/// Layers, each with the rectangles to which it is written.
pub struct Write<'a> {
    pub layout: PlaneLayout,
    pub layers: Vec<(Samples<'a>, &'a [Rect])>,
    pub to: HostPlaneMut,
    /// The written rectangles, which do not overlap.
    pub rects: Vec<Rect>,
    pub mixing: Option<Mixing<'a>>,
}

/// A row of a layer that is not a plane: its bytes from the first byte of the row on, and the row of cells from which they were
/// made.
type LayerRow = (Vec<u8>, Option<u32>);

/// Adjacent pixels that are all mixed, all copied or all left unchanged.
struct Run {
    pixels: Range<usize>,
    covered: Weighting,
    /// The indices of the rectangles that contain the pixels, among those of the row.
    rects: Range<usize>,
}

impl Write<'_> {
    /// The rows that are written.
    pub fn rows(&self) -> Range<usize> {
        let rows = self.rects.iter().map(|rect| rect.y() as usize..rect.bottom() as usize);
        rows.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or_default()
    }

    /// The approximate mean number of samples that are written in a row.
    pub fn row_samples(&self) -> usize {
        let area: u64 = self.rects.iter().map(|rect| rect.area()).sum();
        area as usize * usize::from(self.layout.channels) / self.rows().len().max(1)
    }

    /// Writes these rows.
    ///
    /// # Safety
    /// The planes and the cells hold everything that is accessed. No other thread writes samples that are read, or accesses these
    /// rows of the destination.
    #[inline(always)]
    pub unsafe fn execute(&self, rows: Range<usize>) {
        if let Some(mixing) = &self.mixing {
            // SAFETY: the caller guarantees that the planes and the cells hold these rows, and that no other thread accesses the
            // written ones.
            return unsafe { self.mix(mixing, rows) };
        }
        let mut of_layers: Vec<LayerRow> = self.layers.iter().map(|_| LayerRow::default()).collect();
        for y in rows {
            // SAFETY: the caller guarantees that the plane holds row `y` and that nobody else accesses it.
            let to = unsafe { std::slice::from_raw_parts_mut(self.to.row(y), self.layout.row_bytes()) };
            // SAFETY: the caller guarantees that the planes and the cells of the cover hold row `y`, and that nobody writes it.
            unsafe { self.cover_row(y, &mut of_layers, to) };
        }
    }

    /// Writes row `y` of all layers to `to`, which has the bytes of a row.
    ///
    /// # Safety
    /// The planes and the cells hold everything that is read, and nobody writes it during the call.
    #[inline(always)]
    unsafe fn cover_row(&self, y: usize, of_layers: &mut [LayerRow], to: &mut [u8]) {
        for ((samples, rects), row) in self.layers.iter().zip(of_layers) {
            for rect in rects.iter().filter(|rect| (rect.y()..rect.bottom()).contains(&(y as u32))) {
                let ranges = self.layout.byte_ranges(rect.x(), rect.right()).into_iter().map(|[from, to]| from..to);
                if let Samples::Plane(plane) = samples {
                    for bytes in ranges.filter(|bytes| !bytes.is_empty()) {
                        // SAFETY: the caller guarantees that the plane holds these bytes of the row, and that nobody writes them.
                        let from = unsafe { std::slice::from_raw_parts(plane.row(y).add(bytes.start), bytes.len()) };
                        to[bytes].copy_from_slice(from);
                    }
                    continue;
                }
                // SAFETY: the caller guarantees that the memory holds the cells of the layer, and that nobody writes them.
                unsafe { self.compose(samples, rects, y, row) };
                ranges.for_each(|bytes| to[bytes.clone()].copy_from_slice(&row.0[bytes]));
            }
        }
    }

    /// Makes row `y` of a layer that is not a plane. Does nothing if `row` already has these bytes, because an earlier row was
    /// the same.
    ///
    /// # Safety
    /// The memory holds the cells, and nobody writes them during the call.
    #[inline(always)]
    unsafe fn compose(&self, samples: &Samples, rects: &[Rect], y: usize, (row, cells): &mut LayerRow) {
        let bytes = self.layout.row_bytes();
        match samples {
            Samples::Pattern(Pattern { bytes: pattern, len }) => {
                if row.is_empty() {
                    row.extend(pattern[..*len].iter().cycle().take(bytes));
                }
            }
            Samples::Mosaic(grids, memory) => {
                let cell_row = grids[0].grid.cell_of(1, y as u32);
                if *cells == Some(cell_row) {
                    return;
                }
                *cells = Some(cell_row);
                row.resize(bytes, 0);
                for pyramid in *grids {
                    // SAFETY: the caller guarantees that `memory` holds the words of `pyramid`, which include `cell_row`, and
                    // that nobody writes them.
                    unsafe { self.compose_cells(pyramid, *memory, cell_row, row) };
                }
            }
            Samples::Estimates(grids, memory) => {
                let hull = rects.iter().copied().reduce(Rect::hull).expect("a layer has rectangles");
                let columns = self.layout.columns(hull);
                let pixels = columns.start as usize..columns.end as usize;
                row.resize(bytes, 0);
                let [start, end] = [pixels.start, pixels.end].map(|x| x * self.layout.pixel_bytes());
                let mut lines = CellLines::default();
                lines.pixels = pixels.clone();
                // SAFETY: the caller guarantees that `memory` holds the words of `grids`, and that nobody writes them.
                unsafe { lines.estimate((grids, *memory), &self.layout, y, pixels, &mut row[start..end]) };
            }
            Samples::Plane(_) => unreachable!("planes have their rows"),
        }
    }

    /// Writes the means of a row of cells to a row of samples.
    ///
    /// # Safety
    /// The memory holds the cells, and nobody writes them during the call.
    #[inline(always)]
    unsafe fn compose_cells(&self, pyramid: &CellPyramid, memory: *const u32, cell_row: u32, row: &mut [u8]) {
        let (layout, CellPyramid { grid, first_word, .. }) = (&self.layout, pyramid);
        let (across, channels) = (grid.cells[0], grid.channels.len());
        let first = first_word + (cell_row * across) as usize * channels;
        // SAFETY: the caller guarantees that `memory` holds the words of the pyramid, and that nobody writes them. These words
        // are a row of its first level.
        let means = unsafe { std::slice::from_raw_parts(memory.add(first), across as usize * channels) };
        for (cell, means) in (0..across).zip(means.chunks_exact(channels)) {
            let samples = grid.samples(0, cell);
            let columns = if samples.is_empty() { 0..0 } else { grid.written(0, &samples) };
            let Some(x) = columns.clone().next() else { continue };
            if layout.is_packed_422() {
                for (channel, mean) in grid.channels.iter().zip(means) {
                    columns.clone().for_each(|x| channel.store(layout, row, x, *mean as u16));
                }
                continue;
            }
            grid.channels.iter().zip(means).for_each(|(channel, mean)| channel.store(layout, row, x, *mean as u16));
            let bytes = layout.pixel_bytes();
            let (pixel, others) = row[x as usize * bytes..columns.end as usize * bytes].split_at_mut(bytes);
            match *pixel {
                [byte] => others.fill(byte),
                _ => others.chunks_exact_mut(bytes).for_each(|other| other.copy_from_slice(pixel)),
            }
        }
    }

    /// # Safety
    /// See [`Write::execute`].
    #[inline(always)]
    unsafe fn mix(&self, mixing: &Mixing, rows: Range<usize>) {
        let layout = self.layout;
        let [mut expanded, mut composed] = [const { Vec::new() }; 2];
        let (mut rects, mut of_row, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        let mut lines = CellLines::default();
        let mut buffers = WeightBuffers::default();
        let mut of_layers: Vec<LayerRow> = self.layers.iter().map(|_| LayerRow::default()).collect();
        for y in rows.clone() {
            of_row.clear();
            of_row.extend(self.rects.iter().filter(|rect| (rect.y()..rect.bottom()).contains(&(y as u32))));
            if of_row != rects {
                rects.clone_from(&of_row);
                runs = self.runs(mixing, &rects, &rows);
                let covered = runs.iter().filter(|run| run.covered != Weighting::Nowhere).map(|run| run.pixels.clone());
                lines = CellLines::default();
                lines.pixels = covered.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or_default();
            }
            // Anything but a single plane or estimates is composed first.
            if !matches!(self.layers[..], [(Samples::Plane(_) | Samples::Estimates(..), _)]) && !runs.is_empty() {
                composed.resize(layout.row_bytes(), 0);
                // SAFETY: the caller guarantees that the planes and the cells of the cover hold row `y`, and that nobody writes
                // it.
                unsafe { self.cover_row(y, &mut of_layers, &mut composed) };
            }
            for Run { pixels, covered, rects: of_run } in &runs {
                let bytes = pixels.start * layout.pixel_bytes()..pixels.end * layout.pixel_bytes();
                // SAFETY: the caller guarantees that the plane holds row `y` and that nobody else accesses it.
                let to = unsafe { std::slice::from_raw_parts_mut(self.to.row(y).add(bytes.start), bytes.len()) };
                // SAFETY: the caller guarantees that the planes hold row `y` and that nobody writes it.
                let row = |plane: &HostPlane| unsafe {
                    std::slice::from_raw_parts(plane.row(y).add(bytes.start), bytes.len())
                };
                if let Some(beside) = &mixing.beside
                    && *covered != Weighting::Wholly
                {
                    to.copy_from_slice(row(beside));
                }
                if *covered == Weighting::Nowhere {
                    continue;
                }
                let cover = match &self.layers[..] {
                    [(Samples::Plane(plane), _)] => row(plane),
                    [(Samples::Estimates(grids, memory), _)] => {
                        composed.resize(bytes.len(), 0);
                        let to = if *covered == Weighting::Wholly { &mut *to } else { &mut composed[..] };
                        // SAFETY: the caller guarantees that `memory` holds the words of `grids`, and that nobody writes them.
                        unsafe { lines.estimate((grids, *memory), &layout, y, pixels.clone(), to) };
                        if *covered == Weighting::Wholly {
                            continue;
                        }
                        &composed[..]
                    }
                    _ => &composed[bytes.clone()],
                };
                if *covered == Weighting::Wholly {
                    to.copy_from_slice(cover);
                    continue;
                }
                let columns = mixing.weights.columns(pixels);
                let of_pixels = mixing.weights.of_row(y, &columns, &mut buffers);
                let of_samples = if layout.channels == 1 && mixing.passthrough_mask == 0 {
                    of_pixels
                } else {
                    expanded.clear();
                    expanded.resize(pixels.len() * usize::from(layout.channels), 0);
                    for rect in &rects[of_run.clone()] {
                        let [left, right] = [rect.x().max(columns.start as u32), rect.right().min(columns.end as u32)];
                        if let Some(rect) = Rect::between([left, right], [rect.y(), rect.bottom()]) {
                            let first = columns.start;
                            mixing.weights.expand(rect, mixing.passthrough_mask, first, of_pixels, &mut expanded);
                        }
                    }
                    &expanded
                };
                mix(&layout, to, cover, of_samples);
            }
        }
    }

    /// Divides a row with these rectangles into runs that are valid for all of `rows`.
    fn runs(&self, mixing: &Mixing, rects: &[Rect], rows: &Range<usize>) -> Vec<Run> {
        let (layout, weights) = (&self.layout, &mixing.weights);
        // Mixing clears padding bits, which a copy of the cover would keep.
        let is_exact = layout.depth == 8 || matches!(self.layers[..], [(Samples::Estimates(..), _)]);
        let is_copied = is_exact && mixing.passthrough_mask == 0;
        let covered = weights.weighted_columns(rows);
        let mut runs: Vec<Run> = Vec::new();
        // Rectangles of packed 4:2:2 may share a pair of pixels, so all rectangles are processed together.
        let together = if layout.is_packed_422() { rects.len().max(1) } else { 1 };
        for first in (0..rects.len()).step_by(together) {
            let of_run = first..first + together;
            let hull = rects[of_run.clone()].iter().copied().reduce(Rect::hull).expect("there are rectangles");
            let pixels = layout.columns(hull);
            for start in pixels.clone().step_by(RUN) {
                let pixels = start as usize..pixels.end.min(start + RUN as u32) as usize;
                let columns = weights.columns(&pixels);
                let is_in = |rect: &Rect| rect.x() as usize <= columns.start && columns.end <= rect.right() as usize;
                let covered = match covered.of(weights.luma_columns(&columns)) {
                    Weighting::Wholly if !is_copied || !rects[of_run.clone()].iter().any(is_in) => Weighting::Partly,
                    covered => covered,
                };
                match runs.last_mut() {
                    Some(last) if last.covered == covered && last.rects == of_run => last.pixels.end = pixels.end,
                    _ => runs.push(Run { pixels, covered, rects: of_run.clone() }),
                }
            }
        }
        runs
    }
}

/// Sets each sample to `(weight · cover + (255 - weight) · sample + 127) / 255`. A sample with the weight 0 keeps its bytes.
#[inline(always)]
fn mix(layout: &PlaneLayout, to: &mut [u8], cover: &[u8], weights: &[u8]) {
    if layout.is_packed_word() {
        for ((to, cover), weights) in
            to.as_chunks_mut::<4>().0.iter_mut().zip(cover.as_chunks::<4>().0).zip(weights.as_chunks::<4>().0)
        {
            let (from, with) = (u32::from_ne_bytes(*to), u32::from_ne_bytes(*cover));
            let mut mixed = 0;
            for (c, weight) in weights.iter().enumerate() {
                let mask = if c == 3 { 3 } else { 1023 };
                let value = |word: u32| (word >> (10 * c)) & mask;
                mixed |= mixed_sample(value(from), value(with), *weight) << (10 * c);
            }
            *to = mixed.to_ne_bytes();
        }
    } else if layout.depth == 8 {
        for ((to, cover), weight) in to.iter_mut().zip(cover).zip(weights) {
            // All sums are below 2^16, where this division by 255 is exact.
            let weight = u16::from(*weight);
            let sum = weight * u16::from(*cover) + (255 - weight) * u16::from(*to) + 127;
            *to = ((sum + 1 + (sum >> 8)) >> 8) as u8;
        }
    } else {
        let shift = u32::from(layout.shift());
        for ((to, cover), weight) in to.as_chunks_mut::<2>().0.iter_mut().zip(cover.as_chunks::<2>().0).zip(weights) {
            let [kept, cover] = [*to, *cover].map(u16::from_ne_bytes);
            let sample = |value: u16| u32::from(value >> shift) & ((1 << layout.depth) - 1);
            let mixed = (mixed_sample(sample(kept), sample(cover), *weight) << shift) as u16;
            *to = (if *weight == 0 { kept } else { mixed }).to_ne_bytes();
        }
    }
}

#[inline(always)]
fn mixed_sample(sample: u32, cover: u32, weight: u8) -> u32 {
    let weight = u32::from(weight);
    (weight * cover + (255 - weight) * sample + 127) / 255
}
