//! The CUDA kernels without a GPU: the same source, compiled as C++ through kernels/shim.h, under the sanitizers, against
//! the oracle on the case table. A thread stands for each CUDA thread, so large cases are left out.

mod common;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::cases::{self, Case, half};

/// The kernels' parameter as kernels/shared.h has it.
#[repr(C)]
#[derive(Clone, Copy)]
struct BlurArgs {
    src: u64,
    dst: u64,
    scratch: u64,
    src_pitch: u64,
    dst_pitch: u64,
    scratch_pitch: u64,
    width: u32,
    height: u32,
    depth: u32,
    channels: u32,
    row_begin: u32,
    row_end: u32,
    segment_rows: u32,
    radius: [u32; 2],
    reserved: [u32; 3],
    taps: [[u16; 404]; 2],
}

/// One launch: which kernel (0 fused, 1 rows, 2 columns) and its geometry.
#[repr(C)]
#[derive(Clone, Copy)]
struct Launch {
    kernel: u32,
    grid: [u32; 2],
    threads: u32,
    shared: u32,
}

fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: the types above are plain numbers without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The numbers of kernels/shared.h.
struct Geometry(HashMap<&'static str, u32>);

impl Geometry {
    fn read() -> Self {
        let lines = include_str!("../kernels/shared.h").lines().filter_map(|line| line.strip_prefix("#define BLUR_"));
        let geometry =
            Self(lines.filter_map(|line| line.split_once(' ')).map(|(k, v)| (k, v.parse().unwrap())).collect());
        assert_eq!(size_of::<BlurArgs>(), geometry.get("ARGS_BYTES") as usize);
        geometry
    }

    fn get(&self, name: &str) -> u32 {
        self.0[name]
    }

    fn strip(&self, case: &Case) -> u32 {
        self.get(&format!("STRIP_PIXELS_C{}", case.layout.channels))
    }

    /// Shared memory of a row's taps, and of a staged row.
    fn row_bytes(&self, case: &Case, radius: u32) -> [u32; 2] {
        let radius = radius.next_multiple_of(4);
        let (channels, sample) = (u32::from(case.layout.channels), case.layout.sample_bytes() as u32);
        let groups = (self.strip(case) + 2 * radius) / 4;
        [16 * (radius / 2 + 1), ((channels * groups + 15) / 32 * 32 + 16) * 4 * sample]
    }

    /// The launches that make rows `args.row_begin .. args.row_end` in one way or the other.
    fn launches(&self, case: &Case, args: &BlurArgs, fused: bool) -> Vec<(Launch, BlurArgs)> {
        let rows = args.row_end - args.row_begin;
        let strips = args.width.div_ceil(self.strip(case));
        let [across, down] = args.radius;
        let [row_taps, stage] = self.row_bytes(case, across);
        if fused {
            let step = self.get("FUSED_STEP");
            let ring = ((2 * down).next_multiple_of(step) + step) * self.strip(case) * args.channels * 2;
            let column_taps = 4 * (8 + (2 * down + 8).next_multiple_of(4));
            let launch = Launch {
                kernel: 0,
                grid: [strips, rows.div_ceil(args.segment_rows)],
                threads: self.get("FUSED_THREADS"),
                shared: ring + row_taps + column_taps + step * stage,
            };
            return vec![(launch, *args)];
        }
        let reach = BlurArgs {
            row_begin: args.row_begin.saturating_sub(down),
            row_end: args.height.min(args.row_end + down),
            ..*args
        };
        let step = self.get("ROWS_STEP");
        let across = Launch {
            kernel: 1,
            grid: [strips, (reach.row_end - reach.row_begin).div_ceil(step)],
            threads: self.get("ROWS_THREADS"),
            shared: row_taps + step * stage,
        };
        let samples = self.get("COLUMNS_STRIP_SAMPLES");
        let down = Launch {
            kernel: 2,
            grid: [(args.width * args.channels).div_ceil(samples), rows.div_ceil(self.get("COLUMNS_STEP"))],
            threads: self.get("COLUMNS_THREADS"),
            shared: 2 * self.get("COLUMNS_CHUNK") * samples * 2 + 4 * (16 + (2 * down + 16).next_multiple_of(16)),
        };
        vec![(across, reach), (down, *args)]
    }
}

/// The kernels as a program on the CPU, built with a sanitizer.
struct Program(Child);

impl Program {
    fn build(sanitizer: &str) -> Self {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-{}", &sanitizer[..6]));
        let built = Command::new("g++")
            .args(["-std=c++20", "-O1", "-g", "-w", "-pthread", "-fno-sanitize-recover=all", "-x", "c++"])
            .arg(format!("-fsanitize={sanitizer}"))
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

    /// Blurs the case by these launches and compares every byte with the oracle.
    fn check(&mut self, geometry: &Geometry, case: &Case, fused: bool, bands: u32) -> usize {
        let [rows, columns] = case.layout.sigma_scale.map(|scale| case.params().taps(scale));
        let mut taps = [[0; 404]; 2];
        for (taps, half) in taps.iter_mut().zip([half(&rows), half(&columns)]) {
            for (to, tap) in taps.iter_mut().zip(half) {
                *to = tap as u16;
            }
        }
        case.check(|src, dst| {
            let (src, dst) = (&src[0], &mut dst[0]);
            let layout = case.layout;
            let channels = u32::from(layout.channels);
            let scratch_pitch = layout.width.next_multiple_of(geometry.strip(case)) * channels * 2;
            let args = BlurArgs {
                src: 0,
                dst: 0,
                scratch: 0,
                src_pitch: src.pitch as u64,
                dst_pitch: dst.pitch as u64,
                scratch_pitch: scratch_pitch.into(),
                width: layout.width,
                height: layout.height,
                depth: layout.depth.into(),
                channels,
                row_begin: 0,
                row_end: 0,
                segment_rows: 48,
                radius: [&rows, &columns].map(|taps| taps.radius() as u32),
                reserved: [0; 3],
                taps,
            };
            let edges: Vec<u32> = (0..=bands).map(|band| layout.height * band / bands).collect();
            let bands = edges.windows(2).filter(|edge| edge[0] < edge[1]);
            let bands = bands.map(|edge| BlurArgs { row_begin: edge[0], row_end: edge[1], ..args });
            let (launches, args): (Vec<_>, Vec<_>) =
                bands.flat_map(|args| geometry.launches(case, &args, fused)).unzip();
            let scratch = if fused { 0 } else { scratch_pitch * layout.height };
            let sizes = [src.data.len() as u32, dst.data.len() as u32, scratch];
            let job = [launches.len() as u32, layout.sample_bytes() as u32, channels, sizes[0], sizes[1], sizes[2]];
            let input = self.0.stdin.as_mut().unwrap();
            for part in [bytes_of(&job), bytes_of(&launches), bytes_of(&args), src.data, dst.data] {
                input.write_all(part).expect("the kernels' program listens");
            }
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

/// Multiply-and-adds of a case, roughly.
fn work(case: &Case) -> usize {
    let [rows, columns] = case.layout.sigma_scale.map(|scale| case.params().taps(scale).radius());
    case.layout.row_samples() * case.layout.height as usize * (rows + columns + 8)
}

fn run(sanitizer: &str, every: usize, most_work: usize) {
    let geometry = Geometry::read();
    let mut program = Program::build(sanitizer);
    let cases: Vec<Case> = cases::all().into_iter().filter(|case| work(case) <= most_work).step_by(every).collect();
    let mut bytes = 0;
    for (i, case) in cases.iter().enumerate() {
        let down = case.params().taps(case.layout.sigma_scale[1]).radius();
        if down <= 24 {
            bytes += program.check(&geometry, case, true, 1 + (i % 3) as u32);
        }
        if down > 24 || i % 2 == 0 {
            bytes += program.check(&geometry, case, false, 1 + (i % 3) as u32);
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
