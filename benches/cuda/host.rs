//! Whole frames from ordinary memory to ordinary memory, by the number of bands they are cut into.

use std::hint::black_box;
use std::time::{Duration, Instant};

use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::CudaEngine;
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::frame::{Plane, PlaneLayout};

use crate::common::{Outcome, REPETITIONS, layout, median, noise};
use crate::{BUFFERS, microseconds};

const BANDS: [usize; 5] = [1, 2, 4, 8, 12];

/// Prints the table.
pub fn by_bands() -> Outcome<()> {
    println!("\nWhole frames from and to ordinary memory, k=15, µs (median of {REPETITIONS}), by bands\n");
    println!(
        "| frame | MB | {} | as the engine cuts | CPU engine |",
        BANDS.map(|bands| format!("{bands} bands")).join(" | ")
    );
    println!("| --- | --- |{} --- | --- |", " --- |".repeat(BANDS.len()));
    let chroma = PlaneLayout { sigma_scale: [0.5; 2], ..layout(1920, 1080, 2) };
    for (name, planes) in [
        ("1080p RGBA", vec![layout(1920, 1080, 4)]),
        ("4K RGBA", vec![layout(3840, 2160, 4)]),
        ("1080p GRAY8", vec![layout(1920, 1080, 1)]),
        ("4K NV12", vec![layout(3840, 2160, 1), chroma]),
    ] {
        let bytes: usize = planes.iter().map(|plane| plane.row_bytes() * plane.height as usize).sum();
        let mut row = format!("| {name} | {:.1} |", bytes as f64 / 1e6);
        for bands in BANDS {
            row += &format!(" {:.0} |", whole(Engine::on_cuda(CudaEngine::new(0)?.in_bands(bands)), &planes));
        }
        row += &format!(" {:.0} |", whole(Engine::on_cuda(CudaEngine::new(0)?), &planes));
        println!("{row} {:.0} |", whole(Engine::on_cpu(CpuEngine::new()?), &planes));
    }
    Ok(())
}

/// The time of a call, by the host's clock.
fn whole(mut engine: Engine, planes: &[PlaneLayout]) -> f64 {
    let params = BlurParams::new(2.5, 15).expect("usable");
    let frame = || planes.iter().map(|plane| noise(plane.row_bytes() * plane.height as usize)).collect::<Vec<_>>();
    let sources: Vec<Vec<Vec<u8>>> = (0..BUFFERS).map(|_| frame()).collect();
    let mut destinations = sources.clone();
    let mut times: Vec<Duration> = Vec::new();
    for turn in 0..REPETITIONS + 8 {
        let src = planes.iter().zip(&sources[turn % BUFFERS]);
        let src =
            src.map(|(layout, data)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &data[..] }).collect();
        let dst = planes.iter().zip(&mut destinations[turn % BUFFERS]);
        let dst = dst.map(|(layout, data)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &mut data[..] });
        let mut dst = dst.collect();
        let begun = Instant::now();
        engine.blur(params, &src, &mut dst).expect("a blurred frame");
        times.push(begun.elapsed());
    }
    black_box(&destinations);
    microseconds(median(times.split_off(8)))
}
