//! Several threads on one element: frames, properties, events, queries, and starts and stops at any time. No frame leaves it
//! uncovered, and there is no deadlock.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::Noise;
use crate::common::fake_driver::FakeDriver;
use crate::common::video::{self, bus_of, texts};
use gst::prelude::*;
use gst_video::{VideoFormat, VideoRegionOfInterestMeta};

const SIZE: [u32; 2] = [97, 61];
/// The object: left, top, width and height.
const FACE: [u32; 4] = [20, 10, 44, 40];
/// A run takes seconds.
const DEADLOCK: Duration = Duration::from_secs(300);

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

/// The share of samples in the middle of the object, which every shape contains, that equal the source's.
fn unchanged_share(picture: &[u8], output: &gst::BufferRef, stride: usize) -> f64 {
    let map = output.map_readable().unwrap();
    let [left, top, width, height] = FACE.map(|side| side as usize);
    let places = (top + height / 4..top + 3 * height / 4)
        .flat_map(|y| (left + width / 4..left + 3 * width / 4).map(move |x| y * stride + x));
    let equal = places.clone().filter(|at| map[*at] == picture[*at]).count();
    equal as f64 / places.count() as f64
}

fn stress(properties: &str, frames: u32, seed: u64) {
    let element = video::element(&format!("region-sources=roi region-mode=inside {properties}"));
    let bus = bus_of(&element);
    let info = video::info(VideoFormat::Gray8, SIZE[0], SIZE[1]);
    let (stride, picture) = (info.stride()[0] as usize, Noise(seed).bytes(info.size()));
    let (arrived, uncovered) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
    let chain = {
        let (arrived, uncovered, picture) = (arrived.clone(), uncovered.clone(), picture.clone());
        move |_: &gst::Pad, _: Option<&gst::Object>, buffer: gst::Buffer| {
            arrived.fetch_add(1, Ordering::Relaxed);
            let share = unchanged_share(&picture, &buffer, stride);
            if share > 0.1 {
                uncovered.lock().unwrap().push((buffer.pts(), share));
            }
            Ok(gst::FlowSuccess::Ok)
        }
    };
    let sink = gst::Pad::builder(gst::PadDirection::Sink).event_function(|_, _, _| true).chain_function(chain).build();
    let src = gst::Pad::builder(gst::PadDirection::Src).build();
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
    let count = || arrived.load(Ordering::Relaxed);
    let is_done = || count() >= frames;
    // Calls `work` with another number each time, after so many more frames have arrived, and a pause.
    let repeat = |seed: u64, more: u32, pause: u64, work: &dyn Fn(usize)| {
        let mut noise = Noise(seed);
        while !is_done() {
            let next = count() + more;
            while !is_done() && count() < next {
                std::thread::sleep(Duration::from_micros(100));
            }
            work(noise.next() as usize % 1000);
            std::thread::sleep(Duration::from_micros(pause));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begin();
            for frame in 1.. {
                if is_done() {
                    break;
                }
                let mut buffer = gst::Buffer::from_mut_slice(picture.clone());
                let frame_buffer = buffer.make_mut();
                frame_buffer.set_pts(video::FRAME * frame);
                VideoRegionOfInterestMeta::add(frame_buffer, "face", FACE.into());
                // A flush takes the segment away.
                if src.sticky_event::<gst::event::Segment>(0).is_none() {
                    src.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
                }
                // It was flushed, or is stopped.
                if src.push(buffer).is_err() {
                    std::thread::sleep(Duration::from_millis(1));
                    begin();
                }
            }
        });
        scope.spawn(|| {
            repeat(seed + 1, 0, 200, &|number| {
                let (name, values) = PROPERTIES[number % PROPERTIES.len()];
                element.set_property_from_str(name, values[number / 10 % values.len()]);
            });
        });
        scope.spawn(|| {
            repeat(seed + 2, 0, 500, &|number| match number % 16 {
                0 | 1 => _ = sink.push_event(gst::event::Reconfigure::new()),
                2 => _ = sink.peer_query(&mut gst::query::Latency::new()),
                3 => _ = src.peer_query(&mut gst::query::Allocation::new(Some(&info.to_caps().unwrap()), true)),
                4 => _ = src.peer_query_caps(None),
                5 => _ = src.push_event(gst::event::Gap::new(video::FRAME, video::FRAME)),
                6 => _ = element.property::<gst::Structure>("stats"),
                _ => _ = element.property_value("active-backend"),
            });
        });
        scope.spawn(|| {
            repeat(seed + 3, 8, 5000, &|number| match number % 6 {
                0..3 => {
                    src.push_event(gst::event::FlushStart::new());
                    src.push_event(gst::event::FlushStop::new(true));
                }
                state => {
                    element.set_state([gst::State::Paused, gst::State::Ready, gst::State::Null][state - 3]).unwrap();
                    element.set_state(gst::State::Playing).unwrap();
                }
            });
        });
        let begun = Instant::now();
        while !is_done() {
            std::thread::sleep(Duration::from_millis(10));
            if begun.elapsed() > DEADLOCK {
                eprintln!("{properties}: {} of {frames} frames arrived", count());
                std::process::abort();
            }
        }
    });
    let backend = format!("backend={}", video::nick(&element, "active-backend"));
    assert!(properties.starts_with(&backend), "{properties}: {backend}");
    element.set_state(gst::State::Null).unwrap();
    let uncovered = uncovered.lock().unwrap();
    assert!(uncovered.is_empty(), "{properties}: frames are not covered: {uncovered:?}");
    let errors: BTreeSet<String> = texts(&bus, gst::MessageType::Error).into_iter().collect();
    assert!(errors.iter().all(|error| error == "received a buffer before caps"), "{properties}: {errors:?}");
}

#[test]
fn several_threads_use_one_element() {
    let _machine = FakeDriver::new();
    // Emulated kernels take long.
    for (seed, properties, frames) in [
        (0, "backend=cpu", 1000),
        (10, "backend=cpu look-ahead=3", 1000),
        (20, "backend=cuda", 200),
        (30, "backend=cuda max-in-flight=3", 200),
    ] {
        stress(properties, frames, seed);
    }
}
