// SPDX-License-Identifier: MPL-2.0
//! The element's own pool of pinned memory before it has a buffer. Allocating one takes longer than blurring a frame, so the first
//! frame has ordinary memory for its output, and a thread makes the pool's first buffer after it.

use std::thread::{Builder, JoinHandle};

use gst::prelude::*;

use super::debug::CAT;

/// A pool that has no buffer yet. Dropping this waits for the thread: the process must not end while a thread is in the driver.
pub struct EmptyPool {
    pool: gst::BufferPool,
    thread: Option<JoinHandle<()>>,
}

impl EmptyPool {
    /// Nothing is allocated before [`EmptyPool::start`]. The pool has no limit that an acquired buffer would reach.
    pub fn new(pool: gst::BufferPool) -> Self {
        Self { pool, thread: None }
    }

    /// Starts to make the first buffer, unless it was called before.
    pub fn start(&mut self) {
        if self.thread.is_some() {
            return;
        }
        // The base class activates it with the first frame that needs it, and deactivates it in any case.
        let _ = self.pool.set_active(true);
        let pool = self.pool.clone();
        // The pool keeps the buffer. A failure is reported to the frame that acquires a buffer next.
        let make = move || drop(pool.acquire_buffer(None));
        match Builder::new().name("gaussblur-pool".to_owned()).spawn(make) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => gst::warning!(CAT, "output stays in ordinary memory: no thread could be started ({error})"),
        }
    }

    /// Whether the buffer is being made, or is there. The next frame acquires it, and waits for the thread by dropping this.
    pub fn is_started(&self) -> bool {
        self.thread.is_some()
    }
}

impl Drop for EmptyPool {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the thread.
            let _ = thread.join();
        }
    }
}
