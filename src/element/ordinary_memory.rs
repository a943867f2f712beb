// SPDX-License-Identifier: MPL-2.0
//! Ordinary memory for an output frame, in pages as large as the system has: it makes a page when that is first written, and a
//! frame of small pages takes longer to make than to blur.

/// Memory of so many bytes. Its start has at least the alignment of a page.
pub fn allocate(bytes: usize) -> Option<gst::Memory> {
    #[cfg(target_os = "linux")]
    return HugePages::new(bytes).map(gst::Memory::from_mut_slice);
    #[cfg(not(target_os = "linux"))]
    return gst::Memory::from_mut_slice(vec![0; bytes]).into();
}

/// A mapping of its own.
#[cfg(target_os = "linux")]
struct HugePages {
    map: *mut std::ffi::c_void,
    map_bytes: usize,
    /// Of what is used, which starts on a page.
    offset: usize,
    bytes: usize,
}

#[cfg(target_os = "linux")]
impl HugePages {
    /// Of x86, and of Arm if its pages have 4 kB.
    const HUGE_PAGE: usize = 2 << 20;
    const SMALL_PAGE: usize = 4 << 10;

    fn new(bytes: usize) -> Option<Self> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        let page = if bytes < Self::HUGE_PAGE { Self::SMALL_PAGE } else { Self::HUGE_PAGE };
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

#[cfg(test)]
mod tests {
    #[test]
    fn memory_is_aligned_and_writable_to_its_end() {
        gst::init().unwrap();
        for bytes in [1, 4096, 2 << 20, (6 << 20) + 5] {
            let memory = super::allocate(bytes).expect("memory");
            let mut memory = memory.into_mapped_memory_writable().expect("writable memory");
            assert_eq!((memory.len(), memory.as_ptr() as usize % 4096), (bytes, 0));
            memory.as_mut_slice().fill(7);
        }
    }
}
