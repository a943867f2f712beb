// SPDX-License-Identifier: MPL-2.0
//! Lists the prebuilt kernels that frames of a format can need with any settings.

use std::sync::Arc;

use super::abi::KernelSet;
use super::images::Kernel;
use super::lower::{DevicePlanes, Lowering};
use super::tensor_direct::DirectKernel;
use crate::cuda::driver::device::DeviceLimits;
use crate::filter::frame::PlaneLayout;
use crate::filter::parts::Job;
use crate::filter::plan::{AlphaMode, Options, Plan, Selection};
use crate::filter::{BlurParams, KERNEL_SIZE_MAX};

/// Sigma and kernel-size for one blur of each kind: the direct form with short and with long taps; the wide form with levels by
/// two and by four, with one level or more, and with short and long taps for the smallest plane. Subsampled axes and fields halve
/// sigma, so the list has a blur of each kind for them too.
const BLURS: [(f64, u32); 13] = [
    (1.0, 0),
    (3.4, 0),
    (100.0, KERNEL_SIZE_MAX),
    (3.6, 0),
    (5.0, 0),
    (6.9, 0),
    (7.1, 0),
    (10.0, 0),
    (14.1, 0),
    (20.0, 0),
    (30.0, 0),
    (60.0, 0),
    (250.0, 0),
];

/// Selections of channels, and modes of alpha.
const SELECTIONS: [(Selection, AlphaMode); 4] = [
    (Selection::ALL, AlphaMode::Straight),
    (Selection::ALL, AlphaMode::Premultiply),
    (Selection { primary: true, chroma: false, alpha: false }, AlphaMode::Straight),
    (Selection { primary: false, chroma: true, alpha: true }, AlphaMode::Straight),
];

/// Returns the kernels that blurs and covers of frames of these planes can need, each once.
pub fn kernels(layouts: &[PlaneLayout], kernel_set: KernelSet) -> Vec<Kernel> {
    let planes = DevicePlanes::nowhere(layouts.len());
    let mut kernels = vec![Kernel::COVER, Kernel::MOSAIC_SUMS, Kernel::MOSAIC_WRITE];
    kernels.extend([Kernel::SOFT_CELLS, Kernel::SOFT_SPREAD, Kernel::SOFT_MIX]);
    let blurs = BLURS.iter().filter_map(|(sigma, size)| BlurParams::new(*sigma, *size).ok());
    for (params, (planes_selected, alpha)) in blurs.flat_map(|params| SELECTIONS.map(|selection| (params, selection))) {
        let plan = Plan::new(Options { params, planes: planes_selected, alpha }, layouts);
        let job = Job::frame(Arc::new(plan));
        // The choice of kernels does not depend on these limits.
        let limits = DeviceLimits { multiprocessors: 1, shared_bytes: 0 };
        let lowering = Lowering::new(&job, None, kernel_set);
        for kernel in lowering.lower(&job.parts, &planes, 0, limits, &mut DirectKernel::prebuilt).kernels() {
            if !kernels.contains(&kernel) {
                kernels.push(kernel);
            }
        }
    }
    kernels
}
