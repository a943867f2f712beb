//! The kernels that the driver compiles from PTX beside the machine code, which is in brackets: frames in device memory, and the
//! background of a frame in host memory.

use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cuda::driver::device::Device;
use gstcudagaussblur::cuda::driver::{DeviceMemory, Stream};
use gstcudagaussblur::cuda::{CudaEngine, Image};
use gstcudagaussblur::element::format::formats;
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::plan::{AlphaMode, Options};
use std::sync::Arc;

use crate::common::{Outcome, device_planes, layout, time_of_frame};
use crate::{BUFFERS, microseconds, regions};

/// Formats, and whether colour is blurred multiplied by alpha.
const FORMATS: [(VideoFormat, bool); 9] = [
    (VideoFormat::Rgba, false),
    (VideoFormat::Rgb, false),
    (VideoFormat::Gray8, false),
    (VideoFormat::Nv12, false),
    (VideoFormat::Yuy2, false),
    (VideoFormat::P01010le, false),
    (VideoFormat::Rgba64Le, false),
    (VideoFormat::Y210, false),
    (VideoFormat::Rgba, true),
];
/// Sigma and kernel-size.
const BLURS: [(f64, u32); 7] = [(2.5, 15), (5.2, 31), (10.5, 63), (3.5, 0), (7.0, 0), (20.0, 0), (100.0, 0)];

/// Prints the tables.
pub fn tables(device: &Arc<Device>) -> Outcome<()> {
    let engine = |image| Ok::<_, Box<dyn std::error::Error>>(CudaEngine::with_image(0, image)?.without_jit());
    let engines = [engine(Image::Portable)?, engine(Image::Best)?];
    println!("\n3840x2160 in device memory, µs: from PTX (machine code)\n");
    let names = BLURS.map(|(sigma, size)| if size == 0 { format!("sigma={sigma}") } else { format!("k={size}") });
    println!("| format | {} |", names.join(" | "));
    println!("| --- |{}", " --- |".repeat(BLURS.len()));
    for (format, premultiply) in FORMATS {
        let info = VideoInfo::builder(format, 3840, 2160).build()?;
        let planes = formats::planes(&info, false).expect("a format of the element");
        let alpha = if premultiply { AlphaMode::Premultiply } else { AlphaMode::Straight };
        let _current = device.enter()?;
        let stream = Stream::new(device)?;
        let bytes = device_planes(&planes, 0, 256).1;
        let frame = |_| Ok([DeviceMemory::new(bytes, &stream)?, DeviceMemory::new(bytes, &stream)?]);
        let frames = (0..BUFFERS).map(frame).collect::<Outcome<Vec<_>>>()?;
        let mut row = format!("| {format:?}{} |", if premultiply { ", premultiplied" } else { "" });
        for (sigma, size) in BLURS {
            let options = Options { alpha, ..BlurParams::new(sigma, size)?.into() };
            let time = |engine| time_of_frame(engine, &stream, (&planes, 256), options, &frames).map(microseconds);
            row += &format!(" {:.1} ({:.1}) |", time(&engines[0])?, time(&engines[1])?);
        }
        println!("{row}");
    }
    println!("\nBackground of a 720p RGBA frame in host memory, sigma 20, µs from PTX (machine code)\n");
    let times = engines.map(|engine| {
        let mut engine = Engine::with_cuda(engine).with_covers_on_device();
        regions::background(&mut engine, &[layout(1280, 720, 4)])
    });
    let [portable, best] = times;
    let ([portable, portable_download], [best, best_download]) = (portable?, best?);
    println!("{portable:.0} ({best:.0}), of which download {portable_download:.0} ({best_download:.0})");
    Ok(())
}
