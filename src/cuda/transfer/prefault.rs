// SPDX-License-Identifier: MPL-2.0
//! The pages of pageable memory that is about to be written. The system makes a page when it is first accessed, which takes 1 to
//! 2 µs, and the driver's copy accesses them one after the other: 6 MB take 4 ms, or 0.4 ms if the pages are there (virtual
//! machine of an H200, 2026-11-23).

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::filter::frame::PlaneLayout;
use crate::filter::plane::HostPlaneMut;

/// The smallest page of the supported systems, in bytes.
const PAGE: usize = 4096;
/// Rows that a thread takes at a time.
const ROWS: usize = 16;

/// Accesses the pages of a frame, from several threads.
pub struct Prefault<'a> {
    planes: &'a [HostPlaneMut],
    layouts: &'a [PlaneLayout],
    /// The next rows that a thread takes, in groups of [`ROWS`], plane after plane.
    next: AtomicUsize,
}

// SAFETY: threads access the planes only in `run`, whose caller owns them, and each takes other rows.
unsafe impl Sync for Prefault<'_> {}

impl<'a> Prefault<'a> {
    /// Of a frame with these planes. Nothing is accessed yet.
    pub fn new(planes: &'a [HostPlaneMut], layouts: &'a [PlaneLayout]) -> Self {
        Self { planes, layouts, next: AtomicUsize::new(0) }
    }

    /// Writes a byte of each page of the rows that no thread has taken, with its own value.
    ///
    /// # Safety
    /// The planes hold the rows of their layouts, live, and are accessed by nobody else but other calls.
    pub unsafe fn run(&self) {
        let groups = |layout: &PlaneLayout| (layout.height as usize).div_ceil(ROWS);
        let mut taken = self.next.fetch_add(1, Ordering::Relaxed);
        let mut before = 0;
        for (plane, layout) in self.planes.iter().zip(self.layouts) {
            while taken - before < groups(layout) {
                let first = (taken - before) * ROWS;
                for row in first..(layout.height as usize).min(first + ROWS) {
                    for byte in (0..layout.row_bytes()).step_by(PAGE) {
                        // SAFETY: the byte is in a row of the plane, which nobody else accesses, as the caller promises.
                        unsafe {
                            let byte = plane.address.add(row * plane.pitch + byte).cast::<MaybeUninit<u8>>();
                            byte.write_volatile(byte.read_volatile());
                        }
                    }
                }
                taken = self.next.fetch_add(1, Ordering::Relaxed);
            }
            before += groups(layout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_of_rows_is_taken_once_and_keeps_its_bytes() {
        let layouts = [PlaneLayout::new(5000, 40, 1, 8), PlaneLayout::new(3, 17, 2, 8)];
        let mut bytes = layouts.map(|layout| vec![7_u8; layout.row_bytes() * layout.height as usize]);
        let planes: Vec<HostPlaneMut> = bytes
            .iter_mut()
            .zip(&layouts)
            .map(|(bytes, layout)| HostPlaneMut {
                address: bytes.as_mut_ptr(),
                pitch: layout.row_bytes(),
                len: bytes.len(),
            })
            .collect();
        let prefault = Prefault::new(&planes, &layouts);
        // SAFETY: the planes have the layouts and are accessed by these threads only.
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| unsafe { prefault.run() }))));
        // Five groups, and one attempt of each thread that found none.
        assert_eq!(prefault.next.into_inner(), 5 + 3);
        assert!(bytes.iter().flatten().all(|byte| *byte == 7));
    }
}
