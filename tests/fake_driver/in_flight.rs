//! Frames in flight: several at once, in pinned memory, and on the streams of other owners, on the fake CUDA driver. What becomes
//! of them when the device fails is tested by tests/faults.rs.

use crate::common::Noise;
use crate::common::cases::{Case, Content};
use crate::common::checks::Row;
use crate::common::device_frames::{Block, Frames, OnDevice, Place, Streams, check_blurs, wait, with_streams};
use crate::common::fake_driver::{FakeDriver, ILLEGAL_ADDRESS, LAUNCH_FAILED, OUT_OF_MEMORY};
use crate::common::pictures::{self, resized};
use crate::common::stream::{Stream, ms};
use crate::common::video::{self, Blur, FRAME, blurred, buffer, info, picture, read};
use gst_video::VideoFormat::{Gray8, Rgba};
use gstcudagaussblur::cuda::{CudaEngine, Image};
use gstcudagaussblur::engine::{Engine, Stats};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::PlaneLayout;
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Selection};

const WHOLE_FRAMES: &str = "backend=cuda region-mode=frame sigma=2 max-in-flight=3";

/// With several frames in flight none is lost or repeated, and all are pushed before whatever follows them in the stream. No resource
/// is leaked.
#[test]
fn frames_in_flight_keep_their_order_and_are_drained() {
    let machine = FakeDriver::new();
    let mut stream = Stream::of(&info(Rgba, 40, 12), WHOLE_FRAMES);
    // The device is busy: two frames wait, and each further one completes the oldest.
    for (queries, enters, leaves) in [
        (6, "frame*2", ""),
        (0, "frame*4", "0-3:whole"),
        (0, "24x30", "4 5 caps segment"),
        // Downstream may want other buffers.
        (9, "frame*2 reconfigure frame", "6-7:whole"),
        (0, "discont eos", "8:whole 9!:whole eos"),
    ] {
        if queries > 0 {
            machine.is_busy(queries);
        }
        stream.plays(&[(enters, leaves)]);
    }
    stream.counts("frames-cuda=10");
    drop(stream);
    assert_eq!(machine.counts().live(), [0; 4], "something is left");
}

/// A failure that is found while frames are drained is returned with the next frame, until a flush.
#[test]
fn nothing_follows_a_frame_that_failed_in_a_drain() {
    let machine = FakeDriver::new();
    let mut stream = Stream::of(&info(Rgba, 40, 12), WHOLE_FRAMES);
    stream.plays(&[("frame", "")]);
    machine.fail("cuEventQuery", 0, ILLEGAL_ADDRESS);
    machine.fail("cuEventSynchronize", 0, ILLEGAL_ADDRESS);
    stream.enter("mark-drain").fails("…ILLEGAL_ADDRESS…");
    machine.clear_faults();
    stream.plays(&[("frame sigma=0 frame", "mark-drain error error")]).fails("");
    stream.plays(&[("sigma=2 flush segment frame eos", "flush-start flush-stop segment 3:whole eos")]);
}

/// The frames before one that ends streaming leave, covered, though they were in flight.
#[test]
fn an_error_follows_the_covers_in_flight() {
    let machine = FakeDriver::new();
    let properties = "backend=cuda sigma=2 expand=0 on-missing=error max-in-flight=3";
    let mut stream = Stream::of(&info(Rgba, 64, 40), properties);
    machine.is_busy(4);
    stream.plays(&[("face*2", ""), ("frame eos", "0-1:8x8+20+20 eos")]).fails("…");
}

/// The reported latency is that of the frames that may wait, in flight and for later ones: none by default, on the CPU, and without a
/// frame rate.
#[test]
fn the_latency_is_that_of_the_frames_in_flight() {
    let _machine = FakeDriver::new();
    for (properties, frames, leaves) in [
        ("region-mode=frame backend=cuda", 0, "0:whole eos"),
        ("region-mode=frame backend=cuda max-in-flight=3", 2, "0:whole eos"),
        ("region-mode=frame backend=cpu max-in-flight=3", 0, "0:whole eos"),
        ("on-missing=pass backend=cuda max-in-flight=3 look-ahead=2", 4, "0:open eos"),
    ] {
        let [with_rate, without] = [Stream::gray(properties), Stream::without_rate(Gray8, properties)];
        for (mut stream, frames) in [(with_rate, frames), (without, 0)] {
            stream.harness.set_upstream_latency(ms(7));
            assert_eq!(stream.harness.query_latency(), Some(ms(7) + FRAME * frames), "{properties}");
            stream.plays(&[("frame eos", leaves)]);
        }
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

/// A registration made for one device ends only when no device uses the memory, which another GstMemory may refer to too.
#[test]
fn a_registration_ends_after_the_copies_of_every_device() {
    let machine = FakeDriver::with_devices(2);
    let info = info(Rgba, 100, 60);
    let image = picture(&info, 7);
    let bytes = buffer(&info, &image).map_readable().unwrap().to_vec();
    let source = CudaEngine::new(0).unwrap().pinned();
    // SAFETY: the memory is freed with the frame, which is dropped after the registration.
    let registered = unsafe { source.register(bytes.as_ptr() as usize, info.size()) }.unwrap().unwrap();
    let mut blur = Blur::with("backend=cuda cuda-device-id=1 sigma=1 max-in-flight=2", &info);
    machine.is_busy(i32::MAX);
    let frame = gst::Buffer::from_mut_slice(bytes);
    blur.try_push(frame.clone()).unwrap();
    assert_eq!(blur.harness.buffers_in_queue(), 0, "the frame is not in flight");
    // The fake driver ends the process if work is queued that uses the memory.
    drop(registered);
    machine.clear_faults();
    blur.end();
    assert!(read(&info, &blur.harness.pull().unwrap()) == blurred(&image, 1.0, 0));
    assert_eq!(blur.stats(["frames-cuda", "frames-pinned-in"]), [1, 1]);
}

/// An invalid elapsed time is reported as 0, and one that cannot be read is not reported. Neither fails the frame.
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
    machine.fail("cuEventElapsedTime", 0, LAUNCH_FAILED);
    let mut blur = Blur::with("backend=auto sigma=1", &info);
    (0..3).for_each(|_| blur.check(&info, 8, 1.0));
    let stats = ["frames-cuda", "upload-mean-ns", "kernel-mean-ns", "download-mean-ns"];
    assert_eq!(blur.stats(stats), [3, 0, 0, 0]);
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
    let frame = gst::Buffer::with_size(info.size()).unwrap();
    for _ in 0..2 {
        blurs.iter_mut().for_each(|blur| _ = blur.push(frame.copy()));
    }
    blurs.iter().for_each(|blur| assert_eq!(blur.stats(["frames-pinned-in"]), [0]));
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
            let mut finished = engine.run(params, frames).unwrap();
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
    let engine = |image| CudaEngine::with_image(0, image).unwrap();
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
