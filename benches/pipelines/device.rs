//! Frames in CUDA memory from source to sink: the time that the element takes on the streaming thread and on the
//! device. `identity` in its place shows what the pads, the probes and a thread that has just woken cost by themselves.

use std::thread;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cuda::CudaEngine;
use gstcudagaussblur::cuda::driver::{DeviceMemory, Stream};
use gstcudagaussblur::cuda::process;
use gstcudagaussblur::element::format::formats;
use gstcudagaussblur::filter::BlurParams;

use crate::common::{Outcome, device_planes, processor_time, time_of_frame};
use crate::push_pipeline::{Memory, PushPipeline, SINK};
use crate::{SIGMA, SIZE, video, warm_up};

/// The number of frames for which the thread's processor time is measured, after as many others, and the interval between
/// them. Without the interval the thread would also wait for the device.
const PACED: u64 = 300;
const PACE: Duration = Duration::from_millis(1);
/// The number of frames at full speed.
const FAST: u64 = 3000;

/// Prints the table.
pub fn table() -> Outcome<()> {
    println!("\nCUDA memory to CUDA memory, sigma {SIGMA}, k={SIZE}, elements in a row; µs per frame\n");
    println!(
        "| frame | elements | thread's processor time, each | the same of identity | kernel, by the stats | kernel alone | \
         full speed, each |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (name, format, width, height) in [
        ("1080p NV12", VideoFormat::Nv12, 1920, 1080),
        ("4K NV12", VideoFormat::Nv12, 3840, 2160),
        ("1080p RGBA", VideoFormat::Rgba, 1920, 1080),
    ] {
        let info = video(format, width, height);
        warm_up(&info, SIGMA, SIZE)?;
        let alone = microseconds(alone(&info)?);
        for elements in [1, 2, 5, 10] {
            let [processor, kernel, fast] = run(&info, elements)?;
            let identity = microseconds(identity(&info, elements)?);
            println!("| {name} | {elements} | {processor:.1} | {identity:.1} | {kernel:.1} | {alone:.1} | {fast:.1} |");
        }
    }
    Ok(())
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn run(info: &VideoInfo, elements: u32) -> Outcome<[f64; 3]> {
    let blur = format!("backend=cuda sigma={SIGMA} kernel-size={SIZE}");
    let chain: String = (1..elements).map(|_| format!("cudagaussblur {blur} ! ")).collect();
    let description = format!("cudagaussblur name=in {blur} ! {chain}{SINK}");
    let pipeline = PushPipeline::with_feature(&description, info, Some("memory:CUDAMemory"))?;
    let frames = pipeline.frames(Memory::Offered)?.ok_or("the element offers no pool of CUDA memory")?;
    let processor = paced(&pipeline, &frames)?;
    let stats = pipeline.first_element().property::<gst::Structure>("stats");
    assert_eq!(stats.get::<u64>("frames-on-device")?, stats.get::<u64>("frames")?, "frames were copied to the host");
    let begun = Instant::now();
    for (number, frame) in (0..FAST).zip(frames.iter().cycle()) {
        pipeline.push(frame, number)?;
    }
    process::open(0)?.device().clone().synchronize()?;
    let fast = begun.elapsed() / FAST as u32;
    let kernel = Duration::from_nanos(stats.get::<u64>("kernel-last-ns")?);
    let each = |time: Duration| microseconds(time) / f64::from(elements);
    Ok([each(processor), microseconds(kernel), each(fast)])
}

/// The thread's processor time per frame, for frames that come at an interval.
fn paced(pipeline: &PushPipeline, frames: &[gst::Buffer]) -> Outcome<Duration> {
    let mut processor = Duration::ZERO;
    for (number, frame) in (0..2 * PACED).zip(frames.iter().cycle()) {
        let before = processor_time();
        pipeline.push(frame, number)?;
        if number >= PACED {
            processor += processor_time() - before;
        }
        thread::sleep(PACE);
    }
    Ok(processor / PACED as u32)
}

/// The thread's processor time per frame and element if the elements are `identity`.
fn identity(info: &VideoInfo, elements: u32) -> Outcome<Duration> {
    let description = format!("identity name=in ! {}{SINK}", "identity ! ".repeat(elements as usize - 1));
    let pipeline = PushPipeline::new(&description, info)?;
    let frames = pipeline.frames(Memory::Recycled)?.expect("memory of its own");
    Ok(paced(&pipeline, &frames)? / elements)
}

/// The time of a frame's kernels, without the element.
fn alone(info: &VideoInfo) -> Outcome<Duration> {
    let layouts = formats::planes(info, false).expect("a format of the element");
    let engine = CudaEngine::new(0)?;
    let device = engine.device();
    let _current = device.enter()?;
    let stream = Stream::new(device)?;
    let bytes = device_planes(&layouts, 0, 512).1;
    let memory = || DeviceMemory::new(bytes, &stream);
    let frames = (0..6).map(|_| Ok([memory()?, memory()?])).collect::<Outcome<Vec<_>>>()?;
    time_of_frame(&engine, &stream, (&layouts, 512), BlurParams::new(SIGMA, SIZE)?, &frames)
}
