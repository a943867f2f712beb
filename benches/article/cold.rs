//! Cold starts: each in a process of its own, which is this program started with `--cold WHAT IMAGE`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gstcudagaussblur::cuda::device::Device;
use gstcudagaussblur::cuda::driver::Stream;
use gstcudagaussblur::cuda::launch::Passes;
use gstcudagaussblur::cuda::nvrtc::Nvrtc;
use gstcudagaussblur::cuda::{CudaEngine, Image};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::frame::PlaneLayout;
use gstcudagaussblur::plan;

use crate::common::{Outcome, blur, layout, noise};
use crate::plots::{self, Table};
use crate::{Bench, Memory, SIGMA, SIZE, milliseconds, naive};

/// What a child process starts, and on which image; what people are told, in a plot up to the colon; the article's ms.
type Start = (&'static str, &'static str, &'static str, Option<f64>);

const STARTS: [Start; 7] = [
    ("image", "naive.ptx", "naive kernel, PTX, driver's cache off", Some(97.5)),
    ("image", "naive.cubin", "naive kernel, CUBIN", Some(14.8)),
    ("nvrtc", "naive.cubin", "naive kernel, source by NVRTC", None),
    ("prebuilt", "naive.cubin", "ours, prebuilt CUBIN of all kernels", None),
    ("portable", "naive.cubin", "ours, prebuilt PTX of all kernels, driver's cache off", None),
    (
        "special-nvrtc",
        "naive.cubin",
        "ours, kernel for this size by NVRTC: NVRTC opened, kernel compiled and loaded, our cache off",
        None,
    ),
    (
        "special-disk",
        "naive.cubin",
        "ours, kernel for this size from our disk cache: NVRTC opened for its version, file read (from the page cache), \
         its digest checked, kernel loaded",
        None,
    ),
];
/// The article's ms of a launch when all is warm.
const WARM: f64 = 0.0044;

/// Every time in a process of its own, with the context there: until the first launch is done.
pub fn table(bench: &Bench, folder: &Path) -> Outcome<Table> {
    let cache = std::env::temp_dir().join(format!("cudagaussblur-article-{}", std::process::id()));
    let times = times(bench, folder, &cache);
    let _ = std::fs::remove_dir_all(&cache);
    let times = times?;
    let short = |name: &'static str| name.split(':').next().unwrap_or(name);
    let bars: Vec<_> = times.iter().map(|(name, here, article)| (short(name), *here, *article)).collect();
    plots::bars(
        &folder.join("cold-start.svg"),
        "Cold start to the end of the first launch, context there",
        "ms",
        &bars,
    )?;
    let rows = times.iter().map(|(name, here, article)| {
        vec![(*name).to_owned(), here.to_string(), article.map_or(String::new(), |article| article.to_string())]
    });
    Ok(Table {
        title: "Cold start, ms, from the context to the end of the first launch, each in a new process, median of 5",
        columns: ["what", "here", "the article"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    })
}

/// What is told of every start, its ms, and the article's. Kernels are kept in the folder `cache`.
fn times(bench: &Bench, folder: &Path, cache: &Path) -> Outcome<Vec<(&'static str, f64, Option<f64>)>> {
    let cubin = bench.naive_image(SIZE, SIGMA, false)?;
    std::fs::write(folder.join("naive.ptx"), bench.naive_image(SIZE, SIGMA, true)?)?;
    std::fs::write(folder.join("naive.cubin"), &cubin)?;
    let none = Path::new("off");
    // Fills the cache.
    child("special-nvrtc", &folder.join("naive.cubin"), cache)?;
    let mut rows = Vec::new();
    for (what, image, name, article) in STARTS {
        let cache = if what == "special-disk" { cache } else { none };
        let times = (0..5).map(|_| child(what, &folder.join(image), cache)).collect::<Outcome<Vec<_>>>();
        let mut times = times.map_err(|error| format!("{name}: {error}"))?;
        times.sort_by(f64::total_cmp);
        rows.push((name, rounded(times[2]), article));
    }
    let _current = bench.device.enter()?;
    let memory = Memory::new(layout(400, 300, 3), &bench.stream)?;
    let naive = naive::load(&cubin)?;
    let begun = Instant::now();
    for _ in 0..1000 {
        naive::launch(naive, &memory, &bench.stream)?;
    }
    let warm = begun.elapsed() / 1000;
    bench.stream.synchronize()?;
    rows.push(("a launch, warm, host's time", rounded(milliseconds(warm)), Some(WARM)));
    Ok(rows)
}

/// To three digits.
fn rounded(value: f64) -> f64 {
    let unit = 10.0_f64.powi(2 - value.log10().floor() as i32).max(1.0);
    (value * unit).round() / unit
}

/// The ms of one cold start in a new process.
fn child(what: &str, image: &Path, cache: &Path) -> Outcome<f64> {
    let child = Command::new(std::env::current_exe()?)
        .args(["--cold", what])
        .arg(image)
        .env("CUDA_CACHE_DISABLE", "1")
        .env("CUDAGAUSSBLUR_CACHE", cache)
        .output()?;
    let time = String::from_utf8(child.stdout)?.trim().parse();
    Ok(time.map_err(|_| String::from_utf8_lossy(&child.stderr).into_owned())?)
}

/// One cold start, in this process.
pub fn start(what: &str, image: &Path) -> Outcome<Duration> {
    let device = Device::open(0)?;
    let _current = device.enter()?;
    let stream = Stream::new(0)?;
    let memory = Memory::new(layout(400, 300, 3), &stream)?;
    stream.synchronize()?;
    let image = std::fs::read(image)?;
    if let Some(origin) = what.strip_prefix("special-") {
        return special(origin, &memory, &stream);
    }
    let begun = Instant::now();
    match what {
        "image" => naive::launch(naive::load(&image)?, &memory, &stream)?,
        "nvrtc" => {
            let image = naive::image(&device, &Nvrtc::open()?, SIZE, SIGMA, false)?;
            naive::launch(naive::load(&image)?, &memory, &stream)?;
        }
        "prebuilt" => launch(&CudaEngine::with(0, Image::Best, Passes::Best)?, &memory, &stream)?,
        "portable" => launch(&CudaEngine::with(0, Image::Portable, Passes::Best)?, &memory, &stream)?,
        other => return Err(format!("no cold start is called {other}").into()),
    }
    stream.synchronize()?;
    Ok(begun.elapsed())
}

/// What making a kernel for this size took, from where it should come, and its first launch. When it is made an engine
/// decides; that wait is left out.
fn special(origin: &str, memory: &Memory, stream: &Stream) -> Outcome<Duration> {
    let mut asking = Engine::on_cuda(CudaEngine::new(0)?);
    let small = PlaneLayout { width: 64, height: 8, ..memory.layout };
    let (src, params) = (noise(small.row_bytes() * 8), BlurParams::new(SIGMA, SIZE)?);
    let mut dst = vec![0; src.len()];
    let engine = CudaEngine::new(0)?;
    let begun = Instant::now();
    // No frame may be the kernel's first: the last one is that which has it made.
    while !engine.progress().at_work && engine.progress().last.is_none() {
        blur(&mut asking, params, small, &src, &mut dst);
        if begun.elapsed() > Duration::from_secs(5) {
            return Err("no kernel is being made".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    while engine.progress().at_work {
        std::thread::sleep(Duration::from_millis(1));
    }
    match engine.progress().last {
        Some(made) if made.from.name() == origin => {
            let begun = Instant::now();
            launch(&engine, memory, stream)?;
            stream.synchronize()?;
            Ok(made.took + begun.elapsed())
        }
        other => Err(format!("a kernel from {origin} was to be made, and it came to {other:?}").into()),
    }
}

/// Queues our blur.
fn launch(engine: &CudaEngine, memory: &Memory, stream: &Stream) -> Outcome<()> {
    let jobs = plan::jobs(BlurParams::new(SIGMA, SIZE)?.into(), &[memory.layout]);
    let [src, dst] = memory.frame.each_ref().map(|frame| (frame.address(), memory.layout.row_bytes()));
    // SAFETY: the memory is as large as the planes, a blur in one pass takes nothing besides; the caller waits.
    unsafe { engine.queue(stream, &jobs, &[(src, dst)], 0) }?;
    Ok(())
}
