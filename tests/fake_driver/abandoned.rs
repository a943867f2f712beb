//! In-flight frames of which it cannot be known whether the device has finished with them, on the fake CUDA driver:
//! their memory is leaked (neither reused, freed nor unregistered), and every frame is still output correctly.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::Noise;
use crate::common::fake_driver::FakeDriver;
use crate::common::video::{Blur, blurred, buffer, info, picture, read, stat};
use gst::glib::translate::from_glib_full;
use gst::prelude::*;
use gst_video::VideoFormat;
use gstcudagaussblur::cuda::{CudaEngine, PinnedBytes};

const NOT_READY: i32 = 600;
const LAUNCH_FAILED: i32 = 719;

/// A buffer's memory that increments a counter when it is freed.
struct Counted<T>(T, Arc<AtomicUsize>);

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

impl<T: AsMut<[u8]>> AsMut<[u8]> for Counted<T> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.as_mut()
    }
}

/// The kinds of input memory that the device reads directly, without a staging copy.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Input {
    Pinned,
    /// Ordinary memory that has been seen often enough to be registered.
    Registered,
    /// Pinned memory of another buffer, which a parent buffer meta keeps alive.
    Parent,
}

/// What discards the in-flight frames.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Flush,
    Stop,
}

fn pinned(bytes: usize) -> PinnedBytes {
    CudaEngine::new(0).unwrap().pinned().allocate(bytes).unwrap()
}

/// A buffer with noise in memory of this kind, which increments `freed` when it is freed.
fn input(kind: Input, info: &gst_video::VideoInfo, freed: &Arc<AtomicUsize>) -> gst::Buffer {
    let mut buffer = match kind {
        Input::Pinned | Input::Parent => gst::Buffer::from_mut_slice(Counted(pinned(info.size()), freed.clone())),
        Input::Registered => in_system_memory(Counted(vec![0; info.size()], freed.clone())),
    };
    let noise = Noise(1).bytes(info.size());
    buffer.get_mut().unwrap().copy_from_slice(0, &noise).unwrap();
    if kind == Input::Parent { child_of(&buffer) } else { buffer }
}

/// A buffer whose memory has GStreamer's own type, which is the only one that is registered.
fn in_system_memory(bytes: Counted<Vec<u8>>) -> gst::Buffer {
    unsafe extern "C" fn free(owner: *mut c_void) {
        // SAFETY: GStreamer calls it once, with the pointer that `Box::into_raw` returned below.
        drop(unsafe { Box::from_raw(owner.cast::<Counted<Vec<u8>>>()) });
    }
    let mut owner = Box::new(bytes);
    let (address, len) = (owner.0.as_mut_ptr(), owner.0.len());
    let owner = Box::into_raw(owner);
    let mut buffer = gst::Buffer::new();
    // SAFETY: the bytes live until `free` is called, which is when the memory is freed.
    let memory = unsafe {
        from_glib_full(gst::ffi::gst_memory_new_wrapped(0, address.cast(), len, 0, len, owner.cast(), Some(free)))
    };
    buffer.get_mut().unwrap().append_memory(memory);
    buffer
}

/// A buffer that wraps another one's memory without owning it; a parent buffer meta keeps the other one alive.
fn child_of(parent: &gst::Buffer) -> gst::Buffer {
    let (address, bytes) = {
        let map = parent.map_readable().unwrap();
        (map.as_ptr().cast_mut(), map.len())
    };
    let mut child = gst::Buffer::new();
    let buffer = child.get_mut().unwrap();
    // SAFETY: the parent buffer meta added below keeps the memory alive as long as the child buffer.
    buffer.append_memory(unsafe {
        from_glib_full(gst::ffi::gst_memory_new_wrapped(0, address.cast(), bytes, 0, bytes, std::ptr::null_mut(), None))
    });
    gst::ParentBufferMeta::add(buffer, parent);
    child
}

#[test]
fn flush_and_stop_leak_memory_the_device_may_still_use() {
    let driver = FakeDriver::new();
    let info = info(VideoFormat::Rgba, 400, 200);
    let image = picture(&info, 5);
    let expected = blurred(&image, 0.5, 0);
    // The function that fails, the number of its calls that succeed before, and how many of three frames are then
    // abandoned. A frame that is not abandoned needs one call to wait for the device, and one more to free or unregister
    // its input.
    let failures = [
        ("cuCtxPushCurrent_v2", 0, 3),
        ("cuCtxPushCurrent_v2", 2, 2),
        ("cuEventSynchronize", 0, 3),
        ("cuEventSynchronize", 1, 2),
    ];
    let kinds = [Input::Pinned, Input::Registered, Input::Parent];
    let flushes = kinds.map(|kind| (kind, End::Flush));
    for (kind, end) in flushes.into_iter().chain([(Input::Pinned, End::Stop)]) {
        for (function, after, abandoned) in failures {
            let what = format!("{kind:?}, {end:?}, {function} after {after}");
            let before = driver.counts();
            let freed = Arc::new(AtomicUsize::new(0));
            let mut blur = Blur::new("backend=auto sigma=0.5 max-in-flight=4");
            blur.caps(&info);
            let mut frames = [0; 3].map(|_| input(kind, &info, &freed)).to_vec();
            if kind == Input::Registered {
                for _ in 0..2 {
                    frames.iter().for_each(|frame| assert!(blur.try_push(frame.copy()).is_ok()));
                }
                blur.harness.push_event(gst::event::Gap::builder(gst::ClockTime::ZERO).build());
                while blur.harness.try_pull().is_some() {}
            }
            driver.fail_times("cuEventQuery", 0, i32::MAX, NOT_READY);
            frames.drain(..).for_each(|frame| assert!(blur.try_push(frame).is_ok()));
            assert_eq!(blur.harness.buffers_in_queue(), 0, "{what}: not all three frames are in flight");
            driver.fail(function, after, LAUNCH_FAILED);
            match end {
                End::Flush => {
                    blur.harness.push_event(gst::event::FlushStart::new());
                    blur.harness.push_event(gst::event::FlushStop::new(true));
                }
                End::Stop => drop(blur.element.set_state(gst::State::Null).unwrap()),
            }
            assert_eq!(freed.load(Ordering::SeqCst), 3 - abandoned, "{what}: number of inputs released");
            assert_eq!(stat(&blur, "frames-abandoned"), abandoned as u64, "{what}");
            let warnings = blur.messages(gst::MessageType::Warning);
            assert_eq!(warnings.len(), 1, "{what}: {warnings:?}");
            assert!(warnings[0].contains(&format!("the memory of {abandoned} frame")), "{what}: {}", warnings[0]);

            driver.clear_faults();
            if end == End::Flush {
                // The stream continues: no further frame is abandoned and no further warning is posted.
                let segment = gst::FormattedSegment::<gst::ClockTime>::new();
                blur.harness.push_event(gst::event::Segment::new(&segment));
                blur.try_push(buffer(&info, &image)).unwrap();
                blur.harness.push_event(gst::event::Eos::new());
                let output = blur.harness.try_pull().expect("a frame was not output");
                assert!(read(&info, &output) == expected, "{what}: wrong pixels after the flush");
                assert_eq!(
                    stat(&blur, "frames-abandoned"),
                    abandoned as u64,
                    "{what}: frames abandoned after the flush"
                );
                assert_eq!(stat(&blur, "frames-cpu"), 0, "{what}: fell back to the CPU");
                assert!(blur.messages(gst::MessageType::Warning).is_empty(), "{what}: a second warning");
            }
            blur.element.set_state(gst::State::Null).unwrap();
            drop(blur);
            // Each abandoned frame leaks its input and its output; the fake driver counts registered memory as pinned
            // too. If the context cannot be entered while the element stops, no pinned memory can be freed at all.
            let leaked = driver.counts().pinned_blocks - before.pinned_blocks;
            let exact = end == End::Flush || function != "cuCtxPushCurrent_v2";
            let expected = 2 * abandoned as i32;
            // Before it was registered, memory was copied through staging buffers, and a slot leaks its own.
            let staging = if kind == Input::Registered { abandoned as i32 } else { 0 };
            assert!(
                leaked >= expected && (!exact || leaked <= expected + staging),
                "{what}: {leaked} pinned blocks are leaked"
            );
        }
    }
}

/// A failed wait posts one warning that states the leak and the fallback. With `auto` the CPU writes into another
/// buffer, because the device may still write into the first one.
#[test]
fn abandoned_output_memory_is_not_reused_by_the_fallback() {
    let driver = FakeDriver::new();
    let info = info(VideoFormat::Rgba, 40, 12);
    let image = picture(&info, 3);
    for backend in ["auto", "cuda"] {
        let mut blur = Blur::new(&format!("backend={backend} sigma=2"));
        blur.caps(&info);
        for function in ["cuEventQuery", "cuEventSynchronize"] {
            driver.fail(function, 0, LAUNCH_FAILED);
        }
        let pushed = blur.try_push(buffer(&info, &image));
        let (mut warnings, mut errors) = (Vec::new(), Vec::new());
        for message in std::iter::from_fn(|| blur.bus.pop()) {
            match message.view() {
                gst::MessageView::Warning(warning) => warnings.push(warning.error().to_string()),
                gst::MessageView::Error(error) => errors.push(error.error().to_string()),
                _ => (),
            }
        }
        println!("{warnings:?} {errors:?}");
        assert_eq!(stat(&blur, "frames-abandoned"), 1);
        assert!(warnings.len() == 1 && warnings[0].contains("the memory of 1 frame, which is leaked"), "{warnings:?}");
        if backend == "auto" {
            let output = blur.harness.pull().unwrap();
            assert!(read(&info, &output) == blurred(&image, 2.0, 0));
            // The abandoned buffer belongs to the element's pool.
            // SAFETY: `output` is a live buffer, whose fields may be read.
            assert!(unsafe { (*output.as_ptr()).pool.is_null() }, "the abandoned buffer was pushed downstream");
            assert!(
                warnings[0].contains("falling back to the CPU from this frame on") && errors.is_empty(),
                "{errors:?}"
            );
        } else {
            assert_eq!(pushed, Err(gst::FlowError::Error));
            assert_eq!(errors.len(), 1, "{errors:?}");
        }
        driver.clear_faults();
    }
}

/// Whichever call is the first to fail, all frames are output, in order and with the right pixels.
#[test]
fn every_frame_is_output_wherever_the_device_starts_to_fail() {
    let driver = FakeDriver::new();
    let info = info(VideoFormat::Rgb, 40, 12);
    let images: Vec<_> = (0..6).map(|seed| picture(&info, seed)).collect();
    let expected: Vec<_> = images.iter().map(|image| blurred(image, 2.0, 0)).collect();
    let mut abandoned = [0; 2];
    let modes = ["max-in-flight=3", "region-mode=inside strength=0 zones=<[zone,x=0,y=0,width=1,height=1]>"];
    // Frames in memory that the driver copies until there are staging buffers.
    let ordinary = "max-in-flight=2";
    let of_frames = ["cuCtxPushCurrent_v2", "cuEventQuery", "cuStreamWaitEvent", "cuLaunchKernel"];
    let of_regions = [
        "cuCtxPushCurrent_v2",
        "cuEventQuery",
        "cuEventRecord",
        "cuEventElapsedTime",
        "cuMemAlloc_v2",
        "cuMemHostAlloc",
        "cuMemcpy2DAsync_v2",
        "cuLaunchKernel",
    ];
    let calls = of_frames.into_iter().flat_map(|function| (0..24).map(move |after| (modes[0], function, after)));
    let of_ordinary = ["cuMemHostAlloc", "cuMemcpy2DAsync_v2", "cuStreamWaitEvent", "cuLaunchKernel"];
    let calls_of_ordinary =
        of_ordinary.into_iter().flat_map(|function| (0..8).map(move |after| (ordinary, function, after)));
    let calls_of_regions =
        of_regions.into_iter().flat_map(|function| (0..8).map(move |after| (modes[1], function, after)));
    for (mode, function, after) in calls.chain(calls_of_regions).chain(calls_of_ordinary) {
        let mut blur = Blur::new(&format!("backend=auto sigma=2 {mode}"));
        blur.caps(&info);
        let in_pinned = |image| {
            let mut memory = pinned(info.size());
            memory.as_mut().copy_from_slice(&buffer(&info, image).map_readable().unwrap());
            gst::Buffer::from_mut_slice(memory)
        };
        let in_ordinary = |image| buffer(&info, image);
        let frames: Vec<_> = match mode == ordinary {
            true => images.iter().map(in_ordinary).collect(),
            false => images.iter().map(in_pinned).collect(),
        };
        driver.fail(function, after, LAUNCH_FAILED);
        // The first frame waits for memory.
        let waits = if mode == modes[1] { 2 } else { 3 };
        for function in ["cuEventSynchronize", "cuStreamSynchronize"] {
            driver.fail(function, waits, LAUNCH_FAILED);
        }
        for frame in frames {
            blur.try_push(frame).unwrap();
        }
        blur.harness.push_event(gst::event::Eos::new());
        for (frame, expected) in expected.iter().enumerate() {
            let output = blur
                .harness
                .try_pull()
                .unwrap_or_else(|| panic!("{function} after {after}: frame {frame} was not output"));
            assert_eq!(output.pts(), Some(crate::common::video::FRAME * frame as u64), "{function} after {after}");
            assert!(read(&info, &output) == *expected, "{mode}, {function} after {after}: frame {frame}");
        }
        assert!(blur.messages(gst::MessageType::Error).is_empty());
        let warnings = blur.messages(gst::MessageType::Warning);
        assert!(warnings.len() <= 2, "{function} after {after}: {warnings:?}");
        abandoned[usize::from(mode == modes[1])] += stat(&blur, "frames-abandoned");
        driver.clear_faults();
    }
    println!("{abandoned:?} frames were abandoned, of whole frames and of regions");
    assert!(abandoned[0] > 20 && abandoned[1] > 5, "only {abandoned:?} frames were abandoned");
}
