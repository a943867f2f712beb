//! The CUDA kernels without a GPU: the same source, compiled as C++ through tests/kernels/on_cpu.h and run under the sanitizers,
//! against the oracle on the case table. Large cases take too long there and are left out.

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use common::Noise;
use common::borrowed::{Borrowing, FrameMut};
use common::cases::{self, Case, Content};
use common::device_frames::{all_covers, blur};
use common::pictures::{self, Picture};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::driver::LaunchConfig;
use gstcudagaussblur::cuda::driver::device::DeviceLimits;
use gstcudagaussblur::cuda::kernels::abi::{
    AlphaArgs, ColumnsArgs, ColumnsPlane, CoverArgs, CoverRect, KernelSet, MosaicArgs, MosaicGrid, MosaicPlane,
    PixelFamily, RowsArgs, RowsPart, RowsPlane, SoftArgs, SoftGrid, StoredChannel, TensorArgs, TensorPlane,
};
use gstcudagaussblur::cuda::kernels::entry::Entry;
use gstcudagaussblur::cuda::kernels::launch::{Args, Launch};
use gstcudagaussblur::cuda::kernels::lower::{Lowered, Lowering, Step};
use gstcudagaussblur::cuda::kernels::tensor_direct::DirectKernel;
use gstcudagaussblur::cuda::transfer::schedule::{Division, Schedule};
use gstcudagaussblur::cuda::{DevicePlanes, TILES};
use gstcudagaussblur::engine::{Cover, Engine, Softness};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{Frame, Plane, PlaneLayout, Role, SampleLayout};
use gstcudagaussblur::filter::operation::{Buffer, Operation, View};
use gstcudagaussblur::filter::parts::{Job, Parts};
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Plan};
use gstcudagaussblur::filter::plane::DevicePlane;
use gstcudagaussblur::filter::regions::Rect;

/// A device so small that even small frames are several blocks high.
const LIMITS: DeviceLimits = DeviceLimits { multiprocessors: 1, shared_bytes: 227 << 10 };

fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: the callers' types are numbers or structs of numbers without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Executes the copies of a plan, which the driver does without a kernel.
fn copy_planes(src: &Frame, dst: &mut FrameMut, plan: &Plan) {
    for operation in plan.operations() {
        let Operation::Copy { source: View { buffer: Buffer::Source(plane), field }, .. } = operation else { continue };
        let (from, to) = (&src[*plane], &mut dst[*plane]);
        for row in (0..field.layout.height).map(|row| field.plane_row(row)) {
            let (first, bytes) = (field.first_byte(), field.layout.row_bytes());
            to.data[row * to.pitch + first..][..bytes].copy_from_slice(&from.data[row * from.pitch + first..][..bytes]);
        }
    }
}

/// A rectangle in bands of a multiple of so many rows, each of which is divided at a column that is a multiple of `across`.
fn pieces(rect: Rect, bands: u32, [across, down]: [u32; 2]) -> Vec<Rect> {
    if bands == 1 {
        return vec![rect];
    }
    let row = |band: u32| if band == bands { rect.bottom() } else { rect.height() * band / bands / down * down };
    let band = |band: u32| {
        let column = (rect.right() / 2 + band * across) / across * across;
        let edges = [0, column.min(rect.right()), rect.right()];
        edges.windows(2).map(|x| Rect::between([x[0], x[1]], [row(band), row(band + 1)])).collect::<Vec<_>>()
    };
    (0..bands).flat_map(band).flatten().collect()
}

/// The parts of a job, each divided into pieces of multiples of what its kernels process at once.
fn divided(job: &Job, set: KernelSet, bands: u32) -> Parts {
    let unit = |operation: &Operation| match operation {
        // Of the interpolation of the chroma of packed 4:2:2 by four. Its luma is cut where the chroma is, which is stored over it before.
        Operation::Interpolate(_) => [64, 4],
        Operation::Decimate(_) => [16, 4],
        // All small planes of the cases for tensor cores are blurred there, too.
        Operation::Blur { destination: View { buffer: Buffer::Temporary(_), .. }, .. }
            if job.plan.is_wide() && set == KernelSet::TensorCores =>
        {
            [16, 4]
        }
        _ => [128, 1],
    };
    let of_operation = |(operation, rects): (&Operation, &Vec<Rect>)| {
        let is_divided =
            matches!(operation, Operation::Blur { .. } | Operation::Decimate(_) | Operation::Interpolate(_));
        let bands = if is_divided { bands } else { 1 };
        rects.iter().flat_map(|rect| pieces(*rect, bands, unit(operation))).collect()
    };
    job.plan.operations().iter().zip(&job.parts).map(of_operation).collect()
}

/// The launches of a job, whose parts are divided into bands, and the bytes of workspace that they need.
fn launches(
    (job, soft, set): (&Job, Option<&Softness>, KernelSet),
    planes: &DevicePlanes,
    workspace: u64,
    mut kernels: impl FnMut(&[Entry]) -> Option<DirectKernel>,
    bands: u32,
) -> (Vec<Launch>, usize) {
    let lowering = Lowering::new(job, soft, set);
    let Lowered { reads, writes, intermediate_bytes } =
        lowering.lower(&divided(job, set, bands), planes, workspace, LIMITS, &mut kernels);
    let launch = |step| if let Step::Launch(_, launch) = step { Some(*launch) } else { None };
    (reads.into_iter().chain(writes).filter_map(launch).collect(), lowering.bytes() + intermediate_bytes)
}

/// The address by which the program identifies a block of memory.
fn address(block: usize) -> u64 {
    ((block as u64 + 1) << 40) + (1 << 39)
}

/// A program that runs the kernels on the CPU, built with a sanitizer, and the specialisation that is all it has.
struct Program(Child, Option<DirectKernel>);

impl Program {
    /// Compiles the program, unless another test has: an executable must not be written while it runs.
    fn compile(sanitizer: &str, defines: &[String]) -> PathBuf {
        static COMPILED: Mutex<BTreeMap<String, Arc<OnceLock<()>>>> = Mutex::new(BTreeMap::new());
        let defined: String = defines.concat().chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("kernels-{}{defined}", &sanitizer[..6]);
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
        let compiled = Arc::clone(COMPILED.lock().unwrap().entry(name).or_default());
        compiled.get_or_init(|| {
            let built = Command::new("g++")
                .args(["-std=c++20", "-Og", "-g1", "-w", "-pthread", "-fno-sanitize-recover=all", "-x", "c++"])
                .arg(format!("-fsanitize={sanitizer}"))
                .args(defines)
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/run.cpp"))
                .arg("-o")
                .arg(&program)
                .output()
                .expect("g++ is needed to test the kernels: install it with scripts/setup");
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        });
        program
    }

    fn build(sanitizer: &str, defines: &[String]) -> Self {
        let program = Self::compile(sanitizer, defines);
        // Without address space randomisation if possible: some thread sanitizers do not start with much of it.
        let fixed = Command::new("setarch").args(["-R", "true"]).output().is_ok_and(|output| output.status.success());
        let mut command = Command::new(if fixed { Path::new("setarch") } else { &program });
        if fixed {
            command.arg("-R").arg(&program);
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Self(child.expect("the kernels' program starts"), None)
    }

    /// With the kernels that would be compiled for frames of these planes.
    fn specialised(options: Options, planes: &[PlaneLayout]) -> Self {
        let job = Job::frame(Arc::new(Plan::new(options, planes)));
        let mut specialisations = Vec::new();
        let choose = |batch: &[Entry]| {
            specialisations.push(DirectKernel::compiled(batch, LIMITS));
            DirectKernel::prebuilt(batch)
        };
        launches((&job, None, KernelSet::TensorCores), &DevicePlanes::nowhere(planes.len()), 0, choose, 1);
        let [Some(specialisation)] = specialisations[..] else { panic!("{planes:?} {options:?}: {specialisations:?}") };
        let mut defines: Vec<String> = specialisation.definitions().iter().map(|it| format!("-D{it}")).collect();
        let family = defines.iter().find_map(|it| it.strip_prefix("-DBLUR_PART_direct_")?.strip_suffix("=1"));
        defines.extend(family.map(|family| format!("-DBLUR_COMPILED_FAMILY={family}")).into_iter().collect::<Vec<_>>());
        let mut program = Self::build("address,undefined", &defines);
        program.1 = Some(specialisation);
        program
    }

    /// Blurs the case with the engine's launches, planes in bands, and compares every byte with the oracle.
    fn check(&mut self, case: &Case, set: KernelSet, bands: u32) -> usize {
        case.check(|src, dst| {
            // Blocks are sources, destinations, and the workspace.
            let plane = |block: usize, pitch: usize, len: usize| DevicePlane { address: address(block), pitch, len };
            let planes = DevicePlanes {
                sources: (0..src.len()).map(|i| plane(i, src[i].pitch, src[i].data.len())).collect(),
                destinations: (0..src.len()).map(|i| plane(src.len() + i, dst[i].pitch, dst[i].data.len())).collect(),
            };
            let layouts: Vec<_> = src.iter().map(|plane| plane.layout).collect();
            let plan = Plan::new(case.options, &layouts);
            let workspace = address(2 * src.len());
            copy_planes(src, dst, &plan);
            let job = Job::frame(Arc::new(plan));
            let specialisation = self.1;
            let kernels = |batch: &[Entry]| {
                assert!(specialisation.is_none() || DirectKernel::compiled(batch, LIMITS) == specialisation);
                specialisation.or_else(|| DirectKernel::prebuilt(batch))
            };
            let (sources, destinations) = (src.iter().map(|plane| plane.data), dst.iter().map(|plane| &*plane.data));
            let buffers = sources.map(|bytes| (bytes, false)).chain(destinations.map(|bytes| (bytes, true)));
            self.start(buffers.collect(), &[], &launches((&job, None, set), &planes, workspace, kernels, bands));
            dst.iter_mut().for_each(|plane| self.receive(plane.data));
        })
    }

    /// Runs the cases one after the other, in one, two and three bands.
    fn check_all(&mut self, what: &str, cases: &[Case], set: KernelSet) {
        let check = |(i, case): (usize, &Case)| self.check(case, set, 1 + (i % 3) as u32);
        let bytes: usize = cases.iter().enumerate().map(check).sum();
        println!("{what} on the CPU: {} cases, {bytes} bytes, 0 differ", cases.len());
    }

    /// Sends a job: buffers, each with whether it is an output, the workspace behind them, which begins with the nodes of
    /// weights, and launches, with the bytes of workspace that they need.
    fn start(&mut self, buffers: Vec<(&[u8], bool)>, nodes: &[u8], (launches, bytes): &(Vec<Launch>, usize)) {
        let mut workspace = vec![0xa5_u8; (*bytes).max(16)];
        workspace[..nodes.len()].copy_from_slice(nodes);
        self.send(&[buffers.len() as u32 + 1, launches.len() as u32]);
        for (bytes, is_output) in buffers.into_iter().chain([(&workspace[..], false)]) {
            self.send(&[bytes.len() as u32, u32::from(is_output)]);
            self.send(bytes);
        }
        for Launch { kernel, grid: LaunchConfig { blocks, threads, shared_bytes }, args } in launches {
            let name = kernel.entry_point().to_owned() + "\0";
            let parameter = match args {
                Args::Rows(args) => bytes_of(std::slice::from_ref(args)),
                Args::Columns(args) => bytes_of(std::slice::from_ref(args)),
                Args::Alpha(args) => bytes_of(std::slice::from_ref(args)),
                Args::Tensor(args) => bytes_of(std::slice::from_ref(args)),
                Args::Cover(args) => bytes_of(std::slice::from_ref(args)),
                Args::Mosaic(args) => bytes_of(std::slice::from_ref(args)),
                Args::Soft(args) => bytes_of(std::slice::from_ref(args)),
            };
            self.send(&[*blocks, *threads, *shared_bytes, name.len() as u32, parameter.len() as u32]);
            self.send(name.as_bytes());
            self.send(parameter);
        }
        self.0.stdin.as_mut().unwrap().flush().unwrap();
    }

    /// Receives the next output of a job.
    fn receive(&mut self, bytes: &mut [u8]) {
        let output = self.0.stdout.as_mut().unwrap();
        output.read_exact(bytes).expect("the kernels' program was stopped by its sanitizer");
    }

    fn send<T: Copy>(&mut self, values: &[T]) {
        self.0.stdin.as_mut().unwrap().write_all(bytes_of(values)).expect("the kernels' program is running");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        if std::thread::panicking() {
            // Else it waits for somebody to read the rest.
            drop(self.0.stdout.take());
        }
        let has_succeeded = self.0.wait().is_ok_and(|status| status.success());
        assert!(has_succeeded || std::thread::panicking(), "a sanitizer reported an error");
    }
}

/// Whether all launches of a plan have kernels for tensor cores.
fn is_on_tensor_cores(plan: Plan) -> bool {
    let (job, nowhere) = (Job::frame(Arc::new(plan)), DevicePlanes::nowhere(4));
    let launches = launches((&job, None, KernelSet::TensorCores), &nowhere, 0, DirectKernel::prebuilt, 1).0;
    launches.iter().all(|launch| launch.kernel.needs_tensor_cores())
}

/// Whether a case is blurred in the wide form on tensor cores alone.
fn is_wide_on_tensor_cores(case: &Case) -> bool {
    let plan = Plan::new(case.options, &case.planes);
    let is_wide = |operation: &Operation| {
        !matches!(operation, Operation::Blur { destination: View { buffer: Buffer::Destination(_), .. }, .. })
    };
    plan.is_wide() && plan.operations().iter().all(is_wide) && is_on_tensor_cores(plan)
}

/// Whether a case has the direct form, and tensor-core kernels for all its planes.
fn is_direct_on_tensor_cores(case: &Case) -> bool {
    let has_kernels = |plane: &PlaneLayout| PixelFamily::of(plane).is_some();
    !Plan::new(case.options, &case.planes).is_wide() && case.planes.iter().all(has_kernels)
}

/// Pixels that the tensor-core kernels take apart and put together themselves: premultiplied colour, with alpha in front of and
/// behind it, packed 4:2:2, with luma in front of and behind chroma, and four samples of 16 bits; and planes of chroma that is
/// subsampled along rows. In both forms, with every pair of factors.
fn pixels_of_tensor_cores() -> Vec<Case> {
    let roles = |alpha: usize| std::array::from_fn(|c| if c == alpha { Role::Alpha } else { Role::Primary });
    let premultiplied = [0, 3].map(|alpha| PlaneLayout { roles: roles(alpha), ..PlaneLayout::new(41, 23, 4, 8) });
    let packed = [(0, 93), (1, 38)].map(|(luma, width)| PlaneLayout {
        sample_layout: SampleLayout::Yuv422 { luma },
        roles: [Role::Primary, Role::Primary, Role::Chroma, Role::Chroma],
        ..PlaneLayout::new(width, 23, 4, 8)
    });
    let chroma = [(1, 8), (2, 8), (1, 10), (2, 16)]
        .map(|(channels, depth)| PlaneLayout { sigma_scale: [0.5, 1.0], ..PlaneLayout::new(43, 23, channels, depth) });
    let layouts = [&premultiplied[..], &packed, &chroma, &[PlaneLayout::new(41, 23, 4, 16)]].concat();
    let blurs = [0.6, 2.5, 4.0, 9.0, 20.0, 40.0, 130.0].map(|sigma| BlurParams::new(sigma, 0).unwrap());
    let case = |(params, layout): (BlurParams, PlaneLayout)| {
        let options = Options { alpha: AlphaMode::Premultiply, ..params.into() };
        assert!(is_on_tensor_cores(Plan::new(options, &[layout])), "{params:?} {layout:?}");
        Case { options, planes: vec![layout], padding: [0, 0], content: Content::Holes }
    };
    blurs.into_iter().flat_map(|params| layouts.iter().map(move |layout| (params, *layout))).map(case).collect()
}

/// The levels on CUDA cores of every pixel layout, with the same factor on both axes and with different ones.
fn levels() -> Vec<Case> {
    let interleaved = |depth| (1..=4).map(move |channels| PlaneLayout::new(37, 21, channels, depth));
    let mut layouts: Vec<PlaneLayout> = [8, 10, 16].into_iter().flat_map(interleaved).collect();
    layouts.push(PlaneLayout { sample_layout: SampleLayout::MsbAligned, ..PlaneLayout::new(37, 21, 2, 10) });
    layouts.push(PlaneLayout { sample_layout: SampleLayout::Packed1010102, ..PlaneLayout::new(37, 21, 4, 10) });
    let packed = |(luma, depth)| PlaneLayout {
        sample_layout: SampleLayout::Yuv422 { luma },
        ..PlaneLayout::new(37, 21, 4, depth)
    };
    layouts.extend([(0, 8), (1, 8), (0, 10), (1, 16)].map(packed));
    let blurs = [(4.0, [1.0, 1.0]), (9.0, [1.0, 1.0]), (9.0, [0.5, 1.0]), (5.0, [1.0, 0.5])];
    let case = |(sigma, sigma_scale), layout: &PlaneLayout| {
        Case::of(sigma, 0, PlaneLayout { sigma_scale, ..*layout }, [5, 13], Content::Noise)
    };
    blurs.into_iter().flat_map(|blur| layouts.iter().map(move |layout| case(blur, layout))).collect()
}

/// Runs every so manyth case of a kind. An emulated product of matrices takes a barrier of 32 threads, so only small cases run on
/// tensor cores.
fn run(sanitizer: &str, every: usize, most_work: usize) {
    use KernelSet::{CudaCores, TensorCores};
    let mut program = Program::build(sanitizer, &[]);
    let of_table = |most_work: usize, is_wanted: fn(&Case) -> bool, every: usize, least: usize| -> Vec<Case> {
        let cases = cases::all().into_iter().filter(|case| case.work() <= most_work && is_wanted(case));
        let cases: Vec<Case> = cases.step_by(every).collect();
        cases::assert_enough(cases.len(), least);
        cases
    };
    let nth = |cases: Vec<Case>, every: usize| cases.into_iter().step_by(every).collect::<Vec<_>>();
    program.check_all("levels on CUDA cores", &nth(levels(), every / 10), CudaCores);
    let mut pixels = nth(pixels_of_tensor_cores(), every.div_ceil(14));
    for case in pixels.iter_mut().skip(1).step_by(2) {
        (case.padding, case.content) = ([5, 13], Content::Noise);
    }
    for (what, cases) in [
        ("direct form", of_table(most_work >> 4, is_direct_on_tensor_cores, every, 5)),
        ("wide form", of_table(most_work >> 4, is_wide_on_tensor_cores, every / 2, 5)),
        ("premultiplied and packed pixels", pixels),
    ] {
        program.check_all(&format!("{what} on tensor cores"), &cases, TensorCores);
    }
    program.check_all("kernels", &of_table(most_work, |_| true, every, 20), CudaCores);
}

#[test]
fn kernels_match_the_oracle_under_the_address_and_undefined_sanitizers() {
    run("address,undefined", 14, 4 << 20);
}

#[test]
fn kernels_match_the_oracle_under_the_thread_sanitizer() {
    run("thread", 53, 1 << 19);
}

impl Program {
    /// Covers a picture in place, and compares every byte with the CPU engine. Bytes that the cover does not access are poisoned.
    /// Returns their number.
    fn check_in_place(&mut self, picture: &Picture, cover: &Cover, sets: &[KernelSet]) -> usize {
        let (mut picture, mut expected) = (picture.clone(), picture.clone());
        Engine::with_cpu(CpuEngine::new()).cover(cover, &mut expected.frame_mut()).unwrap();
        let planes = picture.planes.clone();
        let plan = |options| Arc::new(Plan::new(options, &planes));
        let job = Job::cover(Plan::cover(cover, &planes, plan), TILES);
        let poisoned = poison(&mut picture, &mut expected, &Schedule::new(&job, Division::Fastest));
        let plane = |(i, Plane { pitch, data, .. }): (usize, Plane<&[u8]>)| DevicePlane {
            address: address(i),
            pitch,
            len: data.len(),
        };
        let in_place: Vec<DevicePlane> = picture.frame().into_iter().enumerate().map(plane).collect();
        let weights = cover.soft.iter().flat_map(Softness::all);
        let nodes: Vec<u8> = weights.flat_map(|weights| weights.nodes().2.to_vec()).collect();
        for set in sets {
            let block = address(planes.len());
            let in_place = DevicePlanes { sources: in_place.clone(), destinations: in_place.clone() };
            let launches = launches((&job, cover.soft.as_ref(), *set), &in_place, block, DirectKernel::prebuilt, 1);
            assert!(!launches.0.is_empty(), "{cover:?} {planes:?}");
            self.start(picture.bytes.iter().map(|bytes| (&bytes[..], true)).collect(), &nodes, &launches);
            for (plane, want) in expected.bytes.iter().enumerate() {
                let mut got = vec![0; want.len()];
                self.receive(&mut got);
                assert!(got == *want, "plane {plane} of {cover:?} of {planes:?}");
            }
        }
        poisoned
    }
}

/// Covers of all kinds, and regions that are blurred in rectangles of larger pictures, of every kind of frame, in place, with all that
/// they do not depend on poisoned.
#[test]
fn covers_match_the_cpu_under_the_address_and_undefined_sanitizers() {
    let mut program = Program::build("address,undefined", &[]);
    let mut noise = Noise(31);
    let params = |sigma| BlurParams::new(sigma, 0).unwrap();
    for (turn, planes) in pictures::kinds().iter().enumerate() {
        // In wide ones nodes are 4 luma samples apart: chroma samples find several of them between the same nodes.
        let is_wide = turn % 4 == 3 || planes.iter().any(|layout| layout.sigma_scale[1] < 1.0);
        let size = if is_wide { [1037, 27] } else { [[53, 30], [38, 21], [7, 3]][turn % 3] };
        let picture = Picture::new(&pictures::resized(planes, size), noise.next());
        for cover in all_covers(&picture.planes, &[1.0, 2.0], &mut noise) {
            program.check_in_place(&picture, &cover, &[KernelSet::CudaCores]);
        }
        let [width, height] = [[601, 40], [150, 61], [300, 45]][turn % 3];
        let picture = Picture::new(&pictures::resized(planes, [width, height]), noise.next());
        let rects = [pictures::rect(width - 60, 7, 23, 9), pictures::rect(9, 30, 12, 4), pictures::rect(70, 1, 9, 20)];
        // Needs of several rectangles are joined and begin at the left edge, those of one in a wide picture do not.
        let rects = &rects[..if width > 600 { 1 } else { 3 }];
        // Several Gaussians use the same memory.
        let step = if turn % 4 == 1 { 1.0 } else { 0.0 };
        let sigmas = (0..).map(|index| [1.2, 3.0, 4.0, 7.5, 30.0][turn % 5] + f64::from(index) * step);
        let cover = blur(rects.iter().copied().zip(sigmas.map(params)));
        // Emulated products take long.
        let sets = [KernelSet::CudaCores, KernelSet::TensorCores];
        let sets = &sets[..if turn % 3 > 0 { 1 } else { 2 }];
        assert!(program.check_in_place(&picture, &cover, sets) > 0, "nothing is poisoned: {cover:?} of {planes:?}");
    }
    // Two that are too far apart to be joined, in memory as wide as both: a warp writes 64 columns of one of them.
    let picture = Picture::new(&[PlaneLayout::new(330, 400, 1, 8)], noise.next());
    let cover = blur([0, 240].map(|x| (pictures::rect(x, 0, 16, 400), params(1.0))));
    program.check_in_place(&picture, &cover, &[KernelSet::TensorCores]);
}

/// Inverts the bytes of both pictures that are neither read nor written. Returns their number.
fn poison(picture: &mut Picture, expected: &mut Picture, schedule: &Schedule) -> usize {
    let mut kept: Vec<Vec<bool>> = picture.bytes.iter().map(|bytes| vec![false; bytes.len()]).collect();
    for rect in schedule.uploads().chain(&schedule.writes) {
        for row in rect.plane_rows() {
            let start = row * pictures::pitch(&picture.planes[rect.plane]) + rect.byte;
            kept[rect.plane][start..start + rect.bytes].fill(true);
        }
    }
    for planes in [&mut picture.bytes, &mut expected.bytes] {
        for (bytes, kept) in planes.iter_mut().zip(&kept) {
            bytes.iter_mut().zip(kept).filter(|(_, kept)| !**kept).for_each(|(byte, _)| *byte = !*byte);
        }
    }
    kept.iter().flatten().filter(|kept| !**kept).count()
}

/// Kernels that are compiled at run time, with the definitions that NVRTC gets, for pixels of every layout, at sizes from one
/// pixel to several blocks. Those for CUDA cores are compiled for radii, whatever the pixels.
#[test]
fn compiled_kernels_match_the_oracle_under_the_address_and_undefined_sanitizers() {
    let new = |channels, depth| PlaneLayout::new(0, 0, channels, depth);
    let scaled = |plane: PlaneLayout, sigma_scale| PlaneLayout { sigma_scale, ..plane };
    let packed = |sample_layout, depth| PlaneLayout { sample_layout, ..new(4, depth) };
    let pairs = packed(SampleLayout::Yuv422 { luma: 0 }, 8);
    let tens = packed(SampleLayout::Packed1010102, 10);
    let [alpha_first, alpha_last] = [0, 3].map(|alpha| {
        let roles = std::array::from_fn(|c| if c == alpha { Role::Alpha } else { Role::Primary });
        PlaneLayout { roles, ..new(4, 8) }
    });
    for (kernel_size, planes) in [
        (127, &[new(1, 8), new(1, 8)][..]),
        (81, &[scaled(new(2, 8), [0.5, 1.0])]),
        (41, &[new(3, 8)]),
        (97, &[new(4, 8)]),
        (113, &[scaled(new(1, 10), [1.0, 0.7])]),
        (65, &[new(2, 16)]),
        (127, &[new(4, 16)]),
        (123, &[pairs]),
        (65, &[packed(SampleLayout::Yuv422 { luma: 1 }, 8)]),
        (57, &[tens]),
        (9, &[alpha_first]),
        (37, &[alpha_last]),
    ] {
        let params = BlurParams::new(f64::from(kernel_size).max(3.0) / 2.0, kernel_size).unwrap();
        let options = Options { alpha: AlphaMode::Premultiply, ..params.into() };
        let case = |(i, (width, height)): (usize, (u32, u32))| Case {
            options,
            planes: planes.iter().map(|layout| PlaneLayout { width, height, ..*layout }).collect(),
            padding: [[0, 5], [13, 0]][i % 2],
            content: [Content::Noise, Content::Extremes][i % 2],
        };
        let sizes = [(1, 1), (3, 5), (67, 37), (130, 21), (261, 9)];
        let cases: Vec<Case> = sizes.into_iter().enumerate().map(case).collect();
        let what = format!("{kernel_size} taps");
        let mut program = Program::specialised(options, &cases[0].planes);
        program.check_all(&what, &cases, KernelSet::TensorCores);
    }
}

/// The host generates its argument structs from kernels/abi.h; a C++ compiler agrees on every offset.
#[test]
fn argument_structs_have_the_same_layout_on_the_host() {
    // As kernels see it that are compiled at run time. The parameter of prebuilt ones has the same fields before the last.
    let mut source = "#include <cstddef>\n#define BLUR_TENSOR_DIRECT_TILES 9\n".to_owned();
    source += "#include \"../../kernels/abi.h\"\n";
    macro_rules! layouts {
        ($($name:ident),*) => { [$((stringify!($name), size_of::<$name>(), $name::OFFSETS)),*] };
    }
    let structs = layouts! {
        AlphaArgs, RowsPart, RowsPlane, StoredChannel, RowsArgs, ColumnsPlane, ColumnsArgs, TensorPlane, TensorArgs,
        CoverRect, CoverArgs, MosaicPlane, MosaicGrid, MosaicArgs, SoftGrid, SoftArgs
    };
    for (name, size, offsets) in structs {
        source += &format!("static_assert(sizeof({name}) == {size}, \"size of {name}\");\n");
        for (field, offset) in offsets {
            source += &format!("static_assert(offsetof({name}, {field}) == {offset}, \"{name}::{field}\");\n");
        }
    }
    source += "#undef BLUR_ABI_H\n#undef BLUR_FAR_TAPS\n#undef BLUR_TENSOR_DIRECT_TILES\nnamespace prebuilt {\n";
    let (far, begin) = TensorArgs::OFFSETS.last().unwrap();
    assert_eq!(*far, "far_taps");
    source += "#include \"../../kernels/abi.h\"\n}\n";
    source += &format!("static_assert(sizeof(prebuilt::TensorArgs) == {begin}, \"it ends before far_taps\");\n");
    let mut compiler = Command::new("g++")
        .args(["-std=c++20", "-fsyntax-only", "-x", "c++", "-"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels"))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("g++ is needed to test the kernels: install it with scripts/setup");
    compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    let output = compiler.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
