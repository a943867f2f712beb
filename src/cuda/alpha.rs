// SPDX-License-Identifier: MPL-2.0
//! The launches that go before and after the blur of a plane in which alpha weighs colour, or channels are kept. Pure.

use super::launch::geometry::{ALPHA_ARGS_BYTES, ALPHA_THREADS};
use super::launch::{Args, Kernel, Launch};
use crate::frame::Pixels;
use crate::plan::{AlphaPlace, Job};

/// The parameter of both kernels, as kernels/shared.h has it. Addresses are the device's.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "kernels/shared.h explains them")]
pub struct AlphaArgs {
    pub src: u64,
    pub dst: u64,
    pub product: u64,
    pub alpha_src: u64,
    pub src_pitch: u64,
    pub dst_pitch: u64,
    pub product_pitch: u64,
    pub alpha_pitch: u64,
    pub width: u32,
    pub height: u32,
    pub channels: u32,
    pub depth: u32,
    pub low: u32,
    pub ten: u32,
    pub alpha_channel: u32,
    pub keep: u32,
    pub alpha_width: u32,
    pub alpha_height: u32,
    pub alpha_shift: [u32; 2],
    pub reserved: [u32; 4],
}

const _: () = assert!(size_of::<AlphaArgs>() == ALPHA_ARGS_BYTES as usize, "kernels/shared.h has another AlphaArgs");

/// A plane in device memory: address of its first sample, and row pitch in bytes.
pub type Place = (u64, usize);

/// The launch of one of the two kernels for a job. `product` is the plane that is written before or read after the blur, if
/// alpha weighs colour; `alpha` the job's plane of alpha, if it is another.
pub fn launch(
    kernel: Kernel,
    job: &Job,
    src: Place,
    dst: Place,
    product: Option<Place>,
    alpha: Option<Place>,
) -> Launch {
    let layout = job.field.layout;
    let channels = u32::from(layout.channels);
    let (alpha_channel, [alpha_width, alpha_height], alpha_shift) = match job.alpha {
        Some(AlphaPlace::Plane { field, shift, .. }) => (channels, [field.layout.width, field.layout.height], shift),
        Some(AlphaPlace::Channel(channel)) => (channel.into(), [0; 2], [0; 2]),
        None => (channels, [0; 2], [0; 2]),
    };
    let (product, alpha) = (product.unwrap_or_default(), alpha.unwrap_or_default());
    let args = AlphaArgs {
        src: src.0,
        dst: dst.0,
        product: product.0,
        alpha_src: alpha.0,
        src_pitch: src.1 as u64,
        dst_pitch: dst.1 as u64,
        product_pitch: product.1 as u64,
        alpha_pitch: alpha.1 as u64,
        width: layout.row_pixels() as u32,
        height: layout.height,
        channels,
        depth: layout.depth.into(),
        low: layout.low_bit().into(),
        ten: u32::from(layout.pixels == Pixels::Ten),
        alpha_channel,
        keep: job.keep,
        alpha_width,
        alpha_height,
        alpha_shift,
        reserved: [0; 4],
    };
    let blocks = args.width.div_ceil(ALPHA_THREADS) * args.height;
    Launch { kernel, blocks, threads: ALPHA_THREADS, shared_bytes: 0, args: Args::Alpha(args) }
}
