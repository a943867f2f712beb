//! One pipeline at full speed: the time per frame, in total and within the element.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cuda::{CudaEngine, PinnedBytes};
use gstcudagaussblur::element::format::formats;
use gstcudagaussblur::engine::{Engine, FrameAccess};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{FrameMemory, FramePair, PlaneLayout};
use gstcudagaussblur::filter::plane::HostPlaneMut;

use crate::common::{Outcome, noise};
use crate::push_pipeline::{BUFFERS, FRAMES, Memory, PushPipeline, SINK};
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
/// The number of frames in flight in rows that do not have one.
const IN_FLIGHT: u32 = 3;
const UPLOAD_AND_DOWNLOAD: &str =
    "cudaupload name=in ! video/x-raw(memory:CUDAMemory) ! cudadownload ! capsfilter caps=video/x-raw";

/// Prints the table. hosts.py parses it: the first three columns are a frame, a pipeline and a time.
pub fn table() -> Outcome<()> {
    println!("\nHost memory to host memory, sigma {SIGMA}, k={SIZE}, {FRAMES} frames\n");
    println!("| frame | pipeline | µs per frame | ratio | µs in the element, median | bytes copied per frame |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (name, format, width, height) in KINDS {
        kind(name, &video(format, width, height))?;
    }
    background("720p RGBA", &video(VideoFormat::Rgba, 1280, 720))
}

/// The background behind an ellipse, as of a webcam.
fn background(name: &str, info: &VideoInfo) -> Outcome<()> {
    let mut first = None;
    for (label, memory) in [("its pool", Memory::Offered), ("ordinary buffers", Memory::Ordinary)] {
        for in_flight in [1, IN_FLIGHT] {
            let elements = format!(
                "cudagaussblur name=in backend=cuda max-in-flight={in_flight} sigma=20 region-mode=outside shape=ellipse \
                 feather=8 zones=<[zone,x=0.3,y=0.1,width=0.4,height=0.9]>"
            );
            let label = format!("cudagaussblur, background, {label}, {in_flight} in flight");
            row(name, &label, pipeline(&elements, info, memory)?, &mut first);
        }
    }
    Ok(())
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn kind(name: &str, info: &VideoInfo) -> Outcome<()> {
    warm_up(info, SIGMA, SIZE)?;
    let mut first = None;
    for (label, memory, in_flight) in [
        ("cudagaussblur, its pool", Memory::Offered, 1),
        ("cudagaussblur, foreign pool", Memory::Recycled, 1),
        ("cudagaussblur, ordinary buffers", Memory::Ordinary, 1),
        ("cudagaussblur, its pool, 3 in flight", Memory::Offered, IN_FLIGHT),
        ("cudagaussblur, ordinary buffers, 3 in flight", Memory::Ordinary, IN_FLIGHT),
    ] {
        row(name, label, pipeline(&ours(in_flight), info, memory)?, &mut first);
    }
    row(name, "engine alone, pinned", Row { each: engine_alone(info)?, ..Row::default() }, &mut first);
    match gst::ElementFactory::find("cudaupload") {
        None => println!("| {name} | cudaupload ! cudadownload: not available | | | | |"),
        Some(factory) if !factory.can_sink_any_caps(info.to_caps()?.as_ref()) => {
            println!("| {name} | cudaupload ! cudadownload: does not support {} | | | | |", info.format());
        }
        Some(_) => {
            let times = pipeline(UPLOAD_AND_DOWNLOAD, info, Memory::Ordinary)?;
            row(name, "cudaupload ! cudadownload", times, &mut first);
        }
    }
    row(name, "identity", pipeline("identity name=in", info, Memory::Ordinary)?, &mut first);
    Ok(())
}

/// The measurements of a row, per frame: time, time in the element, bytes that the CPU copied.
#[derive(Clone, Copy, Default)]
struct Row {
    each: Duration,
    within: Option<Duration>,
    copied: Option<u64>,
}

/// Prints a row. Its ratio is the time divided by the first row's.
fn row(name: &str, label: &str, row: Row, first: &mut Option<Duration>) {
    let ratio = row.each.as_secs_f64() / first.get_or_insert(row.each).as_secs_f64();
    let within = row.within.map_or(String::new(), |time| format!("{:.1}", microseconds(time)));
    let copied = row.copied.map_or(String::new(), |bytes| bytes.to_string());
    println!("| {name} | {label} | {:.1} | {ratio:.2} | {within} | {copied} |", microseconds(row.each));
}

fn pipeline(elements: &str, info: &VideoInfo, memory: Memory) -> Outcome<Row> {
    let pipeline = PushPipeline::new(&format!("{elements} ! {SINK}"), info)?;
    let Some(frames) = pipeline.frames(memory)? else { return Err(format!("{elements} offers no pool").into()) };
    let times = pipeline.measure(&frames)?;
    let element = pipeline.first_element();
    if !element.has_property("stats") || !elements.starts_with("cudagaussblur") {
        // The time within an element is reported only for ours.
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

// SAFETY: the planes are pinned blocks, whose addresses do not change when `PinnedFrame` is moved, and nothing else
// accesses them while the engine holds it.
unsafe impl FrameAccess for PinnedFrame {
    fn frames(&mut self) -> FramePair {
        let memory = |bytes: &mut [PinnedBytes]| {
            let plane = |(layout, bytes): (&PlaneLayout, &mut PinnedBytes)| {
                let bytes = bytes.as_mut();
                HostPlaneMut { address: bytes.as_mut_ptr(), pitch: layout.row_bytes(), len: bytes.len() }
            };
            FrameMemory::Host(self.layouts.iter().zip(bytes).map(plane).collect())
        };
        let (source, destination) = (Some(memory(&mut self.src).as_const()), memory(&mut self.dst));
        FramePair { layouts: self.layouts.clone(), source, destination }
    }
}

/// The time per frame of the engine without GStreamer.
fn engine_alone(info: &VideoInfo) -> Outcome<Duration> {
    let layouts = formats::planes(info, false).expect("a format of the element");
    let mut engine = Engine::with_cuda(CudaEngine::new(0)?);
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
        // Each frame has been blurred once, to warm up.
        if turn == BUFFERS {
            begun = Instant::now();
        }
        let pending = engine.submit(params, idle.pop_front().expect("every frame is returned"))?;
        idle.push_back(engine.complete(pending)?.frame);
    }
    Ok(begun.elapsed() / FRAMES as u32)
}
