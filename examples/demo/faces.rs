// SPDX-License-Identifier: MPL-2.0
//! `--faces`: covers the faces that GStreamer's `facedetect` finds.

use std::error::Error;
use std::fs::File;

use gst::prelude::*;
use gst_video::VideoFormat;

use super::coverage::{Coverage, Marked, Rect};
use super::options::{Input, Options};
use super::pictures::Pair;
use super::pipeline::{Chain, Feed};
use super::playback::{FRAMES, feed};
use super::report::Doubts;

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

/// How long a face stays covered after facedetect last found it, at most.
const HOLD: gst::ClockTime = gst::ClockTime::from_seconds(3);
/// Frames in which a face is covered before facedetect first finds it. A camera's picture would come so much later.
const LOOK_AHEAD: u32 = 15;

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
    // face are passed on, and those in which facedetect misses a face that was there before or is there after are covered
    // where the face may be.
    let elements = format!(
        "videoconvert ! videoscale ! video/x-raw,format=RGB,width=[1,1280],height=[1,720] ! {detector} ! \
         cudagaussblur name=cover region-mode=inside region-sources=roi labels=face cover={} on-missing=pass \
         hold-time={} look-ahead={} post-messages=true",
        options.cover.nick(),
        HOLD.nseconds(),
        if options.input == Input::Camera { 0 } else { LOOK_AHEAD }
    );
    let cover = options.cover;
    let marked = move |pair: &Pair| {
        let detections = pair.raw.buffer().map(detections).unwrap_or_default().into_iter();
        detections.map(|rect| Marked { label: "a detection".into(), rect, cover }).collect()
    };
    let is_generated = options.input == Input::Generated;
    Ok(Chain {
        first: "cover",
        last: "cover",
        reported: Some("cover"),
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
pub fn report(coverage: &Coverage, doubts: &Doubts) -> Result<String, String> {
    let Coverage { frames, marked, empty_frames, .. } = coverage;
    if *marked == 0 {
        return Err(format!("facedetect found no face in {frames} frames, so nothing was covered"));
    }
    let empty = if *empty_frames > 0 { format!(", of which {empty_frames} have none") } else { String::new() };
    let (spans, first) = if doubts.is_empty() {
        ("no track of detections was lost, has a gap or begins inside the picture".into(), "")
    } else {
        (format!("at these times a face may show:\n{}", doubts.summary()), ", first at these times")
    };
    let hold = HOLD.seconds();
    Ok(format!(
        "{marked} detections in {frames} frames{empty}; each was covered in its frame\n\
         {spans}\n\
         a lost face was covered where it may be, for at most {hold} s; one that was never detected is visible\n\
         look at the clip before you publish it{first}\n\
         {}",
        coverage.unchanged()
    ))
}

/// The places that a detector attached to the frame.
fn detections(buffer: &gst::BufferRef) -> Vec<Rect> {
    let metas = buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>();
    let detections = metas.map(|meta| {
        let (x, y, width, height) = meta.rect();
        let [x, y, width, height] = [x, y, width, height].map(|samples| samples as usize);
        Rect { x, y, width, height }
    });
    detections.collect()
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
    if detections(buffer).is_empty() {
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
