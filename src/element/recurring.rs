// SPDX-License-Identifier: MPL-2.0
//! Ordinary memory that comes again and again, from a pool of somebody else's: after a few times it is registered with the
//! device, which then takes it from where it is. It stays so until the memory is freed, which tells us.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use gst::glib;
use gst::glib::translate::IntoGlib;

use super::imp::CAT;
use crate::engine::{PinnedSource, Registered};

/// To register takes milliseconds, so that what comes less often is copied.
const SIGHTINGS: u32 = 3;
/// What is smaller is copied as fast.
const LEAST_BYTES: usize = 256 << 10;
/// In the whole process: what is registered cannot be swapped out.
const MOST_BYTES: usize = 1 << 30;

static BYTES: AtomicUsize = AtomicUsize::new(0);

static QUARK: LazyLock<glib::Quark> = LazyLock::new(|| glib::Quark::from_str("cudagaussblur-recurring"));

/// What is known of a memory.
#[derive(Default)]
struct Recurring {
    /// The element that saw it first, and how often: what goes to several elements at once has not come again.
    owner: usize,
    sightings: AtomicU32,
    registered: OnceLock<(Registered, Share)>,
}

/// Bytes of the whole.
struct Share(usize);

impl Share {
    fn take(bytes: usize) -> Option<Self> {
        let share = Self(bytes);
        (BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes <= MOST_BYTES).then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

unsafe extern "C" fn forget(recurring: *mut c_void) {
    // SAFETY: put there by `of`, and called once, before the memory is freed.
    drop(unsafe { Box::from_raw(recurring.cast::<Recurring>()) });
}

impl Recurring {
    /// What is known of a memory, which several elements may ask for at once.
    ///
    /// # Safety
    /// The memory is alive for as long as the answer is used.
    unsafe fn of<'a>(memory: *mut gst::ffi::GstMemory, owner: usize) -> &'a Self {
        static FIRST: Mutex<()> = Mutex::new(());
        let _one_at_a_time = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
        let (object, quark) = (memory.cast::<gst::ffi::GstMiniObject>(), QUARK.into_glib());
        // SAFETY: as above; what is under the quark is what is put there here, and stays until the memory goes.
        unsafe {
            let mut known = gst::ffi::gst_mini_object_get_qdata(object, quark).cast::<Self>();
            if known.is_null() {
                known = Box::into_raw(Box::new(Self { owner, ..Self::default() }));
                gst::ffi::gst_mini_object_set_qdata(object, quark, known.cast(), Some(forget));
            }
            &*known
        }
    }
}

/// Remembers the memories of a frame that has come to this element, and registers those that have come often enough.
pub fn see(buffer: &gst::BufferRef, source: &PinnedSource, element: usize) {
    for memory in buffer.iter_memories() {
        // Other kinds may be mapped anew, elsewhere, every time; a part of another memory goes when it likes.
        let raw = memory.as_ptr().cast_mut();
        // SAFETY: the buffer has it.
        let whole = unsafe { (*raw).parent.is_null() };
        if whole && memory.is_type("SystemMemory") && memory.size() >= LEAST_BYTES {
            // SAFETY: the buffer keeps it.
            let recurring = unsafe { Recurring::of(raw, element) };
            if recurring.owner == element && recurring.sightings.fetch_add(1, Ordering::Relaxed) + 1 == SIGHTINGS {
                register(memory, recurring, source);
            }
        }
    }
}

fn register(memory: &gst::MemoryRef, recurring: &Recurring, source: &PinnedSource) {
    let Ok(map) = memory.map_readable() else { return };
    let (address, bytes) = (map.as_ptr() as usize, map.len());
    drop(map);
    let Some(share) = Share::take(bytes) else { return };
    // SAFETY: the system's memory stays where it is until it is freed, and then the registration goes first.
    match unsafe { source.register(address, bytes) } {
        Ok(Some(registered)) => drop(recurring.registered.set((registered, share))),
        Ok(None) => (),
        Err(why) => gst::debug!(CAT, "memory that comes again and again is copied every time: {why}"),
    }
}
