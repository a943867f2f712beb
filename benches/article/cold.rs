//! Cold starts: each in a process of its own, which is this program started with `--cold WHAT IMAGE`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gstcudagaussblur::cuda::device::Device;
use gstcudagaussblur::cuda::driver::Stream;
use gstcudagaussblur::cuda::launch::{Passes, PlaneBlur};
use gstcudagaussblur::cuda::nvrtc::Nvrtc;
use gstcudagaussblur::cuda::{CudaEngine, Image};
use gstcudagaussblur::filter::BlurParams;

use crate::common::{Outcome, layout, taps};
use crate::plots::Table;
use crate::{Bench, Memory, SIGMA, SIZE, milliseconds, naive};

/// What a child process starts, and on which image; what people are told; the article's ms.
const STARTS: [(&str, &str, &str, &str); 5] = [
    ("image", "naive.ptx", "naive kernel, PTX, driver's cache off", "97.5"),
    ("image", "naive.cubin", "naive kernel, CUBIN", "14.8"),
    ("nvrtc", "naive.cubin", "naive kernel, source by NVRTC", ""),
    ("prebuilt", "naive.cubin", "ours, prebuilt CUBIN of all kernels", ""),
    ("portable", "naive.cubin", "ours, prebuilt PTX of all kernels, driver's cache off", ""),
];

/// Every time in a process of its own, with the context there: until the first launch is done.
pub fn table(bench: &Bench, folder: &Path) -> Outcome<Table> {
    let cubin = bench.naive_image(SIZE, SIGMA, false)?;
    std::fs::write(folder.join("naive.ptx"), bench.naive_image(SIZE, SIGMA, true)?)?;
    std::fs::write(folder.join("naive.cubin"), &cubin)?;
    let mut rows = Vec::new();
    for (what, image, name, article) in STARTS {
        let mut times = Vec::new();
        for _ in 0..5 {
            let child = Command::new(std::env::current_exe()?)
                .args(["--cold", what])
                .arg(folder.join(image))
                .env("CUDA_CACHE_DISABLE", "1")
                .env("CUDAGAUSSBLUR_CACHE", "off")
                .output()?;
            let text = String::from_utf8(child.stdout)?;
            let time = text.trim().parse::<f64>();
            times.push(time.map_err(|_| format!("{name}: {}", String::from_utf8_lossy(&child.stderr)))?);
        }
        times.sort_by(f64::total_cmp);
        rows.push(vec![name.to_owned(), format!("{:.2}", times[2]), article.to_owned()]);
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
    rows.push(vec![
        "a launch, warm, host's time".to_owned(),
        format!("{:.4}", milliseconds(warm)),
        "0.0044".to_owned(),
    ]);
    Ok(Table {
        title: "Cold start, ms, from the context to the end of the first launch, each in a new process, median of 5",
        columns: ["what", "here", "the article"].map(str::to_owned).to_vec(),
        rows,
    })
}

/// One cold start, in this process.
pub fn start(what: &str, image: &Path) -> Outcome<Duration> {
    let device = Device::open(0)?;
    let _current = device.enter()?;
    let stream = Stream::new(0)?;
    let memory = Memory::new(layout(400, 300, 3), &stream)?;
    stream.synchronize()?;
    let image = std::fs::read(image)?;
    let begun = Instant::now();
    match what {
        "image" => naive::launch(naive::load(&image)?, &memory, &stream)?,
        "nvrtc" => {
            let image = naive::image(device, &Nvrtc::open()?, SIZE, SIGMA, false)?;
            naive::launch(naive::load(&image)?, &memory, &stream)?;
        }
        "prebuilt" => launch(&CudaEngine::with(0, Image::Best, Passes::Best)?, &memory, &stream)?,
        "portable" => launch(&CudaEngine::with(0, Image::Portable, Passes::Best)?, &memory, &stream)?,
        other => return Err(format!("no cold start is called {other}").into()),
    }
    stream.synchronize()?;
    Ok(begun.elapsed())
}

/// Queues our blur.
fn launch(engine: &CudaEngine, memory: &Memory, stream: &Stream) -> Outcome<()> {
    let taps = taps(BlurParams::new(SIGMA, SIZE)?);
    let [src, dst] = memory.frame.each_ref().map(|frame| (frame.address(), memory.layout.row_bytes()));
    let blur = PlaneBlur { layout: memory.layout, src, dst, scratch: 0, taps: &taps, passes: Passes::Best };
    // SAFETY: the memory is as large as the planes, a blur in one pass takes no scratch; the caller waits.
    unsafe { engine.queue_plane(stream, &blur) }?;
    Ok(())
}
