//! Several threads on one element: frames, properties, events, queries, and starts and stops at any time. No frame leaves it
//! uncovered, and nothing waits for good.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::Noise;
use crate::common::fake_driver::FakeDriver;
use crate::common::video::{self, bus_of, texts};
use gst::prelude::*;
use gst_video::{VideoFormat, VideoRegionOfInterestMeta};

const SIZE: [u32; 2] = [97, 61];
/// The object: left, top, width and height.
const FACE: [u32; 4] = [20, 10, 44, 40];
const FRAMES: u32 = 1000;

/// The properties that change, with values none of which shows the object.
const PROPERTIES: [(&str, &[&str]); 10] = [
    ("region-mode", &["inside", "inside", "frame"]),
    ("cover", &["blur", "mosaic", "fill"]),
    ("shape", &["box", "ellipse", "mask"]),
    ("sigma", &["1.5", "3", "5", "9", "40"]),
    ("kernel-size", &["0", "9", "31"]),
    ("strength", &["0.1", "0.25", "1"]),
    ("cells", &["1", "6"]),
    ("feather", &["0", "6"]),
    ("expand", &["0", "0.2", "1"]),
    ("post-messages", &["true", "false"]),
];

/// Samples of the picture that are the same in the middle of the object, where every shape has it, as a share of all there.
fn same(picture: &[u8], output: &gst::BufferRef, stride: usize) -> f64 {
    let map = output.map_readable().unwrap();
    let [left, top, width, height] = FACE.map(|side| side as usize);
    let places = (top + height / 4..top + 3 * height / 4)
        .flat_map(|y| (left + width / 4..left + 3 * width / 4).map(move |x| y * stride + x));
    let equal = places.clone().filter(|at| map[*at] == picture[*at]).count();
    equal as f64 / places.count() as f64
}

/// Calls `work` with another number each time until `is_done`.
fn until(is_done: &AtomicBool, seed: u64, pause: Duration, mut work: impl FnMut(usize)) {
    let mut noise = Noise(seed);
    while !is_done.load(Ordering::Relaxed) {
        work(noise.next() as usize % 1000);
        std::thread::sleep(pause);
    }
}

fn stress(properties: &str, seed: u64) {
    let element = video::element(&format!("region-sources=roi region-mode=inside {properties}"));
    let bus = bus_of(&element);
    let info = video::info(VideoFormat::Gray8, SIZE[0], SIZE[1]);
    let (stride, picture) = (info.stride()[0] as usize, Noise(seed).bytes(info.size()));
    let (arrived, shown) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
    let sink = {
        let (arrived, shown, picture) = (arrived.clone(), shown.clone(), picture.clone());
        let builder = gst::Pad::builder(gst::PadDirection::Sink).name("sink").event_function(|_, _, _| true);
        let chain = move |_: &gst::Pad, _: Option<&gst::Object>, buffer: gst::Buffer| {
            arrived.fetch_add(1, Ordering::Relaxed);
            let same = same(&picture, &buffer, stride);
            if same > 0.1 {
                shown.lock().unwrap().push((buffer.pts(), same));
            }
            Ok(gst::FlowSuccess::Ok)
        };
        builder.chain_function(chain).build()
    };
    let src = gst::Pad::builder(gst::PadDirection::Src).name("src").build();
    src.link(&element.static_pad("sink").unwrap()).unwrap();
    element.static_pad("src").unwrap().link(&sink).unwrap();
    sink.set_active(true).unwrap();
    src.set_active(true).unwrap();
    element.set_state(gst::State::Playing).unwrap();
    let begin = || {
        src.push_event(gst::event::StreamStart::new("frames"));
        src.push_event(gst::event::Caps::new(&info.to_caps().unwrap()));
        src.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    };
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begin();
            let mut frame = 0;
            while arrived.load(Ordering::Relaxed) < FRAMES {
                frame += 1;
                let mut buffer = gst::Buffer::from_mut_slice(picture.clone());
                let frame_buffer = buffer.make_mut();
                frame_buffer.set_pts(video::FRAME * frame);
                VideoRegionOfInterestMeta::add(frame_buffer, "face", FACE.into());
                // It was flushed, or is stopped.
                if src.push(buffer).is_err() {
                    std::thread::sleep(Duration::from_millis(1));
                    begin();
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            until(&is_done, seed + 1, Duration::from_micros(200), |number| {
                let (name, values) = PROPERTIES[number % PROPERTIES.len()];
                element.set_property_from_str(name, values[number / 10 % values.len()]);
            });
        });
        scope.spawn(|| {
            until(&is_done, seed + 2, Duration::from_micros(500), |number| match number % 16 {
                0 => {
                    src.push_event(gst::event::FlushStart::new());
                    src.push_event(gst::event::FlushStop::new(true));
                }
                1 => _ = sink.push_event(gst::event::Reconfigure::new()),
                2 => _ = sink.peer_query(&mut gst::query::Latency::new()),
                3 => _ = src.peer_query(&mut gst::query::Allocation::new(Some(&info.to_caps().unwrap()), true)),
                4 => _ = src.peer_query_caps(None),
                5 => _ = src.push_event(gst::event::Gap::new(video::FRAME, video::FRAME)),
                6 => _ = element.property::<gst::Structure>("stats"),
                _ => _ = element.property_value("active-backend"),
            });
        });
        scope.spawn(|| {
            until(&is_done, seed + 3, Duration::from_millis(12), |number| {
                let state = [gst::State::Paused, gst::State::Ready, gst::State::Null][number % 3];
                element.set_state(state).unwrap();
                element.set_state(gst::State::Playing).unwrap();
            });
        });
    });
    element.set_state(gst::State::Null).unwrap();
    let shown = shown.lock().unwrap();
    assert!(shown.is_empty(), "{properties}: frames are not covered: {shown:?}");
    let errors: BTreeSet<String> = texts(&bus, gst::MessageType::Error).into_iter().collect();
    assert!(errors.iter().all(|error| error == "received a buffer before caps"), "{properties}: {errors:?}");
}

#[test]
fn several_threads_use_one_element() {
    let _machine = FakeDriver::new();
    for (seed, properties) in
        ["backend=cpu", "backend=cpu look-ahead=3", "backend=cuda", "backend=cuda max-in-flight=3"]
            .into_iter()
            .enumerate()
    {
        stress(properties, 10 * seed as u64);
    }
}
