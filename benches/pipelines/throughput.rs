//! The throughput of several pipelines at once in this process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use gst_video::{VideoFormat, VideoInfo};

use crate::common::Outcome;
use crate::push_pipeline::{Memory, PushPipeline};
use crate::video;

/// Frames are counted during this time, after the pipelines have run at full speed for the time `BEFORE`.
pub const COUNTED: Duration = Duration::from_secs(2);
const BEFORE: Duration = Duration::from_millis(500);

/// The format of the frames.
pub fn frame() -> VideoInfo {
    video(VideoFormat::Rgba, 1920, 1080)
}

/// Runs this many pipelines at once, each fed by its own thread, and returns the frames per second of each.
pub fn rates(description: &str, memory: Memory, pipelines: usize) -> Outcome<Vec<f64>> {
    let (stop, barrier) = (AtomicBool::new(false), Barrier::new(pipelines + 1));
    thread::scope(|scope| {
        let (sender, counters) = mpsc::channel();
        let feed = |sender: mpsc::Sender<_>| -> Result<(PushPipeline, Vec<gst::Buffer>), String> {
            let created = create(description, memory);
            // All pipelines begin when the last is ready; a thread whose pipeline failed waits at the barrier too.
            if let Ok((pipeline, _)) = &created {
                let _ = sender.send(pipeline.arrived.clone());
            }
            drop(sender);
            barrier.wait();
            let (pipeline, frames) = created?;
            pipeline.push_until(&frames, &stop).map_err(|error| error.to_string())?;
            Ok((pipeline, frames))
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
        // The pipelines and frames are dropped only when all threads have stopped.
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        ended.into_iter().collect::<Result<Vec<_>, _>>()?;
        let counted = before.iter().zip(after).map(|(before, after)| after - before);
        Ok(counted.map(|frames| frames as f64 / took.as_secs_f64()).collect())
    })
}

/// Creates a pipeline and its frames. Errors are text, because they are sent between threads.
fn create(description: &str, memory: Memory) -> Result<(PushPipeline, Vec<gst::Buffer>), String> {
    let pipeline = PushPipeline::new(description, &frame()).map_err(|error| error.to_string())?;
    let frames = pipeline.frames(memory).map_err(|error| error.to_string())?;
    Ok((pipeline, frames.ok_or("the element offers no pool")?))
}
