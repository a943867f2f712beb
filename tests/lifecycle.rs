//! Repeated starts and stops, and several elements at once. One test per program, because it counts the process's
//! threads.

mod common;

use common::pipes::{pipeline, run_to_end};
use common::video::{Blur, info};
use gst::prelude::*;
use gst_video::VideoFormat;

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
        assert!(begun.elapsed().as_secs() < 20, "threads are still running after {after}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn restarts_and_parallel_elements_leave_no_threads() {
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
        endless.state(gst::ClockTime::from_seconds(10)).0.unwrap();
        endless.set_state(gst::State::Null).unwrap();
        assert_no_worker_threads("a stop mid-stream");
    }
}
