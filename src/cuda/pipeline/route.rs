// SPDX-License-Identifier: MPL-2.0
//! How a frame passes through the pipeline, decided once.

use crate::cuda::driver::{self, CopyAddress};
use crate::cuda::transfer::schedule::{Division, Schedule};
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

/// How a frame passes through the pipeline.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// To the device, and from it.
    pub paths: [TransferPath; 2],
    /// Whether parts of the frame are covered.
    pub is_cover: bool,
    /// Into what it is divided.
    pub division: Division,
    /// Whether the upload, the kernels and the download have streams of their own, with events between them.
    pub by_events: bool,
    /// Whether no other frame is in flight.
    pub is_alone: bool,
}

impl Route {
    /// Of a frame behind `ahead` others, which is divided into so many `bands` unless it is behind two. A context is current.
    pub fn new(frames: &ValidFrames, job: &Job, bands: Option<usize>, ahead: usize) -> Self {
        let mut paths = [TransferPath::of(frames.source()), TransferPath::of(frames.destination())];
        let is_cover = job.accesses.is_some();
        let division = match (is_cover, paths) {
            (_, [TransferPath::Resident, TransferPath::Resident]) => Division::Resident,
            // Pieces of an upload overlap with staging the next ones, and cost the bus 2.5 µs each.
            (true, [TransferPath::Staged, _]) => Division::Fastest,
            (true, _) => Division::Into(1),
            // Bands shorten the time of a single frame. Frames behind each other overlap without them, with fewer calls, and a frame
            // that is resident on one side has little to overlap.
            _ if ahead > 1 || paths.contains(&TransferPath::Resident) => Division::Into(1),
            _ => bands.map_or(Division::Fastest, Division::Into),
        };
        if is_cover && division != Division::Resident {
            // Nothing of the frame is written before everything has succeeded.
            paths[1] = TransferPath::Staged;
        }
        Self { paths, is_cover, division, by_events: ahead > 0, is_alone: ahead == 0 }
    }

    /// Adapts it to what is uploaded and when.
    pub fn adapt(&mut self, schedule: &Schedule) {
        if schedule.is_scattered && self.paths[0] == TransferPath::Direct {
            self.paths[0] = TransferPath::Staged;
        }
        // One band of a single frame has nothing to overlap with, and waiting for another stream's event takes time.
        self.by_events |= schedule.pieces.len() > 1 && !self.is_cover;
    }

    /// Whether the frame stays on the device.
    pub fn is_resident(&self) -> bool {
        self.division == Division::Resident
    }

    /// Whether the device accesses the memory of the frames themselves.
    pub fn uses_frame_memory(&self) -> bool {
        self.paths != [TransferPath::Staged; 2]
    }
}
