//! Kernels compiled for single sizes while frames go on, on stand-ins for the driver and for NVRTC. Each test is a process
//! of its own, because both are opened once in a process.

mod common;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::cases::{Case, Content};
use common::stand_in;
use gstcudagaussblur::cuda::{CudaEngine, Made, Origin};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::frame::PlaneLayout;
use gstcudagaussblur::log::{Level, set_sink};
use libloading::os::unix::Library;
use libtest_mimic::{Arguments, Trial};

/// Which test this process is; without it, it is the one that starts them.
const CHILD: &str = "CUDAGAUSSBLUR_TEST_CHILD";
const DRIVER: &str = "CUDAGAUSSBLUR_TEST_DRIVER";
const NVRTC: &str = "CUDAGAUSSBLUR_NVRTC";
const CACHE: &str = "CUDAGAUSSBLUR_CACHE";

static LINES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

/// A test that is one process: its name, what it does, and what is special about its compiler.
type Test = (&'static str, fn(&Compiler), &'static [(&'static str, &'static str)]);

const TESTS: [Test; 12] = [
    ("a_size_that_stays_gets_a_kernel_and_no_frame_waits", swap, &[("FAKE_NVRTC_MS", "2000")]),
    ("a_sweep_compiles_only_what_stays", sweep, &[]),
    ("two_engines_that_want_the_same_cause_one_compilation", two_engines, &[("FAKE_NVRTC_MS", "1500")]),
    ("stopping_does_not_wait_for_the_compiler", stop, &[("FAKE_NVRTC_MS", "3000")]),
    ("a_wide_radius_is_not_compiled_for", wide, &[]),
    ("without_nvrtc_the_general_kernels_serve", no_compiler, &[(NVRTC, "/nowhere/libnvrtc.so")]),
    ("an_nvrtc_too_old_is_not_used", too_old, &[("FAKE_NVRTC_VERSION", "1107")]),
    (
        "an_nvrtc_newer_than_the_driver_that_lacks_the_device_is_not_used",
        too_new,
        &[("FAKE_NVRTC_NEWEST", "89"), ("FAKE_NVRTC_VERSION", "1305")],
    ),
    ("a_device_newer_than_nvrtc_gets_ptx", ptx, &[("FAKE_NVRTC_NEWEST", "89")]),
    ("a_compilation_that_fails_is_said_once_and_not_tried_again", fails, &[("FAKE_NVRTC_STATUS", "6")]),
    ("an_image_that_does_not_load_is_given_up", no_load, &[]),
    ("no_folder_for_kernels_is_no_error", no_folder, &[]),
];

fn main() {
    if let Ok(child) = std::env::var(CHILD) {
        set_sink(|level, line| LINES.lock().unwrap().push((level, line.to_owned())));
        let compiler = Compiler::open();
        match TESTS.iter().find(|(name, ..)| *name == child) {
            Some((_, test, _)) => test(&compiler),
            None => from_disk(&compiler, &child),
        }
        return;
    }
    let libraries = [stand_in::build("libcuda"), stand_in::build("libnvrtc")];
    let mut trials = Vec::new();
    for (name, _, environment) in TESTS {
        let libraries = libraries.clone();
        trials.push(Trial::test(name, move || {
            check(&start(name, &libraries, environment).output().unwrap());
            Ok(())
        }));
    }
    let of_disk = libraries.clone();
    trials.push(Trial::test("kernels_are_kept_on_disk_for_the_next_process", move || {
        disk(&of_disk);
        Ok(())
    }));
    let ended = libtest_mimic::run(&Arguments::from_args(), trials);
    for library in libraries {
        std::fs::remove_file(library).unwrap();
    }
    ended.exit();
}

/// A process of this program that is one test.
fn start(name: &str, [driver, nvrtc]: &[PathBuf; 2], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(CHILD, name).env(DRIVER, driver).env(NVRTC, nvrtc).env(CACHE, "off");
    command.envs(environment.iter().copied());
    command
}

fn check(output: &Output) {
    let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{}\n{text}", output.status);
}

/// The compiler's stand-in, and the driver's.
struct Compiler(Option<Library>, Library);

impl Compiler {
    fn open() -> Self {
        let driver = stand_in::open(Path::new(&std::env::var_os(DRIVER).unwrap()));
        let nvrtc = PathBuf::from(std::env::var_os(NVRTC).unwrap());
        Self(nvrtc.exists().then(|| stand_in::open(&nvrtc)), driver)
    }

    fn number(&self, function: &[u8]) -> i32 {
        // SAFETY: as declared in the stand-in.
        unsafe { self.0.as_ref().unwrap().get::<unsafe extern "C" fn() -> i32>(function).unwrap()() }
    }

    fn compilations(&self) -> i32 {
        self.number(b"fake_compiles")
    }
}

fn engine() -> Engine {
    Engine::on_cuda(CudaEngine::new(0).unwrap())
}

fn case(sigma: f64, channels: u8) -> Case {
    let layout = PlaneLayout::new(40, 8, channels, 8);
    Case::of(sigma, 0, layout, [3, 0], Content::Noise)
}

/// Blurs frames at some pace, each compared with the oracle, until `done` or for as long as `most`. Returns the longest
/// time of a frame and whether it was done.
fn frames(engine: &mut Engine, case: &Case, most: Duration, done: impl Fn(&Engine) -> bool) -> (Duration, bool) {
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    while begun.elapsed() < most {
        let frame = Instant::now();
        case.check_engine(engine);
        longest = longest.max(frame.elapsed());
        if done(engine) {
            return (longest, true);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    (longest, false)
}

fn is_special(engine: &Engine) -> bool {
    engine.stats().kernel_name.starts_with("special-")
}

const LONG: Duration = Duration::from_secs(20);
/// Longer than a size has to stay.
const A_WHILE: Duration = Duration::from_millis(800);

fn lines(level: Level, words: &str) -> usize {
    LINES.lock().unwrap().iter().filter(|(of, line)| *of == level && line.contains(words)).count()
}

fn swap(compiler: &Compiler) {
    let mut engine = engine();
    let case = case(2.0, 4);
    let (_, compiling) = frames(&mut engine, &case, LONG, |engine| engine.stats().progress.at_work);
    assert!(compiling && !is_special(&engine), "it compiles beside frames");
    // The compiler takes 2 s; a frame here takes some ms.
    let (longest, special) = frames(&mut engine, &case, LONG, is_special);
    assert!(special && longest < Duration::from_millis(1500), "a frame took {longest:?} while it compiled");
    frames(&mut engine, &case, Duration::from_millis(100), |_| false);
    assert!(is_special(&engine));
    let Some(Made { took, from: Origin::Nvrtc }) = engine.stats().progress.last else { panic!("nothing made") };
    assert!(took >= Duration::from_secs(2), "{took:?}");
    assert!(!engine.stats().progress.at_work);
    // SAFETY: no arguments.
    let this_thread = unsafe { libc::gettid() };
    assert_ne!(compiler.number(b"fake_thread"), this_thread, "compiled on the thread that blurs");
    // Another element has it at once.
    let mut other = self::engine();
    case.check_engine(&mut other);
    assert!(is_special(&other));
    // Another size goes back to the general kernels.
    self::case(2.5, 4).check_engine(&mut engine);
    assert!(!is_special(&engine));
    assert_eq!(compiler.compilations(), 1);
    let options = "-DBLUR_ALONE=true -DBLUR_SPECIAL_0=Plain<u8,4>,Fixed<0,8,8,8>";
    assert_eq!(lines(Level::Debug, &format!("--gpu-architecture=sm_90 --std=c++17 {options}")), 1);
    assert_eq!(lines(Level::Info, "NVRTC 12.8"), 1);
    assert_eq!(lines(Level::Debug, "as the stand-in was told"), 1, "the compiler's log");
}

fn sweep(compiler: &Compiler) {
    let mut engine = engine();
    let begun = Instant::now();
    let mut sizes = HashSet::new();
    while begun.elapsed() < A_WHILE {
        for sigma in (2..22).map(|i| f64::from(i) / 4.0) {
            sizes.insert(sigma.to_bits());
            // Each for two frames.
            for _ in 0..2 {
                case(sigma, 1).check_engine(&mut engine);
                std::thread::sleep(Duration::from_millis(3));
            }
        }
    }
    assert_eq!(compiler.compilations(), 0, "compiled in a sweep of {} sizes", sizes.len());
    assert!(frames(&mut engine, &case(2.0, 1), LONG, is_special).1);
    assert_eq!(compiler.compilations(), 1);
}

fn two_engines(compiler: &Compiler) {
    let mut engines = [engine(), engine()];
    // While the compiler is at work for another one, so that both wait for their turn.
    let mut first = engine();
    assert!(frames(&mut first, &case(2.0, 3), LONG, |engine| engine.stats().progress.at_work).1);
    std::thread::scope(|scope| {
        for engine in &mut engines {
            scope.spawn(|| assert!(frames(engine, &case(1.0, 3), LONG, is_special).1));
        }
    });
    frames(&mut first, &case(9.0, 3), A_WHILE, |engine| !engine.stats().progress.at_work);
    assert_eq!(compiler.compilations(), 2);
}

fn stop(compiler: &Compiler) {
    let mut last = engine();
    let mut engines = [engine(), engine()];
    // The first compiles, the second waits for its turn.
    assert!(frames(&mut engines[0], &case(1.0, 1), LONG, |engine| engine.stats().progress.at_work).1);
    frames(&mut engines[1], &case(2.0, 1), A_WHILE, |_| false);
    assert_eq!(compiler.compilations(), 1);
    let begun = Instant::now();
    drop(engines);
    // The compiler takes 3 s.
    assert!(begun.elapsed() < Duration::from_millis(1500), "stopping took {:?}", begun.elapsed());
    frames(&mut last, &case(9.0, 1), LONG, |engine| !engine.stats().progress.at_work);
    assert_eq!(compiler.compilations(), 1, "compiled for an engine that is gone");
    let threads = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    assert!(!threads.into_iter().any(|name| name.starts_with("gaussblur-nvrtc")), "a thread is left");
    // The last engine waits for the compiler, because NVRTC crashes if the process ends under it, but not for ever.
    assert!(frames(&mut last, &case(3.0, 1), LONG, |engine| engine.stats().progress.at_work).1);
    let begun = Instant::now();
    drop(last);
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(1) && took < Duration::from_millis(2900), "the last one stopped after {took:?}");
}

fn wide(compiler: &Compiler) {
    let mut engine = engine();
    frames(&mut engine, &case(7.0, 1), A_WHILE, |_| false);
    assert!(!is_special(&engine));
    assert_eq!(compiler.compilations(), 0);
    assert!(LINES.lock().unwrap().is_empty(), "NVRTC was looked for");
}

/// Frames go on with the general kernels.
fn stays_general(engine: &mut Engine) {
    frames(engine, &case(1.0, 1), A_WHILE, |_| false);
    frames(engine, &case(2.0, 1), A_WHILE, |_| false);
    assert!(!is_special(engine));
}

fn no_compiler(_: &Compiler) {
    stays_general(&mut engine());
    stays_general(&mut engine());
    assert_eq!(lines(Level::Info, "NVRTC was not found as /nowhere/libnvrtc.so"), 1);
    assert_eq!(LINES.lock().unwrap().len(), 1, "{:?}", LINES.lock());
}

fn too_old(compiler: &Compiler) {
    stays_general(&mut engine());
    assert_eq!(lines(Level::Info, "NVRTC 11.7 is too old; 11.8 is needed"), 1);
    assert_eq!(LINES.lock().unwrap().len(), 1, "{:?}", LINES.lock());
    assert_eq!(compiler.compilations(), 0);
}

fn too_new(compiler: &Compiler) {
    stays_general(&mut engine());
    assert_eq!(compiler.compilations(), 0);
    assert!(lines(Level::Warning, "NVRTC 13.5 is newer than the driver and does not know the device") >= 1);
}

fn ptx(_: &Compiler) {
    let mut engine = engine();
    assert!(frames(&mut engine, &case(1.0, 4), LONG, is_special).1);
    assert_eq!(lines(Level::Debug, "--gpu-architecture=compute_89"), 1);
}

fn fails(compiler: &Compiler) {
    let mut engine = engine();
    frames(&mut engine, &case(1.0, 1), A_WHILE, |_| false);
    let mut other = self::engine();
    frames(&mut other, &case(1.0, 1), A_WHILE, |_| false);
    assert!(!is_special(&engine) && !is_special(&other));
    assert_eq!(compiler.compilations(), 1, "tried again");
    assert_eq!(lines(Level::Warning, "as the stand-in was told"), 1);
    assert_eq!(lines(Level::Warning, ""), 1);
}

fn no_load(compiler: &Compiler) {
    let mut engine = engine();
    type Fail = unsafe extern "C" fn(*const std::ffi::c_char, i32, i32, i32);
    // SAFETY: as declared in the stand-in.
    unsafe { compiler.1.get::<Fail>(b"fake_fail").unwrap()(c"cuModuleLoadData".as_ptr(), 0, 1, 209) };
    frames(&mut engine, &case(1.0, 1), A_WHILE, |_| false);
    assert!(!is_special(&engine));
    assert_eq!((compiler.compilations(), lines(Level::Warning, "loading the kernels")), (1, 1));
}

fn no_folder(compiler: &Compiler) {
    // A file where the folder should be: that cannot be written by root either.
    let blocked = std::env::temp_dir().join(format!("cudagaussblur-no-folder-{}", std::process::id()));
    std::fs::write(&blocked, "").unwrap();
    // SAFETY: this process has one thread yet.
    unsafe { std::env::set_var(CACHE, &blocked) };
    assert!(frames(&mut engine(), &case(1.0, 1), LONG, is_special).1);
    assert_eq!(compiler.compilations(), 1);
    assert_eq!(lines(Level::Info, "compiled kernels are not kept in"), 1);
    assert_eq!(
        [lines(Level::Warning, ""), lines(Level::Warning, "is not a directory; set CUDAGAUSSBLUR_CACHE")],
        [1, 1]
    );
    std::fs::remove_file(&blocked).unwrap();
}

/// One process of the test below: gets its kernel from where `expected` says.
fn from_disk(compiler: &Compiler, expected: &str) {
    let mut engine = engine();
    assert!(frames(&mut engine, &case(1.0, 2), LONG, is_special).1);
    let from = engine.stats().progress.last.unwrap().from.name();
    assert!(expected == "either" || from == expected, "from {from}, not {expected}");
    assert_eq!(compiler.compilations(), i32::from(from == "nvrtc"));
}

fn disk(libraries: &[PathBuf; 2]) {
    let folder = std::env::temp_dir().join(format!("cudagaussblur-kernels-{}", std::process::id()));
    let run = |expected: &str, environment: &[(&str, &str)]| {
        check(&start(expected, libraries, environment).env(CACHE, &folder).output().unwrap());
    };
    let files = || std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();
    run("nvrtc", &[]);
    run("disk", &[]);
    assert_eq!(files().len(), 1);
    // Damaged: made again, and good from then on.
    let good = std::fs::read(&files()[0]).unwrap();
    std::fs::write(&files()[0], &good[..good.len() - 1]).unwrap();
    run("nvrtc", &[]);
    run("disk", &[]);
    // Of another compiler: a file of its own.
    run("nvrtc", &[("FAKE_NVRTC_VERSION", "1300")]);
    assert_eq!(files().len(), 2);
    // Two at once.
    std::fs::remove_dir_all(&folder).unwrap();
    let at_once: Vec<_> =
        (0..2).map(|_| start("either", libraries, &[]).env(CACHE, &folder).spawn().unwrap()).collect();
    for child in at_once {
        check(&child.wait_with_output().unwrap());
    }
    run("disk", &[]);
    std::fs::remove_dir_all(&folder).unwrap();
}
