// SPDX-License-Identifier: MPL-2.0
//! What the fuzz targets share: numbers, GStreamer with critical messages that end the process as a panic does, and metas and frames
//! for the element.

use std::sync::OnceLock;

use arbitrary::Arbitrary;
use gst::glib::translate::IntoGlib;
use gst::prelude::*;
use gst_video::VideoInfo;
use gstcudagaussblur::cpu::CpuEngine;

/// A number around one that is right.
#[derive(Arbitrary, Debug)]
#[expect(missing_docs, reason = "their names say it")]
pub enum Number {
    Right,
    Near(i8),
    Small(u16),
    Any(i64),
}

impl Number {
    /// The number, where this one is right.
    pub fn get(&self, right: i64) -> i64 {
        match self {
            Self::Right => right,
            Self::Near(by) => right.wrapping_add((*by).into()),
            Self::Small(number) => i64::from(number % 5000),
            Self::Any(number) => *number,
        }
    }
}

/// Initialises GStreamer and registers the element.
pub fn init() {
    static ENGINE: OnceLock<CpuEngine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        gst::init().expect("GStreamer starts");
        gstcudagaussblur::plugin_register_static().expect("the element is registered");
        gst::glib::log_set_default_handler(|domain, level, text| {
            if let gst::glib::LogLevel::Critical | gst::glib::LogLevel::Error = level {
                panic!("critical message of {}: {text}", domain.unwrap_or("?"));
            }
        });
        // The worker threads live as long as there is an engine.
        CpuEngine::new()
    });
}

/// Pushes a frame of this format through an element on the CPU with properties as in a gst-launch line, and returns what leaves it.
/// Downstream takes a GstVideoMeta.
pub fn push(properties: &str, info: &VideoInfo, frame: gst::Buffer) -> Result<gst::Buffer, gst::FlowError> {
    let element = gst::ElementFactory::make("cudagaussblur").property_from_str("backend", "cpu").build();
    let element = element.expect("the element is registered");
    for (name, value) in properties.split_whitespace().filter_map(|property| property.split_once('=')) {
        element.set_property_from_str(name, value);
    }
    let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
    harness.add_propose_allocation_meta(gst_video::VideoMeta::meta_api(), None);
    harness.play();
    harness.set_src_caps(info.to_caps().expect("the format has caps"));
    harness.push(frame)?;
    Ok(harness.try_pull().expect("a frame leaves for each that enters"))
}

/// Adds a GstVideoMeta that says this, true or not. The bindings look at the size of the buffer.
pub fn add_meta(
    buffer: &mut gst::Buffer,
    format: gst_video::VideoFormat,
    [width, height]: [u32; 2],
    planes: u32,
    offsets: [usize; 4],
    strides: [i32; 4],
) {
    let buffer = buffer.make_mut().as_mut_ptr();
    // SAFETY: the buffer is live and writable, so that the function returns a live meta of it.
    unsafe {
        let meta = &mut *gst_video::ffi::gst_buffer_add_video_meta(buffer, 0, format.into_glib(), 1, 1);
        (meta.width, meta.height, meta.n_planes) = (width, height, planes);
        (meta.offset, meta.stride) = (offsets, strides);
    }
}
