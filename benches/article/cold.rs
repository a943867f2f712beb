//! Cold starts. Each is measured in a new process: this program with the arguments `--cold WHAT IMAGE`.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gstcudagaussblur::cuda::driver::{DeviceMemory, Stream};
use gstcudagaussblur::cuda::jit::nvrtc::Nvrtc;
use gstcudagaussblur::cuda::process;
use gstcudagaussblur::cuda::{CudaEngine, DevicePlanes, Image};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::PlaneLayout;
use gstcudagaussblur::filter::plan::Plan;
use gstcudagaussblur::filter::plane::DevicePlane;

use crate::common::{Outcome, layout};
use crate::plots::{self, Table};
use crate::{Bench, Memory, SIGMA, SIZE, milliseconds, naive};

/// The child's WHAT and IMAGE; the name in the table (the plot shows it up to the colon); the article's ms.
type Start = (&'static str, &'static str, &'static str, Option<f64>);

const STARTS: [Start; 7] = [
    ("image", "naive.ptx", "naive kernel, PTX, driver's cache off", Some(97.5)),
    ("image", "naive.cubin", "naive kernel, CUBIN", Some(14.8)),
    ("nvrtc", "naive.cubin", "naive kernel, source by NVRTC", None),
    ("prebuilt", "naive.cubin", "ours, prebuilt CUBINs that the first frame loads", None),
    ("prebuilt-all", "naive.cubin", "ours, prebuilt CUBINs of all parts", None),
    ("portable", "naive.cubin", "ours, prebuilt PTX that the first frame loads, driver's cache off", None),
    ("portable-all", "naive.cubin", "ours, prebuilt PTX of all parts, driver's cache off", None),
];
/// The article's ms of a launch after the cold start.
const WARM: f64 = 0.0044;

/// The times from an existing context to the end of the first launch, each measured in a new process.
pub fn table(bench: &Bench, folder: &Path) -> Outcome<Table> {
    let times = times(bench, folder)?;
    let short = |name: &'static str| name.split(':').next().unwrap_or(name);
    let bars: Vec<_> = times.iter().map(|(name, ours, article)| (short(name), *ours, *article)).collect();
    plots::bars(
        &folder.join("cold-start.svg"),
        "Cold start: from an existing context to the end of the first launch",
        "ms",
        &bars,
    )?;
    let rows = times.iter().map(|(name, ours, article)| {
        vec![(*name).to_owned(), ours.to_string(), article.map_or(String::new(), |article| article.to_string())]
    });
    Ok(Table {
        title: "Cold start, ms, from the context to the end of the first launch, each in a new process, median of 5",
        columns: ["cold start", "this run", "the article"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    })
}

/// The name of each start, its ms in this run, and the article's.
fn times(bench: &Bench, folder: &Path) -> Outcome<Vec<(&'static str, f64, Option<f64>)>> {
    let cubin = bench.naive_image(SIZE, SIGMA, false)?;
    std::fs::write(folder.join("naive.ptx"), bench.naive_image(SIZE, SIGMA, true)?)?;
    std::fs::write(folder.join("naive.cubin"), &cubin)?;
    let mut rows = Vec::new();
    for (what, image, name, article) in STARTS {
        let times = (0..5).map(|_| child(what, &folder.join(image))).collect::<Outcome<Vec<_>>>();
        let mut times = times.map_err(|error| format!("{name}: {error}"))?;
        times.sort_by(f64::total_cmp);
        rows.push((name, rounded(times[2]), article));
    }
    let _current = bench.device.enter()?;
    let memory = Memory::new(layout(400, 300, 3), &bench.stream)?;
    let naive = naive::load(&cubin, &bench.device)?;
    let begun = Instant::now();
    for _ in 0..1000 {
        naive::launch(naive, &memory, &bench.stream)?;
    }
    let warm = begun.elapsed() / 1000;
    bench.stream.synchronize()?;
    rows.push(("a later launch, by the host's clock", rounded(milliseconds(warm)), Some(WARM)));
    Ok(rows)
}

/// Rounds to three significant digits.
fn rounded(value: f64) -> f64 {
    let unit = 10.0_f64.powi(2 - value.log10().floor() as i32).max(1.0);
    (value * unit).round() / unit
}

/// The ms of one cold start in a new process.
fn child(what: &str, image: &Path) -> Outcome<f64> {
    let child = Command::new(std::env::current_exe()?)
        .args(["--cold", what])
        .arg(image)
        .env("CUDA_CACHE_DISABLE", "1")
        .output()?;
    let time = String::from_utf8(child.stdout)?.trim().parse();
    Ok(time.map_err(|_| String::from_utf8_lossy(&child.stderr).into_owned())?)
}

/// The time of one cold start, in this process.
pub fn start(what: &str, image: &Path) -> Outcome<Duration> {
    let device = process::open(0)?.device().clone();
    let _current = device.enter()?;
    let stream = Stream::new(&device)?;
    let memory = Memory::new(PlaneLayout::new(400, 300, 3, 8), &stream)?;
    stream.synchronize()?;
    let image = std::fs::read(image)?;
    let begun = Instant::now();
    match what {
        "image" => naive::launch(naive::load(&image, &device)?, &memory, &stream)?,
        "nvrtc" => {
            let image = naive::image(&device, &Nvrtc::open()?, SIZE, SIGMA, false)?;
            naive::launch(naive::load(&image, &device)?, &memory, &stream)?;
        }
        "prebuilt" => prebuilt(Image::Best, false, &memory, &stream)?,
        "prebuilt-all" => prebuilt(Image::Best, true, &memory, &stream)?,
        "portable" => prebuilt(Image::Portable, false, &memory, &stream)?,
        "portable-all" => prebuilt(Image::Portable, true, &memory, &stream)?,
        other => return Err(format!("unknown cold start {other}").into()),
    }
    stream.synchronize()?;
    Ok(begun.elapsed())
}

/// Enqueues our blur with the prebuilt kernels of an image, of which nothing else has been loaded unless all parts are to be.
fn prebuilt(image: Image, all: bool, memory: &Memory, stream: &Stream) -> Outcome<()> {
    if all {
        process::open(0)?.prebuilt(image)?.load_all()?;
    }
    launch(&CudaEngine::with_image(0, image)?.without_jit(), memory, stream)
}

/// Enqueues our blur.
fn launch(engine: &CudaEngine, memory: &Memory, stream: &Stream) -> Outcome<()> {
    let plan = Arc::new(Plan::new(BlurParams::new(SIGMA, SIZE)?.into(), &[memory.layout]));
    let plane = |frame: &DeviceMemory| {
        vec![DevicePlane { address: frame.address(), pitch: memory.layout.row_bytes(), len: frame.bytes() }]
    };
    let [sources, destinations] = memory.frame.each_ref().map(plane);
    let planes = DevicePlanes { sources, destinations };
    // SAFETY: source and destination are as large as the plane, the workspace is as large as a blur needs it, and the callers
    // synchronise the stream before the memory is dropped.
    unsafe { engine.enqueue(stream, &engine.program(&plan, &planes, memory.workspace.address())?) }?;
    Ok(())
}
