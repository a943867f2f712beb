//! scripts/python and the Python examples find an interpreter with the modules they need, whichever `python3` is first on
//! PATH, and name what is missing if there is none. Python sets properties by the values that docs/PROPERTIES.md shows.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::common::python;

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

/// The examples need the distribution's Python, and name it if they are started by another one.
#[test]
fn python_examples_find_or_name_the_interpreter_they_need() {
    let _alone = run_alone();
    let foreign = ForeignPython::new("example", WITHOUT_PACKAGES);
    let examples = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).unwrap();
    let examples = examples.map(|entry| entry.unwrap().path());
    // models.py and hide_report.py are modules of others.
    let is_module = |path: &PathBuf| path.ends_with("models.py") || path.ends_with("hide_report.py");
    let is_python = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "py");
    let examples: Vec<_> = examples.filter(|path| is_python(path) && !is_module(path)).collect();
    assert_eq!(examples.len(), 8, "{examples:?}");
    for example in examples {
        let output = Command::new(foreign.0.join("python3")).arg(&example).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{example:?}: {stderr}");
        assert!(stderr.contains("has no PyGObject") && stderr.contains("/usr/bin/python3"), "{example:?}: {stderr}");
        // Started directly it selects the right interpreter, and fails only because the element is not found.
        let output = Command::new(&example)
            .args(match example.file_name().and_then(|name| name.to_str()) {
                Some("boxes_from_file.py") => &["a.mp4", "a.csv", "b.mp4"][..],
                Some("virtual_camera.py") => &["--test"],
                _ => &["a.mp4"],
            })
            .env("PATH", foreign.path())
            // An installed plugin must not be found either.
            .env("GST_PLUGIN_PATH", "")
            .env_remove("GST_PLUGIN_PATH_1_0")
            .env("GST_PLUGIN_SYSTEM_PATH_1_0", &foreign.0)
            .env("GST_REGISTRY", foreign.0.join("registry.bin"))
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("GStreamer does not find cudagaussblur"), "{example:?}: {stderr}");
    }
}

#[test]
fn python_sets_flags_and_zones() {
    let _alone = run_alone();
    let folder = ForeignPython::new("flags", WITHOUT_PACKAGES);
    let plugin = std::env::current_exe().unwrap().with_file_name("libgstcudagaussblur.so");
    std::os::unix::fs::symlink(plugin, folder.0.join("libgstcudagaussblur.so")).unwrap();
    let script = r#"
import gi
gi.require_version("Gst", "1.0")
from gi.repository import Gst
Gst.init(None)
blur = Gst.ElementFactory.make("cudagaussblur")
blur.set_property("planes", "luma")
print(int(blur.get_property("planes")))
Gst.util_set_object_arg(blur, "planes", "luma+chroma")
print(int(blur.get_property("planes")))
Gst.util_set_object_arg(blur, "zones", "<[zone,x=0.6,y=0.1,width=0.3,height=0.2]>")
zone = blur.get_property("zones")[0]
print([zone.get_value(name) for name in ("x", "y", "width", "height")])
"#;
    let mut command = python::with("gi");
    command.args(["-c", script]).env("GST_PLUGIN_PATH", &folder.0).env("GST_REGISTRY", folder.0.join("registry.bin"));
    assert_eq!(python::output(&mut command), "1\n3\n[0.6, 0.1, 0.3, 0.2]\n");
}
