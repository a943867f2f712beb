# SPDX-License-Identifier: MPL-2.0
"""Makes the prebuilt kernels, kernels/prebuilt/, from kernels/blur.cu. Needs clang, pip and zstd; no GPU, no driver.

scripts/build-kernels          builds them, verifies them, writes them
scripts/build-kernels --check  verifies those that are there, and that the sources give them again; writes nothing
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels"
PREBUILT = KERNELS / "prebuilt"
SOURCES = ("blur.cu", "alpha.h", "pixels.h", "shared.h", "shim.h", "stage.h")
PINS = KERNELS / "toolchain.txt"
TOOLCHAIN = ROOT / "target" / "kernels-toolchain"
# NVRTC opens the first by its bare name, and finds it if it is loaded.
NVRTC = (TOOLCHAIN / "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.9", TOOLCHAIN / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
PTXAS_12 = TOOLCHAIN / "nvidia/cuda_nvcc/bin/ptxas"
PTXAS_13 = TOOLCHAIN / "nvidia/cu13/bin/ptxas"

CUBIN_ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
PTX_ARCH = "sm_60"
# That of CUDA 11.8, the oldest driver.
PTX_VERSION_MAX = (7, 8)
# The PTX has to fit all chips: any driver can be told to prefer it, and chips without a CUBIN get nothing else.
PTXAS = {"sm_60": PTXAS_12, "sm_61": PTXAS_12, "sm_70": PTXAS_12}
PTXAS.update({arch: PTXAS_13 for arch in (*CUBIN_ARCHS, "sm_87", "sm_110")})
PTX = f"{PTX_ARCH}.ptx.zst"
IMAGES = (*(f"{arch}.cubin.zst" for arch in CUBIN_ARCHS), PTX)
SUMS = "SHA256SUMS"
TOTAL_BYTES_MAX = 1 << 20
PIXELS = (*(f"{sample}_{channels}" for sample in ("u8", "u16") for channels in ("c12", "c3", "c4")), "yuv422", "ten")
ENTRY_POINTS = {f"blur_{kind}_{pixels}" for kind in ("fused", "rows") for pixels in PIXELS}
ENTRY_POINTS |= {"blur_columns", "blur_multiply", "blur_finish"}


class Problem(Exception):
    """Why it cannot go on."""


def say(text):
    print(f"scripts/build-kernels: {text}", file=sys.stderr)


def tool(*command, **options):
    """Runs a program for its output. What else it says only matters if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, check=False, **options)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise Problem(f"{Path(command[0]).name} failed ({done.returncode}): {said}")
    return done


def have_toolchain():
    pins = TOOLCHAIN / PINS.name
    whole = all(path.exists() for path in (*NVRTC, PTXAS_12, PTXAS_13, pins))
    return whole and pins.read_bytes() == PINS.read_bytes()


def need_programs():
    missing = [name for name in ("clang", "zstd") if not shutil.which(name)]
    if missing:
        raise Problem(f"{' and '.join(missing)} not found; on Debian and Ubuntu: apt-get install {' '.join(missing)}")


def fetch_toolchain():
    """Makes the folder elsewhere, with the pins it is made from, and moves it to its place when it is whole."""
    say("fetching NVRTC and ptxas")
    TOOLCHAIN.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=TOOLCHAIN.name, dir=TOOLCHAIN.parent) as scratch:
        wheels, new = Path(scratch, "wheels"), Path(scratch, "new")
        tool(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--only-binary=:all:", "--require-hashes", "-r", PINS, "-d", wheels)
        for wheel in wheels.iterdir():
            with zipfile.ZipFile(wheel) as archive:
                members = {path.relative_to(TOOLCHAIN).as_posix() for path in (*NVRTC, PTXAS_12, PTXAS_13)}
                for member in members.intersection(archive.namelist()):
                    Path(archive.extract(member, new)).chmod(0o755)
        shutil.copyfile(PINS, new / PINS.name)
        shutil.rmtree(TOOLCHAIN, ignore_errors=True)
        new.rename(TOOLCHAIN)


def strings(values):
    return (ctypes.c_char_p * len(values))(*values)


class Nvrtc:
    """The compiler of the CUBINs."""

    def __init__(self):
        self.library = [ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL) for path in NVRTC][-1]

    def call(self, function, *arguments):
        result = self.library[f"nvrtc{function}"](*arguments)
        if result != 0:
            raise Problem(f"nvrtc{function} failed ({result})")

    def output(self, what, program):
        size = ctypes.c_size_t()
        self.call(f"Get{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"Get{what}", program, buffer)
        return buffer.raw

    def cubin(self, arch):
        """The CUBIN and the compiler's log."""
        source, *headers = ((KERNELS / name).read_bytes() for name in SOURCES)
        name, *header_names = (name.encode() for name in SOURCES)
        options = (b"--gpu-architecture=" + arch.encode(), b"--std=c++17", b"--ptxas-options=-v")
        program = ctypes.c_void_p()
        self.call("CreateProgram", ctypes.byref(program), source, name, len(headers), strings(headers),
                  strings(header_names))
        try:
            self.call("CompileProgram", program, len(options), strings(options))
            return self.output("CUBIN", program), self.output("ProgramLog", program).decode()
        except Problem as problem:
            log = self.output("ProgramLog", program).decode().strip("\0\n ")
            raise Problem(f"{arch}: {problem}: {log}") from None
        finally:
            self.call("DestroyProgram", ctypes.byref(program))


def portable_ptx():
    """The PTX, after a line with the compiler's version: another one gives other text."""
    version = tool("clang", "--version").stdout.split(b"\n")[0].strip()
    options = ("-x cuda --cuda-device-only -nocudainc -nocudalib -std=c++17 -O3 -Xclang -target-feature -Xclang +ptx70 "
               f"--cuda-gpu-arch={PTX_ARCH} -S -o -")
    return b"// " + version + b"\n" + tool("clang", *options.split(), SOURCES[0], cwd=KERNELS).stdout


def maker(ptx):
    return ptx.split(b"\n")[0].decode(errors="replace").lstrip("/ ")


def assemble(ptx, arch, problems):
    """Makes machine code of the PTX for ptxas' log, which is empty if that fails."""
    with tempfile.NamedTemporaryFile(suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        try:
            done = tool(PTXAS[arch], f"-arch={arch}", "-v", "-o", os.devnull, file.name)
        except Problem as problem:
            problems.append(f"PTX by {maker(ptx)} cannot be assembled for {arch}: {problem}")
            return ""
    return (done.stdout + done.stderr).decode()


def packed(image):
    # One thread and a known size, so that the bytes depend on zstd's version alone.
    size = f"--stream-size={len(image)}"
    return tool("zstd", "--ultra", "-22", "--single-thread", size, "-q", "-c", input=image).stdout


def sums(folder):
    """What the images depend on and the images, as sha256sum says it in kernels/."""
    files = [(name, KERNELS / name) for name in (*SOURCES, PINS.name)]
    files += [(f"prebuilt/{name}", folder / name) for name in IMAGES if (folder / name).exists()]
    return [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for name, path in files]


def write(folder, images, pool):
    folder.mkdir()
    for name, data in zip(images, pool.map(packed, images.values())):
        (folder / name).write_bytes(data)
    (folder / SUMS).write_text("".join(sums(folder)))


def check_sums(folder, problems):
    names = {path.name for path in folder.iterdir()}
    for name in sorted(names ^ {*IMAGES, SUMS}):
        problems.append(f"kernels/prebuilt/{name} {'does not belong there' if name in names else 'is missing'}")
    listed = (folder / SUMS).read_text().splitlines(keepends=True) if SUMS in names else []
    actual = sums(folder)
    for line in actual:
        if line not in listed:
            problems.append(f"kernels/{line.split()[1]} is not what kernels/prebuilt/{SUMS} says")
    if set(listed) >= set(actual) and listed != actual:
        problems.append(f"kernels/prebuilt/{SUMS} has other lines, or in another order, than it should")


def check_images(folder, fresh, pool, problems):
    """Compares the folder's images with fresh ones; gives its PTX."""
    there = {}
    for name in (name for name in IMAGES if (folder / name).exists()):
        try:
            there[name] = tool("zstd", "-d", "-q", "-c", folder / name).stdout
        except Problem as problem:
            problems.append(f"kernels/prebuilt/{name} cannot be unpacked: {problem}")
    ptx = there.get(PTX, fresh[PTX])
    if maker(ptx) != maker(fresh[PTX]):
        list(pool.map(lambda arch: assemble(fresh[PTX], arch, problems), PTXAS))
        say(f"{maker(fresh[PTX])} here: its PTX is tried, but not compared with {PTX}, by {maker(ptx)}")
        del there[PTX]
    for name, image in there.items():
        if image != fresh[name]:
            problems.append(f"kernels/prebuilt/{name} is not what the sources compile to")
    return ptx


def check_ptx(ptx, problems):
    version = re.search(rb"^\.version (\d+)\.(\d+)$", ptx, re.M)
    if not version or tuple(map(int, version.groups())) > PTX_VERSION_MAX:
        problems.append(f"{PTX} is not of a PTX version up to {'.'.join(map(str, PTX_VERSION_MAX))}")
    if re.findall(rb"^\.target (.*)$", ptx, re.M) != [PTX_ARCH.encode()]:
        problems.append(f"{PTX} does not have {PTX_ARCH} for its target")
    if b"\0" in ptx or re.search(rb"^\s*\.file", ptx, re.M) or bytes(ROOT) in ptx:
        problems.append(f"{PTX} has a NUL or a path in it")


def check_log(log, what, problems):
    """Reads what `ptxas -v` says of each function; gives the most that any kernel takes."""
    frame = (r"Function properties for (\S+)\n"
             r"\D*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
    use = r"Compiling entry function '(\S+)'.*?Used (\d+) registers(?:[^\n]* (\d+) bytes smem)?"
    frames = {name: [int(size) for size in sizes] for name, *sizes in re.findall(frame, log)}
    uses = {name: [int(size or 0) for size in sizes] for name, *sizes in re.findall(use, log, re.S)}
    lacking, unknown = ENTRY_POINTS - (uses.keys() & frames.keys()), uses.keys() - ENTRY_POINTS
    if lacking or unknown:
        problems.append(f"{what}: the compiler's log lacks {', '.join(sorted(lacking)) or 'no kernel'}, "
                        f"and has besides {', '.join(sorted(unknown)) or 'none'}")
    for name, (stack, stores, loads) in frames.items():
        if stack or stores or loads:
            problems.append(f"{what}: {name} has a stack frame of {stack} bytes, spills {stores} and reloads {loads}")
    rows = [uses[name] + frames[name] for name in uses.keys() & frames.keys()]
    return [max(column) for column in zip(*rows)] or ["-"] * 5


def report(folder, ptx, logs, pool, problems):
    """The table of what each image takes of a chip, and the folder's size."""
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    rows = [("image", "on", "registers", "shared", "stack", "stores", "loads", "packed")]
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
        problems.append(f"kernels/prebuilt takes {total} bytes, more than {TOTAL_BYTES_MAX}")


def main():
    parser = argparse.ArgumentParser(prog="scripts/build-kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="verify kernels/prebuilt/ and write nothing")
    check = parser.parse_args().check
    need_programs()
    if check and not PREBUILT.is_dir():
        raise Problem("kernels/prebuilt is missing; without --check it is made")
    if not have_toolchain():
        fetch_toolchain()
    problems = []
    with ThreadPoolExecutor(os.cpu_count()) as pool, tempfile.TemporaryDirectory() as scratch:
        ptx = pool.submit(portable_ptx)
        cubins, logs = zip(*pool.map(Nvrtc().cubin, CUBIN_ARCHS))
        fresh = dict(zip(IMAGES, (*cubins, ptx.result())))
        folder = PREBUILT if check else Path(scratch, PREBUILT.name)
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
        say(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Problem as failure:
        say(failure)
        sys.exit(1)
