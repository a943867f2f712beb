//! Regions on the device: in frames that stay there, and in frames in host memory, whose crops are uploaded.

use std::time::Instant;

use gstcudagaussblur::cuda::CudaEngine;
use gstcudagaussblur::cuda::driver::device::Device;
use gstcudagaussblur::cuda::driver::{DeviceMemory, Stream};
use gstcudagaussblur::engine::{BlurCover, BlurRegion, Cover, Engine, FrameAccess};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::crop::CropGeometry;
use gstcudagaussblur::filter::frame::{Destination, DeviceBytes, DeviceFrame, FrameMut, Plane, PlaneLayout, Source};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Selection};
use gstcudagaussblur::filter::regions::{Area, Rect};

use crate::common::{Outcome, REPETITIONS, WARM_UP, device_planes, layout, median, noise, time_on};
use crate::{BUFFERS, microseconds};

/// Width and height of a box.
const BOX: [u32; 2] = [160, 200];
/// The corners of three boxes in 1080p; times two in 4K.
const APART: [[u32; 2]; 3] = [[203, 151], [1301, 601], [1557, 97]];
const SIDE_BY_SIDE: [[u32; 2]; 3] = [[703, 351], [911, 363], [1103, 347]];

/// The frames of the tables.
fn formats() -> [(&'static str, Vec<PlaneLayout>); 4] {
    let nv12 = |width: u32, height: u32| {
        vec![layout(width, height, 1), PlaneLayout { sigma_scale: [0.5; 2], ..layout(width / 2, height / 2, 2) }]
    };
    [
        ("1080p NV12", nv12(1920, 1080)),
        ("1080p RGBA", vec![layout(1920, 1080, 4)]),
        ("4K NV12", nv12(3840, 2160)),
        ("4K RGBA", vec![layout(3840, 2160, 4)]),
    ]
}

fn boxes(corners: &[[u32; 2]], planes: &[PlaneLayout]) -> Vec<Rect> {
    let times = planes[0].width / 1920;
    corners.iter().map(|[x, y]| Rect::new(times * x, times * y, BOX[0], BOX[1]).expect("a rectangle")).collect()
}

fn many(planes: &[PlaneLayout]) -> Vec<Rect> {
    let [width, height] = [planes[0].width, planes[0].height];
    let place = |i: u32| Rect::new(i % 8 * (width / 8) + 7 * i % 90, i / 8 * (height / 8) + 5 * i % 60, 48, 48);
    (0..64).map(|i| place(i).expect("a rectangle")).collect()
}

fn blur(rects: &[Rect], sigma: f64) -> Outcome<Cover> {
    let params = BlurParams::new(sigma, 0)?;
    let regions = rects.iter().map(|rect| BlurRegion { rect: *rect, params }).collect();
    Ok(Cover::Blur(BlurCover { planes: Selection::ALL, alpha: AlphaMode::Straight, regions }))
}

fn mosaic(rects: &[Rect]) -> Cover {
    let object = |rect: &Rect| {
        let [x, y, width, height] = [rect.x(), rect.y(), rect.width(), rect.height()].map(f64::from);
        Area::from_corner(x, y, width, height)
    };
    Cover::Mosaic(rects.iter().map(|rect| MosaicRegion::new(*rect, object(rect), 6)).collect())
}

fn fill(rects: &[Rect], planes: &[PlaneLayout]) -> Cover {
    Cover::Fill { rects: rects.to_vec(), values: vec![[16; 4]; planes.len()] }
}

/// The covers of a row each, with the boxes that they cover.
fn covers(planes: &[PlaneLayout]) -> Outcome<Vec<(String, Vec<Rect>, Cover)>> {
    let mut rows = Vec::new();
    for (name, corners) in [("three boxes apart", &APART), ("three side by side", &SIDE_BY_SIDE)] {
        let rects = boxes(corners, planes);
        for sigma in [3.0, 10.0, 40.0] {
            rows.push((format!("{name}, blur, sigma={sigma}"), rects.clone(), blur(&rects, sigma)?));
        }
    }
    let (rects, all) = (boxes(&APART, planes), many(planes));
    rows.push(("three boxes, mosaic".to_owned(), rects.clone(), mosaic(&rects)));
    rows.push(("three boxes, fill".to_owned(), rects.clone(), fill(&rects, planes)));
    rows.push(("one box of 48x48, blur, sigma=12".to_owned(), all[27..28].to_vec(), blur(&all[27..28], 12.0)?));
    rows.push(("64 boxes of 48x48, blur, sigma=12".to_owned(), all.clone(), blur(&all, 12.0)?));
    rows.push(("64 boxes of 48x48, mosaic".to_owned(), all.clone(), mosaic(&all)));
    Ok(rows)
}

/// The crops of a cover, as a part of the frame's samples.
fn crops(planes: &[PlaneLayout], rects: &[Rect], cover: &Cover) -> f64 {
    let Cover::Blur(BlurCover { regions, .. }) = cover else { return 0.0 };
    let samples = |layout: &PlaneLayout| layout.row_samples() as f64 * f64::from(layout.height);
    let geometry = CropGeometry::new(Options::from(regions[0].params), planes);
    let own: f64 = rects.iter().flat_map(|rect| geometry.crops(*rect)).map(|crop| samples(&crop.layout)).sum();
    own / planes.iter().map(samples).sum::<f64>()
}

/// Two frames on the device, or the same one twice.
struct Resident<'a> {
    planes: &'a [PlaneLayout],
    memory: [u64; 2],
    stream: usize,
}

// SAFETY: the caller keeps the memory and the stream until the stream is synchronised, and accesses nothing before.
unsafe impl FrameAccess for Resident<'_> {
    fn frames(&mut self) -> (Source<'_>, Destination<'_>) {
        let [source, destination] = self.memory.map(|address| {
            let memory = device_planes(self.planes, address, 64).0;
            let plane = |(layout, plane): (&PlaneLayout, _)| {
                let gstcudagaussblur::filter::plane::DevicePlane { address, pitch, len } = plane;
                Plane { layout: *layout, pitch, data: DeviceBytes { address, len } }
            };
            DeviceFrame { planes: self.planes.iter().zip(memory).map(plane).collect(), stream: Some(self.stream) }
        });
        (Source::Device(source), Destination::Device(destination))
    }
}

/// Prints the tables.
pub fn tables(device: &Device) -> Outcome<()> {
    println!(
        "\nRegions of frames in device memory, µs (median of {REPETITIONS}, {BUFFERS} frames in turn), by events\n"
    );
    println!("| frame | cover | crops, share of the frame | in place | into a copy | copy alone | whole frame |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (name, planes) in formats() {
        on_device(device, name, &planes)?;
    }
    println!("\nRegions of frames in host memory, in place, µs by the host's clock (median of {REPETITIONS})\n");
    println!("| frame | cover | in place | whole frame, ordinary memory | fraction |");
    println!("| --- | --- | --- | --- | --- |");
    for (name, planes) in formats() {
        on_host(name, &planes)?;
    }
    Ok(())
}

fn on_device(device: &Device, name: &str, planes: &[PlaneLayout]) -> Outcome<()> {
    let mut engine = Engine::with_cuda(CudaEngine::new(device.id())?.without_jit());
    let _current = device.enter()?;
    let stream = Stream::new(device.id())?;
    let bytes = device_planes(planes, 0, 64).1;
    let memory = || DeviceMemory::new(bytes, &stream);
    let frames = (0..BUFFERS).map(|_| Ok([memory()?, memory()?])).collect::<Outcome<Vec<_>>>()?;
    let handle = stream.raw() as usize;
    let resident = |turn: usize, is_copy: bool| {
        let [source, destination] = frames[turn % BUFFERS].each_ref().map(DeviceMemory::address);
        let memory = [source, if is_copy { destination } else { source }];
        Resident { planes, memory, stream: handle }
    };
    let nothing = blur(&[], 1.0)?;
    let cover_time = |engine: &mut Engine, cover: &Cover, is_copy: bool| {
        time_on(&stream, device, |turn| {
            engine.cover_frame(cover, resident(turn, is_copy))?;
            Ok(())
        })
    };
    let copy = cover_time(&mut engine, &nothing, true)?;
    for (what, rects, cover) in covers(planes)? {
        let [in_place, copied] = [false, true].map(|is_copy| cover_time(&mut engine, &cover, is_copy));
        let whole = match &cover {
            Cover::Blur(BlurCover { regions, .. }) => {
                let params = regions[0].params;
                let time = time_on(&stream, device, |turn| {
                    let in_flight = engine.submit(params, resident(turn, true))?;
                    engine.complete(in_flight)?;
                    Ok(())
                })?;
                format!("{:.1}", microseconds(time))
            }
            _ => String::new(),
        };
        println!(
            "| {name} | {what} | {:.2} | {:.1} | {:.1} | {:.1} | {whole} |",
            crops(planes, &rects, &cover),
            microseconds(in_place?),
            microseconds(copied?),
            microseconds(copy)
        );
    }
    Ok(())
}

fn on_host(name: &str, planes: &[PlaneLayout]) -> Outcome<()> {
    // One each, because an engine has the memory and expects the time of its last frames.
    let [mut engine, mut whole_engine] =
        [Engine::with_cuda(CudaEngine::new(0)?.without_jit()), Engine::with_cuda(CudaEngine::new(0)?.without_jit())];
    let mut memory: Vec<Vec<u8>> =
        planes.iter().map(|plane| noise(plane.row_bytes() * plane.height as usize)).collect();
    let mut output = memory.clone();
    let source = memory.clone();
    for (what, _, cover) in covers(planes)?.into_iter().take(6) {
        let Cover::Blur(BlurCover { regions, .. }) = &cover else { continue };
        let params = regions[0].params;
        let mut times = [Vec::new(), Vec::new()];
        for turn in 0..REPETITIONS + WARM_UP {
            let started = Instant::now();
            engine.cover(&cover, &mut views(planes, &mut memory))?;
            let middle = Instant::now();
            let whole = planes.iter().zip(&source);
            let whole =
                whole.map(|(layout, data)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &data[..] });
            let whole = whole.collect();
            let begun = Instant::now();
            whole_engine.blur(params, &whole, &mut views(planes, &mut output))?;
            if turn >= WARM_UP {
                times[0].push(middle - started);
                times[1].push(begun.elapsed());
            }
        }
        let [regions, whole] = times.map(|times| microseconds(median(times)));
        println!("| {name} | {what} | {regions:.0} | {whole:.0} | {:.2} |", regions / whole);
    }
    Ok(())
}

/// The planes in memory without padding.
fn views<'a>(planes: &[PlaneLayout], memory: &'a mut [Vec<u8>]) -> FrameMut<'a> {
    let plane = |(layout, data): (&PlaneLayout, &'a mut Vec<u8>)| Plane {
        layout: *layout,
        pitch: layout.row_bytes(),
        data: &mut data[..],
    };
    planes.iter().zip(memory).map(plane).collect()
}
