// SPDX-License-Identifier: MPL-2.0
//! Soft covers: a cover is mixed into the picture by weights, and so is what a picture shows without its objects before it is blurred.
//! Row by row, in loops that the compiler vectorises for the instruction set into whose functions they are inlined.

use std::iter::StepBy;
use std::ops::Range;

use crate::filter::frame::{Field, PlaneLayout};
use crate::filter::inpainting::{self, InpaintedGrid};
use crate::filter::picture::FieldRect;
use crate::filter::plane::{HostPlane, HostPlaneMut};
use crate::filter::regions::Rect;
use crate::filter::samples::channels;
use crate::filter::weights::Weights;

/// Rows that a thread takes at a time.
const ROWS: usize = 16;

/// Pixels of a row that are mixed together, or not.
const RUN: usize = 64;

/// The weights of the samples of a plane.
#[derive(Clone, Copy)]
pub struct SampleWeights<'a> {
    weights: &'a Weights,
    /// Of the plane.
    layout: PlaneLayout,
    /// log2 of the luma samples that a sample stands for, along x and y.
    shift: [u32; 2],
}

/// Memory for the weights of a row.
#[derive(Default)]
struct WeightBuffers {
    between: Vec<u16>,
    samples: [Vec<u8>; 3],
}

impl<'a> SampleWeights<'a> {
    pub fn new(weights: &'a Weights, layout: PlaneLayout, shift: [u32; 2]) -> Self {
        Self { weights, layout, shift }
    }

    /// The rows of luma that a row of the plane stands for: those of its field. The last row stands for all that are left, and the
    /// only one for all.
    fn luma_rows(&self, y: usize) -> StepBy<Range<usize>> {
        let (height, rows, down) = (self.weights.size().1 as usize, self.layout.height as usize, self.shift[1]);
        let fields = if self.layout.interlaced && rows > 1 { 2 } else { 1 };
        let (first, row) = (y % fields, y / fields);
        let start = (first + fields * (row << down)).min(height - 1);
        let end = if y + fields >= rows { height } else { height.min(first + fields * ((row + 1) << down)) };
        (start..end.max(start + 1)).step_by(fields)
    }

    /// The columns of luma that columns of the plane stand for; the last one stands for all that are left.
    fn luma_columns(&self, columns: &Range<usize>) -> Range<usize> {
        let (width, across) = (self.weights.size().0 as usize, self.shift[0]);
        let is_last = columns.end >= self.layout.width as usize;
        (columns.start << across).min(width - 1)..if is_last { width } else { (columns.end << across).min(width) }
    }

    /// Where weights of these rows of the plane are above 0.
    fn covered_columns(&self, rows: &Range<usize>) -> CoveredColumns {
        // Either field may have the first or the last row.
        let ends = [rows.start, rows.start + 1, rows.end - 1, rows.end.saturating_sub(2)];
        let ends = ends.into_iter().filter(|y| rows.contains(y)).flat_map(|y| self.luma_rows(y));
        let (first, last) = ends.fold((usize::MAX, 0), |(first, last), y| (first.min(y), last.max(y)));
        CoveredColumns { nodes: self.weights.node_bits(first..last + 1), cell: self.weights.cell() as usize }
    }

    /// The weights of pixels of a row of the plane: of each the largest of the luma samples that it stands for.
    #[inline(always)]
    fn of_row<'b>(&self, y: usize, columns: &Range<usize>, buffers: &'b mut WeightBuffers) -> &'b [u8] {
        let of_luma = self.luma_columns(columns);
        let cell = self.weights.cell() as usize;
        let first = of_luma.start / cell * cell;
        let WeightBuffers { between, samples: [largest, row, of_pixels] } = buffers;
        largest.resize(of_luma.end - first, 0);
        row.resize(of_luma.end - first, 0);
        let mut rows = self.luma_rows(y);
        let first_row = rows.next().expect("a row of a plane stands for a row of luma");
        self.weights.row_from(first as u32, first_row as u32, between, largest);
        for y in rows {
            self.weights.row_from(first as u32, y as u32, between, row);
            largest.iter_mut().zip(&*row).for_each(|(largest, weight)| *largest = (*largest).max(*weight));
        }
        let luma = &largest[of_luma.start - first..];
        let across = self.shift[0];
        if across == 0 && luma.len() >= columns.len() {
            return &luma[..columns.len()];
        }
        of_pixels.resize(luma.len() >> across, 0);
        if across == 1 {
            // Not `extend`, which is not vectorised for the instruction set.
            let pairs = luma.as_chunks::<2>().0;
            of_pixels.iter_mut().zip(pairs).for_each(|(to, [one, other])| *to = *(one.max(other)));
        } else {
            let luma = luma.chunks(1 << across).map(|luma| luma.iter().copied().fold(0, u8::max));
            of_pixels.iter_mut().zip(luma).for_each(|(to, weight)| *to = weight);
        }
        // The luma beyond an odd width of packed 4:2:2 repeats the last one.
        of_pixels.resize(columns.len(), luma[luma.len() - 1]);
        if across > 0 && columns.end >= self.layout.width as usize {
            let last = columns.len() - 1;
            of_pixels[last] = luma[(last << across).min(luma.len() - 1)..].iter().copied().fold(0, u8::max);
        }
        of_pixels
    }

    /// The columns that have weights in pixels: of packed 4:2:2 two in each.
    fn columns(&self, pixels: &Range<usize>) -> Range<usize> {
        let unit = self.layout.unit_pixels() as usize;
        unit * pixels.start..unit * pixels.end
    }

    /// Writes the weights of the samples of a rectangle, in a row of samples that begins at pixel `first`: 0 of
    /// channels that keep their values.
    #[inline(always)]
    fn expand(&self, rect: Rect, passthrough_mask: u32, first: usize, of_pixels: &[u8], of_samples: &mut [u8]) {
        let layout = &self.layout;
        let keeps = |channel: usize| passthrough_mask >> channel & 1 == 1;
        if layout.is_packed_422() {
            for channel in channels(layout).filter(|channel| !keeps(channel.first)) {
                for x in channel.covered(layout, rect) {
                    let pixel = ((x as usize) << channel.shift) - first;
                    let weights = &of_pixels[pixel..][..1 << channel.shift];
                    let index = first / 2 * 4;
                    of_samples[channel.first + x as usize * channel.step - index] =
                        weights.iter().copied().fold(0, u8::max);
                }
            }
            return;
        }
        let (count, columns) = (usize::from(layout.channels), rect.x() as usize - first..rect.right() as usize - first);
        let weights = &of_pixels[columns.clone()];
        let samples = &mut of_samples[columns.start * count..columns.end * count];
        match count {
            1 => samples.copy_from_slice(weights),
            2 => repeat::<2>(weights, samples),
            3 => repeat::<3>(weights, samples),
            _ => repeat::<4>(weights, samples),
        }
        if passthrough_mask > 0 {
            for pixel in samples.chunks_mut(count) {
                pixel.iter_mut().enumerate().filter(|(c, _)| keeps(*c)).for_each(|(_, weight)| *weight = 0);
            }
        }
    }
}

/// Cells of a plane.
pub struct Cells<'a> {
    pub grids: Vec<&'a InpaintedGrid>,
    /// The memory of all grids of the picture.
    pub memory: *mut u32,
}

/// Two rows of the cells of each grid, expanded to samples of a row.
#[derive(Default)]
struct CellLines {
    /// The pixels whose samples they have.
    pixels: Range<usize>,
    /// Of each grid the first of the two, and the samples of both.
    of_grids: Vec<(Option<i64>, [Vec<u32>; 2])>,
}

/// What is mixed into a plane.
pub enum CoverSamples<'a> {
    /// The samples of another plane of the same layout.
    Plane(HostPlane),
    /// What the picture shows without its objects, mixed into a copy of the plane.
    Inpainted { source: HostPlane, cells: Cells<'a> },
}

/// Where weights are above 0.
#[derive(Clone, Copy, PartialEq)]
enum Covered {
    Nowhere,
    Partly,
    /// Everywhere, and they are 255.
    Wholly,
}

/// Where weights of some rows are above 0.
struct CoveredColumns {
    /// The bits of the nodes around them in each column of nodes: those that any has, and those that all have.
    nodes: [Vec<u8>; 2],
    /// Luma samples from one column to the next.
    cell: usize,
}

impl CoveredColumns {
    /// Where weights of luma samples are above 0. The answer is `Partly`, too, if all are 0 or 255, but not all nodes around them.
    fn of(&self, columns: Range<usize>) -> Covered {
        if columns.is_empty() {
            return Covered::Nowhere;
        }
        let [any, all] = &self.nodes;
        let nodes = columns.start / self.cell..((columns.end - 1) / self.cell + 2).min(any.len());
        let any = any[nodes.clone()].iter().fold(0, |any, bits| any | bits);
        let all = all[nodes].iter().fold(255, |all, bits| all & bits);
        match (any, all) {
            (0, _) => Covered::Nowhere,
            (_, 255) => Covered::Wholly,
            _ => Covered::Partly,
        }
    }
}

/// Pixels side by side that are mixed, copied or kept together.
struct Run {
    pixels: Range<usize>,
    covered: Covered,
    /// Indices of the rectangles that they are in, among those of the row.
    rects: Range<usize>,
}

/// Mixes a cover into a plane.
pub struct Mix<'a> {
    pub weights: SampleWeights<'a>,
    pub cover: CoverSamples<'a>,
    pub to: HostPlaneMut,
    /// What is covered of the plane.
    pub covered: Vec<FieldRect>,
    /// Bit c: channel c keeps its value.
    pub passthrough_mask: u32,
}

/// Computes the cells of a field of a plane.
pub struct CellMeans<'a> {
    pub weights: SampleWeights<'a>,
    pub source: HostPlane,
    pub cells: Cells<'a>,
}

/// An operation of a soft cover.
pub enum SoftOperation<'a> {
    CellMeans(CellMeans<'a>),
    /// Makes estimates of the cells of a grid, in the memory of all grids.
    Spread {
        grid: &'a InpaintedGrid,
        memory: *mut u32,
    },
    Mix(Mix<'a>),
}

/// Rows that one thread processes, of samples or of cells.
pub struct SoftBlock<'a> {
    operation: &'a SoftOperation<'a>,
    rows: Range<usize>,
}

impl SoftOperation<'_> {
    /// Its parts.
    pub fn blocks(&self) -> impl Iterator<Item = SoftBlock<'_>> + use<'_> {
        let (rows, step) = match self {
            Self::Mix(Mix { covered, .. }) => {
                (extent_of(covered.iter()).map(|[_, rows]| rows).unwrap_or_default(), ROWS)
            }
            Self::CellMeans(CellMeans { cells, .. }) => {
                (0..cells.grids.first().map_or(0, |inpainted| inpainted.grid.cells[1] as usize), 1)
            }
            Self::Spread { .. } => (0..1, 1),
        };
        let end = rows.end;
        rows.step_by(step).map(move |y| SoftBlock { operation: self, rows: y..(y + step).min(end) })
    }
}

impl SoftBlock<'_> {
    /// Processes the rows.
    ///
    /// # Safety
    /// The planes of the operation hold the rows that it accesses. No other thread writes what it reads, or accesses the block's rows
    /// of the plane that it writes.
    #[inline(always)]
    pub unsafe fn execute(&self) {
        match self.operation {
            // SAFETY: the caller promises it.
            SoftOperation::Mix(mix) => unsafe { mix.execute(self.rows.clone()) },
            // SAFETY: the caller promises it.
            SoftOperation::CellMeans(means) => unsafe { means.execute(self.rows.start) },
            SoftOperation::Spread { grid, memory } => {
                // SAFETY: the memory has the cells of all grids, and nobody else accesses those of this one, as the caller promises.
                let cells = unsafe { std::slice::from_raw_parts_mut(memory.add(grid.first_word), grid.words()) };
                grid.spread(cells);
            }
        }
    }
}

impl Mix<'_> {
    /// # Safety
    /// See [`SoftBlock::execute`].
    #[inline(always)]
    unsafe fn execute(&self, rows: Range<usize>) {
        let layout = self.weights.layout;
        let [mut expanded, mut composed] = [const { Vec::new() }; 2];
        let (mut rects, mut of_row, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        let mut lines = CellLines::default();
        let mut buffers = WeightBuffers::default();
        for y in rows.clone() {
            of_row.clear();
            for FieldRect { field, rect } in &self.covered {
                let row = (y / field.step) as u32;
                if y % field.step == field.first_row && (rect.y()..rect.bottom()).contains(&row) {
                    of_row.push(*rect);
                }
            }
            if of_row != rects {
                rects.clone_from(&of_row);
                runs = self.runs(&rects, &rows);
                let covered = runs.iter().filter(|run| run.covered != Covered::Nowhere).map(|run| run.pixels.clone());
                lines = CellLines::default();
                lines.pixels = covered.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or_default();
            }
            for Run { pixels, covered, rects: of_run } in &runs {
                let bytes = pixels.start * layout.pixel_bytes()..pixels.end * layout.pixel_bytes();
                // SAFETY: the plane holds the row, which nobody else accesses, as the caller promises.
                let to = unsafe { std::slice::from_raw_parts_mut(self.to.row(y).add(bytes.start), bytes.len()) };
                // SAFETY: the planes hold the row, which nobody writes, as the caller promises.
                let row = |plane: &HostPlane| unsafe {
                    std::slice::from_raw_parts(plane.row(y).add(bytes.start), bytes.len())
                };
                let cover = match (&self.cover, covered) {
                    (CoverSamples::Plane(_), Covered::Nowhere) => continue,
                    (CoverSamples::Plane(cover), Covered::Partly) => row(cover),
                    (CoverSamples::Plane(cover), Covered::Wholly) => {
                        to.copy_from_slice(row(cover));
                        continue;
                    }
                    (CoverSamples::Inpainted { source, .. }, Covered::Nowhere) => {
                        to.copy_from_slice(row(source));
                        continue;
                    }
                    (CoverSamples::Inpainted { source, cells }, Covered::Partly) => {
                        to.copy_from_slice(row(source));
                        composed.resize(to.len(), 0);
                        // SAFETY: nobody writes the cells, as the caller promises.
                        unsafe { cells.compose(&layout, y, pixels.clone(), &mut lines, &mut composed) };
                        &composed
                    }
                    (CoverSamples::Inpainted { cells, .. }, Covered::Wholly) => {
                        // SAFETY: as above.
                        unsafe { cells.compose(&layout, y, pixels.clone(), &mut lines, to) };
                        continue;
                    }
                };
                let columns = self.weights.columns(pixels);
                let of_pixels = self.weights.of_row(y, &columns, &mut buffers);
                let of_samples = if layout.channels == 1 && self.passthrough_mask == 0 {
                    of_pixels
                } else {
                    expanded.clear();
                    expanded.resize(pixels.len() * usize::from(layout.channels), 0);
                    for rect in &rects[of_run.clone()] {
                        let [left, right] = [rect.x().max(columns.start as u32), rect.right().min(columns.end as u32)];
                        if let Some(rect) = Rect::between([left, right], [rect.y(), rect.bottom()]) {
                            self.weights.expand(rect, self.passthrough_mask, columns.start, of_pixels, &mut expanded);
                        }
                    }
                    &expanded
                };
                mix(&layout, to, cover, of_samples);
            }
        }
    }

    /// The runs of a row with these rectangles, of some rows.
    fn runs(&self, rects: &[Rect], rows: &Range<usize>) -> Vec<Run> {
        let layout = &self.weights.layout;
        // Mixing clears padding bits, which a copy of the cover would keep.
        let is_exact = match &self.cover {
            CoverSamples::Plane(_) => layout.depth == 8,
            CoverSamples::Inpainted { .. } => true,
        };
        let is_copied = is_exact && self.passthrough_mask == 0;
        let covered = self.weights.covered_columns(rows);
        let mut runs: Vec<Run> = Vec::new();
        // Rectangles of packed 4:2:2 may share a pair.
        let together = if layout.is_packed_422() { rects.len().max(1) } else { 1 };
        for first in (0..rects.len()).step_by(together) {
            let of_run = first..first + together;
            let hull = rects[of_run.clone()].iter().copied().reduce(Rect::hull).expect("there are rectangles");
            let pixels = layout.columns(hull);
            for start in pixels.clone().step_by(RUN) {
                let pixels = start as usize..pixels.end.min(start + RUN as u32) as usize;
                let columns = self.weights.columns(&pixels);
                let is_in = |rect: &Rect| rect.x() as usize <= columns.start && columns.end <= rect.right() as usize;
                let covered = match covered.of(self.weights.luma_columns(&columns)) {
                    Covered::Wholly if !is_copied || !rects[of_run.clone()].iter().any(is_in) => Covered::Partly,
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

impl Cells<'_> {
    /// The estimates of pixels of a row in the layout of the plane. `lines` are for these pixels, and new or what the row before left.
    ///
    /// # Safety
    /// The memory has the cells of all grids, and nobody writes them meanwhile.
    #[inline(always)]
    unsafe fn compose(
        &self,
        layout: &PlaneLayout,
        y: usize,
        pixels: Range<usize>,
        lines: &mut CellLines,
        to: &mut [u8],
    ) {
        let CellLines { pixels: of_lines, of_grids } = lines;
        of_grids.resize_with(self.grids.len(), Default::default);
        // Luma and chroma of packed 4:2:2 have grids of their own, and alternate.
        let step = layout.unit_pixels() as usize;
        for (inpainted, (of_samples, samples)) in self.grids.iter().zip(of_grids) {
            let (grid, Field { first_row, step: row_step, .. }) = (&inpainted.grid, inpainted.grid.field);
            if y % row_step != first_row % row_step {
                continue;
            }
            let (above, of_below) = inpainted.cell_rows(((y - first_row) / row_step) as u32);
            if *of_samples != Some(above) {
                // SAFETY: the memory has the cells, and nobody writes them, as the caller promises.
                let cells = unsafe {
                    std::slice::from_raw_parts(self.memory.add(inpainted.first_word).cast_const(), inpainted.words())
                };
                *of_samples = Some(above);
                let of_pixel = usize::from(layout.channels) / grid.channels[0].step;
                for (row, samples) in (above..).zip(&mut *samples) {
                    let columns = of_lines.start * of_pixel..of_lines.end * of_pixel;
                    inpainted.expand(cells, row, &columns, samples);
                }
            }
            let parts = inpainted.parts() as u32;
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

#[inline(always)]
fn repeat<const COUNT: usize>(weights: &[u8], samples: &mut [u8]) {
    samples
        .as_chunks_mut::<COUNT>()
        .0
        .iter_mut()
        .zip(weights)
        .for_each(|(samples, weight)| *samples = [*weight; COUNT]);
}

/// `(weight · cover + (255 - weight) · sample + 127) / 255` of each sample; one of weight 0 keeps its bytes.
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
            // Below 2^16, where this division by 255 is exact.
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

impl CellMeans<'_> {
    /// # Safety
    /// See [`SoftBlock::execute`].
    #[inline(always)]
    unsafe fn execute(&self, cell_row: usize) {
        let layout = self.weights.layout;
        let Some(InpaintedGrid { grid, .. }) = self.cells.grids.first() else { return };
        let (Field { first_row, step, .. }, rows) = (grid.field, grid.samples(1, cell_row as u32));
        let row_of = |row: u32| first_row + row as usize * step;
        let (samples, pixel_step) = (layout.row_samples(), grid.channels[0].step);
        let of_rows = || self.weights.covered_columns(&(row_of(rows.start)..row_of(rows.end - 1) + 1));
        let covered = (!rows.is_empty()).then(of_rows);
        // Of each cell its samples in a row and where they are left out. The grids of a plane have cells of the same luma samples.
        let of_cell = |cell: u32| {
            let columns = grid.samples(0, cell);
            let columns = columns.start as usize..columns.end as usize;
            let of_luma = if columns.is_empty() { 0..0 } else { self.weights.luma_columns(&columns) };
            let covered = covered.as_ref().map_or(Covered::Nowhere, |covered| covered.of(of_luma));
            let end = if cell + 1 == grid.cells[0] { samples } else { columns.end * pixel_step };
            (columns.start * pixel_step..end, covered)
        };
        let of_cells: Vec<(Range<usize>, Covered)> = (0..grid.cells[0]).map(of_cell).collect();
        // Of all rows of the cells, for each sample of a row. Where no weight counts, bytes have sums in place of remainders, as 16 bits
        // are enough for 128 rows.
        let are_bytes = layout.depth == 8;
        let (mut sums, mut remainders) = (vec![0_u32; samples], vec![0_u16; samples]);
        let mut expanded = vec![0; samples];
        let mut buffers = WeightBuffers::default();
        // Samples of a column that has weights.
        let column_samples = samples / self.weights.columns(&(0..layout.row_pixels())).end;
        let mut first_bytes: &[u8] = &[];
        for row in rows.clone() {
            let y = row_of(row);
            // SAFETY: the plane holds the row, which nobody writes, as the caller promises.
            let bytes = unsafe { std::slice::from_raw_parts(self.source.row(y), layout.row_bytes()) };
            first_bytes = if row == rows.start { bytes } else { first_bytes };
            for alike in of_cells.chunk_by(|one, other| one.1 == other.1) {
                let of_row = alike[0].0.start..alike[alike.len() - 1].0.end;
                let row = &bytes[of_row.start * layout.row_bytes() / samples..];
                let (sums, remainders) = (&mut sums[of_row.clone()], &mut remainders[of_row.clone()]);
                match alike[0].1 {
                    Covered::Wholly => (),
                    Covered::Nowhere if are_bytes => {
                        remainders.iter_mut().zip(row).for_each(|(sum, sample)| *sum += u16::from(*sample));
                    }
                    Covered::Nowhere => each_sample(&layout, row, sums.iter_mut(), |sum, sample| *sum += sample),
                    Covered::Partly => {
                        let columns = of_row.start / column_samples..of_row.end / column_samples;
                        let of_pixels = self.weights.of_row(y, &columns, &mut buffers);
                        let [left, right] = [columns.start as u32, layout.width.min(columns.end as u32)];
                        let rect = Rect::between([left, right], [0, 1]).expect("a cell that has weights has samples");
                        self.weights.expand(rect, 0, columns.start, of_pixels, &mut expanded[..of_row.len()]);
                        let totals = sums.iter_mut().zip(remainders).zip(&expanded);
                        each_sample(&layout, row, totals, |((sum, all), excluded), sample| {
                            let remainder = u16::from(255 - excluded);
                            *sum += u32::from(remainder) * sample;
                            *all += remainder;
                        });
                    }
                }
            }
        }
        for InpaintedGrid { grid, first_word, .. } in &self.cells.grids {
            let across = grid.cells[0] as usize;
            for (column, (_, excluded)) in of_cells.iter().enumerate() {
                let columns = grid.samples(0, column as u32);
                let count = columns.len() as u64 * rows.len() as u64;
                for (index, channel) in grid.channels.iter().enumerate() {
                    let [start, end] = [columns.start, columns.end].map(|x| channel.first + x as usize * channel.step);
                    let of_row = start..end.min(samples);
                    let sum = || total(&sums[of_row.clone()], channel.step);
                    let remainders = || total(&remainders[of_row.clone()], channel.step);
                    let (sum, remainders) = match excluded {
                        Covered::Wholly => (0, 0),
                        Covered::Nowhere if are_bytes => (255 * remainders(), 255 * count),
                        Covered::Nowhere => (255 * sum(), 255 * count),
                        Covered::Partly => (sum(), remainders()),
                    };
                    let word = first_word + (cell_row * across + column) * grid.channels.len() + index;
                    let first = if count > 0 { channel.load(&layout, first_bytes, columns.start) } else { 0 };
                    // SAFETY: the memory has the cells of all grids, and nobody else accesses those of this row, as the caller
                    // promises.
                    unsafe { self.cells.memory.add(word).write(inpainting::cell(sum, remainders, count, first)) };
                }
            }
        }
    }
}

/// The sum of the values that are `step` apart.
#[inline(always)]
fn total<T: Copy + Into<u64>>(values: &[T], step: usize) -> u64 {
    if step == 1 {
        values.iter().map(|value| (*value).into()).sum()
    } else {
        values.chunks(step).map(|values| values[0].into()).sum()
    }
}

/// Calls `add` for each sample of a row, with what `totals` yields for it. The sums of 128 rows of products with weights fit in 32 bits.
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

/// The columns and rows of a plane that rectangles have.
fn extent_of<'a>(rects: impl Iterator<Item = &'a FieldRect>) -> Option<[Range<usize>; 2]> {
    let extent = |FieldRect { field, rect }: &FieldRect| {
        let row = |row: u32| field.first_row + row as usize * field.step;
        [rect.x() as usize..rect.right() as usize, row(rect.y())..row(rect.bottom() - 1) + 1]
    };
    rects.map(extent).reduce(|a, b| hull(&a, &b))
}

fn hull(a: &[Range<usize>; 2], b: &[Range<usize>; 2]) -> [Range<usize>; 2] {
    [0, 1].map(|i| a[i].start.min(b[i].start)..a[i].end.max(b[i].end))
}
