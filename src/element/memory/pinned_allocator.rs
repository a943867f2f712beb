// SPDX-License-Identifier: MPL-2.0
//! A GstAllocator of pinned memory, for the buffer pools of the element's input and output.

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

    // SAFETY: `alloc` returns a new memory of the requested size, whose only reference passes to the caller.
    unsafe impl AllocatorImpl for PinnedAllocator {
        unsafe fn alloc(&self, size: usize, params: &gst::AllocationParams) -> *mut gst::ffi::GstMemory {
            // Pinned memory begins at a page, which satisfies any alignment that a pool asks for.
            let (prefix, whole) = (params.prefix(), params.prefix() + size + params.padding());
            let pinned = self.source.get().and_then(|source| source.allocate(whole.max(1)).ok());
            // Without pinned memory the frame is in ordinary memory: slower, but valid.
            let memory = match pinned {
                Some(bytes) => gst::Memory::from_mut_slice(bytes),
                None => gst::Memory::from_mut_slice(vec![0; whole.max(1)]),
            };
            let memory: *mut gst::ffi::GstMemory = memory.into_glib_ptr();
            // SAFETY: `memory` is a new memory that only this function references, of at least `prefix + size` bytes.
            unsafe { gst::ffi::gst_memory_resize(memory, prefix as isize, size) };
            memory
        }
    }
}

glib::wrapper! {
    /// Allocates memory that the device accesses without a copy by the CPU.
    pub struct PinnedAllocator(ObjectSubclass<imp::PinnedAllocator>) @extends gst::Allocator, gst::Object;
}

impl PinnedAllocator {
    /// An allocator that takes its memory from `source`.
    pub fn new(source: PinnedSource) -> Self {
        let this: Self = glib::Object::new();
        let _ = this.imp().source.set(source);
        this
    }
}
