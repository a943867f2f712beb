//! What the GPU's benches share: frames, and ways to take times.

use std::time::{Duration, Instant};

use gstcudagaussblur::cuda::CudaEngine;
use gstcudagaussblur::cuda::alpha::Place;
use gstcudagaussblur::cuda::device::Device;
use gstcudagaussblur::cuda::driver::{DeviceMemory, Event, Stream};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::frame::{Frame, FrameMut, Plane, PlaneLayout};
use gstcudagaussblur::plan::{self, Options};

pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A time in a table is the median of so many.
pub const REPETITIONS: usize = 60;
/// Done before, to warm up.
const WARM_UP: usize = 8;

/// A plane of 8-bit samples.
pub fn layout(width: u32, height: u32, channels: u8) -> PlaneLayout {
    PlaneLayout::new(width, height, channels, 8)
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

/// Has the kernels for frames of these planes made, by blurring small ones. False if there are to be none.
pub fn make_special(layouts: &[PlaneLayout], options: impl Into<Options>) -> bool {
    let options = options.into();
    let small = |layout: &PlaneLayout| PlaneLayout { width: 64, height: 8, ..*layout };
    let layouts: Vec<PlaneLayout> = layouts.iter().map(small).collect();
    let mut engine = Engine::on_cuda(CudaEngine::new(0).expect("a device"));
    let bytes = 64 * 8 * 8;
    let (src, mut dst) = (noise(bytes), vec![vec![0; bytes]; layouts.len()]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) || engine.stats().progress.at_work {
        let plane = |layout: &PlaneLayout| Plane { layout: *layout, pitch: layout.row_bytes(), data: &src[..] };
        let frame: Frame = layouts.iter().map(plane).collect();
        let out = layouts.iter().zip(&mut dst);
        let mut out: FrameMut =
            out.map(|(layout, dst)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &mut dst[..] }).collect();
        engine.blur(options, &frame, &mut out).expect("a blurred frame");
        if engine.stats().kernel_name.starts_with("special") {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// The median time of work that is queued on a stream, by the device's clock. `queue` gets the number of its turn. It is
/// called twice for a time, so that the device is busy while what is measured is queued.
pub fn time_on(stream: &Stream, device: &Device, mut queue: impl FnMut(usize) -> Outcome<()>) -> Outcome<Duration> {
    let (begin, end) = (Event::new(device.id())?, Event::new(device.id())?);
    let mut times = Vec::new();
    for turn in 0..REPETITIONS + WARM_UP {
        queue(2 * turn)?;
        begin.record(stream)?;
        queue(2 * turn + 1)?;
        end.record(stream)?;
        stream.synchronize()?;
        times.push(begin.until(&end)?);
    }
    Ok(median(times.split_off(WARM_UP)))
}

/// Places for planes in device memory one after the other, from an address on, rows on so many bytes; and the bytes of all.
pub fn places(layouts: &[PlaneLayout], address: u64, alignment: usize) -> (Vec<Place>, usize) {
    let mut bytes = 0;
    let place = |layout: &PlaneLayout| {
        let place = (address + bytes as u64, layout.row_bytes().next_multiple_of(alignment));
        bytes += place.1 * layout.height as usize;
        place
    };
    (layouts.iter().map(place).collect(), bytes)
}

/// The time of a frame's kernels, rows on so many bytes. The `frames`, source and destination, take turns; the context is
/// current.
pub fn time_of_frame(
    engine: &CudaEngine,
    stream: &Stream,
    (layouts, alignment): (&[PlaneLayout], usize),
    options: impl Into<Options>,
    frames: &[[DeviceMemory; 2]],
) -> Outcome<Duration> {
    let jobs = plan::jobs(options.into(), layouts);
    let bytes = places(layouts, 0, alignment).1;
    assert!(frames.iter().flatten().all(|memory| memory.bytes() >= bytes), "frames too small");
    let planes = |frame: &[DeviceMemory; 2]| -> Vec<(Place, Place)> {
        let [src, dst] = frame.each_ref().map(|memory| places(layouts, memory.address(), alignment).0);
        src.into_iter().zip(dst).collect()
    };
    let frames: Vec<_> = frames.iter().map(planes).collect();
    let extra = DeviceMemory::new(engine.extra_bytes(&jobs, &frames[0]).max(16), stream)?;
    time_on(stream, engine.device(), |turn| {
        // SAFETY: the memory is as large as the planes, and `time_on` waits for it; the context is current.
        unsafe { engine.queue(stream, &jobs, &frames[turn % frames.len()], extra.address()) }?;
        Ok(())
    })
}

/// Processor time of this thread, user and system.
pub fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
