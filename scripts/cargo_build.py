# SPDX-License-Identifier: MPL-2.0
"""Builds a plugin with cargo for meson.build, and copies the files that cargo reports to meson's outputs.

cargo_build.py build OPTIONS -- RUSTC  builds; RUSTC is meson's command of the Rust compiler with its options
cargo_build.py libraries -- RUSTC      prints the system libraries that a program with the static library links
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PTX_FOLDER = 'CUDAGAUSSBLUR_PTX'
CRATE_TYPES = {'.so': 'cdylib', '.dylib': 'cdylib', '.dll': 'cdylib', '.a': 'staticlib'}
STATIC_SUFFIXES = ('.a', '.lib')


def compiler(command):
    """Splits meson's command into the compiler, the target triple (the compiler's own if none is named), the linker (None
    if none is named) and all other options."""
    words = []
    for word in command:
        # `--target=X` and `-Clinker=X` are two words each.
        match = re.fullmatch(r'(--target)=(.*)|(-C)(.+)', word)
        words += [part for part in match.groups() if part is not None] if match else [word]
    start = next((i for i, word in enumerate(words) if word.startswith('-')), len(words))
    rustc, target, linker, others = words[:start], None, None, []
    options = iter(words[start:])
    for option in options:
        if option == '--target':
            target = next(options)
        elif option == '-C' and (value := next(options)).startswith('linker='):
            linker = value.removeprefix('linker=')
        else:
            others += ['-C', value] if option == '-C' else [option]
    if target is None:
        about = subprocess.run([*rustc, '-vV'], check=True, capture_output=True, text=True).stdout
        target = re.search(r'^host: (.*)$', about, re.MULTILINE)[1]
    return rustc, target, linker, others


def libraries(command):
    """Prints the linker options that rustc names for a static library."""
    rustc, target, _, _ = compiler(command)
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, 'empty.a')
        options = ['--target', target, '--crate-type', 'staticlib', '--crate-name', 'empty', '-o', output]
        empty = subprocess.run(
            [*rustc, *options, '--print', 'native-static-libs', '-'], input='', capture_output=True, text=True)
    found = re.search(r'native-static-libs: (.*)', empty.stderr)
    if empty.returncode != 0 or not found:
        sys.exit(f'rustc names no libraries for {target}:\n{empty.stderr}')
    print(found[1])


def remapped(source, target_dir):
    """Options that replace the folders of this machine in the plugin, by which no two builds would be the same. The last
    one that matches counts."""
    cargo_home = os.environ.get('CARGO_HOME') or Path.home() / '.cargo'
    folders = {cargo_home: 'cargo', source: 'cudagaussblur', target_dir: 'target'}
    return [f'--remap-path-prefix={folder}={name}' for folder, name in folders.items()]


def build(arguments):
    _, target, linker, flags = compiler(arguments.rustc)
    source, target_dir = Path(arguments.source).resolve(), Path(arguments.target_dir).resolve()
    if arguments.profile == 'release':
        flags += remapped(source, target_dir)
    crate_types = [CRATE_TYPES[Path(output).suffix] for output in arguments.output]
    # With --target, also for the compiler's own, no setting of the environment chooses another one, and build scripts
    # are compiled without these flags.
    command = [
        arguments.cargo, 'rustc', '--locked', '--package', f'gst-plugin-{arguments.plugin}', '--lib',
        '--crate-type', ','.join(crate_types), '--profile', arguments.profile, '--target', target, '--target-dir', str(target_dir),
        '--message-format', 'json-render-diagnostics', *arguments.cargo_option,
    ]
    environment = {**os.environ, 'CARGO_TERM_PROGRESS_WHEN': 'never'}
    if linker:
        environment[f'CARGO_TARGET_{re.sub("[-.]", "_", target).upper()}_LINKER'] = linker
    own = [environment[name] for name in ('CARGO_ENCODED_RUSTFLAGS', 'RUSTFLAGS') if environment.get(name)]
    if own:
        # The first of these replaces the others and those of cargo's configuration.
        words = own[0].split('\x1f' if environment.get('CARGO_ENCODED_RUSTFLAGS') else None)
        environment['CARGO_ENCODED_RUSTFLAGS'] = '\x1f'.join(words + flags)
    elif flags:
        # TOML reads this as JSON does.
        command += ['--config', f'target.{target}.rustflags={json.dumps(flags)}']
    if arguments.kernels == 'source':
        environment[PTX_FOLDER] = str(target_dir.parent / 'ptx')
        script = source / 'scripts/build_kernels.py'
        subprocess.run([sys.executable, script, '--ptx', environment[PTX_FOLDER]], check=True)
    built = []
    # In the source, because cargo looks for .cargo/config.toml from the current folder upwards.
    with subprocess.Popen(command, cwd=source, env=environment, stdout=subprocess.PIPE, text=True, encoding='utf-8') as cargo:
        for line in cargo.stdout:
            message = json.loads(line)
            if message['reason'] == 'compiler-artifact' and message['target']['name'] == f'gst{arguments.plugin}':
                built += map(Path, message['filenames'])
    if cargo.returncode != 0:
        sys.exit(cargo.returncode)

    for output in map(Path, arguments.output):
        static = output.suffix in STATIC_SUFFIXES
        # An import library, NAME.dll.lib, is neither.
        artifact, = (
            path for path in built
            if (path.suffix in STATIC_SUFFIXES if static else path.suffix == output.suffix)
            and not path.name.endswith(('.dll.lib', '.dll.a')))
        shutil.copy(artifact, output)
    # cargo's list of sources, `ARTIFACT: SOURCES`, as the depfile of the first output makes ninja run cargo again after a
    # change.
    sources = artifact.with_suffix('.d').read_text(encoding='utf-8').splitlines()[0].split(': ', 1)[1]
    if arguments.kernels == 'source':
        sources += ''.join(f' {path}' for path in sorted((source / 'kernels').iterdir()) if path.is_file())
    Path(arguments.depfile).write_text(f'{arguments.output[0]}: {sources}\n', encoding='utf-8')


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
commands = parser.add_subparsers(dest='command', required=True)
build_parser = commands.add_parser('build')
for name in ('cargo', 'plugin', 'profile', 'source', 'target-dir', 'depfile'):
    build_parser.add_argument(f'--{name}', required=True)
build_parser.add_argument('--output', action='append', required=True)
build_parser.add_argument('--cargo-option', action='append', default=[])
build_parser.add_argument('--kernels', choices=('prebuilt', 'ptx', 'source'), required=True)
for command_parser in (build_parser, commands.add_parser('libraries')):
    command_parser.add_argument('rustc', nargs='+')
given = parser.parse_args()
if given.command == 'build':
    build(given)
else:
    libraries(given.rustc)
