// SPDX-License-Identifier: MPL-2.0
//! Each frame before and after the covers, and the picture that shows one of them.

use std::collections::VecDeque;
use std::error::Error;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gst::prelude::*;

use super::playback::FPS;

/// How long a pipeline may take for one frame.
const PATIENCE: gst::ClockTime = gst::ClockTime::from_seconds(10);

/// The same frame before and after the covers.
#[derive(Clone)]
pub struct Pair {
    pub raw: gst::Sample,
    pub covered: gst::Sample,
    /// Since the first frame of the clip.
    pub time: gst::ClockTime,
}

impl Pair {
    /// The index of a frame of a generated clip.
    pub fn frame(&self) -> usize {
        (self.time.nseconds() as f64 * 1e-9 * FPS as f64).round() as usize
    }
}

/// Calls `each` with every frame that leaves `last`. Its counterpart is a copy of the frame that entered `first`, because
/// a second reference would keep `first` from covering the frame in place. `None` if no such frame entered.
pub fn watch(first: &gst::Element, last: &gst::Element, each: impl FnMut(&gst::Pad, Option<Pair>) + Send + 'static) {
    let entered = Arc::<Mutex<VecDeque<gst::Sample>>>::default();
    let each = Mutex::new(each);
    let [sink, src] = [(first, "sink"), (last, "src")]
        .map(|(element, name)| element.static_pad(name).expect("a filter has both pads"));
    let queue = entered.clone();
    let times = Mutex::<Option<[gst::ClockTime; 2]>>::default();
    sink.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        if let (Some(buffer), Some(caps)) = (info.buffer(), pad.current_caps())
            && let Ok(copy) = buffer.copy_deep()
        {
            lock(&queue).push_back(gst::Sample::builder().buffer(&copy).caps(&caps).build());
        }
        gst::PadProbeReturn::Ok
    });
    src.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        if let (Some(buffer), Some(caps)) = (info.buffer(), pad.current_caps()) {
            let covered = gst::Sample::builder().buffer(buffer).caps(&caps).build();
            // The frames before it were dropped as late.
            let raw = {
                let mut entered = lock(&entered);
                let index = entered.iter().position(|raw| pts(raw) == pts(&covered));
                index.and_then(|index| entered.drain(..=index).next_back())
            };
            // Those of the first and of the latest frame. A frame without a timestamp gets the latest.
            let mut times = lock(&times);
            let [start, latest] = times.unwrap_or([buffer.pts().unwrap_or_default(); 2]);
            let latest = buffer.pts().unwrap_or(latest);
            *times = Some([start, latest]);
            let time = latest.saturating_sub(start);
            lock(&each)(pad, raw.map(|raw| Pair { raw, covered, time }));
        }
        gst::PadProbeReturn::Ok
    });
}

/// The frame with the most covered places that is the closest to the middle of the clip; to three seconds if the duration is
/// unknown.
#[derive(Default)]
pub struct Snapshot {
    /// Half the duration of the clip.
    middle: Option<gst::ClockTime>,
    /// The frame, and how many covered places it has.
    best: Option<(usize, Pair)>,
}

impl Snapshot {
    /// Offers the next frame, which has so many covered places.
    pub fn offer(&mut self, pad: &gst::Pad, pair: Pair, places: usize) {
        let length = || pad.query_duration().unwrap_or(6 * gst::ClockTime::SECOND);
        let middle = *self.middle.get_or_insert_with(|| length() / 2);
        let distance = |pair: &Pair| pair.time.max(middle) - pair.time.min(middle);
        let is_better = self
            .best
            .as_ref()
            .is_none_or(|(most, best)| places > *most || places == *most && distance(&pair) < distance(best));
        if is_better {
            self.best = Some((places, pair));
        }
    }

    /// The frame, and why it was chosen. `None` of a clip without frames.
    pub fn choose(&self) -> Option<(&Pair, &'static str)> {
        let (places, pair) = self.best.as_ref()?;
        Some((pair, if *places > 0 { "with the most faces" } else { "in the middle of the clip" }))
    }
}

fn pts(sample: &gst::Sample) -> Option<gst::ClockTime> {
    sample.buffer().and_then(gst::BufferRef::pts)
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A frame as rows of RGB.
struct Rgb {
    pixels: Vec<u8>,
    info: gst_video::VideoInfo,
}

impl Rgb {
    fn new(sample: &gst::Sample) -> Result<Self, Box<dyn Error>> {
        let (caps, pixels) = convert(sample, "video/x-raw,format=RGB")?;
        Ok(Self { pixels, info: gst_video::VideoInfo::from_caps(&caps)? })
    }

    fn stride(&self) -> usize {
        self.info.stride()[0] as usize
    }
}

fn convert(sample: &gst::Sample, wanted: &str) -> Result<(gst::Caps, Vec<u8>), Box<dyn Error>> {
    let sample = gst_video::convert_sample(sample, &gst::Caps::from_str(wanted)?, Some(PATIENCE))?;
    let (buffer, caps) = sample.buffer().zip(sample.caps()).ok_or("a picture without caps or pixels")?;
    Ok((caps.to_owned(), buffer.map_readable()?.to_vec()))
}

fn png(pixels: Vec<u8>, caps: &gst::Caps) -> Result<Vec<u8>, Box<dyn Error>> {
    let picture = gst::Sample::builder().buffer(&gst::Buffer::from_mut_slice(pixels)).caps(caps).build();
    Ok(convert(&picture, "image/png")?.1)
}

/// A frame of which `share` of each pixel, by its column and row, is `other`, and the rest is `frame`.
pub fn mixed(
    frame: &gst::Sample,
    other: &gst::Sample,
    share: impl Fn(usize, usize) -> f64,
) -> Result<gst::Sample, Box<dyn Error>> {
    let (mut mixed, other) = (Rgb::new(frame)?, Rgb::new(other)?);
    let (width, stride) = (mixed.info.width() as usize, mixed.stride());
    for (y, (row, others)) in mixed.pixels.chunks_mut(stride).zip(other.pixels.chunks(other.stride())).enumerate() {
        for (x, (pixel, other)) in
            row.as_chunks_mut::<3>().0.iter_mut().zip(others.as_chunks::<3>().0).take(width).enumerate()
        {
            let share = share(x, y);
            for (byte, other) in pixel.iter_mut().zip(other) {
                *byte = (f64::from(*byte) + (f64::from(*other) - f64::from(*byte)) * share).round() as u8;
            }
        }
    }
    let buffer = gst::Buffer::from_mut_slice(mixed.pixels);
    Ok(gst::Sample::builder().buffer(&buffer).caps(&mixed.info.to_caps()?).build())
}

/// A PNG of the frame.
pub fn single(sample: &gst::Sample) -> Result<Vec<u8>, Box<dyn Error>> {
    Ok(convert(sample, "image/png")?.1)
}

/// A PNG with the left half of the frame before and the right half after the blur, and a white line between them.
pub fn halves(pair: &Pair) -> Result<Vec<u8>, Box<dyn Error>> {
    let (mut picture, right) = (Rgb::new(&pair.raw)?, Rgb::new(&pair.covered)?);
    let (stride, half) = (picture.stride(), picture.info.width() as usize / 2 * 3);
    for (row, right) in picture.pixels.chunks_mut(stride).zip(right.pixels.chunks(stride)) {
        row[half..].copy_from_slice(&right[half..]);
        row[half.saturating_sub(3)..half + 3].fill(255);
    }
    png(picture.pixels, &picture.info.to_caps()?)
}

/// A PNG with the whole frame before the covers on the left and after them on the right. Covered places would be on one
/// side only of halves.
pub fn side_by_side(pair: &Pair) -> Result<Vec<u8>, Box<dyn Error>> {
    in_a_row(&[&pair.raw, &pair.covered])
}

/// A PNG with frames of one size, from left to right.
pub fn in_a_row(frames: &[&gst::Sample]) -> Result<Vec<u8>, Box<dyn Error>> {
    let frames = frames.iter().map(|frame| Rgb::new(frame)).collect::<Result<Vec<_>, _>>()?;
    let (width, height) = (frames[0].info.width(), frames[0].info.height());
    let info =
        gst_video::VideoInfo::builder(gst_video::VideoFormat::Rgb, frames.len() as u32 * width, height).build()?;
    let mut pixels = vec![0; info.size()];
    for (side, frame) in frames.iter().enumerate() {
        let bytes = width as usize * 3;
        let rows = pixels.chunks_mut(info.stride()[0] as usize).zip(frame.pixels.chunks(frame.stride()));
        rows.for_each(|(row, source)| row[side * bytes..][..bytes].copy_from_slice(&source[..bytes]));
    }
    png(pixels, &info.to_caps()?)
}
