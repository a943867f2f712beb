# SPDX-License-Identifier: MPL-2.0
"""What hide.py says about its results: the seconds of a video that a person has to look at, as a table that boxes_from_file.py
takes, and the page about all results."""

import csv
import html
import io
import math
import os
import urllib.parse
from dataclasses import dataclass, field

from gi.repository import Gst

KINDS = {"lost": "was lost inside the picture", "gap": "has a gap between detections", "first-seen": "begins inside the picture"}


def printable(name):
    """A name on one line, also one that is not UTF-8."""
    text = os.fspath(name).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def count(number, noun):
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


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

    def rank(self):
        """Ascending from the worst on: objects that were detected for a second or more, by kind, those without a cover at the
        end, and by their detections."""
        return self.brief, list(KINDS).index(self.what), self.end is None, -self.detections

    def sentence(self):
        end = "the end" if self.end is None else f"{math.ceil(self.end / 10**8) / 10:.1f} s"
        return f"{self.start // 10**8 / 10:.1f} s to {end}: {self.label or 'object'} {self.track} {KINDS[self.what]}"


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
    """Follows the objects of a result by the messages in which the element says what it covered. They speak of detections,
    because nobody counted the objects."""

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
        # What on-missing makes of a frame that has lost its detections.
        self.whole += covered == "frame" and message.get_boolean("missing")[1]
        # With region-mode=outside all of a frame is covered if there is nothing to show.
        is_shown = message.get_double("covered-area")[1] < 0.999
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
        """Takes the doubts of a track that is over: in the first frame without it, or with the video."""
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

    def table(self):
        """A CSV file that boxes_from_file.py takes: two keyframes for each doubt. Times are rounded outwards."""
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow("time x y width height label id what".split())
        for number, doubt in enumerate(self.doubts, 1):
            start = doubt.start // 10**6 / 1000
            end = math.ceil(min(self.latest if doubt.end is None else doubt.end, self.latest) / 10**6) / 1000
            for moment, box in zip((start, end) if end > start else (end,), doubt.boxes):
                lines.writerow((f"{moment:.3f}", *box, doubt.label, number, doubt.what))
        return text.getvalue()

    def doubtful_seconds(self):
        """The time in doubt; what is in two doubts counts once."""
        total = reached = 0
        for doubt in self.doubts:
            end = self.end if doubt.end is None else doubt.end
            total += max(0, end - max(doubt.start, reached))
            reached = max(reached, end)
        return total / Gst.SECOND


STYLE = """\
body { font: 16px/1.4 sans-serif; max-width: 64em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: .3em .8em .3em 0;
border-bottom: 1px solid #ccc; overflow-wrap: anywhere } .number { text-align: right; white-space: nowrap }
.look { color: #a00; font-weight: bold } figure { display: inline-block; width: 320px; margin: 0 1em 1em 0; vertical-align: top }
img { max-width: 100%; display: block } figcaption { font-size: .9em } section { break-inside: avoid-page }
@media print { body { margin: 0; max-width: none } figure { width: 30%; break-inside: avoid } a { color: inherit } }
"""
# Says that a page is of this program, which may replace it.
GENERATOR = '<meta name="generator" content="cudagaussblur hide.py">'
EXPLANATION = """\
<p>Look at every video in which nothing was found before you publish, and at others: what the detector has never found is visible and
is not in this list.</p>
"""
DOUBTS = """\
<p>At the times below a face or plate may show. A number is one object, as the detector found it. To correct a result, edit the CSV
file named after it (its lines are boxes of the doubtful seconds: delete those that are covered, move the others to where the face is)
and run <code>examples/boxes_from_file.py --cover mosaic RESULT CSV CORRECTED.mp4</code>, which leaves out the sound.</p>
"""


def link(path, text):
    return f'<a href="{urllib.parse.quote(os.fsencode(path))}{text[0]}">{html.escape(text[1])}</a>'


def page(entries):
    """The page about all results, from the lines of the index."""
    done = [entry for entry in entries if not entry["failure"]]
    empty, failed = sum(map(is_empty, done)), len(entries) - len(done)
    doubtful = sum(entry["doubtful"] for entry in done)
    rows, sections = [], []
    for number, entry in enumerate(entries):
        name = printable(entry["result"])
        if entry["failure"]:
            rows.append(f'<tr><td>{html.escape(printable(entry["input"]))}</td><td colspan="5" class="look">failed: '
                        f'{html.escape(entry["failure"])}</td></tr>')
            continue
        remarks = [f'<span class="look">{html.escape(note)}</span>' for note in entry["notes"]]
        if is_empty(entry):
            remarks.insert(0, '<span class="look">nothing was found: look at it</span>')
        if entry["doubts"]:
            remarks.append(f'<a href="#doubts-{number}">{count(len(entry["doubts"]), "doubt")}</a>')
            sections.append(f'<section id="doubts-{number}"><h2>{link(entry["result"], ("", name))}</h2>\n'
                            + "\n".join(figure(entry["result"], doubt) for doubt in entry["doubts"]) + "</section>\n")
        found = "" if entry["objects"] is None else entry["objects"]
        cells = entry["frames"], f'{entry["seconds"]:.1f} s', found, f'{entry["doubtful"]:.1f} s' if entry["doubtful"] else ""
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        rows.append(f'<tr><td>{link(entry["result"], ("", name))}</td>{numbers}<td>{"<br>".join(remarks)}</td></tr>')
    summary = f'{count(len(done), "video")}, {doubtful:.1f} doubtful seconds, nothing found in {empty}, {failed} failed'
    heads = "".join(f'<th{" class=number" if 0 < column < 5 else ""}>{head}</th>' for column, head in enumerate(
        ("video", "frames", "length", "objects found", "doubtful", "remarks")))
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">{GENERATOR}\n'
            f"<title>Covered videos</title><style>\n{STYLE}</style></head><body>\n<h1>Covered videos</h1>\n<p>{summary}</p>\n"
            f"{EXPLANATION}{DOUBTS if sections else ''}<table><thead><tr>{heads}</tr></thead><tbody>\n" + "\n".join(rows)
            + "\n</tbody></table>\n" + "".join(sections) + "</body></html>\n")


def is_empty(entry):
    """Whether something was searched and nothing was found."""
    return entry["covered"] == 0


def figure(result, doubt):
    picture = f'<img alt="" src="data:image/jpeg;base64,{doubt["picture"]}">' if doubt["picture"] else ""
    place = f"#t={doubt['shown'] / Gst.SECOND:.2f}"
    moment = f'picture at {doubt["shown"] / Gst.SECOND:.1f} s' if picture else "play"
    text = f'{html.escape(doubt["sentence"])} ({link(result, (place, moment))})'
    return f"<figure>{picture}<figcaption>{text}</figcaption></figure>"
