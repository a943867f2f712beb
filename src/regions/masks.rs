// SPDX-License-Identifier: MPL-2.0
//! Masks of objects: parts of images of region ids, the union of several parts, and the alpha channel of a frame.

use std::ops::Range;

use super::detection::Labels;
use crate::filter::frame::{Frame, FrameError, Plane, Role, check_host};
use crate::filter::regions::{Area, Rect};
use crate::filter::samples;
use crate::filter::weights::Mask;

/// Largest width and height of a mask, in samples.
pub const SIDE_MAX: usize = 4096;
/// The largest number of samples of all masks of a frame: four masks of the largest size.
const SAMPLES_MAX: usize = 4 * SIDE_MAX * SIDE_MAX;
/// Samples of a mask of ids that are kept around an object, so that its edge has neighbours that are not the object.
const MARGIN: u32 = 2;
/// From this value on a sample of a mask is inside of the object.
const INSIDE: u8 = 128;

/// The conditions for reading the masks of a frame, and the number of samples that they may still have.
#[derive(Debug)]
pub struct MaskReader<'a> {
    /// Only objects that these labels select need a mask.
    pub labels: &'a Labels,
    samples_left: usize,
    /// Masks of an earlier time are old, in nanoseconds.
    oldest: Option<u64>,
}

impl<'a> MaskReader<'a> {
    /// For the masks of one frame.
    pub fn new(labels: &'a Labels) -> Self {
        Self { labels, samples_left: SAMPLES_MAX, oldest: None }
    }

    /// For the masks of a frame with this timestamp, if it has one. `duration` says how long the frame lasts. Both are
    /// in nanoseconds.
    pub fn of_frame(self, timestamp: Option<u64>, duration: u64) -> Self {
        // Times are rounded, and frames do not come in equal intervals.
        let tolerated = duration.saturating_add(duration / 8);
        Self { oldest: timestamp.and_then(|timestamp| timestamp.checked_sub(tolerated)), ..self }
    }

    /// Whether the mask in a buffer with this timestamp belongs to a frame before the previous one, so that the object
    /// may have left it.
    ///
    /// A mask of unknown time counts as the frame's own. GStreamer's tensor decoders and the element
    /// `selfiesegmentation` compute a mask for the frame that carries it, and write it into a new buffer, which has no
    /// timestamp. A buffer with a timestamp came through a pipeline, for example from a branch with a model that is
    /// slower than the frames.
    pub fn is_old(&self, timestamp: Option<u64>) -> bool {
        timestamp.zip(self.oldest).is_some_and(|(timestamp, oldest)| timestamp < oldest)
    }

    /// The mask of these rows of samples, stretched over an area. `None` if no sample is inside of an object. In this
    /// case nothing would be covered although a detector found something.
    pub fn of_rows<'r>(
        &mut self,
        [columns, rows]: [usize; 2],
        samples: impl Iterator<Item = &'r [u8]>,
        area: Area,
    ) -> Option<Mask> {
        self.spend(columns * rows).ok()?;
        made(MaskPart { columns, rows, samples: samples.flatten().copied().collect(), area })
    }

    /// The object that has these ids of an image. Only samples that meet the area `within` count. `None` if the object
    /// has no sample.
    pub fn part(
        &mut self,
        image: &IdImage,
        is_object: impl Fn(u16) -> bool,
        within: Option<Area>,
    ) -> Result<Option<MaskPart>, TooManySamples> {
        let Some(object) = image.rect_of(&is_object, within) else { return Ok(None) };
        let all = image.with_margin(object);
        let [columns, rows] = [all.width() as usize, all.height() as usize];
        self.spend(columns * rows)?;
        let mut samples = vec![0; columns * rows];
        let below_margin = samples.chunks_mut(columns).skip((object.y() - all.y()) as usize);
        for (y, row) in (object.y() as usize..object.bottom() as usize).zip(below_margin) {
            let ids = &image.ids[y * image.columns..][object.x() as usize..object.right() as usize];
            let row = &mut row[(object.x() - all.x()) as usize..];
            row.iter_mut().zip(ids).for_each(|(sample, id)| *sample = if is_object(*id) { 255 } else { 0 });
        }
        let part = MaskPart { columns, rows, samples, area: image.area_around(all) };
        Ok(part.samples.contains(&255).then_some(part))
    }

    /// The mask of an object whose parts each have a mask. A sample belongs to the object if it meets a sample of the
    /// object in any of these masks. `None` if there is no part, or if the mask of all parts would be too large.
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
        self.spend(columns * rows).ok()?;
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

    /// Counts the samples of the next mask.
    fn spend(&mut self, samples: usize) -> Result<(), TooManySamples> {
        self.samples_left = self.samples_left.checked_sub(samples).ok_or(TooManySamples)?;
        Ok(())
    }
}

/// The masks of a frame have more samples than the element reads.
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

/// The part of an object that one mask describes: 255 is the object.
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

/// The alpha channel of a frame as the mask of an object in the whole picture, of `size` (width, height). `None` if the
/// frame has no alpha channel. In samples of more than 8 bits the upper 8 bits count.
pub fn of_alpha(frame: &Frame, size: (u32, u32)) -> Result<Option<Mask>, FrameError> {
    check_host(frame)?;
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

/// An image of region ids, stretched over an area of the picture.
#[derive(Debug)]
pub struct IdImage {
    columns: usize,
    rows: usize,
    /// Row by row.
    pub ids: Vec<u16>,
    area: Area,
    /// By id, around all its samples, in samples of the image.
    rects: Vec<Option<Rect>>,
}

impl IdImage {
    /// The image of these ids, in whole rows of this length, which is not 0. `None` if there are none.
    pub fn new(columns: usize, ids: Vec<u16>, area: Area) -> Option<Self> {
        let mut rects: Vec<Option<Rect>> = vec![None; usize::from(ids.iter().copied().max()?) + 1];
        for (y, row) in ids.chunks(columns).enumerate() {
            let mut x = 0;
            for run in row.chunk_by(|one, next| one == next) {
                let rect = Rect::between([x as u32, (x + run.len()) as u32], [y as u32, y as u32 + 1]);
                x += run.len();
                let all = &mut rects[usize::from(run[0])];
                *all = all.iter().copied().chain(rect).reduce(Rect::hull);
            }
        }
        Some(Self { columns, rows: ids.len() / columns, ids, area, rects })
    }

    /// The ids that samples have, in order.
    pub fn present(&self) -> impl Iterator<Item = u16> {
        (0..=u16::MAX).zip(&self.rects).filter(|(_, rect)| rect.is_some()).map(|(id, _)| id)
    }

    /// Whether an object with these ids has a sample in the area.
    pub fn has(&self, is_object: impl Fn(u16) -> bool, area: Area) -> bool {
        let Some(rect) = self.rect_of(&is_object, Some(area)) else { return false };
        let mut rows = self.ids.chunks_exact(self.columns).take(rect.bottom() as usize).skip(rect.y() as usize);
        rows.any(|row| row[rect.x() as usize..rect.right() as usize].iter().any(|id| is_object(*id)))
    }

    /// The smallest area around the samples with an id.
    pub fn area_of(&self, id: u16) -> Option<Area> {
        Some(self.area_around((*self.rects.get(usize::from(id))?)?))
    }

    fn area_around(&self, rect: Rect) -> Area {
        let Area { left, top, right, bottom } = self.area;
        let x = |column: u32| left + f64::from(column) * (right - left) / self.columns as f64;
        let y = |row: u32| top + f64::from(row) * (bottom - top) / self.rows as f64;
        Area { left: x(rect.x()), top: y(rect.y()), right: x(rect.right()), bottom: y(rect.bottom()) }
    }

    /// With [`MARGIN`], as far as the image goes.
    fn with_margin(&self, rect: Rect) -> Rect {
        let grow =
            |start: u32, end: u32, count: usize| [start.saturating_sub(MARGIN), (end + MARGIN).min(count as u32)];
        let grown = Rect::between(grow(rect.x(), rect.right(), self.columns), grow(rect.y(), rect.bottom(), self.rows));
        grown.unwrap_or(rect)
    }

    /// The smallest rectangle around the samples with these ids, cut to the area `within`. `None` if nothing is left.
    /// With `within`, the rectangle may contain none of these samples.
    fn rect_of(&self, is_object: impl Fn(u16) -> bool, within: Option<Area>) -> Option<Rect> {
        let rects = self.present().filter(|id| is_object(*id)).filter_map(|id| self.rects[usize::from(id)]);
        let object = rects.reduce(Rect::hull)?;
        let Some(within) = within else { return Some(object) };
        let Area { left, top, right, bottom } = self.area;
        let width = (right - left) / self.columns as f64;
        let height = (bottom - top) / self.rows as f64;
        let meet = |one: [u32; 2], met: Range<usize>| [one[0].max(met.start as u32), one[1].min(met.end as u32)];
        Rect::between(
            meet([object.x(), object.right()], overlapped([within.left, within.right], left, width, self.columns)),
            meet([object.y(), object.bottom()], overlapped([within.top, within.bottom], top, height, self.rows)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: Area = Area { left: 10.0, top: 20.0, right: 18.0, bottom: 24.0 };

    fn labels() -> Labels {
        Labels::default()
    }

    fn part(columns: usize, samples: &[u8], area: Area) -> MaskPart {
        MaskPart { columns, rows: samples.len() / columns, samples: samples.to_vec(), area }
    }

    /// Half a sample of 2 luma samples beyond the object, two samples around it, and nothing of the other ids.
    #[test]
    fn part_has_the_object_and_a_margin() {
        let mut ids = vec![7; 8 * 6];
        ids[8 * 3 + 4] = 9;
        let area = Area { left: 0.0, top: 0.0, right: 16.0, bottom: 12.0 };
        let image = IdImage::new(8, ids, area).unwrap();
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
        // The rectangle of two samples has neither of them in its middle.
        let ids = vec![9, 0, 0, 9, 0, 0, 0, 0];
        let apart = IdImage::new(4, ids, area).unwrap();
        let has = |left: f64, right: f64| apart.has(|id| id == 9, Area { left, right, ..area });
        assert_eq!([has(0.0, 3.0), has(5.0, 11.0), has(11.0, 13.0)], [true, false, true]);
        assert!(!apart.has(|id| id == 9, Area { top: 7.0, ..area }));
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
        masks.samples_left = 7;
        assert_eq!(masks.unite(vec![part(4, &[255; 8], AREA); 2]), None);
    }
}
