// SPDX-License-Identifier: MPL-2.0
//! `centerface`: a GStreamer element that finds faces, on the processor, without any inference library. It attaches them to frames as
//! regions of interest, which `cudagaussblur` covers.
//!
//! Programs that link this crate register the element with [`plugin_register_static`]. The modules are public for the project's own
//! tests and benches, without any promise of stability.
//!
//! `element` (GStreamer) reads a small picture of a frame (`sampler`), runs the network on it (`run`, by the `kernels` on `vector`s) and
//! attaches the `faces` that the outputs describe. `model` finds the model's file. `network` is a list of layers, which it reads from the nodes of an ONNX file (`onnx`).

mod centerface;
#[doc(hidden)]
pub mod faces;
#[doc(hidden)]
pub mod graph;
#[doc(hidden)]
pub mod image;
#[doc(hidden)]
pub mod kernels;
mod model;
#[doc(hidden)]
pub mod network;
#[doc(hidden)]
pub mod onnx;
#[doc(hidden)]
pub mod people;
#[doc(hidden)]
pub mod run;
mod sampler;
mod search;
mod selfiesegmentation;
#[doc(hidden)]
pub mod tflite;
mod vector;

pub use centerface::CenterFace;
pub use selfiesegmentation::SelfieSegmentation;

mod plugin {
    fn register(plugin: &gst::Plugin) -> Result<(), gst::glib::BoolError> {
        super::centerface::register(plugin)?;
        super::selfiesegmentation::register(plugin)
    }

    gst::plugin_define!(
        detectors,
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
/// # Errors
/// If GStreamer refuses the plugin.
pub fn plugin_register_static() -> Result<(), gst::glib::BoolError> {
    // GStreamer makes a new factory for each registration and frees the one before, whose templates other threads may be reading.
    static REGISTERED: once_cell::sync::OnceCell<()> = once_cell::sync::OnceCell::new();
    REGISTERED.get_or_try_init(plugin::plugin_desc::plugin_register_static).copied()
}
