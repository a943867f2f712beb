// SPDX-License-Identifier: MPL-2.0
//! A frame slot: the memory and the events that one frame in flight has for itself. It is reused for frames of the same layouts,
//! so nothing is allocated per frame.

use super::TransferPath;
use crate::cuda::driver::{Event, PinnedWorkspace, Stream, Workspace};
use crate::cuda::error::CudaError;
use crate::cuda::transfer::FrameBuffers;
use crate::filter::frame::{PlaneLayout, Split};

/// The ends of the steps of a band.
pub struct BandEvents {
    pub uploaded: Event,
    pub processed: Event,
    pub downloaded: Event,
}

/// The memory and the events of a frame.
pub struct FrameSlot {
    /// Progressive: fields use the same memory.
    layouts: Vec<PlaneLayout>,
    pub source: FrameBuffers,
    pub destination: FrameBuffers,
    pub workspace: Workspace,
    /// The nodes of its weights.
    pub nodes: PinnedWorkspace,
    /// Orders the frame behind the streams of a resident source or destination; without a time.
    pub order: Event,
    /// Before the first step of a frame that is timed.
    pub begin: Event,
    /// Of the first and the last band of a frame that is timed.
    timed: [BandEvents; 2],
    /// Of all bands; without times, with which a frame takes longer.
    untimed: Vec<BandEvents>,
    /// Whether the frame is timed: whether `begin`, and the events of the first and the last band, have times.
    pub is_timed: bool,
}

impl BandEvents {
    fn new(event: impl Fn() -> Result<Event, CudaError>) -> Result<Self, CudaError> {
        Ok(Self { uploaded: event()?, processed: event()?, downloaded: event()? })
    }
}

fn progressive(layout: &PlaneLayout) -> PlaneLayout {
    PlaneLayout { split: Split::Whole, ..*layout }
}

impl FrameSlot {
    /// For frames of these planes, on the device whose context is current. No memory is allocated yet.
    pub fn new(layouts: &[PlaneLayout], device: u32) -> Result<Self, CudaError> {
        let layouts: Vec<PlaneLayout> = layouts.iter().map(progressive).collect();
        Ok(Self {
            source: FrameBuffers::new(&layouts),
            destination: FrameBuffers::new(&layouts),
            layouts,
            workspace: Workspace::default(),
            nodes: PinnedWorkspace::default(),
            order: Event::new(device)?,
            begin: Event::timed(device)?,
            timed: [BandEvents::new(|| Event::timed(device))?, BandEvents::new(|| Event::timed(device))?],
            untimed: Vec::new(),
            is_timed: false,
        })
    }

    /// Whether it is for frames of these planes.
    pub fn is_for(&self, layouts: &[PlaneLayout]) -> bool {
        self.layouts.iter().copied().eq(layouts.iter().map(progressive))
    }

    /// Allocates what frames with these transfer paths need and is not there yet. A cover is made in the memory of the source.
    pub fn reserve(&mut self, paths: [TransferPath; 2], is_cover: bool, stream: &Stream) -> Result<(), CudaError> {
        let mut is_new = false;
        for (side, path) in paths.into_iter().enumerate() {
            let buffers = if side == 0 || is_cover { &mut self.source } else { &mut self.destination };
            if path != TransferPath::Resident {
                is_new |= buffers.reserve(path == TransferPath::Staged, stream)?;
            }
        }
        // The stream clears the memory, and other streams use it.
        if is_new { stream.synchronize() } else { Ok(()) }
    }

    /// Where a frame is downloaded from.
    pub fn downloads(&self, is_cover: bool) -> &FrameBuffers {
        if is_cover { &self.source } else { &self.destination }
    }

    /// Creates events for at least `count` bands of a frame.
    pub fn reserve_events(&mut self, count: usize, device: u32) -> Result<(), CudaError> {
        while self.untimed.len() < count {
            self.untimed.push(BandEvents::new(|| Event::new(device))?);
        }
        Ok(())
    }

    /// The events of a band of `count`, for which there are events.
    pub fn events(&self, band: usize, count: usize) -> &BandEvents {
        match band {
            0 if self.is_timed => &self.timed[0],
            band if self.is_timed && band + 1 == count => &self.timed[1],
            band => &self.untimed[band],
        }
    }
}
