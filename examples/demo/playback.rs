// SPDX-License-Identifier: MPL-2.0
//! Feeds, plays and encodes the demo's clips.

use std::time::{Duration, Instant};

#[cfg(unix)]
use gst::glib;
use gst::prelude::*;

pub const NO_VIDEO: &str = "the camera gives no video, or no decoder for it is installed";

const NO_CAMERA: &str = "there is no camera at /dev/video0: connect one, or leave out --camera to see the generated clip, or name a \
                         video file instead";

/// Frames per second and frames of the generated clips.
pub const FPS: usize = 30;
pub const FRAMES: usize = 6 * FPS;

/// The timestamp of a frame of a generated clip.
pub fn time(frame: usize) -> gst::ClockTime {
    gst::ClockTime::SECOND.mul_div_floor(frame as u64, FPS as u64).expect("a clip of seconds")
}

/// Makes `source` push a generated clip: `frame` returns the buffer with the given index, for frames of `format` and
/// `size` (width, height).
pub fn feed(
    source: &gst_app::AppSrc,
    format: gst_video::VideoFormat,
    size: (usize, usize),
    mut frame: impl FnMut(usize) -> gst::Buffer + Send + 'static,
) {
    source.set_format(gst::Format::Time);
    source.set_duration(time(FRAMES));
    let info = gst_video::VideoInfo::builder(format, size.0 as u32, size.1 as u32);
    let caps = info.fps(FPS as i32).build().and_then(|info| info.to_caps());
    source.set_caps(Some(&caps.expect("the caps are fixed at build time")));
    let mut index = 0;
    let push = move |source: &gst_app::AppSrc, _wanted| {
        // Both calls fail only if the pipeline is flushing or has ended.
        if index == FRAMES {
            let _ = source.end_of_stream();
            return;
        }
        let mut buffer = frame(index);
        let stamps = buffer.get_mut().expect("nobody else has it yet");
        stamps.set_pts(time(index));
        stamps.set_duration(time(1));
        index += 1;
        let _ = source.push_buffer(buffer);
    };
    source.set_callbacks(gst_app::AppSrcCallbacks::builder().need_data(push).build());
}

/// Encodes and writes the clip.
pub struct Encoder {
    /// Elements with a muxer named `mux` and a filesink named `file`.
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
        let found = encoders.into_iter().find(|(encoder, _, mux, ..)| is_installed(encoder) && is_installed(mux));
        let (encoder, settings, mux, extension) = found
            .ok_or("GStreamer has no encoder for the result: install x264enc and mp4mux, or vp8enc and webmmux")?;
        // Every player supports 4:2:0.
        let elements = format!("video/x-raw,format=I420 ! {encoder} {settings} ! {mux} name=mux ! filesink name=file");
        Ok(Self { elements, extension })
    }
}

/// Makes Ctrl-C send EOS, which finalises the file. A second Ctrl-C terminates the program. On Windows, where GLib does not
/// handle signals, the first one does.
#[cfg(unix)]
fn end_on_interrupt(pipeline: &gst::Pipeline) {
    const SIGINT: i32 = 2;
    let weak = pipeline.downgrade();
    glib_unix::unix_signal_add(SIGINT, move || {
        weak.upgrade().map(|pipeline| pipeline.send_event(gst::event::Eos::new()));
        glib::ControlFlow::Break
    });
    // For the handlers of all pipelines.
    static MAIN_LOOP: std::sync::Once = std::sync::Once::new();
    MAIN_LOOP.call_once(|| drop(std::thread::spawn(|| glib::MainLoop::new(None, false).run())));
}

/// Plays until EOS, Ctrl-C or until the window is closed. Returns the elapsed time.
pub fn play(pipeline: &gst::Pipeline) -> Result<Duration, String> {
    #[cfg(unix)]
    end_on_interrupt(pipeline);
    let bus = pipeline.bus().expect("a pipeline has a bus");
    let started = Instant::now();
    let awaited = &[gst::MessageType::Eos, gst::MessageType::Error, gst::MessageType::Latency];
    let is_started = pipeline.set_state(gst::State::Playing).is_ok();
    let message = loop {
        // If the start fails, the error message is already on the bus.
        match if is_started { bus.timed_pop_filtered(None, awaited) } else { bus.pop_filtered(awaited) } {
            // A detector knows its latency after its first search.
            Some(message) if message.type_() == gst::MessageType::Latency => _ = pipeline.recalculate_latency(),
            message => break message,
        }
    };
    match message.as_deref().map(gst::MessageRef::view) {
        Some(gst::MessageView::Error(error)) if error.error().matches(gst::CoreError::MissingPlugin) => {
            Err(NO_VIDEO.into())
        }
        Some(gst::MessageView::Error(error)) if is_closed_window(error) => Ok(started.elapsed()),
        Some(gst::MessageView::Error(error)) if is_missing_camera(error) => Err(NO_CAMERA.into()),
        Some(gst::MessageView::Error(error)) => {
            let element = error.src().map_or_else(String::new, |element| format!(" ({})", element.name()));
            Err(format!("{}{element}", error.error().message().trim_end_matches('.')))
        }
        Some(_) => Ok(started.elapsed()),
        None => Err("the pipeline did not start and posted no error message".into()),
    }
}

/// Whether the camera's element says that its device does not exist.
fn is_missing_camera(error: &gst::message::Error) -> bool {
    error.error().matches(gst::ResourceError::NotFound)
        && error.src().is_some_and(|source| source.name().starts_with("v4l2src"))
}

/// Whether this is the error that a video sink posts when its window is closed.
fn is_closed_window(error: &gst::message::Error) -> bool {
    let sink = error.src().and_then(|source| source.downcast_ref::<gst::Element>());
    error.error().matches(gst::ResourceError::NotFound)
        && sink.is_some_and(|element| element.element_flags().contains(gst::ElementFlags::SINK))
}
