// SPDX-License-Identifier: MPL-2.0
//! The memory that a frame passes through: pinned staging buffers for frames in pageable memory, device memory for both frames.
//!
//! All planes of a frame lie in one block with the same layout on host and device, so any rows of a plane are one copy in each
//! direction, and any rectangle is at the same place in both.

use crate::cuda::driver::{DeviceMemory, PinnedMemory, Stream};
use crate::cuda::error::CudaError;
use crate::filter::byte_rect::ByteRect;
use crate::filter::frame::PlaneLayout;
use crate::filter::plane::{Address, DevicePlane, HostPlane, HostPlaneMut, PlaneMemory, copy_rows};

/// Rows start on this many bytes: enough for the kernels' widest loads and a cache line of the host, and so few that common
/// widths need no padding on the bus.
const ROW_ALIGNMENT: usize = 64;
/// Planes start on this many bytes.
const PLANE_ALIGNMENT: usize = 256;

/// Where these planes are in a block: their addresses count from its begin. Also returns the size of the block.
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

/// The planes in a block at this address.
fn within<A: Address>(planes: &[PlaneMemory<usize>], block: A) -> Vec<PlaneMemory<A>> {
    let plane = |plane: &PlaneMemory<usize>| {
        let PlaneMemory { address, pitch, len } = *plane;
        PlaneMemory { address: block.offset_by(address), pitch, len }
    };
    planes.iter().map(plane).collect()
}

/// The memory for one of the two frames of a blur, allocated when a frame first needs it.
pub struct FrameBuffers {
    layouts: Vec<PlaneLayout>,
    /// Where they are in a block.
    planes: Vec<PlaneMemory<usize>>,
    /// Size of the block.
    bytes: usize,
    staging: Option<PinnedMemory>,
    device: Option<DeviceMemory>,
}

impl FrameBuffers {
    /// For frames of these planes. Nothing is allocated yet.
    pub fn new(layouts: &[PlaneLayout]) -> Self {
        let (planes, bytes) = plane_offsets(layouts);
        Self { layouts: layouts.to_vec(), planes, bytes, staging: None, device: None }
    }

    /// Allocates device memory, and a staging buffer if `staged`, unless they are there. Says whether device memory was
    /// allocated, which can be used on other streams only after `stream` is synchronised.
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

    /// A rectangle as it is copied between both blocks: whole rows with what is between them, which makes them one range of bytes.
    pub fn between_blocks(&self, rect: &ByteRect) -> ByteRect {
        let is_whole = rect.row_step == 1 && rect.bytes == self.layouts[rect.plane].row_bytes();
        if is_whole { ByteRect { bytes: self.planes[rect.plane].pitch, ..*rect } } else { *rect }
    }
}

/// The planes of a frame, and of its staging buffer, from which several threads copy to the other.
pub struct SharedPlanes {
    from: Vec<HostPlane>,
    to: Vec<HostPlaneMut>,
}

// SAFETY: the threads only compute addresses from the planes; the copies are unsafe calls, whose callers keep rectangles apart.
unsafe impl Sync for SharedPlanes {}

impl SharedPlanes {
    /// Copies between these planes.
    pub fn new(from: &[HostPlane], to: &[HostPlaneMut]) -> Self {
        Self { from: from.to_vec(), to: to.to_vec() }
    }

    /// Copies a rectangle.
    ///
    /// # Safety
    /// The planes hold the rectangle; nobody writes it in those that are read, nor accesses it in the others.
    pub unsafe fn copy(&self, rect: &ByteRect) {
        let (from, to) = (rect.within(&self.from[rect.plane]), rect.within(&self.to[rect.plane]));
        // SAFETY: both planes hold the rows, and nobody else accesses them, as the caller promises.
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
