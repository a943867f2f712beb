// SPDX-License-Identifier: MPL-2.0
//! Any value of `zones`, as text or as structures: it is refused and reads back as it was, or reads back as zones within their
//! limits that read back as themselves, and exactly what they cover of a frame is covered.
#![no_main]

use std::cell::RefCell;

use arbitrary::Arbitrary;
use cudagaussblur_fuzz::{Blur, gray};
use gst::{glib, prelude::*};
use gst_video::{VideoFormat, VideoInfo};

const SIZE: [u32; 2] = [16, 12];
const SECOND: gst::ClockTime = gst::ClockTime::SECOND;

#[derive(Arbitrary, Debug)]
enum Field {
    Share(u8),
    Int(i32),
    Long(i64),
    Unsigned(u32),
    UnsignedLong(u64),
    Milliseconds(u16),
    Double(f64),
    Float(f32),
    Text(Option<String>),
}

impl Field {
    fn value(&self) -> glib::SendValue {
        match self {
            Self::Share(share) => (f64::from(*share) / 240.0).to_send_value(),
            Self::Int(number) => number.to_send_value(),
            Self::Long(number) => number.to_send_value(),
            Self::Unsigned(number) => number.to_send_value(),
            Self::UnsignedLong(number) => number.to_send_value(),
            Self::Milliseconds(time) => (u64::from(*time) * 1_000_000).to_send_value(),
            Self::Double(number) => number.to_send_value(),
            Self::Float(number) => number.to_send_value(),
            // GLib's strings end at a zero.
            Self::Text(text) => text.as_ref().map(|text| text.replace('\0', "")).to_send_value(),
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Input {
    Text(String),
    /// After a zone that is valid.
    TextInZone(String),
    Zones {
        zones: Vec<([u8; 4], Vec<(u8, Field)>)>,
        by_text: bool,
    },
}

impl Input {
    fn array(&self) -> Option<gst::Array> {
        let parse = |text: &str| {
            let value = glib::Value::deserialize(&text.replace('\0', ""), gst::Array::static_type());
            value.ok().and_then(|value| value.get().ok())
        };
        match self {
            Self::Text(text) => parse(text),
            Self::TextInZone(text) => parse(&format!("<[zone,x=0.1,y=0.1,width=0.3,height=0.4{text}]>")),
            Self::Zones { zones, by_text } => {
                let zone = |([x, y, width, height], fields): &([u8; 4], Vec<(u8, Field)>)| {
                    let mut zone = gst::Structure::new_empty(if *x == 255 { "region" } else { "zone" });
                    for (name, share) in ["x", "y", "width", "height"].into_iter().zip([x, y, width, height]) {
                        zone.set_value(name, Field::Share(*share).value());
                    }
                    for (name, field) in fields {
                        let names = ["x", "y", "width", "height", "start", "end", "name", "other"];
                        zone.set_value(names[usize::from(*name % 8)], field.value());
                    }
                    zone.to_send_value()
                };
                let array = gst::Array::new(zones.iter().map(zone));
                if *by_text { parse(&array.to_value().serialize().ok()?) } else { Some(array) }
            }
        }
    }
}

fn text(array: &gst::Array) -> Option<glib::GString> {
    array.to_value().serialize().ok()
}

/// The elements, stopped and started, and the format of the frames.
fn elements() -> (gst::Element, Blur, VideoInfo) {
    cudagaussblur_fuzz::init();
    let info = VideoInfo::builder(VideoFormat::Gray8, SIZE[0], SIZE[1]).fps((25, 1)).build().expect("GRAY8 exists");
    let blur = Blur::new("region-mode=inside region-sources=zones cover=fill", &info);
    (gst::ElementFactory::make("cudagaussblur").build().expect("the element is registered"), blur, info)
}

thread_local!(static ELEMENTS: RefCell<(gst::Element, Blur, VideoInfo)> = RefCell::new(elements()));

fn check(array: &gst::Array, (stopped, blur, info): &mut (gst::Element, Blur, VideoInfo)) {
    stopped.set_property("zones", array);
    let read: gst::Array = stopped.property("zones");
    stopped.set_property("zones", &read);
    assert_eq!(text(&stopped.property("zones")), text(&read), "it reads back as itself");
    blur.element.set_property("zones", gst::Array::default());
    blur.element.set_property("zones", array);
    let accepted: gst::Array = blur.element.property("zones");
    let has_warning = blur.bus.pop_filtered(&[gst::MessageType::Warning]).is_some();
    blur.bus.set_flushing(true);
    blur.bus.set_flushing(false);
    if accepted.is_empty() {
        assert!(array.is_empty() || has_warning && text(array) == text(&read), "refused without a word, or changed");
    } else {
        assert_eq!((text(&accepted), accepted.len()), (text(&read), array.len()), "the same, started and stopped");
    }
    let zones: Vec<gst::Structure> = accepted.iter().map(|zone| zone.get().expect("a structure")).collect();
    let covers = |zone: &gst::Structure, x: u32, y: u32| {
        let [left, top, width, height] = ["x", "y", "width", "height"].map(|name| zone.get::<f64>(name).expect(name));
        let [start, end] = ["start", "end"].map(|name| zone.get_optional::<u64>(name).expect(name));
        assert!([left, top].iter().all(|edge| (0.0..=1.0).contains(edge)), "{zone}");
        assert!([width, height].iter().all(|side| *side > 0.0 && *side <= 1.0), "{zone}");
        assert!(end.is_none_or(|end| start.unwrap_or(0) < end), "{zone}");
        let meets = |sample: u32, start: f64, length: f64, side: u32| {
            let [start, length, sample] = [start * f64::from(side), length * f64::from(side), f64::from(sample)];
            start < start + length && sample < start + length && sample + 1.0 > start
        };
        let shares_time =
            start.is_none_or(|start| start < 2 * SECOND.nseconds()) && end.is_none_or(|end| end > SECOND.nseconds());
        shares_time && meets(x, left, width, SIZE[0]) && meets(y, top, height, SIZE[1])
    };
    let mut frame = gst::Buffer::from_mut_slice(vec![200_u8; info.size()]);
    frame.make_mut().set_pts(SECOND);
    frame.make_mut().set_duration(SECOND);
    let output = gray(&blur.push(frame).expect("a frame with valid zones leaves"), info);
    for (i, sample) in (0..).zip(output) {
        let is_covered = zones.iter().any(|zone| covers(zone, i % SIZE[0], i / SIZE[0]));
        assert_eq!(sample != 200, is_covered, "sample {} {} with {zones:?}", i % SIZE[0], i / SIZE[0]);
    }
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    ELEMENTS.with_borrow_mut(|elements| {
        if let Some(array) = input.array() {
            check(&array, elements);
        }
    });
});
