// SPDX-License-Identifier: MPL-2.0
//! A frame slot: the memory and the events that one frame in flight has for itself. It is reused for frames of the same layouts,
//! so nothing is allocated per frame.

use std::sync::Arc;

use super::promised_frames::PromisedFrames;
use super::route::{Route, TransferPath};
use crate::cuda::driver::device::Device;
use crate::cuda::driver::{DeviceMemory, Event, PinnedMemory, Stream, Workspace};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::lower::DevicePlanes;
use crate::cuda::transfer::FrameBuffers;
use crate::filter::frame::{PlaneLayout, Split};
use crate::filter::plane::DevicePlane;

/// The ends of the upload, the kernels and the download of a piece of a frame.
pub struct PieceEvents {
    pub uploaded: Event,
    pub processed: Event,
    pub downloaded: Event,
}

/// The memory and the events of a frame.
pub struct FrameSlot {
    /// Unsplit: fields use the same memory.
    layouts: Vec<PlaneLayout>,
    pub source: FrameBuffers,
    pub destination: FrameBuffers,
    pub workspace: Workspace<DeviceMemory>,
    /// The nodes of its weights.
    pub nodes: Workspace<PinnedMemory>,
    /// Orders the frame behind the streams of a resident source or destination; without a time.
    pub order: Event,
    /// Before all else of a frame that is timed.
    pub begin: Event,
    /// Of the first and the last piece of a frame that is timed.
    timed: [PieceEvents; 2],
    /// Of all pieces; without times, with which a frame takes longer.
    untimed: Vec<PieceEvents>,
    /// Whether the frame is timed: whether `begin`, and the events of the first and the last piece, have times.
    pub is_timed: bool,
}

impl PieceEvents {
    fn new(event: impl Fn() -> Result<Event, CudaError>) -> Result<Self, CudaError> {
        Ok(Self { uploaded: event()?, processed: event()?, downloaded: event()? })
    }
}

fn unsplit(layout: &PlaneLayout) -> PlaneLayout {
    PlaneLayout { split: Split::Whole, ..*layout }
}

impl FrameSlot {
    /// For frames of these planes. No memory is allocated yet.
    pub fn new(layouts: &[PlaneLayout], device: &Arc<Device>) -> Result<Self, CudaError> {
        let layouts: Vec<PlaneLayout> = layouts.iter().map(unsplit).collect();
        Ok(Self {
            source: FrameBuffers::new(&layouts),
            destination: FrameBuffers::new(&layouts),
            layouts,
            workspace: Workspace::default(),
            nodes: Workspace::default(),
            order: Event::new(device)?,
            begin: Event::timed(device)?,
            timed: [PieceEvents::new(|| Event::timed(device))?, PieceEvents::new(|| Event::timed(device))?],
            untimed: Vec::new(),
            is_timed: false,
        })
    }

    /// Whether it is for frames of these planes.
    pub fn is_for(&self, layouts: &[PlaneLayout]) -> bool {
        self.layouts.iter().copied().eq(layouts.iter().map(unsplit))
    }

    /// Allocates what a frame on this route, in so many pieces, needs and is not there yet. A cover is made in the memory of the source.
    pub fn reserve(&mut self, route: &Route, pieces: usize, stream: &Stream) -> Result<(), CudaError> {
        let mut is_new = false;
        for (side, path) in route.paths.into_iter().enumerate() {
            let buffers = if side == 0 || route.is_cover { &mut self.source } else { &mut self.destination };
            if path != TransferPath::Resident {
                is_new |= buffers.reserve(path == TransferPath::Staged, stream)?;
            }
        }
        while self.untimed.len() < pieces {
            self.untimed.push(PieceEvents::new(|| Event::new(stream.device()))?);
        }
        // The stream clears the memory, and other streams use it.
        if is_new { stream.synchronize() } else { Ok(()) }
    }

    /// The planes that the kernels read and write, of which those of resident frames are their own.
    pub fn planes(&self, frames: &PromisedFrames, is_cover: bool) -> DevicePlanes {
        let of = |planes: Option<&[DevicePlane]>, buffers: &FrameBuffers| {
            planes.map_or_else(|| buffers.device_planes(), <[DevicePlane]>::to_vec)
        };
        DevicePlanes {
            sources: of(frames.source().device_planes(), &self.source),
            destinations: of(frames.destination().device_planes(), self.downloads(is_cover)),
        }
    }

    /// Where a frame is downloaded from.
    pub fn downloads(&self, is_cover: bool) -> &FrameBuffers {
        if is_cover { &self.source } else { &self.destination }
    }

    /// The events of a piece of `count`, for which there are events.
    pub fn events(&self, piece: usize, count: usize) -> &PieceEvents {
        match piece {
            0 if self.is_timed => &self.timed[0],
            piece if self.is_timed && piece + 1 == count => &self.timed[1],
            piece => &self.untimed[piece],
        }
    }
}
