#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""A virtual camera: the webcam with a blurred background, for video calls. MediaPipe's selfie segmentation finds the person.

    examples/virtual_camera.py                          from /dev/video0 to the v4l2loopback device /dev/video10
    examples/virtual_camera.py --output pipewire        to a PipeWire source, which needs no kernel module
    examples/virtual_camera.py --test FILE --output none

With GTK and a display it opens a window with a slider for sigma.

Needs, on Debian and Ubuntu: python3-gi python3-gst-1.0 gir1.2-gst-plugins-base-1.0 python3-numpy, and what scripts/models
downloads; for a device v4l2loopback-dkms, for PipeWire gstreamer1.0-pipewire, for the window gir1.2-gtk-3.0; and the plugin,
installed or in GST_PLUGIN_PATH:

    scripts/models && cargo build --release && sudo modprobe v4l2loopback video_nr=10 exclusive_caps=1 card_label=Blurred &&
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
gi.require_version("GstVideo", "1.0")
from gi.repository import GLib, Gst, GstVideo

import models
import numpy

PIPEWIRE = 'mode=provide stream-properties="props,media.class=Video/Source,node.description=\\"Blurred camera\\""'


class Refused(Exception):
    """A sentence for the user."""


def source(arguments):
    """The elements that give frames, in a camera's time."""
    if arguments.test is None:
        if not os.path.exists(arguments.camera):
            raise Refused(f"{arguments.camera} does not exist: connect a camera, name another one with --camera, or use --test")
        size = "width=[1,1280],height=[1,720]"
        return f"v4l2src device={arguments.camera} ! video/x-raw,{size};image/jpeg,{size} ! decodebin"
    if arguments.test:
        if not os.path.exists(arguments.test):
            raise Refused(f"{arguments.test} does not exist")
        return "uridecodebin name=file caps=video/x-raw(ANY) expose-all-streams=false ! identity sync=true"
    return "videotestsrc is-live=true ! video/x-raw,width=1280,height=720,framerate=30/1"


def sink(output):
    """The element that other programs see as a camera."""
    if output == "none":
        return "fakesink sync=false"
    if output == "pipewire":
        if not Gst.ElementFactory.find("pipewiresink"):
            raise Refused("GStreamer does not find pipewiresink: install gstreamer1.0-pipewire, or use a v4l2loopback device")
        return f"pipewiresink {PIPEWIRE} sync=false"
    if not os.path.exists(output):
        load = f"sudo modprobe v4l2loopback video_nr={output.removeprefix('/dev/video')} exclusive_caps=1 card_label=Blurred"
        raise Refused(f"{output} does not exist: install v4l2loopback-dkms and run {load}, or use --output pipewire")
    return f"v4l2sink device={output} sync=false"


class Camera:
    """Two pipelines and what is between them: frames are read, get the mask of the person, and are blurred and shown."""

    def __init__(self, arguments):
        width, height = models.Person.SIZE
        self.person = models.Person()
        # Late frames are dropped before the tee, so that frames and pictures stay pairs. Nothing may scale before it: it would
        # choose the picture's size for the frame, too.
        self.reader = Gst.parse_launch(
            f"{source(arguments)} ! videoconvert ! video/x-raw,format=I420 ! "
            "queue leaky=downstream max-size-buffers=2 ! tee name=frame ! queue ! "
            "appsink name=frames sync=false max-buffers=2 "
            "frame. ! queue ! videoscale add-borders=false ! videoconvert ! "
            f"video/x-raw,format=RGB,width={width},height={height} ! appsink name=pictures sync=false max-buffers=2"
        )
        self.writer = Gst.parse_launch(
            "appsrc name=person is-live=true format=time block=true max-buffers=2 ! "
            "cudagaussblur name=blur region-mode=outside region-sources=roi shape=mask feather=8 expand=0 on-missing=cover ! "
            f"videoconvert ! {sink(arguments.output)}"
        )
        if arguments.test:
            self.reader.get_by_name("file").set_property("uri", Gst.filename_to_uri(os.path.abspath(arguments.test)))
        self.blur = self.writer.get_by_name("blur")
        self.blur.set_property("sigma", arguments.sigma)
        self.mask_caps = Gst.Caps(f"video/x-raw,format=GRAY8,width={width},height={height},framerate=0/1")
        self.frames = 0
        self.seconds = self.model_seconds = 0.0
        self.backend = None

    def run(self, limit):
        """Works until the frames end, an error, or stop()."""
        pull = [self.reader.get_by_name(name) for name in ("frames", "pictures")]
        person = self.writer.get_by_name("person")
        for pipeline in self.reader, self.writer:
            pipeline.set_state(Gst.State.PLAYING)
        started = time.monotonic()
        while self.frames != limit:
            frame, picture = (self.next_sample(sink) for sink in pull)
            if frame is None or picture is None:
                break
            buffer = self.with_mask(frame, picture)
            person.set_property("caps", frame.get_caps())
            if person.emit("push-buffer", buffer) != Gst.FlowReturn.OK:
                break
            self.frames += 1
            self.seconds = time.monotonic() - started
        self.failure_of(self.writer)
        self.backend = self.blur.get_property("active-backend").value_nick
        # The last frames.
        person.emit("end-of-stream")
        self.writer.get_bus().timed_pop_filtered(5 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)

    def next_sample(self, appsink):
        """None at the end."""
        while not (sample := appsink.emit("try-pull-sample", Gst.SECOND // 5)):
            self.failure_of(self.reader)
            if appsink.get_property("eos"):
                return None
        return sample

    @staticmethod
    def failure_of(pipeline):
        if message := pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR):
            raise Refused(message.parse_error().gerror.message)

    def with_mask(self, frame, picture):
        """The frame's buffer with the mask of the person in its picture."""
        width, height = models.Person.SIZE
        start = time.monotonic()
        pixels = picture.get_buffer().extract_dup(0, width * height * 3)
        mask = self.person.mask(numpy.frombuffer(pixels, numpy.uint8).reshape(height, width, 3))
        self.model_seconds += time.monotonic() - start
        # A new buffer with the same memory: this one is writable.
        buffer = frame.get_buffer()
        parts = Gst.BufferCopyFlags.TIMESTAMPS | Gst.BufferCopyFlags.FLAGS | Gst.BufferCopyFlags.META
        buffer = buffer.copy_region(parts | Gst.BufferCopyFlags.MEMORY, 0, buffer.get_size())
        video = GstVideo.VideoInfo.new_from_caps(frame.get_caps())
        # The mask is stretched over the box of the person, which is the whole frame.
        meta = GstVideo.buffer_add_video_region_of_interest_meta(buffer, "person", 0, 0, video.width, video.height)
        param = Gst.Structure.new_empty("mask")
        param.set_value("sample", Gst.Sample.new(Gst.Buffer.new_wrapped(mask.tobytes()), self.mask_caps, None, None))
        meta.add_param(param)
        return buffer

    def stop(self):
        self.reader.send_event(Gst.Event.new_eos())

    def close(self):
        for pipeline in self.reader, self.writer:
            pipeline.set_state(Gst.State.NULL)


def show_slider(camera):
    """Opens a window with a slider for sigma. Closing it ends the program. False without GTK or a display."""
    try:
        gi.require_version("Gtk", "3.0")
        from gi.repository import Gtk
    except (ImportError, ValueError):
        return False
    if not Gtk.init_check()[0]:
        return False
    slider = Gtk.Scale.new_with_range(Gtk.Orientation.HORIZONTAL, 0, 100, 1)
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--camera", default="/dev/video0", help="default: /dev/video0")
    parser.add_argument("--output", default="/dev/video10",
                        help="a v4l2loopback device, pipewire, or none; default: /dev/video10")
    parser.add_argument("--sigma", type=float, default=20, help="of the blur, in pixels of a frame of at most 1280x720; default: 20")
    parser.add_argument("--test", nargs="?", const="", metavar="FILE", help="a test pattern or a video instead of the camera")
    parser.add_argument("--frames", type=int, default=-1, help="stop after so many frames")
    parser.add_argument("--headless", action="store_true", help="open no window")
    arguments = parser.parse_args()
    Gst.init(None)
    if not Gst.ElementFactory.find("cudagaussblur"):
        return "GStreamer does not find cudagaussblur: install the plugin or set GST_PLUGIN_PATH to its folder"
    try:
        camera = Camera(arguments)
    except (Refused, models.Missing) as error:
        return str(error)
    failure, loop = None, GLib.MainLoop()

    def work():
        nonlocal failure
        try:
            camera.run(arguments.frames)
        except Refused as error:
            failure = str(error)
        finally:
            loop.quit()

    if not arguments.headless:
        show_slider(camera)
    GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, signal.SIGINT, camera.stop)
    worker = threading.Thread(target=work)
    # The loop must run before it can be ended.
    GLib.idle_add(worker.start)
    try:
        loop.run()
        worker.join()
    finally:
        camera.close()
    if camera.frames:
        print(f"{camera.frames} frames, {camera.frames / camera.seconds:.1f} a second, mask included "
              f"({1000 * camera.model_seconds / camera.frames:.1f} ms a frame), active-backend {camera.backend}")
    return failure


if __name__ == "__main__":
    sys.exit(main())
