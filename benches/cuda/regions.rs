//! Regions on the device: in frames that stay there, and in frames in host memory, of which what they depend on is uploaded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::borrowed::{Borrowing, FrameMut, pair};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::driver::device::Device;
use gstcudagaussblur::cuda::driver::{DeviceMemory, Stream};
use gstcudagaussblur::cuda::transfer::schedule::{Division, Schedule};
use gstcudagaussblur::cuda::{CudaEngine, PinnedBytes, TILES};
use gstcudagaussblur::engine::{BlurRegion, Cover, Engine, FrameAccess, Hide, Softness};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::byte_rect::ByteRect;
use gstcudagaussblur::filter::frame::{FrameMemory, FramePair, Plane, PlaneLayout};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::parts::Job;
use gstcudagaussblur::filter::plan::{Plan, Selection};
use gstcudagaussblur::filter::regions::{Area, Rect};
use gstcudagaussblur::filter::weights::{Edge, Weights};

use crate::common::{Outcome, REPETITIONS, WARM_UP, device_planes, layout, median, noise, time_on};
use crate::{BUFFERS, microseconds, person};

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
    let scaled = |x: u32| x * planes[0].width / 1920;
    corners.iter().map(|[x, y]| Rect::new(scaled(*x), scaled(*y), BOX[0], BOX[1]).expect("a rectangle")).collect()
}

fn many(planes: &[PlaneLayout]) -> Vec<Rect> {
    let [width, height] = [planes[0].width, planes[0].height];
    let place = |i: u32| Rect::new(i % 8 * (width / 8) + 7 * i % 90, i / 8 * (height / 8) + 5 * i % 60, 48, 48);
    (0..64).map(|i| place(i).expect("a rectangle")).collect()
}

fn blur(rects: &[Rect], sigma: f64) -> Outcome<Cover> {
    let params = BlurParams::new(sigma, 0)?;
    let regions = rects.iter().map(|rect| BlurRegion { rect: *rect, params }).collect();
    Ok(Cover::from(Hide::Blur { planes: Selection::ALL, regions }))
}

fn mosaic(rects: &[Rect]) -> Cover {
    let object = |rect: &Rect| {
        let [x, y, width, height] = [rect.x(), rect.y(), rect.width(), rect.height()].map(f64::from);
        Area::from_corner(x, y, width, height)
    };
    Cover::from(Hide::Mosaic(rects.iter().map(|rect| MosaicRegion::new(*rect, object(rect), 6)).collect()))
}

fn fill(rects: &[Rect], planes: &[PlaneLayout]) -> Cover {
    Cover::from(Hide::Fill { rects: rects.to_vec(), values: vec![[16; 4]; planes.len()] })
}

/// The blur of a background without the person before it; of an ellipse over half the frame, and of its rectangle.
fn soft(planes: &[PlaneLayout]) -> Outcome<Vec<(String, Cover)>> {
    const SIGMA: f64 = 20.0;
    let size = (planes[0].width, planes[0].height);
    let edge = Edge { grow: 0, feather: 4 };
    let person = [person::person(size).0];
    let weights = Weights::outside(size, &person, edge);
    let excluded = Some(Weights::excluded(size, &person, SIGMA));
    let background = Cover { hide: blur(&weights.rects(), SIGMA)?.hide, soft: Some(Softness { weights, excluded }) };
    let ellipse = [person::ellipse(size)];
    let rect = ellipse[0].reach(edge, size).expect("a rectangle");
    let weights = Weights::inside(size, &ellipse, edge);
    let soft = Cover { hide: blur(&[rect], SIGMA)?.hide, soft: Some(Softness { weights, excluded: None }) };
    Ok(vec![
        ("background without a person, blur, sigma=20".to_owned(), background),
        ("ellipse over half the frame, feather=8, blur, sigma=20".to_owned(), soft),
        ("its rectangle, blur, sigma=20".to_owned(), blur(&[rect], SIGMA)?),
    ])
}

/// The covers of a row each.
fn covers(planes: &[PlaneLayout]) -> Outcome<Vec<(String, Cover)>> {
    let mut rows = Vec::new();
    for (name, corners) in [("three boxes apart", &APART), ("three side by side", &SIDE_BY_SIDE)] {
        let rects = boxes(corners, planes);
        for sigma in [3.0, 10.0, 40.0] {
            rows.push((format!("{name}, blur, sigma={sigma}"), blur(&rects, sigma)?));
        }
    }
    let (rects, all) = (boxes(&APART, planes), many(planes));
    rows.push(("three boxes, mosaic".to_owned(), mosaic(&rects)));
    rows.push(("three boxes, fill".to_owned(), fill(&rects, planes)));
    rows.push(("one box of 48x48, blur, sigma=12".to_owned(), blur(&all[27..28], 12.0)?));
    rows.push(("64 boxes of 48x48, blur, sigma=12".to_owned(), blur(&all, 12.0)?));
    rows.push(("64 boxes of 48x48, mosaic".to_owned(), mosaic(&all)));
    rows.extend(soft(planes)?);
    Ok(rows)
}

/// What the blurs of a cover depend on, as a part of the frame's bytes.
fn read(planes: &[PlaneLayout], cover: &Cover) -> f64 {
    let plan = |options| Arc::new(Plan::new(options, planes));
    let job = Job::cover(Plan::cover(cover, planes, plan), TILES);
    let schedule = Schedule::new(&job, Division::Fastest);
    schedule.uploads().map(ByteRect::size).sum::<usize>() as f64
        / planes.iter().map(|layout| layout.row_bytes() * layout.height as usize).sum::<usize>() as f64
}

/// Two frames on the device, or the same one twice.
struct Resident<'a> {
    planes: &'a [PlaneLayout],
    memory: [u64; 2],
    stream: usize,
}

// SAFETY: the caller keeps the memory and the stream until the stream is synchronised, and accesses nothing before.
unsafe impl FrameAccess for Resident<'_> {
    fn frames(&mut self) -> FramePair {
        let [source, destination] = self.memory.map(|address| FrameMemory::<*mut u8>::Device {
            planes: device_planes(self.planes, address, 64).0,
            stream: Some(self.stream),
        });
        FramePair { layouts: self.planes.to_vec(), source: Some(source.as_const()), destination }
    }
}

/// Prints the tables.
pub fn tables(device: &Arc<Device>) -> Outcome<()> {
    println!(
        "\nRegions of frames in device memory, µs (median of {REPETITIONS}, {BUFFERS} frames in turn), by events\n"
    );
    println!("| frame | cover | read, share of the frame | in place | into a copy | copy alone | whole frame |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (name, planes) in formats() {
        on_device(device, name, &planes)?;
    }
    println!("\nCovers of frames in host memory, in place, µs by the host's clock (median of {REPETITIONS}, 95 %)\n");
    println!("Steps: upload, kernels and download of the cover in pinned memory, by the device's clock.\n");
    println!(
        "| frame | cover | ordinary memory | whole frame | fraction | pinned memory | whole frame | fraction | CPU engine | steps |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let webcam = [("720p RGBA", vec![layout(1280, 720, 4)])];
    for (name, planes) in webcam.into_iter().chain(formats()) {
        on_host(name, &planes)?;
    }
    Ok(())
}

fn on_device(device: &Arc<Device>, name: &str, planes: &[PlaneLayout]) -> Outcome<()> {
    let mut engine = Engine::with_cuda(CudaEngine::new(device.id())?.without_jit());
    let _current = device.enter()?;
    let stream = Stream::new(device)?;
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
            engine.run(cover, resident(turn, is_copy))?;
            Ok(())
        })
    };
    let copy = cover_time(&mut engine, &nothing, true)?;
    for (what, cover) in covers(planes)? {
        let [in_place, copied] = [false, true].map(|is_copy| cover_time(&mut engine, &cover, is_copy));
        let whole = match &cover.hide {
            Hide::Blur { regions, .. } => {
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
            read(planes, &cover),
            microseconds(in_place?),
            microseconds(copied?),
            microseconds(copy)
        );
    }
    Ok(())
}

/// A frame that is covered in place.
struct InPlace<'a> {
    planes: &'a [PlaneLayout],
    memory: &'a mut [PinnedBytes],
}

// SAFETY: nobody else accesses the memory. The process ends if an engine fails.
unsafe impl FrameAccess for InPlace<'_> {
    fn frames(&mut self) -> FramePair {
        pair(&[], &mut views(self.planes, self.memory))
    }
}

/// Two frames.
struct Pair<'a> {
    source: &'a mut [PinnedBytes],
    destination: InPlace<'a>,
}

// SAFETY: see `InPlace`.
unsafe impl FrameAccess for Pair<'_> {
    fn frames(&mut self) -> FramePair {
        let source = pair(&[], &mut views(self.destination.planes, self.source)).destination.as_const();
        FramePair { source: Some(source), ..self.destination.frames() }
    }
}

fn on_host(name: &str, planes: &[PlaneLayout]) -> Outcome<()> {
    // One each, because an engine has the memory and expects the time of its last frames.
    let engine = || {
        let engine = Engine::with_cuda(CudaEngine::new(0)?.without_jit()).with_covers_on_device();
        Ok::<_, Box<dyn std::error::Error>>(engine)
    };
    let mut engines = [engine()?, engine()?, engine()?, engine()?, Engine::with_cpu(CpuEngine::new())];
    let mut memory: Vec<Vec<u8>> =
        planes.iter().map(|plane| noise(plane.row_bytes() * plane.height as usize)).collect();
    let mut output = memory.clone();
    let source = memory.clone();
    let pinned = engines[0].pinned().expect("CUDA");
    let allocate = |bytes: &Vec<u8>| {
        let mut memory = pinned.allocate(bytes.len())?;
        memory.as_mut().copy_from_slice(bytes);
        Ok::<_, Box<dyn std::error::Error>>(memory)
    };
    let pinned = || source.iter().map(allocate).collect::<Outcome<Vec<PinnedBytes>>>();
    let [mut pinned_memory, mut pinned_source, mut pinned_output] = [pinned()?, pinned()?, pinned()?];
    for (what, cover) in covers(planes)? {
        let params = match &cover.hide {
            Hide::Blur { regions, .. } => regions[0].params,
            _ => BlurParams::new(20.0, 0)?,
        };
        let mut times = [const { Vec::new() }; 5];
        for turn in 0..REPETITIONS + WARM_UP {
            let mut time = |index: usize, started: Instant| {
                if turn >= WARM_UP {
                    times[index].push(started.elapsed());
                }
            };
            let [regions, whole, pinned_regions, pinned_whole, cpu] = &mut engines;
            let started = Instant::now();
            regions.cover(&cover, &mut views(planes, &mut memory))?;
            time(0, started);

            let frame = planes.iter().zip(&source);
            let frame =
                frame.map(|(layout, data)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &data[..] });
            let frame = frame.collect();
            let started = Instant::now();
            whole.blur(params, &frame, &mut views(planes, &mut output))?;
            time(1, started);

            let started = Instant::now();
            pinned_regions.run(&cover, InPlace { planes, memory: &mut pinned_memory })?;
            time(2, started);

            let destination = InPlace { planes, memory: &mut pinned_output };
            let frames = Pair { source: &mut pinned_source, destination };
            let started = Instant::now();
            let in_flight = pinned_whole.submit(params, frames)?;
            pinned_whole.complete(in_flight)?;
            time(3, started);

            let started = Instant::now();
            cpu.cover(&cover, &mut views(planes, &mut memory))?;
            time(4, started);
        }
        let with_tail = |mut times: Vec<Duration>| {
            times.sort_unstable();
            let tail = times[times.len() * 95 / 100];
            (microseconds(median(times)), microseconds(tail))
        };
        let [regions, whole, pinned_regions, pinned_whole, cpu] = times.map(with_tail);
        let steps = engines[2].stats();
        let [upload, kernels, download] =
            [steps.upload, steps.kernel, steps.download].map(|step| microseconds(step.last));
        println!(
            "| {name} | {what} | {:.0} ({:.0}) | {:.0} | {:.2} | {:.0} ({:.0}) | {:.0} | {:.2} | {:.0} ({:.0}) | \
             {upload:.0}, {kernels:.0}, {download:.0} |",
            regions.0,
            regions.1,
            whole.0,
            regions.0 / whole.0,
            pinned_regions.0,
            pinned_regions.1,
            pinned_whole.0,
            pinned_regions.0 / pinned_whole.0,
            cpu.0,
            cpu.1,
        );
    }
    Ok(())
}

/// The µs of the background of a frame in pinned memory, and those of its download.
pub fn background(engine: &mut Engine, planes: &[PlaneLayout]) -> Outcome<[f64; 2]> {
    let (_, cover) = soft(planes)?.remove(0);
    let pinned = engine.pinned().expect("CUDA");
    let allocate = |plane: &PlaneLayout| {
        let bytes = noise(plane.row_bytes() * plane.height as usize);
        let mut memory = pinned.allocate(bytes.len())?;
        memory.as_mut().copy_from_slice(&bytes);
        Ok(memory)
    };
    let mut memory = planes.iter().map(allocate).collect::<Outcome<Vec<PinnedBytes>>>()?;
    let (mut times, mut downloads) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS + WARM_UP {
        let started = Instant::now();
        engine.run(&cover, InPlace { planes, memory: &mut memory })?;
        times.push(started.elapsed());
        downloads.push(engine.stats().download.last);
    }
    Ok([median(times), median(downloads)].map(microseconds))
}

/// The planes in memory without padding.
fn views<'a, M: AsMut<[u8]>>(planes: &[PlaneLayout], memory: &'a mut [M]) -> FrameMut<'a> {
    let plane = |(layout, data): (&PlaneLayout, &'a mut M)| Plane {
        layout: *layout,
        pitch: layout.row_bytes(),
        data: data.as_mut(),
    };
    planes.iter().zip(memory).map(plane).collect()
}
