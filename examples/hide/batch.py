# SPDX-License-Identifier: MPL-2.0
"""Covers one file after the other."""

import errno
import os
import time

from gi.repository import Gst

from .folder import new_part, put, state, write_part
from .page import is_empty
from .pictures import take_pictures
from .pipeline import cover
from .play import Stuck
from .terminal import Full, Refused, count, printable

# Maximum number of pictures of a result on the page: those of the worst doubts.
MOST_PICTURES = 20


class Batch:
    def __init__(self, setup, options, folder, terminal, named, is_forced):
        self.setup, self.folder, self.terminal, self.is_forced = setup, folder, terminal, is_forced
        # A result of the same options is not made again.
        self.options = options
        self.inputs = {(status.st_dev, status.st_ino) for video, _, _ in named for status in [os.stat(video)]}

    def check_result(self, result):
        """Refuses to replace what is not a result, or was changed since."""
        path = self.folder.inside(result)
        table = os.path.splitext(path)[0] + ".csv"
        advice = "name another folder with --out"
        if os.path.exists(path) and ((status := os.stat(path)).st_dev, status.st_ino) in self.inputs:
            raise Refused(f"its result would replace the input {printable(path)}: {advice}")
        for name in path, table:
            if os.path.isdir(name) or os.path.islink(name):
                raise Refused(f"its result cannot be written, because {printable(name)} is a folder or a link: {advice}")
            states = self.folder.made if name == path else self.folder.tables
            is_own = self.folder.is_own(result, os.path.relpath(name, self.folder.path), states)
            if os.path.lexists(name) and not is_own and not self.is_forced:
                raise Refused(f"{printable(name)} was not written by this program, or was changed since: move it away, {advice}, "
                              "or replace it with --force")

    def make(self, video, result, progress):
        """Makes a result. Returns its line of the index."""
        before = state(video)
        self.check_result(result)
        path = self.folder.inside(result)
        table = os.path.splitext(path)[0] + ".csv"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # GStreamer gets an open file: what it writes to is new, whatever its name is.
        descriptor, part = new_part(path)
        table_part = None
        try:
            work = cover(self.setup, video, descriptor, progress)
            doubts = work.report.doubts if self.setup.has_doubts else []
            worst = sorted(doubts, key=lambda doubt: doubt.rank())[:MOST_PICTURES]
            pictures = take_pictures(part, {doubt.shown for doubt in worst}) if worst else {}
            if state(video) != before:
                raise Refused("it changed while it was read: start the same command again")
            # Sorted by time, results lie as the inputs do.
            os.utime(descriptor, ns=(before[1], before[1]))
            os.fsync(descriptor)
            table_part = write_part(table, work.report.table()) if self.setup.has_doubts else None
            entry = self.line(
                video, result, before, state(part), table=state(table_part) if table_part else None, frames=len(work.pushed),
                notes=work.notes, seconds=max(work.report.end, *work.pushed) / Gst.SECOND,
                covered=work.report.covered if self.options["hide"] != "everything" else None,
                objects=len(work.report.objects) if self.setup.has_doubts else None,
                doubtful=work.report.doubtful_seconds() if self.setup.has_doubts else 0,
                doubts=[dict(sentence=doubt.sentence(), shown=doubt.shown, picture=pictures.get(doubt.shown), box=work.share(doubt.box()))
                        for doubt in doubts])
            # First, so that a result that exists is in the index, whenever the program is killed.
            self.folder.add(entry)
            if table_part:
                put(table_part, table)
            put(part, path)
            return entry
        finally:
            os.close(descriptor)
            for name in filter(None, (part, table_part)):
                if os.path.lexists(name):
                    os.unlink(name)

    def line(self, video, result, before, made, **values):
        return dict(result=result, input=os.path.realpath(video), state=before, options=self.options, made=made,
                    table=values.pop("table", None), failure=values.pop("failure", None), **values)

    def run(self, named):
        """Makes all results. Returns the lines of the index of those that are in the folder, and the sentences of those that are
        not."""
        done, failed = [], []
        pending = [item for item in named if self.is_forced or not self.folder.is_done(item[1], item[0], self.options)]
        self.terminal.started = time.monotonic()
        self.terminal.total = sum(size for _, _, size in pending)
        if len(pending) < len(named):
            self.terminal.say(f"{count(len(named) - len(pending), 'file')} already done")
        for video, result, size in named:
            if (video, result, size) not in pending:
                done.append(self.folder.entries[result])
                if not self.folder.is_own(result, result, self.folder.made):
                    self.terminal.say(f"{printable(self.folder.inside(result))} was changed since it was made, and stays so")
                continue
            started = time.monotonic()
            place = f"file {pending.index((video, result, size)) + 1} of {len(pending)}: ", printable(video)

            def progress(frames, share):
                speed = frames / max(0.1, time.monotonic() - started)
                self.terminal.progress(*place, f": {count(frames, 'frame')}, {speed:.0f} a second", share * size)

            self.terminal.progress(*place, at_once=True)
            try:
                entry = self.make(video, result, progress)
            except (Refused, OSError) as error:
                sentence = str(error)
                if isinstance(error, OSError):
                    sentence = f"it cannot be read, or its result cannot be written: {error.strerror}"
                if isinstance(error, Full) or getattr(error, "errno", None) == errno.ENOSPC:
                    place = printable(self.folder.path)
                    raise Refused(f"the disk of {place} is full: make room and start the same command again") from None
                failed.append(f"{printable(video)}: {sentence}")
                self.terminal.say(failed[-1], True)
                self.folder.add(self.line(video, result, state(video), None, failure=sentence))
                if isinstance(error, Stuck):
                    raise
            else:
                done.append(entry)
                self.terminal.say(f"{printable(video)}: {outcome(entry)}")
            self.terminal.done += size
        return done, failed


def outcome(entry):
    """What became of a file."""
    parts = [count(entry["frames"], "frame")]
    if is_empty(entry):
        parts.append("nothing was found")
    elif entry["objects"] is not None:
        parts.append(f"{count(entry['objects'], 'object')} found, {entry['doubtful']:.1f} s doubtful")
    return "; ".join([", ".join(parts), *entry["notes"]])
