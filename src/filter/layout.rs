// SPDX-License-Identifier: MPL-2.0
//! The layout of a plane: how many samples it has, how they are stored and what they represent. This file knows no memory, no σ
//! and no video format.

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
    /// Packed 4:2:2: four samples for two pixels, with luma and chroma alternating. Samples of two bytes are stored as in
    /// [`Self::MsbAligned`]. Where the width is odd, the second luma sample of the last pair lies beyond the picture. It is
    /// written with the blur of the repeated edge, unless luma is not blurred.
    Yuv422 {
        /// Index of the first luma sample, 0 or 1.
        luma: u8,
    },
}

/// How a sample is stored in its pixel: as some bits of a word in native byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredSample {
    /// The index of the word's first byte in the pixel.
    pub byte: usize,
    /// The bytes of the word: 1 or 2, or 4 if all samples of the pixel share the word.
    pub word_bytes: usize,
    /// The position of the sample's lowest bit in the word.
    pub shift: u32,
    /// The number of bits of the sample, at most 16.
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

    /// A mask for the sample's value in the lowest bits.
    fn mask(self) -> u32 {
        (1 << self.bits) - 1
    }

    /// Reads the sample from a pixel.
    #[inline]
    pub fn load(self, pixel: &[u8]) -> u16 {
        (self.word(pixel) >> self.shift & self.mask()) as u16
    }

    /// Writes the sample to a pixel. Bits of `value` beyond the sample's bits are ignored. Bits of the word that belong to no
    /// sample become 0.
    #[inline]
    pub fn store(self, pixel: &mut [u8], value: u16) {
        let value = (u32::from(value) & self.mask()) << self.shift;
        // A word of four bytes also has other samples, which stay unchanged.
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
    /// Interleaved samples per pixel, 1 to 4. Each channel is blurred independently. It is 4 for [`SampleLayout::Packed1010102`].
    /// It is also 4 for [`SampleLayout::Yuv422`], which has four samples in a pair of pixels.
    pub channels: u8,
    /// Bits per sample, 8 to 16. A sample of 8 bits has one byte, others have two. [`SampleLayout::Packed1010102`] has a depth of
    /// 10, and its last sample has 2 bits.
    pub depth: u8,
    /// How the samples are stored.
    pub sample_layout: SampleLayout,
    /// What each channel represents. Only the first `channels` elements are used.
    pub roles: [Role; 4],
    /// Samples of this plane per picture pixel along x and y, in (0, 1]: 0.5 on an axis that is subsampled by two. For packed
    /// 4:2:2 this is the scale of luma.
    pub sigma_scale: [f64; 2],
    /// How the plane is divided into fields.
    pub split: Split,
}

/// How a plane is divided into fields, which are blurred separately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Split {
    /// One field: the whole plane.
    #[default]
    Whole,
    /// The rows alternate between the fields of an interlaced frame.
    Fields,
    /// The rows alternate between two views, which show the same lines of the picture.
    Rows,
    /// Two views side by side. The width is even. For packed 4:2:2, half of the width is even, too.
    SideBySide,
    /// Two views, one above the other. The height is even.
    TopBottom,
}

impl Split {
    /// Whether the rows alternate between fields or views.
    pub fn alternates(self) -> bool {
        matches!(self, Self::Fields | Self::Rows)
    }

    /// The number of views side by side, and one above the other. Views with alternating rows are not counted, because they show
    /// the same places of the picture.
    pub fn views(self) -> [u32; 2] {
        match self {
            Self::SideBySide => [2, 1],
            Self::TopBottom => [1, 2],
            Self::Whole | Self::Fields | Self::Rows => [1, 1],
        }
    }
}

/// A part of a plane that is blurred separately: the whole plane, a field of an interlaced frame, or a view of a stereo picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field {
    /// The layout of the field by itself.
    pub layout: PlaneLayout,
    /// The index of the field's first row in the plane.
    pub first_row: usize,
    /// The distance between two rows of the field, in rows of the plane.
    pub step: usize,
    /// The index of the field's first pixel in each row of the plane.
    pub first_column: usize,
}

impl Field {
    /// The field of a plane that is not split: the whole plane.
    pub const fn whole(layout: PlaneLayout) -> Self {
        Self { layout, first_row: 0, step: 1, first_column: 0 }
    }

    /// The memory of the field, in the memory of its plane.
    pub fn rows_of<A: Address>(&self, plane: &PlaneMemory<A>) -> PlaneMemory<A> {
        plane.every(self.first_row, self.step).from_byte(self.first_byte())
    }

    /// The first column and row in the plane. They differ between the fields of a plane.
    pub fn place(&self) -> [usize; 2] {
        [self.first_column, self.first_row]
    }

    /// The row of the plane that holds row `y` of the field.
    pub fn plane_row(&self, y: u32) -> usize {
        self.first_row + y as usize * self.step
    }

    /// The index of the field's first byte in each row of the plane.
    pub fn first_byte(&self) -> usize {
        self.first_column / self.layout.unit_pixels() as usize * self.layout.pixel_bytes()
    }
}

impl PlaneLayout {
    /// A plane of [`Role::Primary`] channels that is LSB-aligned, not split and not subsampled.
    pub const fn new(width: u32, height: u32, channels: u8, depth: u8) -> Self {
        let (sample_layout, roles) = (SampleLayout::LsbAligned, [Role::Primary; 4]);
        Self { width, height, channels, depth, sample_layout, roles, sigma_scale: [1.0; 2], split: Split::Whole }
    }

    /// Bytes per sample, 1 or 2. Samples of [`SampleLayout::Packed1010102`] count as 2, because they are unpacked to 16 bits.
    pub fn sample_bytes(&self) -> usize {
        if self.depth == 8 { 1 } else { 2 }
    }

    /// Whether the layout is packed 4:2:2.
    pub fn is_packed_422(&self) -> bool {
        matches!(self.sample_layout, SampleLayout::Yuv422 { .. })
    }

    /// Whether all samples of a pixel share one word.
    pub fn is_packed_word(&self) -> bool {
        self.sample_layout == SampleLayout::Packed1010102
    }

    /// Pixels of the unit that repeats along a row: 1, or 2 for packed 4:2:2.
    pub fn unit_pixels(&self) -> u32 {
        if self.is_packed_422() { 2 } else { 1 }
    }

    /// Pixels per row, or pairs of pixels for packed 4:2:2.
    pub fn row_pixels(&self) -> usize {
        self.width.div_ceil(self.unit_pixels()) as usize
    }

    /// How sample `index` is stored in a pixel, or in a pair of pixels for packed 4:2:2.
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

    /// Bytes per pixel, or per pair of pixels for packed 4:2:2.
    pub fn pixel_bytes(&self) -> usize {
        if self.is_packed_word() { 4 } else { usize::from(self.channels) * self.sample_bytes() }
    }

    /// Bytes of the samples in a row. The pitch may be larger.
    pub fn row_bytes(&self) -> usize {
        self.row_pixels() * self.pixel_bytes()
    }

    /// The columns of a rectangle in [row pixels](Self::row_pixels). A half-covered pair is included.
    pub fn columns(&self, rect: Rect) -> Range<u32> {
        let unit = self.unit_pixels();
        rect.x() / unit..rect.right().div_ceil(unit)
    }

    /// The bytes of the pixels from column `x` to `right` of a row, as two ranges, which may be empty. If half of a pair of
    /// pixels of packed 4:2:2 is covered, the luma of the other pixel is left out.
    pub fn byte_ranges(&self, x: u32, right: u32) -> [[usize; 2]; 2] {
        let [start, end] = [x, right].map(|x| x as usize * self.pixel_bytes());
        let SampleLayout::Yuv422 { luma } = self.sample_layout else { return [[start, end], [end, end]] };
        let sample = self.sample_bytes();
        let luma_byte = |x: u32| (2 * x as usize + usize::from(luma)) * sample;
        let [start, end] = [x / 2, right.div_ceil(2)].map(|pair| pair as usize * self.pixel_bytes());
        // In the first pair, the luma of the left pixel is sample 0 or 1. In the last pair, the luma of the right pixel is sample
        // 2 or 3. The luma beyond an odd width belongs to the last pixel.
        let before = (x % 2 == 1).then(|| luma_byte(x - 1));
        let behind = (right % 2 == 1 && right < self.width).then(|| luma_byte(right));
        let (start, end, within) = match luma {
            0 => (before.map_or(start, |byte| byte + sample), end, behind),
            _ => (start, behind.unwrap_or(end), before),
        };
        within.map_or([[start, end], [end, end]], |byte| [[start, byte], [byte + sample, end]])
    }

    /// The memory of the plane from the first row and column of a rectangle on.
    pub fn within<A: Address>(&self, plane: &PlaneMemory<A>, rect: Rect) -> PlaneMemory<A> {
        plane.from_row(rect.y() as usize).from_byte(self.columns(rect).start as usize * self.pixel_bytes())
    }

    /// The number of bits by which a sample is shifted left within its 16-bit word.
    pub fn shift(&self) -> u8 {
        let is_high = self.sample_layout == SampleLayout::MsbAligned || self.is_packed_422();
        if is_high && self.depth > 8 { 16 - self.depth } else { 0 }
    }

    /// The roles of the channels.
    pub fn roles(&self) -> &[Role] {
        &self.roles[..usize::from(self.channels)]
    }

    /// The fields of the plane. Adjacent rows of a field of an interlaced frame are two rows of the picture apart, so the field's
    /// vertical σ scale is half of the plane's.
    pub fn fields(&self) -> impl Iterator<Item = Field> + use<> {
        let (plane, [across, down]) = (*self, self.split.views());
        let step = 1 + u32::from(plane.split.alternates());
        let [horizontal, vertical] = plane.sigma_scale;
        let vertical = if plane.split == Split::Fields { vertical / 2.0 } else { vertical };
        let (width, height) = (plane.width / across, plane.height / down);
        let field = move |index: u32| {
            let first_row = if down > 1 { index * height } else { index % step };
            let layout = Self {
                width,
                height: (height - index % step).div_ceil(step),
                sigma_scale: [horizontal, vertical],
                split: Split::Whole,
                ..plane
            };
            let first_column = if across > 1 { index * width } else { 0 };
            Field { layout, first_row: first_row as usize, step: step as usize, first_column: first_column as usize }
        };
        // In a plane of one row, the row belongs to the first field.
        (0..(across * down * step.min(height))).map(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: PlaneLayout = PlaneLayout::new(10, 4, 3, 8);

    #[test]
    fn rows_alternate_between_fields() {
        let fields: Vec<_> = PlaneLayout { split: Split::Fields, height: 5, ..LAYOUT }.fields().collect();
        assert_eq!(
            fields.iter().map(|field| (field.first_row, field.layout.height)).collect::<Vec<_>>(),
            [(0, 3), (1, 2)]
        );
        assert!(fields.iter().all(|field| field.step == 2 && field.layout.sigma_scale == [1.0, 0.5]));
        assert_eq!(PlaneLayout { split: Split::Fields, height: 1, ..LAYOUT }.fields().count(), 1);
        assert_eq!(LAYOUT.fields().collect::<Vec<_>>(), [Field::whole(LAYOUT)]);
    }

    #[test]
    fn packed_pixels_have_their_size() {
        let pairs = PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma: 0 }, ..PlaneLayout::new(7, 2, 4, 8) };
        assert_eq!((pairs.row_samples(), pairs.row_bytes()), (16, 16));
        let words = PlaneLayout { sample_layout: SampleLayout::Packed1010102, ..PlaneLayout::new(7, 2, 4, 10) };
        assert_eq!((words.row_samples(), words.row_bytes()), (28, 28));
    }
}
