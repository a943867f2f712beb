// SPDX-License-Identifier: MPL-2.0
//! The weights of the samples of a plane, computed from weights on a grid over the picture.

use std::iter::StepBy;
use std::ops::Range;

use crate::filter::frame::PlaneLayout;
use crate::filter::picture::Placement;
use crate::filter::regions::Rect;
use crate::filter::samples::channels;
use crate::filter::weights::Weights;

/// The weights of the samples of a field of a plane.
#[derive(Clone, Copy)]
pub struct SampleWeights<'a> {
    weights: &'a Weights,
    /// The layout of the field.
    layout: PlaneLayout,
    placement: Placement,
}

/// Memory for the weights of a row, which is reused.
#[derive(Default)]
pub struct WeightBuffers {
    between: Vec<u16>,
    samples: [Vec<u8>; 3],
}

impl<'a> SampleWeights<'a> {
    /// The weights of the samples of a field.
    ///
    /// # Panics
    /// If the weights are for another size.
    pub fn new(weights: &'a Weights, placement: Placement, layout: PlaneLayout) -> Self {
        let [width, height] = placement.size;
        assert!(weights.size() == (width, height), "the weights are for another size");
        Self { weights, layout, placement }
    }

    /// The luma rows that a row stands for, all in the same field. The last row of the plane stands for all remaining luma rows.
    fn luma_rows(&self, row: usize) -> StepBy<Range<usize>> {
        let Placement { shift: [_, down], luma: [_, luma], step, .. } = self.placement;
        let [first, end] = luma.map(|y| y as usize);
        let start = (first + step as usize * (row << down)).min(end - 1);
        let is_last = row + 1 >= self.layout.height as usize;
        let end = if is_last { end } else { end.min(first + step as usize * ((row + 1) << down)) };
        (start..end.max(start + 1)).step_by(step as usize)
    }

    /// The luma columns that columns of the plane stand for. The last column of the plane stands for all remaining luma columns.
    pub fn luma_columns(&self, columns: &Range<usize>) -> Range<usize> {
        let Placement { shift: [across, _], luma: [luma, _], .. } = self.placement;
        let [first, end] = luma.map(|x| x as usize);
        let is_last = columns.end >= self.layout.width as usize;
        let column = |x: usize| first + (x << across);
        column(columns.start).min(end - 1)..if is_last { end } else { column(columns.end).min(end) }
    }

    /// Says where the weights of these rows are above 0.
    pub fn weighted_columns(&self, rows: &Range<usize>) -> WeightedColumns {
        let ends = [rows.start, rows.end - 1].into_iter().flat_map(|row| self.luma_rows(row));
        let (first, last) = ends.fold((usize::MAX, 0), |(first, last), y| (first.min(y), last.max(y)));
        WeightedColumns { nodes: self.weights.node_bits(first..last + 1), cell: self.weights.cell() as usize }
    }

    /// The weights of the pixels of a row. Each is the largest weight of the luma samples that the pixel stands for.
    #[inline(always)]
    pub fn of_row<'b>(&self, y: usize, columns: &Range<usize>, buffers: &'b mut WeightBuffers) -> &'b [u8] {
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
        let across = self.placement.shift[0];
        if across == 0 && luma.len() >= columns.len() {
            return &luma[..columns.len()];
        }
        of_pixels.resize(luma.len() >> across, 0);
        if across == 1 {
            // `extend` would not be vectorised for the instruction set.
            let pairs = luma.as_chunks::<2>().0;
            of_pixels.iter_mut().zip(pairs).for_each(|(to, [one, other])| *to = *(one.max(other)));
        } else {
            let luma = luma.chunks(1 << across).map(|luma| luma.iter().copied().fold(0, u8::max));
            of_pixels.iter_mut().zip(luma).for_each(|(to, weight)| *to = weight);
        }
        // The luma beyond an odd width of packed 4:2:2 has the weight of the last luma sample.
        of_pixels.resize(columns.len(), luma[luma.len() - 1]);
        if across > 0 && columns.end >= self.layout.width as usize {
            let last = columns.len() - 1;
            of_pixels[last] = luma[(last << across).min(luma.len() - 1)..].iter().copied().fold(0, u8::max);
        }
        of_pixels
    }

    /// Converts row pixels to columns with weights: a pair of pixels of packed 4:2:2 has two columns.
    pub fn columns(&self, pixels: &Range<usize>) -> Range<usize> {
        let unit = self.layout.unit_pixels() as usize;
        unit * pixels.start..unit * pixels.end
    }

    /// Writes the weights of the samples of a rectangle, in a row of samples that begins at pixel `first`. Channels that keep
    /// their values get the weight 0.
    #[inline(always)]
    pub fn expand(&self, rect: Rect, passthrough_mask: u32, first: usize, of_pixels: &[u8], of_samples: &mut [u8]) {
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

/// Where weights are above 0.
#[derive(Clone, Copy, PartialEq)]
pub enum Weighting {
    Nowhere,
    Partly,
    /// All weights are 255.
    Wholly,
}

/// Says where the weights of some rows are above 0.
pub struct WeightedColumns {
    /// For each column of nodes, the OR and the AND of the nodes that affect the rows.
    nodes: [Vec<u8>; 2],
    /// The distance between two columns of nodes, in luma samples.
    cell: usize,
}

impl WeightedColumns {
    /// Where the weights of these luma columns are above 0. The result may be `Partly` although all weights are 0 or all are 255,
    /// if this does not hold for all nodes around them.
    pub fn of(&self, columns: Range<usize>) -> Weighting {
        if columns.is_empty() {
            return Weighting::Nowhere;
        }
        let [any, all] = &self.nodes;
        let nodes = columns.start / self.cell..((columns.end - 1) / self.cell + 2).min(any.len());
        let any = any[nodes.clone()].iter().fold(0, |any, bits| any | bits);
        let all = all[nodes].iter().fold(255, |all, bits| all & bits);
        match (any, all) {
            (0, _) => Weighting::Nowhere,
            (_, 255) => Weighting::Wholly,
            _ => Weighting::Partly,
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
