//! Frames in flight: several at once, in pinned memory, and on the streams of other owners, on the fake CUDA driver.

use crate::common::Noise;
use crate::common::cases::{Case, Content};
use crate::common::covered::{self, covering, noise, with_roi};
use crate::common::device_frames::{Block, Streams, check_blur};
use crate::common::fake_driver::FakeDriver;
use crate::common::pictures::{self, resized};
use crate::common::video::{self, Blur, blurred, buffer, info, picture, read, stat};
use gst::prelude::*;
use gst_video::VideoFormat;
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::driver::{DeviceMemory, PinnedMemory, Stream};
use gstcudagaussblur::cuda::{CudaEngine, Image, PassStrategy, process};
use gstcudagaussblur::engine::{Engine, FrameAccess, Stats};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{Destination, DeviceBytes, DeviceFrame, Plane, PlaneLayout, Source};
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Selection};

const OUT_OF_MEMORY: i32 = 2;
const ILLEGAL_ADDRESS: i32 = 700;

/// With several frames in flight none is lost or repeated, and all are pushed before whatever follows them in the stream.
#[test]
fn frames_in_flight_keep_their_order_and_are_drained() {
    const NOT_READY: i32 = 600;
    let machine = FakeDriver::new();
    let mut blur = Blur::new("backend=cuda sigma=2 max-in-flight=3");
    let infos = [(40, 12), (24, 30)].map(|(width, height)| info(VideoFormat::Rgba, width, height));
    let image = |seed: u64, info: &_| picture(info, seed);
    let mut expected = Vec::new();
    let mut begin = |blur: &mut Blur, info: &gst_video::VideoInfo, waiting: u32| {
        let image = image(expected.len() as u64, info);
        blur.try_push(buffer(info, &image)).unwrap();
        expected.push((info.clone(), blurred(&image, 2.0, 0)));
        assert_eq!(blur.harness.buffers_in_queue(), waiting, "frame {}", expected.len());
    };
    // The device is busy: two frames wait, and each further one completes the oldest.
    blur.caps(&infos[0]);
    machine.fail_times("cuEventQuery", 0, 6, NOT_READY);
    for waiting in [0, 0, 1, 2, 3, 4] {
        begin(&mut blur, &infos[0], waiting);
    }
    // Frames in flight are pushed before new caps and before the end of the stream.
    blur.caps(&infos[1]);
    assert_eq!(blur.harness.buffers_in_queue(), 6);
    machine.fail_times("cuEventQuery", 0, 2, NOT_READY);
    begin(&mut blur, &infos[1], 6);
    begin(&mut blur, &infos[1], 6);
    assert!(blur.harness.push_event(gst::event::Eos::new()));
    for (frame, (info, expected)) in expected.iter().enumerate() {
        let output = blur.harness.try_pull().expect("a frame is lost");
        assert_eq!(output.pts(), Some(video::FRAME * frame as u64));
        assert!(read(info, &output) == *expected, "frame {frame}");
    }
    assert!(blur.harness.try_pull().is_none());
    assert_eq!(stat(&blur, "frames-cuda"), 8);

    // A flush discards them, as stopping does, and no resource is leaked.
    for stops in [false, true] {
        let mut blur = Blur::new("backend=cuda sigma=2 max-in-flight=3");
        blur.caps(&infos[0]);
        machine.fail_times("cuEventQuery", 0, i32::MAX, NOT_READY);
        blur.try_push(buffer(&infos[0], &image(0, &infos[0]))).unwrap();
        machine.clear_faults();
        if !stops {
            blur.harness.push_event(gst::event::FlushStart::new());
            blur.harness.push_event(gst::event::FlushStop::new(true));
            assert!(blur.harness.try_pull().is_none());
        }
        blur.element.set_state(gst::State::Null).unwrap();
        drop(blur);
    }
    drop(blur);
    let end = machine.counts();
    assert_eq!([end.device_blocks, end.pinned_blocks, end.events, end.streams], [0; 4], "something is left");
}

/// If the device fails with several frames in flight, none of them is lost.
#[test]
fn frames_in_flight_are_blurred_by_the_cpu_when_the_device_fails() {
    let machine = FakeDriver::new();
    let mut blur = Blur::new("backend=auto sigma=2 max-in-flight=3");
    let info = info(VideoFormat::Rgb, 31, 17);
    blur.caps(&info);
    machine.fail_times("cuEventQuery", 0, 2, 600);
    for seed in 0..2 {
        blur.try_push(buffer(&info, &picture(&info, seed))).unwrap();
    }
    machine.fail("cuEventQuery", 0, ILLEGAL_ADDRESS);
    for seed in 2..5 {
        blur.try_push(buffer(&info, &picture(&info, seed))).unwrap();
    }
    for seed in 0..5 {
        let output = blur.harness.try_pull().expect("a frame is lost");
        assert!(read(&info, &output) == blurred(&picture(&info, seed), 2.0, 0), "frame {seed}");
    }
    assert_eq!(blur.messages(gst::MessageType::Warning).len(), 1);
    assert_eq!([stat(&blur, "frames-cuda"), stat(&blur, "frames-cpu")], [0, 5]);
    machine.clear_faults();
}

/// A failure that is found while frames are drained is returned with the next frame, until a flush.
#[test]
fn nothing_follows_a_frame_that_failed_in_a_drain() {
    let machine = FakeDriver::new();
    let mut blur = Blur::new("backend=cuda sigma=2 max-in-flight=3");
    let info = info(VideoFormat::Rgba, 40, 12);
    blur.caps(&info);
    let frame = || buffer(&info, &picture(&info, 1));
    blur.try_push(frame()).unwrap();
    machine.fail("cuEventQuery", 0, ILLEGAL_ADDRESS);
    machine.fail("cuEventSynchronize", 0, ILLEGAL_ADDRESS);
    assert!(blur.harness.push_event(gst::event::CustomDownstream::new(gst::Structure::new_empty("drain"))));
    assert_eq!(blur.messages(gst::MessageType::Error).len(), 1);
    machine.clear_faults();
    for properties in ["2", "0"] {
        blur.element.set_property_from_str("sigma", properties);
        assert_eq!(blur.try_push(frame()), Err(gst::FlowError::Error), "sigma={properties}");
    }
    assert!(blur.messages(gst::MessageType::Error).is_empty() && blur.harness.try_pull().is_none());
    blur.element.set_property_from_str("sigma", "2");
    blur.harness.push_event(gst::event::FlushStart::new());
    blur.harness.push_event(gst::event::FlushStop::new(true));
    blur.harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    blur.try_push(frame()).unwrap();
    blur.harness.push_event(gst::event::Eos::new());
    assert!(blur.harness.try_pull().is_some(), "a frame after the flush");
}

/// Covers are in flight as whole frames are: in their order among frames of which nothing is covered, each with its message, and
/// with the bytes of the CPU, also if the device fails.
#[test]
fn covers_in_flight_keep_their_order_and_are_drained() {
    let machine = FakeDriver::new();
    let info = info(VideoFormat::Rgba, 64, 40);
    let picture = |frame: u64| noise(&info, frame);
    for (fails, in_place, look_ahead) in [(false, true, 0), (false, false, 2), (true, true, 2), (true, false, 0)] {
        let properties = format!(
            "sigma=2 feather=4 on-missing=pass hold-time=0 max-in-flight=3 post-messages=true look-ahead={look_ahead}"
        );
        let backends = ["cpu", if fails { "auto" } else { "cuda" }];
        let [mut expected, mut blur] =
            backends.map(|backend| covering(&format!("{properties} backend={backend}"), in_place, &info));
        let waiting = |blur: &Blur| blur.harness.buffers_received();
        let frames = 9;
        for frame in 0..frames {
            if frame == look_ahead {
                // The device is busy.
                machine.fail_times("cuEventQuery", 0, 4, 600);
            }
            if frame == 5 && fails {
                machine.fail("cuEventQuery", 0, ILLEGAL_ADDRESS);
            }
            for blur in [&mut expected, &mut blur] {
                let input = covered::buffer(&info, &picture(frame));
                blur.try_push(if frame % 4 == 3 { input } else { with_roi(input, "face", (8, 8, 24, 16)) }).unwrap();
            }
            if frame == look_ahead + 1 {
                assert_eq!((waiting(&expected), waiting(&blur)), (2, 0), "two covers are in flight");
            }
        }
        for blur in [&mut expected, &mut blur] {
            blur.harness.push_event(gst::event::CustomDownstream::new(gst::Structure::new_empty("last")));
            blur.harness.push_event(gst::event::Eos::new());
        }
        let mut warnings = 0;
        let mut said = |blur: &Blur, frame: u64| {
            let message = std::iter::from_fn(|| blur.bus.pop()).find_map(|message| {
                warnings += usize::from(message.type_() == gst::MessageType::Warning);
                Some(message.structure()?.to_owned()).filter(|_| message.type_() == gst::MessageType::Element)
            });
            let message = message.expect("a message");
            assert_eq!(message.get::<u64>("timestamp"), Ok((video::FRAME * frame).nseconds()));
            message
        };
        for frame in 0..frames {
            let [one, other] = [&mut expected, &mut blur].map(|blur| {
                let out = blur.harness.try_pull().expect("a frame is lost");
                assert_eq!(out.pts(), Some(video::FRAME * frame));
                (covered::planes(&info, &picture(frame).planes, &out), said(blur, frame))
            });
            assert!(one == other, "frame {frame}, {fails} {in_place} {look_ahead}");
        }
        assert!(blur.harness.try_pull().is_none());
        assert_eq!(warnings, usize::from(fails));
        assert_eq!(stat(&blur, "frames"), frames);
        let latency = |blur: &Blur| blur.harness.query_latency();
        let in_flight = if fails { 0 } else { 2 };
        assert_eq!(latency(&blur), Some(video::FRAME * (look_ahead + in_flight)), "they add up");
        machine.clear_faults();
    }
}

/// Frames of which nothing is covered wait behind one in flight, and count as it does.
#[test]
fn frames_behind_a_cover_in_flight_are_not_held_longer() {
    let machine = FakeDriver::new();
    let info = info(VideoFormat::Rgba, 64, 40);
    let mut blur = covering("backend=cuda sigma=2 feather=4 on-missing=pass hold-time=0 max-in-flight=2", true, &info);
    machine.fail_times("cuEventQuery", 0, 20, 600);
    for frame in 0..4 {
        let input = covered::buffer(&info, &noise(&info, frame));
        blur.try_push(if frame == 0 { with_roi(input, "face", (8, 8, 24, 16)) } else { input }).unwrap();
        assert!(frame + 1 - u64::from(blur.harness.buffers_received()) <= 1, "frame {frame}");
    }
    machine.clear_faults();
}

/// The frames before one that ends streaming leave, though they were in flight.
#[test]
fn an_error_follows_the_covers_in_flight() {
    let machine = FakeDriver::new();
    let info = info(VideoFormat::Rgba, 64, 40);
    let mut blur = covering("backend=cuda sigma=2 feather=4 on-missing=error max-in-flight=3", true, &info);
    machine.fail_times("cuEventQuery", 0, 4, 600);
    let frame = || covered::buffer(&info, &noise(&info, 1));
    (0..2).for_each(|_| _ = blur.try_push(with_roi(frame(), "face", (8, 8, 24, 16))).unwrap());
    assert_eq!(blur.harness.buffers_received(), 0);
    let pushed = blur.try_push(frame());
    blur.harness.push_event(gst::event::Eos::new());
    assert_eq!((blur.harness.buffers_received(), blur.messages(gst::MessageType::Error).len()), (2, 1), "{pushed:?}");
}

/// The reported latency is that of the frames that may wait: none by default, and none on the CPU.
#[test]
fn the_latency_is_that_of_the_frames_in_flight() {
    let _machine = FakeDriver::new();
    let info = info(VideoFormat::Gray8, 32, 8);
    let upstream = gst::ClockTime::from_mseconds(7);
    for (properties, frames) in
        [("backend=cuda", 0), ("backend=cuda max-in-flight=3", 2), ("backend=cpu max-in-flight=3", 0)]
    {
        let mut blur = Blur::new(properties);
        blur.harness.set_upstream_latency(upstream);
        blur.caps(&info);
        assert_eq!(blur.harness.query_latency(), Some(upstream + video::FRAME * frames), "{properties}");
    }
}

/// Pageable memory that is received repeatedly is registered until it is freed; memory that cannot be registered is copied.
#[test]
fn memory_that_recurs_is_registered_until_it_is_freed() {
    let machine = FakeDriver::new();
    let info = info(VideoFormat::Rgba, 400, 200);
    let image = picture(&info, 5);
    let expected = blurred(&image, 1.0, 0);
    let regions = "region-mode=inside strength=0 zones=<[zone,x=0,y=0,width=1,height=1]>";
    for (mode, registers) in [("", true), ("", false), (regions, true), (regions, false)] {
        let mut blur = Blur::new(&format!("backend=cuda sigma=1 {mode}"));
        blur.caps(&info);
        if !registers {
            machine.fail("cuMemHostRegister_v2", 0, OUT_OF_MEMORY);
        }
        let mut frame = gst::Buffer::with_size(info.size()).unwrap();
        frame.get_mut().unwrap().copy_from_slice(0, &buffer(&info, &image).map_readable().unwrap()).unwrap();
        for _ in 0..6 {
            // A new buffer every time, with the same memory in it.
            assert!(read(&info, &blur.push(frame.copy())) == expected);
        }
        // What regions cover is written by the CPU.
        let copied = [if registers { 2 } else { 6 }, if mode == regions { 6 } else { 0 }];
        assert_eq!(stat(&blur, "bytes-copied"), (copied[0] + copied[1]) * info.size() as u64);
        let pinned = copied.map(|frames| 6 - frames);
        assert_eq!([stat(&blur, "frames-pinned-in"), stat(&blur, "frames-pinned-out")], pinned);
        machine.clear_faults();
        let pinned = machine.counts().pinned_blocks;
        drop(frame);
        assert_eq!(machine.counts().pinned_blocks, pinned - i32::from(registers), "it is registered after its end");
    }
    assert_eq!(machine.counts().pinned_blocks, 0);
}

/// Memory of which only the ends are pinned is pageable memory, because the device cannot read what is between them.
#[test]
fn memory_that_is_pinned_at_its_ends_alone_is_copied() {
    let machine = FakeDriver::new();
    video::check_partly_pinned_frames();
    assert_eq!(machine.counts().pinned_blocks, 0);
}

/// After a registration that could not be ended, other memory at the same address is not taken for pinned.
#[test]
fn a_registration_that_outlives_its_memory_counts_for_nothing() {
    let machine = FakeDriver::new();
    let info = info(VideoFormat::Rgba, 100, 60);
    let image = picture(&info, 7);
    let source = CudaEngine::new(0).unwrap().pinned();
    for function in ["cuCtxPushCurrent_v2", "cuMemHostUnregister"] {
        let mut bytes = vec![0; info.size()];
        let address = bytes.as_ptr() as usize;
        // SAFETY: the memory is never freed.
        let registered = unsafe { source.register(address, info.size()) }.unwrap().unwrap();
        machine.fail_times(function, 0, 1, ILLEGAL_ADDRESS);
        drop(registered);
        machine.clear_faults();
        // It stands for other memory at the same address.
        bytes.copy_from_slice(&buffer(&info, &image).map_readable().unwrap());
        let mut blur = Blur::new("backend=auto sigma=1");
        blur.caps(&info);
        let frame = gst::Buffer::from_mut_slice(bytes);
        // The fake driver knows it as registered for good.
        std::mem::forget(frame.clone());
        assert!(read(&info, &blur.push(frame)) == blurred(&image, 1.0, 0));
        assert_eq!([stat(&blur, "frames-cuda"), stat(&blur, "frames-pinned-in")], [1, 0], "{function}");
    }
}

/// An invalid elapsed time is reported as 0 and does not fail the frame.
#[test]
fn times_that_cannot_be_cost_no_frame() {
    let machine = FakeDriver::new();
    let info = info(VideoFormat::Rgba, 40, 12);
    let image = picture(&info, 8);
    for milliseconds in [f32::INFINITY, f32::NEG_INFINITY, -1.0, f32::MAX, 0.0] {
        machine.elapsed(milliseconds);
        let mut blur = Blur::new("backend=cuda sigma=1");
        blur.caps(&info);
        for _ in 0..3 {
            assert!(read(&info, &blur.push(buffer(&info, &image))) == blurred(&image, 1.0, 0), "{milliseconds} ms");
        }
        let times = ["upload", "kernel", "download"].map(|stage| stat(&blur, &format!("{stage}-mean-ns")));
        assert_eq!(times, [0; 3], "{milliseconds} ms");
    }
    machine.clear_faults();
}

/// The first 16 frames of a plan are timed and then one in eight. The others are ordered by events without times.
#[test]
fn frames_that_are_not_timed_are_blurred_the_same() {
    let machine = FakeDriver::new();
    for bands in [1, 3] {
        let mut engine = Engine::with_cuda(CudaEngine::new(0).unwrap().with_bands(bands));
        let mut timed = Vec::new();
        for frame in 0..70_u16 {
            // The time tells which frame it is of.
            let milliseconds = frame + 1;
            machine.elapsed(f32::from(milliseconds));
            let layout = PlaneLayout::new(24, 200, 1, 8);
            let content = [Content::Noise, Content::Extremes, Content::Flat][frame as usize % 3];
            // Another plan, whose frames take another time.
            let sigma = if frame < 40 { 2.0 } else { 3.0 };
            Case::of(sigma, 0, layout, [0; 2], content).check_engine(&mut engine);
            let Stats { upload, kernel, download, .. } = engine.stats();
            let times = [upload, kernel, download].map(|step| (step.last.as_secs_f64() * 1000.0).round());
            if times == [f64::from(milliseconds); 3] {
                timed.push(frame);
            }
        }
        let expected: Vec<u16> = (0..16).chain([16, 24, 32]).chain(40..56).chain([56, 64]).collect();
        assert_eq!(timed, expected, "{bands} bands");
    }
    machine.clear_faults();
}

/// Two elements behind a tee do not count each other's sightings of a memory.
#[test]
fn memory_that_goes_to_two_elements_has_not_come_twice() {
    let _machine = FakeDriver::new();
    let info = info(VideoFormat::Rgba, 400, 200);
    let mut blurs = [0; 2].map(|_| Blur::new("backend=cuda sigma=1"));
    blurs.iter_mut().for_each(|blur| blur.caps(&info));
    for _ in 0..3 {
        let frame = gst::Buffer::with_size(info.size()).unwrap();
        for blur in &mut blurs {
            blur.push(frame.copy());
            blur.push(frame.copy());
        }
    }
    for blur in &blurs {
        // All inputs.
        assert_eq!([stat(blur, "frames-pinned-in"), stat(blur, "bytes-copied")], [0, 6 * info.size() as u64]);
    }
}

/// Without a frame rate the latency is reported as 0, and frames are blurred.
#[test]
fn streams_without_a_frame_rate_go_through() {
    let _machine = FakeDriver::new();
    video::init();
    let info = gst_video::VideoInfo::builder(VideoFormat::Rgb, 21, 9).fps((0, 1)).build().unwrap();
    let image = picture(&info, 1);
    for properties in ["backend=cuda sigma=2", "backend=cuda sigma=2 max-in-flight=2", "backend=cpu sigma=2"] {
        let mut blur = Blur::new(properties);
        blur.harness.set_upstream_latency(gst::ClockTime::ZERO);
        blur.caps(&info);
        assert_eq!(blur.harness.query_latency(), Some(gst::ClockTime::ZERO), "{properties}");
        blur.try_push(buffer(&info, &image)).unwrap();
        blur.harness.push_event(gst::event::Eos::new());
        assert!(read(&info, &blur.harness.pull().unwrap()) == blurred(&image, 2.0, 0), "{properties}");
    }
}

/// The frame after a discontinuity carries the flag, and those before it have been pushed.
#[test]
fn a_discontinuity_is_marked_where_it_is() {
    let machine = FakeDriver::new();
    let info = info(VideoFormat::Gray8, 30, 8);
    let mut blur = Blur::new("backend=cuda sigma=1 max-in-flight=3");
    blur.caps(&info);
    machine.fail_times("cuEventQuery", 0, 2, 600);
    for frame in 0..3 {
        let mut buffer = buffer(&info, &picture(&info, frame));
        if frame == 2 {
            buffer.get_mut().unwrap().set_flags(gst::BufferFlags::DISCONT);
        }
        blur.try_push(buffer).unwrap();
    }
    blur.harness.push_event(gst::event::Eos::new());
    let marked: Vec<bool> = std::iter::from_fn(|| blur.harness.try_pull())
        .map(|buffer| buffer.flags().contains(gst::BufferFlags::DISCONT))
        .collect();
    assert_eq!(marked, [false, false, true]);
    machine.clear_faults();
}

const LAYOUT: PlaneLayout = PlaneLayout::new(64, 24, 1, 8);
const BYTES: usize = 64 * 24;

/// A frame in device memory, accessed in the order of a stream.
fn on(memory: &DeviceMemory, stream: &Stream) -> DeviceFrame {
    let data = DeviceBytes { address: memory.address(), len: BYTES };
    DeviceFrame { planes: vec![Plane { layout: LAYOUT, pitch: 64, data }], stream: Some(stream.raw() as usize) }
}

/// From device memory to device memory or host memory.
struct Frames<'a> {
    src: (&'a DeviceMemory, &'a Stream),
    dst: Result<(&'a DeviceMemory, &'a Stream), &'a mut [u8]>,
}

// SAFETY: borrowed until the test has waited.
unsafe impl FrameAccess for Frames<'_> {
    fn frames(&mut self) -> (Source<'_>, Destination<'_>) {
        let target = match &mut self.dst {
            Ok((memory, stream)) => Destination::Device(on(memory, stream)),
            Err(bytes) => Destination::Host(vec![Plane { layout: LAYOUT, pitch: 64, data: bytes }]),
        };
        (Source::Device(on(self.src.0, self.src.1)), target)
    }
}

/// What was written on the source's stream before the submission is blurred, and what is written there afterwards is not,
/// without any wait: the fake driver executes nothing before it has to.
#[test]
fn streams_of_others_are_kept_in_order() {
    let _machine = FakeDriver::new();
    let device = process::open(0).unwrap().device().clone();
    let _current = device.enter().unwrap();
    let [theirs, ours] = [0; 2].map(|_| Stream::new(0).unwrap());
    let memory = || DeviceMemory::new(BYTES, &theirs).unwrap();
    let (src, dst) = (memory(), memory());
    let written = [1, 2].map(|seed| {
        let pinned = PinnedMemory::new(BYTES, 0).unwrap();
        let noise = Noise(seed).bytes(BYTES);
        // SAFETY: as large.
        unsafe { noise.as_ptr().copy_to_nonoverlapping(pinned.address(), BYTES) };
        (pinned, noise)
    });
    theirs.synchronize().unwrap();
    let params = BlurParams::new(2.0, 0).unwrap();
    let mut expected = vec![0; BYTES];
    let from = vec![Plane { layout: LAYOUT, pitch: 64, data: &written[0].1[..] }];
    let into = vec![Plane { layout: LAYOUT, pitch: 64, data: &mut expected[..] }];
    Engine::with_cpu(CpuEngine::new()).blur(params, &from, &mut { into }).unwrap();

    let mut host = vec![0; BYTES];
    let mut engine = Engine::with_cuda(CudaEngine::new(0).unwrap());
    // Whichever stream is waited for first.
    for (to_host, source_first) in [(false, true), (false, false), (true, true)] {
        // SAFETY: all of it lives and is waited for below.
        unsafe { theirs.copy(&written[0].0.row(BYTES), &src.row(BYTES), BYTES, 1) }.unwrap();
        let to = if to_host { Err(&mut host[..]) } else { Ok((&dst, &ours)) };
        let pending = engine.submit(params, Frames { src: (&src, &theirs), dst: to }).unwrap();
        let finished = engine.complete(pending).unwrap();
        assert_eq!(finished.queued, !to_host);
        drop(finished);
        // SAFETY: as above.
        unsafe { theirs.copy(&written[1].0.row(BYTES), &src.row(BYTES), BYTES, 1) }.unwrap();
        if source_first {
            theirs.synchronize().unwrap();
        }
        if !to_host {
            let back = PinnedMemory::new(BYTES, 0).unwrap();
            // SAFETY: as above.
            unsafe { ours.copy(&dst.row(BYTES), &back.row(BYTES), BYTES, 1) }.unwrap();
            ours.synchronize().unwrap();
            // SAFETY: as large, and written.
            host.copy_from_slice(unsafe { std::slice::from_raw_parts(back.address(), BYTES) });
        }
        theirs.synchronize().unwrap();
        assert!(host == expected, "to the host: {to_host}, source first: {source_first}");
        host.fill(0);
    }
}

/// The program of one frame on the device serves the next. Whatever changes, every frame has the blur of its own
/// settings, format, pitches, addresses and streams.
#[test]
fn programs_serve_only_frames_that_need_the_same() {
    let _machine = FakeDriver::new();
    let kinds = pictures::kinds();
    let options = |(sigma, kernel_size), primary, alpha| Options {
        params: BlurParams::new(sigma, kernel_size).unwrap(),
        planes: Selection { primary, ..Selection::ALL },
        alpha,
    };
    for image in [Image::Best, Image::Portable] {
        let mut engine = Engine::with_cuda(CudaEngine::with_kernels(0, image, PassStrategy::Best).unwrap());
        let mut noise = Noise(3);
        // The direct form in one launch and in two, the wide form with one level and with two; the workspace grows.
        let blurs = [(1.2, 0), (1.7, 0), (4.0, 51), (4.5, 0), (15.0, 0)];
        let streams = [Streams::One, Streams::Two, Streams::None];
        let counts = [kinds.len(), 2, 3, 3, 3, 3, blurs.len(), 2, 2, streams.len()];
        let mut state = counts.map(|_| 0);
        for turn in 0..240 {
            // One thing changes, or nothing.
            let changed = noise.next() as usize % (counts.len() + 1);
            if changed < counts.len() {
                state[changed] = noise.next() as usize % counts[changed];
            }
            let [kind, size, skew, other_skew, gap, other_gap, blur, primary, premultiply, on] = state;
            let layouts = resized(&kinds[kind], [[37, 22], [29, 34]][size]);
            let [source, destination] = [(skew, gap), (other_skew, other_gap)].map(|(skew, gap)| {
                Block::new(&layouts, [0, 6, 64][skew], |layout| layout.row_bytes() + [0, 22, 64][gap], turn)
            });
            let alpha = [AlphaMode::Straight, AlphaMode::Premultiply][premultiply];
            let options = options(blurs[blur], primary == 0, alpha);
            check_blur(&mut engine, options, &source, &destination, streams[on]);
        }
    }
}

/// A frame whose source is in host memory or in device memory, with rows `pitch` apart, and whose destination is in host memory.
struct Download<'a> {
    layout: PlaneLayout,
    pitch: usize,
    source: Vec<u8>,
    on_device: Option<(DeviceMemory, &'a Stream)>,
    destination: Vec<u8>,
}

// SAFETY: the memory is the frame's own, on the heap or on the device.
unsafe impl FrameAccess for Download<'_> {
    fn frames(&mut self) -> (Source<'_>, Destination<'_>) {
        let Self { layout, pitch, source, on_device, destination } = self;
        let (layout, pitch) = (*layout, *pitch);
        let source = match on_device {
            Some((memory, stream)) => {
                let data = DeviceBytes { address: memory.address(), len: source.len() };
                let planes = vec![Plane { layout, pitch, data }];
                Source::Device(DeviceFrame { planes, stream: Some(stream.raw() as usize) })
            }
            None => Source::Host(vec![Plane { layout, pitch, data: &source[..] }]),
        };
        (source, Destination::Host(vec![Plane { layout, pitch: layout.row_bytes(), data: &mut destination[..] }]))
    }
}

/// The program of the bands of one frame serves the next. Whatever changes, every frame has the blur of its own settings,
/// size, pitch and memory, also with others in flight.
#[test]
fn schedules_serve_only_frames_that_need_the_same() {
    let _machine = FakeDriver::new();
    let device = process::open(0).unwrap().device().clone();
    let _current = device.enter().unwrap();
    let stream = Stream::new(0).unwrap();
    for bands in [None, Some(3)] {
        let engine = CudaEngine::new(0).unwrap();
        let mut engine = Engine::with_cuda(if let Some(count) = bands { engine.with_bands(count) } else { engine });
        let mut noise = Noise(4);
        let mut state = [0; 5];
        for turn in 0..60 {
            // One thing changes, or nothing.
            let changed = noise.next() as usize % 7;
            if changed < state.len() {
                state[changed] = noise.next() as usize % 3;
            }
            let [size, pitch, memory, sigma, in_flight] = state;
            let layout = [(31, 24, 1), (24, 70, 1), (31, 24, 4)][size];
            let layout = PlaneLayout::new(layout.0, layout.1, layout.2, 8);
            let pitch = layout.row_bytes() + [0, 33, 64][pitch];
            let params = BlurParams::new([0.8, 2.0, 4.0][sigma], 0).unwrap();
            let frame = |seed: u64| {
                let source = Noise(seed).bytes(pitch * layout.height as usize);
                let on_device = (memory == 2).then(|| {
                    let pinned = PinnedMemory::new(source.len(), 0).unwrap();
                    let uploaded = DeviceMemory::new(source.len(), &stream).unwrap();
                    // SAFETY: both have as many bytes, and the upload is waited for.
                    unsafe {
                        source.as_ptr().copy_to_nonoverlapping(pinned.address(), source.len());
                        let bytes = source.len();
                        stream.copy(&pinned.row(bytes), &uploaded.row(bytes), bytes, 1).unwrap();
                    }
                    stream.synchronize().unwrap();
                    (uploaded, &stream)
                });
                let destination = vec![0; layout.row_bytes() * layout.height as usize];
                Download { layout, pitch, source, on_device, destination }
            };
            let frames: Vec<_> =
                (0..=in_flight as u64).map(|seed| engine.submit(params, frame(turn * 3 + seed)).unwrap()).collect();
            for frame in frames {
                let mut blurred = engine.complete(frame).unwrap().frame;
                let mut expected = vec![0; blurred.destination.len()];
                let from = vec![Plane { layout, pitch, data: &blurred.source[..] }];
                let into = vec![Plane { layout, pitch: layout.row_bytes(), data: &mut expected[..] }];
                Engine::with_cpu(CpuEngine::new()).blur(params, &from, &mut { into }).unwrap();
                assert!(std::mem::take(&mut blurred.destination) == expected, "turn {turn}: {state:?}");
            }
        }
    }
}
