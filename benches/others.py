"""Measures the Gaussian blurs of CuPy and torchvision, where installed, on the frames of `cargo bench --bench cuda`: in
device memory, GPU time by events, median of 60 with six frames in turn.
  others.py [cupy | torchvision]...     both by default
  others.py --curve FILE                CuPy on 4K RGBA by sigma, with its own radius, as lines for `cargo bench --bench sigma`"""

import statistics
import sys

KERNEL_SIZES = [7, 15, 31, 63, 127]
PLANES = [("1080p RGBA", 1080, 1920, 4), ("4K RGBA", 2160, 3840, 4), ("1080p GRAY8", 1080, 1920, 1), ("4K GRAY8", 2160, 3840, 1)]
ARTICLE = [(300, 400), (600, 800), (720, 1280), (1080, 1920), (1440, 2560)]
SIGMAS = [0.5, 1, 1.5, 2, 3.4, 3.5, 5, 7, 10, 14, 20, 28, 40, 63, 100]
REPETITIONS, BUFFERS = 60, 6


def cupy_blur():
    import cupy
    from cupyx.scipy.ndimage import gaussian_filter

    def time(height, width, channels, k, sigma):
        frames = [cupy.random.randint(0, 256, (height, width, channels), dtype=cupy.uint8) for _ in range(BUFFERS)]
        output = cupy.empty_like(frames[0])
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        times = []
        for turn in range(REPETITIONS + 8):
            begin.record()
            # An explicit radius, so that the number of taps is ours.
            gaussian_filter(frames[turn % BUFFERS], (sigma, sigma, 0), output=output, mode="nearest", radius=(k // 2, k // 2, 0))
            end.record()
            end.synchronize()
            times.append(cupy.cuda.get_elapsed_time(begin, end) * 1000)
        return statistics.median(times[8:])

    return f"CuPy {cupy.__version__}", time


def torchvision_blur():
    import torch
    import torchvision
    from torchvision.transforms.functional import gaussian_blur

    def time(height, width, channels, k, sigma):
        # torchvision takes planar frames; the number of samples is the same.
        frames = [torch.randint(0, 256, (channels, height, width), dtype=torch.uint8, device="cuda") for _ in range(BUFFERS)]
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        times = []
        for turn in range(REPETITIONS + 8):
            begin.record()
            gaussian_blur(frames[turn % BUFFERS], [k, k], [sigma, sigma])
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1000)
        return statistics.median(times[8:])

    return f"torchvision {torchvision.__version__}", time


LIBRARIES = {"cupy": cupy_blur, "torchvision": torchvision_blur}


def curve(file):
    try:
        name, time = cupy_blur()
    except ImportError as error:
        print(f"cupy is not measured: {sys.executable} cannot import it ({error})")
        return 0
    with open(file, "w", encoding="utf-8") as lines:
        for sigma in SIGMAS:
            lines.write(f"{name},{sigma},{time(2160, 3840, 4, 2 * int(4 * sigma + 0.5) + 1, sigma):.1f}\n")
    return 0


def main():
    if sys.argv[1:2] == ["--curve"]:
        return curve(sys.argv[2])
    makers = []
    for name in sys.argv[1:] or LIBRARIES:
        try:
            makers.append(LIBRARIES[name]())
        except ImportError as error:
            print(f"{name} is not measured: {sys.executable} cannot import it ({error})")
    if not makers:
        return 0
    print("\nOther libraries, device memory to device memory, µs, sigma = k/6\n")
    print("| library | plane | " + " | ".join(f"k={k}" for k in KERNEL_SIZES) + " |")
    print("| --- | --- |" + " --- |" * len(KERNEL_SIZES))
    for name, time in makers:
        for plane, height, width, channels in PLANES:
            cells = []
            for k in KERNEL_SIZES:
                # torchvision's kernel is two-dimensional: the widest ones would take minutes.
                slow = "torchvision" in name and k > 31
                cells.append("" if slow else f"{time(height, width, channels, k, k / 6):.0f}")
            print(f"| {name} | {plane} | " + " | ".join(cells) + " |", flush=True)
    print("\nOther libraries on the article's RGB frames, 7x7, sigma 1.5, µs in device memory\n")
    print("| library | " + " | ".join(f"{width}x{height}" for height, width in ARTICLE) + " |")
    print("| --- |" + " --- |" * len(ARTICLE))
    for name, time in makers:
        cells = [f"{time(height, width, 3, 7, 1.5):.0f}" for height, width in ARTICLE]
        print(f"| {name} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
