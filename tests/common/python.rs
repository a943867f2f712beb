//! Python for tests: by scripts/python, so that it has the modules whichever `python3` is first on PATH.

use std::process::Command;

/// An interpreter that can import these modules, joined by commas.
pub fn with(modules: &str) -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/python"));
    command.args([modules, "--"]);
    command
}

/// What a command prints; a panic with what it says on stderr if it fails.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
