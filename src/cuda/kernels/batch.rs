// SPDX-License-Identifier: MPL-2.0
//! The planes that one launch blurs.
//!
//! Planes of a frame that suit each other share a launch, because a small plane leaves most of a device idle.

use super::abi::*;
use crate::filter::Taps;
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::PlaneTaps;
use crate::filter::plane::DevicePlane;
use crate::filter::regions::Rect;

/// The blur of a rectangle of a plane in device memory.
#[derive(Debug, Clone)]
pub struct PlaneBlur<'a> {
    /// The plane's layout; not interlaced.
    pub layout: PlaneLayout,
    /// Where the rows that are read are.
    pub source: DevicePlane,
    /// Where the rows that are written are. Must not overlap the source.
    pub destination: DevicePlane,
    /// Its taps.
    pub taps: &'a PlaneTaps,
    /// What is written, in pixels of the plane.
    pub rect: Rect,
    /// Which kernels the device's images have.
    pub kernel_set: KernelSet,
    /// The channel that colour is multiplied by before the blur, and divided by after it. Only of blurs that suit tensor cores.
    pub alpha: Option<u8>,
}

impl PlaneBlur<'_> {
    /// The family of its pixels, if there are kernels for tensor cores for it.
    pub fn family(&self) -> Option<PixelFamily> {
        PixelFamily::for_tensor_cores(&self.layout, self.alpha)
    }

    fn tensor_kernel(&self) -> TensorKernel {
        let largest = self.family().and_then(|family| family.largest_radius(self.taps));
        match largest.filter(|_| self.kernel_set == KernelSet::TensorCores) {
            Some(..=TENSOR_RADIUS_MAX) => TensorKernel::Prebuilt,
            Some(radius) if radius < 2 * TENSOR_TAPS => TensorKernel::Compiled(self.layout.channels),
            _ => TensorKernel::None,
        }
    }

    /// Whether there is a prebuilt tensor-core kernel for it: the images have them for its family, and the radii are from 1 to
    /// [`TENSOR_RADIUS_MAX`]. A single tap of 65536, of radius 0, has more than two bytes.
    pub fn suits_tensor_cores(&self) -> bool {
        self.tensor_kernel() == TensorKernel::Prebuilt
    }
}

/// Which kernel for tensor cores blurs a plane. One without would take its batch off the tensor cores.
#[derive(PartialEq, Eq)]
enum TensorKernel {
    Prebuilt,
    /// One that can be compiled, for this number of channels.
    Compiled(u8),
    None,
}

/// Divides planes into those that share launches, in order. `joins` says whether a plane joins those ahead of it.
pub(super) fn divided<T>(planes: impl IntoIterator<Item = T>, joins: impl Fn(&[T], &T) -> bool) -> Vec<Vec<T>> {
    let mut batches: Vec<Vec<T>> = Vec::new();
    for plane in planes {
        match batches.last_mut().filter(|batch| joins(batch, &plane)) {
            Some(batch) => batch.push(plane),
            None => batches.push(vec![plane]),
        }
    }
    batches
}

/// The filter slots of planes with these taps: each taps once.
pub(super) fn filter_slots<T: PartialEq>(taps: impl Iterator<Item = T>) -> Vec<T> {
    let mut slots = Vec::new();
    for taps in taps {
        if !slots.contains(&taps) {
            slots.push(taps);
        }
    }
    slots
}

/// Divides planes into batches, in order: those that the same launches blur.
pub fn batches<'a>(planes: impl IntoIterator<Item = PlaneBlur<'a>>) -> Vec<Vec<PlaneBlur<'a>>> {
    let joins = |batch: &[PlaneBlur<'a>], plane: &PlaneBlur<'a>| {
        let (first, family) = (&batch[0], plane.family());
        first.family() == family
            && first.kernel_set == plane.kernel_set
            && first.tensor_kernel() == plane.tensor_kernel()
            && batch.len() < family.map_or(1, PixelFamily::most_planes)
            && filter_slots(batch.iter().chain([plane]).map(|plane| plane.taps)).len() <= FILTER_SLOTS as usize
    };
    divided(planes, joins)
}

/// The taps in the filter slots of a batch, one or two.
pub fn slots<'a>(batch: &[PlaneBlur<'a>]) -> Vec<&'a PlaneTaps> {
    filter_slots(batch.iter().map(|plane| plane.taps))
}

/// The taps of each filter slot, along rows and down columns. Packed 4:2:2 has one plane, and the second slot for its chroma.
pub(super) fn slot_taps<'a>(batch: &[PlaneBlur<'a>]) -> Vec<[&'a Taps; 2]> {
    let slots = slots(batch);
    let luma = slots.iter().map(|taps| [&taps.rows, &taps.columns]);
    let chroma = slots.iter().filter(|_| batch[0].layout.is_packed_422());
    luma.chain(chroma.map(|taps| [&taps.chroma_rows, &taps.columns])).collect()
}

/// The filter slot of one of the planes of a batch.
pub(super) fn slot_of(batch: &[PlaneBlur<'_>], plane: &PlaneBlur<'_>) -> u32 {
    let slot = slots(batch).iter().position(|taps| *taps == plane.taps);
    slot.expect("every plane has a filter slot of its batch") as u32
}
