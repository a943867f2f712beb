//! Pipelines that end in an appsink called `sink`, and the pictures that come out of them.

use gst::prelude::*;
use gst_video::{VideoFrame, VideoFrameExt, VideoInfo};

use gstcudagaussblur::element::formats;

use super::video;

/// Caps of frames in CUDA memory.
pub const CUDA: &str = "video/x-raw(memory:CUDAMemory)";

pub fn pipeline(line: &str) -> gst::Bin {
    video::init();
    gst::parse::launch(line).unwrap_or_else(|error| panic!("{line}: {error}")).downcast().unwrap()
}

/// A counter of the stats of the element called `blur`.
pub fn stat(pipeline: &gst::Bin, name: &str) -> u64 {
    pipeline.by_name("blur").unwrap().property::<gst::Structure>("stats").get(name).unwrap()
}

/// Plays it, and gives the pictures one by one, without what is between rows. The pipeline plays until it is stopped.
pub fn pictures(pipeline: &gst::Bin) -> impl Iterator<Item = Vec<u8>> {
    pictures_at(pipeline, "sink")
}

/// Those that come out of the sink of this name.
pub fn pictures_at(pipeline: &gst::Bin, sink: &str) -> impl Iterator<Item = Vec<u8>> + use<> {
    let sink = pipeline.by_name(sink).unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let picture = |sample: gst::Sample| {
        let info = VideoInfo::from_caps(sample.caps().unwrap()).unwrap();
        let frame = VideoFrame::from_buffer_readable(sample.buffer_owned().unwrap(), &info).unwrap();
        let mut bytes = Vec::new();
        for (plane, layout) in (0..).zip(formats::planes(&info, false).unwrap()) {
            let rows = frame.plane_data(plane).unwrap().chunks(frame.plane_stride()[plane as usize] as usize);
            rows.take(layout.height as usize).for_each(|row| bytes.extend(&row[..layout.row_bytes()]));
        }
        bytes
    };
    std::iter::from_fn(move || sink.pull_sample().ok()).map(picture)
}

/// Nothing may have gone wrong.
pub fn no_errors(pipeline: &gst::Bin) {
    let errors = video::texts(&pipeline.bus().unwrap(), gst::MessageType::Error);
    assert!(errors.is_empty(), "{errors:?}");
}

/// Plays it to its end.
pub fn run_to_end(pipeline: &gst::Bin) {
    pipeline.set_state(gst::State::Playing).unwrap();
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds);
    let end = end.expect("no end within a minute");
    assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
}
