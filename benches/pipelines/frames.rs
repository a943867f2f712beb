//! One pipeline at full speed: what a frame takes, and what of it is ours.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cuda::{CudaEngine, PinnedBytes};
use gstcudagaussblur::element::formats;
use gstcudagaussblur::engine::{Engine, Hold};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::frame::{Plane, PlaneLayout, Source, Target};

use crate::common::{Outcome, noise};
use crate::line::{BUFFERS, FRAMES, Line, Memory, SINK};
use crate::{SIGMA, SIZE, ours, video, warm_up};

const KINDS: [(&str, VideoFormat, u32, u32); 7] = [
    ("1080p RGBA", VideoFormat::Rgba, 1920, 1080),
    ("4K RGBA", VideoFormat::Rgba, 3840, 2160),
    ("1080p GRAY8", VideoFormat::Gray8, 1920, 1080),
    ("4K NV12", VideoFormat::Nv12, 3840, 2160),
    ("1080p I420", VideoFormat::I420, 1920, 1080),
    ("4K I420", VideoFormat::I420, 3840, 2160),
    ("1080p GBR", VideoFormat::Gbr, 1920, 1080),
];
/// Frames in flight, beside one.
const FLIGHT: u32 = 3;
const THERE_AND_BACK: &str =
    "cudaupload name=in ! video/x-raw(memory:CUDAMemory) ! cudadownload ! capsfilter caps=video/x-raw";

/// Prints the table. hosts.py reads it: the first three columns are a frame, a way and a time.
pub fn table() -> Outcome<()> {
    println!("\nHost memory to host memory, sigma {SIGMA}, k={SIZE}, {FRAMES} frames one after the other\n");
    println!("| frame | way | µs a frame | as a multiple | µs in the element, median | bytes copied a frame |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (name, format, width, height) in KINDS {
        kind(name, &video(format, width, height))?;
    }
    Ok(())
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn kind(name: &str, info: &VideoInfo) -> Outcome<()> {
    warm_up(info, SIGMA, SIZE)?;
    let mut first = None;
    for (way, memory, flight) in [
        ("cudagaussblur, its pool", Memory::Offered, 1),
        ("cudagaussblur, another's pool", Memory::Foreign, 1),
        ("cudagaussblur, ordinary buffers", Memory::Ordinary, 1),
        ("cudagaussblur, its pool, 3 in flight", Memory::Offered, FLIGHT),
        ("cudagaussblur, ordinary buffers, 3 in flight", Memory::Ordinary, FLIGHT),
    ] {
        let element = ours(flight);
        row(name, way, pipeline(&element, info, memory)?, &mut first);
    }
    row(name, "engine alone, pinned", Row { each: bare(info)?, ..Row::default() }, &mut first);
    match gst::ElementFactory::find("cudaupload") {
        None => println!("| {name} | cudaupload ! cudadownload: not here | | | | |"),
        Some(factory) if !factory.can_sink_any_caps(info.to_caps()?.as_ref()) => {
            println!("| {name} | cudaupload ! cudadownload: takes no {} | | | | |", info.format());
        }
        Some(_) => {
            row(name, "cudaupload ! cudadownload", pipeline(THERE_AND_BACK, info, Memory::Ordinary)?, &mut first);
        }
    }
    row(name, "identity", pipeline("identity name=in", info, Memory::Ordinary)?, &mut first);
    Ok(())
}

#[derive(Clone, Copy, Default)]
struct Row {
    each: Duration,
    within: Option<Duration>,
    copied: Option<u64>,
}

/// The first row's time is what the others are multiples of.
fn row(name: &str, way: &str, row: Row, first: &mut Option<Duration>) {
    let times = row.each.as_secs_f64() / first.get_or_insert(row.each).as_secs_f64();
    let within = row.within.map_or(String::new(), |time| format!("{:.1}", microseconds(time)));
    let copied = row.copied.map_or(String::new(), |bytes| bytes.to_string());
    println!("| {name} | {way} | {:.1} | {times:.2} | {within} | {copied} |", microseconds(row.each));
}

fn pipeline(elements: &str, info: &VideoInfo, memory: Memory) -> Outcome<Row> {
    let line = Line::new(&format!("{elements} ! {SINK}"), info)?;
    let Some(frames) = line.frames(memory)? else { return Err(format!("{elements} offers no pool").into()) };
    let times = line.measure(&frames)?;
    let element = line.pipeline.by_name("in").expect("it is in the line");
    if !element.has_property("stats") || !elements.starts_with("cudagaussblur") {
        // Another element's time is its own matter.
        return Ok(Row { each: times.each, ..Row::default() });
    }
    let stats = element.property::<gst::Structure>("stats");
    let (copied, frames) = (stats.get::<u64>("bytes-copied")?, stats.get::<u64>("frames")?);
    Ok(Row { each: times.each, within: times.within, copied: Some(copied / frames.max(1)) })
}

/// A frame in pinned memory.
struct PinnedFrame {
    layouts: Vec<PlaneLayout>,
    src: Vec<PinnedBytes>,
    dst: Vec<PinnedBytes>,
}

// SAFETY: the driver's own blocks, which stay where they are and are used for nothing else.
unsafe impl Hold for PinnedFrame {
    fn frames(&mut self) -> (Source<'_>, Target<'_>) {
        let plane = |layout: &PlaneLayout| (*layout, layout.row_bytes());
        let src = self.layouts.iter().map(plane).zip(&mut self.src);
        let dst = self.layouts.iter().map(plane).zip(&mut self.dst);
        let src = src.map(|((layout, pitch), bytes)| Plane { layout, pitch, data: &*bytes.as_mut() });
        let dst = dst.map(|((layout, pitch), bytes)| Plane { layout, pitch, data: bytes.as_mut() });
        (Source::Host(src.collect()), Target::Host(dst.collect()))
    }
}

/// The same by the engine, without GStreamer.
fn bare(info: &VideoInfo) -> Outcome<Duration> {
    let layouts = formats::planes(info, false).expect("a format of the element");
    let mut engine = Engine::on_cuda(CudaEngine::new(0)?);
    let pinned = engine.pinned().expect("a CUDA engine");
    let pinned_planes = || {
        let planes = layouts.iter().map(|plane| {
            let noise = noise(plane.row_bytes() * plane.height as usize);
            let mut bytes = pinned.allocate(noise.len())?;
            bytes.as_mut().copy_from_slice(&noise);
            Ok(bytes)
        });
        planes.collect::<Outcome<Vec<_>>>()
    };
    let frame = |_| Ok(PinnedFrame { layouts: layouts.to_vec(), src: pinned_planes()?, dst: pinned_planes()? });
    let mut idle = (0..BUFFERS).map(frame).collect::<Outcome<VecDeque<_>>>()?;
    let params = BlurParams::new(SIGMA, SIZE)?;
    let mut begun = Instant::now();
    for turn in 0..FRAMES + BUFFERS {
        // Each has been blurred once.
        if turn == BUFFERS {
            begun = Instant::now();
        }
        let pending = engine.begin(params, idle.pop_front().expect("it comes back every time"))?;
        idle.push_back(engine.finish(pending)?.held);
    }
    Ok(begun.elapsed() / FRAMES as u32)
}
