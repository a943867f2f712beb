//! What the shell scripts rely on: how scripts/setup gets Rust on systems that this machine is not, and that no pipe has a
//! reader that ends before its writer.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A folder that is all of PATH: some tools of this machine, and stand-ins that log how they are called.
struct Machine(PathBuf);

/// The name of a program, and shell code in its place.
type StandIn<'a> = (&'a str, &'a str);

/// What scripts/setup needs of a system beside apt, rustup and cargo.
const TOOLS: [&str; 12] =
    ["bash", "cat", "chmod", "comm", "cut", "dirname", "env", "grep", "mkdir", "sed", "sh", "sort"];

impl Machine {
    /// A machine with all packages and these programs.
    fn new(name: &str, stand_ins: &[StandIn]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("setup-{}", name.replace(' ', "-")));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("tools")).unwrap();
        let path = std::env::var_os("PATH").unwrap();
        for tool in TOOLS {
            let found = std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|path| path.exists());
            symlink(found.unwrap(), folder.join("tools").join(tool)).unwrap();
        }
        let machine = Self(folder);
        // Of the arguments, -W, -f and the format are the first three.
        machine.add("dpkg-query", "shift 3; printf 'installed %s\\n' \"$@\"");
        machine.add("id", "echo 0");
        for (name, code) in stand_ins {
            machine.add(name, &format!("echo \"{name} $*\" >>\"$MACHINE/log\"\n{code}"));
        }
        machine
    }

    fn add(&self, name: &str, code: &str) {
        let file = self.0.join("tools").join(name);
        fs::write(&file, format!("#!/usr/bin/env bash\n{code}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Sources scripts/setup as the other scripts do, then starts its cargo.
    fn set_up(&self) -> Output {
        let mut command = Command::new(self.0.join("tools/bash"));
        command.args(["-euo", "pipefail", "-c", ". \"$1/scripts/setup\"; cargo --version", "_", ROOT]);
        command.env_clear().env("PATH", self.0.join("tools")).env("HOME", &self.0).env("MACHINE", &self.0);
        command.output().unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.0.join("log")).unwrap_or_default()
    }
}

/// Code that makes a cargo without a log, in this folder of the machine.
fn makes_cargo(folder: &str, version: &str) -> String {
    let cargo = format!("\"$MACHINE/{folder}/cargo\"");
    format!("mkdir -p \"$MACHINE/{folder}\"; printf '#!/bin/sh\\necho cargo {version}\\n' >{cargo}; chmod +x {cargo}")
}

/// apt-cache where the archive has the package. It goes on for longer than a pipe holds.
const CANDIDATE: StandIn =
    ("apt-cache", "printf 'rustup:\\n  Installed: (none)\\n  Candidate: 1.27.1-3+b1\\n'; printf '%0200000d\\n' 0");
/// One that knows the package's name alone, and one that does not.
const NO_CANDIDATE: StandIn = ("apt-cache", "printf 'rustup:\\n  Installed: (none)\\n  Candidate: (none)\\n'");
const NO_PACKAGE: StandIn = ("apt-cache", "");
const FAILS: &str = "exit 1";

/// Code of an apt-get that installs a rustup whose toolchains come with a new cargo, and of the installer from the network.
fn installers() -> [String; 2] {
    let (rustup, cargo) = ("\"$MACHINE/tools/rustup\"", makes_cargo("tools", "9.0.0"));
    let start = "echo '#!/bin/sh'; echo 'echo \"rustup $*\" >>\"$MACHINE/log\"'; cat;";
    [
        format!("{{ {start} }} >{rustup} <<'END'\n{cargo}\nEND\nchmod +x {rustup}"),
        format!("cat <<'END'\n{}\nEND", makes_cargo(".cargo/bin", "9.0.0")),
    ]
}

const INSTALLS: &str = "apt-get -y -qq -o DPkg::Lock::Timeout=300 --no-install-recommends --no-remove install rustup\n";
const TOOLCHAIN: &str = "rustup toolchain install stable --no-self-update --profile minimal -c clippy -c rustfmt\n";
const DOWNLOADS: &str = "curl --proto =https --tlsv1.2 -sSf https://sh.rustup.rs\n";

#[test]
fn setup_gets_rust_from_the_archive_or_from_the_network() {
    let (policy, default, version) = ("apt-cache policy rustup\n", "rustup default\n", "cargo --version\n");
    let ([apt, curl], new_cargo) = (installers(), makes_cargo("tools", "9.0.0"));
    let (apt, curl) = (("apt-get", &*apt), ("curl", &*curl));
    let locked = ("apt-get", "echo E: locked >&2; exit 100");
    let with_toolchain = ("cargo", "echo cargo 1.${RUSTUP_TOOLCHAIN:+99}0.0");
    let cases: [(&str, &[StandIn], &[&str]); 9] = [
        ("archive", &[CANDIDATE, apt, curl], &[policy, INSTALLS, TOOLCHAIN, default]),
        ("no candidate", &[NO_CANDIDATE, apt, curl], &[policy, DOWNLOADS]),
        ("no package", &[NO_PACKAGE, apt, curl], &[policy, DOWNLOADS]),
        ("no apt", &[curl], &[DOWNLOADS]),
        ("apt fails", &[CANDIDATE, locked, curl], &[policy, INSTALLS, DOWNLOADS]),
        ("rustup", &[CANDIDATE, apt, curl, ("rustup", &new_cargo)], &[TOOLCHAIN, default]),
        // Its package conflicts with that of rustup.
        ("old cargo", &[CANDIDATE, apt, curl, ("cargo", "echo cargo 1.63.0")], &[version, version, DOWNLOADS]),
        // The default toolchain of the user stays.
        (
            "old default",
            &[CANDIDATE, apt, curl, ("rustup", ""), with_toolchain],
            &[version, version, TOOLCHAIN, default, version, version, version],
        ),
        ("new cargo", &[CANDIDATE, apt, curl, ("rustup", FAILS), ("cargo", "echo cargo 9.0.0")], &[version, version]),
    ];
    for (name, stand_ins, expected) in cases {
        let machine = Machine::new(name, stand_ins);
        let Output { status, stdout, stderr } = machine.set_up();
        let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(machine.log(), expected.concat(), "{name}: {stderr}");
        assert!(status.success(), "{name}: {stderr}");
        assert!(stdout.starts_with("cargo 9.") || stdout.starts_with("cargo 1.99"), "{name}: {stdout}");
        let said = match name {
            "new cargo" => "",
            "apt fails" => "scripts/setup: installing Rust, 1.92 or later\nE: locked\n",
            _ => "scripts/setup: installing Rust, 1.92 or later\n",
        };
        assert_eq!(stderr, said, "{name}");
    }
}

/// A cargo of rustup's installer, in a shell that was started before it.
#[test]
fn setup_finds_a_cargo_that_is_not_on_path() {
    let [apt, curl] = installers();
    let machine = Machine::new("home", &[CANDIDATE, ("apt-get", &apt), ("curl", &curl)]);
    fs::create_dir_all(machine.0.join(".cargo/bin")).unwrap();
    machine.add("../.cargo/bin/cargo", "echo cargo 9.0.0");
    let output = machine.set_up();
    assert_eq!([&output.stdout[..], &output.stderr[..]], [&b"cargo 9.0.0\n"[..], b""]);
    assert_eq!(machine.log(), "");
}

#[test]
fn setup_says_what_it_needs_where_rust_cannot_be_installed() {
    let ([apt, _], old_cargo) = (installers(), makes_cargo("tools", "1.63.0"));
    for (name, stand_ins) in [
        ("no network", &[NO_PACKAGE, ("curl", FAILS)][..]),
        ("no toolchain", &[CANDIDATE, ("apt-get", &apt), ("rustup", FAILS)]),
        ("no new toolchain", &[NO_PACKAGE, ("rustup", &old_cargo)]),
    ] {
        let output = Machine::new(name, stand_ins).set_up();
        let expected = "\
scripts/setup: installing Rust, 1.92 or later
scripts/setup: cannot install Rust 1.92 or later: rustup failed; it needs the network (https://rustup.rs)
";
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected, "{name}");
        assert_eq!(output.status.code(), Some(1), "{name}");
    }
}

/// The shell scripts in a folder: files that begin so.
fn shell_scripts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            shell_scripts(&path, found);
        } else if fs::read(&path).is_ok_and(|text| {
            let first = text.split(|byte| *byte == b'\n').next().unwrap();
            first.starts_with(b"#!") && first.ends_with(b"sh")
        }) {
            found.push(path);
        }
    }
}

/// Whether this command can end before it has read all of its input.
fn ends_early(command: &str) -> bool {
    let words: Vec<&str> = command.split_whitespace().collect();
    let has_flag = |flags: &str| {
        words
            .iter()
            .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(|c| flags.contains(c)))
    };
    match words.first().copied().unwrap_or_default().trim_end_matches(')') {
        "head" => true,
        "grep" | "egrep" | "zgrep" => {
            has_flag("qlLm") || command.contains("--quiet") || command.contains("--max-count")
        }
        "sed" => command.contains('q'),
        "awk" => command.contains("exit"),
        "sort" => has_flag("cC"),
        _ => false,
    }
}

/// With pipefail a writer that gets SIGPIPE makes the pipe fail, at random: on one machine in 63 of 100 runs.
#[test]
fn no_pipe_has_a_reader_that_ends_early() {
    let mut scripts = Vec::new();
    // The crate leaves out some of them.
    let folders = [".ci", "benches", "debian", "examples", "packaging", "scripts", "tests"]
        .map(|name| Path::new(ROOT).join(name));
    folders.iter().filter(|folder| folder.exists()).for_each(|folder| shell_scripts(folder, &mut scripts));
    assert!(scripts.len() >= 7, "{scripts:?}");
    let mut early = Vec::new();
    for script in scripts {
        let text = fs::read_to_string(&script).unwrap();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        // Not the second half of an `||`.
        let text = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ").replace("||", "\n");
        for reader in text.split('|').skip(1).map(|rest| rest.trim_start().lines().next().unwrap_or_default()) {
            if ends_early(reader) {
                early.push(format!("{}: {reader}", script.display()));
            }
        }
    }
    assert!(early.is_empty(), "these end before the writer of their pipe: {early:#?}");
}
