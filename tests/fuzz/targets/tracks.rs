// SPDX-License-Identifier: MPL-2.0
//! Any detections in any frames: each that counts is covered in its own frame, weak ones alone cover nothing, and the number of
//! objects is bounded.
#![no_main]

use arbitrary::Arbitrary;
use gstcudagaussblur::filter::regions::{Area, Rect};
use gstcudagaussblur::regions::detection::Detection;
use gstcudagaussblur::regions::tracks::{Decided, Holding, Tracks};

/// Lost objects that are followed one by one, and the one that stands for all others.
const LOST: usize = 256 + 1;
const MILLISECOND: u64 = 1_000_000;

#[derive(Arbitrary, Debug)]
enum Side {
    Near(i16),
    Any(f64),
}

impl Side {
    fn get(&self) -> f64 {
        match self {
            Self::Near(side) => f64::from(*side) / 16.0,
            Self::Any(side) => *side,
        }
    }
}

#[derive(Arbitrary, Debug)]
struct Found {
    sides: [Side; 4],
    label: Option<bool>,
    id: Option<u8>,
    is_weak: bool,
    /// So many more next to it.
    more: u8,
}

#[derive(Arbitrary, Debug)]
struct Input {
    size: [u8; 2],
    hold: Option<u16>,
    covers_lost: bool,
    look_ahead: u8,
    /// Milliseconds since the frame before, or any time; what was found; whether all is forgotten before it.
    frames: Vec<(Result<u16, u64>, Vec<Found>, bool)>,
}

fn detections(found: &[Found]) -> Vec<(Detection, bool)> {
    let all = found.iter().flat_map(|found| (0..=u32::from(found.more)).map(move |i| (found, i)));
    let detection = |(found, i): (&Found, u32)| {
        let [x, y, width, height] = [0, 1, 2, 3].map(|side| found.sides[side].get());
        let area = Area::from_corner(x + 3.0 * width * f64::from(i), y, width, height);
        let label = found.label.map(|face| if face { "face" } else { "plate" }.to_owned());
        let tracking_id = found.id.map(u64::from);
        let detection = Detection { label, confidence: None, area, certain: Some(area), tracking_id, mask: None, has_old_mask: false };
        (detection, found.is_weak)
    };
    all.map(detection).collect()
}

fn check(decided: &Decided, found: &[(Detection, bool)], size: (u32, u32), most: usize) {
    assert!(decided.objects.len() <= LOST + most, "{} objects, {most} found", decided.objects.len());
    let covers = |object: Rect, of: Rect| object.hull(of) == object;
    for (detection, _) in found.iter().filter(|(detection, is_weak)| !is_weak && !detection.area.is_empty()) {
        let Some(needed) = Rect::covering(detection.area, size) else { continue };
        // With look-ahead the track may already be merged with others that were lost later.
        let covers_all = |cover: Rect| covers(cover, needed);
        let is_covered = decided.objects.iter().filter_map(|object| Rect::covering(object.cover, size)).any(covers_all);
        assert!(is_covered, "{detection:?} is not covered by {decided:?}");
    }
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    let size = (1 + u32::from(input.size[0]), 1 + u32::from(input.size[1]));
    let time = input.hold.map_or(u64::MAX, |hold| u64::from(hold) * MILLISECOND);
    let holding = Holding { time, covers_lost: input.covers_lost };
    let look_ahead = usize::from(input.look_ahead % 121);
    let (mut tracks, mut now) = (Tracks::default(), 0_u64);
    let mut waiting: Vec<Vec<(Detection, bool)>> = Vec::new();
    let mut has_strong = false;
    for (time, found, clears) in &input.frames {
        if *clears {
            tracks.clear();
            (waiting, has_strong) = (Vec::new(), false);
        }
        now = match time {
            Ok(time) => now.saturating_add(u64::from(*time) * MILLISECOND),
            Err(time) => now.max(*time),
        };
        waiting.push(detections(found));
        let entering = &waiting[waiting.len() - 1];
        has_strong |= entering.iter().any(|(_, is_weak)| !is_weak);
        tracks.enter(now, size, holding, entering.iter().map(|(detection, is_weak)| (detection, *is_weak)));
        if waiting.len() > look_ahead {
            let most = waiting.iter().map(Vec::len).sum();
            let decided = tracks.decide(size, holding);
            check(&decided, &waiting.remove(0), size, most);
            assert!(has_strong || decided == Decided::default(), "what is weak is covered: {decided:?}");
        }
    }
    waiting.iter().for_each(|found| {
        let most = waiting.iter().map(Vec::len).sum();
        check(&tracks.decide(size, holding), found, size, most);
    });
    assert_eq!(tracks.decide(size, holding), Decided::default(), "no frame waits");
});
