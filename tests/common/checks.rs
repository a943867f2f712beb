//! What tests of the element and of processes do again and again: rows of a table, frames that are checked, messages that are
//! counted, child processes.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo};
use libtest_mimic::{Arguments, Trial};

use super::video::{self, Blur, blurred, buffer, nick, picture, read};

/// The row of a table that is being checked: it is printed if a check fails before the end of its scope.
pub struct Row(pub String);

impl Drop for Row {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the row: {}", self.0);
        }
    }
}

impl Blur {
    /// A started element that knows its caps.
    pub fn with(properties: &str, info: &VideoInfo) -> Self {
        let mut blur = Self::new(properties);
        blur.caps(info);
        blur
    }

    /// Pushes a picture of noise and checks that its blur is output.
    #[track_caller]
    pub fn check(&mut self, info: &VideoInfo, seed: u64, sigma: f64) {
        let image = picture(info, seed);
        let output = self.push(buffer(info, &image));
        assert!(read(info, &output) == blurred(&image, sigma, 0), "picture {seed} is not blurred by {sigma}");
    }

    pub fn flush(&mut self) {
        self.harness.push_event(gst::event::FlushStart::new());
        self.harness.push_event(gst::event::FlushStop::new(true));
        self.harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    }

    /// Ends the stream, before which all frames in flight are output.
    #[track_caller]
    pub fn end(&mut self) {
        assert!(self.harness.push_event(gst::event::Eos::new()));
    }

    /// Counters in the element's `stats`.
    pub fn stats<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        names.map(|name| video::stat(self, name))
    }

    /// The backend in use.
    pub fn backend(&self) -> String {
        nick(&self.element, "active-backend")
    }

    /// Takes all warnings and errors from the bus, and checks how many there were of each.
    #[track_caller]
    pub fn said(&self, warnings: usize, errors: usize) -> Vec<String> {
        let (mut warned, mut failed) = (Vec::new(), Vec::new());
        // Popping messages of one type would discard those of the other.
        for message in std::iter::from_fn(|| self.bus.pop()) {
            match message.view() {
                gst::MessageView::Warning(warning) => warned.push(warning.error().to_string()),
                gst::MessageView::Error(error) => failed.push(error.error().to_string()),
                _ => (),
            }
        }
        assert_eq!([warned.len(), failed.len()], [warnings, errors], "warnings and errors: {warned:?} {failed:?}");
        [warned, failed].concat()
    }

    /// Takes the only warning from the bus, and checks that it has these words.
    #[track_caller]
    pub fn warns(&self, words: &[&str]) {
        has_words(&self.said(1, 0)[0], words);
    }

    /// Takes the only error from the bus, and checks that it has these words.
    #[track_caller]
    pub fn fails(&self, words: &[&str]) {
        has_words(&self.said(0, 1)[0], words);
    }

    /// Pushes a frame that has to be refused with an error that has these words.
    #[track_caller]
    pub fn refuses(&mut self, frame: gst::Buffer, words: &[&str]) {
        assert_eq!(self.try_push(frame), Err(gst::FlowError::Error));
        self.fails(words);
    }
}

/// Counts the allocation queries that an element makes.
pub fn count_allocation_queries(element: &gst::Element) -> Arc<AtomicUsize> {
    let queries = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&queries);
    let mask = gst::PadProbeType::QUERY_DOWNSTREAM | gst::PadProbeType::PUSH;
    element.static_pad("src").unwrap().add_probe(mask, move |_, probe| {
        let is_one = probe.query().is_some_and(|query| query.type_() == gst::QueryType::Allocation);
        counter.fetch_add(usize::from(is_one), Ordering::Relaxed);
        gst::PadProbeReturn::Ok
    });
    queries
}

/// The warnings that the element logs from now on.
pub fn log_warnings() -> &'static Mutex<Vec<String>> {
    static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    gst::init().unwrap();
    gst::log::set_threshold_for_name("cudagaussblur", gst::DebugLevel::Warning);
    gst::log::add_log_function(|category, level, _, _, _, _, message| {
        if category.name() == "cudagaussblur" && level == gst::DebugLevel::Warning {
            WARNINGS.lock().unwrap().push(message.get().unwrap_or_default().to_string());
        }
    });
    &WARNINGS
}

#[track_caller]
pub fn has_words(text: &str, words: &[&str]) {
    assert!(words.iter().all(|word| text.contains(word)), "not all of {words:?}: {text}");
}

/// Checks that the start fails with one error that has these words, and returns it.
#[track_caller]
pub fn start_fails(element: &gst::Element, words: &[&str]) -> gst::glib::Error {
    let bus = video::bus_of(element);
    assert!(element.set_state(gst::State::Paused).is_err(), "the start succeeded: {words:?}");
    let mut errors: Vec<_> = std::iter::from_fn(|| bus.pop_filtered(&[gst::MessageType::Error]))
        .map(|message| match message.view() {
            gst::MessageView::Error(error) => error.error(),
            _ => unreachable!(),
        })
        .collect();
    element.set_state(gst::State::Null).unwrap();
    assert_eq!(errors.len(), 1, "{errors:?}");
    println!("{}", errors[0]);
    has_words(&errors[0].to_string(), words);
    errors.remove(0)
}

/// Checks that an element starts and stops.
#[track_caller]
pub fn starts(element: &gst::Element) {
    element.set_state(gst::State::Paused).unwrap();
    element.set_state(gst::State::Null).unwrap();
}

/// Checks that these properties select the CPU from the start, without a word.
#[track_caller]
pub fn cpu_is_selected(properties: &str) {
    let info = video::info(VideoFormat::Rgb, 64, 48);
    let mut blur = Blur::with(properties, &info);
    assert_eq!(blur.backend(), "cpu");
    blur.check(&info, 1, 1.5);
}

/// A test that is ignored where it cannot run.
pub fn trial(name: &str, is_possible: bool, test: impl FnOnce() + Send + 'static) -> Trial {
    let run = move || {
        test();
        Ok(())
    };
    Trial::test(name, run).with_ignored_flag(!is_possible)
}

/// Another test of this program under valgrind, which fails on what its options look for; ignored without valgrind. The variable
/// tells the test.
pub fn under_valgrind(
    test: &'static str,
    options: &'static str,
    (variable, value): (&'static str, &'static str),
) -> Trial {
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    trial(&format!("{test}_under_valgrind"), has_valgrind, move || {
        let mut command = Command::new("valgrind");
        command.args(["--error-exitcode=9", "--quiet"]).args(options.split(' '));
        command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--test-threads=1"]);
        let output = command.env(variable, value).env("G_SLICE", "always-malloc").output().unwrap();
        has_words(&check_child(&output), &["1 passed"]);
    })
}

/// Runs the tests one after the other, because a device's or a driver's state is the process's.
pub fn run_one_by_one(trials: Vec<Trial>) -> ! {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit()
}

/// Environment variable that says what a child process of a test program does. The parent lacks it.
const CHILD: &str = "CUDAGAUSSBLUR_TEST_CHILD";

/// What this process has to do, if it is a child.
pub fn child() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// This program as a child process, started by the loader that started this process, if that is not the system's.
pub fn child_process(task: &str) -> Command {
    let mut command = match std::env::var_os("CUDAGAUSSBLUR_TEST_RUNNER") {
        Some(runner) => {
            let mut command = Command::new(runner);
            command.arg(std::env::args_os().next().unwrap());
            command
        }
        None => Command::new(std::env::current_exe().unwrap()),
    };
    command.env(CHILD, task).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command
}

/// What a process printed. It has to have succeeded.
#[track_caller]
pub fn check_child(Output { status, stdout, stderr }: &Output) -> String {
    let text = [stdout, stderr].map(|text| String::from_utf8_lossy(text)).concat();
    assert!(status.success(), "{status}\n{text}");
    text
}
