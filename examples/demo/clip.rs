// SPDX-License-Identifier: MPL-2.0
//! The demo's clips: a view that moves over a picture, to the right and down and back. pictures.txt names the sources and licences of
//! the pictures.

use std::error::Error;
use std::sync::Arc;

use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo, VideoRegionOfInterestMeta};

use super::coverage::Rect;
use super::jobs::Job;
use super::playback;

/// Frames per second and frames of a clip.
pub const FPS: usize = 30;
pub const FRAMES: usize = 6 * FPS;

/// A frame as rows of RGB.
pub struct Frame {
    pub pixels: Vec<u8>,
    pub width: usize,
    pub height: usize,
}

impl Frame {
    pub fn info(&self) -> VideoInfo {
        let info = VideoInfo::builder(VideoFormat::Rgb, self.width as u32, self.height as u32);
        info.fps(FPS as i32).build().expect("the size is fixed at build time")
    }

    pub fn pixel(&self, x: usize, y: usize) -> &[u8] {
        &self.pixels[(y * self.width + x) * 3..][..3]
    }
}

pub struct Clip {
    picture: Frame,
    /// The size of the view, and how far it moves.
    pub view: [usize; 2],
    pan: [usize; 2],
}

impl Clip {
    /// A view of this size that moves so far over a picture, which is scaled to its size.
    pub fn new(
        jpeg: &'static [u8],
        [width, height]: [usize; 2],
        view: [usize; 2],
        pan: [usize; 2],
    ) -> Result<Self, Box<dyn Error>> {
        let pipeline = playback::launch(&format!(
            "appsrc name=jpeg caps=image/jpeg ! jpegdec ! videoconvert ! videoscale ! \
             video/x-raw,format=RGB,width={width},height={height} ! appsink name=rgb sync=false"
        ))?;
        let element = |name| pipeline.by_name(name).expect("the description names it");
        let source: gst_app::AppSrc = element("jpeg").downcast().expect("an appsrc");
        let sink: gst_app::AppSink = element("rgb").downcast().expect("an appsink");
        pipeline.set_state(gst::State::Playing)?;
        source.push_buffer(gst::Buffer::from_slice(jpeg))?;
        source.end_of_stream()?;
        let sample = sink.try_pull_sample(30 * gst::ClockTime::SECOND);
        pipeline.set_state(gst::State::Null)?;
        let buffer =
            sample.as_deref().and_then(gst::SampleRef::buffer).ok_or("the demo's picture cannot be decoded")?;
        let pixels = buffer.map_readable()?.to_vec();
        Ok(Self { picture: Frame { pixels, width, height }, view, pan })
    }

    /// What a frame has of a place of the picture.
    pub fn place(&self, index: usize, Rect { x, y, width, height }: Rect) -> Option<Rect> {
        let [left, top] = self.moved(index);
        let [right, bottom] = [(x + width).min(left + self.view[0]), (y + height).min(top + self.view[1])];
        let (x, y) = (x.max(left), y.max(top));
        (x < right && y < bottom).then(|| Rect { x: x - left, y: y - top, width: right - x, height: bottom - y })
    }

    fn moved(&self, index: usize) -> [usize; 2] {
        let turn = index as f64 / FRAMES as f64 * std::f64::consts::TAU;
        self.pan.map(|pan| (pan as f64 * (0.5 - 0.5 * turn.cos())) as usize)
    }

    pub fn frame(&self, index: usize) -> Frame {
        let ([left, top], [width, height]) = (self.moved(index), self.view);
        let rows = self.picture.pixels.chunks(self.picture.width * 3).skip(top).take(height);
        Frame { pixels: rows.flat_map(|row| &row[3 * left..][..3 * width]).copied().collect(), width, height }
    }
}

/// The timestamp of a frame.
fn time(index: usize) -> gst::ClockTime {
    gst::ClockTime::SECOND.mul_div_floor(index as u64, FPS as u64).expect("a clip of seconds")
}

/// The index of the frame with this timestamp.
pub fn index(time: gst::ClockTime) -> usize {
    (time.seconds_f64() * FPS as f64).round() as usize
}

/// Makes `source` push a clip, with what a detector would have found in it.
pub fn feed(source: &gst_app::AppSrc, clip: &Arc<Clip>, job: &Arc<Job>) {
    source.set_format(gst::Format::Time);
    source.set_duration(time(FRAMES));
    source.set_caps(Some(&clip.frame(0).info().to_caps().expect("the format has caps")));
    let (clip, job, mut index) = (clip.clone(), job.clone(), 0);
    let push = move |source: &gst_app::AppSrc, _wanted| {
        // Both calls fail only if the pipeline is flushing or has ended.
        if index == FRAMES {
            let _ = source.end_of_stream();
            return;
        }
        let mut buffer = gst::Buffer::from_mut_slice(clip.frame(index).pixels);
        let fields = buffer.get_mut().expect("nobody else has it yet");
        fields.set_pts(time(index));
        fields.set_duration(time(1));
        for (label, rect) in job.detections(&clip, index) {
            let [x, y, width, height] = [rect.x, rect.y, rect.width, rect.height].map(|side| side as u32);
            VideoRegionOfInterestMeta::add(fields, label, (x, y, width, height));
        }
        index += 1;
        let _ = source.push_buffer(buffer);
    };
    source.set_callbacks(gst_app::AppSrcCallbacks::builder().need_data(push).build());
}
