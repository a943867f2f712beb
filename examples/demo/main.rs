// SPDX-License-Identifier: MPL-2.0
//! The demo: makes a clip, blurs it or covers parts of it, checks every frame, and writes the result and a before/after picture.
//! `--help` lists the options. examples/hide.py covers files.

mod clip;
mod coverage;
mod jobs;
mod options;
mod pictures;
mod playback;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, fs, io};

use gst::prelude::*;

use clip::{FRAMES, Frame};
use coverage::Coverage;
use jobs::Job;
use options::{HELP, Options};
use playback::Encoder;

const NO_CAMERA: &str = "there is no camera at /dev/video0: connect one, or leave out --camera to see the generated clip, or name a \
                         video file instead";

fn main() -> ExitCode {
    let (failure, code) = match Options::parse(env::args_os().skip(1)) {
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Some(options)) => match if options.camera { print_line(&options) } else { run(&options) } {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => (error.to_string(), 1),
        },
        Err(sentence) => (format!("{sentence} (--help shows the usage)"), 2),
    };
    eprintln!("demo: {failure}");
    ExitCode::from(code)
}

/// Prints the shell's line of gst-launch-1.0 for the camera, which scripts/demo executes.
fn print_line(options: &Options) -> Result<(), Box<dyn Error>> {
    if !Path::new("/dev/video0").exists() {
        return Err(NO_CAMERA.into());
    }
    gst::init()?;
    let (size, job) = ("width=[1,1280],height=[1,720]", Job::new(options));
    let (frames, sink) = if ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some()) {
        (-1, "videoscale ! autovideosink".to_owned())
    } else {
        let Encoder { elements, extension } = Encoder::find()?;
        let name = options.out.join(format!("camera-{}.{extension}", job.name));
        fs::create_dir_all(&options.out)?;
        (FRAMES as i32, format!("{elements} location='{}'", name.display().to_string().replace('\'', "'\\''")))
    };
    println!(
        "gst-launch-1.0 -e v4l2src num-buffers={frames} ! 'video/x-raw,{size};image/jpeg,{size}' ! decodebin ! queue ! videoconvert ! \
         {} ! queue ! videoconvert ! {sink}",
        job.elements
    );
    Ok(())
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    gst::init()?;
    gstcudagaussblur::plugin_register_static()?;
    let (job, encoder) = (Arc::new(Job::new(options)), Encoder::find()?);
    let clip = Arc::new(job.clip()?);
    // Results are written aside and renamed when all are complete, so that a run that fails leaves those of the run before.
    let results = [(job.name, encoder.extension), (job.picture, "png")]
        .map(|(name, extension)| options.out.join(format!("{name}.{extension}")));
    let parts = results.each_ref().map(|path| path.with_added_extension("part"));
    let about = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(&options.out).map_err(|error| about(&options.out, error))?;

    let line = format!("appsrc name=source ! queue ! {} ! queue ! videoconvert ! {}", job.elements, encoder.elements);
    let made = playback::launch(&line).and_then(|pipeline| {
        let element = |name| pipeline.by_name(name).expect("the description names it");
        element("file").set_property("location", &parts[0]);
        clip::feed(&element("source").downcast().expect("an appsrc"), &clip, &job);
        let seen = Arc::<Mutex<(Coverage, Option<Frame>)>>::default();
        let (seen_by_probe, of_probe, job_of_probe) = (seen.clone(), clip.clone(), job.clone());
        playback::watch(&element("last"), move |index, covered| {
            let (coverage, picture) = &mut *seen_by_probe.lock().unwrap_or_else(PoisonError::into_inner);
            coverage.check(index, &of_probe.frame(index), &covered, &job_of_probe.places(&of_probe, index));
            if index == FRAMES / 2 {
                *picture = Some(covered);
            }
        });
        let took = playback::play(&pipeline);
        let stats = element("last").property::<gst::Structure>("stats");
        let backend = element("last").property_value("active-backend").serialize()?.to_string();
        let detector = pipeline.by_name("detector").map(|detector| detector.property::<gst::Structure>("stats"));
        pipeline.set_state(gst::State::Null)?;
        let (coverage, picture) = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
        let (took, checked) = (took?, coverage.verdict()?);
        let picture = picture.ok_or("the clip has no frame in its middle")?;
        let frames = [clip.frame(FRAMES / 2), picture];
        fs::write(&parts[1], if job.is_whole { pictures::halves(frames)? } else { pictures::in_a_row(&frames)? })?;
        let milliseconds = stats.get::<u64>("kernel-mean-ns")? as f64 / 1e6;
        let searched = detector.map_or(Ok(None), |stats| stats.get::<u64>("searched").map(Some))?;
        let searched = searched.map_or(String::new(), |count| format!("the detector looked at {count} frames\n"));
        Ok(format!(
            "{checked}{}\n{searched}{milliseconds:.2} ms per frame in the blur on {backend}, kernel {}\n\
             {:.1} frames a second in the whole pipeline, encoder included",
            job.note,
            stats.get::<&str>("kernel")?,
            FRAMES as f64 / took.as_secs_f64()
        ))
    });
    let published = made.and_then(|report| {
        if let Some(folder) = results.iter().find(|path| path.is_dir()) {
            let folder = folder.display();
            return Err(format!("{folder} is a folder: rename it, or name another folder with --out").into());
        }
        for (part, result) in parts.iter().zip(&results) {
            fs::rename(part, result).map_err(|error| about(result, error))?;
        }
        Ok(report)
    });
    parts.iter().for_each(|part| drop(fs::remove_file(part)));
    println!("{}", published?);
    println!("wrote {}", results[0].display());
    println!("wrote {}: the frame at 3.0 s, in the middle of the clip", results[1].display());
    Ok(())
}
