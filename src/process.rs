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

/// The receiver of log lines. Both functions may be called on any thread. None of the crate's locks is held during a call, so the
/// functions may use the crate, and may take long.
#[derive(Debug, Clone, Copy)]
pub struct Sink {
    /// Whether the sink wants lines of this severity. Other lines are not formatted.
    pub wants: fn(Level) -> bool,
    /// Receives a line.
    pub write: fn(Level, &str),
}

impl Sink {
    fn log(&self, level: Level, line: impl FnOnce() -> String) {
        if (self.wants)(level) {
            (self.write)(level, &line());
        }
    }
}

static LOG_SINK: OnceLock<Sink> = OnceLock::new();
static THREADS: Mutex<Weak<Threads>> = Mutex::new(Weak::new());
static STALE_REGISTRATIONS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Locks a mutex, even if a thread has panicked while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends log lines to `sink` from now on. Only the first call has an effect.
pub fn set_log_sink(sink: Sink) {
    let _ = LOG_SINK.set(sink);
}

/// Logs a line, which is formatted only if the sink wants it. The caller must hold no lock and must not be initialising a
/// `OnceLock`: the sink may wait for a thread that needs either.
pub fn log(level: Level, line: impl FnOnce() -> String) {
    if let Some(sink) = LOG_SINK.get() {
        sink.log(level, line);
    }
}

/// Returns the worker threads. Starts them if nobody holds a handle to them; dropping the last handle joins them.
pub fn threads() -> Arc<Threads> {
    let mut shared = lock(&THREADS);
    if let Some(threads) = shared.upgrade().filter(|threads| threads.are_of_this_process()) {
        return threads;
    }
    let (threads, warning) = Threads::start();
    let threads = Arc::new(threads);
    *shared = Arc::downgrade(&threads);
    // Unlocks first: the log sink may start an element, which calls this function.
    drop(shared);
    if let Some(warning) = warning {
        log(Level::Warning, || warning);
    }
    threads
}

/// Start addresses of host registrations that could not be ended before their memory was freed.
pub fn stale_registrations() -> MutexGuard<'static, Vec<usize>> {
    lock(&STALE_REGISTRATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_formatted_only_for_a_sink_that_wants_it() {
        static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let sink = Sink { wants: |level| level != Level::Debug, write: |_, line| lock(&LINES).push(line.to_owned()) };
        sink.log(Level::Debug, || panic!("a line is formatted that nobody wants"));
        sink.log(Level::Info, || "wanted".to_owned());
        assert_eq!(*lock(&LINES), ["wanted"]);
    }
}
