//! The blur in a process that cannot create threads. The test runs in a child process, because the limit cannot be
//! undone.

mod common;

use common::checks::{check_child, child, child_process, has_words, log_warnings, trial};
use common::video::{self, Blur, info};
use gst_video::VideoFormat;
use libtest_mimic::Arguments;

/// The exit status of a child in which the limit has no effect: the system may not enforce it, or not let root change its user.
const UNLIMITED: i32 = 77;

fn main() {
    if child().is_some() {
        return blur_without_threads();
    }
    let output = child_process("blur").output().unwrap();
    let has_several = std::thread::available_parallelism().unwrap().get() > 1;
    let runs = has_several && output.status.code() != Some(UNLIMITED);
    let test = move || _ = check_child(&output);
    let trial = trial("streaming_thread_blurs_alone_if_no_thread_can_be_created", runs, test);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

/// Makes the system refuse new threads from here on, as it does beyond `ulimit -u`. The limit does not apply to root,
/// so root becomes nobody. Returns whether it has an effect: on Windows it has none.
fn forbid_threads() -> bool {
    // SAFETY: `none` is a valid limit that lives during the call. setresuid changes the user of all threads of the
    // process, none of which depends on being root.
    #[cfg(unix)]
    unsafe {
        const NOBODY: u32 = 65534;
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_NPROC, &none);
        if libc::geteuid() == 0 {
            libc::setresuid(NOBODY, NOBODY, NOBODY);
        }
    }
    std::thread::Builder::new().spawn(|| ()).is_err()
}

fn blur_without_threads() {
    video::init();
    let warnings = log_warnings();
    if !forbid_threads() {
        std::process::exit(UNLIMITED);
    }
    // Large enough to be split between several threads.
    let info = info(VideoFormat::Rgba, 640, 360);
    Blur::with("backend=cpu sigma=4", &info).check(&info, 1, 4.0);
    let [warning] = &warnings.lock().unwrap()[..] else { panic!("not one warning: {warnings:?}") };
    has_words(warning, &["only 0 of", "ulimit -u"]);
}
