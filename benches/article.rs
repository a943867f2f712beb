//! The tables of the article "Gaussian blur with cuda-python" in one run on one GPU: five frame sizes, cold start, growth
//! with the kernel. Its naive kernel, in our words, beside ours. README.md tells how to read them.
//!
//! `cargo bench --bench article [-- FOLDER]` prints them and writes article.md, article.csv and plots to FOLDER.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cudarc::driver::result;
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::device::{self, Device};
use gstcudagaussblur::cuda::driver::{DeviceMemory, Event, Function, Module, PinnedMemory, Stream};
use gstcudagaussblur::cuda::launch::{Passes, PlaneBlur};
use gstcudagaussblur::cuda::nvrtc::{Nvrtc, Target};
use gstcudagaussblur::cuda::{CudaEngine, Image};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::{BlurParams, Taps};
use gstcudagaussblur::frame::{Plane, PlaneLayout};
use plotters::prelude::*;

const SIZES: [(u32, u32); 5] = [(400, 300), (800, 600), (1280, 720), (1920, 1080), (2560, 1440)];
/// The article's own ms by size: CPU, PTX by cuda.bindings, CUBIN by cuda.core.
const ARTICLE: [[f64; 3]; 5] =
    [[1.56, 0.08, 0.09], [6.13, 0.35, 0.30], [14.12, 0.50, 0.49], [30.68, 0.78, 0.90], [62.76, 1.36, 1.57]];
const KERNEL_SIZES: [u32; 6] = [3, 7, 15, 31, 63, 127];
const SIGMA: f64 = 1.5;
const SIZE: u32 = 7;
const REPETITIONS: usize = 60;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, what, image] = &arguments[..]
        && flag == "--cold"
    {
        println!("{}", cold(what, Path::new(image))?.as_secs_f64() * 1e3);
        return Ok(());
    }
    if let Err(error) = device::count() {
        println!("no GPU, nothing to measure: {error}");
        return Ok(());
    }
    let folder = PathBuf::from(arguments.first().map_or("target/article", String::as_str));
    std::fs::create_dir_all(&folder)?;
    let bench = Bench::open()?;
    let tables = [bench.five_sizes(&folder)?, bench.cold_start(&folder)?, bench.growth(&folder)?];
    let markdown: Vec<String> = tables.iter().map(Table::markdown).collect();
    let markdown = format!(
        "{}, kernels for single sizes by NVRTC {:?}\n\n{}",
        bench.device.name(),
        bench.nvrtc.version(),
        markdown.join("\n")
    );
    println!("{markdown}");
    std::fs::write(folder.join("article.md"), markdown)?;
    std::fs::write(folder.join("article.csv"), tables.map(|table| table.csv()).join("\n"))?;
    Ok(())
}

/// A title, column names, and rows of cells.
struct Table {
    title: &'static str,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}\n\n{}|{}\n{rows}", self.title, line(&self.columns), " --- |".repeat(self.columns.len()))
    }

    fn csv(&self) -> String {
        let rows: String = self.rows.iter().map(|row| row.join(",") + "\n").collect();
        format!("# {}\n{}\n{rows}", self.title, self.columns.join(","))
    }
}

/// The article's kernel: a thread for each pixel, the two-dimensional weights as integers in the code, edges clamped.
fn naive_source(size: u32, sigma: f64) -> String {
    let radius = (size / 2) as i32;
    let weight = |x: i32, y: i32| (1000.0 * (-f64::from(x * x + y * y) / (2.0 * sigma * sigma)).exp()).round();
    let rows = (-radius..=radius).map(|y| {
        let row: Vec<String> = (-radius..=radius).map(|x| format!("{:.1}f", weight(x, y))).collect();
        format!("{{{}}}", row.join(", "))
    });
    let sum: f64 = (-radius..=radius).flat_map(|y| (-radius..=radius).map(move |x| weight(x, y))).sum();
    let rows: Vec<String> = rows.collect();
    format!(
        "extern \"C\" __global__ void naive(const unsigned char* in, unsigned char* out, int w, int h, int c) {{
           const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
           if (x >= w || y >= h) return;
           const float weights[{size}][{size}] = {{{}}};
           for (int i = 0; i < c; i++) {{
             float sum = 0;
             for (int v = 0; v < {size}; v++)
               for (int u = 0; u < {size}; u++) {{
                 const int px = max(0, min(x + u - {radius}, w - 1)), py = max(0, min(y + v - {radius}, h - 1));
                 sum += in[(py * w + px) * c + i] * weights[v][u];
               }}
             out[(y * w + x) * c + i] = (unsigned char)(sum / {sum:.1}f);
           }}
         }}",
        rows.join(", ")
    )
}

/// The same on one thread of the CPU.
fn naive_cpu(src: &[u8], dst: &mut [u8], layout: &PlaneLayout, size: u32, sigma: f64) {
    let (w, h, c, radius) = (layout.width as i32, layout.height as i32, i32::from(layout.channels), (size / 2) as i32);
    let weight = |x: i32, y: i32| (-f64::from(x * x + y * y) / (2.0 * sigma * sigma)).exp() as f32;
    let weights: Vec<f32> = (-radius..=radius).flat_map(|y| (-radius..=radius).map(move |x| weight(x, y))).collect();
    let total: f32 = weights.iter().sum();
    for (y, x, i) in (0..h).flat_map(|y| (0..w).flat_map(move |x| (0..c).map(move |i| (y, x, i)))) {
        let mut sum = 0.0;
        for (v, row) in (-radius..=radius).zip(weights.chunks(size as usize)) {
            for (u, weight) in (-radius..=radius).zip(row) {
                let (px, py) = ((x + u).clamp(0, w - 1), (y + v).clamp(0, h - 1));
                sum += f32::from(src[((py * w + px) * c + i) as usize]) * weight;
            }
        }
        dst[((y * w + x) * c + i) as usize] = (sum / total) as u8;
    }
}

fn layout(width: u32, height: u32) -> PlaneLayout {
    PlaneLayout { width, height, channels: 3, depth: 8, sigma_scale: [1.0; 2] }
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// Milliseconds of a call by the host's clock, median of `repetitions` after two.
fn timed(repetitions: usize, mut call: impl FnMut()) -> f64 {
    let times = (0..repetitions + 2).map(|_| {
        let begun = Instant::now();
        call();
        begun.elapsed()
    });
    median(times.skip(2).collect())
}

fn blur(engine: &mut Engine, params: BlurParams, layout: PlaneLayout, src: &[u8], dst: &mut [u8]) {
    let plane = Plane { layout, pitch: layout.row_bytes(), data: src };
    engine
        .blur(params, &vec![plane], &mut vec![Plane { layout, pitch: layout.row_bytes(), data: dst }])
        .expect("blurred");
}

/// Frames of the naive kernel and of ours in device memory, rows without padding.
struct Memory {
    src: DeviceMemory,
    dst: DeviceMemory,
    pinned: PinnedMemory,
    layout: PlaneLayout,
}

struct Bench {
    device: &'static Device,
    nvrtc: Nvrtc,
    stream: Stream,
}

impl Bench {
    fn open() -> Outcome<Self> {
        let device = Device::open(0)?;
        let _current = device.enter()?;
        Ok(Self { device, nvrtc: Nvrtc::open()?, stream: Stream::new(0)? })
    }

    /// The naive kernel as an image of this kind.
    fn image(&self, size: u32, sigma: f64, ptx: bool) -> Outcome<Vec<u8>> {
        let (major, minor) = self.device.capability();
        let architecture = 10 * major + minor;
        let target = if ptx { Target::Ptx(architecture) } else { Target::Cubin(architecture) };
        let options = [format!("--gpu-architecture={target}")];
        let (mut image, _) = self.nvrtc.compile(&naive_source(size, sigma), &[], &options, target)?;
        image.push(0);
        Ok(image)
    }

    fn memory(&self, layout: PlaneLayout) -> Outcome<Memory> {
        let bytes = layout.row_bytes() * layout.height as usize;
        let (src, dst) = (DeviceMemory::new(bytes, &self.stream)?, DeviceMemory::new(bytes, &self.stream)?);
        let pinned = PinnedMemory::new(bytes, &self.stream)?;
        // SAFETY: all are of this size; waited for.
        unsafe {
            let picture = noise(bytes);
            picture.as_ptr().copy_to_nonoverlapping(pinned.address(), bytes);
            self.stream.upload(&pinned, &src, bytes)?;
        }
        self.stream.synchronize()?;
        Ok(Memory { src, dst, pinned, layout })
    }

    /// Milliseconds of queued work by the device's clock.
    fn on_device(&self, mut queue: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
        let (begin, end) = (Event::new(0)?, Event::new(0)?);
        let mut times = Vec::new();
        for _ in 0..REPETITIONS + 8 {
            begin.record(&self.stream)?;
            queue()?;
            end.record(&self.stream)?;
            self.stream.synchronize()?;
            times.push(begin.until(&end)?);
        }
        Ok(median(times.split_off(8)))
    }

    /// Milliseconds of our kernels, the one for this size if it pays.
    fn ours(&self, memory: &Memory, size: u32, sigma: f64) -> Outcome<f64> {
        let params = BlurParams::new(sigma, size)?;
        let taps: [Taps; 2] = [params.taps(1.0), params.taps(1.0)];
        have_special(memory.layout, params);
        let engine = CudaEngine::new(0)?;
        let scratch = DeviceMemory::new(engine.scratch_bytes(&memory.layout, &taps).max(16), &self.stream)?;
        let pitch = memory.layout.row_bytes();
        self.on_device(|| {
            let blur = PlaneBlur {
                layout: memory.layout,
                src: (memory.src.address(), pitch),
                dst: (memory.dst.address(), pitch),
                scratch: scratch.address(),
                taps: &taps,
                passes: Passes::Best,
            };
            // SAFETY: the memory is as large as the planes and waited for; the context is current.
            unsafe { engine.queue_plane(&self.stream, &blur) }?;
            Ok(())
        })
    }

    fn five_sizes(&self, folder: &Path) -> Outcome<Table> {
        let _current = self.device.enter()?;
        let params = BlurParams::new(SIGMA, SIZE)?;
        let load = |ptx| -> Outcome<Function> {
            // SAFETY: the compiler's own output.
            Ok(unsafe { Module::load(&self.image(SIZE, SIGMA, ptx)?, 0) }?.function("naive", 0)?)
        };
        let naive = [load(true)?, load(false)?];
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
            let layout = layout(width, height);
            let memory = self.memory(layout)?;
            let bytes = layout.row_bytes() * layout.height as usize;
            let (src, mut dst) = (noise(bytes), vec![0; bytes]);
            let slow = timed(3, || naive_cpu(&src, &mut dst, &layout, SIZE, SIGMA));
            let mut cpu = Engine::on_cpu(CpuEngine::new()?);
            let cpu = timed(REPETITIONS, || blur(&mut cpu, params, layout, &src, &mut dst));
            let mut kernels = [0.0; 2];
            for (time, naive) in kernels.iter_mut().zip(naive) {
                *time = self.on_device(|| launch_naive(naive, &memory, &self.stream))?;
            }
            let ours = self.ours(&memory, SIZE, SIGMA)?;
            // As the article does: ordinary memory, one copy after the other.
            let whole_naive = timed(REPETITIONS, || {
                // SAFETY: all are of this size; the copies wait.
                unsafe {
                    result::memcpy_htod_sync(memory.src.address(), &src).expect("copied");
                    launch_naive(naive[1], &memory, &self.stream).expect("launched");
                    self.stream.synchronize().expect("done");
                    result::memcpy_dtoh_sync(&mut dst, memory.dst.address()).expect("copied");
                }
            });
            let mut cuda = Engine::on_cuda(CudaEngine::new(0)?);
            let whole = timed(REPETITIONS, || blur(&mut cuda, params, layout, &src, &mut dst));
            let times = [slow, cpu, whole_naive, whole, kernels[1], ours];
            for (line, time) in lines.iter_mut().zip(times) {
                line.1.push((f64::from(width * height) / 1e6, time));
            }
            let ratio = |time: f64| format!("{:.0}", slow / time);
            rows.push(vec![
                format!("{width}x{height}"),
                format!("{slow:.1}"),
                format!("{cpu:.3} ({})", ratio(cpu)),
                format!("{:.4}", kernels[0]),
                format!("{:.4} ({})", kernels[1], ratio(kernels[1])),
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
            title: "RGB frames, 7x7, sigma 1.5, ms; in brackets how many times as fast as the naive CPU loop of the same run",
            columns: columns.map(str::to_owned).to_vec(),
            rows,
        })
    }

    /// Every time in a process of its own, with the context there: until the first launch is done.
    fn cold_start(&self, folder: &Path) -> Outcome<Table> {
        let (ptx, cubin) = (folder.join("naive.ptx"), folder.join("naive.cubin"));
        std::fs::write(&ptx, self.image(SIZE, SIGMA, true)?)?;
        std::fs::write(&cubin, self.image(SIZE, SIGMA, false)?)?;
        let mut rows = Vec::new();
        for (name, what, image, article) in [
            ("naive kernel, PTX, driver's cache off", "image", &ptx, "97.5"),
            ("naive kernel, CUBIN", "image", &cubin, "14.8"),
            ("naive kernel, source by NVRTC", "nvrtc", &cubin, ""),
            ("ours, prebuilt CUBIN of all kernels", "prebuilt", &cubin, ""),
            ("ours, prebuilt PTX of all kernels, driver's cache off", "portable", &cubin, ""),
        ] {
            let mut times = Vec::new();
            for _ in 0..5 {
                let child = Command::new(std::env::current_exe()?)
                    .args(["--cold", what])
                    .arg(image)
                    .env("CUDA_CACHE_DISABLE", "1")
                    .env("CUDAGAUSSBLUR_CACHE", "off")
                    .output()?;
                let text = String::from_utf8(child.stdout)?;
                times.push(
                    text.trim()
                        .parse::<f64>()
                        .map_err(|_| format!("{name}: {}", String::from_utf8_lossy(&child.stderr)))?,
                );
            }
            times.sort_by(f64::total_cmp);
            rows.push(vec![name.to_owned(), format!("{:.2}", times[2]), article.to_owned()]);
        }
        let _current = self.device.enter()?;
        let memory = self.memory(layout(400, 300))?;
        // SAFETY: the compiler's own output.
        let naive = unsafe { Module::load(&std::fs::read(&cubin)?, 0) }?.function("naive", 0)?;
        let begun = Instant::now();
        for _ in 0..1000 {
            launch_naive(naive, &memory, &self.stream)?;
        }
        let warm = begun.elapsed();
        self.stream.synchronize()?;
        rows.push(vec![
            "a launch, warm, host's time".to_owned(),
            format!("{:.4}", warm.as_secs_f64()),
            "0.0044".to_owned(),
        ]);
        Ok(Table {
            title: "Cold start, ms, from the context to the end of the first launch, each in a new process, median of 5",
            columns: ["what", "here", "the article"].map(str::to_owned).to_vec(),
            rows,
        })
    }

    fn growth(&self, folder: &Path) -> Outcome<Table> {
        let _current = self.device.enter()?;
        let layout = layout(1920, 1080);
        let memory = self.memory(layout)?;
        let bytes = layout.row_bytes() * layout.height as usize;
        let (src, mut dst) = (noise(bytes), vec![0; bytes]);
        let mut lines = vec![("naive kernel", vec![]), ("our kernel", vec![]), ("CPU engine", vec![])];
        let mut rows = Vec::new();
        for size in KERNEL_SIZES {
            let sigma = f64::from(size) / 6.0;
            let ours = self.ours(&memory, size, sigma)?;
            let params = BlurParams::new(sigma, size)?;
            let mut cpu = Engine::on_cpu(CpuEngine::new()?);
            let cpu = timed(10, || blur(&mut cpu, params, layout, &src, &mut dst));
            // Beyond this its constants alone would fill the instruction caches.
            let naive = if size > 31 {
                None
            } else {
                // SAFETY: the compiler's own output.
                let naive = unsafe { Module::load(&self.image(size, sigma, false)?, 0) }?.function("naive", 0)?;
                Some(self.on_device(|| launch_naive(naive, &memory, &self.stream))?)
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

/// Blurs small frames until the kernel for this size is there, or will not be.
fn have_special(layout: PlaneLayout, params: BlurParams) {
    let layout = PlaneLayout { width: 64, height: 8, ..layout };
    let mut engine = Engine::on_cuda(CudaEngine::new(0).expect("a device"));
    let (src, mut dst) = (noise(layout.row_bytes() * 8), vec![0; layout.row_bytes() * 8]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) || engine.stats().progress.at_work {
        blur(&mut engine, params, layout, &src, &mut dst);
        if engine.stats().kernel_name.starts_with("special") {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn launch_naive(naive: Function, memory: &Memory, stream: &Stream) -> Outcome<()> {
    let PlaneLayout { width, height, channels, .. } = memory.layout;
    let (mut src, mut dst) = (memory.src.address(), memory.dst.address());
    let mut numbers = [width, height, channels.into()];
    let [w, h, c] = &mut numbers;
    let mut parameters: [*mut c_void; 5] = [
        (&raw mut src).cast(),
        (&raw mut dst).cast(),
        (&raw mut *w).cast(),
        (&raw mut *h).cast(),
        (&raw mut *c).cast(),
    ];
    let grid = (width.div_ceil(16), height.div_ceil(16), 1);
    // SAFETY: the kernel takes these, and the memory is as large as the frame.
    unsafe { result::launch_kernel(naive.raw(), grid, (16, 16, 1), 0, stream.raw(), &mut parameters) }?;
    Ok(())
}

/// One cold start, in this process.
fn cold(what: &str, image: &Path) -> Outcome<Duration> {
    let device = Device::open(0)?;
    let _current = device.enter()?;
    let stream = Stream::new(0)?;
    let bytes = 400 * 300 * 3;
    let memory = Memory {
        src: DeviceMemory::new(bytes, &stream)?,
        dst: DeviceMemory::new(bytes, &stream)?,
        pinned: PinnedMemory::new(1, &stream)?,
        layout: layout(400, 300),
    };
    let _ = memory.pinned.address();
    let image = std::fs::read(image)?;
    let begun = Instant::now();
    match what {
        "image" | "nvrtc" => {
            let image = if what == "image" {
                image
            } else {
                let bench = Bench { device, nvrtc: Nvrtc::open()?, stream: Stream::new(0)? };
                bench.image(SIZE, SIGMA, false)?
            };
            // SAFETY: written by this program.
            let naive = unsafe { Module::load(&image, 0) }?.function("naive", 0)?;
            launch_naive(naive, &memory, &stream)?;
        }
        _ => {
            let image = if what == "prebuilt" { Image::Best } else { Image::Portable };
            let engine = CudaEngine::with(0, image, Passes::Best)?;
            let taps = BlurParams::new(SIGMA, SIZE)?.taps(1.0);
            let taps = [taps.clone(), taps];
            let pitch = memory.layout.row_bytes();
            let (src, dst) = ((memory.src.address(), pitch), (memory.dst.address(), pitch));
            let blur = PlaneBlur { layout: memory.layout, src, dst, scratch: 0, taps: &taps, passes: Passes::Best };
            // SAFETY: the memory is as large as the planes; waited for below.
            unsafe { engine.queue_plane(&stream, &blur) }?;
        }
    }
    stream.synchronize()?;
    Ok(begun.elapsed())
}

/// Lines on logarithmic axes.
fn plot(file: &Path, title: &str, axes: [&str; 2], lines: &[(&str, Vec<(f64, f64)>)]) -> Outcome<()> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let range = |value: fn(&(f64, f64)) -> f64| {
        let values = points().map(value);
        let (low, high) =
            values.fold((f64::MAX, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
        (low * 0.8..high * 1.25).log_scale()
    };
    let root = SVGBackend::new(file, (900, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(range(|point| point.0), range(|point| point.1))?;
    chart.configure_mesh().x_desc(axes[0]).y_desc(axes[1]).light_line_style(WHITE).draw()?;
    for (i, (name, points)) in lines.iter().enumerate() {
        let style = Palette99::pick(i).stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style).point_size(3))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .border_style(BLACK)
        .background_style(WHITE)
        .position(SeriesLabelPosition::UpperLeft)
        .draw()?;
    root.present()?;
    Ok(())
}
