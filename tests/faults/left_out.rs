//! Libraries that lack a function: NVIDIA's driver, and GStreamer's library for CUDA memory. Each is a process of its own,
//! because a process opens a library once.

use std::path::{Path, PathBuf};
use std::process::Child;

use gst::prelude::*;
use gst_video::VideoFormat;
use gstcudagaussblur::cuda::driver::api::FUNCTIONS;
use libloading::Library;

use crate::common::checks::{Row, check_child, child, child_process, log_warnings, start_fails, starts};
use crate::common::fake_library::{self, of_gstreamer};
use crate::common::video::{self, Blur, info};

/// The libraries that a child process opens, separated by colons.
const LIBRARIES: &str = "CUDAGAUSSBLUR_TEST_LIBRARIES";
/// A driver without any function, in place of a name.
const ALL: &str = "all";
/// What a child process prints that cannot open its library.
const NOT_TRIED: &str = "not tried";

/// Whether this is a child process, whose test it has run then.
pub fn is_child() -> bool {
    let Some(left_out) = child() else { return false };
    let libraries = std::env::var(LIBRARIES).unwrap();
    let open = |library: &str| fake_library::try_open(Path::new(library)).map(std::mem::forget);
    match libraries.split(':').try_for_each(open) {
        Ok(()) => check(&left_out),
        // GStreamer's library from 1.24 on calls its own functions by their names, so that it does not load without one.
        Err(error) if left_out.starts_with("gst") => println!("{NOT_TRIED}: {error}"),
        Err(error) => panic!("{error}"),
    }
    true
}

/// Without a function that the engine needs, `auto` blurs on the CPU and `cuda` is an error; both name the function. Without any
/// other one, CUDA blurs, but frames are perhaps not in CUDA memory.
fn check(left_out: &str) {
    gst::init().unwrap();
    gst::log::set_default_threshold(gst::DebugLevel::None);
    let warnings = log_warnings();
    let is_needed = FUNCTIONS.contains(&left_out) || left_out == ALL;
    let named = if left_out == ALL { FUNCTIONS[0] } else { left_out };
    let has_words = |text: &str| text.contains(&format!("has no function {named}:")) && text.contains("libcuda.so.1");
    let rgba = info(VideoFormat::Rgba, 40, 12);
    for properties in ["", "region-mode=inside zones=<[zone,x=0,y=0,width=1,height=1]> strength=0"] {
        let mut blur = Blur::with(&format!("sigma=2 {properties}"), &rgba);
        assert_eq!(blur.backend(), if is_needed { "cpu" } else { "cuda" });
        (0..3).for_each(|seed| blur.check(&rgba, seed, 2.0));
        blur.said(0, 0);
    }
    let element = video::element("backend=cuda");
    if is_needed {
        let error = start_fails(&element, &[]).to_string();
        assert!(has_words(&error), "{error}");
    } else {
        starts(&element);
    }

    let caps = element.factory().unwrap().static_pad_templates().iter().next().unwrap().caps();
    let has_cuda_memory = caps.to_string().contains("memory:CUDAMemory");
    let warnings = warnings.lock().unwrap().clone();
    println!("{left_out}: CUDA memory {has_cuda_memory}, {warnings:?}");
    let count = |words: &dyn Fn(&str) -> bool| warnings.iter().filter(|line| words(line)).count();
    if is_needed {
        assert_eq!((has_cuda_memory, count(&has_words)), (false, 2));
    } else if has_gstcuda() {
        let name = of_gstreamer("cuda");
        let words = match left_out.starts_with("gst") {
            true => format!("{name} has no function {left_out}, so"),
            false => format!("{name} does not find all that it needs in libcuda.so.1, so"),
        };
        assert_eq!(count(&|line| line.contains(&words)), usize::from(!has_cuda_memory));
        assert!(!has_cuda_memory || !left_out.starts_with("gst"), "CUDA memory without {left_out}");
    }
}

/// Whether libgstcuda can be opened.
fn has_gstcuda() -> bool {
    // SAFETY: the initialisers of libgstcuda only register GObject types.
    unsafe { Library::new(of_gstreamer("cuda")) }.map(std::mem::forget).is_ok()
}

/// The file of the installed libgstcuda.
fn gstcuda() -> Option<PathBuf> {
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap();
    let path =
        |maps: String| maps.split_whitespace().find(|word| word.contains("libgstcuda-1.0.so")).map(PathBuf::from);
    has_gstcuda().then(|| path(maps()).expect("an open library is mapped"))
}

/// The functions of the installed libgstcuda that the element needs: those that it declares, but for later versions' ones.
fn functions_of_gstcuda() -> Vec<String> {
    let source = include_str!("../../src/element/memory/gstcuda.rs");
    let declared = source.split("= \"").filter_map(|text| text.split_once("\";")).map(|(name, _)| name.to_owned());
    let is_used =
        |name: &String| name.starts_with("gst_") && (gst::version() >= (1, 24, 0, 0) || !name.contains("stream"));
    declared.filter(is_used).collect()
}

/// A case: its name, a library, the functions that it lacks, and the other libraries.
type Case<'a> = (&'a str, &'a Path, &'a [&'a str], [&'a Path; 2]);

/// Starts the process of a case. Returns the case's name and the file of the incomplete library, too.
fn start<'a>((name, library, lacks, others): &Case<'a>) -> (&'a str, PathBuf, Child) {
    let incomplete = fake_library::without(library, lacks);
    // It comes first: the loader finds libraries by their sonames.
    let libraries = [&incomplete, others[0], others[1]].map(|library| library.to_str().unwrap()).join(":");
    let mut process = child_process(name);
    let child = process.env(LIBRARIES, libraries).env("CUDAGAUSSBLUR_NVRTC", "/nowhere").spawn();
    (name, incomplete, child.unwrap())
}

/// The files of a folder that call the driver's functions by cudarc, which panics if one is missing.
fn callers(folder: &Path) -> Vec<PathBuf> {
    let of_entry = |path: PathBuf| match path.is_dir() {
        true => callers(&path),
        false if std::fs::read_to_string(&path).unwrap().contains("cudarc::") => vec![path],
        false => Vec::new(),
    };
    folder.read_dir().unwrap().flat_map(|entry| of_entry(entry.unwrap().path())).collect()
}

/// All of the driver's functions are left out, and every one of the libraries in turn. There is no other function than those that
/// are looked up.
pub fn run() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    assert_eq!(callers(&sources), [sources.join("cuda/driver/api.rs")]);
    let driver = fake_library::build("libcuda");
    let alias = fake_library::build_alias(&driver, "libcuda.so.1");
    let of_driver = fake_library::functions(&driver, "cu");
    let of_driver: Vec<&str> = of_driver.iter().map(String::as_str).collect();
    let unknown: Vec<_> = FUNCTIONS.iter().filter(|needed| !of_driver.contains(needed)).collect();
    assert!(unknown.is_empty() && of_driver.len() > FUNCTIONS.len(), "the fake driver has no {unknown:?}");
    let gstcuda = gstcuda();
    let of_gstcuda = gstcuda.as_ref().map_or(Vec::new(), |_| functions_of_gstcuda());
    let of_gstcuda: Vec<&str> = of_gstcuda.iter().map(String::as_str).collect();
    assert!(of_gstcuda.is_empty() || of_gstcuda.len() >= 9, "{of_gstcuda:?}");

    let [driver, alias] = [&driver, &alias];
    let mut cases: Vec<Case> = vec![(ALL, driver, &of_driver, [alias; 2])];
    cases.extend(of_driver.iter().map(|name| (*name, &**driver, std::slice::from_ref(name), [&**alias; 2])));
    let gstcuda = gstcuda.unwrap_or_default();
    cases.extend(of_gstcuda.iter().map(|name| (*name, &*gstcuda, std::slice::from_ref(name), [&**driver, alias])));
    let mut not_tried = 0;
    for cases in cases.chunks(std::thread::available_parallelism().map_or(1, usize::from)) {
        for (name, incomplete, child) in cases.iter().map(start).collect::<Vec<_>>() {
            let _row = Row(format!("without {name}"));
            let output = child.wait_with_output().unwrap();
            std::fs::remove_file(incomplete).unwrap();
            let text = check_child(&output);
            // The element turns panics into errors.
            assert!(!text.contains("panicked"), "{text}");
            not_tried += usize::from(text.starts_with(NOT_TRIED));
        }
    }
    std::fs::remove_file(alias).unwrap();
    let (tried, needed) = (cases.len() - not_tried, FUNCTIONS.len());
    println!("{tried} functions left out, {needed} of them needed; {not_tried} not tried");
}
