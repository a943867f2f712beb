//! What the GPU benches share: frames and time measurements.

#[path = "../../tests/common/borrowed.rs"]
pub mod borrowed;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gstcudagaussblur::cuda::driver::device::Device;
use gstcudagaussblur::cuda::driver::{DeviceMemory, Event, Stream};
use gstcudagaussblur::cuda::{CudaEngine, DevicePlanes, Image};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{Frame, Plane, PlaneLayout};
use gstcudagaussblur::filter::plan::{Options, Plan};
use gstcudagaussblur::filter::plane::DevicePlane;

pub use borrowed::Borrowing;

pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A time in a table is the median of this many measurements.
pub const REPETITIONS: usize = 60;
/// Measurements that are discarded before.
pub const WARM_UP: usize = 8;

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

/// Makes an engine with these images compile the specialised kernels for frames of these planes, by blurring small frames.
/// Returns false if it compiles none for them.
pub fn compile_specialised(image: Image, layouts: &[PlaneLayout], options: impl Into<Options>) -> bool {
    let options = options.into();
    let small = |layout: &PlaneLayout| PlaneLayout { width: 64, height: 8, ..*layout };
    let layouts: Vec<PlaneLayout> = layouts.iter().map(small).collect();
    let engine = CudaEngine::with_image(0, image).expect("a CUDA device");
    let mut engine = Engine::with_cuda(engine);
    let bytes = 64 * 8 * 8;
    let (src, mut dst) = (noise(bytes), vec![vec![0; bytes]; layouts.len()]);
    let begun = Instant::now();
    let mut idle = 0;
    // The engine requests a kernel after 250 ms of the same blur, which a busy machine delays. One that gets ready during a frame
    // is used for the next.
    while begun.elapsed() < Duration::from_millis(1000) || idle < 2 {
        idle = if engine.stats().jit.compiling { 0 } else { idle + 1 };
        let plane = |layout: &PlaneLayout| Plane { layout: *layout, pitch: layout.row_bytes(), data: &src[..] };
        let frame: Frame = layouts.iter().map(plane).collect();
        let out = layouts.iter().zip(&mut dst);
        let mut out: borrowed::FrameMut =
            out.map(|(layout, dst)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &mut dst[..] }).collect();
        engine.blur(options, &frame, &mut out).expect("a blurred frame");
        if engine.stats().kernel_name.starts_with("special") {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// The median time of work on a stream, by events. `queue` enqueues the work and gets a sequence number. It is called
/// twice per measurement, so that the device is still busy with the first while the second, which is measured, is
/// enqueued.
pub fn time_on(
    stream: &Stream,
    device: &Arc<Device>,
    mut queue: impl FnMut(usize) -> Outcome<()>,
) -> Outcome<Duration> {
    let (begin, end) = (Event::timed(device)?, Event::timed(device)?);
    let mut times = Vec::new();
    for turn in 0..REPETITIONS + WARM_UP {
        queue(2 * turn)?;
        stream.record(&begin)?;
        queue(2 * turn + 1)?;
        stream.record(&end)?;
        stream.synchronize()?;
        times.push(begin.elapsed_until(&end)?);
    }
    Ok(median(times.split_off(WARM_UP)))
}

/// Lays out planes one after the other in device memory from `address`, with row pitches that are multiples of
/// `alignment` bytes. Also returns the total bytes.
pub fn device_planes(layouts: &[PlaneLayout], address: u64, alignment: usize) -> (Vec<DevicePlane>, usize) {
    let mut bytes = 0;
    let plane = |layout: &PlaneLayout| {
        let pitch = layout.row_bytes().next_multiple_of(alignment);
        let plane = DevicePlane { address: address + bytes as u64, pitch, len: pitch * layout.height as usize };
        bytes += plane.len;
        plane
    };
    (layouts.iter().map(plane).collect(), bytes)
}

/// The median time of a frame's kernels. Planes are laid out by [`device_planes`] with this alignment; the `frames` (source
/// and destination) are used in turn. The device's context has to be current.
pub fn time_of_frame(
    engine: &CudaEngine,
    stream: &Stream,
    (layouts, alignment): (&[PlaneLayout], usize),
    options: impl Into<Options>,
    frames: &[[DeviceMemory; 2]],
) -> Outcome<Duration> {
    let plan = Arc::new(Plan::new(options.into(), layouts));
    let bytes = device_planes(layouts, 0, alignment).1;
    assert!(frames.iter().flatten().all(|memory| memory.bytes() >= bytes), "the frames are too small");
    let planes = |[source, destination]: &[DeviceMemory; 2]| DevicePlanes {
        sources: device_planes(layouts, source.address(), alignment).0,
        destinations: device_planes(layouts, destination.address(), alignment).0,
    };
    let frames: Vec<_> = frames.iter().map(planes).collect();
    let workspace = DeviceMemory::new(engine.program(&plan, &frames[0], 0)?.workspace_bytes.max(16), stream)?;
    let programs = frames.iter().map(|planes| engine.program(&plan, planes, workspace.address()));
    let programs = programs.collect::<Result<Vec<_>, _>>()?;
    time_on(stream, engine.device(), |turn| {
        // SAFETY: each block is at least as large as its planes (asserted above) or the workspace, and lives until
        // `time_on` has waited for the stream; the caller's context is current.
        unsafe { engine.enqueue(stream, &programs[turn % programs.len()]) }?;
        Ok(())
    })
}

/// The processor time of this thread so far, user and system.
pub fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
