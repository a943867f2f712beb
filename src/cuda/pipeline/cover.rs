// SPDX-License-Identifier: MPL-2.0
//! Covers regions of a frame that stays on the device: an optional copy of the frame, beside it the blurs of crops into the
//! workspace, and then what is written over the frame. Nothing waits, unless a frame has no stream.

use std::sync::Arc;

use super::resident::{Enqueued, FrameStreams, ResidentState};
use super::{Pipeline, SubmitError, device_planes};
use crate::cuda::driver::{Event, Stream, WorkspaceNeed};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::abi::{Kernel, KernelSet};
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
pub enum DeviceCover<'a> {
    /// Blurred crops.
    Blur(DeviceBlurs<'a>),
    /// Cells of one colour.
    Mosaic(&'a [CellGrid]),
    /// Patterns.
    Fill(&'a [Fill]),
}

/// The blurs of crops of a frame. The workspace begins with the tile memory that they write; what is behind it they use in turn.
#[derive(Clone, Copy)]
pub struct DeviceBlurs<'a> {
    /// The crops.
    pub tiles: &'a BlurTiles,
    /// The plan of each job.
    pub plans: &'a [Arc<Plan>],
}

impl Pipeline {
    /// Enqueues a cover of a frame that stays on the device. If source and destination are not the same memory, the source is
    /// copied too.
    ///
    /// # Safety
    /// See [`Pipeline::submit`]. The cover was made for the layouts of the frames.
    pub unsafe fn cover(
        &mut self,
        selector: &mut KernelSelector,
        frames: &ValidFrames,
        cover: &DeviceCover,
    ) -> Result<Enqueued, SubmitError> {
        let device = selector.device().id();
        let planes = device_planes(frames, None);
        let streams = FrameStreams::of(frames);
        // SAFETY: the streams of the frames are live and outlive what is enqueued, as the caller promises.
        let stream = unsafe { streams.borrow(&self.compute) };
        let resident = ResidentState::get(&mut self.resident, device)?;
        selector.load([Kernel::Cover])?;
        let bytes = match cover {
            DeviceCover::Blur(blurs) => blurs.prepare(selector, &planes.sources, resident.workspace())?,
            DeviceCover::Mosaic(grids) => cover::mosaic_bytes(grids),
            DeviceCover::Fill(_) => 0,
        };
        let selector = &*selector;
        let frame_copy = &mut self.frame_copy;
        // SAFETY: the frames are valid and the cover is for their layouts; the workspace is large enough and this stream's alone;
        // a copy of the frame has ended before the last work on the stream, or is waited for; the rest is the caller's promise.
        let work = |workspace: u64| unsafe {
            let (layouts, is_in_place) = (frames.layouts(), is_in_place(&planes));
            let mut specialised = true;
            match cover {
                DeviceCover::Blur(blurs) if !blurs.is_empty() => {
                    let copy = if is_in_place { None } else { Some(FrameCopy::get(frame_copy, device)?) };
                    copy.map_or(Ok(()), |copy| copy.enqueue(layouts, &planes, &stream))?;
                    specialised = blurs.enqueue(selector, &planes.sources, workspace, &stream)?;
                    copy.map_or(Ok(()), |copy| stream.wait(&copy.end))?;
                }
                _ if is_in_place => (),
                _ => copy_frame(layouts, &planes, &stream)?,
            }
            enqueue_writes(selector, cover, &planes.destinations, workspace, &stream)?;
            Ok(specialised)
        };
        let need = WorkspaceNeed { bytes, varies: true };
        // SAFETY: the streams are live and of this context, as the caller promises, or the engine's own.
        unsafe { resident.enqueue(need, streams, &stream, work) }.map_err(|error| {
            // Work that was enqueued before the failure may still use the frames.
            let copy = self.frame_copy.as_ref().map(|copy| &copy.stream);
            let settled = [Some(&stream), copy].map(|stream| stream.is_none_or(|stream| stream.synchronize().is_ok()));
            SubmitError { error, settled: settled == [true; 2] }
        })
    }
}

impl<'a> DeviceBlurs<'a> {
    fn is_empty(&self) -> bool {
        self.tiles.jobs.is_empty()
    }

    /// Loads the kernels of the blurs, and returns the bytes of workspace that they need. The selector may start to compile
    /// specialised kernels for them.
    pub fn prepare(
        &self,
        selector: &mut KernelSelector,
        sources: &[DevicePlane],
        workspace: u64,
    ) -> Result<usize, CudaError> {
        let recordings = self.recordings(sources, workspace, selector.kernel_set());
        selector.prepare(&recordings)?;
        let own = recordings.iter().map(|recording| selector.workspace_bytes(recording)).max();
        Ok(self.tile_bytes() + own.unwrap_or(0))
    }

    /// Enqueues the blurs into the tile memory. Returns whether specialised kernels do all.
    ///
    /// # Safety
    /// The context is current. The source planes hold the rows of the frame that the tiles and the plans were made for. They and
    /// the workspace live, nobody writes the sources, and nobody else accesses the workspace, until the stream has done the work.
    pub unsafe fn enqueue(
        &self,
        selector: &KernelSelector,
        sources: &[DevicePlane],
        workspace: u64,
        stream: &Stream,
    ) -> Result<bool, CudaError> {
        let temporaries = workspace + self.tile_bytes() as u64;
        let mut specialised = true;
        for recording in self.recordings(sources, workspace, selector.kernel_set()) {
            // SAFETY: the crops are in the frame and the tile memory, and the temporaries behind it.
            specialised &= unsafe { selector.enqueue(stream, &recording, temporaries) }?;
        }
        Ok(specialised)
    }

    /// Bytes of the tile memory.
    fn tile_bytes(&self) -> usize {
        self.tiles.bytes.next_multiple_of(WORKSPACE_ALIGNMENT)
    }

    /// One recording for each job.
    fn recordings(&self, sources: &[DevicePlane], workspace: u64, kernel_set: KernelSet) -> Vec<Recording<'a>> {
        let temporaries = workspace + self.tile_bytes() as u64;
        let record = |(job, plan): (&BlurJob, &'a Arc<Plan>)| {
            Recording::new(plan, &job_planes(job, sources, workspace), temporaries, kernel_set, None)
        };
        self.tiles.jobs.iter().zip(self.plans).map(record).collect()
    }
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

/// Enqueues what is written over the frame, after its blurs. Everything is read before anything is written.
///
/// # Safety
/// The context is current. The planes of the destination hold their rows. They, and the workspace of the cover from this address
/// on, live and are accessed by nobody else until the stream has done the work.
unsafe fn enqueue_writes(
    selector: &KernelSelector,
    cover: &DeviceCover,
    planes: &[DevicePlane],
    workspace: u64,
    stream: &Stream,
) -> Result<(), CudaError> {
    let launches = match cover {
        DeviceCover::Blur(blurs) => cover::copies(&blurs.tiles.patches, planes, workspace),
        DeviceCover::Mosaic(grids) => cover::mosaic(grids, planes, workspace),
        DeviceCover::Fill(fills) => cover::fills(fills, planes),
    };
    for launch in &launches {
        // SAFETY: what is covered is in the frame, and what is read in the workspace or the frame.
        unsafe { selector.enqueue_prebuilt(stream, launch) }?;
    }
    Ok(())
}

/// Whether source and destination are the same memory.
fn is_in_place(DevicePlanes { sources, destinations }: &DevicePlanes) -> bool {
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
/// The context is current. Source and destination hold the rows of the layouts, do not overlap and live, nobody writes the source,
/// and nobody else accesses the destination, until the stream has done the work.
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
