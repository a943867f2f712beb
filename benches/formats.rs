//! Compares every video format with RGBA in one run: time per byte on the GPU, for frames in device memory, and on the
//! CPU. README.md explains the tables.

#[expect(dead_code, reason = "each bench uses only a part of this module")]
mod common;

use std::time::{Duration, Instant};

use common::Borrowing;
use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::driver::device;
use gstcudagaussblur::cuda::driver::{DeviceMemory, Stream};
use gstcudagaussblur::cuda::process;
use gstcudagaussblur::cuda::{CudaEngine, Image};
use gstcudagaussblur::element::format::formats;
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{Plane, PlaneLayout};

use common::{Outcome, compile_specialised, device_planes, median, noise, time_of_frame};

/// Kernel sizes; sigma is a sixth of each.
const KERNEL_SIZES: [u32; 3] = [7, 15, 31];
const BUFFERS: usize = 4;

fn main() -> Outcome<()> {
    gst::init()?;
    match device::count() {
        Ok(_) => on_the_gpu()?,
        Err(error) => println!("no GPU, only the CPU is measured: {error}"),
    }
    on_the_cpu();
    Ok(())
}

/// The name, planes and total bytes of every format.
fn all(width: u32, height: u32) -> Vec<(String, Vec<PlaneLayout>, usize)> {
    let of = |format: VideoFormat| {
        let info = VideoInfo::builder(format, width, height).build().expect("a format of the element");
        let planes = formats::planes(&info, false).expect("a format of the element");
        let bytes = planes.iter().map(|plane| plane.row_bytes() * plane.height as usize).sum();
        (format.to_str().to_string(), planes, bytes)
    };
    formats::all().map(of).collect()
}

fn params(size: u32) -> BlurParams {
    BlurParams::new(f64::from(size) / 6.0, size).expect("usable")
}

/// A row of times in µs, each with the ratio of its time per byte to the first row's.
fn row(name: &str, bytes: usize, times: &[f64], first: &mut Option<Vec<f64>>) -> String {
    let per_byte: Vec<f64> = times.iter().map(|time| time / bytes as f64).collect();
    let first = first.get_or_insert_with(|| per_byte.clone());
    let cell = |(column, time): (usize, &f64)| {
        // Where the first format has no specialised kernel, its prebuilt one.
        let reference = [first[column], first[column % KERNEL_SIZES.len()]].into_iter().find(|time| !time.is_nan());
        match reference {
            Some(reference) if !time.is_nan() => format!(" {time:.1} ({:.2}) |", per_byte[column] / reference),
            _ => " |".to_owned(),
        }
    };
    let cells: String = times.iter().enumerate().map(cell).collect();
    format!("| {name} | {:.1} |{cells}", bytes as f64 / 1e6)
}

fn head(what: &str, columns: &[String]) {
    println!("\n{what}: µs per frame (ratio of the time per byte to RGBA's)\n");
    println!("| format | MB | {} |", columns.join(" | "));
    println!("| --- | --- |{}", " --- |".repeat(columns.len()));
}

fn on_the_gpu() -> Outcome<()> {
    let device = process::open(0)?.device().clone();
    println!("{}", device.name());
    let portable = || CudaEngine::with_image(0, Image::Portable);
    // Those for CUDA cores; `--bench cuda -- specialised` has those for tensor cores.
    let engines =
        [("prebuilt", CudaEngine::new(0)?.without_jit(), false), ("portable", portable()?.without_jit(), false)];
    for (width, height, engines) in [(3840, 2160, &engines[..]), (1920, 1080, &engines[..1])] {
        let columns = engines.iter().flat_map(|(name, ..)| KERNEL_SIZES.map(|size| format!("{name}, k={size}")));
        head(&format!("{width}x{height} in device memory"), &columns.collect::<Vec<_>>());
        let mut first = None;
        for (name, planes, bytes) in all(width, height) {
            let _current = device.enter()?;
            let stream = Stream::new(&device)?;
            let frame_bytes = device_planes(&planes, 0, 256).1;
            let frame = |_| Ok([DeviceMemory::new(frame_bytes, &stream)?, DeviceMemory::new(frame_bytes, &stream)?]);
            let frames = (0..BUFFERS).map(frame).collect::<Outcome<Vec<_>>>()?;
            let mut times = Vec::new();
            for (_, engine, is_specialised) in engines {
                for size in KERNEL_SIZES {
                    let made = !is_specialised || compile_specialised(Image::Portable, &planes, params(size));
                    let time = time_of_frame(engine, &stream, (&planes, 256), params(size), &frames)?;
                    times.push(if made { time.as_secs_f64() * 1e6 } else { f64::NAN });
                }
            }
            println!("{}", row(&name, bytes, &times, &mut first));
        }
    }
    Ok(())
}

fn on_the_cpu() {
    let mut engine = Engine::with_cpu(CpuEngine::new());
    head(
        &format!("1920x1080 on the CPU, {}", engine.stats().kernel_name),
        &KERNEL_SIZES.map(|size| format!("k={size}")),
    );
    let mut first = None;
    for (name, planes, bytes) in all(1920, 1080) {
        let src: Vec<Vec<u8>> = planes.iter().map(|plane| noise(plane.row_bytes() * plane.height as usize)).collect();
        let mut dst = src.clone();
        let times = KERNEL_SIZES.map(|size| {
            let mut times: Vec<Duration> = Vec::new();
            for _ in 0..12 {
                let whole = planes.iter().zip(&src);
                let frame =
                    whole.map(|(layout, data)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &data[..] });
                let whole = planes.iter().zip(&mut dst);
                let out = whole.map(|(layout, data)| Plane {
                    layout: *layout,
                    pitch: layout.row_bytes(),
                    data: &mut data[..],
                });
                let (frame, mut out) = (frame.collect(), out.collect());
                let begun = Instant::now();
                engine.blur(params(size), &frame, &mut out).expect("a blurred frame");
                times.push(begun.elapsed());
            }
            median(times.split_off(2)).as_secs_f64() * 1e6
        });
        println!("{}", row(&name, bytes, &times, &mut first));
    }
}
