//! The element `centerface`, in a harness and as a program's user starts it. Its plugin is loaded from the file that cargo has built
//! for the tests; the packaged crate has none. Tests that search pictures need the model, which scripts/models downloads.

use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

use gst::glib;
use gst::prelude::*;
use gst_video::{VideoCropMeta, VideoFrameFlags, VideoInfo, VideoMeta, VideoRegionOfInterestMeta};

use super::examples::{Workspace, has_detectors, models, plugin};
use crate::common::video::bus_of;

/// Where the face is in the demo's portrait, located by hand, and the portrait's size.
const FACE: [f64; 4] = [174., 62., 276., 180.];
const PORTRAIT: [u32; 2] = [480, 400];

/// The element on a bus of its own. `None` without the plugin.
fn element() -> Option<(gst::Element, gst::Bus)> {
    static LOADED: Once = Once::new();
    if !has_detectors() {
        return None;
    }
    LOADED.call_once(|| {
        gst::init().unwrap();
        gst::Plugin::load_file(plugin("detectors")).unwrap();
    });
    let element = gst::ElementFactory::make("centerface").build().unwrap();
    let bus = bus_of(&element);
    Some((element, bus))
}

struct Detector {
    element: gst::Element,
    bus: gst::Bus,
    harness: gst_check::Harness,
}

/// A started element with its model, for frames of these caps. `None` without the plugin or the model.
fn detector(properties: &[(&str, u32)], caps: &gst::CapsRef) -> Option<Detector> {
    let model = PathBuf::from(models()).join("centerface.onnx");
    let (element, bus) = element().filter(|_| model.exists())?;
    element.set_property("model", model.to_str().unwrap());
    properties.iter().for_each(|(name, value)| element.set_property(name, value));
    let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
    harness.set_src_caps(caps.to_owned());
    Some(Detector { element, bus, harness })
}

impl Detector {
    fn search(&mut self, frame: gst::Buffer) -> gst::Buffer {
        let pushed = self.harness.push(frame);
        assert!(pushed.is_ok(), "{pushed:?}: {:?}", self.error());
        self.harness.pull().unwrap()
    }

    fn error(&self) -> Option<String> {
        let message = self.bus.pop_filtered(&[gst::MessageType::Error])?;
        let gst::MessageView::Error(error) = message.view() else { unreachable!("it is filtered") };
        Some(error.error().message().to_owned())
    }

    fn stats(&self, name: &str) -> u64 {
        self.element.property::<gst::Structure>("stats").get(name).unwrap()
    }
}

/// A frame of a description.
fn drawn(description: &str) -> gst::Sample {
    gst::init().unwrap();
    let pipeline = gst::parse::launch(&format!("{description} ! appsink name=sink")).unwrap();
    let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let sample = pipeline.by_name("sink").unwrap().downcast::<gst_app::AppSink>().unwrap().pull_sample();
    pipeline.set_state(gst::State::Null).unwrap();
    sample.unwrap_or_else(|error| panic!("{description}: {error}"))
}

/// The demo's portrait in this format and size.
fn portrait(format: &str, [width, height]: [u32; 2]) -> gst::Sample {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo/face.jpg");
    drawn(&format!(
        "filesrc location=\"{file}\" ! jpegdec ! videoconvert ! videoscale ! \
         video/x-raw,format={format},width={width},height={height}"
    ))
}

fn blank(format: &str, [width, height]: [u32; 2]) -> gst::Sample {
    let caps = format!("video/x-raw,format={format},width={width},height={height}");
    drawn(&format!("videotestsrc num-buffers=1 pattern=white ! {caps}"))
}

/// The buffer of a sample as a frame at this time, which nobody else holds.
fn frame(sample: &gst::Sample, milliseconds: u64) -> gst::Buffer {
    let mut buffer = sample.buffer().unwrap().copy_deep().unwrap();
    let writable = buffer.get_mut().unwrap();
    writable.set_pts(gst::ClockTime::from_mseconds(milliseconds));
    writable.unset_flags(gst::BufferFlags::DISCONT);
    buffer
}

/// Labels and boxes, [left, top, right, bottom], of a frame.
fn boxes(frame: &gst::BufferRef) -> Vec<(String, [f64; 4])> {
    let metas = frame.iter_meta::<VideoRegionOfInterestMeta>();
    let sides = |(x, y, width, height): (u32, u32, u32, u32)| [x, y, x + width, y + height].map(f64::from);
    metas.map(|meta| (meta.roi_type().to_string(), sides(meta.rect()))).collect()
}

fn is_nothing(frame: &gst::BufferRef) -> bool {
    boxes(frame) == [("nothing".to_owned(), [0.; 4])]
}

/// Asserts that a frame has one box, which is that of the portrait's face in a picture of this size, and its confidence.
fn assert_face(frame: &gst::BufferRef, size: [u32; 2], what: &str) {
    let found = boxes(frame);
    let [(label, sides)] = &found[..] else { panic!("{what}: {found:?}") };
    let area = |[left, top, right, bottom]: [f64; 4]| (right - left).max(0.) * (bottom - top).max(0.);
    let scale = [0, 1].map(|axis| f64::from(size[axis]) / f64::from(PORTRAIT[axis]));
    let face: [f64; 4] = std::array::from_fn(|side| FACE[side] * scale[side % 2]);
    let common =
        std::array::from_fn(|side| if side < 2 { sides[side].max(face[side]) } else { sides[side].min(face[side]) });
    let share = area(common) / (area(*sides) + area(face) - area(common));
    assert!(label == "face" && share > 0.55, "{what}: {label} at {sides:?}, of {share:.2} in common with {face:?}");
    let meta = frame.meta::<VideoRegionOfInterestMeta>().unwrap();
    let confidence = meta.param("detection").unwrap().get::<f64>("confidence").unwrap();
    assert!((0.5..=1.).contains(&confidence), "{what}: {confidence}");
}

#[test]
fn faces_are_found_in_every_format_and_size() {
    let Some((element, _)) = element() else { return };
    let template = element.pad_template("sink").unwrap();
    let formats = template.caps().structure(0).unwrap().get::<gst::List>("format").unwrap();
    let formats: Vec<String> = formats.iter().map(|format| format.get().unwrap()).collect();
    assert_eq!(formats.len(), 19);
    let sizes = [[479, 399], [961, 403], [330, 401], PORTRAIT, [1920, 1600]];
    // Every format with an odd size, and every size.
    let cases = formats.iter().enumerate().map(|(number, format)| (&**format, sizes[number % 3]));
    for (format, size) in cases.chain(sizes.map(|size| ("I420", size))) {
        let what = format!("{format} {size:?}");
        for (sample, has_face) in [(portrait(format, size), true), (blank(format, size), false)] {
            let Some(mut detector) = detector(&[], sample.caps().unwrap()) else { return };
            let found = detector.search(frame(&sample, 0));
            if has_face {
                assert_face(&found, size, &what);
            } else {
                assert!(is_nothing(&found), "{what}: {:?}", boxes(&found));
            }
        }
    }
}

/// Boxes count from the corner that a GstVideoCropMeta of the caps' size names. One of another size shows a part of the picture.
#[test]
fn the_picture_is_where_a_crop_meta_says() {
    for format in ["I420", "YUY2", "RGB"] {
        let inner = portrait(format, PORTRAIT);
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo/face.jpg");
        let outer = drawn(&format!(
            "filesrc location=\"{file}\" ! jpegdec ! videoconvert ! video/x-raw,format={format} ! \
             videobox left=-336 top=-242 right=-16 bottom=-16"
        ));
        let Some(mut detector) = detector(&[], inner.caps().unwrap()) else { return };
        let info = VideoInfo::from_caps(outer.caps().unwrap()).unwrap();
        assert_eq!([info.width(), info.height()], [832, 658]);
        let mut cropped = frame(&outer, 0);
        let writable = cropped.get_mut().unwrap();
        VideoMeta::add_full(
            writable,
            VideoFrameFlags::empty(),
            info.format(),
            info.width(),
            info.height(),
            info.offset(),
            info.stride(),
        )
        .unwrap();
        VideoCropMeta::add(writable, (336, 242, PORTRAIT[0], PORTRAIT[1]));
        assert_face(&detector.search(cropped), PORTRAIT, format);

        let mut part = frame(&inner, 1000);
        VideoCropMeta::add(part.get_mut().unwrap(), (100, 20, 200, 200));
        assert_face(&detector.search(part), PORTRAIT, format);
    }
}

/// The frames of these times that are searched. All others vouch for themselves too.
fn searched(detector: &mut Detector, sample: &gst::Sample, times: impl Iterator<Item = u64>) -> Vec<u64> {
    let is_searched = |time: &u64| {
        let found = detector.search(frame(sample, *time));
        let is_searched = !is_nothing(&found);
        if is_searched {
            assert_face(&found, PORTRAIT, &format!("{time} ms"));
        }
        is_searched
    };
    times.filter(is_searched).collect()
}

#[test]
fn one_frame_in_so_many_is_searched_and_four_a_second() {
    let sample = portrait("I420", PORTRAIT);
    let Some(mut detector) = detector(&[("every", 4), ("size", 256)], sample.caps().unwrap()) else { return };
    assert_eq!(searched(&mut detector, &sample, (0..10).map(|n| 33 * n)), [0, 132, 264]);
    assert_eq!(["frames", "analyzed"].map(|name| detector.stats(name)), [10, 3]);
    assert!(detector.stats("mean-ns") > 0);
    // A gap, and a property that changes.
    let mut gap = frame(&sample, 330);
    gap.get_mut().unwrap().set_flags(gst::BufferFlags::DISCONT);
    assert_face(&detector.search(gap), PORTRAIT, "after a gap");
    detector.element.set_property("every", 1000u32);
    assert_eq!(searched(&mut detector, &sample, (1..12).map(|n| 330 + 100 * n)), [530, 730, 930, 1130, 1330]);
    // Time that goes back, and frames without timestamps.
    assert_eq!(searched(&mut detector, &sample, [100, 133].into_iter()), [100]);
    for _ in 0..2 {
        let mut untimed = frame(&sample, 0);
        untimed.get_mut().unwrap().set_pts(None);
        assert_face(&detector.search(untimed), PORTRAIT, "without a timestamp");
    }
}

/// A frame that others hold, such as those of a tee, gets no metas. Its bytes are not copied.
#[test]
fn frames_that_others_hold_are_neither_copied_nor_changed() {
    let sample = portrait("I420", PORTRAIT);
    let Some(mut detector) = detector(&[], sample.caps().unwrap()) else { return };
    let memory = |buffer: &gst::BufferRef| buffer.peek_memory(0).as_ptr();
    for is_held in [false, true] {
        let pushed = frame(&sample, 0);
        let (buffer, bytes) = (pushed.as_ptr(), memory(&pushed));
        let held = is_held.then(|| pushed.clone());
        let found = detector.search(pushed);
        assert_face(&found, PORTRAIT, "held");
        assert_eq!((found.as_ptr() == buffer, memory(&found)), (!is_held, bytes));
        assert!(held.is_none_or(|held| boxes(&held).is_empty()));
    }
}

/// The latency of upstream and of the searches, and whether a message says that it has changed.
fn latency(detector: &Detector) -> (Duration, usize) {
    let mut query = gst::query::Latency::new();
    assert!(detector.element.static_pad("src").unwrap().query(&mut query));
    let (_, min, max) = query.result();
    assert_eq!(max, None);
    let messages = std::iter::from_fn(|| detector.bus.pop_filtered(&[gst::MessageType::Latency]));
    (min.into(), messages.count())
}

#[test]
fn the_latency_grows_by_the_time_of_searches_once_a_second_at_most() {
    let sample = portrait("I420", PORTRAIT);
    let Some(mut detector) = detector(&[("every", 1), ("size", 64)], sample.caps().unwrap()) else { return };
    let upstream = Duration::from_millis(20);
    detector.harness.set_upstream_latency(upstream.try_into().unwrap());
    let mut times = (0..).map(|number| 40 * number);
    let mut search = |detector: &mut Detector, count: usize| {
        times.by_ref().take(count).for_each(|time| _ = detector.search(frame(&sample, time)));
    };
    search(&mut detector, 1);
    assert_eq!(latency(&detector), (upstream, 0));
    let before = Instant::now();
    search(&mut detector, 1);
    let (short, messages) = latency(&detector);
    assert!(short > upstream && messages == 1, "{short:?}, {messages}");
    // Forty times as many cells.
    detector.element.set_property("size", 640u32);
    let mean = detector.stats("mean-ns");
    search(&mut detector, 2);
    let soon = latency(&detector);
    assert!(soon == (short, 0) || before.elapsed() >= Duration::from_secs(1), "{soon:?}, {short:?}");
    std::thread::sleep(Duration::from_secs(1));
    search(&mut detector, 1);
    let (long, messages) = latency(&detector);
    assert!(detector.stats("mean-ns") > 2 * mean && long > short && messages <= 1, "{long:?}, {short:?}, {messages}");
    // It does not shrink.
    detector.element.set_property("size", 64u32);
    search(&mut detector, 20);
    let (after, _) = latency(&detector);
    assert!(after >= long, "{after:?}, {long:?}");
    for state in [gst::State::Null, gst::State::Playing] {
        detector.element.set_state(state).unwrap();
    }
    assert_eq!(latency(&detector).0, upstream);
}

#[test]
fn pictures_among_the_tags_are_dropped() {
    let sample = blank("GRAY8", [64, 48]);
    let Some(mut detector) = detector(&[], sample.caps().unwrap()) else { return };
    let mut tags = gst::TagList::new();
    let list = tags.make_mut();
    list.add::<gst::tags::Image>(&sample, gst::TagMergeMode::Append);
    list.add::<gst::tags::PreviewImage>(&sample, gst::TagMergeMode::Append);
    list.add::<gst::tags::Attachment>(&sample, gst::TagMergeMode::Append);
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

/// GObject refuses values out of the range, with a warning.
#[test]
fn properties_have_ranges() {
    let Some((element, _)) = element() else { return };
    for (name, range) in [("every", [1, 1000, 5]), ("size", [64, 4096, 640]), ("threads", [0, 64, 0])] {
        let property = element.find_property(name).unwrap().downcast::<glib::ParamSpecUInt>().unwrap();
        assert_eq!([property.minimum(), property.maximum(), property.default_value()], range, "{name}");
    }
    let threshold = element.find_property("threshold").unwrap().downcast::<glib::ParamSpecFloat>().unwrap();
    assert_eq!([threshold.minimum(), threshold.maximum(), threshold.default_value()], [0., 1., 0.2]);
}

#[test]
fn a_frame_that_is_too_short_ends_the_stream_with_an_error() {
    let sample = blank("RGB", [320, 240]);
    let Some(mut detector) = detector(&[], sample.caps().unwrap()) else { return };
    let buffer = gst::Buffer::from_slice([0; 1000]);
    assert_eq!(detector.harness.push(buffer), Err(gst::FlowError::Error));
    assert_eq!(detector.error().as_deref(), Some("a frame cannot be read"));
}

/// What a user reads who lacks the model, has another file in its place, or has it in a data folder of the system.
#[test]
fn the_model_is_found_or_the_message_says_what_to_do() {
    if !has_detectors() {
        return;
    }
    let workspace = Workspace::new("centerface");
    let launch = "gst-launch-1.0 -q videotestsrc num-buffers=1 ! centerface";
    let says = |line: &str, expected: &str| {
        let stderr = workspace.stderr(line);
        let expected = expected.replace("$PWD", workspace.0.to_str().unwrap());
        assert!(stderr.contains(&expected), "{line}\n{expected}\nbut {stderr}");
    };
    workspace.write("other", "no model");
    says(&format!("{launch} model=none ! fakesink"), "none does not exist: check the property model\n");
    says(&format!("{launch} model=other ! fakesink"), "other cannot be used as the model: ");
    says(
        &format!("CUDAGAUSSBLUR_MODELS=$PWD {launch} ! fakesink"),
        "$PWD/centerface.onnx does not exist: run scripts/models\n",
    );
    // The folder beside the plugin's is that of `installed`, which has no models.
    let data = "CUDAGAUSSBLUR_MODELS= XDG_DATA_HOME=$PWD/home XDG_DATA_DIRS=$PWD/one:$PWD/two";
    says(
        &format!("{data} {launch} ! fakesink"),
        "/models/centerface.onnx, $PWD/home/cudagaussblur/models/centerface.onnx, $PWD/one/cudagaussblur/models/centerface.onnx, \
         $PWD/two/cudagaussblur/models/centerface.onnx exists: run scripts/models of the source, or set the property model\n",
    );
    if Path::new(&models()).join("centerface.onnx").exists() {
        workspace.shell("mkdir -p two/cudagaussblur; ln -s \"$CUDAGAUSSBLUR_MODELS\" two/cudagaussblur/models");
        workspace.stdout(&format!("{data} {launch} ! fakesink"));
    }
}
