#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Measures on filmed clips what hide.py's job `faces` leaves open, how much more than the faces it covers, and what it covers where
no face is.

    GST_PLUGIN_PATH=target/release scripts/python gi -- benches/hiding/filmed.py FILE|FOLDER... [--set "NAME=VALUE ..."]...
        [--phases N] [--reference T] [--list]

The first row of a clip is the job as hide.py has it. Each --set is another row: the job with these properties of centerface or
cudagaussblur changed, such as --set "threshold=0.3 min-confidence=0.4". --phases measures each clip N times, without its first 0 to
N-1 frames, so that other frames are searched, and adds the rows up.

Nobody has marked the faces. The reference is CenterFace on every frame at full resolution, with a confidence above T (0.5). Its boxes are linked from frame to frame, and gaps of up to 12 frames between two linked boxes are interpolated. So the reference has
false faces, too: --list prints where each face is open and where each false object is, to look at them.

 faces       boxes of the reference in all frames
 open        those of which more than a tenth is not covered, by the regions in the messages of cudagaussblur
 area        covered area over the faces' area, the mean of the frames with faces
 objects     tracks that were found in a frame
 false       those of them that touch no face of the reference within 12 frames; among them are faces that only the reference missed
 false time  seconds that their covers last, all added up
"""
import argparse
import pathlib
import sys

import gi

for name in "Gst", "GstPbutils", "GstVideo":
    gi.require_version(name, "1.0")
from gi.repository import Gst, GstVideo
import gi.overrides.Gst

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "benches/hiding")]
from hide.jobs import JOBS, Setup
from measure import OPEN, area, clip, iou, union_area

# Frames of a gap of the reference that are interpolated, and the least IoU of two linked boxes.
LONGEST_GAP, LINKED = 12, 0.1
DECODED = 'uridecodebin uri="{}" caps=video/x-raw(ANY) expose-all-streams=false ! queue ! '


def play(pipeline, each=lambda message: None):
    """Plays to the end and calls `each` with the messages of elements."""
    bus, kinds = pipeline.get_bus(), Gst.MessageType.EOS | Gst.MessageType.ERROR | Gst.MessageType.ELEMENT
    pipeline.set_state(Gst.State.PLAYING)
    try:
        while (message := bus.timed_pop_filtered(Gst.CLOCK_TIME_NONE, kinds)).type != Gst.MessageType.EOS:
            if message.type == Gst.MessageType.ERROR:
                sys.exit(f"filmed.py: {message.parse_error()[0].message}")
            each(message)
    finally:
        pipeline.set_state(Gst.State.NULL)


class Reference:
    """The faces of a clip: `faces` has the boxes of each frame by its timestamp."""

    def __init__(self, setup, uri, threshold):
        self.faces, self.size = {}, None
        finder = f"centerface name=detector every=1 threshold={threshold}"
        pipeline = Gst.parse_launch(f"{DECODED.format(uri)} {setup.elements('I420', finder)} ! fakesink")
        self.detector = pipeline.get_by_name("detector")
        self.detector.get_static_pad("sink").add_probe(Gst.PadProbeType.EVENT_DOWNSTREAM, self.set_size)
        self.detector.get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, self.add_frame)
        play(pipeline)
        self.interpolate()

    def set_size(self, _, info):
        if info.get_event().type == Gst.EventType.CAPS:
            picture = GstVideo.VideoInfo.new_from_caps(info.get_event().parse_caps())
            self.size = picture.width, picture.height
            self.detector.set_property("size", max(self.size))
        return Gst.PadProbeReturn.OK

    def add_frame(self, _, info):
        buffer, boxes = info.get_buffer(), []
        # Python cannot iterate metas. All have the id 0 until they have been read.
        while meta := GstVideo.buffer_get_video_region_of_interest_meta_id(buffer, 0):
            meta.id = 1
            # A box of no size says that nothing was found.
            if meta.w:
                boxes.append((meta.x, meta.y, meta.x + meta.w, meta.y + meta.h))
        self.faces[buffer.pts] = boxes
        return Gst.PadProbeReturn.OK

    def interpolate(self):
        """Links boxes, the nearest ones first, and fills the gaps."""
        frames, ends, added = list(self.faces), [], []
        for now, time in enumerate(frames):
            ends = [(then, box) for then, box in ends if now - then <= LONGEST_GAP + 1]
            boxes = self.faces[time]
            pairs = sorted(((iou(ends[i][1], boxes[j]), i, j) for i in range(len(ends)) for j in range(len(boxes))), reverse=True)
            used, linked = set(), set()
            for share, i, j in pairs:
                if share < LINKED or i in used or j in linked:
                    continue
                used.add(i), linked.add(j)
                then, old = ends[i]
                for frame in range(then + 1, now):
                    part = (frame - then) / (now - then)
                    added.append((frames[frame], tuple(a + part * (b - a) for a, b in zip(old, boxes[j]))))
            ends = [end for i, end in enumerate(ends) if i not in used] + [(now, box) for box in boxes]
        for time, box in added:
            self.faces[time].append(box)


class Row:
    """What the job covered in a clip, or the sums of several clips."""

    def __init__(self):
        self.frames = self.faces = self.objects = self.false = self.with_faces = 0
        self.area = self.false_time = 0.0
        self.open = []

    def __iadd__(self, other):
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self

    def cells(self):
        share = f"{self.area / self.with_faces:.2f}" if self.with_faces else ""
        return self.frames, self.faces, len(self.open), share, self.objects, self.false, f"{self.false_time:.1f} s"


def measure(setup, uri, settings, reference, skipped):
    """Returns the row of a clip without its first `skipped` frames, and sentences about what is open and what is false."""
    pipeline = Gst.parse_launch(f"{DECODED.format(uri)} {setup.elements('I420', setup.finder)} ! fakesink")
    to_skip = list(reference.faces)[:skipped]
    pipeline.get_by_name("detector").get_static_pad("sink").add_probe(
        Gst.PadProbeType.BUFFER,
        lambda _, info: Gst.PadProbeReturn.DROP if info.get_buffer().pts in to_skip else Gst.PadProbeReturn.OK)
    for name, value in settings:
        owners = [one for one in map(pipeline.get_by_name, ("detector", "blur")) if one.find_property(name)]
        if len(owners) != 1:
            sys.exit(f"filmed.py: {name} is not a property of one of the two elements")
        Gst.util_set_object_arg(owners[0], name, value)
    frames = {}

    def each(message):
        frame = message.get_structure()
        if frame.get_name() == "cudagaussblur":
            regions = [(one.get_value("track"), one.get_value("origin"), box_of(one)) for one in frame.get_value("regions")]
            whole = [(None, "frame", (0, 0, *reference.size))] if frame.get_value("covered") == "frame" else []
            frames[frame.get_value("timestamp")] = regions + whole

    play(pipeline, each)
    if list(frames) != list(reference.faces)[skipped:]:
        sys.exit(f"filmed.py: {uri}: the messages are not about the frames of the reference")
    row, bounds, times = Row(), (0, 0, *reference.size), list(frames)
    near, lasting, places = set(), {}, {}
    for number, (time, regions) in enumerate(frames.items()):
        covers = [box for _, _, box in regions]
        faces = [clip(face, bounds) for face in reference.faces[time]]
        row.open += [(time, face) for face in faces if area(face) - union_area(covers, face) > OPEN * area(face)]
        if faces:
            row.with_faces += 1
            row.area += union_area(covers, bounds) / union_area(faces, bounds)
        row.faces += len(faces)
        around = [face for one in times[max(0, number - LONGEST_GAP):number + LONGEST_GAP + 1] for face in reference.faces[one]]
        for track, origin, box in regions:
            lasting.setdefault(track, set()).add(time)
            if origin == "found":
                places.setdefault(track, []).append((time, box))
                near |= {track for face in around if area(clip(box, face)) > 0}
    interval = (times[-1] - times[0]) / max(1, len(times) - 1) / Gst.SECOND
    false = sorted(places.keys() - near)
    row.frames, row.objects, row.false = len(frames), len(places), len(false)
    row.false_time = sum(len(lasting[track]) for track in false) * interval
    sentences = [f"open at {time}: {face}" for time, face in row.open]
    sentences += [f"false, track {track}: {places[track]}" for track in false]
    return row, sentences


def box_of(region):
    x, y, width, height = (region.get_value(name) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", type=pathlib.Path, metavar="FILE|FOLDER")
    parser.add_argument("--set", action="append", default=[], metavar='"NAME=VALUE ..."')
    parser.add_argument("--phases", type=int, default=1, metavar="N")
    parser.add_argument("--reference", type=float, default=0.5, metavar="T")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    Gst.init(None)
    setup = Setup(JOBS["faces"], {})
    variants = ["", *arguments.set]
    videos = [video for one in arguments.inputs for video in (sorted(one.iterdir()) if one.is_dir() else [one])]
    totals = {variant: Row() for variant in variants}
    print("| clip | settings | frames | faces | open | area | objects | false | false time |" + "\n|" + " --- |" * 9)
    for video in (video for video in videos if video.suffix in (".mp4", ".mkv", ".webm", ".mov", ".avi")):
        uri = video.absolute().as_uri()
        reference = Reference(setup, uri, arguments.reference)
        for variant in variants:
            row, sentences = Row(), []
            for skipped in range(arguments.phases):
                one, more = measure(setup, uri, [setting.split("=", 1) for setting in variant.split()], reference, skipped)
                row += one
                sentences += more
            totals[variant] += row
            print("|", " | ".join(map(str, (video.name, variant or "hide.py", *row.cells()))), "|", flush=True)
            for sentence in sentences if arguments.list else []:
                print(f"    {sentence}")
    for variant, total in totals.items():
        print("|", " | ".join(map(str, ("**all**", variant or "hide.py", *total.cells()))), "|")


if __name__ == "__main__":
    main()
