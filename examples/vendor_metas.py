#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""Translates the detections of NVIDIA DeepStream, Hailo or another vendor into GStreamer's own metas in a pad probe.

cudagaussblur reads GstVideoRegionOfInterestMeta and GstAnalyticsRelationMeta. Vendors have metas of their own, so a
probe on the sink pad of cudagaussblur attaches a region of interest for each of their detections:

    cover = pipeline.get_by_name("cover")
    cover.get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, translate, deepstream_boxes)

Started as a program, it shows this with a vendor that exists here only, whose detections are in a GstCustomMeta, and
checks the result. Only that part runs without the vendors' software and hardware; the functions for DeepStream and Hailo
are written after their documentation.

Needs PyGObject, which distributions install for /usr/bin/python3 (Debian and Ubuntu: python3-gi, python3-gst-1.0,
gir1.2-gst-plugins-base-1.0), GStreamer 1.20, and the plugin, installed or in GST_PLUGIN_PATH:

    cargo build --release && GST_PLUGIN_PATH=target/release examples/vendor_metas.py
"""

import ctypes
import math
import sys
from typing import NamedTuple, Optional

try:
    import gi
except ImportError:
    sys.exit(f"{sys.executable} has no PyGObject: install python3-gi and run this with the distribution's /usr/bin/python3")

gi.require_version("Gst", "1.0")
gi.require_version("GstVideo", "1.0")
from gi.repository import Gst, GstVideo


class Box(NamedTuple):
    """A detection, in pixels of the frame. Without a confidence it counts as certain."""

    label: str
    confidence: Optional[float]
    x: float
    y: float
    width: float
    height: float


# Each of these reads one vendor's detections of a buffer: a list of boxes, which is empty if the detector found nothing,
# or None if no detector has looked at the frame.


def deepstream_boxes(buffer, _width, _height):
    """NVIDIA DeepStream, with the Python bindings pyds. The frames must be in host memory and one in a buffer: behind
    nvstreamdemux and nvvideoconvert. The boxes are in pixels of nvstreammux's output, so no element may scale between."""
    import pyds

    batch = pyds.gst_buffer_get_nvds_batch_meta(hash(buffer))
    if batch is None:
        return None
    frames = list(nvds_list(batch.frame_meta_list, pyds.NvDsFrameMeta.cast))
    objects = (nvds_list(frame.obj_meta_list, pyds.NvDsObjectMeta.cast) for frame in frames)
    boxes = [deepstream_box(detection) for of_frame in objects for detection in of_frame]
    # nvinfer's interval skips frames, for which a tracker may still have boxes.
    return boxes if boxes or any(frame.bInferDone for frame in frames) else None


def nvds_list(entry, cast):
    """The entries of one of DeepStream's linked lists."""
    while entry is not None:
        try:
            yield cast(entry.data)
            entry = entry.next
        except StopIteration:
            # What pyds raises at the end of a list.
            return


def deepstream_box(detection):
    """The box of an NvDsObjectMeta. Its confidence is -0.1 if it is unknown."""
    rect = detection.rect_params
    confidence = detection.confidence if detection.confidence >= 0 else None
    return Box(detection.obj_label, confidence, rect.left, rect.top, rect.width, rect.height)


def hailo_boxes(buffer, width, height):
    """Hailo TAPPAS. This does not tell a frame without detections from one that no network has seen, so the probe must be
    behind the network and its hailofilter."""
    import hailo

    detections = hailo.get_roi_from_buffer(buffer).get_objects_typed(hailo.HAILO_DETECTION)
    return [hailo_box(detection, width, height) for detection in detections]


def hailo_box(detection, width, height):
    """The box of a HailoDetection, whose places are fractions of the frame."""
    box = detection.get_bbox()
    place = (box.xmin() * width, box.ymin() * height, box.width() * width, box.height() * height)
    return Box(detection.get_label(), detection.get_confidence(), *place)


VENDOR_META = "ExampleVendorDetections"


def example_boxes(buffer, _width, _height):
    """The vendor of the demonstration: lines of label, confidence, x, y, width and height in a GstCustomMeta."""
    meta = buffer.get_custom_meta(VENDOR_META)
    if meta is None:
        return None
    lines = (line.split() for line in meta.get_structure().get_string("detections").splitlines())
    return [Box(label, *map(float, numbers)) for label, *numbers in lines]


class PadProbeInfo(ctypes.Structure):
    """The first fields of GstPadProbeInfo."""

    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_ulong), ("data", ctypes.c_void_p)]


gst = ctypes.CDLL("libgstreamer-1.0.so.0")
gst_video = ctypes.CDLL("libgstvideo-1.0.so.0")
gst.gst_mini_object_make_writable.argtypes = [ctypes.c_void_p]
gst.gst_mini_object_make_writable.restype = ctypes.c_void_p
add_roi = gst_video.gst_buffer_add_video_region_of_interest_meta
add_roi.argtypes = [ctypes.c_void_p, ctypes.c_char_p] + [ctypes.c_uint] * 4
add_roi.restype = ctypes.c_void_p
add_param = gst_video.gst_video_region_of_interest_meta_add_param
add_param.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
add_param.restype = None
new_structure = gst.gst_structure_from_string
new_structure.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
new_structure.restype = ctypes.c_void_p


def translate(pad, info, read_boxes):
    """The probe. A frame whose detections cannot be read or attached is dropped, not passed on uncovered."""
    try:
        # Not the structure of the caps, which GStreamer 1.26 wraps.
        video = GstVideo.VideoInfo.new_from_caps(pad.get_current_caps())
        width, height = video.width, video.height
        boxes = read_boxes(info.get_buffer(), width, height)
        # Without any meta, on-missing decides about the frame.
        if boxes is not None:
            attach(info, [rounded(box, width, height) for box in boxes])
        return Gst.PadProbeReturn.OK
    except Exception as error:
        print(f"a frame is dropped because its detections cannot be translated: {error!r}", file=sys.stderr)
        return Gst.PadProbeReturn.DROP


def rounded(box, width, height):
    """The box in whole pixels inside of the frame, rounded outwards, because the meta's numbers are unsigned. What is
    not a number becomes the edge of the frame."""
    edges = []
    for start, length, end in (box.x, box.width, width), (box.y, box.height, height):
        low, high = min(start, start + length), max(start, start + length)
        low = 0 if math.isnan(low) else max(0, min(end, math.floor(max(low, 0))))
        high = end if math.isnan(high) else max(0, min(end, math.ceil(min(high, end))))
        edges.append((low, max(0, high - low)))
    (x, wide), (y, tall) = edges
    return box._replace(x=x, y=y, width=wide, height=tall)


def attach(info, boxes):
    """Attaches a region of interest for each box to the buffer of a probe. A box of no size says that the detector looked
    and found nothing.

    Python holds a reference to every buffer that it has seen, so a buffer is not writable in Python. This does in C what
    a probe in C does: it makes the buffer of the probe writable, which may copy it, and leaves the result in the probe.
    """
    probe = PadProbeInfo.from_address(hash(info))
    if probe.data != hash(info.get_buffer()):
        raise RuntimeError("this version of PyGObject does not give the address of GstPadProbeInfo")
    probe.data = gst.gst_mini_object_make_writable(probe.data)
    for box in boxes or [Box("nothing", None, 0, 0, 0, 0)]:
        meta = add_roi(probe.data, box.label.encode(), box.x, box.y, box.width, box.height)
        if not meta:
            raise RuntimeError("the region of interest cannot be attached")
        if box.confidence is not None:
            # The meta takes ownership of the structure.
            add_param(meta, new_structure(f"detection, confidence=(double){box.confidence}".encode(), None))


def attach_example_detections(_pad, info, detections):
    """Attaches what the vendor's detector would, for the demonstration."""
    buffer = info.get_buffer()
    text = detections(buffer.pts)
    del buffer
    probe = PadProbeInfo.from_address(hash(info))
    probe.data = gst.gst_mini_object_make_writable(probe.data)
    add_custom_meta = gst.gst_buffer_add_custom_meta
    add_custom_meta.argtypes, add_custom_meta.restype = [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_void_p
    get_structure = gst.gst_custom_meta_get_structure
    get_structure.argtypes, get_structure.restype = [ctypes.c_void_p], ctypes.c_void_p
    set_field = gst.gst_structure_set
    set_field.argtypes, set_field.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p], None
    structure = get_structure(add_custom_meta(probe.data, VENDOR_META.encode()))
    g_type_string = 16 << 2
    # The last argument ends the list of fields.
    set_field(structure, b"detections", g_type_string, text.encode(), None)
    return Gst.PadProbeReturn.OK


def main():
    Gst.init(None)
    if not Gst.ElementFactory.find("cudagaussblur"):
        return "GStreamer does not find cudagaussblur: install the plugin or set GST_PLUGIN_PATH to its folder"
    Gst.Meta.register_custom(VENDOR_META, [], None, None)
    # Five frames with a box that moves beyond the right edge, and five in which the vendor found nothing.
    places = [(56 * frame, 40, 64, 48) for frame in range(5)] + [None] * 5
    width, height = 256, 128
    pipeline = Gst.parse_launch(
        f"videotestsrc num-buffers={len(places)} pattern=snow ! "
        f"video/x-raw,format=GRAY8,width={width},height={height},framerate=10/1 ! identity name=vendor ! "
        "cudagaussblur name=cover region-mode=inside cover=fill expand=0 hold-time=0 ! appsink name=frames sync=false"
    )

    def detections(pts):
        place = places[round(pts * 10 / Gst.SECOND)]
        return f"face 0.8 {' '.join(map(str, place))}\n" if place else ""

    vendor, cover = pipeline.get_by_name("vendor"), pipeline.get_by_name("cover")
    vendor.get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, attach_example_detections, detections)
    cover.get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, translate, example_boxes)
    frames = pipeline.get_by_name("frames")
    pipeline.set_state(Gst.State.PLAYING)
    try:
        for index, place in enumerate(places):
            sample = frames.emit("try-pull-sample", 30 * Gst.SECOND)
            if sample is None:
                return f"the pipeline gave only {index} of {len(places)} frames"
            pixels = sample.get_buffer().extract_dup(0, width * height)
            # Black only in the box: snow has all values.
            left, top, wide, tall = place or (0, 0, 0, 0)
            for y in range(height):
                row = pixels[y * width : (y + 1) * width]
                inside = row[left : left + wide] if top <= y < top + tall else b""
                if any(inside):
                    return f"frame {index}: row {y} of the box is not covered"
                if len(set(row)) < 20 and len(inside) < width - 20:
                    return f"frame {index}: row {y} is covered beyond the box"
    finally:
        pipeline.set_state(Gst.State.NULL)
    print(f"{len(places)} frames, {sum(place is not None for place in places)} boxes translated, all covered")


if __name__ == "__main__":
    sys.exit(main())
