// SPDX-License-Identifier: MPL-2.0
//! Builds the pipeline from the input through the covers to the result, and plays it.

use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gst::glib;
use gst::prelude::*;

use super::background::Checked;
use super::coverage::{Coverage, Marked};
use super::options::{Input, Job, Options};
use super::pictures::{self, Pair, Snapshot, lock};
use super::playback::{Encoder, FRAMES, play};
use super::report::{Doubts, Report};
use super::sound::Sound;

/// Makes an appsrc push frames.
pub type Feed = Box<dyn FnOnce(&gst_app::AppSrc)>;
/// Completes the pipeline before it plays.
pub type Prepare = Box<dyn FnOnce(&gst::Pipeline)>;
/// The places of a frame that must be covered, which do not depend on the element's messages.
pub type FindMarked = Box<dyn FnMut(&Pair) -> Vec<Marked> + Send>;

/// What a job adds to the pipeline.
pub struct Chain {
    /// A source instead of the input, with an appsrc named `source`.
    pub source: Option<String>,
    /// The elements from the source to the last cover.
    pub elements: String,
    /// Names of the first cover among them, and of the element that covered frames leave, which may be the same.
    pub first: &'static str,
    pub last: &'static str,
    /// Name of the one whose messages the report is made of, which posts them.
    pub reported: Option<&'static str>,
    /// For the appsrc.
    pub feed: Option<Feed>,
    pub prepare: Option<Prepare>,
    /// Of --background: the blurred background without a person, if it is known.
    pub blurred_behind: Option<gst::Sample>,
    pub marked: FindMarked,
}

/// What a pipeline that played to its end says.
pub struct Played {
    pub took: Duration,
    pub backend: String,
    pub stats: gst::Structure,
    pub coverage: Coverage,
    /// Of --background.
    pub checked: Checked,
    pub doubts: Doubts,
    pub snapshot: Snapshot,
}

/// Plays the input through the covers: into a file, by this encoder and with the sound of the input if `sound` is given, or
/// into a window.
pub fn play_chain(
    mut chain: Chain,
    options: &Options,
    clip: Option<(&Encoder, &Path)>,
    sound: Option<&Sound>,
) -> Result<Played, Box<dyn Error>> {
    let source = match (chain.source.take(), &options.input) {
        (Some(source), _) => source,
        // uridecodebin decodes no stream, such as subtitles, that has none of these caps.
        (None, Input::File(file)) => format!(
            "uridecodebin name=input uri=\"{}\" caps=\"video/x-raw(ANY){}\" expose-all-streams=false ! video/x-raw(ANY)",
            glib::filename_to_uri(std::path::absolute(file)?, None)?,
            if sound.is_some() { ";audio/x-raw" } else { "" }
        ),
        (None, _) => {
            let frames = if clip.is_none() { -1 } else { FRAMES as i32 };
            let size = "width=[1,1280],height=[1,720]";
            format!("v4l2src num-buffers={frames} ! video/x-raw,{size};image/jpeg,{size} ! decodebin")
        }
    };
    // Covers work on the picture as a viewer sees it: turned as the file says, with square pixels. The sizes are even, because
    // 4:2:0 needs that, which every player supports.
    let (width, height) = options.size;
    let upright = match options.input {
        Input::Generated => String::new(),
        _ => format!(
            "videoconvert ! videoflip name=upright video-direction=auto ! videoscale ! \
             video/x-raw,width=[2,{width},2],height=[2,{height},2],pixel-aspect-ratio=1/1 ! "
        ),
    };
    let sink = clip.map_or("videoscale ! autovideosink", |(encoder, _)| &encoder.elements);
    let pipeline = format!("{source} ! queue name=video ! {upright}{} ! queue ! videoconvert ! {sink}", chain.elements);
    let pipeline =
        gst::parse::launch(&pipeline)?.downcast::<gst::Pipeline>().expect("elements in a row make a pipeline");
    if let (Some(source), Some(feed)) = (pipeline.by_name("source"), chain.feed.take()) {
        feed(&source.downcast().expect("an appsrc"));
    }
    if let Some(prepare) = chain.prepare.take() {
        prepare(&pipeline);
    }
    if let (Some(sink), Some((encoder, path))) = (pipeline.by_name("file"), clip) {
        sink.set_property("location", path);
        if let Some(sound) = sound {
            sound.keep(&pipeline, encoder.sound);
        }
    }
    let covers = pipeline.iterate_all_by_element_factory_name("cudagaussblur");
    for cover in covers.into_iter().flatten() {
        cover.set_property("sigma", options.sigma);
        cover.set_property("kernel-size", options.kernel_size);
        cover.set_property_from_str("backend", &options.backend);
    }
    let [first, last] = [chain.first, chain.last].map(|name| pipeline.by_name(name).expect("the description names it"));
    // The message about a frame is posted before the frame leaves, on the same thread.
    let message = Arc::<Mutex<Option<gst::Structure>>>::default();
    if let Some(reported) = chain.reported {
        let message = message.clone();
        pipeline.bus().expect("a pipeline has a bus").set_sync_handler(move |_, posted| {
            let is_reported = posted.src().is_some_and(|element| element.name() == reported);
            if let Some(structure) = posted.structure().filter(|of| is_reported && of.name() == "cudagaussblur") {
                *lock(&message) = Some(structure.to_owned());
            }
            gst::BusSyncReply::Pass
        });
    }
    let checked = Checked::new(chain.blurred_behind.as_ref());
    let seen = Arc::new(Mutex::new((Coverage::default(), checked, Report::default(), Snapshot::default())));
    let watched = seen.clone();
    let (job, sigma) = (options.job, options.sigma);
    pictures::watch(&first, &last, move |pad, pair| {
        let (coverage, checked, report, snapshot) = &mut *lock(&watched);
        let Some(pair) = pair else {
            coverage.check(None, &[]);
            return;
        };
        let marked = (chain.marked)(&pair);
        coverage.check(Some(&pair), &marked);
        if job == Job::Background
            && let Err(reason) = checked.check(&pair, sigma)
        {
            coverage.fail(format!("at {:.2} s {reason}", pair.time.seconds_f64()));
        }
        if chain.reported.is_some() && update(report, lock(&message).take(), &pair).is_none() {
            coverage.fail("the element did not say what it covered in a frame".into());
        }
        // The picture of --regions shows all covers, which the frame in the middle has.
        let detections = if job == Job::Faces { marked.len() } else { 0 };
        snapshot.offer(pad, pair, detections);
    });

    let took = play(&pipeline);
    let backend = first.property_value("active-backend").serialize()?.to_string();
    let stats = first.property::<gst::Structure>("stats");
    pipeline.set_state(gst::State::Null)?;
    let (coverage, checked, report, snapshot) = std::mem::take(&mut *lock(&seen));
    Ok(Played { took: took?, backend, stats, coverage, checked, doubts: report.finish(), snapshot })
}

/// Adds a frame to the report. `None` if the message is not about it.
fn update(report: &mut Report, message: Option<gst::Structure>, pair: &Pair) -> Option<()> {
    let message = message?;
    let timestamp = pair.covered.buffer()?.pts().map_or(u64::MAX, gst::ClockTime::nseconds);
    let info = gst_video::VideoInfo::from_caps(pair.covered.caps()?).ok()?;
    let size = [info.width() as usize, info.height() as usize];
    (message.get("timestamp") == Ok(timestamp)).then(|| report.update(&message, pair.time, size))?
}
