//! The properties of the element as docs/PROPERTIES.md describes them: which values are usable, and which are in use.

use std::collections::BTreeMap;

use gst::glib;
use gst::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Double(f64),
    Uint(u32),
    Uint64(u64),
    Int(i32),
    Bool(bool),
    /// A string, an enum or flags.
    Text(&'static str),
    Zones(Vec<Zone>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    pub start: Option<u64>,
    pub end: Option<u64>,
}

impl Zone {
    fn is_usable(&self) -> bool {
        let is_place = |value: f64| (0.0..=1.0).contains(&value);
        let is_length = |value: f64| is_place(value) && value > 0.0;
        let is_time = self.end.is_none_or(|end| end > self.start.unwrap_or(0));
        is_place(self.x) && is_place(self.y) && is_length(self.width) && is_length(self.height) && is_time
    }

    fn to_structure(&self) -> gst::Structure {
        let zone = gst::Structure::builder("zone").field("x", self.x).field("y", self.y);
        let mut zone = zone.field("width", self.width).field("height", self.height).build();
        self.start.into_iter().for_each(|start| zone.set("start", start));
        self.end.into_iter().for_each(|end| zone.set("end", end));
        zone
    }
}

/// The values in use.
#[derive(Debug, Clone)]
pub struct Settings(BTreeMap<&'static str, Value>);

impl Default for Settings {
    fn default() -> Self {
        Self(BTreeMap::from([
            ("sigma", Value::Double(1.5)),
            ("kernel-size", Value::Uint(0)),
            ("planes", Value::Text("luma+chroma+alpha")),
            ("alpha", Value::Text("straight")),
            ("backend", Value::Text("auto")),
            ("cuda-device-id", Value::Int(-1)),
            ("max-in-flight", Value::Uint(1)),
            ("region-mode", Value::Text("frame")),
            ("region-sources", Value::Text("zones+roi+analytics")),
            ("zones", Value::Zones(Vec::new())),
            ("labels", Value::Text("")),
            ("min-confidence", Value::Double(0.0)),
            ("expand", Value::Double(0.2)),
            ("shape", Value::Text("box")),
            ("feather", Value::Uint(0)),
            ("grow", Value::Int(0)),
            ("cover", Value::Text("blur")),
            ("strength", Value::Double(0.25)),
            ("cells", Value::Uint(6)),
            ("fill-color", Value::Uint(0xff00_0000)),
            ("hold-time", Value::Uint64(3_000_000_000)),
            ("look-ahead", Value::Uint(0)),
            ("on-lost", Value::Text("release")),
            ("on-missing", Value::Text("auto")),
            ("post-messages", Value::Bool(false)),
        ]))
    }
}

impl Settings {
    /// Whether a value is usable.
    pub fn is_usable(property: &str, value: &Value) -> bool {
        match (property, value) {
            ("sigma", Value::Double(sigma)) => (0.0..=1024.0).contains(sigma),
            ("min-confidence", Value::Double(value)) => (0.0..=1.0).contains(value),
            ("expand", Value::Double(value)) => (0.0..=4.0).contains(value),
            ("strength", Value::Double(value)) => (0.0..=2.0).contains(value),
            ("kernel-size", Value::Uint(size)) => *size == 0 || size % 2 == 1 && *size <= 801,
            ("feather", Value::Uint(pixels)) => *pixels <= 256,
            ("grow", Value::Int(pixels)) => (-64..=256).contains(pixels),
            ("cells", Value::Uint(cells)) => (1..=64).contains(cells),
            ("look-ahead", Value::Uint(frames)) => *frames <= 120,
            ("max-in-flight", Value::Uint(frames)) => (1..=16).contains(frames),
            ("cuda-device-id", Value::Int(device)) => *device >= -1,
            ("zones", Value::Zones(zones)) => zones.iter().all(Zone::is_usable),
            _ => true,
        }
    }

    /// Whether a property can be changed only while the element is stopped.
    pub fn is_fixed(property: &str) -> bool {
        ["backend", "cuda-device-id", "look-ahead", "max-in-flight"].contains(&property)
    }

    /// The properties whose values are not usable.
    pub fn unusable(&self) -> Vec<&'static str> {
        self.0.iter().filter(|(property, value)| !Self::is_usable(property, value)).map(|(name, _)| *name).collect()
    }

    pub fn insert(&mut self, property: &'static str, value: Value) {
        self.0.insert(property, value);
    }

    pub fn get(&self, property: &str) -> &Value {
        &self.0[property]
    }

    pub fn double(&self, property: &str) -> f64 {
        let Value::Double(value) = self.get(property) else { panic!("{property}") };
        *value
    }

    pub fn uint(&self, property: &str) -> u32 {
        let Value::Uint(value) = self.get(property) else { panic!("{property}") };
        *value
    }

    pub fn grow(&self) -> i32 {
        let Value::Int(value) = self.get("grow") else { panic!("grow") };
        *value
    }

    /// Whether covers of regions have weights.
    pub fn is_soft(&self) -> bool {
        self.text("shape") != "box" || self.uint("feather") > 0
    }

    pub fn text(&self, property: &str) -> &'static str {
        let Value::Text(value) = self.get(property) else { panic!("{property}") };
        value
    }

    pub fn zones(&self) -> &[Zone] {
        let Value::Zones(zones) = self.get("zones") else { panic!("zones") };
        zones
    }

    /// Whether flags or a list of names has this one.
    pub fn has(&self, property: &str, flag: &str) -> bool {
        self.text(property).split('+').any(|one| one == flag)
    }

    pub fn posts_messages(&self) -> bool {
        *self.get("post-messages") == Value::Bool(true)
    }
}

impl Value {
    /// A number as a value of the same type.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Double(value) => Some(*value),
            Self::Uint(value) => Some((*value).into()),
            Self::Int(value) => Some((*value).into()),
            _ => None,
        }
    }

    /// The same type with another number.
    pub fn with_number(&self, number: f64) -> Self {
        match self {
            Self::Uint(_) => Self::Uint(number as u32),
            Self::Int(_) => Self::Int(number as i32),
            _ => Self::Double(number),
        }
    }

    /// The value for this property of the element.
    pub fn to_value(&self, element: &gst::Element, property: &str) -> glib::Value {
        match self {
            Self::Double(value) => value.to_value(),
            Self::Uint(value) => value.to_value(),
            Self::Uint64(value) => value.to_value(),
            Self::Int(value) => value.to_value(),
            Self::Bool(value) => value.to_value(),
            Self::Text(value) if property == "labels" => value.to_value(),
            Self::Text(value) => glib::Value::deserialize(value, element.property_type(property).unwrap()).unwrap(),
            Self::Zones(zones) => {
                gst::Array::new(zones.iter().map(|zone| zone.to_structure().to_send_value())).to_value()
            }
        }
    }

    /// Whether the property has this value; as text, because no NaN is equal to itself.
    pub fn reads_back(&self, element: &gst::Element, property: &str) -> bool {
        let text = |value: glib::Value| value.serialize().unwrap();
        text(element.property_value(property)) == text(self.to_value(element, property))
    }
}
