//! Whole frames from host memory to host memory, ordinary or pinned, by the number of bands they are cut into.

use std::time::{Duration, Instant};

use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::{CudaEngine, PinnedBytes};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::frame::{Plane, PlaneLayout};

use crate::common::{Outcome, REPETITIONS, layout, median, noise};
use crate::{BUFFERS, microseconds};

const BANDS: [usize; 5] = [1, 2, 4, 8, 12];

/// Prints the tables.
pub fn by_bands() -> Outcome<()> {
    println!("\nWhole frames from and to host memory, k=15, µs (median of {REPETITIONS}), by bands\n");
    println!(
        "| frame | MB | memory, in and out | {} | as cut |",
        BANDS.map(|bands| format!("{bands} bands")).join(" | ")
    );
    println!("| --- | --- | --- |{} --- |", " --- |".repeat(BANDS.len()));
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
                let engine = if let Some(bands) = bands { engine.in_bands(bands) } else { engine };
                row += &format!(" {:.0} |", whole(Engine::on_cuda(engine), &planes, pinned)?);
            }
            println!("{row}");
        }
        let cpu = whole(Engine::on_cpu(CpuEngine::new()?), &planes, [false; 2])?;
        println!("| {name} | {size:.1} | CPU engine |{} {cpu:.0} |", " |".repeat(BANDS.len()));
    }
    Ok(())
}

/// A plane's memory.
enum Room {
    Ordinary(Vec<u8>),
    Pinned(PinnedBytes),
}

impl Room {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Ordinary(bytes) => bytes,
            Self::Pinned(bytes) => bytes.as_mut(),
        }
    }
}

/// The time of a call, by the host's clock; source and destination are pinned or not.
fn whole(mut engine: Engine, planes: &[PlaneLayout], pinned: [bool; 2]) -> Outcome<f64> {
    let params = BlurParams::new(2.5, 15)?;
    let source = engine.pinned();
    let room = |pinned: bool| -> Outcome<Vec<Room>> {
        let plane = |plane: &PlaneLayout| {
            let noise = noise(plane.row_bytes() * plane.height as usize);
            let Some(source) = source.filter(|_| pinned) else { return Ok(Room::Ordinary(noise)) };
            let mut bytes = source.allocate(noise.len())?;
            bytes.as_mut().copy_from_slice(&noise);
            Ok(Room::Pinned(bytes))
        };
        planes.iter().map(plane).collect()
    };
    let mut frames =
        (0..BUFFERS).map(|_| Ok([room(pinned[0])?, room(pinned[1])?])).collect::<Outcome<Vec<[Vec<Room>; 2]>>>()?;
    let mut times: Vec<Duration> = Vec::new();
    for turn in 0..REPETITIONS + 8 {
        let [src, dst] = &mut frames[turn % BUFFERS];
        let src = planes.iter().zip(src);
        let src = src.map(|(layout, room)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &*room.bytes() });
        let dst = planes.iter().zip(dst);
        let dst = dst.map(|(layout, room)| Plane { layout: *layout, pitch: layout.row_bytes(), data: room.bytes() });
        let (src, mut dst) = (src.collect(), dst.collect());
        let begun = Instant::now();
        engine.blur(params, &src, &mut dst)?;
        times.push(begun.elapsed());
    }
    Ok(microseconds(median(times.split_off(8))))
}
