#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Covers a drawn number plate with the detectors of OpenCV that GStreamer has, and counts the frames in which it is covered.

    GST_PLUGIN_PATH=target/release scripts/python gi,numpy -- benches/hiding/plates.py

The clip is one plate of the Russian format on a dark body, 90 frames of 1280x720: it moves by 5 pixels a frame and grows from
140 to 282 pixels, under noise of 3 steps. The cascades of plates search all of it; cvtracker is told the plate of the first
frame. Covered is a frame in which at most a tenth of the plate is open; the area is that of the cover over that of the plate.
Needs gstreamer1.0-opencv and opencv-data, and the plugin.
"""
import gi
import numpy as np

gi.require_version("Gst", "1.0")
from gi.repository import Gst

WIDTH, HEIGHT, FRAMES = 1280, 720, 90
PLATE = (112, 520)
CASCADES = "/usr/share/opencv4/haarcascades/haarcascade_"
CAPS = f"video/x-raw,format=GRAY8,width={WIDTH},height={HEIGHT},framerate=30/1"


def pull(pipeline, height, width):
    """The pictures of a pipeline whose sink is named frames."""
    pipeline.set_state(Gst.State.PLAYING)
    while sample := pipeline.get_by_name("frames").emit("pull-sample"):
        buffer = sample.get_buffer()
        yield np.frombuffer(buffer.extract_dup(0, buffer.get_size()), np.uint8).reshape(height, width)
    message = pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR)
    pipeline.set_state(Gst.State.NULL)
    if message:
        raise RuntimeError(message.parse_error().gerror.message)


def plate():
    """The plate: black letters and a black rim on white."""
    height, width = PLATE
    pipeline = Gst.parse_launch(
        f"videotestsrc num-buffers=1 pattern=white ! video/x-raw,format=GRAY8,width={width},height={height} ! "
        'textoverlay text="A123BC 77" color=0xff000000 draw-shadow=false draw-outline=false valignment=center '
        'halignment=center font-desc="DejaVu Sans Mono Bold 24" ! videoconvert ! video/x-raw,format=GRAY8 ! '
        "appsink name=frames sync=false"
    )
    picture = next(iter(list(pull(pipeline, height, width)))).astype(float)
    picture[:8] = picture[-8:] = 20
    picture[:, :8] = picture[:, -8:] = 20
    return picture


def clip():
    """The frames, and the plate's box in each: x, y, width, height."""
    drawn, noise = plate(), np.random.default_rng(1)
    frames, boxes = [], []
    for frame in range(FRAMES):
        width = int(140 + 1.6 * frame)
        height = width * PLATE[0] // PLATE[1]
        x, y = 200 + 5 * frame, 420 + frame // 2
        picture = np.full((HEIGHT, WIDTH), 110.0)
        picture[HEIGHT // 2 :] = 80
        picture[y - width : y + height + 40, max(0, x - width // 2) : x + width + width // 2] = 60
        rows = np.linspace(0, PLATE[0], height + 1).astype(int)
        columns = np.linspace(0, PLATE[1], width + 1).astype(int)
        sums = np.add.reduceat(np.add.reduceat(drawn, rows[:-1], 0), columns[:-1], 1)
        picture[y : y + height, x : x + width] = sums / np.outer(np.diff(rows), np.diff(columns))
        picture += noise.normal(0, 3, picture.shape)
        frames.append(np.clip(picture, 4, 255).astype(np.uint8))
        boxes.append((x, y, width, height))
    return frames, boxes


def measure(name, detector, frames, boxes, settings):
    """Prints a row for one detector."""
    pipeline = Gst.parse_launch(
        f"appsrc name=clip format=time caps={CAPS} max-bytes=0 ! videoconvert ! {detector} ! "
        f"cudagaussblur backend=cpu region-mode=inside cover=fill on-missing=pass {settings} ! "
        "videoconvert ! video/x-raw,format=GRAY8 ! appsink name=frames sync=false"
    )
    source = pipeline.get_by_name("clip")
    for index, frame in enumerate(frames):
        buffer = Gst.Buffer.new_wrapped(frame.tobytes())
        buffer.pts, buffer.duration = index * Gst.SECOND // 30, Gst.SECOND // 30
        source.emit("push-buffer", buffer)
    source.emit("end-of-stream")
    covered, areas = 0, []
    for picture, (x, y, width, height) in zip(pull(pipeline, HEIGHT, WIDTH), boxes, strict=True):
        filled = picture <= 1
        covered += filled[y : y + height, x : x + width].mean() >= 0.9
        areas.append(filled.sum() / (width * height))
    print(f"| {name} | {settings or 'live'} | {covered} | {np.mean(areas):.1f} |")


def main():
    Gst.init(None)
    frames, boxes = clip()
    x, y, width, height = boxes[0]
    box = f"object-initial-x={x} object-initial-y={y} object-initial-width={width} object-initial-height={height}"
    detectors = [
        (name, f"facedetect display=false profile={CASCADES}{name}.xml")
        for name in ("russian_plate_number", "licence_plate_rus_16stages")
    ] + [
        (name, f"cvtracker draw-rect=false algorithm={name} {box}") for name in ("CSRT", "MedianFlow", "KCF", "MIL", "MOSSE")
    ]
    print(f"| detector | look-ahead | of {FRAMES} frames covered | area |\n| --- | --- | --- | --- |")
    for name, detector in detectors:
        for settings in "", "look-ahead=15":
            measure(name, detector, frames, boxes, settings)


if __name__ == "__main__":
    main()
