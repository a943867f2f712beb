// SPDX-License-Identifier: MPL-2.0
//! The huge pages of memory that the driver is about to write. A page fault there takes 0.4 ms, in the driver's copy one after the
//! other. Small pages are left to the driver: faults of another thread slow its upload down by more than they save.

use std::mem::MaybeUninit;

use crate::filter::frame::PlaneLayout;
use crate::filter::plane::{HUGE_PAGE, HostPlaneMut};

/// A frame of which a thread touches the pages.
pub struct Prefault<'a> {
    planes: &'a [HostPlaneMut],
    layouts: &'a [PlaneLayout],
}

// SAFETY: the planes are accessed only in `run`, whose caller owns them.
unsafe impl Sync for Prefault<'_> {}

impl<'a> Prefault<'a> {
    /// Of a frame with these planes. Nothing is accessed yet.
    pub fn new(planes: &'a [HostPlaneMut], layouts: &'a [PlaneLayout]) -> Self {
        Self { planes, layouts }
    }

    /// Writes a byte of each huge page that a plane touches, with its own value.
    ///
    /// # Safety
    /// The planes hold the rows of their layouts, live, and are accessed by nobody else.
    pub unsafe fn run(&self) {
        for (plane, layout) in self.planes.iter().zip(self.layouts) {
            for offset in first_bytes(plane, layout) {
                // SAFETY: the byte is in a row of the plane, which nobody else accesses, as the caller promises.
                unsafe {
                    let byte = plane.address.add(offset).cast::<MaybeUninit<u8>>();
                    byte.write_volatile(byte.read_volatile());
                }
            }
        }
    }
}

/// The offset of the first byte of a row in each huge page.
fn first_bytes(plane: &HostPlaneMut, layout: &PlaneLayout) -> impl Iterator<Item = usize> {
    let (pitch, row_bytes, rows) = (plane.pitch, layout.row_bytes(), layout.height as usize);
    let first_page = plane.address.align_offset(HUGE_PAGE);
    let pages = (first_page..rows * pitch).step_by(HUGE_PAGE);
    [0].into_iter().chain(pages).filter_map(move |offset| {
        let (row, byte) = (offset / pitch, offset % pitch);
        let in_row = if byte < row_bytes { offset } else { (row + 1) * pitch };
        (in_row < rows * pitch).then_some(in_row)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_of_a_row_is_touched_in_every_huge_page() {
        let layout = PlaneLayout::new(5000, 1000, 1, 8);
        let plane = |pitch| HostPlaneMut { address: (HUGE_PAGE - 4000) as *mut u8, pitch, len: 1000 * pitch };
        assert_eq!(
            first_bytes(&plane(5000), &layout).collect::<Vec<_>>(),
            [0, 4000, 4000 + HUGE_PAGE, 4000 + 2 * HUGE_PAGE]
        );
        // Behind the rows there may be what belongs to others.
        let padded: Vec<usize> = first_bytes(&plane(8192), &layout).collect();
        assert_eq!(padded.len(), 5);
        assert!(padded.iter().all(|offset| offset % 8192 < 5000 && *offset < 1000 * 8192));
        assert!(padded[1..].iter().zip(0..).all(|(offset, page)| (*offset - 4000) / HUGE_PAGE == page));
    }

    #[test]
    fn bytes_keep_their_values() {
        let layout = PlaneLayout::new(3000, 2000, 1, 8);
        let mut bytes = vec![7_u8; 3000 * 2000];
        let planes = [HostPlaneMut { address: bytes.as_mut_ptr(), pitch: 3000, len: bytes.len() }];
        // SAFETY: the plane has the layout and is accessed only here.
        unsafe { Prefault::new(&planes, &[layout]).run() };
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}
