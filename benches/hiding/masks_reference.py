# SPDX-License-Identifier: MPL-2.0
"""Reference of soft covers: the weights of a cover over boxes, ellipses and masks, in NumPy.

A cover is out = (w * cover + (255 - w) * source + 127) / 255 with an 8-bit weight w for each luma sample. Weights are made
at the nodes of a grid of g x g luma samples and sampled bilinearly in integers. Soft edges lie on the side that is shown,
so that no covered sample is weakened: what is covered errs outwards, what is shown errs inwards.

The argument is a file of cases such as tests/data/soft_covers.txt, which describes them. It is printed with its weights made
anew.
"""
import itertools
import math
import sys

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def cell(width, height):
    """Luma samples between two nodes: the smallest power of two with at most 512 cells along either axis."""
    g = 1
    while max(width, height) > 512 * g:
        g *= 2
    return g


def nodes(length, g):
    """Nodes along an axis: at the luma samples 0, g, 2g, ...; the last is at or beyond the picture's last sample."""
    return -(-(length - 1) // g) + 1


# Objects at the nodes: 0 to 255, 255 is the object, 128 and more is inside. Both what is covered and what is shown are made
# from the object, with `covers` set or not.

def whole(area, covers):
    """The box in whole samples (x, y, width, height), rounded outwards where it is covered; None if nothing is left."""
    left, top, right, bottom = area
    low, high = (math.floor, math.ceil) if covers else (math.ceil, math.floor)
    x, y, w, h = low(left), low(top), high(right) - low(left), high(bottom) - low(top)
    return (x, y, w, h) if left < right and top < bottom and w > 0 and h > 0 else None


def pooled(mask, across, down, largest):
    """The mask at 1/across and 1/down of its size, by the largest or smallest sample: no node may miss a thin part."""
    rows, columns = -(-mask.shape[0] // down), -(-mask.shape[1] // across)
    padded = np.pad(mask, [(0, rows * down - mask.shape[0]), (0, columns * across - mask.shape[1])], mode="edge")
    blocks = padded.reshape(rows, down, columns, across)
    return blocks.max((1, 3)) if largest else blocks.min((1, 3))


def lumas(side, g, margin):
    """The luma samples of the nodes along an axis, with `margin` nodes more on each side."""
    return g * np.arange(-margin, nodes(side, g) + margin)


def from_mask(mask, rect, size, g, margin, goes_on, covers):
    """A mask of 8-bit samples stretched over a rectangle, bilinear. A mask finer than the grid is pooled first. Where it is
    covered, each sample's neighbours count as object too, so that the whole of the sample does; where it is shown, and the
    pooled mask is still finer than the grid along an axis, neighbours along it of what is not the object count as that. Beyond the rectangle there is
    no object, but for the nodes next to it where it is covered. Where it is shown, a node whose nearest sample is not the object
    is not, whatever the samples around it are, nodes beside one that is not the object are not either, so that nothing between
    them is shown, and the picture's last node stands for its last sample. Beyond an edge of the picture at which the rectangle ends
    the object goes on if it `goes_on`, as at that edge. Positions in 1/256 of a sample of the pooled mask, rounded down."""
    x, y, w, h = rect
    rows, columns = mask.shape
    across, down = (max(1, g * n // length) for n, length in ((columns, w), (rows, h)))
    mask = pooled(mask, across, down, covers)
    if covers:
        mask = widest(mask, 1, True)
    else:
        for axis, is_finer in ((0, g * rows > h * down), (1, g * columns > w * across)):
            mask = windows(mask, 1, axis).min(-1) if is_finer else mask

    def positions(side, begin, length, samples, pool, pooled_samples):
        at, around = lumas(side, g, margin), g - 1 if covers else 0
        at = at if covers else np.where((at >= side - 1) & (at < side - 1 + g), side - 1, at)
        is_inside = (at >= begin - around) | (goes_on and begin == 0)
        is_inside &= (at < begin + length + around) | (goes_on and begin + length == side)
        p = (2 * (at - begin) + 1) * samples * 256 // (2 * length * pool) - 128     # of pixel centres
        return is_inside, np.clip(p, 0, (pooled_samples - 1) * 256)

    in_x, px = positions(size[0], x, w, columns, across, mask.shape[1])
    in_y, py = positions(size[1], y, h, rows, down, mask.shape[0])
    x0, fx, y0, fy = px >> 8, px & 255, py >> 8, py & 255
    x1, y1 = np.minimum(x0 + 1, mask.shape[1] - 1), np.minimum(y0 + 1, mask.shape[0] - 1)
    top = mask[np.ix_(y0, x0)] * (256 - fx) + mask[np.ix_(y0, x1)] * fx
    bottom = mask[np.ix_(y1, x0)] * (256 - fx) + mask[np.ix_(y1, x1)] * fx
    v = (top * (256 - fy)[:, None] + bottom * fy[:, None] + (1 << 15)) >> 16
    v = v * (in_x[None, :] & in_y[:, None])
    if not covers:
        v = np.where(mask[np.ix_((py + 128) >> 8, (px + 128) >> 8)] >= 128, v, 0)
    return v if covers or g == 1 else widest(v, 1, False)


def from_ellipse(rect, size, g, margin, covers):
    """The ellipse inscribed in a rectangle: 255 at the nodes whose square of one cell on each side meets it (`covers`), or
    lies within it."""
    def distances(side, begin, length):
        centre_away = abs(2 * lumas(side, g, margin) - 2 * begin - length + 1)
        return (np.maximum(centre_away - 2 * g, 0) if covers else centre_away + 2 * g) / length

    dx, dy = distances(size[0], rect[0], rect[2]), distances(size[1], rect[1], rect[3])
    return np.where(dx[None, :] ** 2 + dy[:, None] ** 2 <= 1, 255, 0)


def mask_of(one):
    """The samples of an object's mask; a box is a mask of one sample."""
    if one["shape"] == "box":
        return np.full((1, 1), 255)
    samples = np.frombuffer(bytes.fromhex(one["samples"]), np.uint8)
    return samples.astype(np.int64).reshape(one["rows"], one["columns"])


def at_nodes(one, size, g, margin, covers):
    """An object at the nodes, with `margin` more of them on each side of the picture; None if nothing of it counts. A mask that
    ends at an edge of the picture has been cut off there; boxes and ellipses end where they say."""
    rect = whole(one["area"], covers)
    if rect is None:
        return None
    if one["shape"] == "ellipse":
        return from_ellipse(rect, size, g, margin, covers)
    return from_mask(mask_of(one), rect, size, g, margin, one["shape"] == "mask", covers)


# Weights at the nodes.

def windows(v, radius, axis):
    """The nodes at most `radius` away along an axis, of each node. Beyond the grid the edge repeats."""
    padded = np.pad(v, [(radius, radius) if axis == other else (0, 0) for other in (0, 1)], mode="edge")
    return sliding_window_view(padded, 2 * radius + 1, axis)


def widest(v, radius, largest):
    """The largest (smallest) of the nodes at most `radius` away along either axis."""
    for axis in (0, 1):
        v = windows(v, radius, axis).max(-1) if largest else windows(v, radius, axis).min(-1)
    return v


def box(v, radius):
    """Mean over (2 radius + 1)^2 nodes, rows before columns, halves up."""
    for axis in (1, 0):
        v = (windows(v, radius, axis).sum(-1) + radius) // (2 * radius + 1)
    return v


def grown(v, grow, g, covers):
    """Rounded so that a cover is no smaller than asked."""
    if covers:
        return widest(v, -(-grow // g), True) if grow >= 0 else widest(v, -grow // g, False)
    return widest(v, grow // g, True) if grow >= 0 else widest(v, -(grow // g), False)


def cropped(v, margin):
    return v[margin : v.shape[0] - margin, margin : v.shape[1] - margin]


def covering(v, grow, feather, g, margin):
    """Weights of the cover over an object made with `covers`. The object is covered wholly, and one cell beyond."""
    w = cropped(grown(widest(np.minimum(255, 2 * v), 1, True), grow, g, True), margin)
    f = -(-feather // g)
    return box(widest(w, f, True), f)


def showing(v, grow, feather, g, margin):
    """How much an object made without `covers` is shown; the cover's weight is 255 less this."""
    s = cropped(grown(np.maximum(0, 2 * v - 255), grow, g, False), margin)
    f = -(-feather // g)
    return box(widest(s, f, False), f)


def guard(one, sigma):
    """Luma samples beyond an object that the background's blur leaves out too, because masks are a little too small: a sample
    of the mask beside the one that `covers` adds, but no more than sigma."""
    if one["shape"] != "mask":
        return 0
    _, _, w, h = whole(one["area"], True)
    return min(max(-(-w // one["columns"]), -(-h // one["rows"])), int(sigma))


def largest(grids, shape):
    """The largest of each node; 0 without any."""
    return np.max([np.zeros(shape, np.int64), *grids], axis=0)


def sampled(v, width, y, g):
    """Weights of the luma samples of row y: bilinear between the nodes, halves up."""
    x = np.arange(width)
    x0, fx, y0, fy = x // g, x % g, y // g, y % g
    x1, y1 = np.minimum(x0 + 1, v.shape[1] - 1), min(y0 + 1, v.shape[0] - 1)
    top = v[y0, x0] * (g - fx) + v[y0, x1] * fx
    bottom = v[y1, x0] * (g - fx) + v[y1, x1] * fx
    return (top * (g - fy) + bottom * fy + g * g // 2) // (g * g)


def weights(case):
    """The cell, and the nodes of `inside`, `outside` and `excluded`."""
    size = case["width"], case["height"]
    g = cell(*size)
    # Objects that are covered grow into the picture from beyond it; objects that are shown shrink from where they end there.
    margins = [-(-abs(grow) // g) for grow in (max(0, case["grow"]), min(0, case["grow"]))]

    def all_at_nodes(margin, covers):
        return [(one, v) for one in case["objects"] if (v := at_nodes(one, size, g, margin, covers)) is not None]

    def union(grids, margin):
        return largest(grids, [nodes(side, g) + 2 * margin for side in reversed(size)])

    around, shown = ([v for _, v in all_at_nodes(margin, covers)] for margin, covers in zip(margins, (True, False)))
    guarded = [
        widest(np.minimum(255, 2 * v), -(-guard(one, case["sigma"]) // g), True) for one, v in all_at_nodes(0, True)
    ]
    return g, (
        covering(union(around, margins[0]), case["grow"], case["feather"], g, margins[0]),
        255 - showing(union(shown, margins[1]), case["grow"], case["feather"], g, margins[1]),
        union(guarded, 0),
    )


def runs(values):
    return ((value, len(list(run))) for value, run in itertools.groupby(values))


def text(row):
    return " ".join(f"{value:02x}" + (f"*{count}" if count > 1 else "") for value, count in runs(row))


def parsed(lines):
    """A case: what the first line and those of its objects say."""
    numbers = [float(number) for number in lines[0].split()[1::2]]
    case = dict(zip(("width", "height", "grow", "feather"), map(int, numbers)), sigma=numbers[4], objects=[])
    for shape, *area in map(str.split, lines[1:]):
        one = {"shape": shape, "area": [float(edge) for edge in area[:4]]}
        if shape == "mask":
            one |= {"columns": int(area[4]), "rows": int(area[5]), "samples": "".join(area[6:])}
        case["objects"].append(one)
    return case


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        comment, *cases = file.read().split("\n\n")
    print(comment)
    for case in cases:
        lines = [line for line in case.splitlines() if line.split()[0] in ("width", "box", "ellipse", "mask")]
        print("\n" + "\n".join(lines))
        case = parsed(lines)
        g, kinds = weights(case)
        for name, v in zip(("inside", "outside", "excluded"), kinds):
            assert v.min() >= 0 and v.max() <= 255
            middle = sampled(v, case["width"], case["height"] // 2, g)
            rows = (f"{count}x {row}" for row, count in runs(map(text, v)))
            print(f"{name} {g}: " + " / ".join(rows) + " = " + text(middle))
