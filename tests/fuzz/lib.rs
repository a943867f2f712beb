// SPDX-License-Identifier: MPL-2.0
//! What the fuzz targets share: the element in a harness, GStreamer with critical messages that end the process as a panic does, and
//! numbers.

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

/// A started element on the CPU in a harness.
pub struct Blur {
    /// The element.
    pub element: gst::Element,
    /// Its own bus.
    pub bus: gst::Bus,
    harness: gst_check::Harness,
}

impl Blur {
    /// With properties as in a gst-launch line, for frames of this format. Downstream takes a GstVideoMeta.
    pub fn new(properties: &str, info: &VideoInfo) -> Self {
        init();
        let element = gst::ElementFactory::make("cudagaussblur").property_from_str("backend", "cpu").build();
        let (element, bus) = (element.expect("the element is registered"), gst::Bus::new());
        for (name, value) in properties.split_whitespace().filter_map(|property| property.split_once('=')) {
            element.set_property_from_str(name, value);
        }
        element.set_bus(Some(&bus));
        let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
        harness.add_propose_allocation_meta(gst_video::VideoMeta::meta_api(), None);
        harness.play();
        harness.set_src_caps(info.to_caps().expect("the format has caps"));
        Self { element, bus, harness }
    }

    /// Pushes a frame, and returns what leaves the element.
    pub fn push(&mut self, buffer: gst::Buffer) -> Result<gst::Buffer, gst::FlowError> {
        self.harness.push(buffer)?;
        Ok(self.harness.try_pull().expect("a frame leaves for each that enters"))
    }
}

impl Drop for Blur {
    fn drop(&mut self) {
        // Messages on the bus keep the element alive, and it the bus.
        self.bus.set_flushing(true);
    }
}

/// The bytes of a GRAY8 frame without padding between its rows.
pub fn gray(buffer: &gst::Buffer, info: &VideoInfo) -> Vec<u8> {
    let map = buffer.map_readable().expect("the output is readable");
    let stride = buffer.meta::<gst_video::VideoMeta>().map_or(info.stride()[0], |meta| meta.stride()[0]);
    let (stride, width) = (stride as usize, info.width() as usize);
    (0..info.height() as usize).flat_map(|y| map[y * stride..][..width].to_vec()).collect()
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
