// SPDX-License-Identifier: MPL-2.0
//! Everything that the host and the kernels agree on. The build script generates the constants, the argument structs and the list
//! of pixel families from kernels/abi.h, so nothing is written twice.

use crate::filter::frame::{PlaneLayout, SampleLayout};
use crate::filter::operation::{PlaneTaps, TEMPORARY_ROWS};
use crate::filter::samples::Channel;
use crate::filter::{KERNEL_SIZE_MAX, wide};

include!(concat!(env!("OUT_DIR"), "/kernel_abi.rs"));

const _: () = assert!(2 * RADIUS_MAX + 1 == KERNEL_SIZE_MAX, "the kernels take every radius of the filter");
const _: () = assert!(LEVEL_RADIUS == wide::LEVEL_RADIUS && LEVEL_RADIUS == wide::MARGIN, "the same levels");
const _: () = assert!(TEMPORARY_ROWS.is_multiple_of(TENSOR_ROWS), "bands do not divide the blocks of rows");
const _: () = assert!(PHASE_TAPS as usize == wide::PHASE_TAPS, "the same phases");

/// The alignment of temporaries and of their rows, in bytes.
pub const WORKSPACE_ALIGNMENT: usize = 256;

impl PixelFamily {
    /// The family of a plane's pixels. `None` if there are no tensor-core kernels for them: packed 4:2:2 of more than 8 bits, and
    /// three channels of more than 8 bits, as in the small planes of RGB.
    pub fn of(layout: &PlaneLayout) -> Option<Self> {
        match (layout.sample_layout, layout.sample_bytes(), layout.channels) {
            (SampleLayout::Yuv422 { .. }, 1, _) => Some(Self::Yuv422),
            (SampleLayout::Packed1010102, ..) => Some(Self::Packed1010102),
            (SampleLayout::Yuv422 { .. }, ..) | (_, 2, 3) => None,
            (_, 1, 1 | 2) => Some(Self::U8C12),
            (_, 1, 3) => Some(Self::U8C3),
            (_, 1, _) => Some(Self::U8C4),
            (_, _, 1 | 2) => Some(Self::U16C12),
            _ => Some(Self::U16C4),
        }
    }

    /// The largest number of planes that a launch of the family's kernels takes. Only planes of one or two channels come several
    /// to a frame. The other kernels take a single plane, which makes them faster.
    pub fn most_planes(self) -> usize {
        if matches!(self, Self::U8C12 | Self::U16C12) { PLANES as usize } else { 1 }
    }

    /// The family whose tensor-core kernels blur a plane. If `alpha` names a channel, that family's kernels premultiply with it.
    pub fn for_tensor_cores(layout: &PlaneLayout, alpha: Option<u8>) -> Option<Self> {
        if alpha.is_some() { Some(Self::Packed1010102) } else { Self::of(layout) }
    }

    /// The largest radius of a plane of this family, over both axes. The radius of the chroma of packed 4:2:2 along rows is
    /// counted in luma samples. `None` if a radius is 0.
    pub fn largest_radius(self, taps: &PlaneTaps) -> Option<u32> {
        let [rows, columns, chroma] = [&taps.rows, &taps.columns, &taps.chroma_rows].map(|taps| taps.radius() as u32);
        let chroma = if self == Self::Yuv422 { (2 * chroma).saturating_sub(1) } else { chroma };
        let all = [rows, columns, chroma];
        all.into_iter().max().filter(|_| !all.contains(&0))
    }
}

/// Describes how these channels of a plane are stored in its rows. Only the first four are used.
pub fn stored_channels(layout: &PlaneLayout, channels: impl IntoIterator<Item = Channel>) -> [StoredChannel; 4] {
    let mut stored = [StoredChannel::default(); 4];
    for (to, channel) in stored.iter_mut().zip(channels) {
        let (sample, step) = channel.stored(layout);
        *to = StoredChannel {
            offset: sample.byte as u16,
            step: step as u16,
            shift: sample.shift as u16,
            bits: sample.bits as u16,
        };
    }
    stored
}

/// The kernels that images have in addition to those for CUDA cores, which all images have. A plan is lowered for one of the
/// sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelSet {
    /// No additional kernels.
    CudaCores,
    /// The tensor-core kernels of the direct and of the wide form.
    TensorCores,
}
