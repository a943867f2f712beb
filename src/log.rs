// SPDX-License-Identifier: MPL-2.0
//! The type of log lines. The element passes a sink that writes them to GStreamer's debug log.

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
