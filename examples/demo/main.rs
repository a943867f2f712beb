// SPDX-License-Identifier: MPL-2.0
//! The demo: blurs a generated clip or the camera's picture, or covers parts of it, checks every frame of a clip, and writes the
//! result and a before/after picture. `--help` lists the options. examples/hide.py does the same with files.

mod background;
mod coverage;
mod faces;
mod objects;
mod options;
mod pictures;
mod pipeline;
mod playback;
mod portrait;
mod regions;
mod results;
mod scene;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::{env, fs, io};

use background::Checked;
use options::{HELP, Job, Options};
use pictures::lock;
use pipeline::{Chain, Feed, play_chain};
use playback::{Encoder, NO_VIDEO, feed};
use results::{Results, published};
use scene::{HEIGHT, Scene, WIDTH};

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

/// Blurs the whole picture. The generated clip is a landscape, whose blurred frames are checked.
fn whole_frames(options: &Options) -> Chain {
    let (is_generated, largest) = (!options.camera, coverage::largest_tap(options.sigma, options.kernel_size));
    Chain {
        elements: "cudagaussblur name=blur".into(),
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
        check: Box::new(move |pair, coverage| {
            if is_generated {
                coverage.check_blur(pair, largest);
            }
            0
        }),
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    gst::init()?;
    gstcudagaussblur::plugin_register_static()?;
    let checked = Arc::<Mutex<Checked>>::default();
    let (name, picture, chain) = match options.job {
        Job::Blur => ("blurred", "before-after", whole_frames(options)),
        Job::Regions => ("regions", "regions", regions::chain()),
        Job::Faces => ("faces", "faces", faces::chain(options)?),
        Job::Background => ("background", "background", background::chain(options, &checked)?),
    };
    let about = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(&options.out).map_err(|error| about(&options.out, error))?;

    let display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some());
    let encoder = if options.camera && display { None } else { Some(Encoder::find()?) };
    let mut results = Results::default();
    let clip = encoder.as_ref().map(|encoder| results.add(options, name, encoder.extension));
    let played = play_chain(chain, options, encoder.as_ref().zip(clip.as_deref()))?;
    let coverage = &played.coverage;
    let report = match options.job {
        _ if coverage.frames == 0 => return Err(NO_VIDEO.into()),
        Job::Blur => {
            let count = |name| played.stats.get::<u64>(name);
            let blurred = count("frames")? - count("frames-passthrough")?;
            let (backend, kernel) = (&played.backend, played.stats.get::<&str>("kernel")?);
            let time = count("kernel-mean-ns")? as f64 / 1e6;
            let checked = match coverage.marked {
                0 => String::new(),
                checked => format!("checked {checked} frames; no edge is sharper than the Gaussian can leave it\n"),
            };
            Ok(format!(
                "{checked}{blurred} frames blurred on {backend}, kernel {kernel}\n{time:.2} ms per frame in the blur"
            ))
        }
        Job::Regions => Ok(regions::report(coverage)),
        Job::Faces => Ok(faces::report(&played, options)),
        Job::Background => lock(&checked).report(coverage.frames),
    };
    // A frame that failed the check says more than the mean of all.
    coverage.verdict()?;
    let report = report?;
    let (pair, reason) = played.snapshot.choose().ok_or(NO_VIDEO)?;
    let png = match options.job {
        Job::Blur => pictures::halves(pair)?,
        Job::Background => background::comparison(pair, options)?,
        // A picture of somebody's face before it was covered is not left in the folder.
        Job::Faces if options.camera => pictures::single(&pair.covered)?,
        _ => pictures::side_by_side(pair)?,
    };
    let picture = results.add(options, picture, "png");
    fs::write(&picture, png).map_err(|error| about(&picture, error))?;
    results.publish()?;

    println!("{report}");
    let frames_per_second = coverage.frames as f64 / played.took.as_secs_f64();
    println!("{frames_per_second:.1} frames a second in the whole pipeline, encoder included");
    if let Some(clip) = &clip {
        println!("wrote {}", published(clip).display());
    }
    println!("wrote {}: the frame at {:.1} s, {reason}", published(&picture).display(), pair.time.seconds_f64());
    Ok(())
}
