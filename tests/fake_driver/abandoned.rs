//! In-flight frames of which it cannot be known whether the device has finished with them, on the fake CUDA driver:
//! their memory is leaked (neither reused, freed nor unregistered), and every frame is still output correctly. That no frame
//! is lost whichever call is the first to fail is tested by tests/faults.rs.

use std::sync::Arc;

use crate::common::Noise;
use crate::common::checks::Row;
use crate::common::fake_driver::{FakeDriver, LAUNCH_FAILED};
use crate::common::oracle::Image;
use crate::common::video::{Blur, blurred, buffer, info, picture, read};
use gst::prelude::*;
use gst_video::{VideoCropMeta, VideoFormat, VideoFrameFlags, VideoMeta};
use gstcudagaussblur::cuda::CudaEngine;

/// A buffer of noise that the device reads without a staging copy: in pinned memory, or in memory of GStreamer's own type, which is
/// registered when it has been seen often enough. It holds its owner as a parent, as buffers do whose memory is another one's.
fn input(is_pinned: bool, bytes: usize, owner: &Arc<[u8]>) -> gst::Buffer {
    let mut buffer = match is_pinned {
        true => gst::Buffer::from_mut_slice(CudaEngine::new(0).unwrap().pinned().allocate(bytes).unwrap()),
        false => gst::Buffer::with_size(bytes).unwrap(),
    };
    let frame = buffer.get_mut().unwrap();
    frame.copy_from_slice(0, &Noise(1).bytes(bytes)).unwrap();
    gst::ParentBufferMeta::add(frame, &gst::Buffer::from_slice(Arc::clone(owner)));
    buffer
}

#[test]
fn flush_and_stop_leak_memory_the_device_may_still_use() {
    let driver = FakeDriver::new();
    let info = info(VideoFormat::Rgba, 400, 200);
    // The function that fails, the number of its calls that succeed before, and how many of three frames are then abandoned. A
    // frame that is not abandoned needs one call to wait for the device, and one more to free or unregister its input.
    let failures = [
        ("cuCtxPushCurrent_v2", 0, 3),
        ("cuCtxPushCurrent_v2", 2, 2),
        ("cuEventSynchronize", 0, 3),
        ("cuEventSynchronize", 1, 2),
    ];
    let ends = [(true, true), (false, true), (true, false)];
    let all = ends.into_iter().flat_map(|end| failures.map(|failure| (end, failure)));
    for ((is_pinned, is_flush), (function, after, abandoned)) in all {
        let _row = Row(format!("pinned: {is_pinned}, flush: {is_flush}, {function} after {after}"));
        let before = driver.counts();
        let owner: Arc<[u8]> = Arc::from([0]);
        let mut blur = Blur::with("backend=auto sigma=0.5 max-in-flight=4", &info);
        let frames = [0; 3].map(|_| input(is_pinned, info.size(), &owner));
        if !is_pinned {
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
        if is_flush {
            blur.flush();
        } else {
            blur.element.set_state(gst::State::Null).unwrap();
        }
        assert_eq!(Arc::strong_count(&owner) - 1, abandoned, "inputs that are not released");
        assert_eq!(blur.stats(["frames-abandoned"]), [abandoned as u64]);
        blur.warns(&[&format!("the memory of {abandoned} frame")]);
        driver.clear_faults();
        if is_flush {
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
        let is_exact = is_flush || function != "cuCtxPushCurrent_v2";
        let expected = 2 * abandoned as i32;
        // Before it was registered, memory was copied through staging buffers, and a slot leaks its own.
        let staging = if is_pinned { 0 } else { abandoned as i32 };
        assert!(leaked >= expected && (!is_exact || leaked <= expected + staging), "{leaked} pinned blocks are leaked");
    }
}

/// A failed wait posts one warning that states the leak and the fallback. With `auto` the CPU writes into another
/// buffer, because the device may still use the first one; also of a part of a larger frame that is covered in place.
#[test]
fn abandoned_output_memory_is_not_reused_by_the_fallback() {
    let driver = FakeDriver::new();
    let [whole, info] = [(64, 16), (40, 12)].map(|(width, height)| info(VideoFormat::Rgba, width, height));
    let leak = "the memory of 1 frame, which is leaked";
    let zone = "region-mode=inside region-sources=zones strength=0 zones=<[zone,x=0,y=0,width=1,height=1]>";
    for (backend, regions) in [("auto", ""), ("cuda", ""), ("auto", zone)] {
        let _row = Row(format!("{backend} {regions}"));
        let owner: Arc<[u8]> = Arc::from([0]);
        let mut frame = input(true, whole.size(), &owner);
        let meta = frame.get_mut().unwrap();
        VideoMeta::add(meta, VideoFrameFlags::empty(), VideoFormat::Rgba, 64, 16).unwrap();
        VideoCropMeta::add(meta, (8, 4, 40, 12));
        let rows = read(&whole, &frame).samples;
        let rows = rows.chunks(64 * 4).skip(4).take(12).flat_map(|row| row[8 * 4..][..40 * 4].to_vec());
        let image = Image { samples: rows.collect(), ..picture(&info, 0) };
        let mut blur = Blur::new(&format!("backend={backend} sigma=2 {regions}"));
        for api in [VideoMeta::meta_api(), VideoCropMeta::meta_api()] {
            blur.harness.add_propose_allocation_meta(api, None);
        }
        blur.caps(&info);
        for function in ["cuEventQuery", "cuEventSynchronize"] {
            driver.fail(function, 0, LAUNCH_FAILED);
        }
        let pushed = blur.try_push(frame);
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
        drop(blur);
        assert_eq!(Arc::strong_count(&owner), 2, "the input is not leaked");
    }
}
