// SPDX-License-Identifier: MPL-2.0
//! `--faces`: covers the faces that GStreamer's `facedetect` finds.

use std::error::Error;
use std::fs::File;

use gst::prelude::*;
use gst_video::VideoFormat;

use super::coverage::{Coverage, Marked};
use super::options::{Input, Options};
use super::pictures::Pair;
use super::pipeline::{Chain, Feed};
use super::playback::{FRAMES, feed};
use super::tracks::{Detection, Tracks};

/// A portrait; face.txt names its source and licence.
const PORTRAIT: &[u8] = include_bytes!("face.jpg");
/// The portrait is enlarged to this size, of which the clip shows a part that moves.
const PICTURE: (usize, usize) = (960, 800);
const VIEW: (usize, usize) = (640, 480);
/// How far the view moves to the right and down: so far that the face stays inside of it.
const PAN: (usize, usize) = (320, 110);

const CASCADE: &str = "haarcascade_frontalface_default.xml";
/// Folders that distributions install OpenCV's cascades to.
const CASCADE_FOLDERS: [&str; 3] =
    ["/usr/share/opencv4/haarcascades", "/usr/share/opencv/haarcascades", "/usr/local/share/opencv4/haarcascades"];
const REMEDY: &str = "on Debian and Ubuntu install gstreamer1.0-opencv and opencv-data";

/// How long a face stays covered after facedetect last found it.
const HOLD: gst::ClockTime = gst::ClockTime::from_seconds(1);

/// facedetect, and the element that covers what it finds.
///
/// # Errors
/// If the plugin or its cascade is missing or does not find the face in the portrait. Without a cascade facedetect logs
/// an error and passes frames on as if they had no face.
pub fn chain(options: &Options) -> Result<Chain, Box<dyn Error>> {
    let detector = detector()?;
    let portrait = find_portrait(&detector)?;
    // facedetect attaches nothing when it finds nothing. on-missing=auto would take such a frame for one that no detector
    // looked at, and cover all of it: every frame in which no face is found, after the first face. So frames without a
    // face are passed on, and hold-time covers those in which facedetect misses a face that was there before.
    let elements = format!(
        "videoconvert ! videoscale ! video/x-raw,format=RGB,width=[1,1280],height=[1,720] ! {detector} ! \
         cudagaussblur name=cover region-mode=inside region-sources=roi labels=face cover={} on-missing=pass \
         hold-time={}",
        options.cover.nick(),
        HOLD.nseconds()
    );
    let cover = options.cover;
    let marked = move |pair: &Pair, tracks: &Tracks| {
        let place = |label: &str, rect, is_held| Marked { label: label.into(), rect, cover, is_held };
        let found = tracks.found().map(|detection| place("a detection", detection.rect, false));
        // Within the hold time even if a timestamp is rounded.
        let is_held = |detected| pair.time.saturating_sub(detected) + gst::ClockTime::MSECOND < HOLD;
        let missing = tracks.missing().filter(|(_, detected)| is_held(*detected));
        found.chain(missing.map(|(last, _)| place("the last place of a detection", last.rect, true))).collect()
    };
    let is_generated = options.input == Input::Generated;
    Ok(Chain {
        first: "cover",
        last: "cover",
        source: is_generated.then(|| "appsrc name=source".into()),
        elements,
        feed: is_generated.then(|| -> Feed {
            Box::new(|source| feed(source, VideoFormat::Rgb, VIEW, move |frame| view(&portrait, frame)))
        }),
        marked: Box::new(marked),
    })
}

/// The report, after all frames passed the check. It counts detections, because nobody counted the faces.
///
/// # Errors
/// If no face was found, because then nothing was covered.
pub fn report(coverage: &Coverage, tracks: &Tracks) -> Result<String, String> {
    let (frames, detections) = (coverage.frames, tracks.detections);
    if detections == 0 {
        return Err(format!("facedetect found no face in {frames} frames, so nothing was covered"));
    }
    let empty = match tracks.empty_frames {
        0 => String::new(),
        empty => format!(", of which {empty} have none"),
    };
    let (visible, first) = if tracks.have_vanished() {
        let seconds = HOLD.seconds_f64();
        let held = format!("a vanished box stayed covered at its last place for {seconds:.1} s, or until it was back");
        (format!("{held}\nwhat was there after that, or was never detected, is visible"), ", first at these times")
    } else {
        ("what was never detected is visible".into(), "")
    };
    Ok(format!(
        "{detections} detections in {frames} frames{empty}; each was covered in its frame\n\
         {}\n\
         {visible}: look at the clip before you publish it{first}\n\
         {}",
        tracks.summary(),
        coverage.unchanged()
    ))
}

/// The description of the detector. min-size and scale-factor are a compromise between speed and small faces.
fn detector() -> Result<String, String> {
    let factory = gst::ElementFactory::find("facedetect");
    let factory = factory.ok_or(format!("--faces needs GStreamer's element facedetect: {REMEDY}"))?;
    // The element's own default is where its OpenCV was configured to install the cascades.
    let own = factory.create().build().ok().and_then(|element| element.property::<Option<String>>("profile"));
    let folders = CASCADE_FOLDERS.iter().map(|folder| format!("{folder}/{CASCADE}"));
    let cascade = own.into_iter().chain(folders).find(|path| File::open(path).is_ok());
    let cascade = cascade.ok_or(format!("--faces needs OpenCV's cascade {CASCADE}: {REMEDY}"))?;
    Ok(format!(
        "facedetect profile=\"{cascade}\" display=false updates=none scale-factor=1.2 min-neighbors=5 \
         min-size-width=40 min-size-height=40"
    ))
}

/// The portrait as rows of RGB, in which the detector has found the face.
fn find_portrait(detector: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let (width, height) = PICTURE;
    let pipeline = gst::parse::launch(&format!(
        "appsrc name=jpeg caps=image/jpeg ! jpegdec ! videoconvert ! videoscale ! \
         video/x-raw,format=RGB,width={width},height={height} ! {detector} ! appsink name=rgb sync=false"
    ))?;
    let pipeline = pipeline.downcast::<gst::Pipeline>().expect("elements in a row make a pipeline");
    let element = |name| pipeline.by_name(name).expect("the description names it");
    let source: gst_app::AppSrc = element("jpeg").downcast().expect("an appsrc");
    let sink: gst_app::AppSink = element("rgb").downcast().expect("an appsink");
    pipeline.set_state(gst::State::Playing)?;
    source.push_buffer(gst::Buffer::from_slice(PORTRAIT))?;
    source.end_of_stream()?;
    let sample = sink.try_pull_sample(30 * gst::ClockTime::SECOND);
    pipeline.set_state(gst::State::Null)?;
    let sample = sample.ok_or("facedetect gives no picture back")?;
    let buffer = sample.buffer().ok_or("facedetect gives no picture back")?;
    if Detection::attached(buffer).is_empty() {
        return Err(format!("facedetect does not find the face in the demo's own portrait: {REMEDY}").into());
    }
    // Rows of 960 pixels have no padding.
    Ok(buffer.map_readable()?.to_vec())
}

/// A frame of the clip: a part of the portrait, which moves to the right and down and back.
fn view(portrait: &[u8], frame: usize) -> gst::Buffer {
    let turn = frame as f64 / FRAMES as f64 * std::f64::consts::TAU;
    let share = 0.5 - 0.5 * turn.cos();
    let [x, y] = [PAN.0, PAN.1].map(|pan| (pan as f64 * share) as usize);
    let rows = (y..y + VIEW.1).flat_map(|row| &portrait[(row * PICTURE.0 + x) * 3..][..VIEW.0 * 3]);
    gst::Buffer::from_mut_slice(rows.copied().collect::<Vec<u8>>())
}
