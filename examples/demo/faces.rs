// SPDX-License-Identifier: MPL-2.0
//! `--faces`: covers the faces that the element centerface finds in every fifth frame and in the one after a new face.

use std::error::Error;

use gst_video::{VideoFormat, VideoRegionOfInterestMeta};

use super::coverage::{Marked, Rect};
use super::options::Options;
use super::pictures::Pair;
use super::pipeline::{Chain, Feed, Played};
use super::playback::{FRAMES, feed};
use super::portrait;

/// The portrait is enlarged by this much, and the clip shows a part of it that moves.
const SCALE: usize = 2;
const VIEW: (usize, usize) = (640, 480);
/// How far the view moves to the right and down: so far that the face stays inside of it.
const PAN: (usize, usize) = (320, 110);
/// Frames in which a face is covered before it is first found. A camera's picture would come so much later.
const LOOK_AHEAD: u32 = 15;

/// The detector, and the element that covers what it finds. The check knows where the face of the generated clip is, in every
/// frame; of a camera's it knows what the detector has found.
pub fn chain(options: &Options) -> Result<Chain, Box<dyn Error>> {
    let cover = options.cover;
    let elements = format!(
        "centerface name=detector ! queue max-size-buffers=3 ! cudagaussblur name=cover region-mode=inside \
         region-sources=roi labels=face cover={} look-ahead={}",
        cover.nick(),
        if options.camera { 0 } else { LOOK_AHEAD }
    );
    let marked = move |label: &str, rect| Marked { label: label.into(), rect, cover };
    let portrait = (!options.camera).then(enlarged).transpose()?;
    let is_generated = portrait.is_some();
    Ok(Chain {
        first: "cover",
        last: "cover",
        elements: if is_generated { elements } else { format!("video/x-raw,format=RGB ! {elements}") },
        feed: portrait.map(|portrait| -> Feed {
            Box::new(move |source| feed(source, VideoFormat::Rgb, VIEW, move |frame| view(&portrait, frame)))
        }),
        check: Box::new(move |pair, coverage| {
            let places: Vec<_> = if is_generated {
                vec![marked("the face", face(pair.frame()))]
            } else {
                detections(pair).map(|rect| marked("a detection", rect)).collect()
            };
            coverage.check(pair, &places);
            places.len()
        }),
    })
}

/// The report, after all frames passed the check.
pub fn report(played: &Played, options: &Options) -> String {
    let (coverage, searched) = (&played.coverage, played.searched);
    let (what, advice) = if options.camera {
        ("detections", "\na lost face was covered where it may be; one that was never detected is visible")
    } else {
        ("faces", "")
    };
    format!(
        "checked {} frames with {} {what}; each was covered in its frame, by a detector that looked at {searched} frames{advice}\n{}",
        coverage.frames,
        coverage.marked,
        coverage.changed()
    )
}

/// The places that the detector attached to the frame. One of no size says that it found nothing.
fn detections(pair: &Pair) -> impl Iterator<Item = Rect> {
    let metas = pair.raw.buffer().into_iter().flat_map(|buffer| buffer.iter_meta::<VideoRegionOfInterestMeta>());
    metas.map(|meta| meta.rect()).filter(|(.., width, height)| *width > 0 && *height > 0).map(
        |(x, y, width, height)| {
            let [x, y, width, height] = [x, y, width, height].map(|samples| samples as usize);
            Rect { x, y, width, height }
        },
    )
}

/// The portrait as rows of RGB.
fn enlarged() -> Result<Vec<u8>, Box<dyn Error>> {
    let (width, height) = (SCALE * portrait::SIZE.0, SCALE * portrait::SIZE.1);
    portrait::decode(&format!("videoconvert ! videoscale ! video/x-raw,format=RGB,width={width},height={height}"))
}

/// How far a frame of the clip is moved: to the right and down and back.
fn moved(frame: usize) -> [usize; 2] {
    let turn = frame as f64 / FRAMES as f64 * std::f64::consts::TAU;
    let share = 0.5 - 0.5 * turn.cos();
    [PAN.0, PAN.1].map(|pan| (pan as f64 * share) as usize)
}

/// Where the face is in a frame of the clip.
fn face(frame: usize) -> Rect {
    let ([left, top], Rect { x, y, width, height }) = (moved(frame), portrait::FACE);
    Rect { x: SCALE * x - left, y: SCALE * y - top, width: SCALE * width, height: SCALE * height }
}

/// A frame of the clip.
fn view(portrait: &[u8], frame: usize) -> gst::Buffer {
    let [x, y] = moved(frame);
    let stride = SCALE * portrait::SIZE.0 * 3;
    let rows = (y..y + VIEW.1).flat_map(|row| &portrait[row * stride + x * 3..][..VIEW.0 * 3]);
    gst::Buffer::from_mut_slice(rows.copied().collect::<Vec<u8>>())
}
