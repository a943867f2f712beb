// SPDX-License-Identifier: MPL-2.0
//! Soft covers: a cover is mixed into the picture by weights, and so is what a picture shows without its objects before it is blurred.
//! Row by row, in loops that the compiler vectorises for the instruction set into whose functions they are inlined.

use std::iter::StepBy;
use std::ops::Range;

use super::CpuError;
use super::scratch::Extent;
use crate::filter::frame::{Field, PlaneLayout, SampleLayout};
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
pub struct SampleWeights {
    /// Of every luma sample that is needed.
    luma: HostPlane,
    /// Width and height of the picture.
    size: (u32, u32),
    /// Of the plane.
    layout: PlaneLayout,
    /// log2 of the luma samples that a sample stands for, along x and y.
    shift: [u32; 2],
}

impl SampleWeights {
    pub fn new(luma: HostPlane, size: (u32, u32), layout: PlaneLayout, shift: [u32; 2]) -> Self {
        Self { luma, size, layout, shift }
    }

    /// The rows of luma that a row of the plane stands for: those of its field. The last row stands for all that are left, and the
    /// only one for all.
    fn luma_rows(&self, y: usize) -> StepBy<Range<usize>> {
        let (height, rows, down) = (self.size.1 as usize, self.layout.height as usize, self.shift[1]);
        let fields = if self.layout.interlaced && rows > 1 { 2 } else { 1 };
        let (first, row) = (y % fields, y / fields);
        let start = (first + fields * (row << down)).min(height - 1);
        let end = if y + fields >= rows { height } else { height.min(first + fields * ((row + 1) << down)) };
        (start..end.max(start + 1)).step_by(fields)
    }

    /// The columns of luma that columns of the plane stand for; the last one stands for all that are left.
    fn luma_columns(&self, columns: &Range<usize>) -> Range<usize> {
        let (width, across) = (self.size.0 as usize, self.shift[0]);
        let is_last = columns.end >= self.layout.width as usize;
        (columns.start << across).min(width - 1)..if is_last { width } else { (columns.end << across).min(width) }
    }

    /// What luma samples are needed for these columns and rows of the plane.
    fn luma_extent(&self, columns: &Range<usize>, rows: &Range<usize>) -> [Range<usize>; 2] {
        // Either field may have the first or the last row.
        let ends = [rows.start, rows.start + 1, rows.end - 1, rows.end.saturating_sub(2)];
        let ends = ends.into_iter().filter(|y| rows.contains(y)).flat_map(|y| self.luma_rows(y));
        let (first, last) = ends.fold((usize::MAX, 0), |(first, last), y| (first.min(y), last.max(y)));
        [self.luma_columns(columns), first..last + 1]
    }

    /// The weights of pixels of a row of the plane: of each the largest of the luma samples that it stands for. They are in the plane
    /// of luma weights or in `buffers`.
    ///
    /// # Safety
    /// The plane of luma weights has them, and nobody writes them meanwhile.
    #[inline(always)]
    unsafe fn of_row<'a>(&self, y: usize, columns: &Range<usize>, buffers: &'a mut [Vec<u8>; 2]) -> &'a [u8] {
        let of_luma = self.luma_columns(columns);
        // SAFETY: the plane has the row, and nobody writes it, as the caller promises.
        let row = |y: usize| unsafe { std::slice::from_raw_parts(self.luma.row(y).add(of_luma.start), of_luma.len()) };
        let mut rows = self.luma_rows(y);
        let mut luma = row(rows.next().expect("a row of a plane stands for a row of luma"));
        let [largest, of_pixels] = buffers;
        if rows.len() > 0 {
            largest.clear();
            largest.extend_from_slice(luma);
            for y in rows {
                largest.iter_mut().zip(row(y)).for_each(|(largest, weight)| *largest = (*largest).max(*weight));
            }
            luma = largest;
        }
        let across = self.shift[0];
        if across == 0 && luma.len() >= columns.len() {
            return &luma[..columns.len()];
        }
        of_pixels.clear();
        if across == 1 {
            of_pixels.extend(luma.chunks_exact(2).map(|pair| pair[0].max(pair[1])));
        } else {
            of_pixels.extend(luma.chunks(1 << across).map(|luma| luma.iter().copied().fold(0, u8::max)));
        }
        // The luma beyond an odd width of packed 4:2:2 repeats the last one.
        of_pixels.resize(columns.len(), luma[luma.len() - 1]);
        if across > 0 && columns.end >= self.layout.width as usize {
            let last = columns.len() - 1;
            of_pixels[last] = luma[(last << across).min(luma.len() - 1)..].iter().copied().fold(0, u8::max);
        }
        of_pixels
    }

    /// The columns that have weights: of packed 4:2:2 whole pairs.
    fn all_columns(&self) -> Range<usize> {
        let is_packed = matches!(self.layout.sample_layout, SampleLayout::Yuv422 { .. });
        0..if is_packed { 2 * self.layout.row_pixels() } else { self.layout.row_pixels() }
    }

    /// Writes the weights of the samples of a rectangle, in a row of samples that begins at pixel `first`: 0 of
    /// channels that keep their values.
    #[inline(always)]
    fn expand(&self, rect: Rect, passthrough_mask: u32, first: usize, of_pixels: &[u8], of_samples: &mut [u8]) {
        let layout = &self.layout;
        let keeps = |channel: usize| passthrough_mask >> channel & 1 == 1;
        if let SampleLayout::Yuv422 { .. } = layout.sample_layout {
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

/// Samples weights at luma samples.
pub struct Sampling<'a> {
    weights: &'a Weights,
    to: HostPlaneMut,
    columns: Range<usize>,
    rows: Range<usize>,
}

impl Sampling<'_> {
    /// # Safety
    /// See [`SoftBlock::execute`].
    #[inline(always)]
    unsafe fn execute(&self, rows: Range<usize>) {
        let mut between = Vec::new();
        let cell = self.weights.cell() as usize;
        let first = self.columns.start / cell * cell;
        for y in rows {
            // SAFETY: the plane has the row, which nobody else accesses, as the caller promises.
            let to = unsafe { std::slice::from_raw_parts_mut(self.to.row(y).add(first), self.columns.end - first) };
            self.weights.row_from(first as u32, y as u32, &mut between, to);
        }
    }
}

/// Cells of a plane.
pub struct Cells<'a> {
    pub grids: Vec<&'a InpaintedGrid>,
    /// The memory of all grids of the picture.
    pub memory: *mut u32,
}

/// Two rows of the cells of a grid, expanded to the samples of a row.
#[derive(Default)]
struct CellLine {
    /// The first of the two.
    above: Option<i64>,
    samples: [Vec<u32>; 2],
}

/// What is mixed into a plane.
pub enum CoverSamples<'a> {
    /// The samples of another plane of the same layout.
    Plane(HostPlane),
    /// What the picture shows without its objects, mixed into a copy of the plane.
    Inpainted { source: HostPlane, cells: Cells<'a> },
}

/// Mixes a cover into a plane.
pub struct Mix<'a> {
    pub weights: SampleWeights,
    pub cover: CoverSamples<'a>,
    pub to: HostPlaneMut,
    /// What is covered of the plane.
    pub covered: Vec<FieldRect>,
    /// Bit c: channel c keeps its value.
    pub passthrough_mask: u32,
}

/// Computes the cells of a field of a plane.
pub struct CellMeans<'a> {
    pub weights: SampleWeights,
    pub source: HostPlane,
    pub cells: Cells<'a>,
}

/// An operation of a soft cover.
pub enum SoftOperation<'a> {
    Sampling(Sampling<'a>),
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
            Self::Sampling(sampling) => (sampling.rows.clone(), ROWS),
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
            SoftOperation::Sampling(sampling) => unsafe { sampling.execute(self.rows.clone()) },
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
        let pixel_samples = usize::from(layout.channels);
        let [mut expanded, mut composed] = [const { Vec::new() }; 2];
        let mut lines = Vec::new();
        let mut buffers = [const { Vec::new() }; 2];
        for y in rows {
            let row_rects = self.covered.iter().filter(|FieldRect { field, rect }| {
                y % field.step == field.first_row % field.step
                    && ((y - field.first_row) / field.step) as u32 >= rect.y()
                    && (((y - field.first_row) / field.step) as u32) < rect.bottom()
            });
            let rects: Vec<Rect> = row_rects.map(|covered| covered.rect).collect();
            let Some(hull) = rects.iter().copied().reduce(Rect::hull) else { continue };
            // Whole pairs of packed 4:2:2.
            let pixels = layout.columns(hull);
            let pixels = pixels.start as usize..pixels.end as usize;
            let is_packed = matches!(layout.sample_layout, SampleLayout::Yuv422 { .. });
            let columns = if is_packed { 2 * pixels.start..2 * pixels.end } else { pixels.clone() };
            // SAFETY: the luma weights of what is covered are sampled, as the caller promises.
            let of_pixels = unsafe { self.weights.of_row(y, &columns, &mut buffers) };
            let is_simple = pixel_samples == 1 && rects.len() == 1 && self.passthrough_mask == 0;
            let of_samples = if is_simple {
                of_pixels
            } else {
                expanded.clear();
                expanded.resize(pixels.len() * pixel_samples, 0);
                let mask = self.passthrough_mask;
                rects.iter().for_each(|rect| self.weights.expand(*rect, mask, columns.start, of_pixels, &mut expanded));
                &expanded
            };
            // Runs that are mixed, side by side.
            let is_mixed = |run: &[u8]| run.iter().fold(0, |all, weight| all | weight) > 0;
            if let CoverSamples::Inpainted { source, .. } = &self.cover {
                let bytes = pixels.start * layout.pixel_bytes()..pixels.end * layout.pixel_bytes();
                // SAFETY: both planes hold the row, and nobody else accesses that of the second, as the caller promises.
                unsafe {
                    let from = source.row(y).add(bytes.start);
                    from.copy_to_nonoverlapping(self.to.row(y).add(bytes.start), bytes.len());
                }
            }
            let runs: Vec<bool> = of_samples.chunks(RUN * pixel_samples).map(is_mixed).collect();
            let mut first_run = 0;
            for mixed in runs.chunk_by(|one, other| one == other) {
                let start = first_run * RUN;
                first_run += mixed.len();
                let end = (first_run * RUN).min(pixels.len());
                if !mixed[0] {
                    continue;
                }
                let run = pixels.start + start..pixels.start + end;
                let bytes = run.start * layout.pixel_bytes()..run.end * layout.pixel_bytes();
                // SAFETY: the plane holds the row, which nobody else accesses, as the caller promises.
                let to = unsafe { std::slice::from_raw_parts_mut(self.to.row(y).add(bytes.start), bytes.len()) };
                let cover = match &self.cover {
                    // SAFETY: the plane holds the row, which nobody writes, as the caller promises.
                    CoverSamples::Plane(plane) => unsafe {
                        std::slice::from_raw_parts(plane.row(y).add(bytes.start), bytes.len())
                    },
                    CoverSamples::Inpainted { cells, .. } => {
                        composed.resize(bytes.len(), 0);
                        // SAFETY: nobody writes the cells, as the caller promises.
                        unsafe { cells.compose(&layout, y, run, &mut lines, &mut composed) };
                        &composed[..]
                    }
                };
                mix(&layout, to, cover, &of_samples[start * pixel_samples..end * pixel_samples]);
            }
        }
    }
}

impl Cells<'_> {
    /// The estimates of pixels of a row in the layout of the plane. `lines` is empty, or what the row before left.
    ///
    /// # Safety
    /// The memory has the cells of all grids, and nobody writes them meanwhile.
    #[inline(always)]
    unsafe fn compose(
        &self,
        layout: &PlaneLayout,
        y: usize,
        pixels: Range<usize>,
        lines: &mut Vec<CellLine>,
        to: &mut [u8],
    ) {
        lines.resize_with(self.grids.len(), CellLine::default);
        // Luma and chroma of packed 4:2:2 have grids of their own, and alternate.
        let step = if matches!(layout.sample_layout, SampleLayout::Yuv422 { .. }) { 2 } else { 1 };
        for (inpainted, line) in self.grids.iter().zip(lines) {
            let (grid, Field { first_row, step: row_step, .. }) = (&inpainted.grid, inpainted.grid.field);
            if y % row_step != first_row % row_step {
                continue;
            }
            let (above, of_below) = inpainted.cell_rows(((y - first_row) / row_step) as u32);
            if line.above != Some(above) {
                // SAFETY: the memory has the cells, and nobody writes them, as the caller promises.
                let cells = unsafe {
                    std::slice::from_raw_parts(self.memory.add(inpainted.first_word).cast_const(), inpainted.words())
                };
                line.above = Some(above);
                for (row, samples) in (above..).zip(&mut line.samples) {
                    inpainted.expand(cells, row, layout.row_samples() / grid.channels[0].step, samples);
                }
            }
            let parts = inpainted.parts() as u32;
            let (of_above, half, shift) = (parts - of_below, parts * parts / 2, 2 * parts.trailing_zeros());
            let samples = pixels.start * usize::from(layout.channels) / step..;
            let [above, below] = line.samples.each_ref().map(|line| &line[samples.clone()]);
            let estimates =
                above.iter().zip(below).map(|(above, below)| (above * of_above + below * of_below + half) >> shift);
            match layout.sample_layout {
                SampleLayout::Yuv422 { .. } => {
                    let to = to[grid.channels[0].first..].iter_mut().step_by(step);
                    to.zip(estimates).for_each(|(to, estimate)| *to = estimate as u8);
                }
                SampleLayout::Packed1010102 => {
                    let mut estimates = estimates;
                    for to in to.chunks_exact_mut(4) {
                        let channels = (0..4).zip(&mut estimates);
                        let word = channels.fold(0, |word, (index, estimate)| word | estimate << (10 * index));
                        to.copy_from_slice(&word.to_ne_bytes());
                    }
                }
                _ if layout.depth == 8 => {
                    to.iter_mut().zip(estimates).for_each(|(to, estimate)| *to = estimate as u8);
                }
                _ => {
                    for (to, estimate) in to.chunks_exact_mut(2).zip(estimates) {
                        to.copy_from_slice(&((estimate << layout.shift()) as u16).to_ne_bytes());
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn repeat<const COUNT: usize>(weights: &[u8], samples: &mut [u8]) {
    for (samples, weight) in samples.chunks_exact_mut(COUNT).zip(weights) {
        samples.fill(*weight);
    }
}

/// `(weight · cover + (255 - weight) · sample + 127) / 255` of each sample; one of weight 0 keeps its bytes.
#[inline(always)]
fn mix(layout: &PlaneLayout, to: &mut [u8], cover: &[u8], weights: &[u8]) {
    if layout.sample_layout == SampleLayout::Packed1010102 {
        for ((to, cover), weights) in to.chunks_exact_mut(4).zip(cover.chunks_exact(4)).zip(weights.chunks_exact(4)) {
            let word = |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let (from, with) = (word(to), word(cover));
            let mut mixed = 0;
            for (c, weight) in weights.iter().enumerate() {
                let mask = if c == 3 { 3 } else { 1023 };
                let value = |word: u32| (word >> (10 * c)) & mask;
                mixed |= mixed_sample(value(from), value(with), *weight) << (10 * c);
            }
            to.copy_from_slice(&mixed.to_ne_bytes());
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
        for ((to, cover), weight) in to.chunks_exact_mut(2).zip(cover.chunks_exact(2)).zip(weights) {
            let value = |bytes: &[u8]| u16::from_ne_bytes([bytes[0], bytes[1]]);
            let sample = |bytes: &[u8]| u32::from(value(bytes) >> shift) & ((1 << layout.depth) - 1);
            let mixed = (mixed_sample(sample(to), sample(cover), *weight) << shift) as u16;
            let kept = value(to);
            to.copy_from_slice(&(if *weight == 0 { kept } else { mixed }).to_ne_bytes());
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
        let samples = layout.row_samples();
        // Of all rows of the cells, for each sample of a row.
        let (mut sums, mut remainders) = (vec![0_u32; samples], vec![0_u16; samples]);
        let mut expanded = vec![0; samples];
        let mut buffers = [const { Vec::new() }; 2];
        let columns = self.weights.all_columns();
        let mut first_bytes: &[u8] = &[];
        for row in rows.clone() {
            let y = first_row + row as usize * step;
            // SAFETY: the luma weights of the plane are sampled, as the caller promises.
            let of_pixels = unsafe { self.weights.of_row(y, &columns, &mut buffers) };
            let excluded = if layout.channels == 1 {
                of_pixels
            } else {
                let whole = Rect::new(0, 0, layout.width, 1).expect("a plane has samples");
                self.weights.expand(whole, 0, 0, of_pixels, &mut expanded);
                &expanded
            };
            // SAFETY: the plane holds the row, which nobody writes, as the caller promises.
            let bytes = unsafe { std::slice::from_raw_parts(self.source.row(y), layout.row_bytes()) };
            first_bytes = if row == rows.start { bytes } else { first_bytes };
            add_row(&layout, bytes, excluded, &mut sums, &mut remainders);
        }
        for InpaintedGrid { grid, first_word, .. } in &self.cells.grids {
            let across = grid.cells[0] as usize;
            for column in 0..across {
                let columns = grid.samples(0, column as u32);
                let count = columns.len() as u64 * rows.len() as u64;
                for (index, channel) in grid.channels.iter().enumerate() {
                    let all = columns.clone().map(|x| channel.first + x as usize * channel.step);
                    let (sum, remainders) = all.fold((0_u64, 0_u64), |(sum, count), i| {
                        (sum + u64::from(sums[i]), count + u64::from(remainders[i]))
                    });
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

/// Adds what is left of the samples of a row. The sums of 128 rows fit.
#[inline(always)]
fn add_row(layout: &PlaneLayout, row: &[u8], excluded: &[u8], sums: &mut [u32], remainders: &mut [u16]) {
    let add = |sum: &mut u32, all: &mut u16, excluded: u8, sample: u32| {
        let remainder = u16::from(255 - excluded);
        *sum += u32::from(remainder) * sample;
        *all += remainder;
    };
    let totals = sums.iter_mut().zip(remainders).zip(excluded);
    if layout.sample_layout == SampleLayout::Packed1010102 {
        for (i, ((sum, all), excluded)) in totals.enumerate() {
            let word = &row[i / 4 * 4..][..4];
            let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            add(sum, all, *excluded, word >> (10 * (i % 4)) & if i % 4 == 3 { 3 } else { 1023 });
        }
    } else if layout.depth == 8 {
        totals.zip(row).for_each(|(((sum, all), excluded), sample)| add(sum, all, *excluded, (*sample).into()));
    } else {
        let (shift, mask) = (layout.shift(), ((1_u32 << layout.depth) - 1) as u16);
        for (((sum, all), excluded), sample) in totals.zip(row.chunks_exact(2)) {
            let sample = u16::from_ne_bytes([sample[0], sample[1]]) >> shift & mask;
            add(sum, all, *excluded, sample.into());
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

/// The sampling of weights at the luma samples that operations need, into a plane that `place` allocates for their rows.
pub fn sampling<'a>(
    weights: &'a Weights,
    operations: &mut [SoftOperation],
    place: impl FnOnce(Extent) -> Result<HostPlaneMut, CpuError>,
) -> Result<Option<SoftOperation<'a>>, CpuError> {
    let extent = |operation: &SoftOperation| match operation {
        SoftOperation::CellMeans(CellMeans { weights, .. }) => {
            Some(weights.luma_extent(&weights.all_columns(), &(0..weights.layout.height as usize)))
        }
        SoftOperation::Mix(mix) => {
            let [mut columns, rows] = extent_of(mix.covered.iter())?;
            // Whole pairs of packed 4:2:2.
            columns = columns.start / 2 * 2..columns.end.next_multiple_of(2);
            Some(mix.weights.luma_extent(&columns, &rows))
        }
        SoftOperation::Sampling(_) | SoftOperation::Spread { .. } => None,
    };
    let Some([columns, rows]) = operations.iter().filter_map(extent).reduce(|a, b| hull(&a, &b)) else {
        return Ok(None);
    };
    let to = place((weights.size().0 as usize, rows.clone()))?;
    for operation in operations {
        match operation {
            SoftOperation::CellMeans(CellMeans { weights, .. }) | SoftOperation::Mix(Mix { weights, .. }) => {
                weights.luma = to.as_const();
            }
            SoftOperation::Sampling(_) | SoftOperation::Spread { .. } => (),
        }
    }
    Ok(Some(SoftOperation::Sampling(Sampling { weights, to, columns, rows })))
}
