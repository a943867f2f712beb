#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""A detector in Python: finds the ball of a test video and attaches its box, and cudagaussblur covers it.

Replace find() by your own detector. Frames pass through appsink, find() and appsrc. The buffers that Python's pad probes receive
are not writable, so a box can only be attached before appsrc pushes the buffer.

Needs PyGObject, which distributions install for /usr/bin/python3 (Debian and Ubuntu: python3-gi, python3-gst-1.0,
gir1.2-gst-plugins-base-1.0), and the plugin, installed or in GST_PLUGIN_PATH:

    cargo build --release && GST_PLUGIN_PATH=target/release examples/own_boxes.py
"""

import os
import sys

try:
    import gi
except ImportError:
    sys.exit(f"{sys.executable} has no PyGObject: install python3-gi and run this with the distribution's /usr/bin/python3")

gi.require_version("Gst", "1.0")
gi.require_version("GstVideo", "1.0")
from gi.repository import Gst, GstVideo

WIDTH, HEIGHT = 640, 360
CAPS = f"video/x-raw,format=GRAY8,width={WIDTH},height={HEIGHT},framerate=30/1"


def find(pixels):
    """Finds the objects to cover: a list of (label, confidence, x, y, width, height) in pixels.

    This example finds the box around all bright pixels of a grey picture without padding between rows.
    """
    rows = [pixels[start : start + WIDTH] for start in range(0, WIDTH * HEIGHT, WIDTH)]
    bright = [y for y, row in enumerate(rows) if max(row) > 128]
    if not bright:
        return []
    columns = [max(pixels[x::WIDTH]) > 128 for x in range(WIDTH)]
    left, right = columns.index(True), WIDTH - columns[::-1].index(True)
    return [("ball", 0.9, left, bright[0], right - left, bright[-1] + 1 - bright[0])]


def attach(buffer, boxes):
    """Attaches boxes to a writable buffer. A box of size 0 says that the metas of the frame were not lost, even if
    the detector found nothing. Without any meta, on-missing=auto covers the whole frame."""
    for label, confidence, x, y, width, height in boxes or [("nothing", 1.0, 0, 0, 0, 0)]:
        meta = GstVideo.buffer_add_video_region_of_interest_meta(buffer, label, x, y, width, height)
        if meta is None:
            raise RuntimeError("the buffer is not writable, so no box can be attached")
        # cudagaussblur compares the confidence with min-confidence. DL Streamer's metas have it in the same place.
        meta.add_param(Gst.Structure.new_from_string(f"detection, confidence=(double){confidence}"))


def main():
    Gst.init(None)
    if not Gst.ElementFactory.find("cudagaussblur"):
        return "GStreamer does not find cudagaussblur: install the plugin or set GST_PLUGIN_PATH to its folder"
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    # There are two pipelines, because a pipeline plays only when all of its sinks have a frame, and the second sink waits for
    # frames of the first.
    detector = Gst.parse_launch(
        f"videotestsrc num-buffers=90 pattern=ball ! {CAPS} ! appsink name=frames sync=false max-buffers=4"
    )
    # When the queue of appsrc is full, push-buffer waits. Otherwise a fast detector would fill the memory.
    pipeline = Gst.parse_launch(
        f"appsrc name=boxes format=time block=true max-bytes={4 * WIDTH * HEIGHT} caps={CAPS} ! "
        "cudagaussblur name=blur region-mode=inside labels=ball min-confidence=0.5 cover=fill ! videoconvert ! "
        + ("autovideosink" if display else "fakesink")
    )
    frames, source = detector.get_by_name("frames"), pipeline.get_by_name("boxes")
    for part in detector, pipeline:
        part.set_state(Gst.State.PLAYING)
    count = found = 0
    try:
        # pull-sample returns None at the end of the stream.
        while sample := frames.emit("pull-sample"):
            buffer = sample.get_buffer()
            boxes = find(buffer.extract_dup(0, buffer.get_size()))
            # Makes a new buffer with the same memory, because a new buffer is writable.
            parts = Gst.BufferCopyFlags.TIMESTAMPS | Gst.BufferCopyFlags.FLAGS | Gst.BufferCopyFlags.META
            buffer = buffer.copy_region(parts | Gst.BufferCopyFlags.MEMORY, 0, buffer.get_size())
            attach(buffer, boxes)
            if source.emit("push-buffer", buffer) != Gst.FlowReturn.OK:
                break
            count, found = count + 1, found + len(boxes)
        source.emit("end-of-stream")
        for part in detector, pipeline:
            ends = Gst.MessageType.ERROR | Gst.MessageType.EOS
            message = part.get_bus().timed_pop_filtered(60 * Gst.SECOND, ends)
            if message is None:
                return "the pipeline did not end within a minute"
            if message.type == Gst.MessageType.ERROR:
                return message.parse_error().gerror.message
        print(f"{count} frames, {found} boxes attached, active-backend", end=" ")
        print(pipeline.get_by_name("blur").get_property("active-backend").value_nick)
    finally:
        for part in detector, pipeline:
            part.set_state(Gst.State.NULL)


if __name__ == "__main__":
    sys.exit(main())
