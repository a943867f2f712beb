// SPDX-License-Identifier: MPL-2.0
//! Covers regions of a frame in host memory: what the blurs depend on is uploaded into a picture on the device, and only what
//! the regions cover comes back. All of it on one stream, with one wait.
//!
//! Rectangles are uploaded packed, in few copies, and a kernel moves them to the picture; from pinned memory each is uploaded by
//! itself, without a copy by the CPU. Another kernel writes what is covered into pinned memory, packed too, which takes 10 µs
//! less than a download.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::cover::DeviceBlurs;
use super::steps::SharedPlanes;
use super::{HostAddress, Pipeline, SubmitError, Times};
use crate::cuda::driver::{self, Event, PinnedWorkspace, Stream, Workspace, WorkspaceNeed};
use crate::cuda::error::CudaError;
use crate::cuda::kernels;
use crate::cuda::kernels::abi::Kernel;
use crate::cuda::kernels::record::WORKSPACE_ALIGNMENT;
use crate::cuda::select::KernelSelector;
use crate::cuda::transfer::adaptive_wait::AdaptiveWait;
use crate::cuda::transfer::{ThreadedCopy, plane_offsets};
use crate::filter::byte_rect::{PackedRect, StagingLayout};
use crate::filter::frame::{FrameMemory, ValidFrames};
use crate::filter::plan::Plan;
use crate::filter::plane::{DevicePlane, HostPlane, HostPlaneMut, copy_rows};
use crate::filter::tiles::TransferTiles;
use crate::threads::Threads;

/// Bytes of an upload of packed rectangles. The next ones are packed while it runs.
const UPLOAD_BYTES: usize = 512 << 10;
/// More rectangles are packed, because enqueuing a copy takes about 4 µs.
const MAX_DIRECT_UPLOADS: usize = 32;

/// The memory and the events of frames in host memory whose regions are blurred, one at a time.
pub struct HostCoverState {
    /// The picture, the packed rectangles of the upload and the workspace of the blurs, one behind the other.
    memory: Workspace,
    /// Packed rectangles: first those of the upload, then what the device writes.
    staging: PinnedWorkspace,
    begin: Event,
    uploaded: Event,
    done: Event,
    wait: AdaptiveWait,
}

/// A frame, and what is done with it.
struct Job<'a> {
    selector: &'a KernelSelector,
    source: &'a [HostPlane],
    tiles: &'a TransferTiles,
    blurs: DeviceBlurs<'a>,
    /// Whether the device reads the source, which is pinned.
    direct: bool,
    stream: &'a Stream,
    threads: &'a Threads,
}

impl Pipeline {
    /// Blurs regions of a frame and waits for it. If source and destination are not the same memory, the source is copied while
    /// the device works. Returns the times, and whether specialised kernels do all blurs. On an error nothing is blurred, and
    /// another destination than the source is undefined.
    ///
    /// # Safety
    /// The context is current, and the tiles and the plans are for the frames. If this fails and what was enqueued is not settled,
    /// nobody writes or frees the source any more.
    ///
    /// # Panics
    /// If a frame is on the device.
    pub unsafe fn cover_host(
        &mut self,
        selector: &mut KernelSelector,
        frames: &mut ValidFrames,
        tiles: &TransferTiles,
        plans: &[Arc<Plan>],
        direct: bool,
    ) -> Result<(Times, bool), SubmitError> {
        let (FrameMemory::Host(source), FrameMemory::Host(destination)) = (frames.source(), frames.destination())
        else {
            panic!("the frames are on the device");
        };
        let (source, destination) = (source.clone(), destination.clone());
        let is_alone = self.copy_streams.in_flight() == 0;
        let mut state = match self.host_cover.take() {
            Some(state) => state,
            None => HostCoverState::new(selector.device().id())?,
        };
        let is_pinned = |plane: &HostPlane| driver::is_pinned(plane.address.as_const(), plane.len);
        let direct = direct && tiles.uploads().rects.len() <= MAX_DIRECT_UPLOADS && source.iter().all(is_pinned);
        let blurs = DeviceBlurs { tiles: tiles.blurs(), plans };
        let mut cover_frame = || {
            let buffers = state.reserve(selector, tiles, &blurs, &self.compute)?;
            let (stream, threads) = (&self.compute, &*self.threads);
            let job = Job { selector, source: &source, tiles, blurs, direct, stream, threads };
            let started = Instant::now();
            // SAFETY: the buffers are for these tiles and this frame alone; the rest is the caller's promise.
            let specialised = unsafe { state.enqueue(&job, &buffers) }?;
            frames.copy_source();
            let times = state.finish(&job, started, is_alone)?;
            // SAFETY: the planes are valid and borrowed mutably by `frames`; the device is done.
            unsafe { state.write(&job, &destination) };
            Ok((times, specialised))
        };
        match cover_frame() {
            Ok(covered) => {
                self.host_cover = Some(state);
                Ok(covered)
            }
            Err(error) => {
                // Work that was enqueued before the failure may still be running.
                let settled = self.compute.synchronize().is_ok();
                if !settled {
                    std::mem::forget(state);
                }
                Err(SubmitError { error, settled: settled || !direct })
            }
        }
    }
}

/// Where the picture, the packed rectangles and the workspace are on the device.
struct DeviceBuffers {
    picture: Vec<DevicePlane>,
    packed: u64,
    workspace: u64,
}

impl HostCoverState {
    fn new(device: u32) -> Result<Self, CudaError> {
        Ok(Self {
            memory: Workspace::default(),
            staging: PinnedWorkspace::default(),
            begin: Event::new(device)?,
            uploaded: Event::new(device)?,
            done: Event::new(device)?,
            wait: AdaptiveWait::default(),
        })
    }

    /// Loads the kernels, and allocates what the tiles need if the memory is too small.
    fn reserve(
        &mut self,
        selector: &mut KernelSelector,
        tiles: &TransferTiles,
        blurs: &DeviceBlurs,
        stream: &Stream,
    ) -> Result<DeviceBuffers, CudaError> {
        let (planes, picture_bytes) = plane_offsets(tiles.layouts());
        let [uploads, downloads] = [tiles.uploads(), tiles.downloads()].map(|rects| rects.block_bytes);
        let packed = picture_bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
        let workspace = packed + uploads.next_multiple_of(WORKSPACE_ALIGNMENT);
        let buffers = |memory: u64| DeviceBuffers {
            picture: planes.iter().map(|plane| plane.within(memory)).collect(),
            packed: memory + packed as u64,
            workspace: memory + workspace as u64,
        };
        let current = buffers(self.memory.address());
        selector.load([Kernel::Cover])?;
        let bytes = workspace + blurs.prepare(selector, &current.picture, current.workspace)?;
        // The device writes what is covered after everything is uploaded, in the same place.
        let staging = WorkspaceNeed { bytes: uploads.max(downloads), varies: true };
        self.staging.reserve(staging, stream.device())?;
        let is_new = self.memory.reserve(WorkspaceNeed { bytes, varies: true }, stream)?;
        Ok(if is_new { buffers(self.memory.address()) } else { current })
    }

    /// Enqueues everything. Pageable memory is packed meanwhile. Returns whether specialised kernels do all blurs.
    ///
    /// # Safety
    /// `reserve` returned the buffers for these tiles. The source and this live, and the source is not written, until the stream
    /// has done the work, also if this fails. The context is current.
    unsafe fn enqueue(&self, job: &Job, buffers: &DeviceBuffers) -> Result<bool, CudaError> {
        let Job { selector, tiles, blurs, stream, .. } = job;
        stream.record(&self.begin)?;
        // SAFETY: the caller's promise; the uploads are in the picture, the source and the memory for packed rectangles.
        unsafe {
            if job.direct {
                self.upload_direct(job, &buffers.picture)?;
            } else {
                self.upload_packed(job, buffers.packed)?;
                for launch in &kernels::cover::unpack(tiles.uploads(), buffers.packed, &buffers.picture) {
                    selector.enqueue_prebuilt(stream, launch)?;
                }
            }
        }
        stream.record(&self.uploaded)?;
        // SAFETY: the picture holds the rows of the frame, and the workspace is large enough.
        let specialised = unsafe { blurs.enqueue(selector, &buffers.picture, buffers.workspace, stream) }?;
        // The device accesses pinned memory at the address that the host does (unified addressing).
        let staging = self.staging.address() as u64;
        for launch in &kernels::cover::pack(&blurs.tiles.patches, tiles.downloads(), buffers.workspace, staging) {
            // SAFETY: the patches are in the tile memory, and the staging buffer is large enough. Nobody else accesses it before
            // the stream has done the work.
            unsafe { selector.enqueue_prebuilt(stream, launch) }?;
        }
        stream.record(&self.done)?;
        Ok(specialised)
    }

    /// Uploads rectangles of pinned memory into the picture.
    ///
    /// # Safety
    /// See [`HostCoverState::enqueue`].
    unsafe fn upload_direct(&self, job: &Job, picture: &[DevicePlane]) -> Result<(), CudaError> {
        for PackedRect { rect, .. } in &job.tiles.uploads().rects {
            let (from, to) = (rect.within(&job.source[rect.plane]), rect.within(&picture[rect.plane]));
            // SAFETY: the rectangle is in both planes, as the caller promises.
            unsafe { job.stream.upload_rows(&from, &to, rect.bytes, rect.rows) }?;
        }
        Ok(())
    }

    /// Packs rectangles and uploads them, packed.
    ///
    /// # Safety
    /// See [`HostCoverState::enqueue`].
    unsafe fn upload_packed(&self, job: &Job, packed: u64) -> Result<(), CudaError> {
        let uploads = job.tiles.uploads();
        let bands = bands(uploads);
        let copy = ThreadedCopy::new(bands.iter().map(|band| &band.rows[..]), &row_bytes(uploads));
        let (source, staging) = (SharedPlanes(job.source), &self.staging);
        let stage = |index: usize, rows: Range<u32>| {
            let PackedRect { rect, .. } = uploads.rects[index];
            let to = uploads.rects[index].within(staging.address());
            let (first, from) = (rows.start as usize, rect.within(source.plane(rect.plane)));
            // SAFETY: the rectangle is in the source, which nobody writes, and in the staging buffer, which no earlier frame
            // uses; each row is packed once.
            unsafe { copy_rows(&from.from_row(first), &to.from_row(first), rect.bytes, rows.len()) };
        };
        copy.copy_in(job.threads, stage, |band| {
            let Range { start, end } = bands[band].bytes;
            let bytes = end - start;
            let from = HostPlane { address: self.staging.address().wrapping_add(start), pitch: bytes, len: bytes };
            let to = DevicePlane { address: packed + start as u64, pitch: bytes, len: bytes };
            // SAFETY: the band is packed, and in the memory for packed rectangles.
            unsafe { job.stream.upload_rows(&from, &to, bytes, 1) }
        })
    }

    /// Waits for the device.
    fn finish(&mut self, job: &Job, started: Instant, is_alone: bool) -> Result<Times, CudaError> {
        let Self { begin, uploaded, done, wait, .. } = self;
        if is_alone {
            wait.wait(started, || done.is_done())?;
            wait.observe(begin.elapsed_until(done)?);
        } else {
            AdaptiveWait::wait_coarsely(|| done.is_done())?;
        }
        let (uploads, downloads) = (job.tiles.uploads(), job.tiles.downloads());
        Ok(Times {
            upload: Some(begin.elapsed_until(uploaded)?),
            kernel: Some(uploaded.elapsed_until(done)?),
            download: None,
            bytes_copied: downloads.bytes() + if job.direct { 0 } else { uploads.bytes() },
            direct: [job.direct, false],
        })
    }

    /// Writes what the regions cover.
    ///
    /// # Safety
    /// The planes of the frame hold their rows, and nobody else accesses them. The device is done.
    unsafe fn write(&self, job: &Job, frame: &[HostPlaneMut]) {
        let downloads = job.tiles.downloads();
        let (to, staging) = (SharedPlanes(frame), &self.staging);
        let unstage = |index: usize, rows: Range<u32>| {
            let PackedRect { rect, .. } = downloads.rects[index];
            let from = downloads.rects[index].within(staging.address().cast_const());
            let (first, to) = (rows.start as usize, rect.within(to.plane(rect.plane)));
            // SAFETY: the rectangle is in the frame and in the staging buffer. Threads write different bytes.
            unsafe { copy_rows(&from.from_row(first), &to.from_row(first), rect.bytes, rows.len()) };
        };
        // The later one of two patches that overlap counts.
        if job.tiles.patches_overlap() {
            let rects = downloads.rects.iter().enumerate();
            rects.for_each(|(index, packed)| unstage(index, 0..packed.rect.rows as u32));
            return;
        }
        let rows: Vec<Range<u32>> = downloads.rects.iter().map(|packed| 0..packed.rect.rows as u32).collect();
        let copy = ThreadedCopy::new(std::iter::once(&rows[..]), &row_bytes(downloads));
        let Ok(()) = copy.copy_out(job.threads, unstage, |_| Ok::<(), std::convert::Infallible>(()));
    }
}

/// Bytes in a row of every rectangle.
fn row_bytes(packed: &StagingLayout) -> Vec<usize> {
    packed.rects.iter().map(|packed| packed.rect.bytes).collect()
}

/// A part of packed rectangles that is uploaded with one copy.
struct UploadBand {
    /// Of every rectangle.
    rows: Vec<Range<u32>>,
    /// Of the block.
    bytes: Range<usize>,
}

/// Cuts packed rectangles into bands of about [`UPLOAD_BYTES`].
fn bands(uploads: &StagingLayout) -> Vec<UploadBand> {
    let no_rows = || vec![0..0; uploads.rects.len()];
    let mut bands = Vec::new();
    let mut band = UploadBand { rows: no_rows(), bytes: 0..0 };
    for (index, PackedRect { rect, pitch, .. }) in uploads.rects.iter().enumerate() {
        let mut first = 0;
        while first < rect.rows {
            let left = UPLOAD_BYTES.saturating_sub(band.bytes.len());
            let rows = (left / pitch).max(1).min(rect.rows - first);
            band.rows[index] = first as u32..(first + rows) as u32;
            band.bytes.end += rows * pitch;
            first += rows;
            if band.bytes.len() + pitch > UPLOAD_BYTES {
                let start = band.bytes.end;
                bands.push(std::mem::replace(&mut band, UploadBand { rows: no_rows(), bytes: start..start }));
            }
        }
    }
    if !band.bytes.is_empty() {
        bands.push(band);
    }
    bands
}
