//! The time of a blur over sigma in one run, for frames in device memory. README.md explains the table.

#[expect(dead_code, reason = "each bench uses only a part of this module")]
mod common;
#[expect(dead_code, reason = "tables are not written to files here")]
#[path = "article/plots.rs"]
mod plots;

use std::path::Path;

use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cuda::driver::{DeviceMemory, Stream, device};
use gstcudagaussblur::cuda::{CudaEngine, Image, process};
use gstcudagaussblur::element::format::formats;
use gstcudagaussblur::filter::frame::PlaneLayout;
use gstcudagaussblur::filter::plan::{AlphaMode, Options};
use gstcudagaussblur::filter::{BlurParams, ParamError};

use common::{Outcome, device_planes, time_of_frame};

/// Denser around the thresholds of the wide form, 3.5 and 7.
const SIGMAS: [f64; 22] = [
    0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 3.0, 3.4, 3.5, 4.0, 5.0, 6.0, 6.9, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0, 63.0, 100.0,
    1024.0,
];
const COLUMNS: [(VideoFormat, AlphaMode); 8] = [
    (VideoFormat::Rgba, AlphaMode::Straight),
    (VideoFormat::Rgb, AlphaMode::Straight),
    (VideoFormat::Nv12, AlphaMode::Straight),
    (VideoFormat::Gray8, AlphaMode::Straight),
    (VideoFormat::P01010le, AlphaMode::Straight),
    (VideoFormat::Argb64, AlphaMode::Straight),
    (VideoFormat::Yuy2, AlphaMode::Straight),
    (VideoFormat::Rgba, AlphaMode::Premultiply),
];
/// Frames that are used in turn, so that none is still in the device's cache when it is used again.
const BUFFERS: usize = 6;

/// With a folder as its argument, it also plots 4K RGBA there. A second argument names the file that `others.py --curve`
/// wrote: another library's times, for the plot.
fn main() -> Outcome<()> {
    gst::init()?;
    if let Err(error) = device::count() {
        println!("no GPU, nothing to measure: {error}");
        return Ok(());
    }
    let device = process::open(0)?.device().clone();
    println!("{}, prebuilt kernels, device memory to device memory, µs (median)", device.name());
    let best = CudaEngine::new(0)?.without_jit();
    let portable = CudaEngine::with_image(0, Image::Portable)?.without_jit();
    let cores = CudaEngine::new(0)?.without_jit().on_cuda_cores();
    for (engine, kernels, [width, height]) in [
        (&best, "for its architecture", [3840, 2160]),
        (&best, "for its architecture", [1920, 1080]),
        (&portable, "from PTX", [3840, 2160]),
        (&cores, "for CUDA cores", [3840, 2160]),
    ] {
        println!("\n{width}x{height}, kernels {kernels}\n");
        let names = COLUMNS.map(|(format, alpha)| match alpha {
            AlphaMode::Straight => format.to_str().to_string(),
            AlphaMode::Premultiply => format!("{format}, premultiplied"),
        });
        println!("| sigma | {} |", names.join(" | "));
        println!("| --- |{}", " --- |".repeat(COLUMNS.len()));
        let mut rows = SIGMAS.map(|sigma| format!("| {sigma} |"));
        for (format, alpha) in COLUMNS {
            let info = VideoInfo::builder(format, width, height).build()?;
            let planes = formats::planes(&info, false).ok_or("a format of the element")?;
            let options = |sigma| Ok(Options { alpha, ..BlurParams::new(sigma, 0)?.into() });
            for (row, time) in rows.iter_mut().zip(curve(engine, &planes, options)?) {
                *row += &format!(" {time:.1} |");
            }
        }
        rows.iter().for_each(|row| println!("{row}"));
    }
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match &arguments[..] {
        [] => Ok(()),
        [folder, others @ ..] => plot(&best, Path::new(folder), others.first().map(Path::new)),
    }
}

/// Plots the curve of 4K RGBA, beside the direct form and other libraries.
fn plot(engine: &CudaEngine, folder: &Path, others: Option<&Path>) -> Outcome<()> {
    let rgba = [common::layout(3840, 2160, 4)];
    let of_sigma = |times: [f64; SIGMAS.len()], most: f64| {
        SIGMAS.into_iter().zip(times).filter(|(sigma, _)| (0.5..=most).contains(sigma)).collect::<Vec<_>>()
    };
    let direct = |sigma: f64| BlurParams::new(sigma.min(100.0), (8.0 * sigma.min(100.0) + 1.0) as u32 | 1);
    let ours = of_sigma(curve(engine, &rgba, |sigma| BlurParams::new(sigma, 0))?, 1024.0);
    let direct = of_sigma(curve(engine, &rgba, direct)?, 100.0);
    let mut curves =
        vec![("cudagaussblur".to_owned(), ours), ("its direct form (kernel-size = 8 sigma + 1)".to_owned(), direct)];
    for line in others.map(std::fs::read_to_string).transpose()?.unwrap_or_default().lines() {
        let [library, sigma, time] = line.split(',').collect::<Vec<_>>()[..] else { return Err(line.into()) };
        let point = (sigma.parse()?, time.parse()?);
        match curves.iter_mut().find(|(name, _)| name == library) {
            Some((_, points)) => points.push(point),
            None => curves.push((library.to_owned(), vec![point])),
        }
    }
    for (name, points) in &curves {
        println!("\n{name}: {}", points.iter().map(|(sigma, time)| format!("{sigma} {time:.1}, ")).collect::<String>());
    }
    let curves: Vec<_> = curves.iter().map(|(name, points)| (name.as_str(), points.clone())).collect();
    plots::plot(&folder.join("sigma.svg"), "4K RGBA in device memory", ["sigma", "µs"], &curves)
}

/// The time of every sigma in µs.
fn curve<O: Into<Options>>(
    engine: &CudaEngine,
    planes: &[PlaneLayout],
    options: impl Fn(f64) -> Result<O, ParamError>,
) -> Outcome<[f64; SIGMAS.len()]> {
    let device = engine.device().clone();
    let _current = device.enter()?;
    let stream = Stream::new(&device)?;
    let bytes = device_planes(planes, 0, 256).1;
    let frame = |_| Ok([DeviceMemory::new(bytes, &stream)?, DeviceMemory::new(bytes, &stream)?]);
    let frames = (0..BUFFERS).map(frame).collect::<Outcome<Vec<_>>>()?;
    let mut times = [0.0; SIGMAS.len()];
    for (time, sigma) in times.iter_mut().zip(SIGMAS) {
        let of_frame = time_of_frame(engine, &stream, (planes, 256), options(sigma)?, &frames)?;
        *time = of_frame.as_secs_f64() * 1e6;
    }
    Ok(times)
}
