//! The properties of regions, as applications and gst-launch lines set them. `documentation` has their defaults and ranges, the lives
//! read back every value and check what zones cover, and the unit tests of zones have numbers of every type and each wrong value.

use crate::common::checks::{start_fails, starts};
use crate::common::stream::Stream;
use crate::common::video::{Blur, element};
use gst::prelude::*;

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
