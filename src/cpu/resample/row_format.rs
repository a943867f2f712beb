// SPDX-License-Identifier: MPL-2.0
//! The storage of the samples of a row that are resampled: reads them with repeated edges, and writes them.

use super::BIAS;
use crate::cpu::rows::repeat_pixel;
use crate::cpu::tile_blur::pack_1010102;
use crate::filter::frame::{PlaneLayout, SampleLayout};
use crate::filter::operation::Channels;

/// Where the samples of a row are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Storage {
    /// Samples of one or two bytes, one after the other.
    Dense,
    /// Every second sample from this index on: the luma or the chroma of packed 4:2:2.
    Alternate(usize),
    /// 32-bit words of four samples.
    Packed1010102,
}

/// The samples of a row that are resampled, as interleaved channels.
#[derive(Debug, Clone, Copy)]
pub struct RowFormat {
    storage: Storage,
    /// The number of interleaved channels.
    pub channels: usize,
    /// The number of pixels in a row. Each has `channels` samples.
    pub pixels: usize,
    /// Bits per sample.
    depth: u32,
    /// The number of bits by which a stored sample of 2 bytes is shifted left.
    shift: u32,
}

impl RowFormat {
    /// The format of the samples of these channels in rows of this layout.
    pub fn new(layout: &PlaneLayout, channels: Channels) -> Self {
        let (width, pairs) = (layout.width as usize, layout.width.div_ceil(2) as usize);
        let (storage, channels, pixels) = match (layout.sample_layout, channels) {
            (SampleLayout::Yuv422 { luma }, Channels::Luma) => (Storage::Alternate(usize::from(luma)), 1, width),
            (SampleLayout::Yuv422 { luma }, _) => (Storage::Alternate(usize::from(1 - luma)), 2, pairs),
            (SampleLayout::Packed1010102, _) => (Storage::Packed1010102, 4, width),
            _ => (Storage::Dense, usize::from(layout.channels), width),
        };
        Self { storage, channels, pixels, depth: layout.depth.into(), shift: layout.shift().into() }
    }

    /// The same format, with the luma beyond an odd width that completes the last pair of pixels.
    pub fn with_whole_pairs(self) -> Self {
        match self.storage {
            Storage::Alternate(_) if self.channels == 1 => Self { pixels: self.pixels.next_multiple_of(2), ..self },
            _ => self,
        }
    }

    /// The bytes from a pixel to the next one.
    pub fn pixel_bytes(&self) -> usize {
        let bytes = self.channels * if self.is_bytes() { 1 } else { 2 };
        match self.storage {
            Storage::Dense => bytes,
            Storage::Alternate(_) => 2 * bytes,
            Storage::Packed1010102 => 4,
        }
    }

    /// The number of samples in a row.
    pub fn samples(&self) -> usize {
        self.pixels * self.channels
    }

    /// Whether a sample is one byte.
    pub fn is_bytes(&self) -> bool {
        self.depth == 8
    }

    /// Whether a row consists of its samples, one after the other, so that results may be written to it directly.
    pub fn is_dense(&self) -> bool {
        self.storage == Storage::Dense
    }

    /// Whether a row consists of its samples of 2 bytes, one after the other.
    pub fn is_dense_words(&self) -> bool {
        self.is_dense() && !self.is_bytes()
    }

    /// The number of bits by which a stored sample of 2 bytes is shifted left to MSB-align it, and a mask of the bits that then
    /// carry its value.
    pub fn alignment(&self) -> (u32, u16) {
        let padding = 16 - self.depth;
        (padding.saturating_sub(self.shift), 0xffff << padding)
    }

    /// The numbers of bits by which sums are shifted right, and then left, to become samples of 2 bytes. Samples of 10-10-10-2
    /// stay MSB-aligned until [`RowFormat::scatter`] packs them.
    pub fn shifts(&self) -> [u32; 2] {
        if self.storage == Storage::Packed1010102 { [16, 0] } else { [32 - self.depth, self.shift] }
    }

    /// The rounding constant for the sums of channel `c`: half a unit of the stored sample.
    pub fn rounding(&self, c: usize) -> u32 {
        // The last sample of 10-10-10-2 has 2 bits.
        if self.storage == Storage::Packed1010102 && c == 3 { 1 << 29 } else { 1 << (31 - self.depth) }
    }

    /// Fills `out` with the bytes of a row. The first pixel is repeated `before` times before the row, and the last one up to the
    /// end of `out`.
    ///
    /// # Safety
    /// The samples are bytes, and `row` is valid for reading a row.
    #[inline(always)]
    pub unsafe fn read_bytes(&self, row: *const u8, before: usize, out: &mut [u8]) {
        // SAFETY: the caller guarantees that the row is readable, and `read` calls the closure only with indices of samples.
        unsafe {
            match self.storage {
                Storage::Alternate(first) => self.read(before, out, |i| row.add(first + 2 * i).read()),
                _ => self.read(before, out, |i| row.add(i).read()),
            }
        }
    }

    /// The same format without the first `count` pixels.
    pub fn skip_pixels(self, count: usize) -> Self {
        Self { pixels: self.pixels - count, ..self }
    }

    /// Fills `out` with the biased samples of a row. The first pixel is repeated `before` times before the row, and the last one
    /// up to the end of `out`.
    ///
    /// # Safety
    /// `row` is valid for reading a row.
    #[inline(always)]
    pub unsafe fn read_words(&self, row: *const u8, before: usize, out: &mut [u16]) {
        let (left, mask) = self.alignment();
        // SAFETY: the caller guarantees that the row is readable, and `read` calls the closures only with indices of samples.
        unsafe {
            let byte = |i: usize| u16::from(row.add(i).read()) << 8 ^ BIAS;
            let word = |i: usize| row.cast::<u16>().add(i).read_unaligned() << left & mask ^ BIAS;
            match self.storage {
                Storage::Dense if self.is_bytes() => self.read(before, out, byte),
                Storage::Dense => self.read(before, out, word),
                Storage::Alternate(first) if self.is_bytes() => self.read(before, out, |i| byte(first + 2 * i)),
                Storage::Alternate(first) => self.read(before, out, |i| word(first + 2 * i)),
                Storage::Packed1010102 => self.read(before, out, |i| {
                    let word = row.cast::<u32>().add(i / 4).read_unaligned();
                    (if i % 4 == 3 { word >> 30 << 14 } else { (word >> (10 * (i % 4)) & 1023) << 6 }) as u16 ^ BIAS
                }),
            }
        }
    }

    /// Fills `out` with samples. `sample` returns the sample at an index in the row. The first pixel is repeated `before` times
    /// before the row, and the last one up to the end of `out`.
    #[inline(always)]
    pub fn read<T: Copy>(&self, before: usize, out: &mut [T], sample: impl Fn(usize) -> T) {
        let (left, rest) = out.split_at_mut(before * self.channels);
        let (middle, right) = rest.split_at_mut(self.samples().min(rest.len()));
        for (i, element) in middle.iter_mut().enumerate() {
            *element = sample(i);
        }
        let last = middle.len() - self.channels;
        repeat_pixel(left, &middle[..self.channels]);
        repeat_pixel(right, &middle[last..]);
    }

    /// Writes a row that is not dense from samples that lie one after the other: bytes, or 16-bit elements.
    ///
    /// # Safety
    /// `from` is valid for reading the samples, and `row` for writing a row. Nobody else accesses these samples of the row.
    #[inline(always)]
    pub unsafe fn scatter(&self, from: *const u8, row: *mut u8) {
        // SAFETY: the loops access only samples of the row, for which the caller guarantees both addresses.
        unsafe {
            match self.storage {
                Storage::Alternate(first) if self.is_bytes() => {
                    (0..self.samples()).for_each(|i| row.add(first + 2 * i).write(from.add(i).read()));
                }
                Storage::Alternate(first) => {
                    let (from, row) = (from.cast::<u16>(), row.cast::<u16>());
                    (0..self.samples())
                        .for_each(|i| row.add(first + 2 * i).write_unaligned(from.add(i).read_unaligned()));
                }
                Storage::Packed1010102 => {
                    for i in 0..self.pixels {
                        let four = from.cast::<[u16; 4]>().add(i).read_unaligned();
                        row.cast::<u32>().add(i).write_unaligned(pack_1010102(four));
                    }
                }
                Storage::Dense => unreachable!("results are written to dense rows directly"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_bits_do_not_count() {
        let row: Vec<u8> = [0xfc05_u16, 0x0439].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let low = PlaneLayout::new(2, 1, 1, 10);
        let high = PlaneLayout { sample_layout: SampleLayout::MsbAligned, ..low };
        for (layout, expected) in [(low, [0x0140, 0x0e40]), (high, [0xfc00, 0x0400])] {
            let mut words = [0; 2];
            // SAFETY: the row has the two pixels of its layout.
            unsafe { RowFormat::new(&layout, Channels::All).read_words(row.as_ptr(), 0, &mut words) };
            assert_eq!(words.map(|word| word ^ BIAS), expected, "{layout:?}");
        }
    }
}
