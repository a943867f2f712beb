// SPDX-License-Identifier: MPL-2.0
//! Soft covers of a frame that stays on the device: the cover is made in planes in the workspace, and then mixed into the frame by
//! weights.
//! The blur of a background reads a copy of the frame, into which estimates of what is behind the objects were mixed.

use std::{ptr, slice};

use super::cover::{DeviceCover, SoftDeviceCover, copy_frame, is_in_place};
use super::promised_frames::PromisedFrames;
use super::recorded_frame::RecordedFrame;
use super::resident::{Enqueued, ResidentState};
use super::{Pipeline, SubmitError};
use crate::cuda::driver::{Event, PinnedWorkspace, Stream, WorkspaceNeed};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::abi::WORKSPACE_ALIGNMENT;
use crate::cuda::kernels::cover;
use crate::cuda::kernels::regions::RegionOutputs;
use crate::cuda::kernels::soft::{self, DeviceWeights, Inpainting, Mix};
use crate::cuda::select::KernelSelector;
use crate::filter::frame::PlaneLayout;
use crate::filter::plan::Selection;
use crate::filter::plane::DevicePlane;

/// Uploads of weights that may be in flight.
const UPLOADS: usize = 3;

/// Where things are in the workspace.
struct Memory {
    nodes: u64,
    excluded_nodes: u64,
    cells: u64,
    /// The picture without its objects.
    pyramid: Vec<DevicePlane>,
    covers: Vec<DevicePlane>,
    /// What the cover itself needs.
    rest: u64,
}

impl Memory {
    fn new(workspace: u64, layouts: &[PlaneLayout], soft: &SoftDeviceCover, inpainting: &Inpainting) -> Self {
        let mut end = workspace;
        let mut block = |bytes: usize| {
            let address = end;
            end += bytes.next_multiple_of(WORKSPACE_ALIGNMENT) as u64;
            address
        };
        let all_nodes = block(nodes(soft).map(<[u8]>::len).sum());
        let excluded_nodes = all_nodes + soft.weights.nodes().2.len() as u64;
        let cells = block(soft::cell_bytes(inpainting));
        let mut planes = |is_needed: bool| {
            let plane = |layout: &PlaneLayout| {
                let pitch = layout.row_bytes().next_multiple_of(WORKSPACE_ALIGNMENT);
                let len = pitch * layout.height as usize;
                DevicePlane { address: block(if is_needed { len } else { 0 }), pitch, len }
            };
            layouts.iter().map(plane).collect()
        };
        let pyramid = planes(soft.excluded.is_some());
        let covers = planes(!soft.is_one_blur());
        Self { nodes: all_nodes, excluded_nodes, cells, pyramid, covers, rest: end }
    }
}

/// The nodes of all weights, those of the cover first.
fn nodes<'a>(soft: &'a SoftDeviceCover) -> impl Iterator<Item = &'a [u8]> {
    std::iter::once(soft.weights).chain(soft.excluded).map(|weights| weights.nodes().2)
}

/// Weights of the last frames in pinned memory, from which they are uploaded while the host goes on.
pub struct PinnedUploads {
    /// Each with the end of its last upload.
    copies: [(PinnedWorkspace, Event); UPLOADS],
    next: usize,
}

impl PinnedUploads {
    /// Those in `slot`, which are made if there are none, on the device whose context is current.
    fn get(slot: &mut Option<Self>, device: u32) -> Result<&mut Self, CudaError> {
        match slot {
            Some(uploads) => Ok(uploads),
            none => {
                let copy = || Ok((PinnedWorkspace::default(), Event::without_time(device)?));
                Ok(none.insert(Self { copies: [copy()?, copy()?, copy()?], next: 0 }))
            }
        }
    }

    /// Enqueues an upload of these parts, one behind the other.
    ///
    /// # Safety
    /// The device has memory for them at this address, which lives until the copy is complete; nobody accesses it before then.
    unsafe fn enqueue(&mut self, parts: &[&[u8]], to: u64, stream: &Stream) -> Result<(), CudaError> {
        let (memory, uploaded) = &mut self.copies[self.next];
        self.next = (self.next + 1) % UPLOADS;
        uploaded.synchronize()?;
        let bytes = parts.iter().map(|part| part.len()).sum();
        memory.reserve(WorkspaceNeed { bytes, varies: true }, stream.device())?;
        let mut end = memory.address();
        for part in parts {
            // SAFETY: the memory has room for all parts, and its last upload is complete.
            unsafe { ptr::copy_nonoverlapping(part.as_ptr(), end, part.len()) };
            end = end.wrapping_add(part.len());
        }
        // SAFETY: the parts were written there.
        let pinned = unsafe { slice::from_raw_parts(memory.address(), bytes) };
        // SAFETY: the memory on the device is the caller's promise; what is uploaded is not written before the event, which is waited
        // for when it is dropped, too.
        unsafe { stream.upload_bytes(pinned, to)? };
        stream.record(uploaded)
    }
}

impl Drop for PinnedUploads {
    fn drop(&mut self) {
        // A failure was reported by the work that failed.
        self.copies.iter().for_each(|(_, uploaded)| drop(uploaded.synchronize()));
    }
}

impl SoftDeviceCover<'_> {
    /// Whether a single Gaussian covers, whose blurs are mixed from where they are. Those of several are put together first.
    fn is_one_blur(&self) -> bool {
        matches!(self.cover, DeviceCover::Blur(regions) if regions.blurs().len() == 1)
    }
}

impl Pipeline {
    /// Enqueues a soft cover; see [`Pipeline::cover`]. It covers something.
    pub(super) fn cover_softly(
        &mut self,
        selector: &mut KernelSelector,
        frames: &PromisedFrames,
        soft: &SoftDeviceCover,
    ) -> Result<Enqueued, SubmitError> {
        let layouts = frames.layouts();
        let [sources, destinations] = frames.device_planes();
        let streams = frames.streams();
        let stream = streams.or(&self.compute);
        let resident = ResidentState::get(&mut self.resident, selector.device().id())?;
        let uploads = PinnedUploads::get(&mut self.weights, selector.device().id())?;
        let inpainting = Inpainting::new(layouts, soft.weights.cell());
        // All pitches are known before the addresses.
        let memory = |workspace: u64| Memory::new(workspace, layouts, soft, &inpainting);
        let Memory { pyramid, covers, rest, .. } = memory(0);
        let blurred = if soft.excluded.is_some() { &pyramid[..] } else { sources };
        let mut blurs = match soft.cover {
            DeviceCover::Blur(regions) => {
                Some(RecordedFrame::of_regions(&mut self.recorded_cover, selector, regions, [blurred, &covers])?)
            }
            _ => None,
        };
        let specialised = blurs.as_ref().and_then(|blurs| blurs.specialised());
        let of_cover = match soft.cover {
            DeviceCover::Mosaic(grids) => cover::mosaic_bytes(grids),
            _ => blurs.as_ref().map_or(0, |blurs| blurs.workspace_bytes()),
        };
        let selector = &*selector;
        let work = |workspace: u64| {
            let Memory { nodes, excluded_nodes, cells, pyramid, covers, rest } = memory(workspace);
            // SAFETY: the launches are for the layouts of the frames, which live until the stream has done the work, as their owner
            // promises; the workspace is large enough and this stream's alone.
            let launch = |launches| unsafe { selector.enqueue_commands(&stream, &selector.select_launches(launches)?) };
            // SAFETY: the workspace has memory for the nodes, and is this stream's alone.
            unsafe { uploads.enqueue(&self::nodes(soft).collect::<Vec<_>>(), nodes, &stream)? };
            if let (Some(weights), DeviceCover::Blur(regions)) = (soft.excluded, &soft.cover) {
                let weights = DeviceWeights { weights, nodes: excluded_nodes };
                launch(soft::estimates(&inpainting, weights, sources, cells))?;
                let destinations = &pyramid[..];
                let (covers, covered, planes) = (None, &regions.reads()[..], Selection::ALL);
                let mix = Mix { weights, sources, covers, destinations, covered, planes };
                launch(soft::mix(&mix, layouts, &inpainting, cells))?;
            }
            let mut covers = covers;
            match (&soft.cover, &mut blurs) {
                (DeviceCover::Blur(regions), Some(blurs)) => {
                    let blurred = if soft.excluded.is_some() { &pyramid[..] } else { sources };
                    blurs.set_addresses([blurred, &covers], rest);
                    // SAFETY: as above; the planes of the cover have rows for these layouts.
                    let enqueue = |step: usize| unsafe { blurs.enqueue(selector, &stream, step) };
                    enqueue(0)?;
                    if soft.is_one_blur() {
                        covers = RegionOutputs::new(regions, rest).planes.swap_remove(0);
                    } else {
                        enqueue(1)?;
                    }
                }
                (DeviceCover::Mosaic(grids), _) => launch(cover::mosaic(grids, [sources, &covers], rest))?,
                (DeviceCover::Fill(fills), _) => launch(cover::fills(fills, &covers))?,
                (DeviceCover::Blur(_) | DeviceCover::Soft(_), _) => {
                    unreachable!("blurs are recorded; no cover is in another")
                }
            }
            if !is_in_place(sources, destinations) {
                copy_frame(frames, &stream)?;
            }
            let mix = Mix {
                weights: DeviceWeights { weights: soft.weights, nodes },
                sources: destinations,
                covers: Some(&covers),
                destinations,
                covered: &soft.covered,
                planes: soft.planes,
            };
            launch(soft::mix(&mix, layouts, &inpainting, cells))
        };
        let need = WorkspaceNeed { bytes: rest as usize + of_cover, varies: true };
        // Work that was enqueued before the failure may still use the frames.
        let failed = |error| SubmitError { error, settled: stream.synchronize().is_ok() };
        resident.enqueue(need, streams, &stream, specialised, work).map_err(failed)
    }
}
