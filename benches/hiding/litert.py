# SPDX-License-Identifier: MPL-2.0
"""MediaPipe's selfie segmentation by LiteRT, to compare detectors with. Needs the packages ai-edge-litert and numpy.

    python3 benches/hiding/litert.py reference target/models    writes detectors/tests/data/selfie_segmentation{_landscape,}.bin
    python3 benches/hiding/litert.py time target/models         times both models, in turns with the example `search` of detectors/

backgrounds.py and segmentation.py import the class Network.
"""
import collections
import os
import pathlib
import struct
import subprocess
import sys
import time

import numpy
from ai_edge_litert.interpreter import Interpreter

ROOT = pathlib.Path(__file__).parents[2]
MODELS = "selfie_segmentation_landscape", "selfie_segmentation"


class Network:
    """A model that finds people in a picture of its size. `size` is its height and width."""

    def __init__(self, path, threads, **options):
        # LiteRT logs to standard error.
        standard, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 2)
        try:
            self.network = Interpreter(str(path), num_threads=threads, **options)
            self.network.allocate_tensors()
            self.network.invoke()
        finally:
            os.dup2(standard, 2)
            os.close(standard)
            os.close(nothing)
        self.input, self.output = self.network.get_input_details()[0], self.network.get_output_details()[0]["index"]
        _, *self.size, _ = (int(side) for side in self.input["shape"])

    def confidence(self, picture):
        """That a sample is a person's: [height, width], 0 to 1. `picture` has red, green and blue: [3, height, width], 0 to 1."""
        self.network.set_tensor(self.input["index"], numpy.stack(picture, -1)[None])
        self.network.invoke()
        return self.network.get_tensor(self.output)[0, :, :, 0]


def picture(height, width):
    """The picture of detectors/tests/elements/layers.rs."""
    channel, y, x = numpy.ogrid[:3, :height, :width]
    return ((x * 7 + y * 13 + channel * 31) * 2654 % 256).astype(numpy.float32) / numpy.float32(255)


def reference(folder):
    """Of each tensor that is not replaced in place by the next operation (an activation, an addition): the sums of its channels, in
    which each pixel has a weight."""
    for model in MODELS:
        network = Network(folder / f"{model}.tflite", 1, experimental_preserve_all_tensors=True)
        network.confidence(picture(*network.size))
        operations = [(operation["op_name"], list(operation["inputs"]), operation["outputs"][0])
                      for operation in network.network._get_ops_details()
                      if operation["op_name"] not in ("DEQUANTIZE", "DELEGATE")]
        readers = collections.Counter(tensor for _, inputs, _ in operations for tensor in inputs)
        kinds = {output: kind for kind, _, output in operations}
        order = {output: number for number, output in enumerate(kinds)}
        replaced = set()
        for kind, inputs, _ in operations:
            if kind in ("RELU", "HARD_SWISH", "LOGISTIC"):
                replaced.add(inputs[0])
            elif kind == "ADD":
                later = max(inputs, key=order.get)
                # Other layers take no addition. Of the activations, ReLU does.
                if readers[later] == 1 and kinds[later] in ("CONV_2D", "DEPTHWISE_CONV_2D", "RELU", "MUL"):
                    replaced.add(later)
        # The last sigmoid is not the network's.
        sources = {output: inputs[0] for kind, inputs, output in operations if kind == "LOGISTIC" and not readers[output]}
        names = {tensor["index"]: tensor["name"] for tensor in network.network.get_tensor_details()}
        outputs = [output for output in kinds if output not in replaced]
        with open(ROOT / f"detectors/tests/data/{model}.bin", "wb") as file:
            for output in outputs:
                value = network.network.get_tensor(sources.get(output, output))[0]
                y, x = numpy.ogrid[:value.shape[0], :value.shape[1]]
                weights = 1 + (3 * x + 5 * y) % 7
                sums = (value.astype(numpy.float64) * weights[..., None]).sum(axis=(0, 1)).astype("<f4")
                name = names[output].encode()
                file.write(struct.pack("<B", len(name)) + name + struct.pack("<I", len(sums)) + sums.tobytes())
        print(f"{model}: {len(outputs)} tensors")


def timed(folder):
    subprocess.run(["cargo", "build", "--release", "--quiet", "--example", "search", "-p", "gst-plugin-detectors"], check=True, cwd=ROOT)
    search = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/examples/search"
    print("ms of a run, least and median of 40")
    for model in MODELS:
        path = folder / f"{model}.tflite"
        for threads in 1, 2, 4:
            if threads > len(os.sched_getaffinity(0)):
                break
            ours = subprocess.run([search, path, str(threads)], check=True, capture_output=True, text=True).stdout.strip()
            print(f"{model}: {ours}")
            network = Network(path, threads)
            network.network.set_tensor(network.input["index"], numpy.stack(picture(*network.size), -1)[None])
            durations = []
            for _ in range(40):
                started = time.perf_counter()
                network.network.invoke()
                durations.append((time.perf_counter() - started) * 1e3)
            durations.sort()
            print(f"{model}: LiteRT, threads {threads}: {durations[0]:.2f} {durations[20]:.2f}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("reference", "time"):
        sys.exit(__doc__)
    {"reference": reference, "time": timed}[sys.argv[1]](pathlib.Path(sys.argv[2]))
