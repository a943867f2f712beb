// SPDX-License-Identifier: MPL-2.0
//! The layout of a plane: how many samples it has, how they are stored and what they represent. Knows no memory, no σ and no
//! video format.

use std::ops::Range;

use super::plane::{Address, PlaneMemory};
use super::regions::Rect;

/// Largest width and height of a plane, in pixels.
pub const MAX_DIMENSION: u32 = 16384;

/// How the samples of a pixel are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SampleLayout {
    /// Interleaved samples of one byte, or of two bytes in native byte order with the value in the least significant bits.
    #[default]
    LsbAligned,
    /// Interleaved samples of two bytes in native byte order with the value in the most significant bits. The padding bits
    /// below are written as 0.
    MsbAligned,
    /// 32-bit words in native byte order: three samples of 10 bits and one of 2, from the least significant bit up.
    Packed1010102,
    /// Packed 4:2:2: four samples for two pixels, luma and chroma alternating; samples of two bytes as in [`Self::MsbAligned`].
    /// Where the width is odd, the second luma sample of the last pair lies beyond the picture: it is written with the blur of the
    /// repeated edge, unless luma is not blurred.
    Yuv422 {
        /// Index of the first luma sample, 0 or 1.
        luma: u8,
    },
}

/// How a sample is stored in its pixel: as some bits of a word in native byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredSample {
    /// The first byte of the word.
    pub byte: usize,
    /// Bytes of the word: 1 or 2, or 4 if all samples of the pixel share it.
    pub word_bytes: usize,
    /// Position of the sample's lowest bit in the word.
    pub shift: u32,
    /// Bits of the sample, 16 at most.
    pub bits: u32,
}

impl StoredSample {
    fn word(self, pixel: &[u8]) -> u32 {
        let bytes = &pixel[self.byte..][..self.word_bytes];
        match *bytes {
            [byte] => byte.into(),
            [a, b] => u16::from_ne_bytes([a, b]).into(),
            _ => u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        }
    }

    /// The bits of a word that are the sample, before they are shifted.
    fn mask(self) -> u32 {
        (1 << self.bits) - 1
    }

    /// Its value in a pixel.
    #[inline]
    pub fn load(self, pixel: &[u8]) -> u16 {
        (self.word(pixel) >> self.shift & self.mask()) as u16
    }

    /// Writes a value to a pixel. Bits beyond the sample's are ignored; those of the word that are no sample's become 0.
    #[inline]
    pub fn store(self, pixel: &mut [u8], value: u16) {
        let value = (u32::from(value) & self.mask()) << self.shift;
        // Other samples may be in a word of four bytes.
        let others = if self.word_bytes == 4 { self.word(pixel) & !(self.mask() << self.shift) } else { 0 };
        let to = &mut pixel[self.byte..][..self.word_bytes];
        match self.word_bytes {
            1 => to[0] = value as u8,
            2 => to.copy_from_slice(&(value as u16).to_ne_bytes()),
            _ => to.copy_from_slice(&(others | value).to_ne_bytes()),
        }
    }
}

/// What a sample represents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// Luma, grey, red, green, blue, or an unused byte.
    #[default]
    Primary,
    /// Colour difference.
    Chroma,
    /// Opacity.
    Alpha,
}

/// The layout of one plane, without its memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlaneLayout {
    /// Pixels per row, 1 to [`MAX_DIMENSION`].
    pub width: u32,
    /// Rows, 1 to [`MAX_DIMENSION`].
    pub height: u32,
    /// Interleaved samples per pixel, 1 to 4; each channel is blurred independently. 4 for [`SampleLayout::Packed1010102`]
    /// and for [`SampleLayout::Yuv422`], which has four samples in a pair of pixels.
    pub channels: u8,
    /// Bits per sample, 8 to 16: one byte for 8, else two. 10 for [`SampleLayout::Packed1010102`], whose last sample has 2.
    pub depth: u8,
    /// How the samples are stored.
    pub sample_layout: SampleLayout,
    /// What each channel represents; the first `channels` elements count.
    pub roles: [Role; 4],
    /// Samples of this plane per picture pixel along x and y, in (0, 1]: 0.5 on an axis subsampled by two. For packed 4:2:2,
    /// that of luma.
    pub sigma_scale: [f64; 2],
    /// Whether the rows alternate between two fields, which are blurred separately.
    pub interlaced: bool,
}

/// Rows of a plane that are blurred together: all rows, or one field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field {
    /// The layout of these rows alone.
    pub layout: PlaneLayout,
    /// Index of the first row in the plane.
    pub first_row: usize,
    /// Distance between its rows, in rows of the plane.
    pub step: usize,
}

impl Field {
    /// The rows of the field, in the memory of its plane.
    pub fn rows_of<A: Address>(&self, plane: &PlaneMemory<A>) -> PlaneMemory<A> {
        plane.every(self.first_row, self.step)
    }
}

impl PlaneLayout {
    /// A progressive plane of [`Role::Primary`] channels, least significant bits aligned and not subsampled.
    pub const fn new(width: u32, height: u32, channels: u8, depth: u8) -> Self {
        let (sample_layout, roles) = (SampleLayout::LsbAligned, [Role::Primary; 4]);
        Self { width, height, channels, depth, sample_layout, roles, sigma_scale: [1.0; 2], interlaced: false }
    }

    /// Bytes per sample, 1 or 2; samples of [`SampleLayout::Packed1010102`] are unpacked to 2.
    pub fn sample_bytes(&self) -> usize {
        if self.depth == 8 { 1 } else { 2 }
    }

    /// Whether it is packed 4:2:2.
    pub fn is_packed_422(&self) -> bool {
        matches!(self.sample_layout, SampleLayout::Yuv422 { .. })
    }

    /// Whether the samples of a pixel share a word.
    pub fn is_packed_word(&self) -> bool {
        self.sample_layout == SampleLayout::Packed1010102
    }

    /// Pixels of the unit that repeats along a row: a pair for packed 4:2:2.
    pub fn unit_pixels(&self) -> u32 {
        if self.is_packed_422() { 2 } else { 1 }
    }

    /// Pixels per row; for packed 4:2:2 pairs of pixels.
    pub fn row_pixels(&self) -> usize {
        self.width.div_ceil(self.unit_pixels()) as usize
    }

    /// How sample `index` of a pixel is stored, of a pair of pixels for packed 4:2:2.
    #[inline]
    pub fn stored(&self, index: usize) -> StoredSample {
        let (bits, bytes) = (u32::from(self.depth), self.sample_bytes());
        if self.is_packed_word() {
            let shift = 10 * index as u32;
            return StoredSample { byte: 0, word_bytes: 4, shift, bits: if index == 3 { 2 } else { bits } };
        }
        StoredSample { byte: index * bytes, word_bytes: bytes, shift: self.shift().into(), bits }
    }

    /// Samples per row.
    pub fn row_samples(&self) -> usize {
        self.row_pixels() * usize::from(self.channels)
    }

    /// Bytes per pixel; for packed 4:2:2 per pair of pixels.
    pub fn pixel_bytes(&self) -> usize {
        if self.is_packed_word() { 4 } else { usize::from(self.channels) * self.sample_bytes() }
    }

    /// Bytes per row that hold samples; the pitch may be larger.
    pub fn row_bytes(&self) -> usize {
        self.row_pixels() * self.pixel_bytes()
    }

    /// The columns of a rectangle of the plane in [row pixels](Self::row_pixels), those of a half covered pair included.
    pub fn columns(&self, rect: Rect) -> Range<u32> {
        let unit = self.unit_pixels();
        rect.x() / unit..rect.right().div_ceil(unit)
    }

    /// The memory of a rectangle of the plane, from its first row and column on.
    pub fn within<A: Address>(&self, plane: &PlaneMemory<A>, rect: Rect) -> PlaneMemory<A> {
        plane.from_row(rect.y() as usize).from_byte(self.columns(rect).start as usize * self.pixel_bytes())
    }

    /// Bits that a sample is shifted left by within its 16-bit word.
    pub fn shift(&self) -> u8 {
        let is_high = self.sample_layout == SampleLayout::MsbAligned || self.is_packed_422();
        if is_high && self.depth > 8 { 16 - self.depth } else { 0 }
    }

    /// The roles of its channels.
    pub fn roles(&self) -> &[Role] {
        &self.roles[..usize::from(self.channels)]
    }

    /// The sets of rows that are blurred together. Adjacent rows of a field are two rows of the picture apart, so its vertical
    /// sigma scale is halved.
    pub fn fields(&self) -> impl Iterator<Item = Field> + use<> {
        let plane = *self;
        let (fields, [horizontal, vertical]) = (1 + u32::from(plane.interlaced), plane.sigma_scale);
        let field = move |first: u32| Field {
            layout: Self {
                height: (plane.height - first).div_ceil(fields),
                sigma_scale: [horizontal, vertical / f64::from(fields)],
                interlaced: false,
                ..plane
            },
            first_row: first as usize,
            step: fields as usize,
        };
        (0..fields.min(plane.height)).map(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: PlaneLayout = PlaneLayout::new(10, 4, 3, 8);

    #[test]
    fn rows_alternate_between_fields() {
        let fields: Vec<_> = PlaneLayout { interlaced: true, height: 5, ..LAYOUT }.fields().collect();
        assert_eq!(
            fields.iter().map(|field| (field.first_row, field.layout.height)).collect::<Vec<_>>(),
            [(0, 3), (1, 2)]
        );
        assert!(fields.iter().all(|field| field.step == 2 && field.layout.sigma_scale == [1.0, 0.5]));
        assert_eq!(PlaneLayout { interlaced: true, height: 1, ..LAYOUT }.fields().count(), 1);
        assert_eq!(LAYOUT.fields().collect::<Vec<_>>(), [Field { layout: LAYOUT, first_row: 0, step: 1 }]);
    }

    #[test]
    fn packed_pixels_have_their_size() {
        let pairs = PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma: 0 }, ..PlaneLayout::new(7, 2, 4, 8) };
        assert_eq!((pairs.row_samples(), pairs.row_bytes()), (16, 16));
        let words = PlaneLayout { sample_layout: SampleLayout::Packed1010102, ..PlaneLayout::new(7, 2, 4, 10) };
        assert_eq!((words.row_samples(), words.row_bytes()), (28, 28));
    }
}
