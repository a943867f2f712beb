// SPDX-License-Identifier: MPL-2.0
//! The state that all elements of a process share: the worker threads, the log sink, and the host registrations that could not
//! be ended. `cuda::process` owns the devices.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::threads::Threads;

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something failed that should work.
    Warning,
    /// An event worth knowing once.
    Info,
    /// Details for debugging.
    Debug,
}

/// Receives lines, from any thread.
pub type Sink = fn(Level, &str);

static LOG_SINK: OnceLock<Sink> = OnceLock::new();
static THREADS: Mutex<Weak<Threads>> = Mutex::new(Weak::new());
static STALE_REGISTRATIONS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Locks a mutex, also if a thread has panicked that had locked it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends log lines to `sink` from now on. Only the first call counts.
pub fn set_log_sink(sink: Sink) {
    let _ = LOG_SINK.set(sink);
}

/// Logs a line. Without a sink it is discarded.
pub fn log(level: Level, line: &str) {
    if let Some(sink) = LOG_SINK.get() {
        sink(level, line);
    }
}

/// The worker threads, started if nobody holds them. They are joined when the last handle is dropped.
pub fn threads() -> Arc<Threads> {
    let mut shared = lock(&THREADS);
    if let Some(threads) = shared.upgrade().filter(|threads| threads.are_of_this_process()) {
        return threads;
    }
    let (threads, warning) = Threads::start();
    let threads = Arc::new(threads);
    *shared = Arc::downgrade(&threads);
    // The log sink may start an element, which comes here.
    drop(shared);
    if let Some(warning) = warning {
        log(Level::Warning, &warning);
    }
    threads
}

/// Start addresses of host registrations that could not be ended before their memory was freed.
pub fn stale_registrations() -> MutexGuard<'static, Vec<usize>> {
    lock(&STALE_REGISTRATIONS)
}
