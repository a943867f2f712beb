//! The CUDA engine: kernels in device memory, whole frames through host memory, and the wait, in one run on one GPU.
//! README.md tells how to read the tables.

use std::hint::black_box;

use std::time::{Duration, Instant};

use cudarc::driver::result;
use cudarc::driver::sys::CUevent_flags;
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::device::{self, Device};
use gstcudagaussblur::cuda::driver::{DeviceMemory, Event, PinnedMemory, Stream};
use gstcudagaussblur::cuda::launch::{Passes, PlaneBlur};
use gstcudagaussblur::cuda::wait::Wait;
use gstcudagaussblur::cuda::{CudaEngine, CudaError, Image};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::{BlurParams, Taps};
use gstcudagaussblur::frame::{Plane, PlaneLayout};

const REPETITIONS: usize = 60;
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

fn tables() -> Result<(), CudaError> {
    let started = Instant::now();
    let device = Device::open(0)?;
    let context = started.elapsed();
    let [first, second] = [first_frame(), first_frame()];
    println!("{}, kernels {}", device.name(), device.kernels(Image::Best)?.name());
    println!("Context, once a process: {:.0} ms", context.as_secs_f64() * 1e3);
    println!("From there to the first blurred frame of an element, 1080p RGB:");
    println!(
        "start {:.1} ms (prebuilt kernels unpacked and loaded), memory and frame {:.1} ms; the next element's {:.1} and {:.1} ms",
        first[0], first[1], second[0], second[1]
    );

    println!(
        "\nKernels, device memory in and out, µs (median of {REPETITIONS}, {BUFFERS} frames in turn), sigma = k/6\n"
    );
    println!("| plane | kernel | copy | {} |", KERNEL_SIZES.map(|k| format!("k={k}")).join(" | "));
    println!("| --- | --- | --- |{}", " --- |".repeat(KERNEL_SIZES.len()));
    for (name, width, height, channels) in PLANES {
        in_device_memory(device, name, layout(width, height, channels))?;
    }

    println!("\nAt 60 frames a second, 1080p RGBA through ordinary host memory, 10 s each\n");
    println!(
        "| sigma | frames | longer than 16.7 ms | longest with no compiler at work | longest beside it | kernels made |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    // 0.5 to 20 and back, and another one every second.
    paced("swept", |second| 0.5 + 19.5 * (1.0 - (second / 5.0 - 1.0).abs()))?;
    paced("jumping", |second| [1.0, 5.0, 2.0, 0.7, 3.0, 20.0, 1.5, 4.0, 2.5, 0.5][second as usize % 10])?;

    println!("\nRGB frames of the article's sizes, 7x7, sigma 1.5, µs (median of {REPETITIONS})\n");
    println!("| frame | upload | kernel | download | whole frame, host to host | CPU engine, {} threads |", threads());
    println!("| --- | --- | --- | --- | --- | --- |");
    for (width, height) in [(400, 300), (800, 600), (1280, 720), (1920, 1080), (2560, 1440)] {
        through_host_memory(&layout(width, height, 3))?;
    }

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

fn layout(width: u32, height: u32, channels: u8) -> PlaneLayout {
    PlaneLayout { width, height, channels, depth: 8, sigma_scale: [1.0; 2] }
}

fn taps(sigma: f64, size: u32) -> [Taps; 2] {
    let taps = BlurParams::new(sigma, size).expect("usable").taps(1.0);
    [taps.clone(), taps]
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
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
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// The median time of work on a stream, by the device's clock, after a few turns to warm up.
fn time_on(
    stream: &Stream,
    device: &Device,
    mut work: impl FnMut(usize) -> Result<(), CudaError>,
) -> Result<f64, CudaError> {
    let (begin, end) = (Event::new(device.id())?, Event::new(device.id())?);
    let mut times = Vec::new();
    for turn in 0..REPETITIONS + 8 {
        begin.record(stream)?;
        work(turn % BUFFERS)?;
        end.record(stream)?;
        stream.synchronize()?;
        times.push(begin.until(&end)?);
    }
    Ok(median(times.split_off(8)))
}

fn in_device_memory(device: &Device, name: &str, layout: PlaneLayout) -> Result<(), CudaError> {
    let (general, special) = (CudaEngine::new(device.id())?.general(), CudaEngine::new(device.id())?);
    let _current = device.enter()?;
    let stream = Stream::new(device.id())?;
    let pitch = layout.row_bytes().next_multiple_of(64);
    let bytes = pitch * layout.height as usize;
    let frames = || (0..BUFFERS).map(|_| DeviceMemory::new(bytes, &stream)).collect::<Result<Vec<_>, _>>();
    let (sources, destinations) = (frames()?, frames()?);
    let pinned = PinnedMemory::new(bytes, &stream)?;
    let picture = noise(bytes);
    // SAFETY: all are of this size; waited for below.
    unsafe {
        picture.as_ptr().copy_to_nonoverlapping(pinned.address(), bytes);
        for source in &sources {
            stream.upload(&pinned, source, bytes)?;
        }
    }
    stream.synchronize()?;
    let copy = time_on(&stream, device, |turn| {
        let (src, dst) = (sources[turn].address(), destinations[turn].address());
        // SAFETY: both are of this size.
        unsafe { result::memcpy_dtod_async(dst, src, bytes, stream.raw()) }.expect("a copy");
        Ok(())
    })?;
    for (kernel, engine) in [("general", &general), ("special", &special)] {
        let mut row = format!("| {name} | {kernel} | {copy:.1} |");
        for size in KERNEL_SIZES {
            row += &if kernel == "special" && !make_special(&layout, size) {
                " |".to_owned()
            } else {
                format!(" {:.1} |", plane(device, engine, &stream, &layout, size, &sources, &destinations)?)
            };
        }
        println!("{row}");
    }
    Ok(())
}

/// Has the kernel for this size made, if there is to be one, by blurring small frames of such samples.
fn make_special(layout: &PlaneLayout, size: u32) -> bool {
    let layout = PlaneLayout { width: 64, height: 8, ..*layout };
    let params = BlurParams::new(f64::from(size) / 6.0, size).expect("usable");
    let mut engine = Engine::on_cuda(CudaEngine::new(0).expect("a device"));
    let (src, mut dst) = (noise(layout.row_bytes() * 8), vec![0; layout.row_bytes() * 8]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) || engine.stats().progress.at_work {
        let plane = Plane { layout, pitch: layout.row_bytes(), data: &src[..] };
        let out = Plane { layout, pitch: layout.row_bytes(), data: &mut dst[..] };
        engine.blur(params, &vec![plane], &mut vec![out]).expect("a blurred frame");
        if engine.stats().kernel_name.starts_with("special") {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// The time of a plane's kernels.
fn plane(
    device: &Device,
    engine: &CudaEngine,
    stream: &Stream,
    layout: &PlaneLayout,
    size: u32,
    sources: &[DeviceMemory],
    destinations: &[DeviceMemory],
) -> Result<f64, CudaError> {
    let layout = *layout;
    let pitch = layout.row_bytes().next_multiple_of(64);
    let taps = taps(f64::from(size) / 6.0, size);
    let scratch = DeviceMemory::new(engine.scratch_bytes(&layout, &taps).max(16), stream)?;
    time_on(stream, device, |turn| {
        let blur = PlaneBlur {
            layout,
            src: (sources[turn].address(), pitch),
            dst: (destinations[turn].address(), pitch),
            scratch: scratch.address(),
            taps: &taps,
            passes: Passes::Best,
        };
        // SAFETY: the memory is as large as the planes, the context current; waited for in `time_on`.
        unsafe { engine.queue_plane(stream, &blur) }
    })
}

/// Milliseconds from `set_state(PLAYING)` of a new element until it has started, and from there to its first frame.
fn first_frame() -> [f64; 2] {
    gst::init().expect("GStreamer");
    gstcudagaussblur::register_static().expect("registered once");
    let element =
        gst::ElementFactory::make("cudagaussblur").property_from_str("backend", "cuda").build().expect("ours");
    let frame = gst::Buffer::from_mut_slice(noise(1920 * 1080 * 3));
    let begun = Instant::now();
    // A harness sets its element to PLAYING at once.
    let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
    let started = Instant::now();
    harness.set_src_caps_str("video/x-raw,format=RGB,width=1920,height=1080,framerate=60/1");
    harness.push_and_pull(frame).expect("a blurred frame");
    [started - begun, started.elapsed()].map(|time| time.as_secs_f64() * 1e3)
}

/// Frames at the pace of 60 a second with a sigma of the time: how long the calls take, with and without a compilation
/// beside them.
fn paced(name: &str, sigma: impl Fn(f64) -> f64) -> Result<(), CudaError> {
    const FRAME: Duration = Duration::from_nanos(16_666_667);
    let layout = layout(1920, 1080, 4);
    let bytes = layout.row_bytes() * layout.height as usize;
    let (src, mut dst) = (noise(bytes), vec![0; bytes]);
    let mut engine = Engine::on_cuda(CudaEngine::new(0)?);
    let (mut longest, mut late, mut made, mut last) = ([Duration::ZERO; 2], 0, 0, engine.stats().progress.last);
    let begun = Instant::now();
    for turn in 0..600 {
        std::thread::sleep((FRAME * turn).saturating_sub(begun.elapsed()));
        let params = BlurParams::new(sigma(f64::from(turn) / 60.0), 0).expect("usable");
        let plane = Plane { layout, pitch: layout.row_bytes(), data: &src[..] };
        let out = Plane { layout, pitch: layout.row_bytes(), data: &mut dst[..] };
        let (src, mut dst) = (vec![plane], vec![out]);
        let frame = Instant::now();
        engine.blur(params, &src, &mut dst).expect("a blurred frame");
        let took = frame.elapsed();
        let progress = engine.stats().progress;
        // The first frame makes the memory.
        if turn > 0 {
            longest[usize::from(progress.at_work)] = longest[usize::from(progress.at_work)].max(took);
        }
        late += u32::from(took > FRAME);
        made += u32::from(progress.last != last);
        last = progress.last;
    }
    let [quiet, compiling] = longest.map(|time| time.as_secs_f64() * 1e3);
    println!("| {name} | 600 | {late} | {quiet:.2} ms | {compiling:.2} ms | {made} |");
    Ok(())
}

/// Frames in ordinary memory, as they come from elements that know nothing of CUDA.
fn through_host_memory(layout: &PlaneLayout) -> Result<(), CudaError> {
    let params = BlurParams::new(1.5, 7).expect("usable");
    let bytes = layout.row_bytes() * layout.height as usize;
    let sources: Vec<Vec<u8>> = (0..BUFFERS).map(|_| noise(bytes)).collect();
    let mut destination = vec![0; bytes];
    let mut stages = [const { Vec::new() }; 3];
    let mut whole = |mut engine: Engine| {
        let mut times = Vec::new();
        for turn in 0..REPETITIONS + 8 {
            let plane = Plane { layout: *layout, pitch: layout.row_bytes(), data: &sources[turn % BUFFERS][..] };
            let out = Plane { layout: *layout, pitch: layout.row_bytes(), data: &mut destination[..] };
            let (src, mut dst) = (vec![plane], vec![out]);
            let started = Instant::now();
            engine.blur(params, &src, &mut dst).expect("a blurred frame");
            times.push(started.elapsed());
            let stats = engine.stats();
            for (stage, time) in stages.iter_mut().zip([stats.upload, stats.kernel, stats.download]) {
                stage.push(time.last);
            }
        }
        black_box(&destination);
        (median(times.split_off(8)), std::mem::take(&mut stages).map(|mut stage| median(stage.split_off(8))))
    };
    let (cuda, [upload, kernel, download]) = whole(Engine::on_cuda(CudaEngine::new(0)?));
    let (cpu, _) = whole(Engine::on_cpu(CpuEngine::new().expect("threads")));
    let PlaneLayout { width, height, .. } = layout;
    println!("| {width}x{height} | {upload:.1} | {kernel:.1} | {download:.1} | {cuda:.0} | {cpu:.0} |");
    Ok(())
}

/// Processor time of this thread, user and system.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Ours,
    Spinning,
    Blocking,
}

/// How late each way of waiting is, and what it costs the thread.
fn waits(device: &Device, name: &str, layout: &PlaneLayout) -> Result<(), CudaError> {
    let id = device.id();
    let engine = CudaEngine::new(id)?;
    let _current = device.enter()?;
    let stream = Stream::new(id)?;
    let (begin, end) = (Event::new(id)?, Event::new(id)?);
    let blocking = result::event::create(CUevent_flags::CU_EVENT_BLOCKING_SYNC).expect("an event");
    let pitch = layout.row_bytes();
    let bytes = pitch * layout.height as usize;
    let (src, dst) = (DeviceMemory::new(bytes, &stream)?, DeviceMemory::new(bytes, &stream)?);
    let pinned = [PinnedMemory::new(bytes, &stream)?, PinnedMemory::new(bytes, &stream)?];
    let taps = taps(2.5, 15);
    let blur = PlaneBlur {
        layout: *layout,
        src: (src.address(), pitch),
        dst: (dst.address(), pitch),
        scratch: 0,
        taps: &taps,
        passes: Passes::Best,
    };
    for way in [Way::Spinning, Way::Blocking, Way::Ours] {
        let mut wait = Wait::default();
        let (mut late, mut busy) = (Vec::new(), Duration::ZERO);
        for _ in 0..300 {
            let processor = processor_time();
            let begun = Instant::now();
            begin.record(&stream)?;
            // SAFETY: all are of the frame's size; waited for below.
            unsafe {
                stream.upload(&pinned[0], &src, bytes)?;
                engine.queue_plane(&stream, &blur)?;
                stream.download(&dst, &pinned[1], bytes)?;
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
