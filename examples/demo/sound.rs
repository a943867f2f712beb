// SPDX-License-Identifier: MPL-2.0
//! Keeps the sound of a file.

use std::sync::{Arc, Mutex};

use gst::glib;
use gst::prelude::*;

use super::pictures::lock;
use super::playback::NO_VIDEO;

/// What became of the sound of a file. Clones share it.
#[derive(Clone, Default)]
pub struct Sound(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_kept: bool,
    left_out: Option<String>,
}

impl Sound {
    /// Encodes each stream of sound that the uridecodebin `input` of the pipeline decodes, by the first of these encoders
    /// that is installed, into the muxer `mux`.
    pub fn keep(&self, pipeline: &gst::Pipeline, encoders: &'static [&'static str]) {
        let input = pipeline.by_name("input").expect("the description names it");
        let sound = self.clone();
        input.connect_pad_added(move |input, pad| {
            let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
            if is_sound(&caps) {
                let outcome = encode(input, pad, encoders);
                let state = &mut *lock(&sound.0);
                state.is_kept |= outcome.is_ok();
                state.left_out = outcome.err().or(state.left_out.take());
            }
        });
        // The muxer would wait for the video of a file without any.
        input.connect_no_more_pads(|input| {
            let video = input.parent().and_downcast::<gst::Bin>().and_then(|pipeline| pipeline.by_name("video"));
            if !video.and_then(|queue| queue.static_pad("sink")).is_some_and(|pad| pad.is_linked()) {
                gst::element_error!(input, gst::CoreError::MissingPlugin, ("{NO_VIDEO}"));
            }
        });
        let sound = self.clone();
        input.connect("unknown-type", false, move |values| {
            if let Some(Ok(caps)) = values.get(2).map(glib::Value::get::<gst::Caps>)
                && is_sound(&caps)
            {
                let format = caps.structure(0).map_or("it", |structure| structure.name().as_str());
                lock(&sound.0).left_out = Some(format!("no decoder for {format} is installed"));
            }
            None
        });
    }

    pub fn is_kept(&self) -> bool {
        lock(&self.0).is_kept
    }

    /// Leaves out all sound.
    pub fn fail(&self, reason: String) {
        *lock(&self.0) = State { is_kept: false, left_out: Some(reason) };
    }

    /// Why a stream of sound is not in the result, as a sentence.
    pub fn left_out(&self) -> Option<String> {
        lock(&self.0).left_out.as_ref().map(|reason| format!("sound is left out: {reason}"))
    }
}

fn is_sound(caps: &gst::Caps) -> bool {
    caps.structure(0).is_some_and(|structure| structure.name().starts_with("audio/"))
}

/// Adds an encoder for the pad to its pipeline. The error is the reason why there is none.
fn encode(input: &gst::Element, pad: &gst::Pad, encoders: &[&str]) -> Result<(), String> {
    let encoder = encoders.iter().find(|name| gst::ElementFactory::find(name).is_some());
    let encoder = encoder.ok_or_else(|| format!("install one of {}, to encode it", encoders.join(", ")))?;
    // The muxer takes sound as slowly as video, so decodebin holds the sound that was read before the video left its encoder.
    let elements = format!("audioconvert ! audioresample ! {encoder}");
    let link = || -> Result<(), Box<dyn std::error::Error>> {
        let branch = gst::parse::bin_from_description(&elements, true)?;
        let pipeline = input.parent().and_downcast::<gst::Bin>().ok_or("the pipeline is gone")?;
        pipeline.add(&branch)?;
        branch.sync_state_with_parent()?;
        let [first, last] = ["sink", "src"].map(|name| branch.static_pad(name).expect("a bin with ghost pads"));
        pad.link(&first)?;
        // Last, because the muxer waits for what is linked.
        let mux = pipeline.by_name("mux").expect("the description names it");
        last.link(&mux.request_pad_simple("audio_%u").ok_or("the muxer takes no more sound")?)?;
        Ok(())
    };
    link().map_err(|error| format!("it cannot be encoded: {error}"))
}
