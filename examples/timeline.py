#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""cudagaussblur as an effect in a timeline of GStreamer Editing Services: renders the first three seconds of a clip, with
its sound, and keyframes blur it more and more.

Without VIDEO the clip is a test pattern. Needs, on Debian and Ubuntu: python3-gi gir1.2-ges-1.0
gir1.2-gst-plugins-base-1.0 gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly (x264enc)
gstreamer1.0-libav; and the plugin, installed or in GST_PLUGIN_PATH:

    cargo build --release && GST_PLUGIN_PATH=target/release examples/timeline.py [VIDEO] RESULT
"""

import argparse
import os
import sys

try:
    import gi
except ImportError:
    sys.exit(f"{sys.executable} has no PyGObject: install python3-gi and run this with the distribution's /usr/bin/python3")

try:
    gi.require_version("GES", "1.0")
    gi.require_version("GstPbutils", "1.0")
except ValueError as error:
    sys.exit(f"{error}: install gir1.2-ges-1.0 and gir1.2-gst-plugins-base-1.0")
gi.require_version("Gst", "1.0")
gi.require_version("GstController", "1.0")
from gi.repository import GES, GLib, Gst, GstController, GstPbutils

LENGTH = 3 * Gst.SECOND


def add_clip(layer, video):
    """Adds the clip at the start of the layer, and returns it."""
    if not video:
        clip = GES.TestClip(vpattern=GES.VideoTestPattern.SMPTE, start=0, duration=LENGTH)
        return clip if layer.add_clip(clip) else None
    asset = GES.UriClipAsset.request_sync(Gst.filename_to_uri(os.path.abspath(video)))
    return layer.add_asset(asset, 0, 0, min(LENGTH, asset.get_duration()), GES.TrackType.UNKNOWN)


def add_blur(clip):
    """Blurs the clip. The keyframes of sigma are at 0, 1 and 3 seconds of the source."""
    effect = GES.Effect.new("cudagaussblur name=blur")
    clip.add(effect)
    # To set other properties, call effect.set_child_property("cover", ...).
    curve = GstController.InterpolationControlSource(mode=GstController.InterpolationMode.LINEAR)
    effect.set_control_source(curve, "sigma", "direct-absolute")
    for second, sigma in (0, 0), (1, 0), (3, 20):
        curve.set(second * Gst.SECOND, sigma)


def mp4():
    """Returns a profile for H.264 and AAC in MP4."""
    profile = GstPbutils.EncodingContainerProfile.new("mp4", None, Gst.Caps("video/quicktime,variant=iso"), None)
    profile.add_profile(GstPbutils.EncodingVideoProfile.new(Gst.Caps("video/x-h264"), None, None, 0))
    profile.add_profile(GstPbutils.EncodingAudioProfile.new(Gst.Caps("audio/mpeg,mpegversion=4"), None, None, 0))
    return profile


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("video", nargs="?", metavar="VIDEO", help="the video; default: a test pattern")
    parser.add_argument("result", metavar="RESULT", help="the MP4 file to write")
    arguments = parser.parse_args()
    Gst.init(None)
    GES.init()
    for element, package in {
        "cudagaussblur": "the plugin or set GST_PLUGIN_PATH to its folder",
        "mp4mux": "gstreamer1.0-plugins-good",
        "x264enc": "gstreamer1.0-plugins-ugly",
        "avenc_aac": "gstreamer1.0-libav",
    }.items():
        if not Gst.ElementFactory.find(element):
            return f"GStreamer does not find {element}: install {package}"

    timeline = GES.Timeline.new_audio_video()
    # The result has this size and this rate, whatever the clips have.
    for track in timeline.get_tracks():
        if track.get_property("track-type") == GES.TrackType.VIDEO:
            track.set_restriction_caps(Gst.Caps("video/x-raw,width=640,height=360,framerate=30/1"))
    try:
        clip = add_clip(timeline.append_layer(), arguments.video)
    except GLib.Error as error:
        return f"{arguments.video}: {error.message}"
    add_blur(clip)
    timeline.commit()

    pipeline = GES.Pipeline()
    pipeline.set_timeline(timeline)
    pipeline.set_render_settings(Gst.filename_to_uri(os.path.abspath(arguments.result)), mp4())
    pipeline.set_mode(GES.PipelineFlags.RENDER)
    pipeline.set_state(Gst.State.PLAYING)
    try:
        ends = Gst.MessageType.ERROR | Gst.MessageType.EOS
        message = pipeline.get_bus().timed_pop_filtered(Gst.CLOCK_TIME_NONE, ends)
        if message.type == Gst.MessageType.ERROR:
            error, details = message.parse_error()
            return f"{arguments.result}: {error.message}\n{details}"
    finally:
        pipeline.set_state(Gst.State.NULL)
    print(f"wrote {clip.get_duration() / Gst.SECOND:.1f} s to {arguments.result}")
    return None


if __name__ == "__main__":
    sys.exit(main())
