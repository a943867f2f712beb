//! Stand-ins for NVIDIA's libraries, compiled from tests/cuda: they do on the CPU what the real ones do, and fail when told.

use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Compiles `tests/cuda/NAME.cpp` to a library that calls itself `NAME.so`.
pub fn build(name: &str) -> PathBuf {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.so", std::process::id()));
    let built = Command::new("g++")
        .args(["-std=c++20", "-O2", "-w", "-pthread", "-shared", "-fPIC", "-x", "c++"])
        .arg(format!("-Wl,-soname,{name}.so"))
        .arg(format!("{}/tests/cuda/{name}.cpp", env!("CARGO_MANIFEST_DIR")))
        .arg("-o")
        .arg(&library)
        .output()
        .expect("g++ is needed to build the stand-ins: install it with scripts/setup");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

/// Opens a stand-in before anything else asks for a library of its name, so that it is what they get.
pub fn open(library: &Path) -> Library {
    // SAFETY: its initialisers fill in tables of its own.
    unsafe { Library::open(Some(library), RTLD_NOW | RTLD_GLOBAL) }.unwrap()
}
