//! Python scripts find an interpreter that has what they need, whichever `python3` is first on PATH, and say so where none
//! has.

mod common;

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::python;

/// A folder with a `python3` that cannot import what distributions package, as pyenv's, conda's and uv's cannot.
struct Foreign(PathBuf);

impl Foreign {
    fn new(name: &str, script: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("cudagaussblur-python-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let python = folder.join("python3");
        std::fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&python, PermissionsExt::from_mode(0o755)).unwrap();
        Self(folder)
    }

    /// PATH with this folder first.
    fn path(&self) -> OsString {
        let mut path = self.0.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        path
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A file that is being written cannot be executed, and a process that another test starts meanwhile has it open.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// -S leaves out the folders of packages.
const WITHOUT_PACKAGES: &str = "exec /usr/bin/python3 -S -E \"$@\"";

#[test]
fn a_foreign_python3_that_is_first_on_path_is_passed_over() {
    let _alone = alone();
    for (name, script) in [("bare", WITHOUT_PACKAGES), ("broken", "exit 127")] {
        let foreign = Foreign::new(name, script);
        let own = Command::new(foreign.0.join("python3")).args(["-c", "import numpy"]).output().unwrap();
        assert!(!own.status.success(), "the foreign python3 has NumPy, so that it proves nothing");
        let path = foreign.path();
        let version = python::output(
            python::with("numpy,scipy").args(["-c", "print('found')"]).env("PATH", &path).env_remove("PYTHON"),
        );
        assert_eq!(version, "found\n", "{name}");
    }
}

#[test]
fn what_no_python3_can_import_is_named() {
    let _alone = alone();
    let foreign = Foreign::new("none", WITHOUT_PACKAGES);
    let output = python::with("no_such_module,numpy")
        .args(["-c", ""])
        .env("PATH", foreign.path())
        .env_remove("PYTHON")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(127), "{said}");
    for words in ["can import no_such_module and numpy", "/python3, ", "/usr/bin/python3", "PYTHON="] {
        assert!(said.contains(words), "{said}");
    }
}

/// The example is for the distribution's Python, and says so to any other.
#[test]
fn the_python_example_names_the_interpreter_it_needs() {
    let _alone = alone();
    let foreign = Foreign::new("example", WITHOUT_PACKAGES);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/blur.py");
    let output = Command::new(foreign.0.join("python3")).arg(example).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("has no PyGObject") && said.contains("/usr/bin/python3"), "{said}");
    // Started by itself it takes the right one: it comes as far as looking for the element.
    let output = Command::new(example)
        .env("PATH", foreign.path())
        // Neither does an installed one count.
        .env("GST_PLUGIN_PATH", "")
        .env_remove("GST_PLUGIN_PATH_1_0")
        .env("GST_PLUGIN_SYSTEM_PATH_1_0", &foreign.0)
        .env("GST_REGISTRY", foreign.0.join("registry.bin"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("GStreamer does not find cudagaussblur"), "{said}");
}
