// SPDX-License-Identifier: MPL-2.0
//! Enqueues a frame: upload, kernels, download, piece by piece. What is resident is neither uploaded nor downloaded.

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

/// The streams that a frame is enqueued on; they may be the same.
#[derive(Clone, Copy)]
pub struct Streams<'a> {
    pub upload: &'a Stream,
    pub compute: &'a Stream,
    pub download: &'a Stream,
}

impl<'a> Streams<'a> {
    /// One stream for all.
    pub fn single(stream: &'a Stream) -> Self {
        Self { upload: stream, compute: stream, download: stream }
    }

    /// Those of a frame on this route.
    pub fn of(route: &Route, compute: &'a Stream, copies: &'a CopyStreams) -> Self {
        let (upload, download) = (&copies.upload, &copies.download);
        if route.by_events { Self { upload, compute, download } } else { Self::single(compute) }
    }

    /// Waits for all of them, and returns whether that succeeded: nothing that was enqueued is running any more.
    pub fn synchronize(&self) -> bool {
        [self.upload, self.compute, self.download].map(|stream| stream.synchronize().is_ok()) == [true; 3]
    }
}

/// A frame that is enqueued, and all that it uses.
pub struct FrameToEnqueue<'a> {
    pub frames: &'a ValidFrames,
    pub job: &'a Job,
    pub soft: Option<&'a Softness>,
    pub route: Route,
    /// With this frame's addresses.
    pub program: &'a Program,
    pub schedule: &'a Schedule,
    pub slot: &'a mut FrameSlot,
    /// Of a frame that is timed.
    pub timer: Option<&'a Timer>,
    pub streams: Streams<'a>,
    /// They copy weights, and rectangles of covers.
    pub kernels: &'a PrebuiltKernels,
}

/// More rectangles in a piece of a cover are moved by a kernel, because enqueuing a copy takes 2.3 to 4 µs.
const MAX_COPIES: usize = 4;
/// A download of up to so many bytes is faster by a kernel.
const KERNEL_BYTES: usize = 1 << 20;

impl FrameToEnqueue<'_> {
    /// Enqueues all pieces. Pageable memory is staged meanwhile, and what a cover leaves as it is copied then. The context is current,
    /// and nobody else uses the slot until `streams` have done the work, also if this fails.
    pub fn enqueue(self, threads: &Threads) -> Result<(), CudaError> {
        let Streams { upload, compute, .. } = self.streams;
        for stream in streams_of(self.frames, compute.device()).iter().flatten() {
            // The source has been written, and the destination read, by what is enqueued there.
            compute.wait_for(stream, &self.slot.order)?;
        }
        if let Some(timer) = self.timer {
            upload.record(&timer.begin)?;
        }
        if let Some(soft) = self.soft {
            let FrameSlot { nodes, workspace, .. } = &mut *self.slot;
            // SAFETY: the program has memory for them at the beginning of the workspace, which is this frame's alone, as is `nodes`.
            unsafe { weights::upload(nodes, self.kernels, soft, workspace.address(), compute) }?;
        }
        self.enqueue_pieces(threads)?;
        if self.route.is_cover {
            // While the device works.
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
            // SAFETY: the frame is valid and has the slot's layouts; each byte is staged once, and no earlier frame uses the slot.
            let stage = |rect: &ByteRect| unsafe { planes.copy(rect) };
            copy.copy_in(threads, stage, |piece| {
                self.upload(piece)?;
                process_and_download(piece)
            })?;
        } else {
            // Enqueuing a piece takes half as long as uploading it: two uploads ahead keep the bus busy, and more would only
            // delay the first download.
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

    /// Records the end of a stage of a piece. The events with times come first: when the frame is done, so are they.
    fn record(&self, stream: &Stream, piece: usize, end: fn(&PieceEvents) -> &Event) -> Result<(), CudaError> {
        let timed = self.timer.iter().flat_map(|timer| timer.of_piece(piece, self.schedule.pieces.len()));
        timed.chain([&self.slot.events[piece]]).try_for_each(|events| stream.record(end(events)))
    }

    /// Enqueues the upload of a piece, which is in the staging buffer on the staged path.
    fn upload(&self, piece: usize) -> Result<(), CudaError> {
        let (stream, rects) = (self.streams.upload, &self.schedule.pieces[piece].upload[..]);
        let (buffers, to) = (&self.slot.source, &self.slot.planes.sources);
        // SAFETY: the rectangles are in the source or the staging buffer, and in the slot's device memory, which live until the
        // copy is complete: the frames by their owner's promise, the slot because it is leaked if that is not known.
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
            // SAFETY: the planes are the frame's or the slot's, and the workspace is large enough for the whole frame; all live
            // until the kernels have ended.
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
        // SAFETY: the rectangles are in the slot's device memory, and in the destination or the staging buffer, which live
        // until the copy is complete.
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
        // Bands of a staged frame are waited for one by one, of others only the end is.
        if self.route.paths[1] == TransferPath::Staged || is_last {
            self.record(stream, piece, |events| &events.downloaded)?;
        }
        Ok(())
    }
}

/// Enqueues copies of rectangles by the driver.
///
/// # Safety
/// As for [`Stream::copy`].
unsafe fn copy_rects<A: CopyAddress, B: CopyAddress>(
    stream: &Stream,
    rects: impl Iterator<Item = ByteRect>,
    from: &[PlaneMemory<A>],
    to: &[PlaneMemory<B>],
) -> Result<(), CudaError> {
    for rect in rects {
        let (from, to) = (rect.within(&from[rect.plane]), rect.within(&to[rect.plane]));
        // SAFETY: the planes hold the rectangles, as the caller promises.
        unsafe { stream.copy(&from, &to, rect.bytes, rect.rows) }?;
    }
    Ok(())
}

/// Launches that copy rectangles between planes in device memory and a staging buffer.
fn copies(rects: &[ByteRect], from: &[DevicePlane], to: &[DevicePlane]) -> Vec<Launch> {
    let copy = |rect: &ByteRect| ByteWrite::copy(*rect, 0, &from[rect.plane], &to[rect.plane]);
    bytes::launches(rects.iter().map(copy).collect())
}

/// Planes of a staging buffer as the device accesses them: at the address that the host does (unified addressing).
fn on_device(staging: &[HostPlaneMut]) -> Vec<DevicePlane> {
    let plane =
        |plane: &HostPlaneMut| DevicePlane { address: plane.address as u64, pitch: plane.pitch, len: plane.len };
    staging.iter().map(plane).collect()
}
