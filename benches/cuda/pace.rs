//! The element in a live pipeline of 60 frames per second while sigma and kernel-size change: the time of its frames with and
//! without a compilation in the background, the kernels in use by time, and the threads on which the compiler runs.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use gst::prelude::*;

use crate::common::{Outcome, noise};
use crate::{BUFFERS, milliseconds};

const RATE: u32 = 60;
const FRAME: Duration = Duration::from_nanos(1_000_000_000 / RATE as u64);
/// The element's debug category.
const CATEGORY: &str = "cudagaussblur";
/// The source is live and, like a camera, has a latency of one frame: it outputs a frame one frame's time after its
/// timestamp.
const PIPELINE: &str = "appsrc name=source is-live=true format=time min-latency=16666667 \
     caps=video/x-raw,format=RGB10A2_LE,width=1920,height=1080,framerate=60/1 ! \
     cudagaussblur name=blur backend=cuda ! fakesink name=sink sync=true qos=true";

/// Sigma and kernel-size as functions of the stream time in seconds, and the number of frames.
type Curve = fn(f64) -> (f64, u32);
const CURVES: [(&str, Curve, u32); 4] = [
    ("sigma swept, 0.5 to 20 and back", |second| (0.5 + 19.5 * (1.0 - (second / 5.0 - 1.0).abs()), 0), 600),
    (
        "sigma jumps every second",
        |second| ([1.0, 5.0, 2.0, 0.7, 3.0, 20.0, 1.5, 4.0, 2.5, 0.5][second as usize % 10], 0),
        600,
    ),
    ("kernel-size 15, 127, 49, 3 s each", |second| of_size([15, 127, 49][second as usize / 3 % 3]), 540),
    ("kernel-size 113, a clip of one second", |_| of_size(113), 60),
];

/// A kernel size, and the sigma of which it has three to each side.
fn of_size(size: u32) -> (f64, u32) {
    (f64::from(size) / 6.0, size)
}

/// Identified by Rust's ids, because the system reuses its own when a thread has ended.
type Threads = HashSet<ThreadId>;

/// What the element's log says about the compiler: the threads it logs from, and the number of kernels compiled.
#[derive(Default)]
struct Compiler {
    threads: Threads,
    kernels: u32,
}

/// What the probes on the element's pads record.
#[derive(Default)]
struct Pads {
    threads: Threads,
    frames: u32,
    begun: Option<Instant>,
    compiling: bool,
    late: u32,
    /// The longest time of a frame without and with a compilation in the background.
    longest: [Option<Duration>; 2],
    /// The kernels in use, each with its first frame, and the kernel-size then.
    kernels: Vec<(u32, String, u32)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints the table for all curves. An error if the compiler ran on a streaming thread.
pub fn table() -> Outcome<()> {
    println!("\nA live pipeline of 1080p RGB10A2_LE in ordinary host memory, {RATE} frames per second\n");
    println!(
        "| settings | frames at the sink | longer than {:.2} ms | longest without a compilation | longest during one | \
         kernels compiled |",
        milliseconds(FRAME)
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    let compiler = Arc::new(Mutex::new(Compiler::default()));
    let log = watch_log(compiler.clone());
    let mut streamed = Threads::new();
    let frames: Vec<gst::Buffer> = (0..BUFFERS).map(|_| gst::Buffer::from_mut_slice(noise(1920 * 1080 * 4))).collect();
    let mut in_use = Vec::new();
    for (name, curve, count) in CURVES {
        let before = lock(&compiler).kernels;
        let (pads, rendered) = run(&frames, curve, count)?;
        let [without, during] =
            pads.longest.map(|time| time.map_or(String::new(), |time| format!("{:.2} ms", milliseconds(time))));
        let kernels = lock(&compiler).kernels - before;
        println!("| {name} | {rendered} of {count} | {} | {without} | {during} | {kernels} |", pads.late);
        streamed.extend(pads.threads);
        in_use.push((name, pads.kernels));
    }
    println!("\n| settings | kernels in use, from a second on |\n| --- | --- |");
    for (name, kernels) in in_use {
        let of = |(frame, kernel, size): &(u32, String, u32)| {
            format!("{:.2}: {kernel} (kernel-size {size})", f64::from(*frame) / f64::from(RATE))
        };
        println!("| {name} | {} |", kernels.iter().map(of).collect::<Vec<_>>().join(", "));
    }
    gst::log::remove_log_function(log);
    gst::log::unset_threshold_for_name(CATEGORY);
    let Compiler { threads: compiled, kernels } = &*lock(&compiler);
    println!("\nThe compiler ran on threads {compiled:?}, the streams on {streamed:?}");
    if *kernels == 0 {
        println!("No kernel was compiled, so the threads prove nothing: is NVRTC installed?");
    }
    if !compiled.is_disjoint(&streamed) {
        return Err("NVRTC ran on a streaming thread".into());
    }
    Ok(())
}

/// Sets the element's debug level and records its log messages about the compiler. They are not printed unless
/// GST_DEBUG is set.
fn watch_log(compiler: Arc<Mutex<Compiler>>) -> gst::log::DebugLogFunction {
    if std::env::var_os("GST_DEBUG").is_none() {
        gst::log::remove_default_log_function();
    }
    gst::log::set_threshold_for_name(CATEGORY, gst::DebugLevel::Debug);
    // A log function is called on the thread that logs.
    gst::log::add_log_function(move |category, _, _, _, _, _, message| {
        let text = message.get().filter(|_| category.name() == CATEGORY);
        let Some(text) = text.filter(|text| text.contains("NVRTC")) else { return };
        let mut compiler = lock(&compiler);
        compiler.threads.insert(thread::current().id());
        compiler.kernels += u32::from(text.starts_with("NVRTC has compiled"));
    })
}

/// Runs one pipeline to its end. Also returns the number of frames that the sink rendered, that is, did not drop as
/// late.
fn run(frames: &[gst::Buffer], curve: Curve, count: u32) -> Outcome<(Pads, u64)> {
    let pipeline = gst::parse::launch(PIPELINE)?
        .downcast::<gst::Pipeline>()
        .expect("gst_parse_launch makes a pipeline of several elements");
    let element = |name| pipeline.by_name(name).expect("PIPELINE names it");
    let pads = Arc::new(Mutex::new(Pads::default()));
    add_probes(&element("blur"), &pads, curve);
    pipeline.set_state(gst::State::Playing)?;
    let fed = feed(&pipeline, &element("source").downcast().expect("an appsrc"), frames, count);
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = pipeline.bus().expect("a pipeline's").timed_pop_filtered(gst::ClockTime::from_seconds(10), &kinds);
    let stats = element("sink").property::<gst::Structure>("stats");
    pipeline.set_state(gst::State::Null)?;
    match end.as_ref().map(|message| message.view()) {
        Some(gst::MessageView::Eos(_)) => (),
        Some(gst::MessageView::Error(error)) => return Err(error.error().into()),
        _ => return Err(format!("the pipeline did not end; the source returned {fed:?}").into()),
    }
    let pads = std::mem::take(&mut *lock(&pads));
    Ok((pads, stats.get("rendered")?))
}

/// Pushes the frames in turn, each at the time of its timestamp.
fn feed(
    pipeline: &gst::Pipeline,
    source: &gst_app::AppSrc,
    frames: &[gst::Buffer],
    count: u32,
) -> Result<gst::FlowSuccess, gst::FlowError> {
    let clock = pipeline.clock().ok_or(gst::FlowError::Error)?;
    let base = pipeline.base_time().ok_or(gst::FlowError::Error)?;
    let start = clock.time() - base + 100 * gst::ClockTime::MSECOND;
    for (turn, frame) in (0..count).zip(frames.iter().cycle()) {
        let stamp = start + gst::ClockTime::SECOND * u64::from(turn) / u64::from(RATE);
        // The only possible error is that the time has already passed.
        let _ = clock.new_single_shot_id(base + stamp).wait();
        // A shallow copy: the pixels are shared.
        let mut frame = frame.copy();
        let writable = frame.get_mut().expect("the only reference to the copy");
        writable.set_pts(stamp);
        writable.set_duration(gst::ClockTime::SECOND / u64::from(RATE));
        source.push_buffer(frame)?;
    }
    source.end_of_stream()
}

/// Adds probes that set each frame's sigma and kernel-size and measure its time from the sink pad to the source pad.
fn add_probes(blur: &gst::Element, pads: &Arc<Mutex<Pads>>, curve: Curve) {
    let pad = |name| blur.static_pad(name).expect("an always pad");
    let of_sink = pads.clone();
    pad("sink").add_probe(gst::PadProbeType::BUFFER, move |pad, _| {
        let mut pads = lock(&of_sink);
        pads.threads.insert(thread::current().id());
        if let Some(blur) = pad.parent_element() {
            let (sigma, size) = curve(f64::from(pads.frames) / f64::from(RATE));
            blur.set_property("sigma", sigma);
            blur.set_property("kernel-size", size);
        }
        pads.frames += 1;
        pads.begun = Some(Instant::now());
        gst::PadProbeReturn::Ok
    });
    let of_src = pads.clone();
    pad("src").add_probe(gst::PadProbeType::BUFFER, move |pad, _| {
        let end = Instant::now();
        let mut pads = lock(&of_src);
        let took = pads.begun.map_or(Duration::ZERO, |begun| end - begun);
        pads.threads.insert(thread::current().id());
        let stats = pad.parent_element().map(|blur| blur.property::<gst::Structure>("stats"));
        let compiling = stats.as_ref().is_some_and(|stats| stats.get("compiling") == Ok(true));
        let kernel = stats.and_then(|stats| stats.get::<String>("kernel").ok());
        let size = pad.parent_element().map_or(0, |blur| blur.property::<u32>("kernel-size"));
        let is_same = |last: &(u32, String, u32)| kernel.as_ref() == Some(&last.1) && last.2 == size;
        if let Some(kernel) = kernel.clone().filter(|_| size > 0 && !pads.kernels.last().is_some_and(is_same)) {
            let frame = pads.frames - 1;
            pads.kernels.push((frame, kernel, size));
        }
        // The compilation may have ended during this frame.
        let during = usize::from(std::mem::replace(&mut pads.compiling, compiling) || compiling);
        // The first frame is left out: it allocates memory.
        if pads.frames > 1 {
            pads.longest[during] = pads.longest[during].max(Some(took));
        }
        pads.late += u32::from(took > FRAME);
        gst::PadProbeReturn::Ok
    });
}
