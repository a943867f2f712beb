// SPDX-License-Identifier: MPL-2.0
//! What a specialised kernel is compiled for, and the compiler options that follow from it.

use super::nvrtc::Target;
use crate::cuda::kernels::abi::{FILTER_SLOTS, PixelFamily};
use crate::cuda::kernels::batch::{BlurBatch, FilterSlot};

/// A filter slot, as far as a kernel depends on it: the number of channels, and the radii along rows, along columns and along
/// rows of the chroma of packed 4:2:2.
type SlotKey = (u8, usize, usize, usize);

/// What a specialised kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpecialisationKey {
    family: PixelFamily,
    slots: [Option<SlotKey>; FILTER_SLOTS as usize],
    /// Whether a launch has one plane; otherwise each block looks for its own.
    single_plane: bool,
}

impl SpecialisationKey {
    /// The key for a batch.
    pub fn of(batch: &BlurBatch) -> Self {
        let key = |(channels, taps): &FilterSlot| {
            (*channels, taps.rows.radius(), taps.columns.radius(), taps.chroma_rows.radius())
        };
        Self {
            family: batch.family(),
            slots: std::array::from_fn(|slot| batch.slots().get(slot).map(key)),
            single_plane: batch.planes().len() == 1,
        }
    }

    /// The options for NVRTC.
    pub(super) fn options(&self, target: Target) -> Vec<String> {
        let single_plane = format!("-DBLUR_SINGLE_PLANE={}", self.single_plane);
        let mut options = vec![format!("--gpu-architecture={target}"), "--std=c++17".to_owned(), single_plane];
        for (index, slot) in self.slots.iter().enumerate() {
            let Some((channels, rows, columns, chroma)) = slot else { continue };
            let pixels = self.family.cuda_type(*channels);
            options
                .push(format!("-DBLUR_SPECIALISED_{index}={pixels},StaticRadius<{index},{rows},{columns},{chroma}>"));
        }
        options
    }
}
