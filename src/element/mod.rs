// SPDX-License-Identifier: MPL-2.0
//! The GStreamer element: properties, caps, buffers and messages. It translates them to calls of the engine and
//! contains no CUDA code. `imp` has the virtual methods, which delegate to the other files.
//!
//! A frame enters (`entering`), is decided (`deciding`) and leaves (`leaving`). docs/ARCHITECTURE.md follows one.

mod cover;
mod deciding;
mod entering;
pub mod format;
mod frame_times;
mod imp;
mod latency;
mod leaving;
mod lifecycle;
mod memory;
mod messages;
mod properties;
mod queue;
pub mod regions;
mod session;
mod state;
mod timer;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    /// The `cudagaussblur` element.
    ///
    /// It is created by name or as an object of this type. Its properties are set by name; enums and flags have no public
    /// Rust type and are set from a string.
    ///
    /// ```
    /// use gst::prelude::*;
    /// use gstcudagaussblur::CudaGaussBlur;
    ///
    /// gst::init()?;
    /// let blur: CudaGaussBlur = gst::glib::Object::builder().property("sigma", 5.0).build();
    /// blur.set_property_from_str("planes", "luma+chroma");
    ///
    /// let pipeline = gst::Pipeline::new();
    /// let source = gst::ElementFactory::make("videotestsrc").property("num-buffers", 3).build()?;
    /// let sink = gst::ElementFactory::make("fakesink").build()?;
    /// pipeline.add_many([&source, blur.upcast_ref(), &sink])?;
    /// gst::Element::link_many([&source, blur.upcast_ref(), &sink])?;
    /// pipeline.set_state(gst::State::Playing)?;
    /// blur.set_property("sigma", 8.0); // From the next frame on.
    ///
    /// let ends = [gst::MessageType::Eos, gst::MessageType::Error];
    /// let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::NONE, &ends).unwrap();
    /// assert_eq!(end.type_(), gst::MessageType::Eos);
    /// assert_eq!(blur.property::<gst::Structure>("stats").get::<u64>("frames")?, 3);
    /// pipeline.set_state(gst::State::Null)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Properties
    ///
    /// "stopped" is in the state NULL or READY.
    ///
    #[doc = include_str!("properties/list.md")]
    pub struct CudaGaussBlur(ObjectSubclass<state::SharedState>)
        @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

/// Registers the element with rank none, so that decodebin and playbin never select it.
pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    for spec in properties::param_specs() {
        let of = spec.value_type();
        // The documentation lists the values of these types.
        if of.is_a(glib::Type::ENUM) || of.is_a(glib::Type::FLAGS) {
            of.mark_as_plugin_api(gst::PluginAPIFlags::empty());
        }
    }
    gst::Element::register(Some(plugin), "cudagaussblur", gst::Rank::NONE, CudaGaussBlur::static_type())
}
