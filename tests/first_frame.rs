//! The first frames in ordinary memory, on the fake CUDA driver: the driver copies their memory until the background thread has
//! allocated staging buffers.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::Noise;
use common::fake_driver::FakeDriver;
use common::wait_until;
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::{CudaEngine, CudaError, Memory};
use gstcudagaussblur::engine::{Engine, EngineError, FrameAccess, InFlightFrame};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{Destination, Frame, FrameMut, Plane, PlaneLayout, Source};

const OUT_OF_MEMORY: i32 = 2;
const LAUNCH_FAILED: i32 = 719;
const LONG: Duration = Duration::from_secs(20);

fn layouts([width, height]: [u32; 2]) -> Vec<PlaneLayout> {
    let half = PlaneLayout { sigma_scale: [0.5; 2], ..PlaneLayout::new(width.div_ceil(2), height.div_ceil(2), 2, 8) };
    vec![PlaneLayout::new(width, height, 1, 8), half]
}

fn params() -> BlurParams {
    BlurParams::new(1.5, 0).unwrap()
}

/// A frame in ordinary memory: the bytes of each plane, with padding behind the rows of the source.
struct OrdinaryFrame {
    layouts: Vec<PlaneLayout>,
    source: Vec<Vec<u8>>,
    destination: Vec<Vec<u8>>,
    leaked: Arc<AtomicUsize>,
}

const PADDING: usize = 5;

impl OrdinaryFrame {
    fn new(size: [u32; 2], seed: u64) -> Self {
        let layouts = layouts(size);
        let noise = |layout: &PlaneLayout| Noise(seed).bytes((layout.row_bytes() + PADDING) * layout.height as usize);
        let zeros = |layout: &PlaneLayout| vec![0; layout.row_bytes() * layout.height as usize];
        Self {
            source: layouts.iter().map(noise).collect(),
            destination: layouts.iter().map(zeros).collect(),
            layouts,
            leaked: Arc::default(),
        }
    }

    fn views(&mut self) -> (Frame<'_>, FrameMut<'_>) {
        let Self { layouts, source, destination, .. } = self;
        let source = layouts.iter().zip(source).map(|(layout, data)| Plane {
            layout: *layout,
            pitch: layout.row_bytes() + PADDING,
            data: &data[..],
        });
        let destination = layouts.iter().zip(destination).map(|(layout, data)| Plane {
            layout: *layout,
            pitch: layout.row_bytes(),
            data: &mut data[..],
        });
        (source.collect(), destination.collect())
    }

    /// Asserts that the destination is the CPU engine's blur of the source.
    fn check(mut self) {
        let blurred = std::mem::take(&mut self.destination);
        self.destination = blurred.iter().map(|plane| vec![0; plane.len()]).collect();
        let (source, mut destination) = self.views();
        Engine::with_cpu(CpuEngine::new()).blur(params(), &source, &mut destination).unwrap();
        assert!(self.destination == blurred, "wrong bytes");
    }
}

// SAFETY: the planes are heap blocks, which do not move, and nobody else accesses them.
unsafe impl FrameAccess for OrdinaryFrame {
    fn frames(&mut self) -> (Source<'_>, Destination<'_>) {
        let (source, destination) = self.views();
        (Source::Host(source), Destination::Host(destination))
    }

    fn leak(self) {
        self.leaked.fetch_add(1, Ordering::SeqCst);
        std::mem::forget(self);
    }
}

fn cuda() -> Engine {
    Engine::with_cuda(CudaEngine::new(0).unwrap())
}

fn submit(engine: &mut Engine, size: [u32; 2], seed: u64) -> InFlightFrame<OrdinaryFrame> {
    engine.submit(params(), OrdinaryFrame::new(size, seed)).unwrap()
}

fn blur(engine: &mut Engine, size: [u32; 2], seed: u64) {
    let frame = submit(engine, size, seed);
    engine.complete(frame).unwrap().frame.check();
}

/// This thread, on which the frames are submitted, allocates no pinned memory. Once it is allocated, frames pass through it.
#[test]
fn staging_buffers_are_allocated_by_another_thread_after_the_frame() {
    let driver = FakeDriver::new();
    let mut engine = cuda();
    let thread = driver.pinned_of_thread();
    // One copy for each plane and direction.
    for (size, seed) in [([40, 22], 1), ([64, 30], 2), ([40, 22], 3)] {
        let (copies, copied) = (driver.pageable_copies(), engine.stats().bytes_copied);
        let frame = submit(&mut engine, size, seed);
        assert!(driver.counts().pinned_blocks == 0, "memory is allocated, or not freed, before the frame is complete");
        engine.complete(frame).unwrap().frame.check();
        assert_eq!(driver.pageable_copies() - copies, 4, "{size:?}");
        // That of the destination is requested by the second frame, because the element's first output is no rule.
        wait_until("a staging buffer", || driver.counts().pinned_blocks == 1);
        let mut frames = 1;
        until_staged(&driver, || {
            blur(&mut engine, size, frames);
            frames += 1;
        });
        assert_eq!(driver.counts().pinned_blocks, 2);
        // They are used from here on. The bytes of the first frames were copied by the CPU too.
        let copies = driver.pageable_copies();
        for seed in 10..13 {
            blur(&mut engine, size, seed);
            frames += 1;
        }
        assert_eq!(driver.pageable_copies(), copies, "{size:?}");
        let bytes: usize = layouts(size).iter().map(|plane| plane.row_bytes() * plane.height as usize).sum();
        assert_eq!(engine.stats().bytes_copied - copied, frames * 2 * bytes as u64, "{size:?}");
    }
    assert_eq!(driver.pinned_of_thread(), thread, "this thread allocated pinned memory");
    assert_eq!(engine.stats().frames_pinned, [0; 2]);
    drop(engine);
    assert_eq!([driver.counts().pinned_blocks, driver.counts().device_blocks], [0; 2], "leaked");
}

/// Calls `blur` until a frame is staged.
fn until_staged(driver: &FakeDriver, mut blur: impl FnMut()) {
    let started = Instant::now();
    loop {
        let copies = driver.pageable_copies();
        blur();
        if driver.pageable_copies() == copies {
            return;
        }
        assert!(started.elapsed() < LONG, "no frame is staged");
    }
}

fn alloc_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "gaussblur-alloc").count()
}

/// Each frame in flight gets its own staging buffers.
#[test]
fn frames_in_flight_get_staging_buffers_each() {
    let driver = FakeDriver::new();
    let mut engine = cuda();
    let thread = driver.pinned_of_thread();
    for round in 0..3 {
        let frames = [1, 2, 3].map(|seed| submit(&mut engine, [48, 26], 3 * round + seed));
        for frame in frames {
            engine.complete(frame).unwrap().frame.check();
        }
    }
    // A request that was made while the thread was running is processed after a later frame.
    until_staged(&driver, || {
        let frames = [1, 2, 3].map(|seed| submit(&mut engine, [48, 26], seed));
        for frame in frames {
            engine.complete(frame).unwrap().frame.check();
        }
    });
    assert_eq!([driver.counts().pinned_blocks, driver.pinned_of_thread() - thread], [6, 0]);
}

/// If a staging buffer cannot be allocated, a frame after the first one reports it.
#[test]
fn failed_allocation_is_the_error_of_a_later_frame() {
    let driver = FakeDriver::new();
    let mut engine = cuda();
    driver.fail("cuMemHostAlloc", 0, OUT_OF_MEMORY);
    let started = Instant::now();
    blur(&mut engine, [40, 22], 1);
    let error = loop {
        assert!(started.elapsed() < LONG, "the failure is lost");
        match engine.submit(params(), OrdinaryFrame::new([40, 22], 2)) {
            Ok(frame) => engine.complete(frame).unwrap().frame.check(),
            Err(error) => break error,
        }
    };
    let EngineError::Cuda(CudaError::OutOfMemory { kind, bytes, .. }) = error else { panic!("{error}") };
    assert_eq!((kind, bytes > 40 * 22), (Memory::PinnedHost, true));
    driver.clear_faults();
    // The next frame requests it again.
    until_staged(&driver, || blur(&mut engine, [40, 22], 3));
}

/// An engine that is dropped while memory is allocated for it waits for that, and frees it.
#[test]
fn dropped_engine_waits_for_its_allocations() {
    let driver = FakeDriver::new();
    for seed in 0..4 {
        let mut engine = cuda();
        driver.delay_pinned(20);
        let frames = [1, 2].map(|more| submit(&mut engine, [40, 22], seed + more));
        for frame in frames {
            engine.complete(frame).unwrap().frame.check();
        }
        drop(engine);
        assert_eq!(alloc_threads(), 0, "the thread is still running");
        assert_eq!([driver.counts().pinned_blocks, driver.counts().device_blocks], [0; 2], "leaked");
        driver.clear_faults();
    }
    // Frames may outlive the engine that would have allocated for them.
    let mut engine = cuda();
    let frame = submit(&mut engine, [40, 22], 1);
    drop(engine);
    drop(frame);
    assert_eq!([driver.counts().pinned_blocks, driver.counts().device_blocks], [0; 2], "leaked");
}

/// After a failure the memory of the frame is leaked unless the device is known to have stopped using it, because some devices
/// access ordinary memory.
#[test]
fn frame_that_fails_is_leaked_if_the_device_may_still_use_it() {
    let driver = FakeDriver::new();
    for (function, after) in [("cuMemcpy2DAsync_v2", 1), ("cuLaunchKernel", 0), ("cuMemcpyDtoHAsync_v2", 0)] {
        for settles in [true, false] {
            let mut engine = cuda();
            let frame = OrdinaryFrame::new([64, 22], 1);
            let leaked = Arc::clone(&frame.leaked);
            driver.fail(function, after, LAUNCH_FAILED);
            if !settles {
                // The memory of the slot and its workspace are waited for too.
                driver.fail("cuStreamSynchronize", 1, LAUNCH_FAILED);
            }
            assert!(engine.submit(params(), frame).is_err(), "{function}");
            driver.clear_faults();
            assert_eq!(leaked.load(Ordering::SeqCst), usize::from(!settles), "{function}, settles: {settles}");
            assert_eq!(engine.stats().frames_abandoned, u64::from(!settles));
            blur(&mut engine, [64, 22], 2);
        }
    }
}
