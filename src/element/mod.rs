// SPDX-License-Identifier: MPL-2.0
//! The GStreamer element: properties, caps, buffers, messages. Translates to engine calls and holds no CUDA.

mod allocation;
mod caps;
mod contexts;
pub mod formats;
mod frames;
mod gstcuda;
mod imp;
mod map;
mod pinned;
mod recurring;
mod settings;
#[cfg(test)]
mod tests;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    /// The `cudagaussblur` element.
    pub struct CudaGaussBlur(ObjectSubclass<imp::CudaGaussBlur>)
        @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

/// Registers the element with rank none: it is never plugged in by itself.
pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    for kind in [settings::Backend::static_type(), settings::Planes::static_type(), settings::Alpha::static_type()] {
        kind.mark_as_plugin_api(gst::PluginAPIFlags::empty());
    }
    gst::Element::register(Some(plugin), "cudagaussblur", gst::Rank::NONE, CudaGaussBlur::static_type())
}
