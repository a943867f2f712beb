//! Measures the CUDA engine in one run on one GPU: kernels in device memory, a live pipeline, whole frames from and to
//! host memory, and the wait for the device. README.md explains the tables.

#[path = "../common/mod.rs"]
mod common;
mod host;
mod pace;
#[path = "../common/person.rs"]
mod person;
mod portable;
mod regions;
mod specialised;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::result;
use cudarc::driver::sys::CUevent_flags;
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::driver::device::{self, Device};
use gstcudagaussblur::cuda::driver::{DeviceMemory, Event, PinnedMemory, Stream};
use gstcudagaussblur::cuda::process;
use gstcudagaussblur::cuda::transfer::adaptive_wait::AdaptiveWait;
use gstcudagaussblur::cuda::{CudaEngine, DevicePlanes, Image};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::PlaneLayout;
use gstcudagaussblur::filter::plan::Plan;
use gstcudagaussblur::filter::plane::DevicePlane;

use common::{Outcome, REPETITIONS, blur, layout, median, noise, processor_time, time_of_frame, time_on};

/// Frames that are used in turn, so that none is still in the device's cache when it is used again.
const BUFFERS: usize = 6;

fn main() {
    match device::count() {
        Ok(_) => (),
        Err(error) => return println!("no GPU, nothing to measure: {error}"),
    }
    if let Err(error) = tables() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn tables() -> Outcome<()> {
    gst::init()?;
    gstcudagaussblur::plugin_register_static()?;
    let started = Instant::now();
    let device = process::open(0)?.device().clone();
    let context = started.elapsed();
    let [first, second] = [first_frame(), first_frame()];
    println!("{}, kernels {}", device.name(), process::open(device.id())?.prebuilt(Image::Best)?.images.name());
    println!("Creating the context, once per process: {:.0} ms", milliseconds(context));
    println!("Then, for the first element, 1080p RGB:");
    println!(
        "start {:.1} ms (device opened), first frame {:.1} ms (its kernels unpacked and loaded, allocations); \
         the next element: {:.1} and {:.1} ms",
        first[0], first[1], second[0], second[1]
    );

    let parts: [(&str, &dyn Fn() -> Outcome<()>); 8] = [
        ("kernels", &|| kernels(&device)),
        ("specialised", &|| specialised::tables(&device)),
        ("portable", &|| portable::tables(&device)),
        ("pace", &pace::table),
        ("article", &article_sizes),
        ("host", &host::by_bands),
        ("waits", &|| all_waits(&device)),
        ("regions", &|| regions::tables(&device)),
    ];
    // Cargo adds --bench.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let Some(other) = wanted.iter().find(|wanted| parts.iter().all(|(name, _)| name != wanted)) {
        return Err(format!("unknown part {other}; the parts are {}", parts.map(|(name, _)| name).join(", ")).into());
    }
    for (name, part) in parts {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            part()?;
        }
    }
    Ok(())
}

fn kernels(device: &Arc<Device>) -> Outcome<()> {
    println!(
        "\nKernels, device memory to device memory, µs (median of {REPETITIONS}, {BUFFERS} frames in turn), \
         sigma = k/6\n"
    );
    println!("| plane | copy | {} |", KERNEL_SIZES.map(|k| format!("k={k}")).join(" | "));
    println!("| --- | --- |{}", " --- |".repeat(KERNEL_SIZES.len()));
    for (name, width, height, channels) in PLANES {
        in_device_memory(device, name, layout(width, height, channels))?;
    }
    Ok(())
}

fn article_sizes() -> Outcome<()> {
    println!("\nRGB frames of the article's sizes, 7x7, sigma 1.5, µs (median of {REPETITIONS})\n");
    println!("| frame | upload | kernel | download | whole frame, host to host | CPU engine, {} threads |", threads());
    println!("| --- | --- | --- | --- | --- | --- |");
    for (width, height) in [(400, 300), (800, 600), (1280, 720), (1920, 1080), (2560, 1440)] {
        through_host_memory(&layout(width, height, 3))?;
    }
    Ok(())
}

fn all_waits(device: &Arc<Device>) -> Outcome<()> {
    println!(
        "\nWaiting for a frame (upload, k=15, download; 300 frames, one every 4 ms): delay in µs from the end of the frame"
    );
    println!("on the device to the end of the wait, and processor time of the thread per frame in µs\n");
    println!("| frame | wait | delay, median | delay, 95th percentile | processor time |");
    println!("| --- | --- | --- | --- | --- |");
    for (name, layout) in [("1080p RGBA", layout(1920, 1080, 4)), ("4K RGBA", layout(3840, 2160, 4))] {
        waits(device, name, &layout)?;
    }
    Ok(())
}

const KERNEL_SIZES: [u32; 7] = [3, 7, 15, 31, 49, 63, 127];
const PLANES: [(&str, u32, u32, u8); 6] = [
    ("1080p RGBA", 1920, 1080, 4),
    ("4K RGBA", 3840, 2160, 4),
    ("1080p RGB", 1920, 1080, 3),
    ("4K RGB", 3840, 2160, 3),
    ("1080p GRAY8", 1920, 1080, 1),
    ("4K GRAY8", 3840, 2160, 1),
];

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn in_device_memory(device: &Arc<Device>, name: &str, layout: PlaneLayout) -> Outcome<()> {
    let engine = CudaEngine::new(device.id())?.without_jit();
    let _current = device.enter()?;
    let stream = Stream::new(device)?;
    let pitch = layout.row_bytes().next_multiple_of(64);
    let bytes = pitch * layout.height as usize;
    let memory = || DeviceMemory::new(bytes, &stream);
    let frames = (0..BUFFERS).map(|_| Ok([memory()?, memory()?])).collect::<Outcome<Vec<_>>>()?;
    let pinned = PinnedMemory::new(bytes, device)?;
    let picture = noise(bytes);
    // SAFETY: the picture, the pinned block and the device blocks all have `bytes` bytes; the stream is synchronised
    // below, before any of them is dropped or read.
    unsafe {
        picture.as_ptr().copy_to_nonoverlapping(pinned.address(), bytes);
        for [source, _] in &frames {
            stream.copy(&pinned.row(bytes), &source.row(bytes), bytes, 1)?;
        }
    }
    stream.synchronize()?;
    let copy = time_on(&stream, device, |turn| {
        let [src, dst] = frames[turn % BUFFERS].each_ref().map(DeviceMemory::address);
        // SAFETY: both blocks have `bytes` bytes and live until `time_on` has waited for the stream.
        Ok(unsafe { result::memcpy_dtod_async(dst, src, bytes, stream.raw()) }?)
    })?;
    let mut row = format!("| {name} | {:.1} |", microseconds(copy));
    for size in KERNEL_SIZES {
        let params = BlurParams::new(f64::from(size) / 6.0, size)?;
        let time = time_of_frame(&engine, &stream, (&[layout], 64), params, &frames)?;
        row += &format!(" {:.1} |", microseconds(time));
    }
    println!("{row}");
    Ok(())
}

/// The milliseconds that a new element takes to start, and from then to its first output frame.
fn first_frame() -> [f64; 2] {
    let element = gst::ElementFactory::make("cudagaussblur")
        .property_from_str("backend", "cuda")
        .build()
        .expect("the element is registered");
    let frame = gst::Buffer::from_mut_slice(noise(1920 * 1080 * 3));
    let begun = Instant::now();
    // Harness::with_element sets the element to PLAYING.
    let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
    let started = Instant::now();
    harness.set_src_caps_str("video/x-raw,format=RGB,width=1920,height=1080,framerate=60/1");
    harness.push_and_pull(frame).expect("a blurred frame");
    [started - begun, started.elapsed()].map(milliseconds)
}

/// Frames in ordinary host memory, as from elements without CUDA support.
fn through_host_memory(layout: &PlaneLayout) -> Outcome<()> {
    let params = BlurParams::new(1.5, 7).expect("usable");
    let bytes = layout.row_bytes() * layout.height as usize;
    let sources: Vec<Vec<u8>> = (0..BUFFERS).map(|_| noise(bytes)).collect();
    let mut destination = vec![0; bytes];
    let mut stages = [const { Vec::new() }; 3];
    let mut whole = |mut engine: Engine| {
        let mut times = Vec::new();
        for turn in 0..REPETITIONS + 8 {
            let started = Instant::now();
            blur(&mut engine, params, *layout, &sources[turn % BUFFERS], &mut destination);
            times.push(started.elapsed());
            let stats = engine.stats();
            for (stage, time) in stages.iter_mut().zip([stats.upload, stats.kernel, stats.download]) {
                // After the first frames only some are timed.
                if time.frames() > stage.len() as u32 {
                    stage.push(time.last);
                }
            }
        }
        black_box(&destination);
        // The CPU engine has no stages.
        let median = |mut times: Vec<Duration>| {
            if times.len() > 8 { microseconds(median(times.split_off(8))) } else { f64::NAN }
        };
        (median(times), std::mem::take(&mut stages).map(median))
    };
    let (cuda, [upload, kernel, download]) = whole(Engine::with_cuda(CudaEngine::new(0)?));
    let (cpu, _) = whole(Engine::with_cpu(CpuEngine::new()));
    let PlaneLayout { width, height, .. } = layout;
    println!("| {width}x{height} | {upload:.1} | {kernel:.1} | {download:.1} | {cuda:.0} | {cpu:.0} |");
    Ok(())
}

/// How the thread waits for the device: the engine's adaptive wait, polling the event, or a blocking event.
#[derive(Debug, Clone, Copy)]
enum WaitStrategy {
    Ours,
    Spinning,
    Blocking,
}

/// Measures the delay of each wait strategy and the thread's processor time.
fn waits(device: &Arc<Device>, name: &str, layout: &PlaneLayout) -> Outcome<()> {
    let id = device.id();
    let engine = CudaEngine::new(id)?;
    let _current = device.enter()?;
    let stream = Stream::new(device)?;
    let (begin, end) = (Event::timed(device)?, Event::timed(device)?);
    let blocking = result::event::create(CUevent_flags::CU_EVENT_BLOCKING_SYNC).expect("an event");
    let pitch = layout.row_bytes();
    let bytes = pitch * layout.height as usize;
    let (src, dst) = (DeviceMemory::new(bytes, &stream)?, DeviceMemory::new(bytes, &stream)?);
    let pinned = [PinnedMemory::new(bytes, device)?, PinnedMemory::new(bytes, device)?];
    let plan = Arc::new(Plan::new(BlurParams::new(2.5, 15)?.into(), &[*layout]));
    let plane = |memory: &DeviceMemory| vec![DevicePlane { address: memory.address(), pitch, len: bytes }];
    let planes = DevicePlanes { sources: plane(&src), destinations: plane(&dst) };
    let workspace_bytes = engine.program(&plan, &planes, 0)?.workspace_bytes;
    let workspace = DeviceMemory::new(workspace_bytes.max(16), &stream)?;
    let program = engine.program(&plan, &planes, workspace.address())?;
    for strategy in [WaitStrategy::Spinning, WaitStrategy::Blocking, WaitStrategy::Ours] {
        let mut wait = AdaptiveWait::default();
        let (mut delays, mut busy) = (Vec::new(), Duration::ZERO);
        for _ in 0..300 {
            let processor = processor_time();
            let begun = Instant::now();
            stream.record(&begin)?;
            // SAFETY: all blocks have the frame's size, the workspace has its own, and the wait below completes before they are
            // dropped.
            unsafe {
                stream.copy(&pinned[0].row(bytes), &src.row(bytes), bytes, 1)?;
                engine.enqueue(&stream, &program)?;
                stream.copy(&dst.row(bytes), &pinned[1].row(bytes), bytes, 1)?;
            }
            stream.record(&end)?;
            match strategy {
                WaitStrategy::Ours => wait.wait(begun, || end.is_done())?,
                WaitStrategy::Spinning => {
                    while !end.is_done()? {
                        std::hint::spin_loop();
                    }
                }
                WaitStrategy::Blocking => {
                    // SAFETY: `blocking` and `stream` are a live event and stream of the current context.
                    unsafe {
                        result::event::record(blocking, stream.raw())
                            .and_then(|()| result::event::synchronize(blocking))
                    }
                    .expect("an event");
                }
            }
            let took = begun.elapsed();
            busy += processor_time() - processor;
            let device_time = begin.elapsed_until(&end)?;
            wait.observe(device_time);
            delays.push(took.saturating_sub(device_time));
            std::thread::sleep(Duration::from_millis(4).saturating_sub(begun.elapsed()));
        }
        let busy = busy.as_secs_f64() * 1e6 / delays.len() as f64;
        delays.sort_unstable();
        let percentile = |percent: usize| delays[delays.len() * percent / 100].as_secs_f64() * 1e6;
        let strategy = format!("{strategy:?}").to_lowercase();
        println!("| {name} | {strategy} | {:.0} | {:.0} | {busy:.0} |", percentile(50), percentile(95));
    }
    Ok(())
}
