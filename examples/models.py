#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""Finds people and faces with MediaPipe's models, run by LiteRT: a module for Python programs, and a server for others.

    import models
    mask = models.Person().mask(picture)    # uint8, 255 is the person
    faces = models.Faces().find(square)     # [((left, top, right, bottom) in shares of the square, score)]

scripts/models downloads the models (Apache-2.0, 250 KB each) and the Python module ai_edge_litert to target/models. If
CUDAGAUSSBLUR_MODELS is set, it names another folder.

As a program it answers pictures on standard input:

    examples/models.py person | faces

It prints the line "ready". A picture is two numbers of 32 bits, little-endian, its width and height, and its pixels, rows of
red, green and blue bytes. The answer is a number of 32 bits, the count of bytes that follow: for `person` the mask, one byte
for each pixel; for `faces` five 32-bit floats for each face, left, top, right, bottom and score.
"""

import contextlib
import importlib
import os
import pathlib
import struct
import sys

FOLDER = pathlib.Path(os.environ.get("CUDAGAUSSBLUR_MODELS") or pathlib.Path(__file__).parents[1] / "target/models")
PERSON, FACES = "selfie_segmentation.tflite", "face_detection_short_range.tflite"


class Missing(Exception):
    """A sentence for the user: what is not installed."""


def runtime_folder():
    """Where scripts/models installs modules for this version of Python."""
    return FOLDER / "python{}.{}".format(*sys.version_info)


def load(model):
    """LiteRT's interpreter of a model of the folder, and its inputs' and outputs' details."""
    sys.path.append(str(runtime_folder()))
    try:
        interpreter = importlib.import_module("ai_edge_litert.interpreter").Interpreter
    except ImportError as error:
        raise Missing(f"{sys.executable} cannot import ai_edge_litert ({error}): run scripts/models") from error
    finally:
        sys.path.pop()
    model = pathlib.Path(model)
    if not model.exists():
        raise Missing(f"{model} does not exist: run scripts/models")
    with no_stderr():
        # A second thread makes models of this size slower.
        loaded = interpreter(str(model), num_threads=1)
        loaded.allocate_tensors()
        loaded.invoke()
    return loaded


@contextlib.contextmanager
def no_stderr():
    """LiteRT logs to standard error."""
    standard, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(standard, 2)
        os.close(standard)
        os.close(nothing)


try:
    import numpy
except ImportError:
    sys.exit(f"{sys.executable} has no NumPy: install python3-numpy and run this with the distribution's /usr/bin/python3")


class Person:
    """The mask of a person in front of a camera."""

    # Of the pictures that `mask` takes: the whole frame, with another aspect ratio.
    SIZE = 256, 256

    def __init__(self, model=None):
        self.model = load(model or FOLDER / PERSON)
        self.input = self.model.get_input_details()[0]["index"]
        self.output = self.model.get_output_details()[0]["index"]

    def mask(self, picture):
        """The mask of a picture of SIZE, an array of [height, width, 3] bytes: bytes of [height, width]. 255 is the person."""
        self.model.set_tensor(self.input, (picture.astype(numpy.float32) / 255)[None])
        self.model.invoke()
        return (self.model.get_tensor(self.output)[0, :, :, 0] * 255 + 0.5).astype(numpy.uint8)


class Faces:
    """BlazeFace: the boxes of faces that are near the camera."""

    # Of the pictures that `find` takes: the whole frame, in the middle of a black square. Faces narrower than an eighth of it
    # are missed.
    SIDE = 128
    # MediaPipe reports faces with a score of at least SURE. Boxes from DOUBTFUL on that belong to none of them are found, too.
    SURE, DOUBTFUL = 0.5, 0.2
    # Boxes whose intersection is more than this share of their union are one face.
    SAME = 0.3

    def __init__(self, model=None):
        self.model = load(model or FOLDER / FACES)
        self.input = self.model.get_input_details()[0]["index"]
        self.outputs = {int(one["shape"][-1]): one["index"] for one in self.model.get_output_details()}
        # Cells along each axis, and anchors in a cell.
        cells = [(16, 2), (8, 6)]
        self.anchors = numpy.array([((x + 0.5) / n, (y + 0.5) / n)
                                    for n, k in cells for y in range(n) for x in range(n) for _ in range(k)])

    def find(self, square):
        """The faces of a picture of SIDE by SIDE bytes, as boxes in shares of it, and scores."""
        self.model.set_tensor(self.input, (square.astype(numpy.float32) / 127.5 - 1)[None])
        self.model.invoke()
        raw = self.model.get_tensor(self.outputs[16])[0][:, :4] / self.SIDE
        logits = self.model.get_tensor(self.outputs[1])[0][:, 0]
        scores = 1 / (1 + numpy.exp(-numpy.clip(logits, -80, 80)))
        centre = raw[:, :2] + self.anchors
        return self.suppress(numpy.hstack([centre - raw[:, 2:] / 2, centre + raw[:, 2:] / 2]), scores)

    def suppress(self, boxes, scores):
        """One box for each face: first those that are sure, then the doubtful ones that are not among them."""
        sure = self.merge(boxes, scores, self.SURE)
        return sure + [(box, score) for box, score in self.merge(boxes, scores, self.DOUBTFUL)
                       if score < self.SURE and all(iou(box, other) < self.SAME for other, _ in sure)]

    def merge(self, boxes, scores, least):
        """MediaPipe's weighted non-maximum suppression."""
        rest, out = [i for i in numpy.argsort(-scores) if scores[i] >= least], []
        while rest:
            same = [i for i in rest if iou(boxes[i], boxes[rest[0]]) > self.SAME] or rest[:1]
            out.append((numpy.average(boxes[same], axis=0, weights=scores[same]), float(scores[rest[0]])))
            rest = [i for i in rest if i not in same]
        return out


def iou(a, b):
    """The intersection of two boxes as a share of their union."""
    common = max(min(a[2], b[2]) - max(a[0], b[0]), 0) * max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)


def serve(answer):
    """Answers pictures until the end of standard input."""
    pictures, answers = sys.stdin.buffer, sys.stdout.buffer
    answers.write(b"ready\n")
    answers.flush()
    while header := pictures.read(8):
        width, height = struct.unpack("<II", header)
        picture = numpy.frombuffer(pictures.read(width * height * 3), numpy.uint8).reshape(height, width, 3)
        reply = answer(picture)
        answers.write(struct.pack("<I", len(reply)) + reply)
        answers.flush()


def main():
    wanted = sys.argv[1:]
    try:
        if wanted == ["person"]:
            person = Person()
            serve(lambda picture: person.mask(picture).tobytes())
        elif wanted == ["faces"]:
            faces = Faces()
            serve(lambda picture: b"".join(struct.pack("<5f", *box, score) for box, score in faces.find(picture)))
        else:
            return __doc__
    except Missing as missing:
        return str(missing)
    return None


if __name__ == "__main__":
    sys.exit(main())
