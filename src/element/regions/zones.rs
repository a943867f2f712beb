// SPDX-License-Identifier: MPL-2.0
//! `zones`: fixed places in the picture, `<[zone,x=0.1,y=0.1,width=0.3,height=0.4]>`.

use gst::glib;
use gst::prelude::*;

use crate::regions::zone::Zone;

/// The fields of a zone.
const FIELDS: [&str; 7] = ["x", "y", "width", "height", "start", "end", "name"];

/// What a zone looks like, for errors.
const EXAMPLE: &str = "[zone,x=0.1,y=0.1,width=0.3,height=0.4]";

/// Why a value of `zones` cannot be used. Zones are numbered from 1.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("zones: zone {number} {error}")]
pub struct ZoneError {
    number: usize,
    error: FieldError,
}

/// What is wrong with one zone.
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
    #[error("has {field}={value}, but it must be a stream time in nanoseconds: a whole number from 0 on{cure}")]
    Time { field: &'static str, value: String, cure: String },
    #[error("has end={end}, but it must end after start={start}")]
    Order { start: u64, end: u64 },
    #[error("has name={0}, but it must be a string, as in name=door, or name=(string)1 for digits")]
    ZoneName(String),
}

/// A value for an error message. All but numbers have their type, `left (gchararray)`.
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

/// The number that GStreamer may have read as a negative one. Numbers without a type it reads as 32 bits with a sign, and those from
/// 2^32 on as doubles, so that 3000000000 becomes -1294967296.
fn wrapped(read: i32) -> Option<u32> {
    (read < 0).then(|| read.cast_unsigned())
}

/// Whether a negative number was meant as it is: it is a whole number of microseconds, which then the other one is not, or just below
/// 0.
fn is_meant(negative: i32) -> bool {
    negative % 1000 == 0 || negative > -1_000_000
}

impl Zone {
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
            let in_range = number(value).filter(|number| is_in_range(*number));
            in_range.ok_or_else(|| FieldError::Fraction { field, value: shown(value), range })
        };
        let place = |field| fraction(field, "from 0 to 1", |number| (0.0..=1.0).contains(&number));
        let length = |field| fraction(field, "above 0, up to 1", |number| number > 0.0 && number <= 1.0);
        let time = |field| {
            let Ok(value) = structure.value(field) else { return Ok(None) };
            let from_number =
                || number(value).filter(|time| time.fract() == 0.0 && (0.0..2_f64.powi(64)).contains(time));
            let time = value.get::<u64>().ok().or_else(|| from_number().map(|time| time as u64));
            let read = value.get::<i32>().ok();
            let wrapped = read.and_then(wrapped);
            time.or_else(|| wrapped.filter(|_| !read.is_some_and(is_meant)).map(u64::from)).map(Some).ok_or_else(|| {
                let cure = wrapped.map(|time| format!("; if {time} is meant, write (guint64){time}"));
                FieldError::Time { field, value: shown(value), cure: cure.unwrap_or_default() }
            })
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
        match (zone.start.unwrap_or(0), zone.end) {
            (start, Some(end)) if end <= start => Err(FieldError::Order { start, end }),
            _ => Ok(zone),
        }
    }

    fn to_structure(&self) -> gst::Structure {
        gst::Structure::builder("zone")
            .field("x", self.x)
            .field("y", self.y)
            .field("width", self.width)
            .field("height", self.height)
            .field_if_some("start", self.start)
            .field_if_some("end", self.end)
            .field_if_some("name", self.name.as_ref())
            .build()
    }

    /// What is suspicious about it, if anything is.
    fn suspicious(&self) -> Option<String> {
        /// A millisecond, in nanoseconds: no zone is meant to start or end within it.
        const SHORT: u64 = 1_000_000;
        for (field, time) in [("start", self.start), ("end", self.end)] {
            if let Some(time) = time.filter(|time| (1..SHORT).contains(time)) {
                return Some(format!("has {field}={time}, but times are in nanoseconds: 1 s is 1000000000"));
            }
        }
        let edge = [("x", self.x), ("y", self.y)].into_iter().find(|(_, edge)| *edge >= 1.0);
        edge.map(|(field, _)| format!("has {field}=1, where the picture ends, so that it has nothing of the picture"))
    }
}

/// The value of `zones`. Any array can be set, and reads back as it was set if it is not valid.
#[derive(Debug, Clone)]
pub struct Zones(Result<Vec<Zone>, (gst::Array, ZoneError)>);

impl Default for Zones {
    fn default() -> Self {
        Self(Ok(Vec::new()))
    }
}

impl Zones {
    /// Reads a value of the property.
    pub fn parse(array: gst::Array) -> Self {
        let zone = |(i, value): (usize, &glib::SendValue)| {
            Zone::from_value(value).map_err(|error| ZoneError { number: i + 1, error })
        };
        let zones: Result<Vec<Zone>, ZoneError> = array.as_slice().iter().enumerate().map(zone).collect();
        Self(zones.map_err(|error| (array, error)))
    }

    /// The zones; none if the value is not valid, which start refuses.
    pub fn as_slice(&self) -> &[Zone] {
        self.0.as_deref().unwrap_or_default()
    }

    /// What is suspicious about zones, as a sentence; `None` if nothing is.
    pub fn suspicious(&self) -> Option<String> {
        let text = |(i, zone): (usize, &Zone)| Some(format!("zone {} {}", i + 1, zone.suspicious()?));
        let texts: Vec<String> = self.as_slice().iter().enumerate().filter_map(text).collect();
        (!texts.is_empty()).then(|| format!("zones: {}", texts.join("; ")))
    }

    /// Why the value is not valid, if it is not.
    pub fn check(&self) -> Result<(), ZoneError> {
        self.0.as_ref().map(drop).map_err(|(_, error)| error.clone())
    }

    /// The value of the property.
    pub fn to_array(&self) -> gst::Array {
        match &self.0 {
            Ok(zones) => gst::Array::new(zones.iter().map(|zone| zone.to_structure().to_send_value())),
            Err((array, _)) => array.clone(),
        }
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
        let zones = Zones::parse(gst::Array::new(values.into_iter().map(|structure| structure.to_send_value())));
        zones.check().map_err(|error| error.to_string())?;
        Ok(zones.as_slice().to_vec())
    }

    #[test]
    fn numbers_of_every_type_are_read_and_written_back() {
        let second = with("start", 5_000_000_000.0);
        let no_name = with("name", None::<&str>);
        let zones =
            read([zone(), second, with("end", 7_i32), with("end", u64::MAX), with("name", "door"), no_name]).unwrap();
        let first = Zone { x: 0.25, y: 0.0, width: 0.5, height: 1.0, start: None, end: None, name: None };
        assert_eq!(
            zones,
            [
                first.clone(),
                Zone { start: Some(5_000_000_000), ..first.clone() },
                Zone { end: Some(7), ..first.clone() },
                Zone { end: Some(u64::MAX), ..first.clone() },
                Zone { name: Some("door".to_owned()), ..first.clone() },
                first,
            ]
        );
        let written = Zones(Ok(zones.clone())).to_array();
        assert_eq!(Zones::parse(written).as_slice(), zones);
        assert_eq!(read([]), Ok(vec![]));
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
        let mut late = with("start", 9_u64);
        late.set("end", 9_u64);
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
            (with("start", -1_i64), "has start=-1, but it must be a stream time in nanoseconds: a whole number from 0"),
            (with("end", 0.5), "has end=0.5, but it must be a stream time in nanoseconds"),
            (with("end", "soon"), "has end=soon (gchararray), but it must be a stream time in nanoseconds"),
            (with("end", 0_u64), "has end=0, but it must end after start=0"),
            (late, "has end=9, but it must end after start=9"),
            (with("name", 5), "has name=5, but it must be a string, as in name=door, or name=(string)1 for digits"),
            (with("name", true), "has name=true (gboolean), but it must be a string"),
        ] {
            let error = read([zone(), wrong]).unwrap_err();
            assert!(error.starts_with(&format!("zones: zone 2 {expected}")), "{error}");
        }
        let number = Zones::parse(gst::Array::new([0.5]));
        let error = number.check().unwrap_err().to_string();
        assert_eq!(error, format!("zones: zone 1 is 0.5, but must be a structure such as {EXAMPLE}"));
        assert_eq!(number.as_slice(), []);
        let empty = Zones::parse(gst::Array::new([None::<gst::Structure>.to_send_value()]));
        assert!(empty.check().unwrap_err().to_string().starts_with("zones: zone 1 is empty, but must be a structure"));
        assert_eq!(number.to_array().as_slice()[0].get::<f64>(), Ok(0.5), "it reads back as set");
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
        let mut both = with("start", 10_u64);
        both.set("end", 20_u64);
        for (zone, active) in [
            (zone(), [true, true, true, true]),
            (with("start", 10_u64), [false, true, true, true]),
            (with("end", 20_u64), [true, true, true, false]),
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

    /// What gst-launch makes of a number: 32 bits with a sign up to 2^32, and a double from there on.
    #[test]
    fn times_of_a_launch_line_are_read_at_any_size() {
        gst::init().unwrap();
        for time in [0, 1, 2_147_483_647, 2_147_483_648, 3_000_000_000, 4_293_000_000, 4_294_967_296, 5_000_000_000_u64]
        {
            let text = format!("zone,x=0.0,y=0.0,width=1.0,height=1.0,end={}", time.max(1));
            let structure: gst::Structure = text.parse().unwrap();
            assert_eq!(read([structure]).map(|zones| zones[0].end), Ok(Some(time.max(1))), "{text}");
        }
        // Negative times, of which 2^32 more is not a time that anybody writes.
        for (time, other) in [
            (-1, 4_294_967_295_u32),
            (-999_999, 4_293_967_297),
            (-2_000_000, 4_292_967_296),
            (-40_000_000, 4_254_967_296),
            (-1_000_000_000, 3_294_967_296),
            (-2_147_483_000, 2_147_484_296),
        ] {
            let structure = |time: &str| {
                let text = format!("zone,x=0.0,y=0.0,width=1.0,height=1.0,start={time}");
                text.parse::<gst::Structure>().unwrap()
            };
            let error = read([structure(&time.to_string())]).unwrap_err();
            let refused = format!(
                "zones: zone 1 has start={time}, but it must be a stream time in nanoseconds: a whole number from 0 on"
            );
            assert_eq!(error, format!("{refused}; if {other} is meant, write (guint64){other}"));
            for typed in ["gint64", "double", "float"] {
                let error = read([structure(&format!("({typed}){time}"))]).unwrap_err();
                assert!(
                    error.starts_with("zones: zone 1 has start=-") && error.ends_with("from 0 on"),
                    "{typed}: {error}"
                );
            }
            let meant = read([structure(&format!("(guint64){other}"))]).unwrap();
            assert_eq!(meant[0].start, Some(other.into()));
        }
    }

    #[test]
    fn suspicious_zones_are_named() {
        let text = |zone: gst::Structure| Zones::parse(gst::Array::new([zone.to_send_value()])).suspicious();
        assert_eq!(text(zone()), None);
        assert_eq!(text(with("end", 1_000_000_u64)), None);
        let seconds = text(with("end", 5_u64)).unwrap();
        assert!(seconds.starts_with("zones: zone 1 has end=5") && seconds.ends_with("1 s is 1000000000"), "{seconds}");
        assert!(text(with("x", 1)).unwrap().contains("has x=1"));
    }
}
