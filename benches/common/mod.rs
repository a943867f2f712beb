//! What the GPU's benches share: frames, and ways to take times.

use std::time::{Duration, Instant};

use gstcudagaussblur::cuda::CudaEngine;
use gstcudagaussblur::cuda::device::Device;
use gstcudagaussblur::cuda::driver::{DeviceMemory, Event, Stream};
use gstcudagaussblur::cuda::launch::{Passes, PlaneBlur};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::{BlurParams, Taps};
use gstcudagaussblur::frame::{Plane, PlaneLayout};

pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A time in a table is the median of so many.
pub const REPETITIONS: usize = 60;
/// Done before, to warm up.
const WARM_UP: usize = 8;

/// A plane of 8-bit samples.
pub fn layout(width: u32, height: u32, channels: u8) -> PlaneLayout {
    PlaneLayout { width, height, channels, depth: 8, sigma_scale: [1.0; 2] }
}

pub fn taps(params: BlurParams) -> [Taps; 2] {
    [params.taps(1.0), params.taps(1.0)]
}

pub fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Blurs a frame of one plane without padding.
pub fn blur(engine: &mut Engine, params: BlurParams, layout: PlaneLayout, src: &[u8], dst: &mut [u8]) {
    let plane = Plane { layout, pitch: layout.row_bytes(), data: src };
    let out = Plane { layout, pitch: layout.row_bytes(), data: dst };
    engine.blur(params, &vec![plane], &mut vec![out]).expect("a blurred frame");
}

/// Has the kernel for this size made, by blurring small frames of such samples. False if there is to be none.
pub fn make_special(layout: PlaneLayout, params: BlurParams) -> bool {
    let layout = PlaneLayout { width: 64, height: 8, ..layout };
    let mut engine = Engine::on_cuda(CudaEngine::new(0).expect("a device"));
    let (src, mut dst) = (noise(layout.row_bytes() * 8), vec![0; layout.row_bytes() * 8]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) || engine.stats().progress.at_work {
        blur(&mut engine, params, layout, &src, &mut dst);
        if engine.stats().kernel_name.starts_with("special") {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// The median time of work that is queued on a stream, by the device's clock. `queue` gets the number of its turn.
pub fn time_on(stream: &Stream, device: &Device, mut queue: impl FnMut(usize) -> Outcome<()>) -> Outcome<Duration> {
    let (begin, end) = (Event::new(device.id())?, Event::new(device.id())?);
    let mut times = Vec::new();
    for turn in 0..REPETITIONS + WARM_UP {
        begin.record(stream)?;
        queue(turn)?;
        end.record(stream)?;
        stream.synchronize()?;
        times.push(begin.until(&end)?);
    }
    Ok(median(times.split_off(WARM_UP)))
}

/// The time of a plane's kernels. The `frames`, source and destination, take turns; the context is current.
pub fn time_of_plane(
    engine: &CudaEngine,
    stream: &Stream,
    (layout, pitch): (PlaneLayout, usize),
    params: BlurParams,
    frames: &[[DeviceMemory; 2]],
) -> Outcome<Duration> {
    let taps = taps(params);
    let bytes = pitch * layout.height as usize;
    assert!(frames.iter().flatten().all(|memory| memory.bytes() >= bytes), "frames too small");
    let scratch = DeviceMemory::new(engine.scratch_bytes(&layout, &taps).max(16), stream)?;
    time_on(stream, engine.device(), |turn| {
        let [src, dst] = &frames[turn % frames.len()];
        let blur = PlaneBlur {
            layout,
            src: (src.address(), pitch),
            dst: (dst.address(), pitch),
            scratch: scratch.address(),
            taps: &taps,
            passes: Passes::Best,
        };
        // SAFETY: the memory is as large as the planes, and `time_on` waits for it; the context is current.
        unsafe { engine.queue_plane(stream, &blur) }?;
        Ok(())
    })
}
