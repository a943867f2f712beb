// SPDX-License-Identifier: MPL-2.0
//! An allocator of pinned memory, for the buffer pools on both sides of the element.

use std::sync::OnceLock;

use gst::glib;
use gst::glib::translate::IntoGlibPtr;
use gst::subclass::prelude::*;

use crate::engine::PinnedSource;

mod imp {
    use super::*;

    #[derive(Default)]
    pub struct PinnedAllocator {
        pub source: OnceLock<PinnedSource>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for PinnedAllocator {
        const NAME: &'static str = "GstCudaGaussBlurPinnedAllocator";
        type Type = super::PinnedAllocator;
        type ParentType = gst::Allocator;
    }

    impl ObjectImpl for PinnedAllocator {}
    impl GstObjectImpl for PinnedAllocator {}

    // SAFETY: gives whole memory of the size asked for, or none.
    unsafe impl AllocatorImpl for PinnedAllocator {
        unsafe fn alloc(&self, size: usize, params: &gst::AllocationParams) -> *mut gst::ffi::GstMemory {
            // Pages are aligned beyond what anybody asks for.
            let (prefix, whole) = (params.prefix(), params.prefix() + size + params.padding());
            let pinned = self.source.get().and_then(|source| source.allocate(whole.max(1)).ok());
            // What cannot be pinned is ordinary memory: slower, and as good.
            let memory = match pinned {
                Some(bytes) => gst::Memory::from_mut_slice(bytes),
                None => gst::Memory::from_mut_slice(vec![0; whole.max(1)]),
            };
            let memory: *mut gst::ffi::GstMemory = memory.into_glib_ptr();
            // SAFETY: ours alone, and as large.
            unsafe { gst::ffi::gst_memory_resize(memory, prefix as isize, size) };
            memory
        }
    }
}

glib::wrapper! {
    /// Allocates memory that the device reads and writes by itself.
    pub struct PinnedAllocator(ObjectSubclass<imp::PinnedAllocator>) @extends gst::Allocator, gst::Object;
}

impl PinnedAllocator {
    /// From this source.
    pub fn new(source: PinnedSource) -> Self {
        let this: Self = glib::Object::new();
        let _ = this.imp().source.set(source);
        this
    }
}
