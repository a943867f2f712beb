// SPDX-License-Identifier: MPL-2.0
//! Masks in buffers: GRAY8 samples that say how much of a box is the object, GRAY8 or GRAY16 images of region ids, of which
//! some are the object, and the alpha channel of a frame. Every row is checked to be in its buffer before it is read.

use std::ops::Range;

use gst_video::VideoFormat;

use crate::filter::frame::{Frame, FrameError, Plane, Role, Side, check_host};
use crate::filter::regions::Area;
use crate::filter::samples;
use crate::filter::weights::Mask;
use crate::regions::detection::Labels;

/// Largest width and height of a mask, in samples.
const SIDE_MAX: usize = 4096;
/// Most samples of all masks of a frame: four of the largest size.
const SAMPLES_MAX: usize = 4 * SIDE_MAX * SIDE_MAX;
/// Samples of a mask of ids that are kept around an object, so that its edge has neighbours that are not the object.
const MARGIN: usize = 2;
/// From this value on a sample of a mask is inside of the object.
const INSIDE: u8 = 128;

/// What the masks of a frame are read for, and how many more samples they may have.
#[derive(Debug)]
pub struct MaskReader<'a> {
    labels: &'a Labels,
    samples_left: usize,
}

impl<'a> MaskReader<'a> {
    /// For the masks of one frame. Only objects that these labels select need one.
    pub fn new(labels: &'a Labels) -> Self {
        Self { labels, samples_left: SAMPLES_MAX }
    }

    /// The labels that select objects.
    pub fn labels(&self) -> &'a Labels {
        self.labels
    }

    /// The mask in a sample with caps `video/x-raw,format=GRAY8`, stretched over an area. `None` if it cannot be read, or if
    /// none of it is inside of an object: nothing would be covered where a detector found something.
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
        let (columns, rows_count) = (layout.columns, layout.rows);
        self.spend(columns, rows_count).ok()?;
        made(MaskPart { columns, rows: rows_count, samples: rows.flatten().copied().collect(), area })
    }

    /// The object that has these ids of an image, of which only samples count that meet the area `within`. `None` if it has no
    /// sample.
    pub fn part(
        &mut self,
        image: &IdImage,
        is_object: impl Fn(u16) -> bool,
        within: Option<Area>,
    ) -> Result<Option<MaskPart>, TooManySamples> {
        let Some(object) = image.extent_of(&is_object, within) else { return Ok(None) };
        let all = object.grown(MARGIN, image.columns, image.rows);
        self.spend(all.columns.len(), all.rows.len())?;
        let mut samples = vec![0; all.columns.len() * all.rows.len()];
        let rows = samples.chunks_mut(all.columns.len()).skip(object.rows.start - all.rows.start);
        for (y, row) in object.rows.zip(rows) {
            let ids = &image.ids[y * image.columns..][object.columns.clone()];
            let row = &mut row[object.columns.start - all.columns.start..];
            row.iter_mut().zip(ids).for_each(|(sample, id)| *sample = if is_object(*id) { 255 } else { 0 });
        }
        let area = image.area_around(&all);
        let part = MaskPart { columns: all.columns.len(), rows: all.rows.len(), samples, area };
        Ok(part.samples.contains(&255).then_some(part))
    }

    /// The mask of an object of which each part has a mask: a sample is the object's if it meets a sample that is the object's
    /// in any of them. `None` if there is no part, or if a mask of all would be too large.
    pub fn unite(&mut self, mut parts: Vec<MaskPart>) -> Option<Mask> {
        if parts.len() < 2 {
            return made(parts.pop()?);
        }
        let area = parts.iter().map(|part| part.area).reduce(Area::union)?;
        let finest = |length: &dyn Fn(&MaskPart) -> f64| parts.iter().map(length).fold(f64::INFINITY, f64::min);
        // So many of the finest samples, and not one more for an error of rounding.
        let count = |length: f64, sample: f64| ((length / sample - 1e-6).ceil().max(1.0) as usize).min(SIDE_MAX);
        let columns = count(area.right - area.left, finest(&|part| part.sample_width()));
        let rows = count(area.bottom - area.top, finest(&|part| part.sample_height()));
        self.spend(columns, rows).ok()?;
        let mut united = MaskPart { columns, rows, samples: vec![0; columns * rows], area };
        for part in &parts {
            for y in 0..part.rows {
                let top = part.area.top + y as f64 * part.sample_height();
                let to_rows =
                    overlapped([top, top + part.sample_height()], united.area.top, united.sample_height(), rows);
                let mut x = 0;
                let row = &part.samples[y * part.columns..][..part.columns];
                for run in row.chunk_by(|one, next| one == next) {
                    let ends = [x, x + run.len()].map(|x| part.area.left + x as f64 * part.sample_width());
                    x += run.len();
                    if run[0] > 0 {
                        let to_columns = overlapped(ends, united.area.left, united.sample_width(), columns);
                        for to in to_rows.clone() {
                            united.samples[to * columns..][to_columns.clone()].fill(255);
                        }
                    }
                }
            }
        }
        made(united)
    }

    /// Counts the samples of a mask that is going to be made.
    fn spend(&mut self, columns: usize, rows: usize) -> Result<(), TooManySamples> {
        let samples = columns.checked_mul(rows).ok_or(TooManySamples)?;
        self.samples_left = self.samples_left.checked_sub(samples).ok_or(TooManySamples)?;
        Ok(())
    }
}

/// The masks of a frame have more samples than are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManySamples;

fn made(part: MaskPart) -> Option<Mask> {
    let MaskPart { columns, rows, samples, area } = part;
    let is_useful = !area.is_empty() && samples.iter().any(|sample| *sample >= INSIDE);
    let (columns, rows) = (u32::try_from(columns).ok()?, u32::try_from(rows).ok()?);
    is_useful.then(|| Mask::new(columns, rows, samples, area))?
}

/// The indices below `count` of the samples from `start` on that a part of an axis meets.
fn overlapped([from, to]: [f64; 2], start: f64, sample: f64, count: usize) -> Range<usize> {
    // Not those that only an error of rounding meets. NaN and what is below 0 become 0.
    let first = ((from - start) / sample + 1e-6).floor() as usize;
    let end = ((to - start) / sample - 1e-6).ceil() as usize;
    first.min(count)..end.min(count).max(first.min(count))
}

/// What of an object one mask says: 255 is the object.
#[derive(Debug, Clone, PartialEq)]
pub struct MaskPart {
    columns: usize,
    rows: usize,
    samples: Vec<u8>,
    area: Area,
}

impl MaskPart {
    /// In luma samples of the picture.
    fn sample_width(&self) -> f64 {
        (self.area.right - self.area.left) / self.columns as f64
    }

    fn sample_height(&self) -> f64 {
        (self.area.bottom - self.area.top) / self.rows as f64
    }
}

/// The alpha channel of a frame as the mask of an object in all of its picture, of `size` (width, height). `None` if it has no
/// such channel. Of samples of more than 8 bits the upper 8 count.
pub fn of_alpha(frame: &Frame, size: (u32, u32)) -> Result<Option<Mask>, FrameError> {
    check_host(frame, Side::Input)?;
    let is_alpha = |plane: &&Plane<&[u8]>| plane.layout.roles().contains(&Role::Alpha);
    let Some(Plane { layout, pitch, data }) = frame.iter().find(is_alpha) else { return Ok(None) };
    let channel = samples::channels(layout).find(|channel| layout.roles[channel.first] == Role::Alpha);
    let Some(channel) = channel else { return Ok(None) };
    let (width, rows) = (layout.width as usize, data.chunks(*pitch).take(layout.height as usize));
    let mut samples = Vec::with_capacity(width * layout.height as usize);
    for row in rows {
        match layout.depth {
            8 if channel.step == 1 => samples.extend_from_slice(&row[..width]),
            8 => samples.extend(row[channel.first..].iter().step_by(channel.step).take(width)),
            // Two bits.
            _ if layout.is_packed_word() => {
                samples.extend((0..layout.width).map(|x| channel.load(layout, row, x) as u8 * 85));
            }
            depth => {
                let words = row.as_chunks::<2>().0.iter().skip(channel.first).step_by(channel.step).take(width);
                let shift = depth - 8 + layout.shift();
                samples.extend(words.map(|word| (u16::from_ne_bytes(*word) >> shift) as u8));
            }
        }
    }
    Ok(Mask::new(layout.width, layout.height, samples, Area::from_corner(0.0, 0.0, size.0.into(), size.1.into())))
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
    /// What the buffer itself says, if it has a GstVideoMeta.
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

    /// What GStreamer lays out by default.
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

/// The columns and rows around all samples of a region, in samples of the mask.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Extent {
    columns: Range<usize>,
    rows: Range<usize>,
}

impl Extent {
    fn union(self, other: &Self) -> Self {
        let unite = |one: Range<usize>, other: &Range<usize>| one.start.min(other.start)..one.end.max(other.end);
        Self { columns: unite(self.columns, &other.columns), rows: unite(self.rows, &other.rows) }
    }

    /// With so many samples more on each side that the mask has.
    fn grown(&self, by: usize, columns: usize, rows: usize) -> Self {
        let grow = |axis: &Range<usize>, count: usize| axis.start.saturating_sub(by)..(axis.end + by).min(count);
        Self { columns: grow(&self.columns, columns), rows: grow(&self.rows, rows) }
    }
}

/// An image of region ids, stretched over an area of the picture.
#[derive(Debug)]
pub struct IdImage {
    columns: usize,
    rows: usize,
    ids: Vec<u16>,
    area: Area,
    /// By id.
    extents: Vec<Option<Extent>>,
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
        let mut extents = vec![None; usize::from(ids.iter().copied().max()?) + 1];
        for (y, row) in ids.chunks(layout.columns).enumerate() {
            let mut x = 0;
            for run in row.chunk_by(|one, next| one == next) {
                let extent = Extent { columns: x..x + run.len(), rows: y..y + 1 };
                x += run.len();
                let all: &mut Option<Extent> = &mut extents[usize::from(run[0])];
                *all = Some(all.take().map_or(extent.clone(), |all| all.union(&extent)));
            }
        }
        Some(Self { columns: layout.columns, rows: layout.rows, ids, area, extents })
    }

    /// The ids that samples have, in order.
    pub fn present(&self) -> impl Iterator<Item = u16> {
        (0..=u16::MAX).zip(&self.extents).filter(|(_, extent)| extent.is_some()).map(|(id, _)| id)
    }

    /// The smallest area around the samples with an id.
    pub fn area_of(&self, id: u16) -> Option<Area> {
        Some(self.area_around(self.extents.get(usize::from(id))?.as_ref()?))
    }

    fn area_around(&self, extent: &Extent) -> Area {
        let Area { left, top, right, bottom } = self.area;
        let x = |column: usize| left + column as f64 * (right - left) / self.columns as f64;
        let y = |row: usize| top + row as f64 * (bottom - top) / self.rows as f64;
        Area {
            left: x(extent.columns.start),
            top: y(extent.rows.start),
            right: x(extent.columns.end),
            bottom: y(extent.rows.end),
        }
    }

    /// The samples with these ids, of which only those count that meet the area `within`. `None` if there is none; the other way
    /// round only without `within`.
    fn extent_of(&self, is_object: impl Fn(u16) -> bool, within: Option<Area>) -> Option<Extent> {
        let extents =
            self.present().filter(|id| is_object(*id)).filter_map(|id| self.extents[usize::from(id)].as_ref());
        let mut object = extents.cloned().reduce(|all, extent| all.union(&extent))?;
        if let Some(within) = within {
            let Area { left, top, right, bottom } = self.area;
            let width = (right - left) / self.columns as f64;
            let height = (bottom - top) / self.rows as f64;
            let meet = |one: Range<usize>, other: Range<usize>| one.start.max(other.start)..one.end.min(other.end);
            object.columns = meet(object.columns, overlapped([within.left, within.right], left, width, self.columns));
            object.rows = meet(object.rows, overlapped([within.top, within.bottom], top, height, self.rows));
        }
        (!object.columns.is_empty() && !object.rows.is_empty()).then_some(object)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use gst::glib::translate::IntoGlib;

    use super::*;

    const AREA: Area = Area { left: 10.0, top: 20.0, right: 18.0, bottom: 24.0 };

    fn labels() -> Labels {
        Labels::default()
    }

    fn part(columns: usize, samples: &[u8], area: Area) -> MaskPart {
        MaskPart { columns, rows: samples.len() / columns, samples: samples.to_vec(), area }
    }

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

    /// Half a sample of 2 luma samples beyond the object, two samples around it, and nothing of the other ids.
    #[test]
    fn part_has_the_object_and_a_margin() {
        gst::init().unwrap();
        let mut ids = vec![7; 8 * 6];
        ids[8 * 3 + 4] = 9;
        let area = Area { left: 0.0, top: 0.0, right: 16.0, bottom: 12.0 };
        let image = IdImage::of_buffer(&image([8, 6], 0, 8, ids), area, false).unwrap();
        let labels = labels();
        let mut masks = MaskReader::new(&labels);
        let part = masks.part(&image, |id| id == 9, None).unwrap().unwrap();
        assert_eq!(part.area, Area { left: 4.0, top: 2.0, right: 14.0, bottom: 12.0 });
        assert_eq!((part.columns, part.rows), (5, 5));
        assert_eq!((0..25).filter(|i| part.samples[*i] == 255).collect::<Vec<_>>(), [12]);
        assert_eq!(masks.part(&image, |id| id == 1, None), Ok(None));
        for beside in [
            Area { right: 8.0, ..area },
            Area { right: 2.0, ..area },
            Area { left: 15.0, ..area },
            Area { bottom: 6.0, ..area },
            Area { bottom: 2.0, ..area },
            Area { top: 11.0, ..area },
        ] {
            assert_eq!(masks.part(&image, |id| id == 9, Some(beside)), Ok(None), "{beside:?}");
        }
        for touching in [Area { right: 8.5, ..area }, Area { bottom: 6.5, ..area }, Area { top: 7.5, ..area }] {
            assert_eq!(masks.part(&image, |id| id == 9, Some(touching)), Ok(Some(part.clone())), "{touching:?}");
        }
        let none = Area { left: f64::NAN, ..area };
        assert!(masks.part(&image, |id| id == 9, Some(none)).is_ok());
        masks.samples_left = 24;
        assert_eq!(masks.part(&image, |id| id == 9, None), Err(TooManySamples));
    }

    #[test]
    fn united_parts_cover_what_each_covers() {
        let labels = labels();
        let mut masks = MaskReader::new(&labels);
        let one = part(2, &[255, 0, 0, 0], AREA);
        let other = part(2, &[0, 0, 0, 255], AREA);
        let united = masks.unite(vec![one.clone(), other.clone()]).unwrap();
        assert_eq!(united, Mask::new(2, 2, vec![255, 0, 0, 255], AREA).unwrap(), "the same samples");
        let third = part(2, &[0, 0, 255, 0], AREA);
        let united = masks.unite(vec![one.clone(), other.clone(), third]).unwrap();
        assert_eq!(united, Mask::new(2, 2, vec![255, 0, 255, 255], AREA).unwrap(), "three");
        // Two samples to one, and one luma sample to the right.
        let finer = Area { left: 11.0, right: 19.0, ..AREA };
        let finer = part(4, &[0, 0, 0, 255], finer);
        let united = masks.unite(vec![one.clone(), finer]).unwrap();
        assert_eq!(united.area(), Area { right: 19.0, ..AREA });
        // 9 luma samples in 5 of 1.8: the first part has 4 of them, the other the last two.
        let row = |samples: [u8; 5]| samples.map(|sample| sample * 255);
        let rows = [row([1, 1, 1, 1, 1]), row([0, 0, 0, 1, 1])];
        assert_eq!(united, Mask::new(5, 2, rows.concat(), united.area()).unwrap());
        assert_eq!(masks.unite(vec![]), None);
        assert_eq!(masks.unite(vec![part(2, &[0; 4], AREA)]), None, "no sample is the object's");
        assert_eq!(masks.unite(vec![part(2, &[0; 4], AREA), other.clone()]).unwrap().object(), {
            Some(Area { left: 14.0, top: 22.0, ..AREA })
        });
        // One that is far away and finer than what fits.
        let far = Area { left: 1e9, top: 0.0, right: 1e9 + 1.0, bottom: 1.0 };
        let united = masks.unite(vec![one.clone(), part(2, &[255; 2], far)]).unwrap();
        let object = united.object().unwrap();
        assert!(object.left <= AREA.left && object.right >= far.right && object.top <= 0.0);
        masks.samples_left = 3;
        assert_eq!(masks.unite(vec![one, other]), None);
    }
}
