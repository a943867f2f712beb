// SPDX-License-Identifier: MPL-2.0
//! Covers regions of a frame that stays on the device: an optional copy of the frame, beside it the blurs of crops into the
//! workspace, and then what is written over the frame. Nothing waits, unless a frame has no stream.

use std::sync::Arc;

use super::resident::{Enqueued, FrameStreams, ResidentState};
use super::{Pipeline, SubmitError, device_planes};
use crate::cuda::driver::{Event, Stream, WorkspaceNeed};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::abi::WideKernels;
use crate::cuda::kernels::cover;
use crate::cuda::kernels::record::{DevicePlanes, Recording, WORKSPACE_ALIGNMENT};
use crate::cuda::select::KernelSelector;
use crate::filter::fill::Fill;
use crate::filter::frame::{PlaneLayout, ValidFrames};
use crate::filter::mosaic::CellGrid;
use crate::filter::plan::Plan;
use crate::filter::plane::DevicePlane;
use crate::filter::tiles::{BlurJob, BlurTiles};

/// What covers regions of a frame.
#[derive(Clone)]
pub enum DeviceCover<'a> {
    /// Blurred crops, with the plan of each job.
    Blur(&'a BlurTiles, &'a [Arc<Plan>]),
    /// Cells of one colour.
    Mosaic(&'a [CellGrid]),
    /// Patterns.
    Fill(&'a [Fill]),
}

impl Pipeline {
    /// Enqueues a cover of a frame that stays on the device. If source and destination are not the same memory, the source is
    /// copied first.
    ///
    /// # Safety
    /// See [`Pipeline::submit`]. The cover was made for the layouts of the frames.
    pub unsafe fn cover(
        &mut self,
        selector: &mut KernelSelector,
        frames: &ValidFrames,
        cover: &DeviceCover,
    ) -> Result<Enqueued, SubmitError> {
        let planes = device_planes(frames, None);
        let streams = FrameStreams::of(frames);
        // SAFETY: the streams of the frames are live and outlive what is enqueued, as the caller promises.
        let stream = unsafe { streams.borrow(&self.compute) };
        let resident = ResidentState::get(&mut self.resident, selector.device().id())?;
        let copy = match &mut self.frame_copy {
            Some(copy) => copy,
            none => none.insert(FrameCopy::new(selector.device().id())?),
        };
        let bytes = match cover {
            DeviceCover::Blur(..) => blur_bytes(selector, cover, &planes, resident.workspace()),
            DeviceCover::Mosaic(grids) => cover::mosaic_bytes(grids),
            DeviceCover::Fill(_) => 0,
        };
        let selector = &*selector;
        // SAFETY: the frames are valid and the cover is for their layouts; the workspace is large enough and this stream's alone;
        // the rest is the caller's promise.
        let work = |workspace: u64| unsafe {
            let specialised = if is_in_place(&planes) {
                enqueue_blurs(selector, cover, &planes, workspace, &stream)?
            } else if let DeviceCover::Blur(tiles, _) = cover
                && !tiles.jobs.is_empty()
            {
                copy.enqueue(frames.layouts(), &planes, &stream)?;
                let specialised = enqueue_blurs(selector, cover, &planes, workspace, &stream)?;
                stream.wait(&copy.end)?;
                specialised
            } else {
                copy_frame(frames.layouts(), &planes, &stream)?;
                true
            };
            enqueue_writes(selector, cover, &planes, workspace, &stream)?;
            Ok(specialised)
        };
        let need = WorkspaceNeed { bytes, varies: true };
        // SAFETY: the streams are live and of this context, as the caller promises, or the engine's own.
        unsafe { resident.enqueue(need, streams, &stream, work) }.map_err(|error| {
            // Work that was enqueued before the failure may still use the frames.
            let settled = [&stream, &copy.stream].map(|stream| stream.synchronize().is_ok());
            SubmitError { error, settled: settled == [true; 2] }
        })
    }
}

/// Bytes of workspace for the blurs of a cover. The selector learns of them.
pub fn blur_bytes(selector: &mut KernelSelector, cover: &DeviceCover, planes: &DevicePlanes, workspace: u64) -> usize {
    let recordings = recordings(cover, planes, workspace, selector.wide_kernels());
    selector.observe(&recordings);
    let tiles = if let DeviceCover::Blur(tiles, _) = cover { tile_bytes(tiles) } else { 0 };
    tiles + recordings.iter().map(|recording| selector.workspace_bytes(recording)).max().unwrap_or(0)
}

/// Bytes of the tile memory at the begin of the workspace.
fn tile_bytes(tiles: &BlurTiles) -> usize {
    tiles.bytes.next_multiple_of(WORKSPACE_ALIGNMENT)
}

/// The recordings of the jobs of a cover, one for each. They use what is behind the tile memory in turn.
fn recordings<'a>(
    cover: &DeviceCover<'a>,
    planes: &DevicePlanes,
    workspace: u64,
    wide_kernels: WideKernels,
) -> Vec<Recording<'a>> {
    let DeviceCover::Blur(tiles, plans) = cover else { return Vec::new() };
    let temporaries = workspace + tile_bytes(tiles) as u64;
    let jobs = tiles.jobs.iter().zip(*plans);
    let record = |(job, plan): (&BlurJob, &'a Arc<Plan>)| {
        let planes = job_planes(job, &planes.sources, workspace);
        Recording::new(plan, &planes, temporaries, wide_kernels, None)
    };
    jobs.map(record).collect()
}

/// The crops of a job in the frame, and where they are blurred to in the tile memory.
fn job_planes(job: &BlurJob, sources: &[DevicePlane], tile_memory: u64) -> DevicePlanes {
    let planes = job.crops.iter().map(|blurred| {
        let source = &sources[blurred.crop.plane];
        let (start, len) = blurred.crop.bytes_in(source.pitch);
        let crop = DevicePlane { address: source.address + start as u64, pitch: source.pitch, len };
        let blurred =
            DevicePlane { address: tile_memory + blurred.offset as u64, pitch: blurred.pitch, len: blurred.bytes() };
        (crop, blurred)
    });
    let (sources, destinations) = planes.unzip();
    DevicePlanes { sources, destinations }
}

/// Enqueues what is written over the frame after [`enqueue_blurs`]. Everything is read before anything is written.
///
/// # Safety
/// The context is current. The planes of the destination hold their rows. They, and the workspace of the cover from this address
/// on, live and are accessed by nobody else until the stream has done the work.
unsafe fn enqueue_writes(
    selector: &KernelSelector,
    cover: &DeviceCover,
    planes: &DevicePlanes,
    workspace: u64,
    stream: &Stream,
) -> Result<(), CudaError> {
    let to = &planes.destinations;
    let launches = match cover {
        DeviceCover::Blur(tiles, _) => cover::copies(&tiles.patches, to, workspace),
        DeviceCover::Mosaic(grids) => cover::mosaic(grids, to, workspace),
        DeviceCover::Fill(fills) => cover::fills(fills, to),
    };
    for launch in &launches {
        // SAFETY: what is covered is in the frame, and what is read in the workspace or the frame.
        unsafe { selector.enqueue_prebuilt(stream, launch) }?;
    }
    Ok(())
}

/// Enqueues the blurs of a cover into the tile memory, which the workspace begins with. Returns whether specialised kernels do
/// all.
///
/// # Safety
/// The context is current. The source planes hold their rows. They, and the workspace of the cover from this address on, live
/// and are accessed by nobody else until the stream has done the work.
pub unsafe fn enqueue_blurs(
    selector: &KernelSelector,
    cover: &DeviceCover,
    planes: &DevicePlanes,
    workspace: u64,
    stream: &Stream,
) -> Result<bool, CudaError> {
    let DeviceCover::Blur(tiles, _) = cover else { return Ok(true) };
    let temporaries = workspace + tile_bytes(tiles) as u64;
    let mut specialised = true;
    for recording in recordings(cover, planes, workspace, selector.wide_kernels()) {
        // SAFETY: the crops are in the frame and the tile memory, and the temporaries behind it.
        specialised &= unsafe { selector.enqueue(stream, &recording, temporaries) }?;
    }
    Ok(specialised)
}

/// Whether source and destination are the same memory.
fn is_in_place(DevicePlanes { sources, destinations }: &DevicePlanes) -> bool {
    let is_same = |(from, to): (&DevicePlane, &DevicePlane)| from.address == to.address && from.pitch == to.pitch;
    sources.iter().zip(destinations).all(is_same)
}

/// The copy of a frame, on a stream by itself: it takes half as long as the blurs of a few regions, which do not wait for it.
pub struct FrameCopy {
    stream: Stream,
    begin: Event,
    end: Event,
}

impl FrameCopy {
    /// On the device whose context is current.
    fn new(device: u32) -> Result<Self, CudaError> {
        Ok(Self { stream: Stream::new(device)?, begin: Event::new(device)?, end: Event::new(device)? })
    }

    /// Enqueues a copy of the source to the destination behind what is on `after`. `end` is its end.
    ///
    /// # Safety
    /// See [`copy_frame`]; until `end`.
    unsafe fn enqueue(&self, layouts: &[PlaneLayout], planes: &DevicePlanes, after: &Stream) -> Result<(), CudaError> {
        after.record(&self.begin)?;
        self.stream.wait(&self.begin)?;
        // SAFETY: the caller's promise.
        unsafe { copy_frame(layouts, planes, &self.stream) }?;
        self.stream.record(&self.end)
    }
}

/// Copies the source to the destination, with the bytes between rows that both have.
///
/// # Safety
/// The context is current. Source and destination hold the rows of the layouts, do not overlap, live and are accessed by nobody
/// else until the stream has done the work.
unsafe fn copy_frame(layouts: &[PlaneLayout], planes: &DevicePlanes, stream: &Stream) -> Result<(), CudaError> {
    let DevicePlanes { sources, destinations } = planes;
    for (index, layout) in layouts.iter().enumerate() {
        let (from, to) = (&sources[index], &destinations[index]);
        let (row_bytes, last) = (layout.row_bytes(), layout.height as usize - 1);
        // Where the rows of planes alternate, the bytes between the rows of one are those of another.
        let has_padding = [sources, destinations].iter().all(|planes| is_apart(layouts, planes, index));
        // SAFETY: both planes hold the rows and, before the last one, what is between them; the rest is the caller's promise.
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
