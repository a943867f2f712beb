// SPDX-License-Identifier: MPL-2.0
//! Access to single samples in the rows of a plane in host memory, for all layouts.

use super::frame::{PlaneLayout, SampleLayout, StoredSample};
use super::picture::{FieldRect, PictureGeometry};
use super::regions::Rect;

/// The samples of one channel in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel {
    /// The index of the channel's first sample in the row, which is also the index of the channel in the layout.
    pub first: usize,
    /// The distance from one sample of the channel to the next, in samples of the row.
    pub step: usize,
    /// log2 of the pixels of the plane that a sample stands for: 1 for the chroma of packed 4:2:2, else 0.
    pub shift: u32,
}

/// The channels of a plane. In packed 4:2:2, both luma samples of a pair of pixels belong to one channel.
pub fn channels(layout: &PlaneLayout) -> impl Iterator<Item = Channel> + use<> {
    let (count, sample_layout) = (usize::from(layout.channels), layout.sample_layout);
    (0..count).filter_map(move |first| match sample_layout {
        SampleLayout::Yuv422 { luma } if first % 2 == usize::from(luma) => {
            (first < 2).then_some(Channel { first, step: 2, shift: 0 })
        }
        SampleLayout::Yuv422 { .. } => Some(Channel { first, step: 4, shift: 1 }),
        _ => Some(Channel { first, step: count, shift: 0 }),
    })
}

impl Channel {
    /// The number of samples of the channel in a row, without those beyond the picture.
    pub fn count(self, layout: &PlaneLayout) -> u32 {
        layout.width.div_ceil(1 << self.shift)
    }

    /// The samples of the channel that a rectangle of the plane covers, rounded outwards. The luma beyond an odd width of packed
    /// 4:2:2 belongs to the last pixel.
    pub fn covered(self, layout: &PlaneLayout, rect: Rect) -> std::ops::Range<u32> {
        let is_last = rect.right() == layout.width;
        let right = if is_last { layout.width.next_multiple_of(layout.unit_pixels()) } else { rect.right() };
        rect.x() >> self.shift..right.div_ceil(1 << self.shift)
    }

    /// How the channel's first sample is stored in a row, and the bytes from one sample to the next.
    #[inline]
    pub fn stored(self, layout: &PlaneLayout) -> (StoredSample, usize) {
        let sample = layout.stored(self.first);
        (sample, if layout.is_packed_word() { layout.pixel_bytes() } else { self.step * sample.word_bytes })
    }

    /// The bytes of the pixel with sample `x` of the channel, or of the pair of pixels for packed 4:2:2, and the index of the
    /// sample in them.
    fn pixel_of(self, layout: &PlaneLayout, x: u32) -> (std::ops::Range<usize>, usize) {
        let (channels, index) = (usize::from(layout.channels), self.first + x as usize * self.step);
        let (first, bytes) = (index / channels * layout.pixel_bytes(), layout.pixel_bytes());
        (first..first + bytes, index % channels)
    }

    /// Reads sample `x` of the channel.
    pub fn load(self, layout: &PlaneLayout, row: &[u8], x: u32) -> u16 {
        let (pixel, index) = self.pixel_of(layout, x);
        layout.stored(index).load(&row[pixel])
    }

    /// Writes sample `x` of the channel. Its padding bits become 0. Bits of `value` beyond the depth are ignored.
    pub fn store(self, layout: &PlaneLayout, row: &mut [u8], x: u32, value: u16) {
        let (pixel, index) = self.pixel_of(layout, x);
        layout.stored(index).store(&mut row[pixel], value);
    }
}

/// The rectangles of all fields of all planes that `rect` covers, each with the index of its plane.
pub fn covered_fields(picture: &PictureGeometry, rect: Rect) -> impl Iterator<Item = (usize, FieldRect)> {
    (0..picture.layouts().len())
        .flat_map(move |plane| picture.covered(plane, rect).map(move |covered| (plane, covered)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_samples_are_loaded_and_change_nothing_else() {
        let new =
            |channels, depth, sample_layout| PlaneLayout { sample_layout, ..PlaneLayout::new(5, 1, channels, depth) };
        for layout in [
            new(3, 8, SampleLayout::LsbAligned),
            new(4, 10, SampleLayout::LsbAligned),
            new(1, 16, SampleLayout::LsbAligned),
            new(2, 12, SampleLayout::MsbAligned),
            new(4, 10, SampleLayout::Packed1010102),
            new(4, 8, SampleLayout::Yuv422 { luma: 0 }),
            new(4, 8, SampleLayout::Yuv422 { luma: 1 }),
            new(4, 12, SampleLayout::Yuv422 { luma: 0 }),
        ] {
            let before: Vec<u8> = (0..layout.row_bytes()).map(|i| (i * 37 + 11) as u8).collect();
            let whole = Rect::new(0, 0, 5, 1).unwrap();
            let mut all = before.clone();
            let mut count = 0;
            for channel in channels(&layout) {
                let depth =
                    if layout.depth == 10 && channel.first == 3 && layout.shift() == 0 { 2 } else { layout.depth };
                for x in channel.covered(&layout, whole) {
                    let value = (0x5a5a_u32 >> (x % 3)) as u16 & ((1_u32 << depth) - 1) as u16;
                    let mut row = before.clone();
                    channel.store(&layout, &mut row, x, value);
                    assert_eq!(channel.load(&layout, &row, x), value, "{layout:?} {channel:?} {x}");
                    let (sample, step) = channel.stored(&layout);
                    let at = StoredSample { byte: sample.byte + x as usize * step, ..sample };
                    assert_eq!(at.load(&row), value, "{layout:?} {channel:?} {x}");
                    for other in channels(&layout) {
                        let others = other.covered(&layout, whole).filter(|i| other != channel || *i != x);
                        for i in others {
                            let [now, then] = [&row, &before].map(|row| other.load(&layout, row, i));
                            assert_eq!(now, then, "{layout:?} {channel:?} {x}, {other:?} {i}");
                        }
                    }
                    channel.store(&layout, &mut all, x, 0);
                    count += 1;
                }
            }
            assert_eq!(count, layout.row_samples(), "{layout:?}");
            assert!(all.iter().all(|byte| *byte == 0), "{layout:?}");
        }
    }
}
