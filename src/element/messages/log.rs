// SPDX-License-Identifier: MPL-2.0
//! The debug category of the element, for `GST_DEBUG=cudagaussblur:4`.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use gst::DebugLogger;
use gst::glib::prelude::*;

use crate::engine::{self, Level, Sink};

/// The category that the element and its engine log to.
pub static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("cudagaussblur", gst::DebugColorFlags::empty(), Some("Gaussian blur on the GPU or CPU"))
});

/// Writes the engine's log lines to the category.
pub fn forward_engine_log() {
    const fn level_of(level: Level) -> gst::DebugLevel {
        match level {
            Level::Warning => gst::DebugLevel::Warning,
            Level::Info => gst::DebugLevel::Info,
            Level::Debug => gst::DebugLevel::Debug,
        }
    }
    engine::log_to(Sink {
        wants: |level| CAT.above_threshold(level_of(level)),
        write: |level, line| gst::log_with_level!(CAT, level_of(level), "{line}"),
    });
}

/// Logs once per process that the library was built without optimisation.
pub fn warn_if_unoptimised(element: &impl IsA<gst::Object>) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if cfg!(unoptimised) && !WARNED.swap(true, Ordering::Relaxed) {
        gst::warning!(
            CAT,
            obj = element,
            "the plugin was built without optimisation, so frames take about a hundred times as long; \
             set opt-level = 3 under [profile.dev.package.\"*\"] in the Cargo.toml of the program (docs/EMBEDDING.md)"
        );
    }
}
