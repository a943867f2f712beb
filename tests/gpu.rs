//! Tests that need a GPU, or a machine without its driver. A test that lacks what it needs is reported as ignored.
//!
//! `CUDAGAUSSBLUR_VIDEO` names video files (separated by ':') that decodebin can decode; without it the test of
//! real video is ignored. `CUDAGAUSSBLUR_CASES=n` runs every nth of the smaller cases of the case table, and
//! every nth specialised kernel with small frames, for tools that make everything thousands of times slower.

mod common;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::checks::{check_child, child, child_process, cpu_is_selected, run_one_by_one, start_fails, trial};
use common::device_frames::{
    Block, Streams, all_covers, blur, check, check_blurs, check_host_blur, check_host_kinds, check_kinds,
};
use common::pictures::{kinds, rect};
use common::pipes::{pipeline, run_to_end, stat};
use common::resident::{self, Input, Memory::Host, videos};
use common::video::{self, Blur, buffer, element, info, picture};
use common::{cases, formats};
use gst::prelude::*;
use gst_video::VideoFormat::Rgba;
use gstcudagaussblur::cuda::driver::{DeviceMemory, Module, Stream, device};
use gstcudagaussblur::cuda::jit::NvrtcError;
use gstcudagaussblur::cuda::jit::nvrtc::Nvrtc;
use gstcudagaussblur::cuda::kernels::abi::{KernelSet, PixelFamily, RowsArgs};
use gstcudagaussblur::cuda::kernels::entry::Entry;
use gstcudagaussblur::cuda::kernels::lower::{Lowering, Step};
use gstcudagaussblur::cuda::kernels::tensor_direct::DirectKernel;
use gstcudagaussblur::cuda::process;
use gstcudagaussblur::cuda::{CudaEngine, CudaError, DevicePlanes, Image};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{PlaneLayout, Role, SampleLayout};
use gstcudagaussblur::filter::parts::Job;
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Plan};

fn main() {
    match child().as_deref() {
        None => (),
        Some("no device") => return cuda_is_unusable(&["finds no CUDA device", "CUDA_VISIBLE_DEVICES"]),
        Some("broken") => return a_broken_context(),
        Some("broken in flight") => return a_context_broken_in_flight(),
        Some(other) => unreachable!("{other}"),
    }
    let present = device::count();
    println!("GPU: {:?}", CudaEngine::new(0).map(|cuda| Engine::with_cuda(cuda).description()));
    let gpu = present.is_ok();
    // A library that is too old fails the test.
    let compiles = gpu && !matches!(Nvrtc::open(), Err(NvrtcError::NotFound { .. }));
    let kernel_set = || process::open(0).unwrap().prebuilt(Image::Best).map(|kernels| kernels.images.kernel_set());
    let on_tensor_cores = compiles && kernel_set().is_ok_and(|set| set == KernelSet::TensorCores);
    let several = present.as_ref().is_ok_and(|count| *count > 1);
    let has_no_driver = matches!(present, Err(CudaError::NoDriver { .. }));
    // So that PTX is tested from the first frame on.
    for image in [Image::Best, Image::Portable].into_iter().filter(|_| gpu) {
        process::open(0).unwrap().prebuilt(image).unwrap().load_all().unwrap();
    }
    let mut trials = vec![
        trial("large_frames_equal_the_cpu_engines", gpu, large_frames),
        trial("devices_at_once_keep_apart", several, every_device),
        trial("kernels_compiled_for_tensor_cores_give_the_same_bytes", on_tensor_cores, compiled_at_every_radius),
        trial("every_format_is_blurred_as_the_oracle_does", gpu, || {
            println!("{} formats", formats::check_all("backend=cuda"));
            formats::check_interlaced("backend=cuda");
        }),
        trial("a_hundred_starts_share_one_context_and_leave_no_device_memory_behind", gpu, starts),
        trial("device_memory_that_runs_out", gpu, out_of_memory),
        trial("devices_that_are_hidden", gpu, || in_a_child("no device", &[("CUDA_VISIBLE_DEVICES", "")])),
        trial("a_context_that_breaks_in_mid_stream", gpu, || in_a_child("broken", &[])),
        trial("a_context_that_breaks_with_frames_in_flight", gpu, || in_a_child("broken in flight", &[])),
        trial("covers_in_device_memory_equal_the_cpu_engine", gpu, covers),
        trial("bytes_at_every_radius_and_alignment", gpu, radii_and_alignments),
        trial("memory_that_is_pinned_in_parts_is_copied", gpu, video::check_partly_pinned_frames),
        trial("real_video_equals_the_cpu_engines", gpu && !videos().is_empty(), real_video),
        trial("without_a_driver_it_is_said_at_start", has_no_driver, || {
            cuda_is_unusable(&["libcuda.so.1", "install the NVIDIA driver", "backend=auto or backend=cpu"]);
        }),
    ];
    for (image, word) in [(Image::Best, "prebuilt"), (Image::Portable, "ptx")] {
        for (on_cuda_cores, cores) in [(false, "all"), (true, "cuda")] {
            let name = format!("case_table_{word}_{cores}_cores");
            trials.push(trial(&name, gpu, move || case_table(image, on_cuda_cores, None)));
        }
    }
    for (on_cuda_cores, bands) in [(true, 3), (false, 7)] {
        trials.push(trial(&format!("bands_{bands}"), gpu, move || case_table(Image::Best, on_cuda_cores, Some(bands))));
    }
    run_one_by_one(trials);
}

fn cuda() -> Engine {
    Engine::with_cuda(CudaEngine::new(0).unwrap())
}

/// Every cover of every kind of frame in device memory, with the kernels of both images, and of host frames through the device.
fn covers() {
    let kinds: Vec<_> = kinds().into_iter().step_by(cases::one_in().unwrap_or(1)).collect();
    let mut bytes = 0;
    for image in [Image::Best, Image::Portable] {
        let engine = CudaEngine::with_image(0, image).unwrap().without_jit();
        let mut engine = Engine::with_cuda(engine).with_covers_on_device();
        for (size, sigmas) in [([331, 182], [1.5, 6.0, 11.0]), ([1283, 721], [3.0, 20.0, 45.0])] {
            bytes += check_kinds(&mut engine, &kinds, &[size], &sigmas, all_covers);
            bytes += check_host_kinds(&mut engine, &kinds, size, &sigmas);
        }
    }
    println!("{bytes} bytes, 0 differ");
}

/// Planes in every pixel family that has kernels for tensor cores, of sizes that change with the radius.
fn planes_of_every_family(radius: u32) -> Vec<Vec<PlaneLayout>> {
    let layout = |width, height, channels| PlaneLayout::new(width, height, channels, 8);
    let half = |plane: PlaneLayout| PlaneLayout { sigma_scale: [0.5; 2], ..plane };
    let deep = |width, height, channels, depth, sample_layout| PlaneLayout {
        sample_layout,
        ..PlaneLayout::new(width, height, channels, depth)
    };
    let packed = |width, height, luma| deep(width, height, 4, 8, SampleLayout::Yuv422 { luma });
    let (low, high) = (SampleLayout::LsbAligned, SampleLayout::MsbAligned);
    let roles = [Role::Alpha, Role::Primary, Role::Primary, Role::Primary];
    let wide = 330_u32.saturating_sub(radius);
    vec![
        vec![layout(197 + radius, 61, 1)],
        vec![layout(129, 33 + radius, 2)],
        vec![layout(65 + radius, 49, 3)],
        vec![layout(3 * radius, 71, 4)],
        vec![layout(258, 66, 1), half(layout(129, 33, 2))],
        vec![layout(258, 66, 1), half(layout(129, 33, 1)), half(layout(129, 33, 1))],
        vec![layout(radius, 3, 4)],
        vec![PlaneLayout { roles, ..layout(97 + radius, 43, 4) }],
        vec![deep(131 + radius, 51, 1, 10, low)],
        vec![deep(35 + radius, 67, 2, 12, low)],
        vec![deep(radius, 5, 1, 16, low), half(deep(radius, 5, 2, 16, low))],
        vec![deep(322, 66, 1, 10, high), half(deep(161, 33, 2, 10, high))],
        vec![deep(99 + radius, 53, 4, 16, low)],
        vec![deep(3 * radius, 37, 4, 12, high)],
        vec![deep(113 + radius, 59, 4, 10, SampleLayout::Packed1010102)],
        vec![deep(radius, 4, 4, 10, SampleLayout::Packed1010102)],
        vec![packed(129 + radius, 61, 0)],
        vec![packed(wide, 45, 1)],
        vec![packed(radius, 3, 0)],
        vec![deep(97 + radius, 41, 4, 10, SampleLayout::Yuv422 { luma: 0 })],
        vec![deep(radius, 7, 4, 16, SampleLayout::Yuv422 { luma: 1 })],
    ]
}

/// Blurs planes whose rows start on multiples of 16 bytes, of 4 bytes, and on any byte. Returns the number of frames.
fn check_alignments(engine: &mut Engine, options: Options, planes: &[PlaneLayout], radius: u32, turn: usize) -> usize {
    let units = [(16, 0), (4, 4 * (radius as usize % 4)), (1, (3 * radius as usize + turn) % 16)];
    for (unit, skew) in units {
        let pitch = |plane: &PlaneLayout| (plane.row_bytes() + 1).next_multiple_of(unit);
        let source = Block::new(planes, skew, pitch, u64::from(radius));
        let destination = Block::new(planes, 16 - skew, |plane| pitch(plane) + unit, 7);
        check_blurs(engine, options, &[source], &destination, Streams::One);
    }
    units.len()
}

fn options_of_radius(radius: u32) -> Options {
    let params = BlurParams::new(f64::from(radius) / 2.5, 2 * radius + 1).unwrap();
    Options { alpha: AlphaMode::Premultiply, ..params.into() }
}

/// The direct form in device memory, which has kernels of its own by the largest radius, in every pixel family that they have.
fn radii_and_alignments() {
    let mut engine = Engine::with_cuda(CudaEngine::new(0).unwrap().without_jit());
    let mut frames = 0;
    for radius in (1..=64).step_by(cases::one_in().unwrap_or(1)) {
        for (turn, planes) in planes_of_every_family(radius).iter().enumerate() {
            frames += check_alignments(&mut engine, options_of_radius(radius), planes, radius, turn);
        }
    }
    println!("{frames} frames, 0 bytes differ");
}

/// The same with the kernels for tensor cores that are compiled, wherever they gain.
fn compiled_at_every_radius() {
    let mut engine = cuda();
    let mut in_bands = Engine::with_cuda(CudaEngine::new(0).unwrap().with_bands(3));
    let limits = process::open(0).unwrap().device().limits();
    let (mut frames, mut made) = (0, HashSet::new());
    for radius in (1..=64).step_by(cases::one_in().unwrap_or(1)) {
        let options = options_of_radius(radius);
        for (turn, planes) in planes_of_every_family(radius).iter().enumerate() {
            let plan = Plan::new(options, planes);
            let (job, nowhere) = (Job::frame(Arc::new(plan)), DevicePlanes::nowhere(planes.len()));
            let mut gains = Vec::new();
            let mut choose = |batch: &[Entry]| {
                gains.extend(DirectKernel::compiled(batch, limits));
                DirectKernel::prebuilt(batch)
            };
            Lowering::new(&job, None, KernelSet::TensorCores).lower(&job.parts, &nowhere, 0, limits, &mut choose);
            if gains.is_empty() {
                continue;
            }
            let begun = Instant::now();
            loop {
                frames += check_alignments(&mut engine, options, planes, radius, turn);
                if gains.iter().all(|key| made.contains(key)) || engine.stats().kernel_name.starts_with("special-") {
                    break;
                }
                assert!(begun.elapsed().as_secs() < 120, "no kernel for {planes:?} of radius {radius}");
                std::thread::sleep(Duration::from_millis(20));
            }
            frames += check_alignments(&mut engine, options, planes, radius, turn + 1);
            assert!(engine.stats().kernel_name.starts_with("special-"), "{planes:?} of radius {radius}");
            made.extend(gains);
            let case = cases::Case { options, planes: planes.clone(), padding: [3, 8], content: cases::Content::Noise };
            case.check_engine(&mut in_bands);
            frames += 1;
            if planes[0].width > 60 && planes[0].height > 40 {
                let cover = blur([(rect(9, 5, 41, 31), options.params)]);
                check(&mut engine, &cover, &Block::dense(planes, 3), None, Streams::One);
                frames += 1;
            }
        }
    }
    println!("{} specialisations, {frames} frames, 0 bytes differ", made.len());
}

fn case_table(image: Image, on_cuda_cores: bool, bands: Option<usize>) {
    let engine = CudaEngine::with_image(0, image).unwrap().without_jit();
    let engine = if on_cuda_cores { engine.on_cuda_cores() } else { engine };
    let engine = if let Some(bands) = bands { engine.with_bands(bands) } else { engine };
    let mut engine = Engine::with_cuda(engine).with_covers_on_device();
    let mut cases = cases::all();
    if let Some(every) = cases::one_in() {
        cases = cases.into_iter().filter(|case| case.work() < 1 << 20).step_by(every).collect();
    }
    for family in PixelFamily::ALL {
        let has = |case: &cases::Case| case.planes.iter().any(|plane| PixelFamily::of(plane) == Some(family));
        assert!(cases.iter().any(has) || cases::selection().is_some(), "no case for {family:?}");
    }
    let bytes: usize = cases.iter().map(|case| case.check_engine(&mut engine)).sum();
    let cores = if on_cuda_cores { "CUDA cores" } else { "all cores" };
    println!("{:<14} {cores}: {} cases, {bytes} bytes, 0 differ", engine.stats().kernel_name, cases.len());
}

/// Frames of common and of the largest sizes, for which the oracle would take minutes: both engines give the same bytes.
fn large_frames() {
    let mut cuda = cuda();
    for (width, height, channels, depth, kernel_sizes) in [
        (3840, 2160, 4, 8, &[7, 31, 127, 401][..]),
        (3840, 2160, 1, 10, &[7, 31, 127, 801]),
        (1919, 1079, 3, 8, &[7, 63]),
        (16384, 16384, 1, 8, &[7, 63]),
        (16384, 4096, 4, 8, &[15, 255]),
        // More than 2^31 bytes of plane and of intermediate.
        (16384, 16384, 4, 16, &[63]),
        (16384, 1, 4, 16, &[31, 801]),
        (1, 16384, 2, 8, &[31, 801]),
    ] {
        let layout = PlaneLayout::new(width, height, channels, depth);
        let bytes = layout.row_bytes() * height as usize;
        if free() < 4 * bytes {
            println!("{layout:?} is left out: it takes {} MB of device memory", bytes >> 18);
            continue;
        }
        let sized = kernel_sizes.iter().map(|size| ((f64::from(*size) / 7.0).min(100.0), *size));
        for (sigma, kernel_size) in sized.chain([(5.0, 0), (100.0, 0)]) {
            check_host_blur(&mut cuda, BlurParams::new(sigma, kernel_size).unwrap(), &[layout], 0);
        }
    }
}

/// Elements on all devices at once, each on its own.
fn every_device() {
    let count = device::count().unwrap();
    let info = info(Rgba, 700, 500);
    std::thread::scope(|scope| {
        for id in 0..count {
            let info = &info;
            scope.spawn(move || {
                let mut blur = Blur::with(&format!("backend=cuda cuda-device-id={id} sigma=5"), info);
                (0..3).for_each(|seed| blur.check(info, seed, 5.0));
            });
        }
    });
    let contexts: HashSet<usize> = (0..count).map(|id| process::open(id).unwrap().device().clone().context()).collect();
    assert_eq!(contexts.len(), count as usize);
    println!("{count} device(s), a context each");
}

fn free() -> usize {
    process::open(0).unwrap().device().clone().free_memory().unwrap()
}

/// A context takes hundreds of MB of device memory, the frames of a pipeline 50.
fn starts() {
    video::init();
    process::open(0).unwrap().prebuilt(Image::Best).unwrap();
    let before = free();
    let pipelines = [0; 2].map(|_| {
        pipeline(
            "videotestsrc num-buffers=5 ! video/x-raw,format=RGBA,width=1920,height=1080 ! \
             cudagaussblur name=blur backend=cuda sigma=5 ! fakesink",
        )
    });
    let mut left = Vec::new();
    for _ in 0..50 {
        std::thread::scope(|scope| pipelines.iter().for_each(|pipeline| _ = scope.spawn(|| run_to_end(pipeline))));
        let taken = before.saturating_sub(free());
        assert!(taken < 150 << 20, "two pipelines at once take {taken} bytes: more than their frames");
        for pipeline in &pipelines {
            assert_eq!(video::nick(&pipeline.by_name("blur").unwrap(), "active-backend"), "cuda");
            assert_eq!(stat(pipeline, "frames-cuda"), 5);
            pipeline.set_state(gst::State::Null).unwrap();
        }
        left.push(free());
    }
    println!("free device memory after the first round: {} bytes, after the last: {} bytes", left[0], left[49]);
    // Other processes may use a little memory meanwhile.
    assert!(left[0].abs_diff(left[49]) < 8 << 20, "device memory is left behind");
}

/// CUDA cannot be used: an error with these words says why, or the CPU is selected.
fn cuda_is_unusable(words: &[&str]) {
    start_fails(&element("backend=cuda"), words);
    cpu_is_selected("");
}

/// Pushes frames before and after `break_it`: all are blurred, with one warning, and the CPU backend is active afterwards.
fn the_cpu_takes_over(break_it: impl FnOnce(), words: &str) {
    let [narrow, wide, large] = [(512, 300), (1280, 300), (1280, 720)].map(|(width, height)| info(Rgba, width, height));
    let mut blur = Blur::with("sigma=3", &narrow);
    (0..2).for_each(|_| blur.check(&narrow, 1, 3.0));
    blur.caps(&wide);
    assert_eq!(blur.backend(), "cuda");
    break_it();
    // So large that the memory of the smaller frames is not enough for it.
    blur.caps(&large);
    (0..3).for_each(|seed| blur.check(&large, seed, 3.0));
    blur.warns(&[words]);
    assert_eq!((blur.backend(), blur.stats(["frames-cuda", "frames-cpu"])), ("cpu".into(), [2, 3]));
}

fn out_of_memory() {
    const WORDS: &str = "of device memory could not be allocated";
    let device = process::open(0).unwrap().device().clone();
    let mut hoard = Vec::new();
    let take_all = || {
        let _current = device.enter().unwrap();
        let stream = Stream::new(&device).unwrap();
        let mut bytes = 64 << 30;
        while bytes >= 1 << 16 {
            match DeviceMemory::new(bytes, &stream) {
                Ok(memory) => hoard.push(memory),
                Err(_) => bytes /= 2,
            }
        }
    };
    the_cpu_takes_over(take_all, WORDS);

    let info = info(Rgba, 1280, 720);
    let mut blur = Blur::with("backend=cuda", &info);
    blur.refuses(buffer(&info, &picture(&info, 1)), &[WORDS]);
    {
        let _current = device.enter().unwrap();
        hoard.clear();
    }
    // When memory is available again the same element blurs frames again.
    blur.push(buffer(&info, &picture(&info, 1)));
}

fn break_the_context() {
    let ptx = format!(
        ".version 7.0\n.target sm_60\n.address_size 64\n.visible .entry trap(.param .align 8 .b8 a[{}])\n{{ trap; }}\n",
        size_of::<RowsArgs>()
    );
    let device = process::open(0).unwrap().device().clone();
    let _current = device.enter().unwrap();
    let stream = Stream::new(&device).unwrap();
    // SAFETY: whole PTX.
    let module = unsafe { Module::load(ptx.into_bytes(), &device) }.unwrap();
    let function = module.function("trap").unwrap();
    let plan = Plan::new(BlurParams::new(1.0, 0).unwrap().into(), &[PlaneLayout::new(1, 1, 1, 8)]);
    let (job, nowhere) = (Job::frame(Arc::new(plan)), DevicePlanes::nowhere(1));
    let lowering = Lowering::new(&job, None, KernelSet::CudaCores);
    let lowered = lowering.lower(&job.parts, &nowhere, 0, device.limits(), &mut DirectKernel::prebuilt);
    let Some(Step::Launch(_, launch)) = lowered.reads.first() else { panic!("rows are a launch") };
    // SAFETY: the kernel traps before it touches anything.
    unsafe { launch.enqueue(function, &stream, false) }.unwrap();
    println!("{}", stream.synchronize().unwrap_err());
}

/// Frames in flight cannot be waited for then: a flush abandons their buffers, and the CPU blurs later frames.
fn a_context_broken_in_flight() {
    let large = info(Rgba, 3840, 2160);
    let source = CudaEngine::new(0).unwrap().pinned();
    let frames = [0; 3].map(|_| gst::Buffer::from_mut_slice(source.allocate(large.size()).unwrap()));
    let mut blur = Blur::with("sigma=3 max-in-flight=4", &large);
    for frame in frames {
        blur.try_push(frame).unwrap();
    }
    break_the_context();
    blur.flush();
    let [abandoned] = blur.stats(["frames-abandoned"]);
    let warnings = blur.messages(gst::MessageType::Warning);
    println!("{abandoned} frames abandoned: {warnings:?}");
    assert!(abandoned >= 1 && warnings.len() == 1);
    while blur.harness.try_pull().is_some() {}
    let small = info(Rgba, 64, 48);
    blur.caps(&small);
    blur.check(&small, 1, 3.0);
    assert_eq!(blur.backend(), "cpu");
}

/// After a kernel has trapped, everything in the same context fails until the process ends.
fn a_broken_context() {
    the_cpu_takes_over(break_the_context, "CUDA device 0 failed");
    // The context stays broken, and the next start reports it.
    cuda_is_unusable(&["CUDA device 0 failed", "restart the program"]);
}

/// Runs a part of this program in a child process, because it breaks the context of its process.
fn in_a_child(which: &str, environment: &[(&str, &str)]) {
    let output = child_process(which).envs(environment.iter().copied()).output().unwrap();
    print!("{}", check_child(&output));
}

/// Compares every frame of the files between the CUDA and the CPU backend.
fn real_video() {
    let frames = |file: &String| {
        let host = format!("filesrc location={file} ! decodebin ! videoconvert ! video/x-raw,format=RGBA");
        let input = Input { resident: String::new(), host };
        resident::check(&(Host, "cudagaussblur sigma=4", "", Host, "frames-cuda=1"), &input)
    };
    let total: u64 = videos().iter().map(frames).sum();
    println!("{total} frames of real video under {}, 0 bytes differ", gst::version_string());
    assert!(total >= 100, "too little video");
}
