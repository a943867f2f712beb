//! Whole lives of the element, made from seeds: properties, caps, buffers, metas, events, restarts and failures in any order.
//! Every frame is judged by a plain rule and by its bytes. `CUDAGAUSSBLUR_SEED=NUMBER` runs one life,
//! `CUDAGAUSSBLUR_LIVES=SECONDS` runs longer, and both run longer from this seed on. `CUDAGAUSSBLUR_ENVIRONMENT=NUMBER` puts them
//! into an environment. Those on a GPU are a run of their own: `--ignored lives_on_a_gpu`.

#[path = "lives/buffers.rs"]
mod buffers;
mod common;
#[path = "lives/environment.rs"]
mod environment;
#[path = "lives/judge.rs"]
mod judge;
#[path = "lives/rule.rs"]
mod rule;
#[path = "lives/run.rs"]
mod run;
#[path = "lives/settings.rs"]
mod settings;
#[path = "lives/shrink.rs"]
mod shrink;
#[path = "lives/steps.rs"]
mod steps;

use std::collections::BTreeMap;
use std::sync::Once;
use std::time::{Duration, Instant};

use common::fake_driver::{self, FakeDriver};
use common::fake_library;
use common::floats::Environment as Floats;
use common::gst_cuda::{self as cuda_frames, Context};
use environment::Condition;
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::CudaEngine;
use judge::Failure;
use run::{Surroundings, Totals};
use steps::{Machine, Step};

/// Lives that run by default: about half a minute on two cores.
const LIVES_CPU: u64 = 5000;
const LIVES_CUDA: u64 = 1500;

/// Different failures after which a run ends.
const MOST_FAILURES: usize = 20;

/// What must have occurred in a run, or it shows nothing.
const MUST_OCCUR: [&str; 42] = [
    "region-mode=frame frame",
    "region-mode=frame passed",
    "region-mode=inside cover=blur regions",
    "region-mode=inside cover=mosaic regions",
    "region-mode=inside cover=fill regions",
    "region-mode=inside cover=blur frame",
    "region-mode=inside cover=mosaic frame",
    "region-mode=inside cover=fill frame",
    "region-mode=inside cover=blur nothing",
    "region-mode=outside cover=blur outside",
    "region-mode=outside cover=mosaic outside",
    "region-mode=outside cover=fill outside",
    "region-mode=inside cover=blur shape=mask regions exactly",
    "region-mode=inside cover=mosaic shape=mask regions exactly",
    "region-mode=inside cover=fill shape=mask regions exactly",
    "region-mode=inside cover=fill shape=ellipse regions exactly",
    "region-mode=inside cover=fill shape=box regions exactly",
    "region-mode=outside cover=blur shape=mask outside exactly",
    "region-mode=outside cover=blur shape=ellipse outside exactly",
    "region-mode=outside cover=fill shape=mask outside exactly",
    "region-mode=inside cover=blur alpha regions exactly",
    "region-mode=inside cover=mosaic alpha regions exactly",
    "region-mode=inside cover=fill alpha regions exactly",
    "region-mode=outside cover=blur alpha outside exactly",
    "region-mode=outside cover=mosaic alpha outside exactly",
    "region-mode=outside cover=fill alpha outside exactly",
    "alpha channels of a field",
    "alpha channels of deep formats",
    "interlace-mode=interleaved",
    "interlace-mode=mixed",
    "interlace-mode=alternate",
    "refused caps",
    "refused values",
    "refused starts",
    "on-missing=drop",
    "late frames",
    "frames that wait",
    "events",
    "frame errors",
    "flushes",
    "eos",
    "starts",
];

/// What must have occurred where frames can be in CUDA memory.
const IN_CUDA: [&str; 6] = [
    "frames in CUDA memory",
    "soft covers in CUDA memory",
    "alpha channels in CUDA memory",
    "changes of memory downstream",
    "frames to other memory, region-mode=frame",
    "frames to other memory, region-mode=inside",
];

/// Environments that run by default, and the lives in each of them.
const ENVIRONMENTS: u64 = 13;
const LIVES_EACH: u64 = 40;

/// Opens the fake driver before GStreamer opens the real one, which it does as libcuda.so.1, and GStreamer's CUDA library before
/// the element looks for it.
fn open_libraries() {
    static ONCE: Once = Once::new();
    let conditions = environment::current();
    ONCE.call_once(|| {
        environment::open_driver(&conditions);
        if environment::lacks_driver(&conditions) {
            return;
        }
        std::sync::LazyLock::force(&fake_driver::DRIVER);
        std::mem::forget(fake_library::open_as_installed("libcuda"));
        gst::init().unwrap();
        cuda_frames::open();
    });
}

#[test]
fn lives_on_the_cpu() {
    open_libraries();
    // Rare, and the same with every backend: too rare for the fewer lives with a device.
    explore(Machine::Cpu, None, LIVES_CPU, &["frames on cpu", "no alpha channel", "clock times that come"]);
}

#[test]
fn lives_on_the_fake_device() {
    open_libraries();
    explore(
        Machine::FakeCuda,
        Some(&FakeDriver::new()),
        LIVES_CUDA,
        &["frames on cuda", "frames on cpu", "device errors"],
    );
}

/// Without the fake driver, so in a process of its own.
#[test]
#[ignore = "needs a GPU, and to be the only test of its process"]
fn lives_on_a_gpu() {
    gst::init().unwrap();
    cuda_frames::open();
    explore(Machine::Gpu, None, LIVES_CUDA, &["frames on cuda"]);
}

/// Each in a process of its own, from seeds. `CUDAGAUSSBLUR_LIVES=SECONDS` runs longer.
#[test]
fn lives_in_environments() {
    // Else the first that need it take their time for the compiler.
    fake_library::build("libcuda");
    let (started, longer) = (Instant::now(), number("CUDAGAUSSBLUR_LIVES").map(Duration::from_secs));
    let first = number("CUDAGAUSSBLUR_SEED").unwrap_or(1);
    let (mut kinds, mut failures) = (BTreeMap::<String, u64>::new(), Vec::new());
    for seed in first.. {
        let conditions = environment::environment(seed);
        let is_enough = longer.map_or(seed - first >= ENVIRONMENTS, |longer| started.elapsed() >= longer);
        if is_enough || failures.len() >= MOST_FAILURES {
            println!("environments {first} to {}, {:.0} s: {kinds:?}", seed - 1, started.elapsed().as_secs_f64());
            break;
        }
        // Without a driver that works there is no device.
        let on_cpu = environment::lacks_driver(&conditions) || seed % 2 == 0;
        let test = if on_cpu { "lives_on_the_cpu" } else { "lives_on_the_fake_device" };
        let mut child = environment::command(seed);
        child.args(["--exact", test, "--nocapture"]).env_remove("CUDAGAUSSBLUR_LIVES");
        child.env("CUDAGAUSSBLUR_SEED", (seed * LIVES_EACH).to_string());
        let output = child.output().unwrap();
        conditions.iter().for_each(|condition| *kinds.entry(condition.name()).or_default() += 1);
        if !output.status.success() {
            let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
            failures.push(format!("CUDAGAUSSBLUR_ENVIRONMENT={seed} {conditions:?}: {}\n{text}", output.status));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

fn explore(machine: Machine, driver: Option<&FakeDriver>, lives: u64, also: &[&str]) {
    let conditions = environment::current();
    common::video::init();
    run::note_panics();
    // Worker threads stay while an engine is there; starting them takes longer than a life.
    let _threads = CpuEngine::new();
    let within = || environment::within(&conditions, |floats| explore_within(machine, driver, lives, also, floats));
    if conditions.contains(&Condition::Forked) {
        environment::fork(within);
    } else {
        within();
    }
}

fn explore_within(machine: Machine, driver: Option<&FakeDriver>, lives: u64, also: &[&str], floats: Floats) {
    let conditions = environment::current();
    let lacks_driver = environment::lacks_driver(&conditions);
    let mut also = also.to_vec();
    let context = (machine != Machine::Cpu && cuda_frames::is_open()).then(Context::new);
    if context.is_some() {
        also.extend(IN_CUDA);
    }
    // Keeps kernels loaded in the context.
    let _engine = context.as_ref().map(|context| CudaEngine::within(context.external()).unwrap());
    let backend = if machine == Machine::Cpu && !lacks_driver { "cpu" } else { "auto" };
    let surroundings = Surroundings { driver, context, backend, floats };
    let started = Instant::now();
    let (first, longer) = (number("CUDAGAUSSBLUR_SEED"), number("CUDAGAUSSBLUR_LIVES").map(Duration::from_secs));
    let is_one = first.is_some() && longer.is_none() && conditions.is_empty();
    let last = if conditions.is_empty() { lives } else { first.unwrap_or(1) + LIVES_EACH - 1 };
    let mut totals = Totals::new();
    let mut failures: BTreeMap<String, String> = BTreeMap::new();
    let mut seed = first.unwrap_or(1);
    loop {
        let steps = steps::life(seed, machine);
        if let Err(failure) = run::run(&steps, &surroundings, &mut totals)
            && !failures.contains_key(&failure.kind)
        {
            let fails = |steps: &[Step]| run::run(steps, &surroundings, &mut Totals::new()).err();
            let (steps, failure) = shrink::shortest(steps, failure, fails);
            let report = report(machine, seed, &steps, &failure);
            println!("{report}");
            failures.insert(failure.kind, report);
        }
        let is_over = match longer {
            Some(longer) => started.elapsed() >= longer,
            None => seed >= last,
        };
        if is_one || is_over || failures.len() >= MOST_FAILURES {
            break;
        }
        seed += 1;
    }
    println!("{machine:?}, {conditions:?}, seeds to {seed}, {:.0} s:", started.elapsed().as_secs_f64());
    totals.iter().for_each(|(name, count)| println!("{count:8} {name}"));
    assert!(failures.is_empty(), "{}", failures.into_values().collect::<Vec<_>>().join("\n"));
    if conditions.is_empty() && !is_one {
        for name in MUST_OCCUR.iter().chain(&also) {
            assert!(totals.contains_key(*name), "{name} did not occur");
        }
    } else {
        assert!(is_one || totals.contains_key("frames"), "no frames");
    }
}

fn report(machine: Machine, seed: u64, steps: &[Step], failure: &Failure) -> String {
    let steps: Vec<String> = steps.iter().map(|step| format!("    {step:?}")).collect();
    let Failure { kind, detail } = failure;
    format!("{machine:?}, CUDAGAUSSBLUR_SEED={seed}: {kind}: {detail}\n{}", steps.join("\n"))
}
