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

use super::promised_frames::PromisedFrames;
use super::recorded_frame::RecordedFrame;
use super::steps::SharedPlanes;
use super::{HostAddress, Pipeline, SubmitError, Times};
use crate::cuda::driver::{self, Event, PinnedWorkspace, Stream, Workspace, WorkspaceNeed};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::abi::WORKSPACE_ALIGNMENT;
use crate::cuda::kernels::byte_rect::{PackedRect, StagingLayout};
use crate::cuda::kernels::region_blur::RegionBlurPlan;
use crate::cuda::kernels::regions::RegionTransfers;
use crate::cuda::select::KernelSelector;
use crate::cuda::transfer::adaptive_wait::AdaptiveWait;
use crate::cuda::transfer::{ThreadedCopy, plane_offsets};
use crate::filter::frame::FrameMemory;
use crate::filter::plane::{DevicePlane, HostPlane, HostPlaneMut, copy_rows};
use crate::threads::Threads;

/// Bytes of an upload of packed rectangles. The next ones are packed while it runs.
const UPLOAD_BYTES: usize = 512 << 10;
/// More rectangles are packed, because enqueuing a copy takes about 4 µs.
const MAX_DIRECT_UPLOADS: usize = 32;

/// The memory and the events of frames in host memory whose regions are blurred, one at a time.
pub struct HostCoverState {
    /// The regions of the last frame, and what crosses the bus for them.
    regions: Option<(Arc<RegionBlurPlan>, RegionTransfers)>,
    /// The commands for them.
    recorded: Option<RecordedFrame>,
    /// The picture, then the workspace, which begins with the packed rectangles of the upload.
    memory: Workspace,
    /// Packed rectangles: first those of the upload, then what the device writes.
    staging: PinnedWorkspace,
    begin: Event,
    uploaded: Event,
    done: Event,
}

/// A frame, and all that its steps use.
struct Job<'a> {
    selector: &'a KernelSelector,
    source: &'a [HostPlane],
    transfers: &'a RegionTransfers,
    /// With this frame's addresses.
    recorded: &'a RecordedFrame,
    /// The picture on the device.
    picture: Vec<DevicePlane>,
    /// The packed rectangles of the upload on the device.
    packed: u64,
    state: &'a HostCoverState,
    /// Whether the device reads the source, which is pinned.
    direct: bool,
    stream: &'a Stream,
    threads: &'a Threads,
}

impl Pipeline {
    /// Blurs regions of a frame and waits for it. If source and destination are not the same memory, the source is copied while
    /// the device works. Returns the times, and whether specialised kernels do all blurs, `None` if there are none. On an error nothing is blurred, and
    /// another destination than the source is undefined.
    /// The regions are for the frames, and the context is current.
    ///
    /// # Panics
    /// If a frame is on the device.
    pub fn cover_host(
        &mut self,
        selector: &mut KernelSelector,
        frames: &mut PromisedFrames,
        regions: &Arc<RegionBlurPlan>,
        direct: bool,
    ) -> Result<(Times, Option<bool>), SubmitError> {
        let (FrameMemory::Host(source), FrameMemory::Host(destination)) = (frames.source(), frames.destination())
        else {
            panic!("the frames are on the device");
        };
        let (source, destination) = (source.clone(), destination.clone());
        let is_alone = self.copy_streams.in_flight() == 0;
        let (stream, threads, wait) = (&self.compute, &*self.threads, &mut self.cover_wait);
        let mut state = match self.host_cover.take() {
            Some(state) => state,
            None => HostCoverState::new(selector.device().id())?,
        };
        let mut cover_frame = || {
            let (picture, packed) = state.prepare(selector, regions, stream)?;
            let (transfers, recorded) = state.prepared();
            let direct = direct && transfers.can_be_direct(&source);
            let state = &state;
            let job =
                Job { selector, source: &source, transfers, recorded, picture, packed, state, direct, stream, threads };
            let started = Instant::now();
            job.enqueue()?;
            frames.copy_source();
            let HostCoverState { begin, uploaded, done, .. } = state;
            if is_alone {
                wait.wait(started, || done.is_done())?;
                wait.observe(begin.elapsed_until(done)?);
            } else {
                AdaptiveWait::wait_coarsely(|| done.is_done())?;
            }
            let times = Times {
                upload: Some(begin.elapsed_until(uploaded)?),
                kernel: Some(uploaded.elapsed_until(done)?),
                download: None,
                bytes_copied: transfers.downloads.bytes() + if direct { 0 } else { transfers.uploads.bytes() },
                direct: [direct, false],
            };
            job.write(&destination);
            Ok((times, recorded.specialised()))
        };
        match cover_frame() {
            Ok(covered) => {
                self.host_cover = Some(state);
                Ok(covered)
            }
            Err(error) => {
                // Work that was enqueued before the failure may still be running.
                let settled = stream.synchronize().is_ok();
                if !settled {
                    std::mem::forget(state);
                }
                Err(SubmitError { error, settled: settled || !direct })
            }
        }
    }
}

impl RegionTransfers {
    /// Whether the device reads this source itself.
    fn can_be_direct(&self, source: &[HostPlane]) -> bool {
        let is_pinned = |plane: &HostPlane| driver::is_pinned(plane.address.as_const(), plane.len);
        self.uploads.rects.len() <= MAX_DIRECT_UPLOADS && source.iter().all(is_pinned)
    }
}

impl HostCoverState {
    fn new(device: u32) -> Result<Self, CudaError> {
        Ok(Self {
            regions: None,
            recorded: None,
            memory: Workspace::default(),
            staging: PinnedWorkspace::default(),
            begin: Event::new(device)?,
            uploaded: Event::new(device)?,
            done: Event::new(device)?,
        })
    }

    /// Records the commands, unless the last frame had the same, and allocates what the regions need if the memory is too small.
    /// Returns the picture and the workspace on the device.
    fn prepare(
        &mut self,
        selector: &mut KernelSelector,
        regions: &Arc<RegionBlurPlan>,
        stream: &Stream,
    ) -> Result<(Vec<DevicePlane>, u64), CudaError> {
        let last = self.regions.take().filter(|(of, _)| Arc::ptr_eq(of, regions));
        let (_, transfers) =
            self.regions.insert(last.unwrap_or_else(|| (Arc::clone(regions), RegionTransfers::new(regions))));
        let (planes, picture_bytes) = plane_offsets(regions.layouts());
        let picture_bytes = picture_bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
        let picture = |memory: &Workspace| {
            planes.iter().map(|plane| plane.within(memory.address())).collect::<Vec<DevicePlane>>()
        };
        // The device writes what is covered after everything is uploaded, in the same place.
        let bytes = transfers.uploads.block_bytes.max(transfers.downloads.block_bytes);
        self.staging.reserve(WorkspaceNeed { bytes, varies: true }, stream.device())?;
        // The device accesses pinned memory at the address that the host does (unified addressing).
        let staging = [DevicePlane { address: self.staging.address() as u64, pitch: 0, len: bytes }];
        let before = picture(&self.memory);
        let recorded =
            RecordedFrame::of_host_regions(&mut self.recorded, selector, regions, [&before, &staging], transfers)?;
        let bytes = picture_bytes + recorded.workspace_bytes();
        self.memory.reserve(WorkspaceNeed { bytes, varies: true }, stream)?;
        let (picture, workspace) = (picture(&self.memory), self.memory.address() + picture_bytes as u64);
        recorded.set_addresses([&picture, &staging], workspace);
        Ok((picture, workspace))
    }

    fn prepared(&self) -> (&RegionTransfers, &RecordedFrame) {
        let (Some((_, transfers)), Some(recorded)) = (&self.regions, &self.recorded) else {
            unreachable!("`prepare` made both");
        };
        (transfers, recorded)
    }
}

impl Job<'_> {
    /// Enqueues everything. Pageable memory is packed meanwhile.
    fn enqueue(&self) -> Result<(), CudaError> {
        let Self { selector, recorded, stream, state, .. } = self;
        // SAFETY: the commands access the picture, the workspace and the staging buffer, which `prepare` allocated for this frame
        // alone, and `HostCoverState` is leaked if the device may still use them.
        let enqueue = |step: usize| unsafe { recorded.enqueue(selector, stream, step) };
        stream.record(&state.begin)?;
        if self.direct {
            self.upload_direct()?;
        } else {
            self.upload_packed()?;
            enqueue(0)?;
        }
        stream.record(&state.uploaded)?;
        enqueue(1)?;
        enqueue(2)?;
        stream.record(&state.done)
    }

    /// Uploads rectangles of pinned memory into the picture.
    fn upload_direct(&self) -> Result<(), CudaError> {
        for PackedRect { rect, .. } in &self.transfers.uploads.rects {
            let (from, to) = (rect.within(&self.source[rect.plane]), rect.within(&self.picture[rect.plane]));
            // SAFETY: the rectangle is in both planes; the source lives and nobody writes it before the device is done, as the owner
            // of the frames promises.
            unsafe { self.stream.upload_rows(&from, &to, rect.bytes, rect.rows) }?;
        }
        Ok(())
    }

    /// Packs rectangles and uploads them, packed.
    fn upload_packed(&self) -> Result<(), CudaError> {
        let uploads = &self.transfers.uploads;
        let bands = bands(uploads);
        let copy = ThreadedCopy::new(bands.iter().map(|band| &band.rows[..]), &row_bytes(uploads));
        let (source, staging) = (SharedPlanes(self.source), &self.state.staging);
        let stage = |index: usize, rows: Range<u32>| {
            let PackedRect { rect, .. } = uploads.rects[index];
            let to = uploads.rects[index].within(staging.address());
            let (first, from) = (rows.start as usize, rect.within(source.plane(rect.plane)));
            // SAFETY: the rectangle is in the source, which nobody writes, and in the staging buffer, which no earlier frame
            // uses; each row is packed once.
            unsafe { copy_rows(&from.from_row(first), &to.from_row(first), rect.bytes, rows.len()) };
        };
        copy.copy_in(self.threads, stage, |band| {
            let Range { start, end } = bands[band].bytes;
            let bytes = end - start;
            let from = HostPlane { address: staging.address().wrapping_add(start), pitch: bytes, len: bytes };
            let to = DevicePlane { address: self.packed + start as u64, pitch: bytes, len: bytes };
            // SAFETY: the band is packed, and in the memory for packed rectangles.
            unsafe { self.stream.upload_rows(&from, &to, bytes, 1) }
        })
    }

    /// Writes what the regions cover, after the device is done. The planes of the frame hold their rows, and nobody else accesses
    /// them.
    fn write(&self, frame: &[HostPlaneMut]) {
        let downloads = &self.transfers.downloads;
        let (to, staging) = (SharedPlanes(frame), &self.state.staging);
        let unstage = |index: usize, rows: Range<u32>| {
            let PackedRect { rect, .. } = downloads.rects[index];
            let from = downloads.rects[index].within(staging.address().cast_const());
            let (first, to) = (rows.start as usize, rect.within(to.plane(rect.plane)));
            // SAFETY: the rectangle is in the frame and in the staging buffer. Threads write different bytes.
            unsafe { copy_rows(&from.from_row(first), &to.from_row(first), rect.bytes, rows.len()) };
        };
        // The later one of two rectangles that overlap counts.
        if self.transfers.overlap {
            let rects = downloads.rects.iter().enumerate();
            rects.for_each(|(index, packed)| unstage(index, 0..packed.rect.rows as u32));
            return;
        }
        let rows: Vec<Range<u32>> = downloads.rects.iter().map(|packed| 0..packed.rect.rows as u32).collect();
        let copy = ThreadedCopy::new(std::iter::once(&rows[..]), &row_bytes(downloads));
        let Ok(()) = copy.copy_out(self.threads, unstage, |_| Ok::<(), std::convert::Infallible>(()));
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
