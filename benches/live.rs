//! Live pipelines in real time, with `look-ahead` and without: how many frames a sink shows in time, where the caps state another frame
//! rate than the camera has, where frames take long, and where downstream is too slow (QoS); and what the element makes of the rates that
//! streams by RTP state.
//!   live [cameras | load | rtp]...     all by default; the machine has to be idle

#[expect(dead_code, reason = "each bench uses only a part of this module")]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gst::prelude::*;

use common::Outcome;

const PARTS: [&str; 3] = ["cameras", "load", "rtp"];
/// Runs of each pipeline.
const RUNS: usize = 3;
const LOOK_AHEAD: [u32; 2] = [0, 15];
/// The element covers one zone.
const COVER: &str = "region-mode=inside region-sources=zones zones=<[zone,x=0.2,y=0.2,width=0.5,height=0.5]>";
/// All of the picture, by a blur that takes about half of the time of a frame on two cores.
const LARGE: &str =
    "region-mode=inside region-sources=zones zones=<[zone,x=0.0,y=0.0,width=1.0,height=1.0]> strength=0 sigma=20";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let Err(error) = run(&arguments) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run(arguments: &[String]) -> Outcome<()> {
    gst::init()?;
    gstcudagaussblur::plugin_register_static()?;
    if let Some(other) = arguments.iter().find(|argument| !PARTS.contains(&argument.as_str())) {
        return Err(format!("unknown part {other}; the parts are {}", PARTS.join(", ")).into());
    }
    let wanted = |part: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == part);
    println!("{}\n", gst::version_string());
    println!("| stream | look-ahead | shown in each run | late by QoS | shortened | latency, ms |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let small = |rate: u32, frames: u32| camera("I420,width=64,height=64", rate, frames);
    if wanted("cameras") {
        for (stated, real, frames) in [(30, 30, 240), (30, 15, 120), (30, 29, 232), (90000, 30, 240), (0, 30, 240)] {
            let name =
                format!("caps {stated}/1, camera {real}, 18 ms of work downstream, max-lateness 5 ms, {frames} frames");
            rows(&name, Some(stated), |look_ahead| {
                let element = element(COVER, look_ahead);
                format!("{} ! {element} ! identity sleep-time=18000 ! {}", small(real, frames), sink(5))
            })?;
        }
    }
    if wanted("load") {
        rows("1080p RGBA, a blur of the whole picture, max-lateness 5 ms, 90 frames", None, |look_ahead| {
            let camera = camera("RGBA,width=1920,height=1080", 30, 90);
            format!("{camera} ! {} ! {}", element(LARGE, look_ahead), sink(5))
        })?;
        rows("30 a second, 45 ms of work downstream, max-lateness 20 ms, 300 frames", None, |look_ahead| {
            let element = element(COVER, look_ahead);
            format!("{} ! {element} ! identity sleep-time=45000 ! {}", small(30, 300), sink(20))
        })?;
    }
    if wanted("rtp") {
        for (stated, real) in [(30, 30), (60, 30), (1000, 30), (90000, 30), (30, 15)] {
            rtp(stated, real)?;
        }
    }
    Ok(())
}

/// A live camera with this real rate.
fn camera(format: &str, rate: u32, frames: u32) -> String {
    format!(
        "videotestsrc is-live=true num-buffers={frames} ! video/x-raw,format={format},framerate={rate}/1 ! identity name=camera"
    )
}

fn element(cover: &str, look_ahead: u32) -> String {
    format!("cudagaussblur name=blur backend=cpu {cover} look-ahead={look_ahead}")
}

fn sink(max_lateness: u32) -> String {
    format!("fakesink name=sink sync=true qos=true max-lateness={}", max_lateness * 1_000_000)
}

/// What a run shows.
#[derive(Default)]
struct Shown {
    frames: u64,
    late: u64,
    shortened: u64,
    latency: u64,
}

/// Prints a row for each `look-ahead`; `stated` is the rate that the caps state, if it is not the camera's.
fn rows(name: &str, stated: Option<i32>, pipeline: impl Fn(u32) -> String) -> Outcome<()> {
    for look_ahead in LOOK_AHEAD {
        let runs = (0..RUNS).map(|_| play(&pipeline(look_ahead), stated)).collect::<Outcome<Vec<Shown>>>()?;
        print_row(name, look_ahead, &runs);
    }
    Ok(())
}

fn print_row(name: &str, look_ahead: u32, runs: &[Shown]) {
    let list = |value: fn(&Shown) -> u64| runs.iter().map(|run| value(run).to_string()).collect::<Vec<_>>().join(", ");
    let [shown, late, shortened, latency] =
        [list(|run| run.frames), list(|run| run.late), list(|run| run.shortened), list(|run| run.latency)];
    println!("| {name} | {look_ahead} | {shown} | {late} | {shortened} | {latency} |");
}

/// Plays a pipeline to its end, as an application does that answers LATENCY messages.
fn play(description: &str, stated: Option<i32>) -> Outcome<Shown> {
    let pipeline = gst::parse::launch(description)?.downcast::<gst::Pipeline>().map_err(|_| "no pipeline")?;
    if let Some(stated) = stated {
        state_rate(&pipeline.by_name("camera").ok_or("no camera")?, gst::Fraction::new(stated, 1));
    }
    run_to_end(&pipeline, None)
}

/// Lets a camera's caps state another rate, and its buffers a duration by it.
fn state_rate(camera: &gst::Element, rate: gst::Fraction) {
    let pad = camera.static_pad("src").expect("a pad");
    pad.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        match &mut info.data {
            Some(gst::PadProbeData::Buffer(buffer)) => {
                let [numerator, denominator] = [rate.numer(), rate.denom()].map(i64::from).map(i64::unsigned_abs);
                let duration = (numerator > 0).then(|| gst::ClockTime::SECOND * denominator / numerator);
                buffer.make_mut().set_duration(duration);
            }
            Some(gst::PadProbeData::Event(event)) => {
                if let gst::EventView::Caps(caps) = event.view() {
                    let mut caps = caps.caps_owned();
                    caps.make_mut().set("framerate", rate);
                    *event = gst::event::Caps::new(&caps);
                }
            }
            _ => (),
        }
        gst::PadProbeReturn::Ok
    });
}

/// Plays to the end, or until a sink has had so many frames.
fn run_to_end(pipeline: &gst::Pipeline, frames: Option<u64>) -> Outcome<Shown> {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let sink = pipeline.by_name("sink").ok_or("no sink")?;
    sink.static_pad("sink").ok_or("no pad")?.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        gst::PadProbeReturn::Ok
    });
    pipeline.set_state(gst::State::Playing)?;
    let bus = pipeline.bus().ok_or("no bus")?;
    while frames.is_none_or(|frames| count.load(Ordering::Relaxed) < frames) {
        match bus.timed_pop(gst::ClockTime::from_mseconds(50)).as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Latency(_)) => _ = pipeline.recalculate_latency(),
            Some(gst::MessageView::Eos(_)) => break,
            Some(gst::MessageView::Error(error)) => return Err(error.error().to_string().into()),
            _ => (),
        }
    }
    let blur = pipeline.by_name("blur").ok_or("no element")?;
    let stats = blur.property::<gst::Structure>("stats");
    let of_sink = sink.property::<gst::Structure>("stats").get::<u64>("rendered")?;
    let mut query = gst::query::Latency::new();
    blur.static_pad("src").ok_or("no pad")?.query(&mut query);
    let shown = Shown {
        frames: of_sink,
        late: stats.get("frames-late")?,
        shortened: stats.get("frames-shortened")?,
        latency: query.result().1.mseconds(),
    };
    pipeline.set_state(gst::State::Null)?;
    Ok(shown)
}

/// Frames that x264enc, RTP and avdec_h264 bring to the element, with the rate that the encoder was told.
fn rtp(stated: i32, real: u32) -> Outcome<()> {
    const PORT: u32 = 50_504;
    let frames = u64::from(real) * 10;
    for look_ahead in LOOK_AHEAD {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let camera = camera("I420,width=128,height=128", real, u32::MAX >> 1);
            let encoder = "x264enc tune=zerolatency speed-preset=ultrafast key-int-max=15";
            let sender = format!(
                "{camera} ! {encoder} ! rtph264pay config-interval=-1 ! udpsink host=127.0.0.1 port={PORT} sync=false"
            );
            let sender = gst::parse::launch(&sender)?.downcast::<gst::Pipeline>().map_err(|_| "no pipeline")?;
            state_rate(&sender.by_name("camera").ok_or("no camera")?, gst::Fraction::new(stated, 1));
            let receiver = format!(
                "udpsrc address=127.0.0.1 port={PORT} caps=application/x-rtp,media=video,clock-rate=90000,encoding-name=H264 ! \
                 rtpjitterbuffer latency=50 ! rtph264depay ! h264parse ! avdec_h264 ! {} ! {}",
                element(COVER, look_ahead),
                sink(20)
            );
            let receiver = gst::parse::launch(&receiver)?.downcast::<gst::Pipeline>().map_err(|_| "no pipeline")?;
            sender.set_state(gst::State::Playing)?;
            std::thread::sleep(Duration::from_millis(200));
            runs.push(run_to_end(&receiver, Some(frames))?);
            sender.set_state(gst::State::Null)?;
        }
        print_row(&format!("RTP: {stated}/1 in the stream, camera {real}, {frames} frames"), look_ahead, &runs);
    }
    Ok(())
}
