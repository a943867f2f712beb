// SPDX-License-Identifier: MPL-2.0
//! The launches of the kernels that premultiply before a blur, and that unpremultiply or restore channels after it.

use super::abi::{ALPHA_THREADS, AlphaArgs, stored_channels};
use super::images::Kernel;
use super::launch::{Args, Launch};
use crate::filter::operation::{AlphaSource, Operation, View};
use crate::filter::plane::DevicePlane;
use crate::filter::regions::Rect;
use crate::filter::samples::Channel;

/// The launch of an operation on alpha for a rectangle of its output. `rows` returns the memory of a view's rows.
pub fn launch(operation: &Operation, rect: Rect, rows: impl Fn(&View) -> DevicePlane) -> Launch {
    let (kernel, source, destination, premultiplied, alpha, passthrough_mask) = match operation {
        Operation::Premultiply { source, alpha, premultiplied } => {
            (Kernel::PREMULTIPLY, source, None, Some(premultiplied), Some(alpha), 0)
        }
        Operation::Unpremultiply { premultiplied, alpha, source, destination, passthrough_mask } => {
            (Kernel::UNPREMULTIPLY, source, Some(destination), Some(premultiplied), Some(alpha), *passthrough_mask)
        }
        Operation::RestoreChannels { source, destination, passthrough_mask } => {
            (Kernel::UNPREMULTIPLY, source, Some(destination), None, None, *passthrough_mask)
        }
        _ => unreachable!("these are the operations on alpha"),
    };
    let within = |view: &View, rect: Rect| view.field.layout.within(&rows(view), rect);
    // A plane that the kernel does not use has address 0.
    let plane = |view: Option<&View>| view.map(|view| within(view, rect)).unwrap_or_default();
    let [src, dst, premultiplied] = [Some(source), destination, premultiplied].map(plane);
    let layout = &source.field.layout;
    let channels = u32::from(layout.channels);
    // Each sample of a pixel is processed as one channel; for packed 4:2:2, each sample of a pair of pixels.
    let samples = (0..channels as usize).map(|first| Channel { first, step: channels as usize, shift: 0 });
    let (alpha_src, alpha_channel, [alpha_width, alpha_height], alpha_subsampling) = match alpha {
        Some(source @ AlphaSource::Plane { subsampling, .. }) => {
            let (view, read) = source.reads(rect).expect("it is in a plane");
            (within(&view, read), channels, [read.width(), read.height()], *subsampling)
        }
        Some(AlphaSource::Channel(channel)) => (DevicePlane::default(), (*channel).into(), [0; 2], [0; 2]),
        None => (DevicePlane::default(), channels, [0; 2], [0; 2]),
    };
    let args = AlphaArgs {
        src: src.address,
        dst: dst.address,
        premultiplied: premultiplied.address,
        alpha_src: alpha_src.address,
        src_pitch: src.pitch as u64,
        dst_pitch: dst.pitch as u64,
        premultiplied_pitch: premultiplied.pitch as u64,
        alpha_pitch: alpha_src.pitch as u64,
        width: layout.columns(rect).len() as u32,
        height: rect.height(),
        channels,
        layout: stored_channels(layout, samples),
        word_bytes: layout.stored(0).word_bytes as u32,
        alpha_channel,
        passthrough_mask,
        alpha_width,
        alpha_height,
        alpha_subsampling,
        reserved: [0; 2],
    };
    Launch::new(kernel, args.width.div_ceil(ALPHA_THREADS) * args.height, 0, Args::Alpha(args))
}
