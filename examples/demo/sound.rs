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
                match encode(input, pad, encoders) {
                    Ok(()) => lock(&sound.0).is_kept = true,
                    Err(reason) => sound.leave_out(reason),
                }
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
                sound.leave_out(format!("no decoder for {format} is installed"));
            }
            None
        });
    }

    pub fn is_kept(&self) -> bool {
        lock(&self.0).is_kept
    }

    /// Says why a stream of sound is not in the result.
    pub fn leave_out(&self, reason: String) {
        *lock(&self.0) = State { is_kept: false, left_out: Some(reason) };
    }

    /// Why a stream of sound is not in the result, as a sentence.
    pub fn left_out(&self) -> Option<String> {
        lock(&self.0).left_out.as_ref().map(|reason| format!("the result has no sound: {reason}"))
    }
}

fn is_sound(caps: &gst::Caps) -> bool {
    caps.structure(0).is_some_and(|structure| structure.name().starts_with("audio/"))
}

/// Adds an encoder for the pad to its pipeline. The error is the reason why there is none.
fn encode(input: &gst::Element, pad: &gst::Pad, encoders: &[&str]) -> Result<(), String> {
    let encoder = encoders.iter().find(|name| gst::ElementFactory::find(name).is_some());
    let encoder = encoder.ok_or_else(|| format!("install one of {}, to encode it", encoders.join(", ")))?;
    // Video leaves its encoder seconds after it was read. Meanwhile the sound is here.
    let elements =
        format!("audioconvert ! audioresample ! {encoder} ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=0");
    let link = || -> Result<(), Box<dyn std::error::Error>> {
        let branch = gst::parse::bin_from_description(&elements, true)?;
        let pipeline = input.parent().and_downcast::<gst::Bin>().ok_or("the pipeline is gone")?;
        pipeline.add(&branch)?;
        branch.sync_state_with_parent()?;
        let [first, last] = ["sink", "src"].map(|name| branch.static_pad(name).expect("a bin with ghost pads"));
        let mux = pipeline.by_name("mux").expect("the description names it");
        last.link(&mux.request_pad_simple("audio_%u").ok_or("the muxer takes no more sound")?)?;
        pad.link(&first)?;
        Ok(())
    };
    link().map_err(|error| format!("it cannot be encoded: {error}"))
}
