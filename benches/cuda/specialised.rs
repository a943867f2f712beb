//! The prebuilt kernels beside those that NVRTC compiles: time by layout and radius, for frames in device memory.

use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cuda::driver::device::Device;
use gstcudagaussblur::cuda::driver::{DeviceMemory, Stream};
use gstcudagaussblur::cuda::{CudaEngine, Image};
use gstcudagaussblur::element::format::formats;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::plan::{AlphaMode, Options};
use std::sync::Arc;

use crate::common::{Outcome, compile_specialised, device_planes, time_of_frame};
use crate::{BUFFERS, microseconds};

const KERNEL_SIZES: [u32; 9] = [15, 31, 49, 63, 65, 81, 97, 113, 127];

/// Formats, and whether colour is blurred multiplied by alpha.
const FORMATS: [(VideoFormat, bool); 11] = [
    (VideoFormat::Gray8, false),
    (VideoFormat::I420, false),
    (VideoFormat::Nv12, false),
    (VideoFormat::Rgb, false),
    (VideoFormat::Rgba, false),
    (VideoFormat::Rgba, true),
    (VideoFormat::Gray16Le, false),
    (VideoFormat::P01010le, false),
    (VideoFormat::Rgba64Le, false),
    (VideoFormat::Yuy2, false),
    (VideoFormat::Rgb10a2Le, false),
];

/// A cell has the time of the prebuilt kernels, and that of the compiled ones with their ratio; nothing behind it if none are
/// compiled.
pub fn tables(device: &Arc<Device>) -> Outcome<()> {
    for (width, height) in [(3840, 2160), (1920, 1080)] {
        println!("\n{width}x{height} in device memory, µs: prebuilt kernels → compiled ones (ratio); sigma = k/6\n");
        println!("| format | {} |", KERNEL_SIZES.map(|size| format!("k={size}")).join(" | "));
        println!("| --- |{}", " --- |".repeat(KERNEL_SIZES.len()));
        for (format, premultiply) in FORMATS {
            let cells = KERNEL_SIZES.map(|size| cell(device, (format, width, height), premultiply, size));
            let cells = cells.into_iter().collect::<Outcome<Vec<_>>>()?;
            let name = if premultiply { format!("{format:?}, premultiplied") } else { format!("{format:?}") };
            println!("| {name} | {} |", cells.join(" | "));
        }
    }
    Ok(())
}

fn cell(
    device: &Arc<Device>,
    (format, width, height): (VideoFormat, u32, u32),
    premultiply: bool,
    size: u32,
) -> Outcome<String> {
    let info = VideoInfo::builder(format, width, height).build()?;
    let planes = formats::planes(&info, false).expect("a format of the element");
    let alpha = if premultiply { AlphaMode::Premultiply } else { AlphaMode::Straight };
    let options = Options { alpha, ..BlurParams::new(f64::from(size) / 6.0, size)?.into() };
    let _current = device.enter()?;
    let stream = Stream::new(device)?;
    let bytes = device_planes(&planes, 0, 256).1;
    let frame = |_| Ok([DeviceMemory::new(bytes, &stream)?, DeviceMemory::new(bytes, &stream)?]);
    let frames = (0..BUFFERS).map(frame).collect::<Outcome<Vec<_>>>()?;
    let [prebuilt, compiled] = [CudaEngine::new(device.id())?.without_jit(), CudaEngine::new(device.id())?];
    let time = |engine: &CudaEngine| time_of_frame(engine, &stream, (&planes, 256), options, &frames).map(microseconds);
    let before = time(&prebuilt)?;
    if !compile_specialised(Image::Best, &planes, options) {
        return Ok(format!("{before:.1}"));
    }
    let after = time(&compiled)?;
    Ok(format!("{before:.1} → {after:.1} ({:.2})", after / before))
}
