#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Renders clips of moving heads with the true boxes of their faces, runs face detectors on them, and writes what they found.

    GST_PLUGIN_PATH=target/release scripts/python numpy,cv2,gi -- benches/hiding/clips.py OUT [--seed N]... [--clip NAME]...
        [--detector haar|centerface]... [--large] [--video]

OUT/SEED-CLIP-DETECTOR.json is {"size": [w, h], "fps", "seed", "clip", "detector", "frames": [{"truth": [box...],
"detections": [{"box", "confidence"}...]}...]}; a box is [left, top, right, bottom] in pixels. A true box may reach out of
the picture. A face that is mostly behind a nearer head has none; one behind a bar has one. A clip depends on its name and
seed alone.

Detectors:
 haar       OpenCV's frontalface_default, called as GStreamer's facedetect calls it (grey, min-neighbors 3). The confidence
            is n / (n + 4) of n neighbours: 0.5 and more is what facedetect reports, below is what it rejects (2 or 3).
 centerface the GStreamer element, of which scripts/models downloads the model.

--large renders all clips with 1280x720 pixels.

The portrait is examples/demo/face.jpg (public domain). --video also writes OUT/SEED-CLIP.avi with the boxes drawn in.
"""
import argparse
import json
import math
import pathlib
import random
import sys
import zlib

import cv2
import numpy

FRAMES, FPS = 300, 30
PORTRAIT = pathlib.Path(__file__).parents[2] / "examples/demo/face.jpg"
# Located by hand in the portrait: the face (hairline to chin, ear to ear).
FACE = (174, 62, 276, 180)
# The outline of head and shoulders.
HEAD = [tuple(map(int, line.split(","))) for line in PORTRAIT.with_name("face-outline.csv").read_text().split()[1:]]
# Parts of the portrait without a face, as clutter: flag, rocket, helmet, suit.
CLUTTER = [(0, 0, 95, 250), (350, 0, 470, 280), (290, 330, 480, 400), (60, 260, 330, 400)]


class Head:
    """Where a head is: centre of the face in shares of the picture, height of the face as a share of the picture's."""

    def __init__(self, x, y, height, angle=0.0, width=1.0):
        self.x, self.y, self.height, self.angle, self.width = x, y, height, angle, width

    def matrix(self, size):
        """From the portrait to the picture."""
        scale = self.height * size[1] / (FACE[3] - FACE[1])
        c, s = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        a = numpy.array([[c, -s], [s, c]]) @ numpy.diag([scale * self.width, scale])
        centre = numpy.array([(FACE[0] + FACE[2]) / 2, (FACE[1] + FACE[3]) / 2])
        return numpy.column_stack([a, numpy.array([self.x * size[0], self.y * size[1]]) - a @ centre])


def true_box(matrix):
    """The box around the ellipse in FACE, transformed."""
    centre = matrix @ ((FACE[0] + FACE[2]) / 2, (FACE[1] + FACE[3]) / 2, 1)
    half = numpy.hypot(matrix[:, 0] * (FACE[2] - FACE[0]) / 2, matrix[:, 1] * (FACE[3] - FACE[1]) / 2)
    return [round(float(v), 2) for v in (*(centre - half), *(centre + half))]


def load_portraits():
    """The head with its alpha, and a second person: mirrored, with other colours."""
    image = cv2.imread(str(PORTRAIT))
    mask = numpy.zeros(image.shape[:2], numpy.uint8)
    cv2.fillPoly(mask, [numpy.array(HEAD)], 255)
    alpha = cv2.GaussianBlur(cv2.erode(mask, numpy.ones((3, 3))), (5, 5), 1.2).astype(numpy.float32) / 255
    first = numpy.dstack([image.astype(numpy.float32), alpha * 255])
    # Mirrored about the centre of the face, so that FACE holds for both.
    mirror = numpy.array([[-1, 0, FACE[0] + FACE[2] - 1], [0, 1, 0]], numpy.float32)
    second = cv2.warpAffine(first, mirror, image.shape[1::-1])
    second[:, :, :3] = numpy.clip(second[:, :, [2, 1, 0]] * 0.35 + second[:, :, :3] * (0.5, 0.45, 0.4), 0, 255)
    return image, [first, second]


def background(rng, size, image):
    """Texture of several octaves with clutter, larger than the picture by a quarter on each side."""
    w, h = size[0] * 3 // 2, size[1] * 3 // 2
    noise = numpy.random.default_rng(rng.randrange(2**32))
    out = numpy.full((h, w, 3), [rng.uniform(60, 170) for _ in range(3)], numpy.float32)
    for octave in range(2, 8):
        small = noise.normal(0, 1, (max(h >> octave, 2), max(w >> octave, 2), 1 + 2 * (octave % 2))).astype(numpy.float32)
        grown = cv2.resize(small, (w, h), interpolation=cv2.INTER_CUBIC)
        out += (grown if grown.ndim == 3 else grown[:, :, None]) * 2.2 * octave**0.9
    for _ in range(22):
        x, y, u, v = rng.randrange(w), rng.randrange(h), rng.randrange(8, w // 6), rng.randrange(8, h // 4)
        colour = [rng.uniform(10, 245) for _ in range(3)]
        thickness = rng.choice([-1, -1, 2, 5])
        if rng.random() < 0.5:
            cv2.rectangle(out, (x, y), (x + u, y + v), colour, thickness)
        else:
            cv2.ellipse(out, (x, y), (u // 2, v // 2), rng.uniform(0, 180), 0, 360, colour, thickness)
    for _ in range(5):
        left, top, right, bottom = rng.choice(CLUTTER)
        part, scale = image[top:bottom, left:right].astype(numpy.float32), rng.uniform(0.3, 1.0) * size[1] / 360
        part = cv2.resize(part, None, fx=scale, fy=scale)
        part = part[:min(h - 1, part.shape[0]), :min(w - 1, part.shape[1])]
        x, y = rng.randrange(w - part.shape[1]), rng.randrange(h - part.shape[0])
        out[y:y + part.shape[0], x:x + part.shape[1]] = part
    return cv2.GaussianBlur(out, (3, 3), 0.8)


class Wander:
    """A smooth random function of time with values from -1 to 1."""

    def __init__(self, rng, period):
        self.waves = [(rng.uniform(0.7, 1.5) / period * k, rng.uniform(0, math.tau), 1 / k) for k in (1, 1.7, 3.1)]

    def __call__(self, t):
        return sum(a * math.sin(math.tau * f * t + p) for f, p, a in self.waves) / sum(a for *_, a in self.waves)


def smooth(x):
    x = min(max(x, 0.0), 1.0)
    return x * x * (3 - 2 * x)


# A clip is a function of a random generator that returns a function of time in seconds. That returns a scene: heads, back to
# front, each with the number of its portrait; and "shot" (another background), "camera" (offset in shares of the picture's
# height), "bars" (left and right edge of what stands in front), if it has them.
def wander(rng, size=(640, 360)):
    x, y, a, z = (Wander(rng, p) for p in (6, 4, 5, 8))
    return lambda t: {"heads": [(0, Head(0.5 + 0.38 * x(t), 0.45 + 0.2 * y(t), 0.34 + 0.1 * z(t), 12 * a(t)))]}


def cross(rng):
    periods, phase = (rng.uniform(4, 6), rng.uniform(5, 8)), rng.uniform(0, math.tau)
    bob = Wander(rng, 1.0), Wander(rng, 1.2)
    height = rng.uniform(0.24, 0.32), rng.uniform(0.3, 0.38)

    def scene(t):
        xs = 0.5 + 0.36 * math.sin(math.tau * t / periods[0]), 0.5 + 0.38 * math.sin(math.tau * t / periods[1] + phase)
        return {"heads": [(i, Head(xs[i], 0.42 + 0.03 * i + 0.03 * bob[i](t), height[i], 5 * bob[i](t))) for i in (0, 1)]}
    return scene


def leave(rng):
    """Walks through the picture and back, and is away for a while each time; the last time it leaves downwards."""
    bob, height, side = Wander(rng, 0.9), rng.uniform(0.28, 0.4), rng.choice([-1, 1])
    speed = rng.uniform(0.45, 0.7)

    def scene(t):
        leg, u = int(t // 3.3), t % 3.3
        x = 0.5 + side * (-1) ** leg * (u * speed - 0.75)
        y = 0.45 + 0.02 * bob(t) + (max(u - 1.2, 0) * 0.8 if leg == 2 else 0)
        return {"heads": [(leg % 2, Head(x, y, height, 4 * bob(t)))]}
    return scene


def tilt(rng):
    x, y, height, period = Wander(rng, 7), Wander(rng, 6), rng.uniform(0.35, 0.45), rng.uniform(3.5, 5.5)
    return lambda t: {"heads": [(0, Head(0.5 + 0.25 * x(t), 0.45 + 0.12 * y(t), height,
                                         45 * math.sin(math.tau * t / period)))]}


def shake(rng):
    """A hand-held camera that is shaken, two heads that hardly move, one of them dark."""
    x, y = (Wander(rng, 0.5) for _ in range(2))
    slow = [Wander(rng, 3) for _ in range(4)]
    force = Wander(rng, 4)

    def scene(t):
        f = 0.1 * (0.5 + 0.5 * force(t))
        return {"heads": [(i, Head(0.3 + 0.42 * i + 0.04 * slow[i](t), 0.45 + 0.04 * slow[2 + i](t), 0.28 + 0.08 * i))
                          for i in (0, 1)], "camera": (f * x(t), f * y(t)), "exposure": 0.6}
    return scene


def cut(rng):
    """Scene cuts: other heads at other places and of other sizes; one shot is empty."""
    shots, start = [], 0.0
    while start < FRAMES / FPS:
        heads, height = rng.choice([1, 1, 2]), rng.uniform(0.25, 0.55)
        xs = [rng.uniform(0.2, 0.8)] if heads == 1 else [rng.uniform(0.15, 0.35), rng.uniform(0.6, 0.85)]
        shots.append((start, [] if len(shots) == 3 else
                      [(rng.randrange(2), x, rng.uniform(0.4, 0.55), height, rng.uniform(-10, 10)) for x in xs]))
        start += rng.uniform(0.9, 2.6)
    drift = [Wander(rng, 3) for _ in range(3)]

    def scene(t):
        shot = max(i for i, (start, _) in enumerate(shots) if start <= t)
        heads = [(who, Head(x + 0.04 * drift[0](t + i), y + 0.04 * drift[1](t + i), height, angle + 6 * drift[2](t)))
                 for i, (who, x, y, height, angle) in enumerate(shots[shot][1])]
        return {"heads": heads, "shot": shot}
    return scene


def turn(rng):
    """Walks, turns away (the face becomes a strip of 15 % of its width) for up to a second, and turns back."""
    x, y, height = Wander(rng, 6), Wander(rng, 5), rng.uniform(0.32, 0.42)
    period, away = rng.uniform(3.0, 3.6), rng.uniform(0.5, 1.0)

    def scene(t):
        u = t % period
        turned = smooth((u - 1.2) / 0.35) - smooth((u - 1.2 - 0.35 - away) / 0.35)
        return {"heads": [(0, Head(0.5 + 0.3 * x(t), 0.45 + 0.12 * y(t), height, 6 * y(t), 1 - 0.85 * turned))]}
    return scene


def bars(rng):
    """Two heads walk behind two posts, of which one is as wide as a face."""
    bob, speeds = Wander(rng, 1.0), (rng.uniform(0.12, 0.18), rng.uniform(0.17, 0.25))
    heights = rng.uniform(0.3, 0.36), rng.uniform(0.24, 0.3)

    def bounce(u):
        return abs((u + 0.5) % 2 - 1)

    def scene(t):
        heads = [(i, Head(0.1 + 0.8 * bounce(speeds[i] * 1.25 * t + 0.7 * i), 0.45 + 0.02 * bob(t + i), heights[i],
                          4 * bob(t + i))) for i in (0, 1)]
        return {"heads": heads, "bars": [(0.3, 0.37), (0.6, 0.76)]}
    return scene


def dark(rng):
    """Low light: little contrast, noise, and a long exposure."""
    clip, dim = wander(rng), Wander(rng, 4)
    return lambda t: clip(t) | {"light": 0.32 + 0.13 * dim(t), "noise": 7, "exposure": 0.9}


def scale(rng):
    """Comes near and goes away again."""
    x, y, period = Wander(rng, 6), Wander(rng, 5), rng.uniform(4, 7)
    return lambda t: {"heads": [(0, Head(0.5 + 0.2 * x(t), 0.48 + 0.06 * y(t),
                                         0.42 * 2.4 ** math.sin(math.tau * t / period), 8 * y(t)))]}


def run(rng):
    """Runs to and fro, with motion blur."""
    period, bob, height = rng.uniform(2.2, 3.2), Wander(rng, 0.6), rng.uniform(0.26, 0.34)
    return lambda t: {"heads": [(0, Head(0.5 + 0.36 * math.sin(math.tau * t / period), 0.45 + 0.06 * bob(t), height,
                                         14 * math.cos(math.tau * t / period)))], "exposure": 0.7}


def filmed(rng):
    """A head filmed by hand while both walk: shaken and blurred by it, nodding and leaning, in dim light."""
    fast, slow = [Wander(rng, 0.5) for _ in range(2)], [Wander(rng, p) for p in (5, 4, 2.2, 3, 6)]

    def scene(t):
        x, y, lean, near, force = (one(t) for one in slow)
        f = 0.16 * (0.6 + 0.4 * force)
        return {"heads": [(0, Head(0.5 + 0.14 * x, 0.46 + 0.06 * y, 0.34 + 0.06 * near, 46 * lean, 1 - 0.6 * max(near, 0)))],
                "camera": (f * fast[0](t), f * fast[1](t)), "exposure": 0.9, "light": 0.3, "noise": 7}
    return scene


SMALL, LARGE = (640, 360), (1280, 720)
# Each with the picture's size, and scale-factor and min-size of facedetect.
CLIPS = {
    "wander": (wander, SMALL, 1.1, 30), "cross": (cross, LARGE, 1.2, 80), "leave": (leave, SMALL, 1.1, 30),
    "tilt": (tilt, LARGE, 1.2, 80), "shake": (shake, SMALL, 1.1, 30), "cut": (cut, SMALL, 1.2, 30),
    "turn": (turn, SMALL, 1.1, 30), "bars": (bars, SMALL, 1.1, 30), "dark": (dark, SMALL, 1.1, 30),
    "scale": (scale, SMALL, 1.2, 30), "run": (run, SMALL, 1.1, 30),
}
# Rendered only if it is named: the nearest one to a filmed face that Haar finds in half of the frames.
NAMED_CLIPS = {"filmed": (filmed, SMALL, 1.2, 30)}


def render(name, seed, size):
    """Yields the frames and their true boxes."""
    make = (CLIPS | NAMED_CLIPS)[name][0]
    rng = random.Random(zlib.crc32(f"{name} {seed}".encode()))
    image, portraits = load_portraits()
    noise = numpy.random.default_rng(rng.randrange(2**32))
    clip, backgrounds, tile = make(rng), {}, rng.randrange(2**32)
    for i in range(FRAMES):
        scene = clip(i / FPS)
        shot, exposure = scene.get("shot", 0), scene.get("exposure", 0.3)
        if shot not in backgrounds:
            backgrounds = {shot: background(random.Random(tile + shot), size, image)}
        total = numpy.zeros((size[1], size[0], 3), numpy.float32)
        times = [(i + exposure * (k / 2 - 0.5)) / FPS for k in range(3)] if exposure >= 0.5 else [i / FPS]
        for t in times:
            total += draw(clip(max(t, 0)) | {"shot": shot}, size, backgrounds[shot], portraits)
        frame = total / len(times) * scene.get("light", 1.0)
        grain = noise.normal(0, scene.get("noise", 2.5), frame.shape).astype(numpy.float32)
        yield numpy.clip(frame + grain, 0, 255).astype(numpy.uint8), true_boxes(scene, size)


def matrices(scene, size):
    """From the portrait to the picture, one for each head."""
    dx, dy = (v * size[1] for v in scene.get("camera", (0, 0)))
    move = numpy.array([[0, 0, dx], [0, 0, dy]])
    return [head.matrix(size) + move for _, head in scene["heads"]]


def true_boxes(scene, size):
    """Of the faces that are not mostly behind a nearer head."""
    all_matrices, boxes = matrices(scene, size), []
    grid = numpy.mgrid[-0.95:1:0.1, -0.95:1:0.1].reshape(2, -1)
    half = numpy.array([[(FACE[2] - FACE[0]) / 2], [(FACE[3] - FACE[1]) / 2]])
    points = grid[:, (grid**2).sum(0) < 1] * half + numpy.array([[FACE[0] + FACE[2]], [FACE[1] + FACE[3]]]) / 2
    outline = numpy.array(HEAD)
    for i, matrix in enumerate(all_matrices):
        drawn, hidden = matrix[:, :2] @ points + matrix[:, 2:], numpy.zeros(points.shape[1], bool)
        for nearer, (who, _) in zip(all_matrices[i + 1:], scene["heads"][i + 1:]):
            x, y = numpy.linalg.inv(nearer[:, :2]) @ (drawn - nearer[:, 2:])
            x = FACE[0] + FACE[2] - 1 - x if who == 1 else x
            hidden |= [cv2.pointPolygonTest(outline, (float(u), float(v)), False) > 0 for u, v in zip(x, y)]
        if hidden.mean() <= 0.5:
            boxes.append(true_box(matrix))
    return boxes


def draw(scene, size, behind, portraits):
    dx, dy = (v * size[1] for v in scene.get("camera", (0, 0)))
    move = numpy.array([[1, 0, dx - size[0] / 4], [0, 1, dy - size[1] / 4]], numpy.float32)
    out = cv2.warpAffine(behind, move, size)
    for (who, _), matrix in zip(scene["heads"], matrices(scene, size)):
        drawn = cv2.warpAffine(portraits[who], matrix, size)
        alpha = drawn[:, :, 3:] / 255
        out = out * (1 - alpha) + drawn[:, :, :3] * alpha
    for left, right in scene.get("bars", []):
        out[:, round(left * size[0]):round(right * size[0])] = (70, 90, 80)
    return out


class Haar:
    def __init__(self, scale_factor, min_size):
        self.classifier = cv2.CascadeClassifier(cv2.data.haarcascades + "haarcascade_frontalface_default.xml")
        self.scale_factor, self.min_size = scale_factor, min_size

    def __call__(self, frame):
        grey = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
        # With 1 instead of 3 neighbours, the same groups and those of 2 and 3 neighbours.
        boxes, neighbours = self.classifier.detectMultiScale2(
            grey, scaleFactor=self.scale_factor, minNeighbors=1, minSize=(self.min_size,) * 2)
        return [([int(x), int(y), int(x + w), int(y + h)], int(n) / (int(n) + 4))
                for (x, y, w, h), n in zip(boxes, neighbours)]


class CenterFace:
    def __init__(self, size):
        import gi
        gi.require_version("Gst", "1.0")
        gi.require_version("GstVideo", "1.0")
        from gi.repository import Gst, GstVideo
        Gst.init(None)
        self.Gst, self.GstVideo = Gst, GstVideo
        caps = f"video/x-raw,format=BGRx,width={size[0]},height={size[1]},framerate={FPS}/1"
        self.pipeline = Gst.parse_launch(f"appsrc name=in caps={caps} ! centerface every=1 ! appsink name=out sync=false")
        self.source, self.sink = (self.pipeline.get_by_name(name) for name in ("in", "out"))
        self.pipeline.set_state(Gst.State.PLAYING)

    def __call__(self, frame):
        self.source.emit("push-buffer", self.Gst.Buffer.new_wrapped(cv2.cvtColor(frame, cv2.COLOR_BGR2BGRA).tobytes()))
        sample = self.sink.emit("pull-sample")
        if sample is None:
            sys.exit(self.pipeline.get_bus().pop_filtered(self.Gst.MessageType.ERROR).parse_error().gerror.message)
        buffer, found = sample.get_buffer(), []
        # Python cannot iterate metas. All have the id 0 until they have been read.
        while meta := self.GstVideo.buffer_get_video_region_of_interest_meta_id(buffer, 0):
            meta.id = 1
            # A box of no size says that nothing was found.
            if meta.w:
                confidence = meta.get_param("detection").get_double("confidence").value
                found.append(([meta.x, meta.y, meta.x + meta.w, meta.y + meta.h], round(confidence, 4)))
        return found

    def close(self):
        self.pipeline.set_state(self.Gst.State.NULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--clip", action="append", choices=CLIPS | NAMED_CLIPS)
    parser.add_argument("--detector", action="append", choices=("haar", "centerface"))
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--video", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    cv2.setNumThreads(1)
    for seed in arguments.seed or [1]:
        for name in arguments.clip or CLIPS:
            _, size, scale_factor, min_size = (CLIPS | NAMED_CLIPS)[name]
            if arguments.large:
                size = LARGE
            detectors = {detector: Haar(scale_factor, min_size) if detector == "haar" else CenterFace(size)
                         for detector in arguments.detector or ["haar"]}
            frames = {detector: [] for detector in detectors}
            video = arguments.video and cv2.VideoWriter(str(arguments.out / f"{seed}-{name}.avi"),
                                                        cv2.VideoWriter_fourcc(*"MJPG"), FPS, size)
            for frame, truth in render(name, seed, size):
                found = {detector: run_on(frame) for detector, run_on in detectors.items()}
                for detector, one in found.items():
                    frames[detector].append({"truth": truth, "detections": [{"box": b, "confidence": c} for b, c in one]})
                if video:
                    for boxes, colour in [(truth, (0, 255, 0))] + [([b for b, c in one if c >= 0.5], (0, 0, 255))
                                                                   for one in found.values()]:
                        for box in boxes:
                            l, t, r, b = map(round, box)
                            cv2.rectangle(frame, (l, t), (r, b), colour, 2)
                    video.write(frame)
            if "centerface" in detectors:
                detectors["centerface"].close()
            for detector, list_of_frames in frames.items():
                trace = {"size": size, "fps": FPS, "seed": seed, "clip": name, "detector": detector,
                         "frames": list_of_frames}
                (arguments.out / f"{seed}-{name}-{detector}.json").write_text(json.dumps(trace))
            print(seed, name, flush=True)


if __name__ == "__main__":
    main()
