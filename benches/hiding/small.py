#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Draws clips of small heads that drift, and prints how many of them each setting of centerface finds and covers, and its cost.

    GST_PLUGIN_PATH=target/release scripts/python gi,numpy,cv2 -- benches/hiding/small.py [SETTINGS of centerface]...

Each of eight clips of 1080p and 90 frames has ten heads whose faces are 1 to 2 % of the longer side in height. A head is found if a box
overlaps its face in any frame, and covered in a frame if a tenth of its face or less is as before, with look-ahead=20. The cost is the
CPU time of the element, of that of the first settings.
"""
import random
import resource
import sys

import clips
import cv2
import gi
import numpy

gi.require_version("Gst", "1.0")
gi.require_version("GstVideo", "1.0")
from gi.repository import Gst, GstVideo

SIZE, FRAMES, HEADS, CLIPS = (1920, 1080), 90, 10, 8
SETTINGS = ["every=4", "every=4 size=1280", "every=4 fine-every=5"]


def clip(seed):
    """The frames of a clip, and the boxes of its faces in each."""
    rng = random.Random(seed)
    image, portraits = clips.load_portraits()
    back = clips.background(rng, SIZE, image)[270:1350, 480:2400]
    heads = []
    for number in range(HEADS):
        place = [(number % 5 + 0.5) / 5, (number // 5 + 0.5) / 2]
        heads.append(([value + rng.uniform(-0.05, 0.05) for value in place], [rng.uniform(-0.03, 0.03) for _ in place],
                      rng.uniform(0.01, 0.02) * SIZE[0] / SIZE[1], rng.uniform(-15, 15), portraits[number % 2]))
    for frame in range(FRAMES):
        out, boxes = back.copy(), []
        for (x, y), (dx, dy), height, angle, portrait in heads:
            share = frame / FRAMES
            matrix = clips.Head(x + dx * share, y + dy * share, height, angle).matrix(SIZE)
            person = cv2.warpAffine(portrait, matrix, SIZE, flags=cv2.INTER_AREA)
            alpha = person[:, :, 3:] / 255
            rows, columns = (numpy.flatnonzero(alpha[:, :, 0].any(axis)) for axis in (1, 0))
            part = (slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
            out[part] = out[part] * (1 - alpha[part]) + person[part][:, :, :3] * alpha[part]
            boxes.append([round(edge) for edge in clips.true_box(matrix)])
        yield numpy.clip(out, 0, 255).astype(numpy.uint8), boxes


def run(elements, pictures):
    """What comes out for each picture, with the boxes that were attached."""
    pipeline = Gst.parse_launch(f"appsrc name=in format=time ! videoconvert ! video/x-raw,format=I420 ! {elements} ! appsink name=out "
                                "sync=false")
    source, sink = pipeline.get_by_name("in"), pipeline.get_by_name("out")
    source.set_property("caps", Gst.Caps(f"video/x-raw,format=BGR,width={SIZE[0]},height={SIZE[1]},framerate=30/1"))
    pipeline.set_state(Gst.State.PLAYING)
    for number, picture in enumerate(pictures):
        buffer = Gst.Buffer.new_wrapped(picture.tobytes())
        buffer.pts, buffer.duration = number * Gst.SECOND // 30, Gst.SECOND // 30
        source.emit("push-buffer", buffer)
    source.emit("end-of-stream")
    while sample := sink.emit("pull-sample"):
        buffer, boxes = sample.get_buffer(), []
        # All metas have the id 0 until they have been read.
        while meta := GstVideo.buffer_get_video_region_of_interest_meta_id(buffer, 0):
            meta.id = 1
            boxes += [(meta.x, meta.y, meta.x + meta.w, meta.y + meta.h)] if meta.w else []
        yield numpy.frombuffer(buffer.extract_dup(0, SIZE[0] * SIZE[1]), numpy.uint8).reshape(SIZE[1], SIZE[0]), boxes
    pipeline.set_state(Gst.State.NULL)


def overlaps(one, other):
    return min(one[2], other[2]) > max(one[0], other[0]) and min(one[3], other[3]) > max(one[1], other[1])


def seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    Gst.init(None)
    settings = sys.argv[1:] or SETTINGS
    found, covered, cost = ({setting: 0 for setting in settings} for _ in range(3))
    for seed in range(CLIPS):
        frames = list(clip(seed))
        pictures, truths = [picture for picture, _ in frames], [boxes for _, boxes in frames]
        # Converting and reading, without a search.
        begin = seconds()
        before = [luma for luma, _ in run("identity", pictures)]
        base = seconds() - begin
        for setting in settings:
            begin = seconds()
            attached = [boxes for _, boxes in run(f"centerface {setting}", pictures)]
            cost[setting] += seconds() - begin - base
            found[setting] += sum(any(overlaps(box, truth[head]) for boxes, truth in zip(attached, truths) for box in boxes)
                                  for head in range(HEADS))
            after = run(f"centerface {setting} ! cudagaussblur region-mode=inside cover=fill look-ahead=20 backend=cpu", pictures)
            for (luma, _), old, truth in zip(after, before, truths):
                for left, top, right, bottom in truth:
                    face = (slice(max(0, top), bottom), slice(max(0, left), right))
                    covered[setting] += (luma[face] != old[face]).mean() >= 0.9
    for setting in settings:
        heads, faces = CLIPS * HEADS, CLIPS * HEADS * FRAMES
        print(f"{setting}: found {found[setting]} of {heads} heads, covered in {covered[setting] / faces:.3f} of their frames, "
              f"cost {cost[setting] / cost[settings[0]]:.2f}", flush=True)


if __name__ == "__main__":
    main()
