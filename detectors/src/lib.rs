// SPDX-License-Identifier: MPL-2.0
//! Two GStreamer elements that find faces and people, which `cudagaussblur` then covers. They run on the processor,
//! without any inference library, and attach regions of interest to frames.
//!
//! `centerface` finds faces. `selfiesegmentation` finds people and attaches their mask. Alone it finds one person who
//! fills the picture; behind `centerface` it finds people of any size.
//! [HIDING](https://github.com/cudagaussblur/cudagaussblur/blob/main/docs/HIDING.md#masks) says how to use them and
//! what they find.
//!
//! Programs that link this crate register the elements with [`plugin_register_static`]. The modules are public for the project's own
//! tests and benches, without any promise of stability.
//!
//! Both elements read small pictures of a frame (`sampler`) and run networks on them. `search` has their common part.
//! `centerface` attaches the `faces` that the outputs of its network describe. `selfiesegmentation` makes a mask of all
//! `people` from the outputs of two networks, and fits the mask to the edges of an `image`. `model` finds the models'
//! files. `onnx` and `tflite` read a file into a `graph`. `network` makes a list of layers from a graph, and `run` runs
//! this list, by the `kernels` on `vector`s.

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

/// Registers the elements for this process, without a plugin file. Call it after `gst::init`, from any thread; once they are registered,
/// a further call does nothing.
///
/// # Errors
/// If GStreamer refuses the plugin.
pub fn plugin_register_static() -> Result<(), gst::glib::BoolError> {
    // GStreamer makes a new factory for each registration and frees the one before, whose templates other threads may be reading.
    static REGISTERED: once_cell::sync::OnceCell<()> = once_cell::sync::OnceCell::new();
    REGISTERED.get_or_try_init(plugin::plugin_desc::plugin_register_static).copied()
}
