# SPDX-License-Identifier: MPL-2.0
"""Decides which streams and tags of an input its result gets, and names everything that it does not get."""

import os
import pathlib

from gi.repository import GLib, Gst, GstPbutils

from .orientation import unknown_turn
from .play import Stuck, play, stop
from .terminal import Interrupted, Refused, count, signals

# Tags that the result gets. Other tags may show or name what is covered, such as a cover picture, a comment or a place.
TAGS = {Gst.TAG_TITLE, Gst.TAG_ARTIST, Gst.TAG_ALBUM, Gst.TAG_DATE, Gst.TAG_DATE_TIME, Gst.TAG_LANGUAGE_CODE, Gst.TAG_BITRATE,
        Gst.TAG_CODEC, Gst.TAG_VIDEO_CODEC, Gst.TAG_AUDIO_CODEC}
# Tags that the result does not need, because its pictures are already turned and its streams are new.
NEEDLESS_TAGS = {Gst.TAG_LANGUAGE_NAME, Gst.TAG_IMAGE_ORIENTATION, Gst.TAG_APPLICATION_NAME, Gst.TAG_TRACK_NUMBER, Gst.TAG_TRACK_COUNT,
                 "has-crc", "container-specific-track-id"}
# Bits of a sample by bits of a pixel, for samples of more than 8 bits; and the bits of pixels that have alpha.
DEEP, ALPHA = {30: 10, 36: 12, 40: 10, 48: 12, 64: 16}, {32, 40, 48, 64}
NOTHING = "nothing was decoded in 10 s: it is cut off or damaged; try to play it"
NO_PICTURES = "it has no pictures, is cut off before the first one, or no decoder for them is installed"


class Input:
    """A video file, and what its result does not get from it."""

    def __init__(self, path):
        if not os.path.isfile(path):
            raise Refused("there is no such file")
        # GStreamer would not distinguish a file without read permission from a damaged one.
        with open(path, "rb") as file:
            if turned := unknown_turn(file):
                raise Refused(f"players turn or mirror its pictures, which GStreamer does not: {turned}")
        self.uri = pathlib.Path(path).absolute().as_uri()
        info = self.discover()
        self.lacking = [detail.split("|")[3] for detail in info.get_missing_elements_installer_details()]
        # Of MPEG program streams the discoverer lists a stream twice: before it is parsed, without an ID, too.
        streams = info.get_stream_list()
        streams = [stream for stream in streams if stream.get_stream_id()] or streams
        videos = [stream for stream in streams if isinstance(stream, GstPbutils.DiscovererVideoInfo)]
        if not videos and self.lacking:
            raise Refused(f"GStreamer has no {self.lacking[0]}: on Debian and Ubuntu install gstreamer1.0-libav and "
                          "gstreamer1.0-plugins-bad")
        if not videos:
            raise Refused(NO_PICTURES)
        self.duration = info.get_duration() if info.get_duration() != Gst.CLOCK_TIME_NONE else 0
        # Chooses the longest track, because others may be previews.
        pictures = self.count_pictures() if len(videos) > 1 else {}
        video = max(videos, key=lambda stream: pictures.get(stream.get_stream_id(), 0))
        self.video, depth = video.get_stream_id(), video.get_depth()
        self.bits, self.has_alpha = DEEP.get(depth, 8), depth in ALPHA
        names = {"audio": "sound", "unknown": "data"}
        self.streams = {stream.get_stream_id(): names.get(stream.get_stream_type_nick(), stream.get_stream_type_nick())
                        for stream in streams}
        self.streams |= {name: f"another video track, of {count(number, 'picture')}" for name, number in pictures.items()}
        # Demuxers add the tags of the file to those of each stream. Tags of other kinds describe how a stream is encoded.
        tags = set().union(*(names_of(stream.get_tags()) for stream in (info.get_stream_info(), *streams)))
        tags = sorted(Gst.tag_get_nick(name) for name in tags - TAGS - NEEDLESS_TAGS if Gst.tag_get_flag(name) == Gst.TagFlag.META)
        self.others = ["chapters"] * bool(info.get_toc()) + [f"tags ({', '.join(tags)})"] * bool(tags)

    def discover(self):
        """Returns what GStreamer finds in the file."""
        discoverer, found = GstPbutils.Discoverer.new(10 * Gst.SECOND), []
        handler = discoverer.connect("discovered", lambda _, info, error: found.append((info, error)))
        discoverer.start()
        discoverer.discover_uri_async(self.uri)
        # Wakes the loop below, so that it sees signals.
        GLib.timeout_add(100, lambda: not found and not signals)
        while not found and not signals:
            GLib.MainContext.default().iteration(True)
        if not stop(discoverer.stop) and not signals:
            raise Stuck("GStreamer does not finish looking at it, so the program ends")
        discoverer.disconnect(handler)
        if signals:
            raise Interrupted
        info, error = found[0]
        result = GstPbutils.DiscovererResult
        if info.get_result() == result.ERROR:
            raise Refused("it is not a video, or it is damaged from the first byte on: try to play it"
                          if error.matches(Gst.stream_error_quark(), Gst.StreamError.TYPE_NOT_FOUND)
                          or error.matches(Gst.stream_error_quark(), Gst.StreamError.WRONG_TYPE) else NO_PICTURES)
        # decodebin may lose the error of a demuxer that finds nothing in an incomplete file.
        if info.get_result() in (result.TIMEOUT, result.BUSY):
            raise Refused(NOTHING)
        return info

    def count_pictures(self):
        """Returns the number of pictures in each video track."""
        pictures, pipeline = {}, Gst.parse_launch("urisourcebin name=source ! parsebin name=parse")
        pipeline.get_by_name("source").set_property("uri", self.uri)

        def add(_, pad):
            sink = Gst.ElementFactory.make("fakesink")
            sink.set_property("async", False)
            pipeline.add(sink)
            sink.sync_state_with_parent()
            pad.link(sink.get_static_pad("sink"))
            caps = (pad.get_current_caps() or pad.query_caps()).to_string()
            if caps.startswith(("video/", "image/")):
                pictures[pad.get_stream_id()] = 0
                pad.add_probe(Gst.PadProbeType.BUFFER, count_one)

        def count_one(pad, _):
            pictures[pad.get_stream_id()] += 1
            return Gst.PadProbeReturn.OK

        pipeline.get_by_name("parse").connect("pad-added", add)
        try:
            play(pipeline, lambda _: sum(pictures.values()))
        except Stuck:
            raise
        except Refused:
            # The part before the damage is equally long in all tracks.
            pass
        if len(pictures) < 2:
            raise Refused("it has several video tracks whose pictures cannot be counted: copy the track to cover to a file of its own")
        return pictures

    def left_out(self, used, captions):
        """Returns a sentence about everything that is not in a result with the streams `used`, as a list of one or none.
        `captions` says whether the pictures had closed captions."""
        lacks = [kind for name, kind in self.streams.items() if name not in used and kind != "container"]
        lacks = [f"{kind} ({lacks.count(kind)} streams)" if lacks.count(kind) > 1 else kind for kind in dict.fromkeys(lacks)]
        lacks += ["closed captions"] * captions + self.others + [f"a stream for which GStreamer has no {name}" for name in self.lacking]
        return [f"left out: {', '.join(lacks)}"] if lacks else []


def names_of(tags):
    return {tags.nth_tag_name(number) for number in range(tags.n_tags())} if tags else set()
