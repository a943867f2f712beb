# SPDX-License-Identifier: MPL-2.0
"""Writes the licences of the crates that are linked into the plugins: for each crate its name, its version and the texts in
its sources, which cargo has downloaded or which are in vendor/. Fails if a crate has no text.

third_party.py --output FILE -- RUSTC    RUSTC is meson's command of the Rust compiler with its options
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LICENCES = ('LICEN', 'COPYING', 'COPYRIGHT', 'NOTICE', 'UNLICENSE')
RULE = '=' * 80


def target_triple(rustc):
    """The target that the command names, else the compiler's own."""
    for i, word in enumerate(rustc):
        if word.startswith('--target'):
            return word.partition('=')[2] or rustc[i + 1]
    command = next((i for i, word in enumerate(rustc) if word.startswith('-')), len(rustc))
    about = subprocess.run([*rustc[:command], '-vV'], check=True, capture_output=True, text=True).stdout
    return next(line.split()[1] for line in about.splitlines() if line.startswith('host:'))


def vendored():
    """Options of cargo that take the crates from vendor/, if the source has that folder. meson.build has the same."""
    if not (ROOT / 'vendor').is_dir():
        return []
    return ['--config', 'source.crates-io.replace-with="vendored-sources"',
            '--config', f'source.vendored-sources.directory="{ROOT}/vendor"']


def linked_crates(cargo, options, target):
    """The crates that the plugins are linked with: their dependencies and those of these, without those of build scripts, of tests
    and of procedural macros, which run in the compiler."""
    command = [cargo, 'metadata', '--format-version', '1', '--locked', '--filter-platform', target, *options]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout)
    packages = {package['id']: package for package in metadata['packages']}
    nodes = {node['id']: node for node in metadata['resolve']['nodes']}
    plugins = metadata['workspace_default_members']
    found, waiting = set(plugins), list(plugins)
    while waiting:
        for dependency in nodes[waiting.pop()]['deps']:
            crate = dependency['pkg']
            is_macro = any('proc-macro' in target['kind'] for target in packages[crate]['targets'])
            is_linked = any(kind['kind'] is None for kind in dependency['dep_kinds'])
            if is_linked and not is_macro and crate not in found:
                found.add(crate)
                waiting.append(crate)
    return sorted((packages[crate] for crate in found.difference(plugins)), key=lambda crate: (crate['name'], crate['version']))


def texts(folder):
    """The licence files of a crate."""
    return [path for path in sorted(folder.iterdir()) if path.is_file() and path.name.upper().startswith(LICENCES)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--cargo', default='cargo')
    parser.add_argument('--cargo-option', action='append', default=[])
    parser.add_argument('--output', required=True, type=Path)
    parser.add_argument('rustc', nargs='+')
    arguments = parser.parse_args()
    crates = linked_crates(arguments.cargo, [*vendored(), *arguments.cargo_option], target_triple(arguments.rustc))
    lines = ['The plugins contain the following crates of others, besides the Rust standard library (MIT OR Apache-2.0,',
             'https://github.com/rust-lang/rust), and for each its licence:', '']
    lines += [f"{crate['name']} {crate['version']}: {crate['license']}" for crate in crates]
    written = {}
    for crate in crates:
        files = texts(Path(crate['manifest_path']).parent)
        if not files:
            sys.exit(f"{crate['name']} {crate['version']} ({crate['license']}) has no licence text")
        for path in files:
            text, name = path.read_text(encoding='utf-8', errors='replace').strip(), f"{crate['name']} {crate['version']}"
            first = written.setdefault(text, f'{name}: {path.name}')
            is_new = first == f'{name}: {path.name}'
            lines += ['', RULE, f'{name}: {path.name}', RULE, text if is_new else f'The same text as {first}']
    arguments.output.write_text('\n'.join(lines) + '\n', encoding='utf-8')


if __name__ == '__main__':
    main()
