# SPDX-License-Identifier: MPL-2.0
"""The objects of a result, the seconds that a person has to review, and a table of these seconds that boxes_from_file.py
reads."""

import csv
import io
import itertools
import math
from dataclasses import dataclass, field
from typing import NamedTuple

from gi.repository import Gst

# Detections of an object whose distance is not larger are one span on the page.
STEADY = Gst.SECOND // 2
KINDS = {"lost": "was lost inside the picture", "gap": "has a gap between detections", "first-seen": "begins inside the picture"}


@dataclass
class Doubt:
    """A span of the result in which an object may not be covered. Times are in nanoseconds."""

    what: str
    label: str
    start: int
    # The first frame after the span, or None at the end of the video.
    end: int | None
    # The frame that shows the most: the first one without a cover, or one in the middle of a gap.
    shown: int
    # The covered boxes at the beginning and at the end of the span.
    boxes: tuple
    # The number of the object, and the id of this span in the table.
    number: int = 0
    id: str = ""

    def sentence(self):
        end = "the end" if self.end is None else f"{math.ceil(self.end / 10**8) / 10:.1f} s"
        return f"{self.start // 10**8 / 10:.1f} s to {end}: {self.label or 'object'} {self.number} {KINDS[self.what]}"

    def box(self):
        """Returns the covered box in the frame `shown`, as if the object had moved in a straight line."""
        share = 0 if self.end is None else min(1, max(0, (self.shown - self.start) / max(1, self.end - self.start)))
        return [round(old + (new - old) * share) for old, new in zip(*self.boxes)]


class View(NamedTuple):
    """A detection, with a picture of it if that was kept."""

    time: int
    box: tuple
    confidence: float
    picture: object


@dataclass
class Track:
    """An object that is covered in the latest frame."""

    # The covered box.
    box: tuple
    label: str
    # The time from which on it is covered, and the time when the cover ends; None if it is covered at the end of the video.
    start: int
    end: int | None = None
    # The number of the object; None until it is detected.
    number: int | None = None
    # The times of all detections; and the first detection, the one with the lowest confidence, and the last one.
    times: list = field(default_factory=list)
    views: list = field(default_factory=list)
    # Whether the cover was inside the picture at the latest detection. Without detections, the cover grows and may reach beyond
    # the edges.
    inside: bool = False
    # The times of the first and of the last detection.
    first: int | None = None
    last: int = 0
    # The time since when it is not detected any more and the covered box before that; and the number of frames since.
    missing: tuple | None = None
    missed: int = 0
    doubts: list = field(default_factory=list)

    def spans(self, end):
        """Returns when the object was found, held and lost, up to the end of the video: triples of start, end and kind."""
        spans, last = [], self.start
        for time in self.times:
            spans.append((last, time, "found" if spans and time - last <= STEADY else "held"))
            last = time
        spans.append((last, self.end or end, "held"))
        lost = [(doubt.start, doubt.end or end, "lost") for doubt in self.doubts if doubt.what == "lost"]
        joined = []
        for span in spans:
            if joined and joined[-1][2] == span[2]:
                joined[-1] = (joined[-1][0], *span[1:])
            elif span[1] > span[0]:
                joined.append(span)
        return joined + lost


class Report:
    """Follows the objects of a result by the messages in which cudagaussblur says what it has covered."""

    def __init__(self, every, look=lambda frame, box: (1, None), known=None, numbers=None):
        """`look` returns the confidence of a detection and a picture of it. `known` has the numbers of known objects by frame and
        box; other objects get the next one of `numbers`."""
        # Objects are searched in one frame of `every`, so an object that is missing from fewer frames may still be there.
        self.every = every
        self.look, self.known, self.numbers = look, known if known is not None else {}, numbers or itertools.count(1)
        self.tracks, self.doubts, self.objects = {}, [], []
        # The number of the object for each detection that counts, by frame and box.
        self.found = {}
        self.latest = None
        self.frames = self.end = self.covered = self.whole = 0

    def update(self, message, size):
        """Adds the message about the next frame. `size` is width and height of its picture."""
        stamp, length = (message.get_uint64(name)[1] for name in ("running-time", "duration"))
        now = stamp if stamp != Gst.CLOCK_TIME_NONE else self.end
        self.end = now + (length if length != Gst.CLOCK_TIME_NONE else 0)
        previous, self.latest = self.latest, now
        covered = message.get_string("covered")
        # With region-mode=outside, the whole frame is covered if there is nothing to show.
        is_shown = message.get_double("covered-area")[1] < 0.999
        self.whole += covered == "frame" or covered != "dropped" and not is_shown
        self.covered += covered in ("regions", "partly") or covered == "outside" and is_shown
        regions = {}
        for region in message.get_value("regions"):
            number, detected = region.get_uint("track")[1], region.get_value("detected")
            # If it is doubtful whether a detection continues a track, the message has this track once more, without the
            # detection. A zone has no track.
            if number and (detected or number not in regions):
                box = tuple(region.get_uint(name)[1] for name in ("x", "y", "width", "height"))
                regions[number] = box, region.get_string("label") or "", detected and tuple(map(round, detected))
        for number in self.tracks.keys() - regions.keys():
            self.close(number, now)
        for number, (box, label, detected) in regions.items():
            track = self.tracks.get(number)
            if track is None:
                track = self.tracks[number] = Track(box, label, now)
                if previous is not None:
                    start = max(0, now - Gst.SECOND)
                    track.doubts.append(Doubt("first-seen", label, start, now, previous, (box, box)))
            if detected:
                self.find(track, box, detected, now, size)
            elif track.first is not None:
                track.missing = track.missing or (now, track.box)
                track.missed += 1
            track.box = box
        self.frames += 1

    def find(self, track, box, detected, now, size):
        """Records that the object of a track is detected in this frame."""
        if track.number is None:
            track.number = int(self.known.get((self.frames, detected)) or next(self.numbers))
            self.objects.append(track)
        self.found[self.frames, detected] = track.number
        track.times.append(now)
        view = View(now, detected, *self.look(self.frames, detected))
        first, weakest, _ = track.views or [view] * 3
        track.views = [first, min(weakest, view, key=lambda one: one.confidence), view]
        x, y, width, height = box
        track.inside = x > 0 and y > 0 and x + width < size[0] and y + height < size[1]
        if track.first is None:
            track.first = track.last = now
            if not track.inside:
                track.doubts.clear()
        if track.missing and now - track.last > Gst.SECOND:
            start, place = track.missing
            track.doubts.append(Doubt("gap", track.label, start, now, (start + now) // 2, (place, box)))
        track.last, track.missing, track.missed = now, None, 0

    def close(self, number, end):
        """Ends a track in the first frame without it, or at the end of the video, and adds its doubts to the list."""
        track = self.tracks.pop(number)
        track.end = end
        brief = track.first is None or track.last - track.first < Gst.SECOND
        start, place = track.missing or (end, track.box)
        if track.inside and start is not None and (end is not None or track.missed >= self.every):
            # If an object was detected only briefly, one span has its beginning and its end.
            if brief and track.doubts and track.doubts[-1].what == "first-seen":
                first = track.doubts.pop()
                start, place = first.start, first.boxes[0]
            shown = self.latest if end is None else end
            track.doubts.append(Doubt("lost", track.label, start, end, shown, (place, track.box)))
        if track.doubts and track.number is None:
            track.number = next(self.numbers)
        for doubt in track.doubts:
            doubt.number = track.number
        self.doubts += track.doubts

    def finish(self, begin):
        """Closes all tracks at the end of the video, and subtracts `begin`, the running time at which the result begins, from all
        times. Does nothing if the element posted no message, because it then covers all frames as a whole."""
        if self.latest is None:
            return
        for number in list(self.tracks):
            self.close(number, None)
        for doubt in self.doubts:
            doubt.start, doubt.shown = doubt.start - begin, doubt.shown - begin
            doubt.end = None if doubt.end is None else doubt.end - begin
        for track in self.objects:
            track.start = track.start - begin
            track.end = None if track.end is None else track.end - begin
            track.times = [time - begin for time in track.times]
            track.views = [view._replace(time=view.time - begin) for view in track.views]
        self.end, self.latest = self.end - begin, self.latest - begin
        self.doubts.sort(key=lambda doubt: (doubt.start, doubt.number))
        spans = {}
        for doubt in self.doubts:
            spans[doubt.number] = spans.get(doubt.number, 0) + 1
            doubt.id = f"{doubt.number}#{spans[doubt.number]}"

    def table(self):
        """Returns a CSV file that boxes_from_file.py reads. It has two keyframes for each doubt, with times that are rounded
        outwards."""
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow("time x y width height label id what".split())
        for doubt in self.doubts:
            start = doubt.start // 10**6 / 1000
            end = math.ceil(min(self.latest if doubt.end is None else doubt.end, self.latest) / 10**6) / 1000
            for moment, box in zip((start, end) if end > start else (end,), doubt.boxes):
                lines.writerow((f"{moment:.3f}", *box, doubt.label, doubt.id, doubt.what))
        return text.getvalue()

    def doubtful_seconds(self):
        """Returns the seconds with a doubt. A time with two doubts counts once."""
        total = reached = 0
        for doubt in self.doubts:
            end = self.end if doubt.end is None else doubt.end
            total += max(0, end - max(doubt.start, reached))
            reached = max(reached, end)
        return total / Gst.SECOND
