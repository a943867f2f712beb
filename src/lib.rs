// SPDX-License-Identifier: MPL-2.0
//! `cudagaussblur`: a GStreamer element that blurs live video with a Gaussian, on an NVIDIA GPU or on the CPU.
//!
//! Programs that link this crate register the element with [`plugin_register_static`] and use it by its name or its type,
//! [`CudaGaussBlur`]. Everything else is private; the feature `internals` opens the modules to the project's own tests and
//! benches, without any promise of stability.
//!
//! Each layer uses only those below it: `element` (GStreamer), `regions` (what is covered when), `engine` (picks a backend), `cpu`
//! and `cuda` (the backends), `filter` (taps, frames, plans). docs/ARCHITECTURE.md describes them.

#![cfg_attr(
    not(feature = "internals"),
    allow(
        dead_code,
        unused_imports,
        unfulfilled_lint_expectations,
        reason = "tests and benches use more than the plugin"
    )
)]

#[cfg(target_endian = "big")]
compile_error!(
    "big-endian processors are not supported: the CPU engine takes words of 32 bits apart as little-endian ones do"
);

#[cfg(feature = "internals")]
pub mod cpu;
#[cfg(not(feature = "internals"))]
mod cpu;
#[cfg(feature = "internals")]
pub mod cuda;
#[cfg(not(feature = "internals"))]
mod cuda;
#[cfg(feature = "internals")]
pub mod element;
#[cfg(not(feature = "internals"))]
mod element;
#[cfg(feature = "internals")]
pub mod engine;
#[cfg(not(feature = "internals"))]
mod engine;
#[cfg(feature = "internals")]
pub mod filter;
#[cfg(not(feature = "internals"))]
mod filter;
mod floats;
mod libraries;
mod process;
mod recent;
#[cfg(feature = "internals")]
pub mod regions;
#[cfg(not(feature = "internals"))]
mod regions;
mod threads;

pub use element::CudaGaussBlur;

mod plugin {
    /**
     * plugin-cudagaussblur:
     *
     * Since: 0.1.0
     */
    use super::element::register;

    gst::plugin_define!(
        cudagaussblur,
        env!("CARGO_PKG_DESCRIPTION"),
        register,
        concat!(env!("CARGO_PKG_VERSION"), "-", env!("COMMIT_ID")),
        "MPL-2.0",
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_REPOSITORY"),
        env!("BUILD_REL_DATE")
    );
}

/// Registers the element for this process, without a plugin file. Call it after `gst::init`, from any thread; once it is registered,
/// a further call does nothing.
///
/// ```
/// gst::init()?;
/// gstcudagaussblur::plugin_register_static()?;
/// let blur = gst::ElementFactory::make("cudagaussblur").property("sigma", 5.0).build()?;
/// assert!(blur.is::<gstcudagaussblur::CudaGaussBlur>());
/// # use gst::prelude::*;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If GStreamer refuses the plugin.
pub fn plugin_register_static() -> Result<(), gst::glib::BoolError> {
    // GStreamer makes a new factory for each registration and frees the one before, whose templates other threads may be reading.
    static REGISTERED: once_cell::sync::OnceCell<()> = once_cell::sync::OnceCell::new();
    REGISTERED.get_or_try_init(plugin::plugin_desc::plugin_register_static).copied()
}
