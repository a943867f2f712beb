//! Builds and opens fake versions of NVIDIA's libraries (tests/fake_cuda), which do the real ones' work on the CPU and
//! fail on demand.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::Library;

/// Calls a C function of a library: the library, the function's name, its arguments with their types, the type of its result.
macro_rules! call {
    ($library:expr, $name:ident($($argument:expr => $type:ty),* $(,)?) -> $result:ty) => {{
        let name = concat!(stringify!($name), "\0").as_bytes();
        // SAFETY: each use of the macro gives the types of the C declaration, and pointers that are valid during the call.
        unsafe { $library.get::<unsafe extern "C" fn($($type),*) -> $result>(name).unwrap()($($argument),*) }
    }};
}
pub(crate) use call;

/// The library of `tests/fake_cuda/NAME.cpp` and `NAME_*.cpp`, with the soname `NAME.so`. It is compiled once for all test
/// programs. For Windows it is expected under NVIDIA's name, because Wine does not run the compiler; README.md says how to build it.
pub fn build(name: &str) -> PathBuf {
    if cfg!(windows) {
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(match name {
            "libcuda" => "nvcuda.dll",
            "libnvrtc" => "nvrtc64_130_0.dll",
            _ => "nvcuvid.dll",
        });
        assert!(library.exists(), "{library:?} has to be built first: see tests/fake_cuda/README.md");
        return library;
    }
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

/// The names of the functions that a library exports and that begin with this prefix and a capital letter.
pub fn functions(library: &Path, prefix: &str) -> Vec<String> {
    let is_rest =
        |rest: &str| rest.starts_with(char::is_uppercase) && rest.chars().all(|c| c.is_alphanumeric() || c == '_');
    let text = std::fs::read(library).unwrap();
    let names = text.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    let names: BTreeSet<&str> = names.filter(|name| name.strip_prefix(prefix).is_some_and(is_rest)).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// A copy of a library that lacks these functions: their names in its table of symbols are other ones. The caller removes the
/// file.
pub fn without(library: &Path, functions: &[&str]) -> PathBuf {
    let mut bytes = std::fs::read(library).unwrap();
    for function in functions {
        let name = format!("\0{function}\0");
        // The names of symbols are in front of all other text.
        let found = bytes.windows(name.len()).position(|window| window == name.as_bytes());
        bytes[found.unwrap_or_else(|| panic!("{library:?} has no {function}")) + 1] = b'_';
    }
    let name = format!("without-{}-{}-{}.so", functions.len(), functions[0], std::process::id());
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&copy, bytes).unwrap();
    copy
}

/// A digest of everything that the libraries are compiled from.
fn digest() -> u64 {
    let mut hasher = DefaultHasher::new();
    include_str!("fake_library.rs").hash(&mut hasher);
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
        // A library calls its own functions, also those that `without` renames.
        .args([&format!("-Wl,-soname,{soname}"), "-Wl,-Bsymbolic-functions"])
        .arg("-o")
        .arg(&library)
        .args(inputs)
        .output()
        .expect("g++ is needed to build the fake CUDA libraries: install it with scripts/setup");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

/// The file name of a library of GStreamer, such as `cuda`.
pub fn of_gstreamer(library: &str) -> String {
    if cfg!(windows) { format!("gst{library}-1.0-0.dll") } else { format!("libgst{library}-1.0.so.0") }
}

/// Opens a library before anything else opens one of its soname: the dynamic loader hands out the one that is already
/// loaded.
pub fn open(library: &Path) -> Library {
    try_open(library).unwrap()
}

/// The same, if it can be opened.
pub fn try_open(library: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: the library is built from tests/fake_cuda, whose initialisers only construct its own static objects, or is GStreamer's,
    // whose initialisers only register types.
    unsafe {
        #[cfg(unix)]
        {
            use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
            Library::open(Some(library), RTLD_NOW | RTLD_GLOBAL).map(Into::into)
        }
        #[cfg(not(unix))]
        {
            Library::new(library)
        }
    }
}

/// Builds a library and opens it as `NAME.so` and as `NAME.so.1`, the name that GStreamer opens. On Windows it has one name.
pub fn open_as_installed(name: &str) -> Vec<Library> {
    let library = build(name);
    let mut opened = vec![open(&library)];
    if cfg!(windows) {
        return opened;
    }
    let alias = build_alias(&library, &format!("{name}.so.1"));
    opened.push(open(&alias));
    std::fs::remove_file(alias).unwrap();
    opened
}
