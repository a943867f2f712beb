//! Builds and opens fake versions of NVIDIA's libraries (tests/fake_cuda), which do the real ones' work on the CPU and
//! fail on demand.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// The library of `tests/fake_cuda/NAME.cpp` and `NAME_*.cpp`, with the soname `NAME.so`. It is compiled once for all test
/// programs.
pub fn build(name: &str) -> PathBuf {
    let is_source = |file: &Path| {
        let stem = file.file_stem().unwrap().to_str().unwrap();
        file.extension().is_some_and(|extension| extension == "cpp") && stem.split('_').next() == Some(name)
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_cuda");
    let sources: Vec<PathBuf> = files(&folder).into_iter().filter(|file| is_source(file)).collect();
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{:016x}.so", digest()));
    if !library.exists() {
        // Complete when it gets its name.
        let unfinished = link(name, &format!("{name}.so"), &sources);
        std::fs::rename(unfinished, &library).unwrap();
    }
    library
}

/// Builds an empty library with the soname `alias` that depends on `library`: a program that opens `alias` finds the
/// symbols of `library`. The caller removes the file.
pub fn build_alias(library: &Path, alias: &str) -> PathBuf {
    link(alias, alias, &[OsStr::new("-Wl,--no-as-needed"), library.as_os_str()])
}

/// A digest of everything that the libraries are compiled from.
fn digest() -> u64 {
    let mut hasher = DefaultHasher::new();
    for folder in ["kernels", "tests/kernels", "tests/fake_cuda"] {
        for file in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)) {
            std::fs::read(file).unwrap().hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The files of a folder, sorted by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    files
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
        .expect("g++ is needed to build the fake CUDA libraries: install it with scripts/setup");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

/// Opens a library before anything else opens one of its soname: the dynamic loader hands out the one that is already
/// loaded.
pub fn open(library: &Path) -> Library {
    // SAFETY: the library is built from tests/fake_cuda, whose initialisers only construct its own static objects.
    unsafe { Library::open(Some(library), RTLD_NOW | RTLD_GLOBAL) }.unwrap()
}

/// Builds a library and opens it as `NAME.so` and as `NAME.so.1`, the name that GStreamer opens.
pub fn open_as_installed(name: &str) -> Vec<Library> {
    let library = build(name);
    let mut opened = vec![open(&library)];
    let alias = build_alias(&library, &format!("{name}.so.1"));
    opened.push(open(&alias));
    std::fs::remove_file(alias).unwrap();
    opened
}
