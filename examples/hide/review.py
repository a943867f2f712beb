# SPDX-License-Identifier: MPL-2.0
"""The private folder beside the results: pages with pictures of open faces, on which a person reviews a result, and the detections
that it was made from; and the corrections that such a page saves."""

import hashlib
import html
import json
import math
import os
import pathlib
import re
import stat
import sys
import urllib.parse
from dataclasses import replace

from gi.repository import Gst

from .boxes import Attacher, Box, link_keyframes, read_boxes, table_of_detections
from .folder import is_own_page, new_part, put
from .page import GENERATOR, index_of_pages
from .pictures import jpegs
from .terminal import Refused, printable

INDEX = "index.html"
# Endings of the files about a result.
PAGE, DETECTIONS = ".html", ".detections.csv"
TEMPLATE = pathlib.Path(__file__).with_name("review.html")
# What is around the data of a page.
BEGIN, END = '<script id="data" type="application/json">', "</script>"
# In seconds.
ROUNDED = 0.001
# Pages show so many objects, those with doubts first.
MOST_OBJECTS = 500


def checksum(path):
    """The SHA-256 of a file; None if there is none."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
    except FileNotFoundError:
        return None
    return digest.hexdigest()


class Review:
    """The private folder."""

    def __init__(self, out):
        self.out, self.path = out, os.path.abspath(out).rstrip("/") + "-review"
        # For sentences.
        self.name = printable(self.path if os.path.basename(out.rstrip("/")) in ("", ".", "..") else out.rstrip("/") + "-review")

    def file(self, result, ending):
        return os.path.join(self.path, result + ending)

    def is_own(self):
        return is_own_page(os.path.join(self.path, INDEX)) and not os.path.islink(self.path)

    def check(self):
        """Refuses a folder of somebody else."""
        if os.path.lexists(self.path) and not self.is_own():
            raise Refused(f"{self.name} is not of this program: move it away, or name another folder with --out")

    def write(self, path, text):
        """Writes a file that only its owner can read."""
        if not os.path.isdir(self.path):
            os.makedirs(self.path, 0o700)
            self.write(os.path.join(self.path, INDEX), index_of_pages([]))
        os.chmod(self.path, 0o700)
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        descriptor, part = new_part(path, 0o600)
        if stat.S_IMODE(os.stat(part).st_mode) != 0o600:
            print(f"{self.name} is on a disk without permissions: whoever gets at the disk can open it")
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        put(part, path)

    def keep(self, result, work):
        """Writes what the review of a new result needs."""
        self.write(self.file(result, DETECTIONS), table_of_detections(work.kept_detections()))
        tracks = sorted(work.report.objects, key=lambda track: not track.doubts)[:MOST_OBJECTS]
        pictures = jpegs(view.picture for track in tracks for view in track.views if view.picture)
        objects = [object_of(track, work.report, pictures) for track in tracks]
        labels = [track.label for track in tracks if track.label]
        self.write_page(result, dict(
            result=result, detections=checksum(self.file(result, DETECTIONS)), size=work.size, seconds=work.report.end / Gst.SECOND,
            frames=work.report.frames, label=labels[0] if labels else "face", objects=sorted(objects, key=lambda one: one["number"]),
            left_out=len(work.report.objects) - len(tracks), corrections=None))

    def write_page(self, result, data):
        page = self.file(result, PAGE)
        video = os.path.relpath(os.path.join(os.path.abspath(self.out), result), os.path.dirname(page))
        data |= dict(video=urllib.parse.quote(os.fsencode(video)), out=os.path.abspath(self.out), program=os.path.abspath(sys.argv[0]))
        data = json.dumps(data).replace("<", "\\u003c")
        values = dict(GENERATOR=GENERATOR, RESULT=html.escape(printable(result)), DATA=BEGIN + data + END)
        text = TEMPLATE.read_text(encoding="utf-8")
        self.write(page, re.sub("|".join(values), lambda name: values[name[0]], text))

    def correct(self, result, text):
        """Shows the corrections that a result was made with on its page."""
        try:
            with open(self.file(result, PAGE), encoding="utf-8") as file:
                data = json.loads(file.read().split(BEGIN)[1].split(END)[0])
        except (OSError, IndexError, ValueError):
            return
        self.write_page(result, data | dict(corrections=json.loads(text)))

    def write_index(self, entries):
        """Writes the page of all results, if there is one of a result."""
        entries = [entry for entry in entries if os.path.exists(self.file(entry["result"], PAGE))]
        if entries:
            pages = [(os.path.relpath(self.file(entry["result"], PAGE), self.path), entry) for entry in entries]
            self.write(os.path.join(self.path, INDEX), index_of_pages(pages))
        return bool(entries)

    def delete(self):
        """Deletes all files of this program. Returns those of others, which stay; their folder still counts as one of this program."""
        index, left = os.path.join(self.path, INDEX), []
        for place, _, files in os.walk(self.path, topdown=False):
            for path in (os.path.join(place, name) for name in files):
                if path.endswith((DETECTIONS, ".part")) or path.endswith(PAGE) and is_own_page(path):
                    if path != index:
                        os.unlink(path)
                else:
                    left.append(path)
            if place == self.path and not left:
                os.unlink(index)
            if not os.listdir(place):
                os.rmdir(place)
        if left:
            self.write(index, index_of_pages([]))
        return left

    def replay(self, result, corrections=None):
        """What attaches the kept detections of a result, as corrected, to its frames again."""
        path = self.file(result, DETECTIONS)
        try:
            with open(path, newline="", encoding="utf-8") as lines:
                _, boxes = read_boxes(lines)
        except FileNotFoundError:
            raise Refused("its detections were deleted: search again with --force") from None
        if not corrections:
            return Attacher(dict(frame=boxes))
        if unknown := corrections.shown - {box.what for box in boxes}:
            raise Refused(f"it names object {min(unknown)}, which was not found")
        return Attacher(dict(frame=[box for box in boxes if box.what not in corrections.shown], time=corrections.marks))


def object_of(track, report, pictures):
    """What a page has of an object."""
    views = [dict(what=what, time=view.time / Gst.SECOND, picture=next(pictures), box=view.picture.box)
             for what, view in zip(("first", "least certain", "last"), track.views) if view.picture]
    return dict(
        number=track.number, label=track.label or "object", views=views, doubts=[
            dict(sentence=doubt.sentence(), time=doubt.shown / Gst.SECOND, box=doubt.box()) for doubt in track.doubts],
        spans=[(start / Gst.SECOND, end / Gst.SECOND, what) for start, end, what in track.spans(report.end)])


class Corrections:
    """What a file from a review page says: objects to show, and boxes to cover."""

    def __init__(self, text):
        self.text = text
        try:
            data = json.loads(text)
            self.result, self.detections = str(data["result"]), str(data["detections"])
            self.shown = {str(int(one["object"])) for one in data["show"]}
            self.marks = []
            for number, mark in enumerate(data["cover"], 1):
                self.marks += keyframes(mark, number)
        except KeyError as error:
            raise Refused(f"it is not a file of corrections from a review page: it has no {error}") from None
        except (ValueError, TypeError, AttributeError, IndexError) as error:
            raise Refused(f"it is not a file of corrections from a review page: {error}") from None
        if not self.shown and not self.marks:
            raise Refused("it has no corrections")
        self.marks.sort(key=lambda box: box.position)
        link_keyframes(self.marks, "time")

    def sentence(self):
        """For the report."""
        marks = len({box.id for box in self.marks})
        shown, added = len(self.shown), f"{marks} box{'es' if marks != 1 else ''} added" if marks else ""
        parts = [f"{shown} object{'s' if shown != 1 else ''} shown" if shown else "", added]
        return "corrected by hand: " + ", ".join(filter(None, parts))


def keyframes(mark, number):
    """The boxes of a mark: the first also where it begins, the last also where it ends."""
    boxes = []
    for box in mark["boxes"]:
        time, x, y, width, height = (float(box[name]) for name in ("time", "x", "y", "width", "height"))
        if not all(map(math.isfinite, (time, x, y, width, height))) or min(width, height) <= 0 or time < 0:
            raise ValueError(f"box {number} is empty or not finite")
        boxes.append(Box(time, (x, y, x + width, y + height), str(mark["label"]), id=f"mark {number}"))
    boxes.sort(key=lambda box: box.position)
    begin, end = float(mark["from"]), float(mark["to"])
    if not boxes or not 0 <= begin <= boxes[0].position or not boxes[-1].position <= end < math.inf:
        raise ValueError(f"box {number} has no place, or one outside of its time")
    # Browsers round the time of a frame.
    boxes.insert(0, replace(boxes[0], position=max(0, begin - ROUNDED)))
    boxes.append(replace(boxes[-1], position=end + ROUNDED))
    return boxes if boxes[0].position < boxes[1].position else boxes[1:]
