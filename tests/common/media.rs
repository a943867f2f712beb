//! What a media file contains, decoded.

use std::path::Path;

use gst::prelude::*;

/// The decoded buffers of the first stream that can be linked to these elements. Empty if no stream can.
fn decode(file: &Path, elements: &str) -> Vec<Vec<u8>> {
    super::video::init();
    let line = format!("filesrc name=file ! decodebin ! {elements} ! appsink name=sink sync=false wait-on-eos=false");
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Bin>().unwrap();
    pipeline.by_name("file").unwrap().set_property("location", file);
    let sink = pipeline.by_name("sink").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    // A stream that cannot be linked is a warning.
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error, gst::MessageType::Warning];
    let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds).unwrap();
    assert_ne!(end.type_(), gst::MessageType::Error, "{}: {end:?}", file.display());
    let mut buffers = Vec::new();
    while let Some(sample) = sink.try_pull_sample(gst::ClockTime::ZERO) {
        buffers.push(sample.buffer().unwrap().map_readable().unwrap().to_vec());
    }
    pipeline.set_state(gst::State::Null).unwrap();
    buffers
}

/// The frames of a video in grey, without padding, behind the elements of `crop`, which end in `!` if there are any. The
/// width must be a multiple of four.
pub fn frames(file: &Path, crop: &str) -> Vec<Vec<u8>> {
    decode(file, &format!("videoconvert ! {crop} video/x-raw,format=GRAY8"))
}

/// The largest difference between neighbouring pixels in the middle row of each frame: a blur makes it small.
pub fn contrasts(file: &Path, width: usize) -> Vec<u8> {
    let middle = |frame: &Vec<u8>| {
        let start = frame.len() / width / 2 * width;
        frame[start..start + width].windows(2).map(|pair| pair[0].abs_diff(pair[1])).max().unwrap()
    };
    frames(file, "").iter().map(middle).collect()
}

/// Seconds of sound, and its mean amplitude from 0 to 1.
pub fn sound(file: &Path) -> (f64, f64) {
    let buffers = decode(file, "audioconvert ! audioresample ! audio/x-raw,format=S16LE,rate=8000,channels=1");
    let samples: Vec<i16> = buffers.concat().chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]])).collect();
    let sum: f64 = samples.iter().map(|sample| f64::from(sample.unsigned_abs())).sum();
    (samples.len() as f64 / 8000.0, sum / 32768.0 / samples.len().max(1) as f64)
}
