//! Kernels that are specialised at run time, on the fake CUDA driver and the fake NVRTC (tests/fake_cuda). Each test is
//! a process of its own, because a process opens both libraries once.

mod common;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use common::Noise;
use common::cases::{Case, Content};
use common::checks::{check_child, child, child_process, trial};
use common::device_frames::{self, Block, Streams, check_blurs, check_transfer, soft_covers};
use common::fake_driver::{FakeDriver, NO_BINARY_FOR_GPU, OUT_OF_MEMORY};
use common::fake_library::{self, call};
use common::pictures::rect;
use gstcudagaussblur::cuda::{CudaEngine, Image, process};
use gstcudagaussblur::engine::Level::{self, Debug, Info, Warning};
use gstcudagaussblur::engine::{Engine, Sink, Stats, log_to};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::PlaneLayout;
use libloading::Library;
use libtest_mimic::Arguments;

const NVRTC: &str = "CUDAGAUSSBLUR_NVRTC";

/// The log lines about the programs of frames.
static PROGRAMS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The other log lines of this process, but for those of the engine about its plans.
static LINES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

/// A test in a child process: its name, its function, and environment variables that configure the fake NVRTC.
type Test = (&'static str, fn(&Compiler), &'static str);

/// Each compilation ends when the test says so.
const WAITS: &str = "FAKE_NVRTC_WAITS=1";

const TESTS: [Test; 11] = [
    ("unchanged_settings_get_a_specialised_kernel_without_delaying_frames", swap, WAITS),
    ("sweeping_sigma_compiles_only_the_final_kernel", sweep, ""),
    ("two_engines_with_equal_settings_cause_one_compilation", two_engines, WAITS),
    ("stopping_does_not_wait_for_the_compiler", stop, WAITS),
    ("the_last_engine_waits_for_the_kernels_of_other_devices", two_devices, WAITS),
    ("copies_and_covers_without_a_blur_leave_the_kernels_alone", without_blur, ""),
    ("kernels_that_do_not_gain_are_not_compiled", not_specialised, ""),
    ("long_radii_get_a_kernel_for_tensor_cores", long_radii, WAITS),
    ("tensor_cores_take_over_when_the_driver_has_compiled_their_kernels", in_background, ""),
    ("log_sink_that_waits_for_other_engines_stops_nothing", waiting_sink, ""),
    ("kernel_without_memory_is_compiled_again_after_a_while", out_of_memory, ""),
];

/// A test of [`check_outcome`] in a child process: its name, environment variables, and what the log says at which level.
type Outcome = (&'static str, &'static str, Level, &'static str);

const OUTCOMES: [Outcome; 7] = [
    ("generic_kernels_are_used_without_nvrtc", "CUDAGAUSSBLUR_NVRTC=/nowhere/x.so", Info, "not found as /nowhere/x.so"),
    ("nvrtc_that_is_too_old_is_not_used", "FAKE_NVRTC_VERSION=1200", Info, "NVRTC 12.0 is too old; 12.1 is needed"),
    (
        "nvrtc_newer_than_the_driver_and_without_the_device_is_not_used",
        "FAKE_NVRTC_NEWEST=89 FAKE_NVRTC_VERSION=1305",
        Warning,
        "NVRTC 13.5 is newer than the driver and does not know the device",
    ),
    (NO_DEVICE, "", Debug, "--gpu-architecture=compute_90"),
    (
        "nvrtc_whose_kernels_do_not_wait_for_others_is_not_used",
        "FAKE_NVRTC_NEWEST=89",
        Warning,
        "NVRTC 12.8 no longer supports the device",
    ),
    ("failed_compilation_is_logged_once_and_not_retried", "FAKE_NVRTC_STATUS=6", Warning, "log of the fake NVRTC"),
    (NO_LOAD, "", Warning, "loading the kernels"),
];
const NEXT_NAME: &str = "nvrtc_of_the_next_name_is_used_if_the_first_cannot_be";
const NO_DEVICE: &str = "device_newer_than_nvrtc_gets_ptx";
const NO_LOAD: &str = "image_that_does_not_load_is_logged_once_and_not_retried";

fn main() {
    if let Some(child) = child() {
        log_to(Sink {
            wants: |_| true,
            write: |level, line| {
                wait_for_engines(line);
                if line.starts_with("new program: ") {
                    PROGRAMS.lock().unwrap().push(line.to_owned());
                // Neither plans nor prebuilt kernels, whose images log what they load.
                } else if !["new plan for ", "general-"].iter().any(|other| line.starts_with(other)) {
                    LINES.lock().unwrap().push((level, line.to_owned()));
                }
            },
        });
        let driver = FakeDriver::new();
        let nvrtc = PathBuf::from(std::env::var_os(NVRTC).unwrap());
        let compiler = Compiler { nvrtc: nvrtc.exists().then(|| fake_library::open(&nvrtc)), driver };
        return run_child(&child, &compiler);
    }
    fake_library::build("libcuda");
    let nvrtc = fake_library::build("libnvrtc");
    let tests = TESTS.map(|(name, _, environment)| (name, environment));
    let outcomes = OUTCOMES.map(|(name, environment, ..)| (name, environment));
    let of_child = |(name, environment)| {
        let mut process = start(name, &nvrtc, environment);
        trial(name, true, move || _ = check_child(&process.output().unwrap()))
    };
    let mut trials: Vec<_> = tests.into_iter().chain(outcomes).map(of_child).collect();
    let fake = nvrtc.clone();
    trials.push(trial(NEXT_NAME, cfg!(target_os = "linux"), move || the_next_name(&fake)));
    for reason in ["fails", "is missing"] {
        let (name, nvrtc) = (format!("prebuilt kernels go on whichever nvrtc function {reason}"), nvrtc.clone());
        trials.push(trial(&name.replace(' ', "_"), true, move || without_functions(&nvrtc, reason)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A command that runs this program as a child process, with variables such as `NAME=VALUE`.
fn start(name: &str, nvrtc: &Path, environment: &str) -> Command {
    let mut command = child_process(name);
    command.env(NVRTC, nvrtc).envs(environment.split_whitespace().filter_map(|variable| variable.split_once('=')));
    command
}

/// Starts a process that finds an NVRTC without a function under the first name, and a whole one under the second.
fn the_next_name(nvrtc: &Path) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvrtc-of-two-names");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let lacking = fake_library::without(nvrtc, &["nvrtcGetCUBIN"]);
    std::fs::rename(lacking, folder.join("libnvrtc.so")).unwrap();
    std::fs::copy(nvrtc, folder.join("libnvrtc.so.13")).unwrap();
    let inherited = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&inherited))).unwrap();
    check_child(&start(NEXT_NAME, Path::new(""), "").env("LD_LIBRARY_PATH", folders).output().unwrap());
}

/// Starts a process for each function of NVRTC.
fn without_functions(nvrtc: &Path, reason: &str) {
    let functions = fake_library::functions(nvrtc, "nvrtc");
    assert_eq!(functions.len(), 13, "{functions:?}");
    let start = |function: &String| {
        let lacking = (reason == "is missing").then(|| fake_library::without(nvrtc, &[function]));
        let environment = format!("FAKE_NVRTC_FAIL={function}");
        let mut child = start(&format!("{function} {reason}"), lacking.as_deref().unwrap_or(nvrtc), &environment);
        (child.spawn().unwrap(), lacking)
    };
    for (child, lacking) in functions.iter().map(start).collect::<Vec<_>>() {
        check_child(&child.wait_with_output().unwrap());
        lacking.inspect(|library| std::fs::remove_file(library).unwrap());
    }
}

fn run_child(name: &str, compiler: &Compiler) {
    if let Some((_, test, _)) = TESTS.iter().find(|(of, ..)| *of == name) {
        return test(compiler);
    }
    // PTX is compiled for a device that NVRTC does not know.
    if name == NO_DEVICE || name.starts_with("nvrtcGetPTX") {
        compiler.driver.set_devices(1, (9, 1), (13, 0));
    }
    if name == NO_LOAD {
        process::open(0).unwrap().prebuilt(Image::Best).unwrap().load_all().unwrap();
        compiler.driver.fail("cuModuleLoadData", 0, NO_BINARY_FOR_GPU);
    }
    // The last is only called for the text of an error.
    let harmless = ["nvrtcGetProgramLogSize", "nvrtcGetProgramLog", "nvrtcDestroyProgram", "nvrtcGetErrorString"];
    let (level, words) = match name.split_once(' ') {
        None if name == NEXT_NAME => (Debug, "--gpu-architecture=sm_90"),
        None => OUTCOMES.iter().find(|(of, ..)| *of == name).map(|(_, _, level, words)| (*level, *words)).unwrap(),
        Some((function, "is missing")) => (Info, &*format!("no function {function}; install NVRTC 12.1 or later")),
        Some(("nvrtcVersion", _)) => (Info, "using the prebuilt kernels"),
        Some((function, _)) if harmless.contains(&function) => (Debug, "--gpu-architecture=sm_90"),
        Some(_) => (Warning, "using the prebuilt kernels"),
    };
    check_outcome(level, words);
}

/// Two engines ask for two kernels, and every frame is right. `Info` means that no kernel can be compiled, which is logged once and
/// alone; `Warning` that no kernel can be made, which is logged once for each; `Debug` that they are made.
fn check_outcome(level: Level, words: &str) {
    let (limit, count) = match level {
        Info => (A_WHILE, [0, 1]),
        Warning => (A_WHILE, [2, 0]),
        Debug => (LONG, [0, 0]),
    };
    for mut engine in [engine(), engine()] {
        for size in [41, 73] {
            assert_eq!(frames(&mut engine, &case(size), limit, is_specialised), level == Debug);
        }
    }
    let all = LINES.lock().unwrap().clone();
    assert_eq!([Warning, Info].map(|level| lines(level, "using the prebuilt kernels")), count, "{all:?}");
    assert!(lines(level, words) == if level == Info { all.len() } else { 2 }, "{all:?}");
}

/// The fake NVRTC, if it is to be found, and the fake CUDA driver.
struct Compiler {
    nvrtc: Option<Library>,
    driver: FakeDriver,
}

impl Compiler {
    fn compilations(&self) -> i32 {
        call!(self.nvrtc.as_ref().unwrap(), fake_compilations() -> i32)
    }

    /// Compilations that have ended.
    fn finished(&self) -> i32 {
        call!(self.nvrtc.as_ref().unwrap(), fake_finished() -> i32)
    }

    /// Lets one more compilation end.
    fn finish(&self) {
        call!(self.nvrtc.as_ref().unwrap(), fake_finish() -> ());
    }

    /// Blurs frames until one more kernel is being compiled, and some more, which do not wait for the compiler.
    fn begins(&self, engine: &mut Engine, case: &Case) {
        let compilations = self.compilations();
        assert!(frames(engine, case, LONG, |_| self.compilations() > compilations), "no compilation in the background");
        (0..20).for_each(|_| _ = case.check_engine(engine));
        assert!(self.finished() == compilations, "frames wait for the compiler");
        assert!(engine.stats().jit.compiling && !is_specialised(engine));
    }
}

/// With prebuilt kernels for tensor cores that are loaded.
fn engine() -> Engine {
    engine_on(0)
}

fn engine_on(device: u32) -> Engine {
    if !cfg!(feature = "cubins") {
        process::open(device).unwrap().prebuilt(Image::Best).unwrap().load_all().unwrap();
    }
    Engine::with_cuda(CudaEngine::new(device).unwrap())
}

/// A blur for which a kernel is compiled if its size is 41, 73 or 127: a different one for each of them.
fn case(size: u32) -> Case {
    Case::of(f64::from(size) / 6.0, size, PlaneLayout::new(40, 8, 4, 8), [3, 0], Content::Noise)
}

/// A blur for which none is compiled.
fn without_gain() -> Case {
    case(31)
}

/// Blurs a frame every few milliseconds, each compared with the oracle, until `done` or for the time `limit`. Returns whether it
/// ended by `done`.
fn frames(engine: &mut Engine, case: &Case, limit: Duration, done: impl Fn(&Engine) -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        case.check_engine(engine);
        if done(engine) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn is_specialised(engine: &Engine) -> bool {
    engine.stats().kernel_name.starts_with("special-")
}

/// A limit that is only reached if a test fails.
const LONG: Duration = Duration::from_secs(60);
/// As long as settings have to stay unchanged before a kernel is compiled for them, and longer.
const STEADY: Duration = Duration::from_millis(250);
const A_WHILE: Duration = Duration::from_millis(800);

/// The number of log lines of this level that contain these words.
fn lines(level: Level, words: &str) -> usize {
    LINES.lock().unwrap().iter().filter(|(of, line)| *of == level && line.contains(words)).count()
}

fn swap(compiler: &Compiler) {
    let mut engine = engine();
    let case = case(41);
    compiler.begins(&mut engine, &case);
    let begun = Instant::now();
    // Frames on the device repeat what was made for the first, until the kernel is ready.
    let mut on_device = self::engine();
    let check_on_device = |engine: &mut Engine, size: u32| {
        let block = Block::dense(&[PlaneLayout::new(40, 8, 4, 8)], 1);
        let options = BlurParams::new(7.0, size).unwrap().into();
        (0..2).for_each(|_| check_blurs(engine, options, std::slice::from_ref(&block), &block, Streams::One));
    };
    check_on_device(&mut on_device, 41);
    assert!(!is_specialised(&on_device));
    let waited = begun.elapsed();
    compiler.finish();
    assert!(frames(&mut engine, &case, LONG, is_specialised));
    frames(&mut engine, &case, Duration::from_millis(100), |_| false);
    assert!(is_specialised(&engine));
    let took = engine.stats().jit.last.expect("a kernel was compiled");
    assert!(took >= waited, "{took:?}");
    assert!(frames(&mut engine, &case, LONG, |engine| !engine.stats().jit.compiling));
    let nvrtc = compiler.nvrtc.as_ref().unwrap();
    let threads = (call!(nvrtc, fake_compile_thread() -> i32), call!(nvrtc, fake_this_thread() -> i32));
    assert_ne!(threads.0, threads.1, "compiled on the thread that blurs");
    check_on_device(&mut on_device, 41);
    assert!(is_specialised(&on_device), "frames on the device keep the generic kernel");
    check_on_device(&mut on_device, 31);
    assert!(!is_specialised(&on_device), "frames on the device keep the specialised kernel");
    // Another element uses the kernel from its first frame on.
    let mut other = self::engine();
    case.check_engine(&mut other);
    assert!(is_specialised(&other));
    // Other settings use the generic kernels again.
    without_gain().check_engine(&mut engine);
    assert!(!is_specialised(&engine));
    assert_eq!(compiler.compilations(), 1);
    let options = "--gpu-architecture=sm_90 --std=c++17 -DBLUR_PART=1 -DBLUR_PART_direct_u8_c4=1 \
                   -DBLUR_TENSOR_DIRECT_TILES=4";
    assert_eq!(lines(Debug, options), 1);
    assert_eq!(lines(Info, "NVRTC 12.8"), 1);
    assert_eq!(lines(Debug, "log of the fake NVRTC"), 1, "the compiler's log is not logged once");
}

/// Whether the sink waits for other engines.
static SINK_WAITS: AtomicBool = AtomicBool::new(false);
/// The lines for which it has waited, and whether the engines were done in time.
static WAITED: Mutex<Vec<(String, bool)>> = Mutex::new(Vec::new());

/// What the sink does before it records a line: it waits for a thread that does what may have been logged: it opens the device,
/// and blurs a frame on it; and if NVRTC was opened, it compiles a kernel on another device.
fn wait_for_engines(line: &str) {
    thread_local!(static IS_WAITED_FOR: Cell<bool> = const { Cell::new(false) });
    if !SINK_WAITS.load(Ordering::SeqCst) || IS_WAITED_FOR.get() {
        return;
    }
    let (done, is_done) = mpsc::channel();
    let opens_nvrtc = line.contains("compiles specialised kernels");
    std::thread::spawn(move || {
        IS_WAITED_FOR.set(true);
        drop(CudaEngine::new(0).unwrap());
        case(41).check_engine(&mut engine());
        assert!(!opens_nvrtc || frames(&mut engine_on(1), &case(41), LONG, is_specialised));
        done.send(())
    });
    let is_in_time = is_done.recv_timeout(LONG).is_ok();
    WAITED.lock().unwrap().push((line.to_owned(), is_in_time));
}

/// Nothing is locked, and no cell is being initialised, while a line is logged.
fn waiting_sink(compiler: &Compiler) {
    compiler.driver.set_devices(2, (9, 0), (13, 0));
    SINK_WAITS.store(true, Ordering::SeqCst);
    let mut words = vec!["loaded in", "compiles specialised kernels", "has compiled kernels", "none are compiled"];
    if cfg!(feature = "cubins") {
        compiler.driver.fail_times("cuModuleLoadData", 0, 1, NO_BINARY_FOR_GPU);
        words.push("using the portable kernels");
    }
    drop(CudaEngine::new(0).unwrap());
    let mut engine = engine();
    assert!(frames(&mut engine, &case(41), LONG, is_specialised));
    compiler.driver.fail("cuModuleLoadData", 0, NO_BINARY_FOR_GPU);
    let is_logged = |words: &str| WAITED.lock().unwrap().iter().any(|(line, _)| line.contains(words));
    assert!(frames(&mut engine, &case(73), LONG, |_| is_logged("none are compiled")));
    assert!(words.into_iter().all(is_logged), "{WAITED:?}");
    assert!(WAITED.lock().unwrap().iter().all(|(_, is_in_time)| *is_in_time), "{WAITED:?}");
}

fn out_of_memory(compiler: &Compiler) {
    process::open(0).unwrap().prebuilt(Image::Best).unwrap().load_all().unwrap();
    let (mut engine, case) = (engine(), case(41));
    compiler.driver.fail("cuModuleLoadData", 0, OUT_OF_MEMORY);
    let warnings = || lines(Warning, "CUDA_ERROR_OUT_OF_MEMORY");
    assert!(frames(&mut engine, &case, LONG, |_| warnings() == 1));
    frames(&mut engine, &case, A_WHILE, |_| false);
    assert_eq!(compiler.compilations(), 1, "compiled again at once");
    compiler.driver.clear_faults();
    assert!(frames(&mut engine, &case, LONG, is_specialised), "not compiled again");
    assert_eq!((compiler.compilations(), warnings()), (2, 1));
}

fn sweep(compiler: &Compiler) {
    let mut engine = engine();
    let idle =
        |engine: &mut Engine| assert!(frames(engine, &without_gain(), LONG, |engine| !engine.stats().jit.compiling));
    // Where the system keeps this process from running, settings can stay unchanged for too long: the sweep is repeated.
    let mut is_interrupted = true;
    while is_interrupted {
        idle(&mut engine);
        let (begun, before) = (Instant::now(), compiler.compilations());
        is_interrupted = false;
        while begun.elapsed() < A_WHILE {
            // Two frames per size.
            for size in [41, 73, 127] {
                let since = Instant::now();
                for _ in 0..2 {
                    case(size).check_engine(&mut engine);
                    std::thread::sleep(Duration::from_millis(3));
                }
                is_interrupted |= since.elapsed() >= STEADY;
            }
        }
        idle(&mut engine);
        assert!(is_interrupted || compiler.compilations() == before, "compiled during a sweep");
    }
    let before = compiler.compilations();
    assert!(frames(&mut engine, &case(41), LONG, is_specialised));
    assert_eq!(compiler.compilations(), before + 1);
}

fn two_engines(compiler: &Compiler) {
    let mut engines = [engine(), engine()];
    // The compiler is busy for a third engine, so that both requests wait in the queue.
    let mut first = engine();
    compiler.begins(&mut first, &case(41));
    let together = |engines: &mut [Engine], limit, is_ready| {
        std::thread::scope(|scope| {
            for engine in engines {
                scope.spawn(move || assert_eq!(frames(engine, &case(73), limit, is_specialised), is_ready));
            }
        });
    };
    together(&mut engines, A_WHILE, false);
    (0..2).for_each(|_| compiler.finish());
    together(&mut engines, LONG, true);
    assert!(frames(&mut first, &without_gain(), LONG, |engine| !engine.stats().jit.compiling));
    assert_eq!(compiler.compilations(), 2);
}

fn stop(compiler: &Compiler) {
    let mut last = engine();
    let mut engines = [engine(), engine()];
    // The first engine's kernel is being compiled, the second engine's request waits in the queue.
    compiler.begins(&mut engines[0], &case(41));
    frames(&mut engines[1], &case(73), A_WHILE, |_| false);
    assert_eq!(compiler.compilations(), 1);
    drop(engines);
    assert_eq!(compiler.finished(), 0, "stopping waits for the compiler");
    compiler.finish();
    assert!(frames(&mut last, &without_gain(), LONG, |engine| !engine.stats().jit.compiling));
    assert_eq!(compiler.compilations(), 1, "compiled for an engine that was dropped");
    // The last engine waits for the compiler, because NVRTC crashes if the process ends during a compilation, but only
    // for a limited time.
    compiler.begins(&mut last, &case(127));
    let begun = Instant::now();
    drop(last);
    assert!(begun.elapsed() > Duration::from_secs(4), "the last engine does not wait for the compiler");
    assert_eq!(compiler.finished(), 1, "the last engine waits for the compiler without a limit");
}

fn two_devices(compiler: &Compiler) {
    compiler.driver.set_devices(2, (9, 0), (13, 0));
    let [mut first, last] = [0, 1].map(engine_on);
    let is_compiling = || process::open(0).unwrap().jit.status().compiling;
    compiler.begins(&mut first, &case(41));
    drop(first);
    assert!(is_compiling(), "an engine that is not the last one waits");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            compiler.finish();
        });
        drop(last);
        assert!(!is_compiling(), "the process can end while a kernel is compiled");
    });
}

/// Frames that are copied before their regions are blurred get a specialised kernel as others do, and what neither copies nor
/// covers blur has no kernel's name.
fn without_blur(_: &Compiler) {
    let mut engine = engine();
    let planes = [PlaneLayout::new(60, 40, 4, 8)];
    let [source, destination] = [1, 2].map(|seed| Block::dense(&planes, seed));
    let mut covers = soft_covers(&planes, &[2.0], &mut Noise(3));
    let [_, mosaic, fill] = [0; 3].map(|_| covers.remove(0));
    let blur = device_frames::blur([(rect(5, 3, 41, 31), BlurParams::new(7.0, 41).unwrap())]);
    let generic = engine.stats().kernel_name;
    let begun = Instant::now();
    while !is_specialised(&engine) && begun.elapsed() < LONG {
        for cover in [&mosaic, &fill] {
            device_frames::check(&mut engine, cover, &source, None, Streams::One);
            assert_eq!(engine.stats().kernel_name, generic, "a mosaic or a fill has the name of a kernel that blurs");
        }
        check_transfer(&mut engine, &source, &destination);
        device_frames::check(&mut engine, &blur, &source, None, Streams::One);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(is_specialised(&engine), "no kernel is compiled for frames that are copied before they are covered");
    check_transfer(&mut engine, &source, &destination);
    device_frames::check(&mut engine, &fill, &source, None, Streams::One);
    assert!(is_specialised(&engine));
}

fn not_specialised(compiler: &Compiler) {
    let wide = Case::of(7.0, 0, PlaneLayout::new(40, 8, 4, 16), [3, 0], Content::Noise);
    for (mut engine, case) in [(engine(), case(13)), (engine(), wide), (engine(), without_gain())] {
        frames(&mut engine, &case, A_WHILE, |_| false);
        assert!(!is_specialised(&engine));
    }
    assert_eq!(compiler.compilations(), 0);
    assert!(LINES.lock().unwrap().is_empty(), "the log mentions NVRTC although no kernel is to be compiled");
}

/// Radii beyond the prebuilt kernels are blurred by those for CUDA cores until one is compiled for the tiles that they need; then
/// in host memory, in bands, in device memory and in regions.
fn long_radii(compiler: &Compiler) {
    let layout = PlaneLayout::new(33, 70, 4, 8);
    let of_size = |size| Case::of(f64::from(size) / 6.0, size, layout, [3, 0], Content::Noise);
    let mut engine = engine();
    compiler.begins(&mut engine, &of_size(127));
    compiler.finish();
    assert!(frames(&mut engine, &of_size(127), LONG, is_specialised));
    let Stats { frames_cuda, kernel_since, .. } = engine.stats();
    assert!(kernel_since > 0 && kernel_since == frames_cuda - 1, "{kernel_since} of {frames_cuda} frames");
    assert_eq!(lines(Debug, &format!("blurring with the kernels special-sm_90 after {kernel_since} frames")), 1);
    let options = "-DBLUR_PART=1 -DBLUR_PART_direct_u8_c4=1 -DBLUR_TENSOR_DIRECT_TILES=9 \
                   -DBLUR_TENSOR_DIRECT_RESIDENT=2";
    assert_eq!(lines(Debug, options), 1);
    // It is for every radius that needs as many tiles, and other settings have the prebuilt kernels at once.
    for (size, specialised) in [(127, true), (115, true), (31, false), (121, true), (113, false), (127, true)] {
        of_size(size).check_engine(&mut engine);
        assert_eq!(is_specialised(&engine), specialised, "kernel-size={size}");
    }
    assert!(engine.stats().kernel_since > kernel_since);
    let mut in_bands = Engine::with_cuda(CudaEngine::new(0).unwrap().with_bands(3));
    of_size(127).check_engine(&mut in_bands);
    assert!(is_specialised(&in_bands));
    let mut on_device = self::engine();
    let [source, destination] = [1, 2].map(|seed| Block::dense(&[layout], seed));
    let params = BlurParams::new(20.0, 119).unwrap();
    let sources = std::slice::from_ref(&source);
    check_blurs(&mut on_device, params.into(), sources, &destination, Streams::One);
    assert!(is_specialised(&on_device));
    let cover = device_frames::blur([(rect(9, 20, 21, 29), params)]);
    device_frames::check(&mut on_device, &cover, &source, None, Streams::One);
    assert!(is_specialised(&on_device));
    assert_eq!(compiler.compilations(), 1);
}

/// Of a device without machine code. The kernels of one part are compiled for frames of any radius up to 31.
fn in_background(compiler: &Compiler) {
    let portable = || CudaEngine::with_image(0, Image::Portable).unwrap();
    let programs = |kernels: &str| PROGRAMS.lock().unwrap().iter().filter(|line| line.contains(kernels)).count();
    let (small, wide) = (case(15), Case::of(9.0, 0, PlaneLayout::new(90, 70, 4, 8), [3, 0], Content::Noise));
    // The driver refuses the part at first.
    let mut engine = Engine::with_cuda(portable());
    small.check_engine(&mut engine);
    assert!(programs("[blur_rows, blur_columns]") > 0 && programs("tensor") == 0);
    compiler.driver.fail("cuLinkComplete", 0, OUT_OF_MEMORY);
    assert!(frames(&mut engine, &small, LONG, |_| lines(Warning, "none are compiled for direct_u8_c4") == 1));
    assert_eq!(programs("tensor"), 0);
    compiler.driver.clear_faults();
    assert!(frames(&mut engine, &small, LONG, |_| programs("[blur_tensor_direct_u8_c4_short]") > 0));
    assert_eq!(lines(Info, "the driver has compiled kernels for direct_u8_c4"), 1);
    assert_eq!(engine.stats().kernel_name, "general-ptx");
    // Other parts are compiled when they are needed, or before that if planes are announced.
    wide.check_engine(&mut engine);
    let before = programs("blur_decimate_rows");
    assert!(before > 0 && programs("blur_tensor_decimate") == 0);
    engine.prepare(&wide.planes);
    let is_ready = |part| lines(Info, &format!("the driver has compiled kernels for {part}")) == 1;
    let all = ["tensor_c4", "tensor_small"];
    assert!(frames(&mut engine, &small, LONG, |_| all.into_iter().all(is_ready)));
    wide.check_engine(&mut engine);
    assert!(programs("blur_decimate_rows") == before && programs("blur_tensor_decimate") > 0);
    // Another engine has them at once; an engine that compiles nothing in the background waits for what it needs.
    let before = programs("[blur_rows, blur_columns]");
    small.check_engine(&mut Engine::with_cuda(portable()));
    let plane = Case::of(2.5, 15, PlaneLayout::new(40, 8, 1, 8), [3, 0], Content::Noise);
    plane.check_engine(&mut Engine::with_cuda(portable().without_jit()));
    assert!(programs("[blur_rows, blur_columns]") == before && programs("[blur_tensor_direct_u8_c12_short]") > 0);
    // And NVRTC compiles kernels beside them.
    assert!(frames(&mut engine, &case(41), LONG, is_specialised));
}
