//! Repeated starts and stops, several elements at once, and a process that cannot create threads. A program of its own, because it
//! counts the process's threads.

mod common;

use common::checks::{check_child, child, child_process, has_words, log_warnings, run_one_by_one, trial};
use common::pipes::{pipeline, run_to_end};
use common::video::{self, Blur, info};
use gst::prelude::*;
use gst_video::VideoFormat;

/// The exit status of a child in which the limit has no effect: the system may not enforce it, or not let root change its user.
const UNLIMITED: i32 = 77;

fn main() {
    // It is a child process, because the limit cannot be undone.
    if child().is_some() {
        return blur_without_threads();
    }
    let output = child_process("blur").output().unwrap();
    let has_several = std::thread::available_parallelism().unwrap().get() > 1;
    let runs = has_several && output.status.code() != Some(UNLIMITED);
    run_one_by_one(vec![
        trial("restarts_and_parallel_elements_leave_no_threads", true, restarts),
        trial("streaming_thread_blurs_alone_if_no_thread_can_be_created", runs, move || _ = check_child(&output)),
    ]);
}

/// The number of threads in this process that the blur started, 0 where nothing lists their names. Those that work on frames have
/// numbers; others load or allocate once.
fn threads(only_workers: bool) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    let is_counted = |rest: &str| !only_workers || rest.trim().parse::<u32>().is_ok();
    names.filter(|name| name.strip_prefix("gaussblur-").is_some_and(is_counted)).count()
}

/// Asserts that all of the blur's threads end. A thread that has been joined is listed in /proc a moment longer, hence
/// the wait.
fn assert_no_worker_threads(after: &str) {
    let begun = std::time::Instant::now();
    while threads(false) > 0 {
        assert!(begun.elapsed().as_secs() < 60, "threads are still running after {after}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn restarts() {
    let line = "videotestsrc num-buffers=3 ! video/x-raw,format=RGBA,width=320,height=240 ! \
                cudagaussblur name=blur sigma=3 ! cudagaussblur sigma=1 ! fakesink";
    let short = pipeline(line);
    for _ in 0..100 {
        run_to_end(&short);
        short.set_state(gst::State::Null).unwrap();
        assert_no_worker_threads("stop");
    }

    // Eight elements at once share one set of threads, and each has its own output.
    let info = info(VideoFormat::Rgb, 640, 360);
    std::thread::scope(|scope| {
        for sigma in (0..8).map(|i| 0.5 + f64::from(i)) {
            let info = &info;
            scope.spawn(move || {
                let mut blur = Blur::with(&format!("sigma={sigma}"), info);
                for _ in 0..5 {
                    blur.check(info, 1, sigma);
                    let cores = std::thread::available_parallelism().unwrap().get();
                    assert!(threads(true) <= cores, "more threads than processors");
                }
            });
        }
    });
    assert_no_worker_threads("the last element");

    let endless = pipeline(&line.replace("num-buffers=3", ""));
    for _ in 0..10 {
        endless.set_state(gst::State::Playing).unwrap();
        endless.state(gst::ClockTime::from_seconds(60)).0.unwrap();
        endless.set_state(gst::State::Null).unwrap();
        assert_no_worker_threads("a stop mid-stream");
    }
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
