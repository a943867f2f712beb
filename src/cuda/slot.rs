// SPDX-License-Identifier: MPL-2.0
//! A transfer slot: the memory that one frame goes through. Pinned host memory to and from which the device copies by
//! itself, device memory for both frames, and what the kernels need besides.
//!
//! Made once for frames of a shape and used again for every one of them. All planes of a frame lie in one block, so that
//! a frame is one copy each way; rows are as far apart on the host as on the device.

use std::ops::Range;

use super::driver::{DeviceMemory, PinnedMemory, Stream};
use super::error::CudaError;
use crate::frame::PlaneLayout;

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

/// The memory of one frame on its way; of each kind what its frames have needed so far. Of pairs the first is the source's.
#[derive(Debug)]
pub struct Slot {
    layouts: Vec<PlaneLayout>,
    places: Vec<Place>,
    bytes: usize,
    pinned: [Option<PinnedMemory>; 2],
    device: [Option<DeviceMemory>; 2],
    extra: Option<DeviceMemory>,
}

/// What one side of a frame needs of a slot.
#[derive(Debug, Clone, Copy)]
pub struct Uses {
    /// Device memory, where the frame is not on the device itself.
    pub device: bool,
    /// Pinned memory, where the frame is in ordinary memory.
    pub pinned: bool,
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
    /// For frames of these planes.
    pub fn new(mut layouts: Vec<PlaneLayout>) -> Self {
        // Whose fields are blurred apart takes the same memory.
        layouts.iter_mut().for_each(|layout| layout.interlaced = false);
        let (places, bytes) = places(&layouts);
        Self { layouts, places, bytes, pinned: [None, None], device: [None, None], extra: None }
    }

    /// Gets the memory that a frame needs, on its source's and its destination's side. The stream's context is current.
    pub fn prepare(&mut self, sides: [Uses; 2], stream: &Stream) -> Result<(), CudaError> {
        let mut new = false;
        for (side, uses) in sides.into_iter().enumerate() {
            if uses.device && self.device[side].is_none() {
                self.device[side] = Some(DeviceMemory::new(self.bytes, stream)?);
                new = true;
            }
            if uses.pinned && self.pinned[side].is_none() {
                self.pinned[side] = Some(PinnedMemory::new(self.bytes, stream.id())?);
            }
        }
        // It was cleared on this stream, and others come to use it.
        if new { stream.synchronize() } else { Ok(()) }
    }

    /// Whether it is for frames of these planes.
    pub fn is_for(&self, layouts: &[PlaneLayout]) -> bool {
        let layouts = layouts.iter().map(|layout| PlaneLayout { interlaced: false, ..*layout });
        self.layouts.iter().copied().eq(layouts)
    }

    /// The device address and pitch of each plane of the source and of the destination, where they have device memory here.
    pub fn planes(&self) -> Vec<[(u64, usize); 2]> {
        let at = |place: &Place| {
            let address = |memory: &Option<DeviceMemory>| memory.as_ref().map_or(0, DeviceMemory::address);
            self.device.each_ref().map(|memory| (address(memory) + place.offset as u64, place.pitch))
        };
        self.places.iter().map(at).collect()
    }

    fn pinned(&self, side: usize) -> &PinnedMemory {
        self.pinned[side].as_ref().expect("prepared before the frame")
    }

    fn device(&self, side: usize) -> &DeviceMemory {
        self.device[side].as_ref().expect("prepared before the frame")
    }

    /// Where a frame from ordinary memory goes through on its way to the device.
    pub fn way_in(&self) -> (&PinnedMemory, &DeviceMemory) {
        (self.pinned(0), self.device(0))
    }

    /// Where a frame to ordinary memory goes through on its way back.
    pub fn way_out(&self) -> (&DeviceMemory, &PinnedMemory) {
        (self.device(1), self.pinned(1))
    }

    /// Makes room for what the planes need besides; keeps what is there if it is enough. Nothing may be using it.
    pub fn reserve_extra(&mut self, bytes: usize, stream: &Stream) -> Result<u64, CudaError> {
        if bytes > self.extra.as_ref().map_or(0, DeviceMemory::bytes) {
            self.extra = None;
            self.extra = Some(DeviceMemory::new(bytes, stream)?);
            stream.synchronize()?;
        }
        Ok(self.extra.as_ref().map_or(0, DeviceMemory::address))
    }

    /// Where rows of a plane lie in the blocks, in bytes.
    pub fn bytes_of(&self, plane: usize, rows: &Range<u32>) -> Range<usize> {
        let Place { offset, pitch } = self.places[plane];
        offset + rows.start as usize * pitch..offset + rows.end as usize * pitch
    }

    /// Bytes in a row of every plane.
    pub fn row_bytes(&self) -> Vec<usize> {
        self.layouts.iter().map(PlaneLayout::row_bytes).collect()
    }

    /// Copies rows of a frame, whose planes are at these addresses, pitches apart, into the pinned memory.
    ///
    /// # Safety
    /// The planes are those of a frame that the slot is for, and nobody writes the rows, or touches them in the pinned memory.
    pub unsafe fn put(&self, planes: &[(usize, usize)], plane: usize, rows: Range<u32>) {
        let (Place { pitch, .. }, to) = (self.places[plane], self.bytes_of(plane, &rows).start);
        let (address, own) = planes[plane];
        let from = ((address + rows.start as usize * own) as *const u8, own);
        // SAFETY: as above; the rows are inside the block, and the two are apart.
        unsafe {
            let to = (self.pinned(0).address().add(to), pitch);
            copy_rows(from, to, self.layouts[plane].row_bytes(), rows.len());
        }
    }

    /// Copies rows of the blurred frame out of the pinned memory, to planes that are at these addresses, pitches apart.
    ///
    /// # Safety
    /// The planes are those of a frame that the slot is for, and nobody else touches the rows, here or there.
    pub unsafe fn take(&self, planes: &[(usize, usize)], plane: usize, rows: Range<u32>) {
        let (Place { pitch, .. }, from) = (self.places[plane], self.bytes_of(plane, &rows).start);
        let (address, own) = planes[plane];
        let to = (address as *mut u8).wrapping_add(rows.start as usize * own);
        // SAFETY: as above.
        unsafe {
            let from = (self.pinned(1).address().cast_const().add(from), pitch);
            copy_rows(from, (to, own), self.layouts[plane].row_bytes(), rows.len());
        }
    }
}

// SAFETY: the pinned memory is touched by `put` and `take` alone, whose callers keep rows apart.
unsafe impl Sync for Slot {}

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
