# SPDX-License-Identifier: MPL-2.0
"""An independent reference: compares raw frames before and after the element with SciPy's Gaussian in float64.

It has its own description of the formats. The argument is a file with one frame per line: format, width, height, sigma,
stride:offset of every plane (separated by commas), file with the input frame, file with the output frame. For each line it
prints the largest distance in LSB of the format's depth.
"""
import sys

import numpy
from scipy.ndimage import gaussian_filter1d

# Components: plane, byte offset, bytes from one sample to the next, sample type, unused low bits, bits of the value,
# picture pixels per sample across and down.
FORMATS = {
    "GRAY8": [(0, 0, 1, "u1", 0, 8, 1, 1)],
    "RGB": [(0, c, 3, "u1", 0, 8, 1, 1) for c in range(3)],
    "NV12": [(0, 0, 1, "u1", 0, 8, 1, 1), (1, 0, 2, "u1", 0, 8, 2, 2), (1, 1, 2, "u1", 0, 8, 2, 2)],
    "I420": [(0, 0, 1, "u1", 0, 8, 1, 1), (1, 0, 1, "u1", 0, 8, 2, 2), (2, 0, 1, "u1", 0, 8, 2, 2)],
    "YUY2": [(0, 0, 2, "u1", 0, 8, 1, 1), (0, 1, 4, "u1", 0, 8, 2, 1), (0, 3, 4, "u1", 0, 8, 2, 1)],
    "P010_10LE": [(0, 0, 2, "<u2", 6, 10, 1, 1), (1, 0, 4, "<u2", 6, 10, 2, 2), (1, 2, 4, "<u2", 6, 10, 2, 2)],
    "I422_10LE": [(0, 0, 2, "<u2", 0, 10, 1, 1), (1, 0, 2, "<u2", 0, 10, 2, 1), (2, 0, 2, "<u2", 0, 10, 2, 1)],
    "RGB10A2_LE": [(0, 0, 4, "<u4", 10 * c, 2 if c == 3 else 10, 1, 1) for c in range(4)],
    "GRAY16_LE": [(0, 0, 2, "<u2", 0, 16, 1, 1)],
    "RGBA64_LE": [(0, 2 * c, 8, "<u2", 0, 16, 1, 1) for c in range(4)],
}


def component(data, planes, width, height, description):
    plane, offset, step, kind, low, depth, across, down = description
    stride, start = planes[plane]
    columns, rows = -(-width // across), -(-height // down)
    size = numpy.dtype(kind).itemsize
    samples = [numpy.ndarray(columns, kind, data, start + y * stride + offset, step) for y in range(rows)]
    assert step >= size
    return (numpy.array(samples) >> low) & ((1 << depth) - 1)


def distance(line):
    name, width, height, sigma, planes, before, after = line.split()
    width, height, sigma = int(width), int(height), float(sigma)
    planes = [tuple(map(int, plane.split(":"))) for plane in planes.split(",")]
    before, after = (open(path, "rb").read() for path in (before, after))
    worst = 0.0
    for description in FORMATS[name]:
        source = component(before, planes, width, height, description).astype(numpy.float64)
        *_, across, down = description
        # 12 sigma are far enough out that the omitted weights are negligible, as in the oracle's Gaussian.
        blurred = gaussian_filter1d(source, sigma / across, axis=1, mode="nearest", truncate=12)
        blurred = gaussian_filter1d(blurred, sigma / down, axis=0, mode="nearest", truncate=12)
        worst = max(worst, numpy.abs(component(after, planes, width, height, description) - blurred).max())
    return worst


with open(sys.argv[1]) as requests:
    for line in requests:
        print(f"{distance(line):.4f}")
