// SPDX-License-Identifier: MPL-2.0
//! Allocations of pinned memory in the background. Each takes milliseconds, during which the driver keeps other threads waiting,
//! so they run after the first frame and not within it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};

use crate::cuda::driver::PinnedMemory;
use crate::cuda::driver::device::Device;
use crate::cuda::error::CudaError;
use crate::log::Level;
use crate::process::log;

/// The outcome of an allocation, once it is known.
type Outcome = Mutex<Option<Result<PinnedMemory, CudaError>>>;

/// A requested allocation. Dropping it cancels the request. Dropped with the context current.
#[derive(Debug)]
pub struct PinnedRequest(Arc<Outcome>);

impl PinnedRequest {
    /// The memory, or why it could not be allocated; `None` if that is not known yet. Each outcome is returned once.
    pub fn take(&self) -> Option<Result<PinnedMemory, CudaError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A request in the queue: its size in bytes, and where its outcome is stored.
type Queued = (usize, Weak<Outcome>);

/// The requests of an engine, and the thread that allocates. Dropping this stops the thread after the allocation in progress: the
/// process must not end while a thread is in the driver.
pub struct PinnedRequests {
    device: Arc<Device>,
    queue: Vec<Queued>,
    thread: Option<JoinHandle<()>>,
    stopped: Arc<AtomicBool>,
}

impl PinnedRequests {
    /// For memory that this device accesses.
    pub fn new(device: Arc<Device>) -> Self {
        Self { device, queue: Vec::new(), thread: None, stopped: Arc::default() }
    }

    /// Requests `bytes`, at least 1, which are allocated after the next call of [`PinnedRequests::start`].
    pub fn request(&mut self, bytes: usize) -> PinnedRequest {
        let outcome = Arc::default();
        self.queue.push((bytes, Arc::downgrade(&outcome)));
        PinnedRequest(outcome)
    }

    /// Starts to allocate what was requested, unless earlier requests are still being processed.
    pub fn start(&mut self) {
        let is_busy = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        if self.queue.is_empty() || is_busy {
            return;
        }
        self.join();
        let (device, queue) = (Arc::clone(&self.device), Arc::new(Mutex::new(std::mem::take(&mut self.queue))));
        let (stopped, requests) = (Arc::clone(&self.stopped), Arc::clone(&queue));
        let allocate_all = move || {
            let requests = std::mem::take(&mut *requests.lock().unwrap_or_else(PoisonError::into_inner));
            allocate(&device, &requests, &stopped);
        };
        match Builder::new().name("gaussblur-alloc".to_owned()).spawn(allocate_all) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                log(
                    Level::Warning,
                    &format!("memory is allocated between frames: no thread could be started ({error})"),
                );
                let requests = std::mem::take(&mut *queue.lock().unwrap_or_else(PoisonError::into_inner));
                allocate(&self.device, &requests, &self.stopped);
            }
        }
    }

    /// Stops the thread and waits for it. Requests without an outcome never get one.
    pub fn stop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the thread.
            let _ = thread.join();
        }
    }
}

impl Drop for PinnedRequests {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Allocates what is still wanted.
fn allocate(device: &Device, requests: &[Queued], stopped: &AtomicBool) {
    for (bytes, request) in requests {
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        let Some(outcome) = request.upgrade() else { continue };
        match device.enter() {
            Ok(_current) => {
                let memory = PinnedMemory::new(*bytes, device.id());
                *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(memory);
                // While the context is current: the request may have been dropped meanwhile.
                drop(outcome);
            }
            Err(error) => *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(error)),
        }
    }
}
