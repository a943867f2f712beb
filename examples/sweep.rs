// SPDX-License-Identifier: MPL-2.0
//! Sweeps sigma with a GstController during playback: from 0 to 20 and back in ten seconds.
//!
//!     cargo run --release --example sweep

use std::env;
use std::error::Error;

use gst::prelude::*;
use gst_controller::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    gst::init()?;
    gstcudagaussblur::plugin_register_static()?;

    let display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some());
    let sink = if display { "autovideosink" } else { "fakesink" };
    let pipeline = gst::parse::launch(&format!(
        "videotestsrc is-live=true num-buffers=300 ! video/x-raw,width=1280,height=720,framerate=30/1 ! videoconvert ! \
         cudagaussblur name=blur ! videoconvert ! videoscale ! {sink}"
    ))?
    .downcast::<gst::Pipeline>()
    .expect("several elements make a pipeline");
    let blur = pipeline.by_name("blur").expect("the description names it");

    // With an absolute binding, the values of the control source are values of sigma, not fractions of the property's range.
    let curve = gst_controller::InterpolationControlSource::new();
    curve.set_mode(gst_controller::InterpolationMode::Linear);
    blur.add_control_binding(&gst_controller::DirectControlBinding::new_absolute(&blur, "sigma", &curve))?;
    for (second, sigma) in [(0, 0.0), (5, 20.0), (10, 0.0)] {
        curve.set(gst::ClockTime::from_seconds(second), sigma);
    }

    let bus = pipeline.bus().expect("a pipeline has a bus");
    pipeline.set_state(gst::State::Playing)?;
    loop {
        // Print a line every half second until EOS or an error.
        let tick = gst::ClockTime::from_mseconds(500);
        match bus.timed_pop_filtered(tick, &[gst::MessageType::Eos, gst::MessageType::Error]) {
            None => {
                let at = pipeline.query_position::<gst::ClockTime>().unwrap_or_default();
                println!("{at:.1}: sigma {:.1}", blur.property::<f64>("sigma"));
            }
            Some(message) => {
                pipeline.set_state(gst::State::Null)?;
                return match message.view() {
                    gst::MessageView::Error(error) => Err(error.error().into()),
                    _ => Ok(()),
                };
            }
        }
    }
}
