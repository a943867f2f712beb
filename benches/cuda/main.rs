//! The CUDA engine: kernels in device memory, a live pipeline, whole frames through host memory, and the wait, in one run
//! on one GPU. README.md tells how to read the tables.

#[path = "../common/mod.rs"]
mod common;
mod host;
mod pace;

use std::hint::black_box;
use std::time::{Duration, Instant};

use cudarc::driver::result;
use cudarc::driver::sys::CUevent_flags;
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::device::{self, Device};
use gstcudagaussblur::cuda::driver::{DeviceMemory, Event, PinnedMemory, Stream};
use gstcudagaussblur::cuda::wait::Wait;
use gstcudagaussblur::cuda::{CudaEngine, Image};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::frame::PlaneLayout;
use gstcudagaussblur::plan;

use common::{Outcome, REPETITIONS, blur, layout, make_special, median, noise, processor_time, time_of_frame, time_on};

/// Frames in turn, so that none is still in the device's cache when it comes again.
const BUFFERS: usize = 6;

fn main() {
    match device::count() {
        Ok(_) => (),
        Err(error) => return println!("no GPU, nothing to measure: {error}"),
    }
    // Kernels for single sizes are compiled here, not found.
    // SAFETY: the only thread yet.
    unsafe { std::env::set_var("CUDAGAUSSBLUR_CACHE", "off") };
    if let Err(error) = tables() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn tables() -> Outcome<()> {
    gst::init()?;
    gstcudagaussblur::register_static()?;
    let started = Instant::now();
    let device = Device::open(0)?;
    let context = started.elapsed();
    let [first, second] = [first_frame(), first_frame()];
    println!("{}, kernels {}", device.name(), device.kernels(Image::Best)?.name());
    println!("Context, once a process: {:.0} ms", milliseconds(context));
    println!("From there to the first blurred frame of an element, 1080p RGB:");
    println!(
        "start {:.1} ms (prebuilt kernels unpacked and loaded), memory and frame {:.1} ms; the next element's {:.1} and {:.1} ms",
        first[0], first[1], second[0], second[1]
    );

    let parts: [(&str, &dyn Fn() -> Outcome<()>); 5] = [
        ("kernels", &|| kernels(&device)),
        ("pace", &pace::table),
        ("article", &article_sizes),
        ("host", &host::by_bands),
        ("waits", &|| all_waits(&device)),
    ];
    // Cargo adds --bench.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let Some(other) = wanted.iter().find(|wanted| parts.iter().all(|(name, _)| name != wanted)) {
        return Err(format!("no part is called {other}; there are {}", parts.map(|(name, _)| name).join(", ")).into());
    }
    for (name, part) in parts {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            part()?;
        }
    }
    Ok(())
}

fn kernels(device: &Device) -> Outcome<()> {
    println!(
        "\nKernels, device memory in and out, µs (median of {REPETITIONS}, {BUFFERS} frames in turn), sigma = k/6\n"
    );
    println!("| plane | kernel | copy | {} |", KERNEL_SIZES.map(|k| format!("k={k}")).join(" | "));
    println!("| --- | --- | --- |{}", " --- |".repeat(KERNEL_SIZES.len()));
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

fn all_waits(device: &Device) -> Outcome<()> {
    println!(
        "\nWaiting for a frame (upload, k=15, download; 300 frames, one every 4 ms): µs from the device's end of the frame"
    );
    println!("to the thread's, and the thread's processor time a frame\n");
    println!("| frame | way | late, median | late, 95th percentile | processor time |");
    println!("| --- | --- | --- | --- | --- |");
    for (name, layout) in [("1080p RGBA", layout(1920, 1080, 4)), ("4K RGBA", layout(3840, 2160, 4))] {
        waits(device, name, &layout)?;
    }
    Ok(())
}

const KERNEL_SIZES: [u32; 7] = [3, 7, 15, 31, 49, 63, 127];
const PLANES: [(&str, u32, u32, u8); 4] = [
    ("1080p RGBA", 1920, 1080, 4),
    ("4K RGBA", 3840, 2160, 4),
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

fn in_device_memory(device: &Device, name: &str, layout: PlaneLayout) -> Outcome<()> {
    let (general, special) = (CudaEngine::new(device.id())?.general(), CudaEngine::new(device.id())?);
    let _current = device.enter()?;
    let stream = Stream::new(device.id())?;
    let pitch = layout.row_bytes().next_multiple_of(64);
    let bytes = pitch * layout.height as usize;
    let memory = || DeviceMemory::new(bytes, &stream);
    let frames = (0..BUFFERS).map(|_| Ok([memory()?, memory()?])).collect::<Outcome<Vec<_>>>()?;
    let pinned = PinnedMemory::new(bytes, device.id())?;
    let picture = noise(bytes);
    // SAFETY: all are of this size; waited for below.
    unsafe {
        picture.as_ptr().copy_to_nonoverlapping(pinned.address(), bytes);
        for [source, _] in &frames {
            stream.upload(&pinned, source, 0..bytes)?;
        }
    }
    stream.synchronize()?;
    let copy = time_on(&stream, device, |turn| {
        let [src, dst] = frames[turn % BUFFERS].each_ref().map(DeviceMemory::address);
        // SAFETY: both are of this size.
        Ok(unsafe { result::memcpy_dtod_async(dst, src, bytes, stream.raw()) }?)
    })?;
    for (kernel, engine) in [("general", &general), ("special", &special)] {
        let mut row = format!("| {name} | {kernel} | {:.1} |", microseconds(copy));
        for size in KERNEL_SIZES {
            let params = BlurParams::new(f64::from(size) / 6.0, size)?;
            row += &if kernel == "special" && !make_special(&[layout], params) {
                " |".to_owned()
            } else {
                let time = time_of_frame(engine, &stream, (&[layout], 64), params, &frames)?;
                format!(" {:.1} |", microseconds(time))
            };
        }
        println!("{row}");
    }
    Ok(())
}

/// Milliseconds from `set_state(PLAYING)` of a new element until it has started, and from there to its first frame.
fn first_frame() -> [f64; 2] {
    let element =
        gst::ElementFactory::make("cudagaussblur").property_from_str("backend", "cuda").build().expect("ours");
    let frame = gst::Buffer::from_mut_slice(noise(1920 * 1080 * 3));
    let begun = Instant::now();
    // A harness sets its element to PLAYING at once.
    let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
    let started = Instant::now();
    harness.set_src_caps_str("video/x-raw,format=RGB,width=1920,height=1080,framerate=60/1");
    harness.push_and_pull(frame).expect("a blurred frame");
    [started - begun, started.elapsed()].map(milliseconds)
}

/// Frames in ordinary memory, as they come from elements that know nothing of CUDA.
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
                stage.push(time.last);
            }
        }
        black_box(&destination);
        let median = |mut times: Vec<Duration>| microseconds(median(times.split_off(8)));
        (median(times), std::mem::take(&mut stages).map(median))
    };
    let (cuda, [upload, kernel, download]) = whole(Engine::on_cuda(CudaEngine::new(0)?));
    let (cpu, _) = whole(Engine::on_cpu(CpuEngine::new()));
    let PlaneLayout { width, height, .. } = layout;
    println!("| {width}x{height} | {upload:.1} | {kernel:.1} | {download:.1} | {cuda:.0} | {cpu:.0} |");
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Ours,
    Spinning,
    Blocking,
}

/// How late each way of waiting is, and what it costs the thread.
fn waits(device: &Device, name: &str, layout: &PlaneLayout) -> Outcome<()> {
    let id = device.id();
    let engine = CudaEngine::new(id)?;
    let _current = device.enter()?;
    let stream = Stream::new(id)?;
    let (begin, end) = (Event::new(id)?, Event::new(id)?);
    let blocking = result::event::create(CUevent_flags::CU_EVENT_BLOCKING_SYNC).expect("an event");
    let pitch = layout.row_bytes();
    let bytes = pitch * layout.height as usize;
    let (src, dst) = (DeviceMemory::new(bytes, &stream)?, DeviceMemory::new(bytes, &stream)?);
    let pinned = [PinnedMemory::new(bytes, device.id())?, PinnedMemory::new(bytes, device.id())?];
    let jobs = plan::jobs(BlurParams::new(2.5, 15)?.into(), &[*layout]);
    let planes = [((src.address(), pitch), (dst.address(), pitch))];
    for way in [Way::Spinning, Way::Blocking, Way::Ours] {
        let mut wait = Wait::default();
        let (mut late, mut busy) = (Vec::new(), Duration::ZERO);
        for _ in 0..300 {
            let processor = processor_time();
            let begun = Instant::now();
            begin.record(&stream)?;
            // SAFETY: all are of the frame's size; waited for below.
            unsafe {
                stream.upload(&pinned[0], &src, 0..bytes)?;
                engine.queue(&stream, &jobs, &planes, 0)?;
                stream.download(&dst, &pinned[1], 0..bytes)?;
            }
            end.record(&stream)?;
            match way {
                Way::Ours => wait.until(begun, || end.is_done())?,
                Way::Spinning => {
                    while !end.is_done()? {
                        std::hint::spin_loop();
                    }
                }
                Way::Blocking => {
                    // SAFETY: a live event and stream.
                    unsafe {
                        result::event::record(blocking, stream.raw())
                            .and_then(|()| result::event::synchronize(blocking))
                    }
                    .expect("an event");
                }
            }
            let took = begun.elapsed();
            busy += processor_time() - processor;
            let device_time = begin.until(&end)?;
            wait.learn(device_time);
            late.push(took.saturating_sub(device_time));
            std::thread::sleep(Duration::from_millis(4).saturating_sub(begun.elapsed()));
        }
        let busy = busy.as_secs_f64() * 1e6 / late.len() as f64;
        late.sort_unstable();
        let at = |share: usize| late[late.len() * share / 100].as_secs_f64() * 1e6;
        println!("| {name} | {} | {:.0} | {:.0} | {busy:.0} |", format!("{way:?}").to_lowercase(), at(50), at(95));
    }
    Ok(())
}
