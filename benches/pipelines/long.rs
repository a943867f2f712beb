//! One element at full speed for a long time, while all settings change: another sigma for every frame, other covers every 500,
//! other caps and memory every few seconds, and a device whose memory is exhausted once a round. It measures latency, memory,
//! handles and threads; no frame may be lost, and some are compared with those of the CPU.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_video::{VideoFormat, VideoFrame, VideoInfo, VideoRegionOfInterestMeta};
use gstcudagaussblur::cuda::driver::{DeviceMemory, Stream};
use gstcudagaussblur::cuda::process;

use crate::common::Outcome;
use crate::plots;
use crate::push_pipeline::{Memory, PushPipeline, SINK, lock};
use crate::video;

const SECONDS: u64 = 30;
/// The longest time between changes of caps.
const LONGEST: Duration = Duration::from_secs(10);

/// Frames that come for some seconds.
struct Part {
    name: &'static str,
    format: VideoFormat,
    size: [u32; 2],
    memory: Memory,
    feature: Option<&'static str>,
    /// Whether another owner has all the device's memory. Such a part begins with a new pipeline, because one that has memory can
    /// free some of it for these frames.
    is_exhausted: bool,
}

const fn part(name: &'static str, format: VideoFormat, size: [u32; 2], memory: Memory) -> Part {
    Part { name, format, size, memory, feature: None, is_exhausted: false }
}

const ON_DEVICE: Option<&str> = Some("memory:CUDAMemory");
const PARTS: [Part; 6] = [
    part("480p I420", VideoFormat::I420, [640, 480], Memory::Ordinary),
    Part { feature: ON_DEVICE, ..part("1080p NV12", VideoFormat::Nv12, [1920, 1080], Memory::Offered) },
    part("720p RGBA", VideoFormat::Rgba, [1280, 720], Memory::Offered),
    Part { feature: ON_DEVICE, ..part("1080p P010", VideoFormat::P01010le, [1920, 1080], Memory::Offered) },
    Part { feature: ON_DEVICE, ..part("480p RGBA", VideoFormat::Rgba, [640, 480], Memory::Offered) },
    Part { is_exhausted: true, ..part("1440p YUY2", VideoFormat::Yuy2, [2560, 1440], Memory::Ordinary) },
];

/// Frames after which the next cover is set, and the covers.
const FRAMES_OF_A_COVER: u64 = 500;
const COVERS: [&[(&str, &str)]; 4] = [
    &[("region-mode", "frame")],
    &[("region-mode", "inside"), ("cover", "blur"), ("shape", "box")],
    &[("region-mode", "inside"), ("cover", "mosaic"), ("shape", "ellipse")],
    &[("region-mode", "outside"), ("cover", "blur"), ("shape", "mask")],
];
/// One in this many frames, a prime, is compared with the CPU's.
const COMPARED: u64 = 2003;

/// What the probe on the source pad sees.
#[derive(Default)]
struct Seen {
    /// The number of the next frame, and how many came when another was due.
    next: u64,
    disordered: u64,
    /// When frames that have not arrived entered the element.
    entered: VecDeque<Instant>,
    latencies: Vec<Duration>,
    compared: VecDeque<gst::Buffer>,
}

/// The number of a frame, which is its timestamp in ms; `u64::MAX` without one.
fn number(buffer: &gst::BufferRef) -> u64 {
    buffer.pts().map_or(u64::MAX, gst::ClockTime::mseconds)
}

/// Prints the table. The environment variable CUDAGAUSSBLUR_SECONDS sets the length of the run, and CUDAGAUSSBLUR_PLOT names a
/// file for a plot.
pub fn table() -> Outcome<()> {
    let seconds = std::env::var("CUDAGAUSSBLUR_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    // At least once with each number of frames in flight.
    let length = LONGEST.min(Duration::from_secs(seconds) / (2 * PARTS.len() as u32));
    println!("\nAll settings change, at full speed for {seconds} s; latency in µs, memory in MB\n");
    println!(
        "| s | frames of | in flight | frames | of them on the CPU | latency, median | 95 % | 99.9 % | longest | resident | \
         device | handles | threads |"
    );
    println!("| --- {}|", "| --- ".repeat(12));
    let mut run = Run::new()?;
    for round in 0.. {
        run.round(if round % 2 == 0 { 1 } else { 3 }, length, Duration::from_secs(seconds))?;
        if run.begun.elapsed() + length > Duration::from_secs(seconds) {
            break;
        }
    }
    println!(
        "\n{} frames: {} lost, {} out of order, {} compared with the CPU's, {} unlike them; {} times fallen back",
        run.frames, run.lost, run.disordered, run.compared, run.unlike, run.fallbacks
    );
    if let Ok(file) = std::env::var("CUDAGAUSSBLUR_PLOT") {
        let latencies = PARTS.iter().map(|part| format!("{}: µs in 99.9 %", part.name));
        let names: Vec<String> = latencies.chain(RESOURCES.map(str::to_owned)).collect();
        let lines: Vec<plots::Line> = names.iter().map(String::as_str).zip(run.lines).collect();
        plots::plot_over_time(Path::new(&file), "All settings change", ["s", "µs, MB, handles"], &lines)?;
    }
    match run.lost + run.disordered + run.unlike {
        0 if run.fallbacks == 0 => {
            Err("the element never fell back, though another owner had the device's memory".into())
        }
        0 => Ok(()),
        _ => Err("frames were lost, out of order or unlike those of the CPU".into()),
    }
}

/// The lines of the plot after the latencies.
const RESOURCES: [&str; 3] = ["MB resident", "MB of the device", "handles"];

struct Run {
    begun: Instant,
    /// Free bytes of the device before the first pipeline.
    free: usize,
    frames: u64,
    lost: u64,
    disordered: u64,
    compared: u64,
    unlike: u64,
    /// Pipelines that ended on the CPU, where another owner had the device's memory.
    fallbacks: u64,
    /// Points of the plot: the latencies of each part, then the resources.
    lines: [Vec<(f64, f64)>; PARTS.len() + RESOURCES.len()],
}

impl Run {
    fn new() -> Outcome<Self> {
        let free = process::open(0)?.device().free_memory()?;
        let [frames, lost, disordered, compared, unlike, fallbacks] = [0; 6];
        let lines = std::array::from_fn(|_| Vec::new());
        Ok(Self { begun: Instant::now(), free, frames, lost, disordered, compared, unlike, fallbacks, lines })
    }

    /// All parts, with a pipeline for as many as share one.
    fn round(&mut self, in_flight: u32, length: Duration, seconds: Duration) -> Outcome<()> {
        PARTS.chunk_by(|_, next| !next.is_exhausted).try_for_each(|parts| self.parts(parts, in_flight, length, seconds))
    }

    fn parts(&mut self, parts: &[Part], in_flight: u32, length: Duration, seconds: Duration) -> Outcome<()> {
        let first = &parts[0];
        let mut owner = if first.is_exhausted { Some(MemoryOwner::new()?) } else { None };
        // Nothing is held, so that a frame's cover is a function of the frame.
        let element = format!("cudagaussblur hold-time=0 region-sources=roi max-in-flight={in_flight}");
        let description = format!("{element} name=in ! {SINK}");
        let mut pipeline = PushPipeline::with_feature(&description, &info(first), first.feature)?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        add_probe(&pipeline.first_element(), &seen);
        let mut sent = 0;
        for part in parts {
            if self.begun.elapsed() > seconds {
                break;
            }
            pipeline.set_caps(&info(part), part.feature)?;
            let frames = pipeline.frames(part.memory)?.ok_or("the element offers no pool")?;
            let reference = Reference::new(&info(part))?;
            let before = on_cpu(&pipeline)?;
            let start = sent;
            let until = Instant::now() + length;
            while Instant::now() < until {
                let frame = moved(&frames[(sent % frames.len() as u64) as usize], part.size, sent);
                set(&pipeline.first_element(), sent);
                lock(&seen).entered.push_back(Instant::now());
                pipeline.push(&frame, sent)?;
                sent += 1;
                self.compare(&reference, &frames, part.size, &seen);
            }
            // Frames leave before an event that comes after them.
            pipeline.send(gst::event::Gap::new(gst::ClockTime::from_mseconds(sent), gst::ClockTime::NONE));
            self.compare(&reference, &frames, part.size, &seen);
            let on_cpu = on_cpu(&pipeline)? - before;
            let has_fallen_back = property_of(&pipeline, "active-backend") == "cpu";
            self.fallbacks += u64::from(has_fallen_back);
            if has_fallen_back && !part.is_exhausted {
                let free = process::open(0)?.device().free_memory()?;
                let (name, complaints) = (part.name, pipeline.complaints());
                return Err(format!(
                    "{name}: the element has fallen back after {} frames, {on_cpu} of them on the CPU; {free} bytes of the \
                     device's memory are free, and the pipeline has posted {complaints:?}",
                    sent - start
                )
                .into());
            }
            drop(owner.take());
            self.row(part, in_flight, sent - start, on_cpu, std::mem::take(&mut lock(&seen).latencies))?;
        }
        let seen = lock(&seen);
        self.frames += sent;
        self.lost += seen.entered.len() as u64;
        self.disordered += seen.disordered;
        Ok(())
    }

    /// Compares the frames that have arrived since the last call, if they are to be compared.
    fn compare(&mut self, reference: &Reference, frames: &[gst::Buffer], size: [u32; 2], seen: &Mutex<Seen>) {
        loop {
            let Some(output) = lock(seen).compared.pop_front() else { return };
            let number = number(&output);
            let input = moved(&frames[(number % frames.len() as u64) as usize], size, number);
            self.compared += 1;
            self.unlike += u64::from(!reference.is_like(&input, &output, number));
        }
    }

    fn row(
        &mut self,
        part: &Part,
        in_flight: u32,
        frames: u64,
        on_cpu: u64,
        mut latencies: Vec<Duration>,
    ) -> Outcome<()> {
        latencies.sort_unstable();
        let at = |share: f64| latencies.get((latencies.len() as f64 * share) as usize).or(latencies.last());
        let at = |share| at(share).map_or(0.0, |latency| latency.as_secs_f64() * 1e6);
        let [median, most, nearly_all, longest] = [0.5, 0.95, 0.999, 1.0].map(at);
        let time = self.begun.elapsed().as_secs_f64();
        let resident = resident()?;
        let device = (self.free as f64 - process::open(0)?.device().free_memory()? as f64) / 1e6;
        let [handles, threads] = ["fd", "task"].map(|folder| std::fs::read_dir(format!("/proc/self/{folder}")));
        let (handles, threads) = (handles?.count(), threads?.count());
        let memory = if part.feature.is_some() { ", CUDA memory" } else { "" };
        println!(
            "| {time:.0} | {}{memory} | {in_flight} | {frames} | {on_cpu} | {median:.0} | {most:.0} | {nearly_all:.0} | {longest:.0} \
             | {resident:.1} | {device:.1} | {handles} | {threads} |",
            part.name
        );
        let part = PARTS.iter().position(|one| one.name == part.name).expect("one of them");
        self.lines[part].push((time, nearly_all));
        for (line, value) in self.lines[PARTS.len()..].iter_mut().zip([resident, device, handles as f64]) {
            line.push((time, value));
        }
        Ok(())
    }
}

fn info(part: &Part) -> VideoInfo {
    video(part.format, part.size[0], part.size[1])
}

fn on_cpu(pipeline: &PushPipeline) -> Outcome<u64> {
    Ok(pipeline.first_element().property::<gst::Structure>("stats").get("frames-cpu")?)
}

/// The nick of an enum property's value.
fn property_of(pipeline: &PushPipeline, property: &str) -> String {
    let value = pipeline.first_element().property_value(property);
    gst::glib::EnumValue::from_value(&value).map_or_else(String::new, |(_, value)| value.nick().to_owned())
}

/// The resident memory of this process, in MB.
fn resident() -> Outcome<f64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = pages.split(' ').nth(1).ok_or("no number of pages")?.parse()?;
    // SAFETY: sysconf takes no pointers and _SC_PAGESIZE is always valid.
    Ok(pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as f64 / 1e6)
}

fn add_probe(element: &gst::Element, seen: &Arc<Mutex<Seen>>) {
    let seen = seen.clone();
    let pad = element.static_pad("src").expect("an always pad");
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let now = Instant::now();
        let Some(buffer) = info.buffer() else { return gst::PadProbeReturn::Ok };
        let mut seen = lock(&seen);
        let number = number(buffer);
        seen.disordered += u64::from(number != seen.next);
        seen.next = number.wrapping_add(1);
        if let Some(entered) = seen.entered.pop_front() {
            seen.latencies.push(now - entered);
        }
        if number.is_multiple_of(COMPARED) {
            seen.compared.push_back(buffer.clone());
        }
        gst::PadProbeReturn::Ok
    });
}

/// Sets the properties of a frame.
fn set(element: &gst::Element, number: u64) {
    element.set_property("sigma", 0.3 * 200_f64.powf((number % 997) as f64 / 997.0));
    if number.is_multiple_of(FRAMES_OF_A_COVER) {
        set_cover(element, number);
    }
}

fn set_cover(element: &gst::Element, number: u64) {
    for (property, value) in COVERS[(number / FRAMES_OF_A_COVER % COVERS.len() as u64) as usize] {
        element.set_property_from_str(property, value);
    }
}

/// A shallow copy of a frame with three objects that move, one of which has a mask.
fn moved(frame: &gst::Buffer, size: [u32; 2], number: u64) -> gst::Buffer {
    let mut frame = frame.copy();
    let buffer = frame.get_mut().expect("the only reference to the copy");
    for object in 0..3 {
        let turn = number as f64 / (50.0 + 30.0 * f64::from(object));
        let place = |size: u32, turn: f64| (f64::from(size) * (0.4 + 0.4 * turn)) as u32;
        let rect = (place(size[0], turn.sin()), place(size[1], turn.cos()), size[0] / 8, size[1] / 5);
        let mut meta = VideoRegionOfInterestMeta::add(buffer, "face", rect);
        if object == 0 {
            let radius = 5 + number % 3;
            let is_object = |i: u64| (i % 16).abs_diff(8).pow(2) + (i / 16).abs_diff(8).pow(2) <= radius.pow(2);
            let bytes: Vec<u8> = (0..256).map(|i| if is_object(i) { 255 } else { 0 }).collect();
            let caps = gst_video::VideoCapsBuilder::new().format(VideoFormat::Gray8).width(16).height(16).build();
            let mask = gst::Sample::builder().caps(&caps).buffer(&gst::Buffer::from_mut_slice(bytes)).build();
            meta.add_param(gst::Structure::builder("mask").field("sample", mask).build());
        }
    }
    frame
}

/// An element that blurs frames on the CPU.
struct Reference {
    harness: Mutex<gst_check::Harness>,
    element: gst::Element,
    info: VideoInfo,
}

impl Reference {
    fn new(info: &VideoInfo) -> Outcome<Self> {
        let element = gst::parse::launch("cudagaussblur backend=cpu hold-time=0 region-sources=roi")?;
        let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
        harness.set_src_caps(info.to_caps()?);
        Ok(Self { harness: Mutex::new(harness), element, info: info.clone() })
    }

    fn is_like(&self, input: &gst::Buffer, output: &gst::Buffer, number: u64) -> bool {
        set(&self.element, number);
        set_cover(&self.element, number);
        let Some(mut plain) = self.plain(input) else { return false };
        let buffer = plain.get_mut().expect("the only reference");
        buffer.set_pts(gst::ClockTime::from_mseconds(number));
        if input.copy_into(buffer, gst::BUFFER_COPY_METADATA, ..).is_err() {
            return false;
        }
        let Ok(expected) = lock(&self.harness).push_and_pull(plain) else { return false };
        match [&expected, output].map(|buffer| self.plain(buffer)) {
            [Some(expected), Some(output)] => {
                let maps = [&expected, &output].map(|buffer| buffer.map_readable());
                matches!(maps, [Ok(expected), Ok(output)] if expected[..] == output[..])
            }
            _ => false,
        }
    }

    /// The picture in system memory, with the format's own strides.
    fn plain(&self, buffer: &gst::Buffer) -> Option<gst::Buffer> {
        let from = VideoFrame::from_buffer_readable(buffer.clone(), &self.info).ok()?;
        let to = gst::Buffer::from_mut_slice(vec![0; self.info.size()]);
        let mut to = VideoFrame::from_buffer_writable(to, &self.info).ok()?;
        from.copy(&mut to).ok()?;
        Some(to.into_buffer())
    }
}

/// All memory of the device that was free, as if another process had it.
struct MemoryOwner {
    memory: Vec<DeviceMemory>,
}

impl MemoryOwner {
    fn new() -> Outcome<Self> {
        let device = process::open(0)?.device().clone();
        let _current = device.enter()?;
        let stream = Stream::new(&device)?;
        let mut memory = Vec::new();
        let mut bytes = 64 << 30;
        // Smaller allocations share a page of the driver's.
        while bytes >= 1 << 12 {
            match DeviceMemory::new(bytes, &stream) {
                Ok(block) => memory.push(block),
                Err(_) => bytes /= 2,
            }
        }
        stream.synchronize()?;
        Ok(Self { memory })
    }
}

impl Drop for MemoryOwner {
    fn drop(&mut self) {
        if let Ok(shared) = process::open(0)
            && let Ok(_current) = shared.device().clone().enter()
        {
            self.memory.clear();
        }
    }
}
