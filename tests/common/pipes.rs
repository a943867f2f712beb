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

/// Properties of all covers.
pub const COVERS: [&str; 6] = [
    "sigma=1 strength=0.3",
    "sigma=2 strength=0",
    "cover=mosaic",
    "cover=fill fill-color=0xff20c040",
    "sigma=9 strength=0",
    "sigma=4 strength=0 shape=ellipse feather=6",
];

/// What `region-mode` covers in frames of this format, from host or CUDA memory to host or CUDA memory, alone and behind a
/// `tee`, against the CPU in host memory. The zones overlap, have odd edges and reach beyond the picture; some frames have
/// none. `covers` are properties. Returns how many frames were compared.
pub fn check_regions(format: &str, [width, height]: [u32; 2], covers: &[&str]) -> usize {
    const FRAMES: usize = 6;
    // In frames of 1/30 s: the first zone in all but the fourth, another in the third, another in the last two.
    let zones = "zones=<[zone,x=0.05,y=0.11,width=0.23,height=0.31,end=90000000],\
                 [zone,x=0.05,y=0.11,width=0.23,height=0.31,start=134000000],\
                 [zone,x=0.2,y=0.2,width=0.33,height=0.41,start=60000000,end=90000000],\
                 [zone,x=0.7,y=0.6,width=0.9,height=0.9,start=134000000]>";
    let source = format!(
        "videotestsrc num-buffers={FRAMES} pattern=ball ! video/x-raw,format={format},width={width},height={height}"
    );
    let run = |elements: &str| {
        let pipeline = pipeline(&format!("{source} ! {elements} ! appsink name=sink sync=false"));
        let frames: Vec<_> = pictures(&pipeline).collect();
        no_errors(&pipeline);
        let stats = pipeline.by_name("blur").map(|blur| blur.property::<gst::Structure>("stats"));
        pipeline.set_state(gst::State::Null).unwrap();
        assert_eq!(frames.len(), FRAMES, "{elements}");
        (frames, stats)
    };
    let mut compared = 0;
    for cover in covers {
        for mode in ["inside", "outside"] {
            let blur = format!("cudagaussblur name=blur region-mode={mode} {cover} {zones}");
            let (expected, _) = run(&format!("{blur} backend=cpu"));
            let up = format!("cudaupload ! {CUDA}");
            let down = format!("{CUDA} ! cudadownload ! video/x-raw");
            for (elements, in_place) in [
                (blur.clone(), true),
                (format!("{up} ! {blur} ! {down}"), true),
                (format!("{up} ! {blur} ! video/x-raw"), false),
                (format!("{blur} ! {down}"), false),
                (
                    format!(
                        "{up} ! tee name=t t. ! queue ! fakesink async=false sync=false t. ! queue ! {blur} ! {down}"
                    ),
                    false,
                ),
            ] {
                let (frames, stats) = run(&elements);
                for (frame, (got, want)) in frames.iter().zip(&expected).enumerate() {
                    let differing = got.iter().zip(want).filter(|(got, want)| got != want).count();
                    assert_eq!(differing, 0, "{format} frame {frame}: {elements}");
                    compared += 1;
                }
                let stats = stats.unwrap();
                let count = |name: &str| stats.get::<u64>(name).unwrap();
                if in_place && mode == "inside" {
                    assert_eq!([count("frames-untouched"), count("frames-in-place")], [1, 5], "{elements}");
                }
            }
        }
    }
    compared
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
