//! The blur in a process that cannot create threads. The test runs in a child process, because the limit cannot be
//! undone.

mod common;

use std::process::{Command, Output};
use std::sync::Mutex;

use common::video::{self, Blur, blurred, buffer, info, picture, read};
use gst_video::VideoFormat;
use libtest_mimic::{Arguments, Failed, Trial};

/// Environment variable that names what a child process does; the parent lacks it.
const CHILD: &str = "CUDAGAUSSBLUR_TEST_CHILD";

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The child that tells by its exit status whether the limit has an effect: the system may not enforce it, or not let
/// root change its user.
const PROBE: &str = "probe";

fn main() {
    match std::env::var(CHILD).as_deref() {
        Ok(PROBE) => std::process::exit(i32::from(!forbid_threads())),
        Ok(_) => return blur_without_threads(),
        Err(_) => (),
    }
    let runs = processors() > 1 && child(PROBE).status.success();
    let test = || {
        let output = child("blur");
        let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
        if output.status.success() { Ok(()) } else { Err(Failed::from(text)) }
    };
    let trial = Trial::test("streaming_thread_blurs_alone_if_no_thread_can_be_created", test).with_ignored_flag(!runs);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

fn child(which: &str) -> Output {
    Command::new(std::env::current_exe().unwrap()).env(CHILD, which).output().unwrap()
}

fn processors() -> usize {
    std::thread::available_parallelism().unwrap().get()
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
    gst::log::set_threshold_for_name("cudagaussblur", gst::DebugLevel::Warning);
    gst::log::add_log_function(|category, level, _, _, _, _, message| {
        if category.name() == "cudagaussblur" && level == gst::DebugLevel::Warning {
            WARNINGS.lock().unwrap().push(message.get().unwrap_or_default().to_string());
        }
    });
    assert!(forbid_threads());
    // Large enough to be split between several threads.
    let info = info(VideoFormat::Rgba, 640, 360);
    let image = picture(&info, 1);
    let mut blur = Blur::new("backend=cpu sigma=4");
    blur.caps(&info);
    assert!(read(&info, &blur.push(buffer(&info, &image))) == blurred(&image, 4.0, 0));
    let warnings = WARNINGS.lock().unwrap();
    println!("{warnings:?}");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("only 0 of") && warnings[0].contains("ulimit -u"), "{warnings:?}");
}
