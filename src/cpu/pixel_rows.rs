// SPDX-License-Identifier: MPL-2.0
//! The operations of blurs that are executed pixel by pixel: copies of planes, premultiplication by alpha and its inverse, and
//! channels that keep the value of the source. docs/ARITHMETIC.md has the formulas.

use std::ops::Range;

use crate::filter::frame::PlaneLayout;
use crate::filter::operation::{AlphaSource, Operation};
use crate::filter::plane::{HostPlane, HostPlaneMut, copy_rows};

/// An operation that is executed pixel by pixel, with the memory of its planes.
pub struct PixelRows<'a> {
    pub operation: &'a Operation,
    /// The layout of the colour plane.
    pub layout: PlaneLayout,
    /// The computed columns in row pixels, which are pairs of pixels for packed 4:2:2.
    pub columns: Range<usize>,
    pub rows: Range<usize>,
    pub source: HostPlane,
    /// The plane that is written. A premultiplication does not use it.
    pub destination: HostPlaneMut,
    /// The temporary of a premultiplication or of its inverse. Its rows are dense, with 16 bits a sample.
    pub premultiplied: HostPlaneMut,
    /// The alpha plane, if alpha is not a channel of the source.
    pub alpha: Option<HostPlane>,
}

/// Channel `c` of a pixel, shifted to the most significant of 16 bits.
///
/// # Safety
/// `pixel` is the address of a readable pixel of this layout.
unsafe fn load_sample(layout: &PlaneLayout, pixel: *const u8, c: usize) -> u32 {
    let stored = layout.stored(c);
    // SAFETY: the caller guarantees that all bytes of the pixel are readable.
    let value = stored.load(unsafe { std::slice::from_raw_parts(pixel, layout.pixel_bytes()) });
    u32::from(value) << (16 - stored.bits)
}

impl PixelRows<'_> {
    /// Executes the operation on these rows.
    ///
    /// # Safety
    /// The planes hold the rows that the operation accesses. No other thread writes samples that it reads, or accesses the
    /// samples of these rows that it writes.
    pub unsafe fn execute(&self, rows: Range<usize>) {
        for y in rows {
            // SAFETY: the caller promises that the planes hold row `y`, and that no other thread accesses its part of this row.
            unsafe {
                match self.operation {
                    Operation::Copy { .. } => {
                        let pixel_bytes = self.layout.pixel_bytes();
                        let byte = self.columns.start * pixel_bytes;
                        let (from, to) = (self.source.from_row(y), self.destination.from_row(y));
                        copy_rows(&from.from_byte(byte), &to.from_byte(byte), self.columns.len() * pixel_bytes, 1);
                    }
                    Operation::Premultiply { alpha, .. } => self.premultiply_row(alpha, y),
                    Operation::Unpremultiply { alpha, passthrough_mask, .. } => {
                        self.unpremultiply_row(Some(alpha), *passthrough_mask, y);
                    }
                    Operation::RestoreChannels { passthrough_mask, .. } => {
                        self.unpremultiply_row(None, *passthrough_mask, y);
                    }
                    _ => unreachable!("the others are executed by tasks of their own"),
                }
            }
        }
    }

    /// The address of a pixel of the premultiplied plane.
    fn premultiplied_pixel(&self, x: usize, y: usize) -> *mut u16 {
        let channels = usize::from(self.layout.channels) + usize::from(self.alpha.is_some());
        self.premultiplied.row(y).cast::<u16>().wrapping_add(x * channels)
    }

    /// The alpha of a colour pixel that covers several pixels of the alpha plane: their mean, rounded half up. Beyond the alpha
    /// plane, its edge repeats.
    ///
    /// # Safety
    /// `plane` holds the rows of `alpha`'s view.
    unsafe fn mean_alpha(&self, alpha: &AlphaSource, plane: &HostPlane, x: usize, y: usize) -> u32 {
        let AlphaSource::Plane { view, subsampling: [log2_x, log2_y] } = alpha else { return 0 };
        let layout = &view.field.layout;
        let samples = (0..1_usize << (log2_x + log2_y)).map(|i| {
            let u = ((x << log2_x) + i % (1 << log2_x)).min(layout.width as usize - 1);
            let v = ((y << log2_y) + (i >> log2_x)).min(layout.height as usize - 1);
            // SAFETY: column `u` and row `v` are limited to the alpha plane, whose rows the caller guarantees.
            unsafe { load_sample(layout, plane.row(v).add(u * layout.pixel_bytes()), 0) }
        });
        (samples.sum::<u32>() + (1 << (log2_x + log2_y) >> 1)) >> (log2_x + log2_y)
    }

    /// # Safety
    /// See [`PixelRows::execute`].
    unsafe fn premultiply_row(&self, alpha_source: &AlphaSource, y: usize) {
        let layout = &self.layout;
        let channels = usize::from(layout.channels);
        let alpha_channel =
            if let AlphaSource::Channel(channel) = alpha_source { usize::from(*channel) } else { channels };
        for x in self.columns.clone() {
            let (pixel, to) =
                (self.source.row(y).wrapping_add(x * layout.pixel_bytes()), self.premultiplied_pixel(x, y));
            // SAFETY: pixel `x` is in row `y` of the source and of the premultiplied plane. If alpha has a separate plane, the
            // premultiplied pixels have one more channel.
            unsafe {
                let alpha = match &self.alpha {
                    Some(plane) => self.mean_alpha(alpha_source, plane, x, y),
                    None => load_sample(layout, pixel, alpha_channel),
                };
                for c in 0..channels {
                    let product = (load_sample(layout, pixel, c) * alpha + (1 << 15)) >> 16;
                    *to.add(c) = if c == alpha_channel { alpha } else { product } as u16;
                }
                if self.alpha.is_some() {
                    *to.add(channels) = alpha as u16;
                }
            }
        }
    }

    /// Writes row `y` of the destination. Channels of `passthrough_mask` come from the source. The others are unpremultiplied
    /// with `alpha`; without it, they stay unchanged.
    ///
    /// # Safety
    /// See [`PixelRows::execute`].
    unsafe fn unpremultiply_row(&self, alpha: Option<&AlphaSource>, passthrough_mask: u32, y: usize) {
        let layout = &self.layout;
        let channels = usize::from(layout.channels);
        for (x, c) in self.columns.clone().flat_map(|x| (0..channels).map(move |c| (x, c))) {
            let passes_through = passthrough_mask >> c & 1 == 1;
            if !passes_through && alpha.is_none() {
                continue;
            }
            let (stored, pixel_bytes) = (layout.stored(c), layout.pixel_bytes());
            let (depth, offset) = (stored.bits, x * pixel_bytes);
            // SAFETY: pixel `x` is in row `y` of the source and of the destination, and no other thread accesses this destination
            // pixel. With an alpha, `x` is also in the premultiplied plane.
            unsafe {
                let source = load_sample(layout, self.source.row(y).add(offset), c) >> (16 - depth);
                let value = match alpha {
                    Some(alpha) if !passes_through => self.unpremultiplied(alpha, x, y, c, depth, source),
                    _ => source,
                };
                let pixel = std::slice::from_raw_parts_mut(self.destination.row(y).add(offset), pixel_bytes);
                stored.store(pixel, value as u16);
            }
        }
    }

    /// Channel `c` of a pixel with `depth` bits, from the blurred premultiplied plane. `source` is returned where the blurred
    /// alpha is 0.
    ///
    /// # Safety
    /// The premultiplied plane holds pixel (x, y).
    unsafe fn unpremultiplied(
        &self,
        alpha: &AlphaSource,
        x: usize,
        y: usize,
        c: usize,
        depth: u32,
        source: u32,
    ) -> u32 {
        let channels = usize::from(self.layout.channels);
        let alpha_channel = if let AlphaSource::Channel(channel) = alpha { usize::from(*channel) } else { channels };
        let pixel = self.premultiplied_pixel(x, y);
        // SAFETY: the caller guarantees the pixel. It has the colour channels, and the alpha channel among or after them.
        let blurred = |c: usize| u32::from(unsafe { *pixel.add(c) });
        let largest = (1 << depth) - 1;
        if c == alpha_channel {
            return ((blurred(c) + (1 << (16 - depth) >> 1)) >> (16 - depth)).min(largest);
        }
        match blurred(alpha_channel) {
            0 => source,
            alpha => (((blurred(c) << depth) + alpha / 2) / alpha).min(largest),
        }
    }
}
