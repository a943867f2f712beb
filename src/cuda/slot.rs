// SPDX-License-Identifier: MPL-2.0
//! A transfer slot: the memory that one frame goes through. Pinned host memory to and from which the device copies by
//! itself, device memory for both frames, and what the kernels need besides.
//!
//! Made once for frames of a shape and used again for every one of them. All planes of a frame lie in one block, so that
//! a frame is one copy each way; rows are as far apart on the host as on the device.

use super::driver::{DeviceMemory, PinnedMemory, Stream};
use super::error::CudaError;
use crate::frame::{Frame, FrameMut, PlaneLayout};

/// Rows start on this many bytes: enough for the kernels' widest loads and a cache line of the host, and so little that
/// common widths need no padding on the bus.
const ROW_ALIGNMENT: usize = 64;
/// Planes start on this many bytes.
const PLANE_ALIGNMENT: usize = 256;

/// Where a plane lies in the blocks: offset and row pitch, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    offset: usize,
    pitch: usize,
}

/// The memory of one frame on its way.
#[derive(Debug)]
pub struct Slot {
    layouts: Vec<PlaneLayout>,
    places: Vec<Place>,
    bytes: usize,
    pinned: [PinnedMemory; 2],
    device: [DeviceMemory; 2],
    extra: Option<DeviceMemory>,
}

/// Places for these planes, and the bytes they take together.
fn places(layouts: &[PlaneLayout]) -> (Vec<Place>, usize) {
    let mut bytes = 0;
    let place = |layout: &PlaneLayout| {
        let place = Place { offset: bytes, pitch: layout.row_bytes().next_multiple_of(ROW_ALIGNMENT) };
        bytes += (place.pitch * layout.height as usize).next_multiple_of(PLANE_ALIGNMENT);
        place
    };
    (layouts.iter().map(place).collect(), bytes)
}

impl Slot {
    /// For frames of these planes, used by this stream alone, whose context is current.
    pub fn new(layouts: Vec<PlaneLayout>, stream: &Stream) -> Result<Self, CudaError> {
        let (places, bytes) = places(&layouts);
        let device = [DeviceMemory::new(bytes, stream)?, DeviceMemory::new(bytes, stream)?];
        let pinned = [PinnedMemory::new(bytes, stream)?, PinnedMemory::new(bytes, stream)?];
        Ok(Self { layouts, places, bytes, pinned, device, extra: None })
    }

    /// Whether it is for frames like this one.
    pub fn is_for(&self, frame: &Frame) -> bool {
        self.layouts.len() == frame.len()
            && self.layouts.iter().zip(frame).all(|(layout, plane)| *layout == plane.layout)
    }

    /// The address and pitch of each plane of the source and of the destination.
    pub fn planes(&self) -> impl Iterator<Item = ((u64, usize), (u64, usize))> {
        let [src, dst] = &self.device;
        self.places.iter().map(|place| {
            let at = |memory: &DeviceMemory| (memory.address() + place.offset as u64, place.pitch);
            (at(src), at(dst))
        })
    }

    /// Bytes that go each way.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where a frame goes through on its way to the device.
    pub fn way_in(&self) -> (&PinnedMemory, &DeviceMemory) {
        (&self.pinned[0], &self.device[0])
    }

    /// Where a frame goes through on its way back.
    pub fn way_out(&self) -> (&DeviceMemory, &PinnedMemory) {
        (&self.device[1], &self.pinned[1])
    }

    /// Makes room for what the planes need besides; keeps what is there if it is enough. Nothing may be using it.
    pub fn reserve_extra(&mut self, bytes: usize, stream: &Stream) -> Result<u64, CudaError> {
        if bytes > self.extra.as_ref().map_or(0, DeviceMemory::bytes) {
            self.extra = None;
            self.extra = Some(DeviceMemory::new(bytes, stream)?);
        }
        Ok(self.extra.as_ref().map_or(0, DeviceMemory::address))
    }

    /// Copies a frame into the pinned memory. Nothing may be reading it.
    pub fn put(&mut self, frame: &Frame) {
        debug_assert!(self.is_for(frame));
        for (plane, place) in frame.iter().zip(&self.places) {
            let rows = plane.layout.height as usize;
            // SAFETY: the frame is valid, this place is inside the block, and the two are apart.
            unsafe {
                let to = self.pinned[0].address().add(place.offset);
                copy_rows((plane.data.as_ptr(), plane.pitch), (to, place.pitch), plane.layout.row_bytes(), rows);
            }
        }
    }

    /// Copies the blurred frame out of the pinned memory. Nothing may be writing it.
    pub fn take(&self, frame: &mut FrameMut) {
        for (plane, place) in frame.iter_mut().zip(&self.places) {
            let rows = plane.layout.height as usize;
            // SAFETY: as above.
            unsafe {
                let from = self.pinned[1].address().add(place.offset);
                let to = (plane.data.as_mut_ptr(), plane.pitch);
                copy_rows((from, place.pitch), to, plane.layout.row_bytes(), rows);
            }
        }
    }
}

/// Copies rows, and nothing of what is between them.
///
/// # Safety
/// `rows` rows of `row_bytes` lie behind both addresses, at their pitches; the two do not overlap.
unsafe fn copy_rows(from: (*const u8, usize), to: (*mut u8, usize), row_bytes: usize, rows: usize) {
    let dense = from.1 == row_bytes && to.1 == row_bytes;
    let (row_bytes, rows) = if dense { (row_bytes * rows, 1) } else { (row_bytes, rows) };
    for row in 0..rows {
        // SAFETY: as above.
        unsafe { from.0.add(row * from.1).copy_to_nonoverlapping(to.0.add(row * to.1), row_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_lie_one_after_the_other_with_aligned_rows() {
        let planes = [(1920, 1080, 1, 8), (3, 5, 2, 8), (33, 2, 1, 16)];
        let (places, bytes) =
            places(&planes.map(|(width, height, channels, depth)| PlaneLayout::new(width, height, channels, depth)));
        assert_eq!(places[0], Place { offset: 0, pitch: 1920 });
        assert_eq!(places[1], Place { offset: 1920 * 1080, pitch: 64 });
        assert_eq!(places[2], Place { offset: 1920 * 1080 + 512, pitch: 128 });
        assert_eq!(bytes, 1920 * 1080 + 512 + 256);
    }
}
