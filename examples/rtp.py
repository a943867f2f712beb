#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""cudagaussblur before a video call: blurs the left half of the picture, sends it as RTP over the loopback interface, and
measures what arrives.

SOURCE is a source in the syntax of gst-launch, for example v4l2src. Without it, the source is a test pattern. WebRTC sends the
same RTP; there, webrtcbin replaces udpsink.

Needs, on Debian and Ubuntu: python3-gi gstreamer1.0-plugins-base gstreamer1.0-plugins-good; and the plugin, installed or
in GST_PLUGIN_PATH:

    cargo build --release && GST_PLUGIN_PATH=target/release examples/rtp.py [SOURCE]
"""

import argparse
import sys

try:
    import gi
except ImportError:
    sys.exit(f"{sys.executable} has no PyGObject: install python3-gi and run this with the distribution's /usr/bin/python3")

gi.require_version("Gst", "1.0")
from gi.repository import GLib, Gst

WIDTH, HEIGHT, FRAMES = 320, 240, 30

# The receiver uses a free port (port=0). Its number is passed to the sender.
RECEIVER = (
    "udpsrc name=from address=127.0.0.1 port=0 caps=application/x-rtp,media=video,clock-rate=90000,encoding-name=VP8 ! "
    "rtpjitterbuffer ! rtpvp8depay ! vp8dec ! videoconvert ! video/x-raw,format=GRAY8 ! appsink name=frames sync=false"
)
SENDER = (
    "{source} ! videoconvert ! videoscale ! video/x-raw,width={width},height={height} ! "
    "cudagaussblur region-mode=inside zones=<[zone,x=0,y=0,width=0.5,height=1]> strength=0 sigma=4 ! videoconvert ! "
    "vp8enc deadline=1 keyframe-max-dist=15 ! rtpvp8pay ! udpsink host=127.0.0.1 port={port}"
)


def contrast(pixels, left, right):
    """Returns the mean difference between neighbouring pixels of a row, in these columns. A blur makes it small."""
    rows = (pixels[start + left : start + right] for start in range(0, WIDTH * HEIGHT, WIDTH))
    differences = [abs(a - b) for row in rows for a, b in zip(row, row[1:])]
    return sum(differences) / len(differences)


def end_of(pipeline):
    """Returns why a pipeline has ended, or None if it has not."""
    message = pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR | Gst.MessageType.EOS)
    if message and message.type == Gst.MessageType.EOS:
        return f"the source ended before {FRAMES} frames were received"
    return message and "{0.message}\n{1}".format(*message.parse_error())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument(
        "source",
        nargs="?",
        metavar="SOURCE",
        default="videotestsrc is-live=true pattern=checkers-8",
        help="a source in the syntax of gst-launch, in quotes if it has properties; default: a test pattern",
    )
    source = parser.parse_args().source
    Gst.init(None)
    for element, package in {
        "cudagaussblur": "the plugin or set GST_PLUGIN_PATH to its folder",
        "videoconvert": "gstreamer1.0-plugins-base",
        "vp8enc": "gstreamer1.0-plugins-good",
    }.items():
        if not Gst.ElementFactory.find(element):
            return f"GStreamer does not find {element}: install {package}"
    receiver = Gst.parse_launch(RECEIVER)
    receiver.set_state(Gst.State.PLAYING)
    port = receiver.get_by_name("from").get_property("port")
    try:
        sender = Gst.parse_launch(SENDER.format(source=source, width=WIDTH, height=HEIGHT, port=port))
    except GLib.Error as error:
        return f"{source}: {error.message}"
    sender.set_state(Gst.State.PLAYING)
    frames = receiver.get_by_name("frames")
    try:
        for index in range(FRAMES):
            while not (sample := frames.emit("try-pull-sample", Gst.SECOND)):
                if end := end_of(sender) or end_of(receiver):
                    return end
            pixels = sample.get_buffer().extract_dup(0, WIDTH * HEIGHT)
            if index % 10 == 0:
                blurred, sharp = contrast(pixels, 0, WIDTH // 2), contrast(pixels, WIDTH // 2, WIDTH)
                print(f"frame {index}: contrast {blurred:.1f} in the left half, {sharp:.1f} in the right half")
    finally:
        for pipeline in sender, receiver:
            pipeline.set_state(Gst.State.NULL)
    print(f"{FRAMES} frames received on port {port}")
    return None


if __name__ == "__main__":
    sys.exit(main())
