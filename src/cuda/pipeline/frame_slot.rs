// SPDX-License-Identifier: MPL-2.0
//! A frame slot: the memory and the events that one frame in flight has for itself. It is reused for frames of the same layouts,
//! so nothing is allocated per frame.

use std::sync::Arc;

use super::route::{Route, TransferPath};
use super::timer::PieceEvents;
use crate::cuda::driver::device::Device;
use crate::cuda::driver::{DeviceMemory, Event, PinnedMemory, Stream, Workspace};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::lower::DevicePlanes;
use crate::cuda::transfer::FrameBuffers;
use crate::filter::frame::{PlaneLayout, Split, ValidFrames};
use crate::filter::plane::DevicePlane;

/// The memory and the events of a frame.
pub struct FrameSlot {
    /// Unsplit: fields use the same memory.
    layouts: Vec<PlaneLayout>,
    pub source: FrameBuffers,
    pub destination: FrameBuffers,
    /// The planes that the kernels read and write, of which those of resident frames are their own.
    pub planes: DevicePlanes,
    pub workspace: Workspace<DeviceMemory>,
    /// The nodes of its weights.
    pub nodes: Workspace<PinnedMemory>,
    /// Orders the frame behind the streams of a resident source or destination.
    pub order: Event,
    /// Of all pieces; without times, with which a frame takes longer.
    pub events: Vec<PieceEvents>,
}

fn unsplit(layout: &PlaneLayout) -> PlaneLayout {
    PlaneLayout { split: Split::Whole, ..*layout }
}

/// Slots of no frame.
#[derive(Default)]
pub struct IdleSlots(Vec<FrameSlot>);

impl IdleSlots {
    /// A slot with everything that a frame on this route, in so many pieces, needs.
    pub fn take(
        &mut self,
        frames: &ValidFrames,
        route: &Route,
        pieces: usize,
        stream: &Stream,
    ) -> Result<FrameSlot, CudaError> {
        // Slots for other frames are freed first, so that the memory of both is never allocated together.
        self.0.retain(|slot| slot.layouts.iter().copied().eq(frames.layouts().iter().map(unsplit)));
        let mut slot = self.0.pop().map_or_else(|| FrameSlot::new(frames.layouts(), stream.device()), Ok)?;
        slot.reserve(route, pieces, stream)?;
        let of = |planes: Option<&[DevicePlane]>, buffers: &FrameBuffers| {
            planes.map_or_else(|| buffers.device_planes(), <[DevicePlane]>::to_vec)
        };
        slot.planes = DevicePlanes {
            sources: of(frames.source().device_planes(), &slot.source),
            destinations: of(frames.destination().device_planes(), slot.downloads(route.is_cover)),
        };
        Ok(slot)
    }

    /// Takes back the slot of a frame that is done.
    pub fn put_back(&mut self, slot: Option<FrameSlot>) {
        self.0.extend(slot);
    }
}

impl FrameSlot {
    /// For frames of these planes. No memory is allocated yet.
    fn new(layouts: &[PlaneLayout], device: &Arc<Device>) -> Result<Self, CudaError> {
        let layouts: Vec<PlaneLayout> = layouts.iter().map(unsplit).collect();
        Ok(Self {
            source: FrameBuffers::new(&layouts),
            destination: FrameBuffers::new(&layouts),
            layouts,
            planes: DevicePlanes::default(),
            workspace: Workspace::default(),
            nodes: Workspace::default(),
            order: Event::new(device)?,
            events: Vec::new(),
        })
    }

    /// Allocates what is needed and not there yet. A cover is made in the memory of the source.
    fn reserve(&mut self, route: &Route, pieces: usize, stream: &Stream) -> Result<(), CudaError> {
        let mut is_new = false;
        for (side, path) in route.paths.into_iter().enumerate() {
            let buffers = if side == 0 || route.is_cover { &mut self.source } else { &mut self.destination };
            if path != TransferPath::Resident {
                is_new |= buffers.reserve(path == TransferPath::Staged, stream)?;
            }
        }
        while self.events.len() < pieces {
            self.events.push(PieceEvents::new(|| Event::new(stream.device()))?);
        }
        // The stream clears the memory, and other streams use it.
        if is_new { stream.synchronize() } else { Ok(()) }
    }

    /// Where a frame is downloaded from.
    pub fn downloads(&self, is_cover: bool) -> &FrameBuffers {
        if is_cover { &self.source } else { &self.destination }
    }
}
