#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""cudagaussblur in a Python application: plays a video in a GTK window with a slider for sigma, without sound.

The check box "sweep" lets a GstController move sigma instead. --headless opens no window, lets the controller move sigma, and
plays as fast as possible. Without FILE the program plays a test pattern.

Needs, on Debian and Ubuntu: python3-gi gstreamer1.0-plugins-base gstreamer1.0-libav (decoders), for the window
gir1.2-gtk-3.0 gstreamer1.0-gtk3; and the plugin, installed or in GST_PLUGIN_PATH:

    cargo build --release && GST_PLUGIN_PATH=target/release examples/blur.py [--headless] [FILE]
"""

import argparse
import itertools
import sys

try:
    import gi
except ImportError:
    sys.exit(f"{sys.executable} has no PyGObject: install python3-gi and run this with the distribution's /usr/bin/python3")

gi.require_version("Gst", "1.0")
gi.require_version("GstController", "1.0")
from gi.repository import GLib, Gst, GstController


def build(file, sink):
    """Returns the pipeline."""
    source = "filesrc name=file ! decodebin" if file else "videotestsrc name=pattern ! video/x-raw,width=640,height=360"
    pipeline = Gst.parse_launch(f"{source} ! videoconvert ! cudagaussblur name=blur ! videoconvert ! {sink}")
    if file:
        pipeline.get_by_name("file").set_property("location", file)
    return pipeline


def start_sweep(blur, start=0):
    """Lets a GstController move sigma from 0 to 20 and back, during ten seconds of the video that begin at `start`, in
    nanoseconds. The same works for strength and expand; the other properties are not controllable."""
    curve = GstController.InterpolationControlSource(mode=GstController.InterpolationMode.LINEAR)
    for second, sigma in (0, 0), (5, 20), (10, 0):
        curve.set(start + second * Gst.SECOND, sigma)
    # The binding is absolute: the curve has values of sigma, not fractions of the property's range.
    blur.add_control_binding(GstController.DirectControlBinding.new_absolute(blur, "sigma", curve))


def stop_sweep(blur):
    blur.remove_control_binding(blur.get_control_binding("sigma"))


def show_window(Gtk, pipeline, loop):
    """Shows the video above a slider and the check box "sweep"."""
    blur = pipeline.get_by_name("blur")
    slider = Gtk.Scale.new_with_range(Gtk.Orientation.HORIZONTAL, 0, 50, 0.5)
    # The next frame uses the new value.
    slider.connect("value-changed", lambda _: blur.set_property("sigma", slider.get_value()))
    slider.set_value(5)
    sweep = Gtk.CheckButton(label="sweep")

    def on_sweep(_):
        # While sigma is controlled, the controller sets it for every frame.
        slider.set_sensitive(not sweep.get_active())
        if sweep.get_active():
            start_sweep(blur, pipeline.query_position(Gst.Format.TIME)[1])
        else:
            stop_sweep(blur)
            blur.set_property("sigma", slider.get_value())

    sweep.connect("toggled", on_sweep)
    box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
    box.pack_start(pipeline.get_by_name("sink").get_property("widget"), True, True, 0)
    box.pack_start(slider, False, False, 0)
    box.pack_start(sweep, False, False, 0)
    window = Gtk.Window(title="cudagaussblur")
    window.set_default_size(640, 420)
    window.add(box)
    window.connect("destroy", lambda _: loop.quit())
    window.show_all()


def print_sigma(_pad, _info, blur, frames):
    """Prints sigma for every 30th frame."""
    frame = next(frames)
    if frame % 30 == 0:
        print(f"frame {frame}: sigma {blur.get_property('sigma'):.1f}")
    return Gst.PadProbeReturn.OK


def missing(**packages):
    """Returns which of these elements is missing and what to install, or None."""
    for element, package in packages.items():
        if not Gst.ElementFactory.find(element):
            return f"GStreamer does not find {element}: install {package}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--headless", action="store_true", help="open no window, and let a GstController move sigma")
    parser.add_argument("file", nargs="?", metavar="FILE", help="the video; default: a test pattern")
    arguments = parser.parse_args()
    Gst.init(None)
    problem = missing(
        cudagaussblur="the plugin or set GST_PLUGIN_PATH to its folder", videoconvert="gstreamer1.0-plugins-base"
    )
    if not arguments.headless:
        problem = problem or missing(gtksink="gstreamer1.0-gtk3, or use --headless")
    if problem:
        return problem
    loop = GLib.MainLoop()
    if arguments.headless:
        pipeline = build(arguments.file, "fakesink")
        if not arguments.file:
            pipeline.get_by_name("pattern").set_property("num-buffers", 300)
        blur = pipeline.get_by_name("blur")
        start_sweep(blur)
        blur.get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, print_sigma, blur, itertools.count())
    else:
        try:
            gi.require_version("Gtk", "3.0")
        except ValueError:
            return "Python does not find GTK 3: install gir1.2-gtk-3.0, or use --headless"
        from gi.repository import Gtk

        if not Gtk.init_check()[0]:
            return "there is no display: use --headless"
        pipeline = build(arguments.file, "gtksink name=sink")
        show_window(Gtk, pipeline, loop)

    failure = None

    def on_message(_bus, message):
        nonlocal failure
        if message.type == Gst.MessageType.WARNING:
            print(message.parse_warning().gerror.message, file=sys.stderr)
        if message.type == Gst.MessageType.ERROR:
            error, details = message.parse_error()
            failure = f"{arguments.file or 'test pattern'}: {error.message}\n{details}"
        if message.type in (Gst.MessageType.ERROR, Gst.MessageType.EOS):
            loop.quit()

    bus = pipeline.get_bus()
    bus.add_signal_watch()
    bus.connect("message", on_message)
    # If an element fails to start, the reason is an error message on the bus.
    pipeline.set_state(Gst.State.PLAYING)
    try:
        loop.run()
        if not failure:
            blur = pipeline.get_by_name("blur")
            print("active-backend", blur.get_property("active-backend").value_nick)
            print(blur.get_property("stats").to_string())
    finally:
        pipeline.set_state(Gst.State.NULL)
    return failure


if __name__ == "__main__":
    sys.exit(main())
