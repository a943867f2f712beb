//! Stand-ins for NVIDIA's libraries, compiled from tests/cuda: they do on the CPU what the real ones do, and fail when told.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Compiles `tests/cuda/NAME.cpp`, and what is named `NAME_*.cpp` there, to a library that calls itself `NAME.so`.
pub fn build(name: &str) -> PathBuf {
    let part = |file: &Path| {
        let stem = file.file_stem().unwrap().to_str().unwrap();
        file.extension().is_some_and(|kind| kind == "cpp") && stem.split('_').next() == Some(name)
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda");
    let files = folder.read_dir().unwrap().map(|file| file.unwrap().path());
    link(name, &format!("{name}.so"), &files.filter(|file| part(file)).collect::<Vec<_>>())
}

/// A library that calls itself `alias` and has what `library` has, which it needs: who looks for it by that name finds it.
pub fn also_called(library: &Path, alias: &str) -> PathBuf {
    link(alias, alias, &[OsStr::new("-Wl,--no-as-needed"), library.as_os_str()])
}

fn link(file: &str, soname: &str, inputs: &[impl AsRef<OsStr>]) -> PathBuf {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{file}-{}.so", std::process::id()));
    let built = Command::new("g++")
        .args(["-std=c++20", "-O2", "-w", "-pthread", "-shared", "-fPIC"])
        .arg(format!("-Wl,-soname,{soname}"))
        .arg("-o")
        .arg(&library)
        .args(inputs)
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

/// Builds a stand-in and opens it under the names `NAME.so` and `NAME.so.1`, of which programs ask for the second.
pub fn open_as_installed(name: &str) -> Vec<Library> {
    let library = build(name);
    let mut opened = vec![open(&library)];
    let alias = also_called(&library, &format!("{name}.so.1"));
    opened.push(open(&alias));
    for file in [library, alias] {
        std::fs::remove_file(file).unwrap();
    }
    opened
}
