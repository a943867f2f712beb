# SPDX-License-Identifier: MPL-2.0
"""CenterFace by ONNX Runtime, to compare detectors with. Needs the packages onnx, onnxruntime and numpy.

    python3 benches/hiding/onnx_runtime.py reference target/models/centerface.onnx    writes detectors/tests/data/centerface.bin
    python3 benches/hiding/onnx_runtime.py time target/models/centerface.onnx         times searches of 640x384, in turns with
                                                                                      the example `search` of detectors/
"""
import os
import pathlib
import struct
import subprocess
import sys
import time

import numpy
import onnx

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime

ROOT = pathlib.Path(__file__).parents[2]


def load(path, keep_inputs=False):
    """The model for pictures of any size. Its file lists the constants as inputs, too, so that ONNX Runtime treats none as constant;
    without these entries it is faster."""
    model = onnx.load(path)
    constants = {constant.name for constant in model.graph.initializer}
    picture = next(value for value in model.graph.input if value.name == model.graph.node[0].input[0])
    if not keep_inputs:
        del model.graph.input[:]
        model.graph.input.append(picture)
    else:
        kept = [value for value in model.graph.input if value.name in constants]
        del model.graph.input[:]
        model.graph.input.extend([picture, *kept])
    for value in [model.graph.input[0], *model.graph.output]:
        for place in 0, 2, 3:
            value.type.tensor_type.shape.dim[place].ClearField("dim_value")
    return model


def session(model, threads):
    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def picture(width, height):
    """The picture of detectors/tests/centerface.rs."""
    channel, y, x = numpy.ogrid[:3, :height, :width]
    return ((x * 7 + y * 13 + channel * 31) * 2654 % 256).astype(numpy.float32)[None]


def reference(path):
    """Of each tensor that is not replaced in place by the next node (ReLU, normalisation, an addition): the sums of its channels, in
    which each pixel has a weight."""
    model = load(path)
    order = {node.output[0]: number for number, node in enumerate(model.graph.node)}
    replaced = set()
    for node in model.graph.node:
        if node.op_type in ("Relu", "BatchNormalization"):
            replaced.add(node.input[0])
        elif node.op_type == "Add":
            replaced.add(max(node.input, key=order.get))
    # The sigmoid is not the network's.
    sigmoids = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "Sigmoid"}
    names = [name for name in order if name not in replaced and name not in sigmoids.values()]
    known = {output.name for output in model.graph.output}
    tensors = [sigmoids.get(name, name) for name in names]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in tensors if name not in known)
    values = session(model, 1).run(tensors, {model.graph.input[0].name: picture(96, 64)})
    with open(ROOT / "detectors/tests/data/centerface.bin", "wb") as file:
        for name, value in zip(names, values):
            y, x = numpy.ogrid[:value.shape[2], :value.shape[3]]
            sums = (value[0].astype(numpy.float64) * (1 + (3 * x + 5 * y) % 7)).sum(axis=(1, 2)).astype("<f4")
            file.write(struct.pack("<B", len(name)) + name.encode() + struct.pack("<I", len(sums)) + sums.tobytes())
    print(f"{len(names)} tensors")


def timed(path):
    subprocess.run(["cargo", "build", "--release", "--quiet", "--example", "search", "-p", "gst-plugin-detectors"], check=True, cwd=ROOT)
    search = ROOT / "target/release/examples/search"
    input = picture(640, 384)
    print("ms of a search of 640x384, least and median of 40")
    for threads in 1, 2, 4:
        if threads > len(os.sched_getaffinity(0)):
            break
        print(subprocess.run([search, path, str(threads)], check=True, capture_output=True, text=True).stdout.strip())
        for name, keep_inputs in ("constants known", False), ("as the file is", True):
            run = session(load(path, keep_inputs), threads)
            durations = []
            for _ in range(40):
                started = time.perf_counter()
                run.run(None, {run.get_inputs()[0].name: input})
                durations.append((time.perf_counter() - started) * 1e3)
            durations.sort()
            print(f"ONNX Runtime, {name}, threads {threads}: {durations[0]:.2f} {durations[20]:.2f}")


if len(sys.argv) != 3 or sys.argv[1] not in ("reference", "time"):
    sys.exit(__doc__)
{"reference": reference, "time": timed}[sys.argv[1]](sys.argv[2])
