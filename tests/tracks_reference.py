# SPDX-License-Identifier: MPL-2.0
"""Reference of covers in time: what is covered in each frame, so that an object stays covered when its detector loses it.

Deterministic. Times are integer nanoseconds and ascend; boxes are (left, top, right, bottom) in pixels, before `expand`.
A frame enters with its detections and leaves `look_ahead` frames later, with the boxes that are covered in it. A detection
is covered in its own frame under every rule below; the rules only add.

Track: its detections in ascending time, label, tracking id, time of the first detection. Detection of a track: time, box,
velocity (of each edge), full box. "Side" of a box is the longer one; two boxes have a similar size if their sides differ
by no more than a factor of PARTIAL.

Tracking ids: labels contradict each other if there are two and they differ. An id that two detections of a frame have whose
labels do not contradict each other is no id in this frame; but if the intersection of the two is SAME or more of the smaller
one, the first of them has the id. An id is of one track of a label: of that which got it last.

Matching, when a frame enters, the best pair first; a detection and a track take part in one pair at most:
 1. the same tracking id, and labels that do not contradict each other; after all other pairs, if the intersection with the
    track's predicted box is less than SAME of the smaller of the two and rule 2 holds for another track that has an id and whose
    cover has not ended: then the id has probably jumped from one object to the other. The old track stays covered as lost;
 2. not rule 1, the same label, sides within a factor of MAX_RATIO, and the intersection with the track's predicted box is SAME or
    more of the smaller of the two; the largest IoU first. (A part of a face is within the face.)
A pair is doubtful by rule 1, because the id may be wrong, and by rule 2 if the track's last detection is more than RECENT ago and
the IoU with the predicted box is less than IN_PLACE, because the detection may be of another object near the lost one. So,
after all pairs, the next detection that rule 2 allows for the track of a doubtful pair continues a copy of the track as it was before
this frame, without the id. If there is no such detection, the copy stays if the pair is doubtful by rule 2, or if its intersection is less than
SAME of the smaller of the two: like a lost object, but already replaced, so that it never has the whole frame covered. A copy
covers nothing in the frames up to its last detection before this frame, where the track does.
A weak detection, one whose confidence is below `min-confidence`, continues a track if no other detection does. What is left
starts a track, unless it is weak. "The same label" includes that both have none. A detection farther away starts a track even
if it is of the same object; the lost track stays covered beside it.

Trust of a track at a detection: TRUST times as long as it was seen up to then (since its first detection). The time between two
searches that found it counts as seen, so what a slow detector finds twice is held over the next gap. Detections of the look-ahead
count, too.
Limit of a track at a detection: it is held for its trust, at least for RECENT, at most for `hold`. So a single false detection is
covered, but not for long. A track is matched for `hold`, at least for CONTINUED, after its last detection, though its cover
may have ended before; in the frame after its last detection; and while it has the whole frame covered.

Velocity at a detection: the least-squares slope of each edge over the track's detections of similar size in the RECENT
before it, drawn towards the velocity at the track's previous detection: (S * slope + RIDGE * previous) / (S + RIDGE), with S
the sum of (time - mean time)^2. The first has 0. So neither two detections nor a sudden partial box make a speed.
A jump is a detection whose intersection with the predicted box is less than SAME of the smaller of the two. If the jump before it
was more than RECENT ago, it has 0 like the first, and detections before it do not count for those after it up to the next jump: if
its id was wrong, it is no movement. Several jumps are a fast movement.
Prediction from a detection: its box moved by velocity * damped(dt), with damped(dt) = dt * DAMPING / (DAMPING + |dt|), at
most DAMPING. Backwards: with the slope over the RECENT after it, drawn towards 0.

Full box of a detection: the hull of its box and the previous full box, moved by the previous velocity of the centre, whose
excess over the box fades by FULL / (FULL + dt). So a cover does not shrink at once, neither by flicker nor because only the
jaw is found. With look-ahead the same runs backwards over the RECENT that follows, and the hull of both counts.

Cover of a track at time t, with p its last detection at or before t and n its first after t, if it has entered:
 - p at t: its full box.
 - p and n: the hull of both full boxes, however long the gap is. If the gap is as long as the limit at p or longer, the cover had
   ended: then also the covers from p alone and from n alone, so that no less is covered than if n had started a track.
 - p alone and less than the limit ago, or in the previous frame: from p. n alone: from n, whatever the limit; n is at most
   `look_ahead` frames ahead.
   "From q": the hull of q's full box and of that moved by the prediction, grown on each side by GROWTH * the side of q's
   full box * damped(dt): what is lost turns, stops and comes back, also into the picture, and a part of it may have been
   found last.
 - p alone and the limit over: by `on_lost`. "release": nothing. "cover": the whole frame, unless it is predicted wholly outside
   the picture, until it is found, or another track replaces it. A track that was found in one frame only, which is probably
   false, has it covered until `hold` after that frame; one that was found in more, however long that takes. So more `hold` is
   never less cover. When a track's trust first exceeds RECENT, it replaces one lost track of its label, of those that were
   last found before it started and whose cover has not ended, from its start on: one that was found in more than one frame, if
   there is one, because a false detection would else leave a lost object covering for ever; of these the one nearest to its
   first box. One that is found again has not  been replaced. A cover that has ended begins again only by a detection, or by a
   longer `hold`.

Reset: `drain` decides the frames that wait and forgets everything: EOS, another picture size, a discontinuity that goes back
by more than `hold`. A flush forgets without deciding. Other caps of the same size decide the frames that wait and forget
nothing; the same caps and a new segment change nothing. A discontinuity forward is lost frames: time just passes.
Bounds: beyond 256 lost tracks the oldest of those whose cover has ended are forgotten; if there are none, the oldest become
one, the hull of their full boxes with velocity 0, which has the whole frame covered for as long as one of them would have (not
done here). A frame that enters has no more than 256 detections and 64 that stand for several (`Rules::bound` in
src/regions/rules.rs).
Cost of a frame: O(tracks * detections) to match, O(detections kept) to decide; kept are those from RECENT before p on.
"""
import copy
import json
import math
import sys

MS = 1_000_000
RECENT, FULL, DAMPING, RIDGE = 300 * MS, 4000 * MS, 500 * MS, (50 * MS) ** 2
CONTINUED = 1000 * MS
TRUST, GROWTH, PARTIAL, SAME, IN_PLACE, MAX_RATIO = 8, 1.2, 1.35, 0.25, 0.5, 2.0


def hull(a, b):
    return (min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3]))


def side(box):
    return max(box[2] - box[0], box[3] - box[1])


def area(box):
    return max(box[2] - box[0], 0) * max(box[3] - box[1], 0)


def intersection(a, b):
    return area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))


def distance(a, b):
    """Of the centres."""
    return math.hypot(a[0] + a[2] - b[0] - b[2], a[1] + a[3] - b[1] - b[3]) / 2


def is_within(a, b, factor):
    return side(a) <= factor * side(b) and side(b) <= factor * side(a)


def is_near(a, b):
    return 0 < intersection(a, b) >= SAME * min(area(a), area(b))


def may_be_one(label, other):
    return label == other or label is None or other is None


class Seen:
    """A detection of a track."""

    def __init__(self, time, box, velocity=(0.0,) * 4, full=None):
        self.time, self.box, self.velocity, self.full = time, box, velocity, full or box


def damped(dt):
    return dt * DAMPING / (DAMPING + abs(dt))


def slope(seen, at, prior):
    """Pixels per nanosecond of each edge."""
    near = [(one.time - at.time, one.box) for one in seen if is_within(one.box, at.box, PARTIAL)]
    mean = sum(dt for dt, _ in near) / len(near)
    spread = sum((dt - mean) ** 2 for dt, _ in near)
    return tuple((sum((dt - mean) * box[i] for dt, box in near) + RIDGE * prior[i]) / (spread + RIDGE) for i in range(4))


def carry(full, velocity, dt, box):
    """The full box of `box`, from that of the neighbour in time, `dt` away."""
    centre = ((velocity[0] + velocity[2]) / 2, (velocity[1] + velocity[3]) / 2) * 2
    fade = FULL / (FULL + abs(dt))
    return hull(box, tuple(edge + (old + v * dt - edge) * fade for edge, old, v in zip(box, full, centre)))


class Track:
    def __init__(self, box, label, tracking_id, time):
        self.seen, self.first, self.label, self.tracking_id = [Seen(time, box)], time, label, tracking_id
        self.is_confirmed, self.is_trusted, self.replaced_at, self.has_ended = False, False, None, False
        # Before this time it covers nothing.
        self.since = 0
        self.jumped_at, self.moves_since = None, 0

    def without_id(self):
        copied = copy.copy(self)
        copied.seen, copied.tracking_id, copied.since = list(self.seen), None, self.seen[-1].time + 1
        return copied

    def add(self, time, box):
        last, new = self.seen[-1], Seen(time, box)
        prior = last.velocity
        if self.has_jumped(time, box):
            is_first = self.jumped_at is None or time - self.jumped_at > RECENT
            prior, self.moves_since = ((0.0,) * 4, time) if is_first else (prior, 0)
            self.jumped_at = time
        self.seen.append(new)
        # Found again, it was not replaced.
        self.is_confirmed, self.replaced_at, self.has_ended = True, None, False
        since = max(time - RECENT, self.moves_since)
        new.velocity = slope([one for one in self.seen if one.time >= since], new, prior)
        new.full = carry(last.full, last.velocity, time - last.time, box)

    def has_jumped(self, time, box):
        return not is_near(self.predicted(self.seen[-1], time), box)

    def trust(self, at):
        return TRUST * (at.time - self.first)

    def limit(self, at, hold):
        return min(hold, max(RECENT, self.trust(at)))

    def predicted(self, at, time, backwards=False):
        v = at.velocity
        if backwards:
            v = slope([one for one in self.seen if 0 <= one.time - at.time <= RECENT], at, (0.0,) * 4)
        return tuple(edge + s * damped(time - at.time) for edge, s in zip(at.box, v))

    def full_box(self, at):
        after = [one for one in self.seen if at.time < one.time <= at.time + RECENT]
        full = after[-1].full if after else at.full
        for one, following in zip(reversed([at] + after[:-1]), reversed(after)):
            full = carry(full, following.velocity, one.time - following.time, one.box)
        return hull(at.full, full)

    def cover_from(self, at, time, backwards=False):
        """The cover where one neighbour in time is known, and the predicted box."""
        full, predicted = self.full_box(at), self.predicted(at, time, backwards)
        m = GROWTH * side(full) * abs(damped(time - at.time)) / 1e9
        box = hull(full, tuple(edge + new - old for edge, new, old in zip(full, predicted, at.box)))
        return (box[0] - m, box[1] - m, box[2] + m, box[3] + m), predicted

    def cover_between(self, p, n, time, hold):
        box = hull(self.full_box(p), self.full_box(n))
        if n.time - p.time >= self.limit(p, hold):
            box = hull(box, hull(self.cover_from(p, time)[0], self.cover_from(n, time, backwards=True)[0]))
        return box


class Tracks:
    def __init__(self, width, height, hold=3000 * MS, look_ahead=0, on_lost="release"):
        self.size, self.hold, self.look_ahead, self.on_lost = (width, height), hold, look_ahead, on_lost
        self.tracks, self.waiting, self.last_entered, self.last_decided = [], [], None, None

    def push(self, time, detections, weak=()):
        """A frame and its detections (box, label, tracking id). Returns [(time, boxes, or None for the whole frame)]."""
        self.match(time, list(detections), list(weak))
        self.waiting.append(time)
        return [self.decide()] if len(self.waiting) > self.look_ahead else []

    def drain(self):
        decided = [self.decide() for _ in range(len(self.waiting))]
        self.tracks, self.last_entered, self.last_decided = [], None, None
        return decided

    def pair(self, track, time, detection):
        """How well they fit, less is better, or None. 2 is by an id, but far away."""
        new, label, tracking_id = detection
        old = track.predicted(track.seen[-1], time)
        common = intersection(old, new)
        if tracking_id is not None and tracking_id == track.tracking_id and may_be_one(label, track.label):
            return (0, 0.0) if is_near(old, new) else (2, 0.0)
        if not is_near(old, new) or label != track.label or not is_within(track.seen[-1].box, new, MAX_RATIO):
            return None
        return 1, -common / (area(old) + area(new) - common)

    def take_id(self, label, tracking_id):
        for track in self.tracks:
            if tracking_id is not None and track.tracking_id == tracking_id and may_be_one(label, track.label):
                track.tracking_id = None

    def match(self, time, detections, weak):
        pairs, certain, detections = [], len(detections), detections + weak
        same = lambda one, other: one[2] == other[2] and may_be_one(one[1], other[1])
        own = lambda i, one: all(j == i or j > i and is_near(one[0], other[0])
                                 for j, other in enumerate(detections) if same(one, other))
        detections = [(*one[:2], one[2] if own(i, one) else None) for i, one in enumerate(detections)]
        for i, track in enumerate(self.tracks):
            last = track.seen[-1].time
            if self.is_recent(track, time) or last == self.last_entered or self.covers_all(track, time):
                fits = ((self.pair(track, time, detection), j) for j, detection in enumerate(detections))
                pairs += [((j >= certain, *fit), i, j) for fit, j in fits if fit]
        has_id = lambda track: track.tracking_id is not None and not track.has_ended
        expected = {j for (_, rule, _), i, j in pairs if rule == 1 and has_id(self.tracks[i])}
        pairs = [((weak, 0 if rule == 2 and j not in expected else rule, miss), i, j) for (weak, rule, miss), i, j in pairs]
        used, found, copies = set(), set(), {}

        def add(track, j):
            box, label, tracking_id = detections[j]
            found.add(j)
            self.take_id(label, tracking_id)
            track.add(time, box)
            track.tracking_id = tracking_id if tracking_id is not None else track.tracking_id

        for (_, rule, miss), i, j in sorted(pairs):
            if i not in used and j not in found:
                used.add(i)
                track = self.tracks[i]
                is_beside = rule == 1 and time - track.seen[-1].time > RECENT and miss > -IN_PLACE
                if rule != 1 or is_beside:
                    copies[i] = track.without_id(), is_beside or track.has_jumped(time, detections[j][0])
                add(track, j)
        for (_, rule, _), i, j in sorted(pairs):
            if rule == 1 and j not in found and i in copies:
                copied, _ = copies.pop(i)
                add(copied, j)
                self.tracks.append(copied)
        for _, (copied, is_held) in sorted(copies.items()):
            if is_held:
                copied.replaced_at = time
                self.tracks.append(copied)
        for j, (box, label, tracking_id) in enumerate(detections[:certain]):
            if j not in found:
                self.take_id(label, tracking_id)
                self.tracks.append(Track(box, label, tracking_id, time))
        self.replace()
        self.last_entered = time

    def replace(self):
        for new in self.tracks:
            if not new.is_trusted and new.trust(new.seen[-1]) > RECENT:
                new.is_trusted = True
                lost = [one for one in self.tracks if one.seen[-1].time < new.first and one.label == new.label
                        and one.replaced_at is None and not one.has_ended]
                if lost:
                    order = lambda one: (not one.is_confirmed, distance(one.seen[-1].box, new.seen[0].box))
                    min(lost, key=order).replaced_at = new.first

    def is_recent(self, track, time):
        return time - track.seen[-1].time < max(self.hold, CONTINUED)

    def covers_all(self, track, time):
        """Whether the track, once its limit is over, has the whole frame covered."""
        is_lost = track.replaced_at is None or time < track.replaced_at
        return self.on_lost == "cover" and is_lost and (track.is_confirmed or time - track.seen[-1].time < self.hold)

    def is_outside(self, box):
        return box[2] <= 0 or box[3] <= 0 or box[0] >= self.size[0] or box[1] >= self.size[1]

    def decide(self):
        time, boxes, is_whole, kept = self.waiting.pop(0), [], False, []
        for track in self.tracks:
            is_kept = True
            if time < track.since:
                kept.append(track)
                continue
            p = next((one for one in reversed(track.seen) if one.time <= time), None)
            n = next((one for one in track.seen if one.time > time), None)
            if p and p.time == time:
                boxes.append(track.full_box(p))
            elif p and n:
                boxes.append(track.cover_between(p, n, time, self.hold))
            elif p:
                limit, (box, predicted) = track.limit(p, self.hold), track.cover_from(p, time)
                is_kept = time - p.time < limit or limit > 0 and p.time == self.last_decided
                if is_kept:
                    boxes.append(box)
                elif not track.has_ended and self.covers_all(track, time) and not self.is_outside(predicted):
                    is_kept = is_whole = True
                else:
                    track.has_ended, is_kept = True, self.is_recent(track, time)
            else:
                boxes.append(track.cover_from(n, time, backwards=True)[0])
            if p:
                track.seen = [one for one in track.seen if one.time >= p.time - RECENT]
            if is_kept:
                kept.append(track)
        self.tracks, self.last_decided = kept, time
        return time, None if is_whole else boxes


def check():
    """A face runs at 40 pixels a frame, is lost for 10 frames, and a false detection lies elsewhere."""
    truth = [(100 + 40 * i, 200, 200 + 40 * i, 320) for i in range(28)]
    is_found = [i < 12 or i >= 22 for i in range(28)]
    for look_ahead in (0, 5, 15):
        tracks, decided = Tracks(1280, 720, look_ahead=look_ahead), []
        for i, box in enumerate(truth):
            found = [(box, "face", None)] * is_found[i] + [((900, 600, 960, 660), "face", None)] * (i == 5)
            decided += tracks.push(i * 40 * MS, found)
        decided += tracks.drain()
        assert [time for time, _ in decided] == [i * 40 * MS for i in range(28)]
        shares = [max((intersection(box, cover) / area(box) for cover in boxes), default=0.0)
                  for box, (_, boxes) in zip(truth, decided)]
        assert all(share == 1 for share, found in zip(shares, is_found) if found)
        print(look_ahead, "frames ahead, covered while lost:", [round(s, 2) for s, f in zip(shares, is_found) if not f])


def decide_lines(lines):
    """Each line is a sequence as JSON: width, height, hold, look_ahead, on_lost, and frames, each with its time, its
    detections (box, label, tracking id) and its weak ones; a frame that is null drains. Prints a line for each frame that is decided: its time,
    whether the whole frame is covered, and the edges of the boxes; and an empty line after each sequence.
    """
    for sequence in map(json.loads, lines):
        frames = sequence.pop("frames")
        tracks, decided = Tracks(**sequence), []
        for frame in frames:
            decided += tracks.drain() if frame is None else tracks.push(*frame)
        for time, boxes in decided + tracks.drain():
            print(time, boxes is None, *(repr(float(edge)) for box in boxes or () for edge in box))
        print()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with open(sys.argv[1], encoding="utf-8") as sequences:
            decide_lines(sequences)
    else:
        check()
