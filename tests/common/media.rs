//! What a media file contains, decoded.

use std::path::Path;

use gst::prelude::*;

use super::pipes::pipeline;

/// A pipeline that reads a file by these elements, and its appsink.
fn reader(file: &Path, elements: &str) -> (gst::Bin, gst_app::AppSink) {
    let file = file.display();
    let line = format!("filesrc location=\"{file}\" ! {elements} ! appsink name=sink sync=false wait-on-eos=false");
    let pipeline = pipeline(&line);
    let sink = pipeline.by_name("sink").unwrap().downcast().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    (pipeline, sink)
}

/// The decoded buffers of the first stream that can be linked to these elements, and their times from the start of the
/// file in seconds. Empty if no stream can.
fn decode(file: &Path, elements: &str) -> Vec<(f64, Vec<u8>)> {
    let (pipeline, sink) = reader(file, &format!("decodebin ! {elements}"));
    // A stream that cannot be linked is a warning.
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error, gst::MessageType::Warning];
    let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds).unwrap();
    assert_ne!(end.type_(), gst::MessageType::Error, "{}: {end:?}", file.display());
    let buffers = std::iter::from_fn(|| sink.try_pull_sample(gst::ClockTime::ZERO)).map(|sample| {
        let buffer = sample.buffer().unwrap();
        let segment = sample.segment().unwrap().downcast_ref::<gst::ClockTime>().unwrap();
        let time = buffer.pts().and_then(|time| segment.to_stream_time(time)).unwrap_or_default();
        (time.seconds_f64(), buffer.map_readable().unwrap().to_vec())
    });
    let buffers = buffers.collect();
    pipeline.set_state(gst::State::Null).unwrap();
    buffers
}

/// The times of the frames of a video in seconds, and the frames in grey, without padding, behind the elements of `crop`, which end
/// in `!` if there are any. The width must be a multiple of four.
pub fn timed_frames(file: &Path, crop: &str) -> Vec<(f64, Vec<u8>)> {
    decode(file, &format!("videoconvert ! {crop} video/x-raw,format=GRAY8"))
}

/// The frames of [`timed_frames`].
pub fn frames(file: &Path, crop: &str) -> Vec<Vec<u8>> {
    timed_frames(file, crop).into_iter().map(|(_, pixels)| pixels).collect()
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
    let bytes: Vec<u8> = buffers.into_iter().flat_map(|(_, bytes)| bytes).collect();
    let amplitudes = bytes.as_chunks().0.iter().map(|sample| f64::from(i16::from_le_bytes(*sample).unsigned_abs()));
    let count = bytes.len() as f64 / 2.0;
    (count / 8000.0, amplitudes.sum::<f64>() / 32768.0 / count.max(1.0))
}

/// When the sound of a file becomes loud, in seconds from the start of the file.
pub fn sound_begins(file: &Path) -> Option<f64> {
    let elements = "audioconvert ! audioresample ! audio/x-raw,format=S16LE,rate=48000,channels=1";
    decode(file, elements).into_iter().find_map(|(time, bytes)| {
        let mut samples = bytes.as_chunks().0.iter().map(|sample| i16::from_le_bytes(*sample));
        samples.position(|sample| sample.unsigned_abs() > 8000).map(|place| time + place as f64 / 48000.)
    })
}

/// The number of streams of video and of sound in an MP4 file, each of which has a box with its handler's type.
pub fn streams(file: &Path) -> [usize; 2] {
    let bytes = std::fs::read(file).unwrap();
    [b"hdlr\0\0\0\0\0\0\0\0vide", b"hdlr\0\0\0\0\0\0\0\0soun"]
        .map(|start| bytes.windows(start.len()).filter(|window| window == start).count())
}

/// The size, pixel aspect ratio and H.264 profile of the video in an MP4 file, such as `640x360 1/1 high`.
pub fn h264(file: &Path) -> String {
    let (pipeline, sink) = reader(file, "qtdemux ! h264parse");
    let sample = sink.try_pull_sample(gst::ClockTime::from_seconds(60)).unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
    let video = sample.caps().unwrap().structure(0).unwrap();
    let aspect = video.get("pixel-aspect-ratio").unwrap_or(gst::Fraction::new(1, 1));
    let [width, height] = ["width", "height"].map(|side| video.get::<i32>(side).unwrap());
    format!("{width}x{height} {}/{} {}", aspect.numer(), aspect.denom(), video.get::<&str>("profile").unwrap())
}

/// Turns an MP4 file's video by 90 degrees for its viewers, by the matrix in its header, as phones do.
pub fn turn(path: &Path) {
    let mut file = std::fs::read(path).unwrap();
    // Behind the name of the box come its version, times, track and duration, and what follows them.
    let matrix = file.windows(4).position(|bytes| bytes == b"tkhd").unwrap() + 44;
    let numbers: [u32; 9] = [0, 0x1_0000, 0, 0xffff_0000, 0, 0, 0, 0, 0x4000_0000];
    for (bytes, number) in file[matrix..].chunks_mut(4).zip(numbers) {
        bytes.copy_from_slice(&number.to_be_bytes());
    }
    std::fs::write(path, file).unwrap();
}
