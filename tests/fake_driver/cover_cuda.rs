//! Covers on the fake CUDA driver (tests/fake_cuda): frames in device memory, and frames in host memory through CUDA, have the
//! bytes of the CPU engine.

use std::sync::Arc;

use crate::common::device_frames::{
    Block, Frames, OnDevice, Place, Streams, all_covers, check, check_host_kinds, check_kinds, soft_covers, unordered,
    with_streams,
};
use crate::common::fake_driver::{FakeDriver, ILLEGAL_ADDRESS};
use crate::common::pictures::{Picture, kinds, rect, resized};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::kernels::byte_rect::ByteRect;
use gstcudagaussblur::cuda::transfer::bands::Order;
use gstcudagaussblur::cuda::transfer::schedule::Schedule;
use gstcudagaussblur::cuda::{CudaEngine, Image, PassStrategy, TILES};
use gstcudagaussblur::engine::{BlurRegion, Cover, Engine, EngineError, Hide, Softness};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::PlaneLayout;
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::parts::Job;
use gstcudagaussblur::filter::plan::{Plan, Selection};
use gstcudagaussblur::filter::regions::{Area, Rect};
use gstcudagaussblur::filter::weights::{Edge, Object, Shape, Weights};

fn engine() -> Engine {
    Engine::with_cuda(CudaEngine::new(0).unwrap())
}

fn blur(regions: &[(Rect, f64)]) -> Cover {
    let region = |(rect, sigma): &(Rect, f64)| BlurRegion { rect: *rect, params: BlurParams::new(*sigma, 0).unwrap() };
    let regions = regions.iter().map(region).collect();
    Cover::from(Hide::Blur { planes: Selection::ALL, regions })
}

fn every_nth_kind(step: usize) -> Vec<Vec<PlaneLayout>> {
    kinds().into_iter().step_by(step).collect()
}

#[test]
fn every_kind_of_frame_on_the_device() {
    let _driver = FakeDriver::new();
    check_kinds(&mut engine(), &kinds(), &[[53, 31], [40, 22], [67, 18]], &[1.5, 2.5, 4.0], all_covers);
}

/// An image without tensor-core kernels, and wide blurs of rectangles inside of the picture.
#[test]
fn wide_blurs_on_the_device() {
    let _driver = FakeDriver::new();
    for image in [Image::Best, Image::Portable] {
        let mut engine = Engine::with_cuda(CudaEngine::with_kernels(0, image, PassStrategy::Best).unwrap());
        check_kinds(&mut engine, &every_nth_kind(5), &[[203, 94]], &[5.0, 9.0], all_covers);
    }
}

/// Pictures whose weights have nodes several samples apart.
#[test]
fn soft_covers_of_wide_pictures() {
    let _driver = FakeDriver::new();
    let sizes = [[603, 41], [1030, 22], [37, 1100]];
    check_kinds(&mut engine(), &every_nth_kind(3), &sizes, &[2.0, 5.0], soft_covers);
}

#[test]
fn host_frames_through_the_device() {
    let _driver = FakeDriver::new();
    check_host_kinds(&mut engine().with_covers_on_device(), &every_nth_kind(4), [75, 41], &[1.5, 4.0]);
}

/// More rectangles and cells than a launch has, of several strengths that overlap, so that the order counts.
#[test]
fn many_regions_take_several_launches() {
    let _driver = FakeDriver::new();
    let mut engine = engine();
    let planes = &resized(&[PlaneLayout::new(0, 0, 3, 8)], [150, 120]);
    let source = Block::new(planes, 3, |layout| layout.row_bytes() + 1, 5);
    let rects: Vec<Rect> =
        (0..90).map(|i| rect(i % 10 * 14 + i / 30, i / 10 * 12 + i % 3, 5 + i % 11, 3 + i % 8)).collect();
    let sigmas: Vec<(Rect, f64)> = rects.iter().enumerate().map(|(i, rect)| (*rect, [1.0, 1.5, 2.0][i % 3])).collect();
    let cells = |(i, rect): (usize, &Rect)| {
        MosaicRegion::new(*rect, Area::from_corner(0.0, 0.0, 40.0, 40.0), [8, 9, 10, 13][i % 4])
    };
    let mosaic = Cover::from(Hide::Mosaic(rects.iter().enumerate().map(cells).collect()));
    let fill = Cover::from(Hide::Fill { rects, values: vec![[10, 200, 30, 0]] });
    for cover in [blur(&sigmas), mosaic, fill] {
        check(&mut engine, &cover, &source, None, Streams::One);
    }
}

/// Cells of many parts: one for the whole picture.
#[test]
fn large_cells_are_added_up_in_parts() {
    let _driver = FakeDriver::new();
    let mut engine = engine();
    for planes in kinds().iter().step_by(7) {
        let source = Block::new(&resized(planes, [151, 90]), 0, |layout| layout.row_bytes() + 3, 5);
        let region = MosaicRegion::new(rect(3, 5, 140, 77), Area::from_corner(0.0, 0.0, 400.0, 400.0), 1);
        check(&mut engine, &Cover::from(Hide::Mosaic(vec![region])), &source, None, Streams::One);
    }
}

/// Nothing is written in place, and the source is copied otherwise.
#[test]
fn covers_of_nothing() {
    let _driver = FakeDriver::new();
    let mut engine = engine();
    let planes = &resized(&kinds()[3], [35, 22]);
    let source = Block::new(planes, 2, |layout| layout.row_bytes() + 9, 1);
    let destination = Block::new(planes, 0, |layout| layout.row_bytes() + 4, 2);
    let outside = rect(35, 22, 5, 5);
    let values = vec![[7; 4]; planes.len()];
    for cover in [
        blur(&[]),
        blur(&[(outside, 2.0)]),
        Cover::from(Hide::Mosaic(Vec::new())),
        Cover::from(Hide::Mosaic(vec![MosaicRegion::new(outside, Area::from_corner(35.0, 22.0, 5.0, 5.0), 2)])),
        Cover::from(Hide::Fill { rects: vec![outside], values }),
    ] {
        check(&mut engine, &cover, &source, None, Streams::One);
        check(&mut engine, &cover, &source, Some(&destination), Streams::Two);
    }
}

/// Regions that move and change their size cause no allocation, on the device and through it.
#[test]
fn moving_regions_allocate_once() {
    let driver = FakeDriver::new();
    let [mut on_device, mut through, mut cpu] = [engine(), engine(), Engine::with_cpu(CpuEngine::new())];
    let planes = [PlaneLayout::new(90, 70, 3, 8)];
    let source = Block::dense(&planes, 1);
    let mut after_first = None;
    for frame in 0..8 {
        let [x, y] = [10 + 3 * frame, 5 + 2 * frame];
        let regions = [(rect(x, y, 20 + frame % 3, 18 + frame % 2), 2.0), (rect(0, 65 - frame, 4 + frame % 4, 3), 5.0)];
        let cover = blur(&regions);
        let picture = Picture::new(&planes, frame.into());
        let [mut got, mut want] = [picture.clone(), picture];
        let copied = through.stats().bytes_copied;
        assert!(through.cover(&cover, &mut got.frame_mut()).unwrap().is_none());
        cpu.cover(&cover, &mut want.frame_mut()).unwrap();
        assert!(got.bytes == want.bytes, "frame {frame}");
        // What a region depends on is uploaded, and only what it covers is downloaded.
        let needed = upload_bytes(&planes, &cover);
        assert!(needed < 90 * 70 * 3);
        let covered: u32 = regions.iter().map(|(rect, _)| 3 * rect.width() * rect.height().min(70 - rect.y())).sum();
        assert_eq!(through.stats().bytes_copied - copied, needed as u64 + u64::from(covered));
        let before = driver.counts().allocations;
        // Two blocks are the test's own.
        check(&mut on_device, &cover, &source, None, Streams::One);
        let allocations = driver.counts().allocations;
        assert!(frame == 0 || allocations - before == 2, "frame {frame}: {} blocks", allocations - before);
        let own = before - after_first.unwrap_or(before);
        assert_eq!(own, 0, "frame {frame} through the device");
        after_first = Some(allocations);
    }
    assert_eq!([through.stats().frames_cuda, on_device.stats().frames_on_device], [8, 8]);
}

/// Bytes that are uploaded for regions.
fn upload_bytes(planes: &[PlaneLayout], cover: &Cover) -> usize {
    let plan = |options| Arc::new(Plan::new(options, planes));
    let job = Job::cover(Plan::cover(cover, planes, plan), TILES);
    Schedule::new(&job, None, Order::Sequential).uploads().map(ByteRect::size).sum()
}

#[test]
fn frames_elsewhere_are_refused() {
    let _driver = FakeDriver::new();
    let block = Block::dense(&[PlaneLayout::new(20, 10, 1, 8)], 1);
    let cover = blur(&[(rect(1, 1, 5, 5), 2.0)]);
    with_streams(|[stream, _]| {
        let memory = OnDevice::new(&block.bytes, stream);
        let destination = Place::Device(&block, &memory, Some(stream));
        let error =
            engine().run(&cover, Frames { source: Some(Place::host(&block, None)), destination }).err().unwrap();
        assert!(matches!(error, EngineError::MixedMemory), "{error}");
        stream.synchronize().unwrap();
    });
    let error = unordered(&mut Engine::with_cpu(CpuEngine::new()), &cover, &block, false).unwrap_err();
    assert!(matches!(error, EngineError::NeedsCuda), "{error}");
}

/// The CPU covers frames in host memory with colours and few cells, and the device does everything else.
#[test]
fn the_faster_backend_covers_host_memory() {
    let _driver = FakeDriver::new();
    let planes = &resized(&kinds()[2], [64, 40]);
    let object = Object { area: Area::from_corner(20.0, 10.0, 21.0, 15.0), shape: Shape::Ellipse };
    let edge = Edge { grow: 0, feather: 4 };
    let weights = Weights::inside((64, 40), std::slice::from_ref(&object), edge);
    let region = object.reach(edge, (64, 40)).unwrap();
    let fill = Cover::from(Hide::Fill { rects: vec![region], values: vec![[9; 4]; planes.len()] });
    let soft = |cover| Cover { soft: Some(Softness { weights: weights.clone(), excluded: None }), ..cover };
    for (cover, frames) in [(blur(&[(region, 3.0)]), [0, 1]), (soft(fill.clone()), [0, 1]), (fill, [1, 0])] {
        let picture = Picture::new(planes, 5);
        let [mut with_cuda, mut with_cpu] = [picture.clone(), picture.clone()];
        let mut cuda = engine();
        assert!(cuda.cover(&cover, &mut with_cuda.frame_mut()).unwrap().is_none());
        Engine::with_cpu(CpuEngine::new()).cover(&cover, &mut with_cpu.frame_mut()).unwrap();
        assert!(with_cuda.bytes == with_cpu.bytes && with_cpu.bytes != picture.bytes);
        assert_eq!([cuda.stats().frames_cpu, cuda.stats().frames_cuda], frames);
    }
}

/// A failure is an error, after which the engine works on; the memory is leaked if the device may still use it. What becomes of
/// frames when any call fails is tested by tests/faults.rs.
#[test]
fn failures_are_errors() {
    let driver = FakeDriver::new();
    let planes = &resized(&kinds()[0], [35, 22]);
    let block = Block::dense(planes, 1);
    let (region, object) = (rect(3, 3, 9, 9), Area::from_corner(3.0, 3.0, 9.0, 9.0));
    let mosaic = Cover::from(Hide::Mosaic(vec![MosaicRegion::new(region, object, 2)]));
    let fill = Cover::from(Hide::Fill { rects: vec![region], values: vec![[1; 4]; planes.len()] });
    for (cover, after, is_copy) in
        [(blur(&[(region, 2.0), (rect(20, 5, 3, 3), 3.0)]), 1, false), (mosaic, 1, true), (fill, 0, false)]
    {
        let mut engine = engine();
        driver.fail_times("cuLaunchKernel", after, 1, ILLEGAL_ADDRESS);
        let error = unordered(&mut engine, &cover, &block, is_copy).unwrap_err();
        assert!(
            matches!(&error, EngineError::OnDevice(_)) && error.to_string().contains("launching a kernel"),
            "{error}"
        );
        assert_eq!((engine.stats().frames_on_device, engine.stats().frames_abandoned), (0, 0));
        driver.clear_faults();
        unordered(&mut engine, &cover, &block, is_copy).unwrap();
        assert_eq!(engine.stats().frames_on_device, 1);
        driver.fail("cuLaunchKernel", 0, ILLEGAL_ADDRESS);
        driver.fail("cuStreamSynchronize", 0, ILLEGAL_ADDRESS);
        assert!(unordered(&mut engine, &cover, &block, is_copy).is_err());
        assert_eq!(engine.stats().frames_abandoned, 1);
        driver.clear_faults();
    }
}
