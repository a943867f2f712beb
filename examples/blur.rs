// SPDX-License-Identifier: MPL-2.0
//! The smallest application: plays a file or a test pattern in a window and blurs it.
//!
//!     cargo run --release --example blur [-- FILE]

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use gst::prelude::*;

fn main() -> ExitCode {
    match play(env::args_os().nth(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn play(file: Option<OsString>) -> Result<(), Box<dyn Error>> {
    gst::init()?;
    // This program links the crate. A program that uses the installed plugin does not need this call.
    gstcudagaussblur::plugin_register_static()?;

    let display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some());
    let sink = if display { "autovideosink" } else { "fakesink" };
    let source = match file {
        Some(_) => "filesrc name=file ! decodebin",
        None => "videotestsrc num-buffers=300 pattern=ball ! video/x-raw,width=1280,height=720",
    };
    let pipeline = gst::parse::launch(&format!(
        "{source} ! videoconvert ! cudagaussblur sigma=5 ! videoconvert ! videoscale ! {sink}"
    ))?;
    if let (Some(path), Some(bin)) = (&file, pipeline.downcast_ref::<gst::Bin>()) {
        bin.by_name("file").expect("the description names it").set_property("location", PathBuf::from(path));
    }
    let name = file.map_or("test pattern".into(), |path| path.to_string_lossy().into_owned());

    let bus = pipeline.bus().expect("a pipeline has a bus");
    // If an element fails to start, the reason is an error message on the bus.
    let _ = pipeline.set_state(gst::State::Playing);
    let outcome = bus.iter_timed(gst::ClockTime::NONE).find_map(|message| match message.view() {
        gst::MessageView::Eos(_) => Some(Ok(())),
        gst::MessageView::Error(error) => {
            Some(Err(format!("{name}: {}\n{}", error.error(), error.debug().unwrap_or_default()).into()))
        }
        _ => None,
    });
    pipeline.set_state(gst::State::Null)?;
    outcome.unwrap_or(Ok(()))
}
