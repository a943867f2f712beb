//! The CUDA kernels without a GPU: the same source, compiled as C++ through kernels/shim.h, under the sanitizers, against
//! the oracle on the case table. A thread stands for each CUDA thread, so large cases are left out.

mod common;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::cases::{self, Case, Content};
use gstcudagaussblur::cuda::launch::{self, BlurArgs, Launch, Limits, Passes, PlaneBlur};
use gstcudagaussblur::frame::PlaneLayout;

/// A device so small that even a small frame is several blocks high.
const LIMITS: Limits = Limits { multiprocessors: 1, shared_bytes: 227 << 10 };

fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: the callers' types are plain numbers without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The kernels as a program on the CPU, built with a sanitizer.
struct Program(Child);

impl Program {
    fn build(sanitizer: &str, defines: &[String]) -> Self {
        let name = format!("kernels-{}{}", &sanitizer[..6], defines.concat());
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let built = Command::new("g++")
            .args(["-std=c++20", "-O1", "-g", "-w", "-pthread", "-fno-sanitize-recover=all", "-x", "c++"])
            .arg(format!("-fsanitize={sanitizer}"))
            .args(defines)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/run.cpp"))
            .arg("-o")
            .arg(&program)
            .output()
            .expect("g++ is needed to test the kernels: install it with scripts/setup");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        // Without address space randomisation, where that can be had: with much of it some thread sanitizers do not start.
        let fixed = Command::new("setarch").args(["-R", "true"]).output().is_ok_and(|output| output.status.success());
        let mut command = Command::new(if fixed { Path::new("setarch") } else { &program });
        if fixed {
            command.arg("-R").arg(&program);
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Self(child.expect("the kernels' program starts"))
    }

    /// Blurs the case by the engine's launches, in bands, and compares every byte with the oracle.
    fn check(&mut self, case: &Case, passes: Passes, bands: u32) -> usize {
        let taps = case.layout.sigma_scale.map(|scale| case.params().taps(scale));
        case.check(|src, dst| {
            let (src, dst) = (&src[0], &mut dst[0]);
            let layout = case.layout;
            // The program fills in the addresses.
            let blur = PlaneBlur { layout, src: (0, src.pitch), dst: (0, dst.pitch), scratch: 0, taps: &taps, passes };
            let edges: Vec<u32> = (0..=bands).map(|band| layout.height * band / bands).collect();
            let bands = edges.windows(2).filter(|edge| edge[0] < edge[1]);
            let launches: Vec<Launch> =
                bands.flat_map(|edge| launch::launches(&blur, edge[0]..edge[1], LIMITS)).collect();
            let scratch = launch::scratch_bytes(&layout, &taps, passes, LIMITS);
            let sizes = [layout.sample_bytes(), layout.channels.into(), src.data.len(), dst.data.len(), scratch];
            let input = self.0.stdin.as_mut().unwrap();
            let mut send = |bytes: &[u8]| input.write_all(bytes).expect("the kernels' program listens");
            send(bytes_of(&[launches.len() as u32]));
            send(bytes_of(&sizes.map(|size| size as u32)));
            for Launch { kernel, grid: [x, y], threads, shared_bytes, args } in launches {
                send(bytes_of(&[kernel as u32, x, y, threads, shared_bytes]));
                send(bytes_of::<BlurArgs>(&[args]));
            }
            send(src.data);
            send(dst.data);
            input.flush().unwrap();
            let output = self.0.stdout.as_mut().unwrap();
            output.read_exact(dst.data).expect("the kernels' program was stopped by its sanitizer");
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let ended = self.0.wait();
        assert!(
            std::thread::panicking() || ended.is_ok_and(|status| status.success()),
            "a sanitizer had something to say"
        );
    }
}

fn run(sanitizer: &str, every: usize, most_work: usize) {
    let mut program = Program::build(sanitizer, &[]);
    let cases: Vec<Case> = cases::all().into_iter().filter(|case| case.work() <= most_work).step_by(every).collect();
    let mut bytes = 0;
    for (i, case) in cases.iter().enumerate() {
        let down = case.params().taps(case.layout.sigma_scale[1]).radius();
        let bands = 1 + (i % 3) as u32;
        if down <= 24 {
            bytes += program.check(case, Passes::Fused, bands);
        }
        if down > 24 || i % 2 == 0 {
            bytes += program.check(case, Passes::Split, bands);
        }
    }
    println!("kernels on the CPU under {sanitizer}: {} cases, {bytes} bytes, 0 differ", cases.len());
    assert!(cases.len() >= 20);
}

#[test]
fn kernels_give_the_oracles_bytes_under_the_address_and_undefined_sanitizers() {
    run("address,undefined", 4, 4 << 20);
}

#[test]
fn kernels_have_no_race_under_the_thread_sanitizer() {
    run("thread", 40, 1 << 19);
}

/// Kernels for one pair of radii, with all kinds of planes, each at sizes from one pixel to several blocks.
#[test]
fn special_kernels_give_the_oracles_bytes_under_the_address_and_undefined_sanitizers() {
    let mut bytes = 0;
    for (channels, depth, kernel_size, scale, radius) in [
        (4, 8, 7, [1.0, 1.0], [3, 3]),
        (1, 8, 1, [1.0, 1.0], [0, 0]),
        (2, 8, 15, [1.0, 0.5], [7, 4]),
        (3, 8, 31, [0.5, 1.0], [8, 15]),
        (1, 8, 49, [1.0, 1.0], [24, 24]),
        (4, 10, 31, [1.0, 1.0], [15, 15]),
        (3, 16, 3, [1.0, 1.0], [1, 1]),
    ] {
        let sample = if depth == 8 { "u8" } else { "u16" };
        let [rows, columns] = radius;
        let defines = [
            format!("-DBLUR_RADIUS_ROWS={rows}"),
            format!("-DBLUR_RADIUS_COLUMNS={columns}"),
            format!("-DBLUR_SAMPLE_TYPE={sample}"),
            format!("-DBLUR_CHANNEL_COUNT={channels}"),
        ];
        let mut program = Program::build("address,undefined", &defines);
        for (i, (width, height)) in [(1, 1), (3, 5), (67, 37), (130, 21), (261, 9)].into_iter().enumerate() {
            let layout = PlaneLayout { width, height, channels, depth, sigma_scale: scale };
            let sigma = f64::from(kernel_size).max(3.0) / 2.0;
            let content = [Content::Noise, Content::Extremes][i % 2];
            let case = Case { sigma, kernel_size, layout, padding: [[0, 5], [13, 0]][i % 2], content };
            assert_eq!(scale.map(|scale| case.params().taps(scale).radius()), radius, "the test's own radii");
            bytes += program.check(&case, Passes::Special, 1 + (i % 3) as u32);
        }
    }
    println!("special kernels on the CPU: {bytes} bytes, 0 differ");
}
