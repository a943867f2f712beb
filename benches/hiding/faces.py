#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Draws turned, small, several, masked and dark faces, covers them through the elements, and prints which are covered.

    GST_PLUGIN_PATH=target/release scripts/python gi,numpy,cv2 -- benches/hiding/faces.py OUT.png

The faces are those of examples/demo/face.jpg before the texture of clips.py. OUT.png has the picture before and after, side by side.
"""
import random
import sys

import clips
import cv2
import gi
import numpy

gi.require_version("Gst", "1.0")
from gi.repository import Gst

SIZE = 1280, 720
# What it shows, and where: centre and height in shares of the picture, angle in degrees, width, light, and what hides the lower half.
FACES = [
    ("upright", clips.Head(0.12, 0.26, 0.3), 1, False), ("turned by 40 degrees", clips.Head(0.54, 0.26, 0.28, 40), 1, False), ("half in profile", clips.Head(0.74, 0.26, 0.3, 0, 0.55), 1, False),
    ("dark", clips.Head(0.9, 0.26, 0.28), 0.22, False), ("masked", clips.Head(0.13, 0.75, 0.3), 1, True),
    ("mirrored", clips.Head(0.33, 0.75, 0.3), 1, False), ("small, 64 pixels high", clips.Head(0.5, 0.75, 64 / 720), 1, False),
    ("40 pixels high", clips.Head(0.6, 0.75, 40 / 720), 1, False), ("28 pixels high", clips.Head(0.68, 0.75, 28 / 720), 1, False),
    ("dark and turned by 25 degrees", clips.Head(0.86, 0.72, 0.26, -25), 0.3, False),
    ("upside down", clips.Head(0.33, 0.2, 0.26, 180), 1, False),
]


def drawn():
    image, portraits = clips.load_portraits()
    out = clips.background(random.Random(5), SIZE, image)[180:900, 320:1600]
    for number, (_, head, light, masked) in enumerate(FACES):
        person = portraits[number % 2].copy()
        if masked:
            left, top, right, bottom = clips.FACE
            cv2.ellipse(person, ((left + right) // 2, bottom - 30), ((right - left) // 2, 38), 0, 0, 360, (190, 160, 90, 255), -1)
        person = cv2.warpAffine(person, head.matrix(SIZE), SIZE, flags=cv2.INTER_AREA)
        alpha = person[:, :, 3:] / 255
        out = out * (1 - alpha) + person[:, :, :3] * light * alpha
    return numpy.clip(out, 0, 255).astype(numpy.uint8)


def through(elements, picture):
    pipeline = Gst.parse_launch(f"appsrc name=in format=time ! videoconvert ! video/x-raw,format=I420 ! {elements} ! videoconvert ! "
                                "video/x-raw,format=BGR ! appsink name=out sync=false")
    source, sink = pipeline.get_by_name("in"), pipeline.get_by_name("out")
    source.set_property("caps", Gst.Caps(f"video/x-raw,format=BGR,width={SIZE[0]},height={SIZE[1]},framerate=1/1"))
    pipeline.set_state(Gst.State.PLAYING)
    source.emit("push-buffer", Gst.Buffer.new_wrapped(picture.tobytes()))
    source.emit("end-of-stream")
    sample = sink.emit("pull-sample")
    message = pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR)
    pipeline.set_state(Gst.State.NULL)
    if message:
        sys.exit(message.parse_error().gerror.message)
    buffer = sample.get_buffer()
    return numpy.frombuffer(buffer.extract_dup(0, buffer.get_size()), numpy.uint8).reshape(SIZE[1], SIZE[0], 3)


def main():
    Gst.init(None)
    # Both are converted in the same way.
    before = through("identity", drawn())
    after = through("centerface ! cudagaussblur region-mode=inside cover=mosaic", drawn())
    for name, head, *_ in FACES:
        left, top, right, bottom = (max(0, round(edge)) for edge in clips.true_box(head.matrix(SIZE)))
        change = abs(before[top:bottom, left:right].astype(int) - after[top:bottom, left:right]).max(2)
        print(f"{name}: {100 * (change > 0).mean():.0f} % of the face's box has changed")
    cv2.imwrite(sys.argv[1], numpy.hstack([before, after]))


if __name__ == "__main__":
    main()
