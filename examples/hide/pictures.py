# SPDX-License-Identifier: MPL-2.0
"""Pictures of the covered objects of a result."""

import base64
from typing import NamedTuple

from gi.repository import Gst, GstVideo

# The sides of a part of a frame have CONTEXT times the length of the object's longer side, but at least SIDE pixels. If this
# exceeds MOST_SIDE, the part has only every second sample or fewer.
CONTEXT, SIDE, MOST_SIDE = 1.8, 96, 360


class Crop(NamedTuple):
    """A part of a frame."""

    caps: str
    planes: bytes
    # The place of the object in the part: left, top, width and height as shares of the part.
    box: list


def crop(buffer, info, box):
    """Returns the part of a frame around a box. The format is I420, NV12, I420_10LE, P010_10LE or RGB."""
    meta, format = GstVideo.buffer_get_video_meta(buffer), info.finfo
    offsets, strides = (meta.offset, meta.stride) if meta else (info.offset, info.stride)
    side = max(SIDE, round(CONTEXT * max(box[2:])))
    # RGB is used only for plates, which are small, so no samples are left out.
    step = 1 if format.n_planes == 1 else -(-side // MOST_SIDE)
    corner, size = [], []
    for begin, length, whole in zip(box[:2], box[2:], (info.width, info.height)):
        corner.append(max(0, min(begin + (length - side) // 2, whole - side)) // 2 * 2)
        # The number of remaining samples is even.
        size.append(max(1, min(side, whole - corner[-1]) // step // 2) * 2)
    planes = []
    for plane in range(format.n_planes):
        left, top, width, height = (value if plane == 0 else value // 2 for value in (*corner, *size))
        stride, pixel = strides[plane], format.pixel_stride[plane]
        rows = memoryview(buffer.extract_dup(offsets[plane] + top * stride, ((height - 1) * step + 1) * stride))
        for row in range(height):
            part = rows[row * step * stride + left * pixel:][:((width - 1) * step + 1) * pixel]
            part = part.tobytes() if step == 1 else part.cast(" BH I"[pixel])[::step].tobytes()
            # GStreamer's rows have a multiple of four bytes.
            planes.append(part + bytes(-len(part) % 4))
    share = [round((value - begin) / (length * step), 4) for value, begin, length in zip(box, corner + [0, 0], size * 2)]
    caps = f"video/x-raw,format={format.name},width={size[0]},height={size[1]},framerate=0/1"
    return Crop(caps, b"".join(planes), share)


def jpegs(crops):
    """Yields parts of frames as JPEGs in base64."""
    pipeline = Gst.parse_launch("appsrc name=crops format=time max-buffers=2 block=true ! videoconvert ! jpegenc quality=80 ! "
                                "appsink name=pictures sync=false")
    source, sink = pipeline.get_by_name("crops"), pipeline.get_by_name("pictures")
    pipeline.set_state(Gst.State.PLAYING)
    try:
        for one in crops:
            source.emit("push-sample", Gst.Sample.new(Gst.Buffer.new_wrapped(one.planes), Gst.Caps(one.caps), None, None))
            buffer = sink.emit("try-pull-sample", 10 * Gst.SECOND).get_buffer()
            yield base64.b64encode(buffer.extract_dup(0, buffer.get_size())).decode()
    finally:
        pipeline.set_state(Gst.State.NULL)
