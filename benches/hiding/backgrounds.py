#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Measures how far blurred backgrounds are from the blur of the true background, beside a person.

    target/release/examples/demo --sigma=0
    GST_PLUGIN_PATH=target/release scripts/python gi,numpy -- benches/hiding/backgrounds.py demo-out/before-after.png

The person is the demo's portrait, moving before the landscape of the argument, in luma; masks are those of MediaPipe's model for
that clip, and the true ones, from the portrait's alpha. Behind the person is the landscape or a
drawn picture; the shelves move. Compared with the blur of what is behind are
  - plain: the blur of the frame,
  - weighted: blur(p * e) / blur(e), where e is how much of a sample is background (normalised convolution),
  - inpainted: the element's blur of a picture that is inpainted where the person is (docs/ARITHMETIC.md, "Soft covers"): cells of
    4 nodes, which count wholly if a quarter of them is left, and with a guard around the mask,
  - the same with cells of 2 or 8 nodes, with a half in place of a quarter, and without the guard.
The inpainting is in NumPy here; the script fails if the element's output differs in any byte. Blurs are the element's.

For samples that are so far beside the person (alpha 0) and that the element covers wholly, a row has the mean distance, its 95th
percentile and the largest, in steps of 8 bits; and the flicker, the mean difference of a sample between two successive frames. The
last row of each case has how much of the samples is left out of the background, in percent.
"""
import argparse
import pathlib
import sys

import gi
import numpy as np

ROOT = pathlib.Path(__file__).parents[2]
gi.require_version("Gst", "1.0")
gi.require_version("GstVideo", "1.0")
from gi.repository import Gst, GstVideo

import masks_reference as masks
import litert

FRAMES = 180
# Pairs of successive frames.
SHOWN = [frame + next for frame in range(5, FRAMES, 20) for next in (0, 1)]
FEATHER, SIGMAS = 8, (5, 20, 50)
BESIDE = 1, 2, 4, 8, 16, 32


# Pictures and blurs through GStreamer.

def play(elements, pictures=(), name="GRAY8", mask=None):
    """The pictures that leave elements. Those that enter have this format, and a mask of a person."""
    source = "appsrc name=pictures format=time max-bytes=0 ! " if len(pictures) else ""
    pipeline = Gst.parse_launch(f"{source}{elements} ! appsink name=sink sync=false")
    if len(pictures):
        source, (height, width) = pipeline.get_by_name("pictures"), pictures[0].shape[:2]
        source.set_property("caps", Gst.Caps(f"video/x-raw,format={name},width={width},height={height},framerate=30/1"))
        for index, picture in enumerate(pictures):
            buffer = Gst.Buffer.new_wrapped(picture.tobytes())
            buffer.pts, buffer.duration = index * Gst.SECOND // 30, Gst.SECOND // 30
            if mask is not None:
                meta = GstVideo.buffer_add_video_region_of_interest_meta(buffer, "person", 0, 0, width, height)
                rows, columns = mask.shape
                caps = Gst.Caps(f"video/x-raw,format=GRAY8,width={columns},height={rows},framerate=0/1")
                param = Gst.Structure.new_empty("mask")
                param.set_value("sample", Gst.Sample.new(Gst.Buffer.new_wrapped(mask.tobytes()), caps, None, None))
                meta.add_param(param)
            source.emit("push-buffer", buffer)
        source.emit("end-of-stream")
    pipeline.set_state(Gst.State.PLAYING)
    out = []
    while sample := pipeline.get_by_name("sink").emit("pull-sample"):
        info, buffer = GstVideo.VideoInfo.new_from_caps(sample.get_caps()), sample.get_buffer()
        dtype = np.uint16 if info.finfo.bits == 16 else np.uint8
        rows = np.frombuffer(buffer.extract_dup(0, buffer.get_size()), np.uint8).reshape(info.height, info.stride[0])
        rows = rows[:, : info.width * info.finfo.pixel_stride[0]].copy().view(dtype)
        out.append(rows.reshape(info.height, info.width, -1).squeeze())
    message = pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR)
    pipeline.set_state(Gst.State.NULL)
    if message:
        raise RuntimeError(message.parse_error().gerror.message)
    return out


def scaled(picture, width, height, name):
    """A picture of bytes in another size and format."""
    given = "GRAY8" if picture.ndim == 2 else "RGB"
    elements = f"videoconvert ! videoscale method=lanczos add-borders=false ! videoconvert ! video/x-raw,format={name}"
    return play(f"{elements},width={width},height={height}", [picture], given)[0]


def blur(picture, sigma):
    """The element's blur of 8 or 16 bits."""
    name = "GRAY16_LE" if picture.dtype == np.uint16 else "GRAY8"
    return play(f"cudagaussblur backend=cpu sigma={sigma}", [picture], name)[0].astype(np.int64)


# The clip.

def alpha(width, height):
    """How much of each pixel of the portrait is the person, with a soft edge inside of the outline."""
    points = np.loadtxt(ROOT / "examples/demo/face-outline.csv", delimiter=",", skiprows=1) * (height / 400)
    y, x = np.mgrid[:height, :width] + 0.5
    crossings, nearest = np.zeros(x.shape, int), np.full(x.shape, np.inf)
    for (ax, ay), (bx, by) in zip(points, np.roll(points, -1, 0)):
        if ay != by:
            crossings += ((ay <= y) != (by <= y)) & (x < ax + (y - ay) / (by - ay) * (bx - ax))
        if ay < height - 1 or by < height - 1:
            dx, dy = bx - ax, by - ay
            along = np.clip(((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy), 0, 1)
            nearest = np.minimum(nearest, np.hypot(x - ax - along * dx, y - ay - along * dy))
    return np.where(crossings % 2 == 1, np.clip((nearest - 1) / 3, 0, 1), 0)


def placed(portrait, frame, width, height):
    """The portrait, or its alpha, where it is in a frame; 0 around it."""
    turn = 2 * np.pi * frame / FRAMES
    left, top = (int((220 + 150 * np.sin(2 * turn)) * height / 720), int((20 - 20 * np.cos(5 * turn)) * height / 720))
    out = np.zeros((height, width) + portrait.shape[2:], portrait.dtype)
    out[top:, left : left + portrait.shape[1]] = portrait[: height - top]
    return out


def before(person, share, background):
    share = share if person.ndim == 2 else share[..., None]
    return (background + (person - background.astype(float)) * share + 0.5).astype(np.uint8)


def backgrounds(landscape, width, height):
    """What is behind the person: a name, and the picture of a frame."""
    y, x = np.mgrid[:height, :width] / height
    still = scaled(landscape, width, height, "GRAY8")
    yield "landscape", lambda frame: still
    # A dark wall with a bright window of four panes, and a lamp.
    panes = (abs(abs(x - 0.52) - 0.16) < 0.14) & (abs(abs(y - 0.3) - 0.13) < 0.115)
    window = np.where(panes | (np.hypot(x - 1.25, y - 0.45) < 0.09), 240, 35).astype(np.uint8)
    yield "window", lambda frame: window
    gradient = (30 + 190 * (x / x.max() * 0.7 + y * 0.3)).astype(np.uint8)
    yield "gradient", lambda frame: gradient
    # Shelves of books, past which the camera moves.
    random, shelves = np.random.default_rng(1), []
    for _ in range(5):
        widths = random.integers(6, 40, 200)
        shelves.append(np.repeat(random.integers(20, 236, 200), widths)[: width + 3 * FRAMES])
    rows = np.repeat(shelves, -(-height // 5), 0)[:height]
    rows = np.clip(rows + random.normal(0, 12, rows.shape), 0, 255).astype(np.uint8)
    rows[np.arange(height) % -(-height // 5) < 12] = 30
    yield "shelves", lambda frame: rows[:, 3 * frame : 3 * frame + width]


# The two guesses of what is behind the person.

def weighted(picture, excluded, sigma):
    """The blur of 16-bit samples that count as much as they are background, at least 256 of 65535, over that of the weights."""
    e = np.maximum(256, (255 - excluded) * 257)
    colour, weight = blur((((picture.astype(np.int64) << 8) * e + 32768) >> 16).astype(np.uint16), sigma), blur(e.astype(np.uint16), sigma)
    return np.minimum(((colour << 8) + weight // 2) // weight, 255)


def inpainted(picture, excluded, side, parts):
    """The picture with an estimate where samples are excluded: cells of so many luma samples, which count wholly if one part of
    so many is left."""
    def sums(values):
        return np.add.reduceat(np.add.reduceat(values, np.arange(0, values.shape[0], side), 0), np.arange(0, values.shape[1], side), 1)

    def mean(total, weight, other):
        return np.where(weight > 0, (2 * total + weight) // np.maximum(2 * weight, 1), other)

    picture = picture.astype(np.int64)
    left = sums(255 - excluded)
    value = mean(sums((255 - excluded) * picture), left, picture[::side, ::side])
    levels = [(value, np.minimum(255, -(-parts * left // sums(np.ones_like(picture)))))]
    while levels[-1][0].size > 1:
        value, weight = (np.pad(of, [(0, n % 2) for n in of.shape]) for of in levels[-1])
        fours = [(value[y::2, x::2], weight[y::2, x::2]) for y in (0, 1) for x in (0, 1)]
        total, weight = sum(v * w for v, w in fours), sum(w for _, w in fours)
        levels.append((mean(total, weight, fours[0][0]), np.minimum(255, weight)))
    estimate = levels.pop()[0]
    for value, weight in reversed(levels):
        for axis, count in enumerate(value.shape):
            i = np.arange(count)
            near = np.clip(i // 2 + np.where(i % 2, 1, -1), 0, estimate.shape[axis] - 1)
            estimate = 3 * np.take(estimate, i // 2, axis) + np.take(estimate, near, axis)
        estimate = (weight * value + (255 - weight) * ((estimate + 8) // 16) + 127) // 255
    for axis, count in enumerate(picture.shape):
        place = 2 * np.arange(count) + 1 - side
        cell, share = place // (2 * side), (place % (2 * side)).reshape((-1, 1) if axis == 0 else (1, -1))
        this, next = (np.take(estimate, np.clip(cell + k, 0, estimate.shape[axis] - 1), axis) for k in (0, 1))
        estimate = this * (2 * side - share) + next * share
    estimate = (estimate + 2 * side * side) // (4 * side * side)
    return ((excluded * estimate + (255 - excluded) * picture + 127) // 255).astype(np.uint8)


def model_mask(network, picture):
    """The mask of MediaPipe's model as it is, without what the element selfiesegmentation makes of it."""
    return (network.confidence(np.moveaxis(picture / np.float32(255), 2, 0)) * 255 + 0.5).astype(np.uint8)


# Measuring.

def distance_to(person, most):
    """The distance from the nearest sample of the person, up to `most`, else infinite."""
    y = np.arange(person.shape[0])[:, None]
    above = np.maximum.accumulate(np.where(person, y, -10**6), 0)
    below = np.minimum.accumulate(np.where(person, y, 10**6)[::-1], 0)[::-1]
    column = np.minimum(y - above, below - y).astype(float) ** 2
    out = column.copy()
    for k in range(1, most + 1):
        out[:, k:] = np.minimum(out[:, k:], column[:, :-k] + k * k)
        out[:, :-k] = np.minimum(out[:, :-k], column[:, k:] + k * k)
    return np.where(out <= most * most, np.sqrt(out), np.inf).astype(np.float32)


class Measure:
    """Of one guess: distances by place, and flicker."""

    def __init__(self):
        self.counts, self.changes, self.last = {}, [0, 0], None

    def add(self, out, truth, places, band, is_next):
        error = abs(out - truth)
        for place, there in places.items():
            self.counts[place] = self.counts.get(place, 0) + np.bincount(error[there], minlength=256)
        if is_next:
            both = band & self.last[1]
            self.changes[0] += abs(out - self.last[0])[both].sum()
            self.changes[1] += both.sum()
        self.last = out, band

    def distances(self, place):
        """The mean, the 95th percentile and the largest."""
        counts = self.counts[place]
        share = counts.cumsum() / counts.sum()
        return f"{counts @ np.arange(256) / counts.sum():.2f} / {np.searchsorted(share, 0.95)} / {counts.nonzero()[0][-1]}"

    def flicker(self):
        return f"{self.changes[0] / self.changes[1]:.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("landscape", help="before-after.png of scripts/demo --sigma=0")
    path = parser.parse_args().landscape
    Gst.init(None)
    landscape = play(f"filesrc location={path} ! pngdec ! videoconvert ! video/x-raw,format=RGB")[0].copy()
    # Without the white line in the middle.
    landscape[:, 639], landscape[:, 640] = landscape[:, 638], landscape[:, 641]
    portrait = play(f"filesrc location={ROOT}/examples/demo/face.jpg ! jpegdec ! videoconvert ! video/x-raw,format=RGB")[0]
    colour, opaque = scaled(portrait, 864, 720, "RGB"), alpha(864, 720)
    network = litert.Network(litert.LANDSCAPE, 1)
    of_model, of_alpha = {}, {}
    for frame in SHOWN:
        share = placed(opaque, frame, 1280, 720)
        picture = before(placed(colour, frame, 1280, 720), share, landscape)
        of_model[frame] = model_mask(network, scaled(picture, 256, 144, "RGB"))
        of_alpha[frame] = scaled((share * 255).astype(np.uint8), 256, 256, "GRAY8")

    print(f"| mask | size | behind | σ | | {' | '.join(map(str, BESIDE))} | up to 2σ | flicker |")
    print("| --- " * (len(BESIDE) + 7) + "|")
    for width, height in (1280, 720), (1920, 1080):
        grey, opaque, frames = scaled(portrait, height * 6 // 5, height, "GRAY8"), alpha(height * 6 // 5, height), []
        for frame in SHOWN:
            share = placed(opaque, frame, width, height)
            frames.append((frame, placed(grey, frame, width, height), share, distance_to(share > 0, 2 * SIGMAS[-1])))
        for mask, person_masks in (("model", of_model), ("true", of_alpha)):
            for name, behind in backgrounds(landscape, width, height):
                for sigma in SIGMAS if mask == "model" or height == 720 else ():
                    measure(f"{mask} | {height}p | {name} | {sigma}", behind, sigma, frames, person_masks)


def measure(title, behind, sigma, frames, person_masks):
    """Prints the rows of one size, background and sigma."""
    measures = {}
    for frame, person, share, far in frames:
        background, mask, size = behind(frame), person_masks[frame], share.shape[::-1]
        picture, truth = before(person, share, background), blur(background, sigma)
        covered, excluded = weights(mask, size, sigma)
        is_counted = (share == 0) & (covered == 255)
        band = is_counted & (far <= 2 * sigma)
        places = {at: is_counted & (abs(far - at) < 0.5) for at in BESIDE} | {"band": band}
        g, (_, unguarded) = masks.cell(*size), weights(mask, size, 0)
        layers = {
            "plain": blur(picture, sigma),
            "weighted": weighted(picture, excluded, sigma),
            "inpainted": blur(inpainted(picture, excluded, 4 * g, 4), sigma),
            "cells of 2": blur(inpainted(picture, excluded, 2 * g, 4), sigma),
            "cells of 8": blur(inpainted(picture, excluded, 8 * g, 4), sigma),
            "a half counts": blur(inpainted(picture, excluded, 4 * g, 2), sigma),
            "no guard": blur(inpainted(picture, unguarded, 4 * g, 4), sigma),
            "truth": truth,
            # The samples' share, in percent, that are left out, where the truth is 0.
            "left out, %": truth + (excluded * 100 + 127) // 255,
        }
        mixed = (covered * layers["inpainted"] + (255 - covered) * picture + 127) // 255
        [out] = play(f"cudagaussblur backend=cpu region-mode=outside region-sources=roi shape=mask feather={FEATHER} sigma={sigma} "
                     "cover=blur expand=0", [picture], mask=mask)
        assert (out == mixed).all(), "the element's output differs from the inpainting of this script"
        for label, layer in layers.items():
            measures.setdefault(label, Measure()).add(layer, truth, places, band, frame - 1 in person_masks)
    for label, one in measures.items():
        values = [one.distances(place) for place in [*BESIDE, "band"]]
        print(f"| {title} | {label} | {' | '.join(values)} | {one.flicker()} |", flush=True)


def weights(mask, size, sigma):
    """Of each sample: how much it is covered, and how much it is left out."""
    person = {"area": (0, 0) + size, "shape": "mask", "columns": mask.shape[1], "rows": mask.shape[0], "samples": mask.tobytes().hex()}
    case = {"width": size[0], "height": size[1], "grow": 0, "feather": FEATHER // 2, "sigma": sigma, "objects": [person]}
    g, (_, covered, excluded) = masks.weights(case)
    return [np.stack([masks.sampled(nodes, size[0], y, g) for y in range(size[1])]) for nodes in (covered, excluded)]


if __name__ == "__main__":
    main()
