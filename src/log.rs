// SPDX-License-Identifier: MPL-2.0
//! Lines for people who look for the cause of something. The element hands in where they go; without it they go nowhere.

use std::sync::OnceLock;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something does not work that should.
    Warning,
    /// Something worth knowing once.
    Info,
    /// Whatever helps.
    Debug,
}

/// Takes a line; called from any thread.
pub type Sink = fn(Level, &str);

static SINK: OnceLock<Sink> = OnceLock::new();

/// Lines go here from now on. The first call counts.
pub fn set_sink(sink: Sink) {
    let _ = SINK.set(sink);
}

pub(crate) fn log(level: Level, line: &str) {
    if let Some(sink) = SINK.get() {
        sink(level, line);
    }
}
