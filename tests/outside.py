# SPDX-License-Identifier: MPL-2.0
"""The second oracle, from outside: raw frames before and after the element against SciPy's Gaussian in float64.

Knows the formats by itself. Reads the file it is given, a frame per line: format, width, height, sigma, stride:offset of every
plane joined by commas, the file before, the file after. Prints the largest distance in LSB of the format's depth.
"""
import sys

import numpy
from scipy.ndimage import gaussian_filter1d

# Components: plane, byte offset, bytes from one sample to the next, type, bits to the right of the value, bits of the value,
# picture pixels for a sample across and down.
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
        # Out to 12 sigma, where the weights vanish: the Gaussian itself, as in exactness.rs.
        blurred = gaussian_filter1d(source, sigma / across, axis=1, mode="nearest", truncate=12)
        blurred = gaussian_filter1d(blurred, sigma / down, axis=0, mode="nearest", truncate=12)
        worst = max(worst, numpy.abs(component(after, planes, width, height, description) - blurred).max())
    return worst


with open(sys.argv[1]) as requests:
    for line in requests:
        print(f"{distance(line):.4f}")
