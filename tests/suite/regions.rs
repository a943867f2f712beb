//! The properties of regions, as applications and gst-launch lines set them. `documentation` has their defaults and ranges.

use crate::common::stream::Stream;
use crate::common::video::{Blur, bus_of, element, texts};
use gst::glib;
use gst::prelude::*;

/// The zones of the element, as text.
fn zones(element: &gst::Element) -> Vec<String> {
    let zones = element.property::<gst::Array>("zones");
    zones.as_slice().iter().map(|zone| zone.get::<gst::Structure>().unwrap().to_string()).collect()
}

fn zone(x: f64) -> gst::Structure {
    gst::Structure::builder("zone").field("x", x).field("y", 0.0).field("width", 0.5).field("height", 0.5).build()
}

fn array(zones: impl IntoIterator<Item = gst::Structure>) -> gst::Array {
    gst::Array::new(zones.into_iter().map(|zone| zone.to_send_value()))
}

/// The value of a property, as in a gst-launch line.
fn text(element: &gst::Element, property: &str) -> String {
    let value = element.property_value(property);
    match glib::FlagsValue::from_value(&value) {
        Some((_, flags)) => {
            flags.iter().map(|flag| flag.nick()).filter(|nick| *nick != "all").collect::<Vec<_>>().join("+")
        }
        None => value.serialize().unwrap().into(),
    }
}

#[test]
fn values_of_a_launch_line_read_back_also_while_playing() {
    let blur = Blur::new("");
    assert_eq!(text(&blur.element, "region-sources"), "zones+roi+analytics");
    for (name, value, expected) in [
        ("region-mode", "inside", "inside"),
        ("region-mode", "outside", "outside"),
        ("region-sources", "zones+analytics", "zones+analytics"),
        ("region-sources", "all", "zones+roi+analytics"),
        ("region-sources", "alpha", "alpha"),
        ("region-sources", "all+alpha", "zones+roi+analytics+alpha"),
        ("cover", "mosaic", "mosaic"),
        ("cover", "fill", "fill"),
        ("on-lost", "cover", "cover"),
        ("on-missing", "error", "error"),
        ("cells", "3", "3"),
        ("fill-color", "0x80ff0010", "2164195344"),
        ("hold-time", "18446744073709551615", "18446744073709551615"),
        ("labels", "person,licence plate", "\"person\\,licence\\ plate\""),
        ("labels", "", "\"\""),
        ("min-confidence", "0.75", "0.75"),
        ("expand", "0.75", "0.75"),
        ("strength", "0.75", "0.75"),
    ] {
        blur.element.set_property_from_str(name, value);
        assert_eq!(text(&blur.element, name), expected, "{name}={value}");
    }
    blur.element.set_property("labels", None::<&str>);
    assert_eq!(blur.element.property::<String>("labels"), "");
    assert!(blur.messages(gst::MessageType::Warning).is_empty());
}

#[test]
fn zones_of_a_launch_line_read_back() {
    let [element, other] = [0; 2].map(|_| element(""));
    assert_eq!(zones(&element), [""; 0]);
    let line =
        "<[zone,x=0.5,y=0,width=0.25,height=1],[zone,x=0,y=0,width=1,height=0.5,start=(guint64)7,end=5000000000]>";
    element.set_property_from_str("zones", line);
    let expected = [
        "zone, x=(double)0.5, y=(double)0, width=(double)0.25, height=(double)1;",
        "zone, x=(double)0, y=(double)0, width=(double)1, height=(double)0.5, start=(guint64)7, end=(guint64)5000000000;",
    ];
    assert_eq!(zones(&element), expected);
    // What reads back can be set.
    other.set_property_from_value("zones", &element.property_value("zones"));
    assert_eq!(zones(&other), expected);
    element.set_property_from_str("zones", "<>");
    assert_eq!(zones(&element), [""; 0]);
    element.set_property("zones", array([zone(0.25)]));
    assert_eq!(zones(&element).len(), 1);
}

#[test]
fn invalid_zones_fail_the_start_with_a_sentence() {
    let element = element("");
    let bus = bus_of(&element);
    element.set_property("zones", array([zone(0.5), zone(1.5)]));
    assert_eq!(zones(&element).len(), 2, "they read back as set");
    assert!(element.set_state(gst::State::Paused).is_err(), "the start succeeded");
    let errors = texts(&bus, gst::MessageType::Error);
    element.set_state(gst::State::Null).unwrap();
    assert_eq!(errors, ["zones: zone 2 has x=1.5, but it must be a fraction of the picture: a number from 0 to 1"]);
    element.set_property("zones", array([zone(0.5)]));
    element.set_state(gst::State::Paused).unwrap();
    element.set_state(gst::State::Null).unwrap();
}

#[test]
fn invalid_zones_while_playing_are_refused_with_a_warning() {
    let mut stream = Stream::gray("");
    stream.element.set_property("zones", array([zone(0.5)]));
    let before = zones(&stream.element);
    let mut refuses = |set: &dyn Fn(&gst::Element), warning: &str| {
        set(&stream.element);
        stream.warns(&format!("{warning}…; zones stays <…"));
        assert_eq!(zones(&stream.element), before);
    };
    let named = gst::Structure::builder("place").build();
    for (wrong, warning) in [
        (array([zone(-1.0)]), "zones: zone 1 has x=-1, but"),
        (gst::Array::new([0.5]), "zones: zone 1 is 0.5, but must be a structure such as [zone,"),
        (array([zone(0.0), named]), "zones: zone 2 is a structure named place, but must be named zone"),
    ] {
        refuses(&|element| element.set_property("zones", wrong.clone()), warning);
    }
    for (line, warning) in [
        (
            "<[zone,x=0.5,y=0,width=0.25,height=1],[zone,x=left,y=0,width=1,height=1]>",
            "…zone 2 has x=left (gchararray)",
        ),
        ("<[zone,x=0.5,y=0,width=0.25]>", "…zone 1 has no height"),
        ("<zone>", "…zone 1 is zone (gchararray), but must be a structure"),
    ] {
        refuses(&|element| element.set_property_from_str("zones", line), warning);
    }
}

/// The settings of regions do not change full frames.
#[test]
fn region_mode_frame_blurs_the_whole_picture() {
    let properties = "region-mode=frame sigma=3 cover=fill strength=2 on-missing=error";
    Stream::gray(&format!("{properties} zones=<[zone,x=0.5,y=0.0,width=0.5,height=0.5]>"))
        .hidden_by(3.0)
        .plays(&[("frame", "0:whole")]);
}
