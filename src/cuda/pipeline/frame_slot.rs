// SPDX-License-Identifier: MPL-2.0
//! Frame slots. A slot has the memory and the events that one in-flight frame uses alone. Slots are reused for frames of the same
//! layouts, so nothing is allocated per frame.

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
    /// The layouts without the split, because fields use the memory of the whole plane.
    layouts: Vec<PlaneLayout>,
    pub source: FrameBuffers,
    pub destination: FrameBuffers,
    /// The planes that the kernels read and write. If the source or the destination is resident, these are the planes of the
    /// frame.
    pub planes: DevicePlanes,
    pub workspace: Workspace<DeviceMemory>,
    /// The nodes of the frame's weights.
    pub nodes: Workspace<PinnedMemory>,
    /// Makes the frame wait for the streams of a resident source or destination.
    pub order: Event,
    /// The events of all pieces. They are not timed, because timed events would make a frame take longer.
    pub events: Vec<PieceEvents>,
}

fn unsplit(layout: &PlaneLayout) -> PlaneLayout {
    PlaneLayout { split: Split::Whole, ..*layout }
}

/// Slots that no frame uses.
#[derive(Default)]
pub struct IdleSlots(Vec<FrameSlot>);

impl IdleSlots {
    /// Returns a slot with everything that a frame on this route needs, for this many pieces.
    pub fn take(
        &mut self,
        frames: &ValidFrames,
        route: &Route,
        pieces: usize,
        stream: &Stream,
    ) -> Result<FrameSlot, CudaError> {
        // Slots for other layouts are freed first, so that the memory of both is never allocated at the same time.
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
    /// A slot for frames of these planes. No memory is allocated yet.
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

    /// Allocates what the route needs and the slot lacks. A cover is written to the device memory of the source.
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
        // `stream` clears the memory, and other streams use it.
        if is_new { stream.synchronize() } else { Ok(()) }
    }

    /// The buffers that a frame is downloaded from.
    pub fn downloads(&self, is_cover: bool) -> &FrameBuffers {
        if is_cover { &self.source } else { &self.destination }
    }
}
