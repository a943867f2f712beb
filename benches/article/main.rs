//! The tables of the article "Gaussian blur with cuda-python" in one run on one GPU: five frame sizes, cold start, and
//! time by kernel size. They compare the article's naive kernel, written anew, with ours. README.md explains them.
//!
//! `cargo bench --bench article [-- FOLDER]` prints the tables and writes article.md, article.csv and plots to FOLDER.

mod cold;
#[expect(dead_code, reason = "each bench uses only a part of this module")]
#[path = "../common/mod.rs"]
mod common;
mod naive;
#[expect(dead_code, reason = "nothing is plotted over time here")]
mod plots;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::result;
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::CudaEngine;
use gstcudagaussblur::cuda::driver::device::{self, Device};
use gstcudagaussblur::cuda::driver::{DeviceMemory, Function, Stream};
use gstcudagaussblur::cuda::jit::nvrtc::Nvrtc;
use gstcudagaussblur::cuda::process;
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::PlaneLayout;

use common::{Outcome, REPETITIONS, blur, layout, median, noise, time_of_frame, time_on};
use plots::{Table, plot};

const SIZES: [(u32, u32); 5] = [(400, 300), (800, 600), (1280, 720), (1920, 1080), (2560, 1440)];
/// The article's own ms by size: CPU, PTX by cuda.bindings, CUBIN by cuda.core.
const ARTICLE: [[f64; 3]; 5] =
    [[1.56, 0.08, 0.09], [6.13, 0.35, 0.30], [14.12, 0.50, 0.49], [30.68, 0.78, 0.90], [62.76, 1.36, 1.57]];
const KERNEL_SIZES: [u32; 6] = [3, 7, 15, 31, 63, 127];
const SIGMA: f64 = 1.5;
const SIZE: u32 = 7;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, what, image] = &arguments[..]
        && flag == "--cold"
    {
        println!("{}", milliseconds(cold::start(what, Path::new(image))?));
        return Ok(());
    }
    if let Err(error) = device::count() {
        println!("no GPU, nothing to measure: {error}");
        return Ok(());
    }
    let folder = PathBuf::from(arguments.first().map_or("target/article", String::as_str));
    std::fs::create_dir_all(&folder)?;
    let bench = Bench::open()?;
    let tables = [bench.five_sizes(&folder)?, cold::table(&bench, &folder)?, bench.growth(&folder)?];
    let markdown: Vec<String> = tables.iter().map(Table::markdown).collect();
    let markdown = format!(
        "{}, specialised kernels by NVRTC {:?}\n\n{}",
        bench.device.name(),
        bench.nvrtc.version(),
        markdown.join("\n")
    );
    println!("{markdown}");
    std::fs::write(folder.join("article.md"), markdown)?;
    std::fs::write(folder.join("article.csv"), tables.map(|table| table.csv()).join("\n"))?;
    Ok(())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The median milliseconds of a call by the host's clock; two calls before warm up.
fn timed(repetitions: usize, mut call: impl FnMut()) -> f64 {
    let times = (0..repetitions + 2).map(|_| {
        let begun = Instant::now();
        call();
        begun.elapsed()
    });
    milliseconds(median(times.skip(2).collect()))
}

/// A frame's source and destination in device memory, rows without padding, for the naive kernel and for ours.
struct Memory {
    frame: [DeviceMemory; 2],
    /// What our kernels need between rows and columns, and more: 16 bits a sample and 512 bytes a row.
    workspace: DeviceMemory,
    layout: PlaneLayout,
}

impl Memory {
    /// Memory that is zeroed on this stream, whose context has to be current.
    fn new(layout: PlaneLayout, stream: &Stream) -> Outcome<Self> {
        let bytes = layout.row_bytes() * layout.height as usize;
        let workspace = DeviceMemory::new(2 * bytes + 512 * layout.height as usize, stream)?;
        Ok(Self { frame: [DeviceMemory::new(bytes, stream)?, DeviceMemory::new(bytes, stream)?], workspace, layout })
    }

    /// The same with noise as the source.
    fn filled(layout: PlaneLayout, stream: &Stream) -> Outcome<Self> {
        let memory = Self::new(layout, stream)?;
        let picture = noise(layout.row_bytes() * layout.height as usize);
        // SAFETY: source and picture have the same size, and the stream is synchronised before `picture` is dropped.
        unsafe { result::memcpy_htod_async(memory.frame[0].address(), &picture, stream.raw()) }?;
        stream.synchronize()?;
        Ok(memory)
    }
}

struct Bench {
    device: Arc<Device>,
    nvrtc: Nvrtc,
    stream: Stream,
}

impl Bench {
    fn open() -> Outcome<Self> {
        let device = process::open(0)?.device().clone();
        let stream = Stream::new(&device)?;
        Ok(Self { device, nvrtc: Nvrtc::open()?, stream })
    }

    fn naive_image(&self, size: u32, sigma: f64, ptx: bool) -> Outcome<Vec<u8>> {
        naive::image(&self.device, &self.nvrtc, size, sigma, ptx)
    }

    /// The median milliseconds of a naive kernel on the device.
    fn naive(&self, kernel: Function, memory: &Memory) -> Outcome<f64> {
        let time = time_on(&self.stream, &self.device, |_| naive::launch(kernel, memory, &self.stream))?;
        Ok(milliseconds(time))
    }

    /// The median milliseconds of our kernels on the device.
    fn ours(&self, memory: &Memory, size: u32, sigma: f64) -> Outcome<f64> {
        let params = BlurParams::new(sigma, size)?;
        let shape = (&[memory.layout][..], 1);
        let frames = std::slice::from_ref(&memory.frame);
        Ok(milliseconds(time_of_frame(&CudaEngine::new(0)?, &self.stream, shape, params, frames)?))
    }

    fn five_sizes(&self, folder: &Path) -> Outcome<Table> {
        let _current = self.device.enter()?;
        let params = BlurParams::new(SIGMA, SIZE)?;
        let load = |ptx| naive::load(&self.naive_image(SIZE, SIGMA, ptx)?, &self.device);
        let kernels = [load(true)?, load(false)?];
        let mut rows = Vec::new();
        let mut lines = vec![
            ("naive CPU", vec![]),
            ("CPU engine", vec![]),
            ("naive kernel, frame", vec![]),
            ("our frame", vec![]),
            ("naive kernel", vec![]),
            ("our kernel", vec![]),
        ];
        for ((width, height), article) in SIZES.into_iter().zip(ARTICLE) {
            let layout = layout(width, height, 3);
            let memory = Memory::filled(layout, &self.stream)?;
            let bytes = layout.row_bytes() * layout.height as usize;
            let (src, mut dst) = (noise(bytes), vec![0; bytes]);
            let slow = timed(3, || naive::with_cpu(&src, &mut dst, &layout, SIZE, SIGMA));
            let mut cpu = Engine::with_cpu(CpuEngine::new());
            let cpu = timed(REPETITIONS, || blur(&mut cpu, params, layout, &src, &mut dst));
            let naive = |kernel| self.naive(kernel, &memory);
            let [naive_ptx, naive_cubin] = [naive(kernels[0])?, naive(kernels[1])?];
            let ours = self.ours(&memory, SIZE, SIGMA)?;
            // Ordinary memory and synchronous copies, as in the article.
            let whole_naive = timed(REPETITIONS, || {
                // SAFETY: all buffers have the frame's size, and each copy is complete when it returns.
                unsafe {
                    result::memcpy_htod_sync(memory.frame[0].address(), &src).expect("copied");
                    naive::launch(kernels[1], &memory, &self.stream).expect("launched");
                    self.stream.synchronize().expect("done");
                    result::memcpy_dtoh_sync(&mut dst, memory.frame[1].address()).expect("copied");
                }
            });
            let mut cuda = Engine::with_cuda(CudaEngine::new(0)?);
            let whole = timed(REPETITIONS, || blur(&mut cuda, params, layout, &src, &mut dst));
            let times = [slow, cpu, whole_naive, whole, naive_cubin, ours];
            for (line, time) in lines.iter_mut().zip(times) {
                line.1.push((f64::from(width * height) / 1e6, time));
            }
            let ratio = |time: f64| format!("{:.0}", slow / time);
            rows.push(vec![
                format!("{width}x{height}"),
                format!("{slow:.1}"),
                format!("{cpu:.3} ({})", ratio(cpu)),
                format!("{naive_ptx:.4}"),
                format!("{naive_cubin:.4} ({})", ratio(naive_cubin)),
                format!("{ours:.4} ({})", ratio(ours)),
                format!("{whole_naive:.3} ({})", ratio(whole_naive)),
                format!("{whole:.3} ({})", ratio(whole)),
                format!(
                    "{:.2} / {:.2} ({:.0}) / {:.2} ({:.0})",
                    article[0],
                    article[1],
                    article[0] / article[1],
                    article[2],
                    article[0] / article[2]
                ),
            ]);
        }
        plot(&folder.join("five-sizes.svg"), "RGB frames, 7x7, sigma 1.5", ["megapixels", "ms"], &lines)?;
        let columns = [
            "frame",
            "naive CPU",
            "CPU engine",
            "naive kernel, PTX",
            "naive kernel, CUBIN",
            "our kernel",
            "naive kernel, frame with copies",
            "our frame with copies",
            "the article: CPU / PTX / CUBIN",
        ];
        Ok(Table {
            title: "RGB frames, 7x7, sigma 1.5, ms; in brackets the speed-up over the naive CPU loop of the same run",
            columns: columns.map(str::to_owned).to_vec(),
            rows,
        })
    }

    fn growth(&self, folder: &Path) -> Outcome<Table> {
        let _current = self.device.enter()?;
        let layout = layout(1920, 1080, 3);
        let memory = Memory::filled(layout, &self.stream)?;
        let bytes = layout.row_bytes() * layout.height as usize;
        let (src, mut dst) = (noise(bytes), vec![0; bytes]);
        let mut lines = vec![("naive kernel", vec![]), ("our kernel", vec![]), ("CPU engine", vec![])];
        let mut rows = Vec::new();
        for size in KERNEL_SIZES {
            let sigma = f64::from(size) / 6.0;
            let ours = self.ours(&memory, size, sigma)?;
            let params = BlurParams::new(sigma, size)?;
            let mut cpu = Engine::with_cpu(CpuEngine::new());
            let cpu = timed(10, || blur(&mut cpu, params, layout, &src, &mut dst));
            // Above this size the naive kernel's constants alone would fill the instruction caches.
            let naive = if size > 31 {
                None
            } else {
                Some(self.naive(naive::load(&self.naive_image(size, sigma, false)?, &self.device)?, &memory)?)
            };
            let point = |time: f64| (f64::from(size), time);
            lines[0].1.extend(naive.map(point));
            lines[1].1.push(point(ours));
            lines[2].1.push(point(cpu));
            rows.push(vec![
                size.to_string(),
                naive.map_or(String::new(), |time| format!("{time:.4}")),
                format!("{ours:.4}"),
                format!("{cpu:.3}"),
            ]);
        }
        plot(&folder.join("growth.svg"), "1080p RGB, sigma = k/6", ["taps per axis", "ms"], &lines)?;
        Ok(Table {
            title: "1080p RGB, sigma = k/6, ms",
            columns: ["k", "naive kernel, CUBIN", "our kernel", "CPU engine"].map(str::to_owned).to_vec(),
            rows,
        })
    }
}
