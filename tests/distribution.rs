//! What programs that embed the crate and distributions rely on: the example crate, the warning about a build without
//! optimisation, the notices of the crates in the plugin.

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

/// The example crate is built from a copy, with the versions of this crate's lock file and without the network. Its optimisation
/// would take minutes; with this crate's profile instead it shares the dependencies that were compiled for the tests. no_threads.rs
/// asserts that an optimised plugin does not warn.
#[test]
fn a_program_embeds_the_plugin_and_is_warned_if_it_is_slow() {
    let crate_folder = folder("embedding");
    let example = Path::new(ROOT).join("examples/embedding");
    let manifest = fs::read_to_string(example.join("Cargo.toml")).unwrap();
    let optimised = "[profile.dev.package.\"*\"]\nopt-level = 3\ndebug-assertions = false\noverflow-checks = false\n";
    assert!(manifest.contains(optimised), "{manifest}");
    let shared = "[profile.dev]\ndebug = \"line-tables-only\"\n[profile.dev.package.ruzstd]\nopt-level = 3\n";
    let manifest = manifest.replace(optimised, shared).replace("\"../..\"", &format!("{ROOT:?}"));
    fs::write(crate_folder.join("Cargo.toml"), manifest).unwrap();
    fs::copy(example.join("src/main.rs"), crate_folder.join("src/main.rs")).unwrap();
    fs::copy(Path::new(ROOT).join("Cargo.lock"), crate_folder.join("Cargo.lock")).unwrap();

    let tests = std::env::current_exe().unwrap();
    let target = tests.ancestors().nth(3).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    run(cargo.args(["build", "--quiet", "--offline", "--target-dir"]).arg(target).current_dir(&crate_folder));
    let mut program = Command::new(target.join("debug/embedding"));
    program.arg("2").env("GST_REGISTRY", crate_folder.join("registry"));
    program.env("GST_DEBUG", "cudagaussblur:2").env("GST_DEBUG_NO_COLOR", "1");
    let [printed, log] = run(&mut program);
    assert!(printed.starts_with("blurred 2 frames of 1920x1080 RGBA on the CPU, "), "{printed}");
    assert_eq!(log.matches("the plugin was built without optimisation").count(), 1, "{log}");
    fs::remove_dir_all(&crate_folder).unwrap();
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
