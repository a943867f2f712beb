//! The properties of the element as docs/PROPERTIES.md describes them, with values as text: which are usable, and which are in use.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::str::FromStr;

use gst::glib;
use gst::prelude::*;

/// Each property with values that are usable, the default first, and values that are not. The first [`LIVE`] ones may change at any
/// time, the others only while the element is stopped.
pub const PROPERTIES: [(&str, &str, &str); 25] = [
    ("sigma", "1.5;0;0.1;0.3;0.8;1.5;2;3.4;3.5;5;12;40;1024", "nan;-1;inf;1024.5;1e300"),
    ("kernel-size", "0;0;0;1;3;7;41;801", "2;800;803;4294967295"),
    ("planes", "luma+chroma+alpha;luma+chroma+alpha;luma;chroma;alpha;luma+chroma;chroma+alpha", ""),
    ("alpha", "straight;premultiply", ""),
    ("region-mode", "frame;inside;inside;inside;outside;outside", ""),
    ("region-sources", "zones+roi+analytics;zones+roi+analytics;zones+roi;roi;zones", ""),
    ("zones", "<>", "<[zone,x=0.1,y=0.2,width=0.3,height=0.0]>;<[zone,x=-0.5,y=0.2,width=0.3,height=0.4]>"),
    ("labels", ";;face;FACE , plate; , ;gesicht,ÉTÉ;cat", ""),
    ("min-confidence", "0;0;0.5;0.9;1", "nan;-0.1;1.5;-inf"),
    ("expand", "0.2;0;0;0.37;1;4", "nan;-1;4.5;inf"),
    ("shape", "box;box;ellipse;mask;mask", ""),
    ("feather", "0;0;0;1;2;5;16;256", "257;4294967295"),
    ("grow", "0;0;0;1;4;30;256;-1;-3;-20;-64", "-65;257;-2147483648;2147483647"),
    ("cover", "blur;mosaic;fill", ""),
    ("strength", "0.25;0;0.1;0.25;0.5;2", "nan;-1;2.5;inf"),
    ("cells", "6;1;2;6;17;64", "0;65;4294967295"),
    ("fill-color", "0xff000000;0;0xffffffff;0x80c04020;0xff00ff00", ""),
    ("hold-time", "3000000000;0;0;1;40000000;500000000;18446744073709551615", ""),
    ("on-lost", "release;release;cover", ""),
    ("on-missing", "auto;auto;auto;pass;pass;cover;drop;error", ""),
    ("post-messages", "false;true;true;true;true;true;true;true;true", ""),
    ("backend", "auto;auto;cuda", ""),
    ("cuda-device-id", "-1;0", "-2;-2147483648"),
    ("look-ahead", "0;0;0;0;1;1;2;5;120", "121;4294967295"),
    ("max-in-flight", "1;1;2;3;4", "0;17;4294967295"),
];
pub const LIVE: usize = 21;

/// The values of a property that are usable, or those that are not.
pub fn values(property: &str, are_usable: bool) -> Vec<&'static str> {
    let (_, usable, unusable) = PROPERTIES.iter().find(|(name, ..)| *name == property).expect(property);
    if are_usable { usable.split(';').collect() } else { unusable.split_terminator(';').collect() }
}

#[derive(Debug, Clone)]
pub struct Zone {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    /// Stream times in seconds.
    pub start: Option<f64>,
    pub end: Option<f64>,
}

impl Zone {
    /// As in a gst-launch line.
    pub fn text(&self) -> String {
        let Self { x, y, width, height, .. } = self;
        let time = |name: &str, time: Option<f64>| time.map_or(String::new(), |time| format!(",{name}={time:?}"));
        let [start, end] = [time("start", self.start), time("end", self.end)];
        format!("[zone,x={x:?},y={y:?},width={width:?},height={height:?}{start}{end}]")
    }
}

/// The values in use.
#[derive(Debug, Clone)]
pub struct Settings(BTreeMap<&'static str, String>);

impl Default for Settings {
    fn default() -> Self {
        Self(PROPERTIES.iter().map(|(name, ..)| (*name, values(name, true)[0].to_owned())).collect())
    }
}

impl Settings {
    pub fn is_usable(property: &str, value: &str) -> bool {
        !values(property, false).contains(&value)
    }

    /// Whether a property can be changed only while the element is stopped.
    pub fn is_fixed(property: &str) -> bool {
        PROPERTIES[LIVE..].iter().any(|(name, ..)| *name == property)
    }

    /// The properties whose values are not usable.
    pub fn unusable(&self) -> Vec<&'static str> {
        self.0.iter().filter(|(property, value)| !Self::is_usable(property, value)).map(|(name, _)| *name).collect()
    }

    pub fn insert(&mut self, property: &'static str, value: &str) {
        self.0.insert(property, value.to_owned());
    }

    pub fn text(&self, property: &str) -> &str {
        &self.0[property]
    }

    pub fn number<T: FromStr<Err: Debug>>(&self, property: &str) -> T {
        self.text(property).parse().expect(property)
    }

    /// Whether covers of regions have weights.
    pub fn is_soft(&self) -> bool {
        self.text("shape") != "box" || self.text("feather") != "0"
    }

    pub fn zones(&self) -> Vec<Zone> {
        let zones = glib::Value::deserialize(self.text("zones"), gst::Array::static_type()).unwrap();
        let zone = |zone: &glib::SendValue| {
            let zone = zone.get::<gst::Structure>().unwrap();
            let [x, y, width, height] = ["x", "y", "width", "height"].map(|side| zone.get(side).unwrap());
            Zone { x, y, width, height, start: zone.get("start").ok(), end: zone.get("end").ok() }
        };
        zones.get::<gst::Array>().unwrap().iter().map(zone).collect()
    }

    /// Whether flags have this one.
    pub fn has(&self, property: &str, flag: &str) -> bool {
        self.text(property).split('+').any(|one| one == flag)
    }

    pub fn posts_messages(&self) -> bool {
        self.text("post-messages") == "true"
    }
}

/// The value for this property of the element.
pub fn value(element: &gst::Element, property: &str, text: &str) -> glib::Value {
    glib::Value::deserialize(text, element.property_type(property).unwrap()).expect(text)
}

/// Whether the property has this value; as text, because no NaN is equal to itself.
pub fn reads_back(element: &gst::Element, property: &str, text: &str) -> bool {
    let text_of = |value: glib::Value| value.serialize().unwrap();
    text_of(element.property_value(property)) == text_of(value(element, property, text))
}
