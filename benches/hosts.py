"""Compares GPU blurs from host memory to host memory in one run and one table: the pipelines of `benches/pipelines` and
VapourSynth with vszipcu's Gaussian blur. Prints the time per frame at full speed, and its ratio to ours.
  hosts.py COMMAND...     the command that starts the bench `pipelines`
If the parent folder has a folder `wheels`, as in a GPU pack, vapoursynth and vapoursynth-vszipcu are loaded from it."""

import ctypes
import functools
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

WHEELS = sorted((pathlib.Path(__file__).resolve().parent.parent / "wheels").glob("*.whl"))
# The name of the frame in the bench's table, VapourSynth's name of the format, width and height.
CLIPS = [("1080p GRAY8", "GRAY8", 1920, 1080), ("1080p I420", "YUV420P8", 1920, 1080),
         ("1080p GBR", "RGB24", 1920, 1080), ("4K I420", "YUV420P8", 3840, 2160)]
# vszipcu uses the smallest odd number of taps that is at least 6 sigma + 1: here 15, as in the bench.
SIGMA = 2.33
STREAMS = [2, 4, 8, 16]
FRAMES, WARM_UP, BUFFERS, BATCH = 800, 80, 6, 8
POOL, ORDINARY = "cudagaussblur, its pool", "cudagaussblur, ordinary buffers"


def ours(command):
    """Rows of the bench: frame, pipeline, µs or None, and the remaining columns as text. The exit status comes first."""
    done = subprocess.run([*command, "frames"], stdout=subprocess.PIPE, text=True, check=False)
    rows = []
    for line in done.stdout.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            print(line)
        elif cells[0] not in ("frame", "---"):
            rows.append((cells[0], cells[1], float(cells[2]) if cells[2] else None, ", ".join(cells[4:])))
    return done.returncode, rows


def nvrtc_folders():
    """Folders in which NVRTC may be: this Python's packages, the CUDA toolkit, the system's libraries."""
    for folder in map(pathlib.Path, sys.path):
        yield from (folder / "nvidia/cu13/lib", folder / "nvidia/cuda_nvrtc/lib")
    yield pathlib.Path("/usr/local/cuda/lib64")
    yield pathlib.Path("/usr/lib/x86_64-linux-gnu")


def vapoursynth(folder):
    """Imports VapourSynth with the plugin, from the wheels or as installed. The package loads the plugins in its folder
    `plugins`."""
    for wheel in WHEELS:
        zipfile.ZipFile(wheel).extractall(folder)
    plugin = pathlib.Path(folder, "vapoursynth/plugins/vszipcu")
    if plugin.is_dir():
        sys.path.insert(0, folder)
        # The plugin searches its own folder for NVRTC.
        found = next((place for place in nvrtc_folders() if list(place.glob("libnvrtc.so.1[23]"))), None)
        for library in found.glob("libnvrtc*.so*") if found else []:
            (plugin / library.name).symlink_to(library)
    return importlib.import_module("vapoursynth")


def source(vs, kind, width, height):
    """A looping clip of a few frames of noise, which the core caches."""
    blank = vs.core.std.BlankClip(format=getattr(vs, kind), width=width, height=height, length=BUFFERS, keep=True)

    def fill(n, f):
        frame = f.copy()
        for plane in range(frame.format.num_planes):
            size = frame.get_stride(plane) * frame[plane].shape[0]
            ctypes.memmove(frame.get_write_ptr(plane), os.urandom(size), size)
        return frame

    clip = vs.core.std.ModifyFrame(blank, blank, fill)
    vs.core.std.SetVideoCache(clip, mode=1, fixedsize=True, maxsize=BUFFERS)
    return vs.core.std.Loop(clip, times=FRAMES)


def pace(vs, clip):
    """µs per frame. Each frame requested here makes the core produce a batch of frames, so that Python's overhead is small."""
    vs.core.std.SetVideoCache(clip, mode=0)
    batch = [vs.core.std.SelectEvery(clip, BATCH, [number]) for number in range(BATCH)]
    batch = functools.reduce(vs.core.std.CopyFrameProps, batch)
    finished, times, errors = threading.Semaphore(0), [], []

    def on_frame(_frame, error):
        times.append(time.perf_counter())
        if error:
            errors.append(error)
        finished.release()

    # Enough requests in flight for two frames per thread.
    ahead = max(2, 2 * vs.core.num_threads // BATCH)
    for number in range((WARM_UP + FRAMES) // BATCH):
        if number >= ahead:
            finished.acquire()
        batch.get_frame_async(number, on_frame)
    for _ in range(ahead):
        finished.acquire()
    if errors:
        raise errors[0]
    first = WARM_UP // BATCH
    return (times[-1] - times[first - 1]) / (len(times) - first) / BATCH * 1e6


def theirs():
    """Rows of VapourSynth, in the format of ours()."""
    with tempfile.TemporaryDirectory(prefix="site-packages") as parent:
        folder = pathlib.Path(parent, "site-packages")
        folder.mkdir()
        try:
            vs = vapoursynth(str(folder))
            plugin = vs.core.vszipcu
        except (ImportError, AttributeError) as error:
            print(f"vszipcu: not available ({error})")
            return []
        packed = " and ".join("-".join(wheel.name.split("-")[:2]) for wheel in WHEELS) or str(vs.__version__)
        print(f"{packed}, {vs.core.num_threads} threads")
        rows = []
        try:
            for name, kind, width, height in CLIPS:
                clip = source(vs, kind, width, height)
                rows.append((name, "VapourSynth, no filter", pace(vs, clip), ""))
                rows.append((name, "vszipcu, default settings", pace(vs, plugin.GaussBlur(clip, sigma=SIGMA)), ""))
                for streams in STREAMS:
                    blurred = plugin.GaussBlur(clip, sigma=SIGMA, num_streams=streams)
                    rows.append((name, f"vszipcu, num_streams={streams}", pace(vs, blurred), ""))
        except vs.Error as error:
            print(f"vszipcu: {error}")
        return rows


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    status, rows = ours(sys.argv[1:])
    if status or not rows:
        return status
    rows += theirs()
    times = {(name, pipeline): took for name, pipeline, took, _ in rows}
    print("\nHost memory to host memory, µs per frame at full speed\n")
    print("| frame | pipeline | µs | ratio to ours, its pool | ratio to ours, ordinary buffers | "
          "µs in the element, bytes copied |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in dict.fromkeys(name for name, *_ in rows):
        for _, pipeline, took, more in filter(lambda row: row[0] == name, rows):
            if took is None:
                print(f"| {name} | {pipeline} | | | | |")
                continue
            ratios = " | ".join(f"{took / times[name, mine]:.2f}" for mine in (POOL, ORDINARY))
            print(f"| {name} | {pipeline} | {took:.1f} | {ratios} | {more.strip(', ')} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
