//! Whole lives of the element, made from seeds: properties, caps, buffers, metas, events, restarts and failures in any order.
//! Every frame is judged by a plain rule and by its bytes. `CUDAGAUSSBLUR_SEED=NUMBER` runs one life,
//! `CUDAGAUSSBLUR_LIVES=SECONDS` runs longer, and both run longer from this seed on. Those on a GPU are a run of their own:
//! `--ignored lives_on_a_gpu`.

#[path = "lives/buffers.rs"]
mod buffers;
mod common;
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
use common::gst_cuda::{self as cuda_frames, Context};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::CudaEngine;
use judge::Failure;
use run::Totals;
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

/// Opens the fake driver before GStreamer opens the real one, which it does as libcuda.so.1, and GStreamer's CUDA library before
/// the element looks for it.
fn open_libraries() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
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
    explore(Machine::Cpu, None, LIVES_CPU, &["frames on cpu", "no alpha channel"]);
}

#[test]
fn lives_on_the_fake_device() {
    open_libraries();
    let driver = FakeDriver::new();
    let mut also = vec!["frames on cuda", "frames on cpu", "device errors"];
    let context = cuda_frames::is_open().then(Context::new);
    if context.is_some() {
        also.extend(IN_CUDA);
    }
    // Keeps kernels loaded in the context.
    let _engine = context.as_ref().map(|context| CudaEngine::within(context.external()).unwrap());
    explore(Machine::FakeCuda, Some((Some(&driver), context.as_ref())), LIVES_CUDA, &also);
}

/// Without the fake driver, so in a process of its own.
#[test]
#[ignore = "needs a GPU, and to be the only test of its process"]
fn lives_on_a_gpu() {
    gst::init().unwrap();
    let mut also = vec!["frames on cuda"];
    let context = cuda_frames::open().then(Context::new);
    if context.is_some() {
        also.extend(IN_CUDA);
    }
    let _engine = context.as_ref().map(|context| CudaEngine::within(context.external()).unwrap());
    explore(Machine::Gpu, Some((None, context.as_ref())), LIVES_CUDA, &also);
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

fn explore(machine: Machine, device: Option<(Option<&FakeDriver>, Option<&Context>)>, lives: u64, also: &[&str]) {
    let (driver, context) = device.unwrap_or_default();
    common::video::init();
    run::note_panics();
    // Worker threads stay while an engine is there; starting them takes longer than a life.
    let _threads = CpuEngine::new();
    let started = Instant::now();
    let (first, longer) = (number("CUDAGAUSSBLUR_SEED"), number("CUDAGAUSSBLUR_LIVES").map(Duration::from_secs));
    let is_one = first.is_some() && longer.is_none();
    let mut totals = Totals::new();
    let mut failures: BTreeMap<String, String> = BTreeMap::new();
    let mut seed = first.unwrap_or(1);
    loop {
        let steps = steps::life(seed, machine);
        if let Err(failure) = run::run(&steps, machine, driver, context, &mut totals)
            && !failures.contains_key(&failure.kind)
        {
            let fails = |steps: &[Step]| run::run(steps, machine, driver, context, &mut Totals::new()).err();
            let (steps, failure) = shrink::shortest(steps, failure, fails);
            let report = report(machine, seed, &steps, &failure);
            println!("{report}");
            failures.insert(failure.kind, report);
        }
        let is_over = match longer {
            Some(longer) => started.elapsed() >= longer,
            None => seed >= lives,
        };
        if is_one || is_over || failures.len() >= MOST_FAILURES {
            break;
        }
        seed += 1;
    }
    println!("{machine:?}, seeds to {seed}, {:.0} s:", started.elapsed().as_secs_f64());
    totals.iter().for_each(|(name, count)| println!("{count:8} {name}"));
    assert!(failures.is_empty(), "{}", failures.into_values().collect::<Vec<_>>().join("\n"));
    if !is_one {
        for name in MUST_OCCUR.iter().chain(also) {
            assert!(totals.contains_key(*name), "{name} did not occur");
        }
    }
}

fn report(machine: Machine, seed: u64, steps: &[Step], failure: &Failure) -> String {
    let steps: Vec<String> = steps.iter().map(|step| format!("    {step:?}")).collect();
    let Failure { kind, detail } = failure;
    format!("{machine:?}, CUDAGAUSSBLUR_SEED={seed}: {kind}: {detail}\n{}", steps.join("\n"))
}
