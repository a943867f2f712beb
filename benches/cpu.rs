//! Compares the CPU engine with other CPU blurs in one run on one machine. README.md explains the table.

#[expect(dead_code, reason = "the bench uses only the oracle's Gaussian")]
#[path = "../tests/common/oracle.rs"]
mod oracle;

#[path = "../tests/common/borrowed.rs"]
mod borrowed;

#[path = "common/curve.rs"]
mod curve;

#[path = "common/regions.rs"]
mod regions;

#[path = "common/person.rs"]
mod person;
#[path = "common/soft.rs"]
mod soft;

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_check::Harness;
use libblur::{BlurImage, BlurImageMut, ConvolutionMode, EdgeMode, FastBlurChannels, GaussianBlurParams};

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;
const SIGMAS: [f64; 3] = [1.5, 5.0, 20.0];
const ROUNDS: usize = 15;
/// The time for which each implementation blurs frame after frame in every round.
const TURN: Duration = Duration::from_millis(50);
/// Width and height of the centre of the frame that is compared with the Gaussian, far enough from the edges that the
/// implementations' different border modes do not matter.
const WINDOW: [usize; 2] = [640, 360];
const FORMATS: [(&str, usize, FastBlurChannels); 3] = [
    ("GRAY8", 1, FastBlurChannels::Plane),
    ("RGB", 3, FastBlurChannels::Channels3),
    ("RGBA", 4, FastBlurChannels::Channels4),
];
const OURS: &str = "cudagaussblur";

/// A frame of gradients, edges and noise, the same in every run. Channel c is the same in every format.
fn frame(channels: usize) -> Vec<u8> {
    let sample = |i: usize, c: usize| {
        let hash = ((4 * i + c) as u32).wrapping_mul(0x9e37_79b9);
        let noise = f64::from((hash ^ hash >> 15).wrapping_mul(0x85eb_ca6b) >> 27) - 16.0;
        let (x, y, c) = ((i % WIDTH) as f64, (i / WIDTH) as f64, c as f64);
        let slopes = 60.0 * (x / 97.0 + c).sin() * (y / 61.0 - c).cos();
        let edges = if ((x / 43.0 + c).floor() + (y / 29.0).floor()) % 2.0 == 0.0 { 35.0 } else { -35.0 };
        (128.0 + slopes + edges + noise) as u8
    };
    (0..WIDTH * HEIGHT).flat_map(|i| (0..channels).map(move |c| sample(i, c))).collect()
}

trait Blur {
    /// Blurs the frame and returns the time of the blur alone.
    fn blur(&mut self) -> Duration;
    /// The output of the last blur.
    fn output(&mut self) -> Vec<u8>;
}

/// A GStreamer element in a harness, timed from the push of a frame to the pull of the blurred one.
struct Element {
    harness: Harness,
    frame: Rc<Vec<u8>>,
    inputs: gst::BufferPool,
    output: Option<gst::Buffer>,
}

impl Element {
    fn open(launch: &str, format: &str, frame: &Rc<Vec<u8>>, package: &str) -> Result<Box<dyn Blur>, String> {
        let name = launch.split(' ').next().unwrap_or_default();
        if gst::ElementFactory::find(name).is_none() {
            return Err(format!("GStreamer has no element {name}; install {package}"));
        }
        let element = gst::parse::launch(launch).map_err(|error| error.to_string())?;
        let mut harness = Harness::with_element(&element, Some("sink"), Some("src"));
        harness.set_src_caps_str(&format!("video/x-raw,format={format},width={WIDTH},height={HEIGHT},framerate=30/1"));
        let inputs = gst::BufferPool::new();
        let mut config = inputs.config();
        config.set_params(None, frame.len() as u32, 1, 0);
        inputs.set_config(config).and_then(|()| inputs.set_active(true)).map_err(|error| error.to_string())?;
        Ok(Box::new(Self { harness, frame: frame.clone(), inputs, output: None }))
    }
}

impl Blur for Element {
    fn blur(&mut self) -> Duration {
        self.output = None;
        // The only reference to the buffer, so that an in-place element need not copy it.
        let mut input = self.inputs.acquire_buffer(None).expect("the pool has a free buffer");
        input.make_mut().copy_from_slice(0, &self.frame).expect("the frame fits");
        let start = Instant::now();
        let output = self.harness.push_and_pull(input).expect("a blurred frame");
        let time = start.elapsed();
        self.output = Some(output);
        time
    }

    fn output(&mut self) -> Vec<u8> {
        self.output.as_ref().and_then(|buffer| buffer.map_readable().ok()).expect("a blurred frame").to_vec()
    }
}

/// The crate libblur.
struct Libblur {
    frame: Rc<Vec<u8>>,
    output: Vec<u8>,
    layout: FastBlurChannels,
    params: GaussianBlurParams,
    mode: ConvolutionMode,
}

impl Blur for Libblur {
    fn blur(&mut self) -> Duration {
        let src = BlurImage::borrow(&self.frame, WIDTH as u32, HEIGHT as u32, self.layout);
        let mut dst = BlurImageMut::borrow(&mut self.output, WIDTH as u32, HEIGHT as u32, self.layout);
        let (edges, threads) = (EdgeMode::Clamp.as_2d(), libblur::ThreadingPolicy::Adaptive);
        let start = Instant::now();
        libblur::gaussian_blur(&src, &mut dst, self.params, edges, threads, self.mode).expect("a blurred frame");
        start.elapsed()
    }

    fn output(&mut self) -> Vec<u8> {
        self.output.clone()
    }
}

/// The Python process of opencv.py, which answers each command line with one line.
struct OpenCv {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl OpenCv {
    const OUTPUT: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/opencv-output.raw");

    /// Starts the process. Also returns its first line: OpenCV's version and thread count.
    fn start(frame: &[u8]) -> Result<(Self, String), String> {
        let input = Path::new(env!("CARGO_TARGET_TMPDIR")).join("opencv-input.raw");
        std::fs::write(&input, frame).map_err(|error| format!("{}: {error}", input.display()))?;
        let mut process = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/python"))
            .args(["cv2,numpy", "--", concat!(env!("CARGO_MANIFEST_DIR"), "/benches/opencv.py")])
            .args([&input, Path::new(Self::OUTPUT)])
            .args([WIDTH, HEIGHT].map(|size| size.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("scripts/python does not start ({error}); install bash"))?;
        let (commands, answers) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        let mut opencv = Self { process, commands, answers: BufReader::new(answers) };
        let about = opencv.answer();
        about.starts_with("OpenCV").then_some((opencv, about.clone())).ok_or(about)
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(1..) => line.trim_end().to_owned(),
            _ => "opencv.py ended early; standard error has the reason".to_owned(),
        }
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").expect("opencv.py reads its input");
        self.answer()
    }
}

impl Drop for OpenCv {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

/// One blur of the shared [`OpenCv`] process.
struct OpenCvBlur {
    opencv: Rc<RefCell<OpenCv>>,
    command: String,
}

impl Blur for OpenCvBlur {
    fn blur(&mut self) -> Duration {
        Duration::from_nanos(self.opencv.borrow_mut().ask(&self.command).parse().expect("nanoseconds"))
    }

    fn output(&mut self) -> Vec<u8> {
        // The process keeps the output of its last blur, which may belong to another row.
        self.blur();
        assert_eq!(self.opencv.borrow_mut().ask("save"), "saved");
        std::fs::read(OpenCv::OUTPUT).expect("the file that opencv.py saved")
    }
}

/// A row of the table.
struct Row {
    name: &'static str,
    format: &'static str,
    channels: usize,
    sigma: f64,
    taps: usize,
    blur: Result<Box<dyn Blur>, String>,
    milliseconds: Vec<f64>,
}

/// The rows of all implementations, grouped by sigma and channel count, ours first in each group.
fn rows(frames: &[Rc<Vec<u8>>; 3], opencv: &Result<Rc<RefCell<OpenCv>>, String>) -> Vec<Row> {
    let mut rows = Vec::new();
    for sigma in SIGMAS {
        let taps = 2 * (4.0 * sigma + 0.5) as usize + 1;
        for ((format, channels, layout), frame) in FORMATS.into_iter().zip(frames) {
            let mut add = |name, format, taps, blur| {
                rows.push(Row { name, format, channels, sigma, taps, blur, milliseconds: Vec::new() });
            };
            let ours = Element::open(&format!("{OURS} backend=cpu sigma={sigma}"), format, frame, "this crate");
            add(OURS, format, taps, ours);
            if format == "RGB" {
                let launch = format!("cvsmooth type=gaussian kernel-width={taps} kernel-height={taps} color={sigma}");
                add("cvsmooth", format, taps, Element::open(&launch, format, frame, "gstreamer1.0-opencv"));
            }
            if format == "RGBA" && sigma <= 5.0 {
                // gaussianblur chooses its kernel size itself.
                let taps = 2 * (2.5 * sigma).ceil() as usize + 1;
                let launch = format!("gaussianblur sigma={sigma}");
                let blur = Element::open(&launch, "AYUV", frame, "gstreamer1.0-plugins-bad");
                add("gaussianblur", "AYUV", taps, blur);
            }
            let command = format!("{channels} {taps} {sigma}");
            let blur = opencv.clone().map(|opencv| Box::new(OpenCvBlur { opencv, command }) as Box<dyn Blur>);
            add("OpenCV", format, taps, blur);
            let modes =
                [("libblur FixedPoint", ConvolutionMode::FixedPoint), ("libblur Exact", ConvolutionMode::Exact)];
            for (name, mode) in modes {
                let (frame, output) = (frame.clone(), vec![0; frame.len()]);
                let params = GaussianBlurParams::new(taps as u32, sigma);
                add(name, format, taps, Ok(Box::new(Libblur { frame, output, layout, params, mode })));
            }
        }
    }
    rows
}

/// The true Gaussian of the window in float64, four channels.
fn gaussian(frame: &[u8], sigma: f64) -> Vec<f64> {
    // Two billionths of the Gaussian's weight lie beyond six sigma.
    let margin = (6.0 * sigma).ceil() as usize;
    let [width, height] = WINDOW.map(|size| size + 2 * margin);
    let (left, top) = ((WIDTH - width) / 2, (HEIGHT - height) / 2);
    let row = |y: usize| frame[4 * ((top + y) * WIDTH + left)..][..4 * width].iter();
    let samples = (0..height).flat_map(row).map(|sample| u16::from(*sample)).collect();
    let blurred = oracle::Image { width, height, channels: 4, depth: 8, samples }.gaussian(sigma);
    let row = |y: usize| blurred[4 * ((margin + y) * width + margin)..][..4 * WINDOW[0]].iter();
    (0..WINDOW[1]).flat_map(row).copied().collect()
}

/// Largest and mean distance of a blurred frame from the Gaussian, in LSB.
fn errors(output: &[u8], channels: usize, gaussian: &[f64]) -> [f64; 2] {
    let (left, top) = ((WIDTH - WINDOW[0]) / 2, (HEIGHT - WINDOW[1]) / 2);
    let (mut largest, mut sum) = (0.0_f64, 0.0);
    for (i, exact) in gaussian.chunks(4).enumerate() {
        let at = (top + i / WINDOW[0]) * WIDTH + left + i % WINDOW[0];
        for (sample, exact) in output[channels * at..][..channels].iter().zip(exact) {
            let error = (f64::from(*sample) - exact).abs();
            (largest, sum) = (largest.max(error), sum + error);
        }
    }
    [largest, sum / (WINDOW[0] * WINDOW[1] * channels) as f64]
}

/// The instruction set that our element reports.
fn kernel() -> String {
    let element = gst::ElementFactory::make(OURS).property_from_str("backend", "cpu").build().expect("the element");
    element.set_state(gst::State::Paused).expect("the CPU engine");
    let kernel = element.property::<gst::Structure>("stats").get("kernel").expect("a name");
    element.set_state(gst::State::Null).expect("a stop");
    kernel
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    // `cargo test --all-targets` runs benches too, but without this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    gst::init().expect("GStreamer");
    gstcudagaussblur::plugin_register_static().expect("the element");
    if std::env::args().any(|argument| argument == "curve") {
        return curve::print(WIDTH as u32, HEIGHT as u32);
    }
    if std::env::args().any(|argument| argument == "soft") {
        return soft::print((WIDTH as u32, HEIGHT as u32));
    }
    if std::env::args().any(|argument| argument == "crowds") {
        return regions::print_crowds();
    }
    if std::env::args().any(|argument| argument == "regions") {
        regions::print(WIDTH as u32, HEIGHT as u32);
        regions::print_many(WIDTH as u32, HEIGHT as u32);
        [(1920, 1080), (3840, 2160)].iter().for_each(|(width, height)| regions::print_copies(*width, *height));
        regions::print_untouched();
        return regions::print_tracks();
    }
    let frames = FORMATS.map(|(_, channels, _)| Rc::new(frame(channels)));
    let (opencv, about_opencv) = match OpenCv::start(&frames[2]) {
        Ok((opencv, about)) => (Ok(Rc::new(RefCell::new(opencv))), about),
        Err(reason) => (Err(reason), "no OpenCV".to_owned()),
    };
    let mut rows = rows(&frames, &opencv);
    for round in 0..ROUNDS {
        for row in &mut rows {
            if let Ok(blur) = &mut row.blur {
                // Warms the caches, as the previous frame of a stream does.
                blur.blur();
                let (mut time, mut frames) = (Duration::ZERO, 0);
                while time < TURN {
                    time += blur.blur();
                    frames += 1;
                }
                row.milliseconds.push(time.as_secs_f64() * 1e3 / f64::from(frames));
            }
        }
        eprintln!("round {} of {ROUNDS}", round + 1);
    }
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown CPU");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("- Date: {}", gst::glib::DateTime::now_utc().and_then(|now| now.format("%F")).unwrap_or_default());
    println!("- CPU: {}, {cores} cores, instruction set of ours: {}", model.trim_matches([' ', '\t', ':']), kernel());
    println!("- Software: {}, {about_opencv}", gst::version_string());
    println!("- Frame: {WIDTH}x{HEIGHT}, 8 bits\n- Command: cargo bench --bench cpu\n");
    println!("| blur | format | sigma | taps | ms, median (min–max) | time / ours | largest error | mean error |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for sigma in SIGMAS {
        let gaussian = gaussian(&frames[2], sigma);
        let mut ours = Vec::new();
        for row in rows.iter_mut().filter(|row| row.sigma == sigma) {
            print!("| {} | {} | {sigma} | {} | ", row.name, row.format, row.taps);
            match &mut row.blur {
                Err(reason) => println!("not available: {reason} | | | |"),
                Ok(blur) => {
                    let times = &row.milliseconds;
                    let [min, max] = [f64::min, f64::max].map(|f| times.iter().copied().reduce(f).unwrap_or(f64::NAN));
                    if row.name == OURS {
                        ours.clone_from(times);
                    }
                    let ratio = median(times.iter().zip(&ours).map(|(theirs, ours)| theirs / ours));
                    let [largest, mean] = errors(&blur.output(), row.channels, &gaussian);
                    print!("{:.2} ({min:.2}–{max:.2}) | {ratio:.2} | ", median(times.iter().copied()));
                    println!("{largest:.3} | {mean:.3} |");
                }
            }
        }
    }
    curve::print(WIDTH as u32, HEIGHT as u32);
}
