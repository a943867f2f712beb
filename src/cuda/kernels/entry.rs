// SPDX-License-Identifier: MPL-2.0
//! Entries: rectangles of operations on pixels, for planes whose addresses are known; and which of them share launches.
//!
//! Planes of a frame that suit each other share a launch, because a small plane leaves most of a device idle.

use super::abi::*;
use crate::filter::Taps;
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::{Operation, PlaneTaps, Resampling};
use crate::filter::plane::DevicePlane;
use crate::filter::regions::Rect;
use crate::filter::wide::Factor;

/// A rectangle of the output of a blur, a decimation or an interpolation.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The operation.
    pub operation: &'a Operation,
    /// What is written, in pixels of the output.
    pub rect: Rect,
    /// Where the rows that are read are.
    pub source: EntryPlane,
    /// Where the rows that are written are. Must not overlap the source.
    pub destination: EntryPlane,
    /// Which kernels may process it.
    pub kernels: EntryKernels,
    /// The channel of a plane of the frame that colour is multiplied by when it is read, and divided by when it is written. Only of
    /// entries that kernels for tensor cores process.
    pub alpha: Option<u8>,
    /// With `alpha`: the colour that an interpolation writes where the blurred alpha is 0.
    pub transparent: DevicePlane,
}

/// A plane of an entry.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct EntryPlane {
    pub layout: PlaneLayout,
    pub memory: DevicePlane,
}

/// Which kernels may process an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKernels {
    /// Those for CUDA cores.
    CudaCores,
    /// Those for either kind of cores, whichever is faster.
    Any,
    /// Those of the wide form on tensor cores, which alone know how its small planes are stored.
    WideOnTensorCores,
}

impl<'a> Entry<'a> {
    /// The taps of a blur.
    pub fn taps(&self) -> Option<&'a PlaneTaps> {
        if let Operation::Blur { taps, .. } = self.operation { Some(taps) } else { None }
    }

    /// The planes and factors of a decimation or an interpolation.
    pub fn resampling(&self) -> Option<&'a Resampling> {
        match self.operation {
            Operation::Decimate(resampling) | Operation::Interpolate(resampling) => Some(resampling),
            _ => None,
        }
    }

    /// The factors along x and y; those of a blur are one.
    pub fn factors(&self) -> [Factor; 2] {
        self.resampling().map_or([Factor::One; 2], |resampling| resampling.factors)
    }

    /// The plane that has as many samples as the other, or more.
    pub fn larger(&self) -> &EntryPlane {
        if let Operation::Interpolate(_) = self.operation { &self.destination } else { &self.source }
    }

    /// The other one.
    pub fn smaller(&self) -> &EntryPlane {
        if let Operation::Interpolate(_) = self.operation { &self.source } else { &self.destination }
    }

    /// The family of the pixels of the larger plane, if there are kernels for tensor cores for it.
    pub fn family(&self) -> Option<PixelFamily> {
        PixelFamily::for_tensor_cores(&self.larger().layout, self.alpha)
    }

    fn direct_kernel(&self) -> DirectKernelOf {
        let largest = self.family().zip(self.taps()).and_then(|(family, taps)| family.largest_radius(taps));
        match largest.filter(|_| self.kernels == EntryKernels::Any) {
            Some(..=TENSOR_RADIUS_MAX) => DirectKernelOf::Prebuilt,
            Some(radius) if radius < 2 * TENSOR_TAPS => DirectKernelOf::Compiled(self.source.layout.channels),
            _ => DirectKernelOf::None,
        }
    }

    /// Whether there is a prebuilt kernel of the direct form for it on tensor cores: the images have them for its family, and the radii
    /// are from 1 to [`TENSOR_RADIUS_MAX`]. A single tap of 65536, of radius 0, has more than two bytes.
    pub fn suits_tensor_cores(&self) -> bool {
        self.direct_kernel() == DirectKernelOf::Prebuilt
    }
}

/// Which kernel of the direct form blurs a plane on tensor cores. A plane without one would take its batch off the tensor cores.
#[derive(PartialEq, Eq)]
enum DirectKernelOf {
    Prebuilt,
    /// One that can be compiled, for this number of channels.
    Compiled(u8),
    None,
}

/// Divides entries into batches, in order: those that share launches. `joins` says whether an entry joins those ahead of it.
pub(super) fn divided<'a>(
    entries: impl IntoIterator<Item = Entry<'a>>,
    joins: impl Fn(&[Entry<'a>], &Entry<'a>) -> bool,
) -> Vec<Vec<Entry<'a>>> {
    let mut batches: Vec<Vec<Entry>> = Vec::new();
    for entry in entries {
        match batches.last_mut().filter(|batch| joins(batch, &entry)) {
            Some(batch) => batch.push(entry),
            None => batches.push(vec![entry]),
        }
    }
    batches
}

/// Batches of blurs of the direct form.
pub fn blur_batches<'a>(entries: impl IntoIterator<Item = Entry<'a>>) -> Vec<Vec<Entry<'a>>> {
    divided(entries, |batch, entry| {
        let (first, family) = (&batch[0], entry.family());
        first.family() == family
            && first.kernels == entry.kernels
            && first.direct_kernel() == entry.direct_kernel()
            && batch.len() < family.map_or(1, PixelFamily::most_planes)
            && slots(batch.iter().chain([entry])).len() <= FILTER_SLOTS as usize
    })
}

/// The taps in the filter slots of a launch of these blurs: each once.
pub fn slots<'e, 'a: 'e>(entries: impl IntoIterator<Item = &'e Entry<'a>>) -> Vec<&'a PlaneTaps> {
    let mut slots = Vec::new();
    for taps in entries.into_iter().filter_map(Entry::taps) {
        if !slots.contains(&taps) {
            slots.push(taps);
        }
    }
    slots
}

/// The taps of each filter slot, along rows and down columns. Packed 4:2:2 has one plane, and the second slot for its chroma.
pub(super) fn slot_taps<'a>(batch: &[Entry<'a>]) -> Vec<[&'a Taps; 2]> {
    let slots = slots(batch);
    let luma = slots.iter().map(|taps| [&taps.rows, &taps.columns]);
    let chroma = slots.iter().filter(|_| batch[0].source.layout.is_packed_422());
    luma.chain(chroma.map(|taps| [&taps.chroma_rows, &taps.columns])).collect()
}

/// The filter slot of an entry of a batch; 0 if it has no taps.
pub(super) fn slot_of(batch: &[Entry], entry: &Entry) -> u32 {
    slots(batch).iter().position(|taps| Some(*taps) == entry.taps()).unwrap_or(0) as u32
}
