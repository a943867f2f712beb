//! Every driver function that a stream calls, made to fail at each of its calls, once, for good, or with the device: on the
//! fake CUDA driver (tests/fake_cuda), in every kind of memory, for whole frames and covered regions. No frame is lost, wrong
//! or uncovered where the CPU can take over; elsewhere one error ends the stream, or upstream's and a warning if no output pool
//! can be made. Every [`STEP`]-th combination runs. `CUDAGAUSSBLUR_FAULTS=1/16` to `16/16` run all of them in sixteen parts,
//! `1/1` in one; another value selects the combinations whose name contains it.

mod common;
#[path = "faults/left_out.rs"]
mod left_out;
#[path = "faults/scenario.rs"]
mod scenario;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use common::checks::{run_one_by_one, trial};
use common::fake_driver::{self, Calls, FakeDriver, LAUNCH_FAILED, OUT_OF_MEMORY};
use common::fake_library;
use common::gst_cuda::{self, Context};
use common::video::{self, FRAME, nick};
use gst::prelude::*;
use gstcudagaussblur::cuda::CudaEngine;
use scenario::{Allocators, FRAMES, Memory, Scenario};

/// Environment variable that selects combinations.
const SELECTION: &str = "CUDAGAUSSBLUR_FAULTS";
/// Without a selection, one combination of so many runs; prime, so that all kinds of faults and calls occur.
const STEP: usize = 61;
/// The frames of the stream after the faulty one.
const AGAIN: usize = 2;
/// Later calls of a function than this do not fail.
const MAX_CALLS: i32 = 40;
/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// Failures after which a sweep ends.
const MOST_FAILURES: usize = 20;

/// How a function fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Once,
    ForGood,
    /// Every later call that needs a context fails too.
    DeviceLost,
}

/// A function that fails after so many calls.
#[derive(Debug, Clone)]
struct Fault {
    function: String,
    after: i32,
    kind: Kind,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} after {} calls, {:?}", self.function, self.after, self.kind)
    }
}

impl Fault {
    fn inject(&self, driver: &FakeDriver) {
        let Self { function, after, kind } = self;
        let is_allocation = function.contains("Alloc");
        let status = if is_allocation && *kind != Kind::DeviceLost { OUT_OF_MEMORY } else { LAUNCH_FAILED };
        match kind {
            Kind::Once => driver.fail_times(function, *after, 1, status),
            Kind::ForGood => driver.fail(function, *after, status),
            Kind::DeviceLost => driver.lose(function, *after, status),
        }
    }
}

/// This file says which combination runs, in case that the process crashes.
const RUNNING: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/faults-running");
/// Panics so far, on any thread.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn main() {
    if left_out::is_child() {
        return;
    }
    // Before GStreamer opens the driver, which it does as libcuda.so.1.
    std::sync::LazyLock::force(&fake_driver::DRIVER);
    std::mem::forget(fake_library::open_as_installed("libcuda"));
    video::init();
    let has_cuda_memory = gst_cuda::open();
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        print(info);
    }));
    run_one_by_one(vec![
        trial("faults_in_host_memory", true, || sweep(false)),
        trial("faults_in_cuda_memory", has_cuda_memory, || sweep(true)),
        // It makes incomplete libraries of ELF files.
        trial("functions_that_are_missing", !cfg!(windows), left_out::run),
    ]);
}

/// What a stream did.
#[derive(Default)]
struct Streamed {
    is_started: bool,
    output: usize,
    backends: [String; 2],
    errors: Vec<String>,
    warnings: Vec<String>,
    /// Frames that are wrong.
    problems: Vec<String>,
    /// What upstream got.
    flow: Option<gst::FlowError>,
}

/// What came of a run.
#[derive(Default)]
struct Outcome {
    problems: Vec<String>,
    calls: BTreeMap<String, Calls>,
    frames: usize,
    abandoned: u64,
}

/// A scenario on the fake driver, with its frames.
struct Runner<'a> {
    driver: &'a FakeDriver,
    scenario: Scenario,
    make: &'a Allocators,
    sources: Vec<Vec<u8>>,
    expected: Vec<Vec<u8>>,
}

impl<'a> Runner<'a> {
    fn new(driver: &'a FakeDriver, scenario: Scenario, make: &'a Allocators) -> Self {
        let sources = scenario.sources();
        let expected = scenario.expected(&sources);
        assert!(sources.iter().zip(&expected).all(|(source, expected)| source != expected), "nothing is covered");
        Self { driver, scenario, make, sources, expected }
    }

    /// One run on a thread of its own, whose context stack is empty.
    fn run(&self, fault: Option<&Fault>) -> Outcome {
        let name = format!("{}: {}", self.scenario, fault.map_or("no fault".to_owned(), Fault::to_string));
        std::fs::write(RUNNING, &name).unwrap();
        let panics = PANICS.load(Ordering::SeqCst);
        let (done, outcome) = mpsc::channel();
        let mut outcome = std::thread::scope(|scope| {
            scope.spawn(move || drop(done.send(self.run_here(fault))));
            match outcome.recv_timeout(LIMIT) {
                Ok(outcome) => outcome,
                Err(RecvTimeoutError::Disconnected) => Outcome::default(),
                Err(RecvTimeoutError::Timeout) => {
                    eprintln!("a run hangs: {name}");
                    std::process::abort();
                }
            }
        });
        if PANICS.load(Ordering::SeqCst) > panics {
            outcome.problems.push("a thread panicked".to_owned());
        }
        outcome
    }

    fn run_here(&self, fault: Option<&Fault>) -> Outcome {
        let Self { driver, scenario, .. } = self;
        driver.clear_faults();
        let before = (driver.counts(), driver.live_contexts());
        let new_context = driver.exempt(|| scenario.is_cold.then(Context::new));
        let make =
            Allocators { pinned: self.make.pinned.clone(), context: new_context.or_else(|| self.make.context.clone()) };
        let element = video::element(&scenario.properties());
        let bus = video::bus_of(&element);
        if scenario.is_cold {
            element.set_context(&make.context.as_ref().unwrap().shared());
        }
        driver.clear_faults();
        fault.inspect(|fault| fault.inject(driver));
        let faulted = self.stream(&element, &bus, &make, FRAMES);
        let calls = driver.calls();
        driver.clear_faults();
        let abandoned = element.property::<gst::Structure>("stats").get::<u64>("frames-abandoned").unwrap();
        let mut problems = self.judge(&faulted, abandoned, calls.values().any(|calls| calls.failed > 0));

        let again = self.stream(&element, &bus, &make, AGAIN);
        if again.output < AGAIN || !again.errors.is_empty() || again.backends != ["cuda", "cuda"] {
            let Streamed { output, errors, backends, .. } = &again;
            problems.push(format!("after a restart {output} of {AGAIN} frames, backends {backends:?}, {errors:?}"));
        }
        problems.extend(again.problems.into_iter().map(|problem| format!("after a restart {problem}")));
        drop((element, bus));
        driver.exempt(|| drop(make));
        let (now, (before, contexts)) = (driver.counts(), before);
        let [device, pinned, streams, events] = [0, 1, 2, 3].map(|kind| now.live()[kind] - before.live()[kind]);
        if pinned > 0 && scenario.memory[0] == Memory::Registered {
            // Later frames would be at the address of memory that stays registered, and not be registered.
            std::mem::forget(scenario.buffer(&self.sources[0], self.make));
        }
        let live = [device, pinned, streams, events, driver.live_contexts() - contexts, now.current];
        problems.extend(leaked(live, fault, &calls, abandoned));
        Outcome { problems, calls, frames: faulted.output + again.output, abandoned }
    }

    /// Starts the element, streams so many frames unless it fails, and stops it.
    fn stream(&self, element: &gst::Element, bus: &gst::Bus, make: &Allocators, frames: usize) -> Streamed {
        let Self { driver, scenario, .. } = self;
        let mut streamed =
            Streamed { is_started: element.set_state(gst::State::Paused).is_ok(), ..Streamed::default() };
        streamed.backends = [0; 2].map(|_| nick(element, "active-backend"));
        // The harness insists on a start that succeeds.
        if streamed.is_started {
            let buffer = |bytes: &Vec<u8>| scenario.buffer(bytes, make);
            let inputs: Vec<_> = driver.exempt(|| match scenario.memory[0] {
                Memory::Registered => vec![buffer(&self.sources[0]); FRAMES],
                _ => self.sources.iter().map(buffer).collect(),
            });
            let held = if scenario.is_shared { inputs.clone() } else { Vec::new() };
            let mut harness = gst_check::Harness::with_element(element, Some("sink"), Some("src"));
            let [incaps, outcaps] = scenario.caps();
            harness.play();
            harness.set_sink_caps(outcaps);
            harness.set_src_caps(incaps);
            let mut flow = Ok(gst::FlowSuccess::Ok);
            let mut inputs = inputs.into_iter().enumerate().take(frames);
            while let (Ok(_), Some((frame, input))) = (flow, inputs.next()) {
                // The copy has the same memory.
                let mut input = if scenario.is_shared { input.copy() } else { input };
                let new = input.make_mut();
                new.set_pts(FRAME * frame as u64);
                new.set_duration(FRAME);
                flow = harness.push(input);
                self.check_outputs(&mut harness, &mut streamed);
            }
            // Sources end their stream after an error too; no frame follows it.
            let output = streamed.output;
            harness.push_event(gst::event::Eos::new());
            self.check_outputs(&mut harness, &mut streamed);
            if flow.is_err() && streamed.output > output {
                streamed.problems.push("a frame was pushed after the error".to_owned());
            }
            streamed.flow = flow.err();
            streamed.backends[1] = nick(element, "active-backend");
            drop((inputs, held));
        }
        let _ = element.set_state(gst::State::Null);
        while let Some(message) = bus.pop() {
            match message.view() {
                gst::MessageView::Error(error) => streamed.errors.push(error.error().to_string()),
                gst::MessageView::Warning(warning) => streamed.warnings.push(warning.error().to_string()),
                _ => (),
            }
        }
        streamed
    }

    /// Compares what the element has pushed.
    fn check_outputs(&self, harness: &mut gst_check::Harness, streamed: &mut Streamed) {
        let Self { driver, scenario, sources, expected, .. } = self;
        while let Some(output) = harness.try_pull() {
            let frame = streamed.output;
            streamed.output += 1;
            if output.pts() != Some(FRAME * frame as u64) {
                streamed.problems.push(format!("frame {frame} has the timestamp of another"));
            }
            // At once: whatever is still queued on the device stays queued.
            let bytes = driver.exempt(|| video::bytes(&scenario.info(), output));
            let count = |other: &[u8]| bytes.iter().zip(other).filter(|(got, other)| got == other).count();
            let (right, source) = (count(&expected[frame]), count(&sources[frame]));
            if right < bytes.len() {
                let (all, wrong) = (bytes.len(), bytes.len() - right);
                let problem =
                    format!("frame {frame}: of {all} bytes {wrong} are wrong and {source} those of the source");
                streamed.problems.push(problem);
            }
        }
    }

    /// What is wrong with a stream that a fault was injected into, or none.
    fn judge(&self, streamed: &Streamed, abandoned: u64, has_failed: bool) -> Vec<String> {
        let Streamed { is_started, output, backends, errors, warnings, flow, .. } = streamed;
        let mut problems = streamed.problems.clone();
        let mut check = |is_right: bool, what: &str| {
            if !is_right {
                problems.push(format!("{what}: {output} of {FRAMES} frames, {backends:?}, {errors:?}, {warnings:?}"));
            }
        };
        let is_complete = *is_started && *output == FRAMES;
        check(is_complete || !self.scenario.falls_back(), "frames are lost");
        // If no pool of CUDA memory can be configured, the base class refuses the caps, which upstream reports; so it does where
        // downstream accepts only CUDA memory and the element works on the CPU.
        let is_refused = *flow == Some(gst::FlowError::NotNegotiated) && self.scenario.memory[1] == Memory::Cuda;
        check(errors.len() == usize::from(!is_complete) || is_refused && errors.is_empty(), "the number of errors");
        let fell_back = backends[0] != backends[1] && *is_started;
        let count = |words: &str| warnings.iter().filter(|warning| warning.contains(words)).count();
        check(count("falling back to the CPU") == usize::from(fell_back), "warnings of the fallback");
        check(count("is leaked until") == usize::from(abandoned > 0), "warnings of memory that is leaked");
        // The element posts the cause, once, as a warning, because the base class tries again and may succeed.
        let pools = count("no buffer pool in CUDA memory");
        let is_unexplained = is_refused && errors.is_empty() && backends[0] == "cuda" && pools == 0;
        check(!is_unexplained && pools < 2, "warnings of a missing pool");
        // The base class has a warning of its own where it has no output buffers.
        let known = ["falling back to the CPU", "is leaked until", "not negotiated", "no buffer pool in CUDA memory"];
        check(warnings.iter().all(|text| known.iter().any(|known| text.contains(known))), "other warnings");
        check(!errors.iter().chain(warnings).any(|text| text.to_lowercase().contains("panic")), "a panic");
        if !has_failed {
            let is_undisturbed = is_complete && warnings.is_empty() && *backends == ["cuda", "cuda"];
            check(is_undisturbed && abandoned == 0, "no call failed");
        }
        problems
    }
}

/// What has leaked beyond the memory of abandoned frames and what could not be released because that failed. `live` are the
/// objects of a run after its end: device memory, pinned memory, streams, events, contexts, and contexts that are current.
fn leaked(live: [i32; 6], fault: Option<&Fault>, calls: &BTreeMap<String, Calls>, abandoned: u64) -> Option<String> {
    let failed = |name: &str| calls.get(name).map_or(0, |calls| calls.failed);
    // Without its context nothing can be released; a lost device releases nothing.
    let releases = failed("cuCtxPushCurrent_v2") == 0 && fault.is_none_or(|fault| fault.kind != Kind::DeviceLost);
    // A frame: its two buffers, which hold their context and, from GStreamer 1.24 on, the stream of their pool; the memory
    // of its slot (source, destination, workspace; two staging buffers), its events.
    let of_frame = [5, 4, 1, 40, 1, 0].map(|count| count * abandoned as i32);
    let unreleased = [
        // GstBufferPool leaks the other buffers if it cannot allocate its minimum, here of two.
        failed("cuMemFree_v2") + failed("cuMemAllocPitch_v2").min(1) * 2,
        failed("cuMemFreeHost") + failed("cuMemHostUnregister"),
        failed("cuStreamDestroy_v2"),
        failed("cuEventDestroy_v2"),
        failed("cuCtxDestroy_v2"),
        failed("cuCtxPopCurrent_v2"),
    ];
    let leaks = releases && (0..live.len()).any(|kind| live[kind] > of_frame[kind] + unreleased[kind]);
    let kinds = "device memory, pinned memory, streams, events, contexts, current contexts";
    leaks.then(|| format!("leaked, with {abandoned} frames abandoned: {kinds}: {live:?}"))
}

/// Runs the combinations of one half of the scenarios. Failures are printed at once, in case that a later run crashes.
fn sweep(uses_cuda_memory: bool) {
    let selection = std::env::var(SELECTION).ok();
    let part = selection.as_deref().and_then(part);
    let driver = FakeDriver::new();
    let context = gst_cuda::is_open().then(Context::new);
    // Keeps kernels loaded in the context.
    let _engine = context.as_ref().map(|context| CudaEngine::within(context.external()).unwrap());
    let make = Allocators { pinned: CudaEngine::new(0).unwrap().pinned(), context };
    let started = Instant::now();
    let mut failures = 0;
    let mut report = |what: &str, problems: &[String]| {
        if !problems.is_empty() {
            eprintln!("{what}: {}", problems.join("; "));
            failures += 1;
            assert!(failures < MOST_FAILURES, "too many combinations failed");
        }
    };
    let mut functions = BTreeSet::new();
    let (mut index, mut runs, mut reached, mut frames, mut abandoned) = (0, 0, 0, 0, 0);
    let scenarios = Scenario::all().into_iter().filter(|scenario| scenario.uses_cuda_memory() == uses_cuda_memory);
    for scenario in scenarios.filter(|scenario| !scenario.is_cold || make.context.is_some()) {
        let runner = Runner::new(&driver, scenario, &make);
        // The first one loads what later ones have.
        let [_, counted] = [0; 2].map(|_| runner.run(None));
        report(&format!("{scenario}, no fault"), &counted.problems);
        for fault in faults(&counted.calls) {
            index += 1;
            let name = format!("{scenario}: {fault}");
            let is_chosen = match (selection.as_deref(), part) {
                (None, _) => index % STEP == 0 || !functions.contains(&fault.function),
                (_, Some((part, parts))) => index % parts == part % parts,
                (Some(text), None) => name.contains(text),
            };
            if !is_chosen {
                continue;
            }
            let outcome = runner.run(Some(&fault));
            runs += 1;
            reached += usize::from(outcome.calls.values().any(|calls| calls.failed > 0));
            frames += outcome.frames;
            abandoned += outcome.abandoned;
            report(&name, &outcome.problems);
            functions.insert(fault.function);
        }
    }
    let (called, took) = (functions.len(), started.elapsed());
    println!(
        "{runs} of {index} combinations of {called} functions in {took:.1?}: the fault was reached in {reached}, {frames} \
         frames were compared and {abandoned} abandoned"
    );
    assert_eq!(failures, 0, "combinations that failed");
    if selection.is_none() || part.is_some() {
        assert!(runs >= 300 && called >= 30 && frames >= 3 * runs && abandoned >= 20, "too little is tested");
        assert!(reached * 100 >= runs * 95, "most faults are not reached");
    }
}

/// The part of the combinations that a selection like `3/16` names, and the number of parts.
fn part(selection: &str) -> Option<(usize, usize)> {
    let (part, parts) = selection.split_once('/')?;
    Some((part.parse().ok()?, parts.parse().ok().filter(|parts| *parts > 0)?))
}

/// Every fault in a stream that makes these calls.
fn faults(calls: &BTreeMap<String, Calls>) -> impl Iterator<Item = Fault> {
    let of_function = |(function, calls): (&String, &Calls)| {
        let function = function.clone();
        let calls = (0..calls.all.min(MAX_CALLS))
            .flat_map(|after| [Kind::Once, Kind::ForGood, Kind::DeviceLost].map(move |kind| (after, kind)));
        calls.map(move |(after, kind)| Fault { function: function.clone(), after, kind })
    };
    calls.iter().flat_map(of_function)
}
