//! What the tests of both elements share: an element in a harness, and frames.

use std::time::Duration;

use gst::prelude::*;
use gst_video::{VideoCropMeta, VideoFrameFlags, VideoInfo, VideoMeta, VideoRegionOfInterestMeta};

/// The size of the demo's portrait in these tests.
pub const PORTRAIT: [u32; 2] = [480, 400];

pub fn make(name: &str) -> gst::Element {
    gst::init().unwrap();
    gstdetectors::plugin_register_static().unwrap();
    gst::ElementFactory::make(name).build().unwrap()
}

pub struct Detector {
    pub element: gst::Element,
    pub bus: gst::Bus,
    pub harness: gst_check::Harness,
}

/// The element, started, with a bus of its own, for frames of these caps.
pub fn started(element: gst::Element, properties: &[(&str, u32)], caps: &gst::CapsRef) -> Detector {
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    properties.iter().for_each(|(name, value)| element.set_property(name, value));
    let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
    harness.set_src_caps(caps.to_owned());
    Detector { element, bus, harness }
}

impl Detector {
    pub fn search(&mut self, frame: gst::Buffer) -> gst::Buffer {
        let pushed = self.harness.push(frame);
        assert!(pushed.is_ok(), "{pushed:?}: {:?}", self.error());
        self.harness.pull().unwrap()
    }

    /// Jumps, as a player does, to a segment of this rate.
    pub fn seek(&mut self, rate: f64) {
        let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
        segment.set_rate(rate);
        let flush = [gst::event::FlushStart::new(), gst::event::FlushStop::new(true)];
        for event in flush.into_iter().chain([gst::event::Segment::new(&segment)]) {
            assert!(self.harness.push_event(event));
        }
    }

    pub fn error(&self) -> Option<String> {
        let message = self.bus.pop_filtered(&[gst::MessageType::Error])?;
        let gst::MessageView::Error(error) = message.view() else { unreachable!("it is filtered") };
        Some(error.error().message().to_owned())
    }

    pub fn stats(&self, name: &str) -> u64 {
        self.element.property::<gst::Structure>("stats").get(name).unwrap()
    }
}

/// A frame of a description.
pub fn drawn(description: &str) -> gst::Sample {
    gst::init().unwrap();
    let pipeline = gst::parse::launch(&format!("{description} ! appsink name=sink")).unwrap();
    let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let sample = pipeline.by_name("sink").unwrap().downcast::<gst_app::AppSink>().unwrap().pull_sample();
    pipeline.set_state(gst::State::Null).unwrap();
    sample.unwrap_or_else(|error| panic!("{description}: {error}"))
}

/// The demo's portrait in this format and size.
pub fn portrait(format: &str, [width, height]: [u32; 2]) -> gst::Sample {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/demo/face.jpg");
    drawn(&format!(
        "filesrc location=\"{file}\" ! jpegdec ! videoconvert ! videoscale ! \
         video/x-raw,format={format},width={width},height={height}"
    ))
}

pub fn blank(format: &str, [width, height]: [u32; 2]) -> gst::Sample {
    let caps = format!("video/x-raw,format={format},width={width},height={height}");
    drawn(&format!("videotestsrc num-buffers=1 pattern=white ! {caps}"))
}

/// The formats of an element, each with an odd size, and several sizes of I420.
pub fn formats_and_sizes(element: &gst::Element) -> Vec<(String, [u32; 2])> {
    let template = element.pad_template("sink").unwrap();
    let formats = template.caps().structure(0).unwrap().get::<gst::List>("format").unwrap();
    assert_eq!(formats.len(), 23);
    let sizes = [[479, 399], [961, 403], [330, 401], PORTRAIT, [1920, 1600]];
    let odd = formats.iter().enumerate().map(|(number, format)| (format.get().unwrap(), sizes[number % 3]));
    odd.chain(sizes.map(|size| ("I420".to_owned(), size))).collect()
}

/// The portrait within a larger frame, in which a GstVideoCropMeta marks it.
pub fn cropped(format: &str) -> gst::Buffer {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/demo/face.jpg");
    let outer = drawn(&format!(
        "filesrc location=\"{file}\" ! jpegdec ! videoconvert ! video/x-raw,format={format} ! \
         videobox left=-336 top=-242 right=-16 bottom=-16"
    ));
    let info = VideoInfo::from_caps(outer.caps().unwrap()).unwrap();
    let [width, height] = [info.width(), info.height()];
    assert_eq!([width, height], [832, 658]);
    let mut cropped = frame(&outer, 0);
    let writable = cropped.get_mut().unwrap();
    let (offsets, strides) = (info.offset(), info.stride());
    VideoMeta::add_full(writable, VideoFrameFlags::empty(), info.format(), width, height, offsets, strides).unwrap();
    VideoCropMeta::add(writable, (336, 242, PORTRAIT[0], PORTRAIT[1]));
    cropped
}

/// The buffer of a sample as a frame at this time, which nobody else holds.
pub fn frame(sample: &gst::Sample, milliseconds: u64) -> gst::Buffer {
    let mut buffer = sample.buffer().unwrap().copy_deep().unwrap();
    let writable = buffer.get_mut().unwrap();
    writable.set_pts(gst::ClockTime::from_mseconds(milliseconds));
    writable.unset_flags(gst::BufferFlags::DISCONT);
    buffer
}

/// Labels and boxes, [left, top, right, bottom], of a frame.
pub fn boxes(frame: &gst::BufferRef) -> Vec<(String, [f64; 4])> {
    let metas = frame.iter_meta::<VideoRegionOfInterestMeta>();
    let sides = |(x, y, width, height): (u32, u32, u32, u32)| [x, y, x + width, y + height].map(f64::from);
    metas.map(|meta| (meta.roi_type().to_string(), sides(meta.rect()))).collect()
}

pub fn is_nothing(frame: &gst::BufferRef) -> bool {
    boxes(frame) == [("nothing".to_owned(), [0.; 4])]
}

/// The latency of upstream and of the searches, and whether a message says that it has changed.
pub fn latency(detector: &Detector) -> (Duration, usize) {
    let mut query = gst::query::Latency::new();
    assert!(detector.element.static_pad("src").unwrap().query(&mut query));
    let (_, min, max) = query.result();
    assert_eq!(max, None);
    let messages = std::iter::from_fn(|| detector.bus.pop_filtered(&[gst::MessageType::Latency]));
    (min.into(), messages.count())
}

/// Starts the element that is tested, for frames of these caps.
pub type Start<'a> = &'a dyn Fn(&gst::CapsRef) -> Detector;

pub fn assert_pictures_are_dropped(start: Start) {
    let sample = blank("GRAY8", [64, 48]);
    let mut detector = start(sample.caps().unwrap());
    let mut tags = gst::TagList::new();
    let list = tags.make_mut();
    list.add::<gst::tags::Image>(&sample, gst::TagMergeMode::Append);
    list.add::<gst::tags::PreviewImage>(&sample, gst::TagMergeMode::Append);
    list.add::<gst::tags::Attachment>(&sample, gst::TagMergeMode::Append);
    // Demuxers pass on tags that they do not know as samples, too.
    list.add::<gst::tags::ApplicationData>(&sample, gst::TagMergeMode::Append);
    list.add::<gst::tags::Title>(&"Blumenfest", gst::TagMergeMode::Append);
    assert!(detector.harness.push_event(gst::event::Tag::new(tags)));
    let received = std::iter::from_fn(|| detector.harness.try_pull_event());
    let names: Vec<String> = received
        .filter_map(|event| match event.view() {
            gst::EventView::Tag(tag) => Some(tag.tag().iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>()),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(names, ["title"]);
}

/// Metas are those of another element, which may be wrong.
pub fn assert_short_frames_are_errors(start: Start) {
    let sample = blank("I420", [320, 240]);
    let size = 320 * 240 * 3 / 2;
    let error = |bytes: usize, meta: Option<([usize; 3], [i32; 3])>, crop: Option<(u32, u32)>| {
        let mut detector = start(sample.caps().unwrap());
        let mut buffer = gst::Buffer::from_slice(vec![0; bytes]);
        let writable = buffer.get_mut().unwrap();
        if let Some((offsets, strides)) = meta {
            // The function refuses some values that others write into a meta.
            let meta =
                VideoMeta::add(writable, VideoFrameFlags::empty(), gst_video::VideoFormat::I420, 320, 240).unwrap();
            // SAFETY: the meta is this buffer's, and only its numbers change.
            unsafe {
                let meta = &mut *meta.as_ptr().cast_mut();
                meta.offset[..3].copy_from_slice(&offsets);
                meta.stride[..3].copy_from_slice(&strides);
            }
        }
        if let Some((x, y)) = crop {
            VideoCropMeta::add(writable, (x, y, 320, 240));
        }
        let pushed = detector.harness.push(buffer);
        let error = detector.error();
        assert_eq!(pushed.is_err(), error.is_some());
        error
    };
    let (offsets, strides) = ([0, 76800, 96000], [320, 160, 160]);
    assert_eq!(error(size, Some((offsets, strides)), None), None);
    // Bottom-up, as some filters write it.
    assert_eq!(error(size, Some(([239 * 320, 76800, 96000], [-320, 160, 160])), None), None);
    let expected = |bytes: usize, corner: &str| {
        Some(format!("a frame of {bytes} bytes does not hold 320x240 pixels from {corner} on"))
    };
    assert_eq!(error(1000, None, None), expected(1000, "0, 0"));
    for (offsets, strides) in [
        (offsets, [1 << 20, 160, 160]),
        (offsets, [i32::MAX, 160, 160]),
        (offsets, [-320, 160, 160]),
        ([0, 76800, size], strides),
        ([0, usize::MAX, 96000], strides),
    ] {
        assert_eq!(error(size, Some((offsets, strides)), None), expected(size, "0, 0"), "{offsets:?} {strides:?}");
    }
    assert_eq!(error(size, None, Some((16, 300))), expected(size, "16, 300"));
}

/// Once, and only in a live stream: files take as long as they take.
pub fn assert_slow_searches_are_warned_of(start: Start) {
    let sample = blank("GRAY8", [640, 480]);
    for is_live in [false, true] {
        let mut detector = start(sample.caps().unwrap());
        if is_live {
            latency(&detector);
        }
        (0..40).for_each(|time| drop(detector.search(frame(&sample, time))));
        let warnings = detector.bus.iter_filtered(&[gst::MessageType::Warning]).count();
        assert_eq!(warnings, usize::from(is_live));
    }
}
