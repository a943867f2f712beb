// SPDX-License-Identifier: MPL-2.0
//! The demo: blurs a video, or covers parts of it, and writes the result and a before/after picture. `--help` lists the
//! options.

mod coverage;
mod faces;
mod objects;
mod options;
mod pictures;
mod playback;
mod regions;
mod scene;
mod tracks;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::{env, fs, io};

use gst::glib;
use gst::prelude::*;

use coverage::{Coverage, Marked};
use options::{HELP, Input, Job, Options};
use pictures::{Pair, Snapshot, lock};
use playback::{FRAMES, NO_VIDEO, encoder, feed, play};
use scene::{HEIGHT, Scene, WIDTH};
use tracks::Tracks;

/// Makes an appsrc push frames.
type Feed = Box<dyn FnOnce(&gst_app::AppSrc)>;
/// The places of a frame that must be covered. The detections include its own.
type FindMarked = Box<dyn FnMut(&Pair, &Tracks) -> Vec<Marked> + Send>;

/// What a job adds to the pipeline.
struct Chain {
    /// A source instead of the input, with an appsrc named `source`.
    source: Option<String>,
    /// The elements from the source to the last cover.
    elements: String,
    /// Names of the first and of the last cover among them, which may be the same.
    first: &'static str,
    last: &'static str,
    /// For the appsrc.
    feed: Option<Feed>,
    marked: FindMarked,
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

/// Blurs the whole picture. The generated clip is a landscape.
fn whole_frames(options: &Options) -> Chain {
    let is_generated = options.input == Input::Generated;
    Chain {
        source: is_generated.then(|| "appsrc name=source".into()),
        elements: "videoconvert ! cudagaussblur name=blur".into(),
        first: "blur",
        last: "blur",
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
        marked: Box::new(|_, _| Vec::new()),
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    gst::init()?;
    gstcudagaussblur::register_static()?;
    let about = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    if let Input::File(file) = &options.input {
        fs::File::open(file).map_err(|error| about(file, error))?;
    }
    let (mut chain, stem, picture) = match options.job {
        Job::Blur => (whole_frames(options), "blurred", "before-after.png"),
        Job::Regions => (regions::chain(), "regions", "regions.png"),
        Job::Faces => (faces::chain(options)?, "faces", "faces.png"),
    };
    fs::create_dir_all(&options.out).map_err(|error| about(&options.out, error))?;

    let display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some());
    let video = if options.input == Input::Camera && display { None } else { Some(encoder(&options.out, stem)?) };
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
    let source = match (chain.source.take(), &options.input) {
        (Some(source), _) => source,
        // With these caps uridecodebin does not decode other streams, such as audio.
        (None, Input::File(file)) => format!(
            "uridecodebin uri=\"{}\" caps=video/x-raw(ANY) expose-all-streams=false",
            glib::filename_to_uri(std::path::absolute(file)?, None)?
        ),
        (None, _) => {
            let frames = if display { -1 } else { FRAMES as i32 };
            let size = "width=[1,1280],height=[1,720]";
            format!("v4l2src num-buffers={frames} ! video/x-raw,{size};image/jpeg,{size} ! decodebin")
        }
    };
    let pipeline = format!("{source} ! queue ! {} ! queue ! videoconvert ! {sink}", chain.elements);
    let pipeline =
        gst::parse::launch(&pipeline)?.downcast::<gst::Pipeline>().expect("elements in a row make a pipeline");
    if let (Some(source), Some(feed)) = (pipeline.by_name("source"), chain.feed.take()) {
        feed(&source.downcast().expect("an appsrc"));
    }
    if let (Some(sink), Some((_, path))) = (pipeline.by_name("file"), &video) {
        sink.set_property("location", path);
    }
    let covers = pipeline.iterate_all_by_element_factory_name("cudagaussblur");
    for cover in covers.into_iter().flatten() {
        cover.set_property("sigma", options.sigma);
        cover.set_property("kernel-size", options.kernel_size);
        cover.set_property_from_str("backend", &options.backend);
    }
    let [first, last] = [chain.first, chain.last].map(|name| pipeline.by_name(name).expect("the description names it"));
    let seen = Arc::<Mutex<(Coverage, Tracks, Snapshot)>>::default();
    let watched = seen.clone();
    let job = options.job;
    pictures::watch(&first, &last, move |pad, pair| {
        let (coverage, tracks, snapshot) = &mut *lock(&watched);
        let Some(pair) = pair else {
            coverage.check(None, &[]);
            return;
        };
        tracks.update(&pair);
        let marked = (chain.marked)(&pair, tracks);
        coverage.check(Some(&pair), &marked);
        // The picture of --regions shows all covers, which the frame in the middle has.
        let (detections, is_missing) = match job {
            Job::Faces => (tracks.latest, tracks.missing().next().is_some()),
            Job::Blur | Job::Regions => (0, false),
        };
        snapshot.offer(pad, pair, detections, is_missing);
    });

    let played = play(&pipeline);
    let backend = last.property_value("active-backend").serialize()?;
    let stats = last.property::<gst::Structure>("stats");
    pipeline.set_state(gst::State::Null)?;
    let (coverage, tracks, snapshot) = std::mem::take(&mut *lock(&seen));
    let outcome = played.and_then(|took| {
        let shown = snapshot.choose().ok_or(NO_VIDEO)?;
        let report = match options.job {
            Job::Blur => None,
            Job::Regions => Some(coverage.verdict(regions::report(&coverage, &tracks))?),
            Job::Faces => Some(coverage.verdict(faces::report(&coverage, &tracks)?)?),
        };
        Ok((took, shown, report))
    });
    // Without a pair the file is incomplete. With an uncovered place it must not be published.
    let (took, (pair, reason), report) = outcome.inspect_err(|_| {
        let _ = video.as_ref().map(|(_, path)| fs::remove_file(path));
    })?;
    let picture = options.out.join(picture);
    let png = match (options.job, &options.input) {
        (Job::Blur, _) => pictures::halves(&pair)?,
        // A picture of somebody's face before it was covered is not left in the folder.
        (Job::Faces, Input::File(_) | Input::Camera) => pictures::single(&pair.covered)?,
        _ => pictures::side_by_side(&pair)?,
    };
    fs::write(&picture, png).map_err(|error| about(&picture, error))?;

    match report {
        Some(report) => println!("{report}"),
        None => {
            let blurred = stats.get::<u64>("frames")? - stats.get::<u64>("frames-passthrough")?;
            println!("{blurred} frames blurred on {backend}, kernel {}", stats.get::<&str>("kernel")?);
        }
    }
    let frames_per_second = coverage.frames as f64 / took.as_secs_f64();
    println!("{frames_per_second:.1} frames per second in the whole pipeline, encoder included");
    if options.job == Job::Blur {
        println!("{:.2} ms per frame in the blur", stats.get::<u64>("kernel-mean-ns")? as f64 / 1e6);
    }
    if let Some((_, path)) = &video {
        println!("wrote {}", path.display());
    }
    println!("wrote {}: the frame at {:.1} s, {reason}", picture.display(), pair.time.seconds_f64());
    Ok(())
}
