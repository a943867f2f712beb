//! Whole pipelines on a GPU: the element compared with the engine alone, with GStreamer's upload and download, and with
//! `identity`; frames in CUDA memory; many pipelines at once; a long run in which all settings change. README.md explains the
//! tables.
//!   pipelines [frames | device | many | long]...     all by default

#[expect(dead_code, reason = "each bench uses only a part of this module")]
#[path = "../common/mod.rs"]
mod common;
mod device;
mod frames;
mod long;
mod many;
#[expect(dead_code, reason = "tables are not written to files here")]
#[path = "../article/plots.rs"]
mod plots;
mod processes;
mod push_pipeline;
mod throughput;

use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cuda::driver::device as devices;
use gstcudagaussblur::cuda::{Image, process};
use gstcudagaussblur::element::format::formats;
use gstcudagaussblur::filter::BlurParams;

use common::{Outcome, compile_specialised};

const SIGMA: f64 = 2.5;
const SIZE: u32 = 15;
const PARTS: [&str; 4] = ["frames", "device", "many", "long"];

fn main() {
    match devices::count() {
        Ok(_) => (),
        Err(error) => return println!("no GPU, nothing to measure: {error}"),
    }
    // Cargo adds --bench.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let Err(error) = run(&arguments) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run(arguments: &[String]) -> Outcome<()> {
    gst::init()?;
    gstcudagaussblur::plugin_register_static()?;
    if let [processes::CHILD, in_flight] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return processes::child(in_flight.parse()?);
    }
    if let Some(other) = arguments.iter().find(|argument| !PARTS.contains(&argument.as_str())) {
        return Err(format!("unknown part {other}; the parts are {}", PARTS.join(", ")).into());
    }
    let wanted = |part: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == part);
    let driver = process::open(0)?.device().driver();
    println!(
        "{}, driver for CUDA {}.{}, {}",
        process::open(0)?.device().name(),
        driver.0,
        driver.1,
        gst::version_string()
    );
    if wanted("frames") {
        frames::table()?;
    }
    if wanted("device") {
        device::table()?;
    }
    if wanted("many") {
        many::table()?;
    }
    if wanted("long") {
        long::table()?;
    }
    Ok(())
}

/// The caps of frames, at 60 frames per second.
fn video(format: VideoFormat, width: u32, height: u32) -> VideoInfo {
    VideoInfo::builder(format, width, height).fps((60, 1)).build().expect("a format of the element")
}

/// The gst-launch description of our element with the bench's blur and this many frames in flight.
fn ours(in_flight: u32) -> String {
    format!("cudagaussblur name=in backend=cuda sigma={SIGMA} kernel-size={SIZE} max-in-flight={in_flight}")
}

/// Makes the engine compile the specialised kernels for these frames, if it compiles any, so that the measurements use them from
/// the start.
fn warm_up(info: &VideoInfo, sigma: f64, size: u32) -> Outcome<()> {
    let planes = formats::planes(info, false).expect("a format of the element");
    compile_specialised(Image::Best, &planes, BlurParams::new(sigma, size)?);
    Ok(())
}
