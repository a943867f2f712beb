"""OpenCV's GaussianBlur for cpu.rs: opencv.py INPUT OUTPUT WIDTH HEIGHT, where INPUT is a raw RGBA frame.

The first line of output is OpenCV's version and thread count. Then each line of input is a command:
"CHANNELS TAPS SIGMA" blurs once and prints the time in nanoseconds; "save" writes the last result to OUTPUT and prints
"saved".
"""

import sys
import time

import cv2
import numpy

input_path, output_path = sys.argv[1:3]
width, height = map(int, sys.argv[3:])
frame = numpy.fromfile(input_path, numpy.uint8).reshape(height, width, 4)
frames = {n: numpy.ascontiguousarray(frame[:, :, :n]) for n in (1, 3, 4)}
results = {n: numpy.empty_like(frame) for n, frame in frames.items()}
result = frame
print(f"OpenCV {cv2.__version__} on {cv2.getNumThreads()} threads", flush=True)

for command in sys.stdin:
    if command == "save\n":
        result.tofile(output_path)
        print("saved", flush=True)
        continue
    channels, taps, sigma = command.split()
    source, result = frames[int(channels)], results[int(channels)]
    size = (int(taps), int(taps))
    start = time.perf_counter_ns()
    result = cv2.GaussianBlur(source, size, float(sigma), dst=result, borderType=cv2.BORDER_REPLICATE)
    print(time.perf_counter_ns() - start, flush=True)
