//! The time of soft covers on the CPU, as multiples of the time of hard ones in the same run.

use std::time::Instant;

use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::element::formats;
use gstcudagaussblur::engine::{self, BlurCover, BlurRegion, Cover, Engine, SoftCover};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::PlaneLayout;
use gstcudagaussblur::filter::plan::Selection;
use gstcudagaussblur::filter::regions::{Area, Rect};
use gstcudagaussblur::filter::weights::{Edge, Mask, Object, Shape, Weights};

use super::regions::frame;

const ROUNDS: usize = 31;
const SIDE: u32 = 256;

/// A person of about a third of the picture: a head and shoulders, as a segmentation network sees them.
fn person() -> Vec<u8> {
    let is_person = |x: f64, y: f64| {
        let head = ((x - 0.5) / 0.13).powi(2) + ((y - 0.32) / 0.19).powi(2);
        let shoulders = ((x - 0.5) / 0.36).powi(2) + ((y - 1.05) / 0.53).powi(2);
        head.min(shoulders)
    };
    let sample = |i: u32| {
        let [x, y] = [i % SIDE, i / SIDE].map(|i| (f64::from(i) + 0.5) / f64::from(SIDE));
        (255.0 * (1.0 - (is_person(x, y) - 1.0) * 8.0)).clamp(0.0, 255.0) as u8
    };
    (0..SIDE * SIDE).map(sample).collect()
}

fn time<R>(work: impl FnOnce() -> R) -> f64 {
    let begun = Instant::now();
    std::hint::black_box(work());
    begun.elapsed().as_secs_f64() * 1e3
}

/// Prints the tables.
pub fn print(size: (u32, u32)) {
    let (width, height) = size;
    let whole = Area::from_corner(0.0, 0.0, width.into(), height.into());
    let mask = Mask::new(SIDE, SIDE, person(), whole).expect("a mask");
    let share = person().iter().filter(|sample| **sample >= 128).count() as f64 / f64::from(SIDE * SIDE);
    let person = [Object { area: whole, shape: Shape::Mask(mask) }];
    let edge = Edge { grow: 0, feather: 8 };
    println!("\nWeights of one mask of {SIDE}x{SIDE} over {width}x{height}, ms (median of {ROUNDS}):\n");
    println!("| weights | ms |\n| --- | --- |");
    for (name, work) in [
        ("inside", &(|| drop(Weights::inside(size, &person, edge))) as &dyn Fn()),
        ("outside", &|| drop(Weights::outside(size, &person, edge))),
        ("excluded", &|| drop(Weights::excluded(size, &person, 20.0))),
    ] {
        println!("| {name} | {:.3} |", super::median((0..ROUNDS).map(|_| time(work)).collect::<Vec<_>>()));
    }
    println!(
        "\nTime in place as a multiple of the whole frame's blur, a person of {:.0} % of the picture, and of the blur of\n\
         its rectangle, an ellipse over half the frame (medians of {ROUNDS} rounds):\n",
        100.0 * share
    );
    println!("| format | sigma | whole frame, ms | background | rectangle, ms | ellipse with a feather of 8 |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for format in [VideoFormat::Nv12, VideoFormat::I420, VideoFormat::Yuy2, VideoFormat::Rgba, VideoFormat::P01010le] {
        let info = VideoInfo::builder(format, width, height).build().expect("a format of the element");
        let planes = formats::planes(&info, false).expect("a format of the element");
        let bytes = |plane: &PlaneLayout| plane.row_bytes() * plane.height as usize;
        let noise = |plane: &PlaneLayout| (0..bytes(plane)).map(|i| ((i * 0x9e37) >> 7) as u8).collect();
        let mut memory: Vec<Vec<u8>> = planes.iter().map(noise).collect();
        for sigma in [5.0, 20.0] {
            let params = BlurParams::new(sigma, 0).expect("usable");
            let blur = |rects: &[Rect]| {
                let regions = rects.iter().map(|rect| BlurRegion { rect: *rect, params }).collect();
                Cover::Blur(BlurCover { planes: Selection::ALL, regions })
            };
            let background = || {
                let outside = || {
                    let weights = Weights::outside(size, &person, edge);
                    (blur(&weights.rects()), weights)
                };
                let excluded = || Some(Weights::excluded(size, &person, sigma));
                let ((blurs, weights), excluded) = engine::join(outside, excluded);
                Cover::Soft(SoftCover { cover: Box::new(blurs), weights, excluded })
            };
            let half =
                Area::from_corner(width as f64 / 8.0, height as f64 / 6.0, width as f64 * 0.75, height as f64 / 1.5);
            let ellipse = [Object { area: half, shape: Shape::Ellipse }];
            let rect = ellipse[0].reach(edge, size).expect("a rectangle");
            let soft = || {
                let weights = Weights::inside(size, &ellipse, edge);
                Cover::Soft(SoftCover { cover: Box::new(blur(&[rect])), weights, excluded: None })
            };
            let all = Rect::new(0, 0, width, height).expect("a rectangle");
            let covers: [&dyn Fn() -> Cover; 4] = [&|| blur(&[all]), &background, &|| blur(&[rect]), &soft];
            let mut engines = covers.map(|_| Engine::with_cpu(CpuEngine::new()));
            let mut times = covers.map(|_| Vec::new());
            for _ in 0..ROUNDS {
                for ((cover, engine), times) in covers.iter().zip(&mut engines).zip(&mut times) {
                    times.push(time(|| engine.cover(&cover(), &mut frame(&planes, &mut memory)).expect("a cover")));
                }
            }
            let [whole, background, hard, soft] = times.map(|times| times.into_iter().fold(f64::MAX, f64::min));
            println!(
                "| {} | {sigma} | {whole:.2} | {:.2} | {hard:.2} | {:.2} |",
                format.to_str(),
                background / whole,
                soft / hard
            );
        }
    }
}
