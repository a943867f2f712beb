#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""Covers boxes from a CSV file in a video, and writes the covered video with its sound as MP4.

Needs PyGObject, which distributions install for /usr/bin/python3 (Debian and Ubuntu: python3-gi, python3-gst-1.0,
gir1.2-gst-plugins-base-1.0), gstreamer1.0-plugins-good, gstreamer1.0-plugins-ugly (x264enc), gstreamer1.0-libav, and the plugin,
installed or in GST_PLUGIN_PATH:

    cargo build --release && GST_PLUGIN_PATH=target/release examples/boxes_from_file.py input.mp4 boxes.csv covered.mp4
"""

import argparse
import csv
import math
import os
import signal
import sys
from collections import deque
from dataclasses import dataclass, replace

try:
    import gi
except ImportError:
    sys.exit(f"{sys.executable} has no PyGObject: install python3-gi and run this with the distribution's /usr/bin/python3")

for name in "Gst", "GstPbutils", "GstVideo":
    gi.require_version(name, "1.0")
from gi.repository import Gst, GstVideo
# Without it, GStreamer's arrays are no lists.
import gi.overrides.Gst

from hide.folder import new_part, put
from hide.jobs import Setup
from hide.pipeline import cover
from hide.play import leave
from hide.terminal import Interrupted, Refused, count, on_signal, printable

FORMAT = """\
The CSV file begins with a line of column names, in any order:

  frame or time    the frame's number, from 0 on; or seconds from the start of the video
  x, y             the upper left corner of the box, in pixels of the video as players show it: turned upright
  width, height    the size of the box, in pixels
  label            optional; see --labels
  confidence       optional, 0 to 1; see --min-confidence
  id               optional: lines with the same id are keyframes of one object
  what             optional, not used: why hide.py has written the line

A line is one box in one frame; with time, in the frame that is shown at that time. Frames without a line have no box of
their own; an object that vanishes stays covered for --hold seconds. Example:

  frame,x,y,width,height,label
  0,120,80,60,60,face
  1,124,80,60,60,face

An object with an id also has a box in each frame between two of its lines: the edges move in a straight line from one to
the other. So a few lines cover what a detector missed. An object that leaves the picture and returns needs a second id.
Example, a face that moves for two seconds, stops for one, and then shows in one more frame:

  time,x,y,width,height,label,id
  4.2,120,80,60,60,face,1
  6.2,480,90,70,70,face,1
  7.2,480,90,70,70,face,1
  9.9,300,80,60,60,face,

If a line cannot be read or is beyond the end of the video, the video is not written.
"""
REQUIRED = ("x", "y", "width", "height")
OPTIONAL = ("frame", "time", "label", "confidence", "id", "what")


@dataclass
class Box:
    """A line of the CSV file, or what is between two of them."""

    # The frame's number, or seconds.
    position: float
    # Left, top, right and bottom, in pixels.
    edges: tuple
    label: str
    confidence: float | None
    id: str
    line: int
    # The next keyframe of the same object.
    following: "Box | None" = None

    def moved(self, position):
        """The box between this keyframe and the following one. It is as certain as the more certain of them."""
        share = (position - self.position) / (self.following.position - self.position)
        edges = tuple(old + (new - old) * share for old, new in zip(self.edges, self.following.edges))
        confidences = (self.confidence, self.following.confidence)
        return replace(self, edges=edges, confidence=None if None in confidences else max(confidences))

    def is_beyond(self, width, height):
        """Whether nothing of it is in a picture of this size."""
        left, top, right, bottom = self.edges
        return right <= 0 or bottom <= 0 or left >= width or top >= height

    def pixels(self):
        """Whole pixels: x, y, width and height. Rounded outwards, and without what is left of or above the picture, because
        metas have no negative numbers."""
        left, top = (max(0, math.floor(edge)) for edge in self.edges[:2])
        right, bottom = (math.ceil(edge) for edge in self.edges[2:])
        return left, top, max(left, right) - left, max(top, bottom) - top


def read_boxes(lines):
    """Reads the CSV file. Returns the name of the first column, frame or time, and the boxes in ascending order."""
    reader = csv.DictReader(lines, skipinitialspace=True)
    names = [name.strip() for name in reader.fieldnames or []]
    reader.fieldnames = names
    missing = [name for name in REQUIRED if name not in names]
    unknown = [name for name in names if name not in REQUIRED + OPTIONAL]
    if missing:
        raise Refused(f"has no column {missing[0]}")
    if unknown:
        raise Refused(f"has a column {unknown[0]}, which is not used; remove or rename it")
    if len(set(names)) < len(names) or ("frame" in names) == ("time" in names):
        raise Refused("must have one column frame or one column time, and every other column once")
    position = "frame" if "frame" in names else "time"
    boxes = []
    for row in reader:
        try:
            # None is the key of surplus values and the value of missing ones.
            if None in row or None in row.values():
                raise ValueError("it has more or fewer values than there are columns")
            numbers = {name: float(row[name]) for name in (position, *REQUIRED)}
            if not all(math.isfinite(number) for number in numbers.values()) or numbers[position] < 0:
                raise ValueError("a number is negative or not finite")
            if numbers["width"] <= 0 or numbers["height"] <= 0:
                raise ValueError("the box is empty")
            if position == "frame" and numbers["frame"] != int(numbers["frame"]):
                raise ValueError("the frame is not a whole number")
            confidence = float(row["confidence"]) if row.get("confidence") else None
            if confidence is not None and not 0 <= confidence <= 1:
                raise ValueError("the confidence is not from 0 to 1")
        except ValueError as error:
            raise Refused(f"line {reader.line_num}: {error}") from None
        edges = (numbers["x"], numbers["y"], numbers["x"] + numbers["width"], numbers["y"] + numbers["height"])
        label, identity = row.get("label") or "", (row.get("id") or "").strip()
        boxes.append(Box(numbers[position], edges, label, confidence, identity, reader.line_num))
    if not boxes:
        raise Refused("has no boxes, so that nothing would be covered")
    boxes.sort(key=lambda box: box.position)
    link_keyframes(boxes, position)
    return position, boxes


def link_keyframes(boxes, position):
    """Sets the following keyframe of each keyframe."""
    latest = {}
    for box in boxes:
        if previous := latest.get(box.id):
            about = f"line {box.line}: id {box.id} is also in line {previous.line}"
            if box.position == previous.position:
                raise Refused(f"{about}, with the same {position}; an object has one box at a time")
            if box.label != previous.label:
                raise Refused(f"{about}, with another label; give each object its own id")
            previous.following = box
        if box.id:
            latest[box.id] = box


class Schedule:
    """Hands out the boxes of one frame after the other."""

    def __init__(self, boxes):
        self.boxes = deque(boxes)
        # By id, the latest keyframe of each object that has another one to come.
        self.moving = {}

    def boxes_of(self, start, end):
        """The boxes of a frame, from the positions of this frame and of the next one."""
        boxes = []
        while self.boxes and self.boxes[0].position < end:
            box = self.boxes.popleft()
            boxes.append(box)
            self.moving.pop(box.id, None)
            if box.following:
                self.moving[box.id] = box
        return boxes + [box.moved(start) for box in self.moving.values() if box.position < start]


def attach(buffer, boxes):
    """Attaches boxes to a writable buffer. A box of no size says that this frame has none: without any meta,
    on-missing=auto takes the frame for one that no detector has looked at and covers all of it."""
    none = Box(0, (0, 0, 0, 0), "nothing", None, "", 0)
    for box in boxes or [none]:
        meta = GstVideo.buffer_add_video_region_of_interest_meta(buffer, box.label, *box.pixels())
        if meta is None:
            raise RuntimeError("the buffer is not writable, so no box can be attached")
        if box.confidence is not None:
            meta.add_param(Gst.Structure.new_from_string(f"detection, confidence=(double){box.confidence}"))


class Attacher:
    """Attaches the boxes of a file to the frames that one element of a pipeline gives and another one takes."""

    ELEMENTS = "appsink name=frames async=false sync=false max-buffers=4 appsrc name=boxes format=time block=true max-buffers=4"

    def __init__(self, position, boxes, properties):
        # `properties` are those of cudagaussblur.
        self.position, self.all, self.properties = position, boxes, properties

    def __call__(self, pipeline):
        """Begins with a pipeline that has these elements."""
        for name, value in self.properties.items():
            pipeline.get_by_name("blur").set_property(name, value)
        self.schedule, self.waiting = Schedule(self.all), None
        self.frames = self.boxes = self.beyond = 0
        self.source, sink = pipeline.get_by_name("boxes"), pipeline.get_by_name("frames")
        sink.set_property("emit-signals", True)
        sink.connect("new-sample", self.take)
        sink.connect("eos", self.finish)

    def take(self, sink):
        sample = sink.emit("pull-sample")
        time = sample.get_segment().to_running_time(Gst.Format.TIME, sample.get_buffer().pts)
        # The next frame says when this one ends.
        result = self.push(time) if self.waiting else Gst.FlowReturn.OK
        self.waiting = sample, time
        return result

    def finish(self, _):
        if self.waiting:
            start, duration = self.waiting[1], self.waiting[0].get_buffer().duration
            self.push(start + duration if duration != Gst.CLOCK_TIME_NONE else math.inf)
        self.source.emit("end-of-stream")

    def push(self, end):
        """Pushes the frame that waits for its end."""
        (sample, start), buffer = self.waiting, self.waiting[0].get_buffer()
        in_frames = self.position == "frame"
        boxes = self.schedule.boxes_of(*((self.frames, self.frames + 1) if in_frames else (start / Gst.SECOND, end / Gst.SECOND)))
        # A new buffer with the same memory: this one is writable.
        parts = Gst.BufferCopyFlags.TIMESTAMPS | Gst.BufferCopyFlags.FLAGS | Gst.BufferCopyFlags.META
        buffer = buffer.copy_region(parts | Gst.BufferCopyFlags.MEMORY, 0, buffer.get_size())
        buffer.pts = start
        attach(buffer, boxes)
        info = GstVideo.VideoInfo.new_from_caps(sample.get_caps())
        self.frames, self.boxes = self.frames + 1, self.boxes + len(boxes)
        self.beyond += sum(box.is_beyond(info.width, info.height) for box in boxes)
        self.source.set_property("caps", sample.get_caps())
        return self.source.emit("push-buffer", buffer)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog=FORMAT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("video", help="the video to read")
    parser.add_argument("boxes", help="the CSV file with the boxes")
    parser.add_argument("result", help="the MP4 file to write")
    parser.add_argument("--cover", choices=("blur", "mosaic", "fill"), default="fill", help="default: fill")
    parser.add_argument("--labels", default="", help="labels to cover, separated by commas; default: every label")
    parser.add_argument("--min-confidence", type=float, default=0, help="boxes below it are not covered; default: 0")
    parser.add_argument("--hold", type=float, default=0.5, help="seconds that a vanished object stays covered; default: 0.5")
    arguments = parser.parse_args()
    if not 0 <= arguments.hold < 1e9 or not 0 <= arguments.min_confidence <= 1:
        parser.error("--hold takes seconds from 0 up, --min-confidence a number from 0 to 1")
    for name in arguments.video, arguments.boxes:
        if os.path.exists(name) and os.path.exists(arguments.result) and os.path.samefile(name, arguments.result):
            parser.error(f"the result would overwrite {name}")
    Gst.init(None)
    if not Gst.ElementFactory.find("cudagaussblur"):
        return "GStreamer does not find cudagaussblur: install the plugin or set GST_PLUGIN_PATH to its folder"
    try:
        with open(arguments.boxes, newline="", encoding="utf-8-sig") as lines:
            position, boxes = read_boxes(lines)
    except Refused as error:
        return f"{arguments.boxes} {error}"
    except (OSError, ValueError) as error:
        return f"{arguments.boxes} cannot be read: {getattr(error, 'strerror', None) or error}"
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, on_signal)
    properties = {"labels": arguments.labels, "min-confidence": arguments.min_confidence, "hold-time": round(arguments.hold * Gst.SECOND)}
    attacher, part, work = Attacher(position, boxes, properties), None, None
    try:
        setup = Setup(dict(cover=arguments.cover, ten_bit=True, finder=Attacher.ELEMENTS, blur="region-mode=inside"), {},
                      on_pipeline=attacher)
        # The name of the result is given to a whole video only.
        descriptor, part = new_part(arguments.result)
        work = cover(setup, arguments.video, descriptor, lambda frames, share: None)
        os.close(descriptor)
        if attacher.schedule.boxes:
            raise Refused(f"{count(len(attacher.schedule.boxes), 'line')} of {arguments.boxes} beyond the end of the video")
        put(part, arguments.result)
    except Interrupted:
        return "interrupted, and nothing is written"
    except Refused as error:
        return f"{printable(arguments.video)}: {error}" if part else str(error)
    except OSError as error:
        return f"{printable(error.filename or arguments.result)} cannot be read or written: {error.strerror}"
    finally:
        if part and os.path.exists(part):
            os.remove(part)
    for note in work.notes:
        print(note)
    beyond, found = attacher.beyond, attacher.boxes
    if beyond:
        print(f"{beyond} of {found} boxes lie beyond the picture and cover nothing: compare {arguments.boxes} with the video")
    print(f"{attacher.frames} frames, {found} boxes attached, wrote {arguments.result}")


if __name__ == "__main__":
    leave(main())
