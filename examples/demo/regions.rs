// SPDX-License-Identifier: MPL-2.0
//! `--regions`: a clip in which two objects move, with their boxes as a detector would attach them, and the camera's
//! clock is in a fixed zone.

use gst_video::VideoFormat;

use super::Chain;
use super::coverage::{Coverage, Marked};
use super::objects::{BALLOON, BOAT, CLOCK, clock_rect, draw_clock};
use super::options::Cover;
use super::playback::{FPS, feed};
use super::scene::{HEIGHT, Scene, WIDTH};

/// Whether the detector misses the boat, as detectors do in single frames. hold-time bridges that.
fn is_missed(frame: usize) -> bool {
    frame % 30 >= 27
}

/// One element for each cover. Each reads the detections and leaves them on the buffer for the next one.
pub fn chain() -> Chain {
    let [x, y, width, height] = CLOCK;
    let elements = format!(
        "cudagaussblur name=first region-mode=inside region-sources=roi labels=balloon cover=blur ! \
         cudagaussblur region-mode=inside region-sources=roi labels=boat cover=mosaic ! \
         cudagaussblur name=last region-mode=inside region-sources=zones cover=fill \
         zones=\"<[zone,x={x},y={y},width={width},height={height}]>\""
    );
    Chain {
        first: "first",
        last: "last",
        source: Some("appsrc name=source".into()),
        elements,
        feed: Some(Box::new(|source| {
            let scene = Scene::new();
            feed(source, VideoFormat::Rgbx, (WIDTH, HEIGHT), move |frame| draw(&scene, frame));
        })),
        // The check knows the places without the metas, also in the frames where the detector misses the boat.
        marked: Box::new(|raw| {
            let frame = raw.pts().map_or(0, |pts| (pts.nseconds() as f64 * 1e-9 * FPS as f64).round() as usize);
            let place = |label: &str, rect, cover, is_held| Marked { label: label.into(), rect, cover, is_held };
            vec![
                place(BALLOON.label, BALLOON.rect(frame), Cover::Blur, false),
                place(BOAT.label, BOAT.rect(frame), Cover::Mosaic, is_missed(frame)),
                place("clock", clock_rect(), Cover::Fill, false),
            ]
        }),
    }
}

fn draw(scene: &Scene, frame: usize) -> gst::Buffer {
    let mut pixels = vec![0; WIDTH * HEIGHT * 4];
    scene.draw(frame, &mut pixels, |pixels| [BALLOON, BOAT].iter().for_each(|object| object.draw(frame, pixels)));
    draw_clock(frame, &mut pixels);
    let mut buffer = gst::Buffer::from_mut_slice(pixels);
    for object in [BALLOON, BOAT] {
        if object.label == BOAT.label && is_missed(frame) {
            continue;
        }
        let rect = object.rect(frame);
        let [x, y, width, height] = [rect.x, rect.y, rect.width, rect.height].map(|samples| samples as u32);
        let buffer = buffer.get_mut().expect("nobody else has it yet");
        gst_video::VideoRegionOfInterestMeta::add(buffer, object.label, (x, y, width, height));
    }
    buffer
}

/// The report, after all frames passed the check.
pub fn report(coverage: &Coverage) -> String {
    let Coverage { frames, marked, held, .. } = coverage;
    format!(
        "{frames} frames, {marked} marked places, all covered: a balloon by blur, a boat by mosaic, a clock by fill\n\
         {held} times the boat had no detection and hold-time kept it covered\n\
         {}",
        coverage.unchanged()
    )
}
