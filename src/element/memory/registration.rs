// SPDX-License-Identifier: MPL-2.0
//! Registration of ordinary host memory with the device, which then accesses it without a copy by the CPU.
//!
//! A pool of another element hands out the same memory again and again. Memory that this element has seen several times
//! is registered, and stays registered until GStreamer frees it. The record of a memory is attached to it as qdata,
//! which GStreamer frees together with the memory.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock};

use gst::glib;
use gst::glib::translate::IntoGlib;

use crate::element::messages::log::CAT;
use crate::engine::{HostRegistration, PinnedSource};
use crate::process::lock;

/// Sightings until memory is registered. Registering takes milliseconds, which pay off only for memory that is reused.
const SIGHTINGS_TO_REGISTER: u32 = 3;
/// Smaller memory is not registered: copying it is as fast. In bytes.
const MIN_BYTES: usize = 256 << 10;
/// Most bytes that are registered in the process at once, because registered memory cannot be swapped out.
const MAX_TOTAL_BYTES: usize = 1 << 30;

static TOTAL_BYTES: AtomicUsize = AtomicUsize::new(0);

static QUARK: LazyLock<glib::Quark> = LazyLock::new(|| glib::Quark::from_str("cudagaussblur-sightings"));

/// The record of a memory.
#[derive(Default)]
struct MemoryRecord {
    /// The element that saw it first. Only its sightings count: a buffer that a tee sends to several elements is one
    /// use.
    element: usize,
    sightings: AtomicU32,
    registration: OnceLock<(HostRegistration, RegistrationQuota)>,
}

/// A part of [`MAX_TOTAL_BYTES`], in bytes.
struct RegistrationQuota(usize);

impl RegistrationQuota {
    fn reserve(bytes: usize) -> Option<Self> {
        let quota = Self(bytes);
        (TOTAL_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes <= MAX_TOTAL_BYTES).then_some(quota)
    }
}

impl Drop for RegistrationQuota {
    fn drop(&mut self) {
        TOTAL_BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Frees a record. GStreamer calls it once, before it frees the memory.
unsafe extern "C" fn free_record(record: *mut c_void) {
    // SAFETY: `record` is the pointer that `MemoryRecord::of` made with `Box::into_raw`. GStreamer calls this once,
    // when it frees the memory, and no borrow of the memory, and so of the record, exists then.
    drop(unsafe { Box::from_raw(record.cast::<MemoryRecord>()) });
}

impl MemoryRecord {
    /// The record of this memory, made by the first call. Any thread may call it.
    fn of(memory: &gst::MemoryRef, element: usize) -> &Self {
        static LOOKUP: Mutex<()> = Mutex::new(());
        let object = memory.as_ptr().cast_mut().cast::<gst::ffi::GstMiniObject>();
        let quark = QUARK.into_glib();
        // Between the lookup and the insertion, no other thread may insert a record.
        let _lookup = lock(&LOOKUP);
        // SAFETY: `object` is a live GstMiniObject, because `memory` is borrowed; GStreamer locks its qdata. Only this
        // function sets data under the quark: a `MemoryRecord` that lives until the memory is freed, which is after the
        // borrow.
        unsafe {
            let mut record = gst::ffi::gst_mini_object_get_qdata(object, quark).cast::<Self>();
            if record.is_null() {
                record = Box::into_raw(Box::new(Self { element, ..Self::default() }));
                gst::ffi::gst_mini_object_set_qdata(object, quark, record.cast(), Some(free_record));
            }
            &*record
        }
    }
}

/// Notes that the element has seen a frame in these memories, and registers those that it has seen often enough.
pub fn note_sighting(buffer: &gst::BufferRef, source: &PinnedSource, element: usize) {
    for memory in buffer.iter_memories() {
        // Other types of memory may be mapped at another address every time, and a part of another memory can be freed
        // while the whole is still in use.
        if memory.parent().is_some() || !memory.is_type("SystemMemory") || memory.size() < MIN_BYTES {
            continue;
        }
        let record = MemoryRecord::of(memory, element);
        if record.element == element && record.sightings.fetch_add(1, Ordering::Relaxed) + 1 == SIGHTINGS_TO_REGISTER {
            register(memory, record, source);
        }
    }
}

fn register(memory: &gst::MemoryRef, record: &MemoryRecord, source: &PinnedSource) {
    let Ok(map) = memory.map_readable() else { return };
    let (address, bytes) = (map.as_ptr() as usize, map.len());
    drop(map);
    let Some(quota) = RegistrationQuota::reserve(bytes) else { return };
    // SAFETY: these are the bytes of a whole memory of type SystemMemory, which has one address until it is freed. The
    // registration is stored in the record, which is dropped before that.
    match unsafe { source.register(address, bytes) } {
        Ok(Some(registration)) => drop(record.registration.set((registration, quota))),
        Ok(None) => (),
        Err(error) => {
            gst::debug!(CAT, "reused host memory could not be registered and is copied for every frame: {error}");
        }
    }
}
