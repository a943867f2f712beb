//! The element in a live pipeline of 60 frames a second while sigma moves: what its frames take with and without the
//! compiler beside them, and which threads the compiler runs on.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use gst::prelude::*;

use crate::common::{Outcome, noise};
use crate::{BUFFERS, milliseconds};

const FRAMES: u32 = 600;
const RATE: u32 = 60;
const FRAME: Duration = Duration::from_nanos(1_000_000_000 / RATE as u64);
const CATEGORY: &str = "cudagaussblur";
/// A source that hands out frames that are there already, as a camera does: a frame's time after the moment on its stamp.
const PIPELINE: &str = "appsrc name=source is-live=true format=time min-latency=16666667 \
     caps=video/x-raw,format=RGBA,width=1920,height=1080,framerate=60/1 ! \
     cudagaussblur name=blur backend=cuda ! fakesink name=sink sync=true qos=true";

/// Sigma by the second.
type Sigma = fn(f64) -> f64;
const WAYS: [(&str, Sigma); 2] = [
    ("swept, 0.5 to 20 and back", |second| 0.5 + 19.5 * (1.0 - (second / 5.0 - 1.0).abs())),
    ("another one every second", |second| [1.0, 5.0, 2.0, 0.7, 3.0, 20.0, 1.5, 4.0, 2.5, 0.5][second as usize % 10]),
];

/// Not by the system's numbers, which it gives again when a thread has ended.
type Threads = HashSet<ThreadId>;

/// What the element's log tells of the compiler.
#[derive(Default)]
struct Compiler {
    threads: Threads,
    kernels: u32,
}

/// What the pads of the element see.
#[derive(Default)]
struct Pads {
    threads: Threads,
    frames: u32,
    begun: Option<Instant>,
    compiling: bool,
    late: u32,
    /// Without a compilation and beside one.
    longest: [Option<Duration>; 2],
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both ways that sigma moves. An error if the compiler ran on a thread that frames go through.
pub fn table() -> Outcome<()> {
    println!("\nA live pipeline of 1080p RGBA in ordinary host memory, {RATE} frames a second, {FRAMES} frames each\n");
    println!(
        "| sigma | frames at the sink | longer than {:.2} ms | longest with no compiler at work | longest beside it | \
         kernels made |",
        milliseconds(FRAME)
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    let compiler = Arc::new(Mutex::new(Compiler::default()));
    let log = listen(compiler.clone());
    let mut streamed = Threads::new();
    let frames: Vec<gst::Buffer> = (0..BUFFERS).map(|_| gst::Buffer::from_mut_slice(noise(1920 * 1080 * 4))).collect();
    for (name, sigma) in WAYS {
        let before = lock(&compiler).kernels;
        let (pads, rendered) = run(&frames, sigma)?;
        let [quiet, beside] =
            pads.longest.map(|time| time.map_or(String::new(), |time| format!("{:.2} ms", milliseconds(time))));
        let kernels = lock(&compiler).kernels - before;
        println!("| {name} | {rendered} | {} | {quiet} | {beside} | {kernels} |", pads.late);
        streamed.extend(pads.threads);
    }
    gst::log::remove_log_function(log);
    gst::log::unset_threshold_for_name(CATEGORY);
    let Compiler { threads: compiled, kernels } = &*lock(&compiler);
    println!("\nCompiled on threads {compiled:?}, streamed on {streamed:?}");
    if *kernels == 0 {
        println!("No kernel was made, so that says nothing: is NVRTC installed?");
    }
    if !compiled.is_disjoint(&streamed) {
        return Err("a thread that frames go through had to do with NVRTC".into());
    }
    Ok(())
}

/// Has the element tell all, here; and nowhere else, unless somebody asked for it.
fn listen(compiler: Arc<Mutex<Compiler>>) -> gst::log::DebugLogFunction {
    if std::env::var_os("GST_DEBUG").is_none() {
        gst::log::remove_default_log_function();
    }
    gst::log::set_threshold_for_name(CATEGORY, gst::DebugLevel::Debug);
    // Called on the thread that has something to say.
    gst::log::add_log_function(move |category, _, _, _, _, _, message| {
        let text = message.get().filter(|_| category.name() == CATEGORY);
        let Some(text) = text.filter(|text| text.contains("NVRTC") || text.contains("a kernel for")) else { return };
        let mut compiler = lock(&compiler);
        compiler.threads.insert(thread::current().id());
        compiler.kernels += u32::from(text.contains("is there after"));
    })
}

/// One pipeline from its first frame to its last. Also returns how many frames came to the sink in time.
fn run(frames: &[gst::Buffer], sigma: Sigma) -> Outcome<(Pads, u64)> {
    let pipeline = gst::parse::launch(PIPELINE)?.downcast::<gst::Pipeline>().expect("several elements are a pipeline");
    let element = |name| pipeline.by_name(name).expect("it is in the line");
    let pads = Arc::new(Mutex::new(Pads::default()));
    watch(&element("blur"), &pads, sigma);
    pipeline.set_state(gst::State::Playing)?;
    let fed = feed(&pipeline, &element("source").downcast().expect("an appsrc"), frames);
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = pipeline.bus().expect("a pipeline's").timed_pop_filtered(gst::ClockTime::from_seconds(10), &kinds);
    let stats = element("sink").property::<gst::Structure>("stats");
    pipeline.set_state(gst::State::Null)?;
    match end.as_ref().map(|message| message.view()) {
        Some(gst::MessageView::Eos(_)) => (),
        Some(gst::MessageView::Error(error)) => return Err(error.error().into()),
        _ => return Err(format!("the pipeline did not end; its source: {fed:?}").into()),
    }
    let pads = std::mem::take(&mut *lock(&pads));
    Ok((pads, stats.get("rendered")?))
}

/// Pushes the frames in turn, each at the time that is its stamp.
fn feed(
    pipeline: &gst::Pipeline,
    source: &gst_app::AppSrc,
    frames: &[gst::Buffer],
) -> Result<gst::FlowSuccess, gst::FlowError> {
    let clock = pipeline.clock().ok_or(gst::FlowError::Error)?;
    let base = pipeline.base_time().ok_or(gst::FlowError::Error)?;
    let start = clock.time() - base + 100 * gst::ClockTime::MSECOND;
    for (turn, frame) in (0..FRAMES).zip(frames.iter().cycle()) {
        let stamp = start + gst::ClockTime::SECOND * u64::from(turn) / u64::from(RATE);
        // What it may answer is that it is late already.
        let _ = clock.new_single_shot_id(base + stamp).wait();
        // The pixels are shared.
        let mut frame = frame.copy();
        let writable = frame.get_mut().expect("a new one");
        writable.set_pts(stamp);
        writable.set_duration(gst::ClockTime::SECOND / u64::from(RATE));
        source.push_buffer(frame)?;
    }
    source.end_of_stream()
}

/// Takes the time from pad to pad, and sets each frame's sigma before.
fn watch(blur: &gst::Element, pads: &Arc<Mutex<Pads>>, sigma: Sigma) {
    let pad = |name| blur.static_pad(name).expect("an always pad");
    let of_sink = pads.clone();
    pad("sink").add_probe(gst::PadProbeType::BUFFER, move |pad, _| {
        let mut pads = lock(&of_sink);
        pads.threads.insert(thread::current().id());
        if let Some(blur) = pad.parent_element() {
            blur.set_property("sigma", sigma(f64::from(pads.frames) / f64::from(RATE)));
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
        let compiling = stats.is_some_and(|stats| stats.get("compiling") == Ok(true));
        // A compilation may have ended in this very frame.
        let beside = usize::from(std::mem::replace(&mut pads.compiling, compiling) || compiling);
        // The first frame makes the memory.
        if pads.frames > 1 {
            pads.longest[beside] = pads.longest[beside].max(Some(took));
        }
        pads.late += u32::from(took > FRAME);
        gst::PadProbeReturn::Ok
    });
}
