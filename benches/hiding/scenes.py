#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Measures masks of people of several sizes, in scenes that are composed of cut-outs and backgrounds.

    GST_PLUGIN_PATH=target/release scripts/python gi,numpy -- benches/hiding/scenes.py CUTOUTS BACKGROUNDS

CUTOUTS is a folder of PNG files, of a person with an alpha channel each; BACKGROUNDS is one of PNG or JPEG files. A scene has one
person, who stands on the lower edge, at one of three places. A *large* person has 0.95 of the picture's height, or 0.9 of its
width if that is less; `.7` and `.5` are shares of that. A portrait is a large person in an upright picture.

Columns: the mean IoU of the mask and of the cut-out's alpha, both from one half on, in percent; the number of scenes in which more
than 25 % of the union is wrong, and that of all scenes; and in how many a face was found. `whole frame` is the element without
centerface in front of it. The masks are not averaged over time.
"""
import argparse
import itertools
import pathlib
import sys

import numpy as np
from backgrounds import Gst, GstVideo, play, scaled

SIZES = {"large": (1280, 720, 1), ".7": (1280, 720, 0.7), ".5": (1280, 720, 0.5), "portrait": (608, 1080, 1)}
PLACES = 0.5, 0.3, 0.7
WRONG = 0.25
FINDERS = {"whole frame": "", "box a face": "centerface every=1 ! "}


def pictures(folder, name):
    """The pictures of a folder, in this format."""
    paths = sorted(path for path in pathlib.Path(folder).iterdir() if path.suffix in (".png", ".jpg"))
    return [play(f"filesrc location={path} ! decodebin ! videoconvert ! video/x-raw,format={name}")[0] for path in paths]


def scene(cutout, background, place, width, height, share):
    """A picture, and where the person is in it."""
    rows, columns = (np.flatnonzero(cutout[..., 3].max(axis) > 127) for axis in (1, 0))
    cutout = cutout[rows[0]: rows[-1] + 1, columns[0]: columns[-1] + 1]
    factor = share * min(0.95 * height / cutout.shape[0], 0.9 * width / cutout.shape[1])
    tall, wide = (round(side * factor / 4) * 4 for side in cutout.shape[:2])
    # Rows begin at multiples of four bytes.
    cutout = cutout[:, : cutout.shape[1] // 4 * 4]
    colour, alpha = scaled(cutout[..., :3], wide, tall, "RGB"), scaled(cutout[..., 3], wide, tall, "GRAY8") / np.float32(255)
    factor = max(width / background.shape[1], height / background.shape[0])
    tall_cut, wide_cut = (min(round(side / factor), whole) for side, whole in zip((height, width), background.shape))
    wide_cut = wide_cut // 4 * 4
    top, left = (background.shape[0] - tall_cut) // 2, (background.shape[1] - wide_cut) // 2
    picture = scaled(background[top: top + tall_cut, left: left + wide_cut], width, height, "RGB").copy()
    left = round(min(max(place * width - wide / 2, 0), width - wide))
    part = picture[height - tall:, left: left + wide]
    part[:] = part + alpha[..., None] * (colour - part.astype(np.float32)) + 0.5
    person = np.zeros((height, width), bool)
    person[height - tall:, left: left + wide] = alpha >= 0.5
    return picture, person


def masks(frames, finder):
    """Of each picture, where the element sees people, and whether a face was found."""
    height, width = frames[0].shape[:2]
    pipeline = Gst.parse_launch(f"appsrc name=pictures format=time max-bytes=0 ! {finder}selfiesegmentation smooth=0 ! "
                                "appsink name=sink sync=false")
    source, sink = (pipeline.get_by_name(name) for name in ("pictures", "sink"))
    source.set_property("caps", Gst.Caps(f"video/x-raw,format=RGB,width={width},height={height},framerate=1/1"))
    pipeline.set_state(Gst.State.PLAYING)
    for index, frame in enumerate(frames):
        buffer = Gst.Buffer.new_wrapped(frame.tobytes())
        buffer.pts, buffer.duration = index * Gst.SECOND, Gst.SECOND
        # The elements remember nothing of the scene before.
        buffer.set_flags(Gst.BufferFlags.DISCONT)
        source.emit("push-buffer", buffer)
        sample = sink.emit("pull-sample")
        if sample is None:
            raise RuntimeError(pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR).parse_error().gerror.message)
        mask, has_face = np.zeros((height, width), bool), False
        buffer = sample.get_buffer()
        # Python cannot iterate metas. All have the id 0 until they have been read.
        while meta := GstVideo.buffer_get_video_region_of_interest_meta_id(buffer, 0):
            meta.id = 1
            if param := meta.get_param("mask"):
                samples = param.get_value("sample")
                info, data = GstVideo.VideoInfo.new_from_caps(samples.get_caps()), samples.get_buffer()
                data = np.frombuffer(data.extract_dup(0, data.get_size()), np.uint8).reshape(info.height, -1)[:, : info.width]
                rows, columns = (np.arange(length) * count // length for length, count in zip((meta.h, meta.w), data.shape))
                mask[meta.y: meta.y + meta.h, meta.x: meta.x + meta.w] |= data[rows[:, None], columns] >= 128
            elif meta.w:
                has_face = True
        yield mask, has_face
    pipeline.set_state(Gst.State.NULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cutouts")
    parser.add_argument("backgrounds")
    arguments = parser.parse_args()
    Gst.init(None)
    pairs = list(itertools.product(pictures(arguments.cutouts, "RGBA"), pictures(arguments.backgrounds, "RGB")))
    print("| size | masks | IoU, % | more than 25 % wrong | with a face |\n| --- | --- | --- | --- | --- |")
    for size, (width, height, share) in SIZES.items():
        composed = [scene(*pair, PLACES[number % 3], width, height, share) for number, pair in enumerate(pairs)]
        for name, finder in FINDERS.items():
            found = list(masks([picture for picture, _ in composed], finder))
            ious = [(mask & person).sum() / (mask | person).sum() for (mask, _), (_, person) in zip(found, composed)]
            wrong, faces = sum(iou < 1 - WRONG for iou in ious), sum(has_face for _, has_face in found)
            print(f"| {size} | {name} | {np.mean(ious) * 100:.1f} | {wrong} of {len(ious)} | {faces} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
