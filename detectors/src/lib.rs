// SPDX-License-Identifier: MPL-2.0
//! Two GStreamer elements that find faces and people, so that `cudagaussblur` can cover them. They run on the processor, without
//! an inference library, and attach regions of interest to frames.
//!
//! `centerface` finds faces. `selfiesegmentation` finds people and attaches their mask. Alone, it finds one person who fills the
//! picture; behind `centerface`, it finds people of any size.
//! [HIDING](https://github.com/cudagaussblur/cudagaussblur/blob/main/docs/HIDING.md#masks) says how to use both elements and what
//! they find.
//!
//! Programs that link this crate register the elements with [`plugin_register_static`]. The modules are public for the project's own
//! tests and benches, without any promise of stability.
//!
//! Both elements read small pictures of a frame (`sampler`) and run networks on them. `search` has the code that both share.
//! `centerface` attaches the `faces` that the outputs of its network describe. `selfiesegmentation` makes a mask of all `people`
//! from the outputs of two networks, and fits the mask to the edges of an `image`. `model` finds the files of the models. `onnx`
//! and `tflite` read a file into a `graph`. `network` makes a list of layers from a graph, and `run` computes these layers with
//! the `kernels`, which work on `vector`s.

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

/// Registers the elements for this process, without a plugin file. Call it after `gst::init`, from any thread. Further calls do
/// nothing once the elements are registered.
///
/// # Errors
/// If GStreamer refuses the plugin.
pub fn plugin_register_static() -> Result<(), gst::glib::BoolError> {
    // For each registration, GStreamer makes a new factory and frees the earlier one, whose templates other threads may be
    // reading. So the elements are registered only once.
    static REGISTERED: once_cell::sync::OnceCell<()> = once_cell::sync::OnceCell::new();
    REGISTERED.get_or_try_init(plugin::plugin_desc::plugin_register_static).copied()
}
