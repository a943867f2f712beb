//! The CUDA kernels without a GPU: the same source, compiled as C++ through kernels/shim.h, under the sanitizers, against
//! the oracle on the case table. A thread stands for each CUDA thread, so large cases are left out.

mod common;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::cases::{self, Case, Content};
use gstcudagaussblur::cuda::launch::{self, Args, Launch, Limits, Passes, PlaneBlur};
use gstcudagaussblur::cuda::work::Work;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::frame::{Frame, FrameMut, Pixels, PlaneLayout};
use gstcudagaussblur::plan::{self, Job};

/// A device so small that even a small frame is several blocks high.
const LIMITS: Limits = Limits { multiprocessors: 1, shared_bytes: 227 << 10 };

fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: the callers' types are plain numbers without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// What the driver copies without a kernel.
fn copy_rows(src: &Frame, dst: &mut FrameMut, jobs: &[Job]) {
    for Job { plane, field, .. } in jobs.iter().filter(|job| job.taps.is_none()) {
        let (from, to) = (&src[*plane], &mut dst[*plane]);
        for row in (0..field.layout.height as usize).map(|row| field.first_row + row * field.step) {
            let bytes = field.layout.row_bytes();
            to.data[row * to.pitch..][..bytes].copy_from_slice(&from.data[row * from.pitch..][..bytes]);
        }
    }
}

/// The kernels as a program on the CPU, built with a sanitizer.
struct Program(Child);

impl Program {
    fn build(sanitizer: &str, defines: &[String]) -> Self {
        let defined: String = defines.concat().chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("kernels-{}{defined}", &sanitizer[..6]);
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

    /// Blurs the case by the engine's launches, planes in bands, and compares every byte with the oracle.
    fn check(&mut self, case: &Case, passes: Passes, bands: u32) -> usize {
        case.check(|src, dst| {
            // The program knows memory by the number of a block: sources, destinations, and one for all else.
            let address = |block: usize| (block as u64 + 1) << 40;
            let planes: Vec<_> =
                (0..src.len()).map(|i| ((address(i), src[i].pitch), (address(src.len() + i), dst[i].pitch))).collect();
            let layouts: Vec<_> = src.iter().map(|plane| plane.layout).collect();
            let jobs = plan::jobs(case.options, &layouts);
            let extra = address(2 * src.len());
            let work = Work::new(&jobs, &planes, extra, None);
            copy_rows(src, dst, &jobs);
            let scratch = extra + work.product_bytes as u64;
            let mut launches = work.before.clone();
            let mut scratch_bytes = 0;
            for group in &work.groups {
                scratch_bytes = scratch_bytes.max(group.scratch_bytes(passes, LIMITS));
                for band in 0..bands {
                    let in_band = group.planes().iter().filter_map(|plane| {
                        let edge = |band: u32| plane.layout.height * band / bands;
                        let rows = edge(band)..edge(band + 1);
                        (!rows.is_empty()).then(|| PlaneBlur { rows, ..plane.clone() })
                    });
                    for part in launch::groups(in_band) {
                        launches.extend(part.launches(scratch, passes, LIMITS));
                    }
                }
            }
            launches.extend(&work.after);
            self.send(&[(2 * src.len() + 1) as u32, launches.len() as u32]);
            for plane in src {
                self.send(&[plane.data.len() as u32, 0]);
                self.send(plane.data);
            }
            for plane in dst.iter() {
                self.send(&[plane.data.len() as u32, 1]);
                self.send(plane.data);
            }
            let bytes = (work.product_bytes + scratch_bytes).max(16);
            self.send(&[bytes as u32, 0]);
            self.send(&vec![0xa5_u8; bytes]);
            for Launch { kernel, blocks, threads, shared_bytes, args } in &launches {
                let name = kernel.entry_point() + "\0";
                let parameter = match args {
                    Args::Blur(args) => bytes_of(std::slice::from_ref(args)),
                    Args::Alpha(args) => bytes_of(std::slice::from_ref(args)),
                };
                self.send(&[*blocks, *threads, *shared_bytes, name.len() as u32, parameter.len() as u32]);
                self.send(name.as_bytes());
                self.send(parameter);
            }
            self.0.stdin.as_mut().unwrap().flush().unwrap();
            let output = self.0.stdout.as_mut().unwrap();
            for plane in dst {
                output.read_exact(plane.data).expect("the kernels' program was stopped by its sanitizer");
            }
        })
    }

    fn send<T: Copy>(&mut self, values: &[T]) {
        self.0.stdin.as_mut().unwrap().write_all(bytes_of(values)).expect("the kernels' program listens");
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
        let down =
            case.planes.iter().map(|plane| case.options.params.taps(plane.sigma_scale[1]).radius()).max().unwrap();
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
    run("address,undefined", 5, 4 << 20);
}

#[test]
fn kernels_have_no_race_under_the_thread_sanitizer() {
    run("thread", 53, 1 << 19);
}

/// Kernels for one frame's radii, with all kinds of planes, each at sizes from one pixel to several blocks.
#[test]
fn special_kernels_give_the_oracles_bytes_under_the_address_and_undefined_sanitizers() {
    let new = |channels, depth, scale| PlaneLayout { sigma_scale: scale, ..PlaneLayout::new(0, 0, channels, depth) };
    let pairs = PlaneLayout { pixels: Pixels::Yuv422 { luma: 0 }, ..new(4, 8, [1.0, 1.0]) };
    let tens = PlaneLayout { pixels: Pixels::Ten, ..new(4, 10, [1.0, 1.0]) };
    let mut bytes = 0;
    for (planes, kernel_size, defines) in [
        (&[new(4, 8, [1.0, 1.0])][..], 7, &["Plain<u8,4>,Fixed<0,3,3,3>"][..]),
        (&[new(1, 8, [1.0, 1.0])], 1, &["Plain<u8,1>,Fixed<0,0,0,0>"]),
        (&[new(2, 8, [1.0, 0.5])], 15, &["Plain<u8,2>,Fixed<0,7,4,7>"]),
        (&[new(3, 8, [0.5, 1.0])], 31, &["Plain<u8,3>,Fixed<0,8,15,8>"]),
        (
            &[new(1, 8, [1.0, 1.0]), new(2, 8, [0.5, 0.5])],
            49,
            &["Plain<u8,1>,Fixed<0,24,24,24>", "Plain<u8,2>,Fixed<1,12,12,12>"],
        ),
        (&[new(4, 10, [1.0, 1.0])], 31, &["Plain<u16,4>,Fixed<0,15,15,15>"]),
        (&[new(3, 16, [1.0, 1.0])], 3, &["Plain<u16,3>,Fixed<0,1,1,1>"]),
        (&[pairs], 13, &["Yuv422,Fixed<0,6,6,3>"]),
        (&[tens], 15, &["Ten,Fixed<0,7,7,7>"]),
    ] {
        let mut defines: Vec<String> =
            defines.iter().enumerate().map(|(kind, define)| format!("-DBLUR_SPECIAL_{kind}={define}")).collect();
        defines.push(format!("-DBLUR_ALONE={}", planes.len() == 1));
        let mut program = Program::build("address,undefined", &defines);
        for (i, (width, height)) in [(1, 1), (3, 5), (67, 37), (130, 21), (261, 9)].into_iter().enumerate() {
            let sized = |layout: &PlaneLayout| PlaneLayout { width, height, ..*layout };
            let params = BlurParams::new(f64::from(kernel_size).max(3.0) / 2.0, kernel_size).unwrap();
            let content = [Content::Noise, Content::Extremes][i % 2];
            let planes: Vec<_> = planes.iter().map(sized).collect();
            let case = Case { options: params.into(), planes, padding: [[0, 5], [13, 0]][i % 2], content };
            bytes += program.check(&case, Passes::Special, 1 + (i % 3) as u32);
        }
    }
    println!("special kernels on the CPU: {bytes} bytes, 0 differ");
}
