//! One pipeline at full speed for some time, to detect growing memory use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gstcudagaussblur::cuda::process;

use crate::common::Outcome;
use crate::push_pipeline::{Memory, PushPipeline, SINK};
use crate::throughput::frame;
use crate::{SIGMA, SIZE, ours, warm_up};

const SECONDS: u64 = 20;

/// Prints the table. The environment variable CUDAGAUSSBLUR_SECONDS sets the length of a run.
pub fn table() -> Outcome<()> {
    let seconds = std::env::var("CUDAGAUSSBLUR_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let seconds = seconds.max(2);
    warm_up(&frame(), SIGMA, SIZE)?;
    println!(
        "\n1080p RGBA, the element's pool, k={SIZE}, at full speed for {seconds} s; MB after 1 s and at the end\n"
    );
    println!("| in flight | frames | resident memory | device memory used |");
    println!("| --- | --- | --- | --- |");
    for in_flight in [1, 3] {
        let (frames, [first, last]) = run(&format!("{} ! {SINK}", ours(in_flight)), seconds)?;
        let cell = |value: fn(&MemoryUse) -> f64| format!("{:.1}, {:.1}", value(&first), value(&last));
        println!("| {in_flight} | {frames} | {} | {} |", cell(|used| used.resident), cell(|used| used.device));
    }
    Ok(())
}

/// Memory use in MB.
struct MemoryUse {
    /// Resident memory of this process.
    resident: f64,
    /// Device memory in use, minus that before the pipeline was created.
    device: f64,
}

/// The resident memory of this process, in MB.
fn resident() -> Outcome<f64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = pages.split(' ').nth(1).ok_or("no number of pages")?.parse()?;
    // SAFETY: sysconf takes no pointers and _SC_PAGESIZE is always valid.
    Ok(pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as f64 / 1e6)
}

fn run(description: &str, seconds: u64) -> Outcome<(u64, [MemoryUse; 2])> {
    let device = process::open(0)?.device().clone();
    let free = device.free_memory()?;
    let pipeline = PushPipeline::new(description, &frame())?;
    let frames = pipeline.frames(Memory::Offered)?.ok_or("the element offers no pool")?;
    let used = || -> Outcome<MemoryUse> {
        Ok(MemoryUse { resident: resident()?, device: (free as f64 - device.free_memory()? as f64) / 1e6 })
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let thread = scope.spawn(|| pipeline.push_until(&frames, &stop).map_err(|error| error.to_string()));
        thread::sleep(Duration::from_secs(1));
        let first = used();
        thread::sleep(Duration::from_secs(seconds - 1));
        let last = used();
        stop.store(true, Ordering::Relaxed);
        thread.join().expect("no panic")?;
        Ok((pipeline.arrived.load(Ordering::Relaxed), [first?, last?]))
    })
}
