"""Measures the row and column filters of NVIDIA NPP on the frames of `cargo bench --bench cuda`: in device memory, GPU
time by events, median of 60 with six frames in turn. Needs Python 3 alone, and libnppif of CUDA 12 or 13.
  others.py                     tables
  others.py --curve FILE        4K RGBA by sigma, taps out to 4 sigma, as lines for `cargo bench --bench sigma`"""

import array
import ctypes
import glob
import importlib.util
import math
import os
import statistics
import sys

KERNEL_SIZES = [7, 15, 31, 63, 127]
# Name, height, width, channels, bits of a sample.
PLANES = [
    ("1080p RGBA", 1080, 1920, 4, 8),
    ("4K RGBA", 2160, 3840, 4, 8),
    ("1080p GRAY8", 1080, 1920, 1, 8),
    ("4K GRAY8", 2160, 3840, 1, 8),
    ("4K RGBA64", 2160, 3840, 4, 16),
]
ARTICLE = [(300, 400), (600, 800), (720, 1280), (1080, 1920), (1440, 2560)]
SIGMAS = [0.5, 1, 1.5, 2, 3.4, 3.5, 5, 7, 10, 14, 20, 28, 40, 63, 100]
REPETITIONS, WARM_UP, BUFFERS = 60, 8, 6
REPLICATE, NON_BLOCKING = 2, 1
# The largest sum of 16-bit samples and integer taps that 32 bits with a sign hold.
DIVISOR = 1 << 15

Address, Int = ctypes.c_uint64, ctypes.c_int


class Missing(Exception):
    """Something that the measurement needs is not installed."""


class Refused(Exception):
    """NPP returned an error."""


class Pair(ctypes.Structure):
    """NppiSize and NppiPoint."""

    _fields_ = [("x", Int), ("y", Int)]


class StreamContext(ctypes.Structure):
    """NppStreamContext, the same in CUDA 12 and 13."""

    _fields_ = [
        ("stream", ctypes.c_void_p),
        ("device", Int),
        ("multiprocessors", Int),
        ("threads_per_multiprocessor", Int),
        ("threads_per_block", Int),
        ("shared_memory_per_block", ctypes.c_size_t),
        ("compute_capability_major", Int),
        ("compute_capability_minor", Int),
        ("stream_flags", ctypes.c_uint),
        ("reserved", Int),
    ]


class Device:
    """The first CUDA device, and a stream on it. Like NPP, it uses the device's primary context."""

    def __init__(self):
        try:
            self.cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Missing(f"the NVIDIA driver is not installed ({error})") from None
        context, self.stream, self.events = ctypes.c_void_p(), ctypes.c_void_p(), [ctypes.c_void_p(), ctypes.c_void_p()]
        try:
            self.call("cuInit", 0)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        except OSError as error:
            raise Missing(f"no CUDA device can be opened ({error})") from None
        self.call("cuCtxSetCurrent", context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), NON_BLOCKING)
        for event in self.events:
            self.call("cuEventCreate", ctypes.byref(event), 0)
        # CU_DEVICE_ATTRIBUTE_…: MULTIPROCESSOR_COUNT, MAX_THREADS_PER_MULTIPROCESSOR, MAX_THREADS_PER_BLOCK,
        # MAX_SHARED_MEMORY_PER_BLOCK, COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR
        attributes = [self.attribute(number) for number in (16, 39, 1, 8, 75, 76)]
        self.npp_context = StreamContext(self.stream, 0, *attributes, NON_BLOCKING, 0)

    def call(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        if status != 0:
            raise OSError(f"{name} returned {status}")

    def attribute(self, number):
        value = Int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, 0)
        return value.value

    def upload(self, data):
        address = Address()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(len(data)))
        self.call("cuMemcpyHtoD_v2", address, data, ctypes.c_size_t(len(data)))
        self.call("cuCtxSynchronize")
        return address

    def download(self, address, length):
        data = ctypes.create_string_buffer(length)
        self.call("cuCtxSynchronize")
        self.call("cuMemcpyDtoH_v2", data, address, ctypes.c_size_t(length))
        return data.raw

    def free(self, addresses):
        for address in addresses:
            self.call("cuMemFree_v2", address)

    def time(self, lead, work):
        """The median time of `work` in µs. `lead` keeps the device busy while `work` is enqueued."""
        begin, end = self.events
        times, milliseconds = [], ctypes.c_float()
        for turn in range(REPETITIONS + WARM_UP):
            lead(2 * turn)
            self.call("cuEventRecord", begin, self.stream)
            work(2 * turn + 1)
            self.call("cuEventRecord", end, self.stream)
            self.call("cuEventSynchronize", end)
            self.call("cuEventElapsedTime", ctypes.byref(milliseconds), begin, end)
            times.append(milliseconds.value * 1000)
        return statistics.median(times[WARM_UP:])


def load_npp():
    """libnppif of a wheel in this Python, of the loader's path, or of a toolkit."""
    package = importlib.util.find_spec("nvidia")
    folders = [os.path.join(folder, "*/lib") for folder in (package.submodule_search_locations if package else [])]
    for folder in [*folders, "", "/usr/local/cuda*/lib64"]:
        for name in ("libnppif.so.13", "libnppif.so.12"):
            for file in glob.glob(os.path.join(folder, name)) if folder else [name]:
                try:
                    return ctypes.CDLL(file)
                except OSError:
                    pass
    raise Missing(
        f"{sys.executable}, the loader's path and /usr/local/cuda*/lib64 have no libnppif.so.13 or .12 that can be "
        "loaded; pip install nvidia-npp"
    )


def weights(k, sigma):
    taps = [math.exp(-((i - k // 2) ** 2) / (2 * sigma * sigma)) for i in range(k)]
    total = sum(taps)
    return [tap / total for tap in taps]


class Npp:
    """A filter along rows and one along columns, with an intermediate of the sample's own depth. `taps` is integer or
    float."""

    def __init__(self, device, library, taps):
        library.nppGetLibVersion.restype = ctypes.POINTER(Int * 3)
        self.version = "NPP " + ".".join(map(str, library.nppGetLibVersion().contents))
        self.name = f"{self.version}, {taps} taps"
        self.device, self.library, self.integer = device, library, taps == "integer"

    def taps(self, k, sigma):
        if not self.integer:
            return array.array("f", weights(k, sigma)).tobytes()
        taps = [round(tap * DIVISOR) for tap in weights(k, sigma)]
        taps[k // 2] += DIVISOR - sum(taps)
        return array.array("i", taps).tobytes()

    def filter(self, axis, layout, source, destination, taps, k):
        """A call of one filter, ready to be made many times."""
        height, width, channels, bits = layout
        name = f"nppiFilter{axis}Border{'' if self.integer else '32f'}_{bits}u_C{channels}R_Ctx"
        function, size, step = getattr(self.library, name), Pair(width, height), Int(pitch(layout))
        arguments = [source, step, size, Pair(0, 0), destination, step, size, taps, Int(k), Int(k // 2)]
        arguments += [Int(DIVISOR)] if self.integer else []
        arguments += [Int(REPLICATE), self.device.npp_context]

        def call():
            status = function(*arguments)
            if status != 0:
                raise Refused(f"{name} with {k} taps returned {status}")

        return call

    def blurs(self, layout, frames, between, taps, k):
        calls = [
            [
                self.filter("Row", layout, source, between, taps, k),
                self.filter("Column", layout, between, destination, taps, k),
            ]
            for source, destination in frames
        ]

        def blur(turn):
            for call in calls[turn % len(calls)]:
                call()

        return blur

    def time(self, layout, k, sigma):
        length = pitch(layout) * layout[0]
        noise = os.urandom(length)
        memory = [self.device.upload(noise) for _ in range(2 * BUFFERS + 1)]
        memory += [self.device.upload(self.taps(*kernel)) for kernel in ((KERNEL_SIZES[-1], 20), (k, sigma))]
        *frames, between, lead, taps = memory
        frames = list(zip(frames[:BUFFERS], frames[BUFFERS:]))
        try:
            return self.device.time(
                self.blurs(layout, frames, between, lead, KERNEL_SIZES[-1]),
                self.blurs(layout, frames, between, taps, k),
            )
        finally:
            self.device.free(memory)

    def check(self, layout, k, sigma):
        """The largest distance from the float64 Gaussian in a frame of noise, in LSB."""
        height, width, channels, bits = layout
        length = pitch(layout) * height
        noise = os.urandom(length)
        memory = [self.device.upload(data) for data in (noise, bytes(length), bytes(length), self.taps(k, sigma))]
        source, between, destination, taps = memory
        try:
            self.blurs(layout, [(source, destination)], between, taps, k)(0)
            result = rows_of(self.device.download(destination, length), layout)
        finally:
            self.device.free(memory)
        gaussian, radius = weights(k, sigma), k // 2

        def near(i, n):
            return min(max(i - radius, 0), n - 1)

        rows = [
            [
                sum(gaussian[i] * row[near(x + i, width) * channels + channel] for i in range(k))
                for x in range(width)
                for channel in range(channels)
            ]
            for row in rows_of(noise, layout)
        ]
        return max(
            abs(result[y][x] - sum(gaussian[i] * rows[near(y + i, height)][x] for i in range(k)))
            for y in range(height)
            for x in range(width * channels)
        )


def pitch(layout):
    """Bytes from row to row: a multiple of 256."""
    _, width, channels, bits = layout
    return -(-width * channels * bits // 8 // 256) * 256


def rows_of(data, layout):
    height, width, channels, bits = layout
    step = pitch(layout)
    return [
        array.array("B" if bits == 8 else "H", data[y * step :][: width * channels * bits // 8]) for y in range(height)
    ]


def curve(libraries, file):
    with open(file, "w", encoding="utf-8") as lines:
        for sigma in SIGMAS:
            times = []
            for npp in libraries:
                try:
                    times.append(npp.time((2160, 3840, 4, 8), 2 * int(4 * sigma + 0.5) + 1, sigma))
                except Refused as error:
                    print(f"sigma {sigma}, {npp.name}: {error}")
            if times:
                lines.write(f"{libraries[0].version},{sigma},{min(times):.1f}\n")


def cell(npp, layout, k, sigma):
    try:
        return f"{npp.time(layout, k, sigma):.0f}"
    except Refused as error:
        return str(error)


def report_errors(npp):
    for bits in (8, 16):
        try:
            # Filters of 7 taps have kernels of their own.
            error = max(npp.check((30, 41, channels, bits), k, k / 6) for channels in (1, 3, 4) for k in (7, 15))
        except Refused as refused:
            print(f"{npp.name}: {refused}")
            continue
        if error > 1:
            print(f"{npp.name}: differs by up to {error:.2f} LSB of {bits} bits from the float64 Gaussian")


def tables(libraries):
    for npp in libraries:
        report_errors(npp)
    print("\nNPP, device memory to device memory, µs, sigma = k/6\n")
    print("| filters | plane | " + " | ".join(f"k={k}" for k in KERNEL_SIZES) + " |")
    print("| --- | --- |" + " --- |" * len(KERNEL_SIZES))
    for npp in libraries:
        for plane, *layout in PLANES:
            cells = [cell(npp, layout, k, k / 6) for k in KERNEL_SIZES]
            print(f"| {npp.name} | {plane} | " + " | ".join(cells) + " |", flush=True)
    print("\nNPP on the article's RGB frames, 7x7, sigma 1.5, µs in device memory\n")
    print("| filters | " + " | ".join(f"{width}x{height}" for height, width in ARTICLE) + " |")
    print("| --- |" + " --- |" * len(ARTICLE))
    for npp in libraries:
        cells = [cell(npp, (height, width, 3, 8), 7, 1.5) for height, width in ARTICLE]
        print(f"| {npp.name} | " + " | ".join(cells) + " |")


def main(arguments):
    if arguments and (len(arguments) != 2 or arguments[0] != "--curve"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        library, device = load_npp(), Device()
    except Missing as missing:
        print(f"NPP is not measured: {missing}")
        return 0
    libraries = [Npp(device, library, taps) for taps in ("integer", "float")]
    if arguments:
        curve(libraries, arguments[1])
    else:
        tables(libraries)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
