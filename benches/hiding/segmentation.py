#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Measures masks of people: how much of the person shows, how much of the background, and how still the edge is.

    target/release/examples/demo --sigma=0
    GST_PLUGIN_PATH=target/release scripts/python gi,numpy -- benches/hiding/segmentation.py \\
        demo-out/before-after.png [PICTURE.png ...]

What shows is read from cudagaussblur: behind the detector each frame becomes white, the cover is black. Compared are
  - raw: the model's own masks (--raw names another model), with feather=8 and grow=0,
  - the element selfiesegmentation with these settings, and grow=4,
  - true: the portrait's alpha with 320x180 samples, feather=0 and grow=4: what the grid of weights leaves of a perfect mask.

The first table is of the demo's portrait, which moves before the landscape of the argument, in 1280x720, every frame of three seconds. Columns: how much of the person shows; how much of the background shows, both in percent of
the person's area; the worst sum of what is hidden and of what shows wrongly in a frame; and the element's time for a frame (wall
clock of those that the model sees).

The second table is of still people: the portrait before four backgrounds, and each PICTURE, of people, cropped to 16:9. These clips
are synthetic: 40 frames with noise of 2.5 steps, light that flickers by 1 %, breathing of 0.6 pixels, and H.264 of 2 Mbit/s.
Columns: the mean change of what shows from one frame to the next, in thousandths of the picture, and its ratio to raw.
"""
import argparse
import sys

import backgrounds
import numpy as np
import litert
from backgrounds import FRAMES, ROOT, Gst, alpha, before, placed, play, scaled

WIDTH, HEIGHT = 1280, 720
COVER = "cudagaussblur backend=cpu region-mode=outside region-sources=roi shape=mask cover=fill expand=0"
SHAPE = "grow=4"
SETTINGS = "smooth=0", ""
CODEC = "x264enc bitrate=2000 speed-preset=veryfast tune=zerolatency key-int-max=60 ! h264parse ! avdec_h264"


def by_element(frames, settings):
    """What shows of each frame, and the element's milliseconds a frame."""
    elements = (f"videoconvert ! video/x-raw,format=I420 ! selfiesegmentation name=detector {settings} ! "
                f"videobalance brightness=1 contrast=0 saturation=0 ! {COVER} {SHAPE}")
    pipeline = Gst.parse_launch(f"appsrc name=pictures format=time max-bytes=0 ! {elements} ! appsink name=sink sync=false")
    source, sink = (pipeline.get_by_name(name) for name in ("pictures", "sink"))
    source.set_property("caps", Gst.Caps(f"video/x-raw,format=RGB,width={WIDTH},height={HEIGHT},framerate=30/1"))
    pipeline.set_state(Gst.State.PLAYING)
    out = []
    for index, frame in enumerate(frames):
        buffer = Gst.Buffer.new_wrapped(frame.tobytes())
        buffer.pts, buffer.duration = index * Gst.SECOND // 30, Gst.SECOND // 30
        source.emit("push-buffer", buffer)
        sample = sink.emit("pull-sample")
        if sample is None:
            raise RuntimeError(pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR).parse_error().gerror.message)
        luma = np.frombuffer(sample.get_buffer().extract_dup(0, WIDTH * HEIGHT), np.uint8).reshape(HEIGHT, WIDTH)
        # White is 255 there, and black 16.
        out.append((luma - np.float32(16)) / 239)
    nanoseconds = pipeline.get_by_name("detector").get_property("stats").get_uint64("mean-ns")[1]
    pipeline.set_state(Gst.State.NULL)
    return out, f"{nanoseconds / 1e6:.1f}"


def by_mask(mask, settings):
    """What shows with this mask."""
    return play(f"{COVER} {settings}", [np.full((HEIGHT, WIDTH), 255, np.uint8)], mask=mask)[0] / np.float32(255)


def raw(frames, network):
    """What shows with the model's own masks."""
    height, width = network.size
    out = []
    for frame in frames:
        mask = network.confidence(np.moveaxis(scaled(frame, width, height, "RGB") / np.float32(255), 2, 0))
        out.append(by_mask((mask * 255 + 0.5).astype(np.uint8), "feather=8"))
    return out


def moving(portrait, opaque, landscape, network):
    """The first table."""
    shares = [placed(opaque, frame, WIDTH, HEIGHT).astype(np.float32) for frame in range(FRAMES // 2)]
    frames = [before(placed(portrait, frame, WIDTH, HEIGHT), share, landscape) for frame, share in enumerate(shares)]

    def row(name, out, time=""):
        person, wrong = np.array([((share * one).sum(), ((1 - share) * one).sum()) / share.sum() * 100
                                  for share, one in zip(shares, out, strict=True)]).T
        print(f"| {name} | {person.mean():.2f} | {wrong.mean():.2f} | {(100 - person + wrong).max():.1f} | {time} |", flush=True)

    print("| mask | person shown, % | background shown, % | worst sum, % | ms a frame |\n| --- | --- | --- | --- | --- |")
    row("raw", raw(frames, network))
    small = (scaled((share * 255).astype(np.uint8), WIDTH // 4, HEIGHT // 4, "GRAY8") / 255 for share in shares)
    row("true", [by_mask(((share - 0.1) * 635 + 128).clip(0, 255).astype(np.uint8), SHAPE) for share in small])
    for settings in SETTINGS:
        row(f"element {settings}", *by_element(frames, settings))


def filmed(picture, random, frame):
    """The picture as a camera sees it in this frame."""
    light = 1 + 0.01 * np.sin(2.1 * frame) + 0.005 * random.normal()
    return (picture * light + random.normal(0, 2.5, picture.shape)).clip(0, 255).astype(np.uint8)


def breathing(picture, frame):
    """The picture, moved down by a part of a pixel."""
    share = 0.3 + 0.3 * np.sin(2 * np.pi * frame / 60)
    above = np.concatenate([picture[:1], picture[:-1]]).astype(np.float32)
    return picture + share * (above - picture)


def still(name, behind, colour, share, network):
    """Rows of the second table: a person of this colour and alpha before what is behind."""
    random, frames = np.random.default_rng(1), []
    for frame in range(40):
        mixed = behind + breathing(share[..., None], frame) * (breathing(colour, frame) - behind)
        frames.append(filmed(mixed, random, frame))
    frames = play(f"videoconvert ! video/x-raw,format=I420 ! {CODEC} ! videoconvert ! video/x-raw,format=RGB", frames, "RGB")
    changes = {"raw": raw(frames, network)} | {f"element {settings}": by_element(frames, settings)[0] for settings in SETTINGS}
    # The first frames are those in which the encoder and the average settle.
    changes = {mask: np.mean([abs(a - b).mean() for a, b in zip(out[5:], out[4:])]) * 1000 for mask, out in changes.items()}
    for mask, change in changes.items():
        print(f"| {name} | {mask} | {change:.3f} | {change / changes['raw']:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("landscape", help="before-after.png of scripts/demo --sigma=0")
    parser.add_argument("pictures", nargs="*", help="pictures of people, as PNG")
    parser.add_argument("--raw", metavar="MODEL", help="model of the masks that are compared with; default: the element's")
    arguments = parser.parse_args()
    Gst.init(None)
    read = "filesrc location={} ! {} ! videoconvert ! video/x-raw,format=RGB"
    landscape, *pictures = (play(read.format(path, "pngdec"))[0].copy() for path in [arguments.landscape, *arguments.pictures])
    # Without the white line in the middle.
    landscape[:, 639], landscape[:, 640] = landscape[:, 638], landscape[:, 641]
    portrait = scaled(play(read.format(ROOT / "examples/demo/face.jpg", "jpegdec"))[0], 864, HEIGHT, "RGB")
    opaque, network = alpha(864, HEIGHT), litert.Network(arguments.raw or litert.LANDSCAPE, 1)
    moving(portrait, opaque, landscape, network)
    print("\n| still | mask | change, ‰ | of raw |\n| --- | --- | --- | --- |")
    front = placed(portrait, 0, WIDTH, HEIGHT), placed(opaque, 0, WIDTH, HEIGHT)
    behinds = {name: np.repeat(behind(0)[..., None], 3, 2) for name, behind in backgrounds.backgrounds(landscape, WIDTH, HEIGHT)}
    for name, behind in (behinds | {"landscape": landscape}).items():
        still(name, behind, *front, network)
    for path, picture in zip(arguments.pictures, pictures):
        # Rows begin at multiples of four bytes.
        picture = picture[: picture.shape[1] * HEIGHT // WIDTH, : picture.shape[1] // 4 * 4]
        picture = scaled(picture, WIDTH, HEIGHT, "RGB")
        still(path.rpartition("/")[2], picture, picture, np.ones(picture.shape[:2]), network)


if __name__ == "__main__":
    sys.exit(main())
