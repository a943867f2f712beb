// SPDX-License-Identifier: MPL-2.0
//! The demo: blurs a video, or covers parts of it, and writes the result and a before/after picture. `--help` lists the
//! options.

mod background;
mod coverage;
mod faces;
mod models;
mod objects;
mod options;
mod pictures;
mod pipeline;
mod playback;
mod portrait;
mod regions;
mod report;
mod results;
mod scene;
mod sound;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use options::{HELP, Input, Job, Options};
use pipeline::{Chain, Feed, Played, play_chain};
use playback::{Encoder, NO_VIDEO, feed};
use results::{Results, published};
use scene::{HEIGHT, Scene, WIDTH};
use sound::Sound;

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

/// Blurs the whole picture. The generated clip is a landscape.
fn whole_frames(options: &Options) -> Chain {
    let is_generated = options.input == Input::Generated;
    Chain {
        source: is_generated.then(|| "appsrc name=source".into()),
        elements: "videoconvert ! cudagaussblur name=blur".into(),
        first: "blur",
        last: "blur",
        reported: None,
        feed: is_generated.then(|| -> Feed {
            Box::new(|source| {
                let scene = Scene::new();
                feed(source, gst_video::VideoFormat::Rgbx, (WIDTH, HEIGHT), move |frame| {
                    let mut pixels = vec![0; WIDTH * HEIGHT * 4];
                    scene.draw(frame, &mut pixels, |_| ());
                    gst::Buffer::from_mut_slice(pixels)
                });
            })
        }),
        prepare: None,
        blurred_behind: None,
        marked: Box::new(|_| Vec::new()),
    }
}

/// What the job adds to the pipeline.
fn chain_of(options: &Options) -> Result<Chain, Box<dyn Error>> {
    match options.job {
        Job::Blur => Ok(whole_frames(options)),
        Job::Regions => Ok(regions::chain()),
        Job::Faces => faces::chain(options),
        Job::Background => background::chain(options),
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    gst::init()?;
    gstcudagaussblur::plugin_register_static()?;
    let about = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    if let Input::File(file) = &options.input {
        fs::File::open(file).map_err(|error| about(file, error))?;
    }
    let chain = chain_of(options)?;
    let (name, picture) = match options.job {
        Job::Blur => ("blurred", "before-after"),
        Job::Regions => ("regions", "regions"),
        Job::Faces => ("faces", "faces"),
        Job::Background => ("background", "background"),
    };
    fs::create_dir_all(&options.out).map_err(|error| about(&options.out, error))?;

    let display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some());
    let in_window = options.input == Input::Camera && display;
    let encoder = if in_window { None } else { Some(Encoder::find()?) };
    let mut results = Results::default();
    let clip = encoder.as_ref().map(|encoder| results.add(options, name, encoder.extension));
    let target = encoder.as_ref().zip(clip.as_deref());
    let sound = Sound::default();
    let is_file = matches!(options.input, Input::File(_));
    let played =
        match play_chain(chain, options, target, is_file.then_some(&sound)) {
            Err(error) if sound.is_kept() => chain_of(options)
                .and_then(|chain| play_chain(chain, options, target, None))
                .inspect(|_| sound.fail(format!("with it, the result could not be written ({error})")))?,
            played => played?,
        };
    let Played { coverage, checked, doubts, .. } = &played;
    let report = match options.job {
        _ if coverage.frames == 0 => return Err(NO_VIDEO.into()),
        Job::Blur => None,
        Job::Regions => Some(coverage.verdict(regions::report(coverage, doubts))?),
        Job::Faces => Some(coverage.verdict(faces::report(coverage, doubts))?),
        Job::Background => Some(coverage.verdict(checked.report()?)?),
    };
    if options.job == Job::Faces && coverage.marked == 0 {
        return without_faces(options, coverage.frames, clip.as_deref());
    }
    let (png, time, reason) = picture_of(options, &played, clip.as_deref())?;
    let picture = results.add(options, picture, "png");
    fs::write(&picture, png).map_err(|error| about(&picture, error))?;
    let table = (options.job == Job::Faces && clip.is_some()).then(|| results.add(options, name, "csv"));
    if let Some(table) = &table {
        fs::write(table, played.doubts.table()).map_err(|error| about(table, error))?;
    }
    results.publish()?;

    match report {
        Some(report) => println!("{report}"),
        None => {
            let Played { backend, stats, .. } = &played;
            let blurred = stats.get::<u64>("frames")? - stats.get::<u64>("frames-passthrough")?;
            println!("{blurred} frames blurred on {backend}, kernel {}", stats.get::<&str>("kernel")?);
        }
    }
    let frames_per_second = played.coverage.frames as f64 / played.took.as_secs_f64();
    match options.job {
        Job::Background => println!("{frames_per_second:.1} frames a second, mask included"),
        _ => println!("{frames_per_second:.1} frames per second in the whole pipeline, encoder included"),
    }
    if options.job == Job::Blur {
        println!("{:.2} ms per frame in the blur", played.stats.get::<u64>("kernel-mean-ns")? as f64 / 1e6);
    }
    if let Some(clip) = &clip {
        let with = if sound.is_kept() { ", with the sound of the file" } else { "" };
        println!("wrote {}{with}", published(clip).display());
    }
    if let Some(sentence) = sound.left_out() {
        println!("{sentence}");
    }
    if let Some(table) = &table {
        println!("wrote {}: all times at which a face may show, with places", published(table).display());
    }
    println!("wrote {}: the frame at {:.1} s, {reason}", published(&picture).display(), time.seconds_f64());
    Ok(())
}

/// Copies a file in which no face was found, or keeps the camera's clip, under a name that says so.
fn without_faces(options: &Options, frames: u64, clip: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let mut results = Results::default();
    const NAME: &str = "no-face-found";
    let copy = match (&options.input, clip) {
        (Input::File(file), _) if frames == 1 => {
            return Err(format!("{} is a picture, not a video: it has one frame", file.display()).into());
        }
        (Input::File(file), _) => {
            let extension = file.extension().unwrap_or_default().to_string_lossy();
            let copy = results.add(options, NAME, &extension);
            fs::copy(file, &copy)?;
            copy
        }
        (Input::Camera, Some(clip)) => {
            let extension = clip.with_extension("").extension().unwrap_or_default().to_string_lossy().into_owned();
            let copy = results.add(options, NAME, &extension);
            fs::rename(clip, &copy)?;
            copy
        }
        _ => return Err(format!("no face was found in {frames} frames, so nothing was covered").into()),
    };
    results.publish()?;
    println!("no face was found in {frames} frames, so nothing was covered: look at the clip before you publish it");
    println!("wrote {}, the clip as it was", published(&copy).display());
    Ok(())
}

/// The picture as PNG, the time of the frame that it shows, and why it shows this one.
fn picture_of(
    options: &Options,
    played: &Played,
    clip: Option<&Path>,
) -> Result<(Vec<u8>, gst::ClockTime, String), Box<dyn Error>> {
    if let (Job::Faces, Some(clip), Some(doubt)) = (options.job, clip, played.doubts.worst())
        && let Ok(frame) = pictures::frame_at(clip, doubt.shown)
    {
        return Ok((pictures::single(&frame)?, doubt.shown, format!("because {}", doubt.reason())));
    }
    let (pair, reason) = played.snapshot.choose().ok_or(NO_VIDEO)?;
    let png = match (options.job, &options.input) {
        (Job::Blur, _) => pictures::halves(pair)?,
        (Job::Background, _) => background::comparison(pair, options)?,
        // A picture of somebody's face before it was covered is not left in the folder.
        (Job::Faces, Input::File(_) | Input::Camera) => pictures::single(&pair.covered)?,
        _ => pictures::side_by_side(pair)?,
    };
    Ok((png, pair.time, reason.into()))
}
