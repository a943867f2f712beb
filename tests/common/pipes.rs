//! Pipelines that end in an appsink called `sink`, and the pictures that they output.

use gst::prelude::*;
use gst_video::{VideoFrame, VideoFrameExt, VideoInfo};

use gstcudagaussblur::element::formats;

use super::video;

/// The caps of frames in CUDA memory.
pub const CUDA: &str = "video/x-raw(memory:CUDAMemory)";

pub fn pipeline(line: &str) -> gst::Bin {
    video::init();
    gst::parse::launch(line).unwrap_or_else(|error| panic!("{line}: {error}")).downcast().unwrap()
}

/// A counter in the `stats` of the element called `blur`.
pub fn stat(pipeline: &gst::Bin, name: &str) -> u64 {
    pipeline.by_name("blur").unwrap().property::<gst::Structure>("stats").get(name).unwrap()
}

/// Starts the pipeline and returns its output pictures one by one, without row padding. The caller stops the pipeline.
pub fn pictures(pipeline: &gst::Bin) -> impl Iterator<Item = Vec<u8>> {
    pictures_at(pipeline, "sink")
}

/// [`pictures`] for the appsink of this name.
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

/// Asserts that the pipeline has posted no error.
pub fn no_errors(pipeline: &gst::Bin) {
    let errors = video::texts(&pipeline.bus().unwrap(), gst::MessageType::Error);
    assert!(errors.is_empty(), "{errors:?}");
}

/// Plays the pipeline until end of stream.
pub fn run_to_end(pipeline: &gst::Bin) {
    pipeline.set_state(gst::State::Playing).unwrap();
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds);
    let end = end.expect("no end of stream within a minute");
    assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
}
