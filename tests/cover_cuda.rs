//! Covers on the fake CUDA driver (tests/fake_cuda): frames in device memory, and frames in host memory through CUDA, have the
//! bytes of the CPU engine.

mod common;

use common::Noise;
use common::device_frames::{self, Block, Streams};
use common::fake_driver::FakeDriver;
use common::pictures::{Picture, kinds, rect, resized};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::{CudaEngine, Image, PassStrategy};
use gstcudagaussblur::engine::{BlurCover, BlurRegion, Cover, Engine, EngineError};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::PlaneLayout;
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::plan::{AlphaMode, Selection};
use gstcudagaussblur::filter::regions::{Area, Rect};

const ILLEGAL_ADDRESS: i32 = 700;

fn engine() -> Engine {
    Engine::with_cuda(CudaEngine::new(0).unwrap())
}

fn blur(regions: &[(Rect, f64)]) -> Cover {
    let region = |(rect, sigma): &(Rect, f64)| BlurRegion { rect: *rect, params: BlurParams::new(*sigma, 0).unwrap() };
    let regions = regions.iter().map(region).collect();
    Cover::Blur(BlurCover { planes: Selection::ALL, alpha: AlphaMode::Straight, regions })
}

#[test]
fn every_kind_of_frame_on_the_device() {
    let _driver = FakeDriver::new();
    let sizes = [[53, 31], [40, 22], [67, 18]];
    let bytes = device_frames::check_kinds(&mut engine(), &kinds(), &sizes, &[1.5, 2.5, 4.0]);
    println!("{bytes} bytes, 0 differ");
}

/// An image without tensor-core kernels, and wide blurs with crops inside of the picture.
#[test]
fn wide_blurs_on_the_device() {
    let _driver = FakeDriver::new();
    let kinds: Vec<Vec<PlaneLayout>> = kinds().into_iter().step_by(5).collect();
    let mut bytes = 0;
    for image in [Image::Best, Image::Portable] {
        let engine = CudaEngine::with_kernels(0, image, PassStrategy::Best).unwrap();
        bytes += device_frames::check_kinds(&mut Engine::with_cuda(engine), &kinds, &[[203, 94]], &[5.0, 9.0]);
    }
    println!("{bytes} bytes, 0 differ");
}
