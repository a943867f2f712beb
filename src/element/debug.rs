// SPDX-License-Identifier: MPL-2.0
//! The debug category of the element, for `GST_DEBUG=cudagaussblur:4`.

use std::sync::{LazyLock, Once};

use gst::glib::prelude::*;

use crate::engine::{self, Level};

/// The category that the element and its engine log to.
pub static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("cudagaussblur", gst::DebugColorFlags::empty(), Some("Gaussian blur on the GPU or CPU"))
});

/// Writes the engine's log lines to the category.
pub fn forward_engine_log() {
    engine::log_to(|level, line| match level {
        Level::Warning => gst::warning!(CAT, "{line}"),
        Level::Info => gst::info!(CAT, "{line}"),
        Level::Debug => gst::debug!(CAT, "{line}"),
    });
}

/// Logs once per process that the library was built without optimisation.
pub fn warn_if_unoptimised(element: &impl IsA<gst::Object>) {
    static WARNED: Once = Once::new();
    if cfg!(unoptimised) {
        WARNED.call_once(|| {
            gst::warning!(
                CAT,
                obj = element,
                "the plugin was built without optimisation, so frames take about a hundred times as long; \
                 set opt-level = 3 under [profile.dev.package.\"*\"] in the Cargo.toml of the program (docs/EMBEDDING.md)"
            );
        });
    }
}
