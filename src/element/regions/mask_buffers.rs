// SPDX-License-Identifier: MPL-2.0
//! Masks in buffers. There are masks of GRAY8 samples, which say which part of a box is the object, and images of
//! region ids in GRAY8 or GRAY16, in which some ids are the object. Every row is checked to be in its buffer before it
//! is read.

use gst_video::VideoFormat;

use crate::filter::regions::Area;
use crate::filter::weights::Mask;
use crate::regions::masks::{IdImage, MaskReader, SIDE_MAX};

/// The timestamp of a frame or a mask, in nanoseconds.
pub fn time_of(buffer: &gst::BufferRef) -> Option<u64> {
    buffer.pts().map(gst::ClockTime::nseconds)
}

impl MaskReader<'_> {
    /// The mask in a sample with caps `video/x-raw,format=GRAY8`, stretched over an area. `None` if the mask cannot be
    /// read, or if no sample of it is inside of an object. In the latter case nothing would be covered although a
    /// detector found something.
    pub fn of_sample(&mut self, sample: &gst::Sample, area: Area) -> Option<Mask> {
        let buffer = sample.buffer()?;
        // GStreamer logs a programming error for caps that are not fixed.
        let caps = sample.caps().filter(|caps| caps.is_fixed())?;
        let layout = Layout::of_caps(&gst_video::VideoInfo::from_caps(caps).ok()?);
        let layout = match Layout::of_meta(buffer) {
            Some(actual) => Some(actual).filter(|actual| actual.describes_same(&layout))?,
            None => layout,
        };
        let map = buffer.map_readable().ok()?;
        let rows = layout.rows(&map).filter(|_| layout.format == VideoFormat::Gray8)?;
        self.of_rows([layout.columns, layout.rows], rows, area)
    }
}

impl IdImage {
    /// The image in a buffer, which its GstVideoMeta describes. `None` if it has no such meta, another format than GRAY8 and
    /// GRAY16, no area, or rows that are not in the buffer. `is_packed` says that rows must follow one another without padding.
    pub fn of_buffer(buffer: &gst::BufferRef, area: Area, is_packed: bool) -> Option<Self> {
        let layout = Layout::of_meta(buffer)?;
        let bytes = layout.sample_bytes();
        if area.is_empty() || is_packed && layout.stride != layout.columns.checked_mul(bytes) {
            return None;
        }
        let map = buffer.map_readable().ok()?;
        let mut ids = Vec::new();
        for row in layout.rows(&map)? {
            let pairs = row.as_chunks::<2>().0.iter().copied();
            match layout.format {
                VideoFormat::Gray8 => ids.extend(row.iter().copied().map(u16::from)),
                VideoFormat::Gray16Le => ids.extend(pairs.map(u16::from_le_bytes)),
                VideoFormat::Gray16Be => ids.extend(pairs.map(u16::from_be_bytes)),
                _ => return None,
            }
        }
        Self::new(layout.columns, ids, area)
    }
}

/// Where the samples of a mask are in its buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layout {
    format: VideoFormat,
    columns: usize,
    rows: usize,
    /// Bytes before the first row.
    offset: usize,
    /// Bytes from one row to the next; `None` if it is negative.
    stride: Option<usize>,
}

impl Layout {
    /// The layout that the buffer's GstVideoMeta describes, if it has one.
    fn of_meta(buffer: &gst::BufferRef) -> Option<Self> {
        let meta = buffer.meta::<gst_video::VideoMeta>()?;
        // SAFETY: the pointer is to the live meta that `meta` borrows. Its own methods panic for a number of planes above 4.
        let raw = unsafe { &*meta.as_ptr() };
        Some(Self {
            format: meta.format(),
            columns: raw.width as usize,
            rows: raw.height as usize,
            offset: raw.offset[0],
            stride: usize::try_from(raw.stride[0]).ok(),
        })
    }

    /// GStreamer's default layout.
    fn of_caps(info: &gst_video::VideoInfo) -> Self {
        let first = |values: &[i32]| values.first().and_then(|stride| usize::try_from(*stride).ok());
        let (columns, rows) = (info.width() as usize, info.height() as usize);
        Self { format: info.format(), columns, rows, offset: 0, stride: first(info.stride()) }
    }

    fn describes_same(&self, other: &Self) -> bool {
        (self.format, self.columns, self.rows) == (other.format, other.columns, other.rows)
    }

    fn sample_bytes(&self) -> usize {
        if self.format == VideoFormat::Gray8 { 1 } else { 2 }
    }

    /// The bytes of each row; `None` if the size is out of range, if rows overlap, or if they are not all in the data.
    fn rows<'a>(&self, data: &'a [u8]) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
        let is_side = |side: usize| (1..=SIDE_MAX).contains(&side);
        let bytes = self.columns.checked_mul(self.sample_bytes())?;
        let stride = self.stride.filter(|stride| *stride >= bytes && is_side(self.columns) && is_side(self.rows))?;
        let data = data.get(self.offset..)?;
        let needed = stride.checked_mul(self.rows - 1)?.checked_add(bytes)?;
        (needed <= data.len()).then(|| data.chunks(stride).take(self.rows).map(move |row| &row[..bytes]))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use gst::glib::translate::IntoGlib;

    use super::*;

    const AREA: Area = Area { left: 10.0, top: 20.0, right: 18.0, bottom: 24.0 };

    /// A buffer with a GstVideoMeta that says this, true or not.
    pub fn image_of(format: VideoFormat, size: [u32; 2], offset: usize, stride: i32, bytes: Vec<u8>) -> gst::Buffer {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::from_mut_slice(bytes);
        // SAFETY: the buffer is live and writable, so that the function returns a live meta of it. It does not look at its
        // size, as the bindings do.
        unsafe {
            let (buffer, format) = (buffer.get_mut().unwrap().as_mut_ptr(), format.into_glib());
            let meta = &mut *gst_video::ffi::gst_buffer_add_video_meta(buffer, 0, format, 1, 1);
            [meta.width, meta.height] = size;
            (meta.offset[0], meta.stride[0]) = (offset, stride);
        }
        buffer
    }

    fn image(size: [u32; 2], offset: usize, stride: i32, bytes: Vec<u8>) -> gst::Buffer {
        image_of(VideoFormat::Gray8, size, offset, stride, bytes)
    }

    #[test]
    fn images_are_read_only_within_their_buffer() {
        let read = |size, offset, stride, bytes: usize| {
            let bytes = (0..bytes).map(|byte| byte as u8).collect();
            IdImage::of_buffer(&image(size, offset, stride, bytes), AREA, false).map(|image| image.ids)
        };
        assert_eq!(read([3, 2], 0, 4, 8), Some(vec![0, 1, 2, 4, 5, 6]));
        assert_eq!(read([3, 2], 0, 4, 7), Some(vec![0, 1, 2, 4, 5, 6]), "the last row has no padding");
        assert_eq!(read([3, 2], 1, 4, 8), Some(vec![1, 2, 3, 5, 6, 7]));
        assert_eq!(read([3, 2], 0, 3, 6), Some(vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(read([3, 1], 0, i32::MAX, 3), Some(vec![0, 1, 2]));
        for (size, offset, stride, bytes) in [
            ([3, 2], 0, 4, 6),
            ([3, 2], 2, 4, 8),
            ([3, 2], usize::MAX, 4, 8),
            ([3, 2], 0, 2, 8),
            ([3, 2], 0, 0, 8),
            ([3, 2], 0, -4, 8),
            ([3, 2], 0, i32::MIN, 8),
            ([3, 2], 0, i32::MAX, 8),
            ([0, 2], 0, 4, 8),
            ([3, 0], 0, 4, 8),
            ([4097, 1], 0, 4097, 4097),
            ([1, 4097], 0, 1, 4097),
            ([u32::MAX, u32::MAX], 0, 4, 8),
            ([3, 2], 0, 4, 0),
        ] {
            assert_eq!(read(size, offset, stride, bytes), None, "{size:?} {offset} {stride} {bytes}");
        }
        let padded = image([3, 2], 0, 4, vec![1; 8]);
        assert!(IdImage::of_buffer(&padded, AREA, true).is_none(), "rows that are said to be packed");
        assert!(IdImage::of_buffer(&image([3, 2], 0, 3, vec![1; 6]), AREA, true).is_some());
        assert!(IdImage::of_buffer(&padded, Area { right: 10.0, ..AREA }, false).is_none(), "an empty area");
        assert!(IdImage::of_buffer(&gst::Buffer::from_mut_slice(vec![1_u8; 8]), AREA, false).is_none(), "no meta");
    }

    #[test]
    fn sixteen_bit_ids_are_read_in_either_byte_order() {
        for (format, bytes) in [(VideoFormat::Gray16Le, [1, 0, 0, 2]), (VideoFormat::Gray16Be, [0, 1, 2, 0])] {
            let buffer = image_of(format, [2, 1], 0, 4, bytes.to_vec());
            let image = IdImage::of_buffer(&buffer, AREA, false).unwrap();
            assert_eq!(image.present().collect::<Vec<_>>(), [1, 512]);
            assert_eq!(image.area_of(512), Some(Area { left: 14.0, ..AREA }));
        }
    }
}
