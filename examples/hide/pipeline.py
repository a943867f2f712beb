# SPDX-License-Identifier: MPL-2.0
"""Covers one file."""

import gc
import itertools
import os
import statistics

from gi.repository import GLib, Gst, GstVideo

from .boxes import detections_of
from .inputs import NOTHING, NO_PICTURES, TAGS, Input, names_of
from .jobs import QUEUE, TEN_BIT_ENCODERS
from .pictures import crop
from .play import Stuck, play
from .report import Report
from .terminal import Full, Refused, count

# The detector lets at most these times pass between two searches, and between two fine ones. But it does not know how long a frame
# will be shown.
SEARCH, FINE_SEARCH = Gst.SECOND // 4, Gst.SECOND * 7 // 10


def cover(setup, path, descriptor, progress):
    """Writes the covered video to an open file. After a failure, tries host memory instead of CUDA memory, then the other
    encoders, then sound that is encoded again, then a result without sound. Covers the file again if a picture stays for long and
    that requires it. Returns the Work."""
    input, with_sound, copies, reason = Input(path), setup.sound, True, None
    is_on_device = not setup.is_scaled
    encoders = (setup.ten_bit_encoders if input.bits > 8 else []) + setup.encoders
    is_thorough = is_in_order = False
    while True:
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        work = Work(setup, encoders[0], input, descriptor, with_sound, is_on_device, copies, is_thorough, is_in_order)
        try:
            work.run(progress)
            if work.is_unsearched() or work.is_cut():
                is_thorough, is_in_order = is_thorough or work.is_unsearched(), is_in_order or work.is_cut()
                continue
        except (Full, Stuck):
            raise
        except Refused as refused:
            if work.is_on_device:
                # In host memory, pictures can be turned, scaled and converted.
                is_on_device = False
            elif work.decoded and len(encoders) > 1:
                encoders = encoders[1:]
            elif work.has_copied_sound and work.searching == work.searched:
                copies = False
            elif work.has_sound and work.searching == work.searched:
                with_sound, reason = False, refused
            else:
                raise
            continue
        finally:
            work.close()
        if reason:
            work.notes.append(f"with sound, the result could not be written ({reason})")
        return work


def versions(work):
    """Returns the versions of everything that made a result."""
    elements = {name: factory.get_plugin().get_version() for name in ("cudagaussblur", "centerface", work.encoder.element)
                if (factory := Gst.ElementFactory.find(name))}
    return dict(GStreamer=Gst.version_string(), encoder=f"{work.encoder.element} {work.encoder.settings}", plugins=elements)


class Work:
    """The pipeline that covers one file and writes the result to an open file. `notes` are sentences about the result."""

    def __init__(self, setup, encoder, input, descriptor, with_sound, is_on_device=False, copies=True, is_thorough=False, is_in_order=False):
        self.setup, self.input, self.encoder, self.notes = setup, input, encoder, []
        self.muxer = encoder.muxer
        # The detections of each frame; and pictures of them, until the message about their frame comes.
        self.detections, self.crops = [], {}
        replayed = setup.on_pipeline
        known, first = (replayed.attached, replayed.first_number) if replayed else ({}, 1)
        # Whether every frame is searched, and finely, whatever the settings; and whether frames are encoded in their order.
        self.is_thorough, self.is_in_order = is_thorough, is_in_order
        self.report = Report(1 if is_thorough else setup.settings.get("every", 1), self.look, known, itertools.count(first))
        # Streams of the input that are in the result, or that the user does not want in it.
        self.used_streams = {name for name, kind in input.streams.items() if kind == "sound" and not setup.sound}
        self.has_sound = self.has_copied_sound = self.has_captions = False
        # A sentence about a blur that is weaker than the default.
        self.weakness = ""
        # The numbers of frames that were read, that are to be covered, that the detector received, that it returned, and that
        # were encoded.
        self.read = self.decoded = self.searching = self.searched = self.encoded = 0
        # Width and height of the covered frames, and of the decoded frames.
        self.size = self.given = None
        # The running times of the frames that left the blur, their ends, and the timestamps of the frames about which the blur
        # posted a message.
        self.pushed, self.ends, self.posted = [], [], []
        # The running time at which each stream of sound begins, by the muxer's pad; and the one at which the result begins, because
        # muxers leave out the time before the first frame or sound.
        self.sound_begins, self.begin = {}, 0
        self.bits = min(input.bits, 10) if encoder in TEN_BIT_ENCODERS else 8
        format = "I420_10LE" if self.bits == 10 else "I420"
        # Whether frames stay in CUDA memory. They do so only if the encoder reads it: otherwise every frame is downloaded for the
        # encoder, and searched frames would be downloaded twice.
        self.is_on_device = is_on_device and self.bits == input.bits and encoder.reads_cuda_memory()
        # Streams that decode to none of these formats, such as subtitles, are not exposed.
        sound = ["audio/x-raw(ANY)", *(self.muxer.copied if copies else ())]
        formats = ["video/x-raw(ANY)", *(sound if with_sound else ())]
        # compositor drops the tag that says how the picture is turned, so pictures are turned before it.
        alpha = "videoconvert ! videoflip video-direction=auto ! compositor background=black start-time-selection=first ! "
        # Encoders write the closed captions that decoders attach to frames.
        self.removes_captions = bool(Gst.ElementFactory.find("ccextractor"))
        captions = "ccextractor remove-caption-meta=true ! " if self.removes_captions else ""
        self.pipeline = Gst.parse_launch(
            f'uridecodebin name=input caps="{";".join(formats)}" expose-all-streams=false '
            f"{QUEUE} name=video ! {alpha if input.has_alpha else ''}identity name=head single-segment=true ! "
            f"{captions}{setup.elements(format, setup.finder, self.is_on_device)} ! {encoder.element} name=encoder "
            f"{encoder.in_order if is_in_order else ''} {encoder.settings} ! "
            f"{self.muxer.element} name=mux ! fdsink name=file async=false fd={descriptor}")
        self.source, self.video, self.blur = (self.pipeline.get_by_name(name) for name in ("input", "video", "blur"))
        self.source.set_property("uri", input.uri)
        self.handlers = [self.source.connect(name, method) for name, method in (
            ("autoplug-query", self.answer), ("pad-added", self.add_stream), ("no-more-pads", self.check_streams))]
        if is_thorough:
            detector = self.pipeline.get_by_name("detector")
            detector.set_property("every", 1)
            detector.set_property("fine-every", 1)
        self.probes = []
        self.watch_events(self.video.get_static_pad("sink"), self.copy_tags)
        # x264enc passes a GAP event on before the event of the segment, which mp4mux needs first.
        self.watch_events(self.video.get_static_pad("sink"), lambda _, event: event.type == Gst.EventType.GAP or None)
        self.watch_events(self.pipeline.get_by_name("encoder").get_static_pad("sink"), self.drop_tags)
        self.watch_events(self.blur.get_static_pad("sink"), self.set_sigma)
        self.watch_events(self.blur.get_static_pad("src"), self.check_size)
        self.watch_events(self.pipeline.get_by_name("head").get_static_pad("src"), self.note_size)
        self.watch("video", "sink", self.count_up("read"))
        self.watch("video", "sink", self.note_captions)
        self.watch("head", "src", self.count_up("decoded"))
        if self.pipeline.get_by_name("detector"):
            self.watch("detector", "sink", self.count_up("searching"))
            self.watch("detector", "src", self.count_up("searched"))
            if "doubts" in setup.job:
                self.watch("detector", "src", self.keep_detections)
        self.watch("blur", "src", self.note_time)
        self.watch("encoder", "src", self.count_up("encoded"))
        if setup.on_pipeline:
            setup.on_pipeline(self.pipeline)

    def keep_detections(self, buffer):
        frame, found = len(self.detections), detections_of(buffer)
        if found:
            caps = self.pipeline.get_by_name("detector").get_static_pad("src").get_current_caps()
            info = GstVideo.VideoInfo.new_from_caps(caps)
            self.crops[frame] = {box.pixels(): (box, crop(buffer, info, box.pixels())) for box in found}
        self.detections.append(found)

    def look(self, frame, box):
        """Returns the confidence of a detection, and a picture of it."""
        found, picture = self.crops.get(frame, {}).get(box, (None, None))
        return found.confidence if found and found.confidence is not None else 1, picture

    def kept_detections(self):
        """Returns all detections. Those that count have the number of their object."""
        for frame, found in enumerate(self.detections):
            for box in found:
                box.position, box.what = frame, str(self.report.found.get((frame, box.pixels()), ""))
        return list(itertools.chain.from_iterable(self.detections))

    def count_up(self, name):
        return lambda buffer: setattr(self, name, getattr(self, name) + 1)

    def note_time(self, buffer):
        self.pushed.append(buffer.pts)
        self.ends.append(buffer.pts + (buffer.duration if buffer.duration != Gst.CLOCK_TIME_NONE else 0))

    def watch(self, element, pad, each):
        """Calls `each` with each buffer that passes a pad."""
        def probe(_, info):
            each(info.get_buffer())
            return Gst.PadProbeReturn.OK
        pad = self.pipeline.get_by_name(element).get_static_pad(pad)
        self.probes.append((pad, pad.add_probe(Gst.PadProbeType.BUFFER, probe)))

    def watch_events(self, pad, each):
        """Calls `each` with the pad and each event that passes it. The event is dropped if `each` returns something else than
        None."""
        def probe(_, info):
            return Gst.PadProbeReturn.OK if each(pad, info.get_event()) is None else Gst.PadProbeReturn.DROP
        self.probes.append((pad, pad.add_probe(Gst.PadProbeType.EVENT_DOWNSTREAM, probe)))

    def copy_tags(self, _, event):
        """Gives the muxer the tags of the whole file that the result gets. Posts a message if players turn the pictures."""
        mux = self.pipeline.get_by_name("mux")
        if self.is_on_device and event.type == Gst.EventType.TAG and is_turned_by(event.parse_tag()):
            self.post("turned")
        if hasattr(mux, "add_tag_value") and event.type == Gst.EventType.TAG and (tags := event.parse_tag()).get_scope() == Gst.TagScope.GLOBAL:
            for tag in names_of(tags) & TAGS:
                mux.add_tag_value(Gst.TagMergeMode.KEEP, tag, tags.get_value_index(tag, 0))

    @staticmethod
    def drop_tags(pad, event):
        """Removes the tags that the result does not get."""
        if event.type == Gst.EventType.TAG and not names_of(event.parse_tag()) <= TAGS:
            tags = event.parse_tag().copy()
            for tag in names_of(tags) - TAGS:
                tags.remove_tag(tag)
            return pad.send_event(Gst.Event.new_tag(tags))

    def set_sigma(self, _, event):
        if event.type == Gst.EventType.CAPS and "strength" in self.setup.job:
            picture = GstVideo.VideoInfo.new_from_caps(event.parse_caps())
            default = min(1024, self.setup.job["strength"] * min(picture.width, picture.height))
            sigma = self.setup.settings.get("sigma", default)
            self.blur.set_property("sigma", sigma)
            self.weakness = f"a sigma of {sigma:g} hides less than the default, {default:.0f}" if sigma < default else ""

    def note_captions(self, buffer):
        if not self.has_captions and buffer.get_meta(GstVideo.video_caption_meta_api_get_type()):
            self.has_captions = True
            if not self.removes_captions:
                self.post("captions")

    def check_size(self, _, event):
        """Checks that the size stays the same, because MP4 has one size for the whole video. Caps before the first frame may be
        those of a picture that is not turned yet."""
        if event.type == Gst.EventType.CAPS:
            picture = GstVideo.VideoInfo.new_from_caps(event.parse_caps())
            size = picture.width, picture.height
            if self.pushed and size != self.size:
                self.post("new-size")
            self.size = size

    def note_size(self, _, event):
        if event.type == Gst.EventType.CAPS:
            picture = GstVideo.VideoInfo.new_from_caps(event.parse_caps())
            self.given = picture.width, picture.height

    def post(self, name):
        self.source.post_message(Gst.Message.new_application(self.source, Gst.Structure.new_empty(name)))

    def close(self):
        """Frees the pipeline. Without this, references between Python and GStreamer would keep it."""
        for handler in self.handlers:
            self.source.disconnect(handler)
        for pad, probe in self.probes:
            pad.remove_probe(probe)
        self.pipeline = self.source = self.video = self.blur = self.probes = None
        gc.collect()

    def answer(self, _, pad, element, query):
        """Tells a video decoder, whose pad is not linked yet, in which memory its frames may be."""
        is_asked = query.type == Gst.QueryType.CAPS and element.get_factory().get_metadata("klass").startswith("Codec/Decoder/Video")
        return is_asked and self.video.get_static_pad("sink").query(query)

    def add_stream(self, _, pad):
        caps, name = (pad.get_current_caps() or pad.query_caps()).to_string(), pad.get_stream_id()
        sink = self.video.get_static_pad("sink")
        try:
            if caps.startswith("audio/"):
                self.add_sound(pad, caps, name)
            elif not sink.is_linked() and (name == self.input.video or name not in self.input.streams):
                pad.link(sink)
                self.used_streams |= {name, self.input.video}
        except (Gst.LinkError, GLib.Error) as error:
            self.notes.append(f"a stream is left out, because it cannot be converted ({error})")

    def add_sound(self, pad, caps, name):
        """Copies sound that the muxer supports, and encodes other sound."""
        last, delay = pad, 0
        if caps.startswith("audio/x-raw"):
            encoder = next(filter(Gst.ElementFactory.find, self.muxer.encoders), None)
            if not encoder:
                self.notes.append(f"sound is left out: install one of {', '.join(self.muxer.encoders)} to encode it")
                return
            branch = Gst.parse_bin_from_description(f"audioconvert ! audioresample ! {encoder}", True)
            self.pipeline.add(branch)
            branch.sync_state_with_parent()
            # Before the encoder, because that of Vorbis writes tags.
            self.watch_events(branch.get_static_pad("sink"), self.drop_tags)
            pad.link(branch.get_static_pad("sink"))
            last, delay = branch.get_static_pad("src"), self.muxer.encoders[encoder]
        else:
            self.has_copied_sound = True
        # From now on, the muxer waits for this stream.
        sink = self.pipeline.get_by_name("mux").request_pad_simple("audio_%u")
        self.probes.append((sink, sink.add_probe(Gst.PadProbeType.BUFFER, self.note_sound)))
        self.watch_events(sink, self.copy_tags)
        self.watch_events(sink, self.drop_tags)
        if delay:
            # The muxer drops the samples that the encoder has added before the beginning.
            def shift(_, event):
                if event.type == Gst.EventType.CAPS:
                    last.set_offset(-(delay * Gst.SECOND // event.parse_caps()[0].get_value("rate")))
            self.watch_events(sink, shift)
        last.link(sink)
        self.used_streams.add(name)
        self.has_sound = True

    def note_sound(self, pad, info):
        """Notes when a stream of sound begins."""
        if pad.get_name() not in self.sound_begins:
            segment = pad.get_sticky_event(Gst.EventType.SEGMENT, 0).parse_segment()
            time = segment.to_running_time(Gst.Format.TIME, info.get_buffer().pts)
            # Without a running time, the sound begins before the result, and is cut off there.
            self.sound_begins[pad.get_name()] = 0 if time == Gst.CLOCK_TIME_NONE else time
        return Gst.PadProbeReturn.OK

    def check_streams(self, _):
        """Ends a file without pictures, for which the muxer would wait forever."""
        if not self.video.get_static_pad("sink").is_linked():
            self.post("no-video")

    def stalled(self):
        """Returns for how many seconds no frame may come, and the sentence for that case."""
        if not self.decoded:
            return 10, NOTHING
        if self.searching > self.searched:
            return 120, "the detector has not answered for 120 s"
        return 120, f"no frame came for 120 s after {count(self.decoded, 'frame')}: try it alone, with --no-sound or --backend cpu"

    def run(self, progress, begin=None):
        """Plays until the result is complete. Raises Refused if it cannot be completed. `begin` is the running time at which the
        result begins, if it is known."""
        duration = self.input.duration

        def each(message):
            kind = message.get_structure().get_name() if message is not None and message.get_structure() else ""
            if kind == "cudagaussblur" and message.src == self.blur:
                self.posted.append(message.get_structure().get_uint64("timestamp")[1])
                self.report.update(message.get_structure(), self.size)
                self.crops.pop(self.report.frames - 1, None)
            elif kind == "no-video":
                raise Refused(NO_PICTURES)
            elif kind == "captions":
                raise Refused("it has closed captions, and GStreamer no element that removes them: on Debian and Ubuntu install "
                              "gstreamer1.0-plugins-bad")
            elif kind == "turned":
                raise Refused("its pictures are turned, which no element does in CUDA memory")
            elif kind == "new-size":
                raise Refused("its pictures change their size: cut it there, and cover the parts")
            done = min(self.encoded, len(self.pushed))
            progress(done, self.pushed[done - 1] / duration if done and duration else 0)
            return self.decoded + self.encoded

        play(self.pipeline, each, self.stalled)
        if not self.encoded:
            raise Refused(NO_PICTURES)
        is_told = self.posted == self.pushed or not self.posted and self.setup.finder == "identity"
        if not is_told or not self.decoded == len(self.pushed) == self.encoded:
            raise Refused(f"of {count(self.decoded, 'frame')} {len(self.pushed)} were covered and {self.encoded} written: "
                          "that is an error of this program; please report it")
        self.begin = min([self.pushed[0], *self.sound_begins.values()]) if begin is None else begin
        self.report.finish(self.begin)
        self.notes += self.input.left_out(self.used_streams, self.has_captions) + self.remarks()
        if "faceless" in self.setup.job:
            stats = self.pipeline.get_by_name("detector").get_property("stats")
            if faceless := stats.get_uint64("faceless")[1]:
                self.notes.append(f"in {count(faceless, 'frame')} no face was found: {self.setup.job['faceless']}")

    def shown(self):
        """Returns for how long each frame is shown."""
        # Sound is often a little longer than pictures.
        end = self.input.duration - (Gst.SECOND // 2 if "sound" in self.input.streams.values() else 0)
        times = [*self.pushed, max(end, self.ends[-1])]
        return [after - before for before, after in zip(times, times[1:])]

    def is_unsearched(self):
        """Returns whether a frame that is shown for long may not have been searched, or not finely. A frame whose
        predecessor was shown for long, too, was searched finely."""
        if "every" not in self.setup.settings or self.is_thorough or self.setup.on_pipeline:
            return False
        shown = self.shown()
        return any(step > SEARCH and before < FINE_SEARCH for before, step in zip(shown, shown[1:]))

    def is_cut(self):
        """Returns whether the result may lack its last frames, or show them too briefly. If frames are encoded out of their order, mp4mux
        counts for the last frames the time for which the first two are shown. But if they are encoded in their order, mp4mux leaves
        out a last frame without a duration."""
        shown, can_change = self.shown(), self.encoder.in_order and not self.is_in_order
        last = shown[-3:]
        return can_change and self.ends[-1] > self.pushed[-1] and sum(last) > sum(shown[:2]) + 1.5 * min(last)

    def remarks(self):
        """Returns how the pictures of the result differ from those of the input, apart from the covers."""
        notes, latest = [], list(itertools.accumulate(self.pushed, max))
        back = sum(time <= before for before, time in zip(latest, self.pushed[1:]))
        if self.input.has_alpha:
            notes.append("transparent parts are black, as players show them" + (
                f"; {count(self.read, 'frame')} became {self.decoded} of a constant rate" if self.read != self.decoded else ""))
        if self.bits < self.input.bits:
            notes.append(f"its samples have {self.input.bits} bits, those of the result {self.bits}")
        elif self.bits > 8:
            notes.append("10 bits are kept, in H.265, which some browsers do not play")
        (width, height), (given_width, given_height) = self.size, self.given
        if width * height < 0.9 * given_width * given_height and not self.setup.is_scaled:
            notes.append(f"its pictures of {given_width}x{given_height} are scaled to {width}x{height}")
        # A gap between pictures means that the middle of the file is damaged.
        steps = [after - before for before, after in zip(self.pushed, self.pushed[1:])]
        gap, begin, end = max(((after - end, end, after) for end, after in zip(self.ends, self.pushed[1:])), default=(0, 0, 0))
        if gap > max(Gst.SECOND // 2, 10 * statistics.median(steps or [0])):
            notes.append(f"no new picture from {begin / Gst.SECOND:.1f} s to {end / Gst.SECOND:.1f} s: is it damaged?")
        end, whole = max(self.ends), self.input.duration
        if whole - end > max(min(2 * Gst.SECOND, whole // 20), Gst.SECOND // 5):
            notes.append(f"only {end / Gst.SECOND:.1f} s of {whole / Gst.SECOND:.1f} s have pictures: is it complete?")
        if back:
            notes.append(f"{count(back, 'frame')} with timestamps that do not increase: players leave them out")
        if self.weakness:
            notes.append(self.weakness)
        if self.report.whole:
            notes.append(f"{count(self.report.whole, 'frame')} are covered as a whole")
        return notes


def is_turned_by(tags):
    """Whether players turn pictures with these tags."""
    return tags.get_string(Gst.TAG_IMAGE_ORIENTATION)[1] not in (None, "rotate-0")
