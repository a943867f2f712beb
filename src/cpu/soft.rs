// SPDX-License-Identifier: MPL-2.0
//! Soft covers: a cover is mixed into the picture by weights, and the samples of a background are weighted before they are blurred.
//! Row by row, in loops that the compiler vectorises for the instruction set into whose functions they are inlined.

use std::iter::StepBy;
use std::ops::Range;

use super::CpuError;
use super::scratch::Extent;
use crate::filter::background::{self, Background, WeightedPlane};
use crate::filter::frame::{PlaneLayout, SampleLayout};
use crate::filter::operation::Channels;
use crate::filter::picture::{FieldRect, PictureGeometry};
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

/// What is mixed into a plane.
#[derive(Clone, Copy)]
pub enum CoverSamples {
    /// The samples of another plane of the same layout.
    Plane(HostPlane),
    /// Blurred samples of a background, and their blurred weights; of packed 4:2:2 those of luma and of chroma.
    Background([[HostPlane; 2]; 2]),
}

/// Mixes a cover into a plane.
pub struct Mix {
    pub weights: SampleWeights,
    pub cover: CoverSamples,
    pub to: HostPlaneMut,
    /// What is covered of the plane.
    pub covered: Vec<FieldRect>,
    /// Bit c: channel c keeps its value.
    pub passthrough_mask: u32,
}

/// Weights the samples of a plane for a background.
pub struct Weighting {
    pub weights: SampleWeights,
    /// What is weighted; without it, the weights are what is written.
    pub source: Option<(HostPlane, PlaneLayout, Channels)>,
    pub to: HostPlaneMut,
    /// In pixels and rows of the plane.
    pub columns: Range<usize>,
    pub rows: Range<usize>,
}

/// An operation of a soft cover.
pub enum SoftOperation<'a> {
    Sampling(Sampling<'a>),
    Weighting(Weighting),
    Mix(Mix),
}

/// Rows that one thread processes.
pub struct SoftBlock<'a> {
    operation: &'a SoftOperation<'a>,
    rows: Range<usize>,
}

impl SoftOperation<'_> {
    /// Its parts.
    pub fn blocks(&self) -> impl Iterator<Item = SoftBlock<'_>> + use<'_> {
        let rows = match self {
            Self::Sampling(sampling) => sampling.rows.clone(),
            Self::Weighting(weighting) => weighting.rows.clone(),
            Self::Mix(Mix { covered, .. }) => extent_of(covered.iter()).map(|[_, rows]| rows).unwrap_or_default(),
        };
        let end = rows.end;
        rows.step_by(ROWS).map(move |y| SoftBlock { operation: self, rows: y..(y + ROWS).min(end) })
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
            SoftOperation::Weighting(weighting) => unsafe { weighting.execute(self.rows.clone()) },
        }
    }
}

/// Samples of 16 bits of a row, from one of them on.
///
/// # Safety
/// The plane holds them, aligned, and nobody writes them meanwhile.
#[inline(always)]
unsafe fn words<'a>(plane: &HostPlane, y: usize, samples: Range<usize>) -> &'a [u16] {
    // SAFETY: the caller promises it.
    unsafe { std::slice::from_raw_parts(plane.row(y).cast::<u16>().add(samples.start), samples.len()) }
}

impl Mix {
    /// # Safety
    /// See [`SoftBlock::execute`].
    #[inline(always)]
    unsafe fn execute(&self, rows: Range<usize>) {
        let layout = self.weights.layout;
        let pixel_samples = usize::from(layout.channels);
        let [mut expanded, mut composed] = [const { Vec::new() }; 2];
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
                rects.iter().for_each(|rect| self.expand(*rect, columns.start, of_pixels, &mut expanded));
                &expanded
            };
            // Runs that are mixed, side by side or, because most of a background has the largest weight, each by itself.
            let is_mixed = |run: &[u8]| run.iter().fold(0, |all, weight| all | weight) > 0;
            let is_background = matches!(self.cover, CoverSamples::Background(_));
            let runs: Vec<bool> = of_samples.chunks(RUN * pixel_samples).map(is_mixed).collect();
            let mut first_run = 0;
            for mixed in runs.chunk_by(|one, other| *one == *other && !(is_background && *one)) {
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
                    CoverSamples::Background(planes) => {
                        composed.resize(bytes.len(), 0);
                        // SAFETY: the planes hold the row, which nobody writes, as the caller promises.
                        unsafe { self.compose(planes, y, run, &mut composed) };
                        &composed[..]
                    }
                };
                mix(&layout, to, cover, &of_samples[start * pixel_samples..end * pixel_samples]);
            }
        }
    }

    /// Writes the weights of the samples of a rectangle, in a row of samples that begins at pixel `first`.
    #[inline(always)]
    fn expand(&self, rect: Rect, first: usize, of_pixels: &[u8], of_samples: &mut [u8]) {
        let layout = &self.weights.layout;
        let keeps = |channel: usize| self.passthrough_mask >> channel & 1 == 1;
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
        if self.passthrough_mask > 0 {
            for pixel in samples.chunks_mut(count) {
                pixel.iter_mut().enumerate().filter(|(c, _)| keeps(*c)).for_each(|(_, weight)| *weight = 0);
            }
        }
    }

    /// The row of a background in the layout of the picture.
    ///
    /// # Safety
    /// The planes hold the row.
    #[inline(always)]
    unsafe fn compose(&self, planes: &[[HostPlane; 2]; 2], y: usize, pixels: Range<usize>, to: &mut [u8]) {
        let layout = &self.weights.layout;
        // SAFETY: the planes hold the row, as the caller promises.
        let of = |[samples, weights]: &[HostPlane; 2], columns: Range<usize>, count: usize| unsafe {
            (words(samples, y, columns.start * count..columns.end * count), words(weights, y, columns))
        };
        let count = usize::from(layout.channels);
        match layout.sample_layout {
            SampleLayout::Yuv422 { luma } => {
                let (luma, chroma) = (usize::from(luma), 1 - usize::from(luma));
                let (samples, weights) = of(&planes[0], 2 * pixels.start..2 * pixels.end, 1);
                for ((to, sample), weight) in to.chunks_exact_mut(2).zip(samples).zip(weights) {
                    to[luma] = background::divided(*sample, *weight, 8) as u8;
                }
                let (samples, weights) = of(&planes[1], pixels, 2);
                for ((to, samples), weight) in to.chunks_exact_mut(4).zip(samples.chunks_exact(2)).zip(weights) {
                    to[chroma] = background::divided(samples[0], *weight, 8) as u8;
                    to[chroma + 2] = background::divided(samples[1], *weight, 8) as u8;
                }
            }
            SampleLayout::Packed1010102 => {
                let (samples, weights) = of(&planes[0], pixels, 4);
                for ((to, samples), weight) in to.chunks_exact_mut(4).zip(samples.chunks_exact(4)).zip(weights) {
                    let bits =
                        |c: usize| u32::from(background::divided(samples[c], *weight, if c == 3 { 2 } else { 10 }));
                    let word = bits(0) | bits(1) << 10 | bits(2) << 20 | bits(3) << 30;
                    to.copy_from_slice(&word.to_ne_bytes());
                }
            }
            _ => {
                let (samples, weights) = of(&planes[0], pixels, count);
                match count {
                    1 => divide::<1>(layout, samples, weights, to),
                    2 => divide::<2>(layout, samples, weights, to),
                    3 => divide::<3>(layout, samples, weights, to),
                    _ => divide::<4>(layout, samples, weights, to),
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

#[inline(always)]
fn divide<const COUNT: usize>(layout: &PlaneLayout, samples: &[u16], weights: &[u16], to: &mut [u8]) {
    let (depth, shift) = (u32::from(layout.depth), u32::from(layout.shift()));
    let pixels = samples.chunks_exact(COUNT).zip(weights);
    if depth == 8 && weights.iter().fold(u16::MAX, |all, weight| all & weight) == u16::MAX {
        for (to, sample) in to.iter_mut().zip(samples) {
            *to = background::divided_by_all(*sample, 8) as u8;
        }
        return;
    }
    if depth == 8 {
        for (to, (samples, weight)) in to.chunks_exact_mut(COUNT).zip(pixels) {
            for (to, sample) in to.iter_mut().zip(samples) {
                *to = background::divided(*sample, *weight, 8) as u8;
            }
        }
        return;
    }
    for (to, (samples, weight)) in to.chunks_exact_mut(2 * COUNT).zip(pixels) {
        for (to, sample) in to.chunks_exact_mut(2).zip(samples) {
            let value = if depth <= 12 {
                background::divided(*sample, *weight, depth)
            } else {
                background::divided_exactly(*sample, *weight, depth)
            };
            to.copy_from_slice(&(value << shift).to_ne_bytes());
        }
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

impl Weighting {
    /// # Safety
    /// See [`SoftBlock::execute`].
    #[inline(always)]
    unsafe fn execute(&self, rows: Range<usize>) {
        let mut buffers = [const { Vec::new() }; 2];
        let columns = self.columns.clone();
        for y in rows {
            // SAFETY: the luma weights of what is weighted are sampled, as the caller promises.
            let excluded = unsafe { self.weights.of_row(y, &columns, &mut buffers) };
            let count = usize::from(self.weights.layout.channels);
            // SAFETY: the plane holds the row, which nobody else accesses, as the caller promises.
            let to = unsafe {
                let row = self.to.row(y).cast::<u16>().add(columns.start * count);
                std::slice::from_raw_parts_mut(row, columns.len() * count)
            };
            let Some((source, layout, part)) = &self.source else {
                to.iter_mut().zip(excluded).for_each(|(to, excluded)| *to = background::weight(*excluded));
                continue;
            };
            // SAFETY: the plane holds the row, which nobody writes, as the caller promises.
            let row = unsafe { std::slice::from_raw_parts(source.row(y), layout.row_bytes()) };
            match (part, layout.sample_layout) {
                (Channels::All, SampleLayout::Packed1010102) => {
                    for ((to, pixel), excluded) in
                        to.chunks_exact_mut(4).zip(row[4 * columns.start..].chunks_exact(4)).zip(excluded)
                    {
                        let word = u32::from_ne_bytes([pixel[0], pixel[1], pixel[2], pixel[3]]);
                        let samples = [word << 6, word >> 4, word >> 14, word >> 16];
                        let masks = [0xffc0, 0xffc0, 0xffc0, 0xc000];
                        for ((to, sample), mask) in to.iter_mut().zip(samples).zip(masks) {
                            *to = background::weighted((sample & mask) as u16, background::weight(*excluded));
                        }
                    }
                }
                (Channels::All, _) => match count {
                    1 => weight_row::<1>(layout, row, columns.start, excluded, to),
                    2 => weight_row::<2>(layout, row, columns.start, excluded, to),
                    3 => weight_row::<3>(layout, row, columns.start, excluded, to),
                    _ => weight_row::<4>(layout, row, columns.start, excluded, to),
                },
                (Channels::Luma, sample_layout) => {
                    let SampleLayout::Yuv422 { luma } = sample_layout else {
                        unreachable!("only packed 4:2:2 has this part")
                    };
                    let last = layout.width as usize - 1;
                    for ((x, to), excluded) in (columns.start..).zip(to).zip(excluded) {
                        // Beyond an odd width the edge repeats.
                        let sample = row[usize::from(luma) + 2 * x.min(last)];
                        *to = background::weighted(u16::from(sample) << 8, background::weight(*excluded));
                    }
                }
                (Channels::Chroma, sample_layout) => {
                    let SampleLayout::Yuv422 { luma } = sample_layout else {
                        unreachable!("only packed 4:2:2 has this part")
                    };
                    let first = 1 - usize::from(luma);
                    for ((to, pair), excluded) in
                        to.chunks_exact_mut(2).zip(row[4 * columns.start..].chunks_exact(4)).zip(excluded)
                    {
                        for (to, sample) in to.iter_mut().zip([pair[first], pair[first + 2]]) {
                            *to = background::weighted(u16::from(sample) << 8, background::weight(*excluded));
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn weight_row<const COUNT: usize>(layout: &PlaneLayout, row: &[u8], first: usize, excluded: &[u8], to: &mut [u16]) {
    let pixels = to.chunks_exact_mut(COUNT).zip(excluded);
    if layout.depth == 8 {
        for ((to, excluded), samples) in pixels.zip(row[first * COUNT..].chunks_exact(COUNT)) {
            let weight = background::weight(*excluded);
            to.iter_mut()
                .zip(samples)
                .for_each(|(to, sample)| *to = background::weighted(u16::from(*sample) << 8, weight));
        }
        return;
    }
    let (shift, padding) = (u32::from(layout.shift()), 16 - u32::from(layout.depth));
    for ((to, excluded), samples) in pixels.zip(row[2 * first * COUNT..].chunks_exact(2 * COUNT)) {
        let weight = background::weight(*excluded);
        for (to, sample) in to.iter_mut().zip(samples.chunks_exact(2)) {
            let sample = u16::from_ne_bytes([sample[0], sample[1]]) >> shift << padding;
            *to = background::weighted(sample, weight);
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
        SoftOperation::Weighting(Weighting { weights, columns, rows, .. }) => Some(weights.luma_extent(columns, rows)),
        SoftOperation::Mix(mix) => {
            let [mut columns, rows] = extent_of(mix.covered.iter())?;
            // Whole pairs of packed 4:2:2.
            columns = columns.start / 2 * 2..columns.end.next_multiple_of(2);
            Some(mix.weights.luma_extent(&columns, &rows))
        }
        SoftOperation::Sampling(_) => None,
    };
    let Some([columns, rows]) = operations.iter().filter_map(extent).reduce(|a, b| hull(&a, &b)) else {
        return Ok(None);
    };
    let to = place((weights.size().0 as usize, rows.clone()))?;
    for operation in operations {
        match operation {
            SoftOperation::Weighting(Weighting { weights, .. }) | SoftOperation::Mix(Mix { weights, .. }) => {
                weights.luma = to.as_const();
            }
            SoftOperation::Sampling(_) => (),
        }
    }
    Ok(Some(SoftOperation::Sampling(Sampling { weights, to, columns, rows })))
}

/// The operations that weight a picture for its background: what is read of each plane, by index, and where it is.
pub fn weightings(
    background: &Background,
    picture: &PictureGeometry,
    sources: &[HostPlane],
    to: &[HostPlaneMut],
    reads: &[(usize, FieldRect)],
) -> Vec<SoftOperation<'static>> {
    let operation = |index: usize| {
        let layout = background.layouts[index];
        let [columns, rows] = extent_of(reads.iter().filter(|(plane, _)| *plane == index).map(|(_, covered)| covered))?;
        let (shift, source) = match background.planes.get(index) {
            Some(WeightedPlane { plane, channels, shift, .. }) => {
                (*shift, Some((sources[*plane], picture.layouts()[*plane], *channels)))
            }
            None => (background.weight_shifts[index - background.planes.len()], None),
        };
        let [width, height] = picture.size();
        let weights = SampleWeights::new(HostPlane::default(), (width, height), layout, shift);
        Some(SoftOperation::Weighting(Weighting { weights, source, to: to[index], columns, rows }))
    };
    (0..background.layouts.len()).filter_map(operation).collect()
}
