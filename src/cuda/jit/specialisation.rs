// SPDX-License-Identifier: MPL-2.0
//! What a specialised kernel is compiled for, and the compiler options that follow from it.

use super::nvrtc::Target;
use crate::cuda::kernels::abi::FILTER_SLOTS;
use crate::cuda::kernels::batch::BlurBatch;
use crate::filter::Taps;

/// What specialised kernels are compiled for: the radii of each filter slot, along rows and down columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpecialisationKey {
    slots: [Option<[usize; 2]>; FILTER_SLOTS as usize],
}

impl SpecialisationKey {
    /// The key for a batch.
    pub fn of(batch: &BlurBatch) -> Self {
        let taps = batch.slot_taps();
        let radii = |slot: usize| taps.get(slot).map(|taps| taps.map(Taps::radius));
        Self { slots: std::array::from_fn(radii) }
    }

    /// The options for NVRTC.
    pub(super) fn options(&self, target: Target) -> Vec<String> {
        let mut options = vec![format!("--gpu-architecture={target}"), "--std=c++17".to_owned()];
        options.extend(["BLUR_PART=1", "BLUR_PART_axis=1", "BLUR_FIXED_RADII=1"].map(|name| format!("-D{name}")));
        for (index, slot) in self.slots.iter().enumerate() {
            let radii = slot.map_or(["-1".to_owned(), "-1".to_owned()], |radii| radii.map(|radius| radius.to_string()));
            for (axis, radius) in ["ROWS", "COLUMNS"].iter().zip(radii) {
                options.push(format!("-DBLUR_{axis}_RADIUS_{index}={radius}"));
            }
        }
        options
    }
}
