# SPDX-License-Identifier: MPL-2.0
"""The program."""

import os
import signal
import sys

from gi.repository import Gst

from .batch import Batch
from .folder import PAGE, Folder, find_videos, name_results
from .jobs import JOBS, Setup
from .options import parse_arguments
from .page import is_empty
from .play import Stuck, is_stuck
from .terminal import Interrupted, Refused, Terminal, count, on_signal, printable, signals


def main():
    try:
        status = run()
    except Exception as error:
        trace = error.__traceback__
        while trace.tb_next:
            trace = trace.tb_next
        place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno}"
        sys.exit(f"hide.py has failed, please report it: {type(error).__name__}: {error} ({place})")
    if is_stuck():
        # The interpreter would wait for the element.
        os._exit(status)
    return status


def run():
    """The exit status."""
    arguments = parse_arguments()
    # facedetect opens cascades that distributions do not have, and OpenCV prints errors about them.
    os.environ.setdefault("OPENCV_LOG_LEVEL", "FATAL")
    for stream in filter(None, (sys.stdout, sys.stderr)):
        # A name that the terminal cannot show is no reason to say nothing.
        stream.reconfigure(errors="backslashreplace")
    terminal = Terminal()
    # GStreamer looks for its plugins, which may take a while.
    if terminal.is_live:
        terminal.progress("starting", at_once=True)
    Gst.init(None)
    if not Gst.ElementFactory.find("cudagaussblur"):
        terminal.say("GStreamer does not find cudagaussblur: install the plugin or set GST_PLUGIN_PATH to its folder", True)
        return 1
    for one in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        if signal.getsignal(one) is not signal.SIG_IGN:
            signal.signal(one, on_signal)
    if not terminal.is_live:
        terminal.progress("starting", at_once=True)
    folder = None
    try:
        names = "cover", "sigma", "every", "threshold", "search_size"
        settings = {name: value for name in names if (value := getattr(arguments, name)) is not None}
        job = JOBS[arguments.hide]
        if unused := [name for name in settings if name != "sigma" and name not in job]:
            raise Refused(f"--{unused[0].replace('_', '-')} does not apply to --hide {arguments.hide}: leave it out")
        blur = f"backend={arguments.backend} kernel-size={arguments.kernel_size}"
        setup = Setup(job, settings, blur, arguments.size, not arguments.no_sound)
        options = setup.settings | dict(hide=arguments.hide, kernel=arguments.kernel_size, size=arguments.size, sound=setup.sound)
        folder = Folder(arguments.out)
        videos, failed = find_videos(arguments.inputs, folder)
        for sentence in failed:
            terminal.say(sentence, True)
        named = name_results(videos, folder, setup.extension)
        done, refused = Batch(setup, options, folder, terminal, named, arguments.force).run(named)
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
        if folder:
            folder.write_page()
    return summarize(terminal, folder, done, failed + refused)


def summarize(terminal, folder, done, failed):
    if done:
        terminal.say(f"{count(len(done), 'video')} in {printable(folder.path)}; look at {printable(folder.inside(PAGE))}")
    if doubtful := [entry for entry in done if entry["doubts"]]:
        seconds = sum(entry["doubtful"] for entry in doubtful)
        videos = count(len(doubtful), "video")
        terminal.say(f"{seconds:.1f} s in {videos} may show what should be covered: the report has pictures")
    if empty := [printable(folder.inside(entry["result"])) for entry in done if is_empty(entry)]:
        terminal.say(f"nothing was found in {count(len(empty), 'video')}, which show all that is in them: look at "
                     + ", ".join(empty))
    if len(failed) + len(done) > 1 and failed:
        terminal.say(f"{count(len(failed), 'failure')}:\n  " + "\n  ".join(failed), True)
    return 1 if failed else 0
