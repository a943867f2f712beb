//! Registers the plugin that is linked into this program, blurs a test pattern on the CPU, and prints the time for each frame.
//!
//!     cargo run [-- FRAMES]

use std::error::Error;
use std::time::Instant;

use gst::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let frames: u32 = std::env::args().nth(1).map_or(Ok(30), |count| count.parse())?;
    gst::init()?;
    // This must come before the first element is made. GStreamer then finds the plugin's elements by name, as if it were
    // installed.
    gstcudagaussblur::plugin_register_static()?;

    let pipeline = gst::parse::launch(&format!(
        "videotestsrc num-buffers={frames} ! video/x-raw,format=RGBA,width=1920,height=1080 ! \
         cudagaussblur backend=cpu sigma=5 ! fakesink"
    ))?;
    let bus = pipeline.bus().expect("a pipeline has a bus");
    let started = Instant::now();
    // If an element fails to start, the reason is an error message on the bus.
    let _ = pipeline.set_state(gst::State::Playing);
    let ends = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = bus.timed_pop_filtered(None, &ends).expect("it waits without a limit");
    let time = started.elapsed().as_secs_f64() * 1e3 / f64::from(frames);
    pipeline.set_state(gst::State::Null)?;
    if let gst::MessageView::Error(error) = end.view() {
        return Err(error.error().into());
    }
    println!("blurred {frames} frames of 1920x1080 RGBA on the CPU, {time:.1} ms each");
    Ok(())
}
