# SPDX-License-Identifier: MPL-2.0
"""The folder of the results: its index, the videos of which it has results, and the writing of files that get their names only
when they are complete."""

import fcntl
import json
import os
import sys
import tempfile

from .page import GENERATOR, page
from .terminal import Refused, printable

EXTENSIONS = set(".3g2 .3gp .asf .avi .divx .dv .f4v .flv .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .mxf .ogv .ts .vob .webm "
                 ".wmv".split())
# The index has a line of JSON for each result that was made and for each one that failed. The last line about a result is valid.
INDEX, PAGE = "hide-index.jsonl", "report.html"
FILE_STATE = (list, type(None))
KEYS = dict(result=str, input=str, state=FILE_STATE, options=dict, made=FILE_STATE, table=FILE_STATE,
            failure=(str, type(None)), sums=dict, corrections=(str, type(None)))
# Only the line of a result that was made has these keys.
RESULT_KEYS = dict(frames=int, begin=int, seconds=(int, float), covered=(int, type(None)), objects=(int, type(None)),
                   doubtful=(int, float), doubts=list, notes=list)
UNFINISHED = "it was interrupted, and the result in the folder is an older one: start the same command again"
# The prefix of files that are being written.
PART = ".hide-"
UMASK = os.umask(0)
os.umask(UMASK)


def state(path):
    """Returns the size and the modification time of a file, or None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


def is_same(before, now):
    """Whether a file has not changed. Some disks store times only to two seconds."""
    return bool(before and now) and before[0] == now[0] and abs(before[1] - now[1]) <= 2 * 10**9


class Folder:
    """The folder of the results, with its index."""

    def __init__(self, path, is_read_only=False):
        self.path = path
        if os.path.lexists(self.inside(PAGE)) and not is_own_page(self.inside(PAGE)):
            raise Refused(f"{printable(self.inside(PAGE))} is not of this program: move it away, or name another folder with --out")
        try:
            os.makedirs(path, exist_ok=True)
            self.is_new = not os.path.lexists(self.inside(INDEX))
            flags = (os.O_RDONLY if is_read_only else os.O_RDWR | os.O_CREAT | os.O_APPEND) | os.O_NOFOLLOW
            mode = "r" if is_read_only else "a+"
            self.index = open(os.open(self.inside(INDEX), flags, 0o666), mode, encoding="utf-8", errors="replace")
            fcntl.flock(self.index, (fcntl.LOCK_SH if is_read_only else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"another hide.py writes to {printable(path)}: wait for it, or name another folder with --out") \
                from None
        except OSError as error:
            raise Refused(f"{printable(path)} cannot be {'read' if is_read_only else 'written'} ({error.strerror}): name another folder "
                          "with --out") from None
        # Delete unfinished files of a run that was killed. No other run writes here now, because the index is locked.
        for place, folders, files in [] if is_read_only else os.walk(path):
            folders[:] = [name for name in folders if not os.path.lexists(os.path.join(place, name, INDEX))]
            for name in files:
                if name.startswith(PART) and name.endswith(".part"):
                    os.unlink(os.path.join(place, name))
        # The latest entry for each result; and the states in which this program has left each result and each table.
        self.entries, self.states = {}, {}
        self.index.seek(0)
        lines = self.index.read().split("\n")
        for line in filter(None, lines):
            try:
                entry = json.loads(line)
                types = KEYS if entry["failure"] else KEYS | RESULT_KEYS
                if not all(isinstance(entry[key], kind) for key, kind in types.items()):
                    raise ValueError
                if os.path.normpath(entry["result"]).startswith(("..", "/")) or "\0" in entry["result"] + entry["input"]:
                    raise ValueError
                self.remember(entry)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                # This line was being written when a run was killed.
                continue
        if lines[-1] and not is_read_only:
            self.index.write("\n")

    def inside(self, name):
        return os.path.join(self.path, name)

    def remember(self, entry):
        for name, made in (entry["result"], entry["made"]), (table_of(entry["result"]), entry["table"]):
            if made:
                self.states.setdefault(name, []).append(made)
        self.entries[entry["result"]] = entry

    def add(self, entry):
        self.index.write(json.dumps(entry) + "\n")
        self.index.flush()
        os.fsync(self.index.fileno())
        self.remember(entry)

    def is_own(self, name):
        """Whether a result or a table is as this program left it."""
        return any(is_same(made, state(self.inside(name))) for made in self.states.get(name, []))

    def corrections_of(self, result):
        return self.entries[result]["corrections"] if result in self.entries else None

    def is_unfinished(self, entry):
        """Whether the program was killed after it had written the entry and before the result got its name."""
        return self.is_own(entry["result"]) and not is_same(entry["made"], state(self.inside(entry["result"])))

    def is_done(self, result, video, options, corrections):
        """Whether the result was made from the same input, with the same options and corrections. A result that somebody has
        changed counts, too."""
        entry = self.entries.get(result)
        if entry is None or entry["failure"] or not os.path.isfile(self.inside(result)) or self.is_unfinished(entry):
            return False
        return entry["corrections"] == corrections and entry["options"] == options and is_same(entry["state"], state(video))

    def shown(self):
        """Returns the entries about files that exist."""
        return [entry | dict(failure=UNFINISHED) if not entry["failure"] and self.is_unfinished(entry) else entry
                for name, entry in sorted(self.entries.items())
                if os.path.exists(self.inside(name) if not entry["failure"] else entry["input"])]

    def write_page(self):
        """Writes the page about all results in the folder, of all runs. A folder without results is left as it was found."""
        if not self.states:
            if self.is_new:
                os.unlink(self.inside(INDEX))
            return
        try:
            put(write_part(self.inside(PAGE), page(self.shown())), self.inside(PAGE))
        except OSError as error:
            print(f"{printable(self.inside(PAGE))} cannot be written: {error.strerror}", file=sys.stderr)


def is_own_page(path):
    """Whether this program has written the page at this path."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return GENERATOR in file.read(1000)
    except OSError:
        return False


def table_of(result):
    return os.path.splitext(result)[0] + ".csv"


def new_part(path, mode=0o666 & ~UMASK):
    """Makes a new file beside another one. Returns its descriptor and its name."""
    descriptor, part = tempfile.mkstemp(prefix=PART, suffix=".part", dir=os.path.dirname(path) or ".")
    os.chmod(part, mode)
    return descriptor, part


def put(part, path):
    """Gives a complete file its name. The name stays even if the power fails afterwards."""
    os.replace(part, path)
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def write_part(path, text):
    """Writes a complete new file beside another one. Returns its name."""
    descriptor, part = new_part(path)
    with open(descriptor, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return part


def find_videos(arguments, folder):
    """Returns the videos, each with the path of its result without an extension; sentences about arguments that are no videos;
    and remarks."""
    videos, refused, remarks, seen = [], [], [], set()
    results = {os.path.realpath(folder.inside(name)) for name in folder.entries if folder.is_own(name)}
    for argument in arguments:
        if os.path.isdir(argument):
            found = list(videos_below(argument, folder.path, refused, remarks))
            if not found:
                refused.append(f"{printable(argument)}: no video is in this folder")
            elif results.issuperset(os.path.realpath(video) for video, _ in found):
                refused.append(f"{printable(argument)}: each video in it is a result of this program; name the inputs")
        elif os.path.realpath(argument) in results:
            found = []
            refused.append(f"{printable(argument)}: this is a result of an earlier run; name its input")
        else:
            found = [(argument, os.path.basename(argument))] if os.path.isfile(argument) else []
            if not found:
                refused.append(f"{printable(argument)}: there is no such file or folder")
        for video, name in found:
            if (path := os.path.realpath(video)) not in seen | results:
                seen.add(path)
                videos.append((video, os.path.splitext(name)[0]))
    return videos, refused, remarks


def videos_below(folder, out, refused, remarks):
    """Yields the videos in a folder, each with its path inside of the folder. Folders with an index, which have results, are not
    searched."""
    def note(error):
        refused.append(f"{printable(error.filename)} cannot be read: {error.strerror}")

    # os.walk does not follow links to folders.
    for place, folders, files in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in [name for name in folders if os.path.lexists(os.path.join(place, name, INDEX))]:
            folders.remove(name)
            if not os.path.samefile(os.path.join(place, name), out):
                remarks.append(f"{printable(os.path.join(place, name))}: it has results of another run and is not searched; name its "
                               "files to cover them")
        for name in sorted(files):
            video = os.path.join(place, name)
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in EXTENSIONS and os.path.isfile(video):
                yield video, os.path.relpath(video, folder)


def name_results(videos, folder, extension):
    """Returns triples of video, result and size in bytes. Results have the same subfolders as their videos, and are numbered if
    two have the same name. A video keeps the result of an earlier run, even if it was moved to another folder since."""
    before = {entry["input"]: name for name, entry in folder.entries.items() if name.endswith(extension)}
    moved = {(os.path.basename(entry["input"]), *entry["state"]): name for name, entry in folder.entries.items()
             if name.endswith(extension) and entry["state"] and not os.path.exists(entry["input"])}
    # Some disks do not distinguish between upper and lower case.
    taken = {name.casefold() for name in before.values()}
    named = []
    for video, stem in videos:
        path = os.path.realpath(video)
        result = before.get(path) or moved.pop((os.path.basename(path), *(state(video) or ())), None)
        number = 1
        while result is None:
            name = f"{stem}-{number}{extension}" if number > 1 else stem + extension
            if name.casefold() not in taken:
                result = name
            number += 1
        taken.add(result.casefold())
        named.append((video, result, os.stat(video).st_size))
    return named
