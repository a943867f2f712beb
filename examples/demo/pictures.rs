// SPDX-License-Identifier: MPL-2.0
//! Each frame before and after the covers, and the picture that shows one of them.

use std::collections::VecDeque;
use std::error::Error;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gst::prelude::*;

/// The same frame before and after the covers.
pub struct Pair {
    pub raw: gst::Sample,
    pub covered: gst::Sample,
}

impl Pair {
    pub fn pts(&self) -> Option<gst::ClockTime> {
        pts(&self.raw)
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
            lock(&each)(pad, raw.map(|raw| Pair { raw, covered }));
        }
        gst::PadProbeReturn::Ok
    });
}

/// Keeps the frame in the middle of the clip; the frame at three seconds if the duration is unknown; the last frame if
/// the clip is shorter.
#[derive(Default)]
pub struct Snapshot {
    /// Half the duration of the clip.
    middle: Option<gst::ClockTime>,
    pub pair: Option<Pair>,
}

impl Snapshot {
    pub fn offer(&mut self, pad: &gst::Pad, pair: Pair) {
        let length = || pad.query_duration().unwrap_or(6 * gst::ClockTime::SECOND);
        let middle = *self.middle.get_or_insert_with(|| length() / 2);
        if self.pair.as_ref().is_none_or(|kept| kept.pts() < Some(middle)) {
            self.pair = Some(pair);
        }
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
    let patience = 10 * gst::ClockTime::SECOND;
    let sample = gst_video::convert_sample(sample, &gst::Caps::from_str(wanted)?, Some(patience))?;
    let (buffer, caps) = sample.buffer().zip(sample.caps()).ok_or("a picture without caps or pixels")?;
    Ok((caps.to_owned(), buffer.map_readable()?.to_vec()))
}

fn png(pixels: Vec<u8>, caps: &gst::Caps) -> Result<Vec<u8>, Box<dyn Error>> {
    let picture = gst::Sample::builder().buffer(&gst::Buffer::from_mut_slice(pixels)).caps(caps).build();
    Ok(convert(&picture, "image/png")?.1)
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
    let frames = [Rgb::new(&pair.raw)?, Rgb::new(&pair.covered)?];
    let (width, height) = (frames[0].info.width(), frames[0].info.height());
    let info = gst_video::VideoInfo::builder(gst_video::VideoFormat::Rgb, 2 * width, height).build()?;
    let mut pixels = vec![0; info.size()];
    for (side, frame) in frames.iter().enumerate() {
        let bytes = width as usize * 3;
        let rows = pixels.chunks_mut(info.stride()[0] as usize).zip(frame.pixels.chunks(frame.stride()));
        rows.for_each(|(row, source)| row[side * bytes..][..bytes].copy_from_slice(&source[..bytes]));
    }
    png(pixels, &info.to_caps()?)
}
