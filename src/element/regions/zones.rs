// SPDX-License-Identifier: MPL-2.0
//! `zones`: fixed places in the picture, `<[zone,x=0.1,y=0.1,width=0.3,height=0.4]>`.

use std::time::Duration;

use gst::glib;
use gst::prelude::*;

use crate::regions::zone::Zone;

/// The fields of a zone.
const FIELDS: [&str; 7] = ["x", "y", "width", "height", "start", "end", "name"];

/// An example of a zone, for errors.
const EXAMPLE: &str = "[zone,x=0.1,y=0.1,width=0.3,height=0.4]";

/// Why a value of `zones` cannot be used. Zones are numbered from 1.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("zones: zone {number} {error}")]
pub struct ZoneError {
    number: usize,
    error: FieldError,
}

/// The error in one zone.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
enum FieldError {
    #[error("is {0}, but must be a structure such as {EXAMPLE}")]
    NoStructure(String),
    #[error("is a structure named {0}, but must be named zone, as in {EXAMPLE}")]
    Name(String),
    #[error("has a field {0}, but a zone has only x, y, width, height, start, end and name; remove or rename it")]
    Unknown(String),
    #[error("has no {0}; set it to a fraction of the picture from 0 to 1, as in {EXAMPLE}")]
    Missing(&'static str),
    #[error("has {field}={value}, but it must be a fraction of the picture: a number {range}")]
    Fraction { field: &'static str, value: String, range: &'static str },
    // Up to 2^64 ns, in whole seconds.
    #[error("has {field}={value}, but it must be a stream time in seconds: a number from 0 on, up to 18446744073")]
    Time { field: &'static str, value: String },
    #[error("has end={end}, but it must end after start={start}")]
    Order { start: f64, end: f64 },
    #[error("has name={0}, but it must be a string, as in name=door, or name=(string)1 for digits")]
    ZoneName(String),
}

/// A value for an error message. Values other than numbers have their type: `left (gchararray)`.
fn shown(value: &glib::Value) -> String {
    let type_name = value.type_().name();
    match (number(value), value.serialize()) {
        (Some(number), _) => number.to_string(),
        (None, Ok(text)) => format!("{text} ({type_name})"),
        (None, Err(_)) => type_name.to_owned(),
    }
}

/// A value of any type that a number can have in a gst-launch line or a program.
fn number(value: &glib::Value) -> Option<f64> {
    let signed = || value.get::<i32>().map(i64::from).or_else(|_| value.get::<i64>()).map(|number| number as f64);
    let unsigned = || value.get::<u32>().map(u64::from).or_else(|_| value.get::<u64>()).map(|number| number as f64);
    value.get::<f64>().or_else(|_| value.get::<f32>().map(f64::from)).or_else(|_| signed()).or_else(|_| unsigned()).ok()
}

/// The same zone with doubles for its numbers. A value that is not a structure stays unchanged.
fn with_doubles(value: &glib::SendValue) -> glib::SendValue {
    let Ok(Some(mut structure)) = value.get::<Option<gst::Structure>>() else { return value.clone() };
    for (field, value) in structure.clone().iter() {
        if let Some(number) = number(value) {
            structure.set(field, number);
        }
    }
    structure.to_send_value()
}

impl Zone {
    /// Reads a zone whose numbers are doubles.
    fn from_value(value: &glib::Value) -> Result<Self, FieldError> {
        let structure = match value.get::<Option<gst::Structure>>() {
            Ok(Some(structure)) => structure,
            Ok(None) => return Err(FieldError::NoStructure("empty".to_owned())),
            Err(_) => return Err(FieldError::NoStructure(shown(value))),
        };
        if structure.name() != "zone" {
            return Err(FieldError::Name(structure.name().to_string()));
        }
        if let Some(unknown) = structure.fields().find(|field| !FIELDS.contains(&field.as_str())) {
            return Err(FieldError::Unknown(unknown.to_string()));
        }
        let fraction = |field, range, is_in_range: fn(f64) -> bool| {
            let value = structure.value(field).map_err(|_| FieldError::Missing(field))?;
            let in_range = value.get().ok().filter(|number| is_in_range(*number));
            in_range.ok_or_else(|| FieldError::Fraction { field, value: shown(value), range })
        };
        let place = |field| fraction(field, "from 0 to 1", |number| (0.0..=1.0).contains(&number));
        let length = |field| fraction(field, "above 0, up to 1", |number| number > 0.0 && number <= 1.0);
        let time = |field| {
            let Ok(value) = structure.value(field) else { return Ok(None) };
            let time = value.get().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            let time = time.and_then(|time| u64::try_from(time.as_nanos()).ok());
            time.map(Some).ok_or_else(|| FieldError::Time { field, value: shown(value) })
        };
        let name = match structure.value("name") {
            Ok(value) => value.get().map_err(|_| FieldError::ZoneName(shown(value)))?,
            Err(_) => None,
        };
        let zone = Self {
            x: place("x")?,
            y: place("y")?,
            width: length("width")?,
            height: length("height")?,
            start: time("start")?,
            end: time("end")?,
            name,
        };
        if zone.end.is_some_and(|end| end <= zone.start.unwrap_or(0)) {
            let [start, end] = ["start", "end"].map(|field| structure.get(field).unwrap_or(0.0));
            return Err(FieldError::Order { start, end });
        }
        Ok(zone)
    }

    /// A suspicious field of the zone, if it has one.
    fn suspicious(&self) -> Option<String> {
        let edge = [("x", self.x), ("y", self.y)].into_iter().find(|(_, edge)| *edge >= 1.0);
        edge.map(|(field, _)| format!("has {field}=1, where the picture ends, so that it has nothing of the picture"))
    }
}

/// The value of `zones`. Any array can be set.
#[derive(Debug, Clone)]
pub struct Zones {
    /// The value as it was set, with doubles for its numbers. `zones` cannot restore it, because it has times in whole nanoseconds.
    value: gst::Array,
    zones: Result<Vec<Zone>, ZoneError>,
}

impl Default for Zones {
    fn default() -> Self {
        Self::parse(&gst::Array::default())
    }
}

impl Zones {
    /// Reads a value of the property.
    pub fn parse(array: &gst::Array) -> Self {
        let value = gst::Array::from_values(array.iter().map(with_doubles));
        let zone = |(i, value): (usize, &glib::SendValue)| {
            Zone::from_value(value).map_err(|error| ZoneError { number: i + 1, error })
        };
        let zones = value.iter().enumerate().map(zone).collect();
        Self { value, zones }
    }

    /// The zones; none if the value is not valid, which start refuses.
    pub fn as_slice(&self) -> &[Zone] {
        self.zones.as_deref().unwrap_or_default()
    }

    /// A sentence about a suspicious zone; `None` if no zone is suspicious.
    pub fn suspicious(&self) -> Option<String> {
        let text = |(i, zone): (usize, &Zone)| Some(format!("zone {} {}", i + 1, zone.suspicious()?));
        let texts: Vec<String> = self.as_slice().iter().enumerate().filter_map(text).collect();
        (!texts.is_empty()).then(|| format!("zones: {}", texts.join("; ")))
    }

    /// Why the value is not valid, if it is not.
    pub fn check(&self) -> Result<(), ZoneError> {
        self.zones.as_ref().map(drop).map_err(ZoneError::clone)
    }

    /// The value of the property.
    pub fn as_array(&self) -> &gst::Array {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::regions::{Rect, Region};

    fn zone() -> gst::Structure {
        gst::init().unwrap();
        gst::Structure::builder("zone")
            .field("x", 0.25)
            .field("y", 0)
            .field("width", 0.5_f32)
            .field("height", 1_i64)
            .build()
    }

    fn with(field: &str, value: impl Into<glib::Value> + Send) -> gst::Structure {
        let mut zone = zone();
        zone.set(field, value);
        zone
    }

    fn read(values: impl IntoIterator<Item = gst::Structure>) -> Result<Vec<Zone>, String> {
        let zones = Zones::parse(&gst::Array::new(values));
        zones.check().map_err(|error| error.to_string())?;
        Ok(zones.as_slice().to_vec())
    }

    #[test]
    fn numbers_of_every_type_are_read_and_read_back_as_doubles() {
        let no_name = with("name", None::<&str>);
        let values =
            [zone(), with("start", 2.005), with("end", 7_i32), with("end", 1_u64 << 34), with("name", "door"), no_name];
        let first = Zone { x: 0.25, y: 0.0, width: 0.5, height: 1.0, start: None, end: None, name: None };
        assert_eq!(
            read(values),
            Ok(vec![
                first.clone(),
                Zone { start: Some(2_005_000_000), ..first.clone() },
                Zone { end: Some(7_000_000_000), ..first.clone() },
                Zone { end: Some(1_000_000_000 << 34), ..first.clone() },
                Zone { name: Some("door".to_owned()), ..first.clone() },
                first,
            ])
        );
        assert_eq!(read([]), Ok(vec![]));
        for time in [0.0, 2.005, 1.0 / 3.0, 1e-11, 18_446_744_073.7] {
            let zones = Zones::parse(&gst::Array::new([with("start", time)]));
            assert_eq!(zones.check(), Ok(()));
            assert_eq!(zones.as_array()[0].get::<gst::Structure>().unwrap().get("start"), Ok(time));
        }
    }

    #[test]
    fn each_wrong_input_is_one_sentence() {
        let without = |field: &str| {
            let mut zone = zone();
            zone.remove_field(field);
            zone
        };
        let mut named = zone();
        named.set_name("region");
        let between = |start, end| {
            let mut zone = with("start", start);
            zone.set("end", end);
            zone
        };
        for (wrong, expected) in [
            (named, "is a structure named region, but must be named zone"),
            (without("height"), "has no height; set it to a fraction of the picture from 0 to 1"),
            (with("x", -0.5), "has x=-0.5, but it must be a fraction of the picture: a number from 0 to 1"),
            (with("y", 2_i32), "has y=2, but it must be a fraction of the picture: a number from 0 to 1"),
            (with("x", f64::NAN), "has x=NaN, but it must be a fraction of the picture: a number from 0 to 1"),
            (with("width", 0), "has width=0, but it must be a fraction of the picture: a number above 0, up to 1"),
            (with("height", 1080_u32), "has height=1080, but it must be a fraction of the picture"),
            (with("x", "left"), "has x=left (gchararray), but it must be a fraction of the picture: a number"),
            (with("strat", 5_u64), "has a field strat, but a zone has only x, y, width, height, start, end and name"),
            (with("start", -1_i64), "has start=-1, but it must be a stream time in seconds: a number from 0 on"),
            (
                with("end", -1e-12),
                "has end=-0.000000000001, but it must be a stream time in seconds: a number from 0 on",
            ),
            (with("end", f64::NAN), "has end=NaN, but it must be a stream time in seconds: a number from 0 on"),
            (with("end", f64::INFINITY), "has end=inf, but it must be a stream time in seconds: a number from 0 on"),
            (with("end", "soon"), "has end=soon (gchararray), but it must be a stream time in seconds"),
            (
                with("start", 5e21),
                "has start=5000000000000000000000, but it must be a stream time in seconds: a number from 0 on, up to 18446744073",
            ),
            (with("end", 2_f64.powi(64) / 1e9), "has end=18446744073.709553, but it must be a stream time in seconds"),
            (with("end", 0_u64), "has end=0, but it must end after start=0"),
            (between(9.5, 9.5), "has end=9.5, but it must end after start=9.5"),
            (between(9.0, 9.0 + 4e-10), "has end=9.0000000004, but it must end after start=9"),
            (with("name", 5), "has name=5, but it must be a string, as in name=door, or name=(string)1 for digits"),
            (with("name", true), "has name=true (gboolean), but it must be a string"),
        ] {
            let error = read([zone(), wrong]).unwrap_err();
            assert!(error.starts_with(&format!("zones: zone 2 {expected}")), "{error}");
        }
        let number = Zones::parse(&gst::Array::new([0.5]));
        let error = number.check().unwrap_err().to_string();
        assert_eq!(error, format!("zones: zone 1 is 0.5, but must be a structure such as {EXAMPLE}"));
        assert_eq!(number.as_slice(), []);
        let empty = Zones::parse(&gst::Array::new([None::<gst::Structure>]));
        assert!(empty.check().unwrap_err().to_string().starts_with("zones: zone 1 is empty, but must be a structure"));
        assert_eq!(number.as_array()[0].get::<f64>(), Ok(0.5), "it reads back as it was set");
    }

    #[test]
    fn place_is_a_fraction_of_the_frame() {
        let rect = |zone: gst::Structure, size| {
            let zone = read([zone]).unwrap().remove(0);
            Region::new(zone.area(size), 0.0, size).map(|region| region.rect)
        };
        assert_eq!(rect(zone(), (100, 50)), Rect::new(25, 0, 50, 50));
        assert_eq!(rect(zone(), (3, 3)), Rect::new(0, 0, 3, 3), "outwards");
        assert_eq!(rect(with("width", 0.0001), (100, 50)), Rect::new(25, 0, 1, 50), "never nothing");
        assert_eq!(rect(with("x", 0.75), (100, 50)), Rect::new(75, 0, 25, 50), "clipped");
        assert_eq!(rect(with("x", 1), (100, 50)), None);
    }

    #[test]
    fn start_and_end_are_stream_times() {
        let (from, to) = (10e-9, 20e-9);
        let mut both = with("start", from);
        both.set("end", to);
        for (zone, active) in [
            (zone(), [true, true, true, true]),
            (with("start", from), [false, true, true, true]),
            (with("end", to), [true, true, true, false]),
            (both, [false, true, true, false]),
        ] {
            let zone = read([zone]).unwrap().remove(0);
            for is_shown in [false, true] {
                let instants = [9, 10, 19, 20].map(|time| zone.is_active(Some((time, time)), is_shown));
                assert_eq!(instants, active, "{zone:?} {is_shown}");
            }
            let frames = [(-5, 10), (0, 11), (19, 24), (20, 25), (10, 20)];
            let (from, to) = (zone.start.is_none(), zone.end.is_none());
            assert_eq!(frames.map(|span| zone.is_active(Some(span), false)), [from, true, true, to, true], "{zone:?}");
            assert_eq!(frames.map(|span| zone.is_active(Some(span), true)), [from, from, to, to, true], "{zone:?}");
            assert!(zone.is_active(None, false), "without a time every zone is covered");
            assert_eq!(zone.is_active(None, true), from && to, "and none that has a time is shown");
        }
    }

    #[test]
    fn zones_beyond_the_picture_are_suspicious() {
        let text = |zone: gst::Structure| Zones::parse(&gst::Array::new([zone])).suspicious();
        assert_eq!(text(zone()), None);
        assert!(text(with("x", 1)).unwrap().contains("has x=1"));
    }
}
