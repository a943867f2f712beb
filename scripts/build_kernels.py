# SPDX-License-Identifier: MPL-2.0
"""Builds the prebuilt kernels in kernels/prebuilt/ from kernels/blur.cu. Needs clang, pip and zstd; no GPU, no driver.

scripts/build-kernels               builds the images, verifies them and writes them
scripts/build-kernels --check       verifies the committed images and that a new build is identical; writes nothing
scripts/build-kernels --check K/N   builds only each N-th part of kernels/parts.txt again, from the K-th on
scripts/build-kernels --ptx FOLDER  builds the portable PTX alone, into a folder, with clang and zstd and no other compiler
"""
import argparse
import ctypes
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels"
PREBUILT = KERNELS / "prebuilt"
SOURCES = ("blur.cu", "abi.h", "alpha.cuh", "axis.cuh", "compat.cuh", "cover.cuh", "launch.cuh", "pixels.cuh", "soft.cuh",
           "tensor.cuh", "tensor_blur.cuh", "tensor_decimate.cuh", "tensor_direct.cuh", "tensor_interpolate.cuh",
           "tensor_loader.cuh", "tensor_taps.cuh", "tensor_window.cuh", "warp.cuh")
PARTS_LIST = KERNELS / "parts.txt"
PINS = KERNELS / "toolchain.txt"
TOOLCHAIN = ROOT / "target" / "kernels-toolchain"
# In loading order: NVRTC opens the builtins by their bare name, which succeeds only if they are already loaded.
NVRTC = (TOOLCHAIN / "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.9",
         TOOLCHAIN / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
PTXAS_12 = TOOLCHAIN / "nvidia/cuda_nvcc/bin/ptxas"
PTXAS_13 = TOOLCHAIN / "nvidia/cu13/bin/ptxas"

PTX = "ptx"
# The first architecture with tensor cores that multiply bytes.
TENSOR_CORES = 75
# The PTX version of CUDA 11.8, whose driver is the oldest supported one, and the first one that has sm_90.
PTX_VERSION_MAX = (7, 8)
# The newest architecture of the PTX that clang 14 knows.
CLANG_ARCH_MAX = "sm_80"
# Architectures that only CUDA 13 names. Its drivers are the only ones that know them, so machine code by its ptxas does
# not exclude any. Their PTX is the one that NVRTC makes for the nearest older architecture.
VIRTUAL_ARCHS = {"sm_110": "compute_100"}
SUMS = "SHA256SUMS"
TOTAL_BYTES_MAX = 7 << 19  # 3.5 MiB


class Group(NamedTuple):
    """Architectures whose images share files."""
    name: str
    archs: tuple


class Part(NamedTuple):
    """Kernels that share an image."""
    name: str
    needs: str
    kernels: frozenset

    def archs(self, group):
        """The architectures of a group that have it."""
        return [arch for arch in group.archs if self.needs == "all" or number(arch) >= TENSOR_CORES]


def number(arch):
    """The compute capability, major * 10 + minor, of "sm_90" for instance."""
    return int(arch[3:])


def parts_list():
    """The groups and the parts of kernels/parts.txt."""
    lines = [line.split() for line in PARTS_LIST.read_text().splitlines() if line and not line.startswith("#")]
    groups = [Group(name, tuple(f"sm_{arch}" for arch in archs)) for kind, name, *archs in lines if kind == "group"]
    parts = [Part(name, needs, frozenset(kernels)) for kind, name, needs, *kernels in lines if kind == "part"]
    return groups, parts


GROUPS, PARTS = parts_list()
FILES = {f"{group.name}/{part.name}.zst": (group, part)
         for group in GROUPS for part in PARTS if part.archs(group)}
CUBIN_ARCHS = [arch for group in GROUPS if group.name != PTX for arch in group.archs]
# The ptxas for each architecture that the PTX has to assemble for. These are all supported ones: a chip without a CUBIN
# runs the PTX, and a driver can be configured to prefer PTX on any chip.
PTXAS = {"sm_60": PTXAS_12, "sm_61": PTXAS_12, "sm_70": PTXAS_12}
PTXAS.update({arch: PTXAS_13 for arch in CUBIN_ARCHS})


def ptx_for(arch):
    """The architecture whose PTX a chip takes: the nearest that is not newer."""
    (archs,) = (group.archs for group in GROUPS if group.name == PTX)
    return max((source for source in archs if number(source) <= number(arch)), key=number)


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


def defines(part):
    """The definitions that compile the kernels of one part."""
    return ["-DBLUR_PART=1", f"-DBLUR_PART_{part.name}=1"]


class Nvrtc:
    """The CUDA C++ compiler that builds the PTX of the CUBINs."""

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

    def ptx(self, arch, part):
        """Returns the PTX of a part for an architecture, "compute_90" for instance."""
        source, *headers = ((KERNELS / name).read_bytes() for name in SOURCES)
        name, *header_names = (name.encode() for name in SOURCES)
        options = [f"--gpu-architecture={arch}", "--std=c++17", *defines(part)]
        options = [option.encode() for option in options]
        program = ctypes.c_void_p()
        self.call("CreateProgram", ctypes.byref(program), source, name, len(headers), char_pointers(headers),
                  char_pointers(header_names))
        try:
            self.call("CompileProgram", program, len(options), char_pointers(options))
            return self.output("PTX", program).rstrip(b"\0")
        except BuildError as error:
            text = self.output("ProgramLog", program).decode().strip("\0\n ")
            raise BuildError(f"{part.name} for {arch}: {error}: {text}") from None
        finally:
            self.call("DestroyProgram", ctypes.byref(program))


nvrtc = cache(Nvrtc)


def without_unused_variables(ptx):
    """NVRTC keeps every variable, static members of templates too, because a host program could look it up. With the names,
    the addresses and the values of those that no kernel uses, an image would be up to a sixth larger."""
    variable = re.compile(rb"(?:\.weak )?\.global (?:\.align \d+ )?\.\w+ ([\w$]+)[^;]*;")
    lines = ptx.split(b"\n")
    variables = {i: match[1] for i, line in enumerate(lines) if (match := variable.fullmatch(line))}
    used = set(re.findall(rb"[\w$]+", b"\n".join(line for i, line in enumerate(lines) if i not in variables)))
    return b"\n".join(line for i, line in enumerate(lines) if i not in variables or variables[i] in used)


def build_cubin(arch, part):
    """Returns the CUBIN of a part and the log of ptxas. Runs in a worker process, because NVRTC compiles one program at a
    time per process."""
    ptx = without_unused_variables(nvrtc().ptx(VIRTUAL_ARCHS.get(arch, arch.replace("sm", "compute")), part))
    with tempfile.TemporaryDirectory() as temp:
        source, cubin = Path(temp, "part.ptx"), Path(temp, "part.cubin")
        source.write_bytes(ptx)
        ptxas = PTXAS_13 if arch in VIRTUAL_ARCHS else PTXAS_12
        done = run(ptxas, f"-arch={arch}", "-v", "-o", cubin, source)
        return cubin.read_bytes(), (done.stdout + done.stderr).decode()


# The names of registers and labels in PTX by clang, and what begins a kernel.
NAME = re.compile(rb"(%(?:rd|rs|fd|r|p|f)|\$L__BB)(\d+(?:_\d+)?)")
KERNEL = b".visible "


def rewrite_names(ptx, numbering):
    """Replaces the number of each name by what an instance of `numbering`, one for each kernel and kind of name, returns."""
    def rewrite(kernel):
        numberings = {}
        return NAME.sub(lambda name: name[1] + numberings.setdefault(name[1], numbering())(name[2]), kernel)
    return KERNEL.join(rewrite(kernel) for kernel in ptx.split(KERNEL))


def by_first_use():
    """Numbers names in the order of their first use."""
    numbers = {}
    return lambda name: str(numbers.setdefault(name, len(numbers))).encode()


def by_recency():
    """Numbers a name by how many others were used since its last use; one that is new gets no number. Code that is repeated
    with other registers becomes the same text, which takes a quarter of the bytes. src/cuda/kernels/ptx.rs reverts it."""
    recent = []

    def code(name):
        is_new = name not in recent
        rank = b"" if is_new else str(recent.index(name)).encode()
        if not is_new:
            recent.remove(name)
        recent.insert(0, name)
        return rank
    return code


def portable_ptx(arch, part):
    """Returns the PTX of a part, without comments and indentation, after a line with clang's version, since the text depends
    on it. All functions are inlined, because arguments that are passed by reference would be in local memory.

    clang 14 knows no architecture after sm_86. PTX for a later one is that for sm_80 with the later one's instructions, which
    kernels/launch.cuh has as assembly, and another target."""
    version = run("clang", "--version").stdout.split(b"\n")[0].strip()
    known = min(arch, CLANG_ARCH_MAX, key=number)
    options = ("-x cuda --cuda-device-only -nocudainc -nocudalib -std=c++17 -O3 -mllvm -inline-threshold=100000 "
               f"-Wno-cuda-compat -Xclang -target-feature -Xclang +ptx70 --cuda-gpu-arch={known} -S -o -").split()
    if arch != known:
        options += ["-Wno-builtin-macro-redefined", "-U__CUDA_ARCH__", f"-D__CUDA_ARCH__={number(arch)}0"]
    command = ("clang", *options, *defines(part), SOURCES[0])
    text = re.sub(rb"[ \t]*//.*", b"", run(*command, cwd=KERNELS).stdout)
    if arch != known:
        header = "\n.version {}.{}\n.target {}\n".format(*PTX_VERSION_MAX, arch)
        text = re.sub(rb"\n\.version .*\n\.target .*\n", header.encode(), text, count=1)
    text = rewrite_names(re.sub(rb"\n\s*", b"\n", b"\n" + text), by_first_use)
    return b"// " + version + text


def ptx_compiler(ptx):
    """The compiler's version, from the first line that portable_ptx writes."""
    return ptx.split(b"\n")[0].decode(errors="replace").lstrip("/ ")


def join_ptx(texts):
    """The content of a file of PTX."""
    return join([(arch, rewrite_names(text, by_recency)) for arch, text in texts])


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


def join(images):
    """The content of a file: for each image its compute capability (major * 10 + minor) and its length, both as 32-bit
    little-endian numbers; two zeros; then the images. src/cuda/kernels/images.rs reads it."""
    index = [field for arch, image in images for field in (number(arch), len(image))]
    return struct.pack(f"<{len(index) + 2}I", *index, 0, 0) + b"".join(image for _, image in images)


def first_line(data):
    """The first line of the first image of a file."""
    begin = next(i for i in range(0, len(data), 8) if data[i:i + 8] == bytes(8)) + 8
    return data[begin:].split(b"\n")[0]


def compress(data):
    # With one thread and a known size the bytes depend only on zstd's version.
    size = f"--stream-size={len(data)}"
    return run("zstd", "--ultra", "-22", "--single-thread", size, "-q", "-c", input=data).stdout


def checksums(folder):
    """The lines of SHA256SUMS for the inputs and the files, in the format of sha256sum run in kernels/."""
    files = [(name, KERNELS / name) for name in (*SOURCES, PARTS_LIST.name, PINS.name)]
    files += [(f"prebuilt/{name}", folder / name) for name in FILES if (folder / name).exists()]
    return [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for name, path in files]


def write(folder, fresh, pool):
    for name, data in zip(fresh, pool.map(compress, fresh.values())):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / SUMS).write_text("".join(checksums(folder)))


def check_sums(folder, problems):
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    for name in sorted(names ^ {*FILES, SUMS}):
        problems.append(f"kernels/prebuilt/{name} {'is not an expected file' if name in names else 'is missing'}")
    listed = (folder / SUMS).read_text().splitlines(keepends=True) if SUMS in names else []
    actual = checksums(folder)
    for line in actual:
        if line not in listed:
            problems.append(f"kernels/{line.split()[1]} does not match its checksum in kernels/prebuilt/{SUMS}")
    if set(listed) >= set(actual) and listed != actual:
        problems.append(f"kernels/prebuilt/{SUMS} has unexpected lines or lines out of order")


def check_files(folder, fresh, problems):
    """Compares the folder's files with new ones. PTX is not compared if that of the folder is by another version of clang."""
    for name in fresh:
        group, _ = FILES[name]
        data = fresh[name]
        if (folder / name).exists():
            try:
                data = run("zstd", "-d", "-q", "-c", folder / name).stdout
            except BuildError as error:
                problems.append(f"kernels/prebuilt/{name} cannot be decompressed: {error}")
        if group.name == PTX:
            compilers = [ptx_compiler(first_line(text)) for text in (data, fresh[name])]
            if compilers[0] != compilers[1]:
                message(f"{name} was built by {compilers[0]}: the PTX of {compilers[1]} is assembled, not compared")
                data = fresh[name]
        if data != fresh[name]:
            problems.append(f"kernels/prebuilt/{name} differs from a new build of the sources")


def check_ptx(ptx, arch, what, problems):
    version = re.search(rb"^\.version (\d+)\.(\d+)$", ptx, re.M)
    if not version or tuple(map(int, version.groups())) > PTX_VERSION_MAX:
        problems.append(f"{what} has a PTX version above {'.'.join(map(str, PTX_VERSION_MAX))}")
    if re.findall(rb"^\.target (.*)$", ptx, re.M) != [arch.encode()]:
        problems.append(f"{what} does not have the target {arch}")
    if re.search(rb"^(\.visible )?\.func", ptx, re.M):
        problems.append(f"{what} has a function that is not inlined")
    if b"\0" in ptx or re.search(rb"^\s*\.file", ptx, re.M) or bytes(ROOT) in ptx:
        problems.append(f"{what} contains a NUL or a path")


def check_log(log, part, what, problems):
    """Reads the output of `ptxas -v` for each function; returns the use of each resource by each kernel."""
    frame = (r"Function properties for (\S+)\n"
             r"\D*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
    use = r"Compiling entry function '(\S+)'.*?Used (\d+) registers(?:[^\n]* (\d+) bytes smem)?"
    frames = {name: [int(size) for size in sizes] for name, *sizes in re.findall(frame, log)}
    uses = {name: [int(size or 0) for size in sizes] for name, *sizes in re.findall(use, log, re.S)}
    expected = part.kernels
    missing, unexpected = expected - (uses.keys() & frames.keys()), uses.keys() - expected
    if missing or unexpected:
        problems.append(f"{what}: kernels missing from the compiler's log: {', '.join(sorted(missing)) or 'none'}; "
                        f"unexpected ones: {', '.join(sorted(unexpected)) or 'none'}")
    for name, (stack, stores, loads) in frames.items():
        if stack or stores or loads:
            problems.append(f"{what}: {name} has a stack frame of {stack} bytes, spills {stores} and reloads {loads}")
    return [uses[name] + frames[name] for name in uses.keys() & frames.keys()]


def report(folder, logs, assembled, problems):
    """Prints the largest use of each resource by any kernel for each architecture, and the size of each file."""
    rows = [("image", "on", "registers", "shared", "stack", "stores", "loads")]
    uses = {}
    for (arch, part), log in logs.items():
        uses.setdefault(("CUBIN", arch), []).extend(check_log(log, part, f"{part.name} for {arch}", problems))
    for (source, arch, part), log in assembled.items():
        what = f"PTX of {part.name} for {source} on {arch}"
        uses.setdefault((f"PTX {number(source)}", arch), []).extend(check_log(log, part, what, problems))
    rows += [(*key, *([max(column) for column in zip(*kernels)] or ["-"] * 5)) for key, kernels in uses.items()]
    for row in rows:
        print("{:7}{:7}{:>9}{:>8}{:>7}{:>8}{:>7}".format(*row))

    sizes = {name: (folder / name).stat().st_size for name in FILES if (folder / name).exists()}
    print("\n{:16}".format("bytes of") + "".join(f"{group.name:>9}" for group in GROUPS))
    for part in PARTS:
        columns = (sizes.get(f"{group.name}/{part.name}.zst", "-") for group in GROUPS)
        print(f"{part.name:16}" + "".join(f"{size:>9}" for size in columns))
    totals = (sum(size for name, size in sizes.items() if FILES[name][0] == group) for group in GROUPS)
    print("{:16}".format("all") + "".join(f"{total:>9}" for total in totals))
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"kernels/prebuilt has {total} of {TOTAL_BYTES_MAX} bytes")
    if total > TOTAL_BYTES_MAX:
        problems.append(f"kernels/prebuilt has {total} bytes, more than {TOTAL_BYTES_MAX}")


def build_ptx(folder):
    """Writes the portable PTX to a folder, a file for each part, and says whether it equals the committed one."""
    files = {name: (group, part) for name, (group, part) in FILES.items() if group.name == PTX}
    folder.mkdir(parents=True, exist_ok=True)
    problems, same = [], 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = {(arch, part): pool.submit(portable_ptx, arch, part)
                 for group, part in files.values() for arch in part.archs(group)}
        contents = {name: [(arch, texts[arch, part].result()) for arch in part.archs(group)]
                    for name, (group, part) in files.items()}
        for (arch, part), text in texts.items():
            check_ptx(text.result(), arch, f"the PTX of {part.name} for {arch}", problems)
        compressed = pool.map(lambda images: compress(join_ptx(images)), contents.values())
        for (name, (_, part)), data in zip(files.items(), compressed):
            (folder / f"{part.name}.zst").write_bytes(data)
            same += (PREBUILT / name).exists() and data == (PREBUILT / name).read_bytes()
    print(f"{len(files)} files of PTX by {ptx_compiler(text.result())}; {same} of them equal those in kernels/prebuilt/{PTX}")
    return problems


def every_nth(text):
    """The slice of "K/N": each N-th from the K-th on."""
    numbers = re.fullmatch(r"(\d+)/(\d+)", text)
    if not numbers or not 1 <= int(numbers[1]) <= int(numbers[2]):
        raise argparse.ArgumentTypeError(f"{text} is not K/N with 1 <= K <= N")
    return slice(int(numbers[1]) - 1, None, int(numbers[2]))


def main():
    parser = argparse.ArgumentParser(prog="scripts/build-kernels", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="K/N", nargs="?", const="1/1", type=every_nth,
                        help="verify kernels/prebuilt/ and write nothing")
    parser.add_argument("--ptx", metavar="FOLDER", type=Path, help="build the portable PTX alone, into a folder")
    arguments = parser.parse_args()
    check = arguments.check
    parts = PARTS[check] if check else PARTS
    files = {name: (group, part) for name, (group, part) in FILES.items() if part in parts}
    require_programs()
    if arguments.ptx:
        problems = build_ptx(arguments.ptx)
        for problem in problems:
            message(problem)
        return 1 if problems else 0
    if check and not PREBUILT.is_dir():
        raise BuildError("kernels/prebuilt is missing; run scripts/build-kernels without --check to build it")
    if not toolchain_is_current():
        fetch_toolchain()
    problems = []
    with (ProcessPoolExecutor(os.cpu_count()) as processes, ThreadPoolExecutor(os.cpu_count()) as pool,
          tempfile.TemporaryDirectory() as temp):
        cubins = {(arch, part): processes.submit(build_cubin, arch, part)
                  for group, part in files.values() for arch in part.archs(group) if group.name != PTX}
        texts = {(arch, part): pool.submit(portable_ptx, arch, part)
                 for group, part in files.values() for arch in part.archs(group) if group.name == PTX}
        fresh = {}
        for name, (group, part) in files.items():
            if group.name == PTX:
                fresh[name] = join_ptx([(arch, texts[arch, part].result()) for arch in part.archs(group)])
            else:
                fresh[name] = join([(arch, cubins[arch, part].result()[0]) for arch in part.archs(group)])
        folder = PREBUILT if check else Path(temp, PREBUILT.name)
        if not check:
            write(folder, fresh, pool)
        check_sums(folder, problems)
        check_files(folder, fresh, problems)
        for (arch, part), text in texts.items():
            check_ptx(text.result(), arch, f"the PTX of {part.name} for {arch}", problems)
        assembled = {(source, arch, part): pool.submit(assemble, text.result(), arch, problems)
                     for arch in sorted(PTXAS, key=number) for (source, part), text in texts.items()
                     if source == ptx_for(arch)}
        logs = {key: cubin.result()[1] for key, cubin in cubins.items()}
        report(folder, logs, {key: log.result() for key, log in assembled.items()}, problems)
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
