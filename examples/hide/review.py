# SPDX-License-Identifier: MPL-2.0
"""The private folder beside the results. It has pages with pictures of open faces, on which a person reviews a result, and the
detections from which results were made. Also reads the corrections that a page saves."""

import csv
import hashlib
import html
import json
import os
import pathlib
import re
import shlex
import stat
import sys
import urllib.parse
from dataclasses import replace

from gi.repository import Gst

from .boxes import Attacher, Box, link_keyframes, read_boxes, table_of_detections
from .folder import is_own_page, new_part, put
from .page import GENERATOR, index_of_pages
from .pictures import jpegs
from .terminal import Refused, count, printable

INDEX = "index.html"
# The endings of the files about a result.
PAGE, DETECTIONS = ".html", ".detections.csv"
TEMPLATE = pathlib.Path(__file__).with_name("review.html")
# The strings before and after the data of a page.
BEGIN, END = '<script id="data" type="application/json">', "</script>"
# The error of times in browsers, in seconds; and the largest coordinate of a box.
ROUNDED, MOST = 0.001, 100_000
# The largest number of objects on a page. Those with doubts are the first.
MOST_OBJECTS = 500


def checksum(path):
    """Returns the SHA-256 of a file, or None if it does not exist."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
    except FileNotFoundError:
        return None
    return digest.hexdigest()


def basis_of(entry):
    """Returns an identifier of what corrections are for: an input, the size of its result, and its detections."""
    values = entry["sums"].get("input"), entry["options"]["size"], entry["sums"].get("detections")
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


class Review:
    """The private folder, and its pages."""

    def __init__(self, out):
        self.out = os.path.realpath(out)
        self.path = (self.out.rstrip("/") or "/results") + "-review"
        # The name of the folder in sentences.
        named = out.rstrip("/") + "-review"
        self.name = printable(named if os.path.realpath(named) == self.path else self.path)
        self.program = os.path.abspath(sys.argv[0])

    def file(self, result, ending):
        return os.path.join(self.path, result + ending)

    def check(self):
        """Refuses a folder that is not of this program."""
        if not os.path.lexists(self.path):
            return
        names = os.listdir(self.path) if os.path.isdir(self.path) and not os.path.islink(self.path) else None
        # An empty folder may be from a run that was killed.
        if names is None or names and not any(is_own_page(os.path.join(self.path, name)) for name in names):
            raise Refused(f"{self.name} is not of this program: move it away, or name another folder with --out")

    def write(self, path, text):
        """Writes a file that only its owner can read."""
        os.makedirs(self.path, 0o700, exist_ok=True)
        index = os.path.join(self.path, INDEX)
        if path != index and not os.path.exists(index):
            self.write(index, self.index([]))
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        for folder in self.path, os.path.dirname(path):
            os.chmod(folder, 0o700)
        descriptor, part = new_part(path, 0o600)
        try:
            if stat.S_IMODE(os.stat(part).st_mode) != 0o600:
                print(f"{self.name} is on a disk without permissions: whoever gets at the disk can open it")
            with open(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            put(part, path)
        except OSError:
            if os.path.lexists(part):
                os.unlink(part)
            raise

    def index(self, pages):
        command = f"{shlex.quote(self.program)} --out {shlex.quote(self.out)} --delete-review"
        return index_of_pages(pages, command)

    def lacks_page(self, result):
        """Whether the program ended before it wrote the page about a result."""
        return os.path.exists(self.file(result, DETECTIONS)) and not os.path.exists(self.file(result, PAGE))

    def is_deleted(self, result):
        return not any(os.path.lexists(self.file(result, ending)) for ending in (DETECTIONS, PAGE))

    def keep(self, result, work):
        """Writes the detections of a new result, and deletes the page about an older one."""
        if os.path.exists(self.file(result, PAGE)):
            os.unlink(self.file(result, PAGE))
        self.write(self.file(result, DETECTIONS), table_of_detections(work.kept_detections()))

    def add_page(self, entry, work):
        """Writes the page about a new result. If the result was made from kept detections, shows its corrections on the existing
        page."""
        if work.setup.on_pipeline:
            try:
                with open(self.file(entry["result"], PAGE), encoding="utf-8") as file:
                    data = json.loads(file.read().split(BEGIN)[1].split(END)[0])
                if type(data) is not dict:
                    raise ValueError
            except (OSError, IndexError, ValueError, RecursionError):
                print(f"the page {printable(self.file(entry['result'], PAGE))} is damaged and stays so: --force makes a new one")
                return
            self.write_page(entry, data)
            return
        tracks = sorted(work.report.objects, key=lambda track: not track.doubts)[:MOST_OBJECTS]
        pictures = jpegs(view.picture for track in tracks for view in track.views if view.picture)
        objects = [object_of(track, work.report, pictures) for track in tracks]
        self.write_page(entry, dict(
            result=entry["result"], size=work.size, seconds=work.report.end / Gst.SECOND, last=work.report.latest / Gst.SECOND,
            frames=work.report.frames, objects=sorted(objects, key=lambda one: one["number"]),
            left_out=len(work.report.objects) - len(tracks)))

    def write_page(self, entry, data):
        result, page = entry["result"], self.file(entry["result"], PAGE)
        video = os.path.relpath(os.path.join(self.out, result), os.path.dirname(page))
        data |= dict(
            video=urllib.parse.quote(os.fsencode(video)), out=self.out, program=self.program, basis=basis_of(entry),
            corrections=entry["corrections"] and json.loads(entry["corrections"]))
        data = json.dumps(data).replace("<", "\\u003c")
        values = dict(GENERATOR=GENERATOR, RESULT=html.escape(printable(result)), DATA=BEGIN + data + END)
        text = TEMPLATE.read_text(encoding="utf-8")
        self.write(page, re.sub("|".join(values), lambda name: values[name[0]], text))

    def write_index(self, entries):
        """Writes the index of the pages, if there are any. Returns whether there are."""
        entries = [entry for entry in entries if os.path.exists(self.file(entry["result"], PAGE))]
        if entries:
            pages = [(os.path.relpath(self.file(entry["result"], PAGE), self.path), entry) for entry in entries]
            self.write(os.path.join(self.path, INDEX), self.index(pages))
        return bool(entries)

    def delete(self):
        """Deletes all files of this program. Returns all other files, which stay. Their folder still counts as a folder of this
        program."""
        def fail(error):
            raise error

        index, left = os.path.join(self.path, INDEX), []
        for place, folders, files in os.walk(self.path, topdown=False, onerror=fail):
            left += [path for name in folders if os.path.islink(path := os.path.join(place, name))]
            for path in (os.path.join(place, name) for name in files):
                if path.endswith((DETECTIONS, ".part")) or path.endswith(PAGE) and is_own_page(path):
                    if path != index:
                        os.unlink(path)
                else:
                    left.append(path)
            if place == self.path and not left and os.path.exists(index):
                os.unlink(index)
            if not os.listdir(place):
                os.rmdir(place)
        if left:
            self.write(index, self.index([]))
        return left

    def replay(self, result, corrections, begin):
        """Returns an Attacher that attaches the kept detections of a result, with corrections, to its frames again. The times of
        corrections are those in the result, which begins at the running time `begin`."""
        path = self.file(result, DETECTIONS)
        try:
            with open(path, newline="", encoding="utf-8") as lines:
                _, boxes = read_boxes(lines)
        except FileNotFoundError:
            raise Refused("its detections were deleted: search again with --force") from None
        except (csv.Error, ValueError, Refused) as error:
            raise Refused(f"its detections are damaged ({error}): search again with --force") from None
        if not corrections:
            return Attacher(dict(frame=boxes))
        if unknown := corrections.shown - {box.what for box in boxes}:
            raise Refused(f"it names object {min(unknown)}, which was not found")
        # Marks get the label of the detections, so that a mark and a detection may be of the same object.
        label = boxes[0].label if boxes else "face"
        marks = [replace(box, position=box.position + begin / Gst.SECOND, label=label) for box in corrections.marks]
        link_keyframes(marks, "time")
        # The Attacher is made with all detections, so that no new object gets the number of one of them.
        attacher = Attacher(dict(frame=boxes, time=marks))
        attacher.all["frame"] = [box for box in boxes if box.what not in corrections.shown]
        return attacher


def object_of(track, report, pictures):
    """Returns the data about an object for a page."""
    views = [dict(what=what, time=view.time / Gst.SECOND, picture=next(pictures), box=view.picture.box)
             for what, view in zip(("first", "least certain", "last"), track.views) if view.picture]
    return dict(
        number=track.number, label=track.label or "object", views=views, doubts=[
            dict(sentence=doubt.sentence(), time=doubt.shown / Gst.SECOND, box=doubt.box()) for doubt in track.doubts],
        spans=[(start / Gst.SECOND, end / Gst.SECOND, what) for start, end, what in track.spans(report.end)])


class Corrections:
    """The contents of a file that a review page has saved: objects to show, and boxes to cover. `text` has only these contents;
    it is None if there are none."""

    def __init__(self, text):
        try:
            result, basis, show, cover = fields(json.loads(text, parse_constant=float), "result", "basis", "show", "cover")
            self.result, self.basis = str(result), str(basis)
            # Raises an error if the name of the result cannot be a file name.
            os.fsencode(self.result)
            show = [dict(object=whole(number), why="no face" if why == "no face" else "shown")
                    for number, why in (fields(one, "object", "why") for one in show)]
            cover = [mark_of(mark, number) for number, mark in enumerate(cover, 1)]
        except KeyError as error:
            raise Refused(f"it is not a file of corrections from a review page: it has no {error}") from None
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise Refused(f"it is not a file of corrections from a review page: {error}") from None
        self.shown, self.cover = {str(one["object"]) for one in show}, cover
        self.marks = sorted((box for number, mark in enumerate(cover, 1) for box in keyframes(mark, number)), key=lambda box: box.position)
        self.text = json.dumps(dict(result=self.result, basis=self.basis, show=show, cover=cover)) if show or cover else None

    def lost(self, before):
        """Returns a sentence about marks of earlier corrections that these ones lack, as a list of one or none."""
        marks = sum(mark not in self.cover for mark in before.cover)
        what = "1 box of the earlier corrections was" if marks == 1 else f"{marks} boxes of the earlier corrections were"
        return [f"{what} changed or removed"] if marks else []

    def sentence(self):
        """Returns a sentence for the report."""
        parts = [count(len(self.shown), "object") + " shown"] * bool(self.shown)
        parts += [f"{len(self.cover)} box{'es' * (len(self.cover) > 1)} added"] * bool(self.cover)
        return f"corrected by hand: {', '.join(parts)}" if parts else "its corrections were taken back"


def fields(part, *names):
    """Returns these fields of a part of the file. Refuses other fields: they would be of a later version, and might say that less
    of the video is covered."""
    values = [part[name] for name in names]
    if more := part.keys() - set(names):
        raise ValueError(f"this version does not know {', '.join(sorted(more))}")
    return values


def whole(value):
    if type(value) is not int:
        raise ValueError(f"{value!r} is not the number of an object")
    return value


def mark_of(mark, number):
    """Checks the numbers of a mark, which is a box that moves over time, and returns it."""
    def length(name, value):
        if type(value) not in (int, float) or not 0 <= value <= MOST:
            raise ValueError(f"{name} of box {number} is not a number from 0 to {MOST}")
        return value

    begin, end, boxes = fields(mark, "from", "to", "boxes")
    names = "time", "x", "y", "width", "height"
    boxes = [{name: length(name, value) for name, value in zip(names, fields(box, *names))} for box in boxes]
    boxes.sort(key=lambda box: box["time"])
    begin, end = length("from", begin), length("to", end)
    if not boxes or begin > boxes[0]["time"] or end < boxes[-1]["time"]:
        raise ValueError(f"box {number} has no place, or one before it begins or after it ends")
    if any(min(box["width"], box["height"]) <= 0 for box in boxes):
        raise ValueError(f"box {number} is empty")
    if any(one["time"] == other["time"] for one, other in zip(boxes, boxes[1:])):
        raise ValueError(f"box {number} has two places at one time")
    return {"from": begin, "to": end, "boxes": boxes}


def keyframes(mark, number):
    """Returns the boxes of a mark. The first box also counts where the mark begins, and the last one where it ends. Both times
    are extended, because browsers round the time of a frame."""
    boxes = [Box(box["time"], (box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"]), "", id=f"box {number}")
             for box in mark["boxes"]]
    begin, end = max(0, mark["from"] - ROUNDED), mark["to"] + ROUNDED
    return [replace(boxes[0], position=begin)] * (begin < boxes[0].position) + boxes + [replace(boxes[-1], position=end)]
