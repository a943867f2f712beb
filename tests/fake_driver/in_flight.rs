//! Frames in flight: several at once, in pinned memory, and on the streams of other owners, on the fake CUDA driver. What becomes
//! of them when the device fails is tested by tests/faults.rs.

use crate::common::Noise;
use crate::common::cases::{Case, Content};
use crate::common::checks::Row;
use crate::common::covered::{self, covering, noise, with_roi};
use crate::common::device_frames::{Block, Frames, OnDevice, Place, Streams, check_blurs, wait, with_streams};
use crate::common::fake_driver::{FakeDriver, ILLEGAL_ADDRESS, OUT_OF_MEMORY};
use crate::common::pictures::{self, resized};
use crate::common::video::{self, Blur, FRAME, blurred, buffer, info, picture, read};
use gst::prelude::*;
use gst_video::VideoFormat::{Gray8, Rgba};
use gstcudagaussblur::cuda::{CudaEngine, Image, PassStrategy};
use gstcudagaussblur::engine::{Engine, Stats};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::PlaneLayout;
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Selection};

/// With several frames in flight none is lost or repeated, and all are pushed before whatever follows them in the stream.
#[test]
fn frames_in_flight_keep_their_order_and_are_drained() {
    let machine = FakeDriver::new();
    let infos = [(40, 12), (24, 30)].map(|(width, height)| info(Rgba, width, height));
    let mut blur = Blur::with("backend=cuda sigma=2 max-in-flight=3", &infos[0]);
    // The device is busy: two frames wait, and each further one completes the oldest.
    machine.is_busy(6);
    for (seed, output) in [0, 0, 1, 2, 3, 4].into_iter().enumerate() {
        blur.push_noise(&infos[0], seed as u64);
        assert_eq!(blur.harness.buffers_in_queue(), output, "after frame {seed}");
    }
    // Frames in flight are pushed before new caps and before the end of the stream.
    blur.caps(&infos[1]);
    assert_eq!(blur.harness.buffers_in_queue(), 6);
    machine.is_busy(2);
    for seed in 6..8 {
        blur.push_noise(&infos[1], seed);
        assert_eq!(blur.harness.buffers_in_queue(), 6, "after frame {seed}");
    }
    blur.end();
    for frame in 0..8 {
        blur.check_output(&infos[usize::from(frame >= 6)], frame, 2.0, frame);
    }
    assert!(blur.harness.try_pull().is_none());
    assert_eq!(blur.stats(["frames-cuda"]), [8]);

    // A flush discards them, as stopping does, and no resource is leaked.
    for is_flushed in [true, false] {
        let mut blur = Blur::with("backend=cuda sigma=2 max-in-flight=3", &infos[0]);
        machine.is_busy(i32::MAX);
        blur.push_noise(&infos[0], 0);
        machine.clear_faults();
        if is_flushed {
            blur.flush();
            assert!(blur.harness.try_pull().is_none());
        }
        blur.element.set_state(gst::State::Null).unwrap();
    }
    drop(blur);
    assert_eq!(machine.counts().live(), [0; 4], "something is left");
}

/// A failure that is found while frames are drained is returned with the next frame, until a flush.
#[test]
fn nothing_follows_a_frame_that_failed_in_a_drain() {
    let machine = FakeDriver::new();
    let info = info(Rgba, 40, 12);
    let mut blur = Blur::with("backend=cuda sigma=2 max-in-flight=3", &info);
    blur.push_noise(&info, 1);
    machine.fail("cuEventQuery", 0, ILLEGAL_ADDRESS);
    machine.fail("cuEventSynchronize", 0, ILLEGAL_ADDRESS);
    assert!(blur.harness.push_event(gst::event::CustomDownstream::new(gst::Structure::new_empty("drain"))));
    assert_eq!(blur.messages(gst::MessageType::Error).len(), 1);
    machine.clear_faults();
    for sigma in ["2", "0"] {
        blur.element.set_property_from_str("sigma", sigma);
        let frame = buffer(&info, &picture(&info, 1));
        assert_eq!(blur.try_push(frame), Err(gst::FlowError::Error), "sigma={sigma}");
    }
    blur.said(0, 0);
    assert!(blur.harness.try_pull().is_none());
    blur.element.set_property_from_str("sigma", "2");
    blur.flush();
    blur.push_noise(&info, 1);
    blur.end();
    assert!(blur.harness.try_pull().is_some(), "a frame after the flush");
}

/// Covers are in flight as whole frames are: in their order among frames of which nothing is covered, each with its message, and
/// with the bytes of the CPU, also if the device fails.
#[test]
fn covers_in_flight_keep_their_order_and_are_drained() {
    let machine = FakeDriver::new();
    let info = info(Rgba, 64, 40);
    const FRAMES: u64 = 9;
    for (fails, in_place, look_ahead) in [(false, true, 0), (false, false, 2), (true, true, 2), (true, false, 0)] {
        let _row = Row(format!("fails: {fails}, in place: {in_place}, look-ahead={look_ahead}"));
        let with = |backend: &str| {
            let properties = "sigma=2 feather=4 on-missing=pass hold-time=0 max-in-flight=3 post-messages=true";
            covering(&format!("{properties} look-ahead={look_ahead} backend={backend}"), in_place, &info)
        };
        let [mut expected, mut blur] = ["cpu", if fails { "auto" } else { "cuda" }].map(with);
        for frame in 0..FRAMES {
            if frame == look_ahead {
                machine.is_busy(4);
            }
            if frame == 5 && fails {
                machine.fail("cuEventQuery", 0, ILLEGAL_ADDRESS);
            }
            for blur in [&mut expected, &mut blur] {
                blur.try_push(faces(&info, frame, frame % 4 != 3)).unwrap();
            }
            if frame == look_ahead + 1 {
                let output = [&expected, &blur].map(|blur| blur.harness.buffers_received());
                assert_eq!(output, [2, 0], "two covers are in flight");
            }
        }
        let outputs = [&mut expected, &mut blur].map(|blur| {
            blur.harness.push_event(gst::event::CustomDownstream::new(gst::Structure::new_empty("last")));
            blur.end();
            let (kinds, said): (Vec<_>, Vec<_>) = std::iter::from_fn(|| blur.bus.pop())
                .map(|message| (message.type_(), message.structure().map(ToOwned::to_owned)))
                .unzip();
            let warnings = kinds.iter().filter(|kind| **kind == gst::MessageType::Warning).count();
            let is_said = |(kind, said)| (kind == gst::MessageType::Element).then_some(said).flatten();
            let said: Vec<gst::Structure> = kinds.into_iter().zip(said).filter_map(is_said).collect();
            let times: Vec<u64> = said.iter().map(|said| said.get("timestamp").unwrap()).collect();
            assert_eq!(times, (0..FRAMES).map(|frame| (FRAME * frame).nseconds()).collect::<Vec<_>>());
            let frames: Vec<_> = std::iter::from_fn(|| blur.harness.try_pull()).collect();
            assert!(frames.iter().map(|out| out.pts()).eq((0..FRAMES).map(|frame| Some(FRAME * frame))));
            let planes = |out: &gst::Buffer| covered::planes(&info, &noise(&info, 0).planes, out);
            (frames.iter().map(planes).collect::<Vec<_>>(), said, warnings)
        });
        let [(expected, expected_words, none), (got, words, warnings)] = outputs;
        assert!(got == expected, "a frame has other bytes");
        assert_eq!(words, expected_words);
        assert_eq!((none, warnings, blur.stats(["frames"])), (0, usize::from(fails), [FRAMES]));
        let in_flight = if fails { 0 } else { 2 };
        assert_eq!(blur.harness.query_latency(), Some(FRAME * (look_ahead + in_flight)), "they add up");
        machine.clear_faults();
    }
}

/// A frame of noise with or without a face.
fn faces(info: &gst_video::VideoInfo, seed: u64, has_face: bool) -> gst::Buffer {
    let frame = covered::buffer(info, &noise(info, seed));
    if has_face { with_roi(frame, "face", (8, 8, 24, 16)) } else { frame }
}

/// The frames before one that ends streaming leave, though they were in flight.
#[test]
fn an_error_follows_the_covers_in_flight() {
    let machine = FakeDriver::new();
    let info = info(Rgba, 64, 40);
    let mut blur = covering("backend=cuda sigma=2 feather=4 on-missing=error max-in-flight=3", true, &info);
    machine.is_busy(4);
    (0..2).for_each(|_| _ = blur.try_push(faces(&info, 1, true)).unwrap());
    assert_eq!(blur.harness.buffers_received(), 0);
    let pushed = blur.try_push(faces(&info, 1, false));
    blur.harness.push_event(gst::event::Eos::new());
    assert_eq!((blur.harness.buffers_received(), blur.messages(gst::MessageType::Error).len()), (2, 1), "{pushed:?}");
}

/// The reported latency is that of the frames that may wait: none by default, on the CPU, and without a frame rate.
#[test]
fn the_latency_is_that_of_the_frames_in_flight() {
    let _machine = FakeDriver::new();
    video::init();
    let upstream = gst::ClockTime::from_mseconds(7);
    for (properties, rate, frames) in [
        ("backend=cuda", 25, 0),
        ("backend=cuda max-in-flight=3", 25, 2),
        ("backend=cpu max-in-flight=3", 25, 0),
        ("backend=cuda", 0, 0),
        ("backend=cuda max-in-flight=2", 0, 0),
        ("backend=cpu", 0, 0),
    ] {
        let _row = Row(format!("{properties}, {rate} frames a second"));
        let info = gst_video::VideoInfo::builder(Gray8, 32, 8).fps((rate, 1)).build().unwrap();
        let mut blur = Blur::new(&format!("{properties} sigma=2"));
        blur.harness.set_upstream_latency(upstream);
        blur.caps(&info);
        assert_eq!(blur.harness.query_latency(), Some(upstream + FRAME * frames));
        blur.push_noise(&info, 1);
        blur.end();
        blur.check_output(&info, 1, 2.0, 0);
    }
}

/// Pageable memory that is received repeatedly is registered until it is freed; memory that cannot be registered is copied.
#[test]
fn memory_that_recurs_is_registered_until_it_is_freed() {
    let machine = FakeDriver::new();
    let info = info(Rgba, 400, 200);
    let image = picture(&info, 5);
    let expected = blurred(&image, 1.0, 0);
    let regions = "region-mode=inside strength=0 zones=<[zone,x=0,y=0,width=1,height=1]>";
    for (mode, registers) in [("", true), ("", false), (regions, true), (regions, false)] {
        let _row = Row(format!("{mode}, registers: {registers}"));
        let mut blur = Blur::with(&format!("backend=cuda sigma=1 {mode}"), &info);
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
        assert_eq!(blur.stats(["bytes-copied"]), [(copied[0] + copied[1]) * info.size() as u64]);
        assert_eq!(blur.stats(["frames-pinned-in", "frames-pinned-out"]), copied.map(|frames| 6 - frames));
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
    let info = info(Rgba, 100, 60);
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
        let mut blur = Blur::with("backend=auto sigma=1", &info);
        let frame = gst::Buffer::from_mut_slice(bytes);
        // The fake driver knows it as registered for good.
        std::mem::forget(frame.clone());
        assert!(read(&info, &blur.push(frame)) == blurred(&image, 1.0, 0));
        assert_eq!(blur.stats(["frames-cuda", "frames-pinned-in"]), [1, 0], "{function}");
    }
}

/// An invalid elapsed time is reported as 0 and does not fail the frame.
#[test]
fn times_that_cannot_be_cost_no_frame() {
    let machine = FakeDriver::new();
    let info = info(Rgba, 40, 12);
    for milliseconds in [f32::INFINITY, f32::NEG_INFINITY, -1.0, f32::MAX, 0.0] {
        let _row = Row(format!("{milliseconds} ms"));
        machine.elapsed(milliseconds);
        let mut blur = Blur::with("backend=cuda sigma=1", &info);
        (0..3).for_each(|_| blur.check(&info, 8, 1.0));
        assert_eq!(blur.stats(["upload-mean-ns", "kernel-mean-ns", "download-mean-ns"]), [0; 3]);
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
    let info = info(Rgba, 400, 200);
    let mut blurs = [0; 2].map(|_| Blur::with("backend=cuda sigma=1", &info));
    for _ in 0..3 {
        let frame = gst::Buffer::with_size(info.size()).unwrap();
        for blur in &mut blurs {
            blur.push(frame.copy());
            blur.push(frame.copy());
        }
    }
    for blur in &blurs {
        // All inputs.
        assert_eq!(blur.stats(["frames-pinned-in", "bytes-copied"]), [0, 6 * info.size() as u64]);
    }
}

/// The frame after a discontinuity carries the flag, and those before it have been pushed.
#[test]
fn a_discontinuity_is_marked_where_it_is() {
    let machine = FakeDriver::new();
    let info = info(Gray8, 30, 8);
    let mut blur = Blur::with("backend=cuda sigma=1 max-in-flight=3", &info);
    machine.is_busy(2);
    for frame in 0..3 {
        let mut buffer = buffer(&info, &picture(&info, frame));
        if frame == 2 {
            buffer.get_mut().unwrap().set_flags(gst::BufferFlags::DISCONT);
        }
        blur.try_push(buffer).unwrap();
    }
    blur.end();
    let is_marked = |buffer: gst::Buffer| buffer.flags().contains(gst::BufferFlags::DISCONT);
    let marked: Vec<bool> = std::iter::from_fn(|| blur.harness.try_pull()).map(is_marked).collect();
    assert_eq!(marked, [false, false, true]);
    machine.clear_faults();
}

/// What was written on the source's stream before the submission is blurred, and what is written there afterwards is not,
/// without any wait: the fake driver executes nothing before it has to.
#[test]
fn streams_of_others_are_kept_in_order() {
    let _machine = FakeDriver::new();
    let params = BlurParams::new(2.0, 0).unwrap();
    let [before, after, nothing] = [1, 2, 3].map(|seed| Block::dense(&[PlaneLayout::new(64, 24, 1, 8)], seed));
    let expected = before.blurred_into(params.into(), &nothing);
    let mut engine = Engine::with_cuda(CudaEngine::new(0).unwrap());
    with_streams(|own| {
        let [theirs, ours] = own;
        // Whichever stream is waited for first.
        for (to_host, source_first) in [(false, true), (false, false), (true, true)] {
            let [source, destination, later] =
                [&after, &nothing, &after].map(|block| OnDevice::new(&block.bytes, theirs));
            theirs.synchronize().unwrap();
            source.write(&before.bytes, theirs);
            let place = match to_host {
                true => Place::host(&nothing, None),
                false => Place::Device(&nothing, &destination, Some(ours)),
            };
            let frames = Frames { source: Some(Place::Device(&before, &source, Some(theirs))), destination: place };
            let pending = engine.submit(params, frames).unwrap();
            let mut finished = engine.complete(pending).unwrap();
            assert_eq!(finished.queued, !to_host);
            later.copy_to(&source, theirs);
            if source_first {
                theirs.synchronize().unwrap();
            }
            let got = if to_host { finished.frame.destination.bytes() } else { destination.read(ours) };
            wait(own);
            assert!(got == expected.bytes, "to the host: {to_host}, source first: {source_first}");
        }
    });
}

/// The program of one frame, or of the bands of one, serves the next. Whatever changes, every frame has the blur of its own
/// settings, format, size, pitches, addresses, memory and streams, also with others in flight.
#[test]
fn programs_serve_only_frames_that_need_the_same() {
    let _machine = FakeDriver::new();
    let kinds = pictures::kinds();
    let engine = |image| CudaEngine::with_kernels(0, image, PassStrategy::Best).unwrap();
    for engine in [engine(Image::Best), engine(Image::Portable), engine(Image::Best).with_bands(3)] {
        let mut engine = Engine::with_cuda(engine);
        let mut noise = Noise(3);
        // The direct form in one launch and in two, the wide form with one level and with two; the workspace grows.
        let blurs = [(1.2, 0), (1.7, 0), (4.0, 51), (4.5, 0), (15.0, 0)];
        let ways = [Streams::One, Streams::Two, Streams::None, Streams::ToHost, Streams::Host];
        let counts = [kinds.len(), 3, 3, 3, 3, 3, blurs.len(), 2, 2, ways.len(), 3];
        let mut state = counts.map(|_| 0);
        for turn in 0..200 {
            // One thing changes, or nothing.
            let changed = noise.next() as usize % (counts.len() + 1);
            if changed < counts.len() {
                state[changed] = noise.next() as usize % counts[changed];
            }
            let [kind, size, skew, other_skew, gap, other_gap, blur, primary, premultiply, way, in_flight] = state;
            let layouts = resized(&kinds[kind], [[37, 22], [29, 34], [24, 70]][size]);
            let block = |skew: usize, gap: usize, seed| {
                Block::new(&layouts, [0, 6, 64][skew], |layout| layout.row_bytes() + [0, 22, 64][gap], seed)
            };
            let sources: Vec<_> = (0..=in_flight as u64).map(|seed| block(skew, gap, 3 * turn + seed)).collect();
            let options = Options {
                params: BlurParams::new(blurs[blur].0, blurs[blur].1).unwrap(),
                planes: Selection { primary: primary == 0, ..Selection::ALL },
                alpha: [AlphaMode::Straight, AlphaMode::Premultiply][premultiply],
            };
            let _row = Row(format!("turn {turn}: {state:?}"));
            check_blurs(&mut engine, options, &sources, &block(other_skew, other_gap, turn), ways[way]);
        }
    }
}
