//! Frames in flight of which it cannot be known that the device has done with them, on the fake driver: their memory is
//! neither reused, freed nor unregistered, and no frame is lost or wrong for it.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::Noise;
use common::machine::Machine;
use common::video::{Blur, blurred, buffer, info, picture, read, stat};
use gst::glib::translate::from_glib_full;
use gst::prelude::*;
use gst_video::VideoFormat;
use gstcudagaussblur::cuda::{CudaEngine, PinnedBytes};

const NOT_READY: i32 = 600;
const LAUNCH_FAILED: i32 = 719;

/// Bytes of a buffer that count themselves when they are freed.
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

/// How the input's memory comes to be one that the device reads by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Input {
    Pinned,
    /// Ordinary memory that has come often enough to be registered.
    Registered,
    /// Pinned memory of another buffer, which a meta keeps.
    Parent,
}

/// What ends frames in flight.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Flush,
    Stop,
}

fn pinned(bytes: usize) -> PinnedBytes {
    CudaEngine::new(0).unwrap().pinned().allocate(bytes).unwrap()
}

/// A buffer with noise in memory of this kind, which counts itself in `freed`.
fn input(kind: Input, info: &gst_video::VideoInfo, freed: &Arc<AtomicUsize>) -> gst::Buffer {
    let mut buffer = match kind {
        Input::Pinned | Input::Parent => gst::Buffer::from_mut_slice(Counted(pinned(info.size()), freed.clone())),
        Input::Registered => gst::Buffer::from_mut_slice(Counted(vec![0; info.size()], freed.clone())),
    };
    let noise = Noise(1).bytes(info.size());
    buffer.get_mut().unwrap().copy_from_slice(0, &noise).unwrap();
    if kind == Input::Parent { child_of(&buffer) } else { buffer }
}

/// A buffer whose memory is that of another one, and does not keep it.
fn child_of(parent: &gst::Buffer) -> gst::Buffer {
    let (address, bytes) = {
        let map = parent.map_readable().unwrap();
        (map.as_ptr().cast_mut(), map.len())
    };
    let mut child = gst::Buffer::new();
    let buffer = child.get_mut().unwrap();
    // SAFETY: the meta below keeps the memory as long as there is the buffer.
    buffer.append_memory(unsafe {
        from_glib_full(gst::ffi::gst_memory_new_wrapped(0, address.cast(), bytes, 0, bytes, std::ptr::null_mut(), None))
    });
    gst::ParentBufferMeta::add(buffer, parent);
    child
}

#[test]
fn memory_that_the_device_may_still_use_is_leaked_at_flush_and_stop() {
    let machine = Machine::new();
    let info = info(VideoFormat::Rgba, 400, 200);
    let image = picture(&info, 5);
    let expected = blurred(&image, 0.5, 0);
    // From which call on which function fails, and so many of three frames are given up: each that is not takes a call to
    // wait for the device, and one to free its pinned input.
    let failures = [
        ("cuCtxPushCurrent_v2", 0, [3, 3]),
        ("cuCtxPushCurrent_v2", 2, [2, 1]),
        ("cuEventSynchronize", 0, [3, 3]),
        ("cuEventSynchronize", 1, [2, 2]),
    ];
    let kinds = [Input::Pinned, Input::Registered, Input::Parent];
    let flushes = kinds.map(|kind| (kind, End::Flush));
    for (kind, end) in flushes.into_iter().chain([(Input::Pinned, End::Stop)]) {
        for (function, after, abandoned) in failures {
            let what = format!("{kind:?}, {end:?}, {function} after {after}");
            let abandoned: usize = abandoned[usize::from(kind == Input::Registered)];
            let before = machine.counts();
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
            machine.fail_times("cuEventQuery", 0, i32::MAX, NOT_READY);
            frames.drain(..).for_each(|frame| assert!(blur.try_push(frame).is_ok()));
            assert_eq!(blur.harness.buffers_in_queue(), 0, "{what}: three frames are in flight");
            machine.fail(function, after, LAUNCH_FAILED);
            match end {
                End::Flush => {
                    blur.harness.push_event(gst::event::FlushStart::new());
                    blur.harness.push_event(gst::event::FlushStop::new(true));
                }
                End::Stop => drop(blur.element.set_state(gst::State::Null).unwrap()),
            }
            assert_eq!(freed.load(Ordering::SeqCst), 3 - abandoned, "{what}: inputs that went back to upstream");
            assert_eq!(stat(&blur, "frames-abandoned"), abandoned as u64, "{what}");
            let warnings = blur.messages(gst::MessageType::Warning);
            assert_eq!(warnings.len(), 1, "{what}: {warnings:?}");
            assert!(warnings[0].contains(&format!("the memory of {abandoned} frame")), "{what}: {}", warnings[0]);

            machine.mend();
            if end == End::Flush {
                // The stream goes on, and nothing more is given up or said.
                let segment = gst::FormattedSegment::<gst::ClockTime>::new();
                blur.harness.push_event(gst::event::Segment::new(&segment));
                blur.try_push(buffer(&info, &image)).unwrap();
                blur.harness.push_event(gst::event::Eos::new());
                let output = blur.harness.try_pull().expect("a frame is lost");
                assert!(read(&info, &output) == expected, "{what}: the frame after it");
                assert_eq!(stat(&blur, "frames-abandoned"), abandoned as u64, "{what}: after it");
                assert_eq!(stat(&blur, "frames-cpu"), 0, "{what}: the CPU took over");
                assert!(blur.messages(gst::MessageType::Warning).is_empty(), "{what}: said twice");
            }
            blur.element.set_state(gst::State::Null).unwrap();
            drop(blur);
            // The inputs and the outputs; of the fake driver registered memory is pinned too. Where the context cannot be
            // entered while the element stops, nothing can be freed at all.
            let leaked = machine.counts().pinned_blocks - before.pinned_blocks;
            let exact = end == End::Flush || function != "cuCtxPushCurrent_v2";
            let expected = 2 * abandoned as i32;
            assert!(if exact { leaked == expected } else { leaked >= expected }, "{what}: {leaked} pinned blocks stay");
        }
    }
}

/// One failure is told once, with all that it means.
#[test]
fn a_frame_that_the_device_may_still_use_is_blurred_elsewhere() {
    let machine = Machine::new();
    let info = info(VideoFormat::Rgba, 40, 12);
    let image = picture(&info, 3);
    for backend in ["auto", "cuda"] {
        let mut blur = Blur::new(&format!("backend={backend} sigma=2"));
        blur.caps(&info);
        for function in ["cuEventQuery", "cuEventSynchronize"] {
            machine.fail(function, 0, LAUNCH_FAILED);
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
            // Not the pool's buffer, which the device may still write.
            // SAFETY: a live buffer.
            assert!(unsafe { (*output.as_ptr()).pool.is_null() }, "the device's own buffer was handed on");
            assert!(
                warnings[0].contains("the CPU does the work from this frame on") && errors.is_empty(),
                "{errors:?}"
            );
        } else {
            assert_eq!(pushed, Err(gst::FlowError::Error));
            assert_eq!(errors.len(), 1, "{errors:?}");
        }
        machine.mend();
    }
}

/// Wherever entering the context begins to fail, every frame comes out, in order and blurred.
#[test]
fn no_frame_is_lost_or_wrong_wherever_the_context_is_lost() {
    let machine = Machine::new();
    let info = info(VideoFormat::Rgb, 40, 12);
    let images: Vec<_> = (0..6).map(|seed| picture(&info, seed)).collect();
    let expected: Vec<_> = images.iter().map(|image| blurred(image, 2.0, 0)).collect();
    let mut abandoned = 0;
    for (function, after) in ["cuCtxPushCurrent_v2", "cuEventQuery", "cuStreamWaitEvent", "cuLaunchKernel"]
        .into_iter()
        .flat_map(|function| (0..24).map(move |after| (function, after)))
    {
        let mut blur = Blur::new("backend=auto sigma=2 max-in-flight=3");
        blur.caps(&info);
        let in_pinned = |image| {
            let mut memory = pinned(info.size());
            memory.as_mut().copy_from_slice(&buffer(&info, image).map_readable().unwrap());
            gst::Buffer::from_mut_slice(memory)
        };
        let frames: Vec<_> = images.iter().map(in_pinned).collect();
        machine.fail(function, after, LAUNCH_FAILED);
        for function in ["cuEventSynchronize", "cuStreamSynchronize"] {
            machine.fail(function, 3, LAUNCH_FAILED);
        }
        for frame in frames {
            blur.try_push(frame).unwrap();
        }
        blur.harness.push_event(gst::event::Eos::new());
        for (frame, expected) in expected.iter().enumerate() {
            let output =
                blur.harness.try_pull().unwrap_or_else(|| panic!("{function} after {after}: frame {frame} is lost"));
            assert_eq!(output.pts(), Some(common::video::FRAME * frame as u64), "{function} after {after}");
            assert!(read(&info, &output) == *expected, "{function} after {after}: frame {frame}");
        }
        assert!(blur.messages(gst::MessageType::Error).is_empty());
        let warnings = blur.messages(gst::MessageType::Warning);
        assert!(warnings.len() <= 2, "{function} after {after}: {warnings:?}");
        abandoned += stat(&blur, "frames-abandoned");
        machine.mend();
    }
    println!("{abandoned} frames were abandoned");
    assert!(abandoned > 20, "{abandoned} frames alone were abandoned");
}
