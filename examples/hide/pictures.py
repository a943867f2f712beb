# SPDX-License-Identifier: MPL-2.0
"""Pictures of the frames of a result."""

import base64
import pathlib

from gi.repository import GLib, Gst

from .terminal import Interrupted, signals


def take_pictures(video, times):
    """The frames of a result that are shown at these times, as small JPEGs in base64; None of those that cannot be read."""
    try:
        pipeline = Gst.parse_launch(
            "uridecodebin name=input caps=video/x-raw(ANY) expose-all-streams=false ! videoconvert ! videoscale ! "
            "video/x-raw,width=[1,640],height=[1,640],pixel-aspect-ratio=1/1 ! videoconvert ! jpegenc quality=75 ! "
            "appsink name=picture sync=false max-buffers=1")
    except GLib.Error:
        return {}
    pipeline.get_by_name("input").set_property("uri", pathlib.Path(video).absolute().as_uri())
    sink, pictures = pipeline.get_by_name("picture"), {}
    pipeline.set_state(Gst.State.PAUSED)
    try:
        for moment in sorted(times):
            if signals:
                raise Interrupted
            pictures[moment] = None
            pipeline.get_state(10 * Gst.SECOND)
            # Into the frame, because files round times.
            flags = Gst.SeekFlags.FLUSH | Gst.SeekFlags.ACCURATE
            if pipeline.seek_simple(Gst.Format.TIME, flags, moment + Gst.MSECOND):
                if sample := sink.emit("try-pull-preroll", 10 * Gst.SECOND):
                    buffer = sample.get_buffer()
                    pictures[moment] = base64.b64encode(buffer.extract_dup(0, buffer.get_size())).decode()
    finally:
        pipeline.set_state(Gst.State.NULL)
    return pictures
