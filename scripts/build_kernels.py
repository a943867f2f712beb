# SPDX-License-Identifier: MPL-2.0
"""Builds the prebuilt kernels in kernels/prebuilt/ from kernels/blur.cu. Needs clang, pip and zstd; no GPU, no driver.

scripts/build-kernels          builds the images, verifies them and writes them
scripts/build-kernels --check  verifies the committed images and that a new build is identical; writes nothing
"""
import argparse
import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels"
PREBUILT = KERNELS / "prebuilt"
SOURCES = ("blur.cu", "abi.h", "alpha.cuh", "axis.cuh", "compat.cuh", "cover.cuh", "entries.cuh", "level.cuh",
           "overlap.cuh", "pixels.cuh", "tensor.cuh", "tensor_blur.cuh", "tensor_decimate.cuh", "tensor_interpolate.cuh",
           "tensor_taps.cuh", "tile_loader.cuh", "warp.cuh")
PINS = KERNELS / "toolchain.txt"
TOOLCHAIN = ROOT / "target" / "kernels-toolchain"
# In loading order: NVRTC opens the builtins by their bare name, which succeeds only if they are already loaded.
NVRTC = (TOOLCHAIN / "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.9",
         TOOLCHAIN / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
PTXAS_12 = TOOLCHAIN / "nvidia/cuda_nvcc/bin/ptxas"
PTXAS_13 = TOOLCHAIN / "nvidia/cu13/bin/ptxas"

CUBIN_ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
PTX_ARCH = "sm_60"
# The PTX version of CUDA 11.8, whose driver is the oldest supported one.
PTX_VERSION_MAX = (7, 8)
# The ptxas for each architecture that the PTX has to assemble for. These are all supported ones: a chip without a CUBIN
# runs the PTX, and a driver can be configured to prefer PTX on any chip.
PTXAS = {"sm_60": PTXAS_12, "sm_61": PTXAS_12, "sm_70": PTXAS_12}
PTXAS.update({arch: PTXAS_13 for arch in (*CUBIN_ARCHS, "sm_87", "sm_110")})
PTX = f"{PTX_ARCH}.ptx.zst"
IMAGES = (*(f"{arch}.cubin.zst" for arch in CUBIN_ARCHS), PTX)
SUMS = "SHA256SUMS"
TOTAL_BYTES_MAX = 3 << 20


def entry_points(image):
    """The names of the kernels of an image: two per pixel family, those of the wide form, and those for all families."""
    families = re.search(r"^#define BLUR_FAMILIES\(X\) (.*)$", (KERNELS / "abi.h").read_text(), re.M)
    names = re.findall(r"X\((\w+)\)", families.group(1))
    kernels = {f"blur_{kernel}_{name}" for kernel in ("fused", "rows") for name in names}
    kernels |= {"blur_columns", "blur_axis", "blur_premultiply", "blur_unpremultiply"}
    kernels |= {"blur_cover", "blur_mosaic_sums", "blur_mosaic_write"}
    # Planes of bytes have tensor-core kernels for the wide form where there are tensor cores.
    has_tensor_cores = image not in (PTX, "sm_75.cubin.zst")
    levels = [name for name in names if re.fullmatch(r"u16_c\d+" if has_tensor_cores else r"u\d+_c\d+", name)]
    kernels |= {f"blur_{kernel}_{name}" for kernel in ("decimate", "interpolate") for name in levels}
    if has_tensor_cores:
        pixels = ("small", "u8_c12", "u8_c3_s2", "u8_c3_s4", "u8_c4_s2", "u8_c4_s4")
        kernels |= {f"blur_tensor_{kernel}_{name}" for kernel in ("decimate", "interpolate") for name in pixels}
        kernels |= {"blur_tensor_blur_short", "blur_tensor_blur_long"}
    return kernels


class BuildError(Exception):
    """Ends the build; the text is for the user."""


def message(text):
    print(f"scripts/build-kernels: {text}", file=sys.stderr)


def run(*command, **options):
    """Runs a program and returns its output; a failure raises BuildError with its standard error."""
    done = subprocess.run([str(word) for word in command], capture_output=True, check=False, **options)
    if done.returncode != 0:
        stderr = done.stderr.decode(errors="replace").strip()
        raise BuildError(f"{Path(command[0]).name} failed ({done.returncode}): {stderr}")
    return done


def requirements(pins):
    """The lines of a pip requirements file that are not comments."""
    return [line for line in pins.read_text().splitlines() if line and not line.startswith("#")]


def toolchain_is_current():
    pins = TOOLCHAIN / PINS.name
    complete = all(path.exists() for path in (*NVRTC, PTXAS_12, PTXAS_13, pins))
    return complete and requirements(pins) == requirements(PINS)


def require_programs():
    missing = [name for name in ("clang", "zstd") if not shutil.which(name)]
    if missing:
        packages = " ".join(missing)
        raise BuildError(f"{' and '.join(missing)} not found; on Debian and Ubuntu: apt-get install {packages}")


def fetch_toolchain():
    """Downloads the toolchain and a copy of its pins to a temporary folder, which is renamed once it is complete."""
    message("downloading NVRTC and ptxas")
    TOOLCHAIN.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=TOOLCHAIN.name, dir=TOOLCHAIN.parent) as temp:
        wheels, new = Path(temp, "wheels"), Path(temp, "new")
        run(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--only-binary=:all:", "--require-hashes", "-r", PINS, "-d", wheels)
        for wheel in wheels.iterdir():
            with zipfile.ZipFile(wheel) as archive:
                members = {path.relative_to(TOOLCHAIN).as_posix() for path in (*NVRTC, PTXAS_12, PTXAS_13)}
                for member in members.intersection(archive.namelist()):
                    Path(archive.extract(member, new)).chmod(0o755)
        shutil.copyfile(PINS, new / PINS.name)
        shutil.rmtree(TOOLCHAIN, ignore_errors=True)
        new.rename(TOOLCHAIN)


def char_pointers(values):
    return (ctypes.c_char_p * len(values))(*values)


class Nvrtc:
    """The CUDA C++ compiler that builds the CUBINs."""

    def __init__(self):
        self.library = [ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL) for path in NVRTC][-1]

    def call(self, function, *arguments):
        result = self.library[f"nvrtc{function}"](*arguments)
        if result != 0:
            raise BuildError(f"nvrtc{function} failed ({result})")

    def output(self, what, program):
        size = ctypes.c_size_t()
        self.call(f"Get{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"Get{what}", program, buffer)
        return buffer.raw

    def cubin(self, arch):
        """Returns the CUBIN and the compiler's log."""
        source, *headers = ((KERNELS / name).read_bytes() for name in SOURCES)
        name, *header_names = (name.encode() for name in SOURCES)
        options = (b"--gpu-architecture=" + arch.encode(), b"--std=c++17", b"--ptxas-options=-v")
        program = ctypes.c_void_p()
        self.call("CreateProgram", ctypes.byref(program), source, name, len(headers), char_pointers(headers),
                  char_pointers(header_names))
        try:
            self.call("CompileProgram", program, len(options), char_pointers(options))
            return self.output("CUBIN", program), self.output("ProgramLog", program).decode()
        except BuildError as error:
            text = self.output("ProgramLog", program).decode().strip("\0\n ")
            raise BuildError(f"{arch}: {error}: {text}") from None
        finally:
            self.call("DestroyProgram", ctypes.byref(program))


nvrtc = cache(Nvrtc)


def build_cubin(arch):
    """Runs Nvrtc.cubin() in a worker process, because NVRTC compiles one program at a time per process."""
    return nvrtc().cubin(arch)


def portable_ptx():
    """Returns the PTX after a line with clang's version, since the text depends on it."""
    version = run("clang", "--version").stdout.split(b"\n")[0].strip()
    options = ("-x cuda --cuda-device-only -nocudainc -nocudalib -std=c++17 -O3 -Xclang -target-feature -Xclang +ptx70 "
               f"--cuda-gpu-arch={PTX_ARCH} -S -o -")
    return b"// " + version + b"\n" + run("clang", *options.split(), SOURCES[0], cwd=KERNELS).stdout


def ptx_compiler(ptx):
    """The compiler's version, from the first line that portable_ptx writes."""
    return ptx.split(b"\n")[0].decode(errors="replace").lstrip("/ ")


def assemble(ptx, arch, problems):
    """Assembles the PTX and returns ptxas' log, which is empty if that fails."""
    with tempfile.NamedTemporaryFile(suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        try:
            done = run(PTXAS[arch], f"-arch={arch}", "-v", "-o", os.devnull, file.name)
        except BuildError as error:
            problems.append(f"PTX by {ptx_compiler(ptx)} cannot be assembled for {arch}: {error}")
            return ""
    return (done.stdout + done.stderr).decode()


def compress(image):
    # With one thread and a known size the bytes depend only on zstd's version.
    size = f"--stream-size={len(image)}"
    return run("zstd", "--ultra", "-22", "--single-thread", size, "-q", "-c", input=image).stdout


def checksums(folder):
    """The lines of SHA256SUMS for the sources, the pins and the images, in the format of sha256sum run in kernels/."""
    files = [(name, KERNELS / name) for name in (*SOURCES, PINS.name)]
    files += [(f"prebuilt/{name}", folder / name) for name in IMAGES if (folder / name).exists()]
    return [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for name, path in files]


def write(folder, images, pool):
    folder.mkdir()
    for name, data in zip(images, pool.map(compress, images.values())):
        (folder / name).write_bytes(data)
    (folder / SUMS).write_text("".join(checksums(folder)))


def check_sums(folder, problems):
    names = {path.name for path in folder.iterdir()}
    for name in sorted(names ^ {*IMAGES, SUMS}):
        problems.append(f"kernels/prebuilt/{name} {'is not an expected file' if name in names else 'is missing'}")
    listed = (folder / SUMS).read_text().splitlines(keepends=True) if SUMS in names else []
    actual = checksums(folder)
    for line in actual:
        if line not in listed:
            problems.append(f"kernels/{line.split()[1]} does not match its checksum in kernels/prebuilt/{SUMS}")
    if set(listed) >= set(actual) and listed != actual:
        problems.append(f"kernels/prebuilt/{SUMS} has unexpected lines or lines out of order")


def check_images(folder, fresh, pool, problems):
    """Compares the folder's images with new ones and returns its PTX."""
    images = {}
    for name in (name for name in IMAGES if (folder / name).exists()):
        try:
            images[name] = run("zstd", "-d", "-q", "-c", folder / name).stdout
        except BuildError as error:
            problems.append(f"kernels/prebuilt/{name} cannot be decompressed: {error}")
    ptx = images.get(PTX, fresh[PTX])
    if ptx_compiler(ptx) != ptx_compiler(fresh[PTX]):
        list(pool.map(lambda arch: assemble(fresh[PTX], arch, problems), PTXAS))
        message(f"{PTX} was built by {ptx_compiler(ptx)}: the PTX of {ptx_compiler(fresh[PTX])} is assembled, not compared")
        del images[PTX]
    for name, image in images.items():
        if image != fresh[name]:
            problems.append(f"kernels/prebuilt/{name} differs from a new build of the sources")
    return ptx


def check_ptx(ptx, problems):
    version = re.search(rb"^\.version (\d+)\.(\d+)$", ptx, re.M)
    if not version or tuple(map(int, version.groups())) > PTX_VERSION_MAX:
        problems.append(f"{PTX} has a PTX version above {'.'.join(map(str, PTX_VERSION_MAX))}")
    if re.findall(rb"^\.target (.*)$", ptx, re.M) != [PTX_ARCH.encode()]:
        problems.append(f"{PTX} does not have the target {PTX_ARCH}")
    if b"\0" in ptx or re.search(rb"^\s*\.file", ptx, re.M) or bytes(ROOT) in ptx:
        problems.append(f"{PTX} contains a NUL or a path")


def check_log(log, what, problems):
    """Reads the output of `ptxas -v` for each function; returns the largest use of each resource by any kernel."""
    frame = (r"Function properties for (\S+)\n"
             r"\D*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
    use = r"Compiling entry function '(\S+)'.*?Used (\d+) registers(?:[^\n]* (\d+) bytes smem)?"
    frames = {name: [int(size) for size in sizes] for name, *sizes in re.findall(frame, log)}
    uses = {name: [int(size or 0) for size in sizes] for name, *sizes in re.findall(use, log, re.S)}
    expected = entry_points(what.split()[0])
    missing, unexpected = expected - (uses.keys() & frames.keys()), uses.keys() - expected
    if missing or unexpected:
        problems.append(f"{what}: kernels missing from the compiler's log: {', '.join(sorted(missing)) or 'none'}; "
                        f"unexpected ones: {', '.join(sorted(unexpected)) or 'none'}")
    for name, (stack, stores, loads) in frames.items():
        if stack or stores or loads:
            problems.append(f"{what}: {name} has a stack frame of {stack} bytes, spills {stores} and reloads {loads}")
    rows = [uses[name] + frames[name] for name in uses.keys() & frames.keys()]
    return [max(column) for column in zip(*rows)] or ["-"] * 5


def report(folder, ptx, logs, pool, problems):
    """Prints the registers, shared memory and spills of each image, and the folder's size."""
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    rows = [("image", "on", "registers", "shared", "stack", "stores", "loads", "bytes")]
    for name, arch, log in zip(IMAGES, CUBIN_ARCHS, logs):
        rows.append((name, arch, *check_log(log, name, problems), sizes.get(name, "-")))
    archs = sorted(PTXAS, key=lambda arch: int(arch[3:]))
    for arch, log in zip(archs, pool.map(lambda arch: assemble(ptx, arch, problems), archs)):
        size = sizes.get(PTX, "-") if arch == PTX_ARCH else ""
        rows.append((PTX, arch, *check_log(log, f"{PTX} on {arch}", problems), size))
    total = sum(sizes.values())
    rows.append(("all", "", "", "", "", "", "", total))
    for row in rows:
        print("{:18}{:7}{:>9}{:>8}{:>7}{:>8}{:>7}{:>8}".format(*row))
    if total > TOTAL_BYTES_MAX:
        problems.append(f"kernels/prebuilt has {total} bytes, more than {TOTAL_BYTES_MAX}")


def main():
    parser = argparse.ArgumentParser(prog="scripts/build-kernels", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="verify kernels/prebuilt/ and write nothing")
    check = parser.parse_args().check
    require_programs()
    if check and not PREBUILT.is_dir():
        raise BuildError("kernels/prebuilt is missing; run scripts/build-kernels without --check to build it")
    if not toolchain_is_current():
        fetch_toolchain()
    problems = []
    with (ProcessPoolExecutor(os.cpu_count()) as processes, ThreadPoolExecutor(os.cpu_count()) as pool,
          tempfile.TemporaryDirectory() as temp):
        built = processes.map(build_cubin, CUBIN_ARCHS)
        ptx = pool.submit(portable_ptx)
        cubins, logs = zip(*built)
        fresh = dict(zip(IMAGES, (*cubins, ptx.result())))
        folder = PREBUILT if check else Path(temp, PREBUILT.name)
        if not check:
            write(folder, fresh, pool)
        check_sums(folder, problems)
        ptx = check_images(folder, fresh, pool, problems)
        check_ptx(ptx, problems)
        report(folder, ptx, logs, pool, problems)
        if not check and not problems:
            shutil.rmtree(PREBUILT, ignore_errors=True)
            shutil.copytree(folder, PREBUILT)
    for problem in problems:
        message(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BuildError as failure:
        message(failure)
        sys.exit(1)
