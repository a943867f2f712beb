# SPDX-License-Identifier: MPL-2.0
"""Plays a pipeline to its end, or says why this is impossible."""

import os
import sys
import threading
import time

from gi.repository import Gst

from .terminal import Full, Interrupted, Refused, signals


class Stuck(Refused):
    """An element does not return. Later pipelines might not return either, and the program cannot end by itself."""


# The thread that is stopping something.
stopping = threading.Thread()


def stop(function, *arguments):
    """Calls a function that stops something. It may never return, because an element does not. Returns whether it has
    returned."""
    global stopping
    stopping = threading.Thread(target=function, args=arguments, daemon=True)
    stopping.start()
    stopping.join(2 if signals else 10)
    return not stopping.is_alive()


def leave(status):
    """Ends the program with a status, or with a sentence about a failure. If something does not stop, the interpreter would wait
    for it, so the process ends without the interpreter."""
    if not stopping.is_alive():
        sys.exit(status)
    if isinstance(status, str):
        print(status, file=sys.stderr)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    os._exit(status if isinstance(status, int) else 1)


def play(pipeline, each=lambda message: None, stalled=lambda: (120, "no frame came for 120 s")):
    """Plays a pipeline to its end. Calls `each` with every message, and with None if no message comes for a tenth of a second.
    `each` returns the number of frames so far. `stalled` returns a number of seconds and a sentence: if the number of frames does
    not grow for so long, raises Refused with the sentence."""
    heard, frames, bus = time.monotonic(), None, pipeline.get_bus()
    pipeline.set_state(Gst.State.PLAYING)
    try:
        while True:
            message = bus.timed_pop(Gst.SECOND // 10)
            if signals:
                raise Interrupted
            if message is not None and message.type == Gst.MessageType.EOS:
                return
            if message is not None and message.type == Gst.MessageType.ERROR:
                raise failure(message)
            before, frames = frames, each(message)
            patience, sentence = stalled()
            if frames != before:
                heard = time.monotonic()
            elif time.monotonic() - heard > patience:
                raise Refused(sentence)
    finally:
        if not stop(pipeline.set_state, Gst.State.NULL) and not signals:
            raise Stuck(f"{sys.exc_info()[1] or 'the end was reached'}; the pipeline does not stop, so the program ends")


def failure(message):
    """Returns an exception with a sentence for an error of GStreamer."""
    error = message.parse_error()[0]
    text = error.message.strip().rstrip(".")
    if (error.domain, error.code) == ("gst-resource-error-quark", Gst.ResourceError.NO_SPACE_LEFT):
        return Full("the disk is full")
    if message.src.get_name() == "detector":
        return Refused(f"the detector has failed: {text}")
    if error.domain == "gst-stream-error-quark":
        return Refused(f"it cannot be read to the end ({text}): it is damaged, or needs another decoder; try to play it")
    return Refused(text)
