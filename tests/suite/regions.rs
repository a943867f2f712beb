//! The properties of regions, as applications and gst-launch lines set them. `documentation` has their defaults and ranges.

use crate::common::checks::{start_fails, starts};
use crate::common::stream::Stream;
use crate::common::video::{Blur, element};
use gst::glib;
use gst::prelude::*;

/// The value of a property, as in a gst-launch line. Each zone is in a line of its own, because GStreamer's versions write lists in
/// several ways.
fn text(element: &gst::Element, property: &str) -> String {
    let value = element.property_value(property);
    if let Some((_, flags)) = glib::FlagsValue::from_value(&value) {
        flags.iter().map(|flag| flag.nick()).filter(|nick| *nick != "all").collect::<Vec<_>>().join("+")
    } else if let Ok(zones) = value.get::<gst::Array>() {
        zones.as_slice().iter().map(|zone| zone.get::<gst::Structure>().unwrap().to_string()).collect()
    } else {
        value.serialize().unwrap().into()
    }
}

fn zones(places: &[f64]) -> gst::Array {
    let zone = |x: &f64| gst::Structure::builder("zone").field("x", *x).field("y", 0.0).field("width", 0.5);
    gst::Array::new(places.iter().map(|x| zone(x).field("height", 0.5).build().to_send_value()))
}

#[test]
fn values_of_a_launch_line_read_back_also_while_playing() {
    let [blur, other] = [Blur::new(""), Blur::new("")];
    let two_zones =
        "<[zone,x=0.5,y=0,width=0.25,height=1],[zone,x=0,y=0,width=1,height=0.5,start=(guint64)7,end=5000000000]>";
    let read_back = "zone, x=(double)0.5, y=(double)0, width=(double)0.25, height=(double)1;\
         zone, x=(double)0, y=(double)0, width=(double)1, height=(double)0.5, start=(guint64)7, end=(guint64)5000000000;";
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
        ("zones", two_zones, read_back),
        ("zones", "<>", ""),
    ] {
        blur.element.set_property_from_str(name, value);
        other.element.set_property_from_value(name, &blur.element.property_value(name));
        assert_eq!([&blur, &other].map(|blur| text(&blur.element, name)), [expected; 2], "{name}={value}");
    }
    blur.element.set_property("labels", None::<&str>);
    assert_eq!(blur.element.property::<String>("labels"), "");
    assert!([&blur, &other].iter().all(|blur| blur.said(0, 0).is_empty()));
}

#[test]
fn invalid_zones_fail_the_start_with_a_sentence() {
    let element = element("");
    element.set_property("zones", zones(&[0.5, 1.5]));
    assert_eq!(text(&element, "zones").matches(';').count(), 2, "they read back as set");
    start_fails(&element, &["zones: zone 2 has x=1.5, but it must be a fraction of the picture: a number from 0 to 1"]);
    element.set_property("zones", zones(&[0.5]));
    starts(&element);
}

#[test]
fn invalid_zones_while_playing_are_refused_with_a_warning() {
    let mut stream = Stream::gray("");
    let element = stream.element.clone();
    element.set_property("zones", zones(&[0.5]));
    let before = text(&element, "zones");
    let mut is_refused = |warning: &str| {
        stream.warns(&format!("{warning}…; zones stays <…"));
        assert_eq!(text(&element, "zones"), before);
    };
    element.set_property("zones", gst::Array::new([0.5]));
    is_refused("zones: zone 1 is 0.5, but must be a structure such as [zone,");
    for (line, warning) in [
        ("<[zone,x=-1.0,y=0,width=0.5,height=0.5]>", "zones: zone 1 has x=-1, but"),
        (
            "<[zone,x=0,y=0,width=1,height=1],[place]>",
            "zones: zone 2 is a structure named place, but must be named zone",
        ),
        (
            "<[zone,x=0.5,y=0,width=0.25,height=1],[zone,x=left,y=0,width=1,height=1]>",
            "…zone 2 has x=left (gchararray)",
        ),
        ("<[zone,x=0.5,y=0,width=0.25]>", "…zone 1 has no height"),
        ("<zone>", "…zone 1 is zone (gchararray), but must be a structure"),
    ] {
        element.set_property_from_str("zones", line);
        is_refused(warning);
    }
}
