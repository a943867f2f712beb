// SPDX-License-Identifier: MPL-2.0
//! `--regions`: a clip in which two objects move, with their boxes as a detector would attach them, and the camera's
//! clock is in a fixed zone.

use gst_video::VideoFormat;

use super::coverage::{Coverage, Marked};
use super::objects::{BALLOON, BOAT, CLOCK, clock_rect, draw_clock};
use super::options::Cover;
use super::pipeline::Chain;
use super::playback::{FRAMES, feed};
use super::scene::{HEIGHT, Scene, WIDTH};

/// Whether the detector misses the boat, as detectors do in single frames.
fn is_missed(frame: usize) -> bool {
    frame % 30 >= 27
}

/// One element for each cover. Each reads the detections and leaves them on the buffer for the next one.
pub fn chain() -> Chain {
    let [x, y, width, height] = CLOCK;
    let elements = format!(
        "cudagaussblur name=first region-mode=inside region-sources=roi labels=balloon cover=blur ! \
         cudagaussblur name=boat region-mode=inside region-sources=roi labels=boat cover=mosaic ! \
         cudagaussblur name=last region-mode=inside region-sources=zones cover=fill \
         zones=\"<[zone,x={x},y={y},width={width},height={height}]>\""
    );
    Chain {
        first: "first",
        last: "last",
        elements,
        feed: Some(Box::new(|source| {
            let scene = Scene::new();
            feed(source, VideoFormat::Rgbx, (WIDTH, HEIGHT), move |frame| draw(&scene, frame));
        })),
        // The check knows the places without the metas. Where the detector misses the boat, the boat must be covered too.
        check: Box::new(|pair, coverage| {
            let frame = pair.frame();
            let place = |label: &str, rect, cover| Marked { label: label.into(), rect, cover };
            let places = [
                place(BALLOON.label, BALLOON.rect(frame), Cover::Blur),
                place(BOAT.label, BOAT.rect(frame), Cover::Mosaic),
                place("clock", clock_rect(), Cover::Fill),
            ];
            coverage.check(pair, &places);
            places.len()
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
    format!(
        "checked {} frames with {} marked places; each was covered in its frame: a balloon by blur, a boat by mosaic, a clock by fill\n\
         in {} frames the boat had no box, and was covered where it was predicted\n\
         {}",
        coverage.frames,
        coverage.marked,
        (0..FRAMES).filter(|frame| is_missed(*frame)).count(),
        coverage.changed()
    )
}
