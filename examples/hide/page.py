# SPDX-License-Identifier: MPL-2.0
"""The page about all results, and the index of the review pages."""

import html
import os
import urllib.parse

from gi.repository import Gst

from .terminal import count, printable

STYLE = """\
body { font: 16px/1.4 sans-serif; max-width: 64em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: .3em .8em .3em 0;
border-bottom: 1px solid #ccc; overflow-wrap: anywhere } .number { text-align: right; white-space: nowrap }
.look { color: #a00; font-weight: bold } section { break-inside: avoid-page }
@media print { body { margin: 0; max-width: none } a { color: inherit } }
"""
# Marks pages of this program, which it may replace.
GENERATOR = '<meta name="generator" content="cudagaussblur hide.py">'
EXPLANATION = """\
<p>Before you publish, watch every video in full: an object that was never detected is visible, and is not listed here.</p>
"""
DOUBTS = """\
<p>At the times below a face or plate may be visible. The CSV files have the same times, with boxes.</p>
"""
PRIVATE = """\
<p class="look">These pages show what the results hide. Do not pass this folder on, and delete it when the results are published:
<code>COMMAND</code>.</p>
"""


def document(title, body):
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">{GENERATOR}\n'
            f"<title>{title}</title><style>\n{STYLE}</style></head><body>\n<h1>{title}</h1>\n{body}</body></html>\n")


def index_of_pages(pages, command):
    """Returns the page with links to the review pages, from their paths and index entries, and with the command that deletes
    them."""
    rows = [f'<tr><td>{link(path, printable(entry["result"]))}</td><td class="number">{entry["objects"]}</td>'
            f'<td class="number">{len(entry["doubts"])}</td><td>{"corrected" if entry["corrections"] else ""}</td></tr>'
            for path, entry in pages]
    return document("Review", PRIVATE.replace("COMMAND", html.escape(printable(command))) + '<table><thead><tr><th>video</th><th class="number">objects found</th><th class="number">doubts'
                    "</th><th></th></tr></thead><tbody>\n" + "\n".join(rows) + "\n</tbody></table>\n")


def link(path, label, fragment=""):
    return f'<a href="{urllib.parse.quote(os.fsencode(path))}{fragment}">{html.escape(label)}</a>'


def page(entries):
    """Returns the page about all results, from their index entries."""
    done = [entry for entry in entries if not entry["failure"]]
    empty, failed = sum(map(is_empty, done)), len(entries) - len(done)
    doubtful = sum(entry["doubtful"] for entry in done)
    rows, sections = [], []
    for number, entry in enumerate(entries):
        name = printable(entry["result"])
        if entry["failure"]:
            rows.append(f'<tr><td>{html.escape(printable(entry["input"]))}</td><td colspan="5" class="look">failed: '
                        f'{html.escape(entry["failure"])}</td></tr>')
            continue
        remarks = [f'<span class="look">{html.escape(note)}</span>' for note in entry["notes"]]
        if is_empty(entry):
            remarks.insert(0, '<span class="look">nothing was found: look at it</span>')
        if entry["doubts"]:
            remarks.append(f'<a href="#doubts-{number}">{count(len(entry["doubts"]), "doubt")}</a>')
            sections.append(f'<section id="doubts-{number}"><h2>{link(entry["result"], name)}</h2>\n'
                            + "<ul>" + "\n".join(doubt_line(entry["result"], doubt) for doubt in entry["doubts"]) + "</ul></section>\n")
        found = "" if entry["objects"] is None else entry["objects"]
        cells = entry["frames"], f'{entry["seconds"]:.1f} s', found, f'{entry["doubtful"]:.1f} s' if entry["doubtful"] else ""
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        source = os.path.basename(entry["input"])
        is_clear = os.path.splitext(source)[0] == os.path.splitext(os.path.basename(entry["result"]))[0]
        of = "" if is_clear else f", of {html.escape(printable(source))}"
        rows.append(f'<tr><td>{link(entry["result"], name)}{of}</td>{numbers}<td>{"<br>".join(remarks)}</td></tr>')
    summary = f'{count(len(done), "video")}, {doubtful:.1f} doubtful seconds, nothing found in {empty}, {failed} failed'
    heads = "".join(f'<th{" class=number" if 0 < column < 5 else ""}>{head}</th>' for column, head in enumerate(
        ("video", "frames", "length", "objects found", "doubtful", "remarks")))
    return document("Covered videos", f"<p>{summary}</p>\n{EXPLANATION}{DOUBTS if sections else ''}<table><thead><tr>{heads}</tr></thead>"
                    "<tbody>\n" + "\n".join(rows) + "\n</tbody></table>\n" + "".join(sections))


def is_empty(entry):
    """Whether something was searched and nothing was found."""
    return entry["covered"] == 0 and not entry["corrections"]


def doubt_line(result, doubt):
    place = f"#t={doubt['shown'] / Gst.SECOND:.2f}"
    return f'<li>{html.escape(doubt["sentence"])} ({link(result, "play", place)})</li>'
