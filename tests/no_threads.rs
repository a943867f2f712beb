//! A process that may make no thread. It is a process of its own, because that cannot be undone.

mod common;

use std::process::{Command, Output};
use std::sync::Mutex;

use common::video::{self, Blur, blurred, buffer, info, picture, read};
use gst_video::VideoFormat;
use libtest_mimic::{Arguments, Failed, Trial};

/// Set in a process of its own: what it is for.
const CHILD: &str = "CUDAGAUSSBLUR_TEST_CHILD";

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether threads are refused in the child: the system may not enforce the limit, or not let root become somebody else.
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
        let said = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
        if output.status.success() { Ok(()) } else { Err(Failed::from(said)) }
    };
    let trial = Trial::test("the_streaming_thread_does_what_refused_threads_do_not", test).with_ignored_flag(!runs);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

fn child(which: &str) -> Output {
    Command::new(std::env::current_exe().unwrap()).env(CHILD, which).output().unwrap()
}

fn processors() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

/// From here on the system refuses threads, as it does beyond `ulimit -u`. The limit does not hold for root, who becomes
/// nobody.
fn forbid_threads() -> bool {
    const NOBODY: u32 = 65534;
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid limit; the user of the process is changed for all of its threads.
    unsafe {
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
    // Large enough for several threads.
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
