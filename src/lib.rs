// SPDX-License-Identifier: MPL-2.0
//! `cudagaussblur`: a GStreamer element that blurs live video with an exact Gaussian.
//!
//! The layers, each using only those below it: `element` (GStreamer), [`engine`] (picks and validates), [`cpu`] (does
//! the work), [`plan`], [`filter`] and [`frame`] (pure). docs/ARCHITECTURE.md has the whole picture.

pub mod cpu;
pub mod cuda;
pub mod element;
pub mod engine;
pub mod filter;
pub mod frame;
pub mod log;
pub mod plan;
mod threads;

mod plugin {
    use super::element::register;

    gst::plugin_define!(
        cudagaussblur,
        env!("CARGO_PKG_DESCRIPTION"),
        register,
        concat!(env!("CARGO_PKG_VERSION"), "-", env!("COMMIT_ID")),
        "MPL-2.0",
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_NAME"),
        env!("BUILD_REL_DATE")
    );
}

/// Registers the element without a plugin file, for programs that link this crate.
pub fn register_static() -> Result<(), gst::glib::BoolError> {
    plugin::plugin_desc::plugin_register_static()
}
