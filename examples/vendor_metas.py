#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""Translates the detections of NVIDIA DeepStream, Hailo or another vendor into GStreamer's own metas in a pad probe.

cudagaussblur reads GstVideoRegionOfInterestMeta and GstAnalyticsRelationMeta. Vendors have their own metas, so a probe on the
sink pad of cudagaussblur attaches a region of interest for each of their detections:

    cover = pipeline.get_by_name("cover")
    cover.get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, translate, deepstream_boxes)

For shape=mask, the region of interest also has a mask: 8-bit samples, stretched over the box. They are in a param `mask` with a
field `sample`, a GstSample with caps video/x-raw,format=GRAY8. A sample of 255 is the object; samples from 128 on count as
inside.

Started as a program, this file shows the translation for a vendor that exists only here, and checks the result. The detections of
this vendor are in a GstCustomMeta. Only this part runs without the vendors' software and hardware. The functions for DeepStream,
Hailo and DL Streamer were written from the vendors' documentation and sources.

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


class Mask(NamedTuple):
    """The shape of an object in its box: rows of samples, stretched over the box. A sample has one byte."""

    columns: int
    rows: int
    samples: bytes


class Box(NamedTuple):
    """A detection, in pixels of the frame. A detection without a confidence counts as certain."""

    label: str
    confidence: Optional[float]
    x: float
    y: float
    width: float
    height: float
    mask: Optional[Mask] = None


def mask_of_floats(columns, rows, values, threshold=0.5):
    """Makes a mask of rows of numbers; numbers from the threshold on are the object. Returns None if there are no numbers, or if
    their number is wrong: parsers of key points put key points in the place of a mask."""
    if not 1 <= columns <= 4096 or not 1 <= rows <= 4096 or len(values) != columns * rows:
        return None
    if threshold <= 0:
        return Mask(columns, rows, bytes(255 * (not value <= threshold) for value in values))
    gain = 127.5 / threshold
    # A value that is not a number might be the object.
    samples = bytes(255 if value != value else round(max(0, min(255, value * gain))) for value in values)
    return Mask(columns, rows, samples)


# Each of the following functions reads the detections of one vendor from a buffer. It returns a list of boxes, which is empty if
# the detector found nothing, or None if no detector has looked at the frame.


def deepstream_boxes(buffer, _width, _height):
    """Reads NVIDIA DeepStream's detections with the Python bindings pyds. Frames must be in host memory, with one frame in each
    buffer, so the probe must be behind nvstreamdemux and nvvideoconvert. The boxes are in pixels of nvstreammux's output, so no
    element between may scale the frames."""
    import pyds

    batch = pyds.gst_buffer_get_nvds_batch_meta(hash(buffer))
    if batch is None:
        return None
    frames = list(nvds_list(batch.frame_meta_list, pyds.NvDsFrameMeta.cast))
    objects = (nvds_list(frame.obj_meta_list, pyds.NvDsObjectMeta.cast) for frame in frames)
    boxes = [deepstream_box(detection) for of_frame in objects for detection in of_frame]
    # Frames are skipped by nvinfer's interval. A tracker may still have boxes for them.
    return boxes if boxes or any(frame.bInferDone for frame in frames) else None


def nvds_list(entry, cast):
    """Yields the entries of one of DeepStream's linked lists."""
    while entry is not None:
        try:
            yield cast(entry.data)
            entry = entry.next
        except StopIteration:
            # pyds raises this at the end of a list.
            return


def deepstream_box(detection):
    """Returns the box of an NvDsObjectMeta. Its confidence is -0.1 if it is unknown."""
    rect = detection.rect_params
    confidence = detection.confidence if detection.confidence >= 0 else None
    place = (rect.left, rect.top, rect.width, rect.height)
    return Box(detection.obj_label, confidence, *place, deepstream_mask(detection.mask_params))


def deepstream_mask(mask):
    """Returns the mask of an NvOSD_MaskParams, which has floats that are stretched over the box. Its size is in bytes; a size of
    0 means that there is no mask."""
    is_mask = mask.size > 0 and mask.size == 4 * mask.width * mask.height
    return mask_of_floats(mask.width, mask.height, mask.get_mask_array(), mask.threshold) if is_mask else None


def hailo_boxes(buffer, width, height):
    """Reads Hailo TAPPAS's detections. They do not distinguish a frame without detections from a frame that no network has seen,
    so the probe must be behind the network and its hailofilter."""
    import hailo

    detections = hailo.get_roi_from_buffer(buffer).get_objects_typed(hailo.HAILO_DETECTION)
    return [hailo_box(detection, width, height, hailo.HAILO_CONF_CLASS_MASK) for detection in detections]


def hailo_box(detection, width, height, mask_type):
    """Returns the box of a HailoDetection, whose positions are fractions of the frame, with its HailoConfClassMask, which has
    floats that are stretched over the box."""
    box = detection.get_bbox()
    place = (box.xmin() * width, box.ymin() * height, box.width() * width, box.height() * height)
    masks = detection.get_objects_typed(mask_type)
    mask = mask_of_floats(masks[0].get_width(), masks[0].get_height(), masks[0].get_data()) if masks else None
    return Box(detection.get_label(), detection.get_confidence(), *place, mask)


def add_dlstreamer_masks(pad, info):
    """A separate probe for Intel DL Streamer, with its Python bindings gstgva. The detections of DL Streamer already are regions
    of interest, and this probe adds masks to them. Set region-sources=roi (and zones): DL Streamer also attaches each detection
    to GstAnalyticsRelationMeta, but without a mask, so the whole box would be covered."""
    try:
        from gstgva import VideoFrame

        make_writable(info)
        for region in VideoFrame(info.get_buffer(), caps=pad.get_current_caps()).regions():
            mask = dlstreamer_mask(region)
            if mask is not None:
                add_mask(ctypes.addressof(region.meta()), mask)
        return Gst.PadProbeReturn.OK
    except Exception as error:
        print(f"a frame is dropped because its masks cannot be translated: {error!r}", file=sys.stderr)
        return Gst.PadProbeReturn.DROP


def dlstreamer_mask(region):
    """Returns the mask of a RegionOfInterest, which has floats that are stretched over the box. Its dimensions are width and
    height."""
    masks = [
        mask_of_floats(*tensor.dims(), tensor.data())
        for tensor in region.tensors()
        if tensor.format() == "segmentation_mask" and len(tensor.dims()) == 2
    ]
    return masks[0] if masks else None


VENDOR_META = "ExampleVendorDetections"


def example_boxes(buffer, _width, _height):
    """Reads the detections of the vendor in this demonstration. They are lines in a GstCustomMeta: label, confidence, x, y,
    width, height and a mask, whose rows consist of digits from 0 to 9."""
    meta = buffer.get_custom_meta(VENDOR_META)
    if meta is None:
        return None
    lines = (line.split() for line in meta.get_structure().get_string("detections").splitlines())
    return [Box(label, *map(float, numbers), example_mask(mask.split("/"))) for label, *numbers, mask in lines]


def example_mask(rows):
    return mask_of_floats(len(rows[0]), len(rows), [int(digit) for row in rows for digit in row], threshold=5)


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
copy_structure = gst.gst_structure_copy
copy_structure.argtypes = [ctypes.c_void_p]
copy_structure.restype = ctypes.c_void_p


def translate(pad, info, read_boxes):
    """The probe. If the detections of a frame cannot be read or attached, the frame is dropped and not passed on uncovered."""
    try:
        # The structure of the caps is not used, because GStreamer 1.26 wraps it.
        video = GstVideo.VideoInfo.new_from_caps(pad.get_current_caps())
        width, height = video.width, video.height
        boxes = read_boxes(info.get_buffer(), width, height)
        # For a frame without any meta, on-missing decides what is covered.
        if boxes is not None:
            attach(info, [rounded(box, width, height) for box in boxes])
        return Gst.PadProbeReturn.OK
    except Exception as error:
        print(f"a frame is dropped because its detections cannot be translated: {error!r}", file=sys.stderr)
        return Gst.PadProbeReturn.DROP


def rounded(box, width, height):
    """Rounds a box outwards to whole pixels inside of the frame, because the numbers of the meta are unsigned. An edge that is
    not a number becomes the edge of the frame. The mask keeps its place in the frame."""
    edges = []
    for start, length, end in (box.x, box.width, width), (box.y, box.height, height):
        low, high = min(start, start + length), max(start, start + length)
        low = 0 if math.isnan(low) else max(0, min(end, math.floor(max(low, 0))))
        high = end if math.isnan(high) else max(0, min(end, math.ceil(min(high, end))))
        edges.append((low, max(0, high - low)))
    (x, wide), (y, tall) = edges
    mask = box.mask
    if mask is not None:
        columns = resampled(mask.columns, (box.x, box.width), (x, wide))
        rows = resampled(mask.rows, (box.y, box.height), (y, tall))
        samples = bytes(mask.samples[row * mask.columns + column] for row in rows for column in columns)
        mask = Mask(len(columns), len(rows), samples) if samples else None
    return box._replace(x=x, y=y, width=wide, height=tall, mask=mask)


def resampled(count, old, new):
    """Maps samples of a new mask to samples of an old one. `old` and `new` are start and length on an axis, and `count` is the
    number of samples over `old`. Returns, for each sample over `new`, the index of the old sample that it shows."""
    (start, length), (new_start, new_length) = old, new
    low, length = min(start, start + length), abs(length)
    if not math.isfinite(low) or not 0 < length < math.inf or new_length == 0:
        return []
    new_count = min(4096, math.ceil(count * new_length / length))
    middles = (new_start + (index + 0.5) * new_length / new_count for index in range(new_count))
    # Parts that rounding has added show the edge.
    return [max(0, min(count - 1, math.floor((middle - low) / length * count))) for middle in middles]


def attach(info, boxes):
    """Attaches a region of interest for each box to the buffer of a probe. A box of size 0 says that the metas of
    the frame were not lost, even if the detector found nothing."""
    buffer = make_writable(info)
    for box in boxes or [Box("nothing", None, 0, 0, 0, 0)]:
        meta = add_roi(buffer, box.label.encode(), box.x, box.y, box.width, box.height)
        if not meta:
            raise RuntimeError("the region of interest cannot be attached")
        if box.confidence is not None:
            # The meta takes ownership of the structure.
            add_param(meta, new_structure(f"detection, confidence=(double){box.confidence}".encode(), None))
        if box.mask is not None:
            add_mask(meta, box.mask)


def add_mask(meta, mask):
    """Adds a mask to the region of interest at the address `meta`."""
    # In a buffer without GstVideoMeta, rows begin at multiples of 4 bytes.
    padding = bytes(-mask.columns % 4)
    rows = (mask.samples[row * mask.columns : (row + 1) * mask.columns] for row in range(mask.rows))
    caps = Gst.Caps.from_string(f"video/x-raw,format=GRAY8,width={mask.columns},height={mask.rows}")
    buffer = Gst.Buffer.new_wrapped(b"".join(row + padding for row in rows))
    structure = Gst.Structure.new_empty("mask")
    structure.set_value("sample", Gst.Sample.new(buffer, caps, None, None))
    add_param(meta, copy_structure(hash(structure)))


def make_writable(info):
    """Makes the buffer of a probe writable and returns its address.

    Python holds a reference to every buffer that it has seen, so a buffer is not writable in Python. This function does what a
    probe in C does: it makes the probe's buffer writable, which may copy the buffer, and stores the result in the probe.
    """
    probe = PadProbeInfo.from_address(hash(info))
    if probe.data != hash(info.get_buffer()):
        raise RuntimeError("this version of PyGObject does not give the address of GstPadProbeInfo")
    probe.data = gst.gst_mini_object_make_writable(probe.data)
    return probe.data


def attach_example_detections(_pad, info, detections):
    """Attaches detections like a vendor's detector, for the demonstration."""
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
    # In five frames a disc moves beyond the right edge, and in five frames the vendor finds nothing. A sample of the disc's mask
    # covers 4×4 pixels.
    places = [(56 * frame, 40, 64, 48) for frame in range(5)] + [None] * 5
    disc = [[9 if math.hypot((x - 7.5) / 8, (y - 5.5) / 6) < 0.8 else 0 for x in range(16)] for y in range(12)]
    width, height = 256, 128
    pipeline = Gst.parse_launch(
        f"videotestsrc num-buffers={len(places)} pattern=snow ! "
        f"video/x-raw,format=GRAY8,width={width},height={height},framerate=10/1 ! identity name=vendor ! "
        "cudagaussblur name=cover region-mode=inside cover=fill shape=mask hold-time=0 ! "
        "appsink name=frames sync=false"
    )

    def detections(pts):
        place = places[round(pts * 10 / Gst.SECOND)]
        mask = "/".join("".join(map(str, row)) for row in disc)
        return f"face 0.8 {' '.join(map(str, place))} {mask}\n" if place else ""

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
            error = check(pixels, width, height, place, disc)
            if error:
                return f"frame {index}: {error}"
    finally:
        pipeline.set_state(Gst.State.NULL)
    print(f"{len(places)} frames, {sum(place is not None for place in places)} masks translated, all covered")


def check(pixels, width, height, place, disc):
    """Returns what is wrong with a frame, or None. The object must be black. At a distance of three samples of the mask, the
    picture must not be black, because snow has all values."""
    left, top, _, _ = place or (width, height, 0, 0)
    objects = [(left + 4 * x, top + 4 * y) for y, row in enumerate(disc) for x, digit in enumerate(row) if digit]
    object_pixels = {(x + i, y + j) for x, y in objects for i in range(4) for j in range(4) if x + i < width}
    near = {(x + i, y + j) for x, y in objects for i in range(-12, 16) for j in range(-12, 16)}
    far = [pixels[y * width + x] for y in range(height) for x in range(width) if (x, y) not in near]
    if place and any(pixels[y * width + x] for x, y in object_pixels):
        return "the object is not covered"
    if far.count(0) > len(far) / 50:
        return "more than the object is covered"
    return None


if __name__ == "__main__":
    sys.exit(main())
