//! A process that may make no thread. It is a process of its own, because that cannot be undone.

mod common;

use std::process::Command;
use std::sync::Mutex;

use common::video::{self, Blur, blurred, buffer, info, picture, read};
use gst_video::VideoFormat;

/// Set in the process without threads.
const CHILD: &str = "CUDAGAUSSBLUR_TEST_CHILD";

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn the_streaming_thread_does_what_refused_threads_do_not() {
    if std::env::var_os(CHILD).is_some() {
        return blur_without_threads();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_streaming_thread_does_what_refused_threads_do_not", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{said}");
    println!("{said}");
}

/// From here on the system refuses threads, as it does beyond `ulimit -u`. The limit does not hold for root.
fn forbid_threads() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid limit; the user of the process is changed for all of its threads.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &none), 0);
        if libc::geteuid() == 0 {
            const NOBODY: u32 = 65534;
            assert_eq!(libc::setresuid(NOBODY, NOBODY, NOBODY), 0, "{}", std::io::Error::last_os_error());
        }
    }
    std::thread::Builder::new().spawn(|| ()).expect_err("a thread is refused");
}

fn blur_without_threads() {
    video::init();
    gst::log::set_threshold_for_name("cudagaussblur", gst::DebugLevel::Warning);
    gst::log::add_log_function(|category, level, _, _, _, _, message| {
        if category.name() == "cudagaussblur" && level == gst::DebugLevel::Warning {
            WARNINGS.lock().unwrap().push(message.get().unwrap_or_default().to_string());
        }
    });
    let processors = std::thread::available_parallelism().unwrap().get();
    forbid_threads();
    // Large enough for several threads.
    let info = info(VideoFormat::Rgba, 640, 360);
    let image = picture(&info, 1);
    let mut blur = Blur::new("backend=cpu sigma=4");
    blur.caps(&info);
    assert!(read(&info, &blur.push(buffer(&info, &image))) == blurred(&image, 4.0, 0));
    let warnings = WARNINGS.lock().unwrap();
    println!("{warnings:?}");
    if processors > 1 {
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("only 0 of") && warnings[0].contains("ulimit -u"), "{warnings:?}");
    }
}
