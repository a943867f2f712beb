//! The article's naive blur, written anew: its CUDA kernel, and the same on one CPU thread.

use std::ffi::c_void;

use cudarc::driver::result;
use std::sync::Arc;

use gstcudagaussblur::cuda::driver::device::Device;
use gstcudagaussblur::cuda::driver::{DeviceMemory, Function, Module, Stream};
use gstcudagaussblur::cuda::jit::nvrtc::{Nvrtc, Target};
use gstcudagaussblur::filter::frame::PlaneLayout;

use crate::Memory;
use crate::common::Outcome;

/// The kernel's source: one thread per pixel, two-dimensional weights as integer-valued constants, clamped edges.
fn source(size: u32, sigma: f64) -> String {
    let radius = (size / 2) as i32;
    let weight = |x: i32, y: i32| (1000.0 * (-f64::from(x * x + y * y) / (2.0 * sigma * sigma)).exp()).round();
    let rows = (-radius..=radius).map(|y| {
        let row: Vec<String> = (-radius..=radius).map(|x| format!("{:.1}f", weight(x, y))).collect();
        format!("{{{}}}", row.join(", "))
    });
    let sum: f64 = (-radius..=radius).flat_map(|y| (-radius..=radius).map(move |x| weight(x, y))).sum();
    let rows: Vec<String> = rows.collect();
    format!(
        "extern \"C\" __global__ void naive(const unsigned char* in, unsigned char* out, int w, int h, int c) {{
           const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
           if (x >= w || y >= h) return;
           const float weights[{size}][{size}] = {{{}}};
           for (int i = 0; i < c; i++) {{
             float sum = 0;
             for (int v = 0; v < {size}; v++)
               for (int u = 0; u < {size}; u++) {{
                 const int px = max(0, min(x + u - {radius}, w - 1)), py = max(0, min(y + v - {radius}, h - 1));
                 sum += in[(py * w + px) * c + i] * weights[v][u];
               }}
             out[(y * w + x) * c + i] = (unsigned char)(sum / {sum:.1}f);
           }}
         }}",
        rows.join(", ")
    )
}

/// The kernel compiled to PTX or to a CUBIN for this device, ready to be loaded.
pub fn image(device: &Device, nvrtc: &Nvrtc, size: u32, sigma: f64, ptx: bool) -> Outcome<Vec<u8>> {
    let (major, minor) = device.capability();
    let architecture = 10 * major + minor;
    let target = if ptx { Target::Ptx(architecture) } else { Target::Cubin(architecture) };
    let options = [format!("--gpu-architecture={target}")];
    Ok(nvrtc.compile(&source(size, sigma), &[], &options, target)?.0)
}

/// Loads the kernel of an [`image`] into the device's context, until the process ends.
pub fn load(image: &[u8], device: &Arc<Device>) -> Outcome<Function> {
    // SAFETY: the image is NVRTC's output.
    let module = unsafe { Module::load(image.to_vec(), device) }?;
    let function = module.function("naive")?;
    std::mem::forget(module);
    Ok(function)
}

pub fn launch(naive: Function, memory: &Memory, stream: &Stream) -> Outcome<()> {
    let PlaneLayout { width, height, channels, .. } = memory.layout;
    let [mut src, mut dst] = memory.frame.each_ref().map(DeviceMemory::address);
    let mut numbers = [width, height, channels.into()];
    let [w, h, c] = &mut numbers;
    let mut parameters: [*mut c_void; 5] = [
        (&raw mut src).cast(),
        (&raw mut dst).cast(),
        (&raw mut *w).cast(),
        (&raw mut *h).cast(),
        (&raw mut *c).cast(),
    ];
    let grid = (width.div_ceil(16), height.div_ceil(16), 1);
    // SAFETY: the parameters are those of the kernel's declaration, and both blocks are as large as the frame.
    unsafe { result::launch_kernel(naive.raw(), grid, (16, 16, 1), 0, stream.raw(), &mut parameters) }?;
    Ok(())
}

/// The same blur on one CPU thread.
pub fn with_cpu(src: &[u8], dst: &mut [u8], layout: &PlaneLayout, size: u32, sigma: f64) {
    let (w, h, c, radius) = (layout.width as i32, layout.height as i32, i32::from(layout.channels), (size / 2) as i32);
    let weight = |x: i32, y: i32| (-f64::from(x * x + y * y) / (2.0 * sigma * sigma)).exp() as f32;
    let weights: Vec<f32> = (-radius..=radius).flat_map(|y| (-radius..=radius).map(move |x| weight(x, y))).collect();
    let total: f32 = weights.iter().sum();
    for (y, x, i) in (0..h).flat_map(|y| (0..w).flat_map(move |x| (0..c).map(move |i| (y, x, i)))) {
        let mut sum = 0.0;
        for (v, row) in (-radius..=radius).zip(weights.chunks(size as usize)) {
            for (u, weight) in (-radius..=radius).zip(row) {
                let (px, py) = ((x + u).clamp(0, w - 1), (y + v).clamp(0, h - 1));
                sum += f32::from(src[((py * w + px) * c + i) as usize]) * weight;
            }
        }
        dst[((y * w + x) * c + i) as usize] = (sum / total) as u8;
    }
}
