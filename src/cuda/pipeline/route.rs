// SPDX-License-Identifier: MPL-2.0
//! The route of a frame through the pipeline. It is decided once, when the frame is submitted.

use std::sync::Arc;

use super::prepared::{PreparedJob, PreparedJobs};
use crate::cuda::driver::{self, CopyAddress};
use crate::cuda::transfer::schedule::{Division, Schedule};
use crate::filter::byte_rect::ByteRect;
use crate::filter::frame::{FrameMemory, ValidFrames};
use crate::filter::parts::Job;
use crate::filter::plane::PlaneMemory;

/// How the source gets to the device, or the destination from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferPath {
    /// The device accesses the frame's memory, which is pinned.
    Direct,
    /// Threads copy the frame through the slot's staging buffer.
    Staged,
    /// The frame is in device memory.
    Resident,
}

impl TransferPath {
    /// The path of a frame. A context is current.
    fn of<A: CopyAddress>(frame: &FrameMemory<A>) -> Self {
        let is_pinned = |plane: &PlaneMemory<A>| driver::is_pinned(plane.address.host(), plane.len);
        match frame {
            FrameMemory::Device { .. } => Self::Resident,
            FrameMemory::Host(planes) if planes.iter().all(is_pinned) => Self::Direct,
            FrameMemory::Host(_) => Self::Staged,
        }
    }
}

/// The route of a frame with an upload or a download.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The path of the source to the device, and the path of the destination from it.
    pub paths: [TransferPath; 2],
    /// Whether parts of the frame are covered.
    pub is_cover: bool,
    /// Whether the upload, the kernels and the download have separate streams, with events between them.
    pub by_events: bool,
    /// Whether no other frame is in flight.
    pub is_alone: bool,
}

impl Route {
    /// Returns the route of a frame, and its prepared job. `ahead` is the number of other in-flight frames. `bands` is the
    /// requested number of bands, which is used if at most one frame is ahead. A context is current.
    pub fn new<'j>(
        frames: &ValidFrames,
        job: &Arc<Job>,
        bands: Option<usize>,
        ahead: usize,
        jobs: &'j mut PreparedJobs,
    ) -> (Self, &'j mut PreparedJob) {
        let mut paths = [TransferPath::of(frames.source()), TransferPath::of(frames.destination())];
        let is_cover = job.accesses.is_some();
        let division = match (is_cover, paths) {
            // The pieces of a staged upload overlap with staging the next ones. Each costs the bus 2.5 µs.
            (true, [TransferPath::Staged, _]) => Division::Fastest,
            (true, _) => Division::Into(1),
            // Bands shorten the time of a single frame. Several in-flight frames overlap with each other without bands, and with
            // fewer calls. A frame that is resident on one side has little to overlap.
            _ if ahead > 1 || paths.contains(&TransferPath::Resident) => Division::Into(1),
            _ => bands.map_or(Division::Fastest, Division::Into),
        };
        let prepared = jobs.get(job, division);
        if is_cover {
            // A cover is downloaded into a staging buffer, so the frame is not written before everything has succeeded.
            paths[1] = TransferPath::Staged;
            if prepared.schedule.is_scattered {
                paths[0] = TransferPath::Staged;
            }
        }
        // A single band of a single frame cannot overlap with anything, and waiting for an event of another stream takes time.
        let by_events = ahead > 0 || !is_cover && prepared.schedule.pieces.len() > 1;
        (Self { paths, is_cover, by_events, is_alone: ahead == 0 }, prepared)
    }

    /// Whether the device accesses the memory of the frame itself.
    pub fn uses_frame_memory(&self) -> bool {
        self.paths != [TransferPath::Staged; 2]
    }

    /// The number of bytes that the CPU copies to and from staging buffers.
    pub fn staged_bytes(&self, schedule: &Schedule) -> usize {
        let bytes = |rects: &[ByteRect]| rects.iter().map(ByteRect::size).sum::<usize>();
        let is_staged = self.paths.map(|path| path == TransferPath::Staged);
        let uploaded = if is_staged[0] { schedule.uploads().map(ByteRect::size).sum() } else { 0 };
        let downloaded = match is_staged[1] {
            true if self.is_cover => bytes(&schedule.writes),
            true => schedule.pieces.iter().map(|piece| bytes(&piece.download)).sum(),
            false => 0,
        };
        uploaded + downloaded
    }
}
