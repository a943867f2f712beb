# SPDX-License-Identifier: MPL-2.0
"""The kinds of objects that can be hidden, the elements that hide them, and the encoders of the results."""

import functools
import os
from typing import NamedTuple

from gi.repository import GLib, Gst

from .play import play
from .terminal import Refused

# A detection of centerface with at least this confidence continues a cover. A new cover begins only with the threshold of the
# job.
WEAK = 0.2
PLATES = "/usr/share/opencv4/haarcascades/haarcascade_russian_plate_number.xml"
# A queue for the frames between two threads.
QUEUE = "queue max-size-buffers=4 max-size-bytes=0 max-size-time=0"
# NVDEC's formats, by the formats with the same samples in host memory.
ON_DEVICE = {"I420": "NV12", "I420_10LE": "P010_10LE"}
# The settings of jobs that a user may change.
SETTINGS = "cover", "sigma", "every", "threshold", "search_size"
PEOPLE = ("centerface every=%d size={search_size} threshold=0.3 ! selfiesegmentation name=detector "
          "threshold={threshold}")
NO_DETECTORS = "GStreamer does not find {element}: install its plugin, libgstdetectors.so, or set GST_PLUGIN_PATH to its folder"
# For each kind of object: the elements that find it, properties of cudagaussblur, and defaults. With `doubts`, the seconds in
# which an object may show are reported. With `ten_bit`, samples of more than 8 bits keep 10 bits. `warning` is printed before the
# first file, and `missing` if an element is missing. `strength` is sigma as a share of the picture's shorter side, unless the user
# chooses sigma. `faceless` is printed about frames in which no face leads to a person.
JOBS = {
    "faces": dict(
        # By default, one frame in 20 is searched at twice the size. This is the number of frames of look-ahead.
        finder="centerface name=detector every={every} size={search_size} fine-every=5 threshold={weak}", every=4, threshold=0.3, search_size=640,
        blur="region-mode=inside look-ahead=20 expand=0.15 min-confidence={threshold}", cover="mosaic", doubts=True, ten_bit=True,
        missing=NO_DETECTORS.format(element="centerface")),
    # on-missing=pass is set because facedetect attaches nothing to frames without a plate.
    "plates": dict(
        finder=f"videoconvert ! facedetect name=detector display=false updates=none profile={PLATES}",
        # These elements give frames the format in which the detector read them, so that detections are attached to the same
        # samples.
        replayed="videoconvert ! video/x-raw,format=RGB ! ",
        blur="region-mode=inside look-ahead=15 on-missing=pass", cover="fill", doubts=True,
        missing="plates need the element facedetect and OpenCV's cascades: on Debian and Ubuntu install gstreamer1.0-opencv and "
                "opencv-data",
        warning="OpenCV's cascade finds about half of the plates that are near, and none that are small or seen from the side: look at "
                "every result"),
    # If the mask were smoothed over time, a new person would be covered some frames too late. If faces were searched for in every
    # fourth frame only, a person who comes from behind a pillar would be, too.
    "people": dict(
        finder=PEOPLE % 1 + " smooth=0", threshold=0.25, search_size=640, blur="region-mode=inside labels=person shape=mask grow=8",
        cover="mosaic", missing=NO_DETECTORS.format(element="selfiesegmentation"), faceless="a person there may show"),
    "background": dict(
        finder=PEOPLE % 4, threshold=0.25, search_size=640,
        blur="region-mode=outside labels=person shape=mask grow=4 expand=0", cover="blur", strength=1 / 24, missing=NO_DETECTORS.format(element="selfiesegmentation"),
        faceless="a small person there is hidden, too"),
    "everything": dict(finder="identity", blur="region-mode=frame", strength=1 / 4, ten_bit=True),
}


class Muxer(NamedTuple):
    element: str
    extension: str
    # The encoders of sound, each with the number of samples by which it delays the sound; and caps of sound that can be copied.
    # Vorbis is not copied, because its headers contain the tags.
    encoders: dict
    copied: tuple


class Encoder(NamedTuple):
    element: str
    settings: str
    muxer: Muxer
    # A setting with which frames are encoded in their order, if they are not by default.
    in_order: str = ""

    def reads_cuda_memory(self):
        return Gst.ElementFactory.find(self.element).can_sink_any_caps(Gst.Caps("video/x-raw(memory:CUDAMemory)"))


MP4 = Muxer("mp4mux", ".mp4", {"avenc_aac": 1024, "voaacenc": 1600},
            ("audio/mpeg,mpegversion=4,framed=true,stream-format=raw", "audio/mpeg,mpegversion=1,layer=3,parsed=true",
             "audio/x-ac3,framed=true", "audio/x-alac", "audio/x-opus,channel-mapping-family=[0,255]"))
WEBM = Muxer("webmmux offset-to-zero=true", ".webm", {"opusenc": 0, "vorbisenc": 0},
             ("audio/x-opus,channel-mapping-family=[0,255]",))
# Encoders that keep a constant quality, not a constant rate; the best is first. Encoders on a GPU leave the processor to the
# detector. There is a keyframe at least every 60 frames, so that players can jump to a doubtful second quickly.
ENCODERS = (
    Encoder("nvh264enc", "rc-mode=constqp qp-const=21 gop-size=60 ! h264parse", MP4),
    Encoder("nvh264enc", "rate-control=constqp qp-const-i=21 qp-const-p=21 qp-const-b=21 gop-size=60 ! h264parse", MP4),
    Encoder("vah264enc", "rate-control=cqp qpi=21 qpp=21 qpb=21 key-int-max=60 ! h264parse", MP4),
    Encoder("vaapih264enc", "rate-control=cqp init-qp=21 keyframe-period=60 ! h264parse", MP4),
    Encoder("x264enc", "pass=quant quantizer=21 speed-preset=veryfast key-int-max=60", MP4, "bframes=0"),
    Encoder("vp8enc", "deadline=1 cpu-used=8 max-quantizer=20 target-bitrate=4000000 keyframe-max-dist=60", WEBM),
)
# Encoders for 10 bits. They write H.265, like phones: more players know it than H.264 with 10 bits.
TEN_BIT_ENCODERS = (
    Encoder("nvh265enc", "rc-mode=constqp qp-const=22 gop-size=60 ! h265parse", MP4),
    Encoder("vah265enc", "rate-control=cqp qpi=22 qpp=22 qpb=22 key-int-max=60 ! h265parse", MP4),
    Encoder("x265enc", "qp=22 speed-preset=ultrafast key-int-max=60 log-level=none ! h265parse", MP4, "option-string=bframes=0"),
)


class Setup:
    """The elements that cover, and the encoder, for all files of a run. The constructor tries them out.

    `job` has the same keys as a value of JOBS, and `chosen` has the settings that the user has chosen. `blur` has additional
    properties of cudagaussblur, and `size` is the largest width and height of results. `on_pipeline` is called with each pipeline
    before it plays."""

    def __init__(self, job, chosen, blur="", size=None, sound=True, on_pipeline=None):
        self.job, self.sound, self.size, self.on_pipeline = job, sound, size or (32766, 32766), on_pipeline
        self.is_scaled = size is not None
        self.settings = {name: job[name] for name in SETTINGS if name in job} | chosen
        values = self.settings | dict(weak=min(WEAK, self.settings.get("threshold", WEAK)))
        self.finder = job["finder"].format(**values)
        own = "".join(f" {name}={values[name]}" for name in ("cover", "sigma") if name in values)
        self.blur = f"cudagaussblur name=blur post-messages=true {job['blur'].format(**values)} {blur}{own}"
        if PLATES in self.finder and not os.path.exists(PLATES):
            raise Refused(job["missing"])
        # With `on_pipeline`, the finder is left out here, because nothing would feed the elements that `on_pipeline` connects.
        self.try_out(f"{self.elements('I420', 'identity' if on_pipeline else self.finder)} ! fakesink")
        encoders = [encoder for encoder in ENCODERS if self.works(encoder)]
        if not encoders:
            raise Refused("GStreamer has no encoder for the results: on Debian and Ubuntu install gstreamer1.0-plugins-good "
                          "(mp4mux) and gstreamer1.0-plugins-ugly (x264enc)")
        self.extension = encoders[0].muxer.extension
        # The other encoders are used if the first one fails, because an encoder on a GPU does not support every size.
        self.encoders = [encoder for encoder in encoders if encoder.muxer is encoders[0].muxer]

    def elements(self, format, finder, is_on_device=False):
        """Returns the elements between decoded and covered frames. Frames are converted to what a viewer sees: turned as the file
        says, with square pixels, and with an even size, because 4:2:0 requires that. No element here turns or scales frames in
        CUDA memory, so these frames must already be like this."""
        width, height = self.size
        sides = f"width=[2,{width},2],height=[2,{height},2],pixel-aspect-ratio=1/1"
        turn, caps = "videoflip video-direction=auto ! ", f"video/x-raw,format={format},{sides}"
        if is_on_device:
            turn, caps = "", f"video/x-raw(memory:CUDAMemory),format={ON_DEVICE[format]},{sides};{caps}"
        return (f"videoconvert ! {turn}videoscale ! capsfilter caps=\"{caps}\" ! {QUEUE} ! {finder} ! {QUEUE} ! {self.blur} ! "
                f"{QUEUE} ! videoconvert")

    @functools.cached_property
    def ten_bit_encoders(self):
        """The encoders for 10 bits that work."""
        return [encoder for encoder in TEN_BIT_ENCODERS
                if self.job.get("ten_bit") and encoder.muxer.extension == self.extension and self.works(encoder, "I420_10LE")]

    def try_out(self, elements, format="I420"):
        try:
            play(Gst.parse_launch("videotestsrc num-buffers=3 ! "
                                  f"video/x-raw,format={format},width=320,height=240,framerate=30/1 ! {elements}"))
        except GLib.Error as error:
            is_missing = error.matches(Gst.parse_error_quark(), Gst.ParseError.NO_SUCH_ELEMENT)
            raise Refused(self.job["missing"] if is_missing and "missing" in self.job else error.message) from None

    def works(self, encoder, format="I420"):
        try:
            self.try_out(f"videoconvert ! {encoder.element} {encoder.settings} ! {encoder.muxer.element} ! fakesink", format)
        except Refused:
            return False
        return True
