// SPDX-License-Identifier: MPL-2.0
//! The first buffer of the element's own pool of pinned memory. Allocating it takes longer than blurring a frame, so the first
//! frame has ordinary memory for its output, and a thread allocates the pool's buffer after that frame.

use std::thread::{Builder, JoinHandle};

use gst::prelude::*;

use super::debug::CAT;

/// The preallocation of a pool's first buffer. Dropping this waits for its thread: the process must not end while a thread is in
/// the driver.
pub struct Preallocation {
    pool: gst::BufferPool,
    /// Bytes of its buffers.
    bytes: usize,
    is_started: bool,
    thread: Option<JoinHandle<()>>,
}

impl Preallocation {
    /// For a pool that allocates no buffers when it is activated. Nothing is allocated before [`Preallocation::start`].
    pub fn new(pool: gst::BufferPool, bytes: usize) -> Self {
        Self { pool, bytes, is_started: false, thread: None }
    }

    /// The bytes of an output buffer in ordinary memory, for a frame that comes before the start.
    pub fn ordinary_bytes(&self) -> Option<usize> {
        (!self.is_started).then_some(self.bytes)
    }

    /// Starts the thread.
    pub fn start(&mut self) {
        self.is_started = true;
        // The base class activates it with the first frame that needs it, and deactivates it in any case.
        let _ = self.pool.set_active(true);
        let pool = self.pool.clone();
        // The pool keeps the buffer. A failure is reported to the frame that acquires a buffer next.
        let allocate = move || drop(pool.acquire_buffer(None));
        match Builder::new().name("gaussblur-pool".to_owned()).spawn(allocate) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                gst::warning!(CAT, "the next frame waits for its output buffer: no thread could be started ({error})");
            }
        }
    }
}

impl Drop for Preallocation {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the thread.
            let _ = thread.join();
        }
    }
}
