//! In-flight frames of which it cannot be known whether the device has finished with them, on the fake CUDA driver:
//! their memory is leaked (neither reused, freed nor unregistered), and every frame is still output correctly. That no frame
//! is lost whichever call is the first to fail is tested by tests/faults.rs.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::Noise;
use crate::common::checks::Row;
use crate::common::fake_driver::{FakeDriver, LAUNCH_FAILED};
use crate::common::video::{Blur, blurred, buffer, info, picture, read};
use gst::glib::translate::from_glib_full;
use gst::prelude::*;
use gst_video::VideoFormat;
use gstcudagaussblur::cuda::CudaEngine;

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

/// A buffer with noise in memory of this kind, which increments `freed` when it is freed.
fn input(kind: Input, bytes: usize, freed: &Arc<AtomicUsize>) -> gst::Buffer {
    let mut buffer = match kind {
        Input::Pinned | Input::Parent => {
            let pinned = CudaEngine::new(0).unwrap().pinned().allocate(bytes).unwrap();
            gst::Buffer::from_mut_slice(Counted(pinned, freed.clone()))
        }
        Input::Registered => {
            let mut owner = Box::new(Counted(vec![0; bytes], freed.clone()));
            wrapping(owner.0.as_mut_ptr(), bytes, Some(owner))
        }
    };
    buffer.get_mut().unwrap().copy_from_slice(0, &Noise(1).bytes(bytes)).unwrap();
    if kind == Input::Parent {
        let address = buffer.map_readable().unwrap().as_ptr().cast_mut();
        let mut child = wrapping(address, bytes, None);
        gst::ParentBufferMeta::add(child.get_mut().unwrap(), &buffer);
        buffer = child;
    }
    buffer
}

/// A buffer of these bytes in memory of GStreamer's own type, which is the only one that is registered. It drops their owner
/// when it is freed; without one, the caller keeps them alive.
fn wrapping(address: *mut u8, bytes: usize, owner: Option<Box<Counted<Vec<u8>>>>) -> gst::Buffer {
    unsafe extern "C" fn free(owner: *mut c_void) {
        // SAFETY: GStreamer calls it once, with the pointer that `Box::into_raw` returned below.
        drop(unsafe { Box::from_raw(owner.cast::<Counted<Vec<u8>>>()) });
    }
    let free = owner.is_some().then_some(free as unsafe extern "C" fn(*mut c_void));
    let owner = owner.map_or(std::ptr::null_mut(), |owner| Box::into_raw(owner).cast());
    let mut buffer = gst::Buffer::new();
    // SAFETY: the bytes live until the memory is freed: their owner, or what the caller keeps.
    let memory =
        unsafe { from_glib_full(gst::ffi::gst_memory_new_wrapped(0, address.cast(), bytes, 0, bytes, owner, free)) };
    buffer.get_mut().unwrap().append_memory(memory);
    buffer
}

#[test]
fn flush_and_stop_leak_memory_the_device_may_still_use() {
    let driver = FakeDriver::new();
    let info = info(VideoFormat::Rgba, 400, 200);
    // The function that fails, the number of its calls that succeed before, and how many of three frames are then
    // abandoned. A frame that is not abandoned needs one call to wait for the device, and one more to free or unregister
    // its input.
    let failures = [
        ("cuCtxPushCurrent_v2", 0, 3),
        ("cuCtxPushCurrent_v2", 2, 2),
        ("cuEventSynchronize", 0, 3),
        ("cuEventSynchronize", 1, 2),
    ];
    let ends = [
        (Input::Pinned, End::Flush),
        (Input::Registered, End::Flush),
        (Input::Parent, End::Flush),
        (Input::Pinned, End::Stop),
    ];
    for ((kind, end), (function, after, abandoned)) in
        ends.into_iter().flat_map(|end| failures.map(|failure| (end, failure)))
    {
        let _row = Row(format!("{kind:?}, {end:?}, {function} after {after}"));
        let before = driver.counts();
        let freed = Arc::new(AtomicUsize::new(0));
        let mut blur = Blur::with("backend=auto sigma=0.5 max-in-flight=4", &info);
        let frames = [0; 3].map(|_| input(kind, info.size(), &freed));
        if kind == Input::Registered {
            for frame in frames.iter().chain(&frames) {
                blur.try_push(frame.copy()).unwrap();
            }
            blur.harness.push_event(gst::event::Gap::builder(gst::ClockTime::ZERO).build());
            while blur.harness.try_pull().is_some() {}
        }
        driver.is_busy(i32::MAX);
        for frame in frames {
            blur.try_push(frame).unwrap();
        }
        assert_eq!(blur.harness.buffers_in_queue(), 0, "not all three frames are in flight");
        driver.fail(function, after, LAUNCH_FAILED);
        match end {
            End::Flush => blur.flush(),
            End::Stop => _ = blur.element.set_state(gst::State::Null).unwrap(),
        }
        assert_eq!(freed.load(Ordering::SeqCst), 3 - abandoned, "inputs released");
        assert_eq!(blur.stats(["frames-abandoned"]), [abandoned as u64]);
        blur.warns(&[&format!("the memory of {abandoned} frame")]);
        driver.clear_faults();
        if end == End::Flush {
            // The stream continues: no further frame is abandoned and no further warning is posted.
            blur.try_push(buffer(&info, &picture(&info, 5))).unwrap();
            blur.end();
            let output = blur.harness.try_pull().expect("a frame after the flush");
            assert!(read(&info, &output) == blurred(&picture(&info, 5), 0.5, 0));
            assert_eq!(blur.stats(["frames-abandoned", "frames-cpu"]), [abandoned as u64, 0]);
            blur.said(0, 0);
        }
        blur.element.set_state(gst::State::Null).unwrap();
        drop(blur);
        // Each abandoned frame leaks its input and its output; the fake driver counts registered memory as pinned
        // too. If the context cannot be entered while the element stops, no pinned memory can be freed at all.
        let leaked = driver.counts().pinned_blocks - before.pinned_blocks;
        let is_exact = end == End::Flush || function != "cuCtxPushCurrent_v2";
        let expected = 2 * abandoned as i32;
        // Before it was registered, memory was copied through staging buffers, and a slot leaks its own.
        let staging = if kind == Input::Registered { abandoned as i32 } else { 0 };
        assert!(leaked >= expected && (!is_exact || leaked <= expected + staging), "{leaked} pinned blocks are leaked");
    }
}

/// A failed wait posts one warning that states the leak and the fallback. With `auto` the CPU writes into another
/// buffer, because the device may still write into the first one.
#[test]
fn abandoned_output_memory_is_not_reused_by_the_fallback() {
    let driver = FakeDriver::new();
    let info = info(VideoFormat::Rgba, 40, 12);
    let image = picture(&info, 3);
    let leak = "the memory of 1 frame, which is leaked";
    for backend in ["auto", "cuda"] {
        let mut blur = Blur::with(&format!("backend={backend} sigma=2"), &info);
        for function in ["cuEventQuery", "cuEventSynchronize"] {
            driver.fail(function, 0, LAUNCH_FAILED);
        }
        let pushed = blur.try_push(buffer(&info, &image));
        assert_eq!(blur.stats(["frames-abandoned"]), [1]);
        if backend == "auto" {
            blur.warns(&[leak, "falling back to the CPU from this frame on"]);
            let output = blur.harness.pull().unwrap();
            assert!(read(&info, &output) == blurred(&image, 2.0, 0));
            // The abandoned buffer belongs to the element's pool.
            // SAFETY: `output` is a live buffer, whose fields may be read.
            assert!(unsafe { (*output.as_ptr()).pool.is_null() }, "the abandoned buffer was pushed downstream");
        } else {
            assert_eq!(pushed, Err(gst::FlowError::Error));
            assert!(blur.said(1, 1)[0].contains(leak));
        }
        driver.clear_faults();
    }
}
