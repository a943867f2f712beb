//! What surrounds a process in which lives are lived, made from a seed: limits, files and locale of the system, the processor, the
//! driver, and the thread that calls the element.

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Noise, fake_library, floats};

/// Names the seed of a child's environment.
pub const VARIABLE: &str = "CUDAGAUSSBLUR_ENVIRONMENT";

/// Where nobody can make a file, root included.
const READ_ONLY: &str = "/proc/self";

/// One thing that differs from the usual.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Condition {
    /// Rounding and denormals of the thread that calls the element, as a number of [`floats::Environment::all`].
    Floats(usize),
    /// The stack of that thread in KiB: musl gives 128.
    Stack(usize),
    OneCore,
    /// Open files: GStreamer 1.24 itself has up to 75 for the pools and buses of a life, and breaks without.
    Handles(u32),
    NoHome,
    /// Home, cache and temporary files.
    ReadOnlyFiles,
    /// With a decimal comma, or with another lower case of I.
    Locale(&'static str),
    /// CPUs without AVX.
    Instructions(&'static str),
    /// The log, with everything that is only computed for it.
    Logged,
    /// A fork of a process that has an engine and its worker threads.
    Forked,
    NoDriver,
    /// A driver without one of its functions: the n-th.
    DriverWithout(u64),
    /// Memory that is not zero when it is allocated, nor what it was when it is freed.
    DirtyMemory,
}

impl Condition {
    /// Its kind, without numbers.
    pub fn name(self) -> String {
        let text = format!("{self:?}");
        text.split('(').next().unwrap().to_owned()
    }
}

/// The environment of this seed.
pub fn environment(seed: u64) -> Vec<Condition> {
    let mut noise = Noise(seed);
    let mut below = |limit: u64| (noise.next() >> 16) % limit;
    let mut conditions: Vec<Condition> = Vec::new();
    // Each kind occurs among 13 seeds.
    let mut kind = seed % 13;
    for _ in 0..=below(3) {
        let condition = match kind {
            0 => Condition::Floats(1 + below(7) as usize),
            1 => Condition::Stack([128, 160, 256][below(3) as usize]),
            2 => Condition::OneCore,
            3 => Condition::Handles([100, 160][below(2) as usize]),
            4 => Condition::NoHome,
            5 => Condition::ReadOnlyFiles,
            6 => Condition::Locale(["de_DE", "tr_TR"][below(2) as usize]),
            7 => Condition::Instructions(["portable", "sse2"][below(2) as usize]),
            8 => Condition::Logged,
            9 => Condition::Forked,
            10 => Condition::NoDriver,
            11 => Condition::DriverWithout(below(1000)),
            _ => Condition::DirtyMemory,
        };
        if conditions.iter().all(|other| other.name() != condition.name()) {
            conditions.push(condition);
        }
        kind = below(13);
    }
    conditions
}

/// The conditions of this process.
pub fn current() -> Vec<Condition> {
    std::env::var(VARIABLE).map_or(Vec::new(), |seed| environment(seed.parse().unwrap()))
}

/// Whether the driver cannot be used, or perhaps not.
pub fn lacks_driver(conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| matches!(condition, Condition::NoDriver | Condition::DriverWithout(_)))
}

/// This program, to be run in an environment.
pub fn command(seed: u64) -> Command {
    // What waits for ever fails.
    let mut command = Command::new("timeout");
    command.arg("300").env(VARIABLE, seed.to_string());
    for condition in environment(seed) {
        match condition {
            Condition::OneCore => _ = command.args(["taskset", "--cpu-list", "0"]),
            Condition::Handles(most) => _ = command.args(["prlimit".to_owned(), format!("--nofile={most}")]),
            Condition::NoHome => _ = command.env_remove("HOME").env_remove("XDG_CACHE_HOME").env_remove("USER"),
            Condition::ReadOnlyFiles => {
                let folders = ["HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "TMPDIR"];
                command.envs(folders.map(|folder| (folder, READ_ONLY)));
            }
            Condition::Locale(name) => {
                let folder = locales();
                command.env("LOCPATH", folder).env("LC_ALL", format!("{name}.UTF-8")).env_remove("LANGUAGE");
            }
            Condition::Instructions(name) => _ = command.env("CUDAGAUSSBLUR_INSTRUCTIONS", name),
            Condition::Logged => _ = command.env("GST_DEBUG", "cudagaussblur:9").env("GST_DEBUG_FILE", "/dev/null"),
            Condition::DirtyMemory => _ = command.env("MALLOC_PERTURB_", "165"),
            _ => (),
        }
    }
    command.arg(std::env::current_exe().unwrap());
    command
}

/// A folder with the locales.
fn locales() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("locales");
    for name in ["de_DE", "tr_TR"] {
        let locale = folder.join(format!("{name}.UTF-8"));
        if !locale.exists() {
            fs::create_dir_all(&folder).unwrap();
            let unfinished = folder.join(format!("{name}-{}", std::process::id()));
            let made = Command::new("localedef").args(["-i", name, "-f", "UTF-8"]).arg(&unfinished).output();
            assert!(made.is_ok_and(|made| made.status.success()), "localedef fails: scripts/test installs `locales`");
            // Somebody else may have made it meanwhile.
            fs::rename(unfinished, locale).ok();
        }
    }
    folder
}

/// Opens the driver of these conditions before anything else opens one of its name.
pub fn open_driver(conditions: &[Condition]) {
    for condition in conditions {
        if let Condition::DriverWithout(number) = condition {
            let library = fake_library::build("libcuda");
            let functions = fake_library::functions(&library, "cu");
            let function = &functions[*number as usize % functions.len()];
            println!("a driver without {function}");
            let copy = fake_library::without(&library, &[function]);
            std::mem::forget(fake_library::open(&copy));
            fs::remove_file(copy).unwrap();
        }
    }
}

/// Calls `work` on the thread of these conditions, whose panics are passed on, in the process that they ask for.
pub fn within<T: Send>(conditions: &[Condition], work: impl FnOnce(floats::Environment) -> T + Send) -> T {
    let mut floats = floats::Environment::DEFAULT;
    let mut thread = std::thread::Builder::new();
    for condition in conditions {
        match condition {
            Condition::Floats(number) => floats = floats::Environment::all()[*number],
            Condition::Stack(kib) => thread = thread.stack_size(kib * 1024),
            Condition::Locale(_) => set_locale(),
            _ => (),
        }
    }
    std::thread::scope(|scope| match thread.spawn_scoped(scope, || work(floats)).unwrap().join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Sets the locale of the environment; each has a decimal comma.
fn set_locale() {
    // SAFETY: no other thread of this program sets or reads the locale now; its decimal point lives until it is set again.
    let point = unsafe {
        libc::setlocale(libc::LC_ALL, c"".as_ptr());
        CStr::from_ptr((*libc::localeconv()).decimal_point)
    };
    assert_eq!(point.to_str(), Ok(","), "the locale is not in use");
}

/// Forks, and calls `work` in the child alone; in the parent, waits for it.
pub fn fork(work: impl FnOnce()) {
    // SAFETY: the child has this thread alone, and whatever locks other threads held stay locked in it: that it gets through is what is
    // tested. It ends without the exit handlers of the parent's threads.
    unsafe {
        match libc::fork() {
            0 => {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                libc::_exit(i32::from(result.is_err()));
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                assert_eq!(status, 0, "the fork has failed");
            }
        }
    }
}
