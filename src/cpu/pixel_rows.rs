// SPDX-License-Identifier: MPL-2.0
//! The operations that go pixel by pixel beside the blur: copies of planes, premultiplication by alpha and its inverse, and
//! channels that keep the source's value. docs/ARITHMETIC.md has the formulas.

use std::ops::Range;

use crate::filter::frame::PlaneLayout;
use crate::filter::operation::{AlphaSource, Operation};
use crate::filter::plane::{HostPlane, HostPlaneMut, copy_rows};

/// An operation of a plan that goes pixel by pixel, and where its rows are.
pub struct PixelRows<'a> {
    pub operation: &'a Operation,
    /// The layout of the colour plane.
    pub layout: PlaneLayout,
    /// What is computed: columns in the pixels of a row, pairs of them for packed 4:2:2.
    pub columns: Range<usize>,
    pub rows: Range<usize>,
    pub source: HostPlane,
    /// Unused by a premultiplication.
    pub destination: HostPlaneMut,
    /// The temporary of a premultiplication or its inverse. Its rows are dense: 16 bits a sample.
    pub premultiplied: HostPlaneMut,
    /// The alpha plane, if alpha is not a channel of the source.
    pub alpha: Option<HostPlane>,
}

/// Channel `c` of a pixel in the most significant bits of 16.
///
/// # Safety
/// `pixel` is the address of a pixel of this layout.
unsafe fn load_sample(layout: &PlaneLayout, pixel: *const u8, c: usize) -> u32 {
    let stored = layout.stored(c);
    // SAFETY: the caller's pixel has its bytes.
    let value = stored.load(unsafe { std::slice::from_raw_parts(pixel, layout.pixel_bytes()) });
    u32::from(value) << (16 - stored.bits)
}

impl PixelRows<'_> {
    /// Processes rows.
    ///
    /// # Safety
    /// The planes hold the rows that the operation accesses. No other thread writes what it reads, or accesses the samples of
    /// these rows that it writes.
    pub unsafe fn execute(&self, rows: Range<usize>) {
        for y in rows {
            // SAFETY: the planes hold the row and it is this thread's alone, as the caller promises.
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

    /// Address of a pixel of the premultiplied plane.
    fn premultiplied_pixel(&self, x: usize, y: usize) -> *mut u16 {
        let channels = usize::from(self.layout.channels) + usize::from(self.alpha.is_some());
        self.premultiplied.row(y).cast::<u16>().wrapping_add(x * channels)
    }

    /// The alpha of a colour pixel that covers several pixels of the alpha plane: their mean, rounded half up. Positions
    /// beyond the alpha plane repeat its edge.
    ///
    /// # Safety
    /// `plane` holds the rows of `alpha`'s view.
    unsafe fn mean_alpha(&self, alpha: &AlphaSource, plane: &HostPlane, x: usize, y: usize) -> u32 {
        let AlphaSource::Plane { view, subsampling: [log2_x, log2_y] } = alpha else { return 0 };
        let layout = &view.field.layout;
        let samples = (0..1_usize << (log2_x + log2_y)).map(|i| {
            let u = ((x << log2_x) + i % (1 << log2_x)).min(layout.width as usize - 1);
            let v = ((y << log2_y) + (i >> log2_x)).min(layout.height as usize - 1);
            // SAFETY: column `u` and row `v` are limited to the alpha plane.
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
            // SAFETY: `x` is inside row `y` of the source and of the premultiplied plane, whose pixels have one more channel
            // where there is an alpha plane.
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

    /// Writes row `y` of the destination: with `alpha`, from the blurred premultiplied plane; channels of `passthrough_mask`
    /// from the source.
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
            // SAFETY: `x` is inside row `y` of the source and of the destination, whose pixel is this thread's alone, and of the
            // premultiplied plane where there is an alpha.
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

    /// Channel `c` of a pixel, `depth` bits, from the blurred premultiplied plane.
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
        // SAFETY: the caller's pixel has the colour channels, and an alpha channel among them or behind them.
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
