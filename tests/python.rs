//! scripts/python and examples/blur.py find an interpreter with the modules they need, whichever `python3` is first on
//! PATH, and name what is missing if there is none.

mod common;

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::python;

/// A folder with a `python3` that cannot import the distribution's packages, as those of pyenv, conda and uv cannot.
struct ForeignPython(PathBuf);

impl ForeignPython {
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

impl Drop for ForeignPython {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes the tests run one at a time. A file that is open for writing cannot be executed (ETXTBSY), and a child process
/// that another thread forks meanwhile inherits the open file.
fn run_alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Python's -S leaves out the folders of installed packages.
const WITHOUT_PACKAGES: &str = "exec /usr/bin/python3 -S -E \"$@\"";

#[test]
fn python3_without_the_modules_is_skipped() {
    let _alone = run_alone();
    for (name, script) in [("bare", WITHOUT_PACKAGES), ("broken", "exit 127")] {
        let foreign = ForeignPython::new(name, script);
        let own = Command::new(foreign.0.join("python3")).args(["-c", "import numpy"]).output().unwrap();
        assert!(!own.status.success(), "the foreign python3 has NumPy: the test would prove nothing");
        let path = foreign.path();
        let version = python::output(
            python::with("numpy,scipy").args(["-c", "print('found')"]).env("PATH", &path).env_remove("PYTHON"),
        );
        assert_eq!(version, "found\n", "{name}");
    }
}

#[test]
fn modules_that_no_python3_can_import_are_named() {
    let _alone = run_alone();
    let foreign = ForeignPython::new("none", WITHOUT_PACKAGES);
    let output = python::with("no_such_module,numpy")
        .args(["-c", ""])
        .env("PATH", foreign.path())
        .env_remove("PYTHON")
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(127), "{stderr}");
    for words in ["can import no_such_module and numpy", "/python3, ", "/usr/bin/python3", "PYTHON="] {
        assert!(stderr.contains(words), "{stderr}");
    }
}

/// The example needs the distribution's Python, and names it if it is started by another one.
#[test]
fn python_example_finds_or_names_the_interpreter_it_needs() {
    let _alone = run_alone();
    let foreign = ForeignPython::new("example", WITHOUT_PACKAGES);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/blur.py");
    let output = Command::new(foreign.0.join("python3")).arg(example).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("has no PyGObject") && stderr.contains("/usr/bin/python3"), "{stderr}");
    // Started directly it selects the right interpreter, and fails only because the element is not found.
    let output = Command::new(example)
        .env("PATH", foreign.path())
        // An installed plugin must not be found either.
        .env("GST_PLUGIN_PATH", "")
        .env_remove("GST_PLUGIN_PATH_1_0")
        .env("GST_PLUGIN_SYSTEM_PATH_1_0", &foreign.0)
        .env("GST_REGISTRY", foreign.0.join("registry.bin"))
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("GStreamer does not find cudagaussblur"), "{stderr}");
}
