//! The properties of regions, as applications and gst-launch lines set them.

use crate::common::video::{Blur, blurred, bus_of, element, info, nick, param_spec, picture, read, texts};
use gst::glib;
use gst::glib::gobject_ffi::{GParamSpecDouble, GParamSpecUInt};
use gst::prelude::*;
use gst_video::VideoFormat;

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
fn defaults_and_ranges_are_documented_values() {
    let element = element("");
    assert_eq!(nick(&element, "region-mode"), "frame");
    assert_eq!(text(&element, "region-sources"), "zones+roi+analytics");
    assert_eq!(zones(&element), Vec::<String>::new());
    assert_eq!(element.property::<String>("labels"), "");
    assert_eq!(element.property::<f64>("min-confidence"), 0.0);
    assert_eq!(element.property::<f64>("expand"), 0.2);
    assert_eq!(nick(&element, "cover"), "blur");
    assert_eq!(element.property::<f64>("strength"), 0.25);
    assert_eq!(element.property::<u32>("cells"), 6);
    assert_eq!(element.property::<u32>("fill-color"), 0xff00_0000);
    assert_eq!(element.property::<u64>("hold-time"), 3_000_000_000);
    assert_eq!(element.property::<u32>("look-ahead"), 0);
    assert_eq!(nick(&element, "on-lost"), "release");
    assert_eq!(nick(&element, "on-missing"), "auto");

    let double = |name: &str| {
        let spec: GParamSpecDouble = param_spec::<_, glib::ParamSpecDouble>(&element, name);
        let is_controllable = element.find_property(name).unwrap().flags().contains(gst::PARAM_FLAG_CONTROLLABLE);
        (spec.minimum, spec.maximum, is_controllable)
    };
    assert_eq!(double("min-confidence"), (0.0, 1.0, false));
    assert_eq!(double("expand"), (0.0, 4.0, true));
    assert_eq!(double("strength"), (0.0, 2.0, true));
    let cells: GParamSpecUInt = param_spec::<_, glib::ParamSpecUInt>(&element, "cells");
    assert_eq!((cells.minimum, cells.maximum), (1, 64));
    let frames: GParamSpecUInt = param_spec::<_, glib::ParamSpecUInt>(&element, "look-ahead");
    assert_eq!((frames.minimum, frames.maximum), (0, 120));
    let flags = element.find_property("look-ahead").unwrap().flags();
    assert!(flags.contains(gst::PARAM_FLAG_MUTABLE_READY) && !flags.contains(gst::PARAM_FLAG_MUTABLE_PLAYING));
    for name in [
        "region-mode",
        "region-sources",
        "zones",
        "labels",
        "min-confidence",
        "expand",
        "cover",
        "strength",
        "cells",
        "fill-color",
        "hold-time",
        "on-lost",
        "on-missing",
    ] {
        let spec = element.find_property(name).unwrap();
        assert!(spec.flags().contains(gst::PARAM_FLAG_MUTABLE_PLAYING), "{name}");
        assert!(spec.blurb().is_some_and(|blurb| blurb.len() > 20), "{name}");
    }
}

#[test]
fn values_of_a_launch_line_read_back_also_while_playing() {
    let blur = Blur::new("");
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
    ] {
        blur.element.set_property_from_str(name, value);
        assert_eq!(text(&blur.element, name), expected, "{name}={value}");
    }
    for name in ["min-confidence", "expand", "strength"] {
        blur.element.set_property(name, 0.75);
        assert_eq!(blur.element.property::<f64>(name), 0.75);
    }
    blur.element.set_property("labels", None::<&str>);
    assert_eq!(blur.element.property::<String>("labels"), "");
    assert!(blur.messages(gst::MessageType::Warning).is_empty());
}

#[test]
fn zones_of_a_launch_line_read_back() {
    let element = element("");
    let line =
        "<[zone,x=0.5,y=0,width=0.25,height=1],[zone,x=0,y=0,width=1,height=0.5,start=(guint64)7,end=5000000000]>";
    element.set_property_from_str("zones", line);
    let expected = [
        "zone, x=(double)0.5, y=(double)0, width=(double)0.25, height=(double)1;",
        "zone, x=(double)0, y=(double)0, width=(double)1, height=(double)0.5, start=(guint64)7, end=(guint64)5000000000;",
    ];
    assert_eq!(zones(&element), expected);
    // What reads back can be set.
    let value = element.property_value("zones");
    let other = crate::common::video::element("");
    other.set_property_from_value("zones", &value);
    assert_eq!(zones(&other), expected);
    element.set_property_from_str("zones", "<>");
    assert_eq!(zones(&element), Vec::<String>::new());
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
    let blur = Blur::new("");
    blur.element.set_property("zones", array([zone(0.5)]));
    let before = zones(&blur.element);
    let named = gst::Structure::builder("place").build();
    for (wrong, expected) in [
        (array([zone(-1.0)]), "zones: zone 1 has x=-1, but"),
        (gst::Array::new([0.5]), "zones: zone 1 is 0.5, but must be a structure such as [zone,"),
        (array([zone(0.0), named]), "zones: zone 2 is a structure named place, but must be named zone"),
    ] {
        blur.element.set_property("zones", wrong);
        let warnings = blur.messages(gst::MessageType::Warning);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with(expected), "{warnings:?}");
        assert!(warnings[0].contains("; zones stays <"), "{warnings:?}");
        assert_eq!(zones(&blur.element), before);
    }
    for (line, expected) in [
        ("<[zone,x=0.5,y=0,width=0.25,height=1],[zone,x=left,y=0,width=1,height=1]>", "zone 2 has x=left (gchararray)"),
        ("<[zone,x=0.5,y=0,width=0.25]>", "zone 1 has no height"),
        ("<zone>", "zone 1 is zone (gchararray), but must be a structure"),
    ] {
        blur.element.set_property_from_str("zones", line);
        let warnings = blur.messages(gst::MessageType::Warning);
        assert!(warnings.len() == 1 && warnings[0].contains(expected), "{line}: {warnings:?}");
        assert_eq!(zones(&blur.element), before);
    }
}

/// The settings of regions do not change full frames.
#[test]
fn region_mode_frame_blurs_the_whole_picture() {
    let info = info(VideoFormat::Rgb, 40, 30);
    let image = picture(&info, 1);
    let mut blur = Blur::new("sigma=3 cover=fill strength=2 on-missing=error");
    blur.element.set_property("zones", array([zone(0.5)]));
    blur.caps(&info);
    assert!(read(&info, &blur.push(crate::common::video::buffer(&info, &image))) == blurred(&image, 3.0, 0));
}

/// A GRAY8 mask in a sample, whose rows begin at multiples of 4 bytes.
fn mask(columns: u32, samples: Vec<u8>) -> gst::Sample {
    let caps = gst::Caps::builder("video/x-raw").field("format", "GRAY8").field("width", columns as i32);
    let caps = caps.field("height", samples.len() as i32 / columns.next_multiple_of(4) as i32).build();
    gst::Sample::builder().caps(&caps).buffer(&gst::Buffer::from_mut_slice(samples)).build()
}

/// A negative `grow` shrinks an object, or leaves it whole if nothing of it would be left.
#[test]
fn an_object_that_shrinks_is_covered_in_its_middle_or_whole() {
    let info = info(VideoFormat::Gray8, 128, 64);
    let mut shrunk = 0;
    for (shape, grow) in [("ellipse", 4), ("ellipse", 9), ("mask", 4), ("mask", 9)] {
        for side in 2..40 {
            let properties = format!("region-mode=inside shape={shape} grow=-{grow} cover=fill backend=cpu expand=0");
            let mut blur = Blur::new(&properties);
            blur.caps(&info);
            let mut input = gst::Buffer::from_mut_slice(vec![200; 128 * 64]);
            let at = (40, 10, side, side);
            let mut meta = gst_video::VideoRegionOfInterestMeta::add(input.get_mut().unwrap(), "person", at);
            if shape == "mask" {
                meta.add_param(gst::Structure::builder("mask").field("sample", mask(8, vec![255; 64])).build());
            }
            let output = blur.push(input);
            let output = output.map_readable().unwrap();
            // Samples whose centres are in the ellipse or the box, or that far within.
            let is_object = |x: u32, y: u32, within: f64| {
                let radius = f64::from(side) / 2.0;
                let [x, y] = [x as f64 + 0.5 - 40.0 - radius, y as f64 + 0.5 - 10.0 - radius].map(f64::abs);
                let reach = radius - within;
                if shape == "mask" { x.max(y) < reach } else { reach > 0.0 && x.hypot(y) < reach }
            };
            let all_covered = |within: f64| {
                let all = (0..64).flat_map(|y| (0..128).map(move |x| (x, y)));
                let mut inside = all.filter(|(x, y)| is_object(*x, *y, within));
                inside.all(|(x, y)| output[(y * 128 + x) as usize] == 0)
            };
            let middle = output[((10 + side / 2) * 128 + 40 + side / 2) as usize];
            assert_eq!(middle, 0, "{shape} {grow} {side}");
            // One node of the grid of weights less.
            assert!(all_covered(f64::from(grow + 2)), "{shape} {grow} {side}");
            let is_whole = all_covered(0.0);
            assert!(is_whole || side > 2 * grow, "{shape} {grow} {side}");
            assert!(!is_whole || side < 2 * grow + 14, "{shape} {grow} {side} does not shrink");
            shrunk += u32::from(!is_whole);
        }
    }
    assert!(shrunk > 40, "{shrunk}");
}

/// In a box of 64x32 at (32,16) the left half is the object; a sample of the mask has 8x8 luma samples.
#[test]
fn masks_of_regions_of_interest_are_covered_or_shown() {
    let info = info(VideoFormat::Gray8, 128, 64);
    let left: Vec<u8> = (0..8 * 4).map(|i| if i % 8 < 4 { 255 } else { 0 }).collect();
    let [object, whole] = [[32, 64], [32, 96]];
    for (mode, mask, columns) in [
        ("inside", Some(mask(8, left.clone())), object),
        ("outside", Some(mask(8, left)), object),
        // Without a mask that can be read the box is covered, and not shown.
        ("inside", Some(mask(8, vec![0; 8 * 4])), whole),
        ("inside", Some(mask(8, vec![])), whole),
        ("inside", None, whole),
        ("outside", Some(mask(8, vec![0; 8 * 4])), [0, 0]),
        ("outside", None, [0, 0]),
    ] {
        let mut blur = Blur::new(&format!("region-mode={mode} shape=mask cover=fill backend=cpu expand=0"));
        blur.caps(&info);
        let mut input = gst::Buffer::from_mut_slice(vec![200; 128 * 64]);
        let mut meta = gst_video::VideoRegionOfInterestMeta::add(input.get_mut().unwrap(), "person", (32, 16, 64, 32));
        if let Some(mask) = &mask {
            meta.add_param(gst::Structure::builder("mask").field("sample", mask).build());
        }
        let output = blur.push(input);
        let output = output.map_readable().unwrap();
        // As far as the edge of a mask may be off: two of its samples, and rounding. A box errs by two luma samples.
        let near = if columns == object { 18 } else { 2 };
        let is_in = |at: usize, [start, end]: [usize; 2], by: i64| {
            (start as i64 - by..end as i64 + by).contains(&(at as i64)) && start < end
        };
        for (index, sample) in output.iter().enumerate() {
            let (x, y) = (index % 128, index / 128);
            let is_object = |by| is_in(x, columns, by) && is_in(y, [16, 48], by);
            let expected = match mode {
                "inside" if is_object(0) => Some(0),
                "inside" if !is_object(near) => Some(200),
                "outside" if !is_object(0) => Some(0),
                "outside" if is_object(-9) => Some(200),
                _ => None,
            };
            assert!(expected.is_none_or(|expected| expected == *sample), "{mode} {columns:?} ({x},{y}): {sample}");
        }
    }
}
