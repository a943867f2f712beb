// SPDX-License-Identifier: MPL-2.0
//! Objects through time: which detections belong to the same object, and which area is covered in each frame, so that
//! the object stays covered when its detector loses it.
//!
//! `tests/tracks_reference.py` is the specification; its constants are measured (`benches/hiding`). A frame enters with its
//! detections and is decided when it leaves, `look-ahead` frames later. A detection is covered in its own frame under every
//! rule; the rules only add.

use std::collections::{BTreeSet, VecDeque};

use super::detection::Detection;
use crate::filter::regions::Area;

const MS: u64 = 1_000_000;
/// Detections of at most this age count as recent, in nanoseconds.
const RECENT: u64 = 300 * MS;
/// A detection may continue a track for at least this time after its last detection, in nanoseconds, whatever `hold-time`: a
/// detector may search less often than an object is held that was found once.
const CONTINUED: u64 = 1000 * MS;
/// After this time half of a full box's excess has faded.
const FULL: f64 = (4000 * MS) as f64;
/// An object that moves on without being found covers at most the distance of this time at its velocity.
const DAMPING: f64 = (500 * MS) as f64;
/// How fast a cover grows on each side without a detection, in sides of the full box a nanosecond of damped time.
const GROWTH: f64 = 1.2 / (1000 * MS) as f64;
/// Draws a velocity towards the previous one: as much as detections whose times differ by 50 ms.
const RIDGE: f64 = (50 * MS) as f64 * (50 * MS) as f64;
/// A lost object is held for the time for which it was seen, multiplied by this factor.
const TRUST: u64 = 8;
/// Two boxes have a similar size if their sides differ by no more than this factor.
const PARTIAL: f64 = 1.35;
/// The smallest intersection of a detection and the predicted box of its object, as a share of the smaller box.
const SAME: f64 = 0.25;
/// The smallest IoU of a detection and the predicted box of an object that was lost, if the object alone can be there.
const IN_PLACE: f64 = 0.5;
/// The largest factor by which the sides of two boxes of the same object differ.
const MAX_RATIO: f64 = 2.0;
/// The largest number of lost objects that are held one by one. If there are more, the oldest ones are held together,
/// by the box around them all.
const MAX_LOST: usize = 256;
/// The largest number of detections of a track before the frame that is decided. Only frames without a time, or more
/// than 850 frames in a second, have this many recent detections.
const MAX_RECENT: usize = 256;

/// How fast the left, upper, right and lower edge of a box move, in luma samples per nanosecond.
type Velocity = [f64; 4];

/// The values of `hold-time` and `on-lost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// How long a lost object stays covered at most, in nanoseconds.
    pub time: u64,
    /// Whether the whole frame is covered after that, until the object is found or replaced. For an object that was
    /// found in one frame only, this ends `time` after that frame.
    pub covers_lost: bool,
}

/// Whether an object was detected in a frame in which it is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// It was detected in it.
    Found,
    /// Not in it, but before: the object is covered to the place where it is predicted.
    Predicted,
    /// Not in it, but before and after.
    Bridged,
    /// Not in it, but after.
    Anticipated,
}

/// The cover of an object in a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct TrackedObject {
    /// The number of its track, from 1.
    pub track: u32,
    /// Whether it was detected in the frame.
    pub evidence: Evidence,
    /// The covered area, before `expand`.
    pub cover: Area,
    /// The detection that `expand` follows: of this frame, else the one before it, else the one after it.
    pub object: Area,
    /// The box that the strength of the cover and its cells follow: the detection or, if its shorter side is longer, the full
    /// box of the object, of which the detector may have found only a part.
    pub full: Area,
    /// The label of its detections.
    pub label: Option<String>,
}

/// The covers of a frame.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decided {
    /// The objects, those of the oldest tracks first.
    pub objects: Vec<TrackedObject>,
    /// Whether a lost object requires that the whole frame is covered.
    pub is_lost: bool,
}

/// A frame: its number, and its time in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Moment {
    frame: u64,
    time: u64,
}

/// A detection of a track.
#[derive(Debug, Clone)]
struct Seen {
    at: Moment,
    /// Its box. All edges are numbers.
    area: Area,
    /// The box as the detector gave it; its edges may be any value.
    object: Area,
    velocity: Velocity,
    full: Area,
}

/// The detections of an object, in ascending time; at least one.
#[derive(Debug, Clone)]
struct Track {
    number: u32,
    label: Option<String>,
    tracking_id: Option<u64>,
    /// The time of the first detection.
    first: u64,
    seen: Vec<Seen>,
    /// Whether it was found in more than one frame, so that it is probably no false detection.
    is_confirmed: bool,
    /// Whether it has taken the place of a lost one, if there was one.
    is_trusted: bool,
    /// When another track took its place.
    replaced_at: Option<u64>,
    /// When its ID was last found where it was not expected. If the ID was wrong, this jump was no movement.
    jumped_at: Option<u64>,
    /// Detections before this time say nothing about the velocity: the time of the last jump, until another jump follows soon. Several
    /// jumps are a fast movement.
    moves_since: u64,
    /// Whether its cover has ended. A detection may still continue it.
    has_ended: bool,
    /// Whether it stands for several objects.
    is_merged: bool,
    /// Before this frame it covers nothing, because another track covers its object there.
    since: u64,
}

/// How well a detection fits a track, the best first: by which rule, and how far from a perfect fit.
type Fit = (u8, f64);
const BY_ID: u8 = 0;
const BY_INTERSECTION: u8 = 1;
/// The ID says so, but the detection is where another track with an ID is predicted. Trackers confuse objects that are near each
/// other or not found for a while. A track without an ID may be of the same object, whose ID was missing in a frame.
const BY_JUMPED_ID: u8 = 2;

/// A detection of the frame that enters.
struct New<'a> {
    detection: &'a Detection,
    /// Its box. All edges are numbers.
    area: Area,
    is_weak: bool,
    /// The number that its tracker gave it, unless a detection elsewhere that may be of the same object has the same number in this
    /// frame: some trackers give one number to all objects that they do not follow. Of detections in one place the first has it.
    tracking_id: Option<u64>,
}

impl<'a> New<'a> {
    /// The detections of a frame of `size`, each with whether it is weak. A box of no size says that nothing was found.
    fn all(detections: impl Iterator<Item = (&'a Detection, bool)>, size: (u32, u32)) -> Vec<Self> {
        let found: Vec<_> = detections.filter(|(detection, _)| !detection.area.is_empty()).collect();
        let is_same = |one: &Detection, other: &Detection| {
            one.tracking_id == other.tracking_id && !is_contradicted(one.label.as_deref(), other.label.as_deref())
        };
        // One object that two detectors found has one number, too.
        let is_own = |index: usize, one: &Detection| {
            let mut others = found.iter().map(|(other, _)| other).enumerate().filter(|(_, other)| is_same(one, other));
            others.all(|(other, detection)| other == index || other > index && is_near(one.area, detection.area))
        };
        let all = found.iter().enumerate();
        let new = |(index, &(detection, is_weak)): (usize, &(&'a Detection, bool))| {
            let tracking_id = detection.tracking_id.filter(|_| is_own(index, detection));
            Self { detection, area: numbers(detection.area, size), is_weak, tracking_id }
        };
        all.map(new).collect()
    }
}

/// The objects of a stream.
#[derive(Debug, Default)]
pub struct Tracks {
    tracks: Vec<Track>,
    waiting: VecDeque<Moment>,
    /// Frames that have entered.
    frames: u64,
    /// The number of the latest track.
    number: u32,
}

impl Tracks {
    /// Adds the next frame, of `size` (width, height), and its detections, each with whether it is weak: then it may only
    /// continue a track. `time` is in nanoseconds and does not go back.
    pub fn observe<'a>(
        &mut self,
        time: u64,
        size: (u32, u32),
        holding: Holding,
        detections: impl Iterator<Item = (&'a Detection, bool)>,
    ) {
        let now = Moment { frame: self.frames, time };
        self.frames += 1;
        self.waiting.push_back(now);
        let found = New::all(detections, size);
        let pairs = self.pairs(now, holding, &found);
        let (mut is_used, mut is_found) = (vec![false; self.tracks.len()], vec![false; found.len()]);
        // The tracks without a doubtful detection: its tracker may have given it a wrong ID, or the object was lost and the detection is
        // only near its place. And whether they are held if no other detection is in their place.
        let mut copies: Vec<Option<(Track, bool)>> = vec![None; self.tracks.len()];
        for &((rule, miss), i, j) in &pairs {
            if is_used[i] || is_found[j] {
                continue;
            }
            (is_used[i], is_found[j]) = (true, true);
            let (track, new) = (&self.tracks[i], &found[j]);
            let is_lost = now.time - track.last().at.time > RECENT;
            let is_beside = rule == BY_INTERSECTION && is_lost && miss > -IN_PLACE;
            if rule != BY_INTERSECTION || is_beside {
                copies[i] = Some((track.without_id(), is_beside || track.has_jumped(now, new)));
            }
            self.give_id(new);
            self.tracks[i].add(now, new);
        }
        for &((rule, _), i, j) in &pairs {
            if rule == BY_INTERSECTION
                && !is_found[j]
                && let Some((mut copy, _)) = copies[i].take()
            {
                is_found[j] = true;
                self.give_id(&found[j]);
                copy.add(now, &found[j]);
                self.push(copy);
            }
        }
        for (copy, _) in copies.into_iter().flatten().filter(|(_, is_held)| *is_held) {
            // Like a lost object, but it does not have the whole frame covered.
            self.push(Track { replaced_at: Some(now.time), ..copy });
        }
        for (new, _) in found.iter().zip(is_found).filter(|(new, is_found)| !new.is_weak && !is_found) {
            self.give_id(new);
            self.push(Track::new(now, new));
        }
        self.replace_lost();
        self.merge_oldest(now, holding);
    }

    /// Which detections fit which tracks, the best pair first: indices of a track and of a detection in `found`. Weak detections come
    /// last.
    fn pairs(&self, now: Moment, holding: Holding, found: &[New]) -> Vec<(Fit, usize, usize)> {
        let mut pairs: Vec<(Fit, usize, usize)> = Vec::new();
        // Whether a detection is where a covered track with another ID is predicted.
        let mut is_expected = vec![false; found.len()];
        for (i, track) in self.tracks.iter().enumerate().filter(|(_, track)| track.is_open(now, holding)) {
            let predicted = track.predicted(now.time);
            for (j, new) in found.iter().enumerate() {
                let fit = track.fit(predicted, new);
                let has_id = track.tracking_id.is_some() && !track.has_ended;
                is_expected[j] |= has_id && matches!(fit, Some((BY_INTERSECTION, _)));
                pairs.extend(fit.map(|fit| (fit, i, j)));
            }
        }
        for ((rule, _), _, j) in &mut pairs {
            if *rule == BY_JUMPED_ID && !is_expected[*j] {
                // No other object is there, so it moved fast.
                *rule = BY_ID;
            }
        }
        let is_weak = |j: usize| found[j].is_weak;
        pairs.sort_unstable_by(|&((rule, miss), i, j), &((other_rule, other_miss), k, l)| {
            let by_rule = (is_weak(j), rule).cmp(&(is_weak(l), other_rule));
            by_rule.then(miss.total_cmp(&other_miss)).then((i, j).cmp(&(k, l)))
        });
        pairs
    }

    /// Adds a track, which gets the next number.
    fn push(&mut self, track: Track) {
        self.number = self.number.saturating_add(1);
        self.tracks.push(Track { number: self.number, ..track });
    }

    /// Takes a tracking ID from the tracks that had it, before the track of this detection gets it: it is of one object only.
    fn give_id(&mut self, new: &New) {
        let label = new.detection.label.as_deref();
        let had_it = |track: &&mut Track| {
            track.tracking_id == new.tracking_id && !is_contradicted(track.label.as_deref(), label)
        };
        self.tracks.iter_mut().filter(had_it).for_each(|track| track.tracking_id = None);
    }

    /// Decides what is covered in the oldest frame that waits, of `size`. Nothing if none waits.
    pub fn resolve(&mut self, size: (u32, u32), holding: Holding) -> Decided {
        let mut decided = Decided::default();
        let Some(now) = self.waiting.pop_front() else { return decided };
        self.tracks.retain_mut(|track| {
            let is_needed = track.resolve(now, size, holding, &mut decided);
            track.forget_before(now);
            is_needed
        });
        decided
    }

    /// Forgets all objects and the frames that wait.
    pub fn clear(&mut self) {
        self.tracks.clear();
        self.waiting.clear();
    }

    /// A track that is trusted for the first time replaces a lost track of its label: of those that ended before it
    /// started, the one nearest to its first box. A lost track that was found in one frame only is replaced only if
    /// there is no other one, because it ends by itself.
    fn replace_lost(&mut self) {
        for i in 0..self.tracks.len() {
            let new = &mut self.tracks[i];
            if new.is_trusted || new.trust() <= RECENT {
                continue;
            }
            new.is_trusted = true;
            let (first, area, label) = (new.first, new.seen[0].area, new.label.clone());
            let is_replaced = |old: &&mut Track| {
                let is_lost = old.last().at.time < first && !old.has_ended;
                is_lost && old.label == label && old.replaced_at.is_none() && !old.is_merged
            };
            let lost = self.tracks.iter_mut().filter(is_replaced);
            let order = |one: &&mut Track, other: &&mut Track| {
                let [near, far] = [one, other].map(|old| distance(old.last().area, area));
                other.is_confirmed.cmp(&one.is_confirmed).then(near.total_cmp(&far))
            };
            if let Some(old) = lost.min_by(order) {
                old.replaced_at = Some(first);
            }
        }
    }

    /// The lost tracks: the frame in which each was found last, and its index; the oldest first.
    fn lost(&self, now: Moment) -> Vec<(u64, usize)> {
        let all = self.tracks.iter().enumerate().map(|(i, track)| (track.last().at.frame, i));
        let mut lost: Vec<(u64, usize)> = all.filter(|(frame, _)| *frame != now.frame).collect();
        lost.sort_unstable();
        lost
    }

    /// Replaces the lost objects that were found longest ago, beyond [`MAX_LOST`], by one around them all. Before that it
    /// forgets the oldest tracks whose cover has ended, because they cover nothing.
    fn merge_oldest(&mut self, now: Moment, holding: Holding) {
        let lost = self.lost(now);
        let beyond = lost.len().saturating_sub(MAX_LOST);
        let ended = lost.into_iter().filter(|(_, i)| self.tracks[*i].has_ended);
        let forgotten: BTreeSet<usize> = ended.map(|(_, i)| i).take(beyond).collect();
        let mut i = 0..;
        self.tracks.retain(|_| i.next().is_none_or(|i| !forgotten.contains(&i)));
        if forgotten.len() == beyond {
            return;
        }
        let lost = self.lost(now);
        let youngest = lost[lost.len() - MAX_LOST];
        let tracks = std::mem::take(&mut self.tracks).into_iter().enumerate();
        let (oldest, rest): (Vec<_>, Vec<_>) = tracks.partition(|(i, track)| (track.last().at.frame, *i) <= youngest);
        self.tracks = rest.into_iter().map(|(_, track)| track).collect();
        self.tracks.extend(Track::merged(oldest.into_iter().map(|(_, track)| track), holding));
    }
}

impl Track {
    fn new(at: Moment, &New { detection, area, tracking_id, .. }: &New) -> Self {
        let seen = Seen { at, area, object: detection.area, velocity: [0.0; 4], full: area };
        Self {
            number: 0,
            label: detection.label.clone(),
            tracking_id,
            first: at.time,
            seen: vec![seen],
            is_confirmed: false,
            is_trusted: false,
            replaced_at: None,
            jumped_at: None,
            moves_since: 0,
            has_ended: false,
            is_merged: false,
            since: 0,
        }
    }

    /// The track in case that its ID, which says that a detection is of its object, is wrong. In the frames up to its last detection
    /// the track itself covers the object.
    fn without_id(&self) -> Self {
        Self { tracking_id: None, since: self.last().at.frame + 1, ..self.clone() }
    }

    /// One track around all of these. It does not move, and no detection continues it. It covers the whole frame for as
    /// long as one of them would have.
    fn merged(tracks: impl Iterator<Item = Self>, holding: Holding) -> Option<Self> {
        tracks.reduce(|one, other| {
            let ends_of_cover = one.covers_until(holding).zip(other.covers_until(holding));
            let full = one.seen.iter().chain(&other.seen).map(|seen| seen.full).reduce(Area::union);
            let full = full.expect("each has a detection");
            // In all frames before it is covered as what is found later.
            let at = [one.last().at, other.last().at].into_iter().max_by_key(|at| at.frame).expect("two");
            Self {
                number: other.number,
                label: None,
                tracking_id: None,
                first: one.first.min(other.first),
                seen: vec![Seen { at, area: full, object: full, velocity: [0.0; 4], full }],
                is_confirmed: true,
                is_trusted: true,
                replaced_at: ends_of_cover.map(|(one, other)| one.max(other)),
                jumped_at: None,
                moves_since: 0,
                has_ended: false,
                is_merged: true,
                since: one.since.min(other.since),
            }
        })
    }

    fn last(&self) -> &Seen {
        self.seen.last().expect("a track has a detection")
    }

    /// Where its last detection is predicted.
    fn predicted(&self, time: u64) -> Area {
        predict(self.last(), self.last().velocity, time)
    }

    fn trust(&self) -> u64 {
        self.trust_at(self.last())
    }

    /// Its trust when this was its last detection. The time between two searches that found it counts as seen.
    fn trust_at(&self, last: &Seen) -> u64 {
        TRUST.saturating_mul(last.at.time - self.first)
    }

    /// For how long it is held if this is its last detection.
    fn limit(&self, last: &Seen, holding: Holding) -> u64 {
        holding.time.min(self.trust_at(last).max(RECENT))
    }

    /// Whether its last detection is so recent that another one may continue it, although its cover may have ended.
    fn is_recent(&self, time: u64, holding: Holding) -> bool {
        !self.is_merged && time - self.last().at.time < holding.time.max(CONTINUED)
    }

    /// Whether a detection of the frame `now` may continue it.
    fn is_open(&self, now: Moment, holding: Holding) -> bool {
        let is_next = self.last().at.frame + 1 == now.frame;
        !self.is_merged && (is_next || self.is_recent(now.time, holding) || self.covers_all(now.time, holding))
    }

    /// How well a detection fits the track, whose object is `predicted` there; `None` if it is of another object.
    fn fit(&self, predicted: Area, &New { detection, area, tracking_id, .. }: &New) -> Option<Fit> {
        let is_near = is_near(predicted, area);
        let is_other = || is_contradicted(self.label.as_deref(), detection.label.as_deref());
        if tracking_id.is_some() && tracking_id == self.tracking_id && !is_other() {
            return Some((if is_near { BY_ID } else { BY_JUMPED_ID }, 0.0));
        }
        let is_same = is_near && is_similar(self.last().area, area, MAX_RATIO) && detection.label == self.label;
        let [common, one, other] = [predicted.intersection(area), predicted, area].map(Area::size);
        is_same.then(|| (BY_INTERSECTION, -common / (one + other - common)))
    }

    /// Whether this detection is not where the object is predicted.
    fn has_jumped(&self, now: Moment, new: &New) -> bool {
        !is_near(self.predicted(now.time), new.area)
    }

    fn add(&mut self, at: Moment, new: &New) {
        let &New { detection, area, tracking_id, .. } = new;
        let last = self.last();
        let full = carry(last.full, last.velocity, (at.time - last.at.time) as f64, area);
        let mut previous = last.velocity;
        if self.has_jumped(at, new) {
            let is_first = self.jumped_at.is_none_or(|jumped| at.time - jumped > RECENT);
            (previous, self.moves_since) = if is_first { ([0.0; 4], at.time) } else { (previous, 0) };
            self.jumped_at = Some(at.time);
        }
        self.seen.push(Seen { at, area, object: detection.area, velocity: previous, full });
        // Found again, it was not replaced, and is covered again.
        (self.is_confirmed, self.replaced_at, self.has_ended) = (true, None, false);
        let is_old = |one: &Seen| at.time - one.at.time > RECENT || one.at.time < self.moves_since;
        let recent = self.seen.partition_point(is_old);
        let velocity = slope(self.seen[recent..].iter(), self.last(), previous);
        self.seen.last_mut().expect("it was just added").velocity = velocity;
        self.tracking_id = tracking_id.or(self.tracking_id);
    }

    /// The time until which it covers the whole frame once its limit is over; `None` if only a detection ends that.
    fn covers_until(&self, holding: Holding) -> Option<u64> {
        let held = self.last().at.time.saturating_add(holding.time);
        let ends = [(!self.is_confirmed).then_some(held), self.replaced_at];
        ends.into_iter().flatten().min()
    }

    /// Whether it covers the whole frame once its limit is over.
    fn covers_all(&self, time: u64, holding: Holding) -> bool {
        holding.covers_lost && self.covers_until(holding).is_none_or(|end| time < end)
    }

    /// The full box of a detection: detections shortly before and after it count, too.
    fn full_box(&self, index: usize) -> Area {
        let at = &self.seen[index];
        let end = self.seen.partition_point(|one| one.at.time <= at.at.time.saturating_add(RECENT));
        let mut full = self.seen[end - 1].full;
        for pair in self.seen[index..end].windows(2).rev() {
            let [one, following] = pair else { break };
            full = carry(full, following.velocity, between(following.at.time, one.at.time), one.area);
        }
        at.full.union(full)
    }

    /// The cover at `time` if only one neighbour in time is known, and the predicted box.
    fn cover_from(&self, index: usize, time: u64) -> (Area, Area) {
        let at = &self.seen[index];
        let velocity = if time < at.at.time {
            let following = self.seen[index..].iter().take_while(|one| one.at.time - at.at.time <= RECENT);
            slope(following, at, [0.0; 4])
        } else {
            at.velocity
        };
        let (full, predicted) = (self.full_box(index), predict(at, velocity, time));
        // It turns, stops and comes back, also into the picture; and perhaps only a part of it was found last.
        let margin = GROWTH * side(full) * damped(between(at.at.time, time)).abs();
        let [all, moved_to, moved_from] = [full, predicted, at.area].map(Area::edges);
        let moved = Area::from_edges(std::array::from_fn(|i| all[i] + moved_to[i] - moved_from[i]));
        (full.union(moved).wider(margin), predicted)
    }

    /// The cover at `time`, between two detections.
    fn cover_between(&self, previous: usize, next: usize, time: u64, holding: Holding) -> Area {
        let hull = self.full_box(previous).union(self.full_box(next));
        let [one, other] = [previous, next].map(|index| &self.seen[index]);
        if other.at.time - one.at.time < self.limit(one, holding) {
            return hull;
        }
        // Its cover had ended. So it is covered at least as if the second detection had started a track.
        let [from, to] = [previous, next].map(|index| self.cover_from(index, time).0);
        hull.union(from).union(to)
    }

    /// Adds the cover of the track in a frame. Returns whether the track is needed for later frames.
    fn resolve(&mut self, now: Moment, size: (u32, u32), holding: Holding, decided: &mut Decided) -> bool {
        if now.frame < self.since {
            return true;
        }
        let next = self.seen.partition_point(|one| one.at.frame <= now.frame);
        let mut cover = |evidence, index: usize, cover: Area| {
            let (object, label) = (self.seen[index].object, self.label.clone());
            let full = self.full_box(index);
            // The sides of a detection may be no numbers.
            let full = if full.short_side() >= object.short_side() { full } else { object };
            decided.objects.push(TrackedObject { track: self.number, evidence, cover, object, full, label });
        };
        let Some(previous) = next.checked_sub(1) else {
            // Nothing limits the distance to the frame in which it is found, because the look-ahead bounds it.
            cover(Evidence::Anticipated, next, self.cover_from(next, now.time).0);
            return true;
        };
        let last = self.seen[previous].at;
        if last.frame == now.frame {
            cover(Evidence::Found, previous, self.full_box(previous));
            return true;
        }
        if next < self.seen.len() {
            cover(Evidence::Bridged, previous, self.cover_between(previous, next, now.time, holding));
            return true;
        }
        let limit = self.limit(self.last(), holding);
        let (area, predicted) = self.cover_from(previous, now.time);
        if now.time - last.time < limit || limit > 0 && last.frame + 1 == now.frame {
            cover(Evidence::Predicted, previous, area);
            return true;
        }
        let is_lost = !self.has_ended && self.covers_all(now.time, holding) && !is_outside(predicted, size);
        decided.is_lost |= is_lost;
        self.has_ended = !is_lost;
        is_lost || self.is_recent(now.time, holding)
    }

    /// Forgets detections that no later frame needs.
    fn forget_before(&mut self, now: Moment) {
        let next = self.seen.partition_point(|one| one.at.frame <= now.frame);
        let Some(previous) = next.checked_sub(1) else { return };
        let since = self.seen[previous].at.time.saturating_sub(RECENT);
        let old = self.seen.partition_point(|one| one.at.time < since);
        self.seen.drain(..old.max(next.saturating_sub(MAX_RECENT)));
    }
}

/// A box whose edges, and the sums of these, are numbers. An edge that is not a number becomes the picture's edge.
pub(super) fn numbers(area: Area, (width, height): (u32, u32)) -> Area {
    const FAR: f64 = (1_u64 << 40) as f64;
    let number = |edge: f64, picture: f64| if edge.is_nan() { picture } else { edge.clamp(-FAR, FAR) };
    Area {
        left: number(area.left, 0.0),
        top: number(area.top, 0.0),
        right: number(area.right, width.into()),
        bottom: number(area.bottom, height.into()),
    }
}

fn side(area: Area) -> f64 {
    (area.right - area.left).max(area.bottom - area.top)
}

/// Twice the distance of the centres.
fn distance(one: Area, other: Area) -> f64 {
    let across = one.left + one.right - other.left - other.right;
    let down = one.top + one.bottom - other.top - other.bottom;
    across.hypot(down)
}

fn is_similar(one: Area, other: Area, factor: f64) -> bool {
    side(one) <= factor * side(other) && side(other) <= factor * side(one)
}

/// Whether two boxes may be of one object, by their places.
fn is_near(one: Area, other: Area) -> bool {
    let [common, one, other] = [one.intersection(other), one, other].map(Area::size);
    common > 0.0 && common >= SAME * one.min(other)
}

/// Whether two labels are of different objects. An unknown label may be any.
fn is_contradicted(one: Option<&str>, other: Option<&str>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// Whether a box is wholly outside of the picture.
fn is_outside(area: Area, (width, height): (u32, u32)) -> bool {
    area.right <= 0.0 || area.bottom <= 0.0 || area.left >= f64::from(width) || area.top >= f64::from(height)
}

/// The time from one moment to another, in nanoseconds.
fn between(from: u64, to: u64) -> f64 {
    if to >= from { (to - from) as f64 } else { -((from - to) as f64) }
}

/// The least-squares slope of each edge over the detections of a similar size, drawn towards `prior`. `at` is one of them.
fn slope<'a>(seen: impl Iterator<Item = &'a Seen> + Clone, at: &Seen, prior: Velocity) -> Velocity {
    let near = seen
        .filter(|one| is_similar(one.area, at.area, PARTIAL))
        .map(|one| (between(at.at.time, one.at.time), one.area.edges()));
    let (count, sum) = near.clone().fold((0.0, 0.0), |(count, sum), (dt, _)| (count + 1.0, sum + dt));
    let mean = sum / count;
    let (mut spread, mut products) = (RIDGE, prior.map(|velocity| RIDGE * velocity));
    for (dt, edges) in near {
        spread += (dt - mean) * (dt - mean);
        (0..4).for_each(|i| products[i] += (dt - mean) * edges[i]);
    }
    products.map(|product| product / spread)
}

/// The time for which a prediction moves an object. It grows more and more slowly, because the object slows down.
fn damped(dt: f64) -> f64 {
    dt * DAMPING / (DAMPING + dt.abs())
}

/// Where a detection is predicted at `time`: it slows down.
fn predict(from: &Seen, velocity: Velocity, time: u64) -> Area {
    let (dt, edges) = (damped(between(from.at.time, time)), from.area.edges());
    Area::from_edges(std::array::from_fn(|i| edges[i] + velocity[i] * dt))
}

/// The full box of a detection, from that of its neighbour in time, `dt` nanoseconds away: moved by the neighbour's velocity, and
/// faded.
fn carry(full: Area, velocity: Velocity, dt: f64, area: Area) -> Area {
    let centre = [(velocity[0] + velocity[2]) / 2.0, (velocity[1] + velocity[3]) / 2.0];
    let fade = FULL / (FULL + dt.abs());
    let (full, edges) = (full.edges(), area.edges());
    area.union(Area::from_edges(std::array::from_fn(|i| edges[i] + (full[i] + centre[i % 2] * dt - edges[i]) * fade)))
}

#[cfg(test)]
mod tests {
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
            assert!(
                decided.objects[0].evidence == Evidence::Found && is_covered(&decided, face(110.0).area),
                "{frame}"
            );
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
        assert_eq!(
            back.iter().position(|is_lost| !is_lost),
            Some(1),
            "seen for 40 ms, it is trusted for 320 ms: {back:?}"
        );
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
}
