//! The properties of regions, as applications and gst-launch lines set them. `documentation` has their defaults and ranges, the lives
//! read back every value, and the unit tests of zones have each wrong one.

use crate::common::Noise;
use crate::common::checks::{start_fails, starts};
use crate::common::covered::info;
use crate::common::stream::Stream;
use crate::common::video::{Blur, element};
use gst::prelude::*;
use gst_video::VideoFormat;

const SIDES: [&str; 4] = ["x", "y", "width", "height"];
const FIELDS: [&str; 8] = ["x", "y", "width", "height", "start", "end", "name", "other"];

/// The zones of an element. GStreamer's versions write lists in several ways.
fn zones_of(element: &gst::Element) -> String {
    let zones = element.property::<gst::Array>("zones");
    zones.as_slice().iter().map(|zone| zone.get::<gst::Structure>().unwrap().to_string()).collect()
}

fn zones(places: &[f64]) -> gst::Array {
    let zone = |x: &f64| gst::Structure::builder("zone").field("x", *x).field("y", 0.0).field("width", 0.5);
    gst::Array::new(places.iter().map(|x| zone(x).field("height", 0.5).build().to_send_value()))
}

#[test]
fn numbers_of_a_launch_line_read_back_as_doubles_also_while_playing() {
    let blur = Blur::new("");
    let two_zones =
        "<[zone,x=0.5,y=0,width=0.25,height=1],[zone,x=0,y=0,width=1,height=0.5,start=(guint64)7,end=12.5]>";
    let read_back = "zone, x=(double)0.5, y=(double)0, width=(double)0.25, height=(double)1;\
         zone, x=(double)0, y=(double)0, width=(double)1, height=(double)0.5, start=(double)7, end=(double)12.5;";
    for (text, expected) in [(two_zones, read_back), ("<>", "")] {
        blur.element.set_property_from_str("zones", text);
        assert_eq!(zones_of(&blur.element), expected, "{text}");
    }
    blur.element.set_property("labels", None::<&str>);
    assert_eq!(blur.element.property::<String>("labels"), "");
    blur.said(0, 0);
}

#[test]
fn invalid_zones_fail_the_start_with_a_sentence() {
    let element = element("");
    element.set_property("zones", zones(&[0.5, 1.5]));
    assert_eq!(zones_of(&element).matches(';').count(), 2, "they read back as set");
    start_fails(&element, &["zones: zone 2 has x=1.5, but it must be a fraction of the picture: a number from 0 to 1"]);
    element.set_property("zones", zones(&[0.5]));
    starts(&element);
}

#[test]
fn invalid_zones_while_playing_are_refused_with_a_warning() {
    let mut stream = Stream::gray("");
    let element = stream.element.clone();
    element.set_property("zones", zones(&[0.5]));
    let before = zones_of(&element);
    for (value, warning) in [
        (gst::Array::new([0.5]), "zones: zone 1 is 0.5, but must be a structure such as [zone,"),
        (gst::Array::new(["zone"]), "zones: zone 1 is zone (gchararray), but must be a structure"),
        (zones(&[0.5, -1.0]), "zones: zone 2 has x=-1, but"),
    ] {
        element.set_property("zones", value);
        stream.warns(&format!("{warning}…; zones stays <…"));
        assert_eq!(zones_of(&element), before);
    }
}

/// A value of any type that an application may set.
fn any_value(noise: &mut Noise) -> gst::glib::SendValue {
    let any = noise.next();
    match noise.below(12) {
        0 => (any as i32).to_send_value(),
        1 => (any as i64).to_send_value(),
        2 => (any as u32).to_send_value(),
        3 => any.to_send_value(),
        4 => (any % 5).to_send_value(),
        5 => f64::from_bits(any).to_send_value(),
        6 => (f32::from(any as u8) / 240.0).to_send_value(),
        7 => None::<&str>.to_send_value(),
        _ => (f64::from(any as u8) / 240.0).to_send_value(),
    }
}

/// They are refused with a warning, or read back as themselves within their limits, and cover exactly their places in their time.
#[test]
fn zones_of_any_values_are_refused_or_cover_exactly_their_places() {
    const SIZE: [u32; 2] = [16, 12];
    let mut noise = Noise(1);
    let mut stream = Stream::of(&info(VideoFormat::Gray8, SIZE), "region-sources=zones cover=fill");
    stream.picture.bytes[0].fill(200);
    let (playing, stopped) = (stream.element.clone(), element(""));
    let [mut accepted, mut refused] = [0; 2];
    for _ in 0..2000 {
        let count = 1 + noise.below(3);
        let zone = |_| {
            let mut zone = gst::Structure::new_empty("zone");
            SIDES.iter().for_each(|side| zone.set(*side, f64::from(noise.below(256)) / 240.0));
            (0..noise.below(3)).for_each(|_| zone.set_value(noise.pick(&FIELDS), any_value(&mut noise)));
            zone.to_send_value()
        };
        let zones = gst::Array::new((0..count).map(zone));
        stopped.set_property("zones", &zones);
        let read = zones_of(&stopped);
        stopped.set_property("zones", stopped.property::<gst::Array>("zones"));
        assert_eq!(zones_of(&stopped), read, "they read back as themselves");
        playing.set_property("zones", gst::Array::default());
        stream.messages(gst::MessageType::Warning);
        playing.set_property("zones", &zones);
        let is_refused = zones_of(&playing).is_empty();
        *(if is_refused { &mut refused } else { &mut accepted }) += 1;
        assert_eq!(stream.messages(gst::MessageType::Warning).len(), usize::from(is_refused), "{read}");
        assert!(is_refused || zones_of(&playing) == read, "{read}");

        let zones: Vec<gst::Structure> =
            playing.property::<gst::Array>("zones").iter().map(|zone| zone.get().unwrap()).collect();
        let active = zones.iter().filter_map(|zone| {
            let place @ [x, y, width, height] = SIDES.map(|side| zone.get::<f64>(side).unwrap());
            let [start, end] = ["start", "end"].map(|edge| zone.get_optional::<f64>(edge).unwrap());
            let is_place = place.iter().all(|share| (0.0..=1.0).contains(share)) && width > 0.0 && height > 0.0;
            assert!(is_place && end.is_none_or(|end| start.unwrap_or(0.0) < end), "{zone}");
            let is_active = start.is_none_or(|start| start < 2.0) && end.is_none_or(|end| end > 1.0);
            is_active.then_some([[x, width], [y, height]])
        });
        let active: Vec<[[f64; 2]; 2]> = active.collect();
        let mut frame = stream.frame();
        frame.make_mut().set_pts(gst::ClockTime::SECOND);
        frame.make_mut().set_duration(gst::ClockTime::SECOND);
        stream.push_as_is(frame);
        let output = stream.harness.pull().unwrap();
        let luma = stream.luma(&output);
        for place @ [x, y] in (0..SIZE[1]).flat_map(|y| (0..SIZE[0]).map(move |x| [x, y])) {
            let covers = |zone: &[[f64; 2]; 2]| {
                (0..2).all(|axis| {
                    let [sample, side] = [place[axis], SIZE[axis]].map(f64::from);
                    let [start, length] = zone[axis].map(|share| share * side);
                    start < start + length && sample < start + length && sample + 1.0 > start
                })
            };
            assert_eq!(luma(x, y) != 200, active.iter().any(covers), "({x}, {y}) with {read}");
        }
    }
    assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
}
