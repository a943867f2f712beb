//! What distributions rely on: the notices of the crates in the plugin. .ci/run has the rest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Standard output and standard error of a command that succeeds.
fn run(command: &mut Command) -> [String; 2] {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    [stdout, stderr]
}

/// A folder for a test, empty at its start.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("src")).unwrap();
    folder
}

#[test]
fn notices_have_the_licence_of_every_crate_in_the_plugin() {
    let file = folder("notices").join("THIRD-PARTY");
    let script = Path::new(ROOT).join("scripts/third_party.py");
    let mut python = Command::new(Path::new(ROOT).join("scripts/python"));
    python.arg("--").arg(script).args(["--cargo", env!("CARGO"), "--cargo-option=--offline", "--output"]).arg(&file);
    run(python.args(["--", "rustc"]));
    let notices = fs::read_to_string(&file).unwrap();

    // cargo's own list, with a `(*)` after a crate that it has printed before.
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--locked", "--offline", "--prefix=none", "--edges=normal,no-proc-macro", "--format={p}"]);
    let [crates, _] = run(cargo.current_dir(ROOT));
    let names: Vec<_> = crates.lines().skip(1).filter_map(|line| line.split_once(" v")).collect();
    assert!(names.len() > 30, "{crates}");
    for (name, version) in names {
        let version = version.split(' ').next().unwrap();
        assert!(notices.contains(&format!("\n{name} {version}: ")), "no notice of {name} {version}");
    }
    for other in ["syn ", "libblur ", "plotters ", "chrono "] {
        assert!(!notices.contains(&format!("\n{other}")), "{other}is not in the plugin");
    }
    let paths = [ROOT, env!("CARGO_TARGET_TMPDIR")];
    assert!(!paths.iter().any(|path| notices.contains(path)), "a path of this machine");
}
