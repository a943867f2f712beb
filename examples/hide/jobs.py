# SPDX-License-Identifier: MPL-2.0
"""What can be hidden: the elements that do it, and the encoder of the results."""

import functools
import os
import sys

from gi.repository import GLib, Gst

from .play import play
from .terminal import Refused

# Detections of centerface from this certainty on continue a cover. A new one begins from the job's threshold on.
WEAK = 0.2
DETECTORS = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "python")
PLATES = "/usr/share/opencv4/haarcascades/haarcascade_russian_plate_number.xml"
# Frames that wait between two threads.
QUEUE = "queue max-size-buffers=4 max-size-bytes=0 max-size-time=0"
# Defaults of each job. With `doubts`, the seconds in which an object may show are reported; with `deep`, samples of more than 8 bits
# keep 10.
JOBS = {
    "faces": dict(detector="centerface", every=4, threshold=0.3, search_size=640, cover="mosaic", doubts=True, deep=True,
                  elements="region-mode=inside look-ahead=20 expand=0.15"),
    # facedetect attaches nothing to frames without a plate.
    "plates": dict(cover="fill", doubts=True, elements="region-mode=inside look-ahead=15 on-missing=pass"),
    "people": dict(detector="selfiesegmentation", every=1, threshold=0.25, cover="mosaic",
                   elements="region-mode=inside shape=mask grow=8"),
    "background": dict(detector="selfiesegmentation", every=1, threshold=0.25, cover="blur", sigma=20,
                       elements="region-mode=outside shape=mask grow=4 expand=0"),
    "everything": dict(sigma=5, deep=True, elements="region-mode=frame"),
}
# Muxers: the extension, encoders of sound with the samples by which they delay it, and sound that is copied.
MP4 = ("mp4mux", ".mp4", {"avenc_aac": 1024, "voaacenc": 1600},
       ("audio/mpeg,mpegversion=4,framed=true,stream-format=raw", "audio/mpeg,mpegversion=1,layer=3,parsed=true",
        "audio/x-ac3,framed=true", "audio/x-alac", "audio/x-opus,channel-mapping-family=[0,255]"))
WEBM = ("webmmux", ".webm", {"opusenc": 0, "vorbisenc": 0}, ("audio/x-opus,channel-mapping-family=[0,255]", "audio/x-vorbis"))
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
# Of 10 bits, in H.265 as phones record it: wider known than H.264 of 10 bits.
DEEP_ENCODERS = (
    ("nvh265enc", "rc-mode=constqp qp-const=22 gop-size=60 ! h265parse", MP4),
    ("vah265enc", "rate-control=cqp qpi=22 qpp=22 qpb=22 key-int-max=60 ! h265parse", MP4),
    ("x265enc", "qp=22 speed-preset=ultrafast key-int-max=60 log-level=none ! h265parse", MP4),
)


class Setup:
    """What all files of a run have in common: the elements that cover, and the encoder. They work once this exists.

    `job` is a value of JOBS, and `settings` are those of its settings that the user has chosen. `blur` has more properties of
    cudagaussblur, `size` the largest width and height of results. `attach` is called with each pipeline before it plays."""

    def __init__(self, job, settings, blur="", size=None, sound=True, attach=None):
        names = [name for name in ("cover", "sigma", "every", "threshold", "search_size") if name in job]
        self.settings = {name: job[name] for name in names} | settings
        self.sound, self.size, self.attach = sound, size or (32766, 32766), attach
        self.detector, self.deep, self.has_doubts = job.get("detector"), job.get("deep"), "doubts" in job
        self.every = self.settings.get("every", 1)
        self.blur = f"cudagaussblur name=blur post-messages=true {job['elements']} {blur}" + "".join(
            f" {name}={self.settings[name]}" for name in ("cover", "sigma") if name in self.settings)
        if self.detector == "centerface":
            self.finder = (f"centerface name=detector every={self.every} size={self.settings['search_size']} "
                           f"threshold={min(WEAK, self.settings['threshold'])}")
            self.blur += f" min-confidence={self.settings['threshold']}"
        elif self.detector:
            self.finder = f"{self.detector} name=detector every={self.every} threshold={self.settings['threshold']}"
        elif job is JOBS["plates"]:
            if not Gst.ElementFactory.find("facedetect") or not os.path.exists(PLATES):
                raise Refused("plates need the element facedetect and OpenCV's cascades: "
                              "on Debian and Ubuntu install gstreamer1.0-opencv and opencv-data")
            self.finder = f"videoconvert ! facedetect name=detector display=false updates=none profile={PLATES}"
        else:
            self.finder = job.get("finder", "identity")
        if self.detector:
            self.find_detector()
        self.try_out(f"{self.elements('I420', 'identity' if attach else self.finder)} ! fakesink")
        encoders = [encoder for encoder in ENCODERS if self.works(encoder)]
        if not encoders:
            raise Refused("GStreamer has no encoder for the results: on Debian and Ubuntu install gstreamer1.0-plugins-good "
                          "(mp4mux) and gstreamer1.0-plugins-ugly (x264enc)")
        self.extension = encoders[0][2][1]
        # The others serve if the first one fails: an encoder of a GPU does not take every size.
        self.encoders = [encoder for encoder in encoders if encoder[2] is encoders[0][2]]

    def elements(self, format, finder):
        """From decoded frames to covered ones, as a viewer sees them: turned as the file says, with square pixels, and of an even
        size, because 4:2:0 needs that."""
        width, height = self.size
        return (f"videoconvert ! videoflip video-direction=auto ! videoscale ! video/x-raw,format={format},width=[2,{width},2],"
                f"height=[2,{height},2],pixel-aspect-ratio=1/1 ! {QUEUE} ! {finder} ! {QUEUE} ! {self.blur} ! {QUEUE} ! videoconvert")

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

    @functools.cached_property
    def deep_encoders(self):
        """Encoders of 10 bits, if there are any."""
        return [encoder for encoder in DEEP_ENCODERS if self.deep and encoder[2][1] == self.extension and self.works(encoder, "I420_10LE")]

    @staticmethod
    def try_out(elements, format="I420"):
        try:
            play(Gst.parse_launch("videotestsrc num-buffers=3 ! "
                                  f"video/x-raw,format={format},width=320,height=240,framerate=30/1 ! {elements}"))
        except GLib.Error as error:
            raise Refused(error.message) from None

    def works(self, encoder, format="I420"):
        element, settings, (muxer, *_) = encoder
        if not all(Gst.ElementFactory.find(name) for name in (element, muxer)):
            return False
        try:
            self.try_out(f"videoconvert ! {element} {settings} ! {muxer} ! fakesink", format)
        except Refused:
            return False
        return True
