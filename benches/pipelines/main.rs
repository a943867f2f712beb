//! Whole pipelines from host memory to host memory, on a GPU: the element beside the engine alone, the elements of GStreamer
//! that go to the GPU and back, and nothing; many of them at once; a long run. README.md tells how to read the tables.
//!   pipelines [frames | device | many | long]...     all by default

#[expect(dead_code, reason = "only a part of it is wanted")]
#[path = "../common/mod.rs"]
mod common;
mod device;
mod frames;
mod line;
mod long;
mod many;
mod processes;

use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cuda::device::{self as devices, Device};
use gstcudagaussblur::element::formats;
use gstcudagaussblur::filter::BlurParams;

use common::{Outcome, make_special};

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
    gstcudagaussblur::register_static()?;
    if let [processes::CHILD, flight] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return processes::child(flight.parse()?);
    }
    if let Some(other) = arguments.iter().find(|argument| !PARTS.contains(&argument.as_str())) {
        return Err(format!("no part is called {other}; there are {}", PARTS.join(", ")).into());
    }
    let wanted = |part: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == part);
    let driver = Device::open(0)?.driver();
    println!("{}, driver for CUDA {}.{}, {}", Device::open(0)?.name(), driver.0, driver.1, gst::version_string());
    if wanted("frames") {
        frames::table()?;
    }
    if wanted("device") {
        device::table()?;
    }
    if wanted("many") {
        many::tables()?;
    }
    if wanted("long") {
        long::table()?;
    }
    Ok(())
}

/// What frames are like.
fn video(format: VideoFormat, width: u32, height: u32) -> VideoInfo {
    VideoInfo::builder(format, width, height).fps((60, 1)).build().expect("a format of the element")
}

/// The element, blurring as everywhere here, with so many frames in flight.
fn ours(flight: u32) -> String {
    format!("cudagaussblur name=in backend=cuda sigma={SIGMA} kernel-size={SIZE} max-in-flight={flight}")
}

/// Has the kernels for such frames made, so that none is waited for later.
fn warm_up(info: &VideoInfo, sigma: f64, size: u32) -> Outcome<()> {
    let planes = formats::planes(info, false).expect("a format of the element");
    make_special(&planes, BlurParams::new(sigma, size)?);
    Ok(())
}
