//! The time of the CPU engine as a function of sigma, as multiples of the time of sigma = 1.5 in the same run.

use std::time::Instant;

use crate::borrowed::Borrowing;
use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::element::format::formats;
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{Plane, PlaneLayout};

const BASE: f64 = 1.5;
const SIGMAS: [f64; 20] =
    [0.5, 1.0, BASE, 2.0, 2.5, 3.0, 3.4, 3.5, 5.0, 6.9, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0, 80.0, 200.0, 500.0, 1024.0];
const FORMATS: [VideoFormat; 5] =
    [VideoFormat::Rgb, VideoFormat::Rgba, VideoFormat::Nv12, VideoFormat::Gray8, VideoFormat::P01010le];
/// Every round measures all values of sigma, so that other work on the machine disturbs all of them alike.
const ROUNDS: usize = 25;
/// Frames per measurement after one that warms the caches; the fastest counts.
const FRAMES: usize = 3;

/// Bytes that look like noise.
fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u32)
        .map(|i| (i.wrapping_mul(0x9e37_79b9) ^ i.wrapping_mul(0x85eb_ca6b) >> 7).to_be_bytes()[0])
        .collect()
}

/// Milliseconds of the blur of a frame.
fn blur(engine: &mut Engine, sigma: f64, planes: &[PlaneLayout], src: &[Vec<u8>], dst: &mut [Vec<u8>]) -> f64 {
    let params = BlurParams::new(sigma, 0).expect("usable");
    let frame = planes.iter().zip(src);
    let frame = frame.map(|(layout, data)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &data[..] });
    let out = planes.iter().zip(dst);
    let out = out.map(|(layout, data)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &mut data[..] });
    let (frame, mut out) = (frame.collect(), out.collect());
    let begun = Instant::now();
    engine.blur(params, &frame, &mut out).expect("a blurred frame");
    begun.elapsed().as_secs_f64() * 1e3
}

/// Prints the table.
pub fn print(width: u32, height: u32) {
    let mut cells = vec![String::new(); SIGMAS.len()];
    let mut bases = String::new();
    for format in FORMATS {
        let info = VideoInfo::builder(format, width, height).build().expect("a format of the element");
        let planes = formats::planes(&info, false).expect("a format of the element");
        let src: Vec<Vec<u8>> = planes.iter().map(|plane| noise(plane.row_bytes() * plane.height as usize)).collect();
        let mut dst = src.clone();
        // One engine each, as of elements whose settings stay.
        let mut engines: Vec<Engine> = SIGMAS.iter().map(|_| Engine::with_cpu(CpuEngine::new())).collect();
        let mut times = vec![Vec::new(); SIGMAS.len()];
        for _ in 0..ROUNDS {
            for ((sigma, engine), times) in SIGMAS.into_iter().zip(&mut engines).zip(&mut times) {
                blur(engine, sigma, &planes, &src, &mut dst);
                let frames = (0..FRAMES).map(|_| blur(engine, sigma, &planes, &src, &mut dst));
                times.push(frames.fold(f64::INFINITY, f64::min));
            }
        }
        let base = SIGMAS.iter().position(|sigma| *sigma == BASE).expect("one of them");
        for (cell, own) in cells.iter_mut().zip(&times) {
            let ratios = own.iter().zip(&times[base]).map(|(own, base)| own / base);
            *cell += &format!(" {:.2} |", super::median(ratios));
        }
        bases += &format!(" {} {:.2} ms", format.to_str(), super::median(times[base].iter().copied()));
    }
    println!(
        "\nTime as a multiple of that of sigma = {BASE} (median of the ratios of {ROUNDS} rounds), which is{bases}:\n"
    );
    println!("| sigma | {} |", FORMATS.map(|format| format.to_str().to_string()).join(" | "));
    println!("| --- |{}", " --- |".repeat(FORMATS.len()));
    for (sigma, cells) in SIGMAS.iter().zip(cells) {
        println!("| {sigma} |{cells}");
    }
}
