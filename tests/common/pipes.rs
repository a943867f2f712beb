//! Pipelines that end in an appsink called `sink`, and the pictures that they output.

use gst::prelude::*;
use gst_video::VideoInfo;

use super::checks::has_words;
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
pub fn pictures(pipeline: &gst::Bin) -> impl Iterator<Item = Vec<u8>> + use<> {
    let sink = pipeline.by_name("sink").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let picture = |sample: gst::Sample| {
        let info = VideoInfo::from_caps(sample.caps().unwrap()).unwrap();
        video::bytes(&info, sample.buffer_owned().unwrap())
    };
    std::iter::from_fn(move || sink.pull_sample().ok()).map(picture)
}

/// Plays a pipeline to its end, without errors. Returns the pictures, and the `stats` of the element called `blur` if it has one.
pub fn play(elements: &str) -> (Vec<Vec<u8>>, Option<gst::Structure>) {
    let pipeline = pipeline(&format!("{elements} ! appsink name=sink sync=false"));
    let frames = pictures(&pipeline).collect();
    no_errors(&pipeline);
    let stats = pipeline.by_name("blur").map(|blur| blur.property("stats"));
    pipeline.set_state(gst::State::Null).unwrap();
    (frames, stats)
}

/// Properties of all covers.
pub const COVERS: [&str; 6] = [
    "sigma=1 strength=0.3",
    "sigma=2 strength=0",
    "cover=mosaic",
    "cover=fill fill-color=0xff20c040",
    "sigma=9 strength=0",
    "sigma=4 strength=0 shape=ellipse feather=6",
];

/// Asserts that the pipeline has posted no error.
pub fn no_errors(pipeline: &gst::Bin) {
    let errors = video::texts(&pipeline.bus().unwrap(), gst::MessageType::Error);
    assert!(errors.is_empty(), "{errors:?}");
}

/// Plays the pipeline until end of stream.
pub fn run_to_end(pipeline: &gst::Bin) {
    let end = end_of(pipeline);
    assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
}

/// Plays a pipeline that ends in an appsink until it fails, and checks that the error has these words.
#[track_caller]
pub fn fails(elements: &str, words: &[&str]) {
    let pipeline = pipeline(&format!("{elements} ! appsink name=sink sync=false"));
    let end = end_of(&pipeline);
    pipeline.set_state(gst::State::Null).unwrap();
    has_words(&format!("{:?}", end.view()), words);
}

fn end_of(pipeline: &gst::Bin) -> gst::Message {
    // If it fails, a message says why.
    let _ = pipeline.set_state(gst::State::Playing);
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds);
    end.expect("no end of stream within a minute")
}
