// SPDX-License-Identifier: MPL-2.0
//! The GStreamer element: properties, caps, buffers and messages. It translates them to calls of the engine and
//! contains no CUDA code. `imp` has the virtual methods, which delegate to the other files.

mod allocation;
mod caps;
mod cuda_context;
mod debug;
mod error;
pub mod formats;
mod gstcuda;
mod host_registration;
mod imp;
mod lifecycle;
mod pinned_allocator;
mod settings;
mod snapshot;
mod state;
mod stream;
mod stream_format;
mod streaming;
#[cfg(test)]
mod tests;
mod video_frame;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    /// The `cudagaussblur` element.
    pub struct CudaGaussBlur(ObjectSubclass<imp::CudaGaussBlur>)
        @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

/// Registers the element with rank none, so that decodebin and playbin never select it.
pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    for enum_type in [settings::Backend::static_type(), settings::Planes::static_type(), settings::Alpha::static_type()]
    {
        enum_type.mark_as_plugin_api(gst::PluginAPIFlags::empty());
    }
    gst::Element::register(Some(plugin), "cudagaussblur", gst::Rank::NONE, CudaGaussBlur::static_type())
}
