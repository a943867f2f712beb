# SPDX-License-Identifier: MPL-2.0
"""The GStreamer element selfiesegmentation: finds people in front of a camera with MediaPipe's selfie segmentation (Apache-2.0),
run by LiteRT, and attaches their mask as a region of interest with the label `person`.

    scripts/models && cargo build --release && GST_PLUGIN_PATH=target/release:examples gst-launch-1.0 v4l2src ! videoconvert !
        selfiesegmentation ! cudagaussblur region-mode=outside shape=mask grow=4 expand=0 sigma=20 ! videoconvert ! autovideosink

The model's mask has 256x144 samples, too few for hair and collars. A guided filter (He et al., 2010) fits it to the edges of the
picture: around each place, the mask becomes the linear function of red, green and blue that is nearest to it. Where the picture
does not change, the result is averaged over time. cudagaussblur narrows what it shows by a cell of its grid of weights, and `grow`
makes up for that: 2 for frames of up to 1024 pixels a side, 4 up to 2048 and so on doubling; frames of up to 512 pixels need none.
"""

import os

import analyzer
from analyzer import GObject, Gst, numpy

# Of the guided filter, whose windows have 72x72 pixels at 720p: variance of colours that counts as noise; how often it
# is applied, and how much steeper its result is made in between.
NOISE, PASSES, STEEPER = 1e-4, 4, 2
# From the threshold on, a person shows wholly after so much more of the filter's result.
SOFT = 0.5
# Changes of a colour from one frame to the next: up to the first noise, from the second on motion.
STILL, MOVED = 2 / 255, 8 / 255


class SelfieSegmentation(analyzer.Analyzer):
    __gstmetadata__ = ("Selfie segmentation", "Analyzer/Video", "Finds people and attaches their mask as a region of interest",
                       "the authors of cudagaussblur")
    __gsttemplates__ = analyzer.TEMPLATES
    MODEL = "selfie_segmentation_landscape.tflite"

    every = GObject.Property(type=int, minimum=1, maximum=1000, default=1, nick="Every",
                             blurb="Run the model on one frame in so many; between, its last mask is fitted to the frame")
    threshold = GObject.Property(type=float, minimum=0, maximum=1, default=0.25, nick="Threshold",
                                 blurb="Least confidence of a person's samples; less shows more of hair and of the background")
    smooth = GObject.Property(type=float, minimum=0, maximum=1, default=0.75, nick="Smooth",
                              blurb="Share of the last mask in the next one, where the picture does not change")

    def open(self, path, threads):
        interpreter = analyzer.load("ai_edge_litert.interpreter").Interpreter
        # LiteRT logs to standard error.
        standard, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 2)
        try:
            # A second thread makes models of this size slower.
            self.network = interpreter(str(path), num_threads=threads or 1)
            self.network.allocate_tensors()
            self.network.invoke()
        finally:
            os.dup2(standard, 2)
            os.close(standard)
            os.close(nothing)
        self.input, self.output = self.network.get_input_details()[0], self.network.get_output_details()[0]["index"]

    def do_set_caps(self, caps, out_caps):
        analyzer.Analyzer.do_set_caps(self, caps, out_caps)
        # The mask has a sample for each cell of the grid of cudagaussblur's weights: it would narrow a finer one.
        cell = 1
        while max(self.info.width, self.info.height) > 512 * cell:
            cell *= 2
        self.size = max(self.info.height // cell, 2), max(self.info.width // cell, 2)
        self.last, self.new, self.confidence = None, 0, numpy.float32(0)
        return True

    def analyze(self, buffer):
        guide = self.guide(buffer)
        _, height, width, _ = self.input["shape"]
        self.network.set_tensor(self.input["index"], numpy.stack([scaled(plane, height, width) for plane in guide], -1)[None])
        self.network.invoke()
        confidence = self.network.get_tensor(self.output)[0, :, :, 0]
        analyzer.finite(confidence)
        self.mark(buffer, guide, confidence)

    def pass_over(self, buffer):
        self.mark(buffer, self.guide(buffer))

    def guide(self, buffer):
        """The frame at the size of the mask: [red, green and blue, height, width], 0 to 1."""
        return numpy.ascontiguousarray(self.picture(buffer, *self.size[::-1]).transpose(2, 0, 1)) * numpy.float32(1 / 255)

    def changed(self, coarse):
        """The share of what is new where the picture changes by more than noise, light and exposure."""
        change = coarse - self.last[1]
        change = abs(change - numpy.median(change, axis=(1, 2), keepdims=True)).max(0)
        return ((largest(largest(change)) - STILL) / (MOVED - STILL)).clip(1 - self.smooth, 1)

    def mark(self, buffer, guide, found=None):
        """Attaches the mask. `found` is what the model says of this frame."""
        coarse = numpy.stack([scaled(plane, *(-(-side // 2) for side in self.size)) for plane in guide])
        new = numpy.float32(1) if self.last is None else self.changed(coarse)
        # Since the model's last frame.
        self.new = numpy.maximum(self.new, new)
        if found is not None:
            self.confidence = self.confidence + self.new * (scaled(found, *coarse.shape[1:]) - self.confidence)
            self.new = 0
        mask = fitted(self.confidence, guide, coarse)
        if self.last:
            mask = self.last[0] + scaled(new, *self.size) * (mask - self.last[0])
        self.last = mask, coarse
        # cudagaussblur shows nothing of samples below 128, and all of those of 255.
        samples = ((mask - self.threshold) * (127 / SOFT) + 128).clip(0, 255).astype(numpy.uint8)
        if samples.max() < 128:
            analyzer.attach_nothing(buffer)
            return
        meta = analyzer.attach(buffer, "person", (0, 0, self.info.width, self.info.height), self.confidence.max())
        height, width = self.size
        caps = Gst.Caps.from_string(f"video/x-raw, format=GRAY8, width={width}, height={height}, framerate=0/1")
        # Rows of GRAY8 begin at multiples of four bytes.
        samples = numpy.pad(samples, [(0, 0), (0, -width % 4)])
        param = Gst.Structure.new_empty("mask")
        param.set_value("sample", Gst.Sample.new(Gst.Buffer.new_wrapped(samples.tobytes()), caps, None, None))
        meta.add_param(param)


def fitted(values, guide, coarse):
    """Values at the places of the coarse guide, fitted to the edges of the guide. Plane by plane: large arrays take longer."""
    colour = [means(plane) for plane in coarse]
    # The inverse of the symmetric matrix of the colours' covariances, by its cofactors.
    rr, rg, rb, gg, gb, bb = (means(coarse[i] * coarse[j]) - colour[i] * colour[j] + (NOISE if i == j else 0)
                              for i in range(3) for j in range(i, 3))
    cofactors = gg * bb - gb * gb, gb * rb - rg * bb, rg * gb - gg * rb, rr * bb - rb * rb, rg * rb - rr * gb, rr * gg - rg * rg
    determinant = rr * cofactors[0] + rg * cofactors[1] + rb * cofactors[2]
    rr, rg, rb, gg, gb, bb = (one / determinant for one in cofactors)
    for number in range(PASSES):
        if number:
            values = ((applied(function, coarse) - 0.5) * STEEPER + 0.5).clip(0, 1)
        mean = means(values)
        r, g, b = (means(plane * values) - centre * mean for plane, centre in zip(coarse, colour))
        factors = rr * r + rg * g + rb * b, rg * r + gg * g + gb * b, rb * r + gb * g + bb * b
        offset = mean - sum(factor * centre for factor, centre in zip(factors, colour))
        function = [means(plane) for plane in (*factors, offset)]
    return applied([scaled(plane, *guide.shape[1:]) for plane in function], guide)


def applied(function, guide):
    r, g, b, offset = function
    return r * guide[0] + g * guide[1] + b * guide[2] + offset


def means(plane):
    """The mean of the nine by nine samples around each one. Beyond the edges the outermost ones repeat."""
    sums = numpy.pad(plane, 4, mode="edge")
    for _ in range(2):
        ninth = sums[8:]
        for step in (1, 2, 4):
            sums = sums[:-step] + sums[step:]
        sums = (sums[:-1] + ninth).T
    return sums * numpy.float32(1 / 81)


def largest(plane):
    """The largest of the three by three samples around each one."""
    padded = numpy.pad(plane, 1, mode="edge")
    for _ in range(2):
        padded = numpy.maximum.reduce([padded[:-2], padded[1:-1], padded[2:]]).T
    return padded


def scaled(plane, *size):
    """A plane of another height and width, bilinear, from centre to centre."""
    # The axis of which less is left, first.
    for axis in (0, 1) if size[0] < plane.shape[0] else (1, 0):
        given, length = plane.shape[axis], size[axis]
        place = ((numpy.arange(length) + 0.5) * given / length - 0.5).clip(0, given - 1)
        first = numpy.minimum(place.astype(int), given - 2)
        share = (place - first).astype(numpy.float32).reshape((-1, 1) if axis == 0 else (1, -1))
        one = plane.take(first, axis)
        plane = one + share * (plane.take(first + 1, axis) - one)
    return plane


GObject.type_register(SelfieSegmentation)
__gstelementfactory__ = ("selfiesegmentation", Gst.Rank.NONE, SelfieSegmentation)
