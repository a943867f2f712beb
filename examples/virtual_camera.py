#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""A virtual camera: the webcam with a blurred background, for video calls. MediaPipe's selfie segmentation finds the person, and
people who are small in the picture by their faces, which CenterFace finds.

    examples/virtual_camera.py                          from /dev/video0 to the v4l2loopback device /dev/video10
    examples/virtual_camera.py --output pipewire        to a PipeWire source, which needs no kernel module
    examples/virtual_camera.py --test FILE --output none

With GTK and a display it opens a window with a slider for sigma.

Needs, on Debian and Ubuntu: python3-gi python3-gst-1.0 gir1.2-gst-plugins-base-1.0, and the models that `scripts/models people`
downloads (with python3-pip); for a device v4l2loopback-dkms, for PipeWire gstreamer1.0-pipewire, for the window gir1.2-gtk-3.0; and
both plugins, installed or in GST_PLUGIN_PATH:

    scripts/models people && cargo build --release &&
        sudo modprobe v4l2loopback video_nr=10 exclusive_caps=1 card_label=Blurred &&
        GST_PLUGIN_PATH=target/release examples/virtual_camera.py
"""

import argparse
import os
import signal
import sys
import threading
import time

try:
    import gi
except ImportError:
    sys.exit(f"{sys.executable} has no PyGObject: install python3-gi and run this with the distribution's /usr/bin/python3")

gi.require_version("Gst", "1.0")
from gi.repository import GLib, Gst

PIPEWIRE = 'mode=provide stream-properties="props,media.class=Video/Source,node.description=\\"Blurred camera\\""'


class Refused(Exception):
    """A sentence for the user."""


def source(arguments):
    """Returns the elements that produce frames at the rate of a camera."""
    if arguments.test is None:
        if not os.path.exists(arguments.camera):
            raise Refused(f"{arguments.camera} does not exist: connect a camera, name another one with --camera, or use --test")
        size = "width=[1,1280],height=[1,720]"
        return f"v4l2src device=\"{arguments.camera}\" ! video/x-raw,{size};image/jpeg,{size} ! decodebin"
    if arguments.test:
        if not os.path.exists(arguments.test):
            raise Refused(f"{arguments.test} does not exist")
        return "uridecodebin name=file caps=video/x-raw(ANY) expose-all-streams=false ! identity sync=true"
    return "videotestsrc is-live=true ! video/x-raw,width=1280,height=720,framerate=30/1"


def sink(output):
    """Returns the element that other programs see as a camera."""
    if output == "none":
        return "fakesink sync=false"
    if output == "pipewire":
        if not Gst.ElementFactory.find("pipewiresink"):
            raise Refused("GStreamer does not find pipewiresink: install gstreamer1.0-pipewire, or use a v4l2loopback device")
        return f"pipewiresink name=pipewire {PIPEWIRE} sync=false"
    if not os.path.exists(output):
        load = f"sudo modprobe v4l2loopback video_nr={output.removeprefix('/dev/video')} exclusive_caps=1 card_label=Blurred"
        raise Refused(f"{output} does not exist: install v4l2loopback-dkms and run {load}, or use --output pipewire")
    return f'v4l2sink device="{output}" sync=false'


def has_lost_reader(message):
    """Whether a message is only pipewiresink's error that the program that reads its frames has left."""
    is_error = message.type == Gst.MessageType.ERROR and message.src.get_name() == "pipewire"
    return is_error and message.parse_error().gerror.matches(Gst.resource_error_quark(), Gst.ResourceError.NOT_FOUND)


class Camera:
    """The pipeline. The segmentation attaches the mask of the person to each frame, and cudagaussblur blurs everything else."""

    def __init__(self, arguments):
        # One frame more, because the frame that ends the stream is not passed on.
        limit = f"identity eos-after={arguments.frames + 1} ! " if arguments.frames > 0 else ""
        # The search for faces, which is needed for people who are small in the picture, the segmentation and the blur each have a
        # thread. Late frames are dropped before them.
        self.pipeline = Gst.parse_launch(
            f"{source(arguments)} ! videoconvert ! video/x-raw,format=I420 ! queue leaky=downstream max-size-buffers=2 ! {limit}"
            "centerface every=4 threshold=0.3 ! queue max-size-buffers=2 ! "
            "selfiesegmentation name=person ! queue max-size-buffers=2 ! cudagaussblur name=blur region-mode=outside "
            "region-sources=roi labels=person shape=mask grow=4 expand=0 on-missing=cover ! "
            f"videoconvert ! {sink(arguments.output)}"
        )
        if arguments.test:
            self.pipeline.get_by_name("file").set_property("uri", Gst.filename_to_uri(os.path.abspath(arguments.test)))
        self.person, self.blur = (self.pipeline.get_by_name(name) for name in ("person", "blur"))
        self.blur.set_property("sigma", arguments.sigma)

    def run(self):
        """Plays until the frames end or stop() is called. Raises Refused after an error."""
        started = time.monotonic()
        self.pipeline.set_state(Gst.State.PLAYING)
        kinds, message = Gst.MessageType.ERROR | Gst.MessageType.EOS | Gst.MessageType.WARNING, None
        while message is None or message.type == Gst.MessageType.WARNING or has_lost_reader(message):
            message = self.pipeline.get_bus().timed_pop_filtered(Gst.CLOCK_TIME_NONE, kinds)
            if message.type == Gst.MessageType.WARNING:
                print(f"{message.src.get_name()}: {message.parse_warning().gerror.message}", file=sys.stderr)
        seconds = time.monotonic() - started
        stats = {name: self.person.get_property("stats").get_value(name) for name in ("frames", "mean-ns")}
        backend = self.blur.get_property("active-backend").value_nick
        self.pipeline.set_state(Gst.State.NULL)
        if message.type == Gst.MessageType.ERROR:
            raise Refused(f"{message.src.get_name()}: {message.parse_error().gerror.message}")
        print(f"{stats['frames']} frames, {stats['frames'] / seconds:.1f} a second, mask included "
              f"({stats['mean-ns'] / 1e6:.1f} ms a frame), active-backend {backend}")

    def stop(self):
        self.pipeline.send_event(Gst.Event.new_eos())


def show_slider(camera):
    """Opens a window with a slider for sigma. Closing the window ends the program. Returns False if there is no GTK or no
    display."""
    try:
        gi.require_version("Gtk", "3.0")
        from gi.repository import Gtk
    except (ImportError, ValueError):
        return False
    if not Gtk.init_check()[0]:
        return False
    slider = Gtk.Scale.new_with_range(Gtk.Orientation.HORIZONTAL, 1, 100, 1)
    slider.set_value(camera.blur.get_property("sigma"))
    # The next frame uses the new value.
    slider.connect("value-changed", lambda _: camera.blur.set_property("sigma", slider.get_value()))
    window = Gtk.Window(title="Blurred camera")
    window.set_default_size(400, 60)
    window.add(slider)
    window.connect("destroy", lambda _: camera.stop())
    window.show_all()
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--camera", default="/dev/video0", help="default: /dev/video0")
    parser.add_argument("--output", default="/dev/video10",
                        help="a v4l2loopback device, pipewire, or none; default: /dev/video10")
    parser.add_argument("--sigma", type=float, default=20, help="of the blur, in pixels of a frame of at most 1280x720; default: 20")
    parser.add_argument("--test", nargs="?", const="", metavar="FILE", help="a test pattern or a video instead of the camera")
    parser.add_argument("--frames", type=int, default=-1, help="stop after so many frames")
    parser.add_argument("--headless", action="store_true", help="open no window")
    arguments = parser.parse_args()
    if not 1 <= arguments.sigma <= 1024:
        parser.error(f"--sigma is {arguments.sigma:g}: a blur that hides something has 1 to 1024")
    Gst.init(None)
    for element in "cudagaussblur", "centerface", "selfiesegmentation":
        if not Gst.ElementFactory.find(element):
            return f"GStreamer does not find {element}: install its plugin or set GST_PLUGIN_PATH to its folder"
    try:
        camera = Camera(arguments)
    except Refused as error:
        return str(error)
    failure, loop = None, GLib.MainLoop()

    def work():
        nonlocal failure
        try:
            camera.run()
        except Refused as error:
            failure = str(error)
        finally:
            loop.quit()

    if not arguments.headless:
        show_slider(camera)
    GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, signal.SIGINT, camera.stop)
    worker = threading.Thread(target=work)
    # The main loop must run before the worker can end it.
    GLib.idle_add(worker.start)
    loop.run()
    worker.join()
    return failure


if __name__ == "__main__":
    sys.exit(main())
