# SPDX-License-Identifier: MPL-2.0
"""The command line, and the functions that it starts."""

import argparse
import math
import os
import signal
import sys
import traceback

from gi.repository import Gst

from .batch import Batch
from .boxes import Attacher
from .folder import EXTENSIONS, INDEX, PAGE, Folder, find_videos, name_results
from .jobs import JOBS, SETTINGS, Setup
from .page import is_empty
from .play import Stuck
from .review import DETECTIONS, Corrections, Review, basis_of, checksum
from .terminal import Interrupted, Refused, Terminal, count, on_signal, printable, signals
from .verify import verify


def main():
    try:
        status = run()
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        sys.exit(f"hide.py has failed, please report it: {type(error).__name__}: {error} ({os.path.basename(last.filename)}, line "
                 f"{last.lineno})")
    return status


def parse_arguments():
    parser = argparse.ArgumentParser(
        usage="%(prog)s [-h] [OPTIONS] FILE|FOLDER...", add_help=False, allow_abbrev=False,
        description="Covers faces, plates, people, backgrounds or everything in videos and folders.\nInputs are never changed. "
                    "Started again, it skips the videos that are done.\nReview the results in DIR-review/index.html before you "
                    "publish them.",
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=22, width=80))
    parser.add_argument("inputs", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("-h", "--help", action="help", help="show this text")
    parser.add_argument("-o", "--out", metavar="DIR", default="covered", help="folder of the results; default: covered")
    parser.add_argument("--hide", choices=JOBS, default="faces", metavar="WHAT",
                        help="faces (default), plates, people, background, everything")
    parser.add_argument("--cover", choices=("blur", "mosaic", "fill"), metavar="HOW",
                        help="blur, mosaic or fill; default: by what is hidden")
    parser.add_argument("--sigma", type=number(1, 1024), metavar="N",
                        help="of a blur, in pixels; default: by the picture's size")
    parser.add_argument("--every", type=number(1, 1000, int), metavar="N",
                        help="search every N-th frame for faces; default: 4")
    parser.add_argument("--threshold", type=number(0, 1), metavar="T",
                        help="least confidence; default: 0.3 for faces, else 0.25")
    parser.add_argument("--search-size", type=number(64, 4096, int), metavar="N",
                        help="search in N pixels; default: 640; more: small faces")
    parser.add_argument("--size", type=width_and_height, metavar="WxH", help="scale down to fit into this, such as 1280x720")
    parser.add_argument("--force", action="store_true", help="make and replace results that are done")
    parser.add_argument("--no-sound", action="store_true", help="leave the sound out")
    parser.add_argument("--backend", choices=("auto", "cuda", "cpu"), default="auto", metavar="B",
                        help="where covers are computed: auto, cuda or cpu")
    parser.add_argument("--corrections", action="append", metavar="FILE", help="cover again by a file that a review page saved")
    parser.add_argument("--verify", action="store_true", help="compare results in DIR with how they were made")
    parser.add_argument("--delete-review", action="store_true", help="delete DIR-review, which shows open faces")
    arguments = parser.parse_args()
    other = next((name for name in ("corrections", "verify", "delete_review") if getattr(arguments, name)), None)
    given = [name for name, value in vars(arguments).items()
             if value != parser.get_default(name) and name not in (other, "out", "backend") and value != []
             and (other, name) not in (("corrections", "cover"), ("corrections", "force"))]
    if other and given:
        more = [", --cover, --force", ". Give --corrections before each file"] if other == "corrections" else ["", ""]
        parser.error(f"--{other.replace('_', '-')} takes no videos, and of the options only --out{more[0]} and --backend{more[1]}")
    if not other and not arguments.inputs:
        parser.error("name a video, or a folder of videos")
    job = JOBS[arguments.hide]
    arguments.chosen = {name: value for name in SETTINGS if (value := getattr(arguments, name)) is not None}
    unused = [name for name in arguments.chosen if name != "sigma" and name not in job]
    if arguments.chosen.get("cover", job.get("cover", "blur")) != "blur" and arguments.sigma:
        unused.append("sigma")
    if unused:
        parser.error(f"--{unused[0].replace('_', '-')} does not apply to --hide {arguments.hide}"
                     + (" without --cover blur" if unused[0] == "sigma" else "") + ": leave it out")
    return arguments


def number(low, high, kind=float):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {low} to {high}")
        return value
    return parse


def width_and_height(text):
    sides = text.split("x")
    if len(sides) != 2 or not all(side.isdecimal() and 16 <= int(side) <= 32766 for side in sides):
        raise argparse.ArgumentTypeError(f"{text} is not a width and a height from 16 up, such as 1280x720")
    return [int(side) for side in sides]


def run():
    """Runs the command. Returns the exit status."""
    arguments = parse_arguments()
    # facedetect opens cascades that distributions do not have. Without this, OpenCV prints errors about them.
    os.environ.setdefault("OPENCV_LOG_LEVEL", "FATAL")
    for stream in filter(None, (sys.stdout, sys.stderr)):
        # A name that the terminal cannot show must not prevent the output.
        stream.reconfigure(errors="backslashreplace")
    terminal = Terminal()
    # GStreamer now looks for its plugins, which may take a while.
    terminal.progress("starting", at_once=True)
    Gst.init(None)
    if not Gst.ElementFactory.find("cudagaussblur"):
        terminal.say("GStreamer does not find cudagaussblur: install the plugin or set GST_PLUGIN_PATH to its folder", True)
        return 1
    for one in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        if signal.getsignal(one) is not signal.SIG_IGN:
            signal.signal(one, on_signal)
    folder, review = None, Review(arguments.out)
    try:
        if arguments.delete_review:
            return delete_review(review, terminal)
        is_made = not arguments.corrections and not arguments.verify
        if not is_made and not os.path.isfile(os.path.join(arguments.out, INDEX)):
            raise Refused(f"{printable(arguments.out)} is no folder of results: name it with --out")
        if not arguments.verify:
            review.check()
        if is_made:
            job, blur = JOBS[arguments.hide], f"backend={arguments.backend}"
            setup = Setup(job, arguments.chosen, blur, arguments.size, not arguments.no_sound)
            options = setup.settings | dict(hide=arguments.hide, size=arguments.size, sound=setup.sound)
            if "warning" in job:
                terminal.say(job["warning"], True)
        folder = Folder(arguments.out, is_read_only=arguments.verify)
        if arguments.verify:
            return verify_all(folder, review, arguments.backend, terminal)
        if arguments.corrections:
            done, failed = correct(arguments, folder, review, terminal)
        else:
            videos, failed, remarks = find_videos(arguments.inputs, folder)
            for sentence in failed + remarks:
                terminal.say(sentence, sentence in failed)
            tasks = name_results(videos, folder, setup.extension)
            done, refused = Batch(setup, options, folder, review, terminal, tasks, arguments.force).run(tasks)
            failed += refused
    except Stuck:
        return 1
    except Refused as error:
        terminal.say(str(error), True)
        return 1
    except Interrupted:
        terminal.say("interrupted: finished videos are kept; start the same command again for the others", True)
        return 128 + signals[0]
    except OSError as error:
        terminal.say(f"{printable(error.filename or arguments.out)} cannot be read or written: {error.strerror}", True)
        return 1
    finally:
        if folder and not arguments.verify:
            folder.write_page()
            try:
                has_pages = review.write_index([entry for entry in folder.shown() if not entry["failure"]])
            except OSError as error:
                has_pages = False
                terminal.say(f"{review.name} cannot be written: {error.strerror}", True)
    summarize(terminal, folder, done, failed)
    if has_pages and done:
        terminal.say(f"review the results in {review.name}/index.html, which shows open faces; --delete-review deletes it")
    return 1 if failed else 0


def setup_again(entry, review, backend, corrections=None, cover=None):
    """Returns the options of a result, with another cover if one is given, and a setup with these options. If the result has
    detections, the setup attaches them again."""
    options, replay = entry["options"] | (dict(cover=cover) if cover else {}), None
    check_options(options)
    job = JOBS[options["hide"]]
    if "doubts" in job:
        replay, job = review.replay(entry["result"], corrections, entry["begin"]), job | dict(finder=job.get("replayed", "") + Attacher.ELEMENTS)
    chosen = {name: options[name] for name in SETTINGS if name in options}
    return options, Setup(job, chosen, f"backend={backend}", options["size"], options["sound"], replay)


def check_options(options):
    """Refuses options from the index that the command line would refuse, because they become a part of a pipeline."""
    ranges = dict(sigma=(1, 1024), every=(1, 1000), threshold=(0, 1), search_size=(64, 4096))
    are_numbers = all(type(options[name]) in (int, float) and low <= options[name] <= high for name, (low, high) in ranges.items()
                      if name in options)
    are_whole = all(type(options.get(name, 1)) is int for name in ("every", "search_size"))
    size = options["size"]
    is_size = size is None or type(size) is list and len(size) == 2 and all(type(side) is int and 16 <= side <= 32766 for side in size)
    if not are_numbers or not are_whole or not is_size or options["hide"] not in JOBS or type(options["sound"]) is not bool or (
            options.get("cover", "blur") not in ("blur", "mosaic", "fill")):
        raise Refused("its options in the index are damaged")


def correct(arguments, folder, review, terminal):
    """Makes results again with corrections. Returns their index entries, and a sentence for each failure."""
    done, failed, files = [], [], {}
    for path in arguments.corrections:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                files[path] = Corrections(file.read())
        except (Refused, OSError) as error:
            failed.append(f"{printable(path)}: {error.strerror if isinstance(error, OSError) else printable(str(error))}")
            terminal.say(failed[-1], True)
    for path, corrections in files.items():
        try:
            entry = folder.entries.get(corrections.result)
            if entry is None or entry["failure"]:
                raise Refused(f"{printable(folder.path)} has no result {printable(corrections.result)}: name its folder with --out")
            if others := [other for other in files if other != path and files[other].result == corrections.result]:
                raise Refused(f"{printable(others[0])} is for the same result: give one of them, which has all of its corrections")
            if "detections" not in entry["sums"]:
                raise Refused("its result was not made by a search for faces or plates")
            if corrections.basis != basis_of(entry):
                raise Refused("it is for another video, or for an older search of this one: open the review page again")
            if checksum(entry["input"]) != entry["sums"]["input"]:
                raise Refused(f"{printable(entry['input'])} is missing or was changed since")
            if not corrections.text and not entry["corrections"] and not folder.is_unfinished(entry):
                raise Refused("it has no corrections, and the result has none to take back")
            if checksum(review.file(corrections.result, DETECTIONS)) not in (None, entry["sums"]["detections"]):
                raise Refused("the detections in the review folder were changed: search again with --force")
            options, setup = setup_again(entry, review, arguments.backend, corrections, arguments.cover)
        except (Refused, OSError, KeyError, TypeError) as error:
            failed.append(f"{printable(path)}: {error.strerror if isinstance(error, OSError) else printable(str(error))}")
            terminal.say(failed[-1], True)
            continue
        tasks = [(entry["input"], corrections.result, os.stat(entry["input"]).st_size)]
        made, refused = Batch(setup, options, folder, review, terminal, tasks, arguments.force, corrections).run(tasks)
        done, failed = done + made, failed + refused
    return done, failed


def verify_all(folder, review, backend, terminal):
    """Reports which results differ from how they were made. Returns the exit status."""
    entries, failures = [entry for _, entry in sorted(folder.entries.items()) if not entry["failure"]], 0
    inputs = {os.path.realpath(entry["input"]) for entry in entries}
    unlisted = [name for name in videos_below(folder.path) if name not in {entry["result"] for entry in entries}
                and os.path.realpath(folder.inside(name)) not in inputs]
    if not entries and not unlisted:
        raise Refused(f"{printable(folder.path)} has no results")
    for name in unlisted:
        terminal.say(f"{printable(folder.inside(name))}: the index has no result of this name", True)
    for number, entry in enumerate(entries, 1):
        name = printable(folder.inside(entry["result"]))

        def progress(frames, _):
            terminal.progress(f"file {number} of {len(entries)}: ", name, f": {count(frames, 'frame')}")

        def setup():
            return setup_again(entry, review, backend, entry["corrections"] and Corrections(entry["corrections"]))[1]

        try:
            differing, is_covered = verify(entry, folder, review, setup, progress)
        except Stuck:
            raise
        except (Refused, OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            differing, is_covered = [f"its line in the index, or a file of it, is damaged ({printable(str(error))})"], False
        failures += bool(differing)
        same = "as it was made" if is_covered else "its checksums are right; it was not covered again, because the review was deleted"
        terminal.say(f"{name}: {'; '.join(differing) or same}", bool(differing))
    return 1 if failures or unlisted else 0


def videos_below(folder):
    """Returns the videos in a folder of results, but not those in subfolders that are folders of results themselves."""
    videos = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not os.path.lexists(os.path.join(place, name, INDEX))]
        videos += [os.path.relpath(os.path.join(place, name), folder) for name in names if os.path.splitext(name)[1].lower() in EXTENSIONS]
    return sorted(videos)


def delete_review(review, terminal):
    if not os.path.lexists(review.path):
        raise Refused(f"there is no {review.name}")
    review.check()
    left = review.delete()
    terminal.say(f"{review.name} is deleted" + (
        f", except for {count(len(left), 'file')} that this program has not written: {', '.join(map(printable, left))}" if left else ""))
    return 0


def summarize(terminal, folder, done, failed):
    if done:
        terminal.say(f"{count(len(done), 'video')} in {printable(folder.path)}; look at {printable(folder.inside(PAGE))}")
    if doubtful := [entry for entry in done if entry["doubts"]]:
        seconds = sum(entry["doubtful"] for entry in doubtful)
        videos = count(len(doubtful), "video")
        terminal.say(f"{seconds:.1f} s in {videos} may show what should be covered: the report lists them")
    if empty := [printable(folder.inside(entry["result"])) for entry in done if is_empty(entry)]:
        terminal.say(f"nothing was found in {count(len(empty), 'video')}, so nothing is covered there: look at " + ", ".join(empty))
    if len(failed) + len(done) > 1 and failed:
        terminal.say(f"{count(len(failed), 'failure')}:\n  " + "\n  ".join(failed), True)
