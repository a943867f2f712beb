# SPDX-License-Identifier: MPL-2.0
"""The command line."""

import argparse
import math

from .jobs import JOBS


def parse_arguments():
    parser = argparse.ArgumentParser(
        usage="%(prog)s [-h] [OPTIONS] FILE|FOLDER...", add_help=False,
        description="Covers faces, plates, people, backgrounds or all of the pictures of videos.\nInputs are never changed. "
                    "Started again, it skips the videos that are done.\nreport.html in DIR shows the seconds to look at before you "
                    "publish.",
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=21, width=80))
    parser.add_argument("inputs", nargs="+", metavar="FILE|FOLDER", help="videos, and folders to search for videos")
    parser.add_argument("-h", "--help", action="help", help="show this text")
    parser.add_argument("-o", "--out", metavar="DIR", default="covered", help="folder of the results; default: covered")
    parser.add_argument("--hide", choices=JOBS, default="faces", metavar="WHAT",
                        help="faces, plates, people, background, everything")
    parser.add_argument("--cover", choices=("blur", "mosaic", "fill"), metavar="HOW",
                        help="blur, mosaic (faces, people) or fill (plates)")
    parser.add_argument("--sigma", type=number(0, 1024), metavar="N", help="blur, in pixels; default: 20, faces by size")
    parser.add_argument("--kernel-size", type=int, default=0, metavar="N", help="taps of the blur, odd; 0: by sigma")
    parser.add_argument("--every", type=int, metavar="N", help="search one frame in N; default: 4 for faces, else 1")
    parser.add_argument("--threshold", type=number(0, 1), metavar="T", help="least certainty; default: 0.3 for faces, else 0.25")
    parser.add_argument("--search-size", type=int, metavar="N",
                        help="search in N pixels; default: 640; more: small faces")
    parser.add_argument("--size", type=size, metavar="WxH", help="scale down to fit into this, such as 1280x720")
    parser.add_argument("--force", action="store_true", help="make and replace results that are done")
    parser.add_argument("--no-sound", action="store_true", help="leave the sound out")
    parser.add_argument("--backend", choices=("auto", "cuda", "cpu"), default="auto", metavar="B",
                        help="of the cover: auto, cuda or cpu")
    arguments = parser.parse_args()
    if arguments.every is not None and not 1 <= arguments.every <= 1000:
        parser.error("--every takes a number from 1 to 1000")
    if arguments.search_size is not None and not 64 <= arguments.search_size <= 4096:
        parser.error("--search-size takes a number from 64 to 4096")
    if arguments.kernel_size and not (arguments.kernel_size % 2 and 0 < arguments.kernel_size <= 801):
        parser.error("--kernel-size takes 0 or an odd number up to 801")
    return arguments


def number(low, high):
    def parse(text):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {low} to {high}")
        return value
    return parse


def size(text):
    sides = text.split("x")
    if len(sides) != 2 or not all(side.isdecimal() and 16 <= int(side) <= 32766 for side in sides):
        raise argparse.ArgumentTypeError(f"{text} is not a width and a height from 16 up, such as 1280x720")
    return [int(side) for side in sides]
