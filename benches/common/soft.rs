//! The time of soft covers on the CPU, as multiples of the time of hard ones in the same run.

use std::time::Instant;

use crate::borrowed::Borrowing;
use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::element::format::formats;
use gstcudagaussblur::engine::{self, BlurRegion, Cover, Engine, Hide, Softness};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::PlaneLayout;
use gstcudagaussblur::filter::plan::Selection;
use gstcudagaussblur::filter::regions::Rect;
use gstcudagaussblur::filter::weights::{Edge, Weights};

use super::person::{self, SIDE};
use super::regions::frame;

const ROUNDS: usize = 31;
fn time<R>(work: impl FnOnce() -> R) -> f64 {
    let begun = Instant::now();
    std::hint::black_box(work());
    begun.elapsed().as_secs_f64() * 1e3
}

/// Prints the tables.
pub fn print(size: (u32, u32)) {
    let (width, height) = size;
    let (person, share) = person::person(size);
    let person = [person];
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
                Cover::from(Hide::Blur { planes: Selection::ALL, regions })
            };
            let background = || {
                let outside = || {
                    let weights = Weights::outside(size, &person, edge);
                    (blur(&weights.rects()), weights)
                };
                let excluded = || Some(Weights::excluded(size, &person, sigma));
                let ((blurs, weights), excluded) = engine::join(outside, excluded);
                Cover { soft: Some(Softness { weights, excluded }), ..blurs }
            };
            let ellipse = [person::ellipse(size)];
            let rect = ellipse[0].reach(edge, size).expect("a rectangle");
            let soft = || {
                let weights = Weights::inside(size, &ellipse, edge);
                Cover { soft: Some(Softness { weights, excluded: None }), ..blur(&[rect]) }
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
