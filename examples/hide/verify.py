# SPDX-License-Identifier: MPL-2.0
"""Compares results with their index entries, and with frames that are covered again from the inputs and the detections."""

import os
import pathlib
import random
from operator import sub

from gi.repository import Gst, GstVideo

from .batch import Batch
from .folder import table_of
from .inputs import Input
from .jobs import JOBS, Encoder, Muxer
from .pipeline import Work
from .play import play
from .review import DETECTIONS, checksum
from .terminal import Refused, count, printable

# Used in place of an encoder, so that frames stay as they are covered.
RAW = Encoder("identity", "", Muxer("identity", "", {}, ()))
# The number of frames of a video that are compared. They are chosen at random.
FRAMES = 30
# The side of the blocks that are compared; the distance between compared rows; and the smallest mean difference that is an error,
# of 255. Encoders cause up to 3, open faces at least 18 (clips of filmed faces, mosaic; 2026-11-30).
BLOCK, STEP, DIFFERENCE = 16, 4, 8


def verify(entry, folder, review, setup, progress):
    """Returns sentences about differences, and whether the input could be covered again."""
    result, differing = entry["result"], []
    expected = {"input", "result"} | ({"table", "detections"} if "doubts" in JOBS[entry["options"]["hide"]] else set())
    if entry["sums"].keys() != expected:
        differing.append("the index lacks checksums")
    files = dict(input=entry["input"], result=folder.inside(result), table=folder.inside(table_of(result)),
                 detections=review.file(result, DETECTIONS))
    is_deleted = "detections" in entry["sums"] and review.is_deleted(result)
    for name, expected in entry["sums"].items():
        found = expected if name == "detections" and is_deleted else checksum(files[name])
        if found != expected:
            differing.append(f"{printable(files[name])} {'is missing' if found is None else 'was changed'}")
    if is_deleted or not os.path.exists(files["input"]) or not os.path.exists(files["result"]):
        return differing, False
    try:
        differing += compare(entry, files, setup(), progress)
    except Refused as refused:
        differing.append(f"it could not be covered again: {refused}")
    return differing, True


def compare(entry, files, setup, progress, is_thorough=False):
    """Covers the input again, without encoding it. Compares frames, the table and the numbers of the index. Returns sentences
    about differences."""
    frames = entry["frames"]
    # One frame of each part of the video is chosen.
    chosen = {random.randrange(frames * part // FRAMES, max(frames * part // FRAMES + 1, frames * (part + 1) // FRAMES))
              for part in range(FRAMES)}
    with open(os.devnull, "wb") as nothing:
        work = Work(setup, RAW, Input(entry["input"]), nothing.fileno(), False, is_thorough=is_thorough)
        covered = Frames(work.pipeline.get_by_name("encoder").get_static_pad("src"), chosen)
        try:
            work.run(progress, entry["begin"])
            if work.is_unsearched():
                return compare(entry, files, setup, progress, is_thorough=True)
        finally:
            work.close()
    pipeline = Gst.parse_launch("uridecodebin name=input caps=video/x-raw(ANY) expose-all-streams=false ! videoconvert ! "
                                "video/x-raw,format=I420 ! fakesink name=frames sync=false")
    pipeline.get_by_name("input").set_property("uri", pathlib.Path(files["result"]).absolute().as_uri())
    written = Frames(pipeline.get_by_name("frames").get_static_pad("sink"), chosen)
    play(pipeline, lambda _: written.count)
    differing = []
    if any("track" in kind for kind in Input(files["result"]).streams.values()):
        differing.append("the result has more than one video track")
    if not frames == covered.count == written.count:
        differing.append(f"the index has {count(frames, 'frame')}, the result {written.count}, its input {covered.count}")
    for frame in sorted(covered.luma.keys() & written.luma.keys()):
        (size, one), (other_size, other) = covered.luma[frame], written.luma[frame]
        if size != other_size or difference(one, other, size[0]) > DIFFERENCE:
            differing.append(f"the frame at {(work.pushed[frame] - work.begin) / Gst.SECOND:.2f} s is not what its input and its detections give")
            break
    if "doubts" in setup.job:
        with open(files["table"], encoding="utf-8", newline="") as table:
            if table.read() != work.report.table():
                differing.append(f"{printable(files['table'])} is not what its input and its detections give")
    return differing + [f"the index says {name}: {entry[name]}, covering again gives {value}"
                        for name, value in Batch.numbers(work).items() if entry[name] != value]


class Frames:
    """Counts the frames that pass a pad, and keeps the luma of the chosen ones."""

    def __init__(self, pad, chosen):
        self.chosen, self.count, self.luma = chosen, 0, {}
        pad.add_probe(Gst.PadProbeType.BUFFER, self.take)

    def take(self, pad, probe):
        if self.count in self.chosen:
            info, buffer = GstVideo.VideoInfo.new_from_caps(pad.get_current_caps()), probe.get_buffer()
            meta = GstVideo.buffer_get_video_meta(buffer)
            offset, stride = (meta.offset[0], meta.stride[0]) if meta else (info.offset[0], info.stride[0])
            rows = buffer.extract_dup(offset, stride * info.height)
            luma = [rows[row * stride:][:info.width] for row in range(0, info.height, STEP)]
            self.luma[self.count] = (info.width, info.height), luma
        self.count += 1
        return Gst.PadProbeReturn.OK


def difference(one, other, width):
    """Returns the mean difference of the samples in the block that differs most."""
    most = 0
    for top in range(0, len(one), BLOCK // STEP):
        sums = [0] * -(-width // BLOCK)
        for left, right in zip(one[top:top + BLOCK // STEP], other[top:top + BLOCK // STEP]):
            differing = list(map(abs, map(sub, left, right)))
            sums = [total + sum(differing[block * BLOCK:(block + 1) * BLOCK]) for block, total in enumerate(sums)]
        most = max(most, *sums)
    return most / (BLOCK * BLOCK // STEP)
