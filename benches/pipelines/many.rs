//! Many elements at once, in one process and in several, compared with the throughput of the PCI Express bus.

use std::time::{Duration, Instant};

use gstcudagaussblur::cuda::driver::{DeviceMemory, PinnedMemory, Stream};
use gstcudagaussblur::cuda::process;

use crate::common::Outcome;
use crate::push_pipeline::{BUFFERS, Memory, SINK};
use crate::throughput::{COUNTED, frame, rates};
use crate::{SIGMA, SIZE, ours, processes, warm_up};

const PIPELINES: [usize; 4] = [1, 2, 4, 8];
const PROCESSES: [usize; 3] = [1, 2, 4];
const SIGMAS: [f64; 4] = [1.0, 2.5, 4.0, 6.0];
const IN_FLIGHT: [u32; 2] = [1, 3];

/// Prints the table.
pub fn table() -> Outcome<()> {
    let bus = bus_rate(frame().size())?;
    warm_up(&frame(), SIGMA, SIZE)?;
    println!("\n1080p RGBA in pinned memory, k={SIZE}, throughput over {} s", COUNTED.as_secs());
    println!("Bus: simultaneous upload and download of frames, without a blur: {bus:.0} frames per second\n");
    println!(
        "| elements | in flight | frames per second, total | fraction of the bus | slowest element | fastest element |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    let row = |elements: &str, in_flight: u32, rates: &[f64]| {
        let (sum, fewest) = (rates.iter().sum::<f64>(), rates.iter().copied().fold(f64::INFINITY, f64::min));
        let most = rates.iter().copied().fold(0.0, f64::max);
        println!("| {elements} | {in_flight} | {sum:.0} | {:.2} | {fewest:.0} | {most:.0} |", sum / bus);
    };
    for in_flight in IN_FLIGHT {
        let pipeline = format!("{} ! {SINK}", ours(in_flight));
        for count in PIPELINES {
            row(&format!("{count}, one process"), in_flight, &rates(&pipeline, Memory::Offered, count)?);
        }
    }
    for in_flight in IN_FLIGHT {
        for count in PROCESSES {
            row(&format!("{count}, one process each"), in_flight, &processes::rates(count, in_flight)?);
        }
    }
    for sigma in SIGMAS {
        warm_up(&frame(), sigma, 0)?;
    }
    let rates = rates(&tee(), Memory::Pinned, 1)?;
    row(&format!("{} behind a tee, sigma {SIGMAS:?}", SIGMAS.len()), 1, &rates);
    println!("\nBehind a tee every frame is blurred, and counted, {} times.", SIGMAS.len());
    Ok(())
}

/// A pipeline that blurs one stream with several sigmas.
fn tee() -> String {
    let branch = |sigma: &f64| {
        let queue = "queue max-size-buffers=3 max-size-bytes=0 max-size-time=0";
        format!(" in. ! {queue} ! cudagaussblur backend=cuda sigma={sigma} ! {SINK}")
    };
    "tee name=in".to_owned() + &SIGMAS.iter().map(branch).collect::<String>()
}

/// Frames per second that can be uploaded and downloaded at the same time, on two streams.
fn bus_rate(bytes: usize) -> Outcome<f64> {
    const FRAMES: usize = 600;
    let device = process::open(0)?.device().clone();
    let _current = device.enter()?;
    let [up, down] = [Stream::new(&device)?, Stream::new(&device)?];
    let frame = |_| Ok((PinnedMemory::new(bytes, &device)?, DeviceMemory::new(bytes, &up)?));
    let [sources, destinations] = [(); 2].map(|()| (0..BUFFERS).map(frame).collect::<Outcome<Vec<_>>>());
    let (sources, destinations) = (sources?, destinations?);
    up.synchronize()?;
    // The first of two runs is discarded: it touches the pages and wakes the bus from its power-saving state.
    let mut time = Duration::ZERO;
    for _ in 0..2 {
        let begun = Instant::now();
        for turn in 0..FRAMES {
            let (from, to) = (&sources[turn % BUFFERS], &destinations[turn % BUFFERS]);
            // SAFETY: all blocks have `bytes` bytes and live until both streams are synchronised. The uploads and the
            // downloads of one turn race on no block: each downloads from one pair and uploads to another, and the
            // contents are never read.
            unsafe {
                up.copy(&from.0.row(bytes), &from.1.row(bytes), bytes, 1)?;
                down.copy(&to.1.row(bytes), &to.0.row(bytes), bytes, 1)?;
            }
        }
        up.synchronize()?;
        down.synchronize()?;
        time = begun.elapsed();
    }
    Ok(FRAMES as f64 / time.as_secs_f64())
}
