# SPDX-License-Identifier: MPL-2.0
"""What the elements of this folder have in common: they read frames in place, run a model on a small picture of every N-th
one, and attach what it finds as a GstVideoRegionOfInterestMeta. GStreamer's loader of Python plugins finds no element in this
file.

Models and the modules that run them are those that scripts/models installs in target/models; the environment variable
CUDAGAUSSBLUR_MODELS names another folder.
"""

import collections
import ctypes
import importlib
import os
import pathlib
import sys
import time

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstBase", "1.0")
gi.require_version("GstVideo", "1.0")
from gi.repository import GLib, GObject, Gst, GstBase, GstVideo

# GStreamer's loader of Python plugins has done so; a program that imports an element may not have.
if not Gst.is_initialized():
    Gst.init(None)


def words(error):
    """What an exception says, in one line: its type if it has no text."""
    return " ".join(str(error).split()) or type(error).__name__


try:
    import numpy
except ImportError as error:
    # The plugin loader would print a traceback. `load` says what is missing. NumPy cannot be imported twice to learn it.
    numpy, NO_NUMPY = None, words(error)

FOLDER = pathlib.Path(os.environ.get("CUDAGAUSSBLUR_MODELS") or pathlib.Path(__file__).parents[2] / "target/models")

# 8 bits a channel. Frames are not converted: only the samples that the small picture needs are read.
FORMATS = ("I420, YV12, NV12, NV21, Y42B, Y444, YUY2, UYVY, RGB, BGR, RGBx, BGRx, xRGB, xBGR, RGBA, BGRA, ARGB, ABGR, GRAY8")
CAPS = Gst.Caps.from_string(f"video/x-raw, format={{{FORMATS}}}, width=[16, 32767], height=[16, 32767]")
TEMPLATES = tuple(Gst.PadTemplate.new(name, direction, Gst.PadPresence.ALWAYS, CAPS)
                  for name, direction in (("sink", Gst.PadDirection.SINK), ("src", Gst.PadDirection.SRC)))

# Tags whose values are pictures or files.
PICTURES = Gst.TAG_IMAGE, Gst.TAG_PREVIEW_IMAGE, Gst.TAG_ATTACHMENT


class Missing(Exception):
    """A sentence for the user: what is not installed."""


def finite(*arrays):
    """Raises ValueError if a model has answered with something else: no comparison with it says that something was found."""
    if not all(numpy.isfinite(array).all() for array in arrays):
        raise ValueError("its answer has values that are no numbers")


def load(module):
    """A module that scripts/models installs for this version of Python."""
    if numpy is None:
        version = "{}.{}".format(*sys.version_info)
        raise Missing(f"Python {version} cannot import numpy ({NO_NUMPY}): install python3-numpy for this version")
    # Without it ONNX Runtime sends telemetry. It reads the variable when it is imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    folder = str(FOLDER / "runtime-python{}.{}".format(*sys.version_info))
    sys.path.append(folder)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Missing(f"Python cannot import {module} ({words(error)}): run scripts/models") from error
    finally:
        sys.path.remove(folder)


def be_floating(element):
    """Before GStreamer 1.24 a factory prints CRITICAL about each element of Python, because PyGObject has taken the floating
    reference. Gives it another one."""
    library = ctypes.CDLL("libgobject-2.0.so.0")
    # The hash of an object of PyGObject is its address.
    address = ctypes.c_void_p(hash(element))
    library.g_object_ref(address)
    library.g_object_force_floating(address)


class Analyzer(GstBase.BaseTransform):
    """A filter that changes no pixel. A subclass has the property `every`, `MODEL`, the file name of its model, `open`
    and `analyze`."""

    # Longest time between two analysed frames, in nanoseconds. At a low frame rate `every` alone would exceed it.
    LONGEST = Gst.SECOND
    # The latency follows from the durations of so many searches, the last ones.
    RECENT = 16

    model = GObject.Property(type=str, default=None, nick="Model",
                             blurb="File of the model. Unset: the one that scripts/models downloads")
    threads = GObject.Property(type=int, minimum=0, maximum=64, default=0, nick="Threads",
                               blurb="Threads of the model; 0: as many as it gains from")

    def __init__(self):
        super().__init__()
        if Gst.version() < (1, 24):
            be_floating(self)
        self.set_in_place(True)
        self.reset()
        self.samplers = {}

    def reset(self):
        self.frames = self.analyzed = self.nanoseconds = self.waiting = self.latest = self.previous = 0
        # In nanoseconds: the reported latency, the time of its last change, and the durations of the last searches.
        self.latency, self.changed_at, self.durations = 0, -Gst.SECOND, collections.deque(maxlen=self.RECENT)

    @GObject.Property(type=Gst.Structure, flags=GObject.ParamFlags.READABLE, nick="Stats",
                      blurb="frames; analyzed: those that the model has seen; mean-ns: mean time of one, with its picture")
    def stats(self):
        return Gst.Structure.new_from_string(
            f"stats, frames=(guint64){self.frames}, analyzed=(guint64){self.analyzed}, "
            f"mean-ns=(guint64){self.nanoseconds // max(self.analyzed, 1)}")

    @classmethod
    def default_model(cls):
        return FOLDER / cls.MODEL

    def do_start(self):
        self.reset()
        path = pathlib.Path(self.model) if self.model else self.default_model()
        try:
            if not path.exists():
                raise Missing(f"{path} does not exist: " + ("check the property model" if self.model else "run scripts/models"))
            self.open(path, self.threads)
        except Missing as missing:
            return self.fail(Gst.ResourceError.NOT_FOUND, str(missing))
        except Exception as error:
            return self.fail(Gst.ResourceError.OPEN_READ, f"{path} cannot be used as the model: {words(error)}")
        return True

    def do_stop(self):
        self.network, self.samplers = None, {}
        return True

    def do_set_caps(self, caps, _):
        self.info = GstVideo.VideoInfo.new_from_caps(caps)
        self.waiting = 0
        self.samplers = {}
        return True

    def do_sink_event(self, event):
        """Drops pictures among the tags, such as a cover picture of the file, which a muxer would copy as it is."""
        if event.type == Gst.EventType.TAG:
            tags = event.parse_tag().copy()
            for tag in PICTURES:
                tags.remove_tag(tag)
            event = Gst.Event.new_tag(tags)
        return GstBase.BaseTransform.do_sink_event(self, event)

    # PyGObject refuses the name `do_query` as ambiguous, because Gst.Element has a virtual method `query`, too.
    def do_gst_base_transform_query(self, direction, query):
        """Adds the time of a search to the minimum latency: it delays the searched frame and those that arrive meanwhile. The maximum
        latency is upstream's, because this element buffers nothing."""
        is_answered = GstBase.BaseTransform.do_query(self, direction, query)
        if is_answered and direction == Gst.PadDirection.SRC and query.type == Gst.QueryType.LATENCY:
            live, min_latency, max_latency = query.parse_latency()
            query.set_latency(live, min_latency + self.latency, max_latency)
        return is_answered

    def note_duration(self, duration, now):
        """Notes how long a search took, and reports a longer latency if the reported one is too short. It does so once a second at
        most, and never reports a shorter one, because playback falters whenever a pipeline sets its latency anew."""
        self.durations.append(duration)
        if len(self.durations) < 2:
            return
        # The second longest: a single search may have been interrupted, and the first one also allocates.
        long = sorted(self.durations)[-2]
        if long > self.latency and now - self.changed_at >= Gst.SECOND:
            # An eighth more, so that searches whose durations vary a little do not change the latency again and again.
            self.latency, self.changed_at = long * 9 // 8, now
            self.post_message(Gst.Message.new_latency(self))

    def do_transform_ip(self, buffer):
        if buffer.has_flags(Gst.BufferFlags.DISCONT):
            self.waiting = 0
        self.frames += 1
        # Whether the next frame would exceed LONGEST, if frames keep their interval.
        interval, self.previous = buffer.pts - self.previous, buffer.pts
        is_late = interval <= 0 or not 0 <= buffer.pts - self.latest + interval <= self.LONGEST
        try:
            if self.waiting and not is_late:
                self.waiting -= 1
                self.pass_over(buffer)
                return Gst.FlowReturn.OK
            self.waiting, self.latest = self.every - 1, buffer.pts
            started = time.monotonic_ns()
            self.analyze(buffer)
        except BaseException as error:
            # PyGObject would take the frame for one that was analysed.
            self.fail(Gst.StreamError.FAILED, f"the model failed: {words(error)}")
            return Gst.FlowReturn.ERROR
        now = time.monotonic_ns()
        self.analyzed += 1
        self.nanoseconds += now - started
        self.note_duration(now - started, now)
        return Gst.FlowReturn.OK

    def pass_over(self, buffer):
        """Marks a frame that the model does not see."""
        attach_nothing(buffer)

    def fail(self, code, sentence):
        """Posts an error. False."""
        domain = Gst.resource_error_quark() if isinstance(code, Gst.ResourceError) else Gst.stream_error_quark()
        error = GLib.Error.new_literal(domain, sentence, int(code))
        self.post_message(Gst.Message.new_error(self, error, ""))
        return False

    def picture(self, buffer, width, height):
        """The picture of a frame as a [height, width, 3] array of red, green and blue bytes."""
        meta = GstVideo.buffer_get_video_meta(buffer)
        planes = self.info.finfo.n_planes
        layout = tuple(zip((meta or self.info).offset[:planes], (meta or self.info).stride[:planes]))
        key = layout, self.corner(buffer), width, height
        if key not in self.samplers:
            self.samplers = {key: Sampler(self.info, *key)}
        ok, mapped = buffer.map(Gst.MapFlags.READ)
        if not ok:
            raise RuntimeError("a frame cannot be read")
        try:
            return self.samplers[key].rgb(numpy.frombuffer(mapped.data, numpy.uint8))
        finally:
            buffer.unmap(mapped)

    def corner(self, buffer):
        """Column and row of the frame at which the picture of the caps begins. A GstVideoCropMeta of the size of the caps says where
        it is in a larger frame; one of another size shows a part of the caps' picture, all of which is searched. cudagaussblur counts
        detections from this corner."""
        crop = buffer.get_meta(GstVideo.video_crop_meta_api_get_type())
        if crop is None:
            return 0, 0
        # PyGObject gives any meta the class Gst.Meta, which has none of the fields.
        crop.__class__ = GstVideo.VideoCropMeta
        is_picture = (crop.width, crop.height) == (self.info.width, self.info.height)
        return (crop.x, crop.y) if is_picture else (0, 0)


class Sampler:
    """Reads a small picture from frames of one layout, whose picture begins at this corner. A luma or RGB sample is the mean of four
    of the frame."""

    def __init__(self, info, layout, corner, width, height):
        self.is_yuv, self.is_rgb = info.finfo.flags & GstVideo.VideoFormatFlags.YUV, info.finfo.flags & GstVideo.VideoFormatFlags.RGB
        full = info.colorimetry.range == getattr(GstVideo.VideoColorRange, "0_255")
        red, blue = (0.2126, 0.0722) if info.colorimetry.matrix == GstVideo.VideoColorMatrix.BT709 else (0.299, 0.114)
        self.black, luma, chroma = (0, 1, 1) if full else (16, 255 / 219, 255 / 224)
        # R = Y + a V, G = Y + b U + c V, B = Y + d U.
        green = 1 - red - blue
        self.luma, self.chroma = luma, [chroma * factor for factor in (
            2 * (1 - red), -2 * (1 - blue) * blue / green, -2 * (1 - red) * red / green, 2 * (1 - blue))]

        def places(component, quarter):
            """Indices of bytes of a component, at this place of each pixel of the small picture."""
            finfo, (offset, stride) = info.finfo, layout[info.finfo.plane[component]]
            rows, columns = ((numpy.arange(small) + share) * large // small + start for small, large, share, start in
                             ((height, info.height, quarter[0], corner[1]), (width, info.width, quarter[1], corner[0])))
            rows = (rows.astype(numpy.intp) >> finfo.h_sub[component]) * stride
            columns = (columns.astype(numpy.intp) >> finfo.w_sub[component]) * finfo.pixel_stride[component]
            return offset + finfo.poffset[component] + rows[:, None] + columns

        quarters = [(y, x) for y in (0.25, 0.75) for x in (0.25, 0.75)]
        if (info.width, info.height) == (width, height):
            quarters = [(0.5, 0.5)]
        self.fine = [[places(component, quarter) for quarter in quarters] for component in range(3 if self.is_rgb else 1)]
        self.coarse = [places(component, (0.5, 0.5)) for component in (1, 2)] if self.is_yuv else []

    def rgb(self, data):
        fine = [sum(data.take(quarter).astype(numpy.float32) for quarter in one) / len(one) for one in self.fine]
        if self.is_yuv:
            y = (fine[0] - self.black) * self.luma
            u, v = (data.take(one).astype(numpy.float32) - 128 for one in self.coarse)
            a, b, c, d = self.chroma
            fine = [y + a * v, y + b * u + c * v, y + d * u]
        return numpy.stack(fine * (3 // len(fine)), axis=-1).clip(0, 255).astype(numpy.uint8)


def attach(buffer, label, box, confidence):
    """Attaches a box, (left, top, right, bottom) in whole pixels, and returns its meta."""
    left, top, right, bottom = box
    meta = GstVideo.buffer_add_video_region_of_interest_meta(buffer, label, left, top, right - left, bottom - top)
    detection = Gst.Structure.new_empty("detection")
    detection.set_value("confidence", float(confidence))
    meta.add_param(detection)
    return meta


def attach_nothing(buffer):
    """Attaches a box of no size. It says that a detector vouches for the frame, so that cudagaussblur's on-missing=auto covers
    frames that have lost their metas, and no others."""
    GstVideo.buffer_add_video_region_of_interest_meta(buffer, "nothing", 0, 0, 0, 0)
