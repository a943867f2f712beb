# SPDX-License-Identifier: MPL-2.0
"""The output while the program runs: sentences, failures and a line of progress."""

import os
import signal
import sys
import time
import unicodedata

# The signals that have been received. They end the batch.
signals = []


class Refused(Exception):
    """An error with a sentence for the user. It is about one file, or about the whole run while the program starts."""


class Full(Refused):
    """The disk of the results is full."""


class Interrupted(Exception):
    """A signal ends the batch."""


def on_signal(number, _):
    signals.append(number)
    # A second signal ends the program at once.
    signal.signal(number, signal.SIG_DFL)


def printable(name):
    """Returns a name on one line, even if it is not UTF-8."""
    try:
        text = os.fspath(name).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        text = os.fspath(name).encode("utf-8", "backslashreplace").decode()
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def count(number, noun):
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def columns(text):
    """Returns the width of a text on a terminal."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def shortened(text, width):
    """Returns the text. If it is wider than `width`, its middle is left out."""
    left, right = (len(text) + 1) // 2, len(text) // 2
    while columns(text[:left] + text[len(text) - right:]) > width - (left + right < len(text)) and left + right > 2:
        left, right = (left - 1, right) if left >= right else (left, right - 1)
    return text if left + right == len(text) else text[:left] + "…" + text[len(text) - right:]


class Terminal:
    """Writes sentences to standard output and failures to standard error. Also shows the progress of the batch: on a terminal by
    a line that changes, elsewhere by a line every ten seconds."""

    def __init__(self):
        self.is_live = sys.stderr is not None and sys.stderr.isatty()
        self.shown = self.started = time.monotonic()
        # The bytes of all inputs that are not done when the batch begins, and of those that were done since.
        self.total = self.done = 0

    @staticmethod
    def write(stream, text):
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError, AttributeError):
            # The output is not read any more, but the results are still wanted.
            pass

    def say(self, text, is_failure=False):
        if self.is_live:
            self.write(sys.stderr, "\r\x1b[K")
        self.write(sys.stderr if is_failure else sys.stdout, text + "\n")

    def progress(self, before, name="", after="", current=0, at_once=False):
        """Shows the three texts. `name` is shortened if the line is too narrow. `current` is how many bytes of the current input
        are done, computed from the time in the video."""
        now = time.monotonic()
        if not at_once and now - self.shown < (0.2 if self.is_live else 10):
            return
        self.shown = now
        share = min(1, (self.done + current) / self.total) if self.total else 0
        if share and now - self.started > 2:
            left = (now - self.started) * (1 / share - 1)
            left = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min" if left < 6000 else f"{left / 3600:.1f} h"
            before = f"{100 * share:.0f} %, {left} left; {before}"
        if not self.is_live:
            self.write(sys.stderr, before + name + after + "\n")
            return
        bar = f"[{'#' * int(share * 10):.<10}] "
        room = os.get_terminal_size(sys.stderr.fileno()).columns - 1 - columns(bar + before + after)
        self.write(sys.stderr, f"\r{bar}{before}{shortened(name, max(8, room))}{after}\x1b[K")
