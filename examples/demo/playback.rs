// SPDX-License-Identifier: MPL-2.0
//! Plays and encodes the demo's clips.

use std::error::Error;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_video::prelude::*;

use super::clip::{self, Frame};

/// The pipeline of a description.
pub fn launch(line: &str) -> Result<gst::Pipeline, Box<dyn Error>> {
    let pipeline = gst::parse::launch(line).map_err(|error| match error.kind() {
        Some(gst::ParseError::NoSuchElement) => {
            format!("{}: start this program with scripts/demo, which installs what is missing", error.message())
        }
        _ => error.to_string(),
    })?;
    Ok(pipeline.downcast().expect("elements in a row make a pipeline"))
}

/// Encodes and writes the clip.
pub struct Encoder {
    /// Elements of which the last is a filesink named `file`.
    pub elements: String,
    /// The extension of the clip's name.
    pub extension: &'static str,
}

impl Encoder {
    /// The first of those that are installed.
    pub fn find() -> Result<Self, String> {
        let encoders = [
            // A quality instead of a rate: that of pass=qual is limited to x264enc's default rate of 2 Mbit/s.
            ("x264enc", "pass=quant quantizer=21 speed-preset=veryfast", "mp4mux", "mp4"),
            ("vp8enc", "deadline=1 cpu-used=8 max-quantizer=20 target-bitrate=4000000", "webmmux", "webm"),
        ];
        let is_installed = |name| gst::ElementFactory::find(name).is_some();
        let found = encoders.into_iter().find(|(encoder, _, mux, _)| is_installed(encoder) && is_installed(mux));
        let (encoder, settings, mux, extension) = found
            .ok_or("GStreamer has no encoder for the result: install x264enc and mp4mux, or vp8enc and webmmux")?;
        // Every player supports 4:2:0.
        Ok(Self {
            elements: format!("video/x-raw,format=I420 ! {encoder} {settings} ! {mux} ! filesink name=file"),
            extension,
        })
    }
}

/// Calls `each` with every frame that leaves an element, and its index.
pub fn watch(element: &gst::Element, each: impl FnMut(usize, Frame) + Send + 'static) {
    let each = Mutex::new(each);
    let probe = move |pad: &gst::Pad, info: &mut gst::PadProbeInfo| {
        if let (Some(buffer), Some(caps)) = (info.buffer(), pad.current_caps())
            && let (Some(time), Ok(info)) = (buffer.pts(), gst_video::VideoInfo::from_caps(&caps))
            && let Ok(frame) = gst_video::VideoFrameRef::from_buffer_ref_readable(buffer, &info)
            && let (Ok(plane), Ok(mut each)) = (frame.plane_data(0), each.lock())
        {
            let (width, height) = (info.width() as usize, info.height() as usize);
            let rows = plane.chunks(frame.plane_stride()[0] as usize).take(height).flat_map(|row| &row[..3 * width]);
            each(clip::index(time), Frame { pixels: rows.copied().collect(), width, height });
        }
        gst::PadProbeReturn::Ok
    };
    element.static_pad("src").expect("a filter has the pad").add_probe(gst::PadProbeType::BUFFER, probe);
}

/// Plays until EOS. Returns the elapsed time.
pub fn play(pipeline: &gst::Pipeline) -> Result<Duration, String> {
    let bus = pipeline.bus().expect("a pipeline has a bus");
    let started = Instant::now();
    let awaited = &[gst::MessageType::Eos, gst::MessageType::Error];
    let is_started = pipeline.set_state(gst::State::Playing).is_ok();
    // If the start fails, the error message is already on the bus.
    let message = if is_started { bus.timed_pop_filtered(None, awaited) } else { bus.pop_filtered(awaited) };
    match message.as_deref().map(gst::MessageRef::view) {
        Some(gst::MessageView::Error(error)) => {
            let element = error.src().map_or_else(String::new, |element| format!(" ({})", element.name()));
            Err(format!("{}{element}", error.error().message().trim_end_matches('.')))
        }
        Some(_) => Ok(started.elapsed()),
        None => Err("the pipeline did not start and posted no error message".into()),
    }
}
