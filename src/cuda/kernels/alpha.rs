// SPDX-License-Identifier: MPL-2.0
//! The launches of the kernels that premultiply before a blur, and unpremultiply or restore channels after it.

use super::abi::{ALPHA_THREADS, AlphaArgs, stored_channels};
use super::images::Kernel;
use super::launch::{Args, Launch};
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::AlphaSource;
use crate::filter::plane::DevicePlane;
use crate::filter::regions::Rect;
use crate::filter::samples::Channel;

/// The planes of an operation on alpha. A plane that it does not use is the default, address 0.
#[derive(Debug, Clone, Copy, Default)]
pub struct AlphaPlanes {
    pub source: DevicePlane,
    pub destination: DevicePlane,
    pub premultiplied: DevicePlane,
    /// The alpha plane, if alpha is not a channel of the source.
    pub alpha: DevicePlane,
}

/// The launch of [`Kernel::PREMULTIPLY`] or [`Kernel::UNPREMULTIPLY`] for a rectangle of a plane of this layout. The planes begin
/// with the rectangle.
pub fn launch(
    kernel: Kernel,
    layout: &PlaneLayout,
    rect: Rect,
    alpha: Option<&AlphaSource>,
    passthrough_mask: u32,
    planes: &AlphaPlanes,
) -> Launch {
    let channels = u32::from(layout.channels);
    // Each sample of a pixel by itself, of a pair of pixels for packed 4:2:2.
    let samples = (0..channels as usize).map(|first| Channel { first, step: channels as usize, shift: 0 });
    let (alpha_channel, [alpha_width, alpha_height], alpha_subsampling) = match alpha {
        Some(source @ AlphaSource::Plane { subsampling, .. }) => {
            let (_, read) = source.reads(rect).expect("it is in a plane");
            (channels, [read.width(), read.height()], *subsampling)
        }
        Some(AlphaSource::Channel(channel)) => ((*channel).into(), [0; 2], [0; 2]),
        None => (channels, [0; 2], [0; 2]),
    };
    let args = AlphaArgs {
        src: planes.source.address,
        dst: planes.destination.address,
        premultiplied: planes.premultiplied.address,
        alpha_src: planes.alpha.address,
        src_pitch: planes.source.pitch as u64,
        dst_pitch: planes.destination.pitch as u64,
        premultiplied_pitch: planes.premultiplied.pitch as u64,
        alpha_pitch: planes.alpha.pitch as u64,
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
