//! One pipeline at full speed for a while: does anything grow?

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gstcudagaussblur::cuda::device::Device;

use crate::common::Outcome;
use crate::line::{Line, Memory, SINK};
use crate::{SIGMA, SIZE, many, ours, warm_up};

const SECONDS: u64 = 20;

/// Prints the table. CUDAGAUSSBLUR_SECONDS says how long a run is.
pub fn table() -> Outcome<()> {
    let seconds = std::env::var("CUDAGAUSSBLUR_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let seconds = seconds.max(2);
    warm_up(&many::frame(), SIGMA, SIZE)?;
    println!("\n1080p RGBA in its pool, k={SIZE}, at full speed for {seconds} s; MB after 1 s and at the end\n");
    println!("| in flight | frames | resident memory | device memory used |");
    println!("| --- | --- | --- | --- |");
    for flight in [1, 3] {
        let element = ours(flight);
        let (frames, [first, last]) = run(&format!("{element} ! {SINK}"), seconds)?;
        let cell = |what: fn(&Use) -> f64| format!("{:.1}, {:.1}", what(&first), what(&last));
        println!("| {flight} | {frames} | {} | {} |", cell(|used| used.resident), cell(|used| used.device));
    }
    Ok(())
}

/// In MB.
struct Use {
    resident: f64,
    /// More than before the pipeline was made.
    device: f64,
}

/// MB of this process that are in memory.
fn resident() -> Outcome<f64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = pages.split(' ').nth(1).ok_or("no number of pages")?.parse()?;
    // SAFETY: asks for a number.
    Ok(pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as f64 / 1e6)
}

fn run(description: &str, seconds: u64) -> Outcome<(u64, [Use; 2])> {
    let device = Device::open(0)?;
    let free = device.free_memory()?;
    let line = Line::new(description, &many::frame())?;
    let frames = line.frames(Memory::Offered)?.ok_or("no pool is offered")?;
    let used = || -> Outcome<Use> {
        Ok(Use { resident: resident()?, device: (free as f64 - device.free_memory()? as f64) / 1e6 })
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let thread = scope.spawn(|| line.until(&frames, &stop).map_err(|error| error.to_string()));
        thread::sleep(Duration::from_secs(1));
        let first = used();
        thread::sleep(Duration::from_secs(seconds - 1));
        let last = used();
        stop.store(true, Ordering::Relaxed);
        thread.join().expect("no panic")?;
        Ok((line.arrived.load(Ordering::Relaxed), [first?, last?]))
    })
}
