# SPDX-License-Identifier: MPL-2.0
"""The GStreamer element centerface: finds faces with CenterFace (MIT), run by ONNX Runtime, and attaches them as regions of
interest with the label `face`.

    scripts/models && cargo build --release && GST_PLUGIN_PATH=target/release:examples gst-launch-1.0 v4l2src ! videoconvert !
        centerface every=5 ! cudagaussblur region-mode=inside cover=mosaic ! videoconvert ! autovideosink

It finds faces from about a fortieth of the picture's longer side on, also turned, dark and partly hidden ones.
"""

import math
import os
import re

import analyzer
from analyzer import GObject, Gst, numpy


# Cells that are looked at, the most certain first. Those of one face are a few.
MOST = 2000


class CenterFace(analyzer.Analyzer):
    __gstmetadata__ = ("CenterFace", "Analyzer/Video", "Finds faces and attaches them as regions of interest",
                       "the authors of cudagaussblur")
    __gsttemplates__ = analyzer.TEMPLATES
    MODEL = "centerface.onnx"

    # cudagaussblur covers what it has seen once for 0.3 seconds.
    LONGEST = Gst.SECOND // 4

    every = GObject.Property(type=int, minimum=1, maximum=1000, default=5, nick="Every",
                             blurb="Search one frame in so many, and four a second at least; cudagaussblur covers faces in between")
    threshold = GObject.Property(type=float, minimum=0, maximum=1, default=0.2, nick="Threshold",
                                 blurb="Least confidence of a face")
    size = GObject.Property(type=int, minimum=64, maximum=4096, default=640, nick="Size",
                            blurb="Longer side of the picture that is searched, in pixels: twice finds faces of half the size "
                                  "and takes four times as long")

    def open(self, path, threads):
        onnxruntime = analyzer.load("onnxruntime")
        onnxruntime.set_default_logger_severity(3)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or min(os.cpu_count() or 1, 4)
        # The file has its inputs and outputs for a batch of ten pictures of 32x32. Replaces those sizes in its description by
        # unknown ones, of the same length: a tensor of floats with four dimensions, of which the second is known.
        sizes = re.compile(rb"(\x0a\x14\x08\x01\x12\x10\x0a\x02)\x08\x0a(\x0a\x02\x08.\x0a\x02)\x08.(\x0a\x02)\x08.", re.DOTALL)
        network = sizes.sub(lambda size: b"\x12\x00".join((*size.groups(), b"")), path.read_bytes())
        self.network = onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])
        self.input = self.network.get_inputs()[0].name

    def analyze(self, buffer):
        full = self.info.width, self.info.height
        faces = self.find(self.picture(buffer, *self.searched(full)), full)
        for left, top, right, bottom, confidence in faces:
            analyzer.attach(buffer, "face", (math.floor(left), math.floor(top), math.ceil(right), math.ceil(bottom)), confidence)
        if not faces:
            analyzer.attach_nothing(buffer)

    def searched(self, full):
        """Width and height of the picture that is searched: multiples of 32, as the network takes them."""
        scale = min(1, self.size / max(full))
        return tuple(math.ceil(side * scale / 32) * 32 for side in full)

    def find(self, picture, full):
        """The faces of a frame of this width and height, in its pixels: left, top, right, bottom and confidence. The picture of it
        that is searched is an array [height, width, 3] of red, green and blue bytes."""
        (height, width), picture = picture.shape[:2], picture.astype(numpy.float32).transpose(2, 0, 1)[None]
        heat, sizes, offsets, _ = self.network.run(None, {self.input: picture})
        heat, sizes, offsets = heat[0, 0], sizes[0], offsets[0]
        rows, columns = numpy.nonzero(heat > self.threshold)
        analyzer.finite(heat, sizes[:, rows, columns], offsets[:, rows, columns])
        # A cell has 4x4 pixels.
        half = numpy.exp(sizes[:, rows, columns]) * 2
        centre = (numpy.stack([rows, columns]) + offsets[:, rows, columns] + 0.5) * 4
        limits = numpy.array([[height], [width]])
        boxes = numpy.vstack([(centre - half).clip(0, limits)[::-1], (centre + half).clip(0, limits)[::-1], heat[None, rows, columns]])
        boxes[:4] *= numpy.array([full[0] / width, full[1] / height] * 2)[:, None]
        return distinct(boxes.T[numpy.argsort(-boxes[4])[:MOST]])


def distinct(boxes):
    """The boxes without those of which a stronger one has much: boxes of one face."""
    kept = []
    for box in boxes.tolist():
        if box[2] - box[0] >= 1 and box[3] - box[1] >= 1 and all(overlap(box, other) < 0.3 for other in kept):
            kept.append(box)
    return kept


def overlap(a, b):
    """The intersection of two boxes as a share of the smaller one."""
    common = max(min(a[2], b[2]) - max(a[0], b[0]), 0) * max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    return common / min((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))


GObject.type_register(CenterFace)
__gstelementfactory__ = ("centerface", Gst.Rank.NONE, CenterFace)
