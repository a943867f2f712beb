// SPDX-License-Identifier: MPL-2.0
//! The memory that a frame passes through: pinned staging buffers for frames in pageable memory, and device memory for both
//! frames.
//!
//! All planes of a frame lie in one block, which has the same layout on the host and on the device. So any rows of a plane need
//! one copy in each direction, and a rectangle has the same offset in both blocks.

use crate::cuda::driver::{DeviceMemory, PinnedMemory, Stream};
use crate::cuda::error::CudaError;
use crate::filter::byte_rect::ByteRect;
use crate::filter::frame::PlaneLayout;
use crate::filter::plane::{Address, DevicePlane, HostPlane, HostPlaneMut, PlaneMemory, copy_rows};

/// The alignment of rows in bytes. It suffices for the widest loads of the kernels and for a cache line of the host, and is so
/// small that common widths need no padding on the bus.
const ROW_ALIGNMENT: usize = 64;
/// The alignment of planes in bytes.
const PLANE_ALIGNMENT: usize = 256;

/// Returns the planes of a block for these layouts, and the size of the block. Their addresses are offsets in the block.
pub fn plane_offsets(layouts: &[PlaneLayout]) -> (Vec<PlaneMemory<usize>>, usize) {
    let mut bytes = 0;
    let plane = |layout: &PlaneLayout| {
        let pitch = layout.row_bytes().next_multiple_of(ROW_ALIGNMENT);
        let plane = PlaneMemory { address: bytes, pitch, len: pitch * layout.height as usize };
        bytes += plane.len.next_multiple_of(PLANE_ALIGNMENT);
        plane
    };
    (layouts.iter().map(plane).collect(), bytes)
}

/// The planes of the block at this address.
fn within<A: Address>(planes: &[PlaneMemory<usize>], block: A) -> Vec<PlaneMemory<A>> {
    let plane = |plane: &PlaneMemory<usize>| {
        let PlaneMemory { address, pitch, len } = *plane;
        PlaneMemory { address: block.offset_by(address), pitch, len }
    };
    planes.iter().map(plane).collect()
}

/// The memory for the source or for the destination of a blur. It is allocated when a frame first needs it.
pub struct FrameBuffers {
    layouts: Vec<PlaneLayout>,
    /// The planes; their addresses are offsets in a block.
    planes: Vec<PlaneMemory<usize>>,
    /// The size of the block in bytes.
    bytes: usize,
    staging: Option<PinnedMemory>,
    device: Option<DeviceMemory>,
}

impl FrameBuffers {
    /// The memory for frames of these planes. Nothing is allocated yet.
    pub fn new(layouts: &[PlaneLayout]) -> Self {
        let (planes, bytes) = plane_offsets(layouts);
        Self { layouts: layouts.to_vec(), planes, bytes, staging: None, device: None }
    }

    /// Allocates device memory, and a staging buffer if `staged`, unless they are allocated already. Returns whether it has
    /// allocated device memory. Other streams may use new memory only after `stream` has been synchronised.
    pub fn reserve(&mut self, staged: bool, stream: &Stream) -> Result<bool, CudaError> {
        let is_new = self.device.is_none();
        if is_new {
            self.device = Some(DeviceMemory::new(self.bytes, stream)?);
        }
        if staged && self.staging.is_none() {
            self.staging = Some(PinnedMemory::new(self.bytes, stream.device())?);
        }
        Ok(is_new)
    }

    /// The planes in device memory.
    pub fn device_planes(&self) -> Vec<DevicePlane> {
        let address = self.device.as_ref().expect("`reserve` allocated it").address();
        within(&self.planes, address)
    }

    /// The planes in the staging buffer.
    pub fn staging_planes(&self) -> Vec<HostPlaneMut> {
        let address = self.staging.as_ref().expect("`reserve` allocated it").address();
        within(&self.planes, address)
    }

    /// The bytes to copy for a rectangle between the two blocks. Whole rows are extended to the pitch, which makes them one range
    /// of bytes.
    pub fn between_blocks(&self, rect: &ByteRect) -> ByteRect {
        let is_whole = rect.row_step == 1 && rect.bytes == self.layouts[rect.plane].row_bytes();
        if is_whole { ByteRect { bytes: self.planes[rect.plane].pitch, ..*rect } } else { *rect }
    }
}

/// The planes of a frame and those of its staging buffer, between which several threads copy.
pub struct SharedPlanes {
    from: Vec<HostPlane>,
    to: Vec<HostPlaneMut>,
}

// SAFETY: the threads only compute addresses from the planes. Copies are calls of the unsafe `copy`, whose callers promise that
// rectangles are copied without conflicting accesses.
unsafe impl Sync for SharedPlanes {}

impl SharedPlanes {
    /// Copies from the planes `from` to the planes `to`.
    pub fn new(from: &[HostPlane], to: &[HostPlaneMut]) -> Self {
        Self { from: from.to_vec(), to: to.to_vec() }
    }

    /// Copies a rectangle.
    ///
    /// # Safety
    /// Both planes hold the rectangle. During the call, nobody writes it in the source plane or accesses it in the destination
    /// plane.
    pub unsafe fn copy(&self, rect: &ByteRect) {
        let (from, to) = (rect.within(&self.from[rect.plane]), rect.within(&self.to[rect.plane]));
        // SAFETY: the caller promises that both planes hold the rows of the rectangle, that nobody writes those of the source,
        // and that nobody else accesses those of the destination.
        unsafe { copy_rows(&from, &to, rect.bytes, rect.rows) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_contiguous_with_aligned_rows() {
        let planes = [(1920, 1080, 1, 8), (3, 5, 2, 8), (33, 2, 1, 16)];
        let layouts = planes.map(|(width, height, channels, depth)| PlaneLayout::new(width, height, channels, depth));
        let (planes, bytes) = plane_offsets(&layouts);
        assert_eq!(planes[0], PlaneMemory { address: 0, pitch: 1920, len: 1920 * 1080 });
        assert_eq!(planes[1], PlaneMemory { address: 1920 * 1080, pitch: 64, len: 320 });
        assert_eq!(planes[2], PlaneMemory { address: 1920 * 1080 + 512, pitch: 128, len: 256 });
        assert_eq!(bytes, 1920 * 1080 + 512 + 256);
    }
}
