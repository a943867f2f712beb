// SPDX-License-Identifier: MPL-2.0
//! Finds the boxes in which people are searched, and makes the mask of the people that were found.

use crate::image::{Image, fitted};

/// The box of a person, in heights of the face: its width, its height, and the distance from its upper edge down to the centre of
/// the face. Measured with benches/hiding/scenes.py.
const WIDE: f64 = 5.;
const TALL: f64 = 7.;
const ABOVE: f64 = 1.1;
/// A person fills the picture if the face is higher than this share of the picture's shorter side.
const FILLS: f64 = 0.22;
/// Faces whose centres differ by less than this many face heights belong to one person.
const SAME: f64 = 1.25;
/// Nobody is in a box if none of its samples reaches this confidence.
const LOST: f32 = 0.5;
/// If no face was found for this time, the whole picture is searched, too, in addition to the box of each person who is followed,
/// because the face may have been a false detection. A person is followed until nobody has been in the box for this time.
const STALE: gst::ClockTime = gst::ClockTime::SECOND;
/// The largest number of boxes that are searched in a frame. They are those of the largest faces. If there are more faces, the
/// whole picture is searched, too.
const MOST: usize = 256;
/// A sample shows the person completely if the result of the filter exceeds the threshold by this value.
const SOFT: f32 = 0.5;
/// Thresholds for the change of a colour from one frame to the next. A change up to `STILL` is noise; from `MOVED` on it is
/// motion.
const STILL: f32 = 2. / 255.;
const MOVED: f32 = 8. / 255.;

/// The sides of a box in samples of a grid: left, top, right, bottom.
pub type Sides = [usize; 4];

/// A person whose face was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Person {
    /// The centre of the face, column and row, and its height, in samples of the coarse grid.
    pub centre: [f64; 2],
    pub face: f64,
    /// The time of the last frame in which the face was found.
    seen_at: Option<gst::ClockTime>,
    /// The mean place, at the last search that found the person, of the samples that the model gave to the person.
    mean: Option<[f64; 2]>,
    /// The time of the last search that found somebody in the box, and whether the last search did.
    found_at: Option<gst::ClockTime>,
    is_found: bool,
}

impl Person {
    pub fn new(centre: [f64; 2], face: f64, now: Option<gst::ClockTime>) -> Self {
        Self { centre, face, seen_at: now, mean: None, found_at: now, is_found: true }
    }

    /// Whether the person was found at the last search, and the face not long ago.
    pub fn is_seen(&self, now: Option<gst::ClockTime>) -> bool {
        self.is_found && !is_stale(self.seen_at, now)
    }

    /// Whether this face and the other one belong to the same person. The smaller face counts: a small one may be beside a large one.
    pub fn is_same(&self, other: &Self) -> bool {
        (0..2).all(|axis| (self.centre[axis] - other.centre[axis]).abs() <= SAME * self.face.min(other.face))
    }

    /// The box, on a grid of this size, in which the model looks for the person. Near the lower edge of the picture, the box
    /// becomes lower until it is a square; then it moves up. If the person fills the picture, the box is the whole grid.
    pub fn sides(&self, size: [usize; 2]) -> Sides {
        let [columns, rows] = size;
        if self.face > FILLS * columns.min(rows) as f64 {
            return [0, 0, columns, rows];
        }
        let square = size.map(|most| ((WIDE * self.face).round() as usize).clamp(1, most));
        let start = [self.centre[0] - square[0] as f64 / 2., self.centre[1] - ABOVE * self.face];
        let [left, top] = [0, 1].map(|axis| (start[axis].round().max(0.) as usize).min(size[axis] - square[axis]));
        let tall = ((TALL * self.face).round() as usize).max(square[1]);
        [left, top, left + square[0], (top + tall).min(rows)]
    }

    /// Moves the face by the distance that the person's mean place has moved since the last search. If nobody is in the box, the
    /// person may be behind something: the box stays where it is. Returns `None` if nobody has been in it for `STALE`.
    pub fn follow(mut self, confidence: &Image, [left, top, ..]: Sides, now: Option<gst::ClockTime>) -> Option<Self> {
        let mut sums = [0.; 3];
        for (y, row) in confidence.values.chunks_exact(confidence.width).enumerate() {
            for (x, value) in row.iter().enumerate() {
                let value = f64::from(*value);
                sums[0] += value;
                sums[1] += value * (left + x) as f64;
                sums[2] += value * (top + y) as f64;
            }
        }
        self.is_found = confidence.values.iter().any(|value| *value >= LOST);
        if !self.is_found {
            return (!is_stale(self.found_at, now)).then_some(self);
        }
        self.found_at = now;
        let mean = [sums[1] / sums[0], sums[2] / sums[0]];
        if let Some(before) = self.mean {
            (0..2).for_each(|axis| self.centre[axis] += mean[axis] - before[axis]);
        }
        self.mean = Some(mean);
        Some(self)
    }
}

/// Whether this time is unknown or lies more than `STALE` before `now`.
fn is_stale(then: Option<gst::ClockTime>, now: Option<gst::ClockTime>) -> bool {
    let since = now.zip(then).and_then(|(now, then)| now.checked_sub(then));
    since.is_none_or(|since| since > STALE)
}

/// The boxes to search on a grid of this size, each with the people in it. `faces` are the people whose faces were found, and
/// `followed` the people of the last search. The whole grid is one of the boxes if a person fills it, if no face was found for a
/// long time, or if there are more than `MOST` people.
pub fn boxes(
    mut faces: Vec<Person>,
    followed: &[Person],
    size: [usize; 2],
    now: Option<gst::ClockTime>,
) -> Vec<(Sides, Vec<Person>)> {
    faces.sort_by(|a, b| b.face.total_cmp(&a.face));
    for person in followed {
        if !faces.iter().any(|face| person.is_same(face)) {
            faces.push(person.clone());
        }
    }
    let mut boxes: Vec<(Sides, Vec<Person>)> = Vec::new();
    let whole = [0, 0, size[0], size[1]];
    if faces.len() > MOST || !faces.iter().any(|person| person.is_seen(now)) {
        boxes.push((whole, Vec::new()));
    }
    for person in faces.into_iter().take(MOST) {
        let sides = person.sides(size);
        match boxes.iter_mut().find(|(other, _)| *other == sides) {
            Some((_, people)) => people.push(person),
            None => boxes.push((sides, vec![person])),
        }
    }
    boxes
}

/// The mask of all people in a stream. It follows the edges of the picture, and is averaged over time where the picture does not
/// change.
pub struct Mask {
    /// Width and height of the mask and of its guide; and those of the coarse grid, on which the confidence of the model is
    /// fitted.
    pub size: [usize; 2],
    pub coarse: [usize; 2],
    /// The mask of the last frame that the models have searched, and its guide on the coarse grid.
    last: Option<(Image, [Image; 3])>,
    /// The average over time of the models' results.
    pub confidence: Image,
}

impl Mask {
    /// A mask for a picture of this size.
    pub fn new(picture: [usize; 2]) -> Self {
        // The mask has a sample for each cell of the grid on which cudagaussblur computes weights. If the mask were finer,
        // cudagaussblur would narrow it.
        let longer = picture[0].max(picture[1]);
        let cell = longer.div_ceil(512).next_power_of_two();
        let size = picture.map(|side| (side / cell).max(2));
        let coarse = size.map(|side| side.div_ceil(2));
        Self { size, coarse, last: None, confidence: Image::new(coarse, 0.) }
    }

    /// Computes the mask of a frame that the models have searched. `guide` is the frame in the size of the mask, and `found` the
    /// models' result. `smooth` is the share of the last mask in the new one where nothing changes.
    pub fn next(&mut self, guide: &[Image; 3], found: &Image, smooth: f32) -> &Image {
        let coarse = guide.each_ref().map(|plane| plane.scaled(self.coarse));
        let new = match &self.last {
            None => Image::new(self.coarse, 1.),
            Some((_, before)) => changed(&coarse, before, smooth),
        };
        let shares = found.with(&self.confidence, |found, before| found - before).with(&new, |a, b| a * b);
        self.confidence = self.confidence.with(&shares, |before, share| before + share);
        let mut mask = fitted(&self.confidence, guide, &coarse);
        if let Some((before, _)) = &self.last {
            let differences =
                mask.with(before, |mask, before| mask - before).with(&new.scaled(self.size), |a, b| a * b);
            mask = before.with(&differences, |before, difference| before + difference);
        }
        &self.last.insert((mask, coarse)).0
    }
}

/// The share of the new result. It grows where the picture changes by more than noise, light and exposure.
fn changed(coarse: &[Image; 3], before: &[Image; 3], smooth: f32) -> Image {
    let changes: [Image; 3] = std::array::from_fn(|i| {
        let change = coarse[i].with(&before[i], |now, before| now - before);
        let mut sorted = change.values.clone();
        let middle = sorted.len() / 2;
        let median = *sorted.select_nth_unstable_by(middle, f32::total_cmp).1;
        change.map(|value| (value - median).abs())
    });
    let [red, green, blue] = &changes;
    let largest = red.with(green, f32::max).with(blue, f32::max).largest();
    largest.map(|change| ((change - STILL) / (MOVED - STILL)).clamp(1. - smooth, 1.))
}

/// The samples of a mask for cudagaussblur, and their rectangle in the mask. region-mode=outside shows no sample below 128, and
/// shows samples of 255 completely. region-mode=inside leaves samples of 0 uncovered. `None` if nobody is in the picture.
pub fn samples(mask: &Image, threshold: f32) -> Option<(Sides, Vec<u8>)> {
    let lower = 128. / threshold.max(1e-6);
    let value = |value: f32| (value * lower).clamp(0., 128.) + ((value - threshold) * (127. / SOFT)).clamp(0., 127.);
    let samples: Vec<_> = mask.values.iter().map(|one| value(*one) as u8).collect();
    let rows = || samples.chunks_exact(mask.width);
    let is_person = |sample: &u8| *sample >= 128;
    let top = rows().position(|row| row.iter().any(is_person))?;
    let bottom = mask.height - rows().rev().position(|row| row.iter().any(is_person))?;
    let left = rows().filter_map(|row| row.iter().position(is_person)).min()?;
    let right = rows().filter_map(|row| row.iter().rposition(is_person)).max()? + 1;
    // The box is one sample larger than the person on each side, because cudagaussblur covers the box if the person is lost.
    let [left, top] = [left, top].map(|side| side.saturating_sub(1));
    let [right, bottom] = [(right + 1).min(mask.width), (bottom + 1).min(mask.height)];
    let inside = rows().take(bottom).skip(top).flat_map(|row| row[left..right].iter().copied()).collect();
    Some(([left, top, right, bottom], inside))
}

#[cfg(test)]
mod tests;
