# SPDX-License-Identifier: MPL-2.0
"""The seconds of a result that a person has to look at, and a table of them that boxes_from_file.py reads."""

import csv
import io
import math
from dataclasses import dataclass, field

from gi.repository import Gst

KINDS = {"lost": "was lost inside the picture", "gap": "has a gap between detections", "first-seen": "begins inside the picture"}


@dataclass
class Doubt:
    """A span of the result in which an object may not be covered. Times are in nanoseconds."""

    what: str
    track: int
    label: str
    start: int
    # The first frame after the span; None if there is none.
    end: int | None
    # The frame that shows the most: one without a cover, or in the middle of a gap.
    shown: int
    # What is covered at the beginning and at the end.
    boxes: tuple
    brief: bool = False
    detections: int = 0
    # Its id in the table.
    number: int = 0

    def rank(self):
        """Sort key, worst first: long-lived objects, then kind, then no cover at the end, then most detections."""
        return self.brief, list(KINDS).index(self.what), self.end is None, -self.detections

    def sentence(self):
        end = "the end" if self.end is None else f"{math.ceil(self.end / 10**8) / 10:.1f} s"
        return f"{self.start // 10**8 / 10:.1f} s to {end}: {self.label or 'object'} {self.number} {KINDS[self.what]}"

    def box(self):
        """What is covered in the frame that is shown, as if the object had moved in a straight line."""
        share = 0 if self.end is None else min(1, max(0, (self.shown - self.start) / max(1, self.end - self.start)))
        return [round(old + (new - old) * share) for old, new in zip(*self.boxes)]


@dataclass
class Track:
    """An object that is covered in the latest frame."""

    # What is covered.
    box: tuple
    label: str
    # Whether its latest detection is inside the picture. Its cover grows beyond the edges after that.
    inside: bool = False
    detections: int = 0
    # When it was first detected, and last.
    first: int | None = None
    last: int = 0
    # Since when it is not detected any more, and where it was before; and the frames since.
    missing: tuple | None = None
    missed: int = 0
    doubts: list = field(default_factory=list)


class Report:
    """Follows the objects of a result by the messages in which the element says what it covered."""

    def __init__(self, every):
        # An object is searched in one frame of so many. Missing from fewer frames says nothing.
        self.every = every
        self.tracks, self.doubts, self.objects = {}, [], set()
        self.latest = None
        self.end = self.covered = self.whole = 0

    def update(self, message, size):
        """Adds the message about the next frame, whose picture has this width and height."""
        stamp, length = (message.get_uint64(name)[1] for name in ("running-time", "duration"))
        now = stamp if stamp != Gst.CLOCK_TIME_NONE else self.end
        self.end = now + (length if length != Gst.CLOCK_TIME_NONE else 0)
        previous, self.latest = self.latest, now
        covered = message.get_string("covered")
        # With region-mode=outside all of a frame is covered if there is nothing to show.
        is_shown = message.get_double("covered-area")[1] < 0.999
        self.whole += covered == "frame" or covered != "dropped" and not is_shown
        self.covered += covered in ("regions", "partly") or covered == "outside" and is_shown
        regions = {}
        for region in message.get_value("regions"):
            number, is_found = region.get_uint("track")[1], region.get_string("origin") == "found"
            # If it is doubtful whether a detection continues a track, the track is also held without it. A zone has no track.
            if number and (is_found or number not in regions):
                box = tuple(region.get_uint(name)[1] for name in ("x", "y", "width", "height"))
                regions[number] = box, region.get_string("label") or "", is_found
        for number in self.tracks.keys() - regions.keys():
            self.close(number, now)
        for number, (box, label, is_found) in regions.items():
            track = self.tracks.get(number)
            if track is None:
                track = self.tracks[number] = Track(box, label)
                if previous is not None:
                    start = max(0, now - Gst.SECOND)
                    track.doubts.append(Doubt("first-seen", number, label, start, now, previous, (box, box)))
            if is_found:
                self.find(number, track, box, now, size)
            elif track.first is not None:
                track.missing = track.missing or (now, track.box)
                track.missed += 1
            track.box = box

    def find(self, number, track, box, now, size):
        """The track's object is detected in this frame."""
        self.objects.add(number)
        x, y, width, height = box
        track.inside = x > 0 and y > 0 and x + width < size[0] and y + height < size[1]
        if track.first is None:
            track.first = track.last = now
            if not track.inside:
                track.doubts.clear()
        if track.missing and now - track.last > Gst.SECOND:
            start, place = track.missing
            track.doubts.append(Doubt("gap", number, track.label, start, now, (start + now) // 2, (place, box)))
        track.last, track.missing, track.missed = now, None, 0
        track.detections += 1

    def close(self, number, end):
        """Moves the doubts of a track to the list: in the first frame without it, or at the end of the video."""
        track = self.tracks.pop(number)
        brief = track.first is None or track.last - track.first < Gst.SECOND
        start, place = track.missing or (end, track.box)
        if track.inside and start is not None and (end is not None or track.missed >= self.every):
            # One span holds the beginning and the end of what was detected briefly.
            if brief and track.doubts and track.doubts[-1].what == "first-seen":
                first = track.doubts.pop()
                start, place = first.start, first.boxes[0]
            shown = self.latest if end is None else end
            track.doubts.append(Doubt("lost", number, track.label, start, end, shown, (place, track.box)))
        for doubt in track.doubts:
            doubt.brief, doubt.detections = brief, track.detections
        self.doubts += track.doubts

    def finish(self):
        for number in list(self.tracks):
            self.close(number, None)
        self.doubts.sort(key=lambda doubt: (doubt.start, doubt.track))
        for number, doubt in enumerate(self.doubts, 1):
            doubt.number = number

    def table(self):
        """A CSV file that boxes_from_file.py reads: two keyframes for each doubt. Times are rounded outwards."""
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow("time x y width height label id what".split())
        for doubt in self.doubts:
            start = doubt.start // 10**6 / 1000
            end = math.ceil(min(self.latest if doubt.end is None else doubt.end, self.latest) / 10**6) / 1000
            for moment, box in zip((start, end) if end > start else (end,), doubt.boxes):
                lines.writerow((f"{moment:.3f}", *box, doubt.label, doubt.number, doubt.what))
        return text.getvalue()

    def doubtful_seconds(self):
        """The time in doubt; what is in two doubts counts once."""
        total = reached = 0
        for doubt in self.doubts:
            end = self.end if doubt.end is None else doubt.end
            total += max(0, end - max(doubt.start, reached))
            reached = max(reached, end)
        return total / Gst.SECOND
