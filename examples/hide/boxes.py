# SPDX-License-Identifier: MPL-2.0
"""Boxes in the frames of a video: reads them from CSV files, attaches them to frames, and reads those of a detector."""

import csv
import io
import math
from collections import deque
from dataclasses import dataclass, replace

from gi.repository import GLib, Gst, GstVideo

from .terminal import Refused

REQUIRED = ("x", "y", "width", "height")
OPTIONAL = ("frame", "time", "label", "confidence", "id", "what")


@dataclass
class Box:
    """A line of a CSV file, or a box between two of its lines."""

    # The number of the frame, or the time in seconds.
    position: float
    # Left, top, right and bottom, in pixels.
    edges: tuple
    label: str
    confidence: float | None = None
    id: str = ""
    # The column `what` of the line. For a detection, it is the number of its object.
    what: str = ""
    line: int = 0
    # The next keyframe of the same object.
    following: "Box | None" = None

    def moved(self, position):
        """Returns the box at a position between this keyframe and the following one. Its confidence is the higher of both."""
        share = (position - self.position) / (self.following.position - self.position)
        edges = tuple(old + (new - old) * share for old, new in zip(self.edges, self.following.edges))
        confidences = (self.confidence, self.following.confidence)
        return replace(self, edges=edges, confidence=None if None in confidences else max(confidences))

    def is_beyond(self, width, height):
        """Whether the whole box lies outside of a picture of this size."""
        left, top, right, bottom = self.edges
        return right <= 0 or bottom <= 0 or left >= width or top >= height

    def pixels(self):
        """Returns x, y, width and height in whole pixels, rounded outwards. The parts left of and above the picture are cut off,
        because metas have no negative numbers."""
        left, top = (max(0, math.floor(edge)) for edge in self.edges[:2])
        right, bottom = (math.ceil(edge) for edge in self.edges[2:])
        return left, top, max(left, right) - left, max(top, bottom) - top


def read_boxes(lines):
    """Reads a CSV file. Returns the name of its column of positions, frame or time, and the boxes in ascending order."""
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
            # The csv module puts surplus values under the key None, and uses None for missing values.
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
        label, identity, what = (row.get(name) or "" for name in ("label", "id", "what"))
        boxes.append(Box(numbers[position], edges, label, confidence, identity.strip(), what, reader.line_num))
    boxes.sort(key=lambda box: box.position)
    link_keyframes(boxes, position)
    return position, boxes


def link_keyframes(boxes, position):
    """Sets the following keyframe of each box that has an id."""
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
    """Returns the boxes of one frame after the other."""

    def __init__(self, boxes):
        self.boxes = deque(boxes)
        # For each id, the latest keyframe that has a following one.
        self.moving = {}

    def boxes_of(self, start, end):
        """Returns the boxes of a frame. `start` is the position of this frame, and `end` that of the next one."""
        boxes = []
        while self.boxes and self.boxes[0].position < end:
            box = self.boxes.popleft()
            boxes.append(box)
            self.moving.pop(box.id, None)
            if box.following:
                self.moving[box.id] = box
        return boxes + [box.moved(start) for box in self.moving.values() if box.position < start]


def attach(buffer, boxes):
    """Attaches boxes to a writable buffer. A box of size 0 says that this frame has no boxes. Without any meta, on-missing=auto
    assumes that no detector has looked at the frame, and covers all of it."""
    for box in boxes or [Box(0, (0, 0, 0, 0), "nothing")]:
        meta = GstVideo.buffer_add_video_region_of_interest_meta(buffer, box.label, *box.pixels())
        if meta is None:
            raise RuntimeError("the buffer is not writable, so no box can be attached")
        if box.confidence is not None:
            meta.add_param(Gst.Structure.new_from_string(f"detection, confidence=(double){box.confidence}"))


class Attacher:
    """Attaches boxes to the frames that leave one element of a pipeline, and passes them to another element."""

    ELEMENTS = "appsink name=frames async=false sync=false max-buffers=4 appsrc name=boxes format=time block=true max-buffers=4"

    def __init__(self, boxes, properties=None):
        """`boxes` has lists of boxes by the name of their position, frame or time. `properties` are those of cudagaussblur."""
        self.all, self.properties = boxes, properties or {}
        # The object numbers of attached boxes, by frame and box, for boxes that have one; and the first free number.
        self.attached = {}
        self.first_number = 1 + max((int(box.what) for box in boxes.get("frame", []) if box.what.isdecimal()), default=0)

    def __call__(self, pipeline):
        """Starts with a new pipeline, which must have the elements of ELEMENTS."""
        for name, value in self.properties.items():
            pipeline.get_by_name("blur").set_property(name, value)
        self.schedules, self.waiting = {position: Schedule(boxes) for position, boxes in self.all.items()}, None
        self.frames = self.boxes = self.beyond = 0
        self.attached.clear()
        self.caps = self.size = None
        self.source, sink = pipeline.get_by_name("boxes"), pipeline.get_by_name("frames")
        sink.set_property("emit-signals", True)
        sink.connect("new-sample", self.take)
        sink.connect("eos", self.finish)

    def take(self, sink):
        sample = sink.emit("pull-sample")
        time = sample.get_segment().to_running_time(Gst.Format.TIME, sample.get_buffer().pts)
        # The start of the next frame is the end of the waiting one.
        result = self.push(time) if self.waiting else Gst.FlowReturn.OK
        self.waiting = sample, time
        return result

    def finish(self, _):
        if self.waiting:
            start, duration = self.waiting[1], self.waiting[0].get_buffer().duration
            self.push(start + duration if duration != Gst.CLOCK_TIME_NONE else math.inf)
        self.source.emit("end-of-stream")

    def push(self, end):
        """Pushes the waiting frame, which ends at `end`."""
        (sample, start), buffer = self.waiting, self.waiting[0].get_buffer()
        spans = dict(frame=(self.frames, self.frames + 1), time=(start / Gst.SECOND, end / Gst.SECOND))
        boxes = [box for position, schedule in self.schedules.items() for box in schedule.boxes_of(*spans[position])]
        # Makes a new buffer with the same memory, because a new buffer is writable.
        parts = Gst.BufferCopyFlags.TIMESTAMPS | Gst.BufferCopyFlags.FLAGS | Gst.BufferCopyFlags.META
        buffer = buffer.copy_region(parts | Gst.BufferCopyFlags.MEMORY, 0, buffer.get_size())
        buffer.pts = start
        attach(buffer, boxes)
        caps = sample.get_caps()
        if self.caps is None or not caps.is_equal(self.caps):
            info = GstVideo.VideoInfo.new_from_caps(caps)
            self.caps, self.size = caps, (info.width, info.height)
            self.source.set_property("caps", caps)
        self.attached.update(((self.frames, box.pixels()), box.what) for box in boxes if box.what.isdecimal())
        self.frames, self.boxes = self.frames + 1, self.boxes + len(boxes)
        self.beyond += sum(box.is_beyond(*self.size) for box in boxes)
        return self.source.emit("push-buffer", buffer)

    def unused(self):
        """Returns the boxes of objects that begin only after the end of the video."""
        return [box for schedule in self.schedules.values() for box in schedule.boxes if box.id not in schedule.moving]


def detections_of(buffer):
    """Returns the boxes that a detector has attached to a buffer, except those of size 0. Their position is 0."""
    # Reads a copy, because reading marks each meta.
    metas, boxes = buffer.copy_region(Gst.BufferCopyFlags.META, 0, buffer.get_size()), []
    # Python cannot iterate metas. All have the id 0, so each one that has been read gets another id.
    while meta := GstVideo.buffer_get_video_region_of_interest_meta_id(metas, 0):
        meta.id = 1
        if meta.w and meta.h:
            param = meta.get_param("detection")
            is_known, confidence = param.get_double("confidence") if param else (False, 0)
            edges = meta.x, meta.y, meta.x + meta.w, meta.y + meta.h
            boxes.append(Box(0, edges, GLib.quark_to_string(meta.roi_type), confidence if is_known else None))
    return boxes


def table_of_detections(boxes):
    """Returns the boxes of a detector as a CSV file. Their positions are numbers of frames."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow("frame x y width height label confidence what".split())
    for box in boxes:
        confidence = "" if box.confidence is None else repr(box.confidence)
        lines.writerow((box.position, *box.pixels(), box.label, confidence, box.what))
    return text.getvalue()
