//! Whole frames from host memory to host memory, ordinary or pinned, by the number of bands that they are split into.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::{CudaEngine, PinnedBytes};
use gstcudagaussblur::engine::{Engine, FrameAccess};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{Frame, FramePair, Plane, PlaneLayout};

use crate::common::borrowed::{FrameMut, pair};
use crate::common::{Outcome, REPETITIONS, layout, median, noise};
use crate::{BUFFERS, microseconds};

const BANDS: [usize; 5] = [1, 2, 4, 8, 12];
const IN_FLIGHT: usize = 3;
/// The number of frames of a run with several in flight, where single frames cannot be timed.
const LONG_RUN: u32 = 400;

/// Prints the table.
pub fn by_bands() -> Outcome<()> {
    println!("\nWhole frames from and to host memory, k=15, µs (median of {REPETITIONS}), by bands\n");
    println!(
        "| frame | MB | memory, in and out | {} | default bands | {IN_FLIGHT} in flight |",
        BANDS.map(|bands| format!("{bands} bands")).join(" | ")
    );
    println!("| --- | --- | --- |{} --- | --- |", " --- |".repeat(BANDS.len()));
    let chroma = PlaneLayout { sigma_scale: [0.5; 2], ..layout(1920, 1080, 2) };
    for (name, planes) in [
        ("1080p RGBA", vec![layout(1920, 1080, 4)]),
        ("4K RGBA", vec![layout(3840, 2160, 4)]),
        ("1080p GRAY8", vec![layout(1920, 1080, 1)]),
        ("4K NV12", vec![layout(3840, 2160, 1), chroma]),
    ] {
        let bytes: usize = planes.iter().map(|plane| plane.row_bytes() * plane.height as usize).sum();
        let size = bytes as f64 / 1e6;
        for (memory, pinned) in
            [("ordinary", [false; 2]), ("ordinary, pinned", [false, true]), ("pinned", [true, true])]
        {
            let mut row = format!("| {name} | {size:.1} | {memory} |");
            for bands in BANDS.map(Some).into_iter().chain([None]) {
                let engine = CudaEngine::new(0)?;
                let engine = if let Some(bands) = bands { engine.with_bands(bands) } else { engine };
                row += &format!(" {:.0} |", whole(Engine::with_cuda(engine), &planes, pinned)?);
            }
            println!("{row} {:.0} |", in_flight(Engine::with_cuda(CudaEngine::new(0)?), &planes, pinned)?);
        }
        let cpu = whole(Engine::with_cpu(CpuEngine::new()), &planes, [false; 2])?;
        println!("| {name} | {size:.1} | CPU engine |{} {cpu:.0} | |", " |".repeat(BANDS.len()));
    }
    Ok(())
}

/// A plane's memory.
enum PlaneMemory {
    Ordinary(Vec<u8>),
    Pinned(PinnedBytes),
}

impl PlaneMemory {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Ordinary(bytes) => bytes,
            Self::Pinned(bytes) => bytes.as_mut(),
        }
    }
}

/// A frame's input and output memory.
struct Frames {
    planes: Vec<PlaneLayout>,
    src: Vec<PlaneMemory>,
    dst: Vec<PlaneMemory>,
}

impl Frames {
    fn new(engine: &Engine, planes: &[PlaneLayout], [from_pinned, to_pinned]: [bool; 2]) -> Outcome<Self> {
        let source = engine.pinned();
        let allocate = |pinned: bool| -> Outcome<Vec<PlaneMemory>> {
            let plane = |plane: &PlaneLayout| {
                let noise = noise(plane.row_bytes() * plane.height as usize);
                let Some(source) = source.as_ref().filter(|_| pinned) else { return Ok(PlaneMemory::Ordinary(noise)) };
                let mut bytes = source.allocate(noise.len())?;
                bytes.as_mut().copy_from_slice(&noise);
                Ok(PlaneMemory::Pinned(bytes))
            };
            planes.iter().map(plane).collect()
        };
        Ok(Self { planes: planes.to_vec(), src: allocate(from_pinned)?, dst: allocate(to_pinned)? })
    }

    fn views(&mut self) -> (Frame<'_>, FrameMut<'_>) {
        let src = self.planes.iter().zip(&mut self.src);
        let src =
            src.map(|(layout, memory)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &*memory.bytes() });
        let dst = self.planes.iter().zip(&mut self.dst);
        let dst =
            dst.map(|(layout, memory)| Plane { layout: *layout, pitch: layout.row_bytes(), data: memory.bytes() });
        (src.collect(), dst.collect())
    }
}

// SAFETY: the planes are heap blocks or pinned blocks, whose addresses do not change when `Frames` is moved, and
// nothing else accesses them while the engine holds it.
unsafe impl FrameAccess for Frames {
    fn frames(&mut self) -> FramePair {
        let (src, mut dst) = self.views();
        pair(&src, &mut dst)
    }
}

/// The time per frame with [`IN_FLIGHT`] frames in flight, by the host's clock.
fn in_flight(mut engine: Engine, planes: &[PlaneLayout], pinned: [bool; 2]) -> Outcome<f64> {
    let params = BlurParams::new(2.5, 15)?;
    let mut idle = (0..BUFFERS).map(|_| Frames::new(&engine, planes, pinned)).collect::<Outcome<VecDeque<_>>>()?;
    let mut pending = VecDeque::new();
    let mut begun = Instant::now();
    for turn in 0..LONG_RUN + 32 {
        if turn == 32 {
            begun = Instant::now();
        }
        pending.push_back(engine.submit(params, idle.pop_front().expect("BUFFERS > IN_FLIGHT"))?);
        if pending.len() == IN_FLIGHT {
            idle.push_back(engine.complete(pending.pop_front().expect("IN_FLIGHT > 0"))?.frame);
        }
    }
    let time = begun.elapsed() / LONG_RUN;
    for frame in pending {
        engine.complete(frame)?;
    }
    Ok(microseconds(time))
}

/// The median time of a blocking blur, by the host's clock. `pinned` says whether source and destination are pinned.
fn whole(mut engine: Engine, planes: &[PlaneLayout], pinned: [bool; 2]) -> Outcome<f64> {
    let params = BlurParams::new(2.5, 15)?;
    let mut idle = (0..BUFFERS).map(|_| Frames::new(&engine, planes, pinned)).collect::<Outcome<VecDeque<_>>>()?;
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..REPETITIONS + 8 {
        let frame = idle.pop_front().expect("every frame is returned");
        let begun = Instant::now();
        let pending = engine.submit(params, frame)?;
        let finished = engine.complete(pending)?;
        times.push(begun.elapsed());
        idle.push_back(finished.frame);
    }
    Ok(microseconds(median(times.split_off(8))))
}
