# SPDX-License-Identifier: MPL-2.0
"""The GStreamer element selfiesegmentation: finds people in front of a camera with MediaPipe's selfie segmentation (Apache-2.0),
run by LiteRT, and attaches their mask as a region of interest with the label `person`.

    scripts/models people && cargo build --release && GST_PLUGIN_PATH=target/release:examples gst-launch-1.0 v4l2src !
        videoconvert ! selfiesegmentation ! cudagaussblur region-mode=outside shape=mask grow=4 expand=0 sigma=20 ! videoconvert !
        autovideosink

The models and LiteRT are those that `scripts/models people` puts into target/models; the environment variable CUDAGAUSSBLUR_MODELS
names another folder.

This line sees one person who fills the picture. For people of any size put `centerface` in front of this element: around each face (a
GstVideoRegionOfInterestMeta with the label `face`) the square model of the same family looks for the person, in a box that is a
multiple of the face. If the face is large, or if there is none, the landscape model looks at the whole picture. Between the searches of
`centerface`, and while a face is hidden, the box follows the mask. One region `person` holds the masks of all people. Set
`labels=person`, so that cudagaussblur does not take the boxes of the faces for people.

The masks have 256x144 and 256x256 samples, too few for hair and collars. A guided filter (He et al., 2010) fits them to the edges of the
picture: around each place, a mask becomes the linear function of red, green and blue that is nearest to it. Where the picture
does not change, the result is averaged over time. cudagaussblur narrows what it shows by a cell of its grid of weights, and `grow`
makes up for that: 2 for frames of up to 1024 pixels a side, 4 up to 2048 and so on doubling; frames of up to 512 pixels need none.
"""

import collections
import ctypes
import functools
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
    # The plugin loader would print a traceback. `load_interpreter` says what is missing. NumPy cannot be imported twice to learn it.
    numpy, NO_NUMPY = None, words(error)

FOLDER = pathlib.Path(os.environ.get("CUDAGAUSSBLUR_MODELS") or pathlib.Path(__file__).parents[2] / "target/models")
MODEL = FOLDER / "selfie_segmentation_landscape.tflite"
SQUARE_MODEL = FOLDER / "selfie_segmentation.tflite"

# 8 bits a channel. Frames are not converted: only the samples that the small picture needs are read.
FORMATS = ("I420, YV12, NV12, NV21, Y42B, Y444, YUY2, UYVY, RGB, BGR, RGBx, BGRx, xRGB, xBGR, RGBA, BGRA, ARGB, ABGR, GRAY8")
CAPS = Gst.Caps.from_string(f"video/x-raw, format={{{FORMATS}}}, width=[16, 32767], height=[16, 32767]")
TEMPLATES = tuple(Gst.PadTemplate.new(name, direction, Gst.PadPresence.ALWAYS, CAPS)
                  for name, direction in (("sink", Gst.PadDirection.SINK), ("src", Gst.PadDirection.SRC)))

# Tags whose values are pictures or files.
PICTURES = Gst.TAG_IMAGE, Gst.TAG_PREVIEW_IMAGE, Gst.TAG_ATTACHMENT

# Longest time between two frames that the model sees, in nanoseconds. At a low frame rate `every` alone would exceed it.
LONGEST = Gst.SECOND
# The latency follows from the durations of so many searches, the last ones.
RECENT = 16
# Layouts of frames and parts of them whose places are remembered.
SAMPLERS = 8

# The box of a person, in heights of the face: its width, its height, and how far its upper edge lies above the face's centre.
# Measured with benches/hiding/scenes.py.
WIDE, TALL, ABOVE = 5, 7, 1.1
# A person whose face has more than this share of the picture's shorter side fills the picture.
FILLS = 0.22
# Faces whose centres differ by less than so many of their heights are one person's. A person is lost below this confidence.
SAME, LOST = 1.25, 0.5

# Of the guided filter, whose windows have 72x72 pixels at 720p: variance of colours that counts as noise; how often it
# is applied, and how much steeper its result is made in between.
NOISE, PASSES, STEEPER = 1e-4, 4, 2
# From the threshold on, a person shows wholly after so much more of the filter's result.
SOFT = 0.5
# Changes of a colour from one frame to the next: up to the first noise, from the second on motion.
STILL, MOVED = 2 / 255, 8 / 255


class Person:
    """Someone whose face was found: its centre (row and column) and its height, in samples of the coarse guide."""

    def __init__(self, centre, face):
        self.centre, self.face, self.mean = numpy.array(centre), face, None

    def box(self, size):
        """Where the model looks for the person in a guide of this height and width: upper left corner, and lower right one. The lower
        edge of the picture cuts the box, down to a square, which is moved up. If the person fills the picture, it is all of the guide."""
        if self.face > FILLS * min(size):
            return 0, 0, *size
        lowest, width = (min(max(round(WIDE * self.face), 1), most) for most in size)
        top, left = (min(max(round(place), 0), most - side) for place, side, most in zip(
            self.centre - (ABOVE * self.face, width / 2), (lowest, width), size))
        return top, left, min(top + max(round(TALL * self.face), lowest), size[0]), left + width

    def follow(self, mean):
        """Moves the face by as much as the mean place of what the model found in the box has moved since the last search."""
        if self.mean is not None:
            self.centre += mean - self.mean
        self.mean = mean


class Missing(Exception):
    """A sentence for the user: what is not installed."""


def load_interpreter():
    """LiteRT's class, which `scripts/models people` installs for this version of Python."""
    if numpy is None:
        version = "{}.{}".format(*sys.version_info)
        raise Missing(f"Python {version} cannot import numpy ({NO_NUMPY}): install python3-numpy for this version")
    folder = str(FOLDER / "runtime-python{}.{}".format(*sys.version_info))
    sys.path.append(folder)
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise Missing(f"Python cannot import ai_edge_litert ({words(error)}): run scripts/models people") from error
    finally:
        sys.path.remove(folder)
    return Interpreter


class Network:
    """A model that finds people in a picture of its size. `size` is its height and width."""

    def __init__(self, path, threads):
        interpreter = load_interpreter()
        # LiteRT logs to standard error.
        standard, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 2)
        try:
            # A second thread makes models of this size slower.
            self.network = interpreter(str(path), num_threads=threads or 1)
            self.network.allocate_tensors()
            self.network.invoke()
        finally:
            os.dup2(standard, 2)
            os.close(standard)
            os.close(nothing)
        self.input, self.output = self.network.get_input_details()[0], self.network.get_output_details()[0]["index"]
        _, *self.size, _ = (int(side) for side in self.input["shape"])

    def confidence(self, picture):
        """That a sample is a person's: [height, width], 0 to 1. `picture` has red, green and blue: [3, height, width], 0 to 1."""
        self.network.set_tensor(self.input["index"], numpy.stack(picture, -1)[None])
        self.network.invoke()
        confidence = self.network.get_tensor(self.output)[0, :, :, 0]
        # Comparisons with such values are false, as if nobody were in the picture.
        if not numpy.isfinite(confidence).all():
            raise ValueError("its answer has values that are no numbers")
        return confidence


def be_floating(element):
    """Before GStreamer 1.24 a factory prints CRITICAL about each element of Python, because PyGObject has taken the floating
    reference. Gives it another one."""
    library = ctypes.CDLL("libgobject-2.0.so.0")
    # The hash of an object of PyGObject is its address.
    address = ctypes.c_void_p(hash(element))
    library.g_object_ref(address)
    library.g_object_force_floating(address)


class SelfieSegmentation(GstBase.BaseTransform):
    """A filter that changes no pixel."""

    __gstmetadata__ = ("Selfie segmentation", "Analyzer/Video", "Finds people and attaches their mask as a region of interest",
                       "the authors of cudagaussblur")
    __gsttemplates__ = TEMPLATES

    every = GObject.Property(type=int, minimum=1, maximum=1000, default=1, nick="Every",
                             blurb="Run the model on one frame in so many; between, its last mask is fitted to the frame")
    threshold = GObject.Property(type=float, minimum=0, maximum=1, default=0.25, nick="Threshold",
                                 blurb="Least confidence of a person's samples; less shows more of hair and of the background")
    smooth = GObject.Property(type=float, minimum=0, maximum=1, default=0.75, nick="Smooth",
                              blurb="Share of the last mask in the next one, where the picture does not change")
    model = GObject.Property(type=str, default=None, nick="Model",
                             blurb="File of the model. Unset: the one that scripts/models people downloads")
    threads = GObject.Property(type=int, minimum=0, maximum=64, default=0, nick="Threads",
                               blurb="Threads of the model; 0: as many as it gains from")

    def __init__(self):
        super().__init__()
        if Gst.version() < (1, 24):
            be_floating(self)
        self.set_in_place(True)
        self.reset()

    def reset(self):
        self.frames = self.analyzed = self.faceless = self.nanoseconds = self.waiting = self.latest = self.previous = 0
        # For the whole picture, and for the box of a person.
        self.networks = []
        # In nanoseconds: the reported latency, the time of its last change, and the durations of the last searches.
        self.latency, self.changed_at, self.durations = 0, -Gst.SECOND, collections.deque(maxlen=RECENT)

    @GObject.Property(type=Gst.Structure, flags=GObject.ParamFlags.READABLE, nick="Stats",
                      blurb="frames; analyzed: those that a model has seen; faceless: those in which a detector of faces has found none, "
                            "and no person is left of those before; mean-ns: mean time of an analyzed one, with its picture")
    def stats(self):
        return Gst.Structure.new_from_string(
            f"stats, frames=(guint64){self.frames}, analyzed=(guint64){self.analyzed}, faceless=(guint64){self.faceless}, "
            f"mean-ns=(guint64){self.nanoseconds // max(self.analyzed, 1)}")

    def do_start(self):
        self.reset()
        try:
            for path in pathlib.Path(self.model) if self.model else MODEL, SQUARE_MODEL:
                if not path.exists():
                    cure = "check the property model" if str(path) == self.model else "run scripts/models people"
                    raise Missing(f"{path} does not exist: {cure}")
                self.networks.append(Network(path, self.threads))
        except Missing as missing:
            return self.fail(Gst.ResourceError.NOT_FOUND, str(missing))
        except Exception as error:
            return self.fail(Gst.ResourceError.OPEN_READ, f"{path} cannot be used as the model: {words(error)}")
        return True

    def do_stop(self):
        self.networks, self.sampler = [], None
        return True

    def do_set_caps(self, caps, _):
        self.info = GstVideo.VideoInfo.new_from_caps(caps)
        self.waiting = 0
        self.sampler = functools.lru_cache(SAMPLERS)(functools.partial(Sampler, self.info))
        # The mask has a sample for each cell of the grid of cudagaussblur's weights: it would narrow a finer one.
        cell = 1
        while max(self.info.width, self.info.height) > 512 * cell:
            cell *= 2
        self.size = max(self.info.height // cell, 2), max(self.info.width // cell, 2)
        # Of the coarse guide, on which the model's mask is fitted.
        self.coarse = tuple(-(-side // 2) for side in self.size)
        self.last, self.new, self.confidence, self.people, self.is_faceless = None, 0, numpy.float32(0), [], False
        return True

    def analyze(self, buffer):
        guide, whole = self.guide(buffer), (0, 0, *self.coarse)
        boxes = collections.defaultdict(list)
        people, has_finder = self.with_faces(buffer)
        for person in people:
            boxes[person.box(self.coarse)].append(person)
        found, self.people = numpy.zeros(self.coarse, numpy.float32), []
        self.is_faceless = not boxes and has_finder
        for box, people in boxes.items() or [(whole, [])]:
            if box == whole:
                network = self.networks[0]
                picture = [scaled(plane, *network.size) for plane in guide]
            else:
                network = self.networks[1]
                picture = self.picture(buffer, box, *network.size)
            top, left, bottom, right = box
            confidence = scaled(network.confidence(picture), bottom - top, right - left)
            part = found[top:bottom, left:right]
            numpy.maximum(part, confidence, out=part)
            # A person is followed until nobody is in the box, also if the face is not found any more.
            if confidence.max() < LOST:
                continue
            mean = numpy.array([numpy.average(numpy.arange(first, last), weights=confidence.sum(axis))
                                for axis, first, last in ((1, top, bottom), (0, left, right))])
            for person in people:
                person.follow(mean)
                self.people.append(person)
        self.mark(buffer, guide, found)

    def with_faces(self, buffer):
        """The people to search, which are those whose faces a detector in front of this element has found in this frame, and others of
        the last search; and whether there is such a detector."""
        metas, scale = [], self.coarse[0] / self.info.height
        # Python cannot iterate metas. All have the id 0 until they have been read.
        while meta := GstVideo.buffer_get_video_region_of_interest_meta_id(buffer, 0):
            meta.id = 1
            metas.append(meta)
        for meta in metas:
            meta.id = 0
        faces = [Person(((meta.y + meta.h / 2) * scale, (meta.x + meta.w / 2) * scale), meta.h * scale)
                 for meta in metas if meta.h and GLib.quark_to_string(meta.roi_type) == "face"]
        others = [person for person in self.people
                  if all(abs(person.centre - face.centre).max() > SAME * face.face for face in faces)]
        return faces + others, bool(metas)

    def guide(self, buffer):
        """The frame at the size of the mask: [red, green and blue, height, width], 0 to 1."""
        return self.picture(buffer, (0, 0, *self.coarse), *self.size)

    def picture(self, buffer, box, height, width):
        """What the frame shows in a box of the coarse guide, at this size: [red, green and blue, height, width], 0 to 1."""
        meta = GstVideo.buffer_get_video_meta(buffer)
        planes = self.info.finfo.n_planes
        layout = tuple(zip((meta or self.info).offset[:planes], (meta or self.info).stride[:planes]))
        x, y = self.corner(buffer)
        top, left, bottom, right = (round(place * side / count) for place, side, count in zip(
            box, (self.info.height, self.info.width) * 2, self.coarse * 2))
        sampler = self.sampler(layout, (x + left, y + top, right - left, bottom - top), height, width)
        ok, mapped = buffer.map(Gst.MapFlags.READ)
        if not ok:
            raise RuntimeError("a frame cannot be read")
        try:
            return sampler.planes(numpy.frombuffer(mapped.data, numpy.uint8)) * numpy.float32(1 / 255)
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

    def changed(self, coarse):
        """The share of what is new where the picture changes by more than noise, light and exposure."""
        change = coarse - self.last[1]
        change = abs(change - numpy.median(change, axis=(1, 2), keepdims=True)).max(0)
        return ((largest(largest(change)) - STILL) / (MOVED - STILL)).clip(1 - self.smooth, 1)

    def mark(self, buffer, guide, found=None):
        """Attaches the mask. `found` is what the models say of this frame, on the coarse guide."""
        self.faceless += self.is_faceless
        coarse = numpy.stack([scaled(plane, *self.coarse) for plane in guide])
        new = numpy.float32(1) if self.last is None else self.changed(coarse)
        # Since the model's last frame.
        self.new = numpy.maximum(self.new, new)
        if found is not None:
            self.confidence = self.confidence + self.new * (found - self.confidence)
            self.new = 0
        mask = fitted(self.confidence, guide, coarse)
        if self.last:
            mask = self.last[0] + scaled(new, *self.size) * (mask - self.last[0])
        self.last = mask, coarse
        # cudagaussblur's region-mode=outside shows nothing of samples below 128 and all of those of 255; inside leaves 0 uncovered.
        samples = (mask * (128 / max(self.threshold, 1e-6))).clip(0, 128) + ((mask - self.threshold) * (127 / SOFT)).clip(0, 127)
        samples = samples.astype(numpy.uint8)
        if samples.max() < 128:
            # A box of no size says that a detector vouches for the frame, so that cudagaussblur's on-missing=auto covers frames that
            # have lost their metas, and no others.
            GstVideo.buffer_add_video_region_of_interest_meta(buffer, "nothing", 0, 0, 0, 0)
            return
        # The box of the person, and a sample around it: if the person is lost, cudagaussblur covers the box.
        rows, columns = (numpy.flatnonzero(samples.max(axis) >= 128) for axis in (1, 0))
        (top, bottom), (left, right) = (
            (max(places[0] - 1, 0), min(places[-1] + 2, side)) for places, side in zip((rows, columns), self.size))
        samples = samples[top:bottom, left:right]
        (x, x_end), (y, y_end) = (
            [round(place * picture / side) for place in places] for places, picture, side in (
                ((left, right), self.info.width, self.size[1]), ((top, bottom), self.info.height, self.size[0])))
        meta = GstVideo.buffer_add_video_region_of_interest_meta(buffer, "person", x, y, x_end - x, y_end - y)
        detection = Gst.Structure.new_empty("detection")
        detection.set_value("confidence", float(self.confidence.max()))
        meta.add_param(detection)
        height, width = samples.shape
        caps = Gst.Caps.from_string(f"video/x-raw, format=GRAY8, width={width}, height={height}, framerate=0/1")
        # Rows of GRAY8 begin at multiples of four bytes.
        samples = numpy.pad(samples, [(0, 0), (0, -width % 4)])
        param = Gst.Structure.new_empty("mask")
        param.set_value("sample", Gst.Sample.new(Gst.Buffer.new_wrapped(samples.tobytes()), caps, None, None))
        meta.add_param(param)

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
            self.waiting, self.people = 0, []
        self.frames += 1
        # Whether the next frame would exceed LONGEST, if frames keep their interval.
        interval, self.previous = buffer.pts - self.previous, buffer.pts
        is_late = interval <= 0 or not 0 <= buffer.pts - self.latest + interval <= LONGEST
        try:
            if self.waiting and not is_late:
                self.waiting -= 1
                self.mark(buffer, self.guide(buffer))
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

    def fail(self, code, sentence):
        """Posts an error. False."""
        domain = Gst.resource_error_quark() if isinstance(code, Gst.ResourceError) else Gst.stream_error_quark()
        error = GLib.Error.new_literal(domain, sentence, int(code))
        self.post_message(Gst.Message.new_error(self, error, ""))
        return False


class Sampler:
    """Reads a small picture from a part of frames of one layout: column, row, width and height. A luma or RGB sample is the mean of
    four of the frame."""

    def __init__(self, info, layout, part, height, width):
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
                             ((height, part[3], quarter[0], part[1]), (width, part[2], quarter[1], part[0])))
            rows = (rows.astype(numpy.intp) >> finfo.h_sub[component]) * stride
            columns = (columns.astype(numpy.intp) >> finfo.w_sub[component]) * finfo.pixel_stride[component]
            return offset + finfo.poffset[component] + rows[:, None] + columns

        quarters = [(y, x) for y in (0.25, 0.75) for x in (0.25, 0.75)]
        if part[2:] == (width, height):
            quarters = [(0.5, 0.5)]
        self.fine = [[places(component, quarter) for quarter in quarters] for component in range(3 if self.is_rgb else 1)]
        self.coarse = [places(component, (0.5, 0.5)) for component in (1, 2)] if self.is_yuv else []

    def planes(self, data):
        """Planes of red, green and blue: [3, height, width], 0 to 255."""
        fine = [sum(data.take(quarter).astype(numpy.float32) for quarter in one) / len(one) for one in self.fine]
        if self.is_yuv:
            y = (fine[0] - self.black) * self.luma
            u, v = (data.take(one).astype(numpy.float32) - 128 for one in self.coarse)
            a, b, c, d = self.chroma
            fine = [y + a * v, y + b * u + c * v, y + d * u]
        return numpy.stack(fine * (3 // len(fine))).clip(0, 255).astype(numpy.uint8)


def fitted(values, guide, coarse):
    """Values at the places of the coarse guide, fitted to the edges of the guide. Plane by plane: large arrays take longer."""
    colour = [means(plane) for plane in coarse]
    # The inverse of the symmetric matrix of the colours' covariances, by its cofactors.
    rr, rg, rb, gg, gb, bb = (means(coarse[i] * coarse[j]) - colour[i] * colour[j] + (NOISE if i == j else 0)
                              for i in range(3) for j in range(i, 3))
    cofactors = gg * bb - gb * gb, gb * rb - rg * bb, rg * gb - gg * rb, rr * bb - rb * rb, rg * rb - rr * gb, rr * gg - rg * rg
    determinant = rr * cofactors[0] + rg * cofactors[1] + rb * cofactors[2]
    rr, rg, rb, gg, gb, bb = (one / determinant for one in cofactors)
    for number in range(PASSES):
        if number:
            values = ((applied(function, coarse) - 0.5) * STEEPER + 0.5).clip(0, 1)
        mean = means(values)
        r, g, b = (means(plane * values) - centre * mean for plane, centre in zip(coarse, colour))
        factors = rr * r + rg * g + rb * b, rg * r + gg * g + gb * b, rb * r + gb * g + bb * b
        offset = mean - sum(factor * centre for factor, centre in zip(factors, colour))
        function = [means(plane) for plane in (*factors, offset)]
    return applied([scaled(plane, *guide.shape[1:]) for plane in function], guide)


def applied(function, guide):
    r, g, b, offset = function
    return r * guide[0] + g * guide[1] + b * guide[2] + offset


def means(plane):
    """The mean of the nine by nine samples around each one. Beyond the edges the outermost ones repeat."""
    sums = numpy.pad(plane, 4, mode="edge")
    for _ in range(2):
        ninth = sums[8:]
        for step in (1, 2, 4):
            sums = sums[:-step] + sums[step:]
        sums = (sums[:-1] + ninth).T
    return sums * numpy.float32(1 / 81)


def largest(plane):
    """The largest of the three by three samples around each one."""
    padded = numpy.pad(plane, 1, mode="edge")
    for _ in range(2):
        padded = numpy.maximum.reduce([padded[:-2], padded[1:-1], padded[2:]]).T
    return padded


def scaled(plane, *size):
    """A plane of another height and width, bilinear, from centre to centre."""
    # The axis of which less is left, first.
    for axis in (0, 1) if size[0] < plane.shape[0] else (1, 0):
        given, length = plane.shape[axis], size[axis]
        place = ((numpy.arange(length) + 0.5) * given / length - 0.5).clip(0, given - 1)
        first = numpy.minimum(place.astype(int), given - 2)
        share = (place - first).astype(numpy.float32).reshape((-1, 1) if axis == 0 else (1, -1))
        one = plane.take(first, axis)
        plane = one + share * (plane.take(first + 1, axis) - one)
    return plane


GObject.type_register(SelfieSegmentation)
__gstelementfactory__ = ("selfiesegmentation", Gst.Rank.NONE, SelfieSegmentation)
