// SPDX-License-Identifier: MPL-2.0
//! What goes row by row beside the blur: copies of planes that are not blurred, and the pixels of planes in which alpha
//! weighs colour or channels are kept.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::frame::{Pixels, PlaneLayout};
use crate::plan::{AlphaPlace, Job};
use crate::threads::Threads;

/// Rows in memory: the first, and the bytes from one to the next.
#[derive(Clone, Copy)]
pub struct Rows {
    pub first: *const u8,
    pub pitch: usize,
}

impl Rows {
    fn row(self, y: usize) -> *const u8 {
        self.first.wrapping_add(y * self.pitch)
    }
}

/// A job's work of this kind. All rows are those of the job's field; the products have no padding.
pub struct Weighing<'a> {
    pub job: &'a Job,
    pub src: Rows,
    /// The plane of alpha, if it is another.
    pub alpha: Option<Rows>,
    pub dst: Rows,
    /// What is made before the blur, and what that becomes; null if alpha weighs nothing.
    pub product: *mut u16,
    pub blurred: *const u16,
}

// SAFETY: the pointers are into frames and memory that the engine borrows while its threads run, each on rows of its own.
unsafe impl Sync for Weighing<'_> {}

/// Calls `work` once for every row of every item, many at a time on as many threads as there are `states`.
pub fn each_row<'a, State: Send>(
    threads: &Threads,
    states: &mut [State],
    items: impl Iterator<Item = &'a Weighing<'a>>,
    work: impl Fn(&Weighing, usize) + Sync,
) {
    const ROWS: usize = 16;
    let height = |item: &Weighing| item.job.field.layout.height as usize;
    let parts: Vec<(&Weighing, usize)> =
        items.flat_map(|item| (0..height(item)).step_by(ROWS).map(move |y| (item, y))).collect();
    if parts.is_empty() {
        return;
    }
    let next = AtomicUsize::new(0);
    threads.run(states, |_| {
        while let Some((item, first)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            (*first..(first + ROWS).min(height(item))).for_each(|y| work(item, y));
        }
    });
}

/// Channel `c` of a pixel in the upper bits of 16.
unsafe fn sample(layout: &PlaneLayout, pixel: *const u8, c: usize) -> u32 {
    // SAFETY: the caller's pixel has that channel.
    unsafe {
        if layout.pixels == Pixels::Ten {
            let word = pixel.cast::<u32>().read_unaligned();
            return if c == 3 { word >> 30 << 14 } else { (word >> (10 * c) & 1023) << 6 };
        }
        if layout.depth == 8 {
            return u32::from(*pixel.add(c)) << 8;
        }
        let unused = 16 - u32::from(layout.depth);
        let word = u32::from(pixel.cast::<u16>().add(c).read_unaligned());
        word << (unused - u32::from(layout.low_bit())) & (0xffff << unused & 0xffff)
    }
}

/// Writes channel `c` of a pixel, `depth` bits.
unsafe fn put(layout: &PlaneLayout, pixel: *mut u8, c: usize, value: u32, depth: u32) {
    // SAFETY: the caller's pixel has that channel.
    unsafe {
        if layout.pixels == Pixels::Ten {
            let (word, mask) = (pixel.cast::<u32>(), ((1 << depth) - 1) << (10 * c));
            word.write_unaligned(word.read_unaligned() & !mask | value << (10 * c));
        } else if layout.depth == 8 {
            *pixel.add(c) = value as u8;
        } else {
            pixel.cast::<u16>().add(c).write_unaligned((value << layout.low_bit()) as u16);
        }
    }
}

impl Weighing<'_> {
    /// Channels of the product.
    fn products(&self) -> usize {
        usize::from(self.job.field.layout.channels) + usize::from(self.alpha.is_some())
    }

    fn alpha_channel(&self) -> Option<usize> {
        match self.job.alpha {
            Some(AlphaPlace::Channel(channel)) => Some(usize::from(channel)),
            _ => None,
        }
    }

    /// The alpha over a place of the plane: the mean, halves up, of what it covers of the plane of alpha, within that.
    unsafe fn alpha_over(&self, rows: Rows, x: usize, y: usize) -> u32 {
        let Some(AlphaPlace::Plane { field, shift: [across, down], .. }) = self.job.alpha else { return 0 };
        let layout = &field.layout;
        let places = (0..1_usize << (across + down)).map(|i| {
            let u = ((x << across) + i % (1 << across)).min(layout.width as usize - 1);
            let v = ((y << down) + (i >> across)).min(layout.height as usize - 1);
            // SAFETY: inside the plane of alpha.
            unsafe { sample(layout, rows.row(v).add(u * layout.pixel_bytes()), 0) }
        });
        (places.sum::<u32>() + (1 << (across + down) >> 1)) >> (across + down)
    }

    /// Copies row `y` of the source.
    ///
    /// # Safety
    /// Source and destination hold the row, and nobody else writes it.
    pub unsafe fn copy(&self, y: usize) {
        let (from, to) = (self.src.row(y), self.dst.row(y).cast_mut());
        // SAFETY: the caller's rows, which the engine borrows apart.
        unsafe { from.copy_to_nonoverlapping(to, self.job.field.layout.row_bytes()) };
    }

    /// Makes row `y` of the product.
    ///
    /// # Safety
    /// All rows are there, and nobody else writes this one.
    pub unsafe fn multiply(&self, y: usize) {
        let layout = &self.job.field.layout;
        let (channels, products, width) = (usize::from(layout.channels), self.products(), layout.row_pixels());
        for x in 0..width {
            // SAFETY: a pixel of the source and of the product.
            unsafe {
                let pixel = self.src.row(y).add(x * layout.pixel_bytes());
                let to = self.product.add((y * width + x) * products);
                let alpha = match (self.alpha, self.alpha_channel()) {
                    (Some(rows), _) => self.alpha_over(rows, x, y),
                    (None, channel) => sample(layout, pixel, channel.unwrap_or(0)),
                };
                for c in 0..channels {
                    let product = (sample(layout, pixel, c) * alpha + (1 << 15)) >> 16;
                    *to.add(c) = if Some(c) == self.alpha_channel() { alpha } else { product } as u16;
                }
                if self.alpha.is_some() {
                    *to.add(channels) = alpha as u16;
                }
            }
        }
    }

    /// Makes row `y` of the destination from the blurred product, and puts back what is to be kept.
    ///
    /// # Safety
    /// As [`Weighing::multiply`].
    pub unsafe fn finish(&self, y: usize) {
        let layout = &self.job.field.layout;
        let (channels, products, width) = (usize::from(layout.channels), self.products(), layout.row_pixels());
        for (x, c) in (0..width).flat_map(|x| (0..channels).map(move |c| (x, c))) {
            let keep = self.job.keep >> c & 1 == 1;
            if !keep && self.blurred.is_null() {
                continue;
            }
            let depth = if layout.pixels == Pixels::Ten && c == 3 { 2 } else { u32::from(layout.depth) };
            // SAFETY: a pixel of the source, the product and the destination.
            unsafe {
                let source = sample(layout, self.src.row(y).add(x * layout.pixel_bytes()), c) >> (16 - depth);
                let product = self.blurred.wrapping_add((y * width + x) * products);
                let value = if keep { source } else { self.finished(product, c, depth, source) };
                put(layout, self.dst.row(y).add(x * layout.pixel_bytes()).cast_mut(), c, value, depth);
            }
        }
    }

    /// A sample of `depth` bits from a pixel of the blurred product.
    unsafe fn finished(&self, product: *const u16, c: usize, depth: u32, source: u32) -> u32 {
        let most = (1 << depth) - 1;
        // SAFETY: the caller's pixel.
        let at = |c: usize| u32::from(unsafe { *product.add(c) });
        match (at(c), self.alpha_channel()) {
            (alpha, Some(channel)) if channel == c => ((alpha + (1 << (16 - depth) >> 1)) >> (16 - depth)).min(most),
            (colour, channel) => match at(channel.unwrap_or(usize::from(self.job.field.layout.channels))) {
                0 => source,
                alpha => (((colour << depth) + alpha / 2) / alpha).min(most),
            },
        }
    }
}
