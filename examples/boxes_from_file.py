#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""Covers boxes from a CSV file in a video, and writes the covered video with its sound as MP4.

Needs PyGObject, which distributions install for /usr/bin/python3 (Debian and Ubuntu: python3-gi, python3-gst-1.0,
gir1.2-gst-plugins-base-1.0), gstreamer1.0-plugins-good, gstreamer1.0-plugins-ugly (x264enc), gstreamer1.0-libav, and the plugin,
installed or in GST_PLUGIN_PATH:

    cargo build --release && GST_PLUGIN_PATH=target/release examples/boxes_from_file.py input.mp4 boxes.csv covered.mp4
"""

import argparse
import os
import signal
import sys

try:
    import gi
except ImportError:
    sys.exit(f"{sys.executable} has no PyGObject: install python3-gi and run this with the distribution's /usr/bin/python3")

for name in "Gst", "GstPbutils", "GstVideo":
    gi.require_version(name, "1.0")
from gi.repository import Gst
# Without this import, PyGObject does not convert GStreamer's arrays to lists.
import gi.overrides.Gst

from hide.boxes import Attacher, read_boxes
from hide.folder import new_part, put
from hide.jobs import Setup
from hide.pipeline import cover
from hide.play import leave
from hide.terminal import Interrupted, Refused, count, on_signal, printable

FORMAT = """\
The CSV file begins with a line of column names, in any order:

  frame or time    the frame's number, from 0 on; or seconds from the start of the video
  x, y             the upper left corner of the box, in pixels of the video as players show it: turned upright
  width, height    the size of the box, in pixels
  label            optional; see --labels
  confidence       optional, 0 to 1; see --min-confidence
  id               optional: lines with the same id are keyframes of one object
  what             optional, not used: why hide.py has written the line

A line is one box in one frame; with time, in the frame that is shown at that time. Frames without a line have no box of
their own; an object that vanishes stays covered for eight times as long as it had boxes, at least for 0.3 s and at most for
--hold seconds. So lines a second apart leave an object open between them: give them an id. Example:

  frame,x,y,width,height,label
  0,120,80,60,60,face
  1,124,80,60,60,face

An object with an id also has a box in each frame between two of its lines: the edges move in a straight line from one to
the other. So a few lines cover what a detector missed. An object that leaves the picture and returns needs a second id.
Example, a face that moves for two seconds, stops for one, and then shows in one more frame:

  time,x,y,width,height,label,id
  4.2,120,80,60,60,face,1
  6.2,480,90,70,70,face,1
  7.2,480,90,70,70,face,1
  9.9,300,80,60,60,face,

If a line cannot be read or is beyond the end of the video, the video is not written.
"""

def main():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog=FORMAT, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("video", help="the video to read")
    parser.add_argument("boxes", help="the CSV file with the boxes")
    parser.add_argument("result", help="the MP4 file to write")
    parser.add_argument("--cover", choices=("blur", "mosaic", "fill"), default="fill", help="default: fill")
    parser.add_argument("--labels", default="", help="labels to cover, separated by commas; default: every label")
    parser.add_argument("--min-confidence", type=float, default=0, help="boxes below it are not covered; default: 0")
    parser.add_argument("--hold", type=float, default=0.5, help="longest time, in seconds, that a vanished object stays covered; default: 0.5")
    arguments = parser.parse_args()
    if not 0 <= arguments.hold < 1e9 or not 0 <= arguments.min_confidence <= 1:
        parser.error("--hold takes seconds from 0 up, --min-confidence a number from 0 to 1")
    for name in arguments.video, arguments.boxes:
        if os.path.exists(name) and os.path.exists(arguments.result) and os.path.samefile(name, arguments.result):
            parser.error(f"the result would overwrite {name}")
    Gst.init(None)
    if not Gst.ElementFactory.find("cudagaussblur"):
        return "GStreamer does not find cudagaussblur: install the plugin or set GST_PLUGIN_PATH to its folder"
    try:
        with open(arguments.boxes, newline="", encoding="utf-8-sig") as lines:
            position, boxes = read_boxes(lines)
            if not boxes:
                raise Refused("has no boxes, so that nothing would be covered")
    except Refused as error:
        return f"{arguments.boxes} {error}"
    except (OSError, ValueError) as error:
        return f"{arguments.boxes} cannot be read: {getattr(error, 'strerror', None) or error}"
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, on_signal)
    properties = {"labels": arguments.labels, "min-confidence": arguments.min_confidence, "hold-time": round(arguments.hold * Gst.SECOND)}
    attacher, part, work = Attacher({position: boxes}, properties), None, None
    try:
        setup = Setup(dict(cover=arguments.cover, ten_bit=True, finder=Attacher.ELEMENTS, blur="region-mode=inside"), {},
                      on_pipeline=attacher)
        # Only a complete video gets the name of the result.
        descriptor, part = new_part(arguments.result)
        work = cover(setup, arguments.video, descriptor, lambda frames, share: None)
        os.close(descriptor)
        if left := attacher.schedules[position].boxes:
            raise Refused(f"{count(len(left), 'line')} of {arguments.boxes} beyond the end of the video")
        if not work.report.covered + work.report.whole:
            raise Refused(f"no box of {arguments.boxes} covers anything: compare its places with the video, and its labels and confidences "
                          "with --labels and --min-confidence")
        put(part, arguments.result)
    except Interrupted:
        return "interrupted, and nothing is written"
    except Refused as error:
        return f"{printable(arguments.video)}: {error}" if part else str(error)
    except OSError as error:
        return f"{printable(error.filename or arguments.result)} cannot be read or written: {error.strerror}"
    finally:
        if part and os.path.exists(part):
            os.remove(part)
    for note in work.notes:
        print(note)
    beyond, found = attacher.beyond, attacher.boxes
    if beyond:
        print(f"{beyond} of {found} boxes lie beyond the picture and cover nothing: compare {arguments.boxes} with the video")
    print(f"{attacher.frames} frames, {found} boxes attached, wrote {arguments.result}")


if __name__ == "__main__":
    leave(main())
