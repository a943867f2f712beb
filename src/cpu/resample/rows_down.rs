// SPDX-License-Identifier: MPL-2.0
//! The rows step of a decimation. Two source rows become one row of pairs, in which each 32-bit word holds one column of both.
//!
//! [`PairDotRowsDown`] multiplies two 16-bit samples at a time and supports every instruction set and sample type.
//! `rows_down_vnni.rs` has a faster implementation for bytes, with identical output.

use std::ops::Range;

use super::row_format::RowFormat;
use super::{PAIR_BIAS, SLACK};
use crate::cpu::packed_taps::LevelTaps;
use crate::cpu::simd::Simd;
use crate::filter::regions::Rect;
use crate::filter::wide::LEVEL_RADIUS;

/// An implementation of the rows step.
pub trait RowsDown<S: Simd> {
    /// Data that is the same for all rows of a pass.
    type Order;

    /// Makes the data for all rows of a pass.
    fn order(pass: &RowPass) -> Self::Order;

    /// Decimates two source rows, and writes biased words of pairs to `out`, `V` vectors at a time. During this, the `next` rows
    /// are loaded into the cache.
    ///
    /// # Safety
    /// Each source is valid for reading a row. `scratch` is valid for [`RowGeometry::scratch_words`] words, and `out` for
    /// [`RowGeometry::out_words`]. They do not overlap.
    unsafe fn decimate<const V: usize>(
        s: S,
        pass: &RowPass,
        order: &Self::Order,
        sources: [*const u8; 2],
        next: [*const u8; 2],
        scratch: *mut u32,
        out: *mut u32,
    );
}

/// The sizes of the rows step.
#[derive(Debug, Clone, Copy)]
pub struct RowGeometry {
    /// The number of pixels of a source row for one pixel of the small plane: 1, 2 or 4.
    pub factor: usize,
    pub channels: usize,
    /// The number of pixels before the picture with which the source row starts. They repeat the first pixel.
    pub before: usize,
    /// The number of pixels of a small row.
    pub small_pixels: usize,
}

impl RowGeometry {
    /// The number of pixels of the small plane that a sum reads from, besides its own pixel.
    pub const REACH: usize = 2 * LEVEL_RADIUS as usize;

    /// Returns the first pixel of the source row that is read, and the sizes for a rectangle of the small plane. Pixels beyond
    /// the edge repeat it.
    pub fn new(factor: usize, rect: Rect, format: &RowFormat) -> (usize, Self) {
        let reach = if factor == 1 { 0 } else { Self::REACH * factor };
        let first = rect.x() as usize * factor;
        let (channels, small_pixels) = (format.channels, rect.width() as usize);
        let geometry = Self { factor, channels, before: reach.saturating_sub(first), small_pixels };
        (first.saturating_sub(reach).min(format.pixels - 1), geometry)
    }

    /// The number of samples in a small row.
    pub fn samples(&self) -> usize {
        self.small_pixels * self.channels
    }

    /// The number of pixels of a source row with repeated edges: those that the sums of a row read, rounded up.
    pub fn source_pixels(&self) -> usize {
        match self.factor {
            1 => self.small_pixels,
            factor => factor * (self.small_pixels + Self::REACH),
        }
    }

    /// The words for a source row of 16-bit samples.
    pub fn source_words(&self) -> usize {
        (self.source_pixels() * self.channels + SLACK).div_ceil(2).next_multiple_of(16)
    }

    /// The words for one stream (see [`RowGeometry::scratch_words`]).
    pub fn stream_words(&self) -> usize {
        ((self.small_pixels + Self::REACH) * self.channels + SLACK).next_multiple_of(16)
    }

    /// The words of scratch memory: one source row, and the streams of both rows. A row has as many streams as a pixel of the
    /// small plane has pairs of source pixels. A stream has one word for each (pair or quad, channel).
    pub fn scratch_words(&self) -> usize {
        self.source_words() + 2 * (self.factor / 2).max(1) * self.stream_words()
    }

    /// The indices of the samples that fill the lanes of a vector, counted from a small pixel on. Each lane gets `count`
    /// neighbouring samples of a channel. The first of them is in pixel `first`.
    pub fn lane_samples(&self, lanes: usize, count: usize, first: usize) -> impl Iterator<Item = usize> {
        let Self { factor, channels, .. } = *self;
        (0..lanes / channels * channels * count).map(move |index| {
            let (lane, k) = (index / count, index % count);
            (factor * (lane / channels) + first + k) * channels + lane % channels
        })
    }

    /// The words of a row of pairs, including those that vectors write after the last one.
    pub fn out_words(&self) -> usize {
        (self.samples() + SLACK).next_multiple_of(16)
    }
}

/// The blocks of a row whose samples are gathered directly from the source. The other blocks read a copy with repeated edges.
pub struct DirectBlocks {
    /// The pixels of the small plane in these blocks. The range consists of whole blocks.
    pub range: Range<usize>,
    /// The number of samples of the copy that blocks before the range read.
    left: usize,
    /// The first pixel of the source that blocks after the range read.
    right: usize,
}

impl DirectBlocks {
    /// The direct blocks of a row. A block has `block` small pixels and reads `window` samples. If the source is not dense, there
    /// is no direct block.
    pub fn new(geometry: &RowGeometry, format: &RowFormat, block: usize, window: usize, is_dense: bool) -> Self {
        let RowGeometry { factor, channels, before, .. } = *geometry;
        let first = before.div_ceil(factor).next_multiple_of(block);
        // The window of the last direct block ends within the row.
        let last = (format.samples() + before * channels).checked_sub(window).map(|end| end / (factor * channels));
        match last {
            Some(last) if is_dense && last >= first => Self {
                range: first..last / block * block + block,
                left: first.checked_sub(block).map_or(0, |last| factor * last * channels + window),
                right: (factor * (last / block * block + block) - before).min(format.pixels - 1),
            },
            _ => Self { range: 0..0, left: geometry.source_pixels() * channels, right: format.pixels },
        }
    }

    /// Makes the copy. `read` fills a slice with the row from a pixel on, after a number of repetitions of that pixel.
    #[inline(always)]
    pub fn copy_edges<T>(&self, geometry: &RowGeometry, copy: &mut [T], read: impl Fn(usize, usize, &mut [T])) {
        let RowGeometry { channels, before, .. } = *geometry;
        let right = (before + self.right) * channels;
        if self.left > 0 {
            // The slice includes at least one pixel of the picture, which is the one that is repeated.
            let left = self.left.max((before + 1) * channels).min(copy.len());
            read(0, before, &mut copy[..left]);
        }
        if !self.range.is_empty() && right < copy.len() {
            read(self.right, 0, &mut copy[right..]);
        }
    }
}

/// The input of the rows step and its taps.
pub struct RowPass {
    pub format: RowFormat,
    pub geometry: RowGeometry,
    pub taps: &'static LevelTaps,
}

impl RowPass {
    /// Prefetches the part of these rows that `count` samples of the small plane, from sample `x` on, are computed from.
    #[inline(always)]
    pub fn prefetch<S: Simd>(&self, s: S, rows: [*const u8; 2], x: usize, count: usize) {
        const CACHE_LINE: usize = 64;
        let bytes = self.geometry.factor * if self.format.is_bytes() { 1 } else { 2 };
        let [first, second] = rows.map(|row| row.wrapping_add(bytes * x));
        for line in 0..(bytes * count).div_ceil(CACHE_LINE) {
            s.prefetch(first.wrapping_add(CACHE_LINE * line));
            s.prefetch(second.wrapping_add(CACHE_LINE * line));
        }
    }
}

/// The rows step with dot products of two. Each row is first rearranged to `factor / 2` streams: word (i, c) of stream h is the
/// pair of the samples 2h and 2h + 1 of channel c, counted from small pixel i on. All loads of the sums are then dense.
pub struct PairDotRowsDown;

impl<S: Simd> RowsDown<S> for PairDotRowsDown {
    /// The order in which the samples of each stream are gathered, and the blocks that are gathered directly from the source.
    type Order = ([[u16; 32]; 2], DirectBlocks);

    fn order(pass: &RowPass) -> Self::Order {
        let mut orders = [[0; 32]; 2];
        for (h, order) in orders.iter_mut().enumerate() {
            let samples = pass.geometry.lane_samples(S::LANES, 2, 2 * h);
            order.iter_mut().zip(samples).for_each(|(to, sample)| *to = sample as u16);
        }
        let block = S::LANES / pass.geometry.channels;
        (orders, DirectBlocks::new(&pass.geometry, &pass.format, block, 64, pass.format.is_dense_words()))
    }

    #[inline(always)]
    unsafe fn decimate<const V: usize>(
        s: S,
        pass: &RowPass,
        order: &Self::Order,
        sources: [*const u8; 2],
        next: [*const u8; 2],
        scratch: *mut u32,
        out: *mut u32,
    ) {
        let (geometry, (orders, direct)) = (&pass.geometry, order);
        let RowGeometry { factor, channels, .. } = *geometry;
        let (samples, stream_words) = (geometry.samples(), geometry.stream_words());
        let row = scratch.cast::<u16>();
        let row_samples = geometry.source_pixels() * channels;
        // SAFETY: the caller guarantees that the sources are readable, and that `scratch` and `out` have the sizes of `geometry`.
        // The row's samples and its streams are disjoint parts of `scratch`. A stream has a word for each small pixel of the row
        // and REACH more pixels. Sums read up to REACH pixels further on, and vectors up to SLACK words beyond.
        unsafe {
            if factor == 1 {
                for (i, source) in sources.into_iter().enumerate() {
                    pass.format.read_words(source, 0, std::slice::from_raw_parts_mut(row, row_samples));
                    (0..samples).for_each(|x| out.cast::<u16>().add(2 * x + i).write(row.add(x).read()));
                }
                return;
            }
            let streams = |r: usize| scratch.wrapping_add(geometry.source_words() + r * (factor / 2) * stream_words);
            let block = S::LANES / channels;
            let is_dense = pass.format.is_dense_words();
            // Samples of a dense row are aligned and biased after they have been gathered.
            let (left, mask) = if is_dense { pass.format.alignment() } else { (0, 0xffff) };
            let mask = s.splat(u32::from(mask) * 0x1_0001);
            let bias = s.splat(if is_dense { PAIR_BIAS } else { 0 });
            for (r, source) in sources.into_iter().enumerate() {
                let copy = std::slice::from_raw_parts_mut(row, row_samples);
                if is_dense {
                    direct.copy_edges(geometry, copy, |pixel, before, out| {
                        let from = source.cast::<u16>().add(pixel * channels);
                        pass.format.skip_pixels(pixel).read(before, out, |i| from.add(i).read_unaligned());
                    });
                } else {
                    pass.format.read_words(source, geometry.before, copy);
                }
                let in_source = source.cast::<u16>().wrapping_sub(geometry.before * channels);
                for i in (0..geometry.small_pixels + RowGeometry::REACH).step_by(block) {
                    let from = if direct.range.contains(&i) { in_source } else { row.cast_const() };
                    let from = from.wrapping_add(factor * i * channels);
                    for (h, order) in orders.iter().enumerate().take(factor / 2) {
                        let pairs = s.shift_left(s.gather_pairs(from, order), left);
                        let to = streams(r).add(h * stream_words + i * channels);
                        s.store(to, s.xor(s.and(pairs, mask), bias));
                    }
                }
            }
            let rounding = s.splat(1 << 15);
            // Pair m of a sum is in stream m modulo the number of streams, which is 1 or 2.
            let (streams_log2, stream_mask) = (factor / 4, factor / 2 - 1);
            for x in (0..samples).step_by(V * S::LANES) {
                pass.prefetch(s, next, x, V * S::LANES);
                let mut sums = [[rounding; V]; 2];
                for (m, &weight) in pass.taps.pairs.iter().enumerate() {
                    let weight = s.splat(weight);
                    let from = (m & stream_mask) * stream_words + (m >> streams_log2) * channels + x;
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let words = streams(r).add(from);
                        for (v, sum) in sums.iter_mut().enumerate() {
                            *sum = s.dot(*sum, s.load(words.add(v * S::LANES)), weight);
                        }
                    }
                }
                for (v, (first, second)) in sums[0].into_iter().zip(sums[1]).enumerate() {
                    s.store(out.add(x + v * S::LANES), s.pack_high_halves(first, second));
                }
            }
        }
    }
}
