// SPDX-License-Identifier: MPL-2.0
//! The rules of objects through time, one by one; `tests/suite/tracks.rs` compares them with their specification.

use super::*;

const SIZE: (u32, u32) = (1280, 720);
const FRAME: u64 = 40 * MS;
const HOLD: Holding = Holding { time: 3000 * MS, covers_lost: false };
const COVER: Holding = Holding { covers_lost: true, ..HOLD };

fn face(x: f64) -> Detection {
    detection(Area::from_corner(x, 200.0, 100.0, 100.0), None)
}

fn detection(area: Area, tracking_id: Option<u64>) -> Detection {
    Detection { certain: Some(area), tracking_id, ..Detection::new(Some("face".to_owned()), area) }
}

fn certain(detection: &Detection) -> (&Detection, bool) {
    (detection, false)
}

fn push(tracks: &mut Tracks, frame: u64, holding: Holding, found: &[Detection]) -> Decided {
    tracks.observe(frame * FRAME, SIZE, holding, found.iter().map(certain));
    tracks.resolve(SIZE, holding)
}

fn is_covered(decided: &Decided, area: Area) -> bool {
    decided.is_lost || decided.objects.iter().any(|object| object.cover.union(area) == object.cover)
}

/// The tracks of which an object was found in the frame.
fn found(decided: &Decided) -> impl Iterator<Item = u32> {
    let found = decided.objects.iter().filter(|object| object.evidence == Evidence::Found);
    found.map(|object| object.track)
}

/// Tracks in which this object was found at the same place for so many frames.
fn seen(frames: u64, object: &Detection) -> Tracks {
    let mut tracks = Tracks::default();
    (0..frames).for_each(|frame| _ = push(&mut tracks, frame, HOLD, std::slice::from_ref(object)));
    tracks
}

#[test]
fn a_lost_object_is_covered_for_its_trust() {
    // Seen for 0, 1, 2 and 20 frames of 40 ms: 300 ms, 320 ms, 640 ms, and the hold time of 3 s.
    for (frames, held) in [(1, 7), (2, 7), (3, 15), (21, 74)] {
        let mut tracks = seen(frames, &face(100.0));
        for after in 1..100 {
            let decided = push(&mut tracks, frames - 1 + after, HOLD, &[]);
            assert_eq!(is_covered(&decided, face(100.0).area), after <= held, "{frames} {after}");
        }
        assert!(tracks.tracks.is_empty());
    }
    let mut tracks = seen(21, &face(100.0));
    let none = Holding { time: 0, covers_lost: false };
    assert!(push(&mut tracks, 21, none, &[]).objects.is_empty());
}

#[test]
fn a_lost_object_is_covered_where_it_moves_to() {
    let mut tracks = Tracks::default();
    for frame in 0..10 {
        push(&mut tracks, frame, HOLD, &[face(100.0 + 10.0 * frame as f64)]);
    }
    let decided = push(&mut tracks, 15, HOLD, &[]);
    let [object] = &decided.objects[..] else { panic!("{decided:?}") };
    assert_eq!(object.evidence, Evidence::Predicted);
    assert!(object.cover.left < 190.0 && object.cover.right > 310.0, "{:?}", object.cover);
    assert_eq!(object.object, face(190.0).area, "strength and cells follow the last detection");
}

/// Each of these ended the hold of an object, or may.
#[test]
fn nothing_else_ends_the_hold() {
    let object = detection(face(100.0).area, Some(7));
    let mut tracks = seen(30, &object);
    let empty = Detection { area: Area::from_corner(100.0, 200.0, 0.0, 50.0), ..object.clone() };
    let elsewhere = |x| Detection { tracking_id: None, ..face(x) };
    let plate = Detection { label: Some("plate".to_owned()), ..object.clone() };
    let unknown = Detection { label: None, tracking_id: None, ..object.clone() };
    for (i, found) in [
        vec![empty],
        vec![plate.clone()],
        vec![unknown],
        vec![elsewhere(600.0)],
        vec![elsewhere(230.0)],
        vec![detection(Area { left: f64::NAN, top: 0.0, right: f64::NAN, bottom: 9.0 }, None)],
        vec![detection(Area::from_corner(0.0, 0.0, f64::INFINITY, f64::INFINITY), None)],
        vec![detection(Area::from_corner(-1e300, 0.0, 5.0, 1e300), None)],
        vec![],
    ]
    .into_iter()
    .enumerate()
    {
        let decided = push(&mut tracks, 30 + i as u64, HOLD, &found);
        assert!(is_covered(&decided, object.area), "{i}: {decided:?}");
        for one in &found {
            assert!(
                one.area.is_empty() || one.area.left.is_nan() || one.area.left < -1e12 || {
                    let cut =
                        Area { right: one.area.right.min(1280.0), bottom: one.area.bottom.min(720.0), ..one.area };
                    is_covered(&decided, cut)
                }
            );
        }
    }
}

/// A false detection beside an object that is lost does not end its hold, and they may be the same.
#[test]
fn a_detection_beside_a_lost_object_starts_a_track() {
    let mut tracks = seen(30, &face(100.0));
    for frame in 30..60 {
        let decided = push(&mut tracks, frame, HOLD, &[face(180.0)]);
        assert!(is_covered(&decided, face(100.0).area) && is_covered(&decided, face(180.0).area), "{frame}");
        let tracks = decided.objects.iter().map(|object| object.track);
        assert!(tracks.eq([1, 2]), "either may be the object");
    }
    // A quarter of it in common, and twice as large.
    for same in [face(175.0), detection(Area::from_corner(100.0, 200.0, 200.0, 200.0), None)] {
        assert_eq!(push(&mut seen(30, &face(100.0)), 30, HOLD, &[same]).objects.len(), 1);
    }
}

/// Only a part of an object was found last: its cover grows as that of the whole one.
#[test]
fn a_cover_grows_by_the_full_box_while_an_object_is_lost() {
    let mut tracks = seen(30, &face(100.0));
    let part = detection(Area::from_corner(125.0, 240.0, 60.0, 60.0), None);
    let margin = |decided: &Decided| 100.0 - decided.objects[0].cover.left;
    assert!(margin(&push(&mut tracks, 30, HOLD, &[part])) < 0.0);
    let margins: Vec<f64> = (31..=100).map(|frame| margin(&push(&mut tracks, frame, HOLD, &[]))).collect();
    assert!(margins.is_sorted());
    // Of 520 ms nearly half count: 0.3 sides, of 100 and not of 60.
    assert!((29.0..31.0).contains(&margins[12]), "{margins:?}");
    assert!(margins[69] < 60.0, "never more than 0.6 sides");
}

#[test]
fn a_weak_detection_continues_a_track_and_starts_none() {
    let mut tracks = seen(30, &face(100.0));
    let weak = [face(110.0), face(180.0), face(700.0)];
    for frame in 30..200 {
        tracks.observe(frame * FRAME, SIZE, HOLD, weak.iter().map(|one| (one, true)));
        let decided = tracks.resolve(SIZE, HOLD);
        assert_eq!(decided.objects.len(), 1, "{frame}");
        assert!(decided.objects[0].evidence == Evidence::Found && is_covered(&decided, face(110.0).area), "{frame}");
    }
    // A certain one is preferred, although it fits worse.
    let both = [(&weak[0], true), (&face(150.0), false)];
    tracks.observe(200 * FRAME, SIZE, HOLD, both.into_iter());
    assert_eq!(tracks.resolve(SIZE, HOLD).objects[0].object, face(150.0).area);
}

#[test]
fn with_look_ahead_an_object_is_covered_before_its_first_detection_and_over_gaps() {
    let mut tracks = Tracks::default();
    let mut decided = Vec::new();
    for frame in 0..80 {
        // It is trusted after a second.
        let found: &[Detection] = if (10..35).contains(&frame) || frame >= 48 { &[face(100.0)] } else { &[] };
        tracks.observe(frame * FRAME, SIZE, HOLD, found.iter().map(certain));
        if frame >= 15 {
            decided.push(tracks.resolve(SIZE, HOLD));
        }
    }
    let evidence: Vec<Evidence> = decided.iter().map(|decided| decided.objects[0].evidence).collect();
    let count = |wanted| evidence.iter().filter(|evidence| **evidence == wanted).count();
    assert_eq!((count(Evidence::Anticipated), count(Evidence::Bridged), count(Evidence::Predicted)), (10, 13, 0));
    assert!(decided.iter().all(|decided| is_covered(decided, face(100.0).area)));
}

/// Also where it would be held for a shorter time, or not at all.
#[test]
fn an_object_is_covered_in_all_of_the_look_ahead_before_its_first_detection() {
    for time in [0, 3000 * MS] {
        let (mut tracks, holding) = (Tracks::default(), Holding { time, ..HOLD });
        let mut decided = Vec::new();
        for frame in 0..45 {
            let found: &[Detection] = if frame == 20 { &[face(100.0)] } else { &[] };
            tracks.observe(frame * FRAME, SIZE, holding, found.iter().map(certain));
            if frame >= 15 {
                decided.push(tracks.resolve(SIZE, holding));
            }
        }
        let evidence = |decided: &Decided| decided.objects.first().map(|object| object.evidence);
        let found: Vec<_> = decided[..21].iter().map(evidence).collect();
        let expected = [vec![None; 5], vec![Some(Evidence::Anticipated); 15], vec![Some(Evidence::Found)]].concat();
        assert_eq!(found, expected, "{time}");
        let sizes = decided[5..=20].iter().map(|decided| decided.objects[0].cover.size());
        assert!(sizes.is_sorted_by(|far, near| far > near), "the nearer, the smaller");
    }
}

/// For how many frames of 40 ms an object that was found in the first ones is covered.
fn covered_for(found: u64, holding: Holding) -> usize {
    let mut tracks = Tracks::default();
    let covered = (0..1000).map(|frame| {
        let faces = [face(100.0)];
        let decided = push(&mut tracks, frame, holding, if frame < found { &faces } else { &[] });
        is_covered(&decided, faces[0].area)
    });
    covered.take_while(|is_covered| *is_covered).count()
}

#[test]
fn more_hold_time_is_never_less_cover() {
    for (found, expected) in [(1, [1, 5, 25, 75, 250]), (2, [1000; 5]), (6, [1000; 5]), (12, [1000; 5])] {
        let frames = [0, 200, 1000, 3000, 10_000].map(|time| Holding { time: time * MS, covers_lost: true });
        assert_eq!(frames.map(|holding| covered_for(found, holding)), expected, "{found}");
    }
}

#[test]
fn an_object_that_is_found_again_was_not_replaced() {
    let mut tracks = seen(30, &face(100.0));
    (31..41).for_each(|frame| _ = push(&mut tracks, frame, COVER, &[face(900.0)]));
    assert!(tracks.tracks[0].replaced_at.is_some(), "by the second one");
    (41..43).for_each(|frame| _ = push(&mut tracks, frame, COVER, &[face(100.0), face(900.0)]));
    (43..400).for_each(|frame| _ = push(&mut tracks, frame, COVER, &[face(900.0)]));
    assert!(push(&mut tracks, 400, COVER, &[face(900.0)]).is_lost);
}

/// What was found once lies nearer, and ends by itself.
#[test]
fn a_false_detection_is_not_replaced_instead_of_a_lost_object() {
    let mut tracks = seen(30, &face(100.0));
    let is_lost = |frame: &u64| {
        let faces = if *frame >= 135 { vec![face(1000.0)] } else { vec![] };
        let once = (*frame == 130).then(|| face(600.0));
        push(&mut tracks, *frame, COVER, &[faces, Vec::from_iter(once)].concat()).is_lost
    };
    let lost: Vec<u64> = (30..1000).filter(is_lost).collect();
    // Until the new one, trusted from its second frame on, replaces the old one; and what was found once, after its hold.
    assert_eq!(lost, Vec::from_iter((29 + 75..136).chain(130 + 8..130 + 75)));
}

#[test]
fn a_lost_object_has_the_whole_frame_covered_until_another_takes_its_place() {
    let mut tracks = seen(30, &face(100.0));
    assert!(!push(&mut tracks, 29 + 74, COVER, &[]).is_lost, "it is held");
    assert!(push(&mut tracks, 29 + 75, COVER, &[]).is_lost);
    assert!(push(&mut tracks, 10_000, COVER, &[]).is_lost, "however long");
    // A false detection elsewhere does not take its place, nor does another label.
    assert!(push(&mut tracks, 10_001, COVER, &[face(700.0)]).is_lost);
    let plate = Detection { label: Some("plate".to_owned()), ..face(900.0) };
    // Later than 3 s after the false detection, for which it has the frame covered too.
    for frame in 10_080..10_110 {
        assert!(push(&mut tracks, frame, COVER, std::slice::from_ref(&plate)).is_lost, "{frame}");
    }
    let mut other = tracks;
    let back: Vec<bool> =
        (10_110..10_120).map(|frame| push(&mut other, frame, COVER, &[face(1000.0)]).is_lost).collect();
    assert_eq!(back.iter().position(|is_lost| !is_lost), Some(1), "seen for 40 ms, it is trusted for 320 ms: {back:?}");
}

#[test]
fn many_lost_objects_stay_covered_in_bounded_memory() {
    for look_ahead in [0, 15] {
        let (mut tracks, mut decided) = (Tracks::default(), Vec::new());
        // So far apart that none continues another.
        let unlabelled = |frame: u64| Detection {
            label: None,
            ..detection(Area::from_corner((frame % 120) as f64 * 10.0, (frame / 120) as f64 * 60.0, 2.0, 2.0), None)
        };
        for frame in 0..1000 {
            // Without time nothing ends.
            tracks.observe(0, SIZE, HOLD, [unlabelled(frame)].iter().map(certain));
            if frame >= look_ahead {
                decided.push(tracks.resolve(SIZE, HOLD));
            }
            assert!(tracks.tracks.len() <= MAX_LOST + 1 + look_ahead as usize, "{}", tracks.tracks.len());
            assert!(tracks.tracks.iter().all(|track| track.seen.len() <= MAX_RECENT + 121));
        }
        let last = decided.last().unwrap();
        assert!((0..1000).all(|frame| is_covered(last, unlabelled(frame).area)));
        for (frame, decided) in decided.iter().enumerate() {
            assert!(is_covered(decided, unlabelled(frame as u64).area), "{frame} in its own frame");
        }
    }
}

#[test]
fn the_objects_lost_longest_ago_are_merged_and_no_others() {
    let small = |i: u64| Area::from_corner((i % 20) as f64 * 50.0, (i / 20) as f64 * 25.0, 4.0, 4.0);
    let all: Vec<_> = (0..300).map(|i| Detection { label: None, ..detection(small(i), None) }).collect();
    let mut tracks = Tracks::default();
    (0..2).for_each(|frame| _ = push(&mut tracks, frame, HOLD, &all));
    assert_eq!(tracks.tracks.len(), 300, "none is lost");
    push(&mut tracks, 2, HOLD, &all[..255]);
    assert_eq!(tracks.tracks.len(), 300, "no more than can be held one by one are lost");
    push(&mut tracks, 3, HOLD, &[]);
    assert_eq!(tracks.tracks.len(), MAX_LOST);
    let merged: Vec<_> =
        tracks.tracks.iter().filter(|track| track.is_merged).map(|track| track.last().full.edges()).collect();
    assert_eq!(merged, [[0.0, 300.0, 954.0, 354.0]], "objects 255 to 299, in rows of 20");
}

/// What stands for several has the whole frame covered for as long as one of them would.
#[test]
fn merged_objects_have_the_whole_frame_covered_as_each_alone() {
    let small = |i: u64| Area::from_corner((i % 20) as f64 * 50.0, (i / 20) as f64 * 25.0, 4.0, 4.0);
    let all: Vec<_> = (0..300).map(|i| Detection { label: None, ..detection(small(i), None) }).collect();
    let holding = Holding { time: 1000 * MS, ..COVER };
    for (is_found_twice, replaced_at, end) in [(false, None, 27), (true, None, 1000), (true, Some(500), 500)] {
        let mut tracks = Tracks::default();
        push(&mut tracks, 0, holding, if is_found_twice { &all[..9] } else { &[] });
        push(&mut tracks, 1, holding, &all[..9]);
        tracks.tracks.iter_mut().for_each(|track| track.replaced_at = replaced_at.map(|frame: u64| frame * FRAME));
        push(&mut tracks, 2, holding, &all[9..]);
        push(&mut tracks, 3, holding, &[]);
        assert_eq!(tracks.tracks.len(), MAX_LOST);
        let last = (4..1000).filter(|frame| push(&mut tracks, *frame, holding, &[]).is_lost).last();
        assert_eq!(last, Some(end - 1), "{is_found_twice} {replaced_at:?}");
    }
}

/// A detection continues a track for `hold-time` after its last, at least for 1 s, however short it is held.
#[test]
fn a_detection_continues_what_was_found_within_the_hold_time() {
    for (hold, frames, after, same) in [
        (3000, 21, 74, true),
        (3000, 21, 75, false),
        (3000, 1, 74, true),
        (3000, 1, 75, false),
        (0, 3, 1, true),
        (0, 3, 24, true),
        (0, 3, 25, false),
    ] {
        let holding = Holding { time: hold * MS, covers_lost: false };
        let mut tracks = Tracks::default();
        for frame in 0..frames {
            let decided = push(&mut tracks, frame, holding, &[face(100.0)]);
            assert_eq!(decided.objects[0].track, 1, "{hold} {frame}");
        }
        if after > 1 {
            push(&mut tracks, frames, holding, &[]);
        }
        let decided = push(&mut tracks, frames - 1 + after, holding, &[face(100.0)]);
        let found = decided.objects.iter().find(|object| object.evidence == Evidence::Found).unwrap();
        assert_eq!(found.track == 1, same, "{hold} {after}");
    }
}

/// A detector that searches seldom finds an object again after its cover has ended. What it finds twice is held until
/// the next search.
#[test]
fn an_object_that_is_searched_for_seldom_is_open_before_the_second_search_only() {
    // At 25 frames a second: every 0.32 s, every 0.4 s, every second.
    for every in [8, 10, 25] {
        let mut tracks = Tracks::default();
        for frame in 0..300 {
            let found = if frame % every == 0 { &[face(100.0)][..] } else { &[] };
            let decided = push(&mut tracks, frame, HOLD, found);
            assert_eq!(is_covered(&decided, face(100.0).area), frame < 8 || frame >= every, "{every} {frame}");
            assert!(decided.objects.iter().all(|object| object.track == 1), "{every} {frame}");
        }
    }
}

/// A gap in which the cover had ended is covered as if the object was found again for the first time, or more.
#[test]
fn a_gap_in_which_the_cover_had_ended_is_bridged_widely() {
    let covers = |first: Option<u64>| {
        let (mut tracks, mut covers) = (Tracks::default(), Vec::new());
        for frame in 0..60 {
            let found = if Some(frame) == first || frame == 30 { &[face(100.0)][..] } else { &[] };
            tracks.observe(frame * FRAME, SIZE, HOLD, found.iter().map(certain));
            if frame >= 15 {
                covers.push(tracks.resolve(SIZE, HOLD).objects.iter().map(|object| object.cover).collect());
            }
        }
        covers
    };
    let (alone, both): (Vec<Vec<Area>>, Vec<Vec<Area>>) = (covers(None), covers(Some(10)));
    for frame in 15..30 {
        let ([alone], [both]) = (&alone[frame][..], &both[frame][..]) else { panic!("{frame}") };
        assert_eq!(alone.union(*both), *both, "{frame}");
    }
}

/// They cover nothing, so no cover becomes larger because of them.
#[test]
fn tracks_whose_cover_has_ended_are_forgotten_before_lost_objects_are_merged() {
    let small = |i: u64| Area::from_corner((i % 20) as f64 * 50.0, (i / 20) as f64 * 25.0, 4.0, 4.0);
    let all: Vec<_> = (0..400).map(|i| Detection { label: None, ..detection(small(i), None) }).collect();
    let mut tracks = Tracks::default();
    push(&mut tracks, 0, HOLD, &all[..200]);
    for (frame, found, count) in [(8, 0..0, 200), (9, 200..400, 400), (10, 0..0, 256), (11, 0..200, 400)] {
        let decided = push(&mut tracks, frame, HOLD, &all[found]);
        assert_eq!(tracks.tracks.len(), count, "{frame}");
        assert!(tracks.tracks.iter().all(|track| !track.is_merged));
        assert!(frame < 9 || (200..400).all(|i| is_covered(&decided, small(i))));
    }
    // Those that were forgotten start new tracks, and of the others the oldest are merged.
    push(&mut tracks, 12, HOLD, &[]);
    assert_eq!(tracks.tracks.len(), MAX_LOST);
    assert!(tracks.tracks.iter().any(|track| track.is_merged));
}

/// An object that left the picture does not keep a new object from replacing one that is lost.
#[test]
fn a_cover_that_has_ended_is_not_replaced() {
    let mut tracks = Tracks::default();
    for frame in 0..10 {
        push(&mut tracks, frame, COVER, &[face(900.0 + 35.0 * frame as f64), face(100.0)]);
    }
    // The first one has left the picture at its edge, and its cover ends after 72 frames.
    push(&mut tracks, 10, COVER, &[]);
    assert!(push(&mut tracks, 83, COVER, &[]).is_lost);
    assert_eq!(tracks.tracks.iter().filter(|track| track.has_ended).count(), 1);
    let lost = (84..88).filter(|frame| push(&mut tracks, *frame, COVER, &[face(800.0)]).is_lost).count();
    assert_eq!(lost, 1, "the one that is lost was replaced, although the other one is nearer");
}

/// Trackers that give one number to all objects, such as 0 to those that they do not follow.
#[test]
fn an_id_that_two_detections_have_is_no_id() {
    let one = |x| detection(face(x).area, Some(0));
    let mut tracks = Tracks::default();
    (0..10).for_each(|frame| _ = push(&mut tracks, frame, HOLD, &[one(100.0), one(800.0)]));
    for frame in 10..80 {
        let decided = push(&mut tracks, frame, HOLD, &[one(800.0)]);
        assert!(is_covered(&decided, face(100.0).area), "{frame}");
        assert_eq!(decided.objects.len(), 2);
    }
    // Objects with another label have separate numbers.
    let plate = |x| Detection { label: Some("plate".to_owned()), ..one(x) };
    let mut tracks = Tracks::default();
    for frame in 0..10 {
        let decided = push(&mut tracks, frame, HOLD, &[one(200.0 * (frame % 5) as f64), plate(500.0)]);
        assert!(found(&decided).eq([1, 2]), "{frame}");
    }
}

/// A tracker gives the number of an object that it misses to another one.
#[test]
fn an_id_that_jumps_to_another_object_does_not_end_the_hold() {
    let one = |x, id| detection(face(x).area, Some(id));
    for (a, b) in [(1, 2), (2, 1)] {
        let mut tracks = Tracks::default();
        let mut both = [one(100.0, a), one(800.0, b)];
        both.sort_by_key(|one| one.tracking_id);
        (0..10).for_each(|frame| _ = push(&mut tracks, frame, HOLD, &both));
        let mut other = Tracks::default();
        (0..10).for_each(|frame| _ = push(&mut other, frame, HOLD, &both));
        for frame in 10..80 {
            let decided = push(&mut tracks, frame, HOLD, &[one(800.0, a)]);
            assert!(is_covered(&decided, face(100.0).area), "{frame}");
            assert_eq!(decided.objects.len(), 2);
        }
        // Both numbers change, and later they change back.
        for frame in 10..40 {
            let [at_a, at_b] = if frame < 25 { [b, a] } else { [a, b] };
            let decided = push(&mut other, frame, HOLD, &[one(100.0, at_a), one(800.0, at_b)]);
            assert_eq!(decided.objects.len(), 2);
            assert!(decided.objects.iter().all(|object| side(object.cover) <= 100.0), "{frame} {decided:?}");
        }
    }
}

/// A tracker gives the number of a lost object to one that is found elsewhere for the first time, or the object moves fast.
#[test]
fn the_place_that_an_id_leaves_is_held() {
    let one = |x| [detection(face(x).area, Some(1))];
    for (holding, lost_for) in [(HOLD, 0), (HOLD, 4), (COVER, 4)] {
        let mut tracks = Tracks::default();
        (0..20).for_each(|frame| _ = push(&mut tracks, frame, holding, &one(100.0)));
        (20..20 + lost_for).for_each(|frame| _ = push(&mut tracks, frame, holding, &[]));
        for frame in 20 + lost_for..120 {
            let decided = push(&mut tracks, frame, holding, &one(800.0));
            assert!(is_covered(&decided, face(100.0).area) || frame > 93, "{frame}");
            assert!(found(&decided).eq([1]) && !decided.is_lost, "{frame} {decided:?}");
        }
        assert_eq!(tracks.tracks.len(), 1);
    }
    // The frames before the jump still wait. In these the object is covered once.
    let mut tracks = Tracks::default();
    (0..10).for_each(|frame| tracks.observe(frame * FRAME, SIZE, HOLD, one(100.0).iter().map(certain)));
    tracks.observe(10 * FRAME, SIZE, HOLD, one(800.0).iter().map(certain));
    let counts: Vec<_> = (0..11).map(|_| tracks.resolve(SIZE, HOLD).objects.len()).collect();
    assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
}

/// The first frame from `from` on in which the object at 100 is not covered, of 300 frames with these objects.
fn uncovered_from(from: u64, holding: Holding, found: impl Fn(u64) -> Vec<(f64, Option<u64>)>) -> u64 {
    let mut tracks = Tracks::default();
    let objects = |frame| found(frame).into_iter().map(|(x, id)| detection(face(x).area, id)).collect::<Vec<_>>();
    let decided = (0..300).map(|frame| push(&mut tracks, frame, holding, &objects(frame)));
    let open: Vec<u64> =
        (0..).zip(decided).filter(|(_, one)| !is_covered(one, face(100.0).area)).map(|(i, _)| i).collect();
    open.into_iter().find(|frame| *frame >= from).unwrap_or(300)
}

/// Whichever object has the number, one that was found for 1.2 s is held for 3 s after the frame 30, or has the whole frame covered.
#[test]
fn a_wrong_id_does_not_shorten_the_hold() {
    let (one, two) = (Some(1), Some(2));
    // Another object comes from behind it and gets its number, and it gets a new one.
    let switched = |frame: u64| match frame {
        0..30 => vec![(100.0, one)],
        30 => vec![(150.0, one), (100.0, two)],
        _ => vec![(150.0 + 6.0 * (frame - 30) as f64, one)],
    };
    assert_eq!(uncovered_from(31, HOLD, switched), 105);
    // A new object gets its number in the frame in which it is found last.
    let shifted = |frame: u64| match frame {
        0..30 => vec![(100.0, one)],
        30 => vec![(700.0, one), (100.0, two)],
        _ => vec![(700.0, one)],
    };
    assert_eq!([HOLD, COVER].map(|holding| uncovered_from(31, holding, shifted)), [105, 300]);
    // Its number was another object's, so it has not moved out of the picture.
    let far = |frame: u64| match frame {
        0..26 => vec![(900.0, one)],
        26..31 => vec![(100.0, one)],
        _ => vec![],
    };
    assert_eq!(uncovered_from(31, COVER, far), 300);
    // Its cover has ended when another object gets its number. Found again without it, it is the same object.
    let ended = |frame: u64| match frame {
        0..3 => vec![(100.0, one)],
        22..25 => vec![(700.0, one)],
        25 => vec![(100.0, None), (700.0, one)],
        _ => vec![],
    };
    assert_eq!(uncovered_from(25, HOLD, ended), 100);
    // Another object is first found where it is nearly expected, and walks on.
    let near = |frame: u64| match frame {
        0..31 => vec![(100.0, None)],
        45.. => vec![(150.0 + 6.0 * (frame - 45) as f64, None)],
        _ => vec![],
    };
    assert_eq!(uncovered_from(31, HOLD, near), 105);
}

/// Where an object lands, its number counts more than a track without a number, which may be a false detection or the same
/// object in a frame without its number. So what is known of the object is not lost, and it is held for long.
#[test]
fn an_id_counts_more_than_the_place_of_a_track_without_an_id() {
    for is_false in [true, false] {
        let mut tracks = Tracks::default();
        for frame in 0..22 {
            let x = if frame < 20 { 100.0 } else { 800.0 };
            // Its ID is missing in the frame in which it lands, or there was a false detection in the frame before.
            let id = (is_false || frame != 20).then_some(1);
            let mut found = vec![detection(face(x).area, id)];
            if is_false && frame == 19 {
                found.push(detection(face(800.0).area, None));
            }
            push(&mut tracks, frame, HOLD, &found);
        }
        for frame in 22..90 {
            let decided = push(&mut tracks, frame, HOLD, &[]);
            assert!(is_covered(&decided, face(800.0).area), "{is_false} {frame}");
        }
    }
}

/// What two detectors find in one place is one object, whose number is right.
#[test]
fn an_object_that_is_found_twice_keeps_its_id() {
    let mut tracks = Tracks::default();
    for frame in 0..20 {
        let fast = detection(face(100.0 + 150.0 * frame as f64).area, Some(1));
        let decided = push(&mut tracks, frame, HOLD, &[fast.clone(), fast]);
        assert!(
            decided.objects.iter().any(|object| object.track == 1 && object.evidence == Evidence::Found),
            "{frame}"
        );
    }
}

/// The number of an object that moves fast is right, also where it passes another object.
#[test]
fn an_object_that_moves_fast_keeps_its_id() {
    let mut tracks = Tracks::default();
    let fast = |frame: u64| detection(face(1000.0 - 150.0 * (frame as f64 - 10.0).abs()).area, Some(1));
    for frame in 4..17 {
        let decided = push(&mut tracks, frame, HOLD, &[fast(frame), detection(face(550.0).area, Some(2))]);
        assert!(found(&decided).eq([1, 2]), "{frame} {decided:?}");
        assert_eq!(decided.objects[0].object, fast(frame).area);
    }
}

#[test]
fn no_detection_continues_a_merged_track() {
    let mut tracks = Tracks::default();
    let small = |i: u64| Area::from_corner((i % 20) as f64 * 50.0, (i / 20) as f64 * 25.0, 4.0, 4.0);
    for i in 0..400 {
        tracks.observe(i * MS, SIZE, HOLD, [detection(small(i), None)].iter().map(certain));
        tracks.resolve(SIZE, HOLD);
    }
    let merged = tracks.tracks.iter().find(|track| track.is_merged).expect("400 are more than 256");
    let [left, top, right, bottom] = merged.last().full.edges();
    let like_it = Detection {
        label: None,
        ..detection(Area { left: left + 60.0, top: top + 30.0, right: right - 60.0, bottom: bottom - 30.0 }, None)
    };
    // It was seen for 0.14 s, and is held for 1.1 s.
    for frame in 11..30 {
        let decided = push(&mut tracks, frame, HOLD, std::slice::from_ref(&like_it));
        assert!((0..100).all(|i| is_covered(&decided, small(i))), "{frame}");
    }
}

#[test]
fn a_steady_object_without_time_is_bounded() {
    let mut tracks = Tracks::default();
    for _ in 0..2000 {
        tracks.observe(0, SIZE, HOLD, [face(100.0)].iter().map(certain));
        tracks.resolve(SIZE, HOLD);
    }
    assert!(tracks.tracks.len() == 1 && tracks.tracks[0].seen.len() <= MAX_RECENT + 1);
}

#[test]
fn an_object_that_left_the_picture_is_held_at_its_edge_and_not_lost() {
    let mut tracks = Tracks::default();
    for frame in 0..10 {
        push(&mut tracks, frame, COVER, &[face(900.0 + 35.0 * frame as f64)]);
    }
    // It was seen for 360 ms, and is held for 2880 ms.
    for frame in 10..81 {
        let decided = push(&mut tracks, frame, COVER, &[]);
        assert!(is_covered(&decided, face(1215.0).area) && !decided.is_lost, "{frame} {decided:?}");
    }
    for frame in 81..200 {
        assert_eq!(push(&mut tracks, frame, COVER, &[]), Decided::default(), "{frame}");
    }
}

#[test]
fn the_end_of_time_is_a_time() {
    let mut tracks = Tracks::default();
    for time in [0, 40 * MS, u64::MAX - 1, u64::MAX, u64::MAX] {
        tracks.observe(time, SIZE, HOLD, [face(100.0)].iter().map(certain));
        assert!(is_covered(&tracks.resolve(SIZE, HOLD), face(100.0).area));
    }
}
