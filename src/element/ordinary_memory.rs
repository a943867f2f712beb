// SPDX-License-Identifier: MPL-2.0
//! Ordinary memory for an output frame, in huge pages where the system has them: a page fault for each small page of a frame
//! takes longer than the blur.

#[cfg(target_os = "linux")]
use crate::filter::plane::HUGE_PAGE;

#[cfg(target_os = "linux")]
const SMALL_PAGE: usize = 4 << 10;

/// Memory of so many bytes. Its start has at least the alignment of a page.
pub fn allocate(bytes: usize) -> Option<gst::Memory> {
    #[cfg(target_os = "linux")]
    return HugePages::new(bytes).map(gst::Memory::from_mut_slice);
    #[cfg(not(target_os = "linux"))]
    return gst::Memory::from_mut_slice(vec![0_u8; bytes]).into();
}

/// Memory that is mapped for one frame.
#[cfg(target_os = "linux")]
struct HugePages {
    map: *mut std::ffi::c_void,
    map_bytes: usize,
    /// From the start of the mapping to the first page in use.
    offset: usize,
    bytes: usize,
}

#[cfg(target_os = "linux")]
impl HugePages {
    fn new(bytes: usize) -> Option<Self> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        let page = if bytes < HUGE_PAGE { SMALL_PAGE } else { HUGE_PAGE };
        // The last page too can be a huge one.
        let used_bytes = bytes.checked_next_multiple_of(page)?;
        let map_bytes = used_bytes.checked_add(page)?;
        // SAFETY: a new mapping at an address that the system chooses.
        let map = unsafe {
            mmap_anonymous(std::ptr::null_mut(), map_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let map = map.ok()?;
        let offset = map.align_offset(page);
        // Where there are no huge pages, the memory has small ones.
        // SAFETY: the range is in the mapping, and the advice does not change what it holds.
        let _ = unsafe { madvise(map.byte_add(offset), used_bytes, Advice::LinuxHugepage) };
        Some(Self { map, map_bytes, offset, bytes })
    }
}

#[cfg(target_os = "linux")]
impl AsMut<[u8]> for HugePages {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are in the mapping, which lives as long as this, and start as zeros.
        unsafe { std::slice::from_raw_parts_mut(self.map.byte_add(self.offset).cast(), self.bytes) }
    }
}

#[cfg(target_os = "linux")]
impl Drop for HugePages {
    fn drop(&mut self) {
        // SAFETY: it is this mapping, and nobody uses it any more.
        let _ = unsafe { rustix::mm::munmap(self.map, self.map_bytes) };
    }
}

// SAFETY: nothing else refers to the mapping.
#[cfg(target_os = "linux")]
unsafe impl Send for HugePages {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn memory_is_aligned_and_writable_to_its_end() {
        gst::init().unwrap();
        for bytes in [1, 4096, 2 << 20, (6 << 20) + 5] {
            let memory = super::allocate(bytes).expect("memory");
            let mut memory = memory.into_mapped_memory_writable().expect("writable memory");
            assert_eq!((memory.len(), memory.as_ptr() as usize % 4096), (bytes, 0));
            let starts_on_huge_page = (memory.as_ptr() as usize).is_multiple_of(super::HUGE_PAGE);
            assert!(bytes < super::HUGE_PAGE || starts_on_huge_page, "{bytes} bytes");
            memory.as_mut_slice().fill(7);
        }
    }
}
