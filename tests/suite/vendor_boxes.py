# SPDX-License-Identifier: MPL-2.0
"""Boxes and masks of vendors are pixels and samples (examples/vendor_metas.py). The vendors' own bindings are not installed; the
objects here have the same attributes. `vendor_boxes.py EXAMPLES`"""
import sys
from types import SimpleNamespace as Object

sys.path.insert(0, sys.argv[1])
import vendor_metas as vendor

RECT = Object(left=1.5, top=2.0, width=10.0, height=20.25)
NAN = float('nan')


def equal(got, expected):
    assert got == expected, f'{got} instead of {expected}'


def content(mask):
    return mask and (mask.columns, mask.rows, list(mask.samples))


# DeepStream.
def nvidia_mask(columns, rows, values, size=None, threshold=0.25):
    size = 4 * len(values) if size is None else size
    return Object(width=columns, height=rows, size=size, threshold=threshold, get_mask_array=lambda: values)


def nvidia(confidence, mask):
    return vendor.deepstream_box(Object(rect_params=RECT, obj_label='face', confidence=confidence, mask_params=mask))


NO_MASK = nvidia_mask(0, 0, [])
equal(nvidia(0.5, NO_MASK), vendor.Box(label='face', confidence=0.5, x=1.5, y=2.0, width=10.0, height=20.25, mask=None))
equal(nvidia(-0.1, NO_MASK).confidence, None)
equal(content(nvidia(0.5, nvidia_mask(3, 2, [0, 0.2, 0.25, 0.5, -7, NAN])).mask), (3, 2, [0, 102, 128, 255, 0, 255]))
equal(content(nvidia(0.5, nvidia_mask(2, 1, [0.0, 0.1], threshold=0)).mask), (2, 1, [0, 255]))
# Key points: three numbers each, and the size of the network's picture.
equal(nvidia(0.5, nvidia_mask(640, 640, [0.5] * 15)).mask, None)
equal(nvidia(0.5, nvidia_mask(2, 1, [1, 1], size=4)).mask, None)


class Entry:
    """The end of a list raises StopIteration, as in pyds."""

    def __init__(self, *data):
        self.data, self.rest = data[0], data[1:]

    @property
    def next(self):
        if not self.rest:
            raise StopIteration
        return Entry(*self.rest)


cast = Object(cast=lambda data: data)
sys.modules['pyds'] = Object(
    NvDsFrameMeta=cast, NvDsObjectMeta=cast, gst_buffer_get_nvds_batch_meta=lambda address: batch)
face = Object(rect_params=RECT, obj_label='face', confidence=0.5, mask_params=NO_MASK)
for objects, done, count in (Entry(face, face), False, 2), (None, True, 0), (None, False, None):
    batch = Object(frame_meta_list=Entry(Object(obj_meta_list=objects, bInferDone=done)))
    boxes = vendor.deepstream_boxes(None, 640, 480)
    equal(boxes if boxes is None else len(boxes), count)
batch = None
equal(vendor.deepstream_boxes(None, 640, 480), None)

# Hailo.
box = Object(xmin=lambda: 0.25, ymin=lambda: 0.5, width=lambda: 0.125, height=lambda: 0.25)
masks = [Object(get_width=lambda: 2, get_height=lambda: 1, get_data=lambda: [0.25, 1.0])]
hailo = Object(get_bbox=lambda: box, get_label=lambda: 'car', get_confidence=lambda: 0.75)
hailo.get_objects_typed = lambda type: masks if type == 8 else []
mask = vendor.Mask(columns=2, rows=1, samples=b'@\xff')
equal(vendor.hailo_box(hailo, 640, 480, 8),
      vendor.Box(label='car', confidence=0.75, x=160.0, y=240.0, width=80.0, height=120.0, mask=mask))
equal(vendor.hailo_box(hailo, 640, 480, 9).mask, None)

# DL Streamer.
tensor = Object(format=lambda: 'segmentation_mask', dims=lambda: [1, 2], data=lambda: [0.0, 0.5])
other = Object(format=lambda: None)
equal(vendor.dlstreamer_mask(Object(tensors=lambda: [other, tensor])), vendor.Mask(columns=1, rows=2, samples=b'\x00\x80'))
equal(vendor.dlstreamer_mask(Object(tensors=list)), None)

# Boxes are rounded outwards and clipped to the picture, with the part of their mask (of 4 by 2) that is left.
for place, expected in (
        ((1.5, 2, 10, 20.25), (1, 2, 11, 21)),
        ((-5, -5, 8, 8), (0, 0, 3, 3)),
        ((630, 470, 99, 99), (630, 470, 10, 10)),
        ((30, 30, -10, -10), (20, 20, 10, 10)),
        ((NAN, 0, 1, 1), (0, 0, 640, 1)),
        ((700, 0, 5, 5), (640, 0, 0, 5))):
    equal(tuple(vendor.rounded(vendor.Box('a', None, *place), 640, 480)[2:6]), expected)
for place, expected in (
        ((-4, 0, 8, 2), (2, 2, [3, 4, 7, 8])),
        ((0.5, 0, 4, 2), (5, 2, [1, 2, 3, 4, 4, 5, 6, 7, 8, 8])),
        ((638, 479, 4, 2), (2, 1, [1, 2])),
        ((8, 2, -8, -2), (4, 2, [1, 2, 3, 4, 5, 6, 7, 8])),
        ((0, 0, 0, 5), None),
        ((NAN, 0, 1, 1), None),
        ((700, 0, 5, 5), None)):
    mask = vendor.Mask(4, 2, bytes(range(1, 9)))
    equal(content(vendor.rounded(vendor.Box('a', None, *place, mask), 640, 480).mask), expected)
