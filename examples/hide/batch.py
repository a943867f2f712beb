# SPDX-License-Identifier: MPL-2.0
"""Covers one file after the other."""

import errno
import os
import time

from gi.repository import Gst

from .folder import new_part, put, state, table_of, write_part
from .page import is_empty
from .pipeline import cover, versions
from .play import Stuck
from .review import DETECTIONS, Corrections, checksum
from .terminal import Full, Refused, count, printable


class Batch:
    def __init__(self, setup, options, folder, review, terminal, tasks, is_forced, corrections=None):
        self.setup, self.folder, self.review, self.terminal, self.is_forced = setup, folder, review, terminal, is_forced
        # A result that was made with the same options is not made again. `corrections` are the corrections with which results are
        # made.
        self.options, self.corrections = options, corrections
        self.inputs = {(status.st_dev, status.st_ino) for video, _, _ in tasks for status in [os.stat(video)]}

    def check_result(self, result):
        """Refuses to replace a file that is not a result of this program, or was changed since it was made."""
        path, advice = self.folder.inside(result), "name another folder with --out"
        if os.path.exists(path) and ((status := os.stat(path)).st_dev, status.st_ino) in self.inputs:
            raise Refused(f"its result would replace the input {printable(path)}: {advice}")
        for name in result, table_of(result):
            path = self.folder.inside(name)
            if os.path.isdir(path) or os.path.islink(path):
                raise Refused(f"its result cannot be written, because {printable(path)} is a folder or a link: {advice}")
            if os.path.lexists(path) and not self.folder.is_own(name) and not self.is_forced:
                raise Refused(f"{printable(path)} was not written by this program, or was changed since: move it away, {advice}, "
                              "or replace it with --force")

    def make(self, video, result, progress):
        """Makes a result. Returns its entry in the index."""
        before = state(video)
        self.check_result(result)
        path, table, has_doubts = self.folder.inside(result), self.folder.inside(table_of(result)), "doubts" in self.setup.job
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # GStreamer gets the descriptor of an open file, so it always writes to a new file, whatever the result's name is.
        descriptor, part = new_part(path)
        table_part = None
        try:
            work = cover(self.setup, video, descriptor, progress)
            made_before = self.folder.entries.get(result)
            if self.corrections and (len(work.pushed), work.begin) != (made_before["frames"], made_before["begin"]):
                raise Refused(f"it has {count(len(work.pushed), 'frame')} from {work.begin / Gst.SECOND:.2f} s on now, and had "
                              f"{made_before['frames']} from {made_before['begin'] / Gst.SECOND:.2f} s on when it was searched: "
                              "search again with --force")
            if self.corrections and (unused := self.setup.on_pipeline.unused()):
                raise Refused(f"{unused[0].id or 'a detection'} begins after the last frame")
            if state(video) != before:
                raise Refused("it changed while it was read: start the same command again")
            # The result gets the time of its input, so both folders have the same order by time.
            os.utime(descriptor, ns=(before[1], before[1]))
            os.fsync(descriptor)
            table_part = write_part(table, work.report.table()) if has_doubts else None
            if self.corrections:
                before_these = made_before["corrections"]
                lost = self.corrections.lost(Corrections(before_these)) if before_these else []
                beyond = self.setup.on_pipeline.beyond
                notes = ["a box is beyond the picture and covers nothing"] * bool(beyond)
                work.notes[:0] = [self.corrections.sentence(), *lost, *notes]
            elif has_doubts:
                self.review.keep(result, work)
                if made_before and made_before["corrections"]:
                    work.notes.insert(0, "the corrections by hand of its older result are not in it")
            entry = self.line(
                video, result, before, made=state(part), table=state(table_part) if table_part else None, notes=work.notes,
                sums=self.sums(video, part, table_part, result), versions=versions(work), **self.numbers(work))
            # The entry is written before the result gets its name. So every result that exists is in the index, whenever the
            # program is killed.
            self.folder.add(entry)
            if table_part:
                put(table_part, table)
            put(part, path)
            if has_doubts:
                self.review.add_page(entry, work)
            return entry
        finally:
            os.close(descriptor)
            for name in filter(None, (part, table_part)):
                if os.path.lexists(name):
                    os.unlink(name)

    def sums(self, video, part, table_part, result):
        """Returns the checksums of all files that belong to a result."""
        files = dict(input=video, result=part, table=table_part)
        if table_part:
            files["detections"] = self.review.file(result, DETECTIONS)
        return {name: checksum(path) for name, path in files.items() if path}

    @staticmethod
    def numbers(work):
        """Returns the values of the index about the frames of a result."""
        report, has_doubts = work.report, "doubts" in work.setup.job
        return dict(
            frames=len(work.pushed), begin=work.begin, seconds=(max(work.ends) - work.begin) / Gst.SECOND,
            covered=report.covered if work.setup.finder != "identity" else None,
            objects=len(report.objects) if has_doubts else None, doubtful=report.doubtful_seconds() if has_doubts else 0,
            doubts=[dict(sentence=doubt.sentence(), shown=doubt.shown) for doubt in report.doubts] if has_doubts else [])

    def line(self, video, result, before, **values):
        return dict(result=result, input=os.path.realpath(video), state=before, options=self.options, made=None, table=None,
                    failure=None, sums={}, corrections=self.corrections and self.corrections.text) | values

    def run(self, tasks):
        """Makes all results. Returns the index entries of all results that are in the folder, and a sentence for each failure."""
        done, failed, pending = [], [], []
        for video, result, size in tasks:
            corrections = self.corrections.text if self.corrections else self.folder.corrections_of(result)
            is_reviewed = "doubts" not in self.setup.job or not self.review.lacks_page(result)
            if self.is_forced or not is_reviewed or not self.folder.is_done(result, video, self.options, corrections):
                pending.append((video, result, size))
                continue
            done.append(self.folder.entries[result])
            if not self.folder.is_own(result):
                self.terminal.say(f"{printable(self.folder.inside(result))} was changed since it was made, and stays so")
        if done:
            self.terminal.say(f"{count(len(done), 'file')} already done" + (", with these corrections" if self.corrections else ""))
        self.terminal.started, self.terminal.total = time.monotonic(), sum(size for _, _, size in pending)
        for number, (video, result, size) in enumerate(pending, 1):
            started, before = time.monotonic(), f"file {number} of {len(pending)}: "
            name = printable(self.folder.inside(result) if self.corrections else video)

            def progress(frames, share):
                speed = frames / max(0.1, time.monotonic() - started)
                self.terminal.progress(before, name, f": {count(frames, 'frame')}, {speed:.0f} a second", share * size)

            self.terminal.progress(before, name, at_once=True)
            try:
                made = self.folder.entries.get(result)
                if made and made["corrections"] and not self.corrections and not self.is_forced:
                    raise Refused("its result was corrected by hand, and a new search would lose that: change the cover with --corrections "
                                  "FILE --cover HOW, name another folder with --out, or lose the corrections with --force")
                if made and made["made"] and (other := [key for key in made["options"] | self.options if made["options"].get(key) != self.options.get(key)]):
                    changes = ", ".join(f"{key} was {made['options'].get(key, 'default')}, is {self.options.get(key, 'default')}" for key in other)
                    self.terminal.say(f"{name}: it is covered again ({changes})")
                done.append(self.make(video, result, progress))
                self.terminal.say(f"{name}: {outcome(done[-1])}")
            except (Refused, OSError) as error:
                sentence = str(error)
                if isinstance(error, OSError):
                    sentence = f"it cannot be read, or its result cannot be written: {error.strerror}"
                if isinstance(error, Full) or getattr(error, "errno", None) == errno.ENOSPC:
                    folder = printable(self.folder.path)
                    raise Refused(f"the disk of {folder} is full: make room and start the same command again") from None
                failed.append(f"{name}: {sentence}")
                self.terminal.say(failed[-1], True)
                # The index entry of an earlier result stays.
                if not os.path.exists(self.folder.inside(result)) and not self.corrections:
                    self.folder.add(self.line(video, result, state(video), failure=sentence))
                if isinstance(error, Stuck):
                    raise
            self.terminal.done += size
        return done, failed


def outcome(entry):
    """Returns what became of a file, as a part of a sentence."""
    parts = [count(entry["frames"], "frame")]
    if is_empty(entry):
        parts.append("nothing was found")
    elif entry["objects"] is not None:
        what = "covered" if entry["corrections"] else "found"
        parts.append(f"{count(entry['objects'], 'object')} {what}, {entry['doubtful']:.1f} s to look at")
    return "; ".join([", ".join(parts), *entry["notes"]])
