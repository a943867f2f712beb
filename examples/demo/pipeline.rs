// SPDX-License-Identifier: MPL-2.0
//! Builds the pipeline from the source through the covers to the result, and plays it.

use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gst::prelude::*;

use super::coverage::Coverage;
use super::options::{Job, Options};
use super::pictures::{self, Pair, Snapshot, lock};
use super::playback::{Encoder, FRAMES, play};

/// Makes an appsrc push frames.
pub type Feed = Box<dyn FnOnce(&gst_app::AppSrc)>;
/// Checks a frame, and how many places it has that are covered.
pub type Check = Box<dyn FnMut(&Pair, &mut Coverage) -> usize + Send>;

/// What a job adds to the pipeline.
pub struct Chain {
    /// The elements from the source to the last cover.
    pub elements: String,
    /// Names of the first cover among them, and of the element that covered frames leave, which may be the same.
    pub first: &'static str,
    pub last: &'static str,
    /// For an appsrc instead of the camera.
    pub feed: Option<Feed>,
    pub check: Check,
}

/// What a pipeline that played to its end says.
pub struct Played {
    pub took: Duration,
    pub backend: String,
    pub stats: gst::Structure,
    /// Frames that the detector of faces looked at.
    pub searched: u64,
    pub coverage: Coverage,
    pub snapshot: Snapshot,
}

/// Plays the source through the covers: into a file, by this encoder, or into a window.
pub fn play_chain(
    mut chain: Chain,
    options: &Options,
    clip: Option<(&Encoder, &Path)>,
) -> Result<Played, Box<dyn Error>> {
    let source = match chain.feed {
        Some(_) => "appsrc name=source".into(),
        None => {
            let frames = if clip.is_none() { -1 } else { FRAMES as i32 };
            let size = "width=[1,1280],height=[1,720]";
            format!("v4l2src num-buffers={frames} ! video/x-raw,{size};image/jpeg,{size} ! decodebin")
        }
    };
    let sink = clip.map_or("videoscale ! autovideosink", |(encoder, _)| &encoder.elements);
    let pipeline = format!("{source} ! queue ! videoconvert ! {} ! queue ! videoconvert ! {sink}", chain.elements);
    let pipeline = gst::parse::launch(&pipeline).map_err(|error| match error.kind() {
        Some(gst::ParseError::NoSuchElement) => {
            format!("{}: start this program with scripts/demo, which installs what is missing", error.message())
        }
        _ => error.to_string(),
    })?;
    let pipeline = pipeline.downcast::<gst::Pipeline>().expect("elements in a row make a pipeline");
    if let (Some(source), Some(feed)) = (pipeline.by_name("source"), chain.feed.take()) {
        feed(&source.downcast().expect("an appsrc"));
    }
    if let (Some(sink), Some((_, path))) = (pipeline.by_name("file"), clip) {
        sink.set_property("location", path);
    }
    let covers = pipeline.iterate_all_by_element_factory_name("cudagaussblur");
    for cover in covers.into_iter().flatten() {
        cover.set_property("sigma", options.sigma);
        cover.set_property("kernel-size", options.kernel_size);
        cover.set_property_from_str("backend", &options.backend);
    }
    let [first, last] = [chain.first, chain.last].map(|name| pipeline.by_name(name).expect("the description names it"));
    let seen = Arc::<Mutex<(Coverage, Snapshot)>>::default();
    let (watched, job) = (seen.clone(), options.job);
    pictures::watch(&first, &last, move |pad, pair| {
        let (coverage, snapshot) = &mut *lock(&watched);
        coverage.frames += 1;
        let Some(pair) = pair else {
            coverage.fail("a frame left the element that did not enter it".into());
            return;
        };
        let places = (chain.check)(&pair, coverage);
        // The picture of --regions shows all covers, which the frame in the middle has.
        snapshot.offer(pad, pair, if job == Job::Faces { places } else { 0 });
    });

    let took = play(&pipeline);
    let backend = first.property_value("active-backend").serialize()?.to_string();
    let stats = first.property::<gst::Structure>("stats");
    let searched = pipeline.by_name("detector").map(|detector| detector.property::<gst::Structure>("stats"));
    let searched = searched.map_or(Ok(0), |stats| stats.get("searched"))?;
    pipeline.set_state(gst::State::Null)?;
    let (coverage, snapshot) = std::mem::take(&mut *lock(&seen));
    Ok(Played { took: took?, backend, stats, searched, coverage, snapshot })
}
