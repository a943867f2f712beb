//! Covers on the fake CUDA driver (tests/fake_cuda): frames in device memory, and frames in host memory through CUDA, have the
//! bytes of the CPU engine. What becomes of frames when a call fails is tested by tests/faults.rs.

use std::sync::Arc;

use crate::common::Noise;
use crate::common::borrowed::Borrowing;
use crate::common::device_frames::{
    Block, Frames, OnDevice, Place, Streams, all_covers, blur, check, check_host_kinds, check_kinds, soft_covers,
    with_streams,
};
use crate::common::fake_driver::{FakeDriver, ILLEGAL_ADDRESS};
use crate::common::pictures::{Picture, kinds, rect, resized};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::transfer::schedule::{Division, Schedule};
use gstcudagaussblur::cuda::{CudaEngine, Image, TILES};
use gstcudagaussblur::engine::{Cover, Engine, EngineError, Hide};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::byte_rect::ByteRect;
use gstcudagaussblur::filter::frame::{FrameError, PlaneLayout};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::parts::Job;
use gstcudagaussblur::filter::plan::Plan;
use gstcudagaussblur::filter::regions::{Area, Rect};

fn engine() -> Engine {
    Engine::with_cuda(CudaEngine::new(0).unwrap())
}

fn params(sigma: f64) -> BlurParams {
    BlurParams::new(sigma, 0).unwrap()
}

/// Every cover of frames in device memory, wide blurs with the kernels of both images, and covers of frames in host memory.
#[test]
fn covers_have_the_bytes_of_the_cpu_engine() {
    let _driver = FakeDriver::new();
    let every = |step| kinds().into_iter().step_by(step).collect::<Vec<_>>();
    check_kinds(&mut engine(), &every(1), &[[53, 31], [40, 22], [67, 18]], &[1.5, 2.5, 4.0], all_covers);
    for image in [Image::Best, Image::Portable] {
        let mut engine = Engine::with_cuda(CudaEngine::with_image(0, image).unwrap());
        check_kinds(&mut engine, &every(5), &[[203, 94]], &[5.0, 9.0], all_covers);
    }
    // So wide or high that the nodes of weights are several samples apart.
    check_kinds(&mut engine(), &every(3), &[[603, 41], [1030, 22], [37, 1100]], &[2.0, 5.0], soft_covers);
    check_host_kinds(&mut engine().with_covers_on_device(), &every(4), [75, 41], &[1.5, 4.0]);
    // A cell for the whole picture is added up in parts.
    for planes in every(7) {
        let source = Block::new(&resized(&planes, [151, 90]), 0, |layout| layout.row_bytes() + 3, 5);
        let region = MosaicRegion::new(rect(3, 5, 140, 77), Area::from_corner(0.0, 0.0, 400.0, 400.0), 1);
        check(&mut engine(), &Hide::Mosaic(vec![region]).into(), &source, None, Streams::One);
    }
}

/// More rectangles and cells than a launch has, of several strengths that overlap, so that the order counts.
#[test]
fn many_regions_take_several_launches() {
    let _driver = FakeDriver::new();
    let source = Block::new(&[PlaneLayout::new(150, 120, 3, 8)], 3, |layout| layout.row_bytes() + 1, 5);
    let rects: Vec<Rect> =
        (0..90).map(|i| rect(i % 10 * 14 + i / 30, i / 10 * 12 + i % 3, 5 + i % 11, 3 + i % 8)).collect();
    let sigmas = (0..).map(|i| params([1.0, 1.5, 2.0][i % 3]));
    let object = Area::from_corner(0.0, 0.0, 40.0, 40.0);
    let cells = |(i, rect): (usize, &Rect)| MosaicRegion::new(*rect, object, [8, 9, 10, 13][i % 4]);
    let mosaic = Hide::Mosaic(rects.iter().enumerate().map(cells).collect());
    for cover in [
        blur(rects.iter().copied().zip(sigmas)),
        mosaic.into(),
        Hide::Fill { rects, values: vec![[10, 200, 30, 0]] }.into(),
    ] {
        check(&mut engine(), &cover, &source, None, Streams::One);
    }
}

/// Nothing is written in place, and the source is copied otherwise.
#[test]
fn covers_of_nothing() {
    let _driver = FakeDriver::new();
    let planes = &resized(&kinds()[3], [35, 22]);
    let source = Block::new(planes, 2, |layout| layout.row_bytes() + 9, 1);
    let destination = Block::new(planes, 0, |layout| layout.row_bytes() + 4, 2);
    let outside = rect(35, 22, 5, 5);
    let cells = MosaicRegion::new(outside, Area::from_corner(35.0, 22.0, 5.0, 5.0), 2);
    for cover in [
        blur([]),
        blur([(outside, params(2.0))]),
        Hide::Mosaic(Vec::new()).into(),
        Hide::Mosaic(vec![cells]).into(),
        Hide::Fill { rects: vec![outside], values: vec![[7; 4]; planes.len()] }.into(),
    ] {
        check(&mut engine(), &cover, &source, None, Streams::One);
        check(&mut engine(), &cover, &source, Some(&destination), Streams::Two);
    }
}

/// Events that only order streams have no time: recording one costs the device.
#[test]
fn events_of_frames_on_the_device_have_a_time_only_in_timers() {
    let driver = FakeDriver::new();
    let mut engine = engine();
    let [source, destination] = [1, 2].map(|seed| Block::dense(&[PlaneLayout::new(90, 70, 3, 8)], seed));
    check(&mut engine, &blur([(rect(9, 20, 21, 29), params(2.0))]), &source, Some(&destination), Streams::Two);
    assert_eq!(driver.counts().timed_events, 7, "those of one timer");
    assert!(driver.counts().events > 7, "no event orders the streams");
}

/// Regions that move and change their size cause no allocation, on the device and through it.
#[test]
fn moving_regions_allocate_once() {
    let driver = FakeDriver::new();
    let [mut on_device, mut through, mut cpu] = [engine(), engine(), Engine::with_cpu(CpuEngine::new())];
    let planes = [PlaneLayout::new(90, 70, 3, 8)];
    let source = Block::dense(&planes, 1);
    let mut allocated = None;
    for frame in 0..8 {
        let [x, y] = [10 + 3 * frame, 5 + 2 * frame];
        let regions = [rect(x, y, 20 + frame % 3, 18 + frame % 2), rect(0, 65 - frame, 4 + frame % 4, 3)];
        let cover = blur(regions.into_iter().zip([2.0, 5.0].map(params)));
        let picture = Picture::new(&planes, frame.into());
        let [mut got, mut want] = [picture.clone(), picture];
        let copied = through.stats().bytes_copied;
        assert!(through.cover(&cover, &mut got.frame_mut()).unwrap().is_none());
        cpu.cover(&cover, &mut want.frame_mut()).unwrap();
        assert!(got.bytes == want.bytes, "frame {frame}");
        // What a region depends on is uploaded, and only what it covers is downloaded.
        let needed = upload_bytes(&planes, &cover);
        assert!(needed < 90 * 70 * 3);
        let covered: u32 = regions.iter().map(|rect| 3 * rect.width() * rect.height()).sum();
        assert_eq!(through.stats().bytes_copied - copied, needed as u64 + u64::from(covered));
        let before = driver.counts().allocations;
        assert_eq!(*allocated.get_or_insert(before), before, "frame {frame} through the device");
        check(&mut on_device, &cover, &source, None, Streams::One);
        let after = driver.counts().allocations;
        // Two blocks are the test's own.
        assert!(frame == 0 || after - before == 2, "frame {frame}: {} blocks", after - before);
        allocated = Some(after);
    }
    assert_eq!([through.stats().frames_cuda, on_device.stats().frames_on_device], [8, 8]);
}

/// Bytes that are uploaded for regions.
fn upload_bytes(planes: &[PlaneLayout], cover: &Cover) -> usize {
    let plan = |options| Arc::new(Plan::new(options, planes));
    let job = Job::cover(Plan::cover(cover, planes, plan), TILES);
    Schedule::new(&job, Division::Fastest).uploads().map(ByteRect::size).sum()
}

/// Frames in two kinds of memory, frames in device memory on the CPU, a blur into a plane of its source, and a launch that fails, after
/// which the engine works on.
#[test]
fn covers_that_cannot_be_are_errors() {
    let driver = FakeDriver::new();
    let block = Block::dense(&[PlaneLayout::new(20, 10, 1, 8)], 1);
    let cover = blur([(rect(1, 1, 5, 5), params(2.0))]);
    let (mut cuda, mut cpu) = (engine(), Engine::with_cpu(CpuEngine::new()));
    with_streams(|[stream, _]| {
        let memory = OnDevice::new(&block.bytes, stream);
        let frames = |is_mixed| {
            let place = || Place::Device(&block, &memory, Some(stream));
            let source = if is_mixed { Place::host(&block, None) } else { place() };
            Frames { source: Some(source), destination: place() }
        };
        let error = cuda.run(&cover, frames(true)).err().unwrap();
        assert!(matches!(error, EngineError::MixedMemory), "{error}");
        let error = cpu.run(&cover, frames(false)).err().unwrap();
        assert!(matches!(error, EngineError::NeedsCuda), "{error}");
        // The second plane of one is the first plane of the other.
        let layouts = [PlaneLayout::new(20, 10, 1, 8); 2];
        let blocks = [0, 205].map(|skew| Block::new(&layouts, skew, PlaneLayout::row_bytes, 1));
        let [source, destination] = blocks.each_ref().map(|block| Place::Device(block, &memory, Some(stream)));
        let error = cuda.run(params(2.0), Frames { source: Some(source), destination }).err().unwrap();
        assert!(matches!(error, EngineError::Frame(FrameError::SharedMemory)), "{error}");
        // Only covers are made in place.
        for engine in [&mut cuda, &mut cpu] {
            let destination = Place::host(&block, None);
            let error = engine.run(params(2.0), Frames { source: None, destination }).err().unwrap();
            assert!(matches!(error, EngineError::Frame(FrameError::SharedMemory)), "{error}");
        }
        driver.fail_times("cuLaunchKernel", 0, 1, ILLEGAL_ADDRESS);
        let error = cuda.run(&cover, frames(false)).err().unwrap();
        let is_right = matches!(error, EngineError::OnDevice(_)) && error.to_string().contains("launching a kernel");
        assert!(is_right && cuda.stats().frames_on_device == 0, "{error}");
        cuda.run(&cover, frames(false)).unwrap();
        assert_eq!((cuda.stats().frames_on_device, cuda.stats().frames_abandoned), (1, 0));
        stream.synchronize().unwrap();
    });
}

/// The CPU covers frames in host memory with colours and few cells, unless their edges are soft; the device does everything else.
#[test]
fn the_faster_backend_covers_host_memory() {
    let _driver = FakeDriver::new();
    let planes = &resized(&kinds()[2], [64, 40]);
    let is_for_cpu = [false, true, true].into_iter().chain([false; 4]);
    for (cover, is_for_cpu) in all_covers(planes, &[3.0], &mut Noise(5)).iter().zip(is_for_cpu) {
        let picture = Picture::new(planes, 5);
        let (mut cuda, [mut got, mut want]) = (engine(), [picture.clone(), picture.clone()]);
        assert!(cuda.cover(cover, &mut got.frame_mut()).unwrap().is_none());
        Engine::with_cpu(CpuEngine::new()).cover(cover, &mut want.frame_mut()).unwrap();
        assert!(got.bytes == want.bytes && want.bytes != picture.bytes, "{cover:?}");
        assert_eq!((cuda.stats().frames_cpu, cuda.stats().frames()), (is_for_cpu.into(), 1), "{cover:?}");
    }
}
