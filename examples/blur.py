#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""cudagaussblur in a Python application: plays ten seconds of a test pattern and changes sigma every second.

Needs PyGObject, which distributions install for /usr/bin/python3 (Debian and Ubuntu: python3-gi, python3-gst-1.0,
gir1.2-gst-plugins-base-1.0), and the plugin, installed or in GST_PLUGIN_PATH:

    cargo build --release && GST_PLUGIN_PATH=target/release examples/blur.py
"""

import os
import sys

try:
    import gi
except ImportError:
    sys.exit(f"{sys.executable} has no PyGObject: install python3-gi and run this with the distribution's /usr/bin/python3")

gi.require_version("Gst", "1.0")
from gi.repository import GLib, Gst

SIGMAS = [0, 1, 2, 5, 10, 20, 10, 5, 2, 1]


def main():
    Gst.init(None)
    if not Gst.ElementFactory.find("cudagaussblur"):
        return "GStreamer does not find cudagaussblur: install the plugin or set GST_PLUGIN_PATH to its folder"
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    pipeline = Gst.parse_launch(
        "videotestsrc is-live=true num-buffers=300 ! video/x-raw,width=1280,height=720,framerate=30/1 ! videoconvert ! "
        "cudagaussblur name=blur ! videoconvert ! videoscale ! " + ("autovideosink" if display else "fakesink")
    )
    blur = pipeline.get_by_name("blur")
    loop = GLib.MainLoop()
    failure = None

    def on_message(_bus, message):
        nonlocal failure
        if message.type == Gst.MessageType.ERROR:
            failure = message.parse_error().gerror.message
        if message.type in (Gst.MessageType.ERROR, Gst.MessageType.EOS):
            loop.quit()

    def next_sigma(sigmas=iter(SIGMAS)):
        sigma = next(sigmas, None)
        if sigma is None:
            return GLib.SOURCE_REMOVE
        # The next frame uses the new value.
        blur.set_property("sigma", sigma)
        print("sigma", sigma)
        return GLib.SOURCE_CONTINUE

    bus = pipeline.get_bus()
    bus.add_signal_watch()
    bus.connect("message", on_message)
    GLib.timeout_add_seconds(1, next_sigma)
    pipeline.set_state(Gst.State.PLAYING)
    try:
        loop.run()
        print("active-backend", blur.get_property("active-backend").value_nick)
        print(blur.get_property("stats").to_string())
    finally:
        pipeline.set_state(Gst.State.NULL)
    return failure


if __name__ == "__main__":
    sys.exit(main())
