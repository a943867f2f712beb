// SPDX-License-Identifier: MPL-2.0
//! Enqueues a frame piece by piece: upload, kernels, download. A resident source is not uploaded, and a resident destination is
//! not downloaded.

use super::frame_slot::FrameSlot;
use super::route::{Route, TransferPath};
use super::timer::{PieceEvents, Timer};
use super::{streams_of, weights};
use crate::cuda::driver::{CopyAddress, Event, Stream};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::bytes::{self, ByteWrite};
use crate::cuda::kernels::launch::Launch;
use crate::cuda::kernels::prebuilt::PrebuiltKernels;
use crate::cuda::program::Program;
use crate::cuda::transfer::schedule::Schedule;
use crate::cuda::transfer::{CopyStreams, SharedPlanes, ThreadedCopy};
use crate::filter::byte_rect::ByteRect;
use crate::filter::cover::Softness;
use crate::filter::frame::{FrameMemory, ValidFrames};
use crate::filter::parts::Job;
use crate::filter::plane::{DevicePlane, HostPlaneMut, PlaneMemory};
use crate::threads::Threads;

/// The streams that a frame is enqueued on. Some or all of them may be the same stream.
#[derive(Clone, Copy)]
pub struct Streams<'a> {
    pub upload: &'a Stream,
    pub compute: &'a Stream,
    pub download: &'a Stream,
}

impl<'a> Streams<'a> {
    /// Uses one stream for everything.
    pub fn single(stream: &'a Stream) -> Self {
        Self { upload: stream, compute: stream, download: stream }
    }

    /// The streams for a frame on this route.
    pub fn of(route: &Route, compute: &'a Stream, copies: &'a CopyStreams) -> Self {
        let (upload, download) = (&copies.upload, &copies.download);
        if route.by_events { Self { upload, compute, download } } else { Self::single(compute) }
    }

    /// Waits for all streams. Returns whether this succeeded, so that no enqueued work is running any more.
    pub fn synchronize(&self) -> bool {
        [self.upload, self.compute, self.download].map(|stream| stream.synchronize().is_ok()) == [true; 3]
    }
}

/// A frame to enqueue, and everything that it uses.
pub struct FrameToEnqueue<'a> {
    pub frames: &'a ValidFrames,
    pub job: &'a Job,
    pub soft: Option<&'a Softness>,
    pub route: Route,
    /// The program for this frame's addresses.
    pub program: &'a Program,
    pub schedule: &'a Schedule,
    pub slot: &'a mut FrameSlot,
    /// The timer, if the frame is timed.
    pub timer: Option<&'a Timer>,
    pub streams: Streams<'a>,
    /// The prebuilt kernels, which copy weights and rectangles of covers.
    pub kernels: &'a PrebuiltKernels,
}

/// The largest number of rectangles of a cover's piece that the driver copies. A kernel moves more of them in one launch, because
/// enqueuing a copy takes 2.3 to 4 µs.
const MAX_COPIES: usize = 4;
/// A kernel downloads a cover of up to this many bytes faster than copies by the driver.
const KERNEL_BYTES: usize = 1 << 20;

impl FrameToEnqueue<'_> {
    /// Enqueues all pieces. Meanwhile, worker threads stage pageable memory, and then copy the planes that a cover does not write
    /// wholly. The context is current. Even after an error, nobody else uses the slot until the work on `streams` is done.
    pub fn enqueue(self, threads: &Threads) -> Result<(), CudaError> {
        let Streams { upload, compute, .. } = self.streams;
        for stream in streams_of(self.frames, compute.device()).iter().flatten() {
            // The work that is enqueued on these streams writes the source and reads the destination.
            compute.wait_for(stream, &self.slot.order)?;
        }
        if let Some(timer) = self.timer {
            upload.record(&timer.begin)?;
        }
        if let Some(soft) = self.soft {
            let FrameSlot { nodes, workspace, .. } = &mut *self.slot;
            // SAFETY: the context is current. The program has memory for the nodes at the beginning of the workspace. The
            // workspace and `nodes` belong to the slot, which only this frame uses.
            unsafe { weights::upload(nodes, self.kernels, soft, workspace.address(), compute) }?;
        }
        self.enqueue_pieces(threads)?;
        if self.route.is_cover {
            // The device works during this copy.
            self.frames.copy_planes(&self.job.copied_planes(), threads);
        }
        Ok(())
    }

    fn enqueue_pieces(&self, threads: &Threads) -> Result<(), CudaError> {
        let process_and_download = |piece: usize| -> Result<(), CudaError> {
            self.process(piece)?;
            self.download(piece)
        };
        let pieces = &self.schedule.pieces;
        if let (FrameMemory::Host(from), TransferPath::Staged) = (self.frames.source(), self.route.paths[0]) {
            let copy = ThreadedCopy::new(pieces.iter().map(|piece| &piece.upload[..]));
            let planes = SharedPlanes::new(from, &self.slot.source.staging_planes());
            // SAFETY: `ValidFrames` proves that the source holds the rectangle, and the staging buffer has the same layouts. Each
            // byte is staged once, and no earlier frame uses the slot.
            let stage = |rect: &ByteRect| unsafe { planes.copy(rect) };
            copy.copy_in(threads, stage, |piece| {
                self.upload(piece)?;
                process_and_download(piece)
            })?;
        } else {
            // Enqueuing a piece takes half as long as uploading it. Two uploads ahead keep the bus busy; more would only delay
            // the first download.
            const AHEAD: usize = 2;
            self.upload(0)?;
            for piece in 1..pieces.len() + AHEAD {
                if piece < pieces.len() {
                    self.upload(piece)?;
                }
                if piece >= AHEAD {
                    process_and_download(piece - AHEAD)?;
                }
            }
        }
        Ok(())
    }

    /// Records the end of a stage of a piece. The timed events are recorded first, so they are done when the slot's event is
    /// done.
    fn record(&self, stream: &Stream, piece: usize, end: fn(&PieceEvents) -> &Event) -> Result<(), CudaError> {
        let timed = self.timer.iter().flat_map(|timer| timer.of_piece(piece, self.schedule.pieces.len()));
        timed.chain([&self.slot.events[piece]]).try_for_each(|events| stream.record(end(events)))
    }

    /// Enqueues the upload of a piece. On the staged path, the piece is already in the staging buffer.
    fn upload(&self, piece: usize) -> Result<(), CudaError> {
        let (stream, rects) = (self.streams.upload, &self.schedule.pieces[piece].upload[..]);
        let (buffers, to) = (&self.slot.source, &self.slot.planes.sources);
        // SAFETY: the source or the staging buffer holds the rectangles, and so does the slot's device memory. The maker of
        // `ValidFrames` has promised that the source lives until the copy is complete. The slot does too, because it is leaked if
        // a wait for the device fails.
        unsafe {
            match (self.route.paths[0], self.frames.source()) {
                (TransferPath::Direct, FrameMemory::Host(from)) => copy_rects(stream, rects.iter().copied(), from, to)?,
                (TransferPath::Staged, _) if self.route.is_cover && rects.len() > MAX_COPIES => {
                    let launches = copies(rects, &on_device(&buffers.staging_planes()), to);
                    self.kernels.enqueue(stream, &launches)?;
                }
                (TransferPath::Staged, _) => {
                    let rects = rects.iter().map(|rect| buffers.between_blocks(rect));
                    copy_rects(stream, rects, &buffers.staging_planes(), to)?;
                }
                _ => (),
            }
        }
        self.record(stream, piece, |events| &events.uploaded)
    }

    /// Enqueues the kernels of a piece.
    fn process(&self, piece: usize) -> Result<(), CudaError> {
        let stream = self.streams.compute;
        let sections = self.schedule.pieces[piece].sections.clone();
        if sections.is_empty() {
            return Ok(());
        }
        if self.route.by_events {
            stream.wait(&self.slot.events[piece].uploaded)?;
        }
        for section in sections {
            // SAFETY: the program was made for the planes of the frame and of the slot, and for the slot's workspace, which is
            // large enough. The maker of `ValidFrames` has promised that the frame lives until the kernels have ended. The slot
            // does too, because it is leaked if a wait fails.
            unsafe { self.program.enqueue(stream, section) }?;
        }
        self.record(stream, piece, |events| &events.processed)
    }

    /// Enqueues the download of a piece.
    fn download(&self, piece: usize) -> Result<(), CudaError> {
        let (stream, rects) = (self.streams.download, &self.schedule.pieces[piece].download[..]);
        let (is_cover, is_last) = (self.route.is_cover, piece + 1 == self.schedule.pieces.len());
        if is_cover && !is_last {
            return Ok(());
        }
        if self.route.by_events {
            stream.wait(&self.slot.events[piece].processed)?;
        }
        let (buffers, from) = (self.slot.downloads(is_cover), &self.slot.planes.destinations);
        let is_small = || rects.len() > MAX_COPIES || rects.iter().map(ByteRect::size).sum::<usize>() <= KERNEL_BYTES;
        // SAFETY: the slot's device memory holds the rectangles, and so does the destination or the staging buffer. The maker of
        // `ValidFrames` has promised that the destination lives until the copy is complete. The slot does too, because it is
        // leaked if a wait fails.
        unsafe {
            match (self.route.paths[1], self.frames.destination()) {
                (TransferPath::Direct, FrameMemory::Host(to)) => copy_rects(stream, rects.iter().copied(), from, to)?,
                (TransferPath::Staged, _) if is_cover && is_small() => {
                    let launches = copies(rects, from, &on_device(&buffers.staging_planes()));
                    self.kernels.enqueue(stream, &launches)?;
                }
                (TransferPath::Staged, _) => {
                    let rects = rects.iter().map(|rect| buffers.between_blocks(rect));
                    copy_rects(stream, rects, from, &buffers.staging_planes())?;
                }
                _ => (),
            }
        }
        // The bands of a staged frame are waited for one by one. For other frames only the last piece is.
        if self.route.paths[1] == TransferPath::Staged || is_last {
            self.record(stream, piece, |events| &events.downloaded)?;
        }
        Ok(())
    }
}

/// Enqueues copies of rectangles by the driver.
///
/// # Safety
/// The same as for [`Stream::copy`], for all rectangles in their planes.
unsafe fn copy_rects<A: CopyAddress, B: CopyAddress>(
    stream: &Stream,
    rects: impl Iterator<Item = ByteRect>,
    from: &[PlaneMemory<A>],
    to: &[PlaneMemory<B>],
) -> Result<(), CudaError> {
    for rect in rects {
        let (from, to) = (rect.within(&from[rect.plane]), rect.within(&to[rect.plane]));
        // SAFETY: the caller promises that both planes hold the rectangle and live until the copy is complete, that host memory
        // is pinned, and that nobody else accesses the bytes.
        unsafe { stream.copy(&from, &to, rect.bytes, rect.rows) }?;
    }
    Ok(())
}

/// The launches that copy rectangles between planes in device memory and a staging buffer.
fn copies(rects: &[ByteRect], from: &[DevicePlane], to: &[DevicePlane]) -> Vec<Launch> {
    let copy = |rect: &ByteRect| ByteWrite::copy(*rect, 0, &from[rect.plane], &to[rect.plane]);
    bytes::launches(rects.iter().map(copy).collect())
}

/// The planes of a staging buffer for the device, which accesses them at the same addresses as the host (unified addressing).
fn on_device(staging: &[HostPlaneMut]) -> Vec<DevicePlane> {
    let plane =
        |plane: &HostPlaneMut| DevicePlane { address: plane.address as u64, pitch: plane.pitch, len: plane.len };
    staging.iter().map(plane).collect()
}
