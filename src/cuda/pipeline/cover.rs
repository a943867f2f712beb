// SPDX-License-Identifier: MPL-2.0
//! Covers regions of a frame that stays on the device: an optional copy of the frame, beside it the blurs of the regions into the
//! workspace, and then what is written over the frame. Nothing waits, unless a frame has no stream.

use std::sync::Arc;

use super::promised_frames::PromisedFrames;
use super::recorded_frame::RecordedFrame;
use super::resident::{Enqueued, ResidentState};
use super::{Pipeline, SubmitError};
use crate::cuda::driver::{Event, Stream, WorkspaceNeed};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::cover;
use crate::cuda::kernels::region_blur::RegionBlurPlan;
use crate::cuda::select::KernelSelector;
use crate::filter::frame::PlaneLayout;
use crate::filter::mosaic::CellGrid;
use crate::filter::picture::FieldRect;
use crate::filter::plan::Selection;
use crate::filter::plane::DevicePlane;
use crate::filter::weights::Weights;

/// What covers regions of a frame.
pub enum DeviceCover<'a> {
    /// Blurs.
    Blur(&'a Arc<RegionBlurPlan>),
    /// Cells of one colour.
    Mosaic(&'a [CellGrid]),
    /// Patterns.
    Fill(&'a [cover::Fill]),
    /// One of the others, mixed into the frame by weights.
    Soft(&'a SoftDeviceCover<'a>),
}

/// A cover, and how much of it shows.
pub struct SoftDeviceCover<'a> {
    /// What hides; not soft itself.
    pub cover: DeviceCover<'a>,
    /// How much of it shows.
    pub weights: &'a Weights,
    /// What the blurs do not see.
    pub excluded: Option<&'a Weights>,
    /// What the cover writes.
    pub covered: Vec<(usize, FieldRect)>,
    /// The channels that it writes.
    pub planes: Selection,
}

impl Pipeline {
    /// Enqueues a cover of a frame that stays on the device. If source and destination are not the same memory, the source is
    /// copied too.
    /// The cover was made for the layouts of the frames, and the context is current.
    pub fn cover(
        &mut self,
        selector: &mut KernelSelector,
        frames: &PromisedFrames,
        cover: &DeviceCover,
    ) -> Result<Enqueued, SubmitError> {
        if let DeviceCover::Soft(soft) = cover {
            return self.cover_softly(selector, frames, soft);
        }
        let device = selector.device().id();
        let [sources, destinations] = frames.device_planes();
        let streams = frames.streams();
        let stream = streams.or(&self.compute);
        let resident = ResidentState::get(&mut self.resident, device)?;
        let mut blurs = match cover {
            DeviceCover::Blur(regions) if !regions.blurs().is_empty() => {
                Some(RecordedFrame::of_regions(&mut self.recorded_cover, selector, regions, frames.device_planes())?)
            }
            _ => None,
        };
        let specialised = blurs.as_ref().and_then(|blurs| blurs.specialised());
        let bytes = match cover {
            DeviceCover::Mosaic(grids) => cover::mosaic_bytes(grids),
            _ => blurs.as_ref().map_or(0, |blurs| blurs.workspace_bytes()),
        };
        let selector = &*selector;
        let frame_copy = &mut self.frame_copy;
        let work = |workspace: u64| {
            let is_in_place = is_in_place(sources, destinations);
            if let Some(blurs) = &mut blurs {
                blurs.set_addresses([sources, destinations], workspace);
                let copy = if is_in_place { None } else { Some(FrameCopy::get(frame_copy, device)?) };
                copy.map_or(Ok(()), |copy| copy.enqueue(frames, &stream))?;
                // SAFETY: the regions are for the layouts of the frames, which live until the stream has done the work, as their
                // owner promises; the workspace is large enough and this stream's alone.
                let enqueue = |step: usize| unsafe { blurs.enqueue(selector, &stream, step) };
                enqueue(0)?;
                copy.map_or(Ok(()), |copy| stream.wait(&copy.end))?;
                return enqueue(1);
            }
            if !is_in_place {
                copy_frame(frames, &stream)?;
            }
            let launches = match cover {
                DeviceCover::Blur(_) | DeviceCover::Soft(_) => Vec::new(),
                DeviceCover::Mosaic(grids) => cover::mosaic(grids, [destinations; 2], workspace),
                DeviceCover::Fill(fills) => cover::fills(fills, destinations),
            };
            // SAFETY: what is covered is in the destination, and the sums are in the workspace; the rest is as above.
            unsafe { selector.enqueue_commands(&stream, &selector.select_launches(launches)?) }
        };
        let need = WorkspaceNeed { bytes, varies: true };
        resident.enqueue(need, streams, &stream, specialised, work).map_err(|error| {
            // Work that was enqueued before the failure may still use the frames.
            let copy = self.frame_copy.as_ref().map(|copy| &copy.stream);
            let settled = [Some(&stream), copy].map(|stream| stream.is_none_or(|stream| stream.synchronize().is_ok()));
            SubmitError { error, settled: settled == [true; 2] }
        })
    }
}

/// Whether source and destination are the same memory.
pub fn is_in_place(sources: &[DevicePlane], destinations: &[DevicePlane]) -> bool {
    let is_same = |(from, to): (&DevicePlane, &DevicePlane)| from.address == to.address && from.pitch == to.pitch;
    sources.iter().zip(destinations).all(is_same)
}

/// The copy of a frame on a second stream, while its regions are blurred: it takes half as long as they do.
pub struct FrameCopy {
    stream: Stream,
    begin: Event,
    end: Event,
}

impl FrameCopy {
    /// That in `slot`, which is made if there is none, on the device whose context is current.
    fn get(slot: &mut Option<Self>, device: u32) -> Result<&Self, CudaError> {
        let copy = match slot.take() {
            Some(copy) => copy,
            None => Self { stream: Stream::new(device)?, begin: Event::new(device)?, end: Event::new(device)? },
        };
        Ok(slot.insert(copy))
    }

    /// Enqueues a copy of the source to the destination behind what is on `after`. `end` is its end.
    fn enqueue(&self, frames: &PromisedFrames, after: &Stream) -> Result<(), CudaError> {
        after.record(&self.begin)?;
        self.stream.wait(&self.begin)?;
        copy_frame(frames, &self.stream)?;
        self.stream.record(&self.end)
    }
}

/// Copies the source to the destination, with the bytes between rows that both have. Both are on the device and do not overlap.
pub fn copy_frame(frames: &PromisedFrames, stream: &Stream) -> Result<(), CudaError> {
    let (layouts, [sources, destinations]) = (frames.layouts(), frames.device_planes());
    for (index, layout) in layouts.iter().enumerate() {
        let (from, to) = (&sources[index], &destinations[index]);
        let (row_bytes, last) = (layout.row_bytes(), layout.height as usize - 1);
        // Where the rows of planes alternate, the bytes between the rows of one are those of another.
        let has_padding = [sources, destinations].iter().all(|planes| is_apart(layouts, planes, index));
        // SAFETY: both planes hold the rows and, before the last one, what is between them, and live until the copy is complete,
        // as the owner of the frames promises.
        unsafe {
            if has_padding && from.pitch == to.pitch {
                stream.copy_bytes(from, to, last * from.pitch + row_bytes)?;
            } else if has_padding {
                stream.copy_rows(from, to, from.pitch.min(to.pitch), last)?;
                stream.copy_rows(&from.from_row(last), &to.from_row(last), row_bytes, 1)?;
            } else {
                stream.copy_rows(from, to, row_bytes, last + 1)?;
            }
        }
    }
    Ok(())
}

/// Whether no other plane has bytes between the first and the last byte of this one.
fn is_apart(layouts: &[PlaneLayout], planes: &[DevicePlane], index: usize) -> bool {
    let end = |i: usize| {
        planes[i].address + ((layouts[i].height as usize - 1) * planes[i].pitch + layouts[i].row_bytes()) as u64
    };
    let overlaps = |other: usize| planes[other].address < end(index) && planes[index].address < end(other);
    (0..planes.len()).all(|other| other == index || !overlaps(other))
}
