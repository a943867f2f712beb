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
use steps::{Life, Machine};

/// Lives that run by default: about twenty seconds on two cores.
const LIVES_CPU: u64 = 3500;
const LIVES_CUDA: u64 = 1000;

/// Different failures after which a run ends.
const MOST_FAILURES: usize = 20;

/// What must have occurred in a run, or it shows nothing; `*` stands for each cover.
const MUST_OCCUR: &str = "region-mode=frame frame, region-mode=frame passed, region-mode=inside cover=* regions, \
    region-mode=inside cover=* frame, region-mode=inside cover=blur nothing, region-mode=outside cover=* outside, \
    region-mode=inside cover=* shape=mask regions exactly, \
    region-mode=inside cover=fill shape=ellipse regions exactly, \
    region-mode=inside cover=fill shape=box regions exactly, \
    region-mode=outside cover=blur shape=mask outside exactly, \
    region-mode=outside cover=blur shape=ellipse outside exactly, \
    region-mode=outside cover=fill shape=mask outside exactly, region-mode=inside cover=* alpha regions exactly, \
    region-mode=outside cover=* alpha outside exactly, alpha channels of a field, alpha channels of deep formats, \
    interlace-mode=interleaved, interlace-mode=mixed, interlace-mode=alternate, refused caps, refused values, \
    refused starts, on-missing=drop, late frames, frames that wait, events, frame errors, flushes, eos, starts";

/// What must have occurred where frames can be in CUDA memory.
const IN_CUDA: &str = "frames in CUDA memory, soft covers in CUDA memory, alpha channels in CUDA memory, \
    changes of memory downstream, frames of region-mode=frame to other memory, \
    frames of region-mode=inside to other memory";

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
    explore(Machine::Cpu, None, LIVES_CPU, "frames on cpu, no alpha channel, clock times that come");
}

#[test]
fn lives_on_the_fake_device() {
    open_libraries();
    let driver = FakeDriver::new();
    explore(Machine::FakeCuda, Some(&driver), LIVES_CUDA, "frames on cuda, frames on cpu, device errors");
}

/// Without the fake driver, so in a process of its own.
#[test]
#[ignore = "needs a GPU, and to be the only test of its process"]
fn lives_on_a_gpu() {
    gst::init().unwrap();
    cuda_frames::open();
    explore(Machine::Gpu, None, LIVES_CUDA, "frames on cuda");
}

/// Each in a process of its own, from seeds. `CUDAGAUSSBLUR_LIVES=SECONDS` runs longer.
#[test]
fn lives_in_environments() {
    // Else the first that need it take their time for the compiler.
    fake_library::build("libcuda");
    let (mut kinds, mut failures) = (BTreeMap::<String, u64>::new(), Vec::new());
    for seed in seeds(ENVIRONMENTS) {
        let conditions = environment::environment(seed);
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
            if failures.len() == MOST_FAILURES {
                break;
            }
        }
    }
    println!("environments: {kinds:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// From CUDAGAUSSBLUR_SEED on, so many, or as many as there is time for.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let (started, longer) = (Instant::now(), number("CUDAGAUSSBLUR_LIVES").map(Duration::from_secs));
    let first = number("CUDAGAUSSBLUR_SEED").unwrap_or(1);
    (first..).take_while(move |seed| longer.map_or(*seed < first + count, |longer| started.elapsed() < longer))
}

fn explore(machine: Machine, driver: Option<&FakeDriver>, lives: u64, also: &str) {
    let conditions = environment::current();
    common::video::init();
    run::note_panics();
    // Worker threads stay while an engine is there; starting them takes longer than a life.
    let _threads = CpuEngine::new();
    let lives = if conditions.is_empty() { lives } else { LIVES_EACH };
    let within = || {
        environment::within(&conditions, |floats| explore_within(&conditions, machine, driver, lives, also, floats));
    };
    if conditions.contains(&Condition::Forked) {
        environment::fork(within);
    } else {
        within();
    }
}

fn explore_within(
    conditions: &[Condition],
    machine: Machine,
    driver: Option<&FakeDriver>,
    lives: u64,
    also: &str,
    floats: Floats,
) {
    let context = (machine != Machine::Cpu && cuda_frames::is_open()).then(Context::new);
    let in_cuda = if context.is_some() { IN_CUDA } else { also };
    // Keeps kernels loaded in the context.
    let _engine = context.as_ref().map(|context| CudaEngine::within(context.external()).unwrap());
    let is_cpu = machine == Machine::Cpu && !environment::lacks_driver(conditions);
    let surroundings = Surroundings { driver, context, backend: if is_cpu { "cpu" } else { "auto" }, floats };
    let started = Instant::now();
    let is_usual = conditions.is_empty();
    let is_one = is_usual && number("CUDAGAUSSBLUR_SEED").is_some() && number("CUDAGAUSSBLUR_LIVES").is_none();
    let (mut totals, mut last) = (Totals::new(), 0);
    let mut failures: BTreeMap<String, String> = BTreeMap::new();
    for seed in seeds(if is_one { 1 } else { lives }) {
        last = seed;
        let life = steps::life(seed, machine);
        if let Err(failure) = run::run(&steps::steps(&life, machine), &surroundings, &mut totals)
            && !failures.contains_key(&failure.kind)
        {
            // Making it shorter can take minutes.
            println!("CUDAGAUSSBLUR_SEED={seed} fails: {}: {}", failure.kind, failure.detail);
            let fails = |life: &Life| run::run(&steps::steps(life, machine), &surroundings, &mut Totals::new()).err();
            let (life, Failure { kind, detail }) = shrink::shortest(life, failure, fails);
            let steps: Vec<String> = steps::steps(&life, machine).iter().map(|step| format!("    {step:?}")).collect();
            let steps = steps.join("\n");
            let report = format!("{machine:?}, CUDAGAUSSBLUR_SEED={seed}: {kind}: {detail}\n{steps}");
            println!("{report}");
            failures.insert(kind, report);
            if failures.len() == MOST_FAILURES {
                break;
            }
        }
    }
    println!("{machine:?}, {conditions:?}, seeds to {last}, {:.0} s:", started.elapsed().as_secs_f64());
    totals.iter().for_each(|(name, count)| println!("{count:8} {name}"));
    assert!(failures.is_empty(), "{}", failures.into_values().collect::<Vec<_>>().join("\n"));
    assert!(is_one || totals.contains_key("frames"), "no frames");
    let names = [MUST_OCCUR, in_cuda, also].into_iter().flat_map(|names| names.split(", "));
    for name in names.filter(|_| is_usual && !is_one) {
        for cover in ["blur", "mosaic", "fill"] {
            assert!(totals.contains_key(&name.replace('*', cover)), "{name} did not occur");
        }
    }
}
