//! What a media file contains, decoded.

use std::path::Path;

use gst::prelude::*;

/// The decoded buffers of the first stream that can be linked to these elements, and their times from the start of the
/// file. Empty if no stream can.
fn decode(file: &Path, elements: &str) -> Vec<(gst::ClockTime, Vec<u8>)> {
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
        let buffer = sample.buffer().unwrap();
        let segment = sample.segment().unwrap().downcast_ref::<gst::ClockTime>().unwrap();
        let time = buffer.pts().and_then(|time| segment.to_stream_time(time)).unwrap_or_default();
        buffers.push((time, buffer.map_readable().unwrap().to_vec()));
    }
    pipeline.set_state(gst::State::Null).unwrap();
    buffers
}

/// The frames of a video in grey, without padding, behind the elements of `crop`, which end in `!` if there are any. The
/// width must be a multiple of four.
pub fn frames(file: &Path, crop: &str) -> Vec<Vec<u8>> {
    decode_frames(file, crop).into_iter().map(|(_, pixels)| pixels).collect()
}

/// The times of the frames of a video, in seconds.
pub fn times(file: &Path) -> Vec<f64> {
    decode_frames(file, "").into_iter().map(|(time, _)| time.seconds_f64()).collect()
}

fn decode_frames(file: &Path, crop: &str) -> Vec<(gst::ClockTime, Vec<u8>)> {
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
    let samples = decode_sound(file);
    let sum: f64 = samples.iter().map(|(_, sample)| sample).sum();
    (samples.len() as f64 / SOUND_RATE, sum / samples.len().max(1) as f64)
}

/// The time from which on the sound is loud, and that of the first frame that is not white; in seconds.
pub fn starts(file: &Path) -> [Option<f64>; 2] {
    let loud = decode_sound(file).into_iter().find(|(_, sample)| *sample > 0.1).map(|(time, _)| time);
    let is_white = |pixels: &[u8]| pixels.iter().all(|grey| *grey > 200);
    let shown = decode_frames(file, "").into_iter().find(|(_, pixels)| !is_white(pixels));
    [loud, shown.map(|(time, _)| time.seconds_f64())]
}

const SOUND_RATE: f64 = 8000.0;

/// The time of each sample in seconds, and its amplitude from 0 to 1.
fn decode_sound(file: &Path) -> Vec<(f64, f64)> {
    let samples = format!("audioconvert ! audioresample ! audio/x-raw,format=S16LE,rate={SOUND_RATE},channels=1");
    let buffers = decode(file, &samples).into_iter();
    buffers
        .flat_map(|(start, bytes)| {
            let samples: Vec<_> = bytes.as_chunks::<2>().0.iter().map(|b| i16::from_le_bytes(*b)).collect();
            let time = move |index| start.seconds_f64() + index as f64 / SOUND_RATE;
            samples
                .into_iter()
                .enumerate()
                .map(move |(i, sample)| (time(i), f64::from(sample.unsigned_abs()) / 32768.0))
        })
        .collect()
}

/// The decoded streams: the number of those with video and of those with sound.
pub fn streams(file: &Path) -> [usize; 2] {
    super::video::init();
    let pipeline = gst::parse::launch("filesrc name=file ! decodebin name=streams").unwrap();
    let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
    pipeline.by_name("file").unwrap().set_property("location", file);
    let streams = pipeline.by_name("streams").unwrap();
    let (sender, ended) = std::sync::mpsc::channel();
    streams.connect_no_more_pads(move |streams| {
        let names = streams.src_pads().into_iter().map(|pad| pad.query_caps(None).to_string());
        let names: Vec<_> = names.collect();
        let count = |kind| names.iter().filter(|name| name.starts_with(kind)).count();
        sender.send(["video/", "audio/"].map(count)).unwrap();
    });
    pipeline.set_state(gst::State::Playing).unwrap();
    let counts = ended.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
    counts
}

/// The size, pixel aspect ratio and H.264 profile of the video in an MP4 file, such as `640x360 1/1 high`.
pub fn h264(file: &Path) -> String {
    super::video::init();
    let line = "filesrc name=file ! qtdemux ! h264parse name=parse ! appsink name=sink sync=false";
    let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.by_name("file").unwrap().set_property("location", file);
    let sink = pipeline.by_name("sink").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let sample = sink.try_pull_sample(gst::ClockTime::from_seconds(60)).unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
    let video = sample.caps().unwrap().structure(0).unwrap();
    let aspect = video
        .get::<gst::Fraction>("pixel-aspect-ratio")
        .map_or("1/1".into(), |ratio| format!("{}/{}", ratio.numer(), ratio.denom()));
    let [width, height] = ["width", "height"].map(|side| video.get::<i32>(side).unwrap());
    format!("{width}x{height} {aspect} {}", video.get::<&str>("profile").unwrap())
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
