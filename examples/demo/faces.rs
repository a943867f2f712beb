// SPDX-License-Identifier: MPL-2.0
//! `--faces`: covers the faces that MediaPipe's BlazeFace finds, or without it GStreamer's `facedetect`.

use std::error::Error;
use std::fs::File;

use gst::prelude::*;
use gst_video::{VideoFormat, VideoRegionOfInterestMeta};

use super::coverage::{Coverage, Marked, Rect};
use super::models::Model;
use super::options::{Detector, Input, Options};
use super::pictures::Pair;
use super::pipeline::{Chain, Feed, Prepare};
use super::playback::{FRAMES, feed};
use super::portrait;
use super::report::Doubts;

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

/// The score from which on BlazeFace is sure of a face. The others keep a face covered that was sure before.
const SURE: f64 = 0.5;
/// The side of BlazeFace's picture, in whose middle the frame is.
const SIDE: u32 = 128;

/// BlazeFace if it is installed, else facedetect; and the element that covers what it finds.
///
/// # Errors
/// If both are missing, or facedetect's cascade is, or it does not find the face in the portrait. Without a cascade facedetect
/// logs an error and passes frames on as if they had no face.
pub fn chain(options: &Options) -> Result<Chain, Box<dyn Error>> {
    // facedetect attaches nothing when it finds nothing. on-missing=auto would take such a frame for one that no detector
    // looked at, and cover all of it: every frame in which no face is found, after the first face. So frames without a
    // face are passed on, and those in which facedetect misses a face that was there before or is there after are covered
    // where the face may be. BlazeFace's frames all have a box, which may have no size.
    let model = match options.detector {
        Detector::Facedetect => None,
        Detector::BlazeFace => Some(Model::start("faces")?),
        Detector::Auto => Model::start("faces")
            .inspect_err(|missing| eprintln!("demo: using facedetect, because BlazeFace is missing: {missing}"))
            .ok(),
    };
    let (detector, on_missing, prepare) = match model {
        Some(model) => ("identity name=model ! queue max-size-buffers=3".into(), "auto", Some(watch(model))),
        None => (detector()?, "pass", None),
    };
    let portrait = find_portrait(if prepare.is_some() { "identity" } else { &detector }, prepare.is_some())?;
    let elements = format!(
        "videoconvert ! video/x-raw,format=RGB ! {detector} ! \
         cudagaussblur name=cover region-mode=inside region-sources=roi labels=face min-confidence={SURE} cover={} \
         on-missing={on_missing} hold-time={} look-ahead={} post-messages=true",
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
        prepare,
        blurred_behind: None,
        marked: Box::new(marked),
    })
}

/// Attaches the boxes of the faces that BlazeFace finds.
fn watch(model: Model) -> Prepare {
    Box::new(|pipeline| {
        model.watch(pipeline, "model", SIDE, true, |frame, size, answer| {
            // A box of no size says that the detector looked and found nothing.
            VideoRegionOfInterestMeta::add(frame, "nothing", (0, 0, 0, 0));
            for face in answer.chunks_exact(20) {
                let number = |index: usize| f32::from_le_bytes(face[4 * index..][..4].try_into().expect("four bytes"));
                // Rounded outwards, without what is beyond the frame.
                let along = |low: f32, high: f32, length: u32| {
                    let (long, length) = (size[0].max(size[1]) as f32, length as f32);
                    let [low, high] = [low, high].map(|edge| edge * long - (long - length) / 2.0);
                    let [low, high] = [low.floor(), high.ceil()].map(|edge| edge.clamp(0.0, length));
                    (low as u32, (high - low) as u32)
                };
                let (x, width) = along(number(0), number(2), size[0]);
                let (y, height) = along(number(1), number(3), size[1]);
                let mut meta = VideoRegionOfInterestMeta::add(frame, "face", (x, y, width, height));
                let confidence = f64::from(number(4));
                meta.add_param(gst::Structure::builder("detection").field("confidence", confidence).build());
            }
        });
    })
}

/// The report, after all frames passed the check. It counts detections, because nobody counted the faces.
pub fn report(coverage: &Coverage, doubts: &Doubts) -> String {
    let Coverage { frames, marked, empty_frames, .. } = coverage;
    let empty = if *empty_frames > 0 { format!(", of which {empty_frames} have none") } else { String::new() };
    let (spans, first) = if doubts.is_empty() {
        ("no face that was found vanished, was lost for a while or appeared in the middle of the picture".into(), "")
    } else {
        (
            format!(
                "at these times a face may show (a track is one face, as the detector found it):\n{}",
                doubts.summary()
            ),
            ", first at these times",
        )
    };
    let hold = HOLD.seconds();
    format!(
        "{marked} detections in {frames} frames{empty}; each was covered in its frame\n\
         {spans}\n\
         a lost face was covered where it may be, for at most {hold} s; one that was never detected is visible\n\
         look at the clip before you publish it{first}\n\
         {}",
        coverage.changed()
    )
}

/// The places that a detector attached to the frame.
fn detections(buffer: &gst::BufferRef) -> Vec<Rect> {
    let metas = buffer.iter_meta::<VideoRegionOfInterestMeta>().filter(|meta| {
        let confidence = meta.param("detection").and_then(|detection| detection.get::<f64>("confidence").ok());
        meta.roi_type() == "face" && confidence.is_none_or(|confidence| confidence >= SURE)
    });
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

/// The portrait as rows of RGB. facedetect has found the face in it.
fn find_portrait(detector: &str, is_sure: bool) -> Result<Vec<u8>, Box<dyn Error>> {
    let (width, height) = PICTURE;
    let size = format!("video/x-raw,format=RGB,width={width},height={height}");
    let (pixels, buffer) = portrait::decode(&format!("videoconvert ! videoscale ! {size} ! {detector}"))?;
    if !is_sure && detections(&buffer).is_empty() {
        return Err(format!("facedetect does not find the face in the demo's own portrait: {REMEDY}").into());
    }
    Ok(pixels)
}

/// A frame of the clip: a part of the portrait, which moves to the right and down and back.
fn view(portrait: &[u8], frame: usize) -> gst::Buffer {
    let turn = frame as f64 / FRAMES as f64 * std::f64::consts::TAU;
    let share = 0.5 - 0.5 * turn.cos();
    let [x, y] = [PAN.0, PAN.1].map(|pan| (pan as f64 * share) as usize);
    let rows = (y..y + VIEW.1).flat_map(|row| &portrait[(row * PICTURE.0 + x) * 3..][..VIEW.0 * 3]);
    gst::Buffer::from_mut_slice(rows.copied().collect::<Vec<u8>>())
}
