// SPDX-License-Identifier: MPL-2.0
//! `hold-time`: an object that vanishes from the detections stays covered for a while, because detectors miss objects in
//! single frames.

use super::detection::Detection;

/// How much a detection must overlap one that vanished to be the same object, as intersection over union.
const SAME_OBJECT_IOU: f64 = 1.0 / 3.0;

/// Most vanished objects that are held one by one. The oldest ones beyond are held together, by the box around them all.
/// Without a bound, an unsteady detector would slow down every frame, and without timestamps nothing would end that.
const MAX_VANISHED: usize = 256;

/// The time of a frame, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameTime {
    /// The timestamp, on any one clock.
    pub timestamp: Option<u64>,
    /// How long the frame lasts: of the buffer, else by the frame rate.
    pub duration: Option<u64>,
    /// Whether the frame does not continue the previous one.
    pub is_discont: bool,
}

/// A detection that is covered.
#[derive(Debug, Clone, PartialEq)]
struct Covered {
    detection: Detection,
    /// Nanoseconds since it was last found; 0 in the frame where it is found.
    age: u64,
    /// Whether it was last found in an earlier frame.
    is_held: bool,
}

/// The detections that are covered: those of the current frame, and those that vanished less than `hold-time` ago.
///
/// An object that vanished is held at its last place until it is back or the time is over. It is back when a detection
/// has its tracking ID, or its label and an IoU of 1/3 or more with it. Each detection brings back one object at most,
/// so that an object that vanishes next to another stays covered. An object without a tracking ID that moves by more
/// than about half of its size from one frame to the next is not recognised, and is covered at both places.
///
/// Time passes by timestamps. For a frame without one it passes by the frame's duration, and without that not at all:
/// everything stays covered until a frame with a timestamp or [`Hold::clear`]. A timestamp before the previous one counts
/// as the same time; at a discontinuity one that is more than the hold time before it is a jump back, after which nothing
/// is held. A discontinuity forward is only
/// lost frames, over which objects are held as long as their time lasts: elements that drop a frame set the flag too.
#[derive(Debug, Default)]
pub struct Hold {
    /// Those of the latest frame first, then the vanished ones, the most recently found first.
    covered: Vec<Covered>,
    clock: Option<u64>,
}

impl Hold {
    /// Adds the detections of the next frame, and returns all that are covered in it, each with whether it is of an earlier
    /// frame. With a `hold_time` of 0, in nanoseconds, none is.
    pub fn update(
        &mut self,
        time: FrameTime,
        hold_time: u64,
        found: Vec<Detection>,
    ) -> impl Iterator<Item = (&Detection, bool)> {
        let back = time.timestamp.zip(self.clock).map_or(0, |(now, previous)| previous.saturating_sub(now));
        if time.is_discont && back > hold_time {
            self.clear();
        }
        let elapsed = self.advance(time);
        let mut vanished = std::mem::take(&mut self.covered);
        remove_found(&mut vanished, &found);
        vanished.retain_mut(|object| {
            let was_found = object.age == 0 && !object.is_held;
            object.is_held = true;
            object.age = object.age.saturating_add(elapsed);
            object.age < hold_time || was_found && hold_time > 0
        });
        merge_oldest(&mut vanished);
        let own = found.len();
        self.covered = found.into_iter().map(|detection| Covered { detection, age: 0, is_held: false }).collect();
        self.covered.append(&mut vanished);
        self.covered.iter().enumerate().map(move |(i, object)| (&object.detection, i >= own))
    }

    /// Forgets all objects. For new caps and a flush: the next frame does not continue the previous one,
    /// so the places of its objects say nothing about it.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Moves the clock to this frame and returns the time since the previous one.
    fn advance(&mut self, FrameTime { timestamp, duration, .. }: FrameTime) -> u64 {
        let previous = self.clock;
        let duration = duration.unwrap_or(0);
        self.clock = timestamp.or(previous.map(|previous| previous.saturating_add(duration)));
        match (timestamp, previous) {
            (Some(now), Some(previous)) => now.saturating_sub(previous),
            // The first timestamp says nothing about the time since the frames without one.
            (Some(_), None) => 0,
            (None, _) => duration,
        }
    }
}

/// Removes the objects that are found again: first by tracking ID, then by label and IoU, the largest IoU first.
fn remove_found(objects: &mut Vec<Covered>, found: &[Detection]) {
    let mut is_new = vec![true; found.len()];
    objects.retain(|object| {
        let id = object.detection.tracking_id;
        let label = &object.detection.label;
        // Trackers of several classes may each count from 0.
        let is_same_class = |new: &Detection| new.label.is_none() || label.is_none() || new.label == *label;
        let is_same = |new: &Detection| id.is_some() && new.tracking_id == id && is_same_class(new);
        let same = (0..found.len()).find(|i| is_new[*i] && is_same(&found[*i]));
        same.inspect(|i| is_new[*i] = false).is_none()
    });
    let mut pairs = Vec::new();
    for (i, object) in objects.iter().enumerate() {
        for (j, new) in found.iter().enumerate().filter(|(j, new)| is_new[*j] && new.label == object.detection.label) {
            let iou = object.detection.area.iou(new.area);
            if iou >= SAME_OBJECT_IOU {
                pairs.push((iou, i, j));
            }
        }
    }
    // A stable sort, so that equal overlaps are resolved in the order of the lists.
    pairs.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut is_vanished = vec![true; objects.len()];
    for (_, i, j) in pairs {
        if is_vanished[i] && is_new[j] {
            (is_vanished[i], is_new[j]) = (false, false);
        }
    }
    let mut is_vanished = is_vanished.into_iter();
    objects.retain(|_| is_vanished.next().unwrap_or(true));
}

/// Replaces the oldest objects beyond [`MAX_VANISHED`] by one around them all, which is held as long as the most recent
/// of them.
fn merge_oldest(vanished: &mut Vec<Covered>) {
    if vanished.len() <= MAX_VANISHED {
        return;
    }
    let oldest = vanished.split_off(MAX_VANISHED - 1);
    let merged = oldest.into_iter().reduce(|one, other| Covered {
        detection: Detection {
            label: None,
            confidence: None,
            area: one.detection.area.union(other.detection.area),
            certain: None,
            tracking_id: None,
        },
        age: one.age.min(other.age),
        is_held: true,
    });
    vanished.extend(merged);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::regions::Area;

    const FRAME: u64 = 40_000_000;
    const HOLD: u64 = 500_000_000;

    fn object(label: &str, tracking_id: Option<u64>, x: f64) -> Detection {
        let area = Area::from_corner(x, 100.0, 60.0, 60.0);
        Detection { label: Some(label.to_owned()), confidence: None, area, certain: Some(area), tracking_id }
    }

    fn face(x: f64) -> Detection {
        object("face", None, x)
    }

    fn at(frame: u64) -> FrameTime {
        FrameTime { timestamp: Some(1_000_000_000 + frame * FRAME), duration: Some(FRAME), is_discont: false }
    }

    /// The left edges of what is covered, sorted.
    fn update(hold: &mut Hold, time: FrameTime, found: &[Detection]) -> Vec<f64> {
        let covered = hold.update(time, HOLD, found.to_vec());
        let mut edges: Vec<f64> = covered.map(|(detection, _)| detection.area.left).collect();
        edges.sort_by(f64::total_cmp);
        edges
    }

    #[test]
    fn flicker_stays_covered_until_the_time_is_over() {
        let mut hold = Hold::default();
        assert_eq!(update(&mut hold, at(0), &[face(10.0)]), [10.0]);
        // 12 frames are 480 ms, 13 are 520 ms.
        for frame in 1..=12 {
            assert_eq!(update(&mut hold, at(frame), &[]), [10.0], "frame {frame}");
        }
        assert_eq!(update(&mut hold, at(13), &[]), []);

        update(&mut hold, at(20), &[face(10.0)]);
        assert_eq!(update(&mut hold, at(21), &[]), [10.0]);
        assert_eq!(update(&mut hold, at(22), &[face(12.0)]), [12.0], "back");
        assert_eq!(update(&mut hold, at(33), &[]), [12.0], "the time starts again");
        assert_eq!(update(&mut hold, at(35), &[]), []);
    }

    #[test]
    fn time_is_over_at_hold_time() {
        for (hold_time, covered) in [(0, [0, 0]), (1, [1, 0]), (2 * FRAME, [1, 0]), (2 * FRAME + 1, [1, 1])] {
            let mut hold = Hold::default();
            hold.update(at(0), hold_time, vec![face(10.0)]).for_each(drop);
            let counts = [1, 2].map(|frame| hold.update(at(frame), hold_time, vec![]).count());
            assert_eq!(counts, covered, "{hold_time}: one frame at least");
        }
        let mut hold = Hold::default();
        hold.update(at(0), 0, vec![face(10.0)]).for_each(drop);
        assert_eq!(hold.update(at(0), 0, vec![]).count(), 0, "no hold at the same timestamp");
    }

    #[test]
    fn a_jump_back_ends_the_hold_and_lost_frames_do_not() {
        let jump = |frame| FrameTime { is_discont: true, ..at(frame) };
        let mut hold = Hold::default();
        assert_eq!(update(&mut hold, at(100), &[face(10.0)]), [10.0]);
        assert_eq!(update(&mut hold, jump(105), &[]), [10.0], "frames were lost");
        assert_eq!(update(&mut hold, at(103), &[]), [10.0], "reordered");
        assert_eq!(update(&mut hold, jump(95), &[]), [10.0], "resynchronised");
        assert_eq!(update(&mut hold, jump(3), &[]), [], "back");
        update(&mut hold, at(4), &[face(10.0)]);
        assert_eq!(update(&mut hold, jump(30), &[]), [10.0], "forward beyond the time: one frame");
        assert_eq!(update(&mut hold, at(31), &[]), []);
        update(&mut hold, at(32), &[face(10.0)]);
        let unknown = FrameTime { timestamp: None, ..jump(0) };
        assert_eq!(update(&mut hold, unknown, &[]), [10.0], "without a timestamp nothing is known");
    }

    #[test]
    fn moving_object_leaves_nothing_behind() {
        let mut hold = Hold::default();
        for frame in 0..100 {
            let x = frame as f64 * 20.0;
            assert_eq!(update(&mut hold, at(frame), &[face(x)]), [x]);
        }
        // With its tracking ID an object is recognised anywhere.
        let mut hold = Hold::default();
        for frame in 0..100 {
            let x = frame as f64 * 500.0;
            assert_eq!(update(&mut hold, at(frame), &[object("face", Some(7), x)]), [x]);
        }
        // Without, both places are covered if it jumps.
        let mut hold = Hold::default();
        update(&mut hold, at(0), &[face(0.0)]);
        assert_eq!(update(&mut hold, at(1), &[face(45.0)]), [0.0, 45.0]);
    }

    #[test]
    fn identity_is_tracking_id_or_label_and_place() {
        let mut hold = Hold::default();
        update(&mut hold, at(0), &[object("face", Some(1), 0.0)]);
        assert_eq!(update(&mut hold, at(1), &[object("face", Some(2), 6.0)]), [6.0], "a new ID at the same place");
        assert_eq!(update(&mut hold, at(2), &[object("hat", Some(3), 6.0)]), [6.0, 6.0], "another label");
        assert_eq!(update(&mut hold, at(3), &[object("face", Some(9), 300.0)]), [6.0, 6.0, 300.0], "another place");
        assert_eq!(update(&mut hold, at(4), &[object("hat", Some(3), 900.0)]), [6.0, 300.0, 900.0], "ID 3 is back");
        let other = object("plate", Some(9), 900.0);
        assert_eq!(update(&mut hold, at(5), &[other]), [6.0, 300.0, 900.0, 900.0], "ID 9 of another tracker");

        let exactly_a_third = Area::from_corner(30.0, 100.0, 60.0, 60.0);
        let mut hold = Hold::default();
        update(&mut hold, at(0), &[face(0.0)]);
        let detection = Detection { area: exactly_a_third, ..face(0.0) };
        assert_eq!(update(&mut hold, at(1), &[detection]), [30.0]);
    }

    /// A detection brings back one object, the one that it overlaps most.
    #[test]
    fn neighbour_does_not_end_the_hold() {
        let mut hold = Hold::default();
        update(&mut hold, at(0), &[face(0.0), face(20.0)]);
        assert_eq!(update(&mut hold, at(1), &[face(21.0)]), [0.0, 21.0]);
        assert_eq!(update(&mut hold, at(2), &[face(1.0), face(22.0)]), [1.0, 22.0]);

        let mut hold = Hold::default();
        update(&mut hold, at(0), &[object("face", Some(1), 0.0), object("face", Some(2), 20.0)]);
        assert_eq!(update(&mut hold, at(1), &[object("face", Some(2), 2.0)]), [0.0, 2.0], "the ID decides");
    }

    #[test]
    fn clear_forgets_objects_and_time() {
        let mut hold = Hold::default();
        update(&mut hold, at(0), &[face(10.0)]);
        hold.clear();
        assert_eq!(update(&mut hold, at(1), &[]), []);
        update(&mut hold, at(500), &[face(10.0)]);
        hold.clear();
        update(&mut hold, at(2), &[face(30.0)]);
        assert_eq!(update(&mut hold, at(3), &[]), [30.0]);
        assert_eq!(update(&mut hold, at(15), &[]), [], "the clock restarted with the earlier timestamp");
    }

    #[test]
    fn frames_without_timestamp_pass_by_duration_or_not_at_all() {
        let unknown = FrameTime::default();
        let lasting = FrameTime { timestamp: None, duration: Some(FRAME), is_discont: false };

        let mut hold = Hold::default();
        update(&mut hold, unknown, &[face(10.0)]);
        assert!((0..10_000).all(|_| update(&mut hold, unknown, &[]) == [10.0]), "no time passes");
        assert_eq!(update(&mut hold, at(0), &[]), [10.0], "the first timestamp is no elapsed time");
        assert_eq!(update(&mut hold, at(12), &[]), [10.0]);
        assert_eq!(update(&mut hold, at(13), &[]), []);

        let mut hold = Hold::default();
        update(&mut hold, lasting, &[face(10.0)]);
        assert!((1..=12).all(|_| update(&mut hold, lasting, &[]) == [10.0]));
        assert_eq!(update(&mut hold, lasting, &[]), []);

        let mut hold = Hold::default();
        update(&mut hold, at(0), &[face(10.0)]);
        assert_eq!(update(&mut hold, lasting, &[]), [10.0]);
        assert_eq!(update(&mut hold, at(12), &[]), [10.0], "the frame between does not count twice");
        assert_eq!(update(&mut hold, at(13), &[]), []);
    }

    #[test]
    fn timestamps_that_go_back_extend_the_hold() {
        let mut hold = Hold::default();
        update(&mut hold, at(1000), &[face(10.0)]);
        assert_eq!(update(&mut hold, at(0), &[]), [10.0]);
        assert_eq!(update(&mut hold, at(12), &[]), [10.0]);
        assert_eq!(update(&mut hold, at(13), &[]), [], "and then it ends");
    }

    #[test]
    fn unsteady_detector_without_time_is_bounded_and_stays_covered() {
        let mut hold = Hold::default();
        for frame in 0..1000 {
            hold.update(FrameTime::default(), HOLD, vec![face(f64::from(frame) * 100.0)]).for_each(drop);
            assert!(hold.covered.len() <= MAX_VANISHED + 1);
        }
        let covers =
            |x: f64| hold.covered.iter().any(|one| one.detection.area.union(face(x).area) == one.detection.area);
        assert!((0..1000).all(|frame| covers(f64::from(frame) * 100.0)));
    }
}
