#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""Covers faces, number plates, people, backgrounds or whole pictures in many videos, and reports which seconds to look at.

    examples/hide.py ~/Videos                           faces in all videos of a folder, into the folder covered
    examples/hide.py a.mp4 b.mov -o out --hide plates

Needs, on Debian and Ubuntu: python3-gi python3-gst-1.0 gir1.2-gst-plugins-base-1.0 gstreamer1.0-plugins-good
gstreamer1.0-plugins-ugly (x264enc) gstreamer1.0-libav; for faces what scripts/models downloads (with python3-pip); for people and
backgrounds python3-numpy and what `scripts/models people` downloads; for plates gstreamer1.0-opencv and opencv-data; and the
plugins, installed or in GST_PLUGIN_PATH:

    scripts/models && cargo build --release && GST_PLUGIN_PATH=target/release examples/hide.py input.mp4
"""

import argparse
import base64
import errno
import fcntl
import gc
import json
import math
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

# Until a result is begun, nothing has to be removed. A shell makes programs in the background ignore it.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

try:
    import gi
except ImportError:
    sys.exit(f"{sys.executable} has no PyGObject: install python3-gi and run this with the distribution's /usr/bin/python3")

try:
    gi.require_version("Gst", "1.0")
    gi.require_version("GstVideo", "1.0")
    from gi.repository import GLib, Gst, GstVideo
    import gi.overrides.Gst
except (ImportError, ValueError) as error:
    sys.exit(f"{error}: install python3-gst-1.0 and gir1.2-gst-plugins-base-1.0")

from hide_report import GENERATOR, Report, count, is_empty, page, printable

DETECTORS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "python")
PLATES = "/usr/share/opencv4/haarcascades/haarcascade_russian_plate_number.xml"
EXTENSIONS = set(".3g2 .3gp .asf .avi .divx .dv .f4v .flv .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .mxf .ogv .ts .vob .webm "
                 ".wmv".split())
# The index has a line of JSON for each result that was made and for each that failed. The last one of a result counts.
INDEX, PAGE = "hide-index.jsonl", "report.html"
KEYS = {"result", "input", "state", "options", "made", "table", "failure"}
# Prefix of the files that are being written.
PART = ".hide-"
UMASK = os.umask(0)
os.umask(UMASK)
# Frames that wait between two threads.
QUEUE = "queue max-size-buffers=4 max-size-bytes=0 max-size-time=0"
# Defaults of each job. With `doubts`, the seconds in which an object may show are reported.
JOBS = {
    "faces": dict(detector="centerface", every=5, threshold=0.2, search_size=640, cover="mosaic", doubts=True,
                  elements="region-mode=inside look-ahead=15"),
    # facedetect attaches nothing to frames without a plate.
    "plates": dict(cover="fill", doubts=True, elements="region-mode=inside look-ahead=15 on-missing=pass"),
    "people": dict(detector="selfiesegmentation", every=1, threshold=0.25, cover="mosaic",
                   elements="region-mode=inside shape=mask grow=8"),
    "background": dict(detector="selfiesegmentation", every=1, threshold=0.25, cover="blur", sigma=20,
                       elements="region-mode=outside shape=mask grow=4 expand=0"),
    "everything": dict(sigma=5, elements="region-mode=frame"),
}
# Muxers: the extension, encoders of sound, and sound that is copied.
MP4 = ("mp4mux", ".mp4", ("avenc_aac", "fdkaacenc", "voaacenc"),
       ("audio/mpeg,mpegversion=4,framed=true,stream-format=raw", "audio/mpeg,mpegversion=1,layer=3,parsed=true",
        "audio/x-ac3,framed=true", "audio/x-alac", "audio/x-opus,channel-mapping-family=[0,255]"))
WEBM = ("webmmux", ".webm", ("opusenc", "vorbisenc"), ("audio/x-opus,channel-mapping-family=[0,255]", "audio/x-vorbis"))
# Encoders with a quality instead of a rate, the best first: those of a GPU leave the processor to the detector. With a keyframe
# in 60 frames players jump to a doubtful second at once.
ENCODERS = (
    ("nvh264enc", "rc-mode=constqp qp-const=21 gop-size=60 ! h264parse", MP4),
    ("nvh264enc", "rate-control=constqp qp-const-i=21 qp-const-p=21 qp-const-b=21 gop-size=60 ! h264parse", MP4),
    ("vah264enc", "rate-control=cqp qpi=21 qpp=21 qpb=21 key-int-max=60 ! h264parse", MP4),
    ("vaapih264enc", "rate-control=cqp init-qp=21 keyframe-period=60 ! h264parse", MP4),
    ("x264enc", "pass=quant quantizer=21 speed-preset=veryfast key-int-max=60", MP4),
    ("vp8enc", "deadline=1 cpu-used=8 max-quantizer=20 target-bitrate=4000000 keyframe-max-dist=60", WEBM),
)
# Tags of the whole file that are copied. Others, such as its cover picture and its place, may show what is covered.
TAGS = Gst.TAG_TITLE, Gst.TAG_ARTIST, Gst.TAG_ALBUM, Gst.TAG_DATE, Gst.TAG_DATE_TIME
PICTURES = Gst.TAG_IMAGE, Gst.TAG_PREVIEW_IMAGE, Gst.TAG_ATTACHMENT
# Maximum number of pictures of a result on the page: those of the worst doubts.
MOST_PICTURES = 20
NO_PICTURES = "it has no pictures, is cut off before the first one, or no decoder for them is installed"
signals = []


class Refused(Exception):
    """A sentence for the user, about one file or, from Setup and Folder, about all."""


class Full(Refused):
    """The disk of the results is full."""


class Interrupted(Exception):
    """A signal ends the batch."""


def on_signal(number, _):
    signals.append(number)
    # A second one ends the program at once.
    signal.signal(number, signal.SIG_DFL)


class Terminal:
    """Sentences on standard output, failures on standard error; and the progress of the batch: a line that changes on a terminal,
    elsewhere one in ten seconds."""

    def __init__(self):
        self.is_live = sys.stderr is not None and sys.stderr.isatty()
        self.shown = self.started = time.monotonic()
        # Bytes of the inputs: of all that are not done when the batch begins, and of those done since.
        self.total = self.done = 0

    @staticmethod
    def write(stream, text):
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError, AttributeError):
            # Nobody reads it any more. The results still count.
            pass

    def say(self, text, is_failure=False):
        if self.is_live:
            self.write(sys.stderr, "\r\x1b[K")
        self.write(sys.stderr if is_failure else sys.stdout, text + "\n")

    def progress(self, text, current=0, at_once=False):
        """`current`: how many bytes of the current input are done, as the time in the video says."""
        now = time.monotonic()
        if not at_once and now - self.shown < (0.2 if self.is_live else 10):
            return
        self.shown = now
        share = min(1, (self.done + current) / self.total) if self.total else 0
        if share and now - self.started > 2:
            left = (now - self.started) * (1 / share - 1)
            left = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min" if left < 6000 else f"{left / 3600:.1f} h"
            text = f"{100 * share:.0f} %, about {left} left; {text}"
        bar = "#" * int(share * 20) + "." * (20 - int(share * 20))
        line = f"[{bar}] {text}"[:shutil.get_terminal_size().columns - 1]
        self.write(sys.stderr, f"\r{line}\x1b[K" if self.is_live else text + "\n")


def play(pipeline, each=lambda message: None):
    """Plays to the end and calls `each` with every message, and with None if a tenth of a second brings none. It returns how many
    frames have come, so that a pipeline that does not move is noticed."""
    patience, heard, frames = 120, time.monotonic(), None
    bus = pipeline.get_bus()
    pipeline.set_state(Gst.State.PLAYING)
    try:
        while True:
            message = bus.timed_pop(Gst.SECOND // 10)
            if signals:
                raise Interrupted
            if message is not None and message.type == Gst.MessageType.EOS:
                return
            if message is not None and message.type == Gst.MessageType.ERROR:
                raise failure(message.parse_error()[0])
            before, frames = frames, each(message)
            if frames != before:
                heard = time.monotonic()
            elif time.monotonic() - heard > patience:
                raise Refused(f"no frame came for {patience} s: try it alone, with --no-sound or --backend cpu")
    finally:
        pipeline.set_state(Gst.State.NULL)


def failure(error):
    """An error of GStreamer as a sentence."""
    if (error.domain, error.code) == ("gst-resource-error-quark", Gst.ResourceError.NO_SPACE_LEFT):
        return Full()
    text = error.message.strip().rstrip(".")
    if (error.domain, error.code) == ("gst-core-error-quark", Gst.CoreError.MISSING_PLUGIN):
        return Refused(NO_PICTURES)
    if error.domain == "gst-stream-error-quark":
        if error.code in (Gst.StreamError.TYPE_NOT_FOUND, Gst.StreamError.WRONG_TYPE):
            return Refused("it is not a video, or it is damaged from the first byte on: try to play it")
        return Refused(f"it cannot be read to the end ({text}): it is damaged, or needs another decoder; try to play it")
    return Refused(text)


class Setup:
    """What all files have in common: the elements that cover, and the encoder. They work once this exists."""

    def __init__(self, arguments):
        job = JOBS[arguments.hide]
        self.detector, self.has_doubts, self.sound = job.get("detector"), "doubts" in job, not arguments.no_sound
        names = "cover", "sigma", "every", "threshold", "search_size"
        chosen = {name: value for name in names if (value := getattr(arguments, name)) is not None}
        if unused := [name for name in chosen if name != "sigma" and name not in job]:
            raise Refused(f"--{unused[0].replace('_', '-')} does not apply to --hide {arguments.hide}: leave it out")
        settings = {name: job[name] for name in names if name in job} | chosen
        self.every = settings.get("every", 1)
        # A result of the same options is not made again.
        self.options = settings | dict(hide=arguments.hide, kernel=arguments.kernel_size, size=arguments.size, sound=self.sound)
        width, height = arguments.size or (32766, 32766)
        # As a viewer sees it: turned as the file says, with square pixels, and of an even size, because 4:2:0 needs that.
        self.upright = ("videoconvert ! videoflip video-direction=auto ! videoscale ! video/x-raw,format=I420,"
                        f"width=[2,{width},2],height=[2,{height},2],pixel-aspect-ratio=1/1")
        blur = (f"cudagaussblur name=blur post-messages=true backend={arguments.backend} kernel-size={arguments.kernel_size} "
                f"{job['elements']}") + "".join(f" {name}={settings[name]}" for name in ("cover", "sigma") if name in settings)
        if self.detector:
            self.find_detector()
            detect = f"{self.detector} name=detector" + "".join(
                f" {name}={settings[name]}" for name in ("every", "threshold") if name in settings)
            if "search_size" in settings:
                detect += f" size={settings['search_size']}"
            self.chain = f"{QUEUE} ! {detect} ! {QUEUE} ! {blur}"
        elif arguments.hide == "plates":
            if not Gst.ElementFactory.find("facedetect") or not os.path.exists(PLATES):
                raise Refused("plates need the element facedetect and OpenCV's cascades: "
                              "on Debian and Ubuntu install gstreamer1.0-opencv and opencv-data")
            self.chain = (f"{QUEUE} ! videoconvert ! facedetect display=false updates=none profile={PLATES} ! {QUEUE} ! {blur} ! "
                          f"{QUEUE} ! videoconvert")
        else:
            self.chain = f"{QUEUE} ! {blur}"
        self.try_out(f"{self.upright} ! {self.chain} ! fakesink")
        encoders = [encoder for encoder in ENCODERS if self.works(*encoder)]
        if not encoders:
            raise Refused("GStreamer has no encoder for the results: on Debian and Ubuntu install gstreamer1.0-plugins-good "
                          "(mp4mux) and gstreamer1.0-plugins-ugly (x264enc)")
        self.extension = encoders[0][2][1]
        # The others serve if the first one fails: an encoder of a GPU does not take every size.
        self.encoders = [encoder for encoder in encoders if encoder[2] is encoders[0][2]]

    def find_detector(self):
        """Registers selfiesegmentation, which is written in Python, so that GStreamer's loader of Python plugins is not needed."""
        if Gst.ElementFactory.find(self.detector):
            return
        if self.detector == "centerface":
            raise Refused("GStreamer does not find centerface: install its plugin, libgstdetectors.so, or set GST_PLUGIN_PATH to its "
                          "folder")
        sys.path.insert(0, DETECTORS)
        try:
            import selfiesegmentation
        except (ImportError, ValueError) as error:
            raise Refused(f"the detector selfiesegmentation cannot be loaded ({error}): install the packages that the header of "
                          "hide.py names") from None
        Gst.Element.register(None, *selfiesegmentation.__gstelementfactory__)

    @staticmethod
    def try_out(elements):
        try:
            play(Gst.parse_launch("videotestsrc num-buffers=3 ! "
                                  f"video/x-raw,format=I420,width=320,height=240,framerate=30/1 ! {elements}"))
        except GLib.Error as error:
            raise Refused(error.message) from None

    def works(self, encoder, settings, muxer):
        if not all(Gst.ElementFactory.find(name) for name in (encoder, muxer[0])):
            return False
        try:
            self.try_out(f"videoconvert ! {encoder} {settings} ! {muxer[0]} ! fakesink")
        except Refused:
            return False
        return True


class Work:
    """The pipeline that covers one file and writes the result to an open file."""

    def __init__(self, setup, encoder, video, descriptor, with_sound):
        element, settings, (muxer, _, self.sound_encoders, copied) = encoder
        self.setup, self.report, self.notes = setup, Report(setup.every), []
        self.has_sound, self.lacking, self.duration = False, [], 0
        self.decoded = self.encoded = 0
        # Of the frames that the blur has pushed, of those that the encoder has received, and of those that it is to receive.
        self.size = self.encoded_size = self.next_size = None
        # Timestamps of the frames that left the blur, and of those that it posted a message about.
        self.pushed, self.posted = [], []
        # uridecodebin decodes down to these formats, and no stream, such as subtitles, that comes to none of them.
        formats = ["video/x-raw(ANY)"] + (["audio/x-raw(ANY)", *copied] if with_sound else [])
        self.pipeline = Gst.parse_launch(
            f'uridecodebin name=input caps="{";".join(formats)}" expose-all-streams=false {QUEUE} name=video ! {setup.upright} ! '
            f"{setup.chain} ! video/x-raw,format=I420 ! {QUEUE} ! videoconvert ! {element} name=encoder {settings} ! "
            f"{muxer} name=mux ! fdsink name=file fd={descriptor}")
        self.input, self.video, self.blur = (self.pipeline.get_by_name(name) for name in ("input", "video", "blur"))
        self.input.set_property("uri", pathlib.Path(video).absolute().as_uri())
        self.handlers = [self.input.connect("pad-added", self.add_stream), self.input.connect("no-more-pads", self.check_streams)]
        self.probes = []
        self.keep_tags(self.pipeline.get_by_name("encoder").get_static_pad("sink"))
        self.watch("encoder", "sink", lambda buffer: setattr(self, "encoded_size", self.next_size))
        self.watch("video", "sink", lambda buffer: setattr(self, "decoded", self.decoded + 1))
        self.watch("blur", "src", lambda buffer: self.pushed.append(buffer.pts))
        self.watch("encoder", "src", lambda buffer: setattr(self, "encoded", self.encoded + 1))

    def watch(self, element, pad, each):
        """Calls `each` with the buffers of a pad."""
        def probe(_, info):
            each(info.get_buffer())
            return Gst.PadProbeReturn.OK
        pad = self.pipeline.get_by_name(element).get_static_pad(pad)
        self.probes.append((pad, pad.add_probe(Gst.PadProbeType.BUFFER, probe)))

    def keep_tags(self, pad):
        """Lets the tags of a stream pass, such as its language, unless they have a picture. Those of the whole file become the
        muxer's."""
        def probe(_, info):
            event = info.get_event()
            if event.type == Gst.EventType.CAPS and pad.get_parent_element() == self.pipeline.get_by_name("encoder"):
                self.check_size(event.parse_caps())
            if event.type != Gst.EventType.TAG:
                return Gst.PadProbeReturn.OK
            tags = event.parse_tag()
            if tags.get_scope() == Gst.TagScope.GLOBAL:
                for tag in TAGS:
                    if tags.get_tag_size(tag):
                        self.pipeline.get_by_name("mux").add_tag_value(Gst.TagMergeMode.KEEP, tag, tags.get_value_index(tag, 0))
                return Gst.PadProbeReturn.DROP
            return Gst.PadProbeReturn.DROP if any(tags.get_tag_size(tag) for tag in PICTURES) else Gst.PadProbeReturn.OK
        self.probes.append((pad, pad.add_probe(Gst.PadProbeType.EVENT_DOWNSTREAM, probe)))

    def check_size(self, caps):
        """MP4 has one size for the whole video. Caps before the first frame may be those of a picture that is not turned yet."""
        picture = GstVideo.VideoInfo.new_from_caps(caps)
        self.next_size = picture.width, picture.height
        if self.encoded_size not in (None, self.next_size):
            self.input.post_message(Gst.Message.new_application(self.input, Gst.Structure.new_empty("new-size")))

    def close(self):
        """Frees the pipeline, which Python and GStreamer otherwise keep for each other."""
        for handler in self.handlers:
            self.input.disconnect(handler)
        for pad, probe in self.probes:
            pad.remove_probe(probe)
        self.pipeline = self.input = self.video = self.blur = self.probes = None
        gc.collect()

    def add_stream(self, _, pad):
        caps = (pad.get_current_caps() or pad.query_caps()).to_string()
        sink = self.video.get_static_pad("sink")
        try:
            if caps.startswith("audio/"):
                self.add_sound(pad, caps)
            elif sink.is_linked():
                self.notes.append("only the first of its pictures is in the result")
            else:
                pad.link(sink)
        except (Gst.LinkError, GLib.Error) as error:
            self.notes.append(f"a stream is left out, because it cannot be converted ({error})")

    def add_sound(self, pad, caps):
        """Copies sound that the muxer takes, and encodes other."""
        last = pad
        if caps.startswith("audio/x-raw"):
            encoder = next(filter(Gst.ElementFactory.find, self.sound_encoders), None)
            if not encoder:
                self.notes.append(f"sound is left out: install one of {', '.join(self.sound_encoders)} to encode it")
                return
            branch = Gst.parse_bin_from_description(f"audioconvert ! audioresample ! {encoder}", True)
            self.pipeline.add(branch)
            branch.sync_state_with_parent()
            pad.link(branch.get_static_pad("sink"))
            last = branch.get_static_pad("src")
        # The muxer waits for what is linked.
        self.keep_tags(last)
        last.link(self.pipeline.get_by_name("mux").request_pad_simple("audio_%u"))
        self.has_sound = True

    def check_streams(self, _):
        """The muxer would wait for the pictures of a file without any."""
        if not self.video.get_static_pad("sink").is_linked():
            self.input.post_message(Gst.Message.new_application(self.input, Gst.Structure.new_empty("no-video")))

    def run(self, progress):
        """Returns when the result is complete. Else raises Refused."""
        def each(message):
            kind = message.get_structure().get_name() if message is not None and message.get_structure() else ""
            if kind == "cudagaussblur" and message.src == self.blur:
                if self.size is None:
                    picture = GstVideo.VideoInfo.new_from_caps(self.blur.get_static_pad("src").get_current_caps())
                    self.size = picture.width, picture.height
                self.posted.append(message.get_structure().get_uint64("timestamp")[1])
                self.report.update(message.get_structure(), self.size)
            elif kind == "missing-plugin":
                self.lacking.append(message.get_structure().get_string("name"))
            elif kind == "no-video":
                raise Refused(NO_PICTURES)
            elif kind == "new-size":
                raise Refused("its pictures change their size: cut it there, and cover the parts")
            self.duration = self.duration or max(0, self.video.get_static_pad("sink").peer_query_duration(Gst.Format.TIME)[1])
            progress(len(self.pushed), self.pushed[-1] / self.duration if self.pushed and self.duration else 0)
            return self.decoded + self.encoded

        try:
            play(self.pipeline, each)
        except Full:
            raise
        except Refused as refused:
            if not self.decoded and self.lacking:
                raise Refused(f"GStreamer has no {self.lacking[0]}: on Debian and Ubuntu install gstreamer1.0-libav and "
                              "gstreamer1.0-plugins-bad") from None
            raise refused
        self.notes += [f"sound is left out: GStreamer has no {name}" for name in self.lacking]
        if not self.encoded:
            raise Refused(NO_PICTURES)
        is_told = self.posted == self.pushed or self.setup.options["hide"] == "everything"
        if not is_told or not self.decoded == len(self.pushed) == self.encoded:
            raise Refused(f"of {count(self.decoded, 'frame')} {len(self.pushed)} were covered and {self.encoded} written: "
                          "that is an error of this program; please report it")
        self.report.finish()
        end = max(self.report.end, self.pushed[-1])
        if self.duration - end > max(2 * Gst.SECOND, self.duration // 20):
            whole = self.duration / Gst.SECOND
            self.notes.append(f"only {end / Gst.SECOND:.1f} s of {whole:.1f} s have pictures: is it complete?")
        if self.report.whole:
            self.notes.append(f"{count(self.report.whole, 'frame')} without detections are covered as a whole")


def take_pictures(video, times):
    """The frames of a result that are shown at these times, as small JPEGs in base64; None of those that cannot be read."""
    try:
        pipeline = Gst.parse_launch(
            "uridecodebin name=input caps=video/x-raw(ANY) expose-all-streams=false ! videoconvert ! videoscale ! "
            "video/x-raw,width=[1,320],height=[1,320],pixel-aspect-ratio=1/1 ! videoconvert ! jpegenc quality=75 ! "
            "appsink name=picture sync=false max-buffers=1")
    except GLib.Error:
        return {}
    pipeline.get_by_name("input").set_property("uri", pathlib.Path(video).absolute().as_uri())
    sink, pictures = pipeline.get_by_name("picture"), {}
    pipeline.set_state(Gst.State.PAUSED)
    try:
        for moment in sorted(times):
            if signals:
                raise Interrupted
            pictures[moment] = None
            pipeline.get_state(10 * Gst.SECOND)
            # Into the frame, because files round times.
            flags = Gst.SeekFlags.FLUSH | Gst.SeekFlags.ACCURATE
            if pipeline.seek_simple(Gst.Format.TIME, flags, moment + Gst.MSECOND):
                if sample := sink.emit("try-pull-preroll", 10 * Gst.SECOND):
                    buffer = sample.get_buffer()
                    pictures[moment] = base64.b64encode(buffer.extract_dup(0, buffer.get_size())).decode()
    finally:
        pipeline.set_state(Gst.State.NULL)
    return pictures


def state(path):
    """The size and the time of a file; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


def is_same(before, now):
    """Whether a file is as it was. Some disks keep times to two seconds."""
    return bool(before and now) and before[0] == now[0] and abs(before[1] - now[1]) <= 2 * 10**9


class Folder:
    """The folder of the results, with its index."""

    def __init__(self, path):
        self.path = path
        if os.path.lexists(self.inside(PAGE)) and not self.has_own_page():
            raise Refused(f"{printable(self.inside(PAGE))} is not of this program: move it away, or name another folder with --out")
        try:
            os.makedirs(path, exist_ok=True)
            self.is_new = not os.path.lexists(self.inside(INDEX))
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self.index = open(os.open(self.inside(INDEX), flags, 0o666), "a+", encoding="utf-8", errors="replace")
            fcntl.flock(self.index, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"another hide.py writes to {printable(path)}: wait for it, or name another folder with --out") \
                from None
        except OSError as error:
            raise Refused(f"{printable(path)} cannot be written ({error.strerror}): name another folder with --out") from None
        # Of a run that was killed. No other one writes here now.
        for place, folders, files in os.walk(path):
            folders[:] = [name for name in folders if not os.path.lexists(os.path.join(place, name, INDEX))]
            for name in files:
                if name.startswith(PART) and name.endswith(".part"):
                    os.unlink(os.path.join(place, name))
        # By result, the latest line of the index, and the states in which this program has left the result and its table.
        self.entries, self.made, self.tables = {}, {}, {}
        self.index.seek(0)
        lines = self.index.read().split("\n")
        for line in filter(None, lines):
            try:
                entry = json.loads(line)
                if not KEYS <= set(entry) or os.path.normpath(entry["result"]).startswith(("..", "/")):
                    raise ValueError
                self.remember(entry)
            except (ValueError, KeyError, TypeError, AttributeError):
                # It was being written when a run was killed.
                continue
        if lines[-1]:
            self.index.write("\n")

    def inside(self, name):
        return os.path.join(self.path, name)

    def has_own_page(self):
        try:
            with open(self.inside(PAGE), encoding="utf-8", errors="replace") as file:
                return GENERATOR in file.read(1000)
        except OSError:
            return False

    def remember(self, entry):
        if entry["made"]:
            self.made.setdefault(entry["result"], []).append(entry["made"])
            self.tables.setdefault(entry["result"], []).append(entry["table"])
        self.entries[entry["result"]] = entry

    def add(self, entry):
        self.index.write(json.dumps(entry) + "\n")
        self.index.flush()
        os.fsync(self.index.fileno())
        self.remember(entry)

    def is_own(self, result, name, states):
        """Whether a file with the name of a result, or of its table, is as this program has left it."""
        return any(is_same(made, state(self.inside(name))) for made in states.get(result, []))

    def is_done(self, result, video, options):
        """Whether a result is that of the latest line of the index, or of somebody who has changed it."""
        entry = self.entries.get(result)
        is_older = (self.is_own(result, result, self.made)
                    and not is_same(entry["made"], state(self.inside(result))))
        return (entry is not None and not entry["failure"] and os.path.isfile(self.inside(result)) and not is_older
                and entry["options"] == options and is_same(entry["state"], state(video)))

    def write_page(self):
        """About all results that are in the folder, of whichever run. A folder without any is left as it was found."""
        if not self.made:
            if self.is_new:
                os.unlink(self.inside(INDEX))
            return
        entries = [entry for name, entry in sorted(self.entries.items())
                   if os.path.exists(self.inside(name) if not entry["failure"] else entry["input"])]
        try:
            put(write_part(self.inside(PAGE), page(entries)), self.inside(PAGE))
        except OSError as error:
            print(f"{printable(self.inside(PAGE))} cannot be written: {error.strerror}", file=sys.stderr)


def new_part(path):
    """A new file beside another one, open, and its name."""
    descriptor, part = tempfile.mkstemp(prefix=PART, suffix=".part", dir=os.path.dirname(path) or ".")
    os.chmod(part, 0o666 & ~UMASK)
    return descriptor, part


def put(part, path):
    """Gives a complete file its name, also if the power fails afterwards."""
    os.replace(part, path)
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def write_part(path, text):
    """A new complete file beside another one."""
    descriptor, part = new_part(path)
    with open(descriptor, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return part


def find_videos(arguments, folder):
    """The videos, each with the path of its result without extension; and sentences about arguments that are none."""
    videos, refused, skipped, seen = [], [], [], set()
    results = {os.path.realpath(folder.inside(name)) for name in folder.made if folder.is_own(name, name, folder.made)}

    def add(video, name):
        if (place := os.path.realpath(video)) not in seen | results:
            seen.add(place)
            videos.append((video, os.path.splitext(name)[0]))
        return True

    for argument in arguments:
        found = False
        if os.path.isdir(argument):
            unreadable = lambda error: refused.append(f"{printable(error.filename)} cannot be read: {error.strerror}")
            for place, folders, files in os.walk(argument, onerror=unreadable):
                # Folders with an index are those of results. os.walk follows no links to folders.
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                of_results = [name for name in folders if os.path.lexists(os.path.join(place, name, INDEX))]
                folders[:] = [name for name in folders if name not in of_results]
                skipped += [os.path.join(place, name) for name in of_results
                            if not os.path.samefile(os.path.join(place, name), folder.path)]
                for name in sorted(files):
                    video = os.path.join(place, name)
                    if not name.startswith(".") and os.path.splitext(name)[1].lower() in EXTENSIONS and os.path.isfile(video):
                        found = add(video, os.path.relpath(video, argument))
            if not found:
                refused.append(f"{printable(argument)}: no video is in this folder")
        elif os.path.realpath(argument) in results:
            refused.append(f"{printable(argument)}: this is a result of an earlier run; name its input")
        elif os.path.isfile(argument):
            add(argument, os.path.basename(argument))
        else:
            refused.append(f"{printable(argument)}: there is no such file or folder")
    refused += [f"{printable(place)}: it has results of another run and is not searched; name its files to cover them" for place in skipped]
    return videos, refused


def name_results(videos, folder, extension):
    """Triples of video, result and bytes. Results keep the folders below that which was searched, and are numbered where two have
    the same name; a video keeps the result of an earlier run."""
    before = {entry["input"]: name for name, entry in folder.entries.items() if name.endswith(extension)}
    # Some disks do not tell letters of different case apart.
    taken = {name.casefold() for name in before.values()}
    named = []
    for video, stem in videos:
        result = before.get(os.path.realpath(video))
        number = 1
        while result is None:
            name = f"{stem}-{number}{extension}" if number > 1 else stem + extension
            if name.casefold() not in taken:
                result = name
            number += 1
        taken.add(result.casefold())
        named.append((video, result, os.stat(video).st_size))
    return named


class Batch:
    def __init__(self, setup, folder, terminal, named, is_forced):
        self.setup, self.folder, self.terminal, self.is_forced = setup, folder, terminal, is_forced
        self.inputs = {(status.st_dev, status.st_ino) for video, _, _ in named for status in [os.stat(video)]}

    def check_result(self, result):
        """Refuses to replace what is not a result, or was changed since."""
        path = self.folder.inside(result)
        table = os.path.splitext(path)[0] + ".csv"
        advice = "name another folder with --out"
        if os.path.exists(path) and ((status := os.stat(path)).st_dev, status.st_ino) in self.inputs:
            raise Refused(f"its result would replace the input {printable(path)}: {advice}")
        for name in path, table:
            if os.path.isdir(name) or os.path.islink(name):
                raise Refused(f"its result cannot be written, because {printable(name)} is a folder or a link: {advice}")
            states = self.folder.made if name == path else self.folder.tables
            is_own = self.folder.is_own(result, os.path.relpath(name, self.folder.path), states)
            if os.path.lexists(name) and not is_own and not self.is_forced:
                raise Refused(f"{printable(name)} was not written by this program, or was changed since: move it away, {advice}, "
                              "or replace it with --force")

    def make(self, video, result, progress):
        """Makes a result. Returns its line of the index."""
        before = state(video)
        self.check_result(result)
        path = self.folder.inside(result)
        table = os.path.splitext(path)[0] + ".csv"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # GStreamer gets an open file: what it writes to is new, whatever its name is.
        descriptor, part = new_part(path)
        table_part = None
        try:
            work = self.write(video, descriptor, progress)
            doubts = work.report.doubts if self.setup.has_doubts else []
            worst = sorted(doubts, key=lambda doubt: doubt.rank())[:MOST_PICTURES]
            pictures = take_pictures(part, {doubt.shown for doubt in worst}) if worst else {}
            if state(video) != before:
                raise Refused("it changed while it was read: start the same command again")
            # Sorted by time, results lie as the inputs do.
            os.utime(descriptor, ns=(before[1], before[1]))
            os.fsync(descriptor)
            searched = self.setup.options["hide"] != "everything"
            table_part = write_part(table, work.report.table()) if self.setup.has_doubts else None
            entry = self.line(video, result, before, state(part), table=state(table_part) if table_part else None, frames=len(work.pushed), notes=work.notes,
                              seconds=max(work.report.end, work.pushed[-1]) / Gst.SECOND,
                              covered=work.report.covered if searched else None,
                              objects=len(work.report.objects) if self.setup.has_doubts else None,
                              doubtful=work.report.doubtful_seconds() if self.setup.has_doubts else 0,
                              doubts=[dict(sentence=doubt.sentence(), shown=doubt.shown, picture=pictures.get(doubt.shown))
                                      for doubt in doubts])
            # First, so that a result that exists is in the index, whenever the program is killed.
            self.folder.add(entry)
            if table_part:
                put(table_part, table)
            put(part, path)
            return entry
        finally:
            os.close(descriptor)
            for name in filter(None, (part, table_part)):
                if os.path.lexists(name):
                    os.unlink(name)

    def line(self, video, result, before, made, **values):
        return dict(result=result, input=os.path.realpath(video), state=before, options=self.setup.options, made=made,
                    table=values.pop("table", None), failure=values.pop("failure", None), **values)

    def write(self, video, descriptor, progress):
        """With the next encoder if one fails, and without sound if all do."""
        encoders, with_sound, reason = self.setup.encoders, self.setup.sound, None
        while True:
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            work = Work(self.setup, encoders[0], video, descriptor, with_sound)
            try:
                work.run(progress)
            except Full:
                raise
            except Refused as refused:
                if work.decoded and len(encoders) > 1:
                    encoders = encoders[1:]
                elif work.has_sound:
                    with_sound, reason = False, refused
                else:
                    raise
                continue
            finally:
                work.close()
            if reason:
                work.notes.append(f"sound is left out: with it, the result could not be written ({reason})")
            return work

    def run(self, named):
        """Makes all results. Returns the lines of the index of those that are in the folder, and the sentences of those that are
        not."""
        done, failed = [], []
        pending = [item for item in named if self.is_forced or not self.folder.is_done(item[1], item[0], self.setup.options)]
        self.terminal.started = time.monotonic()
        self.terminal.total = sum(size for _, _, size in pending)
        if len(pending) < len(named):
            self.terminal.say(f"{count(len(named) - len(pending), 'file')} already done")
        for video, result, size in named:
            if (video, result, size) not in pending:
                done.append(self.folder.entries[result])
                if not self.folder.is_own(result, result, self.folder.made):
                    self.terminal.say(f"{printable(self.folder.inside(result))} was changed since it was made, and stays so")
                continue
            started = time.monotonic()
            place = f"file {pending.index((video, result, size)) + 1} of {len(pending)}: {printable(video)}"

            def progress(frames, share):
                speed = frames / max(0.1, time.monotonic() - started)
                self.terminal.progress(f"{place}: {count(frames, 'frame')}, {speed:.0f} a second", share * size)

            self.terminal.progress(place, at_once=True)
            try:
                entry = self.make(video, result, progress)
            except (Refused, OSError) as error:
                sentence = str(error)
                if isinstance(error, OSError):
                    sentence = f"it cannot be read, or its result cannot be written: {error.strerror}"
                if isinstance(error, Full) or getattr(error, "errno", None) == errno.ENOSPC:
                    place = printable(self.folder.path)
                    raise Refused(f"the disk of {place} is full: make room and start the same command again") from None
                failed.append(f"{printable(video)}: {sentence}")
                self.terminal.say(failed[-1], True)
                self.folder.add(self.line(video, result, state(video), None, failure=sentence))
            else:
                done.append(entry)
                self.terminal.say(f"{printable(video)}: {outcome(entry)}")
            self.terminal.done += size
        return done, failed


def outcome(entry):
    """What became of a file."""
    parts = [count(entry["frames"], "frame")]
    if is_empty(entry):
        parts.append("nothing was found")
    elif entry["objects"] is not None:
        parts.append(f"{count(entry['objects'], 'object')} found, {entry['doubtful']:.1f} s doubtful")
    return "; ".join([", ".join(parts), *entry["notes"]])


def parse_arguments():
    parser = argparse.ArgumentParser(
        usage="%(prog)s [-h] [OPTIONS] FILE|FOLDER...", add_help=False,
        description="Covers faces, plates, people, backgrounds or all of the pictures of videos.\nInputs are never changed. "
                    "Started again, it skips the videos that are done.\nreport.html in DIR shows the seconds to look at before you "
                    "publish.",
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=21, width=80))
    parser.add_argument("inputs", nargs="+", metavar="FILE|FOLDER", help="videos, and folders to search for videos")
    parser.add_argument("-h", "--help", action="help", help="show this text")
    parser.add_argument("-o", "--out", metavar="DIR", default="covered", help="folder of the results; default: covered")
    parser.add_argument("--hide", choices=JOBS, default="faces", metavar="WHAT",
                        help="faces, plates, people, background, everything")
    parser.add_argument("--cover", choices=("blur", "mosaic", "fill"), metavar="HOW",
                        help="blur, mosaic (faces, people) or fill (plates)")
    parser.add_argument("--sigma", type=number(0, 1024), metavar="N", help="blur, in pixels; default: 20, faces by size")
    parser.add_argument("--kernel-size", type=int, default=0, metavar="N", help="taps of the blur, odd; 0: by sigma")
    parser.add_argument("--every", type=int, metavar="N", help="search one frame in N; default: 5 for faces, else 1")
    parser.add_argument("--threshold", type=number(0, 1), metavar="T", help="least certainty; default: 0.2 for faces, else 0.25")
    parser.add_argument("--search-size", type=int, metavar="N",
                        help="search in N pixels; default: 640; more: small faces")
    parser.add_argument("--size", type=size, metavar="WxH", help="scale down to fit into this, such as 1280x720")
    parser.add_argument("--force", action="store_true", help="make and replace results that are done")
    parser.add_argument("--no-sound", action="store_true", help="leave the sound out")
    parser.add_argument("--backend", choices=("auto", "cuda", "cpu"), default="auto", metavar="B",
                        help="of the cover: auto, cuda or cpu")
    arguments = parser.parse_args()
    if arguments.every is not None and not 1 <= arguments.every <= 1000:
        parser.error("--every takes a number from 1 to 1000")
    if arguments.search_size is not None and not 64 <= arguments.search_size <= 4096:
        parser.error("--search-size takes a number from 64 to 4096")
    if arguments.kernel_size and not (arguments.kernel_size % 2 and 0 < arguments.kernel_size <= 801):
        parser.error("--kernel-size takes 0 or an odd number up to 801")
    return arguments


def number(low, high):
    def parse(text):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {low} to {high}")
        return value
    return parse


def size(text):
    sides = text.split("x")
    if len(sides) != 2 or not all(side.isdecimal() and 16 <= int(side) <= 32766 for side in sides):
        raise argparse.ArgumentTypeError(f"{text} is not a width and a height from 16 up, such as 1280x720")
    return [int(side) for side in sides]


def main():
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
        setup = Setup(arguments)
        folder = Folder(arguments.out)
        videos, failed = find_videos(arguments.inputs, folder)
        for sentence in failed:
            terminal.say(sentence, True)
        named = name_results(videos, folder, setup.extension)
        done, refused = Batch(setup, folder, terminal, named, arguments.force).run(named)
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


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:
        trace = error.__traceback__
        while trace.tb_next:
            trace = trace.tb_next
        place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno}"
        sys.exit(f"hide.py has failed, please report it: {type(error).__name__}: {error} ({place})")
