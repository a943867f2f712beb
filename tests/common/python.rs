//! Runs Python through scripts/python, which finds an interpreter that has the required modules.

use std::process::Command;

/// A command for an interpreter that can import these modules (separated by commas).
pub fn with(modules: &str) -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/python"));
    command.args([modules, "--"]);
    command
}

/// Runs the command and returns its standard output; panics with its standard error if it fails.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}: {stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
