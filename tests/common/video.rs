//! The element in a harness with its own bus, and conversion between pictures and buffers.

use gst::prelude::*;
use gst_video::{VideoFormat, VideoFrameExt, VideoInfo};

use super::Noise;
use super::cases::axis;
use super::oracle::Image;
use gstcudagaussblur::cuda::CudaEngine;
use gstcudagaussblur::element::format::formats as layouts;
use gstcudagaussblur::filter::BlurParams;

pub const FRAME: gst::ClockTime = gst::ClockTime::from_mseconds(40);

/// Initialises GStreamer and registers the element.
pub fn init() {
    gst::init().unwrap();
    gstcudagaussblur::plugin_register_static().unwrap();
}

/// The nick of an enum property's value.
pub fn nick(element: &gst::Element, property: &str) -> String {
    gst::glib::EnumValue::from_value(&element.property_value(property)).unwrap().1.nick().to_owned()
}

/// A property as the C struct `C` of the type `T`, if it has this type. The properties of numbers have types that derive from
/// GObject's, which the Rust bindings do not cast.
pub fn as_spec<C: Copy, T: gst::glib::types::StaticType>(spec: &gst::glib::ParamSpec) -> Option<C> {
    // SAFETY: the property is live, and its type is, or derives from, the one with this struct.
    spec.type_().is_a(T::static_type()).then(|| unsafe { *spec.as_ptr().cast::<C>() })
}

/// Gives an element its own bus, from which the test reads its messages.
pub fn bus_of(element: &impl IsA<gst::Element>) -> gst::Bus {
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    bus
}

/// Creates an element with `properties` as in a gst-launch line. It is not started.
pub fn element(properties: &str) -> gst::Element {
    init();
    let element = gst::ElementFactory::make("cudagaussblur").build().unwrap();
    set(&element, properties);
    element
}

/// Sets properties as in a gst-launch line.
pub fn set(element: &gst::Element, properties: &str) {
    for (name, value) in properties.split_whitespace().map(|property| property.split_once('=').unwrap()) {
        element.set_property_from_str(name, value);
    }
}

/// A started element in a harness.
pub struct Blur {
    pub element: gst::Element,
    pub harness: gst_check::Harness,
    pub bus: gst::Bus,
    frames: u64,
}

impl Blur {
    pub fn new(properties: &str) -> Self {
        let element = element(properties);
        let bus = bus_of(&element);
        let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
        harness.play();
        Self { element, harness, bus, frames: 0 }
    }

    pub fn caps(&mut self, info: &VideoInfo) {
        self.harness.set_src_caps(info.to_caps().unwrap());
    }

    /// Pushes a frame, stamped 40 ms after the previous one, and pulls one output buffer.
    pub fn push(&mut self, buffer: gst::Buffer) -> gst::Buffer {
        if let Err(error) = self.try_push(buffer) {
            panic!("{error:?}: {:?}", self.messages(gst::MessageType::Error));
        }
        self.harness.pull().unwrap()
    }

    pub fn try_push(&mut self, mut buffer: gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
        {
            let buffer = buffer.make_mut();
            buffer.set_pts(FRAME * self.frames);
            buffer.set_duration(FRAME);
        }
        self.frames += 1;
        self.harness.push(buffer)
    }

    /// Removes all messages of a kind from the bus and returns their texts.
    pub fn messages(&self, kind: gst::MessageType) -> Vec<String> {
        texts(&self.bus, kind)
    }
}

/// A counter in the element's `stats`.
pub fn stat(blur: &Blur, name: &str) -> u64 {
    blur.element.property::<gst::Structure>("stats").get(name).unwrap()
}

/// Removes all messages of a kind from a bus and returns their texts.
pub fn texts(bus: &gst::Bus, kind: gst::MessageType) -> Vec<String> {
    std::iter::from_fn(|| bus.pop_filtered(&[kind])).map(|message| text(&message)).collect()
}

pub fn text(message: &gst::Message) -> String {
    match message.view() {
        gst::MessageView::Error(error) => error.error().to_string(),
        gst::MessageView::Warning(warning) => warning.error().to_string(),
        other => format!("{other:?}"),
    }
}

pub fn info(format: VideoFormat, width: u32, height: u32) -> VideoInfo {
    init();
    VideoInfo::builder(format, width, height).fps((25, 1)).build().unwrap()
}

/// A picture of noise: one plane of 8-bit samples, with the size and channels of the caps.
pub fn picture(info: &VideoInfo, seed: u64) -> Image {
    let channels = info.comp_pstride(0) as usize;
    let (width, height) = (info.width() as usize, info.height() as usize);
    let samples = Noise(seed).bytes(width * height * channels).into_iter().map(u16::from).collect();
    Image { width, height, channels, depth: 8, samples }
}

/// The picture in a buffer with the strides of the caps.
pub fn buffer(info: &VideoInfo, image: &Image) -> gst::Buffer {
    let stride = info.stride()[0] as usize;
    let mut bytes = vec![0xa5; stride * image.height];
    for (row, samples) in bytes.chunks_mut(stride).zip(image.samples.chunks(image.width * image.channels)) {
        row.iter_mut().zip(samples).for_each(|(byte, sample)| *byte = *sample as u8);
    }
    gst::Buffer::from_mut_slice(bytes)
}

/// A buffer with a GstVideoMeta for planes at these offsets and strides.
pub fn with_meta(info: &VideoInfo, bytes: Vec<u8>, offsets: &[usize], strides: &[i32]) -> gst::Buffer {
    let mut buffer = gst::Buffer::from_mut_slice(bytes);
    let (flags, format) = (gst_video::VideoFrameFlags::empty(), info.format());
    let (width, height) = (info.width(), info.height());
    let meta = buffer.get_mut().unwrap();
    gst_video::VideoMeta::add_full(meta, flags, format, width, height, offsets, strides).unwrap();
    buffer
}

/// Offsets and strides of the planes of a buffer: those in its GstVideoMeta, else those of the caps.
pub fn offsets_and_strides(info: &VideoInfo, buffer: &gst::BufferRef) -> (Vec<usize>, Vec<i32>) {
    match buffer.meta::<gst_video::VideoMeta>() {
        Some(meta) => (meta.offset().to_vec(), meta.stride().to_vec()),
        None => (info.offset().to_vec(), info.stride().to_vec()),
    }
}

/// The bytes of a frame in any memory, without those between its rows.
pub fn bytes(info: &VideoInfo, buffer: gst::Buffer) -> Vec<u8> {
    let frame = gst_video::VideoFrame::from_buffer_readable(buffer, info).unwrap();
    let mut bytes = Vec::new();
    for (plane, layout) in (0..).zip(layouts::planes(info, false).unwrap()) {
        let rows = frame.plane_data(plane).unwrap().chunks(frame.plane_stride()[plane as usize] as usize);
        rows.take(layout.height as usize).for_each(|row| bytes.extend(&row[..layout.row_bytes()]));
    }
    bytes
}

/// The picture in a buffer.
pub fn read(info: &VideoInfo, buffer: &gst::Buffer) -> Image {
    let (width, height, channels) = (info.width() as usize, info.height() as usize, info.comp_pstride(0) as usize);
    let samples = bytes(info, buffer.clone()).into_iter().map(u16::from).collect();
    Image { width, height, channels, depth: 8, samples }
}

/// The oracle's blur of a picture.
pub fn blurred(image: &Image, sigma: f64, kernel_size: u32) -> Image {
    let axis = axis(&BlurParams::new(sigma, kernel_size).unwrap(), 1.0);
    image.blurred(&axis, &axis)
}

/// Pushes frames of which no part, the whole, both ends, or two adjacent parts are registered as pinned memory, and
/// checks that only one registration of the whole frame makes it count as pinned.
pub fn check_partly_pinned_frames() {
    let info = info(VideoFormat::Rgba, 100, 60);
    let image = picture(&info, 6);
    let source = CudaEngine::new(0).unwrap().pinned();
    let all = info.size();
    let table: [(&[(usize, usize)], u64); 4] =
        [(&[], 0), (&[(0, all)], 1), (&[(0, 4000), (all - 4000, 4000)], 0), (&[(0, 9000), (9000, all - 9000)], 0)];
    for (parts, pinned) in table {
        let bytes = buffer(&info, &image).map_readable().unwrap().to_vec();
        let address = bytes.as_ptr() as usize;
        // SAFETY: `bytes` moves into `frame`, which is dropped after `registered`.
        let register = |(offset, len): &(usize, usize)| unsafe { source.register(address + offset, *len) };
        let registered: Vec<_> = parts.iter().map(|part| register(part).unwrap().unwrap()).collect();
        let mut blur = Blur::with("backend=auto sigma=1", &info);
        let frame = gst::Buffer::from_mut_slice(bytes);
        assert!(read(&info, &blur.push(frame.clone())) == blurred(&image, 1.0, 0), "{parts:?}");
        assert_eq!(blur.stats(["frames-cuda", "frames-pinned-in"]), [1, pinned], "{parts:?}");
        blur.said(0, 0);
        drop((blur, registered, frame));
    }
}

/// Every format in the element's caps for host memory.
pub fn formats() -> Vec<VideoFormat> {
    formats_in(false)
}

/// Every format in the element's caps for CUDA memory; none without GStreamer's CUDA library.
pub fn cuda_formats() -> Vec<VideoFormat> {
    formats_in(true)
}

fn formats_in(cuda_memory: bool) -> Vec<VideoFormat> {
    init();
    let templates = gst::ElementFactory::find("cudagaussblur").unwrap().static_pad_templates();
    let caps = templates.iter().next().unwrap().caps();
    let is_wanted = |features: &gst::CapsFeaturesRef| features.contains("memory:CUDAMemory") == cuda_memory;
    let structure = caps.iter_with_features().find(|(_, features)| is_wanted(features)).map(|(structure, _)| structure);
    let formats = structure.map(|structure| structure.get::<gst::List>("format").unwrap());
    let names = formats.iter().flat_map(|formats| formats.iter());
    names.map(|name| VideoFormat::from_string(name.get::<&str>().unwrap())).collect()
}
