// SPDX-License-Identifier: MPL-2.0
//! How a frame passes through the pipeline, decided once.

use std::sync::Arc;

use super::prepared::{PreparedJob, PreparedJobs};
use crate::cuda::driver::{self, CopyAddress};
use crate::cuda::transfer::schedule::{Division, Schedule};
use crate::filter::byte_rect::ByteRect;
use crate::filter::frame::{FrameMemory, ValidFrames};
use crate::filter::parts::Job;
use crate::filter::plane::PlaneMemory;

/// How one of the two frames gets to the device, or from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferPath {
    /// The device accesses the frame's pinned memory.
    Direct,
    /// Through the slot's staging buffer.
    Staged,
    /// The frame is in device memory.
    Resident,
}

impl TransferPath {
    /// Of a frame. A context is current.
    fn of<A: CopyAddress>(frame: &FrameMemory<A>) -> Self {
        let is_pinned = |plane: &PlaneMemory<A>| driver::is_pinned(plane.address.host(), plane.len);
        match frame {
            FrameMemory::Device { .. } => Self::Resident,
            FrameMemory::Host(planes) if planes.iter().all(is_pinned) => Self::Direct,
            FrameMemory::Host(_) => Self::Staged,
        }
    }
}

/// How a frame with an upload or a download passes through the pipeline.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// To the device, and from it.
    pub paths: [TransferPath; 2],
    /// Whether parts of the frame are covered.
    pub is_cover: bool,
    /// Whether the upload, the kernels and the download have separate streams, with events between them.
    pub by_events: bool,
    /// Whether no other frame is in flight.
    pub is_alone: bool,
}

impl Route {
    /// The route of a frame behind `ahead` others, which is divided into so many `bands` unless it is behind two, and its job,
    /// prepared for that. A context is current.
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
            // Pieces of an upload overlap with staging the next ones, and cost the bus 2.5 µs each.
            (true, [TransferPath::Staged, _]) => Division::Fastest,
            (true, _) => Division::Into(1),
            // Bands shorten the time of a single frame. Frames behind each other overlap without them, with fewer calls, and a frame
            // that is resident on one side has little to overlap.
            _ if ahead > 1 || paths.contains(&TransferPath::Resident) => Division::Into(1),
            _ => bands.map_or(Division::Fastest, Division::Into),
        };
        let prepared = jobs.get(job, division);
        if is_cover {
            // Nothing of the frame is written before everything has succeeded.
            paths[1] = TransferPath::Staged;
            if prepared.schedule.is_scattered {
                paths[0] = TransferPath::Staged;
            }
        }
        // One band of a single frame has nothing to overlap with, and waiting for another stream's event takes time.
        let by_events = ahead > 0 || !is_cover && prepared.schedule.pieces.len() > 1;
        (Self { paths, is_cover, by_events, is_alone: ahead == 0 }, prepared)
    }

    /// Whether the device accesses the memory of the frames themselves.
    pub fn uses_frame_memory(&self) -> bool {
        self.paths != [TransferPath::Staged; 2]
    }

    /// Bytes that the CPU copies to and from staging buffers.
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
