# SPDX-License-Identifier: MPL-2.0
"""An independent reference: SciPy's Gaussian in float64 prints tests/data/gaussian.txt anew, which describes itself."""
import numpy
from scipy.ndimage import gaussian_filter

WIDTH, HEIGHT = 131, 77
COLUMNS, ROWS = [0, 1, 2, 30, 65, 130], [0, 1, 38, 76]

print("""# The Gaussian of a picture by SciPy in float64, which tests/scipy_reference.py printed. Sample (x, y) of the 131x77 picture is
# (7919 x x + 104729 y + 31 x y) mod 65536. A line has sigma and the values in rows 0, 1, 38 and 76, each in columns 0, 1, 2, 30, 65
# and 130. Edges repeat, and 12 sigma are far enough out that the omitted weights are negligible.""")
y, x = numpy.mgrid[:HEIGHT, :WIDTH]
picture = ((7919 * x * x + 104729 * y + 31 * x * y) % 65536).astype(numpy.float64)
for sigma in 0.5, 0.8, 1.5, 3, 5, 20, 100:
    blurred = gaussian_filter(picture, sigma, mode="nearest", truncate=12)
    print(sigma, *(f"{blurred[row, column]:.6f}" for row in ROWS for column in COLUMNS))
