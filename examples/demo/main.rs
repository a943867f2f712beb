// SPDX-License-Identifier: MPL-2.0
//! The demo: blurs a video and writes the blurred video and a before/after picture. `--help` lists the options.

mod scene;

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use gst::glib;
use gst::prelude::*;
use gstcudagaussblur::filter::BlurParams;
use scene::{FPS, FRAMES, HEIGHT, Scene, WIDTH};

const HELP: &str = "\
Blurs a video with cudagaussblur and writes blurred.mp4 and before-after.png to a folder.

usage: scripts/demo [OPTIONS] [FILE | --camera]

  FILE                blur this video (default: a clip that the demo generates)
  --camera            blur the first camera: in a window until Ctrl-C; without a display, record six seconds
  --sigma N           standard deviation in pixels, 0 to 1024 (default 5)
  --kernel-size N     taps per axis, odd, up to 801; 0 follows sigma (default 0)
  --backend NAME      auto, cuda or cpu (default auto)
  --out DIR           folder for the results (default demo-out)
  -h, --help          print this text
";

const NO_VIDEO: &str = "the input has no video, or no decoder for it is installed";

#[derive(PartialEq)]
enum Input {
    Scene,
    File(PathBuf),
    Camera,
}

struct Options {
    input: Input,
    sigma: f64,
    kernel_size: u32,
    backend: String,
    out: PathBuf,
}

impl Options {
    /// Parses the arguments. `None` if they ask for help. The error is one sentence for the user.
    fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Option<Self>, String> {
        let mut options =
            Self { input: Input::Scene, sigma: 5.0, kernel_size: 0, backend: "auto".into(), out: "demo-out".into() };
        while let Some(arg) = args.next() {
            let text = arg.to_string_lossy().into_owned();
            let (name, mut inline) = match text.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(OsString::from(value))),
                _ => (&*text, None),
            };
            let mut value = || inline.take().or_else(|| args.next()).ok_or(format!("{name} needs a value"));
            match name {
                "-h" | "--help" => return Ok(None),
                "--sigma" => options.sigma = number(name, &value()?)?,
                "--kernel-size" => options.kernel_size = number(name, &value()?)?,
                "--backend" => options.backend = value()?.to_string_lossy().into_owned(),
                "--out" => options.out = value()?.into(),
                _ if name.starts_with('-') && name != "--camera" => return Err(format!("unknown option {name}")),
                _ if options.input != Input::Scene => {
                    return Err(format!("{text} is a second input: give one file, or --camera, or neither"));
                }
                "--camera" => options.input = Input::Camera,
                _ => options.input = Input::File(arg.into()),
            }
        }
        BlurParams::new(options.sigma, options.kernel_size).map_err(|error| error.to_string())?;
        if !["auto", "cuda", "cpu"].contains(&options.backend.as_str()) {
            return Err(format!("backend={} cannot be used: it must be auto, cuda or cpu", options.backend));
        }
        Ok(Some(options))
    }
}

fn number<T: FromStr>(name: &str, value: &OsStr) -> Result<T, String> {
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("{name} takes a number from 0 up, not {}", value.display()))
}

fn main() -> ExitCode {
    let (failure, code) = match Options::parse(env::args_os().skip(1)) {
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Some(options)) => match run(&options) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => (error.to_string(), 1),
        },
        Err(sentence) => (format!("{sentence} (--help shows the usage)"), 2),
    };
    eprintln!("demo: {failure}");
    ExitCode::from(code)
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    gst::init()?;
    gstcudagaussblur::register_static()?;
    let about = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    if let Input::File(file) = &options.input {
        fs::File::open(file).map_err(|error| about(file, error))?;
    }
    fs::create_dir_all(&options.out).map_err(|error| about(&options.out, error))?;

    let display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some());
    let video = if options.input == Input::Camera && display { None } else { Some(encoder(&options.out)?) };
    if let (Input::File(file), Some((_, path))) = (&options.input, &video)
        && path.canonicalize().is_ok_and(|path| file.canonicalize().is_ok_and(|file| file == path))
    {
        return Err(format!(
            "{} would be overwritten while it is read: name another folder with --out",
            file.display()
        )
        .into());
    }
    let sink = video.as_ref().map_or("videoscale ! autovideosink", |(encoder, _)| encoder);
    let source = match &options.input {
        Input::Scene => "appsrc name=source".into(),
        // With these caps uridecodebin does not decode other streams, such as audio.
        Input::File(file) => format!(
            "uridecodebin uri=\"{}\" caps=video/x-raw(ANY) expose-all-streams=false",
            glib::filename_to_uri(std::path::absolute(file)?, None)?
        ),
        Input::Camera => {
            let frames = if display { -1 } else { FRAMES as i32 };
            let size = "width=[1,1280],height=[1,720]";
            format!("v4l2src num-buffers={frames} ! video/x-raw,{size};image/jpeg,{size} ! decodebin")
        }
    };
    let pipeline = format!("{source} ! queue ! videoconvert ! cudagaussblur name=blur ! queue ! videoconvert ! {sink}");
    let pipeline =
        gst::parse::launch(&pipeline)?.downcast::<gst::Pipeline>().expect("elements in a row make a pipeline");
    if let Some(source) = pipeline.by_name("source") {
        draw_into(&source.downcast().expect("an appsrc"));
    }
    if let (Some(sink), Some((_, path))) = (pipeline.by_name("file"), &video) {
        sink.set_property("location", path);
    }
    let blur = pipeline.by_name("blur").expect("the blur's name is in the description");
    blur.set_property("sigma", options.sigma);
    blur.set_property("kernel-size", options.kernel_size);
    blur.set_property_from_str("backend", &options.backend);
    let snapshot = take_snapshot(&blur);

    let played = play(&pipeline);
    let backend = blur.property_value("active-backend").serialize()?;
    let stats = blur.property::<gst::Structure>("stats");
    pipeline.set_state(gst::State::Null)?;
    let blurred = stats.get::<u64>("frames")? - stats.get::<u64>("frames-passthrough")?;
    let pair = lock(&snapshot).pair.take();
    let (took, (raw, soft)) = match (played, pair) {
        (Ok(took), Some(pair)) => (took, pair),
        (failed, _) => {
            // The file is incomplete.
            let _ = video.map(|(_, path)| fs::remove_file(path));
            return Err(failed.err().unwrap_or_else(|| NO_VIDEO.into()).into());
        }
    };
    let picture = options.out.join("before-after.png");
    fs::write(&picture, before_after(&raw, &soft)?).map_err(|error| about(&picture, error))?;

    let frames_per_second = stats.get::<u64>("frames")? as f64 / took.as_secs_f64();
    println!("{blurred} frames blurred on {backend}, kernel {}", stats.get::<&str>("kernel")?);
    println!("{frames_per_second:.1} frames per second in the whole pipeline, encoder included");
    println!("{:.2} ms per frame in the blur", stats.get::<u64>("kernel-mean-ns")? as f64 / 1e6);
    for path in video.iter().map(|(_, path)| path).chain([&picture]) {
        println!("wrote {}", path.display());
    }
    Ok(())
}

/// The elements that encode and write the blurred clip, and its path.
fn encoder(out: &Path) -> Result<(String, PathBuf), String> {
    // Every player supports 4:2:0, which needs even sizes.
    let even = "videoscale ! video/x-raw,format=I420,width=[2,16384,2],height=[2,16384,2]";
    let encoders = [
        (["x264enc", "mp4mux"], "x264enc pass=qual quantizer=21 speed-preset=veryfast ! mp4mux", "blurred.mp4"),
        (["vp8enc", "webmmux"], "vp8enc deadline=1 cpu-used=8 target-bitrate=4000000 ! webmmux", "blurred.webm"),
    ];
    let found = encoders.iter().find(|(needs, ..)| needs.iter().all(|name| gst::ElementFactory::find(name).is_some()));
    let (_, encoder, name) =
        found.ok_or("GStreamer has no encoder for the result: install x264enc and mp4mux, or vp8enc and webmmux")?;
    Ok((format!("{even} ! {encoder} ! filesink name=file"), out.join(name)))
}

/// Makes `source` push the generated clip.
fn draw_into(source: &gst_app::AppSrc) {
    let time = |frame: usize| gst::ClockTime::SECOND.mul_div_floor(frame as u64, FPS as u64);
    source.set_format(gst::Format::Time);
    source.set_duration(time(FRAMES));
    let info = gst_video::VideoInfo::builder(gst_video::VideoFormat::Rgbx, WIDTH as u32, HEIGHT as u32);
    let caps = info.fps(FPS as i32).build().and_then(|info| info.to_caps());
    source.set_caps(Some(&caps.expect("the caps are fixed at build time")));
    let (scene, mut frame) = (Scene::new(), 0);
    let draw = move |source: &gst_app::AppSrc, _wanted| {
        // Both calls fail only if the pipeline is flushing or has ended.
        if frame == FRAMES {
            let _ = source.end_of_stream();
            return;
        }
        let mut pixels = vec![0; WIDTH * HEIGHT * 4];
        scene.draw(frame, &mut pixels);
        let mut buffer = gst::Buffer::from_mut_slice(pixels);
        let stamps = buffer.get_mut().expect("nobody else has it yet");
        stamps.set_pts(time(frame));
        stamps.set_duration(time(1));
        frame += 1;
        let _ = source.push_buffer(buffer);
    };
    source.set_callbacks(gst_app::AppSrcCallbacks::builder().need_data(draw).build());
}

/// One frame before and after the blur.
#[derive(Default)]
struct Snapshot {
    /// Half the duration of the clip.
    middle: Option<gst::ClockTime>,
    /// The last frame that reached the element, which may still drop it as late.
    raw: Option<gst::Sample>,
    pair: Option<(gst::Sample, gst::Sample)>,
}

/// Captures the frame in the middle of the clip; the frame at three seconds if the duration is unknown; the last frame if
/// the clip is shorter.
fn take_snapshot(blur: &gst::Element) -> Arc<Mutex<Snapshot>> {
    let snapshot = Arc::<Mutex<Snapshot>>::default();
    let probe = |name, keep: fn(&gst::Pad, &mut Snapshot, gst::Sample)| {
        let snapshot = snapshot.clone();
        let pad = blur.static_pad(name).expect("a filter has both pads");
        pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            if let (Some(buffer), Some(caps)) = (info.buffer(), pad.current_caps()) {
                let sample = gst::Sample::builder().buffer(buffer).caps(&caps).build();
                keep(pad, &mut lock(&snapshot), sample);
            }
            gst::PadProbeReturn::Ok
        });
    };
    probe("sink", |pad, snapshot, sample| {
        let length = || pad.peer_query_duration().unwrap_or(6 * gst::ClockTime::SECOND);
        let middle = *snapshot.middle.get_or_insert_with(|| length() / 2);
        if snapshot.pair.as_ref().is_none_or(|(raw, _)| pts(raw) < Some(middle)) {
            snapshot.raw = Some(sample);
        }
    });
    probe("src", |_, snapshot, sample| {
        if let Some(raw) = snapshot.raw.take_if(|raw| pts(raw) == pts(&sample)) {
            snapshot.pair = Some((raw, sample));
        }
    });
    snapshot
}

fn pts(sample: &gst::Sample) -> Option<gst::ClockTime> {
    sample.buffer().and_then(gst::BufferRef::pts)
}

fn lock(snapshot: &Mutex<Snapshot>) -> MutexGuard<'_, Snapshot> {
    snapshot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays until EOS, Ctrl-C or until the window is closed. Returns the elapsed time.
fn play(pipeline: &gst::Pipeline) -> Result<Duration, String> {
    const SIGINT: i32 = 2;
    let weak = pipeline.downgrade();
    glib_unix::unix_signal_add(SIGINT, move || {
        // EOS finalises the file. A second Ctrl-C terminates the program.
        weak.upgrade().map(|pipeline| pipeline.send_event(gst::event::Eos::new()));
        glib::ControlFlow::Break
    });
    thread::spawn(|| glib::MainLoop::new(None, false).run());

    let bus = pipeline.bus().expect("a pipeline has a bus");
    let started = Instant::now();
    let ends = &[gst::MessageType::Eos, gst::MessageType::Error];
    let message = match pipeline.set_state(gst::State::Playing) {
        Ok(_) => bus.timed_pop_filtered(None, ends),
        // The error message is already on the bus.
        Err(_) => bus.pop_filtered(ends),
    };
    match message.as_deref().map(gst::MessageRef::view) {
        Some(gst::MessageView::Error(error)) if error.error().matches(gst::CoreError::MissingPlugin) => {
            Err(NO_VIDEO.into())
        }
        Some(gst::MessageView::Error(error)) if is_closed_window(error) => Ok(started.elapsed()),
        Some(gst::MessageView::Error(error)) => {
            let element = error.src().map_or_else(String::new, |element| format!(" ({})", element.name()));
            Err(format!("{}{element}", error.error().message().trim_end_matches('.')))
        }
        Some(_) => Ok(started.elapsed()),
        None => Err("the pipeline did not start and posted no error message".into()),
    }
}

/// Whether this is the error that a video sink posts when its window is closed.
fn is_closed_window(error: &gst::message::Error) -> bool {
    let sink = error.src().and_then(|source| source.downcast_ref::<gst::Element>());
    error.error().matches(gst::ResourceError::NotFound)
        && sink.is_some_and(|element| element.element_flags().contains(gst::ElementFlags::SINK))
}

/// A PNG with the left half of `raw`, the right half of `blurred` and a white line between them.
fn before_after(raw: &gst::Sample, blurred: &gst::Sample) -> Result<Vec<u8>, Box<dyn Error>> {
    let convert = |sample: &gst::Sample, wanted: &str| -> Result<(gst::Caps, Vec<u8>), Box<dyn Error>> {
        let patience = 10 * gst::ClockTime::SECOND;
        let sample = gst_video::convert_sample(sample, &gst::Caps::from_str(wanted)?, Some(patience))?;
        let (buffer, caps) = sample.buffer().zip(sample.caps()).ok_or("a picture without caps or pixels")?;
        Ok((caps.to_owned(), buffer.map_readable()?.to_vec()))
    };
    let (caps, mut picture) = convert(raw, "video/x-raw,format=RGB")?;
    let (_, right) = convert(blurred, "video/x-raw,format=RGB")?;
    let info = gst_video::VideoInfo::from_caps(&caps)?;
    let (stride, half) = (info.stride()[0] as usize, info.width() as usize / 2 * 3);
    for (row, right) in picture.chunks_mut(stride).zip(right.chunks(stride)) {
        row[half..].copy_from_slice(&right[half..]);
        row[half.saturating_sub(3)..half + 3].fill(255);
    }
    let picture = gst::Sample::builder().buffer(&gst::Buffer::from_mut_slice(picture)).caps(&caps).build();
    Ok(convert(&picture, "image/png")?.1)
}
