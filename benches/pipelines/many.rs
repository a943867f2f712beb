//! Many elements at once, in one process and in several, beside what the bus carries.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cuda::device::Device;
use gstcudagaussblur::cuda::driver::{DeviceMemory, PinnedMemory, Stream};

use crate::common::Outcome;
use crate::line::{BUFFERS, Line, Memory, SINK};
use crate::{SIGMA, SIZE, ours, processes, video, warm_up};

/// Frames are counted for so long, after so long at full speed.
const COUNTED: Duration = Duration::from_secs(2);
const BEFORE: Duration = Duration::from_millis(500);
const PIPELINES: [usize; 4] = [1, 2, 4, 8];
const PROCESSES: [usize; 3] = [1, 2, 4];
const SIGMAS: [f64; 4] = [1.0, 2.5, 4.0, 6.0];
const FLIGHTS: [u32; 2] = [1, 3];

pub fn frame() -> VideoInfo {
    video(VideoFormat::Rgba, 1920, 1080)
}

/// Prints the tables.
pub fn tables() -> Outcome<()> {
    let floor = bus(frame().size())?;
    warm_up(&frame(), SIGMA, SIZE)?;
    println!("\n1080p RGBA in pinned memory, k={SIZE}, as many frames as go through in {} s", COUNTED.as_secs());
    println!("The bus, frames up and down at once, no blur: {floor:.0} frames a second\n");
    println!("| elements | in flight | frames a second, all | of the bus | fewest of one | most of one |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let row = |what: &str, flight: u32, rates: &[f64]| {
        let (sum, fewest) = (rates.iter().sum::<f64>(), rates.iter().copied().fold(f64::INFINITY, f64::min));
        let most = rates.iter().copied().fold(0.0, f64::max);
        println!("| {what} | {flight} | {sum:.0} | {:.2} | {fewest:.0} | {most:.0} |", sum / floor);
    };
    for flight in FLIGHTS {
        let element = ours(flight);
        let line = format!("{element} ! {SINK}");
        for pipelines in PIPELINES {
            row(&format!("{pipelines}, one process"), flight, &rates(&line, Memory::Offered, pipelines)?);
        }
    }
    for flight in FLIGHTS {
        for count in PROCESSES {
            row(&format!("{count}, each a process"), flight, &processes::rates(count, flight)?);
        }
    }
    for sigma in SIGMAS {
        warm_up(&frame(), sigma, 0)?;
    }
    let rates = rates(&tee(), Memory::Pinned, 1)?;
    row(&format!("{} behind a tee, sigma {SIGMAS:?}", SIGMAS.len()), 1, &rates);
    println!("\nBehind a tee every frame is blurred, and counted, {} times", SIGMAS.len());
    Ok(())
}

/// One stream of frames blurred in several ways.
fn tee() -> String {
    let branch = |sigma: &f64| {
        let queue = "queue max-size-buffers=3 max-size-bytes=0 max-size-time=0";
        format!(" in. ! {queue} ! cudagaussblur backend=cuda sigma={sigma} ! {SINK}")
    };
    "tee name=in".to_owned() + &SIGMAS.iter().map(branch).collect::<String>()
}

/// Frames a second of so many pipelines at once, each with a thread of its own.
pub fn rates(description: &str, memory: Memory, pipelines: usize) -> Outcome<Vec<f64>> {
    let (stop, barrier) = (AtomicBool::new(false), Barrier::new(pipelines + 1));
    thread::scope(|scope| {
        let (sender, counters) = mpsc::channel();
        let feed = |sender: mpsc::Sender<_>| -> Result<(Line, Vec<gst::Buffer>), String> {
            let made = made(description, memory);
            // All begin when the last is ready; whoever failed waits with them.
            if let Ok((line, _)) = &made {
                let _ = sender.send(line.arrived.clone());
            }
            drop(sender);
            barrier.wait();
            let (line, frames) = made?;
            line.until(&frames, &stop).map_err(|error| error.to_string())?;
            Ok((line, frames))
        };
        let spawn = |_| {
            let sender = sender.clone();
            scope.spawn(move || feed(sender))
        };
        let threads: Vec<_> = (0..pipelines).map(spawn).collect();
        drop(sender);
        let counters: Vec<_> = counters.iter().collect();
        barrier.wait();
        thread::sleep(BEFORE);
        let read = |counters: &[Arc<AtomicU64>]| {
            counters.iter().map(|counter| counter.load(Ordering::Relaxed)).collect::<Vec<_>>()
        };
        let (begun, before) = (Instant::now(), read(&counters));
        thread::sleep(COUNTED);
        let (took, after) = (begun.elapsed(), read(&counters));
        stop.store(true, Ordering::Relaxed);
        // What a pipeline had is given back when all have stopped.
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        ended.into_iter().collect::<Result<Vec<_>, _>>()?;
        let counted = before.iter().zip(after).map(|(before, after)| after - before);
        Ok(counted.map(|frames| frames as f64 / took.as_secs_f64()).collect())
    })
}

/// A pipeline and its frames. Errors as text, which goes from thread to thread.
fn made(description: &str, memory: Memory) -> Result<(Line, Vec<gst::Buffer>), String> {
    let line = Line::new(description, &frame()).map_err(|error| error.to_string())?;
    let frames = line.frames(memory).map_err(|error| error.to_string())?;
    Ok((line, frames.ok_or("no pool is offered")?))
}

/// Frames a second that go up and down at once, on two streams.
fn bus(bytes: usize) -> Outcome<f64> {
    const FRAMES: usize = 600;
    let device = Device::open(0)?;
    let _current = device.enter()?;
    let [up, down] = [Stream::new(0)?, Stream::new(0)?];
    let frame = |_| Ok((PinnedMemory::new(bytes, 0)?, DeviceMemory::new(bytes, &up)?));
    let [sources, destinations] = [(); 2].map(|()| (0..BUFFERS).map(frame).collect::<Outcome<Vec<_>>>());
    let (sources, destinations) = (sources?, destinations?);
    up.synchronize()?;
    // Once for nothing: pages are touched and the bus wakes up.
    let mut time = Duration::ZERO;
    for _ in 0..2 {
        let begun = Instant::now();
        for turn in 0..FRAMES {
            let (from, to) = (&sources[turn % BUFFERS], &destinations[turn % BUFFERS]);
            // SAFETY: all are of this size; waited for below. Frames in turn are written anew, and read by nobody.
            unsafe {
                up.upload(&from.0, &from.1, 0..bytes)?;
                down.download(&to.1, &to.0, 0..bytes)?;
            }
        }
        up.synchronize()?;
        down.synchronize()?;
        time = begun.elapsed();
    }
    Ok(FRAMES as f64 / time.as_secs_f64())
}
