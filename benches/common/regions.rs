//! The time of regions on the CPU, as fractions of the time of the whole frame in the same run.

use std::time::Instant;

use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::element::formats;
use gstcudagaussblur::engine::{BlurCover, BlurRegion, Cover, Engine};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::crop::CropGeometry;
use gstcudagaussblur::filter::fill::fill;
use gstcudagaussblur::filter::frame::{Frame, FrameMut, Plane, PlaneLayout};
use gstcudagaussblur::filter::mosaic::{MosaicRegion, mosaic};
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Selection};
use gstcudagaussblur::filter::regions::{Area, Rect};

const SIGMAS: [f64; 4] = [3.0, 5.0, 10.0, 40.0];
const FORMATS: [VideoFormat; 2] = [VideoFormat::Nv12, VideoFormat::Rgba];
/// Width and height of a box.
const BOX: [u32; 2] = [160, 200];
/// The corners of the boxes.
const PLACES: [(&str, &[[u32; 2]]); 3] = [
    ("one, in the middle", &[[880, 440]]),
    ("three, apart", &[[203, 151], [1301, 601], [1557, 97]]),
    ("three, side by side", &[[703, 351], [911, 363], [1103, 347]]),
];
const ROUNDS: usize = 31;

/// The layouts' planes in memory without padding.
fn frame<'a>(planes: &[PlaneLayout], memory: &'a mut [Vec<u8>]) -> FrameMut<'a> {
    let plane = |(layout, data): (&PlaneLayout, &'a mut Vec<u8>)| Plane {
        layout: *layout,
        pitch: layout.row_bytes(),
        data: &mut data[..],
    };
    planes.iter().zip(memory).map(plane).collect()
}

/// The milliseconds of a call.
fn time(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64() * 1e3
}

/// Prints the table.
pub fn print(width: u32, height: u32) {
    println!(
        "\nTime in place as a fraction of that of the whole frame (medians of {ROUNDS} rounds), and the share of the"
    );
    println!("samples that are covered and that the crops have:\n");
    println!("| format | boxes of {}x{} | cover | whole frame, ms | fraction | covered | crops |", BOX[0], BOX[1]);
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for format in FORMATS {
        let info = VideoInfo::builder(format, width, height).build().expect("a format of the element");
        let planes = formats::planes(&info, false).expect("a format of the element");
        let samples = |plane: &PlaneLayout| plane.row_samples() * plane.height as usize;
        let all: usize = planes.iter().map(samples).sum();
        let noise = |plane: &PlaneLayout| (0..samples(plane)).map(|i| ((i * 0x9e37) >> 7) as u8).collect();
        let mut memory: Vec<Vec<u8>> = planes.iter().map(noise).collect();
        let mut output = memory.clone();
        for (name, corners) in PLACES {
            let rect = |corner: &[u32; 2]| Rect::new(corner[0], corner[1], BOX[0], BOX[1]).expect("a rectangle");
            let rects: Vec<Rect> = corners.iter().map(rect).collect();
            let covered = (rects.len() as u32 * BOX[0] * BOX[1]) as f64 / f64::from(width * height);
            for sigma in SIGMAS {
                let params = BlurParams::new(sigma, 0).expect("usable");
                let regions = rects.iter().map(|rect| BlurRegion { rect: *rect, params }).collect();
                let cover = BlurCover { planes: Selection::ALL, alpha: AlphaMode::Straight, regions };
                let cover = Cover::Blur(cover);
                let geometry = CropGeometry::new(Options::from(params), &planes);
                let crops: usize =
                    rects.iter().flat_map(|rect| geometry.crops(*rect)).map(|c| samples(&c.layout)).sum();
                let mut engines = [(); 2].map(|()| Engine::with_cpu(CpuEngine::new()));
                let mut times = [Vec::new(), Vec::new()];
                for _ in 0..ROUNDS {
                    times[0].push(time(|| {
                        let whole = source(&planes, &memory);
                        engines[0].blur(params, &whole, &mut frame(&planes, &mut output)).expect("a blur");
                    }));
                    times[1].push(time(|| {
                        engines[1].cover(&cover, &mut frame(&planes, &mut memory)).expect("a cover");
                    }));
                }
                let [whole, regions] = times.map(super::median);
                println!(
                    "| {} | {name} | blur, sigma={sigma} | {whole:.2} | {:.3} | {covered:.3} | {:.3} |",
                    format.to_str(),
                    regions / whole,
                    crops as f64 / all as f64
                );
            }
            let objects = |rect: &Rect| {
                let [x, y] = [rect.x(), rect.y()].map(f64::from);
                let object = Area::from_corner(x, y, BOX[0].into(), BOX[1].into());
                MosaicRegion::new(*rect, object, 6)
            };
            let objects: Vec<MosaicRegion> = rects.iter().map(objects).collect();
            let values = vec![[16; 4]; planes.len()];
            let mosaics =
                (0..ROUNDS).map(|_| time(|| mosaic(&mut frame(&planes, &mut memory), &objects).expect("a mosaic")));
            let mosaics = super::median(mosaics.collect::<Vec<_>>());
            let fills =
                (0..ROUNDS).map(|_| time(|| fill(&mut frame(&planes, &mut memory), &rects, &values).expect("a fill")));
            let fills = super::median(fills.collect::<Vec<_>>());
            println!("| {} | {name} | mosaic: {mosaics:.3} ms, fill: {fills:.3} ms | | | | |", format.to_str());
        }
    }
}

/// The same planes, to be read.
fn source<'a>(planes: &[PlaneLayout], memory: &'a [Vec<u8>]) -> Frame<'a> {
    let plane = |(layout, data): (&PlaneLayout, &'a Vec<u8>)| Plane {
        layout: *layout,
        pitch: layout.row_bytes(),
        data: &data[..],
    };
    planes.iter().zip(memory).map(plane).collect()
}
